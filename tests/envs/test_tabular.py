"""Tables: exact answers against hand calculation, simulation and Gymnasium."""

import math
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from scipy import stats

from privrl.envs import (
    MDP100,
    Chain,
    ObstacleGrid,
    TabularMDP,
    Taxi,
    collect,
    make,
    random_policy,
)
from privrl.envs.grid import OBSTACLES
from privrl.privacy import InputError
from tests.statistics import FALSE_ALARM, follows_discrete

# Compiling takes longer than running.
pytestmark = pytest.mark.usefixtures("compiled_quickly")

KEY = jax.random.key(11)
ONE = random_policy(1)  # one object, so that it is compiled once


def two_states() -> TabularMDP:
    """Stay (reward 1) or leave (reward 0, terminating with probability 3/4, else staying)."""
    return TabularMDP.from_tables(
        successors=[[[0, 1], [1, 0]], [[1, 0], [1, 0]]],
        probabilities=np.array([[[1, 0], [0.75, 0.25]], [[1, 0], [1, 0]]]),
        rewards=[[[1, 0], [0, 2]], [[0, 0], [0, 0]]],
        terminated=[[[False, False], [True, False]], [[True, False], [True, False]]],
        start=[1, 0],
        step_limit=100,
    )


# --- solvers --------------------------------------------------------------------------------------


def test_values_by_hand() -> None:
    mdp = two_states()
    # Always leave: V = 0.25 (2 + g V), so V = 0.5 / (1 - 0.25 g).
    leave = mdp.greedy([1, 0])
    assert mdp.values(leave, 0.8)[0] == pytest.approx(0.5 / (1 - 0.2), rel=1e-12)
    assert mdp.values(leave, 1.0)[0] == pytest.approx(0.5 / 0.75, rel=1e-12)
    # Half and half: V = 0.5 (1 + g V) + 0.5 * 0.25 (2 + g V).
    half = mdp.uniform()
    assert mdp.values(half, 0.8)[0] == pytest.approx(0.75 / (1 - 0.8 * 0.625), rel=1e-12)
    # One action, then the policy.
    value = 0.75 / (1 - 0.8 * 0.625)
    np.testing.assert_allclose(
        mdp.action_values(half, 0.8)[0], [1 + 0.8 * value, 0.5 + 0.2 * value], rtol=1e-12
    )
    assert mdp.start_value(half, 0.8) == pytest.approx(value)


def test_optimal_by_hand() -> None:
    mdp = two_states()
    for gamma in (0.0, 0.5, 0.9):
        found = mdp.optimal(gamma)
        assert found.policy[0].tolist() == [1.0, 0.0]  # staying pays 1 / (1 - g), leaving less
        assert found.values[0] == pytest.approx(1 / (1 - gamma))


def test_optimal_beats_every_deterministic_policy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        dense = rng.dirichlet(np.full(4, 0.5), (4, 3))
        rewards = rng.normal(size=(4, 3, 4))
        mdp = TabularMDP.from_dense(dense, rewards, terminal=[0, 0, 0, 1])
        best = mdp.optimal(0.9).values
        every = [
            mdp.values(mdp.greedy(list(np.unravel_index(i, (3,) * 4))), 0.9) for i in range(81)
        ]
        np.testing.assert_allclose(best, np.max(every, axis=0), rtol=1e-9, atol=1e-9)


def test_undiscounted_values_need_an_end() -> None:
    mdp = two_states()
    with pytest.raises(InputError, match="never terminate"):
        mdp.values(mdp.greedy([0, 0]), 1.0)


def loop(pays: float, *, ends: bool = False) -> TabularMDP:
    """0 goes to 1 for a reward of 1; 1 stays for `pays`, terminating or not; 2 pays 1 for ever."""
    return TabularMDP.from_tables(
        [[[1]], [[1]], [[2]]],
        np.ones((3, 1, 1)),
        [[[1.0]], [[pays]], [[1.0]]],
        [[[False]], [[ends]], [[False]]],
        [1.0, 0.0, 0.0],
    )


def test_undiscounted_values_where_they_exist() -> None:
    """The start's, even if elsewhere nothing ends; and where nothing is paid any more."""
    policy = loop(0.0).uniform()
    assert loop(0.0).start_value(policy, 1.0) == pytest.approx(1.0)
    assert loop(5.0, ends=True).start_value(policy, 1.0) == pytest.approx(6.0)
    for mdp in (loop(0.0), loop(5.0, ends=True)):
        with pytest.raises(InputError, match="never terminate"):
            mdp.values(policy, 1.0)  # state 2 has none
    with pytest.raises(InputError, match="never terminate"):
        loop(5.0).start_value(policy, 1.0)
    # An end that is possible is not an end that is certain.
    fork = TabularMDP.from_tables(
        [[[0, 1]], [[1, 1]]],
        [[[0.5, 0.5]], [[1.0, 0.0]]],
        [[[0.0, 0.0]], [[1.0, 1.0]]],
        [[[True, False]], [[False, False]]],
        [1.0, 0.0],
    )
    with pytest.raises(InputError, match="never terminate"):
        fork.start_value(fork.uniform(), 1.0)
    # A reward that is zero only in the mean is not no reward.
    coin = TabularMDP.from_tables([[[0, 0]]], [[[0.5, 0.5]]], [[[-1.0, 1.0]]])
    with pytest.raises(InputError, match="never terminate"):
        coin.values(coin.uniform(), 1.0)


def test_what_a_policy_lacks_is_no_prob_to_end() -> None:
    """Rows that sum to slightly less than 1 are put right, not taken for termination."""
    mdp = two_states()
    short = mdp.greedy([0, 0]) * (1.0 - 5e-10)
    with pytest.raises(InputError, match="never terminate"):
        mdp.values(short, 1.0)
    soft = jax.nn.softmax(jax.random.normal(KEY, (100, 2)))
    assert soft.dtype == np.float32
    exact = np.asarray(soft, np.float64)
    exact /= exact.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        MDP100().values(soft, 0.99), MDP100().values(exact, 0.99), rtol=1e-12
    )


def choice(stay: float, leave: float) -> TabularMDP:
    """In state 0, stay or leave for a reward each; leaving terminates."""
    return TabularMDP.from_tables(
        [[[0], [1]], [[1], [1]]],
        np.ones((2, 2, 1)),
        [[[stay], [leave]], [[0.0], [0.0]]],
        [[[False], [True]], [[True], [True]]],
        [1.0, 0.0],
    )


def test_undiscounted_optimum() -> None:
    # Staying is as good as leaving later: a tie that must not lead to staying for ever.
    found = choice(0.0, 1.0).optimal(1.0)
    assert found.values[0] == pytest.approx(1.0)
    assert found.policy[0].tolist() == [0.0, 1.0]
    assert choice(-1.0, -7.0).optimal(1.0).values[0] == pytest.approx(-7.0)
    with pytest.raises(InputError, match="rewards can be collected for ever"):
        choice(0.5, 1.0).optimal(1.0)
    with pytest.raises(InputError, match="no end can be reached"):
        loop(5.0).optimal(1.0)
    # Against a discount that hardly matters.
    lake = make("FrozenLake-v1")
    assert isinstance(lake, TabularMDP)
    for mdp in (lake, ObstacleGrid(), MDP100()):
        near = mdp.optimal(1.0 - 1e-9).values
        np.testing.assert_allclose(mdp.optimal(1.0).values, near, rtol=1e-4, atol=1e-6)


def test_tables_belong_to_nobody_else() -> None:
    rewards = np.zeros((1, 1, 1))
    mdp = TabularMDP.from_tables([[[0]]], [[[1.0]]], rewards)
    rewards[:] = 7.0
    assert mdp.tables.rewards[0, 0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        mdp.tables.rewards[0, 0, 0] = 7.0


def test_dense_rewards_in_three_forms() -> None:
    dense = np.full((2, 3, 2), 0.5)
    for given in (4.0, np.full((2, 3), 4.0), np.full((2, 3, 2), 4.0)):
        assert np.all(TabularMDP.from_dense(dense, given).tables.rewards == 4.0)
    by_action = TabularMDP.from_dense(dense, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert by_action.expected_rewards().tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def test_sparse_and_dense_solves_agree() -> None:
    long = Chain(states=1500)
    gamma, n = 0.999, 1499
    factor = 0.5 * gamma / (1 - 0.5 * gamma)
    assert long.values(long.uniform(), gamma)[0] == pytest.approx(factor**n / gamma, rel=1e-9)


def test_dense_tables_keep_their_meaning() -> None:
    rng = np.random.default_rng(1)
    dense = rng.dirichlet(np.ones(5), (5, 2)) * (rng.random((5, 2, 5)) < 0.5)
    dense += 1e-3 * np.eye(5)[:, None, :]
    dense /= dense.sum(axis=2, keepdims=True)
    mdp = TabularMDP.from_dense(dense, 0.0)
    for action in range(2):
        policy = mdp.greedy([action] * 5)
        np.testing.assert_allclose(mdp.transition_matrix(policy), dense[:, action], atol=1e-15)


# --- sampling -------------------------------------------------------------------------------------


def test_successors_and_starts_are_drawn_as_tabled() -> None:
    probs = np.array([0.0, 0.1, 0.0, 0.6, 0.3, 0.0])
    mdp = TabularMDP.from_tables(
        np.tile(np.arange(6), (6, 1, 1)),
        np.tile(probs, (6, 1, 1)),
        np.zeros((6, 1, 6)),
        start=probs[::-1],
        step_limit=1,
    )
    made = collect(mdp, random_policy(1), KEY, 50_000).transitions
    law = {s: p for s, p in enumerate(probs) if p > 0}
    assert follows_discrete(made.next_observation, law)
    assert follows_discrete(made.observation, {5 - s: p for s, p in law.items()})


# --- Chain ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stay", [0.0, 0.5, 0.9])
def test_chain_values_in_closed_form(stay: float) -> None:
    env, gamma = Chain(stay=stay), 0.99
    advance = 1 - stay
    n = 39 - np.arange(39)
    expected = (advance * gamma / (1 - stay * gamma)) ** n / gamma
    np.testing.assert_allclose(env.values(env.uniform(), gamma)[:39], expected, rtol=1e-12)
    assert env.values(env.uniform(), gamma)[39] == 0.0


@pytest.mark.slow
def test_chain_values_by_simulation() -> None:
    env, gamma, count = Chain(), 0.99, 20_000
    returns = collect(env, ONE, KEY, count).returns(gamma)
    # Returns lie in [0, 1]: Hoeffding's inequality at the designed false-alarm rate.
    allowed = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * count))
    assert abs(returns.mean() - env.start_value(env.uniform(), gamma)) < allowed
    # The same bound finds a chain whose states are left only slightly more often.
    other = Chain(stay=0.45)
    assert abs(returns.mean() - other.start_value(other.uniform(), gamma)) > allowed


def test_chain_episodes_take_as_long_as_they_should() -> None:
    """The number of steps from state s is negative binomial."""
    made = collect(Chain(), ONE, KEY, 20_000)
    first, lengths = made.transitions.observation[:, 0], made.lengths
    assert follows_discrete(first, dict.fromkeys(range(39), 1 / 39))
    here = lengths[first == 37]
    law = {k: float(stats.nbinom.pmf(k - 2, 2, 0.5)) for k in range(2, 60)}
    assert follows_discrete(here, law)
    assert made.transitions.terminated[made.valid].sum() == 20_000
    assert np.all(made.returns() == 1.0)


def test_the_chain_may_start_at_its_end() -> None:
    assert Chain().tables.start[39] == 0.0
    np.testing.assert_allclose(Chain(start_at_end=True).tables.start, 1 / 40)
    made = collect(Chain(states=2, start_at_end=True), random_policy(1), KEY, 200)
    there = made.transitions.observation[:, 0] == 1
    assert 0 < there.sum() < 200
    assert np.all(made.lengths[there] == 1)
    assert np.all(made.returns()[there] == 0.0)


# --- MDP100 ---------------------------------------------------------------------------------------


def test_mdp100_by_hand() -> None:
    env = MDP100()
    found = env.optimal(1.0)
    # 99 advances of 1 / 0.9 steps, -1 each, +1 at the end.
    assert found.values[0] == pytest.approx(1 - 99 / 0.9, rel=1e-12)
    assert np.all(found.policy[:99, 1] == 1.0)
    # At random an advance takes 1 / 0.45 steps.
    assert env.start_value(env.uniform(), 1.0) == pytest.approx(1 - 99 / 0.45, rel=1e-12)
    # Discounted: x = E[g^T] of one advance; 1 + ... + g^(T-1) telescopes to (1 - x^99) / (1 - g).
    gamma = 0.99
    x = 0.9 * gamma / (1 - 0.1 * gamma)
    by_hand = -(1 - x**99) / (1 - gamma) + x**99 / gamma
    assert env.optimal(gamma).values[0] == pytest.approx(by_hand, rel=1e-10)


def test_mdp100_choices() -> None:
    assert MDP100().tables.start[0] == 1.0
    np.testing.assert_allclose(MDP100(start="uniform").tables.start[:99], 1 / 99)
    slipping = MDP100(stay=0.9)
    stuck = slipping.greedy([0] * 100)
    assert slipping.values(stuck, 1.0)[0] == pytest.approx(1 - 99 / 0.1)
    with pytest.raises(InputError, match="never terminate"):
        MDP100().values(MDP100().greedy([0] * 100), 1.0)
    assert MDP100(end_reward=100.0).optimal(1.0).values[0] == pytest.approx(100 - 110)


# --- Taxi -----------------------------------------------------------------------------------------


def test_taxi_is_gymnasiums() -> None:
    theirs: Any = gymnasium.make("Taxi-v4").unwrapped
    ours = Taxi().tables
    for s in range(500):
        for a in range(6):
            ((prob, after, reward, done),) = theirs.P[s][a]
            assert prob == ours.probabilities[s, a, 0] == 1.0
            assert after == ours.successors[s, a, 0]
            assert reward == ours.rewards[s, a, 0]
            assert done == ours.terminated[s, a, 0]
    np.testing.assert_allclose(ours.start, theirs.initial_state_distrib, rtol=1e-15)
    assert gymnasium.spec("Taxi-v4").max_episode_steps == Taxi().step_limit


def test_legacy_map_lacks_one_wall() -> None:
    new, old = Taxi().tables, Taxi(legacy_map=True).tables
    changed = np.argwhere((new.successors != old.successors).any(axis=2))
    # East from (1, 1) and west from (1, 2), for each of 5 x 4 passengers and destinations.
    expected = {(Taxi.encode(1, 1, p, d), 2) for p in range(5) for d in range(4)} | {
        (Taxi.encode(1, 2, p, d), 3) for p in range(5) for d in range(4)
    }
    assert {(int(s), int(a)) for s, a in changed} == expected
    for s, a in expected:
        row, column, p, d = Taxi.decode(s)
        assert new.successors[s, a, 0] == s
        assert old.successors[s, a, 0] == Taxi.encode(row, 3 - column, p, d)
    np.testing.assert_array_equal(new.rewards, old.rewards)
    np.testing.assert_array_equal(new.terminated, old.terminated)
    np.testing.assert_array_equal(new.start, old.start)


def test_taxi_optimum_by_shortest_paths() -> None:
    """21 minus the shortest number of actions, by breadth-first search."""
    env = Taxi()
    tables = env.tables
    distance = np.full(500, np.inf)
    ends = tables.terminated[:, :, 0].any(axis=1)
    distance[ends] = 1
    for _ in range(50):
        nearer = 1 + distance[tables.successors[:, :, 0]].min(axis=1)
        distance = np.minimum(distance, nearer)
    reachable = tables.start > 0
    np.testing.assert_allclose(env.optimal(1.0).values[reachable], 21 - distance[reachable])


# --- ObstacleGrid ---------------------------------------------------------------------------------


def probs(env: ObstacleGrid, x: int, y: int, action: int) -> dict[tuple[int, int], float]:
    tables, s = env.tables, env.cell(x, y)
    found: dict[tuple[int, int], float] = {}
    for after, p in zip(tables.successors[s, action], tables.probabilities[s, action], strict=True):
        if p > 0:
            place = (int(after) % env.size, int(after) // env.size)
            found[place] = found.get(place, 0.0) + float(p)
    return found


@pytest.mark.parametrize("env", [ObstacleGrid(), ObstacleGrid.published_code()])
def test_grid_moves(env: ObstacleGrid) -> None:
    np.testing.assert_allclose(env.tables.probabilities.sum(axis=2), 1.0, rtol=1e-14)
    third = 0.1 / 3
    right = {(5, 4): 0.9, (3, 4): third, (4, 5): third, (4, 3): third}
    assert probs(env, 4, 4, 1) == pytest.approx(right)
    # In the corner there is one other neighbour.
    assert probs(env, 0, 0, 2) == pytest.approx({(0, 1): 0.9, (1, 0): 0.1})
    edge = {(0, 5): 0.9, (1, 4): 0.05, (0, 3): 0.05}
    assert probs(env, 0, 4, 2) == pytest.approx(edge)


def test_grid_choices() -> None:
    text, code = ObstacleGrid(), ObstacleGrid.published_code()
    # Down at the start: the text stays, the code goes to either neighbour.
    assert probs(text, 0, 0, 3) == {(0, 0): 1.0}
    assert probs(code, 0, 0, 3) == {(1, 0): 0.5, (0, 1): 0.5}
    for x, y, penalty in OBSTACLES:
        into = text.tables.successors == text.cell(x, y)
        assert set(text.tables.rewards[into].tolist()) == {-penalty}
        out = code.tables.rewards[code.cell(x, y)]
        stays_out = ~code.tables.terminated[code.cell(x, y)]
        assert set(out[stays_out].tolist()) == {-penalty}
        assert set(code.tables.rewards[into & ~np.isin(code.tables.successors, 99)].ravel()) <= {
            -1.0,
            *(-p for _, _, p in OBSTACLES),
        }
    for env in (text, code):
        assert np.all(env.tables.rewards[env.tables.terminated] == 0.0)
        assert np.all(env.tables.terminated == (env.tables.successors == 99))
        assert env.tables.start[env.cell(0, 0)] == 1.0


def test_grid_without_prob_is_a_shortest_path() -> None:
    env = ObstacleGrid(intended=1.0)
    # 18 moves, the last of them free.
    assert env.start_value(env.optimal(1.0).policy, 1.0) == pytest.approx(-17.0)


def test_grid_positions() -> None:
    env = ObstacleGrid()
    assert env.position(np.int32(env.cell(3, 7))).tolist() == [3.5, 7.5]
    cells = np.arange(100)
    drawn = np.asarray(env.position(cells, KEY))
    np.testing.assert_array_equal(np.floor(drawn), np.stack([cells % 10, cells // 10], axis=1))
    assert len(np.unique(drawn % 1.0)) > 150


# --- bad input ------------------------------------------------------------------------------------


def test_bad_settings_are_one_sentence() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda: Chain(states=-3), "states must be at least 1"),
        (lambda: Chain(states=1), "at least 2"),
        (lambda: Chain(stay=1.5), "stay must be from 0 to 1"),
        (lambda: Chain(stay=math.nan), "stay must be a number, not NaN"),
        (lambda: MDP100(advance=-0.1), "advance must be from 0 to 1"),
        (lambda: MDP100(end_reward=math.inf), "end_reward must be finite"),
        (lambda: make("MDP100", start="last"), "start must be 'first' or 'uniform'"),
        (lambda: Taxi(step_limit=0), "step_limit must be at least 1"),
        (lambda: ObstacleGrid(intended=math.nan), "intended must be a number"),
        (lambda: ObstacleGrid(obstacles=((10, 0, 1.0),)), "outside the grid"),
        (lambda: ObstacleGrid(obstacles=((0, 0, 1.0),)), "start or the target"),
        (lambda: ObstacleGrid(size=1), "size must be at least 2"),
        (lambda: Chain().values(Chain().uniform(), 1.2), "gamma must be from 0 to 1"),
        (lambda: Chain().values([[0.5]], 0.9), "a table of 40 states by 1 actions"),
        (lambda: Chain().values(np.full((40, 1), 0.5), 0.9), "policy must sum to 1"),
        (lambda: Chain().greedy([1] * 40), "actions must be from 0 to 0"),
        (lambda: MDP100().greedy([0.9] * 100), "actions must be whole numbers"),
        (lambda: MDP100().greedy(np.zeros((100, 3))), "one action is needed for each"),
        (lambda: MDP100().greedy(np.full((100, 2), math.nan)), "not NaN"),
        (lambda: MDP100().values("uniform", 0.9), "policy must be an array of numbers"),
        (lambda: ObstacleGrid(obstacles=((1, 2),)), "x, y and a penalty"),  # type: ignore[arg-type]
        (lambda: ObstacleGrid(obstacles=((1.5, 2, 3.0),)), "whole numbers"),  # type: ignore[arg-type]
        (lambda: ObstacleGrid(obstacles=((1, 2, math.inf),)), "finite"),
        (lambda: ObstacleGrid(obstacles=((1, 2, 3.0), (1, 2, 4.0))), "same cell"),
        (lambda: make("ObstacleGrid", obstacles=5), "x, y and a penalty"),
        (lambda: Chain(start_at_end="yes"), "start_at_end must be true or false"),  # type: ignore[arg-type]
        (lambda: Taxi(legacy_map="no"), "legacy_map must be true or false"),  # type: ignore[arg-type]
    ]
    for call, words in cases:
        with pytest.raises(InputError, match=words) as caught:
            call()
        assert str(caught.value).count(". ") == 0


def test_bad_tables_are_one_sentence() -> None:
    good: dict[str, Any] = {
        "successors": [[[0, 1]], [[0, 1]]],
        "probabilities": [[[0.5, 0.5]], [[0.5, 0.5]]],
        "rewards": [[[0.0, 0.0]], [[0.0, 0.0]]],
    }
    TabularMDP.from_tables(**good)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"probabilities": [[[0.5, 0.4]], [[0.5, 0.5]]]}, "must sum to 1, and are off by 0.1"),
        ({"probabilities": [[[1.5, -0.5]], [[0.5, 0.5]]]}, "at least 0"),
        ({"probabilities": [[[math.nan, 0.5]], [[0.5, 0.5]]]}, "finite"),
        ({"successors": [[[0, 2]], [[0, 1]]]}, "states from 0 to 1"),
        ({"successors": [[[0, -1]], [[0, 1]]]}, "states from 0 to 1"),
        ({"rewards": [[[0.0, math.inf]], [[0.0, 0.0]]]}, "rewards must be finite"),
        ({"rewards": [[[0.0]], [[0.0]]]}, "rewards must have the shape"),
        ({"probabilities": [1.0]}, "must have the shape"),
        ({"start": [0.5, 0.6]}, "start must sum to 1"),
        ({"start": [1.0]}, "one entry for each of the 2 states"),
        ({"step_limit": -1}, "step_limit"),
        ({"successors": [[[0, 0.7]], [[0, 1]]]}, "successors must be whole numbers"),
        ({"successors": [[["a", 1]], [[0, 1]]]}, "successors must be an array of numbers"),
        ({"successors": [[[0], [0, 1]], [[0, 1]]]}, "successors must be an array of numbers"),
        ({"terminated": [[[0, 2]], [[0, 1]]]}, "terminated must be true or false"),
    ]
    for change, words in cases:
        with pytest.raises(InputError, match=words):
            TabularMDP.from_tables(**{**good, **change})
    half = np.full((2, 1, 2), 0.5)
    dense: list[tuple[Any, str]] = [
        (lambda: TabularMDP.from_dense(np.ones((2, 1, 3)), 0.0), "states, actions, states"),
        (lambda: TabularMDP.from_dense(np.ones((0, 1, 0)), 0.0), "states, actions, states"),
        (lambda: TabularMDP.from_dense(half, [0.0, 1.0]), "rewards must be a number or have"),
        (lambda: TabularMDP.from_dense(half, 0.0, terminal=[True]), "each of the 2 states"),
        (lambda: TabularMDP.from_dense(half, 0.0, terminal=[0, 2]), "true or false"),
    ]
    rows = [(1.0, 0, 0.0, False)]
    for table in ({}, {1: {0: rows}}, {0: {0: [(1.0, 0)]}}, {0: {0: rows, 1: rows}, 1: {0: rows}}):
        dense.append((lambda table=table: TabularMDP.from_dict(table, [1.0]), "must list"))
    for call, words in dense:
        with pytest.raises(InputError, match=words):
            call()


def test_obstacles_may_be_lists() -> None:
    listed: Any = [[4, 8, 25], (5, 5, 10.0)]
    assert ObstacleGrid(obstacles=listed) == ObstacleGrid(obstacles=((4, 8, 25.0), (5, 5, 10.0)))
    assert len(collect(ObstacleGrid(obstacles=listed), random_policy(4), KEY, 2).lengths) == 2
    assert ObstacleGrid(size=2, obstacles=()).tables.rewards.min() == -1.0


# --- for people -----------------------------------------------------------------------------------


def test_tables_render_as_text() -> None:
    import jax.numpy as jnp

    chain = Chain(states=5)
    assert chain.render(chain.state_at(jnp.asarray(1))) == ".@..G\nstate 1 of 5"
    taxi = Taxi()
    text = taxi.render(taxi.state_at(jnp.asarray(taxi.encode(2, 3, 4, 1))))
    assert text.splitlines()[3] == "| : : :@: |"
    assert text.endswith("passenger riding, going to G")
    grid = ObstacleGrid().render(ObstacleGrid().state_at(jnp.asarray(0)))
    assert grid.splitlines()[9].split() == ["@"] + ["."] * 9
    assert grid.splitlines()[1].split()[9] == "50"
    assert two_states().render(two_states().state_at(jnp.asarray(1))) == "state 1 of 2"


def test_visits_are_counted_until_the_end() -> None:
    """Two rooms in a row, with one probability in two to move on, by hand."""
    successors = np.array([[[0, 1]], [[1, 2]], [[2, 2]]])
    probs = np.array([[[0.5, 0.5]], [[0.5, 0.5]], [[1.0, 0.0]]])
    ends = successors == 2
    env = TabularMDP.from_tables(successors, probs, np.zeros((3, 1, 2)), ends, [1.0, 0.0, 0.0])
    policy = np.ones((3, 1))
    np.testing.assert_allclose(env.visits(policy, 1), [0.5, 0.5, 0.0])
    np.testing.assert_allclose(env.visits(policy, 2), [0.75, 1.0, 0.25])
    # Each room takes two steps in expectation; the start is not counted, the end is.
    np.testing.assert_allclose(env.visits(policy, 200), [1.0, 2.0, 1.0], atol=1e-12)
    # The steps of all that go on are those of the policy's transition matrix.
    kernel = np.linalg.matrix_power(env.transition_matrix(policy), 3)
    late = env.visits(policy, 3) - env.visits(policy, 2)
    np.testing.assert_allclose(late[:2], kernel[0, :2], atol=1e-12)
