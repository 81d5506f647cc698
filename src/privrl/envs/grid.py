"""The square with obstacles of Rajabi et al. (2022), on which agents weigh risks.

From the bottom left to the top right corner, past four obstacles of which some cost more than
others. The authors' code differs from their text in places; the defaults follow the text, and the
fields below switch to the code (`published_code()` switches all).
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.envs import arrays
from privrl.envs.base import EnvState
from privrl.envs.tabular import TableParams, Tables, TabularMDP

MOVES = ((-1, 0), (1, 0), (0, 1), (0, -1))
ACTIONS = ("left", "right", "up", "down")
OBSTACLES = ((9, 8, 50.0), (4, 8, 25.0), (5, 5, 10.0), (3, 5, 5.0))


@dataclass(frozen=True)
class ObstacleGrid(TabularMDP):
    """States are cells, x + size * y with y upwards; actions are left, right, up, down.

    An action that the grid allows goes where it says with probability `intended`; the rest is
    shared evenly by the other neighbours in the grid. Rewards are minus the paper's costs.
    """

    size: int = 10
    """Cells on each side."""

    obstacles: tuple[tuple[int, int, float], ...] = OBSTACLES
    """(x, y, penalty) of each; the paper's Table I has the penalties, its Fig. 1 the places."""

    intended: float = 0.9

    step_cost: float = 1.0
    """What a step costs that meets no obstacle; the text is silent, the code says 1."""

    blocked: Literal["stay", "neighbours"] = "stay"
    """What an action does that would leave the grid: nothing (text), or go to any neighbour, all
    equally likely (code)."""

    penalty_on: Literal["enter", "leave"] = "enter"
    """Whether an obstacle's penalty falls due on entering its cell, or on each step out of it
    (code). It takes the place of the step's cost. The text says "when encountering"."""

    step_limit: int | None = 400
    """The horizon of the code's evaluations; it trains on episodes of 20 steps."""

    def __post_init__(self) -> None:
        if checks.count("size", self.size) < 2:
            raise InputError(
                "must be at least 2: the start and the target are two cells.", field="size"
            )
        arrays.share("intended", self.intended)
        arrays.finite("step_cost", self.step_cost)
        arrays.choice("blocked", self.blocked, "stay", "neighbours")
        arrays.choice("penalty_on", self.penalty_on, "enter", "leave")
        super().__post_init__()
        rows = arrays.floats("obstacles", self.obstacles)
        rows = rows if rows.size else np.zeros((0, 3))
        if rows.ndim != 2 or rows.shape[1] != 3 or not np.all(np.isfinite(rows)):
            raise InputError(
                "must be rows of finite numbers: x, y and a penalty.", field="obstacles"
            )
        places = [(int(x), int(y)) for x, y in arrays.integers("places of obstacles", rows[:, :2])]
        for x, y in places:
            if not (0 <= x < self.size and 0 <= y < self.size):
                raise InputError(f"the obstacle at ({x}, {y}) is outside the grid.")
            if (x, y) in ((0, 0), (self.size - 1, self.size - 1)):
                raise InputError(f"the obstacle at ({x}, {y}) stands on the start or the target.")
        if len(set(places)) < len(places):
            raise InputError("two obstacles stand in the same cell.")
        # Tuples, because an environment must have a hash to be compiled for.
        pairs = zip(places, rows[:, 2], strict=True)
        tidy = tuple((x, y, float(penalty)) for (x, y), penalty in pairs)
        object.__setattr__(self, "obstacles", tidy)

    @classmethod
    def published_code(cls) -> "ObstacleGrid":
        """The grid as the authors' code has it, rather than their text."""
        return cls(blocked="neighbours", penalty_on="leave")

    def cell(self, x: int, y: int) -> int:
        return x + self.size * y

    def position(self, cell: ArrayLike, key: jax.Array | None = None) -> jax.Array:
        """(x, y) of a cell's centre, or with a key of a uniform point in it, as in the paper."""
        cells = jnp.asarray(cell)
        corner = jnp.stack([cells % self.size, cells // self.size], axis=-1)
        inside = 0.5 if key is None else jax.random.uniform(key, corner.shape)
        return corner + inside

    def _build(self) -> Tables:
        n = self.size
        states, target = n * n, n * n - 1
        penalties = {self.cell(x, y): float(penalty) for x, y, penalty in self.obstacles}
        successors = np.zeros((states, 4, 4), np.int64)
        probabilities = np.zeros((states, 4, 4))
        for state in range(states):
            x, y = state % n, state // n
            ways = [(x + dx, y + dy) for dx, dy in MOVES]
            allowed = [0 <= i < n and 0 <= j < n for i, j in ways]
            open_ways = sum(allowed)
            for k, (i, j) in enumerate(ways):
                # An impossible neighbour keeps its place in the row, with probability 0.
                successors[state, :, k] = self.cell(i, j) if allowed[k] else state
            for action in range(4):
                row = probabilities[state, action]
                if state == target:
                    successors[state, action] = state
                    row[0] = 1.0
                elif allowed[action]:
                    row[:] = np.where(allowed, (1.0 - self.intended) / (open_ways - 1), 0.0)
                    row[action] = self.intended
                elif self.blocked == "stay":
                    row[action] = 1.0
                else:
                    row[:] = np.where(allowed, 1.0 / open_ways, 0.0)
        costs = np.full(states, self.step_cost)
        for cell, penalty in penalties.items():
            costs[cell] = penalty
        if self.penalty_on == "enter":
            # Bumping into the wall of an obstacle's cell is meeting the obstacle again.
            rewards = -costs[successors]
        else:
            rewards = np.broadcast_to(-costs[:, None, None], successors.shape).copy()
        terminated = successors == target
        rewards[terminated] = 0.0
        start = np.zeros(states)
        start[0] = 1.0
        return Tables(successors, probabilities, rewards, terminated, start)

    def render(self, state: EnvState[jax.Array], params: TableParams | None = None) -> str:
        n, here = self.size, int(state.inner)
        penalties = {self.cell(x, y): penalty for x, y, penalty in self.obstacles}
        lines = []
        for y in reversed(range(n)):
            row = []
            for x in range(n):
                cell = self.cell(x, y)
                label = f"{penalties[cell]:g}" if cell in penalties else "."
                label = {0: "S", n * n - 1: "T"}.get(cell, label)
                row.append(f"{'@' if cell == here else label:>3}")
            lines.append("".join(row))
        return "\n".join([*lines, f"at ({here % n}, {here // n})"])
