"""Algorithm 1 of Wang and Hegde (2019) compiled, for many runs side by side.

`privrl.papers.wang2019.algorithm` says what it does, line by line, and what the paper leaves open;
tests hold the two equal. Replicas are runs, each with its own key, sigma, beta, alpha and gamma.

The path is drawn as states come up, with the exact law (`privrl.papers.wang2019.path`): after a
reset at all states so far in one pass, then at new ones given their neighbours. Between resets and
copies of the target network, the number that a sample's prediction is to meet does not change, so
it is kept with the sample and a minibatch is one gather.

Four random streams, for the world, the actions, the minibatches and the noise. All in 32 bits,
noise too, since there is nothing to certify.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike

from privrl.control.replicas import run_in_parts
from privrl.control.rollouts import Env
from privrl.core import checks, resources
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs.base import Box, Environment
from privrl.papers.wang2019 import draws
from privrl.papers.wang2019 import path as paths
from privrl.papers.wang2019.algorithm import EXPLORATION, RMSPROP
from privrl.papers.wang2019.learner import FunctionalQ
from privrl.papers.wang2019.path import Path

Tree = TypeVar("Tree")

# So many replicas are compiled together; more are further calls of the same, on as many cores as
# there are. Larger arrays would not stay in a core's cache.
_REPLICAS = 16
# Settings that compiled code does not see: numbers that each replica has for itself, and a promise.
DYNAMIC_SETTINGS: dict[str, Any] = {
    "sigma": 0.0,
    "rate": 1.0,
    "step": 1.0,
    "gamma": 0.0,
    "epsilon": 1.0,
    "delta": 0.5,
}


# --- the network ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StaticConfig:
    """All that compiled code must know beforehand."""

    learner: FunctionalQ
    actions: int
    horizon: int
    low: float
    high: float

    @property
    def paths(self) -> int:
        """One for each network."""
        return 1 if self.learner.target is None else 2

    @property
    def window(self) -> int:
        """How many points may wait to be merged: those of an episode, and the next one's first."""
        return self.horizon + 2

    @property
    def episodes(self) -> int:
        """How many there are; the last is played to its end, though T may come before."""
        return -(-self.learner.samples // self.horizon)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Of the weights, layer by layer."""
        sizes = (1, *self.learner.hidden, self.actions)
        return tuple(pairwise(sizes))

    def layers(self, weights: jax.Array) -> Iterator[tuple[jax.Array, jax.Array]]:
        """(replicas, inputs, outputs) and (replicas, outputs) of each layer, from (replicas,
        all)."""
        at = 0
        for rows, columns in self.shapes:
            matrix = weights[:, at : at + rows * columns].reshape(-1, rows, columns)
            at += rows * columns
            yield matrix, weights[:, at : at + columns]
            at += columns

    def scale_observations(self, observations: jax.Array) -> jax.Array:
        """(..., 1) observations as numbers in [0, 1]."""
        share = (observations[..., 0] - self.low) / (self.high - self.low)
        return jnp.clip(share, 0.0, 1.0).astype(jnp.float32)


def _matmul(weights: jax.Array, rows: jax.Array) -> jax.Array:
    """The sum over i of weights[i, j] rows[i], for each j: (replicas, j, n).

    Points come last, so that they fill vector registers; a dot of one or two rows does not pay.
    """
    if weights.shape[1] > 2:
        return jnp.einsum("lij,lin->ljn", weights, rows)
    terms = [weights[:, i, :, None] * rows[:, i, None] for i in range(weights.shape[1])]
    return sum(terms[1:], terms[0])


def forward(form: StaticConfig, weights: jax.Array, x: jax.Array) -> list[jax.Array]:
    """What goes into each layer, (replicas, units, n), and last Q, (replicas, actions, n)."""
    kept = [x[:, None]]
    for number, (matrix, bias) in enumerate(form.layers(weights)):
        out = _matmul(matrix, kept[-1]) + bias[:, :, None]
        kept.append(out if number == len(form.shapes) - 1 else jnp.maximum(out, 0.0))
    return kept


def backward(
    form: StaticConfig, weights: jax.Array, kept: list[jax.Array], errors: jax.Array
) -> jax.Array:
    """The sum over points of errors' dQ / dweights, (replicas, all), by hand: errors like Q."""
    found: list[jax.Array] = []
    replicas = weights.shape[0]
    for number, (matrix, _) in reversed(list(enumerate(form.layers(weights)))):
        slopes = jnp.einsum("lin,ljn->lij", kept[number], errors)
        found = [slopes.reshape(replicas, -1), jnp.sum(errors, axis=2), *found]
        if number > 0:
            back = _matmul(jnp.swapaxes(matrix, 1, 2), errors)
            errors = jnp.where(kept[number] > 0.0, back, 0.0)
    return jnp.concatenate(found, axis=1)


def descend(
    learner: Any, weights: jax.Array, squares: jax.Array, gradient: jax.Array, step: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Weights, and running means of squared gradients, after a step against this gradient."""
    if learner.clamp is not None:
        # Single precision has no larger numbers.
        limit = min(learner.clamp, float(np.finfo(np.float32).max))
        gradient = jnp.clip(gradient, -limit, limit)
    if learner.optimiser == "rmsprop":
        decay, tiny = RMSPROP
        squares = decay * squares + (1.0 - decay) * gradient**2
        gradient = gradient / (jnp.sqrt(squares) + tiny)
    return weights - step * gradient, squares


# --- a run ----------------------------------------------------------------------------------------


class FunctionalQState(NamedTuple):
    """Where runs stand; replicas first. Sample t is in row t, and its state in slot t + t //
    horizon of the path, followed by the state it led to."""

    weights: jax.Array
    """(replicas, all)."""

    squares: jax.Array
    """(replicas, all): running means of squared gradients, for RMSprop."""

    target: jax.Array
    """(replicas, all): weights of the network that y_t comes from, if it is another."""

    target_values: jax.Array
    """(replicas, actions, slots): what that network gives, without noise; no slots without it."""

    late_values: jax.Array
    """(replicas, actions, window): the same, of slots that wait to be merged."""

    path: Path
    rows: jax.Array
    """(replicas, samples, fields): see `Row`."""

    place: Any
    """The environments' states, (replicas,)."""

    x: jax.Array
    """(replicas,): the state, scaled."""

    here: jax.Array
    """(replicas, components): the path there."""

    time: jax.Array
    """(replicas,): samples so far, the same for all."""

    world: jax.Array
    actor: jax.Array
    replay: jax.Array
    noise: jax.Array
    resets: jax.Array
    """(replicas,) keys of the random streams, the last two for noise: a state tells what will
    come."""

    numbers: dict[str, jax.Array]


class Row(NamedTuple):
    """A sample as it is kept. The last two are there only if one network does it all."""

    x: jax.Array
    action: jax.Array
    aim: jax.Array
    """What Q(s, a) is to meet, the noise on both sides taken into account: y_t - g(s_t). With one
    network, the part of it that does not change with the weights, r_t - g(s_t)."""

    goes_on: jax.Array
    """gamma, or 0 at an end."""

    reward: jax.Array
    after: jax.Array | None
    """s_{t+1}."""

    ahead: jax.Array | None
    """g(s_{t+1}), an action each."""


def _pack_row(row: Row) -> jax.Array:
    """(replicas, ..., fields)."""
    numbers = [row.x, row.action, row.aim, row.goes_on, row.reward]
    if row.after is None or row.ahead is None:
        return jnp.stack(numbers, axis=-1)
    return jnp.concatenate([jnp.stack([*numbers, row.after], axis=-1), row.ahead], axis=-1)


def _unpack_row(form: StaticConfig, rows: jax.Array) -> Row:
    numbers = [rows[..., field] for field in range(5)]
    return Row(*numbers, *((rows[..., 5], rows[..., 6:]) if form.paths == 1 else (None, None)))


class Randomness(NamedTuple):
    """All randomness of an episode, drawn beforehand."""

    begun: Any
    """A fresh state of the environment, (replicas,)."""

    prob: Any
    """(steps, replicas): where actions lead."""

    explores: jax.Array
    """(steps, replicas), from [0, 1): below the rate of exploration, any action is taken."""

    any_action: jax.Array
    """(steps, replicas), uniform."""

    picks: jax.Array
    """(steps, replicas, batch): which samples an update takes."""

    normals: jax.Array
    """(1 + steps, replicas, components): for the first state, and where each action leads."""


def draw_randomness(
    form: StaticConfig, env: Environment[Any, Any], state: FunctionalQState
) -> Randomness:
    """The randomness of the coming episode, in each replica from its keys alone.

    In few calls, because each takes most of a second to compile.
    """
    steps, components = form.horizon, form.paths * form.actions
    episode = state.time[0] // steps
    words = max(2 * (1 + steps), (1 + steps) * components)

    def one(keys: jax.Array) -> Randomness:
        own = jax.vmap(jax.random.fold_in, (0, None))(keys, episode)
        bits = jax.vmap(partial(draws.random_words, count=words))(own[:3])
        each = jax.random.wrap_key_data(bits[0, : 2 * (1 + steps)].reshape(1 + steps, 2))
        number = episode * steps + 1 + jnp.arange(steps, dtype=jnp.int32)
        return Randomness(
            env.reset(each[0])[0],
            jax.vmap(env._draw)(each[1:]),
            draws.uniform(bits[1, :steps]),
            draws.integers_below(bits[1, steps : 2 * steps], form.actions),
            _minibatch_indices(form.learner, own[3], number),
            draws.normal(bits[2, : (1 + steps) * components].reshape(1 + steps, components)),
        )

    # Axes in the places of arrays: `vmap` takes a tree of them, of the same shape as what it gives.
    replicas_second = Randomness(0, 1, 1, 1, 1, 1)  # type: ignore[arg-type]
    keys = jnp.stack([state.world, state.actor, state.noise, state.replay], axis=1)
    found: Randomness = jax.vmap(one, out_axes=replicas_second)(keys)
    return found


def _minibatch_indices(learner: FunctionalQ, key: jax.Array, number: jax.Array) -> jax.Array:
    """(steps, batch): the samples of an update when there are `number` (steps,) of them."""
    if learner.replay == 0:
        last = number[:, None] - learner.batch + jnp.arange(learner.batch, dtype=jnp.int32)
        return jnp.maximum(last, 0)
    there = jnp.minimum(number, learner.replay)
    return draws.subsets(key, there, learner.batch) + (number - there)[:, None]


def _run_if(due: jax.Array, work: Callable[[Tree], Tree], now: Tree) -> Tree:
    """`work` if it is due. A loop of at most one round, because a condition would copy `now`."""

    def body(loop: tuple[jax.Array, Tree]) -> tuple[jax.Array, Tree]:
        return jnp.zeros((), bool), work(loop[1])

    done: Tree = lax.while_loop(lambda loop: loop[0], body, (due, now))[1]
    return done


def _merge_and_refresh(
    form: StaticConfig, resets: jax.Array, copies: jax.Array, state: FunctionalQState
) -> FunctionalQState:
    """With nothing that waits; with a fresh path or a new second network, where they are due."""
    at, kept = state.path.merged[0], state.target_values
    if form.paths == 2:
        kept = lax.dynamic_update_slice_in_dim(kept, state.late_values, at, axis=2)
    state = state._replace(path=paths.merge(state.path), target_values=kept)
    state = _run_if(resets, partial(_redraw_path, form), state)
    if form.paths == 2:
        state = _run_if(copies, partial(_copy_target, form), state)
    return _run_if(resets | copies, partial(_recompute_targets, form), state)


def _redraw_path(form: StaticConfig, state: FunctionalQState) -> FunctionalQState:
    """With a fresh path, at all states so far."""
    sigma, rate = state.numbers["sigma"], state.numbers["rate"]
    keys = jax.vmap(jax.random.fold_in, (0, None))(state.resets, state.time[0])
    path = paths.redraw(state.path, keys, sigma, rate, form.actions, form.learner.edge)
    last = path.merged[0] - 1
    here = lax.dynamic_index_in_dim(path.values, last, 1, keepdims=False)
    return state._replace(path=path, here=here)


def _copy_target(form: StaticConfig, state: FunctionalQState) -> FunctionalQState:
    """The second network becomes what the first is; it is evaluated at all states so far."""
    points = jnp.where(jnp.isfinite(state.path.points), state.path.points, 0.0)
    found = forward(form, state.weights, points)[-1]
    return state._replace(target=state.weights, target_values=found)


def _recompute_targets(form: StaticConfig, state: FunctionalQState) -> FunctionalQState:
    """With the aims of all samples anew."""
    replicas, size = state.rows.shape[:2]
    replica, number = jnp.arange(replicas)[:, None], jnp.arange(size, dtype=jnp.int32)
    slot = number + number // form.horizon
    row = _unpack_row(form, state.rows)
    values = state.path.values
    noise = values.at[replica, slot, row.action.astype(jnp.int32)].get(mode="promise_in_bounds")
    row = row._replace(aim=row.reward - noise)
    if form.paths == 1:
        row = row._replace(ahead=values[:, slot + 1])
    else:
        after = state.target_values[:, :, slot + 1] + jnp.moveaxis(
            values[:, slot + 1, form.actions :], 2, 1
        )
        row = row._replace(aim=row.aim + row.goes_on * jnp.max(after, axis=1))
    known = (number < state.time[0])[:, None]
    return state._replace(rows=jnp.where(known, _pack_row(row), state.rows))


def _add_state(
    form: StaticConfig, state: FunctionalQState, x: jax.Array, normals: jax.Array
) -> FunctionalQState:
    """At one more state, with the path there, and the second network's values."""
    sigma, rate, waits = state.numbers["sigma"], state.numbers["rate"], state.path.waits[0]
    path, here = paths.insert(state.path, x, normals, sigma, rate, form.learner.edge)
    late = state.late_values
    if form.paths == 2:
        there = forward(form, state.target, x[:, None])[-1]
        late = lax.dynamic_update_slice_in_dim(late, there, waits, axis=2)
    return state._replace(path=path, late_values=late, x=x, here=here)


def _take_sample(
    form: StaticConfig, env: Environment[Any, Any], state: FunctionalQState, prob: Randomness
) -> tuple[FunctionalQState, jax.Array]:
    """One sample and what is learned at it."""
    learner, numbers, time = form.learner, state.numbers, state.time[0]
    resets = copies = (time % learner.period == 0) & (time > 0)
    if learner.target is not None:
        copies = (time % learner.target == 0) & (time > 0)
    # Before the next check there is room for this sample's point and a new episode's first.
    settles = resets | copies | (state.path.waits[0] > form.horizon)
    state = _run_if(settles, partial(_merge_and_refresh, form, resets, copies), state)

    x, noise = state.x, state.here[:, : form.actions]
    noised = forward(form, state.weights, x[:, None])[-1][:, :, 0] + noise
    action = jnp.argmax(noised, axis=1).astype(jnp.int32)
    if learner.acting == "epsilon-greedy":
        first, last, decay = EXPLORATION
        share = (first - last) * jnp.exp(-time / decay)
        action = jnp.where(prob.explores < last + share, prob.any_action, action)
    step = jax.vmap(env._advance, (0, 0, 0, None))(
        prob.prob, state.place, action, env.default_params
    )
    reward = step.reward.astype(jnp.float32)
    ends = step.terminated | step.truncated if learner.terminal else step.terminated
    goes_on = jnp.where(ends, 0.0, numbers["gamma"])
    after = form.scale_observations(step.observation)
    slot = state.path.waits[0]
    state = _add_state(form, state._replace(place=step.state), after, prob.normals)

    taken = jnp.arange(form.actions) == action[:, None]
    aim = reward - jnp.sum(jnp.where(taken, noise, 0.0), axis=1)
    row = Row(x, action.astype(jnp.float32), aim, goes_on, reward, None, None)
    if form.paths == 1:
        row = row._replace(after=after, ahead=state.here)
    else:
        there = lax.dynamic_index_in_dim(state.late_values, slot, 2, keepdims=False)
        best = jnp.max(there + state.here[:, form.actions :], axis=1)
        row = row._replace(aim=aim + goes_on * best)
    state = state._replace(
        rows=lax.dynamic_update_slice_in_dim(state.rows, _pack_row(row)[:, None], time, axis=1),
        time=state.time + 1,
    )
    number = time + 1
    due = number >= learner.batch if learner.updates == "step" else number % learner.batch == 0
    due = due & (number <= learner.samples)
    weights, squares = lax.cond(
        due,
        lambda: update(form, state, prob.picks),
        lambda: (state.weights, state.squares),
    )
    return state._replace(weights=weights, squares=squares), reward


def update(
    form: StaticConfig, state: FunctionalQState, picks: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Weights, and running means of squares, after one update with those samples (replicas,
    batch)."""
    learner, weights = form.learner, state.weights
    replica = jnp.arange(picks.shape[0])[:, None]
    found = state.rows.at[replica, picks].get(mode="promise_in_bounds")
    row = _unpack_row(form, found)
    aim = row.aim
    if row.after is not None and row.ahead is not None:
        ahead = forward(form, weights, row.after)[-1] + jnp.moveaxis(row.ahead, 2, 1)
        aim = aim + row.goes_on * jnp.max(ahead, axis=1)
    kept = forward(form, weights, row.x)
    taken = jnp.arange(form.actions)[:, None] == row.action[:, None]
    error = jnp.sum(jnp.where(taken, kept[-1], 0.0), axis=1) - aim
    if learner.loss == "huber":
        error = jnp.clip(error, -1.0, 1.0)
    errors = jnp.where(taken, error[:, None] / learner.batch, 0.0)
    gradient = backward(form, weights, kept, errors)
    return descend(learner, weights, state.squares, gradient, state.numbers["step"][:, None])


@partial(jax.jit, static_argnames=("form", "env"), donate_argnames="state")
def _episode(
    form: StaticConfig, env: Environment[Any, Any], state: FunctionalQState
) -> tuple[FunctionalQState, jax.Array]:
    """A round of samples, and the sum of its rewards (replicas,)."""
    prob = draw_randomness(form, env, state)
    state = state._replace(place=prob.begun)
    observed = jax.vmap(env._observe, (0, None))(state.place.inner, env.default_params)
    state = _add_state(form, state, form.scale_observations(observed), prob.normals[0])
    steps = prob._replace(begun=None, normals=prob.normals[1:])
    state, rewards = lax.scan(partial(_take_sample, form, env), state, steps)
    return state, jnp.sum(rewards, axis=0)


# --- many runs ------------------------------------------------------------------------------------


class FunctionalQProgram:
    """The algorithm as a program: many runs side by side, each with its own key and settings.

    An episode is a round of `env.step_limit` samples; there are no more than T samples.
    """

    sweepable: tuple[str, ...] = FunctionalQ.SWEEPABLE

    def __init__(self, learner: FunctionalQ, env: Env) -> None:
        if not isinstance(env, Environment):
            raise InputError("Algorithm 1 needs an environment that compiles, such as Interval.")
        kind = env.observation
        if not isinstance(kind, Box) or len(kind.low) != 1:
            raise InputError(
                f"Algorithm 1 is for environments where one number is observed, such as Interval, "
                f"and {env.name} is not one."
            )
        if env.step_limit is None:
            raise InputError(f"{env.name} sets no limit to an episode: give it a step_limit.")
        if not (math.isfinite(kind.low[0]) and kind.low[0] < kind.high[0] < math.inf):
            raise InputError(f"Algorithm 1 needs finite bounds of what {env.name} shows.")
        self.learner = learner
        self.env = env
        seen = replace(learner, **DYNAMIC_SETTINGS)
        self.form = StaticConfig(seen, env.num_actions, env.step_limit, kind.low[0], kind.high[0])

    def init(
        self, keys: jax.Array, settings: Mapping[str, jax.Array] | None = None
    ) -> FunctionalQState:
        """Before the first episode of each of the `keys` (replicas,)."""
        replicas, form = keys.shape[0], self.form
        # A row of the sample, its place in the path, and what each network and noise are there.
        each = 4.0 * (10 + (form.paths + 1) * form.actions)
        what, remedy = f"{self.learner.samples:,} samples", "use fewer samples, or fewer replicas"
        resources.check_memory(each * replicas * self.learner.samples, what, remedy)
        with jax.enable_x64(False):
            numbers = self.learner.replica_numbers(settings, replicas)
            begun: FunctionalQState = _initial_state(form, self.env, keys, numbers)
            return begun

    def advance(
        self, state: FunctionalQState, episodes: int
    ) -> tuple[FunctionalQState, dict[str, jax.Array]]:
        """Play `episodes` more: "return" and "length", (replicas, episodes) each."""
        number = checks.count("episodes", episodes)
        played = int(state.time[0]) // self.form.horizon
        if played + number > self.form.episodes:
            raise InputError(
                f"{self.learner.samples} samples are {self.form.episodes} episodes: "
                "say more samples to play on."
            )
        with jax.enable_x64(False):
            after, returns = run_in_parts(_episode, (self.form, self.env), state, number, _REPLICAS)
            length = jnp.full(returns.shape, self.form.horizon, jnp.int32)
        return after, {"return": returns, "length": length}

    def values(self, state: FunctionalQState, states: ArrayLike) -> Floats:
        """Q_theta without noise, (replicas, n, actions), at observations (n,) or (n, 1)."""
        points = np.asarray(states, np.float64).reshape(-1, 1)
        with jax.enable_x64(False):
            x = self.form.scale_observations(jnp.asarray(points, jnp.float32))
            every = jnp.broadcast_to(x, (state.weights.shape[0], len(points)))
            found = forward(self.form, state.weights, every)[-1]
        return np.asarray(np.moveaxis(np.asarray(found), 1, 2), np.float64)


@partial(jax.jit, static_argnames=("form", "env"))
def _initial_state(
    form: StaticConfig, env: Environment[Any, Any], keys: jax.Array, numbers: dict[str, jax.Array]
) -> FunctionalQState:
    replicas = keys.shape[0]
    streams = jax.vmap(lambda key: jax.random.split(key, 6))(keys)

    def init_weights(key: jax.Array) -> jax.Array:
        parts = []
        for rows, columns in form.shapes:
            key, own = jax.random.split(key)
            size = rows * columns + columns
            bound = 1.0 / math.sqrt(rows)
            parts.append(jax.random.uniform(own, (size,), jnp.float32, -bound, bound))
        return jnp.concatenate(parts)

    weights = jax.vmap(init_weights)(streams[:, 0])
    components = form.paths * form.actions
    most = form.episodes * (form.horizon + 1)
    path = paths.init(replicas, most, form.window, components)
    slots = path.points.shape[1] if form.paths == 2 else 0
    fields = 5 if form.paths == 2 else 6 + form.actions
    return FunctionalQState(
        weights=weights,
        squares=jnp.zeros_like(weights),
        target=weights if form.paths == 2 else weights[:, :0],
        target_values=jnp.zeros((replicas, form.actions, slots), jnp.float32),
        late_values=jnp.zeros((replicas, form.actions, min(slots, form.window)), jnp.float32),
        path=path,
        rows=jnp.zeros((replicas, form.episodes * form.horizon, fields), jnp.float32),
        place=jax.vmap(lambda key: env.reset(key)[0])(streams[:, 1]),
        x=jnp.zeros((replicas,), jnp.float32),
        here=jnp.zeros((replicas, components), jnp.float32),
        time=jnp.zeros((replicas,), jnp.int32),
        world=streams[:, 1],
        actor=streams[:, 2],
        replay=streams[:, 3],
        noise=streams[:, 4],
        resets=streams[:, 5],
        numbers=numbers,
    )


class FunctionalQRuns(NamedTuple):
    """What `train` gives back, of each replica. Nothing here is certified."""

    state: FunctionalQState
    returns: Floats
    """(replicas, episodes), undiscounted."""


def train(
    keys: jax.Array,
    learner: FunctionalQ,
    env: Environment[Any, Any],
    settings: Mapping[str, jax.Array] | None = None,
) -> FunctionalQRuns:
    """Learn for all T samples, a replica for each of the `keys` (replicas,)."""
    program = FunctionalQProgram(learner, env)
    state, seen = program.advance(program.init(keys, settings), program.form.episodes)
    return FunctionalQRuns(state, np.asarray(seen["return"], np.float64))
