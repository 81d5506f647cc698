"""A spec in JSON, for the folder of its run: dataclasses of this package by their names."""

import importlib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privrl.core.errors import InputError
from privrl.privacy.resuming import KEY_FILE


def encode_spec(spec: Any) -> Any:
    """A spec in JSON's own types; None if something in it has no such form."""
    try:
        return _encode(spec)
    except TypeError:
        return None


def decode_spec(data: Any, folder: Path) -> Any:
    """The spec that `encode_spec` gave."""
    if data is None:
        raise InputError(
            f"{str(folder)!r} does not tell its learner, which has no JSON form, or is of another "
            "version: say it with spec=..."
        )
    try:
        found = _decode(data)
        _ = found.training
    except (AttributeError, ImportError, KeyError, TypeError, ValueError):
        raise InputError(f"{str(folder / KEY_FILE)!r} is damaged.") from None
    return found


def _encode(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_encode(one) for one in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"array": value.tolist(), "type": str(value.dtype)}
    kind = type(value)
    if not is_dataclass(value) or not kind.__module__.startswith("privrl."):
        raise TypeError
    given = {one.name: _encode(getattr(value, one.name)) for one in fields(value) if one.init}
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "fields": given}


def _decode(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(map(_decode, data))
    if not isinstance(data, dict):
        return data
    if "array" in data:
        return np.array(data["array"], np.dtype(data["type"]))
    module, _, name = data["class"].partition(":")
    if not module.startswith("privrl."):
        raise ValueError
    kind = getattr(importlib.import_module(module), name)
    if not is_dataclass(kind):
        raise TypeError
    return kind(**{field: _decode(one) for field, one in data["fields"].items()})  # type: ignore[operator]
