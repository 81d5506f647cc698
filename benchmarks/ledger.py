"""Kill and race trials of the ledger, what an entry costs, and how all that grows with entries.

Processes are forked from a warm parent and killed with SIGKILL at a random moment. A releasing
process counts, in memory shared with its parent, what it has released; after its death the ledger
must hold at least that much. Two processes race for the last unit of budget; never may both get it.

    python -m benchmarks.ledger [KILLS] [RACES]
    python -m benchmarks.ledger growth [ENTRIES ...]

`growth` makes ledgers of 1,000, 10,000 and 100,000 entries by default, once with ten kinds of
entries in a tenth as many runs, once with every entry a run and a kind of its own, and times what
is done with them. `show` is the command with all of its output; `show_all` lists every run, up to
10,000 of them.
"""

import contextlib
import hashlib
import io
import json
import mmap
import os
import random
import shutil
import signal
import statistics
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import seconds
from privrl.privacy import Budget, Gaussian, Ledger, OverBudget, PureDP, Unit
from privrl.privacy.mechanisms import GaussianMechanism
from privrl.privacy.noise import Source, secure

PLAN = GaussianMechanism(10.0, 1.0)
# Releases once and says so, by calling the third argument, as soon as the noise is out.
Releasing = Callable[[Ledger, Source, Callable[[], None]], None]


def as_shipped(ledger: Ledger, source: Source, released: Callable[[], None]) -> None:
    """Pay, then draw."""
    ledger.release(PLAN, [1.0], source, run="trial")
    released()


def sabotaged(ledger: Ledger, source: Source, released: Callable[[], None]) -> None:
    """Draw, then pay: the twin that the trials must catch."""
    PLAN.release([1.0], source)
    released()
    ledger.spend(PLAN.event, run="trial")


def _forked(work: Callable[[], int]) -> int:
    """Run `work` in a forked process that never returns into our own code."""
    process = os.fork()
    if process == 0:
        code = 70
        try:
            code = work()
        except Exception:  # a forked child must not return into its parent's code
            traceback.print_exc()
        finally:
            os._exit(code)
    return process


def kill_trials(trials: int, release: Releasing = as_shipped) -> dict[str, Any]:
    """How often a killed process had released more than the ledger shows, which must be never."""
    counter = mmap.mmap(-1, 8)
    gate, ready = os.pipe()
    violations = between = released_in_all = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        Ledger.create(path, "trial", unit=Unit.USER).close()
        fresh = path.read_bytes()
        with Ledger.open(path) as warm:  # imports happen here, not in the forked processes
            source = secure()
            entry = statistics.median(
                seconds(lambda: release(warm, source, lambda: None)) for _ in range(9)
            )

        def count() -> None:
            (done,) = struct.unpack("q", counter[:])
            counter[:] = struct.pack("q", done + 1)

        def spend_until_killed() -> int:
            source = secure()
            with Ledger.open(path) as ledger:
                os.write(ready, b"!")
                while True:
                    release(ledger, source, count)

        for _ in range(trials):
            path.write_bytes(fresh)
            counter[:] = struct.pack("q", 0)
            process = _forked(spend_until_killed)
            os.read(gate, 1)  # it has opened its ledger
            time.sleep(random.uniform(0.0, 6.0 * entry))  # long enough for a few releases
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            (released,) = struct.unpack("q", counter[:])
            with Ledger.open(path) as ledger:  # checks the chain, too
                paid = len(ledger.entries())
            violations += paid < released
            between += paid > released
            released_in_all += released
    os.close(gate)
    os.close(ready)
    return {
        "figure": "kill -9",
        "trials": trials,
        "released": released_in_all,
        "killed_between_paying_and_releasing": between,
        "released_more_than_paid": violations,
    }


def race_trials(trials: int) -> dict[str, Any]:
    """How often two processes both got the last unit of budget, which must be never."""
    outcomes = {0: 0, 1: 0, 2: 0}
    with tempfile.TemporaryDirectory() as folder:
        template, path = Path(folder) / "template", Path(folder) / "ledger"
        with Ledger.create(template, "race", unit=Unit.USER, limit=Budget(1.0)) as ledger:
            ledger.spend(PureDP(0.75), run="before")

        def take(gate: int) -> int:
            with Ledger.open(path) as ledger:
                os.read(gate, 1)  # both wait here until the parent lets them go
                try:
                    ledger.spend(PureDP(0.25), run=str(os.getpid()))
                except OverBudget:
                    return 1
            return 0

        for _ in range(trials):
            shutil.copy(template, path)
            gate, opener = os.pipe()
            racers = [_forked(partial(take, gate)) for _ in range(2)]
            os.write(opener, b"go")
            codes = [os.waitstatus_to_exitcode(os.waitpid(racer, 0)[1]) for racer in racers]
            os.close(gate)
            os.close(opener)
            if set(codes) - {0, 1}:
                raise RuntimeError(f"a racer failed with exit code {max(codes)}")
            with Ledger.open(path) as ledger:
                winners = len(ledger.entries()) - 1
            if winners != codes.count(0):
                raise RuntimeError("a racer was told something else than the ledger says")
            outcomes[winners] += 1
    return {
        "figure": "races for the last unit",
        "trials": trials,
        "neither_got_it": outcomes[0],
        "one_got_it": outcomes[1],
        "both_got_it": outcomes[2],
    }


def cost_of_an_entry(entries: int = 200) -> dict[str, Any]:
    """Milliseconds from `spend` to its entry being on disk, with a limit to keep."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        with Ledger.create(path, "cost", unit=Unit.USER, limit=Budget(1e6, 1e-6)) as ledger:
            times = []
            for _ in range(entries):
                start = time.perf_counter()
                ledger.spend(Gaussian(100, 1), run="cost")
                times.append(1e3 * (time.perf_counter() - start))
    low, middle, high = np.quantile(times, [0.05, 0.5, 0.95])
    return {
        "figure": "one entry",
        "median_ms": statistics.median(times),
        "quantiles_5_50_95_ms": [low, middle, high],
    }


def _of_entries(path: Path, entries: int, kinds: int, runs: int) -> None:
    """A ledger with a limit and this many entries, through its JSON form."""
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "first"
        limit = Budget(1e6, 1e-6)
        with Ledger.create(first, "growth", unit=Unit.USER, limit=limit) as ledger:
            data = ledger.to_dict()
            data.pop("entries")
            entry = ledger.spend(Gaussian(1000, 1), run="cost")

    def digest(body: dict[str, Any]) -> str:
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    head, made = digest(data), []
    for number in range(1, entries + 1):
        # At least as much noise as what the cost is of, so that it covers all of them.
        event = Gaussian(1000 + number % kinds, 1)
        body = {
            "number": number,
            "time": entry.time,
            "run": f"run {number % runs}",
            "partition": "",
            "slot": 0,
            "events": [event.to_dict()],
            "note": "",
            "cost": [entry.cost.first, entry.cost.second],
            "previous": head,
            "nonce": f"{number:032x}",
        }
        head = digest(body)
        made.append({**body, "digest": head})
    Ledger.from_dict({**data, "entries": made}, path).close()


def _shown(path: Path, *options: str) -> None:
    from privrl import cli

    with contextlib.redirect_stdout(io.StringIO()):
        if cli.run(["ledger", "show", str(path), *options]) != 0:
            raise RuntimeError("the ledger is not shown")


def growth(entries: int, *, alike: bool) -> dict[str, Any]:
    """Seconds for what is done with a ledger of this many entries."""
    kinds, runs = (10, max(1, entries // 10)) if alike else (entries, entries)
    times: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        _of_entries(path, entries, kinds, runs)
        source = secure()
        times["open"] = statistics.median(seconds(lambda: Ledger.open(path).close()) for _ in "123")
        with Ledger.open(path) as ledger:
            spend = partial(ledger.spend, Gaussian(1000, 1), run="new")
            spend()  # imports
            times["spend"] = statistics.median(seconds(spend) for _ in range(9))
            certified = partial(ledger.spend, Gaussian(1000, 1), run="new", delta=1e-6)
            times["spend_with_delta"] = statistics.median(seconds(certified) for _ in range(9))
            for name, work in {
                "certify": lambda: ledger.certify("new", 1e-6, source=source),
                "paid": lambda: ledger.account(1e-6),
                "left": ledger.remaining,
                "entries": ledger.entries,
                "check": ledger.check,
                "anchored": lambda: ledger.check_anchor(Path(folder) / "heads"),
            }.items():
                times[name] = seconds(work)
        times["show"] = seconds(lambda: _shown(path))
        if runs <= 10_000:
            times["show_all"] = seconds(lambda: _shown(path, "--runs", str(runs + 1)))
        megabytes = path.stat().st_size / 1e6
    return {
        "figure": "growth",
        "entries": entries,
        "kinds": kinds,
        "runs": runs,
        "megabytes": round(megabytes, 1),
        **{f"{name}_s": round(taken, 5) for name, taken in times.items()},
    }


def growths(sizes: tuple[int, ...] = (1_000, 10_000, 100_000)) -> Iterator[dict[str, Any]]:
    """`growth` for all sizes."""
    for alike in (True, False):
        for entries in sizes:
            yield growth(entries, alike=alike)


def run(kills: int = 1000, races: int = 1000) -> Iterator[dict[str, Any]]:
    """The trials and the cost."""
    yield kill_trials(kills)
    yield {**kill_trials(max(60, kills // 10), sabotaged), "figure": "kill -9, sabotaged twin"}
    yield race_trials(races)
    yield cost_of_an_entry()


if __name__ == "__main__":
    if sys.argv[1:2] == ["growth"]:
        rows = growths(tuple(map(int, sys.argv[2:])) or (1_000, 10_000, 100_000))
    else:
        rows = run(*map(int, sys.argv[1:]))
    for row in rows:
        print(json.dumps(row), flush=True)
