"""GPOPE, DP-LSW and DP-LSL in an evaluation: what `fit` gives, within the budget, or refused."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privrl import EvaluationSpec, Trajectories, evaluate
from privrl.data import OneHot, Polynomial, Tabular
from privrl.evaluation import DPLSL, DPLSW, GPOPE, LSTD, Schema, gpope, simulate_like
from privrl.privacy import Budget, InputError, Ledger, NoiseOrigin, Relation, Unit
from privrl.privacy.accounting import epsilon as epsilon_of
from privrl.privacy.events import ApproxDP, Gaussian
from privrl.privacy.noise import Source, reproducible
from privrl.privacy.session import PrivacySession
from privrl.run import evaluation
from privrl.run.dry_run import DryRun, dry_run
from privrl.run.facts import public_facts
from privrl.run.request import Request
from privrl.run.study import Study
from tests.run.test_evaluation import BUDGET, JUDGED, LOGGED, question
from tests.run.test_request import folder, said  # noqa: F401 (a fixture)

RANGE, TABLE = (0.0, 1.0), OneHot(3)
# Of rewards from 0 to 1 over five steps, discounted by 0.9.
LARGEST = (1.0 - 0.9**5) / (1.0 - 0.9)


def people(count: int = 60, trajectories: int = 2) -> Trajectories:
    """Each with as many trajectories."""
    schema = Schema(count * trajectories, 5, 2, RANGE, num_states=3, ending=0.1, num_users=count)
    return simulate_like(schema, 0, LOGGED)


def asked(estimators: dict[str, float], **changed: Any) -> EvaluationSpec:
    return question(**({"estimators": estimators, "features": TABLE} | changed))


@dataclass(frozen=True, kw_only=True)
class ChildSession(PrivacySession):
    """Draws what an evaluation's estimator of this number draws."""

    child: int = 0

    def source(self) -> Source:
        return reproducible(self.seed or 0, self.child)


def weights_of(result: Any) -> Any:
    assert result.weights is not None
    return result.weights


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("dplsw", DPLSW), ("dplsl", DPLSL)])
def test_alone_they_are_their_fit(name: str, kind: Any) -> None:
    data = people()
    study = evaluate(data, None, asked({name: 1.0}, weight_cap=1.0), seed=5)
    judge = kind(TABLE, RANGE, BUDGET, 0.9, return_bound=LARGEST, horizon=5)
    fitted = judge.fit(data, session=ChildSession(seed=5))
    np.testing.assert_array_equal(weights_of(study.main), weights_of(fitted))
    assert study.main.settings == fitted.settings
    assert study.certificate is not None
    assert study.certificate.events == (ApproxDP(1.0, 1e-5, relation=Relation.REPLACE_ONE),)
    assert study.certificate.unit is Unit.USER
    assert study.main.method == {"dplsw": "DP-LSW", "dplsl": "DP-LSL"}[name]
    other = judge.fit(data, session=ChildSession(seed=6))
    assert not np.array_equal(weights_of(study.main), weights_of(other))


def test_gpope_is_its_fit_beside_what_the_others_spend() -> None:
    data, both = people(), asked({"value": 3.0, "gpope": 1.0})
    value, found = evaluate(data, JUDGED, both, seed=5).results
    judge = GPOPE.from_range(
        TABLE, RANGE, BUDGET, gamma=0.9, weight_cap=4.0, beside=value.certificate.events
    )
    fitted = judge.fit(data, JUDGED, session=ChildSession(seed=5, child=1))
    np.testing.assert_array_equal(weights_of(found), weights_of(fitted))
    assert found.settings == fitted.settings
    # A tenth of what one step could bring, and so on: public numbers alone.
    assert (judge.clip, judge.step, judge.average) == (0.1, 0.3, 0.5)
    assert found.settings["iterations"] == found.settings["units"] == 60


def test_a_person_with_several_trajectories_counts_once() -> None:
    """The same trajectories, of people or each for itself."""
    for name in ("dplsw", "dplsl"):
        spec, data = asked({name: 1.0}, weight_cap=1.0), people()
        alone = replace(data, users=None)
        counted = [
            evaluate(one, None, spec, seed=1).main.settings["units"] for one in (data, alone)
        ]
        assert counted == [60, 120]


def test_options_beside_the_question_are_answered() -> None:
    spec = asked({"value": 1.0}, weight_cap=1.0)
    study = evaluate(
        people(), None, spec, seed=1, start=[0, 2], title="T", estimators={"dplsl": 1.0}
    )
    assert (study.main.method, study.title) == ("DP-LSL", "T")
    assert study.main.estimate == pytest.approx(weights_of(study.main)[[0, 2]].mean())


def test_a_stream_gives_what_memory_does(folder: Path) -> None:  # noqa: F811 (the fixture)
    given = {"table": (str(folder / "stays.parquet"),), "user": "patient", "policy": None}
    given |= {"behavior_prob": None, "estimators": "dplsw,dplsl", "weight_cap": None}
    studies = [
        Request.of(said(folder, **given, stream=stream)).run_study(seed=3)
        for stream in (False, True)
    ]
    for whole, streamed in zip(*(study.results for study in studies), strict=True):
        np.testing.assert_allclose(weights_of(streamed), weights_of(whole), rtol=1e-12)


def test_constants_from_public_numbers_are_of_use() -> None:
    """On seeds that chose nothing the values of logged states are nearer than zeros by far: off by
    a sixth of their size (docs/evaluation/gpope.md); a half leaves room for other machines."""
    data = simulate_like(Schema(4000, 5, 2, RANGE, num_states=3, ending=0.1), 0, LOGGED)
    judge = GPOPE.from_range(TABLE, RANGE, BUDGET, gamma=0.9, weight_cap=4.0)
    found = judge.sweep(data, JUDGED, [judge.step], range(100, 120))[:, 0]
    exact = weights_of(LSTD(TABLE, 0.9).fit(data, JUDGED))
    visits = np.bincount(data.states, minlength=3)
    errors = np.sqrt(((found - exact) ** 2) @ visits / (exact**2 @ visits))
    assert errors.mean() < 0.5


# --- what it costs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimators",
    [
        {"dplsw": 1.0, "dplsl": 1.0},
        {"value": 3.0, "dplsl": 1.0},
        {"value": 3.0, "gpope": 1.0},
        {"value": 3.0, "lstd": 1.0, "gtd": 1.0, "gpope": 1.0, "dplsw": 1.0, "dplsl": 2.0},
    ],
)
@pytest.mark.parametrize("budget", [BUDGET, Budget(0.1, 1e-8), Budget(8.0, 1e-3)])
def test_the_whole_stays_within_the_budget(estimators: dict[str, float], budget: Budget) -> None:
    spec = asked(estimators, budget=budget, weight_cap=1.0)
    study = evaluate(people(), None, spec, seed=0)
    assert study.certificate is not None
    assert study.certificate.epsilon <= budget.epsilon
    assert study.certificate.delta == budget.delta
    study.certificate.verify()
    assert {one.certificate.unit for one in study.results} == {Unit.USER}
    paid = [event for result in study.results for event in result.certificate.events]
    assert list(study.certificate.events) == paid
    assert len(study.results) == len(estimators)


SHARES = st.floats(-4.0, 0.0).map(lambda power: 10.0**power)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["value", "dplsw", "dplsl"]), SHARES, min_size=1),
    st.floats(-3.0, 1.7).map(lambda power: 10.0**power),
    st.floats(-12.0, -2.0).map(lambda power: 10.0**power),
    st.one_of(st.none(), SHARES),
)
@example({"value": 0.001, "dplsl": 0.999}, 1e-3, 1e-9, None)
@example({"value": 1.1e-6, "dplsl": 1.0}, 1e-3, 1e-9, None)
def test_no_certificate_is_above_the_budget(
    shares: dict[str, float], epsilon: float, delta: float, lstd: float | None
) -> None:
    """Whatever the budget and its shares: a run that is not refused keeps to what was asked."""
    if lstd is not None:
        shares = {"value": 1.0} | shares | {"lstd": lstd}
    try:
        spec = asked(shares, budget=Budget(epsilon, delta), weight_cap=1.0)
        found = evaluate(people(20, 1), None, spec, seed=0).certificate
    except InputError as refused:
        assert re.search(r"share of \w+ is too small|more than the budget|No amount", str(refused))  # noqa: PT017 (either is right)
        return
    assert found is not None
    assert found.epsilon <= epsilon
    assert found.delta == delta


def test_what_would_cost_more_than_the_budget_is_refused_unpaid(
    folder: Path,  # noqa: F811 (the fixture)
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts so small that rounding up their cost counts: a run and a dry run refuse the total."""
    monkeypatch.setattr(evaluation, "_LEAST_SHARE", 1e-7)
    words = r"would cost epsilon 0.00133\d* at delta 1e-09, more than the budget of 0.001:"
    spec = asked({"value": 1.1e-6, "dplsl": 1.0}, budget=Budget(1e-3, 1e-9), weight_cap=1.0)
    with Ledger.create(folder / "cohort", "all", unit=Unit.USER) as ledger:
        with pytest.raises(InputError, match=words):
            evaluate(people(), None, spec, ledger=ledger, run="one", folder=folder / "run")
        assert not ledger.entries()
    assert not (folder / "run").exists()
    with pytest.raises(InputError, match=words):
        told(folder, estimators="value:1.1e-6,dplsl:1", epsilon=1e-3, delta=1e-9)


def test_shares_of_epsilon_and_delta_and_the_rest_by_squares() -> None:
    spec = asked({"value": 3.0, "lstd": 1.0, "dplsw": 4.0}, weight_cap=1.0)
    value, lstd, lsw = evaluate(people(), None, spec, seed=0).results
    (own,) = lsw.certificate.events
    assert isinstance(own, ApproxDP)
    assert (own.epsilon, own.delta) == pytest.approx((0.5, 0.5e-5), rel=1e-5)
    squares = []
    for one in (value, lstd):
        (event,) = one.certificate.events
        assert isinstance(event, Gaussian)
        squares.append((event.bound / event.std) ** 2)
    assert squares[0] / squares[1] == pytest.approx(3.0, rel=1e-4)


def test_gpope_gets_what_the_others_leave() -> None:
    """Of a budget of which nothing is left over, but for rounding and the calibration's steps."""
    study = evaluate(people(), JUDGED, asked({"value": 3.0, "gpope": 1.0}), seed=0)
    assert study.certificate is not None
    assert study.certificate.epsilon == pytest.approx(1.0, rel=1e-3)


def test_a_secret_run_says_that_a_key_was_expanded() -> None:
    study = evaluate(people(), JUDGED, asked({"value": 3.0, "gpope": 1.0}))
    assert study.certificate is not None
    assert study.certificate.noise is NoiseOrigin.SECURE_KEY
    alone = evaluate(people(), None, asked({"dplsl": 1.0}, weight_cap=1.0)).certificate
    assert alone is not None
    assert alone.noise is NoiseOrigin.SECURE


def test_a_ledger_pays_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no noise today")

    path = tmp_path / "cohort.ledger"
    with Ledger.create(path, "all", unit=Unit.USER, relation=Relation.REPLACE_ONE) as ledger:
        monkeypatch.setattr(Source, "key", broken)
        monkeypatch.setattr(Source, "normal", broken)
        spec = asked({"value": 3.0, "gpope": 1.0})
        with pytest.raises(RuntimeError):
            evaluate(people(), JUDGED, spec, ledger=ledger, run="drawn")
        spec = asked({"dplsl": 1.0}, weight_cap=1.0)
        with pytest.raises(RuntimeError):
            evaluate(people(), None, spec, ledger=ledger, run="smooth")
        assert [entry.run for entry in ledger.entries()] == ["drawn", "smooth"]


def test_what_is_tried_before_the_payment_comes_from_no_data() -> None:
    """Another person changes no placeholder figure, nor events, nor settings."""
    seen: list[list[Any]] = []
    first = people()
    changed = np.asarray(first.rewards).copy()
    changed[:9] = 1.0 - changed[:9]
    for data in (first, replace(first, rewards=changed)):
        told: list[Any] = []
        spec = asked({"value": 3.0, "gpope": 1.0, "dplsl": 1.0}, weight_cap=1.0)
        study = evaluate(data, None, spec, seed=0, tried=told.append)
        (blank,) = told
        assert isinstance(blank, Study)
        assert study.certificate is not None
        seen.append(
            [
                [one.to_dict() for one in blank.results],
                study.certificate.events,
                [one.settings for one in study.results],
            ]
        )
    assert str(seen[0]) == str(seen[1])


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimators", "changed", "policy", "words"),
    [
        ({"dplsw": 1.0}, {}, JUDGED, r"dplsw judges the policy that was followed, and is not priv"),
        ({"value": 1.0, "dplsl": 1.0}, {}, JUDGED, "or take gtd, lstd or gpope"),
        ({"dplsl": 1.0}, {"features": None}, None, "features are needed"),
        ({"gpope": 1.0}, {}, JUDGED, "must contain value: gtd, lstd and gpope come beside it"),
        ({"dplsw": 1.0, "gtd": 1.0}, {}, None, "must contain value"),
        (
            {"dplsw": 1.0},
            {"features": Polynomial(1, (0.0,), (1.0,))},
            None,
            "needs discrete states",
        ),
        ({"dplsw": 1.0}, {"grid": True}, None, "grid noise is for the estimator value alone"),
        ({"value": 1.0, "dplsl": 1.0}, {"budget": Budget(1.0, 0.0)}, None, "delta above 0"),
        ({"dplsl": 1.0}, {"budget": Budget(1.0, 0.0)}, None, "delta above 0"),
        ({"dplsl": 1.0}, {"gamma": 1.0, "horizon": None}, None, "horizon"),
        ({"value": 1.0, "dplsl": 1e-300}, {}, None, "share of dplsl is too small"),
        ({"value": 1e-300, "dplsl": 1.0}, {}, None, "share of value is too small"),
        ({"dplsw": 1e308, "dplsl": 1e308}, {}, None, "share of dplsw is too small"),
    ],
)
def test_what_is_not_private_is_refused_unpaid(
    estimators: dict[str, float], changed: dict[str, Any], policy: Tabular | None, words: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    path = tmp_path / "cohort.ledger"
    with Ledger.create(path, "all", unit=Unit.USER, relation=Relation.REPLACE_ONE) as ledger:
        with pytest.raises(InputError, match=words):
            evaluate(people(), policy, asked(estimators, **changed), ledger=ledger, run="one")
        assert not ledger.entries()


@pytest.mark.parametrize("estimators", [{"dplsl": 1.0}, {"value": 1.0, "gpope": 1.0}])
def test_public_data_is_for_the_plain_estimators(estimators: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"is for private data, .*: leave out estimators"):
        evaluate(people(), None, asked(estimators, budget=None), public=True)


def test_logged_target_probabilities_are_another_policy() -> None:
    with pytest.raises(InputError, match="not private for another"):
        evaluate(people().with_target(JUDGED), None, asked({"dplsw": 1.0}))


def told(place: Path, **changed: Any) -> DryRun:
    """A dry run on the policy that was followed, unless another is said."""
    given: dict[str, Any] = {"policy": None, "behavior_prob": None, "weight_cap": None}
    given |= {"table": (str(place / "stays.parquet"),), "user": "patient"}
    return dry_run(Request.of(said(place, **(given | changed))), place / "run")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"policy": "policy.json", "estimators": "dplsw"}, "leave out policy and target_prob"),
        ({"target_prob": "p", "estimators": "dplsw"}, "leave out policy and target_prob"),
        (
            {"estimators": "dplsw", "public": True, "epsilon": None, "delta": None},
            "public data is judged without noise: leave out estimators",
        ),
        ({"estimators": "value,gpope,dplsw", "terminated": "true", "stream": True}, "no stream"),
        ({"estimators": "value,gpope,dplsw"}, "need rewards that end"),
        ({"estimators": "dplsw", "state_range": "0:1", "state": "p", "states": None}, "discrete"),
    ],
)
def test_a_dry_run_refuses_what_a_run_does(
    folder: Path,  # noqa: F811 (the fixture)
    changed: dict[str, Any],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(InputError, match=words):
        told(folder, **changed)


# --- what is asked for, and foretold -------------------------------------------------------------


def test_of_the_logged_policy_only_what_is_needed_is_asked_for(folder: Path) -> None:  # noqa: F811 (the fixture)
    given = {"table": (str(folder / "stays.csv"),), "estimators": "dplsl"}
    missing = {one.field for one in Request.of(given).missing()}
    assert missing == {
        *("trajectory", "state", "action", "reward"),
        *("epsilon", "delta", "reward_range", "horizon"),
    }


@pytest.mark.parametrize("estimators", ["dplsw", "value:3,dplsl:1", "value,lstd,gpope,dplsw,dplsl"])
def test_what_is_foretold_is_what_a_run_does(folder: Path, estimators: str) -> None:  # noqa: F811 (the fixture)
    given: dict[str, Any] = {"policy": None, "behavior_prob": None, "weight_cap": None}
    given |= {"table": (str(folder / "stays.parquet"),), "user": "patient"}
    given |= {"estimators": estimators, "terminated": "true"}
    ahead = told(folder, **given)
    study = Request.of(said(folder, **given)).run_study(seed=1)
    assert study.certificate is not None
    assert [one.method for one in ahead.releases] == [one.method for one in study.results]
    for one, held in zip(ahead.releases, study.results, strict=True):
        promised = held.certificate
        if one.epsilon is None:  # GPOPE gets what the others leave
            assert (one.method, one.event, one.delta) == ("GPOPE", None, None)
            continue
        assert one.event is not None
        assert (one.event,) == promised.events
        assert one.delta is not None
        assert epsilon_of(one.event, one.delta) <= one.epsilon * (1.0 + 1e-9)
    assert "new policy" not in "".join(ahead.lines())
    assert ahead.unit is study.certificate.unit
    facts = {fact.name for fact in study.facts}
    assert not facts & {"weight_cap", "largest_ratio"}
    assert {"reward_range", "estimators", "states"} <= facts
    (bound,) = (fact for fact in study.facts if fact.name == "return_bound")
    cut = [name for name in estimators.replace(":", ",").split(",") if name.startswith("dp")]
    assert bound.meaning == f"Returns are cut to it, up and down, by {' and '.join(cut)}."
    # Rewards up to 1 over the horizon, or what was said.
    (returns,) = (fact for fact in study.facts if fact.name == "return_range")
    assert (bound.origin, f"0 to {bound.value}") == ("derived", returns.value)
    spec = Request.of(said(folder, **given, return_bound=0.5))
    _, _, asked_for = spec.prepare()
    (bound,) = (f for f in public_facts(spec, asked_for, "9") if f.name == "return_bound")
    assert (bound.value, bound.origin) == ("0.5", "given")


def test_gpope_follows_from_the_number_of_people(folder: Path) -> None:  # noqa: F811 (the fixture)
    ahead = told(
        folder,
        policy=str(folder / "policy.json"),
        behavior_prob="p",
        weight_cap=4.0,
        terminated="true",
        estimators="value:3,gpope:1",
    )
    value, gpope = ahead.releases
    assert (value.method, gpope.method, gpope.event) == ("PrivateValue", "GPOPE", None)
    assert "number of people" in gpope.noise
    assert "  release   GPOPE, what the others leave of it" in ahead.lines()


def test_the_prepared_run_is_tried_before_it_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled and run on a key of nobody's, so that memory is missed before the payment."""
    called: list[str] = []
    kind = gpope.PreparedRun
    for name in ("try_iterations", "run_iterations"):
        real = getattr(kind, name)

        def noticed(self: Any, *given: Any, _name: str = name, _real: Any = real) -> Any:
            called.append(_name)
            return _real(self, *given)

        monkeypatch.setattr(kind, name, noticed)
    evaluate(
        people(),
        JUDGED,
        asked({"value": 3.0, "gpope": 1.0}),
        tried=lambda _: called.append("tried"),
    )
    assert called == ["try_iterations", "tried", "run_iterations"]
