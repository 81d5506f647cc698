"""Privacy-loss laws on a grid, never smaller than the truth, and their composition.

Three ways in use one discretisation, "connect the dots" (Doroshenko et al. 2022): mass between two
grid points is split between them so that it weighs the same as before under both P and Q. Then
delta is exact at the grid's epsilons and too large between them.

Laws are composed by FFT, *tilted*: every mass is multiplied by e^(tilt loss), scaled to sum to
one, and the factor is taken off afterwards. The tilt moves the middle of the composed law to the
losses at which the question looks, so that round-off, which is proportional to the largest masses,
is small against the answer. (A plain FFT drowns everything below about 1e-16 times the number of
compositions, and epsilon then falls below the truth or rises above it: with 10^7 compositions from
delta 1e-9 down. dp-accounting 0.6 composes so.) What round-off remains is bounded and added, as is
the mass beyond the FFT's window.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privrl.core.types import Array

# A window of the FFT leaves out at most e^-36 of the tilted mass at either end, and has at most
# this many points; laws with fewer points in all are composed whole.
_TAIL_EXPONENT = 36.0
_MOST_POINTS = 2**22
# Rounding errors per operation, counted generously: masses, FFT butterflies, powers.
_ROUNDING = 16.0 * np.finfo(np.float64).eps
_LARGEST_TILT = 1e5
# Changes of tilt, in standard deviations of the tilted law, that Chernoff's bounds are tried with.
_STEPS = np.geomspace(0.25, 40.0, 14)


class Tails(NamedTuple):
    """P(L > l), P(L <= l), Q(L > l), Q(L <= l) of a privacy loss L = log P/Q at many l.

    Both tails are kept because their small ends do not survive a subtraction from one.
    """

    p_above: Array
    p_below: Array
    q_above: Array
    q_below: Array


@dataclass(frozen=True, eq=False)
class GridLaw:
    """Masses `probs` at the losses (first, first + 1, ...) * interval; `infinite` is beyond all."""

    interval: float
    first: int
    probs: Array
    infinite: float

    def __post_init__(self) -> None:
        # Leading and trailing zeros would only widen the composition.
        (seen,) = np.nonzero(self.probs)
        low, high = (int(seen[0]), int(seen[-1]) + 1) if seen.size else (0, 1)
        object.__setattr__(self, "probs", self.probs[low:high])
        object.__setattr__(self, "first", self.first + low)

    @property
    def losses(self) -> Array:
        """The losses at which there is mass."""
        return np.arange(self.first, self.first + self.probs.size) * self.interval


@dataclass(frozen=True, eq=False)
class GridPair:
    """The law of the loss, and that of the reversed pair if it is another."""

    law: GridLaw
    reverse: GridLaw | None = None


def from_atoms(losses: Array, masses: Array, leak: float, interval: float) -> GridPair:
    """A finite law, the same for the reversed pair; `leak` is the mass of the infinite loss."""
    below = np.floor(losses / interval)
    up = np.clip(np.expm1(below * interval - losses) / math.expm1(-interval), 0.0, 1.0)
    first = int(below.min())
    index = below.astype(np.int64) - first
    probs = np.zeros(int(index.max()) + 2)
    np.add.at(probs, index, masses * (1.0 - up))
    np.add.at(probs, index + 1, masses * up)
    return GridPair(GridLaw(interval, first, probs, leak))


def from_tails(
    tails_at: Callable[[Array], Tails], near: float, far: float, symmetric: bool, interval: float
) -> GridPair:
    """A law known by its tails between `near` and `far`.

    What lies beyond the far end counts as an infinite loss, what lies before the near end as a loss
    at the first grid point that is not before it. The reversed pair has the same law under Q, with
    the losses negated.
    """
    # One point strictly before the near end, so that an atom there is split like all other mass.
    first, last = math.ceil(near / interval) - 1, math.ceil(far / interval)
    losses = np.arange(first, last + 1) * interval
    tails = tails_at(losses)

    def between(above: Array, below: Array) -> Array:
        return np.where(below[1:] < above[:-1], np.diff(below), -np.diff(above))

    p = np.maximum(between(tails.p_above, tails.p_below), 0.0)
    q = np.maximum(between(tails.q_above, tails.q_below), 0.0)
    with np.errstate(divide="ignore"):
        # e^loss q in logarithms; where q is too small for a double, all of p goes up.
        q_at_p = np.exp(np.minimum(losses[:-1] + np.log(q), 700.0))
    up = np.clip((p - q_at_p) / -math.expm1(-interval), 0.0, p)
    probs = np.zeros(losses.size)
    probs[:-1] += p - up
    probs[1:] += up
    reverse = None
    if not symmetric:
        reversed_probs = (probs * np.exp(-losses))[::-1].copy()
        reversed_probs[0] += tails.q_above[-1]
        reverse = GridLaw(interval, -last, reversed_probs, float(tails.q_below[0]))
    probs[min(1, probs.size - 1)] += tails.p_below[0]
    return GridPair(GridLaw(interval, first, probs, float(tails.p_above[-1])), reverse)


def from_profile(profile: Callable[[Array], Array], far: float, interval: float) -> GridPair:
    """The law of the symmetric pair whose delta at the grid's epsilons >= 0 is `profile`.

    Below 0 by symmetry, p(-l) = e^-l p(l), which keeps tiny masses exact; what is left has loss 0;
    the profile's value at the far end is the mass of the infinite loss.
    """
    size = max(1, math.ceil(far / interval))
    losses = np.arange(size + 1) * interval
    deltas = np.minimum.accumulate(profile(losses))
    falls = -np.diff(deltas)
    masses = falls / -math.expm1(-interval)
    masses[:-1] -= falls[1:] / math.expm1(interval)
    masses = np.maximum(masses, 0.0)
    mirrored = masses * np.exp(-losses[1:])
    rest = max(0.0, 1.0 - float(masses.sum()) - float(mirrored.sum()) - float(deltas[-1]))
    probs = np.concatenate((mirrored[::-1], [rest], masses))
    return GridPair(GridLaw(interval, -size, probs, float(deltas[-1])))


class _ComposedLaw(NamedTuple):
    """A composed law around the tilted mean: losses, and delta at each of them as an epsilon.

    Between two losses delta is linear in e^epsilon: `upper` minus e^(epsilon - centre) `lower`,
    both in units of e^`log_unit`, with the mass of the infinite loss and all error bounds in
    `extra`.
    """

    losses: Array
    upper: Array
    lower: Array
    extra: Array
    log_unit: float
    centre: float


class Composition:
    """The sum of independent grid laws, each some number of times; answers are upper bounds."""

    def __init__(self, parts: Sequence[tuple[GridLaw, int]]) -> None:
        self._parts = [(law, n, law.losses, _log(law.probs)) for law, n in parts if law.probs.any()]
        self._times = sum(n for _, n in parts)
        self._interval = parts[0][0].interval
        kept = sum(n * math.log1p(-min(law.infinite, 1.0 - 1e-16)) for law, n in parts)
        self._leak = -math.expm1(kept)
        # First and last grid index of the sum.
        self._ends = (
            sum(n * law.first for law, n, *_ in self._parts),
            sum(n * (law.first + law.probs.size - 1) for law, n, *_ in self._parts),
        )
        self._cumulant_at = lru_cache(maxsize=None)(self._cumulant)
        self._tilted_moments_at = lru_cache(maxsize=4)(self._tilted_moments)
        self._composed_at = lru_cache(maxsize=4)(self._compose)

    def _cumulant(self, tilt: float) -> float:
        """log E e^(tilt L) of the sum."""
        return sum(
            (n * _tilted(log_masses, losses, tilt)[1] for _, n, losses, log_masses in self._parts),
            0.0,
        )

    def _tilted_moments(self, tilt: float) -> tuple[float, float]:
        """Mean and deviation of the sum under the tilted law; the latter is no less than a cell."""
        mean = variance = 0.0
        for _, n, losses, log_masses in self._parts:
            weights, _ = _tilted(log_masses, losses, tilt)
            total = float(weights.sum())
            # Not as products of vectors, whose threads wait for each other on a busy machine.
            middle = float(np.sum(weights * losses)) / total
            mean += n * middle
            variance += n * float(np.sum(weights * (losses - middle) ** 2)) / total
        return mean, max(math.sqrt(variance), self._interval)

    def _best_tilt(self, exponent: Callable[[float], float]) -> float:
        """The tilt, between 0 and the largest, at which a convex-like exponent is least."""
        from scipy.optimize import minimize_scalar

        found = minimize_scalar(
            lambda x: exponent(math.exp(x)),
            bounds=(math.log(1e-6), math.log(_LARGEST_TILT)),
            method="bounded",
            options={"xatol": 1e-2},
        )
        return math.exp(float(found.x))

    def delta(self, epsilon: float) -> float:
        """At least the true delta at `epsilon`."""
        if not self._parts:
            return self._leak
        tilt = self._best_tilt(lambda t: self._cumulant_at(t) - t * epsilon)
        chernoff = self._cumulant_at(tilt) - tilt * epsilon
        law = self._composed_at(tilt)
        if not law.losses[0] <= epsilon <= law.losses[-1]:
            return min(1.0, self._leak + math.exp(min(chernoff, 0.0)))
        at = int(np.searchsorted(law.losses, epsilon, side="right"))
        return min(1.0, self._delta_at(law, at, epsilon))

    @staticmethod
    def _delta_at(law: _ComposedLaw, at: int, epsilon: float) -> float:
        """delta at an epsilon between the losses `at - 1` and `at`."""
        gain = law.upper[at] - math.exp(epsilon - law.centre) * law.lower[at]
        return float(math.exp(law.log_unit) * max(gain, 0.0) + law.extra[max(at - 1, 0)])

    def epsilon(self, delta: float) -> float:
        """At least the true epsilon at `delta`; infinite if the laws leak more than that."""
        if delta <= self._leak:
            return math.inf
        if not self._parts:
            return 0.0
        goal = math.log(delta - self._leak)
        tilt = self._best_tilt(lambda t: (self._cumulant_at(t) - goal) / t)
        found = max(0.0, (self._cumulant_at(tilt) - goal) / tilt)  # Chernoff's bound
        # Every tilt gives an upper bound, the best one that of the answer itself: close in on it.
        for _ in range(12):
            at = found
            tilt = self._best_tilt(lambda t: self._cumulant_at(t) - t * at)  # noqa: B023
            better = self._solve_epsilon(self._composed_at(tilt), delta)
            if better > found * (1.0 - 1e-7):
                return min(found, better)
            found = better
        return found

    def _solve_epsilon(self, law: _ComposedLaw, delta: float) -> float:
        """The smallest epsilon that a composed law shows to be enough; infinite if none."""
        low, high = int(np.searchsorted(law.losses, 0.0)), law.losses.size - 1
        if low > high or self._delta_at(law, high, float(law.losses[high])) > delta:
            return math.inf
        while low < high:  # delta falls with epsilon
            middle = (low + high) // 2
            enough = self._delta_at(law, middle + 1, float(law.losses[middle])) <= delta
            low, high = (low, middle) if enough else (middle + 1, high)
        if low == 0:
            return max(0.0, float(law.losses[0]))
        # Between the last too small epsilon and this one, solve for e^epsilon.
        free = delta - float(law.extra[low - 1])
        gain = float(law.upper[low]) - free * math.exp(-law.log_unit)
        if free <= 0.0 or gain <= 0.0 or law.lower[low] <= 0.0:
            return max(0.0, float(law.losses[low]))
        exact = law.centre + math.log(gain / float(law.lower[low]))
        return max(0.0, min(exact, float(law.losses[low])))

    def _window(self, tilt: float) -> tuple[int, int]:
        """First and last grid index that the composed law is computed for."""
        first, last = self._ends
        if last - first < 2**16:
            return first, last
        value, (mean, spread) = self._cumulant_at(tilt), self._tilted_moments_at(tilt)
        highest, lowest = math.inf, -math.inf
        for steps in _STEPS / spread:
            up = self._cumulant_at(tilt + steps) - value
            down = self._cumulant_at(tilt - steps) - value
            highest = min(highest, (up + _TAIL_EXPONENT) / steps)
            lowest = max(lowest, -(down + _TAIL_EXPONENT) / steps)
        low = max(first, math.floor(lowest / self._interval) - 1)
        high = min(last, math.ceil(highest / self._interval) + 1)
        middle = round(mean / self._interval)
        return max(low, middle - _MOST_POINTS // 2), min(high, middle + _MOST_POINTS // 2)

    def _tail_mass(self, tilt: float, high: int) -> float:
        """The mass beyond the grid index `high`, by Chernoff's bound."""
        if high >= self._ends[1]:
            return 0.0
        _, spread = self._tilted_moments_at(tilt)
        tilts = [tilt, *(tilt + steps for steps in _STEPS / spread)]
        exponent = min(self._cumulant_at(t) - t * high * self._interval for t in tilts)
        return math.exp(min(exponent, 0.0))

    def _compose(self, tilt: float) -> _ComposedLaw:
        from scipy.fft import irfft, next_fast_len, rfft

        value, (mean, _) = self._cumulant_at(tilt), self._tilted_moments_at(tilt)
        low, high = self._window(tilt)
        size = int(next_fast_len(high - low + 1, real=True))
        spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
        for _, n, law_losses, log_masses in self._parts:
            _, cumulant = _tilted(log_masses, law_losses, tilt)
            tilted = np.exp(log_masses + tilt * law_losses - cumulant)
            spectrum *= rfft(np.bincount(np.arange(tilted.size) % size, tilted, size)) ** n
        masses = np.roll(irfft(spectrum, size), (self._ends[0] - low) % size)[: high - low + 1]
        losses = np.arange(low, high + 1) * self._interval
        # An error in the spectrum reaches every mass by its average over the spectrum; the powers
        # multiply relative errors by the number of compositions.
        rounds = self._times + math.log2(size)
        error = _ROUNDING * rounds * float(np.mean(np.abs(spectrum))) + _ROUNDING / size
        # Far below the tilted mean the factor to take off is no double any more: not looked at. Far
        # above it e^loss is none: what is there counts in full.
        start = int(np.searchsorted(losses, mean - 500.0 / tilt))
        stop = max(start + 1, int(np.searchsorted(losses, mean + 600.0)))
        weights = np.exp(np.maximum(-tilt * (losses[start:] - mean), -700.0))
        masses = np.maximum(masses[start:], 0.0) * (1.0 + _ROUNDING * rounds)
        in_full = float((masses[stop - start :] + error) @ weights[stop - start :])
        masses, weights, losses = (
            masses[: stop - start],
            weights[: stop - start],
            losses[start:stop],
        )
        away = losses - mean
        log_unit = min(value - tilt * mean, 600.0)
        upper = np.append(np.cumsum((masses * weights)[::-1])[::-1], 0.0)
        lower_terms = masses * weights * np.exp(np.clip(-away, -700.0, 100.0))
        lower = np.append(np.cumsum(lower_terms[::-1])[::-1], 0.0)
        beyond = np.append(np.cumsum(weights[::-1])[::-1], 0.0) * error
        unit = math.exp(log_unit)
        extra = self._leak + unit * (beyond[1:] + in_full) + self._tail_mass(tilt, high)
        return _ComposedLaw(losses, upper, lower, extra, log_unit, mean)


def _log(masses: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.log(masses)


def _tilted(log_masses: Array, losses: Array, tilt: float) -> tuple[Array, float]:
    """The masses of a law times e^(tilt loss), the largest scaled to 1; and log E e^(tilt L)."""
    exponents = tilt * losses
    exponents += log_masses
    top = float(exponents.max())
    exponents -= top
    weights = np.exp(exponents, out=exponents)
    return weights, top + math.log(float(weights.sum()))
