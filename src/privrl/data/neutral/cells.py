"""Cells as numbers, ids and times, one row at a time: NaN or null for what is not valid.

Cells are Arrow arrays or, from CSV files, lists of text. Nothing in here raises for what a cell
holds.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privrl.core.types import AnyArray
from privrl.data.arrow import floats, is_list, to_numpy
from privrl.data.columns import Word
from privrl.data.neutral.schema import Field, Ids, Times, is_date
from privrl.data.sources import NULL_WORDS

# Matched in linear time: a long cell of one person must not hold up the rest.
_NUMBER = re.compile(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_FLAGS = {"true": 1.0, "false": 0.0}
# Whole numbers beyond are not told apart by fractions.
_EXACT = 2.0**53


def numbers(cells: Any, flags: bool = False) -> tuple[AnyArray, AnyArray]:
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


def to_arrow(values: AnyArray, there: AnyArray) -> Any:
    return pa.array(values, pa.float64(), mask=~there, from_pandas=False)


def entries(field: Field, column: Callable[[str], Any]) -> list[Any]:
    """One column for each name of the field."""
    cells = column(field.columns[0])
    if not isinstance(cells, list) and is_list(cells.type):
        return _list_columns(cells, field.length)
    if field.count is None:
        return [to_arrow(*numbers(column(name))) for name in field.columns]
    if field.words is None:
        values, there = numbers(cells)
        with np.errstate(invalid="ignore"):
            fits = (values == np.floor(values)) & (values >= 0) & (values < field.count)
        return [to_arrow(np.where(fits, values, np.nan), there)]
    codes, there = _encode_words(cells, field.words)
    return [to_arrow(codes, there)]


def _list_columns(cells: Any, length: int) -> list[Any]:
    there = to_numpy(cells.is_valid())
    # Entries of null lists are there too, and hold anything.
    inside = cells.values.slice(cells.offset * length, len(cells) * length)
    values, valid = numbers(inside)
    valid = valid.reshape(-1, length).all(axis=1) & there
    return [to_arrow(part, valid) for part in values.reshape(-1, length).T]


def _encode_words(cells: Any, words: tuple[Word, ...]) -> tuple[AnyArray, AnyArray]:
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
        there = numbers(cells)[1]
        whole = _to_integers(cells)
        found = pc.index_in(whole, value_set=pa.array(words, pa.int64()), skip_nulls=True)
    codes = floats(found).copy()
    codes[~to_numpy(found.is_valid())] = np.nan
    return codes, there


def _to_integers(cells: Any) -> Any:
    """64-bit integers; null for what is none."""
    if not isinstance(cells, list) and pa.types.is_integer(cells.type):
        if pa.types.is_uint64(cells.type):
            cells = pc.if_else(pc.greater(cells, pa.scalar(2**63 - 1, pa.uint64())), None, cells)
        return pc.cast(cells, pa.int64())
    if not isinstance(cells, list) and pa.types.is_decimal(cells.type) and cells.type.scale == 0:
        # DuckDB's longest integers: by way of floats, those beyond 2^53 would be none.
        low, high = (pa.scalar(end, cells.type) for end in _integer_range(cells.type.precision))
        fits = pc.and_(pc.greater_equal(cells, low), pc.less_equal(cells, high))
        return pc.cast(pc.if_else(fits, cells, pa.scalar(None, cells.type)), pa.int64())
    values, there = numbers(cells)
    with np.errstate(invalid="ignore"):
        fits = there & (values == np.floor(values)) & (np.abs(values) < _EXACT)
    return pa.array(np.where(fits, values, 0.0).astype(np.int64), mask=~fits)


def _integer_range(digits: int) -> tuple[Decimal, Decimal]:
    """The least and the largest of 64 bits, or of so many digits if these are fewer."""
    largest = 10**digits - 1
    return Decimal(max(-(2**63), -largest)), Decimal(min(2**63 - 1, largest))


def ids(cells: Any, kind: Ids) -> Any:
    """Whole numbers or words; null for what is no id."""
    if kind == "number":
        return _to_integers(cells)
    if isinstance(cells, list):
        return pa.array([None if c in NULL_WORDS else c for c in cells], pa.large_string())
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        # Not UTF-8: one by one.
        raw = pc.cast(cells, pa.large_binary()).to_pylist()
        return pa.array([_decode_utf8(one) for one in raw], pa.large_string())
    return cells


def _decode_utf8(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode()
    except UnicodeDecodeError:
        return None


def times(cells: Any, kind: Times) -> Any:
    """Numbers in order of time; null for what is no time."""
    if isinstance(cells, list):
        values = np.array([_time(cell) for cell in cells], dtype=np.float64)
        return pa.array(values, mask=~np.isfinite(values))
    if kind == "fraction":
        values, there = numbers(cells)
        return pa.array(values, mask=~there | np.isnan(values))
    if pa.types.is_date(cells.type):
        cells = pc.cast(cells, pa.timestamp("s"), safe=False)
    if is_date(cells.type):
        cells = pc.cast(cells, pa.int64())
    return _to_integers(cells)


def _time(cell: str) -> float:
    if _NUMBER.fullmatch(cell):
        return float(cell)
    try:
        at = datetime.fromisoformat(cell.strip())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return np.nan
