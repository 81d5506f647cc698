"""Words of a command line or a configuration file as numbers, or a sentence why they are not."""

import tomllib
from pathlib import Path
from typing import Any

from privrl.core import files
from privrl.core.errors import InputError
from privrl.core.spec import number


def read_config(path: str | Path) -> dict[str, Any]:
    """The content of a TOML or JSON file, with underscores or dashes in its names."""
    try:
        text = files.read_text(path)
    except UnicodeDecodeError:
        raise InputError(f"{str(path)!r} is not text.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {files.reason(error)}.") from None
    try:
        found = files.parse_json(text) if str(path).endswith(".json") else tomllib.loads(text)
    except files.DuplicateKeyError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        kind = "JSON" if str(path).endswith(".json") else "TOML"
        raise InputError(f"{str(path)!r} is not {kind}: {error}.") from None
    if not isinstance(found, dict):
        raise InputError(f"{str(path)!r} must hold names and values.")
    return {str(name).replace("-", "_"): value for name, value in found.items()}


def check_not_empty(name: str, text: str) -> str:
    """`text`, which is no answer if there is nothing in it: a default would take its place."""
    if not text.strip():
        raise InputError("is empty: say something, or leave it out.", field=name)
    return text


def positive_integer(name: str, value: Any) -> int:
    found = number(name, value)
    if not found.is_integer() or found < 1:
        raise InputError(f"must be a whole number of at least 1, not {value!r}.", field=name)
    return int(found)
