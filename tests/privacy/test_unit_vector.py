"""PrivUnit: the ratio of densities to many digits, the law of what is drawn, and its error."""

import copy
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate, optimize, stats

from privrl.privacy import InputError, PureDP, Relation
from privrl.privacy.mechanisms import unit_vector
from privrl.privacy.mechanisms.report_laplace import as_rows
from privrl.privacy.mechanisms.unit_vector import DuchiL2, PrivUnit, cap_probability
from privrl.privacy.noise import reproducible, secure
from tests.statistics import FALSE_ALARM, follows

Floats = NDArray[np.float64]

PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803"
)
nasty = st.one_of(
    st.floats(width=64, allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-310, 1e-160, 1.0, 1e154, 1e308, -1e308]),
    st.floats(-2.0, 2.0),
)
rows = st.lists(nasty, min_size=3, max_size=3)


def exact_tail(sphere: int, gamma: float) -> Decimal:
    """P(W >= gamma) by a series of positive terms in 80 digits, sharing nothing with the module.

    With a = (D-1)/2 and c the constant of the density, near 1 it is
    c (1 - g^2)^a g / (2a) 2F1(1, a + 1/2; a + 1; 1 - g^2), and near 0 it is
    1/2 - c g (1 - g^2)^a 2F1(1, a + 1/2; 3/2; g^2).
    """
    with localcontext(prec=80):
        g = Decimal(gamma)
        c, k = (1 / PI, 2) if sphere % 2 == 0 else (Decimal("0.5"), 3)
        for j in range(k, sphere, 2):
            c = c * j / (j - 1)
        a = Decimal(sphere - 1) / 2
        x = 1 - g * g
        # Near 0 the tail is large, so that the difference keeps its digits.
        near_one = g * g > Decimal("0.4") or sphere * g * g > 50
        argument, bottom = (x, a + 1) if near_one else (g * g, Decimal("1.5"))
        term = total = Decimal(1)
        n = 0
        while term > total * Decimal("1e-75"):
            term *= (a + Decimal("0.5") + n) / (bottom + n) * argument
            total += term
            n += 1
        front = c * g * (a * x.ln()).exp() * total
        return front / (2 * a) if near_one else Decimal("0.5") - front


def density_ratio(plan: PrivUnit) -> Decimal:
    """Density on the cap over density off it, from the exact size of the cap."""
    q = exact_tail(plan.sphere, plan.cap)
    with localcontext(prec=60):
        p = Decimal(plan.inside.numerator) / Decimal(plan.inside.denominator)
        return p * (1 - q) / ((1 - p) * q)


@settings(max_examples=120)
@given(st.floats(1e-3, 60.0), st.integers(1, 300), st.booleans(), st.booleans())
def test_densities_are_at_most_e_to_the_epsilon_apart(
    eps: float, dimension: int, padded: bool, half: bool
) -> None:
    """Any two inputs at any point have densities on or off the cap: this is the largest ratio."""
    plan = (DuchiL2 if half else PrivUnit)(eps, dimension, padded=padded or dimension == 1)
    with localcontext(prec=60):
        ratio, limit = density_ratio(plan), Decimal(eps).exp()
        assert ratio <= limit
        if not half or eps < 15.0:
            # Not wasteful either: within the margin, and the rounding of p.
            assert ratio >= limit * (1 - Decimal("2e-10") - 4 / ((1 - _decimal(plan)) * 2**56))
    assert plan.event == PureDP(eps, relation=Relation.LOCAL)


def _decimal(plan: PrivUnit) -> Decimal:
    return Decimal(plan.inside.numerator) / Decimal(plan.inside.denominator)


@pytest.mark.parametrize(
    ("eps", "dimension"),
    [
        (1e-4, 112),
        (0.1, 10_001),
        (1.0, 100_000),
        (20.0, 3),
        (200.0, 112),
        (500.0, 1000),
        (500.0, 1),
    ],
)
def test_the_ratio_holds_at_the_ends_of_the_range(eps: float, dimension: int) -> None:
    with localcontext(prec=60):
        assert density_ratio(PrivUnit(eps, dimension)) <= Decimal(eps).exp()


@settings(max_examples=150)
@given(rows, rows, st.booleans(), st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=4))
def test_no_pair_of_inputs_is_told_apart_by_more(
    first: list[float], second: list[float], padded: bool, point: list[float]
) -> None:
    """The density at a point of the sphere, for the directions that two inputs really get."""
    eps = 2.0
    plan = PrivUnit(eps, 3, 0.7, padded=padded)
    given_rows = as_rows([first, second], 3)
    v = unit_vector._directions(np, plan, given_rows, np.ones(2))
    np.testing.assert_allclose(np.sum(v * v, axis=1), 1.0, rtol=1e-14)
    p = float(plan.inside)
    dense = np.where(
        v @ np.array(point[: plan.sphere]) >= plan.cap,
        p / plan.covered,
        (1 - p) / (1 - plan.covered),
    )
    assert max(dense) / min(dense) <= math.exp(eps)
    reports, _ = plan.release([first, second], secure())
    lengths = np.sqrt(np.sum(reports**2, axis=1)) / plan.length
    assert np.all(lengths <= 1 + 1e-12)
    if not padded:
        np.testing.assert_allclose(lengths, 1.0, rtol=1e-12)


@pytest.mark.parametrize("sphere", [2, 3, 4, 10, 113, 1001, 100_001])
def test_cap_sizes_and_quantiles_against_eighty_digits(sphere: int) -> None:
    scale = 1 / math.sqrt(sphere)
    for gamma in (1e-7, 0.03, 0.5 * scale, 2 * scale, 5 * scale, 20 * scale, 0.9, 0.999, 1 - 1e-9):
        exact = exact_tail(sphere, gamma) if gamma < 1 else Decimal(0)
        if not Decimal("1e-250") < exact:
            continue
        found = Decimal(cap_probability(sphere, gamma))
        assert abs(found - exact) < exact * Decimal("1e-12")
        back = unit_vector.upper_quantile(sphere, np.array([float(exact)]))[0]
        assert back == pytest.approx(gamma, abs=1e-15, rel=1e-13)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("eps", [0.5, 1.0, 4.0])
def test_on_a_circle_and_on_a_sphere_by_quadrature(eps: float, half: bool) -> None:
    """Mass one, mean m v, and the errors in closed form, from the density alone."""
    kind = DuchiL2 if half else PrivUnit
    for plan in (kind(eps, 2, padded=False), kind(eps, 3, padded=False)):
        p, q = float(plan.inside), plan.covered

        def mean_of(moment: int, plan: PrivUnit = plan, p: float = p, q: float = q) -> float:
            def f(theta: float) -> float:
                w = math.cos(theta)
                base = 1 / math.pi if plan.sphere == 2 else math.sin(theta) / 2
                return base * w**moment * (p / q if w >= plan.cap else (1 - p) / (1 - q))

            edge = math.acos(plan.cap)
            return float(integrate.quad(f, 0, edge)[0] + integrate.quad(f, edge, math.pi)[0])

        assert mean_of(0) == pytest.approx(1.0, abs=1e-9)
        assert mean_of(1) == pytest.approx(plan.slope, abs=1e-9)
        assert plan.error == pytest.approx(1 / mean_of(1) ** 2 - 1, rel=1e-7)
    # With padding, the plane in three dimensions: an integral over the whole sphere.
    padded = kind(eps, 2)
    for norm in (0.0, 0.3, 1.0):
        v = np.array([norm, 0.0, math.sqrt(1 - norm**2)])
        squares = _over_the_sphere(padded, v, lambda u, norm=norm: _distance(padded, u, norm))
        assert padded.error_at(norm) == pytest.approx(squares, rel=1e-7)
    assert padded.error == padded.error_at(1.0)


def _distance(plan: PrivUnit, u: Floats, norm: float) -> Floats:
    return np.asarray((u[0] / plan.slope - norm) ** 2 + (u[1] / plan.slope) ** 2)


def _over_the_sphere(plan: PrivUnit, v: Floats, f: object) -> float:
    """E f(U) for the report's law around v in three dimensions: Gauss by trapezoid, both exact."""
    assert callable(f)
    across = np.cross(v, [0.0, 1.0, 0.0])
    other = np.cross(v, across)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    angles = np.arange(16) * (2 * math.pi / 16)
    total = 0.0
    for low, high, dense in (
        (plan.cap, 1.0, float(plan.inside) / plan.covered),
        (-1.0, plan.cap, float(1 - plan.inside) / (1 - plan.covered)),
    ):
        w = (low + high) / 2 + (high - low) / 2 * nodes
        turn = np.outer(across, np.cos(angles)) + np.outer(other, np.sin(angles))
        u = v[:, None, None] * w[None, :, None] + np.sqrt(1 - w**2)[None, :, None] * turn[:, None]
        inner = np.mean(f(u), axis=1)
        total += dense * 0.5 * (high - low) / 2 * float(weights @ inner)
    return total


@pytest.mark.parametrize("dimension", [2, 3, 112, 5000])
@pytest.mark.parametrize("eps", [0.1, 1.0, 7.0, 30.0])
def test_no_other_cap_has_less_error(dimension: int, eps: float) -> None:
    plan = PrivUnit(eps, dimension, padded=False)

    def slope(gamma: float) -> float:
        h = math.exp(unit_vector.log_cap_moment(dimension, gamma))
        growth = math.expm1(eps)
        return h * growth / (1 + cap_probability(dimension, gamma) * growth)

    # In log(1 - gamma), so that caps next to 1 are searched as finely as others.
    best = optimize.minimize_scalar(
        lambda x: -slope(-math.expm1(x)), bounds=(-25.0, -1e-9), options={"xatol": 1e-9}
    )
    assert plan.slope == pytest.approx(-best.fun, rel=2e-9 + 2e-10 / eps)
    assert plan.slope == pytest.approx(plan.cap, rel=1e-8)
    assert plan.slope >= DuchiL2(eps, dimension, padded=False).slope * (1 - 1e-9)


@pytest.mark.parametrize(
    ("eps", "figure", "duchi"),
    [
        pytest.param(1.0, 705.0, 819.0, marks=pytest.mark.slow),
        pytest.param(2.0, 180.0, 301.0, marks=pytest.mark.slow),
        (5.0, 32.1, 179.0),
        (10.0, 10.0, 174.0),
    ],
)
def test_known_figures_at_112_dimensions(eps: float, figure: float, duchi: float) -> None:
    plain, padded = PrivUnit(eps, 112, padded=False), PrivUnit(eps, 112)
    assert plain.error == pytest.approx(figure, rel=0.005)
    assert plain.error < padded.error < 1.001 * plain.error
    assert DuchiL2(eps, 112, padded=False).error == pytest.approx(duchi, rel=0.005)
    v = np.full(112, -1 / math.sqrt(112))
    for plan in (plain, padded):
        reports, _ = plan.release(np.tile(v, (20_000, 1)), secure())
        squares = np.sum((reports - v) ** 2, axis=1)
        gap = abs(np.mean(squares) - plan.error)
        assert gap < 5.0 * np.std(squares) / math.sqrt(20_000)


def first_coordinate(plan: PrivUnit, w: Floats) -> Floats:
    """P(W < w) of a report: the beta law of a uniform point, weighted on and off the cap."""
    a = (plan.sphere - 1) / 2
    p, q = float(plan.inside), plan.covered
    below = stats.beta(a, a).cdf((np.minimum(w, plan.cap) + 1) / 2)
    above = q - stats.beta(a, a).sf((np.maximum(w, plan.cap) + 1) / 2)
    return np.asarray(below * (1 - p) / (1 - q) + above * p / q)


def assert_law(points: Floats, plan: PrivUnit, v: Floats) -> None:
    """Points on the unit sphere follow the law around v: along it, and uniformly across it."""
    along = points @ v
    assert follows(along, partial(first_coordinate, plan))
    for wrong in (0.9, 1.1):
        other = PrivUnit(plan.epsilon * wrong, plan.dimension, padded=plan.padded)
        assert not follows(along, partial(first_coordinate, other))
        # The same cap, hit with the probability that belongs to the other epsilon.
        odds = plan.inside / (1 - plan.inside) * Fraction(math.exp(plan.epsilon * (wrong - 1.0)))
        same_cap = copy.copy(plan)
        object.__setattr__(same_cap, "inside", odds / (1 + odds))
        assert not follows(along, partial(first_coordinate, same_cap))
    assert not follows(1.1 * along, partial(first_coordinate, plan))
    D = plan.sphere
    if D > 2:
        b = np.zeros(D)
        b[np.argmin(np.abs(v))] = 1.0
        b -= v * (v @ b)
        b /= np.sqrt(b @ b)
        across = (points @ b) / np.sqrt(1 - along**2)
        if D > 3:
            assert follows(across, lambda x: stats.beta((D - 2) / 2, (D - 2) / 2).cdf((x + 1) / 2))
        else:
            assert follows(np.arccos(np.clip(across, -1, 1)), lambda x: x / math.pi)


@pytest.mark.parametrize(
    ("eps", "dimension"),
    [
        pytest.param(1.0, 20, marks=pytest.mark.slow),
        pytest.param(5.0, 112, marks=pytest.mark.slow),
        (3.0, 2),
        (3.0, 3),
        (3.0, 4),
    ],
)
def test_reports_have_the_law_on_paper_and_ten_percent_off_is_seen(
    eps: float, dimension: int
) -> None:
    plan = PrivUnit(eps, dimension, radius=3.0, padded=False)
    v = np.arange(1.0, dimension + 1) * (-1.0) ** np.arange(dimension)
    v /= np.sqrt(v @ v)
    n = 60_000
    reports = np.concatenate(
        [plan.release(np.tile(0.01 * v, (10_000, 1)), secure())[0] for _ in range(n // 10_000)]
    )
    np.testing.assert_allclose(np.sqrt(np.sum(reports**2, axis=1)), plan.length, rtol=1e-12)
    assert_law(np.asarray(reports / plan.length), plan, v)


@pytest.mark.parametrize("kind", [PrivUnit, DuchiL2])
@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_short_vectors_are_unbiased(kind: type[PrivUnit], dimension: int) -> None:
    """With padding: any norm up to the radius; beyond it, the clipped vector."""
    plan = kind(4.0, dimension, radius=2.0)
    direction = np.ones(dimension) / math.sqrt(dimension)
    n = 80_000
    for norm in (0.0, 0.4, 2.0, 50.0):
        expected = min(norm, 2.0) * direction
        reports, _ = plan.release(np.tile(norm * direction, (n, 1)), secure())
        error = 5.5 * np.std(reports, axis=0) / math.sqrt(n)
        assert np.all(np.abs(np.mean(reports, axis=0) - expected) < error)
        if norm >= 2.0:
            assert np.any(np.abs(np.mean(reports, axis=0) - 1.1 * expected) > error)
        squares = np.sum((reports - expected) ** 2, axis=1)
        gap = abs(np.mean(squares) - plan.error_at(min(norm, 2.0)))
        # In one or two dimensions some plans have nearly constant squares: hence the tiny term.
        assert gap < 5.0 * np.std(squares) / math.sqrt(n) + 1e-9


def test_directions_only_without_padding() -> None:
    plan = PrivUnit(3.0, 2, padded=False)
    n = 40_000
    for row, mean in (
        ([1e-300, 0.0], [1.0, 0.0]),
        ([0.0, -1e300], [0.0, -1.0]),
        ([0.0, 0.0], [0.0, 0.0]),
        ([math.nan, 1.0], [0.0, 0.0]),
    ):
        reports, _ = plan.release(np.tile(row, (n, 1)), secure())
        error = 5.5 * np.std(reports, axis=0) / math.sqrt(n)
        assert np.all(np.abs(np.mean(reports, axis=0) - mean) < error)
        assert plan.error == plan.error_at(1.0)
    with pytest.raises(InputError, match="Without padding"):
        plan.error_at(0.5)
    with pytest.raises(InputError, match="at most the radius"):
        plan.error_at(1.5)


def test_reports_of_different_agents_are_independent() -> None:
    plan = PrivUnit(1.0, 3)
    reports, _ = plan.release(np.tile([0.6, 0.0, 0.8], (100_000, 1)), secure())
    centred = reports - np.mean(reports, axis=0)
    assert abs(np.corrcoef(centred[:-1, 0], centred[1:, 0])[0, 1]) < 5.0 / math.sqrt(100_000)


def test_jax_quantiles_are_those_of_scipy() -> None:
    import jax

    from privrl.privacy.mechanisms import unit_vector_jax

    rng = np.random.default_rng(0)
    tails = np.concatenate(
        [
            0.5 * rng.random(2000),
            0.5 * 10.0 ** -rng.uniform(0, 230, 2000),
            [0.5, 0.5 - 1e-16, 1e-232],
        ]
    )
    with jax.enable_x64(True):
        for sphere in (2, 3, 4, 113, 10_001, 100_001):
            found = np.asarray(jax.jit(partial(unit_vector_jax.upper_quantile, sphere))(tails))
            expected = unit_vector.upper_quantile(sphere, tails)
            assert np.max(np.abs(found - expected)) < 1e-13


@pytest.mark.parametrize("padded", [pytest.param(False, marks=pytest.mark.slow), True])
def test_jax_makes_the_same_reports_from_the_same_draws(padded: bool) -> None:
    import jax

    from privrl.privacy.mechanisms import unit_vector_jax

    generator = secure().generator
    plan = PrivUnit(5.0, 12, 0.8, padded=padded)
    given_rows = generator.standard_normal((300, 12)) * 10.0 ** generator.integers(-3, 2, (300, 1))
    given_rows[0], given_rows[1], given_rows[2] = math.nan, 0.0, 1e308
    finite = as_rows(given_rows, 12)
    draws = {
        "inside": generator.random(300) < float(plan.inside),
        "uniforms": 1.0 - generator.random(300),
        "normals": generator.standard_normal((300, plan.sphere - 1)),
        "signs": generator.integers(0, 2, 300) * 2.0 - 1.0,
    }
    draws["normals"][3] = 0.0
    expected = unit_vector.from_draws(
        np, plan, finite, first=lambda t: unit_vector.upper_quantile(plan.sphere, t), **draws
    )
    with jax.enable_x64(True):
        compiled = jax.jit(
            partial(
                unit_vector.from_draws,
                jax.numpy,
                plan,
                first=partial(unit_vector_jax.upper_quantile, plan.sphere),
            )
        )
        found = compiled(jax.numpy.asarray(given_rows), **draws)
    # Rows at the radius have a last coordinate sqrt(1 - 1 + rounding), which differs.
    with np.errstate(over="ignore"):
        at_radius = padded & (np.sum(finite**2, axis=1) > 0.99 * plan.radius**2)
    gaps = np.max(np.abs(np.asarray(found) - expected), axis=1) / plan.length
    assert np.max(gaps[~at_radius]) < 1e-12
    assert np.max(gaps) < 1e-7


@pytest.mark.slow
def test_jax_reports_have_the_same_law() -> None:
    import jax

    from privrl.privacy.mechanisms import unit_vector_jax

    plan = PrivUnit(3.0, 30, padded=False)
    v = np.arange(1.0, 31.0)
    v /= np.sqrt(v @ v)
    many = np.tile(v, (50_000, 1)).astype(np.float32)
    v = np.asarray(many[0], dtype=np.float64)
    v /= np.sqrt(v @ v)
    key = secure().key()
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(lambda x, k: unit_vector_jax.reports(plan, x, k))(many, key))
    assert found.dtype == np.float64
    assert_law(np.asarray(found / plan.length), plan, v)
    ours = plan.release(many, secure())[0]
    assert stats.ks_2samp(ours[:, 0], found[:, 0]).pvalue > FALSE_ALARM


def test_what_jax_reports_refuse() -> None:
    import jax

    from privrl.privacy.mechanisms import unit_vector_jax

    plan, key = PrivUnit(3.0, 30, padded=False), secure().key()
    with pytest.raises(InputError, match="64 bits"):
        unit_vector_jax.reports(plan, jax.numpy.zeros((2, 30)), key)
    with pytest.raises(InputError, match="30 columns"):
        unit_vector_jax.reports(plan, jax.numpy.zeros((2, 29)), key)
    with pytest.raises(InputError, match="30 columns"):
        unit_vector_jax.reports(plan, [[1.0, 2.0, 3.0]], key)
    for bad in ([["a"] * 30], [[1.0], [1.0, 2.0]]):
        with pytest.raises(InputError, match="rows must be"):
            unit_vector_jax.reports(plan, bad, key)


@pytest.mark.parametrize("kind", [PrivUnit, DuchiL2])
def test_whole_numbers_beyond_all_range_count_as_not_finite(kind: type[PrivUnit]) -> None:
    plan = kind(3.0, 2)
    reports = [plan.release([row, [1, 0]], reproducible(1))[0] for row in ([10**400, 1], [0, 0])]
    np.testing.assert_array_equal(reports[0], reports[1])
    for bad in (["a", 0], [[1.0], [2.0]], [math.nan, 0.0], [10**400, 0]):
        with pytest.raises(InputError, match="report"):
            plan.encode(bad)  # type: ignore[arg-type]


def test_the_cap_is_chosen_by_an_exact_coin() -> None:
    plan = PrivUnit(2.0, 5)
    assert isinstance(plan.inside, Fraction)
    assert 2**56 % plan.inside.denominator == 0


def test_wire_form() -> None:
    for padded in (False, True):
        plan = PrivUnit(2.0, 6, radius=5.0, padded=padded)
        report, _ = plan.release(np.arange(6.0), secure())
        data = plan.encode(report)
        assert len(data) == 48
        np.testing.assert_array_equal(plan.decode(data), report)
        for bad in (data[:-1], data + b"\0", b"", "text", None):
            with pytest.raises(InputError, match="48 bytes"):
                plan.decode(bad)  # type: ignore[arg-type]
        for value in (math.nan, math.inf):
            with pytest.raises(InputError, match="finite"):
                plan.decode(plan.encode(np.append(report[:5], value)))
        axis = np.eye(6)[0] * plan.length
        plan.decode(plan.encode(axis))
        for long in (1 + 1e-6, 2.0, 1e200, 1e307):
            with pytest.raises(InputError, match="has another"):
                plan.decode(plan.encode(axis * long))
        short = plan.encode(axis * (1 - 1e-6))
        if padded:
            plan.decode(short)
        else:
            with pytest.raises(InputError, match="exactly the length"):
                plan.decode(short)
        with pytest.raises(InputError, match="6 numbers"):
            plan.encode(np.zeros(5))


def test_shapes() -> None:
    plan = PrivUnit(1.0, 3)
    for shape in ((3,), (0, 3), (5, 3)):
        assert plan.release(np.zeros(shape), secure())[0].shape == shape
    with pytest.raises(InputError, match="rows must be"):
        plan.release(np.zeros((2, 4)), secure())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1e-5}, "between 0.0001 and 500"),
        ({"epsilon": 501.0}, "between 0.0001 and 500"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 1, "padded": False}, "two directions"),
        ({"dimension": 10**6 + 1}, "at most 1000000"),
        ({"radius": -1.0}, "radius"),
        ({"radius": 1e-320}, "too small"),
        ({"radius": 1e307}, "too large"),
        ({"padded": 1}, "padded"),
    ],
)
def test_bad_parameters(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        PrivUnit(**{"epsilon": 1.0, "dimension": 3, **arguments})  # type: ignore[arg-type]
