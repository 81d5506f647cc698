"""The actor-critic with a prospect: against enumerated returns, autodiff, and its own theorem."""

import json
import math
from dataclasses import fields, replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from types import SimpleNamespace
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

from benchmarks import gambles
from privrl import cli
from privrl.control import ActorCritic, CertifiedProgram, certified
from privrl.control.actor_critic import LearnedActorCritic
from privrl.control.certified import ActorCriticPlan, update_from_batch
from privrl.control.heads import Table
from privrl.control.increments import Rows
from privrl.control.prospect_rows import ReturnHistogram, project_simplex
from privrl.envs.base import Episodes, Transitions
from privrl.envs.host import HostEnvironment
from privrl.privacy import Budget, InputError
from privrl.privacy.session import PrivacySession
from privrl.risk import PowerUtility, Prelec, Prospect
from privrl.run.runners.actor_critic import ActorCriticRunner as Runner
from tests.statistics import FALSE_ALARM

BUDGET = Budget(4.0, 1e-5)
PEOPLE = Prospect.tversky_kahneman()
HEADS = (Table(2, 2), Table(2, 1))


def episode(
    states: Any, actions: Any, rewards: Any, terminated: bool, length: int | None = None
) -> Episodes:
    """States (n + 1,), padded with nonsense that `valid` says did not happen."""
    n = len(actions)
    more = (length or n) - n
    seen = np.append(np.asarray(states, np.int64), np.full(more, 10**6))
    ends = np.zeros(n + more, dtype=bool)
    if n:
        ends[n - 1] = terminated
    steps = Transitions(
        seen[:-1],
        np.append(np.asarray(actions, np.int32), np.zeros(more, np.int32)),
        np.append(np.asarray(rewards, np.float64), np.full(more, np.nan)),
        seen[1:],
        ends,
        np.zeros(n + more, dtype=bool),
    )
    return Episodes(steps, np.arange(n + more) < n)


def outlook_of(prospect: Prospect, ends: tuple[float, float], bins: int) -> ReturnHistogram:
    return ReturnHistogram(prospect, ends, bins, weight=0.4, even_share=0.01, forgetting=0.1)


# --- what a return is worth -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prospect", "ends"),
    [
        pytest.param(PEOPLE, (-3.0, 4.0), id="gains and losses"),
        pytest.param(PEOPLE, (1.0, 5.0), id="gains only"),
        pytest.param(PEOPLE, (-5.0, -1.0), id="losses only"),
        pytest.param(
            Prospect(PowerUtility(0.5, 0.9, 2.0, 0.3), Prelec(0.6, 1.2), Prelec()),
            (-3.0, 4.0),
            id="another prospect",
        ),
        pytest.param(Prospect.neutral(), (-3.0, 4.0), id="neutral"),
    ],
)
def test_slopes_are_those_of_the_value(prospect: Prospect, ends: tuple[float, float]) -> None:
    """Against differences of rho between distributions, in 64 bits and without JAX."""
    outlook = outlook_of(prospect, ends, bins=6)
    probs = np.random.default_rng(0).dirichlet(np.full(7, 2.0))
    with jax.enable_x64(True):
        slopes = np.asarray(outlook.slopes(jnp.asarray(probs)))
    assert slopes @ probs == pytest.approx(0.0, abs=1e-12)
    for j in range(7):
        # Towards a return that is x_j for certain: the slope is phi_j minus the mean, which is 0.
        way = 1e-5 * (np.eye(7)[j] - probs)
        up, down = (
            float(prospect.of_distribution(outlook.points, probs + sign * way))
            for sign in (1.0, -1.0)
        )
        assert slopes[j] == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-7)


def enumerated() -> tuple[Any, ...]:
    """Two states, two actions, three steps: all paths, their moves, and their pay."""
    draw = np.random.default_rng(8)
    moves, pays = draw.dirichlet(np.ones(2), (2, 2)), draw.normal(-0.7, 1.0, size=(2, 2, 2))
    paths = []
    for actions in product(range(2), repeat=3):
        for later in product(range(2), repeat=3):
            paths.append((actions, (0, *later)))
    return moves, pays, paths


def test_the_expected_increment_is_the_exact_gradient_of_the_value() -> None:
    gamma = 0.8
    moves, pays, paths = enumerated()
    steps = [list(zip(s[:-1], a, s[1:], strict=True)) for a, s in paths]
    rewards = np.array([[pays[step] for step in path] for path in steps])
    returns = rewards @ gamma ** np.arange(3)
    luck = np.array([math.prod(moves[step] for step in path) for path in steps])
    actions, states = np.array([a for a, _ in paths]), np.array([s[:-1] for _, s in paths])
    outlook = outlook_of(PEOPLE, (-2.0, 1.5), bins=7)
    # Some returns are outside, some between points.
    assert returns.min() < -2.0
    assert returns.max() > 1.5
    counted = np.array([[np.interp(r, outlook.points, one) for one in np.eye(8)] for r in returns])

    def probs(u: Any) -> Any:
        logs = jax.nn.log_softmax(u.reshape(2, 2))
        return luck * jnp.exp(jnp.sum(logs[states, actions], axis=1))

    def exact(u: Any) -> Any:
        p = probs(u) @ counted
        mean = jnp.sum(p * outlook.points)
        return jnp.stack([PEOPLE.of_distribution(jnp.asarray(outlook.points), p), mean])

    rows = Rows(*HEADS, outlook=outlook)
    neutral = outlook_of(Prospect.neutral(), (-2.0, 1.5), bins=7)
    assert (
        Rows(*HEADS, outlook=neutral).reward_scale
        == Rows(*HEADS, return_range=(-2.0, 1.5)).reward_scale
    )
    batch = jax.tree.map(
        lambda *x: np.stack(x),
        *(episode(s, a, r, True) for (a, s), r in zip(paths, rewards, strict=True)),
    )
    cut = batch._replace(
        transitions=batch.transitions._replace(terminated=np.zeros((len(paths), 3), bool))
    )

    @jax.jit
    def both(u: Any, v: Any, worth: Any, played: Any) -> Any:
        numbers = {"gamma": gamma, "lambda_": 1.0}
        each = jax.vmap(lambda one: rows.increment(u, v, numbers, one, worth))(played)
        return probs(u) @ each[0], each[1], jax.jacobian(exact)(u), probs(u)

    with jax.enable_x64(True):
        draw = np.random.default_rng(3)
        u, v = jnp.asarray(draw.normal(size=4)), jnp.asarray(draw.normal(size=2))
        weights = np.asarray(both(u, v, jnp.zeros(8), batch)[3])
        assert weights.sum() == pytest.approx(1.0)
        p = jnp.asarray(weights @ counted)
        phi = outlook.slopes(p)
        found, critic, gradients, _ = both(u, v, phi, batch)
        np.testing.assert_allclose(found, gradients[0], rtol=0.0, atol=1e-9)
        assert float(np.abs(gradients[0]).max()) > 0.1
        # A critic, here any, is a baseline; it learns what the return of the episode is worth.
        left = np.asarray(counted @ np.asarray(phi))[:, None] - np.asarray(v)[states]
        expected = np.stack([np.sum(np.where(states == s, left, 0.0), axis=1) for s in (0, 1)], 1)
        np.testing.assert_allclose(critic, expected, rtol=0.0, atol=1e-12)
        # Cut off or ended: nothing is left to hope for.
        np.testing.assert_array_equal(both(u, v, phi, cut)[0], found)
        # Whoever goes by the mean has the gradient of the mean.
        np.testing.assert_allclose(
            neutral.slopes(p), neutral.points - float(p @ neutral.points), atol=1e-12
        )
        plain = both(u, v, neutral.slopes(p), batch)[0]
        np.testing.assert_allclose(plain, gradients[1], rtol=0.0, atol=1e-9)
        assert np.abs(plain - found).max() > 0.01


# --- what one person adds -------------------------------------------------------------------------

WILD = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0]) | st.floats(
    -9.0, 9.0
)
_OUTLOOK = outlook_of(PEOPLE, (-3.0, 5.0), bins=5)
_ROWS = Rows(*HEADS, outlook=_OUTLOOK)
_COMPILED = jax.jit(
    lambda u, v, numbers, one, estimate: _ROWS.row(
        u, v, numbers, one, _OUTLOOK.marginal_values(estimate)
    )
)


@settings(max_examples=100)
@given(
    st.lists(WILD, max_size=4),
    st.booleans(),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.lists(st.floats(-1e20, 1e20), min_size=6, max_size=6),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_no_episode_contributes_more_than_the_bound(
    rewards: list[float], ended: bool, bound: float, estimate: list[float], gamma: float
) -> None:
    n = len(rewards)
    one = episode([0, 1, -3, 7, 1][: n + 1], [0, 1, 1, 0][:n], rewards, ended, 4)
    with jax.enable_x64(True):
        numbers = {"gamma": gamma, "lambda_": 0.8, "clip": bound, "critic_weight": 0.5}
        u, v = jnp.asarray([1.0, -2.0, 0.3, 0.0]), jnp.asarray([100.0, -30.0])
        row = np.asarray(_COMPILED(u, v, numbers, one, jnp.asarray(estimate)))
    assert row.shape == (_ROWS.dimension,) == (12,)
    assert np.all(np.isfinite(row))
    assert sum(Fraction(float(x)) ** 2 for x in row) <= 1
    if not n:
        assert not row.any()
    counts = row[6:]
    assert np.all(counts >= 0.0)
    with np.errstate(all="ignore"):
        total = np.sum(gamma ** np.arange(n) * rewards)
    if n and not math.isnan(total):
        assert counts.sum() == pytest.approx(0.4, rel=1e-12)
        kept = counts @ _OUTLOOK.points / 0.4
        assert kept == pytest.approx(min(max(total, -3.0), 5.0), rel=1e-9, abs=1e-9)
    else:
        assert not counts.any()


@settings(max_examples=60)
@given(st.lists(st.floats(-1e3, 1e3) | st.just(1e18), min_size=5, max_size=5))
def test_the_projection_is_the_nearest_distribution(values: list[float]) -> None:
    with jax.enable_x64(True):
        found = np.asarray(project_simplex(jnp.asarray(values)))
    assert found.sum() == pytest.approx(1.0, abs=1e-9)
    assert np.all(found >= 0.0)
    # Nearest if and only if no corner is on the other side: (v - p)'(e_j - p) <= 0 for all j.
    off = np.asarray(values) - np.max(values) - found
    assert np.all(off - off @ found <= 1e-8)


# --- whole runs -----------------------------------------------------------------------------------


class Bets(gymnasium.Env[int, int]):
    """Action 1 pays 2 or costs 1, by chance; action 0 pays nothing."""

    observation_space: Any = spaces.Discrete(2)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        pay = 2.0 if self.np_random.random() < 0.4 else -1.0
        return 1, pay * action, True, False, {}


AGENT = ActorCritic(
    budget=BUDGET,
    batch=4,
    max_steps=1,
    prospect=PEOPLE,
    return_range=(-1.0, 2.0),
    bins=3,
    forgetting=0.0,
)


@pytest.fixture(scope="module")
def learned() -> LearnedActorCritic:
    return AGENT.learn(Bets(), people=18, session=PrivacySession(seed=1), preflight=False)


def test_without_noise_the_distribution_and_the_curve_are_what_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The noise is a number of the run, so that what is compiled is the same.
    event = CertifiedProgram(AGENT, HostEnvironment(Bets()), 18).event
    none = SimpleNamespace(std=0.0, event=event)
    monkeypatch.setattr(certified, "calibrate_noise", lambda *given: none)
    shown = AGENT.learn(Bets(), people=18, session=PrivacySession(seed=1, public=True)).curve
    found = AGENT.learn(Bets(), people=18, session=PrivacySession(seed=1), preflight=False)
    assert shown is not None
    assert found.returns is not None
    batches = [shown[at : at + 4] for at in range(0, 18, 4)]
    np.testing.assert_allclose(found.curve, [one.mean() for one in batches], atol=1e-12)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.returns.points, [-1.0, 0.0, 1.0, 2.0])
    shares = [[np.mean(one == x) for x in found.returns.points] for one in batches]
    # Without forgetting it is the mean over batches, and even probabilities are gone with the
    # first.
    np.testing.assert_allclose(found.returns.probs, np.mean(shares, axis=0), atol=1e-12)
    value = PEOPLE.of_distribution(found.returns.points, np.mean(shares, axis=0))
    assert found.prospect_value == pytest.approx(float(value), rel=1e-12)


def test_a_prospect_costs_nothing_more() -> None:
    plain = ActorCritic(budget=BUDGET, batch=4, max_steps=1)
    env = HostEnvironment(Bets())
    one, other = (CertifiedProgram(agent, env, 18) for agent in (AGENT, plain))
    assert one.event == other.event
    assert one.numbers["sigma"] == other.numbers["sigma"]


def test_what_goes_on_to_the_next_batch_comes_from_noised_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the noised sum held fixed, no trace of the people is left in the state."""
    monkeypatch.setattr(
        ActorCriticPlan, "noised", lambda self, state, exact: (0.3 + 0.0 * exact, state.noise)
    )
    agent = replace(AGENT, batch=2, noise="independent")
    program = CertifiedProgram(agent, HostEnvironment(Bets()), 4)
    people = [([0, 1], [1], [2.0], True), ([0, 1], [0], [0.0], False)]
    others = [([1, 1], [1], [-math.inf], True), ([0], [], [], False)]
    with jax.enable_x64(True):
        begun = program.plan.begin(jax.random.key(0), jax.random.key(1), program.numbers)
        states = []
        for batch in (people, others):
            rows = jax.tree.map(lambda *x: np.stack(x), *(episode(*one, 1) for one in batch))
            states.append(update_from_batch(program.plan, begun, 1, rows)[0])
    assert not np.array_equal(states[0].returns, begun.returns)
    np.testing.assert_array_equal(states[0].returns, states[1].returns)
    np.testing.assert_array_equal(states[0].actor, states[1].actor)
    np.testing.assert_array_equal(states[0].critic, states[1].critic)


def test_all_that_is_summed_is_noised() -> None:
    """Counts of returns too."""
    agent = replace(AGENT, batch=2, noise="independent")
    program = CertifiedProgram(agent, HostEnvironment(Bets()), 4)
    plan, sigma = program.plan, program.numbers["sigma"]
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(4), 400)
        begun = plan.begin(jax.random.key(0), keys[0], program.numbers)
        exact = jnp.zeros(plan.rows.dimension)
        z = jax.vmap(lambda key: plan.noised(plan.with_noise_key(begun, key), exact)[0])(keys)
    law = stats.chi2(len(keys))
    for squares in np.sum((np.asarray(z) / sigma) ** 2, axis=0):  # coordinate by coordinate
        assert law.ppf(FALSE_ALARM / 2) < squares < law.isf(FALSE_ALARM / 2)


@pytest.mark.slow
def test_what_a_person_adds_does_not_depend_on_the_others() -> None:
    agent = replace(AGENT, batch=2, noise="independent")
    program = CertifiedProgram(agent, HostEnvironment(Bets()), 4)
    one, two = ([0, 1], [1], [2.0], True), ([0, 1], [0], [0.0], False)
    three, four = ([0, 1], [0], [1.0], True), ([0, 1], [1], [-2.0], True)
    with jax.enable_x64(True):
        begun = program.plan.begin(jax.random.key(0), jax.random.key(1), program.numbers)

        def total(*people: Any) -> Any:
            lives = [episode(at, did, got, over, 1) for at, did, got, over in people]
            rows = jax.tree.map(lambda *x: np.stack(x), *lives)
            return np.asarray(program.plan.sum_rows(begun, rows, 0)[0])

        moved = total(one, two) - total(three, two)
        assert np.linalg.norm(moved) > 0.1
        np.testing.assert_allclose(moved, total(one, four) - total(three, four), atol=1e-12)


def test_a_result_survives_a_file(learned: LearnedActorCritic, tmp_path: Path) -> None:
    learned.certificate.verify()
    assert any("the prospect was chosen" in a.statement for a in learned.certificate.assumptions)
    assert learned.returns is not None
    assert learned.returns.probs.sum() == pytest.approx(1.0)
    assert learned.curve is not None
    assert learned.curve.shape == (5,)
    learned.save(tmp_path / "agent.json")
    back = LearnedActorCritic.load(tmp_path / "agent.json")
    assert back.to_dict() == learned.to_dict()
    assert back.prospect_value == learned.prospect_value
    assert back.prospect == PEOPLE
    told = {name: learned.settings[name] for name in ("gamma", "lambda_", "bins", "curve_weight")}
    assert told == {"gamma": 1.0, "lambda_": 1.0, "bins": 3, "curve_weight": 0.2}
    torn = {**learned.to_dict(), "returns": {"points": [0.0], "probabilities": [0.5, 0.5]}}
    (tmp_path / "agent.json").write_text(json.dumps(torn))
    with pytest.raises(InputError, match="is damaged"):
        LearnedActorCritic.load(tmp_path / "agent.json")


class InterruptedRunError(Exception):
    pass


def test_an_interrupted_run_goes_on_bit_for_bit(
    learned: LearnedActorCritic, tmp_path: Path
) -> None:
    def interrupt(done: int, people: int) -> None:
        if done >= 8:
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        AGENT.learn(
            Bets(),
            people=18,
            session=PrivacySession(seed=1),
            progress=interrupt,
            folder=tmp_path,
            preflight=False,
        )
    with pytest.raises(InputError, match="another agent"):
        replace(AGENT, prospect=Prospect.rajabi2022()).resume(Bets(), tmp_path)
    assert AGENT.resume(Bets(), tmp_path).to_dict() == learned.to_dict()


def test_without_a_prospect_all_is_as_it_was() -> None:
    """Numbers of a run from before there were prospects."""
    agent = ActorCritic(
        budget=BUDGET,
        batch=4,
        max_steps=1,
        return_range=(0.0, 2.0),
        curve="paid",
        noise="correlated",
    )
    found = agent.learn(Coin(), people=18, session=PrivacySession(seed=1), preflight=False)
    was = {
        "actor": [
            -0.255464708528359,
            3.4720481966718784,
            -0.007841939309593371,
            -2.729327395790088,
        ],
        "critic": [1.4631964738307186, 0.648577491648406],
        "curve": [
            *(-1.0959506004272614, 0.6568993167832557, 4.317987408286518),
            *(1.718391404276184, 5.006564334819482),
        ],
    }
    for name, numbers in was.items():
        np.testing.assert_allclose(np.ravel(getattr(found, name)), numbers, rtol=1e-12)
    assert found.returns is None
    assert "returns" not in found.to_dict()
    assert not {"prospect", "bins", "even_share", "forgetting"} & set(found.settings)
    with pytest.raises(InputError, match="without a prospect"):
        _ = found.prospect_value
    # A state without a prospect is kept in the same arrays as before.
    program = CertifiedProgram(agent, HostEnvironment(Coin()), 18)
    with jax.enable_x64(True):
        state = program.plan.begin(jax.random.key(0), jax.random.key(1), program.numbers)
    assert state.returns is None


class Coin(Bets):
    """Pays for action 1."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 1, float(action), True, False, {}


# --- gambles --------------------------------------------------------------------------------------


def test_people_and_the_mean_choose_otherwise_in_every_gamble() -> None:
    names = {one.name: one.is_worth_taking(PEOPLE) for one in gambles.GAMBLES}
    assert names == {"long shot": True, "insurance": False, "sure thing": False, "way out": True}
    for one in gambles.GAMBLES:
        mean = Prospect.neutral()
        assert one.is_worth_taking(mean) != one.is_worth_taking(PEOPLE)
        assert one.best_prob(mean) == float(one.is_worth_taking(mean))
        assert (one.best_prob(PEOPLE) > 0.5) == one.is_worth_taking(PEOPLE)
        # What is enumerated here is what the environment pays.
        sure, bet = one.env.expected_rewards()[0]
        np.testing.assert_allclose(one.value(mean, [0.0, 1.0]), [sure, bet])
    assert 0.8 < gambles.GAMBLES[0].best_prob(PEOPLE) < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tversky-kahneman", "neutral"])
def test_agents_choose_as_their_prospect_says(name: str) -> None:
    for row in gambles.choices(range(5), prospects=[name], epsilons=[10.0], people=[20_000]):
        assert row["right"] >= 0.8
        assert row["value"] > row["even_value"]
        assert row["value"] <= row["best_value"] + 1e-9


# --- on the command line --------------------------------------------------------------------------

WORDS = {
    "env": "Chain",
    "people": 40,
    "epsilon": 4.0,
    "delta": 1e-5,
    "max_steps": 3,
    "prospect": "tversky-kahneman",
    "return_range": "-3,1",
}


def test_a_prospect_is_said_by_name_or_by_file(learned: LearnedActorCritic, tmp_path: Path) -> None:
    runner = Runner.of({**WORDS, "bins": 7})
    agent = runner.agent()
    assert (agent.prospect, agent.return_range, agent.bins) == (PEOPLE, (-3.0, 1.0), 7)
    assert runner.no_curve_reason is None
    own = Prospect(gain_weight=Prelec())
    own.save(tmp_path / "own.json")
    said = Runner.of({**WORDS, "prospect": str(tmp_path / "own.json")})
    assert said.agent().prospect == own
    unsaid = Runner.of({k: v for k, v in WORDS.items() if k != "return_range"})
    with pytest.raises(InputError, match="return_range is needed"):
        unsaid.agent()
    wrong = Runner.of({**WORDS, "prospect": "optimist"})
    with pytest.raises(InputError, match="prospect must be neutral"):
        wrong.agent()
    (line,) = (one for one in runner.summarize(learned)[0] if "CPT" in one)
    assert f"{learned.prospect_value:.4g}" in line


@pytest.mark.slow
def test_a_prospect_is_trained_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = [f"--{name.replace('_', '-')}={value}" for name, value in WORDS.items()]
    assert cli.run(["train", "actor-critic", *words, "--seed", "0", "--out", str(out)]) == 0
    assert "CPT value of the last returns" in capsys.readouterr().out
    found = LearnedActorCritic.load(out / "result.json")
    assert found.prospect == PEOPLE
    runner = Runner.of(WORDS)
    env = runner.environment
    again = runner.agent().learn(env, people=40, session=PrivacySession(seed=0))
    np.testing.assert_array_equal(found.actor, again.actor)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"return_range": None}, "return_range is needed for a prospect"),
        ({"prospect": 3}, "prospect must be a Prospect"),
        ({"prospect": None}, "bins belongs to a prospect"),
        ({"bins": 0}, "bins must be at least 1"),
        ({"bins": 10**6}, "bins must be at most 1,000"),
        ({"even_share": 0.0}, "even_share must be at least 1e-06"),
        ({"even_share": 1.0}, "even_share must be below 1"),
        ({"forgetting": 1.5}, "forgetting must be at most 1"),
        ({"curve_weight": 1.0}, "curve_weight must be below 1"),
        ({"return_range": (0.0, 5e-324)}, "too wide or too narrow"),
    ],
)
def test_bad_settings_are_refused(changed: dict[str, Any], message: str) -> None:
    given_fields = {one.name: getattr(AGENT, one.name) for one in fields(AGENT)}
    with pytest.raises(InputError, match=message):
        ActorCritic(**{**given_fields, **changed})


def test_a_critic_of_returns_is_refused() -> None:
    with pytest.raises(InputError, match="leave one of them out"):
        AGENT.learn(Bets(), people=18, critic=[0.0, 1.0], preflight=False)
