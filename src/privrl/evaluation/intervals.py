"""Intervals for averages and for sums of ratios, without privacy.

Every estimator of a policy's value in this room has the form

    V = mean_i plain_i + sum_k (sum_i numerators_ik) / (sum_i denominators_ik)

over independent units i: people when they are named, trajectories otherwise. `Contributions` holds
these numbers, and everything here is about them.

- `student`: Student's t with n - 1 degrees of freedom on the influence of each unit,

      influence_i = plain_i - mean(plain)
                    + sum_k (numerators_ik - ratio_k denominators_ik) / mean_i(denominators_ik).

  For an average this is the textbook interval, *two-sided*: the quantile is (1 + level) / 2. (With
  the quantile `level` a nominal 95 % interval covers 90 %.) For ratios it is the delta method.
- `bernstein`: Maurer and Pontil (2009), Theorem 4, on both sides. It holds for every n, if the
  bounds are *declared*: the largest value that happened to be observed bounds nothing.
- `bootstrap`: units are drawn again and *all* sums are formed anew, numerators and denominators
  together. (Weights that were normalised once and then resampled miss the denominators' error.)
- `fieller`: for a single ratio, all v for which numerator - v denominator has no significant mean.
  It stays honest where the denominator is hardly away from 0, and may then be unbounded.

A single unit says nothing of how much units differ. So intervals are unbounded for one unit and,
where `student` and `bootstrap` would find no spread at all, for ratios whose whole weight is that
of one unit.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.evaluation.result import Interval

# Entries of the table of counts that the bootstrap holds at a time.
_ENTRIES = 2_000_000


@dataclass(frozen=True)
class Contributions:
    """What each unit adds to the sums: `plain` (n,), `numerators` and `denominators` (n, K)."""

    plain: Floats
    numerators: Floats
    denominators: Floats

    @classmethod
    def average(cls, values: Floats) -> "Contributions":
        """A plain mean."""
        none = np.zeros((len(values), 0))
        return cls(values, none, none)

    def __len__(self) -> int:
        return len(self.plain)

    @property
    def estimate(self) -> float:
        """The value."""
        ratios = _ratios(self.numerators.sum(axis=0), self.denominators.sum(axis=0))
        if np.any(np.isnan(ratios)):
            raise InputError("No trajectory has any weight: the policies have nothing in common.")
        return float(self.plain.mean() + ratios.sum())

    @property
    def is_degenerate(self) -> bool:
        """Whether a single unit has all the weight of some ratio."""
        return bool(np.any(np.count_nonzero(self.denominators, axis=0) < 2))

    @property
    def influence(self) -> Floats:
        """How much each unit pulls on the estimate; the mean over units is 0."""
        below = self.denominators.mean(axis=0)
        ratios = _ratios(self.numerators.mean(axis=0), below)
        pulls = (self.numerators - ratios * self.denominators) / below
        return np.asarray(self.plain - self.plain.mean() + pulls.sum(axis=1))


def _ratios(above: Floats, below: Floats) -> Floats:
    """NaN where there is no weight at all."""
    found: Floats = np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0.0)
    return found


def mean_by_unit(values: Floats, units: NDArray[np.int64], count: int) -> Floats:
    """The mean of `values` (one row for each trajectory) over each unit's trajectories.

    Every unit has at least one.
    """
    if count == len(values):
        return values[np.argsort(units)]
    sums = np.zeros((count, *values.shape[1:]))
    np.add.at(sums, units, values)
    owned = np.bincount(units, minlength=count).astype(np.float64)
    return np.asarray(sums / owned.reshape((-1,) + (1,) * (values.ndim - 1)))


def confidence_level(value: object) -> float:
    """`value` if it is the nominal level of an interval: above 0 and below 1.

    So near 1 that its quantile (1 + level) / 2 is no longer told from 1, it would be infinite.
    """
    found = checks.number("level", value)
    if not (found > 0.0 and (1.0 + found) / 2.0 < 1.0):
        raise InputError(f"must be above 0 and below 1, not {found:g}.", field="level")
    return found


def influence_interval(estimate: float, influence: Floats, level: float) -> Interval:
    """Student's t around `estimate`, which is off by the mean of `influence`."""
    level, n = confidence_level(level), len(influence)
    if n < 2:
        return Interval(-math.inf, math.inf, level)
    variance = float(influence.var(ddof=1)) / n
    half = float(stats.t.ppf((1.0 + level) / 2.0, n - 1)) * math.sqrt(variance)
    return Interval(estimate - half, estimate + half, level, {"sampling": variance})


def student(data: Contributions, level: float) -> Interval:
    """Student's t: exact for normal averages, the delta method for ratios."""
    if data.is_degenerate:
        return Interval(-math.inf, math.inf, confidence_level(level))
    return influence_interval(data.estimate, data.influence, level)


def bernstein(data: Contributions, level: float, bounds: tuple[float, float]) -> Interval:
    """Empirical Bernstein for an average of values within the declared `bounds`.

    With probability 1 - d the mean exceeds its estimate by at most
    sqrt(2 variance ln(2/d) / n) + 7 (high - low) ln(2/d) / (3 (n - 1)); here d = (1 - level) / 2 on
    either side.
    """
    level, n = confidence_level(level), len(data)
    low, high = bounds
    if data.numerators.size:
        raise InputError("An empirical Bernstein interval is for averages, not for ratios.")
    if data.plain.min() < low or data.plain.max() > high:
        raise InputError(
            f"The declared bounds ({low:g}, {high:g}) do not hold what a unit contributed."
        )
    if n < 2:
        return Interval(low, high, level)
    log = math.log(4.0 / (1.0 - level))
    variance = float(data.plain.var(ddof=1)) / n
    half = math.sqrt(2.0 * variance * log) + 7.0 * (high - low) * log / (3.0 * (n - 1))
    middle = data.estimate
    return Interval(
        max(low, middle - half), min(high, middle + half), level, {"sampling": variance}
    )


def bootstrap(data: Contributions, level: float, draws: int = 1000, seed: int = 0) -> Interval:
    """Percentiles of the estimate over resampled units; resamples without weight are skipped."""
    level, draws, n = confidence_level(level), checks.count("draws", draws), len(data)
    columns = data.numerators.shape[1]
    table = np.column_stack([data.plain, data.numerators, data.denominators])
    generator = np.random.default_rng(seed)
    found: list[Floats] = []
    for first in range(0, draws, chunk := max(1, _ENTRIES // n)):
        size = min(chunk, draws - first)
        chosen = generator.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
        counts = np.bincount(chosen.ravel(), minlength=size * n).reshape(size, n)
        sums = counts @ table
        ratios = _ratios(sums[:, 1 : 1 + columns], sums[:, 1 + columns :])
        found.append(sums[:, 0] / n + ratios.sum(axis=1))
    values = np.concatenate(found)
    values = values[~np.isnan(values)]
    if values.size == 0 or data.is_degenerate:
        return Interval(-math.inf, math.inf, level)
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high), level, {"sampling": float(values.var())})


def fieller(data: Contributions, level: float) -> Interval:
    """All v with |sum(numerator - v denominator)| within t times its standard error.

    With means N, D and the covariance matrix (Saa, Sab, Sbb) of these means this is the quadratic
    inequality v^2 (D^2 - t^2 Sbb) - 2 v (N D - t^2 Sab) + N^2 - t^2 Saa <= 0.
    """
    level, n = confidence_level(level), len(data)
    if data.numerators.shape[1] != 1 or np.any(data.plain):
        raise InputError("Fieller's interval is for a single ratio.")
    middle = data.estimate
    everything = Interval(-math.inf, math.inf, level)
    if n < 2:
        return everything
    above, below = data.numerators[:, 0], data.denominators[:, 0]
    (saa, sab), (_, sbb) = np.cov(above, below) / n
    t2 = float(stats.t.ppf((1.0 + level) / 2.0, n - 1)) ** 2
    top, bottom = float(above.mean()), float(below.mean())
    a = bottom**2 - t2 * sbb
    b = top * bottom - t2 * sab
    c = top**2 - t2 * saa
    if a <= 0.0:
        return everything
    root = math.sqrt(max(b * b - a * c, 0.0))
    variance = (saa - 2.0 * middle * sab + middle**2 * sbb) / bottom**2
    low, high = float((b - root) / a), float((b + root) / a)
    return Interval(low, high, level, {"sampling": float(variance)})
