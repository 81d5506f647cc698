"""Feature maps: no state breaks the bound, and each map is the one it says it is."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.data import (
    Features,
    Fourier,
    FunctionFeatures,
    OneHot,
    Polynomial,
    Radial,
    RandomFourier,
    features_from_dict,
)
from privrl.privacy import InputError

pytestmark = pytest.mark.usefixtures("compiled_quickly")

LOW, HIGH = [-1.0, 30.0], [2.5, 200.0]

MAPS: dict[str, Callable[[bool], Features]] = {
    "fourier": lambda n: Fourier(3, LOW, HIGH, n),
    "random-fourier": lambda n: RandomFourier(37, LOW, HIGH, 0.05, 3, n),
    "radial": lambda n: Radial.grid(3, LOW, HIGH, 0.3, n),
    "polynomial": lambda n: Polynomial(4, LOW, HIGH, n),
    "tiny width": lambda n: Radial.grid(3, LOW, HIGH, 1e-300, n),
    "huge box": lambda n: Fourier(2, [-1e300, 0.0], [1e300, 5e-324], n),
    "wild frequencies": lambda n: RandomFourier(9, LOW, HIGH, 1e-300, 0, n),
    "function": lambda n: FunctionFeatures(lambda s: s * 3.0, 2, 1.0 if n else 4.0),
}

nasty = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 1e39, 2.5, 30.0]),
    st.floats(-300.0, 300.0),
)


def exact_square(row: Any) -> Fraction:
    return sum((Fraction(float(x)) ** 2 for x in row), Fraction(0))


@pytest.mark.parametrize("normalised", [False, True], ids=["plain", "normalised"])
@pytest.mark.parametrize("name", MAPS)
@settings(max_examples=25)
@given(states=st.lists(st.tuples(nasty, nasty), min_size=4, max_size=4))
def test_bound(name: str, normalised: bool, states: list[tuple[float, float]]) -> None:
    features = MAPS[name](normalised)
    limit = Fraction(features.norm_bound) ** 2
    assert not normalised or limit <= 1
    with np.errstate(all="ignore"):
        rows = features(np.array(states))
        single = features(np.array(states, dtype=np.float32))
        compiled = [
            np.asarray(features(jnp.asarray(np.array(states), dtype=kind)), dtype=np.float64)
            for kind in (jnp.float32, jnp.float16, jnp.bfloat16)
            if kind == jnp.float32 or name != "function"  # what a function returns is its own
        ]
    for found in (rows, single, *compiled):
        assert found.shape == (len(states), features.dimension)
        assert np.all(np.isfinite(found))
        for row in found:
            assert exact_square(row) <= limit


@pytest.mark.parametrize("name", ["fourier", "radial", "polynomial", "random-fourier"])
def test_bounds_are_tight(name: str) -> None:
    """A bound that is never nearly reached would cost noise for nothing."""
    features = MAPS[name](False)
    rng = np.random.default_rng(0)
    states = np.vstack([rng.uniform(LOW, HIGH, (500, 2)), [LOW, HIGH]])
    most = np.linalg.norm(features(states), axis=1).max()
    # Narrow bumps cannot all be high at once, which their bound does not know.
    floor = {"radial": 0.3, "random-fourier": 0.6}.get(name, 0.999)
    assert most > floor * features.norm_bound


def test_one_hot() -> None:
    features = OneHot(3)
    assert features([0, 2, 3, -1]).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert features([math.nan, 1.0, 0.5]).tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert features(np.zeros((4, 5), dtype=int)).shape == (4, 5, 3)
    assert features.norm_bound == 1.0


@pytest.mark.parametrize("kind", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_one_hot_is_one_hot_in_few_bits(kind: Any) -> None:
    """In 16 bits neighbouring indices are one number, which must not light two features."""
    rows = np.asarray(OneHot(3000)(jnp.arange(3000).astype(kind)))
    assert rows.sum(axis=1).max() == 1.0


def test_middle() -> None:
    """The sum of the ends of a range may be no number, though their difference is."""
    found = Fourier(2, 1.6e308, 1.7e308)
    np.testing.assert_array_equal(found([math.nan]), Fourier(2, 0.0, 1.0)([0.5]))


@pytest.mark.parametrize("kind", [jnp.float16, jnp.bfloat16])
def test_normalised_in_few_bits(kind: Any) -> None:
    # Where 1 / sqrt(d), rounded to the nearest number of this kind, is too large.
    up = [n for n in range(1, 30) if float(kind(1 / math.sqrt(n + 1))) ** 2 * (n + 1) > 1]
    assert len(up) > 5
    for order in up[:6]:
        row = np.asarray(Fourier(order, 0.0, 1.0, True)(jnp.zeros(1, kind)), dtype=np.float64)
        assert exact_square(row[0]) <= 1


def test_fourier_by_hand() -> None:
    features = Fourier(2, 0.0, 10.0)
    expected = [[1.0, math.cos(math.pi * u), math.cos(2 * math.pi * u)] for u in (0.0, 0.3, 1.0)]
    np.testing.assert_allclose(features([0.0, 3.0, 10.0]), expected, atol=1e-12)
    # Outside the range is the edge of it; NaN is the middle.
    np.testing.assert_array_equal(features([-5.0, 99.0]), features([0.0, 10.0]))
    np.testing.assert_array_equal(features([math.nan]), features([5.0]))
    np.testing.assert_allclose(
        Fourier(2, 0.0, 10.0, normalised=True)([3.0]) * math.sqrt(3), features([3.0]), rtol=1e-6
    )
    assert Fourier(5, [30, 40], [200, 140]).dimension == 36


def test_polynomial_by_hand() -> None:
    x, y = 0.5, -0.25
    found = Polynomial(2, [-1, -1], [1, 1])([[x, y]])
    np.testing.assert_allclose(found, [[1.0, x, y, x * x, x * y, y * y]])


def test_radial_by_hand() -> None:
    features = Radial([[0.0], [5.0]], 0.0, 10.0, width=0.5)
    np.testing.assert_allclose(features([5.0]), [[math.exp(-0.5), 1.0]])


def test_random_fourier_is_a_kernel() -> None:
    features = RandomFourier(20_000, [0, 0], [1, 1], bandwidth=0.5, seed=1)
    a, b = features([[0.2, 0.3], [0.5, 0.7]])
    kernel = math.exp(-(0.3**2 + 0.4**2) / (2 * 0.5**2))
    assert abs(a @ b - kernel) < 0.03
    other = RandomFourier(20_000, [0, 0], [1, 1], bandwidth=0.5, seed=2)
    assert not np.allclose(features([[0.2, 0.3]]), other([[0.2, 0.3]]))


@pytest.mark.parametrize("name", ["fourier", "random-fourier", "radial", "polynomial"])
def test_compiled_and_written(name: str) -> None:
    features: Any = MAPS[name](True)
    states = np.random.default_rng(0).uniform(LOW, HIGH, (20, 2))
    compiled = jax.jit(features.__call__)(jnp.asarray(states))
    np.testing.assert_allclose(compiled, features(states), atol=2e-4)
    again = features_from_dict(features.to_dict())
    assert again == features
    np.testing.assert_array_equal(again(states), features(states))
    # Further leading axes are kept.
    np.testing.assert_array_equal(
        features(states.reshape(4, 5, 2)), features(states).reshape(4, 5, -1)
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: OneHot(0),
        lambda: OneHot(True),
        lambda: Fourier(0, 0.0, 1.0),
        lambda: Fourier(3, 1.0, 1.0),
        lambda: Fourier(3, [0.0], [1.0, 2.0]),
        lambda: Fourier(3, math.nan, 1.0),
        lambda: Fourier(3, -math.inf, 1.0),
        lambda: Fourier(3, -1.7e308, 1.7e308),
        lambda: Fourier(9, [0.0] * 9, [1.0] * 9),
        lambda: Fourier(3, "low", 1.0),
        lambda: RandomFourier(0, 0.0, 1.0),
        lambda: RandomFourier(9, 0.0, 1.0, bandwidth=0.0),
        lambda: RandomFourier(9, 0.0, 1.0, seed=-1),
        lambda: Radial([], 0.0, 1.0),
        lambda: Radial([[0.0, 1.0]], 0.0, 1.0),
        lambda: Radial([[0.0]], 0.0, 1.0, width=math.nan),
        lambda: Polynomial(-1, 0.0, 1.0),
        lambda: FunctionFeatures(3, 2, 1.0),  # type: ignore[arg-type]
        lambda: FunctionFeatures(abs, 2, 0.0),
        lambda: FunctionFeatures(lambda s: np.zeros((1, 3)), 2, 1.0)([0.0]),
        lambda: FunctionFeatures(abs, 2, 1.0).to_dict(),
        lambda: Fourier(3, [0, 0], [1, 1])([1.0, 2.0, 3.0]),
        lambda: Fourier(3, 0, 1)(["a"]),
        lambda: OneHot(10**12),
        lambda: Fourier(10**300, [0.0, 0.0], [1.0, 1.0]),
        lambda: Fourier(10**400, [0.0] * 1000, [1.0] * 1000),
        lambda: Polynomial(10**400, [0.0] * 1000, [1.0] * 1000),
        lambda: RandomFourier(10**400, 0.0, 1.0),
        lambda: Radial.grid(3, [0.0, 0.0], [1.0]),
        lambda: Radial.grid(10**200, [0.0, 0.0], [1.0, 1.0]),
        lambda: features_from_dict({"kind": "wavelet"}),
        lambda: features_from_dict({"kind": "fourier", "order": 3}),
        lambda: features_from_dict({"kind": "one-hot", "num_states": 3, "more": 1}),
        lambda: features_from_dict(["one-hot"]),
    ],
)
def test_refusals(make: Callable[[], object]) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value).endswith(".")
