"""Names of a package that are loaded when they are first used, so that help comes at once."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """A package's `__getattr__`: `homes` has, by module, the names that are defined there.

    >>> __getattr__ = lazy("privrl.risk", {"prospect": ("Prospect",)})
    >>> __getattr__("Prospect").__name__
    'Prospect'
    """
    module_of = {name: f"{package}.{home}" for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_of[name]), name)

    return load
