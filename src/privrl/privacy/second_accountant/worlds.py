"""The floor of a plan: what an explicit pair of neighbours really loses.

Or the worst mechanism that an event admits. Each part is a pair of laws P, Q on the line. A *world*
is a choice of the groups of `Disjoint` events that a unit is in; every world gives a floor, and the
largest counts.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np

from privrl.core import checks
from privrl.privacy.events import Disjoint, Event, Repeated, as_events
from privrl.privacy.promise import Relation
from privrl.privacy.second_accountant.allocation_pair import AllocationPair
from privrl.privacy.second_accountant.composed_floor import composed_floor
from privrl.privacy.second_accountant.events_to_pairs import pairs_of, simplify
from privrl.privacy.second_accountant.pair_floor import (
    has_mirror,
    leak_of,
    normal_floor,
    single_floor,
)
from privrl.privacy.second_accountant.pairs import NormalPair, Pair
from privrl.privacy.second_accountant.renyi_ceiling import (
    ZERO_COST,
    Cost,
    pair_cost,
    remaining_delta,
)

_WORLDS, _LOOKS = 64, 8  # choices of groups that the floor keeps in mind, and those it looks into
# How often each pair occurs, if the unit is in certain groups.
_World = frozenset[tuple[Pair, int]]


def floor(
    events: Event | Iterable[Event], delta: float, relation: Relation = Relation.REPLACE_ONE
) -> float:
    """An epsilon below which no valid one lies, since some pair of neighbours loses this much."""
    delta, relation = checks.probability("delta", delta), Relation.parse(relation)
    worlds: list[_World] = [frozenset()]
    for event in as_events(events):
        worlds = _prune_worlds(map(_merge_worlds, product(worlds, _worlds(event, relation))))
    # Every world gives a floor; a world whose ceiling is below the best floor cannot raise it.
    ceilings = [_world_cost(world).epsilon(delta) for world in worlds]
    best = 0.0
    for i in np.argsort(ceilings)[::-1][:_LOOKS]:
        for backward in (False, True):
            if ceilings[i] > best:
                best = max(best, _world_floor(worlds[i], delta, backward, best))
    return best


def _worlds(event: Event, relation: Relation) -> list[_World]:
    event = simplify(event, relation)
    if isinstance(event, Repeated):
        worlds, times = _worlds(event.event, relation), event.times
        if len(worlds) > 1 and math.comb(len(worlds) + times - 1, times) <= _WORLDS:
            return _prune_worlds(map(_merge_worlds, combinations_with_replacement(worlds, times)))
        return [_merge_worlds([world], times) for world in worlds]
    if isinstance(event, Disjoint):
        parts = dict.fromkeys(event.events)
        return _prune_worlds(world for part in parts for world in _worlds(part, relation))
    return [frozenset({(pair, 1)}) for pair in pairs_of(event, relation)]


def _merge_worlds(worlds: Iterable[_World], times: int = 1) -> _World:
    """One world of several, `times` times over; its Gaussians are one, and exactly so."""
    counts: Counter[Pair] = Counter()
    for world in worlds:
        counts.update({pair: times * n for pair, n in world})
    square = sum(n * pair.mu**2 for pair, n in counts.items() if isinstance(pair, NormalPair))
    others = {(pair, n) for pair, n in counts.items() if not isinstance(pair, NormalPair)}
    return frozenset(others | ({(NormalPair(math.sqrt(square)), 1)} if square else set()))


def _prune_worlds(worlds: Iterable[_World]) -> list[_World]:
    """The different ones among `worlds`, the costliest if they are many: a floor needs no more."""
    unique = list(dict.fromkeys(worlds))
    if len(unique) <= _WORLDS:
        return unique
    return sorted(unique, key=lambda world: _world_cost(world).epsilon(1e-6))[-_WORLDS:]


def _world_cost(world: _World) -> Cost:
    return sum((pair_cost(pair) * n for pair, n in world), ZERO_COST)


def _world_floor(world: _World, delta: float, backward: bool, enough: float) -> float:
    """The largest epsilon at which a world surely loses more than `delta`, in one direction.

    If it turns out that it cannot be above `enough`, it may be anything smaller.
    """
    if backward and not any(has_mirror(pair) for pair, _ in world):
        return 0.0  # nothing new in the other direction
    rest = remaining_delta(
        delta, sum(-n * math.log1p(-leak_of(pair, backward)) for pair, n in world)
    )
    parts = [(pair, n) for pair, n in world if pair.limits.most > 0]
    if rest < 0:
        return math.inf
    if rest == 0:
        return 0.0 if backward else sum(n * pair.limits.most for pair, n in parts)
    if [n for _, n in parts] != [1]:
        return composed_floor(parts, rest, backward, enough) if parts else 0.0
    pair = parts[0][0]
    if isinstance(pair, NormalPair):
        return normal_floor(pair.mu, rest)
    found = single_floor(pair, rest, backward)
    if isinstance(pair, AllocationPair) and pair.exchanged:
        for _ in range(3):
            found = max(found, single_floor(replace(pair, lean=min(found, 50.0)), rest, backward))
    return found
