"""`privrl train prospect` as people meet it."""

import json
from pathlib import Path

import pytest

from privrl import cli

HERE = ["train", "prospect", "--env", "ObstacleGrid", "--steps", "300", "--samples", "5"]
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
RANGE = ["--reward-range=-50,0"]
CERTIFIED = [*HERE, "--reward-radius", "0.01", *RANGE, *BUDGET]


@pytest.mark.slow
def test_updates_need_no_radius(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*HERE, *RANGE, *BUDGET, "--release", "updates", "--updates", "3", "--batch", "20"]
    assert cli.run([*words, "--clip", "0.1", "--out", str(tmp_path / "run"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["promise"]["reward_radius"] == 50.0
    assert answer["settings"]["descent"]["clip"] == 0.1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "prospect"], "--env: which environment to learn in"),
        ([*HERE, *RANGE, *BUDGET], "reward_radius is needed"),
        ([*HERE, "--reward-radius", "1", *BUDGET], "reward_range is needed"),
        ([*CERTIFIED, "--prospect", "bold"], "prospect must be neutral, tversky-kahneman"),
        (
            [*CERTIFIED, "--release", "weights"],
            "--release must be 'reward-model', 'updates' or",
        ),
        ([*CERTIFIED, "--clip", "1"], "clip belongs to --release updates: leave it out."),
        ([*CERTIFIED, "--acting", "greedy"], "No such option: --acting"),
        ([*CERTIFIED, "--planner", "actor-critic"], "planner must be 'fitted' or 'network'"),
    ],
)
def test_what_is_missing_or_wrong_is_said(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert cli.run([*words, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1 or "options are needed:\n" in said
    assert not out.exists()
