"""Projected random sign for compiled simulations: many agents' reports at once, from a key.

The plan and its proof are those of `sign.py`; reports come out expanded. Two things differ. The
directions are drawn by JAX, so there is no seed to send. And the coin that tells the truth is 62
random bits against a rational that is rounded so that its odds are at most e^x, so epsilon holds
exactly here too.

Randomness: JAX's counter-based generator; simulations, or runs on a fresh secret key.
"""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from privrl.privacy.mechanisms.report_laplace_jax import as_rows
from privrl.privacy.mechanisms.sign import ProjectedSign
from privrl.privacy.noise import jax_normal

_GRAIN = 2**62
_MARGIN = 1e-12  # far more than the error of the exponential below


def flip_count(x: Fraction) -> int:
    """How many of 2^62 equally likely outcomes turn a bit around: at least 2^62 / (1 + e^x).

    But never more than half of them: more would be the opposite bit, with odds of its own.
    """
    share = (1.0 + _MARGIN) / (1.0 + math.exp(min(float(x), 700.0)))
    return math.ceil(_GRAIN * min(share, 0.5))


def bernoulli_sigmoid(key: jax.Array, x: Fraction, shape: tuple[int, ...]) -> jax.Array:
    """Coins that are true with odds of e^x, rounded down as `flip_count` is."""
    honest: jax.Array = jax.random.bits(key, shape, jnp.uint64) >> 2 >= jnp.uint64(flip_count(x))
    return honest


def reports(plan: ProjectedSign, rows: jax.Array | ArrayLike, key: jax.Array) -> jax.Array:
    """A report for each of the (agents, dimension) rows; each costs its agent `plan.event`."""
    rows = as_rows(rows, plan.dimension)
    jax_normal(key, ())  # refuses to work in 32 bits
    shape = (rows.shape[0], plan.bits)
    draw, wanted, truth = jax.random.split(key, 3)
    sixths = jax.random.randint(draw, (*shape, plan.dimension), 0, 6, jnp.int32)
    return from_draws(
        plan,
        rows.astype(jnp.float64),
        directions=jnp.where(sixths == 0, -1.0, jnp.where(sixths == 1, 1.0, 0.0)),
        wanted=jax.random.bits(wanted, shape, jnp.uint64) >> 11,
        truth=bernoulli_sigmoid(truth, plan.epsilon_per_part, shape),
    )


def from_draws(
    plan: ProjectedSign,
    rows: jax.Array,
    *,
    directions: jax.Array,
    wanted: jax.Array,
    truth: jax.Array,
) -> jax.Array:
    """The reports that these directions (-1, 0, 1), integers of 53 bits and coins make."""
    finite = jnp.where(jnp.all(jnp.isfinite(rows), axis=1, keepdims=True), rows, 0.0)
    largest = jnp.max(jnp.abs(finite), axis=1, keepdims=True)
    shrunk = jnp.where(largest > 2.0**900, 2.0**-120, 1.0)
    limit = plan.clip / math.sqrt(3.0) * shrunk
    found = jnp.einsum("nbd,nd->nb", directions, finite * shrunk)
    t = jnp.clip(found, -limit, limit) / limit
    sign = wanted < jnp.rint((1.0 + t) * 2.0**52).astype(jnp.uint64)
    bits = jnp.where(sign == truth, 1.0, -1.0)
    return plan.size * jnp.einsum("nb,nbd->nd", bits, directions)
