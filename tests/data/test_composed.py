"""Features made of parts: bounds that hold for any state, values by hand, and JSON."""

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.data import (
    Cells,
    ConcatFeatures,
    CosineProducts,
    FunctionFeatures,
    NetworkOutputs,
    OneHot,
    features_from_dict,
)
from privrl.privacy import InputError

pytestmark = pytest.mark.usefixtures("compiled_quickly")

LOW, HIGH = [-1.0, 30.0], [2.5, 200.0]
DRAW = np.random.default_rng(5)
LAYERS = (
    (3.0 * DRAW.normal(size=(2, 5)), DRAW.normal(size=5)),
    (3.0 * DRAW.normal(size=(5, 3)), DRAW.normal(size=3)),
)
NETWORK = NetworkOutputs(LAYERS, LOW, HIGH)
ALL: dict[str, Any] = {
    "cells": Cells(4, LOW, HIGH),
    "cosines": CosineProducts(3, LOW, HIGH),
    "network": NETWORK,
    "network, tanh": NetworkOutputs(LAYERS, LOW, HIGH, "tanh"),
    "joined": ConcatFeatures((NETWORK, Cells(2, LOW, HIGH), CosineProducts(2, LOW, HIGH))),
}
each = pytest.mark.parametrize("features", list(ALL.values()), ids=list(ALL))
nasty = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e308, 5e-324, 2.5, 30.0, 200.0]),
    st.floats(-300.0, 300.0),
)


@each
@settings(max_examples=40)
@given(states=st.lists(st.tuples(nasty, nasty), min_size=4, max_size=4))
def test_no_state_breaks_the_bound(features: Any, states: list[tuple[float, float]]) -> None:
    limit = Fraction(features.norm_bound) ** 2
    with np.errstate(all="ignore"):
        wide = features(np.array(states))
        narrow = np.asarray(features(jnp.asarray(np.array(states), jnp.float32)), np.float64)
    for found in (wide, narrow):
        assert found.shape == (4, features.dimension)
        for row in found:
            assert sum((Fraction(float(x)) ** 2 for x in row), Fraction(0)) <= limit


@each
def test_compiled_written_and_with_a_hash(features: Any) -> None:
    states = DRAW.uniform(LOW, HIGH, (20, 2))
    with jax.enable_x64(True):
        compiled = jax.jit(features.__call__)(jnp.asarray(states))
    np.testing.assert_allclose(compiled, features(states), atol=1e-10)
    again = features_from_dict(features.to_dict())
    assert again == features
    assert hash(again) == hash(features)
    np.testing.assert_array_equal(again(states), features(states))
    shaped = features(states.reshape(4, 5, 2))
    np.testing.assert_array_equal(shaped, features(states).reshape(4, 5, -1))


def test_by_hand() -> None:
    unit = ([0.0, 0.0], [1.0, 2.0])
    state = np.array([[0.6, 0.2]])  # 0.6 and 0.1 of the ranges
    hot = Cells(3, *unit)(state)[0]
    assert np.flatnonzero(hot).tolist() == [1 * 3 + 0]
    assert np.flatnonzero(Cells(3, *unit)(np.array([[1.0, 2.0]]))[0]).tolist() == [8]
    a, b = math.cos(0.6 * math.pi), math.cos(0.1 * math.pi)
    np.testing.assert_allclose(CosineProducts(2, *unit)(state)[0], [1.0, b, a, a * b])
    first, second = LAYERS
    hidden = np.maximum(np.array([0.6, 0.1]) @ first[0] + first[1], 0.0)
    outputs = NetworkOutputs(LAYERS, *unit)(state)[0]
    np.testing.assert_allclose(outputs, hidden @ second[0] + second[1])
    both = ConcatFeatures((Cells(3, *unit), CosineProducts(2, *unit)))
    assert both.norm_bound == pytest.approx(math.sqrt(1.0 + 4.0))
    np.testing.assert_allclose(both(state)[0], [*hot, 1.0, b, a, a * b])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Cells(0, LOW, HIGH), "side"),
        (lambda: Cells(10**4, LOW, HIGH), "features"),
        (lambda: CosineProducts(3, HIGH, LOW), "high must be above low"),
        (lambda: NetworkOutputs((), LOW, HIGH), "at least one"),
        (lambda: NetworkOutputs(LAYERS[1:], LOW, HIGH), "fit to one another"),
        (lambda: NetworkOutputs(LAYERS, LOW, HIGH, "sine"), "activation"),
        (lambda: NetworkOutputs((([[1e40], [0.0]], [0.0]),), LOW, HIGH), "so large"),
        (lambda: NetworkOutputs((([[math.nan], [0.0]], [0.0]),), LOW, HIGH), "finite"),
        (lambda: NetworkOutputs([{"weights": [[1.0], [1.0]]}], LOW, HIGH), "pairs"),
        (lambda: ConcatFeatures(()), "at least one"),
        (lambda: features_from_dict({"kind": "joined", "parts": [{"kind": "waves"}]}), "waves"),
        (lambda: features_from_dict({"kind": "cells", "low": 0, "high": 1}), "without 'side'"),
        (
            lambda: ConcatFeatures((FunctionFeatures(lambda s: s, 2, 1.0),)).to_dict(),
            "cannot be written",
        ),
    ],
)
def test_refusals(make: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()


def test_one_hot_can_be_a_part() -> None:
    found = ConcatFeatures((OneHot(3), OneHot(2)))(np.array([1]))
    np.testing.assert_array_equal(found, [[0.0, 1.0, 0.0, 0.0, 1.0]])
