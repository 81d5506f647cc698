"""`privrl train seo2020-actor-critic` as people meet it."""

import json
from pathlib import Path

import numpy as np
import pytest

from privrl import cli
from privrl.control.actor_critic import LearnedActorCritic
from privrl.papers.seo2020 import ActorCritic
from privrl.privacy import Claim, InputError
from privrl.run.runners import Runner, train_in

BUDGET = ["--epsilon", "5", "--delta", "1e-6"]
TRAIN = ["train", "seo2020-actor-critic"]
HERE = [*TRAIN, "--env", "Chain", "--max-steps", "6", "--episodes", "40", *BUDGET]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_claims_and_does_not_certify(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert cli.run([*HERE, "--seed", "0", "--public", "--out", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "Claimed, not certified: epsilon 5 at delta 1e-06" in printed
    assert names(run) == ["claim.json", "log.csv", "policy.json", "result.json", "run.json"]
    learned = LearnedActorCritic.load(run / "result.json")
    assert isinstance(learned.promise, Claim)
    rows = (run / "log.csv").read_text().splitlines()
    assert rows[0] == "episode,return,length"
    assert len(rows) == 41
    # Without --public nothing tells how the episodes went.
    hidden = tmp_path / "hidden"
    assert cli.run([*HERE, "--seed", "0", "--out", str(hidden)]) == 0
    assert names(hidden) == ["claim.json", "policy.json", "result.json", "run.json"]
    found = LearnedActorCritic.load(hidden / "result.json")
    assert found.curve is None
    np.testing.assert_array_equal(found.actor, learned.actor)
    # In Python it is the same.
    agent = ActorCritic(epsilon=5.0, delta=1e-6, max_steps=6)
    same = agent.learn("Chain", 40, seed=0, public=True)
    assert json.loads(json.dumps(same.to_dict())) == json.loads((run / "result.json").read_text())


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


def test_no_ledger_can_pay_for_a_claim(tmp_path: Path) -> None:
    words = {"learner": "seo2020-actor-critic", "env": "Chain", "episodes": 9, "max_steps": 6}
    runner: Runner = Runner.of({**words, "epsilon": 5.0, "delta": 1e-6})
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError, match="no ledger can pay"):
        train_in(runner, tmp_path / "run", ledger=tmp_path / "ledger")
