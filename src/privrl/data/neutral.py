"""Loading that never refuses a table for what is in it: `invalid="neutral"`.

Under `invalid="refuse"` a bad cell stops the loading, and the message says where it is. That is the
curator's own step, seen by nobody else. Where nobody looks (an unattended pipeline), a refusal is
an answer about a person that no budget pays for: whoever chooses the options can ask "is anybody's
state above 2?" for nothing. With `invalid="neutral"` only the *schema* can be refused: names and
types of columns, and what the caller says of them. After that every table is loaded.

**The map.** Fix the schema and the caller's words, among them N, the number of `people`.

1. A row without an owner is left out: its user (its trajectory, if nobody is named) is null or no
   id, or it is a line of a CSV file that is not UTF-8 or has another number of cells than the
   header. A line is a row: quotes do not reach beyond it.
2. The rows of one owner are put in order, by trajectory and time, ties as they stand in the files.
   Trajectories are told apart within their owner: two people may use one trajectory id.
3. An owner is *valid* if all their rows are: every cell can be read as what its column is for; it
   is finite and in the range that the caller gave (states, actions, words, probabilities, flags);
   nulls are answered by the caller's rule for the column; times go up within each trajectory; flags
   are set on last rows only; next states are those of the next row, and there where a trajectory
   goes on after its last row; and a stream's owner has at most `batch_rows` rows.
4. An owner who is not valid is replaced by the *neutral person*: one trajectory of one row that is
   cut off, with the first state and action (or zeros), reward 0 and probabilities 1.
5. The owners, in an order that depends on ids alone, are numbered: the first N are kept, and if
   there are fewer, neutral persons are added. Exactly N come out.

**Theorem.** Let D and D' be tables of this schema that differ in the rows of one owner (of one id,
which may be another in D' and may be missing from either), and in rows without an owner. Then what
is loaded from D and from D' are N persons each, and as multisets they differ in at most one person.

*Proof.* Rows without an owner do not matter, by 1, which looks at one row at a time. Steps 2 to 4
are a function of one owner's rows: f(rows). So D gives the set {(i, f(D_i))}, and D' the same but
for one element taken out and one put in (or one of the two). Add infinitely many neutral persons
whose ids come after all others: 5 takes the N smallest of either. Replacing one element of an
ordered set by another changes its N smallest by at most one taken out and one put in. QED

So a mechanism that is private for N people under replace-one, whatever the people hold, is private
for tables of this schema, at the same price: the sensitivity of a sum of bounded contributions is
that of one person. No output may depend on places, since they shift: fits look at the multiset
alone. Secret draws for each person (Poisson samples, the step of a single pass) are independent and
alike for whatever numbers people have, so their law depends on the multiset alone, too. N is the
caller's constant and is not compared with
what is in the table: nobody may learn from N that somebody is there. If it is too small, people are
left out; if it is too large, neutral persons dilute the figures.

What is not covered: time and memory, which grow with the rows; and the schema. Types that a program
made up from the values it wrote (whole numbers turned into fractions by a missing one) are taken
alike where they can be, but the schema must be fixed before the data is looked at.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from privrl.core.errors import InputError, option
from privrl.core.types import AnyArray
from privrl.data.arrow import floats, is_list, is_number, plain, to_numpy
from privrl.data.columns import MOST_VALUES, Plan, Word
from privrl.data.sources import READ_ROWS, Chunk, check_names, header, sort_order

Ids = Literal["number", "text"]
Times = Literal["whole", "fraction"]

# Cells of a CSV file that are nulls.
NULL_WORDS = frozenset(("", "NA", "N/A", "#N/A", "NULL", "null"))
# Matched in linear time: a long cell of one person must not hold up the rest.
_NUMBER = re.compile(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_FLAGS = {"true": 1.0, "false": 0.0}
# Whole numbers beyond are not told apart by fractions.
_EXACT = 2.0**53


# --- the schema ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """States or actions: how many values there are, which words they are, or of what length."""

    columns: tuple[str, ...]
    count: int | None = None
    words: tuple[Word, ...] | None = None
    length: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """What the entries are called by `Shape.plan`, without the role."""
        return ("",) if self.count is not None else tuple(map(str, range(self.length)))


@dataclass(frozen=True)
class Shape:
    """What the schema and the caller's words say: all that a refusal may depend on."""

    plan: Plan
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
    def sorting(self) -> Plan:
        """A plan for the columns by their roles, as `Shape.read` gives them."""
        asked = self.plan

        def entries(role: str, field: Field) -> Any:
            named = tuple(f"{role}{name}" for name in field.names)
            return named[0] if field.count is not None else named

        return Plan(
            trajectory="trajectory",
            state=entries("state", self.state),
            action=entries("action", self.action),
            reward="reward",
            time=None if asked.time is None else "time",
            user=None if asked.user is None else "user",
            behavior_prob=None if asked.behavior_prob is None else "behavior_prob",
            target_prob=None if asked.target_prob is None else "target_prob",
            terminated="terminated" if isinstance(asked.terminated, str) else None,
            truncated="truncated" if isinstance(asked.truncated, str) else None,
            next_state=None if asked.next_state is None else entries("next", self.state),
        )

    def read(self, column: Callable[[str], Any], rows: int) -> Any:
        """Columns by their roles: nulls where there are nulls, NaN where a cell is not valid.

        Rows without an owner are left out. Looks at each row by itself.
        """
        asked, out = self.plan, {}
        out["trajectory"] = _ids(column(asked.trajectory), self.trajectories)
        if self.users is not None:
            out["user"] = _ids(column(_sure(asked.user)), self.users)
        if self.times is not None:
            out["time"] = _times(column(_sure(asked.time)), self.times)
        fields = [("state", self.state), ("action", self.action)]
        after = asked.next_state
        if after is not None:
            columns = (after,) if isinstance(after, str) else after
            fields.append(("next", replace(self.state, columns=columns)))
        for role, field in fields:
            for name, values in zip(field.names, _entries(field, column), strict=True):
                out[f"{role}{name}"] = values
        for role in ("reward", "behavior_prob", "target_prob"):
            name = getattr(asked, role)
            if name is not None:
                out[role] = _written(*_numbers(column(name)))
        for role in ("terminated", "truncated"):
            name = getattr(asked, role)
            if isinstance(name, str):
                values, there = _numbers(column(name), flags=True)
                out[role] = _written(np.where((values == 0) | (values == 1), values, np.nan), there)
        table = pa.table({name: out[name] for name in self.sorting.names})
        assert table.num_rows == rows
        return table.filter(pc.is_valid(table.column(self.owner)))


def shape_of(schemas: Iterable[tuple[str, Any]], asked: Plan, parquet: bool = False) -> Shape:
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


def _check_null_lists(file: str, schema: Any, asked: Plan) -> None:
    """Refuse, by their type, lists that could not be read if anybody's was null."""
    for name in asked.names:
        held = schema.field(name)
        if pa.types.is_fixed_size_list(held.type) and held.nullable and not _reads_null_lists():
            raise InputError(
                f"{file}: column {name!r} may hold nulls, by its type, and this version of Arrow "
                "reads no lists of a fixed size with nulls in them from Parquet: name a column for "
                "each entry, or install a newer pyarrow."
            )


@lru_cache(1)
def _reads_null_lists() -> bool:
    """Whether Arrow reads what it writes here: it does not before 2026 (its issue 35692)."""
    held = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": pa.array([None, [1.0]], pa.list_(pa.float64(), 1))}), held)
    try:
        return bool(pq.read_table(held.getvalue()).column("x").to_pylist() == [None, [1.0]])
    except pa.ArrowException:
        return False


def text_shape(paths: list[Path], asked: Plan) -> Shape:
    """The same for CSV files, whose types are those that the roles of columns need."""
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
        words, count = _given(asked, role)
        columns = (names,) if isinstance(names, str) else names
        field[role] = Field(columns, count, words, len(columns))
    users: Ids | None = None if asked.user is None else "text"
    times: Times | None = None if asked.time is None else "fraction"
    return _filled(Shape(asked, users, "text", times, field["state"], field["action"]))


def _shape(file: str, schema: Any, asked: Plan) -> Shape:
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
        if not (pa.types.is_integer(held) or pa.types.is_null(held) or _is_date(held)):
            raise wrong(name, "a time must be a number or a timestamp")
        return "whole"

    def field(role: str, names: str | tuple[str, ...]) -> Field:
        words, count = _given(asked, role)
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
    for name in (*asked.uncarried, *flags):
        if not (is_number(kind(name)) or pa.types.is_null(kind(name))):
            raise wrong(name, "it must hold numbers")
    return _filled(
        Shape(
            asked,
            None if asked.user is None else ids("user", asked.user),
            ids("trajectory", asked.trajectory),
            None if asked.time is None else times(asked.time),
            state,
            action,
            str(kind(asked.time)) if asked.time and _is_date(kind(asked.time)) else "",
        )
    )


def _filled(shape: Shape) -> Shape:
    """The same, if values to fill in for nulls are values of their columns."""
    for role, field in (("state", shape.state), ("action", shape.action)):
        for name in field.columns:
            if name in shape.plan.fill and np.isnan(_fill(shape.plan, field, name)):
                raise InputError(f"gives {name!r} a value that is no {role}.", field="fill")
    for name, value in shape.plan.fill.items():
        if isinstance(value, str) and name not in (*shape.state.columns, *shape.action.columns):
            raise InputError(f"gives {name!r} a word, but the column holds numbers.", field="fill")
    return shape


def _given(asked: Plan, role: str) -> tuple[tuple[Word, ...] | None, int | None]:
    facts = asked.facts
    if role == "state":
        return facts.state_vocabulary, facts.num_states
    return facts.action_vocabulary, facts.num_actions


def _is_text(kind: Any) -> bool:
    views = (pa.types.is_string_view,) if hasattr(pa.types, "is_string_view") else ()
    tests = (pa.types.is_string, pa.types.is_large_string, *views)
    return any(test(kind) for test in tests)


def _is_numeric(kind: Any) -> bool:
    return is_number(kind) or bool(pa.types.is_null(kind))


def _is_date(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


# --- cells ---------------------------------------------------------------------------------------


def _numbers(cells: Any, flags: bool = False) -> tuple[AnyArray, AnyArray]:
    """64-bit floats, NaN where a cell is no finite number; and where there is a cell at all."""
    if isinstance(cells, list):
        there = np.array([cell not in NULL_WORDS for cell in cells], dtype=bool)
        found = np.array([_number(cell, flags) for cell in cells], dtype=np.float64)
    else:
        there = to_numpy(cells.is_valid())
        found = floats(cells).copy()
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(found), found, np.nan), there


def _number(cell: str, flags: bool) -> float:
    if flags and cell.strip().lower() in _FLAGS:
        return _FLAGS[cell.strip().lower()]
    return float(cell) if _NUMBER.fullmatch(cell) else np.nan


def _written(values: AnyArray, there: AnyArray) -> Any:
    return pa.array(values, pa.float64(), mask=~there, from_pandas=False)


def _entries(field: Field, column: Callable[[str], Any]) -> list[Any]:
    """One column for each name of the field."""
    cells = column(field.columns[0])
    if not isinstance(cells, list) and is_list(cells.type):
        return _lists(cells, field.length)
    if field.count is None:
        return [_written(*_numbers(column(name))) for name in field.columns]
    if field.words is None:
        values, there = _numbers(cells)
        with np.errstate(invalid="ignore"):
            fits = (values == np.floor(values)) & (values >= 0) & (values < field.count)
        return [_written(np.where(fits, values, np.nan), there)]
    codes, there = _coded(cells, field.words)
    return [_written(codes, there)]


def _lists(cells: Any, length: int) -> list[Any]:
    there = to_numpy(cells.is_valid())
    # Entries of null lists are there too, and hold anything.
    inside = cells.values.slice(cells.offset * length, len(cells) * length)
    values, valid = _numbers(inside)
    valid = valid.reshape(-1, length).all(axis=1) & there
    return [_written(part, valid) for part in values.reshape(-1, length).T]


def _coded(cells: Any, words: tuple[Word, ...]) -> tuple[AnyArray, AnyArray]:
    """The place of each cell among `words`; NaN for what is none of them."""
    if isinstance(words[0], str):
        if isinstance(cells, list):
            place = {word: float(i) for i, word in enumerate(words)}
            codes = np.array([place.get(cell, np.nan) for cell in cells], dtype=np.float64)
            there = np.array([cell not in NULL_WORDS for cell in cells], dtype=bool)
            # A word that the caller knows is no null.
            return codes, there | ~np.isnan(codes)
        there = to_numpy(cells.is_valid())
        if pa.types.is_null(cells.type):
            return np.full(len(cells), np.nan), there
        found = pc.index_in(cells, value_set=pa.array(words, cells.type), skip_nulls=True)
    else:
        there = _numbers(cells)[1]
        whole = _whole(cells)
        found = pc.index_in(whole, value_set=pa.array(words, pa.int64()), skip_nulls=True)
    codes = floats(found).copy()
    codes[~to_numpy(found.is_valid())] = np.nan
    return codes, there


def _whole(cells: Any) -> Any:
    """64-bit integers; null for what is none."""
    if not isinstance(cells, list) and pa.types.is_integer(cells.type):
        if pa.types.is_uint64(cells.type):
            cells = pc.if_else(pc.greater(cells, pa.scalar(2**63 - 1, pa.uint64())), None, cells)
        return pc.cast(cells, pa.int64())
    if not isinstance(cells, list) and pa.types.is_decimal(cells.type) and cells.type.scale == 0:
        # DuckDB's longest integers: by way of floats, those beyond 2^53 would be none.
        low, high = (pa.scalar(end, cells.type) for end in _ends(cells.type.precision))
        fits = pc.and_(pc.greater_equal(cells, low), pc.less_equal(cells, high))
        return pc.cast(pc.if_else(fits, cells, pa.scalar(None, cells.type)), pa.int64())
    values, there = _numbers(cells)
    with np.errstate(invalid="ignore"):
        fits = there & (values == np.floor(values)) & (np.abs(values) < _EXACT)
    return pa.array(np.where(fits, values, 0.0).astype(np.int64), mask=~fits)


def _ends(digits: int) -> tuple[Decimal, Decimal]:
    """The least and the largest of 64 bits, or of so many digits if these are fewer."""
    largest = 10**digits - 1
    return Decimal(max(-(2**63), -largest)), Decimal(min(2**63 - 1, largest))


def _ids(cells: Any, kind: Ids) -> Any:
    """Whole numbers or words; null for what is no id."""
    if kind == "number":
        return _whole(cells)
    if isinstance(cells, list):
        return pa.array([None if c in NULL_WORDS else c for c in cells], pa.large_string())
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        # Not UTF-8: one by one.
        return pa.array([_decoded(one) for one in pc.cast(cells, pa.large_binary()).to_pylist()],
                        pa.large_string())  # fmt: skip
    return cells


def _decoded(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode()
    except UnicodeDecodeError:
        return None


def _times(cells: Any, kind: Times) -> Any:
    """Numbers in order of time; null for what is no time."""
    if isinstance(cells, list):
        values = np.array([_time(cell) for cell in cells], dtype=np.float64)
        return pa.array(values, mask=~np.isfinite(values))
    if kind == "fraction":
        values, there = _numbers(cells)
        return pa.array(values, mask=~there | np.isnan(values))
    if pa.types.is_date(cells.type):
        cells = pc.cast(cells, pa.timestamp("s"), safe=False)
    if _is_date(cells.type):
        cells = pc.cast(cells, pa.int64())
    return _whole(cells)


def _time(cell: str) -> float:
    if _NUMBER.fullmatch(cell):
        return float(cell)
    try:
        at = datetime.fromisoformat(cell.strip())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return np.nan


# --- rows ----------------------------------------------------------------------------------------


def rows_of_chunks(chunks: Iterable[Chunk], shape: Shape) -> Iterator[Chunk]:
    """The rows of Arrow batches that have an owner, by the roles of columns."""
    for chunk in chunks:
        columns: dict[str, Any] = {}

        def column(name: str, chunk: Chunk = chunk, kept: dict[str, Any] = columns) -> Any:
            if name not in kept:
                kept[name] = plain(chunk.column(name))
            return kept[name]

        table = shape.read(column, chunk.batch.num_rows)
        for batch in table.combine_chunks().to_batches():
            yield Chunk(chunk.file, batch, chunk.first)


def rows_of_text(paths: list[Path], shape: Shape) -> Iterator[Chunk]:
    """The lines of CSV files that have an owner, by the roles of columns."""
    for path in paths:
        width = len(header(path))
        places = {name: place for place, name in enumerate(header(path))}
        with path.open("rb") as file:
            lines = islice(file, 1, None)
            while some := list(islice(lines, READ_ROWS)):
                cells = [row for row in map(_cells, some) if row is not None and len(row) == width]

                def column(
                    name: str, cells: list[list[str]] = cells, places: dict[str, int] = places
                ) -> list[str]:
                    return [row[places[name]] for row in cells]

                table = shape.read(column, len(cells))
                for batch in table.combine_chunks().to_batches():
                    yield Chunk(str(path), batch)


def _cells(line: bytes) -> list[str] | None:
    import csv

    try:
        return next(csv.reader((line.decode().rstrip("\r\n"),)), None)
    except (UnicodeDecodeError, csv.Error):
        return None


# --- people --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class People:
    """Valid rows in order: those of owner k are the trajectories with `owners` k."""

    columns: dict[str, AnyArray]
    per_trajectory: dict[str, AnyArray]
    starts: AnyArray
    owners: AnyArray
    count: int


def in_memory(chunks: Iterable[Chunk], shape: Shape) -> People:
    """All people of a table: exactly as many as the caller says."""
    wanted = _sure(shape.plan.people)
    batches = [chunk.batch for chunk in chunks]
    if not batches:
        return neutral(shape, wanted)
    table = pa.Table.from_batches(batches).combine_chunks()
    order = sort_order(table, shape.sorting, "The table")
    found = first(people(table.take(pa.array(order)).combine_chunks(), shape), wanted)
    return joined(found, neutral(shape, wanted - found.count))


def in_batches(chunks: Iterable[Chunk], shape: Shape, batch_rows: int) -> Iterator[People]:
    """The same a few at a time, from rows that stand together by owner; each fits into a batch."""
    wanted, held = _sure(shape.plan.people), None
    for chunk in chunks:
        new = pa.Table.from_batches([chunk.batch])
        held = new if held is None else pa.concat_tables([held, new])
        if held.num_rows <= batch_rows:
            continue
        held = held.combine_chunks()
        begins = np.flatnonzero(_changes(held.column(shape.owner)))
        last = int(begins[-1])
        if last > 0:
            found = first(people(held.slice(0, last), shape, batch_rows), wanted)
            wanted -= found.count
            if found.count:
                yield found
        # Of an owner with too many rows no more are kept than show that there are too many.
        held = held.slice(last, batch_rows + 1)
    if held is not None and held.num_rows:
        found = first(people(held.combine_chunks(), shape, batch_rows), wanted)
        wanted -= found.count
        if found.count:
            yield found
    while wanted > 0:
        yield neutral(shape, min(wanted, batch_rows))
        wanted -= min(wanted, batch_rows)


def people(table: Any, shape: Shape, most_rows: int | None = None) -> People:
    """Whoever is in sorted rows: themselves if they are valid, or the neutral person."""
    rows, asked = table.num_rows, shape.plan
    begins = _changes(table.column(shape.owner))
    new = begins | _changes(table.column("trajectory"))
    last = np.append(new[1:], True)
    owner = np.cumsum(begins) - 1
    wrong = ~to_numpy(table.column("trajectory").is_valid())
    columns: dict[str, AnyArray] = {}
    if shape.times is not None:
        times, there = _read(table, "time")
        late = np.append(False, times[1:] <= times[:-1]) & ~new
        wrong |= ~there | late
        columns["times"] = times
    for role, field in (("state", shape.state), ("action", shape.action)):
        values, bad = _answered(table, asked, role, field, new)
        columns[f"{role}s"], wrong = values, wrong | bad
    continuous = shape.action.count is None
    for key, role in (
        ("rewards", "reward"),
        ("behavior_probs", "behavior_prob"),
        ("target_probs", "target_prob"),
    ):
        name = getattr(asked, role)
        if name is None:
            continue
        values, there = _read(table, role)
        values, bad = _by_rule(values, there, asked.rule(name), asked.fill.get(name), new)
        if role != "reward":
            with np.errstate(invalid="ignore"):
                fits = values >= 0.0 if role == "target_prob" else values > 0.0
                bad |= ~(fits & (values < np.inf if continuous else values <= 1.0))
        columns[key], wrong = values, wrong | bad | np.isnan(values)
    ends: dict[str, AnyArray] = {}
    for role in ("terminated", "truncated"):
        name = getattr(asked, role)
        values = np.full(rows, bool(name))
        if isinstance(name, str):
            found, there = _read(table, role)
            found, bad = _by_rule(found, there, asked.rule(name), asked.fill.get(name), new)
            wrong |= bad | ~((found == 0.0) | (found == 1.0)) | ((found == 1.0) & ~last)
            values = found == 1.0
        ends[role] = values
    if asked.next_state is not None:
        after, bad, known = _following(table, shape, columns["states"], last)
        lost = last & ~known & ~ends["terminated"]
        wrong |= bad | lost
        ends["final_states"] = after
    count = int(owner[-1]) + 1
    valid = np.bincount(owner, wrong, count) == 0
    if most_rows is not None:
        valid &= np.bincount(owner, minlength=count) <= most_rows
    # Whoever is not valid keeps the first of their rows, which then becomes the neutral one.
    kept = np.flatnonzero(valid[owner] | begins)
    blank = ~valid[owner[kept]]
    given = neutral(shape, 1)
    for name, values in columns.items():
        values = values[kept]
        values[blank] = given.columns[name][0]
        columns[name] = values
    starts = np.flatnonzero(new[kept])
    # The last row that is kept of each trajectory.
    closing = np.append(starts[1:], kept.size) - 1
    for name, values in ends.items():
        values = values[kept[closing]]
        values[blank[closing]] = given.per_trajectory[name][0]
        ends[name] = values
    return People(columns, ends, starts, owner[kept[starts]], count)


def neutral(shape: Shape, count: int) -> People:
    """So many neutral persons: a row each, see the module."""
    asked = shape.plan

    def values(field: Field) -> AnyArray:
        if field.count is not None:
            return np.zeros(count, dtype=np.int32)
        return np.zeros((count, field.length))

    columns: dict[str, AnyArray] = {
        "states": values(shape.state),
        "actions": values(shape.action),
        "rewards": np.zeros(count),
    }
    for key, name in (("behavior_probs", asked.behavior_prob), ("target_probs", asked.target_prob)):
        if name is not None:
            columns[key] = np.ones(count)
    if shape.times is not None:
        columns["times"] = np.zeros(count, np.int64 if shape.times == "whole" else np.float64)
    ends: dict[str, AnyArray] = {
        name: np.zeros(count, bool) for name in ("terminated", "truncated")
    }
    if asked.next_state is not None:
        ends["final_states"] = values(shape.state)
    return People(columns, ends, np.arange(count), np.arange(count), count)


def first(found: People, count: int) -> People:
    """The first so many of them."""
    if found.count <= count:
        return found
    trajectories = int(np.searchsorted(found.owners, count))
    rows = int(found.starts[trajectories])
    return People(
        {name: values[:rows] for name, values in found.columns.items()},
        {name: values[:trajectories] for name, values in found.per_trajectory.items()},
        found.starts[:trajectories],
        found.owners[:trajectories],
        count,
    )


def joined(one: People, other: People) -> People:
    """Both, in this order."""

    def both(a: dict[str, AnyArray], b: dict[str, AnyArray]) -> dict[str, AnyArray]:
        return {name: np.concatenate([a[name], b[name]]) for name in a}

    return People(
        both(one.columns, other.columns),
        both(one.per_trajectory, other.per_trajectory),
        np.concatenate([one.starts, other.starts + len(one.columns["rewards"])]),
        np.concatenate([one.owners, other.owners + one.count]),
        one.count + other.count,
    )


def _read(table: Any, name: str) -> tuple[AnyArray, AnyArray]:
    """Values, with 0 for nulls, and where there are any."""
    column = table.column(name).combine_chunks()
    there = to_numpy(column.is_valid())
    return to_numpy(column.fill_null(0)).copy(), there


def _answered(
    table: Any, asked: Plan, role: str, field: Field, new: AnyArray
) -> tuple[AnyArray, AnyArray]:
    """States or actions with nulls answered, and which rows are not valid all the same."""
    wrong, parts = np.zeros(new.size, dtype=bool), []
    for position, name in enumerate(field.names):
        values, there = _read(table, f"{role}{name}")
        column = field.columns[min(position, len(field.columns) - 1)]
        given = _fill(asked, field, column) if column in asked.fill else None
        values, bad = _by_rule(values, there, asked.rule(column), given, new)
        wrong |= bad | np.isnan(values)
        parts.append(values)
    if field.count is None:
        return np.column_stack(parts), wrong
    return np.where(wrong, 0, parts[0]).astype(np.int32), wrong


def _by_rule(
    values: AnyArray, there: AnyArray, rule: str, given: Any, new: AnyArray
) -> tuple[AnyArray, AnyArray]:
    """Nulls answered by the rule for their column, and which rows have none to be answered by."""
    if rule == "fill":
        return np.where(there, values, float(given)), np.zeros(new.size, dtype=bool)
    if rule == "refuse":
        return values, ~there
    here = np.arange(new.size)
    source = np.maximum.accumulate(np.where(there, here, -1))
    begin = np.maximum.accumulate(np.where(new, here, -1))
    return values[np.maximum(source, 0)], source < begin


def _fill(asked: Plan, field: Field, column: str) -> float:
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


def _following(
    table: Any, shape: Shape, states: AnyArray, last: AnyArray
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The state after each row, which rows are not valid for it, and where it is known."""
    parts, bad = [], np.zeros(last.size, dtype=bool)
    known = np.ones(last.size, dtype=bool)
    for name in shape.state.names:
        values, there = _read(table, f"next{name}")
        bad |= there & np.isnan(values)
        known &= there
        parts.append(values)
    after = np.column_stack(parts) if shape.state.count is None else parts[0]
    differs = np.zeros(last.size, dtype=bool)
    apart = after[:-1] != states[1:]
    differs[:-1] = apart.any(axis=1) if apart.ndim == 2 else apart
    bad |= known & ~last & differs
    # Where none is given for a trajectory that terminated, nothing bootstraps from it.
    after = np.where(known if after.ndim == 1 else known[:, None], after, states)
    return np.where(np.isnan(after), 0.0, after).astype(states.dtype), bad, known


def _changes(column: Any) -> AnyArray:
    """Whether each entry differs from the one before it; the first does."""
    ids = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    apart = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)).fill_null(True)
    return np.append(True, to_numpy(apart))


def _sure(value: Any) -> Any:
    assert value is not None
    return value
