"""Parameters for tests that attack the targets of one module, and the twins of these."""

from collections.abc import Collection
from types import ModuleType
from typing import Any

import pytest

from tacit.privacy.audit.sabotage import TWINS, Twin
from tacit.privacy.audit.targets import TARGETS


def own_targets(module: ModuleType) -> list[str]:
    """The targets that a module put into the catalogue."""
    return [name for name, build in TARGETS.items() if build.__module__ == module.__name__]


def own_twins(module: ModuleType) -> list[tuple[Twin, str]]:
    """The twins of these, once for each target."""
    own = own_targets(module)
    return [(twin, name) for twin in TWINS for name in twin.targets if name in own]


def target_params(module: ModuleType, quick: Collection[str]) -> list[Any]:
    """A name each; all but the quick ones are slow."""
    return [
        pytest.param(name, marks=() if name in quick else pytest.mark.slow)
        for name in own_targets(module)
    ]


def twin_params(module: ModuleType, quick: Collection[tuple[str, str]]) -> list[Any]:
    """A twin and the name of its target each; all but the quick ones are slow."""
    return [
        pytest.param(
            *(twin, name),
            id=f"{twin.name}, {name}",
            marks=() if (twin.name, name) in quick else pytest.mark.slow,
        )
        for twin, name in own_twins(module)
    ]
