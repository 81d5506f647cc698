"""Noised updates of Q: against exact optima, hand-made gradients, and their own theorem."""

import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privrl.control import noised_q
from privrl.control.heads import Layers, Linear
from privrl.control.noised_q import NoisedQPlan
from privrl.control.update_rules import Data, PersonUpdates, Rule, Updates, Weights
from privrl.data import Fourier, OneHot, Polynomial
from privrl.envs import TabularMDP
from privrl.privacy import Budget, Gaussian, Repeated
from privrl.privacy.promise import Relation
from tests.statistics import FALSE_ALARM, follows

GAMMA = 0.8
LINEAR = Linear(Fourier(2, [0.0], [1.0]), 2)
NETWORK = Layers((1, 4, 2), None, 1)


def rollout(count: int, seed: int = 0) -> dict[str, Any]:
    """Transitions on [0, 1] that looked at nothing; some end an episode."""
    draw = np.random.default_rng(seed)
    return {
        "observation": draw.random((count, 1)),
        "action": draw.integers(2, size=count),
        "after": draw.random((count, 1)),
        "goes_on": np.where(draw.random(count) < 0.2, 0.0, GAMMA),
    }


RANGE = (-5.0, 5.0)


@lru_cache
def _blank(head: Any, orthonormal: bool) -> Data:
    with jax.enable_x64(True):
        return noised_q.transitions(
            head, reward=np.zeros(12), reward_range=RANGE, orthonormal=orthonormal, **rollout(12)
        )


def data_of(rule: Rule, rewards: Any) -> Data:
    made = noised_q.clip_rewards(rewards, RANGE)
    head: Any = rule.head
    return _blank(head, isinstance(rule, Weights))._replace(reward=jnp.asarray(made))


# --- against exact numbers ------------------------------------------------------------------------


def test_without_noise_a_table_becomes_the_optimum() -> None:
    draw = np.random.default_rng(0)
    env = TabularMDP.from_dense(
        np.eye(4)[draw.integers(4, size=(4, 2))], draw.normal(size=(4, 2)), step_limit=10
    )
    best = env.optimal(GAMMA)
    state, action = (x.ravel() for x in np.indices((4, 2)))
    successors = np.asarray(env.tables.successors)[state, action, 0]
    rewards = np.asarray(env.tables.rewards)[state, action, 0]
    head = Linear(OneHot(4), 2)
    with jax.enable_x64(True):
        data = noised_q.transitions(
            head,
            state,
            action,
            rewards,
            successors,
            np.full(8, GAMMA),
            (-10.0, 10.0),
            orthonormal=True,
        )
        plan = NoisedQPlan(Weights(head, 1.0), 4000, 1.0)
        end = noised_q.advance(plan, data, noised_q.begin(plan, data, jax.random.key(0)), 0.0, 4000)
        found = noised_q.final_parameters(plan, data, end).reshape(4, 2)
    values = np.asarray(best.values)
    exact = rewards.reshape(4, 2) + GAMMA * values[successors.reshape(4, 2)]
    np.testing.assert_allclose(found, exact, atol=1e-9)


@pytest.mark.parametrize("slope", [None, 0.5, 1e6])
def test_an_update_is_the_gradient_of_half_the_squared_errors(slope: float | None) -> None:
    rule = Updates(NETWORK, 1.0, 99, clip=None if slope else 1e6, slope=slope)
    rewards = np.random.default_rng(1).normal(size=12)
    with jax.enable_x64(True):
        data = data_of(rule, rewards)
        theta = jnp.asarray(np.random.default_rng(2).normal(size=NETWORK.shape))
        late = jnp.asarray(np.random.default_rng(3).normal(size=NETWORK.shape))

        def chosen(p: Any) -> Any:
            return NETWORK.apply(p, data.observation)[jnp.arange(12), data.action]

        def loss(p: Any) -> Any:
            aim = data.reward + data.goes_on * NETWORK.apply(late, data.after).max(axis=1)
            return 0.5 * jnp.mean((aim - chosen(p)) ** 2)

        slow, jacobian = -jax.jit(jax.grad(loss))(theta), jax.jit(jax.jacobian(chosen))(theta)
        steep = float(jnp.sqrt(jnp.mean(jnp.sum(jacobian**2, axis=1))))
        factor = 1.0 if slope is None else min(1.0, slope / steep)
        found = jax.jit(rule.exact_update)(data, theta, late, 0)
        np.testing.assert_allclose(found, factor * slow, rtol=1e-9, atol=1e-12)
        if slope == 0.5:
            assert factor < 1.0


def test_a_batch_takes_public_transitions_and_no_others() -> None:
    rule = Updates(LINEAR, 1.0, 3, clip=1e6)
    with jax.enable_x64(True):
        zero = jnp.zeros(math.prod(LINEAR.shape))
        rewards = np.arange(1.0, 13.0) / 3.0
        data = data_of(rule, rewards)
        chosen = np.asarray(
            jax.random.randint(jax.random.fold_in(jax.random.key(0), 7), (3,), 0, 12)
        )
        phi = np.asarray(LINEAR.inputs(data.observation))
        exact = np.zeros(LINEAR.shape)
        for i in chosen:
            exact[:, int(data.action[i])] += rewards[i] * phi[i] / 3.0
        found = rule.exact_update(data, zero, zero, 7).reshape(LINEAR.shape)
        np.testing.assert_allclose(found, exact, atol=1e-12)


def test_noise_on_weights_gives_away_the_same_vector_again_and_again() -> None:
    """Which is why one release of a reward model is never worse."""
    rule = Weights(LINEAR, 1.0)
    rewards = np.random.default_rng(4).normal(size=12)
    with jax.enable_x64(True):
        data, blank = data_of(rule, rewards), data_of(rule, np.zeros(12))
        draw = np.random.default_rng(5)
        private = []
        for _ in range(3):
            c, late = (jnp.asarray(draw.normal(size=data.transform.shape[1])) for _ in range(2))
            private.append(
                rule.exact_update(data, c, late, 0) - rule.exact_update(blank, c, late, 0)
            )
        for one in private:
            np.testing.assert_allclose(one, data.contraction @ rewards, atol=1e-12)


# --- how far neighbours are apart -----------------------------------------------------------------

RADIUS = 0.3
RULES: list[Rule] = [
    Weights(LINEAR, RADIUS),
    Weights(LINEAR, RADIUS, 0.1),
    Weights(LINEAR, RADIUS, 50.0),
    Updates(LINEAR, RADIUS, 5, slope=0.7),
    Updates(NETWORK, RADIUS, 99, clip=0.02),
    Updates(NETWORK, RADIUS, 99, clip=5.0, slope=0.4),
    Updates(NETWORK, RADIUS, 1, slope=2.0),
]
# A batch of one has one gradient, along which all of the difference lies.
TIGHT = Updates(LINEAR, RADIUS, 1, slope=0.5)
ANY = st.floats(-6.0, 6.0) | st.sampled_from([0.0, 5.0, -5.0, 1e308, -1e308])
_HUNTED = [jax.jit(rule.exact_update) for rule in RULES]


@settings(max_examples=200)
@given(
    st.integers(0, len(RULES) - 1),
    st.lists(st.tuples(ANY, st.floats(-1.0, 1.0)), min_size=12, max_size=12),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.1, 3.0]),
    st.booleans(),
)
def test_no_reward_function_within_the_radius_moves_an_update_further(
    which: int, rewards: list[tuple[float, float]], seed: int, size: float, alike: bool
) -> None:
    rule = RULES[which]
    one = np.array([r for r, _ in rewards])
    # All shares of the radius alike is what moves features with a constant furthest.
    shares = [1.0] * 12 if alike else [d for _, d in rewards]
    other = one + RADIUS * np.array(shares)
    with jax.enable_x64(True):
        worlds = [data_of(rule, r) for r in (one, other)]
        draw = np.random.default_rng(seed)
        shape = rule.initial_parameters(worlds[0]).shape
        theta, late = (size * draw.normal(size=shape) for _ in range(2))
        found = [np.asarray(_HUNTED[which](data, theta, late, seed)) for data in worlds]
    assert np.all(np.isfinite(found))
    assert np.linalg.norm(found[0] - found[1]) <= rule.bound * (1.0 + 1e-9)


@pytest.mark.parametrize("rule", [Weights(LINEAR, RADIUS), Weights(LINEAR, RADIUS, 0.1), TIGHT])
def test_the_hunted_bounds_are_reached_and_not_exceeded(rule: Rule) -> None:
    """Else noise would be wasted, or too small: rewards that differ everywhere, as far as can be.

    The features have a constant, so that they express such a difference.
    """
    with jax.enable_x64(True):
        worlds = [data_of(rule, np.full(12, r)) for r in (-RADIUS / 2.0, RADIUS / 2.0)]
        zero = rule.initial_parameters(worlds[0])
        found = [jax.jit(rule.exact_update)(data, zero, zero, 0) for data in worlds]
        distance = float(jnp.linalg.norm(found[0] - found[1]))
    assert 0.999 * rule.bound < distance <= rule.bound * (1.0 + 1e-9)


PEOPLE = [
    PersonUpdates(LINEAR, 0.5),
    PersonUpdates(NETWORK, 2.0),
    PersonUpdates(Linear(Polynomial(1, [0.0], [1.0]), 2), 0.01),
]
WILD = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0]) | st.floats(
    -1e3, 1e3
)
_ROWS = [jax.jit(rule.rows) for rule in PEOPLE]


@settings(max_examples=150)
@given(
    st.integers(0, len(PEOPLE) - 1),
    st.lists(st.tuples(WILD, st.integers(-2, 3), WILD, WILD), min_size=0, max_size=4),
    st.booleans(),
)
def test_no_person_adds_more_than_the_bound(
    which: int, steps: list[tuple[float, int, float, float]], ended: bool
) -> None:
    """Nobody, somebody with one step, and somebody with any numbers at all."""
    rule, length = PEOPLE[which], 4
    rows = [*steps, *[(math.nan, 7, math.nan, math.nan)] * (length - len(steps))]
    # Somebody else is there too, in the last row, and may not notice.
    rows.append((0.5, 1, 2.0, 0.3))
    with jax.enable_x64(True):
        part = Data(
            jnp.array([[row[0]] for row in rows]),
            jnp.array([row[1] for row in rows], jnp.int32),
            jnp.array([[row[3]] for row in rows]),
            jnp.full(length + 1, 0.0 if ended else GAMMA),
            jnp.array([row[2] for row in rows]),
            jnp.array([*(0 if i < len(steps) else 2 for i in range(length)), 1], jnp.int32),
            jnp.array([1.0 / max(len(steps), 1)] * length + [1.0]),
            jnp.zeros((2, 0)),
        )
        theta = jnp.asarray(np.random.default_rng(0).normal(size=math.prod(rule.head.shape)))
        found = np.asarray(_ROWS[which](theta, 100.0 * theta, part))
        alone = part._replace(person=jnp.array([2] * length + [1], jnp.int32))
        np.testing.assert_array_equal(found[1], _ROWS[which](theta, 100.0 * theta, alone)[1])
    assert np.all(np.isfinite(found))
    assert np.linalg.norm(found[0]) <= rule.clip * (1.0 + 1e-12)
    assert found[1].any()
    if not steps:
        assert not found[0].any()


@pytest.mark.parametrize("most", [1, 60, 2**21])
def test_people_add_up_however_they_are_packed(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum over people of their clipped mean gradients, by automatic differentiation."""
    monkeypatch.setattr(noised_q, "_MAX_NUMBERS", most)
    rule, draw, count = PersonUpdates(NETWORK, 4.0), np.random.default_rng(0), 40
    person = draw.integers(9, size=count) * 5
    rows = {**rollout(count), "reward": draw.normal(size=count)}
    with jax.enable_x64(True):
        data = noised_q.people_transitions(NETWORK, person=person, **rows)
        theta, late = (jnp.asarray(draw.normal(size=NETWORK.shape)) for _ in range(2))

        def chosen(p: Any) -> Any:
            return NETWORK.apply(p, jnp.asarray(rows["observation"]))[
                jnp.arange(count), rows["action"]
            ]

        aim = rows["reward"] + rows["goes_on"] * NETWORK.apply(
            late, jnp.asarray(rows["after"])
        ).max(axis=1)
        each = (aim - chosen(theta))[:, None] * jax.jit(jax.jacobian(chosen))(theta)
        total, clipped = np.zeros(NETWORK.shape), 0
        for one in np.unique(person):
            mean = np.mean(np.asarray(each)[person == one], axis=0)
            norm = float(np.linalg.norm(mean))
            clipped += norm > 4.0
            total += mean * min(1.0, 4.0 / norm)
        assert 0 < clipped < 9
        np.testing.assert_allclose(
            jax.jit(rule.exact_update)(data, theta, late, 0), total, atol=1e-9
        )
    assert (data.reward.shape[0] > 1) == (most < 2**21)


# --- noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Weights(LINEAR, RADIUS), PEOPLE[0]], ids=["weights", "people"])
def test_the_noise_has_the_size_that_is_paid_for(rule: Rule) -> None:
    budget, updates = Budget(1.0, 1e-5), 20
    plan = NoisedQPlan(rule, updates, 1.0)
    noisy = noised_q.calibrate_noise(budget, rule.relation, plan)
    std = noisy.noise_multiplier * rule.bound
    assert noisy.event == Repeated(Gaussian(std, rule.bound), updates)
    with jax.enable_x64(True):
        if isinstance(rule, PersonUpdates):
            rows = {**rollout(12), "reward": np.ones(12), "person": np.arange(12) // 3}
            data = noised_q.people_transitions(rule.head, **rows)
        else:
            data = data_of(rule, np.ones(12))

        def noise(key: Any) -> Any:
            state = noised_q.begin(plan, data, key)
            exact = rule.exact_update(data, state.parameters, state.target, state.done)
            return noised_q.noised(plan, data, state, noisy.noise_multiplier) - exact

        keys = jax.random.split(jax.random.key(8), 2000)
        z = np.asarray(jax.vmap(noise)(keys)).ravel() / std
    assert follows(z, stats.norm.cdf)
    law, squares = stats.chi2(z.size), float(np.sum(z**2))
    assert law.ppf(FALSE_ALARM / 2) < squares < law.isf(FALSE_ALARM / 2)
    for off in (0.9, 1.1):  # a scale that is off by a tenth would be rejected
        assert not law.ppf(FALSE_ALARM / 2) < squares * off**2 < law.isf(FALSE_ALARM / 2)
    # All updates together are one Gaussian that moves by mu, of which delta(epsilon) is known.
    twice = 2.0 if rule.relation is Relation.REPLACE_ONE else 1.0
    mu = twice * math.sqrt(updates) / noisy.noise_multiplier
    delta = stats.norm.cdf(mu / 2 - 1.0 / mu) - math.e * stats.norm.cdf(-mu / 2 - 1.0 / mu)
    assert delta == pytest.approx(1e-5, rel=1e-4)


def test_every_update_has_noise_of_its_own() -> None:
    rule, updates = PEOPLE[0], 200
    with jax.enable_x64(True):
        rows = {**rollout(12), "reward": np.ones(12), "person": np.arange(12) // 3}
        data = noised_q.people_transitions(rule.head, **rows)
        plan = NoisedQPlan(rule, updates, 1.0)
        begun = noised_q.begin(plan, data, jax.random.key(3))

        def noise(number: Any) -> Any:
            state = begun._replace(done=number)
            exact = rule.exact_update(data, state.parameters, state.target, state.done)
            return noised_q.noised(plan, data, state, 1.0) - exact

        z = np.asarray(jax.vmap(noise)(jnp.arange(updates))) / rule.bound
    # Products of independent standard normals: five standard errors, 1e-6 or less.
    for apart in (1, 2, 3):
        products = (z[apart:] * z[:-apart]).ravel()
        assert abs(products.sum()) < 5.0 * math.sqrt(products.size)
    assert len(np.unique(z[:, 0])) == updates


def test_what_goes_on_comes_from_noised_updates_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other rewards under the same noised updates leave everything as it is."""
    rule = Updates(NETWORK, 1.0, 5, clip=1.0)
    plan = NoisedQPlan(rule, 6, 0.1, target_every=2, optimiser="adam", average=0.5)
    monkeypatch.setattr(
        noised_q,
        "noised",
        lambda plan, data, state, sigma: jnp.sin(
            state.parameters + 1.0 + jnp.arange(state.parameters.size)
        ),
    )
    with jax.enable_x64(True):
        ends = []
        for seed in (0, 1):
            data = data_of(rule, np.random.default_rng(seed).normal(size=12))
            state = noised_q.begin(plan, data, jax.random.key(0))
            for _ in range(6):
                state = noised_q.apply_update(plan, state, noised_q.noised(plan, data, state, 1.0))
            ends.append(state)
    for one, other in zip(ends[0][:5], ends[1][:5], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_two_pieces_equal_the_whole_bit_for_bit(optimiser: Any) -> None:
    rule = Updates(NETWORK, 1.0, 5, clip=1.0)
    plan = NoisedQPlan(rule, 20, 0.1, target_every=3, optimiser=optimiser, average=0.3)
    with jax.enable_x64(True):
        data = data_of(rule, np.random.default_rng(0).normal(size=12))
        begun = noised_q.begin(plan, data, jax.random.key(0))
        whole = noised_q.advance(plan, data, begun, 0.7, 20)
        half = noised_q.advance(plan, data, begun, 0.7, 11)
        parts = noised_q.advance(plan, data, half, 0.7, 9)
        assert int(parts.done) == 20
        for one, other in zip(whole[:5], parts[:5], strict=True):
            np.testing.assert_array_equal(one, other)


def test_parameters_are_averaged_over_the_last_updates() -> None:
    rule = Updates(LINEAR, 1.0, 99, clip=1.0)
    plan = NoisedQPlan(rule, 10, 0.1, average=0.4)
    with jax.enable_x64(True):
        data = data_of(rule, np.ones(12))
        state = noised_q.begin(plan, data, jax.random.key(0))
        seen = []
        for _ in range(10):
            state = noised_q.advance(plan, data, state, 0.5, 1)
            seen.append(np.asarray(state.parameters))
        np.testing.assert_allclose(
            noised_q.final_parameters(plan, data, state), np.mean(seen[6:], axis=0), atol=1e-14
        )
