"""Clipping: bring each unit's contribution within a norm bound, really, in floating point.

    l2(rows, bound)    l1(rows, bound)

`rows` has one unit per row (its last axis is the contribution) and is a NumPy or a JAX array; the
same code serves both, so it can stand inside compiled functions. What comes back:

- a row with a NaN or an infinity in it is replaced by zeros, a fixed contribution in range: what a
  unit cannot express does not count, and no error depends on private values;
- any other row is scaled down if its norm exceeds `bound`, and otherwise left as it is, bit for bit
  (but for rows within a few rounding errors of the bound, which give up that much);
- the norm of the result, computed exactly and not in floating point, is at most `bound`.

Why the last holds. Write u for the unit roundoff and d for the row's length. Dividing by the
largest entry first keeps all squares within range; a sum of d rounded terms, its root, and the few
products around them are off by a factor of at most (1 + u)^(d + 8), and compilers that turn a
division into a product with a reciprocal stay well within twice that. So a row whose computed norm
is at most `safe` = bound (1 - 2 (d + 8) u) is within `bound`; any other is scaled to just below
`safe`, looked at again, and again scaled if rounding conspired.

Numbers at the ends of the range need care, because compiled code flushes subnormal numbers to zero
and the reciprocal of a huge number is one. A row whose largest entry is below bound / (2 d) is
within the bound without looking; a row with a huge entry is first multiplied by a power of two; and
`bound` must lie well between the two.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError

A = TypeVar("A", bound=Any)

# Each pass scales to below the safe bound; more than one is needed only if rounding conspires.
_PASSES = 3


def l2(rows: A, bound: float) -> A:
    """Each row with its L2 norm at most `bound`."""
    return _clip(rows, bound, lambda xp, x: xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True)))


def l1(rows: A, bound: float) -> A:
    """Each row with its L1 norm at most `bound`."""
    return _clip(rows, bound, lambda xp, x: xp.sum(xp.abs(x), axis=-1, keepdims=True))


def _clip(rows: A, bound: float, norm: Callable[[ModuleType, Any], Any]) -> A:
    bound = checks.positive("bound", bound)
    xp, x = _as_rows(rows)
    info = xp.finfo(x.dtype)
    length = x.shape[-1]
    if length == 0:
        return cast(A, x)
    slack = 2.0 * (length + 8) * float(info.epsneg)
    huge, shrink = 2.0 ** (info.maxexp - 24), 2.0**-16
    if slack > 0.25:
        raise InputError(f"Rows of length {length} are too long to be clipped in {x.dtype}.")
    if bound < float(info.tiny) * length * 2.0**24:
        raise InputError(f"bound {bound:g} is too small for {x.dtype} rows of length {length}.")
    if bound > huge * shrink * 2.0**-8:
        raise InputError(f"bound {bound:g} is too large for {x.dtype} rows.")
    x = xp.where(xp.all(xp.isfinite(x), axis=-1, keepdims=True), x, 0)
    x = xp.where(xp.max(xp.abs(x), axis=-1, keepdims=True) > huge, x * shrink, x)
    safe = bound * (1.0 - slack)
    for _ in range(_PASSES):
        largest = xp.max(xp.abs(x), axis=-1, keepdims=True)
        inside = largest <= bound / (2 * length)
        scale = xp.where(inside, 1, largest)
        direction = xp.where(inside, 0, x / scale)
        relative = xp.where(inside, 1, norm(xp, direction))  # between 1 and `length`
        # The norm is scale * relative; compared without that product, it cannot overflow.
        outside = ~inside & (relative > safe / scale)
        x = xp.where(outside, direction * (safe * (1.0 - slack) / relative), x)
    return cast(A, x)


def _as_rows(rows: Any) -> tuple[ModuleType, Any]:
    """The array module to compute with, and the rows as a floating-point array of it."""
    if type(rows).__module__.partition(".")[0] in ("jax", "jaxlib"):
        import jax.numpy as jnp

        xp: ModuleType = jnp
        x: Any = rows
    else:
        xp = np
        try:
            x = np.asarray(rows)
        except ValueError:
            raise InputError("Rows to be clipped must all have the same length.") from None
    if x.ndim == 0:
        raise InputError("Clipping needs rows: an array with at least one axis.")
    if xp.issubdtype(x.dtype, xp.floating):
        if x.dtype.itemsize > 8:
            raise InputError(f"Rows to be clipped must have at most 64 bits, not {x.dtype}.")
        return xp, x
    if xp.issubdtype(x.dtype, xp.integer) or x.dtype == bool:
        return xp, x.astype(float)
    raise InputError(f"Rows to be clipped must be numbers, not {x.dtype}.")
