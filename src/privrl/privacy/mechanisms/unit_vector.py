"""PrivUnit: the most accurate unbiased report about a unit vector (Bhowmick et al. 2018).

Unit: one agent, one report. Relation: local, any input against any other. What is released: a
vector of fixed length that leans towards the agent's direction.

For a unit vector v in D dimensions let U be uniform on the sphere and W = U . v. Let q be the
probability of the cap W >= gamma. The report is uniform on the cap with probability p, and uniform
on the rest of the sphere otherwise. Against the uniform law its density is p/q on the cap and
(1-p)/(1-q) off it, for every v. So two inputs' densities are at most a factor

    p (1 - q) / ((1 - p) q)

apart, and the report is epsilon-DP if and only if this is at most e^epsilon. (The caps of two
different inputs do not coincide, so the factor is attained.)

W has the density f(w) = c (1 - w^2)^((D-3)/2), c = Gamma(D/2) / (sqrt(pi) Gamma((D-1)/2)), and
h = E[W; W >= gamma] = c (1 - gamma^2)^((D-1)/2) / (D-1) = -E[W; W < gamma]. Hence E[report] = m v
with m = h (p/q - (1-p)/(1-q)), and report / m is unbiased with E |report/m - v|^2 = 1/m^2 - 1.

Choosing gamma. With p at its limit and E = e^epsilon - 1, m = h E / (1 + q E). Since h' = -gamma f
and q' = -f, (log m)' = (f / h) (m - gamma): m rises while gamma < m, falls while gamma > m, and is
largest at the one gamma with m = gamma. Asi, Feldman and Talwar (2022) show that no unbiased
epsilon-DP report about unit vectors has less error than PrivUnit with its best parameters.

Padding. A vector x of norm at most 1 becomes (x, sqrt(1 - |x|^2)), a unit vector in d + 1
dimensions; dropping the report's last coordinate is post-processing and leaves it unbiased for x.
Without padding only the direction of x is reported.

Moments: E[W^2; W >= gamma] = (q + (D-1) gamma h) / D by parts, so E[W^2] = (1 + (D-1) gamma m) / D
for the report. The dropped coordinate, with s = sqrt(1 - |x|^2) in v, has the second moment
s^2 E[W^2] + (1 - s^2) (1 - E[W^2]) / (D - 1), which gives the error with padding in closed form.

Arithmetic: the choice between cap and rest is an exact coin whose rational p is rounded down, with
a margin for the error of q (below 1e-12, see the tests; the margin is 1e-10). The point on the
sphere is made in 64-bit floating point, so certificates list "idealised real arithmetic": that the
ratio holds for the rounded points too is not proved.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import scipy  # which loads its parts when they are first used
from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy import exact
from privrl.privacy.events import Event, PureDP
from privrl.privacy.mechanisms import clip
from privrl.privacy.mechanisms.report_laplace import as_rows, from_bytes, to_bytes
from privrl.privacy.noise import Source
from privrl.privacy.promise import Relation

# p is a multiple of 1 / _GRAIN, and its odds stay this much below the limit.
_GRAIN = 2**56
_MARGIN = 1e-10
# The range in which cap probabilities and moments are accurate and far from underflow.
LEAST_EPSILON, MOST_EPSILON = 1e-4, 500.0
_MOST_DIMENSIONS = 1_000_000
# How far a received report's length may be from the one length there is: rounding, no more.
_LENGTH_TOLERANCE = 1e-9


def cap_probability(sphere: int, gamma: float) -> float:
    """P(W >= gamma) for gamma >= 0 and a uniform unit vector in `sphere` dimensions."""
    # W^2 has the law Beta(1/2, (D-1)/2), and 1 - W^2 that with the numbers exchanged. The first
    # loses nothing to rounding where gamma is near 0, the second where it is near 1.
    rest = 0.5 * (sphere - 1)
    if gamma < 0.7:
        return 0.5 * float(scipy.special.betaincc(0.5, rest, gamma * gamma))
    return 0.5 * float(scipy.special.betainc(rest, 0.5, (1.0 - gamma) * (1.0 + gamma)))


def log_cap_moment(sphere: int, gamma: float) -> float:
    """log E[W; W >= gamma] = log of c (1 - gamma^2)^((D-1)/2) / (D-1)."""
    half = 0.5 * (sphere - 1)
    # poch(a, 1/2) = Gamma(a + 1/2) / Gamma(a), without the cancellation of two log-gammas.
    constant = math.log(float(scipy.special.poch(half, 0.5)) / math.sqrt(math.pi) / (sphere - 1))
    return constant + half * math.log1p(-gamma * gamma)


def best_cap(sphere: int, epsilon: float) -> float:
    """The gamma at which m(gamma) = gamma, where m is largest, by bisection."""
    log_growth = epsilon + math.log(-math.expm1(-epsilon))  # log(e^epsilon - 1)
    low, high = 0.0, 1.0 - 2.0**-40
    for _ in range(60):
        gamma = 0.5 * (low + high)
        q = cap_probability(sphere, gamma)
        log_q = math.log(q) if q > 0.0 else -math.inf
        log_m = log_cap_moment(sphere, gamma) + log_growth - np.logaddexp(0.0, log_q + log_growth)
        low, high = (gamma, high) if log_m > math.log(gamma) else (low, gamma)
    return low


@dataclass(frozen=True)
class PrivUnit:
    """Unbiased epsilon-DP reports about rows of L2 norm at most `radius`, clipped if longer.

    `padded=False` reports the direction of a row only, as if it had norm `radius`, with slightly
    less error. A row of zeros has no direction; its reports are then centred at zero.
    """

    epsilon: float
    dimension: int
    radius: float = 1.0
    padded: bool = True
    cap: float = field(init=False, repr=False, compare=False)
    """gamma: reports whose cosine with the row is at least this are in the cap."""
    inside: Fraction = field(init=False, repr=False, compare=False)
    """p: the probability of a report in the cap, exactly."""
    covered: float = field(init=False, repr=False, compare=False)
    """q: the share of the sphere that is in the cap."""
    slope: float = field(init=False, repr=False, compare=False)
    """m: the mean of a report on the unit sphere is m times the row's direction."""

    def __post_init__(self) -> None:
        checks.set_checked(self, epsilon=checks.positive, dimension=checks.count)
        checks.set_checked(self, radius=checks.positive, padded=checks.boolean)
        if not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            raise InputError(
                f"must be between {LEAST_EPSILON:g} and {MOST_EPSILON:g} here, "
                f"not {self.epsilon:g}.",
                field="epsilon",
            )
        if self.dimension > _MOST_DIMENSIONS:
            raise InputError(f"must be at most {_MOST_DIMENSIONS}.", field="dimension")
        if self.sphere < 2:
            raise InputError("dimension 1 has two directions only: use padded=True.")
        clip.l2(np.zeros((1, self.dimension)), self.radius)  # raises if out of range
        cap = self._cap()
        q = cap_probability(self.sphere, cap)
        # 1 - p = 1 / (1 + odds), rounded up, so that p is rounded down.
        odds = math.exp(self.epsilon + math.log(q) - math.log1p(-q)) * (1.0 - _MARGIN)
        outside = Fraction(math.ceil(Fraction(1.0 / (1.0 + odds)) * _GRAIN) + 1, _GRAIN)
        difference = float(1 - outside - Fraction(q))
        # m = h (p - q) / (q (1 - q)); the logarithm of h, since it and q may be tiny together.
        slope = math.exp(log_cap_moment(self.sphere, cap) - math.log(q)) * difference / (1.0 - q)
        found = {"cap": cap, "covered": q, "inside": 1 - outside, "slope": slope}
        for name, value in found.items():
            object.__setattr__(self, name, value)
        checks.positive("radius / m", self.length)

    def _cap(self) -> float:
        return best_cap(self.sphere, self.epsilon)

    @property
    def sphere(self) -> int:
        """The dimension of the space in which the report is a point of the sphere."""
        return self.dimension + 1 if self.padded else self.dimension

    @property
    def length(self) -> float:
        """The L2 norm of every report without padding; with padding, the largest norm."""
        return self.radius / self.slope

    @property
    def event(self) -> Event:
        """What one report costs its agent."""
        return PureDP(self.epsilon, relation=Relation.LOCAL)

    @property
    def error(self) -> float:
        """E |report - row|^2 for a row of norm `radius`."""
        return self.error_at(self.radius)

    def error_at(self, norm: float) -> float:
        """E |report - row|^2 for a row of this norm, at most `radius`; with padding only."""
        norm = checks.non_negative("norm", norm) / self.radius
        if norm > 1.0:
            raise InputError(f"must be at most the radius, {self.radius:g}.", field="norm")
        square = 1.0
        if self.padded:
            D = self.sphere
            w_square = (1.0 + (D - 1) * self.cap * self.slope) / D
            s_square = 1.0 - norm**2
            square -= s_square * w_square + norm**2 * (1.0 - w_square) / (D - 1)
        elif norm < 1.0:
            raise InputError("Without padding all rows are reported as if they had norm `radius`.")
        return self.radius * (square / self.slope**2 - norm**2) * self.radius

    def release(self, rows: ArrayLike, source: Source) -> tuple[Array, Event]:
        """A report for each row, and what each of them cost its agent."""
        finite = as_rows(rows, self.dimension)
        count = finite.size // self.dimension
        generator = source.generator
        reports = from_draws(
            np,
            self,
            finite.reshape(count, self.dimension),
            inside=exact.bernoulli(generator, self.inside, count),
            first=lambda tails: upper_quantile(self.sphere, tails),
            uniforms=1.0 - generator.random(count),
            normals=source.normal(1.0, (count, self.sphere - 1)),
            signs=generator.integers(0, 2, count) * 2.0 - 1.0,
        )
        return np.asarray(reports).reshape(finite.shape), self.event

    def encode(self, report: ArrayLike) -> bytes:
        """One report as 8 bytes per coordinate."""
        return to_bytes(report, self.dimension)

    def decode(self, data: bytes) -> Array:
        """The report in `data`; a vector of a length that no report has is refused."""
        report = from_bytes(data, self.dimension)
        # Divided first, so that no square overflows; an overflow here is too long a vector too.
        with np.errstate(over="ignore"):
            relative = float(np.sqrt(np.sum((report / self.length) ** 2)))
        short = relative < 1.0 - _LENGTH_TOLERANCE and not self.padded
        if short or relative > 1.0 + _LENGTH_TOLERANCE:
            exactly = "at most" if self.padded else "exactly"
            raise InputError(
                f"A report of this plan has {exactly} the length {self.length:.6g}, "
                "and this one has another."
            )
        return report


@dataclass(frozen=True)
class DuchiL2(PrivUnit):
    """PrivUnit with a half-sphere for its cap (Duchi, Jordan and Wainwright 2018).

    Simple, near the best at small epsilon, and no better for larger ones: 1/m^2 - 1 tends to
    pi d / 2 as epsilon grows.
    """

    def _cap(self) -> float:
        return 0.0


def upper_quantile(sphere: int, tails: Array) -> Array:
    """w >= 0 with P(W >= w) = tail, for tails in (0, 1/2]."""
    squares: Array = scipy.special.betainccinv(0.5, 0.5 * (sphere - 1), 2.0 * tails)
    return np.sqrt(squares)


class Caps(NamedTuple):
    """What `from_draws` takes from a plan; or from many, with an entry for each row."""

    dimension: int
    sphere: int
    padded: bool
    radius: float
    cap: Any
    covered: Any
    length: Any


def from_draws(
    xp: ModuleType,
    plan: PrivUnit | Caps,
    rows: Any,
    *,
    inside: Any,
    first: Any,
    uniforms: Any,
    normals: Any,
    signs: Any,
) -> Any:
    """The reports of finite rows that these draws make, for NumPy and JAX alike.

    `inside` are the coins for the cap, `uniforms` in (0, 1] choose W by inversion (`first` is the
    upper quantile function of W), `normals` the direction across, and `signs` (+-1) stand in for
    the direction of rows that have none.
    """
    v = _directions(xp, plan, rows, signs)
    # Both branches become a tail probability and a sign: W = sign * (upper quantile of the tail).
    below = (1.0 - plan.covered) * uniforms
    upper = inside | (below > 0.5)
    tails = xp.where(inside, plan.covered * uniforms, xp.where(upper, 1.0 - below, below))
    w = xp.where(upper, 1.0, -1.0) * first(tails)
    w = xp.where(inside, xp.maximum(w, plan.cap), xp.minimum(w, plan.cap))[:, None]
    # A uniform direction across the first axis, in D - 1 dimensions.
    size = xp.sqrt(xp.sum(normals * normals, axis=1, keepdims=True))
    fallback = xp.where(xp.arange(plan.sphere - 1) == 0, 1.0, 0.0)  # if all normals are zero
    across = xp.where(size > 0.0, normals / xp.where(size > 0.0, size, 1.0), fallback)
    # The reflection that takes the first axis to -s v takes (-s w, ...) to w v + ...; its normal
    # vector v + s e1 has squared length 2 (1 + |v_1|), so it is never close to zero.
    s = xp.where(v[:, :1] >= 0.0, 1.0, -1.0)
    y = xp.concatenate([-s * w, xp.sqrt((1.0 - w) * (1.0 + w)) * across], axis=1)
    normal = xp.concatenate([v[:, :1] + s, v[:, 1:]], axis=1)
    along = xp.sum(normal * y, axis=1, keepdims=True)
    points = y - normal * (2.0 * along / xp.sum(normal * normal, axis=1, keepdims=True))
    return points[:, : plan.dimension] * plan.length


def _directions(xp: ModuleType, plan: PrivUnit | Caps, rows: Any, signs: Any) -> Any:
    """The unit vectors that the reports are about."""
    x = clip.l2(rows, plan.radius) / plan.radius
    if plan.padded:
        rest = 1.0 - xp.sum(x * x, axis=1, keepdims=True)
        v = xp.concatenate([x, xp.sqrt(xp.maximum(rest, 0.0))], axis=1)
    else:
        largest = xp.max(xp.abs(x), axis=1, keepdims=True)
        v = x / xp.where(largest > 0.0, largest, 1.0)
        axis = xp.arange(plan.dimension) == 0
        v = xp.where(largest > 0.0, v, xp.where(axis, signs[:, None], 0.0))
    return v / xp.sqrt(xp.sum(v * v, axis=1, keepdims=True))
