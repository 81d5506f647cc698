"""Names of array types that many modules use."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Array = NDArray[np.floating[Any]]
"""Of any floating type."""

AnyArray = NDArray[Any]
