"""Random allocation: what it costs when each unit's one step of many is drawn in secret.

The pair. A unit takes part in step k, uniform on 1, ..., T, and step t releases
y_t = [k = t] v_t + N(0, I), where |v_t| <= mu may depend on y_1, ..., y_{t-1}. (Noise is scaled to
1; the others' sums, which depend on their own steps and on what was released before, are taken
off.) Its replacement has u_t in place of v_t, and its step is drawn in the same way. Against R, the
law of noise alone, the densities of the two transcripts are (1/T) sum of W_t and (1/T) sum of V_t
with W_t = exp(v_t'y_t - |v_t|^2/2) and V_t likewise with u_t, so that at every gamma >= 0

    H_gamma  =  sup over tests f of  P(f) - gamma Q(f)  =  (1/T) E_R[(sum of (W_t - gamma V_t))_+].

Theorem. It is largest, for all gamma at once, if v_t = mu and u_t = -mu in one dimension:

    H_gamma  <=  (1/T) E[(X_1 + ... + X_T)_+],
    X_t  =  e^(mu z_t - mu^2/2) - gamma e^(-mu z_t - mu^2/2),    z_t independent standard normal.

Proof. Given y_1, ..., y_{t-1}, let Y = W_t - gamma V_t. It has the mean 1 - gamma, as has X. For
every c, E[(Y - c)_+] = sup over f of A(f) - gamma B(f) - c N(f), with A = N(v_t, I), B = N(u_t, I),
N = N(0, I). If N(f) = a, Neyman and Pearson's lemma says A(f) <= Phi(Phi^-1(a) + mu) and
B(f) >= Phi(Phi^-1(a) - mu); for v = mu, u = -mu the half line of level a reaches both at once.
Hence E[(Y - c)_+] <= E[(X - c)_+] for all c: Y is below X in convex order, given the past. So
E[g(s + Y)] <= E[g(s + X)] for every convex g and number s, and s -> E[g(s + X)] is convex again:
replace the steps by independent X from the last to the first, beginning with g(s) = (s)_+.
Averaging over the others' steps only lowers H (joint convexity). Contributions that are opposite
reach the bound, so it is exact. As it holds for every gamma, the pair of (1/T) sum of N(mu e_k, I)
and (1/T) sum of N(-mu e_k, I) dominates, which is what composition with other events needs (Zhu,
Dong, Wang 2022).

If a unit is added or removed, V_t = 1 (nothing is brought in), and in the same way
X = e^(mu z - mu^2/2) - gamma (removed) and X = 1 - gamma e^(mu z - mu^2/2) (added). These are the
pairs of Feldman and Shenfeld (2025) and of Chua et al. (2024).

Numbers. X is moved onto a grid by splitting the mass of a cell between its two ends so that its
mean stays, which raises X in convex order, and with it the answer. Above, X is cut off at a point
m, for which E[(X - m)_+] is added to the answer, as (a + b)_+ <= a_+ + b_+; below it is moved up.
The T-fold convolution is a power of the FFT, of the law tilted by e^(theta x) (see `grid.py`);
wrapping around only adds to the answer, and what is beyond the window is added by Chernoff's bound,
as is a bound on the round-off.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privrl.core.types import Array
from privrl.privacy.accounting.losses import Curve, GaussianShift, gaussian_delta, lower_hull
from privrl.privacy.accounting.roots import brent

Complexes = NDArray[np.complex128]

_ROUNDING = 16.0 * np.finfo(np.float64).eps
# Points of the FFT, and the most of them; a window leaves out e^-_LEFT_OUT of the tilted mass.
POINTS, _MOST_POINTS = 2**16, 2**20
_TAIL_EXPONENT = 36.0
# The share of the answer that may be cut off above, roughly.
_CUT = 1e-4
# Changes of tilt, in standard deviations, that Chernoff's bounds are tried with.
_STEPS = np.geomspace(0.25, 60.0, 24)
# Deltas below this are not worth more than the bound that is at hand.
_NEGLIGIBLE = 1e-40
# Nodes of the curve of a random allocation for each deviation of its loss, and points for each.
_NODES, _POINTS_OF_NODES = 8, 2**14
_FAR = 12.0  # deviations below which X is moved up at the latest


@dataclass(frozen=True)
class _Term:
    """X = up e^(mu z - mu^2/2) - down e^(-mu z - mu^2/2) - rest, which rises with z."""

    mu: float
    up: float
    down: float
    rest: float

    def value(self, z: Array) -> Array:
        half = self.mu**2 / 2
        return np.asarray(
            self.up * np.exp(self.mu * z - half)
            - self.down * np.exp(-self.mu * z - half)
            - self.rest
        )

    def inverse(self, x: Array) -> Array:
        """The z at which X is x; infinite where X is above or below it for all z."""
        y = (x + self.rest) * math.exp(self.mu**2 / 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.up == 0.0:
                return np.asarray(-np.log(np.maximum(-y, 0.0) / self.down) / self.mu)
            if self.down == 0.0:
                return np.asarray(np.log(np.maximum(y, 0.0) / self.up) / self.mu)
            root = np.hypot(y, 2.0 * math.sqrt(self.up * self.down))
            t = np.where(y > 0.0, (y + root) / (2.0 * self.up), 2.0 * self.down / (root - y))
            return np.asarray(np.log(t) / self.mu)


def replace_delta(mu: float, steps: int, epsilon: float, points: int = POINTS) -> float:
    """At least the delta at `epsilon` if a unit is replaced: infinite where there is no figure."""
    gamma = math.exp(min(epsilon, 300.0))
    low = _max_test(mu, -mu, steps, gamma)
    return _mean_excess(_Term(mu, 1.0, gamma, 0.0), steps, low, points)


def add_remove_delta(mu: float, steps: int, epsilon: float, points: int = POINTS) -> float:
    """At least the delta at `epsilon` if a unit is removed, or added: the larger of the two."""
    gamma = math.exp(min(epsilon, 300.0))
    low = _max_test(mu, 0.0, steps, gamma)
    gone = _mean_excess(_Term(mu, 1.0, 0.0, gamma), steps, low, points)
    come = _mean_excess(_Term(mu, 0.0, gamma, -1.0), steps, low, points)
    return max(gone, come)


def _max_test(mu: float, other: float, steps: int, gamma: float) -> float:
    """What the test "the largest coordinate is above x" shows at least: a scale for the cut."""
    from scipy.special import log_ndtr

    x = np.linspace(0.0, 37.0 + mu, 400)
    others = (steps - 1) * log_ndtr(x)
    seen = -np.expm1(others + log_ndtr(x - mu)) + gamma * np.expm1(others + log_ndtr(x - other))
    return max(float(seen.max()), 1e-290)


def _mean_excess(term: _Term, steps: int, low: float, points: int) -> float:
    """At least E[(X_1 + ... + X_steps)_+] / steps."""
    from scipy.special import ndtr, ndtri

    def reach(weight: float) -> float:
        """How far out there is `_CUT` of the answer left of a term with this weight."""
        return max(1.0, term.mu - float(ndtri(min(0.5, _CUT * low / weight))))

    near, far, cut = _FAR, 40.0, 0.0
    if term.up > 0.0:
        far = reach(term.up)
        cut = term.up * float(ndtr(term.mu - far))
    if term.down > 0.0:
        near = min(_FAR, reach(term.down))
    if term.mu * max(far, near) > 300.0 or term.down > 1e120 or term.rest > 1e120:
        return math.inf  # beyond the range of doubles
    bottom = float(term.value(np.array(-near)))
    top = float(term.value(np.array(far))) if term.up > 0.0 else -term.rest
    rough = _RoughCumulants(term, near, far, top)
    tilt = rough.best_tilt()
    start, end, spread = rough.window(tilt, steps)
    start, end = max(start, steps * bottom), min(end, steps * top)
    bottom = max(start, bottom)
    while (end - start) / points > 0.1 * spread and points < _MOST_POINTS:
        points *= 2
    interval = max(1.01 * (end - start) / points, (top - bottom) / (4 * points))
    law = _discretise(term, interval, bottom, top)
    return cut + _mean_positive_part(law, tilt, steps, start, end, interval) / steps


class _RoughCumulants:
    """Cumulants of X to choose a tilt and a window by; nothing rests on their accuracy."""

    def __init__(self, term: _Term, near: float, far: float, top: float) -> None:
        z = np.linspace(-near, far, 2001)
        self.x = np.minimum(term.value(z), top)
        self.log_weights = -(z**2) / 2
        self.log_weights -= math.log(float(np.exp(self.log_weights).sum()))
        self.scale = math.sqrt(float(np.exp(self.log_weights) @ self.x**2)) or 1.0

    def cumulant(self, tilt: float) -> float:
        exponents = self.log_weights + tilt * self.x
        most = float(exponents.max())
        return most + math.log(float(np.exp(exponents - most).sum()))

    def best_tilt(self) -> float:
        """The tilt with which Chernoff's bound on the sum's being above 0 is least."""
        from scipy.optimize import minimize_scalar

        found = minimize_scalar(
            lambda u: self.cumulant(math.exp(u) / self.scale),
            bounds=(-15.0, 10.0),
            method="bounded",
            options={"xatol": 1e-2},
        )
        return math.exp(float(found.x)) / self.scale

    def window(self, tilt: float, steps: int) -> tuple[float, float, float]:
        """Where nearly all of the tilted law of the sum is, and the deviation of one X."""
        at = self.cumulant(tilt)
        weights = np.exp(self.log_weights + tilt * self.x - at)
        mean = float(weights @ self.x)
        spread = math.sqrt(max(float(weights @ (self.x - mean) ** 2), 1e-300))
        moves = _STEPS / (spread * math.sqrt(steps))
        ends = [(steps * (self.cumulant(tilt + d) - at) + _TAIL_EXPONENT) / d for d in moves]
        starts = [-(steps * (self.cumulant(tilt - d) - at) + _TAIL_EXPONENT) / d for d in moves]
        # The window has points on both sides of 0 in any case: the answer is about those above.
        return min(max(starts), -10.0 * spread), max(min(ends), 10.0 * spread), spread


@dataclass(frozen=True, eq=False)
class _Law:
    """Masses at (first, first + 1, ...) times the interval."""

    first: int
    masses: Array


def _discretise(term: _Term, interval: float, bottom: float, top: float) -> _Law:
    """X on the grid: every cell's mass is split between its ends, so that the mean stays."""
    from scipy.special import ndtr

    first, last = math.floor(bottom / interval), math.ceil(top / interval)
    x = np.arange(first, last + 1) * interval
    z = np.clip(term.inverse(x), -40.0, 40.0)

    def between(shift: float) -> Array:
        """N(shift, 1) of each cell, from the smaller of its tails."""
        below, above = ndtr(z - shift), ndtr(shift - z)
        return np.maximum(np.where(z[1:] < shift, np.diff(below), -np.diff(above)), 0.0)

    mass = between(0.0)
    plus = term.up * between(term.mu) if term.up > 0.0 else 0.0
    minus = term.down * between(-term.mu) if term.down > 0.0 else 0.0
    excess = plus - minus - (term.rest + x[:-1]) * mass
    slips = plus + minus + (abs(term.rest) + np.abs(x[:-1])) * mass
    # Round-off moves mass up, never down.
    raised = np.clip((excess + 2.0 * _ROUNDING * slips) / interval, 0.0, mass)
    masses = np.zeros(x.size)
    masses[:-1] += mass - raised
    masses[1:] += raised
    masses[0] += float(ndtr(z[0]))
    masses[-1] += float(ndtr(-z[-1]))
    return _Law(first, masses * (1.0 + _ROUNDING))


def _mean_positive_part(
    law: _Law, tilt: float, steps: int, start: float, end: float, interval: float
) -> float:
    """At least E[(sum)_+] of `steps` independent draws from `law`."""
    from scipy.fft import irfft, next_fast_len, rfft

    indices = np.arange(law.first, law.first + law.masses.size)
    with np.errstate(divide="ignore"):
        logs = np.log(law.masses)

    def cumulant(at: float) -> float:
        exponents = at * interval * indices
        exponents += logs
        most = float(exponents.max())
        exponents -= most
        return most + math.log(float(np.exp(exponents, out=exponents).sum()))

    value = cumulant(tilt)
    last = math.ceil(end / interval)
    size = int(next_fast_len(last - math.floor(start / interval) + 1, real=True))
    folded = np.bincount(indices % size, np.exp(logs + tilt * interval * indices - value), size)
    spectrum = _power(rfft(folded), steps)
    # Of the sum, the points of the window above 0, and what each weighs in the answer.
    above = np.arange(1, last + 1)
    weights = above * interval * np.exp(-tilt * interval * above)
    masses = np.maximum(irfft(spectrum, size)[above % size], 0.0)
    rounds = steps + math.log2(size)
    error = _ROUNDING * rounds * float(np.mean(np.abs(spectrum))) + _ROUNDING / size
    inside = float(np.sum((masses * (1.0 + _ROUNDING * rounds) + error) * weights))
    # Exponents are rounded relatively, and the power multiplies that.
    slack = _ROUNDING * steps * (abs(value) + tilt * interval * float(np.abs(indices).max()))
    answer = math.exp(min(steps * value + slack, 700.0)) * inside
    if last * interval < steps * interval * int(indices[-1]):
        # E[S; S > u] <= e^(cumulant(t)) u e^(-t u) for u >= 1/t.
        edge = last * interval
        beyond = math.inf
        for move in (0.0, *(_STEPS * 2.0 / max(edge, interval))):
            t = tilt + move
            bound = steps * cumulant(t) - t * edge + math.log(max(edge, 1.0 / t))
            if bound > beyond:
                break  # it is convex in t
            beyond = bound
        answer += math.exp(min(beyond, 700.0))
    return answer


def _power(base: Complexes, exponent: int) -> Complexes:
    """base^exponent by squaring: NumPy's own power of complex numbers takes ten times as long."""
    found: Complexes | None = None
    while True:
        if exponent % 2:
            found = base if found is None else found * base
        exponent //= 2
        if exponent == 0:
            assert found is not None
            return found
        base = base * base


@lru_cache(maxsize=4096)
def delta(mu: float, steps: int, epsilon: float, replace: bool, points: int = POINTS) -> float:
    """At least the delta of random allocation; `mu` is one contribution over the noise."""
    found = (replace_delta if replace else add_remove_delta)(mu, steps, epsilon, points)
    return min(found, 1.0)


@dataclass(frozen=True)
class AllocationLoss(Curve):
    """Random allocation to one of `steps` steps, `mu` being one contribution over the noise.

    (1/T) sum of N(mu e_k, I) against (1/T) sum of N(-mu e_k, I) if a unit is replaced
    (`exchanged`), against N(0, I) if it is added or removed; the module proves that these
    dominate. Told the step, which is independent of the data, it is Gaussian noise without
    sampling; telling it only helps, so that this is a bound as well, and the smaller one counts.
    """

    mu: float
    steps: int
    exchanged: bool

    @property
    def known_step_loss(self) -> GaussianShift:
        """The loss if the step is told."""
        return GaussianShift(2.0 * self.mu if self.exchanged else self.mu)

    @property
    def upper_truncation(self) -> float:
        return self.known_step_loss.upper_truncation

    @property
    def spread(self) -> float:
        chi = math.sqrt(math.expm1(min(self.mu, 3.0) ** 2) / self.steps)
        return min(self.known_step_loss.mu, 2.0 * chi if self.exchanged else chi)

    def delta(self, epsilon: float, points: int = POINTS) -> float:
        known = gaussian_delta(self.known_step_loss.mu, epsilon)
        if known < _NEGLIGIBLE:
            return known
        return min(known, delta(self.mu, self.steps, epsilon, self.exchanged, points))

    def epsilon(self, delta: float, high: float) -> float:
        """The smallest epsilon found to suffice, up to a part in 10^9, given that `high` does."""

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
        found = brent(margin, low, found, 1e-9 * found)
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
        further = math.log(max(self.upper_truncation / straight[-1], 1.0 + 1e-9))
        wider = straight[-1] * np.exp(np.linspace(0.0, further, 2 + math.ceil(_NODES**2 * further)))
        nodes = np.append(straight, wider[1:])
        nodes = np.append(
            nodes[nodes < self.upper_truncation], max(self.upper_truncation, float(epsilons[-1]))
        )
        deltas = np.array([self.delta(float(node), _POINTS_OF_NODES) for node in nodes])
        # The true curve is convex in e^epsilon; so it lies below the convex hull of any bound.
        x = np.exp(nodes)
        return np.interp(np.exp(epsilons), x, lower_hull(x, deltas))
