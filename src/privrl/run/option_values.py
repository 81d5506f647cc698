"""Options of an evaluation as the command line has them, wherever they were given, checked."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from privrl.core.errors import InputError
from privrl.data.columns import Invalid
from privrl.run.evaluation import ESTIMATORS
from privrl.run.parsing import check_not_empty, number, positive_integer
from privrl.run.provenance import Provenance

_LISTS = ("state", "action", "next_state", "states", "actions", "start")
_FLAGS = ("public", "grid", "sort", "stream")
# What names a column, or several.
COLUMNS = (
    *("trajectory", "time", "user", "state", "action", "reward", "behavior_prob", "target_prob"),
    *("terminated", "truncated", "next_state"),
)

# About this one run rather than about the question, so that no file can hold them.
_COMMAND_ONLY = ("config", "json", "ledger", "name", "out", "ray", "resume", "seed")


def check_names_of_options(given: Iterable[str], known: Sequence[str]) -> None:
    """Every name is that of an option that a configuration may hold."""
    for name in given:
        if name in _COMMAND_ONLY:
            raise InputError(f"belongs on the command line: say --{name} there.", field=name)
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InputError(f"There is no option {name!r}.{hint}")


def option_value(name: str, value: Any) -> Any:
    """A configuration's value as the command line would have it."""
    if name == "table":
        return tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)
    if name in _LISTS:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            parts = [parts]
        parts = [
            ":".join(map(str, part)) if isinstance(part, list | tuple) else str(part)
            for part in parts
        ]
        return tuple(part.strip() for part in parts)
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise InputError(f"must be true or false, not {value!r}.", field=name)
        return value
    if name in ("num_states", "num_actions", "horizon", "people"):
        return positive_integer(name, value)
    if name in (
        "epsilon",
        "delta",
        "gamma",
        "weight_cap",
        "largest_ratio",
        "level",
        "return_bound",
    ):
        return number(name, value)
    if name in ("reward_range", "return_range") and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if name == "state_range" and isinstance(value, list | tuple):
        return ",".join(":".join(map(str, one)) for one in value)
    if name == "estimators" and isinstance(value, Mapping):
        return ",".join(f"{key}:{share}" for key, share in value.items())
    if name == "estimators" and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if name in ("terminated", "truncated") and isinstance(value, bool):
        return str(value).lower()
    if name == "nulls" and isinstance(value, Mapping):
        value = ",".join(f"{key}={rule}" for key, rule in value.items())
    if not isinstance(value, str):
        raise InputError(f"must be text, not {value!r}.", field=name)
    check_not_empty(name, value)
    if name == "nulls":
        null_rules(value)
    if name in ("policy_source", "behavior_source"):
        said: Any = {name.removesuffix("_source"): value}
        Provenance(**said)
    if name == "invalid" and value not in get_args(Invalid):
        raise InputError(f"must be refuse or neutral, not {value!r}.", field="invalid")
    return value


def null_rules(text: str) -> dict[str, str]:
    """What `--nulls` says: rules by the role or the name of a column; carry is about states."""
    rules: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, rule = (one.strip() for one in part.partition("="))
        if part == "refuse":
            continue
        if part == "carry":
            name, equals, rule = "state", "=", "carry"
        if not (name and equals and rule):
            raise InputError(
                f"must be refuse, carry (for states), or rules for columns such as "
                f"state=carry,reward=0, not {text!r}.",
                field="nulls",
            )
        name = name.replace("-", "_") if name.replace("-", "_") in COLUMNS else name
        if name in rules:
            raise InputError(f"gives {name} two rules.", field="nulls")
        rules[name] = rule
    return rules


def estimator_shares(text: str) -> dict[str, float]:
    """What `--estimators` says: the share of the budget of each, 1 where none is given."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, colon, share = part.strip().partition(":")
        if name in shares:
            raise InputError(f"names {name} twice.", field="estimators")
        if name not in ESTIMATORS:
            raise InputError(f"There is no estimator {name!r}: use {', '.join(ESTIMATORS)}.")
        shares[name] = number(f"The share of {name}", share) if colon else 1.0
    return shares


def flag_or_name(text: str | None) -> str | bool | None:
    if text is not None and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return text


def scalar_or_list(names: tuple[str, ...] | None) -> str | list[str] | None:
    """A name alone where there is one, or a list of them."""
    return None if names is None else names[0] if len(names) == 1 else list(names)


def parse_codes(words: Sequence[str] | None) -> list[str] | list[int] | None:
    """Codes that are whole numbers are numbers in the table too."""
    if words is None:
        return None
    try:
        return [int(word) for word in words]
    except ValueError:
        return list(words)
