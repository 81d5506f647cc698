"""Trajectories from tables: Parquet and CSV files, and what offers the Arrow C stream interface."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from privrl.core.errors import InputError, option
from privrl.core.files import check_regular
from privrl.data import neutral
from privrl.data.columns import ColumnPlan, plan
from privrl.data.readers.assembly import from_people, load, read_metadata, with_metadata
from privrl.data.readers.paths import Paths, files, title
from privrl.data.sources import (
    NOT_TEXT,
    NULL_WORDS,
    PRIVATE,
    Chunk,
    check_schema,
    first_line,
    header,
    open_parquet,
    parquet_chunks,
    prefetch,
    private_error,
    table_chunks,
)
from privrl.data.trajectories import Trajectories


def from_parquet(paths: Paths, sort: bool, columns: Mapping[str, Any]) -> Trajectories:
    """`columns` are the keyword arguments of `Trajectories.from_parquet`."""
    checked, found = plan(columns), files(paths, ".parquet")
    rows, carried = inspect_footers(found, checked)
    if checked.invalid == "neutral":
        shape = neutral.shape_of(schemas(found), checked, parquet=True)
        rows_of = neutral.rows_of_chunks(prefetch(parquet_chunks(found, checked)), shape)
        return with_metadata(from_people(neutral.in_memory(rows_of, shape), checked), carried)
    data = load(prefetch(parquet_chunks(found, checked)), checked, sort, title(found), rows)
    return with_metadata(data, carried)


def schemas(paths: Iterable[Path]) -> Iterator[tuple[str, Any]]:
    """The names of files and their Arrow schemas."""
    for path in paths:
        with open_parquet(path) as file:
            yield str(path), file.schema_arrow


def inspect_footers(paths: Iterable[Path], checked: ColumnPlan) -> tuple[int, dict[str, Any]]:
    """From the footers alone: every column is there; how many rows; what `to_parquet` said of them.

    If any file holds probabilities that were estimated from private data, the whole does.
    """
    rows = 0
    notes: list[Any] = []
    told: list[Any] = []
    read: list[Any] = []
    for path in paths:
        with open_parquet(path) as file:
            check_schema(str(path), file.schema_arrow, checked)
            rows += file.metadata.num_rows
            carried = read_metadata(file.schema_arrow)
        notes += carried.get("notes", ())
        read += carried.get("read", ())
        told.append(carried.get("behavior", {}))
    told.sort(key=lambda one: (one.get("source") != "estimated", one.get("public") is True))
    return rows, {"notes": notes, "behavior": told[0], "read": read}


def from_csv(
    paths: Paths, sort: bool, types: Mapping[str, Any] | None, columns: Mapping[str, Any]
) -> Trajectories:
    """`columns` are the keyword arguments of `Trajectories.from_csv`."""
    checked, found = plan(columns), files(paths, ".csv")
    if checked.invalid == "neutral":
        if types:
            problem = "types are those of the roles with " + option("invalid", "neutral")
            raise InputError(problem, remedy="leave them out.")
        shape = neutral.text_shape(found, checked)
        return from_people(neutral.in_memory(neutral.rows_of_text(found, shape), shape), checked)
    # Ids are text: as numbers 1 and 01 would be one person, and so would long ones. A column that
    # has another role as well is what that role needs.
    others = replace(checked, trajectory=checked.reward, user=None).names
    ids = (checked.trajectory, checked.user)
    kept = {name: pa.string() for name in ids if name is not None and name not in others}
    for name, kind in (types or {}).items():
        if name not in checked.names:
            raise InputError(f"types names {name!r}, which is not a column that is read.")
        try:
            kept[name] = pa.type_for_alias(kind) if isinstance(kind, str) else kind
        except ValueError as error:
            raise InputError(f"types names a type that Arrow does not know: {error}.") from None
        if not isinstance(kept[name], pa.DataType):
            raise InputError(f"must give {name!r} the name of a type, not {kind!r}.", field="types")
    for path in found:
        named = pa.schema([(name, pa.string()) for name in header(path)])
        check_schema(str(path), named, checked)
    try:
        return load(_csv_chunks(found, checked, kept), checked, sort, title(found))
    except InputError as error:
        # The types of columns were guessed from their cells, so every refusal is about those.
        raise error if error.text.endswith(PRIVATE) else private_error(error.text) from None


def _csv_chunks(paths: list[Path], checked: ColumnPlan, types: dict[str, Any]) -> Iterator[Chunk]:
    for path in paths:
        options = pa_csv.ConvertOptions(
            column_types=types,
            null_values=sorted(NULL_WORDS),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        try:
            check_regular(path)
            # A line with too few or too many cells stops the reading rather than being skipped.
            table = pa_csv.read_csv(path, convert_options=options)
        except FileNotFoundError:
            raise InputError(f"There is no file {path}.") from None
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise _csv_error(path, error, options) from None
        check_schema(str(path), table.schema, checked)
        yield from table_chunks(str(path), table.select(checked.names).to_reader(), checked)


def _csv_error(path: Path, error: Exception, options: Any) -> InputError:
    """Arrow quotes the line, which is private: keep what was expected and where."""
    if isinstance(error, UnicodeEncodeError):
        return InputError(f"{path} cannot be read: {NOT_TEXT}.")
    if isinstance(error, pa.ArrowInvalid):
        try:
            # Once more in one thread, which counts the rows.
            alone = pa_csv.ReadOptions(use_threads=False)
            pa_csv.read_csv(path, read_options=alone, convert_options=options)
        except (pa.ArrowException, OSError) as again:
            error = again
    text = str(error)
    row = re.match(r"(CSV parse error|In CSV column #\d+): Row #(\d+): ", text)
    # Arrow counts from 1, and the header too.
    place = "" if row is None else f", row {int(row[2]) - 2} (counting from 0)"
    cells = re.search(r"Expected (\d+) columns, got (\d+)", text)
    column = re.match(r"In CSV column #(\d+): ", text)
    if cells is not None:
        return InputError(f"{path}{place}: there are {cells[2]} cells instead of {cells[1]}.")
    if column is not None:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            name = next(csv.reader(file))[int(column[1])]
        return InputError(
            f"{path}, column {name!r}{place}: the value does not fit the type of the column."
        )
    reason = "" if text.startswith("CSV parse error") else f": {first_line(error)}"
    return InputError(f"{path} cannot be read as CSV{reason}.")


def from_table(table: Any, sort: bool, columns: Mapping[str, Any]) -> Trajectories:
    """`columns` are the keyword arguments of `Trajectories.from_table`."""
    checked = plan(columns)
    if not hasattr(table, "__arrow_c_stream__"):
        raise InputError(
            f"A {type(table).__name__} is not a table: it must offer the Arrow C stream interface, "
            "as Arrow, pandas, Polars and DuckDB do."
        )
    try:
        reader = pa.RecordBatchReader.from_stream(table)
    except Exception as error:
        # The other library's own failure; its words may quote a cell.
        raise private_error(
            f"The table cannot be read: its library failed with {type(error).__name__}."
        ) from None
    chunks = table_chunks("The table", reader, checked)
    if checked.invalid == "neutral":
        shape = neutral.shape_of([("The table", reader.schema)], checked)
        data = from_people(neutral.in_memory(neutral.rows_of_chunks(chunks, shape), shape), checked)
        return with_metadata(data, read_metadata(reader.schema))
    data = load(chunks, checked, sort, "The table")
    return with_metadata(data, read_metadata(reader.schema))
