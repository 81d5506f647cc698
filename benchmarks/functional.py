"""A million values of one noise path, and a path at 5,000 points against a dense Cholesky factor.

Points come sorted, shuffled or in clusters (a hundred places, gaps down to 1e-12), as one batch, in
mini-batches of 128, or one by one. These rows are seconds of one processor, which other load on the
machine does not stretch. `growth` is the slope of log seconds against log(n log n) from 10^4 to
10^6 points: 1 is exactly n log n.

Dense Cholesky is the best that could be made of it: the kernel computed in place, LAPACK's factor
overwriting it, and a triangular product. Both start from points in random order and end with a
path's values at them. A streamed path answers each point before it sees the next, which the dense
factor cannot.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from benchmarks.measure import compare, seconds
from privrl.privacy.mechanisms.functional import FunctionalMechanism, NoisePath
from privrl.privacy.noise import secure

Array = NDArray[np.float64]
RATE = 3.0
SIZES = (10_000, 100_000, 1_000_000)


def run() -> Iterator[dict[str, object]]:
    """Rows of seconds and growth, then the comparisons at 5,000 points, then compiled paths."""
    ways: dict[str, Callable[[Array], object]] = {
        "one batch": at_once,
        "batches of 128": lambda points: in_batches(points, 128),
        "one by one": one_by_one,
    }
    at_once(np.zeros(1))
    for name, points in _points(SIZES[-1]).items():
        for way, work in ways.items():
            # Every n-th point, so that smaller runs look like the large one.
            taken = {n: _cpu_seconds(work, points[:: SIZES[-1] // n]) for n in SIZES}
            logs = [math.log(n * math.log(n)) for n in SIZES]
            slope = np.polyfit(logs, [math.log(t) for t in taken.values()], 1)[0]
            yield {
                "points": name,
                "asked": way,
                "cpu_seconds": {str(n): t for n, t in taken.items()},
                "growth": float(slope),
            }
    points = np.random.default_rng(0).random(5000)
    for way, work in (("one batch", at_once), ("one by one", one_by_one)):
        row = compare(partial(work, points), lambda: dense(points), rounds=5)
        yield {"against": "dense Cholesky, 5,000 points", "asked": way, **row}
    for capacity in (1000, 10_000):
        yield _compiled(capacity)


def at_once(points: Array) -> NDArray[np.floating]:
    """A fresh path at all points in one batch."""
    return _path()(points)


def in_batches(points: Array, size: int) -> None:
    """A fresh path at all points, so many at a time."""
    path = _path()
    for start in range(0, len(points), size):
        path(points[start : start + size])


def one_by_one(points: Array) -> None:
    """A fresh path at all points, each asked alone."""
    path = _path()
    for x in points.tolist():
        path(x)


def dense(points: Array) -> Array:
    """A path at all points by a Cholesky factor of their covariance."""
    kernel = np.subtract.outer(points, points)
    np.abs(kernel, out=kernel)
    np.multiply(kernel, -RATE, out=kernel)
    np.exp(kernel, out=kernel)
    # The transpose is the same matrix in LAPACK's order, so that nothing is copied.
    factor, failed = lapack.dpotrf(kernel.T, lower=1, clean=0, overwrite_a=1)
    assert not failed
    values: Array = blas.dtrmv(factor, secure().generator.standard_normal(len(points)), lower=1)
    return values


def _cpu_seconds(work: Callable[[Array], object], points: Array) -> float:
    start = time.process_time()
    work(points)
    return time.process_time() - start


def _path() -> NoisePath:
    return NoisePath(1.0, RATE, 0.0, 1.0, secure())


def _points(n: int) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shuffled = rng.random(n)
    spread = 10.0 ** rng.uniform(-12, -3, n)
    clustered = rng.random(100)[rng.integers(0, 100, n)] * (1 - 1e-3) + spread
    return {"sorted": np.sort(shuffled), "shuffled": shuffled, "clustered": clustered}


def _compiled(capacity: int) -> dict[str, object]:
    """As many new points as there is room for, one after the other inside one compiled loop."""
    import jax

    from privrl.privacy.mechanisms.functional_jax import init, query

    plan = FunctionalMechanism(1.0, RATE, 0.0, 1.0, 1.0)
    points = np.random.default_rng(0).random(capacity)
    with jax.enable_x64(True):
        work = jax.jit(query, static_argnums=0)
        arguments = (plan, init(capacity, 2), secure().key(), points)

        def once() -> object:
            return jax.block_until_ready(work(*arguments))  # type: ignore[no-untyped-call]

        first = seconds(once)
        later = min(seconds(once) for _ in range(3))
    return {
        "compiled_capacity": capacity,
        "actions": 2,
        "compile_s": first - later,
        "run_s": later,
        "microseconds_per_point": 1e6 * later / capacity,
    }
