"""The pair of laws that dominates a random allocation: moments and, by FFT, masses."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr

from privrl.core.types import Floats
from privrl.privacy.second_accountant.pairs import FAR, Limits, Pair, log_diff_exp, logsumexp

_SIZE = 2**17  # points of the FFT


@dataclass(frozen=True)
class AllocationPair(Pair):
    """(1/T) sum of N(m e_k, I), and the same with -m (one replaced) or N(0, I) (one removed).

    It dominates: with W_t and V_t the likelihood ratios of the two contributions of step t against
    noise alone, H_gamma is E[(sum of (W_t - gamma V_t))_+] / T. Given the steps before it, every
    stop-loss transform of W_t - gamma V_t is largest for opposite contributions, by the argument
    for `PoissonReplacePair`; that is convex order, which sums keep if each is replaced in turn,
    from the last to the first.
    """

    m: float
    steps: int
    exchanged: bool
    lean: float = 0.0  # the loss at which the statistic of `cells` tells most

    @property
    def _known_step_mu(self) -> float:
        return self.m * (2 if self.exchanged else 1)

    @property
    def limits(self) -> Limits:
        return Limits(
            0.0, math.inf, math.inf, self._known_step_mu**2 / 2 + FAR * self._known_step_mu
        )

    def log_moment(self, orders: Floats) -> Floats:
        # Told the step, it is Gaussian noise.
        known = orders * (orders - 1) * self._known_step_mu**2 / 2
        integers, moments = _allocation_moments(self.m, self.steps, self.exchanged)
        secret = np.interp(orders, np.r_[1, integers], np.r_[0, moments], right=math.inf)
        return np.minimum(known, secret)

    def cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        return self._cells(cuts, False)

    def mirror_cells(self, cuts: Floats) -> tuple[Floats, Floats]:
        """The cells of the mirror image."""
        return self._cells(cuts, True)

    def _cells(self, cuts: Floats, backward: bool) -> tuple[Floats, Floats]:
        p, q, loss = _masses_by_loss(self, backward)
        at = np.searchsorted(loss, cuts)

        def log_cell_masses(masses: Floats) -> Floats:
            sums = np.add.reduceat(masses, at)[:-1]
            with np.errstate(divide="ignore"):
                return np.log(np.where(at[1:] > at[:-1], sums, 0.0))

        return log_cell_masses(p), log_cell_masses(q)


@lru_cache(maxsize=8)
def _masses_by_loss(pair: AllocationPair, backward: bool) -> tuple[Floats, Floats, Floats]:
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
    size = _SIZE
    most = m + 6.5
    low = -most if exchanged else -FAR

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
        weights = np.bincount(index, np.exp(log_diff_exp(log_ndtr(mean - edges))), size)
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
def _allocation_moments(m: float, steps: int, exchanged: bool) -> tuple[Floats, Floats]:
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
    z = np.arange(-FAR / 3, FAR / 3 + most * m, step)
    weights = np.exp(-((z[:, None] - j * m) ** 2) / 2) * (step / math.sqrt(2 * math.pi))
    powers = j * (j - 1) * m**2 / 2 - gammaln(j + 1)  # log E[W^j] / j!
    gap = 0.1
    u = np.arange(-45.0, math.log(most * steps) + 2 * most * m**2 + 14 * m + 8, gap)

    def log_expectations(v: Floats) -> Floats:
        """log E[W^j e^(-t v / T)] / j! for all t, down, and j, across."""
        with np.errstate(divide="ignore", over="ignore"):
            shares = np.exp(-np.exp(u[:, None] - math.log(steps)) * v) @ weights
            return np.asarray(np.log(shares) + powers)

    def integral(of: Floats, a: int) -> float:
        return float(logsumexp((a - 1) * u + of)) + math.log(gap) - float(gammaln(a - 1))

    down, up = (np.exp(sign * m * z - m**2 / 2) for sign in (-1, 1))
    moments = []
    if exchanged:
        both = _log_power(log_expectations(down), steps)
        for a in orders:
            scale = float(gammaln(a + 1)) - a * math.log(steps)
            moments.append(integral(both[:, a], int(a)) + scale)
    else:
        gone = _log_power(powers[None, :], steps)[0]
        come = log_expectations(up)[:, 0] * steps
        for a in orders:
            ahead = float(gammaln(a + 1)) - a * math.log(steps) + gone[a]
            back = integral(come, int(a))
            moments.append(max(ahead, back))
    return orders.astype(np.float64), np.maximum(moments, 0.0) + 1e-9


def _log_power(logs: Floats, times: int) -> Floats:
    """The logs of the coefficients of a polynomial's power, to its own degree, one for each row."""

    def product(one: Floats, other: Floats) -> Floats:
        degrees = range(one.shape[1])
        return np.stack([logsumexp(one[:, : k + 1] + other[:, k::-1]) for k in degrees], axis=1)

    found: Floats | None = None
    while times:
        if times % 2:
            found = logs if found is None else product(found, logs)
        times //= 2
        logs = product(logs, logs) if times else logs
    assert found is not None
    return found
