"""Rows that have an owner, with columns by their roles: step 1 of the map, a row at a time."""

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privrl.data.arrow import normalize_array
from privrl.data.neutral import cells
from privrl.data.neutral.schema import Shape
from privrl.data.sources import READ_ROWS, Chunk, header


def rows_of_chunks(chunks: Iterable[Chunk], shape: Shape) -> Iterator[Chunk]:
    """The rows of Arrow batches that have an owner, by the roles of columns."""
    for chunk in chunks:
        columns: dict[str, Any] = {}

        def column(name: str, chunk: Chunk = chunk, kept: dict[str, Any] = columns) -> Any:
            if name not in kept:
                kept[name] = normalize_array(chunk.column(name))
            return kept[name]

        table = by_role(shape, column, chunk.batch.num_rows)
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
                split = [row for row in map(_cells, some) if row is not None and len(row) == width]

                def column(
                    name: str, split: list[list[str]] = split, places: dict[str, int] = places
                ) -> list[str]:
                    return [row[places[name]] for row in split]

                table = by_role(shape, column, len(split))
                for batch in table.combine_chunks().to_batches():
                    yield Chunk(str(path), batch)


def _cells(line: bytes) -> list[str] | None:
    try:
        return next(csv.reader((line.decode().rstrip("\r\n"),)), None)
    except (UnicodeDecodeError, csv.Error):
        return None


def by_role(shape: Shape, column: Callable[[str], Any], rows: int) -> Any:
    """Columns by their roles: nulls where there are nulls, NaN where a cell is not valid.

    Rows without an owner are left out. Looks at each row by itself.
    """
    asked, out = shape.plan, {}
    out["trajectory"] = cells.ids(column(asked.trajectory), shape.trajectories)
    if shape.users is not None:
        assert asked.user is not None
        out["user"] = cells.ids(column(asked.user), shape.users)
    if shape.times is not None:
        assert asked.time is not None
        out["time"] = cells.times(column(asked.time), shape.times)
    fields = [("state", shape.state), ("action", shape.action)]
    after = asked.next_state
    if after is not None:
        columns = (after,) if isinstance(after, str) else after
        fields.append(("next", replace(shape.state, columns=columns)))
    for role, field in fields:
        for name, values in zip(field.names, cells.entries(field, column), strict=True):
            out[f"{role}{name}"] = values
    for role in ("reward", "behavior_prob", "target_prob"):
        name = getattr(asked, role)
        if name is not None:
            out[role] = cells.to_arrow(*cells.numbers(column(name)))
    for role in ("terminated", "truncated"):
        name = getattr(asked, role)
        if isinstance(name, str):
            values, there = cells.numbers(column(name), flags=True)
            flags = np.where((values == 0) | (values == 1), values, np.nan)
            out[role] = cells.to_arrow(flags, there)
    table = pa.table({name: out[name] for name in shape.sorting.names})
    assert table.num_rows == rows
    return table.filter(pc.is_valid(table.column(shape.owner)))
