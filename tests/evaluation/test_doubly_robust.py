"""Doubly robust estimates: exact in expectation for any model, and steadier with a good one."""

from typing import Any

import numpy as np
import pytest

from privrl.evaluation.doubly_robust import DR, WDR
from privrl.evaluation.fqe import FQE
from privrl.evaluation.importance import PDIS, WPDIS
from privrl.privacy import InputError
from tests.evaluation import exact


def table(values: Any) -> Any:
    return lambda states: np.asarray(values)[states]


@pytest.mark.parametrize("kind", [DR, WDR])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_model_gives_the_exact_value_on_the_whole_population(kind: Any, seed: int) -> None:
    q = np.random.default_rng(seed).normal(0.0, 5.0, (exact.STATES, exact.ACTIONS))
    found = kind(gamma=exact.GAMMA, q=table(q)).fit(exact.population(), exact.TARGET)
    assert found.estimate == pytest.approx(exact.value(), abs=1e-12)


def test_the_expectation_over_single_trajectories_is_exact() -> None:
    q = np.random.default_rng(3).normal(0.0, 5.0, (exact.STATES, exact.ACTIONS))
    judge = DR(gamma=exact.GAMMA, q=table(q))
    expected = sum(
        one.behavior * float(judge.fit(exact.dataset([k]), exact.TARGET).estimate or 0.0)
        for k, one in enumerate(exact.paths())
    )
    assert expected == pytest.approx(exact.value(), abs=1e-12)


def test_without_a_model_they_are_the_per_decision_estimates() -> None:
    data = exact.sample(200, np.random.default_rng(4))
    nothing = table(np.zeros((exact.STATES, exact.ACTIONS)))
    for kind, plain in ((DR, PDIS), (WDR, WPDIS)):
        ours = kind(gamma=exact.GAMMA, q=nothing).fit(data, exact.TARGET)
        theirs = plain(gamma=exact.GAMMA).fit(data, exact.TARGET)
        assert ours.estimate == pytest.approx(theirs.estimate, abs=1e-13)


def test_a_fitted_model_takes_variance_away() -> None:
    data = exact.sample(2000, np.random.default_rng(5))
    other = exact.sample(2000, np.random.default_rng(6))
    q = FQE(gamma=exact.GAMMA).action_values(other, exact.TARGET)
    for kind, plain in ((DR, PDIS), (WDR, WPDIS)):
        helped = kind(gamma=exact.GAMMA, q=q).fit(data, exact.TARGET).interval
        alone = plain(gamma=exact.GAMMA).fit(data, exact.TARGET).interval
        assert helped is not None
        assert alone is not None
        assert helped.high - helped.low < 0.8 * (alone.high - alone.low)


def test_wrong_questions() -> None:
    data = exact.dataset([0, 1])
    with pytest.raises(InputError, match="q is needed"):
        DR().fit(data, exact.TARGET)
    with pytest.raises(InputError, match="needs the policy"):
        DR(q=table(exact.REWARDS)).fit(data)
    with pytest.raises(InputError, match="q must give"):
        WDR(q=lambda states: np.zeros((len(states), 5))).fit(data, exact.TARGET)


@pytest.mark.parametrize(
    ("q", "said"),
    [
        (3, "function"),
        (lambda states: "abc", "number"),
        (lambda states: np.full((len(states), exact.ACTIONS), np.nan), "finite"),
    ],
)
def test_models_that_are_none(q: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        DR(q=q).fit(exact.dataset([0, 1]), exact.TARGET)
