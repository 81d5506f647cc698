"""Pairs of laws that dominate plain noise: log moments for the ceiling, masses for the floor."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, log_ndtr

from privrl.core.types import Floats

FAR = 40.0  # deviations to which a Gaussian is resolved; 1e-349 of its mass is beyond


class Limits(NamedTuple):
    """What is known of a pair's loss L beside its law."""

    leak: float  # P(L = infinity): not in the P of `cells`; `log_moment` is given that it is not so
    pure: float  # a proven bound on finite losses
    most: float  # the largest finite loss that really occurs
    reach: float  # the loss, either way, to which there is anything to resolve


class Pair(ABC):
    """Two laws P and Q with the loss L = log dP/dQ; the pair (Q, P) is its mirror image."""

    @property
    @abstractmethod
    def limits(self) -> Limits: ...

    @abstractmethod
    def log_moment(self, orders: Floats) -> Floats:
        """At least K(a) = log E_P[e^{(a-1) L}], for the pair and for its mirror image."""

    @abstractmethod
    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        """The logs of P and Q of {cuts[i] <= L < cuts[i+1]}, which must be one event for both."""


def log_diff_exp(tails: Floats) -> Floats:
    """log(e^t[i] - e^t[i+1]) for falling log tails t; keeps its digits near 0 and near 1."""
    with np.errstate(invalid="ignore", divide="ignore"):
        gaps = tails[:-1] + np.log(-np.expm1(tails[1:] - tails[:-1]))
    return np.nan_to_num(gaps, nan=-np.inf, neginf=-np.inf)


def logsumexp(logs: Floats) -> Floats:
    """log sum e^logs along the last axis, -inf for nothing (without the overhead of SciPy's)."""
    most = np.maximum(logs.max(axis=-1, keepdims=True), -1e300)
    with np.errstate(divide="ignore"):
        return np.asarray(most[..., 0] + np.log(np.exp(logs - most).sum(axis=-1)))


def log_expm1(x: Floats) -> Floats:
    """log(e^x - 1)."""
    with np.errstate(divide="ignore"):
        return x + np.log(-np.expm1(-x))


@dataclass(frozen=True)
class NormalPair(Pair):
    """N(mu, 1) and N(0, 1)."""

    mu: float

    @property
    def limits(self) -> Limits:
        return Limits(0.0, math.inf, math.inf, self.mu**2 / 2 + FAR * self.mu)

    def log_moment(self, orders: Floats) -> Floats:
        return orders * (orders - 1) * self.mu**2 / 2

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        x = cuts / self.mu
        return log_diff_exp(log_ndtr(self.mu / 2 - x)), log_diff_exp(log_ndtr(-self.mu / 2 - x))


@dataclass(frozen=True)
class DiscreteNormalPair(Pair):
    """Discrete Gaussian noise moved by the integer `shift`, and not moved.

    The ceiling pays for a sensitivity of `charge`, at least `shift` and in any dimension.
    """

    shift: int
    charge: float
    std: float

    @property
    def limits(self) -> Limits:
        mu = self.shift / self.std
        return Limits(0.0, math.inf, math.inf if mu else 0.0, mu**2 / 2 + FAR * mu)

    def log_moment(self, orders: Floats) -> Floats:
        # Canonne, Kamath, Steinke 2020, Prop. 5, coordinate by coordinate.
        return orders * (orders - 1) * (self.charge / self.std) ** 2 / 2

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        least = np.ceil(cuts * self.std**2 / self.shift + self.shift / 2)
        return log_diff_exp(self._tail(least - self.shift)), log_diff_exp(self._tail(least))

    def _tail(self, k: Floats) -> Floats:
        """log P(noise >= k), by symmetry from k >= 1."""
        upper = self._upper_tail(np.maximum(k, 1 - k))
        return np.where(k > 0, upper, np.log1p(-np.exp(upper)))

    def _upper_tail(self, k: Floats) -> Floats:
        if self.std >= 500:
            # Euler-Maclaurin to the fifth derivative. As z / std is at most 0.3 where it matters
            # (see `_pair`), the next term is below 1e-9; the normaliser is exact.
            z, e = np.minimum(k / self.std, 1e30), 1 / self.std
            mills = math.sqrt(math.pi / 2) * erfcx(z / math.sqrt(2)) / e
            odd = (3 * z - z**3) * e**3 / 720 + (15 * z - 10 * z**3 + z**5) * e**5 / 30240
            terms = mills + np.where(z * e < 0.5, 0.5 + z * e / 12 + odd, 0.0)
            total = math.log(self.std * math.sqrt(2 * math.pi))
            upper: Floats = np.log(terms) - z**2 / 2 - total
            return upper
        sums = _discrete_tails(math.ceil(self.shift + 2 * FAR * self.std) + 2, self.std)
        return sums[np.minimum(k, len(sums) - 1).astype(np.int64)]


@lru_cache(maxsize=4)
def _discrete_tails(size: int, std: float) -> Floats:
    """log P(noise >= k) for k from 0; the last one stands for all beyond."""
    sums = np.logaddexp.accumulate(-((np.arange(size) / std)[::-1] ** 2) / 2)[::-1]
    logs: Floats = np.append(sums, -np.inf) - np.logaddexp(sums[0], sums[1])
    return logs


def _bounded_cells(cuts: Floats, most: float, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Cells from the log tails p and q of a loss between -most and most."""
    below, above = cuts <= -most, cuts > most
    one, other = (np.where(below, 0.0, np.where(above, -np.inf, tails)) for tails in (p, q))
    return log_diff_exp(one), log_diff_exp(other)


@dataclass(frozen=True)
class LaplacePair(Pair):
    """Laplace noise of scale 1, moved by `shift` and not moved."""

    shift: float

    @property
    def limits(self) -> Limits:
        return Limits(0.0, self.shift, self.shift, self.shift)

    def log_moment(self, orders: Floats) -> Floats:
        # Mironov 2017, Prop. 6; the first form keeps its digits when the moment is small.
        a, up, down = orders, (orders - 1) * self.shift, -orders * self.shift
        small = np.log1p((a * np.expm1(np.minimum(up, 1)) + (a - 1) * np.expm1(down)) / (2 * a - 1))
        large = np.logaddexp(np.log(a) + up, np.log(a - 1) + down) - np.log(2 * a - 1)
        return np.where(up < 1, small, large)

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        x = np.clip((cuts + self.shift) / 2, 0, self.shift)
        p, q = np.log1p(-np.exp(x - self.shift) / 2), -math.log(2) - x
        return _bounded_cells(cuts, self.shift, p, q)


@dataclass(frozen=True)
class DiscreteLaplacePair(Pair):
    """Discrete Laplace noise moved by the integer `shift`, and not; the ceiling pays `charge`."""

    shift: int
    charge: int
    scale: float

    @property
    def limits(self) -> Limits:
        most = self.shift / self.scale
        return Limits(0.0, self.charge / self.scale, most, most)

    @property
    def _log_upper_half(self) -> float:
        """log P(noise >= 0)."""
        return -math.log1p(math.exp(-1 / self.scale))

    def log_moment(self, orders: Floats) -> Floats:
        # The sum of Q e^{a L}: both ends, where L is constant, and the geometric series between.
        pure, y = self.charge / self.scale, (2 * orders - 1) / self.scale
        point = self._log_upper_half + math.log(-math.expm1(-1 / self.scale))
        between = point - orders * pure + y + log_expm1((self.charge - 1) * y) - log_expm1(y)
        ends = self._log_upper_half + np.logaddexp((orders - 1) * pure, -orders * pure)
        return np.maximum(np.logaddexp(ends, between), 0.0)

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        s, b, most = self.shift, self.scale, self.limits.most
        least = np.ceil((np.clip(cuts, -most, most) * b + s) / 2)
        p, q = (
            np.log1p(-np.exp((least - s - 1) / b + self._log_upper_half)),
            self._log_upper_half - least / b,
        )
        return _bounded_cells(cuts, most, p, q)


@dataclass(frozen=True)
class ResponsePair(Pair):
    """Randomised response that tells all with probability `told` (Kairouz, Oh, Viswanath 2015)."""

    epsilon: float
    categories: int = 2
    told: float = 0.0

    @property
    def limits(self) -> Limits:
        return Limits(self.told, self.epsilon, self.epsilon, self.epsilon)

    @property
    def _log_least(self) -> float:
        return -float(np.logaddexp(self.epsilon, math.log(self.categories - 1)))

    def log_moment(self, orders: Floats) -> Floats:
        # p (e^{a eps} + e^{(1-a) eps} + k - 2) with p = 1 / (e^eps + k - 1), the least probability,
        # is 1 + p (e^{(a-1) eps} - 1) (e^eps - e^{-(a-1) eps}).
        up = (orders - 1) * self.epsilon
        excess = log_expm1(up) + log_expm1(up + self.epsilon) - up
        return np.logaddexp(0, self._log_least + excess)

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        result = np.full((2, len(cuts) - 1), -np.inf)
        least, eps = math.log1p(-self.told) + self._log_least, self.epsilon
        atoms = [(eps, least + eps, least), (-eps, least, least + eps)]
        if self.categories > 2:
            other = least + math.log(self.categories - 2)
            atoms.append((0.0, other, other))
        if self.told > 0:
            atoms.append((-math.inf, -math.inf, math.log(self.told)))
        for loss, p, q in atoms:
            i = int(np.searchsorted(cuts, loss, side="right")) - 1
            if 0 <= i < len(cuts) - 1:
                result[:, i] = np.logaddexp(result[:, i], (p, q))
        return result[0], result[1]
