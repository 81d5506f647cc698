"""The schema of a table loaded with `invalid="neutral"`: all that a refusal may depend on."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privrl.core.errors import InputError, option
from privrl.data.arrow import is_list, is_number
from privrl.data.columns import MOST_VALUES, ColumnPlan, Word
from privrl.data.sources import check_names, header

Ids = Literal["number", "text"]
Times = Literal["whole", "fraction"]


@dataclass(frozen=True)
class Field:
    """States or actions: how many values there are, which words they are, or of what length."""

    columns: tuple[str, ...]
    count: int | None = None
    words: tuple[Word, ...] | None = None
    length: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """What the entries are called by `Shape.sorting`, without the role."""
        return ("",) if self.count is not None else tuple(map(str, range(self.length)))


@dataclass(frozen=True)
class Shape:
    """What the schema and the caller's words say: all that a refusal may depend on."""

    plan: ColumnPlan
    users: Ids | None
    trajectories: Ids
    times: Times | None
    state: Field
    action: Field
    clock: str = ""
    """The type of timestamps, whose unit all files must share."""

    @property
    def owner(self) -> str:
        """The column, by its role, that says whose row it is."""
        return "trajectory" if self.plan.user is None else "user"

    @property
    def sorting(self) -> ColumnPlan:
        """A plan for the columns by their roles, as `by_role` of `owned_rows.py` gives them."""
        asked = self.plan

        def entries(role: str, field: Field) -> Any:
            named = tuple(f"{role}{name}" for name in field.names)
            return named[0] if field.count is not None else named

        single = ("time", "user", "behavior_prob", "target_prob", "terminated", "truncated")
        named = {role: role for role in single if isinstance(getattr(asked, role), str)}
        return ColumnPlan(
            trajectory="trajectory",
            state=entries("state", self.state),
            action=entries("action", self.action),
            reward="reward",
            next_state=None if asked.next_state is None else entries("next", self.state),
            **named,  # type: ignore[arg-type]
        )


def shape_of(schemas: Iterable[tuple[str, Any]], asked: ColumnPlan, parquet: bool = False) -> Shape:
    """What all files, each with its name and its Arrow schema, agree on; or why they do not."""
    found: Shape | None = None
    for file, schema in schemas:
        check_names(file, list(schema.names), asked.names)
        if parquet:
            _check_null_lists(file, schema, asked)
        one = _shape(file, schema, asked)
        if found is not None and one != found:
            raise InputError(f"{file} has columns of other types than the first file.")
        found = one
    assert found is not None
    return found


def _check_null_lists(file: str, schema: Any, asked: ColumnPlan) -> None:
    """Refuse, by their type, lists that could not be read if anybody's was null."""
    for name in asked.names:
        held = schema.field(name)
        if pa.types.is_fixed_size_list(held.type) and held.nullable and not reads_null_lists():
            raise InputError(
                f"{file}: column {name!r} may hold nulls, by its type, and this version of Arrow "
                "reads no lists of a fixed size with nulls in them from Parquet: name a column for "
                "each entry, or install a newer pyarrow."
            )


@lru_cache(1)
def reads_null_lists() -> bool:
    """Whether Arrow reads what it writes here: it does not before 2026 (its issue 35692)."""
    held = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": pa.array([None, [1.0]], pa.list_(pa.float64(), 1))}), held)
    try:
        return bool(pq.read_table(held.getvalue()).column("x").to_pylist() == [None, [1.0]])
    except pa.ArrowException:
        return False


def text_shape(paths: list[Path], asked: ColumnPlan) -> Shape:
    """The shape of CSV files, whose types are those that the roles of columns need."""
    for path in paths:
        check_names(str(path), header(path), asked.names)
        with path.open("rb") as file:
            line = file.readline()
        # Where a line ends for the header and not for the rows, the first row would be lost: that
        # of whoever stands first.
        if b"\r" in (line[:-1].removesuffix(b"\r") if line.endswith(b"\n") else line):
            raise InputError(
                f"{path} has a header that ends in a carriage return alone: save it with line "
                "feeds between its lines."
            )
    field = {}
    for role, names in (("state", asked.state), ("action", asked.action)):
        words, count = asked.facts.of(role)
        columns = (names,) if isinstance(names, str) else names
        field[role] = Field(columns, count, words, len(columns))
    users: Ids | None = None if asked.user is None else "text"
    times: Times | None = None if asked.time is None else "fraction"
    return _check_fill(Shape(asked, users, "text", times, field["state"], field["action"]))


def _shape(file: str, schema: Any, asked: ColumnPlan) -> Shape:
    def kind(name: str) -> Any:
        held = schema.field(name).type
        return held.value_type if pa.types.is_dictionary(held) else held

    def wrong(name: str, needed: str) -> InputError:
        return InputError(f"{file}: column {name!r} holds {kind(name)}, but " + needed + ".")

    def ids(role: str, name: str) -> Ids:
        if _is_text(kind(name)):
            return "text"
        if not _is_numeric(kind(name)):
            raise wrong(name, f"a {role} id must be a whole number or a word")
        return "number"

    def times(name: str) -> Times:
        held = kind(name)
        if pa.types.is_floating(held) or pa.types.is_decimal(held):
            return "fraction"
        if not (pa.types.is_integer(held) or pa.types.is_null(held) or is_date(held)):
            raise wrong(name, "a time must be a number or a timestamp")
        return "whole"

    def field(role: str, names: str | tuple[str, ...]) -> Field:
        words, count = asked.facts.of(role)
        columns = (names,) if isinstance(names, str) else names
        for name in columns:
            held = kind(name)
            needed: str
            if words is not None and isinstance(words[0], str):
                fits, needed = _is_text(held), option(f"{role}_vocabulary") + " holds words"
            elif isinstance(names, str) and is_list(held):
                fits = pa.types.is_fixed_size_list(held) and is_number(held.value_type)
                fits, needed = fits and count is None, "with " + option("invalid", "neutral")
                needed += " a list must have a fixed size, or name its columns"
            else:
                fits, needed = _is_numeric(held), f"each {role} must be a number"
                if _is_text(held):
                    listed = " is needed: say which words there can be"
                    needed = option(f"{role}_vocabulary") + listed
            if not (fits or pa.types.is_null(held)):
                raise wrong(name, needed)
        held, length = kind(columns[0]), len(columns)
        if isinstance(names, str) and count is None:
            if is_list(held):
                length = held.list_size
            elif not (pa.types.is_floating(held) or pa.types.is_decimal(held)):
                number, problem = f"num_{role}s", "is needed with " + option("invalid", "neutral")
                remedy = "say with " + option(number) + f" how many {role}s there can be"
                if role == "state":
                    vectors = " or, if they are vectors, say so with " + option(role, ["..."])
                    remedy = remedy + vectors
                remedy = remedy + "."
                raise InputError(problem, field=number, remedy=remedy)
        return Field(columns, count, words, length)

    state, action = field("state", asked.state), field("action", asked.action)
    if asked.next_state is not None and field("state", asked.next_state).length != state.length:
        raise InputError(f"{file}: next_state and state have different dimensions.")
    flags = (n for n in (asked.terminated, asked.truncated) if isinstance(n, str))
    for name in (*asked.no_carry_columns, *flags):
        if not (is_number(kind(name)) or pa.types.is_null(kind(name))):
            raise wrong(name, "it must hold numbers")
    return _check_fill(
        Shape(
            asked,
            None if asked.user is None else ids("user", asked.user),
            ids("trajectory", asked.trajectory),
            None if asked.time is None else times(asked.time),
            state,
            action,
            str(kind(asked.time)) if asked.time and is_date(kind(asked.time)) else "",
        )
    )


def _check_fill(shape: Shape) -> Shape:
    """The shape as given, if values to fill in for nulls are values of their columns."""
    for role, field in (("state", shape.state), ("action", shape.action)):
        for name in field.columns:
            if name in shape.plan.fill and np.isnan(fill_value(shape.plan, field, name)):
                raise InputError(f"gives {name!r} a value that is no {role}.", field="fill")
    for name, value in shape.plan.fill.items():
        if isinstance(value, str) and name not in (*shape.state.columns, *shape.action.columns):
            raise InputError(f"gives {name!r} a word, but the column holds numbers.", field="fill")
    return shape


def fill_value(asked: ColumnPlan, field: Field, column: str) -> float:
    """What nulls of a column are filled with, as a code where states are counted; NaN if nothing
    can be."""
    value: Any = asked.fill[column]
    if field.words is not None:
        return float(field.words.index(value)) if value in field.words else np.nan
    if isinstance(value, str):
        return np.nan
    number = float(value)
    if field.count is None:
        return number
    return number if number.is_integer() and 0 <= number < min(field.count, MOST_VALUES) else np.nan


def _is_text(kind: Any) -> bool:
    views = (pa.types.is_string_view,) if hasattr(pa.types, "is_string_view") else ()
    tests = (pa.types.is_string, pa.types.is_large_string, *views)
    return any(test(kind) for test in tests)


def _is_numeric(kind: Any) -> bool:
    return is_number(kind) or bool(pa.types.is_null(kind))


def is_date(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
