"""privrl: differentially private reinforcement learning.

Results come with a `Certificate` that anyone can recompute, or with a paper's `Claim` and why it is
not one. Start with `privrl.privacy`, which says what is promised and what it costs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privrl import control, data, envs, evaluation, privacy
    from privrl.data import Trajectories
    from privrl.privacy import Budget, Certificate, Claim, Ledger, PrivacySession

__version__ = "0.2.0"
__all__ = [
    "Budget",
    "Certificate",
    "Claim",
    "Ledger",
    "PrivacySession",
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
    """Load the rooms when they are first entered, so that `privrl --help` answers at once."""
    if name in _ROOMS:
        return import_module(f"privrl.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'privrl' has no attribute {name!r}")
    return getattr(
        import_module("privrl.data" if name == "Trajectories" else "privrl.privacy"), name
    )
