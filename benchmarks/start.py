"""How soon `privrl train` begins to learn: with an empty cache of compiled programs, and again.

From the start of the process to the first progress that is reported, of a whole process each time,
with the cache of `privrl.core.compilation` in a folder of its own. Networks, since little has to be
compiled for tables. What is left the second time are imports, most of them JAX's, NumPy's and
SciPy's, loading programs, and the first step.
"""

import compileall
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import privrl

# The process ends as soon as some share of the work is done, and says when that was.
_BEGIN = """
import os, sys, time
from contextlib import contextmanager
from privrl import cli
from privrl.cli import train

@contextmanager
def progress(steps):
    def advance(what, share=None):
        if share:
            print(time.time(), time.process_time(), flush=True)
            os._exit(0)
    yield advance

train.progress = progress
cli.main(sys.argv[1:])
"""
_BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
RUNS = {
    "actor-critic": [
        *("--env", "CartPole", "--max-steps", "100", "--features", "network:64,64"),
        *("--people", "2000", "--batch", "100", "--return-range", "0,100", *_BUDGET),
    ],
    "functional-q": [
        *("--env", "Interval", "--reward-range", "0,0.5", "--release", "updates", "--clip", "0.1"),
        *("--planner", "network", "--features", "network:64,64", "--reward-radius", "0.01"),
        *_BUDGET,
    ],
    "pgc": ["--env", "CartPole", "--agents", "5000", "--epsilon", "2"],
}


def begin(learner: str, folder: Path) -> tuple[float, float]:
    """Seconds from the start of the process to the first progress: by the clock, and of CPU."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        words = ["train", learner, *RUNS[learner], "--out", str(Path(out) / "run")]
        environment = {**os.environ, "PRIVRL_CACHE": str(folder / "cache")}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        start = time.time()
        found = subprocess.run(
            [sys.executable, "-c", _BEGIN, *words],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        end, cpu = map(float, found.stdout.split())
        return end - start, cpu


def run(rounds: int = 3) -> Iterator[dict[str, Any]]:
    """Medians over `rounds`, each with a cache that was empty before."""
    # As `pip install` does, so that the first process does not compile what the second finds.
    compileall.compile_dir(str(Path(privrl.__file__).parent), quiet=1)
    for learner in RUNS:
        times = np.empty((rounds, 2, 2))  # round, first or again, clock or CPU
        for one in times:
            with tempfile.TemporaryDirectory() as folder:
                one[:] = [begin(learner, Path(folder)) for _ in range(2)]
        found: dict[str, Any] = {"learner": learner}
        for number, unit in enumerate(("clock", "cpu")):
            first, again = times[:, 0, number], times[:, 1, number]
            found |= {f"first_{unit}_s": _spread(first), f"again_{unit}_s": _spread(again)}
            found[f"times_sooner_{unit}"] = _spread(first / again)
        yield found


def _spread(values: Any) -> list[float]:
    """Median, least and most."""
    return [float(f(values)) for f in (np.median, np.min, np.max)]
