"""Public linear changes of features, phi <- L^-1 phi with L L' = C0, a guess of E[phi phi']."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Features


def whitening_matrix(features: Features, precondition: Any = None) -> Floats:
    """L^-1 for L L' = C0: a matrix, or its diagonal where it has no more."""
    d = features.dimension
    if precondition is None:
        return np.full(d, math.sqrt(d) / features.norm_bound)
    try:
        given = np.asarray(precondition, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "must be a matrix of numbers, or its diagonal.", field="precondition"
        ) from None
    if given.shape not in ((d,), (d, d)):
        raise InputError(
            f"must have the shape ({d}, {d}), or ({d},), not {given.shape}.", field="precondition"
        )
    wrong = InputError("must be symmetric and positive definite.", field="precondition")
    if given.ndim == 1:
        if not np.all((given > 0.0) & np.isfinite(given)):
            raise wrong
        return 1.0 / np.sqrt(given)
    if not np.all(np.isfinite(given)) or not np.allclose(given, given.T, rtol=1e-9, atol=0.0):
        raise wrong
    try:
        return np.asarray(np.linalg.inv(np.linalg.cholesky(given)))
    except np.linalg.LinAlgError:
        raise wrong from None


def public_gram(features: Features, states: ArrayLike, ridge: float = 1e-3) -> Floats:
    """The mean of phi phi' over *public* states, plus `ridge` times its mean eigenvalue.

    A `precondition`: states from a simulator, or spread evenly over what a state could be.
    """
    phi = np.asarray(features(np.asarray(states)), dtype=np.float64)
    gram = phi.T @ phi / len(phi)
    return np.asarray(gram + ridge * (np.trace(gram) / len(gram)) * np.eye(len(gram)))
