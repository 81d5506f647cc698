"""Piecewise and hybrid reports: exact odds for every cell, unbiased, with the variance on paper."""

import itertools
import math
from decimal import Decimal, localcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate

from privrl.privacy import InputError, PureDP, Relation
from privrl.privacy.mechanisms import piecewise
from privrl.privacy.mechanisms.piecewise import HybridMechanism, PiecewiseMechanism
from privrl.privacy.noise import reproducible, secure
from tests.statistics import follows, follows_discrete

Floats = NDArray[np.floating[Any]]

nasty = st.one_of(
    st.floats(width=64, allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-310, 1e-160, 1.0, 1e154, 1e308, -1e308]),
    st.floats(-2.0, 2.0),
)
KINDS = [PiecewiseMechanism, HybridMechanism]


def density(eps: float, t: float, x: Floats) -> Floats:
    """The density on paper of one piecewise report."""
    e = math.exp(eps / 2)
    c = (e + 1) / (e - 1)
    low = (c + 1) * t / 2 - (c - 1) / 2
    inside = (x >= low) & (x <= low + c - 1)
    p = e / (e + 1)
    return np.where(np.abs(x) <= c, np.where(inside, p / (c - 1), (1 - p) / (c + 1)), 0.0)


def distribution(eps: float, t: float, x: Floats) -> Floats:
    """Its distribution function, from the integral of two steps."""
    e = math.exp(eps / 2)
    c = (e + 1) / (e - 1)
    low = (c + 1) * t / 2 - (c - 1) / 2
    p = e / (e + 1)
    within = np.clip(x - low, 0.0, c - 1)
    return np.asarray(p * within / (c - 1) + (1 - p) * (np.clip(x, -c, c) + c - within) / (c + 1))


@settings(max_examples=200)
@given(st.floats(1e-5, 200.0))
def test_cells_are_at_most_e_to_the_epsilon_likelier(eps: float) -> None:
    """The ratio of inside to outside, to sixty digits; any two windows, so any two inputs."""
    plan = PiecewiseMechanism(eps)
    n, w = piecewise.CELLS, plan.window
    x = Decimal(plan.epsilon_per_part.numerator) / Decimal(plan.epsilon_per_part.denominator)
    with localcontext(prec=60):
        odds = (x / 2).exp()
        ratio = odds * Decimal(n - w) / Decimal(w)
        assert ratio <= Decimal(eps).exp()
        # Tight as long as the window has many cells.
        if 0.01 < eps < 20.0:
            assert ratio >= x.exp() * (1 - Decimal("1e-6"))
    assert 1 <= w < n
    assert plan.event == PureDP(eps, relation=Relation.LOCAL)


@pytest.mark.parametrize("t", [-1.0, -0.31, 0.0, 0.77, 1.0])
def test_all_cells_of_a_coarse_interval(t: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 24 cells the whole law is enumerated: mass 1, mean t, ratio, and what is drawn."""
    monkeypatch.setattr(piecewise, "CELLS", 24)
    plan = PiecewiseMechanism(1.5)
    law = _enumerated(plan, t)
    assert law.sum() == pytest.approx(1.0, rel=1e-12)
    assert law @ plan.values(np.arange(24)) == pytest.approx(t, abs=1e-12)
    other = _enumerated(plan, -0.9 * t)
    assert np.max(law / other) <= math.exp(1.5)
    drawn = plan.cells(np.full(400_000, t), secure())
    assert follows_discrete(drawn, dict(enumerate(law.tolist())))
    wrong = _enumerated(PiecewiseMechanism(1.65), t)
    assert not follows_discrete(drawn, dict(enumerate(wrong.tolist())))


def _enumerated(plan: PiecewiseMechanism, t: float) -> Floats:
    n, w = piecewise.CELLS, plan.window
    p = 1 / (1 + math.exp(-float(plan.epsilon_per_part) / 2))
    place = (1 + t) * (n - w) / 2
    law = np.zeros(n)
    for j in range(n - w + 1):
        weight = max(0.0, 1 - abs(place - j))
        inside = (np.arange(n) >= j) & (np.arange(n) < j + w)
        law += weight * np.where(inside, p / w, (1 - p) / (n - w))
    return law


@pytest.mark.parametrize("eps", [0.3, 1.0, 2.4, 6.0])
@pytest.mark.parametrize("t", [-1.0, -0.4, 0.0, 0.9])
def test_variance_is_the_integral_of_the_law_on_paper(eps: float, t: float) -> None:
    e = math.exp(eps / 2)
    c = (e + 1) / (e - 1)
    low = (c + 1) * t / 2 - (c - 1) / 2
    edges = sorted({-c, low, low + c - 1, c})

    def moment(k: int) -> float:
        def f(x: float) -> float:
            return float(density(eps, t, np.array(x))) * x**k

        pieces = itertools.pairwise(edges)
        return math.fsum(
            integrate.quad(f, a + 1e-13, b - 1e-13)[0] for a, b in pieces if b - a > 1e-9
        )

    assert moment(0) == pytest.approx(1.0, abs=1e-9)
    assert moment(1) == pytest.approx(t, abs=1e-9)
    # In one dimension nothing is split, whatever epsilon.
    plan = PiecewiseMechanism(eps)
    assert float(plan.variance(t)) == pytest.approx(moment(2) - t**2, rel=1e-8)
    hybrid = HybridMechanism(eps)
    bit = (math.exp(eps) + 1) / (math.exp(eps) - 1)
    share = 1.0 if eps <= 0.61 else math.exp(-eps / 2)
    second = (1 - share) * moment(2) + share * bit**2
    assert float(hybrid.variance(t)) == pytest.approx(second - t**2, rel=1e-8)


def test_where_the_hybrid_turns_to_one_bit() -> None:
    """At the threshold its largest variance meets that of one bit; it never exceeds either's."""
    x = piecewise.THRESHOLD
    assert x == pytest.approx(0.61, abs=0.005)
    e = math.exp(x / 2)
    mixed = (e + 3) / (3 * e * (e - 1)) + (e**2 + 1) ** 2 / (e * (e**2 - 1) ** 2)
    assert ((e**2 + 1) / (e**2 - 1)) ** 2 == pytest.approx(mixed, rel=1e-12)
    for eps in (0.2, 0.6, 0.62, 1.0, 2.0, 4.9):
        grid = np.linspace(-1, 1, 101)
        hybrid = float(np.max(HybridMechanism(eps).variance(grid)))
        bit = 1 / math.tanh(eps / 2) ** 2
        most = float(np.max(PiecewiseMechanism(eps).variance(grid)))
        assert hybrid <= min(bit, most) * (1 + 1e-11)


@pytest.mark.parametrize("t", [-1.0, 0.2, 0.95])
def test_reports_have_the_law_on_paper_and_ten_percent_off_is_seen(t: float) -> None:
    n = 100_000
    found = PiecewiseMechanism(2.0).release(np.full((n, 1), t), secure())[0]
    assert follows(found, lambda x: distribution(2.0, t, x))
    for wrong in (1.8, 2.2):
        assert not follows(found, partial(distribution, wrong, t))


@pytest.mark.parametrize("t", [-0.9, 0.9])
def test_hybrid_reports_have_the_law_on_paper_and_ten_percent_off_is_seen(t: float) -> None:
    n = 400_000
    found = HybridMechanism(2.0).release(np.full((n, 1), t), secure())[0]
    assert _hybrid_follows(found, 2.0, t)
    assert not _hybrid_follows(found, 1.8, t)
    assert not _hybrid_follows(found, 2.2, t)
    one_bit = HybridMechanism(0.5).release(np.full((n, 1), t), secure())[0]
    size = 1 / math.tanh(0.25)
    assert set(np.unique(np.abs(one_bit)).tolist()) == {size}
    for eps, accepted in ((0.5, True), (0.45, False), (0.55, False)):
        law = {1: 0.5 + t / 2 * math.tanh(eps / 2), -1: 0.5 - t / 2 * math.tanh(eps / 2)}
        assert follows_discrete(np.sign(one_bit).astype(int), law) == accepted


def _hybrid_follows(found: Floats, eps: float, t: float) -> bool:
    """Atoms of one bit and the rest, each against its own law."""
    size = 1 / math.tanh(1.0)
    atoms = np.isclose(np.abs(found), size, rtol=1e-13)
    share = math.exp(-eps / 2)
    plus = 0.5 + t / 2 * math.tanh(eps / 2)
    kinds = np.where(atoms, np.sign(found), 0).astype(int)
    law = {0: 1 - share, 1: share * plus, -1: share * (1 - plus)}
    rest = found[~atoms]
    return follows_discrete(kinds, law) and follows(rest, lambda x: distribution(eps, t, x))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("eps", "sampled"), [(1.0, 1), (5.0, 2), (11.0, 4), (100.0, 6)])
def test_vectors_are_unbiased_with_the_error_on_paper(
    kind: type[PiecewiseMechanism], eps: float, sampled: int
) -> None:
    plan = kind(eps, 6, 2.0)
    assert plan.num_sampled == sampled
    row = np.array([2.0, -1.3, 0.0, 0.4, -2.0, 1.0])
    n = 200_000
    reports, event = plan.release(np.tile(row, (n, 1)), secure())
    assert event == PureDP(eps, relation=Relation.LOCAL)
    assert np.all(np.sum(reports != 0.0, axis=1) <= sampled)
    spread = np.std(reports, axis=0) / math.sqrt(n)
    assert np.all(np.abs(np.mean(reports, axis=0) - row) < 5.5 * spread)
    along = reports @ row / (row @ row)
    assert abs(np.mean(along) - 1.1) > 5.0 * np.std(along) / math.sqrt(n)
    squares = np.sum((reports - row) ** 2, axis=1)
    gap = abs(np.mean(squares) - plan.error(row)) * math.sqrt(n) / np.std(squares)
    assert gap < 5.0
    # Each coordinate is drawn as often as any other.
    chosen = np.nonzero(reports)[1]
    if sampled < 6:
        assert follows_discrete(chosen, dict.fromkeys(range(6), 1 / 6))


@settings(max_examples=100)
@given(
    st.lists(st.lists(nasty, min_size=4, max_size=4), min_size=1, max_size=3),
    st.sampled_from(KINDS),
    st.sampled_from([0.1, 1.0, 6.0, 50.0]),
)
def test_any_row_gives_a_report_in_range(
    rows: list[list[float]], kind: type[PiecewiseMechanism], eps: float
) -> None:
    plan = kind(eps, 4, 0.5)
    reports, _ = plan.release(rows, secure())
    largest = max(
        1 / math.tanh(float(plan.epsilon_per_part) / 4),
        1 / math.tanh(float(plan.epsilon_per_part) / 2),
    )
    assert np.all(np.abs(reports) <= 0.5 * 4 / plan.num_sampled * largest * (1 + 1e-9))


@pytest.mark.parametrize("kind", [PiecewiseMechanism, HybridMechanism])
def test_whole_numbers_beyond_all_range_are_not_finite(kind: type[PiecewiseMechanism]) -> None:
    plan = kind(3.0, 2)
    found = [plan.release([row, [1, 0]], reproducible(1))[0] for row in ([-(10**400), 1], [0, 0])]
    np.testing.assert_array_equal(found[0], found[1])
    with pytest.raises(InputError, match="t must be"):
        plan.variance("a")


def test_rows_that_are_not_finite_count_as_zeros() -> None:
    plan = PiecewiseMechanism(1.0, 3)
    # A window at the centre, whatever stands beside the NaN: the middle of the law on paper.
    found = plan.release(np.tile([math.nan, 1.0, 1.0], (60_000, 1)), secure())[0]
    values = found[found != 0.0] / 3.0
    assert follows(values, lambda x: distribution(1.0, 0.0, x))
    assert not follows(values, lambda x: distribution(1.0, 0.2, x))


@pytest.mark.parametrize("kind", KINDS)
def test_huge_budgets_report_all_but_the_truth(kind: type[PiecewiseMechanism]) -> None:
    plan = kind(1e5, 2)
    rows = np.tile([0.25, -1.0], (1000, 1))
    np.testing.assert_allclose(plan.release(rows, secure())[0], rows, atol=1e-11)
    assert plan.error(rows[0]) < 1e-20


def test_shapes() -> None:
    for kind in KINDS:
        plan = kind(6.0, 3)
        for shape in ((3,), (0, 3), (5, 3)):
            assert plan.release(np.zeros(shape), secure())[0].shape == shape
        with pytest.raises(InputError, match="rows must be"):
            plan.release(np.zeros((2, 4)), secure())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1e-7}, "too small"),
        ({"dimension": 0}, "dimension"),
        ({"radius": -1.0}, "radius"),
        ({"radius": 1e300}, "out of range"),
    ],
)
def test_bad_parameters(
    kind: type[PiecewiseMechanism], arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        kind(**{"epsilon": 1.0, "dimension": 3, **arguments})  # type: ignore[arg-type]
