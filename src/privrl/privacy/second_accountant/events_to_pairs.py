"""From events to dominating pairs: the second accountant's own sensitivities and sampling rates."""

import math
from collections.abc import Iterable

from privrl.core.errors import InputError, UnsupportedError
from privrl.privacy.events import (
    ApproxDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Disjoint,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDP,
    RandomAllocation,
    RandomizedResponse,
    Repeated,
)
from privrl.privacy.promise import Relation
from privrl.privacy.second_accountant.allocation_pair import AllocationPair
from privrl.privacy.second_accountant.pairs import (
    DiscreteLaplacePair,
    DiscreteNormalPair,
    LaplacePair,
    NormalPair,
    Pair,
    ResponsePair,
)
from privrl.privacy.second_accountant.sampled_pairs import PoissonReplacePair, SampledPair


def _pair(event: Event, relation: Relation) -> Pair:
    """The pair of an event that contains no other."""
    if isinstance(event, RandomizedResponse | PureDP | ApproxDP):
        # A single report that hides any input from any other hides whose data was replaced.
        stronger = relation == Relation.REPLACE_ONE and event.relation == Relation.LOCAL
        if event.relation != relation and not stronger:
            raise InputError(f"{event} holds for {event.relation}, but {relation} was asked for.")
        categories = event.categories if isinstance(event, RandomizedResponse) else 2
        told = event.delta if isinstance(event, ApproxDP) else 0.0
        return ResponsePair(event.epsilon, categories, told)
    # The difference between the sums of two neighbours: two contributions, or one.
    factor = 2 if relation in (Relation.REPLACE_ONE, Relation.LOCAL) else 1
    if isinstance(event, Gaussian):
        return NormalPair(factor * event.bound / event.std)
    if isinstance(event, Laplace):
        return LaplacePair(factor * event.bound / event.scale)
    if isinstance(event, DiscreteGaussian | DiscreteLaplace):
        # The ceiling pays for floor(2 bound); but two integers of at most `bound` differ by at most
        # 2 floor(bound), and the floor must not claim more.
        move, shift = factor * event.bound, factor * math.floor(event.bound)
        if move < 1:
            return ResponsePair(0.0)
        if isinstance(event, DiscreteLaplace):
            return DiscreteLaplacePair(shift, math.floor(move), event.scale)
        charge = math.floor(move) if event.dimension == 1 else move
        # The pair of a smaller shift is a floor as well, and its tails are computable.
        most = 10**6 if event.std < 500 else int(event.std**2 / 5)
        return DiscreteNormalPair(min(shift, most), charge, event.std)
    raise UnsupportedError(f"The second accountant has no bound for {event}.")


_Sampling = PoissonSampled | FixedSizeSampled


def _rate(event: _Sampling, relation: Relation) -> float:
    """The share of units that is drawn."""
    fixed = isinstance(event, FixedSizeSampled)
    if relation != Relation.REPLACE_ONE and (fixed or relation != Relation.ADD_REMOVE):
        raise InputError(f"{type(event).__name__} has no meaning under {relation}.")
    return event.batch / event.population if isinstance(event, FixedSizeSampled) else event.rate


def simplify(event: Event, relation: Relation) -> Event:
    """The event itself, or what it samples if everybody is drawn."""
    while isinstance(event, _Sampling) and _rate(event, relation) == 1:
        event = event.event
    if isinstance(event, RandomAllocation) and _allocation_pair(event, relation).steps == 1:
        return event.event
    return event


def _allocation_pair(event: RandomAllocation, relation: Relation) -> AllocationPair:
    if relation not in (Relation.REPLACE_ONE, Relation.ADD_REMOVE):
        raise InputError(f"RandomAllocation has no meaning under {relation}.")
    if not isinstance(event.event, Gaussian):
        raise UnsupportedError(
            f"The second accountant has no bound for {event}: allocate a Gaussian event."
        )
    ratio = event.event.bound / event.event.std
    return AllocationPair(ratio, event.steps, relation == Relation.REPLACE_ONE)


def pairs_of(event: Event, relation: Relation) -> list[Pair]:
    """The pair of an event that is neither Repeated nor Disjoint, for each group that it knows."""
    if isinstance(event, RandomAllocation):
        return [_allocation_pair(event, relation)]
    if not isinstance(event, _Sampling):
        return [_pair(event, relation)]
    rate, fixed = _rate(event, relation), isinstance(event, FixedSizeSampled)
    pairs: list[Pair] = []
    for base in _base_pairs(event.event, relation):
        if (fixed and base.limits.leak == 0) or relation == Relation.ADD_REMOVE:
            pairs.append(SampledPair(base, rate, fixed))
        elif isinstance(base, NormalPair) and not fixed:
            # The base moves by two contributions, but a draw brings in one.
            pairs.append(PoissonReplacePair(base.mu / 2, rate))
        else:
            raise UnsupportedError(
                f"The second accountant has no bound for {event} under {relation}."
            )
    return pairs


def _base_pairs(event: Event, relation: Relation) -> list[Pair]:
    """The pairs, one for each group of units, of all that happens to one and the same draw."""
    event = simplify(event, relation)
    if isinstance(event, _Sampling):
        raise UnsupportedError("The second accountant has no bound for a sample of a sample.")
    if isinstance(event, Disjoint):
        return _maximal_pairs(pair for part in event.events for pair in _base_pairs(part, relation))
    if isinstance(event, Repeated):
        bases = _base_pairs(event.event, relation)
        if event.times == 1:
            return bases
        # Gaussians, adaptive ones too, are one with the root of the sum of the squares of their mu
        # (Dong, Roth, Su 2022, Cor. 3.3).
        normals = [
            NormalPair(math.sqrt(event.times) * b.mu) for b in bases if isinstance(b, NormalPair)
        ]
        if len(normals) < len(bases):
            raise UnsupportedError(
                "Of events repeated on one draw the second accountant bounds Gaussian ones."
            )
        return _maximal_pairs(normals)
    return [_pair(event, relation)]


def _maximal_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    """The different ones among `pairs`; of Gaussians the largest, their worst."""
    unique = list(dict.fromkeys(pairs))
    largest = max((pair.mu for pair in unique if isinstance(pair, NormalPair)), default=0.0)
    return [pair for pair in unique if not isinstance(pair, NormalPair) or pair.mu == largest]
