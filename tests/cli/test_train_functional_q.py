"""`privrl train functional-q` as people meet it."""

import json
from pathlib import Path

import numpy as np
import pytest

from privrl import cli
from privrl.control import FunctionalQ, LearnedQ
from privrl.privacy import Budget
from privrl.privacy.mechanisms.reward_model import RewardModel
from privrl.privacy.session import PrivacySession

TRAIN = ["train", "functional-q"]
HERE = [*TRAIN, "--env", "Interval", "--steps", "200", "--rounds", "20"]
BUDGET = ["--epsilon", "0.9", "--delta", "1e-4"]
RADIUS = ["--reward-radius", "0.01"]
RANGE = ["--reward-range", "0,0.5"]
CERTIFIED = [*HERE, *RADIUS, *RANGE, *BUDGET]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_released_rewards_are_in_a_file_of_their_own(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert cli.run([*CERTIFIED, "--reward-features", "cosine:3", "--out", str(run)]) == 0
    learned = LearnedQ.load(run / "result.json")
    assert learned.certificate.reward_radius == 0.01
    assert learned.reward_model is not None
    states = np.array([[0.1], [0.5], [0.9]])
    model = RewardModel.load(run / "reward_model.json", learned.reward_model.features)
    np.testing.assert_array_equal(model(states), learned.rewards(states))


def test_a_public_run_shows_its_score_and_equals_that_in_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert cli.run([*CERTIFIED, "--seed", "3", "--public", "--json", "--out", str(run)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["files"]["reward model"] == str(run / "reward_model.json")
    saved = json.loads((run / "result.json").read_text())
    assert {name: printed[name] for name in saved} == saved
    agent = FunctionalQ(
        budget=Budget(0.9, 1e-4),
        reward_radius=0.01,
        reward_range=(0.0, 0.5),
        steps=200,
        rounds=20,
    )
    same = agent.learn("Interval", session=PrivacySession(seed=3, public=True))
    assert json.loads(json.dumps(same.to_dict())) == saved
    assert isinstance(saved["score"], float)


def test_without_noise_nothing_is_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = [*TRAIN, "--env", "Chain", "--release", "none", "--steps", "50", "--out", str(run)]
    assert cli.run(words) == 0
    assert "Not private: without a budget no noise is added." in capsys.readouterr().out
    assert names(run) == ["policy.json", "result.json", "reward_model.json", "run.json"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([*TRAIN], "--env: which environment to learn in, such as Interval"),
        ([*HERE], "--reward-radius: by how much a reward may"),
        ([*HERE, *RADIUS], "--epsilon: the privacy budget"),
        (
            [*HERE, *RADIUS, "--epsilon", "1"],
            "--delta: the failure probability",
        ),
        ([*HERE, *RADIUS, *BUDGET], "reward_range is needed: say with --reward-range what any"),
        ([*HERE, *RADIUS, *BUDGET, "--reward-range", "1"], "must be two numbers, the lowest"),
        ([*HERE, *RADIUS, *BUDGET, "--reward-range", "1,0"], "must go up"),
        ([*CERTIFIED, "--delta", "0"], "delta must be above 0, because the noise is Gaussian"),
        ([*CERTIFIED, "--epsilon", "-1"], "epsilon must"),
        ([*CERTIFIED, "--epsilon", "inf"], "epsilon must be positive and finite"),
        ([*CERTIFIED, "--epsilon", "much"], "Invalid value for '--epsilon'"),
        ([*CERTIFIED, "--reward-radius", "0"], "radius must be"),
        ([*CERTIFIED, "--reward-radius", "nan"], "--reward-radius must"),
        ([*CERTIFIED, "--release", "all"], "release must be 'reward-model', 'weights',"),
        (
            [*CERTIFIED, "--release", "none"],
            "--epsilon is not used by --release none",
        ),
        ([*CERTIFIED, "--planner", "magic"], "planner must be 'fitted', 'actor-critic' or"),
        ([*CERTIFIED, "--mode", "paper"], "No such option: --mode"),
        ([*CERTIFIED, "--steps", "0"], "--steps must be at least 1"),
        ([*CERTIFIED, "--gamma", "1.5"], "gamma must be at most 1"),
        ([*CERTIFIED, "--features", "table"], "Interval observes numbers, so there is no table"),
        ([*CERTIFIED, "--features", "x"], "features must be table, polynomial:2, fourier:3 or"),
        ([*CERTIFIED, "--features", "network:8"], "say --planner network"),
        ([*CERTIFIED, "--reward-features", "x"], "--reward-features must be table, cosine:3,"),
        ([*CERTIFIED, "--reward-features", "cosine:a"], "the order of features must be a number"),
        ([*CERTIFIED, "--state-range", "0:1"], "--state-range is for features by name of numbers"),
        ([*CERTIFIED, "--design", "-1"], "--design must be at least 0"),
        ([*CERTIFIED, "--logs", "csv"], "a certified run has none"),
        ([*CERTIFIED, "--name", "x"], "say which with --ledger"),
        ([*CERTIFIED, "--ledger", "x"], "x"),
        ([*CERTIFIED, "--sigma", "1"], "No such option: --sigma"),
        ([*CERTIFIED, "--people", "9"], "No such option: --people"),
        ([*CERTIFIED, "--env", "Nowhere-v1"], "no environment 'Nowhere-v1'"),
        ([*CERTIFIED, "--resume"], "--reward-radius"),
        ([*TRAIN, "--resume"], "There is no run to resume in"),
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
