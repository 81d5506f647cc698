"""The certified learner for a secret reward function, held to its theorems from outside."""

import json
import math
import tempfile
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
from scipy import optimize, stats

from benchmarks.wang2019 import ceiling, certified_rows, optima, without_noise
from privrl.control import Descent, FunctionalQ, LearnedQ, Network, noised_q, planning
from privrl.control.engine import CHECKPOINT, Run
from privrl.control.heads import Layers, Linear
from privrl.control.program import read_about
from privrl.control.reward_basis import (
    PerAction,
    design_weights,
    horizon_returns,
    horizon_weight,
    mean_rewards,
    reward_features_from_dict,
    unique_points,
)
from privrl.control.reward_releases import (
    calibrate_mechanism,
    model_mechanism,
    noisy_coefficients,
    rewards_release,
)
from privrl.control.rollouts import Rollout, collect_greedy_rollout, collect_rollout, greedy_policy
from privrl.core.types import Floats
from privrl.data import Fourier, FunctionPolicy, OneHot, Polynomial, Tabular
from privrl.envs import Interval, TabularMDP
from privrl.envs.host import HostEnvironment
from privrl.papers.wang2019.certified import REWARD_RANGE, MirroredInterval
from privrl.privacy import Budget, InputError, Ledger
from privrl.privacy.events import Event, Gaussian, Repeated
from privrl.privacy.mechanisms.reward_model import Cosine, RewardModelMechanism
from privrl.privacy.noise import Source, reproducible, secure
from privrl.privacy.promise import NoiseOrigin, Relation, Unit
from privrl.privacy.session import PrivacySession
from tests.statistics import follows

BUDGET = Budget(0.9, 1e-4)
RADIUS = 0.25
RELEASES: tuple[Any, ...] = ("reward-model", "rewards", "evaluations")


class Paid(gymnasium.Env[Any, int]):
    """A rollout on a ring of five states whose rewards are a list, one for each step ever taken."""

    action_space: Any = spaces.Discrete(2)

    def __init__(self, rewards: Any, box: bool = False, last: int = 4) -> None:
        self.rewards, self.box, self.last = list(rewards), box, last
        self.taken = 0
        self.observation_space: Any = spaces.Box(0.0, 4.0, (1,)) if box else spaces.Discrete(5)

    def _seen(self) -> Any:
        return np.array([self.at], np.float32) if self.box else self.at

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at, self.clock = int(self.np_random.integers(5)), 0
        return self._seen(), {}

    def step(self, action: int) -> Any:
        self.at = (self.at + (1 if action else 4)) % 5
        self.clock += 1
        reward = self.rewards[self.taken % len(self.rewards)]
        self.taken += 1
        ended = self.at == 0
        return self._seen(), reward, ended, not ended and self.clock >= self.last, {}


def agent(release: Any = "reward-model", **more: Any) -> FunctionalQ:
    given: dict[str, Any] = {
        "budget": BUDGET,
        "reward_radius": RADIUS,
        "reward_range": (-1.0, 1.0),
        "steps": 12,
        "evaluations": 1,
        "horizon": 3,
    }
    return FunctionalQ(release=release, **{**given, **more})


def released(learner: FunctionalQ, env: Any) -> tuple[Floats, Event]:
    """What is released without its noise, and the event, by way of `learn` and its checkpoint."""
    kept = Source.normal
    try:
        Source.normal = lambda self, std, shape: np.zeros(shape)  # type: ignore[method-assign]
        with tempfile.TemporaryDirectory() as folder:
            learned = learner.learn(
                env, session=PrivacySession(seed=3), folder=folder, keep=True, preflight=False
            )
            with np.load(Path(folder) / CHECKPOINT) as file:
                header = json.loads(bytes(file["header"]))
                arrays = {
                    leaf["name"].removeprefix("['state']")[2:-2]: file[f"leaf{number}"]
                    for number, leaf in enumerate(header["leaves"])
                }
    finally:
        Source.normal = kept  # type: ignore[method-assign]
    event = learned.certificate.events[0]
    if learner.release == "reward-model":
        return arrays["coefficients"], event
    if learner.release == "rewards":
        _, first, visits = np.unique(
            arrays["next_observation"], return_index=True, return_counts=True
        )
        return arrays["rewards"][first] * np.sqrt(visits / visits.sum()), event
    return arrays["parameters"], event


# --- the theorems ---------------------------------------------------------------------------------

_WILD = st.one_of(
    st.floats(-3.0, 3.0), st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-320])
)


@st.composite
def _neighbours(draw: Any) -> tuple[list[float], list[float]]:
    """Rewards that differ by at most the radius wherever they are finite, and are equal elsewhere.

    All of them may move at once; extreme pairs are drawn more often than not.
    """
    one = draw(st.lists(_WILD, min_size=1, max_size=12))
    share = st.sampled_from([-1.0, 1.0, 1.0, 0.3, 0.0])
    moves = draw(st.lists(share, min_size=len(one), max_size=len(one)))
    if draw(st.booleans()):
        moves = [1.0] * len(one)
    other = [r + RADIUS * m if math.isfinite(r) else r for r, m in zip(one, moves, strict=True)]
    return one, other


@pytest.mark.parametrize("box", [False, True])
@given(pair=_neighbours(), steps=st.integers(1, 12), of=st.sampled_from(["arrival", "step"]))
@settings(max_examples=25)
def test_no_neighbours_move_a_model_by_more_than_the_bound(
    box: bool, pair: tuple[list[float], list[float]], steps: int, of: Any
) -> None:
    learner = agent(
        steps=steps, reward_of=of, features=Polynomial(1, (0.0,), (4.0,)) if box else None
    )
    found = [_before_noise(learner, Paid(rewards, box), steps) for rewards in pair]
    (one, event), (other, same) = found
    assert event == same
    assert isinstance(event, Gaussian)
    assert np.linalg.norm(one - other) <= event.bound == RADIUS


def _before_noise(learner: FunctionalQ, env: Any, steps: int) -> tuple[Floats, Event]:
    """The coefficients that `learn` adds noise to, through its own functions."""
    made = HostEnvironment(env)
    rollout = collect_rollout(made, None, jax.random.key(5), steps)
    mechanism, means = model_mechanism(learner, rollout, learner.model_features(made))
    return np.asarray(mechanism.coefficients(means), np.float64), mechanism.event


@pytest.mark.parametrize("release", RELEASES)
@given(pair=_neighbours())
@settings(max_examples=6)
def test_no_neighbours_move_a_whole_run_by_more_than_the_bound(
    release: Any, pair: tuple[list[float], list[float]]
) -> None:
    (one, event), (other, same) = (released(agent(release), Paid(r)) for r in pair)
    assert event == same
    once = event.event if isinstance(event, Repeated) else event
    assert isinstance(once, Gaussian)
    if release != "evaluations":
        assert np.linalg.norm(one - other) <= once.bound
        return
    # Parameters are a public matrix times what was noised: their inverse image is.
    made = HostEnvironment(Paid([0.0]))
    rollout = collect_rollout(made, None, _world(3), 12)
    rows, _ = horizon_returns(rollout, np.zeros(len(rollout)), 0.9, 3)
    features = PerAction(OneHot(5), 2)
    mechanism = calibrate_mechanism(
        agent(release), rollout.points("step")[rows], features, None, 1, 1.0
    )
    back = np.linalg.pinv(mechanism.transform)
    moved = back @ (one - other).T.ravel()
    assert np.linalg.norm(moved) <= once.bound * (1.0 + 1e-12)


def _world(seed: int) -> jax.Array:
    """The key of the first rollout of a run with this seed."""
    return jax.random.fold_in(reproducible(seed).key(), 0)


@pytest.mark.parametrize("release", RELEASES)
def test_a_whole_run_moves_by_the_bound_where_it_can(release: Any) -> None:
    """The bound is not slack: a constant moved by the radius moves what is released by it all."""
    (one, event), (other, _) = (released(agent(release), Paid([r])) for r in (0.1, 0.1 + RADIUS))
    once = event.event if isinstance(event, Repeated) else event
    assert isinstance(once, Gaussian)
    if release == "evaluations":
        assert once.bound == pytest.approx(RADIUS * (1.0 + 0.9 + 0.81), rel=1e-9)
    else:
        assert np.linalg.norm(one - other) == pytest.approx(once.bound, rel=1e-9)


@given(data=st.data(), gamma=st.floats(0.0, 1.0), horizon=st.integers(1, 6), n=st.integers(1, 12))
@settings(max_examples=100)
def test_returns_are_cut_sums_and_move_by_at_most_the_horizon_weight(
    data: Any, gamma: float, horizon: int, n: int
) -> None:
    flags = st.lists(st.sampled_from([(0, 0), (0, 0), (1, 0), (0, 1)]), min_size=n, max_size=n)
    ends = np.array(data.draw(flags), bool)
    steps = Rollout(np.zeros(n), np.zeros(n, np.int64), np.zeros(n), ends[:, 0], ends[:, 1])
    r = np.array(data.draw(st.lists(st.floats(-1.0, 1.0), min_size=n, max_size=n)))
    rows, sums = horizon_returns(steps, r, gamma, horizon)
    whole = []
    for i in range(n):
        value, at, done = 0.0, i, False
        for k in range(horizon):
            if at >= n:
                break
            value += gamma**k * r[at]
            done = k == horizon - 1 or bool(ends[at, 0])
            if ends[at].any():
                break
            at += 1
        if done:
            whole.append((i, value))
    if whole:
        assert rows.tolist() == [i for i, _ in whole]
        assert np.allclose(sums, [v for _, v in whole], rtol=0.0, atol=1e-12)
    else:
        assert rows.tolist() == list(range(n))
    _, moved = horizon_returns(steps, r + RADIUS, gamma, horizon)
    assert np.max(np.abs(moved - sums)) <= RADIUS * horizon_weight(gamma, horizon) * (1 + 1e-12)


# --- the noise ------------------------------------------------------------------------------------


def _mu(budget: Budget) -> float:
    """The mu of mu-GDP with exactly this epsilon and delta, by its own formula."""

    def gap(mu: float) -> float:
        low = stats.norm.cdf(-budget.epsilon / mu + mu / 2)
        high = stats.norm.cdf(-budget.epsilon / mu - mu / 2)
        return float(low - math.exp(budget.epsilon) * high - budget.delta)

    return float(optimize.brentq(gap, 1e-3, 10.0, xtol=1e-12))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("budget", [BUDGET, Budget(0.45, 1e-4)])
def test_noise_is_that_of_the_formula_and_of_the_event(
    release: Any, budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[float] = []
    real = Source.normal

    def noted(self: Source, std: float, shape: tuple[int, ...]) -> Any:
        drawn.append(std)
        return real(self, std, shape)

    monkeypatch.setattr(Source, "normal", noted)
    learner = agent(release, budget=budget, evaluations=3, steps=200)
    learned = learner.learn(Paid([0.3, -0.2]), preflight=False)
    (event,) = learned.certificate.events
    times = 3 if release == "evaluations" else 1
    once = event.event if isinstance(event, Repeated) else event
    assert isinstance(once, Gaussian)
    assert drawn == [once.std] * times
    assert once.std / once.bound == pytest.approx(math.sqrt(times) / _mu(budget), rel=1e-4)
    assert once.std / once.bound >= math.sqrt(times) / _mu(budget) * (1.0 - 1e-9)
    scale = 1.0 + 0.9 + 0.81 if release == "evaluations" else 1.0
    assert once.bound == pytest.approx(RADIUS * scale, rel=1e-9)
    promise = learned.certificate
    assert promise.epsilon <= budget.epsilon * (1.0 + 1e-6)
    assert (promise.unit, promise.relation) == (Unit.REWARD_FUNCTION, Relation.REWARD_RADIUS)
    assert promise.reward_radius == RADIUS
    assert promise.noise is NoiseOrigin.SECURE
    promise.verify(strict=True)


@pytest.mark.parametrize("release", ["reward-model", "rewards"])
def test_what_is_released_has_the_law_of_the_event(release: Any) -> None:
    """At false-alarm rate 1e-6; noise larger or smaller by a tenth is caught."""
    env, count = HostEnvironment(Paid([0.5])), 300
    rollout = collect_rollout(env, None, jax.random.key(0), count)
    learner, source = agent(release, steps=count), secure()
    draws: list[Any] = []
    if release == "reward-model":
        mechanism, means = model_mechanism(learner, rollout, learner.model_features(env))
        exact, std = mechanism.coefficients(means), mechanism.std
        for _ in range(10_000):
            draws.append(noisy_coefficients(learner, mechanism, means, source)[0] - exact)
    else:
        course = _course(learner, env, source)
        _, first, visits = np.unique(
            rollout.next_observation, return_index=True, return_counts=True
        )
        for _ in range(10_000):
            found = rewards_release(learner, course, rollout)
            draws.append((found["rewards"][first] - 0.5) * np.sqrt(visits / count))
        std = float(found["std"])
    sample = np.concatenate(draws)
    assert follows(sample, stats.norm(0.0, std).cdf)
    for factor in (1.0 / 1.1, 1.1):
        assert not follows(sample, stats.norm(0.0, factor * std).cdf)


class _Pays:
    """A opened that takes everything."""

    kept = None

    def __init__(self, source: Source) -> None:
        self.source = source

    def pay(self, event: Event, *, delta: float | None = None) -> None:
        pass


def _course(learner: FunctionalQ, env: HostEnvironment, source: Source) -> Any:
    opened: Any = _Pays(source)
    return Run(learner.training(env), opened, {"seed": None, "public": False})


def test_repeats_of_a_point_share_one_noise() -> None:
    learned_from = agent("rewards", steps=200)
    env = HostEnvironment(Paid([0.5]))
    rollout = collect_rollout(env, None, jax.random.key(0), 200)
    found = rewards_release(learned_from, _course(learned_from, env, secure()), rollout)
    for state in range(5):
        assert len(set(found["rewards"][rollout.next_observation == state].tolist())) == 1


# --- a run as a whole -----------------------------------------------------------------------------


def payments(ledger: Ledger) -> int:
    """Of all entries, those that cost something."""
    return sum(bool(entry.events) for entry in ledger.entries())


def ledger_at(path: Path, limit: Budget | None = None) -> Ledger:
    return Ledger.create(
        path, "rewards", unit=Unit.REWARD_FUNCTION, relation=Relation.REWARD_RADIUS, limit=limit
    )


def _same(one: LearnedQ, other: LearnedQ) -> bool:
    return one.to_dict() == other.to_dict()


@pytest.mark.parametrize("release", RELEASES)
def test_results_survive_their_file(release: Any, tmp_path: Path) -> None:
    learned = agent(release).learn(
        Paid([0.3, -0.2], box=True), session=PrivacySession(seed=1), preflight=False
    )
    learned.save(tmp_path / "q.json")
    again = LearnedQ.load(tmp_path / "q.json")
    states = np.linspace(-1.0, 5.0, 7)[:, None]
    assert _same(learned, again)
    assert np.array_equal(learned.values(states), again.values(states))
    assert np.array_equal(learned.probabilities(states), again.probabilities(states))
    assert learned.probabilities(states).shape == (7, 2)
    assert again.certificate == learned.certificate
    if release == "reward-model":
        assert np.array_equal(learned.rewards(states), again.rewards(states))
        assert learned.rewards(states).shape == (7,)
    else:
        with pytest.raises(InputError, match="no reward model"):
            learned.rewards(states)


@pytest.mark.parametrize(
    "more",
    [
        {"reward_of": "step"},
        {"planner": "actor-critic"},
        {"planner": "network", "updates": 20, "network": Network((4,))},
        {"planner": "network", "updates": 20, "features": Fourier(1, (0.0,), (4.0,))},
        {"reward_features": Polynomial(1, (0.0,), (4.0,)), "design": 0},
    ],
)
def test_other_settings_survive_too(more: dict[str, Any], tmp_path: Path) -> None:
    learned = agent(**more).learn(
        Paid([0.3, -0.2], box=True), session=PrivacySession(seed=1), preflight=False
    )
    learned.save(tmp_path / "q.json")
    again = LearnedQ.load(tmp_path / "q.json")
    states = np.array([[0.5], [2.0]])
    assert _same(learned, again)
    assert np.array_equal(learned.values(states), again.values(states))
    points = np.column_stack([states, [0, 1]]) if "reward_of" in more else states
    assert np.array_equal(learned.rewards(points), again.rewards(points))


def test_results_of_the_time_of_modes_are_read(tmp_path: Path) -> None:
    learned = agent().learn(Paid([0.3]), session=PrivacySession(seed=1), preflight=False)
    assert "mode" not in learned.settings
    settings = {**learned.settings, "mode": "certified"}
    (tmp_path / "q.json").write_text(json.dumps(learned.to_dict() | {"settings": settings}))
    again = LearnedQ.load(tmp_path / "q.json")
    assert again.settings == settings
    assert np.array_equal(again.values([0, 1]), learned.values([0, 1]))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    learned = agent().learn(Paid([0.3]), session=PrivacySession(seed=1), preflight=False)
    data = learned.to_dict() | {"parameters": [1.0]}
    (tmp_path / "q.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="damaged"):
        LearnedQ.load(tmp_path / "q.json")


class Stop(Exception):  # noqa: N818
    """Somebody pulls the plug."""


@pytest.mark.parametrize("release", ["reward-model", "rewards"])
@pytest.mark.parametrize("seed", [4, None])
def test_an_interrupted_run_goes_on_without_paying_again(
    release: Any, seed: int | None, tmp_path: Path
) -> None:
    learner, env = agent(release), Paid([0.3, -0.2])

    def stop(done: int, stages: int) -> None:
        if done == 2:
            raise Stop

    with ledger_at(tmp_path / "ledger") as ledger:
        with pytest.raises(Stop):
            learner.learn(
                env,
                session=PrivacySession(ledger=ledger, run="a", seed=seed),
                folder=tmp_path / "run",
                progress=stop,
                preflight=False,
            )
        assert payments(ledger) == 1
        state = tmp_path / "run" / CHECKPOINT
        kept = read_about(state)["arrays"]["state"]
        assert not any("reward" in name for name in kept if name != "rewards")
        with pytest.raises(InputError, match="resume it first"):
            learner.learn(env, folder=tmp_path / "run", preflight=False)
        env.taken = 0
        learned = learner.resume(env, tmp_path / "run", ledger=ledger)
        assert payments(ledger) == 1
        assert not state.exists()
        assert learned.certificate.population is not None
    if seed is not None:
        whole = learner.learn(Paid([0.3, -0.2]), session=PrivacySession(seed=seed), preflight=False)
        assert np.array_equal(whole.parameters, learned.parameters)


def test_evaluations_are_kept_when_they_are_complete(tmp_path: Path) -> None:
    """Two who went on from one checkpoint would have two releases, and one payment."""
    learner, env = agent("evaluations", evaluations=2), Paid([0.3, -0.2])

    def stop(done: int, stages: int) -> None:
        if done == 1:
            raise Stop

    with ledger_at(tmp_path / "ledger") as ledger:
        with pytest.raises(Stop):
            learner.learn(
                env,
                session=PrivacySession(ledger=ledger, run="a"),
                folder=tmp_path / "a",
                progress=stop,
                preflight=False,
            )
        assert not (tmp_path / "a" / CHECKPOINT).exists()
        found = learner.learn(
            env,
            session=PrivacySession(ledger=ledger, run="b"),
            folder=tmp_path / "b",
            keep=True,
            preflight=False,
        )
        played = env.taken
        for _ in range(2):
            again = learner.resume(env, tmp_path / "b", ledger=ledger, keep=True)
            assert np.array_equal(again.parameters, found.parameters)
        assert env.taken == played
        assert payments(ledger) == 2


def test_features_that_nobody_knows_again_are_not_resumed_with(tmp_path: Path) -> None:
    learner = agent(reward_features=lambda x: np.ones((len(x), 1)))
    learner.learn(Paid([0.1]), folder=tmp_path / "run", keep=True, preflight=False)
    with pytest.raises(InputError, match="no JSON form"):
        learner.resume(Paid([0.1]), tmp_path / "run")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"reward_radius": 1e-16}, "within the rounding errors"),
        ({"reward_radius": 1e-310, "reward_range": None}, "from 1e-100 to 1e100"),
        ({"steps": 10**11}, "steps must be at most 10,000,000"),
        ({"horizon": 10**8}, "horizon must be at most 10,000"),
        ({"design": 10**8}, "design must be at most 10,000"),
        ({"actor_step": 1e308}, "actor_step must be at most 1e\\+06"),
    ],
)
def test_settings_beyond_all_bounds_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        agent(**given)


def test_settings_of_a_result_say_nothing_of_rewards() -> None:
    agent = FunctionalQ(
        budget=Budget(1.0, 1e-5),
        reward_radius=0.2,
        reward_range=(-1.0, 1.0),
        gamma=0.5,
        steps=30,
        rounds=5,
    )
    forth, back = np.roll(np.eye(3), 1, axis=1), np.roll(np.eye(3), -1, axis=1)
    moves = np.stack([forth, back], axis=1)
    told = [
        agent.learn(TabularMDP.from_dense(moves, np.full((3, 2), paid), step_limit=5)).settings
        for paid in (0.0, 0.0, 0.2, 0.2)
    ]
    assert told == told[:1] * 4


def test_planning_never_sees_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Rollout] = []
    real = planning.fitted_q_iteration

    def watched(steps: Rollout, *rest: Any) -> Any:
        seen.append(steps)
        return real(steps, *rest)

    monkeypatch.setattr(planning, "fitted_q_iteration", watched)
    for release in ("reward-model", "rewards"):
        agent(release).learn(Paid([0.3]), preflight=False)
    assert [steps.reward for steps in seen] == [None, None]


def test_resume_is_for_the_same_agent(tmp_path: Path) -> None:
    env = Paid([0.3])
    agent().learn(env, folder=tmp_path, keep=True, preflight=False)
    with pytest.raises(InputError, match="another agent"):
        agent(gamma=0.5).resume(env, tmp_path)
    with ledger_at(tmp_path / "ledger") as ledger, pytest.raises(InputError, match="without a"):
        agent().resume(env, tmp_path, ledger=ledger)
    agent().resume(env, tmp_path, keep=True)
    assert (tmp_path / CHECKPOINT).exists()


def test_a_refused_run_leaves_nothing(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "ledger", Budget(0.1, 1e-5)) as ledger:
        with pytest.raises(Exception, match="limit"):
            agent().learn(
                Paid([0.3]),
                session=PrivacySession(ledger=ledger, run="a"),
                folder=tmp_path / "new",
                preflight=False,
            )
        assert not ledger.entries()
    assert not (tmp_path / "new").exists()


def test_scores_are_for_public_rewards() -> None:
    env = Paid([1.0])
    shown = agent(max_steps=4).learn(env, session=PrivacySession(seed=0, public=True))
    assert shown.score is not None
    assert 1.0 <= shown.score <= 4.0
    assert any("the score is shown" in a.statement for a in shown.certificate.assumptions)
    assert agent().learn(env, preflight=False).score is None


def test_without_a_budget_there_is_no_noise_and_no_promise() -> None:
    mdp = TabularMDP.from_dense(
        [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.5, 0.5]]],
        [[1.0, 0.0], [0.25, 0.5]],
        step_limit=10,
    )
    for release in ("reward-model", "rewards"):
        learner = FunctionalQ(release=release, reward_of="step", steps=30_000, gamma=0.5)
        learned = learner.learn(mdp, session=PrivacySession(seed=0))
        assert isinstance(learned.promise, str)
        assert learned.privacy_statement.startswith("Not private")
        with pytest.raises(InputError, match="no certificate"):
            _ = learned.certificate
        with pytest.raises(InputError, match="no paper's claim"):
            _ = learned.claim
        exact = mdp.optimal(0.5).action_values
        assert np.max(np.abs(learned.values([0, 1]) - exact)) < 0.02
    points = np.array([[s, a] for s in range(2) for a in range(2)])
    model = FunctionalQ(reward_of="step").learn(mdp, session=PrivacySession(seed=0))
    assert np.allclose(model.rewards(points), [1.0, 0.0, 0.25, 0.5], atol=1e-9)


def test_the_promise_says_what_it_is_about() -> None:
    learned = agent().learn(Paid([0.3]), preflight=False)
    assert "within 0.25 of it at every point" in learned.privacy_statement
    assert "epsilon 0.9 at delta 0.0001" in learned.privacy_statement
    assert "Any number of queries is free" in learned.privacy_statement
    told = " ".join(a.statement for a in learned.certificate.assumptions)
    for words in ("does not look at rewards", "dynamics", "clipped to -1 to 1", "idealised"):
        assert words in told


@pytest.mark.parametrize("release", RELEASES)
def test_rewards_of_any_size_are_taken(release: Any) -> None:
    learned = agent(release, reward_range=None).learn(
        Paid([1e308, math.nan, -math.inf, -1e308]), preflight=False
    )
    assert np.all(np.isfinite(learned.parameters))
    assert learned.certificate.epsilon <= BUDGET.epsilon * (1.0 + 1e-6)


def test_sums_of_one_reward_are_not_clipped_up() -> None:
    """Where rewards are positive, a sum cut short is below the horizon's least."""
    learner = agent("evaluations", reward_range=(0.5, 1.0))
    mechanism = calibrate_mechanism(learner, np.arange(3.0), Cosine(1, 0.0, 2.0), None, 1, 2.71)
    assert mechanism.reward_range == (0.5, 2.71)
    learner = agent("evaluations", reward_range=(-1.0, -0.5))
    mechanism = calibrate_mechanism(learner, np.arange(3.0), Cosine(1, 0.0, 2.0), None, 1, 2.71)
    assert mechanism.reward_range == (-2.71, -0.5)


# --- environments that misbehave ------------------------------------------------------------------


class Moody(Paid):
    """Raises, warns, and pays in words, now and then."""

    def step(self, action: int) -> Any:
        if self.taken % 7 == 6:
            self.taken += 1
            raise RuntimeError(f"the reward was {self.rewards[0]}")
        return super().step(action)


def test_errors_of_an_environment_say_nothing_in_private_runs() -> None:
    words = ["many", None, [1.0, 2.0], 10**400, 0.5]
    learned = agent(steps=40).learn(Moody(words), preflight=False)
    assert np.all(np.isfinite(learned.values(range(5))))
    with pytest.raises(RuntimeError, match="the reward was"):
        FunctionalQ(steps=40).learn(Moody([1.0]), preflight=False)


def test_a_failing_step_ends_the_episode_before_it() -> None:
    steps = collect_rollout(HostEnvironment(Moody([1.0], last=100)), None, jax.random.key(0), 40)
    assert len(steps) == 40
    ends = steps.terminated | steps.truncated
    follows_on = np.array_equal(
        steps.observation[1:][~ends[:-1]], steps.next_observation[:-1][~ends[:-1]]
    )
    assert follows_on
    assert np.any(steps.truncated)


def test_an_environment_that_only_fails_is_refused() -> None:
    class Broken(Paid):
        def step(self, action: int) -> Any:
            raise RuntimeError

    with pytest.raises(InputError, match="gave no step at all"):
        agent().learn(Broken([1.0]), preflight=False)


# --- rollouts
# ----------------------------------------------------------------------------------------


def test_rollouts_are_the_environments_and_the_behaviours() -> None:
    env = Interval()
    right = FunctionPolicy(lambda s: np.eye(2)[np.zeros(len(s), int)], 2)
    compiled = Tabular(np.array([[0.0, 1.0]] * 2))
    steps = collect_rollout(env, None, jax.random.key(0), 300)
    assert steps.reward is not None
    assert np.allclose(steps.reward, 0.5 - np.abs(steps.next_observation[:, 0] - 0.5))
    assert np.sum(steps.truncated) == 6
    assert not np.any(steps.terminated)
    assert 100 < np.sum(steps.action) < 200
    assert steps.public().reward is None
    assert np.array_equal(steps.points("step")[:, 1], steps.action)
    hosted = collect_rollout(HostEnvironment(Paid([0.5])), right, jax.random.key(0), 20)
    assert not np.any(hosted.action)
    mdp = TabularMDP.from_dense([[[0.5, 0.5]] * 2] * 2, [[0.0, 1.0]] * 2, step_limit=5)
    assert np.all(collect_rollout(mdp, compiled, jax.random.key(0), 20).action == 1)
    with pytest.raises(InputError, match="behaviour has 2 actions"):
        collect_rollout(TabularMDP.from_dense([[[1.0]]], [[0.0]]), right, jax.random.key(0), 3)


@pytest.mark.parametrize("head", [Linear(Fourier(1, (0.0,), (1.0,)), 2), Layers((1, 3, 2))])
def test_greedy_rollouts_follow_their_values(head: Any) -> None:
    draw = np.random.default_rng(0)
    parameters = draw.normal(size=head.shape)
    policy = greedy_policy(head, parameters)
    steps = collect_greedy_rollout(Interval(), head, parameters, 0.0, jax.random.key(1), 100)
    chosen = np.argmax(np.asarray(policy.probabilities(steps.observation)), axis=1)
    assert np.array_equal(steps.action, chosen)
    explored = collect_greedy_rollout(Interval(), head, parameters, 1.0, jax.random.key(1), 400)
    assert 130 < np.sum(explored.action) < 270


# --- features and weights -------------------------------------------------------------------------


def test_even_weights_make_the_noise_even() -> None:
    points = np.random.default_rng(0).beta(4.0, 2.0, 500)[:, None]
    features = Cosine(3)
    worst = []
    for rounds in (0, 10, 300):
        weights = design_weights(points, features, np.full(500, 1 / 500), rounds)
        assert math.isclose(weights.sum(), 1.0)
        assert np.all(weights >= 0.0)
        mechanism = RewardModelMechanism(1.0, 1.0, points, features, weights)
        psi = np.asarray(features(points)) @ mechanism.transform
        worst.append(float(np.max(np.sum(psi**2, axis=1))))
    assert worst[0] > worst[1] > worst[2]
    # Kiefer and Wolfowitz: the best there is.
    assert worst[2] == pytest.approx(4.0, rel=0.02)
    found = design_weights(np.array([0.0, 2.0]), OneHot(3), np.array([0.9, 0.1]), 5)
    assert found.tolist() == pytest.approx([0.5, 0.5])
    with pytest.raises(InputError, match="at most 1000 features"):
        design_weights(np.zeros(1), OneHot(1001), np.ones(1), 0)


def test_distinct_points_and_their_means() -> None:
    points = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    found, shares, where = unique_points(points)
    assert np.array_equal(found[where], points)
    assert shares[where].tolist() == [0.75, 0.25, 0.75, 0.75]
    assert mean_rewards(where, np.array([1.0, 5.0, 2.0, 3.0]))[where].tolist() == [
        2.0,
        5.0,
        2.0,
        2.0,
    ]
    line = unique_points(np.array([3.0, 3.0, 1.0]))
    assert line[0].tolist() == [1.0, 3.0]


def test_features_per_action() -> None:
    features = PerAction(Cosine(1), 3)
    rows = features(np.array([[0.0, 0.0], [1.0, 2.0]]))
    assert np.allclose(rows, [[1, 2**0.5, 0, 0, 0, 0], [0, 0, 0, 0, 1, -(2**0.5)]])
    assert reward_features_from_dict(features.to_dict()) == features
    assert reward_features_from_dict(PerAction(OneHot(4), 2).to_dict()) == PerAction(OneHot(4), 2)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"release": "all"}, "release must be"),
        ({"reward_of": "life"}, "reward_of must be"),
        ({"planner": "me"}, "planner must be"),
        ({"budget": 0.9}, "budget must be a Budget"),
        ({"budget": Budget(0.9)}, "delta above 0"),
        ({"budget": BUDGET}, "reward_radius is needed"),
        ({"reward_radius": -1.0}, "reward_radius must be positive"),
        ({"reward_range": 1.0}, "reward_range must be two numbers"),
        ({"reward_range": (1.0, 0.0)}, "reward_range must go up"),
        ({"reward_range": (0.0, math.inf)}, "reward_range must go up"),
        ({"gamma": 1.5}, "gamma must be at most 1"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"design": -1}, "design must be at least 0"),
        ({"evaluations": 0}, "evaluations must be at least 1"),
        ({"ridge": -1.0}, "ridge must be zero or more"),
        ({"features": 3}, "features must be a feature map"),
        ({"reward_features": 3}, "reward_features must be a feature map"),
        ({"network": 3}, "network must be a Network"),
    ],
)
def test_bad_settings_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as found:
        FunctionalQ(**given)
    assert str(found.value).endswith((".", "?"))


def test_bad_calls_are_refused(tmp_path: Path) -> None:
    class Unbounded(Paid):
        def __init__(self) -> None:
            super().__init__([1.0], box=True)
            self.observation_space = spaces.Box(-np.inf, np.inf, (1,))

    def refused(words: str, learner: FunctionalQ, *args: Any, **more: Any) -> None:
        with pytest.raises(InputError, match=words):
            learner.learn(*args, preflight=False, **more)

    refused("say what features", agent(), Unbounded())
    refused("say what reward_features", agent(features=Polynomial(1, (0.0,), (1.0,))), Unbounded())
    refused(
        "these features do not take",
        agent(features=Polynomial(1, (0.0,) * 2, (1.0,) * 2)),
        Paid([1.0], box=True),
    )
    refused("behaviour must be a policy", agent(), Paid([1.0]), behaviour=3)
    refused("needs linear features", agent("evaluations", planner="network"), Paid([1.0]))
    refused("neither an environment", agent(), 3)
    with ledger_at(tmp_path / "l") as ledger:
        both = PrivacySession(ledger=ledger, run="a", public=True)
        refused("leave one of them out", agent(), Paid([1.0]), session=both)
        with pytest.raises(InputError, match="needs the run's name"):
            PrivacySession(ledger=ledger)
    with Ledger.create(tmp_path / "p", "people", unit=Unit.TRAJECTORY) as people:
        refused(
            "do not add up", agent(), Paid([1.0]), session=PrivacySession(ledger=people, run="a")
        )
    with pytest.raises(InputError, match="There is no run to resume"):
        agent().resume(Paid([1.0]), tmp_path / "nowhere")


# --- the interval ---------------------------------------------------------------------------------


def test_the_mirror_and_the_ceilings() -> None:
    where = jnp.linspace(0.0, 1.0, 11)
    assert np.allclose(
        np.asarray(Interval().reward(where)) + np.asarray(MirroredInterval().reward(where)), 0.5
    )
    task, mirror = optima()
    assert task == pytest.approx(20.71, abs=0.01)
    assert mirror == pytest.approx(24.74, abs=0.01)
    # Two tasks that are neighbours: the best test is right with probability 0.711.
    right = (math.exp(0.9) + 1e-4) / (math.exp(0.9) + 1.0)
    best, worst = (task + mirror) / 2, 25.0 - (task + mirror) / 2
    assert ceiling(BUDGET, 1.0) == pytest.approx(right * best + (1.0 - right) * worst, abs=1e-6)
    assert ceiling(BUDGET, 0.01) == pytest.approx(best, abs=1e-3)


# --- noised updates -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "more"),
    [
        ("weights", {"descent": Descent(updates=5)}),
        (
            "updates",
            {
                "planner": "network",
                "network": Network((2,)),
                "descent": Descent(updates=4, batch=6, clip=0.05, slope=0.1),
            },
        ),
    ],
)
def test_noised_updates_through_learn(release: Any, more: dict[str, Any], tmp_path: Path) -> None:
    """They pay before noise is drawn, once, for what `noised_q` says, and survive their file."""
    learner = agent(release, **more)
    env = HostEnvironment(Paid([0.2, -0.1]))
    descent = learner.descent
    assert descent is not None
    plan = descent.plan(release, learner.head(env), RADIUS)
    noisy = noised_q.calibrate_noise(BUDGET, Relation.REWARD_RADIUS, plan)
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
        assert entry.events == (noisy.event,)
        assert found.certificate.events == entry.events
        assert found.certificate.reward_radius == RADIUS
        assert found.certificate.epsilon <= BUDGET.epsilon * (1.0 + 1e-9)
        found.certificate.verify()
        again = learner.resume(env, folder, ledger=ledger)
        assert payments(ledger) == 1
    assert _same(found, again)
    assert np.array_equal(
        found.parameters,
        learner.learn(env, session=PrivacySession(seed=4), preflight=False).parameters,
    )
    assert not np.array_equal(
        found.parameters,
        learner.learn(env, session=PrivacySession(seed=5), preflight=False).parameters,
    )
    found.save(tmp_path / "r.json")
    assert _same(found, LearnedQ.load(tmp_path / "r.json"))
    with jax.enable_x64(True):
        # The same rollout and the same keys by hand.
        source = reproducible(4)
        rollout = collect_rollout(env, None, source.key(), learner.steps)
        data = noised_q.transitions(
            plan.rule.head,
            rollout.observation,
            rollout.action,
            rollout.reward,
            rollout.next_observation,
            np.where(rollout.terminated, 0.0, learner.gamma),
            (-1.0, 1.0),
            orthonormal=release == "weights",
        )
        state = noised_q.begin(plan, data, source.key())
        state = noised_q.advance(plan, data, state, noisy.noise_multiplier, descent.updates)
        np.testing.assert_array_equal(
            found.parameters, noised_q.final_parameters(plan, data, state)
        )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"release": "weights", "reward_range": None}, "reward_range is needed"),
        ({"release": "rewards", "descent": Descent()}, "for the releases 'weights' and 'updates'"),
        ({"release": "weights", "descent": 3}, "descent must be a Descent"),
    ],
)
def test_noised_updates_need_their_settings(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        agent(**given)


@pytest.mark.parametrize(
    ("release", "descent", "words"),
    [
        ("weights", Descent(clip=1.0), "clip is for release 'updates'"),
        ("updates", Descent(), "needs a bound"),
        ("updates", Descent(tau=1.0), "tau is for"),
    ],
)
def test_a_descent_that_does_not_fit_is_refused(release: Any, descent: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        agent(release, descent=descent).learn(HostEnvironment(Paid([0.2])), preflight=False)


@pytest.mark.slow
def test_little_noise_costs_little_on_the_interval() -> None:
    assert without_noise([0])["return"] > 22.6
    (row,) = certified_rows([1], epsilons=[0.9], radii=[0.01], learners=["reward model"])
    assert 22.0 < row["return"] < row["ceiling"] + 0.1
    assert REWARD_RANGE == (0.0, 0.5)
