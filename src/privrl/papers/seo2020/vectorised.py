"""Many runs of Algorithms 1 to 4 at once in NumPy, each with settings of its own: no compiling.

For searches and repetitions, where the compiled version would wait for its slowest replica and for
the compiler. The law is that of `algorithm`: `lazy_noise` has the proof for noise drawn where it is
read. A *slot* is a state that the episode has met; slot 0 stands for all that it has not. Traces,
weights and pending noise of slots are arrays (slots, runs), and between episodes those of states
are tables (runs, states). A run whose episode is over is written back, and taken out of the arrays
when enough are. Pending for the preferences of a slot are the variance E of the trace, the
covariance X with u / alpha, and the variance U of u / alpha, which a step moves by

    E <- p^2 E + (rho sigma C)^2,  U <- U + 2 delta p X + delta^2 E,  X <- p X + delta E

with p = rho gamma lambda and the new E on the right; and what earlier episodes left pending.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privrl.core.types import Floats
from privrl.envs.tabular import TabularMDP
from privrl.papers.seo2020.spec import Acting, Variant

Ints = NDArray[np.int64]

ORDER: tuple[Variant, ...] = ("none", "critic", "both", "actor")
"""Runs are in this order, so that those with a noised actor, or critic, are next to each other."""

DELTA = 1e-6
GAMMA = 0.99


@dataclass(frozen=True)
class Run:
    """One run's settings; epsilon is what the paper claims for a step."""

    variant: Variant
    actor_step: float
    critic_step: float
    correction_step: float
    lambda_: float
    epsilon: float = 10.0
    exploration: float = 0.1

    @property
    def sigma(self) -> float:
        return math.sqrt(2.0 * math.log(1.25 / DELTA)) / self.epsilon


@dataclass(frozen=True)
class Form:
    """What all runs have in common, and what the paper leaves open."""

    acting: Acting = "epsilon-greedy"
    law: Literal["softmax", "epsilon-greedy"] = "softmax"
    """Whose probabilities are in rho and in the gradient 1[a] - pi(. | s)."""

    rows: Literal["all", "visited"] = "all"
    """Which rows are noised in a step: all, or that of the state alone."""


class Played(NamedTuple):
    """What runs gave, in the order in which they were asked for."""

    returns: Floats
    """(runs, episodes)."""

    lengths: Ints
    actor: Floats
    """u, (runs, S, A); v and w, (runs, S)."""

    critic: Floats
    correction: Floats
    actor_traces: Floats | None
    """(runs, episodes, S A), those at the end of episodes, if they were asked for."""

    critic_traces: Floats | None


class _Episode:
    """The slots of an episode under way, for the runs that are in it."""

    def __init__(self, tables: "_Tables", runs: Ints, capacity: int) -> None:
        count, actions = len(runs), tables.actions
        self.runs = runs
        self.u = np.zeros((actions, capacity, count))
        self.actor_trace = np.zeros((actions, capacity, count))
        # v, w, the critic's trace, had, pending before the episode; E, X and U.
        self.v, self.w, self.trace, self.had, self.before = np.zeros((5, capacity, count))
        self.pending = np.zeros((3, capacity, count))
        self.state = np.zeros((capacity, count), np.int64)
        self.slot_of = np.zeros((count, tables.states), np.int64)
        self.met = np.zeros(count, np.int64)
        self.actor_noise = tables.actor_noise[runs].copy()
        self.critic_noise = tables.critic_noise[runs].copy()
        self.total = np.zeros(count)
        self.alive = np.ones(count, bool)
        self.noisy_actor, self.noisy_critic = tables.noisy_actor, tables.noisy_critic
        self._place_runs()

    def _place_runs(self) -> None:
        self.column = np.arange(len(self.runs))
        self.actor, self.critic = _where_true(self.noisy_actor), _where_true(self.noisy_critic)

    def keep(self, which: NDArray[np.bool_], used: int) -> None:
        """Leave the other runs out."""
        for name in ("u", "actor_trace", "pending"):
            old = getattr(self, name)
            new = np.zeros((*old.shape[:2], int(which.sum())))
            new[:, :used] = old[:, :used, which]
            setattr(self, name, new)
        for name in ("v", "w", "trace", "had", "before", "state"):
            old = getattr(self, name)
            new = np.zeros((old.shape[0], int(which.sum())), old.dtype)
            new[:used] = old[:used, which]
            setattr(self, name, new)
        rest = ("runs", "slot_of", "met", "actor_noise", "critic_noise", "total", "alive")
        for name in (*rest, "noisy_actor", "noisy_critic"):
            setattr(self, name, getattr(self, name)[which])
        self._place_runs()


class _Tables:
    """What runs keep between episodes, and the world."""

    def __init__(self, env: TabularMDP, runs: Sequence[Run]) -> None:
        given = env.default_params
        successors = np.asarray(given.successors)
        self.states, self.actions, outcomes = successors.shape
        self.successors = successors.reshape(-1, outcomes).astype(np.int64)
        self.rewards = np.asarray(given.rewards, np.float64).reshape(-1, outcomes)
        self.ends = np.asarray(given.terminated).reshape(-1, outcomes)
        self.cumulative = np.asarray(given.cumulative, np.float64).reshape(-1, outcomes)[:, :-1]
        self.start = np.asarray(given.start, np.float64)
        assert env.step_limit is not None
        self.horizon = env.step_limit
        shape = (len(runs), self.states)
        self.u = np.zeros((*shape, self.actions))
        self.v, self.w, self.actor_had, self.critic_had = np.zeros((4, *shape))
        self.actor_noise, self.critic_noise = np.zeros((2, len(runs)))
        names = ("actor_step", "critic_step", "correction_step", "lambda_", "exploration", "sigma")
        self.numbers = {name: np.array([getattr(one, name) for one in runs]) for name in names}
        self.numbers["decay"] = GAMMA * self.numbers["lambda_"]
        self.noisy_critic = np.array([one.variant in ("critic", "both") for one in runs])
        self.noisy_actor = np.array([one.variant in ("actor", "both") for one in runs])


def play(
    env: TabularMDP,
    runs: Sequence[Run],
    episodes: int,
    rng: np.random.Generator,
    form: Form = Form(),  # noqa: B008
    *,
    keep_traces: bool = False,
    uniforms: Callable[[int], tuple[Floats, Floats]] | None = None,
) -> Played:
    """Play all runs.

    Args:
        keep_traces: Whether traces are wanted, as they stand at the end of each episode.
        uniforms: Of an episode, instead of draws from `rng`: (runs,) where each starts, and (steps,
            2, runs) where an action leads and which one is taken.
    """
    order = np.array(sorted(range(len(runs)), key=lambda k: ORDER.index(runs[k].variant)))
    tables = _Tables(env, [runs[k] for k in order])
    returns = np.zeros((len(runs), episodes))
    lengths = np.zeros((len(runs), episodes), np.int64)
    kept: Any = None
    if keep_traces:
        cells = tables.states * tables.actions
        kept = (
            np.zeros((len(runs), episodes, cells)),
            np.zeros((len(runs), episodes, tables.states)),
        )
    with np.errstate(all="ignore"):  # runs may diverge
        for number in range(episodes):
            fixed = None
            if uniforms is not None:
                first, steps = uniforms(number)
                fixed = (first[order], steps[:, :, order])
            _play_episode(tables, form, rng, number, returns, lengths, kept, fixed)
        for table, noise, had in (
            (tables.u, tables.actor_noise, tables.actor_had[:, :, None]),
            (tables.v, tables.critic_noise, tables.critic_had),
        ):
            variance = noise.reshape(-1, *[1] * (table.ndim - 1)) - had
            table += np.sqrt(np.maximum(variance, 0.0)) * rng.standard_normal(table.shape)
    back = np.argsort(order)
    traces = (None, None) if kept is None else (kept[0][back], kept[1][back])
    return Played(
        *(returns[back], lengths[back], tables.u[back], tables.v[back], tables.w[back]), *traces
    )


def _play_episode(
    tables: _Tables,
    form: Form,
    rng: np.random.Generator,
    number: int,
    returns: Floats,
    lengths: Ints,
    kept: tuple[Floats, Floats] | None,
    fixed: tuple[Floats, Floats] | None,
) -> None:
    everyone = np.arange(len(returns))
    now = _Episode(tables, everyone, min(tables.states, tables.horizon + 1) + 1)
    first = rng.random(len(everyone)) if fixed is None else fixed[0]
    place = np.searchsorted(tables.start, first, side="right")
    own = {name: values.copy() for name, values in tables.numbers.items()}
    slot = _slots(tables, now, place)
    for time in range(tables.horizon):
        count = len(now.runs)
        if fixed is None:
            where, which = rng.random((2, count))
        else:
            where, which = fixed[1][time][:, now.runs]
        reward, ended, slot, place = _step(tables, form, rng, now, own, slot, place, where, which)
        now.total += reward
        over = now.alive & (ended | (time + 1 == tables.horizon))
        if not over.any():
            continue
        _write_back(tables, now, over, own, rng, number, kept)
        done = now.runs[over]
        returns[done, number], lengths[done, number] = now.total[over], time + 1
        now.alive &= ~over
        left = int(now.alive.sum())
        if left == 0:
            return
        if left < 0.8 * count:
            slot, place = slot[now.alive], place[now.alive]
            own = {name: values[now.alive] for name, values in own.items()}
            now.keep(now.alive, int(now.met.max()) + 1)


def _slots(tables: _Tables, now: _Episode, place: Ints) -> Ints:
    """The slots of states; one that is not met yet gets its own, as the tables have it."""
    slot = now.slot_of[now.column, place]
    new = np.flatnonzero(slot == 0)
    if len(new):
        now.met[new] += 1
        target, state, run = now.met[new], place[new], now.runs[new]
        slot[new] = target
        now.slot_of[new, state] = target
        now.state[target, new] = state
        now.u[:, target, new] = tables.u[run, state].T
        now.v[target, new] = tables.v[run, state]
        now.w[target, new] = tables.w[run, state]
        now.had[target, new] = tables.critic_had[run, state]
        now.before[target, new] = now.actor_noise[new] - tables.actor_had[run, state]
        now.pending[:, target, new] = now.pending[:, 0, new]
    return slot


def _step(
    tables: _Tables,
    form: Form,
    rng: np.random.Generator,
    now: _Episode,
    own: Mapping[str, Floats],
    slot: Ints,
    place: Ints,
    where: Floats,
    which: Floats,
) -> tuple[Floats, NDArray[np.bool_], Ints, Ints]:
    """One step of all runs, in the order of `algorithm`."""
    column, actor, critic = now.column, now.actor, now.critic
    everywhere = form.rows == "all"
    if everywhere:
        _settle_actor(now, own, slot, actor, rng)
        _settle_critic(now, slot, critic, rng)
    action, rho, gradient = _act(form, own["exploration"], now.u[:, slot, column], which)
    pair = place * tables.actions + action
    outcome = (where[:, None] >= tables.cumulative[pair]).sum(axis=1)
    reward, ended = tables.rewards[pair, outcome], tables.ends[pair, outcome]
    after = tables.successors[pair, outcome]
    next_slot = _slots(tables, now, after)
    if everywhere:
        _settle_critic(now, next_slot, critic, rng)
    used = int(now.met.max()) + 1
    goes_on = np.where(ended, 0.0, GAMMA)
    delta = reward + goes_on * now.v[next_slot, column] - now.v[slot, column]

    # The critic.
    fade = rho * own["decay"]
    trace = now.trace[:used]
    trace *= fade
    trace[slot, column] += rho
    w = now.w[:used]
    amount = goes_on * (1.0 - own["lambda_"]) * np.einsum("sr,sr->r", w, trace)
    moved = delta * trace
    w_here = w[slot, column]
    w += own["correction_step"] * moved
    w[slot, column] -= own["correction_step"] * w_here
    moved[next_slot, column] -= amount
    if critic.stop > critic.start:
        noised = moved[:, critic]
        norm, bound = _norm_and_median(noised)
        noised *= np.where(norm > 0.0, bound / np.where(norm > 0.0, norm, 1.0), 0.0)
        std = own["critic_step"][critic] * own["sigma"][critic] * bound
        if everywhere:
            now.critic_noise[critic] += std**2
        else:
            drawn = own["sigma"][critic] * bound * rng.standard_normal(len(bound))
            noised[slot[critic], np.arange(len(bound))] += drawn
    now.v[:used] += own["critic_step"] * moved

    # The actor.
    if actor.stop > actor.start:
        signal = gradient[:, actor]
        norm, bound = _norm_and_median(signal)
        signal *= np.where(norm > 0.0, bound / np.where(norm > 0.0, norm, 1.0), 0.0)
        std = own["sigma"][actor] * bound
        if everywhere:
            p, d = fade[actor], delta[actor]
            trace_variance, covariance, variance = now.pending[:, :used, actor]
            trace_variance *= p**2
            trace_variance += (rho[actor] * std) ** 2
            covariance *= p
            variance += d * (2.0 * covariance + d * trace_variance)
            covariance += d * trace_variance
        else:
            signal += std * rng.standard_normal(signal.shape)
    actor_trace = now.actor_trace[:, :used]
    actor_trace *= fade
    actor_trace[:, slot, column] += rho * gradient
    now.u[:, :used] += (own["actor_step"] * delta) * actor_trace
    return reward, ended, next_slot, after


def _where_true(flags: NDArray[np.bool_]) -> slice:
    """The places of flags that are next to each other, by the order of runs."""
    found = np.flatnonzero(flags)
    return slice(int(found[0]), int(found[-1]) + 1) if len(found) else slice(0, 0)


def _settle_critic(now: _Episode, slot: Ints, critic: slice, rng: np.random.Generator) -> None:
    """Draw what is pending for the values of slots."""
    if critic.stop == critic.start:
        return
    at = (slot[critic], np.arange(critic.start, critic.stop))
    noise = now.critic_noise[critic]
    now.v[at] += np.sqrt(np.maximum(noise - now.had[at], 0.0)) * rng.standard_normal(len(noise))
    now.had[at] = noise


def _settle_actor(
    now: _Episode, own: Mapping[str, Floats], slot: Ints, actor: slice, rng: np.random.Generator
) -> None:
    """Draw what is pending for the preferences of slots, and for their traces."""
    if actor.stop == actor.start:
        return
    at = (slice(None), slot[actor], np.arange(actor.start, actor.stop))
    x, y = _draw_pending(
        now.pending[at], now.before[at[1:]], own["actor_step"][actor], rng, now.u.shape[0]
    )
    now.actor_trace[at] += x
    now.u[at] += y
    now.pending[at] = 0.0
    now.before[at[1:]] = 0.0


def _draw_pending(
    pending: Floats, before: Floats, step: Floats, rng: np.random.Generator, actions: int
) -> tuple[Floats, Floats]:
    """What traces and preferences are given, (actions, ...) each."""
    trace_variance, covariance, variance = pending
    a = np.sqrt(trace_variance)
    b = np.where(a > 0.0, covariance / np.where(a > 0.0, a, 1.0), 0.0)
    c = np.sqrt(step**2 * np.maximum(variance - b**2, 0.0) + np.maximum(before, 0.0))
    first, second = rng.standard_normal((2, actions, *a.shape))
    return a * first, step * b * first + c * second


def _act(
    form: Form, exploration: Floats, u: Floats, uniform: Floats
) -> tuple[Ints, Floats, Floats]:
    """Action and rho (runs,), and the gradient (actions, runs), by the preferences `u`."""
    actions, column = len(u), np.arange(u.shape[1])
    best = np.argmax(u, axis=0)
    policy = np.exp(u - u[best, column])
    policy /= policy.sum(axis=0)
    if form.acting == "softmax":
        below = np.cumsum(policy, axis=0)[:-1]
        action = (uniform >= below).sum(axis=0)
        rho = np.ones_like(uniform)
    else:
        explores = uniform < exploration
        share = uniform / np.where(explores, exploration, 1.0)
        action = np.where(
            explores, np.minimum((share * actions).astype(np.int64), actions - 1), best
        )
        if form.law == "epsilon-greedy":
            policy = np.broadcast_to(exploration / actions, u.shape).copy()
            policy[best, column] += 1.0 - exploration
        rho = np.where(explores, policy[action, column] * actions, 1.0)
    gradient = -policy
    gradient[action, column] += 1.0
    return action, rho, gradient


def _norm_and_median(vectors: Floats) -> tuple[Floats, Floats]:
    """Of (entries, runs): norms, and medians of the absolute entries that are not 0."""
    sizes = np.sort(np.abs(vectors), axis=0)
    length, column = len(sizes), np.arange(sizes.shape[1])
    unit = np.where(sizes[-1] > 0.0, sizes[-1], 1.0)
    norm = unit * np.sqrt(np.einsum("sr,sr->r", sizes / unit, sizes / unit))
    count = (sizes > 0.0).sum(axis=0)
    first = length - count
    low = np.minimum(first + np.maximum(count - 1, 0) // 2, length - 1)
    high = np.minimum(first + count // 2, length - 1)
    median = (sizes[low, column] + sizes[high, column]) / 2.0
    return np.where(count > 0, norm, 0.0), np.where(count > 0, median, 0.0)


def _write_back(
    tables: _Tables,
    now: _Episode,
    over: NDArray[np.bool_],
    own: Mapping[str, Floats],
    rng: np.random.Generator,
    number: int,
    kept: tuple[Floats, Floats] | None,
) -> None:
    """The end of episodes: their slots go back into the tables, and traces are forgotten.

    What is pending for preferences is then a variance. If traces are wanted, all rows are read:
    traces and preferences are drawn together.
    """
    columns = np.flatnonzero(over)
    run = now.runs[columns]
    if kept is not None:
        _read_all(tables, now, own, columns, rng, number, kept)
        return
    step = own["actor_step"][columns]
    noise = now.actor_noise[columns] + step**2 * now.pending[2, 0, columns]
    tables.actor_noise[run], tables.critic_noise[run] = noise, now.critic_noise[columns]
    used = int(now.met.max()) + 1
    slots, which = np.nonzero(np.arange(1, used)[:, None] <= now.met[columns])
    slots += 1
    at = (slots, columns[which])
    to = (run[which], now.state[at])
    tables.u[to] = now.u[:, at[0], at[1]].T
    tables.v[to], tables.w[to] = now.v[at], now.w[at]
    tables.critic_had[to] = now.had[at]
    variance = step[which] ** 2 * now.pending[2][at] + now.before[at]
    tables.actor_had[to] = noise[which] - variance


def _read_all(
    tables: _Tables,
    now: _Episode,
    own: Mapping[str, Floats],
    columns: Ints,
    rng: np.random.Generator,
    number: int,
    kept: tuple[Floats, Floats],
) -> None:
    for column in columns:
        run, slots = now.runs[column], now.slot_of[column]
        met = slots > 0
        before = now.actor_noise[column] - tables.actor_had[run]
        before = np.where(met, now.before[slots, column], before)
        u = np.where(met, now.u[:, slots, column], tables.u[run].T)
        trace = now.actor_trace[:, slots, column]
        if tables.noisy_actor[run]:
            pending = now.pending[:, slots, column]
            x, y = _draw_pending(pending, before, own["actor_step"][column], rng, tables.actions)
            u, trace = u + y, trace + x
        tables.u[run] = u.T
        tables.actor_had[run], tables.actor_noise[run] = (
            now.actor_noise[column],
            now.actor_noise[column],
        )
        tables.critic_noise[run] = now.critic_noise[column]
        for table, values in ((tables.v, now.v), (tables.w, now.w), (tables.critic_had, now.had)):
            table[run] = np.where(met, values[slots, column], table[run])
        kept[0][run, number], kept[1][run, number] = trace.T.ravel(), now.trace[slots, column]
