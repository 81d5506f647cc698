"""Settings of Table I of Rajabi et al. (2022), and exact visits of the policies that are learned.

The printed weights, and the public code, raise negative numbers to fractional powers
(`privrl.papers.rajabi2022.algorithm` has the list), so that what was run for the paper is not
known. Here the estimator is the corrected one, on the square of the text or on that of the code.

Nothing is rolled out. Where in its cell a point lies is drawn afresh in every step, so that a
policy of points visits cells like its mean over the points of each cell, of which there are
`POINTS` here, evenly placed; the tables of the grid do the rest. A visit is a step that ends in the
obstacle's cell. A roll-out ends at the target; that of the public code does not, and goes on past
it, next to the obstacle of 50.
"""

import math
from typing import Literal, get_args

import numpy as np

from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs import ObstacleSquare
from privrl.envs.grid import ObstacleGrid
from privrl.papers.rajabi2022.learner import ProspectQ
from privrl.papers.rajabi2022.printed import HORIZON, Objective
from privrl.papers.rajabi2022.spec import Acting
from privrl.risk import Prospect

Preset = Literal["printed", "public-code"]

RATE = 1.0
"""beta of the public code, since Theorem 1 says nothing of these sigmas."""

POINTS = 16
"""Points of each cell that a policy's mean is over: a lattice of four by four."""

PROSPECTS: dict[Objective, Prospect] = {
    "CPT": Prospect.rajabi2022(),
    "expectation": Prospect.neutral(),
}


def make_env(preset: Preset) -> ObstacleSquare:
    """Where it is learned: as in the text, or as in the code."""
    if preset not in get_args(Preset):
        raise InputError(f"must be 'printed' or 'public-code', not {preset!r}.", field="preset")
    return ObstacleSquare() if preset == "printed" else ObstacleSquare.published_code()


def learner(preset: Preset, objective: Objective, acting: Acting) -> ProspectQ:
    """The settings of a row but for its sigma."""
    make = ProspectQ.printed if preset == "printed" else ProspectQ.public_code
    return make(sigma=0.0, rate=RATE, prospect=PROSPECTS[objective], acting=acting)


class PolicyEvaluator:
    """Exact visits of policies of points, on the tables of a grid."""

    def __init__(self, env: ObstacleSquare) -> None:
        self.grid: ObstacleGrid = env.grid
        side = math.isqrt(POINTS)
        inside = (np.indices((side, side)).reshape(2, -1).T + 0.5) / side
        corners = np.asarray(self.grid.position(np.arange(env.size**2))) - 0.5
        self.points: Floats = (corners[:, None] + inside).reshape(-1, 2)
        self.obstacles = [self.grid.cell(x, y) for x, y, _ in self.grid.obstacles]

    def tables(self, probs: Floats) -> Floats:
        """(..., cells, actions): means over the points of each cell, of (..., points, actions)."""
        split = probs.reshape(*probs.shape[:-2], self.grid.num_states, -1, probs.shape[-1])
        return np.asarray(split.mean(axis=-2))

    def cell_visits(self, policy: Floats, *, past_target: bool = False) -> Floats:
        """How many of the horizon's steps end in each cell: until the target, or also past it."""
        if not past_target:
            return self.grid.visits(policy, HORIZON)
        matrix = self._transitions_past_target(policy)
        now, total = self.grid.tables.start, np.zeros(self.grid.num_states)
        for _ in range(HORIZON):
            now = now @ matrix
            total += now
        return total

    def _transitions_past_target(self, policy: Floats) -> Floats:
        """The transition matrix of a roll-out that goes on past the target.

        The target is a corner like the start, turned by half a turn, which takes left for right and
        up for down.
        """
        tables, cells = self.grid.tables, self.grid.num_states
        matrix = np.zeros((cells, cells))
        probs = policy[:, :, None] * tables.probabilities
        rows = np.broadcast_to(np.arange(cells)[:, None, None], probs.shape)
        np.add.at(matrix, (rows, tables.successors), probs)
        turned = policy[-1, [1, 0, 3, 2], None] * tables.probabilities[0]
        matrix[-1] = 0.0
        np.add.at(matrix[-1], cells - 1 - tables.successors[0], turned)
        return matrix
