"""Figure 2 of wang2019, certified: returns over the task and its mirror by learner, budget, radius.

The ceiling is that of `privrl.audit.limits`, for any learner with this budget. All policies lie on
the line between the best of either task (the returns add up to 25), so these two are all the
decisions there are.

Settings were chosen on seeds 0 to 9; the baselines were worked over once more after a look at seeds
100 to 119, so what is reported of all of them is from seeds 200 and up. The figures as the paper
has them are `privrl reproduce wang2019`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np

from privrl.audit import limits
from privrl.control import FunctionalQ
from privrl.papers.wang2019.certified import LEARNERS, REWARD_RANGE, TASKS, mean_return
from privrl.privacy.promise import Budget
from privrl.privacy.session import PrivacySession

Row = dict[str, Any]

FRESH = range(200, 220)
DELTA = 1e-4
EPSILONS = (0.9, 0.45)
RADII = (0.01, 0.03, 0.1, 0.3, 1.0)
BLIND_RETURN = 12.5
STEPS = 50


def run() -> Iterator[Row]:
    for name in LEARNERS:
        yield without_noise(FRESH, name)
    yield from certified_rows()


def certified_rows(
    seeds: Sequence[int] = FRESH,
    *,
    epsilons: Iterable[float] = EPSILONS,
    radii: Iterable[float] = RADII,
    learners: Iterable[str] = tuple(LEARNERS),
) -> Iterator[Row]:
    """Returns over both tasks, for each learner, budget and radius, and the ceiling."""
    for name, epsilon, radius in product(learners, epsilons, radii):
        learner = replace(LEARNERS[name], budget=Budget(epsilon, DELTA), reward_radius=radius)
        yield _row(learner, seeds, {"learner": name, "epsilon": epsilon, "radius": radius})


def without_noise(seeds: Sequence[int] = FRESH, learner: str = "reward model") -> Row:
    """The same learner without a budget."""
    about = {"learner": learner, "epsilon": None, "radius": None}
    return _row(LEARNERS[learner], seeds, about)


def _row(learner: FunctionalQ, seeds: Sequence[int], about: Row) -> Row:
    returns = np.array(
        [
            [
                mean_return(task, learner.learn(task, session=PrivacySession(seed=s)).policy, s)
                for task in TASKS
            ]
            for s in seeds
        ]
    )
    means = returns.mean(axis=1)
    error = means.std(ddof=1) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    budget, radius = learner.budget, learner.reward_radius
    best = optima()
    return {
        "release": learner.release,
        **about,
        "delta": None if budget is None else budget.delta,
        "seeds": len(means),
        "return": float(means.mean()),
        "error": None if math.isnan(error) else float(error),
        "task": float(returns[:, 0].mean()),
        "mirror": float(returns[:, 1].mean()),
        "blind": BLIND_RETURN,
        "optimum": sum(best) / 2,
        "ceiling": None if budget is None or radius is None else ceiling(budget, radius),
    }


@lru_cache(1)
def optima() -> tuple[float, float]:
    """The best expected return in the task and in its mirror, by backward induction on a grid.

    Policies may depend on the time left. Values between grid points are interpolated.
    """
    size, draws = 401, 200
    grid = np.linspace(0.0, 1.0, size)
    moves = 0.25 * (np.arange(draws) + 0.5) / draws
    after = [np.clip(grid[:, None] + sign * moves, 0.0, 1.0) for sign in (1.0, -1.0)]
    found = []
    for task in TASKS:
        reward = np.asarray(task.reward(jnp.asarray(grid)), np.float64)
        value = np.zeros(size)
        for _ in range(STEPS):
            value = np.max(
                [np.interp(led, grid, reward + value).mean(axis=1) for led in after], axis=0
            )
        found.append(float(np.trapezoid(value, grid)))
    return found[0], found[1]


def ceiling(budget: Budget, radius: float) -> float:
    """The best mean over both tasks that any learner with this budget and radius can have."""
    task, mirror = optima()
    total = 2.0 * BLIND_RETURN
    worth = [[task, total - mirror], [total - task, mirror]]
    apart = limits.steps_between(REWARD_RANGE[1] - REWARD_RANGE[0], radius)
    return limits.ceiling(worth, budget, [[1, apart], [apart, 1]])
