"""Estimates that a target's full run would give if it gave what is printed."""

import math
from dataclasses import replace

from privrl.papers.reproduce.estimate import Estimate, binomial_error, on_scale
from privrl.papers.reproduce.target import Target

_ROUNDS = 500


def printed_estimates(target: Target, seeds: int | None = None) -> dict[str, Estimate]:
    """What the target's full run would give if it gave what is printed, and pilots elsewhere.

    Where what is printed is lost to us, the text stands for it: pilots, or ones without them, are
    moved as little as makes each difference its least. For planning, and for tests of verdicts.
    """
    count = len(target.experiment.full.seeds) if seeds is None else seeds
    found = {}
    for quantity in target.quantities:
        printed = quantity.printed
        value = quantity.pilot if printed is None else printed.value
        if value is None and quantity.lost:
            value = 1.0
        if value is None:
            continue
        if quantity.statistic == "share" and quantity.over is None and quantity.spread is None:
            error = binomial_error(value, count)
        elif quantity.spread is not None:
            error = quantity.spread / math.sqrt(count)
        else:
            continue
        found[quantity.name] = Estimate(value, error, count)
    return _as_the_text_says(target, found)


def _as_the_text_says(target: Target, found: dict[str, Estimate]) -> dict[str, Estimate]:
    """Project lost quantities onto the half-spaces of differences, in turns (Agmon 1954)."""
    known = target.by_name
    values = {name: on_scale(known[name], one.value) for name, one in found.items()}
    lost = {name for name in values if known[name].lost}
    for one in (_ROUNDS if lost else 0) * target.differences:
        own = {name: weight for name, weight in one.weights.items() if name in lost}
        if not own or one.least is None or not set(one.weights) <= set(values):
            continue
        now = math.fsum(weight * values[name] for name, weight in one.weights.items())
        if one.expected == "same":
            wanted = math.copysign(min(abs(now), one.least / 4.0), now)
        else:
            wanted = max(now, one.least)
        move = (wanted - now) / math.fsum(weight**2 for weight in own.values())
        for name, weight in own.items():
            values[name] += move * weight
    for name in lost:
        moved = values[name] if known[name].scale == "linear" else 10.0 ** values[name]
        found[name] = replace(found[name], value=moved)
    return found
