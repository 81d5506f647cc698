"""The privacy profile of a list of events: epsilon at a delta, and delta at an epsilon.

The figure comes from the first of these that applies, all of them upper bounds: the exact Gaussian
or Laplace trade-off curve, or that of one random allocation (`allocation.py`); the zCDP conversion;
the exact law of a sum of finitely many loss values (pure and approximate DP); else a privacy loss
distribution on a pessimistic grid (`grid.py`). A sum of pure epsilons is used wherever it is
smaller.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError, UnsupportedError
from privrl.privacy.accounting.allocation import AllocationLoss
from privrl.privacy.accounting.finite_losses import MOST_ATOMS, Atoms, Law, Response, self_compose
from privrl.privacy.accounting.grid import Composition
from privrl.privacy.accounting.losses import (
    Concentrated,
    GaussianShift,
    LaplaceShift,
    Loss,
    concentrated_delta,
    gaussian_delta,
)
from privrl.privacy.accounting.sampled_losses import (
    FixedSize,
    PoissonAddRemove,
    PoissonReplace,
    amplified_epsilon,
    unamplified_losses,
)
from privrl.privacy.accounting.worst_cases import Case, distinct_cases, worst_cases
from privrl.privacy.events import Event, as_events
from privrl.privacy.promise import Relation

# The privacy-loss grid: this fine by default, finer for tiny losses, and at most this many points.
GRID, _FINEST = 1e-4, 1e-8
_MOST_POINTS = 1_000_000


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
    cases = worst_cases(as_events(events), Relation.parse(relation))
    found = [_account_case(tuple(case.items()), delta) for case in cases]
    worst = max(found, key=lambda item: item.epsilon)
    if math.isinf(worst.epsilon):
        raise InputError(_infinite_message(delta, worst.method))
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
    cases = worst_cases(as_events(events), Relation.parse(relation))
    return max(_delta_of_case(tuple(case.items()), epsilon) for case in cases)


def check(events: Event | Iterable[Event], relation: Relation) -> None:
    """Raise unless these events can be accounted for under `relation`."""
    worst_cases(as_events(events), Relation.parse(relation))


def gaussian_mu(events: Event | Iterable[Event], relation: Relation) -> float:
    """The mu with which `events`, all of them Gaussian noise without sampling, are mu-GDP.

    A random allocation is, given the step, which is independent of the data.
    """
    cases = worst_cases(as_events(events), Relation.parse(relation))
    (case, *others) = distinct_cases(map(_reveal_allocations, cases))
    only = next(iter(case), None)
    if others or case.total() > 1 or not isinstance(only, GaussianShift | None):
        raise UnsupportedError("These events are not all Gaussian noise, which this filter needs.")
    return 0.0 if only is None else only.mu


def _reveal_allocations(case: Case) -> Case:
    """The case if the steps of random allocations are told."""
    told: Case = Counter()
    for loss, times in case.items():
        told[loss.known_step_loss if isinstance(loss, AllocationLoss) else loss] += times
    return told


def basic_composition(events: Event | Iterable[Event], relation: Relation) -> tuple[float, float]:
    """The sums of epsilons and of deltas of `events` of pure or approximate DP."""
    worst = 0.0, 0.0
    for case in worst_cases(as_events(events), Relation.parse(relation)):
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


# --- one case -------------------------------------------------------------------------------------


# A fit issues a certificate, and often calibrates its noise, with the same losses every time.
@lru_cache(maxsize=256)
def _account_case(losses: tuple[tuple[Loss, int], ...], delta: float) -> Account:
    """The smallest proven epsilon of one case; infinite when there is none at this delta."""
    case = Counter(dict(losses))
    if not case:
        return Account(0.0, delta, "nothing released")
    pure = Account(largest_loss(case), delta, "sum of pure epsilons")
    if delta == 0.0:
        return pure
    only = next(iter(case)) if case.total() == 1 else None
    if isinstance(only, PoissonAddRemove | FixedSize | PoissonReplace):
        found = _sampled_step_epsilon(only, delta)
        once = Account(found, delta, "exact trade-off of one sampled step")
        return min(pure, once, key=lambda item: item.epsilon)
    if isinstance(only, GaussianShift | AllocationLoss):
        mu = only.mu if isinstance(only, GaussianShift) else only.known_step_loss.mu
        high = mu**2 / 2 + mu * math.sqrt(-2.0 * math.log(delta))
        if isinstance(only, AllocationLoss):
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
    law = _enumerate_law(case)
    if law is not None:
        found = law.epsilon(delta)
        numeric = Account(found, delta, "exact finite loss distribution")
    else:
        found = max(law.epsilon(delta) for law in _compositions(frozenset(case.items())))
        numeric = Account(found, delta, "privacy loss distribution")
    return min(pure, numeric, key=lambda item: item.epsilon)


def _sampled_step_epsilon(
    loss: PoissonAddRemove | FixedSize | PoissonReplace, delta: float
) -> float:
    """The epsilon of a single sampled step, rounded up: closed forms, at any rate."""
    if isinstance(loss, PoissonReplace):
        mu = loss.mu
        # One law exceeds x = mu + sqrt(2 ln 1/delta) with a probability below delta.
        high = amplified_epsilon(mu**2 / 2 + mu * math.sqrt(-2.0 * math.log(delta)), loss.rate)
        return _smallest_epsilon(
            lambda e: float(loss.profile(np.array([e]))[0]), delta, high - math.log1p(-loss.rate)
        )
    inner = math.nextafter(delta / loss.rate, 0.0)
    if inner >= 1.0:
        return 0.0
    base = _account_case(((loss.base, 1),), inner).epsilon
    return amplified_epsilon(base, loss.rate) * (1.0 + 2.0**-49)


@lru_cache(maxsize=1024)
def _delta_of_case(losses: tuple[tuple[Loss, int], ...], epsilon: float) -> float:
    case = Counter(dict(losses))
    if epsilon >= largest_loss(case):
        return 0.0
    only = next(iter(case)) if case.total() == 1 else None
    if isinstance(only, PoissonReplace):
        return float(only.profile(np.array([epsilon]))[0])
    if isinstance(only, PoissonAddRemove | FixedSize):
        inner = float(unamplified_losses(np.array([epsilon]), only.rate)[0]) * (1.0 - 2.0**-49)
        return only.rate * _delta_of_case(((only.base, 1),), inner) * (1.0 + 2.0**-49)
    if isinstance(only, GaussianShift):
        return gaussian_delta(only.mu, epsilon)
    if isinstance(only, AllocationLoss):
        return only.delta(epsilon)
    if isinstance(only, LaplaceShift):
        return float(only.profile(np.array([epsilon]))[0])
    if isinstance(only, Concentrated):
        return float(concentrated_delta(only.rho, np.array([epsilon]))[0])
    law = _enumerate_law(case)
    if law is not None:
        return law.delta(epsilon)
    return max(law.delta(epsilon) for law in _compositions(frozenset(case.items())))


def largest_loss(case: Case) -> float:
    """The sum of pure epsilons, infinite if there is none."""
    return sum((n * loss.largest for loss, n in case.items()), 0.0)


def _infinite_message(delta: float, method: str) -> str:
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


# --- cases of finite losses, and cases on a grid --------------------------------------------------


def _enumerate_law(case: Case) -> Law | None:
    """The exact law of a case made of finite losses, or None when it is not, or is too large."""
    values, log_masses, log_kept = np.zeros(1), np.zeros(1), 0.0
    for loss, times in case.items():
        part = self_compose(loss, times) if isinstance(loss, Atoms) else None
        if not isinstance(loss, Atoms) or part is None or values.size * part[0].size > MOST_ATOMS:
            return None
        values = np.add.outer(values, part[0]).ravel()
        log_masses = np.add.outer(log_masses, part[1]).ravel()
        log_kept += times * math.log1p(-loss.leak)
    return Law(values, log_masses, -math.expm1(log_kept))


def _interval(case: Case) -> float:
    """A grid fine enough for the smallest loss and coarse enough for the largest and their sum."""
    smallest = min(loss.spread for loss in case)
    mean = sum(n * loss.spread**2 / 2 for loss, n in case.items())
    reach = 24.0 * math.sqrt(2.0 * mean)
    widest = max(loss.upper_truncation - loss.lower_truncation for loss in case)
    wanted = min(max(smallest / 10.0, _FINEST), GRID)
    wanted = max(wanted, reach / (2 * _MOST_POINTS), widest / _MOST_POINTS)
    # A round figure, so that the same events always meet the same grid.
    digit = 10.0 ** math.floor(math.log10(wanted) + 1e-9)
    return max(d * digit for d in (1.0, 2.0, 5.0) if d * digit <= wanted * (1.0 + 1e-9))


@lru_cache(maxsize=64)
def _compositions(case: frozenset[tuple[Loss, int]]) -> tuple[Composition, ...]:
    """The composition of a case, and that of the reversed pairs if it is another."""
    interval = _interval(Counter(dict(case)))
    pairs = [(loss.on_grid(interval), times) for loss, times in sorted(case, key=repr)]
    forward = Composition([(pair.law, times) for pair, times in pairs])
    if all(pair.reverse is None for pair, _ in pairs):
        return (forward,)
    return forward, Composition([(pair.reverse or pair.law, times) for pair, times in pairs])
