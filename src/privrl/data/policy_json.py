"""Policies from `policy.json`, whose format is published as policy.schema.json beside this file."""

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from privrl.core import files
from privrl.core.errors import InputError
from privrl.data.features import check_settings, features_from_dict
from privrl.data.policies import (
    FORMAT,
    VERSION,
    EpsilonGreedy,
    Network,
    Policy,
    Softmax,
    Tabular,
    check_origin,
)

_EARLIER_FORMAT = "tacit-policy"


def schema() -> dict[str, Any]:
    """The published JSON schema of `policy.json`."""
    text = resources.files("privrl.data").joinpath("policy.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def load_policy(path: "str | Path") -> Policy:
    """Read `policy.json`."""
    try:
        text = files.read_text(path)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text, so it is no policy.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {files.reason(error)}.") from None
    try:
        return policy_from_json(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def policy_from_json(text: str) -> Policy:
    """Read the text of `policy.json`, or say in one sentence what is wrong with it."""

    def refuse(word: str) -> object:
        raise InputError(f"A policy holds {word}, which is no number in JSON.")

    try:
        given = files.parse_json(text, parse_constant=refuse)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"The policy is not JSON{where}.") from None
    return policy_from_dict(given)


_KINDS: dict[str, Any] = {one.kind: one for one in (Tabular, Softmax, EpsilonGreedy, Network)}


def policy_from_dict(given: object) -> Policy:
    """The policy that `to_dict` described: what policy.schema.json allows, if its shapes fit."""
    if not isinstance(given, Mapping):
        raise InputError("A policy must be a JSON object.")
    if given.get("format") not in (FORMAT, _EARLIER_FORMAT):
        raise InputError(f'A policy must say "format": "{FORMAT}".')
    version = given.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise InputError(f"The policy has version {version!r}, but only {VERSION} is known.")
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(f"There is no policy of kind {kind!r}: use {', '.join(_KINDS)}.")
    if "origin" in given:
        origin = check_origin(given["origin"])
        plain = policy_from_dict({n: v for n, v in given.items() if n != "origin"})
        return plain.with_origin(**origin)
    settings = {n: v for n, v in given.items() if n not in ("format", "version", "kind")}
    check_settings(f"A policy of kind {kind!r}", _KINDS[kind], settings)
    if "features" in settings:
        settings["features"] = features_from_dict(settings["features"])
    if "layers" in settings:
        layers = settings["layers"]
        if not isinstance(layers, list) or not all(
            isinstance(one, Mapping) and set(one) == {"weights", "biases"} for one in layers
        ):
            raise InputError("layers must be a list of objects with weights and biases.")
        settings["layers"] = tuple((one["weights"], one["biases"]) for one in layers)
    made: Policy = _KINDS[kind](**settings)
    return made
