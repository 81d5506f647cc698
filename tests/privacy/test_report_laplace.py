"""Laplace reports: each agent's own noise, of the promised law, at the promised price."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from privrl.privacy import InputError, Laplace, Relation, epsilon, exact
from privrl.privacy.mechanisms.report_laplace import GridLaplaceReport, LaplaceReport, as_rows
from privrl.privacy.noise import Source, reproducible, secure
from tests.statistics import follows, follows_discrete

nasty = st.one_of(
    st.floats(width=64, allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-310, 1e-160, 1.0, 1e154, 1e308, -1e308]),
    st.floats(-2.0, 2.0),
)
rows = st.lists(nasty, min_size=3, max_size=3)
Plan = LaplaceReport | GridLaplaceReport


@settings(max_examples=200)
@given(rows, rows, st.floats(0.01, 100.0), st.floats(1e-3, 1e3))
@example([0.0, 0.0, 414.0], [0.0, 0.0, -414.0], 1 / 3, 413.2890625)
def test_no_two_inputs_are_further_apart_than_the_event_says(
    first: list[float], second: list[float], eps: float, radius: float
) -> None:
    """The likelihood ratio of Laplace noise is exp(L1 distance / scale): counted exactly."""
    plan = LaplaceReport(eps, 3, radius)
    assert plan.event == Laplace(plan.mechanism.scale, radius)
    # The same seed gives the same noise, so that reports of zeros tell what it was.
    means = [_without_noise(plan, row) for row in (first, second)]
    apart = sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(*means, strict=True))
    assert apart / Fraction(plan.mechanism.scale) <= Fraction(eps)
    grid = GridLaplaceReport(eps, 3, radius)
    clipped = [grid.mechanism.to_grid([row])[0] for row in (first, second)]
    steps = int(np.sum(np.abs(clipped[0] - clipped[1])))
    assert Fraction(steps, grid.mechanism.width) <= Fraction(eps)
    for row in (first, second):
        for p in (plan, grid):
            assert np.all(np.isfinite(p.release(row, secure())[0]))


def _without_noise(plan: LaplaceReport, row: list[float]) -> list[float]:
    class Silent(np.random.Generator):
        def laplace(self, *args: object) -> object:  # type: ignore[override]
            return 0.0

    quiet = reproducible(0)
    source = Source(Silent(np.random.PCG64(0)), quiet.origin)
    return [float(x) for x in plan.release(row, source)[0]]


@pytest.mark.parametrize("eps", [0.1, 1.0, 2.0, 5.0, 10.0, 1 / 3])
@pytest.mark.parametrize("kind", [LaplaceReport, GridLaplaceReport])
def test_a_report_costs_epsilon(kind: type[Plan], eps: float) -> None:
    spent = epsilon(kind(eps, 112, 0.005).event, 0.0, Relation.LOCAL)
    assert eps * 0.999 <= spent <= eps * (1 + 1e-15)


def test_the_paper_is_reproduced() -> None:
    """Clipping size C = 0.01: L1 norm at most C/2, noise of scale C / epsilon."""
    plan = LaplaceReport(2.0, 112, 0.005)
    assert plan.mechanism.scale == pytest.approx(0.01 / 2.0)
    g = np.full(112, 3.0)
    mean = np.mean(plan.release(np.tile(g, (4000, 1)), secure())[0], axis=0)
    # Six standard errors for each of 112 coordinates: less than one false alarm in 10^6.
    assert np.max(np.abs(mean - 0.005 / 112)) < 6.0 * math.sqrt(2.0) * 0.005 / math.sqrt(4000)


def test_float_noise_has_the_promised_law_and_ten_percent_off_is_seen() -> None:
    plan = LaplaceReport(1.5, 4, 0.6)
    row = [0.1, -0.2, 0.0, 0.05]
    reports, _ = plan.release(np.tile(row, (50_000, 1)), secure())
    noise = reports - row
    assert follows(noise, stats.laplace(0, 0.8).cdf)
    for wrong in (0.9, 1.1):
        assert not follows(noise * wrong, stats.laplace(0, 0.8).cdf)
    assert np.mean(np.sum(noise**2, axis=1)) == pytest.approx(plan.error, rel=0.03)
    # Each agent's noise is its own, and so is each coordinate's: six standard errors.
    for a, b in ((noise[:-1, 0], noise[1:, 0]), (noise[:, 0], noise[:, 1])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 6.0 / math.sqrt(len(a))


def test_grid_noise_has_the_promised_law_and_ten_percent_off_is_seen() -> None:
    plan = GridLaplaceReport(1.0, 2, 1.0)
    step, width = plan.mechanism.step, plan.mechanism.width
    reports, _ = plan.release(np.tile([0.25, math.nan], (50_000, 1)), secure())
    np.testing.assert_array_equal(reports, np.rint(reports / step) * step)
    # The row is not finite, so both coordinates are zeros plus noise.
    integers = np.rint(reports / step).astype(np.int64)
    bins = width // 20
    counted = integers // bins

    def law(scale: float) -> dict[int, float]:
        k = np.arange(-200 * bins, 200 * bins)
        mass = np.exp(-np.abs(k) / scale)
        masses = mass.reshape(-1, bins).sum(axis=1) / mass.sum()
        return {i - 200: float(m) for i, m in enumerate(masses)}

    assert follows_discrete(counted, law(width))
    assert not follows_discrete(counted, law(width * 0.9))
    assert not follows_discrete(counted, law(width * 1.1))
    assert np.mean(np.sum(reports**2, axis=1)) == pytest.approx(plan.error, rel=0.03)


def test_the_error_on_the_grid_is_the_sum_over_its_law() -> None:
    plan = GridLaplaceReport(3.0, 5, 2.0)
    k = np.arange(-60 * plan.mechanism.width, 60 * plan.mechanism.width + 1, dtype=np.float64)
    mass = np.exp(-np.abs(k) / plan.mechanism.width)
    variance = np.sum(k**2 * mass) / np.sum(mass)
    assert plan.error == pytest.approx(5 * variance * plan.mechanism.step**2, rel=1e-9)
    assert plan.error == pytest.approx(LaplaceReport(3.0, 5, 2.0).error, rel=1e-3)


@pytest.mark.parametrize("dimension", [1, 2, 112, 5000])
@pytest.mark.parametrize("eps", [10.0, 1.0, 0.1, 0.03, 1e-4])
def test_the_grid_keeps_the_signal(eps: float, dimension: int) -> None:
    """Dense rows lose no more than 1/4096, at any epsilon, and the noise stays quick and tight."""
    plan = GridLaplaceReport(eps, dimension, 0.7)
    row = np.full((1, dimension), 0.7 / dimension)
    kept = plan.mechanism.to_grid(row).sum() * plan.mechanism.step
    assert 0.7 * (1 - 1 / 4096) - 1e-9 <= kept <= 0.7
    assert plan.error == pytest.approx(LaplaceReport(eps, dimension, 0.7).error, rel=1e-3)
    assert plan.mechanism.width < exact._SAFE // 2**16
    assert epsilon(plan.event, 0.0, Relation.LOCAL) <= eps


def test_jax_reports_have_the_same_law() -> None:
    import jax

    from privrl.privacy.mechanisms.report_laplace_jax import reports as jax_reports

    plan = LaplaceReport(1.5, 4, 0.6)
    given_rows = np.tile([[0.1, -0.2, 0.0, 0.05], [9.0, 0.0, 0.0, 0.0]], (25_000, 1))
    given_rows[0] = [math.nan, 1.0, 1.0, 1.0]
    key = secure().key()
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(lambda x, k: jax_reports(plan, x, k))(given_rows, key))
    assert found.dtype == np.float64
    clipped = np.tile([[0.1, -0.2, 0.0, 0.05], [0.6, 0.0, 0.0, 0.0]], (25_000, 1))
    clipped[0] = 0.0
    noise = found - clipped
    assert follows(noise, stats.laplace(0, plan.mechanism.scale).cdf)
    assert not follows(noise * 1.1, stats.laplace(0, plan.mechanism.scale).cdf)
    other = plan.release(given_rows, secure())[0] - clipped
    assert stats.ks_2samp(noise.ravel(), other.ravel()).pvalue > 1e-6
    assert stats.ks_2samp(noise.ravel(), 1.1 * other.ravel()).pvalue < 1e-6
    with pytest.raises(InputError, match="64 bits"):
        jax_reports(plan, jax.numpy.zeros((2, 4)), key)
    with pytest.raises(InputError, match="4 columns"):
        jax_reports(plan, jax.numpy.zeros((2, 3)), key)


@pytest.mark.parametrize("kind", [LaplaceReport, GridLaplaceReport])
def test_wire_form(kind: type[Plan]) -> None:
    plan = kind(1.0, 3, 1.0)
    report, _ = plan.release([0.1, 0.2, -0.3], secure())
    data = plan.encode(report)
    assert len(data) == 24
    np.testing.assert_array_equal(plan.decode(data), report)
    for bad in (data[:-1], data + b"\0", b"", "text", None):
        with pytest.raises(InputError, match="24 bytes"):
            plan.decode(bad)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="3 numbers"):
        plan.encode([1.0, 2.0])
    for odd in (
        ["a", 0, 0],
        [math.nan, 0, 0],
        [math.inf, 0, 0],
        [10**400, 0, 0],
        [[1.0], [2.0, 3.0]],
    ):
        with pytest.raises(InputError, match="A report must be"):
            plan.encode(odd)  # type: ignore[arg-type]


def test_wire_forms_that_are_no_report() -> None:
    plan = LaplaceReport(1.0, 2, 1.0)
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(InputError, match="finite"):
            plan.decode(np.array([1.0, bad], dtype="<f8").tobytes())
    grid = GridLaplaceReport(1.0, 2, 1.0)
    for off in (grid.mechanism.step / 2, 1e300):
        with pytest.raises(InputError, match="whole numbers of steps"):
            grid.encode([0.0, off])
    for huge in (2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)):
        with pytest.raises(InputError, match="within 2\\^53"):
            grid.decode(np.array([0, huge], dtype="<i8").tobytes())


@pytest.mark.parametrize("kind", [LaplaceReport, GridLaplaceReport])
def test_shapes(kind: type[Plan]) -> None:
    plan = kind(1.0, 3)
    for shape in ((3,), (0, 3), (1, 3), (5, 3)):
        assert plan.release(np.zeros(shape), secure())[0].shape == shape
    for bad in (np.zeros(4), np.zeros((2, 4)), np.zeros((2, 2, 3)), 1.0, [[1.0], [1.0, 2.0]], "x"):
        with pytest.raises(InputError, match="rows must be"):
            plan.release(bad, secure())
    np.testing.assert_array_equal(as_rows([[1.0, 2.0], [math.inf, 3.0]], 2), [[1, 2], [0, 0]])
    np.testing.assert_array_equal(as_rows([[1, 2], [10**400, 3]], 2), [[1, 2], [0, 0]])
    assert plan.release([[10**400, 0, 0]], secure())[0].shape == (1, 3)


@pytest.mark.parametrize("kind", [LaplaceReport, GridLaplaceReport])
@pytest.mark.parametrize(
    ("eps", "dimension", "radius", "sentence"),
    [
        (0.0, 3, 1.0, "epsilon"),
        (math.nan, 3, 1.0, "epsilon"),
        (1.0, 0, 1.0, "dimension"),
        (1.0, 2.5, 1.0, "dimension"),
        (1.0, 3, -1.0, "radius"),
        (1.0, 3, 1e-320, "bound"),
    ],
)
def test_bad_parameters(
    kind: type[Plan], eps: float, dimension: int, radius: float, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        kind(eps, dimension, radius)
