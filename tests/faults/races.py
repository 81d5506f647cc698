"""Several processes at once: in one folder, under one name, on one ledger, and on copies.

Each worker is a process of its own that stays, so that it imports and compiles once. Whatever
they come to, the ledger has one payment for each result that anybody has, and no more than its
limit, which has room for one.
"""

import multiprocessing
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.commands import COMMANDS, LEDGER, ROOMY, RUN, Command
from tests.faults.harness import Bench, Report
from tests.faults.oracle import Evidence, Outcome, normalised
from tests.faults.shim import Mode, Shim

WORKERS = 3


@dataclass(frozen=True)
class Race:
    """What each of the processes is told, by its number."""

    name: str
    words: Callable[[Command, int], list[str]]
    folders: Callable[[int], str]
    interrupted: bool = False
    """Whether they go on with a run that was killed after it had paid."""

    roomy: bool = False
    """Whether the ledger could pay for all of them."""


def _begin(command: Command, folder: str, name: str) -> list[str]:
    words = command.begin(folder)
    if "--name" in words:
        words[words.index("--name") + 1] = name
    return words


RACES = (
    Race("same folder", lambda c, k: _begin(c, RUN, "one"), lambda k: RUN),
    Race("one folder", lambda c, k: _begin(c, RUN, f"n{k}"), lambda k: RUN, roomy=True),
    Race("same name", lambda c, k: _begin(c, f"run{k}", "one"), lambda k: f"run{k}"),
    Race("same ledger", lambda c, k: _begin(c, f"run{k}", f"n{k}"), lambda k: f"run{k}"),
    Race("resume", lambda c, k: c.resume(RUN), lambda k: RUN, interrupted=True),
    Race("copies", lambda c, k: c.resume(f"run{k}"), lambda k: f"run{k}", interrupted=True),
)


def _worker(pipe: Any, command: str, base: str, mutant: str | None) -> None:
    """Run command lines in the folder of trials, one after the other."""
    from tests.faults.mutants import applied

    chosen = next(one for one in COMMANDS if one.name == command)
    with suppress(EOFError), applied(mutant):
        bench: Bench | None = None
        while (asked := pipe.recv()) is not None:
            words, root, start = asked
            if bench is None:
                bench = Bench(chosen, Path(base), None)
            bench.root = Path(root)
            time.sleep(max(0.0, start - time.monotonic()))
            pipe.send(bench.run(words))


class Team:
    """Processes that run a command at the same time."""

    def __init__(self, command: Command, base: Path, mutant: str | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        for number in range(WORKERS):
            here, there = context.Pipe()
            process = context.Process(
                target=_worker, args=(there, command.name, str(base / f"worker{number}"), mutant)
            )
            process.start()
            self._pipes.append(here)
            self._processes.append(process)

    def run(self, words: list[list[str]], root: Path, waits: list[float]) -> list[Outcome]:
        """What each of them came to; they begin after these waits, in seconds."""
        now = time.monotonic() + 0.01
        for pipe, own, wait in zip(self._pipes, words, waits, strict=True):
            pipe.send((own, str(root), now + wait))
        return [pipe.recv() for pipe in self._pipes]

    def close(self) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            with suppress(OSError):
                pipe.send(None)
            process.join(10)
            if process.is_alive():
                process.kill()


def _killed(bench: Bench, shim: Shim) -> Path | None:
    """The folder of trials after a kill that came when it had paid, before there was a result."""
    command = bench.command
    calls = bench.count()
    paid = [n for n, call in enumerate(calls, 1) if call.path == f"/{LEDGER}-journal"]
    last = max((n for n in paid if calls[n - 1].what == "unlink"), default=len(calls) // 2)
    bench.fresh()
    bench.run(command.begin(), Mode.KILL, last + 3)
    if (bench.root / RUN / command.result).exists() or not (bench.root / RUN).exists():
        return None
    kept = bench.root.with_name("killed")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(bench.root, kept)
    return kept


def races(
    command: Command,
    base: Path,
    shim: Shim,
    *,
    each: int,
    chosen: tuple[Race, ...] = RACES,
    seed: int = 0,
    mutant: str | None = None,
) -> Report:
    """`each` races of every kind."""
    begun, report, draw = time.perf_counter(), Report(), random.Random(f"{seed} {command.name}")
    bench = Bench(command, base / f"{command.name}-races", shim)
    kept = _killed(bench, shim)
    team = Team(command, base / f"{command.name}-workers", mutant)
    try:
        for race in chosen:
            if race.interrupted and kept is None:
                continue
            for _ in range(each):
                evidence = _race(race, bench, team, kept, draw)
                report.add(command.name, race.name, "race", evidence)
    finally:
        team.close()
    report.seconds = time.perf_counter() - begun
    return report


def _race(race: Race, bench: Bench, team: Team, kept: Path | None, draw: random.Random) -> Evidence:
    command, root = bench.command, bench.root
    bench.fresh()
    numbers = range(WORKERS)
    if race.roomy and command.ledger:
        (root / ROOMY).replace(root / LEDGER)
    if race.interrupted:
        assert kept is not None
        shutil.copytree(kept, root, dirs_exist_ok=True)
        for k in numbers:
            if race.folders(k) != RUN:
                shutil.copytree(root / RUN, root / race.folders(k))
        if race.folders(0) != RUN:
            shutil.rmtree(root / RUN)
    waits = [draw.choice((0.0, 0.0, draw.uniform(0.0, 0.05))) for _ in numbers]
    outcomes = team.run([race.words(command, k) for k in numbers], root, waits)
    evidence = Evidence(command, root)
    released: set[str] = set()
    kept_results: set[str] = set()

    def look(folder: str, outcome: Outcome | None) -> None:
        if outcome is not None:
            evidence.outcomes.append(outcome)
            if outcome.trace:
                evidence.blame("trace", outcome.trace)
            if outcome.printed is not None:
                released.add(_text(outcome.printed))
        data = evidence.result(root / folder)
        if data is not None:
            released.add(_text(data))
            kept_results.add(_text(data))

    for k, outcome in zip(numbers, outcomes, strict=True):
        look(race.folders(k), outcome)
    # Whoever was refused may go on, if anything is left to go on with.
    for folder in dict.fromkeys(map(race.folders, numbers)):
        if (root / folder).exists() and not (root / folder / command.result).exists():
            look(folder, bench.run(command.resume(folder)))
    evidence.delivered = bool(released)
    evidence.check_ledger()
    if command.ledger:
        if len(released) > evidence.paid:
            evidence.blame("twice", f"{len(released)} results, {evidence.paid} payments")
        if len(kept_results) < evidence.paid:
            told = " / ".join(one.err.strip() for one in evidence.outcomes)
            evidence.blame("lost", f"{len(kept_results)} kept, {evidence.paid} payments: {told}")
    elif len(released) > 1 and race.interrupted:
        evidence.blame("twice", f"{len(released)} results")
    if not released:
        evidence.blame("stuck", " / ".join(one.err.strip() for one in evidence.outcomes))
    return evidence


def _text(data: Any) -> str:
    return repr(sorted(normalised(data).items()))
