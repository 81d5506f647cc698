"""The main job: one budget, one certificate, and nothing that was not paid for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privrl.core.errors import OverBudget
from privrl.data import OneHot, Polynomial, Tabular, Trajectories
from privrl.evaluation import PrivateValue, Schema, simulate_like
from privrl.evaluation.sums import gather_sums
from privrl.privacy import Budget, InputError, Ledger, Relation, Unit
from privrl.privacy.noise import reproducible
from privrl.privacy.session import SECRET_SESSION
from privrl.run.evaluation import CURVE_EPSILONS, EvaluationSpec, evaluate
from privrl.run.study import Study

LOGGED = Tabular(np.array([[0.5, 0.5], [0.4, 0.6], [0.3, 0.7]]))
JUDGED = Tabular(np.array([[0.6, 0.4], [0.4, 0.6], [0.2, 0.8]]))
BUDGET = Budget(1.0, 1e-5)


def data(people: int = 400) -> Trajectories:
    schema = Schema(people, 5, 2, (0.0, 1.0), num_states=3, ending=0.1)
    return simulate_like(schema, 0, LOGGED)


def question(**changed: Any) -> EvaluationSpec:
    given: dict[str, Any] = {
        "reward_range": (0.0, 1.0),
        "weight_cap": 4.0,
        "budget": BUDGET,
        "horizon": 5,
        "gamma": 0.9,
    }
    return EvaluationSpec(**(given | changed))


ALL = {"value": 3.0, "gtd": 1.0, "lstd": 1.0}


@pytest.mark.parametrize("estimators", [{"value": 1.0}, {"value": 3.0, "gtd": 1.0}, ALL])
@pytest.mark.parametrize("budget", [BUDGET, Budget(0.1, 1e-8), Budget(8.0, 1e-3)])
def test_the_whole_costs_the_budget_and_no_more(
    estimators: dict[str, float], budget: Budget
) -> None:
    asked = question(estimators=estimators, features=OneHot(3), budget=budget)
    study = evaluate(data(), JUDGED, asked, seed=0)
    assert study.certificate is not None
    study.certificate.verify()
    assert study.certificate.epsilon <= budget.epsilon
    assert study.certificate.epsilon == pytest.approx(budget.epsilon, rel=1e-3)
    assert study.main.method == "PrivateValue"
    assert len(study.results) == len(estimators)
    paid = [event for result in study.results for event in result.certificate.events]
    assert list(study.certificate.events) == paid


def test_shares_are_of_squared_distances() -> None:
    asked = question(estimators={"value": 3.0, "lstd": 1.0}, features=OneHot(3))
    value, lstd = evaluate(data(), JUDGED, asked, seed=0).results
    alone = PrivateValue(BUDGET, weight_cap=4.0, horizon=5, gamma=0.9, reward_range=(0.0, 1.0))

    def distance(event: Any) -> float:
        return float(event.bound / event.std)

    whole = distance(alone.mechanism.event) ** 2
    (mine,), (other,) = value.certificate.events, lstd.certificate.events
    assert distance(mine) ** 2 / whole == pytest.approx(0.75, rel=1e-4)
    assert distance(other) ** 2 / whole == pytest.approx(0.25, rel=1e-4)


def test_each_estimator_draws_noise_of_its_own() -> None:
    """With a seed too: otherwise the same noise twice would cancel in a difference."""
    asked = question(estimators={"value": 1.0, "lstd": 1.0}, features=OneHot(3))
    value, lstd = evaluate(data(), JUDGED, asked, seed=7).results
    judges: dict[str, Any] = {
        "value": asked.value_estimator,
        **asked.value_function_estimators(True),
    }
    sums = {name: gather_sums(judge, data(), JUDGED) for name, judge in judges.items()}

    def drawn(name: str, child: int) -> Any:
        event = judges[name].mechanism.event
        opened = SECRET_SESSION.open(
            sums[name].unit, Relation.REPLACE_ONE, source=reproducible(7, child)
        )
        opened.pay(event)
        return judges[name].release_paid(sums[name], opened)

    alone, again = drawn("value", 0), drawn("lstd", 1)
    assert value.estimate == alone.estimate
    assert lstd.weights is not None
    assert np.array_equal(lstd.weights, again.weights)
    assert not np.array_equal(lstd.weights, drawn("lstd", 0).weights)


def test_a_ledger_pays_for_everything_before_anything_is_drawn(tmp_path: Path) -> None:
    asked = question(estimators=ALL, features=OneHot(3))
    path = tmp_path / "cohort.ledger"
    with Ledger.create(
        path, "cohort", unit=Unit.TRAJECTORY, relation=Relation.REPLACE_ONE, limit=Budget(1.5, 1e-5)
    ) as ledger:
        study = evaluate(data(), JUDGED, asked, ledger=ledger, run="first", seed=0)
        assert study.certificate is not None
        assert study.certificate.population is not None
        assert study.certificate.population.name == "cohort"
        (entry,) = ledger.entries()
        assert list(study.certificate.events) == list(entry.events)
        with pytest.raises(OverBudget, match="exceed the limit"):
            evaluate(data(), JUDGED, asked, ledger=ledger, run="second", seed=0)
        assert len(ledger.entries()) == 1


def test_a_ledger_of_other_people_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cohort.ledger"
    with Ledger.create(path, "cohort", unit=Unit.USER, relation=Relation.REPLACE_ONE) as ledger:
        with pytest.raises(InputError, match="do not add up"):
            evaluate(data(), JUDGED, question(), ledger=ledger, run="first")
        assert not ledger.entries()


def test_public_data_gets_every_estimator_and_no_certificate() -> None:
    asked = question(budget=None, features=OneHot(3), estimators=ALL)
    study = evaluate(data(), JUDGED, asked, public=True)
    assert study.certificate is None
    names = [result.method for result in study.results]
    assert names == ["WIS", "IS", "PDIS", "WPDIS", "DR", "WDR", "FQE", "LSTD"]
    with pytest.raises(InputError, match="no budget"):
        evaluate(data(), JUDGED, question(), public=True)
    with pytest.raises(InputError, match="budget is needed"):
        evaluate(data(), JUDGED, question(budget=None))


def test_the_curve_looks_at_public_facts_only() -> None:
    """Other people in the same number give the same curve; wider where epsilon is smaller."""
    first = evaluate(data(), JUDGED, question(), seed=0)
    other = replace(data(), rewards=1.0 - np.asarray(data().rewards))
    second = evaluate(other, JUDGED, question(), seed=1)
    assert first.curve == second.curve
    assert first.curve_people == 400
    widths = [point.half_width for point in first.curve]
    assert widths == sorted(widths, reverse=True)
    assert all(point.noise_free <= point.half_width for point in first.curve)
    assert {point.epsilon for point in first.curve} >= set(CURVE_EPSILONS)


def test_slices_are_what_the_released_function_says() -> None:
    schema = Schema(200, 4, 2, (0.0, 1.0), low=(0.0, -1.0), high=(2.0, 1.0))
    vectors = simulate_like(schema, 0)
    features = Polynomial(2, (0.0, -1.0), (2.0, 1.0))
    asked = question(estimators={"value": 1.0, "gtd": 1.0}, features=features)
    study = evaluate(vectors, None, replace(asked, start=[[1.0, 0.0]]), seed=0)
    first, second = study.slices
    np.testing.assert_allclose(
        first.values, study.results[1].predict(np.column_stack([first.at, np.zeros(41)]))
    )
    np.testing.assert_allclose(
        second.values, study.results[1].predict(np.column_stack([np.ones(41), second.at]))
    )
    assert not first.discrete


def test_seeds_are_called_out() -> None:
    study = evaluate(data(), JUDGED, question(), seed=0)
    assert any("protects nobody" in note for note in study.notes)
    assert not evaluate(data(), JUDGED, question()).notes


def test_a_study_comes_back_as_it_was(tmp_path: Path) -> None:
    asked = question(estimators=ALL, features=OneHot(3))
    study = evaluate(data(), JUDGED, asked, seed=0, title="A <study>", command="privrl evaluate x")
    study.save(tmp_path / "study.json")
    assert Study.load(tmp_path / "study.json").to_dict() == study.to_dict()
    odd = replace(study, curve=(replace(study.curve[0], half_width=float("inf")),))
    odd.save(tmp_path / "odd.json")
    assert np.isnan(Study.load(tmp_path / "odd.json").curve[0].half_width)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "privrl study", "format": 1}'])
def test_what_is_no_study(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(InputError):
        Study.load(tmp_path / "study.json")


def test_private_results_hold_no_diagnostics() -> None:
    study = evaluate(data(), JUDGED, question(estimators=ALL, features=OneHot(3)))
    assert [result.diagnostics for result in study.results] == [None, None, None]


@pytest.mark.parametrize(
    ("changed", "given"),
    [
        ({}, {"behavior": Tabular.uniform(3, 5)}),
        ({}, {"seed": -1}),
        ({"features": Polynomial(1, (0.0, 0.0), (1.0, 1.0)), "estimators": ALL}, {}),
    ],
)
def test_what_cannot_be_answered_is_not_paid_for(
    tmp_path: Path, changed: dict[str, Any], given: dict[str, Any]
) -> None:
    path = tmp_path / "cohort.ledger"
    with Ledger.create(
        path, "cohort", unit=Unit.TRAJECTORY, relation=Relation.REPLACE_ONE
    ) as ledger:
        with pytest.raises(InputError):
            evaluate(data(), JUDGED, question(**changed), ledger=ledger, run="first", **given)
        assert not ledger.entries()


@pytest.mark.parametrize("start", ["a", [], [[0, 1]]])
def test_a_start_that_holds_no_states_is_refused(start: Any) -> None:
    with pytest.raises(InputError, match=r"start must hold|States must be"):
        question(estimators=ALL, features=OneHot(3), start=start)


def test_the_curve_has_a_point_at_the_smallest_of_budgets() -> None:
    study = evaluate(data(), JUDGED, question(budget=Budget(1e-7, 1e-5)), seed=0)
    assert study.curve[0].epsilon == 1e-7
