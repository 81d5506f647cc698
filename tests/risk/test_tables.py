"""CPT values of whole decision processes: by hand, by the mean, and their fixed points."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from privrl.core.errors import InputError
from privrl.envs import ObstacleGrid, TabularMDP
from privrl.risk import IdentityWeight, PowerUtility, Prospect, solve

PAPER = Prospect.rajabi2022()
ANYTHING: Any = "ObstacleGrid"


def two_steps() -> TabularMDP:
    """From 0, action 0 pays 1 for certain, action 1 leads to a room that then pays 9 or nothing."""
    successors = np.array([[[3, 3], [1, 2]], [[3, 3], [3, 3]], [[3, 3], [3, 3]], [[3, 3], [3, 3]]])
    probs = np.zeros((4, 2, 2))
    probs[..., 0] = 1.0
    probs[0, 1] = 0.1, 0.9
    rewards = np.zeros((4, 2, 2))
    rewards[0, 0] = 1.0
    rewards[1] = 9.0
    ends = successors == 3
    return TabularMDP.from_tables(successors, probs, rewards, ends, start=[1.0, 0.0, 0.0, 0.0])


def test_values_by_hand() -> None:
    """rho of a sure 1 is 1; the room is worth u(9), and the way there w+(0.1) u(0.9 u(9))."""
    found = solve(two_steps(), PAPER, 0.9)
    room = 9.0**0.88
    gamble = float(PAPER.gain_weight(0.1)) * (0.9 * room) ** 0.88
    assert_allclose(found.action_values[0], [1.0, gamble], rtol=1e-12)
    assert_allclose(found.values[:3], [max(1.0, gamble), room, 0.0], rtol=1e-12)
    assert found.policy[0].argmax() == int(gamble > 1.0)
    both = solve(two_steps(), PAPER, 0.9, np.full((4, 2), 0.5))
    assert both.values[0] == pytest.approx(0.5 * (1.0 + gamble), rel=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_neutral_people_get_the_exact_optimum(gamma: float) -> None:
    grid = ObstacleGrid()
    found, exact = solve(grid, Prospect.neutral(), gamma), grid.optimal(gamma)
    assert_allclose(found.values, exact.values, atol=1e-9)
    assert_allclose(found.action_values, exact.action_values, atol=1e-9)
    assert found.gap <= 1e-9
    uniform = grid.uniform()
    by_policy = solve(grid, Prospect.neutral(), gamma, uniform)
    assert_allclose(by_policy.values, grid.values(uniform, gamma), atol=1e-8)


@pytest.mark.parametrize("gamma", [pytest.param(0.9, marks=pytest.mark.slow), 1.0])
@pytest.mark.parametrize("who", [PAPER, Prospect.tversky_kahneman()], ids=["paper", "standard"])
def test_the_optimum_is_the_only_fixed_point_and_better_than_others(
    who: Prospect, gamma: float
) -> None:
    grid = ObstacleGrid()
    found = solve(grid, who, gamma)
    assert found.gap <= 1e-8
    assert_allclose(solve(grid, who, gamma, found.policy).values, found.values, rtol=1e-9)
    draw = np.random.default_rng(0)
    for _ in range(5):
        other = grid.greedy(draw.integers(4, size=100))
        assert np.all(solve(grid, who, gamma, other).values <= found.values + 1e-8)


def test_losses_contract_in_thompsons_metric() -> None:
    """By the exponent of losses, and not by gamma, as the proof says."""
    from privrl.risk.tables import backup

    draw, grid = np.random.default_rng(1), ObstacleGrid(step_cost=2.0)
    inside = np.flatnonzero(~np.all(grid.tables.terminated, axis=(1, 2)))
    for _ in range(20):
        v, w = -np.exp(draw.normal(0.0, 3.0, (2, 100)))
        tv, tw = (backup(grid.tables, PAPER, 1.0, x)[inside] for x in (v, w))
        apart = np.max(np.abs(np.log(v / w)))
        here = (tv < 0.0) & (tw < 0.0)
        assert np.max(np.abs(np.log(tv[here] / tw[here]))) <= 0.88 * apart + 1e-9


def test_where_nothing_is_paid_there_are_three_fixed_points() -> None:
    """The paper's Proposition 1 fails: V = u(0.9 V) has the solutions 0 and +-0.9^(0.88/0.12)."""
    alone = TabularMDP.from_dense(np.ones((1, 1, 1)), np.zeros((1, 1)))
    found = solve(alone, PAPER, 0.9)
    assert found.values[0] == 0.0
    assert found.gap == pytest.approx(2.0 * 0.9 ** (0.88 / 0.12), rel=1e-6)


@pytest.mark.parametrize(
    ("who", "reward", "others"),
    [
        (Prospect.tversky_kahneman(), 1.0, (-2.186856534793102, -389.21951859806154)),
        (Prospect(PowerUtility(reference=-10.0)), -1.0, (-35.7, -313.3)),
    ],
)
def test_fixed_points_on_the_other_side_are_known_of(
    who: Prospect, reward: float, others: tuple[float, float]
) -> None:
    """One state: the value is a gain, and the same T has two fixed points among the losses."""
    from privrl.risk.tables import backup

    alone = TabularMDP.from_dense(np.ones((1, 1, 1)), np.full((1, 1), reward))
    found = solve(alone, who, 0.9)
    assert found.values[0] > 0.0
    assert found.gap == pytest.approx(found.values[0] - others[1], rel=1e-3)
    for other in others:
        assert backup(alone.tables, who, 0.9, np.array([other]))[0, 0] == pytest.approx(
            other, abs=0.1
        )


def test_values_that_alternate_for_ever() -> None:
    """Two states that swap, one pays a little and one costs a little: the least fixed point."""
    from privrl.risk.tables import backup

    swap = np.zeros((2, 1, 2))
    swap[0, 0, 1] = swap[1, 0, 0] = 1.0
    env = TabularMDP.from_dense(swap, np.array([[0.1], [-0.1]]))
    found = solve(env, PAPER, 0.9)
    assert_allclose(backup(env.tables, PAPER, 0.9, found.values)[:, 0], found.values, atol=1e-9)
    assert found.gap > 0.1


def test_a_policy_that_avoids_what_looms_large() -> None:
    """Sure -1, or -20 with probability 1 in 25: the mean takes the gamble, a person does not."""
    successors = np.ones((2, 2, 2), int)
    probs = np.array([[[1.0, 0.0], [0.04, 0.96]], [[1.0, 0.0], [1.0, 0.0]]])
    rewards = np.zeros((2, 2, 2))
    rewards[0, 0], rewards[0, 1, 0] = -1.0, -20.0
    env = TabularMDP.from_tables(successors, probs, rewards, successors == 1, start=[1.0, 0.0])
    assert solve(env, Prospect.neutral(), 1.0).policy[0].argmax() == 1
    assert solve(env, Prospect.tversky_kahneman(), 1.0).policy[0].argmax() == 0


def test_bad_input_gets_one_clear_sentence() -> None:
    grid = ObstacleGrid()
    steep = Prospect(PowerUtility(1.0, 1.0, 3.0), IdentityWeight(), IdentityWeight())
    with pytest.raises(InputError, match="without bound"):
        solve(TabularMDP.from_dense(np.ones((1, 1, 1)), np.full((1, 1), -1.0)), steep, 0.9)
    with pytest.raises(InputError, match="gamma"):
        solve(grid, PAPER, 1.5)
    with pytest.raises(InputError, match="TabularMDP"):
        solve(ANYTHING, PAPER, 0.9)
    with pytest.raises(InputError, match="Prospect"):
        solve(grid, ANYTHING, 0.9)
    with pytest.raises(InputError, match="policy"):
        solve(grid, PAPER, 0.9, np.ones((3, 2)))
