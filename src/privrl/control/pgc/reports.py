"""How agents report, compiled: arms of a simulation, each with a mechanism and its epsilon."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp

from privrl.control.pgc.privatiser import Norm, Privatiser, normalise
from privrl.privacy.mechanisms import clip, report_laplace_jax, sign_jax, unit_vector_jax
from privrl.privacy.mechanisms.report_laplace import LaplaceReport
from privrl.privacy.mechanisms.sign import ProjectedSign
from privrl.privacy.mechanisms.unit_vector import PrivUnit

Reporting = PrivUnit | ProjectedSign | LaplaceReport


@dataclass(frozen=True)
class Arm:
    """How the agents of some replicas report."""

    plan: Reporting | None
    """The mechanism; None for no noise, and no privacy."""

    norm: Norm = "unit"
    """"unit": gradients are brought to L2 norm `radius`. "clip": the mechanism clips them."""

    radius: float = 1.0
    """L2 norm of rows with the norm "unit". Without a mechanism, rows of the norm "clip" are
    clipped to this L1 norm, as the paper's Laplace mechanism does."""

    gradient: Literal["own", "zero"] = "own"
    """"zero": a control. All gradients count as zero, and the noise is the same."""

    @classmethod
    def of(cls, privatiser: Privatiser, gradient: Literal["own", "zero"] = "own") -> "Arm":
        """The plan of a privatiser, one submission's, compiled.

        Laplace noise on a grid becomes Laplace noise in 64 bits, with the same scale to 1/4096.
        """
        own = privatiser.plan
        plan: Reporting = (
            own
            if isinstance(own, PrivUnit | ProjectedSign)
            else LaplaceReport(own.epsilon, own.dimension, own.radius)
        )
        return cls(plan, privatiser.norm, privatiser.radius, gradient)

    def row(self, gradient: Any) -> Any:
        """The row that the report of a gradient is about: total, and in 64 bits."""
        wide = gradient.astype(jnp.float64)
        finite = jnp.where(jnp.all(jnp.isfinite(wide)), wide, 0.0)
        return self.radius * normalise(jnp, finite) if self.norm == "unit" else finite

    @property
    def _compile_key(self) -> Any:
        """Neighbouring arms of which this is the same are compiled as one."""
        plan = self.plan
        if isinstance(plan, PrivUnit | LaplaceReport):
            padded = getattr(plan, "padded", None)
            return type(plan), plan.dimension, plan.radius, padded, self.norm, self.radius
        return self


@dataclass(frozen=True)
class Group:
    """Neighbouring arms whose agents report by the same mechanism, with an epsilon of their own."""

    arms: tuple[Arm, ...]
    quantile: Literal["newton", "table"]

    def reports(self, gradients: Any, keys: jax.Array, arms: Any) -> Any:
        """A report for each gradient (n, d), with noise from its own key, in the given arm (n,)."""
        zero = jnp.asarray([arm.gradient == "zero" for arm in self.arms])[arms]
        arm = self.arms[0]
        rows = jax.vmap(arm.row)(jnp.where(zero[:, None], 0.0, gradients))
        plans = [one.plan for one in self.arms]
        plan = arm.plan
        if isinstance(plan, PrivUnit):
            caps = [one for one in plans if isinstance(one, PrivUnit)]
            return unit_vector_jax.reports_of_many(caps, arms, rows, keys, self.quantile)
        if isinstance(plan, ProjectedSign):
            bits = partial(sign_jax.reports, plan)
            return jax.vmap(lambda row, key: bits(row[None], key)[0])(rows, keys)
        if isinstance(plan, LaplaceReport):
            noised = [one for one in plans if isinstance(one, LaplaceReport)]
            return report_laplace_jax.reports_of_many(noised, arms, rows, keys)
        return rows if arm.norm == "unit" else clip.l1(rows, arm.radius)
