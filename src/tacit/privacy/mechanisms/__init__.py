"""Mechanisms: frozen plans with `event` (what it does) and `release` (doing it)."""

from tacit.privacy.mechanisms import clip
from tacit.privacy.mechanisms.gaussian import GaussianMechanism
from tacit.privacy.mechanisms.laplace import LaplaceMechanism
from tacit.privacy.mechanisms.on_grid import GridGaussianMechanism, GridLaplaceMechanism

__all__ = [
    "GaussianMechanism",
    "GridGaussianMechanism",
    "GridLaplaceMechanism",
    "LaplaceMechanism",
    "clip",
]
