"""DP-LSW (Balle, Gomrokchi, Precup 2016): least squares on first-visit returns, output perturbed.

For trajectory x and a state s that it visits, F_{x,s} is the discounted return from the first visit
on. n_s trajectories visit s, F_s is the mean of their F_{x,s}, and 0 if there are none. With public
weights w_s >= 0, Gamma = diag(w) and Phi the features of all S states,

    theta  =  (Gamma^1/2 Phi)^+ Gamma^1/2 F,        released with N(0, (alpha S(X))^2 I).

Unit: a trajectory; or a person, F_{x,s} being then the mean over their trajectories that visit s.
Relation: replace-one; m is public. Every F_{x,s} lies in [low, high] (`returns_range`), which
contains 0, of width W. Sensitivity: exchanging one unit moves F_s by at most W / max(n_s, 1).
Proof: if both the old and the new unit visit s, one of n_s terms changes, by at most W; if only the
old one does, F_s moves by 1/n_s of its distance to the mean of the others (or to 0); if only the
new one does, by 1/(n_s + 1) of its distance to F_s (or 0). With K the spectral norm of
(Gamma^1/2 Phi)^+, and since k exchanges lower n_s by at most k,

    L_k  =  K W sqrt(sum_s w_s / max(n_s - k, 1)^2)

bounds the local sensitivity k exchanges away, L_k(X) <= L_{k+1}(X') for neighbours, and
S(X) = max over k of e^(-k beta) L_k is beta-smooth. Theorem: `privrl.privacy.mechanisms.smooth`.

Noise: beta = epsilon / (4 (d + ln(2/delta))), as published, and the least alpha that the theorem
allows. With the published alpha it is `privrl.papers.xie2019.DPLSW`: several times more noise.

Released: theta once. The noise's standard deviation depends on the data: it stays private. Rewards
are clipped into `reward_range`; rows whose state is none of the S count for no visit. Returns of
trajectories that were cut off end there. On-policy only: a ratio would multiply W.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
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
from privrl.evaluation.sums import Sums, gather_sums
from privrl.privacy.certificate import Assumption
from privrl.privacy.ledger import warn_if_large
from privrl.privacy.mechanisms.smooth import SmoothMechanism, smooth_bound
from privrl.privacy.promise import Budget, Relation, Unit
from privrl.privacy.session import SECRET_SESSION, OpenSession, PrivacySession

RETURNS_CLIPPED = Assumption(
    "every return lies in the public range", "by the algorithm: rewards and returns are clipped"
)


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

    method: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma == 1.0 and self.return_bound is None:
            raise InputError(
                "is needed without discounting: say how large a return could be.",
                field="return_bound",
            )
        if self.return_bound is not None:
            checks.positive("return_bound", self.return_bound)
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
        return given

    def returns_range(self) -> tuple[float, float]:
        """Where every return lies; it contains 0, the return of nothing."""
        low, high = self.reward_range
        reach = math.inf if self.gamma == 1.0 else 1.0 / (1.0 - self.gamma)
        bound = math.inf if self.return_bound is None else self.return_bound
        ends = [0.0 if end == 0.0 else end * reach for end in (min(low, 0.0), max(high, 0.0))]
        return max(ends[0], -bound), min(ends[1], bound)

    def phi(self) -> Floats:
        """The features of all states, (S, d)."""
        return np.asarray(self.features(np.arange(self.state_count())), dtype=np.float64)

    def mechanism(self) -> SmoothMechanism:
        """The noise, but for its private scale."""
        return _cached_mechanism(self.budget, self.features.dimension)

    def smooth_sensitivity(self, local: Any, mechanism: SmoothMechanism, count: int) -> float:
        """S(X) for the local sensitivities `local(k)`."""
        with np.errstate(all="ignore"):
            return smooth_bound(local, mechanism.beta, count)

    @abstractmethod
    def solve(self, visits: "Visits") -> "Solution":
        """theta without noise, and how far it is from those of neighbours."""

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
        bounds = self.reward_range, self.returns_range()
        visits = first_visits(batch, self.state_count(), self.gamma, *bounds, certified=not public)
        total = np.stack([visits.counts.astype(np.float64), visits.sums])
        assumptions = data_assumptions(batch, public)
        return Sums(visits.unit, visits.units, total, assumptions=assumptions)

    @property
    def bound(self) -> Floats:
        """What one unit adds at most to each row of `Sums.total`."""
        low, high = self.returns_range()
        return np.array([[1.0], [max(-low, high)]])

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
        return exact, self.smooth_sensitivity(exact.local, self.mechanism(), sums.count)

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
                **exact.settings,
            },
        )


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
        low, high = self.returns_range()
        largest = float(np.linalg.norm(inverse, 2)) * (high - low)
        return Solution(
            inverse @ (root * visits.means()),
            lambda k: local_lsw(largest, root**2, visits.counts, k),
        )


def local_lsw(
    largest: float, weights: Floats, counts: NDArray[np.int64], k: NDArray[np.int64]
) -> Floats:
    """L_k for `largest` = K W. Visits come in few different numbers, k in many: one pass each."""
    squares = np.zeros(k.shape)
    for count in np.unique(counts):
        squares += weights[counts == count].sum() / np.maximum(count - k, 1.0) ** 2
    return largest * np.sqrt(squares)


# --- shared with DP-LSL --------------------------------------------------------------------------


@dataclass(frozen=True)
class Visits:
    """For each state the number of units that visit it, and the sum of their returns."""

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
    certified: bool = True,
) -> Visits:
    """First-visit returns, added up over units. Total, and linear in the number of steps but for
    one sort. `certified` refuses states whose numbers depend on everybody's data.
    """
    counts, sums = np.zeros(num_states, dtype=np.int64), np.zeros(num_states)
    units, unit = 0, Unit.TRAJECTORY
    for batch in batches(data):
        if certified:
            refuse_read_vocabulary(batch)
        if not batch.discrete_states:
            raise InputError("A table of states is needed: these are continuous.")
        check_table(num_states, batch)
        returns = np.clip(discounted(batch, gamma, reward_range), *returns_range)
        known = np.flatnonzero((batch.states >= 0) & (batch.states < num_states))
        trajectory = np.repeat(np.arange(batch.num_trajectories), batch.lengths)[known]
        state = batch.states[known].astype(np.int64)
        # Rows are in the order of time, and the first of equal ones is found.
        place, first = np.unique(trajectory * num_states + state, return_index=True)
        owner = np.asarray(batch.unit_index)[place // num_states]
        cells, index = np.unique(owner * num_states + place % num_states, return_inverse=True)
        means = np.bincount(index, returns[known[first]]) / np.maximum(np.bincount(index), 1)
        visited = cells % num_states
        counts += np.bincount(visited, minlength=num_states)
        sums += np.bincount(visited, means, num_states)
        units, unit = units + batch.num_units, batch.unit
    return Visits(counts, sums, units, unit)


def discounted(data: Trajectories, gamma: float, reward_range: tuple[float, float]) -> Floats:
    """r_t + gamma r_{t+1} + ... to the end of the trajectory, for every row.

    Backwards in time, over all trajectories that are long enough at once: they are in the order of
    their lengths, so each step of the loop takes a part from the front, and the whole is linear.
    """
    returns = clipped_rewards(np.asarray(data.rewards, dtype=np.float64), reward_range)
    order = np.argsort(-data.lengths, kind="stable")
    last = (data.offsets[1:] - 1)[order]
    longer = data.num_trajectories - np.cumsum(np.bincount(data.lengths))
    for back in range(1, int(data.lengths.max())):
        rows = last[: longer[back]] - back
        with np.errstate(over="ignore"):
            returns[rows] += gamma * returns[rows + 1]
    return returns
