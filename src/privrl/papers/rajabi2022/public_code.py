"""The authors' public code of Rajabi et al. (2022), with its mistakes: a reading of Table I.

Written from a description of what the code does, not from the code. Nothing here is private, or an
algorithm to use: it is what the printed numbers come from, as far as it is known.

- States are points of a square of ten by ten cells, (0, 0) to (9, 9); a step leads to a uniform
  point of a cell. The intended neighbour is reached with 0.9, and the others that exist share the
  rest; where the intended one does not exist, all are alike. The fourth neighbour, below, is found
  by changing the wrong coordinate: `fourth="left"` takes this for the one to the left.
- A step costs 1, or the penalty of the obstacle that it leaves, or 0 if it enters the target, where
  nothing ends. "No CPT" sets all penalties to 1, and has the same estimator.
- An episode is 20 steps by any action, all alike. For each, N = 100 successors s_n are drawn, with
  X_n = cost + 0.9 max_b (Q(s_n, b) + g_b(s_n)) + z_n, z_n standard normal even without privacy; the
  one with the least X_n is where it goes on.
- rho has the printed weights of gains, w((N + i - 1) / N) - w((N - i) / N). Above 1 a negative
  number is raised to a fractional power, and of the complex result the real part is kept.
- After each episode there is one step of RMSprop on 256 of all steps so far, with the Huber loss of
  Q(s, a) + g_a(s) against 0.7 max_b (Q(s', b) + g_b(s')) - rho, each coordinate of the gradient cut
  at 1. rho, which is kept from when the step was taken, has gamma V(s') in it already.
- g_a is one path for the whole run, of the distance to the corner alone, with covariance sigma^2
  exp(-|x - y|) and the wrong right edge: right of all former points its mean is e^{-d} g(first).
- In the end roll-outs of 400 steps act by Q without noise, and go on past the target.

Where the description leaves something open: all steps are remembered; a missing neighbour to the
left is missing twice; actions are the greatest Q's, or drawn from the softmax of Q. The path lives
on a lattice of 1 / 64 in the distance, and a step adds at most one point right of all others, its
furthest.
"""

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from privrl.control.heads import Layers
from privrl.control.replicas import run_in_parts
from privrl.core.types import Floats
from privrl.papers.rajabi2022.learner import ProspectQ
from privrl.papers.rajabi2022.printed import HORIZON
from privrl.papers.wang2019 import draws
from privrl.papers.wang2019.fast import descend

SIZE = 10
OBSTACLES = ((9, 8, 50.0), (4, 8, 25.0), (5, 5, 10.0), (3, 5, 5.0))
"""Where they are, and what leaving them costs, in the order of Table I's penalties."""

Fourth = Literal["below", "left"]

ROLLOUTS = 10
_GAMMA_CPT, _GAMMA_LOSS = 0.9, 0.7
_LATTICE = 64
_POINTS = math.ceil(SIZE * math.sqrt(2.0) * _LATTICE) + 1
_REPLICAS = 8


# --- the estimator --------------------------------------------------------------------------------


def weight(kappa: complex, power: float) -> complex:
    """w(kappa), which is complex above 1."""
    raised = complex(kappa) ** power
    return raised / (raised + complex(1.0 - kappa) ** power) ** (1.0 / power)


def estimator_weights(number: int) -> tuple[Floats, Floats]:
    """Of gains, their real parts, and of losses: (N,) each, for samples in ascending order."""
    gains = [
        weight((number + i - 1) / number, 0.61) - weight((number - i) / number, 0.61)
        for i in range(1, number + 1)
    ]
    losses = [
        (weight(i / number, 0.69) - weight((i - 1) / number, 0.69)).real
        for i in range(1, number + 1)
    ]
    return np.real(gains), np.array(losses)


def cpt_value(samples: Any, gains: Any, losses: Any) -> Any:
    """rho of samples (N,), with these weights."""
    ordered = jnp.sort(samples)
    up, down = (jnp.maximum(sign * ordered, 0.0) ** 0.88 for sign in (1.0, -1.0))
    return jnp.sum(gains * up) - jnp.sum(losses * down)


# --- the square -----------------------------------------------------------------------------------


def neighbours(fourth: Fourth) -> tuple[NDArray[np.int32], Floats]:
    """(cells, 4): where each neighbour is, and (cells, 4, 4): how likely, for each action."""
    cells = np.zeros((SIZE * SIZE, 4), np.int32)
    probs = np.zeros((SIZE * SIZE, 4, 4))
    for cell in range(SIZE * SIZE):
        x, y = cell % SIZE, cell // SIZE
        last = (x - 1, y) if fourth == "left" else (x, y - 1)
        places = [(x + 1, y), (x - 1, y), (x, y + 1), last]
        there = [0 <= a < SIZE and 0 <= b < SIZE for a, b in places]
        cells[cell] = [
            b * SIZE + a if known else cell for (a, b), known in zip(places, there, strict=True)
        ]
        for action in range(4):
            if there[action]:
                probs[cell, action] = 0.1 * np.array(there) / max(1, sum(there) - 1)
                probs[cell, action, action] = 0.9 if sum(there) > 1 else 1.0
            else:
                probs[cell, action] = np.array(there) / sum(there)
    return cells, probs


@dataclass(frozen=True)
class PublicCode:
    """Sizes, and whether CPT is on."""

    cpt: bool = True
    fourth: Fourth = "below"
    episodes: int = 800
    steps: int = 20
    samples: int = 100
    batch: int = 256

    @property
    def learner(self) -> ProspectQ:
        """How steps of the optimiser are made."""
        return ProspectQ.public_code()

    @property
    def head(self) -> Layers:
        """The network, of states as they are."""
        return Layers((2, *self.learner.hidden, 4), activation="relu")

    def costs(self) -> Floats:
        """(cells,): what a step from there costs."""
        found = np.ones(SIZE * SIZE)
        for x, y, penalty in OBSTACLES:
            found[y * SIZE + x] = penalty if self.cpt else 1.0
        return found


class PublicCodeState(NamedTuple):
    """Where runs stand; replicas first."""

    weights: jax.Array
    squares: jax.Array
    memory: jax.Array
    """(replicas, steps, 6): state, action, rho, next state."""

    path: jax.Array
    """(replicas, 4, points): one with the right law and sigma 1."""

    change: jax.Array
    """(replicas, 4, points): what the wrong edge adds to it."""

    ends: jax.Array
    """(replicas, 2): the least and the greatest point so far."""

    sigma: jax.Array
    time: jax.Array
    keys: jax.Array


def _indices(points: jax.Array) -> jax.Array:
    """Where on the lattice points (n, 2) are, by their distance to the corner."""
    return jnp.round(jnp.sqrt(jnp.sum(points**2, axis=-1)) * _LATTICE).astype(jnp.int32)


def extend(
    path: jax.Array, change: jax.Array, ends: jax.Array, furthest: jax.Array, normals: jax.Array
) -> jax.Array:
    """`change` with a point right of all others, where the path has the wrong mean; (4, points).

    Between the old end and the new one the path has its law given both: what is added to it is what
    is added at either end, interpolated.
    """
    first = (path + change)[:, ends[0]]
    behind, ahead = path[:, furthest], change[:, ends[1]]
    gap = (furthest - ends[1]) / _LATTICE
    value = jnp.exp(-gap) * first + jnp.sqrt(-jnp.expm1(-2.0 * gap)) * normals
    place = jnp.arange(_POINTS)
    u = jnp.clip((place - ends[1]) / _LATTICE, 0.0, gap)
    v = gap - u
    whole = jnp.sinh(jnp.maximum(gap, 1e-6))
    between = jnp.sinh(v) / whole * ahead[:, None] + jnp.sinh(u) / whole * (value - behind)[:, None]
    inside = (place > ends[1]) & (place <= furthest)
    return jnp.where(inside, between, change)


def _episode_of_one(
    form: PublicCode, state: PublicCodeState
) -> tuple[PublicCodeState, dict[str, jax.Array]]:
    """One replica: no array has replicas here."""
    head, learner = form.head, form.learner
    cells, probs = neighbours(form.fourth)
    reaches = jnp.asarray(np.cumsum(probs, axis=2)[:, :, :-1], jnp.float32)
    leads, costs = jnp.asarray(cells), jnp.asarray(form.costs(), jnp.float32)
    gains, losses = (jnp.asarray(w, jnp.float32) for w in estimator_weights(form.samples))
    own = jax.random.split(jax.random.fold_in(state.keys, state.time), 3)

    def noise(state: PublicCodeState, points: jax.Array) -> jax.Array:
        """(n, 4)."""
        at = _indices(points)
        return state.sigma * (state.path[:, at] + state.change[:, at]).T

    def step(
        now: tuple[PublicCodeState, jax.Array], key: jax.Array
    ) -> tuple[tuple[PublicCodeState, jax.Array], jax.Array]:
        state, x = now
        parts = jax.random.split(key, 5)
        cell = jnp.sum(jnp.floor(x).astype(jnp.int32) * jnp.array([1, SIZE]))
        action = jax.random.randint(parts[0], (), 0, 4)
        share = jax.random.uniform(parts[1], (form.samples, 1), jnp.float32)
        to = leads[cell, jnp.sum(share >= reaches[cell, action], axis=1)]
        corner = jnp.stack([to % SIZE, to // SIZE], axis=1).astype(jnp.float32)
        after = corner + jax.random.uniform(parts[2], corner.shape, jnp.float32)
        at = _indices(after)
        furthest = jnp.maximum(state.ends[1], jnp.max(at))
        normals = jax.random.normal(parts[3], (4,), jnp.float32)
        change = extend(state.path, state.change, state.ends, furthest, normals)
        ends = jnp.stack([jnp.minimum(state.ends[0], jnp.min(at)), furthest])
        state = state._replace(change=change, ends=ends)
        worth = jnp.max(head.apply(state.weights, after) + noise(state, after), axis=1)
        paid = jnp.where(to == SIZE * SIZE - 1, 0.0, costs[cell])
        x_n = paid + _GAMMA_CPT * worth
        x_n = x_n + jax.random.normal(parts[4], x_n.shape, jnp.float32)
        rho = cpt_value(x_n, gains, losses)
        best = after[jnp.argmin(x_n)]
        row = jnp.concatenate([x, jnp.stack([action.astype(jnp.float32), rho]), best])
        return (state, best), row

    x = jax.random.uniform(own[0], (2,), jnp.float32)
    start = _indices(x)
    fresh = jnp.where(state.time == 0, jnp.stack([start, start]), state.ends)
    furthest = jnp.maximum(fresh[1], start)
    normals = jax.random.normal(jax.random.fold_in(own[0], 1), (4,), jnp.float32)
    change = extend(state.path, state.change, fresh, furthest, normals)
    ends = jnp.stack([jnp.minimum(fresh[0], start), furthest])
    state = state._replace(change=change, ends=ends)
    (state, _), rows = lax.scan(step, (state, x), jax.random.split(own[1], form.steps))
    place = (state.time * form.steps).astype(jnp.int32)
    memory = lax.dynamic_update_slice_in_dim(state.memory, rows, place, axis=0)
    there = place + form.steps
    picks = draws.subsets(own[2], there[None], form.batch)[0]
    batch = memory[picks]
    s, action, rho, after = batch[:, :2], batch[:, 2], batch[:, 3], batch[:, 4:]
    ahead = jnp.max(head.apply(state.weights, after) + noise(state, after), axis=1)
    taken = jax.nn.one_hot(action.astype(jnp.int32), 4, dtype=jnp.float32)
    shown = jnp.sum(taken * (head.apply(state.weights, s) + noise(state, s)), axis=1)
    error = shown - (_GAMMA_LOSS * ahead - rho)
    size = jnp.abs(error)
    loss = jnp.mean(jnp.where(size < 1.0, 0.5 * error**2, size - 0.5))
    slopes = taken * jnp.clip(error, -1.0, 1.0)[:, None] / form.batch
    gradient = head.vjp(state.weights, s, slopes)
    step_size = jnp.float32(learner.step)
    weights, squares = descend(learner, state.weights, state.squares, gradient, step_size)
    due = there >= form.batch
    state = state._replace(
        weights=jnp.where(due, weights, state.weights),
        squares=jnp.where(due, squares, state.squares),
        memory=memory,
        time=state.time + 1,
    )
    return state, {"loss": jnp.where(due, loss, jnp.nan)}


@partial(jax.jit, static_argnames="form", donate_argnames="state")
def _episode(
    form: PublicCode, state: PublicCodeState
) -> tuple[PublicCodeState, dict[str, jax.Array]]:
    found: tuple[PublicCodeState, dict[str, jax.Array]] = jax.vmap(partial(_episode_of_one, form))(
        state
    )
    return found


@partial(jax.jit, static_argnames="form")
def init(form: PublicCode, keys: jax.Array, sigma: jax.Array) -> PublicCodeState:
    """Before the first episode of each of the `keys` (replicas,)."""
    sizes = form.head.sizes
    bounds = [np.full((i + 1) * o, 1.0 / math.sqrt(i)) for i, o in pairwise(sizes)]
    bound = jnp.asarray(np.concatenate(bounds), jnp.float32)
    keep = math.exp(-1.0 / _LATTICE)

    def one(key: jax.Array, sigma: jax.Array) -> PublicCodeState:
        own = jax.random.split(key, 3)
        weights = bound * (2.0 * jax.random.uniform(own[0], bound.shape, jnp.float32) - 1.0)
        normals = jax.random.normal(own[1], (_POINTS, 4), jnp.float32)
        fresh = normals.at[1:].multiply(math.sqrt(1.0 - keep**2))
        _, path = lax.scan(lambda now, new: (keep * now + new,) * 2, jnp.zeros(4), fresh)
        empty = jnp.zeros((form.episodes * form.steps, 6), jnp.float32)
        return PublicCodeState(
            weights,
            jnp.zeros_like(weights),
            empty,
            path.T,
            jnp.zeros_like(path.T),
            jnp.zeros((2,), jnp.int32),
            sigma,
            jnp.zeros((), jnp.int32),
            own[2],
        )

    begun: PublicCodeState = jax.vmap(one)(keys, sigma)
    return begun


# --- roll-outs ------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("form", "greedy"))
def _visits(form: PublicCode, weights: jax.Array, key: jax.Array, greedy: bool) -> jax.Array:
    """(4,): visits to each obstacle in a roll-out of one replica, the mean over `ROLLOUTS`."""
    cells, probs = neighbours(form.fourth)
    reaches = jnp.asarray(np.cumsum(probs, axis=2)[:, :, :-1], jnp.float32)
    leads = jnp.asarray(cells)
    marked = jnp.asarray([y * SIZE + x for x, y, _ in OBSTACLES])

    def step(now: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        parts = jax.random.split(key, 3)
        corner = jnp.stack([now % SIZE, now // SIZE], axis=1).astype(jnp.float32)
        x = corner + jax.random.uniform(parts[0], corner.shape, jnp.float32)
        values = form.head.apply(weights, x)
        action = jnp.argmax(values, axis=1)
        if not greedy:
            action = jax.random.categorical(parts[1], values)
        share = jax.random.uniform(parts[2], (ROLLOUTS, 1), jnp.float32)
        after = leads[now, jnp.sum(share >= reaches[now, action], axis=1)]
        return after, jnp.mean(after[:, None] == marked, axis=0, dtype=jnp.float32)

    begun = jnp.zeros((ROLLOUTS,), jnp.int32)
    _, seen = lax.scan(step, begun, jax.random.split(key, HORIZON))
    return jnp.sum(seen, axis=0)


class PublicCodeRuns(NamedTuple):
    """What runs came to, a row for each replica."""

    losses: Floats
    """(replicas, episodes): of the minibatch, before its step; NaN until there is one."""

    visits: dict[str, Floats]
    """By way of acting, "greedy" or "proportional": (replicas, 4)."""


def train(keys: jax.Array, form: PublicCode, sigma: Any) -> PublicCodeRuns:
    """Whole runs, a replica for each of the `keys`, and their roll-outs."""
    with jax.enable_x64(False):
        levels = jnp.asarray(np.broadcast_to(sigma, len(keys)), jnp.float32)
        state = init(form, keys, levels)
        state, seen = run_in_parts(_episode, (form,), state, form.episodes, _REPLICAS)
        rolls = jax.vmap(lambda key: jax.random.fold_in(key, 10**6))(state.keys)
        found = {
            name: jax.vmap(lambda w, key, greedy=greedy: _visits(form, w, key, greedy))(
                state.weights, rolls
            )
            for name, greedy in (("greedy", True), ("proportional", False))
        }
    return PublicCodeRuns(
        np.asarray(seen["loss"], np.float64),
        {name: np.asarray(one, np.float64) for name, one in found.items()},
    )
