"""What `privrl reproduce` runs for Ono and Takahashi (2020)."""

import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.core.errors import InputError
from privrl.envs.control import CartPole
from privrl.papers.ono2020 import PGC
from privrl.papers.ono2020.coordinate_clip import CoordinateClipPGC
from privrl.papers.ono2020.mean_loss import MeanLossPGC
from privrl.papers.ono2020.targets import TARGETS
from privrl.papers.ono2020.trials import (
    BUFFERS,
    EXPERIMENT,
    POINTS,
    READINGS,
    _learner,
    privacy_rows,
    trial_row,
    trials,
)
from privrl.papers.reproduce.estimate import matches

BY_NAME = {one.name: one for one in READINGS}
SCRIPT = BY_NAME["the script, coordinates clipped"]
MEANS = BY_NAME["the script, mean losses without noise"]


def test_marks_of_a_trial_are_those_of_its_scores() -> None:
    scores = np.full(3000, 9.0)
    scores[250:260] = 195.0  # once, and never again
    row = trial_row(7, scores, ["successes"])
    # (26) counts the first of the ten, from 1.
    assert (row["seed"], row["first"], row["success"], row["early"]) == (7, 251.0, 1, 1)
    assert row["area"] == pytest.approx(2750 / 3000, abs=1e-6)
    assert row["successes"] == [0, 0, *[1] * (POINTS - 2)]
    assert (row["late"], row["sustained"]) == (9.0, 0)
    assert row["rough"] == pytest.approx(math.sqrt(2 * 186**2 / 299), abs=1e-3)
    never = trial_row(7, np.full(3000, 194.9), ["scores"])
    assert (never["first"], never["success"], never["early"], never["area"]) == (3000.0, 0, 0, 0.0)
    assert never["scores"] == [194.9] * POINTS
    assert "successes" not in never
    assert {"scores", "successes"} <= set(trial_row(7, scores, ["scores", "successes"]))
    late = trial_row(7, np.r_[np.zeros(2990), np.full(10, 200.0)], ["successes"])
    assert (late["first"], late["success"], late["early"]) == (2991.0, 1, 0)


def test_first_success_is_the_first_of_its_ten_scores() -> None:
    """By hand: mu_3 = (150 + 9 x 200) / 10 = 195, and mu_2 = (10 + 150 + 8 x 200) / 10 = 176.

    So (26) is 3. The ten end with the 12th score, which is after a tenth of the 60.
    """
    scores = [10.0, 10.0, 150.0, *[200.0] * 9, *[10.0] * 48]
    row = trial_row(1, scores, ["successes"])
    assert (row["first"], row["early"], row["success"]) == (3.0, 1, 1)
    assert row["area"] == pytest.approx(58 / 60, abs=1e-6)  # (27) is 1 from 3 to 60
    assert row["successes"] == [0, *[1] * 29]  # after 2 reports, and after 4, 6, ..., 60
    # One step less, mu_3 = 194.9, and the next ten have a mean of (9 x 200 + 10) / 10 = 181.
    scores[2] = 149.0
    missed = trial_row(1, scores, ["successes"])
    assert (missed["first"], missed["early"], missed["success"]) == (60.0, 0, 0)
    assert (missed["area"], sum(missed["successes"])) == (0.0, 0)
    # From the first score on, and with the last ten alone.
    assert trial_row(1, [195.0] * 60, ["successes"])["first"] == 1.0
    assert trial_row(1, [195.0] * 60, ["successes"])["area"] == 1.0
    last = trial_row(1, [*[0.0] * 50, *[195.0] * 10], ["successes"])
    assert (last["first"], last["success"]) == (51.0, 1)
    assert last["area"] == pytest.approx(10 / 60, abs=1e-6)


def learner(reading: Any, series: str, epsilon: float | None, **more: Any) -> Any:
    setting = {"series": series, "epsilon": epsilon, **more}
    return _learner(EXPERIMENT.options(reading, setting), setting)


def test_readings_change_what_they_say() -> None:
    printed = learner(READINGS[0], "laplace", 1.0)
    assert printed == PGC(mechanism="laplace", epsilon=1.0)
    assert (printed.acting, printed.optimiser) == ("greedy", "sgd")
    zero = learner(SCRIPT, "sign zero", 2.0)
    assert (zero.control, zero.acting, zero.mechanism) == ("zero", "greedy", "sign")
    plain = learner(SCRIPT, "sign plain", None, buffer=100)
    assert (plain.optimiser, plain.rate, plain.acting) == ("rmsprop", 0.005, "explored")
    assert plain.settings(112)["buffer"] == 100.0
    # There the buffer of 100 beside PRS is the mechanism's; A3C as it is has none.
    for buffer in (1, 100):
        mean = learner(MEANS, "sign plain", None, buffer=buffer)
        assert isinstance(mean, MeanLossPGC)
        assert mean.settings(112) == {**plain.settings(112), "buffer": 1.0}
        assert (mean.optimiser, mean.acting, mean.mechanism) == ("rmsprop", "explored", None)
    assert type(learner(MEANS, "sign", 1.0)) is type(learner(MEANS, "laplace", 1.0)) is PGC
    clipped = learner(SCRIPT, "laplace zero", 5.0)
    assert isinstance(clipped, CoordinateClipPGC)
    assert (clipped.control, clipped.acting) == ("zero", "explored")
    assert type(learner(SCRIPT, "recipe", 1.0)) is not PGC
    # Sign is read in two ways, the others in more; the recipe is ours.
    ways = {
        series: len(
            {json.dumps(EXPERIMENT.options(one, {"series": series}), sort_keys=True)}
            | {
                json.dumps(EXPERIMENT.options(other, {"series": series}), sort_keys=True)
                for other in READINGS
            }
        )
        for series in ("sign", "laplace", "laplace plain", "recipe")
        for one in READINGS[:1]
    }
    assert ways == {"sign": 2, "laplace": 4, "laplace plain": 5, "recipe": 1}


def test_clipping_coordinates_is_not_private() -> None:
    """Noise of scale C / epsilon, and the privacy of all coordinates together."""
    own = CoordinateClipPGC(mechanism="laplace", epsilon=2.0)
    arm = own.arm(112)
    assert arm.plan is not None
    assert arm.plan.mechanism.scale == pytest.approx(0.01 / 2.0, rel=1e-3)  # type: ignore[union-attr]
    assert own.privatiser(112).certificate().epsilon == pytest.approx(224.0)
    with jax.enable_x64(True):
        row = np.asarray(arm.row(jnp.linspace(-1.0, 1.0, 112)))
    np.testing.assert_allclose(row, np.clip(np.linspace(-1.0, 1.0, 112), -0.005, 0.005))
    # The mechanism's own clipping never acts.
    assert np.sum(np.abs(row)) <= arm.plan.radius
    with pytest.raises(InputError, match="Laplace noise alone"):
        CoordinateClipPGC(mechanism="sign", epsilon=2.0).arm(112)


@pytest.mark.slow
def test_mean_losses_are_sums_over_an_episode_s_length() -> None:
    """The first step of plain descent: from the same model, in the same episode."""
    moved, lengths = [], []
    for kind in (PGC, MeanLossPGC):
        program = kind(mechanism=None, rate=1.0, acting="explored", flight=1).program(CartPole(), 1)
        with jax.enable_x64(True):
            state = program.init(jax.vmap(jax.random.key)(jnp.arange(3)), {})
            before = np.asarray(state.inside.aggregators.theta)
            state, seen = program.advance(state, 1)
        moved.append(np.asarray(state.inside.aggregators.theta) - before)
        lengths.append(np.asarray(seen["length"]))
    np.testing.assert_array_equal(lengths[0], lengths[1])
    assert len(set(lengths[0].ravel().tolist())) > 1
    assert np.all(np.any(moved[0] != 0.0, axis=1))
    # In 32 bits, of sums of some 20 terms.
    np.testing.assert_allclose(moved[1] * lengths[0], moved[0], rtol=1e-5, atol=1e-9)


def test_noise_is_worth_what_the_accountant_says() -> None:
    rows = {row["series"]: row for row in privacy_rows()}
    assert rows["sign, epsilon 5"]["epsilon"] == pytest.approx(5.0)
    assert rows["Laplace, epsilon 5"]["epsilon"] == pytest.approx(5.0)
    clipped = rows["Laplace with each coordinate clipped by itself, epsilon 5"]
    assert (clipped["claimed"], clipped["epsilon"]) == (5.0, pytest.approx(560.0))
    assert rows["privrl's PGC, epsilon 5"]["epsilon"] == pytest.approx(5.0)


def test_each_line_and_quantity_has_rows_of_one_setting() -> None:
    """And no setting is run twice for two figures."""
    settings = EXPERIMENT.settings
    ways = [
        (one["series"], one["epsilon"], one.get("buffer", BUFFERS.get(one["series"])))
        for one in settings
    ]
    assert len(set(ways)) == len(ways)
    for target in TARGETS:
        wheres = [one.where for one in target.quantities]
        if isinstance(target.drawing, tuple):
            wheres += [line.where for panel in target.drawing for line in panel.series]
        for where in wheres:
            fits = [one for one in settings if matches(one, where)]
            assert len(fits) == 1, where


@pytest.mark.slow
@pytest.mark.parametrize("reading", READINGS, ids=lambda one: one.name)
def test_every_series_runs_under_every_reading(reading: Any) -> None:
    for setting in EXPERIMENT.quick_settings or ():
        given = {**setting, "submissions": 240}  # more than any buffer
        rows = trials(EXPERIMENT.options(reading, given), given, [0, 1])
        assert [row["seed"] for row in rows] == [0, 1]
        assert json.loads(json.dumps(rows)) == rows
