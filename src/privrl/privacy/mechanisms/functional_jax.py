"""The path of `functional` inside compiled loops: pure functions on a state of fixed capacity.

    state = init(capacity, actions)
    state, values = query(plan, state, key, x)         # x a number, or several, one after another
    check(state)                                       # after the run

`plan` is a `FunctionalMechanism`; the law is that of its `NoisePath`, and so are the rules about
points (NaN is `low`; outside is the nearer end; all are on its grid) and about repeats (the same
value, bit for bit). Run inside `with jax.enable_x64(True):`. A new point costs time proportional to
the capacity.

When the capacity is used up, a new point gets NaN and `overflowed` is set for good; points drawn
before keep their values. `check` raises then: call it before anything is released.

Compiled code takes numbers below 2.3e-308 for zero: as points they are 0.

The state is secret, like the path itself; the key must come from `Source.key` and is used once.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.privacy.mechanisms.functional import FunctionalMechanism, Grid, bridge, check_components
from privrl.privacy.noise import jax_normal

_TINY = float(np.finfo(np.float64).tiny)


class PathState(NamedTuple):
    """A path drawn at the first `used` of `sites` (sorted; the rest are infinite)."""

    sites: jax.Array
    values: jax.Array
    used: jax.Array
    overflowed: jax.Array


def init(capacity: int, actions: int) -> PathState:
    """A path of so many components, drawn nowhere yet, with room for `capacity` points."""
    capacity, actions = checks.count("capacity", capacity), check_components(actions)
    sites = jnp.asarray(np.full(capacity, math.inf))
    if sites.dtype != jnp.float64:
        raise InputError("A path is drawn in 64 bits: run inside `with jax.enable_x64(True):`.")
    values = jnp.zeros((capacity, actions), dtype=jnp.float64)
    return PathState(sites, values, jnp.asarray(0), jnp.asarray(False))


def query(
    plan: FunctionalMechanism, state: PathState, key: jax.Array, x: "jax.typing.ArrayLike"
) -> tuple[PathState, jax.Array]:
    """The path at `x`, of shape `x.shape + (actions,)`, and the state that remembers it."""
    x = jnp.asarray(x)
    points = Grid(plan.rate, plan.low, plan.high).nearest(x.astype(jnp.float64), jnp)
    # One draw for each point asked, used or not: the stream does not tell which were repeats.
    noise = jax_normal(key, (*x.shape, state.values.shape[1]))
    one = functools.partial(_query_one, plan)
    if x.ndim == 0:
        state, values = one(state, (points, noise))
    else:
        flat = points.ravel(), noise.reshape(points.size, -1)
        state, values = jax.lax.scan(one, state, flat)
        values = values.reshape(noise.shape)
    return state, values


def check(state: PathState) -> None:
    """Raise if more points were asked than there was room for."""
    if bool(state.overflowed):
        raise InputError(
            f"The path ran out of room at {len(state.sites)} points: give it a larger capacity."
        )


def _query_one(
    plan: FunctionalMechanism, state: PathState, asked: tuple[jax.Array, jax.Array]
) -> tuple[PathState, jax.Array]:
    """One point with its noise; see `NoisePath._row`, of which this is the pure form."""
    x, noise = asked
    capacity = len(state.sites)
    # Numbers that comparisons take for zero are zero.
    x = jnp.where(jnp.abs(x) < _TINY, 0.0, x)
    place = jnp.searchsorted(state.sites, x)
    before, here = jnp.maximum(place - 1, 0), jnp.minimum(place, capacity - 1)
    known = (place < state.used) & (state.sites[here] == x)
    full = state.used == capacity

    def insert(loop: tuple[jax.Array, PathState]) -> tuple[jax.Array, PathState]:
        sites, values, used, overflowed = loop[1]
        u = jnp.where(place > 0, plan.rate * (x - sites[before]), math.inf)
        v = jnp.where(place < used, plan.rate * (sites[here] - x), math.inf)
        from_left, from_right, spread = bridge(u, v, jnp)
        # Rows that are not drawn yet are zeros, so a missing neighbour adds zero times a number.
        mean = from_left * values[before] + from_right * values[here]
        drawn = mean + plan.std * spread * noise
        # Everything from `place` on moves one to the right.
        index = jnp.arange(capacity)
        new, moved = index == place, index > place
        sites = jnp.where(new, x, jnp.where(moved, jnp.roll(sites, 1), sites))
        values = jnp.where(moved[:, None], jnp.roll(values, 1, axis=0), values)
        values = jnp.where(new[:, None], drawn, values)
        return jnp.asarray(False), PathState(sites, values, used + 1, overflowed)

    # A loop of at most one round, and not a condition: what is answered is then read from where it
    # was stored. Elsewhere the compiler may write a formula out twice and round it in two ways.
    again = ~known & ~full
    _, state = jax.lax.while_loop(lambda loop: loop[0], insert, (again, state))
    value = jnp.where(known | ~full, state.values[here], math.nan)
    return state._replace(overflowed=state.overflowed | (~known & full)), value
