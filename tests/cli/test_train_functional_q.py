"""`privrl train functional-q` as people meet it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from privrl import cli
from privrl.control import FunctionalQ, LearnedQ
from privrl.data import load_policy
from privrl.privacy import Budget, Certificate, InputError, Ledger, Relation, Unit
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


def test_a_certified_run_fills_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert cli.run([*CERTIFIED, "--reward-features", "cosine:3", "--out", str(run)]) == 0
    printed = capsys.readouterr().out
    said = " ".join(printed.split())
    assert "Certified: epsilon 0.9 at delta 0.0001, reward-function, reward-radius." in said
    assert "from any other within 0.01 of it at every point" in said
    assert "Any number of queries is free." in said
    assert "return" not in printed
    assert printed.endswith(f"The result is {run / 'result.json'}.\n")
    assert all(len(line) < 80 for line in printed.splitlines()[:-1])
    assert names(run) == [
        *("certificate.json", "policy.json", "result.json", "reward_model.json", "run.json"),
    ]
    certificate = Certificate.read(run / "certificate.json")
    certificate.verify(strict=True)
    assert certificate.reward_radius == 0.01
    learned = LearnedQ.load(run / "result.json")
    assert learned.certificate == certificate
    assert learned.score is None
    states = np.array([[0.1], [0.5], [0.9]])
    policy = load_policy(run / "policy.json")
    np.testing.assert_allclose(policy.probabilities(states), learned.predict(states))
    assert learned.reward_model is not None
    model = RewardModel.load(run / "reward_model.json", learned.reward_model.features)
    np.testing.assert_array_equal(model(states), learned.rewards(states))
    before = (run / "result.json").read_bytes()
    assert cli.run([*CERTIFIED, "--out", str(run)]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert (run / "result.json").read_bytes() == before


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


def test_a_stopped_run_is_resumed_to_the_same_bytes_and_paid_for_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stops: Callable[[int], None]
) -> None:
    for name in ("one", "two"):
        Ledger.create(
            tmp_path / name,
            "margins",
            unit=Unit.REWARD_FUNCTION,
            relation=Relation.REWARD_RADIUS,
            limit=Budget(1.0, 1e-4),
            filter="gaussian",
        ).close()
    given = [*CERTIFIED, "--seed", "7", "--name", "x"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert cli.run([*given, "--ledger", str(tmp_path / "one"), "--out", str(whole)]) == 0
    capsys.readouterr()
    # Before anybody pays, and after.
    for count, stages in ((0, 1), (1, 2)):
        stops(count)
        more = [*given, "--ledger", str(tmp_path / "two")] if not count else [*TRAIN, "--resume"]
        assert cli.run([*more, "--out", str(cut)]) == 130
        told = capsys.readouterr()
        assert told.out == ""
        assert f"Stopped after {stages} of 3 stages; what was done is kept." in told.err
        with Ledger.open(tmp_path / "two") as opened:
            assert len(opened.entries()) == count
    assert f"privrl train functional-q --out {cut} --resume" in told.err
    assert not (cut / "result.json").exists()
    stops(1000)
    assert cli.run([*TRAIN, "--out", str(cut), "--resume"]) == 0
    assert names(cut) == names(whole)
    for path in whole.iterdir():
        if path.name not in ("run.json", "certificate.json", "result.json"):
            assert (cut / path.name).read_bytes() == path.read_bytes()
    with Ledger.open(tmp_path / "two") as opened:
        assert [entry.run for entry in opened.entries()] == ["x"]
    Certificate.read(cut / "certificate.json").verify()
    # The limit leaves no room for another.
    capsys.readouterr()
    assert cli.run([*given, "--ledger", str(tmp_path / "two"), "--out", str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "no").exists()


def test_without_noise_nothing_is_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = [*TRAIN, "--env", "Chain", "--release", "none", "--steps", "50", "--out", str(run)]
    assert cli.run(words) == 0
    assert "Not private: without a budget no noise is added." in capsys.readouterr().out
    assert names(run) == ["policy.json", "result.json", "reward_model.json", "run.json"]


def test_what_cannot_be_kept_is_at_least_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: LearnedQ, path: Path) -> None:
        raise InputError(f"{str(path)!r} cannot be written: No space left on device.")

    monkeypatch.setattr(LearnedQ, "save", full)
    assert cli.run([*CERTIFIED, "--out", str(tmp_path / "run")]) == 2
    printed = capsys.readouterr()
    assert "No space left on device" in printed.err
    assert json.loads(printed.out)["promise"]["kind"] == "privrl certificate"


def test_options_may_stand_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        'env = "Chain"\nsteps = 50\nreward-radius = 1\nepsilon = 9\ndelta = 1e-6\n'
        "design = 0\nreward-range = [0, 1]\n"
    )
    run = tmp_path / "run"
    words = [*TRAIN, "--config", str(job), "--epsilon", "5", "--out", str(run)]
    assert cli.run(words) == 0
    settings = LearnedQ.load(run / "result.json").settings
    assert (settings["epsilon"], settings["reward_range"]) == (5.0, [0.0, 1.0])
    assert settings["design"] == 0
    capsys.readouterr()
    for text, sentence in (
        ("people = 3", "There is no option 'people' of functional-q."),
        ("reward_radus = 3", "Did you mean 'reward_radius'?"),
        ("out = 'x'", "out belongs on the command line"),
        ("steps = 2.5", "steps must be a whole number"),
        ("learner = 'actor-critic'", "is for the learner 'actor-critic', and you said"),
    ):
        job.write_text(text)
        assert cli.run([*TRAIN, "--config", str(job)]) == 2
        assert sentence in capsys.readouterr().err


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
