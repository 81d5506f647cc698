"""Which column means what, as the caller says it: names, public facts and the rule for nulls.

Everything here is checked before a file is opened. `Columns` is the keyword arguments that every
reader takes; `ColumnPlan` is the same, checked and frozen.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, Required, TypedDict, get_args

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError, option

NullRule = Literal["refuse", "carry", "fill"]
Invalid = Literal["refuse", "neutral"]
Word = str | int

_ROLES = (
    *("trajectory", "user", "time", "state", "action", "reward"),
    *("behavior_prob", "target_prob", "terminated", "truncated", "next_state"),
)

# A discrete value is an index into a table, kept in 32 bits.
MOST_VALUES = 2**31 - 1


class Columns(TypedDict, total=False):
    """The keyword arguments of every reader; see docs/trajectories.md for a line on each."""

    trajectory: Required[str]
    state: Required[str | Sequence[str]]
    action: Required[str | Sequence[str]]
    reward: Required[str]
    time: str | None
    user: str | None
    behavior_prob: str | None
    target_prob: str | None
    terminated: str | bool | None
    truncated: str | bool | None
    next_state: str | Sequence[str] | None
    num_states: int | None
    num_actions: int | None
    state_vocabulary: Sequence[Word] | None
    action_vocabulary: Sequence[Word] | None
    nulls: NullRule | Mapping[str, NullRule]
    fill: Mapping[str, object] | None
    invalid: Invalid
    people: int | None


class Arrays(TypedDict, total=False):
    """The keyword arguments of `Trajectories.from_arrays`, besides states, actions and rewards."""

    lengths: Any
    trajectory_ids: Any
    users: Any
    behavior_probs: Any
    target_probs: Any
    times: Any
    terminated: Any
    truncated: Any
    final_states: Any
    num_states: int | None
    num_actions: int | None
    state_vocabulary: Sequence[Word] | None
    action_vocabulary: Sequence[Word] | None


@dataclass(frozen=True)
class Facts:
    """What anyone may know about states and actions, because the caller said so.

    `state_vocabulary_read` and `action_vocabulary_read` say that the words were read from the data
    instead: then they are private, like everything else in it.
    """

    num_states: int | None = None
    num_actions: int | None = None
    state_vocabulary: tuple[Word, ...] | None = None
    action_vocabulary: tuple[Word, ...] | None = None
    state_vocabulary_read: bool = False
    action_vocabulary_read: bool = False

    def of(self, role: str) -> tuple[tuple[Word, ...] | None, int | None]:
        """The words of states or of actions, and how many there are."""
        if role == "state":
            return self.state_vocabulary, self.num_states
        return self.action_vocabulary, self.num_actions


@dataclass(frozen=True)
class ColumnPlan:
    """`Columns`, checked. A tuple of names is a vector; a single name is what its type says."""

    trajectory: str
    state: str | tuple[str, ...]
    action: str | tuple[str, ...]
    reward: str
    time: str | None = None
    user: str | None = None
    behavior_prob: str | None = None
    target_prob: str | None = None
    terminated: str | bool | None = None
    truncated: str | bool | None = None
    next_state: str | tuple[str, ...] | None = None
    facts: Facts = field(default_factory=Facts)
    nulls: Mapping[str, NullRule] = field(default_factory=dict)
    fill: Mapping[str, object] = field(default_factory=dict)
    invalid: Invalid = "refuse"
    """What becomes of a table with values that are not valid; see `privrl.data.neutral`."""

    people: int | None = None
    """How many units there are, by the caller's word: with `invalid="neutral"` alone."""

    @property
    def names(self) -> list[str]:
        """Every column to be read, once."""
        found: dict[str, None] = {}
        for role in _ROLES:
            entry = getattr(self, role)
            for name in entry if isinstance(entry, tuple) else (entry,):
                if isinstance(name, str):
                    found[name] = None
        return list(found)

    def rule(self, column: str) -> NullRule:
        """What happens to a null in `column`."""
        return self.nulls.get(column, "refuse")

    @property
    def no_carry_columns(self) -> list[str]:
        """The columns of rewards and probabilities, whose nulls mean something of their own."""
        named = (self.reward, self.behavior_prob, self.target_prob)
        return [name for name in named if name is not None]


def plan(given: Mapping[str, Any]) -> ColumnPlan:
    """Check the caller's words, or say in one sentence which of them cannot be meant."""
    check_options(given, Columns)
    for role in ("trajectory", "state", "action", "reward"):
        if given.get(role) is None:
            raise InputError("is needed", field=role, remedy="say which column holds it.")
    singles = ("trajectory", "reward", "time", "user", "behavior_prob", "target_prob")
    one = {role: _name(role, given.get(role)) for role in singles}
    flags = {role: _flag(role, given.get(role)) for role in ("terminated", "truncated")}
    several = {role: _names(role, given.get(role)) for role in ("state", "action", "next_state")}
    if flags["terminated"] is True and flags["truncated"] is True:
        raise InputError("terminated and truncated cannot both be True for every trajectory.")
    state, successor = several["state"], several["next_state"]
    if successor is not None and (
        isinstance(state, str) != isinstance(successor, str)
        or (isinstance(state, tuple) and len(state) != len(successor))
    ):
        raise InputError(
            "must name as many columns as state, in the same form.", field="next_state"
        )
    num_states = _count("num_states", given.get("num_states"))
    num_actions = _count("num_actions", given.get("num_actions"))
    states = _vocabulary("state_vocabulary", given.get("state_vocabulary"), num_states)
    actions = _vocabulary("action_vocabulary", given.get("action_vocabulary"), num_actions)
    facts = Facts(
        len(states) if states else num_states,
        len(actions) if actions else num_actions,
        states,
        actions,
    )
    for what, names, count in (
        ("state", state, facts.num_states),
        ("action", several["action"], facts.num_actions),
    ):
        if isinstance(names, tuple) and count is not None:
            problem = option(f"num_{what}s") + " and " + option(f"{what}_vocabulary")
            problem += f" are for discrete {what}s"
            raise InputError(problem, remedy="name one column, as " + option(what, "NAME") + ".")
    checked = ColumnPlan(
        **one,  # type: ignore[arg-type]
        **flags,  # type: ignore[arg-type]
        **several,  # type: ignore[arg-type]
        facts=facts,
    )
    nulls, fill = _nulls(checked, given.get("nulls", "refuse"), given.get("fill"))
    invalid, people = _check_invalid(given.get("invalid", "refuse"), given.get("people"))
    told = {"nulls": nulls, "fill": fill, "invalid": invalid, "people": people}
    return ColumnPlan(**{**vars(checked), **told})


def _check_invalid(invalid: object, people: object) -> tuple[Invalid, int | None]:
    checks.choice("invalid", invalid, get_args(Invalid))
    name, neutral = "people", option("invalid", "neutral")
    count = _count(name, people)
    if invalid == "neutral" and count is None:
        how_many = " how many people (or trajectories, if nobody is named) there are, because a "
        remedy = "say with " + option(name) + how_many + "count of valid ids depends on the data."
        raise InputError("is needed with " + neutral, field=name, remedy=remedy)
    if invalid == "refuse" and count is not None:
        remedy = "say it with " + neutral + " only."
        raise InputError("is counted in the table", field=name, remedy=remedy)
    # One of the two words of a stance, by the check above.
    return invalid, count  # type: ignore[return-value]


def check_options(given: Mapping[str, Any], known: type) -> None:
    """Every keyword is one of a `TypedDict`'s."""
    names = sorted(known.__annotations__)
    for name in sorted(set(given) - set(names)):
        raise InputError(f"There is no option {name!r}: use {', '.join(names)}.")


def _name(role: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return value
    raise InputError(f"must be the name of a column, not {value!r}.", field=role)


def _flag(role: str, value: object) -> str | bool | None:
    if value is None or isinstance(value, bool) or (isinstance(value, str) and value):
        return value
    raise InputError(f"must be the name of a column, True or False, not {value!r}.", field=role)


def _names(role: str, value: object) -> str | tuple[str, ...] | None:
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        names = tuple(value)
        if names and all(isinstance(n, str) and n for n in names):
            if len(set(names)) < len(names):
                raise InputError("names a column twice.", field=role)
            return names
    raise InputError(f"must be the name of a column or a list of names, not {value!r}.", field=role)


def _count(role: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        count = int(value)
        if 0 < count <= MOST_VALUES:
            return count
    raise InputError(f"must be a whole number from 1 to 2**31 - 1, not {value!r}.", field=role)


def _vocabulary(role: str, value: object, count: object) -> tuple[Word, ...] | None:
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        raise InputError("must be a list of words or of whole numbers.", field=role)
    words: tuple[Word, ...] = tuple(int(w) if isinstance(w, np.integer) else w for w in value)
    kinds = {type(word) for word in words}
    if kinds not in ({str}, {int}):
        raise InputError("must hold either words or whole numbers, and nothing else.", field=role)
    if len(set(words)) < len(words):
        raise InputError("holds an entry twice.", field=role)
    if kinds == {int} and any(not -(2**63) <= int(w) < 2**63 for w in words):
        raise InputError("holds a number that does not fit into 64 bits.", field=role)
    if any(isinstance(w, str) and not _is_text(w) for w in words):
        raise InputError("holds a word that is not valid text.", field=role)
    if count is not None and count != len(words):
        raise InputError(f"has {len(words)} entries, which contradicts {count!r}.", field=role)
    return words


def _is_text(word: str) -> bool:
    """Whether the word can be written at all: half of a surrogate pair cannot."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_value(value: object) -> bool:
    """A finite number, a truth value or a word."""
    if isinstance(value, str):
        return _is_text(value)
    try:
        return isinstance(value, Real) and math.isfinite(float(value))
    except OverflowError:
        return False


def _nulls(
    checked: ColumnPlan, given: object, fill: object
) -> tuple[dict[str, NullRule], dict[str, object]]:
    """The rule for each column, and the values to fill with.

    Only states are carried forward: a reward that is repeated was never paid, and a probability
    that is repeated is not that of the action beside it.
    """
    fixed = {checked.trajectory, checked.user, checked.time}
    after = checked.next_state
    # A next state may be null: the next row has it too, and nothing follows a terminated one.
    following = set(after if isinstance(after, tuple) else [after])
    free = [name for name in checked.names if name not in fixed | following]
    states = (checked.state,) if isinstance(checked.state, str) else checked.state
    actions = (checked.action,) if isinstance(checked.action, str) else checked.action
    others = {*checked.no_carry_columns, *actions, checked.terminated, checked.truncated}
    rules: dict[str, NullRule] = {}
    if isinstance(given, Mapping):
        rules = dict(given)
    else:
        checks.choice("nulls", given, get_args(NullRule))
    if given == "carry":
        rules = {name: "carry" for name in states if name in free}
    elif given == "fill":
        rules = dict.fromkeys(free, "fill")
    for name, rule in rules.items():
        checks.choice("nulls", rule, get_args(NullRule))
        if name in fixed and rule != "refuse":
            raise InputError(f"Nulls in {name!r} are always refused: it says which row it is.")
        if name in following:
            raise InputError(
                f"Nulls in {name!r} have no rule: they are allowed where the next row says what "
                "follows or nothing does, and refused elsewhere."
            )
        if name not in checked.names:
            raise InputError(f"names {name!r}, which is not a column that is read.", field="nulls")
        if rule == "carry" and (name not in states or name in others):
            raise InputError(
                f"Nulls in {name!r} cannot be carried forward, as those of states can: refuse "
                "them, or fill them with a value."
            )
    values: Mapping[str, object] = {} if fill is None else fill  # type: ignore[assignment]
    if not isinstance(values, Mapping):
        raise InputError("must say the value for each column, as {'column': value}.", field="fill")
    for name, value in values.items():
        if rules.get(name) != "fill":
            raise InputError(f"gives {name!r} a value, whose nulls are not filled.", field="fill")
        if not _is_value(value):
            raise InputError(f"must give a finite number or a word for {name!r}.", field="fill")
    lacking = [name for name, rule in rules.items() if rule == "fill" and name not in values]
    if lacking:
        raise InputError(
            f"nulls='fill' needs a value for {lacking[0]!r}: fill={{{lacking[0]!r}: ...}}."
        )
    return rules, dict(values)
