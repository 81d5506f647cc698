"""Certified learning on the square with obstacles, on a small one, against exact answers."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks import rajabi2022 as certified
from privrl.envs import ObstacleGrid
from privrl.risk import Prospect, solve

SMALL = ObstacleGrid(size=3, obstacles=((1, 1, 20.0), (2, 1, 5.0)))


def _simulated(policy: Any, episodes: int) -> Iterator[tuple[list[int], bool]]:
    """Plain episodes of at most 15 steps: entries into each obstacle, and whether they arrived."""
    draw, tables = np.random.default_rng(0), SMALL.tables
    cells = [SMALL.cell(x, y) for x, y, _ in SMALL.obstacles]
    for _ in range(episodes):
        state, entered, arrived = 0, [0, 0], False
        for _ in range(15):
            action = draw.choice(4, p=policy[state])
            k = draw.choice(4, p=tables.probabilities[state, action])
            arrived = bool(tables.terminated[state, action, k])
            state = int(tables.successors[state, action, k])
            entered = [n + (state == cell) for n, cell in zip(entered, cells, strict=True)]
            if arrived:
                break
        yield entered, arrived


def test_visits_are_those_of_roll_outs() -> None:
    policy = SMALL.uniform()
    *entered, arrives = certified.visits(SMALL, policy, horizon=15)
    found = list(_simulated(policy, 2000))
    seen = np.array([[*counts, arrived] for counts, arrived in found], float)
    errors = seen.std(axis=0) / len(seen) ** 0.5
    assert np.all(np.abs(seen.mean(axis=0) - [*entered, arrives]) < 5.0 * errors)
    assert np.all(errors > 0.0)


def test_values_at_the_start_are_ordered() -> None:
    prospect = Prospect.tversky_kahneman()
    found = certified.references(SMALL, prospect)
    assert found["optimum"] == pytest.approx(
        solve(SMALL, prospect, certified.GAMMA).values[0], abs=1e-9
    )
    assert found["optimum"] >= found["neutral"] > found["blind"]


@pytest.mark.slow
def test_a_row_says_what_privacy_left() -> None:
    (row,) = certified.certified_rows(
        [0],
        epsilons=[10.0],
        radii=[1e-3],
        learners=["reward model"],
        prospects=["tversky-kahneman"],
        env=SMALL,
    )
    assert json.loads(json.dumps(row)) == row
    assert (row["epsilon"], row["radius"], row["seeds"]) == (10.0, 1e-3, 1)
    assert row["optimum"] - 0.05 < row["cpt_value"] <= row["optimum"] + 1e-9
    assert row["reaches_target"] > 0.99
    assert len(row["visits"]) == 2


@pytest.mark.slow
def test_much_noise_leaves_little() -> None:
    names: dict[str, Any] = {"prospects": ["tversky-kahneman"], "epsilons": [1.0], "env": SMALL}
    (noisy,) = certified.certified_rows([0, 1], radii=[50.0], learners=["reward model"], **names)
    (updated,) = certified.certified_rows([0, 1], learners=["updates"], **names)
    exact = certified.without_noise([0], prospect="tversky-kahneman", env=SMALL)
    assert exact["cpt_value"] > exact["optimum"] - 0.05
    assert exact["epsilon"] is exact["delta"] is None
    assert updated["radius"] == 50.0
    for row in (noisy, updated):
        assert row["cpt_value"] < exact["cpt_value"] - 0.05
        assert row["error"] is not None
