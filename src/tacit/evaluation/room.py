"""Whether what an estimator will hold fits into memory: asked before anybody pays.

Only public numbers go into it (how many units and features there are), so that a refusal tells
nothing about anybody.
"""

import os
import resource
from contextlib import suppress
from pathlib import Path

from tacit.privacy.errors import InputError

# States over which the public guess of the features' moments is averaged.
EVEN = 1 << 12
_BYTES = 8
_GROUP = Path("/sys/fs/cgroup")


def for_features(dimension: int) -> None:
    """Refuse features whose square matrices do not fit: moments, a factor, its inverse."""
    _refuse_beyond(dimension, 2 * EVEN * dimension + 4 * dimension**2)


def for_units(dimension: int, count: int, matrices: int) -> None:
    """Refuse dense moments that do not fit: `matrices` for each unit, twice while they are made."""
    _refuse_beyond(dimension, 2 * matrices * count * dimension**2)


def _refuse_beyond(dimension: int, numbers: int) -> None:
    needed, free = _BYTES * numbers, available()
    if needed > free:
        raise InputError(
            f"{dimension:,} features would take {needed / 2**30:.3g} GiB of memory, and "
            f"{free / 2**30:.3g} GiB are free: take fewer features, or the estimator value alone."
        )


def available() -> int:
    """Bytes of memory that this process could still get."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = 1024 * int(next(one for one in lines if one.startswith("MemAvailable")).split()[1])
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        free = min(free, limit)
        with suppress(OSError, ValueError):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            free = min(free, max(limit - pages * os.sysconf("SC_PAGE_SIZE"), 0))
    with suppress(OSError, ValueError):
        # In a container: "max" if there is no limit, which is no number.
        limit = int((_GROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        told = (_GROUP / "memory.stat").read_text(encoding="ascii").split()
        # Files that were read are in memory only while nobody else wants it.
        files = int(told[told.index("inactive_file") + 1])
        free = min(free, max(limit - used + files, 0))
    return free
