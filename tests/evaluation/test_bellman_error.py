"""MSPBE and moments: against enumeration, by hand, and one unit at a time."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privrl.data import Features, FunctionFeatures, OneHot, Polynomial, Tabular, Trajectories
from privrl.envs import TabularMDP
from privrl.evaluation import bellman_error as module
from privrl.evaluation.bellman_error import (
    Moments,
    UnitMoments,
    exact_moments,
    moments,
    mspbe,
    unit_moments,
)
from privrl.evaluation.result import Result
from privrl.privacy import InputError

Floats = NDArray[np.float64]

LOGGED = np.array([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]])
JUDGED = np.array([[0.9, 0.1], [0.6, 0.4], [1.0, 0.0]])


def small(step_limit: int | None = 4) -> TabularMDP:
    """Three states, two actions; state 2 is where episodes end, and they may be cut off before."""
    moves = np.zeros((3, 2, 3))
    moves[0] = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]
    moves[1] = [[0.4, 0.4, 0.2], [0.0, 0.5, 0.5]]
    moves[2] = [[0.0, 0.0, 1.0]] * 2
    rewards = np.array([[1.0, -0.5], [0.25, 2.0], [0.0, 0.0]])
    start = np.array([0.75, 0.25, 0.0])
    return TabularMDP.from_dense(moves, rewards, [False, False, True], start, step_limit=step_limit)


def simulated(m: int, seed: int, users: int | None = None) -> Trajectories:
    """`m` episodes of LOGGED in `small()`."""
    env, draw = small(), np.random.default_rng(seed)
    tables = env.tables
    rows: list[tuple[int, int, float]] = []
    lengths, ended, finals = [], [], []
    for _ in range(m):
        s, length, over = int(draw.choice(3, p=tables.start)), 0, False
        while length < 4 and not over:
            a = int(draw.choice(2, p=LOGGED[s]))
            k = int(draw.choice(tables.probabilities.shape[2], p=tables.probabilities[s, a]))
            rows.append((s, a, float(tables.rewards[s, a, k])))
            over = bool(tables.terminated[s, a, k])
            s, length = int(tables.successors[s, a, k]), length + 1
        lengths.append(length)
        ended.append(over)
        finals.append(s)
    states, actions, rewards = (np.array(column) for column in zip(*rows, strict=True))
    return Trajectories.from_arrays(
        states,
        actions,
        rewards,
        lengths=lengths,
        behavior_probs=LOGGED[states, actions],
        terminated=np.array(ended),
        final_states=np.array(finals),
        users=None if users is None else np.arange(m) % users,
        num_states=3,
        num_actions=2,
    )


def dense_one_hot(count: int) -> Features:
    """The same features as `OneHot`, but not known to be sparse."""
    return FunctionFeatures(lambda s: np.eye(count)[np.asarray(s, dtype=int)], count, 1.0)


def solution(units: UnitMoments) -> Floats:
    """The exact LSTD weights of units that all count equally."""
    n, d = units.b.shape
    A = units.A if isinstance(units.A, np.ndarray) else units.A.toarray()
    return np.asarray(np.linalg.solve(A.reshape(n, d, d).sum(0), units.b.sum(0)))


def weights_of(result: Result) -> Floats:
    """The weights, which a value function has."""
    assert result.weights is not None
    return result.weights


def _enumerated(judged: Floats, gamma: float, phi: Floats) -> Moments:
    """Every trajectory there is, with its probability."""
    tables = small().tables
    d = phi.shape[1]
    A, b, C = np.zeros((d, d)), np.zeros(d), np.zeros((d, d))

    def finish(p: float, steps: list[tuple[int, int, float, int, bool]]) -> None:
        nonlocal A, b, C
        for s, a, r, after, over in steps:
            rho = judged[s, a] / LOGGED[s, a]
            share = p / len(steps)
            A = A + share * rho * np.outer(phi[s], phi[s] - (0.0 if over else gamma) * phi[after])
            b = b + share * rho * r * phi[s]
            C = C + share * np.outer(phi[s], phi[s])

    def go(p: float, s: int, steps: list[Any]) -> None:
        for a in range(2):
            for k in range(tables.probabilities.shape[2]):
                q = p * LOGGED[s, a] * tables.probabilities[s, a, k]
                if q == 0.0:
                    continue
                after, over = int(tables.successors[s, a, k]), bool(tables.terminated[s, a, k])
                grown = [*steps, (s, a, float(tables.rewards[s, a, k]), after, over)]
                if over or len(grown) == 4:
                    finish(q, grown)
                else:
                    go(q, after, grown)

    for s, p in enumerate(tables.start):
        if p > 0.0:
            go(float(p), s, [])
    return Moments(A, b, C)


@pytest.mark.parametrize("judged", [LOGGED, JUDGED])
@pytest.mark.parametrize("features", [OneHot(3), Polynomial(1, 0.0, 2.0)])
def test_exact_moments_are_those_of_all_trajectories(judged: Floats, features: Features) -> None:
    phi = np.asarray(features(np.arange(3)), dtype=float)
    wanted = _enumerated(judged, 0.9, phi)
    found = exact_moments(small(), judged, features, 0.9, behavior=LOGGED)
    for name in ("A", "b", "C"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), atol=1e-14)


def test_moments_of_data_approach_those_of_the_model() -> None:
    data, features = simulated(1500, 3), OneHot(3)
    found = moments(data, Tabular(JUDGED), features, 0.9)
    units = unit_moments(data, Tabular(JUDGED), features, 0.9, dual=True)
    wanted = exact_moments(small(), JUDGED, features, 0.9, behavior=LOGGED)
    each = {"A": _dense(units.A, 1500), "b": units.b, "C": _dense(units.C, 1500)}
    for name, values in each.items():
        apart = np.abs(getattr(found, name) - getattr(wanted, name))
        # Six standard errors of a mean, for 21 of them: one false alarm in 10^7.
        assert np.all(apart <= 6.0 * values.std(axis=0) / np.sqrt(1500) + 1e-12)
    assert found.trajectories == 1500


def test_one_trajectory_by_hand() -> None:
    data = Trajectories.from_arrays(
        [0, 1], [0, 0], [2.0, 3.0], lengths=[2], terminated=[True], num_states=2, num_actions=1
    )
    found = moments(data, None, OneHot(2), 0.5)
    np.testing.assert_array_equal(found.A, [[0.5, -0.25], [0.0, 0.5]])
    np.testing.assert_array_equal(found.b, [1.0, 1.5])
    np.testing.assert_array_equal(found.C, [[0.5, 0.0], [0.0, 0.5]])
    # theta = 0: (1^2 + 1.5^2) / 0.5; the solution is V(1) = 3, V(0) = 2 + 3/2.
    assert mspbe([0.0, 0.0], found) == pytest.approx(6.5, rel=1e-14)
    assert mspbe([3.5, 3.0], found) == pytest.approx(0.0, abs=1e-28)
    assert mspbe([0.0, 0.0], found, ridge=0.5) == pytest.approx(3.25, rel=1e-14)


def test_directions_without_data_carry_no_error() -> None:
    found = Moments(np.diag([1.0, 0.0]), np.array([1.0, 0.0]), np.diag([0.5, 0.0]))
    assert mspbe([0.0, 7.0], found) == pytest.approx(2.0)
    with pytest.raises(InputError, match="2 entries"):
        mspbe([0.0], found)


def test_no_usable_step_is_said() -> None:
    data = Trajectories.from_arrays([0, 1], [0, 0], [0.0, 0.0], lengths=[1, 1])
    with pytest.raises(InputError, match="next state"):
        moments(data, None, OneHot(2), 0.9)


def test_a_limit_is_needed_and_support() -> None:
    with pytest.raises(InputError, match="max_steps"):
        exact_moments(small(None), LOGGED, OneHot(3), 0.9)
    with pytest.raises(InputError, match="never takes"):
        exact_moments(small(), np.full((3, 2), 0.5), OneHot(3), 0.9, behavior=LOGGED)


# --- one by one ----------------------------------------------------------------------------------


def _dense(stacked: Any, count: int) -> Floats:
    full = stacked if isinstance(stacked, np.ndarray) else stacked.toarray()
    return np.asarray(full).reshape(count, -1, full.shape[1])


@pytest.mark.parametrize("policy", [None, Tabular(JUDGED)])
def test_sparse_and_dense_units_are_the_same_and_average_to_the_moments(
    policy: Tabular | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = simulated(50, 1)
    whole = moments(data, policy, OneHot(3), 0.9)
    table = unit_moments(data, policy, OneHot(3), 0.9, dual=True)
    dense = unit_moments(data, policy, dense_one_hot(3), 0.9, dual=True)
    monkeypatch.setattr(module, "_ENTRIES", 30)
    pieces = unit_moments(data, policy, OneHot(3), 0.9, dual=True)
    for units in (table, dense, pieces):
        A, C = _dense(units.A, 50), _dense(units.C, 50)
        np.testing.assert_allclose(A.mean(0), whole.A, atol=1e-14)
        np.testing.assert_allclose(units.b.mean(0), whole.b, atol=1e-14)
        np.testing.assert_allclose(C.mean(0), whole.C, atol=1e-14)
        np.testing.assert_allclose(_dense(units.transposed, 50), np.swapaxes(A, 1, 2), atol=1e-14)
        np.testing.assert_allclose(A, _dense(table.A, 50), atol=1e-14)
    np.testing.assert_allclose(
        table.times(table.A, np.arange(3.0)), _dense(table.A, 50) @ [0, 1, 2]
    )


def test_parts_make_up_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    units = unit_moments(simulated(50, 1), None, OneHot(3), 0.9, dual=True)
    monkeypatch.setattr(module, "_CACHED", 24)
    parts = units.parts()
    assert [part.count for part in parts] == [8] * 6 + [2]
    at = np.arange(3.0)
    for name in ("A", "transposed", "C"):
        pieces = [part.times(getattr(part, name), at) for part in parts]
        np.testing.assert_array_equal(np.concatenate(pieces), units.times(getattr(units, name), at))
    np.testing.assert_array_equal(np.concatenate([part.b for part in parts]), units.b)


def test_a_person_is_the_mean_of_their_trajectories() -> None:
    single = unit_moments(simulated(12, 2), None, OneHot(3), 0.9)
    people = unit_moments(simulated(12, 2, users=5), None, OneHot(3), 0.9)
    assert people.count == 5
    for person in range(5):
        own = np.arange(12) % 5 == person
        np.testing.assert_allclose(people.b[person], single.b[own].mean(0), atol=1e-15)
        np.testing.assert_allclose(
            _dense(people.A, 5)[person], _dense(single.A, 12)[own].mean(0), atol=1e-15
        )


@pytest.mark.parametrize("features", [OneHot(3), Polynomial(1, 0.0, 2.0)])
def test_a_change_of_features_is_a_change_of_coordinates(features: Features) -> None:
    data = simulated(20, 4)
    plain = unit_moments(data, None, features, 0.9)
    d = features.dimension
    for change in (np.arange(1.0, d + 1), np.triu(np.ones((d, d)))):
        T = np.diag(change) if change.ndim == 1 else change
        changed = unit_moments(data, None, features, 0.9, change=change)
        np.testing.assert_allclose(_dense(changed.A, 20), T @ _dense(plain.A, 20) @ T.T, atol=1e-13)
        np.testing.assert_allclose(changed.b, plain.b @ T.T, atol=1e-13)


odd = st.sampled_from([0.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324])


@settings(max_examples=60)
@given(st.lists(odd, min_size=4, max_size=4), st.sampled_from([5e-324, 1e-300, 0.5, 1.0]))
def test_strange_numbers_of_one_unit_stay_with_it_and_in_range(
    rewards: list[float], probability: float
) -> None:
    from dataclasses import replace

    plain = Trajectories.from_arrays(
        [0, 1, 2, 1],
        [0, 0, 0, 0],
        [0.0] * 4,
        lengths=[3, 1],
        behavior_probs=[probability, 0.5, 0.5, 0.5],
        target_probs=[1.0, 0.5, 0.5, 0.5],
        terminated=[True, True],
        num_states=3,
        num_actions=1,
    )
    # Loaders refuse such rewards; estimators must not rely on it.
    data = replace(plain, rewards=np.array(rewards))
    units = unit_moments(data, None, OneHot(3), 0.9, cap=2.0, reward_range=(-1.0, 3.0), dual=True)
    assert np.isfinite(units.b).all()
    assert np.abs(units.b).max() <= 2.0 * 3.0
    assert np.abs(_dense(units.A, 2)).max() <= 2.0 * 1.9
    # The second trajectory is the same, whatever the first is.
    assert units.b[1, 1] == (1.0 if np.isnan(rewards[3]) else min(max(rewards[3], -1.0), 3.0))
