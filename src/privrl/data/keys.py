"""Keys for draws that protect nobody: splits, sampled actions, simulated episodes."""

from typing import Any

import numpy as np

from privrl.core.errors import InputError


def generator(key: object) -> np.random.Generator:
    """NumPy's generator for a whole number, a JAX key, or a generator that is passed on."""
    if isinstance(key, np.random.Generator):
        return key
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and key >= 0:
        return np.random.default_rng(int(key))
    if is_jax(key):
        import jax

        typed: Any = key
        if jax.numpy.issubdtype(typed.dtype, jax.dtypes.prng_key):
            typed = jax.random.key_data(typed)
        return np.random.default_rng(np.asarray(typed).astype(np.uint32).ravel())
    raise InputError(
        "must be a whole number of at least 0, a JAX key or a NumPy generator.", field="key"
    )


def is_jax(value: object) -> bool:
    """Whether `value` is a JAX array or a tracer, found out without importing JAX."""
    return type(value).__module__.partition(".")[0] in ("jax", "jaxlib")
