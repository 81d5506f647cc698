"""The catalogue of targets: what `privrl audit --all` attacks, by name.

A target is built by a function when it is needed, plan and promise included, so that a mutant
(`privrl.audit.mutations`) is built from mutated parts by the very same lines. The modules in
`privrl.audit.targets` hold them; `load` reads these modules, so that all of them are listed.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from privrl.audit.auditor import Target
from privrl.audit.canaries import CanaryTarget
from privrl.core.errors import InputError
from privrl.core.types import Array

Build = Callable[[], Target | CanaryTarget]

TARGETS: dict[str, Build] = {}
"""By name, in the order of the table."""

_MODULES = (
    *("mechanisms", "actor_critic", "pgc", "functional_q"),
    *("evaluation.policy_value", "evaluation.value_function", "evaluation.gpope"),
    "evaluation.output_perturbation",
)


def load() -> dict[str, Build]:
    """All targets that ship, by name."""
    for module in _MODULES:
        importlib.import_module(f"privrl.audit.targets.{module}")
    return TARGETS


def target(build: Build) -> Build:
    """Put a function that builds a target into the catalogue, under the name of the function."""
    TARGETS[build.__name__.replace("_", "-")] = build
    return build


def add_target(name: str, build: Callable[..., Target], *given: Any, **named: Any) -> None:
    """Put `build(name, *given, **named)` into the catalogue, under that name."""

    def made() -> Target:
        return build(name, *given, **named)

    made.__module__ = build.__module__
    TARGETS[name] = made


@contextmanager
def record_calls(
    owner: object, name: str, see: Callable[[Any, tuple[Any, ...], Any], Any]
) -> Iterator[list[Array]]:
    """What every call of a shipped method, or a module's function, gives away while the block
    lasts: `see(first argument, others, result)` of each."""
    shipped, seen = getattr(owner, name), list[Array]()

    def wrapper(self: Any, *given: Any, **named: Any) -> Any:
        found = shipped(self, *given, **named)
        seen.append(np.array(see(self, given, found), np.float64))
        return found

    with patch.object(owner, name, wrapper):
        yield seen


def find(name: str) -> Build:
    """What builds the target of that name, which may be `module:attribute` of the caller's own.

    The attribute is a target or a function without arguments that makes one.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        if name not in load():
            raise InputError(f"There is no target {name!r}: see `privrl audit --list`.")
        return TARGETS[name]
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        found = getattr(importlib.import_module(module), attribute)
        made = found() if callable(found) else found
    except Exception as error:  # whatever the caller's module may do when it is imported
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{name!r} cannot be used: {said}") from error
    if not isinstance(made, Target | CanaryTarget):
        raise InputError(f"{name!r} must be a Target, or a function that makes one.")
    return lambda: made
