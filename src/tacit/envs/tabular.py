"""Markov decision processes given by tables, with exact answers.

A table lists, for each state and action, at most K successors: where to, how likely, what reward,
and whether the episode terminates there. Termination belongs to the transition, as in Gymnasium's
tables: a taxi ends its episode by setting down the passenger, not by being somewhere.

Exact values are linear solves in 64-bit NumPy. They count rewards until termination and know
nothing of step limits, which are a property of how episodes are collected.

Sampling is by inverse CDF: comparing one uniform number with K cumulative probabilities, and a
binary search for the start. `jax.random.categorical` draws one Gumbel number for each of hundreds
of states, which is a hundred times slower.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import spsolve

from tacit.envs.base import Discrete, Environment, State
from tacit.privacy import checks
from tacit.privacy.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class TableParams(NamedTuple):
    """What sampling needs; a pytree, so that one can `vmap` over whole MDPs of one shape."""

    successors: Any  # (S, A, K) whole numbers
    cumulative: Any  # (S, A, K), non-decreasing, exactly 1 from the last possible successor on
    rewards: Any  # (S, A, K)
    terminated: Any  # (S, A, K)
    start: Any  # (S,) cumulative


@dataclass(frozen=True, eq=False)
class Tables:
    """Sparse transitions and a start distribution, checked when made."""

    successors: Integers
    probabilities: Floats
    rewards: Floats
    terminated: Flags
    start: Floats

    def __post_init__(self) -> None:
        shape = self.probabilities.shape
        if len(shape) != 3 or 0 in shape:
            raise InputError(
                f"probabilities must have the shape (states, actions, successors), not {shape}."
            )
        for name in ("successors", "rewards", "terminated"):
            if getattr(self, name).shape != shape:
                raise InputError(
                    f"{name} must have the shape {shape} of the probabilities, "
                    f"not {getattr(self, name).shape}."
                )
        if self.start.shape != shape[:1]:
            raise InputError(f"start must have one entry for each of the {shape[0]} states.")
        if self.successors.min() < 0 or self.successors.max() >= shape[0]:
            raise InputError(f"successors must be states from 0 to {shape[0] - 1}.")
        if not np.all(np.isfinite(self.rewards)):
            raise InputError("rewards must be finite.")
        _check_distribution("probabilities", self.probabilities)
        _check_distribution("start", self.start)

    def params(self) -> TableParams:
        """The form that sampling uses."""
        return TableParams(
            self.successors.astype(np.int32),
            _cumulative(self.probabilities),
            self.rewards,
            self.terminated,
            _cumulative(self.start),
        )


class Solution(NamedTuple):
    """An optimal policy, as a table of probabilities (S, A), with its values."""

    policy: Floats
    values: Floats
    action_values: Floats


class TabularMDP(Environment[jax.Array, TableParams]):
    """A table-driven environment: states are 0 to S - 1, and an observation is the state.

    `TabularMDP.from_tables`, `.from_dense` and `.from_dict` make one of anybody's tables.
    """

    render_mode: ClassVar[Literal["ansi", "rgb_array"]] = "ansi"

    @abstractmethod
    def _build(self) -> Tables: ...

    @cached_property
    def tables(self) -> Tables:
        """Where each action leads; built when first asked for."""
        return self._build()

    @cached_property
    def _params(self) -> TableParams:
        return self.tables.params()

    @property
    def default_params(self) -> TableParams:
        return self._params

    @property
    def num_states(self) -> int:
        return int(self.tables.probabilities.shape[0])

    @property
    def num_actions(self) -> int:
        return int(self.tables.probabilities.shape[1])

    @property
    def observation(self) -> Discrete:
        return Discrete(self.num_states)

    # --- sampling ---------------------------------------------------------------------------------

    def _reset(self, key: jax.Array, params: TableParams) -> jax.Array:
        u = jax.random.uniform(key)
        cdf = jnp.asarray(params.start)
        # Unrolled: a binary search over hundreds of states is a dozen comparisons.
        found = jnp.searchsorted(cdf, u, side="right", method="scan_unrolled")
        return found.astype(jnp.int32)

    def _draw(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(key)

    def _move(
        self, chance: Any, inner: jax.Array, action: jax.Array, params: TableParams
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        row = jnp.asarray(params.cumulative)[inner, action]
        if row.shape[0] == 1:  # nothing to draw
            k = jnp.zeros((), jnp.int32)
        else:
            k = jnp.sum(chance >= row[:-1], dtype=jnp.int32)
        successor = jnp.asarray(params.successors)[inner, action, k]
        reward = jnp.asarray(params.rewards)[inner, action, k]
        return successor, reward, jnp.asarray(params.terminated)[inner, action, k]

    def _observe(self, inner: jax.Array, params: TableParams) -> jax.Array:
        return inner

    # --- exact answers ----------------------------------------------------------------------------

    def uniform(self) -> Floats:
        """The policy that takes each action equally often."""
        return np.full((self.num_states, self.num_actions), 1.0 / self.num_actions)

    def greedy(self, actions: ArrayLike) -> Floats:
        """The policy that takes `actions[s]` in state s, or the largest of `actions[s, :]`."""
        table = np.asarray(actions)
        chosen = table.argmax(axis=1) if table.ndim == 2 else table.astype(np.int64)
        if chosen.shape != (self.num_states,):
            raise InputError(f"one action is needed for each of the {self.num_states} states.")
        if chosen.min() < 0 or chosen.max() >= self.num_actions:
            raise InputError(f"actions must be from 0 to {self.num_actions - 1}.")
        table_of_ones: Floats = np.eye(self.num_actions)[chosen]
        return table_of_ones

    def transition_matrix(self, policy: ArrayLike) -> Floats:
        """P(s' | s) under the policy, of steps that do not terminate (rows may sum to less)."""
        table = self._policy(policy)
        return np.asarray(self._kernel(table).todense())

    def expected_rewards(self) -> Floats:
        """The expected reward of each action in each state, (S, A)."""
        rewards: Floats = np.sum(self.tables.probabilities * self.tables.rewards, axis=2)
        return rewards

    def values(self, policy: ArrayLike, gamma: float) -> Floats:
        """The exact value of each state under a policy table (S, A): rewards until termination."""
        table, discount = self._policy(policy), _discount(gamma)
        kernel = self._kernel(table)
        if discount == 1.0 and not _ends(kernel):
            raise InputError(
                "gamma must be below 1: under this policy some episodes never terminate."
            )
        rewards = np.sum(table * self.expected_rewards(), axis=1)
        system = sparse.identity(self.num_states, format="csc") - discount * kernel.tocsc()
        if self.num_states <= 1000:
            solved: Floats = np.linalg.solve(np.asarray(system.todense()), rewards)
        else:
            solved = np.asarray(spsolve(system, rewards))
        return solved

    def action_values(self, policy: ArrayLike, gamma: float) -> Floats:
        """The exact value of each action in each state, followed by the policy."""
        return self._backup(self.values(policy, gamma), gamma)

    def start_value(self, policy: ArrayLike, gamma: float) -> float:
        """What the policy is worth where episodes start."""
        return float(self.tables.start @ self.values(policy, gamma))

    def optimal(self, gamma: float) -> Solution:
        """An optimal policy by policy iteration: exact, up to the rounding of the linear solves."""
        discount = _discount(gamma)
        # The uniform policy terminates wherever termination can be reached at all, so that the
        # first evaluation exists for gamma = 1 too.
        values = self.values(self.uniform(), discount)
        actions = self._backup(values, discount).argmax(axis=1)
        while True:
            values = self.values(self.greedy(actions), discount)
            options = self._backup(values, discount)
            best = options.max(axis=1)
            kept = np.take_along_axis(options, actions[:, None], axis=1)[:, 0]
            # An action is given up only for one better beyond rounding, or ties would go on.
            better = best > kept + 1e-10 * (1.0 + np.abs(best))
            if not np.any(better):
                return Solution(self.greedy(actions), values, options)
            actions = np.where(better, options.argmax(axis=1), actions)

    def _backup(self, values: Floats, gamma: float) -> Floats:
        tables = self.tables
        after = tables.rewards + gamma * ~tables.terminated * values[tables.successors]
        backed: Floats = np.sum(tables.probabilities * after, axis=2)
        return backed

    def _kernel(self, policy: Floats) -> Any:
        tables = self.tables
        weights = policy[:, :, None] * tables.probabilities * ~tables.terminated
        rows = np.broadcast_to(np.arange(self.num_states)[:, None, None], weights.shape)
        size = (self.num_states, self.num_states)
        entries = (weights.ravel(), (rows.ravel(), tables.successors.ravel()))
        return sparse.coo_matrix(entries, shape=size).tocsr()

    def _policy(self, policy: ArrayLike) -> Floats:
        table = np.asarray(policy, dtype=np.float64)
        if table.shape != (self.num_states, self.num_actions):
            raise InputError(
                f"a policy must be a table of {self.num_states} states by {self.num_actions} "
                f"actions, not of shape {table.shape}."
            )
        _check_distribution("policy", table)
        return table

    # --- for people -------------------------------------------------------------------------------

    def render(self, state: State[jax.Array], params: TableParams | None = None) -> str:
        return f"state {int(state.inner)} of {self.num_states}"

    # --- from anybody's tables --------------------------------------------------------------------

    @staticmethod
    def from_tables(
        successors: ArrayLike,
        probabilities: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike | None = None,
        start: ArrayLike | None = None,
        *,
        step_limit: int | None = None,
        name: str = "table",
    ) -> "GivenMDP":
        """From arrays of shape (S, A, K); nothing terminates and starts are uniform by default."""
        chances = np.asarray(probabilities, dtype=np.float64)
        size = chances.shape[0] if chances.ndim else 0
        ends = np.zeros(chances.shape, bool) if terminated is None else np.asarray(terminated, bool)
        first = np.full(size, 1.0 / max(size, 1)) if start is None else start
        tables = Tables(
            np.asarray(successors, dtype=np.int64),
            chances,
            np.asarray(rewards, dtype=np.float64),
            ends,
            np.asarray(first, dtype=np.float64),
        )
        return GivenMDP(tables, step_limit, name)

    @staticmethod
    def from_dense(
        transitions: ArrayLike,
        rewards: ArrayLike,
        terminal: ArrayLike | None = None,
        start: ArrayLike | None = None,
        *,
        step_limit: int | None = None,
        name: str = "table",
    ) -> "GivenMDP":
        """From P(s' | s, a) and rewards, each (S, A, S); entering a `terminal` state terminates."""
        dense = np.asarray(transitions, dtype=np.float64)
        if dense.ndim != 3 or dense.shape[0] != dense.shape[2]:
            raise InputError(
                f"transitions must have the shape (states, actions, states), not {dense.shape}."
            )
        pay = np.broadcast_to(np.asarray(rewards, dtype=np.float64), dense.shape)
        width = max(int((dense != 0.0).sum(axis=2).max()), 1)
        # The possible successors of each row first, in their order.
        successors = np.argsort(dense == 0.0, axis=2, kind="stable")[:, :, :width]
        flags = np.zeros(dense.shape[0], bool) if terminal is None else np.asarray(terminal, bool)
        return TabularMDP.from_tables(
            successors,
            np.take_along_axis(dense, successors, axis=2),
            np.take_along_axis(pay, successors, axis=2),
            flags[successors],
            start,
            step_limit=step_limit,
            name=name,
        )

    @staticmethod
    def from_dict(
        table: Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]],
        start: ArrayLike,
        *,
        step_limit: int | None = None,
        name: str = "table",
    ) -> "GivenMDP":
        """From Gymnasium's `P[state][action]`: lists of (probability, next, reward, terminated)."""
        states, actions = len(table), len(table[0])
        width = max(len(rows) for by_action in table.values() for rows in by_action.values())
        shape = (states, actions, width)
        successors, terminated = np.zeros(shape, np.int64), np.zeros(shape, bool)
        probabilities, rewards = np.zeros(shape), np.zeros(shape)
        for s in range(states):
            for a in range(actions):
                for k, (chance, after, reward, end) in enumerate(table[s][a]):
                    successors[s, a, k] = after
                    probabilities[s, a, k] = chance
                    rewards[s, a, k] = reward
                    terminated[s, a, k] = end
        return TabularMDP.from_tables(
            successors,
            probabilities,
            rewards,
            terminated,
            start,
            step_limit=step_limit,
            name=name,
        )


@dataclass(frozen=True, eq=False)
class GivenMDP(TabularMDP):
    """A `TabularMDP` of given tables; equal only to itself."""

    given: Tables
    step_limit: int | None = None
    title: str = "table"

    def __post_init__(self) -> None:
        if self.step_limit is not None:
            checks.count("step_limit", self.step_limit)

    @property
    def name(self) -> str:
        return self.title

    def _build(self) -> Tables:
        return self.given


def _check_distribution(name: str, table: Floats) -> None:
    if not np.all(np.isfinite(table)) or np.any(table < 0.0):
        raise InputError(f"{name} must be finite numbers of at least 0.")
    off = float(np.max(np.abs(table.sum(axis=-1) - 1.0)))
    if off > 1e-9:
        raise InputError(f"{name} must sum to 1, and are off by {off:.3g}.")


def _cumulative(probabilities: Floats) -> Floats:
    """Cumulative sums along the last axis, exactly 1 from the last positive entry on.

    Otherwise rounding could leave a sliver at the end that belongs to an impossible successor.
    """
    total = np.cumsum(probabilities, axis=-1)
    positive = probabilities > 0.0
    size = probabilities.shape[-1]
    last = size - 1 - np.argmax(positive[..., ::-1], axis=-1)
    done: Floats = np.where(np.arange(size) >= last[..., None], 1.0, np.minimum(total, 1.0))
    return done


def _discount(gamma: object) -> float:
    value = checks.number("gamma", gamma)
    if not 0.0 <= value <= 1.0:
        raise InputError(f"gamma must be from 0 to 1, not {value:g}.")
    return value


def _ends(kernel: Any) -> bool:
    """Whether termination can be reached from every state, so that undiscounted values exist."""
    leaks = np.asarray(kernel.sum(axis=1)).ravel() < 1.0 - 1e-12
    while True:
        # A state is good when it may terminate at once, or may move to a good one.
        more = leaks | (kernel @ leaks.astype(np.float64) > 0.0)
        if np.array_equal(more, leaks):
            return bool(np.all(leaks))
        leaks = more
