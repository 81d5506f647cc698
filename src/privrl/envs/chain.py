"""Chains of states that are rolled out in one direction: patients who recover at different speeds.

`Chain` is the policy-evaluation task of Xie et al. (2019), after Balle et al. (2016); `MDP100` the
control task of Seo and Yang (2020). Both texts leave gaps; what fills them is a field below.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.envs import arrays
from privrl.envs.base import EnvState
from privrl.envs.tabular import TableParams, Tables, TabularMDP


def _line(position: int, length: int) -> str:
    """`....@....G`, broken into lines of fifty."""
    cells = ["."] * (length - 1) + ["G"]
    cells[position] = "@"
    lines = ["".join(cells[i : i + 50]) for i in range(0, length, 50)]
    return "\n".join([*lines, f"state {position} of {length}"])


def _length(states: object) -> int:
    size = checks.count("states", states)
    if size < 2:
        raise InputError("must be at least 2: one to start in and one to end in.", field="states")
    return size


@dataclass(frozen=True)
class Chain(TabularMDP):
    """Stay or advance, as chance decides; reward 1 on entering the absorbing last state.

    There is one action: the task is to evaluate, not to choose. The value of a state n steps from
    the end is (p gamma / (1 - (1 - p) gamma))^n / gamma, p being the probability to advance.
    """

    states: int = 40
    """How many, with the absorbing end."""

    stay: float = 0.5
    """The probability to stay."""

    start_at_end: bool = False
    """Whether the uniform start includes the absorbing end, where nothing is left to happen."""

    step_limit: int | None = 200
    """The cap of Balle et al.'s code; an episode of 40 states exceeds it once in 10^19."""

    def __post_init__(self) -> None:
        _length(self.states)
        arrays.share("stay", self.stay)
        arrays.flag("start_at_end", self.start_at_end)
        super().__post_init__()

    def _build(self) -> Tables:
        n, end = self.states, self.states - 1
        here = np.arange(n)
        successors = np.stack([here, np.minimum(here + 1, end)], axis=1)[:, None, :]
        probabilities = np.tile([self.stay, 1.0 - self.stay], (n, 1, 1)).astype(np.float64)
        probabilities[end, 0] = [1.0, 0.0]
        rewards = np.zeros((n, 1, 2))
        rewards[end - 1, 0, 1] = 1.0
        start = np.ones(n)
        start[end] = float(self.start_at_end)
        return Tables(successors, probabilities, rewards, successors == end, start / start.sum())

    def render(self, state: EnvState[jax.Array], params: TableParams | None = None) -> str:
        return _line(int(state.inner), self.states)


@dataclass(frozen=True)
class MDP100(TabularMDP):
    """Two actions, stay (0) and right (1); -1 for each step and +1 for reaching the last state.

    The optimal undiscounted value of the first state is 1 - 99 / 0.9 = -109: a hundred and ten
    steps in the mean, and the reward at the end.
    """

    states: int = 100

    advance: float = 0.9
    """The probability that `right` advances; it stays otherwise."""

    stay: float = 1.0
    """The probability that `stay` stays; it advances otherwise. The paper gives no number."""

    start: Literal["first", "uniform"] = "first"
    """Where episodes start: the first state, or any but the last. The paper is silent."""

    step_reward: float = -1.0
    """Paid in each step, also in the one that arrives."""

    end_reward: float = 1.0
    """Paid on top on arrival, where the episode terminates."""

    step_limit: int | None = 500
    """The paper is silent; choosing at random takes 220 steps in the mean, give or take 16."""

    def __post_init__(self) -> None:
        _length(self.states)
        arrays.share("advance", self.advance)
        arrays.share("stay", self.stay)
        arrays.finite("step_reward", self.step_reward)
        arrays.finite("end_reward", self.end_reward)
        arrays.choice("start", self.start, "first", "uniform")
        super().__post_init__()

    def _build(self) -> Tables:
        n, end = self.states, self.states - 1
        here = np.arange(n)
        one = np.stack([here, np.minimum(here + 1, end)], axis=1)
        successors = np.stack([one, one], axis=1)
        probs = [[self.stay, 1.0 - self.stay], [1.0 - self.advance, self.advance]]
        probabilities = np.tile(probs, (n, 1, 1)).astype(np.float64)
        probabilities[end] = [[1.0, 0.0], [1.0, 0.0]]
        terminated = successors == end
        rewards = self.step_reward + self.end_reward * terminated
        rewards[end] = 0.0
        start = np.zeros(n)
        start[: 1 if self.start == "first" else end] = 1.0
        return Tables(successors, probabilities, rewards, terminated, start / start.sum())

    def render(self, state: EnvState[jax.Array], params: TableParams | None = None) -> str:
        return _line(int(state.inner), self.states)
