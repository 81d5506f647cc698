"""Gaussian and Laplace mechanisms on a grid: the guarantee holds in finite precision.

Unit and relation: the caller's. Each unit's contribution is clipped (exactly, see `clip`), divided
by the grid's step (a power of two, so without rounding) and cut off towards zero, which can only
shorten it. So each unit contributes an integer vector of L2 (L1) norm at most `bound / step`, the
sum is exact in 64-bit integers, and exact discrete noise is added to it. Multiplying by the step
again is post-processing.

What cutting off costs. A coordinate loses less than one step, always towards zero. So a row loses
less than dimension step of its L1 norm, and over n units the losses add up. `from_budget` takes a
step of at most bound / (4096 dimension), with which no more than 1/4096 of a full row is lost,
where that slows no sampler and loosens no account: for Laplace noise always, but for several
releases in more than 120 dimensions (the accountant composes up to 2 10^6 steps of sensitivity
well); for Gaussian noise only while std <= 4 bound / dimension, because its quick sampler ends at a
width of 2^14. Beyond, a step is 1/8192 of the noise or less, and a coordinate's bias at most n /
8192 of the noise: for many units with many small coordinates prefer `GaussianMechanism`. A step is
never larger than the bound, however slow the sampler: nothing would be left of anybody's row.

Sensitivity: `sensitivity(bound / step, relation)` in grid units. Theorems: Canonne, Kamath and
Steinke (2020) for the discrete Gaussian, zCDP in several dimensions; pure DP for the discrete
Laplace. No step is idealised; certificates need no assumption about arithmetic.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy.accounting import calibrate
from privrl.privacy.accounting.finite_losses import MOST_ATOMS
from privrl.privacy.events import DiscreteGaussian, DiscreteLaplace, Event, Repeated
from privrl.privacy.exact import Integers
from privrl.privacy.mechanisms import clip
from privrl.privacy.noise import Source, as_float64
from privrl.privacy.promise import Budget, Relation

# The noise is at least this many grid steps wide, and a row of norm `bound` so many for each
# coordinate, if the samplers are quick for noise so wide.
_RESOLUTION = 4096


def _power_of_two(value: float, rounded: Callable[[float], int]) -> float:
    """The power of two next to `value`, below or above it."""
    return math.ldexp(1.0, rounded(math.log2(value)))


@dataclass(frozen=True)
class _GridMechanism:
    """Noise of `width` grid steps on a sum of `dimension` coordinates of contributions <= bound."""

    width: int
    step: float
    bound: float
    dimension: int = 1

    norm: ClassVar[str]
    widest: ClassVar[int]
    """The exact sampler is quick up to this width."""

    def __post_init__(self) -> None:
        checks.set_checked(self, width=checks.count, dimension=checks.count)
        checks.set_checked(self, step=checks.positive, bound=checks.positive)
        if math.frexp(self.step)[0] != 0.5:
            raise InputError(f"must be a power of two, not {self.step:g}.", field="step")
        if not 2.0**-1000 < self.step < 2.0**1000:
            raise InputError(f"step {self.step:g} is out of range.")

    @classmethod
    def from_budget(
        cls,
        bound: float,
        budget: Budget,
        relation: Relation = Relation.REPLACE_ONE,
        *,
        dimension: int = 1,
        times: int = 1,
    ) -> Self:
        """The least noise, and a grid for it, with which `times` releases stay within `budget`."""
        bound, dimension = checks.positive("bound", bound), checks.count("dimension", dimension)

        def fit_grid(noise_over_bound: float) -> tuple[int, float]:
            noise = noise_over_bound * bound
            step = _power_of_two(noise / _RESOLUTION, math.floor)
            fine = _power_of_two(bound / _RESOLUTION / dimension, math.floor)
            if times > 1:  # the accountant composes tightly up to so many steps of sensitivity
                fine = max(fine, _power_of_two(2.0 * bound / MOST_ATOMS, math.ceil))
            quick = _power_of_two(noise / cls.widest, math.ceil)
            # A step beyond the bound would leave nothing of anybody, and cost nothing.
            step = min(max(min(step, fine), quick), _power_of_two(bound, math.floor))
            return math.ceil(noise / step), step

        def build(noise_over_bound: float) -> Event:
            return Repeated(cls(*fit_grid(noise_over_bound), bound, dimension).event, times)

        return cls(*fit_grid(calibrate(build, budget, relation)), bound, dimension)

    @property
    def event(self) -> Event:
        """What one release does, in grid units."""
        raise NotImplementedError

    def to_grid(self, contributions: ArrayLike) -> Integers:
        """Each row of `contributions` clipped to `bound` and cut off to the grid, as integers."""
        rows = as_float64("contributions", contributions)
        if rows.ndim != 2 or rows.shape[1] != self.dimension:
            raise InputError(
                f"must have a row for each unit and {self.dimension} columns, "
                f"not shape {rows.shape}.",
                field="contributions",
            )
        if self.bound / self.step >= 2.0**53 or len(rows) * self.bound / self.step >= 2.0**62:
            raise InputError("The sum does not fit into 64-bit integers: use a coarser grid.")
        clipped = (clip.l2 if self.norm == "L2" else clip.l1)(rows, self.bound)
        found: Integers = np.trunc(clipped / self.step).astype(np.int64)
        return found

    def release(self, contributions: ArrayLike, source: Source) -> tuple[Array, Event]:
        """The sum over units, with noise from `source`, and what was done.

        `contributions` has a row for each unit. Rows with NaN or infinity count as zero.
        """
        rows, event = self.release_many(contributions, 1, source)
        return rows[0], event

    def release_many(
        self, contributions: ArrayLike, times: int, source: Source
    ) -> tuple[Array, Event]:
        """The sum released `times` times with fresh noise, a row each, and what *one* of them did.

        For audits and simulations; whoever publishes all rows pays for `Repeated(event, times)`.
        """
        total = self.to_grid(contributions).sum(axis=0, dtype=np.int64)
        noise = self._noise(source, (checks.count("times", times), self.dimension))
        return (total + noise) * self.step, self.event

    def release_sum(self, whole: Integers, source: Source) -> Array:
        """A sum of `to_grid`, which somebody else added up, with noise from `source`."""
        return (whole + self._noise(source, whole.shape)) * self.step

    def _noise(self, source: Source, shape: tuple[int, ...]) -> Integers:
        raise NotImplementedError


@dataclass(frozen=True)
class GridGaussianMechanism(_GridMechanism):
    """Discrete Gaussian noise on a sum of contributions of L2 norm at most `bound`."""

    norm: ClassVar[str] = "L2"
    widest: ClassVar[int] = 2**14 - 1

    @property
    def event(self) -> Event:
        """What one release does, in grid units."""
        return DiscreteGaussian(self.width, self.bound / self.step, self.dimension)

    def _noise(self, source: Source, shape: tuple[int, ...]) -> Integers:
        return source.discrete_gaussian(self.width, shape)


@dataclass(frozen=True)
class GridLaplaceMechanism(_GridMechanism):
    """Discrete Laplace noise on a sum of contributions of L1 norm at most `bound`."""

    norm: ClassVar[str] = "L1"
    widest: ClassVar[int] = 2**40

    @property
    def event(self) -> Event:
        """What one release does, in grid units."""
        return DiscreteLaplace(self.width, self.bound / self.step)

    def _noise(self, source: Source, shape: tuple[int, ...]) -> Integers:
        return source.discrete_laplace(self.width, shape)
