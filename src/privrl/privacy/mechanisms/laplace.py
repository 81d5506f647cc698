"""The Laplace mechanism.

Unit and relation: the caller's; each unit contributes a vector of L1 norm at most `bound` to the
sum (clip per unit, then sum). Sensitivity: `sensitivity(bound, relation)` in L1. Theorem: the
release is pure (sensitivity / scale)-DP (Dwork et al. 2006), for any dimension and adaptively
chosen sums. Arithmetic: 64-bit floating point, so certificates list "idealised real arithmetic".
"""

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.types import Array
from privrl.privacy.accounting import calibrate
from privrl.privacy.events import Event, Laplace, Repeated
from privrl.privacy.noise import Source, as_finite_float64
from privrl.privacy.promise import Budget, Relation


@dataclass(frozen=True)
class LaplaceMechanism:
    """Adds Laplace noise to every coordinate of a sum of contributions of L1 norm <= `bound`."""

    scale: float
    bound: float

    def __post_init__(self) -> None:
        checks.set_checked(self, scale=checks.positive, bound=checks.positive)

    @classmethod
    def from_budget(
        cls,
        bound: float,
        budget: Budget,
        relation: Relation = Relation.REPLACE_ONE,
        *,
        times: int = 1,
    ) -> "LaplaceMechanism":
        """The least noise with which `times` releases stay within `budget`."""
        bound = checks.positive("bound", bound)
        unit = calibrate(lambda scale: Repeated(Laplace(scale, 1.0), times), budget, relation)
        return cls(math.nextafter(unit * bound, math.inf), bound)

    @property
    def event(self) -> Event:
        """What one release does."""
        return Laplace(self.scale, self.bound)

    def release(self, value: ArrayLike, source: Source) -> tuple[Array, Event]:
        """`value` with noise from `source`, and what was done."""
        exact = as_finite_float64("value", value)
        return exact + source.laplace(self.scale, exact.shape), self.event
