"""Names of ours in backticks, in docs and in the source, lead to something that is there."""

import importlib
import inspect
import pkgutil
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import privrl

ROOT = Path(__file__).parents[1]
MODULES = [
    one.name
    for one in pkgutil.walk_packages(privrl.__path__, "privrl.")
    if not one.name.endswith("__main__")
]
# Modules by the last part of their names, as docstrings call them.
SHORT = {
    leaf: [module for module in MODULES if module.endswith(f".{leaf}")]
    for leaf in {name.rpartition(".")[2] for name in MODULES}
}
QUOTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`")
# What stands for a file or a table's column rather than for a name of ours.
FILES = (".json", ".py", ".csv", ".md", ".html", ".npz", ".toml", ".parquet", ".key", ".txt")

# Modules whose names are those of variables in examples.
VARIABLES = ("plan", "stream")


def texts() -> list[Path]:
    sources = sorted((ROOT / "src").rglob("*.py"))
    return [*sources, *sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("*.md")]


def leads_somewhere(module: str, parts: list[str]) -> bool:
    """Whether `parts` are attributes, fields or submodules, one of the other, from a module on."""
    found: Any = importlib.import_module(module)
    for part in parts:
        if inspect.ismodule(found) and f"{found.__name__}.{part}" in MODULES:
            found = importlib.import_module(f"{found.__name__}.{part}")
        elif hasattr(found, part):
            found = getattr(found, part)
        elif is_dataclass(found) and part in {one.name for one in fields(found)}:
            return True
        else:
            return part in getattr(found, "__annotations__", {})
    return True


def is_of_a_class(module: str, name: str) -> bool:
    """Whether it is of one of the module's classes: `ledger.spend` for a ledger."""
    classes = vars(importlib.import_module(module)).values()
    return any(inspect.isclass(one) and leads_somewhere_in(one, name) for one in classes)


def leads_somewhere_in(owner: type, name: str) -> bool:
    return hasattr(owner, name) or name in getattr(owner, "__annotations__", {})


def missing(text: str) -> list[str]:
    """The names in a text that lead nowhere."""
    found = []
    for name in dict.fromkeys(QUOTED.findall(text)):
        first, *rest = name.split(".")
        if name.endswith(FILES) or first in VARIABLES or (first != "privrl" and first not in SHORT):
            continue
        homes = ["privrl"] if first == "privrl" else SHORT[first]
        if not any(leads_somewhere(home, rest) for home in homes) and not (
            first != "privrl" and any(is_of_a_class(home, rest[0]) for home in homes)
        ):
            found.append(name)
    return found


def test_a_stale_name_is_seen() -> None:
    assert missing("see `privrl.privacy.accounting.epsilon` and `accounting.epsilon`") == []
    assert missing("see `privrl.data.mspbe.unit_moments`") == ["privrl.data.mspbe.unit_moments"]
    assert missing("see `accounting.epsilons(1)`") == ["accounting.epsilons"]
    assert missing("`study.json`, `numpy.nothing`") == []


@pytest.mark.parametrize("path", texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_names_in_backticks_exist(path: Path) -> None:
    if path.name != "CHANGELOG.md":  # which speaks of earlier versions too
        assert missing(path.read_text(encoding="utf-8")) == []
