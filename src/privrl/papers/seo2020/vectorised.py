"""Many runs of Algorithms 1 to 4 at once in NumPy, each with settings of its own: no compiling.

For searches and repetitions. Runs wait for nobody: each begins its next episode as soon as one is
over, and is taken out of the arrays after its last. The law is that of `algorithm`. A step moves
all states at once, but most of it by numbers that they have in common, so that what a state's row
holds is brought up to date when it is read:

- In a state that is not visited, the actor's trace and the critic's fade alike, e_u = c e_v. So all
  of u, v and w move by the sum of delta e_v since they were last read (the `PUSHED` of a state; v,
  if the critic is noised, by its `VALUED`): v by alpha_v times it, w by alpha_w, u by alpha_u c.
- w . e_v and e_v . e_v are carried along: a step changes them by the entries that it visits.
- Noise is drawn where it is read; `lazy_noise` has the proof. Pending for the preferences of a
  state are the variance E of the trace, the covariance X with u / alpha_u, and the variance U of
  u / alpha_u, which a step moves by

      E <- p^2 E + (rho sigma C)^2,  U <- U + 2 delta p X + delta^2 E,  X <- p X + delta E

  with p = rho gamma lambda and the new E on the right. At the end of an episode E and X are
  forgotten, with the traces. Pending for values is a sum for all states, less what a state has had.

An episode meets the states of one `_World.part` only. Their numbers are in arrays (numbers, runs,
width), in which the last place stands for a state that is not met.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from privrl.core.types import Floats
from privrl.envs.tabular import TabularMDP
from privrl.papers.seo2020.spec import Acting, Variant

Ints = NDArray[np.int64]

ORDER: tuple[Variant, ...] = ("none", "critic", "both", "actor")
"""Runs are in this order, so that those with a noised actor, or critic, are next to each other."""

DELTA = 1e-6
GAMMA = 0.99

PUSHED, VALUED, U, E, X, TRACE = range(6)
"""What is held of each state of an episode. Reading a row takes all but the trace, the end of an
episode the last three."""


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


Uniforms = Callable[[int, int], tuple[float, Floats]]
"""Of a run and an episode: where it starts, and (steps, 2) where an action leads and which one is
taken."""

Traces = Callable[[int, int, Floats, Floats], None]
"""Given a run, an episode, and the traces at its end: the actor's (S A,), the critic's (S,)."""


class _World:
    """The environment's tables; a pair of a state and an action, and its outcome, is one number."""

    def __init__(self, env: TabularMDP) -> None:
        given = env.default_params
        successors = np.asarray(given.successors)
        self.states, self.actions, self.outcomes = successors.shape
        self.successors = successors.ravel().astype(np.int64)
        self.rewards = np.asarray(given.rewards, np.float64).ravel()
        self.ends = np.asarray(given.terminated).ravel()
        self.cumulative = np.asarray(given.cumulative, np.float64)
        self.cumulative = self.cumulative.reshape(-1, self.outcomes)[:, :-1]
        self.start = np.asarray(given.start, np.float64)
        assert env.step_limit is not None
        self.horizon = env.step_limit
        source = np.repeat(np.arange(self.states), self.actions * self.outcomes)
        shape = (self.states, self.states)
        edges = coo_array((np.ones(len(source)), (source, self.successors)), shape)
        self.parts, part = connected_components(edges, directed=False)
        self.part = part.astype(np.int64)
        """Of each state; no episode leaves the part in which it starts."""

        self.place = np.zeros(self.states, np.int64)
        """Of each state in its part."""

        for one in range(self.parts):
            members = np.flatnonzero(self.part == one)
            self.place[members] = np.arange(len(members))
        self.width = int(self.place.max()) + 2


class _Runs:
    """Where runs stand: the first axis of arrays is that of runs, but for `moving` and `held`."""

    def __init__(self, world: _World, runs: Sequence[Run], name: Ints) -> None:
        count = len(runs)
        self.name = name
        names = ("actor_step", "critic_step", "correction_step", "lambda_", "exploration", "sigma")
        self.own = {one: np.array([getattr(run, one) for run in runs]) for one in names}
        self.own["decay"] = GAMMA * self.own["lambda_"]
        self.noisy_critic = np.array([run.variant in ("critic", "both") for run in runs])
        self.noisy_actor = np.array([run.variant in ("actor", "both") for run in runs])
        self.rows = np.zeros((count, world.states, 2 * world.actions + 3))
        """Of each state u, c, v, w, and how much of the values' noise it has had."""

        self.critic_noise = np.zeros(count)
        self.moving = np.zeros((6, count, world.width))
        self.held = np.zeros((3, count, world.parts, world.width))
        """The first three of `moving`, of the parts in which the episode is not."""

        # The state, the number of the episode and its step, and the sum of rewards.
        self.state, self.episode, self.time = np.zeros((3, count), np.int64)
        self.total = np.zeros(count)
        # w . e_v and e_v . e_v.
        self.product, self.square = np.zeros((2, count))
        self.uniforms = np.zeros((count, 0, 2))
        self._index(world)

    def _index(self, world: _World) -> None:
        count = len(self.name)
        self.column = np.arange(count)
        self.first_row, self.first = self.column * world.states, self.column * world.width
        self.actor, self.critic = _where_true(self.noisy_actor), _where_true(self.noisy_critic)
        self.any_actor, self.any_critic = (
            one.stop > one.start for one in (self.actor, self.critic)
        )
        self.plain = np.flatnonzero(~self.noisy_critic)
        self.scratch = np.empty((2, count, world.width))

    @property
    def table(self) -> Floats:
        """The rows of all runs, one below the other: a view."""
        return self.rows.reshape(-1, self.rows.shape[2])

    @property
    def numbers(self) -> Floats:
        """What is in `moving`, all runs side by side: a view."""
        return self.moving.reshape(len(self.moving), -1)

    def keep(self, world: _World, which: NDArray[np.bool_]) -> None:
        """Leave the other runs out."""
        self.own = {name: values[which] for name, values in self.own.items()}
        # An index could give another layout, in which `numbers` was a copy.
        self.moving, self.held = (one.compress(which, 1) for one in (self.moving, self.held))
        for name in (
            *("name", "rows", "noisy_actor", "noisy_critic", "critic_noise", "state", "episode"),
            *("time", "total", "product", "square", "uniforms"),
        ):
            setattr(self, name, getattr(self, name)[which])
        self._index(world)


def play(
    env: TabularMDP,
    runs: Sequence[Run],
    episodes: int,
    rng: np.random.Generator,
    form: Form = Form(),  # noqa: B008
    *,
    traces: Traces | None = None,
    uniforms: Uniforms | None = None,
) -> Played:
    """Play all runs.

    Args:
        traces: Is called at the end of each episode, if traces are wanted.
        uniforms: What the world and the actions draw, instead of `rng`.
    """
    order = np.array(sorted(range(len(runs)), key=lambda k: ORDER.index(runs[k].variant)))
    world = _World(env)
    now = _Runs(world, [runs[k] for k in order], order)
    tables = (len(runs), world.states)
    found = Played(
        np.zeros((len(runs), episodes)),
        np.zeros((len(runs), episodes), np.int64),
        np.zeros((*tables, world.actions)),
        *np.zeros((2, *tables)),
    )
    if uniforms is not None:
        now.uniforms = np.zeros((len(runs), world.horizon, 2))
    _begin(world, now, now.column, rng, uniforms)
    with np.errstate(all="ignore"):  # runs may diverge
        while len(now.name):
            if uniforms is None:
                where, which = rng.random((2, len(now.name)))
            else:
                where, which = now.uniforms[now.column, now.time].T
            reward, ended = _step(world, form, rng, now, where, which)
            now.total += reward
            now.time += 1
            over = np.flatnonzero(ended | (now.time == world.horizon))
            if len(over):
                finished = _end(world, now, over, rng, found, traces)
                if len(finished):
                    left = np.ones(len(now.name), bool)
                    left[finished] = False
                    over = (np.cumsum(left) - 1)[over[left[over]]]
                    now.keep(world, left)
                _begin(world, now, over, rng, uniforms)
    return found


def _begin(
    world: _World,
    now: _Runs,
    which: Ints,
    rng: np.random.Generator,
    uniforms: Uniforms | None,
) -> None:
    """New episodes."""
    first = rng.random(len(which))
    if uniforms is not None:
        for k, one in enumerate(which):
            first[k], steps = uniforms(int(now.name[one]), int(now.episode[one]))
            now.uniforms[one, : len(steps)] = steps
    state = np.searchsorted(world.start, first, side="right")
    now.state[which], now.time[which], now.total[which] = state, 0, 0.0
    now.product[which] = now.square[which] = 0.0
    now.moving[:E, which] = now.held[:, which, world.part[state]]
    now.moving[E:, which] = 0.0
    now.moving[U, which, -1] = 0.0


def _end(
    world: _World,
    now: _Runs,
    over: Ints,
    rng: np.random.Generator,
    found: Played,
    traces: Traces | None,
) -> Ints:
    """The end of episodes, and which of the runs have played their last."""
    now.held[U, over] += now.moving[U, over, -1][:, None, None]
    now.held[:, over, world.part[now.state[over]]] = now.moving[:E, over]
    name, number = now.name[over], now.episode[over]
    found.returns[name, number], found.lengths[name, number] = now.total[over], now.time[over]
    now.episode[over] += 1
    finished: Ints = over[now.episode[over] == found.returns.shape[1]]
    if traces is not None:
        for one in zip(name, number, *_read(world, now, over, rng), strict=True):
            traces(*one)
    elif len(finished):
        _read(world, now, finished, rng)
    if len(finished):
        name, a = now.name[finished], world.actions
        u, _, rest = np.split(now.rows[finished], (a, 2 * a), axis=2)
        v, w, had = np.moveaxis(rest, 2, 0)
        std = np.sqrt(np.maximum(now.critic_noise[finished, None] - had, 0.0))
        found.actor[name], found.correction[name] = u, w
        found.critic[name] = v + std * rng.standard_normal(v.shape)
    return finished


def _read(
    world: _World, now: _Runs, which: Ints, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Bring all rows up to date at the end of an episode, but for noise of values.

    Returns the traces: (runs, S A) and (runs, S).
    """
    part, a = world.part[now.state[which]], world.actions
    moving = np.zeros((6, len(which), world.parts, world.width))
    moving[:E] = now.held[:, which]
    moving[E:TRACE] = now.moving[E:TRACE, which, -1][:, :, None, None]
    moving[E:, np.arange(len(which)), part] = now.moving[E:, which]
    now.held[:, which] = 0.0
    numbers, rows = moving[:, :, world.part, world.place], now.rows[which]
    traces = _update(now, which[:, None], rows, numbers)
    x, y = _draw_pending(numbers, now.own["actor_step"][which, None], rng, a)
    rows[..., :a] += y
    now.rows[which] = rows
    traces += x
    return traces.reshape(len(which), -1), numbers[TRACE]


def _update(now: _Runs, which: Ints | slice, rows: Floats, numbers: Floats) -> Floats:
    """Bring rows up to date in place, but for noise, and return the actor's traces."""
    a = (rows.shape[-1] - 3) // 2
    pushed, factors = numbers[PUSHED], rows[..., a : 2 * a]
    valued = np.where(now.noisy_critic[which], numbers[VALUED], pushed)
    rows[..., :a] += (now.own["actor_step"][which] * pushed)[..., None] * factors
    rows[..., -3] += now.own["critic_step"][which] * valued
    rows[..., -2] += now.own["correction_step"][which] * pushed
    traces: Floats = factors * numbers[TRACE][..., None]
    return traces


def _visit(
    form: Form, rng: np.random.Generator, now: _Runs, row: Ints, place: Ints
) -> tuple[Floats, Floats]:
    """What the states of runs hold, and the actor's traces there, with all noise drawn."""
    numbers, table = now.numbers, now.table
    own, here = numbers.take(place, axis=1), table.take(row, axis=0)
    traces = _update(now, slice(None), here, own)
    if form.rows == "all":
        if now.any_critic:
            critic, noise = now.critic, now.critic_noise[now.critic]
            here[critic, -3] += _missed(noise, here[critic, -1], rng)
            here[critic, -1] = noise
        if now.any_actor:
            step = now.own["actor_step"][now.actor]
            x, y = _draw_pending(own[:, now.actor], step, rng, traces.shape[1])
            traces[now.actor] += x
            here[now.actor, : traces.shape[1]] += y
    numbers[:TRACE, place] = 0.0
    table[row] = here
    return here, traces


def _value(form: Form, rng: np.random.Generator, now: _Runs, row: Ints, place: Ints) -> Floats:
    """The values of states, with their noise drawn."""
    table, numbers = now.table, now.numbers
    pushed = numbers[PUSHED].take(place)
    if now.any_critic:
        pushed[now.critic] = numbers[VALUED].take(place[now.critic])
        if form.rows == "all":
            noise, at = now.critic_noise[now.critic], row[now.critic]
            table[at, -3] += _missed(noise, table[at, -1], rng)
            table[at, -1] = noise
    values: Floats = table[row, -3] + now.own["critic_step"] * pushed
    return values


def _missed(noise: Floats, had: Floats, rng: np.random.Generator) -> Floats:
    """The noise of values that rows have not had."""
    drawn: Floats = np.sqrt(np.maximum(noise - had, 0.0)) * rng.standard_normal(len(noise))
    return drawn


def _draw_pending(
    numbers: Floats, step: Floats, rng: np.random.Generator, actions: int
) -> tuple[Floats, Floats]:
    """What traces and preferences are given, (..., actions) each."""
    a = np.sqrt(numbers[E])
    b = _ratio(numbers[X], a)
    c = step * np.sqrt(np.maximum(numbers[U] - b**2, 0.0))
    first, second = rng.standard_normal((2, *a.shape, actions))
    return a[..., None] * first, (step * b)[..., None] * first + c[..., None] * second


def _step(
    world: _World,
    form: Form,
    rng: np.random.Generator,
    now: _Runs,
    where: Floats,
    which: Floats,
) -> tuple[Floats, NDArray[np.bool_]]:
    """One step of all runs, in the order of `algorithm`."""
    own, actor, critic, a = now.own, now.actor, now.critic, world.actions
    row, place = now.first_row + now.state, now.first + world.place[now.state]
    here, actor_trace = _visit(form, rng, now, row, place)
    action, rho, gradient = _act(form, own["exploration"], here[:, :a].T, which)
    pair = now.state * a + action
    if world.outcomes > 1:
        outcome = (where[:, None] >= world.cumulative[pair]).sum(axis=1)
        pair = pair * world.outcomes + outcome
    reward, ended, now.state = world.rewards[pair], world.ends[pair], world.successors[pair]
    next_row, next_place = now.first_row + now.state, now.first + world.place[now.state]
    goes_on = np.where(ended, 0.0, GAMMA)
    delta = reward + goes_on * _value(form, rng, now, next_row, next_place) - here[:, -3]
    table, trace = now.table, now.moving[TRACE]

    # The critic.
    fade, before = rho * own["decay"], trace.reshape(-1).take(place)
    trace *= fade[:, None]
    entry = fade * before + rho
    trace.reshape(-1)[place] = entry
    w = here[:, -2]
    product = fade * now.product + rho * w
    now.square = fade * (fade * now.square + 2.0 * rho * before) + rho**2
    now.product = product + own["correction_step"] * (delta * now.square - w * entry)
    table[row, -2] = w - own["correction_step"] * w
    amount = goes_on * (1.0 - own["lambda_"]) * product
    moved = np.multiply(trace, delta[:, None], out=now.scratch[0])
    now.moving[PUSHED] += moved
    if len(now.plain):
        table[next_row[now.plain], -3] -= (own["critic_step"] * amount)[now.plain]
    if now.any_critic:
        moved.reshape(-1)[next_place] -= amount
        norm, bound = _norm_and_median(moved[critic])
        moved[critic] *= _ratio(bound, norm)[:, None]
        now.moving[VALUED, critic] += moved[critic]
        std = own["critic_step"][critic] * own["sigma"][critic] * bound
        if form.rows == "all":
            now.critic_noise[critic] += std**2
        else:
            table[row[critic], -3] += std * rng.standard_normal(len(std))

    # The actor.
    signal = gradient.T
    if now.any_actor:
        noised = signal[actor]
        norm, bound = _norm_and_median(noised)
        noised *= _ratio(bound, norm)[:, None]
        std = own["sigma"][actor] * bound
        if form.rows == "all":
            _spread(now, fade[actor], delta[actor], rho[actor] * std)
        else:
            noised += std[:, None] * rng.standard_normal(noised.shape)
        signal[actor] = noised
    actor_trace = fade[:, None] * actor_trace + rho[:, None] * signal
    table[row, a : 2 * a] = _ratio(actor_trace, entry[:, None])
    return reward, ended


def _spread(now: _Runs, fade: Floats, delta: Floats, std: Floats) -> None:
    """What a step leaves pending in all rows of runs with a noised actor."""
    variance, trace_variance, covariance = now.moving[U:TRACE, now.actor]
    change, twice = now.scratch[:, now.actor]
    trace_variance *= (fade**2)[:, None]
    trace_variance += (std**2)[:, None]
    covariance *= fade[:, None]
    np.multiply(covariance, (2.0 * delta)[:, None], out=twice)
    variance += twice
    np.multiply(trace_variance, delta[:, None], out=change)
    covariance += change
    change *= delta[:, None]
    variance += change


def _ratio(of: Floats, to: Floats) -> Floats:
    """0 where the second is not above 0."""
    return np.where(to > 0.0, of / to, 0.0)


def _where_true(flags: NDArray[np.bool_]) -> slice:
    """The places of flags that are next to each other, by the order of runs."""
    found = np.flatnonzero(flags)
    return slice(int(found[0]), int(found[-1]) + 1) if len(found) else slice(0, 0)


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
    """Of (runs, entries): norms, and medians of the absolute entries that are not 0."""
    sizes = np.abs(vectors)
    sizes.sort(axis=1)
    squares = np.einsum("rs,rs->r", sizes, sizes)
    norm = np.sqrt(squares)
    extreme = np.flatnonzero(~((squares > 1e-200) & (squares < np.inf)))
    if len(extreme):  # their squares may underflow or overflow
        largest = sizes[extreme, -1:]
        scaled = sizes[extreme] / np.where(largest > 0.0, largest, 1.0)
        norm[extreme] = largest[:, 0] * np.sqrt(np.einsum("rs,rs->r", scaled, scaled))
    middle = sizes.shape[1] + (sizes > 0.0).argmax(axis=1)
    start = np.arange(0, sizes.size, sizes.shape[1])
    flat = sizes.reshape(-1)
    return norm, (flat.take(start + (middle - 1) // 2) + flat.take(start + middle // 2)) / 2.0
