"""Values from weighted returns: IS, PDIS, WIS and WPDIS (Precup, Sutton and Singh 2000).

With rho_t = pi(a_t|s_t) / b(a_t|s_t), w_it = rho_i0 ... rho_it for trajectory i, r_it its rewards
and G_i = sum_t gamma^t r_it:

    IS     mean_i  w_iL G_i                    (L the last step of trajectory i)
    PDIS   mean_i  sum_t gamma^t w_it r_it
    WIS    sum_i w_iL G_i / sum_i w_iL
    WPDIS  sum_t gamma^t (sum_i w_it r_it) / (sum_i w_it)

IS and PDIS are unbiased, if the behaviour policy may take every action that the target may take;
the weighted forms are consistent, and vary far less. Nothing here is private.

*Trajectories that ended keep the weight of their last step.* They stay for ever in a state of
reward 0, where both policies do the same: rho = 1. So sum_i w_it runs over all trajectories for
every t up to the horizon. Dropping those that ended would average over survivors only, which is not
the value of anything: `tests/evaluation/test_importance.py` has an example.

*People count equally.* With a user column a person's trajectories are averaged first, and people
are the independent units of every interval; without, trajectories are.

Weights are products in log space. `weight_cap` limits w_it; the estimate is then that of clipped
weights, and biased.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Policy, Trajectories
from privrl.evaluation import intervals
from privrl.evaluation.intervals import Contributions, mean_by_unit
from privrl.evaluation.result import Interval, NotPrivate, Result
from privrl.evaluation.steps import (
    check_discount,
    check_in_memory,
    check_range,
    importance_ratios,
)

Kind = Literal["student", "bernstein", "bootstrap", "fieller"]


@dataclass(frozen=True)
class WeightedTrajectories:
    """Trajectories side by side up to the horizon, (trajectory, step)."""

    rewards: Floats
    mask: NDArray[np.bool_]
    log_weights: Floats
    """Logarithms of w_it; minus infinity where the target policy would never have come."""

    data: Trajectories
    policy: Policy | None

    @property
    def returns(self) -> Floats:
        """Sums of `rewards`, which are discounted already."""
        return np.asarray(self.rewards.sum(axis=1))

    def by_unit(self, values: Floats) -> Floats:
        """The mean of `values` over each unit's trajectories."""
        return mean_by_unit(values, np.asarray(self.data.unit_index), self.data.num_units)


def weight_trajectories(
    data: Trajectories,
    policy: Policy | None,
    gamma: float,
    horizon: int | None = None,
    cap: float | None = None,
) -> WeightedTrajectories:
    """Discounted rewards and running products of ratios, in log space."""
    check_in_memory(data)
    longest = int(data.lengths.max())
    # Behind the longest trajectory rewards are 0 and weights stay as they are.
    horizon = longest if horizon is None else min(checks.count("horizon", horizon), longest)
    mask = np.arange(horizon) < data.lengths[:, None]
    rows = (data.offsets[:-1, None] + np.arange(horizon))[mask]
    with np.errstate(divide="ignore", over="ignore"):
        logs = np.log(importance_ratios(data, policy))
    if np.any(logs == math.inf):
        raise InputError("A ratio is too large for a number: a behaviour probability is next to 0.")
    # A step that is not there has ratio 1 and reward 0.
    log_ratios, rewards = np.zeros(mask.shape), np.zeros(mask.shape)
    log_ratios[mask] = logs[rows]
    rewards[mask] = data.rewards[rows]
    log_weights = np.cumsum(log_ratios, axis=1)
    if cap is not None:
        log_weights = np.minimum(log_weights, math.log(checks.positive("weight_cap", cap)))
    powers = check_discount(gamma) ** np.arange(horizon)
    return WeightedTrajectories(rewards * powers, mask, log_weights, data, policy)


def plain_weights(log_weights: Floats) -> Floats:
    """The weights themselves, if they are numbers."""
    with np.errstate(over="ignore"):
        weights = np.exp(log_weights)
    if not np.all(np.isfinite(weights)):
        raise InputError("A product of ratios is too large for a number: give a weight_cap.")
    return np.asarray(weights)


def relative_weights(log_weights: Floats) -> Floats:
    """The weights of each step, divided by the largest: for ratios, where the scale cancels."""
    largest = log_weights.max(axis=0)
    return np.asarray(np.exp(log_weights - np.where(np.isfinite(largest), largest, 0.0)))


@dataclass(frozen=True)
class ValueEstimator(ABC):
    """Settings and the way from contributions to a result, common to all of them."""

    gamma: float = 1.0
    """The discount factor, from 0 to 1."""

    horizon: int | None = None
    """How many steps count; all of them, if nothing is said."""

    weight_cap: float | None = None
    """No product of ratios counts for more than this."""

    level: float = 0.95
    """Nominal level of the interval, two-sided."""

    interval: Kind = "student"
    """See `privrl.evaluation.intervals`."""

    bounds: tuple[float, float] | None = None
    """For "bernstein": what one unit's weighted return could be, declared, not measured."""

    draws: int = 1000
    """For "bootstrap": how many resamples."""

    seed: int = 0
    """For "bootstrap"."""

    support_floor: float = 0.01
    """A step whose action had a smaller behaviour probability counts as badly supported."""

    method: ClassVar[str]

    def __post_init__(self) -> None:
        check_discount(self.gamma)
        intervals.confidence_level(self.level)
        checks.count("draws", self.draws)
        checks.rate("support_floor", self.support_floor)
        if self.horizon is not None:
            checks.count("horizon", self.horizon)
        if self.weight_cap is not None:
            checks.positive("weight_cap", self.weight_cap)
        checks.choice("interval", self.interval, get_args(Kind))
        if self.interval == "bernstein" and self.bounds is None:
            raise InputError("bounds are needed: say what a weighted return could be.")
        if self.bounds is not None:
            check_range("bounds", self.bounds)
        checks.count("seed", self.seed, least=0)

    @abstractmethod
    def _contributions(self, sides: WeightedTrajectories) -> Contributions:
        """What each unit adds to the estimate, as a mean or as ratios of means."""

    def fit(self, data: Trajectories, policy: Policy | None = None) -> Result:
        """The value of `policy`, or of the policy whose probabilities the data carries."""
        sides = weight_trajectories(data, policy, self.gamma, self.horizon, self.weight_cap)
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._contributions(sides)
            estimate, influence = found.estimate, found.influence
            logged = sides.by_unit(sides.returns)
            if not np.isfinite([estimate, influence.std(), logged.std()]).all():
                raise InputError(
                    f"What {self.method} adds up is too large for numbers: scale the rewards, or "
                    "give a weight_cap."
                )
        behavior, pulls = float(logged.mean()), logged - logged.mean()
        # Of the spread of a ratio that hangs on one unit no more is known than of one unit's.
        apart = (influence - pulls)[: 1 if found.is_degenerate else None]
        return Result(
            method=self.method,
            promise=NotPrivate(),
            estimate=estimate,
            interval=self._interval(found),
            settings=self._settings(),
            details={
                "behavior": _estimate_dict(behavior, pulls, self.level),
                "difference": _estimate_dict(estimate - behavior, apart, self.level),
                **diagnosis(sides, self.support_floor),
            },
        )

    def _interval(self, found: Contributions) -> Interval:
        if self.interval == "bernstein":
            assert self.bounds is not None
            return intervals.bernstein(found, self.level, self.bounds)
        if self.interval == "bootstrap":
            return intervals.bootstrap(found, self.level, self.draws, self.seed)
        make = intervals.fieller if self.interval == "fieller" else intervals.student
        return make(found, self.level)

    def _settings(self) -> dict[str, Any]:
        names = ("gamma", "horizon", "weight_cap", "level", "interval")
        return {name: getattr(self, name) for name in names}


def _estimate_dict(estimate: float, influence: Floats, level: float) -> dict[str, Any]:
    return {
        "estimate": estimate,
        "interval": intervals.influence_interval(estimate, influence, level).to_dict(),
    }


def diagnosis(sides: WeightedTrajectories, floor: float) -> dict[str, Any]:
    """How much of the data speaks about the policy.

    The effective sample size of step t is (sum_i w_it)^2 / sum_i w_it^2 over units; the largest
    share is that of one unit in the weights of the last step.
    """
    weights, data = sides.by_unit(relative_weights(sides.log_weights)), sides.data
    sums, squares = weights.sum(axis=0), (weights**2).sum(axis=0)
    size = np.divide(sums**2, squares, out=np.zeros(len(sums)), where=squares > 0.0)
    low = 0.0
    if data.behavior_probs is not None:
        low = float(np.mean(data.behavior_probs < floor))
    return {
        "units": data.num_units,
        "effective_sample_size": float(size[-1]),
        "effective_sample_size_by_step": size.tolist(),
        "largest_weight_share": float(weights[:, -1].max() / sums[-1]) if sums[-1] > 0 else 0.0,
        "zero_weight_share": float(np.mean(weights[:, -1] == 0.0)),
        "low_support_share": low,
    }


@dataclass(frozen=True)
class IS(ValueEstimator):
    """The mean of returns, each weighted by its whole trajectory's ratio."""

    method: ClassVar[str] = "IS"

    def _contributions(self, sides: WeightedTrajectories) -> Contributions:
        values = plain_weights(sides.log_weights[:, -1]) * sides.returns
        return Contributions.average(sides.by_unit(values))


@dataclass(frozen=True)
class PDIS(ValueEstimator):
    """Each reward weighted by the ratio of the steps up to it."""

    method: ClassVar[str] = "PDIS"

    def _contributions(self, sides: WeightedTrajectories) -> Contributions:
        values = (plain_weights(sides.log_weights) * sides.rewards).sum(axis=1)
        return Contributions.average(sides.by_unit(values))


@dataclass(frozen=True)
class WIS(ValueEstimator):
    """Weighted returns, divided by the sum of the weights."""

    method: ClassVar[str] = "WIS"

    def _contributions(self, sides: WeightedTrajectories) -> Contributions:
        weights = relative_weights(sides.log_weights[:, -1:])
        pair = np.column_stack([weights * sides.returns[:, None], weights])
        pair = sides.by_unit(pair)
        return Contributions(np.zeros(len(pair)), pair[:, :1], pair[:, 1:])


@dataclass(frozen=True)
class WPDIS(ValueEstimator):
    """At each step, weighted rewards divided by the sum of that step's weights."""

    method: ClassVar[str] = "WPDIS"

    def _contributions(self, sides: WeightedTrajectories) -> Contributions:
        weights = relative_weights(sides.log_weights)
        above, below = sides.by_unit(weights * sides.rewards), sides.by_unit(weights)
        return Contributions(np.zeros(len(below)), above, below)
