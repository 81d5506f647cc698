"""Laplace reports for compiled simulations: many agents' reports at once, from an explicit key.

The plan and its proof are those of `LaplaceReport`, in 64-bit floating point, so "idealised real
arithmetic" is assumed here as there. JAX's uniform numbers have 52 bits, so that no draw is beyond
37 scales; on paper that happens once in 10^16 draws.

Randomness: JAX's counter-based generator; simulations, or runs on a fresh secret key.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from privrl.core.errors import InputError
from privrl.privacy.mechanisms import clip
from privrl.privacy.mechanisms.report_laplace import LaplaceReport
from privrl.privacy.noise import as_float64, jax_normal


def as_rows(rows: jax.Array | ArrayLike, dimension: int) -> jax.Array:
    """`rows` as an array with so many columns."""
    rows = rows if isinstance(rows, jax.Array) else jnp.asarray(as_float64("rows", rows))
    if rows.ndim != 2 or rows.shape[1] != dimension:
        raise InputError(f"must have {dimension} columns, not shape {rows.shape}.", field="rows")
    return rows


def reports(plan: LaplaceReport, rows: jax.Array | ArrayLike, key: jax.Array) -> jax.Array:
    """A report for each of the (agents, dimension) rows; each costs its agent `plan.event`."""
    return _noised(as_rows(rows, plan.dimension), key, plan.radius, plan.mechanism.scale)


def reports_of_many(
    plans: Sequence[LaplaceReport], which: jax.Array, rows: jax.Array, keys: jax.Array
) -> jax.Array:
    """A report for each row (n, d) from its own key, by plan number `which` (n,).

    The plans differ in epsilon only. Bit for bit what `reports` gives for the row alone.
    """
    scales = jnp.asarray([plan.mechanism.scale for plan in plans])[which]
    one = partial(_noised, radius=plans[0].radius)
    return jax.vmap(lambda row, key, scale: one(row[None], key, scale=scale)[0])(rows, keys, scales)


def _noised(rows: jax.Array, key: jax.Array, radius: float, scale: float | jax.Array) -> jax.Array:
    jax_normal(key, ())  # refuses to work in 32 bits
    clipped = clip.l1(rows.astype(jnp.float64), radius)
    return clipped + scale * jax.random.laplace(key, clipped.shape, jnp.float64)
