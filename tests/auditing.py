"""Parameters for tests that attack the targets of one module or package."""

from collections.abc import Collection
from types import ModuleType
from typing import Any

import pytest

from privrl.audit.catalogue import load


def own_targets(module: ModuleType) -> list[str]:
    """The targets that a module, or those of a package, put into the catalogue."""
    return [
        name
        for name, build in load().items()
        if f"{build.__module__}.".startswith(f"{module.__name__}.")
    ]


def target_params(
    module: ModuleType, quick: Collection[str] = (), slow: Collection[str] = ()
) -> list[Any]:
    """A name each: some quick, some slow, and all others for the night."""

    def marks(name: str) -> Any:
        if name in quick:
            return ()
        return pytest.mark.slow if name in slow else pytest.mark.nightly

    own = own_targets(module)
    assert set(own) >= {*quick, *slow}
    return [pytest.param(name, marks=marks(name)) for name in own]
