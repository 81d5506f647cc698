"""NumPy's arrays and JAX's, alike."""

from types import ModuleType
from typing import Any

import numpy as np

from privrl.core.errors import InputError
from privrl.data.keys import is_jax


def to_float_arrays(name: str, *values: Any) -> tuple[ModuleType, list[Any]]:
    """The module to compute with, and the values as its arrays of floating-point numbers."""
    if any(map(is_jax, values)):
        import jax.numpy as jnp

        made = [jnp.asarray(value) for value in values]
        kind = jnp.result_type(float if all(x.dtype.kind in "iub" for x in made) else 0.0, *made)
        return jnp, [x.astype(kind) for x in made]
    try:
        found = [np.asarray(value) for value in values]
        if all(x.dtype.kind in "iufb" for x in found):
            return np, [x.astype(np.float64) for x in found]
    except ValueError:  # rows of different lengths
        pass
    raise InputError("must be numbers.", field=name)


def safe_power(xp: ModuleType, base: Any, power: float) -> Any:
    """base ** power for base >= 0, whose derivative by autodiff is 0, and not infinite, at 0."""
    there = base > 0.0
    return xp.where(there, xp.where(there, base, 1.0) ** power, 0.0)
