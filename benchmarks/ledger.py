"""Kill and race trials of the ledger, and what an entry costs.

Processes are forked from a warm parent and killed with SIGKILL at a random moment. A releasing
process counts, in memory shared with its parent, what it has released; after its death the ledger
must hold at least that much. Two processes race for the last unit of budget; never may both get it.

    python -m benchmarks.ledger [KILLS] [RACES]
"""

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
from tacit.privacy import Budget, Gaussian, Ledger, OverBudget, PureDP, Unit
from tacit.privacy.mechanisms import GaussianMechanism
from tacit.privacy.noise import Source, secure

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


def run(kills: int = 1000, races: int = 1000) -> Iterator[dict[str, Any]]:
    """The trials and the cost."""
    yield kill_trials(kills)
    yield {**kill_trials(max(60, kills // 10), sabotaged), "figure": "kill -9, sabotaged twin"}
    yield race_trials(races)
    yield cost_of_an_entry()


if __name__ == "__main__":
    for row in run(*map(int, sys.argv[1:])):
        print(json.dumps(row), flush=True)
