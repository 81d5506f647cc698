"""DP-LSW and DP-LSL with their published constants: what the paper compares GPOPE with.

Both are by Balle, Gomrokchi and Precup (2016): least squares on first-visit returns, with noise on
the output. `privrl.evaluation.DPLSW` and `DPLSL` have algorithm and proof; here are the published
constants. Of either, alpha = 5 sqrt(2 ln(2/delta)) / epsilon, and e^(-k beta) on the squares L_k^2;
of DP-LSL also lambda - ||Phi||^2 ||rho||_inf instead of lambda in the denominator of L_k. All of
that is valid, so there is a certificate, and none of it is needed: several times more noise.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privrl.core.errors import InputError
from privrl.evaluation import dplsl, dplsw
from privrl.evaluation.dplsw import OutputPerturbation
from privrl.privacy.mechanisms.smooth import SmoothMechanism, smooth_bound


@dataclass(frozen=True)
class _PublishedConstants(OutputPerturbation):
    def mechanism(self) -> SmoothMechanism:
        return SmoothMechanism.from_paper(self.budget, self.features.dimension)

    def smooth_sensitivity(self, local: Any, mechanism: SmoothMechanism, count: int) -> float:
        # e^(-k beta) on squares is e^(-k beta / 2) on the sensitivity itself.
        with np.errstate(all="ignore"):
            return smooth_bound(local, mechanism.beta / 2.0, count)


@dataclass(frozen=True)
class DPLSW(_PublishedConstants, dplsw.DPLSW):
    """DP-LSW as published."""


@dataclass(frozen=True)
class DPLSL(_PublishedConstants, dplsl.DPLSL):
    """DP-LSL as published; `ridge` must be above ||Phi||^2 ||rho||_inf."""

    def denominator(self, ridge: float, norm: float, largest: float) -> float:
        left = ridge - norm**2 * largest
        if left <= 0.0:
            raise InputError(
                f"must be above ||Phi||^2 ||rho||_inf, {norm**2 * largest:g}, for the "
                "published constants.",
                field="ridge",
            )
        return left
