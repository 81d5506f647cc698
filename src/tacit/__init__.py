"""tacit: differentially private reinforcement learning.

Results come with a `Certificate` that anyone can recompute, or with a paper's `Claim` and why it is
not one. Start with `tacit.privacy`, which says what is promised and what it costs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit import privacy
    from tacit.privacy import Budget, Certificate, Claim, Ledger

__version__ = "0.1.0"
__all__ = ["Budget", "Certificate", "Claim", "Ledger", "__version__", "privacy"]


def __getattr__(name: str) -> Any:
    """Load the rooms when they are first entered, so that `tacit --help` answers at once."""
    if name not in __all__:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    loaded = import_module("tacit.privacy")
    return loaded if name == "privacy" else getattr(loaded, name)
