"""The Gaussian mechanism, calibrated analytically (Balle and Wang 2018).

Unit and relation: the caller's; each unit contributes a vector of L2 norm at most `bound` to the
sum (clip per unit, then sum). Sensitivity: `sensitivity(bound, relation)`. Theorem: the release is
mu-GDP with mu = sensitivity / std (Dong, Roth, Su 2022), for any dimension and adaptively chosen
sums. Arithmetic: 64-bit floating point, so certificates list "idealised real arithmetic".
"""

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.types import Array
from privrl.privacy.accounting import calibrate, epsilon
from privrl.privacy.events import Event, Gaussian, Repeated
from privrl.privacy.noise import Source, as_finite_float64
from privrl.privacy.promise import Budget, Relation


@dataclass(frozen=True)
class GaussianMechanism:
    """Adds N(0, std^2) to every coordinate of a sum of contributions of L2 norm at most `bound`."""

    std: float
    bound: float

    def __post_init__(self) -> None:
        checks.set_checked(self, std=checks.positive, bound=checks.positive)

    @classmethod
    def from_budget(
        cls,
        bound: float,
        budget: Budget,
        relation: Relation = Relation.REPLACE_ONE,
        *,
        times: int = 1,
    ) -> "GaussianMechanism":
        """The least noise with which `times` releases stay within `budget`."""
        bound = checks.positive("bound", bound)
        # Calibrated at bound 1 and scaled, so that tiny and huge bounds are found as easily.
        unit = calibrate(lambda std: Repeated(Gaussian(std, 1.0), times), budget, relation)
        made = cls(math.nextafter(unit * bound, math.inf), bound)
        # What is calibrated is delta at this epsilon. A certificate states epsilon at this delta,
        # which rounding may take a last digit beyond.
        for power in range(-44, 0):
            if epsilon(Repeated(made.event, times), budget.delta, relation) <= budget.epsilon:
                break
            made = cls(unit * bound * (1.0 + math.ldexp(1.0, power)), bound)
        return made

    @property
    def event(self) -> Event:
        """What one release does."""
        return Gaussian(self.std, self.bound)

    def release(self, value: ArrayLike, source: Source) -> tuple[Array, Event]:
        """`value` with noise from `source`, and what was done."""
        exact = as_finite_float64("value", value)
        return exact + source.normal(self.std, exact.shape), self.event
