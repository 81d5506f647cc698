"""Planners against exact answers: value iteration, soft policy iteration, natural gradients."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.control import planning
from privrl.control.heads import Layers, Linear, Table
from privrl.control.rollouts import Rollout, collect_rollout
from privrl.core.types import Floats
from privrl.data import Fourier, OneHot
from privrl.envs import Interval, TabularMDP
from privrl.privacy import InputError

GAMMA = 0.9
STATES, ACTIONS = 4, 3


def _mdp(seed: int) -> TabularMDP:
    """Probabilities are quarters, so that a rollout can have them exactly; some steps terminate."""
    draw = np.random.default_rng(seed)
    shape = (STATES, ACTIONS, 2)
    quarters = draw.integers(1, 4, shape[:2])
    return TabularMDP.from_tables(
        draw.integers(0, STATES, shape),
        np.stack([quarters, 4 - quarters], axis=2) / 4,
        draw.normal(size=shape),
        draw.random(shape) < 0.2,
        np.full(STATES, 1 / STATES),
    )


def _exact_rollout(mdp: TabularMDP) -> tuple[Rollout, Floats]:
    """Every state and action four times, each successor as often as it is likely; and rewards."""
    rows: list[tuple[int, int, int, bool, float]] = []
    tables = mdp.tables
    for s, a, k in np.ndindex(*tables.probabilities.shape):
        row = (
            s,
            a,
            int(tables.successors[s, a, k]),
            bool(tables.terminated[s, a, k]),
            float(tables.rewards[s, a, k]),
        )
        rows += [row] * round(4 * float(tables.probabilities[s, a, k]))
    state, action, after, ended, reward = (np.array(column) for column in zip(*rows, strict=True))
    return Rollout(state, action, after, ended, np.zeros_like(ended)), reward


HEADS = [Table(STATES, ACTIONS), Linear(OneHot(STATES), ACTIONS)]


@pytest.mark.parametrize("head", HEADS)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=15)
def test_fitted_q_is_value_iteration(head: Any, seed: int) -> None:
    mdp = _mdp(seed)
    steps, rewards = _exact_rollout(mdp)
    found = planning.fitted_q_iteration(steps, rewards, head, GAMMA, 2000, 0.0)
    assert np.allclose(found, mdp.optimal(GAMMA).action_values, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("head", HEADS)
def test_the_actor_critic_is_soft_policy_iteration(head: Any) -> None:
    mdp, step = _mdp(3), 0.7
    steps, rewards = _exact_rollout(mdp)
    preferences = np.zeros((STATES, ACTIONS))
    for iterations in range(1, 6):
        probs = np.exp(preferences)
        probs /= probs.sum(axis=1, keepdims=True)
        values = mdp.action_values(probs, GAMMA)
        preferences = preferences + step * values
        u, w = planning.actor_critic(
            steps, rewards, head, GAMMA, 2000, 0.0, iterations=iterations, step=step
        )
        assert np.allclose(w, values, rtol=0.0, atol=1e-8)
        assert np.allclose(u, preferences, rtol=0.0, atol=1e-7)


def test_the_step_of_the_actor_is_the_natural_gradient() -> None:
    """F^+ grad J, from the definition of both, is the advantage: w up to a constant per state."""
    mdp = _mdp(5)
    steps, rewards = _exact_rollout(mdp)
    u, w = planning.actor_critic(
        steps, rewards, Table(STATES, ACTIONS), GAMMA, 2000, 0.0, iterations=2, step=1.3
    )
    probs = np.exp(u - 1.3 * w)
    probs /= probs.sum(axis=1, keepdims=True)

    def worth(flat: Floats) -> float:
        table = np.exp(flat.reshape(STATES, ACTIONS))
        return mdp.start_value(table / table.sum(axis=1, keepdims=True), GAMMA)

    logits, tiny = np.log(probs).ravel(), 1e-5
    bumps = tiny * np.eye(logits.size)
    gradient = np.array([(worth(logits + b) - worth(logits - b)) / (2 * tiny) for b in bumps])
    # How often each state is visited, discounted.
    visits = np.linalg.solve(
        np.eye(STATES) - GAMMA * mdp.transition_matrix(probs).T, mdp.tables.start
    )
    fisher = np.zeros((logits.size, logits.size))
    for s, a in np.ndindex(STATES, ACTIONS):
        score = np.zeros((STATES, ACTIONS))
        score[s] = -probs[s]
        score[s, a] += 1.0
        fisher += visits[s] * probs[s, a] * np.outer(score, score)
    natural = (np.linalg.pinv(fisher, rcond=1e-10) @ gradient).reshape(STATES, ACTIONS)
    natural -= np.sum(probs * natural, axis=1, keepdims=True)
    advantage = w - np.sum(probs * w, axis=1, keepdims=True)
    assert np.allclose(natural, advantage, rtol=0.0, atol=1e-5)
    # Which says something only if there is an advantage to speak of.
    assert np.max(np.abs(advantage)) > 0.1


def test_what_was_never_tried_is_the_worst_of_a_table() -> None:
    steps = Rollout(
        np.array([0, 0]),
        np.array([0, 1]),
        np.array([0, 0]),
        np.array([True, True]),
        np.array([False, False]),
    )
    found = planning.fitted_q_iteration(steps, np.array([-1.0, -2.0]), Table(2, 3), 0.5, 50, 0.0)
    assert found[0].tolist() == pytest.approx([-1.0, -2.0, -4.0])
    assert found[1].tolist() == pytest.approx([-4.0, -4.0, -4.0])


def test_values_never_leave_what_rewards_add_up_to() -> None:
    """Baird's kind of features, with which fitted iteration would grow for ever."""
    features = Fourier(6, (0.0,), (1.0,))
    draw = np.random.default_rng(0)
    n = 30
    steps = Rollout(
        0.1 * draw.random((n, 1)),
        np.arange(n) % 2,
        draw.random((n, 1)),
        np.zeros(n, bool),
        np.zeros(n, bool),
    )
    rewards = draw.normal(size=n)
    head = Linear(features, 2)
    found = planning.fitted_q_iteration(steps, rewards, head, 0.99, 1000, 1e-9)
    assert np.all(np.isfinite(found))
    fitted = np.asarray(features(steps.observation)) @ found
    assert np.max(np.abs(fitted)) < 3.0 * np.max(np.abs(rewards)) / (1.0 - 0.99)


def test_one_step_and_no_discount() -> None:
    steps = Rollout(
        np.array([0]), np.array([0]), np.array([1]), np.array([False]), np.array([True])
    )
    found = planning.fitted_q_iteration(steps, np.array([2.0]), Table(2, 1), 1.0, 10, 0.0)
    assert np.all(np.isfinite(found))
    with pytest.raises(InputError, match="never took action 1"):
        planning.fitted_q_iteration(steps, np.array([2.0]), Linear(OneHot(2), 2), 0.5, 10, 0.0)


@pytest.mark.slow
def test_a_network_finds_the_same_values() -> None:
    """On the interval without noise, against fitted iteration with many cosines."""
    env = Interval()
    steps = collect_rollout(env, None, jax.random.key(1), 2000)
    rewards = steps.reward
    assert rewards is not None
    exact = Linear(Fourier(10, (0.0,), (1.0,)), 2)
    weights = planning.fitted_q_iteration(steps.public(), rewards, exact, 0.8, 500, 1e-9)
    head = Layers((1, 32, 32, 2))
    found = planning.network_q(steps.public(), rewards, head, 0.8, updates=2000)
    states = np.linspace(0.05, 0.95, 19)[:, None]
    wanted = np.asarray(exact.features(states)) @ weights
    with jax.enable_x64(True):
        values = np.asarray(head.apply(found, head.inputs(states)))
    assert np.max(np.abs(values - wanted)) < 0.05
    assert np.mean(values.argmax(axis=1) == wanted.argmax(axis=1)) > 0.9


def test_a_network_where_episodes_end() -> None:
    """Rewards are not moved by a constant where ends make it matter."""
    mdp = _mdp(5)
    steps, rewards = _exact_rollout(mdp)
    found = planning.network_q(
        steps, rewards, Layers((STATES, 32, ACTIONS), OneHot(STATES)), 0.5, updates=2000
    )
    head = Layers((STATES, 32, ACTIONS), OneHot(STATES))
    with jax.enable_x64(True):
        values = np.asarray(head.apply(found, head.inputs(np.arange(STATES))))
    assert np.any(steps.terminated)
    assert np.max(np.abs(values - mdp.optimal(0.5).action_values)) < 0.05
