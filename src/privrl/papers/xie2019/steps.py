"""The step sizes that are tried, three to a decade; without NumPy, as targets need them."""

import math
from collections.abc import Sequence

STEPS = tuple(float(f"{10.0 ** (k / 3.0):.4g}") for k in range(-15, 7))
"""0.00001 to 100."""


def at_factor(step: float, factor: float) -> int:
    """Where in STEPS that multiple of a step is."""
    place = round(3.0 * math.log10(step * factor)) + 15
    if not 0 <= place < len(STEPS):
        raise ValueError(f"{factor:g} times {step:g} is not among the steps.")
    return place


def decades(values: Sequence[Sequence[float]]) -> float:
    """A statistic of errors by seed and step: over how many decades of steps half of the gain is
    kept.

    The gain is how far the mean error at the best step is below that at the smallest, which is too
    small to learn anything. Between steps errors are interpolated.
    """
    means = [math.fsum(each) / len(values) for each in zip(*values, strict=True)]
    best = min(range(len(means)), key=means.__getitem__)
    limit = (means[0] + means[best]) / 2.0
    return _reach(means[best:], limit) + _reach(means[best::-1], limit)


def _reach(means: Sequence[float], limit: float) -> float:
    """Decades from the first mean until they are above the limit."""
    for place in range(1, len(means)):
        before, here = means[place - 1], means[place]
        if here > limit:
            return (place - 1 + (limit - before) / (here - before)) / 3.0
    return (len(means) - 1) / 3.0
