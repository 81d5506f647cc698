"""What can fail fails before anybody pays; what was paid for is kept until it is delivered."""

import errno
import fcntl
import json
import os
import resource
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privrl import cli
from privrl.control import noised_q
from privrl.control.functional_q import FunctionalQ
from privrl.core import files, resources
from privrl.privacy import InputError, Ledger, LedgerError, Relation, Unit, resuming
from privrl.privacy.events import ApproxDP
from privrl.privacy.resuming import KEY_FILE
from privrl.run.runners import folder as folders

BUDGET = ["--epsilon", "2", "--delta", "1e-6"]
REWARDS = ["train", "functional-q", "--env", "Chain", "--steps", "40", "--reward-range", "0,1"]
REWARDS += ["--reward-radius", "0.5", *BUDGET]


def entries(path: Path) -> int:
    with Ledger.open(path) as ledger:
        return sum(bool(entry.events) for entry in ledger.entries())


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people"
    Ledger.create(path, "all", unit=Unit.TRAJECTORY).close()
    return path


@pytest.fixture
def rewards(tmp_path: Path) -> Path:
    path = tmp_path / "rewards"
    relation = Relation.REWARD_RADIUS
    Ledger.create(path, "one", unit=Unit.REWARD_FUNCTION, relation=relation).close()
    return path


@pytest.fixture
def logged(tmp_path: Path, people: Path) -> list[str]:
    draw, count = np.random.default_rng(0), 30
    columns = {
        "stay": np.arange(count),
        "hr": draw.uniform(30, 200, count),
        "dose": draw.integers(2, size=count),
        "r": draw.uniform(-1, 1, count),
    }
    pq.write_table(pa.table(columns), tmp_path / "stays.parquet")
    words = ["train", "logged-q", str(tmp_path / "stays.parquet"), "--trajectory", "stay"]
    words += ["--state", "hr", "--state-range", "30:200", "--action", "dose", "--num-actions", "2"]
    words += ["--reward", "r", "--reward-range", "-1,1", "--updates", "3", *BUDGET]
    return [*words, "--ledger", str(people)]


# --- memory, disk, certificate --------------------------------------------------------------------


def refused(words: list[str], book: Path, capsys: pytest.CaptureFixture[str], run: Path) -> str:
    """One sentence, no payment, no folder."""
    capsys.readouterr()
    assert cli.run([*words, "--ledger", str(book), "--out", str(run)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert entries(book) == 0
    assert not run.exists()
    return told


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ["--env", "Chain", "--max-steps", "6", "--people", "1000000000", "--batch", "1000000000"],
        [
            *("--env", "CartPole", "--max-steps", "6", "--people", "8", "--batch", "4"),
            *("--features", "network:100000,100000"),
        ],
    ],
    ids=["batch", "hidden"],
)
def test_an_actor_critic_that_memory_does_not_hold(
    more: list[str], people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "actor-critic", *more, "--return-range", "0,1", "--epsilon", "5"]
    told = refused([*words, "--delta", "1e-12"], people, capsys, tmp_path / "run")
    assert "would take about" in told
    assert "B of memory, and this machine has" in told


def test_a_reward_that_cannot_be_planned_on(
    rewards: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resources, "memory_limit", lambda: 1000)
    told = refused(REWARDS, rewards, capsys, tmp_path / "run")
    assert "would take about" in told


def test_planning_takes_what_features_take() -> None:
    """Thirty powers of four numbers are 46,376 features, whose Gram matrix alone is 17 GB."""
    from privrl.control.heads import make_head
    from privrl.data import Polynomial
    from privrl.envs.base import Box

    low, high = (-1.0,) * 4, (1.0,) * 4
    head = make_head(Polynomial(30, low, high), Box(low, high, ("",) * 4), 2, "any")
    assert FunctionalQ(steps=1000).planning_bytes(head) > 6 * 8 * 46376**2


def test_a_table_that_memory_does_not_hold(
    logged: list[str],
    people: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How much it takes follows from how many rows people have, so nobody is told."""
    monkeypatch.setattr(resources, "memory_limit", lambda: 1000)
    told = refused(logged[:-2], people, capsys, tmp_path / "run")
    assert "more memory than there is" in told
    assert "B of memory" not in told


def test_what_cannot_be_compiled_is_not_paid_for(
    logged: list[str],
    people: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Failing:
        def trace(self, *_: Any) -> Any:
            raise RuntimeError("RESOURCE_EXHAUSTED: 123 rows")

    monkeypatch.setattr(noised_q, "advance", Failing())
    told = refused(logged[:-2], people, capsys, tmp_path / "run")
    assert "cannot be compiled: use fewer" in told


def test_a_disk_without_room_for_a_checkpoint(
    rewards: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    told = refused(REWARDS, rewards, capsys, tmp_path / "run")
    assert "has no room for a checkpoint of" in told


def test_a_disk_that_takes_nothing_beforehand_is_not_called_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", unable)
    resources.check_disk_space(tmp_path, 100)
    monkeypatch.delattr(os, "posix_fallocate")
    resources.check_disk_space(tmp_path, 100)
    with pytest.raises(InputError, match="has no room"):
        resources.check_disk_space(tmp_path / "nowhere", 100)


def test_a_run_that_could_not_be_certified_is_not_paid_for(
    logged: list[str], people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody spent under the same name, with a larger delta than this run's."""
    with Ledger.open(people) as ledger:
        ledger.spend(ApproxDP(0.1, 1e-3), run="one")
    words = [*logged, "--name", "one", "--out", str(tmp_path / "run")]
    assert cli.run(words) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert entries(people) == 1
    assert not (tmp_path / "run").exists()


# --- paid, and then a failure ---------------------------------------------------------------------


def test_a_disk_that_fails_late_in_a_payment_leaves_the_key(
    logged: list[str], people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger says that it could not be written, and has the entry."""
    run, spend = tmp_path / "run", Ledger.spend

    def late(*given: Any, **more: Any) -> Any:
        spend(*given, **more)
        raise LedgerError("The ledger could not be written: the disk is full or failing.")

    with monkeypatch.context() as failing:
        failing.setattr(Ledger, "spend", late)
        assert cli.run([*logged, "--out", str(run)]) == 2
    assert entries(people) == 1
    assert (run / KEY_FILE).exists()
    assert cli.run(["train", "logged-q", "--out", str(run), "--resume"]) == 0
    assert entries(people) == 1


def test_a_refusal_before_any_payment_leaves_no_key(
    logged: list[str], people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise LedgerError("The ledger could not be written: the disk is full or failing.")

    monkeypatch.setattr(Ledger, "spend", never)
    assert cli.run([*logged, "--out", str(tmp_path / "run")]) == 2
    assert entries(people) == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["certificate.json", "policy.json", "result.json"])
def test_a_result_that_cannot_be_written_is_shown_and_can_be_fetched(
    name: str,
    logged: list[str],
    people: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, write = tmp_path / "run", files.write

    def full(path: Any, content: bytes, *, secret: bool) -> None:
        if Path(path).name == name:
            raise InputError(f"{str(path)!r} cannot be written: No space left on device.")
        write(path, content, secret=secret)

    with monkeypatch.context() as failing:
        failing.setattr(files, "write", full)
        assert cli.run([*logged, "--out", str(run)]) == 2
    shown = json.loads(capsys.readouterr().out)
    assert cli.run(["train", "logged-q", "--out", str(run), "--resume"]) == 0
    kept = json.loads((run / "result.json").read_text())
    assert kept["parameters"] == shown["parameters"]
    assert entries(people) == 1


def test_ctrl_c_after_the_payment_keeps_the_run(
    logged: list[str], people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once asks for the end after what is computed now; twice ends at once."""
    run, released = tmp_path / "run", noised_q.final_parameters

    def interrupted(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return released(*given)

    with monkeypatch.context() as failing:
        failing.setattr(noised_q, "final_parameters", interrupted)
        with suppress(KeyboardInterrupt):
            cli.run([*logged, "--out", str(run)])
    assert entries(people) == 1
    assert cli.run(["train", "logged-q", "--out", str(run), "--resume"]) == 0
    assert entries(people) == 1


# --- folders --------------------------------------------------------------------------------------


class Killed(BaseException):
    """What a kill is to those who cannot catch it."""


def test_a_folder_in_which_nobody_paid_can_be_used_again(
    logged: list[str], people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after run.json, before the key."""
    run = tmp_path / "run"
    with monkeypatch.context() as dying:
        dying.setattr(folders, "_run", lambda *_: (_ for _ in ()).throw(Killed))
        dying.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(Killed):
            cli.run([*logged, "--out", str(run)])
    assert (run / "run.json").exists()
    assert cli.run([*logged, "--out", str(run)]) == 0
    assert entries(people) == 1
    # One that has paid, or has ended, is not begun anew.
    assert cli.run([*logged, "--out", str(run)]) == 2
    (run / "result.json").unlink()
    (run / KEY_FILE).write_bytes(b"")
    assert cli.run([*logged, "--out", str(run)]) == 2
    assert entries(people) == 1


def test_what_kills_left_half_written_goes_with_the_end(
    logged: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"

    def die(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(noised_q, "final_parameters", die)
        with pytest.raises(Killed):
            cli.run([*logged, "--out", str(run)])
    for name in ("result.json", "certificate.json", "policy.json", KEY_FILE):
        (run / f".{name}.abc_1234.privrl-half").write_bytes(b"half")
        (run / f".{name}.abc_1234.tacit-half").write_bytes(b"half")
    shutil.copytree(run, tmp_path / "copy")
    for one in (run, tmp_path / "copy"):
        assert cli.run(["train", "logged-q", "--out", str(one), "--resume"]) == 0
        assert sorted(path.name for path in one.iterdir()) == [
            *("certificate.json", "policy.json", "result.json", "run.json"),
        ]


def test_a_key_that_cannot_be_removed_is_told_of(
    logged: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, unlink = tmp_path / "run", Path.unlink

    def failing(self: Path, missing_ok: bool = False) -> None:
        if self.name == KEY_FILE:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(self, missing_ok=missing_ok)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", failing)
        assert cli.run([*logged, "--out", str(run)]) == 0
    assert "could not be removed" in capsys.readouterr().err
    assert cli.run(["train", "logged-q", "--out", str(run), "--resume"]) == 2
    assert not (run / KEY_FILE).exists()


def test_a_key_that_stays_is_an_error_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "unlink", failing)
    with pytest.raises(InputError, match="could not be removed: Input/output error"):
        resuming.forget(tmp_path)


def test_who_is_interrupted_while_locking_does_not_have_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def interrupted(handle: int, how: int) -> None:
        flock(handle, how)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", interrupted)
        with pytest.raises(KeyboardInterrupt), files.lock_folder(tmp_path):
            pass
    with files.lock_folder(tmp_path):
        pass


def test_names_are_on_disk_when_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is synchronised after the file has its name, and so are those above a new one."""
    seen: list[str] = []
    fsync = os.fsync

    def watched(handle: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    with files.create_folder(tmp_path / "a" / "b"):
        files.write(tmp_path / "a" / "b" / "key", b"secret", secret=True)
    assert seen[-1] == str(tmp_path / "a" / "b")
    assert {str(tmp_path), str(tmp_path / "a")} <= set(seen)


def test_memory_is_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < resources.memory_limit() <= pages
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**20, 2**20))
    assert resources.memory_limit() == 2**20
    assert resources._format_bytes(32_100_000_000) == "32.1 GB"
    assert resources._format_bytes(0) == "0 bytes"
