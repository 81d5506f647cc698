"""Options of an evaluation that are text with a form of its own: what they say."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from privrl.core.errors import InputError
from privrl.core.spec import number
from privrl.core.types import AnyArray
from privrl.run.evaluation import ESTIMATORS

# What names a column, or several.
COLUMNS = (
    *("trajectory", "time", "user", "state", "action", "reward", "behavior_prob", "target_prob"),
    *("terminated", "truncated", "next_state"),
)


def option_value(name: str, value: Any) -> Any:
    """What a configuration file has in a form of its own, as it would be typed."""
    listed = isinstance(value, list | tuple)
    if name == "table" and not listed:
        return (str(value),)  # a comma is part of its name
    if name in ("terminated", "truncated") and isinstance(value, bool):
        return str(value).lower()
    if name == "start" and listed:
        return [":".join(map(str, x)) if isinstance(x, list | tuple) else x for x in value]
    if name == "nulls" and isinstance(value, Mapping):
        value = ",".join(f"{key}={rule}" for key, rule in value.items())
    if name == "nulls" and isinstance(value, str):
        null_rules(value)  # refuses what is none
    if name == "estimators" and (listed or isinstance(value, Mapping)):
        shares = value if isinstance(value, Mapping) else {}
        return ",".join(f"{one}:{shares[one]}" if one in shares else str(one) for one in value)
    return value


def as_typed(value: Any) -> str:
    """An option's value as it would be typed."""
    if not isinstance(value, tuple):
        return str(value)
    ends = (
        int(x) if isinstance(x, float) and x.is_integer() and abs(x) < 1e15 else x for x in value
    )
    return ",".join(map(str, ends))


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


def shares_of(text: str | None, *, functions: bool, endless: bool) -> dict[str, float]:
    """The share of each estimator, also where `--estimators` was not said: then of the values of
    states too if they can be, for a quarter, most of the budget being for what people ask for.

    Rewards that are `endless`, never discounted and never over, have no value of states.
    """
    if text is None:
        return {"value": 3.0, "gtd": 1.0} if functions and not endless else {"value": 1.0}
    shares = estimator_shares(text)
    if endless and "value" in shares and not {"gtd", "lstd", "gpope"}.isdisjoint(shares):
        raise InputError(
            "gtd, lstd and gpope need rewards that end: say with --terminated whether trajectories "
            "really end (a column, or true for all), or take --gamma below 1."
        )
    return shares


def start_states(
    texts: Sequence[str],
    words: Sequence[str] | None,
    width: int,
    vectors: bool,
    num_states: int | None,
) -> AnyArray:
    """What `--start` says: states by words, by their numbers, or as vectors of `width` numbers."""
    if words is not None:
        if not set(texts) <= set(words):
            raise InputError("must give states by the words of --states, by commas.", field="start")
        return np.array([words.index(one) for one in texts])
    rows = [[number("start", x) for x in one.split(":")] for one in texts]
    if {len(row) for row in rows} != {width}:
        raise InputError(
            "must give each start state as numbers with colons between, one for each "
            "column of --state, and commas between states.",
            field="start",
        )
    if vectors:
        return np.array(rows)
    states = [int(x) for (x,) in rows if x.is_integer() and 0 <= x < (num_states or np.inf)]
    if len(states) < len(rows):
        limit = "" if num_states is None else f" from 0 to {num_states - 1}"
        raise InputError(f"must give states by their whole numbers{limit}.", field="start")
    return np.array(states)


def flag_or_name(text: str | None) -> str | bool | None:
    if text is not None and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return text


def scalar_or_list(names: tuple[str, ...] | None, listed: bool = False) -> str | list[str] | None:
    """A name alone where there is one, unless it is to be `listed`, or a list of them."""
    if names is None:
        return None
    return names[0] if len(names) == 1 and not listed else list(names)


def parse_codes(words: Sequence[str] | None) -> list[str] | list[int] | None:
    """Codes that are whole numbers are numbers in the table too."""
    if words is None:
        return None
    try:
        return [int(word) for word in words]
    except ValueError:
        return list(words)
