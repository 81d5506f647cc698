"""Private least-squares temporal differences: one release of clipped sufficient statistics.

Features are changed by a public linear map, as in `private_gtd`. With A_i, b_i the moments of unit
i (`bellman_error.unit_moments`) and a public weight a, unit i contributes the d^2 + d numbers

    clip((a A_i, b_i), c),

scaled jointly to Frobenius norm at most c. Their sum is released once, with N(0, (z c)^2) on each
entry, divided by the number of units n, and the first block by a. Of what comes out, A~ and b~,

    theta  =  (A~' A~ + ridge d s^2 I)^-1 A~' b~,        s = z c / (a n),

with s the noise on an entry of A~: the noise alone gives A~' A~ about d s^2 I, and directions that
do not rise above it are shrunk.

Unit: a trajectory, or a person with all of theirs, averaged before clipping. Relation: replace-one;
n is public. Sensitivity: the sum moves by at most 2 c. Theorem: one event Gaussian(z, 1), in units
of c; the rest is post-processing. Released: A~ and b~, and whatever is computed from them. One
pass, so data may stream. Arithmetic: 64-bit floating point, so the certificate lists "idealised
real arithmetic".

One pass, and no iterations to choose; but noise on d^2 entries. Where d is more than a few and n
not huge, `PrivateGTD` is much better.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.linalg import blas

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Policy, Trajectories
from privrl.data.assumptions import data_assumptions
from privrl.evaluation.assumptions import CLIPPED, PUBLIC_SETTINGS
from privrl.evaluation.bellman_error import UnitMoments, is_sparse, pieces, value_at
from privrl.evaluation.private_linear import OffPolicyLinear
from privrl.evaluation.result import Result
from privrl.evaluation.steps import Data, refuse_unpaid
from privrl.evaluation.sums import (
    SMALLEST,
    Sums,
    clip_scales,
    gather_sums,
    joint_clip_factors,
    row_squares,
    sum_rows,
)
from privrl.evaluation.table import ROWS, Table, is_table
from privrl.privacy.ledger import warn_if_large
from privrl.privacy.mechanisms import GaussianMechanism
from privrl.privacy.promise import Relation
from privrl.privacy.session import SECRET_SESSION, OpenSession, PrivacySession


@dataclass(frozen=True)
class PrivateLSTD(OffPolicyLinear):
    """A value function, linear in `features`, from one noisy linear system; see the module."""

    clip: float | None = None
    """c, the largest norm of a contribution; by default 0.3 times the largest reward."""

    matrix_weight: float | None = None
    """a, how much A_i weighs beside b_i in that norm; by default 0.1 times the largest reward."""

    ridge: float = 1.0
    """How strongly the solution is shrunk, in units of what the noise amounts to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("clip", "matrix_weight"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))
        checks.non_negative("ridge", self.ridge)
        if min(self.bound, self.weight) < SMALLEST:
            raise InputError("Rewards are too small to compute with: state them in other units.")

    @property
    def bound(self) -> float:
        """c."""
        return self.clip or 0.3 * max(abs(end) for end in self.reward_range)

    @property
    def weight(self) -> float:
        """a."""
        return self.matrix_weight or 0.1 * max(abs(end) for end in self.reward_range)

    @property
    def mechanism(self) -> GaussianMechanism:
        """The noise that the budget allows, in units of c."""
        return GaussianMechanism.from_budget(1.0, self.budget)

    def gather(
        self, batch: Trajectories, policy: Policy | None = None, *, public: bool = False
    ) -> Sums:
        """What the units of `batch` contribute, b in the last of d + 1 rows; see `sums`."""
        self.is_off_policy(batch, policy)
        if not is_table(self.features, self.change, batch):
            units = self.unit_moments(batch, policy, public=public)
            factors = clip_factors(units, self.weight, self.bound)
            total = weighted_sum(units, self.weight, factors)
            clipped = float(np.sum(factors < 1.0))
            return Sums(
                batch.unit, units.count, total, None, clipped, data_assumptions(batch, public)
            )
        if not public:
            refuse_unpaid(batch)
        return replace(
            self._gather_table(batch, policy), assumptions=data_assumptions(batch, public)
        )

    def _gather_table(self, batch: Trajectories, policy: Policy | None) -> Sums:
        """The same for one-hot features, without a matrix for each unit."""
        d, count, clipped = self.features.dimension, 0, 0
        on, b = np.zeros(d), np.zeros(d)
        # The last of d + 1 rows is b, which no cell of A is in.
        total = np.zeros((d + 1) * d)
        for table in self._tables(batch, policy):
            with np.errstate(all="ignore"):
                cells, diagonal, rewards = blocks = table.system(self.weight)
                factors = joint_clip_factors(blocks, self.bound)
                np.add.at(total, *cells.scale_rows(factors))
                on, b = on + sum_rows(diagonal, factors), b + sum_rows(rewards, factors)
            count, clipped = count + factors.size, clipped + int(np.sum(factors < 1.0))
        total[: d * d : d + 1] += on
        total[d * d :] += b
        return Sums(batch.unit, count, total.reshape(d + 1, d), clipped=float(clipped))

    def _tables(self, batch: Trajectories, policy: Policy | None) -> Iterator[Table]:
        given = self.gamma, self.weight_cap, self.reward_range
        for piece in pieces(batch, ROWS):
            yield from Table.of(piece, policy, self.change, *given).parts()

    def release(
        self, sums: Sums, *, start: Any = None, session: PrivacySession = SECRET_SESSION
    ) -> Result:
        """The value function, out of the sums over all units: paid and drawn once."""
        warn_if_large(self.budget.delta, sums.count)
        opened = session.open(sums.unit, Relation.REPLACE_ONE)
        opened.pay(self.mechanism.event, delta=self.budget.delta)
        return self.release_paid(sums, opened, start)

    def release_paid(self, sums: Sums, opened: OpenSession, start: Any = None) -> Result:
        """The value function, where `opened` has paid for it."""
        d, clip, a, count = self.features.dimension, self.bound, self.weight, sums.count
        mechanism = self.mechanism
        opened.check_paid(mechanism.event)
        released, _ = mechanism.release(sums.total / clip, opened.source)
        noised = np.asarray(released * (clip / count), dtype=np.float64)
        theta = solve_ridge(
            noised[:d] / a, noised[d], self.ridge * d * (mechanism.std * clip / (a * count)) ** 2
        )
        weights = self.change_back(theta)
        return Result(
            method="PrivateLSTD",
            promise=opened.certify(
                self.budget.delta, assumptions=(CLIPPED, PUBLIC_SETTINGS, *sums.assumptions)
            ),
            estimate=value_at(self.features, weights, start),
            weights=weights,
            features=self.features,
            settings={
                **self.settings(count),
                "clip": clip,
                "matrix_weight": a,
                "ridge": self.ridge,
                "noise": mechanism.std,
            },
        )

    def fit(
        self,
        data: Data,
        policy: Policy | None = None,
        *,
        start: Any = None,
        session: PrivacySession = SECRET_SESSION,
    ) -> Result:
        """The value function of `policy`, or of the policy that collected the data."""
        sums = gather_sums(self, data, policy, public=session.public)
        result = self.release(sums, start=start, session=session)
        if not session.public:
            return result
        clipped = sums.clipped / sums.count
        return self.with_diagnostics(result, data, policy, start, clipped=clipped)


def clip_factors(units: UnitMoments, a: float, bound: float) -> Floats:
    """By how much each unit's (a A_i, b_i) is scaled to norm at most `bound`; 0 if not finite."""
    d = units.dimension
    with np.errstate(all="ignore"):
        rows = row_squares(units.A).reshape(units.b.shape)
        return clip_scales(a**2 * rows.sum(axis=1) + row_squares(units.b), bound, d * d + d)


def weighted_sum(units: UnitMoments, a: float, factors: Floats) -> Floats:
    """The sum of factor_i (a A_i, b_i), with b in the last row; a factor of 0 leaves a unit out."""
    n, d = units.b.shape
    used = factors > 0.0
    # d rows, of which row f picks row f of every unit's matrix, times the unit's factor.
    columns = (np.flatnonzero(used)[:, None] * d + np.arange(d)).ravel()
    entries = np.repeat(factors[used], d), (np.tile(np.arange(d), int(used.sum())), columns)
    picked = sparse.csr_matrix(entries, shape=(d, n * d)) @ units.A
    A = picked.toarray() if is_sparse(picked) else np.asarray(picked)
    b = factors[used] @ units.b[used]
    return np.concatenate([a * A, b[None, :]])


def solve_ridge(A: Floats, b: Floats, ridge: float) -> Floats:
    """(A' A + ridge I)^-1 A' b; without a ridge to speak of, the solution of least norm."""
    if ridge > 1e-10 * float(np.sum(A * A)):
        # Several times as fast as singular values. The condition number is at most 10^10, so each
        # correction, whose error is computed from A and not from A' A, gains several digits.
        # All of it by SciPy: NumPy has threads of its own, and the two wait for one another.
        # Not by Cholesky factors, whose threads wait too often where others use the machine.
        columns, empty = np.asarray(A, order="C").T, np.zeros(A.shape, order="F")
        half = blas.dsyrk(1.0, columns, c=empty, lower=True, overwrite_c=True)
        gram = half + half.T
        gram[np.diag_indices(b.size)] = np.diagonal(half) + ridge
        factor = linalg.lu_factor(gram, overwrite_a=True)
        theta = np.zeros_like(b)
        for _ in range(4):
            error = b - blas.dgemv(1.0, columns, theta, trans=True)
            theta += linalg.lu_solve(factor, blas.dgemv(1.0, columns, error) - ridge * theta)
        return theta
    if not np.all(np.isfinite(A)):
        return np.full(b.shape, np.nan)
    left, values, right = np.linalg.svd(A)
    kept = values > 1e-12 * max(float(values[0]), 1e-300)
    filtered = np.zeros_like(values)
    filtered[kept] = values[kept] / (values[kept] ** 2 + ridge)
    return np.asarray(right.T @ (filtered * (left.T @ b)))
