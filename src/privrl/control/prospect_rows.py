"""What a return is worth at the margin: the CPT value of people's returns as a policy gradient.

**Objective.** R = sum_t gamma^t r_t is the return of an episode, from its first step; with gamma 1
it is what a learning curve shows. It is counted at the public points x_0 < ... < x_K, the ends of K
equal parts of `return_range`, by shares that keep its mean: between two points

    c_{j+1}(R) = (R - x_j) / (x_{j+1} - x_j),     c_j(R) = 1 - c_{j+1}(R),

and all of it at the nearer end if R is outside. So p_j = E c_j(R) is a distribution, of which only
what lies between points was rounded. What is maximised is its CPT value rho(p) (`privrl.risk`),
over people: not the nested values of the CPT operator, which `privrl.risk.solve` finds. The best
policy may draw its actions by chance, because rho is not linear in p.

**Gradient.** With phi_j = d rho / d p_j, and phi(R) = sum_j phi_j c_j(R),

    grad rho(p) = sum_j phi_j grad E c_j(R) = E[ phi(R) sum_t grad log pi(a_t|s_t) ].

So it is an ordinary actor-critic whose episodes pay nothing on the way and phi(R) at the end,
whether they terminated or were cut off: nothing is discounted and nothing bootstraps there. The
critic learns E[phi(R) | s], a baseline. A state does not tell what was earned before it, on which
phi(R) depends; so lambda below 1, which trusts the critic of the next state, is biased, and 1 is
the default. From Definition 4, with u+ and u- the utilities of gains and of losses, F_i the
probability of x_i or more and G_i that of x_i or less,

    phi_j = sum_{i <= j} (u+(x_i) - u+(x_{i-1})) w+'(F_i)
          - sum_{i >= j} (u-(x_i) - u-(x_{i+1})) w-'(G_i),          u+(x_{-1}) = u-(x_{K+1}) = 0.

The terms of F_0 and G_K, which are certain, are the same for all j. Since sum_j grad p_j = 0, only
differences of phi matter: these terms are left out, and sum_j p_j phi_j is subtracted, which makes
0 a fair first guess of the critic. All is divided by u(x_K) - u(x_0), so that steps and bounds mean
the same for all prospects; for whoever goes by the mean phi(R) is the return, shifted, in units of
its range, and the gradient that of the plain actor-critic.

**What is paid.** phi needs p, which is about people. So a person's row has a coordinate for each
point, `weight` times c_j(R), whose L2 norm is at most `weight` because the shares c_j are from 0 to
1 and sum to 1; the increment has sqrt(1 - weight^2) of the bound left, and the whole row at most 1.
The event of the run is thus what it was. With h_k these coordinates of the noised sum of batch k,
divided by `weight` and by the public number of people in it, the running estimate

    q_k = q_{k-1} + a_k (h_k - q_{k-1}),     a_k = max(1 / k, forgetting),     q_0 even,

is a function of noised sums, released with them, and used from the next batch on: what somebody's
return is worth never depends on others of the same batch. Before slopes are taken, q is projected
onto the simplex and mixed with even probabilities by `even_share` s, because w' is infinite at 0
and 1. That is the gradient, but for a factor, of rho((1 - s) p + s / (K + 1)): of a world in which
a return is any point by chance s.

*Total*: a return that is no number, and that of an empty episode, is counted nowhere and is worth
0; infinite ones are outside, hence at an end.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs.base import Episodes
from privrl.risk import Prospect

# Quotients by less could be infinite.
_MIN_WIDTH = 1e-100


@dataclass(frozen=True)
class ReturnHistogram:
    """How returns are counted, and what they are worth; static, so that it can be compiled for."""

    prospect: Prospect
    return_range: tuple[float, float]
    bins: int
    """K."""

    weight: float
    """Of the counts in a row, above 0 and below 1."""

    even_share: float
    """s, above 0 and below 1."""

    forgetting: float
    """The least a_k, from 0 to 1."""

    def __post_init__(self) -> None:
        low, high = self.return_range
        if not (math.isfinite(self.unit) and min(self.unit, high - low) >= _MIN_WIDTH):
            raise InputError(
                "is too wide or too narrow for this prospect: the utility between its "
                f"ends must be finite, and at least {_MIN_WIDTH:g}.",
                field="return_range",
            )

    @property
    def size(self) -> int:
        """How many points there are."""
        return self.bins + 1

    @cached_property
    def points(self) -> Floats:
        """x_0, ..., x_K."""
        return np.linspace(*self.return_range, self.size)

    @cached_property
    def unit(self) -> float:
        """u(x_K) - u(x_0): what phi is divided by."""
        low, high = (float(self.prospect.utility(end)) for end in self.return_range)
        return high - low

    # --- of one person ----------------------------------------------------------------------------

    def counts(self, episode: Episodes, gamma: Any) -> Any:
        """c(R), one number for each point."""
        rewards = jnp.where(episode.valid, episode.transitions.reward, 0.0)
        total = jnp.sum(gamma ** jnp.arange(rewards.shape[0]) * rewards)
        low, high = self.return_range
        at = self.bins * ((jnp.clip(total, low, high) - low) / (high - low))
        shares = jnp.maximum(1.0 - jnp.abs(at - jnp.arange(self.size)), 0.0)
        return jnp.where(jnp.any(episode.valid) & ~jnp.isnan(total), shares, 0.0)

    # --- of released numbers ----------------------------------------------------------------------

    def begin(self) -> Any:
        """q_0."""
        return jnp.full(self.size, 1.0 / self.size, jnp.result_type(float))

    def update_estimate(self, estimate: Any, noised: Any, count: Any, batch: Any) -> Any:
        """q_k, from q_{k-1} and the noised counts of `count` people, after `batch` batches."""
        rate = jnp.maximum(1.0 / (batch + 1.0), self.forgetting)
        return estimate + rate * (self.shares(noised, count) - estimate)

    def shares(self, noised: Any, count: Any) -> Any:
        """h_k: unbiased, and no distribution."""
        return noised / (self.weight * count)

    def mean(self, noised: Any, count: Any) -> Any:
        """The mean return of a batch, from its noised counts."""
        low, high = self.return_range
        middle = 0.5 * low + 0.5 * high
        # Shares sum to 1 but for noise, which is less without the middle.
        return middle + self.shares(noised, count) @ jnp.asarray(self.points - middle)

    def marginal_values(self, estimate: Any) -> Any:
        """phi_j of the released estimate, centred, in units of `unit`."""
        even = self.even_share / self.size
        return self.slopes((1.0 - self.even_share) * project_simplex(estimate) + even) / self.unit

    def slopes(self, probs: Any) -> Any:
        """d rho / d p_j, but for a constant: its mean is 0. All probabilities are above 0."""
        utility = self.prospect.utility
        # Levels are public: how much more each point is than the one nearer to the reference.
        up = jnp.asarray(np.diff(utility.gain(self.points)))
        down = jnp.asarray(-np.diff(utility.loss(self.points)))
        above = jnp.cumsum(probs[::-1])[::-1][1:]
        below = jnp.cumsum(probs)[:-1]
        rise = jnp.cumsum(up * self.prospect.gain_weight.slope(above))
        fall = jnp.cumsum((down * self.prospect.loss_weight.slope(below))[::-1])[::-1]
        slopes = jnp.append(0.0, rise) - jnp.append(fall, 0.0)
        return slopes - slopes @ probs


def project_simplex(values: Any) -> Any:
    """The nearest point of the simplex: values lowered by the same number, and 0 where negative."""
    # From the largest on, so that a 1 does not get lost beside it.
    under = values - jnp.max(values)
    falling = jnp.sort(under)[::-1]
    excess = (jnp.cumsum(falling) - 1.0) / jnp.arange(1, values.shape[0] + 1)
    kept = jnp.sum(falling > excess)
    return jnp.maximum(under - excess[kept - 1], 0.0)
