"""The Gaussian mechanism inside compiled loops; unit, sensitivity and theorem are its plan's.

Noise is drawn in 64 bits, so this runs inside `with jax.enable_x64(True):`. Keys are **secret**,
and each serves one release.
"""

from typing import Any

import jax

from privrl.privacy.noise import jax_normal


def add(exact: Any, std: Any, key: jax.Array) -> Any:
    """`exact` with independent N(0, std^2) on every coordinate, from a key of its own."""
    return exact + std * jax_normal(key, exact.shape)
