"""The mean squared projected Bellman error, and the moments linear estimators are made of.

With phi_t the features of s_t, phi'_t those of the next state, g_t = gamma (0 if the trajectory
terminated at t), rho_t = pi(a_t|s_t) / b(a_t|s_t), and tau the number of a trajectory's steps,

    A = E[1/tau sum_t rho_t phi_t (phi_t - g_t phi'_t)'],    b = E[1/tau sum_t rho_t r_t phi_t],
    C = E[1/tau sum_t phi_t phi_t'],

    MSPBE(theta) = (b - A theta)' C^-1 (b - A theta),

each trajectory averaged over its steps first, as in xie2019. The inverse is a pseudo-inverse:
directions in which C has less than `RELATIVE_RANK` of its largest eigenvalue are left out; or with
a ridge, C + ridge I is inverted.

`moments` takes them from data, `exact_moments` from a model, and `unit_moments` keeps them apart,
one A_i, b_i, C_i for each unit, which is what private estimators clip.

Nothing here is private: the MSPBE of private data is private data. Estimators show it only if the
data was declared public.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Features, OneHot, Policy, Trajectories
from privrl.data.coverage import check_table
from privrl.evaluation.steps import (
    Data,
    batches,
    check_discount,
    check_range,
    feature_rows,
    logged_probs,
    refuse_unpaid,
    steps,
)
from privrl.privacy.promise import Unit

if TYPE_CHECKING:
    from privrl.envs.tabular import TabularMDP


# Directions in which the Gram matrix is smaller than this, relatively, carry no error.
RELATIVE_RANK = 1e-10
# Entries of a piece's features that are held in memory at a time.
_ENTRIES = 8_000_000
# Numbers that are worked on at a time where units are gone through again and again.
_CACHED = 1 << 17
# Above this share of entries that are not 0, matrices are kept dense.
_SPARSE = 0.25


@dataclass(frozen=True, eq=False)
class Moments:
    """A, b and C, averaged over `trajectories`; 0 of them if they come from a model."""

    A: Floats
    b: Floats
    C: Floats
    trajectories: int = 0


def mspbe(weights: ArrayLike, moments: Moments, ridge: float = 0.0) -> float:
    """(b - A theta)' (C + ridge I)^+ (b - A theta), for theta = `weights`."""
    theta = np.asarray(weights, dtype=np.float64)
    if theta.shape != moments.b.shape:
        raise InputError(
            f"must have {moments.b.size} entries, one for each feature, not shape {theta.shape}.",
            field="weights",
        )
    error = moments.b - moments.A @ theta
    values, vectors = np.linalg.eigh(moments.C)
    values = values + checks.non_negative("ridge", ridge)
    kept = values > RELATIVE_RANK * max(float(values[-1]), 0.0)
    along = vectors.T @ error
    return float(np.sum(along[kept] ** 2 / values[kept]))


def moments(data: Data, policy: Policy | None, features: Features, gamma: float) -> Moments:
    """The moments of `data`, averaged over the trajectories that have a usable step."""
    d = features.dimension
    A, b, C, count = np.zeros((d, d)), np.zeros(d), np.zeros((d, d)), 0
    for piece in pieces(data, rows_in_memory(features)):
        at = steps(piece, policy, features, gamma)
        weighed = at.phi * (at.shares * at.ratios)[:, None]
        A += weighed.T @ at.direction
        b += weighed.T @ at.rewards
        C += (at.phi * at.shares[:, None]).T @ at.phi
        count += np.unique(at.trajectories).size
    if count == 0:
        raise InputError("No trajectory of the data has a step whose next state is known.")
    return Moments(A / count, b / count, C / count, count)


def exact_moments(
    env: "TabularMDP",
    policy: ArrayLike,
    features: Features,
    gamma: float,
    *,
    behavior: ArrayLike | None = None,
    max_steps: int | None = None,
) -> Moments:
    """The moments of `policy` on trajectories that `behavior` (or `policy`) would collect.

    Both are tables (S, A). Exact for episodes cut off after `max_steps` (or the environment's own
    limit), whose last state is known. With e_t(s) the mean of 1/tau given that s is reached at time
    t, e_H = 1/H for the limit H and

        e_t(s) = P_b(ends | s) / (t + 1) + sum_s' P_b(s' | s) e_{t+1}(s'),

    a transition from s to s' at time t counts with e_{t+1}(s'), and one that ends with 1 / (t + 1).
    """
    gamma = check_discount(gamma)
    limit = max_steps if max_steps is not None else getattr(env, "step_limit", None)
    if limit is None:
        raise InputError("The environment sets no limit to an episode: pass max_steps.")
    horizon = checks.count("max_steps", limit)
    tables, n = env.tables, env.num_states
    target = np.asarray(policy, dtype=np.float64)
    logged = target if behavior is None else np.asarray(behavior, dtype=np.float64)
    if np.any((target > 0.0) & (logged == 0.0)):
        raise InputError("behavior never takes an action that policy takes.")
    source = np.broadcast_to(np.arange(n)[:, None, None], tables.probabilities.shape)

    def split(table: Floats, value: Floats | float) -> tuple[Floats, Floats]:
        """Sums of `value` over transitions: (S, S) where they go on, (S,) where they end."""
        weights = table[:, :, None] * tables.probabilities * value
        on, end = np.zeros((n, n)), np.zeros(n)
        np.add.at(on, (source, tables.successors), weights * ~tables.terminated)
        np.add.at(end, source, weights * tables.terminated)
        return on, end

    on, end = split(logged, 1.0)
    inverse = np.empty((horizon + 1, n))
    inverse[horizon] = 1.0 / horizon
    for t in reversed(range(horizon)):
        inverse[t] = end / (t + 1) + on @ inverse[t + 1]
    here, goes, ends = np.asarray(tables.start), np.zeros((n, n)), np.zeros(n)
    for t in range(horizon):
        goes += here[:, None] * inverse[t + 1][None, :]
        ends += here / (t + 1)
        here = here @ on
    phi = np.asarray(features(np.arange(n)), dtype=np.float64)
    judged_on, judged_end = split(target, 1.0)
    paid_on, paid_end = split(target, tables.rewards)
    onward = goes * judged_on
    visits = onward.sum(axis=1) + ends * judged_end
    seen = (goes * on).sum(axis=1) + ends * end
    pay = (goes * paid_on).sum(axis=1) + ends * paid_end
    A = phi.T @ (visits[:, None] * phi - gamma * onward @ phi)
    return Moments(A, phi.T @ pay, phi.T @ (seen[:, None] * phi))


# --- one by one ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class UnitMoments:
    """A_i, b_i and, where asked for, A_i' and C_i of each unit.

    Matrices are stacked, d rows for each unit: sparse if the features are, else dense. A person's
    moments are the mean over their trajectories, so that a person counts once, however many
    trajectories they have. A unit without a usable step has zeros.
    """

    A: Any
    b: Floats
    transposed: Any
    C: Any
    unit: Unit

    @property
    def count(self) -> int:
        """How many units there are."""
        return int(self.b.shape[0])

    @property
    def dimension(self) -> int:
        """How many features there are."""
        return int(self.b.shape[1])

    def parts(self) -> "list[UnitMoments]":
        """The same units in parts whose products fit into the processor's cache."""
        d = self.dimension
        size = max(1, _CACHED // d)

        def slice_units(stacked: Any, begin: int) -> Any:
            return None if stacked is None else stacked[begin * d : (begin + size) * d]

        return [
            UnitMoments(
                slice_units(self.A, i),
                self.b[i : i + size],
                slice_units(self.transposed, i),
                slice_units(self.C, i),
                self.unit,
            )
            for i in range(0, self.count, size)
        ]

    def times(self, matrices: Any, vector: Floats) -> Floats:
        """The product of each unit's matrix with `vector`, one row each."""
        return np.asarray(matrices @ vector).reshape(self.b.shape)


def unit_moments(
    data: Data,
    policy: Policy | None,
    features: Features,
    gamma: float,
    *,
    cap: float | None = None,
    reward_range: tuple[float, float] | None = None,
    change: Floats | None = None,
    dual: bool = False,
    certified: bool = True,
) -> UnitMoments:
    """The moments of each unit; a function of that unit's data alone, and total.

    Ratios are at most `cap`, rewards are clipped into `reward_range` (NaN to its middle), and a
    step whose ratio or features are not finite has no weight. `change` is a public linear map of
    the features, a matrix or the diagonal of one. `dual` asks for A_i' and C_i too. `certified`
    refuses behaviour probabilities that nobody paid for.
    """
    d = features.dimension
    parts: dict[str, list[Any]] = {"A": [], "b": [], "transposed": [], "C": []}
    unit, dense = None, None
    for piece in pieces(data, rows_in_memory(features)):
        if certified:
            refuse_unpaid(piece)
        unit = piece.unit
        with np.errstate(all="ignore"):
            at = unit_steps(piece, policy, features, gamma, cap, reward_range, change)
            if dense is None:
                dense = (
                    _count_nonzero(at.phi) + _count_nonzero(at.direction) > _SPARSE * 2 * at.size
                )
            phi, direction = (_to_storage(x, dense) for x in (at.phi, at.direction))
            left = at.scatter_by_unit(phi, at.ratios)
            parts["A"].append(left @ direction)
            parts["b"].append((left @ at.rewards).reshape(at.num_units, d))
            if dual:
                parts["transposed"].append(at.scatter_by_unit(direction, at.ratios) @ phi)
                parts["C"].append(at.scatter_by_unit(phi, 1.0) @ phi)
    if unit is None:
        raise InputError("There is no trajectory in the data.")

    def stack(name: str) -> Any:
        found = parts[name]
        if not found:
            return None
        if name == "b" or dense:
            return np.concatenate(found)
        return sparse.vstack(found, format="csr")

    return UnitMoments(unit=unit, **{name: stack(name) for name in parts})


@dataclass(frozen=True)
class UnitTransitions:
    """What every row of some trajectories brings to the moments of its unit.

    A row without a next state has share 0; one whose ratio is not finite has ratio 0.
    """

    states: Any
    following: Any
    discounts: Floats
    """g_t: gamma, or 0 where the trajectory terminated."""

    rewards: Floats
    ratios: Floats | float
    """1 for all, on-policy."""

    shares: Floats
    """1 / (steps of the trajectory x trajectories of the unit)."""

    units: NDArray[np.int64]
    num_units: int


def unit_transitions(
    data: Trajectories,
    policy: Policy | None,
    gamma: float,
    cap: float | None = None,
    reward_range: tuple[float, float] | None = None,
) -> UnitTransitions:
    """Total: rewards are clipped into `reward_range` (NaN to its middle), ratios are at most `cap`,
    and one that is not finite is 0. What a row gives depends on its own unit's data alone.
    """
    last, ended = data.offsets[1:] - 1, np.asarray(data.terminated)
    following = np.empty_like(data.states)
    following[:-1] = data.states[1:]
    following[last] = data.states[last] if data.final_states is None else data.final_states
    discounts = np.full(data.num_steps, check_discount(gamma))
    discounts[last[ended]] = 0.0
    lengths, (index, count) = data.lengths, owners(data)
    usable = lengths if data.final_states is not None else lengths - ~ended
    owned = np.bincount(index, minlength=count)
    shares = np.repeat(1.0 / (np.maximum(usable, 1) * owned[index]), lengths)
    if data.final_states is None:
        shares[last[~ended]] = 0.0
    rewards = np.asarray(data.rewards, dtype=np.float64)
    return UnitTransitions(
        states=data.states,
        following=following,
        discounts=discounts,
        rewards=rewards if reward_range is None else clipped_rewards(rewards, reward_range),
        ratios=_ratios(data, policy, cap),
        shares=shares,
        units=np.repeat(index, lengths),
        num_units=count,
    )


def owners(data: Trajectories) -> tuple[NDArray[np.int64], int]:
    """Of each trajectory the position of its unit, and how many units there are.

    The same as `unit_index` and `num_units`. People that come in the order of their numbers, as
    from most files, need not be looked up.
    """
    users = data.users
    if users is None or users.dtype.kind not in "iu" or (users[1:] < users[:-1]).any():
        return np.asarray(data.unit_index), data.num_units
    index = np.zeros(users.size, dtype=np.int64)
    np.cumsum(users[1:] != users[:-1], out=index[1:])
    return index, int(index[-1]) + 1


def _ratios(data: Trajectories, policy: Policy | None, cap: float | None) -> Floats | float:
    """pi(a|s) / b(a|s), at most `cap`; 0 where either is no probability."""
    found = logged_probs(data, policy)
    if found is None:
        return 1.0
    target, behavior = found
    with np.errstate(all="ignore"):
        ratios = target / behavior
        if cap is not None:
            ratios = np.minimum(ratios, cap)
    fine = np.isfinite(ratios)
    return ratios if fine.all() else np.where(fine, ratios, 0.0)


@dataclass(frozen=True)
class UnitSteps:
    """The usable steps of a piece; their features are dense or sparse."""

    phi: Any
    direction: Any
    rewards: Floats
    ratios: Floats
    shares: Floats
    units: NDArray[np.int64]
    num_units: int

    @property
    def size(self) -> int:
        return int(self.phi.shape[0] * self.phi.shape[1])

    def scatter_by_unit(self, rows: Any, weights: Floats | float) -> Any:
        """(units x d, steps): share_t w_t times row t, in the rows of the unit it belongs to."""
        found = sparse.coo_matrix(rows)
        entries = found.data * (self.shares * weights)[found.row]
        place = self.units[found.row] * rows.shape[1] + found.col
        shape = (self.num_units * rows.shape[1], rows.shape[0])
        return sparse.csr_matrix((entries, (place, found.row)), shape=shape)

    def residual(self, theta: Floats) -> tuple[Floats]:
        """b_i - A_i theta of each unit, without its matrices."""
        return (self._sum_by_unit(self.phi, self.ratios * self._errors(theta)),)

    def primal_dual(self, theta: Floats, dual: Floats) -> tuple[Floats, Floats]:
        """A_i' w and b_i - A_i theta - C_i w of each unit, for w = `dual`."""
        along = np.asarray(self.phi @ dual)
        return (
            self._sum_by_unit(self.direction, self.ratios * along),
            self._sum_by_unit(self.phi, self.ratios * self._errors(theta) - along),
        )

    def _errors(self, theta: Floats) -> Floats:
        """r_t - direction_t' theta."""
        return np.asarray(self.rewards - self.direction @ theta)

    def _sum_by_unit(self, rows: Floats, weights: Floats) -> Floats:
        """(units, d): the sum of share_t w_t times row t over the steps of each unit."""
        entries = self.shares * weights, (self.units, np.arange(self.units.size))
        owners = sparse.csr_matrix(entries, shape=(self.num_units, self.units.size))
        return np.asarray(owners @ rows)


def unit_steps(
    piece: Trajectories,
    policy: Policy | None,
    features: Features,
    gamma: float,
    cap: float | None,
    reward_range: tuple[float, float] | None,
    change: Floats | None,
) -> UnitSteps:
    """What `unit_transitions` says, with features; a step whose features are not finite has
    none."""
    check_table(features, piece)
    moves = unit_transitions(piece, policy, gamma, cap, reward_range)
    used = np.flatnonzero(moves.shares)
    phi = _features(features, moves.states[used])
    following = _features(features, moves.following[used])
    g = moves.discounts[used]
    if is_sparse(phi):
        direction = phi - sparse.diags(g) @ following
    else:
        direction = phi - g[:, None] * following
    if change is not None:
        by = sparse.diags(change) if change.ndim == 1 else change.T
        phi, direction = phi @ by, direction @ by
    ratios = np.broadcast_to(moves.ratios, moves.shares.shape)[used]
    if not is_sparse(phi):
        fine = np.isfinite(phi).all(axis=1) & np.isfinite(direction).all(axis=1)
        if not fine.all():
            phi, direction = (np.where(fine[:, None], x, 0.0) for x in (phi, direction))
            ratios = np.where(fine, ratios, 0.0)
    return UnitSteps(
        phi=phi,
        direction=direction,
        rewards=moves.rewards[used],
        ratios=ratios,
        shares=moves.shares[used],
        units=moves.units[used],
        num_units=piece.num_units,
    )


def _features(features: Features, states: Any) -> Any:
    """(n, d) features, sparse where they are one-hot: a table is mostly zeros."""
    if isinstance(features, OneHot) and np.ndim(states) == 1:
        known = np.flatnonzero((states >= 0) & (states < features.num_states))
        shape = (len(states), features.num_states)
        return sparse.csr_matrix((np.ones(known.size), (known, states[known])), shape=shape)
    return feature_rows(features, states)


def is_sparse(matrix: Any) -> bool:
    return bool(sparse.issparse(matrix))


def _count_nonzero(matrix: Any) -> int:
    return int(matrix.nnz if is_sparse(matrix) else np.count_nonzero(matrix))


def _to_storage(matrix: Any, dense: bool) -> Any:
    if not dense:
        return sparse.csr_matrix(matrix)
    return matrix.toarray() if is_sparse(matrix) else matrix


def clipped_rewards(rewards: Floats, reward_range: tuple[float, float]) -> Floats:
    """Rewards within the public range; NaN becomes its middle."""
    low, high = reward_range
    found = np.clip(rewards, low, high)
    missing = np.isnan(found)
    return np.where(missing, low + (high - low) / 2.0, found) if missing.any() else found


def check_reward_range(value: Any) -> tuple[float, float]:
    """What any reward could be: two finite numbers, the lower first."""
    if value is None:
        raise InputError("is needed: say what any reward could be.", field="reward_range")
    return check_range("reward_range", value)


def off_policy(data: Data, policy: Policy | None) -> bool:
    """Whether another policy is to be judged than the one that collected the data."""
    if isinstance(data, Trajectories):
        return policy is not None or data.target_probs is not None
    plan = getattr(data, "plan", None)
    return policy is not None or getattr(plan, "target_prob", None) is not None


def value_at(
    features: Features, weights: Floats, start: Any, data: Data | None = None, public: bool = False
) -> float | None:
    """The mean value over `start`, or over first states if the data is public; else None."""
    if start is None:
        if not (public and isinstance(data, Trajectories)):
            return None
        start = data.states[data.offsets[:-1]]
    return float(np.mean(np.asarray(features(np.asarray(start)), dtype=np.float64) @ weights))


def pieces(data: Data, rows: int) -> Iterator[Trajectories]:
    """The data in parts with whole units and about `rows` rows; more, if a unit has more."""
    for batch in batches(data):
        if batch.num_steps <= rows:
            yield batch
            continue
        index, count = owners(batch)
        ends = np.cumsum(np.bincount(index, weights=batch.lengths, minlength=count))
        if (index[1:] < index[:-1]).any():
            yield from batch.batches(max(rows, int(np.diff(ends, prepend=0.0).max())))
            continue
        begins, first, rows_before = np.searchsorted(index, np.arange(count + 1)), 0, 0.0
        while first < count:
            last = max(first + 1, int(np.searchsorted(ends, rows_before + rows, side="right")))
            yield batch[int(begins[first]) : int(begins[last])]
            first, rows_before = last, float(ends[last - 1])


def rows_in_memory(features: Features) -> int:
    """How many rows' features are held at a time."""
    return max(_ENTRIES // features.dimension, 1)
