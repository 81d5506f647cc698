"""Intervals against formulas done by hand, and by coverage where the law is known."""

import math

import numpy as np
import pytest
from scipy import stats

from privrl.evaluation import intervals
from privrl.evaluation.intervals import Contributions
from privrl.privacy import InputError
from tests.statistics import FALSE_ALARM


def ratio(above: np.ndarray, below: np.ndarray) -> Contributions:
    return Contributions(np.zeros(len(above)), above[:, None], below[:, None])


def low_coverage(hits: int, rounds: int, level: float) -> bool:
    """Whether so few hits would happen less than once in 10^6 at the nominal level."""
    return bool(stats.binom.cdf(hits, rounds, level) < FALSE_ALARM)


def test_student_is_two_sided() -> None:
    values = np.array([1.0, 2.0, 4.0, 9.0])
    found = intervals.student(Contributions.average(values), 0.95)
    low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_student_covers_normal_means_as_often_as_it_says(level: float) -> None:
    rounds = 4000
    draws = np.random.default_rng().normal(3.0, 2.0, (rounds, 8))
    hits = sum(3.0 in intervals.student(Contributions.average(one), level) for one in draws)
    # Exact for normal values: both too few and too many are wrong. The one-sided quantile would
    # cover 2 level - 1, which this must be able to see.
    assert stats.binomtest(hits, rounds, level).pvalue > FALSE_ALARM
    assert low_coverage(int(rounds * (2 * level - 1)), rounds, level)


def test_influence_is_the_derivative() -> None:
    draws = np.random.default_rng(1)
    n = 12
    data = Contributions(
        draws.normal(size=n), draws.normal(size=(n, 3)), draws.random((n, 3)) + 0.1
    )
    step = 1e-6
    for i in range(n):
        weights = np.ones(n)
        weights[i] += step

        def value(w: np.ndarray) -> float:
            plain = float(w @ data.plain / w.sum())
            return plain + float(((w @ data.numerators) / (w @ data.denominators)).sum())

        slope = (value(weights) - value(np.ones(n))) / step
        assert data.influence[i] / n == pytest.approx(slope, abs=1e-5)
    assert data.influence.mean() == pytest.approx(0.0, abs=1e-14)


def test_bernstein_by_hand_and_within_bounds() -> None:
    values = np.linspace(0.0, 1.0, 2001)
    found = intervals.bernstein(Contributions.average(values), 0.9, (-1.0, 2.0))
    log = math.log(40.0)
    half = math.sqrt(2 * values.var(ddof=1) * log / 2001) + 7 * 3.0 * log / (3 * 2000)
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half))
    with pytest.raises(InputError, match="do not hold"):
        intervals.bernstein(Contributions.average(values), 0.9, (0.0, 0.9))
    with pytest.raises(InputError, match="averages"):
        intervals.bernstein(ratio(values, values), 0.9, (0.0, 1.0))
    alone = intervals.bernstein(Contributions.average(values[:1]), 0.9, (-1.0, 2.0))
    assert (alone.low, alone.high) == (-1.0, 2.0)


def test_bernstein_holds_where_student_does_not() -> None:
    """A rare, large value: bounded by declaration, unseen in most samples."""
    rounds, n, p = 3000, 40, 0.02
    draws = np.random.default_rng()
    student = bernstein = 0
    for _ in range(rounds):
        one = Contributions.average(np.where(draws.random(n) < p, 1.0, 0.0))
        student += p in intervals.student(one, 0.9)
        bernstein += p in intervals.bernstein(one, 0.9, (0.0, 1.0))
    assert low_coverage(student, rounds, 0.9)
    assert not low_coverage(bernstein, rounds, 0.9)


def test_fieller_solves_its_own_inequality_and_knows_when_it_cannot() -> None:
    draws = np.random.default_rng(2)
    below = draws.random(50) + 0.2
    above = 0.7 * below + 0.1 * draws.normal(size=50)
    found = intervals.fieller(ratio(above, below), 0.95)
    t = stats.t.ppf(0.975, 49)
    for end in (found.low, found.high):
        left = above - end * below
        assert abs(left.mean()) == pytest.approx(t * left.std(ddof=1) / math.sqrt(50))
    unsure = np.where(np.arange(50) == 0, 1.0, 0.0)
    assert intervals.fieller(ratio(unsure, unsure), 0.95).high == math.inf
    with pytest.raises(InputError, match="single ratio"):
        intervals.fieller(Contributions.average(above), 0.95)


def test_the_bootstrap_resamples_denominators_too() -> None:
    """With numerator proportional to denominator the ratio is certain, though both vary."""
    below = np.random.default_rng(3).random(100)
    sure = intervals.bootstrap(ratio(2.0 * below, below), 0.95, 200)
    assert (sure.low, sure.high) == pytest.approx((2.0, 2.0))
    # Weights normalised once: only the numerator would vary, and the interval would be wide.
    wrong = intervals.bootstrap(Contributions.average(2.0 * below / below.mean()), 0.95, 200)
    assert wrong.high - wrong.low > 0.1


def test_bootstrap_and_delta_agree_on_large_samples() -> None:
    draws = np.random.default_rng(4)
    below = draws.gamma(1.0, size=4000)
    data = ratio(below * draws.normal(1.0, 1.0, 4000), below)
    one, other = intervals.bootstrap(data, 0.9, 2000), intervals.student(data, 0.9)
    assert one.high - one.low == pytest.approx(other.high - other.low, rel=0.1)
    assert one.parts["sampling"] == pytest.approx(other.parts["sampling"], rel=0.2)


def test_few_units_and_wrong_levels() -> None:
    single = Contributions.average(np.array([1.0]))
    assert intervals.student(single, 0.9).high == math.inf
    assert intervals.fieller(ratio(np.ones(1), np.ones(1)), 0.9).low == -math.inf
    nothing = ratio(np.array([0.0, 0.0]), np.array([0.0, 0.0]))
    with pytest.raises(InputError, match="nothing in common"):
        _ = nothing.estimate
    assert intervals.bootstrap(nothing, 0.9, 5).high == math.inf
    for level in (0.0, 1.0, "high"):
        with pytest.raises(InputError, match="level"):
            intervals.student(single, level)  # type: ignore[arg-type]


def test_means_over_units() -> None:
    values = np.array([[1.0], [3.0], [10.0]])
    found = intervals.mean_by_unit(values, np.array([0, 0, 1]), 2)
    np.testing.assert_array_equal(found, [[2.0], [10.0]])


@pytest.mark.parametrize("kind", ["student", "bootstrap", "fieller"])
def test_one_unit_with_all_the_weight_says_nothing_of_the_spread(kind: str) -> None:
    """Its pull on the ratio is 0, as everybody's is: no spread would look like certainty."""
    alone = Contributions(np.zeros(50), np.eye(50, 1) * 0.3, np.eye(50, 1))
    assert alone.estimate == pytest.approx(0.3)
    np.testing.assert_allclose(alone.influence, 0.0, atol=1e-15)
    found = getattr(intervals, kind)(alone, 0.95)
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert not ratio(np.arange(3.0), np.array([0.0, 1.0, 1.0])).is_degenerate
    assert not Contributions.average(np.arange(3.0)).is_degenerate


@pytest.mark.parametrize("level", [0.0, 1.0, 1.0 - 2.0**-53, -0.5, math.nan])
def test_levels_without_a_finite_quantile_are_refused(level: float) -> None:
    with pytest.raises(InputError, match="level"):
        intervals.influence_interval(1.0, np.zeros(3), level)
