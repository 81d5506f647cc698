"""Noise over a box for learners that certify nothing: Gaussian fields with finitely many weights.

Points are scaled to [0, 1]^k. A field is sigma times weights (n,) applied to features of a point,
so that it is one function: asked twice at a point it says the same, and there is no list of former
points to draw it from. Both kinds are made of the kernel exp(-rate |x - y|_1), the product over
coordinates of exp(-rate |x_i - y_i|):

- *features*: in each coordinate 1, sqrt(2) cos(pi x), ..., sqrt(2) cos(pi m x), and the products of
  these, psi_j, which are orthonormal on the cube. The kernel is sum_j lambda_j psi_j(x) psi_j(y),
  lambda_j the product over coordinates of l_{j_i}, with l_j proportional to the spectral density
  rate / (rate^2 + pi^2 j^2) of the exponential kernel and summing to 1 over 0, ..., m. So the mean
  variance over the cube is 1; at a corner it is above that (1.28 for k = 2, rate 1 and m = 10).
  Paths are smooth.
- *cells*: the kernel itself at the centres of a lattice of n cells in each coordinate, and constant
  in each cell. In a coordinate the values at the centres are an autoregression, with the Cholesky
  factor L_{ij} = r^(i-j) (1 or sqrt(1 - r^2)), r = exp(-rate / n), the first for j = 0; for all
  coordinates it is the Kronecker product of these. The variance is 1 everywhere.
"""

import math
from dataclasses import dataclass
from typing import get_args

import jax
import jax.numpy as jnp

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.papers.rajabi2022.spec import Kind

# More weights would make each evaluation cost more than the learner.
_MAX_WEIGHTS = 4096


@dataclass(frozen=True)
class Field:
    """Which weights there are, and what they mean at a point."""

    kind: Kind
    side: int
    """Features or cells in each coordinate: m + 1, or n."""

    dimension: int

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"noise must be 'features' or 'cells', not {self.kind!r}.")
        for name in ("side", "dimension"):
            checks.count(name, getattr(self, name))
        if self.dimension * math.log(self.side) > math.log(_MAX_WEIGHTS) + 1e-9:
            raise InputError(
                f"{self.side} {self.kind} in each of {self.dimension} coordinates are too many: "
                f"let there be at most {_MAX_WEIGHTS:,} in all."
            )

    @property
    def count(self) -> int:
        """How many weights."""
        return int(self.side**self.dimension)

    def weights(self, normals: jax.Array, rate: jax.Array | float) -> jax.Array:
        """Weights (..., count) for sigma 1, from as many standard normals."""
        found = normals.reshape(*normals.shape[:-1], *(self.side,) * self.dimension)
        order = jnp.arange(self.side, dtype=normals.dtype)
        if self.kind == "features":
            shares = 1.0 / (1.0 + (math.pi * order / rate) ** 2)
            # Of cosines, whose squares have the mean 1/2.
            sizes = jnp.where(order == 0, 1.0, math.sqrt(2.0))
            factor = jnp.diag(sizes * jnp.sqrt(shares / jnp.sum(shares)))
        else:
            behind = order[:, None] - order
            new = jnp.where(order == 0, 1.0, jnp.sqrt(-jnp.expm1(-2.0 * rate / self.side)))
            # Ahead of the diagonal the exponent is kept from overflowing.
            decay = jnp.exp(-rate * jnp.maximum(behind, 0.0) / self.side)
            factor = jnp.where(behind >= 0, decay, 0.0) * new
        for axis in range(normals.ndim - 1, found.ndim):
            found = jnp.moveaxis(jnp.tensordot(found, factor, ((axis,), (1,))), -1, axis)
        return found.reshape(normals.shape)

    def evaluate(self, weights: jax.Array, x: jax.Array) -> jax.Array:
        """The fields of weights (fields, count) at points (n, k) of the cube: (n, fields)."""
        if self.kind == "cells":
            return weights.T[self._cell_index(x)]
        if self.dimension > 2:
            return self.features(x) @ weights.T
        # Four times as fast as the product, but a long program to compile.
        found = [weights[:, j, None] for j in range(self.count)]
        for cosines in jnp.cos(math.pi * x).T[::-1]:
            parts = range(0, len(found), self.side)
            found = [_cosine_series(found[j : j + self.side], cosines) for j in parts]
        return found[0].T

    def features(self, x: jax.Array) -> jax.Array:
        """(n, count): what the weights are multiplied by, in `at`."""
        if self.kind == "cells":
            return jax.nn.one_hot(self._cell_index(x), self.count, dtype=x.dtype)
        waves = jnp.cos(math.pi * x[:, :, None] * jnp.arange(self.side, dtype=x.dtype))
        found = waves[:, 0]
        for axis in range(1, self.dimension):
            found = (found[:, :, None] * waves[:, axis, None, :]).reshape(len(x), -1)
        return found

    def _cell_index(self, x: jax.Array) -> jax.Array:
        place = jnp.clip(jnp.floor(x * self.side), 0, self.side - 1).astype(jnp.int32)
        number = place[:, 0]
        for axis in range(1, self.dimension):
            number = number * self.side + place[:, axis]
        return number


def _cosine_series(terms: list[jax.Array], cosines: jax.Array) -> jax.Array:
    """sum_j terms[j] cos(j t), (rows, n), from cos(t) (n,): Clenshaw's recurrence."""
    last = before = jnp.zeros_like(terms[0] * cosines)
    for term in terms[:0:-1]:
        last, before = term + 2.0 * cosines * last - before, last
    return terms[0] + cosines * last - before
