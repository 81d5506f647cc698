"""PrivUnit for compiled simulations: many agents' reports at once, from an explicit key.

The plan, its proof and all steps after the draws are those of `unit_vector.py`. The coin for the
cap is exact here too: 56 random bits against the plan's rational p. The first coordinate W is found
by inversion in 64 bits (`upper_quantile`), to an error below 1e-13 for 2 to 10^5 dimensions.

Randomness: JAX's counter-based generator; simulations, or runs on a fresh secret key.
"""

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from privrl.core.types import Array
from privrl.privacy.mechanisms import unit_vector
from privrl.privacy.mechanisms.report_laplace_jax import as_rows
from privrl.privacy.mechanisms.unit_vector import Caps, PrivUnit, from_draws, log_cap_moment
from privrl.privacy.noise import jax_normal

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(30)
# Where the integrand has fallen to e^-40 of its largest value the integral is cut off.
_NEGLIGIBLE = 40.0
_NEWTON_STEPS = 5
# Logarithms of tails in the table of quantiles, and how many.
_LOG_TAILS = (-40.0, math.log(0.5))
_TABLE_NODES = 8192


def reports(plan: PrivUnit, rows: jax.Array | ArrayLike, key: jax.Array) -> jax.Array:
    """A report for each of the (agents, dimension) rows; each costs its agent `plan.event`."""
    rows = as_rows(rows, plan.dimension)
    count = rows.shape[0]
    coin, uniform, normal, sign = jax.random.split(key, 4)
    normals = jax_normal(normal, (count, plan.sphere - 1))  # refuses to work in 32 bits
    bits = jax.random.bits(coin, (count,), jnp.uint64) >> 8
    found: jax.Array = from_draws(
        jnp,
        plan,
        rows.astype(jnp.float64),
        inside=bits < jnp.uint64(int(plan.inside * 2**56)),
        first=functools.partial(upper_quantile, plan.sphere),
        uniforms=1.0 - jax.random.uniform(uniform, (count,), jnp.float64),
        normals=normals,
        signs=jax.random.rademacher(sign, (count,), jnp.float64),
    )
    return found


def upper_quantile(sphere: int, tails: jax.Array) -> jax.Array:
    """w >= 0 with P(W >= w) = tail, for tails in (0, 1/2], by Newton's method.

    With w = cos(theta), P(W >= w) = F(theta) = c int_0^theta sin^(D-2). log F is concave and
    increasing, so Newton's steps from below never overshoot. They begin where sin^(D-1) = 2 tail:
    F(theta) <= sin^(D-1)(theta) / 2 (equal at pi/2, and the quotient falls with theta), so that
    this is below the root; and it is off by a logarithm only, so that a few steps suffice.
    """
    if sphere == 2:
        return jnp.cos(jnp.pi * tails)
    log_tails = jnp.log(tails)
    sine = jnp.exp((log_tails + math.log(2.0)) / (sphere - 1))
    # The arcsine is inaccurate next to pi/2, where most draws are, and the other one next to 0.
    cosine = jnp.sqrt((1.0 - sine) * (1.0 + sine))
    start = jnp.where(sine < 0.5, jnp.arcsin(sine), jnp.arccos(cosine))

    def newton(_: int, theta: jax.Array) -> jax.Array:
        log_f, log_density = _log_tail(sphere, theta)
        step = (log_tails - log_f) * jnp.exp(log_f - log_density)
        return jnp.minimum(theta + step, 0.5 * math.pi)

    theta: jax.Array = jax.lax.fori_loop(0, _NEWTON_STEPS, newton, start)
    return jnp.cos(theta)


def _log_tail(sphere: int, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log F(theta) and the logarithm of its derivative, by Gauss-Legendre quadrature.

    sin(theta - y) / sin(theta) = cos y - cot(theta) sin y. The logarithm of sine is concave with a
    curvature of at least 1, so the integrand falls at least as fast as
    exp(-(D-2) (y cot(theta) + y^2 / 2)).
    """
    power = sphere - 2
    cot = jnp.cos(theta) / jnp.sin(theta)
    decay = 2.0 * _NEGLIGIBLE / power
    reach = jnp.minimum(theta, decay / (cot + jnp.sqrt(cot * cot + decay)))
    y = reach * (0.5 + 0.5 * _NODES[:, None])
    mean = 0.5 * jnp.sum(_WEIGHTS[:, None] * (jnp.cos(y) - cot * jnp.sin(y)) ** power, axis=0)
    # E[W; W >= 0] is c / (D - 1).
    log_c = log_cap_moment(sphere, 0.0) + math.log(sphere - 1)
    log_density = log_c + power * jnp.log(jnp.sin(theta))
    return log_density + jnp.log(reach * mean), log_density


def reports_of_many(
    plans: list[PrivUnit],
    which: Any,
    rows: Any,
    keys: jax.Array,
    quantile: Literal["newton", "table"],
) -> Any:
    """A report for each row (n, d) from its own key, by plan number `which` (n,).

    The plans differ in epsilon only. With the quantile "newton" it is bit for bit what `reports`
    gives for the row alone. With "table" the first coordinate is interpolated, which is quicker and
    off by less than 1e-10: for simulations.
    """
    first = plans[0]
    # Small caps need tails that the table does not have.
    by_table = quantile == "table" and min(plan.covered for plan in plans) > 1e-6
    coin, uniform, normal, sign = jnp.moveaxis(
        jax.vmap(lambda k: jax.random.split(k, 4))(keys), 1, 0
    )
    bits = jax.vmap(lambda k: jax.random.bits(k, (), jnp.uint64))(coin) >> 8
    inside = jnp.asarray([int(plan.inside * 2**56) for plan in plans], jnp.uint64)[which]
    own = Caps(
        dimension=first.dimension,
        sphere=first.sphere,
        padded=first.padded,
        radius=first.radius,
        cap=jnp.asarray([plan.cap for plan in plans])[which],
        covered=jnp.asarray([plan.covered for plan in plans])[which],
        length=jnp.asarray([plan.length for plan in plans])[which, None],
    )
    inverse = table_quantile if by_table else upper_quantile
    return from_draws(
        jnp,
        own,
        rows,
        inside=bits < inside,
        first=functools.partial(inverse, first.sphere),
        uniforms=1.0 - jax.vmap(lambda k: jax.random.uniform(k, (), jnp.float64))(uniform),
        normals=jax.vmap(lambda k: jax_normal(k, (first.sphere - 1,)))(normal),
        signs=jax.vmap(lambda k: jax.random.rademacher(k, (), jnp.float64))(sign),
    )


def table_quantile(sphere: int, tails: Any) -> Any:
    """`unit_vector.upper_quantile` by cubic interpolation in the logarithm of the tail.

    Tails below e^-40 count as that. If a cap covers more than 1e-6 of the sphere, that happens to
    less than one report in 10^11.
    """
    nodes = jnp.asarray(_table(sphere))
    low, high = _LOG_TAILS
    at = (jnp.clip(jnp.log(tails), low, high) - low) * ((_TABLE_NODES - 1) / (high - low))
    cell = jnp.clip(at.astype(jnp.int32), 1, _TABLE_NODES - 3)
    t = at - cell
    before, left, right, after = (nodes[cell + shift] for shift in (-1, 0, 1, 2))
    # Lagrange's polynomial through the four nodes around.
    return (
        before * (-t * (t - 1.0) * (t - 2.0) / 6.0)
        + left * ((t + 1.0) * (t - 1.0) * (t - 2.0) / 2.0)
        - right * ((t + 1.0) * t * (t - 2.0) / 2.0)
        + after * ((t + 1.0) * t * (t - 1.0) / 6.0)
    )


@functools.lru_cache(maxsize=16)
def _table(sphere: int) -> Array:
    tails: Array = np.exp(np.linspace(*_LOG_TAILS, _TABLE_NODES))
    return unit_vector.upper_quantile(sphere, tails)
