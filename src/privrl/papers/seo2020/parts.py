"""What both compiled versions share, `fast` and `dense`.

The form that is compiled, the tables of the world, what is kept of a state, random draws, acting,
and the median and the direction of a gradient. In arrays replicas come last, save in the packed
rows (replicas, states, fields), which one gather and one scatter a step touch in place.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from privrl.papers.seo2020.spec import Acting, Variant
from privrl.privacy.noise import jax_normal

BLOCK = 16
"""Steps whose random numbers are drawn together, and whose gaps make a block."""


@dataclass(frozen=True)
class StaticConfig:
    """All that is known before compiling."""

    states: int
    actions: int
    horizon: int
    acting: Acting
    variant: Variant
    clip: float | None
    correction: Literal["next", "printed"]
    traces: bool
    """Whether lambda may be above 0."""

    dense: bool

    @property
    def noisy_actor(self) -> bool:
        return self.variant in ("actor", "both")

    @property
    def noisy_critic(self) -> bool:
        return self.variant in ("critic", "both")

    @property
    def blocks(self) -> int:
        return -(-self.horizon // BLOCK)

    @property
    def normals(self) -> int:
        """How many standard normals a step takes: for preferences (and traces) and two values."""
        actor = (2 if self.traces else 1) * self.actions
        return actor * self.noisy_actor + 2 * self.noisy_critic


class World(NamedTuple):
    """The environment's tables, packed so that a step touches few places."""

    cumulative: jax.Array
    """(S A, K - 1)."""

    outcomes: jax.Array
    """(S A K, 3): where to, reward, whether it terminates."""

    start: jax.Array
    """(S,), cumulative."""


class LearnerState(NamedTuple):
    """Where learning stands, between two episodes."""

    rows: jax.Array
    """(replicas, states, fields): what is kept of each state, packed (`Row`)."""

    actor_noise: jax.Array
    """(replicas,) variance that all preferences have been given since the first step."""

    critic_noise: jax.Array
    """(replicas,) the same, of values."""

    episode: jax.Array
    """(replicas,) episodes played."""

    steps: jax.Array
    """(replicas,) steps taken."""

    world: jax.Array
    """(replicas,) keys: what the environment draws."""

    actor: jax.Array
    """(replicas,) keys: what choosing actions draws."""

    noise: jax.Array
    """(replicas,) keys: what noise is drawn from."""

    numbers: dict[str, jax.Array]
    """(replicas,) each: gamma, and what may be swept."""


class Row(NamedTuple):
    """What is kept of a state: (..., replicas), with a first axis for actions where each has one.

    Noise may be pending for it: for preferences all of `actor_noise` above `actor_had`, or in an
    episode that has met the state what the gap since `mark` says; for the value all of
    `critic_noise` above `critic_had`.
    """

    u: jax.Array
    v: jax.Array
    w: jax.Array
    actor_had: jax.Array
    critic_had: jax.Array
    actor_trace: Any
    critic_trace: Any
    mark: Any
    """When the episode last met it (`lazy_noise.Gaps`); 0 if it has not. None without traces, as
    are the two above."""


def unpack_row(form: StaticConfig, packed: jax.Array) -> Row:
    """From fields (fields, ..., replicas); all of a state's `rows` are `rows.T`."""
    a = form.actions
    u, (v, w, actor_had, critic_had) = packed[:a], packed[a : a + 4]
    if not form.traces:
        return Row(u, v, w, actor_had, critic_had, None, None, None)
    return Row(
        u, v, w, actor_had, critic_had, packed[a + 4 : -2], packed[-2], packed[-1].astype(jnp.int32)
    )


def pack_row(row: Row) -> jax.Array:
    parts = [row.u, jnp.stack([row.v, row.w, row.actor_had, row.critic_had])]
    if row.mark is not None:
        rest = jnp.stack([row.critic_trace, row.mark.astype(row.v.dtype)])
        parts += [row.actor_trace, rest]
    return jnp.concatenate(parts)


def read(form: StaticConfig, rows: jax.Array, states: jax.Array) -> Row:
    """The rows of `states` (..., replicas)."""
    replica = jnp.arange(states.shape[-1])
    found = rows.at[replica, states].get(mode="promise_in_bounds")
    return unpack_row(form, jnp.moveaxis(found, -1, 0))


def write(rows: jax.Array, states: jax.Array, row: Row) -> jax.Array:
    """With the rows of `states` (..., replicas) replaced; a state out of range is left alone."""
    replica = jnp.arange(states.shape[-1])
    return rows.at[replica, states].set(jnp.moveaxis(pack_row(row), 0, -1), mode="drop")


# --- random draws, acting and gradients -----------------------------------------------------------


def uniforms(blocks: int, state: LearnerState) -> tuple[jax.Array, jax.Array]:
    """Uniform draws from [0, 1): (replicas,) for first states, and (steps of all blocks, 2,
    replicas) for where an action leads and which one is taken."""

    def one(key: jax.Array, episode: jax.Array) -> jax.Array:
        shape = (1 + blocks * BLOCK,)
        return jax.random.uniform(jax.random.fold_in(key, episode), shape, jnp.float64)

    # All at once, since each call takes most of a second to compile.
    keys = jnp.stack([state.world, state.actor])
    drawn = jax.vmap(jax.vmap(one), (0, None))(keys, state.episode)
    return drawn[0, :, 0], jnp.transpose(drawn[:, :, 1:], (2, 0, 1))


def initial_states(world: World, uniform: jax.Array) -> jax.Array:
    """(replicas,) first states of the episode."""
    found = jnp.searchsorted(world.start, uniform, side="right", method="scan_unrolled")
    return found.astype(jnp.int32)


def normals(state: LearnerState, part: jax.Array | int, shape: tuple[int, ...]) -> jax.Array:
    """(*shape, replicas) standard normals, of a part of the coming episode."""

    def one(key: jax.Array, episode: jax.Array) -> jax.Array:
        return jax_normal(jax.random.fold_in(jax.random.fold_in(key, episode), part), shape)

    return jax.vmap(one, out_axes=-1)(state.noise, state.episode)


def move(
    form: StaticConfig, world: World, place: jax.Array, action: jax.Array, uniform: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Where an action leads, the reward, and whether the episode terminates."""
    pair = place * form.actions + action
    bounds = world.cumulative.at[pair].get(mode="promise_in_bounds")
    number = jnp.sum(uniform[:, None] >= bounds, axis=1, dtype=jnp.int32)
    index = pair * (bounds.shape[1] + 1) + number
    after, reward, ended = world.outcomes.at[index].get(mode="promise_in_bounds").T
    return after.astype(jnp.int32), reward, ended > 0.0


def act(
    form: StaticConfig, exploration: jax.Array, u: jax.Array, uniform: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Action and rho (replicas,), and grad log pi (actions, replicas), by the preferences `u`.

    Of the greedy actions, the first.
    """
    numbers = jnp.arange(form.actions, dtype=jnp.int32)[:, None]
    weights = jnp.exp(u - jnp.max(u, axis=0))
    policy = weights / jnp.sum(weights, axis=0)
    if form.acting == "softmax":
        below = jnp.cumsum(policy, axis=0)[:-1]
        action = jnp.sum(uniform >= below, axis=0, dtype=jnp.int32)
        ratio = jnp.ones_like(uniform)
    else:
        # A draw below `exploration` is uniform below it.
        explores = uniform < exploration
        share = uniform / jnp.where(explores, exploration, 1.0)
        any_action = jnp.minimum((share * form.actions).astype(jnp.int32), form.actions - 1)
        best = jnp.min(jnp.where(u == jnp.max(u, axis=0), numbers, form.actions), axis=0)
        # Preferences that are no numbers, after a run has diverged, must not lead out of the table.
        action = jnp.where(explores, any_action, jnp.minimum(best, form.actions - 1))
        taken = jnp.sum(jnp.where(numbers == action, policy, 0.0), axis=0)
        ratio = jnp.where(explores, taken * form.actions, 1.0)
    return action, ratio, (numbers == action) - policy


def median(sizes: jax.Array) -> jax.Array:
    """Of the non-zero entries along the first axis; 0 if there is none. For short axes."""
    length = sizes.shape[0]
    numbers = jnp.arange(length)[:, None]
    earlier = jnp.arange(length)[:, None, None] < numbers
    below = (sizes[:, None] < sizes) | ((sizes[:, None] == sizes) & earlier)
    rank = jnp.sum(below, axis=0, dtype=jnp.int32)
    count = jnp.sum(sizes > 0.0, axis=0, dtype=jnp.int32)
    low, high = length - count + (count - 1) // 2, length - count + count // 2
    chosen = jnp.where(rank == low, sizes, 0.0) + jnp.where(rank == high, sizes, 0.0)
    return jnp.where(count > 0, jnp.sum(chosen, axis=0) / 2.0, 0.0)


def actor_signal(form: StaticConfig, gradient: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """What goes into the trace of the row, and C; None without noise."""
    if not form.noisy_actor:
        return gradient, None
    sizes = jnp.abs(gradient)
    largest = jnp.max(sizes, axis=0)
    # Divided first, so that no square underflows.
    unit = gradient / jnp.where(largest > 0.0, largest, 1.0)
    length = jnp.sqrt(jnp.sum(unit**2, axis=0))
    bound = median(sizes) if form.clip is None else jnp.full_like(largest, form.clip)
    return unit * (bound / jnp.where(length > 0.0, length, 1.0)), bound


def clip_ratio(bound: jax.Array, norm: jax.Array) -> jax.Array:
    """k = C / ||z||, and 0 for z = 0, which has no direction. Never infinite, for k times 0."""
    k = jnp.minimum(bound / jnp.where(norm > 0.0, norm, 1.0), np.finfo(np.float64).max)
    return jnp.where(norm > 0.0, k, 0.0)


def tree_where(condition: jax.Array, yes: Any, no: Any) -> Any:
    """One of two trees, by replica."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
