"""Correlated noise inside compiled loops: pure functions for `lax.scan`.

    state = init(plan, key, dimension)
    state, noise = next(state)               # (M^-1 z)_t, to be added to the sum of step t
    all_noise(plan, key, dimension)          # all of it at once, (horizon, dimension)

The mathematics is that of `correlated`, which makes the same noise from the same z; the unit, the
relation, the theorem and the event are those of the plan. The running sum of sums with this noise
in them is what the event covers. Noise is drawn in 64 bits, so all of this runs inside
`with jax.enable_x64(True):`. The key and the state are **secret**.

`next` keeps for each coordinate what a `Stream` keeps, which for the square root is some hundred
numbers, and for the optimal strategy a number for each step of the horizon, and as many operations
a step. For the Toeplitz strategies `all_noise` is faster (by FFT);
it needs some six arrays of horizon x dimension 64-bit numbers while it runs, and one afterwards.
Both draw the same z from the same key, so they agree but for rounding.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from privrl.core import checks
from privrl.privacy.mechanisms.correlated import CorrelatedMechanism
from privrl.privacy.mechanisms.correlated_factorisations import (
    Strategy,
    inverse,
    optimal,
    quadrature,
    recurrence,
    square_root,
    tree_weights,
)
from privrl.privacy.noise import jax_normal


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["key", "step", "memory", "noise"],
    meta_fields=["plan"],
)
@dataclass(frozen=True)
class StreamState:
    """Where a stream of noise stands; secret."""

    plan: CorrelatedMechanism
    key: jax.Array
    step: jax.Array
    memory: jax.Array
    noise: jax.Array
    """(B z)_t, the noise of the running sum so far."""


def init(plan: CorrelatedMechanism, key: jax.Array, dimension: int) -> StreamState:
    """The state before the first step; `key` is a fresh one from `Source.key`."""
    dimension = checks.count("dimension", dimension)
    # Empty, but drawn: so that 32 bits are refused here and not later.
    dtype = jax_normal(key, (0,)).dtype
    rows = recurrence(plan.strategy, plan.horizon, plan.band).rows
    if plan.strategy is Strategy.OPTIMAL:  # a stream draws all z at once; here they come singly
        rows = plan.horizon
    return StreamState(
        plan,
        key,
        jnp.zeros((), jnp.int32),
        jnp.zeros((rows, dimension), dtype),
        jnp.zeros(dimension, dtype),
    )


def next(state: StreamState) -> tuple[StreamState, jax.Array]:
    """The next state, and the noise of the next step's sum; NaN beyond the horizon."""
    return advance(state, state.plan.std * _normal(state.key, state.step, state.noise.size))


def advance(state: StreamState, z: jax.Array) -> tuple[StreamState, jax.Array]:
    """`next` with the independent noise `z` of this step given."""
    plan = state.plan
    if plan.strategy.is_tree:
        memory, noise = _tree(plan, state.memory, z, state.step + 1)
    elif plan.strategy is Strategy.SQUARE_ROOT_TOEPLITZ:
        loss, weight = (jnp.asarray(array) for array in quadrature(plan.horizon))
        # Not (1 - loss) * memory: 1 - loss would round off the digits of a small loss.
        memory = state.memory + (z - loss[:, None] * state.memory)
        noise = weight @ memory
    elif plan.strategy is Strategy.OPTIMAL:
        memory = state.memory.at[state.step].set(z)  # out of range, nothing is set
        noise = jnp.asarray(optimal(plan.horizon)[0])[state.step] @ memory
    else:
        past, total = state.memory[:-1], state.memory[-1]
        w = z - jnp.asarray(square_root(plan.band or 1)[:0:-1]) @ past
        noise = total + w
        memory = jnp.concatenate([past, w[None]])[1:]
        memory = jnp.concatenate([memory, noise[None]])
    # A compiled loop cannot refuse; what is not a number is no release.
    increment = jnp.where(state.step < plan.horizon, noise - state.noise, jnp.nan)
    return StreamState(plan, state.key, state.step + 1, memory, noise), increment


def all_noise(plan: CorrelatedMechanism, key: jax.Array, dimension: int) -> jax.Array:
    """The noise of every step's sum, (horizon, dimension): what `next` would give, one by one."""
    dimension = checks.count("dimension", dimension)
    if plan.strategy.is_tree:
        state = init(plan, key, dimension)
        return jax.lax.scan(lambda s, _: next(s), state, length=plan.horizon)[1]
    z = jax.vmap(lambda step: _normal(key, step, dimension))(jnp.arange(plan.horizon))
    if plan.strategy is Strategy.INDEPENDENT:
        return plan.std * z
    if plan.strategy is Strategy.OPTIMAL:
        noise = jnp.asarray(optimal(plan.horizon)[0]) @ z
        return plan.std * jnp.diff(noise, axis=0, prepend=jnp.zeros((1, dimension)))
    column = inverse(square_root(plan.band or plan.horizon), plan.horizon)
    # Twice the length, so that nothing wraps around.
    length = 2 * plan.horizon
    spectrum = jnp.asarray(np.fft.rfft(column, length))[:, None]
    mixed = jnp.fft.irfft(spectrum * jnp.fft.rfft(z, length, axis=0), length, axis=0)
    return plan.std * mixed[: plan.horizon]


def _normal(key: jax.Array, step: jax.Array, dimension: int) -> jax.Array:
    return jax_normal(jax.random.fold_in(key, step), (dimension,))


def _tree(
    plan: CorrelatedMechanism, memory: jax.Array, z: jax.Array, t: jax.Array
) -> tuple[jax.Array, jax.Array]:
    fresh, carried, _ = (jnp.asarray(a) for a in tree_weights(memory.shape[0], plan.strategy))
    rows = jnp.arange(memory.shape[0])
    ends = (t & -t) >> rows == 1  # the interval that ends now; its halves lie below it
    level = jnp.argmax(ends)
    memory = jnp.where(ends[:, None], fresh[level] * z + carried[level] @ memory, memory)
    return memory, ((t >> rows) & 1).astype(memory.dtype) @ memory
