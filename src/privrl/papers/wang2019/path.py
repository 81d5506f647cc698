"""Paths of noise that many runs draw side by side as they go: the lazy path of wang2019, compiled.

Each replica has a Gaussian process of K independent components on [0, 1], with mean 0 and
covariance sigma^2 exp(-rate |x - y|), known at the points drawn so far; all replicas have drawn
equally many. The n-th point asked for is in *slot* n, and so is its value, so that what belongs to
a set of slots is one gather away.

- `insert` draws the path at a new point. The process is Markov: given the two nearest points drawn
  so far nothing else counts (`functional.bridge`). At a point that repeats an old one the distance
  is 0, the weight of the old value exactly 1 and that of the noise exactly 0.
- `merge` takes what was inserted lately into the sorted order, by counting comparisons: an old
  point moves up by the number of new ones below it. At most `window` points may wait for it.
- `redraw` draws a fresh path at all points at once. Along the sorted points x_1 <= x_2 <= ... it
  is the autoregression g_i = r_i g_{i-1} + sqrt(1 - r_i^2) e_i with r_i = exp(-rate (x_i -
  x_{i-1})) and r_1 = 0. Blocks of points are run together from 0, and the value before a block
  then enters it with the product of its r_i.

The law is exact: at all slots together, it is that of a path drawn beforehand.

`edge="public-code"` has the mistake of the paper's public code instead. There a point right of all
others has the mean e^{-rate d} g(first) where it should have e^{-rate d} g(last), d the distance to
the last. The law then depends on the order in which points are asked for: `redraw` takes them in
random order. What counts of the order are the records, the points that were right of all asked
before them. The path left of the first point asked is drawn as above; then the records,
from the value of the leftmost point that was asked before them; then all else between them, by
adding to a path of the right law the interpolated difference at the records. (With g a path of
that law, g(x) - E[g(x) | g at records] does not depend on g at the records.)

Points and noise are 32-bit: the paper makes a claim, and certifies nothing.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from privrl.papers.wang2019 import draws
from privrl.papers.wang2019.spec import Edge
from privrl.privacy.mechanisms.functional import bridge

# `redraw` runs blocks of so many points together, as many blocks as make about this many points.
_BLOCK = 32
_CHUNK = 1024
# How many comparisons the compiler sees at a time in `merge`: the more, the fewer passes.
_UNROLL = 13


class Path(NamedTuple):
    """Replicas first. The first `merged` slots are sorted; the next `waits` are still apart.

    So what every new point changes is small, and what is large stays as it is between merges.
    """

    points: jax.Array
    """(replicas, slots): of merged slots; infinite in all others."""

    ranks: jax.Array
    """(replicas, slots): where a slot is in the sorted order; those that are not merged come
    last."""

    ordered: jax.Array
    """(replicas, slots): the merged points, sorted, then infinity."""

    slots: jax.Array
    """(replicas, slots): whose point each of `ordered` is."""

    values: jax.Array
    """(replicas, slots, K): of merged slots."""

    late_points: jax.Array
    """(replicas, window): of the slots that wait, then infinity."""

    late_values: jax.Array
    """(replicas, window, K)."""

    merged: jax.Array
    """(replicas,), the same for all."""

    waits: jax.Array
    """(replicas,), the same for all."""


def init(replicas: int, most: int, window: int, components: int) -> Path:
    """Paths drawn nowhere, with room for `most` points, of which `window` may wait."""
    size = _sizes(most + window)[0]
    empty = jnp.full((replicas, size), jnp.inf, jnp.float32)
    each = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32), (replicas, size))
    none = jnp.zeros((replicas,), jnp.int32)
    values = jnp.zeros((replicas, size, components), jnp.float32)
    late = (empty[:, :window], values[:, :window])
    return Path(empty, each, empty, each, values, *late, none, none)


def _sizes(least: int) -> tuple[int, int]:
    """How many slots there are, and how many blocks make a chunk: whole chunks of whole blocks."""
    chunks = -(-least // _CHUNK)
    blocks = -(-least // (chunks * _BLOCK))
    return chunks * blocks * _BLOCK, blocks


def insert(
    path: Path, x: jax.Array, noise: jax.Array, sigma: jax.Array, rate: jax.Array, edge: Edge
) -> tuple[Path, jax.Array]:
    """With the path drawn at one more point x (replicas,), from standard normals (replicas, K).

    Also the value there, (replicas, K).
    """
    replica, late = jnp.arange(x.shape[0]), path.late_points
    last = path.points.shape[1] - 1

    def of(rows: jax.Array, places: jax.Array) -> jax.Array:
        return rows.at[replica, places].get(mode="promise_in_bounds")

    place = jax.vmap(_search)(path.ordered, x)
    before, here = jnp.maximum(place - 1, 0), jnp.minimum(place, last)
    left = jnp.where(place > 0, of(path.ordered, before), -jnp.inf)
    right = of(path.ordered, here)
    left_value = of(path.values, of(path.slots, before))
    right_value = of(path.values, of(path.slots, here))

    # Those that wait may be nearer.
    below = jnp.where(late <= x[:, None], late, -jnp.inf)
    above = jnp.where(late > x[:, None], late, jnp.inf)
    late_left, late_right = jnp.max(below, axis=1), jnp.min(above, axis=1)
    left_value = jnp.where(
        (late_left > left)[:, None], of(path.late_values, jnp.argmax(below, axis=1)), left_value
    )
    right_value = jnp.where(
        (late_right < right)[:, None], of(path.late_values, jnp.argmin(above, axis=1)), right_value
    )
    left, right = jnp.maximum(left, late_left), jnp.minimum(right, late_right)

    u, v = rate * (x - left), rate * (right - x)
    if edge == "public-code":
        first_value = jnp.where(
            (jnp.min(late, axis=1) < path.ordered[:, 0])[:, None],
            of(path.late_values, jnp.argmin(late, axis=1)),
            of(path.values, path.slots[:, 0]),
        )
        left_value = jnp.where(((u > 0.0) & jnp.isinf(right))[:, None], first_value, left_value)
    from_left, from_right, spread = (part[:, None] for part in bridge(u, v, jnp))
    # A neighbour that does not exist is some slot, and its weight is 0.
    mean = from_left * left_value + from_right * right_value
    value = mean + sigma[:, None] * spread * noise
    waits = path.waits[0]
    added = path._replace(
        late_points=lax.dynamic_update_slice_in_dim(late, x[:, None], waits, axis=1),
        late_values=lax.dynamic_update_slice_in_dim(
            path.late_values, value[:, None], waits, axis=1
        ),
        waits=path.waits + 1,
    )
    return added, value


def _search(ordered: jax.Array, x: jax.Array) -> jax.Array:
    """How many are at most x. The way of searching that is the least work to compile."""
    return jnp.searchsorted(ordered, x, side="right", method="scan").astype(jnp.int32)


def merge(path: Path) -> Path:
    """With all points in sorted order."""
    merged, late = path.merged[0], path.late_points
    (replicas, size), window = path.points.shape, late.shape[1]
    slot = merged + jnp.arange(window, dtype=jnp.int32)

    def shift_ranks(ranks: jax.Array, new: jax.Array) -> tuple[jax.Array, None]:
        return ranks + (new[:, None] < path.points).astype(jnp.int32), None

    ranks, _ = lax.scan(shift_ranks, path.ranks, late.T, unroll=min(window, _UNROLL))
    ranks = jnp.where(jnp.arange(size) < merged, ranks, path.ranks)
    old = jax.vmap(_search)(path.ordered, late)
    earlier = slot[:, None] < slot
    first = (late[:, :, None] < late[:, None]) | ((late[:, :, None] == late[:, None]) & earlier)
    own = jnp.where(
        jnp.arange(window) < path.waits[0], old + jnp.sum(first, axis=1, dtype=jnp.int32), slot
    )
    ranks = lax.dynamic_update_slice_in_dim(ranks, own, merged, axis=1)
    points = lax.dynamic_update_slice_in_dim(path.points, late, merged, axis=1)
    replica = jnp.arange(replicas)[:, None]

    def by_rank(rows: jax.Array) -> jax.Array:
        put = jnp.zeros_like(rows).at[replica, ranks]
        return put.set(rows, mode="promise_in_bounds", unique_indices=True)

    each = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32), (replicas, size))
    return path._replace(
        points=points,
        ranks=ranks,
        ordered=by_rank(points),
        slots=by_rank(each),
        values=lax.dynamic_update_slice_in_dim(path.values, path.late_values, merged, axis=1),
        late_points=jnp.full_like(late, jnp.inf),
        merged=path.merged + path.waits,
        waits=jnp.zeros_like(path.waits),
    )


def redraw(
    path: Path, keys: jax.Array, sigma: jax.Array, rate: jax.Array, actions: int, edge: Edge
) -> Path:
    """A fresh path at all points of a path that is merged; `keys` (replicas,) are used once.

    The components come in groups of `actions`, each asked for in an order of its own.
    """
    replicas, size, components = path.values.shape
    blocks = _sizes(size)[1]
    chunk = blocks * _BLOCK
    before = jnp.concatenate(
        [jnp.full((replicas, 1), -jnp.inf, jnp.float32), path.ordered[:, :-1]], axis=1
    )
    real = jnp.arange(size) < path.merged[0]
    # Slots that are not used repeat the last point.
    gaps = rate[:, None] * jnp.where(real, path.ordered - before, 0.0)

    def of_chunk(
        number: jax.Array, now: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        end, drawn = now
        key = jax.vmap(jax.random.fold_in, (0, None))(keys, number)
        noise = draws.normal(jax.vmap(partial(draws.random_words, count=chunk * components))(key))
        noise = jnp.moveaxis(noise.reshape(replicas, _BLOCK, blocks, components), 1, 0)
        gap = lax.dynamic_slice_in_dim(gaps, number * chunk, chunk, axis=1)
        gap = jnp.moveaxis(gap.reshape(replicas, blocks, _BLOCK), 2, 0)
        keeps, fresh = jnp.exp(-gap), jnp.sqrt(-jnp.expm1(-2.0 * gap))

        def along(now: tuple[jax.Array, jax.Array], row: tuple[jax.Array, ...]) -> Any:
            value, product = now
            value = row[0][..., None] * value + row[1][..., None] * row[2]
            product = row[0] * product
            return (value, product), (value, product)

        begun = (jnp.zeros((replicas, blocks, components), jnp.float32), jnp.ones_like(gap[0]))
        (ends, products), (values, shares) = lax.scan(along, begun, (keeps, fresh, noise))

        def across(now: jax.Array, row: tuple[jax.Array, jax.Array]) -> Any:
            return row[0] + row[1][:, None] * now, now

        rows = (jnp.moveaxis(ends, 1, 0), jnp.moveaxis(products, 1, 0))
        end, entering = lax.scan(across, end, rows)
        values = values + shares[..., None] * jnp.moveaxis(entering, 0, 1)
        values = jnp.moveaxis(values, 0, 2).reshape(replicas, chunk, components)
        return end, lax.dynamic_update_slice_in_dim(drawn, values, number * chunk, axis=1)

    begun = (jnp.zeros((replicas, components), jnp.float32), path.values)
    count = (path.merged[0] + chunk - 1) // chunk
    _, drawn = lax.fori_loop(0, count, of_chunk, begun)
    drawn = sigma[:, None, None] * drawn
    if edge == "public-code":
        drawn = _wrong_edge(path, drawn, keys, sigma, rate, actions)
    replica = jnp.arange(replicas)[:, None]
    values = drawn.at[replica, path.ranks].get(mode="promise_in_bounds")
    return path._replace(values=jnp.where(real[:, None], values, path.values))


def _wrong_edge(
    path: Path,
    drawn: jax.Array,
    keys: jax.Array,
    sigma: jax.Array,
    rate: jax.Array,
    actions: int,
) -> jax.Array:
    """Values at the sorted points as if asked for in random order, with the wrong right edge.

    Points that are equal are asked for together: all but the first are repeats.
    """
    size, used = path.points.shape[1], path.merged[0]
    place = jnp.arange(size, dtype=jnp.int32)

    def of_one(
        x: jax.Array, values: jax.Array, key: jax.Array, sigma: jax.Array, rate: jax.Array
    ) -> jax.Array:
        """One replica and one group of components: (slots,) and (slots, actions)."""
        order_key, noise_key = jax.random.split(key)
        new = jnp.concatenate([jnp.ones((1,), bool), x[1:] != x[:-1]])
        head = lax.cummax(jnp.where(new, place, 0))
        asked = jnp.where(place < used, jax.random.uniform(order_key, (size,))[head], 2.0)
        later = jnp.concatenate([lax.cummin(asked, reverse=True)[1:], jnp.full((1,), 2.0)])
        record = (place < used) & new & (asked <= later)
        latest = lax.cummax(jnp.where(record, place, -1))
        prior = jnp.concatenate([jnp.full((1,), -1, jnp.int32), latest[:-1]])
        upcoming = lax.cummin(jnp.where(record, place, size), reverse=True)
        upcoming = jnp.concatenate([upcoming[1:], jnp.full((1,), size, jnp.int32)])
        # The leftmost of those asked earlier.
        leftmost = jnp.searchsorted(-lax.cummin(asked), -asked, side="right")
        gap = rate * jnp.where(prior < 0, 0.0, x - x[prior])
        noise = jax.random.normal(noise_key, values.shape, jnp.float32)
        wrong = jnp.exp(-gap)[:, None] * values[jnp.minimum(leftmost, size - 1)]
        wrong = wrong + sigma * jnp.sqrt(-jnp.expm1(-2.0 * gap))[:, None] * noise
        # The first point asked is a record with none before it, and keeps its value.
        off = jnp.where((record & (prior >= 0))[:, None], wrong - values, 0.0)
        u = jnp.where(latest < 0, jnp.inf, rate * (x - x[jnp.maximum(latest, 0)]))
        v = jnp.where(upcoming < size, rate * (x[jnp.minimum(upcoming, size - 1)] - x), jnp.inf)
        # Slots that are not used have infinite points.
        u, v = (jnp.where(place < used, one, jnp.inf) for one in (u, v))
        from_left, from_right, _ = bridge(u, v, jnp)
        change: jax.Array = (
            from_left[:, None] * off[latest]
            + from_right[:, None] * off[jnp.minimum(upcoming, size - 1)]
        )
        return values + change

    groups = drawn.reshape(*drawn.shape[:2], -1, actions)
    number = groups.shape[2]
    # Numbers that no chunk has.
    fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
    own = fold(keys, size + jnp.arange(number))
    each = jax.vmap(of_one, (None, 1, 0, None, None), out_axes=1)
    found = jax.vmap(each)(path.ordered, groups, own, sigma, rate)
    whole: jax.Array = found.reshape(drawn.shape)
    return whole
