"""Trials: a command meets one fault, is gone on with without any, and the oracle looks.

The process of a trial lives on in this one, so that it need not import and compile again: from the
moment of a kill nothing that it does reaches the disk, and nothing that it prints is heard.
"""

import contextlib
import errno
import gc
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.commands import RUN, Command
from tests.faults.oracle import ALSO, MUST_BE_ZERO, Evidence, Outcome
from tests.faults.shim import Call, Durable, Mode, Shim


@dataclass(frozen=True)
class Fault:
    """What happens, and to which call."""

    name: str
    mode: Mode
    error: int = 0
    then: bool = False
    """Whether the first `--resume` is killed too."""


FAULTS = (
    Fault("kill", Mode.KILL),
    Fault("torn write", Mode.TORN),
    Fault("power cut", Mode.POWER),
    Fault("killed twice", Mode.KILL, then=True),
    Fault("disk full", Mode.FULL, errno.ENOSPC),
    Fault("I/O error", Mode.ERROR, errno.EIO),
    Fault("quota", Mode.ERROR, errno.EDQUOT),
    Fault("short write", Mode.SHORT),
    Fault("Ctrl-C", Mode.SIGNAL, signal.SIGINT),
)


@dataclass
class Report:
    """What all trials came to."""

    trials: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By command and fault."""

    calls: Counter[str] = field(default_factory=Counter)
    """How many trials hit a call of each kind."""

    found: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    why: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.trials.values())

    @property
    def clean(self) -> bool:
        return not any(self.found[name] for name in (*MUST_BE_ZERO, *ALSO))

    def add(self, name: str, fault: str, what: str, evidence: Evidence) -> None:
        self.trials[name, fault] += 1
        self.calls[what] += 1
        self.found.update(evidence.found)
        end = "nothing paid" if not evidence.paid and evidence.command.ledger else "delivered"
        self.ends[end if evidence.delivered or not evidence.paid else "lost"] += 1
        self.why += [f"{name}, {fault} at {what}: {one}" for one in evidence.why]

    def merge(self, other: "Report") -> None:
        for name in ("trials", "calls", "found", "ends"):
            getattr(self, name).update(getattr(other, name))
        self.why += other.why
        self.seconds += other.seconds


class _Heard(io.StringIO):
    """A standard stream of a process that may have died."""

    def __init__(self, shim: Shim | None) -> None:
        super().__init__()
        self._shim = shim

    def write(self, text: str) -> int:
        if self._shim is not None and self._shim.dead:
            return len(text)
        return super().write(text)


class Bench:
    """One command, with its problem, in a folder of its own."""

    def __init__(self, command: Command, base: Path, shim: Shim | None) -> None:
        self.command, self.shim = command, shim
        self.root, self.shadow = base / "root", base / "shadow"
        self._template = base / "template"
        for one in (self.root, self.shadow, self._template):
            one.mkdir(parents=True)
        command.make(self._template)
        (self._template / "tmp").mkdir()

    def fresh(self) -> None:
        """As it was before anything."""
        for one in (self.root, self.shadow):
            for inner in one.iterdir():
                shutil.rmtree(inner) if inner.is_dir() else inner.unlink()
        shutil.copytree(self._template, self.root, dirs_exist_ok=True)

    def run(
        self, words: list[str], mode: Mode = Mode.COUNT, at: int = 0, error: int = 0
    ) -> Outcome:
        """The command line, with a fault."""
        from privrl import cli

        out, err = _Heard(self.shim), _Heard(self.shim)
        code: int | None = None
        trace = ""
        with _placed(self.root), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                if self.shim is not None:
                    self.shim.arm(self.root, self.shadow, mode, at, error)
                code = cli.run(words)
            except KeyboardInterrupt:
                code = 130
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
            except BaseException as raised:
                trace = "".join(traceback.format_exception(raised)[-3:])
                raised.__traceback__ = None
            finally:
                if self.shim is not None:
                    self.shim.disarm()
        if trace:
            # Connections and descriptors that a traceback held on to.
            gc.collect()
        if self.shim is not None and self.shim.dead:
            code, trace = None, ""
        return Outcome(code, out.getvalue(), err.getvalue(), trace)

    def count(self) -> list[Call]:
        """The calls of a run that meets no fault, after one that compiles what it needs."""
        assert self.shim is not None
        for _ in range(2):
            self.fresh()
            found = self.run(self.command.begin())
            assert found.code == 0, found.err + found.trace
        return self.shim.log()

    def trial(self, fault: Fault, at: int, draw: random.Random) -> Evidence:
        """One fault, then what is left of it is gone on with."""
        self.fresh()
        evidence = Evidence(self.command, self.root)
        folder = self.root / RUN
        self._faulty(self.command.begin(), fault, at, evidence)
        if fault.then and not (folder / self.command.result).exists() and folder.exists():
            again = Fault(fault.name, fault.mode, fault.error)
            self._faulty(self.command.resume(), again, draw.randint(1, 60), evidence)
        self._gone_on(evidence, copies=fault.mode in (Mode.KILL, Mode.TORN, Mode.POWER))
        evidence.judge()
        return evidence

    def _faulty(self, words: list[str], fault: Fault, at: int, evidence: Evidence) -> None:
        before = Durable(self.root) if fault.mode is Mode.POWER else None
        outcome = self.run(words, fault.mode, at, fault.error)
        if before is not None and self.shim is not None and self.shim.dead:
            before.apply(self.shim.lines(), self.shadow)
            before.restore()
        evidence.look(self.root / RUN, outcome)

    def _gone_on(self, evidence: Evidence, copies: bool) -> None:
        """Resume the folder, and a copy of it: both come to the same, or one is refused."""
        command, folder = self.command, self.root / RUN
        whole = (folder / command.result).exists()
        folders = [RUN]
        if copies and folder.exists() and not whole:
            shutil.copytree(folder, self.root / "copy")
            folders.append("copy")
        ends: list[bool] = []
        for one in folders:
            place = self.root / one
            if not place.exists():
                continue
            outcome = self.run(command.resume(one))
            ends.append(evidence.look(place, outcome))
            if whole and outcome.code == 0 and outcome.printed is None:
                evidence.blame("twice", "a run that has ended was gone on with")
            if (place / command.result).exists():
                evidence.tidy(place)
        if not command.live and any(ends) and not all(ends):
            evidence.blame("lost", "one copy went on, and the other was refused")
        if not evidence.paid and not evidence.delivered:
            self._again(evidence)

    def _again(self, evidence: Evidence) -> None:
        """Nothing was paid and nothing can be gone on with: the command is given once more."""
        outcome = self.run(self.command.begin())
        if not evidence.look(self.root / RUN, outcome):
            evidence.blame("stuck", outcome.err.strip())


@contextlib.contextmanager
def _placed(root: Path) -> Iterator[None]:
    """With `root` as working folder, its temporary files too, and signals as they were."""
    before, temporary = os.getcwd(), tempfile.tempdir
    handler = signal.getsignal(signal.SIGINT)
    os.chdir(root)
    tempfile.tempdir = str(root / "tmp")
    try:
        yield
    finally:
        os.chdir(before)
        tempfile.tempdir = temporary
        signal.signal(signal.SIGINT, handler)


def trials(
    command: Command,
    base: Path,
    shim: Shim,
    *,
    each: int | None = None,
    faults: tuple[Fault, ...] = FAULTS,
    seed: int = 0,
    stop_at: str | None = None,
) -> Report:
    """Every fault at every call of the command, or at `each` calls drawn at random.

    With `stop_at`, only until something of that kind is found.
    """
    begun, report, draw = time.perf_counter(), Report(), random.Random(f"{seed} {command.name}")
    bench = Bench(command, base / command.name, shim)
    calls = bench.count()
    for fault in faults:
        listed = [
            n
            for n, call in enumerate(calls, 1)
            if fault.mode not in (Mode.SHORT, Mode.TORN) or call.what == "write"
        ]
        if each is not None and each < len(listed):
            listed = sorted(draw.sample(listed, each))
        if stop_at is not None:
            draw.shuffle(listed)
        for n in listed:
            evidence = bench.trial(fault, n, draw)
            report.add(command.name, fault.name, calls[n - 1].kind, evidence)
            if stop_at is not None and evidence.found[stop_at]:
                return report
        if sys.stderr.isatty():
            print(f"{command.name}: {fault.name}: {len(listed)} trials", file=sys.stderr)
    report.seconds = time.perf_counter() - begun
    return report
