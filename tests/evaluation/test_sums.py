"""Sums in parts: they add up to the whole, clip units that cancel, and are released once."""

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from privrl.data import OneHot, Polynomial, Trajectories
from privrl.evaluation import PrivateLSTD, PrivateValue
from privrl.evaluation.sums import (
    SumEstimator,
    Sums,
    add_sums,
    gather_sums,
    joint_clip_factors,
    map_in_threads,
    sum_rows,
)
from privrl.evaluation.table import Entries
from privrl.privacy import Budget, InputError, Unit
from privrl.privacy.noise import Source
from privrl.privacy.session import PrivacySession
from tests.evaluation.test_bellman_error import dense_one_hot, simulated, weights_of
from tests.evaluation.test_private_gtd import people, person

BUDGET = Budget(1.0, 1e-5)
JUDGES: dict[str, SumEstimator] = {
    "value": PrivateValue(BUDGET, 3.0, 0.9, reward_range=(-0.5, 2.0)),
    "value on a grid": PrivateValue(BUDGET, 3.0, 0.9, reward_range=(-0.5, 2.0), grid=True),
    "table": PrivateLSTD(OneHot(3), (-0.5, 2.0), BUDGET, 0.9, weight_cap=3.0),
    "dense": PrivateLSTD(Polynomial(1, 0.0, 2.0), (-0.5, 2.0), BUDGET, 0.9, weight_cap=3.0),
}


@pytest.mark.parametrize("name", JUDGES)
def test_parts_travel_and_add_up_to_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, judge = simulated(60, 3, users=13), JUDGES[name]
    fitted: Any = judge
    whole = fitted.fit(data, session=PrivacySession(seed=4))

    def travelled(value: Any) -> Any:
        return pickle.loads(pickle.dumps(value))

    with monkeypatch.context() as patch:
        # Gathering draws nothing.
        patch.setattr(Source, "normal", None)
        patch.setattr(Source, "discrete_gaussian", None)
        parts = [travelled(travelled(judge).gather(travelled(batch))) for batch in data.batches(40)]
    assert len(parts) > 3
    forth, back = add_sums(parts), add_sums(reversed(parts))
    assert (forth.count, forth.unit) == (13, Unit.USER)
    for sums in (forth, back):
        result = judge.release(sums, session=PrivacySession(seed=4))
        assert result.certificate == whole.certificate
        if whole.weights is None:
            assert result.estimate == pytest.approx(whole.estimate, rel=1e-12)
        else:
            np.testing.assert_allclose(weights_of(result), weights_of(whole), rtol=1e-9)


def test_what_does_not_add_up_is_refused() -> None:
    one = Sums(Unit.USER, 1, np.zeros(2))
    for other in (
        Sums(Unit.TRAJECTORY, 1, np.zeros(2)),
        Sums(Unit.USER, 1, np.zeros(3)),
        Sums(Unit.USER, 1, np.zeros(2), np.zeros(2, dtype=np.int64)),
    ):
        with pytest.raises(InputError, match="add up"):
            one + other
    with pytest.raises(InputError, match="no trajectory"):
        add_sums([])
    nothing: Any = iter(())
    with pytest.raises(InputError, match="no trajectory"):
        gather_sums(JUDGES["table"], nothing)


@settings(max_examples=60)
@given(
    st.lists(person, min_size=1, max_size=3),
    person,
    st.integers(0, 2),
    st.sampled_from([1e-6, 0.3, 1e6]),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.sampled_from([4.0, 1e300]),
    st.booleans(),
)
def test_exchanging_a_person_moves_the_sums_by_at_most_two_bounds(
    owned: list[Any],
    other: Any,
    which: int,
    bound: float,
    a: float,
    cap: float,
    table: bool,
) -> None:
    which %= len(owned)
    judge = PrivateLSTD(
        OneHot(3) if table else dense_one_hot(3),
        (-1e300, 1e300),
        BUDGET,
        0.9,
        weight_cap=cap,
        clip=bound,
        matrix_weight=a,
    )
    neighbour = [other if i == which else one for i, one in enumerate(owned)]
    for one in (*owned, other):
        assert np.linalg.norm(judge.gather(people(one)).total) <= bound
    here, there = (judge.gather(people(*each)).total for each in (owned, neighbour))
    assert np.isfinite(here).all()
    assert np.linalg.norm(here - there) <= 2.0 * bound * (1.0 + 1e-12)


def test_terms_that_are_huge_and_cancel_do_not_wipe_out_others() -> None:
    """One person's rewards are 1e200 and -1e200 in the same state; another's is 1."""
    wild = [([(0, 1e200, 1.0), (0, -1e200, 1.0), (0, 0.0, 1.0)], True)]
    calm = [([(0, 1.0, 1.0)], True)]
    judge = PrivateLSTD(
        OneHot(3), (-1e300, 1e300), BUDGET, 0.9, weight_cap=4.0, clip=5.0, matrix_weight=1.0
    )
    both = judge.gather(people(wild, calm)).total
    alone = [judge.gather(people(one)).total for one in (wild, calm)]
    np.testing.assert_allclose(both, alone[0] + alone[1], rtol=1e-12)
    assert alone[1][3, 0] == pytest.approx(3.0**0.5)


def test_blocks_are_clipped_jointly_dense_or_sparse() -> None:
    left = np.array([[3.0, 0.0], [0.0, 0.0], [np.inf, 0.0], [0.3, 0.0]])
    right = np.array([[4.0], [2.0], [1.0], [0.4]])
    entries = Entries(np.arange(4), np.zeros(4, dtype=np.int64), left[:, 0].copy(), 4, 2)
    for one, two in (
        (left, right),
        (sparse.csr_matrix(left), sparse.csr_matrix(right)),
        (entries, right),
    ):
        factors = joint_clip_factors((one, two), 1.0)
        np.testing.assert_allclose(factors, [0.2, 0.5, 0.0, 1.0], rtol=1e-12)
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(sum_rows(one, factors), [0.9, 0.0], rtol=1e-12)
            np.testing.assert_allclose(sum_rows(two, factors), [0.8 + 1.0 + 0.4], rtol=1e-12)


@pytest.mark.parametrize("count", [1, 2])
def test_work_overlaps_with_reading_keeps_its_order_and_is_never_far_behind(count: int) -> None:
    made: list[int] = []
    done: list[int] = []
    threads: set[int] = set()

    def items() -> Iterator[int]:
        for number in range(20):
            made.append(number)
            assert len(made) - len(done) <= 2 + count
            yield number

    def work(number: int) -> int:
        threads.add(threading.get_ident())
        done.append(number)
        return number**2

    assert list(map_in_threads(work, items(), count)) == [number**2 for number in range(20)]
    assert sorted(done) == list(range(20))
    assert count > 1 or done == list(range(20))
    assert threading.get_ident() not in threads
    with pytest.raises(ZeroDivisionError):
        list(map_in_threads(lambda number: 1 // number, [2, 1, 0, 3], count))


def test_a_stream_of_any_kind_will_do() -> None:
    data = simulated(60, 3, users=13)
    listed: Any = list(data.batches(40))
    judge = PrivateLSTD(OneHot(3), (-0.5, 2.0), BUDGET, 0.9)
    np.testing.assert_allclose(
        weights_of(judge.fit(listed, session=PrivacySession(seed=1))),
        weights_of(judge.fit(data, session=PrivacySession(seed=1))),
        rtol=1e-9,
    )
    assert isinstance(listed[0], Trajectories)
