"""Functional noise: the law of the path, the price of a function, and every edge of the interval.

A path is a linear map of the normals it draws. `Unit` is a generator whose draws are the unit
vectors, one after another, so that a path with as many components as draws *is* that map: its
product with its transpose must be the kernel, exactly, and no statistics are needed. The tests of
the law with real noise have a designed false-alarm rate of 1e-6 and show their power on twins.
"""

import functools
import itertools
import math
import stat
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, stats

from privrl.privacy import Budget, Gaussian, InputError, NoiseOrigin, Relation, epsilon
from privrl.privacy.mechanisms import functional
from privrl.privacy.mechanisms.functional import (
    FunctionalMechanism,
    NoisedFunction,
    NoisePath,
    best_rate,
    bridge,
    rkhs_bound,
    rkhs_norm,
)
from privrl.privacy.mechanisms.functional_fields import (
    NUGGET,
    CholeskyPath,
    FeatureKernel,
    FieldMechanism,
    ProductExponential,
    WeightsPath,
)
from privrl.privacy.noise import Source, jax_normal, reproducible, secure
from tests.statistics import FALSE_ALARM, follows

Array = NDArray[Any]
PATHS = 100_000


class Unit:
    """A generator whose n-th draw of a row of normals is the n-th unit vector."""

    def __init__(self) -> None:
        self.drawn = 0

    def standard_normal(self, size: int | tuple[int, ...]) -> Array:
        shape = (size,) if isinstance(size, int) else size
        rows = math.prod(shape[:-1])
        found = np.zeros((rows, shape[-1]))
        found[np.arange(rows), self.drawn + np.arange(rows)] = 1.0
        self.drawn += rows
        return found.reshape(shape)


class Fed:
    """A generator that hands out given rows of normals."""

    def __init__(self, rows: Iterable[Array]) -> None:
        self.rows = iter(rows)

    def standard_normal(self, size: int) -> Array:
        return next(self.rows)


def fed(generator: object) -> Source:
    return Source(cast(np.random.Generator, generator), NoiseOrigin.REPRODUCIBLE)


def kernel(points: Array, rate: float) -> Array:
    found: Array = np.exp(-rate * np.abs(points[:, None] - points[None, :]))
    return found


def one_by_one(path: Callable[[float], Array], points: Array) -> Array:
    return np.array([path(float(x)) for x in points])


def at_once(path: Callable[[Any], Array], points: Array) -> Array:
    return path(points)


def in_parts(path: Callable[[Any], Array], points: Array) -> Array:
    return np.concatenate([path(part) for part in np.array_split(points, 3)])


WAYS = [one_by_one, at_once, in_parts]


def has_covariance(draws: Array, expected: Array) -> bool:
    """Whether rows of independent columns are N(0, expected), at level FALSE_ALARM overall.

    Whitened, every row's sum of squares is chi-square, and every row's product with another row,
    divided by the length of the latter, is standard normal: both exactly.
    """
    white = np.linalg.solve(np.linalg.cholesky(expected), draws)
    n = len(white)
    level = FALSE_ALARM / (n * (n + 1) / 2)
    products = white @ white.T
    lengths = np.diag(products)
    for i in range(n):
        if (
            2
            * min(
                stats.chi2.cdf(lengths[i], draws.shape[1]),
                stats.chi2.sf(lengths[i], draws.shape[1]),
            )
            < level
        ):
            return False
        for j in range(i):
            if 2 * stats.norm.sf(abs(products[i, j]) / math.sqrt(lengths[i])) < level:
                return False
    return True


# --- the law of the path --------------------------------------------------------------------------

# In this order the second is right of all before it, and so is the fourth.
FIVE = np.array([0.3, 0.8, 0.05, 1.0, 0.6])


@pytest.mark.parametrize("way", WAYS)
def test_covariance_of_paths(way: Callable[..., Array]) -> None:
    path = NoisePath(1.5, 2.0, 0.0, 1.0, secure(), actions=PATHS)
    draws = way(path, FIVE)
    expected = 1.5**2 * kernel(FIVE, 2.0)
    assert has_covariance(draws, expected)
    # The power of the test: ten percent more or less noise is seen.
    assert not has_covariance(draws * 1.1, expected)
    assert not has_covariance(draws * 0.9, expected)


def test_the_famous_edge_error_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin that takes the first point's value beyond the right edge, as public code does."""
    right = functional._SortedSites.neighbours

    def wrong(self: Any, x: float, block: int, place: int) -> tuple[float, int, float, int]:
        left, a, gap, b = right(self, x, block, place)
        beyond = math.isinf(gap) and a >= 0
        return left, self._rows[0][0] if beyond else a, gap, b

    monkeypatch.setattr(functional._SortedSites, "neighbours", wrong)
    path = NoisePath(1.5, 2.0, 0.0, 1.0, secure(), actions=PATHS)
    assert not has_covariance(one_by_one(path, FIVE), 1.5**2 * kernel(FIVE, 2.0))


points_in = st.lists(
    st.one_of(st.floats(-1.0, 2.0), st.sampled_from([-1.0, 2.0, 0.0, 5e-324, 1e-12, 1e-9, 0.5])),
    min_size=1,
    max_size=12,
    unique=True,
)


@settings(max_examples=150)
@given(points_in, st.sampled_from([1e-9, 0.1, 1.0, 30.0, 1e7]), st.sampled_from(WAYS))
def test_the_map_from_normals_to_values(
    points: list[float], rate: float, way: Callable[..., Array]
) -> None:
    x = np.array(points)
    path = NoisePath(1.0, rate, -1.0, 2.0, fed(Unit()), actions=len(x))
    factor, inside = way(path, x), path.to_domain(x)
    np.testing.assert_allclose(factor @ factor.T, kernel(inside, rate), rtol=0, atol=1e-13)
    assert np.max(np.abs(inside - x)) * rate <= 2.0**-40


@settings(max_examples=300)
@given(
    st.lists(st.floats(allow_nan=False), min_size=2, max_size=20),
    st.floats(-1e9, 1e9),
    st.floats(-11, 300),
    st.floats(-11, 9),
)
def test_points_are_on_a_grid(points: list[float], low: float, log: float, length: float) -> None:
    """Kept apart, each its own nearest, not moved by more than the step, one by one or together."""
    high = low + 10.0**length
    rate = 10.0**log / (high - low) if high > low else math.inf
    if not (math.isfinite(rate) and 5e-12 < rate * (high - low) < 1e299):
        return
    grid = functional.Grid(rate, low, high)
    assert rate * grid.step <= 2.0**-40 or grid.step == 2.0**-1000
    with np.errstate(over="ignore"):  # to infinity, which is a point like others
        near = low + np.array(points) * grid.step
    given = np.array([*points, low, high, math.nan, *near])
    found = grid.nearest(given, np)
    np.testing.assert_array_equal(grid.nearest(found, np), found)
    np.testing.assert_array_equal([grid.nearest_one(x) for x in given.tolist()], found)
    np.testing.assert_array_equal(grid.nearest(np.array([low, high]), np), [low, high])
    exact = sorted({Fraction(x) for x in found.tolist()})
    for a, b in itertools.pairwise(exact):
        assert b - a >= Fraction(grid.step) / 2
    moved = np.abs(found - np.clip(given, low, high))
    assert np.nanmax(moved) <= grid.step


@pytest.mark.parametrize("way", WAYS)
def test_no_noise_is_lost_between_points_that_are_close(way: Callable[..., Array]) -> None:
    """A function that turns within 1e-33: with the same noise at both ends, rounding would tell."""
    plan = FunctionalMechanism(1.0, 1.0, 0.0, 1.0, 1.0)
    points = np.array([0.0, 1e-33, 5e-324, 1e-300, 1e-20, 1e-13])
    for function in (np.zeros_like, lambda x: np.where(x > 0.0, 7.9e-17, 3.4e-17)):
        noised, _ = plan.release(cast(Any, function), secure())
        found = way(noised, points)
        np.testing.assert_array_equal(found, found[0])
    # The least distance there is still has noise in sight of rounding.
    path = NoisePath(1.0, 1.0, 0.0, 1.0, secure(), actions=PATHS)
    values = way(path, np.array([0.5, 0.5 + 2.0**-42, 0.5 + 2.0**-41]))
    assert len(path) == 2
    step = values[2] - values[0]
    assert has_covariance(step[None], np.array([[2.0**-40]]))
    assert not has_covariance(step[None] * 1.1, np.array([[2.0**-40]]))


def test_blocks_keep_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiny blocks, many splits: the same values as from a plain list and the textbook form."""
    monkeypatch.setattr(functional, "_BLOCK", 2)
    rng = np.random.default_rng(0)
    points, noise = rng.integers(0, 400, 600) / 400, rng.standard_normal((600, 1))
    path = NoisePath(1.0, 3.0, 0.0, 1.0, fed(Fed(noise)), actions=1)
    drawn: dict[float, float] = {}
    for x in points.tolist():
        if x not in drawn:
            z = noise[len(drawn), 0]
            a = max((y for y in drawn if y < x), default=None)
            b = min((y for y in drawn if y > x), default=None)
            if a is None and b is None:
                drawn[x] = z
            elif a is None or b is None:
                near = cast(float, b if a is None else a)
                decay = math.exp(-3.0 * abs(x - near))
                drawn[x] = decay * drawn[near] + math.sqrt(1 - decay**2) * z
            else:
                u, v = 3.0 * (x - a), 3.0 * (b - x)
                mean = math.sinh(v) * drawn[a] + math.sinh(u) * drawn[b]
                variance = 2 * math.sinh(u) * math.sinh(v) / math.sinh(u + v)
                drawn[x] = mean / math.sinh(u + v) + math.sqrt(variance) * z
        assert path(x)[0] == pytest.approx(drawn[x], abs=1e-11)
    assert len(path) == len(drawn)


@settings(max_examples=200)
@given(st.floats(-300, 6), st.floats(-300, 6))
def test_weights_are_accurate_at_any_distance(log_u: float, log_v: float) -> None:
    u, v = 10.0**log_u, 10.0**log_v
    with mpmath.workdps(700):
        big_u, big_v = mpmath.mpf(u), mpmath.mpf(v)
        below = mpmath.sinh(big_u + big_v)
        expected = (
            mpmath.sinh(big_v) / below,
            mpmath.sinh(big_u) / below,
            mpmath.sqrt(2 * mpmath.sinh(big_u) * mpmath.sinh(big_v) / below),
        )
        for xp in (math, np):
            found = bridge(u, v, cast(Any, xp))
            for f, e in zip(found, expected, strict=True):
                if e > 1e-290:
                    # Rounding u, relative 1e-16, moves exp(-u) by u times as much.
                    assert abs(mpmath.mpf(float(f)) / e - 1) < 1e-14 + 1e-15 * min(u + v, 700.0)
                else:
                    assert float(f) < 1e-289


@pytest.mark.parametrize("way", WAYS)
def test_clusters(way: Callable[..., Array]) -> None:
    """Gaps of 1e-9: increments of the right size."""
    gap = 1e-9
    points = np.array([gap, 0.0, 3 * gap, 5e-324, 2 * gap, 1.0])
    path = NoisePath(1.0, 1.0, 0.0, 1.0, secure(), actions=PATHS)
    values = dict(zip(points.tolist(), way(path, points), strict=True))
    steps = np.array([values[(i + 1) * gap] - values[i * gap] for i in range(3)])
    # Increments over disjoint gaps are independent but for terms of the order of the gap.
    inside = np.append(0.0, path.to_domain(gap * np.arange(1, 4)))
    expected = 2 * np.diag(np.diff(inside))
    assert has_covariance(steps, expected)
    assert not has_covariance(steps * 1.1, expected)
    np.testing.assert_array_equal(values[5e-324], values[0.0])
    assert follows(values[2 * gap], stats.norm.cdf)


def test_far_apart_is_independent() -> None:
    points = np.array([0.5, 0.0, 1.0, 0.25])
    for way in WAYS:
        path = NoisePath(1.0, 4e6, 0.0, 1.0, fed(Unit()), actions=4)
        factor = way(path, points)
        np.testing.assert_array_equal(factor @ factor.T, np.eye(4))


# --- repeats, batches, files ----------------------------------------------------------------------


@pytest.mark.parametrize("actions", [None, 3])
def test_repeats_are_the_same_bit_for_bit(actions: int | None) -> None:
    rng = np.random.default_rng(0)
    path = NoisePath(0.7, 5.0, -1.0, 1.0, secure(), actions=actions)
    seen: dict[float, Array] = {}
    tail = () if actions is None else (actions,)
    for size in (1, 7, 400, 3, 2000, 1, 30):
        points = rng.integers(-900, 900, size) / 900
        for values in (path(points), path(points[::-1])[::-1]):
            assert values.shape == (size, *tail)
            for x, value in zip(points.tolist(), values, strict=True):
                np.testing.assert_array_equal(seen.setdefault(x, value), value)
        x = float(points[0])
        assert path(x).shape == tail
        np.testing.assert_array_equal(path(x), seen[x])
    assert len(path) == len(seen)
    # What is handed out is a copy: changing it does not change the path.
    path(x)[...] = 99.0
    path(points)[...] = 99.0
    np.testing.assert_array_equal(path(x), seen[x])
    path.reset()
    assert len(path) == 0
    assert not np.array_equal(path(x), seen[x])


def test_shapes() -> None:
    path = NoisePath(1.0, 1.0, 0.0, 1.0, secure())
    many = NoisePath(1.0, 1.0, 0.0, 1.0, secure(), actions=2)
    for shape in ((), (0,), (3,), (2, 3)):
        points = np.zeros(shape)
        assert path(points).shape == shape
        assert many(points).shape == (*shape, 2)
    assert path(0).shape == ()
    assert path([0, 1]).shape == (2,)
    assert path(np.float64(0.5)).shape == ()
    assert path(np.float32(0.5)) == path(0.5)


def test_every_question_has_an_answer() -> None:
    path = NoisePath(1.0, 1.0, -2.0, 3.0, secure())
    odd = [math.nan, -math.inf, -1e308, -2.0, math.inf, 1e308, 3.0, 3.1]
    same_as = [-2.0, -2.0, -2.0, -2.0, 3.0, 3.0, 3.0, 3.0]
    np.testing.assert_array_equal(path(odd), path(same_as))
    np.testing.assert_array_equal(one_by_one(path, np.array(odd)), path(same_as))
    assert len(path) == 2
    assert path(-0.0) == path(0.0) == path([-0.0])[0]


@pytest.mark.parametrize("actions", [None, 4])
def test_a_saved_path_goes_on(tmp_path: Path, actions: int | None) -> None:
    rng = np.random.default_rng(0)
    path = NoisePath(0.7, 5.0, -1.0, 1.0, secure(), actions=actions)
    old, new = rng.uniform(-1, 1, 300), rng.uniform(-1, 1, 300)
    values = path(old)
    one_by_one(path, new[:5])
    file = tmp_path / "path.npz"
    path.save(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [f.name for f in tmp_path.iterdir()] == ["path.npz"]
    again = NoisePath.load(file, reproducible(5))
    np.testing.assert_array_equal(again(old), values)
    # With the same noise from here on, the old path and the loaded one are the same path.
    path.source = reproducible(5)
    np.testing.assert_array_equal(again(new), path(new))
    np.testing.assert_array_equal(again(0.123), path(0.123))
    assert again(0.5).shape == path(0.5).shape
    empty = NoisePath(0.7, 5.0, -1.0, 1.0, secure(), actions=actions)
    empty.save(file)
    assert len(NoisePath.load(file, secure())) == 0


def test_files_that_hold_no_path(tmp_path: Path) -> None:
    path = NoisePath(1.0, 1.0, 0.0, 1.0, secure())
    path([0.1, 0.5])
    good = tmp_path / "good.npz"
    path.save(good)
    with np.load(good) as saved:
        parts = dict(saved)
    changes: list[dict[str, Any]] = [
        {"sites": parts["sites"][::-1]},
        {"sites": parts["sites"] + 0.6},
        {"sites": parts["sites"][:1]},
        {"sites": parts["sites"][:, None], "values": parts["values"][:, :, None]},
        {"values": parts["values"] * math.nan},
        {"values": parts["values"].astype(np.float32)},
        {"plan": parts["plan"] * -1},
        {"plan": parts["plan"][:3]},
        {"actions": np.array(2)},
        {"sites": np.array([object()])},
    ]
    bad = tmp_path / "bad.npz"
    for change in changes:
        np.savez(bad, **{**parts, **change})
        with pytest.raises(InputError, match="does not hold a path"):
            NoisePath.load(bad, secure())
    for content in (b"", b"nonsense", good.read_bytes()[:300]):
        bad.write_bytes(content)
        with pytest.raises(InputError, match="does not hold a path"):
            NoisePath.load(bad, secure())
    with pytest.raises(InputError, match="There is no file"):
        NoisePath.load(tmp_path / "none.npz", secure())
    with pytest.raises(InputError, match="cannot be written"):
        path.save(tmp_path / "nowhere" / "path.npz")
    for folder in (tmp_path / "folder", tmp_path / "full"):
        folder.mkdir()
    (tmp_path / "full" / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    for folder in (tmp_path / "folder", tmp_path / "full"):
        with pytest.raises(InputError, match="cannot be written"):
            path.save(folder)
    assert sorted(tmp_path.rglob("*")) == before


# --- the mechanism --------------------------------------------------------------------------------


def test_released_functions_have_the_promised_law() -> None:
    plan = FunctionalMechanism(2.5, 1.0, 0.0, 1.0, 3.0)
    noised, event = plan.release(
        lambda x: np.multiply.outer(np.cos(x), np.ones(PATHS)), secure(), actions=PATHS
    )
    assert event == plan.event == Gaussian(2.5, 3.0)
    for x in (0.4, 0.9, math.inf):
        noise = noised(x) - math.cos(min(x, 1.0))
        assert follows(noise, stats.norm(0, 2.5).cdf)
        for wrong in (0.9, 1.1):
            assert not follows(noise * wrong, stats.norm(0, 2.5).cdf)
    assert has_covariance(noised(FIVE) - np.cos(FIVE)[:, None], 2.5**2 * kernel(FIVE, 1.0))


def test_functions_that_fail_in_places() -> None:
    plan = FunctionalMechanism(1.0, 1.0, 0.0, 1.0, 1.0)
    odd = {0.0: math.nan, 0.25: math.inf, 0.5: -math.inf, 0.75: 1e308, 1.0: 5e-324}

    def function(x: Array) -> Array:
        return np.array([odd[float(p)] for p in x.ravel()]).reshape(x.shape)

    noised, _ = plan.release(function, secure())
    found = noised([math.nan, 0.25, 0.5, 0.75, 7.0])
    assert np.all(np.isfinite(found))
    noise = noised.noise([0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_array_equal(found, noise + np.array([0.0, 0.0, 0.0, 1e308, 5e-324]))
    wrong, _ = plan.release(lambda x: np.zeros((2, 2)), secure())
    with pytest.raises(InputError, match=r"must give an array of shape \(3,\)"):
        wrong([0.1, 0.2, 0.3])
    assert noised([]).shape == (0,)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("bound", [1e-9, 1e9])
def test_calibrated_plans_spend_the_budget(relation: Relation, bound: float) -> None:
    budget = Budget(1.5, 1e-6)
    line = FunctionalMechanism.from_budget(2.0, 0.0, 1.0, bound, budget, relation, times=7)
    field = FieldMechanism.from_budget(PRODUCT, bound, budget, relation, times=7)
    for event in (line.event, field.event):
        spent = epsilon([event] * 7, 1e-6, relation)
        assert 1.5 * (1 - 1e-3) <= spent <= 1.5 + 1e-9


# --- what a function costs ------------------------------------------------------------------------

LOW, HIGH, SUP, SLOPE = -1.0, 2.0, 0.5, 3.0
nasty = st.one_of(
    st.floats(LOW, HIGH),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 5e-324, 1e-323, 1e-310, 1e-300, 1e-17, LOW, HIGH, 1e308]),
)


def neighbours(knots: list[float], turns: list[float]) -> Callable[[Fraction], Fraction]:
    """A difference of two neighbours: linear between knots, within SUP and SLOPE, exactly."""
    x = sorted({Fraction(LOW), Fraction(HIGH), *map(Fraction, knots)})
    sup, slope = Fraction(SUP), Fraction(SLOPE)
    y = [sup * Fraction(turns[0])]
    for i in range(1, len(x)):
        step = slope * (x[i] - x[i - 1]) * Fraction(turns[i % len(turns)])
        y.append(max(-sup, min(sup, y[-1] + step)))

    def difference(at: Fraction) -> Fraction:
        i = max(1, next(i for i in range(len(x)) if x[i] >= at))
        part = (at - x[i - 1]) / (x[i] - x[i - 1])
        return y[i - 1] + part * (y[i] - y[i - 1])

    return difference


@settings(max_examples=150)
@given(
    st.lists(st.floats(LOW, HIGH), max_size=8),
    st.lists(st.sampled_from([-1.0, 1.0, 0.5, 0.0, 5e-324]), min_size=1, max_size=6),
    st.lists(nasty, max_size=10),
    st.sampled_from([0.01, 1.0, 6.0, 1e4]),
)
def test_no_points_see_more_than_the_bound(
    knots: list[float], turns: list[float], points: list[float], rate: float
) -> None:
    """The squared distance d' K^-1 d of what is seen of two neighbours, by 400-digit arithmetic."""
    path = NoisePath(1.0, rate, LOW, HIGH, secure())
    seen = sorted({Fraction(x) for x in path.to_domain(points).tolist()})
    difference = neighbours(knots, turns)
    with mpmath.workdps(400):
        total, before = mpmath.mpf(0), None
        for x in seen:
            d = mpmath.mpf(difference(x).numerator) / difference(x).denominator
            if before is None:
                total = d**2
            else:
                gap = mpmath.mpf((x - before[0]).numerator) / (x - before[0]).denominator
                decay = mpmath.exp(-rate * gap)
                total += (d - decay * before[1]) ** 2 / (1 - decay**2)
            before = (x, d)
        assert total <= mpmath.mpf(rkhs_bound(SUP, SLOPE, rate, HIGH - LOW)) ** 2


@settings(max_examples=100)
@given(
    st.lists(st.floats(LOW, HIGH), max_size=8),
    st.lists(st.sampled_from([-1.0, 1.0, 0.5]), min_size=1, max_size=6),
    st.lists(st.integers(0, 3000), min_size=1, max_size=10, unique=True),
    st.sampled_from([0.1, 1.0, 6.0, 100.0]),
    st.sampled_from(WAYS),
)
def test_the_likelihood_ratio_of_what_is_drawn(
    knots: list[float],
    turns: list[float],
    places: list[int],
    rate: float,
    way: Callable[..., Array],
) -> None:
    """In terms of the normals that were really drawn, neighbours are at most the bound apart."""
    x = LOW + np.array(places) / 1000
    difference = neighbours(knots, turns)
    d = np.array([float(difference(Fraction(p))) for p in x.tolist()])
    path = NoisePath(1.0, rate, LOW, HIGH, fed(Unit()), actions=len(x))
    apart = np.linalg.norm(np.linalg.solve(way(path, x), d))
    assert apart <= rkhs_bound(SUP, SLOPE, rate, HIGH - LOW) * (1 + 1e-9)


def test_the_norm_is_the_limit_of_what_points_see() -> None:
    rng = np.random.default_rng(0)
    knots = np.array([-1.0, -0.25, 0.5, 1.25, 2.0])
    values = rng.standard_normal((5, 2))
    for rate in (0.2, 1.0, 5.0):
        norm = rkhs_norm(knots, values, rate)
        seen = []
        for n in (5, 17, 65, 257, 1025):
            x = np.linspace(-1.0, 2.0, n)
            f = np.column_stack([np.interp(x, knots, v) for v in values.T])
            seen.append(math.sqrt(np.sum(f * np.linalg.solve(kernel(x, rate), f))))
        assert seen == sorted(seen)
        assert seen[-1] < norm
        assert seen[-1] == pytest.approx(norm, rel=1e-4)
    # A constant, and the kernel itself, whose norm is one.
    assert rkhs_norm([0.0, 3.0], [2.0, 2.0], 0.5) == pytest.approx(2 * math.sqrt(1 + 0.75))
    x = np.linspace(0, 1, 20_001)
    assert rkhs_norm(x, np.exp(-4 * np.abs(x - 0.3)), 4.0) == pytest.approx(1.0, rel=1e-7)


def test_the_bound_is_approached_and_never_passed() -> None:
    x = np.linspace(0.0, 2.0, 200_001)
    zigzag = 0.5 - 3.0 * (x[1] - x[0]) * (np.arange(len(x)) % 2)
    for rate in (0.5, 6.0, 50.0):
        bound = rkhs_bound(0.5, 3.0, rate, 2.0)
        assert 0.9999 * bound < rkhs_norm(x, zigzag, rate) < bound


def test_the_best_rate() -> None:
    for sup, slope, length in ((1.0, 1.0, 1.0), (0.01, 5.0, 3.0), (30.0, 0.2, 0.1)):
        found = optimize.minimize_scalar(
            lambda log, s=sup, k=slope, n=length: rkhs_bound(s, k, math.exp(log), n)
        )
        best = best_rate(sup, slope)
        assert math.log(best) == pytest.approx(found.x, abs=1e-4)
        assert rkhs_bound(sup, slope, best, length) == pytest.approx(
            math.sqrt(sup**2 + length * sup * slope)
        )


# --- several dimensions ---------------------------------------------------------------------------


def cubes(x: Array) -> Array:
    """Six features of two coordinates."""
    a, b = x[:, 0], x[:, 1]
    return np.column_stack([np.ones(len(x)), a, b, a * b, a**2, b**2])


PRODUCT = ProductExponential((0.5, 3.0))
KERNELS: list[ProductExponential | FeatureKernel] = [PRODUCT, FeatureKernel(cubes, 2)]


@pytest.mark.parametrize("way", ["alone", "together", "in groups"])
def test_field_covariance_is_the_kernel(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "in groups":
        monkeypatch.setattr("privrl.privacy.mechanisms.functional_fields._GROUP", 3)
    x = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    path = CholeskyPath(1.0, PRODUCT, fed(Unit()), actions=40)
    factor = np.array([path(p) for p in x]) if way == "alone" else path(x)
    expected = PRODUCT(x, x) + NUGGET * np.eye(40)
    np.testing.assert_allclose(factor @ factor.T, expected, rtol=0, atol=1e-12)
    # Asked again, in any order and company, every value is the same bit for bit.
    np.testing.assert_array_equal(path(x[::-1]), factor[::-1])
    np.testing.assert_array_equal(path(x[7]), factor[7])


@pytest.mark.parametrize("gap", [0.0, 5e-324, 1e-17, 2e-15, 5e-15, 1e-14, 5e-14, 1e-11, 1e-6, 1.0])
@pytest.mark.parametrize("together", [True, False])
def test_two_points_side_by_side_tell_no_more_than_the_bound(gap: float, together: bool) -> None:
    """Against f = (k(x, .) - k(x + h, .)) / norm, of norm 1, and with all components of the map."""
    x = np.array([[0.0, 0.0], [gap, 0.0]])
    path = CholeskyPath(1.0, ProductExponential((1.0, 1.0)), fed(Unit()), actions=2)
    factor = path(x) if together else np.array([path(p) for p in x])
    if gap == 0.0:
        np.testing.assert_array_equal(factor[0], factor[1])
        return
    # f(x) = -f(x + h) = (1 - k) / sqrt(2 (1 - k)).
    difference = math.sqrt(-math.expm1(-gap) / 2.0) * np.array([1.0, -1.0])
    assert np.linalg.norm(np.linalg.solve(factor, difference)) <= 1.0


@pytest.mark.parametrize("scale", [1e-16, 1e-14, 1e-12, 1e-8, 1e-3])
def test_clusters_in_the_plane_have_at_least_the_noise_of_the_kernel(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L L' - K is positive definite, whatever rounding did: none shows more than its norm."""
    monkeypatch.setattr("privrl.privacy.mechanisms.functional_fields._GROUP", 16)
    x = np.random.default_rng(0).uniform(0, scale, (150, 2))
    x = np.concatenate([x, x[:20] * 2, np.random.default_rng(1).uniform(-1, 1, (30, 2))])
    path = CholeskyPath(1.0, PRODUCT, fed(Unit()), actions=len(x))
    factor = np.concatenate([path(part) for part in np.array_split(x, 3)])
    surplus = factor @ factor.T - PRODUCT(x, x)
    assert np.linalg.eigvalsh(surplus)[0] > NUGGET / 2


def test_in_one_dimension_the_field_is_the_path() -> None:
    x = np.array([0.3, 0.8, 0.05, 1.0, 0.6, 0.61])
    noise = np.random.default_rng(0).standard_normal((6, 4))
    line = NoisePath(2.0, 3.0, 0.0, 1.0, fed(Fed(noise)), actions=4)
    field = CholeskyPath(2.0, ProductExponential((3.0,)), fed(Fed(noise)), actions=4)
    # But for the nugget, whose share is the larger the closer points are: here, a twentieth.
    found, expected = field(x[:, None]), one_by_one(line, x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=20 * NUGGET)
    assert not np.allclose(found, expected, rtol=0, atol=1e-12)


def test_noise_on_weights_is_the_path() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (30, 2))
    k = FeatureKernel(cubes, 2)
    # The map from weights to values is the features, so that the covariance is the kernel.
    weights = WeightsPath(1.5, k, fed(Unit()), actions=6)
    np.testing.assert_array_equal(weights(x), 1.5 * cubes(x))
    np.testing.assert_allclose(weights(x) @ weights(x).T, 1.5**2 * k(x, x), atol=1e-12)
    # Drawn with real noise, each path has the law of its kernel, and ten percent is seen.
    paths: list[WeightsPath | CholeskyPath] = [
        WeightsPath(1.5, k, secure(), actions=PATHS),
        CholeskyPath(1.5, PRODUCT, secure(), actions=PATHS),
    ]
    for path in paths:
        draws, expected = path(x[:5]), 1.5**2 * path.kernel(x[:5], x[:5])
        assert has_covariance(draws, expected)
        assert not has_covariance(draws * 1.1, expected)
    # Features so small that their products vanish still have noise in proportion.
    tiny = WeightsPath(1.0, FeatureKernel(lambda p: p * 1e-200, 2), secure())([1.0, 1.0])
    assert 1e-206 < abs(tiny) < 1e-198
    # Released as a function or as weights, a linear function gets the same noise.
    noised, event = FieldMechanism(1.5, k, 0.2).release(lambda p: cubes(p) @ np.ones(6), secure())
    assert event == Gaussian(1.5, 0.2)
    assert isinstance(noised.noise, WeightsPath)
    found = np.linalg.lstsq(cubes(x), noised(x), rcond=None)[0]
    y = np.random.default_rng(1).uniform(-1, 1, (9, 2))
    np.testing.assert_allclose(noised(y), cubes(y) @ found, atol=1e-11)
    np.testing.assert_array_equal(noised.noise(x)[3], noised.noise(x[3]))


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=2, max_size=2), min_size=1, max_size=12),
    st.lists(st.floats(-1, 1), min_size=6, max_size=6),
)
def test_no_points_see_more_than_the_norm_of_the_weights(
    points: list[list[float]], weights: list[float]
) -> None:
    """Linear functions whose weights differ by w look at most |w| apart, by pseudo-inverse."""
    phi = cubes(np.array(points))
    # Directions that points hardly tell apart are left out: rounding comes back divided by them.
    seen = np.linalg.lstsq(phi, phi @ np.array(weights), rcond=1e-7)[0]
    assert np.linalg.norm(seen) <= np.linalg.norm(weights) * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("k", KERNELS)
def test_fields_answer_everything(k: ProductExponential | FeatureKernel) -> None:
    odd = [[math.nan, 0.0], [math.inf, 1e308], [-math.inf, 5e-324], [-0.0, 0.0], [1e308, -1e308]]
    noised, _ = FieldMechanism(1.0, k, 1.0).release(lambda x: x[..., 0] * math.nan, secure())
    found = noised(odd)
    assert found.shape == (5,)
    assert np.all(np.isfinite(found))
    assert found[0] == found[3] == noised([0.0, -0.0])
    assert noised([[10**400, 0.0]]) == noised([[math.inf, 0.0]])
    assert noised(np.zeros((0, 2))).shape == (0,)
    assert noised(np.zeros((2, 3, 2))).shape == (2, 3)


def test_a_field_is_forgotten() -> None:
    path = CholeskyPath(1.0, PRODUCT, secure(), actions=2)
    first = path([0.5, 0.5])
    path.reset()
    assert not np.array_equal(path([0.5, 0.5]), first)


# --- compiled -------------------------------------------------------------------------------------


def test_compiled_paths_follow_step_by_step() -> None:
    import jax

    from privrl.privacy.mechanisms.functional_jax import check, init, query

    plan = FunctionalMechanism(0.8, 3.0, -1.0, 1.0, 1.0)
    rng = np.random.default_rng(0)
    points = np.concatenate(
        [
            rng.integers(-20, 20, 60) / 20,
            [math.nan, math.inf, -math.inf, 1e-300, 0.0, 2e-300, 1e308],
        ]
    )
    with jax.enable_x64(True):
        compiled = jax.jit(query, static_argnums=0)
        state = init(50, 3)
        keys = jax.random.split(secure().key(), len(points))
        found, fresh = [], []
        for i, x in enumerate(points):
            key = keys[i]  # taking all of them apart at once compiles for a second
            before = int(state.used)
            state, value = compiled(plan, state, key, x)
            found.append(np.asarray(value))
            if int(state.used) > before:
                fresh.append(np.asarray(jax_normal(key, (3,))))
        check(state)
        again = compiled(plan, state, keys[0], points)[1]
    assert found[0].dtype == np.float64
    path = NoisePath(0.8, 3.0, -1.0, 1.0, fed(Fed(fresh)), actions=3)
    np.testing.assert_allclose(found, one_by_one(path, points), rtol=0, atol=1e-12)
    assert len(path) == len(fresh) == int(state.used)
    np.testing.assert_array_equal(again, found)
    np.testing.assert_array_equal(np.diff(np.asarray(state.sites)[: len(path)]) > 0, True)


def test_compiled_paths_have_the_law() -> None:
    import jax

    from privrl.privacy.mechanisms.functional_jax import init, query

    plan = FunctionalMechanism(1.5, 2.0, 0.0, 1.0, 1.0)
    expected = 1.5**2 * kernel(FIVE, 2.0)
    with jax.enable_x64(True):
        _, values = jax.jit(query, static_argnums=0)(plan, init(6, PATHS), secure().key(), FIVE)
        draws = np.asarray(values)
    assert has_covariance(draws, expected)
    assert not has_covariance(draws * 1.1, expected)


def test_a_compiled_path_that_overflows_cannot_be_missed() -> None:
    import jax

    from privrl.privacy.mechanisms.functional_jax import check, init, query

    plan = FunctionalMechanism(1.0, 1.0, 0.0, 1.0, 1.0)
    with jax.enable_x64(True):
        ask = functools.partial(jax.jit(query, static_argnums=0), plan)
        state, values = ask(init(3, 2), secure().key(), np.array([0.5, 0.1, 0.9, 0.1]))
        np.testing.assert_array_equal(values[3], values[1])
        check(state)
        state, more = ask(state, secure().key(), np.array([0.7, 0.9, 0.95, 0.9]))
        assert np.all(np.isnan(more[np.array([0, 2])]))
        np.testing.assert_array_equal(more[1], values[2])
        state, old = ask(state, secure().key(), np.array([0.5, 0.5, 0.5, 0.1]))
        np.testing.assert_array_equal(old[2:], values[:2])
        assert bool(state.overflowed)
        with pytest.raises(InputError, match="ran out of room at 3 points"):
            check(state)
    with pytest.raises(InputError, match="64 bits"):
        init(3, 2)
    with pytest.raises(InputError, match="capacity"), jax.enable_x64(True):
        init(0, 2)


def test_compiled_paths_side_by_side() -> None:
    """Vectorised over seeds: each its own path, and every repeat the same bit for bit."""
    import jax

    from privrl.privacy.mechanisms.functional_jax import init, query

    plan = FunctionalMechanism(1.3, 2.0, 0.0, 1.0, 1.0)
    points = np.random.default_rng(0).integers(0, 12, 40) / 12
    with jax.enable_x64(True):
        keys = jax.random.split(secure().key(), 4)
        ask = jax.jit(jax.vmap(functools.partial(query, plan), (None, 0, None)))
        values = np.asarray(ask(init(12, 2), keys, points)[1])
    assert values.shape == (4, 40, 2)
    for x in np.unique(points):
        same = values[:, points == x]
        np.testing.assert_array_equal(same, np.broadcast_to(same[:, :1], same.shape))
    assert len(np.unique(values[:, 0, 0])) == 4


# --- bad parameters -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"std": 0.0}, "std must be positive"),
        ({"rate": -1.0}, "rate must be positive"),
        ({"low": 1.0}, "low must be below high"),
        ({"high": math.inf}, "low must be below high"),
        ({"low": math.nan}, "low must be a number"),
        ({"low": -1e308, "high": 1e308}, "times the length"),
        ({"rate": 1e305}, "times the length"),
        ({"rate": 1e-12}, "the same everywhere"),
    ],
)
def test_bad_plans(change: dict[str, float], sentence: str) -> None:
    plan: dict[str, Any] = {"std": 1.0, "rate": 1.0, "low": 0.0, "high": 1.0, **change}
    with pytest.raises(InputError, match=sentence):
        FunctionalMechanism(**plan, bound=1.0)
    with pytest.raises(InputError, match=sentence):
        NoisePath(**plan, source=secure())


def test_other_bad_parameters() -> None:
    with pytest.raises(InputError, match="bound must be positive"):
        FunctionalMechanism(1.0, 1.0, 0.0, 1.0, 0.0)
    with pytest.raises(InputError, match="actions"):
        NoisePath(1.0, 1.0, 0.0, 1.0, secure(), actions=0)
    with pytest.raises(InputError, match="points must be"):
        NoisePath(1.0, 1.0, 0.0, 1.0, secure())(cast(Any, ["a"]))
    for knots, values in (
        ([0.0], [1.0]),
        ([0.0, 1.0], [1.0]),
        ([1.0, 1.0], [0.0, 0.0]),
        ([0.0, 1.0], [0.0, math.nan]),
    ):
        with pytest.raises(InputError, match="knots must"):
            rkhs_norm(knots, values, 1.0)
    with pytest.raises(InputError, match="sup must"):
        rkhs_bound(-1.0, 1.0, 1.0, 1.0)
    with pytest.raises(InputError, match="lipschitz must be positive"):
        best_rate(1.0, 0.0)
    with pytest.raises(InputError, match="rates must"):
        ProductExponential(())
    with pytest.raises(InputError, match="each rate"):
        ProductExponential((1.0, math.nan))
    with pytest.raises(InputError, match="dimension"):
        FeatureKernel(cubes, 0)
    with pytest.raises(InputError, match="2 coordinates"):
        CholeskyPath(1.0, PRODUCT, secure())([1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="points must be"):
        CholeskyPath(1.0, PRODUCT, secure())(cast(Any, ["a", "b"]))
    with pytest.raises(InputError, match="a row for each point"):
        WeightsPath(1.0, FeatureKernel(lambda x: x[:, 0], 2), secure())([1.0, 2.0])
    changing = WeightsPath(1.0, FeatureKernel(lambda x: np.ones((len(x), len(x))), 1), secure())
    changing([[1.0]])
    with pytest.raises(InputError, match="same number of features"):
        changing([[1.0], [2.0]])
    with pytest.raises(InputError, match="std"):
        FieldMechanism(0.0, PRODUCT, 1.0)
    with pytest.raises(InputError, match="need features"):
        WeightsPath(1.0, cast(Any, PRODUCT), secure())
    with pytest.raises(InputError, match="use a WeightsPath"):
        CholeskyPath(1.0, cast(Any, KERNELS[1]), secure())
    for actions in (2**62, 2**24 + 1):
        with pytest.raises(InputError, match="actions must be at most"):
            NoisePath(1.0, 1.0, 0.0, 1.0, secure(), actions=actions)
    with pytest.raises(InputError, match="lipschitz / sup must be positive and finite"):
        best_rate(1e-308, 1e308)


def test_numbers_beyond_all_range() -> None:
    huge: Any = 10**400
    path = NoisePath(1.0, 1.0, 0.0, 1.0, secure())
    np.testing.assert_array_equal(path(cast(Any, [huge, -huge, None])), path([1.0, 0.0, 0.0]))
    noised, _ = FunctionalMechanism(1.0, 1.0, 0.0, 1.0, 1.0).release(lambda x: [huge], secure())
    assert noised([0.5]) == noised.noise([0.5])
    bads: list[Any] = [["a"], [[1.0], [1.0, 2.0]], [{}]]
    for bad in bads:

        def wrong(x: Array, bad: Any = bad) -> Any:
            return bad

        noised, _ = FunctionalMechanism(1.0, 1.0, 0.0, 1.0, 1.0).release(wrong, secure())
        with pytest.raises(InputError, match="What the function gives must be"):
            noised([0.5])
        with pytest.raises(InputError, match="features must be"):
            FeatureKernel(wrong, 1).rows(np.zeros((1, 1)))
        with pytest.raises(InputError, match="knots must be"):
            rkhs_norm(cast(Any, bad), [0.0], 1.0)
    with pytest.raises(InputError, match="knots must increase"):
        rkhs_norm([0, huge], [0.0, 1.0], 1.0)
    # Squares overflow where roots do not.
    assert rkhs_bound(1e200, 1.0, 1.0, 1.0) == pytest.approx(1e200 * math.sqrt(1.5))
    assert rkhs_bound(0.0, 1e200, 1e-100, 1e100) == pytest.approx(1e300 * math.sqrt(0.5))
    assert rkhs_norm([0.0, 1.0], [1e200, 1e200], 1.0) == pytest.approx(1e200 * math.sqrt(1.5))
    with pytest.raises(InputError, match="too large"):
        rkhs_bound(1e308, 1e308, 1e-10, 1e10)
    with pytest.raises(InputError, match="too large"):
        rkhs_norm([0.0, 1.0], [1e308, -1e308], 1e-10)


def test_a_noised_function_resumes(tmp_path: Path) -> None:
    noised, _ = FunctionalMechanism(1.0, 1.0, 0.0, 1.0, 1.0).release(np.sin, secure())
    before = noised([0.2, 0.4])
    cast(NoisePath, noised.noise).save(tmp_path / "secret.npz")
    again = NoisedFunction(np.sin, NoisePath.load(tmp_path / "secret.npz", secure()))
    np.testing.assert_array_equal(again([0.4, 0.2]), before[::-1])
