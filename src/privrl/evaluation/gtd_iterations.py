"""The iterations of private gradient temporal differences: clipped sums, noise, steps along them.

`private_gtd.py` has the equations, and the theorem.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privrl.core.types import Floats
from privrl.evaluation.bellman_error import UnitMoments
from privrl.evaluation.sums import clip_scales, row_squares, sum_rows
from privrl.privacy.events import Event
from privrl.privacy.noise import Source
from privrl.privacy.plan import NoisyPlan, PoissonBatches

Form = Literal["residual", "primal-dual"]


@dataclass(frozen=True)
class GTDPlan:
    """One run, wholly public."""

    form: Form
    iterations: int
    step: float
    first_clip: float
    last_clip: float
    momentum: float
    average: float
    noisy: NoisyPlan
    """In units of the clip bound of each iteration."""

    @property
    def rate(self) -> float:
        """With which probability a unit takes part in an iteration, as the schedule has it."""
        schedule = self.noisy.schedule
        return schedule.rate if isinstance(schedule, PoissonBatches) else 1.0

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on a sum, in units of the clip bound."""
        return self.noisy.noise_multiplier

    @property
    def event(self) -> Event:
        """What the whole run does to a unit."""
        return self.noisy.event

    def size(self, dimension: int) -> int:
        """How many numbers are noised in each iteration."""
        return dimension if self.form == "residual" else 2 * dimension

    @property
    def settings(self) -> dict[str, Any]:
        """For the result."""
        names = ("form", "iterations", "step", "rate", "momentum", "average", "noise")
        return {"clip": (self.first_clip, self.last_clip)} | {n: getattr(self, n) for n in names}

    def bound(self, k: int) -> float:
        """The clip bound of iteration k."""
        if self.iterations == 1:
            return self.first_clip
        return float(
            self.first_clip * (self.last_clip / self.first_clip) ** (k / (self.iterations - 1))
        )

    def run(self, units: UnitMoments, source: Source) -> Floats:
        """theta after all iterations, averaged."""
        gtd, parts = GTDRun(self, units.dimension, source), units.parts()
        for _ in range(self.iterations):
            for part in parts:
                drawn = None
                if self.rate < 1.0:
                    drawn = source.generator.random(part.count) < self.rate
                rows = contributions(part, gtd.state, self.form)
                gtd.exact += clipped_sum(rows, gtd.bound, drawn)
            gtd.advance(self.rate * units.count)
        return gtd.theta

    def clipped_share(self, units: UnitMoments, theta: Floats) -> float:
        """Which share of the units the last bound clips at theta (and w = 0): for public data."""
        state = np.concatenate([theta, np.zeros(0 if self.form == "residual" else theta.size)])
        norms = np.linalg.norm(contributions(units, state, self.form), axis=1)
        return float(np.mean(norms > self.last_clip))


class GTDRun:
    """How far a run has come. `exact` is private; all else comes from noised sums."""

    def __init__(self, plan: GTDPlan, dimension: int, source: Source) -> None:
        size = plan.size(dimension)
        self.plan, self.dimension, self.source = plan, dimension, source
        self.k = 0
        self.state, self.exact = np.zeros(size), np.zeros(size)
        self._velocity, self._total = np.zeros(size), np.zeros(dimension)
        self._averaged = max(1, round(plan.average * plan.iterations))

    @property
    def bound(self) -> float:
        """The clip bound of the iteration under way."""
        return self.plan.bound(self.k)

    def advance(self, count: float) -> None:
        """Release `exact`, which is the sum over `count` units, and step along it."""
        noised = self.plan.noisy.release(self.exact, self.source, self.bound)
        # Everything from here on sees noised sums only.
        self._velocity = self.plan.momentum * self._velocity + noised / count
        self.state = self.state + self.plan.step * self._velocity
        if self.k >= self.plan.iterations - self._averaged:
            self._total += self.state[: self.dimension]
        self.k, self.exact = self.k + 1, np.zeros_like(self.exact)

    @property
    def theta(self) -> Floats:
        """The average so far, which is the result once all iterations are done."""
        return self._total / self._averaged


def contributions(units: UnitMoments, state: Floats, form: Form) -> Floats:
    """g_i for each unit, one row each; of unit i's data and of `state` alone."""
    d = units.dimension
    with np.errstate(all="ignore"):
        residual = units.b - units.times(units.A, state[:d])
        if form == "residual":
            return residual
        dual = residual - units.times(units.C, state[d:])
        return np.concatenate([units.times(units.transposed, state[d:]), dual], axis=1)


def clipped_sum(rows: Floats, bound: float, drawn: NDArray[np.bool_] | None = None) -> Floats:
    """The sum of the rows, of those drawn, each scaled to L2 norm at most `bound`.

    Total: a row that is not finite, or whose square is not, counts as zeros.
    """
    with np.errstate(all="ignore"):
        factors = clip_scales(row_squares(rows), bound, rows.shape[1])
    return sum_rows(rows, factors if drawn is None else np.where(drawn, factors, 0.0))
