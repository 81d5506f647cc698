"""Each case in a process of its own, forked from one that has imported everything.

No program of JAX is compiled before the fork: threads of its backend would not survive it. A case
hangs if it shows no progress for `PATIENCE` seconds of its own work, or waits as long for nothing.
"""

import json
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE = 10.0
# So long may a case go on that does show progress, before it is stopped; that is no fault.
LONGEST = 40.0
# The exit code of a process in which the suite itself failed.
NO_CASE = 99
MEMORY = 6 * 2**30


@dataclass(frozen=True)
class Label:
    """Which case it is."""

    kind: str
    number: int
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}" + (f":{self.seed}" if self.seed else "")

    @classmethod
    def parse(cls, text: str) -> "Label":
        kind, number, *seed = text.split(":")
        return cls(kind, int(number), int(seed[0]) if seed else 0)


@dataclass
class Outcome:
    """What came of a case."""

    label: Label
    words: list[str]
    faults: list[str]
    """What must not happen, each with what was seen of it; empty if nothing did."""

    code: int | None
    out: str = ""
    err: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


def warm(stock: Path) -> None:
    """Import whatever commands import, also late; nothing of JAX's backend."""
    import gc
    from importlib import import_module

    from privrl.audit import catalogue
    from privrl.run.runners.base import runner_of
    from privrl.run.specs import LEARNERS
    from tests.fuzz import judging, oracle  # noqa: F401

    catalogue.load()
    for learner in LEARNERS:
        runner_of(learner)
    for name in _rehearsed(stock):
        with suppress(Exception):
            import_module(name)
    # Nothing of this is collected, or moved, in the forked processes.
    gc.collect()
    gc.freeze()


def _rehearsed(stock: Path) -> list[str]:
    """What some good commands import while they run."""
    end, begin = os.pipe()
    if os.fork() == 0:
        held = set(sys.modules)
        with suppress(BaseException):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            from privrl import cli
            from tests.fuzz import stock as goods

            os.chdir(stock)
            cli.run(["check", "stays.csv", *goods.TABLE])
            cli.run(["check", "stays.parquet", *goods.TABLE, "--stream"])
            cli.run(["limits", "--epsilon", "1"])
            cli.run(["risk", "--outcomes", "1:1", "--page", ".page"])
            if Path("signed.json").exists():
                cli.run(["verify", "signed.json", "--public-key", "key.pub"])
                cli.run(["ledger", "show", "people.ledger"])
                cli.run(["report", "run", "--out", ".page"])
            cli.run(["evaluate", "stays.csv", *goods.EVALUATE, "--public", "--out", ".rehearsal"])
            shutil.rmtree(".rehearsal")
        new = [one for one in sys.modules if one not in held and "jaxlib" not in one]
        os.write(begin, json.dumps(new)[:60_000].encode())
        os._exit(0)
    os.close(begin)
    with os.fdopen(end, "rb") as told:
        return list(json.loads(told.read() or b"[]"))


def run(
    labels: Iterable[Label], stock: Path, scratch: Path, jobs: int = 1, batch: int = 1
) -> Iterator[Outcome]:
    """The outcomes, as cases end.

    A process takes up to `batch` cases of one kind, one after the other. One that hangs or crashes
    ends it, and another process goes on with the rest. Whatever is found in company is run again
    alone: only that counts.
    """
    beats = mmap.mmap(-1, 24 * jobs)
    waiting, free = _batches(labels, batch), list(range(jobs))
    running: dict[int, _Child] = {}
    again: list[list[Label]] = []
    done = False
    while running or again or not done:
        while free and (again or not done):
            some = again.pop() if again else next(waiting, None)
            if some is None:
                done = True
                break
            child = _Child(some, free.pop(), beats, stock, scratch)
            running[child.pid] = child
        pid, status, used = _ended(running, beats)
        if not pid:
            time.sleep(0.005)
            continue
        child = running.pop(pid)
        free.append(child.slot)
        for one, label in zip(child.outcomes(status, used), child.labels, strict=False):
            if one.faults and len(child.labels) > 1:
                again.append([label])
            else:
                yield one
            _removed(_folder(scratch, label))
        if child.left:
            again.append(child.left)


def _batches(labels: Iterable[Label], batch: int) -> Iterator[list[Label]]:
    some: list[Label] = []
    for label in labels:
        if some and (len(some) == batch or label.kind != some[0].kind):
            yield some
            some = []
        some.append(label)
    if some:
        yield some


def _folder(scratch: Path, label: Label) -> Path:
    return scratch / f"{label.kind}-{label.number}-{label.seed}"


def _removed(folder: Path) -> None:
    for root, _, _ in os.walk(folder):
        with suppress(OSError):
            os.chmod(root, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _ended(running: "dict[int, _Child]", beats: mmap.mmap) -> tuple[int, int, float]:
    for pid, child in running.items():
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            return pid, status, usage.ru_utime + usage.ru_stime
        child.watch(beats)
    return 0, 0, 0.0


class _Child:
    """A process while it runs its cases."""

    def __init__(
        self, labels: list[Label], slot: int, beats: mmap.mmap, stock: Path, scratch: Path
    ) -> None:
        self.labels, self.slot, self.scratch = labels, slot, scratch
        self.begun, self.hung, self.stopped = time.monotonic(), False, False
        self.used = 0.0, self.begun
        self.left: list[Label] = []
        for label in labels:
            _removed(_folder(scratch, label))
            _folder(scratch, label).mkdir(parents=True)
        _beat(beats, slot, 0.0, begins=True)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _cases(labels, stock, scratch, beats, slot)
        with suppress(OSError):
            os.setpgid(self.pid, self.pid)

    def watch(self, beats: mmap.mmap) -> None:
        """Kill it if it hangs, or has gone on for long."""
        now = time.monotonic()
        if now - self.begun < PATIENCE / 2:
            return
        worked, seen, case = struct.unpack("ddd", beats[24 * self.slot : 24 * self.slot + 24])
        try:
            parts = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return
        used = (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
        if used > self.used[0] + 0.01:
            self.used = used, now
        # On a busy machine it may have to wait long, but gets some time now and then.
        idle = now - max(seen, self.used[1]) > PATIENCE and parts[0] in "SD"
        if used - worked > PATIENCE or idle:
            self.hung = True
        elif used - case > LONGEST:
            self.stopped = True
        if self.hung or self.stopped:
            # Where it hangs, by its own word, before it is killed.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGUSR1)
                time.sleep(0.3)
                os.killpg(self.pid, signal.SIGKILL)

    def outcomes(self, status: int, used: float) -> Iterator[Outcome]:
        """Of the cases that it came to; those that are left are in `left`."""
        for place, label in enumerate(self.labels):
            folder = _folder(self.scratch, label)
            told = _told(folder)
            ended = told is not None
            if told is None:
                told = {"words": _words(folder), "faults": [], "code": None}
                if self.hung:
                    seconds = time.monotonic() - self.begun
                    told["faults"] = [f"hang: {used:.1f} s of work, {seconds:.1f} s in all"]
                elif not self.stopped:
                    why = "no case" if os.waitstatus_to_exitcode(status) == NO_CASE else "crash"
                    told["faults"] = [f"{why}: the process ended with {status}"]
            notes = {"stopped": self.stopped and not ended, "work": used / len(self.labels)}
            out, err = _text(folder / "out"), _text(folder / "err")
            yield Outcome(label, told["words"], told["faults"], told["code"], out, err, notes)
            if not ended:
                self.left = self.labels[place + 1 :]
                return


def _beat(beats: mmap.mmap, slot: int, worked: float, *, begins: bool = False) -> None:
    """Note how much work there was when progress was shown, and when a case began."""
    beats[24 * slot : 24 * slot + 16] = struct.pack("dd", worked, time.monotonic())
    if begins:
        beats[24 * slot + 16 : 24 * slot + 24] = struct.pack("d", worked)


def _told(folder: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((folder / "outcome.json").read_text())
        return found
    except (OSError, ValueError):
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _words(folder: Path) -> list[str]:
    try:
        found: list[str] = json.loads((folder / "words.json").read_text())
        return found
    except (OSError, ValueError):
        return ["(no case)"]


def _cases(labels: list[Label], stock: Path, scratch: Path, beats: mmap.mmap, slot: int) -> None:
    """In the forked process: make each case, run it, judge it; then end."""
    import faulthandler

    code = 0
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**28, 2**28))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _beating(beats, slot)
        from tests.fuzz import judging

        for label in labels:
            folder = _folder(scratch, label)
            for name, number in (("out", 1), ("err", 2)):
                handle = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
                os.dup2(handle, number)
                os.close(handle)
            sys.stdout = open(1, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
            sys.stderr = open(2, "w", 1, closefd=False, errors="backslashreplace")  # noqa: SIM115
            _beat(beats, slot, time.process_time(), begins=True)
            told = judging.judged(label, stock, folder)
            (folder / "outcome.json").write_text(json.dumps(told))
    except BaseException:
        traceback.print_exc()
        code = NO_CASE
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _beating(beats: mmap.mmap, slot: int) -> None:
    """Note when progress is shown."""
    from rich.progress import Progress

    update = Progress.update

    def updated(*given: Any, **more: Any) -> None:
        _beat(beats, slot, time.process_time())
        update(*given, **more)

    Progress.update = updated  # type: ignore[method-assign]


def counted(outcomes: Iterable[Outcome]) -> dict[str, Counter[str]]:
    """How many of each kind ended how."""
    found: dict[str, Counter[str]] = {}
    for one in outcomes:
        kind = found.setdefault(one.label.kind, Counter())
        kind["cases"] += 1
        kind["refused"] += one.code == 2
        kind["done"] += one.code == 0
        for fault in one.faults:
            kind[fault.split(":")[0]] += 1
    return found
