"""A small decision process all of whose trajectories can be listed, with their probabilities.

Three states, two actions, at most three steps. All probabilities are quarters, so there is a finite
data set, `population`, in which every trajectory occurs exactly in proportion to its probability
under the behaviour policy: expectations are averages over it, without sampling error.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privrl.data import Tabular, Trajectories
from privrl.envs import TabularMDP

HORIZON = 3
GAMMA = 0.75
STATES, ACTIONS = 3, 2

START = np.array([0.5, 0.5, 0.0])
# P[s, a, s'], and the probability of ending in each step is what is missing to 1.
MOVES = np.array(
    [
        [[0.25, 0.25, 0.25], [0.0, 0.5, 0.5]],
        [[0.5, 0.0, 0.0], [0.25, 0.25, 0.5]],
        [[0.0, 0.75, 0.25], [0.25, 0.0, 0.25]],
    ]
)
REWARDS = np.array([[1.0, -0.5], [0.25, 2.0], [-1.0, 0.5]])
BEHAVIOR = Tabular(np.array([[0.5, 0.5], [0.25, 0.75], [0.75, 0.25]]))
TARGET = Tabular(np.array([[0.75, 0.25], [0.75, 0.25], [0.5, 0.5]]))


@dataclass(frozen=True)
class Path:
    """One trajectory: what happened, and how likely it was."""

    states: tuple[int, ...]
    actions: tuple[int, ...]
    terminated: bool
    final: int
    behavior: float
    target: float

    @property
    def rewards(self) -> NDArray[np.float64]:
        return np.array([REWARDS[s, a] for s, a in zip(self.states, self.actions, strict=True)])

    @property
    def value(self) -> float:
        return float(self.rewards @ GAMMA ** np.arange(len(self.states)))

    @property
    def ratio(self) -> float:
        return self.target / self.behavior


@cache
def paths() -> tuple[Path, ...]:
    """Every trajectory that the behaviour policy can make."""
    found: list[Path] = []

    def extend(states: list[int], actions: list[int], b: float, p: float) -> None:
        s = states[-1]
        for a in range(ACTIONS):
            here, there = b * BEHAVIOR.table[s, a], p * TARGET.table[s, a]
            taken = [*actions, a]
            end = 1.0 - MOVES[s, a].sum()
            if end > 0.0:
                found.append(Path(tuple(states), tuple(taken), True, s, here * end, there * end))
            for after in np.flatnonzero(MOVES[s, a]):
                prob = float(MOVES[s, a, after])
                if len(taken) == HORIZON:
                    one = (tuple(states), tuple(taken), False, int(after))
                    found.append(Path(*one, here * prob, there * prob))
                else:
                    extend([*states, int(after)], taken, here * prob, there * prob)

    for s in np.flatnonzero(START):
        extend([int(s)], [], float(START[s]), float(START[s]))
    return tuple(found)


def value(target: bool = True) -> float:
    """The expected discounted return up to the horizon."""
    return sum(one.value * (one.target if target else one.behavior) for one in paths())


@cache
def _columns() -> tuple[NDArray[np.int64], ...]:
    """States and actions side by side, lengths, whether terminated, and final states."""
    steps = np.zeros((2, len(paths()), HORIZON), dtype=np.int64)
    for k, one in enumerate(paths()):
        steps[0, k, : len(one.states)] = one.states
        steps[1, k, : len(one.states)] = one.actions
    lengths = np.array([len(one.states) for one in paths()])
    ends = np.array([one.terminated for one in paths()])
    return steps[0], steps[1], lengths, ends, np.array([one.final for one in paths()])


def dataset(chosen: Any, users: NDArray[np.int64] | None = None) -> Trajectories:
    """These trajectories, by their number in `paths`."""
    states, actions, lengths, ends, final = (column[chosen] for column in _columns())
    there = np.arange(HORIZON) < lengths[:, None]
    states, actions = states[there], actions[there]
    return Trajectories.from_arrays(
        states,
        actions,
        REWARDS[states, actions],
        lengths=lengths,
        terminated=ends,
        final_states=final,
        users=users,
        behavior_probs=BEHAVIOR.table[states, actions],
        num_states=STATES,
        num_actions=ACTIONS,
    )


@cache
def population() -> Trajectories:
    """Each trajectory as often as its probability says, of 2 * 16^3 in all."""
    whole = 2 * 16**HORIZON
    counts = np.array([one.behavior * whole for one in paths()])
    assert np.array_equal(counts, np.rint(counts))
    assert counts.sum() == whole
    return dataset(np.repeat(np.arange(len(counts)), counts.astype(int)))


def sample(n: int, generator: np.random.Generator, trips: int = 1) -> Trajectories:
    """`n` people drawn at random, with `trips` trajectories each."""
    probs = np.array([one.behavior for one in paths()])
    chosen = generator.choice(len(probs), n * trips, p=probs / probs.sum())
    users = None if trips == 1 else np.arange(n * trips) // trips
    return dataset(chosen, users)


def mdp() -> TabularMDP:
    """The same process without a horizon; ending is a successor of its own."""
    moves = np.zeros((STATES, ACTIONS, STATES + 1))
    moves[:, :, :STATES] = MOVES
    moves[:, :, STATES] = 1.0 - MOVES.sum(axis=2)
    successors = np.broadcast_to(np.array([0, 1, 2, 0]), moves.shape)
    ends = np.broadcast_to(np.array([False, False, False, True]), moves.shape)
    pay = np.broadcast_to(REWARDS[:, :, None], moves.shape)
    return TabularMDP.from_tables(successors, moves, pay, ends, START)
