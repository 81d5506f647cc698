"""Learning what people prefer: planning against exact answers, updates against their theorem."""

import math
from dataclasses import replace
from functools import lru_cache
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

from privrl.control import (
    Descent,
    FunctionalQ,
    LearnedQ,
    Network,
    ProspectQ,
    noised_q,
    planning,
    prospect_planning,
)
from privrl.control.engine import CHECKPOINT
from privrl.control.heads import Layers, Linear, Table
from privrl.control.program import read_about
from privrl.control.rollouts import (
    Rollout,
    SampledRollout,
    collect_rollout,
    collect_sampled_rollout,
    pool_successors,
)
from privrl.control.shrinkage import posterior_means
from privrl.control.update_rules import Data, ProspectUpdates
from privrl.core.types import Floats
from privrl.data import Fourier, OneHot, Tabular
from privrl.envs import Interval, TabularMDP
from privrl.envs.host import HostEnvironment
from privrl.privacy import Budget, InputError, Ledger
from privrl.privacy.events import Gaussian, Repeated
from privrl.privacy.mechanisms.reward_model import RewardModel
from privrl.privacy.noise import reproducible
from privrl.privacy.promise import NoiseOrigin, Relation, Release, Unit
from privrl.privacy.session import PrivacySession
from privrl.risk import PowerUtility, Prelec, Prospect, solve

GAMMA = 0.9
BUDGET = Budget(0.9, 1e-4)
STATES, ACTIONS = 4, 3
PROSPECTS = [
    Prospect.neutral(),
    Prospect.rajabi2022(),
    Prospect.tversky_kahneman(),
    Prospect(PowerUtility(0.7, 0.9, 1.5, -0.5), Prelec(0.6), Prelec(0.8)),
]


def tables(seed: int, *, losses: bool = False) -> TabularMDP:
    """A small process; some steps terminate, and what a step pays depends on where it leads."""
    draw = np.random.default_rng(seed)
    shape = (STATES, ACTIONS, 2)
    after, first = draw.integers(0, STATES, shape), draw.uniform(0.2, 0.8, shape[:2])
    pays = draw.uniform(-3.0, -0.1, STATES) if losses else draw.normal(size=STATES)
    return TabularMDP.from_tables(
        after,
        np.stack([first, 1.0 - first], axis=2),
        pays[after],
        draw.random(shape) < 0.2,
        step_limit=20,
    )


def known(mdp: TabularMDP) -> tuple[SampledRollout, Floats]:
    """A rollout that knows the true probabilities of each state and action, and the rewards of a
    table."""
    state, action = (x.ravel() for x in np.indices((STATES, ACTIONS)))
    given: Any = mdp.tables
    led, ends, probs, paid = (
        x.reshape(STATES * ACTIONS, -1)
        for x in (given.successors, given.terminated, given.probabilities, given.rewards)
    )
    none = np.zeros(len(state), bool)
    rollout = SampledRollout(
        *(state, action, led[:, 0], none, none),
        row=np.arange(len(state)),
        led=led,
        ends=ends,
        probs=probs,
    )
    return rollout, paid


# --- planning against exact answers ---------------------------------------------------------------


@pytest.mark.parametrize("head", [Table(STATES, ACTIONS), Linear(OneHot(STATES), ACTIONS)])
@given(seed=st.integers(0, 10**6), which=st.integers(0, len(PROSPECTS) - 1), losses=st.booleans())
@settings(max_examples=10)
def test_a_plan_is_the_fixed_point_of_the_operator(
    head: Any, seed: int, which: int, losses: bool
) -> None:
    mdp, prospect = tables(seed, losses=losses), PROSPECTS[which]
    # Half of the usual discount: with loss aversion beyond 1 / gamma, linear losses would diverge.
    found = prospect_planning.fitted_q_iteration(*known(mdp), head, prospect, 0.5, 3000, 0.0)
    exact = solve(mdp, prospect, 0.5)
    assert np.allclose(found, exact.action_values, rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=10)
def test_who_goes_by_the_mean_has_the_plan_of_functional_q(seed: int) -> None:
    """On a rollout's own steps, for tables and for features that many states share."""
    draw = np.random.default_rng(seed)
    n = 60
    columns = (
        *(draw.integers(STATES, size=n), np.arange(n) % ACTIONS, draw.integers(STATES, size=n)),
        *(draw.random(n) < 0.2, np.zeros(n, bool)),
    )
    steps = Rollout(*columns)
    pays = draw.normal(size=STATES)
    sampled = pool_successors(
        SampledRollout(
            *columns,
            row=np.arange(n),
            led=columns[2][:, None],
            ends=columns[3][:, None],
            probs=np.ones((n, 1)),
        )
    )
    for head in (Table(STATES, ACTIONS), Linear(OneHot(2), ACTIONS)):
        mean = planning.fitted_q_iteration(steps, pays[columns[2]], head, GAMMA, 500, 1e-6)
        found = prospect_planning.fitted_q_iteration(
            sampled, pays[sampled.led], head, Prospect.neutral(), GAMMA, 500, 1e-6
        )
        assert np.allclose(found, mean, rtol=0.0, atol=1e-9)


def test_values_stay_within_nested_utilities() -> None:
    neutral = Prospect.neutral()
    assert prospect_planning.value_bounds(neutral, np.array([-1.0, 2.0]), 0.5, 60) == pytest.approx(
        (-2.0, 4.0)
    )
    # Whoever cannot but gain, gains least by ending at once.
    assert prospect_planning.value_bounds(neutral, np.array([1.0, 2.0]), 0.5, 60)[0] == 1.0
    u = Prospect.tversky_kahneman().utility
    low, high = prospect_planning.value_bounds(Prospect(u), np.array([-2.0, -1.0]), 1.0, 5000)
    assert low == pytest.approx(float(u(-2.0 + low)), rel=1e-9)
    assert high == float(u(-1.0))
    growing = Prospect(PowerUtility(1.0, 1.0, 50.0))
    assert (
        prospect_planning.value_bounds(growing, np.array([-1.0]), 1.0, 10**6)[0]
        == -prospect_planning.MAX_VALUE
    )
    rollout, _ = known(tables(0))
    found = prospect_planning.fitted_q_iteration(
        rollout, np.full((12, 2), -1.0), Table(STATES, ACTIONS), growing, 1.0, 500, 0.0
    )
    assert np.all(np.isfinite(found))


@pytest.mark.slow
@pytest.mark.parametrize("prospect", PROSPECTS[1:3])
def test_a_network_finds_the_same_values(prospect: Prospect) -> None:
    mdp = tables(5, losses=True)
    head = Layers((STATES, 32, ACTIONS), OneHot(STATES))
    rollout, paid = known(mdp)
    found = prospect_planning.network_q(rollout, paid, head, prospect, 0.5, updates=4000)
    exact = solve(mdp, prospect, 0.5).action_values
    with jax.enable_x64(True):
        values = np.asarray(head.apply(found, head.inputs(np.arange(STATES))))
    assert np.max(np.abs(values - exact)) < 0.03 * np.max(np.abs(exact))


# --- what is drawn --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mdp() -> TabularMDP:
    """One process for all tests that compile."""
    return tables(1, losses=True)


@pytest.fixture(scope="module")
def drawn(mdp: TabularMDP) -> SampledRollout:
    return collect_sampled_rollout(mdp, None, jax.random.key(0), 400, 50, read=True)


@pytest.mark.slow
def test_a_sampled_rollout_takes_the_steps_of_a_rollout(
    mdp: TabularMDP, drawn: SampledRollout
) -> None:
    plain = collect_rollout(mdp, None, jax.random.key(0), 400)
    for name, value in vars(plain).items():
        assert np.array_equal(value, getattr(drawn, name)), name
    assert drawn.led.shape == drawn.ends.shape == drawn.probs.shape == (400, 50)
    assert drawn.unequal_probs is None
    shown = drawn.public()
    assert (shown.reward, shown.paid) == (None, None)


@pytest.mark.slow
def test_successors_have_the_law_of_the_tables(mdp: TabularMDP, drawn: SampledRollout) -> None:
    """Each count is within 6 standard deviations, and pairs of draws are not alike."""
    state, action = drawn.observation[:, None], drawn.action[:, None]
    first, second = (mdp.tables.successors[state, action, k] for k in (0, 1))
    differ = np.broadcast_to(first != second, drawn.led.shape)
    prob = np.broadcast_to(mdp.tables.probabilities[state, action, 0], drawn.led.shape)[differ]
    hits = (drawn.led == first)[differ]
    spread = math.sqrt(float(np.sum(prob * (1.0 - prob))))
    assert abs(float(np.sum(hits - prob))) < 6.0 * spread
    own = (drawn.next_observation[:, None] == first)[:, 0]
    for column in (own, (drawn.led == first)[:, 1]):
        together = ((drawn.led == first)[:, 0] == column)[differ[:, 0]]
        assert 0.3 < np.mean(together) < 0.8


def test_pooled_rows_count_each_successor(mdp: TabularMDP, drawn: SampledRollout) -> None:
    found = pool_successors(drawn)
    assert found.paid is not None
    assert found.unequal_probs is not None
    assert drawn.paid is not None
    assert np.allclose(found.probs.sum(axis=1), 1.0)
    for i in range(0, 400, 37):
        alike = (drawn.observation == drawn.observation[i]) & (drawn.action == drawn.action[i])
        row = found.row[i]
        assert np.all(found.row[alike] == row)
        for led, ends, prob, paid in zip(
            *(x[row] for x in (found.led, found.ends, found.probs, found.paid)), strict=True
        ):
            there = (drawn.led[alike] == led) & (drawn.ends[alike] == ends)
            if prob > 0.0:
                assert prob == pytest.approx(np.mean(there), abs=1e-12)
                assert paid == pytest.approx(np.mean(drawn.paid[alike][there]), abs=1e-12)


def test_a_learned_plan_is_exact_for_what_was_drawn(mdp: TabularMDP, tmp_path: Path) -> None:
    """`solve` on tables of the drawn probabilities; these come near the true ones as samples
    grow."""
    prospect = Prospect.rajabi2022()
    agent = ProspectQ(gamma=0.5, steps=400, samples=50, prospect=prospect)
    learned = agent.learn(mdp, session=PrivacySession(seed=3))
    sampled = pool_successors(
        collect_sampled_rollout(mdp, None, reproducible(3).key(), 400, 50, read=True)
    )
    assert sampled.paid is not None
    assert len(sampled.led) == STATES * ACTIONS
    shape = (STATES, ACTIONS, -1)
    drawn_tables = TabularMDP.from_tables(
        *(x.reshape(shape) for x in (sampled.led, sampled.probs, sampled.paid, sampled.ends))
    )
    states = np.arange(STATES)
    exact = solve(drawn_tables, prospect, 0.5).action_values
    assert np.allclose(learned.values(states), exact, rtol=0.0, atol=1e-9)
    true = solve(mdp, prospect, 0.5).action_values
    assert np.max(np.abs(exact - true)) < 0.03


SECOND = Tabular(np.eye(ACTIONS)[np.full(STATES, 2)])


@pytest.mark.slow
def test_a_behaviour_is_followed(mdp: TabularMDP) -> None:
    found = collect_sampled_rollout(mdp, SECOND, jax.random.key(0), 10, 2, read=False)
    assert np.all(found.action == 2)
    assert found.paid is None


def test_bad_rollouts_are_refused(mdp: TabularMDP) -> None:
    with pytest.raises(InputError, match="use fewer steps or samples"):
        collect_sampled_rollout(mdp, None, jax.random.key(0), 10**6, 100, read=False)
    with pytest.raises(InputError, match="behaviour has 3 actions"):
        collect_sampled_rollout(Interval(), SECOND, jax.random.key(0), 10, 2, read=False)


# --- released rewards -----------------------------------------------------------------------------


def test_nobody_is_paid_where_the_model_knows_nothing(drawn: SampledRollout) -> None:
    agent = ProspectQ(reward_range=(-2.0, 0.5))
    model = RewardModel(np.array([-9.0, 0.3, 7.0]), np.eye(STATES)[:, 1:], OneHot(STATES), 0.0)
    found = agent.successor_rewards(drawn, model)
    wanted = np.array([-2.0, -2.0, 0.3, 0.5])[drawn.led]
    assert np.array_equal(found, wanted)


def test_shrinking_takes_noise_out_of_what_is_alike() -> None:
    draw = np.random.default_rng(0)
    true = np.full(100, -1.0)
    true[[7, 40]] = -50.0, -25.0
    noisy = true + 2.0 * draw.normal(size=100)
    found = posterior_means(noisy, np.full(100, 2.0), -50.0, 0.0)
    assert np.mean((found - true) ** 2) < 0.1 * np.mean((np.clip(noisy, -50.0, 0.0) - true) ** 2)
    assert abs(found[7] + 50.0) < 3.0
    # Numbers further apart than their noise stay.
    apart = np.linspace(-50.0, 0.0, 40)
    assert np.allclose(posterior_means(apart, np.full(40, 1e-3), -50.0, 0.0), apart, atol=0.01)
    # Where noise drowns everything, all are alike.
    drowned = posterior_means(noisy, np.full(100, 1e6), -50.0, 0.0)
    assert np.ptp(drowned) < 1e-3


@given(
    st.lists(
        st.tuples(st.floats(-1e300, 1e300), st.sampled_from([1e-9, 1.0, 1e100])),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=30)
def test_shrunk_numbers_are_in_the_range(numbers: list[tuple[float, float]]) -> None:
    noisy, std = np.array(numbers).T
    found = posterior_means(noisy, std, -3.0, 1.0)
    assert np.all((found >= -3.0) & (found <= 1.0))


# --- noised updates -------------------------------------------------------------------------------

RANGE = (-5.0, 5.0)
ROWS, SUCCESSORS = 8, 3
RULES = [
    ProspectUpdates(Table(STATES, 2), Prospect.rajabi2022(), 99, 0.02),
    ProspectUpdates(Linear(Fourier(1, [0.0], [1.0]), 2), Prospect.tversky_kahneman(), 3, 5.0),
    ProspectUpdates(Layers((1, 3, 2), None, 1), Prospect.rajabi2022(), 99, 0.1),
]
_HUNTED = [jax.jit(rule.exact_update) for rule in RULES]


def data_of(rule: ProspectUpdates, rewards: Any, *, even: bool = True) -> Data:
    with jax.enable_x64(True):
        reward = jnp.asarray(noised_q.clip_rewards(rewards, RANGE))
    return _blank(isinstance(rule.head, Table), even)._replace(reward=reward)


@lru_cache
def _blank(discrete: bool, even: bool) -> Data:
    """Transitions with successors that looked at nothing; some end an episode."""
    draw = np.random.default_rng(0)
    shape = (ROWS, SUCCESSORS)

    def states(size: tuple[int, ...]) -> Any:
        return draw.integers(STATES, size=size) if discrete else draw.random((*size, 1))

    raw = draw.random(shape)
    with jax.enable_x64(True):
        return Data(
            jnp.asarray(states((ROWS,))),
            jnp.asarray(draw.integers(2, size=ROWS), jnp.int32),
            jnp.asarray(states(shape)),
            jnp.asarray(np.where(draw.random(shape) < 0.2, 0.0, GAMMA)),
            None,
            row=jnp.asarray(draw.permutation(ROWS), jnp.int32),
            probs=None if even else jnp.asarray(raw / raw.sum(axis=1, keepdims=True)),
        )


# The reference point of the utilities is 0, where their slope is infinite.
ANY = st.floats(-6.0, 6.0) | st.sampled_from(
    [0.0, -0.0, 5e-324, -1e-300, 5.0, -5.0, 1e308, -1e308, math.nan, math.inf, -math.inf]
)
PAID = st.lists(ANY, min_size=ROWS * SUCCESSORS, max_size=ROWS * SUCCESSORS)


@given(
    which=st.integers(0, len(RULES) - 1),
    one=PAID,
    other=PAID,
    alike=st.booleans(),
    seed=st.integers(0, 3),
    size=st.sampled_from([0.0, 0.1, 3.0, 1e200]),
)
@settings(max_examples=100)
def test_no_two_reward_functions_move_an_update_further(
    which: int, one: list[float], other: list[float], alike: bool, seed: int, size: float
) -> None:
    rule = RULES[which]
    worlds = [np.array(r).reshape(ROWS, SUCCESSORS) for r in (one, other)]
    if alike:
        # As far apart as can be, everywhere at once.
        worlds = [np.full((ROWS, SUCCESSORS), r) for r in (one[0], -one[0])]
    draw = np.random.default_rng(seed)
    with jax.enable_x64(True):
        shape = (math.prod(rule.head.shape),)
        theta, late = (jnp.asarray(size * draw.normal(size=shape)) for _ in range(2))
        found = [np.asarray(_HUNTED[which](data_of(rule, r), theta, late, seed)) for r in worlds]
    assert np.all(np.isfinite(found))
    assert max(map(np.linalg.norm, found)) <= rule.clip * (1.0 + 1e-12)
    assert np.linalg.norm(found[0] - found[1]) <= rule.bound * (1.0 + 1e-12)


@pytest.mark.parametrize("which", [0, 2])
def test_the_bound_is_reached(which: int) -> None:
    """Twice the clip, and not once: rewards at both ends of the range pull in opposite ways."""
    rule = RULES[which]
    with jax.enable_x64(True):
        zero = jnp.asarray(rule.head.initial_parameters())
        found = [
            np.asarray(_HUNTED[which](data_of(rule, np.full((ROWS, SUCCESSORS), r)), zero, zero, 0))
            for r in RANGE
        ]
    assert np.linalg.norm(found[0] - found[1]) > 0.99 * rule.bound


def test_tiny_differences_of_rewards_are_no_tiny_differences_of_updates() -> None:
    """Why nothing may rest on the radius: rho has no Lipschitz constant at the reference point."""
    rule = ProspectUpdates(Table(STATES, 2), Prospect.rajabi2022(), 99, 1e6)
    with jax.enable_x64(True):
        zero, exact = jnp.zeros(STATES * 2), jax.jit(rule.exact_update)
        found = [
            np.asarray(exact(data_of(rule, np.full((ROWS, SUCCESSORS), r)), zero, zero, 0))
            for r in (0.0, 1e-12)
        ]
    assert np.linalg.norm(found[1] - found[0]) > 10.0 * 1e-12


def test_an_update_is_the_gradient_of_half_the_squared_errors() -> None:
    head, prospect = Layers((1, 3, 2), None, 1), Prospect.tversky_kahneman()
    rule = ProspectUpdates(head, prospect, 99, 1e9)
    draw = np.random.default_rng(1)
    with jax.enable_x64(True):
        data = data_of(rule, draw.normal(size=(ROWS, SUCCESSORS)), even=False)
        theta, late = (jnp.asarray(draw.normal(size=head.shape)) for _ in range(2))
        best = np.asarray(head.apply(late, data.after.reshape(-1, 1))).max(axis=1)
        outcomes = np.asarray(data.reward) + np.asarray(data.goes_on) * best.reshape(
            ROWS, SUCCESSORS
        )
        aims = prospect.of_distribution(outcomes, np.asarray(data.probs))[np.asarray(data.row)]

        def loss(p: Any) -> Any:
            own = head.apply(p, data.observation)[jnp.arange(ROWS), data.action]
            return 0.5 * jnp.mean((jnp.asarray(aims) - own) ** 2)

        found, slope = jax.jit(lambda p: (rule.exact_update(data, p, late, 0), jax.grad(loss)(p)))(
            theta
        )
        np.testing.assert_allclose(found, -slope, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_without_noise_a_table_becomes_the_optimum(mdp: TabularMDP) -> None:
    prospect, gamma = Prospect.tversky_kahneman(), 0.3
    agent = ProspectQ(
        release="updates",
        prospect=prospect,
        gamma=gamma,
        steps=400,
        samples=50,
        reward_range=(-5.0, 0.0),
        descent=Descent(updates=4000, step=2.0, clip=100.0, average=0.0),
    )
    learned = agent.learn(mdp, session=PrivacySession(seed=3))
    sampled = pool_successors(
        collect_sampled_rollout(mdp, None, reproducible(3).key(), 400, 50, read=True)
    )
    assert sampled.paid is not None
    exact = prospect_planning.fitted_q_iteration(
        sampled, sampled.paid, Table(STATES, ACTIONS), prospect, gamma, 3000, 0.0
    )
    assert np.allclose(learned.values(np.arange(STATES)), exact, rtol=0.0, atol=1e-6)


# --- a run as a whole -----------------------------------------------------------------------------


class Ring(gymnasium.Env[Any, int]):
    """A rollout on a ring of five states, in Gymnasium's world."""

    action_space: Any = spaces.Discrete(2)

    def __init__(self, pays: Any, box: bool = False) -> None:
        self.pays, self.box, self.taken = list(pays), box, 0
        self.observation_space: Any = spaces.Box(0.0, 4.0, (1,)) if box else spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(1, 5))
        return self._seen(), {}

    def step(self, action: int) -> Any:
        self.at = (self.at + (1 if action else 4)) % 5
        reward = self.pays[self.taken % len(self.pays)]
        self.taken += 1
        return self._seen(), reward, self.at == 0, False, {}

    def _seen(self) -> Any:
        return np.array([self.at], np.float32) if self.box else self.at


def agent(release: Any = "reward-model", **more: Any) -> ProspectQ:
    given: dict[str, Any] = {
        "budget": BUDGET,
        "reward_radius": 0.25,
        "reward_range": (-1.0, 1.0),
        "steps": 40,
    }
    if release == "updates":
        given["descent"] = Descent(updates=3, clip=0.05)
    return ProspectQ(release=release, **{**given, **more})


def payments(ledger: Ledger) -> int:
    """Of all entries, those that cost something."""
    return sum(bool(entry.events) for entry in ledger.entries())


def ledger_at(path: Path) -> Ledger:
    return Ledger.create(
        path, "rewards", unit=Unit.REWARD_FUNCTION, relation=Relation.REWARD_RADIUS
    )


def test_in_gymnasiums_world_the_mean_has_the_plan_of_functional_q() -> None:
    ours = ProspectQ(prospect=Prospect.neutral(), steps=300).learn(
        Ring([0.3, -0.2, 0.9]), session=PrivacySession(seed=2), preflight=False
    )
    theirs = FunctionalQ(steps=300).learn(
        Ring([0.3, -0.2, 0.9]), session=PrivacySession(seed=2), preflight=False
    )
    assert np.allclose(ours.parameters, theirs.parameters, rtol=0.0, atol=1e-9)
    assert np.ptp(ours.parameters) > 0.1


@pytest.mark.parametrize("release", ["reward-model", "updates"])
def test_a_run_pays_once_and_survives_its_files(release: Any, tmp_path: Path) -> None:
    learner, env = agent(release), Ring([0.2, -0.1, math.nan, math.inf, -1e308])
    with ledger_at(tmp_path / "l") as ledger:
        folder = tmp_path / "run"
        found = learner.learn(
            env,
            session=PrivacySession(ledger=ledger, run="one", seed=4),
            folder=folder,
            keep=True,
            preflight=False,
        )
        entry = ledger.entries()[0]
        assert found.certificate.events == entry.events
        env.taken = 0
        again = learner.resume(env, folder, ledger=ledger, keep=True)
        assert payments(ledger) == 1
        names = set(read_about(folder / CHECKPOINT)["arrays"]["state"])
        assert not names & {"reward", "rewards", "paid"}
        with pytest.raises(InputError, match="another agent"):
            agent(release, prospect=Prospect.neutral()).resume(env, folder)
    assert found.to_dict() == again.to_dict()
    found.save(tmp_path / "q.json")
    assert LearnedQ.load(tmp_path / "q.json").to_dict() == found.to_dict()
    promise = found.certificate
    promise.verify()
    assert promise.epsilon <= BUDGET.epsilon * (1.0 + 1e-9)
    assert (promise.unit, promise.relation) == (Unit.REWARD_FUNCTION, Relation.REWARD_RADIUS)
    (event,) = promise.events
    if release == "reward-model":
        assert isinstance(event, Gaussian)
        assert event.bound == promise.reward_radius == 0.25
        assert promise.release is Release.FINAL_MODEL
    else:
        assert isinstance(event, Repeated)
        assert isinstance(event.event, Gaussian)
        assert (event.event.bound, event.times) == (0.1, 3)
        assert promise.release is Release.EVERY_ITERATE
    assert found.settings["prospect"] == Prospect.rajabi2022().to_dict()
    assert not {"evaluations", "horizon"} & set(found.settings)


def test_updates_protect_whatever_the_radius() -> None:
    """Left out it is the width of the range, and the noise is the same for all of them."""
    found = [
        agent("updates", reward_radius=radius).learn(
            Ring([0.2]), session=PrivacySession(seed=1), preflight=False
        )
        for radius in (None, 0.01, 2.0)
    ]
    assert [one.certificate.reward_radius for one in found] == [2.0, 0.01, 2.0]
    assert len({one.certificate.events for one in found}) == 1
    assert "within 2 of it at every point" in found[0].privacy_statement
    assert (
        agent("updates").learn(Ring([0.2]), preflight=False).certificate.noise
        is NoiseOrigin.SECURE_KEY
    )


def test_a_plan_comes_from_what_was_released_and_its_noise() -> None:
    """So much noise that two runs about the same rewards cannot agree."""
    agent = ProspectQ(
        budget=Budget(0.1, 1e-5),
        reward_radius=0.2,
        reward_range=(-1.0, 1.0),
        gamma=0.5,
        steps=30,
        rounds=300,
        samples=3,
    )
    forth, back = np.roll(np.eye(3), 1, axis=1), np.roll(np.eye(3), -1, axis=1)
    ring = TabularMDP.from_dense(
        np.stack([forth, back], axis=1), np.full((3, 2), 0.1), step_limit=5
    )
    first, second = (agent.learn(ring).parameters for _ in range(2))
    assert np.max(np.abs(first - second)) > 1e-3


def test_planning_never_sees_rewards(mdp: TabularMDP, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the rollout's nor the successors', which nobody looked at to begin with."""
    seen: list[SampledRollout] = []
    real = prospect_planning.fitted_q_iteration

    def watched(steps: SampledRollout, *rest: Any) -> Any:
        seen.append(steps)
        return real(steps, *rest)

    monkeypatch.setattr(prospect_planning, "fitted_q_iteration", watched)
    learner = agent(reward_range=(-3.0, 0.0), steps=400, samples=50, gamma=0.5)
    noisy = learner.learn(mdp, session=PrivacySession(seed=0))
    assert [(steps.reward, steps.paid) for steps in seen] == [(None, None)]
    # What it planned on is what was released: the same coefficients give the same plan.
    assert noisy.reward_model is not None
    rewards = learner.successor_rewards(seen[0], noisy.reward_model)
    again = real(seen[0], rewards, noisy.head, learner.prospect, 0.5, 500, 1e-6)
    assert np.array_equal(noisy.parameters, again.ravel())
    assert np.all((rewards >= -3.0) & (rewards <= 0.0))


@pytest.mark.parametrize("planner", ["fitted", "network"])
@pytest.mark.slow
def test_vectors_and_rewards_of_steps(planner: Any) -> None:
    learner = ProspectQ(
        planner=planner, network=Network((8,)), steps=300, samples=10, updates=3000, gamma=0.5
    )
    for of in ("arrival", "step"):
        found = type(learner)(**{**vars(learner), "reward_of": of}).learn(
            Interval(), session=PrivacySession(seed=0)
        )
        assert found.values([[0.5], [0.9]]).shape == (2, 2)
        # Towards the middle from either side.
        assert found.probabilities([[0.05], [0.95]]).argmax(axis=1).tolist() == [0, 1]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prospect": 3}, "prospect must be a Prospect"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"samples": 10**9}, "samples must be at most 1,000,000"),
        ({"release": "weights"}, "release must be 'reward-model', 'updates' or 'none'"),
        ({"planner": "actor-critic"}, "planner must be 'fitted' or 'network'"),
        ({"evaluations": 3}, "evaluations is a setting of FunctionalQ"),
        ({"shrink": 1}, "shrink must be True or False"),
        ({"budget": BUDGET}, "reward_radius is needed"),
        ({"release": "updates"}, "reward_range is needed"),
    ],
)
def test_bad_settings_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ProspectQ(**given)


@pytest.mark.parametrize(
    ("descent", "words"),
    [
        (Descent(clip=1.0, slope=1.0), "slope bounds nothing here"),
        (Descent(tau=1.0, clip=1.0), "tau is for"),
        (Descent(), "needs a bound: say clip"),
    ],
)
def test_a_descent_that_proves_nothing_is_refused(descent: Descent, words: str) -> None:
    with pytest.raises(InputError, match=words):
        agent("updates", descent=descent).learn(Ring([0.2]), preflight=False)


@pytest.mark.parametrize("release", ["reward-model", "updates"])
def test_vectors_that_cannot_be_drawn_twice_are_refused(release: Any, tmp_path: Path) -> None:
    """Before anybody pays."""
    with ledger_at(tmp_path / "l") as ledger:
        with pytest.raises(InputError, match="cannot be stepped twice"):
            agent(release).learn(
                HostEnvironment(Ring([0.2], box=True)),
                session=PrivacySession(ledger=ledger, run="a"),
                preflight=False,
            )
        assert not ledger.entries()


@pytest.mark.slow
def test_radii_do_not_add_up_in_a_ledger(tmp_path: Path) -> None:
    """Noise for one radius says nothing about another, so a ledger has one."""
    env = tables(3, losses=True)
    small: dict[str, Any] = {"reward_range": (-3.0, 0.0), "steps": 60, "samples": 3, "rounds": 20}
    model = ProspectQ(budget=BUDGET, reward_radius=0.01, **small)
    any_two = ProspectQ(
        budget=BUDGET, release="updates", descent=Descent(2, 0.1, 20, clip=0.1), **small
    )
    assert (any_two.reward_radius, any_two.radius) == (None, 3.0)
    wider = replace(any_two, reward_range=(-9.0, 0.0))
    assert wider.radius == 9.0
    with Ledger.create(
        tmp_path / "ledger",
        "costs",
        unit=Unit.REWARD_FUNCTION,
        relation=Relation.REWARD_RADIUS,
    ) as ledger:
        found = model.learn(env, session=PrivacySession(ledger=ledger, run="a"), preflight=False)
        assert found.certificate.reward_radius == 0.01
        with pytest.raises(InputError, match=r"about another radius \(reward radius 0\.01\)"):
            any_two.learn(env, session=PrivacySession(ledger=ledger, run="a"), preflight=False)
        # A beginning that is the same is not the same radius.
        with pytest.raises(InputError, match="another radius"):
            replace(model, reward_radius=0.015).learn(
                env, session=PrivacySession(ledger=ledger, run="a"), preflight=False
            )
        assert payments(ledger) == 1
        again = model.learn(
            env, session=PrivacySession(ledger=ledger, run="b"), preflight=False
        ).certificate
        assert again.population is not None
        assert again.population.epsilon is not None
        assert again.population.epsilon > again.epsilon
        with pytest.raises(InputError, match="reward_radius is needed"):
            ledger.spend(Gaussian(1.0, 1.0), run="c")


def test_plans_are_not_cut_short_by_cells_that_nobody_visited() -> None:
    """The worst of all values, where the rollout never was, must not make all others look still."""
    who = Prospect(PowerUtility(losses=0.93, loss_aversion=1.5))
    env = tables(3, losses=True)
    agent = ProspectQ(prospect=who, steps=4000, samples=50, reward_range=(-3.0, 0.0), rounds=5000)
    values = (
        agent.learn(env, session=PrivacySession(seed=0), preflight=False)
        .values(np.arange(STATES))
        .max(axis=1)
    )
    np.testing.assert_allclose(values, solve(env, who, GAMMA).values, rtol=0.1)


def test_values_without_bound_are_refused_before_anybody_pays() -> None:
    steep = Prospect(PowerUtility(1.0, 1.0, 2.25))
    with pytest.raises(InputError, match="grow without bound"):
        ProspectQ(prospect=steep, reward_range=(-3.0, 0.0))


def test_values_that_alternate_are_told_of() -> None:
    """Two states that swap, with a little gain and a little loss next to the reference point."""
    swap = np.zeros((2, 2, 2))
    swap[0, :, 1] = swap[1, :, 0] = 1.0
    env = TabularMDP.from_dense(swap, np.array([[0.1, 0.1], [-0.1, -0.1]]), step_limit=10)
    agent = ProspectQ(steps=100, samples=2, reward_of="step", reward_range=(-1.0, 1.0))
    with pytest.warns(UserWarning, match="Values still moved after 500 rounds"):
        agent.learn(env, session=PrivacySession(seed=0), preflight=False)
