"""The ceiling: what Rényi divergences D_a prove, summed over events and turned into epsilon.

The log moment K(a) = (a - 1) D_a of every part is bounded at each order a in both directions,
summed (Mironov 2017, Prop. 1) and turned into epsilon (Balle et al. 2020, Theorem 21; Canonne,
Kamath, Steinke 2020, Prop. 12). K is convex in a, so that chords bound it between orders. Where
every loss is bounded, the sum of the bounds is proven too, and the smaller counts. An
(epsilon, delta) part may tell all with probability delta; the probability that any part does is
taken off the delta that was asked for.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.privacy.events import Disjoint, Event, Repeated, as_events
from privrl.privacy.promise import Relation
from privrl.privacy.second_accountant.events_to_pairs import pairs_of, simplify
from privrl.privacy.second_accountant.pairs import Pair
from privrl.privacy.second_accountant.sampled_pairs import INTEGERS

ORDERS: Floats = np.unique(
    np.r_[1 + np.geomspace(1e-4, 1, 41), 2:12:0.1, INTEGERS, np.geomspace(2048, 1e6, 60)]
)


def ceiling(
    events: Event | Iterable[Event], delta: float, relation: Relation = Relation.REPLACE_ONE
) -> float:
    """A proven epsilon, usually larger than the certified one; infinite if none is proven."""
    delta, relation = checks.probability("delta", delta), Relation.parse(relation)
    return sum((cost_of(event, relation) for event in as_events(events)), ZERO_COST).epsilon(delta)


def ceiling_over(
    places: Iterable[Iterable[Mapping[Event, int]]], delta: float, relation: Relation
) -> float:
    """A proven epsilon for whoever is in one slot of each of `places`, whichever these are.

    A slot is how often each event concerns whoever is in it. The worst slot is taken in everything
    that adds up, order by order (`totals.py` has the proof).
    """
    delta, relation = checks.probability("delta", delta), Relation.parse(relation)
    total = ZERO_COST
    for slots in places:
        costs = (
            sum((cost_of(event, relation) * times for event, times in slot.items()), ZERO_COST)
            for slot in slots
        )
        total += reduce(Cost.__or__, costs)
    return total.epsilon(delta)


def renyi(
    events: Event | Iterable[Event], order: int, relation: Relation = Relation.REPLACE_ONE
) -> tuple[float, float]:
    """A proven Rényi divergence at `order` if nothing is told, and the probability that anything
    is.

    Both add up over events, adaptive ones too; the divergence is infinite where none is proven.
    """
    if checks.count("order", order) < 2:
        raise InputError(f"must be at least 2, not {order}.", field="order")
    relation = Relation.parse(relation)
    cost = sum((cost_of(event, relation) for event in as_events(events)), ZERO_COST)
    moment = float(np.interp(order, ORDERS, cost.moments, right=math.inf))
    return min(moment / (order - 1), cost.pure), -math.expm1(-cost.leaking)


@dataclass(frozen=True)
class Cost:
    """Bounds that add up: log moments at `ORDERS`, largest finite loss, -log P(no leak)."""

    moments: Floats
    pure: float
    leaking: float

    def __add__(self, other: "Cost") -> "Cost":
        moments = self.moments + other.moments
        return Cost(moments, self.pure + other.pure, self.leaking + other.leaking)

    def __mul__(self, times: int) -> "Cost":
        return Cost(self.moments * times, self.pure * times, self.leaking * times)

    def __or__(self, other: "Cost") -> "Cost":
        """The larger of both in everything: holds whichever group a unit is in, each time anew."""
        moments = np.maximum(self.moments, other.moments)
        return Cost(moments, max(self.pure, other.pure), max(self.leaking, other.leaking))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon that these bounds prove at `delta`."""
        rest = remaining_delta(delta, self.leaking)
        if rest <= 0:
            return self.pure if rest == 0 else math.inf
        a = ORDERS
        epsilons = (self.moments - math.log(rest) - np.log(a)) / (a - 1) + np.log1p(-1 / a)
        return max(0.0, min(self.pure, float(np.min(epsilons))))


ZERO_COST = Cost(np.zeros_like(ORDERS), 0.0, 0.0)


@lru_cache(maxsize=256)
def pair_cost(pair: Pair) -> Cost:
    """What one pair adds."""
    return Cost(pair.log_moment(ORDERS), pair.limits.pure, -math.log1p(-pair.limits.leak))


def cost_of(event: Event, relation: Relation) -> Cost:
    """What an event adds, whichever groups of `Disjoint` events a unit is in."""
    event = simplify(event, relation)
    if isinstance(event, Repeated):
        return cost_of(event.event, relation) * event.times
    if isinstance(event, Disjoint):
        parts = dict.fromkeys(event.events)
        return reduce(Cost.__or__, (cost_of(part, relation) for part in parts))
    return reduce(Cost.__or__, map(pair_cost, pairs_of(event, relation)))


def remaining_delta(delta: float, leaking: float) -> float:
    """What is left of delta for the rest: 1 - (1 - delta) / P(no leak)."""
    return -math.expm1(math.log1p(-delta) + leaking)
