"""DR (Jiang and Li 2016) and WDR (Thomas and Brunskill 2016): weighted returns with a model's help.

With action values q, V(s) = sum_a pi(a|s) q(s, a), and weights w_it as in `importance`, where
w_i,-1 = 1:

    DR   mean_i sum_t gamma^t ( w_it (r_it - q(s_it, a_it)) + w_i,t-1 V(s_it) )
    WDR  mean_i V(s_i0)
         + sum_t gamma^t [sum_i w_it (r_it - q(s_it, a_it) + gamma V(s_i,t+1))] / [sum_i w_it]

over the steps that are there: V and q are 0 once a trajectory has ended, whether it terminated or
was cut off, so that what is estimated is the value up to there.

DR is unbiased for *any* q that was not fitted to the same data: given the past,
E[rho_t q(s_t, a_t)] = V(s_t), so q cancels in expectation; a good q takes variance away. WDR is
consistent. Fit q on other people (`Trajectories.split` keeps a person's trajectories together).
Nothing here is private.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.evaluation.importance import (
    ValueEstimator,
    WeightedTrajectories,
    plain_weights,
    relative_weights,
)
from privrl.evaluation.intervals import Contributions
from privrl.privacy.noise import as_float64

ActionValues = Callable[[Any], Any]


def _missing_model(states: Any) -> Any:
    raise InputError(
        "is needed: action values such as FQE(...).action_values(data, policy).", field="q"
    )


@dataclass(frozen=True)
class _DoublyRobust(ValueEstimator):
    q: ActionValues = field(default=_missing_model, kw_only=True)
    """From (n,) or (n, k) states to (n, A) action values, such as those of `FQE`."""

    def _model(self, sides: WeightedTrajectories) -> tuple[Floats, Floats]:
        """q(s_t, a_t) and V(s_t), discounted, (trajectory, step)."""
        data, policy = sides.data, sides.policy
        if policy is None:
            raise InputError(
                f"{self.method} needs the policy: it asks what else it might have done."
            )
        mask = sides.mask
        rows = (data.offsets[:-1, None] + np.arange(mask.shape[1]))[mask]
        if not callable(self.q):
            raise InputError("must be a function from states to action values.", field="q")
        values = as_float64("q", self.q(data.states[rows]))
        if values.shape != (len(rows), policy.num_actions):
            raise InputError(
                f"must give ({len(rows)}, {policy.num_actions}) values for {len(rows)} states, "
                f"not {values.shape}.",
                field="q",
            )
        if not np.all(np.isfinite(values)):
            raise InputError("must give finite values for the states of the data.", field="q")
        probs = np.asarray(policy.probabilities(data.states[rows]), dtype=np.float64)
        of_action, of_state = np.zeros(mask.shape), np.zeros(mask.shape)
        of_action[mask] = values[np.arange(len(rows)), data.actions[rows]]
        of_state[mask] = (probs * values).sum(axis=1)
        powers = self.gamma ** np.arange(mask.shape[1])
        return of_action * powers, of_state * powers


@dataclass(frozen=True)
class DR(_DoublyRobust):
    """Unbiased whatever `q` is."""

    method: ClassVar[str] = "DR"

    def _contributions(self, sides: WeightedTrajectories) -> Contributions:
        of_action, of_state = self._model(sides)
        weights = plain_weights(sides.log_weights)
        before = np.column_stack([np.ones(len(weights)), weights[:, :-1]])
        values = (weights * (sides.rewards - of_action) + before * of_state).sum(axis=1)
        return Contributions.average(sides.by_unit(values))


@dataclass(frozen=True)
class WDR(_DoublyRobust):
    """With weights that sum to one at each step: consistent, and steadier."""

    method: ClassVar[str] = "WDR"

    def _contributions(self, sides: WeightedTrajectories) -> Contributions:
        of_action, of_state = self._model(sides)
        weights = relative_weights(sides.log_weights)
        after = np.column_stack([of_state[:, 1:], np.zeros(len(weights))])
        gains = weights * (sides.rewards - of_action + after)
        return Contributions(*map(sides.by_unit, (of_state[:, 0], gains, weights)))
