"""Certified learning on the interval of Wang and Hegde (2019): what privacy leaves of the return.

The paper judges on one task, on which a constant policy is private and best. Here the secret is
which of *two* tasks it is: r(s) = 0.5 - |s - 0.5|, or its mirror 0.5 - r(s). They are 0.5 apart, so
a learner with radius R must not tell them apart better than over ceil(0.5 / R) steps between
neighbours. Figures are means over both tasks of the return, undiscounted over 50 steps, on 2,000
fresh episodes. A policy that does not look earns 12.5: what it gets in one task it loses in the
other, since the two returns add up to 25.

The ceiling is that of `privrl.audit.limits`, for any learner with this budget. All policies lie on
the line between the best of either task (the returns add up to 25), so these two are all the
decisions there are.

Rows are plain dictionaries, for JSON.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from privrl.audit import limits
from privrl.control import Descent, FunctionalQ, Network
from privrl.data import Policy
from privrl.data.policies import choose
from privrl.envs import Interval
from privrl.envs.base import episodes
from privrl.envs.control import IntervalParams
from privrl.privacy.promise import Budget
from privrl.privacy.session import PrivacySession

Row = dict[str, Any]

DELTA = 1e-4
EPSILONS = (0.9, 0.45)
RADII = (0.01, 0.03, 0.1, 0.3, 1.0)
REWARD_RANGE = (0.0, 0.5)
BLIND_RETURN = 12.5
STEPS = 50
EVAL_EPISODES = 2000
"""Fresh episodes for each learned policy."""

# Policies are looked up at so many positions, 0 and 1 included.
_POSITIONS = 2001


@dataclass(frozen=True)
class MirroredInterval(Interval):
    """The interval with rewards 0.5 - r: best at either end."""

    def reward(self, position: jax.Array, params: IntervalParams | None = None) -> jax.Array:
        given = params or self.default_params
        return jnp.asarray(given.height - super().reward(position, given))


TASKS: tuple[Interval, ...] = (Interval(), MirroredInterval())


_NETWORK = FunctionalQ(
    release="updates", reward_range=REWARD_RANGE, planner="network", network=Network((16,))
)
LEARNERS: dict[str, FunctionalQ] = {
    "reward model": FunctionalQ(reward_range=REWARD_RANGE),
    "noise on weights": FunctionalQ(release="weights", reward_range=REWARD_RANGE),
    "network, scaled updates": _NETWORK,
    "rewards perturbed": FunctionalQ(release="rewards", reward_range=REWARD_RANGE),
    "DP-SGD": replace(
        _NETWORK,
        descent=Descent(300, 0.02, 500, clip=0.05, target_every=5, optimiser="adam", average=0.3),
    ),
    "policy iteration": FunctionalQ(release="evaluations", reward_range=REWARD_RANGE),
}
"""All without a budget yet. The last three are the baselines of Figure 2, in a form that holds."""


def certified_rows(
    seeds: Sequence[int] = range(100, 120),
    *,
    epsilons: Iterable[float] = EPSILONS,
    radii: Iterable[float] = RADII,
    learners: Iterable[str] = tuple(LEARNERS),
) -> Iterator[Row]:
    """Returns over both tasks, for each learner, budget and radius, and the ceiling."""
    for name, epsilon, radius in product(learners, epsilons, radii):
        learner = replace(LEARNERS[name], budget=Budget(epsilon, DELTA), reward_radius=radius)
        yield _row(learner, seeds, {"learner": name, "epsilon": epsilon, "radius": radius})


def without_noise(seeds: Sequence[int] = range(100, 120), learner: str = "reward model") -> Row:
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


# --- judging --------------------------------------------------------------------------------------


def mean_return(task: Interval, policy: Policy, seed: int) -> float:
    """The mean return of fresh episodes, the policy looked up on a fine grid of positions."""
    positions = np.linspace(0.0, 1.0, _POSITIONS)[:, None]
    table = np.asarray(policy.probabilities(positions), np.float32)
    # Learning draws from other streams of the seed.
    key = jax.random.fold_in(jax.random.key(seed), 2019)
    return float(_returns(task, jnp.asarray(table), key))


@partial(jax.jit, static_argnums=0)
def _returns(task: Interval, table: jax.Array, key: jax.Array) -> jax.Array:
    def act(key: jax.Array, observation: jax.Array) -> jax.Array:
        at = jnp.round(observation[0] * (_POSITIONS - 1)).astype(jnp.int32)
        probs = table[at]
        chosen = choose(jnp, probs, jax.random.uniform(key, (), probs.dtype))
        return jnp.asarray(chosen, jnp.int32)

    played = episodes(task, act, key, EVAL_EPISODES)
    earned = jnp.where(played.valid, played.transitions.reward, 0.0)
    return jnp.asarray(jnp.mean(jnp.sum(earned, axis=1)))


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
