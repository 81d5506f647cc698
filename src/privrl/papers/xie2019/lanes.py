"""Many runs of GPOPE side by side: `algorithm.gpope` for many settings at once, compiled.

A *lane* is one choice of clip bound, step size and noise. All lanes of a run share the draws of
trajectories and the standard normals (common random numbers), as a grid search on public data does;
each by itself is Algorithm 1. A test compares them with `privrl.papers.xie2019.algorithm`.

Of the chain a trajectory's matrices have two diagonals, and are kept as such; other tasks have
dense ones.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from privrl.core.types import AnyArray, Floats
from privrl.evaluation.bellman_error import RELATIVE_RANK, Moments, UnitSteps

CHUNK = 20_000
"""Iterations whose noise is held in memory at a time."""


class Lanes(NamedTuple):
    """Settings of each lane, all of one length."""

    clip: Any
    step: Any
    sigma: Any
    diminishing: Any = False
    """Whether its steps are step / i."""


class Dense(NamedTuple):
    """A^, C^ (m, d, d) and b^ (m, d) of each trajectory (2.2)."""

    A: Any
    C: Any
    b: Any


class Bidiagonal(NamedTuple):
    """The same where A^ = diag(stay) - on (entries next to the diagonal), C^ = diag(seen)."""

    stay: Any
    on: Any
    seen: Any
    b: Any


Units = Dense | Bidiagonal


def bidiagonal(steps: Floats, left: Floats, gamma: float) -> Bidiagonal:
    """Of a chain whose end pays 1 and terminates.

    Args:
        steps: (m, d) steps in each state.
        left: (m, d) how many of them lead to the next state, 0 or 1.
        gamma: The discount factor.
    """
    total = np.maximum(steps.sum(axis=1, keepdims=True), 1.0)
    end = steps.shape[1] - 2  # the last state is absorbing
    on, b = gamma * left / total, np.zeros_like(steps)
    b[:, end] = left[:, end] / total[:, 0]
    stay = (steps - gamma * (steps - left)) / total
    on[:, end] = 0.0
    return Bidiagonal(stay, on, steps / total, b)


def dense(at: UnitSteps) -> Dense:
    """Of any task, from its steps: what `unit_moments` gives, by products of stacked matrices."""
    count, d = at.num_units, at.phi.shape[1]
    lengths = np.bincount(at.units, minlength=count)
    place = np.arange(at.units.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    found = Dense(np.empty((count, d, d)), np.empty((count, d, d)), np.empty((count, d)))
    for first in range(0, count, 500):
        here = slice(*np.searchsorted(at.units, (first, first + 500)))
        some = slice(first, min(count, first + 500))
        into = at.units[here] - first, place[here]
        shape = (some.stop - first, int(lengths[some].max(initial=1)))

        def stack(rows: Floats, into: Any = into, shape: tuple[int, int] = shape) -> Floats:
            padded = np.zeros((*shape, *rows.shape[1:]))
            padded[into] = rows
            return padded

        shares = at.shares[here]
        phi, weights = at.phi[here], (shares * at.ratios[here])[:, None]
        left, plain = stack(phi * weights).transpose(0, 2, 1), stack(phi)
        found.A[some] = left @ stack(at.direction[here])
        found.C[some] = stack(phi * shares[:, None]).transpose(0, 2, 1) @ plain
        found.b[some] = (left @ stack(at.rewards[here])[:, :, None])[:, :, 0]
    return found


def split(visits: Floats, blocks: int) -> tuple[Floats, Floats]:
    """Each trajectory of a chain cut into `blocks` of equal length: steps and left, (m blocks, d).

    A trajectory that is shorter than `blocks` has empty ones, whose gradient is 0.
    """
    ends = np.cumsum(visits, axis=1)
    begins, total = ends - visits, ends[:, -1:]
    steps, left = [], []
    for k in range(blocks):
        low, high = np.floor(total * k / blocks), np.floor(total * (k + 1) / blocks)
        steps.append(np.maximum(np.minimum(ends, high) - np.maximum(begins, low), 0.0))
        # The last step in a state is the one that leaves it.
        left.append(((visits > 0.0) & (ends - 1.0 >= low) & (ends - 1.0 < high)).astype(float))
    shape = (-1, visits.shape[1])
    return np.stack(steps, axis=1).reshape(shape), np.stack(left, axis=1).reshape(shape)


def run(
    units: Units,
    draws: AnyArray,
    normals: np.random.Generator | Floats,
    lanes: Lanes,
    average: float = 0.5,
) -> tuple[Floats, Floats]:
    """Of each lane the last iterate, and the mean of the last share of them: (lanes, d) each.

    Args:
        units: Of the trajectories.
        draws: (N,) which one is drawn in each iteration.
        normals: (N, 2d) standard normals, or what draws them.
        lanes: The settings.
        average: Over which share of the iterates the mean is.
    """
    import jax
    import jax.numpy as jnp

    times, d = len(draws), units.b.shape[1]
    count = max(np.size(one) for one in lanes)
    with jax.enable_x64(True):
        settings = [
            jnp.asarray(np.broadcast_to(np.asarray(one, dtype=np.float64), (count,)))
            for one in lanes
        ]
        arrays = jax.tree.map(jnp.asarray, units)
        begin = jnp.asarray(float(times - max(1, round(average * times))))
        state = (jnp.zeros((count, d)), jnp.zeros((count, d)), jnp.zeros((count, d)))
        for first in range(0, times, CHUNK):
            here = np.arange(first, min(times, first + CHUNK))
            noise = (
                normals.standard_normal((here.size, 2 * d))
                if isinstance(normals, np.random.Generator)
                else normals[here]
            )
            iterations = (jnp.asarray(here), jnp.asarray(draws[here]), jnp.asarray(noise))
            state = _program()(arrays, settings, begin, state, iterations)
        last, _, total = (np.asarray(one) for one in state)
    return last, total / max(1, round(average * times))


def errors(weights: Floats, moments: Moments) -> Floats:
    """The MSPBE of each row of `weights`; infinite where a run has blown up."""
    values, vectors = np.linalg.eigh(moments.C)
    kept = values > RELATIVE_RANK * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    with np.errstate(all="ignore"):
        found = np.sum(((moments.b - weights @ moments.A.T) @ root) ** 2, axis=-1)
    return np.where(np.isfinite(found), found, np.inf)


def draw(count: int, times: int, blocks: int, draws: np.random.Generator) -> AnyArray:
    """Uniform draws of one of `count` trajectories, and of each its blocks one after the other."""
    chosen = draws.integers(0, count, times)
    return (chosen[:, None] * blocks + np.arange(blocks)).reshape(-1)


def grid(*axes: Sequence[float]) -> list[Floats]:
    """All combinations, as one flat array for each axis."""
    return [one.reshape(-1) for one in np.meshgrid(*axes, indexing="ij")]


def _gradient(units: Any, x: Any, theta: Any, w: Any) -> tuple[Any, Any]:
    """B of (4.1) for the trajectory x, of all lanes."""
    import jax.numpy as jnp

    if isinstance(units, Dense):
        A, C, b = units.A[x], units.C[x], units.b[x]
        return -w @ A, theta @ A.T + w @ C - b
    stay, on, seen, b = (one[x] for one in units)
    back, ahead = on[:-1], jnp.zeros((theta.shape[0], 1))
    after = jnp.concatenate([theta[:, 1:] * back, ahead], axis=1)
    before = jnp.concatenate([ahead, w[:, :-1] * back], axis=1)
    return before - stay * w, stay * theta - after + seen * w - b


@lru_cache(maxsize=1)
def _program() -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def chunk(units: Any, settings: Any, begin: Any, state: Any, iterations: Any) -> Any:
        clip, step, sigma, diminishing = (one[:, None] for one in settings)

        def iteration(carry: Any, given: Any) -> Any:
            theta, w, total = carry
            i, x, zeta = given
            primal, dual = _gradient(units, x, theta, w)
            norm = jnp.sqrt(jnp.sum(primal**2 + dual**2, axis=1, keepdims=True))
            scale = 1.0 / jnp.maximum(1.0, norm / clip)
            beta = jnp.where(diminishing > 0.0, step / (i + 1.0), step)
            d = theta.shape[1]
            theta = theta - beta * (primal * scale + clip * sigma * zeta[:d])
            w = w - beta * (dual * scale + clip * sigma * zeta[d:])
            return (theta, w, total + jnp.where(i >= begin, theta, 0.0)), None

        return lax.scan(iteration, state, iterations)[0]

    return jax.jit(chunk)
