"""PP-CPT-RL of Rajabi et al. (2022) compiled, for many runs side by side.

`privrl.papers.rajabi2022.algorithm` says what it does, line by line, and what the paper leaves
open; tests hold the two equal. Replicas are runs, each with its own key, sigma, beta, alpha and
gamma.

Four random streams, for the world, the actions, the minibatches and the noise. All in 32 bits,
noise too, since there is nothing to certify.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike

from privrl.control.heads import Layers
from privrl.control.replicas import run_in_parts
from privrl.control.rollouts import Env
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs.base import Box, Environment
from privrl.papers.rajabi2022.field import Field
from privrl.papers.rajabi2022.learner import ProspectQ
from privrl.papers.rajabi2022.spec import Acting
from privrl.papers.wang2019 import draws
from privrl.papers.wang2019.fast import DYNAMIC_SETTINGS, descend

# So many replicas are compiled together; more are further calls of the same, on as many cores as
# there are.
_REPLICAS = 20
_DYNAMIC_SETTINGS = {
    **DYNAMIC_SETTINGS,
    "lipschitz": 1.0,
    "largest_td_error": 1.0,
    "iterations": 1,
}


@dataclass(frozen=True)
class StaticConfig:
    """All that compiled code must know beforehand."""

    learner: ProspectQ
    actions: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    kept: int
    """How many steps are remembered."""

    @property
    def head(self) -> Layers:
        """The network, of scaled states."""
        return Layers((len(self.low), *self.learner.hidden, self.actions), activation="relu")

    @property
    def field(self) -> Field:
        """The noise."""
        learner = self.learner
        side = learner.order + 1 if learner.noise == "features" else learner.lattice
        return Field(learner.noise, side, len(self.low))

    def scale_observations(self, observations: Any) -> jax.Array:
        """(..., k) observations as points of [0, 1]^k."""
        low, high = (jnp.asarray(bound, jnp.float32) for bound in (self.low, self.high))
        share = (jnp.asarray(observations, jnp.float32) - low) / (high - low)
        return jnp.clip(share, 0.0, 1.0)


def noised(form: StaticConfig, weights: jax.Array, path: jax.Array, x: jax.Array) -> jax.Array:
    """Q + g of one replica at points (n, k): (n, actions)."""
    found: jax.Array = form.head.apply(weights, x) + form.field.evaluate(path, x)
    return found


def probs_of(acting: Acting, temperature: float, values: jax.Array) -> jax.Array:
    """How likely each action is, (..., actions), for values of actions."""
    if acting == "greedy":
        best = jnp.argmax(values, axis=-1)
        return jax.nn.one_hot(best, values.shape[-1], dtype=values.dtype)
    return jax.nn.softmax(values / temperature, axis=-1)


# --- a run ----------------------------------------------------------------------------------------


class ProspectQState(NamedTuple):
    """Where runs stand; replicas first."""

    weights: jax.Array
    """(replicas, all)."""

    target: jax.Array
    """(replicas, all): weights of the network that V comes from."""

    squares: jax.Array
    """(replicas, all): running means of squared gradients, for RMSprop."""

    path: jax.Array
    """(replicas, actions, count): weights of the noise, sigma included."""

    rows: jax.Array
    """(replicas, kept, k + 2): steps that updates draw from, as `Row`s; the t-th is in t mod
    kept."""

    time: jax.Array
    """(replicas,): iterations so far, the same for all."""

    world: jax.Array
    actor: jax.Array
    replay: jax.Array
    noise: jax.Array
    """(replicas,) keys of the random streams: a state tells what will come."""

    numbers: dict[str, jax.Array]


class Row(NamedTuple):
    """A step as it is learned from."""

    x: jax.Array
    """(..., k): the state, scaled."""

    action: jax.Array
    aim: jax.Array
    """What Q(s, a) is to meet: rho - g_a(s)."""


class Randomness(NamedTuple):
    """All randomness of an iteration but its noise; the replicas are second, after the steps."""

    begun: Any
    """Fresh states of the environment, (B, replicas), for where a step has to start afresh."""

    prob: Any
    """(B, replicas, N): where actions lead."""

    share: jax.Array
    """(B, replicas), from [0, 1): which action."""


def draw_randomness(
    form: StaticConfig, env: Environment[Any, Any], state: ProspectQState
) -> Randomness:
    """The randomness of the coming iteration, in each replica from its keys alone."""
    steps, samples = form.learner.batch, form.learner.samples

    def one(world: jax.Array, actor: jax.Array) -> Randomness:
        own = jax.vmap(jax.random.fold_in, (0, None))(jnp.stack([world, actor]), state.time[0])
        bits = draws.random_words(own[0], 2 * steps * (1 + samples)).reshape(steps, 1 + samples, 2)
        each = jax.random.wrap_key_data(bits)
        return Randomness(
            jax.vmap(lambda key: env.reset(key)[0])(each[:, 0]),
            jax.vmap(jax.vmap(env._draw))(each[:, 1:]),
            draws.uniform(draws.random_words(own[1], steps)),
        )

    found: Randomness = jax.vmap(one, out_axes=1)(state.world, state.actor)
    return found


def fresh_path(form: StaticConfig, state: ProspectQState) -> ProspectQState:
    """With noise of its own for the coming iteration."""
    field, number = form.field, state.time[0]

    def one(key: jax.Array, numbers: dict[str, jax.Array]) -> jax.Array:
        bits = draws.random_words(jax.random.fold_in(key, number), form.actions * field.count)
        normals = draws.normal(bits.reshape(form.actions, field.count))
        return numbers["sigma"] * field.weights(normals, numbers["rate"])

    return state._replace(path=jax.vmap(one)(state.noise, state.numbers))


class StepResult(NamedTuple):
    """A step of one replica: where it leads, and what is learned from it."""

    place: Any
    row: Row
    reward: jax.Array
    error: jax.Array
    """Q + g - rho."""


def take_step(
    form: StaticConfig,
    env: Environment[Any, Any],
    state: ProspectQState,
    place: Any,
    prob: Randomness,
) -> StepResult:
    """Algorithm 1 and lines 6 to 13 of Algorithm 2, in one replica: no array has replicas here."""
    learner, params, gamma = form.learner, env.default_params, state.numbers["gamma"]
    x = form.scale_observations(env._observe(place.inner, params))[None]
    noise = form.field.evaluate(state.path, x)[0]
    here = form.head.apply(state.weights, x)[0] + noise
    likely = jnp.full_like(here, 1.0 / form.actions)
    if learner.behaviour == "acting":
        likely = probs_of(learner.acting, learner.temperature, here)
    below = jnp.cumsum(likely)[:-1]
    action = jnp.sum(prob.share >= below, dtype=jnp.int32)

    step = jax.vmap(env._advance, (0, None, None, None))(prob.prob, place, action, params)
    there = noised(form, state.target, state.path, form.scale_observations(step.observation))
    worth = jnp.max(there, axis=1)
    if learner.acting == "proportional" and learner.backup == "acting":
        shares = probs_of(learner.acting, learner.temperature, there)
        worth = jnp.sum(shares * there, axis=1)
    x_n = step.reward.astype(jnp.float32) + gamma * jnp.where(step.terminated, 0.0, worth)
    rho = learner.prospect.of_samples(x_n)

    to = jnp.argmax(x_n) if learner.successor == "best" else 0
    over = (step.terminated | step.truncated)[to]
    after = jax.tree.map(lambda new, old: jnp.where(over, new, old[to]), prob.begun, step.state)
    row = Row(x[0], action, rho - noise[action])
    return StepResult(after, row, step.reward[to], here[action] - rho)


def update(form: StaticConfig, state: ProspectQState, row: Row) -> tuple[jax.Array, jax.Array]:
    """Weights, and running means of squares, of one replica after one update with these steps."""
    learner, head = form.learner, form.head
    taken = jax.nn.one_hot(row.action, form.actions, dtype=jnp.float32)
    error = jnp.sum(taken * head.apply(state.weights, row.x), axis=1) - row.aim
    if learner.loss == "huber":
        error = jnp.clip(error, -1.0, 1.0)
    gradient = head.vjp(state.weights, row.x, taken * error[:, None] / len(row.aim))
    return descend(learner, state.weights, state.squares, gradient, state.numbers["step"])


def _replay_batch(
    form: StaticConfig, state: ProspectQState, row: Row
) -> tuple[ProspectQState, Row, jax.Array]:
    """With these steps (replicas, B) in memory; a minibatch, and whether there are enough for
    one."""
    learner = form.learner
    packed = jnp.concatenate([row.x, row.action[..., None], row.aim[..., None]], axis=-1)
    slots = (state.time[0] * learner.batch + jnp.arange(learner.batch)) % form.kept
    rows = state.rows.at[:, slots].set(packed)
    there = jnp.minimum((state.time[0] + 1) * learner.batch, form.kept)

    def sample_batch(key: jax.Array, kept: jax.Array) -> jax.Array:
        own = jax.random.fold_in(key, state.time[0])
        return kept[draws.subsets(own, there[None], learner.minibatch)[0]]

    found = jax.vmap(sample_batch)(state.replay, rows)
    chosen = Row(found[..., :-2], found[..., -2].astype(jnp.int32), found[..., -1])
    return state._replace(rows=rows), chosen, there >= learner.minibatch


@partial(jax.jit, static_argnames=("form", "env"), donate_argnames="state")
def _iteration(
    form: StaticConfig, env: Environment[Any, Any], state: ProspectQState
) -> tuple[ProspectQState, dict[str, jax.Array]]:
    """B steps and an update, and what was seen, (replicas,) each."""
    learner = form.learner
    if learner.resets == "iteration":
        state = fresh_path(form, state)
    if learner.target_every == 1:
        state = state._replace(target=state.weights)
    else:
        copies = state.time[0] % learner.target_every == 0
        state = state._replace(target=jnp.where(copies, state.weights, state.target))
    prob = draw_randomness(form, env, state)

    def step(place: Any, own: Randomness) -> tuple[Any, tuple[Row, jax.Array, jax.Array]]:
        taken = jax.vmap(partial(take_step, form, env))(state, place, own)
        return taken.place, (taken.row, taken.reward, taken.error)

    first = jax.tree.map(lambda leaf: leaf[0], prob.begun)
    _, (rows, rewards, errors) = lax.scan(step, first, prob)
    row = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rows)
    due = jnp.ones((), bool)
    if learner.replay:
        state, row, due = _replay_batch(form, state, row)
    weights, squares = jax.vmap(partial(update, form))(state, row)
    state = state._replace(
        weights=jnp.where(due, weights, state.weights),
        squares=jnp.where(due, squares, state.squares),
        time=state.time + 1,
    )
    seen = {
        "return": jnp.sum(rewards, axis=0),
        "length": jnp.full(rewards.shape[1:], learner.batch, jnp.int32),
        "loss": jnp.mean(errors**2, axis=0) / 2.0,
    }
    return state, seen


# --- many runs ------------------------------------------------------------------------------------


class ProspectQProgram:
    """The algorithm as a program: many runs side by side, each with its own key and settings.

    An episode is an iteration of B steps. Besides "return" and "length", "loss" is seen: the mean
    of l over the iteration's steps, before the update.
    """

    sweepable: tuple[str, ...] = ProspectQ.SWEEPABLE

    def __init__(self, learner: ProspectQ, env: Env) -> None:
        if not isinstance(env, Environment):
            raise InputError(
                "Algorithm 1 draws many successors of a state, which needs an environment that "
                "compiles, such as ObstacleSquare."
            )
        seen = env.observation
        if not isinstance(seen, Box):
            raise InputError(
                f"Algorithm 1 is for environments where vectors are observed, such as "
                f"ObstacleSquare, and {env.name} is not one."
            )
        bounds = zip(seen.low, seen.high, strict=True)
        if not all(math.isfinite(low) and low < high < math.inf for low, high in bounds):
            raise InputError(f"Algorithm 1 needs finite bounds of what {env.name} shows.")
        self.learner = learner
        self.env = env
        kept = min(learner.replay, learner.batch * learner.iterations)
        if learner.replay and kept < learner.minibatch:
            raise InputError(
                f"{learner.iterations} iterations of {learner.batch} steps are fewer than the "
                f"minibatch of {learner.minibatch}: say more iterations, or a smaller minibatch."
            )
        self.form = StaticConfig(
            replace(learner, **_DYNAMIC_SETTINGS),
            env.num_actions,
            tuple(seen.low),
            tuple(seen.high),
            kept,
        )
        # Which refuses fields of too many weights.
        self.field = self.form.field

    def init(self, keys: jax.Array, settings: Mapping[str, Any] | None = None) -> ProspectQState:
        """Before the first iteration of each of the `keys` (replicas,)."""
        with jax.enable_x64(False):
            numbers = self.learner.replica_numbers(settings, keys.shape[0])
            begun: ProspectQState = _initial_state(self.form, keys, numbers)
            return begun

    def advance(
        self, state: ProspectQState, episodes: int
    ) -> tuple[ProspectQState, dict[str, jax.Array]]:
        """So many more iterations: what was seen of each, (replicas, episodes)."""
        number = checks.count("episodes", episodes)
        if int(state.time[0]) + number > self.learner.iterations:
            raise InputError(
                f"There are {self.learner.iterations} iterations: say more of them to go on."
            )
        with jax.enable_x64(False):
            after, seen = run_in_parts(_iteration, (self.form, self.env), state, number, _REPLICAS)
            return after, seen

    def values(self, state: ProspectQState, points: ArrayLike, *, noise: bool = True) -> Floats:
        """Q + g, or Q without noise, at observations (n, k): (replicas, n, actions)."""
        with jax.enable_x64(False):
            x = self.form.scale_observations(np.asarray(points, np.float64))
            path = state.path if noise else jnp.zeros_like(state.path)
            return np.asarray(_values(self.form, state.weights, path, x), np.float64)

    def probabilities(
        self,
        state: ProspectQState,
        points: ArrayLike,
        acting: Acting | None = None,
        *,
        noise: bool = True,
    ) -> Floats:
        """How likely each action is, by `acting` or else as in the settings, as `values`."""
        values = jnp.asarray(self.values(state, points, noise=noise))
        rule = self.learner.acting if acting is None else acting
        return np.asarray(probs_of(rule, self.learner.temperature, values), np.float64)


@partial(jax.jit, static_argnames="form")
def _values(form: StaticConfig, weights: jax.Array, path: jax.Array, x: jax.Array) -> jax.Array:
    found: jax.Array = jax.vmap(partial(noised, form), (0, 0, None))(weights, path, x)
    return found


@partial(jax.jit, static_argnames="form")
def _initial_state(
    form: StaticConfig, keys: jax.Array, numbers: dict[str, jax.Array]
) -> ProspectQState:
    replicas, head = keys.shape[0], form.head
    streams = jax.vmap(lambda key: jax.random.split(key, 5))(keys)
    bounds = [
        np.full((inputs + 1) * outputs, 1.0 / math.sqrt(inputs))
        for inputs, outputs in zip(head.sizes[:-1], head.sizes[1:], strict=True)
    ]
    bound = jnp.asarray(np.concatenate(bounds), jnp.float32)

    def init_weights(key: jax.Array) -> jax.Array:
        share = draws.uniform(draws.random_words(key, len(bound)))
        return bound * (2.0 * share - 1.0)

    weights = jax.vmap(init_weights)(streams[:, 0])
    state = ProspectQState(
        weights=weights,
        target=weights,
        squares=jnp.zeros_like(weights),
        path=jnp.zeros((replicas, form.actions, form.field.count), jnp.float32),
        rows=jnp.zeros((replicas, form.kept, len(form.low) + 2), jnp.float32),
        time=jnp.zeros((replicas,), jnp.int32),
        world=streams[:, 1],
        actor=streams[:, 2],
        replay=streams[:, 3],
        noise=streams[:, 4],
        numbers=numbers,
    )
    return fresh_path(form, state)


class ProspectQRuns(NamedTuple):
    """What `train` gives back, of each replica. Nothing here is certified."""

    program: ProspectQProgram
    state: ProspectQState
    losses: Floats
    """(replicas, iterations)."""


def train(
    keys: jax.Array,
    learner: ProspectQ,
    env: Environment[Any, Any],
    settings: Mapping[str, Any] | None = None,
) -> ProspectQRuns:
    """Learn for all iterations, a replica for each of the `keys` (replicas,)."""
    program = ProspectQProgram(learner, env)
    state, seen = program.advance(program.init(keys, settings), learner.iterations)
    return ProspectQRuns(program, state, np.asarray(seen["loss"], np.float64))
