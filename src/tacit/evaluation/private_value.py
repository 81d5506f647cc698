"""The value of a policy, of the one that was followed, and their difference: one paid release.

For trajectory i of at most `horizon` steps let rho_i be the product of its ratios pi/b, c the
public `weight_cap`, w_i = min(rho_i, c) / c in [0, 1], and Y_i its discounted return, scaled by the
public return range to [-1, 1]. What is released is one noised sum over people of

    x(w, Y) = S [ (w, wY, Y, w^2, w^2 Y, w^2 Y^2, wY^2, Y^2) - m ],
    S = diag(3/2, 1, 1/2, 1/2, 1/2, 1/2, 1/2, 1/2),   m = (t, 0, 0, t, 0, t, t, 1),   t = 17/24.

Everything below is post-processing of these eight numbers.

**Unit and relation.** A person (a trajectory, if nobody is named), replace-one; the number of
people is public. A person's trajectories are averaged: a mean of vectors x lies in the same ball.
So people, not trajectories, weigh equally in every figure.

**Sensitivity.** |x|^2 <= 337/192. Proof: with q = Y^2,

    |x|^2 = 9/4 (w-t)^2 + w^2 q + q/4
            + [(w^2-t)^2 + w^4 q + (w^2 q-t)^2 + (wq-t)^2 + (q-1)^2] / 4.

For fixed w this is a quadratic in q with leading coefficient (w^4 + w^2 + 1)/4 > 0, so its maximum
is at q = 0 or q = 1. There it is convex in w: the second derivative is 9/2 - t + 3w^2 at q = 0 and
9/2 + 2 + 1/2 - 2t + 9w^2 at q = 1. So the maximum is at a corner: 337/192 at (w, q) = (0, 0),
(0, 1) and (1, 1), less at (1, 0). (m is the centre of the smallest ball that holds the four points
with w in {0, 1}, Y = +-1, and t makes it so.) The sum moves by at most twice the root of that; the
release is one `Gaussian` event, or with `grid` a `DiscreteGaussian` one without any idealised
arithmetic. The scales S give the figures that matter most the least noise: a sampling variance
needs less accuracy than a mean, because it is added to the noise's variance.

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
the noise's variance is known and n Var(z) comes from the released second moments, not below 0. As
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

from tacit.data import Policy, Trajectories
from tacit.data.assumed import assumed
from tacit.evaluation.intervals import by_unit, confidence_level
from tacit.evaluation.private_figures import CENTRE, SCALE, Figures, Terms, moments
from tacit.evaluation.result import Result
from tacit.evaluation.steps import Data, discount, logged_chances, refuse_unpaid
from tacit.evaluation.sums import Sums, gathered
from tacit.privacy import checks
from tacit.privacy.certificate import Assumption
from tacit.privacy.errors import InputError
from tacit.privacy.ledger import Ledger, warn_if_large
from tacit.privacy.mechanisms import GaussianMechanism, GridGaussianMechanism, clip
from tacit.privacy.payment import Purse
from tacit.privacy.promise import Budget, Relation

Floats = NDArray[np.float64]

BOUND = math.nextafter(math.sqrt(337 / 192), math.inf)

# The grid is this much finer than a mechanism's own, so that cutting off to it is never seen.
_FINER = 2.0**-20


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

    def __post_init__(self) -> None:
        if not isinstance(self.budget, Budget):
            raise InputError("budget must be a Budget(epsilon, delta).")
        if self.budget.delta == 0.0:
            raise InputError("budget must have a delta above 0: the noise is Gaussian.")
        checks.positive("weight_cap", self.weight_cap)
        discount(self.gamma)
        confidence_level(self.level)
        if self.horizon is not None:
            checks.count("horizon", self.horizon)
        if (
            self.largest_ratio is not None
            and checks.positive("largest_ratio", self.largest_ratio) < 1.0
        ):
            raise InputError("largest_ratio must be at least 1: ratios average to 1.")
        if (self.reward_range is None) == (self.return_range is None):
            raise InputError(
                "reward_range is needed: say what any reward could be "
                "(or, instead of it, return_range)."
            )
        low, high = self.returns
        if not -math.inf < low < high < math.inf:
            raise InputError("The range of returns must be finite and its low end below its high.")

    @property
    def returns(self) -> tuple[float, float]:
        """What any discounted return could be: from the rewards, for trajectories of any length."""
        if self.return_range is not None:
            return _two("return_range", self.return_range)
        assert self.reward_range is not None
        low, high = _two("reward_range", self.reward_range)
        if self.gamma < 1.0:
            most = 1.0 / (1.0 - self.gamma)
            if self.horizon is not None:
                most *= 1.0 - self.gamma**self.horizon
        elif self.horizon is None:
            raise InputError("horizon is needed: say how many steps count, or take gamma below 1.")
        else:
            most = float(self.horizon)
        return min(low, low * most), max(high, high * most)

    @property
    def mechanism(self) -> GaussianMechanism | GridGaussianMechanism:
        """The noise that the budget allows."""
        return _mechanism(self.budget, self.grid)

    def contributions(self, data: Trajectories, policy: Policy | None) -> Floats:
        """x for each person: (units, 8), each of L2 norm at most `BOUND`."""
        w, y = self._weights_and_returns(data, policy)
        rows = by_unit(moments(w, y), np.asarray(data.unit_index), data.num_units)
        # Only rounding can take a row outside: the exact clip settles it.
        return clip.l2((rows - CENTRE) * SCALE, BOUND)

    def gathered(
        self, batch: Trajectories, policy: Policy | None = None, *, public: bool = False
    ) -> Sums:
        """What the people of `batch` contribute; see `sums`."""
        refuse_unpaid(batch)
        rows, plan = self.contributions(batch, policy), self.mechanism
        clipped = 0.0
        if public:
            above = np.where(self._weights_and_returns(batch, policy)[0] >= 1.0, 1.0, 0.0)
            clipped = float(by_unit(above, batch.unit_index, batch.num_units).sum())
        whole = None
        if isinstance(plan, GridGaussianMechanism):
            whole = plan.integers(rows).sum(axis=0)
        return Sums(
            unit=batch.unit,
            count=len(rows),
            total=rows.sum(axis=0),
            whole=whole,
            clipped=clipped,
            assumptions=assumed(batch, public),
        )

    def released(
        self,
        sums: Sums,
        *,
        ledger: Ledger | None = None,
        run: str | None = None,
        seed: int | None = None,
    ) -> Result:
        """The three values, out of the sums over all people: paid and drawn once."""
        plan = self.mechanism
        warn_if_large(self.budget.delta, sums.count)
        purse = Purse(
            unit=sums.unit, relation=Relation.REPLACE_ONE, ledger=ledger, run=run, seed=seed
        )
        purse.pay(plan.event)
        if isinstance(plan, GridGaussianMechanism):
            assert sums.whole is not None
            noise = purse.source.discrete_gaussian(plan.width, sums.whole.shape)
            noised, std = (sums.whole + noise) * plan.step, plan.width * plan.step
        else:
            noised, std = plan.release(sums.total, purse.source)[0], plan.std
        certificate = purse.certify(
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
        figures = self._figures(noised, std, sums.count)
        details = figures.details()
        return Result(
            method="PrivateValue",
            promise=certificate,
            estimate=details["target"]["estimate"],
            interval=figures.target(),
            settings=self._settings(),
            details=details,
            notes=self._notes(),
        )

    def fit(
        self,
        data: Data,
        policy: Policy | None = None,
        *,
        public: bool = False,
        ledger: Ledger | None = None,
        run: str | None = None,
        seed: int | None = None,
    ) -> Result:
        """The three values; `estimate` and `interval` are those of the target policy."""
        public = checks.switch("public", public)
        sums = gathered(self, data, policy, public=public)
        result = self.released(sums, ledger=ledger, run=run, seed=seed)
        if not public:
            return result
        exact = self._figures(sums.total, 0.0, sums.count).details()
        return replace(
            result,
            diagnostics={"without_noise": exact, "clipped_share": sums.clipped / sums.count},
        )

    def _figures(self, total: NDArray[np.floating[Any]], std: float, units: int) -> Figures:
        """Out of a sum of x with noise of standard deviation `std`: scaled and centred back."""
        return Figures(total / SCALE + units * CENTRE, std / SCALE, units, self.terms)

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
            low, high = self.returns
            y = np.clip(2.0 * ((returns - low) / (high - low)) - 1.0, -1.0, 1.0)
            w = np.exp(np.minimum(products - math.log(self.weight_cap), 0.0))
        bad = np.add.reduceat(counts & ~good, begins) > 0
        bad |= ~np.isfinite(y) | ~np.isfinite(w)
        return np.where(bad, 0.0, w), np.where(bad, 0.0, y)

    @property
    def terms(self) -> Terms:
        """What turns moments into figures."""
        sure = self.largest_ratio is not None and self.largest_ratio <= self.weight_cap
        return Terms(self.weight_cap, self.returns, self.level, never_clips=sure)

    def _settings(self) -> dict[str, Any]:
        names = ("weight_cap", "gamma", "horizon", "largest_ratio", "level", "grid")
        return {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "return_range": list(self.returns),
            **{name: getattr(self, name) for name in names},
        }

    def _notes(self) -> tuple[str, ...]:
        if self.terms.never_clips:
            return ("Nothing is clipped, as the caller's largest_ratio says.",)
        return ("The interval allows for the worst that clipped or unsupported weight could hide.",)


def _two(name: str, given: Any) -> tuple[float, float]:
    try:
        low, high = given
    except (TypeError, ValueError):
        raise InputError(f"{name} must be two numbers, the lowest and the highest.") from None
    return checks.number(name, low), checks.number(name, high)


@lru_cache(maxsize=64)
def _mechanism(budget: Budget, grid: bool) -> GaussianMechanism | GridGaussianMechanism:
    if not grid:
        return GaussianMechanism.calibrated(BOUND, budget)
    coarse = GridGaussianMechanism.calibrated(BOUND, budget, dimension=len(SCALE))
    width = int(coarse.width / _FINER)
    return GridGaussianMechanism(width, coarse.step * _FINER, BOUND, len(SCALE))


def _log_ratios(data: Trajectories, policy: Policy | None) -> Floats:
    """ln pi - ln b of every row; NaN where a probability is none, minus infinity where pi is 0."""
    found = logged_chances(data, policy)
    if found is None:
        return np.zeros(data.num_steps)
    target, behavior = found
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(target) - np.log(behavior))
