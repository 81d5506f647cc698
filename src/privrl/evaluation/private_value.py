"""The value of a policy, of the one that was followed, and their difference: one paid release.

For trajectory i of at most `horizon` steps let rho_i be the product of its ratios pi/b, c the
public `weight_cap`, w_i = min(rho_i, c) / c in [0, 1], and Y_i its discounted return, scaled by the
public return range to [-1, 1]. What is released is one noised sum over people of

    x(w, Y) = MAP f(w, Y),    f(w, Y) = (w, wY, Y, w^2, w^2 Y, w^2 Y^2, wY^2, Y^2),

with the fixed invertible matrix MAP of `private_figures` and the same noise on each coordinate. So
the noise on the sums of f has the covariance std^2 (MAP' MAP)^-1, an ellipsoid that fits what
people may contribute (Li, Miklau, Hay, McGregor, Rastogi 2015 call it a matrix mechanism).
Everything below is post-processing of these eight numbers.

**Unit and relation.** A person (a trajectory, if nobody is named), replace-one; the number of
people is public. A person's trajectories are averaged: so people, not trajectories, weigh equally
in every figure.

**Sensitivity.** |x - x'|^2 <= 1025/1024 for any two people, and 1025/1024 for w = w' = 1, Y = 1,
Y' = -1. Proof: write f(w, Y) = g(w, w^2; Y, Y^2), where g(w, u; Y, q) = (w, wY, Y, u, uY, uq, wq,
q) is affine in (w, u) and affine in (Y, q). A parabola lies below its chord and above its tangents.
So (w, w^2) lies in the polygon u <= w, u >= 0, u >= w - 1/4, u >= 2w - 1, whose corners are (0, 0),
(1/4, 0), (3/4, 1/2) and (1, 1); and (Y, Y^2) lies in the polygon below q = 1 and above the tangents
at -1, -1/2, 0, 1/2 and 1, with the corners (+-1, 1), (+-3/4, 1/2) and (+-1/4, 0). Hence f is a mean
of g at the 4 x 6 pairs of corners, and so is a mean of several f. A distance is convex in each
point, so it is largest between two of these 24 points; the 276 distances are rational numbers, and
a test finds the largest of them, exactly. The event is `Gaussian(std, bound)` with `bound` *half*
the largest distance, because under replace-one an event moves by 2 bound; so it holds for that
relation alone, and no person's x need lie within `bound` of anything. (With the diagonal map
diag(3/2, 1, 1/2, ..., 1/2) the largest distance is sqrt(6) by the same proof; twice the radius of
the smallest ball, which was charged in earlier versions, is 2.650.)

*Rounding.* w and Y are doubles in their ranges. An entry of f is at most 1 and off by less than
4 2^-53; the mean of n rows is off by n 2^-53 more, and a row of MAP multiplies that by its absolute
sum, below 6.1, and adds 8 roundings. So x is off by less than sqrt(8) 6.1 (n + 20) 2^-53 in norm,
and distances by twice that: below 3e-7 for n <= 2^26. Someone with more trajectories counts as
w = 0, Y = 0; the bound has a margin of 1e-6.

*On the grid* (`grid`) x is rounded to multiples of a small step, which changes a coordinate of
x - x' by at most one step; so integer vectors differ by at most |x - x'| / step + sqrt(8), which
is 2 bound of a `DiscreteGaussian` event; no arithmetic is idealised.

**On-policy** (`on_policy`) no other policy is judged and w = 1 for everybody, those included whose
data is not valid, with Y = 0. So f has two unknown sums, of Y and of Y^2, and least squares find
them in the eight noised ones, with a third less noise on the value than the sum of Y alone has.

**Choice of MAP.** The largest distance being fixed, MAP minimises Var(w) + Var(wY) + 0.15 Var(Y) +
0.05 (the sum of the other five) of the noise, up to a rounding to multiples of 1/64 that costs less
than half a percent; `python -m benchmarks private_value` has the optimum and its dual bound. It
looks at no data. Against the diagonal map and the ball, noise is 23 % lower on the target, 44 % on
the behaviour policy, and at least 56 % on the second moments.

**What the interval covers.** Clipping loses weight: p = E[min(rho, c)] = c E[w] is below 1 by the
mass that the cap cuts off, and by whatever the target policy does that the data never shows. For
the value V of the target policy, p V_c + (1 - p) V_rest = V, where V_c = E[wY] / E[w] is the
clipped value, and V_rest, an average of returns, lies in [-1, 1] and is otherwise unknown. Hence

    |V - V_c| = (1 - p) |V_rest - V_c| <= (1 - p) range,    and more sharply

    -1 + c E[w (1 + Y)]  <=  V  <=  1 - c E[w (1 - Y)],

since p V_c = c E[wY]. Both ends are *means*, so they are estimated without a ratio: the interval is
the lower end less its error and the upper end plus its error, each at (1 - level) / 2. It needs no
assumption on ratios or support, and contains sampling error, noise, and all of the clipping bias.
(An interval for V_c with an upper confidence bound on 1 - p added would hold too, but is wider:
the two errors would add up, here they add in squares.)

For V_c itself (`details["clipped"]`) Fieller's method: all v for which sum(wY - v w) is within
error. If `largest_ratio`, what rho can be at most, is given and not above the cap, nothing is ever
clipped, V = V_c, and this narrower interval is *the* interval.

**Errors.** The error of sum_i z_i, z = a w + b wY + d Y, has variance T = n Var(z) + noise, where
the noise's covariance is known and n Var(z) comes from the released second moments, not below 0. As
that is itself noisy, quantiles are Student's, with the degrees of freedom 2 T^2 / Var(T estimated)
(Satterthwaite); Var(T estimated) <= known noise + max(z)^2 sum z^2. With several trajectories per
person the mean of squares stands for the square of the mean, which is never less: such intervals
are on the wide side.

**Total.** Rewards and returns are clamped to their public ranges; steps beyond the horizon do not
count; a trajectory with a NaN, an infinite reward, or a probability outside (0, 1] contributes
w = 0, Y = 0. A policy's own errors are its author's business, so use the named ones.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Policy, Trajectories
from privrl.data.assumptions import data_assumptions
from privrl.evaluation.intervals import confidence_level, mean_by_unit
from privrl.evaluation.private_figures import (
    COVARIANCE,
    INVERSE,
    MAP,
    Figures,
    Terms,
    moments,
    on_policy_moments,
)
from privrl.evaluation.result import Result
from privrl.evaluation.steps import Data, check_discount, logged_probs, refuse_unpaid
from privrl.evaluation.sums import Sums, gather_sums
from privrl.privacy.accounting import calibrate
from privrl.privacy.certificate import Assumption
from privrl.privacy.ledger import warn_if_large
from privrl.privacy.mechanisms import GaussianMechanism, GridGaussianMechanism
from privrl.privacy.promise import Budget, Relation, check_gaussian_budget
from privrl.privacy.session import SECRET_SESSION, OpenSession, PrivacySession

# Half of the largest distance between two contributions, and a margin for rounding.
BOUND = math.sqrt(1025 / 1024) / 2.0 * (1.0 + 1e-6)
# The mean of so many trajectories is within that margin.
_MOST_TRAJECTORIES = 2**26

# Above, squares of returns, which variances are made of, would be infinite.
_LARGEST_RETURN = 1e140

# The noise is two to this power steps of the grid wide, or less by up to a half.
_FINER = 34


@dataclass(frozen=True)
class PrivateValue:
    """Target value, behaviour value and difference, with intervals, under one budget."""

    budget: Budget
    """What the one release may cost."""

    weight_cap: float
    """c: no trajectory's product of ratios counts for more. Public."""

    gamma: float = 1.0
    """The discount factor, from 0 to 1."""

    horizon: int | None = None
    """How many steps count. Public; needed with `reward_range` unless gamma is below 1."""

    reward_range: tuple[float, float] | None = None
    """What any reward could be. Public."""

    return_range: tuple[float, float] | None = None
    """What any discounted return could be, instead of `reward_range`. Public."""

    largest_ratio: float | None = None
    """What a product of ratios can be at most, if the two policies say so; see above."""

    level: float = 0.95
    """Nominal level of the intervals, two-sided."""

    grid: bool = False
    """Discrete noise on integer sums: about 8 % more noise, and no assumption on arithmetic."""

    on_policy: bool = False
    """The policy that was followed is judged, and no other: its value is all that is told."""

    def __post_init__(self) -> None:
        check_gaussian_budget(self.budget)
        checks.positive("weight_cap", self.weight_cap)
        check_discount(self.gamma)
        confidence_level(self.level)
        if self.horizon is not None:
            checks.count("horizon", self.horizon)
        if (
            self.largest_ratio is not None
            and checks.positive("largest_ratio", self.largest_ratio) < 1.0
        ):
            raise InputError("must be at least 1: ratios average to 1.", field="largest_ratio")
        if (self.reward_range is None) == (self.return_range is None):
            raise InputError(
                "is needed: say what any reward could be (or, instead of it, return_range).",
                field="reward_range",
            )
        low, high = self.returns_range
        if not -math.inf < low < high < math.inf:
            raise InputError("The range of returns must be finite and its low end below its high.")
        if max(-low, high) > _LARGEST_RETURN:
            raise InputError(
                f"Returns of up to {max(-low, high):.3g} have squares that are too large to "
                "compute with: scale the rewards and their range by one factor."
            )

    @property
    def returns_range(self) -> tuple[float, float]:
        """What any discounted return could be: from the rewards, for trajectories of any length."""
        if self.return_range is not None:
            return _check_pair("return_range", self.return_range)
        assert self.reward_range is not None
        low, high = _check_pair("reward_range", self.reward_range)
        if self.gamma < 1.0:
            most = 1.0 / (1.0 - self.gamma)
            if self.horizon is not None:
                most *= 1.0 - self.gamma**self.horizon
        elif self.horizon is None:
            raise InputError(
                "is needed: say how many steps count, or take gamma below 1.", field="horizon"
            )
        else:
            most = float(self.horizon)
        return min(low, low * most), max(high, high * most)

    @property
    def mechanism(self) -> GaussianMechanism | GridGaussianMechanism:
        """The noise that the budget allows."""
        return _mechanism(self.budget, self.grid)

    def contributions(self, data: Trajectories, policy: Policy | None) -> Floats:
        """x for each person: (units, 8), any two of them at most 2 `BOUND` apart."""
        w, y = self._weights_and_returns(data, policy)
        rows = mean_by_unit(moments(w, y), data.unit_index, data.num_units)
        if len(w) > _MOST_TRAJECTORIES:
            owned = np.bincount(data.unit_index, minlength=data.num_units)
            rows = np.where((owned <= _MOST_TRAJECTORIES)[:, None], rows, 0.0)
        return rows @ MAP.T

    def gather(
        self, batch: Trajectories, policy: Policy | None = None, *, public: bool = False
    ) -> Sums:
        """What the people of `batch` contribute; see `sums`."""
        refuse_unpaid(batch)
        if self.on_policy and (policy is not None or batch.target_probs is not None):
            raise InputError("on_policy judges the policy that was followed: give no other.")
        rows, plan = self.contributions(batch, policy), self.mechanism
        clipped = 0.0
        if public:
            above = np.where(self._weights_and_returns(batch, policy)[0] >= 1.0, 1.0, 0.0)
            clipped = float(mean_by_unit(above, batch.unit_index, batch.num_units).sum())
        whole = None
        if isinstance(plan, GridGaussianMechanism):
            whole = _to_grid(rows, plan.step).sum(axis=0)
        return Sums(
            unit=batch.unit,
            count=len(rows),
            total=rows.sum(axis=0),
            whole=whole,
            clipped=clipped,
            assumptions=data_assumptions(batch, public),
        )

    def release(self, sums: Sums, *, session: PrivacySession = SECRET_SESSION) -> Result:
        """The three values, out of the sums over all people: paid and drawn once."""
        warn_if_large(self.budget.delta, sums.count)
        opened = session.open(sums.unit, Relation.REPLACE_ONE)
        opened.pay(self.mechanism.event, delta=self.budget.delta)
        return self.release_paid(sums, opened)

    def release_paid(self, sums: Sums, opened: OpenSession) -> Result:
        """The three values, where `opened` has paid for them."""
        plan = self.mechanism
        opened.check_paid(plan.event)
        if isinstance(plan, GridGaussianMechanism):
            assert sums.whole is not None
            noised, std = plan.release_sum(sums.whole, opened.source), plan.width * plan.step
        else:
            noised, std = plan.release(sums.total, opened.source)[0], plan.std
        certificate = opened.certify(
            self.budget.delta,
            assumptions=[
                Assumption(
                    "the number of people is public",
                    "the relation is replace-one; the caller publishes the number",
                ),
                *sums.assumptions,
            ],
            floating=not self.grid,
        )
        figures = self.figures(noised, std, sums.count)
        details = figures.details()
        return Result(
            method="PrivateValue",
            promise=certificate,
            estimate=details["behavior" if self.on_policy else "target"]["estimate"],
            interval=figures.behavior_interval() if self.on_policy else figures.target_interval(),
            settings=self._settings(),
            details=details,
            notes=self._notes(),
        )

    def fit(
        self,
        data: Data,
        policy: Policy | None = None,
        *,
        session: PrivacySession = SECRET_SESSION,
    ) -> Result:
        """The three values; `estimate` and `interval` are those of the target policy."""
        sums = gather_sums(self, data, policy, public=session.public)
        result = self.release(sums, session=session)
        if not session.public:
            return result
        found: dict[str, Any] = {
            "without_noise": self.figures(sums.total, 0.0, sums.count).details()
        }
        if not self.on_policy:
            found["clipped_share"] = sums.clipped / sums.count
        return replace(result, diagnostics=found)

    def figures(self, total: NDArray[np.floating[Any]], std: float, units: int) -> Figures:
        """Out of a sum of x with noise of standard deviation `std` on each coordinate."""
        if self.on_policy:
            return Figures(*on_policy_moments(total, std, units), units, self.terms)
        return Figures(total @ INVERSE.T, std**2 * COVARIANCE, units, self.terms)

    def _weights_and_returns(
        self, data: Trajectories, policy: Policy | None
    ) -> tuple[Floats, Floats]:
        """w in [0, 1] and Y in [-1, 1] of each trajectory, whatever it holds."""
        rewards = np.asarray(data.rewards, dtype=np.float64)
        logs = _log_ratios(data, policy)
        good = np.isfinite(rewards) & ~np.isnan(logs)
        if self.reward_range is not None:
            rewards = np.clip(rewards, *self.reward_range)
        position = np.arange(data.num_steps) - np.repeat(data.offsets[:-1], data.lengths)
        counts = np.full(data.num_steps, True)
        if self.horizon is not None:
            counts = position < self.horizon
        used = good & counts
        discounted = np.where(used, rewards, 0.0) * self.gamma**position
        begins = data.offsets[:-1]
        with np.errstate(over="ignore", invalid="ignore"):
            returns = np.add.reduceat(discounted, begins)
            products = np.add.reduceat(np.where(used, logs, 0.0), begins)
            low, high = self.returns_range
            y = np.clip(2.0 * ((returns - low) / (high - low)) - 1.0, -1.0, 1.0)
            # Of the policy that was followed to itself all ratios are 1, and no cap is below.
            cap = 1.0 if self.on_policy else self.weight_cap
            w = np.exp(np.minimum(products - math.log(cap), 0.0))
        bad = np.add.reduceat(counts & ~good, begins) > 0
        bad |= ~np.isfinite(y) | ~np.isfinite(w)
        return np.where(bad, float(self.on_policy), w), np.where(bad, 0.0, y)

    @property
    def terms(self) -> Terms:
        """What turns moments into figures."""
        sure = self.largest_ratio is not None and self.largest_ratio <= self.weight_cap
        return Terms(self.weight_cap, self.returns_range, self.level, sure, self.on_policy)

    def _settings(self) -> dict[str, Any]:
        names = ["gamma", "horizon", "level", "grid"]
        names += ["on_policy"] if self.on_policy else ["weight_cap", "largest_ratio"]
        return {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "return_range": list(self.returns_range),
            **{name: getattr(self, name) for name in names},
        }

    def _notes(self) -> tuple[str, ...]:
        if self.on_policy:
            return ("The policy that was followed is judged: all ratios are 1.",)
        if self.terms.never_clips:
            return ("Nothing is clipped, as the caller's largest_ratio says.",)
        return ("The interval allows for the worst that clipped or unsupported weight could hide.",)


def _check_pair(name: str, given: Any) -> tuple[float, float]:
    try:
        low, high = given
    except (TypeError, ValueError):
        raise InputError("must be two numbers, the lowest and the highest.", field=name) from None
    return checks.number(name, low), checks.number(name, high)


@lru_cache(maxsize=64)
def _mechanism(budget: Budget, grid: bool) -> GaussianMechanism | GridGaussianMechanism:
    if not grid:
        return GaussianMechanism.from_budget(BOUND, budget)
    # What is calibrated is what is charged: the noise on this very grid.
    found = calibrate(lambda noise: _grid_mechanism(noise).event, budget, Relation.REPLACE_ONE)
    return _grid_mechanism(found)


def _grid_mechanism(noise_over_bound: float) -> GridGaussianMechanism:
    """Noise of this size, and a grid so fine that cutting off to it is never seen."""
    noise = noise_over_bound * BOUND
    step = math.ldexp(1.0, math.ceil(math.log2(noise)) - _FINER)
    # Rounding to the grid moves two contributions apart by sqrt(8) steps at most, and costs as much
    # noise; the factor is rounded up by more than the few roundings of it.
    bound = BOUND + math.sqrt(2.0) * step * (1.0 + 2.0**-40)
    width = math.ceil(noise / step * (bound / BOUND) * (1.0 + 2.0**-40))
    return GridGaussianMechanism(width, step, bound, len(MAP))


def _to_grid(rows: Floats, step: float) -> NDArray[np.int64]:
    """Rows as whole multiples of `step`, which is a power of two, so that only this rounds."""
    if 8.0 * len(rows) / step >= 2.0**62:  # an entry of a row is at most 6.1
        raise InputError("The sum does not fit into 64-bit integers: use a larger budget.")
    return np.rint(rows / step).astype(np.int64)


def _log_ratios(data: Trajectories, policy: Policy | None) -> Floats:
    """ln pi - ln b of every row; NaN where a probability is none, minus infinity where pi is 0."""
    found = logged_probs(data, policy)
    if found is None:
        return np.zeros(data.num_steps)
    target, behavior = found
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(target) - np.log(behavior))
