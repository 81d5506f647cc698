"""The value of an outcome with a density, by quadrature.

The value of the gains, int_0^inf w(P(u+(Y) > z)) dz, has an integrand that is not smooth at its
ends: w is a fractional power of the probability where that goes to 0 or 1. Double exponential rules
(Takahasi and Mori 1974) are made for such ends: with z = 1 / (1 + exp(-pi sinh t)) for an interval,
and z = exp(pi/2 sinh t) for a half line, the trapezoidal rule in t converges faster than any power.
Probabilities P(Y > x) at the nodes are sums of Gauss-Legendre rules between neighbours, added from
the far end, where they are small. A rule of half as many nodes tells how far the result can be
trusted.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats

if TYPE_CHECKING:
    from privrl.risk.prospect import Prospect


# Nodes of the trapezoidal rule in t from -_REACH to _REACH, and of the rules between them.
_NODES, _REACH, _BETWEEN = 1025, 5.5, 16
# How far t goes on a half line, where utilities are e^116 times the unit.
_FAR = 5.0
# By how much the mass of a density may be off, and a value between two rules, relative to it.
_MASS_OFF, _VALUE_OFF = 1e-9, 1e-6


class _Side(NamedTuple):
    """The gains, or the losses: nodes of their utility z, and of the probability to be beyond."""

    certain: float
    """The utility that there is in any case, if the whole density is on this side."""

    weights: list[Floats]
    probs: list[Floats]
    mass: float


def value(
    prospect: "Prospect",
    density: Callable[[Floats], Any],
    low: float,
    high: float,
    points: Sequence[float],
) -> float:
    """rho; see `Prospect.of_density`."""
    low, high = checks.number("low", low), checks.number("high", high)
    if not low < high:
        raise InputError(f"must be below high, not {low:g} and {high:g}.", field="low")
    u = prospect.utility
    try:
        marks = [low, *sorted(checks.number("points", point) for point in points), high]
    except TypeError:
        raise InputError("must be a list of numbers.", field="points") from None
    if not all(low <= mark <= high for mark in marks):
        raise InputError("must lie between low and high.", field="points")
    edges = [max(mark, u.reference) for mark in marks if mark > u.reference]
    ups = _side(density, [max(low, u.reference), *edges], u.gain, u.inverse)
    edges = [min(mark, u.reference) for mark in reversed(marks) if mark < u.reference]
    downs = _side(density, [min(high, u.reference), *edges], u.loss, lambda z: u.inverse(-z))
    mass = ups.mass + downs.mass
    if not abs(mass - 1.0) <= _MASS_OFF:
        raise InputError(
            f"density integrates to {mass:.10g} and not to 1: say low and high, and as points "
            "where it jumps, has a peak, or how far it reaches."
        )
    found = [
        _integral(ups, prospect.gain_weight, every) - _integral(downs, prospect.loss_weight, every)
        for every in (1, 2)
    ]
    if not abs(found[0] - found[1]) <= _VALUE_OFF * (1.0 + abs(found[0])):
        raise InputError(
            "cannot be integrated well enough: say as points where it jumps, has a peak, "
            "or how far it reaches.",
            field="density",
        )
    return found[0]


def _integral(side: _Side, weight: Any, every: int) -> float:
    """int w(P(u(Y) > z)) dz by every so many-th node."""
    parts = [
        every * float(np.sum(dz[::every] * np.asarray(weight(prob[::every]))))
        for dz, prob in zip(side.weights, side.probs, strict=True)
    ]
    return side.certain + math.fsum(parts)


def _side(
    density: Callable[[Floats], Any],
    edges: list[float],
    worth: Callable[[Any], Any],
    outcome: Callable[[Any], Any],
) -> _Side:
    """One side, between edges from near the reference to far from it, by the utility `worth`."""
    if len(edges) < 2:
        return _Side(0.0, [], [], 0.0)
    zs = [float(worth(edge)) for edge in edges]
    pieces = [_nodes(a, b) for a, b in pairwise(zs) if a < b]
    masses, beyond = [], 0.0
    ends = [(a, b) for a, b in pairwise(edges) if a != b]
    for (z, _), (a, b) in zip(reversed(pieces), reversed(ends), strict=True):
        x = np.clip(np.asarray(outcome(z), np.float64), min(a, b), max(a, b))
        between = _masses(density, np.concatenate([[a], x, [b] if math.isfinite(b) else []]))
        # Where the half line is not followed any further, nothing is left.
        between = between if math.isfinite(b) else np.append(between, 0.0)
        tails = beyond + np.cumsum(between[::-1])[::-1]
        masses.append(np.clip(tails[1:], 0.0, 1.0))
        beyond = float(tails[0])
    return _Side(zs[0], [dz for _, dz in pieces], masses[::-1], beyond)


def _nodes(a: float, b: float) -> tuple[Floats, Floats]:
    """Nodes z between a and b, in order, and what they weigh in an integral over z."""
    if math.isinf(b):
        t, h = np.linspace(-_REACH, _FAR, _NODES, retstep=True)
        # In units of how far the last point is, if there is one.
        z = (a or 1.0) * np.exp(0.5 * math.pi * np.sinh(t))
        return a + z, h * z * 0.5 * math.pi * np.cosh(t)
    t, h = np.linspace(-_REACH, _REACH, _NODES, retstep=True)
    q = 1.0 / (1.0 + np.exp(-math.pi * np.sinh(t)))
    return a + (b - a) * q, h * (b - a) * math.pi * np.cosh(t) * q * q[::-1]


def _masses(density: Callable[[Floats], Any], x: Floats) -> Floats:
    """What the density integrates to between neighbours."""
    nodes, weights = np.polynomial.legendre.leggauss(_BETWEEN)
    width = np.diff(x)
    at = x[:-1, None] + 0.5 * width[:, None] * (1.0 + nodes)
    try:
        heights = np.asarray(density(at))
        fine = heights.dtype.kind in "iufb" and heights.shape == at.shape
    except (TypeError, ValueError):
        fine = False
    if not fine or not np.all(heights >= 0.0):
        raise InputError("must give a number of at least 0 for each outcome.", field="density")
    # No mass where there is no room, even if the density is infinite there.
    inside = np.where(width[:, None] != 0.0, heights * weights, 0.0)
    return np.asarray(np.abs(0.5 * width * np.sum(inside, axis=1)))
