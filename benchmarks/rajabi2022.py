"""Certified learning on the square with obstacles of Rajabi et al. (2022): what privacy leaves.

The secret is what every cell costs. A learner of `privrl.control.ProspectQ` gets a budget and a
radius; its policy is then judged *exactly*, on the grid's tables and without a roll-out:

- "cpt_value": the nested CPT value at the start (`privrl.risk.solve` of the policy);
- "visits": how often each obstacle is entered in an episode of at most `HORIZON` steps, in the
  order of `ObstacleGrid.obstacles`, whose penalties are 50, 25, 10 and 5;
- "reaches_target": the probability that the target is reached within that time.

Beside them are the CPT values of the best policy ("optimum"), of the best one for somebody who goes
by the mean ("neutral"), and of taking any action equally often ("blind"), which needs no rewards.

With the paper's prospect and gamma 0.9 the value at the start says little: losses are nested, so
that later ones hardly count, and the best policy is worth 0.05 % more than the blind one. With the
loss aversion that Tversky and Kahneman found, 2.25, the two are far apart. Rows are plain
dictionaries, for JSON.

Settings were chosen on seeds 0 to 9; what is reported is from seeds 100 to 119. Table I and
Figure 2 as the paper has them are `privrl reproduce rajabi2022`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from privrl.control import ProspectQ
from privrl.core.types import Floats
from privrl.envs import ObstacleGrid, TabularMDP
from privrl.papers.rajabi2022.printed import HORIZON
from privrl.privacy.promise import Budget
from privrl.privacy.session import PrivacySession
from privrl.risk import Prospect, parse_prospect, solve

Row = dict[str, Any]

SEEDS = range(100, 120)
GAMMA = 0.9
DELTA = 1e-6
EPSILONS = (1.0, 10.0)
RADII = (0.01, 0.03, 0.1, 0.3, 1.0)
PROSPECTS = ("rajabi2022", "tversky-kahneman")
REWARD_RANGE = (-50.0, 0.0)
LEARNERS: dict[str, ProspectQ] = {
    "reward model": ProspectQ(gamma=GAMMA, reward_range=REWARD_RANGE),
    "updates": ProspectQ(gamma=GAMMA, reward_range=REWARD_RANGE, release="updates"),
}
"""All without a budget yet. The noise of "updates" is the same for every radius."""


def certified_rows(
    seeds: Sequence[int] = SEEDS,
    *,
    epsilons: Iterable[float] = EPSILONS,
    radii: Iterable[float] = RADII,
    learners: Iterable[str] = tuple(LEARNERS),
    prospects: Iterable[str] = PROSPECTS,
    env: ObstacleGrid | None = None,
) -> Iterator[Row]:
    """For each prospect, learner, budget and radius; "updates" have the widest radius only."""
    for prospect, name, epsilon in product(prospects, learners, epsilons):
        learner = replace(LEARNERS[name], prospect=parse_prospect(prospect))
        modelled = learner.release == "reward-model"
        for radius in radii if modelled else (None,):
            paid = replace(learner, budget=Budget(epsilon, DELTA), reward_radius=radius)
            about = {"prospect": prospect, "learner": name, "epsilon": epsilon}
            yield evaluate_runs(paid, seeds, {**about, "radius": paid.radius}, env)


def without_noise(
    seeds: Sequence[int] = SEEDS,
    learner: str = "reward model",
    prospect: str = "rajabi2022",
    env: ObstacleGrid | None = None,
) -> Row:
    """The same learner without a budget."""
    about = {"prospect": prospect, "learner": learner, "epsilon": None, "radius": None}
    return evaluate_runs(
        replace(LEARNERS[learner], prospect=parse_prospect(prospect)), seeds, about, env
    )


def evaluate_runs(
    learner: ProspectQ, seeds: Sequence[int], about: Row, env: ObstacleGrid | None = None
) -> Row:
    """Means over seeded runs of one learner, and what to compare them with."""
    grid = env or ObstacleGrid()
    states = np.arange(grid.num_states)
    found = []
    for seed in seeds:
        policy = learner.learn(grid, session=PrivacySession(seed=seed)).probabilities(states)
        found.append([start_value(grid, learner.prospect, policy), *visits(grid, policy)])
    runs = np.array(found)
    error = runs[:, 0].std(ddof=1) / math.sqrt(len(runs)) if len(runs) > 1 else math.nan
    *entered, arrives = runs[:, 1:].mean(axis=0).tolist()
    return {
        **about,
        "release": learner.release,
        "delta": None if learner.budget is None else learner.budget.delta,
        "seeds": len(runs),
        "cpt_value": float(runs[:, 0].mean()),
        "error": None if math.isnan(error) else float(error),
        "worst": float(runs[:, 0].min()),
        "visits": entered,
        "reaches_target": arrives,
        **references(grid, learner.prospect),
    }


# --- judging --------------------------------------------------------------------------------------


@lru_cache(16)
def references(env: ObstacleGrid, prospect: Prospect) -> Row:
    """CPT values at the start of policies to compare with, and the best one's visits."""
    best = solve(env, prospect, GAMMA).policy
    neutral = solve(env, Prospect.neutral(), GAMMA).policy
    *entered, _ = visits(env, best)
    return {
        "optimum": start_value(env, prospect, best),
        "neutral": start_value(env, prospect, neutral),
        "blind": start_value(env, prospect, env.uniform()),
        "visits_of_the_best": entered,
    }


def start_value(env: TabularMDP, prospect: Prospect, policy: Floats) -> float:
    """The nested CPT value of a policy (S, A) where episodes start."""
    values = solve(env, prospect, GAMMA, policy=policy).values
    return float(env.tables.start @ values)


def visits(env: ObstacleGrid, policy: Floats, horizon: int = HORIZON) -> list[float]:
    """Expected entries into each obstacle within so many steps, and last the probability to
    arrive."""
    entries = env.visits(policy, horizon)
    target = env.num_states - 1
    cells = [*(env.cell(x, y) for x, y, _ in env.obstacles), target]
    return [float(entries[cell]) for cell in cells]


def run() -> Iterator[Row]:
    for prospect in PROSPECTS:
        for learner in LEARNERS:
            yield without_noise(SEEDS, learner, prospect)
    yield from certified_rows()
