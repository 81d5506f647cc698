"""Features of states in a box where the caller chose none: for Q, and for a reward model."""

import math
from typing import Any

from privrl.core.errors import InputError
from privrl.data import Features, Fourier, Polynomial
from privrl.envs.base import Box
from privrl.privacy.mechanisms.reward_model import Cosine

# Orders of cosines for Q, by the number of coordinates.
_FOURIER = (10, 5, 3, 2)
_FEW = 3


def default_features(observed: Box, name: str, few: bool) -> Features:
    """For Q: cosines of up to four coordinates, or polynomials of more; `few` to fit noise."""
    low, high = _finite_bounds(observed, name, "features")
    if len(low) > len(_FOURIER):
        return Polynomial(2, low, high)
    order = _FOURIER[len(low) - 1]
    return Fourier(min(order, _FEW) if few else order, low, high)


def default_reward_features(observed: Box, name: str, order: int) -> Any:
    """For a reward model: cosines of up to three coordinates, or polynomials of more."""
    low, high = _finite_bounds(observed, name, "reward_features")
    if len(low) > 3:
        return Polynomial(2, low, high)
    return Cosine(order if len(low) == 1 else 2, low, high)


def _finite_bounds(
    observed: Box, name: str, what: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if not all(map(math.isfinite, (*observed.low, *observed.high))):
        raise InputError(f"{name} observes vectors without bounds: say what {what} of them to use.")
    return observed.low, observed.high
