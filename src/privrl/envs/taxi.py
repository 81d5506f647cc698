"""The taxi of Dietterich (2000): fetch a passenger and set them down where they want to go.

A table of our own, because the name of Gymnasium's has changed (`Taxi-v3` until 1.2, `Taxi-v4`
from 1.3) while the table has not. The map of `Taxi-v2`, which Seo and Yang (2020) used, lacks one
wall in the second row.

In all versions a correct pick-up pays -1 like any other step; only the right drop-off pays +20.
"""

from dataclasses import dataclass

import jax
import numpy as np

from privrl.envs import arrays
from privrl.envs.base import EnvState
from privrl.envs.tabular import TableParams, Tables, TabularMDP

# Colons can be driven through and bars cannot.
MAP = ("|R: | : :G|", "| : | : : |", "| : : : : |", "| | : | : |", "|Y| : |B: |")
LEGACY_MAP = ("|R: | : :G|", "| : : : : |", "| : : : : |", "| | : | : |", "|Y| : |B: |")
STOPS = ((0, 0), (0, 4), (4, 0), (4, 3))
NAMES = ("R", "G", "Y", "B")
ACTIONS = ("south", "north", "east", "west", "pick up", "drop off")
RIDING = 4


@dataclass(frozen=True)
class Taxi(TabularMDP):
    """500 states: row, column, passenger (a stop or riding) and destination, in mixed radix."""

    legacy_map: bool = False
    """Whether to drive on the map of `Taxi-v2`."""

    step_limit: int | None = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        arrays.flag("legacy_map", self.legacy_map)

    @property
    def map(self) -> tuple[str, ...]:
        return LEGACY_MAP if self.legacy_map else MAP

    @staticmethod
    def encode(row: int, column: int, passenger: int, destination: int) -> int:
        return ((row * 5 + column) * 5 + passenger) * 4 + destination

    @staticmethod
    def decode(state: int) -> tuple[int, int, int, int]:
        """Row, column, passenger (4 is riding) and destination."""
        return state // 100, state // 20 % 5, state // 4 % 5, state % 4

    def _build(self) -> Tables:
        successors = np.zeros((500, 6, 1), np.int64)
        rewards = np.zeros((500, 6, 1))
        terminated = np.zeros((500, 6, 1), bool)
        start = np.zeros(500)
        for state in range(500):
            _, _, passenger, destination = self.decode(state)
            start[state] = float(passenger != RIDING and passenger != destination)
            for action in range(6):
                outcome = self._outcome(state, action)
                successors[state, action, 0] = outcome[0]
                rewards[state, action, 0] = outcome[1]
                terminated[state, action, 0] = outcome[2]
        ones = np.ones((500, 6, 1))
        return Tables(successors, ones, rewards, terminated, start / start.sum())

    def _outcome(self, state: int, action: int) -> tuple[int, float, bool]:
        row, column, passenger, destination = self.decode(state)
        place = (row, column)
        if action == 0:
            row = min(row + 1, 4)
        elif action == 1:
            row = max(row - 1, 0)
        elif action == 2 and self.map[row][2 * column + 2] == ":":
            column += 1
        elif action == 3 and self.map[row][2 * column] == ":":
            column -= 1
        elif action == 4:
            if passenger == RIDING or place != STOPS[passenger]:
                return state, -10.0, False
            passenger = RIDING
        elif action == 5:
            if passenger != RIDING or place not in STOPS:
                return state, -10.0, False
            if place == STOPS[destination]:
                return self.encode(row, column, destination, destination), 20.0, True
            passenger = STOPS.index(place)  # left standing at the wrong stop
        return self.encode(row, column, passenger, destination), -1.0, False

    def render(self, state: EnvState[jax.Array], params: TableParams | None = None) -> str:
        row, column, passenger, destination = self.decode(int(state.inner))
        rows = [list(line) for line in self.map]
        rows[row][2 * column + 1] = "@"
        waiting = "riding" if passenger == RIDING else f"waiting at {NAMES[passenger]}"
        lines = ["+---------+", *("".join(line) for line in rows), "+---------+"]
        return "\n".join([*lines, f"passenger {waiting}, going to {NAMES[destination]}"])
