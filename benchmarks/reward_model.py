"""What planning on a released reward model earns: `Interval` and its mirror image.

The family is the task, reward 0.5 - |s - 0.5| on arrival, and its mirror, |s - 0.5|: a policy that
earns J in one earns 25 - J in the other, so one that cannot tell them apart earns 12.5 on average.
The dynamics are public. Plans are optimal for the released model over the 50 steps (backward
induction on a grid of positions) and are judged exactly, by the same induction with the true
reward; one row compares that with episodes played in the environment.

Features are fixed in advance; the figures are means over seeds 100 to 199, with standard errors. As
alternatives, in the same run: rewards tabulated in cells (the same mechanism with one-hot features,
which is noise on each cell's mean reward), and the ceiling that no learner with the same guarantee
exceeds. A last row has the time to make the mechanism and to release with it.
"""

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import seconds
from privrl.audit.limits import best_accuracy_gdp, group_privacy_gdp, steps_between
from privrl.envs import Interval, episodes
from privrl.privacy import Budget
from privrl.privacy.mechanisms.reward_model import (
    Cosine,
    Legendre,
    RewardModelMechanism,
    quadrature,
)
from privrl.privacy.noise import reproducible, secure

Floats = NDArray[np.float64]
Reward = Callable[[Any], Any]

BUDGET = Budget(0.9, 1e-4)
SEEDS = range(100, 200)
RADII = (0.01, 0.03, 0.1)
GRID = np.linspace(0.0, 1.0, 201)
HORIZON = 50


def task(points: Any) -> Any:
    """The reward of `Interval`, at (n, 1) points."""
    return 0.5 - abs(points[:, 0] - 0.5)


def mirror(points: Any) -> Any:
    """What the mirror image pays."""
    return abs(points[:, 0] - 0.5)


def cells(count: int) -> Callable[[Any], Any]:
    """One-hot features of `count` equal cells of [0, 1]."""
    return lambda x: np.minimum((x[:, :1] * count).astype(int), count - 1) == np.arange(count)


def kernels(reach: float, draws: int = 32) -> Floats:
    """(2, n, n): where each action leads from each grid position, between neighbours linearly."""
    size = GRID.size
    both = np.zeros((2, size, size))
    rows = np.arange(size)
    for action, sign in enumerate((1.0, -1.0)):
        for share in (np.arange(draws) + 0.5) / draws:
            place = np.clip(GRID + sign * reach * share, 0.0, 1.0) * (size - 1)
            below = np.minimum(place.astype(int), size - 2)
            part = place - below
            np.add.at(both[action], (rows, below), (1.0 - part) / draws)
            np.add.at(both[action], (rows, below + 1), part / draws)
    return both


def earned(moves: Floats, models: Floats, truth: Floats) -> Floats:
    """The true return, from a uniform start, of the plan that is optimal for each column."""
    planned, real = np.zeros_like(models), np.zeros_like(models)
    for _ in range(HORIZON):
        hoped = np.stack([move @ (models + planned) for move in moves])
        true = np.stack([move @ (truth[:, None] + real) for move in moves])
        chosen = hoped.argmax(axis=0)
        planned = hoped.max(axis=0)
        real = np.take_along_axis(true, chosen[None], axis=0)[0]
    return np.asarray(np.trapezoid(real, GRID, axis=0))


def run() -> Iterator[dict[str, object]]:
    """Rows of mean returns, then one of times."""
    env = Interval()
    moves = kernels(float(env.default_params.reach))
    points, weights = quadrature(64)
    rewards = (task, mirror)
    truths = [reward(GRID[:, None]) for reward in rewards]
    best = [float(earned(moves, truth[:, None], truth)[0]) for truth in truths]
    yield {"optimum": statistics.mean(best), "blind": 0.5 * HORIZON / 2, **_played(env, moves)}
    choices: dict[str, Callable[[Any], Any]] = {
        "cosine, order 2": Cosine(2),
        "cosine, order 4": Cosine(4),
        "cosine, order 8": Cosine(8),
        "Legendre, order 2": Legendre(2),
        "alternative: 16 cells": cells(16),
    }
    for radius in RADII:
        for name, features in choices.items():
            plan = RewardModelMechanism.from_budget(
                radius, BUDGET, points, features, weights, (0.0, 0.5)
            )
            returns = []
            for reward, truth in zip(rewards, truths, strict=True):
                models = [plan.release(reward, reproducible(seed))[0] for seed in SEEDS]
                columns = np.stack([model(GRID[:, None]) for model in models], axis=1)
                returns.append(earned(moves, columns, truth))
            means = np.mean(returns, axis=0)
            yield {
                "radius": radius,
                "features": name,
                "std": plan.std,
                "mean_return": float(means.mean()),
                "standard_error": float(means.std(ddof=1) / math.sqrt(means.size)),
            }
        mu = group_privacy_gdp(radius / plan.std, steps_between(0.5, radius))
        # Averaged over both, J differs from 12.5 by half of what it differs between the two.
        told = 2.0 * best_accuracy_gdp(mu) - 1.0
        yield {"radius": radius, "ceiling": 12.5 + (sum(best) - 25.0) / 2.0 * told}
    source = secure()
    make = [
        seconds(lambda: RewardModelMechanism(1.0, 0.1, points, Cosine(8), weights))
        for _ in range(5)
    ]
    plan = RewardModelMechanism(1.0, 0.1, points, Cosine(8), weights)
    release = [seconds(lambda: plan.release(task, source)) for _ in range(101)]
    yield {
        "features": "cosine, order 8, 64 points",
        "make_s": statistics.median(make),
        "release_s": statistics.median(release),
        "release_quartiles": statistics.quantiles(release, n=4)[::2],
    }


def _played(env: Interval, moves: Floats, count: int = 4000) -> dict[str, object]:
    """The return of going to the middle, on the grid and in the environment."""
    import jax

    middle = np.where(GRID <= 0.5, 0, 1)
    step = np.take_along_axis(moves, middle[None, :, None], axis=0)[0]
    value = np.zeros(GRID.size)
    for _ in range(HORIZON):
        value = step @ (task(GRID[:, None]) + value)
    played = episodes(env, lambda _, x: jax.numpy.int32(x[0] > 0.5), jax.random.key(100), count)
    totals = np.asarray(played.returns())
    return {
        "to_the_middle_on_grid": float(np.trapezoid(value, GRID)),
        "to_the_middle_played": float(totals.mean()),
        "standard_error": float(totals.std() / math.sqrt(count)),
    }
