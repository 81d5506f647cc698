"""A table that several tests of the paper's actor-critic use."""

from functools import lru_cache
from typing import Any

import numpy as np

from privrl.envs import TabularMDP


@lru_cache
def small() -> Any:
    """Six states, of which the last two are never met; the fourth may end an episode."""
    rng = np.random.default_rng(5)
    shape = (6, 2, 3)
    successors = rng.integers(4, size=shape)
    return TabularMDP.from_tables(
        successors,
        rng.dirichlet(np.ones(3), shape[:2]),
        rng.uniform(-1.0, 1.0, shape),
        (successors == 3) & (rng.uniform(size=shape) < 0.5),
        np.array([0.5, 0.5, 0.0, 0.0, 0.0, 0.0]),
        step_limit=20,
    )


@lru_cache
def two_parts() -> Any:
    """`small` twice, with other rewards the second time: no episode goes from one to the other."""
    one = small()
    given = one.tables
    return TabularMDP.from_tables(
        np.concatenate([given.successors, given.successors + 6]),
        np.concatenate([given.probabilities, given.probabilities]),
        np.concatenate([given.rewards, -given.rewards]),
        np.concatenate([given.terminated, given.terminated]),
        np.concatenate([given.start, given.start]) / 2.0,
        step_limit=one.step_limit,
    )
