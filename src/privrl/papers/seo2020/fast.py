"""The paper's actor-critic with lazy noise: a step costs the same for 500 states and for 50,000.

The same algorithms as in `algorithm`, in law. Noise is drawn when a row is read (`lazy_noise` has
the proof that the law is the same), norm and median of the critic's gradient come from traces kept
in order of size (`ranks`), and replicas are played together (`program`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from privrl.papers.seo2020 import lazy_noise, parts
from privrl.papers.seo2020 import ranks as ranked
from privrl.papers.seo2020.lazy_noise import Gap, Gaps
from privrl.papers.seo2020.parts import BLOCK, LearnerState, Row, StaticConfig, World


class _EpisodeState(NamedTuple):
    """In the midst of an episode."""

    time: jax.Array
    rows: jax.Array
    row: Row
    """Of `place`, with all noise up to now; what `rows` says of it is out of date."""

    place: jax.Array
    alive: jax.Array
    actor_noise: jax.Array
    critic_noise: jax.Array
    total: jax.Array
    """The rewards so far."""

    length: jax.Array
    gaps: Any
    """`Gaps`; None without traces, as are all that follow."""

    path: Any
    """(horizon, rounded up, replicas): where each step was taken from."""

    square: Any
    """||e_v||^2."""

    overlap: Any
    """w . e_v."""

    ranks: Any
    """`Ranks`; None too if the critic is not noised."""


def _step(
    form: StaticConfig,
    world: World,
    numbers: Mapping[str, jax.Array],
    now: _EpisodeState,
    uniform: jax.Array,
    normals: jax.Array,
) -> _EpisodeState:
    """One step in all replicas that are alive.

    Entries of e_v are never negative. With them, ||e_v||^2 <- rho^2 (1 + 2 gamma lambda e_v[s] +
    (gamma lambda)^2 ||e_v||^2), and w . e_v first becomes rho (w[s] + gamma lambda w . e_v) as e_v
    moves, and then grows by alpha_w (delta ||e_v||^2 - w[s] e_v[s]) as w does.
    """
    row, place, alive = now.row, now.place, now.alive
    sigma, decay = numbers["sigma"], numbers["gamma"] * numbers["lambda_"]
    critic_step, correction_step = numbers["critic_step"], numbers["correction_step"]
    printed = form.correction == "printed"

    action, rho, gradient = parts.act(form, numbers["exploration"], row.u, uniform[1])
    after, reward, ended = parts.move(form, world, place, action, uniform[0])
    same = after == place
    goes_on = jnp.where(ended, 0.0, numbers["gamma"])

    # The next state, as it was before this step.
    met: Row = parts.tree_where(same, row, parts.read(form, now.rows, after))
    gap: Any = None
    met_v, met_w, met_trace = met.v, met.w, jnp.zeros_like(met.v)
    if form.traces:
        gap = lazy_noise.gap_since(now.gaps, met.mark, now.time // BLOCK)
        gap = lazy_noise.select(same, _identity_gap(form, place.shape), gap)
        met_v = met_v + critic_step * gap.values_push * met.critic_trace
        met_w = met_w + correction_step * gap.push * met.critic_trace
        met_trace = gap.keep * met.critic_trace
    if form.noisy_critic:
        met_v = met_v + _safe_sqrt(now.critic_noise - met.critic_had) * normals[-2]

    # The critic.
    delta = reward + goes_on * met_v - row.v
    before = row.critic_trace if form.traces else jnp.zeros_like(rho)
    trace = rho * (1.0 + decay * before)
    square, overlap, ranks = now.square, now.overlap, now.ranks
    if not form.traces:
        onto = rho * row.w
    else:
        square = rho**2 * (1.0 + 2.0 * decay * before + decay**2 * square)
        onto = rho * (row.w + decay * overlap)
        overlap = onto + correction_step * (delta * square - row.w * trace)
    amount = goes_on * (1.0 - numbers["lambda_"]) * onto
    scale, critic_noise = None, now.critic_noise
    critic_std = jnp.zeros_like(rho)
    if form.noisy_critic:
        if ranks is None:
            norm, median = _norm_and_median(printed | same, delta * trace, amount)
        else:
            ranks = ranked.visit(ranks, place, rho, decay)
            norm, median = ranked.norm_and_median(ranks, delta, place if printed else after, amount)
        bound = median if form.clip is None else jnp.full_like(median, form.clip)
        scale = parts.clip_ratio(bound, norm)
        critic_std = critic_step * sigma * bound
        critic_noise = critic_noise + critic_std**2
    critic_rate = critic_step if scale is None else critic_step * scale
    left_v = row.v + critic_rate * (delta * trace - jnp.where(printed | same, amount, 0.0))
    left_w = row.w + correction_step * (delta * trace - row.w)
    met_trace = rho * decay * met_trace
    met_v = met_v + critic_rate * (delta * met_trace - (0.0 if printed else amount))
    met_w = met_w + correction_step * delta * met_trace

    # The actor. The state left is kept without this step's noise, which is pending.
    signal, actor_bound = parts.actor_signal(form, gradient)
    actor_std = None if actor_bound is None else sigma * actor_bound
    push = numbers["actor_step"] * delta
    actor_noise, gaps, path = now.actor_noise, now.gaps, now.path
    if not form.traces:
        left = row._replace(u=row.u + push * rho * signal, v=left_v, w=left_w)
        met_u = jnp.where(same, left.u, met.u)
        if actor_std is not None:
            actor_noise = actor_noise + (push * rho * actor_std) ** 2
            met_u = met_u + _safe_sqrt(actor_noise - met.actor_had) * normals[: form.actions]
        met = met._replace(u=met_u)
    else:
        kept = rho * (decay * row.actor_trace + signal)
        left = row._replace(
            u=row.u + push * kept,
            v=left_v,
            w=left_w,
            actor_trace=kept,
            critic_trace=trace,
            mark=jnp.broadcast_to(gaps.mark(now.time), place.shape),
        )
        step = lazy_noise.step_gap(rho, decay, delta, scale, actor_std)
        pending = lazy_noise.select(
            same, lazy_noise.own_step_gap(step), lazy_noise.compose(gap, step)
        )
        met = met._replace(
            u=jnp.where(same, left.u, met.u),
            actor_trace=parts.tree_where(same, kept, met.actor_trace),
        )
        variance = jnp.where(met.mark == 0, actor_noise - met.actor_had, 0.0)
        variance = jnp.where(same, 0.0, variance)
        met = _advance_actor(form, numbers, met, pending, variance, normals)
        gaps = lazy_noise.record(
            gaps, now.time, lazy_noise.select(alive, step, _identity_gap(form, alive.shape))
        )
        path = lax.dynamic_update_index_in_dim(path, place, now.time, 0)
    met_v = jnp.where(same, left_v, met_v)
    if form.noisy_critic:
        met_v = met_v + critic_std * normals[-1]
    met = met._replace(
        v=met_v,
        w=jnp.where(same, left_w, met_w),
        actor_had=actor_noise,
        critic_had=critic_noise,
        critic_trace=None if gap is None else jnp.where(same, trace, met_trace),
    )

    over = ended | (now.time + 1 >= form.horizon)
    return _EpisodeState(
        now.time + 1,
        parts.write(now.rows, place, parts.tree_where(alive, left, row)),
        parts.tree_where(alive, met, row),
        jnp.where(alive, after, place),
        alive & ~over,
        jnp.where(alive, actor_noise, now.actor_noise),
        jnp.where(alive, critic_noise, now.critic_noise),
        now.total + jnp.where(alive, reward, 0.0),
        now.length + alive,
        gaps,
        path,
        square,
        overlap,
        ranks,
    )


def _safe_sqrt(variance: jax.Array) -> jax.Array:
    """Of a difference of sums, which may be below 0 by rounding."""
    return jnp.sqrt(jnp.maximum(variance, 0.0))


def _norm_and_median(
    together: jax.Array, first: jax.Array, second: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Norm, and median of the non-zero absolute entries, of (first, -second), or of their sum."""
    x = jnp.abs(jnp.where(together, first - second, first))
    y = jnp.abs(jnp.where(together, 0.0, second))
    median = jnp.where((x > 0.0) & (y > 0.0), (x + y) / 2.0, jnp.maximum(x, y))
    return jnp.hypot(x, y), median


def _identity_gap(form: StaticConfig, shape: tuple[int, ...]) -> Gap:
    return lazy_noise.identity_gap(shape, form.noisy_actor, form.noisy_critic)


def _advance_actor(
    form: StaticConfig,
    numbers: Mapping[str, jax.Array],
    row: Row,
    gap: Gap,
    variance: jax.Array,
    normals: jax.Array,
) -> Row:
    """Preferences and their traces after a gap, with its noise and the pending variance."""
    rate = numbers["actor_step"]
    u = row.u + rate * gap.push * row.actor_trace
    trace = gap.keep * row.actor_trace
    if form.noisy_actor:
        a, b, c = lazy_noise.covariance_factor(gap)
        first, second = normals[: form.actions], normals[form.actions : 2 * form.actions]
        trace = trace + a * first
        u = u + rate * b * first + jnp.sqrt((rate * c) ** 2 + jnp.maximum(variance, 0.0)) * second
    return row._replace(u=u, actor_trace=trace)


def lazy_episode(
    form: StaticConfig, world: World, state: LearnerState, keep: bool
) -> tuple[LearnerState, Any]:
    """One episode in all replicas; with `keep`, also its last traces, of all states."""
    numbers, replicas = state.numbers, state.episode.shape[0]
    first, uniforms = parts.uniforms(form.blocks, state)
    place = parts.initial_states(world, first)
    row = parts.read(form, state.rows, place)
    zeros = jnp.zeros((replicas,))
    traces = form.traces
    noisy = (form.noisy_actor, form.noisy_critic)
    now = _EpisodeState(
        jnp.zeros((), jnp.int32),
        state.rows,
        row,
        place,
        jnp.ones((replicas,), bool),
        state.actor_noise,
        state.critic_noise,
        zeros,
        jnp.zeros((replicas,), jnp.int32),
        lazy_noise.initial_gaps(form.horizon, BLOCK, replicas, *noisy) if traces else None,
        jnp.zeros((form.blocks * BLOCK, replicas), jnp.int32) if traces else None,
        zeros if traces else None,
        zeros if traces else None,
        ranked.initial_ranks(form.horizon, replicas) if traces and form.noisy_critic else None,
    )

    def block(now: _EpisodeState) -> _EpisodeState:
        number, arriving = now.time // BLOCK, form.actions + 1
        normals = parts.normals(state, number, (arriving + BLOCK * form.normals,))
        settled = with_pending_noise(now.row, state, normals[:arriving])
        now = now._replace(row=parts.tree_where(number == 0, settled, now.row))
        drawn = (
            lax.dynamic_slice_in_dim(uniforms, now.time, BLOCK, 0),
            normals[arriving:].reshape(BLOCK, form.normals, replicas),
        )
        now, _ = lax.scan(
            lambda now, drawn: (_step(form, world, numbers, now, *drawn), None), now, drawn
        )
        if form.traces:
            now = now._replace(gaps=lazy_noise.close_block(now.gaps, number))
        return now

    now = lax.while_loop(lambda now: jnp.any(now.alive), block, now)
    kept = None
    if form.traces and keep:
        now, kept = _end_with_traces(form, state, now)
    elif form.traces:
        now = _end_of_episode(form, numbers, now)
    after = state._replace(
        rows=parts.write(now.rows, now.place, _without_traces(now.row, now.actor_noise)),
        actor_noise=now.actor_noise,
        critic_noise=now.critic_noise,
        episode=state.episode + 1,
        steps=state.steps + now.length,
    )
    return after, ({"return": now.total, "length": now.length}, kept)


def with_pending_noise(row: Row, state: LearnerState, normals: jax.Array) -> Row:
    """With all noise that is pending between episodes: (actions + 1, ..., replicas) normals."""
    return row._replace(
        u=row.u + _safe_sqrt(state.actor_noise - row.actor_had) * normals[:-1],
        v=row.v + _safe_sqrt(state.critic_noise - row.critic_had) * normals[-1],
        actor_had=jnp.broadcast_to(state.actor_noise, row.v.shape),
        critic_had=jnp.broadcast_to(state.critic_noise, row.v.shape),
    )


def _without_traces(row: Row, had: jax.Array) -> Row:
    """Between episodes: without traces."""
    if row.mark is None:
        return row
    return row._replace(
        actor_had=had,
        actor_trace=jnp.zeros_like(row.actor_trace),
        critic_trace=jnp.zeros_like(row.critic_trace),
        mark=jnp.zeros_like(row.mark),
    )


def _advance_critic(numbers: Mapping[str, jax.Array], row: Row, gap: Gap) -> Row:
    """The critic's part of a row after a gap."""
    return row._replace(
        v=row.v + numbers["critic_step"] * gap.values_push * row.critic_trace,
        w=row.w + numbers["correction_step"] * gap.push * row.critic_trace,
        critic_trace=gap.keep * row.critic_trace,
    )


def _episode_variance(
    form: StaticConfig, numbers: Mapping[str, jax.Array], now: _EpisodeState
) -> Any:
    """The variance that the episode gave to preferences it never met."""
    gap = lazy_noise.gap_since(now.gaps, jnp.zeros_like(now.place), jnp.asarray(form.blocks))
    return 0.0 if gap.weight is None else numbers["actor_step"] ** 2 * gap.weight


def _end_of_episode(
    form: StaticConfig, numbers: Mapping[str, jax.Array], now: _EpisodeState
) -> _EpisodeState:
    """The end of an episode: all rows it met are up to date, and their noise stays pending."""
    gaps: Gaps = now.gaps
    actor_noise = now.actor_noise + _episode_variance(form, numbers, now)
    longest = jnp.max(now.length)

    def block(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        begun, rows = carry
        times = begun + jnp.arange(BLOCK, dtype=jnp.int32)[:, None]
        places = lax.dynamic_slice_in_dim(now.path, begun, BLOCK, 0)
        row = parts.read(form, rows, places)
        # Of several visits to a state, the last one left the mark.
        last = (row.mark == gaps.mark(times)) & (times < now.length)
        marks = gaps.mark(jnp.broadcast_to(times, places.shape))
        gap = lazy_noise.gap_since(gaps, marks, jnp.asarray(form.blocks))
        had = actor_noise
        if gap.weight is not None:
            had = actor_noise - numbers["actor_step"] ** 2 * gap.weight
        row = _advance_critic(numbers, row, gap)._replace(
            u=row.u + numbers["actor_step"] * gap.push * row.actor_trace
        )
        row = _without_traces(row, jnp.broadcast_to(had, places.shape))
        return begun + BLOCK, parts.write(rows, jnp.where(last, places, form.states), row)

    _, rows = lax.while_loop(
        lambda carry: carry[0] < longest, block, (jnp.zeros((), jnp.int32), now.rows)
    )
    return now._replace(rows=rows, actor_noise=actor_noise)


def _end_with_traces(
    form: StaticConfig, state: LearnerState, now: _EpisodeState
) -> tuple[_EpisodeState, tuple[jax.Array, jax.Array]]:
    """The end of an episode whose traces are wanted: all rows are read, and their traces given.

    (states, actions, replicas) and (states, replicas); traces and preferences are drawn together.
    """
    numbers = state.numbers
    actor_noise = now.actor_noise + _episode_variance(form, numbers, now)
    row = parts.unpack_row(form, now.rows.T)
    gap = lazy_noise.gap_since(now.gaps, row.mark, jnp.asarray(form.blocks))
    variance = jnp.where(row.mark == 0, now.actor_noise - row.actor_had, 0.0)
    count = 2 * form.actions * form.noisy_actor
    normals = parts.normals(state, form.blocks, (count, form.states))
    row = _advance_critic(numbers, _advance_actor(form, numbers, row, gap, variance, normals), gap)
    here = jnp.arange(form.states)[:, None] == now.place
    row = jax.tree.map(
        lambda all_rows, one: jnp.where(here, one[..., None, :], all_rows), row, now.row
    )
    kept = (jnp.moveaxis(row.actor_trace, 0, 1), row.critic_trace)
    had = jnp.broadcast_to(actor_noise, row.v.shape)
    rows = parts.pack_row(_without_traces(row, had)).T
    return now._replace(rows=rows, actor_noise=actor_noise), kept
