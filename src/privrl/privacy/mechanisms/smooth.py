"""Gaussian noise scaled to a smooth bound on local sensitivity (Nissim, Raskhodnikova, Smith 2007).

    f(X) + N(0, (alpha S(X))^2 I)

Unit and relation: the caller's. Movement: `S` is a *beta-smooth* bound on the local L2 sensitivity
of f, that is, for all neighbours X, X' of the relation,

    ||f(X) - f(X')|| <= S(X)    and    e^-beta <= S(X) / S(X') <= e^beta;

`smooth_bound` makes such an S. Both must hold for every X there is, not for the data at hand only.

Theorem. Put m = 1 / alpha and name the two inputs so that S(X') <= S(X). The distance between f(X)
and f(X') is at most the *smaller* of the two bounds, so in units of alpha S(X') the two laws are
N(0, r^2 I) and N(v, I) with 1 <= r <= e^beta and |v| <= m. The release is (epsilon, delta)-DP if,
over all such r and v,

    wide(r, v)   = sup over A of  N(0, r^2 I)(A) - e^epsilon N(v, I)(A)
    narrow(r, v) = sup over A of  N(0, I)(A) - e^epsilon N(v, r^2 I)(A)

are both at most delta. Let d be the dimension. Under two conditions, which are enforced,

    (i)  m^2 / 2 <= epsilon        (ii)  d (beta + (e^(2 beta) - 1) / 2) <= epsilon,

this is so *if and only if* wide(e^beta, m) <= delta, and that is checked whenever a mechanism is
made.

1. *Both rise with |v|.* The best A of `wide_delta` is the outside of a ball round v / (1 - r^-2),
   which lies beyond v as seen from 0; moving v a little towards the centre puts more of N(v, I)
   into the ball, so the same A does better. The best A of `narrow` is a ball round -v / (r^2 - 1),
   on the other side of 0; moving v away from it takes mass out of A. So |v| = m is the worst.
2. *`wide_delta` rises with r.* By (i) log(dP/dQ) - epsilon is not positive at x = 0, so 0 is in the
   ball, and widening N(0, r^2 I) moves mass out of the ball, into A. So r = e^beta is the worst.
3. *`narrow` falls with r.* Let A be the best set at r, a ball round c of radius rho, and let
   1 <= s <= r. A ray from v that meets A does so from distance s w to s w', say, and the product
   of the two is the square of the tangent from v: s^2 w w' = |v - c|^2 - rho^2, which works out as
   r^2 (m^2 + 2 epsilon - 2 d log r) / (r^2 - 1), at least d r^2 by (ii). So w w' >= d. On this
   ray N(v, s^2 I) has P(w <= chi_d <= w'), whose derivative in s has the sign of g(w) - g(w'),
   g(w) = w^d e^(-w^2/2); and with w' / w = e^(2 t), log g(w) - log g(w') = w w' sinh(2 t) - 2 d t
   >= 0. So N(v, s^2 I)(A) rises with s, and A serves a smaller s at least as well as r.
   At r = 1, `narrow` and `wide_delta` are the same, the plain Gaussian mechanism's.

The two probabilities in `wide_delta` are noncentral chi-square tails, summed as Poisson mixtures of
central ones: all terms are positive, and each sum is widened by a part in 10^8, more than its
rounding errors, in the direction that asks for more noise.

Released: the noised value and nothing else. The standard deviation alpha S(X) is itself private: it
stays out of events, ledgers, intervals and reports. Arithmetic: 64-bit floating point, so
certificates list "idealised real arithmetic".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy.events import ApproxDP, Event
from privrl.privacy.noise import Source, as_float64
from privrl.privacy.promise import Budget, Relation

# Tails are widened by this much, relatively. With a noncentrality of at most _FARTHEST the weights
# of the mixture, exponentials of sums of numbers up to 1.2e6, are off by less than 1e-9.
_SLACK = 1e-8
_FARTHEST = 2e5
_LARGEST_EPSILON = 100.0
# Added to what is compared with delta: no delta below it can be verified.
_FLOOR = 1e-100
_FARTHEST_DISTANCE = 10**8
_LARGEST_ALPHA = 1e12
_LARGEST = np.finfo(np.float64).max


@dataclass(frozen=True)
class SmoothMechanism:
    """Adds N(0, (alpha S)^2) to each of `dimension` coordinates, for a `beta`-smooth bound S.

    Made only if the theorem above holds for these numbers: others are refused.
    """

    epsilon: float
    delta: float
    dimension: int
    alpha: float
    beta: float
    relation: Relation = field(default=Relation.REPLACE_ONE, kw_only=True)

    def __post_init__(self) -> None:
        _check_budget(Budget(self.epsilon, self.delta), self.dimension)
        checks.set_checked(self, epsilon=checks.positive, delta=checks.probability)
        checks.set_checked(self, dimension=checks.count, relation=Relation.check)
        checks.set_checked(self, alpha=checks.positive, beta=checks.positive)
        if not _is_private(1.0 / self.alpha, self.beta, self.dimension, self.epsilon, self.delta):
            raise InputError(
                f"Noise of alpha {self.alpha:g} at beta {self.beta:g} was not found to be "
                f"({self.epsilon:g}, {self.delta:g})-DP in dimension {self.dimension}: "
                "use a larger alpha or a smaller beta."
            )

    @classmethod
    def from_paper(
        cls, budget: Budget, dimension: int, *, relation: Relation = Relation.REPLACE_ONE
    ) -> "SmoothMechanism":
        """The constants of the paper: 5 sqrt(2 ln(2/delta))/epsilon and `published_beta`."""
        budget, dimension = _check_budget(budget, dimension)
        alpha = 5.0 * math.sqrt(2.0 * math.log(2.0 / budget.delta)) / budget.epsilon
        beta = published_beta(budget, dimension)
        return cls(budget.epsilon, budget.delta, dimension, alpha, beta, relation=relation)

    @classmethod
    def from_budget(
        cls,
        budget: Budget,
        dimension: int,
        beta: float | None = None,
        *,
        relation: Relation = Relation.REPLACE_ONE,
    ) -> "SmoothMechanism":
        """The least alpha for `beta`, within a part in 10^6; `beta` is the published one if None.

        A larger beta makes S(X) smaller and alpha larger. Which is best depends on the data, so
        `beta` must be chosen without looking at them.
        """
        budget, dimension = _check_budget(budget, dimension)
        remedy = "smaller beta" if beta is not None else "smaller epsilon, or less of it for this"
        beta = published_beta(budget, dimension) if beta is None else checks.positive("beta", beta)

        def is_private(alpha: float) -> bool:
            return _is_private(1.0 / alpha, beta, dimension, budget.epsilon, budget.delta)

        low = 1.0 / math.sqrt(2.0 * budget.epsilon) * (1.0 - 1e-9)  # below this none is accepted
        high = low * 2.0
        while not is_private(high):
            low, high = high, high * 2.0
            if high > _LARGEST_ALPHA:
                raise InputError(
                    f"No amount of noise makes beta {beta:g} enough for "
                    f"({budget.epsilon:g}, {budget.delta:g}) in dimension {dimension}: "
                    f"use a {remedy}."
                )
        while high > low * (1.0 + 1e-6):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if is_private(middle) else (middle, high)
        return cls(budget.epsilon, budget.delta, dimension, high, beta, relation=relation)

    @property
    def event(self) -> Event:
        """What one release does: (epsilon, delta)-DP, and no scale, which would be private."""
        return ApproxDP(self.epsilon, self.delta, relation=self.relation)

    def release(
        self, value: ArrayLike, smooth_sensitivity: float, source: Source
    ) -> tuple[Array, Event]:
        """`value` with noise of scale alpha times `smooth_sensitivity`, and what was done.

        Total: a bound that is NaN or negative counts as infinite, and what is not a finite number
        in `value` counts as 0 (a function with a smooth bound has neither). Results too large for
        64 bits are cut off, so that an infinite bound gives a random sign and tells nothing.
        """
        exact = as_float64("value", value)
        if exact.shape != (self.dimension,):
            raise InputError(
                f"must have {self.dimension} entries, not shape {exact.shape}.", field="value"
            )
        scale = as_float64("smooth_sensitivity", smooth_sensitivity)
        if scale.shape != ():
            raise InputError("must be one number.", field="smooth_sensitivity")
        exact = np.where(np.isfinite(exact), exact, 0.0)
        scale = np.where(scale >= 0.0, scale, math.inf)
        noise = source.normal(1.0, exact.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            noised = exact + noise * (self.alpha * scale)
        return np.nan_to_num(noised, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST), self.event


def published_beta(budget: Budget, dimension: int) -> float:
    """epsilon / (4 (d + ln(2/delta))), the smoothness that goes with the published alpha."""
    budget, dimension = _check_budget(budget, dimension)
    return budget.epsilon / (4.0 * (dimension + math.log(2.0 / budget.delta)))


def smooth_bound(
    local_at_distance: Callable[[NDArray[np.int64]], ArrayLike], beta: float, max_distance: int
) -> float:
    """max over k of e^(-k beta) L_k, the least beta-smooth bound on the local sensitivity.

    L_k is the largest local sensitivity among inputs that differ from X in at most k units, or an
    upper bound on it with L_k(X) <= L_(k+1)(X') for all neighbours. `local_at_distance` is called
    once, with k = 0, ..., `max_distance`, and returns as many numbers. `max_distance` is public,
    and no L_k beyond it may be larger: the number of units, under replace-one.

    Smooth, since S(X') >= e^(-(k+1) beta) L_(k+1)(X') >= e^-beta e^(-k beta) L_k(X) for every k.
    Where L_k^2 is at hand, sqrt(max of e^(-2 k beta) L_k^2) is the same bound. Published code has
    e^(-k beta) there: beta/2-smooth, so valid, and never smaller. NaN counts as infinite.
    """
    beta = checks.positive("beta", beta)
    if checks.count("max_distance", max_distance) > _FARTHEST_DISTANCE:
        raise InputError(
            f"must be at most {_FARTHEST_DISTANCE}, not {max_distance}.", field="max_distance"
        )
    distances = np.arange(max_distance + 1)
    local = as_float64("local_at_distance", local_at_distance(distances))
    if local.shape != distances.shape:
        raise InputError(
            f"must give {distances.size} numbers, not shape {local.shape}.",
            field="local_at_distance",
        )
    local = np.where(local >= 0.0, local, math.inf)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        # In logarithms: e^(-k beta) may be too small for a double where the product is not.
        return float(np.exp(np.max(np.log(local) - distances * beta)))


# --- the proof, in numbers ------------------------------------------------------------------------


def wide_delta(shift: float, beta: float, dimension: int, epsilon: float) -> float:
    """At least wide(e^beta, shift), rounded up; see above.

    A is where |x - c|^2 > rho^2, with c = v / k, k = 1 - e^(-2 beta) and
    rho^2 = |c|^2 - (|v|^2 - 2 d beta - 2 epsilon) / k.
    """
    k, narrower = -math.expm1(-2.0 * beta), math.exp(-2.0 * beta)
    center = shift / k
    square = center**2 + (2.0 * dimension * beta + 2.0 * epsilon - shift**2) / k
    p = _ncx2_sf(square * narrower, dimension, center**2 * narrower)
    # |v - c| without cancellation: shift (1/k - 1).
    q = _ncx2_sf(square, dimension, (center * narrower) ** 2)
    return p * (1.0 + _SLACK) + _FLOOR - math.exp(epsilon) * q * (1.0 - _SLACK)


def _ncx2_sf(x: float, dimension: int, noncentrality: float) -> float:
    """P(noncentral chi-square > x): central ones of d + 2 n degrees, n Poisson of mean nc/2."""
    from scipy import special

    mean = noncentrality / 2.0
    # By Bernstein's inequality less than e^-299 of the mixture lies outside this window.
    reach = 40.0 * math.sqrt(mean) + 200.0
    terms = np.arange(max(0, math.floor(mean - reach)), math.ceil(mean + reach) + 1.0)
    weights = np.exp(special.xlogy(terms, mean) - mean - special.gammaln(terms + 1.0))
    return float(weights @ special.gammaincc(dimension / 2.0 + terms, x / 2.0))


def _is_smooth_enough(beta: float, dimension: int, epsilon: float) -> bool:
    """Condition (ii)."""
    return dimension * (beta + math.expm1(min(2.0 * beta, 700.0)) / 2.0) <= epsilon


def _is_private(shift: float, beta: float, dimension: int, epsilon: float, delta: float) -> bool:
    """Whether the theorem of this module's docstring is verified for these numbers."""
    # A product, since a power that overflows is an error and not infinite.
    if shift * shift / 2.0 > epsilon or not _is_smooth_enough(beta, dimension, epsilon):
        return False
    # `wide_delta` rises with the ratio, so one too close to 1 for the sums may be raised.
    return wide_delta(shift, max(beta, shift / math.sqrt(_FARTHEST)), dimension, epsilon) <= delta


def _check_budget(budget: Budget, dimension: int) -> tuple[Budget, int]:
    if budget.delta == 0.0:
        raise InputError("must be above 0: Gaussian noise is never pure.", field="delta")
    if budget.delta <= _FLOOR:
        raise InputError(f"must be above {_FLOOR:g} here, not {budget.delta:g}.", field="delta")
    if budget.epsilon > _LARGEST_EPSILON:
        raise InputError(f"must be at most {_LARGEST_EPSILON:g} here.", field="epsilon")
    return budget, checks.count("dimension", dimension)
