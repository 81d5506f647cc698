"""Evaluations that are killed, run out of disk, are copied or race: one payment, one study."""

import datetime
import errno
import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privrl import cli
from privrl.cli.evaluate import EvaluationRun, run_evaluation
from privrl.core import files
from privrl.core import resources as memory
from privrl.core.errors import LedgerError
from privrl.data import FunctionPolicy, OneHot, Tabular, Trajectories
from privrl.evaluation import memory as features_memory
from privrl.evaluation.sums import gather_sums
from privrl.privacy import Budget, InputError, Ledger, OverBudget, Relation, Unit, resuming
from privrl.privacy.noise import Source
from privrl.privacy.resuming import KEY_FILE
from privrl.report import results as results_section
from privrl.report.folder import write_run
from privrl.run import cluster, releasing
from privrl.run.evaluation import EvaluationSpec, evaluate
from privrl.run.request import Request
from privrl.run.study import Study

PEOPLE, STEPS = 24, 3
POLICY = Tabular(np.array([[0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]))
ELSEWHERE = {0: POLICY}
STUDY = {"study.json", "certificate.json", "report.html"}
SUMS = ["--estimators", "value,lstd"]
SLOW = pytest.mark.slow
PROGRAM = [sys.executable, "-c", "import sys; from privrl.cli import main; main(sys.argv[1:])"]
ALL = ["--estimators", "value:3,gtd:1,lstd:1"]
DRAWN = ["--estimators", "value:3,gpope:1"]
ON_POLICY = ["--estimators", "value,dplsw,dplsl"]


class Killed(BaseException):
    """What a kill is to those who cannot catch it."""


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stays()
    POLICY.save("policy.json")


def stays(reward: float = 0.5) -> None:
    """A table of stays; `reward` is one cell of one person."""
    draw, rows = np.random.default_rng(0), PEOPLE * STEPS
    rewards = draw.uniform(0, 1, rows)
    rewards[7] = reward
    columns = {
        "stay": np.repeat(np.arange(PEOPLE), STEPS),
        "t": np.tile(np.arange(STEPS), PEOPLE),
        "ward": draw.integers(3, size=rows),
        "hr": draw.uniform(30, 200, rows),
        "dose": draw.integers(2, size=rows),
        "r": rewards,
        "p": np.full(rows, 0.5),
        "q": draw.uniform(0.2, 0.8, rows),
    }
    pq.write_table(pa.table(columns), "stays.parquet")


def asked(*more: str, ledger: bool = True, out: str = "run") -> list[str]:
    said = "evaluate stays.parquet --trajectory stay --time t --state ward --action dose "
    said += "--reward r --reward-range 0,1 --horizon 3 --gamma 0.9 --epsilon 1 --delta 1e-3 "
    said += f"--out {out} "
    judged = "--policy policy.json --behavior-prob p --weight-cap 3"
    said += "--num-states 3" if set(ON_POLICY) <= set(more) else judged
    if ledger and not Path("people").exists():
        Ledger.create("people", "all", unit=Unit.TRAJECTORY, relation=Relation.REPLACE_ONE).close()
    return [*said.split(), *more, *(["--ledger", "people"] if ledger else [])]


def resume(out: str | Path = "run") -> int:
    return cli.run(["evaluate", "--out", str(out), "--resume"])


def payments() -> int:
    if not Path("people").exists():
        return 0
    with Ledger.open("people") as ledger:
        return len(ledger.entries())


def found(out: str | Path = "run") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(out).iterdir()}


@contextmanager
def at(number: int, after: bool, error: Callable[[], BaseException]) -> Iterator[list[str]]:
    """Fail before or after the so-manieth write, payment, draw or end of a key; what was called."""
    called: list[str] = []

    def failing(name: str, real: Any) -> Any:
        def once(*args: Any, **more: Any) -> Any:
            called.append(name)
            if len(called) == number and not after:
                raise error()
            made = real(*args, **more)
            if len(called) == number:
                raise error()
            return made

        return once

    places = [
        (files, "write"),
        (Ledger, "spend"),
        (Source, "normal"),
        (Source, "discrete_gaussian"),
        (resuming, "forget"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for held, name in places:
            patch.setattr(held, name, failing(name, getattr(held, name)))
        yield called


CASES = {
    "all": ALL,
    "no-ledger": ["--estimators", "value,lstd"],
    "stream": ["--stream"],
    "grid": ["--grid", "--estimators", "value"],
    "sort": ["--sort", "--stream", "--json", "--estimators", "value,lstd"],
    "drawn": DRAWN,
    "on-policy": ON_POLICY,
}


def kills(called: list[str]) -> list[int]:
    """All calls but for draws of the same estimator, of which the first and the last will do."""
    return [
        k + 1
        for k, name in enumerate(called)
        if name != "normal" or called[k - 1] != "normal" or called[k + 1] != "normal"
    ]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "case", ["all", *(pytest.param(one, marks=SLOW) for one in CASES if one != "all")]
)
def test_killed_anywhere_a_run_goes_on_to_the_study_of_its_copies(case: str, after: bool) -> None:
    paid_for = case != "no-ledger"
    words = asked(*CASES[case], ledger=paid_for)
    with at(0, False, Killed) as called:
        assert cli.run(words) == 0
    expected = ["write", *(["spend"] if paid_for else []), "write", "write", "write", "forget"]
    assert [name for name in called if name in expected] == expected
    drawn = [k for k, name in enumerate(called) if name in ("normal", "discrete_gaussian")]
    assert drawn[0] > (called.index("spend") if paid_for else 0)  # noise is paid for, or its key is
    points = kills(called)
    for number in points:
        for left in ("run", "copy"):
            shutil.rmtree(left, ignore_errors=True)
        Path("people").unlink(missing_ok=True)
        words = asked(*CASES[case], ledger=paid_for)
        with at(number, after, Killed) as called, pytest.raises(Killed):
            cli.run(words)
        if number == 1 and not after:
            assert payments() == 0
            assert not Path("run").exists()
            continue
        if number == points[-1] and after:
            assert set(found()) == STUDY  # nothing was left to be done
            assert resume() == 2
            continue
        assert (Path("run") / KEY_FILE).stat().st_mode & 0o777 == 0o600
        assert payments() == ("spend" in called and (called[-1] != "spend" or after))
        shutil.copytree("run", "copy")
        for out in ("copy", "run"):
            assert resume(out) == 0
        assert set(found()) == STUDY
        assert found() == found("copy")
        assert payments() == paid_for
    Study.load("run/study.json").certificate.verify(strict=True)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "more",
    [
        *(ALL, DRAWN, ON_POLICY),
        ["--stream", "--ray", "local", "--estimators", "value,lstd"],
        ["--seed", "3"],
    ],
)
def test_a_run_that_was_killed_comes_to_what_it_would_have_come_to(
    more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same key, to the last byte of every file; only a test can draw a key twice."""
    real = secrets.token_bytes
    monkeypatch.setattr(cluster, "gather", lambda *given, workers: gather_sums(*given))
    monkeypatch.setattr(secrets, "token_bytes", lambda count: bytes(count))
    words = asked(*more, ledger=False)
    assert cli.run(words) == 0
    whole = found()
    created = json.loads(whole["study.json"])["created"]
    shutil.rmtree("run")

    class Later(datetime.datetime):
        """The run was begun a while ago, and goes on now."""

        said = created

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            moment, cls.said = cls.said, "2031-01-01T00:00:00+00:00"
            return cls.fromisoformat(moment)

    monkeypatch.setattr(releasing, "datetime", Later)
    with at(2, True, Killed), pytest.raises(Killed):
        cli.run(words)
    monkeypatch.setattr(secrets, "token_bytes", real)
    assert resume() == 0
    assert found() == whole


@pytest.mark.parametrize("more", [DRAWN, ON_POLICY])
def test_a_run_that_was_killed_once_it_had_paid_pays_nothing_again(more: list[str]) -> None:
    words = asked(*more)
    with at(0, False, Killed) as called:
        assert cli.run(words) == 0
    paid = called.index("spend") + 1
    shutil.rmtree("run")
    Path("people").unlink()
    with at(paid, True, Killed), pytest.raises(Killed):
        cli.run(asked(*more))
    assert payments() == 1
    assert resume() == 0
    assert (payments(), set(found())) == (1, STUDY)


@pytest.mark.parametrize("estimators", ["value", "value,gtd,lstd"])
def test_a_full_disk_at_any_write_loses_nothing(
    estimators: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sync, count = os.fsync, [0]

    def full(handle: int) -> None:
        count[0] -= 1
        # Of a folder nobody can be told.
        if count[0] == 0 and not os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    for number in range(1, 30):
        shutil.rmtree("run", ignore_errors=True)
        Path("people").unlink(missing_ok=True)
        words = asked("--estimators", estimators)
        count[0] = number
        code = cli.run(words)
        told = capsys.readouterr()
        if count[0] > 0:
            break
        assert code in (0, 2)
        if code == 2:
            assert "No space left on device" in told.err
        if not Path("run").exists():
            assert payments() == 0
            continue
        if code == 2:
            assert told.err.endswith("privrl evaluate --out run --resume\n")
            assert "Certified: epsilon" in told.out  # what cannot be kept is shown
            assert resume() == 0
        assert set(found()) == STUDY
        assert payments() == 1
    assert number == 1 + 9  # the new folder's name, and four files with the folder after each


def test_a_ledger_that_fails_when_it_is_paid_may_have_been_paid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of the disk does not tell whether the entry is there; the ledger does."""
    spend = Ledger.spend
    for written in (False, True):
        shutil.rmtree("run", ignore_errors=True)
        Path("people").unlink(missing_ok=True)

        def failing(self: Ledger, *args: Any, written: bool = written, **more: Any) -> Any:
            if written:
                spend(self, *args, **more)
            raise LedgerError("The ledger could not be written: the disk is full or failing.")

        words = asked()
        with monkeypatch.context() as broken:
            broken.setattr(Ledger, "spend", failing)
            assert cli.run(words) == 2
        assert ("--resume" in capsys.readouterr().err) == written
        assert payments() == written
        assert Path("run").exists() == written
    assert resume() == 0
    assert payments() == 1


def test_what_the_ledger_refuses_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Ledger.create("people", "all", unit=Unit.TRAJECTORY, limit=Budget(0.5, 1e-3)).close()
    assert cli.run(asked()) == 2
    assert not Path("run").exists()
    assert "limit" in capsys.readouterr().err


# --- going on ----------------------------------------------------------------------------------


def killed(*more: str, at_call: int = 3, **where: Any) -> None:
    with at(at_call, False, Killed), pytest.raises(Killed):
        cli.run(asked(*more, **where))
    assert (Path(where.get("out", "run")) / KEY_FILE).exists()


@pytest.mark.parametrize("more", [ALL, DRAWN, [*SUMS, "--stream"], [*SUMS, "--stream", "--sort"]])
def test_other_data_is_refused(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    killed(*more)
    stays(0.6)
    assert resume() == 2
    assert "This is not the data that the run was begun with" in capsys.readouterr().err
    stays()
    Tabular(np.array([[0.6, 0.4], [0.2, 0.8], [0.4, 0.6]])).save("policy.json")
    assert resume() == 2
    assert "not the policy that the run was begun with" in capsys.readouterr().err
    POLICY.save("policy.json")
    assert resume() == 0
    assert payments() == 1


@pytest.mark.slow
def test_a_table_that_changes_between_two_passes_is_noticed_before_anybody_pays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = releasing.RunRecord.keep

    def changing(self: Any, runs_on: Any) -> None:
        keep(self, runs_on)
        stays(0.6)

    monkeypatch.setattr(releasing.RunRecord, "keep", changing)
    assert cli.run(asked("--stream")) == 2
    assert "changed while it was read" in capsys.readouterr().err
    assert payments() == 0
    assert not Path("run").exists()


def test_a_run_that_goes_on_takes_its_options_from_its_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    killed("--title", "Of 2026")
    assert cli.run(["report", "run"]) == 2
    assert "privrl evaluate --out run --resume" in capsys.readouterr().err
    for more in (["--epsilon", "2"], ["stays.parquet"], ["--ledger", "people"], ["--seed", "1"]):
        assert cli.run(["evaluate", "--out", "run", "--resume", *more]) == 2
        assert "--resume takes all options from 'run'" in capsys.readouterr().err
    assert cli.run(["evaluate", "--resume"]) == 2
    assert cli.run(["evaluate", "--out", "run", "--resume", "--ray", "local"]) == 2
    assert "begun without --ray" in capsys.readouterr().err
    assert cli.run(asked()) == 2
    assert "holds an interrupted run" in capsys.readouterr().err
    assert cli.run(["evaluate", "--out", "run", "--resume", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    del shown["files"]
    assert shown == json.loads(Path("run/study.json").read_text())
    assert shown["title"] == "Of 2026"
    assert resume() == 2
    assert "is finished" in capsys.readouterr().err
    assert resume("nowhere") == 2
    Path("empty").mkdir()
    assert resume("empty") == 2
    assert "There is no evaluation to resume in 'empty'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("seed", 1, "The key of this run is not as it was written"),
        ("created", "2020-01-01", "The key of this run is not as it was written"),
        ("seed", "x", "is damaged"),
        ("created", 7, "is damaged"),
        ("run", ["run"], "is damaged"),
    ],
)
def test_a_key_that_says_something_else_is_refused(
    name: str, value: Any, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a seed written into it, the noise of a second release would be another."""
    killed(ALL[0], "value")
    key = Path("run") / KEY_FILE
    said = json.loads(key.read_text())
    before = said["about"][name]
    said["about"][name] = value
    key.write_text(json.dumps(said))
    assert resume() == 2
    assert told in capsys.readouterr().err
    said["about"][name] = before
    key.write_text(json.dumps(said))
    assert resume() == 0


def test_no_rows_are_sent_to_a_cluster_that_only_a_folder_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever hands over a folder could have them: its digests are compared after the reading."""
    sent: list[str] = []

    def on_ray(gather: Any, *, workers: str) -> Any:
        sent.append(workers)
        return gather_sums

    monkeypatch.setattr("privrl.cli.evaluate.partial", on_ray)
    with at(3, False, Killed), pytest.raises(Killed):
        cli.run(asked("--ray", "somewhere.example:10001"))
    assert sent == ["somewhere.example:10001"]
    assert resume() == 2
    assert "say --ray with the same address" in capsys.readouterr().err
    assert len(sent) == 1
    again = ["evaluate", "--out", "run", "--resume", "--ray", "somewhere.example:10001"]
    assert cli.run(again) == 0
    assert payments() == 1


def test_what_is_missing_beside_a_study_is_written_without_the_data() -> None:
    assert cli.run(asked()) == 0
    whole = found()
    for left in ("report.html", "certificate.json"):
        (Path("run") / left).unlink()
    Path("stays.parquet").unlink()
    assert resume() == 0
    assert found() == whole


def test_another_kind_of_run_is_not_gone_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    about = {"seed": None, "run": None}
    Path("run").mkdir()
    resuming.NoiseKey.begin("run", about, live=False, runs_on={})
    assert resume() == 2
    assert "There is no evaluation to resume" in capsys.readouterr().err
    data, question = in_python()
    with pytest.raises(InputError, match="another kind of run"):
        evaluate(data, POLICY, question, folder="run", resume=True)


@pytest.mark.parametrize("name", ["certificate.json", "result.json", "run.json", "report.html"])
def test_a_folder_with_a_run_of_any_kind_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run").mkdir()
    Path("run", name).write_text("{}")
    assert cli.run(asked()) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert payments() == 0


# --- what is tried before anybody pays --------------------------------------------------------


VECTORS = ["--state", "hr", "--state-range", "30:200", "--num-actions", "2", "--target-prob", "q"]


def vectors(*more: str) -> list[str]:
    words = asked(*VECTORS, *more)
    place = words.index("--policy")
    return words[:place] + words[place + 2 :]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--return-bound", "1e-300"], "clip bound is too small"),
        (["--return-bound", "0"], "--return-bound must be"),
        (["--return-bound", "-1"], "--return-bound must be"),
        (["--reward-range=0,1e-300"], "clip bound is too small"),
        (["--reward-range=-1e300,1e300"], "too large"),
    ],
)
def test_whatever_cannot_be_delivered_is_refused_before_anybody_pays(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(asked(*words)) == 2
    assert told in capsys.readouterr().err
    assert payments() == 0
    assert not Path("run").exists()


@pytest.mark.parametrize("features", ["polynomial:30", "fourier:30"])
@pytest.mark.parametrize("estimators", ["value,gtd", "value,lstd"])
def test_features_that_do_not_fit_into_memory_are_refused_with_their_size(
    features: str,
    estimators: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = vectors("--features", features, "--estimators", estimators)
    monkeypatch.setattr(memory, "memory_limit", lambda: 200_000)
    assert cli.run(words) == 2
    assert "31 features would take about 2.06 MB of memory" in capsys.readouterr().err
    assert payments() == 0
    # The public matrices fit, and those of each person do not.
    monkeypatch.setattr(features_memory, "check_features_memory", lambda dimension: None)
    assert cli.run(words) == 2
    assert "of memory, and this machine has 200 kB: take fewer features" in capsys.readouterr().err
    assert payments() == 0
    monkeypatch.setattr(memory, "memory_limit", lambda: 10**10)
    assert cli.run(words) == 0


def test_a_table_of_too_many_states_is_refused_with_its_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda: 100_000)
    assert cli.run(asked("--estimators", "value,lstd")) == 2
    assert "3 features would take" in capsys.readouterr().err
    assert payments() == 0


@pytest.mark.parametrize("delta", ["1e-100", "1e-300"])
@pytest.mark.parametrize(
    "more",
    [
        ALL,
        ["--grid", "--estimators", "value"],
        pytest.param(["--stream"], marks=pytest.mark.nightly),
    ],
)
def test_a_tiny_delta_is_certified_or_refused_unpaid(delta: str, more: list[str]) -> None:
    code = cli.run(asked("--delta", delta, *more))
    assert payments() == (code == 0)
    assert Path("run", "study.json").exists() == (code == 0)


def test_a_report_that_cannot_be_made_is_refused_unpaid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("as a bug would")

    monkeypatch.setattr(results_section, "answer", broken)
    with pytest.raises(RuntimeError):
        cli.run(asked())
    assert payments() == 0
    assert not Path("run").exists()


@pytest.mark.parametrize("figure", [np.nan, np.inf, -np.inf, 1e308, -1e-308])
def test_whatever_figures_come_out_they_are_written(
    figure: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise may give anything: a rollout that diverges, say."""
    monkeypatch.setattr(Source, "normal", lambda self, std, shape: np.full(shape, figure))
    with np.errstate(all="ignore"):
        assert cli.run(vectors(*ALL, "--features", "polynomial:2", "--start", "60,70")) == 0
    assert set(found()) == STUDY


# --- at once -----------------------------------------------------------------------------------


def at_once(calls: list[Callable[[], object]]) -> list[object]:
    """What each of several threads came to; they begin together."""
    barrier, ended = threading.Barrier(len(calls)), [None] * len(calls)

    def work(k: int) -> None:
        barrier.wait()
        try:
            ended[k] = calls[k]()  # type: ignore[call-overload]
        except InputError as error:
            ended[k] = str(error)  # type: ignore[call-overload]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(calls))]
    with redirect_stdout(io.StringIO()):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return list(ended)


def run_words(ledger: bool = True) -> dict[str, Any]:
    """What the command line hands on."""
    given = dict(zip(*[iter(word.removeprefix("--") for word in asked()[2:-2])] * 2, strict=True))
    del given["out"]
    return {"table": ("stays.parquet",)} | {k.replace("-", "_"): v for k, v in given.items()}


def evaluated(out: str | None = None, name: str | None = None) -> None:
    about = EvaluationRun(ledger=Path("people"), name=name, out=None if out is None else Path(out))
    run_evaluation(run_words(), about)


def test_three_in_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    asked()
    ended = at_once([lambda: evaluated("run")] * 3)
    assert ended.count(None) == 1
    for one in ended:
        assert one is None or "Another process is at work" in one or "holds a run" in one  # type: ignore[operator]
    assert payments() == 1
    assert set(found()) == STUDY


def test_three_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """All three have passed the first look into the ledger when the first one pays."""
    asked()
    spend, barrier = Ledger.spend, threading.Barrier(3)

    def together(self: Ledger, *args: Any, **more: Any) -> Any:
        barrier.wait()
        return spend(self, *args, **more)

    monkeypatch.setattr(Ledger, "spend", together)
    ended = at_once([lambda k=k: evaluated(f"run-{k}", "same") for k in range(3)])  # type: ignore[misc]
    assert ended.count(None) == 1
    assert sum("has a run 'same' already" in str(one) for one in ended) == 2
    assert payments() == 1
    made = [Path(f"run-{k}") for k in range(3) if Path(f"run-{k}").exists()]
    assert len(made) == 1
    assert set(found(made[0])) == STUDY


def test_three_without_a_folder_in_the_same_second(monkeypatch: pytest.MonkeyPatch) -> None:
    asked()

    class Noon(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(2026, 1, 1, 12, tzinfo=tz)

    monkeypatch.setattr(datetime, "datetime", Noon)
    assert at_once([evaluated] * 3) == [None] * 3
    made = sorted(path.name for path in Path("runs").iterdir())
    assert made == ["2026-01-01-120000", "2026-01-01-120000-2", "2026-01-01-120000-3"]
    for one in made:
        assert set(found(Path("runs") / one)) == STUDY
    with Ledger.open("people") as ledger:
        assert sorted(entry.run for entry in ledger.entries()) == made


def processes(*commands: list[str]) -> list[tuple[int, str]]:
    """The exit code and the complaints of commands that run at the same time."""
    run = [
        subprocess.Popen([*PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for words in commands
    ]
    told = [one.communicate()[1].decode() for one in run]
    return [(one.returncode, text) for one, text in zip(run, told, strict=True)]


@pytest.mark.slow
def test_three_processes_at_once() -> None:
    """The same folder, then the same name, then neither: one pays, one pays, all pay."""
    ended = processes(*[asked()] * 3)
    assert sorted(code for code, _ in ended) == [0, 2, 2]
    assert payments() == 1
    assert set(found()) == STUDY
    ended = processes(*(asked("--name", "same", out=f"run-{k}") for k in range(3)))
    assert sorted(code for code, _ in ended) == [0, 2, 2]
    assert sum("has a run 'same' already" in told for _, told in ended) == 2
    assert payments() == 2
    assert len(list(Path().glob("run-*/study.json"))) == 1
    bare = asked()
    del bare[bare.index("--out") : bare.index("--out") + 2]
    assert [code for code, _ in processes(*[bare] * 3)] == [0, 0, 0]
    assert payments() == 2 + 3
    assert len(list(Path().glob("runs/*/study.json"))) == 3


@pytest.mark.slow
def test_a_killed_process_is_gone_on_with_by_another() -> None:
    """At moments that nobody chose: what was paid for is delivered once, to all copies."""
    for wait in (0.0, 0.05, 0.2):
        for left in ("run", "copy"):
            shutil.rmtree(left, ignore_errors=True)
        Path("people").unlink(missing_ok=True)
        process = subprocess.Popen([*PROGRAM, *asked(*ALL)], stdout=subprocess.DEVNULL)
        while process.poll() is None and not (Path("run") / KEY_FILE).exists():
            time.sleep(0.001)
        time.sleep(wait)
        process.kill()
        process.wait()
        if not (Path("run") / KEY_FILE).exists():
            assert set(found()) == STUDY  # it was quicker
            assert payments() == 1
            continue
        shutil.copytree("run", "copy")
        assert resume() == resume("copy") == 0
        assert set(found()) == STUDY
        assert found() == found("copy")
        assert payments() == 1


@pytest.mark.nightly
def test_over_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    words = ["--ray", "local", "--stream", "--estimators", "value,lstd"]
    killed(*words)
    shutil.copytree("run", "copy")
    assert resume() == 0
    # Another cluster, or the same once more, adds up the same parts in the same order.
    assert cli.run(["evaluate", "--out", "copy", "--resume", "--ray", "local"]) == 0
    assert found() == found("copy")
    assert payments() == 1


def test_two_folders_of_one_name_are_told_before_the_table_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(asked(out="a/run")) == 0
    monkeypatch.setattr(Request, "load", lambda *_: pytest.fail("the table was read"))
    capsys.readouterr()
    assert cli.run(asked(out="b/run")) == 2
    assert "The ledger has a run 'run' already: give this one" in capsys.readouterr().err
    assert not Path("b").exists()


# --- standard output ---------------------------------------------------------------------------


class Full(io.StringIO):
    """A file on a disk without room: what was buffered cannot be written."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_standard_output_does_not_lose_the_study(
    more: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as full:
        full.setattr("sys.stdout", Full())
        assert cli.run(asked(*more)) == 2
    told = capsys.readouterr().err
    assert told == (
        "privrl: Standard output cannot be written: No space left on device. The study is in run.\n"
    )
    assert set(found()) == STUDY
    assert payments() == 1


def test_interrupted_by_its_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with at(3, False, KeyboardInterrupt):
        assert cli.run(asked()) == 130
    assert "privrl evaluate --out run --resume" in capsys.readouterr().err
    assert resume() == 0
    assert payments() == 1
    with at(1, False, KeyboardInterrupt):
        assert cli.run(asked(out="next")) == 130
    assert not Path("next").exists()


# --- Python -----------------------------------------------------------------------------------


def in_python() -> tuple[Trajectories, EvaluationSpec]:
    data = Trajectories.from_parquet(
        "stays.parquet",
        trajectory="stay",
        time="t",
        state="ward",
        action="dose",
        reward="r",
        behavior_prob="p",
        num_states=3,
        num_actions=2,
    )
    shares = {"value": 2.0, "gtd": 1.0, "lstd": 1.0}
    return data, EvaluationSpec(
        (0.0, 1.0), 3.0, Budget(1.0, 1e-3), 3, 0.9, estimators=shares, features=OneHot(3)
    )


def test_in_python() -> None:
    data, question = in_python()
    asked()
    with Ledger.open("people") as ledger:
        study = evaluate(data, POLICY, question, ledger=ledger, run="one", folder="run")
        # Until the study is written, it can be had again.
        again = evaluate(data, POLICY, question, ledger=ledger, folder="run", resume=True)
        assert again.to_dict() == study.to_dict()
        with pytest.raises(InputError, match="not the settings that the run was begun with"):
            evaluate(
                data,
                POLICY,
                replace(question, horizon=2),
                ledger=ledger,
                folder="run",
                resume=True,
            )
        with pytest.raises(InputError, match="This run is called 'one'"):
            evaluate(data, POLICY, question, ledger=ledger, run="1", folder="run", resume=True)
        with pytest.raises(InputError, match="holds an interrupted run"):
            evaluate(data, POLICY, question, ledger=ledger, run="two", folder="run")
        with pytest.raises(InputError, match="holds another run, interrupted"):
            write_run(replace(study, created="another day"), "run")
        write_run(study, "run")
        assert set(found()) == STUDY
        with pytest.raises(InputError, match="no run to resume"):
            evaluate(data, POLICY, question, ledger=ledger, folder="run", resume=True)
        with pytest.raises(InputError, match="Say which folder"):
            evaluate(data, POLICY, question, ledger=ledger, resume=True)
        with pytest.raises(InputError, match="holds a run already"):
            evaluate(data, POLICY, question, ledger=ledger, run="two", folder="run")
    assert payments() == 1
    evaluate(data, POLICY, question, folder="free")
    with (
        Ledger.open("people") as ledger,
        pytest.raises(InputError, match="begun without a ledger: leave it out"),
    ):
        evaluate(data, POLICY, question, ledger=ledger, folder="free", resume=True)


@pytest.mark.parametrize("grid", [False, True])
def test_what_is_tried_before_the_payment_comes_from_no_data(grid: bool) -> None:
    """The study of placeholder figures goes to the caller, unpaid: rewards do not change it."""
    data, question = in_python()
    if grid:
        question = replace(question, grid=True, estimators={"value": 1.0}, features=None)
    tried: list[dict[str, Any]] = []
    for rewards in (data.rewards, np.ones_like(data.rewards)):
        other = replace(data, rewards=rewards)
        evaluate(other, POLICY, question, seed=1, tried=lambda study: tried.append(study.to_dict()))
    for one in tried:
        del one["created"]
    assert tried[0] == tried[1]


def test_what_a_policy_calls_elsewhere_cannot_change_between_payment_and_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A global of the caller's is in no digest of the policy's code, and decides the sums."""
    data, question = in_python()
    judged = FunctionPolicy(lambda states: ELSEWHERE[0].probabilities(states), 2, 3)
    first = evaluate(data, judged, question, folder="run")
    with monkeypatch.context() as changed:
        changed.setitem(ELSEWHERE, 0, Tabular(POLICY.table[::-1]))
        with pytest.raises(InputError, match="The sums are not those that the run was begun with"):
            evaluate(data, judged, question, folder="run", resume=True)
    again = evaluate(data, judged, question, folder="run", resume=True)
    assert again.to_dict() == first.to_dict()


def test_the_last_bits_of_sums_do_not_keep_a_run_from_going_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, question = in_python()
    evaluate(data, POLICY, question, folder="run")
    read = releasing._gather_estimators

    def otherwise(*given: Any) -> Any:
        judges = read(*given)
        sums = {k: replace(v, total=v.total * (1.0 + 2.0**-50)) for k, v in judges.sums.items()}
        return replace(judges, sums=sums)

    monkeypatch.setattr(releasing, "_gather_estimators", otherwise)
    evaluate(data, POLICY, question, folder="run", resume=True)


def test_noise_of_a_key_is_of_each_estimator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    data, question = in_python()
    drawn: list[float] = []
    normal = Source.normal

    def noted(self: Source, std: float, shape: tuple[int, ...]) -> Any:
        noise = normal(self, std, shape)
        drawn.extend((noise / std).ravel().tolist())
        return noise

    monkeypatch.setattr(Source, "normal", noted)
    evaluate(data, POLICY, question, folder="run")
    assert len(drawn) > 8 + 12
    assert len(set(drawn)) == len(drawn)
    first = list(drawn)
    drawn.clear()
    evaluate(data, POLICY, question, folder="run", resume=True)
    assert drawn == first


def test_refused_by_a_limit_in_python_leaves_no_key() -> None:
    data, question = in_python()
    limit = Budget(0.1, 1e-3)
    with (
        Ledger.create("small", "all", unit=Unit.TRAJECTORY, limit=limit) as ledger,
        pytest.raises(OverBudget),
    ):
        evaluate(data, POLICY, question, ledger=ledger, run="one", folder="run")
    assert not Path("run").exists()
