"""What the targets of xie2019 run: compiled lanes against the plain algorithm, and its rows."""

import json
from typing import Any

import numpy as np
import pytest

from privrl.data import Fourier, Trajectories
from privrl.evaluation.bellman_error import mspbe, unit_moments, unit_steps
from privrl.papers.xie2019 import algorithm, chain, claimed, lanes, trials
from privrl.papers.xie2019.gpope import GPOPE
from privrl.papers.xie2019.steps import STEPS, at_factor, decades
from privrl.papers.xie2019.targets import TABLE_1, TARGETS
from privrl.privacy import Budget

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def matrices(m: int, seed: int) -> lanes.Dense:
    units = unit_moments(
        chain.simulate(m, seed), None, chain.FEATURES, chain.GAMMA, dual=True, certified=False
    )
    A, C = (one.toarray().reshape(m, 40, 40) for one in (units.A, units.C))
    return lanes.Dense(A, C, units.b)


def bidiagonal(visits: Any) -> lanes.Bidiagonal:
    return lanes.bidiagonal(visits, (visits > 0.0).astype(float), chain.GAMMA)


def test_lanes_are_algorithm_1() -> None:
    plain, draw = matrices(30, 3), np.random.default_rng(0)
    draws, noise = lanes.draw(30, 60, 1, draw), draw.standard_normal((60, 80))
    given = lanes.Lanes([0.01, 0.1, 0.003], [0.5, 0.2, 0.3], [1.0, 0.5, 3.0], [0.0, 0.0, 1.0])
    for units in (plain, bidiagonal(chain.visits(30, 3))):
        last, mean = lanes.run(units, draws, noise, given)
        for k in range(3):
            thetas = algorithm.gpope(
                *(plain.A, plain.b, plain.C, [int(x) for x in draws], noise),
                clip=given.clip[k],
                step=given.step[k],
                sigma=given.sigma[k],
                diminishing=bool(given.diminishing[k]),
            )
            np.testing.assert_allclose(last[k], thetas[-1], atol=1e-12)
            np.testing.assert_allclose(mean[k], thetas[-30:].mean(axis=0), atol=1e-12)


def test_chunks_of_iterations_go_on_where_the_last_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    units, draw = bidiagonal(chain.visits(10, 0)), np.random.default_rng(0)
    draws, noise = lanes.draw(10, 40, 1, draw), draw.standard_normal((40, 80))
    whole = lanes.run(units, draws, noise, lanes.Lanes(0.1, [0.5], 1.0))
    monkeypatch.setattr(lanes, "CHUNK", 20)
    for one, other in zip(
        lanes.run(units, draws, noise, lanes.Lanes(0.1, [0.5], 1.0)), whole, strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_dense_moments_are_those_of_the_units() -> None:
    draw, lengths = np.random.default_rng(1), np.array([4, 1, 7, 3])
    states = draw.uniform(size=(15, 2))
    data = Trajectories.from_arrays(
        states,
        np.zeros(15, dtype=np.int32),
        draw.uniform(size=15),
        lengths=lengths,
        terminated=np.array([True, True, False, True]),
        num_actions=1,
    )
    features = Fourier(order=2, low=(0.0, 0.0), high=(1.0, 1.0))
    units = unit_moments(data, None, features, 0.9, dual=True, certified=False)
    found = lanes.dense(unit_steps(data, None, features, 0.9, None, None, None))
    for name in ("A", "C", "b"):
        np.testing.assert_allclose(
            getattr(found, name).reshape(getattr(units, name).shape), getattr(units, name)
        )


def test_blocks_of_a_trajectory_add_up_to_it() -> None:
    visits = chain.visits(50, 2)
    steps, left = lanes.split(visits, 4)
    assert steps.shape == (200, 40)
    np.testing.assert_array_equal(steps.reshape(50, 4, 40).sum(axis=1), visits)
    np.testing.assert_array_equal(left.reshape(50, 4, 40).sum(axis=1), visits > 0.0)
    length = steps.reshape(50, 4, 40).sum(axis=2)
    assert np.all(length.max(axis=1) - length.min(axis=1) <= 1.0)
    whole, parts = bidiagonal(visits), lanes.bidiagonal(steps, left, chain.GAMMA)
    total = visits.sum(axis=1)[:, None]
    for one, other in zip(parts, whole, strict=True):
        joined = (one * steps.sum(axis=1)[:, None]).reshape(50, 4, 40).sum(axis=1)
        np.testing.assert_allclose(joined, other * total, atol=1e-12)
    drawn = lanes.draw(50, 10, 4, np.random.default_rng(0)).reshape(10, 4)
    assert np.all(np.diff(drawn, axis=1) == 1)
    assert np.all(drawn[:, 0] % 4 == 0)


def test_errors_are_mspbe_and_infinite_where_a_run_blew_up() -> None:
    weights = np.random.default_rng(0).standard_normal((3, 40))
    found = lanes.errors(weights, chain.exact())
    np.testing.assert_allclose(found, [mspbe(one, chain.exact()) for one in weights])
    weights[1, 5] = np.nan
    assert lanes.errors(weights, chain.exact())[1] == np.inf


def test_decades_keep_half_of_the_gain() -> None:
    # A gain of 8 at one step; half is kept up to half-way to either neighbour, then twice as far.
    narrow = [9.0] * 10 + [1.0] + [9.0] * 11
    assert decades([narrow, narrow]) == pytest.approx(1.0 / 3.0)
    wide = [9.0] * 9 + [1.0] * 3 + [9.0] * 10
    assert decades([wide]) == pytest.approx(1.0)
    assert decades([[9.0] * 10 + [1.0] * 12]) == pytest.approx((11 + 0.5) / 3.0)


def test_steps_are_three_to_a_decade() -> None:
    assert STEPS[0] == 1e-5
    assert STEPS[-1] == 100.0
    assert STEPS[at_factor(0.4642, 10.0)] == 4.642
    with pytest.raises(ValueError, match="not among"):
        at_factor(100.0, 10.0)


def test_the_noise_is_that_of_the_estimators() -> None:
    budget = Budget(0.1, 1e-5)
    judge = GPOPE(chain.FEATURES, budget, 1.0, 1.0, iterations=400)
    assert trials.sigma("lemma1", 0.1, 100, 400) == judge.noise(100).noise_multiplier
    assert trials.sigma("certified", 0.1, 100, 400) != trials.sigma("lemma1", 0.1, 100, 400)


def test_lemma_2_fails_at_the_start_of_gpope() -> None:
    """On the chain w* = 0, and GPOPE starts from w = 0: without noise the first step is away."""
    truth = chain.exact()
    A, C = truth.A[:-1, :-1], truth.C[:-1, :-1]
    solution = np.linalg.solve(A, truth.b[:-1])
    begin = np.concatenate([-solution, np.zeros(39)])
    Q = np.block([[np.zeros_like(A), -A.T], [A, C]])
    for beta in (1e-3, 1.0, 10.0):
        assert np.sum((begin - beta * Q @ begin) ** 2) > np.sum(begin**2)


@pytest.mark.slow
def test_rows_of_the_chain_have_what_targets_ask_for() -> None:
    experiment = next(one.experiment for one in TARGETS if one.name == "xie2019.figure1")
    asked = {
        quantity.measure
        for one in TARGETS
        if one.experiment == experiment
        for quantity in one.quantities
    }
    found: set[str] = set()
    for setting in experiment.settings:
        options = experiment.options(experiment.readings[0], setting)
        rows = trials.on_chain(options, {**setting, "shrink": 50}, [0])
        assert json.loads(json.dumps(rows)) == rows
        found |= set(rows[0])
    assert asked <= found


def test_two_cells_of_table_1_are_in_the_text_and_the_others_are_lost() -> None:
    said = {one.name: one.printed.value for one in TABLE_1.compared if one.printed is not None}
    assert said == {"ε and δ negatively related": 1.0, "ε and m negatively related": 1.0}
    lost = [one.name for one in TABLE_1.quantities if one.lost]
    assert len(lost) == 8
    for one in TARGETS:
        if one is not TABLE_1:
            assert one.compared == ()
            assert all(
                it.lost for it in one.quantities if it.kind == "paper" and it.measure != "lemma2"
            )


@pytest.mark.slow
def test_relations_follow_from_theorem_1() -> None:
    """sigma = c sqrt(N log(1/delta)) / (m epsilon): N alone goes with all others."""
    (row,) = claimed.relations({}, {}, [0])
    for name, value in row.items():
        if name != "seed":
            assert value == (0.0 if "iterations" in name else 1.0), name


@pytest.mark.slow
def test_privacy_rows_say_what_lemma_1_is_worth() -> None:
    rows = {row["series"]: row for row in claimed.chain_rows()}
    large = rows["GPOPE, chain, m = 100,000, N = 1,600,000"]
    assert large["claimed"] == 0.1
    # Where its sigma is small Lemma 1 claims too much; where it is large, less than there is.
    assert large["epsilon"] > 1.4 * large["claimed"]
    assert rows["GPOPE, chain, m = 1,000, N = 4,000"]["epsilon"] < large["claimed"]
