"""From events to worst cases: dominating losses, with a count each, of one unit under a relation.

Sensitivity is decided here and nowhere else (`sensitivity`), and counts are only ever multiplied
here. Losses of one family are merged exactly (Gaussians into one Gaussian, zCDP into one zCDP).
"""

import math
from collections import Counter
from collections.abc import Iterable
from itertools import combinations_with_replacement, product

from privrl.core.errors import InputError, UnsupportedError
from privrl.privacy.accounting.allocation import AllocationLoss
from privrl.privacy.accounting.finite_losses import (
    MOST_ATOMS,
    DiscreteGaussianShift,
    DiscreteLaplaceShift,
    Response,
)
from privrl.privacy.accounting.losses import (
    TAIL_SDS,
    Concentrated,
    GaussianShift,
    LaplaceShift,
    Loss,
)
from privrl.privacy.accounting.sampled_losses import (
    FixedSize,
    PoissonAddRemove,
    PoissonReplace,
    Simple,
)
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

# How many combinations of groups of `Disjoint` events are compared before giving up.
_MOST_COMBINATIONS = 256


def sensitivity(bound: float, relation: Relation) -> float:
    """How far a sum moves between neighbours when each unit contributes at most `bound`."""
    return 2.0 * bound if relation in (Relation.REPLACE_ONE, Relation.LOCAL) else bound


Case = Counter[Loss]


def worst_cases(events: tuple[Event, ...], relation: Relation) -> list[Case]:
    """What one unit may have lost: one case for each way of belonging to `Disjoint` groups."""
    common: Case = Counter()
    choices = []
    for event, times in Counter(events).items():
        parts = _cases_of(event, times, relation)
        if len(parts) == 1:
            common.update(parts[0])
        else:
            choices.append(parts)
    cases = distinct_cases([common])
    for parts in choices:
        cases = distinct_cases(a + b for a, b in product(cases, parts))
    return cases


def _cases_of(event: Event, times: int, relation: Relation) -> list[Case]:
    if isinstance(event, Repeated):
        return _cases_of(event.event, times * event.times, relation)
    if isinstance(event, Disjoint):
        return _cases_of_groups(event, times, relation)
    if isinstance(event, PoissonSampled | FixedSizeSampled):
        return _sampled_cases(event, times, relation)
    if isinstance(event, RandomAllocation):
        return [Counter({_allocation_loss(event, relation): times})]
    loss = _loss_of(event, relation)
    return [Counter() if loss is None else Counter({loss: times})]


def _cases_of_groups(event: Disjoint, times: int, relation: Relation) -> list[Case]:
    groups = distinct_cases(case for part in event.events for case in _cases_of(part, 1, relation))
    if len(groups) > 1 and math.comb(times + len(groups) - 1, times) > _MOST_COMBINATIONS:
        raise UnsupportedError(
            "Too many ways to belong to the groups of Disjoint events: give the groups equal "
            "noise, or list the worst group only."
        )
    if len(groups) == 1:
        return [Counter({loss: n * times for loss, n in groups[0].items()})]
    chosen = combinations_with_replacement(groups, times)
    return distinct_cases(sum(choice, Counter()) for choice in chosen)


def distinct_cases(cases: Iterable[Case]) -> list[Case]:
    """Cases without repetition, Gaussian-only ones reduced to the worst of them."""
    found: dict[frozenset[tuple[Loss, int]], Case] = {}
    for case in cases:
        merged = _merge_losses(case)
        found.setdefault(frozenset(merged.items()), merged)
        if len(found) > _MOST_COMBINATIONS:
            raise UnsupportedError(
                "Too many ways to belong to the groups of Disjoint events: give the groups equal "
                "noise, or list the worst group only."
            )
    gaussian = [c for c in found.values() if all(isinstance(x, GaussianShift) for x in c)]
    others = [c for c in found.values() if c not in gaussian]
    worst = max(gaussian, key=lambda c: max((x.spread for x in c), default=0.0), default=None)
    return others if worst is None or (not worst and others) else [worst, *others]


def _merge_losses(case: Case) -> Case:
    """All Gaussians as one, all zCDP as one; both are exact."""
    squares = sum(n * x.mu**2 for x, n in case.items() if isinstance(x, GaussianShift))
    rho = sum(n * x.rho for x, n in case.items() if isinstance(x, Concentrated))
    rest = Counter(
        {x: n for x, n in case.items() if not isinstance(x, GaussianShift | Concentrated)}
    )
    if squares > 0.0:
        rest[GaussianShift(math.sqrt(squares))] = 1
    if rho > 0.0:
        rest[Concentrated(rho)] = 1
    return rest


def _loss_of(event: Event, relation: Relation) -> Loss | None:
    """The loss of an event that stands for itself; None when nothing can be lost."""
    match event:
        case Gaussian(std, bound):
            return GaussianShift(_ratio(event, sensitivity(bound, relation), std))
        case Laplace(scale, bound):
            return LaplaceShift(_ratio(event, sensitivity(bound, relation), scale))
        case DiscreteGaussian(std, bound, dimension):
            moved = sensitivity(bound, relation)
            if moved < 1.0:
                return None  # integer vectors that differ are at least one step apart
            if dimension == 1 and 2 * TAIL_SDS * std < MOST_ATOMS:
                return DiscreteGaussianShift(std, math.floor(moved))
            if dimension == 1:
                moved = math.floor(moved)
            return Concentrated(_ratio(event, moved, std) ** 2 / 2.0)
        case DiscreteLaplace(scale, bound):
            steps = math.floor(sensitivity(bound, relation))
            if steps == 0:
                return None
            if steps > MOST_ATOMS:
                return Response(_ratio(event, steps, scale))
            return DiscreteLaplaceShift(_ratio(event, 1.0, scale), steps)
        case RandomizedResponse(epsilon, categories=categories):
            _check_relation(event, event.relation, relation)
            return Response(epsilon, categories)
        case PureDP(epsilon):
            _check_relation(event, event.relation, relation)
            return Response(epsilon)
        case ApproxDP(epsilon, delta):
            _check_relation(event, event.relation, relation)
            return Response(epsilon, told=delta)
    raise UnsupportedError(f"{type(event).__name__} is not an event the accountant knows.")


def _ratio(event: Event, moved: float, noise: float) -> float:
    """Movement over noise, unless nothing can be computed from it."""
    ratio = moved / noise if noise > 1e-150 * moved else math.inf
    if not 1e-150 < ratio < 1e150:
        raise InputError(f"The noise of {event} is out of proportion to its bound.")
    return ratio


def _check_relation(event: Event, held: Relation, asked: Relation) -> None:
    # A locally private report is also private under replace-one: one unit, one report.
    if held is asked or (held is Relation.LOCAL and asked is Relation.REPLACE_ONE):
        return
    raise InputError(
        f"{type(event).__name__} holds under the relation {held}, and {asked} was asked for."
    )


def _sampled_cases(
    event: PoissonSampled | FixedSizeSampled, times: int, relation: Relation
) -> list[Case]:
    kind = type(event).__name__
    if relation in (Relation.LOCAL, Relation.REWARD_RADIUS):
        raise InputError(f"{kind} means nothing under {relation}: no unit is left out by sampling.")
    if isinstance(event, FixedSizeSampled):
        if relation is not Relation.REPLACE_ONE:
            raise InputError(
                f"FixedSizeSampled needs the relation replace-one, not {relation}: "
                "a fixed batch size makes the number of units public."
            )
        rate = event.batch / event.population
    else:
        rate = event.rate
    if rate == 1.0:
        return _cases_of(event.event, times, relation)
    poisson_replace = isinstance(event, PoissonSampled) and relation is Relation.REPLACE_ONE
    # Under Poisson sampling a unit that is not drawn is simply absent, so the conditional laws are
    # one contribution apart, not two; `PoissonReplace` puts the two sides together.
    inner = Relation.ADD_REMOVE if poisson_replace else relation
    case, *others = distinct_cases(_cases_of(event.event, 1, inner))
    base = next(iter(case), None)
    if base is None and not others:
        return [case]  # nothing to lose, sampled or not
    if others or case.total() > 1 or not isinstance(base, Simple):
        raise UnsupportedError(
            f"No proven bound is implemented for {event}: sample a single simple event, "
            "or several Gaussian ones."
        )
    if isinstance(event, FixedSizeSampled) and isinstance(base, Response) and base.told > 0.0:
        raise UnsupportedError(
            f"No proven bound is implemented for {event}: sample a pure guarantee instead."
        )
    if not poisson_replace:
        wrap = PoissonAddRemove if isinstance(event, PoissonSampled) else FixedSize
        return [Counter({wrap(base, rate): times})]
    if not isinstance(base, GaussianShift):
        raise UnsupportedError(
            f"No proven bound is implemented for {event} under replace-one: use Gaussian noise."
        )
    return [Counter({PoissonReplace(base.mu, rate): times})]


# Where a contribution is larger than this against the noise, a secret step is charged as known.
_LARGEST_ALLOCATED = 10.0


def _allocation_loss(event: RandomAllocation, relation: Relation) -> Loss:
    if relation in (Relation.LOCAL, Relation.REWARD_RADIUS):
        raise InputError(
            f"RandomAllocation means nothing under {relation}: every report or reward may change."
        )
    if not isinstance(event.event, Gaussian):
        raise UnsupportedError(
            f"No proven bound is implemented for {event}: allocate a single Gaussian event."
        )
    # The old unit and the new one are in steps of their own: half of the sensitivity each.
    exchanged = relation is Relation.REPLACE_ONE
    moved = sensitivity(event.event.bound, relation) / (2.0 if exchanged else 1.0)
    mu = _ratio(event, moved, event.event.std)
    loss = AllocationLoss(mu, event.steps, exchanged)
    return loss.known_step_loss if event.steps == 1 or mu > _LARGEST_ALLOCATED else loss
