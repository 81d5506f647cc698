"""`privrl.load`: everything that is saved comes back as what it was."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privrl
from privrl import Certificate, Claim, Ledger, PrivacySession
from privrl.core import files
from privrl.data import Tabular
from privrl.evaluation import Result
from privrl.privacy import Unit, claims
from privrl.risk import Prospect
from privrl.run.loading import _READERS
from privrl.run.study import Study
from tests.run.test_evaluation import JUDGED, data, question


@pytest.fixture(scope="module")
def study() -> Study:
    return privrl.evaluate(data(), JUDGED, question(), seed=3)


def test_a_study_its_results_and_its_certificate(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path / "study.json")
    again = privrl.load(tmp_path / "study.json")
    assert isinstance(again, Study)
    assert again.to_dict() == study.to_dict()
    assert privrl.load(tmp_path).to_dict() == study.to_dict()
    result = study.results[0]
    result.save(tmp_path / "one.json")
    loaded = privrl.load(tmp_path / "one.json")
    assert isinstance(loaded, Result)
    assert loaded.to_dict() == result.to_dict()
    (tmp_path / "certificate.json").write_text(result.certificate.to_json())
    assert privrl.load(tmp_path / "certificate.json") == result.certificate


def test_what_was_saved_under_the_earlier_name(study: Study, tmp_path: Path) -> None:
    told = study.results[0].to_dict()
    told["kind"] = told["kind"].replace("privrl", "tacit")
    files.write_json(tmp_path / "old.json", told)
    assert isinstance(privrl.load(tmp_path / "old.json"), Result)


def test_a_policy_a_prospect_and_a_claim(tmp_path: Path) -> None:
    policy = Tabular(np.array([[0.5, 0.5], [0.9, 0.1]]))
    policy.save(tmp_path / "policy.json")
    assert privrl.load(tmp_path / "policy.json").to_dict() == policy.to_dict()
    prospect = Prospect.tversky_kahneman()
    prospect.save(tmp_path / "prospect.json")
    assert privrl.load(str(tmp_path / "prospect.json")) == prospect
    claim = claims.ono2020_laplace()
    files.write_json(tmp_path / "claim.json", claim.to_dict())
    found = privrl.load(tmp_path / "claim.json")
    assert isinstance(found, Claim)
    assert found == claim


def test_a_ledger(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "people.ledger", population="people", unit=Unit.USER) as made:
        head = made.to_dict()
    with privrl.load(tmp_path / "people.ledger") as opened:
        assert isinstance(opened, Ledger)
        assert opened.to_dict() == head


@pytest.mark.parametrize(
    "learner", ["functional-q", pytest.param("seo2020-actor-critic", marks=pytest.mark.slow), "pgc"]
)
def test_everything_that_learns(learner: str, tmp_path: Path) -> None:
    """By the command line, with the result of each in its folder."""
    from privrl import cli
    from tests.fuzz.stock import TRAIN

    assert cli.run(["train", learner, *TRAIN[learner], "--out", str(tmp_path / "run")]) == 0
    learned = privrl.load(tmp_path / "run")
    assert learned.to_dict() == json.loads((tmp_path / "run" / "result.json").read_text())


def test_readers_are_there() -> None:
    from importlib import import_module

    for module, owner, method in _READERS.values():
        assert callable(getattr(getattr(import_module(module), owner), method))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (None, "cannot be read: No such file"),
        ({"kind": "privrl soup"}, "is nothing that privrl saved"),
        ({"kind": "privrl sweep"}, "is the plan of a sweep, whose runs are in results.parquet"),
        ({"kind": "tacit run"}, "is the options of a run: load its folder"),
        ({"format": "privrl reward model"}, "is a reward model: RewardModel.load"),
        ({"kind": "privrl claim"}, "x': This claim lacks"),
        ({"kind": "privrl certificate"}, "x': This certificate"),
        ([1], "is nothing that privrl saved"),
        ("{", "is not JSON"),
        ("folder", "holds no study.json and no result.json"),
        ("unfinished", "holds a run that is not finished: resume it first"),
        ("fifo", "cannot be read: It is a pipe"),
    ],
)
def test_what_cannot_be_loaded(made: Any, told: str, tmp_path: Path) -> None:
    place = tmp_path / "x"
    if made == "folder":
        place.mkdir()
    elif made == "unfinished":
        place.mkdir()
        (place / "noise.key").touch()
    elif made == "fifo":
        os.mkfifo(place)
    elif made is not None:
        place.write_text(made if isinstance(made, str) else json.dumps(made))
    with pytest.raises(privrl.PrivRLError, match=told):
        privrl.load(place)


def test_the_top_has_what_people_use() -> None:
    assert privrl.EvaluationSpec is type(question())
    assert {"load", "evaluate", "EvaluationSpec"} <= set(privrl.__all__)
    assert isinstance(PrivacySession(), PrivacySession)
    assert Certificate is privrl.privacy.Certificate
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        privrl.lode  # noqa: B018 (it is the access that raises)
