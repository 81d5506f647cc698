"""From events to epsilon: the first accountant.

    epsilon(events, delta, relation)    delta(events, epsilon, relation)    calibrate(build, budget)

The way of a list of events through this module:

1. `_worst_cases` flattens it into *losses* (`losses.py`): privacy-loss laws of pairs of inputs that
   dominate each event under the relation, with a count each. Sensitivity is decided here and
   nowhere else (`movement`), and counts are only ever multiplied here.
2. Losses of one family are merged exactly (Gaussians into one Gaussian, zCDP into one zCDP).
3. The figure comes from the first of these that applies, all of them upper bounds:
   the exact Gaussian or Laplace trade-off curve, or that of one random allocation
   (`allocation.py`); the zCDP conversion; the exact law of a sum of
   finitely many loss values (pure and approximate DP); else a privacy loss distribution on a
   pessimistic grid (`grid.py`). A sum of pure epsilons is used wherever it is smaller.

Composition is adaptive in all of them (Zhu, Dong, Wang 2022: the composition of dominating pairs
dominates the composition). dp-accounting is compared with in tests, not used: version 0.6 forgets
the factor 2 of replace-one on its Renyi side and the count of randomised responses on its PLD side,
and its convolution loses small deltas to round-off.
`second_accountant` recomputes brackets for every figure and shares no code with this module.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, product

import numpy as np

from privrl.core import checks
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
    as_events,
)
from privrl.privacy.grid import Composition
from privrl.privacy.losses import (
    MOST_ATOMS,
    TAIL_SDS,
    Allocated,
    Atoms,
    Concentrated,
    DiscreteGaussianShift,
    DiscreteLaplaceShift,
    FixedSize,
    GaussianShift,
    LaplaceShift,
    Law,
    Loss,
    PoissonAddRemove,
    PoissonReplace,
    Response,
    Simple,
    amplified,
    before_sampling,
    concentrated_delta,
    gaussian_delta,
    sum_of,
)
from privrl.privacy.promise import Budget, Relation

# The privacy-loss grid: this fine by default, finer for tiny losses, and at most this many points.
GRID, _FINEST = 1e-4, 1e-8
_MOST_POINTS = 1_000_000
# How many combinations of groups of `Disjoint` events are compared before giving up.
_MOST_COMBINATIONS = 256


def movement(bound: float, relation: Relation) -> float:
    """How far a sum moves between neighbours when each unit contributes at most `bound`."""
    return 2.0 * bound if relation in (Relation.REPLACE_ONE, Relation.LOCAL) else bound


# --- from events to losses ------------------------------------------------------------------------

_Case = Counter[Loss]


def _worst_cases(events: tuple[Event, ...], relation: Relation) -> list[_Case]:
    """What one unit may have lost: one case for each way of belonging to `Disjoint` groups."""
    common: _Case = Counter()
    choices = []
    for event, times in Counter(events).items():
        parts = _cases_of(event, times, relation)
        if len(parts) == 1:
            common.update(parts[0])
        else:
            choices.append(parts)
    cases = _distinct([common])
    for parts in choices:
        cases = _distinct(a + b for a, b in product(cases, parts))
    return cases


def _cases_of(event: Event, times: int, relation: Relation) -> list[_Case]:
    if isinstance(event, Repeated):
        return _cases_of(event.event, times * event.times, relation)
    if isinstance(event, Disjoint):
        return _cases_of_groups(event, times, relation)
    if isinstance(event, PoissonSampled | FixedSizeSampled):
        return _sampled(event, times, relation)
    if isinstance(event, RandomAllocation):
        return [Counter({_allocated(event, relation): times})]
    loss = _loss_of(event, relation)
    return [Counter() if loss is None else Counter({loss: times})]


def _cases_of_groups(event: Disjoint, times: int, relation: Relation) -> list[_Case]:
    groups = _distinct(case for part in event.events for case in _cases_of(part, 1, relation))
    if len(groups) > 1 and math.comb(times + len(groups) - 1, times) > _MOST_COMBINATIONS:
        raise UnsupportedError(
            "Too many ways to belong to the groups of Disjoint events: give the groups equal "
            "noise, or list the worst group only."
        )
    if len(groups) == 1:
        return [Counter({loss: n * times for loss, n in groups[0].items()})]
    chosen = combinations_with_replacement(groups, times)
    return _distinct(sum(choice, Counter()) for choice in chosen)


def _distinct(cases: Iterable[_Case]) -> list[_Case]:
    """Cases without repetition, Gaussian-only ones reduced to the worst of them."""
    found: dict[frozenset[tuple[Loss, int]], _Case] = {}
    for case in cases:
        merged = _merged(case)
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


def _merged(case: _Case) -> _Case:
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
            return GaussianShift(_ratio(event, movement(bound, relation), std))
        case Laplace(scale, bound):
            return LaplaceShift(_ratio(event, movement(bound, relation), scale))
        case DiscreteGaussian(std, bound, dimension):
            moved = movement(bound, relation)
            if moved < 1.0:
                return None  # integer vectors that differ are at least one step apart
            if dimension == 1 and 2 * TAIL_SDS * std < MOST_ATOMS:
                return DiscreteGaussianShift(std, math.floor(moved))
            if dimension == 1:
                moved = math.floor(moved)
            return Concentrated(_ratio(event, moved, std) ** 2 / 2.0)
        case DiscreteLaplace(scale, bound):
            steps = math.floor(movement(bound, relation))
            if steps == 0:
                return None
            if steps > MOST_ATOMS:
                return Response(_ratio(event, steps, scale))
            return DiscreteLaplaceShift(_ratio(event, 1.0, scale), steps)
        case RandomizedResponse(epsilon, categories=categories):
            _same_relation(event, event.relation, relation)
            return Response(epsilon, categories)
        case PureDP(epsilon):
            _same_relation(event, event.relation, relation)
            return Response(epsilon)
        case ApproxDP(epsilon, delta):
            _same_relation(event, event.relation, relation)
            return Response(epsilon, told=delta)
    raise UnsupportedError(f"{type(event).__name__} is not an event the accountant knows.")


def _ratio(event: Event, moved: float, noise: float) -> float:
    """Movement over noise, unless nothing can be computed from it."""
    ratio = moved / noise if noise > 1e-150 * moved else math.inf
    if not 1e-150 < ratio < 1e150:
        raise InputError(f"The noise of {event} is out of proportion to its bound.")
    return ratio


def _same_relation(event: Event, held: Relation, asked: Relation) -> None:
    # A locally private report is also private under replace-one: one unit, one report.
    if held is asked or (held is Relation.LOCAL and asked is Relation.REPLACE_ONE):
        return
    raise InputError(
        f"{type(event).__name__} holds under the relation {held}, and {asked} was asked for."
    )


def _sampled(
    event: PoissonSampled | FixedSizeSampled, times: int, relation: Relation
) -> list[_Case]:
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
    case, *others = _distinct(_cases_of(event.event, 1, inner))
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


def _allocated(event: RandomAllocation, relation: Relation) -> Loss:
    if relation in (Relation.LOCAL, Relation.REWARD_RADIUS):
        raise InputError(
            f"RandomAllocation means nothing under {relation}: every report or reward may change."
        )
    if not isinstance(event.event, Gaussian):
        raise UnsupportedError(
            f"No proven bound is implemented for {event}: allocate a single Gaussian event."
        )
    # The old unit and the new one are in steps of their own: half of the movement each.
    exchanged = relation is Relation.REPLACE_ONE
    moved = movement(event.event.bound, relation) / (2.0 if exchanged else 1.0)
    mu = _ratio(event, moved, event.event.std)
    loss = Allocated(mu, event.steps, exchanged)
    return loss.known if event.steps == 1 or mu > _LARGEST_ALLOCATED else loss


# --- cases of finite losses, and cases on a grid --------------------------------------------------


def _enumerated(case: _Case) -> Law | None:
    """The exact law of a case made of finite losses, or None when it is not, or is too large."""
    values, log_masses, log_kept = np.zeros(1), np.zeros(1), 0.0
    for loss, times in case.items():
        part = sum_of(loss, times) if isinstance(loss, Atoms) else None
        if not isinstance(loss, Atoms) or part is None or values.size * part[0].size > MOST_ATOMS:
            return None
        values = np.add.outer(values, part[0]).ravel()
        log_masses = np.add.outer(log_masses, part[1]).ravel()
        log_kept += times * math.log1p(-loss.leak)
    return Law(values, log_masses, -math.expm1(log_kept))


def _interval(case: _Case) -> float:
    """A grid fine enough for the smallest loss and coarse enough for the largest and their sum."""
    smallest = min(loss.spread for loss in case)
    mean = sum(n * loss.spread**2 / 2 for loss, n in case.items())
    reach = 24.0 * math.sqrt(2.0 * mean)
    widest = max(loss.far - loss.near for loss in case)
    wanted = min(max(smallest / 10.0, _FINEST), GRID)
    wanted = max(wanted, reach / (2 * _MOST_POINTS), widest / _MOST_POINTS)
    # A round figure, so that the same events always meet the same grid.
    digit = 10.0 ** math.floor(math.log10(wanted) + 1e-9)
    return max(d * digit for d in (1.0, 2.0, 5.0) if d * digit <= wanted * (1.0 + 1e-9))


@lru_cache(maxsize=64)
def _composed(case: frozenset[tuple[Loss, int]]) -> tuple[Composition, ...]:
    """The composition of a case, and that of the reversed pairs if it is another."""
    interval = _interval(Counter(dict(case)))
    pairs = [(loss.on_grid(interval), times) for loss, times in sorted(case, key=repr)]
    forward = Composition([(pair.law, times) for pair, times in pairs])
    if all(pair.reverse is None for pair, _ in pairs):
        return (forward,)
    return forward, Composition([(pair.reverse or pair.law, times) for pair, times in pairs])


# --- the questions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Account:
    """An epsilon (or delta) with the way it was found."""

    epsilon: float
    delta: float
    method: str


def account(
    events: Event | Iterable[Event], delta: float, relation: Relation = Relation.REPLACE_ONE
) -> Account:
    """The epsilon of `events` at `delta`, and by which method."""
    delta = checks.probability("delta", delta)
    listed, relation = as_events(events), Relation.parse(relation)
    cases = _worst_cases(listed, relation)
    found = [_account_case(tuple(case.items()), delta) for case in cases]
    worst = max(found, key=lambda item: item.epsilon)
    if math.isinf(worst.epsilon):
        raise InputError(_why_infinite(listed, delta, worst.method))
    return worst


def epsilon(
    events: Event | Iterable[Event], delta: float, relation: Relation = Relation.REPLACE_ONE
) -> float:
    """The epsilon for which all `events` together are (epsilon, delta)-DP under `relation`."""
    return account(events, delta, relation).epsilon


def delta(
    events: Event | Iterable[Event], epsilon: float, relation: Relation = Relation.REPLACE_ONE
) -> float:
    """The delta for which all `events` together are (epsilon, delta)-DP under `relation`."""
    epsilon = checks.non_negative("epsilon", epsilon)
    cases = _worst_cases(as_events(events), Relation.parse(relation))
    return max(_delta_of_case(tuple(case.items()), epsilon) for case in cases)


def check(events: Event | Iterable[Event], relation: Relation) -> None:
    """Raise unless these events can be accounted for under `relation`."""
    _worst_cases(as_events(events), Relation.parse(relation))


def gaussian_mu(events: Event | Iterable[Event], relation: Relation) -> float:
    """The mu with which `events`, all of them Gaussian noise without sampling, are mu-GDP.

    A random allocation is, given the step, which is independent of the data.
    """
    cases = _worst_cases(as_events(events), Relation.parse(relation))
    (case, *others) = _distinct(map(_told, cases))
    only = next(iter(case), None)
    if others or case.total() > 1 or not isinstance(only, GaussianShift | None):
        raise UnsupportedError("These events are not all Gaussian noise, which this filter needs.")
    return 0.0 if only is None else only.mu


def _told(case: _Case) -> _Case:
    """The case if the steps of random allocations are told."""
    told: _Case = Counter()
    for loss, times in case.items():
        told[loss.known if isinstance(loss, Allocated) else loss] += times
    return told


def sums(events: Event | Iterable[Event], relation: Relation) -> tuple[float, float]:
    """The sums of epsilons and of deltas of `events` of pure or approximate DP."""
    worst = 0.0, 0.0
    for case in _worst_cases(as_events(events), Relation.parse(relation)):
        epsilons = deltas = 0.0
        for loss, times in case.items():
            if isinstance(loss, Response):
                epsilons, deltas = epsilons + times * loss.epsilon, deltas + times * loss.told
            elif math.isfinite(loss.largest):
                epsilons += times * loss.largest
            else:
                raise UnsupportedError(
                    "These events have no pure or approximate epsilon of their own to add up."
                )
        worst = max(worst[0], epsilons), max(worst[1], deltas)
    return worst


def _sum_of_largest(case: _Case) -> float:
    return sum((n * loss.largest for loss, n in case.items()), 0.0)


# A fit issues a certificate, and often calibrates its noise, with the same losses every time.
@lru_cache(maxsize=256)
def _account_case(losses: tuple[tuple[Loss, int], ...], delta: float) -> Account:
    """The smallest proven epsilon of one case; infinite when there is none at this delta."""
    case = Counter(dict(losses))
    if not case:
        return Account(0.0, delta, "nothing released")
    pure = Account(_sum_of_largest(case), delta, "sum of pure epsilons")
    if delta == 0.0:
        return pure
    only = next(iter(case)) if case.total() == 1 else None
    if isinstance(only, PoissonAddRemove | FixedSize | PoissonReplace):
        found = _sampled_once(only, delta)
        once = Account(found, delta, "exact trade-off of one sampled step")
        return min(pure, once, key=lambda item: item.epsilon)
    if isinstance(only, GaussianShift | Allocated):
        mu = only.mu if isinstance(only, GaussianShift) else only.known.mu
        high = mu**2 / 2 + mu * math.sqrt(-2.0 * math.log(delta))
        if isinstance(only, Allocated):
            return Account(only.epsilon(delta, high), delta, "random allocation's own trade-off")
        found = _smallest_epsilon(lambda e: gaussian_delta(mu, e), delta, high)
        return Account(found, delta, "exact Gaussian trade-off")
    if isinstance(only, LaplaceShift):
        # delta(epsilon) = 1 - e^((epsilon - t)/2)
        return Account(
            max(0.0, only.t + 2.0 * math.log1p(-delta)), delta, "exact Laplace trade-off"
        )
    if isinstance(only, Concentrated):
        rho = only.rho
        high = rho + 2.0 * math.sqrt(-rho * math.log(delta))
        found = _smallest_epsilon(
            lambda e: float(concentrated_delta(rho, np.array([e]))[0]), delta, high
        )
        return Account(found, delta, "zCDP conversion")
    law = _enumerated(case)
    if law is not None:
        found = law.epsilon(delta)
        numeric = Account(found, delta, "exact finite loss distribution")
    else:
        found = max(law.epsilon(delta) for law in _composed(frozenset(case.items())))
        numeric = Account(found, delta, "privacy loss distribution")
    return min(pure, numeric, key=lambda item: item.epsilon)


def _sampled_once(loss: PoissonAddRemove | FixedSize | PoissonReplace, delta: float) -> float:
    """The epsilon of a single sampled step, rounded up: closed forms, at any rate."""
    if isinstance(loss, PoissonReplace):
        mu = loss.mu
        # One law exceeds x = mu + sqrt(2 ln 1/delta) with a probability below delta.
        high = amplified(mu**2 / 2 + mu * math.sqrt(-2.0 * math.log(delta)), loss.rate)
        return _smallest_epsilon(
            lambda e: float(loss.profile(np.array([e]))[0]), delta, high - math.log1p(-loss.rate)
        )
    inner = math.nextafter(delta / loss.rate, 0.0)
    if inner >= 1.0:
        return 0.0
    base = _account_case(((loss.base, 1),), inner).epsilon
    return amplified(base, loss.rate) * (1.0 + 2.0**-49)


@lru_cache(maxsize=1024)
def _delta_of_case(losses: tuple[tuple[Loss, int], ...], epsilon: float) -> float:
    case = Counter(dict(losses))
    if epsilon >= _sum_of_largest(case):
        return 0.0
    only = next(iter(case)) if case.total() == 1 else None
    if isinstance(only, PoissonReplace):
        return float(only.profile(np.array([epsilon]))[0])
    if isinstance(only, PoissonAddRemove | FixedSize):
        inner = float(before_sampling(np.array([epsilon]), only.rate)[0]) * (1.0 - 2.0**-49)
        return only.rate * _delta_of_case(((only.base, 1),), inner) * (1.0 + 2.0**-49)
    if isinstance(only, GaussianShift):
        return gaussian_delta(only.mu, epsilon)
    if isinstance(only, Allocated):
        return only.delta(epsilon)
    if isinstance(only, LaplaceShift):
        return float(only.profile(np.array([epsilon]))[0])
    if isinstance(only, Concentrated):
        return float(concentrated_delta(only.rho, np.array([epsilon]))[0])
    law = _enumerated(case)
    if law is not None:
        return law.delta(epsilon)
    return max(law.delta(epsilon) for law in _composed(frozenset(case.items())))


def _why_infinite(events: tuple[Event, ...], delta: float, method: str) -> str:
    if delta == 0.0:
        return "delta must be above 0: these events have no finite epsilon at delta 0."
    return (
        f"No finite epsilon at delta {delta:g}: the events leak more than that outright, "
        f"or it is below what {method} resolves."
    )


def _smallest_epsilon(delta_at: Callable[[float], float], delta: float, high: float) -> float:
    """The smallest epsilon >= 0 with delta_at(epsilon) <= delta, given that `high` suffices."""
    if delta_at(0.0) <= delta:
        return 0.0
    low = 0.0
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if delta_at(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


# --- calibration ----------------------------------------------------------------------------------

# Parameters are searched for between these; beyond them a scale is a mistake, not a setting.
_SMALLEST, _LARGEST = 1e-12, 1e15


def calibrate(
    build: Callable[[float], Event | Iterable[Event]],
    budget: Budget,
    relation: Relation = Relation.REPLACE_ONE,
    *,
    tolerance: float = 1e-6,
    whole: bool = False,
) -> float:
    """The parameter with which `build(parameter)` just stays within `budget`.

    `build` turns a positive number into events: a noise scale, and the smallest sufficient one is
    returned; or, seen by trying, something that costs more the larger it is (a number of steps, a
    rate, a bound), and the largest affordable one is returned. The cost must be monotone. `whole`
    asks for a whole number, which `build` then receives as an int. What is returned has been
    accounted for itself and does not overspend; it is within `tolerance`, relatively, of one that
    would (or within 1, if whole).
    """
    tolerance = checks.positive("tolerance", tolerance)
    relation = Relation.parse(relation)
    seen: dict[float, float] = {}

    def margin(parameter: float) -> float:
        """Above 0 where the budget is overspent, rising and falling smoothly where that can be."""
        if parameter not in seen:
            events = build(int(parameter) if whole else parameter)
            if budget.delta == 0.0:
                spent = max(_sum_of_largest(c) for c in _worst_cases(as_events(events), relation))
                seen[parameter] = min(spent / budget.epsilon - 1.0, 50.0)
            else:
                spent = delta(events, budget.epsilon, relation) / budget.delta
                seen[parameter] = max(math.log(spent), -50.0) if spent > 0.0 else -50.0
        return seen[parameter]

    good, bad = _bracket(margin, _start(margin, whole), 1.0 if whole else _SMALLEST)
    if whole:
        while abs(good - bad) > 1.0:
            middle = float((int(good) + int(bad)) // 2)
            good, bad = (middle, bad) if margin(middle) <= 0.0 else (good, middle)
        return int(good)
    return _root(margin, good, bad, tolerance)


def _start(margin: Callable[[float], float], whole: bool) -> float:
    """A parameter that `build` accepts: 1, or else the next power of two that is one."""
    powers = [*range(41), *(() if whole else range(-1, -41, -1))]
    refusal: InputError | None = None
    for parameter in (math.ldexp(1.0, power) for power in powers):
        try:
            margin(parameter)
        except InputError as error:
            refusal = refusal or error
        else:
            return parameter
    raise refusal or InputError("No parameter was accepted.")


def _bracket(
    margin: Callable[[float], float], begin: float, smallest: float
) -> tuple[float, float]:
    """An affordable parameter and one that is not, at most a factor of two apart."""
    start = margin(begin)
    affordable = start <= 0.0
    # Both ways in turn, each until it is seen to lead away from the edge or to its end.
    ways = {2.0: begin, 0.5: begin}
    while ways:
        for factor, inside in list(ways.items()):
            step = inside * factor
            try:
                at_step = margin(step) if smallest <= step <= _LARGEST else None
            except InputError:
                at_step = None  # `build` refuses: a rate above 1, a batch above the population
            if at_step is not None and (at_step <= 0.0) is not affordable:
                return (inside, step) if affordable else (step, inside)
            leads_away = at_step is not None and (at_step - start) * (-1 if affordable else 1) > 0.0
            if at_step is None or leads_away:
                del ways[factor]
            else:
                ways[factor] = step
    if affordable:
        raise InputError("Every parameter stays within the budget: there is nothing to choose.")
    raise InputError("No parameter stays within the budget.")


def _root(margin: Callable[[float], float], good: float, bad: float, tolerance: float) -> float:
    """A parameter with margin at most 0, within `tolerance` of the edge between good and bad."""
    from scipy.optimize import brentq

    share = float(brentq(lambda x: margin(good * (bad / good) ** x), 0.0, 1.0, xtol=tolerance / 4))
    # Brent's last point may lie on the wrong side: step back in halves of what is tolerated.
    step = tolerance / 2 / abs(math.log(bad / good))
    while share > 0.0 and margin(good * (bad / good) ** share) > 0.0:
        share = max(0.0, share - step)
    return float(good * (bad / good) ** share)
