"""A critic to start from: fitted values with a certificate of their own, or public weights."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from privrl.control.heads import Network
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Features
from privrl.privacy.certificate import Assumption, Certificate


@dataclass(frozen=True)
class Start:
    """A critic to start from."""

    weights: Floats | None = None
    features: Features | Network | None = None
    certificate: Certificate | None = None
    assumptions: tuple[Assumption, ...] = ()

    @property
    def described(self) -> str | None:
        """Which one it is, for the checkpoint."""
        if self.weights is None:
            return None
        return hashlib.sha256(self.weights.tobytes()).hexdigest()


def start_of(critic: Any) -> Start:
    if critic is None:
        return Start()
    weights = getattr(critic, "weights", critic)
    try:
        array = np.asarray(weights, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise InputError("critic must be fitted values, such as DPLSL's, or weights.") from None
    if not np.all(np.isfinite(array)):
        raise InputError("critic must have finite weights.")
    features, promise = getattr(critic, "features", None), getattr(critic, "promise", None)
    if isinstance(promise, Certificate):
        told = Assumption(
            f"the critic to start from has a certificate of its own, epsilon "
            f"{promise.epsilon:.4g} at delta {promise.delta:.4g}, about other people",
            "not enforced: for a person in both, the two costs add up",
        )
        return Start(array, features, promise, (told,))
    without = "" if promise is None else ", though it has no certificate"
    told = Assumption(
        f"the critic to start from is public{without}", "not enforced: it is the caller's"
    )
    return Start(array, features, None, (told,))
