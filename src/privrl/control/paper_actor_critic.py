"""The actor-critic of Seo and Yang (2020) as printed: Algorithms 1 to 4, on tables of states.

Per step, from state s by action a to s' with reward r, x_s one-hot, traces 0 as an episode starts:

    delta = r + gamma(s') v[s'] - v[s],        gamma(s') = 0 if the episode terminated, else gamma
    e_v  <- rho (x_s + gamma lambda e_v)
    z     = delta e_v - gamma(s') (1 - lambda) (w . e_v) x_{s'}
    v    <- v + alpha_v z,     w <- w + alpha_w [delta e_v - w[s] x_s]
    e_u  <- rho (grad log pi_u(a | s) + gamma lambda e_u),     u <- u + alpha_u delta e_u

DP-Actor replaces the gradient g by C_u g / ||g|| + N(0, (sigma C_u)^2) on *all* |S||A| entries,
DP-Critic z by C_v z / ||z|| + N(0, (sigma C_v)^2) on all |S|, DP-Both both. All is 0 at first. What
the paper leaves open or prints otherwise:

- pi_u is the softmax of the preferences u[s], also where actions are drawn epsilon-greedily, since
  the gradient of a greedy policy is 0. With probability `exploration` the action is uniform, and
  rho = pi_u(a | s) |A|; else it is the greedy one, and rho = 1. With softmax acting rho = 1.
- C is the median of the absolute non-zero entries of what it scales (over all entries it would be
  0), or a public constant. A zero vector has no direction, so no signal; its median is 0, so no
  noise either, while a constant C brings noise all the same.
- The correction term is for x_{s'}, as the derivation needs; the paper prints x_s.
- An episode that a clock cut off (*truncated*) bootstraps: it would have gone on.

Released: nothing is certified. The paper's promise is a Claim, for one step (`claims`): C is read
from the gradient, and neither the TD error nor rho nor w are noised.

Noise is drawn when a row is read (`privrl.control.waiting`, with the proof that the law is the
same), so a step costs the same for 500 states and for 50,000. `dense=True` draws all of it in each
step instead (`privrl.control.paper_dense`). Three random streams, for the world, the actions and
the noise; both ways of drawing noise use the first two alike.

Lanes are runs side by side, which begin each episode together; in arrays they come last, save in
the packed rows (lanes, states, fields), which one gather and one scatter a step touch in place.
Run in 64 bits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from privrl.control import paper_parts as parts
from privrl.control import ranks as ranked
from privrl.control import waiting
from privrl.control.paper_dense import dense_episode
from privrl.control.paper_parts import BLOCK, Acting, Form, Row, World
from privrl.control.paper_parts import State as State
from privrl.control.paper_parts import Variant as Variant
from privrl.control.ranks import Ranks
from privrl.control.waiting import Gap, Gaps
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs.tabular import TabularMDP
from privrl.privacy.certificate import Claim
from privrl.privacy.claims import seo2020_equation3


@dataclass(frozen=True)
class Config:
    """What is learned and how; the numbers in `SWEEPABLE` may be arrays, an entry for each lane."""

    variant: Variant = "actor"
    """What is noised: nothing, the actor, the critic, or both."""

    epsilon: float = 10.0
    """The paper's privacy parameter, for one step; from it and delta comes sigma."""

    delta: float = 1e-6
    """The paper's other one."""

    gamma: float = 0.99
    """The discount factor, from 0 to 1."""

    lambda_: float = 0.8
    """How far eligibility traces reach, from 0 to 1."""

    actor_step: float = 0.5
    """alpha_u."""

    critic_step: float = 0.01
    """alpha_v."""

    correction_step: float = 0.5
    """alpha_w."""

    acting: Acting = "epsilon-greedy"
    """How actions are drawn while learning."""

    exploration: float = 0.1
    """With what probability epsilon-greedy acting draws any action, uniformly."""

    clip: Literal["median"] | float = "median"
    """C: the median of the non-zero entries, or a public constant."""

    correction: Literal["next", "printed"] = "next"
    """Whose features the correction term has: x_{s'}, or x_s as printed."""

    max_steps: int | None = None
    """Truncates episodes that the environment lets go on."""

    dense: bool = False
    """Whether to draw all noise in each step: slow, and the same in law."""

    sigma: float | None = None
    """The noise multiplier; None for the paper's, sqrt(2 log(1.25 / delta)) / epsilon."""

    SWEEPABLE: ClassVar[tuple[str, ...]] = (
        "actor_step",
        "critic_step",
        "correction_step",
        "lambda_",
        "sigma",
        "exploration",
    )

    def __post_init__(self) -> None:
        _one_of("variant", self.variant, ("none", "actor", "critic", "both"))
        _one_of("acting", self.acting, ("epsilon-greedy", "softmax"))
        _one_of("correction", self.correction, ("next", "printed"))
        checks.positive("epsilon", self.epsilon)
        if checks.probability("delta", self.delta) == 0.0:
            raise InputError("delta must be above 0: the formula for sigma has none without it.")
        _share("gamma", self.gamma)
        if self.clip != "median":
            checks.positive("clip", self.clip)
        if self.max_steps is not None:
            checks.count("max_steps", self.max_steps)
        object.__setattr__(self, "dense", checks.switch("dense", self.dense))
        for name in self.SWEEPABLE:
            if name != "sigma" or self.sigma is not None:
                check_setting(name, getattr(self, name))

    @property
    def multiplier(self) -> Any:
        """sigma."""
        if self.sigma is not None:
            return self.sigma
        return math.sqrt(2.0 * math.log(1.25 / self.delta)) / self.epsilon


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name} must be {', '.join(map(repr, allowed))}, not {value!r}.")


def _share(name: str, value: object) -> None:
    if checks.non_negative(name, value) > 1.0:
        raise InputError(f"{name} must be at most 1.")


def check_setting(name: str, value: object) -> None:
    """Refuse what a sweep must not hold: one number, or an array of them."""
    if name not in Config.SWEEPABLE:
        raise InputError(f"{name!r} cannot be swept: use {', '.join(Config.SWEEPABLE)}.")
    check = _share if name in ("lambda_", "exploration") else checks.non_negative
    try:
        entries = np.asarray(value).ravel().tolist()
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, or an array of numbers.") from None
    for entry in entries:
        check(name, entry)


def claims(config: Config, steps: int) -> tuple[Claim, ...]:
    """What the paper promises for each step, beside what `steps` such steps add up to.

    None without noise. DP-Both noises two gradients in a step, and each has the promise.
    """
    if config.variant == "none":
        return ()
    if config.sigma is not None:
        raise InputError("a sigma of one's own has no claim: say epsilon and delta instead.")
    noised = 2 if config.variant == "both" else 1
    return (seo2020_equation3(config.epsilon, config.delta, checks.count("steps", steps), noised),)


# --- noise that waits -----------------------------------------------------------------------------


class _Now(NamedTuple):
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
    gaps: Gaps | None
    path: jax.Array | None
    """(horizon, rounded up, lanes): where each step was taken from."""

    square: jax.Array | None
    """||e_v||^2."""

    overlap: jax.Array | None
    """w . e_v."""

    ranks: Ranks | None


def _step(
    form: Form,
    world: World,
    numbers: Mapping[str, jax.Array],
    now: _Now,
    chance: jax.Array,
    normals: jax.Array,
) -> _Now:
    """One step in all lanes that are alive.

    Entries of e_v are never negative. With them, ||e_v||^2 <- rho^2 (1 + 2 gamma lambda e_v[s] +
    (gamma lambda)^2 ||e_v||^2), and w . e_v first becomes rho (w[s] + gamma lambda w . e_v) as e_v
    moves, and then grows by alpha_w (delta ||e_v||^2 - w[s] e_v[s]) as w does.
    """
    row, place, alive = now.row, now.place, now.alive
    sigma, decay = numbers["sigma"], numbers["gamma"] * numbers["lambda_"]
    critic_step, correction_step = numbers["critic_step"], numbers["correction_step"]
    printed = form.correction == "printed"

    action, rho, gradient = parts.act(form, numbers["exploration"], row.u, chance[1])
    after, reward, ended = parts.move(form, world, place, action, chance[0])
    same = after == place
    goes_on = jnp.where(ended, 0.0, numbers["gamma"])

    # The next state, as it was before this step.
    met: Row = parts.pick(same, row, parts.read(form, now.rows, after))
    gap = None
    met_v, met_w, met_trace = met.v, met.w, jnp.zeros_like(met.v)
    if met.critic_trace is not None and met.mark is not None and now.gaps is not None:
        gap = waiting.since(now.gaps, met.mark, now.time // BLOCK)
        gap = waiting.select(same, _still(form, place.shape), gap)
        met_v = met_v + critic_step * gap.values_push * met.critic_trace
        met_w = met_w + correction_step * gap.push * met.critic_trace
        met_trace = gap.keep * met.critic_trace
    if form.noisy_critic:
        met_v = met_v + _root(now.critic_noise - met.critic_had) * normals[-2]

    # The critic.
    delta = reward + goes_on * met_v - row.v
    before = jnp.zeros_like(rho) if row.critic_trace is None else row.critic_trace
    trace = rho * (1.0 + decay * before)
    square, overlap, ranks = now.square, now.overlap, now.ranks
    if square is None or overlap is None:
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
            norm, median = _of_two(printed | same, delta * trace, amount)
        else:
            ranks = ranked.visit(ranks, place, rho, decay)
            norm, median = ranked.measure(ranks, delta, place if printed else after, amount)
        bound = median if form.clip is None else jnp.full_like(median, form.clip)
        scale = parts.ratio(bound, norm)
        critic_std = critic_step * sigma * bound
        critic_noise = critic_noise + critic_std**2
    critic_rate = critic_step if scale is None else critic_step * scale
    left_v = row.v + critic_rate * (delta * trace - jnp.where(printed | same, amount, 0.0))
    left_w = row.w + correction_step * (delta * trace - row.w)
    met_trace = rho * decay * met_trace
    met_v = met_v + critic_rate * (delta * met_trace - (0.0 if printed else amount))
    met_w = met_w + correction_step * delta * met_trace

    # The actor. The state left is kept without this step's noise, which waits.
    signal, actor_bound = parts.actor_signal(form, gradient)
    actor_std = None if actor_bound is None else sigma * actor_bound
    push = numbers["actor_step"] * delta
    actor_noise, gaps, path = now.actor_noise, now.gaps, now.path
    if gaps is None or gap is None or row.actor_trace is None or path is None:
        left = row._replace(u=row.u + push * rho * signal, v=left_v, w=left_w)
        met_u = jnp.where(same, left.u, met.u)
        if actor_std is not None:
            actor_noise = actor_noise + (push * rho * actor_std) ** 2
            met_u = met_u + _root(actor_noise - met.actor_had) * normals[: form.actions]
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
        step = waiting.one_step(rho, decay, delta, scale, actor_std)
        pending = waiting.select(same, waiting.own_step(step), waiting.then(gap, step))
        met = met._replace(
            u=jnp.where(same, left.u, met.u),
            actor_trace=parts.pick(same, kept, met.actor_trace),
        )
        waits = jnp.where(met.mark == 0, actor_noise - met.actor_had, 0.0)
        waits = jnp.where(same, 0.0, waits)
        met = _arrive(form, numbers, met, pending, waits, normals)
        gaps = waiting.record(
            gaps, now.time, waiting.select(alive, step, _still(form, alive.shape))
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
    return _Now(
        now.time + 1,
        parts.write(now.rows, place, parts.pick(alive, left, row)),
        parts.pick(alive, met, row),
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


def _root(variance: jax.Array) -> jax.Array:
    """Of a difference of sums, which may be below 0 by rounding."""
    return jnp.sqrt(jnp.maximum(variance, 0.0))


def _of_two(
    together: jax.Array, first: jax.Array, second: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Norm, and median of the non-zero absolute entries, of (first, -second), or of their sum."""
    x = jnp.abs(jnp.where(together, first - second, first))
    y = jnp.abs(jnp.where(together, 0.0, second))
    median = jnp.where((x > 0.0) & (y > 0.0), (x + y) / 2.0, jnp.maximum(x, y))
    return jnp.hypot(x, y), median


def _still(form: Form, shape: tuple[int, ...]) -> Gap:
    return waiting.still(shape, form.noisy_actor, form.noisy_critic)


def _arrive(
    form: Form,
    numbers: Mapping[str, jax.Array],
    row: Row,
    gap: Gap,
    waits: jax.Array,
    normals: jax.Array,
) -> Row:
    """Preferences and their traces after a gap, with its noise and the variance that waited."""
    assert row.actor_trace is not None
    rate = numbers["actor_step"]
    u = row.u + rate * gap.push * row.actor_trace
    trace = gap.keep * row.actor_trace
    if form.noisy_actor:
        a, b, c = waiting.spread(gap)
        first, second = normals[: form.actions], normals[form.actions : 2 * form.actions]
        trace = trace + a * first
        u = u + rate * b * first + jnp.sqrt((rate * c) ** 2 + jnp.maximum(waits, 0.0)) * second
    return row._replace(u=u, actor_trace=trace)


def _waiting_episode(form: Form, world: World, state: State, keep: bool) -> tuple[State, Any]:
    """One episode in all lanes; with `keep`, also its last traces, of all states."""
    numbers, lanes = state.numbers, state.episode.shape[0]
    first, chances = parts.chances(form.blocks, state)
    place = parts.begin(world, first)
    row = parts.read(form, state.rows, place)
    zeros = jnp.zeros((lanes,))
    traces = form.traces
    noisy = (form.noisy_actor, form.noisy_critic)
    now = _Now(
        jnp.zeros((), jnp.int32),
        state.rows,
        row,
        place,
        jnp.ones((lanes,), bool),
        state.actor_noise,
        state.critic_noise,
        zeros,
        jnp.zeros((lanes,), jnp.int32),
        waiting.start(form.horizon, BLOCK, lanes, *noisy) if traces else None,
        jnp.zeros((form.blocks * BLOCK, lanes), jnp.int32) if traces else None,
        zeros if traces else None,
        zeros if traces else None,
        ranked.start(form.horizon, lanes) if traces and form.noisy_critic else None,
    )

    def block(now: _Now) -> _Now:
        number, arriving = now.time // BLOCK, form.actions + 1
        normals = parts.normals(state, number, (arriving + BLOCK * form.normals,))
        settled = _settled(now.row, state, normals[:arriving])
        now = now._replace(row=parts.pick(number == 0, settled, now.row))
        drawn = (
            lax.dynamic_slice_in_dim(chances, now.time, BLOCK, 0),
            normals[arriving:].reshape(BLOCK, form.normals, lanes),
        )
        now, _ = lax.scan(
            lambda now, drawn: (_step(form, world, numbers, now, *drawn), None), now, drawn
        )
        return now if now.gaps is None else now._replace(gaps=waiting.close(now.gaps, number))

    now = lax.while_loop(lambda now: jnp.any(now.alive), block, now)
    kept = None
    if now.gaps is not None:
        now, kept = _all_traces(form, state, now) if keep else (_closed(form, numbers, now), None)
    after = state._replace(
        rows=parts.write(now.rows, now.place, _rested(now.row, now.actor_noise)),
        actor_noise=now.actor_noise,
        critic_noise=now.critic_noise,
        episode=state.episode + 1,
        steps=state.steps + now.length,
    )
    return after, ({"return": now.total, "length": now.length}, kept)


def _settled(row: Row, state: State, normals: jax.Array) -> Row:
    """With all noise that waits between episodes: (actions + 1, ..., lanes) normals."""
    return row._replace(
        u=row.u + _root(state.actor_noise - row.actor_had) * normals[:-1],
        v=row.v + _root(state.critic_noise - row.critic_had) * normals[-1],
        actor_had=jnp.broadcast_to(state.actor_noise, row.v.shape),
        critic_had=jnp.broadcast_to(state.critic_noise, row.v.shape),
    )


def _rested(row: Row, had: jax.Array) -> Row:
    """Between episodes: without traces."""
    if row.actor_trace is None or row.critic_trace is None or row.mark is None:
        return row
    return row._replace(
        actor_had=had,
        actor_trace=jnp.zeros_like(row.actor_trace),
        critic_trace=jnp.zeros_like(row.critic_trace),
        mark=jnp.zeros_like(row.mark),
    )


def _brought(numbers: Mapping[str, jax.Array], row: Row, gap: Gap) -> Row:
    """The critic's part of a row after a gap."""
    assert row.critic_trace is not None
    return row._replace(
        v=row.v + numbers["critic_step"] * gap.values_push * row.critic_trace,
        w=row.w + numbers["correction_step"] * gap.push * row.critic_trace,
        critic_trace=gap.keep * row.critic_trace,
    )


def _given(form: Form, numbers: Mapping[str, jax.Array], gaps: Gaps, lanes: int) -> jax.Array:
    """The variance that the episode gave to preferences it never met."""
    over = jnp.asarray(form.blocks)
    gap = waiting.since(gaps, jnp.zeros((lanes,), jnp.int32), over)
    if gap.weight is None:
        return jnp.zeros((lanes,))
    return numbers["actor_step"] ** 2 * gap.weight


def _closed(form: Form, numbers: Mapping[str, jax.Array], now: _Now) -> _Now:
    """The end of an episode: all rows it met are brought up to date, and their noise waits on."""
    gaps, path = now.gaps, now.path
    assert gaps is not None
    assert path is not None
    lanes = now.place.shape[0]
    actor_noise = now.actor_noise + _given(form, numbers, gaps, lanes)
    longest = jnp.max(now.length)

    def block(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        begun, rows = carry
        times = begun + jnp.arange(BLOCK, dtype=jnp.int32)[:, None]
        places = lax.dynamic_slice_in_dim(path, begun, BLOCK, 0)
        row = parts.read(form, rows, places)
        assert row.mark is not None
        assert row.actor_trace is not None
        # Of several visits to a state, the last one left the mark.
        last = (row.mark == gaps.mark(times)) & (times < now.length)
        marks = gaps.mark(jnp.broadcast_to(times, places.shape))
        gap = waiting.since(gaps, marks, jnp.asarray(form.blocks))
        had = actor_noise
        if gap.weight is not None:
            had = actor_noise - numbers["actor_step"] ** 2 * gap.weight
        row = _brought(numbers, row, gap)._replace(
            u=row.u + numbers["actor_step"] * gap.push * row.actor_trace
        )
        row = _rested(row, jnp.broadcast_to(had, places.shape))
        return begun + BLOCK, parts.write(rows, jnp.where(last, places, form.states), row)

    _, rows = lax.while_loop(
        lambda carry: carry[0] < longest, block, (jnp.zeros((), jnp.int32), now.rows)
    )
    return now._replace(rows=rows, actor_noise=actor_noise)


def _all_traces(form: Form, state: State, now: _Now) -> tuple[_Now, tuple[jax.Array, jax.Array]]:
    """The end of an episode whose traces are wanted: all rows are read, and their traces given.

    (states, actions, lanes) and (states, lanes); traces and preferences are drawn together.
    """
    numbers, gaps = state.numbers, now.gaps
    assert gaps is not None
    lanes = now.place.shape[0]
    actor_noise = now.actor_noise + _given(form, numbers, gaps, lanes)
    row = parts.unpacked(form, now.rows.T)
    assert row.mark is not None
    gap = waiting.since(gaps, row.mark, jnp.asarray(form.blocks))
    waits = jnp.where(row.mark == 0, now.actor_noise - row.actor_had, 0.0)
    count = 2 * form.actions * form.noisy_actor
    normals = parts.normals(state, form.blocks, (count, form.states))
    row = _brought(numbers, _arrive(form, numbers, row, gap, waits, normals), gap)
    here = jnp.arange(form.states)[:, None] == now.place
    row = jax.tree.map(
        lambda all_rows, one: jnp.where(here, one[..., None, :], all_rows), row, now.row
    )
    kept = (jnp.moveaxis(row.actor_trace, 0, 1), row.critic_trace)
    had = jnp.broadcast_to(actor_noise, row.v.shape)
    packed = parts.packed(_rested(row, had))
    rows = packed.T
    return now._replace(rows=rows, actor_noise=actor_noise), kept


# --- compiled -------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("form", "episodes"))
def _advance(
    form: Form, world: World, state: State, episodes: int
) -> tuple[State, dict[str, jax.Array]]:
    def body(now: State, _: None) -> tuple[State, dict[str, jax.Array]]:
        play = dense_episode if form.dense else _waiting_episode
        after, (seen, _kept) = play(form, world, now, False)
        return after, seen

    after, seen = lax.scan(body, state, None, length=episodes)
    return after, {name: values.T for name, values in seen.items()}


@partial(jax.jit, static_argnames=("form", "episodes"))
def _advance_with_traces(
    form: Form, world: World, state: State, episodes: int
) -> tuple[State, tuple[jax.Array, jax.Array]]:
    """(episodes, S, A) and (episodes, S): the traces at the end of each, averaged over lanes."""

    def body(now: State, _: None) -> tuple[State, Any]:
        play = dense_episode if form.dense else _waiting_episode
        after, (_seen, kept) = play(form, world, now, True)
        return after, jax.tree.map(lambda trace: jnp.mean(trace, axis=-1), kept)

    return lax.scan(body, state, None, length=episodes)


@partial(jax.jit, static_argnames="form")
def _flushed(form: Form, state: State) -> State:
    row = parts.unpacked(form, state.rows.T)
    # Of the coming episode, a part that no episode draws from.
    normals = parts.normals(state, 1 + form.blocks, (form.actions + 1, form.states))
    packed = parts.packed(_settled(row, state, normals))
    return state._replace(rows=packed.T)


class Trained(NamedTuple):
    """What `train` gives back, of each lane. Nothing here is certified."""

    actor: Floats
    """u, (lanes, S, A)."""

    critic: Floats
    """v, (lanes, S)."""

    correction: Floats
    """w, (lanes, S)."""

    returns: Floats
    """(lanes, episodes), undiscounted."""

    lengths: NDArray[np.int64]
    """(lanes, episodes)."""


class PaperProgram:
    """Paper mode as a program: many runs side by side, each with its own key and settings."""

    sweepable: tuple[str, ...] = Config.SWEEPABLE

    def __init__(self, config: Config, env: TabularMDP, *, sweeps_lambda: bool = False) -> None:
        """`sweeps_lambda` says that settings will hold `lambda_`, so that traces are needed even if
        the config's own lambda is 0."""
        if not isinstance(env, TabularMDP):
            raise InputError("the paper's actor-critic is for tables of states, such as Taxi.")
        limits = [limit for limit in (env.step_limit, config.max_steps) if limit is not None]
        if not limits:
            raise InputError(f"{env.name} sets no limit to an episode: say max_steps.")
        self.config = config
        self.env = env
        self.form = Form(
            states=env.num_states,
            actions=env.num_actions,
            horizon=min(limits),
            acting=config.acting,
            variant=config.variant,
            clip=None if config.clip == "median" else float(config.clip),
            correction=config.correction,
            traces=sweeps_lambda or bool(np.any(np.asarray(config.lambda_) != 0.0)),
            dense=config.dense,
        )
        given = env.default_params
        successors = np.asarray(given.successors)
        pairs = successors.shape[0] * successors.shape[1]
        parts = (successors, given.rewards, given.terminated)
        outcomes = np.stack([np.asarray(part, np.float64).ravel() for part in parts], axis=1)
        cumulative = np.asarray(given.cumulative, np.float64)[:, :, :-1].reshape(pairs, -1)
        with jax.enable_x64(True):
            self._world = World(
                jnp.asarray(cumulative), jnp.asarray(outcomes), jnp.asarray(given.start)
            )

    def init(self, keys: jax.Array, settings: Mapping[str, jax.Array] | None = None) -> State:
        """All weights 0, before the first episode of each of the `keys` (lanes,)."""
        given = dict(settings or {})
        for name, value in given.items():
            check_setting(name, value)
        if not self.form.traces and np.any(np.asarray(given.get("lambda_", 0.0)) != 0.0):
            raise InputError("lambda_ is swept: make the program with sweeps_lambda=True.")
        lanes = keys.shape[0]
        own = {name: getattr(self.config, name) for name in self.sweepable}
        own["sigma"] = self.config.multiplier
        every = {**own, **given, "gamma": self.config.gamma}
        for name, value in every.items():
            if np.shape(value) not in ((), (lanes,)):
                raise InputError(f"{name} must be one number, or one for each of {lanes} keys.")
        with jax.enable_x64(True):
            numbers = {
                name: jnp.broadcast_to(jnp.asarray(value, jnp.float64), (lanes,))
                for name, value in every.items()
            }
            streams = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
            actions = self.form.actions
            fields = 2 * actions + 6 if self.form.traces else actions + 4
            zeros, none = jnp.zeros((lanes,)), jnp.zeros((lanes,), jnp.int32)
            return State(
                jnp.zeros((lanes, self.form.states, fields)),
                zeros,
                zeros,
                none,
                none,
                streams[:, 0],
                streams[:, 1],
                streams[:, 2],
                numbers,
            )

    def advance(self, state: State, episodes: int) -> tuple[State, dict[str, jax.Array]]:
        """Play `episodes` more: "return" and "length", (lanes, episodes) each."""
        with jax.enable_x64(True):
            number = checks.count("episodes", episodes)
            found: tuple[State, dict[str, jax.Array]] = _advance(
                self.form, self._world, state, number
            )
        return found

    def traces(self, state: State, episodes: int) -> tuple[State, Floats, Floats]:
        """Play `episodes` more: the traces at the end of each, averaged over lanes.

        (episodes, S, A) of the actor and (episodes, S) of the critic. Needs a program with traces.
        """
        if not self.form.traces:
            raise InputError("traces are kept with sweeps_lambda=True, also where lambda is 0.")
        with jax.enable_x64(True):
            number = checks.count("episodes", episodes)
            state, kept = _advance_with_traces(self.form, self._world, state, number)
        return state, np.asarray(kept[0]), np.asarray(kept[1])

    def weights(self, state: State) -> tuple[Floats, Floats, Floats]:
        """u (lanes, S, A), v and w (lanes, S) of a state that was flushed."""
        rows, actions = np.asarray(state.rows), self.form.actions
        return rows[:, :, :actions], rows[:, :, actions], rows[:, :, actions + 1]


def flush(program: PaperProgram, state: State) -> State:
    """The state with all noise drawn that waits; go on from this one, not from the other.

    Weights must not be looked at before: rows that were not read lately lack their noise.
    """
    with jax.enable_x64(True):
        flushed: State = _flushed(program.form, state)
    return flushed


def train(
    keys: jax.Array,
    config: Config,
    env: TabularMDP,
    episodes: int,
    settings: Mapping[str, jax.Array] | None = None,
) -> Trained:
    """Learn for `episodes` episodes, a lane for each of the `keys` (lanes,)."""
    program = PaperProgram(config, env, sweeps_lambda="lambda_" in (settings or {}))
    state, seen = program.advance(program.init(keys, settings), episodes)
    actor, critic, correction = program.weights(flush(program, state))
    lengths = np.asarray(seen["length"], np.int64)
    return Trained(actor, critic, correction, np.asarray(seen["return"]), lengths)


# --- the paper's measure of anonymity -------------------------------------------------------------


MEASURE = "the paper's measure of anonymity, not a privacy guarantee"


class Similarity(NamedTuple):
    """Table 4: cosine similarities of traces, episode by episode. Not a guarantee of anything."""

    actor: Floats
    """(episodes,); NaN where a trace is 0."""

    critic: Floats
    """(episodes,)."""

    def summary(self) -> dict[str, float]:
        """Mean and variance over episodes, of each trace."""
        found = {}
        for name, values in (("actor", self.actor), ("critic", self.critic)):
            valid = values[np.isfinite(values)]
            found[f"{name}_mean"] = float(np.mean(valid)) if valid.size else math.nan
            found[f"{name}_variance"] = float(np.var(valid)) if valid.size else math.nan
        return found


def trace_similarity(keys: jax.Array, config: Config, env: TabularMDP, episodes: int) -> Similarity:
    """Cosine similarity of a noised run's traces with those of the run without noise.

    As in Figure 4 of the paper: traces as they stand at the end of an episode, averaged over runs
    (`keys`) first. Both start from the same keys.
    """
    found = []
    for one in (replace(config, variant="none"), config):
        program = PaperProgram(one, env, sweeps_lambda=True)
        _, actor, critic = program.traces(program.init(keys), episodes)
        found.append((actor.reshape(episodes, -1), critic))
    (actor, critic), (noised_actor, noised_critic) = found
    return Similarity(_cosine(actor, noised_actor), _cosine(critic, noised_critic))


def _cosine(first: Floats, second: Floats) -> Floats:
    """Row by row; NaN where a row is 0."""
    sizes = [np.linalg.norm(one, axis=1) for one in (first, second)]
    valid = (sizes[0] > 0.0) & (sizes[1] > 0.0)
    safe = [np.where(valid, size, 1.0)[:, None] for size in sizes]
    products = np.sum((first / safe[0]) * (second / safe[1]), axis=1)
    return np.where(valid, products, np.nan)
