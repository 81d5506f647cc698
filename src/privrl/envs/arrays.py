"""Arrays of other people's numbers: converted, checked, and refused in one sentence."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def floats(name: str, value: Any) -> Floats:
    """A copy in 64 bits, so that what its owner changes later changes nothing here."""
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("must be an array of numbers.", field=name) from None


def integers(name: str, value: Any) -> Integers:
    """Whole numbers, whatever their type: 3.0 is one and 0.7 is not."""
    given = floats(name, value)
    if not np.all(np.isfinite(given)) or np.any(given != np.floor(given)):
        raise InputError("must be whole numbers.", field=name)
    return given.astype(np.int64)


def flags(name: str, value: Any) -> Flags:
    """True and false, or 1 and 0."""
    given = floats(name, value)
    if not np.all((given == 0.0) | (given == 1.0)):
        raise InputError("must be true or false.", field=name)
    return given.astype(np.bool_)


def flag(name: str, value: object) -> bool:
    """One of them; a word such as "no" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"must be true or false, not {value!r}.", field=name)
    return bool(value)


def share(name: str, value: object) -> float:
    """A number from 0 to 1, ends included."""
    converted = checks.number(name, value)
    if not 0.0 <= converted <= 1.0:
        raise InputError(f"must be from 0 to 1, not {converted:g}.", field=name)
    return converted


def finite(name: str, value: object) -> float:
    """A finite number."""
    converted = checks.number(name, value)
    if not np.isfinite(converted):
        raise InputError("must be finite.", field=name)
    return converted


def choice(name: str, value: object, *options: str) -> None:
    """Refuse what is none of the two words."""
    if value not in options:
        said = " or ".join(map(repr, options))
        raise InputError(f"must be {said}, not {value!r}.", field=name)


def distributions(name: str, value: Any) -> Floats:
    """Probabilities that sum to 1 along the last axis.

    Sums off by the rounding of 32-bit numbers are put right: policies are often made in them, and
    what is missing must not count as a probability to terminate.
    """
    given = floats(name, value)
    if not np.all(np.isfinite(given)) or np.any(given < 0.0):
        raise InputError("must be finite numbers of at least 0.", field=name)
    total = given.sum(axis=-1, keepdims=True)
    off = float(np.max(np.abs(total - 1.0), initial=0.0))
    if off > 1e-6:
        raise InputError(f"must sum to 1, and are off by {off:.3g}.", field=name)
    # Sums that are right already keep every bit of what was given.
    normalised: Floats = np.where(np.abs(total - 1.0) > 1e-15, given / total, given)
    return normalised


def cumulative(probabilities: Floats) -> Floats:
    """Cumulative sums along the last axis, exactly 1 from the last positive entry on.

    Otherwise rounding could leave a sliver at the end that belongs to an impossible outcome.
    """
    total = np.cumsum(probabilities, axis=-1)
    positive = probabilities > 0.0
    size = probabilities.shape[-1]
    last = size - 1 - np.argmax(positive[..., ::-1], axis=-1)
    done: Floats = np.where(np.arange(size) >= last[..., None], 1.0, np.minimum(total, 1.0))
    return done
