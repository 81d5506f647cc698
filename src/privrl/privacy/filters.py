"""Privacy filters: limits that hold even if each release is chosen after seeing the ones before.

A plan fixed in advance can be accounted for as a whole, as tightly as one likes. Spending decided
along the way cannot: whether to go on may depend on what was released, and no accountant of
privacy loss distributions is proven to survive that. What is proven: quantities that add up,
compared with a cap that was fixed before the first release. Three of them:

- `GAUSSIAN`: sums of mu^2, for Gaussian noise only, at no loss (Smith and Thakurta 2022);
- `RENYI`: sums of Renyi divergences at one order fixed in advance (Feldman and Zrnic 2021), and of
  the probabilities of telling all, for which a tenth of delta is set aside. Where the divergence at
  that order is too large, or none is proven, as with much sampling and little noise, a spend is
  charged as what it also is: (epsilon, d)-DP, for a d of a hundredth of delta, hence dominated by
  `ApproxDP(epsilon, d)` (Kairouz, Oh, Viswanath 2015), which has a divergence at every order;
- `SUM`: sums of epsilons and of deltas (Rogers et al. 2016), for pure and approximate DP.

**The first spend may use the whole limit.** Caps of Renyi divergences are worth less than their
limit, so that one release calibrated to exactly (epsilon, delta) would not fit below its own cap.
A filter therefore also lets through the *first* spend that concerns somebody if all of its events
together, accounted for as one plan, are within the limit (`Filter.can_afford`). Its sum is then
above the cap, and sums never fall, so that nothing is let through for the same people afterwards.

Unit and relation: the ledger's. Theorem: all that is released is (epsilon, delta)-DP. *Proof.* Take
two neighbours, who differ in one unit. What was released before the first spend that concerns that
unit has the same law under both; fix it, and with it that spend. If its sum is within the cap, it
and all that follows is what the filter's theorem is about. If it is not, it is the only release
that concerns the unit, and it is (epsilon, delta)-DP by its accounting, which holds for plans; all
that follows is drawn from what was released already and from other units. Either way the rest is
(epsilon, delta)-DP given what was fixed, and P(S) <= e^epsilon Q(S) + delta keeps its form when
averaged over something that has one law under both.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

from privrl.core import checks
from privrl.core.errors import InputError, UnsupportedError
from privrl.privacy import accounting
from privrl.privacy.events import ApproxDP, Event, Gaussian, as_events
from privrl.privacy.promise import Budget, Relation, WordEnum

# The share of delta that the Renyi filter keeps for events that may tell all.
_LEAK_DELTA_SHARE = 0.1
# How many spends may have a share of that when they are charged as approximate DP.
_LEAKING_SPENDS = 10


class FilterKind(WordEnum):
    """Which additive quantity is capped."""

    GAUSSIAN = "gaussian"
    RENYI = "renyi"
    SUM = "sum"


@dataclass(frozen=True)
class Cost:
    """What an event adds to the two sums that a filter watches."""

    first: float
    second: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.first + other.first, self.second + other.second)

    def is_within(self, cap: "Cost") -> bool:
        """Whether both sums stay below their caps, up to rounding in the sums."""
        slack = 1.0 + 1e-12
        return self.first <= cap.first * slack and self.second <= cap.second * slack


@dataclass(frozen=True)
class Filter:
    """A limit with the way in which it is kept; `order` belongs to the Renyi filter."""

    limit: Budget
    kind: FilterKind
    order: int | None = None

    def __post_init__(self) -> None:
        checks.set_checked(self, kind=FilterKind.check)
        if (self.kind is FilterKind.RENYI) != (self.order is not None):
            raise InputError("belongs to the Renyi filter, and it needs one.", field="order")
        if self.order is not None:
            checks.set_checked(self, order=partial(checks.count, least=2))
        if self.kind is not FilterKind.SUM and self.limit.delta == 0.0:
            raise InputError(f"The {self.kind} filter needs a limit with delta above 0.")
        if not self.cap.first > 0.0:
            raise InputError(f"Nothing can be spent within {self.limit} by the {self.kind} filter.")

    @classmethod
    def for_limit(cls, limit: Budget, kind: FilterKind | str | None = None) -> Self:
        """The filter of the given kind for `limit`: by default Renyi, or sums if delta is 0.

        The order is the one at which Gaussian noise can spend most.
        """
        chosen = FilterKind.parse(
            kind or (FilterKind.RENYI if limit.delta > 0.0 else FilterKind.SUM)
        )
        if chosen is not FilterKind.RENYI:
            return cls(limit, chosen)
        if limit.delta == 0.0:
            raise InputError("The renyi filter needs a limit with delta above 0.")
        orders = range(2, 2001)
        best = max(orders, key=lambda order: _renyi_cap(limit, order) / order)
        return cls(limit, chosen, best)

    @cached_property
    def cap(self) -> Cost:
        """What the two sums may reach."""
        if self.kind is FilterKind.SUM:
            return Cost(self.limit.epsilon, self.limit.delta)
        if self.kind is FilterKind.GAUSSIAN:
            # Noise of the largest affordable mu; calibrate errs on the safe side.
            std = accounting.calibrate(
                lambda s: Gaussian(s, 1.0), self.limit, Relation.ADD_REMOVE, tolerance=1e-9
            )
            return Cost(1.0 / std**2)
        assert self.order is not None
        return Cost(_renyi_cap(self.limit, self.order), _LEAK_DELTA_SHARE * self.limit.delta)

    def remaining(self, spent: Cost) -> float:
        """The share of the limit that is left after `spent`, in the scarcer of the two sums."""
        shares = [1.0 - spent.first / self.cap.first]
        if self.cap.second > 0.0 and spent.second > 0.0:
            shares.append(1.0 - spent.second / self.cap.second)
        return max(0.0, min(shares))

    def can_afford(self, events: Event | Iterable[Event], relation: Relation) -> bool:
        """Whether a plan of `events`, and nothing beside it, is within the limit."""
        limit, listed = self.limit, as_events(events)
        try:
            if accounting.epsilon(listed, limit.delta, relation) <= limit.epsilon:
                return True
        except InputError:
            return False  # no finite epsilon at this delta
        # What was calibrated was asked for its delta, which is the same question up to rounding.
        return accounting.delta(listed, limit.epsilon, relation) <= limit.delta

    def cost(self, events: Event | Iterable[Event], relation: Relation) -> Cost:
        """What `events` add to the sums; raises if this filter has no figure for them."""
        listed = as_events(events)
        try:
            return self._cost(listed, relation)
        except UnsupportedError as error:
            others = [
                kind.value for kind in FilterKind if self._can_account(kind, listed, relation)
            ]
            if self.limit.delta == 0.0:
                raise UnsupportedError(f"{error} They need a limit with delta above 0.") from None
            if not others:
                raise
            raise UnsupportedError(
                f"{error} The filter {' or '.join(others)} has a figure for them "
                f"(privrl ledger create --filter {others[0]})."
            ) from None

    def _can_account(self, kind: FilterKind, events: tuple[Event, ...], relation: Relation) -> bool:
        """Whether another filter, of this kind and for the same limit, can add up `events`."""
        if kind is FilterKind.RENYI:
            # Whatever has an epsilon has a figure, so there is no need to find it.
            return kind is not self.kind and self.limit.delta > 0.0
        try:
            type(self).for_limit(self.limit, kind)._cost(events, relation)
        except (InputError, UnsupportedError):
            return False
        return kind is not self.kind

    def is_sufficient(self, cost: Cost, events: Iterable[Event], relation: Relation) -> bool:
        """Whether `cost` is at least one that `events` may be charged.

        It may be more, if accounting has become tighter since.
        """
        return any(one.is_within(cost) for one in self._charges(as_events(events), relation))

    def _cost(self, events: tuple[Event, ...], relation: Relation) -> Cost:
        """The first charge within the cap, or else the one that is least above it."""
        above = []
        for cost in self._charges(events, relation):
            if cost.is_within(self.cap):
                return cost
            above.append(cost)
        least = min(above, key=lambda cost: cost.first)
        if not math.isfinite(least.first):
            raise UnsupportedError(
                f"No Renyi divergence at the filter's order {self.order} is proven for this."
            )
        return least

    def _charges(self, events: tuple[Event, ...], relation: Relation) -> Iterator[Cost]:
        """What `events` may be charged, each a bound of its own; what takes longer comes last."""
        if self.kind is FilterKind.SUM:
            yield Cost(*accounting.basic_composition(events, relation))
            return
        if self.kind is FilterKind.GAUSSIAN:
            yield Cost(accounting.gaussian_mu(events, relation) ** 2)
            return
        from privrl.privacy import second_accountant

        assert self.order is not None
        yield Cost(*second_accountant.renyi(events, self.order, relation))
        told = self.cap.second / _LEAKING_SPENDS
        try:
            plain = ApproxDP(accounting.epsilon(events, told, relation), told, relation=relation)
        except InputError:
            return  # no finite epsilon at this delta
        yield Cost(*second_accountant.renyi(plain, self.order, relation))


def _renyi_cap(limit: Budget, order: int) -> float:
    """The divergence at `order` that still gives `limit` (Canonne, Kamath, Steinke 2020)."""
    delta = (1.0 - _LEAK_DELTA_SHARE) * limit.delta
    return limit.epsilon - math.log1p(-1.0 / order) + math.log(delta * order) / (order - 1)
