"""`privrl train` as people meet it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from privrl import cli
from privrl.control.actor_critic import LearnedActorCritic
from privrl.privacy import Gaussian
from privrl.privacy.mechanisms import CorrelatedMechanism, Strategy
from privrl.run.runners import LEARNERS

HERE = ["train", "actor-critic", "--env", "Chain", "--max-steps", "6"]
BUDGET = ["--epsilon", "5", "--delta", "1e-6"]
RETURNS = ["--return-range", "0,1"]
CERTIFIED = [*HERE, "--people", "40", "--batch", "4", *RETURNS, *BUDGET]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_who_asks_for_a_mode_is_told_about_the_papers_learners(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([command, "actor-critic", "--mode", "paper"]) == 2
    assert "a learner of its own, such as seo2020-actor-critic" in capsys.readouterr().err.lower()


@pytest.mark.parametrize("words", [[], ["--env", "Taxi-v4"]])
def test_what_learns_is_asked_for(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", *words]) == 2
    first, *others = LEARNERS
    listed = ", or ".join([f"privrl train {first}", *others])
    assert capsys.readouterr().err == f"privrl: Say what is to learn: {listed}.\n"


def test_each_learner_has_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {learner}  " in printed for learner in LEARNERS)
    assert cli.run(["train", "actor-critic", "-h"]) == 0
    assert "--actor-step" in capsys.readouterr().out


def test_all_that_is_missing_is_asked_for_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["train", "actor-critic", "--out", str(tmp_path / "run")]) == 2
    heading, *lines = capsys.readouterr().err.splitlines()
    assert heading == "privrl: 5 options are needed:"
    asked = [line.split(":")[0].strip() for line in lines]
    assert asked == ["--env", "--people", "--epsilon", "--delta", "--return-range"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--people", "9", *BUDGET, *RETURNS], "env is needed: say with --env which environment"),
        (["--env", "Taxi-v4", *BUDGET, *RETURNS], "people is needed: say with --people how many"),
        (["--env", "Taxi-v4", "--people", "9", "--epsilon", "1", *RETURNS], "delta is needed"),
        (["--env", "CartPole-v1", "--people", "9", *BUDGET, *RETURNS], "features is needed: say"),
        (
            ["--env", "CartPole-v1", "--people", "9", *BUDGET, *RETURNS, "--features", "table"],
            "no table",
        ),
        (
            ["--env", "CartPole-v1", "--people", "9", *BUDGET, *RETURNS, "--features", "x"],
            "must be",
        ),
        (
            ["--env", "CartPole-v1", "--people", "9", *BUDGET, *RETURNS, "--features", "network:a"],
            "network needs sizes",
        ),
        (["--env", "Chain", "--people", "9", "--episodes", "9", *BUDGET], "in two ways"),
        (["--env", "Nowhere-v1", "--people", "9", *BUDGET], "no environment 'Nowhere-v1'"),
        (["--env", "Chain", "--people", "9", "--mode", "paper", *BUDGET], "No such option: --mode"),
        (["--env", "Chain", "--people", "9", "--acting", "softmax"], "No such option: --acting"),
        (["--env", "Chain", "--people", "9", "--clip", "median", *BUDGET], "for '--clip'"),
        (["--env", "Chain", "--people", "0", *BUDGET], "--people must be at least 1"),
        (
            ["--env", "Chain", "--people", "9", "--actor-step", "inf", *BUDGET],
            "--actor-step must be zero or more and finite, not inf",
        ),
        (
            ["--env", "Chain", "--people", "9", "--variant", "none", *BUDGET, *RETURNS],
            "spends nothing",
        ),
        (["--env", "Chain", "--people", "9", *BUDGET, "--logs", "csv"], "A log holds returns"),
        (["--env", "Chain", "--people", "9", *BUDGET, "--public", "--logs", "x"], "no log format"),
        (["--env", "Chain", "--people", "9", *BUDGET, "--name", "x"], "say which with --ledger"),
        (["--env", "Chain", "--people", "9", *BUDGET], "return_range is needed: say with"),
        (["--env", "Chain", "--people", "9", *BUDGET, *RETURNS, "--ledger", "x"], "x"),
        (
            ["--env", "Chain", "--people", "9", *BUDGET, "--resume"],
            "leave out --people, --epsilon, --delta",
        ),
        (["--seed", "0", "--resume"], "leave out --seed"),
        (["--logs", "csv", "--resume"], "leave out --logs"),
        (["--resume"], "There is no run to resume in"),
    ],
)
def test_what_is_missing_or_wrong_is_said_in_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deep" / "run"
    assert cli.run(["train", "actor-critic", *words, "--out", str(folder)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("privrl: ")
    assert sentence in printed.err
    assert printed.err.count("\n") == 1 or "options are needed:\n" in printed.err
    assert list(tmp_path.iterdir()) == []


def test_other_learners_and_no_folder_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "dreamer"]) == 2
    assert "There is no learner 'dreamer': what can be trained is" in capsys.readouterr().err
    assert cli.run(["train", "actor-critic", "--resume"]) == 2
    assert "Say with --out which folder" in capsys.readouterr().err


@pytest.mark.slow
def test_ten_batches_have_the_noise_that_is_best_for_so_many(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert cli.run([*CERTIFIED, "--out", str(run)]) == 0
    learned = LearnedActorCritic.load(run / "result.json")
    (event,) = learned.certificate.events
    assert learned.settings["noise"] == "optimal"
    assert isinstance(event, Gaussian)
    assert event.bound == CorrelatedMechanism(1.0, 1.0, 10, Strategy.OPTIMAL).sensitivity


@pytest.mark.slow
def test_optimal_noise_is_the_default_and_correlated_keeps_its_meaning(tmp_path: Path) -> None:
    """Ten batches: the error of the last iterate is 4.7 % below that of the square root."""
    found = {}
    for kind in ("auto", "optimal", "correlated"):
        run = tmp_path / kind
        assert cli.run([*CERTIFIED, "--noise", kind, "--seed", "3", "--out", str(run)]) == 0
        learned = LearnedActorCritic.load(run / "result.json")
        learned.certificate.verify()
        found[kind] = learned
    assert found["auto"].to_dict() == found["optimal"].to_dict()
    assert found["auto"].settings["noise"] == "optimal"
    last = {}
    for kind, strategy in (("optimal", "optimal"), ("correlated", "square-root-toeplitz")):
        plan = CorrelatedMechanism(1.0, 1.0, 10, Strategy.parse(strategy))
        (event,) = found[kind].certificate.events
        assert isinstance(event, Gaussian)
        assert event.bound == plan.sensitivity
        last[kind] = event.std * plan.errors()[-1]
    assert last["optimal"] / last["correlated"] == pytest.approx(1 - 0.0475, abs=1e-4)


def test_public_returns_are_shown_and_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = [*CERTIFIED, "--public", "--logs", "csv, jsonl,tensorboard", "--out", str(run)]
    assert cli.run(words) == 0
    printed = capsys.readouterr().out
    assert "mean return of the first tenth" in printed
    assert "The returns were declared public: no promise is made about them." in printed
    curve = LearnedActorCritic.load(run / "result.json").curve
    assert curve is not None
    lines = (run / "log.csv").read_text().splitlines()
    assert lines == ["episode,return", *(f"{k + 1},{x!r}" for k, x in enumerate(curve.tolist()))]
    assert {"log.jsonl", "events.out.tfevents.0.privrl"} < set(names(run))


@pytest.mark.slow
def test_a_paid_curve_is_logged_by_batches(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert (
        cli.run([*CERTIFIED, "--curve", "paid", "--return-range", "0,60", "--out", str(run)]) == 0
    )
    curve = LearnedActorCritic.load(run / "result.json").curve
    assert curve is not None
    lines = (run / "log.csv").read_text().splitlines()[1:]
    assert lines == [f"{4 * (k + 1)},{x!r}" for k, x in enumerate(curve.tolist())]
    assert len(lines) == 10


@pytest.mark.slow
def test_each_variant_gives_away_what_it_says(tmp_path: Path) -> None:
    for variant in ("actor", "critic", "none"):
        run = tmp_path / variant
        given = CERTIFIED if variant != "none" else CERTIFIED[: -len(BUDGET)]
        assert cli.run([*given, "--variant", variant, "--out", str(run)]) == 0
        learned = LearnedActorCritic.load(run / "result.json")
        assert (learned.actor is None) == (variant == "critic")
        assert (learned.critic is None) == (variant == "actor")
        assert (run / "policy.json").exists() == (variant != "critic")
        assert (run / "certificate.json").exists() == (variant != "none")


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["actor-critic", "seo2020-actor-critic"])
def test_a_killed_run_is_resumed_to_the_same_bytes(tmp_path: Path, learner: str) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    size = ["--episodes", "1000"]
    if learner == "actor-critic":
        size = ["--people", "20000", "--batch", "10", "--return-range=-500,0"]
    words = ["train", learner, "--env", "MDP100", *size, *BUDGET]
    words += ["--seed", "5", "--public"]
    assert cli.run([*words, "--out", str(whole)]) == 0
    program = "import sys; from privrl.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, *words, "--out", str(cut)]
    process = subprocess.Popen(command, cwd=os.getcwd(), stderr=subprocess.DEVNULL)
    try:
        first: bytes | None = None
        while True:
            assert process.poll() is None, "the run was over before it could be killed"
            found = [path.read_bytes() for path in cut.glob("*.npz")] if cut.exists() else []
            first = first or (found[0] if found else None)
            if first is not None and found and found[0] != first:
                break  # at least one segment is done
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert cli.run(["train", learner, "--out", str(cut), "--resume"]) == 0
    assert names(cut) == names(whole)
    for path in whole.iterdir():
        if path.name != "run.json":
            assert (cut / path.name).read_bytes() == path.read_bytes()
