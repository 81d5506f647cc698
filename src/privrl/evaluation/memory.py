"""Whether what an estimator will hold fits into memory: asked before anybody pays.

Only public numbers go into it (how many units and features there are), so that a refusal tells
nothing about anybody.
"""

from privrl.core import resources

# States over which the public guess of the features' moments is averaged.
GRAM_STATES = 1 << 12
_BYTES = 8


def check_features_memory(dimension: int) -> None:
    """Refuse features whose square matrices do not fit: moments, a factor, its inverse."""
    _check_memory(dimension, 2 * GRAM_STATES * dimension + 4 * dimension**2)


def check_units_memory(dimension: int, count: int, matrices: int) -> None:
    """Refuse dense moments that do not fit: `matrices` for each unit, twice while they are made."""
    _check_memory(dimension, 2 * matrices * count * dimension**2)


def _check_memory(dimension: int, numbers: int) -> None:
    remedy = "take fewer features, or the estimator value alone"
    resources.check_memory(_BYTES * numbers, f"{dimension:,} features", remedy)
