"""The floor of one pair: the epsilon that it really loses at delta, in either direction.

Lumping outcomes together is post-processing and never adds information, so the line is cut into
cells, with losses log P(cell) / Q(cell).
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, log_ndtr

from privrl.core.types import Floats
from privrl.privacy.second_accountant.allocation_pair import AllocationPair
from privrl.privacy.second_accountant.pairs import FAR, Pair
from privrl.privacy.second_accountant.sampled_pairs import SampledPair

MARGIN = 1e-5  # share of delta set aside, once for rounding and once for Bernstein's inequality


def has_mirror(pair: Pair) -> bool:
    """Whether the mirror image is another pair."""
    return isinstance(pair, SampledPair) or (
        isinstance(pair, AllocationPair) and not pair.exchanged
    )


def leak_of(pair: Pair, backward: bool) -> float:
    """The probability of an infinite loss."""
    # What is sampled may be told to have been drawn, never to have not.
    return 0.0 if backward and isinstance(pair, SampledPair) else pair.limits.leak


def law_of(pair: Pair, backward: bool, cuts: Floats) -> tuple[Floats, Floats]:
    """Log mass, given no leak, and loss of the cells that `cuts` (of losses) make, in rising order.

    Cells of infinite loss are dropped: leaks are counted elsewhere.
    """
    if backward and isinstance(pair, SampledPair):
        q, p = (logs[::-1] for logs in pair.cells(-cuts[::-1]))
    elif backward and isinstance(pair, AllocationPair):
        p, q = pair.mirror_cells(cuts)
    else:  # every other pair is its own mirror image
        p, q = pair.cells(cuts)
    keep = (p > -np.inf) & (q > -np.inf)
    return p[keep] - math.log1p(-leak_of(pair, backward)), p[keep] - q[keep]


def normal_floor(mu: float, delta: float) -> float:
    """Phi(-u) - e^epsilon Phi(-u - mu) = delta with epsilon = mu (u + mu / 2) (Balle, Wang)."""
    goal = math.log(delta) + MARGIN

    def exceeds(u: float) -> bool:
        # As e^epsilon phi(u + mu) = phi(u), no large numbers meet.
        first = float(log_ndtr(-u))
        second = math.log(erfcx((u + mu) / math.sqrt(2)) / 2) - u**2 / 2
        return second < first and first + math.log(-math.expm1(second - first)) > goal

    return mu * (_bisect_last(exceeds, -mu / 2, FAR) + mu / 2)


def single_floor(pair: Pair, delta: float, backward: bool) -> float:
    """The largest epsilon at which a half line of losses shows more than `delta`."""
    goal = math.log(delta) + MARGIN

    def exceeds(epsilon: float) -> bool:
        mass, loss = law_of(pair, backward, np.array([-math.inf, epsilon, math.inf]))
        if not len(mass) or loss[-1] <= epsilon:
            return False
        return bool(mass[-1] + math.log(-math.expm1(epsilon - loss[-1])) > goal)

    return _bisect_last(exceeds, 0.0, 2 * pair.limits.reach)


def _bisect_last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where `holds` ends, going up from `low`; approached from below."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
