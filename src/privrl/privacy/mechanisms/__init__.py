"""Mechanisms: frozen plans with `event` (what it does) and `release` (doing it).

For sums of clipped contributions: `GaussianMechanism`, `LaplaceMechanism`, and both on a grid. For
running sums: `CorrelatedMechanism`. For functions: `FunctionalMechanism`, `FieldMechanism`, and for
reward functions `RewardModelMechanism`. For local differential privacy: `PrivUnit`, `DuchiL2`,
`PiecewiseMechanism`, `HybridMechanism`, `ProjectedSign`, `LaplaceReport`, `GridLaplaceReport`. For
statistics of smooth sensitivity: `SmoothMechanism`.

Versions for compiled loops are in modules of their own, which need JAX: `correlated_jax`,
`functional_jax`, `report_laplace_jax`, `sign_jax`, `unit_vector_jax`.
"""

from privrl.privacy.mechanisms import clip
from privrl.privacy.mechanisms.correlated import CorrelatedMechanism, Strategy
from privrl.privacy.mechanisms.functional import FunctionalMechanism, NoisePath
from privrl.privacy.mechanisms.functional_fields import (
    CholeskyPath,
    FeatureKernel,
    FieldMechanism,
    ProductExponential,
    WeightsPath,
)
from privrl.privacy.mechanisms.gaussian import GaussianMechanism
from privrl.privacy.mechanisms.laplace import LaplaceMechanism
from privrl.privacy.mechanisms.on_grid import GridGaussianMechanism, GridLaplaceMechanism
from privrl.privacy.mechanisms.piecewise import HybridMechanism, PiecewiseMechanism
from privrl.privacy.mechanisms.report_laplace import GridLaplaceReport, LaplaceReport
from privrl.privacy.mechanisms.reward_model import RewardModel, RewardModelMechanism
from privrl.privacy.mechanisms.sign import ProjectedSign, SignReport
from privrl.privacy.mechanisms.smooth import SmoothMechanism, smooth_bound
from privrl.privacy.mechanisms.unit_vector import DuchiL2, PrivUnit

__all__ = [
    "CholeskyPath",
    "CorrelatedMechanism",
    "DuchiL2",
    "FeatureKernel",
    "FieldMechanism",
    "FunctionalMechanism",
    "GaussianMechanism",
    "GridGaussianMechanism",
    "GridLaplaceMechanism",
    "GridLaplaceReport",
    "HybridMechanism",
    "LaplaceMechanism",
    "LaplaceReport",
    "NoisePath",
    "PiecewiseMechanism",
    "PrivUnit",
    "ProductExponential",
    "ProjectedSign",
    "RewardModel",
    "RewardModelMechanism",
    "SignReport",
    "SmoothMechanism",
    "Strategy",
    "WeightsPath",
    "clip",
    "smooth_bound",
]
