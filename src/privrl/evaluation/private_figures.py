"""From eight noised sums to values and intervals: the arithmetic behind `PrivateValue`.

Nothing here looks at data. What the sums are, why they suffice and what the intervals cover is said
in `private_value`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, special

from privrl.core.types import Floats
from privrl.evaluation.result import Interval

# A contribution is MAP moments; see `private_value` for where it comes from. Its entries are exact.
MAP: Floats = (
    np.array(
        [  # w, wY, Y, w^2, w^2 Y, w^2 Y^2, wY^2, Y^2
            [128, 0, 0, -104, 0, 70, -81, 4],
            [0, 0, 0, 53, 0, -45, 17, 10],
            [0, 0, 0, 0, 0, -68, 81, -5],
            [0, 0, 0, 0, 0, 35, 0, -11],
            [0, 0, 0, 0, 0, 0, 0, 28],
            [0, -31, 29, 0, 2, 0, 0, 0],
            [0, -74, 0, 0, 75, 0, 0, 0],
            [0, 32, 0, 0, 0, 0, 0, 0],
        ]
    )
    / 64.0
)
INVERSE: Floats = np.asarray(np.linalg.inv(MAP), dtype=np.float64)
# Of the noise on sums of moments, if that on sums of contributions has variance 1.
COVARIANCE: Floats = INVERSE @ INVERSE.T

# Where all weights are 1, sums of moments are _COUNT n + _LOGGED (sum Y, sum Y^2) for n units. Then
# the least squares of what was noised, which have the least variance, need but these two.
_COUNT: Floats = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
_LOGGED: Floats = np.array([[0, 1, 1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1]], dtype=np.float64).T
_LEAST: Floats = np.asarray(np.linalg.pinv(MAP @ _LOGGED), dtype=np.float64)

# Degrees of freedom from which on Student's t is normal.
_MANY = 1e8


def moments(w: Any, y: Any) -> Floats:
    """(w, wY, Y, w^2, w^2 Y, w^2 Y^2, wY^2, Y^2), a row for each trajectory."""
    return np.stack([w, w * y, y, w**2, w**2 * y, w**2 * y**2, w * y**2, y**2], axis=-1)


def on_policy_moments(total: Any, std: float, units: int) -> tuple[Floats, Floats]:
    """Sums of moments and their noise's covariance, out of a noised sum, if all weights are 1."""
    found = _LEAST @ (total - units * (MAP @ _COUNT))
    spread = std * (_LOGGED @ _LEAST)
    return units * _COUNT + _LOGGED @ found, spread @ spread.T


@dataclass(frozen=True)
class Terms:
    """The public facts that turn moments into figures."""

    weight_cap: float
    returns: tuple[float, float]
    level: float
    never_clips: bool
    """Whether it is publicly known that no ratio exceeds the cap."""

    on_policy: bool = False
    """Whether the policy that was followed is judged, and no other."""


@dataclass(frozen=True)
class Figures:
    """What follows from the noised sums of `moments`, whose noise has the covariance `noise`."""

    sums: Floats
    noise: Floats
    n: int
    terms: Terms

    @property
    def stds(self) -> Floats:
        """The noise's standard deviation on each of the sums."""
        return np.asarray(np.sqrt(np.diagonal(self.noise)))

    def error(self, z: Any, centred: bool = True) -> tuple[Floats, Floats, Floats]:
        """Sampling and noise variance of sum(z), and the right quantile, for z = (a, b, d).

        Each of a, b and d may be an array, for several sums at once.
        """
        a, b, d = (np.asarray(one, dtype=np.float64) for one in np.broadcast_arrays(*z))
        none = np.zeros_like(a)
        first = np.stack([a, b, d], axis=-1)
        # z^2 = a^2 w^2 + 2ab w^2 Y + b^2 w^2 Y^2 + 2bd w Y^2 + d^2 Y^2 + 2ad w Y
        square = np.stack(
            [none, 2 * a * d, none, a * a, 2 * a * b, b * b, 2 * b * d, d * d], axis=-1
        )
        # z is linear in w and in Y, so that its largest value is at a corner.
        corners = [np.abs(d * y + w * (a + b * y)) for w in (0.0, 1.0) for y in (-1.0, 1.0)]
        sampling = square @ self.sums
        if centred and self.n > 1:
            # Squares round the mean of n add up to n - 1 variances; of one, nothing is known.
            sampling = (sampling - (first @ self.sums[:3]) ** 2 / self.n) * self.n / (self.n - 1)
        sampling = np.maximum(sampling, 0.0)
        noise = np.vecdot(first @ self.noise[:3, :3], first)
        doubt = np.vecdot(square @ self.noise, square)
        doubt = doubt + np.maximum.reduce(corners) ** 2 * sampling
        freedom = 2.0 * (sampling + noise) ** 2 / np.maximum(doubt, 1e-300)
        freedom = np.where(doubt > 0.0, np.clip(freedom, 1.0, _MANY), _MANY)
        quantile: Any = special.stdtrit(freedom, (1.0 + self.terms.level) / 2.0)
        return sampling, noise, quantile

    def half(self, z: Any) -> tuple[float, float, float]:
        """Half-width, sampling and noise variance, of the mean of z."""
        sampling, noise, quantile = self.error(z)
        half = float(quantile) * math.sqrt(sampling + noise) / self.n
        return half, float(sampling) / self.n**2, float(noise) / self.n**2

    # --- in the scale [-1, 1] ---------------------------------------------------------------------

    @property
    def clipped_value(self) -> float:
        """E[wY] / E[w]; a weight that cannot be told from 0 is taken to be its noise's std."""
        weight = max(self.sums[0], self.stds[0], 1e-12)
        return float(np.clip(self.sums[1] / weight, -1.0, 1.0))

    @property
    def mean(self) -> float:
        """E[Y], of the behaviour policy."""
        return float(np.clip(self.sums[2] / self.n, -1.0, 1.0))

    def fieller(self) -> tuple[float, float]:
        """The ends of all v in [-1, 1] for which sum(wY - v w) is within its error."""

        def excess(v: Any) -> Any:
            sampling, noise, quantile = self.error((-v, 1.0, 0.0), centred=False)
            return np.abs(self.sums[1] - v * self.sums[0]) - quantile * np.sqrt(sampling + noise)

        tried = np.unique(np.append(np.linspace(-1.0, 1.0, 401), self.clipped_value))
        inside = excess(tried) <= 0.0
        if not inside.any():
            # No value in range fits, which has a probability of at most 1 - level: exclude nothing.
            return -1.0, 1.0
        first, last = int(inside.argmax()), len(tried) - 1 - int(inside[::-1].argmax())
        low, high = float(tried[first]), float(tried[last])
        if first > 0:
            low = optimize.brentq(excess, float(tried[first - 1]), low)
        if last < len(tried) - 1:
            high = optimize.brentq(excess, high, float(tried[last + 1]))
        return float(low), float(high)

    def bounds(self, d: float) -> Interval:
        """Of V + d E[Y], V the target value: its two ends, each with its error."""
        c = self.terms.weight_cap
        middles, halves, parts = [], [], {"sampling": 0.0, "noise": 0.0}
        for side in (-1.0, 1.0):
            # The lower end is -1 + c E[w (1 + Y)], the upper 1 - c E[w (1 - Y)].
            z = (-side * c, c, d)
            half, sampling, noise = self.half(z)
            middles.append(side + float(np.array(z) @ self.sums[:3]) / self.n)
            halves.append(half)
            parts = {
                "sampling": max(parts["sampling"], sampling),
                "noise": max(parts["noise"], noise),
            }
        if middles[0] > middles[1]:
            # The true ends are in order. Noise that swaps them must not make the interval narrow.
            middles = [sum(middles) / 2.0] * 2
        ends = [middles[0] - halves[0], middles[1] + halves[1]]
        parts["clipping"] = max(0.0, 1.0 - c * float(self.sums[0]) / self.n)
        return Interval(ends[0], ends[1], self.terms.level, parts)

    # --- in the scale of returns ------------------------------------------------------------------

    def target_interval(self) -> Interval:
        """Of the target policy's value."""
        if self.terms.never_clips:
            return self.clipped_interval()
        return self._to_return_scale(self.bounds(0.0), self.clipped_value)

    def clipped_interval(self) -> Interval:
        """Of the clipped value: Fieller's interval, and the variances at the estimate."""
        v = self.clipped_value
        sampling, noise, _ = self.error((-v, 1.0, 0.0), centred=False)
        weight = float(max(self.sums[0], self.stds[0], 1e-12))
        parts = {"sampling": float(sampling) / weight**2, "noise": float(noise) / weight**2}
        return self._to_return_scale(Interval(*self.fieller(), self.terms.level, parts), v)

    def behavior_interval(self) -> Interval:
        """Of the behaviour policy's value."""
        half, sampling, noise = self.half((0.0, 0.0, 1.0))
        middle, parts = self.mean, {"sampling": sampling, "noise": noise}
        found = Interval(middle - half, middle + half, self.terms.level, parts)
        return self._to_return_scale(found, middle)

    def difference_interval(self) -> Interval:
        """Of target less behaviour."""
        v, c = self.clipped_value, self.terms.weight_cap
        middle = v - self.mean
        if self.terms.never_clips:
            # c E[w] = 1, so that V = v + c E[w (Y - v)] for any v, and errors in v cancel.
            half, sampling, noise = self.half((-c * v, c, -1.0))
            parts = {"sampling": sampling, "noise": noise}
            found = Interval(middle - half, middle + half, self.terms.level, parts)
        else:
            found = self.bounds(-1.0)
        return self._to_return_scale(found, middle, difference=True)

    def _to_return_scale(
        self, found: Interval, middle: float, difference: bool = False
    ) -> Interval:
        """From [-1, 1] to returns, within what is possible, and around the estimate."""
        low, high = self.terms.returns
        half = (high - low) / 2.0
        most, shift = (2.0, 0.0) if difference else (1.0, (low + high) / 2.0)
        ends = [
            shift + half * float(np.clip(one, -most, most))
            for one in (min(found.low, middle), max(found.high, middle))
        ]
        parts = {
            name: value * (half if name == "clipping" else half**2)
            for name, value in found.parts.items()
        }
        return Interval(ends[0], ends[1], found.level, parts)

    def details(self) -> dict[str, Any]:
        """All figures, in the scale of returns; those of the policy that was followed, alone."""
        found = self._all_details()
        if not self.terms.on_policy:
            return found
        noise = {"behavior": found["noise_std"]["behavior"]}
        return {"behavior": found["behavior"], "units": self.n, "noise_std": noise}

    def _all_details(self) -> dict[str, Any]:
        low, high = self.terms.returns
        half, shift, c = (high - low) / 2.0, (low + high) / 2.0, self.terms.weight_cap
        values = {
            "target": (shift + half * self.clipped_value, self.target_interval()),
            "behavior": (shift + half * self.mean, self.behavior_interval()),
            "difference": (half * (self.clipped_value - self.mean), self.difference_interval()),
            "clipped": (shift + half * self.clipped_value, self.clipped_interval()),
        }
        found: dict[str, Any] = {
            name: {"estimate": value, "interval": interval.to_dict()}
            for name, (value, interval) in values.items()
        }
        weight = max(float(self.sums[0]), 0.0)
        squares = max(float(self.sums[3]), weight**2 / self.n, float(self.stds[3]), 1e-300)
        mass, error = c * weight / self.n, self.half((c, 0.0, 0.0))[0]
        return {
            **found,
            "units": self.n,
            "effective_sample_size": weight**2 / squares,
            "weight_mass": {
                "estimate": mass,
                "interval": Interval(
                    min(max(mass - error, 0.0), 1.0), min(mass + error, 1.0), self.terms.level
                ).to_dict(),
            },
            "noise_std": {
                "target": c * half * float(np.hypot(self.stds[0], self.stds[1])) / self.n,
                "behavior": half * float(self.stds[2]) / self.n,
            },
        }
