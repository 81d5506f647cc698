"""Calibration: never overspends, and never wastes more than the tolerance."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.privacy import (
    Budget,
    DiscreteLaplace,
    Event,
    FixedSizeSampled,
    Gaussian,
    InputError,
    Laplace,
    PoissonSampled,
    PureDP,
    Relation,
    Repeated,
    calibrate,
    delta,
    epsilon,
)
from privrl.privacy.accounting.roots import brent

AR, RO, LO = Relation.ADD_REMOVE, Relation.REPLACE_ONE, Relation.LOCAL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "relation"),
    [
        (lambda s: Gaussian(s, 1), RO),
        (lambda s: Repeated(Gaussian(s, 1), 10_000), AR),
        (lambda s: [Gaussian(s, 1), Laplace(3 * s, 1)], RO),
        (lambda s: Repeated(PoissonSampled(Gaussian(s, 1), 0.01), 100), AR),
        (lambda s: Repeated(FixedSizeSampled(Gaussian(s, 1), 1000), 100), RO),
        (lambda s: DiscreteLaplace(s, 3), AR),
    ],
)
@pytest.mark.parametrize("budget", [Budget(0.1, 1e-6), Budget(1.0, 1e-5), Budget(8.0, 1e-5)])
def test_noise_just_suffices(
    build: Callable[[float], Event], relation: Relation, budget: Budget
) -> None:
    found = calibrate(build, budget, relation)
    assert delta(build(found), budget.epsilon, relation) <= budget.delta
    assert delta(build(found * (1 - 1e-4)), budget.epsilon, relation) > budget.delta


@settings(max_examples=50)
@given(st.floats(0.01, 50.0), st.sampled_from([1e-3, 1e-6, 1e-9]), st.floats(1e-6, 1e6))
def test_gaussian_calibration_is_exact(eps: float, d: float, bound: float) -> None:
    std = calibrate(lambda s: Gaussian(s * bound, bound), Budget(eps, d), RO)
    spent = epsilon(Gaussian(std * bound, bound), d, RO)
    assert eps * (1 - 1e-5) <= spent <= eps * (1 + 1e-12)


def test_known_analytic_gaussian() -> None:
    # Balle and Wang 2018: sensitivity 1, epsilon 1, delta 1e-5.
    assert calibrate(lambda s: Gaussian(s, 1), Budget(1.0, 1e-5), AR) == pytest.approx(
        3.730632, abs=1e-5
    )


def test_pure_budget() -> None:
    scale = calibrate(lambda s: Laplace(s, 1), Budget(0.5), LO)
    assert scale == pytest.approx(4.0, rel=1e-6)
    assert epsilon(Laplace(scale, 1), 0.0, LO) <= 0.5


@pytest.mark.slow
def test_what_costs_more_the_larger_it_is() -> None:
    steps = calibrate(lambda n: Repeated(Gaussian(20, 1), int(n)), Budget(1.0, 1e-5), whole=True)
    assert isinstance(steps, int)
    assert epsilon(Repeated(Gaussian(20, 1), steps), 1e-5) <= 1.0
    assert epsilon(Repeated(Gaussian(20, 1), steps + 1), 1e-5) > 1.0
    rate = calibrate(
        lambda q: Repeated(PoissonSampled(Gaussian(1, 1), q), 100), Budget(1.0, 1e-5), AR
    )
    assert 0.0 < rate < 1.0
    assert epsilon(Repeated(PoissonSampled(Gaussian(1, 1), rate), 100), 1e-5, AR) <= 1.0
    assert epsilon(Repeated(PoissonSampled(Gaussian(1, 1), rate * 1.01), 100), 1e-5, AR) > 1.0


@pytest.mark.parametrize(
    ("build", "budget", "sentence"),
    [
        (lambda s: PureDP(2.0), Budget(1.0, 1e-6), "No parameter stays within"),
        (lambda s: PureDP(0.5), Budget(1.0), "Every parameter stays within"),
        (lambda s: Gaussian(s, 1), Budget(1.0), "No parameter stays within"),
    ],
)
def test_nothing_to_find(build: Callable[[float], Event], budget: Budget, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        calibrate(build, budget)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_budgets(bad: float) -> None:
    with pytest.raises(InputError):
        Budget(bad, 1e-5)
    with pytest.raises(InputError):
        Budget(1.0, bad if bad != 0.0 else 1.0)


CURVES: dict[str, Callable[[float, float], float]] = {
    "line": lambda x, slope: slope * x,
    "cubic": lambda x, slope: slope * x**3,
    "root": lambda x, slope: math.copysign(abs(x) ** 0.5, x) * slope,
    "exponential": lambda x, slope: math.expm1(30.0 * x) * slope,
    "cut": lambda x, slope: max(slope * x, -0.01),
    "jump": lambda x, slope: slope if x >= 0.0 else -1.0,
}


@given(
    curve=st.sampled_from(sorted(CURVES)),
    root=st.floats(0.0, 1.0, exclude_min=True),
    slope=st.floats(1e-12, 1e12),
    falls=st.booleans(),
    tolerance=st.floats(1e-15, 1e-3),
)
def test_roots_are_those_of_scipy_bit_for_bit(
    curve: str, root: float, slope: float, falls: bool, tolerance: float
) -> None:
    from scipy.optimize import brentq

    def function(x: float) -> float:
        return (-1.0 if falls else 1.0) * CURVES[curve](x - root, slope)

    expected = brentq(function, 0.0, 1.0, xtol=tolerance, disp=False)
    assert brent(function, 0.0, 1.0, tolerance) == expected
