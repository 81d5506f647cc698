"""PP-CPT-RL of Rajabi et al. (2022) as printed: Algorithms 1 to 3.

Q_theta is a small network with a value for each action, of states scaled to [0, 1]^k, and g a field
of noise for each action. In each of T_max iterations theta stands still, and there are B steps from
a fresh start. At a state s, with pi the policy that is learned,

    a    = argmax_b Q(s, b) + g_b(s)                             or drawn in proportion
    X_n  = r_n + gamma sum_b pi(b | s_n) (Q(s_n, b) + g_b(s_n))  of N_max successors s_n of (s, a)
    l    = (rho(X_1, ..., X_N) - Q(s, a) - g_a(s))^2 / 2
    s*   = the s_n of the largest X_n, from where the next step goes on
    theta <- theta - (alpha / B) sum grad l                      after B steps, over these

where rho is the CPT value of samples (`privrl.risk`). `printed` is this, and `public_code` has the
settings of the authors' public code; each departure is a field of `Config`. What the paper leaves
open or prints otherwise:

- The weights of gains are w+((N + 1 - i) / N) - w+((N - i) / N). Printed is (N + i - 1) / N, which
  is above 1, so that a negative number is raised to a fractional power: Table I and Figure 2 come
  from complex numbers.
- s* is the best of the samples. As printed the search begins at X_0 = 0, and with penalties no
  sample is ever better: the agent would never move.
- The target network, of which the text speaks, is theta before the iteration's update.
- After termination V is 0, and an end within an iteration is followed by a fresh start.
- N_max successors of one (s, a) need a simulator that can go back: environments that compile can.
- Drawing *in proportion* is from the softmax of the noised Q, as in the public code.
- The gradient is that of Q(s, a); rho is a constant to it.

**Noise.** Algorithm 3 draws g at a new state given all states before, which for B N_max T_max
points cannot be done in two dimensions, where there is no Markov property; the public code does it
for the distance to the corner, so that states on a circle share their noise. Here g is a field of
finitely many weights, drawn at once (`paper_field`). With sigma as the paper has it none of this is
private: its proof is about an interval. In two dimensions the space of the product kernel holds
functions with square-integrable mixed derivatives only, and networks of rectifiers are not among
them; the space of a feature kernel holds no network either. What can be proven is in
`privrl.control.prospect_q`.

Released: nothing is certified. The paper's promise, of each single iteration, is a Claim
(`claims`), for the sigma and beta that Theorem 1 fixes together; a sigma of one's own has none.
What is shown is Q + g (`learned_as_printed`), with the path of the last iteration.

Four random streams, for the world, the actions, the minibatches and the noise. All in 32 bits,
noise too, since there is nothing to certify.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike

from privrl.control import paper_draws as draws
from privrl.control.functional_q import NO_CLAIM
from privrl.control.heads import Head, Layers, Linear
from privrl.control.lanes import by_parts
from privrl.control.learned_q import NOT_PRIVATE, LearnedQ
from privrl.control.paper_field import Field
from privrl.control.paper_functional_q import DECAY, TINY
from privrl.control.paper_prospect_settings import Acting as Acting
from privrl.control.paper_prospect_settings import Config as Config
from privrl.control.paper_prospect_settings import claims as claims
from privrl.control.paper_prospect_settings import printed as printed
from privrl.control.paper_prospect_settings import public_code as public_code
from privrl.control.paper_q_settings import check_setting
from privrl.control.promises import Promise
from privrl.control.walks import greedy
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Cells, CosineProducts, Joined, NetworkOutputs
from privrl.data.collection import collect
from privrl.envs.base import Box, Environment

# So many lanes are compiled together; more are further calls of the same, on as many cores as there
# are.
_LANES = 20
# Episodes that a score is the mean of.
_SCORED = 2000
# What compiled code does not see of a config: numbers that each lane has for itself, and a promise.
_UNSEEN: dict[str, Any] = {
    "sigma": 0.0,
    "rate": 1.0,
    "step": 1.0,
    "gamma": 0.0,
    "epsilon": 1.0,
    "delta": 0.5,
    "lipschitz": 1.0,
    "largest_td_error": 1.0,
    "iterations": 1,
}


@dataclass(frozen=True)
class Form:
    """All that compiled code must know beforehand."""

    config: Config
    actions: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    kept: int
    """How many steps are remembered."""

    @property
    def head(self) -> Layers:
        """The network, of scaled states."""
        return Layers((len(self.low), *self.config.hidden, self.actions), activation="relu")

    @property
    def field(self) -> Field:
        """The noise."""
        config = self.config
        side = config.order + 1 if config.noise == "features" else config.lattice
        return Field(config.noise, side, len(self.low))

    def scaled(self, observations: Any) -> jax.Array:
        """(..., k) observations as points of [0, 1]^k."""
        low, high = (jnp.asarray(bound, jnp.float32) for bound in (self.low, self.high))
        share = (jnp.asarray(observations, jnp.float32) - low) / (high - low)
        return jnp.clip(share, 0.0, 1.0)


def noised(form: Form, weights: jax.Array, path: jax.Array, x: jax.Array) -> jax.Array:
    """Q + g of one lane at points (n, k): (n, actions)."""
    found: jax.Array = form.head.out(weights, x) + form.field.at(path, x)
    return found


def chances_of(acting: Acting, temperature: float, values: jax.Array) -> jax.Array:
    """How likely each action is, (..., actions), for values of actions."""
    if acting == "greedy":
        best = jnp.argmax(values, axis=-1)
        return jax.nn.one_hot(best, values.shape[-1], dtype=values.dtype)
    return jax.nn.softmax(values / temperature, axis=-1)


# --- a run ----------------------------------------------------------------------------------------


class State(NamedTuple):
    """Where runs stand; lanes first."""

    weights: jax.Array
    """(lanes, all)."""

    target: jax.Array
    """(lanes, all): weights of the network that V comes from."""

    squares: jax.Array
    """(lanes, all): running means of squared gradients, for RMSprop."""

    path: jax.Array
    """(lanes, actions, count): weights of the noise, sigma included."""

    rows: jax.Array
    """(lanes, kept, k + 2): steps that updates draw from, as `Row`s; the t-th is in t mod kept."""

    time: jax.Array
    """(lanes,): iterations so far, the same for all."""

    world: jax.Array
    actor: jax.Array
    replay: jax.Array
    noise: jax.Array
    """(lanes,) keys of the random streams: a state tells what will come."""

    numbers: dict[str, jax.Array]


class Row(NamedTuple):
    """A step as it is learned from."""

    x: jax.Array
    """(..., k): the state, scaled."""

    action: jax.Array
    aim: jax.Array
    """What Q(s, a) is to meet: rho - g_a(s)."""


class Drawn(NamedTuple):
    """All chance of an iteration but its noise; the lanes are second, after the steps."""

    begun: Any
    """Fresh states of the environment, (B, lanes), for where a step has to start afresh."""

    chance: Any
    """(B, lanes, N): where actions lead."""

    share: jax.Array
    """(B, lanes), from [0, 1): which action."""


def drawn(form: Form, env: Environment[Any, Any], state: State) -> Drawn:
    """The chance of the coming iteration, in each lane from its keys alone."""
    steps, samples = form.config.batch, form.config.samples

    def one(world: jax.Array, actor: jax.Array) -> Drawn:
        own = jax.vmap(jax.random.fold_in, (0, None))(jnp.stack([world, actor]), state.time[0])
        bits = draws.words(own[0], 2 * steps * (1 + samples)).reshape(steps, 1 + samples, 2)
        each = jax.random.wrap_key_data(bits)
        return Drawn(
            jax.vmap(lambda key: env.reset(key)[0])(each[:, 0]),
            jax.vmap(jax.vmap(env._draw))(each[:, 1:]),
            draws.uniform(draws.words(own[1], steps)),
        )

    found: Drawn = jax.vmap(one, out_axes=1)(state.world, state.actor)
    return found


def fresh_path(form: Form, state: State) -> State:
    """With noise of its own for the coming iteration."""
    field, number = form.field, state.time[0]

    def one(key: jax.Array, numbers: dict[str, jax.Array]) -> jax.Array:
        bits = draws.words(jax.random.fold_in(key, number), form.actions * field.count)
        normals = draws.normal(bits.reshape(form.actions, field.count))
        return numbers["sigma"] * field.weights(normals, numbers["rate"])

    return state._replace(path=jax.vmap(one)(state.noise, state.numbers))


class Taken(NamedTuple):
    """A step of one lane: where it leads, and what is learned from it."""

    place: Any
    row: Row
    reward: jax.Array
    error: jax.Array
    """Q + g - rho."""


def take_step(
    form: Form, env: Environment[Any, Any], state: State, place: Any, chance: Drawn
) -> Taken:
    """Algorithm 1 and lines 6 to 13 of Algorithm 2, in one lane: no array has lanes here."""
    config, params, gamma = form.config, env.default_params, state.numbers["gamma"]
    x = form.scaled(env._observe(place.inner, params))[None]
    noise = form.field.at(state.path, x)[0]
    here = form.head.out(state.weights, x)[0] + noise
    likely = jnp.full_like(here, 1.0 / form.actions)
    if config.behaviour == "acting":
        likely = chances_of(config.acting, config.temperature, here)
    below = jnp.cumsum(likely)[:-1]
    action = jnp.sum(chance.share >= below, dtype=jnp.int32)

    step = jax.vmap(env._advance, (0, None, None, None))(chance.chance, place, action, params)
    there = noised(form, state.target, state.path, form.scaled(step.observation))
    worth = jnp.max(there, axis=1)
    if config.acting == "proportional" and config.backup == "acting":
        shares = chances_of(config.acting, config.temperature, there)
        worth = jnp.sum(shares * there, axis=1)
    x_n = step.reward.astype(jnp.float32) + gamma * jnp.where(step.terminated, 0.0, worth)
    rho = config.prospect.of_samples(x_n)

    to = jnp.argmax(x_n) if config.successor == "best" else 0
    over = (step.terminated | step.truncated)[to]
    after = jax.tree.map(lambda new, old: jnp.where(over, new, old[to]), chance.begun, step.state)
    row = Row(x[0], action, rho - noise[action])
    return Taken(after, row, step.reward[to], here[action] - rho)


def update(form: Form, state: State, row: Row) -> tuple[jax.Array, jax.Array]:
    """Weights, and running means of squares, of one lane after one update with these steps."""
    config, head = form.config, form.head
    taken = jax.nn.one_hot(row.action, form.actions, dtype=jnp.float32)
    error = jnp.sum(taken * head.out(state.weights, row.x), axis=1) - row.aim
    if config.loss == "huber":
        error = jnp.clip(error, -1.0, 1.0)
    gradient = head.pull(state.weights, row.x, taken * error[:, None] / len(row.aim))
    squares = state.squares
    if config.clamp is not None:
        gradient = jnp.clip(gradient, -config.clamp, config.clamp)
    if config.optimiser == "rmsprop":
        squares = DECAY * squares + (1.0 - DECAY) * gradient**2
        gradient = gradient / (jnp.sqrt(squares) + TINY)
    return state.weights - state.numbers["step"] * gradient, squares


def _remembered(form: Form, state: State, row: Row) -> tuple[State, Row, jax.Array]:
    """With these steps (lanes, B) in memory; a minibatch, and whether there are enough for one."""
    config = form.config
    packed = jnp.concatenate([row.x, row.action[..., None], row.aim[..., None]], axis=-1)
    slots = (state.time[0] * config.batch + jnp.arange(config.batch)) % form.kept
    rows = state.rows.at[:, slots].set(packed)
    there = jnp.minimum((state.time[0] + 1) * config.batch, form.kept)

    def picked(key: jax.Array, kept: jax.Array) -> jax.Array:
        own = jax.random.fold_in(key, state.time[0])
        return kept[draws.subsets(own, there[None], config.minibatch)[0]]

    found = jax.vmap(picked)(state.replay, rows)
    chosen = Row(found[..., :-2], found[..., -2].astype(jnp.int32), found[..., -1])
    return state._replace(rows=rows), chosen, there >= config.minibatch


@partial(jax.jit, static_argnames=("form", "env"), donate_argnames="state")
def _iteration(
    form: Form, env: Environment[Any, Any], state: State
) -> tuple[State, dict[str, jax.Array]]:
    """B steps and an update, and what was seen, (lanes,) each."""
    config = form.config
    if config.resets == "iteration":
        state = fresh_path(form, state)
    if config.target_every == 1:
        state = state._replace(target=state.weights)
    else:
        copies = state.time[0] % config.target_every == 0
        state = state._replace(target=jnp.where(copies, state.weights, state.target))
    chance = drawn(form, env, state)

    def step(place: Any, own: Drawn) -> tuple[Any, tuple[Row, jax.Array, jax.Array]]:
        taken = jax.vmap(partial(take_step, form, env))(state, place, own)
        return taken.place, (taken.row, taken.reward, taken.error)

    first = jax.tree.map(lambda leaf: leaf[0], chance.begun)
    _, (rows, rewards, errors) = lax.scan(step, first, chance)
    row = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rows)
    due = jnp.ones((), bool)
    if config.replay:
        state, row, due = _remembered(form, state, row)
    weights, squares = jax.vmap(partial(update, form))(state, row)
    state = state._replace(
        weights=jnp.where(due, weights, state.weights),
        squares=jnp.where(due, squares, state.squares),
        time=state.time + 1,
    )
    seen = {
        "return": jnp.sum(rewards, axis=0),
        "length": jnp.full(rewards.shape[1:], config.batch, jnp.int32),
        "loss": jnp.mean(errors**2, axis=0) / 2.0,
    }
    return state, seen


# --- many runs ------------------------------------------------------------------------------------


class PaperProgram:
    """Paper mode as a program: many runs side by side, each with its own key and settings.

    An episode is an iteration of B steps. Besides "return" and "length", "loss" is seen: the mean
    of l over the iteration's steps, before the update.
    """

    sweepable: tuple[str, ...] = Config.SWEEPABLE

    def __init__(self, config: Config, env: Environment[Any, Any]) -> None:
        if not isinstance(env, Environment):
            raise InputError(
                "paper mode draws many successors of a state, which needs an environment that "
                "compiles, such as ObstacleSquare."
            )
        seen = env.observation
        if not isinstance(seen, Box):
            raise InputError(
                f"paper mode is for environments where vectors are observed, such as "
                f"ObstacleSquare, and {env.name} is not one."
            )
        bounds = zip(seen.low, seen.high, strict=True)
        if not all(math.isfinite(low) and low < high < math.inf for low, high in bounds):
            raise InputError(f"paper mode needs finite bounds of what {env.name} shows.")
        self.config = config
        self.env = env
        kept = min(config.replay, config.batch * config.iterations)
        if config.replay and kept < config.minibatch:
            raise InputError(
                f"{config.iterations} iterations of {config.batch} steps are fewer than the "
                f"minibatch of {config.minibatch}: say more iterations, or a smaller minibatch."
            )
        self.form = Form(
            replace(config, **_UNSEEN), env.num_actions, tuple(seen.low), tuple(seen.high), kept
        )
        # Which refuses fields of too many weights.
        self.field = self.form.field

    def init(self, keys: jax.Array, settings: Mapping[str, Any] | None = None) -> State:
        """Before the first iteration of each of the `keys` (lanes,)."""
        given = dict(settings or {})
        lanes = keys.shape[0]
        for name, value in given.items():
            check_setting(name, value)
            if np.shape(value) not in ((), (lanes,)):
                raise InputError(f"{name} must be one number, or one for each of {lanes} keys.")
        sigma, rate = self.config.scale
        own = {"sigma": sigma, "rate": rate, "step": self.config.step, "gamma": self.config.gamma}
        with jax.enable_x64(False):
            numbers = {
                name: jnp.broadcast_to(jnp.asarray(np.asarray(value), jnp.float32), (lanes,))
                for name, value in (own | given).items()
            }
            begun: State = _begun(self.form, keys, numbers)
            return begun

    def advance(self, state: State, episodes: int) -> tuple[State, dict[str, jax.Array]]:
        """So many more iterations: what was seen of each, (lanes, episodes)."""
        number = checks.count("episodes", episodes)
        if int(state.time[0]) + number > self.config.iterations:
            raise InputError(
                f"There are {self.config.iterations} iterations: say more of them to go on."
            )
        with jax.enable_x64(False):
            after, seen = by_parts(_iteration, (self.form, self.env), state, number, _LANES)
            return after, seen

    def values(self, state: State, points: ArrayLike, *, noise: bool = True) -> Floats:
        """Q + g, or Q without noise, at observations (n, k): (lanes, n, actions)."""
        with jax.enable_x64(False):
            x = self.form.scaled(np.asarray(points, np.float64))
            path = state.path if noise else jnp.zeros_like(state.path)
            return np.asarray(_values(self.form, state.weights, path, x), np.float64)

    def probabilities(
        self, state: State, points: ArrayLike, acting: Acting | None = None, *, noise: bool = True
    ) -> Floats:
        """How likely each action is, by `acting` or else as in the settings, as `values`."""
        values = jnp.asarray(self.values(state, points, noise=noise))
        rule = self.config.acting if acting is None else acting
        return np.asarray(chances_of(rule, self.config.temperature, values), np.float64)


@partial(jax.jit, static_argnames="form")
def _values(form: Form, weights: jax.Array, path: jax.Array, x: jax.Array) -> jax.Array:
    found: jax.Array = jax.vmap(partial(noised, form), (0, 0, None))(weights, path, x)
    return found


@partial(jax.jit, static_argnames="form")
def _begun(form: Form, keys: jax.Array, numbers: dict[str, jax.Array]) -> State:
    lanes, head = keys.shape[0], form.head
    streams = jax.vmap(lambda key: jax.random.split(key, 5))(keys)
    bounds = [
        np.full((inputs + 1) * outputs, 1.0 / math.sqrt(inputs))
        for inputs, outputs in zip(head.sizes[:-1], head.sizes[1:], strict=True)
    ]
    bound = jnp.asarray(np.concatenate(bounds), jnp.float32)

    def first(key: jax.Array) -> jax.Array:
        share = draws.uniform(draws.words(key, len(bound)))
        return bound * (2.0 * share - 1.0)

    weights = jax.vmap(first)(streams[:, 0])
    state = State(
        weights=weights,
        target=weights,
        squares=jnp.zeros_like(weights),
        path=jnp.zeros((lanes, form.actions, form.field.count), jnp.float32),
        rows=jnp.zeros((lanes, form.kept, len(form.low) + 2), jnp.float32),
        time=jnp.zeros((lanes,), jnp.int32),
        world=streams[:, 1],
        actor=streams[:, 2],
        replay=streams[:, 3],
        noise=streams[:, 4],
        numbers=numbers,
    )
    return fresh_path(form, state)


class Trained(NamedTuple):
    """What `train` gives back, of each lane. Nothing here is certified."""

    program: PaperProgram
    state: State
    losses: Floats
    """(lanes, iterations)."""


def train(
    keys: jax.Array,
    config: Config,
    env: Environment[Any, Any],
    settings: Mapping[str, Any] | None = None,
) -> Trained:
    """Learn for all iterations, a lane for each of the `keys` (lanes,)."""
    program = PaperProgram(config, env)
    state, seen = program.advance(program.init(keys, settings), config.iterations)
    return Trained(program, state, np.asarray(seen["loss"], np.float64))


# --- what is shown --------------------------------------------------------------------------------


def learned_as_printed(
    program: PaperProgram, state: State, seed: int | None, *, public: bool, noise: bool = True
) -> LearnedQ:
    """The end of a run, of the first lane: Q + g, its policy, and the paper's claim about it.

    Without `noise` it is Q alone, which is what the public code acts by in the end; the scaling of
    observations then goes into the first layer, so that Q is of observations as they are.
    """
    config, form, env = program.config, program.form, program.env
    found = np.asarray(state.weights[0], np.float64)
    path = np.asarray(state.path[0], np.float64)
    if not (np.all(np.isfinite(found)) and np.all(np.isfinite(path))):
        raise InputError("The parameters grew without bound: use smaller steps.")
    network, low = form.head, np.array(form.low)
    (first, bias), *_ = network.layers(found)
    slopes = first / (np.array(form.high) - low)[:, None]
    rest = found[first.size + bias.size :]
    parameters = np.concatenate([slopes.ravel(), bias - low @ slopes, rest])
    head: Head = network
    if noise and np.any(path):
        # Q + g is linear in what the network gives and in what the field is made of.
        box, side = (form.low, form.high), form.field.side
        waves = Cells(side, *box) if form.field.kind == "cells" else CosineProducts(side, *box)
        values = NetworkOutputs(tuple(network.layers(found)), *box, activation="relu")
        head = Linear(Joined((values, waves)), network.outputs)
        parameters = np.concatenate([np.eye(network.outputs), path.T]).ravel()
    if config.acting == "greedy":
        policy = greedy(head, parameters)
    else:
        policy = head.policy(head.scaled(parameters, 1.0 / config.temperature))
    if config.sigma is None:
        promise: Promise = claims(config)[0]
    else:
        promise = NO_CLAIM if config.sigma else NOT_PRIVATE
    score = None
    if public:
        played = collect(env, policy, _SCORED, 0 if seed is None else seed)
        score = float(np.sum(played.rewards)) / _SCORED
    sigma, rate = config.scale
    settings = {"env": env.name, "mode": "paper", "seed": seed, **asdict(config)}
    own = {"hidden": list(config.hidden), "prospect": config.prospect.to_dict()}
    return LearnedQ(
        promise=promise,
        release="values",
        parameters=parameters,
        head=head,
        policy=policy,
        score=score,
        settings={**settings, **own, "sigma": sigma, "rate": rate},
    )
