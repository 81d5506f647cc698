"""Privacy losses of plain noise: the law of log P/Q of a pair that dominates an event.

Noise is normalised to unit scale and the pair's distance is given: which distance an event stands
for under a relation is decided in `worst_cases.py` and nowhere else. Every law knows how to put
itself on a grid; those with closed forms have them here too. Finite losses, sampled ones and random
allocations are in `finite_losses.py`, `sampled_losses.py` and `allocation.py`.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privrl.core.errors import UnsupportedError
from privrl.core.types import Array
from privrl.privacy.accounting import grid
from privrl.privacy.accounting.grid import GridPair, Tails

# Losses beyond this many standard deviations of a Gaussian go to the infinite loss: Phi(-14) is
# 8e-45, so that even 10^9 compositions add less than 1e-35 to delta.
TAIL_SDS = 14.0


@dataclass(frozen=True)
class Loss(ABC):
    """A privacy-loss law.

    `largest` is its essential supremum; `spread` is roughly its deviation; `lower_truncation` and
    `upper_truncation` are the ends between which all but a negligible mass lies; `symmetric` says
    that the reversed pair has the same law.
    """

    symmetric: ClassVar[bool] = True

    @property
    def largest(self) -> float:
        return math.inf

    @property
    @abstractmethod
    def spread(self) -> float: ...

    @property
    def upper_truncation(self) -> float:
        return self.largest

    @property
    def lower_truncation(self) -> float:
        return -self.upper_truncation

    @abstractmethod
    def on_grid(self, interval: float) -> GridPair:
        """The law on a grid of the given interval, never smaller than the truth."""


@dataclass(frozen=True)
class Pair(Loss):
    """A loss known by the tails of its two laws."""

    @abstractmethod
    def tails(self, losses: Array) -> Tails:
        """The probabilities of losses above these, under either law."""

    def on_grid(self, interval: float) -> GridPair:
        return grid.from_tails(
            self.tails, self.lower_truncation, self.upper_truncation, self.symmetric, interval
        )


@dataclass(frozen=True)
class Curve(Loss):
    """A symmetric loss known by its privacy profile, or by a bound on it."""

    @abstractmethod
    def profile(self, epsilons: Array) -> Array:
        """At least delta at each epsilon >= 0."""

    def on_grid(self, interval: float) -> GridPair:
        return grid.from_profile(self.profile, self.upper_truncation, interval)


@dataclass(frozen=True)
class GaussianShift(Pair):
    """N(mu, 1) against N(0, 1)."""

    mu: float

    @property
    def spread(self) -> float:
        return self.mu

    @property
    def upper_truncation(self) -> float:
        return self.mu**2 / 2 + TAIL_SDS * self.mu

    def tails(self, losses: Array) -> Tails:
        x = losses / self.mu + self.mu / 2
        return Tails(*gaussian_tails(x, self.mu), *gaussian_tails(x, 0.0))

    def profile(self, epsilons: Array) -> Array:
        """delta at each epsilon >= 0."""
        return np.exp(log_gaussian_delta(self.mu, epsilons))


@dataclass(frozen=True)
class LaplaceShift(Pair):
    """Laplace of unit scale shifted by t, against unshifted: losses in [-t, t], both ends atoms."""

    t: float

    @property
    def largest(self) -> float:
        return self.t

    @property
    def spread(self) -> float:
        return self.t

    def tails(self, losses: Array) -> Tails:
        # The loss at x is 2x - t between 0 and t; both tails are exponential in it.
        rising = 0.5 * np.exp(np.minimum((losses - self.t) / 2, 0.0))
        falling = 0.5 * np.exp(np.minimum(-(losses + self.t) / 2, 0.0))
        top, bottom = losses >= self.t, losses < -self.t
        p_below = np.where(top, 1.0, np.where(bottom, 0.0, rising))
        q_above = np.where(top, 0.0, np.where(bottom, 1.0, falling))
        return Tails(1.0 - p_below, p_below, q_above, 1.0 - q_above)

    def profile(self, epsilons: Array) -> Array:
        """delta at each epsilon >= 0."""
        return -np.expm1(np.minimum((epsilons - self.t) / 2, 0.0))


@dataclass(frozen=True)
class Concentrated(Curve):
    """Any law with Renyi divergence at most rho a at every order a, both ways (rho-zCDP)."""

    rho: float

    @property
    def spread(self) -> float:
        return math.sqrt(2.0 * self.rho)

    @property
    def upper_truncation(self) -> float:
        return self.rho + TAIL_SDS * math.sqrt(2.0 * self.rho)

    def profile(self, epsilons: Array) -> Array:
        if epsilons[-1] > 600.0:
            raise UnsupportedError(
                "Discrete Gaussian noise this small in several dimensions cannot be combined with "
                "other events: its losses are beyond the range of doubles."
            )
        deltas = concentrated_delta(self.rho, epsilons)
        # The true curve is convex in e^epsilon; so it lies below the convex hull of any bound.
        return lower_hull(np.exp(epsilons), deltas)


def gaussian_tails(x: Array, mean: float) -> tuple[Array, Array]:
    """What of N(mean, 1) is above and below x."""
    from scipy.special import ndtr

    return ndtr(mean - x), ndtr(x - mean)


# --- closed forms ---------------------------------------------------------------------------------


def log_surplus(gain: Array, cost: Array, doubt: Array) -> Array:
    """log(e^gain - e^cost), rounded up: both may be off by `doubt` times 2^-50, relatively."""
    doubt = doubt * 2.0**-50
    with np.errstate(divide="ignore"):
        short = np.log(-np.expm1(np.minimum(cost - gain - 2.0 * doubt, 0.0)))
    return np.asarray(np.minimum(gain + doubt + short, 0.0))


_FAR = 1e100


def log_gaussian_delta(mu: float, epsilons: Array) -> Array:
    """log of Phi(-u) - e^eps Phi(-v) with u, v = eps/mu -+ mu/2, rounded up.

    No large numbers meet, as e^eps Phi(-v) is e^(-u^2/2) erfcx(v / sqrt 2) / 2. u is off by at most
    2^-52 v, and eight times that if epsilon is (as it may be before sampling); logarithms of tails
    have slopes of at most |u| + 1 and v + 1. Beyond `_FAR`, where squares may overflow, it is
    log Phi(-_FAR), which is above log Phi(-u), and below -`_FAR` it is 0.
    """
    from scipy.special import erfcx, log_ndtr

    with np.errstate(over="ignore"):
        ratios = epsilons / mu
    far, near = ratios - mu / 2 > _FAR, ratios - mu / 2 < -_FAR
    inside = ~(far | near)
    u, v = np.where(inside, ratios - mu / 2, 0.0), np.where(inside, ratios + mu / 2, 0.0)
    costs = np.log(erfcx(v / math.sqrt(2.0)) / 2.0) - u**2 / 2
    within = log_surplus(log_ndtr(-u), costs, 8.0 + 3.0 * v * (1.0 + np.abs(u)))
    return np.where(far, log_ndtr(-_FAR), np.where(near, 0.0, within))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta at `epsilon` of N(mu, 1) against N(0, 1), rounded up."""
    return float(np.exp(log_gaussian_delta(mu, np.array([epsilon]))[0]))


def concentrated_delta(rho: float, epsilons: Array) -> Array:
    """min over orders a of e^((a-1)(rho a - eps)) (1 - 1/a)^a / (a - 1), at most 1 (CKS 2020).

    Every order gives a bound, so searching a fixed set around the best exponent is safe.
    """

    def exponent(above: Array) -> Array:  # above is a - 1
        order = 1.0 + above
        return above * (rho * order - epsilons) + order * np.log(above / order) - np.log(above)

    best = np.maximum((np.abs(epsilons - rho) + math.sqrt(rho)) / (2.0 * rho), 1e-9)
    least = exponent(best)
    for factors in (np.geomspace(0.05, 20.0, 61), np.geomspace(0.9, 1.11, 43)):
        centre = best
        for factor in factors:
            tried = exponent(centre * factor)
            best, least = np.where(tried < least, centre * factor, best), np.minimum(tried, least)
    return np.exp(np.minimum(least, 0.0))


def lower_hull(x: Array, y: Array) -> Array:
    """The values at x of the largest convex function below the points (x, y); x increasing."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return np.interp(x, x[hull], y[hull])
