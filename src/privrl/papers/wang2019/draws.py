"""Random words, normals and minibatches for many replicas, in few calls of the generator.

For learners that certify nothing: numbers are 32-bit.
"""

import math
from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jax import lax


def keys(seeds: Iterable[int]) -> jax.Array:
    """A key for each seed, so that a seed means the same world at every noise level."""
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def random_words(key: jax.Array, count: int) -> jax.Array:
    """So many random words of 32 bits, from a key that is used once.

    The generator makes two words at a time; `jax.random.bits` gives one for them, `split` both.
    """
    pairs: jax.Array = jax.random.key_data(jax.random.split(key, -(-count // 2)))
    return pairs.reshape(-1)[:count]


def normal(bits: jax.Array) -> jax.Array:
    """Standard normals in 32 bits, from the middles of 2^23 equally likely parts."""
    share = ((bits >> 9).astype(jnp.float32) + 0.5) * 2.0**-22 - 1.0
    return math.sqrt(2.0) * lax.erf_inv(share)


def uniform(bits: jax.Array) -> jax.Array:
    """From [0, 1), in 32 bits."""
    return (bits >> 8).astype(jnp.float32) * 2.0**-24


def integers_below(bits: jax.Array, limit: jax.Array | int) -> jax.Array:
    """Whole numbers from 0 below a limit of less than 2^16, from 32 random bits each.

    (bits * limit) / 2^32 in halves of 16 bits.
    """
    wide = jnp.asarray(limit).astype(jnp.uint32)
    low = ((bits & 0xFFFF) * wide) >> 16
    return (((bits >> 16) * wide + low) >> 16).astype(jnp.int32)


def subsets(key: jax.Array, number: jax.Array, size: int) -> jax.Array:
    """(n, size): sets of so many of the first `number` (n,) whole numbers, below 2^16.

    All sets are equally likely; what a row holds before its number reaches `size` is any of them.

    Adding 0, 1, ..., B - 1 to the sorted entries of a multiset of B out of m = number - B + 1 gives
    each set of B once, so what is needed is a multiset, all equally likely. This is Polya's urn:
    the k-th entry is a fresh one of the m with probability m / (m + k), and otherwise a copy of one
    of the k before it.
    """
    order = jnp.arange(size, dtype=jnp.int32)
    cells = jnp.maximum(number - size + 1, 1)[:, None]
    # A uniform one of m + k: below m it is a cell, and above it the number of a former entry.
    urn = integers_below(random_words(key, number.shape[0] * size).reshape(-1, size), cells + order)

    def follow(loop: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        further = jnp.take_along_axis(loop[0], loop[0], axis=1, mode="promise_in_bounds")
        return further, jnp.any(further != loop[0])

    begun = (jnp.where(urn < cells, order, urn - cells), jnp.ones((), bool))
    origin, _ = lax.while_loop(lambda loop: loop[1], follow, begun)
    entries = jnp.take_along_axis(urn, origin, axis=1, mode="promise_in_bounds")
    return entries + _ranks(entries)


def _ranks(entries: jax.Array) -> jax.Array:
    """How many entries of the same row come before each, (rows, size): faster than sorting them."""
    rows, size = entries.shape
    distinct = entries * size + jnp.arange(size, dtype=jnp.int32)
    together = math.gcd(size, 16)

    def count(ranks: jax.Array, some: jax.Array) -> tuple[jax.Array, None]:
        smaller = [(one[:, None] < distinct).astype(jnp.int32) for one in some]
        return ranks + sum(smaller[1:], smaller[0]), None

    groups = distinct.T.reshape(size // together, together, rows)
    ranks, _ = lax.scan(count, jnp.zeros_like(entries), groups)
    return ranks
