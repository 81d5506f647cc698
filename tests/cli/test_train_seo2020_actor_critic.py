"""`privrl train seo2020-actor-critic` as people meet it."""

from pathlib import Path

import numpy as np
import pytest

from privrl import cli
from privrl.control.actor_critic import LearnedActorCritic

BUDGET = ["--epsilon", "5", "--delta", "1e-6"]
TRAIN = ["train", "seo2020-actor-critic"]
HERE = [*TRAIN, "--env", "Chain", "--max-steps", "6", "--episodes", "40", *BUDGET]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_the_same_is_learned_whether_or_not_it_is_shown(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert cli.run([*HERE, "--seed", "0", "--public", "--out", str(run)]) == 0
    learned = LearnedActorCritic.load(run / "result.json")
    assert (run / "log.csv").read_text().splitlines()[0] == "episode,return,length"
    # Without --public nothing tells how the episodes went.
    hidden = tmp_path / "hidden"
    assert cli.run([*HERE, "--seed", "0", "--out", str(hidden)]) == 0
    assert names(hidden) == ["claim.json", "policy.json", "result.json", "run.json"]
    found = LearnedActorCritic.load(hidden / "result.json")
    assert found.curve is None
    np.testing.assert_array_equal(found.actor, learned.actor)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "--env: which environment"),
        (
            ["--env", "Taxi-v4"],
            "--epsilon: how much is claimed for each",
        ),
        (["--env", "Taxi-v4", "--epsilon", "1"], "--delta: the failure probability"),
        (["--env", "Taxi-v4", *BUDGET], "episodes is needed: say with --episodes how many"),
        (["--env", "CartPole-v1", "--episodes", "9", *BUDGET], "has none"),
        (["--env", "Chain", "--variant", "none", *BUDGET], "spends nothing"),
        (["--env", "Chain", "--episodes", "9", *BUDGET, "--clip", "mean"], "clip must be a number"),
        (["--env", "Chain", "--episodes", "9", *BUDGET, "--acting", "x"], "acting must be"),
        (["--env", "Chain", "--episodes", "9", *BUDGET, "--logs", "csv"], "A log holds returns"),
        (["--env", "Chain", "--episodes", "9", *BUDGET, "--batch", "3"], "No such option: --batch"),
        (["--env", "Chain", "--episodes", "9", "--ledger", "x"], "No such option: --ledger"),
        (["--episodes", "9", "--resume"], "leave out --episodes"),
        (["--resume"], "There is no run to resume in"),
    ],
)
def test_what_is_missing_or_wrong_is_said_in_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*TRAIN, *words, "--out", str(tmp_path / "deep" / "run")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert sentence in printed.err
    assert printed.err.count("\n") == 1 or "options are needed:\n" in printed.err
    assert list(tmp_path.iterdir()) == []
