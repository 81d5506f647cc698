"""From trajectories to what linear estimators need of every step.

With phi_t the features of the state, rho_t = pi(a|s) / b(a|s) the importance ratio, and g_t = gamma
unless the trajectory terminated there, in which case 0:

    direction_t = phi_t - g_t phi_{t+1}
    A = sum of share_t rho_t phi_t direction_t',   b = sum of share_t rho_t r_t phi_t,
    C = sum of share_t phi_t phi_t'

over the steps of a trajectory, with share_t = 1 / (number of its steps) as in xie2019, so that a
long trajectory weighs no more than a short one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Features, Policy, Trajectories, TrajectoryStream
from privrl.data.coverage import check_actions, check_table, known_states
from privrl.data.words import refuse_read_vocabulary

Data = Trajectories | TrajectoryStream


@dataclass(frozen=True)
class Steps:
    """All usable steps of some trajectories, one row each."""

    phi: Floats
    direction: Floats
    rewards: Floats
    ratios: Floats
    shares: Floats
    trajectories: NDArray[np.int64]
    """To which trajectory of the batch a step belongs."""

    units: NDArray[np.int64]
    """To which person of the batch, or trajectory if nobody is named, a step belongs."""

    num_trajectories: int
    num_units: int


def batches(data: Data) -> Iterator[Trajectories]:
    """The data in one piece, or as it streams by; a person's trajectories come together."""
    if isinstance(data, Trajectories):
        return iter((data,))
    given: object = data
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return iter(given)
    raise InputError("must be Trajectories, or a stream of them.", field="data")


def importance_ratios(
    data: Trajectories, policy: Policy | None, cap: float | None = None
) -> Floats:
    """pi(a|s) / b(a|s) for every row of `data`, at most `cap`.

    Without a policy and without target probabilities in the data, the data is on-policy: 1.
    """
    if policy is not None:
        data = data.with_target(policy)
    if data.target_probs is None:
        return np.ones(data.num_steps)
    if data.behavior_probs is None:
        raise InputError(
            "Behaviour probabilities are needed to judge another policy: name their column "
            "(behavior_prob=...), give the policy (with_behavior) or estimate them "
            "(with_estimated_behavior)."
        )
    found = data.target_probs / data.behavior_probs
    return np.asarray(found if cap is None else np.minimum(found, cap), dtype=np.float64)


def logged_probs(data: Trajectories, policy: Policy | None) -> tuple[Floats, Floats] | None:
    """pi(a|s) and b(a|s) of every row, or None on-policy: for certified fits.

    Total: what refuses is public (kinds of states and actions, how many there are). A row with a
    state or an action that the policy does not know, or with a number that is no probability, has
    NaN for pi.
    """
    if policy is None and data.target_probs is None:
        return None
    if policy is not None:
        check_actions(policy, data)
        known = known_states(policy, data)
        target = np.asarray(policy.prob(data.states, data.actions), dtype=np.float64)
        target = np.where(known, target, np.nan)
    else:
        target = np.asarray(data.target_probs, dtype=np.float64)
    if data.behavior_probs is None:
        raise InputError("Behaviour probabilities are needed to judge another policy.")
    behavior = np.asarray(data.behavior_probs, dtype=np.float64)
    # A policy's rows may add up to 1 within rounding.
    fine = (target >= 0.0) & (target <= 1.0 + 1e-6) & (behavior > 0.0) & (behavior <= 1.0)
    return np.where(fine, target, np.nan), behavior


def refuse_unpaid(data: Trajectories) -> None:
    """Raise if something in `data` was read off it and nobody paid: certified fits only."""
    refuse_read_vocabulary(data)
    if data.behavior.is_private_estimate:
        raise InputError(
            "The behaviour probabilities were estimated from this very data, which a certificate "
            "would not cover: give a policy that is known (with_behavior), or declare the data "
            "the estimate came from public."
        )


def steps(
    data: Trajectories,
    policy: Policy | None,
    features: Features,
    gamma: float,
    cap: float | None = None,
) -> Steps:
    """What linear estimators need of every usable step of `data`."""
    gamma = check_discount(gamma)
    check_table(features, data)
    moves = data.transitions()
    ratios = importance_ratios(data, policy, cap)[moves.rows]
    phi = feature_rows(features, moves.states)
    following = feature_rows(features, moves.next_states)
    counts = np.bincount(moves.trajectories, minlength=data.num_trajectories)
    return Steps(
        phi=phi,
        direction=phi - (gamma * moves.bootstraps)[:, None] * following,
        rewards=np.asarray(moves.rewards, dtype=np.float64),
        ratios=ratios,
        shares=1.0 / counts[moves.trajectories],
        trajectories=moves.trajectories,
        units=np.asarray(data.unit_index)[moves.trajectories],
        num_trajectories=data.num_trajectories,
        num_units=data.num_units,
    )


# The largest matrix that estimators of value functions keep has so many rows: 134 MB.
MOST_ROWS = 4096


def check_matrix_size(what: str, rows: int) -> None:
    """Refuse a matrix that no memory, or nobody's patience, would be enough for."""
    if rows > MOST_ROWS:
        raise InputError(
            f"{what} would need a matrix of {rows:,} x {rows:,} numbers, {rows * rows * 8e-9:,.1f} "
            f"GB: at most {MOST_ROWS:,} rows are taken. Say features with fewer numbers, or fewer "
            "states."
        )


def check_discount(gamma: float) -> float:
    """`gamma` if it is a discount factor: at least 0 and at most 1."""
    return checks.share("gamma", gamma)


def check_range(name: str, value: Any) -> tuple[float, float]:
    """The lowest and the highest of something, a finite distance apart."""
    try:
        low, high = (checks.number(name, end) for end in value)
    except (TypeError, ValueError):
        low = high = 0.0
    if not (low < high and np.isfinite(high - low)):
        raise InputError("must be two finite numbers, the lower first.", field=name)
    return low, high


def check_in_memory(data: object) -> None:
    """Raise for a stream."""
    if not isinstance(data, Trajectories):
        raise InputError("must be Trajectories: load a stream's files as a whole.", field="data")


def feature_rows(features: Features, states: Any) -> Floats:
    """(n, d) features of n states."""
    found = np.asarray(features(states), dtype=np.float64)
    if found.shape != (len(states), features.dimension):
        raise InputError(
            f"The features of {len(states)} states must have shape "
            f"({len(states)}, {features.dimension}), not {found.shape}."
        )
    return found
