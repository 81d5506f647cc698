"""Whether what an estimator will hold fits into memory: asked before anybody pays.

Only public numbers go into it (how many units and features there are), so that a refusal tells
nothing about anybody.
"""

from privrl.core import resources

# States over which the public guess of the features' moments is averaged.
EVEN = 1 << 12
_BYTES = 8


def for_features(dimension: int) -> None:
    """Refuse features whose square matrices do not fit: moments, a factor, its inverse."""
    _refuse_beyond(dimension, 2 * EVEN * dimension + 4 * dimension**2)


def for_units(dimension: int, count: int, matrices: int) -> None:
    """Refuse dense moments that do not fit: `matrices` for each unit, twice while they are made."""
    _refuse_beyond(dimension, 2 * matrices * count * dimension**2)


def _refuse_beyond(dimension: int, numbers: int) -> None:
    remedy = "take fewer features, or the estimator value alone"
    resources.refuse_above(_BYTES * numbers, f"{dimension:,} features", remedy)
