"""Smooth sensitivity: the (epsilon, delta) statement by other means than it was calibrated with."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privrl.privacy import ApproxDP, Budget, InputError, Relation, epsilon
from privrl.privacy.accounting.losses import gaussian_delta
from privrl.privacy.mechanisms.smooth import (
    SmoothMechanism,
    published_beta,
    smooth_bound,
    wide_delta,
)
from privrl.privacy.noise import reproducible, secure
from tests.statistics import follows

CASES = [
    (eps, delta, d)
    for eps in (0.1, 1.0, 10.0)
    for delta in (1e-2, 1e-5, 1e-9)
    for d in (1, 2, 7, 60)
]


def hockey(shift: float, r: float, d: int, eps: float) -> tuple[float, float]:
    """wide and narrow of the module's docstring by SciPy's noncentral chi-square."""
    k = 1.0 - r**-2
    center = shift / k
    square = center**2 - (shift**2 - 2 * d * math.log(r) - 2 * eps) / k
    outside = stats.ncx2.sf(square / r**2, d, (center / r) ** 2)
    wide = outside - math.exp(eps) * stats.ncx2.sf(square, d, (center - shift) ** 2)
    center = shift / (r**2 - 1.0)
    square = center**2 + (2 * (d * math.log(r) - eps) + (shift / r) ** 2) / k
    if square <= 0.0:
        return float(wide), 0.0
    inside = stats.ncx2.cdf(square, d, center**2)
    narrow = inside - math.exp(eps) * stats.ncx2.cdf(square / r**2, d, ((center + shift) / r) ** 2)
    return float(wide), float(narrow)


@pytest.mark.parametrize(("eps", "delta", "d"), CASES)
def test_no_pair_inside_exceeds_delta_and_the_worst_one_meets_it(
    eps: float, delta: float, d: int
) -> None:
    plan = SmoothMechanism.from_budget(Budget(eps, delta), d)
    m = 1.0 / plan.alpha
    worst = 0.0
    rng = np.random.default_rng(d)
    spots = [*itertools.product(np.linspace(0.1, 1.0, 8), np.linspace(0.1, 1.0, 8))]
    spots += rng.uniform(0.05, 1.0, (30, 2)).tolist()
    for ratio, share in spots:
        found = hockey(m * share, math.exp(plan.beta * ratio), d, eps)
        worst = max(worst, *found)
    assert worst <= delta * (1.0 + 1e-6)
    # Not more noise than needed: the corner spends it all, unless condition (i) binds.
    if m**2 / 2.0 < eps * (1.0 - 1e-5):
        assert hockey(m, math.exp(plan.beta), d, eps)[0] >= delta * (1.0 - 1e-3)


@pytest.mark.parametrize(("eps", "delta", "d"), [(1.0, 1e-5, 1), (0.1, 1e-5, 60), (3.0, 1e-3, 7)])
def test_the_two_sides_are_monotone_as_proved(eps: float, delta: float, d: int) -> None:
    plan = SmoothMechanism.from_budget(Budget(eps, delta), d)
    m = 1.0 / plan.alpha
    ratios = np.exp(np.linspace(0.05, 1.0, 15) * plan.beta)
    by_ratio = np.array([hockey(m, r, d, eps) for r in ratios])
    assert np.all(np.diff(by_ratio[:, 0]) > 0.0)
    assert np.all(np.diff(by_ratio[:, 1]) <= 0.0)
    plain = gaussian_delta(m, eps)
    assert by_ratio[0, 1] <= plain <= by_ratio[0, 0]
    by_shift = np.array([hockey(m * x, ratios[-1], d, eps) for x in np.linspace(0.3, 1.0, 15)])
    assert np.all(np.diff(by_shift, axis=0) >= -1e-14)


def test_narrow_is_monotone_up_to_condition_two_and_not_for_ever() -> None:
    """The condition is there for a reason: far beyond it, `narrow` rises again."""
    d, eps, m = 50, 1.0, 0.2
    logs = np.linspace(1e-3, 0.3, 300)
    narrow = np.array([hockey(m, math.exp(b), d, eps)[1] for b in logs])
    within = d * (logs + np.expm1(2 * logs) / 2) <= eps
    assert within.sum() > 5
    assert np.all(np.diff(narrow[within]) <= 0.0)
    assert narrow[-1] > narrow[0]


@pytest.mark.parametrize(("eps", "delta"), [(0.5, 1e-5), (1.0, 1e-3), (4.0, 1e-8)])
def test_one_dimension_by_quadrature(eps: float, delta: float) -> None:
    plan = SmoothMechanism.from_budget(Budget(eps, delta), 1)
    m, r = 1.0 / plan.alpha, math.exp(plan.beta)

    # Gauss-Legendre in 16,000 panels; the kinks lie in two of them.
    edges = np.linspace(-40.0, 40.0, 16_001)
    nodes, weights = np.polynomial.legendre.leggauss(6)
    x = edges[:-1, None] + np.diff(edges)[:, None] * (nodes + 1.0) / 2.0

    def excess(p: tuple[float, float], q: tuple[float, float]) -> float:
        over = stats.norm.pdf(x, *p) - math.exp(eps) * stats.norm.pdf(x, *q)
        return float((np.maximum(over, 0.0) @ weights).sum() * (edges[1] - edges[0]) / 2.0)

    assert excess((0.0, r), (m, 1.0)) == pytest.approx(delta, rel=1e-4)
    assert excess((0.0, 1.0), (m, r)) < delta
    assert wide_delta(m, plan.beta, 1, eps) == pytest.approx(excess((0.0, r), (m, 1.0)), rel=1e-5)


@pytest.mark.parametrize(("eps", "delta", "d"), [(1.0, 0.02, 5), (0.5, 0.05, 40)])
def test_several_dimensions_by_simulation(eps: float, delta: float, d: int) -> None:
    """delta = E over P of max(0, 1 - e^(epsilon - loss)), with losses simulated from release."""
    plan = SmoothMechanism.from_budget(Budget(eps, delta), d)
    scale = math.exp(plan.beta)
    source, zero = secure(), np.zeros(d)
    draws = 20_000
    # Two neighbours: f = 0 with S = e^beta, and f = (1, 0, ...) with S = 1.
    x = np.array([plan.release(zero, scale, source)[0] for _ in range(draws)])
    there = np.eye(d)[0]
    loss = (
        -(x**2).sum(axis=1) / (2 * (plan.alpha * scale) ** 2)
        - d * plan.beta
        + ((x - there) ** 2).sum(axis=1) / (2 * plan.alpha**2)
    )
    gains = np.maximum(0.0, -np.expm1(eps - loss))
    # Bernstein's inequality for means of numbers in [0, 1], at one false alarm in 10^6.
    log = math.log(2e6)
    margin = math.sqrt(2 * float(gains.var()) * 1.2 * log / draws) + log / draws
    assert abs(gains.mean() - delta) < margin
    assert margin < delta / 4


def test_the_noise_has_the_promised_law_and_ten_percent_off_is_seen() -> None:
    plan = SmoothMechanism.from_budget(Budget(1.0, 1e-5), 20)
    source = secure()
    value = np.arange(20.0)
    draws = np.array([plan.release(value, 0.3, source)[0] - value for _ in range(5000)])
    law = stats.norm(0, 0.3 * plan.alpha).cdf
    assert follows(draws, law)
    for wrong in (0.9, 1.1):
        assert not follows(draws * wrong, law)
    correlations = np.corrcoef(draws.T)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 6.0 / math.sqrt(len(draws))


def test_published_constants_hold_and_calibration_needs_a_fraction_of_their_noise() -> None:
    ratios = {}
    for eps, d in itertools.product((0.1, 1.0, 10.0), (1, 20, 200)):
        budget = Budget(eps, 1e-5)
        published = SmoothMechanism.from_paper(budget, d)
        ours = SmoothMechanism.from_budget(budget, d)
        assert published.alpha == pytest.approx(5 * math.sqrt(2 * math.log(2e5)) / eps)
        assert published.beta == ours.beta == pytest.approx(eps / (4 * (d + math.log(2e5))))
        ratios[eps, d] = published.alpha / ours.alpha
    assert ratios[0.1, 1] == pytest.approx(6.59, abs=0.01)
    assert ratios[1.0, 20] == pytest.approx(5.82, abs=0.01)
    assert min(ratios.values()) == ratios[10.0, 1] == pytest.approx(2.86, abs=0.01)
    assert max(ratios.values()) == ratios[0.1, 200] == pytest.approx(7.92, abs=0.01)


def test_published_constants_are_refused_where_they_are_false() -> None:
    eps, delta, d = 100.0, 1e-5, 1
    alpha, beta = (
        5 * math.sqrt(2 * math.log(2 / delta)) / eps,
        eps / (4 * (d + math.log(2 / delta))),
    )
    assert hockey(1.0 / alpha, math.exp(beta), d, eps)[0] > 100 * delta
    with pytest.raises(InputError, match="was not found to be"):
        SmoothMechanism.from_paper(Budget(eps, delta), d)


def test_less_noise_than_proven_is_refused() -> None:
    plan = SmoothMechanism.from_budget(Budget(1.0, 1e-5), 3)
    for alpha, beta in (
        (plan.alpha * 0.999, plan.beta),
        (plan.alpha, plan.beta * 1.01),
        (1e-3, plan.beta),
        (1e9, 0.9),
        (1e9, 1e308),
    ):
        with pytest.raises(InputError, match="was not found to be"):
            SmoothMechanism(1.0, 1e-5, 3, alpha, beta)
    assert SmoothMechanism(1.0, 1e-5, 3, plan.alpha * 1.5, plan.beta).alpha == plan.alpha * 1.5


def test_alpha_grows_with_beta_from_the_plain_gaussian_mechanism() -> None:
    budget = Budget(1.0, 1e-5)
    beta = published_beta(budget, 4)
    alphas = [
        SmoothMechanism.from_budget(budget, 4, beta * factor).alpha
        for factor in (1e-9, 1e-3, 0.1, 1.0, 2.0)
    ]
    assert alphas == sorted(alphas)
    # As beta vanishes only the shift is left: the analytic Gaussian mechanism.
    assert gaussian_delta(1.0 / alphas[0], 1.0) <= 1e-5
    assert gaussian_delta(1.01 / alphas[0], 1.0) > 1e-5
    with pytest.raises(InputError, match="smaller beta"):
        SmoothMechanism.from_budget(budget, 4, 0.5)
    with pytest.raises(InputError, match="smaller beta"):
        SmoothMechanism.from_budget(budget, 4, beta * 8)
    with pytest.raises(InputError, match="use a smaller epsilon, or less of it for this"):
        SmoothMechanism.from_budget(Budget(50.0, 1e-3), 3)


def test_large_deltas_stop_at_condition_one() -> None:
    plan = SmoothMechanism.from_budget(Budget(0.01, 0.5), 1)
    assert plan.alpha == pytest.approx(1.0 / math.sqrt(0.02), rel=1e-5)


# --- smooth bounds --------------------------------------------------------------------------------

Data = tuple[int, ...]
Whole = NDArray[Any]
VALUES, SIZE = range(5), 5


def median(data: Data) -> int:
    return sorted(data)[SIZE // 2]


def neighbours(data: Data) -> list[Data]:
    return [(*data[:i], v, *data[i + 1 :]) for i in range(SIZE) for v in VALUES if v != data[i]]


def by_formula(data: Data) -> Callable[[Whole], Whole]:
    """The largest local sensitivity of the median at distance k: x_(h+t) - x_(h+t-k-1)."""
    padded = [0] * SIZE + sorted(data) + [4] * SIZE
    half = SIZE + SIZE // 2

    def local(distances: Whole) -> Whole:
        def at(place: int) -> int:
            return padded[min(max(place, 0), len(padded) - 1)]

        return np.array(
            [max(at(half + t) - at(half + t - k - 1) for t in range(k + 2)) for k in distances]
        )

    return local


def test_the_median_of_every_small_dataset() -> None:
    """Local sensitivities by enumeration; the bound is smooth over all pairs of neighbours."""
    everything = list(itertools.product(VALUES, repeat=SIZE))
    level = {x: float(max(abs(median(x) - median(y)) for y in neighbours(x))) for x in everything}
    levels = [level]
    for _ in range(SIZE):
        last = levels[-1]
        levels.append({x: max(last[x], *(last[y] for y in neighbours(x))) for x in everything})
    beta = 0.3

    def by_enumeration(x: Data) -> Callable[[Whole], Whole]:
        return lambda ks: np.array([levels[k][x] for k in ks])

    exact = {x: smooth_bound(by_enumeration(x), beta, SIZE) for x in everything}
    sloppy = {x: levels[0][x] for x in everything}
    worst, worst_sloppy = 0.0, 0.0
    for x in everything:
        brute = max(math.exp(-k * beta) * levels[k][x] for k in range(SIZE + 1))
        assert exact[x] == pytest.approx(brute, rel=1e-14)
        formula = smooth_bound(by_formula(x), beta, SIZE)
        assert formula == pytest.approx(exact[x], rel=1e-14)
        for y in neighbours(x):
            assert abs(median(x) - median(y)) <= min(exact[x], exact[y]) * (1.0 + 1e-14)
            worst = max(worst, exact[x] / exact[y])
            worst_sloppy = max(worst_sloppy, sloppy[x] / max(sloppy[y], 1e-9))
    assert worst <= math.exp(beta) * (1.0 + 1e-14)
    assert worst > math.exp(beta) * (1.0 - 1e-6)  # the search does reach the edge
    assert worst_sloppy > math.exp(beta)  # and sees the local sensitivity itself fail


def test_the_published_decay_of_squares_is_valid_and_looser() -> None:
    local = 1.0 / np.maximum(30.0 - np.arange(31.0), 1.0)
    beta = 0.2
    tight = smooth_bound(lambda ks: local[ks], beta, 30)
    loose = math.sqrt(max(math.exp(-k * beta) * x**2 for k, x in enumerate(local)))
    assert loose > tight
    assert loose == pytest.approx(smooth_bound(lambda ks: local[ks], beta / 2, 30))
    same = math.sqrt(max(math.exp(-2 * k * beta) * x**2 for k, x in enumerate(local)))
    assert same == pytest.approx(tight)


def test_bounds_are_total() -> None:
    for bad in (math.nan, math.inf, -1.0):
        assert smooth_bound(lambda _: [1.0, bad, 1.0, 1.0], 0.1, 3) == math.inf  # noqa: B023
    assert smooth_bound(lambda ks: np.zeros(ks.size), 0.1, 3) == 0.0
    assert smooth_bound(lambda ks: np.full(ks.size, 1e308), 0.1, 3) == pytest.approx(1e308)
    # e^(-k beta) alone would be zero in 64 bits; its product with L_k is not.
    far = smooth_bound(lambda ks: np.where(ks == 1000, 1e300, 0.0), 1.0, 1000)
    assert far == pytest.approx(math.exp(math.log(1e300) - 1000.0))
    assert smooth_bound(lambda ks: np.where(ks == 1000, 5e-324, 0.0), 9.0, 1000) == 0.0


# --- release --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0])
@pytest.mark.parametrize("bound", [math.nan, math.inf, -1.0, 1e308, 5e-324, 0.0, 1.0])
def test_release_is_total(value: float, bound: float) -> None:
    plan = SmoothMechanism.from_budget(Budget(1.0, 1e-5), 3)
    noised, event = plan.release([value, 1.0, -1.0], bound, secure())
    assert np.all(np.isfinite(noised))
    assert event == ApproxDP(1.0, 1e-5)
    if not bound >= 0.0 or math.isinf(bound):
        assert np.all(np.abs(noised) == np.finfo(float).max)


def test_the_event_says_nothing_about_the_scale() -> None:
    plan = SmoothMechanism.from_budget(Budget(1.0, 1e-5), 1, relation=Relation.ADD_REMOVE)
    events = {plan.release([0.0], scale, secure())[1] for scale in (1e-9, 1.0, 1e9)}
    assert events == {ApproxDP(1.0, 1e-5, relation=Relation.ADD_REMOVE)}
    assert epsilon(plan.event, 1e-5, Relation.ADD_REMOVE) == pytest.approx(1.0)


def test_bad_parameters() -> None:
    budget = Budget(1.0, 1e-5)
    with pytest.raises(InputError, match="never pure"):
        SmoothMechanism.from_paper(Budget(1.0), 2)
    with pytest.raises(InputError, match="at most 100"):
        SmoothMechanism.from_budget(Budget(1000.0, 1e-5), 2)
    with pytest.raises(InputError, match="dimension"):
        SmoothMechanism.from_budget(budget, 0)
    with pytest.raises(InputError, match="beta must be positive"):
        SmoothMechanism.from_budget(budget, 2, 0.0)
    with pytest.raises(InputError, match="alpha must be positive"):
        SmoothMechanism(1.0, 1e-5, 2, math.inf, 0.01)
    plan = SmoothMechanism.from_budget(budget, 2)
    for value in ([1.0], 1.0, [[1.0, 2.0]], []):
        with pytest.raises(InputError, match="2 entries"):
            plan.release(value, 1.0, secure())
    with pytest.raises(InputError, match="must be a number"):
        plan.release(["a", "b"], 1.0, secure())
    with pytest.raises(InputError, match="one number"):
        plan.release([1.0, 2.0], [1.0, 2.0], secure())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must give 4 numbers"):
        smooth_bound(lambda ks: [1.0], 0.1, 3)
    with pytest.raises(InputError, match="max_distance"):
        smooth_bound(lambda ks: [1.0], 0.1, 0)
    with pytest.raises(InputError, match="max_distance must be at most"):
        smooth_bound(lambda ks: [1.0], 0.1, 2**50)
    with pytest.raises(InputError, match="use a larger alpha"):
        SmoothMechanism(1.0, 1e-5, 1, 1e-200, 0.01)
    for make in (SmoothMechanism.from_budget, SmoothMechanism.from_paper):
        with pytest.raises(InputError, match="delta must be above 1e-100"):
            make(Budget(100.0, 1e-300), 1)
    assert SmoothMechanism.from_budget(Budget(1.0, 1e-99), 1).alpha > 1.0


def test_whole_numbers_beyond_all_range() -> None:
    huge = 10**400
    plan = SmoothMechanism.from_budget(Budget(1.0, 1e-5), 2)
    found = [plan.release([x, 1.0], 1.0, reproducible(1))[0] for x in (huge, -huge, 0.0)]
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[2])
    for bound in (huge, -huge):
        noised = plan.release([0.0, 0.0], bound, secure())[0]
        assert np.all(np.abs(noised) == np.finfo(float).max)
    assert smooth_bound(lambda ks: [huge] * len(ks), 0.1, 3) == math.inf
