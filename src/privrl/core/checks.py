"""Validation of numbers, with the name of the offending parameter in the message.

Each function returns the value as a plain Python number, so that what is stored in an event or a
certificate survives a JSON round trip bit for bit.
"""

import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, SupportsFloat, SupportsIndex, cast

from privrl.core.errors import InputError

_LONGEST = 60


def set_checked(instance: object, **by_name: Callable[[str, Any], object]) -> None:
    """Put what its check returns in the place of each named field of a frozen dataclass."""
    for name, check in by_name.items():
        object.__setattr__(instance, name, check(name, getattr(instance, name)))


def shown(value: object) -> str:
    """A value as an error shows it: in one line, and by its type if that would be long."""
    told = repr(value)
    if isinstance(value, str) or (len(told) <= _LONGEST and "\n" not in told):
        return told
    return f"something of type {type(value).__name__}"


def number(name: str, value: object) -> float:
    """A real number that is not NaN (infinities pass; the callers below decide about them)."""
    # NumPy's scalars register as Real; booleans do too, but `True` is never meant as a noise scale.
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"must be a number, not {shown(value)}.", field=name)
    try:
        converted = float(cast(SupportsFloat, value))
    except OverflowError:
        raise InputError("is too large for a floating-point number.", field=name) from None
    if math.isnan(converted):
        raise InputError("must be a number, not NaN.", field=name)
    return converted


def positive(name: str, value: object) -> float:
    """0 < value < infinity."""
    converted = number(name, value)
    if not 0.0 < converted < math.inf:
        raise InputError(f"must be positive and finite, not {converted:g}.", field=name)
    return converted


def non_negative(name: str, value: object) -> float:
    """0 <= value < infinity."""
    converted = number(name, value)
    if not 0.0 <= converted < math.inf:
        raise InputError(f"must be zero or more and finite, not {converted:g}.", field=name)
    return converted


def probability(name: str, value: object) -> float:
    """0 <= value < 1: a delta."""
    converted = number(name, value)
    if not 0.0 <= converted < 1.0:
        raise InputError(f"must be at least 0 and below 1, not {converted:g}.", field=name)
    return converted


def share(name: str, value: object) -> float:
    """0 <= value <= 1."""
    converted = non_negative(name, value)
    if converted > 1.0:
        raise InputError(f"must be at most 1, not {converted:g}.", field=name)
    return converted


def rate(name: str, value: object) -> float:
    """0 < value <= 1: a sampling rate."""
    converted = number(name, value)
    if not 0.0 < converted <= 1.0:
        raise InputError(f"must be above 0 and at most 1, not {converted:g}.", field=name)
    return converted


def count(name: str, value: object, *, least: int = 1) -> int:
    """A whole number of at least one, or of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"must be a whole number, not {shown(value)}.", field=name)
    converted = int(cast(SupportsIndex, value))
    if converted < least:
        raise InputError(f"must be at least {least}, not {converted}.", field=name)
    if converted >= 2**63:
        raise InputError("must be below 2^63.", field=name)
    return converted


def choice(name: str, value: object, among: Sequence[str]) -> None:
    """Raise unless it is one of these words."""
    if not isinstance(value, str) or value not in among:
        *others, last = map(repr, among)
        raise InputError(f"must be {', '.join(others)} or {last}, not {shown(value)}.", field=name)


def boolean(name: str, value: object) -> bool:
    """True or False, and nothing that only counts as one: "no" would be yes."""
    # NumPy's own is known by its name, so that checking does not load NumPy.
    numpys = hasattr(value, "dtype") and type(value).__name__ in ("bool", "bool_")
    if not (isinstance(value, bool) or numpys):
        raise InputError(f"must be True or False, not {shown(value)}.", field=name)
    return bool(value)


def confidence(value: object) -> float:
    """At least one half and below 1: how sure a bound is."""
    name = "confidence"
    converted = number(name, value)
    if not 0.5 <= converted < 1.0:
        raise InputError(f"must be at least 0.5 and below 1, not {converted:g}.", field=name)
    return converted
