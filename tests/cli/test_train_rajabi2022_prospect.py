"""`privrl train rajabi2022-prospect` as people meet it."""

from pathlib import Path

import pytest

from privrl import cli

PAPER = [
    *("train", "rajabi2022-prospect", "--env", "ObstacleSquare", "--iterations", "2"),
    *("--batch", "3", "--samples", "4"),
]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([*PAPER[:2], "--epsilon", "1"], "env is needed: say with --env which environment to"),
        ([*PAPER, "--steps", "4"], "No such option: --steps"),
        (
            [*PAPER, "--acting", "bold", "--epsilon", "1"],
            "acting must be 'greedy' or 'prop",
        ),
        (PAPER, "epsilon is needed: say with --epsilon how much is claimed for each iteration"),
        ([*PAPER, "--sigma", "1"], "rate is needed"),
        ([*PAPER, "--sigma", "1", "--epsilon", "1"], "comes with no claim"),
        ([*PAPER, "--epsilon", "1", "--prospect", "bold"], "prospect must be neutral, tversky"),
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
