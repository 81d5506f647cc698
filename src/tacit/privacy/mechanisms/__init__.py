"""Mechanisms: frozen plans with `event` (what it does) and `release` (doing it)."""

from tacit.privacy.mechanisms.gaussian import GaussianMechanism
from tacit.privacy.mechanisms.laplace import LaplaceMechanism

__all__ = ["GaussianMechanism", "LaplaceMechanism"]
