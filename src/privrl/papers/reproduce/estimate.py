"""Quantities from rows: an estimate over seeds, with its standard error on the quantity's scale.

For n seeds with values x_1, ..., x_n:

- *mean*: the mean; standard error s / sqrt(n), with the sample standard deviation s.
- *share*: the mean of zeros and ones; sqrt(p (1 - p) / (n + 4)) with p = (sum x + 2) / (n + 4)
  (Agresti and Coull 1998), which is not 0 where all trials succeed.
- *median*: half the distance between the order statistics of ranks n/2 -+ sqrt(n)/2, between which
  the median lies with the probability of one standard error to either side. Let what never happens
  count as the end of the run.
- *root-mean*: the root r of the mean, for mean squares; s / (2 r sqrt(n)) by the delta method.
- a function f of all values: f, with the jackknife's sqrt((n - 1) / n sum_i (f_i - mean f)^2), f_i
  without seed i.

A quotient a / b of independent estimates has |a / b| sqrt((s_a / a)^2 + (s_b / b)^2). On the scale
"log" an estimate v counts as log10 v, with its standard error divided by v ln 10.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from privrl.core.errors import InputError
from privrl.papers.reproduce.target import FIRST_JUDGED, Quantity, Row, Target

_LN10 = math.log(10.0)


@dataclass(frozen=True)
class Estimate:
    """What rows say of a quantity."""

    value: float
    """In its own unit."""

    error: float
    """Standard error, on its scale."""

    seeds: int
    values: tuple[float, ...] = ()
    """By seed, in the order of seeds, where these are plain numbers."""


Estimates = Mapping[str, Estimate]


def on_scale(quantity: Quantity, value: float) -> float:
    """A value of the quantity as it is compared."""
    if quantity.scale == "linear":
        return value
    return math.log10(value) if value > 0.0 else -math.inf


def matches(row: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a row has these entries."""
    return all(name in row and row[name] == value for name, value in where.items())


def estimates(
    target: Target, rows: Iterable[Row], seeds: range | None = None
) -> dict[str, Estimate]:
    """Those quantities of the target that rows, of one reading, are enough for.

    `seeds` are the ones that count: those from 100 on if None.
    """
    kept = [row for row in rows if (row["seed"] in seeds if seeds else row["seed"] >= FIRST_JUDGED)]
    plain = {}
    for quantity in target.quantities:
        own = sorted((row for row in kept if matches(row, quantity.where)), key=itemgetter("seed"))
        own = [row for row in own if quantity.measure in row]
        if len({row["seed"] for row in own}) < len(own):
            raise InputError(f"{target.name}: {quantity.name!r} fits several rows of a seed.")
        if len(own) > 1:
            plain[quantity.name] = _over_seeds(quantity, [row[quantity.measure] for row in own])
    found = {}
    for quantity in target.quantities:
        one = plain.get(quantity.name)
        if one is not None and quantity.over is not None:
            one = _quotient(one, plain.get(quantity.over))
        if one is not None:
            found[quantity.name] = _scaled(quantity, one)
    return found


def _over_seeds(quantity: Quantity, values: Sequence[Any]) -> Estimate:
    count, statistic = len(values), quantity.statistic
    if callable(statistic):
        without = [statistic([*values[:k], *values[k + 1 :]]) for k in range(count)]
        spread = statistics.pvariance(without) * (count - 1)
        return Estimate(float(statistic(values)), math.sqrt(spread), count)
    numbers = tuple(map(float, values))
    if not all(map(math.isfinite, numbers)):
        raise InputError(f"A row of {quantity.name!r} has no number.")
    mean = statistics.fmean(numbers)
    if statistic == "share":
        return Estimate(mean, binomial_error(mean, count), count, numbers)
    if statistic == "median":
        return _median(quantity, numbers)
    error = statistics.stdev(numbers) / math.sqrt(count)
    if statistic == "root-mean":
        root = math.sqrt(mean)
        return Estimate(root, error / (2.0 * root) if root else 0.0, count)
    return Estimate(mean, error, count, numbers)


def binomial_error(share: float, trials: int) -> float:
    """The standard error of a share of so many trials."""
    middle = (share * trials + 2.0) / (trials + 4.0)
    return math.sqrt(middle * (1.0 - middle) / (trials + 4.0))


def _median(quantity: Quantity, values: tuple[float, ...]) -> Estimate:
    ordered, count = sorted(on_scale(quantity, one) for one in values), len(values)
    low = max(0, math.floor((count - math.sqrt(count)) / 2.0))
    high = min(count - 1, math.ceil((count + math.sqrt(count)) / 2.0) - 1)
    error, value = (ordered[high] - ordered[low]) / 2.0, statistics.median(values)
    # `_scaled` divides again: distances between logarithms are taken as they are.
    return Estimate(value, error if quantity.scale == "linear" else error * value * _LN10, count)


def _quotient(one: Estimate, other: Estimate | None) -> Estimate | None:
    if other is None or other.value == 0.0:
        return None
    value = one.value / other.value
    error = math.hypot(one.error, value * other.error) / abs(other.value)
    return Estimate(value, error, min(one.seeds, other.seeds))


def _scaled(quantity: Quantity, one: Estimate) -> Estimate:
    if quantity.scale == "linear":
        return one
    if one.value <= 0.0:
        raise InputError(f"{quantity.name!r} is compared by its logarithm, and is not positive.")
    return Estimate(one.value, one.error / (one.value * _LN10), one.seeds)


def printed_error(quantity: Quantity, ours: Estimate | None) -> float:
    """The standard error of the printed number on the scale: the paper's sampling, and reading.

    Without an error of its own it is the binomial one for a share, and otherwise that which our
    spread has for the paper's number of trials; 0 where that number is unknown.
    """
    printed = quantity.printed
    if printed is None:
        return 0.0
    sampling = 0.0
    to_scale = 1.0 if quantity.scale == "linear" else 1.0 / (printed.value * _LN10)
    if printed.error is not None:
        sampling = printed.error * to_scale
    elif printed.trials is not None and quantity.statistic == "share":
        sampling = binomial_error(printed.value, printed.trials)
    elif printed.trials is not None and ours is not None:
        sampling = ours.error * math.sqrt(ours.seeds / printed.trials)
    elif printed.trials is not None and quantity.spread is not None:
        sampling = quantity.spread / math.sqrt(printed.trials)
    return math.hypot(sampling, printed.reading * to_scale)
