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
class WarmStart:
    """A critic to start from."""

    weights: Floats | None = None
    features: Features | Network | None = None
    certificate: Certificate | None = None
    assumptions: tuple[Assumption, ...] = ()

    @property
    def fingerprint(self) -> str | None:
        """Which one it is, for the checkpoint."""
        if self.weights is None:
            return None
        return hashlib.sha256(self.weights.tobytes()).hexdigest()


def make_warm_start(critic: Any) -> WarmStart:
    if critic is None:
        return WarmStart()
    weights = getattr(critic, "weights", critic)
    try:
        array = np.asarray(weights, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise InputError(
            "must be fitted values, such as DPLSL's, or weights.", field="critic"
        ) from None
    if not np.all(np.isfinite(array)):
        raise InputError("must have finite weights.", field="critic")
    features, promise = getattr(critic, "features", None), getattr(critic, "promise", None)
    if isinstance(promise, Certificate):
        told = Assumption(
            f"the critic to start from has a certificate of its own, epsilon "
            f"{promise.epsilon:.4g} at delta {promise.delta:.4g}, about other people",
            "not enforced: for a person in both, the two costs add up",
        )
        return WarmStart(array, features, promise, (told,))
    without = "" if promise is None else ", though it has no certificate"
    told = Assumption(
        f"the critic to start from is public{without}", "not enforced: it is the caller's"
    )
    return WarmStart(array, features, None, (told,))
