"""tacit: differentially private reinforcement learning.

Results come with a `Certificate` that anyone can recompute, or with a paper's `Claim` and why it is
not one. Start with `tacit.privacy`, which says what is promised and what it costs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit import control, data, envs, evaluation, privacy
    from tacit.data import Trajectories
    from tacit.privacy import Budget, Certificate, Claim, Ledger

__version__ = "0.2.0"
__all__ = [
    "Budget",
    "Certificate",
    "Claim",
    "Ledger",
    "Trajectories",
    "__version__",
    "control",
    "data",
    "envs",
    "evaluation",
    "privacy",
]

_ROOMS = ("control", "data", "envs", "evaluation", "privacy")


def __getattr__(name: str) -> Any:
    """Load the rooms when they are first entered, so that `tacit --help` answers at once."""
    if name in _ROOMS:
        return import_module(f"tacit.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    return getattr(import_module("tacit.data" if name == "Trajectories" else "tacit.privacy"), name)
