"""The experiments of Ono and Takahashi (2020), at sizes that take no time."""

import json
import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from privrl.core.errors import InputError
from privrl.envs.control import CartPole
from privrl.papers.ono2020 import PGC
from privrl.papers.ono2020 import experiments as ono2020
from privrl.papers.ono2020.experiments import Experiment, Outcome
from privrl.papers.ono2020.printed import EPSILONS, PRINTED

SHORT = CartPole(step_limit=12)


def outcome(epsilon: float | None, *firsts: float) -> Outcome:
    return Outcome(epsilon, 100, np.array(firsts), 1, np.array([200.0, 100.0]))


def test_marks_of_trials_are_those_of_their_scores() -> None:
    played = np.full((3, 2000), 9.0, np.float32)
    played[0, 50:60] = 195.0  # once, and never again
    played[1, 400:] = 200.0
    found = Outcome.of(1.0, played)
    # Of ten scores in a row, one of 9 and nine of 200 have a mean below 195.
    assert found.firsts.tolist() == [51.0, 401.0, math.inf]
    assert found.sustained == 1
    assert found.last.tolist() == [9.0, 200.0, 9.0]
    assert found.row["median_first_success"] == 401.0
    assert found.row["success_ratio"] == pytest.approx(2 / 3)
    assert [found.success_ratio(n) * 3 for n in (50, 51, 400, 401)] == [0.0, 1.0, 1.0, 2.0]
    assert found.auc == pytest.approx((1950 + 1600) / 3 / 2000)


def test_medians_of_an_even_number_of_trials() -> None:
    assert outcome(1.0, 10.0, 20.0, 40.0, math.inf).row["median_first_success"] == 30.0
    assert outcome(1.0, 10.0, 20.0, math.inf, math.inf).row["median_first_success"] is None


def test_rows_stand_beside_the_control_and_what_is_printed() -> None:
    found = Experiment(
        "sign",
        (outcome(2.0, 51.0, 51.0), outcome(None, 1.0, 1.0)),
        (outcome(2.0, math.inf, 76.0), None),
    )
    first, plain = json.loads(json.dumps(list(found.tables())))
    assert first["relative_auc"] == 0.5
    assert first["zero_gradient"]["relative_auc"] == 0.125
    assert first["printed"] == {
        "median_first_success": 7549.0,
        "success_ratio": 0.95,
        "relative_auc": 0.862,
    }
    assert plain["relative_auc"] == 1.0
    assert plain["zero_gradient"] is None
    assert plain["printed"]["median_first_success"] == 1709.0
    curve, _ = json.loads(json.dumps(list(found.figure_3(4))))
    assert curve["submissions"] == [25, 50, 75, 100]
    assert curve["success_ratio"] == [0.0, 0.0, 1.0, 1.0]
    assert curve["zero_gradient"] == [0.0, 0.0, 0.0, 0.5]
    without = Experiment("recipe", (outcome(3.0, 2.0),), (None,))
    (row,) = without.tables()
    assert row["relative_auc"] is row["printed"] is None


def test_learners_are_the_papers() -> None:
    for table in PRINTED.values():
        assert all(len(cells) == len(EPSILONS) for cells in table.values())
    sign, plain = ono2020.learner("sign", 5.0), ono2020.learner("sign", None)
    assert (type(sign), sign.mechanism, sign.settings(112)["buffer"]) == (PGC, "sign", 100.0)
    assert (type(plain), plain.mechanism, plain.settings(112)["buffer"]) == (PGC, None, 100.0)
    assert ono2020.learner("laplace", None).settings(112)["buffer"] == 1.0
    assert ono2020.learner("recipe", 2.0, control="zero").control == "zero"
    mixed = [ono2020.learner("recipe", 1.0), sign]
    with pytest.raises(InputError, match="side by side"):
        ono2020.scores(mixed, [0], 1000, SHORT)


@pytest.mark.slow
def test_learners_played_side_by_side_have_their_own_settings() -> None:
    plain = replace(ono2020.learner("laplace", 1.0), hidden=(2,))
    # A model that hardly moves, one that does, and the first again.
    agents = [replace(plain, rate=1e-9), plain, replace(plain, rate=1e-9)]
    found = ono2020.scores(agents, [3, 4], 30, SHORT)
    assert found.shape == (3, 2, 30)
    assert 1.0 <= found.min() <= found.max() <= 12.0
    np.testing.assert_array_equal(found[0, :, :9], found[1, :, :9])
    assert np.any(found[0] != found[1])
    assert np.any(found[0, 0] != found[0, 1])


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["laplace", "sign"])
def test_tables_have_a_row_for_each_epsilon(algorithm: Any) -> None:
    rows = list(ono2020.experiment(algorithm, (2.0, None), [0, 1], 100, env=SHORT).tables())
    assert json.loads(json.dumps(rows)) == rows
    assert [row["epsilon"] for row in rows] == [2.0, None]
    assert [row["zero_gradient"] is None for row in rows] == [False, True]
    assert all(row["success_ratio"] == 0.0 for row in rows)  # of 12 steps at most
    assert all(row["trials"] == 2 for row in rows)


def test_a_fall_is_all_that_is_paid_for_in_the_other_reading() -> None:
    plain, falling = CartPole(), ono2020.Falling()
    step, other = jax.jit(plain.step), jax.jit(falling.step)
    state, _ = plain.reset(jax.random.key(1))
    steps = 0
    while not state.ended:
        before, after = (one(jax.random.key(2), state, 1) for one in (step, other))
        np.testing.assert_array_equal(before.observation, after.observation)
        assert bool(before.terminated) == bool(after.terminated)
        assert float(after.reward) == (-1.0 if before.terminated else 0.0)
        state, steps = after.state, steps + 1
    assert 5 < steps < 20  # who always pushes to one side falls soon


@pytest.mark.slow
def test_the_recipe_beats_its_control() -> None:
    (row,) = ono2020.experiment("recipe", (10.0,), [0, 1, 2], 3000).tables()
    assert row["sustained"] == 3
    assert row["median_first_success"] < 1500
    assert row["zero_gradient"]["sustained"] == 0
    assert row["zero_gradient"]["last_mean"] < 150.0
