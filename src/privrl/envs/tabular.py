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
import scipy  # which loads its parts when they are first used
from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs import arrays
from privrl.envs.arrays import Flags, Integers
from privrl.envs.base import Discrete, Environment, EnvState

ENDLESS = "gamma must be below 1: under this policy some episodes never terminate."


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
        kept = {
            "successors": arrays.integers("successors", self.successors),
            "probabilities": arrays.distributions("probabilities", self.probabilities),
            "rewards": arrays.floats("rewards", self.rewards),
            "terminated": arrays.flags("terminated", self.terminated),
            "start": arrays.distributions("start", self.start),
        }
        shape = kept["probabilities"].shape
        if len(shape) != 3 or 0 in shape:
            raise InputError(
                f"must have the shape (states, actions, successors), not {shape}.",
                field="probabilities",
            )
        for name in ("successors", "rewards", "terminated"):
            if kept[name].shape != shape:
                raise InputError(
                    f"must have the shape {shape} of the probabilities, not {kept[name].shape}.",
                    field=name,
                )
        if kept["start"].shape != shape[:1]:
            raise InputError(
                f"must have one entry for each of the {shape[0]} states.", field="start"
            )
        if kept["successors"].min() < 0 or kept["successors"].max() >= shape[0]:
            raise InputError(f"must be states from 0 to {shape[0] - 1}.", field="successors")
        if not np.all(np.isfinite(kept["rewards"])):
            raise InputError("must be finite.", field="rewards")
        for name, table in kept.items():
            # What sampling uses is derived from these once, so they must not change.
            table.setflags(write=False)
            object.__setattr__(self, name, table)

    def params(self) -> TableParams:
        """The form that sampling uses."""
        return TableParams(
            self.successors.astype(np.int32),
            arrays.cumulative(self.probabilities),
            self.rewards,
            self.terminated,
            arrays.cumulative(self.start),
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
        cdf = _floats(params.start)
        # Unrolled: a binary search over hundreds of states is a dozen comparisons.
        found = jnp.searchsorted(cdf, u, side="right", method="scan_unrolled")
        return found.astype(jnp.int32)

    def _draw(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(key)

    def _move(
        self, draw: Any, inner: jax.Array, action: jax.Array, params: TableParams
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        row = _floats(params.cumulative)[inner, action]
        if row.shape[0] == 1:  # nothing to draw
            k = jnp.zeros((), jnp.int32)
        else:
            k = jnp.sum(draw >= row[:-1], dtype=jnp.int32)
        successor = jnp.asarray(params.successors)[inner, action, k]
        reward = _floats(params.rewards)[inner, action, k]
        return successor, reward, jnp.asarray(params.terminated)[inner, action, k]

    # --- exact answers ----------------------------------------------------------------------------

    def uniform(self) -> Floats:
        """The policy that takes each action equally often."""
        return np.full((self.num_states, self.num_actions), 1.0 / self.num_actions)

    def greedy(self, actions: ArrayLike) -> Floats:
        """The policy that takes `actions[s]` in state s, or the largest of `actions[s, :]`."""
        table = arrays.floats("actions", actions)
        if table.shape == (self.num_states, self.num_actions):
            if np.any(np.isnan(table)):
                raise InputError("the values of actions must be numbers, not NaN.")
            chosen = table.argmax(axis=1)
        elif table.shape == (self.num_states,):
            chosen = arrays.integers("actions", table)
        else:
            raise InputError(f"one action is needed for each of the {self.num_states} states.")
        if chosen.min() < 0 or chosen.max() >= self.num_actions:
            raise InputError(f"must be from 0 to {self.num_actions - 1}.", field="actions")
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
        """The exact value of each state under a policy table (S, A): rewards until termination.

        With gamma = 1 they exist where an episode ends with certainty, or comes to where nothing is
        paid any more.
        """
        values, exist = self._evaluate(self._policy(policy), arrays.share("gamma", gamma))
        if not np.all(exist):
            raise InputError(ENDLESS)
        return values

    def action_values(self, policy: ArrayLike, gamma: float) -> Floats:
        """The exact value of each action in each state, followed by the policy."""
        return self._backup(self.values(policy, gamma), gamma)

    def start_value(self, policy: ArrayLike, gamma: float) -> float:
        """What the policy is worth where episodes start; no matter what it would do elsewhere."""
        values, exist = self._evaluate(self._policy(policy), arrays.share("gamma", gamma))
        begun = self.tables.start > 0.0
        if not np.all(exist[begun]):
            raise InputError(ENDLESS)
        return float(self.tables.start[begun] @ values[begun])

    def visits(self, policy: ArrayLike, steps: int) -> Floats:
        """How often the first `steps` steps of an episode lead to each state, in expectation.

        The start does not count; the step that ends the episode does.
        """
        table, tables = self._policy(policy), self.tables
        probs = table[:, :, None] * tables.probabilities
        here, found = np.array(tables.start), np.zeros(self.num_states)
        for _ in range(checks.count("steps", steps)):
            moved = here[:, None, None] * probs
            found += self._push_forward(moved)
            here = self._push_forward(np.where(tables.terminated, 0.0, moved))
        return found

    def _push_forward(self, moved: Floats) -> Floats:
        """Probabilities of transitions (S, A, K), by where these lead."""
        to = self.tables.successors.ravel()
        found = np.bincount(to, weights=moved.ravel(), minlength=self.num_states)
        return found.astype(np.float64)

    def optimal(self, gamma: float) -> Solution:
        """An optimal policy by policy iteration: exact, up to the rounding of the linear solves.

        With gamma = 1 it is the best of those that end, of which there must be one. Proof: the
        first policy ends. Suppose that one ends, and its improvement has a set of states that it
        never leaves. Weighted by the stationary distribution there, the gains r + P v - v of its
        actions sum to the mean reward, since P v and v cancel. They are positive where the action
        is new, and zero elsewhere; and some action is new, or the old policy would not end either.
        So the mean reward is positive, and no optimum exists: which is what the error says.
        """
        discount = arrays.share("gamma", gamma)
        if discount == 1.0:
            actions = self._terminating_actions()
        else:
            actions = self._backup(self.values(self.uniform(), discount), discount).argmax(axis=1)
        while True:
            values, exist = self._evaluate(self.greedy(actions), discount)
            if not np.all(exist):
                raise InputError(
                    "must be below 1: rewards can be collected for ever.", field="gamma"
                )
            options = self._backup(values, discount)
            best = options.max(axis=1)
            kept = np.take_along_axis(options, actions[:, None], axis=1)[:, 0]
            # An action is given up only for one better beyond rounding, or ties would go on.
            better = best > kept + 1e-10 * (1.0 + np.abs(best))
            if not np.any(better):
                return Solution(self.greedy(actions), values, options)
            actions = np.where(better, options.argmax(axis=1), actions)

    def _terminating_actions(self) -> Integers:
        """In each state an action that may lead a step nearer to the end of the episode."""
        tables, anyhow = self.tables, self.uniform()
        kernel = self._kernel(anyhow)
        onward = _shortest_path_step(kernel, self._ending_states(anyhow, kernel))
        if np.any(onward < 0):
            raise InputError(
                "must be below 1: from some states no end can be reached.", field="gamma"
            )
        there = onward[:, None, None] == self.num_states
        nearer = ~tables.terminated & (tables.successors == onward[:, None, None])
        probs = np.sum(tables.probabilities * np.where(there, tables.terminated, nearer), axis=2)
        actions: Integers = probs.argmax(axis=1)
        return actions

    def _evaluate(self, policy: Floats, discount: float) -> tuple[Floats, Flags]:
        """Values, and where they exist."""
        kernel = self._kernel(policy)
        exist, solved = np.ones((2, self.num_states), bool)
        if discount == 1.0:
            ends = self._ending_states(policy, kernel)
            trapped = _shortest_path_step(kernel, ends) < 0
            exist = _shortest_path_step(kernel, trapped) < 0
            # Where nothing is paid any more the value is 0, and the matrix may be singular.
            solved = exist & (_shortest_path_step(kernel, self._paying_states(policy)) >= 0)
        rewards = np.sum(policy * self.expected_rewards(), axis=1)
        values = np.zeros(self.num_states)
        if np.any(solved):
            inside = kernel[solved][:, solved]
            system = (
                scipy.sparse.identity(inside.shape[0], format="csc") - discount * inside.tocsc()
            )
            if inside.shape[0] <= 1000:
                values[solved] = np.linalg.solve(np.asarray(system.todense()), rewards[solved])
            else:
                values[solved] = scipy.sparse.linalg.spsolve(system, rewards[solved])
        return values, exist

    def _paying_states(self, policy: Floats) -> Flags:
        """Where the next step may pay something."""
        sizes = np.sum(self.tables.probabilities * np.abs(self.tables.rewards), axis=2)
        paying: Flags = np.sum(policy * sizes, axis=1) > 0.0
        return paying

    def _ending_states(self, policy: Floats, kernel: Any) -> Flags:
        """Where the next step may terminate, or nothing is paid any more."""
        leaves = np.sum(self.tables.probabilities * self.tables.terminated, axis=2)
        ends: Flags = np.sum(policy * leaves, axis=1) > 0.0
        return ends | (_shortest_path_step(kernel, self._paying_states(policy)) < 0)

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
        kernel = scipy.sparse.coo_matrix(entries, shape=size).tocsr()
        kernel.eliminate_zeros()
        return kernel

    def _policy(self, policy: ArrayLike) -> Floats:
        table = arrays.floats("policy", policy)
        if table.shape != (self.num_states, self.num_actions):
            raise InputError(
                f"a policy must be a table of {self.num_states} states by {self.num_actions} "
                f"actions, not of shape {table.shape}."
            )
        return arrays.distributions("policy", table)

    # --- for people -------------------------------------------------------------------------------

    def render(self, state: EnvState[jax.Array], params: TableParams | None = None) -> str:
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
        probs = arrays.floats("probabilities", probabilities)
        size = probs.shape[0] if probs.ndim else 0
        tables = Tables(
            successors,  # type: ignore[arg-type]  # converted when checked, like the others
            probs,
            rewards,  # type: ignore[arg-type]
            np.zeros(probs.shape) if terminated is None else terminated,  # type: ignore[arg-type]
            np.full(size, 1.0 / max(size, 1)) if start is None else start,  # type: ignore[arg-type]
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
        """From P(s' | s, a) of shape (S, A, S); entering a `terminal` state terminates.

        Rewards are a number, (S, A), or (S, A, S); `terminal` is true or false for each state.
        """
        dense = arrays.floats("transitions", transitions)
        if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or 0 in dense.shape:
            raise InputError(
                f"must have the shape (states, actions, states), not {dense.shape}.",
                field="transitions",
            )
        pay = arrays.floats("rewards", rewards)
        if pay.shape not in ((), dense.shape[:2], dense.shape):
            raise InputError(
                f"must be a number or have the shape {dense.shape[:2]} or {dense.shape}, "
                f"not {pay.shape}.",
                field="rewards",
            )
        pay = np.broadcast_to(pay[..., None] if pay.ndim == 2 else pay, dense.shape)
        flags = np.zeros(len(dense), bool)
        if terminal is not None:
            flags = arrays.flags("terminal", terminal)
        if flags.shape != (len(dense),):
            raise InputError(
                f"must have one entry for each of the {len(dense)} states.", field="terminal"
            )
        width = max(int((dense != 0.0).sum(axis=2).max()), 1)
        # The possible successors of each row first, in their order.
        successors = np.argsort(dense == 0.0, axis=2, kind="stable")[:, :, :width]
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
        try:
            states, actions = len(table), len(table[0])
            width = max(len(table[s][a]) for s in range(states) for a in range(actions))
            shape = (states, actions, width)
            successors, terminated = np.zeros(shape), np.zeros(shape)
            probabilities, rewards = np.zeros(shape), np.zeros(shape)
            for s in range(states):
                for a in range(actions):
                    for k, (prob, after, reward, end) in enumerate(table[s][a]):
                        successors[s, a, k] = after
                        probabilities[s, a, k] = prob
                        rewards[s, a, k] = reward
                        terminated[s, a, k] = end
        except (KeyError, TypeError, ValueError):
            raise InputError(
                "table[state][action] must list (probability, next, reward, terminated), "
                "for states and actions numbered from 0."
            ) from None
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

    @property
    def name(self) -> str:
        return self.title

    def _build(self) -> Tables:
        return self.given


def _floats(table: Any) -> jax.Array:
    """In the width that JAX has now: it would else keep that of an array's first conversion."""
    return jnp.asarray(table, jnp.result_type(float))


def _shortest_path_step(kernel: Any, targets: Flags) -> Integers:
    """For each state, the next one on a shortest way to a target; S in a target, -1 without a way.

    A breadth-first search, against the direction of the steps, from a node that leads to all
    targets.
    """
    size = len(targets)
    source = scipy.sparse.csr_matrix(targets[None, :].astype(np.float64))
    graph: Any = scipy.sparse.bmat(
        [[kernel.T, scipy.sparse.csr_matrix((size, 1))], [source, None]], format="csr"
    )
    _, found_from = scipy.sparse.csgraph.breadth_first_order(graph, size)
    onward: Integers = np.maximum(found_from[:size], -1).astype(np.int64)
    return onward
