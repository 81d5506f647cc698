"""`privrl train --dry-run`: every learner says what it would do, and does nothing."""

import json
from pathlib import Path

import pytest

from privrl import cli
from privrl.privacy import Ledger, Relation, Unit
from privrl.run.specs import LEARNERS

BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
WORDS = {
    "actor-critic": ["--env", "Chain", "--people", "9", "--return-range", "0,1", *BUDGET],
    "functional-q": [
        *("--env", "Interval", "--reward-radius", "0.01", "--reward-range", "0,0.5"),
        *BUDGET,
    ],
    "prospect": [
        *("--env", "ObstacleGrid", "--reward-radius", "0.01", "--reward-range=-50,0"),
        *BUDGET,
    ],
    "pgc": ["--env", "CartPole", "--agents", "900", "--epsilon", "1"],
    "ono2020-pgc": [
        *("--env", "CartPole", "--agents", "9", "--epsilon", "1", "--mechanism", "laplace"),
    ],
    "seo2020-actor-critic": ["--env", "Chain", "--episodes", "9", *BUDGET],
    "wang2019-functional-q": ["--env", "Interval", "--epsilon", "0.9"],
    "rajabi2022-prospect": ["--env", "ObstacleSquare", "--epsilon", "0.9"],
}
TABLE = [
    *("--trajectory", "stay", "--state", "hr", "--state-range", "30:200", "--action", "dose"),
    *("--num-actions", "2", "--reward", "r", "--reward-range", "0,1", *BUDGET),
]


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "stays.csv"
    # A row that no reader would take: a dry run does not look at rows.
    path.write_text("stay,hr,dose,r\n1,not a number,0,0.5\n")
    return str(path)


def test_every_learner_is_tried() -> None:
    assert {*WORDS, "logged-q"} == set(LEARNERS)


@pytest.mark.parametrize("learner", LEARNERS)
def test_nothing_is_played_paid_or_written(
    learner: str, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [table, *TABLE] if learner == "logged-q" else WORDS[learner]
    out = tmp_path / "run"
    before = sorted(tmp_path.iterdir())
    assert cli.run(["train", learner, *words, "--out", str(out), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(tmp_path.iterdir()) == before
    assert told["dry_run"] is True
    assert told["folder"] == str(out)
    is_paper = (learner[-1] != "q" and "20" in learner) or learner == "wang2019-functional-q"
    assert (told["budget"] is None) == is_paper
    assert any("claim" in note for note in told["notes"]) == is_paper
    if not is_paper:
        assert told["budget"]["epsilon"] == 1.0


def test_a_ledger_is_asked_and_does_not_pay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "people.ledger"
    with Ledger.create(
        place, "people", unit=Unit.TRAJECTORY, relation=Relation.REPLACE_ONE
    ) as made:
        before = made.to_dict()
    words = ["train", "actor-critic", *WORDS["actor-critic"], "--out", str(tmp_path / "run")]
    assert cli.run([*words, "--ledger", str(place), "--dry-run"]) == 0
    assert "in the ledger" in capsys.readouterr().out
    with Ledger.open(place) as opened:
        assert opened.to_dict() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--variant", "wrong"], "--variant must be"),
        (["--logs", "csv"], "A log holds returns"),
        (["--name", "x"], "say which with --ledger"),
        (["--batch", "0"], "--batch must be at least 1"),
        (["--features", "network:a"], "network needs sizes"),
    ],
)
def test_what_a_run_would_refuse_is_refused(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*WORDS["actor-critic"], *words, "--out", str(tmp_path / "run")]
    assert cli.run(["train", "actor-critic", *given, "--dry-run"]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "result.json").write_text("{}")
    given = [*WORDS["actor-critic"], "--out", str(tmp_path)]
    assert cli.run(["train", "actor-critic", *given, "--dry-run"]) == 2
    assert "holds a run already" in capsys.readouterr().err
