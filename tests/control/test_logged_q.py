"""Q-learning from people's logged trajectories, held to its theorem from outside."""

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.control import LearnedQ, LoggedQ, Network, noised_q
from privrl.data import Fourier, OneHot, Polynomial, Softmax, Trajectories, collect, load_policy
from privrl.envs import Interval, TabularMDP
from privrl.papers.wang2019.certified import mean_return
from privrl.privacy import Budget, CertificateError, InputError, Ledger, OverBudget, Relation, Unit
from privrl.privacy.events import Gaussian, Repeated
from privrl.privacy.promise import NoiseOrigin, Release
from privrl.privacy.session import PrivacySession

BUDGET = Budget(1.0, 1e-3)
LINE = Fourier(2, (0.0,), (1.0,))


def table(**more: Any) -> LoggedQ:
    """One noiseless update of a table of three states and two actions."""
    given = {"updates": 1, "step": 1.0, "clip": 0.5, "average": 0.0, "num_states": 3}
    return LoggedQ(2, (-1.0, 1.0), **{**given, **more})


def steps(
    states: Any, actions: Any, rewards: Any, users: Any = None, lengths: Any = None
) -> Trajectories:
    """Trajectories that end, of one step each unless lengths are given."""
    count = len(states) if lengths is None else len(lengths)
    return Trajectories.from_arrays(
        np.asarray(states),
        np.asarray(actions),
        np.asarray(rewards, float),
        lengths=[1] * count if lengths is None else lengths,
        users=users,
        terminated=[True] * count,
    )


# --- what it learns -------------------------------------------------------------------------------


def _world() -> Any:
    """Four states, two actions, three successors in quarters; some steps end the episode."""
    draw = np.random.default_rng(3)
    successors = draw.integers(4, size=(4, 2, 3))
    quarters = np.tile([1, 1, 2], (4, 2, 1))
    ends = np.zeros((4, 2, 3), bool)
    ends[3, 0] = ends[1, 1, 2] = True
    rewards = draw.uniform(-2.0, 2.0, (4, 2, 3))
    return TabularMDP.from_tables(successors, quarters / 4, rewards, ends)


def _optimal(tables: Any, gamma: float) -> Any:
    """Q of the best of all deterministic policies, each by linear equations."""
    states, actions, _ = tables.probabilities.shape
    paid = np.sum(tables.probabilities * tables.rewards, axis=2)
    goes = np.zeros((states, actions, states))
    for s, a, k in np.ndindex(tables.probabilities.shape):
        if not tables.terminated[s, a, k]:
            goes[s, a, tables.successors[s, a, k]] += tables.probabilities[s, a, k]
    values = []
    for chosen in itertools.product(range(actions), repeat=states):
        at = np.arange(states), np.array(chosen)
        values.append(np.linalg.solve(np.eye(states) - gamma * goes[at], paid[at]))
    return paid + gamma * goes @ np.max(values, axis=0)


@pytest.mark.parametrize("features", [None, OneHot(4)])
def test_data_in_exact_proportion_gives_the_optimal_values(features: Any) -> None:
    env, gamma = _world(), 0.8
    tables = env.tables
    rows = [
        (s, a, tables.rewards[s, a, k], tables.successors[s, a, k], tables.terminated[s, a, k])
        for s, a, k in np.ndindex(tables.probabilities.shape)
        for _ in range(round(4 * tables.probabilities[s, a, k]))
    ]
    s, a, r, after, ended = (np.array(column) for column in zip(*rows, strict=True))
    data = Trajectories.from_arrays(
        s, a, r, lengths=[1] * len(s), terminated=ended, truncated=~ended, final_states=after
    )
    learner = LoggedQ(
        2,
        (-2.0, 2.0),
        features=features,
        num_states=4,
        gamma=gamma,
        updates=100,
        # A step of the number of pairs is a step of value iteration.
        step=8.0,
        clip=1e6,
        target_every=1,
        average=0.0,
    )
    learned = learner.fit(data)
    best = _optimal(tables, gamma)
    np.testing.assert_allclose(learned.values(np.arange(4)), best, atol=1e-6)
    np.testing.assert_array_equal(
        learned.probabilities(np.arange(4)).argmax(axis=1), best.argmax(axis=1)
    )
    assert "Not private" in str(learned.promise)


@pytest.mark.slow
def test_it_learns_from_people_who_acted_at_random() -> None:
    env, blind = Interval(), Softmax(Polynomial(1, (0.0,), (1.0,)), np.zeros((2, 2)))
    data = collect(env, blind, 2000, 0)
    learner = LoggedQ(2, (0.0, 0.5), Budget(10.0, 1e-5), Fourier(3, (0.0,), (1.0,)))
    learned = learner.fit(data, session=PrivacySession(seed=0))
    assert mean_return(env, learned.policy, 0) > mean_return(env, blind, 0) + 8.0
    # About 9.3 without noise and with many updates: 0.5 is the largest reward, and 20 steps count.
    assert 8.0 < learned.values([[0.5]]).max() < 9.5


def test_networks_learn_too() -> None:
    draw = np.random.default_rng(0)
    states, actions = draw.random((400, 1)), draw.integers(2, size=400)
    rewards = np.where((states[:, 0] > 0.5) == (actions == 1), 1.0, -1.0)
    learner = LoggedQ(2, (-1.0, 1.0), None, Network((8,)), updates=300, step=2.0)
    found = learner.fit(steps(states, actions, rewards)).probabilities([[0.1], [0.9]])
    np.testing.assert_array_equal(found, [[1.0, 0.0], [0.0, 1.0]])


# --- the theorem ----------------------------------------------------------------------------------


def test_a_person_is_clipped_with_all_their_trajectories() -> None:
    data = steps([0, 1, 2], [0, 1, 0], [1.0, -1.0, 0.25], users=["one", "one", "two"])
    found = table().fit(data).values(np.arange(3))
    # The mean of one's two rows is (1, -1) / 2, of norm 1 / sqrt(2), and is clipped to 1 / 2.
    cut = 0.5 * math.sqrt(0.5)
    wanted = np.array([[cut, 0.0], [0.0, -cut], [0.25, 0.0]]) / 2
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    # Without the column each trajectory is clipped by itself, and divided by their number.
    alone = table().fit(replace(data, users=None)).values(np.arange(3))
    np.testing.assert_allclose(alone, np.array([[0.5, 0.0], [0.0, -0.5], [0.25, 0.0]]) / 3)


_WILD = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324]) | st.floats(-3, 3)
_STEP = st.tuples(_WILD, st.integers(-1, 3), _WILD)
# Of one step or of two trajectories with two: what is compiled is for one size.
_PERSON = st.sampled_from([1, 2]).flatmap(
    lambda n: st.lists(st.lists(_STEP, min_size=n, max_size=n), min_size=n, max_size=n)
)
_HEADS: list[Any] = [LINE, Network((3,))]


def _before_noise(features: Any, person: list[list[Any]], ends: list[bool], clip: float) -> Any:
    """The first sum, by way of `fit`: of three public people and of one with anything at all."""
    listed = [[(0.2, 0, 1.0), (0.4, 1, -1.0)], [(0.6, 1, 0.5)], [(0.9, 0, 0.1)], *person]
    rows = [row for trajectory in listed for row in trajectory]
    count = len(rows)
    data = Trajectories.from_arrays(
        np.zeros((count, 1)),
        np.zeros(count, int),
        np.zeros(count),
        lengths=list(map(len, listed)),
        users=["a", "b", "c", *["d"] * len(person)],
        terminated=[True, False, True, *ends[: len(person)]],
        final_states=np.zeros((len(listed), 1)),
    )
    # Readers refuse such numbers, and the proof does not need them to.
    data = replace(
        data,
        states=np.array([[row[0]] for row in rows]),
        actions=np.array([row[1] for row in rows], np.int32),
        rewards=np.array([row[2] for row in rows]),
        final_states=np.array([[trajectory[-1][0]] for trajectory in listed]),
    )
    learner = LoggedQ(2, (-1.0, 1.0), None, features, updates=1, step=4.0, clip=clip, average=0.0)
    return learner.fit(data).parameters


@given(
    which=st.integers(0, len(_HEADS) - 1),
    people=st.tuples(_PERSON, _PERSON),
    ends=st.lists(st.booleans(), min_size=4, max_size=4),
)
@settings(max_examples=60)
def test_no_person_moves_an_update_by_more_than_twice_the_bound(
    which: int, people: Any, ends: list[bool]
) -> None:
    one, other = (
        _before_noise(_HEADS[which], person, ends[2 * number :], 0.3)
        for number, person in enumerate(people)
    )
    assert np.all(np.isfinite(one))
    assert np.linalg.norm(one - other) <= 2 * 0.3 * (1.0 + 1e-12)


def test_somebody_moves_an_update_by_twice_the_bound() -> None:
    ends = [[[(0.5, 0, reward)]] for reward in (1.0, -1.0)]
    one, other = (_before_noise(LINE, person, [True], 0.3) for person in ends)
    assert np.linalg.norm(one - other) == pytest.approx(2 * 0.3)


def test_the_certificate_says_what_was_done() -> None:
    data = steps([0, 1, 2], [0, 1, 0], [1.0, -1.0, 0.25], users=["one", "one", "two"])
    learned = table(budget=Budget(2.0, 1e-4), updates=7).fit(data)
    made = learned.certificate
    assert (made.unit, made.relation) == (Unit.USER, Relation.REPLACE_ONE)
    assert made.release is Release.EVERY_ITERATE
    (event,) = made.events
    assert isinstance(event, Repeated)
    assert isinstance(event.event, Gaussian)
    assert (event.times, event.event.bound) == (7, 0.5)
    assert event.event.std == learned.settings["sigma"] * 0.5
    assert made.epsilon == pytest.approx(2.0, rel=1e-3)
    assert made.epsilon <= 2.0
    assert made.noise is NoiseOrigin.SECURE_KEY
    made.verify(strict=True)
    alone = table(budget=Budget(2.0, 1e-4)).fit(replace(data, users=None))
    assert alone.certificate.unit is Unit.TRAJECTORY
    seeded = table(budget=Budget(2.0, 1e-4)).fit(data, session=PrivacySession(seed=1)).certificate
    with pytest.raises(CertificateError, match="reproducible"):
        seeded.verify(strict=True)


def test_noise_of_the_size_that_was_paid_for_is_added() -> None:
    """One update of an empty row: what is left is noise, divided by the number of people."""
    data = steps(np.zeros(40, int), np.zeros(40, int), np.zeros(40))
    learner = table(budget=BUDGET, num_states=2000, step=40.0)
    learned = learner.fit(data, session=PrivacySession(seed=3))
    spread = learned.settings["sigma"] * 0.5
    assert float(np.std(learned.parameters)) == pytest.approx(spread, rel=0.05)
    again = learner.fit(data, session=PrivacySession(seed=3)).parameters
    np.testing.assert_array_equal(again, learned.parameters)
    assert np.all(learner.fit(data).parameters != learner.fit(data).parameters)


# --- paying ---------------------------------------------------------------------------------------


def _ledger(path: Path, epsilon: float) -> Ledger:
    return Ledger.create(
        path,
        "people",
        unit=Unit.TRAJECTORY,
        relation=Relation.REPLACE_ONE,
        limit=Budget(epsilon, 1e-3),
        filter="gaussian",
    )


def test_it_is_paid_for_before_anything_is_drawn_and_after_all_that_can_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, learner = steps([0, 1], [0, 1], [1.0, -1.0]), table(budget=BUDGET)

    def crash(*_: Any) -> None:
        raise ZeroDivisionError

    with _ledger(tmp_path / "ledger", 1.5) as ledger:
        made = learner.fit(data, session=PrivacySession(ledger=ledger, run="first")).certificate
        assert made.epsilon == pytest.approx(1.0, rel=1e-3)
        with monkeypatch.context() as failing:
            failing.setattr(noised_q, "people_transitions", crash)
            with pytest.raises(ZeroDivisionError):
                learner.fit(data, session=PrivacySession(ledger=ledger, run="failing"))
        with monkeypatch.context() as failing:
            failing.setattr(noised_q, "final_parameters", crash)
            # The second is refused before the crash could come.
            with pytest.raises(OverBudget):
                learner.fit(data, session=PrivacySession(ledger=ledger, run="second"))
        assert [entry.run for entry in ledger.entries()] == ["first"]
    with _ledger(tmp_path / "other", 1.5) as ledger:
        monkeypatch.setattr(noised_q, "final_parameters", crash)
        with pytest.raises(ZeroDivisionError):
            learner.fit(data, session=PrivacySession(ledger=ledger, run="lost"))
        assert [entry.run for entry in ledger.entries()] == ["lost"]


def test_a_ledger_of_others_cannot_pay(tmp_path: Path) -> None:
    data = steps([0, 1], [0, 1], [1.0, -1.0], users=["a", "b"])
    with _ledger(tmp_path / "ledger", 9.0) as ledger:
        with pytest.raises(InputError, match="they do not add up"):
            table(budget=BUDGET).fit(data, session=PrivacySession(ledger=ledger, run="x"))
        with pytest.raises(InputError, match="Without a budget there is nothing to pay for"):
            table().fit(data, session=PrivacySession(ledger=ledger, run="x"))


# --- ends and files -------------------------------------------------------------------------------


def test_what_has_no_next_state_adds_nothing() -> None:
    """A last row that did not terminate only says where the one before it led."""
    data = Trajectories.from_arrays([0, 1, 2], [0, 1, 1], [1.0, 1.0, 1.0], lengths=[1, 2])
    found = table(clip=9.0).fit(data).values(np.arange(3))
    np.testing.assert_allclose(found, [[0.0, 0.0], [0.0, 0.5], [0.0, 0.0]])
    nothing = Trajectories.from_arrays([0, 1], [0, 1], [1.0, 1.0], lengths=[1, 1])
    assert not table().fit(nothing).parameters.any()
    noised = table(budget=BUDGET).fit(nothing)
    assert noised.parameters.all()
    assert noised.settings["people"] == 2


def test_states_and_actions_that_there_are_not_add_nothing() -> None:
    data = steps([0, 7, 1], [0, 1, 5], [0.3, 0.3, 0.3])
    found = table().fit(data).values(np.arange(3))
    np.testing.assert_allclose(found, [[0.1, 0.0], [0.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("features", [LINE, Network((3,), LINE), Network((3,))])
def test_what_was_learned_comes_back_from_its_file(features: Any, tmp_path: Path) -> None:
    data = steps([[0.1], [0.9]], [0, 1], [1.0, -0.5])
    learned = LoggedQ(2, (-1.0, 3.0), BUDGET, features, updates=3).fit(data)
    learned.save(tmp_path / "result.json")
    again = LearnedQ.load(tmp_path / "result.json")
    states = np.array([[0.2], [0.5], [0.8]])
    np.testing.assert_array_equal(again.values(states), learned.values(states))
    np.testing.assert_array_equal(again.probabilities(states), learned.probabilities(states))
    assert again.certificate == learned.certificate
    assert again.settings == learned.settings
    assert again.release == "people"
    assert "each trajectory" in again.privacy_statement
    learned.policy.save(tmp_path / "policy.json")
    policy = load_policy(tmp_path / "policy.json")
    np.testing.assert_allclose(policy.probabilities(states), learned.probabilities(states))


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["state", "action"])
def test_words_that_were_read_from_the_data_are_refused(what: str) -> None:
    data = steps([0, 1], [0, 1], [1.0, -1.0])
    facts: Any = {f"{what}_vocabulary_read": True}
    read = replace(data, facts=replace(data.facts, **facts))
    with pytest.raises(InputError, match=f"The {what}s there are were read from this very data"):
        table(budget=BUDGET).fit(read)
    table().fit(read)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"num_actions": 0}, "num_actions must be at least 1"),
        ({"num_states": 1.5}, "num_states must be a whole number"),
        ({"updates": 0}, "updates must be at least 1"),
        ({"target_every": 0}, "target_every must be at least 1"),
        ({"step": 0.0}, "step must be"),
        ({"clip": math.inf}, "clip must be"),
        ({"clip": -1.0}, "clip must be"),
        ({"gamma": 1.1}, "gamma must be at most 1, not 1.1"),
        ({"gamma": math.nan}, "gamma must"),
        ({"average": 2.0}, "average must be at most 1, not 2"),
        ({"optimiser": "lion"}, "optimiser must be 'sgd' or 'adam', not 'lion'"),
        ({"features": "wavelet"}, "features must be table, polynomial:2"),
        ({"reward_range": 1.0}, "reward_range must be two numbers"),
        ({"reward_range": (1.0, 1.0)}, "reward_range must go up"),
        ({"reward_range": (-1e308, 1e308)}, "by a finite difference"),
        ({"reward_range": (0.0, "1")}, "reward_range must be a number"),
        ({"budget": 1.0}, "budget must be a Budget"),
        ({"budget": Budget(1.0, 0.0)}, "a delta above 0"),
    ],
)
def test_bad_settings_are_refused(setting: dict[str, Any], sentence: str) -> None:
    given = {"num_actions": 2, "reward_range": (0.0, 1.0), **setting}
    with pytest.raises(InputError, match=sentence) as refused:
        LoggedQ(**given)
    assert str(refused.value).count(".\n") == 0


def test_data_that_does_not_suit_is_refused() -> None:
    vectors = steps([[0.1, 0.2], [0.3, 0.4]], [0, 1], [1.0, 0.0])
    with pytest.raises(InputError, match="observes vectors: say what features"):
        LoggedQ(2, (0.0, 1.0)).fit(vectors)
    with pytest.raises(InputError, match="vectors of 2 numbers, which these features do not"):
        LoggedQ(2, (0.0, 1.0), features=LINE).fit(vectors)
    numbers = steps([0, 1], [0, 1], [1.0, 0.0])
    named = ("table", "network:3", "fourier:1", "polynomial:1")
    for features in (None, Network((3,)), *named):
        with pytest.raises(InputError, match="num_states is needed"):
            LoggedQ(2, (0.0, 1.0), features=features).fit(numbers)
    moved = steps([0, 1], [[0.5], [0.1]], [1.0, 0.0])
    with pytest.raises(InputError, match="actions that are counted"):
        table().fit(moved)
    with pytest.raises(InputError, match="data must be Trajectories"):
        table().fit([1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="grew without bound: use smaller steps"):
        table(updates=3, step=1e200, clip=1e200).fit(numbers)
    with pytest.raises(InputError, match=r"^bound 1e\+300 is too large for float64 rows\.$"):
        table(clip=1e300).fit(numbers)


def test_a_delta_that_is_too_large_is_warned_of() -> None:
    data = steps([0, 1], [0, 1], [1.0, 0.0])
    with pytest.warns(UserWarning, match="delta"):
        table(budget=Budget(1.0, 0.5)).fit(data)
