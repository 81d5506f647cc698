"""Privacy-loss laws on a grid, never smaller than the truth, as distributions of dp-accounting.

All three ways in use one discretisation, "connect the dots" (Doroshenko et al. 2022): mass between
two grid points is split between them so that it weighs the same as before under both P and Q. Then
delta is exact at the grid's epsilons and too large between them.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

Array = NDArray[np.floating[Any]]


class Tails(NamedTuple):
    """P(L > l), P(L <= l), Q(L > l), Q(L <= l) of a privacy loss L = log P/Q at many l.

    Both tails are kept because their small ends do not survive a subtraction from one.
    """

    p_above: Array
    p_below: Array
    q_above: Array
    q_below: Array


def _pld_module() -> Any:
    # Imported when first needed: it takes a second, and most questions have closed forms.
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


def _dense(interval: float, first: int, probs: Array, infinite: float) -> Any:
    from dp_accounting.pld import pld_pmf

    return pld_pmf.DensePLDPmf(interval, first, probs, infinite, True)


def from_atoms(
    losses: Array, masses: Array, leak: float, interval: float
) -> "PrivacyLossDistribution":
    """A finite law, the same for the reversed pair; `leak` is the mass of the infinite loss."""
    below = np.floor(losses / interval)
    up = np.clip(np.expm1(below * interval - losses) / math.expm1(-interval), 0.0, 1.0)
    first = int(below.min())
    index = below.astype(np.int64) - first
    probs = np.zeros(int(index.max()) + 2)
    np.add.at(probs, index, masses * (1.0 - up))
    np.add.at(probs, index + 1, masses * up)
    law: PrivacyLossDistribution = _pld_module().PrivacyLossDistribution(
        _dense(interval, first, probs, leak)
    )
    return law


def from_tails(
    tails_at: Callable[[Array], Tails], near: float, far: float, symmetric: bool, interval: float
) -> "PrivacyLossDistribution":
    """A law known by its tails between `near` and `far`.

    What lies beyond the far end counts as an infinite loss, what lies before the near end as a loss
    at that end. The reversed pair has the same law under Q, with the losses negated.
    """
    first, last = math.floor(near / interval), math.ceil(far / interval)
    losses = np.arange(first, last + 1) * interval
    tails = tails_at(losses)

    def between(above: Array, below: Array) -> Array:
        return np.where(below[1:] < above[:-1], np.diff(below), -np.diff(above))

    p = np.maximum(between(tails.p_above, tails.p_below), 0.0)
    q = np.maximum(between(tails.q_above, tails.q_below), 0.0)
    with np.errstate(divide="ignore"):
        # e^loss q in logarithms; where q is too small for a double, all of p goes up.
        q_at_p = np.exp(losses[:-1] + np.log(q))
    up = np.clip((p - q_at_p) / -math.expm1(-interval), 0.0, p)
    probs = np.zeros(losses.size)
    probs[:-1] += p - up
    probs[1:] += up
    pmf_reversed = None
    if not symmetric:
        reversed_probs = (probs * np.exp(-losses))[::-1].copy()
        reversed_probs[0] += tails.q_above[-1]
        pmf_reversed = _dense(interval, -last, reversed_probs, float(tails.q_below[0]))
    probs[0] += tails.p_below[0]
    pmf = _dense(interval, first, probs, float(tails.p_above[-1]))
    law: PrivacyLossDistribution = _pld_module().PrivacyLossDistribution(pmf, pmf_reversed)
    return law


def from_profile(
    profile: Callable[[Array], Array], far: float, interval: float
) -> "PrivacyLossDistribution":
    """The law of the symmetric pair whose delta at the grid's epsilons >= 0 is `profile`.

    Below 0 by symmetry, p(-l) = e^-l p(l), which keeps tiny masses exact; what is left has loss 0;
    the profile's value at the far end is the mass of the infinite loss.
    """
    size = max(1, math.ceil(far / interval))
    losses = np.arange(size + 1) * interval
    deltas = np.minimum.accumulate(profile(losses))
    falls = -np.diff(deltas)
    masses = falls / -math.expm1(-interval)
    masses[:-1] -= falls[1:] / math.expm1(interval)
    masses = np.maximum(masses, 0.0)
    mirrored = masses * np.exp(-losses[1:])
    rest = max(0.0, 1.0 - float(masses.sum()) - float(mirrored.sum()) - float(deltas[-1]))
    probs = np.concatenate((mirrored[::-1], [rest], masses))
    law: PrivacyLossDistribution = _pld_module().PrivacyLossDistribution(
        _dense(interval, -size, probs, float(deltas[-1]))
    )
    return law
