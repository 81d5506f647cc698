"""DP-LSW (Balle, Gomrokchi, Precup 2016): least squares on first-visit returns, output perturbed.

For trajectory x and a state s that it visits, F_{x,s} is the discounted return from the first visit
on. n_s trajectories visit s, F_s is the mean of their F_{x,s}, and 0 if there are none. With public
weights w_s >= 0, Gamma = diag(w) and Phi the features of all S states,

    theta  =  (Gamma^1/2 Phi)^+ Gamma^1/2 F,        released with N(0, (alpha S(X))^2 I).

With a public `horizon` H a trajectory ends with its first H steps: no later visit, no later reward.

Unit: a trajectory; or a person, F_{x,s} being then the mean over their trajectories that visit s.
Relation: replace-one; m is public. Every F_{x,s} lies in [low, high] (`returns_range`), which
contains 0. All is computed in units of its width W, which is public: the F_{x,s} / W lie in
[low / W, high / W], of width 1, within [-1, 1]. Sensitivity: exchanging one unit moves F_s / W by
at most 1 / max(n_s, 1). Proof: if both the old and the new unit visit s, one of n_s terms changes,
by at most 1; if only the old one does, F_s / W moves by 1/n_s of its distance to the mean of the
others (or to 0); if only the new one does, by 1/(n_s + 1) of its distance to F_s / W (or 0). With K
the spectral norm of (Gamma^1/2 Phi)^+, and since k exchanges lower n_s by at most k,

    L_k  =  K sqrt(sum_s w_s / max(n_s - k, 1)^2)

bounds the local sensitivity of theta / W k exchanges away, L_k(X) <= L_{k+1}(X') for neighbours,
and max over k of e^(-k beta) L_k is beta-smooth. S(X) is W times that, as theta is W times the
solution in these units: a public factor of both. Theorem: `privrl.privacy.mechanisms.smooth`.

The horizon changes nothing: the proof knows of F_{x,s} that it depends on x alone and lies in
[low, high], and of n_s that it counts units that visit s; both hold for the first H steps of x.

Range of numbers: sums of m terms in [-1, 1] cannot overflow. W, the rewards, the weights, Phi and K
are refused where theta or S could overflow or vanish, by public numbers alone: else the exact value
of some data, and of no neighbour, would count as 0 (`SmoothMechanism.release`), or noise would.

Noise: beta = epsilon / (4 (d + ln(2/delta))), as published, and the least alpha that the theorem
allows. With the published alpha it is `privrl.papers.xie2019.DPLSW`: several times more noise.

Released: theta once. The noise's standard deviation depends on the data: it stays private. Rewards
are clipped into `reward_range`; rows whose state is none of the S count for no visit. Returns of
trajectories that were cut off end there. On-policy only: a ratio would multiply W.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import OneHot, Policy, Trajectories
from privrl.data.assumptions import data_assumptions
from privrl.data.coverage import check_table
from privrl.data.words import refuse_read_vocabulary
from privrl.evaluation.assumptions import PUBLIC_SETTINGS
from privrl.evaluation.bellman_error import clipped_rewards, off_policy, value_at
from privrl.evaluation.private_linear import PrivateLinear
from privrl.evaluation.result import Result
from privrl.evaluation.steps import Data, batches
from privrl.evaluation.sums import SMALLEST, Sums, gather_sums
from privrl.privacy.certificate import Assumption
from privrl.privacy.ledger import warn_if_large
from privrl.privacy.mechanisms.smooth import SmoothMechanism, smooth_bound
from privrl.privacy.promise import Budget, Relation, Unit
from privrl.privacy.session import SECRET_SESSION, OpenSession, PrivacySession

RETURNS_CLIPPED = Assumption(
    "every return lies in the public range", "by the algorithm: rewards and returns are clipped"
)

# What rewards, and the width of the range of returns, may be. `SMALLEST` is the least width.
LARGEST = 1e140
# Of public weights, features and K, down to its reciprocal: ||Phi||^2 ||rho||_inf m is a number
# then, and so are theta and S(X), in units of W and times W.
_LARGEST_SIZE = 1e60
# Rows added up at once; at most 256.
_BLOCK = 64


@dataclass(frozen=True)
class OutputPerturbation(PrivateLinear):
    """What DP-LSW and DP-LSL have in common; a discount factor of 1 needs a `return_bound`."""

    num_states: int | None = None
    """How many states there are; known already if the features are one-hot."""

    state_weights: Any = None
    """How much each state counts, public; by default all equally, 1/S."""

    return_bound: float | None = None
    """How large a return could be, in absolute value, if less than the rewards allow; returns
    beyond are clipped."""

    horizon: int | None = field(default=None, kw_only=True)
    """How many steps of a trajectory count; by default all."""

    method: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon is not None:
            checks.count("horizon", self.horizon)
        if self.gamma == 1.0 and self.return_bound is None and self.horizon is None:
            raise InputError(
                "is needed without discounting: say how large a return could be.",
                field="return_bound",
            )
        if self.return_bound is not None:
            checks.positive("return_bound", self.return_bound)
        if max(abs(end) for end in self.reward_range) > LARGEST:
            raise InputError(
                f"must be within -{LARGEST:g} and {LARGEST:g}: state rewards in other units.",
                field="reward_range",
            )
        if not SMALLEST <= self.width <= LARGEST:
            raise InputError(
                f"The range of returns must be {SMALLEST:g} to {LARGEST:g} wide, not "
                f"{self.width:g}: state rewards in other units."
            )
        self.weights_of_states()

    def state_count(self) -> int:
        """S."""
        if isinstance(self.features, OneHot):
            return self.features.num_states
        if self.num_states is None:
            raise InputError("is needed: say how many states there are.", field="num_states")
        return checks.count("num_states", self.num_states)

    def weights_of_states(self) -> Floats:
        """w_s, or rho_s."""
        size = self.state_count()
        if self.state_weights is None:
            return np.full(size, 1.0 / size)
        try:
            given = np.asarray(self.state_weights, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                "must be numbers, one for each state.", field="state_weights"
            ) from None
        if given.shape != (size,):
            raise InputError(
                f"must have {size} entries, not shape {given.shape}.", field="state_weights"
            )
        if not (np.all((given >= 0.0) & np.isfinite(given)) and np.any(given > 0.0)):
            raise InputError("must be zero or more, and not all zero.", field="state_weights")
        check_size("state_weights", float(given.max()))
        return given

    def returns_range(self) -> tuple[float, float]:
        """Where every return lies; it contains 0, the return of nothing."""
        low, high = self.reward_range
        steps = math.inf if self.horizon is None else float(self.horizon)
        reach = steps
        if self.gamma < 1.0:
            reach = 1.0 / (1.0 - self.gamma) * (1.0 - self.gamma**steps)
        bound = math.inf if self.return_bound is None else self.return_bound
        ends = [0.0 if end == 0.0 else end * reach for end in (min(low, 0.0), max(high, 0.0))]
        return max(ends[0], -bound), min(ends[1], bound)

    @property
    def width(self) -> float:
        """W, public: the unit of all sums and of `solve`."""
        low, high = self.returns_range()
        return high - low

    def phi(self) -> Floats:
        """The features of all states, (S, d)."""
        phi = np.asarray(self.features(np.arange(self.state_count())), dtype=np.float64)
        check_size("features", float(np.abs(phi).max(initial=0.0)))
        return phi

    def mechanism(self) -> SmoothMechanism:
        """The noise, but for its private scale."""
        return _cached_mechanism(self.budget, self.features.dimension)

    def smooth_sensitivity(self, local: Any, mechanism: SmoothMechanism, count: int) -> float:
        """S(X) for the local sensitivities `local(k)`."""
        with np.errstate(all="ignore"):
            return smooth_bound(local, mechanism.beta, count)

    @abstractmethod
    def solve(self, visits: "Visits") -> "Solution":
        """theta without noise, and how far it is from those of neighbours, both in units of W."""

    def fit(
        self,
        data: Data,
        policy: Policy | None = None,
        *,
        start: Any = None,
        session: PrivacySession = SECRET_SESSION,
    ) -> Result:
        """The value function of the policy that collected the data."""
        require_on_policy(self.method, data, policy)
        public = session.public
        sums = gather_sums(self, data, policy, public=public)
        result = self.release(sums, start=start, session=session)
        if not public:
            return result
        _, noise = self._exact(sums)
        return self.with_diagnostics(
            result, data, None, start, noise=self.mechanism().alpha * noise
        )

    def gather(
        self, batch: Trajectories, policy: Policy | None = None, *, public: bool = False
    ) -> Sums:
        """For each state the units of `batch` that visit it, and their returns; see `sums`."""
        require_on_policy(self.method, batch, policy)
        visits = first_visits(
            batch,
            self.state_count(),
            self.gamma,
            self.reward_range,
            self.returns_range(),
            width=self.width,
            horizon=self.horizon,
            certified=not public,
        )
        total = np.stack([visits.counts.astype(np.float64), visits.sums])
        assumptions = data_assumptions(batch, public)
        return Sums(visits.unit, visits.units, total, assumptions=assumptions)

    @property
    def bound(self) -> Floats:
        """What one unit adds at most to each row of `Sums.total`."""
        low, high = self.returns_range()
        return np.array([[1.0], [max(-low, high) / self.width]])

    def release(
        self, sums: Sums, *, start: Any = None, session: PrivacySession = SECRET_SESSION
    ) -> Result:
        """The value function, out of the sums over all units: paid and drawn once."""
        found = self._exact(sums)
        opened = session.open(sums.unit, Relation.REPLACE_ONE)
        warn_if_large(self.budget.delta, sums.count)
        opened.pay(self.mechanism().event, delta=self.budget.delta)
        return self._release(sums, *found, opened, start)

    def release_paid(self, sums: Sums, opened: OpenSession, start: Any = None) -> Result:
        """The value function, where `opened` has paid for it."""
        return self._release(sums, *self._exact(sums), opened, start)

    def _exact(self, sums: Sums) -> tuple["Solution", float]:
        """theta and S(X), private."""
        visits = Visits(sums.total[0].astype(np.int64), sums.total[1], sums.count, sums.unit)
        exact = self.solve(visits)
        bound = self.smooth_sensitivity(exact.local, self.mechanism(), sums.count)
        return replace(exact, theta=self.width * exact.theta), scale_bound(bound, self.width)

    def _release(
        self, sums: Sums, exact: "Solution", sensitivity: float, opened: OpenSession, start: Any
    ) -> Result:
        mechanism = self.mechanism()
        opened.check_paid(mechanism.event)
        noised, _ = mechanism.release(exact.theta, sensitivity, opened.source)
        weights = np.asarray(noised, dtype=np.float64)
        return Result(
            method=self.method,
            promise=opened.certify(
                self.budget.delta,
                assumptions=(RETURNS_CLIPPED, PUBLIC_SETTINGS, *sums.assumptions),
            ),
            estimate=value_at(self.features, weights, start),
            weights=weights,
            features=self.features,
            settings={
                "gamma": self.gamma,
                "reward_range": self.reward_range,
                "returns_range": self.returns_range(),
                "units": sums.count,
                **({} if self.horizon is None else {"horizon": self.horizon}),
                **exact.settings,
            },
        )


def scale_bound(bound: float, width: float) -> float:
    """S(X), out of what it is in units of W."""
    return width * bound


@lru_cache(maxsize=64)
def _cached_mechanism(budget: Budget, dimension: int) -> SmoothMechanism:
    return SmoothMechanism.from_budget(budget, dimension)


@dataclass(frozen=True)
class DPLSW(OutputPerturbation):
    """Weighted least squares on mean first-visit returns; see the module."""

    method: ClassVar[str] = "DP-LSW"

    def solve(self, visits: "Visits") -> "Solution":
        root = np.sqrt(self.weights_of_states())
        inverse = np.linalg.pinv(root[:, None] * self.phi())
        largest = float(np.linalg.norm(inverse, 2))
        check_size("features", largest * float(root.max()))
        return Solution(
            inverse @ (root * visits.means()),
            lambda k: local_lsw(largest, root**2, visits.counts, k),
        )


def local_lsw(
    largest: float, weights: Floats, counts: NDArray[np.int64], k: NDArray[np.int64]
) -> Floats:
    """L_k for `largest` = K. Visits come in few different numbers, k in many: one pass each."""
    squares = np.zeros(k.shape)
    for count in np.unique(counts):
        squares += weights[counts == count].sum() / np.maximum(count - k, 1.0) ** 2
    return largest * np.sqrt(squares)


# --- shared with DP-LSL --------------------------------------------------------------------------


@dataclass(frozen=True)
class Visits:
    """For each state the number of units that visit it, and the sum of their returns / W."""

    counts: NDArray[np.int64]
    sums: Floats
    units: int
    unit: Unit

    def means(self) -> Floats:
        """F_s."""
        return self.sums / np.maximum(self.counts, 1)


@dataclass(frozen=True)
class Solution:
    """theta, exact and private; its local sensitivities L_k; and settings for the result."""

    theta: Floats
    local: Callable[[NDArray[np.int64]], Floats]
    settings: Mapping[str, Any] = field(default_factory=dict)


def check_size(name: str, size: float) -> None:
    """Refuse a public size with which theta or S(X) could overflow or vanish."""
    if not 1.0 / _LARGEST_SIZE <= size <= _LARGEST_SIZE:
        raise InputError(
            f"cannot be computed with: scale them so that the largest number is near 1 ({size:g} "
            "was found).",
            field=name,
        )


def require_on_policy(name: str, data: Data, policy: Policy | None) -> None:
    """Raise unless the policy that collected the data is the one to judge, in a table."""
    if off_policy(data, policy):
        raise InputError(
            f"{name} judges the policy that collected the data: it is not private off-policy, "
            "where PrivateGTD is."
        )
    if isinstance(data, Trajectories) and not data.discrete_states:
        raise InputError(
            "needs a table of states: it is not private for continuous ones.", field=name
        )


def first_visits(
    data: Data,
    num_states: int,
    gamma: float,
    reward_range: tuple[float, float],
    returns_range: tuple[float, float],
    *,
    width: float = 1.0,
    horizon: int | None = None,
    certified: bool = True,
) -> Visits:
    """First-visit returns in units of `width`, added up over units. Total, and linear in the number
    of steps before the `horizon` but for one sort. `certified` refuses states whose numbers depend
    on everybody's data.
    """
    counts, sums = np.zeros(num_states, dtype=np.int64), np.zeros(num_states)
    units, unit = 0, Unit.TRAJECTORY
    for batch in batches(data):
        if certified:
            refuse_read_vocabulary(batch)
        if not batch.discrete_states:
            raise InputError("A table of states is needed: these are continuous.")
        check_table(num_states, batch)
        rows, lengths = _rows_before(batch, horizon)
        returns = discounted(np.asarray(batch.rewards)[rows], lengths, gamma, reward_range)
        returns = np.clip(returns, *returns_range) / width
        states = batch.states[rows]
        known = np.flatnonzero((states >= 0) & (states < num_states))
        trajectory = np.repeat(np.arange(batch.num_trajectories), lengths)[known]
        # Rows are in the order of time, and the first of equal ones is found.
        place, first = np.unique(
            trajectory * num_states + states[known].astype(np.int64), return_index=True
        )
        owner = np.asarray(batch.unit_index)[place // num_states]
        cells, index = np.unique(owner * num_states + place % num_states, return_inverse=True)
        means = np.bincount(index, returns[known[first]]) / np.maximum(np.bincount(index), 1)
        visited = cells % num_states
        counts += np.bincount(visited, minlength=num_states)
        sums += np.bincount(visited, means, num_states)
        units, unit = units + batch.num_units, batch.unit
    return Visits(counts, sums, units, unit)


def _rows_before(data: Trajectories, horizon: int | None) -> tuple[Any, NDArray[np.int64]]:
    """The rows of the first `horizon` steps, and how many each trajectory has; none is read."""
    lengths = data.lengths.astype(np.int64)
    if horizon is None:
        return slice(None), lengths
    lengths = np.minimum(lengths, horizon)
    before = data.offsets[:-1] - (np.cumsum(lengths) - lengths)  # rows that are left out so far
    return np.arange(lengths.sum()) + np.repeat(before, lengths), lengths


def discounted(
    rewards: Floats,
    lengths: NDArray[np.int64],
    gamma: float,
    reward_range: tuple[float, float],
) -> Floats:
    """r_t + gamma r_{t+1} + ... to the end of the trajectory, for every row."""
    returns = clipped_rewards(np.asarray(rewards, dtype=np.float64), reward_range)
    _scan_backwards(returns, lengths, gamma, len(returns))
    return returns


def _scan_backwards(values: Floats, lengths: NDArray[np.int64], gamma: float, rows: int) -> None:
    """v_t + gamma v_{t+1} + ... in place, in time linear in `rows`, however long a trajectory is.

    Trajectories are cut into blocks, counted from their ends, and all blocks are added up at once,
    backwards. The sums of whole blocks are a series of their own, discounted by gamma^block, and
    what comes after a block is added to its rows. Nothing is divided or subtracted, and a row's
    result depends on its own trajectory alone, to the last bit.
    """
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(values)) - 1
    place = (left % _BLOCK).astype(np.uint8)  # few different ones are sorted in linear time
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place, minlength=_BLOCK))
    for start, end in pairwise(ends):
        at = order[start:end]
        values[at] += gamma * values[at + 1]
    if rows < _BLOCK:
        return
    heads = order[ends[-2] :]
    whole = values[heads]
    _scan_backwards(whole, lengths // _BLOCK, gamma**_BLOCK, rows // _BLOCK)
    values[heads] = whole
    others = np.flatnonzero((left >= _BLOCK) & (place < _BLOCK - 1))
    distance = place[others].astype(np.int64) + 1
    values[others] += gamma**distance * values[others + distance]
