"""PGC-A3C with each coordinate of a gradient clipped by itself: a reading that is **not private**.

(19) clips the L1 norm of a gradient to C / 2, so that two gradients are at most C apart in the norm
that Laplace noise of scale C / epsilon is for. Under this reading each of the d coordinates is
clipped to [-C / 2, C / 2] and gets the same noise. Then two gradients may be d C apart, and the
report is d epsilon-DP: 112 for the epsilon of 1 that is claimed. That is what is certified here:

    Laplace noise of scale C / epsilon on rows of L1 norm at most d C / 2

is the Laplace report of radius d C / 2 with d epsilon, whose own clipping never acts.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from privrl.control.pgc.privatiser import Privatiser
from privrl.control.pgc.reports import Arm
from privrl.core.errors import InputError
from privrl.papers.ono2020.learner import PGC


@dataclass(frozen=True)
class CoordinateArm(Arm):
    """Agents who clip each coordinate before they report."""

    bound: float = 0.0

    def row(self, gradient: Any) -> Any:
        return jnp.clip(super().row(gradient), -self.bound, self.bound)

    @property
    def _compile_key(self) -> Any:
        return super()._compile_key, self.bound


@dataclass(frozen=True)
class CoordinateClipPGC(PGC):
    """PGC-A3C with the Laplace mechanism and coordinates clipped one by one."""

    def privatiser(self, dimension: int) -> Privatiser:
        """The plan with the epsilon that it has, which is `dimension` times that which is said."""
        if self.mechanism != "laplace" or self.epsilon is None:
            raise InputError("Coordinates are clipped before Laplace noise alone.")
        radius = dimension * self._clip_bound / 2.0
        return Privatiser(
            dimension * self.epsilon,
            dimension,
            "laplace",
            self.submissions,
            norm="clip",
            radius=radius,
            score_share=self.score_share,
        )

    def arm(self, dimension: int) -> Arm:
        plain = Arm.of(self.privatiser(dimension))
        own = CoordinateArm(plain.plan, plain.norm, plain.radius, bound=self._clip_bound / 2.0)
        return own if self.control is None else replace(own, gradient=self.control)
