"""Least-squares temporal differences: LSTD, WIS-LSTD(lambda) (Mahmood, van Hasselt, Sutton 2014).

With phi_t the features of s_t, phi'_t those of the next state, g_t = gamma (0 if the trajectory
terminated at t) and rho_t = pi/b, LSTD solves A theta = b for

    A = sum_t c_t rho_t phi_t (phi_t - g_t phi'_t)',    b = sum_t c_t rho_t r_t phi_t,

where c_t = 1 (`weighting="steps"`) or, as in xie2019, 1 / (number of the trajectory's steps). The
latter looks ahead: a step's weight then depends on how the trajectory went on, and unless all have
one length the solution is not the value even with a table and endless data (tests show it).

WIS-LSTD(lambda) goes through each trajectory with z, u, V = 0 at first and, at step t,

    z <- rho_t (gamma lambda z + phi_t)
    b <- b + r_t z + (rho_t - 1) u,       A <- A + z (phi_t - g_t phi'_t)' + (rho_t - 1) V
    u <- g_t lambda (rho_t u + r_t z),    V <- g_t lambda (rho_t V + z (phi_t - phi'_t)')

which for lambda = 0 is LSTD with c_t = 1. With lambda = gamma = 1 and a table, the value of a state
where trajectories start is their weighted importance sampling estimate (tests check it).

Features that no step ever showed get the weight 0; among the rest a singular system is solved with
least norm. Trajectories are independent, or people if they are named, and the interval of the mean
value at the start is a sandwich: with m the mean features of the start, unit i pulls by
m' A^-1 (b_i - A_i theta). Nothing here is private.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Features, Policy, Trajectories
from privrl.data.coverage import check_table
from privrl.evaluation import intervals
from privrl.evaluation.result import NotPrivate, Result
from privrl.evaluation.steps import (
    Data,
    batches,
    check_discount,
    check_in_memory,
    check_matrix_size,
    importance_ratios,
    steps,
)

# Entries of the matrices V that WIS-LSTD holds at a time.
_ENTRIES = 4_000_000


@dataclass(frozen=True)
class LSTD:
    """The value function whose projected Bellman error is 0 on the data."""

    features: Features
    """Of states; the value is linear in them."""

    gamma: float
    """The discount factor, from 0 to 1."""

    weighting: Literal["steps", "trajectories"] = "steps"
    """Whether each step counts equally, or each trajectory, as in xie2019: see above."""

    level: float = 0.95
    """Nominal level of the interval, two-sided."""

    def __post_init__(self) -> None:
        check_discount(self.gamma)
        intervals.confidence_level(self.level)
        checks.choice("weighting", self.weighting, ("steps", "trajectories"))

    def fit(self, data: Data, policy: Policy | None = None, *, start: Any = None) -> Result:
        """The value function of `policy`; `estimate` is its mean over `start` or first states."""
        A, b = sums(data, policy, self.features, self.gamma, self.weighting)
        theta = solve(*check_sums(A, b))
        interval = estimate = None
        if isinstance(data, Trajectories):
            m, own = start_features(self.features, data, start)
            pull = solve_transpose(A, m)
            at = steps(data, policy, self.features, self.gamma)
            errors = at.ratios * (at.rewards - at.direction @ theta) * (at.phi @ pull)
            shares = at.shares if self.weighting == "trajectories" else 1.0
            influence = data.num_units * np.bincount(at.units, errors * shares, data.num_units)
            estimate = float(m @ theta)
            interval = intervals.influence_interval(estimate, influence + own @ theta, self.level)
        elif start is not None:
            estimate = float(start_features(self.features, None, start)[0] @ theta)
        settings = {"gamma": self.gamma, "weighting": self.weighting, "level": self.level}
        return Result(
            method="LSTD",
            promise=NotPrivate(),
            estimate=estimate,
            interval=interval,
            weights=theta,
            features=self.features,
            settings=settings,
        )


@dataclass(frozen=True)
class WISLSTD:
    """LSTD with traces whose weights are normalised, so that few large ratios do not rule."""

    features: Features
    """Of states; the value is linear in them."""

    gamma: float
    """The discount factor, from 0 to 1."""

    lambda_: float = 0.0
    """How far traces reach: 0 is LSTD, 1 weighted Monte Carlo."""

    level: float = 0.95
    """Nominal level of the interval, two-sided."""

    def __post_init__(self) -> None:
        check_discount(self.gamma)
        intervals.confidence_level(self.level)
        checks.share("lambda_", self.lambda_)

    def fit(self, data: Trajectories, policy: Policy | None = None, *, start: Any = None) -> Result:
        """The value function of `policy`; `estimate` is its mean over `start` or first states."""
        check_in_memory(data)
        d = self.features.dimension
        A, b = np.zeros((d, d)), np.zeros(d)
        for replicas in self._batches(data, policy):
            with np.errstate(all="ignore"):
                part = self._sums(replicas)
            A += part[0]
            b += part[1]
        theta = solve(*check_sums(A, b))
        m, own = start_features(self.features, data, start)
        residuals = np.concatenate(
            [
                self._residuals(one, theta) @ solve_transpose(A, m)
                for one in self._batches(data, policy)
            ]
        )
        influence = data.num_units * np.bincount(data.unit_index, residuals, data.num_units)
        estimate = float(m @ theta)
        return Result(
            method="WIS-LSTD",
            promise=NotPrivate(),
            estimate=estimate,
            interval=intervals.influence_interval(estimate, influence + own @ theta, self.level),
            weights=theta,
            features=self.features,
            settings={"gamma": self.gamma, "lambda": self.lambda_, "level": self.level},
        )

    def _batches(self, data: Trajectories, policy: Policy | None) -> Iterator["_StepsByTime"]:
        """Trajectories side by side, as many as memory may hold at a time."""
        size = max(1, _ENTRIES // self.features.dimension**2)
        for first in range(0, data.num_trajectories, size):
            yield _StepsByTime.of(data[first : first + size], policy, self.features, self.gamma)

    def _sums(self, replicas: "_StepsByTime") -> tuple[Floats, Floats]:
        n, d = len(replicas.lengths), self.features.dimension
        z, u, V = np.zeros((n, d)), np.zeros((n, d)), np.zeros((n, d, d))
        A, b = np.zeros((d, d)), np.zeros(d)
        for here, phi, after, g, rho, r in replicas:
            zt = rho[:, None] * (self.gamma * self.lambda_ * z[here] + phi)
            ut, Vt = u[here], V[here]
            b += r @ zt + (rho - 1.0) @ ut
            A += zt.T @ (phi - g[:, None] * after) + np.tensordot(rho - 1.0, Vt, 1)
            fade = g * self.lambda_
            z[here] = zt
            u[here] = fade[:, None] * (rho[:, None] * ut + r[:, None] * zt)
            moved = zt[:, :, None] * (phi - after)[:, None, :]
            V[here] = fade[:, None, None] * (rho[:, None, None] * Vt + moved)
        return A, b

    def _residuals(self, replicas: "_StepsByTime", theta: Floats) -> Floats:
        """b_i - A_i theta for each trajectory: the same recursion, contracted with theta."""
        n, d = len(replicas.lengths), self.features.dimension
        z, h, out = np.zeros((n, d)), np.zeros((n, d)), np.zeros((n, d))
        for here, phi, after, g, rho, r in replicas:
            zt = rho[:, None] * (self.gamma * self.lambda_ * z[here] + phi)
            error = r - (phi - g[:, None] * after) @ theta
            out[here] += error[:, None] * zt + (rho - 1.0)[:, None] * h[here]
            moved = (r - (phi - after) @ theta)[:, None] * zt
            h[here] = (g * self.lambda_)[:, None] * (rho[:, None] * h[here] + moved)
            z[here] = zt
        return out


@dataclass(frozen=True)
class _StepsByTime:
    """The usable steps of some trajectories, to be gone through in the order of time."""

    phi: Floats
    after: Floats
    g: Floats
    ratios: Floats
    rewards: Floats
    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(
        cls, data: Trajectories, policy: Policy | None, features: Features, gamma: float
    ) -> "_StepsByTime":
        check_table(features, data)
        moves = data.transitions()
        lengths = np.bincount(moves.trajectories, minlength=data.num_trajectories)
        with np.errstate(over="ignore"):
            ratios = importance_ratios(data, policy)[moves.rows]
        return cls(
            np.asarray(features(moves.states), dtype=np.float64),
            np.asarray(features(moves.next_states), dtype=np.float64),
            gamma * np.asarray(moves.bootstraps, dtype=np.float64),
            ratios,
            np.asarray(moves.rewards, dtype=np.float64),
            np.concatenate([[0], np.cumsum(lengths)[:-1]]),
            lengths,
        )

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for t in range(int(self.lengths.max(initial=0))):
            here = np.flatnonzero(self.lengths > t)
            row = self.begins[here] + t
            yield (
                here,
                self.phi[row],
                self.after[row],
                self.g[row],
                self.ratios[row],
                self.rewards[row],
            )


# --- shared --------------------------------------------------------------------------------------


def sums(
    data: Data, policy: Policy | None, features: Features, gamma: float, weighting: str
) -> tuple[Floats, Floats]:
    """A and b, in one pass."""
    check_matrix_size("LSTD", features.dimension)
    A, b = np.zeros((features.dimension, features.dimension)), np.zeros(features.dimension)
    for batch in batches(data):
        with np.errstate(all="ignore"):
            at = steps(batch, policy, features, gamma)
            shares = at.shares if weighting == "trajectories" else 1.0
            weighed = at.phi * (shares * at.ratios)[:, None]
            A += weighed.T @ at.direction
            b += weighed.T @ at.rewards
    return A, b


def check_sums(A: Floats, b: Floats) -> tuple[Floats, Floats]:
    """A and b, if they say anything."""
    if not (np.all(np.isfinite(A)) and np.all(np.isfinite(b))):
        raise InputError(
            "The sums over the data are too large for numbers: scale the rewards, and look for "
            "behaviour probabilities next to 0."
        )
    if not np.any(A):
        raise InputError(
            "No step of the data counts: the next states are not known, the policies have nothing "
            "in common, or the features are 0."
        )
    return A, b


def solve(A: Floats, b: Floats) -> Floats:
    """theta with A theta = b, and 0 for features that never occurred."""
    seen = np.any(A != 0.0, axis=1)
    theta = np.zeros(len(b))
    inside = A[np.ix_(seen, seen)]
    theta[seen] = np.linalg.lstsq(inside, b[seen], rcond=None)[0]
    return theta


def solve_transpose(A: Floats, m: Floats) -> Floats:
    """x with m' theta = x' b for the theta of `solve(A, b)`."""
    seen = np.any(A != 0.0, axis=1)
    x = np.zeros(len(m))
    x[seen] = np.linalg.lstsq(A[np.ix_(seen, seen)].T, m[seen], rcond=None)[0]
    return x


def start_features(
    features: Features, data: Trajectories | None, start: Any
) -> tuple[Floats, Floats]:
    """Mean features where it starts, and how far each unit's own lie from them (0 if given)."""
    if start is not None:
        given = np.atleast_1d(np.asarray(start))
        if given.size == 0:
            raise InputError("must hold at least one state.", field="start")
        units = 1 if data is None else data.num_units
        m = np.asarray(features(given), dtype=np.float64).mean(axis=0)
        return m, np.zeros((units, len(m)))
    assert data is not None
    first = np.asarray(features(data.states[data.offsets[:-1]]), dtype=np.float64)
    own = intervals.mean_by_unit(first, np.asarray(data.unit_index), data.num_units)
    m = own.mean(axis=0)
    return m, own - m
