"""What locally private reports are worth centrally, if somebody trusted shuffles them.

"Hiding among the clones" (Feldman, McMillan, Talwar 2021), evaluated numerically. It holds for
adaptively chosen eps0-LDP randomisers, one report each, provided that the order of the reporters is
uniformly random and unknown to whoever sees the reports. An aggregator that authenticates its
reporters, hands them tickets, or sees when each arrives knows that order. Hence the name of the
result, and hence no certificate is ever made of it.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError


@dataclass(frozen=True)
class EpsilonIfShufflerIsTrusted:
    """A central guarantee that stands and falls with a secret, uniformly random order."""

    epsilon: float
    delta: float
    reports: int
    local_epsilon: float
    trust: str = (
        "a trusted shuffler puts the reports in a uniformly random, secret order, "
        "one from each reporter, with nothing attached that tells whose is whose"
    )


def shuffled_epsilon(
    reports: int, local_epsilon: float, delta: float
) -> EpsilonIfShufflerIsTrusted:
    """The central epsilon at `delta` of `reports` shuffled local_epsilon-LDP reports.

    Each of the other n - 1 reports is, with probability e^-eps0, a clone of one of the two inputs
    in question. With C ~ Bin(n-1, e^-eps0) clones, A ~ Bin(C, 1/2) of the first kind and one more
    of the true kind with probability e^eps0 / (e^eps0 + 1), delta(eps) is the hockey-stick
    divergence between (A + 1, C - A) and (A, C - A + 1) mixed with these weights one way and the
    other.
    """
    n = checks.count("reports", reports)
    eps0 = checks.positive("local_epsilon", local_epsilon)
    if n > 10**12 or eps0 > 500.0:
        raise InputError("Shuffling is computed for up to 10^12 reports of epsilon up to 500.")
    delta = checks.probability("delta", delta)
    if delta == 0.0:
        raise InputError("must be above 0: shuffling amplifies only with one.", field="delta")
    low, high = 0.0, eps0
    if _clones_delta(n, eps0, 0.0) <= delta:
        high = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _clones_delta(n, eps0, middle) <= delta else (middle, high)
    return EpsilonIfShufflerIsTrusted(high, delta, n, eps0)


def _clones_delta(n: int, eps0: float, epsilon: float) -> float:
    """An upper bound on delta(epsilon): exact but for the clone counts left out, which all leak."""
    from scipy.stats import binom

    if epsilon >= eps0:
        return 0.0
    share = math.exp(-eps0)
    spread = 12.0 * math.sqrt(n * share * (1.0 - share)) + 60.0
    first = max(0, math.floor((n - 1) * share - spread))
    last = min(n - 1, math.ceil((n - 1) * share + spread))
    clones = np.arange(first, last + 1)
    left_out = float(binom.cdf(first - 1, n - 1, share) + binom.sf(last, n - 1, share))
    weight = 1.0 / (1.0 + share)  # e^eps0 / (e^eps0 + 1)
    # Seeing x of the first kind among c + 1, the odds are (w r + 1 - w) / ((1 - w) r + w) with
    # r = x / (c + 1 - x); they rise with x, so the best test asks whether x reaches a threshold.
    ratio = (math.exp(epsilon) * weight - (1.0 - weight)) / (
        weight - math.exp(epsilon) * (1.0 - weight)
    )
    nearest = np.ceil((clones + 1) * ratio / (1.0 + ratio))
    gains = np.zeros(clones.size)
    # P(A + 1 >= threshold) and P(A >= threshold); `nearest` may be off by one through rounding.
    tails = [binom.sf(nearest - below, clones, 0.5) for below in (3, 2, 1, 0)]
    for one_more, as_many in pairwise(tails):
        p = weight * one_more + (1.0 - weight) * as_many
        q = (1.0 - weight) * one_more + weight * as_many
        gains = np.maximum(gains, p - math.exp(epsilon) * q)
    return float(binom.pmf(clones, n - 1, share) @ gains) + left_out
