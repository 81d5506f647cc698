"""What certified fits say of the data they were given: the caller's words leave a trace."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privrl.data import OneHot, Tabular, Trajectories, stream_parquet
from privrl.data.assumptions import DECLARED_PUBLIC, ESTIMATED, VALIDATED
from privrl.data.behavior import PrivateEstimate
from privrl.evaluation import (
    DPLSL,
    DPLSW,
    GPOPE,
    PrivateGTD,
    PrivateLSTD,
    PrivateValue,
    Schema,
    simulate_like,
)
from privrl.privacy import Budget, InputError, LargeDelta
from privrl.privacy.certificate import Certificate
from privrl.privacy.session import PrivacySession
from privrl.run.evaluation import EvaluationSpec, evaluate

PEOPLE = 40
POLICY = Tabular(np.array([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]]))
# Calibrating GPOPE's noise takes most of a minute.
SLOW = pytest.param("gpope", marks=pytest.mark.slow)
FITS = ("value", "grid", "lstd", "gtd", "one-pass", "lsw", "lsl", SLOW)


def logged() -> Trajectories:
    schema = Schema(PEOPLE, 4, 2, (0.0, 1.0), num_states=3, ending=0.2)
    return simulate_like(schema, 0, Tabular.uniform(3, 2))


def judge(name: str, delta: float) -> Any:
    common: dict[str, Any] = {
        "reward_range": (0.0, 1.0),
        "gamma": 0.9,
        "budget": Budget(1.0, delta),
    }
    off = common | {"weight_cap": 3.0}
    features = OneHot(3)
    made: dict[str, Any] = {
        "value": lambda: PrivateValue(**off),
        "grid": lambda: PrivateValue(**off, grid=True),
        "lstd": lambda: PrivateLSTD(features, **off),
        "gtd": lambda: PrivateGTD(features, **off, iterations=2),
        "one-pass": lambda: PrivateGTD(features, **off, batch_units=10),
        "lsw": lambda: DPLSW(features, **common),
        "lsl": lambda: DPLSL(features, **common),
        "gpope": lambda: GPOPE(
            features, gamma=0.9, budget=common["budget"], weight_cap=3.0, clip=1.0, step=0.1
        ),
    }
    return made[name]()


def fitted(name: str, delta: float = 1e-4, **more: Any) -> Certificate:
    policy = None if name in ("lsw", "lsl") else POLICY
    session = PrivacySession(seed=0, **more)
    found: Certificate = judge(name, delta).fit(logged(), policy, session=session).certificate
    return found


@pytest.mark.parametrize("name", FITS)
def test_data_declared_public_leaves_a_trace(name: str) -> None:
    shown, hidden = fitted(name, public=True).assumptions, fitted(name).assumptions
    assert DECLARED_PUBLIC in shown
    assert DECLARED_PUBLIC not in hidden
    assert VALIDATED in hidden


@pytest.mark.parametrize("name", FITS)
def test_a_delta_of_one_person_or_more_draws_a_warning(name: str) -> None:
    with pytest.warns(LargeDelta, match=f"not below 1/{PEOPLE}"):
        fitted(name, delta=1.0 / PEOPLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(name, delta=0.99 / PEOPLE)


@pytest.mark.parametrize("name", ["value", "lstd", "gtd", "one-pass", SLOW])
def test_estimated_probabilities_leave_a_trace(name: str) -> None:
    data = logged().with_estimated_behavior("counts", public=True, overwrite=True)
    found = judge(name, 1e-4).fit(data, POLICY, session=PrivacySession(seed=0)).certificate
    assert ESTIMATED in found.assumptions
    assert ESTIMATED not in fitted(name).assumptions


def test_estimated_probabilities_are_in_a_study(tmp_path: Path) -> None:
    """Also after a way through a file, and in a stream: the facts were an empty list."""
    data = logged().with_estimated_behavior("counts", public=True, overwrite=True)
    names = data.to_parquet(tmp_path / "logged.parquet")
    question = EvaluationSpec((0.0, 1.0), 3.0, Budget(1.0, 1e-4), horizon=4)
    for source in (
        data,
        Trajectories.from_parquet(tmp_path / "logged.parquet", **names),
        stream_parquet(tmp_path / "logged.parquet", **names),
    ):
        study = evaluate(source, POLICY, question, seed=0)
        assert study.certificate is not None
        assert ESTIMATED in study.certificate.assumptions
        assert any("were estimated" in note for note in study.notes)
        facts = {fact.name: fact.meaning for fact in study.facts}
        assert facts["behavior_prob"].startswith("They were estimated from the data")
        assert "not stated by the caller" in facts["policy"]
        with pytest.raises(InputError, match="declare them estimated"):
            evaluate(source, POLICY, question, behavior_source="logged")


def test_unpaid_estimates_are_still_refused() -> None:
    with pytest.warns(PrivateEstimate):
        data = logged().with_estimated_behavior("counts", overwrite=True)
    question = EvaluationSpec((0.0, 1.0), 3.0, Budget(1.0, 1e-4), horizon=4)
    with pytest.raises(InputError, match="estimated from this very data"):
        evaluate(data, POLICY, question)
