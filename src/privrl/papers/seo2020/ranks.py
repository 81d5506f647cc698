"""The traces of the states of an episode, kept in order of size, so that a median is at hand.

A trace of the critic moves by e <- rho (x_s + gamma lambda e). All entries but that of s shrink or
grow by one and the same factor, which keeps their order (rounding is monotone too). So one entry
changes its rank in a step, and those between its old rank and its new one move by one: no sorting.

Entries are multiplied one step after the other, as those of a trace that is kept for all states
are; so those that underflow, and no longer count for a median of non-zero entries, are the same.

Replicas come last; all functions treat them apart.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Ranks(NamedTuple):
    """Traces of the states met so far, largest first, and 0 for places not taken."""

    size: jax.Array
    """(places, replicas)."""

    state: jax.Array
    """(places, replicas), -1 for places not taken."""

    taken: jax.Array
    """(replicas,)."""


def initial_ranks(places: int, replicas: int) -> Ranks:
    """All traces 0."""
    return Ranks(
        jnp.zeros((places, replicas)),
        jnp.full((places, replicas), -1, jnp.int32),
        jnp.zeros((replicas,), jnp.int32),
    )


def visit(ranks: Ranks, state: jax.Array, ratio: jax.Array, decay: jax.Array) -> Ranks:
    """e <- rho (x_s + gamma lambda e)."""
    index = _index(ranks)
    was = ranks.state == state
    before = jnp.sum(jnp.where(was, ranks.size, 0.0), axis=0)
    source = jnp.min(jnp.where(was, index, ranks.taken), axis=0)
    sizes = ratio * (decay * ranks.size)
    new = ratio * (1.0 + decay * before)
    target = jnp.sum((index != source) & (sizes > new), axis=0, dtype=jnp.int32)

    def shift(values: jax.Array, inserted: jax.Array) -> jax.Array:
        later = jnp.roll(values, -1, axis=0)
        earlier = jnp.roll(values, 1, axis=0)
        up = (index >= source) & (index < target)
        down = (index > target) & (index <= source)
        rest = jnp.where(up, later, jnp.where(down, earlier, values))
        return jnp.where(index == target, inserted, rest)

    taken = jnp.maximum(ranks.taken, source + 1)
    return Ranks(shift(sizes, new), shift(ranks.state, state), taken)


def norm_and_median(
    ranks: Ranks, error: jax.Array, state: jax.Array, amount: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Norm, and median of the non-zero absolute entries, of delta e - amount x_state.

    Both are 0 if all entries are. The entry of `state` is taken out of the ranks and the changed
    one put in where it belongs: of an ordered list and y, the k-th largest is the middle one of y
    and the (k-1)-th and k-th of the list.
    """
    index = _index(ranks)
    places = ranks.size.shape[0]
    was = ranks.state == state
    skipped = jnp.min(jnp.where(was, index, places), axis=0)
    trace = jnp.sum(jnp.where(was, ranks.size, 0.0), axis=0)
    changed = jnp.abs(error * trace - amount)
    sizes = jnp.where(was, 0.0, jnp.abs(error) * ranks.size)

    def kth_largest(k: jax.Array) -> jax.Array:
        place = k + (k >= skipped)
        found = jnp.take_along_axis(ranks.size, jnp.clip(place, 0, places - 1)[None], axis=0)[0]
        return jnp.where(k < 0, jnp.inf, jnp.where(place < places, jnp.abs(error) * found, 0.0))

    def merged_kth_largest(k: jax.Array) -> jax.Array:
        return jnp.minimum(kth_largest(k - 1), jnp.maximum(kth_largest(k), changed))

    count = jnp.sum(sizes > 0.0, axis=0, dtype=jnp.int32) + (changed > 0.0)
    middle = (merged_kth_largest((count - 1) // 2) + merged_kth_largest(count // 2)) / 2.0
    largest = merged_kth_largest(jnp.zeros_like(count))
    unit = jnp.where(largest > 0.0, largest, 1.0)
    squares = jnp.sum((sizes / unit) ** 2, axis=0) + (changed / unit) ** 2
    return largest * jnp.sqrt(squares), jnp.where(count > 0, middle, 0.0)


def _index(ranks: Ranks) -> jax.Array:
    return jnp.arange(ranks.size.shape[0], dtype=jnp.int32)[:, None]
