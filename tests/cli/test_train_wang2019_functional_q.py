"""`privrl train wang2019-functional-q` as people meet it."""

import json
from pathlib import Path

import numpy as np
import pytest

from privrl import cli
from privrl.control import LearnedQ
from privrl.data import load_policy
from privrl.papers.wang2019 import FunctionalQ

TRAIN = ["train", "wang2019-functional-q"]
BUDGET = ["--epsilon", "0.9", "--delta", "1e-4"]
PAPER = [*TRAIN, "--env", "Interval"]

SIZE = ["--samples", "300", "--resets", "2"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_it_claims_and_does_not_certify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    words = [*PAPER, *BUDGET, *SIZE, "--seed", "0", "--public", "--out", str(run)]
    assert cli.run(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Claimed, not certified: epsilon 0.9 at delta 0.0002 for the whole run" in said
    assert "Nothing is certified: the parameters themselves are never noised" in said
    assert "mean return of fresh episodes" in said
    assert names(run) == ["claim.json", "log.csv", "policy.json", "result.json", "run.json"]
    assert len((run / "log.csv").read_text().splitlines()) == 1 + 6
    learned = LearnedQ.load(run / "result.json")
    states = np.linspace(0.0, 1.0, 11)[:, None]
    policy = load_policy(run / "policy.json")
    np.testing.assert_allclose(policy.probabilities(states), learned.probabilities(states))
    best = learned.values(states).argmax(axis=1)
    np.testing.assert_array_equal(policy.probabilities(states).argmax(axis=1), best)
    # In Python it is the same.
    agent = FunctionalQ.printed(epsilon=0.9, delta=1e-4, samples=300, resets=2)
    told: list[tuple[int, int]] = []
    same = agent.learn("Interval", seed=0, public=True, progress=lambda *at: told.append(at))
    assert told[-1] == (6, 6)
    assert json.loads(json.dumps(same.to_dict())) == json.loads((run / "result.json").read_text())


def test_noise_of_ones_own_comes_with_no_claim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*PAPER, "--sigma", "0.5", "--rate", "1", *SIZE, "--seed", "1"]
    assert cli.run([*given, "--out", str(tmp_path / "run")]) == 0
    assert "has neither a certificate nor the paper's claim" in " ".join(
        capsys.readouterr().out.split()
    )
    assert names(tmp_path / "run") == ["policy.json", "result.json", "run.json"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([*PAPER], "epsilon is needed: say with --epsilon how much is claimed for the whole run"),
        ([*PAPER, *BUDGET, "--steps", "9"], "No such option: --steps"),
        ([*PAPER, *BUDGET, "--sigma", "1"], "comes with no claim: leave --epsilon and --delta"),
        (
            [*PAPER, *BUDGET, "--preset", "x"],
            "preset must be 'printed' or 'public-code'",
        ),
        ([*PAPER, "--sigma", "1"], "rate is needed: say with --rate how fast"),
        ([*PAPER, *BUDGET, "--env", "Chain"], "for environments where one number is observed"),
        ([*PAPER, *BUDGET, "--ledger", "x"], "No such option: --ledger"),
        ([*PAPER, *BUDGET, "--logs", "csv"], "A log holds returns"),
    ],
)
def test_what_is_missing_or_wrong_is_said_in_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*words, "--out", str(tmp_path / "deep" / "run")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("privrl: ")
    assert sentence in printed.err
    assert printed.err.count("\n") == 1 or "options are needed:\n" in printed.err
    assert list(tmp_path.iterdir()) == []
