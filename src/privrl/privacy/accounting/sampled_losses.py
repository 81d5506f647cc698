"""Privacy losses of sampled events: Poisson samples and batches of fixed size."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privrl.core.types import Array
from privrl.privacy.accounting.finite_losses import Response
from privrl.privacy.accounting.grid import Tails
from privrl.privacy.accounting.losses import (
    Curve,
    GaussianShift,
    LaplaceShift,
    Loss,
    Pair,
    gaussian_tails,
    log_surplus,
)

Simple = GaussianShift | LaplaceShift | Response


@dataclass(frozen=True)
class _Amplified(Loss):
    """The loss of `base`, amplified by sampling at this rate."""

    base: Simple
    rate: float

    @property
    def largest(self) -> float:
        return amplified_epsilon(self.base.largest, self.rate)

    @property
    def upper_truncation(self) -> float:
        return amplified_epsilon(self.base.upper_truncation, self.rate)

    @property
    def spread(self) -> float:
        return _sampled_spread(self.base, self.rate)


@dataclass(frozen=True)
class PoissonAddRemove(_Amplified, Pair):
    """(1 - rate) Q + rate P against Q, and the reverse, for a dominating pair P, Q of `base`.

    Zhu, Dong, Wang 2022, Theorem 11. The loss l' = log(1 - rate + rate e^l) rises with the base's.

    One step has a closed form. For every event E and epsilon >= 0, the mixture's probability of E
    less e^epsilon Q(E) is rate (P(E) - e^inner Q(E)) with e^inner = 1 + (e^epsilon - 1) / rate, so
    delta is rate delta_base(inner). The reversed pair loses no more: with x = e^epsilon - 1 and
    a = rate - (1 - rate) x, Q(E) less e^epsilon times the mixture's is a Q(E) - rate e^epsilon P(E)
    = a (Q(E) - e^other P(E)), nothing if a <= 0. But a <= rate; and other >= inner, as
    rate^2 (1 + x) - (rate + x) a = (1 - rate) x^2 >= 0; and the base is its own mirror image.
    """

    symmetric: ClassVar[bool] = False

    @property
    def lower_truncation(self) -> float:
        return math.log1p(-self.rate)

    def tails(self, losses: Array) -> Tails:
        base = self.base.tails(unamplified_losses(losses, self.rate))
        some, rest = self.rate, 1.0 - self.rate
        p_above = some * base.p_above + rest * base.q_above
        p_below = some * base.p_below + rest * base.q_below
        return Tails(p_above, p_below, base.q_above, base.q_below)


@dataclass(frozen=True)
class PoissonReplace(Pair):
    """(1 - rate) N(0, 1) + rate N(mu, 1) against (1 - rate) N(0, 1) + rate N(-mu, 1).

    This pair dominates: fix the others' draws and any test, of level a under "not drawn". Drawn, it
    has power at most Phi(Phi^-1(a) + mu) on one side and at least Phi(Phi^-1(a) - mu) on the other,
    and one half line reaches both at once. Averaging over the others' draws only lowers it.
    So one step has a closed form: the loss rises with x, and delta(epsilon) is the surplus of the
    half line that begins where the loss is epsilon.
    """

    mu: float
    rate: float

    @property
    def upper_truncation(self) -> float:
        # Above both losses that the mixture is made of: drawn against absent, absent against drawn.
        once = GaussianShift(self.mu).upper_truncation
        return amplified_epsilon(once, self.rate) - math.log1p(-self.rate)

    @property
    def spread(self) -> float:
        return 2.0 * _sampled_spread(GaussianShift(self.mu), self.rate)

    def profile(self, epsilons: Array) -> Array:
        """delta of one step at each epsilon >= 0, rounded up."""
        from scipy.special import expit, log_ndtr

        mu, log_in, log_out = self.mu, math.log(self.rate), math.log1p(-self.rate)
        x = self._inverse_loss(epsilons)
        for _ in range(2):  # Newton's steps restore the digits that small losses lose above
            up, down = (side * mu * x - mu**2 / 2 for side in (1.0, -1.0))
            loss = _amplified_losses(up, self.rate) - _amplified_losses(down, self.rate)
            slope = mu * (expit(up + log_in - log_out) + expit(down + log_in - log_out))
            x = x - np.divide(loss - epsilons, slope, where=slope > 0.0, out=np.zeros_like(x))
        with np.errstate(divide="ignore"):
            absent = log_out + _log_expm1(epsilons) + log_ndtr(-x)
        costs = np.logaddexp(absent, log_in + epsilons + log_ndtr(-mu - x))
        # Any x is a test, so what x is off by counts in squares; the terms themselves, each of
        # few operations, are off by some units in the last place of their largest part.
        doubt = 8.0 - log_in - log_out + epsilons + (mu + np.abs(x)) ** 2
        return np.exp(log_surplus(log_in + log_ndtr(mu - x), costs, doubt))

    def tails(self, losses: Array) -> Tails:
        x = self._inverse_loss(losses)
        absent = gaussian_tails(x, 0.0)

        def mixed(mean: float) -> tuple[Array, Array]:
            above, below = gaussian_tails(x, mean)
            some, rest = self.rate, 1.0 - self.rate
            return some * above + rest * absent[0], some * below + rest * absent[1]

        return Tails(*mixed(self.mu), *mixed(-self.mu))

    def _inverse_loss(self, losses: Array) -> Array:
        """The x at which the loss is that."""
        # With a = rate e^(-mu^2/2) and t = e^(mu x), the loss is
        # log((1 - rate + a t) / (1 - rate + a / t)); solve for t at |loss|, in logarithms.
        size = np.abs(losses)
        log_a2 = math.log(2.0 * self.rate) - self.mu**2 / 2
        with np.errstate(divide="ignore"):
            log_b = math.log1p(-self.rate) + size + np.log(-np.expm1(-size))
        root = 0.5 * np.logaddexp(2.0 * log_b, 2.0 * log_a2 + size)
        return np.sign(losses) * (np.logaddexp(log_b, root) - log_a2) / self.mu


@dataclass(frozen=True)
class FixedSize(_Amplified, Curve):
    """A fraction `rate` drawn without replacement; `base` is the loss of a full replacement.

    Drawn or not, and replaced or not, the conditional laws are all one replacement apart, so
    delta(log(1 + rate (e^eps - 1))) <= rate delta_base(eps) both ways for eps >= 0 (advanced joint
    convexity; Balle, Barthe, Gaboardi 2018). The curve, symmetrised, belongs to a dominating pair.
    """

    def profile(self, epsilons: Array) -> Array:
        return self.rate * self.base.profile(unamplified_losses(epsilons, self.rate))


def amplified_epsilon(epsilon: float, rate: float) -> float:
    """log(1 + rate (e^epsilon - 1)), without overflow."""
    if math.isinf(epsilon):
        return math.inf
    if epsilon < 500.0:
        return math.log1p(rate * math.expm1(epsilon))
    return epsilon + math.log(rate + (1.0 - rate) * math.exp(-epsilon))


def _amplified_losses(losses: Array, rate: float) -> Array:
    """`amplified_epsilon` of each loss, of either sign."""
    large = np.logaddexp(math.log1p(-rate), math.log(rate) + losses)
    return np.where(losses < 500.0, np.log1p(rate * np.expm1(np.minimum(losses, 500.0))), large)


def unamplified_losses(losses: Array, rate: float) -> Array:
    """The inverse of `amplified_epsilon`: log((e^l - 1 + rate) / rate), -inf from log(1 - rate)
    down."""
    with np.errstate(divide="ignore", over="ignore"):
        small = np.log1p(np.maximum(np.expm1(np.minimum(losses, 1.0)) / rate, -1.0))
        large = losses - math.log(rate) + np.log1p((rate - 1.0) * np.exp(-np.maximum(losses, 1.0)))
    return np.where(losses < 1.0, small, large)


def _sampled_spread(base: Simple, rate: float) -> float:
    """Deviation of a sampled loss, by its chi-square divergence for small losses."""
    if isinstance(base, GaussianShift):
        chi = math.sqrt(math.expm1(min(base.mu, 3.0) ** 2))
    else:
        chi = math.expm1(min(base.spread, 3.0))
    return min(base.spread, rate * chi)


def _log_expm1(x: Array) -> Array:
    return np.asarray(x + np.log(-np.expm1(-x)))
