"""privrl: differentially private reinforcement learning.

Results come with a `Certificate` that anyone can recompute, or with a paper's `Claim` and why it is
not one. Start with `privrl.privacy`, which says what is promised and what it costs.
"""

from typing import TYPE_CHECKING, Any

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl import control, data, envs, evaluation, privacy
    from privrl.control.engine import Stopped, learn, resume
    from privrl.data import Trajectories
    from privrl.privacy import Budget, Certificate, Claim, Ledger, PrivacySession, PrivRLError
    from privrl.run.evaluation import EvaluationSpec, evaluate
    from privrl.run.loading import load

__version__ = "0.2.0"
__all__ = [
    "Budget",
    "Certificate",
    "Claim",
    "EvaluationSpec",
    "Ledger",
    "PrivRLError",
    "PrivacySession",
    "Stopped",
    "Trajectories",
    "__version__",
    "control",
    "data",
    "envs",
    "evaluate",
    "evaluation",
    "learn",
    "load",
    "privacy",
    "resume",
]

_PACKAGES = ("control", "data", "envs", "evaluation", "privacy")
_HOMES = {
    "control.engine": ("Stopped", "learn", "resume"),
    "data": ("Trajectories",),
    "privacy": ("Budget", "Certificate", "Claim", "Ledger", "PrivRLError", "PrivacySession"),
    "run.evaluation": ("EvaluationSpec", "evaluate"),
    "run.loading": ("load",),
}
_load = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    """Load packages and names when they are first used, so that `privrl --help` answers at once."""
    if name in _PACKAGES:
        from importlib import import_module

        return import_module(f"privrl.{name}")
    return _load(name)
