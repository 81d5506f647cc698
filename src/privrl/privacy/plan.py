"""Noisy plans: noise, who takes part in which release, and the event that both make, coupled.

Whoever releases sums of clipped contributions with Gaussian noise makes one plan, pays for
`plan.event`, and adds noise through the plan, so that noise and price cannot come apart:

    plan = NoisyPlan.from_budget(budget, Relation.REPLACE_ONE, FullBatches(updates))
    session.pay(plan.event)
    noised = plan.release(exact, source)                         # NumPy
    noised = gaussian_jax.add(exact, plan.std, key)              # in a compiled loop

Unit and relation: the caller's. Each unit contributes a vector of L2 norm at most `bound` to each
sum that it takes part in (clip per unit, then sum). Sensitivity of a sum: that of the relation for
this bound. Theorem: that of the schedule's event, each release being Gaussian(std, bound); sums may
be chosen adaptively.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.types import Array
from privrl.privacy.accounting import calibrate
from privrl.privacy.events import (
    Disjoint,
    Event,
    FixedSizeSampled,
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    Repeated,
)
from privrl.privacy.mechanisms.gaussian import GaussianMechanism
from privrl.privacy.noise import Source
from privrl.privacy.promise import Budget, Relation


class Schedule(Protocol):
    """Who takes part in which release."""

    def event(self, one: Event) -> Event:
        """What all releases do to a unit, if `one` is what a release does that it takes part in."""
        ...


@dataclass(frozen=True)
class FullBatches:
    """Full batches: every unit takes part in each of `times` releases (adaptive composition)."""

    times: int

    def event(self, one: Event) -> Event:
        return Repeated(one, self.times)


@dataclass(frozen=True)
class DisjointBatches:
    """Disjoint batches: each unit takes part in one of the releases (parallel composition).

    In which one must not depend on anybody's data.
    """

    def event(self, one: Event) -> Event:
        return Disjoint((one,))


@dataclass(frozen=True)
class PoissonBatches:
    """Poisson subsampling: in each of `times` releases a unit takes part with probability `rate`.

    Draws are fresh in each release, independent of one another, and secret.
    """

    rate: float
    times: int

    def event(self, one: Event) -> Event:
        return Repeated(one if self.rate == 1.0 else PoissonSampled(one, self.rate), self.times)


@dataclass(frozen=True)
class AllocatedBatches:
    """Random allocation: a unit takes part in one of `releases`, drawn uniformly, in secret."""

    releases: int

    def event(self, one: Event) -> Event:
        return RandomAllocation(one, self.releases)


@dataclass(frozen=True)
class SingleSamples:
    """Single samples: one of `units` takes part in each of `times` releases.

    It is drawn uniformly, afresh each time, and in secret.
    """

    units: int
    times: int

    def event(self, one: Event) -> Event:
        return Repeated(FixedSizeSampled(one, self.units, 1), self.times)


@dataclass(frozen=True)
class NoisyPlan:
    """Gaussian noise on each of several sums, by a schedule."""

    noise_multiplier: float
    """Standard deviation of the noise, over the bound."""

    schedule: Schedule
    bound: float = 1.0

    def __post_init__(self) -> None:
        checks.set_checked(self, noise_multiplier=checks.positive, bound=checks.positive)

    @classmethod
    def from_budget(
        cls,
        budget: Budget,
        relation: Relation,
        schedule: Schedule,
        *,
        bound: float = 1.0,
        beside: Iterable[Event] = (),
        tolerance: float = 1e-6,
    ) -> "NoisyPlan":
        """The least noise with which all releases, and what is paid `beside`, are in `budget`."""
        listed = tuple(beside)
        least = calibrate(
            lambda z: (*listed, schedule.event(Gaussian(z, 1.0))),
            budget,
            relation,
            tolerance=tolerance,
        )
        return cls(least, schedule, bound)

    @property
    def std(self) -> float:
        """Of the noise on each coordinate."""
        return self.noise_multiplier * self.bound

    @property
    def event(self) -> Event:
        """What all releases do to a unit."""
        return self.schedule.event(Gaussian(self.noise_multiplier * self.bound, self.bound))

    def release(self, exact: ArrayLike, source: Source, scale: float = 1.0) -> Array:
        """One sum with its noise; its contributions are clipped to `scale` times the bound."""
        mechanism = GaussianMechanism(self.std * scale, self.bound * scale)
        return mechanism.release(exact, source)[0]
