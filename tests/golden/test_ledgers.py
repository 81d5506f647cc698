"""Ledgers, certificates and interrupted runs of the time when the package was called tacit."""

import json
import shutil
from pathlib import Path

import pytest

from privrl import cli
from privrl.privacy import Certificate, Gaussian, Ledger, OverBudget
from tests.fuzz.stock import tables

KEPT = Path(__file__).parent / "ledgers"


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all, as the working directory."""
    shutil.copytree(KEPT, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_files_are_those_of_the_old_name() -> None:
    for path in ("judged/certificate.json", "signed.json", "learning/run.json"):
        assert json.loads((KEPT / path).read_text())["kind"].startswith("tacit ")


def test_a_ledger_is_opened_checked_and_shown(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--anchor", "anchor", "--certificate", "judged/certificate.json"]
    assert cli.run(["ledger", "check", "people.ledger", *words]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "5 entries, unbroken, each at the cost of its events" in printed
    assert cli.run(["ledger", "show", "people.ledger", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["epsilon"] == pytest.approx(3.4209, abs=1e-3)
    assert cli.run(["ledger", "export", "people.ledger"]) == 0
    (copy / "exported.json").write_text(capsys.readouterr().out)
    assert cli.run(["ledger", "import", "again.ledger", "exported.json"]) == 0
    with Ledger.open("people.ledger") as one, Ledger.open("again.ledger") as other:
        assert one.entries() == other.entries()
        assert [(entry.run, entry.partition, entry.slot) for entry in one.entries()] == [
            ("judged", "", 0),
            ("by year", "years", 0),
            ("by year", "years", 1),
            ("sampled", "", 0),
            ("learning", "", 0),
        ]


def test_spending_goes_on_in_the_chain(copy: Path) -> None:
    issued = Certificate.read("judged/certificate.json")
    with Ledger.open("people.ledger") as ledger:
        before, left = ledger.entries()[-1], ledger.remaining()
        entry = ledger.spend(Gaussian(30.0, 1.0), run="later", partition="years", slot=2)
        assert entry.previous == before.digest
        assert ledger.check() == 6
        assert ledger.is_consistent_with(issued)
        # The other slots have paid more.
        assert ledger.remaining() == left
        ledger.spend(Gaussian(30.0, 1.0), run="later")
        now = ledger.remaining()
        assert left is not None
        assert now is not None
        assert now < left
        with pytest.raises(OverBudget):
            ledger.spend(Gaussian(0.01, 1.0), run="far too much")
    assert cli.run(["ledger", "check", "people.ledger", "--anchor", "anchor"]) == 0


def test_certificates_are_verified(copy: Path) -> None:
    assert cli.run(["verify", "judged/certificate.json"]) == 0
    Certificate.read("signed.json").verify()
    # The text is what was signed: another figure is another certificate.
    text = Path("judged/certificate.json").read_text()
    Path("false.json").write_text(text.replace('"delta": 0.001', '"delta": 0.0001'))
    assert cli.run(["verify", "false.json"]) == 1


def test_signatures_are_verified(copy: Path) -> None:
    pytest.importorskip("cryptography")
    assert cli.run(["verify", "signed.json", "--public-key", "key.pub"]) == 0
    assert cli.run(["verify", "judged/certificate.json", "--public-key", "key.pub"]) == 1


def test_a_study_is_reported(copy: Path) -> None:
    assert cli.run(["report", "judged"]) == 0
    assert "epsilon" in Path("judged/report.html").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["train", "actor-critic", "--out", "learning", "--resume"],
        ["evaluate", "--out", "killed", "--resume"],
    ],
)
def test_interrupted_runs_go_on_with_the_version_that_began_them(
    words: list[str], copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another version may compute other sums, over which the same noise must not be drawn."""
    tables(copy)

    def kept() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (copy / words[-2]).glob("[!.]*")}

    before = kept()
    assert cli.run(words) == 2
    assert "the run was begun with" in capsys.readouterr().err
    assert kept() == before
    with Ledger.open("people.ledger") as ledger:
        assert len(ledger) == 5
