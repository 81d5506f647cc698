"""The square with obstacles: it moves as the grid does, and lands anywhere in a cell."""

from dataclasses import fields
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.data.collection import collect
from privrl.data.policies import FunctionPolicy
from privrl.envs import ObstacleGrid, ObstacleSquare, make, random_policy, rollout
from privrl.envs.base import Box
from privrl.privacy import InputError
from tests.statistics import follows

# Compiling takes longer than running.
pytestmark = pytest.mark.usefixtures("compiled_quickly")

KEY = jax.random.key(11)
AT_RANDOM = random_policy(4)


def test_it_has_the_settings_of_the_grid() -> None:
    def settings(kind: Any) -> list[Any]:
        return [(one.name, one.type, one.default) for one in fields(kind)]

    assert settings(ObstacleSquare) == settings(ObstacleGrid)
    assert make("ObstacleSquare", size=5, obstacles=[[1, 2, 3]]) == ObstacleSquare(
        5, ((1, 2, 3.0),)
    )
    assert ObstacleSquare.published_code().grid == ObstacleGrid.published_code()
    assert ObstacleSquare().observation == Box((0.0, 0.0), (10.0, 10.0), ("x", "y"))
    with pytest.raises(InputError, match="intended must be from 0 to 1"):
        ObstacleSquare(intended=2.0)


@pytest.mark.parametrize("square", [ObstacleSquare(), ObstacleSquare.published_code()])
def test_a_step_is_the_grids(square: ObstacleSquare) -> None:
    """From every cell, by every action, at the middle of every stretch of probability."""
    grid = square.grid
    tables = grid.tables
    bounds = np.concatenate([np.zeros((100, 4, 1)), tables.params().cumulative], axis=2)
    middles = (bounds[..., 1:] + bounds[..., :-1]) / 2
    states, actions, ways = (axis.ravel() for axis in np.indices(middles.shape))
    rng = np.random.default_rng(0)
    points = np.stack([states % 10, states // 10], axis=1) + rng.random((len(states), 2))
    probs = np.column_stack([middles.ravel(), rng.random((len(states), 2))])

    @jax.jit
    @jax.vmap
    def one(prob: jax.Array, point: jax.Array, action: jax.Array) -> Any:
        return square._advance(prob, square.state_at(point), action, square.default_params)

    with jax.enable_x64(True):
        after = one(jnp.asarray(probs), jnp.asarray(points), jnp.asarray(actions))
        cells = np.asarray(square.cells(after.observation))
    real = tables.probabilities[states, actions, ways] > 0.0
    for found, table in (
        (cells, tables.successors),
        (after.reward, tables.rewards),
        (after.terminated, tables.terminated),
    ):
        np.testing.assert_array_equal(np.asarray(found)[real], table[states, actions, ways][real])
    # Where in the cell: exactly what the probability says.
    inside = np.asarray(after.observation) - np.stack([cells % 10, cells // 10], axis=1)
    np.testing.assert_allclose(inside, probs[:, 1:], atol=1e-14)


def test_places_are_uniform_and_new() -> None:
    square = ObstacleSquare(intended=1.0)
    rows = jax.jit(partial(rollout, square, AT_RANDOM, steps=5_000))(KEY)[1]
    before, after = (
        np.asarray(points, np.float64) % 1.0 for points in (rows.observation, rows.next_observation)
    )
    for places in (before[:, 0], before[:, 1], after[:, 0], after[:, 1]):
        assert follows(places, lambda x: np.clip(x, 0.0, 1.0))
    # The sum of two independent uniform places, modulo 1, is uniform; of the same place it is not.
    for other in (after[:, 0], after[:, 1], before[:, 1]):
        assert follows((before[:, 0] + other) % 1.0, lambda x: np.clip(x, 0.0, 1.0))
    cells = np.asarray(square.cells(rows.observation))
    assert cells[0] == 0
    assert len(set(cells.tolist())) > 50


def test_a_place_never_rounds_into_the_next_cell() -> None:
    square = ObstacleSquare(size=300, obstacles=())
    last = jnp.asarray([[1.0 - 2.0**-24, 0.0]], jnp.float32)
    with jax.enable_x64(False):
        cells = jnp.asarray([7, 255, 300 * 255 + 255, 300 * 300 - 1])
        landed = jax.vmap(square._point_in_cell, (0, None))(cells, last[0])
        np.testing.assert_array_equal(square.cells(landed), cells)
    # Points on the far edge belong to the last cell.
    assert int(square.cells(jnp.asarray([300.0, 300.0]))) == 300 * 300 - 1


def test_it_runs_like_any_other() -> None:
    square = ObstacleSquare(size=3, obstacles=((1, 1, 5.0),), step_limit=30)
    logged = collect(square, FunctionPolicy(_evenly, 4), 200, 3)
    assert logged.num_trajectories == 200
    steps = logged.transitions()
    cells = np.asarray(square.cells(steps.next_states))
    np.testing.assert_array_equal(steps.bootstraps == 0.0, cells == 8)
    paid = np.where(cells == 8, 0.0, np.where(cells == 4, -5.0, -1.0))
    np.testing.assert_array_equal(logged.rewards, paid)
    # Some reach the target, and some run out of time.
    assert 0 < np.sum(logged.lengths == 30) < 200


def _evenly(points: Any) -> Any:
    return jnp.full((len(points), 4), 0.25)


def test_people_can_read_it() -> None:
    square = ObstacleSquare()
    text = square.render(square.state_at(jnp.asarray([4.25, 8.5])))
    assert text.split("\n")[-1] == "at (4.25, 8.50)"
    assert text.split("\n")[1].split() == [".", ".", ".", ".", "@", ".", ".", ".", ".", "50"]
