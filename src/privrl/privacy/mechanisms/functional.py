"""The functional mechanism: a whole function released at once, noised by a Gaussian process.

    plan = FunctionalMechanism(std, rate, low, high, bound)
    noised, event = plan.release(function, source)     # noised(points), as often as you like

The noise is a Gaussian process g on the public interval [low, high] with mean zero and covariance
std^2 exp(-rate |x - y|), drawn lazily: a value comes into being when it is first asked for, and is
the same for ever after.

Unit and relation: the caller's; each unit contributes a function of norm at most `bound` to the sum
that is released. The norm is that of the reproducing kernel Hilbert space H of exp(-rate |x - y|),

    ||f||^2 = (f(low)^2 + f(high)^2) / 2 + 1 / (2 rate) int f'^2 + rate / 2 int f^2

(that this is the norm: integrate <f, exp(-rate |x - .|)> by parts on both sides of x, and f(x) is
left). For a function with several components, the squares of their norms add up. Sensitivity:
`sensitivity(bound, relation)` in that norm.

Theorem (Hall, Rinaldo, Wasserman 2013). All answers together, at whatever points, chosen one after
the other in the light of the answers before, are mu-GDP with mu = sensitivity / std: the event is
one Gaussian(std, bound), once for all queries. Proof. Let d = f - f' be the difference between two
neighbours. By the theorem of Cameron and Martin the laws of the paths f + g and f' + g have a
density with respect to each other, whose logarithm is, under the one, normal with mean m / 2 and
variance m = ||d||^2 / std^2, and under the other normal with mean -m / 2; that is the pair N(0, 1),
N(sqrt(m), 1). The path is continuous, so answers to queries that depend on earlier answers are a
function of the path and of coins, and post-processing costs nothing. It does not matter that the
path is drawn lazily: the answers have the law they would have if it had been drawn beforehand. For
finitely many points X it reads: the best test has mu^2 = d(X)' K(X, X)^-1 d(X) / std^2, and that
increases to ||d||^2 / std^2 as the points become dense.

What is released: the noised function, at every point. Not covered: a function that changes while
its noise stays (two versions at one point differ by exactly their secret difference). Each version
needs a fresh path and is an event of its own.

What is enforced and what is not. `bound` is the caller's promise about the function; nobody can
check it at finitely many points. Points outside the interval are moved to its nearer end and NaN to
`low`, and all points to a public grid (below), for function and noise alike. Where the function
yields NaN or an infinity, 0 is put in its place, so that no error depends on private values;
`bound` must hold for what that makes.
Arithmetic: 64-bit floating point, so certificates list "idealised real arithmetic".

Drawing. The process is Markov: given its values at the two neighbours a < x < b among the points
drawn so far, nothing else counts. With u = rate (x - a) and v = rate (b - x),

    mean = g(a) sinh(v) / sinh(u + v) + g(b) sinh(u) / sinh(u + v)
    variance = std^2 (1 - e^-2u) (1 - e^-2v) / (1 - e^-2(u + v)),

and a neighbour that does not exist is one at infinite distance.

The grid. In floating point nothing may rest on gaps so small that the noise between two points is
lost in the rounding of its values. Two neighbours may differ by bound sqrt(2 rate h) more at x + h
than at x; if the noise had the same bits at both, and the function values of that size, a
difference of the two answers would tell the neighbours apart for sure. So points are rounded to
multiples of a power of two q, with rate q between 2^-41 and 2^-40, and those within q / 2 of an end
to that end: no two of them are closer than q / 2, and the noise between them has a standard
deviation of at least 2^-21 std. The function is evaluated at the rounded points too. So what is
released is f(round(x)) + g(round(x)): a function of the path, and the theorem covers it.
"""

import io
import math
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy.events import Event, Gaussian
from privrl.privacy.exact import Integers
from privrl.privacy.mechanisms.gaussian import GaussianMechanism
from privrl.privacy.noise import Source, as_float64
from privrl.privacy.promise import Budget, Relation

# Points per block of the sorted store: a block is split in two when it reaches twice that.
_BLOCK = 512
# A batch is drawn as a whole, which takes time for each point there is, when it has at least one
# new point for so many old ones; that keeps the time for each new point bounded.
_OLD_PER_NEW = 64
# Points are rounded to 2 to this power, in units of 1 / rate: see above.
_RESOLUTION = -40
_LARGEST_GAP = 1e300
# Eight rows of so many numbers, the least that is set aside, take a gigabyte.
_MOST_ACTIONS = 2**24


def bridge(u: Any, v: Any, xp: ModuleType) -> tuple[Any, Any, Any]:
    """Weights of the values at distance u left and v right, and the standard deviation, at std 1.

    Distances are in units of 1 / rate, at least 1e-300, and infinite where there is no neighbour.
    `xp` is `math`, `numpy` or `jax.numpy`. All three are products of factors that are accurate to a
    few units in the last place, however small or large the distances.
    """
    left, right = -xp.expm1(-2.0 * u), -xp.expm1(-2.0 * v)
    whole = -xp.expm1(-2.0 * (u + v))
    # Divide first: the quotients are at most 1, whereas left * right may underflow.
    return (
        xp.exp(-u) * (right / whole),
        xp.exp(-v) * (left / whole),
        xp.sqrt(left * (right / whole)),
    )


class Grid:
    """Multiples of a power of two, `step`, inside an interval, and its two ends; see the module.

    No two are closer than step / 2: an end takes all multiples that near to it. (In floating point:
    a multiple that exceeds the rounded low + step / 2 exceeds the exact one, since rounding keeps
    order; and the multiple nearest to `low` does not, so that `low` is its own nearest.)
    """

    def __init__(self, rate: float, low: float, high: float) -> None:
        # Not so small that the compiled version would take it for zero.
        exponent = max(_RESOLUTION - math.frexp(rate)[1], -1000)
        self.step = math.ldexp(1.0, exponent)
        self.low, self.high = low, high
        # From here on, every number is a multiple.
        self.coarse = math.ldexp(1.0, min(exponent + 53, 1023))
        self.least, self.most = low + self.step / 2.0, high - self.step / 2.0

    def nearest(self, x: Any, xp: ModuleType) -> Any:
        """`x`, moved into the interval and to its nearest point; NaN to the lower end."""
        # fmax and fmin take the number where the other is NaN.
        inside = xp.fmin(self.high, xp.fmax(self.low, x))
        fine = xp.abs(inside) < self.coarse
        # Adding zero makes one of the two zeros of floating point.
        y = xp.where(fine, xp.rint(xp.where(fine, inside, 0.0) / self.step) * self.step, inside)
        y = xp.where(y >= self.most, self.high, y + 0.0)
        return xp.where(y <= self.least, self.low, y)

    def nearest_one(self, x: float) -> float:
        """The same for one number, without the way through arrays."""
        # max takes the first if neither is larger, so that NaN is `low`.
        y = min(self.high, max(self.low, x))
        if abs(y) < self.coarse:
            y = round(y / self.step) * self.step
        if y <= self.least:
            return self.low
        return self.high if y >= self.most else y


class _SortedSites:
    """Sorted distinct numbers, each with the number of its row: blocks of bounded size in order.

    Finding and inserting one takes a bisection over the blocks and one within a block, and moves at
    most a block; splitting moves the list of blocks, once in `_BLOCK` insertions.
    """

    def __init__(self, sites: Array, rows: Integers) -> None:
        starts = range(0, max(len(sites), 1), _BLOCK)
        self._sites = [array("d", sites[i : i + _BLOCK].tobytes()) for i in starts]
        self._rows = [array("q", rows[i : i + _BLOCK].tobytes()) for i in starts]
        # The first block takes everything that is left of all others.
        self._heads = [-math.inf, *(block[0] for block in self._sites[1:])]

    def to_arrays(self) -> tuple[Array, Integers]:
        """All numbers in order, and their rows."""
        sites = np.concatenate([np.array(block) for block in self._sites])
        return sites, np.concatenate([np.array(block) for block in self._rows])

    def find(self, x: float) -> tuple[int, int]:
        """The block and the place in it where `x` is or belongs."""
        block = bisect_right(self._heads, x) - 1
        return block, bisect_left(self._sites[block], x)

    def row(self, x: float, block: int, place: int) -> int | None:
        """The row of `x`, if it is there."""
        sites = self._sites[block]
        return self._rows[block][place] if place < len(sites) and sites[place] == x else None

    def neighbours(self, x: float, block: int, place: int) -> tuple[float, int, float, int]:
        """Distance and row of the nearest number left of `x` and of the nearest right of it.

        The distance to a neighbour that does not exist is infinite, and its row -1.
        """
        sites, rows = self._sites[block], self._rows[block]
        # A block's first number is at most x, except in the first block, where nothing is further
        # left: so the left neighbour is never in another block.
        left = (x - sites[place - 1], rows[place - 1]) if place else (math.inf, -1)
        if place < len(sites):
            return *left, sites[place] - x, rows[place]
        if block + 1 < len(self._sites):
            return *left, self._sites[block + 1][0] - x, self._rows[block + 1][0]
        return *left, math.inf, -1

    def insert(self, x: float, row: int, block: int, place: int) -> None:
        """Put `x` where `find` said."""
        sites, rows = self._sites[block], self._rows[block]
        sites.insert(place, x)
        rows.insert(place, row)
        if len(sites) >= 2 * _BLOCK:
            self._sites[block : block + 1] = [sites[:_BLOCK], sites[_BLOCK:]]
            self._rows[block : block + 1] = [rows[:_BLOCK], rows[_BLOCK:]]
            self._heads.insert(block + 1, sites[_BLOCK])


class NoisePath:
    """One path of the process with covariance std^2 exp(-rate |x - y|), drawn where it is asked.

    `path(points)` has the shape of `points`, followed by `actions` if that is given: so many
    independent paths that share their points. Points outside [low, high] are moved to the nearer
    end, NaN to `low`, and all to a grid far finer than 1 / rate (see the module). Asked again, a
    point has the same value, bit for bit. Batches have the law of the same points one after the
    other, in any order. A new point among n takes time proportional to log n (up to 10^8 points or
    so), alone or in a batch.

    The path is the secret that protects what it is added to: so are its files.
    """

    def __init__(
        self,
        std: float,
        rate: float,
        low: float,
        high: float,
        source: Source,
        *,
        actions: int | None = None,
    ) -> None:
        self.std = checks.positive("std", std)
        self.rate, self.low, self.high = _check_interval(rate, low, high)
        self.actions = None if actions is None else check_components(actions)
        self._grid = Grid(self.rate, self.low, self.high)
        self.source = source
        self.reset()

    def reset(self) -> None:
        """Forget the path. What is drawn from now on is another one, independent of it.

        Whatever is released with the new path is a new event.
        """
        self._fill(np.empty(0), np.empty((0, self.actions or 1)))

    def __len__(self) -> int:
        """At how many points the path has been drawn."""
        return self._count

    def to_domain(self, points: ArrayLike) -> Array:
        """`points` as they are understood: on the grid, NaN at the interval's lower end."""
        return np.asarray(self._grid.nearest(as_float64("points", points), np))

    def __call__(self, points: ArrayLike | float) -> Array:
        """The path at `points`."""
        if isinstance(points, float):
            row = self._row(self._grid.nearest_one(float(points)))
            if self.actions is None:
                return np.array(self._flat[row] * self.std)
            values: Array = self._values[row] * self.std
            return values
        inside = self.to_domain(points)
        rows = self._rows(inside.ravel())
        tail = (self.actions,) if self.actions else ()
        return (self._values[rows] * self.std).reshape(inside.shape + tail)

    def save(self, file: str | Path) -> None:
        """Write the path to a file that only its owner may read.

        The file is *secret*: who has it can take the noise off. It is in place as a whole or not
        at all. The source is not in it: `load` is given one for the points still to be drawn.
        """
        sites, rows = self._store.to_arrays()
        content = io.BytesIO()
        np.savez(
            content,
            plan=np.array([self.std, self.rate, self.low, self.high]),
            actions=np.array(self.actions or 0),
            sites=sites,
            values=self._values[rows],
        )
        files.write(file, content.getvalue(), secret=True)

    @classmethod
    def load(cls, file: str | Path, source: Source) -> "NoisePath":
        """The path saved in `file`: old points keep their values, new ones come from `source`.

        Let the path that was saved be gone. Two that go on from one file have the same values at
        the old points and different ones at new points: two paths, of which only one is paid for,
        and whoever sees one function under both sees it with less noise than was promised.
        """
        try:
            with np.load(io.BytesIO(files.read_bytes(file)), allow_pickle=False) as saved:
                std, rate, low, high = saved["plan"].tolist()
                actions, sites, values = int(saved["actions"]), saved["sites"], saved["values"]
            path = cls(std, rate, low, high, source, actions=actions or None)
            intact = (
                sites.dtype == values.dtype == np.float64
                and sites.ndim == 1
                and values.shape == (len(sites), actions or 1)
                and np.all(np.diff(sites) > 0.0)
                and np.array_equal(path.to_domain(sites), sites)
                and np.all(np.isfinite(values))
            )
        except FileNotFoundError:
            raise InputError(f"There is no file {str(file)!r}.") from None
        except (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile, OverflowError):
            intact = False
        if not intact:
            raise InputError(f"{str(file)!r} does not hold a path of noise.")
        path._fill(sites, values)
        return path

    # --- drawing ----------------------------------------------------------------------------------

    def _fill(self, sites: Array, values: Array) -> None:
        """Let the path be drawn at `sites` (sorted), with `values`."""
        self._count = len(sites)
        self._store = _SortedSites(sites, np.arange(len(sites)))
        # Rows in order of arrival, at std 1, with room for more. All are finite numbers at all
        # times: a neighbour that does not exist has row -1 and weight zero.
        self._values = np.zeros((max(8, len(sites)), self.actions or 1))
        self._values[: len(sites)] = values
        self._flat = _flat_view(self._values)

    def _reserve(self, more: int) -> None:
        """Make room for so many more rows, by doubling."""
        if self._count + more > len(self._values):
            size = max(self._count + more, 2 * len(self._values))
            grown = np.zeros((size, self._values.shape[1]))
            grown[: self._count] = self._values[: self._count]
            self._values, self._flat = grown, _flat_view(grown)

    def _row(self, x: float) -> int:
        """The row of one point, drawn if it is new."""
        store = self._store
        block, place = store.find(x)
        row = store.row(x, block, place)
        if row is not None:
            return row
        self._reserve(1)
        row = self._count
        left, a, right, b = store.neighbours(x, block, place)
        from_left, from_right, spread = bridge(self.rate * left, self.rate * right, math)
        noise = self.source.normal(1.0, () if self.actions is None else (self.actions,))
        if self.actions is None:
            # The same sum in Python's own numbers, which is several times faster.
            flat = self._flat
            flat[row] = from_left * flat[a] + from_right * flat[b] + spread * float(noise)
        else:
            values = self._values
            values[row] = from_left * values[a] + from_right * values[b] + spread * noise
        self._count = row + 1
        store.insert(x, row, block, place)
        return row

    def _rows(self, points: Array) -> Integers:
        """The rows of many points, drawn where they are new."""
        asked, back = np.unique(points, return_inverse=True)
        if len(asked) * _OLD_PER_NEW < self._count:
            return np.array([self._row(x) for x in asked.tolist()], dtype=np.int64)[back]
        sites, rows = self._store.to_arrays()
        place = np.searchsorted(sites, asked)
        known = np.zeros(len(asked), dtype=np.bool_)
        inner = place < len(sites)
        known[inner] = sites[place[inner]] == asked[inner]
        new = np.flatnonzero(~known)
        if len(new):
            merged = np.insert(sites, place[new], asked[new])
            at = place[new] + np.arange(len(new))
            values = np.zeros((len(merged), self._values.shape[1]))
            drawn = np.ones(len(merged), dtype=np.bool_)
            drawn[at] = False
            values[drawn] = self._values[rows]
            self._draw(merged, values, np.flatnonzero(drawn))
            rows = np.insert(rows, place[new], self._count + np.arange(len(new)))
            self._reserve(len(new))
            self._values[self._count : self._count + len(new)] = values[at]
            self._count += len(new)
            self._store = _SortedSites(merged, rows)
            place += np.cumsum(~known) - ~known
        return rows[place][back]

    def _draw(self, sites: Array, values: Array, drawn: Integers) -> None:
        """Draw `values` at all `sites` (sorted), given those at the places `drawn`.

        First the two ends, then the middle of every run of new points, the middles of the halves,
        and so on: each given its nearest neighbours among those before it, all of a round at once.
        """
        last = len(sites) - 1
        components = values.shape[1]
        if not len(drawn):
            values[0] = self.source.normal(1.0, (components,))
            drawn = np.array([0])
        for end, nearest in ((0, drawn[0]), (last, drawn[-1])):
            if end != nearest:
                gap = self.rate * abs(sites[end] - sites[nearest])
                weight, _, spread = bridge(gap, math.inf, math)
                noise = self.source.normal(1.0, (components,))
                values[end] = weight * values[nearest] + spread * noise
                drawn = np.union1d(drawn, [end])
        left, right = drawn[:-1], drawn[1:]
        while True:
            runs = right - left > 1
            left, right = left[runs], right[runs]
            if not len(left):
                return
            middle = (left + right) // 2
            x = sites[middle]
            u, v = self.rate * (x - sites[left]), self.rate * (sites[right] - x)
            from_left, from_right, spread = (w[:, None] for w in bridge(u, v, np))
            noise = self.source.normal(1.0, (len(middle), components))
            values[middle] = from_left * values[left] + from_right * values[right] + spread * noise
            # In order of place, so that the next round goes through memory and does not jump.
            left = np.column_stack([left, middle]).ravel()
            right = np.column_stack([middle, right]).ravel()


class Noise(Protocol):
    """What a function is noised by: `NoisePath`, or a field of `functional_fields`."""

    def to_domain(self, points: ArrayLike) -> Array:
        """The points as they are understood, whatever was given."""

    def __call__(self, points: ArrayLike) -> Array:
        """The noise at the points."""


@dataclass(frozen=True)
class NoisedFunction:
    """`function` + `noise`: safe to call, as often as you like. Its two parts are secret.

    `function` is called with an array of points in the domain and gives an array of the noise's
    shape. It must not change: a change under the same noise is released in the clear.
    """

    function: Callable[[Array], ArrayLike]
    noise: Noise

    def __call__(self, points: ArrayLike) -> Array:
        """The noised function at `points`."""
        inside = self.noise.to_domain(points)
        noise = self.noise(inside)
        exact = as_float64("What the function gives", self.function(inside))
        if exact.shape != noise.shape:
            raise InputError(
                f"For points of shape {inside.shape} the function must give an array of shape "
                f"{noise.shape}, not {exact.shape}."
            )
        return np.where(np.isfinite(exact), exact, 0.0) + noise


class FunctionRelease(ABC):
    """A Gaussian process of this `std` on a function; each unit contributes a norm of `bound`."""

    std: float
    bound: float

    @property
    def event(self) -> Event:
        """What the release of one function does, however often the function is asked."""
        return Gaussian(self.std, self.bound)

    def release(
        self,
        function: Callable[[Array], ArrayLike],
        source: Source,
        *,
        actions: int | None = None,
    ) -> tuple[NoisedFunction, Event]:
        """`function`, of `actions` components if given, with noise from `source`; what was done."""
        return NoisedFunction(function, self._path(source, actions)), self.event

    @abstractmethod
    def _path(self, source: Source, actions: int | None) -> Noise:
        """The process, to be drawn from `source`."""


@dataclass(frozen=True)
class FunctionalMechanism(FunctionRelease):
    """Adds a Gaussian process, covariance std^2 exp(-rate |x - y|), to a function on [low, high].

    `bound` is the largest norm of what one unit contributes (`rkhs_bound`, `rkhs_norm`).
    """

    std: float
    rate: float
    low: float
    high: float
    bound: float

    def __post_init__(self) -> None:
        _check_interval(self.rate, self.low, self.high)
        checks.set_checked(self, rate=checks.positive, low=checks.number, high=checks.number)
        checks.set_checked(self, std=checks.positive, bound=checks.positive)

    @classmethod
    def from_budget(
        cls,
        rate: float,
        low: float,
        high: float,
        bound: float,
        budget: Budget,
        relation: Relation = Relation.REPLACE_ONE,
        *,
        times: int = 1,
    ) -> "FunctionalMechanism":
        """The least noise with which `times` released functions stay within `budget`."""
        plan = GaussianMechanism.from_budget(bound, budget, relation, times=times)
        return cls(plan.std, rate, low, high, plan.bound)

    def _path(self, source: Source, actions: int | None) -> NoisePath:
        return NoisePath(self.std, self.rate, self.low, self.high, source, actions=actions)


# --- norms ----------------------------------------------------------------------------------------


def rkhs_norm(knots: ArrayLike, values: ArrayLike, rate: float) -> float:
    """The norm of the function that is linear between `knots` and has `values` there.

    The interval is from the first knot to the last; `values` may have a second axis of components.
    On each piece int f'^2 and int f^2 are elementary, so that this is exact but for rounding.
    """
    rate = checks.positive("rate", rate)
    x, f = as_float64("knots", knots), as_float64("values", values)
    if x.ndim != 1 or len(x) < 2 or f.ndim not in (1, 2) or len(f) != len(x):
        raise InputError("must be two numbers or more, and values a row for each.", field="knots")
    gaps = np.diff(x)
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(f)) and np.all(gaps > 0.0)):
        raise InputError("must increase, and knots and values be finite.", field="knots")
    # Scaled to values of at most 1, so that their squares neither overflow nor vanish.
    size = float(np.max(np.abs(f), initial=0.0)) or 1.0
    f = f.reshape(len(x), -1) / size
    before, after = f[:-1], f[1:]
    with np.errstate(over="ignore"):
        ends = np.sum(f[0] ** 2 + f[-1] ** 2) / 2.0
        slopes = np.sum((after - before) ** 2 / gaps[:, None])
        squares = np.sum((before**2 + before * after + after**2) * gaps[:, None]) / 3.0
        square = float(ends + slopes / (2.0 * rate) + squares * rate / 2.0)
    return _check_finite("The norm", size * math.sqrt(square))


def rkhs_bound(sup: float, lipschitz: float, rate: float, length: float) -> float:
    """The largest norm of f on an interval of this length with |f| <= sup and |f'| <= lipschitz.

    sqrt(sup^2 (1 + rate length / 2) + lipschitz^2 length / (2 rate)), from the two integrals. No
    smaller number will do: a fine zigzag just below `sup` comes as near to it as one likes.
    """
    sup, slope = checks.non_negative("sup", sup), checks.non_negative("lipschitz", lipschitz)
    rate, length = checks.positive("rate", rate), checks.positive("length", length)
    # Roots before products: no square overflows or vanishes unless the bound itself does.
    flat = sup * math.sqrt(1.0 + rate * length / 2.0)
    steep = slope * math.sqrt(length / 2.0) / math.sqrt(rate)
    return _check_finite("The bound", math.hypot(flat, steep))


def best_rate(sup: float, lipschitz: float) -> float:
    """The rate at which `rkhs_bound` is smallest, lipschitz / sup, whatever the length.

    The noise has the same standard deviation at every point for every rate; this is the rate at
    which the least of it is needed, sqrt(sup^2 + length sup lipschitz) / mu for mu-GDP.
    """
    rate = checks.positive("lipschitz", lipschitz) / checks.positive("sup", sup)
    return checks.positive("The rate lipschitz / sup", rate)


def _check_finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise InputError("is too large for a 64-bit number.", field=name)
    return value


def check_components(actions: int) -> int:
    """A number of components that memory may hold."""
    if checks.count("actions", actions) > _MOST_ACTIONS:
        raise InputError(f"must be at most 2^24, not {actions}.", field="actions")
    return int(actions)


def _flat_view(values: Array) -> "memoryview[float]":
    """The same numbers, to be read and written one by one without the way through NumPy."""
    return cast("memoryview[float]", memoryview(cast(Any, values.ravel())))


def _check_interval(rate: float, low: float, high: float) -> tuple[float, float, float]:
    rate = checks.positive("rate", rate)
    low, high = checks.number("low", low), checks.number("high", high)
    if not -math.inf < low < high < math.inf:
        raise InputError(
            f"must be below high and both finite, not {low:g} and {high:g}.", field="low"
        )
    if not rate * (high - low) <= _LARGEST_GAP:
        raise InputError(f"rate ({rate:g}) times the length of the interval is too large.")
    if rate * (high - low) < 4.0 * 2.0**_RESOLUTION:
        raise InputError(
            f"rate ({rate:g}) times the length of the interval is below 4e-12: the noise would be "
            "the same everywhere; use a larger rate."
        )
    return rate, low, high
