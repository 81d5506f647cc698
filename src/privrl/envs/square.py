"""The square of Rajabi et al. (2022) as they have it: points, where `ObstacleGrid` has cells.

A point moves by its cell: the cell goes where the grid's tables say, and the point lands anywhere
in the cell reached, all places alike. So what is seen is continuous, but the cell is all that
matters of it, and every exact answer about the grid is one about the square: a policy of points is
worth what its mean over the points of each cell is worth on the grid, since where in a cell a point
lies is drawn afresh in every step and does not depend on anything before.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from privrl.envs.base import Box, Environment, EnvState
from privrl.envs.grid import OBSTACLES, ObstacleGrid
from privrl.envs.tabular import TableParams


@dataclass(frozen=True)
class ObstacleSquare(Environment[jax.Array, TableParams]):
    """States and observations are points (x, y) of [0, size]^2; actions are left, right, up, down.

    The fields are those of `ObstacleGrid`, which says what they mean. An episode begins anywhere in
    the cell at the bottom left.
    """

    render_mode: ClassVar[Literal["ansi", "rgb_array"]] = "ansi"

    size: int = 10
    obstacles: tuple[tuple[int, int, float], ...] = OBSTACLES
    intended: float = 0.9
    step_cost: float = 1.0
    blocked: Literal["stay", "neighbours"] = "stay"
    penalty_on: Literal["enter", "leave"] = "enter"
    step_limit: int | None = 400

    def __post_init__(self) -> None:
        # The grid checks them, and makes tuples of what can be.
        object.__setattr__(self, "obstacles", self.grid.obstacles)

    @classmethod
    def published_code(cls) -> "ObstacleSquare":
        """The square as the authors' code has it, rather than their text."""
        return cls(**_settings(ObstacleGrid.published_code()))

    @cached_property
    def grid(self) -> ObstacleGrid:
        """The table that moves the cells."""
        return ObstacleGrid(**_settings(self))

    @property
    def num_actions(self) -> int:
        return self.grid.num_actions

    @property
    def observation(self) -> Box:
        return Box((0.0, 0.0), (float(self.size), float(self.size)), ("x", "y"))

    @property
    def default_params(self) -> TableParams:
        return self.grid.default_params

    def cells(self, points: ArrayLike) -> jax.Array:
        """The numbers of the cells that points (..., 2) lie in, as the grid has them."""
        corner = jnp.clip(jnp.floor(jnp.asarray(points)), 0, self.size - 1).astype(jnp.int32)
        return corner[..., 0] + self.size * corner[..., 1]

    def _point_in_cell(self, cell: jax.Array, inside: jax.Array) -> jax.Array:
        """The point of a cell, from its place inside, (2,) from [0, 1)."""
        corner = self.grid.position(cell) - 0.5
        # Where the corner is large, a place close to 1 would round up into the next cell.
        return jnp.minimum(corner + inside, jnp.nextafter(corner + 1.0, corner))

    def _reset(self, key: jax.Array, params: TableParams) -> jax.Array:
        cell_key, inside_key = jax.random.split(key)
        cell = self.grid._reset(cell_key, params)
        return self._point_in_cell(cell, jax.random.uniform(inside_key, (2,)))

    def _draw(self, key: jax.Array) -> jax.Array:
        """(3,): the grid's random number, and a place inside a cell."""
        return jax.random.uniform(key, (3,))

    def _move(
        self, draw: Any, inner: jax.Array, action: jax.Array, params: TableParams
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        cell = self.cells(inner)
        after, reward, ended = self.grid._move(draw[0], cell, action, params)
        return self._point_in_cell(after, draw[1:]), reward, ended

    def render(self, state: EnvState[jax.Array], params: TableParams | None = None) -> str:
        x, y = (float(value) for value in state.inner)
        drawn = self.grid.render(state._replace(inner=self.cells(state.inner)), params)
        return "\n".join([*drawn.split("\n")[:-1], f"at ({x:.2f}, {y:.2f})"])


def _settings(env: ObstacleGrid | ObstacleSquare) -> dict[str, Any]:
    return {one.name: getattr(env, one.name) for one in fields(ObstacleGrid)}
