"""Piecewise and hybrid reports: a few coordinates, each in a bounded interval (Wang et al. 2019).

Unit: one agent, one report. Relation: local, any input against any other. What is released: k =
max(1, min(d, floor(epsilon / 2.5))) coordinates, drawn without looking at the vector, each reported
with epsilon / k and multiplied by d / k; all others are zero. For k = 1 and d = 1 this is the
mechanism for one number t in [-1, 1].

*Piecewise*, for a share x = epsilon / k. On paper a report is uniform on a window of width C - 1
with probability 1 / (1 + e^(-x/2)) and otherwise uniform on the rest of [-C, C], with C = (e^(x/2)
+ 1) / (e^(x/2) - 1). Here the interval is cut into N = 2^40 cells and the window has `w` of them,
the least whole number with (N - w) / w <= e^(x/2). The agent chooses the window's first cell j with
expectation (1 + t) (N - w) / 2, then a cell uniformly inside the window with probability p, or
uniformly outside. The report is the cell's centre.

Proof. Whatever j, a cell has probability p / w inside and (1 - p) / (N - w) outside the window. So
two inputs' probabilities are at most a factor p / (1 - p) * (N - w) / w <= e^(x/2) e^(x/2) = e^x
apart; the k coordinates together e^epsilon. By symmetry the mean cell is affine in j, so scaling
makes the report unbiased; its variance t^2 / (e^(x/2) - 1) + (e^(x/2) + 3) / (3 (e^(x/2) - 1)^2) is
that on paper up to the width of a cell.

*Hybrid*: above x* = 0.61 the piecewise report with probability 1 - e^(-x/2), and otherwise, or
always below x*, one bit (Duchi et al. 2018): s = +-1 with mean t, told truly with odds e^x, times
(e^x + 1) / (e^x - 1). The choice does not look at t, so the factor is at most e^x again; the terms
of the variance in t cancel.

Arithmetic: nothing is idealised. All coins are exact, cells are integers, and the proof holds for
any law of j and s, so rounding cannot break it.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy import exact
from privrl.privacy.events import Event, PureDP
from privrl.privacy.exact import Integers
from privrl.privacy.mechanisms.report_laplace import as_rows
from privrl.privacy.mechanisms.sign import (
    bernoulli_sigmoid,
    epsilon_share,
    num_parts,
    stochastic_sign,
)
from privrl.privacy.noise import Source, as_float64
from privrl.privacy.promise import Relation

CELLS = 2**40
# Where the one-bit report's largest variance equals the hybrid's: the root in (0, 1) of the
# equation that Wang et al. solve in closed form.
_ROOT = 405.0 * math.sqrt(241.0)
THRESHOLD = math.log((-5.0 + 2.0 * (np.cbrt(6353.0 - _ROOT) + np.cbrt(6353.0 + _ROOT))) / 27.0)


@dataclass(frozen=True)
class PiecewiseMechanism:
    """Reports about rows whose coordinates are within [-radius, radius], cut off if they are not.

    Coordinates, not norms: for vectors of a known L2 norm `PrivUnit` is far more accurate.
    """

    epsilon: float
    dimension: int = 1
    radius: float = 1.0

    def __post_init__(self) -> None:
        checks.set_checked(
            self, epsilon=checks.positive, dimension=checks.count, radius=checks.positive
        )
        if not 2.0**-500 < self.radius < 2.0**500:
            raise InputError(f"radius {self.radius:g} is out of range.")
        if self.epsilon_per_part < Fraction(1, 1_000_000):
            raise InputError(f"epsilon {self.epsilon:g} is too small for a report to say anything.")

    @property
    def num_sampled(self) -> int:
        """How many coordinates a report tells about: k."""
        return num_parts(self.epsilon, self.dimension)

    @property
    def epsilon_per_part(self) -> Fraction:
        """What one of these coordinates spends: epsilon / k, rounded down."""
        return epsilon_share(self.epsilon, self.num_sampled)

    @property
    def growth(self) -> float:
        """e^(x/2), or a number beyond which it makes no difference."""
        return math.exp(min(float(self.epsilon_per_part) / 2.0, 300.0))

    @property
    def window(self) -> int:
        """How many of the cells the window has: the least w with (CELLS - w) / w <= e^(x/2)."""
        # The quotient's rounding error is far below 2^-10; a window one cell too wide is safe.
        return math.ceil(CELLS / (1.0 + self.growth) + 2.0**-10)

    @property
    def slope(self) -> float:
        """How far the mean cell moves when the window moves by one: p - (1 - p) w / (N - w)."""
        return 1.0 - CELLS / (1.0 + self.growth) / (CELLS - self.window)

    @property
    def event(self) -> Event:
        """What one report costs its agent."""
        return PureDP(self.epsilon, relation=Relation.LOCAL)

    def variance(self, t: ArrayLike) -> Array:
        """The variance of one coordinate's report about t in [-1, 1]."""
        square, constant = self._variance()
        return as_float64("t", t) ** 2 * square + constant

    def error(self, row: ArrayLike) -> float:
        """E |report - row|^2 for a row within the radius."""
        t = as_rows(row, self.dimension) / self.radius
        second = np.sum(self.variance(t) + t**2) * self.dimension / self.num_sampled
        return float(self.radius**2 * (second - np.sum(t**2)))

    def release(self, rows: ArrayLike, source: Source) -> tuple[Array, Event]:
        """A report for each row, and what each of them cost its agent."""
        finite = as_rows(rows, self.dimension)
        t = np.clip(finite, -self.radius, self.radius).reshape(-1, self.dimension) / self.radius
        chosen = _sample_coordinates(source, len(t), self.dimension, self.num_sampled)
        values = self._report_numbers(np.take_along_axis(t, chosen, axis=1).ravel(), source)
        reports = np.zeros_like(t)
        scale = self.radius * self.dimension / self.num_sampled
        np.put_along_axis(reports, chosen, scale * values.reshape(chosen.shape), axis=1)
        return reports.reshape(finite.shape), self.event

    def _report_numbers(self, t: Array, source: Source) -> Array:
        """One report for each number."""
        return self.values(self.cells(t, source))

    def _variance(self) -> tuple[float, float]:
        """The variance's factor of t^2 and its constant."""
        above = self.growth - 1.0
        return 1.0 / above, (above + 4.0) / (3.0 * above**2)

    def cells(self, t: Array, source: Source) -> Integers:
        """The cell that is reported for each number in [-1, 1]."""
        generator, w = source.generator, self.window
        place = (1.0 + t) * (0.5 * (CELLS - w))
        below = np.floor(place)
        # place - below is exact; the coin has it rounded to a multiple of 2^-52.
        first = below.astype(np.int64) + stochastic_sign(generator, 2.0 * (place - below) - 1.0)
        inside = bernoulli_sigmoid(generator, self.epsilon_per_part / 2, t.size)
        within = first + generator.integers(0, w, t.size, dtype=np.int64)
        outside = generator.integers(0, CELLS - w, t.size, dtype=np.int64)
        outside += np.where(outside >= first, w, 0)
        return np.where(inside, within, outside)

    def values(self, cells: Integers) -> Array:
        """The unbiased number that a cell stands for."""
        return (cells - 0.5 * (CELLS - 1)) * (2.0 / (self.slope * (CELLS - self.window)))


@dataclass(frozen=True)
class HybridMechanism(PiecewiseMechanism):
    """Piecewise with probability 1 - e^(-x/2), one bit otherwise; one bit always below x* = 0.61.

    Never has a larger worst-case variance than either of the two.
    """

    @property
    def bit_size(self) -> float:
        """The size of a one-bit report: (e^x + 1) / (e^x - 1)."""
        return 1.0 / math.tanh(float(self.epsilon_per_part) / 2.0)

    def _report_numbers(self, t: Array, source: Source) -> Array:
        wanted = stochastic_sign(source.generator, t)
        bits = wanted == bernoulli_sigmoid(source.generator, self.epsilon_per_part, t.size)
        signed = np.where(bits, self.bit_size, -self.bit_size)
        if float(self.epsilon_per_part) <= THRESHOLD:
            return signed
        one_bit = exact.bernoulli_exp(source.generator, self.epsilon_per_part / 2, t.size)
        return np.where(one_bit, signed, super()._report_numbers(t, source))

    def _variance(self) -> tuple[float, float]:
        if float(self.epsilon_per_part) <= THRESHOLD:
            return -1.0, self.bit_size**2
        one_bit = 1.0 / self.growth
        square, constant = super()._variance()
        return (
            (1.0 - one_bit) * square - one_bit,
            (1.0 - one_bit) * constant + one_bit * self.bit_size**2,
        )


def _sample_coordinates(source: Source, rows: int, dimension: int, count: int) -> Integers:
    """`count` distinct coordinates for each row."""
    if count == dimension:
        return np.tile(np.arange(dimension), (rows, 1))
    order = np.argpartition(source.generator.random((rows, dimension)), count - 1, axis=1)
    return order[:, :count]
