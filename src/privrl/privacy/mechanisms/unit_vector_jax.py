"""PrivUnit for compiled simulations: many agents' reports at once, from an explicit key.

The plan, its proof and all steps after the draws are those of `unit_vector.py`. The coin for the
cap is exact here too: 56 random bits against the plan's rational p. The first coordinate W is found
by inversion in 64 bits (`upper_quantile`), to an error below 1e-13 for 2 to 10^5 dimensions.

Randomness: JAX's counter-based generator; simulations, or runs on a fresh secret key.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from privrl.core.errors import InputError
from privrl.privacy.mechanisms.unit_vector import PrivUnit, from_draws, log_cap_moment
from privrl.privacy.noise import jax_normal, numbers

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(30)
# Where the integrand has fallen to e^-40 of its largest value the integral is cut off.
_NEGLIGIBLE = 40.0
_NEWTON_STEPS = 5


def reports(plan: PrivUnit, rows: jax.Array | ArrayLike, key: jax.Array) -> jax.Array:
    """A report for each of the (agents, dimension) rows; each costs its agent `plan.event`."""
    rows = rows if isinstance(rows, jax.Array) else jnp.asarray(numbers("rows", rows))
    if rows.ndim != 2 or rows.shape[1] != plan.dimension:
        raise InputError(f"rows must have {plan.dimension} columns, not shape {rows.shape}.")
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
