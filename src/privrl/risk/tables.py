"""Exact CPT values and CPT-optimal policies of decision processes given by tables.

The operator (rajabi2022, Section IV, as its Algorithm 1 has it) nests rho over the steps:

    (TQ)(s, a) = rho( r(s, a, s') + gamma V(s') )   over s' ~ P(. | s, a),  V = 0 after the end,

with V(s) = max_a Q(s, a), or sum_a pi(a|s) Q(s, a) for a given policy. Values are *nested
utilities*: rho of a constant c is u(c), not c. The paper's equation (3) has the mean over s' inside
of rho, where nothing is left to weigh; its Algorithm 1 samples s' outside of it, as above.

**When the fixed point is unique.** The paper (Proposition 1) says that T is a contraction in the
sup norm, with factor gamma. It is not, since u has an infinite slope at the reference point: with
one state that pays 0 for ever, V = u(gamma V) has three solutions, 0 and +- gamma^(a / (1 - a)).
What does hold:

- T is monotone, because rho, the maximum and the mean are. So from a constant below all fixed
  points the iterates rise to the least of them, and from one above they fall to the greatest. If
  both meet, there is only one: `gap` is how far they stay apart, a certificate that comes with each
  solution. Such constants exist where utilities grow less than linearly (`_bound`).
- Where all rewards are losses, at most -c < 0 (or 0, into the end), T is a contraction in
  Thompson's metric d(V, W) = max |log(V / W)| with factor b, the exponent of losses, for *any*
  gamma up to 1: adding the same r and multiplying by gamma do not increase d, rho is monotone and
  rho(c X) = c^b rho(X) for c > 0, so that d(rho X, rho Y) <= b d(X, Y). The same for gains.

What is returned is the limit from V = 0, which is what values of n steps come to as n grows, if
there is one: next to the reference point they may alternate for ever. Then it is the least fixed
point.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs.tabular import Tables, TabularMDP
from privrl.risk.prospect import Prospect

_TOLERANCE = 1e-13
_MAX_ITERATIONS = 100_000
# So long the limit from 0 may take after the others have settled.
_PATIENCE = 2000
_LARGEST = 1e15


class CPTSolution(NamedTuple):
    """A policy, as a table of probabilities (S, A), with its CPT values."""

    policy: Floats
    values: Floats
    action_values: Floats
    gap: float
    """How far apart the least and the greatest fixed point are: 0, up to rounding, if there is one.
    Infinite where values that never end would have no bound, as with a mean and gamma = 1."""


def solve(
    env: TabularMDP, prospect: Prospect, gamma: float, policy: ArrayLike | None = None
) -> CPTSolution:
    """The CPT-optimal policy of `env`, or the CPT values of a `policy` (S, A); see the module."""
    if not isinstance(env, TabularMDP):
        raise InputError("must be given by tables: a TabularMDP.", field="env")
    if not isinstance(prospect, Prospect):
        raise InputError(
            "must be a Prospect, such as Prospect.tversky_kahneman().", field="prospect"
        )
    if checks.non_negative("gamma", gamma) > 1.0:
        raise InputError(f"must be at most 1, not {gamma:g}.", field="gamma")
    probs = None if policy is None else env._policy(policy)
    found, gap = _value_iteration(env.tables, prospect, gamma, probs)
    best = env.greedy(found) if probs is None else probs
    return CPTSolution(best, _state_values(found, probs), found, gap)


def backup(tables: Tables, prospect: Prospect, gamma: float, values: Floats) -> Floats:
    """T of values (..., S): (..., S, A)."""
    later = np.where(tables.terminated, 0.0, values[..., tables.successors])
    found: Floats = prospect.of_distribution(tables.rewards + gamma * later, tables.probabilities)
    return found


def _state_values(q: Floats, probs: Floats | None) -> Floats:
    best: Floats = q.max(axis=-1) if probs is None else np.sum(probs * q, axis=-1)
    return best


def _value_iteration(
    tables: Tables, prospect: Prospect, gamma: float, probs: Floats | None
) -> tuple[Floats, float]:
    """The limit of T from 0, or the least fixed point, and how far apart least and greatest are."""
    bounds = [_bound(tables, prospect, gamma, side) for side in (-1.0, 1.0)]
    known = all(map(math.isfinite, bounds))
    starts = [0.0, *bounds] if known else [0.0]
    values = np.repeat(np.array(starts)[:, None], tables.start.size, axis=1)
    waited = 0
    for _ in range(_MAX_ITERATIONS):
        q = backup(tables, prospect, gamma, values)
        new = _state_values(q, probs)
        size = np.max(np.abs(new))
        still = np.all(np.abs(new - values) <= _TOLERANCE * (1.0 + np.abs(new)), axis=1)
        values = new
        if known and np.all(still[1:]):
            waited += 1
            if still[0] or waited > _PATIENCE:
                return np.asarray(q[0 if still[0] else 1]), float(np.max(values[2] - values[1]))
        elif not known and still[0]:
            return np.asarray(q[0]), math.inf
        if size > _LARGEST:
            break
    raise InputError(
        "values grow without bound, or do not settle: use a smaller gamma, less loss aversion or "
        "smaller exponents."
    )


def _bound(tables: Tables, prospect: Prospect, gamma: float, side: float) -> float:
    """A constant below all fixed points (side -1), or above them (1), that T moves inwards.

    No outcome is beyond x(B) = r + gamma B for certain, r the extreme reward and B the constant; so
    T moves B inwards if |u(x(B))| <= |B|. Utilities are less and less steep away from the reference
    point, so if they rise by less than 1 for 1 from B / 2 to B, there is no fixed point beyond B.
    Infinite if there is no such constant within reach.
    """
    possible = tables.probabilities > 0.0
    extreme = float(side * np.max(side * tables.rewards[possible]))

    def worth(constant: float) -> float:
        return side * float(prospect.utility(extreme + gamma * side * constant))

    size = 1.0 + abs(extreme) + abs(prospect.utility.reference)
    while size < _LARGEST:
        if worth(size) <= size and worth(size) - worth(0.5 * size) <= 0.5 * size:
            return side * size
        size *= 2.0
    return side * math.inf
