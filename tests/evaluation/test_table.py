"""Steps of a table: the same sums as by matrices, whichever way entries are added up."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privrl.data import OneHot, Polynomial, Tabular, Trajectories
from privrl.evaluation import table as module
from privrl.evaluation.bellman_error import (
    UnitMoments,
    owners,
    pieces,
    unit_moments,
    unit_steps,
)
from privrl.evaluation.gtd_iterations import contributions
from privrl.evaluation.sums import row_squares
from privrl.evaluation.table import Entries, Table, find_duplicates, is_table
from tests.evaluation.test_bellman_error import JUDGED, simulated

Floats = NDArray[np.float64]

SCALE = np.array([0.5, 2.0, 3.0])
GIVEN: tuple[float, float, tuple[float, float]] = (0.9, 1.5, (-0.5, 2.0))


def dense(rows: Any) -> Floats:
    if isinstance(rows, Entries):
        return rows.dense()
    return np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray(), dtype=np.float64)


def interleaved(final: bool) -> Trajectories:
    """Two people taking turns; a state that stays, one step only, and a state outside the table."""
    return Trajectories.from_arrays(
        [0, 0, 1, 2, 1, 1, 3, 0, 2],
        [0] * 9,
        [1.0, -3.0, 0.5, 0.25, 9.0, 1.0, 1.0, 2.0, -1.0],
        lengths=[3, 1, 2, 3],
        users=[7, 8, 7, 8],
        terminated=[True, False, False, True],
        final_states=[2, 0, 3, 1] if final else None,
        behavior_probs=[0.5] * 9,
        target_probs=[0.25, 1.0, 0.5, 1.0, 0.0, 0.5, 0.75, 1.0, 0.5],
        num_actions=1,
    )


DATA: list[tuple[Trajectories, Tabular | None]] = [
    (interleaved(final=False), None),
    (interleaved(final=True), None),
    (simulated(30, 3), None),
    (simulated(30, 3, users=7), Tabular(JUDGED)),
]


def matrices(data: Trajectories, policy: Tabular | None) -> UnitMoments:
    gamma, cap, reward_range = GIVEN
    return unit_moments(
        data,
        policy,
        OneHot(3),
        gamma,
        cap=cap,
        reward_range=reward_range,
        change=SCALE,
        dual=True,
    )


@pytest.mark.parametrize("entries", [0, 8])
@pytest.mark.parametrize(("data", "policy"), DATA)
def test_a_table_gives_what_matrices_give(
    data: Trajectories, policy: Tabular | None, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DENSE", entries)
    units, at = matrices(data, policy), Table.of(data, policy, SCALE, *GIVEN)
    off, diagonal, b = (dense(block) for block in at.system(2.0))
    A = off.reshape(-1, 3, 3)
    assert not A[:, np.arange(3), np.arange(3)].any()
    A[:, np.arange(3), np.arange(3)] = diagonal
    np.testing.assert_allclose(A, 2.0 * dense(units.A).reshape(-1, 3, 3), atol=1e-14)
    np.testing.assert_allclose(b, units.b, atol=1e-14)
    state = np.array([1.0, -2.0, 0.5, 3.0, 0.25, -1.0])
    for found, form in (
        (at.residual(state[:3]), "residual"),
        (at.primal_dual(state[:3], state[3:]), "primal-dual"),
    ):
        rows = np.concatenate([dense(block) for block in found], axis=1)
        size = 3 if form == "residual" else 6
        np.testing.assert_allclose(rows, contributions(units, state[:size], form), atol=1e-13)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [1, 9, 20])
@pytest.mark.parametrize(("data", "policy"), DATA)
def test_parts_hold_whole_units_in_their_order(
    data: Trajectories, policy: Tabular | None, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, theta = Table.of(data, policy, SCALE, *GIVEN), np.array([1.0, -2.0, 0.5])
    whole = dense(at.residual(theta)[0])
    monkeypatch.setattr(module, "_STEPS", steps)
    parts = list(at.parts())
    assert len(parts) > 1 or data.num_steps <= steps
    rows = [dense(part.residual(theta)[0]) for part in parts]
    np.testing.assert_allclose(np.concatenate(rows), whole, atol=1e-14)


@pytest.mark.parametrize(("data", "policy"), DATA)
@pytest.mark.parametrize("change", [np.array([0.5, 2.0]), np.array([[1.0, 0.5], [0.0, 2.0]])])
def test_steps_give_what_matrices_give(
    data: Trajectories, policy: Tabular | None, change: Floats
) -> None:
    features, (gamma, cap, reward_range) = Polynomial(1, 0.0, 2.0), GIVEN
    at = unit_steps(data, policy, features, gamma, cap, reward_range, change)
    units = unit_moments(
        data,
        policy,
        features,
        gamma,
        cap=cap,
        reward_range=reward_range,
        change=change,
        dual=True,
    )
    state = np.array([1.0, -2.0, 3.0, 0.25])
    np.testing.assert_allclose(
        at.residual(state[:2])[0], contributions(units, state[:2], "residual"), atol=1e-13
    )
    np.testing.assert_allclose(
        np.concatenate(at.primal_dual(state[:2], state[2:]), axis=1),
        contributions(units, state, "primal-dual"),
        atol=1e-13,
    )


@pytest.mark.parametrize("width", [5, 4000, 2**53])
def test_entries_are_added_up_where_they_coincide(width: int) -> None:
    """Dense, packed and sorted, and too wide to be packed: the same sums."""
    draw = np.random.default_rng(0)
    units, columns = draw.integers(0, 9, 500), draw.integers(0, 5, 500) * (width // 5)
    values = draw.standard_normal(500)
    entries = Entries(units, columns, values, 9, width)
    wanted: dict[tuple[int, int], float] = {}
    for unit, column, value in zip(units.tolist(), columns.tolist(), values, strict=True):
        wanted[unit, column] = wanted.get((unit, column), 0.0) + value
    merged = entries.sum_duplicates()
    kept = np.flatnonzero(merged.values)
    places = zip(merged.units[kept].tolist(), merged.columns[kept].tolist(), strict=True)
    assert kept.size == len(wanted) == 45
    assert dict(zip(places, merged.values[kept], strict=True)) == pytest.approx(wanted, abs=1e-12)
    squares = np.zeros(9)
    for (unit, _), value in wanted.items():
        squares[unit] += value**2
    np.testing.assert_allclose(merged.squares(), squares, rtol=1e-12)
    np.testing.assert_array_equal(entries.values, values)
    if width == 5:
        np.testing.assert_allclose(dense(entries), dense(merged), atol=1e-12)
    alone = Entries(np.arange(3), np.arange(3), values[:3], 3, width)
    assert alone.sum_duplicates() is alone


@pytest.mark.parametrize("direct", [0, 10**9])
@pytest.mark.parametrize("most", [1, 3, 40, 2000])
def test_repeated_keys_are_found_each_with_the_one_that_stays(
    most: int, direct: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DIRECT", direct)
    keys = np.random.default_rng(most).integers(0, most, 600)
    again, kept = find_duplicates(keys, most)
    np.testing.assert_array_equal(keys[again], keys[kept])
    assert np.unique(again).size == again.size == 600 - np.unique(keys).size
    assert not np.isin(kept, again).any()
    none, of_none = find_duplicates(keys[:0], most)
    assert none.size == of_none.size == 0


def test_hashes_that_clash_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """With this multiplier all keys go to the same slot."""
    monkeypatch.setattr(module, "_SPREAD", np.uint64(1))
    keys = np.random.default_rng(0).integers(0, 100, 600)
    again, kept = find_duplicates(keys, 2**40)
    np.testing.assert_array_equal(keys[again], keys[kept])
    assert np.unique(again).size == again.size == 600 - np.unique(keys).size
    assert not np.isin(kept, again).any()


@pytest.mark.parametrize("entries", [0, 1])
def test_a_path_that_comes_back_is_added_up_before_it_is_squared(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0, 1, 0, 1, 0 and then 2: both cells occur twice, and the state 0 with another next one."""
    monkeypatch.setattr(module, "_DENSE", entries)
    data = Trajectories.from_arrays(
        [0, 1, 0, 1, 0, 2],
        [0] * 6,
        [1.0] * 6,
        lengths=[6],
        terminated=[True],
        num_states=3,
        num_actions=1,
    )
    off, diagonal, b = Table.of(data, None, np.ones(3), 0.5, None, (0.0, 1.0)).system(6.0)
    np.testing.assert_allclose(dense(off), [[0, -1, -0.5, -1, 0, 0, 0, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(row_squares(off), [2.25], rtol=1e-12)
    np.testing.assert_allclose(dense(diagonal), [[3.0, 2.0, 1.0]], rtol=1e-12)
    np.testing.assert_allclose(row_squares(diagonal), [14.0], rtol=1e-12)
    np.testing.assert_allclose(row_squares(b) * 36.0, [14.0], rtol=1e-12)


@pytest.mark.parametrize("users", [None, [3, 3, 5, 9], [5, 3, 5, 3], ["b", "b", "a", "c"]])
@pytest.mark.parametrize("rows", [1, 4, 6, 100])
def test_pieces_hold_whole_units_whatever_their_names(users: Any, rows: int) -> None:
    data = Trajectories.from_arrays(
        np.arange(9), [0] * 9, [0.0] * 9, lengths=[2, 3, 3, 1], users=users, num_actions=1
    )
    index, count = owners(data)
    np.testing.assert_array_equal(index, data.unit_index)
    assert count == data.num_units
    parts = list(pieces(data, rows))
    assert sum(part.num_units for part in parts) == count
    assert sorted(np.concatenate([part.states for part in parts]).tolist()) == list(range(9))
    assert len(parts) == 1 or all(part.num_steps <= rows or part.num_units == 1 for part in parts)


def test_a_factor_of_zero_leaves_out_anything() -> None:
    entries = Entries(np.array([0, 1, 1]), np.array([2, 2, 0]), np.array([3.0, np.nan, 1.0]), 2, 3)
    columns, values = entries.scale_rows(np.array([0.5, 0.0]))
    np.testing.assert_array_equal(np.bincount(columns, values, 3), [0.0, 0.0, 1.5])


def test_what_is_a_table() -> None:
    data, vectors = (
        interleaved(final=True),
        Trajectories.from_arrays([[0.0]], [0], [0.0], lengths=[1]),
    )
    check: Callable[..., bool] = is_table
    assert check(OneHot(3), SCALE, data)
    assert not check(OneHot(3), np.eye(3), data)
    assert not check(OneHot(3), SCALE, vectors)
    assert not check(Polynomial(1, 0.0, 2.0), SCALE, data)
