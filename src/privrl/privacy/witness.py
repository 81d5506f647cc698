"""A second opinion on what a plan of events costs: a floor and a ceiling around the true epsilon.

`accounting.py` computes the figure that is certified. This module shares no code with it below
NumPy and SciPy and answers the same question by other means, so that a slip in one shows as a
figure outside the bracket of the other.

*Ceiling*: what Rényi divergences D_a prove. The log moment K(a) = (a - 1) D_a of every part is
bounded at each order a in both directions, summed (Mironov 2017, Prop. 1) and turned into epsilon
(Balle et al. 2020, Theorem 21; Canonne, Kamath, Steinke 2020, Prop. 12). K is convex in a, so that
chords bound it between orders. Where every loss is bounded, the sum of the bounds is proven too,
and the smaller counts. An (epsilon, delta) part may tell all with probability delta; the chance
that any part does is taken off the delta that was asked for.

*Floor*: what an explicit pair of neighbours, or the worst mechanism that an event admits, really
loses. Each part is a pair of laws P, Q on the line. Lumping outcomes together is post-processing
and never adds information, so the line is cut into cells, with losses log P(cell) / Q(cell). For
the FFT, losses are moved to the nearest point of a grid; over a composition these moves have a
known mean, which is put back, and a fluctuation, which Bernstein's inequality bounds and which is
taken off epsilon. The law is tilted exponentially before the FFT, so that round-off and
wrap-around, which are bounded and taken off as well, are small against the tail at which delta
looks. Mass may be dropped anywhere. What is left is the float64 rounding of the masses themselves,
for which a share 1e-5 of delta is set aside.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import combinations_with_replacement, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, gammaln, log_ndtr, xlogy

from privrl.core import checks
from privrl.core.errors import InputError, UnsupportedError
from privrl.core.types import Floats
from privrl.privacy.events import (
    ApproxDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Disjoint,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDP,
    RandomAllocation,
    RandomizedResponse,
    Repeated,
    as_events,
)
from privrl.privacy.promise import Relation

# Orders of the ceiling. Sampled parts have formulas for integers only, and none above the last.
_INTEGERS: Floats = np.unique(np.r_[2.0:101.0, np.geomspace(101, 2048, 60).round()])
_ORDERS: Floats = np.unique(
    np.r_[1 + np.geomspace(1e-4, 1, 41), 2:12:0.1, _INTEGERS, np.geomspace(2048, 1e6, 60)]
)
_FAR = 40.0  # deviations to which a Gaussian is resolved; 1e-349 of its mass is beyond
_MARGIN = 1e-5  # share of delta set aside, once for rounding and once for Bernstein's inequality
_TAIL = 2e-4  # share of delta that the largest losses may have to be dropped: they cost resolution
_WORLDS, _LOOKS = 64, 8  # choices of groups that the floor keeps in mind, and those it looks into
_SIZES = 2**14, 2**20  # smallest and largest number of grid points in the FFT's window


@dataclass(frozen=True)
class Bracket:
    """`floor` <= the true epsilon <= `ceiling`, at the delta that was asked for."""

    floor: float
    ceiling: float


def bracket(
    events: Event | Iterable[Event], delta: float, relation: Relation = Relation.REPLACE_ONE
) -> Bracket:
    """The floor and the ceiling of the composition of `events` under `relation`."""
    plan = as_events(events)
    return Bracket(floor(plan, delta, relation), ceiling(plan, delta, relation))


def ceiling(
    events: Event | Iterable[Event], delta: float, relation: Relation = Relation.REPLACE_ONE
) -> float:
    """A proven epsilon, usually larger than the certified one; infinite if none is proven."""
    delta, relation = checks.probability("delta", delta), Relation.parse(relation)
    return _epsilon(sum((_cost(event, relation) for event in as_events(events)), _NOTHING), delta)


def ceiling_over(
    places: Iterable[Iterable[Mapping[Event, int]]], delta: float, relation: Relation
) -> float:
    """A proven epsilon for whoever is in one slot of each of `places`, whichever these are.

    A slot is how often each event concerns whoever is in it. The worst slot is taken in everything
    that adds up, order by order (`totals.py` has the proof).
    """
    delta, relation = checks.probability("delta", delta), Relation.parse(relation)
    total = _NOTHING
    for slots in places:
        costs = (
            sum((_cost(event, relation) * times for event, times in slot.items()), _NOTHING)
            for slot in slots
        )
        total += reduce(_Cost.__or__, costs)
    return _epsilon(total, delta)


def renyi(
    events: Event | Iterable[Event], order: int, relation: Relation = Relation.REPLACE_ONE
) -> tuple[float, float]:
    """A proven Rényi divergence at `order` if nothing is told, and the chance that anything is.

    Both add up over events, adaptive ones too; the divergence is infinite where none is proven.
    """
    if checks.count("order", order) < 2:
        raise InputError(f"order must be at least 2, not {order}.")
    relation = Relation.parse(relation)
    cost = sum((_cost(event, relation) for event in as_events(events)), _NOTHING)
    moment = float(np.interp(order, _ORDERS, cost.moments, right=math.inf))
    return min(moment / (order - 1), cost.pure), -math.expm1(-cost.leaking)


def floor(
    events: Event | Iterable[Event], delta: float, relation: Relation = Relation.REPLACE_ONE
) -> float:
    """An epsilon below which no valid one lies, since some pair of neighbours loses this much."""
    delta, relation = checks.probability("delta", delta), Relation.parse(relation)
    worlds: list[_World] = [frozenset()]
    for event in as_events(events):
        worlds = _few(map(_merged, product(worlds, _worlds(event, relation))))
    # Every world gives a floor; a world whose ceiling is below the best floor cannot raise it.
    ceilings = [_epsilon(_world_cost(world), delta) for world in worlds]
    best = 0.0
    for i in np.argsort(ceilings)[::-1][:_LOOKS]:
        for backward in (False, True):
            if ceilings[i] > best:
                best = max(best, _world_floor(worlds[i], delta, backward, best))
    return best


# --- Pairs of laws -------------------------------------------------------------------------------


class _Limits(NamedTuple):
    """What is known of a pair's loss L beside its law."""

    leak: float  # P(L = infinity): not in the P of `cells`; `log_moment` is given that it is not so
    pure: float  # a proven bound on finite losses
    most: float  # the largest finite loss that really occurs
    reach: float  # the loss, either way, to which there is anything to resolve


class _Pair(ABC):
    """Two laws P and Q with the loss L = log dP/dQ; the pair (Q, P) is its mirror image."""

    @property
    @abstractmethod
    def limits(self) -> _Limits: ...

    @abstractmethod
    def log_moment(self, orders: Floats) -> Floats:
        """At least K(a) = log E_P[e^{(a-1) L}], for the pair and for its mirror image."""

    @abstractmethod
    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        """The logs of P and Q of {cuts[i] <= L < cuts[i+1]}, which must be one event for both."""


def _gaps(tails: Floats) -> Floats:
    """log(e^t[i] - e^t[i+1]) for falling log tails t; keeps its digits near 0 and near 1."""
    with np.errstate(invalid="ignore", divide="ignore"):
        gaps = tails[:-1] + np.log(-np.expm1(tails[1:] - tails[:-1]))
    return np.nan_to_num(gaps, nan=-np.inf, neginf=-np.inf)


def _log_sum(logs: Floats) -> Floats:
    """log sum e^logs along the last axis, -inf for nothing (without the overhead of SciPy's)."""
    most = np.maximum(logs.max(axis=-1, keepdims=True), -1e300)
    with np.errstate(divide="ignore"):
        return np.asarray(most[..., 0] + np.log(np.exp(logs - most).sum(axis=-1)))


def _log_expm1(x: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return x + np.log(-np.expm1(-x))


def _mixed(rate: float, loss: Floats) -> Floats:
    """log(1 - rate + rate e^loss), the loss of (1 - rate) Q + rate P against Q."""
    near = np.log1p(rate * np.expm1(np.minimum(loss, 1.0)))
    return np.where(loss < 1, near, np.logaddexp(math.log1p(-rate), math.log(rate) + loss))


@dataclass(frozen=True)
class _Normal(_Pair):
    """N(mu, 1) and N(0, 1)."""

    mu: float

    @property
    def limits(self) -> _Limits:
        return _Limits(0.0, math.inf, math.inf, self.mu**2 / 2 + _FAR * self.mu)

    def log_moment(self, orders: Floats) -> Floats:
        return orders * (orders - 1) * self.mu**2 / 2

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        x = cuts / self.mu
        return _gaps(log_ndtr(self.mu / 2 - x)), _gaps(log_ndtr(-self.mu / 2 - x))


@dataclass(frozen=True)
class _DiscreteNormal(_Pair):
    """Discrete Gaussian noise moved by the integer `shift`, and not moved.

    The ceiling pays for a movement of `charge`, at least `shift` and in any dimension.
    """

    shift: int
    charge: float
    std: float

    @property
    def limits(self) -> _Limits:
        mu = self.shift / self.std
        return _Limits(0.0, math.inf, math.inf if mu else 0.0, mu**2 / 2 + _FAR * mu)

    def log_moment(self, orders: Floats) -> Floats:
        # Canonne, Kamath, Steinke 2020, Prop. 5, coordinate by coordinate.
        return orders * (orders - 1) * (self.charge / self.std) ** 2 / 2

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        least = np.ceil(cuts * self.std**2 / self.shift + self.shift / 2)
        return _gaps(self._tail(least - self.shift)), _gaps(self._tail(least))

    def _tail(self, k: Floats) -> Floats:
        """log P(noise >= k), by symmetry from k >= 1."""
        upper = self._upper(np.maximum(k, 1 - k))
        return np.where(k > 0, upper, np.log1p(-np.exp(upper)))

    def _upper(self, k: Floats) -> Floats:
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
        sums = _discrete_tails(math.ceil(self.shift + 2 * _FAR * self.std) + 2, self.std)
        return sums[np.minimum(k, len(sums) - 1).astype(np.int64)]


@lru_cache(maxsize=4)
def _discrete_tails(size: int, std: float) -> Floats:
    """log P(noise >= k) for k from 0; the last one stands for all beyond."""
    sums = np.logaddexp.accumulate(-((np.arange(size) / std)[::-1] ** 2) / 2)[::-1]
    logs: Floats = np.append(sums, -np.inf) - np.logaddexp(sums[0], sums[1])
    return logs


def _bounded(cuts: Floats, most: float, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Cells from the log tails p and q of a loss between -most and most."""
    below, above = cuts <= -most, cuts > most
    one, other = (np.where(below, 0.0, np.where(above, -np.inf, tails)) for tails in (p, q))
    return _gaps(one), _gaps(other)


@dataclass(frozen=True)
class _Laplace(_Pair):
    """Laplace noise of scale 1, moved by `shift` and not moved."""

    shift: float

    @property
    def limits(self) -> _Limits:
        return _Limits(0.0, self.shift, self.shift, self.shift)

    def log_moment(self, orders: Floats) -> Floats:
        # Mironov 2017, Prop. 6; the first form keeps its digits when the moment is small.
        a, up, down = orders, (orders - 1) * self.shift, -orders * self.shift
        small = np.log1p((a * np.expm1(np.minimum(up, 1)) + (a - 1) * np.expm1(down)) / (2 * a - 1))
        large = np.logaddexp(np.log(a) + up, np.log(a - 1) + down) - np.log(2 * a - 1)
        return np.where(up < 1, small, large)

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        x = np.clip((cuts + self.shift) / 2, 0, self.shift)
        p, q = np.log1p(-np.exp(x - self.shift) / 2), -math.log(2) - x
        return _bounded(cuts, self.shift, p, q)


@dataclass(frozen=True)
class _DiscreteLaplace(_Pair):
    """Discrete Laplace noise moved by the integer `shift`, and not; the ceiling pays `charge`."""

    shift: int
    charge: int
    scale: float

    @property
    def limits(self) -> _Limits:
        most = self.shift / self.scale
        return _Limits(0.0, self.charge / self.scale, most, most)

    @property
    def _end(self) -> float:
        """log P(noise >= 0)."""
        return -math.log1p(math.exp(-1 / self.scale))

    def log_moment(self, orders: Floats) -> Floats:
        # The sum of Q e^{a L}: both ends, where L is constant, and the geometric series between.
        pure, y = self.charge / self.scale, (2 * orders - 1) / self.scale
        point = self._end + math.log(-math.expm1(-1 / self.scale))
        between = point - orders * pure + y + _log_expm1((self.charge - 1) * y) - _log_expm1(y)
        ends = self._end + np.logaddexp((orders - 1) * pure, -orders * pure)
        return np.maximum(np.logaddexp(ends, between), 0.0)

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        s, b, most = self.shift, self.scale, self.limits.most
        least = np.ceil((np.clip(cuts, -most, most) * b + s) / 2)
        p, q = np.log1p(-np.exp((least - s - 1) / b + self._end)), self._end - least / b
        return _bounded(cuts, most, p, q)


@dataclass(frozen=True)
class _Response(_Pair):
    """Randomised response that tells all with probability `told` (Kairouz, Oh, Viswanath 2015)."""

    epsilon: float
    categories: int = 2
    told: float = 0.0

    @property
    def limits(self) -> _Limits:
        return _Limits(self.told, self.epsilon, self.epsilon, self.epsilon)

    @property
    def _log_least(self) -> float:
        return -float(np.logaddexp(self.epsilon, math.log(self.categories - 1)))

    def log_moment(self, orders: Floats) -> Floats:
        # p (e^{a eps} + e^{(1-a) eps} + k - 2) with p = 1 / (e^eps + k - 1), the least probability,
        # is 1 + p (e^{(a-1) eps} - 1) (e^eps - e^{-(a-1) eps}).
        up = (orders - 1) * self.epsilon
        excess = _log_expm1(up) + _log_expm1(up + self.epsilon) - up
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


@dataclass(frozen=True)
class _Exchanged(_Pair):
    """(1-q) N(0, 1) + q N(m, 1) and (1-q) N(0, 1) + q N(-m, 1): Poisson sampling, one replaced.

    It dominates: if a test has level x given that the unit is not drawn, its power against the one
    contribution is at most Phi(Phi^-1(x) + m) and against the other at least Phi(Phi^-1(x) - m),
    and one half line reaches both.
    """

    m: float
    rate: float

    @property
    def limits(self) -> _Limits:
        x = self.m + _FAR
        up, down = self._log_ratio(np.array([x, -x]))
        return _Limits(0.0, math.inf, math.inf, float(up - down))

    def _log_ratio(self, x: Floats) -> Floats:
        """The log density of the first law against N(0, 1) at x, and so of the second at -x."""
        return _mixed(self.rate, self.m * x - self.m**2 / 2)

    def log_moment(self, orders: Floats) -> Floats:
        # Closed bounds, used for large m: e^K is jointly convex, and its pair a mixture over the
        # draw; and as the second law is at least (1-q) N(0, 1), K is at most (a-1) log 1/(1-q) more
        # than for a unit that is removed.
        q, m = self.rate, self.m
        drawn = np.logaddexp(0, math.log(q) + _log_expm1(2 * orders * (orders - 1) * m**2))
        removed = _chords(orders, _binomial(q, _Normal(m))) - (orders - 1) * math.log1p(-q)
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
        return float(_log_sum(exponent)) + math.log(step / math.sqrt(2 * math.pi)) + 1e-13

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        # The loss is odd and rising in x; for a loss c >= 0, e^{m x} is the root of a quadratic.
        q, m, c = self.rate, self.m, np.minimum(np.abs(cuts), 1e300)
        log_a = math.log(q) - m**2 / 2
        with np.errstate(divide="ignore"):
            log_b = math.log1p(-q) + np.log(-np.expm1(-c))
        root = np.logaddexp(2 * log_b, 2 * (math.log(2) + log_a) - c) / 2
        x = np.sign(cuts) * (c - math.log(2) - log_a + np.logaddexp(log_b, root)) / m
        out, one, other = (_gaps(log_ndtr(mean - x)) for mean in (0.0, m, -m))
        out = math.log1p(-q) + out
        return np.logaddexp(out, math.log(q) + one), np.logaddexp(out, math.log(q) + other)


@dataclass(frozen=True)
class _Sampled(_Pair):
    """(1 - rate) Q + rate P and Q for the pair (P, Q) of `base`; it differs from its mirror image.

    Batches are of fixed size or Poisson; the ceiling is another, the floor's pair the same.
    """

    base: _Pair
    rate: float
    fixed: bool

    @property
    def limits(self) -> _Limits:
        leak, *losses = self.base.limits
        pure, most, reach = (float(loss) for loss in _mixed(self.rate, np.array(losses)))
        # Balle, Barthe, Gaboardi 2018, Theorems 8 and 9: what is sampled is (pure, leak)-DP.
        return _Limits(self.rate * leak, pure, most, max(reach, -math.log1p(-self.rate)))

    def log_moment(self, orders: Floats) -> Floats:
        if self.fixed:
            series = _chords(orders, self._without_replacement())
            return np.minimum(series, self.base.log_moment(orders))
        moment, told, q = _binomial(self.rate, self.base), self.base.limits.leak, self.rate
        if told > 0:
            # Beside the leak there is an outcome that tells of Q: of probability `told` under Q and
            # (1-q) `told` under the mixture.
            log_told, rest = math.log(told), math.log1p(-told) + moment
            ahead = np.logaddexp(log_told + _INTEGERS * math.log1p(-q), rest)
            back = np.logaddexp(log_told - (_INTEGERS - 1) * math.log1p(-q), rest)
            moment = np.maximum(ahead - math.log1p(-q * told), back)
        return _chords(orders, moment)

    def _without_replacement(self) -> Floats:
        """Wang, Balle, Kasiviswanathan 2019, Theorem 9, at the integers."""
        j = np.arange(2, _INTEGERS[-1] + 1)
        base = self.base.log_moment(j)
        terms = base + np.minimum(math.log(2), j * _log_expm1(np.array(self.base.limits.pure)))
        terms[0] = min(terms[0], math.log(4) + _log_expm1(base[0]))
        return np.logaddexp(0, _log_sum(_log_choose() + j * math.log(self.rate) + terms))

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        # The cut in the loss L of the base is where log(1 - q + q e^L) = cut.
        miss, hit = math.log1p(-self.rate), math.log(self.rate)
        with np.errstate(invalid="ignore", divide="ignore"):
            inner = cuts + np.log(-np.expm1(miss - np.maximum(cuts, miss))) - hit
        p, q = self.base.cells(np.where(cuts > miss, inner, -np.inf))
        return np.logaddexp(miss + q, hit + p), q


@dataclass(frozen=True)
class _Allotted(_Pair):
    """(1/T) sum of N(m e_k, I), and the same with -m (one replaced) or N(0, I) (one removed).

    It dominates: with W_t and V_t the likelihood ratios of the two contributions of step t against
    noise alone, H_gamma is E[(sum of (W_t - gamma V_t))_+] / T. Given the steps before it, every
    stop-loss transform of W_t - gamma V_t is largest for opposite contributions, by the argument
    for `_Exchanged`; that is convex order, which sums keep if each is replaced in turn, from the
    last to the first.
    """

    m: float
    steps: int
    exchanged: bool
    lean: float = 0.0  # the loss at which the statistic of `cells` tells most

    @property
    def _known(self) -> float:
        return self.m * (2 if self.exchanged else 1)

    @property
    def limits(self) -> _Limits:
        return _Limits(0.0, math.inf, math.inf, self._known**2 / 2 + _FAR * self._known)

    def log_moment(self, orders: Floats) -> Floats:
        # Told the step, it is Gaussian noise.
        known = orders * (orders - 1) * self._known**2 / 2
        integers, moments = _allotted_moments(self.m, self.steps, self.exchanged)
        secret = np.interp(orders, np.r_[1, integers], np.r_[0, moments], right=math.inf)
        return np.minimum(known, secret)

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        return self._cells(cuts, False)

    def mirrored(self, cuts: Floats) -> tuple[Floats, Floats]:
        """The cells of the mirror image."""
        return self._cells(cuts, True)

    def _cells(self, cuts: Floats, backward: bool) -> tuple[Floats, Floats]:
        p, q, loss = _by_loss(self, backward)
        at = np.searchsorted(loss, cuts)

        def within(masses: Floats) -> Floats:
            sums = np.add.reduceat(masses, at)[:-1]
            with np.errstate(divide="ignore"):
                return np.log(np.where(at[1:] > at[:-1], sums, 0.0))

        return within(p), within(q)


@lru_cache(maxsize=8)
def _by_loss(pair: _Allotted, backward: bool) -> tuple[Floats, Floats, Floats]:
    """The statistic's masses under both laws, and their losses, in rising order of these.

    Less of the first and more of the second law than there is, whatever was rounded; a 0 at the
    end of the masses stands for nothing.
    """
    # Contributions may be smaller, and e^{m z} must be a number.
    laws = _statistic(min(pair.m, 6.0), pair.steps, pair.exchanged, pair.lean)
    one, other = laws[:: -1 if backward else 1]
    p, q = one.mass - one.error, other.mass + other.error
    p, q = p[p > 0], q[p > 0]
    loss = np.log(p) - np.log(q)
    order = np.argsort(loss)
    return np.append(p[order], 0.0), np.append(q[order], 0.0), loss[order]


class _Masses(NamedTuple):
    """Probabilities of the values of a statistic, each known up to `error`."""

    mass: Floats
    error: float


@lru_cache(maxsize=16)
def _statistic(m: float, steps: int, exchanged: bool, lean: float) -> tuple[_Masses, _Masses]:
    """The laws of a sum over the steps of e^{m z} - e^{lean - m z} (or e^{m z}), cut into cells.

    z is first cut off on both sides, the term rounded to a whole number of cells, and the sum taken
    modulo the FFT's size: all of this is post-processing, so that nothing but round-off is left to
    be bounded. The sum is above 0 where the loss is above `lean`.
    """
    size = _SIZES[1] // 8
    most = m + 6.5
    low = -most if exchanged else -_FAR

    def term(z: Floats) -> Floats:
        return np.exp(m * z) - (np.exp(lean - m * z) if exchanged else 0.0)

    z = np.linspace(low, most, 20001)
    weights = np.exp(-(z**2) / 2)
    deviation = math.sqrt(float(np.average(term(z) ** 2, weights=weights)))
    ends = [float(end) for end in term(np.array([low, most]))]
    width = ends[1] - ends[0] + 24 * math.sqrt(steps) * deviation
    cell = width / size
    first, last = (math.floor(end / cell) for end in ends)
    # The z at which the term leaves one cell for the next.
    level = np.arange(first + 1, last + 1) * cell
    with np.errstate(divide="ignore"):
        if exchanged:
            edges = (np.arcsinh(level * math.exp(-lean / 2) / 2) + lean / 2) / m
        else:
            edges = np.log(level) / m
    edges = np.r_[-np.inf, edges, np.inf]
    index = np.arange(first, last + 1) % size
    unit = 8 * float(np.finfo(np.float64).eps) * math.log2(size)

    def spectrum(mean: float) -> NDArray[np.complex128]:
        weights = np.bincount(index, np.exp(_gaps(log_ndtr(mean - edges))), size)
        return np.fft.rfft(weights)

    absent = spectrum(0.0)

    def law(drawn: NDArray[np.complex128], times: int) -> _Masses:
        mass = np.fft.irfft(drawn * absent**times, size)
        near, rest = np.abs(drawn) + unit, np.abs(absent) + unit
        with np.errstate(over="ignore"):  # so many steps that nothing is known
            slips = near * rest**times * (1 + 1 / near + times / rest)
        return _Masses(mass, 2 * unit * float(np.mean(slips)) + unit / size)

    other = law(spectrum(-m), steps - 1) if exchanged else law(absent, steps - 1)
    return law(spectrum(m), steps - 1), other


@lru_cache(maxsize=16)
def _allotted_moments(m: float, steps: int, exchanged: bool) -> tuple[Floats, Floats]:
    """K of the pair, and of its mirror image, at some integers: the larger of the two.

    With A = mean of W and B = mean of V over the T steps, e^K = E[A^a B^(1-a)] under noise alone.
    B^(1-a) is the integral of t^(a-2) e^(-t B) / (a-2)! over t > 0, and A^a e^(-t B) is expanded
    into products over steps: T^-a a! times the coefficient of x^a in the T-th power of
    sum over j of E[W^j e^(-t V / T)] x^j / j!. As E[W^j g(z)] = e^{j (j-1) m^2 / 2} E[g(z + j m)],
    nothing overflows. Integrals are sums over a grid, in z and in log t, which converge
    geometrically: for every value of B the error of the latter is, relatively, below
    2 |Gamma(a - 1 + 2 pi i / step)| / Gamma(a - 1), or 1e-16. 1e-9 covers these and round-off.
    """
    orders = np.arange(2, max(2, min(24, int(100 / m**2))) + 1)
    most = int(orders[-1])
    if m > 5:
        return orders.astype(np.float64), np.full(len(orders), math.inf)
    j = np.arange(most + 1)
    step = 0.2 / math.sqrt(1 + most * m**2)
    z = np.arange(-_FAR / 3, _FAR / 3 + most * m, step)
    weights = np.exp(-((z[:, None] - j * m) ** 2) / 2) * (step / math.sqrt(2 * math.pi))
    powers = j * (j - 1) * m**2 / 2 - gammaln(j + 1)  # log E[W^j] / j!
    gap = 0.1
    u = np.arange(-45.0, math.log(most * steps) + 2 * most * m**2 + 14 * m + 8, gap)

    def kept(v: Floats) -> Floats:
        """log E[W^j e^(-t v / T)] / j! for all t, down, and j, across."""
        with np.errstate(divide="ignore", over="ignore"):
            shares = np.exp(-np.exp(u[:, None] - math.log(steps)) * v) @ weights
            return np.asarray(np.log(shares) + powers)

    def integral(of: Floats, a: int) -> float:
        return float(_log_sum((a - 1) * u + of)) + math.log(gap) - float(gammaln(a - 1))

    down, up = (np.exp(sign * m * z - m**2 / 2) for sign in (-1, 1))
    moments = []
    if exchanged:
        both = _log_power(kept(down), steps)
        for a in orders:
            scale = float(gammaln(a + 1)) - a * math.log(steps)
            moments.append(integral(both[:, a], int(a)) + scale)
    else:
        gone = _log_power(powers[None, :], steps)[0]
        come = kept(up)[:, 0] * steps
        for a in orders:
            ahead = float(gammaln(a + 1)) - a * math.log(steps) + gone[a]
            back = integral(come, int(a))
            moments.append(max(ahead, back))
    return orders.astype(np.float64), np.maximum(moments, 0.0) + 1e-9


def _log_power(logs: Floats, times: int) -> Floats:
    """The logs of the coefficients of a polynomial's power, to its own degree, one for each row."""

    def product(one: Floats, other: Floats) -> Floats:
        degrees = range(one.shape[1])
        return np.stack([_log_sum(one[:, : k + 1] + other[:, k::-1]) for k in degrees], axis=1)

    found: Floats | None = None
    while times:
        if times % 2:
            found = logs if found is None else product(found, logs)
        times //= 2
        logs = product(logs, logs) if times else logs
    assert found is not None
    return found


@lru_cache(maxsize=1)
def _log_choose() -> Floats:
    """log C(a, j) for the integer orders a, down, and j from 2 to the largest of them, across."""
    a, j = _INTEGERS[:, None], np.arange(2, _INTEGERS[-1] + 1)
    logs = gammaln(a + 1) - gammaln(j + 1) - gammaln(np.maximum(a - j, 0) + 1)
    return np.where(j <= a, logs, -np.inf)


def _binomial(q: float, base: _Pair) -> Floats:
    """K of (1-q) Q + q P against Q at the integers: E_Q[(1 - q + q e^L)^a] as a binomial series.

    The terms j = 0 and 1, and 1 out of E_Q[e^{jL}] in each other, sum to 1. The mirror image has no
    larger K, as Mironov, Talwar, Zhang 2019 show (Theorem 5) if the base is its own mirror image.
    """
    j = np.arange(2, _INTEGERS[-1] + 1)
    drawn = j * math.log(q) + np.maximum(_INTEGERS[:, None] - j, 0) * math.log1p(-q)
    terms = _log_choose() + drawn + _log_expm1(base.log_moment(j))
    return np.logaddexp(0, _log_sum(terms))


def _chords(orders: Floats, at_integers: Floats) -> Floats:
    """K between the integers, by convexity and K(1) = 0; infinite beyond the last."""
    return np.interp(orders, np.r_[1, _INTEGERS], np.r_[0, at_integers], right=math.inf)


# --- From events to pairs ------------------------------------------------------------------------


def _pair(event: Event, relation: Relation) -> _Pair:
    """The pair of an event that contains no other."""
    if isinstance(event, RandomizedResponse | PureDP | ApproxDP):
        # A single report that hides any input from any other hides whose data was replaced.
        stronger = relation == Relation.REPLACE_ONE and event.relation == Relation.LOCAL
        if event.relation != relation and not stronger:
            raise InputError(f"{event} holds for {event.relation}, but {relation} was asked for.")
        categories = event.categories if isinstance(event, RandomizedResponse) else 2
        told = event.delta if isinstance(event, ApproxDP) else 0.0
        return _Response(event.epsilon, categories, told)
    # The difference between the sums of two neighbours: two contributions, or one.
    factor = 2 if relation in (Relation.REPLACE_ONE, Relation.LOCAL) else 1
    if isinstance(event, Gaussian):
        return _Normal(factor * event.bound / event.std)
    if isinstance(event, Laplace):
        return _Laplace(factor * event.bound / event.scale)
    if isinstance(event, DiscreteGaussian | DiscreteLaplace):
        # The ceiling pays for floor(2 bound); but two integers of at most `bound` differ by at most
        # 2 floor(bound), and the floor must not claim more.
        move, shift = factor * event.bound, factor * math.floor(event.bound)
        if move < 1:
            return _Response(0.0)
        if isinstance(event, DiscreteLaplace):
            return _DiscreteLaplace(shift, math.floor(move), event.scale)
        charge = math.floor(move) if event.dimension == 1 else move
        # The pair of a smaller shift is a floor as well, and its tails are computable.
        most = 10**6 if event.std < 500 else int(event.std**2 / 5)
        return _DiscreteNormal(min(shift, most), charge, event.std)
    raise UnsupportedError(f"The witness has no bound for {event}.")


_Sampling = PoissonSampled | FixedSizeSampled


def _rate(event: _Sampling, relation: Relation) -> float:
    """The share of units that is drawn."""
    fixed = isinstance(event, FixedSizeSampled)
    if relation != Relation.REPLACE_ONE and (fixed or relation != Relation.ADD_REMOVE):
        raise InputError(f"{type(event).__name__} has no meaning under {relation}.")
    return event.batch / event.population if isinstance(event, FixedSizeSampled) else event.rate


def _drawn(event: Event, relation: Relation) -> Event:
    """The event itself, or what it samples if everybody is drawn."""
    while isinstance(event, _Sampling) and _rate(event, relation) == 1:
        event = event.event
    if isinstance(event, RandomAllocation) and _allotted(event, relation).steps == 1:
        return event.event
    return event


def _allotted(event: RandomAllocation, relation: Relation) -> _Allotted:
    if relation not in (Relation.REPLACE_ONE, Relation.ADD_REMOVE):
        raise InputError(f"RandomAllocation has no meaning under {relation}.")
    if not isinstance(event.event, Gaussian):
        raise UnsupportedError(f"The witness has no bound for {event}: allocate a Gaussian event.")
    ratio = event.event.bound / event.event.std
    return _Allotted(ratio, event.steps, relation == Relation.REPLACE_ONE)


def _pairs(event: Event, relation: Relation) -> list[_Pair]:
    """The pair of an event that is neither Repeated nor Disjoint, for each group that it knows."""
    if isinstance(event, RandomAllocation):
        return [_allotted(event, relation)]
    if not isinstance(event, _Sampling):
        return [_pair(event, relation)]
    rate, fixed = _rate(event, relation), isinstance(event, FixedSizeSampled)
    pairs: list[_Pair] = []
    for base in _bases(event.event, relation):
        if (fixed and base.limits.leak == 0) or relation == Relation.ADD_REMOVE:
            pairs.append(_Sampled(base, rate, fixed))
        elif isinstance(base, _Normal) and not fixed:
            # The base moves by two contributions, but a draw brings in one.
            pairs.append(_Exchanged(base.mu / 2, rate))
        else:
            raise UnsupportedError(f"The witness has no bound for {event} under {relation}.")
    return pairs


def _bases(event: Event, relation: Relation) -> list[_Pair]:
    """The pairs, one for each group of units, of all that happens to one and the same draw."""
    event = _drawn(event, relation)
    if isinstance(event, _Sampling):
        raise UnsupportedError("The witness has no bound for a sample of a sample.")
    if isinstance(event, Disjoint):
        return _maximal(pair for part in event.events for pair in _bases(part, relation))
    if isinstance(event, Repeated):
        bases = _bases(event.event, relation)
        if event.times == 1:
            return bases
        # Gaussians, adaptive ones too, are one with the root of the sum of the squares of their mu
        # (Dong, Roth, Su 2022, Cor. 3.3).
        normals = [_Normal(math.sqrt(event.times) * b.mu) for b in bases if isinstance(b, _Normal)]
        if len(normals) < len(bases):
            raise UnsupportedError(
                "Of events repeated on one draw the witness bounds Gaussian ones."
            )
        return _maximal(normals)
    return [_pair(event, relation)]


def _maximal(pairs: Iterable[_Pair]) -> list[_Pair]:
    """The different ones among `pairs`; of Gaussians the largest, their worst."""
    unique = list(dict.fromkeys(pairs))
    largest = max((pair.mu for pair in unique if isinstance(pair, _Normal)), default=0.0)
    return [pair for pair in unique if not isinstance(pair, _Normal) or pair.mu == largest]


# --- Ceiling -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cost:
    """Bounds that add up: log moments at `_ORDERS`, largest finite loss, -log P(no leak)."""

    moments: Floats
    pure: float
    leaking: float

    def __add__(self, other: "_Cost") -> "_Cost":
        moments = self.moments + other.moments
        return _Cost(moments, self.pure + other.pure, self.leaking + other.leaking)

    def __mul__(self, times: int) -> "_Cost":
        return _Cost(self.moments * times, self.pure * times, self.leaking * times)

    def __or__(self, other: "_Cost") -> "_Cost":
        """The larger of both in everything: holds whichever group a unit is in, each time anew."""
        moments = np.maximum(self.moments, other.moments)
        return _Cost(moments, max(self.pure, other.pure), max(self.leaking, other.leaking))


_NOTHING = _Cost(np.zeros_like(_ORDERS), 0.0, 0.0)


@lru_cache(maxsize=256)
def _pair_cost(pair: _Pair) -> _Cost:
    return _Cost(pair.log_moment(_ORDERS), pair.limits.pure, -math.log1p(-pair.limits.leak))


def _cost(event: Event, relation: Relation) -> _Cost:
    event = _drawn(event, relation)
    if isinstance(event, Repeated):
        return _cost(event.event, relation) * event.times
    if isinstance(event, Disjoint):
        parts = dict.fromkeys(event.events)
        return reduce(_Cost.__or__, (_cost(part, relation) for part in parts))
    return reduce(_Cost.__or__, map(_pair_cost, _pairs(event, relation)))


def _without_leak(delta: float, leaking: float) -> float:
    """What is left of delta for the rest: 1 - (1 - delta) / P(no leak)."""
    return -math.expm1(math.log1p(-delta) + leaking)


def _epsilon(cost: _Cost, delta: float) -> float:
    rest = _without_leak(delta, cost.leaking)
    if rest <= 0:
        return cost.pure if rest == 0 else math.inf
    a = _ORDERS
    epsilons = (cost.moments - math.log(rest) - np.log(a)) / (a - 1) + np.log1p(-1 / a)
    return max(0.0, min(cost.pure, float(np.min(epsilons))))


# --- Floor: the worlds a unit can live in --------------------------------------------------------

# How often each pair occurs, if the unit is in certain groups.
_World = frozenset[tuple[_Pair, int]]


def _worlds(event: Event, relation: Relation) -> list[_World]:
    event = _drawn(event, relation)
    if isinstance(event, Repeated):
        worlds, times = _worlds(event.event, relation), event.times
        if len(worlds) > 1 and math.comb(len(worlds) + times - 1, times) <= _WORLDS:
            return _few(map(_merged, combinations_with_replacement(worlds, times)))
        return [_merged([world], times) for world in worlds]
    if isinstance(event, Disjoint):
        parts = dict.fromkeys(event.events)
        return _few(world for part in parts for world in _worlds(part, relation))
    return [frozenset({(pair, 1)}) for pair in _pairs(event, relation)]


def _merged(worlds: Iterable[_World], times: int = 1) -> _World:
    """One world of several, `times` times over; its Gaussians are one, and exactly so."""
    counts: Counter[_Pair] = Counter()
    for world in worlds:
        counts.update({pair: times * n for pair, n in world})
    square = sum(n * pair.mu**2 for pair, n in counts.items() if isinstance(pair, _Normal))
    others = {(pair, n) for pair, n in counts.items() if not isinstance(pair, _Normal)}
    return frozenset(others | ({(_Normal(math.sqrt(square)), 1)} if square else set()))


def _few(worlds: Iterable[_World]) -> list[_World]:
    """The different ones among `worlds`, the costliest if they are many: a floor needs no more."""
    unique = list(dict.fromkeys(worlds))
    if len(unique) <= _WORLDS:
        return unique
    return sorted(unique, key=lambda world: _epsilon(_world_cost(world), 1e-6))[-_WORLDS:]


def _world_cost(world: _World) -> _Cost:
    return sum((_pair_cost(pair) * n for pair, n in world), _NOTHING)


# --- Floor: what a pair loses --------------------------------------------------------------------


def _world_floor(world: _World, delta: float, backward: bool, enough: float) -> float:
    """The largest epsilon at which a world surely loses more than `delta`, in one direction.

    If it turns out that it cannot be above `enough`, it may be anything smaller.
    """
    if backward and not any(_has_mirror(pair) for pair, _ in world):
        return 0.0  # nothing new in the other direction
    rest = _without_leak(delta, sum(-n * math.log1p(-_leak(pair, backward)) for pair, n in world))
    parts = [(pair, n) for pair, n in world if pair.limits.most > 0]
    if rest < 0:
        return math.inf
    if rest == 0:
        return 0.0 if backward else sum(n * pair.limits.most for pair, n in parts)
    if [n for _, n in parts] != [1]:
        return _composed_floor(parts, rest, backward, enough) if parts else 0.0
    pair = parts[0][0]
    if isinstance(pair, _Normal):
        return _normal_floor(pair.mu, rest)
    found = _single_floor(pair, rest, backward)
    if isinstance(pair, _Allotted) and pair.exchanged:
        for _ in range(3):
            found = max(found, _single_floor(replace(pair, lean=min(found, 50.0)), rest, backward))
    return found


def _has_mirror(pair: _Pair) -> bool:
    """Whether the mirror image is another pair."""
    return isinstance(pair, _Sampled) or (isinstance(pair, _Allotted) and not pair.exchanged)


def _leak(pair: _Pair, backward: bool) -> float:
    # What is sampled may be told to have been drawn, never to have not.
    return 0.0 if backward and isinstance(pair, _Sampled) else pair.limits.leak


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where `holds` ends, going up from `low`; approached from below."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _normal_floor(mu: float, delta: float) -> float:
    """Phi(-u) - e^epsilon Phi(-u - mu) = delta with epsilon = mu (u + mu / 2) (Balle, Wang)."""
    goal = math.log(delta) + _MARGIN

    def exceeds(u: float) -> bool:
        # As e^epsilon phi(u + mu) = phi(u), no large numbers meet.
        first = float(log_ndtr(-u))
        second = math.log(erfcx((u + mu) / math.sqrt(2)) / 2) - u**2 / 2
        return second < first and first + math.log(-math.expm1(second - first)) > goal

    return mu * (_last(exceeds, -mu / 2, _FAR) + mu / 2)


def _law(pair: _Pair, backward: bool, cuts: Floats) -> tuple[Floats, Floats]:
    """Log mass, given no leak, and loss of the cells that `cuts` (of losses) make, in rising order.

    Cells of infinite loss are dropped: leaks are counted elsewhere.
    """
    if backward and isinstance(pair, _Sampled):
        q, p = (logs[::-1] for logs in pair.cells(-cuts[::-1]))
    elif backward and isinstance(pair, _Allotted):
        p, q = pair.mirrored(cuts)
    else:  # every other pair is its own mirror image
        p, q = pair.cells(cuts)
    keep = (p > -np.inf) & (q > -np.inf)
    return p[keep] - math.log1p(-_leak(pair, backward)), p[keep] - q[keep]


def _single_floor(pair: _Pair, delta: float, backward: bool) -> float:
    goal = math.log(delta) + _MARGIN

    def exceeds(epsilon: float) -> bool:
        mass, loss = _law(pair, backward, np.array([-math.inf, epsilon, math.inf]))
        if not len(mass) or loss[-1] <= epsilon:
            return False
        return bool(mass[-1] + math.log(-math.expm1(epsilon - loss[-1])) > goal)

    return _last(exceeds, 0.0, 2 * pair.limits.reach)


# --- Floor: compositions -------------------------------------------------------------------------

# Tilts for Chernoff's bound; the best is near sqrt(2 log 1/delta) over the deviation of the sum.
_POSITIVE: Floats = np.geomspace(1e-9, 1e9, 145)
_TILTS: Floats = np.r_[-_POSITIVE[::-3], 0.0, _POSITIVE]


@dataclass(frozen=True)
class _Window:
    """Where the FFT looks: nearly all of the law tilted by `tilt` is between `start` and `end`."""

    tilt: float
    start: float
    end: float
    before: float  # the tilt at which Chernoff's bound says that little is left of `start`
    after: float  # and the one for the right of `end`
    top: float  # Chernoff's epsilon, which the floor will hardly exceed


@dataclass(frozen=True)
class _Grid:
    """A part's law with losses `origin + step * index`; the mean of the moves is in `origin`."""

    mass: Floats
    index: NDArray[np.int64]
    origin: float
    step: float
    variance: float  # of the moves

    def cumulant(self, tilt: float) -> float:
        return float(_log_sum(self.mass + tilt * (self.origin + self.step * self.index)))


def _composed_floor(
    parts: Sequence[tuple[_Pair, int]], delta: float, backward: bool, enough: float
) -> float:
    counts = [n for _, n in parts]
    rough = [_rough(pair, backward, _TAIL * delta / (n * len(parts))) for pair, n in parts]
    windows = _windows(rough, counts, delta)
    if not windows or 1.01 * windows[0].top < enough:
        return 0.0

    def attempt(window: _Window, size: int) -> tuple[float, float]:
        shown = [_shown(law, n, window.tilt) for law, n in zip(rough, counts, strict=True)]
        step = max(window.end - window.start, *((high - low) / 16 for low, high in shown)) / size
        step = _step(rough[counts.index(max(counts))], step)
        grids = [
            _grid(pair, backward, law, ends, step)
            for (pair, _), law, ends in zip(parts, rough, shown, strict=True)
        ]
        # Bernstein's inequality for the moves, none of which is more than a step from its mean.
        variance = sum(n * grid.variance for grid, n in zip(grids, counts, strict=True))
        odds = -math.log(_MARGIN * delta)
        moved = step * odds / 3 + math.sqrt((step * odds / 3) ** 2 + 2 * variance * odds)
        goal = delta * (1 + 2 * _MARGIN)
        return _fft_floor(grids, counts, window, goal, 2 * size), min(moved, step * sum(counts))

    # A cell of width h hides about h^2 / 12 of a part's variance, hence the size to start with.
    size = max(_SIZES[0], 2 ** math.ceil(math.log2(200 * math.sqrt(sum(counts)))))

    def promise(window: _Window) -> float:
        reached, moved = attempt(window, min(size, 2**17) // 2)
        return reached - min(moved, reached / 2)

    # Every tilt gives a floor; which one a good one shows at low resolution.
    window = max(windows, key=promise)
    while True:
        size = min(size, _SIZES[1])
        reached, moved = attempt(window, size)
        if moved < 2e-3 * reached or size == _SIZES[1]:
            return max(0.0, reached - moved)
        size *= 4


def _rough(pair: _Pair, backward: bool, ignored: float) -> tuple[Floats, Floats]:
    """The law in cells of all magnitudes, without the largest losses, of total mass `ignored`."""
    side = 1.1 * pair.limits.reach * np.geomspace(1e-13, 1, 2500)
    mass, loss = _law(pair, backward, np.r_[-math.inf, -side[::-1], side, math.inf])
    keep = np.logaddexp.accumulate(mass[::-1])[::-1] > math.log(ignored)
    return mass[keep], loss[keep]


def _peak(tilt: Floats) -> Floats:
    """The log of the largest value of e^{-tilt x} (1 - e^{-x})."""
    return xlogy(tilt, tilt) - (1 + tilt) * np.log1p(tilt)


def _windows(
    laws: Sequence[tuple[Floats, Floats]], counts: Sequence[int], delta: float
) -> list[_Window]:
    """Windows for some tilts up to the one of Chernoff's bound; none if no epsilon is above 0."""
    cumulant = np.zeros_like(_TILTS)
    for (mass, loss), n in zip(laws, counts, strict=True):
        cumulant += n * np.array([_log_sum(mass + tilt * loss) for tilt in _TILTS])
    # delta(epsilon) <= e^{cumulant(t) - t epsilon + peak(t)} for every t > 0.
    zero = len(_TILTS) - len(_POSITIVE) - 1
    tops = (cumulant[zero + 1 : -1] - math.log(delta) + _peak(_POSITIVE[:-1])) / _POSITIVE[:-1]
    top, best = float(tops.min()), zero + 1 + int(np.argmin(tops))
    windows = []
    for at in (best, best - 1, best - 3, best - 8, zero):
        if top > 0 and at >= zero:
            tilt = _TILTS[at]
            # The log of the tilted mass that may be outside: little against delta at any epsilon.
            outside = np.clip(math.log(delta) - 8 - cumulant[at] - _peak(tilt), -34, -18)
            # When tilted, log P(L beyond x) <= cumulant(t) - cumulant(tilt) - (t - tilt) x.
            rise = cumulant - cumulant[at] - outside
            gaps = _TILTS - tilt
            x = np.divide(rise, gaps, where=gaps != 0, out=np.zeros_like(rise))
            i, j = int(np.argmax(x[:at])), at + 1 + int(np.argmin(x[at + 1 :]))
            windows.append(_Window(*map(float, (tilt, x[i], x[j], _TILTS[i], _TILTS[j], top))))
    return windows


def _step(law: tuple[Floats, Floats], step: float) -> float:
    """At most `step`, at least half; divides half the gap between the largest two atoms."""
    mass, loss = law
    gap = float(np.ptp(loss[np.argsort(mass)[-2:]])) / 2
    return gap / math.ceil(gap / step) if gap > step else step


def _shown(law: tuple[Floats, Floats], n: int, tilt: float) -> tuple[float, float]:
    """The losses that matter under the tilted law; those outside are dropped."""
    mass, loss = law
    tilted = mass + tilt * loss
    shown = loss[tilted > _log_sum(tilted) - math.log(n) - 35]
    # A rough cell is 1.2 % of its loss wide.
    low, high = float(shown.min()), float(shown.max())
    return low - 0.02 * abs(low), high + 0.02 * abs(high)


def _grid(
    pair: _Pair,
    backward: bool,
    rough: tuple[Floats, Floats],
    ends: tuple[float, float],
    step: float,
) -> _Grid:
    mass, loss = rough
    centre = float(loss[np.argmax(mass)])
    first, last = math.floor((ends[0] - centre) / step), math.ceil((ends[1] - centre) / step)
    cuts = centre + step * np.arange(first - 0.5, last + 1, dtype=np.float64)
    mass, loss = _law(pair, backward, cuts)
    index = np.rint((loss - centre) / step).astype(np.int64)
    # Mean and variance of the moves, given that nothing dropped occurs.
    moves, weights = loss - centre - step * index, np.exp(mass - _log_sum(mass))
    mean = float(np.sum(weights * moves))
    return _Grid(mass, index, centre + mean, step, float(np.sum(weights * (moves - mean) ** 2)))


def _fft_floor(
    grids: Sequence[_Grid], counts: Sequence[int], window: _Window, delta: float, size: int
) -> float:
    """The largest epsilon at which the composition of the grids surely exceeds `delta`."""
    tilt, step = window.tilt, grids[0].step
    # An output of the FFT is a sum, in log2(size) rounds, of inputs times numbers of modulus 1. The
    # inputs sum to 1; so `unit` bounds its error. A power n has n times that, relative to modulus.
    unit = 8 * float(np.finfo(np.float64).eps) * math.log2(size)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    modulus, slips = np.ones(size // 2 + 1), np.ones(size // 2 + 1)
    tilts = tilt, window.before, window.after
    cumulant, origin, least, most = np.zeros(3), 0.0, 0.0, 0.0
    for grid, n in zip(grids, counts, strict=True):
        own = np.array([grid.cumulant(t) for t in tilts])
        losses = grid.origin + step * grid.index
        weights = np.bincount(grid.index % size, np.exp(grid.mass + tilt * losses - own[0]), size)
        factor = np.fft.rfft(weights)
        spectrum *= factor**n
        modulus *= (np.abs(factor) + unit) ** n
        slips += n / (np.abs(factor) + unit)
        cumulant, origin = cumulant + n * own, origin + n * grid.origin
        least, most = least + n * float(losses.min()), most + n * float(losses.max())
    # The window fills half of the FFT; a quarter of its width is left free on its left.
    first = math.ceil((window.start - (window.end - window.start) / 4 - origin) / step)
    indices = first + np.arange(size)
    losses, tilted = origin + step * indices, np.fft.irfft(spectrum, size)[indices % size]
    # The error of `tilted`, summed over it: round-off, and mass that was wrapped around.
    error = 2 * unit * float(np.sum(modulus * slips))
    for t, k, edge, beyond in (
        (window.before, cumulant[1], losses[0], least < losses[0]),
        (window.after, cumulant[2], losses[-1], most > losses[-1]),
    ):
        error += math.exp(min(0.0, k - cumulant[0] - (t - tilt) * edge)) if beyond else 0.0
    error *= math.exp(float(_peak(np.array(tilt))))
    scale = float(cumulant[0]) - math.log(delta)

    def surplus(epsilon: float) -> float:
        """The log of what delta(epsilon) at least is, relative to `delta`; -1 if it is nothing."""
        # What is so far above that the tilt makes nothing of it is left out.
        i, j = np.searchsorted(losses, (epsilon, epsilon + 60 / max(tilt, 1e-9)), side="right")
        above = losses[i:j] - epsilon
        tail = float(np.sum(tilted[i:j] * np.exp(-tilt * above) * -np.expm1(-above)))
        return math.log(tail - error) + scale - tilt * epsilon if tail > error else -1.0

    # The error counts more at a smaller epsilon. Above `low` it is less than delta / 2 and the
    # surplus falls; at the last of the losses nothing is left.
    share = math.log(2 * error) + scale
    low = max(0.0, share / tilt) if tilt > 0 else 0.0
    if (tilt == 0 and share > 0) or surplus(low) <= 0:
        return 0.0
    high = window.top if surplus(window.top) < 0 else float(losses[-1])
    found = brentq(surplus, low, high, xtol=1e-6 * window.top)
    return max(0.0, found - 2e-6 * window.top)
