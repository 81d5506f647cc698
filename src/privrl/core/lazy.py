"""Names of a package that are loaded when they are first used, so that help comes at once."""

import ast
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy(package: str, homes: Mapping[str, Iterable[str]] | None = None) -> Callable[[str], Any]:
    """A package's `__getattr__`: what its `if TYPE_CHECKING:` block imports, on first use.

    So each name stands beside its module once, where type checkers and editors read it too. `homes`
    has, by module, the names that are defined there, for a package without such a block.

    >>> __getattr__ = lazy("privrl.risk")
    >>> __getattr__("Prospect").__name__
    'Prospect'
    """
    listed = {f"{package}.{home}": names for home, names in (homes or {}).items()}
    module_of = {
        name: home for home, names in (listed or _imports(package)).items() for name in names
    }

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = module_of[name]
        if module == package:  # which holds it as a package of its own
            return import_module(f"{package}.{name}")
        return getattr(import_module(module), name)

    return load


def _imports(package: str) -> dict[str, list[str]]:
    """Of a package's block: the names, by their module."""
    found: dict[str, list[str]] = {}
    source = find_spec(package).loader.get_source(package)  # type: ignore[union-attr]
    blocks = [one.body for one in ast.parse(source).body if isinstance(one, ast.If)]
    for one in (line for block in blocks for line in block if isinstance(line, ast.ImportFrom)):
        found.setdefault(str(one.module), []).extend(name.name for name in one.names)
    return found
