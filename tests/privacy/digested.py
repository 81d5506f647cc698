"""Things whose keyed digests are the same in every process (`test_resuming.py`).

A module of its own, since another process that finds the digests imports this and nothing heavy.
"""

import functools
from dataclasses import dataclass, field
from typing import Any

from privrl.privacy.promise import Unit
from privrl.privacy.resuming import keyed_digest

SECRET = b"s" * 32


@dataclass(frozen=True)
class Thing:
    a: Any
    b: Any = 0
    hidden: Any = field(default=0, compare=False)


class Plain:
    def __init__(self, size: int) -> None:
        self.size = size
        self._cache = object()

    @functools.cached_property
    def double(self) -> int:
        return 2 * self.size


def scaled(factor: float) -> Any:
    return lambda x: factor * x


DIFFERENT: list[Any] = [
    Unit.AGENT,
    Thing,
    Plain,
    scaled(1.0),
    scaled(2.0),
    functools.partial(max, 1),
    functools.partial(min, 1),
]


def digest() -> str:
    """Of all of these, and of a set, whose order is another one in another process."""
    return keyed_digest(SECRET, [*DIFFERENT, Thing({"a", "b", "c"})])
