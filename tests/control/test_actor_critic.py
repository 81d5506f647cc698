"""The certified actor-critic against traces, exact gradients, exact values, and its own theorem."""

import json
import math
from dataclasses import fields
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privrl.control import ActorCritic, CertifiedProgram, Network, certified
from privrl.control.actor_critic import LearnedActorCritic
from privrl.control.certified import ActorCriticPlan, calibrate_noise, update_from_batch
from privrl.control.engine import CHECKPOINT
from privrl.control.heads import Head, Layers, Linear, Table
from privrl.control.increments import Rows
from privrl.data import Fourier, OneHot, Polynomial, Softmax
from privrl.data import Tabular as TabularPolicy
from privrl.envs import TabularMDP
from privrl.envs.base import Episodes, Transitions
from privrl.envs.host import HostEnvironment
from privrl.privacy import Budget, Disjoint, Gaussian, InputError, Ledger
from privrl.privacy.ledger import LargeDelta
from privrl.privacy.mechanisms import correlated_jax
from privrl.privacy.mechanisms.correlated import CorrelatedMechanism, Strategy
from privrl.privacy.promise import NoiseOrigin, Unit
from privrl.privacy.session import PrivacySession
from tests.statistics import FALSE_ALARM, follows

BUDGET = Budget(4.0, 1e-5)

TABLES = (Table(3, 2), Table(3, 1))
LINEAR = (Linear(Fourier(2, [0.0], [2.0]), 2), Linear(Polynomial(1, [0.0], [2.0]), 1))
LAYERS = (Layers((3, 4, 2), OneHot(3), 1), Layers((3, 5, 1), OneHot(3), 2))


def episode(
    states: Any, actions: Any, rewards: Any, terminated: bool, length: int | None = None
) -> Episodes:
    """States (n + 1,), padded with nonsense that `valid` says did not happen."""
    n = len(actions)
    more = (length or n) - n
    ends = np.zeros(n + more, dtype=bool)
    if n:
        ends[n - 1] = terminated
    seen = np.asarray(states)
    rows = Transitions(
        np.append(seen[:-1], np.full(more, 10**6, seen.dtype)),
        np.append(np.asarray(actions, dtype=np.int32), np.zeros(more, np.int32)),
        np.append(np.asarray(rewards, dtype=np.float64), np.full(more, np.nan)),
        np.append(seen[1:], np.full(more, 10**6, seen.dtype)),
        ends,
        np.zeros(n + more, dtype=bool),
    )
    return Episodes(rows, np.arange(n + more) < n)


def random_parameters(heads: tuple[Head, Head], seed: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    return tuple(jnp.asarray(draw.normal(size=math.prod(head.shape))) for head in heads)  # type: ignore[return-value]


# --- what one episode adds ------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [TABLES, LINEAR, LAYERS], ids=["table", "linear", "layers"])
def test_an_increment_is_what_eligibility_traces_add_up_to(heads: tuple[Head, Head]) -> None:
    gamma, lam = 0.9, 0.7
    draw = np.random.default_rng(5)
    states, actions = draw.integers(3, size=8), draw.integers(2, size=7)
    rewards = draw.normal(size=7)

    def log_prob(u: Any, state: Any, action: Any) -> Any:
        scores = heads[0].apply(u, heads[0].inputs(state[None]))[0]
        return jax.nn.log_softmax(scores)[action]

    def value(v: Any, state: Any) -> Any:
        return heads[1].apply(v, heads[1].inputs(state[None]))[0, 0]

    @jax.jit
    def by_step(u: Any, v: Any) -> Any:
        return (
            jax.vmap(jax.grad(log_prob), (None, 0, 0))(u, states[:-1], actions),
            jax.vmap(jax.grad(value), (None, 0))(v, states[:-1]),
            jax.vmap(value, (None, 0))(v, jnp.asarray(states)),
        )

    with jax.enable_x64(True):
        u, v = random_parameters(heads, 1)
        increment = jax.jit(Rows(*heads).increment)
        actors, critics, values = (np.asarray(x) for x in by_step(u, v))
        for terminated in (True, False):
            one = episode(states, actions, rewards, terminated, 10)
            found = increment(u, v, {"gamma": gamma, "lambda_": lam}, one)
            trace_u, trace_v = np.zeros(u.size), np.zeros(v.size)
            actor, critic = np.zeros(u.size), np.zeros(v.size)
            for t in range(7):
                trace_u = gamma * lam * trace_u + actors[t]
                trace_v = gamma * lam * trace_v + critics[t]
                goes_on = 0.0 if terminated and t == 6 else gamma
                error = rewards[t] + goes_on * values[t + 1] - values[t]
                actor, critic = actor + error * trace_u, critic + error * trace_v
            np.testing.assert_allclose(found[0], actor, rtol=1e-11, atol=1e-12)
            np.testing.assert_allclose(found[1], critic, rtol=1e-11, atol=1e-12)


def test_the_entropy_bonus_is_its_gradient() -> None:
    with jax.enable_x64(True):
        u, v = random_parameters(TABLES, 2)
        one = episode([0, 1, 0, 2], [0, 1, 1], [0.3, -0.1, 1.0], True, 5)
        numbers = {"gamma": 0.9, "lambda_": 0.5}
        with_bonus = jax.jit(Rows(*TABLES, entropy=0.7).increment)(u, v, numbers, one)
        without = jax.jit(Rows(*TABLES).increment)(u, v, numbers, one)

        def entropy(u: Any) -> Any:
            table = jax.nn.log_softmax(u.reshape(3, 2))
            each = -jnp.sum(jnp.exp(table) * table, axis=1)
            return 2.0 * each[0] + each[1]

        np.testing.assert_allclose(
            with_bonus[0] - without[0], 0.7 * jax.jit(jax.grad(entropy))(u), atol=1e-12
        )
        np.testing.assert_array_equal(with_bonus[1], without[1])


def test_the_expected_increment_is_the_exact_policy_gradient() -> None:
    # Two states, two actions, three steps, then the episode terminates: all paths enumerated.
    draw = np.random.default_rng(8)
    moves = draw.dirichlet(np.ones(2), (2, 2))
    pays = draw.normal(size=(2, 2, 2))
    heads = (Table(2, 2), Table(2, 1))
    with jax.enable_x64(True):
        u, v = random_parameters(heads, 3)
        probs = heads[0].policy(np.asarray(u)).probabilities(np.arange(2))

        def expected_return(u: Any) -> Any:
            policy = jax.nn.softmax(u.reshape(2, 2))
            worth = jnp.zeros(2)
            for _ in range(3):
                worth = jnp.einsum("sa,saz,saz->s", policy, moves, pays + worth)
            return worth[0]

        paths, weights = [], []
        for actions in product(range(2), repeat=3):
            for later in product(range(2), repeat=3):
                states = (0, *later)
                steps = list(zip(states[:-1], actions, later, strict=True))
                weights.append(math.prod(probs[s, a] * moves[s, a, z] for s, a, z in steps))
                paths.append(episode(states, actions, [pays[step] for step in steps], True))
        assert sum(weights) == pytest.approx(1.0)
        batch = jax.tree.map(lambda *rows: np.stack(rows), *paths)
        numbers = {"gamma": 1.0, "lambda_": 1.0}
        rows = Rows(*heads)
        each = jax.jit(jax.vmap(lambda one: rows.increment(u, v, numbers, one)[0]))(batch)
        # A baseline, here any table of values, changes nothing in the mean.
        exact = jax.jit(jax.grad(expected_return))(u)
        np.testing.assert_allclose(jnp.asarray(weights) @ each, exact, atol=1e-12)


WILD = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0]) | st.floats(
    -1e3, 1e3
)


@st.composite
def wild_episodes(draw: Any) -> tuple[Any, Any, Any, bool]:
    n = draw(st.integers(0, 4))
    states = draw(st.lists(st.integers(-3, 5), min_size=n + 1, max_size=n + 1))
    actions = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    rewards = draw(st.lists(WILD, min_size=n, max_size=n))
    return states, actions, rewards, draw(st.booleans())


_ROWS = [
    Rows(*TABLES),
    Rows(*LINEAR, return_range=(-3.0, 5.0), curve_weight=0.3),
    Rows(*LAYERS, entropy=0.5),
]
_COMPILED = [jax.jit(rows.row) for rows in _ROWS]


@settings(max_examples=150)
@given(wild_episodes(), st.integers(0, 2), st.sampled_from([1e-3, 1.0, 1e3]), st.integers(0, 3))
def test_no_episode_contributes_more_than_the_bound(
    wild: tuple[Any, Any, Any, bool], which: int, bound: float, seed: int
) -> None:
    with jax.enable_x64(True):
        rows = _ROWS[which]
        u, v = random_parameters((rows.actor, rows.critic), seed)
        numbers = {"gamma": 0.9, "lambda_": 0.8, "clip": bound, "critic_weight": 0.5}
        row = np.asarray(_COMPILED[which](u, 100.0 * v, numbers, episode(*wild, length=5)))
    assert row.shape == (rows.dimension,)
    assert np.all(np.isfinite(row))
    assert sum(Fraction(float(x)) ** 2 for x in row) <= 1
    if not wild[1]:
        assert not row.any()


_BOX = ((-1.0, -1.0), (1.0, 1.0))
_VECTORS = [
    Rows(Layers((2, 3, 2)), Layers((2, 3, 1))),
    Rows(Linear(Polynomial(1, *_BOX), 2), Linear(Polynomial(1, *_BOX), 1)),
]
_VECTORS_COMPILED = [jax.jit(rows.row) for rows in _VECTORS]


@settings(max_examples=50)
@given(st.lists(WILD, min_size=8, max_size=8), st.booleans())
def test_vectors_that_are_no_numbers_contribute_within_the_bound(
    wild: list[float], features: bool
) -> None:
    seen = np.reshape(wild, (4, 2))
    rows = _VECTORS[features]
    ends = np.array([False, False, True])
    steps = Transitions(
        seen[:-1], np.zeros(3, np.int32), np.ones(3), seen[1:], ends, np.zeros(3, bool)
    )
    with jax.enable_x64(True):
        u, v = random_parameters((rows.actor, rows.critic), 0)
        numbers = {"gamma": 0.9, "lambda_": 0.8, "clip": 0.1, "critic_weight": 2.0}
        one = Episodes(steps, np.ones(3, bool))
        row = np.asarray(_VECTORS_COMPILED[features](u, v, numbers, one))
    assert np.all(np.isfinite(row))
    assert sum(Fraction(float(x)) ** 2 for x in row) <= 1


def test_a_paid_score_is_the_return_within_its_range() -> None:
    rows = Rows(*TABLES, return_range=(-2.0, 6.0), curve_weight=0.25)
    numbers = {"gamma": 1.0, "lambda_": 1.0, "clip": 1e-9, "critic_weight": 1.0}
    with jax.enable_x64(True):
        u, v = random_parameters(TABLES, 4)
        compiled = jax.jit(rows.row)
        for rewards, score in [([1.0, 1.0], 0.0), ([9.0, 9.0], 1.0), ([-9.0, 0.0], -1.0)]:
            row = compiled(u, v, numbers, episode([0, 1, 2], [0, 1], rewards, True, 4))
            assert float(row[-1]) == pytest.approx(0.25 * score, abs=1e-12)
            # The increment is far over its part of the bound, and the score is not scaled down.
            assert float(np.linalg.norm(row)) == pytest.approx(
                math.sqrt(1 - 0.25**2 + (0.25 * score) ** 2)
            )
        lost = compiled(u, v, numbers, episode([0, 1, 2], [0, 1], [math.nan, 1.0], True, 4))
        assert not np.asarray(lost).any()


# --- learning, against what is known exactly ------------------------------------------------------


def small_mdp(step_limit: int = 12) -> TabularMDP:
    """Three states, of which the last ends the episode; the good way costs something at first."""
    probs = np.zeros((3, 2, 3))
    probs[0, 0], probs[0, 1] = [0.6, 0.2, 0.2], [0.1, 0.8, 0.1]
    probs[1, 0], probs[1, 1] = [0.3, 0.5, 0.2], [0.1, 0.1, 0.8]
    probs[2, :, 2] = 1.0
    rewards = np.array([[0.1, -0.1], [0.0, 1.0], [0.0, 0.0]])
    return TabularMDP.from_dense(
        probs, rewards, np.arange(3) == 2, start=[1.0, 0.0, 0.0], step_limit=step_limit
    )


SMALL = small_mdp()
EXACTLY: dict[str, Any] = {
    "variant": "none",
    "clip": 1e6,
    "critic_weight": 1.0,
    "gamma": 0.9,
    "lambda_": 0.8,
}


NOISELESS = ActorCritic(**EXACTLY, batch=50, actor_step=3.0, critic_step=0.3)


@pytest.mark.slow
def test_without_noise_the_policy_becomes_optimal() -> None:
    learned = NOISELESS.learn(SMALL, people=10_000, session=PrivacySession(seed=0))
    best = SMALL.optimal(0.9)
    table = learned.probabilities(np.arange(3))
    assert np.array_equal(np.argmax(table[:2], axis=1), np.argmax(best.action_values[:2], axis=1))
    assert SMALL.start_value(table, 0.9) > best.values[0] - 0.01
    assert SMALL.start_value(SMALL.uniform(), 0.9) < best.values[0] - 0.1


# Nothing is left to chance here, so that values have no error but that of convergence.
CHAIN = TabularMDP.from_dense(
    [[[0, 1, 0]], [[0, 0, 1]], [[0, 0, 1]]],
    [[1.0], [2.0], [0.0]],
    [False, False, True],
    start=[1.0, 0.0, 0.0],
    step_limit=12,
)


class HostChain(gymnasium.Env[int, int]):
    """`CHAIN`, played on the host."""

    observation_space: Any = spaces.Discrete(3)
    action_space: Any = spaces.Discrete(1)
    at = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.at = 0
        return 0, {}

    def step(self, action: int) -> Any:
        self.at += 1
        return self.at, float(self.at), self.at == 2, False, {}


@pytest.mark.parametrize(
    "env", [HostChain(), pytest.param(CHAIN, marks=pytest.mark.slow)], ids=["host", "compiled"]
)
def test_values_of_a_fixed_policy_become_exact(env: Any) -> None:
    agent = ActorCritic(**EXACTLY, batch=5, actor_step=0.0, critic_step=0.5, max_steps=12)
    learned = agent.learn(env, people=500, session=PrivacySession(seed=0), preflight=False)
    np.testing.assert_allclose(learned.values([0, 1]), [1.0 + 0.9 * 2.0, 2.0], atol=1e-9)
    np.testing.assert_allclose(learned.values([0, 1]), CHAIN.values([[1.0]] * 3, 0.9)[:2])


# --- noise ----------------------------------------------------------------------------------------

_STATES = 5000


@pytest.mark.parametrize("kind", ["independent", "correlated", "optimal"])
def test_the_noise_has_the_size_that_is_paid_for(kind: Any) -> None:
    """Nothing is ever paid, so increments are zeros and the parameters are noise alone."""
    budget = Budget(1.0, 1e-5)
    agent = ActorCritic(
        budget=budget,
        features=OneHot(_STATES),
        batch=4,
        max_steps=1,
        noise=kind,
        actor_step=3.0,
        critic_step=0.5,
        clip=2.0,
        critic_weight=0.25,
    )
    learned = agent.learn(
        Visits(pay=0.0), people=35, preflight=False
    )  # nine batches, the last with a person missing
    assert learned.actor is not None
    assert learned.critic is not None
    strategy = Strategy.OPTIMAL if kind == "optimal" else Strategy.SQUARE_ROOT_TOEPLITZ
    mechanism = CorrelatedMechanism.from_budget(1.0, budget, horizon=9, strategy=strategy)
    if kind == "independent":
        (event,) = learned.certificate.events[0].events  # type: ignore[attr-defined]
        spread = event.std * math.sqrt(9.0)
    else:
        assert learned.certificate.events == (mechanism.event,)
        spread = float(mechanism.errors()[-1])
    actor = learned.actor.ravel() / (3.0 * 2.0 * spread / 4)
    critic = learned.critic.ravel() / (0.5 * 2.0 * spread / (4 * 0.25))
    for standard in (actor, critic):
        assert follows(standard, stats.norm.cdf)
        squares = float(np.sum(standard**2))
        law = stats.chi2(standard.size)
        assert law.ppf(FALSE_ALARM / 2) < squares < law.isf(FALSE_ALARM / 2)
        # A scale that is off by a tenth would be rejected.
        for off in (0.9, 1.1):
            off_squares = squares * off**2
            assert not law.ppf(FALSE_ALARM / 2) < off_squares < law.isf(FALSE_ALARM / 2)
    assert learned.certificate.noise is NoiseOrigin.SECURE_KEY
    learned.certificate.verify(strict=True)


def test_what_goes_on_to_the_next_batch_comes_from_noised_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the noised sum held fixed, no trace of the people is left in the state."""
    monkeypatch.setattr(
        ActorCriticPlan, "noised", lambda self, state, exact: (0.0 * exact, state.noise)
    )
    agent = ActorCritic(budget=BUDGET, batch=2, optimiser="adam", average=1.0, max_steps=3)
    program = CertifiedProgram(agent, SMALL, 4)
    people = [([0, 1, 2], [1, 1], [0.0, 5.0], True), ([1, 0], [0], [-3.0], False)]
    others = [([2, 2, 2, 1], [0, 0, 1], [math.inf, 9.0, 1.0], False), ([0], [], [], False)]
    with jax.enable_x64(True):
        begun = program.plan.begin(jax.random.key(0), jax.random.key(1), program.numbers)
        states = []
        for batch in (people, others):
            rows = jax.tree.map(lambda *x: np.stack(x), *(episode(*one, 3) for one in batch))
            states.append(update_from_batch(program.plan, begun, 3, rows)[0])
        for one, other in zip(*map(jax.tree.leaves, states), strict=True):
            np.testing.assert_array_equal(_bits(one), _bits(other))


def test_a_batch_summed_in_parts_is_the_sum_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certified, "_MAX_NUMBERS", 200)
    agent = ActorCritic(**EXACTLY, batch=7, max_steps=3, actor_step=2.0)
    program = CertifiedProgram(agent, SMALL, 6)  # one slot of the only batch is empty
    plan = program.plan
    parts, size = plan.chunks(3)
    assert parts * size > 7 > size
    draw = np.random.default_rng(0)
    slots = [
        episode(draw.integers(3, size=4), draw.integers(2, size=3), draw.normal(size=3), True, 3)
        for _ in range(parts * size)
    ]
    batch = jax.tree.map(lambda *x: np.stack(x), *slots)
    with jax.enable_x64(True):
        begun = plan.begin(jax.random.key(0), jax.random.key(1), program.numbers)
        after, (_, (returns, _)) = update_from_batch(plan, begun, 3, batch)
        one = jax.jit(plan.rows.row)
        rows = [one(begun.actor, begun.critic, begun.settings, person) for person in slots[:6]]
    expected = 2.0 * 1e6 * np.sum(rows, axis=0)[:6] / 7
    np.testing.assert_allclose(after.actor, expected, rtol=1e-12)
    np.testing.assert_allclose(returns, batch.transitions.reward[:7].sum(axis=1))


# --- as a program ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"noise": "correlated"}, id="correlated"),
        pytest.param({"noise": "optimal"}, id="optimal"),
        pytest.param({"optimiser": "adam", "schedule": "linear", "average": 0.5}, id="adam"),
    ],
)
@pytest.mark.slow
def test_two_pieces_equal_the_whole_bit_for_bit(more: dict[str, Any]) -> None:
    agent = ActorCritic(budget=BUDGET, batch=5, **more)
    program = CertifiedProgram(agent, SMALL, 48)  # the last batch has two empty slots
    assert program.plan.horizon == 10
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 3)
        state = program.init(keys, {"actor_step": jnp.asarray([0.1, 0.1, 5.0])})
        whole, seen = program.advance(state, 48)
        first, early = program.advance(state, 5)
        second, late = program.advance(first, 43)
        for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(second), strict=True):
            assert np.array_equal(_bits(one), _bits(other))
        for name in ("return", "length"):
            assert seen[name].shape == (3, 48)
            together = np.concatenate([early[name], late[name]], axis=1)
            np.testing.assert_array_equal(seen[name], together)
        assert not np.array_equal(seen["return"][0], seen["return"][1])


def test_a_run_in_pieces_is_the_run_that_learn_makes() -> None:
    program = CertifiedProgram(NOISELESS, SMALL, 10_000)
    with jax.enable_x64(True):
        state = program.init(jax.random.key(3)[None], {})
        whole, seen = program.advance(state, 10_000)
        first, early = program.advance(state, 50)
        second, late = program.advance(first, 9_950)
        for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(second), strict=True):
            assert np.array_equal(_bits(one), _bits(other))
        for name in ("return", "length"):
            together = np.concatenate([early[name], late[name]], axis=1)
            np.testing.assert_array_equal(seen[name], together)
        with pytest.raises(InputError, match="multiple of the batch of 50"):
            program.advance(state, 70)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("batch", 1.0, "cannot be swept"),
        ("gamma", 2.0, "gamma must be at most 1"),
        ("lambda_", -1.0, "lambda_ must be zero or more"),
        ("sigma", -1.0, "sigma must be zero or more"),
        ("clip", 0.0, "clip must be positive"),
        ("critic_weight", 0.0, "critic_weight must be positive"),
    ],
)
def test_replicas_take_only_numbers_that_a_run_may_have(
    name: str, value: float, message: str
) -> None:
    program = CertifiedProgram(NOISELESS, SMALL, 10_000)
    with jax.enable_x64(True), pytest.raises(InputError, match=message):
        program.init(jax.random.split(jax.random.key(0), 2), {name: jnp.asarray([0.5, value])})


def test_steps_of_adam_fall_and_are_averaged_as_said() -> None:
    """Against Adam written down anew, over five noised sums that are given."""
    agent = ActorCritic(
        **{**EXACTLY, "clip": 0.3, "critic_weight": 0.5},
        batch=2,
        actor_step=0.7,
        critic_step=0.2,
        optimiser="adam",
        schedule="linear",
        average=0.4,
    )
    program = CertifiedProgram(agent, SMALL, 10)
    plan = program.plan
    sums = np.random.default_rng(0).normal(size=(5, 9))
    with jax.enable_x64(True):
        state = plan.begin(jax.random.key(0), jax.random.key(1), program.numbers)
        move = jax.jit(lambda now, one: plan.apply_update(now, one, now.noise))
        for one in sums:
            state = move(state, one)
        actor, critic = plan.final_parameters(state)
    at, m, v, last = np.zeros(9), np.zeros(9), np.zeros(9), []
    step = np.array([0.7] * 6 + [0.2] * 3)
    for k, one in enumerate(sums):
        mean = 0.3 * one / 2 / np.array([1.0] * 6 + [0.5] * 3)
        m, v = 0.9 * m + 0.1 * mean, 0.999 * v + 0.001 * mean**2
        rate = step * (1.0 - k / 5)
        at = at + rate * (m / (1 - 0.9 ** (k + 1))) / (np.sqrt(v / (1 - 0.999 ** (k + 1))) + 1e-8)
        last.append(at)
    expected = np.mean(last[-2:], axis=0)
    np.testing.assert_allclose(np.concatenate([actor, critic]), expected, rtol=1e-12)


def _bits(leaf: Any) -> Any:
    typed = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if typed else leaf)


# --- paying, certificates, results ----------------------------------------------------------------


class Visits(gymnasium.Env[int, int]):
    """A coin that pays for action 1; it notes who comes, and calls `watch` first."""

    observation_space: Any = spaces.Discrete(2)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, watch: Any = None, pay: float = 1.0) -> None:
        self.visits = 0
        self.pay = pay
        self.watch = watch

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        if self.watch is not None:
            self.watch()
        self.visits += 1
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 1, self.pay * action, True, False, {}


def payments(ledger: Ledger) -> int:
    """Of all entries, those that cost something."""
    return sum(bool(entry.events) for entry in ledger.entries())


def ledger_at(path: Path, limit: Budget | None = None) -> Ledger:
    return Ledger.create(path, "people", unit=Unit.TRAJECTORY, limit=limit)


COIN = ActorCritic(budget=BUDGET, batch=4, max_steps=1, noise="independent")


def test_all_is_paid_for_before_anybody_plays(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l") as ledger:
        paid: list[int] = []
        env = Visits(lambda: paid.append(len(ledger.entries())))
        learned = COIN.learn(
            env, people=20, session=PrivacySession(ledger=ledger, run="one"), preflight=False
        )
        assert paid == [1] * 20
        assert ledger.entries()[0].events == learned.certificate.events
        learned.certificate.verify(strict=True)
        assert learned.certificate.population is not None


def test_a_ledger_that_refuses_leaves_everybody_in_peace(tmp_path: Path) -> None:
    env = Visits()
    with ledger_at(tmp_path / "l", Budget(0.1, 1e-5)) as ledger:
        with pytest.raises(Exception, match=r"budget|limit|left"):
            COIN.learn(
                env,
                people=20,
                session=PrivacySession(ledger=ledger, run="one"),
                folder=tmp_path / "run",
                preflight=False,
            )
        assert not ledger.entries()
    assert env.visits == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("agent", [{"features": Polynomial(1, [0.0, 0.0], [1.0, 1.0])}, {}])
def test_nobody_pays_for_a_run_that_cannot_be(agent: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with ledger_at(tmp_path / "l") as ledger:
        with pytest.raises(InputError, match="do not take" if agent else "cannot be written to"):
            ActorCritic(**{**_fields(COIN), **agent}).learn(
                Visits(),
                people=20,
                session=PrivacySession(ledger=ledger, run="one"),
                folder=tmp_path / "file" / "run",
                preflight=False,
            )
        assert not ledger.entries()


def test_who_is_public_needs_no_ledger_and_the_certificate_says_so(
    coin: LearnedActorCritic, tmp_path: Path
) -> None:
    with ledger_at(tmp_path / "l") as ledger:
        with pytest.raises(InputError, match="leave one of them out"):
            COIN.learn(
                Visits(), people=20, session=PrivacySession(ledger=ledger, run="one", public=True)
            )
        assert not ledger.entries()
    assert any("nothing is promised" in a.statement for a in coin.certificate.assumptions)
    hidden = COIN.learn(
        Visits(), people=20, session=PrivacySession(seed=1), preflight=False
    ).certificate
    assert not any("nothing is promised" in a.statement for a in hidden.assumptions)


def test_a_large_delta_is_pointed_out() -> None:
    agent = ActorCritic(**{**_fields(COIN), "budget": Budget(4.0, 0.05)})
    with pytest.warns(LargeDelta, match="one person of 20 outright"):
        agent.learn(Visits(), people=20, preflight=False)


# --- environments that fail -----------------------------------------------------------------------


class Trouble(Visits):
    """With the seventh person, something is wrong."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def step(self, action: int) -> Any:
        seen: tuple[Any, ...] = super().step(action)
        if self.visits != 7:
            return seen
        match self.what:
            case "error":
                raise RuntimeError("The seventh person is ill.")
            case "warning":
                gymnasium.logger.warn("The seventh person is ill.")
                return None, *seen[1:]
            case "observation":
                return np.zeros(3), *seen[1:]
            case "far":
                return 10**30, *seen[1:]
            case "reward":
                return seen[0], None, *seen[2:]
        return seen[:3]


TROUBLES = ("error", "warning", "observation", "far", "reward", "form")


def test_trouble_with_a_person_shows_in_nothing_but_noised_sums() -> None:
    """What happens to one person is an empty slot, whatever it is; warnings would be errors."""
    results = [
        COIN.learn(
            Trouble(what), people=20, session=PrivacySession(seed=1), preflight=False
        ).to_dict()
        for what in TROUBLES
    ]
    assert all(one == results[0] for one in results)
    agent = ActorCritic(**{**_fields(COIN), "variant": "none", "budget": None})
    for open_one, public in ((COIN, True), (agent, False)):
        with pytest.raises(RuntimeError, match="seventh"):
            open_one.learn(
                Trouble("error"),
                people=20,
                session=PrivacySession(seed=1, public=public),
                preflight=False,
            )


def test_an_episode_that_fails_is_one_of_no_steps() -> None:
    played = certified.play_on_host(
        HostEnvironment(Trouble("error")),
        TabularPolicy.uniform(2, 2),
        np.zeros(2, np.uint32),
        range(8),
        9,
        1,
        private=True,
    )
    np.testing.assert_array_equal(played.valid[:, 0], [True] * 6 + [False, True, False])


def test_parameters_beyond_all_numbers_end_the_run_in_one_sentence(tmp_path: Path) -> None:
    agent = ActorCritic(**{**_fields(COIN), "actor_step": 1e308, "clip": 1e10})
    with pytest.raises(InputError, match="grew without bound: use smaller steps"):
        agent.learn(Visits(), people=20, folder=tmp_path, preflight=False)
    assert not any(tmp_path.iterdir())


def test_returns_without_end_can_be_kept(tmp_path: Path) -> None:
    learned = COIN.learn(
        Visits(pay=math.inf), people=20, session=PrivacySession(seed=1, public=True)
    )
    learned.save(tmp_path / "agent.json")
    back = LearnedActorCritic.load(tmp_path / "agent.json").curve
    assert back is not None
    assert np.all(np.isnan(back))


def test_auto_takes_correlated_noise_for_running_sums() -> None:
    for more, kind in (
        ({}, "optimal"),
        ({"optimiser": "adam"}, "independent"),
        ({"schedule": "linear"}, "independent"),
        ({"batch": 20}, "independent"),
    ):
        agent = ActorCritic(**{**_fields(COIN), "noise": "auto", **more})
        assert CertifiedProgram(agent, HostEnvironment(Visits()), 20).plan.noise == kind


def test_a_certificate_costs_what_one_gaussian_does_however_many_batches() -> None:
    for people in (4, 400):
        noisy = calibrate_noise(BUDGET, people // 4, "independent")
        program = CertifiedProgram(COIN, HostEnvironment(Visits()), people)
        assert program.event == noisy.event == Disjoint((Gaussian(noisy.std, 1.0),))
        assert program.numbers["sigma"] == noisy.std


@pytest.mark.parametrize("kind", ["independent", "correlated", "optimal"])
def test_the_noise_is_what_the_largest_movement_needs_and_no_less(kind: Any) -> None:
    """Two worlds that differ in one person, through the shipped sum and the shipped sigma.

    Their whitened distance is mu, and delta(epsilon) of a Gaussian that moves by mu is known. Noise
    that was calibrated for half the sensitivity would have a much larger one.
    """
    agent = ActorCritic(**{**_fields(COIN), "noise": kind, "clip": 0.01, "critic_weight": 0.5})
    program = CertifiedProgram(agent, HostEnvironment(Visits()), 32)
    plan, numbers = program.plan, program.numbers
    with jax.enable_x64(True):
        state = plan.begin(jax.random.key(0), jax.random.key(1), numbers)
        sums = [
            np.asarray(plan.sum_rows(state, _padded([episode([0, 0], [0], [pay], True)]), 0)[0])
            for pay in (1e6, -1e6)
        ]
    sensitivity = float(np.linalg.norm(sums[0] - sums[1]))
    assert sensitivity == pytest.approx(2.0, abs=1e-9)
    # The noise of all batches is sigma times this matrix times white noise.
    mixed: Any = np.eye(plan.horizon)
    if kind != "independent":
        with jax.enable_x64(True):
            stream = correlated_jax.init(plan._stream, jax.random.key(0), plan.horizon)
            made = jax.lax.scan(correlated_jax.advance, stream, jax.numpy.asarray(mixed))[1]
        mixed = np.asarray(made)
    whitened = np.linalg.norm(np.linalg.inv(mixed), axis=0)
    mu = sensitivity * float(whitened.max()) / numbers["sigma"]
    epsilon = BUDGET.epsilon
    delta = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(
        -mu / 2 - epsilon / mu
    )
    assert delta == pytest.approx(BUDGET.delta, rel=1e-4)


def _padded(people: list[Episodes]) -> Episodes:
    """Episodes of one length, as a batch."""
    return jax.tree.map(lambda *rows: np.stack(rows), *people)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def coin() -> LearnedActorCritic:
    return COIN.learn(Visits(), people=20, session=PrivacySession(seed=1, public=True))


def test_variants_hide_outputs_and_change_nothing_else(coin: LearnedActorCritic) -> None:
    for variant in ("actor", "critic"):
        agent = ActorCritic(**{**_fields(COIN), "variant": variant})
        other = agent.learn(Visits(), people=20, session=PrivacySession(seed=1), preflight=False)
        hidden = {"actor": other.critic, "critic": other.actor}[variant]
        shown = {"actor": other.actor, "critic": other.critic}[variant]
        assert hidden is None
        np.testing.assert_array_equal(shown, getattr(coin, variant))
        assert other.certificate.epsilon == coin.certificate.epsilon
        assert other.curve is None
        with pytest.raises(InputError, match="does not give the"):
            _ = other.values([0]) if variant == "actor" else other.probabilities([0])


def _fields(agent: ActorCritic) -> dict[str, Any]:
    return {one.name: getattr(agent, one.name) for one in fields(agent)}


def test_without_noise_there_is_no_certificate() -> None:
    agent = ActorCritic(variant="none", batch=4, max_steps=1)
    learned = agent.learn(Visits(), people=20, session=PrivacySession(seed=1), preflight=False)
    with pytest.raises(InputError, match="Not private"):
        _ = learned.certificate
    with pytest.raises(InputError, match="no paper's claim"):
        _ = learned.claim


def test_a_result_survives_a_file(coin: LearnedActorCritic, tmp_path: Path) -> None:
    coin.save(tmp_path / "agent.json")
    back = LearnedActorCritic.load(tmp_path / "agent.json")
    assert back.to_dict() == coin.to_dict()
    np.testing.assert_array_equal(back.probabilities([0, 1, 7]), coin.probabilities([0, 1, 7]))
    np.testing.assert_array_equal(back.values([0, 1]), coin.values([0, 1]))
    assert isinstance(coin.policy, TabularPolicy)
    assert coin.curve is not None
    assert coin.curve.shape == (20,)
    assert set(coin.curve) <= {0.0, 1.0}
    coin.certificate.verify()
    with pytest.raises(Exception, match="which --strict does not accept"):
        coin.certificate.verify(strict=True)
    assert "mode" not in coin.settings
    # As results were written when a paper's algorithm was a mode.
    older = {**coin.to_dict(), "settings": {**coin.settings, "mode": "certified"}}
    (tmp_path / "agent.json").write_text(json.dumps(older))
    assert LearnedActorCritic.load(tmp_path / "agent.json").to_dict() == older
    shorter = {**coin.to_dict(), "actor": [[0.0, 0.0]]}
    (tmp_path / "agent.json").write_text(json.dumps(shorter))
    with pytest.raises(InputError, match="is damaged"):
        LearnedActorCritic.load(tmp_path / "agent.json")
    (tmp_path / "agent.json").write_text("{}")
    with pytest.raises(InputError, match="is not the result of an actor-critic"):
        LearnedActorCritic.load(tmp_path / "agent.json")


def test_a_paid_curve_tells_the_mean_return_of_each_batch() -> None:
    agent = ActorCritic(
        budget=Budget(500.0, 0.001),
        batch=50,
        max_steps=1,
        noise="independent",
        return_range=(0.0, 2.0),
        curve="paid",
        curve_weight=0.5,
    )
    paid = agent.learn(Visits(), people=100, session=PrivacySession(seed=3), preflight=False)
    shown = agent.learn(Visits(), people=100, session=PrivacySession(seed=3, public=True))
    assert paid.curve is not None
    assert shown.curve is not None
    spread = paid.settings["sigma"] / (0.5 * 50)
    assert spread < 0.01
    np.testing.assert_allclose(paid.curve, shown.curve.reshape(2, 50).mean(axis=1), atol=6 * spread)


# --- interrupted ----------------------------------------------------------------------------------


class InterruptedRunError(Exception):
    pass


def interrupt(after: int) -> Any:
    def progress(done: int, people: int) -> None:
        if done >= after:
            raise InterruptedRunError

    return progress


@pytest.mark.parametrize("kind", ["independent", "correlated", "optimal"])
def test_an_interrupted_run_goes_on_bit_for_bit(kind: Any, tmp_path: Path) -> None:
    agent = ActorCritic(**{**_fields(COIN), "noise": kind})
    whole = agent.learn(Visits(), people=20, session=PrivacySession(seed=5, public=True))
    with pytest.raises(InterruptedRunError):
        agent.learn(
            Visits(),
            people=20,
            session=PrivacySession(seed=5, public=True),
            progress=interrupt(8),
            folder=tmp_path,
        )
    file = tmp_path / CHECKPOINT
    assert file.stat().st_mode & 0o777 == 0o600
    env = Visits()
    rest = agent.resume(env, tmp_path)
    assert env.visits == 12
    assert rest.to_dict() == whole.to_dict()
    assert not file.exists()


def test_a_secret_run_goes_on_with_other_noise_and_pays_once(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l") as ledger:
        with pytest.raises(InterruptedRunError):
            COIN.learn(
                Visits(),
                people=20,
                session=PrivacySession(ledger=ledger, run="one"),
                progress=interrupt(8),
                folder=tmp_path / "run",
                preflight=False,
            )
        with pytest.raises(InputError, match="another agent"):
            ActorCritic(**{**_fields(COIN), "clip": 0.5}).resume(Visits(), tmp_path / "run")
        with pytest.raises(InputError, match="holds an interrupted run"):
            COIN.learn(Visits(), people=20, folder=tmp_path / "run", preflight=False)
        with ledger_at(tmp_path / "other") as other:
            other.spend(calibrate_noise(Budget(1.0, 1e-5), 5, "none").event, run="one")
            with pytest.raises(InputError, match="This ledger did not pay for 'one'"):
                COIN.resume(Visits(), tmp_path / "run", ledger=other)
        with np.load(tmp_path / "run" / CHECKPOINT) as file:
            kept = [one["name"] for one in json.loads(bytes(file["header"]))["leaves"]]
        rest = COIN.resume(Visits(), tmp_path / "run", ledger=ledger)
        assert payments(ledger) == 1
    rest.certificate.verify(strict=True)
    # Of people who are not public, no return is on disk.
    assert kept
    assert all(name.startswith("['state']") for name in kept)
    with pytest.raises(InputError, match="There is no run to resume"):
        COIN.resume(Visits(), tmp_path / "run")
    with pytest.raises(InterruptedRunError):
        COIN.learn(
            Visits(), people=20, progress=interrupt(8), folder=tmp_path / "run", preflight=False
        )
    with (
        ledger_at(tmp_path / "late") as late,
        pytest.raises(InputError, match="begun without a ledger"),
    ):
        COIN.resume(Visits(), tmp_path / "run", ledger=late)


def test_the_end_of_a_run_is_kept_until_its_result_is(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l") as ledger:
        found = COIN.learn(
            Visits(),
            people=20,
            session=PrivacySession(ledger=ledger, run="one"),
            folder=tmp_path / "run",
            keep=True,
            preflight=False,
        )
        env = Visits()
        again = COIN.resume(env, tmp_path / "run", ledger=ledger)
        assert env.visits == 0
        assert payments(ledger) == 1
    np.testing.assert_array_equal(found.actor, again.actor)
    np.testing.assert_array_equal(found.critic, again.critic)
    assert not (tmp_path / "run" / CHECKPOINT).exists()


# --- environments, features, networks -------------------------------------------------------------


@pytest.mark.slow
def test_host_and_compiled_learn_the_same_where_nothing_is_left_to_prob() -> None:
    agent = ActorCritic(**EXACTLY, batch=5, actor_step=0.0, critic_step=0.5, max_steps=12)
    ours, theirs = (
        agent.learn(env, people=500, session=PrivacySession(seed=0), preflight=False).critic
        for env in (CHAIN, HostChain())
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)  # type: ignore[arg-type]


def test_an_environment_of_gymnasiums_with_a_network(tmp_path: Path) -> None:
    env = gymnasium.make("Acrobot-v1")
    agent = ActorCritic(budget=BUDGET, features=Network((4,)), batch=2, max_steps=20)
    learned = agent.learn(env, people=4, session=PrivacySession(seed=0))
    seen = env.observation_space.sample()
    probs = learned.probabilities(seen[None])
    assert probs.shape == (1, 3)
    assert probs.sum() == pytest.approx(1.0)
    assert learned.values(seen[None]).shape == (1,)
    assert learned.to_dict()["actor_head"]["sizes"] == [6, 4, 3]
    learned.save(tmp_path / "agent.json")
    back = LearnedActorCritic.load(tmp_path / "agent.json")
    np.testing.assert_array_equal(back.probabilities(seen[None]), probs)
    np.testing.assert_array_equal(back.values(seen[None]), learned.values(seen[None]))


@pytest.mark.slow
def test_taxi_by_its_name() -> None:
    agent = ActorCritic(variant="both", budget=Budget(10.0, 1e-6))
    learned = agent.learn("Taxi-v4", episodes=500)
    assert learned.probabilities(np.arange(500)).shape == (500, 6)
    learned.certificate.verify(strict=True)


@pytest.mark.slow
def test_a_compiled_environment_with_vectors_and_features() -> None:
    low, high = [-2.4, -3.0, -0.21, -3.0], [2.4, 3.0, 0.21, 3.0]
    agent = ActorCritic(
        variant="none",
        features=Polynomial(1, low, high),
        batch=20,
        lambda_=0.95,
        actor_step=30.0,
        critic_step=0.3,
        critic_weight=1.0,
        clip=0.1,
        return_range=(0.0, 200.0),
    )
    learned = agent.learn("CartPole-v0", people=2_000, session=PrivacySession(seed=0, public=True))
    assert isinstance(learned.policy, Softmax)
    assert learned.curve is not None
    # Acting at random balances for some 22 steps.
    assert learned.curve[:20].mean() < 40.0
    assert learned.curve[-200:].mean() > 170.0


# --- a critic to start from -----------------------------------------------------------------------


def test_a_run_starts_from_a_critic_that_others_paid_for() -> None:
    from privrl.data import Trajectories
    from privrl.evaluation import DPLSL

    data = Trajectories.from_arrays(
        np.tile([0, 1], 10),
        np.zeros(20, dtype=np.int64),
        np.ones(20),
        lengths=[2] * 10,
        terminated=[True] * 10,
        num_states=2,
        num_actions=2,
    )
    producer = DPLSL(OneHot(2), (0.0, 1.0), BUDGET, gamma=0.9).fit(data)
    agent = ActorCritic(**{**_fields(COIN), "critic_step": 0.0})
    learned = agent.learn(Visits(), people=20, critic=producer, preflight=False)
    np.testing.assert_allclose(learned.weights, producer.weights)  # type: ignore[arg-type]
    assert learned.producer == producer.certificate
    assert any("about other people" in a.statement for a in learned.certificate.assumptions)
    again = agent.learn(Visits(), people=20, critic=learned, preflight=False)
    np.testing.assert_allclose(again.weights, learned.weights)
    # Of a network only the last layer knows the unit of returns.
    wide = ActorCritic(
        **{**_fields(agent), "critic_features": Network((2,)), "return_range": (0.0, 5.0)}
    )
    layers = np.random.default_rng(0).normal(size=9)
    np.testing.assert_allclose(
        wide.learn(Visits(), people=20, critic=layers, preflight=False).weights, layers
    )
    plain = agent.learn(Visits(), people=20, critic=[1.0, 2.0], preflight=False)
    np.testing.assert_allclose(plain.weights, [1.0, 2.0])
    assert plain.producer is None
    assert any("is public" in a.statement for a in plain.certificate.assumptions)
    with pytest.raises(InputError, match="critic has 3 weights, but its features need 2"):
        agent.learn(Visits(), people=20, critic=[1.0, 2.0, 3.0], preflight=False)
    with pytest.raises(InputError, match="finite"):
        agent.learn(Visits(), people=20, critic=[1.0, math.nan], preflight=False)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_fields", "message"),
    [
        ({}, "budget must be a Budget with a delta above 0"),
        ({"budget": Budget(1.0)}, "budget must be a Budget with a delta above 0"),
        ({"budget": BUDGET, "variant": "none"}, "spends nothing"),
        ({"budget": BUDGET, "variant": "all"}, "variant must be 'both', 'actor'"),
        ({"budget": BUDGET, "clip": "median"}, "clip must be a number"),
        ({"budget": BUDGET, "clip": -1.0}, "clip must be positive"),
        ({"budget": BUDGET, "gamma": 1.5}, "gamma must be at most 1"),
        ({"budget": BUDGET, "curve": "paid"}, "return_range is needed"),
        ({"budget": BUDGET, "return_range": (1.0, 1.0)}, "return_range must go up"),
        ({"budget": BUDGET, "noise": "correlated", "optimiser": "adam"}, "running sums"),
        ({"budget": BUDGET, "features": 3}, "features must be a feature map"),
        ({"budget": BUDGET, "average": 2.0}, "average must be at most 1"),
    ],
)
def test_bad_settings_are_refused(given_fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ActorCritic(**given_fields)


@pytest.mark.parametrize(
    "name", ["mode", "correction_step", "acting", "exploration", "correction", "dense", "sigma"]
)
def test_settings_of_the_paper_are_not_those_of_the_certified_learner(name: str) -> None:
    assert name not in {one.name for one in fields(ActorCritic)}


def test_bad_calls_are_refused() -> None:
    agent = ActorCritic(budget=BUDGET)
    with pytest.raises(InputError, match="Say how many people"):
        agent.learn(Visits(), preflight=False)
    with pytest.raises(InputError, match="Say how many people"):
        agent.learn(Visits(), people=3, episodes=3, preflight=False)
    with pytest.raises(InputError, match="people must be at least 1"):
        agent.learn(Visits(), people=0, preflight=False)
    with pytest.raises(InputError, match="sets no limit to an episode"):
        agent.learn(Visits(), people=3, preflight=False)
    with pytest.raises(InputError, match="observes vectors"):
        agent.learn("CartPole-v1", people=3)
    with pytest.raises(InputError, match="takes no replicas"):
        CertifiedProgram(COIN, HostEnvironment(Visits()), 20).advance(None, 20)  # type: ignore[arg-type]
