"""Simulated data has the public shape it was asked for, and nothing else."""

import numpy as np
import pytest

from privrl.data import Trajectories
from privrl.evaluation.importance import WIS
from privrl.evaluation.simulate import Schema, simulate_like
from privrl.privacy import InputError, Unit
from tests.evaluation import exact

TABLE = Schema(300, 6, 2, (-1.0, 3.0), num_states=3, num_users=100, ending=0.2)
BOX = Schema(200, 5, 3, (0.0, 1.0), low=(0.0, -2.0), high=(10.0, 2.0))


def test_discrete_data_of_the_schema() -> None:
    made = simulate_like(TABLE, 0, exact.BEHAVIOR)
    assert (made.num_trajectories, made.num_users, made.unit) == (300, 100, Unit.USER)
    assert (made.num_states, made.num_actions) == (3, 2)
    assert made.lengths.min() >= 1
    assert made.lengths.max() <= 6
    assert made.terminated.mean() > 0.5
    assert np.all(made.terminated | (made.lengths == 6))
    assert made.rewards.min() >= -1.0
    assert made.rewards.max() <= 3.0
    assert made.behavior_probs is not None
    np.testing.assert_allclose(
        made.behavior_probs, exact.BEHAVIOR.prob(made.states, made.actions), rtol=1e-12
    )
    assert "nobody" in made.notes[-1].text


def test_data_in_a_box_and_the_same_key() -> None:
    made, again = simulate_like(BOX, 7), simulate_like(BOX, 7)
    assert made.states.shape[1] == 2
    assert np.all((made.states >= [0.0, -2.0]) & (made.states <= [10.0, 2.0]))
    assert np.all((made.rewards >= 0.0) & (made.rewards <= 1.0))
    assert np.all(made.lengths == 5)
    np.testing.assert_array_equal(made.states, again.states)
    assert not np.array_equal(made.states, simulate_like(BOX, 8).states)


def test_estimators_run_on_it() -> None:
    result = WIS(gamma=0.9).fit(simulate_like(TABLE, 1, exact.BEHAVIOR), exact.TARGET)
    assert result.interval is not None
    assert -10.0 < result.interval.low < result.interval.high < 20.0


def test_the_shape_of_data_is_its_public_part() -> None:
    """Two data sets that differ in every private value have one schema, and one simulation."""
    n = 5

    def held(seed: int) -> Trajectories:
        draws = np.random.default_rng(seed)
        lengths = draws.integers(1, 5, n)
        size = int(lengths.sum())
        return Trajectories.from_arrays(
            draws.integers(0, 3, size),
            draws.integers(0, 2, size),
            draws.normal(size=size),
            lengths=lengths,
            num_states=3,
            num_actions=2,
        )

    one, other = (Schema.of(held(k), horizon=4, reward_range=(0.0, 1.0)) for k in (0, 1))
    assert one == other
    assert (one.num_trajectories, one.num_states, one.num_users) == (5, 3, None)


def test_what_is_not_said_is_asked_for() -> None:
    silent = Trajectories.from_arrays([0], [0], [0.0], lengths=[1])
    with pytest.raises(InputError, match="num_actions is needed"):
        Schema.of(silent, horizon=3, reward_range=(0.0, 1.0))
    with pytest.raises(InputError, match="num_states is needed"):
        Schema.of(silent, horizon=3, reward_range=(0.0, 1.0), num_actions=2)
    vectors = Trajectories.from_arrays([[0.0]], [0], [0.0], lengths=[1], num_actions=2)
    with pytest.raises(InputError, match="low and high"):
        Schema.of(vectors, horizon=3, reward_range=(0.0, 1.0))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"horizon": 0}, "horizon"),
        ({"reward_range": (1.0, 1.0)}, "reward_range"),
        ({"ending": 1.0}, "ending"),
        ({"num_states": None}, "num_states"),
        ({"num_users": 301}, "more people"),
        ({"num_states": None, "low": (0.0,), "high": (0.0,)}, "low must be below"),
        ({"num_states": None, "low": (0.0,), "high": (1.0, 2.0)}, "each coordinate"),
    ],
)
def test_wrong_schemas(change: dict[str, object], word: str) -> None:
    given: dict[str, object] = {
        "num_trajectories": 300,
        "horizon": 6,
        "num_actions": 2,
        "reward_range": (-1.0, 3.0),
        "num_states": 3,
    }
    with pytest.raises(InputError, match=word):
        Schema(**{**given, **change})  # type: ignore[arg-type]


def test_a_policy_with_other_actions() -> None:
    with pytest.raises(InputError, match="2 actions"):
        simulate_like(BOX, 0, exact.TARGET)
