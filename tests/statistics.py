"""Tests of distributions whose false-alarm rate is designed, so that nothing needs a seed."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FALSE_ALARM = 1e-6


def follows(draws: NDArray[Any], cdf: Callable[[NDArray[Any]], NDArray[Any]]) -> bool:
    """Whether a Kolmogorov-Smirnov test at level FALSE_ALARM accepts the continuous law `cdf`."""
    ordered = np.sort(np.ravel(draws))
    probabilities = np.asarray(cdf(ordered))
    below = np.arange(ordered.size) / ordered.size
    distance = max(np.max(probabilities - below), np.max(below + 1 / ordered.size - probabilities))
    return bool(stats.kstwo.sf(distance, ordered.size) > FALSE_ALARM)


def follows_discrete(draws: NDArray[Any], probabilities: dict[int, float]) -> bool:
    """Whether a chi-square test at level FALSE_ALARM accepts the law on the integers.

    Values expected fewer than ten times are counted together with whatever is not listed.
    """
    values, counts = np.unique(np.ravel(draws), return_counts=True)
    seen = dict(zip(values.tolist(), counts.tolist(), strict=True))
    total = int(counts.sum())
    common = {v: p for v, p in probabilities.items() if p * total >= 10.0}
    observed = [seen.get(v, 0) for v in common]
    expected = [p * total for p in common.values()]
    rest = total - sum(observed)
    rest_expected = total - sum(expected)
    if rest_expected >= 10.0:
        observed.append(rest)
        expected.append(rest_expected)
    elif stats.poisson.sf(rest - 1, max(rest_expected, 1e-12)) < FALSE_ALARM / 2:
        return False
    if len(observed) == 1:
        return True  # all mass on one value, and nothing was seen elsewhere
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return bool(stats.chi2.sf(statistic, len(observed) - 1) > FALSE_ALARM / 2)
