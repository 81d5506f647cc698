"""Fitted Q evaluation (Le, Voloshin, Yue 2019) with a table or linear features.

Action values Q(s, a) = phi(s)' W_a, that is psi(s, a)' W with psi(s, a) = phi(s) in the block of a.
With Psi_pi(s) = sum_a pi(a|s) psi(s, a), one fitted iteration regresses

    r_t + g_t Psi_pi(s_{t+1})' W_k      on      psi(s_t, a_t)

by least squares, from W_0 = 0: after K iterations W_K is the value of K steps. The fixed point,
which is what is found unless `iterations` are given, solves

    sum_t psi_t (psi_t - g_t Psi_pi(s_{t+1}))' W = sum_t psi_t r_t.

With one-hot features this is exactly the value of pi in the empirical model (counted transitions,
mean rewards; pairs never seen are worth 0). No importance ratios: actions are conditioned on. What
the features cannot express is bias that no interval shows. Nothing here is private.

The interval of the fixed point's mean value at the start is the sandwich of `lstd`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Features, OneHot, Policy, Trajectories, Transitions
from privrl.data.coverage import check_actions, check_covers, check_table
from privrl.data.sources import private_error
from privrl.evaluation import intervals
from privrl.evaluation.lstd import check_sums, solve, solve_transpose, start_features
from privrl.evaluation.result import NotPrivate, PolicyFeatures, Result
from privrl.evaluation.steps import (
    check_discount,
    check_in_memory,
    check_matrix_size,
    feature_rows,
)


@dataclass(frozen=True, eq=False)
class LinearQ:
    """Action values linear in features of the state; `weights` is (d, A)."""

    features: Features
    weights: Floats

    def __call__(self, states: Any) -> Floats:
        """(n, A) action values."""
        return np.asarray(self.features(states), dtype=np.float64) @ self.weights


@dataclass(frozen=True)
class FQE:
    """Action values by regression on the values of next states."""

    gamma: float
    """The discount factor, from 0 to 1."""

    features: Features | None = None
    """Of states; without any, a table of the data's declared `num_states`."""

    iterations: int | None = None
    """How many regressions; without a number the fixed point, by one linear solve."""

    level: float = 0.95
    """Nominal level of the interval, two-sided."""

    def __post_init__(self) -> None:
        check_discount(self.gamma)
        intervals.confidence_level(self.level)
        if self.iterations is not None:
            checks.count("iterations", self.iterations)

    def action_values(self, data: Trajectories, policy: Policy) -> LinearQ:
        """The model of `policy`'s action values, which `DR` and `WDR` take as `q`."""
        return self._fit_q(data, policy)[0]

    def fit(self, data: Trajectories, policy: Policy | None = None, *, start: Any = None) -> Result:
        """The value of `policy`; `estimate` is its mean over `start` or the first states."""
        if policy is None:
            raise InputError("FQE needs the policy: it asks what it does in the next state.")
        q, moves, A = self._fit_q(data, policy)
        values = PolicyFeatures(q.features, policy)
        m, own = start_features(values, data, start)
        theta = q.weights.T.ravel()
        estimate, interval = float(m @ theta), None
        if self.iterations is None:
            at, following = self._design(q.features, moves, policy)
            errors = np.asarray(moves.rewards) - (at - following) @ theta
            units = np.asarray(data.unit_index)[moves.trajectories]
            pulls = np.bincount(units, (at @ solve_transpose(A, m)) * errors, data.num_units)
            interval = intervals.influence_interval(
                estimate, data.num_units * pulls + own @ theta, self.level
            )
        return Result(
            method="FQE",
            promise=NotPrivate(),
            estimate=estimate,
            interval=interval,
            weights=theta,
            features=values,
            settings={"gamma": self.gamma, "iterations": self.iterations, "level": self.level},
        )

    def _fit_q(self, data: Trajectories, policy: Policy) -> tuple[LinearQ, Transitions, Floats]:
        check_in_memory(data)
        check_actions(policy, data)
        features = self.features
        if features is None:
            if data.num_states is None:
                raise InputError("FQE needs features, or data that says its num_states.")
            features = OneHot(data.num_states)
        check_table(features, data)
        check_covers(policy, data)
        check_matrix_size("FQE", features.dimension * policy.num_actions)
        moves = data.transitions()
        if policy.num_states is not None and np.any(moves.next_states >= policy.num_states):
            raise private_error(
                f"next_state: the policy's table has only {policy.num_states} states."
            )
        if len(moves) == 0:
            raise InputError("No trajectory of the data has a step whose next state is known.")
        at, following = self._design(features, moves, policy)
        rewards = np.asarray(moves.rewards, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            A, b = check_sums(at.T @ (at - following), at.T @ rewards)
        if self.iterations is None:
            theta = solve(A, b)
        else:
            gram, theta = at.T @ at, np.zeros(at.shape[1])
            for _ in range(self.iterations):
                theta = solve(gram, at.T @ (rewards + following @ theta))
        weights = theta.reshape(policy.num_actions, features.dimension).T
        return LinearQ(features, weights), moves, A

    def _design(
        self, features: Features, moves: Transitions, policy: Policy
    ) -> tuple[Floats, Floats]:
        """psi(s_t, a_t), and g_t Psi_pi(s_{t+1}), a row for each step."""
        phi = feature_rows(features, moves.states)
        if np.any(np.asarray(moves.actions) >= policy.num_actions):
            raise InputError(f"The policy has only {policy.num_actions} actions.")
        taken = np.asarray(moves.actions)[:, None] == np.arange(policy.num_actions)
        at = (taken[:, :, None] * phi[:, None, :]).reshape(len(phi), -1)
        following = PolicyFeatures(features, policy)(moves.next_states)
        return at, following * (self.gamma * np.asarray(moves.bootstraps))[:, None]
