"""Clipping: the exact norm of what comes back is within the bound, whatever went in."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privrl.privacy import InputError
from privrl.privacy.mechanisms import clip

Rows = NDArray[np.floating[Any]]
Clip = Callable[[Any, float], Any]

nasty = st.one_of(
    st.floats(width=64, allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-310, 2.2e-308, 1e-160, 1.0, 1e154, 1e200, 1e308]),
    st.floats(-2.0, 2.0),
)
bounds = st.one_of(st.floats(1e-250, 1e250), st.floats(0.01, 100.0), st.just(1.0))


def exact_l2_squared(row: Rows) -> Fraction:
    return sum((Fraction(float(x)) ** 2 for x in row), Fraction(0))


def exact_l1(row: Rows) -> Fraction:
    return sum((abs(Fraction(float(x))) for x in row), Fraction(0))


def assert_within(before: Rows, after: Rows, bound: float, squared: bool) -> None:
    assert np.all(np.isfinite(after))
    limit = Fraction(bound)
    for old, new in zip(before, after, strict=True):
        norm = exact_l2_squared(new) if squared else exact_l1(new)
        assert norm <= (limit**2 if squared else limit)
        if not np.all(np.isfinite(old)):
            assert not np.any(new)
            continue
        exact = exact_l2_squared(old) if squared else exact_l1(old)
        # Rows clearly inside are not touched; rows outside keep direction and nearly all length.
        if exact <= (limit**2 if squared else limit) * Fraction(999_999, 1_000_000):
            np.testing.assert_array_equal(new, old)
        if exact >= (limit**2 if squared else limit):
            assert norm >= (limit**2 if squared else limit) * Fraction(999_99, 1_000_00)
            assert np.all(np.sign(new) * np.sign(old) >= 0)


@settings(max_examples=400)
@given(st.lists(st.lists(nasty, min_size=5, max_size=5), min_size=1, max_size=4), bounds)
def test_numpy(rows: list[list[float]], bound: float) -> None:
    array = np.array(rows)
    assert_within(array, clip.l2(array, bound), bound, squared=True)
    assert_within(array, clip.l1(array, bound), bound, squared=False)


@settings(max_examples=100)
@given(st.lists(st.lists(nasty, min_size=5, max_size=5), min_size=2, max_size=2), bounds)
def test_jax_in_64_bits(rows: list[list[float]], bound: float) -> None:
    import jax

    array = np.array(rows)
    # XLA flushes subnormal numbers to zero; the rest of the row is what must come back untouched.
    array = np.where(np.abs(array) < 2.3e-308, 0.0, array)
    with jax.enable_x64(True):
        l2, l1 = (np.asarray(f(jax.numpy.asarray(array), bound)) for f in (clip.l2, clip.l1))
    assert l2.dtype == np.float64
    assert_within(array, l2, bound, squared=True)
    assert_within(array, l1, bound, squared=False)


@pytest.mark.slow
@settings(max_examples=50)
@given(
    st.lists(
        st.lists(st.floats(width=32, allow_subnormal=False), min_size=6, max_size=6),
        min_size=2,
        max_size=2,
    ),
    st.floats(0.0009765625, 1024.0, width=32),
)
def test_jax_in_32_bits_and_compiled(rows: list[list[float]], bound: float) -> None:
    import jax

    array = np.array(rows, dtype=np.float32)
    for f, squared in ((clip.l2, True), (clip.l1, False)):
        eager = np.asarray(f(jax.numpy.asarray(array), bound))
        compiled = np.asarray(jax.jit(lambda x, f=f: f(x, bound))(array))
        for found in (eager, compiled):
            assert found.dtype == np.float32
            for old, new in zip(array, found, strict=True):
                norm = exact_l2_squared(new) if squared else exact_l1(new)
                assert norm <= (Fraction(bound) ** 2 if squared else Fraction(bound))
                if not np.all(np.isfinite(old)):
                    assert not np.any(new)


@pytest.mark.parametrize("squared", [True, False])
def test_rows_at_the_very_edge(squared: bool) -> None:
    """Long rows of equal entries, where rounding errors of a naive clip add up to a violation."""
    rng = np.random.default_rng(0)
    f = clip.l2 if squared else clip.l1
    naive_violations = 0
    for length in (1, 2, 3, 7, 112, 1000):
        rows = rng.standard_normal((20, length)) * 10.0 ** rng.integers(-3, 4, (20, 1))
        bound = float(rng.uniform(0.1, 1.0))
        clipped = f(rows, bound)
        order = 2 if squared else 1
        naive = rows * np.minimum(1.0, bound / np.linalg.norm(rows, order, axis=1, keepdims=True))
        for row, plain in zip(clipped, naive, strict=True):
            norm, other = (
                (exact_l2_squared(r), Fraction(bound) ** 2)
                if squared
                else (exact_l1(r), Fraction(bound))
                for r in (row, plain)
            )
            assert norm[0] <= norm[1]
            naive_violations += other[0] > other[1]
    # The check has teeth: scaling by bound / norm and no more breaks the bound many times.
    assert naive_violations > 10


def test_clipping_bounds_the_movement_of_a_sum() -> None:
    """One unit replaced by anything at all moves the sum by at most 2 bound, exactly."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((6, 4))
    for bad in ([math.nan] * 4, [math.inf, 0, 0, 0], [1e308] * 4, [-1e308, 1e308, 0, 5e-324]):
        other = rows.copy()
        other[2] = bad
        a, b = clip.l2(rows, 0.3), clip.l2(other, 0.3)
        assert exact_l2_squared(a[2]) + exact_l2_squared(b[2]) <= 2 * Fraction(0.3) ** 2
        np.testing.assert_array_equal(np.delete(a, 2, 0), np.delete(b, 2, 0))


def test_shapes_and_types() -> None:
    assert clip.l2(np.zeros((3, 0)), 1.0).shape == (3, 0)
    assert clip.l2(np.zeros((0, 3)), 1.0).shape == (0, 3)
    assert clip.l2(np.full((2, 3, 4), 9.0), 1.0).shape == (2, 3, 4)
    np.testing.assert_allclose(clip.l2([3, 4], 1.0), [0.6, 0.8], rtol=1e-12)
    assert clip.l1(np.ones(3, dtype=np.float32), 1.0).dtype == np.float32


@pytest.mark.parametrize(
    ("rows", "bound", "sentence"),
    [
        (3.0, 1.0, "needs rows"),
        (["a", "b"], 1.0, "must be numbers"),
        ([[1.0], [1.0, 2.0]], 1.0, "same length"),
        ([1.0], 0.0, "bound must be positive"),
        ([1.0], math.nan, "not NaN"),
        ([1.0], 1e-305, "too small"),
        ([1.0], 1e308, "too large"),
        (np.ones(3, dtype=np.float16), 1e-6, "too"),
    ],
)
def test_bad_input(rows: object, bound: float, sentence: str) -> None:
    for f in (clip.l2, clip.l1):
        with pytest.raises(InputError, match=sentence):
            f(rows, bound)
