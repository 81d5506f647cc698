"""What private estimators of value functions have in common: public settings, checked.

`private_gtd`, `private_lstd`, `dplsw` and `dplsl` say what they do, and why it is private.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Features, Policy
from privrl.evaluation.bellman_error import (
    UnitMoments,
    check_reward_range,
    moments,
    mspbe,
    off_policy,
    unit_moments,
    value_at,
)
from privrl.evaluation.precondition import whitening_matrix
from privrl.evaluation.result import Result
from privrl.evaluation.steps import Data, check_discount
from privrl.privacy.promise import Budget, check_gaussian_budget


@dataclass(frozen=True)
class PrivateLinear:
    """An estimator of a value function that is linear in `features`."""

    features: Features
    """Of states; the value is linear in them."""

    reward_range: tuple[float, float]
    """What any reward could be; rewards outside are clipped into it."""

    budget: Budget
    """What may be spent; delta above 0."""

    gamma: float = 0.99
    """The discount factor, from 0 to 1."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reward_range", check_reward_range(self.reward_range))
        check_discount(self.gamma)
        check_gaussian_budget(self.budget)

    def with_diagnostics(
        self, result: Result, data: Data, policy: Policy | None, start: Any, **more: float
    ) -> Result:
        """The result with what may be shown of public data."""
        assert result.weights is not None
        error = mspbe(result.weights, moments(data, policy, self.features, self.gamma))
        return replace(
            result,
            estimate=value_at(self.features, result.weights, start, data, public=True),
            diagnostics={"mspbe": error, **more},
        )


@dataclass(frozen=True)
class OffPolicyLinear(PrivateLinear):
    """One that judges any policy, in features changed by a public linear map."""

    weight_cap: float | None = None
    """The largest importance ratio that counts; needed to judge another policy."""

    precondition: Any = field(default=None, kw_only=True)
    """C0, public: a matrix, or the diagonal of one; see `precondition.public_gram`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight_cap is not None:
            checks.positive("weight_cap", self.weight_cap)
        whitening_matrix(self.features, self.precondition)

    @cached_property
    def change(self) -> Floats:
        """L^-1, for L L' = C0."""
        return whitening_matrix(self.features, self.precondition)

    def change_back(self, theta: Floats) -> Floats:
        """Weights of the features as they are, for `theta` of the changed ones."""
        return self.change * theta if self.change.ndim == 1 else self.change.T @ theta

    def is_off_policy(self, data: Data, policy: Policy | None) -> bool:
        """Whether another policy is judged than was followed, which needs a `weight_cap`."""
        off = off_policy(data, policy)
        if off and self.weight_cap is None:
            raise InputError(
                "is needed to judge another policy: say how large a ratio may count.",
                field="weight_cap",
            )
        return off

    def unit_moments(
        self, data: Data, policy: Policy | None, *, public: bool, dual: bool = False
    ) -> UnitMoments:
        """Those of changed features; `public` lets what nobody paid for pass."""
        return unit_moments(
            data,
            policy,
            self.features,
            self.gamma,
            cap=self.weight_cap,
            reward_range=self.reward_range,
            change=self.change,
            dual=dual,
            certified=not public,
        )

    def settings(self, units: int) -> dict[str, Any]:
        """For the result."""
        names = ("gamma", "reward_range", "weight_cap")
        return {**{name: getattr(self, name) for name in names}, "units": units}
