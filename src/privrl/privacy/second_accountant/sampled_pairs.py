"""Pairs of laws that dominate sampled events: Poisson samples and batches of fixed size."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, log_ndtr

from privrl.core.types import Floats
from privrl.privacy.second_accountant.pairs import (
    FAR,
    Limits,
    NormalPair,
    Pair,
    log_diff_exp,
    log_expm1,
    logsumexp,
)

# Orders of the ceiling. Sampled parts have formulas for integers only, and none above the last.
INTEGERS: Floats = np.unique(np.r_[2.0:101.0, np.geomspace(101, 2048, 60).round()])


@dataclass(frozen=True)
class PoissonReplacePair(Pair):
    """(1-q) N(0, 1) + q N(m, 1) and (1-q) N(0, 1) + q N(-m, 1): Poisson sampling, one replaced.

    It dominates: if a test has level x given that the unit is not drawn, its power against the one
    contribution is at most Phi(Phi^-1(x) + m) and against the other at least Phi(Phi^-1(x) - m),
    and one half line reaches both.
    """

    m: float
    rate: float

    @property
    def limits(self) -> Limits:
        x = self.m + FAR
        up, down = self._log_ratio(np.array([x, -x]))
        return Limits(0.0, math.inf, math.inf, float(up - down))

    def _log_ratio(self, x: Floats) -> Floats:
        """The log density of the first law against N(0, 1) at x, and so of the second at -x."""
        return _mixture_loss(self.rate, self.m * x - self.m**2 / 2)

    def log_moment(self, orders: Floats) -> Floats:
        # Closed bounds, used for large m: e^K is jointly convex, and its pair a mixture over the
        # draw; and as the second law is at least (1-q) N(0, 1), K is at most (a-1) log 1/(1-q) more
        # than for a unit that is removed.
        q, m = self.rate, self.m
        drawn = np.logaddexp(0, math.log(q) + log_expm1(2 * orders * (orders - 1) * m**2))
        removed = _interpolate_moments(orders, _poisson_moments(q, NormalPair(m))) - (
            orders - 1
        ) * math.log1p(-q)
        moment = np.minimum(drawn, removed)
        for i in np.flatnonzero((orders * m <= 150) & (m <= 8)):
            moment[i] = min(moment[i], self._quadrature(float(orders[i])))
        return moment

    def _quadrature(self, order: float) -> float:
        """K by the trapezoidal rule, which converges geometrically, as the integrand is analytic.

        The exponent g has -x <= g'(x) <= (2 order - 1) m - x, hence the range, and
        g'' >= -1 - (order - 1) m^2 / 4, hence the step, a quarter of the narrowest peak's width.
        """
        step = 0.25 / math.sqrt(1 + order * self.m**2 / 4)
        x = np.arange(-14.0, (2 * order - 1) * self.m + 14.0, step)
        exponent = order * self._log_ratio(x) - (order - 1) * self._log_ratio(-x) - x**2 / 2
        # 1e-13 covers the round-off of the sum.
        return float(logsumexp(exponent)) + math.log(step / math.sqrt(2 * math.pi)) + 1e-13

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        # The loss is odd and rising in x; for a loss c >= 0, e^{m x} is the root of a quadratic.
        q, m, c = self.rate, self.m, np.minimum(np.abs(cuts), 1e300)
        log_a = math.log(q) - m**2 / 2
        with np.errstate(divide="ignore"):
            log_b = math.log1p(-q) + np.log(-np.expm1(-c))
        root = np.logaddexp(2 * log_b, 2 * (math.log(2) + log_a) - c) / 2
        x = np.sign(cuts) * (c - math.log(2) - log_a + np.logaddexp(log_b, root)) / m
        out, one, other = (log_diff_exp(log_ndtr(mean - x)) for mean in (0.0, m, -m))
        out = math.log1p(-q) + out
        return np.logaddexp(out, math.log(q) + one), np.logaddexp(out, math.log(q) + other)


@dataclass(frozen=True)
class SampledPair(Pair):
    """(1 - rate) Q + rate P and Q for the pair (P, Q) of `base`; it differs from its mirror image.

    Batches are of fixed size or Poisson; the ceiling is another, the floor's pair the same.
    """

    base: Pair
    rate: float
    fixed: bool

    @property
    def limits(self) -> Limits:
        leak, *losses = self.base.limits
        pure, most, reach = (float(loss) for loss in _mixture_loss(self.rate, np.array(losses)))
        # Balle, Barthe, Gaboardi 2018, Theorems 8 and 9: what is sampled is (pure, leak)-DP.
        return Limits(self.rate * leak, pure, most, max(reach, -math.log1p(-self.rate)))

    def log_moment(self, orders: Floats) -> Floats:
        if self.fixed:
            series = _interpolate_moments(orders, self._fixed_size_moments())
            return np.minimum(series, self.base.log_moment(orders))
        moment, told, q = _poisson_moments(self.rate, self.base), self.base.limits.leak, self.rate
        if told > 0:
            # Beside the leak there is an outcome that tells of Q: of probability `told` under Q and
            # (1-q) `told` under the mixture.
            log_told, rest = math.log(told), math.log1p(-told) + moment
            ahead = np.logaddexp(log_told + INTEGERS * math.log1p(-q), rest)
            back = np.logaddexp(log_told - (INTEGERS - 1) * math.log1p(-q), rest)
            moment = np.maximum(ahead - math.log1p(-q * told), back)
        return _interpolate_moments(orders, moment)

    def _fixed_size_moments(self) -> Floats:
        """Wang, Balle, Kasiviswanathan 2019, Theorem 9, at the integers."""
        j = np.arange(2, INTEGERS[-1] + 1)
        base = self.base.log_moment(j)
        terms = base + np.minimum(math.log(2), j * log_expm1(np.array(self.base.limits.pure)))
        terms[0] = min(terms[0], math.log(4) + log_expm1(base[0]))
        return np.logaddexp(0, logsumexp(_log_choose() + j * math.log(self.rate) + terms))

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        # The cut in the loss L of the base is where log(1 - q + q e^L) = cut.
        miss, hit = math.log1p(-self.rate), math.log(self.rate)
        with np.errstate(invalid="ignore", divide="ignore"):
            inner = cuts + np.log(-np.expm1(miss - np.maximum(cuts, miss))) - hit
        p, q = self.base.cells(np.where(cuts > miss, inner, -np.inf))
        return np.logaddexp(miss + q, hit + p), q


def _mixture_loss(rate: float, loss: Floats) -> Floats:
    """log(1 - rate + rate e^loss), the loss of (1 - rate) Q + rate P against Q."""
    near = np.log1p(rate * np.expm1(np.minimum(loss, 1.0)))
    return np.where(loss < 1, near, np.logaddexp(math.log1p(-rate), math.log(rate) + loss))


@lru_cache(maxsize=1)
def _log_choose() -> Floats:
    """log C(a, j) for the integer orders a, down, and j from 2 to the largest of them, across."""
    a, j = INTEGERS[:, None], np.arange(2, INTEGERS[-1] + 1)
    logs = gammaln(a + 1) - gammaln(j + 1) - gammaln(np.maximum(a - j, 0) + 1)
    return np.where(j <= a, logs, -np.inf)


def _poisson_moments(q: float, base: Pair) -> Floats:
    """K of (1-q) Q + q P against Q at the integers: E_Q[(1 - q + q e^L)^a] as a binomial series.

    The terms j = 0 and 1, and 1 out of E_Q[e^{jL}] in each other, sum to 1. The mirror image has no
    larger K, as Mironov, Talwar, Zhang 2019 show (Theorem 5) if the base is its own mirror image.
    """
    j = np.arange(2, INTEGERS[-1] + 1)
    drawn = j * math.log(q) + np.maximum(INTEGERS[:, None] - j, 0) * math.log1p(-q)
    terms = _log_choose() + drawn + log_expm1(base.log_moment(j))
    return np.logaddexp(0, logsumexp(terms))


def _interpolate_moments(orders: Floats, at_integers: Floats) -> Floats:
    """K between the integers, by convexity and K(1) = 0; infinite beyond the last."""
    return np.interp(orders, np.r_[1, INTEGERS], np.r_[0, at_integers], right=math.inf)
