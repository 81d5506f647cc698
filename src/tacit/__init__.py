"""tacit: differentially private reinforcement learning.

Results come with a `Certificate` that anyone can recompute, or with a paper's `Claim` and why it is
not one. Start with `tacit.privacy`, which says what is promised and what it costs.
"""

from tacit import privacy
from tacit.privacy import Budget, Certificate, Claim

__version__ = "0.1.0"
__all__ = ["Budget", "Certificate", "Claim", "__version__", "privacy"]
