"""Exit codes, and refusals as JSON: one document on standard output, whatever the command."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from privrl import cli
from privrl.privacy import Certificate, InputError, Ledger, PureDP, Unit
from tests.fuzz.stock import BUDGET, EVALUATE, TABLE, Stock

# The command, its exit code, the kind of error, the field it is about, and words of its message.
REFUSED: dict[str, tuple[list[str], str, str | None, str]] = {
    "budget": (["budget", "Gaussian(1, 1)", "--delta", "2"], "InputError", "delta", "--delta must"),
    "usage": (["budget", "--frequency", "3"], "UsageError", None, "No such option"),
    "no command": (["conjure"], "UsageError", None, "No such command"),
    "verify": (["verify", "nowhere.json"], "CertificateError", None, "There is no file"),
    "sign": (["sign", "nowhere.json", "--key", "key"], "CertificateError", None, "no file"),
    "keygen": (["keygen", "no/such/key"], "InputError", None, "cannot be"),
    "audit": (["audit"], "InputError", None, "Say what to attack"),
    "limits": (["limits", "--epsilon", "-1"], "InputError", "epsilon", "--epsilon must"),
    "risk": (["risk"], "InputError", None, "Say --outcomes"),
    "check": (["check", "stays.csv"], "MissingOptions", None, "4 options are needed:"),
    "evaluate": (["evaluate"], "InputError", None, "Say which table"),
    "report": (["report", "nowhere"], "InputError", None, "study.json"),
    "ledger show": (["ledger", "show", "nowhere"], "LedgerError", None, "nowhere"),
    "ledger check": (["ledger", "check", "nowhere"], "LedgerError", None, "nowhere"),
    "ledger create": (["ledger", "create"], "UsageError", None, "Missing argument"),
    "train": (["train", "nothing"], "InputError", None, "There is no learner"),
    "train pgc": (["train", "pgc", "--env", "Nowhere"], "InputError", None, "Nowhere"),
    "sweep": (["sweep"], "InputError", None, "Say what is to learn"),
    "reproduce": (["reproduce", "none2020"], "InputError", None, "There is no target"),
    "demo": (["demo", "--people", "0"], "InputError", "people", "--people must"),
}


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Stock(tmp_path_factory.mktemp("stock"))
    made.make({"reading"})
    return made.folder


@pytest.fixture(autouse=True)
def here(stock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stock)


def run(code: int, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str]:
    """What is on standard output, read as JSON, and on standard error."""
    assert cli.run([*words, "--json"]) == code
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_one_document(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, kind, field, told = REFUSED[name]
    before = sorted(Path().iterdir())
    found, said = run(2, capsys, *words)
    assert set(found) == {"error"}
    error = found["error"]
    assert set(error) == {"kind", "message", "field", "remedy", "missing"}
    assert (error["kind"], error["field"]) == (kind, field)
    assert told in error["message"]
    assert said == f"privrl: {error['message']}\n"
    assert bool(error["missing"]) == (kind == "MissingOptions")
    # Without --json there is the sentence alone.
    assert cli.run(words) == 2
    assert capsys.readouterr() == ("", said)
    assert sorted(Path().iterdir()) == before


def test_all_that_is_missing_is_in_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    found, said = run(2, capsys, "evaluate", "stays.csv", *TABLE, "--policy", "policy.json")
    missing = found["error"]["missing"]
    names = {"behavior_prob", "epsilon", "delta", "reward_range", "horizon", "weight_cap"}
    assert {one["field"] for one in missing} == names
    assert all(set(one) == {"field", "option", "question", "hint"} for one in missing)
    assert {one["option"] for one in missing} == {f"--{n.replace('_', '-')}" for n in names}
    assert len(said.splitlines()) == 1 + len(names)
    # One alone is a sentence, which has what to do in its remedy.
    at = EVALUATE.index("--weight-cap")
    words = [*EVALUATE[:at], *EVALUATE[at + 2 :], "--reward-range", "0,1", *BUDGET]
    found, said = run(2, capsys, "evaluate", "stays.csv", *words)
    error = found["error"]
    assert (error["field"], len(error["missing"])) == ("weight_cap", 1)
    assert error["remedy"].startswith("say with --weight-cap how much one trajectory may count")
    assert said.startswith("privrl: weight_cap is needed: say with --weight-cap how much")


def test_a_certificate_that_is_false_fails_a_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(Certificate.issue(PureDP(1.0), 0.0, unit=Unit.USER).to_json())
    found, said = run(0, capsys, "verify", str(path))
    assert (found["verified"], said) == (True, "")
    found, said = run(1, capsys, "verify", str(path), "--strict")
    assert (found["verified"], found["invalid"]) == (False, None)
    assert found["certificate"]["epsilon"] == 1.0
    assert found["error"]["kind"] == "CertificateError"
    assert said == f"privrl: {found['error']['message']}\n"
    path.write_text(path.read_text().replace('"epsilon": 1.0', '"epsilon": 0.5'))
    found, _ = run(1, capsys, "verify", str(path))
    assert (found["verified"], found["certificate"]) == (False, None)
    assert "was changed" in found["error"]["message"]


def test_a_ledger_that_was_rolled_back_fails_a_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.create(tmp_path / "l", "people", unit=Unit.USER) as ledger:
        ledger.spend(PureDP(1.0), run="r")
    (tmp_path / "anchor").write_text("")
    words = ["ledger", "check", str(tmp_path / "l"), "--anchor", str(tmp_path / "anchor")]
    run(0, capsys, *words)
    (tmp_path / "l").unlink()
    Ledger.create(tmp_path / "l", "people", unit=Unit.USER).close()
    found, _ = run(1, capsys, *words)
    assert found["rolled_back"] is True


def test_what_was_found_is_the_one_document_even_if_it_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise InputError("the disk is full.")

    monkeypatch.setattr("privrl.report.folder.write", full)
    words = ["evaluate", "stays.csv", *EVALUATE, "--public", "--out", str(tmp_path / "run")]
    found, said = run(2, capsys, *words)
    assert found["kind"] == "privrl study"
    assert "the disk is full" in said


def test_an_interrupt_leaves_130_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("privrl.run.request.Request.check", interrupted)
    assert cli.run(["check", "stays.csv", *TABLE, "--json"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_value_behind_two_dashes_asks_for_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["budget", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("privrl eva", {"evaluate"}),
        ("privrl train func", {"functional-q"}),
        (
            "privrl evaluate --behavior-",
            {"--behavior-prob", "--behavior-source", "--behavior-name"},
        ),
        ("privrl train pgc --age", {"--agents"}),
    ],
)
def test_shells_complete_commands_learners_and_options(words: str, completed: set[str]) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    found = subprocess.run(
        [sys.executable, "-m", "privrl"],
        env=os.environ | asked | {"_PRIVRL_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(found.stdout.split()) == completed


def test_python_runs_the_package() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "privrl", "conjure", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    assert json.loads(found.stdout)["error"]["kind"] == "UsageError"
