"""Estimators whose release is one noised sum: gather in parts, add up, release once.

    parts  = [judge.gather(batch, policy) for batch in batches]    anywhere, in any process
    result = judge.release(parts[0] + parts[1] + ...)               once, where the ledger is

A batch holds whole units (people, or trajectories if nobody is named), and no unit is in two
batches. `gather` clips each unit's contribution to the public bound, adds the contributions up,
and looks at nothing but the batch; so the order and the place in which batches are gathered do not
matter, and a unit moves the sum over all batches as little as it moves the sum over its own.
`release` pays, draws noise once, and certifies. Everything in a `Sums` is private until then: it
may travel between machines that hold the data, and nowhere else.

Contributions are rows of a matrix, one for each unit, or of several blocks side by side; blocks are
dense or sparse. A unit's own row is always complete before it is scaled and added to others: in
floating point, a unit whose terms are huge and cancel would else wipe out everybody's.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from privrl.core.errors import InputError
from privrl.core.threads import thread_pool
from privrl.core.types import Floats
from privrl.data import Policy, Trajectories
from privrl.evaluation.bellman_error import is_sparse
from privrl.evaluation.result import Result
from privrl.evaluation.steps import Data, batches
from privrl.evaluation.table import Entries
from privrl.privacy.certificate import Assumption
from privrl.privacy.promise import Unit
from privrl.privacy.session import SECRET_SESSION, PrivacySession

T = TypeVar("T")
R = TypeVar("R")

# Batches that are worked on at a time: reading keeps most of another core busy.
_THREADS = max(1, min(2, (os.cpu_count() or 1) - 1))


# The squares of numbers far below are 0.
SMALLEST = 1e-140


@dataclass(frozen=True, eq=False)
class Sums:
    """What the units of some batches contribute, each clipped, added up. Private."""

    unit: Unit
    """Whom a promise about these sums protects."""

    count: int
    """How many units there are; public under replace-one."""

    total: Floats
    """The sum of their contributions."""

    whole: NDArray[np.int64] | None = None
    """The same on a grid of integers, where noise is drawn on one."""

    clipped: float = 0.0
    """How many of them the bound clipped: shown only if the data was declared public."""

    assumptions: tuple[Assumption, ...] = ()
    """What the certificate assumes of the data; see `privrl.data.assumptions`."""

    def __add__(self, other: "Sums") -> "Sums":
        """The sums over the units of both, which must have none in common."""
        return add_sums((self, other))


class SumEstimator(Protocol):
    """An estimator whose release is one noised sum. It is a frozen value, so it can travel."""

    def gather(
        self, batch: Trajectories, policy: Policy | None = None, *, public: bool = False
    ) -> Sums:
        """What the units of `batch` contribute, each clipped."""
        ...

    def release(
        self,
        sums: Sums,
        *,
        session: PrivacySession = SECRET_SESSION,
    ) -> Result:
        """Pay, add noise to `sums`, certify: once for all data."""
        ...


def gather_sums(
    judge: SumEstimator, data: Data, policy: Policy | None = None, *, public: bool = False
) -> Sums:
    """The sums over all of `data`, batch by batch, in memory bounded by that of a few batches."""

    def part(batch: Trajectories) -> Sums:
        return judge.gather(batch, policy, public=public)

    return add_sums(map_in_threads(part, batches(data), threads=_THREADS))


def add_sums(parts: Iterable[Sums]) -> Sums:
    """All parts added up, in the order in which they come; they must have no unit in common."""
    remaining = iter(parts)
    first = next(remaining, None)
    if first is None:
        raise InputError("There is no trajectory in the data.")
    total, whole = first.total.copy(), None if first.whole is None else first.whole.copy()
    count, clipped, assumptions = first.count, first.clipped, first.assumptions
    for part in remaining:
        same = (part.unit, part.total.shape) == (first.unit, total.shape)
        if not same or (part.whole is None) != (whole is None):
            raise InputError("Only sums of the same estimator over the same kind of data add up.")
        total += part.total
        if whole is not None and part.whole is not None:
            whole += part.whole
        count, clipped = count + part.count, clipped + part.clipped
        if part.assumptions != assumptions:
            assumptions = tuple(dict.fromkeys((*assumptions, *part.assumptions)))
    return Sums(first.unit, count, total, whole, clipped, assumptions)


def map_in_threads(work: Callable[[T], R], items: Iterable[T], threads: int = 1) -> Iterator[R]:
    """`work` on each item, in other threads while the next item is being made; results in order.

    With one thread the work itself is done in order too.
    """
    with thread_pool(threads) as workers:
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(workers.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


# --- rows, one for each unit ---------------------------------------------------------------------


def joint_clip_factors(blocks: Sequence[Any], bound: float) -> Floats:
    """What each unit's row, over all blocks, is multiplied by to have L2 norm at most `bound`.

    Total: 0 for a unit with an entry that is not finite, or whose square is not.
    """
    with np.errstate(all="ignore"):
        squares = sum((row_squares(rows) for rows in blocks), np.zeros(blocks[0].shape[0]))
    return clip_scales(squares, bound, sum(rows.shape[1] for rows in blocks))


def clip_scales(squares: Floats, bound: float, entries: int) -> Floats:
    """What a vector of this squared norm is multiplied by to have norm at most `bound`.

    The bound is refused where squares that underflow could matter. 0 if the square is not finite.
    The computed norm of a vector of this many entries is off by a factor of at most
    1 + (entries + 8) 2^-52, which the bound gives up.
    """
    if bound < SMALLEST:
        raise InputError(
            "The clip bound is too small to compute with: state rewards in other units."
        )
    with np.errstate(all="ignore"):
        norms = np.sqrt(squares)
        safe = bound * (1.0 - (entries + 8) * 2.0**-51)
        factors = np.where(norms > safe, safe / norms, 1.0)
    return np.where(np.isfinite(norms), factors, 0.0)


def row_squares(rows: Any) -> Floats:
    """The squared L2 norm of each row."""
    if isinstance(rows, Entries):
        return rows.squares()
    if not is_sparse(rows):
        return np.asarray(np.vecdot(rows, rows))
    owners = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    return np.asarray(np.bincount(owners, rows.data * rows.data, rows.shape[0]))


def sum_rows(rows: Any, factors: Floats) -> Floats:
    """The sum of the rows, each times its factor; a factor of 0 leaves out a row of any content."""
    if isinstance(rows, Entries):
        columns, values = rows.scale_rows(factors)
        return np.asarray(np.bincount(columns, values, rows.width))
    if (factors == 0.0).any():
        used = np.flatnonzero(factors)
        rows, factors = rows[used], factors[used]
    return np.asarray(factors @ rows)
