"""`privrl train pgc` as people meet it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from privrl import cli
from privrl.control import PGC, LearnedPGC, OneOf
from privrl.control.pgc import collection as pgc
from privrl.envs.control import CartPole
from privrl.privacy import InputError, Ledger, Unit
from privrl.privacy.session import PrivacySession
from privrl.run import runners

HERE = ["train", "pgc", "--env", "CartPole"]
PRINTED = ["train", "ono2020-pgc", "--env", "CartPole"]
SMALL = [
    *(*HERE, "--agents", "40", "--epsilon", "2", "--mechanism", "laplace", "--hidden", "2"),
    *("--flight", "3", "--buffer", "4", "--vary", "gravity=9.7,9.8"),
]


@pytest.mark.slow
def test_a_run_ends_when_enough_agents_answer_that_they_reached_the_target(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stops: Callable[[int], None],
) -> None:
    monkeypatch.setattr(pgc, "_ANSWERS", 8)
    monkeypatch.setattr(pgc, "_ERROR", 1.0)
    # With so large an epsilon nobody lies, and everybody stays up for a step.
    asked = [*SMALL, "--epsilon", "120", "--target", "1", "--score-share", "0.5", "--seed", "3"]
    run, cut = tmp_path / "run", tmp_path / "cut"
    assert cli.run([*asked, "--out", str(run)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "a policy from 8 reports of agents." in said
    assert "reached 1, by private answers: 100% ± 17.7%" in said
    assert "(which ended the run, and was chosen for being high)" in said
    learned = LearnedPGC.load(run / "result.json")
    assert learned.reached == pytest.approx((1.0, 0.5 / 8**0.5))
    assert learned.certificate.epsilon == 120.0
    env = CartPole()
    agent = PGC(
        120.0,
        "laplace",
        hidden=(2,),
        flight=3,
        buffer=4,
        dynamics=OneOf(env, "gravity", (9.7, 9.8)),
        target=1.0,
        score_share=0.5,
    )
    assert agent.learn(env, 40, session=PrivacySession(seed=3)).to_dict() == learned.to_dict()
    # Nobody stays up for 201 steps; what was cut off goes on to the same end.
    never = [*asked, "--target", "201"]
    assert cli.run([*never, "--out", str(run.with_name("whole"))]) == 0
    stops(3)
    assert cli.run([*never, "--out", str(cut)]) == 130
    stops(1000)
    assert cli.run(["train", "pgc", "--out", str(cut), "--resume"]) == 0
    whole = run.with_name("whole") / "result.json"
    assert (cut / "result.json").read_bytes() == whole.read_bytes()
    never_reached = LearnedPGC.load(whole)
    assert never_reached.settings["reports"] == 40
    assert never_reached.reached == pytest.approx((0.0, 0.5 / 8**0.5))


@pytest.mark.slow
def test_the_papers_algorithm_claims_and_certifies_its_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*PRINTED, "--mechanism", "sign", "--agents", "100", "--epsilon", "5"]
    assert cli.run([*words, "--seed", "1", "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Claimed, not certified: epsilon 5 at delta 0 for each single submission." in said
    assert "Certified for the same noise: epsilon 5." in said
    assert "The seed makes the noise no secret" in said
    assert (tmp_path / "run" / "claim.json").exists()


@pytest.mark.slow
def test_buffers_are_swept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "pgc", "--env", "CartPole", "--epsilon", "2", "--grid", "buffer=10,20"]
    options = ["--agents", "40", "--set", "hidden=2", "--seeds", "2"]
    assert cli.run([*words, *options, "--out", str(tmp_path / "sweep")]) == 0
    assert capsys.readouterr().out.startswith("2 combinations on 2 seeds, 40 reports.\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--episodes", "40", "--grid", "rate=1,2"], "'episodes' of pgc. Did you mean 'agents'?"),
        (["--agents", "40", "--grid", "buffer=4,50"], "An update takes 50 reports, and there are"),
    ],
)
def test_sweeps_that_cannot_be_are_refused(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sweep"
    start = ["sweep", "pgc", "--env", "CartPole", "--epsilon", "2", "--out", str(out)]
    assert cli.run([*start, *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "pgc"], "--env: which environment"),
        (PRINTED, "--mechanism: how gradients are randomised"),
        (
            [*PRINTED, "--mechanism", "privunit", "--epsilon", "1"],
            "--mechanism must be 'laplace', 'sign' or 'none', not 'privunit'.",
        ),
        (HERE, "--epsilon: the privacy budget of each agent"),
        ([*HERE, "--epsilon", "1"], "agents is needed: say with --agents how many agents report"),
        ([*SMALL, "--mechanism", "none"], "Without a mechanism nothing is spent"),
        (
            [*SMALL, "--mechanism", "gaussian"],
            "--mechanism must be 'privunit', 'sign', 'laplace' or 'none', not 'gaussian'.",
        ),
        ([*SMALL, "--vary", "gravity=inf"], "Each value of gravity must be finite."),
        ([*SMALL, "--flight", "1000000000000"], "At most 100,000 agents can play"),
        ([*SMALL, "--vary", "gravity"], "must be such as gravity=9.7,9.8,9.9"),
        ([*SMALL, "--mechanism", ""], "mechanism is empty: say something, or leave it out."),
        ([*SMALL, "--vary", "wind=1,2"], "CartPole has no parameter 'wind': it has gravity, mass"),
        ([*SMALL, "--scale", "1,2"], "scale must have 4 numbers"),
        ([*SMALL, "--scale", "1,2,3,a"], "a number in scale must be a number"),
        (
            [*HERE, "--epsilon", "1", "--agents", "9", "--submissions", "100000"],
            "Each report would",
        ),
        (
            ["train", "pgc", "--env", "Taxi", "--epsilon", "1", "--agents", "900"],
            "baseline is needed: say a public number",
        ),
        ([*SMALL, "--hidden", "four"], "a number in hidden must be a number"),
        ([*SMALL, "--timing", "late"], "timing must be 'fixed' or 'open', not 'late'."),
        ([*SMALL, "--target", "5"], "target and score_share belong together"),
        ([*SMALL, "--enough", "0.5"], "enough is about a target: say --target"),
        ([*SMALL, "--logs", "csv"], "say --public if they are no secret"),
        ([*HERE, "--env", "Acrobot-v1", "--epsilon", "1", "--agents", "9"], "cannot be compiled"),
        ([*SMALL, "--env", "Acrobot-v1"], "cannot be compiled"),
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


def test_words_of_other_learners_and_ledgers_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "run.toml"
    config.write_text('env = "CartPole"\nagents = 9\nepsilon = 1\ndelta = 1e-6\nhidden = [4, 4]\n')
    assert cli.run(["train", "pgc", "--config", str(config), "--out", str(tmp_path / "x")]) == 2
    assert "delta is for other learners" in capsys.readouterr().err
    runner = runners.Runner.of({"learner": "pgc", "env": "CartPole", "agents": 9, "epsilon": 1.0})
    Ledger.create(tmp_path / "ledger.json", "all", unit=Unit.TRAJECTORY).close()
    with pytest.raises(InputError, match="ledger of its own"):
        runners.train_in(runner, tmp_path, ledger=tmp_path / "ledger.json")
