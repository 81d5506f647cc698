"""Which reading is judged: the one that is nearest to what is printed on seeds 0 to 9.

The distance of a reading is the mean, over all printed numbers of all targets that share the
experiment, of |ours - printed| on the number's scale, in units of what may separate them (its
tolerance and the printed number's standard error, at least 1e-9), cut at 10; a number that the
reading does not give counts as 10. Where nothing is printed all are judged, and the verdict is that
of the first, unless the experiment says that readings are chosen by differences: then the distance
is the mean, over all differences that count, of what is missing to the smallest difference of
interest (or, for "same", of what is beyond the margin), as a share of it, cut at 10.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from privrl.papers.reproduce.estimate import Estimates, estimates, on_scale, printed_error
from privrl.papers.reproduce.results import Results
from privrl.papers.reproduce.target import FIRST_JUDGED, Difference, Reading, Target
from privrl.papers.reproduce.verdict import Verdict, judge

_MOST = 10.0


@dataclass(frozen=True)
class ReadingOutcome:
    """What became of one reading."""

    reading: Reading
    distance: float | None
    """On seeds 0 to 9; None if it was not run there."""

    verdict: Verdict | None
    """On seeds from 100 on; None if it was not judged."""


@dataclass(frozen=True)
class Finding:
    """A target with its verdict: that of the chosen reading."""

    target: Target
    results: Results
    chosen: Reading
    verdict: Verdict
    readings: tuple[ReadingOutcome, ...]
    is_reduced: bool


def distance(targets: Iterable[Target], results: Results, reading: Reading) -> float | None:
    """How far a reading is from what is printed on the seeds that choose."""
    rows = list(results.rows(reading, results.experiment.selection.is_reduced))
    plan = results.experiment.selection
    if not any(row["seed"] in plan.seeds for row in rows):
        return None
    apart = []
    for target in targets:
        found = estimates(target, rows, plan.seeds)
        for quantity in target.compared:
            assert quantity.printed is not None
            ours = found.get(quantity.name)
            if ours is None:
                apart.append(_MOST)
                continue
            between = abs(
                on_scale(quantity, ours.value) - on_scale(quantity, quantity.printed.value)
            )
            unit = max(quantity.tolerance + printed_error(quantity), 1e-9)
            apart.append(min(_MOST, between / unit))
        if results.experiment.choose_by == "differences" and not target.compared:
            apart += [_missing(target, one, found) for one in target.differences if one.counts]
    return math.fsum(apart) / len(apart) if apart else None


def _missing(target: Target, one: Difference, found: Estimates) -> float:
    """What a difference lacks of the smallest that is of interest, as a share of it."""
    if one.least is None or not set(one.weights) <= set(found):
        return _MOST
    named = target.by_name
    value = sum(w * on_scale(named[name], found[name].value) for name, w in one.weights.items())
    if one.expected == "same":
        return min(_MOST, max(0.0, abs(value) / one.least - 1.0))
    return min(_MOST, max(0.0, (one.least - value) / (one.least - one.beyond)))


def choose(targets: Sequence[Target], results: Results) -> Reading:
    """The nearest reading, the first of them if several are; as printed if none was tried."""
    readings = results.experiment.readings
    found = {one.name: distance(targets, results, one) for one in readings}
    return min(readings, key=lambda one: math.inf if (d := found[one.name]) is None else d)


def evaluate(target: Target, results: Results, sharing: Sequence[Target]) -> Finding:
    """The verdict on a target; `sharing` are all targets of its experiment."""
    experiment = results.experiment
    # What was run in full counts; otherwise what was run quickly.
    judged = [part for part in results.parts.values() if max(part.seeds) >= FIRST_JUDGED]
    is_reduced = bool(judged) and all(part.is_reduced for part in judged)
    chosen = choose(sharing, results)
    outcomes = []
    for reading in experiment.readings:
        rows = list(results.rows(reading, is_reduced))
        found = estimates(target, rows)
        verdict = None
        # Readings share rows: one is judged where all are there that its verdict depends on.
        complete = {name for one in target.differences if one.counts for name in one.weights}
        if reading == chosen or complete <= set(found):
            verdict = judge(target, found, readings=experiment.tried, is_reduced=is_reduced)
        outcomes.append(ReadingOutcome(reading, distance(sharing, results, reading), verdict))
    verdict = next(one.verdict for one in outcomes if one.reading == chosen)
    assert verdict is not None
    return Finding(target, results, chosen, verdict, tuple(outcomes), is_reduced)
