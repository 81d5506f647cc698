"""Where private data is computed with, what Python and NumPy would warn of tells about it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def silence() -> Iterator[None]:
    """No warnings of Python's or of NumPy's."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
