"""A table of made-up stays, and what can be put in the place of one of its people.

Cells are Python's. A Parquet file has the types of `TYPES`, which are public; a replacement that
does not fit them (a word in a column of numbers) cannot be written as Parquet, but as CSV it can.
"""

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any] | bytes
"""A row by its columns; or, in CSV files only, a line as it stands."""

Format = Literal["parquet", "csv"]

TYPES: dict[str, Any] = {
    "stay": pa.int64(),
    "patient": pa.int64(),
    "t": pa.int64(),
    # The same in words and as dates, for commands that read those.
    "stay_name": pa.string(),
    "patient_name": pa.string(),
    "at": pa.timestamp("s"),
    # A discrete state, in numbers and in words, and the next one.
    "ward": pa.int64(),
    "condition": pa.string(),
    "next_ward": pa.int64(),
    # A state that is a vector.
    "hr": pa.float64(),
    "map": pa.float64(),
    "dose": pa.int64(),
    "drug": pa.string(),
    "r": pa.float64(),
    "p": pa.float64(),
    "q": pa.float64(),
    "died": pa.bool_(),
    "moved": pa.bool_(),
}
IDS = {"stay", "patient", "stay_name", "patient_name"}
TIMES = {"t", "at"}
CONDITIONS = ("mild", "moderate", "severe")
DRUGS = ("none", "some")

PEOPLE = 12
CHOSEN = 5
"""Who is replaced: somebody in the middle, with a single stay."""

_MIDNIGHT = datetime(2020, 1, 1)


def people() -> list[list[Row]]:
    """The rows of each person, who stand together; every third person has two stays."""
    draw = np.random.default_rng(18)
    found, stay = [], 1000
    for person in range(PEOPLE):
        rows: list[Row] = []
        for _ in range(2 if person % 3 == 0 else 1):
            stay += 10
            rows += _stay(draw, 10 * (person + 1), stay, int(draw.integers(3, 6)))
        found.append(rows)
    return found


def _stay(draw: np.random.Generator, patient: int, stay: int, length: int) -> list[Row]:
    wards = draw.integers(3, size=length + 1)
    rows: list[Row] = []
    for t in range(length):
        ward, dose = int(wards[t]), int(draw.integers(2))
        row = {
            "stay": stay,
            "patient": patient,
            "t": t,
            "stay_name": f"stay {stay}",
            "patient_name": f"patient {patient}",
            "at": _MIDNIGHT + timedelta(hours=t),
            "ward": ward,
            "condition": CONDITIONS[ward],
            "next_ward": int(wards[t + 1]),
            "hr": float(draw.uniform(30.0, 200.0)),
            "map": float(draw.uniform(40.0, 140.0)),
            "dose": dose,
            "drug": DRUGS[dose],
            "r": float(draw.uniform(0.0, 1.0)),
            "p": 0.5,
            "q": float(draw.uniform(0.1, 0.9)),
            "died": t == length - 1 and stay % 20 == 0,
            "moved": t == length - 1 and stay % 20 != 0,
        }
        rows.append(row)
    return rows


def count_rows() -> int:
    """How many rows everybody has together."""
    return sum(map(len, people()))


# --- replacements --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replacement:
    """What stands in the place of the chosen person: as many people as before, one of them another.

    `touched` are the columns that say so: a command that reads none of them need not be run. With
    `several` it has more than one trajectory, so that only a command with a column of people sees
    as many units as before. `moves` says that the person stands elsewhere in the order of the data.
    """

    name: str
    rows: Callable[[list[dict[str, Any]]], Sequence[Row]]
    touched: frozenset[str] = frozenset()
    several: bool = False
    moves: bool = False
    placed: Literal["here", "last", "among"] = "here"

    def table(self, everybody: list[list[Row]]) -> list[Row]:
        """All rows, with this in the place of the chosen one's."""
        own = [dict(row) for row in everybody[CHOSEN] if isinstance(row, dict)]
        new = list(self.rows(own))
        before, after = everybody[:CHOSEN], everybody[CHOSEN + 1 :]
        if self.placed == "last":
            groups = [*before, *after, new]
        elif self.placed == "among":
            mixed: list[Row] = []
            for one, other in zip(new, after[0], strict=False):
                mixed += [one, other]
            least = min(len(new), len(after[0]))
            groups = [*before, mixed + new[least:] + after[0][least:], *after[1:]]
        else:
            groups = [*before, new, *after]
        return [row for group in groups for row in group]


def replacements() -> list[Replacement]:
    """All of them; the first ones hold nothing that a reader could object to."""
    return [*_valid(), *_cells(), *_lines()]


def quick() -> list[Replacement]:
    """One of each kind, for CI."""
    listed = {one.name: one for one in replacements()}
    return [listed[name] for name in _QUICK]


_QUICK = (
    *("more rows", "fewer rows", "a single row", "a very long trajectory", "three trajectories"),
    *("rewards of 1e308", "states of 1e308", "the least probability", "the last id"),
    *("null in ward", "null in r", "null in p", "null in patient", "null in stay all over"),
    *("nan in r", "inf in hr", "0 in p", "99 in ward", "-1 in dose", "10^30 in t"),
    *("a word in r", "a word in condition", "a word in patient all over", "1.5 in died"),
    *("rows in another order", "times that collide", "rows there twice", "a line too short"),
)


def _valid() -> Iterator[Replacement]:
    yield Replacement("more rows", lambda rows: _lasting(rows, len(rows) + 1))
    yield Replacement("fewer rows", lambda rows: _lasting(rows, len(rows) - 1))
    yield Replacement("a single row", lambda rows: _lasting(rows, 1))
    yield Replacement("a very long trajectory", lambda rows: _lasting(rows, 300))
    yield Replacement("terminated", lambda rows: _ended(rows, died=True, moved=False))
    yield Replacement("truncated", lambda rows: _ended(rows, died=False, moved=True))
    yield Replacement("neither end", lambda rows: _ended(rows, died=False, moved=False))
    for name, values in {
        "all the best": {"r": 1.0, "p": 1e-3, "q": 1.0, "ward": 0, "dose": 1},
        "all the worst": {"r": 0.0, "p": 1.0, "q": 0.0, "ward": 2, "dose": 0},
        "rewards of 1e308": {"r": 1e308},
        "rewards of -1e308": {"r": -1e308},
        "the least probability": {"p": 5e-324},
        "a target probability of 0": {"q": 0.0},
        "states of 1e308": {"hr": 1e308, "map": -1e308},
    }.items():
        yield Replacement(name, _set(values), frozenset(values))
    yield Replacement("negative times", _shifted(-1000), frozenset({"t", "at"}))
    yield Replacement("times beyond 2^53", _shifted(2**60), frozenset({"t"}))
    yield Replacement(
        "three trajectories", lambda rows: [*rows, *_again(rows, 1), *_again(rows, 2)], several=True
    )
    yield Replacement(
        "fifty trajectories",
        lambda rows: [row for k in range(50) for row in _again(rows, k)],
        several=True,
    )
    for name, number in {"the first id": -7, "the last id": 10**9, "a long id": 2**62}.items():
        word = "a" * 70_000 if name == "a long id" else ("" if number < 0 else "zz")
        yield Replacement(
            name,
            _set(
                {
                    "stay": number,
                    "patient": number,
                    "stay_name": f"{word}stay",
                    "patient_name": f"{word}patient",
                }
            ),
            frozenset(IDS),
            moves=True,
        )
    yield Replacement("rows at the end of the table", list, moves=True, placed="last")


def _cells() -> Iterator[Replacement]:
    """One odd cell, in the second row and in the first."""
    odd: dict[str, tuple[Any, Sequence[str]]] = {
        "null": (None, list(TYPES)),
        "nan": (math.nan, ("hr", "r", "p", "q", "t", "ward", "dose")),
        "inf": (math.inf, ("hr", "r", "p", "q", "t")),
        "-inf": (-math.inf, ("hr", "r")),
        "0": (0.0, ("p",)),
        "1.5": (1.5, ("p", "q", "ward", "dose", "died", "stay", "t")),
        "-0.1": (-0.1, ("p", "q")),
        "99": (99, ("ward", "next_ward", "dose", "died")),
        "-1": (-1, ("ward", "next_ward", "dose")),
        "2^40": (2**40, ("ward", "dose")),
        "10^30": (10**30, ("stay", "patient", "t", "ward", "dose", "r")),
        "10^400": (10**400, ("t", "ward", "r", "p", "hr")),
        "a word": ("unheard of", [name for name in TYPES if name not in ("stay_name",)]),
        "an empty word": ("", ("condition", "drug", "patient_name")),
        "a very long word": ("long " * 20_000, ("condition", "drug")),
        "a date": ("2020-02-30", ("t", "at", "r", "ward", "stay")),
        "true": (True, ("r", "ward", "dose", "t")),
    }
    for name, (value, columns) in odd.items():
        for column in columns:
            # Another id in some rows only would be of one person more.
            rows = (1, 0, None) if value is None else (None if column in IDS else 1,)
            for row in rows:
                where = {1: "", 0: " first", None: " all over"}[row]
                yield Replacement(
                    f"{name} in {column}{where}",
                    _set({column: value}, row),
                    frozenset({column}),
                    moves=column in IDS,
                )
    yield Replacement("only nulls", _set({name: None for name in TYPES if name not in IDS | TIMES}))


def _lines() -> Iterator[Replacement]:
    """Rows in other places, and lines that are none."""
    yield Replacement("rows in another order", lambda rows: rows[::-1], frozenset(TIMES))
    yield Replacement("times that collide", _set({"t": 1, "at": _MIDNIGHT}), frozenset(TIMES))
    yield Replacement("rows there twice", lambda rows: [row for row in rows for _ in range(2)])
    yield Replacement("rows among another's", list, placed="among")
    yield Replacement(
        "another's trajectory id",
        _set({"stay": 1010, "stay_name": "stay 1010"}),
        frozenset(IDS),
        several=True,
    )
    yield Replacement("died on the way", _set({"died": True}, 0), frozenset({"died"}))
    yield Replacement("died and moved", _ended_twice, frozenset({"died", "moved"}))
    yield Replacement(
        "a next state that does not follow", _set({"next_ward": 1}), frozenset({"next_ward"})
    )
    yield Replacement("a line too short", lambda rows: [*rows, b"1,2"])
    yield Replacement("a line too long", lambda rows: [*rows, b"," * 40])
    yield Replacement("an open quote", lambda rows: [*rows, b'"1,2'])
    yield Replacement("a line that is no text", lambda rows: [*rows, b"\xff\xfe" + b"," * 17])
    yield Replacement("an empty line", lambda rows: [*rows, b""])


def _set(values: Mapping[str, Any], row: int | None = None) -> Callable[[Any], list[Row]]:
    """The same rows, or one of them, with other cells."""

    def changed(rows: list[dict[str, Any]]) -> list[Row]:
        return [
            one | (dict(values) if row is None or row == number else {})
            for number, one in enumerate(rows)
        ]

    return changed


def _shifted(by: int) -> Callable[[Any], list[Row]]:
    def changed(rows: list[dict[str, Any]]) -> list[Row]:
        hours = max(by, -1000) if abs(by) < 2**40 else 0
        return [r | {"t": r["t"] + by, "at": r["at"] + timedelta(hours=hours)} for r in rows]

    return changed


def _lasting(rows: list[dict[str, Any]], length: int) -> list[Row]:
    """The same stay, so many rows long; it ends as it did."""
    found: list[dict[str, Any]] = []
    for t in range(length):
        row = rows[t % len(rows)] | {"t": t, "at": _MIDNIGHT + timedelta(hours=t)}
        found.append(row | {"next_ward": rows[(t + 1) % len(rows)]["ward"]})
    return _ended(found, **{name: rows[-1][name] for name in ("died", "moved")})


def _ended(rows: list[dict[str, Any]], **flags: bool) -> list[Row]:
    others = dict.fromkeys(flags, False)
    return [row | (flags if number == len(rows) - 1 else others) for number, row in enumerate(rows)]


def _ended_twice(rows: list[dict[str, Any]]) -> list[Row]:
    return _ended(rows, died=True, moved=True)


def _again(rows: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """Another stay of the same person."""
    return [
        row
        | {
            "stay": row["stay"] + (0 if number == 0 else 10**6 + number),
            "stay_name": row["stay_name"] + (f" {number}" if number else ""),
        }
        for row in rows
    ]


# --- files ---------------------------------------------------------------------------------------


def write(rows: Sequence[Row], path: Path, form: Format) -> bool:
    """Write a table; False if this one cannot be written in this form."""
    if form == "csv":
        path.write_bytes(_csv(rows))
        return True
    columns: dict[str, Any] = {}
    for name, kind in TYPES.items():
        if not all(isinstance(row, dict) for row in rows):
            return False
        cells = [row[name] for row in rows if isinstance(row, dict)]
        if pa.types.is_boolean(kind) != any(isinstance(cell, bool) for cell in cells):
            return False
        try:
            columns[name] = pa.array(cells, kind, from_pandas=False)
            if columns[name].type == pa.int64() and columns[name].to_pylist() != cells:
                return False
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return False
    pq.write_table(pa.table(columns), path)
    return True


def _csv(rows: Sequence[Row]) -> bytes:
    lines = [",".join(TYPES).encode()]
    for row in rows:
        if isinstance(row, bytes):
            lines.append(row)
            continue
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow([_cell(row[name]) for name in TYPES])
        lines.append(text.getvalue().encode())
    return b"\n".join(lines) + b"\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)
