"""Whether policies and tables of features speak of the states and actions that the data holds."""

import numpy as np
from numpy.typing import NDArray

from privrl.core.errors import InputError
from privrl.data.policies import Policy, is_index
from privrl.data.sources import private_error
from privrl.data.trajectories import Trajectories


def check_actions(policy: Policy, data: Trajectories) -> None:
    """The policy has as many actions as the data says there are; no row is looked at."""
    if not data.discrete_actions:
        raise InputError(
            "The data holds vectors as actions, but a policy chooses among finitely many."
        )
    if data.num_actions is not None and data.num_actions != policy.num_actions:
        raise InputError(
            f"The policy has {policy.num_actions} actions, but the data has {data.num_actions}."
        )


def check_covers(policy: Policy, data: Trajectories) -> None:
    """The policy speaks of the states and actions that the data holds, or one sentence says not."""
    check_actions(policy, data)
    outside = data.actions >= policy.num_actions
    if outside.any():
        raise private_error(
            f"actions, row {int(np.argmax(outside))} (counting from 0): the policy has only "
            f"{policy.num_actions} actions."
        )
    known = known_states(policy, data)
    if data.invalid == "refuse" and not known.all():
        raise private_error(
            f"states, row {int(np.argmin(known))} (counting from 0): the policy's table has only "
            f"{policy.num_states} states."
        )


def check_table(features: object, data: Trajectories) -> None:
    """A table has a row for each state that the data says there are; `features` may be a number.

    States without a row count for nothing, or for zero: that is for what is invalid, and not for
    what somebody forgot. Both numbers are public.
    """
    rows = features if isinstance(features, int) else getattr(features, "num_states", None)
    if rows is not None and data.num_states is not None and data.num_states > rows:
        raise InputError(
            f"The table has {rows} states, but the data has {data.num_states}: say as many."
        )


def known_states(policy: Policy, data: Trajectories) -> NDArray[np.bool_]:
    """Which rows have a state that the policy knows: no others may count.

    Outside of its table a policy acts uniformly, which nobody asked about. So another number of
    states than the policy's is refused wherever the data says how many there are. That is public,
    and no row is looked at for it.
    """
    if policy.num_states is None:
        return np.ones(data.num_steps, dtype=bool)
    if not data.discrete_states:
        raise InputError("The policy is a table over discrete states, but the data has vectors.")
    if data.num_states is not None and data.num_states != policy.num_states:
        raise InputError(
            f"The policy's table has {policy.num_states} states, but the data has "
            f"{data.num_states}: say a policy that knows each of them, and no others."
        )
    known: NDArray[np.bool_] = is_index(np, data.states, policy.num_states)
    return known
