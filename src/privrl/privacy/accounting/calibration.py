"""Calibration: the noise, or the number of steps, with which events just stay within a budget."""

import math
from collections.abc import Callable, Iterable

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.privacy.accounting.privacy_profile import delta, largest_loss
from privrl.privacy.accounting.roots import brent
from privrl.privacy.accounting.worst_cases import worst_cases
from privrl.privacy.events import Event, as_events
from privrl.privacy.promise import Budget, Relation

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
                spent = max(largest_loss(c) for c in worst_cases(as_events(events), relation))
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
    share = brent(lambda x: margin(good * (bad / good) ** x), 0.0, 1.0, tolerance / 4)
    # Brent's last point may lie on the wrong side: step back in halves of what is tolerated.
    step = tolerance / 2 / abs(math.log(bad / good))
    while share > 0.0 and margin(good * (bad / good) ** share) > 0.0:
        share = max(0.0, share - step)
    return float(good * (bad / good) ** share)
