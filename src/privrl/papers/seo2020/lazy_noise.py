"""Lazy noise: noise on every row of a table, drawn when a row is read.

The actor of seo2020 adds noise to *all* its numbers in each step t of an episode. An entry (e, u)
of a row that no step reads, e its eligibility trace and u its preference, moves by

    e_t = rho_t (gamma lambda e_{t-1} + n_t),    u_t = u_{t-1} + alpha delta_t e_t,
    n_t ~ N(0, (sigma C_t)^2), independent for all t, rows and entries.

The scalars rho_t, delta_t, C_t and the state and action of step t are functions of what steps up to
t have *read*, of the world's randomness and of the actions': rho_t and C_t of the preferences and
delta_t of the values in the rows of the states of step t.

What a stretch of steps does to an entry is therefore affine with Gaussian noise, and the same for
all rows and entries that are not read meanwhile (a `Gap`):

    e' = p e + x,    u' = u + alpha (q e + y),    (x, y) ~ N(0, [[E, X], [X, U]]).

One step has p = rho gamma lambda, q = delta p, E = (rho sigma C)^2, X = delta E, U = delta^2 E. A
stretch 1 and then a stretch 2 have (`compose`)

    p = p2 p1,    q = q1 + q2 p1,
    E = p2^2 E1 + E2,    X = p2 (X1 + q2 E1) + X2,    U = U1 + 2 q2 X1 + q2^2 E1 + U2.

Only sums and products, so a ratio of 0 or a product that underflows does no harm: nothing is ever
divided by the product of a prefix. The trace of the critic has no noise and obeys the same p; its
values move by q with k_t delta_t for delta_t, where k_t is what a noised critic is scaled by.

Why this has the law of noise drawn at once. Let F_t be all that was read up to step t (rows as they
were when read, uniform draws, scalars). Claim: given F_t, the entries of rows are independent, each
is Gaussian, and one last read after step t0 has the mean and covariance of the gap from t0 to t,
from where it stood at t0. By induction over t. At first all entries are known: true. Step t + 1
reads rows whose scalars and choice depend on F_t and fresh draws only. *Reading* draws the entries
of these rows from their law given F_t, which is what the dense algorithm holds there, in law; given
what was read they are constants, and no other row's law changes, by independence. The step then
applies to each row an affine map whose coefficients are functions of what was read, and adds
independent Gaussian noise: rows stay independent and Gaussian, with gaps composed by `compose`. So
the law of the next reading is that of the dense algorithm, step by step, and so is the joint law of
everything that is ever read, of weights and traces too, once all rows are read.

Two things follow. The noise of the step in which a row is read can be left pending as well: the row
is kept as its signal left it, and its gap starts with p = 1, q = 0 and that step's E, X, U. And at
the end of an episode traces return to 0, so e is never read again and what is left pending for u is
a variance alone. A row keeps how much of the running sum W of variances it has; W minus that is
pending, over any number of episodes. So is all noise of the critic's values, which enters no
trace. (The difference of two sums loses noise below 1e-8 of the standard deviation that the row
already has.)

`Gaps` keeps the gap from each step of an episode to now, in blocks: from each step to the end of
its block, and from the end of each block to now. A step extends the entries of its own block and
one for each block before it, about 2 sqrt(T) in place of T; a read composes two.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Gap(NamedTuple):
    """What a stretch of steps does to all rows that it does not read; None for what has no use.

    All in units of alpha = 1: u moves by alpha times `push`, and so on.
    """

    keep: jax.Array
    """p."""

    push: jax.Array
    """q."""

    scaled_push: Any
    """q with k_t delta_t for delta_t, if the critic is noised."""

    trace: Any
    """E, if the actor is noised; and so X and U."""

    both: Any
    """X."""

    weight: Any
    """U."""

    @property
    def values_push(self) -> jax.Array:
        """The q of the critic's values."""
        found: jax.Array = self.push if self.scaled_push is None else self.scaled_push
        return found


def identity_gap(shape: tuple[int, ...], actor: bool, critic: bool) -> Gap:
    """No step at all: p = 1 and nothing else."""
    zeros = jnp.zeros(shape)
    noise = zeros if actor else None
    return Gap(jnp.ones(shape), zeros, zeros if critic else None, noise, noise, noise)


def step_gap(
    ratio: jax.Array,
    decay: jax.Array,
    error: jax.Array,
    scale: jax.Array | None,
    std: jax.Array | None,
) -> Gap:
    """The gap of a single step: rho, gamma lambda, delta, k and sigma C."""
    keep = ratio * decay
    push = error * keep
    # A tiny ratio may have a k that is huge: the two are multiplied last.
    scaled = None if scale is None else scale * push
    if std is None:
        return Gap(keep, push, scaled, None, None, None)
    trace = (ratio * std) ** 2
    return Gap(keep, push, scaled, trace, error * trace, error**2 * trace)


def own_step_gap(step: Gap) -> Gap:
    """Of a step's gap, what is pending for the row that the step itself was taken from."""
    return step._replace(
        keep=jnp.ones_like(step.keep),
        push=jnp.zeros_like(step.push),
        scaled_push=None if step.scaled_push is None else jnp.zeros_like(step.push),
    )


def compose(first: Gap, second: Gap) -> Gap:
    """The stretch `first`, followed by `second`."""
    keep = second.keep * first.keep
    push = first.push + second.push * first.keep
    scaled = None
    if first.scaled_push is not None:
        scaled = first.scaled_push + second.scaled_push * first.keep
    if first.trace is None:
        return Gap(keep, push, scaled, None, None, None)
    pushed = second.push * first.trace
    return Gap(
        keep,
        push,
        scaled,
        second.keep * (second.keep * first.trace) + second.trace,  # a square might underflow
        second.keep * (first.both + pushed) + second.both,
        first.weight + second.push * (2.0 * first.both + pushed) + second.weight,
    )


def covariance_factor(gap: Gap) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(a, b, c) such that (a n1, b n1 + c n2) has the covariance [[E, X], [X, U]].

    A trace without variance has no covariance either, so b = 0 there. An E that has all but
    underflowed may be too small beside X; with b held to sqrt(U), the variance of u is U still.
    """
    a, most = jnp.sqrt(gap.trace), jnp.sqrt(gap.weight)
    b = jnp.where(a > 0.0, gap.both / jnp.where(a > 0.0, a, 1.0), 0.0)
    b = jnp.clip(b, -most, most)
    return a, b, jnp.sqrt(jnp.maximum(gap.weight - b * b, 0.0))


def select(condition: jax.Array, yes: Gap, no: Gap) -> Gap:
    """Gaps of two kinds, by replica."""
    chosen: Gap = jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
    return chosen


# --- the gaps of an episode -----------------------------------------------------------------------


class Gaps(NamedTuple):
    """The gaps from each step of an episode to now, of many replicas side by side.

    They are found by *mark*: 0 for the start of the episode, `mark(t)` for step t.
    """

    inside: Gap
    """(1 + blocks, block, replicas) each: from each step to the end of its block, of blocks that
    are over. The first stands for the start of the episode and has nothing in it. A block is
    written once, as rewriting part of this in each step would copy all of it."""

    live: Gap
    """(block + 1 + blocks, replicas) each: from each step of the block that is not over to now, and
    from the end of each block that is."""

    @property
    def block(self) -> int:
        return int(self.inside.keep.shape[1])

    def mark(self, time: jax.Array) -> jax.Array:
        """Where the gap that starts in step `time` is found."""
        return time + self.block


def initial_gaps(steps: int, block: int, replicas: int, actor: bool, critic: bool) -> Gaps:
    """Before an episode of at most `steps` steps."""
    blocks = 1 + -(-steps // block)
    inside = identity_gap((blocks, block, replicas), actor, critic)
    return Gaps(inside, identity_gap((block + blocks, replicas), actor, critic))


def record(gaps: Gaps, time: jax.Array, step: Gap) -> Gaps:
    """After step `time`, the same in all replicas: everything is a step further away.

    A replica in which nothing happened hands over `identity_gap`.
    """
    block, live = gaps.block, gaps.live
    here, number = time % block, 1 + time // block
    index = jnp.arange(live.keep.shape[0], dtype=jnp.int32)[:, None]
    begun = (index < here) | ((index >= block) & (index < block + number))
    extended = select(begun, compose(live, step), live)
    return gaps._replace(live=select(index == here, own_step_gap(step), extended))


def close_block(gaps: Gaps, number: jax.Array) -> Gaps:
    """After the last step of block `number`, counted from 0."""

    def write_block(inside: jax.Array, live: jax.Array) -> jax.Array:
        block = live[: gaps.block]
        written: jax.Array = lax.dynamic_update_index_in_dim(inside, block, 1 + number, 0)
        return written

    inside: Gap = jax.tree.map(write_block, gaps.inside, gaps.live)
    return gaps._replace(inside=inside)


def gap_since(gaps: Gaps, marks: jax.Array, number: jax.Array) -> Gap:
    """The gap from each mark to now, in block `number`; `marks` has its replicas last."""
    replica = jnp.arange(marks.shape[-1], dtype=marks.dtype)
    blocks, slot = marks // gaps.block, marks % gaps.block
    is_open = blocks == 1 + number
    place = jnp.where(is_open, slot, gaps.block + blocks)
    live: Gap = jax.tree.map(
        lambda part: part.at[place, replica].get(mode="promise_in_bounds"), gaps.live
    )
    inside: Gap = jax.tree.map(
        lambda part: part.at[blocks, slot, replica].get(mode="promise_in_bounds"), gaps.inside
    )
    return select(is_open, live, compose(inside, live))
