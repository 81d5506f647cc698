"""Q-learning against exact answers, hand-computed updates, and itself in another form."""

import math
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.control import LearnedQValues, QLearning
from privrl.control.q_learning import (
    Config,
    QLearningState,
    StepRecord,
    action_values,
    init,
    step,
    train,
)
from privrl.data import EpsilonGreedy, Fourier, OneHot, Polynomial, Softmax, collect
from privrl.envs import CartPole, Chain, Environment, Interval, MountainCar, TabularMDP
from privrl.papers.xie2019.control import CAR, CAR_SETTINGS
from privrl.privacy import InputError

KEY = jax.random.key(0)


@lru_cache  # one object each, so that it is compiled for once
def random_mdp(certain: bool) -> Any:
    """Five states, of which the last ends the episode, and two actions."""
    rng = np.random.default_rng(3)
    states, actions = 5, 2
    if certain:
        probs = np.eye(states)[rng.integers(states, size=(states, actions))]
    else:
        probs = rng.dirichlet(np.ones(states), (states, actions))
    rewards = rng.uniform(-1.0, 1.0, (states, actions))
    terminal = np.arange(states) == states - 1
    return TabularMDP.from_dense(probs, rewards, terminal, step_limit=30)


def follow(
    config: Config, env: Environment[Any, Any], count: int
) -> tuple[QLearningState, StepRecord, Any]:
    """The state after `count` steps, and all that was seen and learned on the way."""

    def body(state: QLearningState, _: None) -> Any:
        after, seen = step(config, env, state)
        return after, (seen, after.weights)

    def run() -> Any:
        return jax.lax.scan(body, init(KEY, config, env), None, length=count)

    last, (seen, weights) = jax.jit(run)()
    return last, seen, np.asarray(weights)


SHORT = Config(steps=120, checkpoints=1, episodes=1)


# --- exact ---------------------------------------------------------------------------------------


def test_values_become_optimal_where_nothing_is_left_to_prob() -> None:
    env = random_mdp(certain=True)
    config = Config(steps=20_000, gamma=0.8, step=0.5, epsilon=1.0, checkpoints=1, episodes=1)
    with jax.enable_x64(True):
        found = np.asarray(train(KEY, config, env).weights)
    best = env.optimal(0.8).action_values
    # The terminal state is never left, so nothing is learned about it.
    np.testing.assert_allclose(found[:-1], best[:-1], atol=1e-9)


def test_values_become_optimal_with_a_falling_step() -> None:
    env = random_mdp(certain=False)
    config = Config(
        steps=100_000,
        gamma=0.8,
        step=0.5,
        half_life=500,
        epsilon=0.5,
        checkpoints=1,
        episodes=1,
    )
    found = np.asarray(train(KEY, config, env).weights)
    best = env.optimal(0.8).action_values
    assert np.abs(best[:-1]).max() > 0.5
    np.testing.assert_allclose(found[:-1], best[:-1], atol=0.03)


def test_truncation_bootstraps_and_termination_does_not() -> None:
    # One state for ever, reward 1: worth 1 / (1 - gamma), whatever the clock says.
    forever = TabularMDP.from_dense(np.ones((1, 1, 1)), 1.0, step_limit=3)
    config = Config(steps=2_000, gamma=0.9, step=0.5, checkpoints=1, episodes=1)
    assert float(train(KEY, config, forever).weights[0, 0]) == pytest.approx(10.0, rel=1e-5)
    ends = TabularMDP.from_tables([[[0]]], [[[1.0]]], [[[1.0]]], [[[1]]], step_limit=3)
    assert float(train(KEY, config, ends).weights[0, 0]) == pytest.approx(1.0, rel=1e-5)


def test_max_steps_begins_a_new_episode_and_bootstraps() -> None:
    endless = TabularMDP.from_dense(np.ones((1, 1, 1)), 1.0)
    config = Config(steps=10, gamma=0.9, step=0.5, max_steps=4, checkpoints=1)
    _, seen, weights = follow(config, endless, 400)
    np.testing.assert_array_equal(np.flatnonzero(seen.truncated)[:3], [3, 7, 11])
    assert weights[-1, 0, 0] == pytest.approx(10.0, rel=1e-5)


# --- by hand -------------------------------------------------------------------------------------


def at(
    config: Config, env: Environment[Any, Any], inner: Any, weights: Any, trace: Any
) -> QLearningState:
    begun: QLearningState = jax.jit(lambda: init(KEY, config, env))()
    state = env.state_at(jnp.asarray(inner))
    observation = env._observe(state.inner, env.default_params)
    return begun._replace(
        weights=jnp.asarray(weights),
        trace=trace,
        carry=begun.carry._replace(state=state, observation=observation),
    )


def test_one_update_of_a_table_is_the_number_by_hand() -> None:
    # From state 0, both actions lead to state 1 and pay 2.
    env = TabularMDP.from_dense([[[0, 1], [0, 1]], [[0, 1], [0, 1]]], 2.0, step_limit=9)
    config = Config(steps=1, gamma=0.5, step=0.25, half_life=4.0, epsilon=0.0, checkpoints=1)
    with jax.enable_x64(True):
        state = at(config, env, 0, [[1.0, 3.0], [8.0, 4.0]], None)._replace(time=jnp.asarray(4))
        after, seen = jax.jit(partial(step, config, env))(state)
        # Greedy: action 1. delta = 2 + 0.5 * 8 - 3 = 3; the rate has halved to 0.125.
        assert int(seen.action) == 1
        assert float(seen.error) == 3.0
        np.testing.assert_array_equal(after.weights, [[1.0, 3.375], [8.0, 4.0]])


def test_one_update_with_features_has_its_own_rate_for_each() -> None:
    # Probability 0.25 stays unknown to the hand: the observation that was reached is used.
    env, features = Interval(), Fourier(order=2, low=[0.0], high=[1.0])
    config = Config(steps=1, features=features, gamma=0.9, step=0.1, epsilon=0.0, checkpoints=1)
    weights = np.array([[1.0, 0.0], [0.5, 0.25], [-0.5, 2.0]])
    with jax.enable_x64(True):
        after, seen = jax.jit(partial(step, config, env))(at(config, env, 0.25, weights, None))
        phi = np.cos(np.pi * np.arange(3) * 0.25)
        then = np.cos(np.pi * np.arange(3) * float(seen.next_observation[0]))
        action = int(np.argmax(phi @ weights))
        delta = float(seen.reward) + 0.9 * np.max(then @ weights) - (phi @ weights)[action]
        expected = weights.copy()
        expected[:, action] += 0.1 * delta * phi * np.array([1.0, 1.0, 0.5])
        np.testing.assert_allclose(after.weights, expected, rtol=1e-14)


def test_traces_fade_are_cut_by_exploring_and_end_with_the_episode() -> None:
    env = random_mdp(certain=False)
    config = Config(
        steps=1, gamma=0.9, step=0.3, half_life=50.0, lambda_=0.7, epsilon=0.5, checkpoints=1
    )
    with jax.enable_x64(True):
        _, seen, weights = follow(config, env, 200)
        table, trace = np.zeros((5, 2)), np.zeros((5, 2))
        cut = 0
        for t in range(200):
            s, a, after = (int(x[t]) for x in (seen.observation, seen.action, seen[3]))
            going = 0.0 if bool(seen.terminated[t]) else 0.9
            delta = float(seen.reward[t]) + going * table[after].max() - table[s, a]
            greedy = table[s, a] == table[s].max()
            trace[s, a] += 1.0
            table = table + 0.3 / (1.0 + t / 50.0) * delta * trace
            over = bool(seen.terminated[t] | seen.truncated[t])
            cut += not greedy and not over
            trace = trace * (0.9 * 0.7 * (greedy and not over))
            np.testing.assert_allclose(weights[t], table, rtol=1e-10, atol=1e-12)
        assert cut > 5
        assert np.sum(seen.terminated) > 5


# --- forms and streams ---------------------------------------------------------------------------


@pytest.mark.parametrize("lambda_", [0.0, 0.8])
def test_one_hot_features_are_a_table(lambda_: float) -> None:
    env = random_mdp(certain=False)
    table = Config(steps=500, gamma=0.9, lambda_=lambda_, epsilon=0.3, checkpoints=1)
    with jax.enable_x64(True):
        _, seen, weights = follow(table, env, 500)
        _, seen_too, weights_too = follow(replace(table, features=OneHot(5)), env, 500)
    # Not bit for bit: the compiler fuses multiplications and additions differently.
    np.testing.assert_allclose(weights, weights_too, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(seen.action, seen_too.action)
    assert np.any(weights != 0.0)


def test_actions_are_drawn_as_said() -> None:
    # One state, two actions, of which the first pays more: it is greedy after the first steps.
    env = TabularMDP.from_dense(np.ones((1, 2, 1)), [[1.0, 0.0]], step_limit=9)
    config = Config(steps=20_000, gamma=0.0, step=1.0, epsilon=0.3, checkpoints=1)
    _, seen, _ = follow(config, env, 20_000)
    # Five standard deviations of a share are 0.013.
    assert float(np.mean(np.asarray(seen.action) == 1)) == pytest.approx(0.15, abs=0.013)
    soft = replace(config, exploration="softmax", temperature=0.5)
    _, seen, _ = follow(soft, env, 20_000)
    share = 1.0 / (1.0 + math.exp(2.0))
    assert float(np.mean(np.asarray(seen.action) == 1)) == pytest.approx(share, abs=0.013)


def test_evaluating_changes_nothing_that_is_learned() -> None:
    env = random_mdp(certain=False)
    once = train(KEY, SHORT, env)
    often = train(KEY, replace(SHORT, checkpoints=6, episodes=5), env)
    np.testing.assert_array_equal(once.weights, often.weights)
    assert often.curve.shape == (6,)


def test_seeds_and_settings_vectorise() -> None:
    env = random_mdp(certain=False)
    keys, sizes = jax.random.split(KEY, 3), jnp.array([0.1, 0.3, 0.1])
    settings = [replace(SHORT, step=size) for size in sizes.tolist()]
    stacked = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *settings)
    many = jax.vmap(lambda key, given: train(key, given, env))(keys, stacked)
    for number, (key, given) in enumerate(zip(keys, settings, strict=True)):
        one = train(key, given, env)
        np.testing.assert_allclose(many.weights[number], one.weights, rtol=1e-5, atol=1e-6)
    assert not np.allclose(many.weights[0], many.weights[2])
    assert train(keys[0], replace(SHORT, step=0.3), env).weights[0, 0] != one.weights[0, 0]


# --- tasks ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_mountain_car_reaches_the_top() -> None:
    env = MountainCar()
    keys = jax.vmap(jax.random.key)(jnp.arange(100, 105))
    settings = Config(**CAR_SETTINGS)
    learned = jax.jit(jax.vmap(lambda key: train(key, settings, env)))(keys)
    returns = np.asarray(learned.curve)[:, 0]
    assert np.median(returns) > -150.0
    assert returns.min() > -200.0  # nobody fails always


@pytest.mark.slow
def test_taxi_learns_to_deliver() -> None:
    agent = QLearning(steps=60_000, step=0.5, epsilon=0.1, checkpoints=1, episodes=100)
    learned = agent.learn("Taxi", seed=100)
    # The optimum is 7.9 in the mean; not delivering costs 200 or more.
    assert learned.curve[-1] > 5.0
    assert learned.table.shape == (500, 6)


# --- results -------------------------------------------------------------------------------------


@lru_cache
def small(features: Any = None) -> LearnedQValues:
    env: Any = random_mdp(certain=False) if features is None else Interval()
    return QLearning(steps=200, features=features, checkpoints=2, episodes=3).learn(env, seed=100)


def test_policies_are_those_of_the_values() -> None:
    learned = small()
    states = np.arange(5)
    values = learned.values(states)
    np.testing.assert_array_equal(values, learned.table)
    assert isinstance(learned.policy, EpsilonGreedy)
    greedy = learned.policy.probabilities(states)
    np.testing.assert_array_equal(greedy.argmax(axis=1), values.argmax(axis=1))
    assert set(np.unique(greedy)) <= {0.0, 1.0}
    soft = learned.softmax(0.5)
    assert isinstance(soft, Softmax)
    raised = np.exp(values / 0.5)
    expected = raised / raised.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(soft.probabilities(states), expected, rtol=1e-12)
    data = collect(random_mdp(certain=False), learned.epsilon_greedy(0.2), 50, 1)
    assert data.num_trajectories == 50


@pytest.mark.slow
def test_linear_policies_are_those_of_the_values() -> None:
    learned = small(Polynomial(2, [0.0], [1.0]))
    assert learned.weights.shape == (3, 2)
    states = np.array([[0.2], [0.9]])
    best = learned.values(states).argmax(axis=1)
    np.testing.assert_array_equal(learned.policy.probabilities(states).argmax(axis=1), best)
    with pytest.raises(InputError, match="linear in features"):
        _ = learned.table


def test_the_result_says_that_it_is_not_private() -> None:
    learned = small()
    assert learned.promise == "Not private: the learner adds no noise."
    assert learned.to_dict()["promise"]["kind"] == "privrl not private"


@pytest.mark.parametrize("features", [None, Polynomial(2, [0.0], [1.0])])
def test_results_come_back_from_a_file(features: Any, tmp_path: Path) -> None:
    learned = small(features)
    path = tmp_path / "learned.json"
    learned.save(path)
    again = LearnedQValues.load(path)
    np.testing.assert_array_equal(again.weights, learned.weights)
    np.testing.assert_array_equal(again.curve, learned.curve)
    np.testing.assert_array_equal(again.curve_steps, [100, 200])
    assert again.features == learned.features
    assert dict(again.settings) == dict(learned.settings)
    assert again.settings["half_life"] == math.inf
    assert [p.name for p in tmp_path.iterdir()] == ["learned.json"]


def test_broken_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    with pytest.raises(InputError, match="cannot be read"):
        LearnedQValues.load(path)
    for text, says in (
        ("{", "is not JSON"),
        ("[]", "is not the result of Q-learning"),
        ('{"kind": "privrl q-learning", "format": 99}', "another version"),
        ('{"kind": "privrl q-learning", "format": 1}', "damaged"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=says):
            LearnedQValues.load(path)
    with pytest.raises(InputError, match="cannot be written"):
        small().save(tmp_path / "nowhere" / "learned.json")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"steps": 0}, "steps"),
        ({"steps": 10, "checkpoints": 3}, "multiple"),
        ({"gamma": 1.5}, "gamma"),
        ({"step": 0.0}, "step"),
        ({"half_life": 0.0}, "half_life"),
        ({"lambda_": -0.1}, "lambda_"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"temperature": 0.0}, "temperature"),
        ({"exploration": "greedy"}, "exploration"),
        ({"max_steps": 0}, "max_steps"),
        ({"features": "fourier"}, "features"),
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        QLearning(**{"steps": 100, **wrong})


def test_bad_tasks_are_refused() -> None:
    agent = QLearning(steps=100, checkpoints=1)
    with pytest.raises(InputError, match="observes vectors"):
        agent.learn(CartPole())
    with pytest.raises(InputError, match="max_steps"):
        agent.learn(Chain(step_limit=None))
    with pytest.raises(InputError, match="cannot be compiled"):
        agent.learn("Acrobot-v1")
    with pytest.raises(InputError, match="seed"):
        agent.learn(Chain(), seed=-1)
    wild = QLearning(steps=20_000, features=CAR, step=10.0, checkpoints=1, episodes=1, epsilon=1.0)
    with pytest.raises(InputError, match="grew without bound"):
        wild.learn(MountainCar())


def test_values_of_one_observation() -> None:
    config = Config(steps=1, features=CAR, checkpoints=1)
    weights = jnp.ones((36, 3))
    found = action_values(config, weights, jnp.array([-0.5, 0.0]))
    expected = np.asarray(CAR(np.array([[-0.5, 0.0]]))).sum()
    np.testing.assert_allclose(found, np.full(3, expected), rtol=1e-5)
