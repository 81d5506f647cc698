"""What fuzzing found, each by itself: a case for every sort of traceback, hang and damage."""

import errno
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from privrl import cli
from privrl.audit import Target, audit
from privrl.audit.catalogue import find
from privrl.control import LoggedQ, loop, noised_q
from privrl.control.replicas import setting_arrays
from privrl.core import files
from privrl.data import OneHot, Tabular, Trajectories
from privrl.evaluation import LSTD
from privrl.evaluation.importance import weight_trajectories
from privrl.evaluation.steps import MOST_ROWS
from privrl.papers.wang2019.fast import descend
from privrl.privacy import Budget, InputError
from privrl.privacy.session import PrivacySession
from privrl.run import clinic
from privrl.run.evaluation import EvaluationSpec, _schema
from privrl.run.sweep import SweepPlan, SweepResult
from tests.fuzz.stock import BUDGET, EVALUATE, TABLE, TRAIN, Stock

# All but the probabilities of logged actions.
FOLLOWED = [*EVALUATE[:-8], *EVALUATE[-6:]]


@pytest.fixture(scope="module")
def goods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Stock(tmp_path_factory.mktemp("stock"))
    made.make({"reading"})
    return made.folder


@pytest.fixture
def here(tmp_path: Path, goods: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with good tables and a policy, in which commands run."""
    for one in goods.iterdir():
        if one.suffix in (".csv", ".parquet", ".json"):
            shutil.copyfile(one, tmp_path / one.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence with which a command refuses."""
    assert cli.run(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("privrl: ")
    assert len(told.err.splitlines()) == 1
    return told.err


@pytest.mark.parametrize("damaged", [b"", b"x", b"PAR1" + bytes(40) + b"PAR1"])
def test_a_damaged_second_parquet_file_of_a_stream(
    damaged: bytes, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "part-1.parquet").write_bytes(damaged)
    names = ["part-0.parquet", "part-1.parquet"]
    words = ["evaluate", *names, *EVALUATE, *BUDGET, "--stream", "--out", "out"]
    assert "part-1.parquet cannot be read as Parquet" in refused(words, capsys)
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["check", "{}.csv", *TABLE],
        ["check", "{}.parquet", *TABLE],
        ["evaluate", "stays.csv", *EVALUATE, *BUDGET, "--out", "{}"],
        ["evaluate", "--config", "{}.toml"],
        ["report", "{}"],
        ["train", "pgc", "--out", "{}", "--resume"],
        ["sweep", "pgc", "--out", "{}", "--resume"],
        ["keygen", "{}"],
        ["ledger", "create", "{}", "--population", "x"],
        ["demo", "--out", "{}"],
    ],
)
def test_names_that_are_too_long(
    words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(here.iterdir())
    refused([word.format("n" * 300) for word in words], capsys)
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        ["check", "{}.csv", *TABLE],
        ["check", "{}.parquet", *TABLE],
        ["check", "stays.parquet", "{}.parquet", *TABLE],
        ["evaluate", "stays.csv", *FOLLOWED, *BUDGET, "--behavior", "{}.json", "--out", "out"],
        ["evaluate", "--config", "{}.toml"],
        ["train", "pgc", "--config", "{}.json", "--out", "out"],
        ["verify", "{}.json"],
        ["risk", "--outcomes", "1:1", "--prospect", "{}.json"],
        ["ledger", "import", "mine", "{}.json"],
    ],
)
def test_a_fifo_is_no_file(
    words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in (".csv", ".parquet", ".json", ".toml"):
        os.mkfifo(here / f"pipe{suffix}")
    refused([word.format("pipe") for word in words], capsys)


def test_a_fifo_as_a_study_or_an_array(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "run").mkdir()
    os.mkfifo(here / "run" / "study.json")
    assert "no file" in refused(["report", "run"], capsys)
    with pytest.raises(InputError, match="no file"):
        files.read_npz(here / "run" / "study.json", InputError("damaged"))


def test_nothing_takes_the_place_of_a_device_or_a_pipe(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A privileged process would have put a file in the place of /dev/null."""
    os.mkfifo(here / "pipe")
    words = ["budget", "Gaussian(1, 1)", "--delta", "1e-5", "--unit", "user", "--save", "pipe"]
    assert "no file" in refused(words, capsys)
    assert (here / "pipe").is_fifo()
    assert not list(here.glob(".pipe*"))


def test_the_root_is_no_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    refused(["ledger", "create", "/", "--population", "x"], capsys)


@pytest.mark.parametrize("words", [["--seed", "9" * 30], ["--people", "1000000000"]])
def test_a_demo_that_cannot_be_leaves_nothing(
    words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(["demo", "--out", "out", *words], capsys)
    assert not (here / "out").exists()


def test_a_demo_in_a_folder_whose_name_is_no_text(here: Path) -> None:
    with pytest.raises(InputError, match="no text"):
        clinic.write(here / "\udcff", 10, 0)
    assert not (here / "\udcff").exists()


def test_a_csv_file_whose_name_is_no_text(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "stays.csv").rename(here / "\udcff.csv")
    (here / "stays.parquet").rename(here / "\udcff.parquet")
    for name in ("\udcff.csv", "\udcff.parquet"):
        assert "rename it" in refused(["check", name, *TABLE], capsys)


def small() -> Trajectories:
    return Trajectories.from_arrays(
        np.array([0, 1, 0]),
        np.array([0, 1, 1]),
        np.array([1.0, 0.0, 1.0]),
        lengths=np.array([2, 1]),
        behavior_probs=np.full(3, 0.5),
        terminated=np.array([True, True]),
        num_states=2,
        num_actions=2,
    )


def test_a_horizon_of_a_million_takes_no_more_than_the_longest_trajectory() -> None:
    policy = Tabular(np.array([[0.4, 0.6], [0.9, 0.1]]))
    far, near = (weight_trajectories(small(), policy, 0.9, horizon) for horizon in (10**6, 2))
    np.testing.assert_array_equal(far.rewards, near.rewards)
    np.testing.assert_array_equal(far.log_weights, near.log_weights)
    asked: dict[str, Any] = {"reward_range": (0.0, 1.0), "weight_cap": 3.0, "gamma": 0.9}
    question = EvaluationSpec(**asked, budget=Budget(1.0, 1e-3), horizon=10**6)
    assert _schema(policy, question, 100) is None


def test_states_that_are_too_many_for_a_matrix_are_refused_with_its_size() -> None:
    asked: dict[str, Any] = {"reward_range": (0.0, 1.0), "weight_cap": 3.0, "gamma": 0.9}
    many = OneHot(100_000)
    with pytest.raises(InputError, match=r"100,000 x 100,000 numbers, 80\.0 GB"):
        EvaluationSpec(
            **asked, budget=Budget(1, 1e-3), estimators={"value": 1, "gtd": 1}, features=many
        )
    with pytest.raises(InputError, match=r"80\.0 GB"):
        LSTD(many, 0.9).fit(small(), None)
    assert OneHot(MOST_ROWS).dimension == MOST_ROWS


def test_who_did_not_ask_for_values_of_states_goes_without_them(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Tabular(np.full((5000, 2), 0.5)).save(here / "policy.json")
    words = ["evaluate", "stays.csv", *EVALUATE, "--horizon", "1000000", "--out", "out"]
    assert cli.run([*words, *BUDGET]) == 0
    assert "gtd" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_damaged_results_of_a_sweep(content: bytes, here: Path) -> None:
    (here / "results.parquet").write_bytes(content)
    swept = SweepResult(SweepPlan({"step": (0.1, 0.2)}, seeds=2, episodes=5), here, 1)
    with pytest.raises(InputError, match="is damaged"):
        swept.best()


def test_a_ledger_that_is_a_link_to_itself(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "loop").symlink_to("loop")
    words = ["evaluate", "stays.csv", *EVALUATE, *BUDGET, "--ledger", "loop", "--out", "out"]
    assert "loop" in refused(words, capsys)
    assert not (here / "out").exists()


def test_an_environment_of_too_many_names(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "actor-critic", "--env", "a:b:c", "--people", "4", "--return-range", "0,1"]
    assert "There is no environment 'a:b:c'" in refused([*words, *BUDGET], capsys)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"version": "x" * 2000}, "has version"),
        ({"kind": "x" * 2000}, "There is no policy of kind"),
        ({"kind": "x y " * 500}, "There is no policy of kind"),
    ],
)
def test_long_values_are_not_quoted_in_full(
    changed: dict[str, str], told: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = json.loads((here / "policy.json").read_text())
    assert set(changed) <= set(policy)
    (here / "policy.json").write_text(json.dumps(policy | changed))
    said = refused(["evaluate", "stays.csv", *EVALUATE, *BUDGET, "--out", "out"], capsys)
    assert told in said
    assert " ... " in said
    assert len(said) < 500


def test_a_long_name_of_an_environment(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "actor-critic", "--people", "4", "--return-range", "0,1", *BUDGET]
    said = refused([*words, "--env", "x" * 2000, "--out", "out"], capsys)
    assert "There is no environment 'xxx" in said
    assert len(said) < 600


def test_columns_of_parquet_whose_names_are_no_text(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (here / "stays.parquet").read_bytes()
    (here / "stays.parquet").write_bytes(whole.replace(b"ward", b"\xe6ard"))
    for words in (["--sort"], []):
        said = refused(["check", "stays.parquet", *TABLE, *words], capsys)
        assert "no text in UTF-8, so it may be damaged" in said
        assert "codec" not in said


def test_an_epsilon_without_bounds_draws_no_warnings(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "prospect", "--env", "ObstacleGrid", "--steps", "60", "--samples", "5"]
    words += ["--reward-radius", "0.01", "--reward-range=-50,0", "--epsilon", "1e308"]
    refused([*words, "--delta", "1e-6", "--seed", "3", "--out", "out"], capsys)


@pytest.mark.slow
def test_long_runs_show_progress(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of a million episodes, and pieces of a million updates, do not grow with these."""
    assert loop.default_segment(10**9) == 10_000
    seen: list[int] = []
    monkeypatch.setattr(noised_q, "_PIECE_SECONDS", 0.0)
    agent = LoggedQ(num_actions=2, reward_range=(0.0, 1.0), budget=None, num_states=2, updates=5)
    told = agent.fit(
        small(), session=PrivacySession(seed=0), progress=lambda done, planned: seen.append(done)
    )
    assert seen == [1, 2, 3, 4, 5]
    whole = agent.fit(small(), session=PrivacySession(seed=0))
    np.testing.assert_array_equal(told.parameters, whole.parameters)


def test_large_results_take_one_line(here: Path) -> None:
    """Python's encoder takes ten times as long for lines of their own."""
    files.write_json(here / "small.json", {"a": [0.5] * 3})
    files.write_json(here / "large.json", {"a": [0.5] * 10**6})
    assert len((here / "small.json").read_text().splitlines()) == 7
    assert len((here / "large.json").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("learner", "option"), [("wang2019-functional-q", "--samples"), ("actor-critic", "--batch")]
)
def test_sizes_that_overflow_are_refused(
    learner: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """XLA ended the process with an abort."""
    words = list(TRAIN[learner])
    words[words.index(option) + 1] = "9" * 18
    told = refused(["train", learner, *words, "--out", str(tmp_path / "out")], capsys)
    assert "of memory, and this machine has" in told


def test_an_audit_of_too_many_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """It drew for minutes, and showed no progress."""
    told = refused(["audit", "gaussian", "--runs", "1" + "0" * 12], capsys)
    assert "1,000,000,000,000 runs would take" in told


def test_an_audit_shows_progress() -> None:
    shares: list[float | None] = []
    target = find("gaussian")()
    assert isinstance(target, Target)
    audit(target, runs=400_000, progress=lambda _, share=None: shares.append(share))
    assert len(shares) > 6
    assert shares == sorted(shares, key=lambda share: share or 0.0)
    assert shares[-1] == 1.0


def test_a_refused_run_is_not_listed_beside_its_table(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = sorted(here.iterdir())
    words = ["train", "logged-q", *TRAIN["logged-q"], "--out", "out"]
    assert "has no room for a checkpoint" in refused(words, capsys)
    assert sorted(here.iterdir()) == before


def test_a_clamp_beyond_single_precision_clamps_nothing() -> None:
    learner = SimpleNamespace(clamp=1e308, optimiser="sgd")
    zeros = jnp.zeros((1, 2), jnp.float32)
    gradient = jnp.array([[3.0, -1e38]], jnp.float32)
    after, _ = descend(learner, zeros, zeros, gradient, jnp.float32(1.0))
    np.testing.assert_array_equal(after, -gradient)


def test_a_refused_run_leaves_no_empty_log(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(here.iterdir())
    words = ["train", "rajabi2022-prospect", *TRAIN["rajabi2022-prospect"], "--public"]
    told = refused([*words, "--delta", "1e-100", "--out", "out"], capsys)
    assert "No k fulfils the theorem's conditions" in told
    assert sorted(here.iterdir()) == before


def test_a_name_without_quotes_is_cut_in_the_middle(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(["check", "x" * 2000, *TABLE], capsys)
    assert "cannot be read: File name too long" in told
    assert len(told) < 400


def test_a_setting_beyond_single_precision_is_infinite() -> None:
    found = setting_arrays({"rate": 1e308, "sigma": 0.5}, 2, jnp.float32)
    assert {name: one.tolist() for name, one in found.items()} == {
        "rate": [np.inf, np.inf],
        "sigma": [0.5, 0.5],
    }
