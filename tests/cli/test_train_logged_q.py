"""`privrl train logged-q` as people meet it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privrl import cli
from privrl.control import LearnedQ, noised_q
from privrl.data import load_policy
from privrl.privacy import Ledger
from privrl.privacy.resuming import KEY_FILE
from tests.cli.problems import TABLE, write_stays

TRAIN = ["train", "logged-q"]
COLUMNS = [
    *("--trajectory", "stay", "--user", "patient", "--time", "t", "--state", "hr,map"),
    *("--action", "dose", "--reward", "r"),
]
BUDGET = ["--epsilon", "1", "--delta", "1e-3"]
RANGE = ["--reward-range", "-1,1"]
COUNT = ["--num-actions", "2"]
STATES = ["--state-range", "30:200,40:140", "--features", "fourier:1"]
REST = [*COLUMNS, *BUDGET, *RANGE, *COUNT, *STATES, "--updates", "4"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / TABLE
    write_stays(path)
    return str(path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_policy_that_was_learned_can_be_judged(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    public = [*COLUMNS, *RANGE, *COUNT, *STATES, "--public", "--terminated", "true"]
    assert cli.run([*TRAIN, table, *public, "--gamma", "0", "--out", str(run)]) == 0
    said = capsys.readouterr().out
    assert "Not private" in said
    assert "Protected" not in said
    assert names(run) == ["policy.json", "result.json", "run.json"]
    chosen = load_policy(run / "policy.json").probabilities(np.array([[90.0, 45.0], [90.0, 135.0]]))
    np.testing.assert_array_equal(chosen, [[1.0, 0.0], [0.0, 1.0]])
    words = ["evaluate", table, "--policy", str(run / "policy.json"), "--behavior-prob", "p"]
    words += [*COLUMNS, "--public", "--horizon", "1", "--out", str(tmp_path / "study")]
    assert cli.run([*words, "--json"]) == 0
    # Everybody who went the policy's way was paid 1, near enough.
    assert json.loads(capsys.readouterr().out)["results"][0]["estimate"] > 0.8


def test_words_of_states_and_actions(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TRAIN, table, "--trajectory", "stay", "--state", "ward", "--action", "drug"]
    words += ["--reward", "r", *BUDGET, *RANGE, "--updates", "2"]
    listed = [*words, "--states", "north,south,east", "--actions", "none,some"]
    assert cli.run([*listed, "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "values of actions from 50 trajectories." in said
    assert "name the column of people with --user if anybody can have several" in said
    assert LearnedQ.load(tmp_path / "run" / "result.json").head.shape == (3, 2)
    # Which words there are must be said, since it is private which of them occur.
    for given, sentence in (
        (["--num-states", "3", "--actions", "none,some"], "say with --states which words"),
        (["--states", "north,south", "--num-actions", "2"], "say with --actions which words"),
        (["--states", "north", "--actions", "none,some"], "is not among --states"),
    ):
        assert cli.run([*words, *given, "--out", str(tmp_path / "no")]) == 2
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_an_interrupted_evaluation_is_left_as_it_is(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / KEY_FILE).write_text("{}")
    assert cli.run([*TRAIN, table, *REST, "--out", str(tmp_path / "run")]) == 2
    assert "holds an interrupted run: resume it" in capsys.readouterr().err
    assert names(tmp_path / "run") == [KEY_FILE]


NEXT = [*COLUMNS, *BUDGET, *RANGE, *COUNT]


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (
            [],
            [
                "privrl: 9 options are needed:",
                "  --trajectory: which column tells one",
                "  --state: which columns describe",
                "  --action: which column holds",
                "  --reward: which column holds",
                "  --epsilon: the privacy budget for each person",
                "  --delta: the failure probability",
                "  --reward-range: the smallest",
                "  --num-actions: how many",
                "  --state-range: what each state could be",
                "  The columns are ",
                "  It is not measured",
            ],
        ),
        (
            COLUMNS,
            [
                "privrl: 5 options are needed:",
                "  --epsilon: the privacy budget for each person",
                "  --delta: the failure probability",
                "  --reward-range: the smallest",
                "  --num-actions: how many",
                "  --state-range: what each state could be",
                "  It is not measured",
            ],
        ),
    ],
)
def test_what_is_missing_is_asked_for_in_one_list(
    words: list[str], sentences: list[str], table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*TRAIN, table, *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(sentences)
    for line, begin in zip(lines, sentences, strict=True):
        assert line.startswith(begin)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([*COLUMNS, "--epsilon", "1"], "--delta: the failure probability"),
        ([*COLUMNS, *BUDGET], "--reward-range: the smallest"),
        ([*COLUMNS, *BUDGET, *RANGE], "--num-actions: how many"),
        (NEXT, "state_range is needed: say with --state-range what each state could be"),
        ([*NEXT, "--state", "ward"], "num_states is needed: say with --num-states how many"),
        ([*NEXT, "--state-range", "0:1"], "state_range has 1 ranges for states of 2 numbers"),
        ([*REST, "--features", "wavelet:3"], "--features must be table, polynomial:2"),
        ([*REST, "--features", "network:a"], "network needs sizes, by commas"),
        ([*REST, "--delta", "0"], "delta must be above 0, because the noise is Gaussian"),
        ([*REST, "--epsilon", "-1"], "privrl: --epsilon must be positive"),
        ([*REST, "--epsilon", "nan"], "privrl: --epsilon must be a number, not NaN"),
        ([*REST, "--public"], "Data declared --public has no --epsilon and --delta to spend"),
        ([*REST, "--reward-range", "1,0"], "--reward-range must go up"),
        ([*REST, "--updates", "0"], "--updates must be at least 1"),
        ([*REST, "--step", "0"], "step must be"),
        ([*REST, "--clip", "1e300"], "bound 1e+300 is too large"),
        ([*REST, "--gamma", "1.5"], "gamma must be at most 1"),
        ([*REST, "--average", "2"], "average must be at most 1"),
        ([*REST, "--optimiser", "lion"], "optimiser must be 'sgd' or 'adam', not 'lion'"),
        ([*REST, "--reward", "prize"], "prize"),
        ([*REST, "--num-actions", "1"], "the action lies outside the 1 action"),
        ([*REST, "--name", "x"], "say which with --ledger"),
        ([*REST, "--ledger", "x"], "x"),
        ([*REST, "--env", "Taxi-v4"], "No such option: --env"),
        ([*REST, "--resume"], "leave out the table"),
    ],
)
def test_what_is_missing_or_wrong_is_said_in_one_sentence(
    words: list[str],
    sentence: str,
    table: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run([*TRAIN, table, *words, "--out", str(tmp_path / "deep" / "run")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("privrl: ")
    assert sentence in printed.err
    assert printed.err.count("\n") == 1 or "options are needed:\n" in printed.err
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(TRAIN) == 2
    assert "Say which table to read: privrl train logged-q stays.parquet" in capsys.readouterr().err
    public = [*TRAIN, "none.parquet", *COLUMNS]
    assert cli.run(public) == 2
    assert "There is no file none.parquet." in capsys.readouterr().err


def test_of_two_runs_that_begin_under_one_name_one_pays(
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The other one came between this one's first look into the ledger and its payment."""
    monkeypatch.chdir(tmp_path)
    words = ["ledger", "create", "people", "--population", "icu", "--unit", "user"]
    assert cli.run([*words, "--relation", "replace-one", "--epsilon", "9", "--delta", "1e-2"]) == 0
    begin = [*TRAIN, table, *REST, "--ledger", "people", "--name", "same"]
    calibrated, began = noised_q.calibrate_noise, list[bool]()

    def meanwhile(*given: Any) -> Any:
        if not began:
            began.append(True)
            assert cli.run([*begin, "--out", "first"]) == 0
        return calibrated(*given)

    monkeypatch.setattr(noised_q, "calibrate_noise", meanwhile)
    assert cli.run([*begin, "--out", "second"]) == 2
    assert "has a run 'same' already: give this one another name" in capsys.readouterr().err
    assert not (tmp_path / "second").exists()
    with Ledger.open("people") as ledger:
        assert len(list(ledger.entries())) == 1
    assert cli.run([*begin[:-1], "other", "--out", "second"]) == 0
