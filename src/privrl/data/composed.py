"""Feature maps made of parts: cells of a lattice, products of cosines, networks, several at once.

Total and bounded like those of `privrl.data.features`, and fixed by public settings.
`ConcatFeatures` and `NetworkOutputs` let functions that were learned as a network plus something
else be written down.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.data.features import (
    BoxFeatures,
    Features,
    NamedFeatures,
    _check_size,
    _set_fields,
    features_from_dict,
)
from privrl.data.keys import is_jax
from privrl.nets import ACTIVATIONS, mlp

# Well within what 32 bits hold, sums on the way included.
_LARGEST = 1e30


@dataclass(frozen=True)
class _Lattice(BoxFeatures):
    """`side` parts of each coordinate, and what belongs to each combination of them."""

    side: int
    low: Any
    high: Any

    def __post_init__(self) -> None:
        _set_fields(self, side=checks.count("side", self.side))
        self._check_box()
        _check_size(round(min(float(self.side) ** len(self.low), 1e12)))

    @property
    def dimension(self) -> int:
        return int(self.side ** len(self.low))


@dataclass(frozen=True)
class Cells(_Lattice):
    """1 for the cell of a lattice in which the state lies, and 0 for all others: of norm 1."""

    kind: ClassVar[str] = "cells"

    @property
    def norm_bound(self) -> float:
        return 1.0

    def __call__(self, states: Any) -> Any:
        xp, u = self.to_unit_cube(states)
        place = xp.clip(xp.floor(u * self.side), 0, self.side - 1)
        number = place[..., 0]
        for axis in range(1, len(self.low)):
            number = number * self.side + place[..., axis]
        return (number[..., None] == xp.arange(self.dimension)).astype(u.dtype)


@dataclass(frozen=True)
class CosineProducts(_Lattice):
    """prod_i cos(pi j_i u_i) for all j in {0, ..., side - 1}^k, clamped to [-1, 1].

    d of them have norm at most sqrt(d).
    """

    kind: ClassVar[str] = "cosine-products"

    @property
    def norm_bound(self) -> float:
        return math.nextafter(math.sqrt(self.dimension), math.inf)

    def __call__(self, states: Any) -> Any:
        xp, u = self.to_unit_cube(states)
        waves = xp.cos(math.pi * u[..., None] * xp.arange(self.side).astype(u.dtype))
        waves = xp.clip(waves, -1.0, 1.0)
        found = waves[..., 0, :]
        for axis in range(1, len(self.low)):
            pairs = found[..., :, None] * waves[..., axis, None, :]
            found = pairs.reshape(*pairs.shape[:-2], -1)
        return found


@dataclass(frozen=True)
class NetworkOutputs(BoxFeatures):
    """What a small network gives for the state scaled to [0, 1]^k.

    Inputs have norm at most sqrt(k), a layer x -> act(x W + b) makes norms at most |W| |x| + |b|
    (spectral, and both activations bring nothing further from 0), and so on to the last, which is
    linear. Rounding is met by a margin of a millionth.
    """

    layers: Any
    low: Any
    high: Any
    activation: str = "relu"
    kind: ClassVar[str] = "network-outputs"

    def __post_init__(self) -> None:
        checks.choice("activation", self.activation, ACTIVATIONS)
        try:
            pairs = [
                (one["weights"], one["biases"]) if isinstance(one, Mapping) else one
                for one in self.layers
            ]
            made = tuple((_tuples(weights), _tuples(biases)) for weights, biases in pairs)
        except (KeyError, TypeError, ValueError):
            raise InputError(
                "must be pairs of weights and biases, all numbers.", field="layers"
            ) from None
        _set_fields(self, layers=made)
        self._check_box()
        width = len(self.low)
        for weights, biases in map(_pair, self.layers):
            fits = weights.ndim == 2 and weights.shape == (width, biases.size) and biases.ndim == 1
            if not (fits and np.all(np.isfinite(weights)) and np.all(np.isfinite(biases))):
                raise InputError(
                    "must fit to one another, and hold finite numbers.", field="layers"
                )
            width = biases.size
        if not self.layers:
            raise InputError("must be at least one.", field="layers")
        if not self.norm_bound <= _LARGEST:
            raise InputError(
                "must not have weights so large that 32 bits cannot hold them.", field="layers"
            )

    @property
    def dimension(self) -> int:
        return len(self.layers[-1][1])

    @property
    def norm_bound(self) -> float:
        bound = math.sqrt(len(self.low))
        for weights, biases in map(_pair, self.layers):
            size = float(np.linalg.norm(weights, 2)) * bound + float(np.linalg.norm(biases))
            bound = size * (1.0 + 1e-6)
        return bound

    def __call__(self, states: Any) -> Any:
        _, x = self.to_unit_cube(states)
        return mlp(map(_pair, self.layers), x, self.activation)

    def to_dict(self) -> dict[str, Any]:
        layers = [{"weights": w.tolist(), "biases": b.tolist()} for w, b in map(_pair, self.layers)]
        return super().to_dict() | {"layers": layers}


@dataclass(frozen=True)
class ConcatFeatures(NamedFeatures):
    """The features of several maps, one after the other."""

    parts: tuple[Features, ...]
    kind: ClassVar[str] = "joined"

    def __post_init__(self) -> None:
        given = self.parts if isinstance(self.parts, list | tuple) else ()
        made = tuple(features_from_dict(one) if isinstance(one, Mapping) else one for one in given)
        if not made or not all(isinstance(one, Features) for one in made):
            raise InputError("must be feature maps, at least one.", field="parts")
        _set_fields(self, parts=made)

    @property
    def dimension(self) -> int:
        return sum(part.dimension for part in self.parts)

    @property
    def norm_bound(self) -> float:
        squares = math.fsum(part.norm_bound**2 for part in self.parts)
        return math.nextafter(math.sqrt(squares), math.inf)

    def __call__(self, states: Any) -> Any:
        rows = [part(states) for part in self.parts]
        if any(map(is_jax, rows)):
            import jax.numpy as jnp

            return jnp.concatenate(rows, axis=-1)
        return np.concatenate(rows, axis=-1)


def _tuples(values: Any) -> Any:
    """Nested tuples of numbers, which have a hash."""

    def to_tuple(value: Any) -> Any:
        return tuple(map(to_tuple, value)) if isinstance(value, list) else value

    return to_tuple(np.asarray(values, dtype=np.float64).tolist())


def _pair(layer: tuple[Any, Any]) -> tuple[Any, Any]:
    return np.array(layer[0], dtype=np.float64), np.array(layer[1], dtype=np.float64)
