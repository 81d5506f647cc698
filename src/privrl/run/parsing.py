"""Words of a command line or a configuration file as numbers, or a sentence why they are not."""

import tomllib
from pathlib import Path
from typing import Any, NoReturn

from privrl.core import checks, files
from privrl.core.errors import InputError


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


def refuse_missing(name: str, question: str, hint: str) -> NoReturn:
    """Refuse, and say what is missing and how to say it."""
    option = name.rstrip("_").replace("_", "-")
    raise InputError("is needed", field=name, remedy=f"say with --{option} {question}. {hint}.")


def check_not_empty(name: str, text: str) -> str:
    """`text`, which is no answer if there is nothing in it: a default would take its place."""
    if not text.strip():
        raise InputError("is empty: say something, or leave it out.", field=name)
    return text


def number(name: str, value: Any) -> float:
    try:
        return checks.number(name, float(value) if isinstance(value, str) else value)
    except ValueError:
        raise InputError(f"must be a number, not {value!r}.", field=name) from None


def positive_integer(name: str, value: Any) -> int:
    found = number(name, value)
    if not found.is_integer() or found < 1:
        raise InputError(f"must be a whole number of at least 1, not {value!r}.", field=name)
    return int(found)


def pair(name: str, text: str | None) -> tuple[float, float]:
    parts = (text or "").replace(":", ",").split(",")
    if len(parts) != 2:
        raise InputError(
            "must be two numbers, the lowest and the highest, such as 0,1.", field=name
        )
    low, high = (number(name, part) for part in parts)
    if not low < high:
        raise InputError(f"must have the lowest first: {low:g} is not below {high:g}.", field=name)
    return low, high


def box(text: str, count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    pairs = [pair("state_range", part) for part in text.split(",")] if text else []
    if len(pairs) != count:
        raise InputError(
            f"state_range has {len(pairs)} ranges for states of {count} numbers: give one each, in "
            "their order, such as 30:200,40:140."
        )
    return tuple(low for low, _ in pairs), tuple(high for _, high in pairs)
