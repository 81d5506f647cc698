"""`privrl train rajabi2022-prospect` as people meet it."""

import json
from pathlib import Path

import numpy as np
import pytest

from privrl import cli
from privrl.control import LearnedQ
from privrl.data import load_policy
from privrl.papers.rajabi2022 import ProspectQ

PAPER = [
    *("train", "rajabi2022-prospect", "--env", "ObstacleSquare", "--iterations", "2"),
    *("--batch", "3", "--samples", "4"),
]


def test_it_claims_and_does_not_certify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert cli.run([*PAPER, "--epsilon", "0.9", "--public", "--out", str(run)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "ObstacleSquare: values of actions from 2 iterations of 3 steps." in said
    assert "Claimed, not certified: epsilon 0.9" in said
    assert "Nothing is certified: iterations are never added up" in said
    learned = LearnedQ.load(run / "result.json")
    points = np.array([[0.5, 0.5], [7.2, 3.3]])
    policy = load_policy(run / "policy.json")
    np.testing.assert_allclose(policy.probabilities(points), learned.predict(points))
    assert learned.claim.source == "rajabi2022, Theorem 1"


@pytest.mark.slow
def test_in_python_it_is_the_same(tmp_path: Path) -> None:
    run, told = tmp_path / "run", list[tuple[int, int]]()
    words = [*PAPER, "--epsilon", "0.9", "--public", "--seed", "3", "--out", str(run)]
    assert cli.run(words) == 0
    agent = ProspectQ.printed(epsilon=0.9, iterations=2, batch=3, samples=4)
    same = agent.learn("ObstacleSquare", seed=3, public=True, progress=lambda *at: told.append(at))
    assert told[-1] == (2, 2)
    assert json.loads(json.dumps(same.to_dict())) == json.loads((run / "result.json").read_text())


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
