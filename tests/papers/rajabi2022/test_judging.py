"""Exact visits of policies on the square of Rajabi et al. (2022)."""

from typing import Any, get_args

import jax
import numpy as np
import pytest

from privrl.envs import ObstacleSquare, episodes
from privrl.papers.rajabi2022 import judging as paper
from privrl.privacy import InputError
from privrl.risk import solve

KEY = jax.random.key(8)


def test_best_policies_hardly_visit_obstacles() -> None:
    """Until the target; who goes on past it stays next to the obstacle of 50."""
    for preset in get_args(paper.Preset):
        judge = paper.PolicyEvaluator(paper.make_env(preset))
        for objective, prospect in paper.PROSPECTS.items():
            best = solve(judge.grid, prospect, 0.9).policy
            steps = judge.cell_visits(best)
            assert max(steps[judge.obstacles]) < 0.02
            assert objective == "CPT" or steps[-1] == pytest.approx(1.0)
            assert judge.cell_visits(best, past_target=True)[judge.obstacles[0]] > 10.0


@pytest.mark.slow
def test_a_policy_of_points_visits_like_its_mean() -> None:
    """Against roll-outs in the square, of a policy that depends on the place in a cell."""
    square = ObstacleSquare(obstacles=((2, 1, 50.0), (1, 3, 25.0)), size=4, step_limit=400)
    judge = paper.PolicyEvaluator(square)

    def likely(points: Any) -> Any:
        inside = points - np.floor(points)
        up = 0.2 + 0.5 * (inside[:, 0] > 0.5)
        return np.stack([0.05 + 0 * up, 0.9 - up, up, 0.05 + 0 * up], axis=1)

    table = judge.tables(likely(judge.points))
    np.testing.assert_allclose(table, np.tile([0.05, 0.45, 0.45, 0.05], (16, 1)))
    bounds = np.array([0.05, 0.05, 0.95])

    def policy(key: jax.Array, point: jax.Array) -> jax.Array:
        up = 0.2 + 0.5 * (point[0] % 1.0 > 0.5)
        below = jax.numpy.asarray(bounds) + jax.numpy.asarray([0.0, 0.9, 0.0]) - up * np.eye(3)[1]
        return jax.numpy.sum(jax.random.uniform(key) >= below, dtype=np.int32)

    count = 2_000
    played = jax.jit(lambda key: episodes(square, policy, key, count, steps=60))(KEY)
    cells = np.asarray(square.cells(played.transitions.next_observation))
    valid = np.asarray(played.valid)
    exact = judge.cell_visits(table)[judge.obstacles]
    for cell, truth in zip(judge.obstacles, exact, strict=True):
        visits = np.sum((cells == cell) & valid, axis=1)
        assert abs(visits.mean() - truth) < 4.9 * visits.std() / np.sqrt(count)


def test_steps_are_counted_where_they_end() -> None:
    """Straight to the obstacle of 50 and through it, if every action does what it says."""
    square = ObstacleSquare(intended=1.0)
    judge = paper.PolicyEvaluator(square)
    right, up = np.eye(4)[1], np.eye(4)[2]
    policy = np.array([right if cell % 10 < 9 else up for cell in range(100)])
    steps = judge.cell_visits(policy)
    assert steps[judge.obstacles].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert steps.sum() == 18.0  # of which the last ends at the target
    assert steps[-1] == 1.0


def test_past_the_target_all_rows_are_distributions() -> None:
    for preset in get_args(paper.Preset):
        judge = paper.PolicyEvaluator(paper.make_env(preset))
        policy = np.random.default_rng(0).dirichlet(np.ones(4), 100)
        onward = judge._transitions_past_target(policy)
        np.testing.assert_allclose(onward.sum(axis=1), 1.0)
        # The target leads to its two neighbours, or stays if the text is followed.
        assert set(np.flatnonzero(onward[-1])) <= {98, 89, 99}
        # Left from the target is what right is from the start: intended, or the other way.
        stays = policy[99, 1] + policy[99, 2] if preset == "printed" else 0.0
        assert onward[99, 99] == pytest.approx(stays)
        one = np.zeros((100, 4))
        one[:, 0] = 1.0
        assert judge._transitions_past_target(one)[99, 98] == pytest.approx(0.9)


def test_presets_have_names() -> None:
    with pytest.raises(InputError, match="preset must be"):
        paper.make_env("notebook")  # type: ignore[arg-type]
