"""Timing that compares two things in the same run, alternating, and reports the ratio's spread."""

import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version

import privrl


def environment() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "numpy": version("numpy"),
        "privrl": privrl.__version__,
    }


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 7
) -> dict[str, object]:
    """Median seconds of each, and the median and quartiles of theirs / ours over `rounds` pairs.

    Each is called once before anything is measured, so that imports and caches do not count.
    """
    ours()
    theirs()
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(rounds)]
    ratios = sorted(b / a for a, b in pairs)
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "ours_s": statistics.median(a for a, _ in pairs),
        "theirs_s": statistics.median(b for _, b in pairs),
        "ratio": middle,
        "ratio_quartiles": [low, high],
        "rounds": rounds,
    }
