"""Planning on released rewards for somebody who weighs risks: cumulative prospect theory.

Given are the public part of a `rollouts.SampledRollout`, that is steps (s_i, a_i) with successors
s_ik of probabilities p_ik, and a reward r_ik for each that has been *released* before. Nothing here
sees a private number. With g_ik = 0 where the episode terminates and gamma otherwise, and rho the
CPT value of a `privrl.risk.Prospect`, Q is fitted to

    (TQ)_i = rho( r_ik + g_ik max_a Q(s_ik, a), of probability p_ik )        in place of (s_i, a_i)

- `fitted_q_iteration`: by the regressions of `planning`, round by round from Q = 0. A table takes T
  as it is: what comes out is the fixed point of the CPT operator for the successors drawn
  (`privrl.risk.solve`).
- `network_q`: by gradient steps, against a copy that is renewed now and then.

rho of a constant c is u(c), so values are *nested utilities* and no sums. If all rewards are from
low to high, so is rho of them from u(low) to u(high); targets are kept within what follows from
that round by round (`value_bounds`), so that nothing grows without bound, whatever the features.
With `Prospect.neutral()` these limits, and all the rest, are those of `planning`.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from privrl.control import planning
from privrl.control.heads import Head, Layers
from privrl.control.rollouts import SampledRollout
from privrl.core.types import Floats
from privrl.risk import Prospect

# Beyond it differences of values would be rounding errors.
MAX_VALUE = 1e12
# Values that move by more than this share of themselves are not there yet.
_CONVERGENCE_TOLERANCE = 1e-3


def cpt_values(prospect: Prospect, outcomes: Any, probs: Any) -> Any:
    """rho of each row of outcomes; None for probabilities that are alike, which is much quicker."""
    if probs is None:
        return prospect.of_samples(outcomes)
    return prospect.of_distribution(outcomes, probs)


def value_bounds(
    prospect: Prospect, rewards: Floats, gamma: float, rounds: int
) -> tuple[float, float]:
    """What values of so many steps with rewards like these are at least and at most.

    With one step more, b becomes u(r + gamma b), r the extreme reward; or u(r) if the end is worse
    for this side than going on. What grows beyond `MAX_VALUE` is cut off there.
    """

    def extreme_value(reward: float, side: float) -> float:
        bound = 0.0
        for _ in range(rounds):
            worth = float(prospect.utility(reward + side * max(0.0, side * gamma * bound)))
            worth = min(max(worth, -MAX_VALUE), MAX_VALUE)
            if worth == bound:
                break
            bound = worth
        return bound

    return extreme_value(float(np.min(rewards)), -1.0), extreme_value(float(np.max(rewards)), 1.0)


def fitted_q_iteration(
    rollout: SampledRollout,
    rewards: Floats,
    head: Head,
    prospect: Prospect,
    gamma: float,
    rounds: int,
    ridge: float,
) -> Floats:
    """The parameters (d, A) of Q by fitted iteration of T; `rewards` are (m, K) as
    `rollout.led`."""
    within = value_bounds(prospect, rewards, gamma, rounds)
    points = rollout.led.reshape(-1, *rollout.led.shape[2:])
    fit = planning.regression(head, rollout, ridge, within[0], points)
    probs = rollout.unequal_probs

    def bellman_targets(q: Floats) -> Floats:
        later = gamma * fit.next_values(q).max(axis=1).reshape(rollout.ends.shape)
        outcomes = rewards + np.where(rollout.ends, 0.0, later)
        return np.asarray(cpt_values(prospect, outcomes, probs))[rollout.row]

    found = planning.fitted_iteration(fit, bellman_targets, within, rounds, np.zeros(head.shape))
    moves = np.abs(fit.fit(np.clip(bellman_targets(found), *within)) - found)
    if np.any(moves > _CONVERGENCE_TOLERANCE * (1.0 + np.abs(found))):
        warnings.warn(
            f"Values still moved after {rounds:,} rounds: use more. Where they alternate between "
            "gains and losses, next to the reference point, more do not help.",
            stacklevel=2,
        )
    return found


def network_q(
    rollout: SampledRollout,
    rewards: Floats,
    head: Layers,
    prospect: Prospect,
    gamma: float,
    *,
    updates: int,
) -> Floats:
    """All parameters of a network's Q; `rewards` are (m, K) as `rollout.led`."""
    # A network learns numbers around 1, and rho does not scale: it is undone inside.
    ends = (float(prospect.utility(x)) for x in (np.min(rewards), np.max(rewards)))
    unit = max(map(abs, ends)) or 1.0
    low, high = value_bounds(prospect, rewards, gamma, updates)
    with jax.enable_x64(True):
        points = jnp.asarray(rollout.led).reshape(-1, *rollout.led.shape[2:])
        data = (
            jnp.asarray(rewards),
            head.inputs(points),
            jnp.where(jnp.asarray(rollout.ends), 0.0, gamma * unit),
            None if rollout.unequal_probs is None else jnp.asarray(rollout.probs),
            jnp.asarray(rollout.row),
            unit,
        )
        aims = _CPTTargets(prospect)
        found = planning.fit_network(head, rollout, aims, data, (low / unit, high / unit), updates)
    return head.scale_outputs(found, unit)


@dataclass(frozen=True)
class _CPTTargets:
    """T of a network, in units of its outputs."""

    prospect: Prospect

    def __call__(self, head: Layers, parameters: Any, data: Any) -> Any:
        rewards, led, goes_on, probs, row, unit = data
        later = jnp.max(head.apply(parameters, led), axis=1).reshape(goes_on.shape)
        return cpt_values(self.prospect, rewards + goes_on * later, probs)[row] / unit
