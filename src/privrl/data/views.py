"""Views of trajectories for estimators: one alone, transitions, and padded arrays."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from privrl.core import checks
from privrl.core.types import AnyArray
from privrl.data.sources import private_error

if TYPE_CHECKING:
    from privrl.data.trajectories import Trajectories


@dataclass(frozen=True)
class Trajectory:
    """One trajectory: views of its rows."""

    id: Any
    user: Any
    states: AnyArray
    actions: AnyArray
    rewards: AnyArray
    behavior_probs: AnyArray | None
    target_probs: AnyArray | None
    times: AnyArray | None
    terminated: bool
    truncated: bool
    final_state: Any

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Transitions:
    """Steps with a next state, or with none needed.

    `bootstraps` is 1 where the value of `next_states` counts and 0 where the trajectory terminated:
    a discount factor is multiplied by it. `rows` are positions in the columns of the trajectories,
    `trajectories` says to which each belongs.
    """

    states: AnyArray
    actions: AnyArray
    rewards: AnyArray
    next_states: AnyArray
    bootstraps: AnyArray
    behavior_probs: AnyArray | None
    target_probs: AnyArray | None
    rows: AnyArray
    trajectories: AnyArray

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Padded:
    """Trajectories side by side, (trajectory, step, ...), filled up to one length.

    `mask` is true where there is a step. Elsewhere states, actions and rewards are 0 and
    probabilities are 1, so that their logarithms and ratios add nothing.
    """

    states: AnyArray
    actions: AnyArray
    rewards: AnyArray
    mask: AnyArray
    lengths: AnyArray
    terminated: AnyArray
    truncated: AnyArray
    behavior_probs: AnyArray | None
    target_probs: AnyArray | None
    final_states: AnyArray | None


def transitions(data: "Trajectories") -> Transitions:
    """See `Trajectories.transitions`."""
    last = data.offsets[1:] - 1
    usable = np.ones(data.num_steps, dtype=bool)
    if data.final_states is None:
        usable[last[~data.terminated]] = False
    rows = np.flatnonzero(usable)
    following = np.minimum(np.arange(1, data.num_steps + 1), data.num_steps - 1)
    # A terminated last row stands in for its own next state, which nothing bootstraps from.
    following[last] = last
    next_states = data.states[following]
    if data.final_states is not None:
        next_states[last] = data.final_states
    bootstraps = np.ones(data.num_steps)
    bootstraps[last[data.terminated]] = 0.0

    def part(column: AnyArray | None) -> AnyArray | None:
        return None if column is None else column[rows]

    return Transitions(
        data.states[rows],
        data.actions[rows],
        data.rewards[rows],
        next_states[rows],
        bootstraps[rows],
        part(data.behavior_probs),
        part(data.target_probs),
        rows,
        np.repeat(np.arange(data.num_trajectories), data.lengths)[rows],
    )


def padded(
    data: "Trajectories", max_length: int, too_long: Literal["refuse", "cut"] = "refuse"
) -> Padded:
    """See `Trajectories.padded`."""
    checks.count("max_length", max_length)
    checks.choice("too_long", too_long, ("refuse", "cut"))
    cut = data.lengths > max_length
    if cut.any() and too_long == "refuse":
        raise private_error(
            f"{int(cut.sum())} trajectories have more than {max_length} steps: raise "
            "max_length, or pass too_long='cut' to keep their first steps."
        )
    lengths = np.minimum(data.lengths, max_length)
    mask = np.arange(max_length) < lengths[:, None]
    rows = (data.offsets[:-1, None] + np.arange(max_length))[mask]

    def pad_column(column: AnyArray | None, empty: float) -> AnyArray | None:
        if column is None:
            return None
        out = np.full((*mask.shape, *column.shape[1:]), empty, dtype=column.dtype)
        out[mask] = column[rows]
        return out

    states, actions = pad_column(data.states, 0), pad_column(data.actions, 0)
    rewards = pad_column(data.rewards, 0)
    assert states is not None
    assert actions is not None
    assert rewards is not None
    final_states = None
    if data.final_states is not None:
        final_states = data.final_states.copy()
        final_states[cut] = data.states[data.offsets[:-1][cut] + max_length]
    return Padded(
        states,
        actions,
        rewards,
        mask,
        lengths,
        data.terminated & ~cut,
        data.truncated | cut,
        pad_column(data.behavior_probs, 1.0),
        pad_column(data.target_probs, 1.0),
        final_states,
    )
