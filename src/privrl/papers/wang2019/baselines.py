"""What Figure 2 of Wang and Hegde (2019) compares with: the same Q-learning, with noise elsewhere.

The learner is that of the authors' public code (`FunctionalQ.public_code`) without functional
noise; appendices E.2 and E.3, which have the baselines and their noise, are not in our copy, so the
calculations are ours:

- *input perturbation* ("Ven13"): N(0, s^2) is added once to each of the T rewards that are read.
- *DP-SGD* ("ACG+16"): the gradient of each sample of a minibatch is cut to norm C, and N(0, s^2 C^2
  I) is added to their mean. All rewards of a batch may change at once, as the paper says itself, so
  that the mean moves by 2 C.

For a function that moves by D in each of n releases the composition in the proof of Theorem 5 asks
for s = D sqrt(2 n ln(e + epsilon / delta)) / epsilon, which holds (`noise_multiplier`): D = 1 and
n = T for rewards, D = 2 and n updates for DP-SGD. Both guarantees are sound, for reward functions
within 1 of each other; what is not certified is the arithmetic.

Replicas are runs, each with its own key and noise. Numbers are 32-bit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from privrl.control.heads import Layers
from privrl.control.replicas import run_in_parts
from privrl.core.types import Floats
from privrl.envs import Interval
from privrl.papers.wang2019 import draws
from privrl.papers.wang2019.algorithm import EXPLORATION
from privrl.papers.wang2019.fast import descend
from privrl.papers.wang2019.learner import FunctionalQ

NoiseOn = Literal["rewards", "gradients"]

_REPLICAS = 16


def noise_multiplier(epsilon: float, delta: float, releases: int, moves: float) -> float:
    """The standard deviation that the composition of Theorem 5's proof asks for."""
    return moves * math.sqrt(2.0 * releases * math.log(math.e + epsilon / delta)) / epsilon


@dataclass(frozen=True)
class Baseline:
    """All that compiled code must know beforehand."""

    noise_on: NoiseOn
    learner: FunctionalQ
    env: Interval
    clip: float = 1.0
    """C, of DP-SGD."""

    @property
    def head(self) -> Layers:
        """The network."""
        return Layers((1, *self.learner.hidden, self.env.num_actions), activation="relu")

    @property
    def horizon(self) -> int:
        """Samples of an episode."""
        assert self.env.step_limit is not None
        return self.env.step_limit


class BaselineState(NamedTuple):
    """Where runs stand; replicas first."""

    weights: jax.Array
    target: jax.Array
    squares: jax.Array
    samples: jax.Array
    """(replicas, T, 5): state, action, reward with its noise, next state, discount."""

    noise: jax.Array
    """(replicas,): its standard deviation."""

    time: jax.Array
    """(replicas,): episodes so far, the same for all."""

    keys: jax.Array


class EpisodeRandomness(NamedTuple):
    """All randomness of an episode of one replica."""

    start: Any
    moves: jax.Array
    explores: jax.Array
    any_action: jax.Array
    picks: jax.Array
    """(steps, B)."""

    rewards: jax.Array
    """(steps,) standard normals."""

    gradients: Any
    """(steps,) keys of standard normals."""


def draw_randomness(form: Baseline, key: jax.Array, episode: jax.Array) -> EpisodeRandomness:
    """The randomness of an episode, from the replica's key alone."""
    steps, batch = form.horizon, form.learner.batch
    own = jax.random.split(jax.random.fold_in(key, episode), 5)
    number = episode * steps + jnp.arange(1, steps + 1, dtype=jnp.int32)
    there = jnp.minimum(number, form.learner.replay)
    picks = draws.subsets(own[2], there, batch) + (number - there)[:, None]
    return EpisodeRandomness(
        jax.random.uniform(own[0], (), jnp.float32),
        jax.random.uniform(jax.random.fold_in(own[0], 1), (steps,), jnp.float32),
        jax.random.uniform(own[1], (steps,), jnp.float32),
        jax.random.randint(jax.random.fold_in(own[1], 1), (steps,), 0, form.env.num_actions),
        picks,
        jax.random.normal(own[3], (steps,), jnp.float32),
        jax.random.split(own[4], steps),
    )


def update(
    form: Baseline, state: BaselineState, batch: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Weights, and running means of squares, of one replica after an update with these samples."""
    learner, head = form.learner, form.head
    x, action, reward, after, discount = batch.T
    ahead = jnp.max(head.apply(state.target, after[:, None]), axis=1)
    taken = jax.nn.one_hot(action.astype(jnp.int32), form.env.num_actions, dtype=jnp.float32)
    error = jnp.sum(taken * head.apply(state.weights, x[:, None]), axis=1)
    error = jnp.clip(error - reward - discount * ahead, -1.0, 1.0)
    slopes = taken * error[:, None]
    if form.noise_on == "gradients":
        each: Any = jax.vmap(lambda at, slope: head.vjp(state.weights, at[None, None], slope[None]))
        own = each(x, slopes)
        norms = jnp.sqrt(jnp.sum(own**2, axis=1, keepdims=True))
        own = own * jnp.minimum(1.0, form.clip / jnp.maximum(norms, 1e-30))
        normals = jax.random.normal(key, state.weights.shape, jnp.float32)
        gradient = jnp.mean(own, axis=0) + state.noise * form.clip * normals
    else:
        gradient = head.vjp(state.weights, x[:, None], slopes / learner.batch)
    return descend(learner, state.weights, state.squares, gradient, jnp.float32(learner.step))


@partial(jax.jit, static_argnames="form", donate_argnames="state")
def _episode(form: Baseline, state: BaselineState) -> tuple[BaselineState, jax.Array]:
    """An episode of all replicas, and the sums of its rewards, without noise."""
    learner, steps, episode = form.learner, form.horizon, state.time[0]
    random = jax.vmap(partial(draw_randomness, form), (0, None))(state.keys, episode)
    params = form.env.default_params

    def sample(
        now: tuple[BaselineState, jax.Array], own: tuple[jax.Array, EpisodeRandomness]
    ) -> tuple[tuple[BaselineState, jax.Array], jax.Array]:
        (state, x), (k, step) = now, own
        t = episode * steps + k
        assert learner.target is not None
        target = jnp.where((t % learner.target == 0) & (t > 0), state.weights, state.target)
        values = jax.vmap(lambda w, at: form.head.apply(w, at[None, None])[0])(state.weights, x)
        first, last, decay = EXPLORATION
        rate = last + (first - last) * jnp.exp(-t / decay)
        best = jnp.argmax(values, axis=1).astype(jnp.int32)
        action = jnp.where(step.explores < rate, step.any_action, best)
        after, reward, _ = jax.vmap(form.env._move, (0, 0, 0, None))(step.moves, x, action, params)
        read = reward + (state.noise * step.rewards if form.noise_on == "rewards" else 0.0)
        ends = learner.terminal & (k == steps - 1)
        discount = jnp.broadcast_to(jnp.where(ends, 0.0, learner.gamma), x.shape)
        row = jnp.stack([x, action.astype(jnp.float32), read, after, discount], axis=1)
        kept = lax.dynamic_update_slice_in_dim(state.samples, row[:, None], t, axis=1)
        state = state._replace(target=target, samples=kept)

        def learn() -> tuple[jax.Array, jax.Array]:
            batch = jnp.take_along_axis(state.samples, step.picks[..., None], axis=1)
            return jax.vmap(partial(update, form))(state, batch, step.gradients)

        due = t + 1 >= learner.batch
        weights, squares = lax.cond(due, learn, lambda: (state.weights, state.squares))
        return (state._replace(weights=weights, squares=squares), after), reward

    by_step = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), random._replace(start=None))
    number = jnp.arange(steps, dtype=jnp.int32)
    (state, _), rewards = lax.scan(sample, (state, random.start), (number, by_step))
    return state._replace(time=state.time + 1), jnp.sum(rewards, axis=0)


def init(form: Baseline, keys: jax.Array, noise: Sequence[float]) -> BaselineState:
    """Before the first episode of each of the `keys` (replicas,), weights as the public code's."""
    sizes = form.head.sizes
    bounds = [np.full((i + 1) * o, 1.0 / math.sqrt(i)) for i, o in pairwise(sizes)]
    bound = jnp.asarray(np.concatenate(bounds), jnp.float32)
    streams = jax.vmap(jax.random.split)(keys)
    share = jax.vmap(lambda key: jax.random.uniform(key, bound.shape, jnp.float32))(streams[:, 0])
    weights = bound * (2.0 * share - 1.0)
    replicas, samples = len(keys), form.learner.samples
    return BaselineState(
        weights,
        weights,
        jnp.zeros_like(weights),
        jnp.zeros((replicas, samples, 5), jnp.float32),
        jnp.asarray(np.broadcast_to(noise, replicas), jnp.float32),
        jnp.zeros((replicas,), jnp.int32),
        streams[:, 1],
    )


def train(keys: jax.Array, form: Baseline, noise: Sequence[float]) -> Floats:
    """Returns (replicas, episodes) of whole runs, a replica for each of the `keys`."""
    with jax.enable_x64(False):
        state = init(form, keys, noise)
        episodes = form.learner.samples // form.horizon
        _, returns = run_in_parts(_episode, (form,), state, episodes, _REPLICAS)
    return np.asarray(returns, np.float64)
