"""Privacy losses: for each kind of event the law of log P/Q of a pair that dominates it.

Noise is normalised to unit scale and the pair's distance is given: which distance an event stands
for under a relation is decided in `accounting.py` and nowhere else. Every law knows how to put
itself on a grid; those with closed forms have them here too.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from privrl.core.errors import UnsupportedError
from privrl.core.types import Array
from privrl.privacy import allocation, grid
from privrl.privacy.grid import GridPair, Tails

# Losses beyond this many standard deviations of a Gaussian go to the infinite loss: Phi(-14) is
# 8e-45, so that even 10^9 compositions add less than 1e-35 to delta.
TAIL_SDS = 14.0
# Deltas below this are not worth more than the bound that is at hand.
_NEGLIGIBLE = 1e-40
# Nodes of the curve of a random allocation for each deviation of its loss, and points for each.
_NODES, _POINTS_OF_NODES = 8, 2**14
# Finite laws are enumerated exactly up to this many distinct values.
MOST_ATOMS = 2_000_000


@dataclass(frozen=True)
class Loss:
    """A privacy-loss law.

    `largest` is its essential supremum; `spread` is roughly its deviation; `near` and `far` are the
    ends between which all but a negligible mass lies; `symmetric` says that the reversed pair has
    the same law.
    """

    symmetric: ClassVar[bool] = True

    @property
    def largest(self) -> float:
        return math.inf

    @property
    def spread(self) -> float:
        raise NotImplementedError

    @property
    def far(self) -> float:
        return self.largest

    @property
    def near(self) -> float:
        return -self.far

    def on_grid(self, interval: float) -> GridPair:
        """The law on a grid of the given interval, never smaller than the truth."""
        raise NotImplementedError


@dataclass(frozen=True)
class Pair(Loss):
    """A loss known by the tails of its two laws."""

    def tails(self, losses: Array) -> Tails:
        raise NotImplementedError

    def on_grid(self, interval: float) -> GridPair:
        return grid.from_tails(self.tails, self.near, self.far, self.symmetric, interval)


@dataclass(frozen=True)
class GaussianShift(Pair):
    """N(mu, 1) against N(0, 1)."""

    mu: float

    @property
    def spread(self) -> float:
        return self.mu

    @property
    def far(self) -> float:
        return self.mu**2 / 2 + TAIL_SDS * self.mu

    def tails(self, losses: Array) -> Tails:
        return _gaussian_tails(losses / self.mu + self.mu / 2, self.mu, 0.0, 1.0)

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
class Atoms(Loss):
    """A finite law; `leak` is the mass of the infinite loss."""

    @property
    def leak(self) -> float:
        return 0.0

    def atoms(self) -> tuple[Array, Array]:
        """Loss values and their probabilities given no leak."""
        raise NotImplementedError

    def on_grid(self, interval: float) -> GridPair:
        losses, masses = self.atoms()
        return grid.from_atoms(losses, masses * (1.0 - self.leak), self.leak, interval)


@dataclass(frozen=True)
class Response(Atoms):
    """Randomised response among `categories`, preceded by telling all with probability `told`."""

    epsilon: float
    categories: int = 2
    told: float = 0.0

    @property
    def leak(self) -> float:
        return self.told

    @property
    def largest(self) -> float:
        return self.epsilon if self.told == 0.0 else math.inf

    @property
    def far(self) -> float:
        return self.epsilon

    @property
    def spread(self) -> float:
        return self.epsilon

    def atoms(self) -> tuple[Array, Array]:
        # e^-epsilon as the unit of weight, so that a huge epsilon cannot overflow.
        lie = math.exp(-self.epsilon)
        weights = np.array([1.0, lie, (self.categories - 2) * lie])
        return np.array([self.epsilon, -self.epsilon, 0.0]), weights / weights.sum()

    def tails(self, losses: Array) -> Tails:
        # In the part that tells all, P shows a symbol of infinite loss and Q one of minus infinity.
        values, masses = self.atoms()
        above = losses[:, None] < values[None, :]
        kept = 1.0 - self.told
        # Under Q truth and lie change places, which is what e^-loss amounts to, without overflow.
        p, q = kept * masses, kept * masses[[1, 0, 2]]
        return Tails(above @ p + self.told, ~above @ p, above @ q, ~above @ q + self.told)

    def profile(self, epsilons: Array) -> Array:
        """delta at each epsilon >= 0."""
        values, masses = self.atoms()
        gains = -np.expm1(np.minimum(epsilons[:, None] - values[None, :], 0.0))
        return self.told + (1.0 - self.told) * np.asarray(gains @ masses)


@dataclass(frozen=True)
class DiscreteLaplaceShift(Atoms):
    """Discrete Laplace noise P(k) ~ e^(-rate |k|), shifted by `steps` against unshifted."""

    rate: float
    steps: int

    @property
    def largest(self) -> float:
        return self.rate * self.steps

    @property
    def spread(self) -> float:
        return self.largest

    def atoms(self) -> tuple[Array, Array]:
        # Noise k on the shifted side sees the loss rate (|k + steps| - |k|): all k >= 0 see the
        # largest, all k <= -steps its negative, and each value between is seen once.
        between = np.arange(-self.steps + 1, 0, dtype=np.float64)
        one = -math.expm1(-self.rate) / (1.0 + math.exp(-self.rate))
        tail = 1.0 / (1.0 + math.exp(-self.rate))
        losses = np.concatenate(
            ([self.largest], self.rate * (2 * between + self.steps), [-self.largest])
        )
        masses = np.concatenate(
            ([tail], one * np.exp(self.rate * between), [tail * math.exp(-self.largest)])
        )
        return losses, masses


@dataclass(frozen=True)
class DiscreteGaussianShift(Atoms):
    """Discrete Gaussian noise of parameter std, shifted by `steps` against unshifted."""

    std: float
    steps: int

    @property
    def spread(self) -> float:
        return self.steps / self.std

    @property
    def far(self) -> float:
        return self.steps * (self.steps + 2.0 * TAIL_SDS * self.std + 4.0) / (2.0 * self.std**2)

    @property
    def leak(self) -> float:
        # The noise is sub-Gaussian with parameter std (Canonne, Kamath, Steinke 2020), so this
        # bounds what the enumeration leaves out.
        return 2.0 * math.exp(-(TAIL_SDS**2) / 2)

    def atoms(self) -> tuple[Array, Array]:
        reach = math.ceil(TAIL_SDS * self.std) + 1
        noise = np.arange(-reach, reach + 1, dtype=np.float64)
        weights = np.exp(-0.5 * (noise / self.std) ** 2)
        losses = self.steps * (self.steps + 2.0 * noise) / (2.0 * self.std**2)
        return losses, weights / weights.sum()


@dataclass(frozen=True)
class Concentrated(Loss):
    """Any law with Renyi divergence at most rho a at every order a, both ways (rho-zCDP)."""

    rho: float

    @property
    def spread(self) -> float:
        return math.sqrt(2.0 * self.rho)

    @property
    def far(self) -> float:
        return self.rho + TAIL_SDS * math.sqrt(2.0 * self.rho)

    def profile(self, epsilons: Array) -> Array:
        """A bound on delta at each epsilon >= 0."""
        if epsilons[-1] > 600.0:
            raise UnsupportedError(
                "Discrete Gaussian noise this small in several dimensions cannot be combined with "
                "other events: its losses are beyond the range of doubles."
            )
        deltas = concentrated_delta(self.rho, epsilons)
        # The true curve is convex in e^epsilon; so it lies below the convex hull of any bound.
        return _lower_hull(np.exp(epsilons), deltas)

    def on_grid(self, interval: float) -> GridPair:
        return grid.from_profile(self.profile, self.far, interval)


@dataclass(frozen=True)
class PoissonAddRemove(Pair):
    """(1 - rate) Q + rate P against Q, and the reverse, for a dominating pair P, Q of `base`.

    Zhu, Dong, Wang 2022, Theorem 11. The loss l' = log(1 - rate + rate e^l) rises with the base's.

    One step has a closed form. For every event E and epsilon >= 0, the mixture's probability of E
    less e^epsilon Q(E) is rate (P(E) - e^inner Q(E)) with e^inner = 1 + (e^epsilon - 1) / rate, so
    delta is rate delta_base(inner). The reversed pair loses no more: with x = e^epsilon - 1 and
    a = rate - (1 - rate) x, Q(E) less e^epsilon times the mixture's is a Q(E) - rate e^epsilon P(E)
    = a (Q(E) - e^other P(E)), nothing if a <= 0. But a <= rate; and other >= inner, as
    rate^2 (1 + x) - (rate + x) a = (1 - rate) x^2 >= 0; and the base is its own mirror image.
    """

    base: "Simple"
    rate: float

    symmetric: ClassVar[bool] = False

    @property
    def largest(self) -> float:
        return amplified(self.base.largest, self.rate)

    @property
    def far(self) -> float:
        return amplified(self.base.far, self.rate)

    @property
    def near(self) -> float:
        return math.log1p(-self.rate)

    @property
    def spread(self) -> float:
        return _sampled_spread(self.base, self.rate)

    def tails(self, losses: Array) -> Tails:
        base = self.base.tails(before_sampling(losses, self.rate))
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
    def far(self) -> float:
        # Above both losses that the mixture is made of: drawn against absent, absent against drawn.
        once = GaussianShift(self.mu).far
        return amplified(once, self.rate) - math.log1p(-self.rate)

    @property
    def spread(self) -> float:
        return 2.0 * _sampled_spread(GaussianShift(self.mu), self.rate)

    def profile(self, epsilons: Array) -> Array:
        """delta of one step at each epsilon >= 0, rounded up."""
        from scipy.special import expit, log_ndtr

        mu, log_in, log_out = self.mu, math.log(self.rate), math.log1p(-self.rate)
        x = self._where(epsilons)
        for _ in range(2):  # Newton's steps restore the digits that small losses lose above
            up, down = (side * mu * x - mu**2 / 2 for side in (1.0, -1.0))
            loss = _amplified(up, self.rate) - _amplified(down, self.rate)
            slope = mu * (expit(up + log_in - log_out) + expit(down + log_in - log_out))
            x = x - np.divide(loss - epsilons, slope, where=slope > 0.0, out=np.zeros_like(x))
        with np.errstate(divide="ignore"):
            absent = log_out + _log_expm1(epsilons) + log_ndtr(-x)
        costs = np.logaddexp(absent, log_in + epsilons + log_ndtr(-mu - x))
        # Any x is a test, so what x is off by counts in squares; the terms themselves, each of
        # few operations, are off by some units in the last place of their largest part.
        doubt = 8.0 - log_in - log_out + epsilons + (mu + np.abs(x)) ** 2
        return np.exp(_log_surplus(log_in + log_ndtr(mu - x), costs, doubt))

    def tails(self, losses: Array) -> Tails:
        x = self._where(losses)
        p = _gaussian_tails(x, self.mu, 0.0, self.rate)
        q = _gaussian_tails(x, -self.mu, 0.0, self.rate)
        return Tails(p.p_above, p.p_below, q.p_above, q.p_below)

    def _where(self, losses: Array) -> Array:
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
class FixedSize(Loss):
    """A fraction `rate` drawn without replacement; `base` is the loss of a full replacement.

    Drawn or not, and replaced or not, the conditional laws are all one replacement apart, so
    delta(log(1 + rate (e^eps - 1))) <= rate delta_base(eps) both ways for eps >= 0 (advanced joint
    convexity; Balle, Barthe, Gaboardi 2018). The curve, symmetrised, belongs to a dominating pair.
    """

    base: "Simple"
    rate: float

    @property
    def largest(self) -> float:
        return amplified(self.base.largest, self.rate)

    @property
    def far(self) -> float:
        return amplified(self.base.far, self.rate)

    @property
    def spread(self) -> float:
        return _sampled_spread(self.base, self.rate)

    def profile(self, epsilons: Array) -> Array:
        """delta at each epsilon >= 0."""
        return self.rate * self.base.profile(before_sampling(epsilons, self.rate))

    def on_grid(self, interval: float) -> GridPair:
        return grid.from_profile(self.profile, self.far, interval)


@dataclass(frozen=True)
class Allocated(Loss):
    """Random allocation to one of `steps` steps, `mu` being one contribution over the noise.

    (1/T) sum of N(mu e_k, I) against (1/T) sum of N(-mu e_k, I) if a unit is replaced
    (`exchanged`), against N(0, I) if it is added or removed; `allocation.py` proves that these
    dominate. Told the step, which is independent of the data, it is Gaussian noise without
    sampling; telling it only helps, so that this is a bound as well, and the smaller one counts.
    """

    mu: float
    steps: int
    exchanged: bool

    @property
    def known(self) -> GaussianShift:
        """The loss if the step is told."""
        return GaussianShift(2.0 * self.mu if self.exchanged else self.mu)

    @property
    def far(self) -> float:
        return self.known.far

    @property
    def spread(self) -> float:
        chi = math.sqrt(math.expm1(min(self.mu, 3.0) ** 2) / self.steps)
        return min(self.known.mu, 2.0 * chi if self.exchanged else chi)

    def delta(self, epsilon: float, points: int = allocation.POINTS) -> float:
        known = gaussian_delta(self.known.mu, epsilon)
        if known < _NEGLIGIBLE:
            return known
        return min(known, allocation.delta(self.mu, self.steps, epsilon, self.exchanged, points))

    def epsilon(self, delta: float, high: float) -> float:
        """The smallest epsilon found to suffice, up to a part in 10^9, given that `high` does."""
        from scipy.optimize import brentq

        def margin(epsilon: float) -> float:
            return math.log(max(self.delta(epsilon), 1e-300) / delta)

        if margin(0.0) <= 0.0:
            return 0.0
        # From below: bounds on the round-off of very many steps grow with epsilon, so that more
        # may seem not to suffice where less did.
        low, found = 0.0, high / 256
        while found < high and margin(found) > 0.0:
            low, found = found, 2.0 * found
        if found >= high and margin(high) >= 0.0:
            return high
        found = float(brentq(margin, low, found, xtol=1e-9 * found))
        step = 1e-9 * high
        while margin(found) > 0.0:
            found, step = min(found + step, high), 2.0 * step
        # A rounder number below, such as the one that noise was calibrated to, if that suffices.
        rounder = float(f"{found:.8g}")
        return rounder if rounder < found and margin(rounder) <= 0.0 else found

    def profile(self, epsilons: Array) -> Array:
        """At least delta at each epsilon >= 0: between nodes by chords in e^epsilon."""
        fine = self.spread / _NODES
        straight = fine * np.arange(_NODES**2 + 1)
        further = math.log(max(self.far / straight[-1], 1.0 + 1e-9))
        wider = straight[-1] * np.exp(np.linspace(0.0, further, 2 + math.ceil(_NODES**2 * further)))
        nodes = np.append(straight, wider[1:])
        nodes = np.append(nodes[nodes < self.far], max(self.far, float(epsilons[-1])))
        deltas = np.array([self.delta(float(node), _POINTS_OF_NODES) for node in nodes])
        # The true curve is convex in e^epsilon; so it lies below the convex hull of any bound.
        x = np.exp(nodes)
        return np.interp(np.exp(epsilons), x, _lower_hull(x, deltas))

    def on_grid(self, interval: float) -> GridPair:
        return grid.from_profile(self.profile, self.far, interval)


Simple = GaussianShift | LaplaceShift | Response


def _gaussian_tails(x: Array, mean: float, other: float, share: float) -> Tails:
    """Tails at x of share N(mean, 1) + (1 - share) N(0, 1), and of N(other, 1)."""
    from scipy.special import ndtr

    rest = 1.0 - share
    p_above = share * ndtr(mean - x) + rest * ndtr(-x)
    p_below = share * ndtr(x - mean) + rest * ndtr(x)
    return Tails(p_above, p_below, ndtr(other - x), ndtr(x - other))


def amplified(epsilon: float, rate: float) -> float:
    """log(1 + rate (e^epsilon - 1)), without overflow."""
    if math.isinf(epsilon):
        return math.inf
    if epsilon < 500.0:
        return math.log1p(rate * math.expm1(epsilon))
    return epsilon + math.log(rate + (1.0 - rate) * math.exp(-epsilon))


def _amplified(losses: Array, rate: float) -> Array:
    """`amplified` of each loss, of either sign."""
    large = np.logaddexp(math.log1p(-rate), math.log(rate) + losses)
    return np.where(losses < 500.0, np.log1p(rate * np.expm1(np.minimum(losses, 500.0))), large)


def before_sampling(losses: Array, rate: float) -> Array:
    """The inverse of `amplified`: log((e^l - 1 + rate) / rate), -inf from log(1 - rate) down."""
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


# --- closed forms ---------------------------------------------------------------------------------


def _log_expm1(x: Array) -> Array:
    return np.asarray(x + np.log(-np.expm1(-x)))


def _log_surplus(gain: Array, cost: Array, doubt: Array) -> Array:
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
    within = _log_surplus(log_ndtr(-u), costs, 8.0 + 3.0 * v * (1.0 + np.abs(u)))
    return np.where(far, log_ndtr(-_FAR), np.where(near, 0.0, within))


def gaussian_delta(mu: float, epsilon: float) -> float:
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


def _lower_hull(x: Array, y: Array) -> Array:
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


# --- finite laws ----------------------------------------------------------------------------------


class Law(NamedTuple):
    """Loss values, the logarithms of their probabilities, and the mass of the infinite loss."""

    losses: Array
    log_masses: Array
    leak: float

    def delta(self, epsilon: float) -> float:
        gains = -np.expm1(np.minimum(epsilon - self.losses, 0.0))
        return self.leak + (1.0 - self.leak) * float(gains @ np.exp(self.log_masses))

    def epsilon(self, delta: float) -> float:
        """Exact: between two loss values, delta is linear in e^epsilon."""
        if delta < self.leak:
            return math.inf
        wanted = (delta - self.leak) / (1.0 - self.leak)
        order = np.argsort(-self.losses)
        losses, log_masses = self.losses[order], self.log_masses[order]
        positive = (losses > 0.0) & (log_masses > -np.inf)
        losses, log_masses = losses[positive], log_masses[positive]
        if not losses.size:
            return 0.0
        # In logarithms, since e^-loss is no double any more for losses beyond 745.
        upper = np.exp(np.logaddexp.accumulate(log_masses))
        log_lower = np.logaddexp.accumulate(log_masses - losses)
        with np.errstate(divide="ignore", invalid="ignore"):
            candidates = np.where(upper > wanted, np.log(upper - wanted) - log_lower, -np.inf)
        # With the largest k values above epsilon, it is candidates[k - 1], if the next is below it.
        following = np.append(losses[1:], 0.0)
        fits = np.flatnonzero(candidates >= following)
        return max(0.0, float(candidates[fits[0]])) if fits.size else 0.0


def sum_of(loss: Atoms, times: int) -> tuple[Array, Array] | None:
    """Values and log probabilities of the sum of `times` such losses, or None if too many."""
    if times == 1:
        values, masses = loss.atoms()
        with np.errstate(divide="ignore"):
            return values, np.log(masses)
    if not isinstance(loss, Response) or times + 1 > MOST_ATOMS:
        return None
    from scipy.stats import binom

    # How many answers were informative at all, and of these how many spoke for the truth.
    honest = 1.0 / (1.0 + math.exp(-loss.epsilon))
    if loss.categories == 2:
        true = np.arange(times + 1)
        return loss.epsilon * (2.0 * true - times), binom.logpmf(true, times, honest)
    if (times + 1) * (times + 2) // 2 > MOST_ATOMS:
        return None
    lie = math.exp(-loss.epsilon)
    informative = (1.0 + lie) / (1.0 + lie * (loss.categories - 1))
    told, true = np.tril_indices(times + 1)
    pairs = binom.logpmf(told, times, informative) + binom.logpmf(true, told, honest)
    return loss.epsilon * (2.0 * true - told), pairs
