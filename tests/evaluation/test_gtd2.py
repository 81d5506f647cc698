"""GTD2 finds what LSTD solves for, step by step."""

from typing import Any

import numpy as np
import pytest

from privrl.data import OneHot
from privrl.evaluation.bellman_error import moments
from privrl.evaluation.gtd2 import GTD2
from privrl.evaluation.lstd import LSTD
from privrl.privacy import InputError
from tests.evaluation import exact

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ONE_HOT = OneHot(exact.STATES)


def test_the_loop_is_the_recursion_on_paper() -> None:
    data = exact.sample(30, np.random.default_rng(0))
    judge = GTD2(
        ONE_HOT,
        exact.GAMMA,
        0.7,
        25,
        dual_ratio=2.0,
        schedule="diminishing",
        decay=5.0,
        average=False,
    )
    held = moments(data, exact.TARGET, ONE_HOT, exact.GAMMA)
    A, b, C = held.A, held.b, held.C
    theta, w = np.zeros(3), np.zeros(3)
    for k in range(25):
        alpha = 0.7 / (1 + k / 5.0) ** 0.75
        theta, w = (
            theta + alpha * A.T @ w,
            w + 2.0 * alpha * (b - A @ theta - C @ w),
        )
    found = judge.fit(data, exact.TARGET)
    assert found.weights is not None
    np.testing.assert_allclose(found.weights, theta, atol=1e-14)


@pytest.mark.parametrize("average", [False, True])
def test_all_data_at_once_converges_to_the_solution(average: bool) -> None:
    data = exact.population()
    solved = LSTD(ONE_HOT, exact.GAMMA, "trajectories").fit(data, exact.TARGET)
    judge = GTD2(ONE_HOT, exact.GAMMA, 1.0, 30_000, dual_ratio=2.0, average=average)
    found = judge.fit(data, exact.TARGET)
    assert found.estimate == pytest.approx(solved.estimate, abs=1e-6)
    assert found.diagnostics is not None
    assert found.diagnostics["mspbe"] < 1e-12


def test_batches_wander_and_their_mean_does_not() -> None:
    data = exact.population()
    solved = LSTD(ONE_HOT, exact.GAMMA, "trajectories").fit(data, exact.TARGET).weights
    assert solved is not None

    def distance(**settings: object) -> float:
        given: Any = {"dual_ratio": 2.0, "batch": 2, **settings}
        judge = GTD2(ONE_HOT, exact.GAMMA, 0.1, 20_000, **given)
        weights = judge.fit(data, exact.TARGET).weights
        assert weights is not None
        return float(np.abs(weights - solved).max())

    averaged = distance(seed=3)
    assert averaged < 0.1
    assert distance(seed=3, average=False) > averaged
    assert distance(seed=3, schedule="diminishing") < 0.2


def test_a_batch_is_a_mean_over_trajectories() -> None:
    """Of a single trajectory, every batch is the whole data."""
    for k in (0, len(exact.paths()) - 1):
        data = exact.dataset([k])
        one = GTD2(ONE_HOT, exact.GAMMA, 0.5, 20, batch=3).fit(data, exact.TARGET).weights
        all_of_it = GTD2(ONE_HOT, exact.GAMMA, 0.5, 20).fit(data, exact.TARGET).weights
        assert one is not None
        assert all_of_it is not None
        np.testing.assert_allclose(one, all_of_it, atol=1e-14)


def test_wrong_settings() -> None:
    with pytest.raises(InputError, match="schedule"):
        GTD2(ONE_HOT, 0.9, 0.1, 10, schedule="fast")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="step"):
        GTD2(ONE_HOT, 0.9, 0.0, 10)
    with pytest.raises(InputError, match="iterations"):
        GTD2(ONE_HOT, 0.9, 0.1, 0)
    with pytest.raises(InputError, match="batch"):
        GTD2(ONE_HOT, 0.9, 0.1, 10, batch=0)
    with pytest.raises(InputError, match="ran away"):
        GTD2(ONE_HOT, 0.9, 1e6, 500).fit(exact.dataset([0, 1, 2]))


def test_data_of_another_kind() -> None:
    with pytest.raises(InputError, match="data must be Trajectories"):
        GTD2(ONE_HOT, 0.9, 0.1, 10).fit("data")  # type: ignore[arg-type]
