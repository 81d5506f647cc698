"""What a run would do is said without reading rows, paying or writing; and then it does that."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privrl import cli
from privrl.core.errors import InputError
from privrl.core.questions import MissingOptions
from privrl.privacy import Budget, Ledger, Relation, Unit
from privrl.run.dry_run import DryRun, check_folder, dry_run
from privrl.run.request import Request
from tests.run.test_request import folder, said, stays, table  # noqa: F401 (a fixture)


def asked(place: Path, **changed: Any) -> Request:
    given = {"table": (str(place / "stays.parquet"),), "user": "patient"}
    return Request.of(said(place, **(given | changed)))


def found(place: Path, out: str = "run", **changed: Any) -> DryRun:
    return dry_run(asked(place, **changed), place / out)


def held(place: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in place.rglob("*") if one.is_file()}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"grid": True},
        {"user": None},
        {"estimators": "value,lstd", "terminated": "true"},
        {"people": 150, "invalid": "neutral"},
        {"stream": True},
    ],
)
def test_what_is_foretold_is_what_a_run_does(folder: Path, changed: dict[str, Any]) -> None:  # noqa: F811
    told = found(folder, **changed)
    study = asked(folder, **changed).run_study(seed=1)
    made = study.certificate
    assert made is not None
    assert told.budget == Budget(1.0, 1e-5)
    assert (told.unit, told.relation) == (made.unit, made.relation)
    assert [one.method for one in told.releases] == [one.method for one in study.results]
    assert [one.event for one in told.releases] == list(made.events)
    noise, units = study.main.details["noise_std"], study.main.details["units"]
    shown = told.releases[0].noise
    assert f"deviation {noise['behavior'] * units:.3g} (as logged)" in shown
    assert f"{noise['target'] * units:.3g} (new policy)" in shown
    assert set(told.notes) <= set(study.notes)


def test_a_single_pass_or_gtd_follows_from_the_number_of_people(folder: Path) -> None:  # noqa: F811
    value, gtd = found(folder, terminated="true").releases
    assert (value.method, gtd.method, gtd.event) == ("PrivateValue", "PrivateGTD", None)
    assert value.event is not None
    assert value.epsilon is not None
    assert gtd.epsilon is not None
    assert 0.0 < gtd.epsilon < value.epsilon < 1.0


def test_public_data_has_no_noise_and_no_certificate(folder: Path) -> None:  # noqa: F811
    told = found(folder, epsilon=None, delta=None, public=True, terminated="true")
    assert told.budget is None
    assert told.files == ("study.json", "report.html")
    study = asked(folder, epsilon=None, delta=None, public=True, terminated="true").run_study()
    assert [one.method for one in told.releases] == [one.method for one in study.results]


def test_no_row_is_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Of tables with one schema the answer is the same, whatever is in them."""
    before = json.dumps(found(folder).to_dict())
    rows = table(stays())
    for other in (rows.slice(0, 0), rows.slice(0, 3)):
        pq.write_table(other, folder / "stays.parquet")
        assert json.dumps(found(folder).to_dict()) == before
    bad = rows.set_column(4, "outcome", pa.array(np.full(len(rows), np.nan)))
    pq.write_table(bad, folder / "stays.parquet")
    assert json.dumps(found(folder).to_dict()) == before
    csv = found(folder, table=(str(folder / "stays.csv"),)).to_dict()
    head = (folder / "stays.csv").read_text().splitlines()[0]
    (folder / "stays.csv").write_text(f"{head}\nx\n")
    assert found(folder, table=(str(folder / "stays.csv"),)).to_dict() == csv


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"epsilon": None, "horizon": None, "states": None}, "^3 options are needed"),
        ({"table": ("nowhere.parquet",)}, "There is no file"),
        ({"policy": "nowhere.json"}, "nowhere.json"),
        ({"reward": "treatment"}, "column 'treatment' holds string, but it must hold numbers"),
        ({"reward": "prize"}, "no column 'prize'"),
        ({"nulls": "carry"}, "'outcome' may hold nulls, by its type"),
        ({"reward_range": "1,0"}, "reward_range must go up"),
        ({"delta": 0.0}, "delta above 0"),
        ({"estimators": "value,gtd", "grid": True}, "alone"),
        ({"invalid": "neutral"}, "people is needed with invalid='neutral'"),
        ({"invalid": "neutral", "people": 9, "state": "stay", "states": "a"}, "holds words"),
        ({"table": ("stays.csv",), "stream": True}, "for Parquet files"),
        ({"public": True, "epsilon": None, "delta": None, "stream": True}, "judged as a whole"),
        (
            {"policy_source": "magic"},
            "policy_source must be 'independent', 'this-data' or 'unknown', not 'magic'",
        ),
    ],
)
def test_problems_are_those_of_a_run(
    folder: Path,  # noqa: F811
    changed: dict[str, Any],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(InputError, match=told) as dry:
        found(folder, **changed)
    with pytest.raises(InputError) as real:
        asked(folder, **changed).run_study()
    if isinstance(dry.value, MissingOptions):
        assert str(real.value) == str(dry.value)


def test_a_ledger_must_have_room_and_pays_nothing(folder: Path) -> None:  # noqa: F811
    path = folder / "cohort.ledger"
    Ledger.create(path, "cohort", unit=Unit.USER, limit=Budget(1.2, 1e-5)).close()
    before = held(folder)
    for changed in ({}, {"terminated": "true"}):
        told = dry_run(asked(folder, **changed), folder / "run", path, "first")
        assert told.ledger is not None
        assert "(100.0% of its limit is left), as run 'first'" in told.ledger
    assert held(folder) == before
    with Ledger.open(path) as ledger:
        assert len(ledger) == 0
        asked(folder).run_study(ledger=ledger, run="first")
    for run, words in (("second", "would exceed the limit"), ("first", "a run 'first' already")):
        with pytest.raises(Exception, match=words):
            dry_run(asked(folder, epsilon=0.9), folder / "run", path, run)
    dry_run(asked(folder, epsilon=0.1), folder / "run", path, "second")
    with pytest.raises(InputError, match="they do not add up"):
        dry_run(asked(folder, user=None, epsilon=0.1), folder / "run", path, "second")
    other = folder / "local.ledger"
    Ledger.create(other, "cohort", unit=Unit.USER, relation=Relation.ADD_REMOVE).close()
    with pytest.raises(InputError, match="they do not add up"):
        dry_run(asked(folder), folder / "run", other, "first")


def test_a_folder_is_free_and_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_folder(tmp_path)
    check_folder(tmp_path / "new" / "run")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written to"):
        check_folder(tmp_path / "file" / "run")
    for name, told in (("noise.key", "interrupted run"), ("study.json", "a run already")):
        (tmp_path / name).touch()
        with pytest.raises(InputError, match=told):
            check_folder(tmp_path)
        (tmp_path / name).unlink()
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(InputError, match="is full"):
        check_folder(tmp_path)


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    given = said(folder, table=None, user="patient")
    words = ["evaluate", str(folder / "stays.parquet"), "--out", str(folder / "run")]
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    before = held(folder)
    assert cli.run([*words, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
    assert lines[:2] == [
        "Nothing was read, paid or written. A run would",
        "  promise   epsilon 1 at delta 1e-05, user, replace-one",
    ]
    assert lines[-1].endswith(f"in '{folder / 'run'}'")
    assert cli.run([*words, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["dry_run"] is True
    assert told["budget"] == {"epsilon": 1.0, "delta": 1e-5}
    assert told["releases"][0]["event"]["type"] == "Gaussian"
    assert cli.run([*words, "--dry-run", "--ledger", "nowhere"]) == 2
    assert held(folder) == before
    assert not (folder / "run").exists()
    assert cli.run(["evaluate", "--out", str(folder / "run"), "--resume", "--dry-run"]) == 2
    assert "leave out --dry-run" in capsys.readouterr().err
