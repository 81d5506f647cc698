"""Quantities from rows: an estimate over seeds, with its standard error on the quantity's scale.

For n seeds with values x_1, ..., x_n:

- *mean*: the mean; standard error s / sqrt(n), with the sample standard deviation s.
- *share*: the mean of zeros and ones; sqrt(p (1 - p) / (n + 4)) with p = (sum x + 2) / (n + 4)
  (Agresti and Coull 1998), which is not 0 where all trials succeed.
- *median*: a quarter of the distance between the order statistics of ranks n/2 -+ sqrt(n), between
  which the median lies with the probability of two standard errors to either side. Let what never
  happens count as the end of the run.
- *root-mean*: the root r of the mean, for mean squares; s / (2 r sqrt(n)) by the delta method.
- a function f of all values: f, with the jackknife's sqrt((n - 1) / n sum_i (f_i - mean f)^2), f_i
  without seed i.

Estimates over the same seeds need not be independent: a seed may mean the same world or the same
noise in several settings. What each seed contributes is kept (x_i; for a median the sign of x_i -
m; for a function n f - (n - 1) f_i), and `correlation` is that of the contributions of two. A
quotient a / b has |a / b| sqrt(s_a^2 / a^2 + s_b^2 / b^2 - 2 r s_a s_b / (a b)). On the scale "log"
an estimate v counts as log10 v, with its standard error divided by v ln 10.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    contributions: Mapping[int, float] = field(default_factory=dict)
    """By seed, with mean 0 and variance 1; 0 for all where all are alike."""


def correlation(one: Estimate, other: Estimate) -> float:
    """Of two estimates by what seeds contribute that both have; 0 where none is known."""
    if one is other:
        return 1.0
    mine, its = one.contributions, other.contributions
    both = [x * its[seed] for seed, x in mine.items() if seed in its]
    return math.fsum(both) / math.sqrt((len(mine) - 1) * (len(its) - 1)) if both else 0.0


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
    plain: dict[str, Estimate] = {}
    for quantity in target.quantities:
        own: dict[int, Any] = {}
        for row in kept:
            if quantity.measure in row and matches(row, quantity.where):
                if row["seed"] in own:
                    text = f"{target.name}: {quantity.name!r} fits several rows of a seed."
                    raise InputError(text)
                own[row["seed"]] = row[quantity.measure]
        if len(own) > 1:
            plain[quantity.name] = _over_seeds(quantity, dict(sorted(own.items())))
    found = {}
    for quantity in target.quantities:
        one = plain.get(quantity.name)
        if one is not None and quantity.over is not None:
            other = plain.get(quantity.over)
            one = _quotient(one, other) if other is not None and other.value else None
        if one is not None:
            found[quantity.name] = _scaled(quantity, one)
    return found


def _over_seeds(quantity: Quantity, by_seed: Mapping[int, Any]) -> Estimate:
    values, count, statistic = list(by_seed.values()), len(by_seed), quantity.statistic
    if callable(statistic):
        whole = float(statistic(values))
        without = [statistic([*values[:k], *values[k + 1 :]]) for k in range(count)]
        error = math.sqrt(statistics.pvariance(without) * (count - 1))
        parts = [count * whole - (count - 1) * one for one in without]
        return Estimate(whole, error, count, _standardised(by_seed, parts))
    numbers = list(map(float, values))
    if not all(map(math.isfinite, numbers)):
        raise InputError(f"A row of {quantity.name!r} has no number.")
    told = _standardised(by_seed, numbers)
    mean, error = statistics.fmean(numbers), statistics.stdev(numbers) / math.sqrt(count)
    if statistic == "share":
        return Estimate(mean, binomial_error(mean, count), count, told)
    if statistic == "median":
        middle = statistics.median(numbers)
        signs = [float((one > middle) - (one < middle)) for one in numbers]
        error = _median_error(quantity, numbers, middle)
        return Estimate(middle, error, count, _standardised(by_seed, signs))
    if statistic == "root-mean":
        root = math.sqrt(mean)
        return Estimate(root, error / (2.0 * root) if root else 0.0, count, told)
    return Estimate(mean, error, count, told)


def _standardised(seeds: Iterable[int], values: Sequence[float]) -> dict[int, float]:
    """Values by seed, with mean 0 and variance 1; 0 where all are alike."""
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    unit = deviation if deviation > 0.0 else 1.0
    return {seed: (one - mean) / unit for seed, one in zip(seeds, values, strict=True)}


def binomial_error(share: float, trials: int) -> float:
    """The standard error of a share of so many trials."""
    middle = (share * trials + 2.0) / (trials + 4.0)
    return math.sqrt(middle * (1.0 - middle) / (trials + 4.0))


def _median_error(quantity: Quantity, values: Iterable[float], middle: float) -> float:
    ordered = sorted(on_scale(quantity, one) for one in values)
    count, reach = len(ordered), math.sqrt(len(ordered))
    low = max(0, math.floor(count / 2.0 - reach))
    high = min(count - 1, math.ceil(count / 2.0 + reach) - 1)
    error = (ordered[high] - ordered[low]) / 4.0
    # `_scaled` divides again: distances between logarithms are taken as they are.
    return error if quantity.scale == "linear" else error * middle * _LN10


def _quotient(one: Estimate, other: Estimate) -> Estimate:
    value = one.value / other.value
    first, second = one.error / abs(other.value), value * other.error / other.value
    together = 2.0 * correlation(one, other) * first * second
    error = math.sqrt(max(0.0, first**2 + second**2 - together))
    both = one.contributions.keys() & other.contributions.keys()
    parts = {k: first * one.contributions[k] - second * other.contributions[k] for k in both}
    told = _standardised(parts, list(parts.values())) if len(parts) > 1 else {}
    return Estimate(value, error, min(one.seeds, other.seeds), told)


def _scaled(quantity: Quantity, one: Estimate) -> Estimate:
    if quantity.scale == "linear":
        return one
    if one.value <= 0.0:
        raise InputError(f"{quantity.name!r} is compared by its logarithm, and is not positive.")
    return replace(one, error=one.error / (one.value * _LN10))


def printed_error(quantity: Quantity) -> float:
    """The standard error of the printed number on the scale: the paper's sampling, and reading.

    Without an error of its own it is the binomial one for a share, and otherwise that which the
    quantity's `spread` has for the paper's number of trials. Nothing of ours goes into it: else a
    noisier run would agree with more.
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
    elif printed.trials is not None and quantity.spread is not None:
        sampling = quantity.spread / math.sqrt(printed.trials)
    return math.hypot(sampling, printed.reading * to_scale)
