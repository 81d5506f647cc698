"""Laplace reports: each agent adds noise to its own vector (Ono and Takahashi 2020, Algorithm 2).

Unit: one agent, one report. Relation: local, so any input against any other. Each row is clipped to
L1 norm `radius` (the paper's C/2), so two inputs are at most 2 `radius` (the paper's C) apart, and
every coordinate gets Laplace noise of scale 2 radius / epsilon. Theorem: the report is pure
epsilon-DP (Dwork et al. 2006). What is released: the noised vector of every agent.

Arithmetic: `LaplaceReport` is what the paper prints, in 64-bit floating point, so certificates list
"idealised real arithmetic". `GridLaplaceReport` rounds to a grid and draws exact discrete noise; it
needs no such assumption and costs the same error to three digits.

Expected squared error of a vector within the radius: 2 d (2 radius / epsilon)^2. It grows as d^2
for dense vectors of a fixed L2 norm, whose L1 norm is about sqrt(d): prefer `PrivUnit` for these.

All local mechanisms work on rows: `release(rows, source)` takes one agent per row, or one vector,
and each row gets a report of its own. A row with a NaN or an infinity in it counts as zeros.
"""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy.events import Event
from privrl.privacy.mechanisms import clip
from privrl.privacy.mechanisms.laplace import LaplaceMechanism
from privrl.privacy.mechanisms.on_grid import GridLaplaceMechanism
from privrl.privacy.noise import Source, as_float64
from privrl.privacy.promise import Budget, Relation

# Grid reports beyond this never happen (the noise would be 10^12 scales out) and are refused.
_LARGEST = 2**53


def as_rows(rows: ArrayLike, dimension: int) -> Array:
    """`rows` as 64-bit rows of the given dimension, those that are not finite as zeros."""
    array = as_float64("rows", rows)
    if array.ndim not in (1, 2) or array.shape[-1] != dimension:
        raise InputError(
            f"must be one vector of {dimension} numbers or have one in each row, "
            f"not shape {array.shape}.",
            field="rows",
        )
    return np.where(np.all(np.isfinite(array), axis=-1, keepdims=True), array, 0.0)


def to_bytes(report: ArrayLike, dimension: int) -> bytes:
    """One report as little-endian 64-bit floating-point numbers."""
    return _check_report(report, dimension).astype("<f8").tobytes()


def _check_report(report: ArrayLike, dimension: int) -> Array:
    """One report as it may be sent."""
    array = as_float64("A report", report)
    if array.shape != (dimension,):
        raise InputError(f"A report has {dimension} numbers, not shape {array.shape}.")
    if not np.all(np.isfinite(array)):
        raise InputError("A report must be finite, and this one is not.")
    return array


def from_bytes(data: bytes, dimension: int) -> Array:
    """The report that `to_bytes` wrote; wrong lengths, NaN and infinities are refused."""
    _check_length(data, 8 * dimension)
    array = np.frombuffer(data, dtype="<f8").astype(np.float64)
    if not np.all(np.isfinite(array)):
        raise InputError("A report must be finite, and this one is not.")
    return array


def _check_length(data: bytes, length: int) -> None:
    if not isinstance(data, bytes) or len(data) != length:
        raise InputError(f"A report of this plan has {length} bytes, and this one does not.")


@dataclass(frozen=True)
class _Report:
    """A row of `dimension` numbers, clipped to L1 norm `radius`, with noise by a mechanism."""

    epsilon: float
    dimension: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        checks.set_checked(self, epsilon=checks.positive, dimension=checks.count)
        checks.set_checked(self, radius=checks.positive)
        # Raises here, and not later, if clipping cannot work with this radius.
        clip.l1(np.zeros((1, self.dimension)), self.radius)


@dataclass(frozen=True)
class LaplaceReport(_Report):
    """Each row clipped to L1 norm `radius`, plus Laplace noise of scale 2 radius / epsilon.

    The paper's clipping size C is 2 `radius`; its experiments have C = 0.01, so radius 0.005.
    """

    mechanism: LaplaceMechanism = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        scale = checks.positive("2 radius / epsilon", 2.0 * self.radius / self.epsilon)
        # Rounded up until the quotient of the rounded numbers is within epsilon.
        while 2 * Fraction(self.radius) > Fraction(self.epsilon) * Fraction(scale):
            scale = math.nextafter(scale, math.inf)
        object.__setattr__(self, "mechanism", LaplaceMechanism(scale, self.radius))

    @property
    def event(self) -> Event:
        """What one report costs its agent, under the relation local."""
        return self.mechanism.event

    @property
    def error(self) -> float:
        """E |report - row|^2 for a row within the radius."""
        return 2.0 * self.dimension * self.mechanism.scale * self.mechanism.scale

    def release(self, rows: ArrayLike, source: Source) -> tuple[Array, Event]:
        """A report for each row, and what each of them cost its agent."""
        clipped = clip.l1(as_rows(rows, self.dimension), self.radius)
        return self.mechanism.release(clipped, source)

    def encode(self, report: ArrayLike) -> bytes:
        """One report as 8 bytes per coordinate."""
        return to_bytes(report, self.dimension)

    def decode(self, data: bytes) -> Array:
        """The report in `data`; any finite vector is a possible report."""
        return from_bytes(data, self.dimension)


@dataclass(frozen=True)
class GridLaplaceReport(_Report):
    """The same on a grid: the integers of each row plus exact discrete Laplace noise.

    Step and width of the noise are those of `GridLaplaceMechanism.calibrated`, whose code also
    clips the rows and cuts them off towards zero. That makes coordinates shorter by less than one
    step. A step is at most 1/4096 of the noise's scale, and at most radius / (4096 dimension), so
    that a row loses no more than 1/4096 of `radius` in L1 norm; only where epsilon is below 1e-8
    times the dimension, or so, are steps larger, to keep the noise within 2^40 of them.
    """

    mechanism: GridLaplaceMechanism = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        mechanism = GridLaplaceMechanism.from_budget(
            self.radius, Budget(self.epsilon), Relation.LOCAL, dimension=self.dimension
        )
        # Two rows are so many steps apart at most. In floating point their number over the width
        # may round to epsilon from above: in fractions it must not be above.
        apart = math.floor(2 * Fraction(self.radius) / Fraction(mechanism.step))
        width = max(mechanism.width, math.ceil(apart / Fraction(self.epsilon)))
        object.__setattr__(self, "mechanism", replace(mechanism, width=width))

    @property
    def event(self) -> Event:
        """What one report costs its agent, under the relation local, in grid units."""
        return self.mechanism.event

    @property
    def error(self) -> float:
        """E |report - row|^2 for a row within the radius whose coordinates are on the grid.

        The discrete Laplace law of width b has variance 1 / (2 sinh(1/(2b))^2).
        """
        variance = 0.5 / math.sinh(0.5 / self.mechanism.width) ** 2
        return self.dimension * variance * self.mechanism.step * self.mechanism.step

    def release(self, rows: ArrayLike, source: Source) -> tuple[Array, Event]:
        """A report for each row, and what each of them cost its agent."""
        finite = as_rows(rows, self.dimension)
        integers = self.mechanism.to_grid(finite.reshape(-1, self.dimension))
        noise = source.discrete_laplace(self.mechanism.width, integers.shape)
        return ((integers + noise) * self.mechanism.step).reshape(finite.shape), self.event

    def encode(self, report: ArrayLike) -> bytes:
        """One report as a 64-bit integer of grid steps per coordinate."""
        with np.errstate(over="ignore"):
            steps = _check_report(report, self.dimension) / self.mechanism.step
        if np.any(steps != np.floor(steps)) or np.any(np.abs(steps) > _LARGEST):
            raise InputError("A report on this grid has whole numbers of steps, at most 2^53.")
        return steps.astype("<i8").tobytes()

    def decode(self, data: bytes) -> Array:
        """The report in `data`; what is beyond any possible report is refused."""
        _check_length(data, 8 * self.dimension)
        integers = np.frombuffer(data, dtype="<i8").astype(np.int64)
        if np.any(integers > _LARGEST) or np.any(integers < -_LARGEST):
            raise InputError("A report on this grid is within 2^53 steps, and this one is not.")
        return integers * self.mechanism.step
