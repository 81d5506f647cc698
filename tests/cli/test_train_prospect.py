"""`privrl train prospect` as people meet it."""

import json
from pathlib import Path

import numpy as np
import pytest

from privrl import cli
from privrl.control import LearnedQ, ProspectQ
from privrl.data import load_policy
from privrl.privacy import Budget, Certificate, Ledger, Relation, Unit
from privrl.privacy.session import PrivacySession
from privrl.risk import Prospect

HERE = ["train", "prospect", "--env", "ObstacleGrid", "--steps", "300", "--samples", "5"]
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
RANGE = ["--reward-range=-50,0"]
CERTIFIED = [*HERE, "--reward-radius", "0.01", *RANGE, *BUDGET]


def test_a_certified_run_fills_its_folder_and_is_paid_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, book = tmp_path / "run", tmp_path / "ledger.json"
    Ledger.create(
        book,
        "penalties",
        unit=Unit.REWARD_FUNCTION,
        relation=Relation.REWARD_RADIUS,
        limit=Budget(2.0, 1e-5),
        filter="gaussian",
    ).close()
    words = [*CERTIFIED, "--prospect", "tversky-kahneman", "--seed", "3", "--out", str(run)]
    assert cli.run([*words, "--ledger", str(book)]) == 0
    printed = capsys.readouterr().out
    said = " ".join(printed.split())
    assert "Certified: epsilon 1 at delta 1e-06, reward-function, reward-radius." in said
    assert "from any other within 0.01 of it at every point" in said
    assert all(len(line) < 80 for line in printed.splitlines()[:-1])
    found = sorted(path.name for path in run.iterdir())
    assert found == [
        *("certificate.json", "policy.json", "result.json", "reward_model.json", "run.json"),
    ]
    Certificate.read(run / "certificate.json").verify()
    learned = LearnedQ.load(run / "result.json")
    assert Prospect.from_dict(learned.settings["prospect"]) == Prospect.tversky_kahneman()
    policy = load_policy(run / "policy.json")
    np.testing.assert_allclose(policy.probabilities(np.arange(4)), learned.predict(np.arange(4)))
    agent = ProspectQ(
        prospect=Prospect.tversky_kahneman(),
        budget=Budget(1.0, 1e-6),
        reward_radius=0.01,
        reward_range=(-50.0, 0.0),
        steps=300,
        samples=5,
    )
    same = agent.learn("ObstacleGrid", session=PrivacySession(seed=3))
    np.testing.assert_array_equal(same.parameters, learned.parameters)
    assert cli.run(["train", "prospect", "--out", str(run), "--resume"]) == 2
    capsys.readouterr()
    assert cli.run(["ledger", "show", str(book), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] < 2.0


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
