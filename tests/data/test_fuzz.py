"""Ten thousand malformed tables: each is refused in one sentence, and none is taken for good."""

import io
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from privrl.data import Trajectories
from privrl.data.sources import PRIVATE
from privrl.privacy import InputError
from tests.data.tables import COLUMNS, DISCRETE, same, table

Rng = np.random.Generator
# What is read, with which columns, and which column and row the sentence must name.
Case = tuple[Any, dict[str, Any], str | None, int | None]

PER_CLASS = 200
# Quick tests take the first quarter of what slow ones do.
shares = pytest.mark.parametrize(
    "share", [4, pytest.param(1, marks=pytest.mark.slow)], ids=["quarter", "whole"]
)


def put(source: Any, column: str, row: int, value: object, kind: Any = None) -> Any:
    """`source` with one cell replaced."""
    cells = source.column(column).to_pylist()
    if isinstance(value, int) and isinstance(cells[row], bool):
        cells = [int(c) for c in cells] if not isinstance(value, bool) else cells
    cells[row] = value
    kind = source.schema.field(column).type if kind is None else kind
    return source.set_column(
        source.column_names.index(column), column, pa.array(cells, kind, from_pandas=False)
    )


def row_of(rng: Rng, source: Any) -> int:
    return int(rng.integers(source.num_rows))


def inner(source: Any) -> Any:
    """Rows that continue the trajectory of the row before."""
    stay = np.array(source.column("stay"))
    return np.flatnonzero(stay[1:] == stay[:-1]) + 1


def missing_column(rng: Rng, t: Any) -> Case:
    name = str(rng.choice(["stay", "t", "hr", "map", "dose", "r", "p", "q", "patient", "died"]))
    return t.drop_columns([name]), COLUMNS, name, None


def doubled_column(rng: Rng, t: Any) -> Case:
    name = str(rng.choice(["stay", "hr", "r", "p"]))
    return t.append_column(name, t.column(name)), COLUMNS, name, None


def words_for_numbers(rng: Rng, t: Any) -> Case:
    name, row = str(rng.choice(["hr", "map", "r", "p", "q"])), row_of(rng, t)
    cells = [str(c) for c in t.column(name).to_pylist()]
    cells[row] = str(rng.choice(["high", "", "1,5", "0x10", "12 mmHg"]))
    index = t.column_names.index(name)
    # Which row it is can only be said if the first batch holds it (see `test_broken_text`).
    return t.set_column(index, name, pa.array(cells)), COLUMNS, name, None


def wrong_type(rng: Rng, t: Any) -> Case:
    rows = t.num_rows
    kinds: list[tuple[str, Any]] = [
        ("stay", pa.array(np.linspace(0, 1, rows))),
        ("stay", pa.array([b"x"] * rows)),
        ("patient", pa.array([[1]] * rows)),
        ("patient", pa.array([True] * rows)),
        ("t", pa.array([True] * rows)),
        ("t", pa.array([[1.0]] * rows)),
        ("died", pa.array(np.linspace(0, 1, rows))),
        ("died", pa.array(["yes"] * rows)),
        ("r", pa.array([[1.0]] * rows)),
        ("r", pa.array(np.zeros(rows, dtype="datetime64[s]"))),
        ("p", pa.array([{"p": 0.5}] * rows)),
        ("hr", pa.array([[80.0]] * rows)),
        ("dose", pa.array(np.zeros(rows, dtype="datetime64[s]"))),
        ("dose", pa.array([b"low"] * rows)),
    ]
    name, column = kinds[int(rng.integers(len(kinds)))]
    return t.set_column(t.column_names.index(name), name, column), COLUMNS, name, None


def bad_reward(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    return put(t, "r", row, float(rng.choice([np.nan, np.inf, -np.inf]))), COLUMNS, "r", row


def bad_state(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    return put(t, "hr", row, float(rng.choice([np.nan, np.inf, -np.inf]))), COLUMNS, "hr", row


def bad_probability(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    value = rng.choice([0.0, -0.0, -0.1, 1.0000001, 2.0, 1e308, np.nan, np.inf, -np.inf])
    return put(t, "p", row, float(value)), COLUMNS, "p", row


def bad_target_probability(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    value = rng.choice([-1e-9, -1.0, 1.0000001, np.nan, np.inf])
    return put(t, "q", row, float(value)), COLUMNS, "q", row


def null_cell(rng: Rng, t: Any) -> Case:
    name, row = str(rng.choice(list(set(t.column_names) - {"cell", "drug"}))), row_of(rng, t)
    return put(t, name, row, None), COLUMNS, name, row


def null_column(rng: Rng, t: Any) -> Case:
    name = str(rng.choice(["stay", "patient", "t", "hr", "dose", "r", "p", "died"]))
    index = t.column_names.index(name)
    return t.set_column(index, name, pa.nulls(t.num_rows)), COLUMNS, name, 0


def nothing_to_carry(rng: Rng, t: Any) -> Case:
    starts = np.setdiff1d(np.arange(t.num_rows), inner(t))
    name, row = str(rng.choice(["hr", "map"])), int(rng.choice(starts))
    rules = {"hr": "carry", "map": "carry", "r": "refuse", "p": "refuse", "q": "refuse"}
    return put(t, name, row, None), COLUMNS | {"nulls": rules}, name, row


def time_goes_back(rng: Rng, t: Any) -> Case:
    row = int(rng.choice(inner(t)))
    times = t.column("t").to_pylist()
    changed = put(put(t, "t", row, times[row - 1]), "t", row - 1, times[row])
    return changed, COLUMNS, "t", row


def infinite_time(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    return put(t, "t", row, float(rng.choice([np.nan, np.inf])), pa.float64()), COLUMNS, "t", row


def step_twice(rng: Rng, t: Any) -> Case:
    row = int(rng.choice(inner(t)))
    return put(t, "t", row, t.column("t").to_pylist()[row - 1]), COLUMNS, "t", row


def row_twice(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    order = np.insert(np.arange(t.num_rows), row, row)
    return t.take(order), COLUMNS | {"terminated": None, "truncated": None}, "t", row + 1


def trajectory_comes_back(rng: Rng, t: Any) -> Case:
    extra = t.slice(0, 1)
    return pa.concat_tables([t, extra]), COLUMNS, "stay", t.num_rows


def torn_user(rng: Rng, t: Any) -> Case:
    row = int(rng.choice(inner(t)))
    return put(t, "patient", row, "somebody else"), COLUMNS, "patient", row


def ended_early(rng: Rng, t: Any) -> Case:
    row, name = int(rng.choice(inner(t))) - 1, str(rng.choice(["died", "left"]))
    return put(t, name, row, True), COLUMNS, name, row


def neither_true_nor_false(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    return put(t, "died", row, int(rng.choice([2, -1, 100])), pa.int64()), COLUMNS, "died", row


def outside_table(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    return put(t, "cell", row, int(rng.choice([7, 8, -1, 2**31, -(2**40)]))), DISCRETE, "cell", row


def fraction_of_a_state(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    value = float(rng.choice([0.5, np.nan, np.inf, 1e300]))
    return put(t, "cell", row, value, pa.float64()), DISCRETE, "cell", row


def action_outside(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    return put(t, "dose", row, int(rng.choice([4, -1]))), COLUMNS, "dose", row


def unknown_word(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    return put(t, "drug", row, str(rng.choice(["LOW", "", "lo", "low "]))), DISCRETE, "drug", row


def number_too_long(rng: Rng, t: Any) -> Case:
    row, name = row_of(rng, t), str(rng.choice(["stay", "cell"]))
    return put(t, name, row, 2**63 + 1, pa.uint64()), DISCRETE, name, row


def mixed_dimensions(rng: Rng, t: Any) -> Case:
    row = int(rng.integers(1, t.num_rows))
    cells: list[list[float]] = rng.normal(size=(t.num_rows, 3)).tolist()
    cells[row] = cells[row][: int(rng.integers(0, 3))]
    columns = COLUMNS | {"state": "vector"}
    return t.append_column("vector", pa.array(cells)), columns, "vector", row


def empty_vectors(rng: Rng, t: Any) -> Case:
    cells: list[list[float]] = [[]] * t.num_rows
    column = pa.array(cells, pa.list_(pa.float64()))
    return t.append_column("vector", column), COLUMNS | {"state": "vector"}, "vector", 0


def bad_entry_of_a_vector(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    cells: list[list[float | None]] = rng.normal(size=(t.num_rows, 3)).tolist()
    cells[row][int(rng.integers(3))] = [np.nan, np.inf, None][int(rng.integers(3))]
    kind = pa.list_(pa.float64(), 3) if rng.random() < 0.5 else pa.list_(pa.float64())
    column = pa.array(cells, kind, from_pandas=False)
    return t.append_column("vector", column), COLUMNS | {"state": "vector"}, "vector", row


def null_vector(rng: Rng, t: Any) -> Case:
    row = row_of(rng, t)
    cells: list[list[float] | None] = rng.normal(size=(t.num_rows, 2)).tolist()
    cells[row] = None
    kind = pa.list_(pa.float64(), 2) if rng.random() < 0.5 else pa.large_list(pa.float64())
    columns = COLUMNS | {"state": "vector"}
    return t.append_column("vector", pa.array(cells, kind)), columns, "vector", row


def missing_row(rng: Rng, t: Any) -> Case:
    """A hole in a trajectory, which the next state gives away."""
    row = int(rng.choice(inner(t)))
    after = np.array(t.column("hr"))[np.minimum(np.arange(1, t.num_rows + 1), t.num_rows - 1)]
    t = t.append_column("next", pa.array(after))
    t = put(t, "hr", row, float(t.column("hr")[row].as_py()) + 1.0)
    return t, COLUMNS | {"state": ["hr"], "next_state": ["next"]}, "next", row - 1


def no_next_state(rng: Rng, t: Any) -> Case:
    last = np.setdiff1d(np.arange(t.num_rows), inner(t) - 1)
    row = int(rng.choice(last))
    hr = np.array(t.column("hr"))
    after: list[float | None] = np.append(hr[1:], 0.0).tolist()
    after[row] = None
    columns = COLUMNS | {"state": ["hr"], "next_state": ["next"], "terminated": None}
    return t.append_column("next", pa.array(after)), columns, "next", row


def zero_rows(rng: Rng, t: Any) -> Case:
    return t.slice(0, 0), (COLUMNS if rng.random() < 0.5 else DISCRETE), None, None


def no_columns(rng: Rng, t: Any) -> Case:
    return t.select([]), COLUMNS, "stay", None


def not_a_table(rng: Rng, t: Any) -> Case:
    things: list[Any] = [None, 3, "stays", [1, 2], {"stay": [1]}, np.zeros((3, 3)), object()]
    return things[int(rng.integers(len(things)))], COLUMNS, None, None


def wrong_words(rng: Rng, t: Any) -> Case:
    """The table is good; what is said about it is not."""
    wrong: list[dict[str, Any]] = [
        {"reward": None},
        {"reward": ["r"]},
        {"state": []},
        {"state": ["hr", "hr"]},
        {"state": 3},
        {"time": 3},
        {"num_actions": 0},
        {"num_actions": 2.5},
        {"num_actions": True},
        {"num_states": 3},
        {"nulls": "drop"},
        {"nulls": {"stay": "fill"}},
        {"nulls": {"elsewhere": "carry"}},
        {"nulls": "fill"},
        {"nulls": {"r": "fill"}, "fill": {"r": np.nan}},
        {"fill": {"r": 0.0}},
        {"action_vocabulary": ["a", "a"]},
        {"action_vocabulary": ["a", 1]},
        {"action_vocabulary": "abc"},
        {"terminated": True, "truncated": True},
        {"next_state": "hr"},
        {"reqard": "r"},
    ]
    return t, COLUMNS | wrong[int(rng.integers(len(wrong)))], None, None


MALFORMED: list[Callable[[Rng, Any], Case]] = [
    missing_column,
    doubled_column,
    words_for_numbers,
    wrong_type,
    bad_reward,
    bad_state,
    bad_probability,
    bad_target_probability,
    null_cell,
    null_column,
    nothing_to_carry,
    time_goes_back,
    infinite_time,
    step_twice,
    row_twice,
    trajectory_comes_back,
    torn_user,
    ended_early,
    neither_true_nor_false,
    outside_table,
    fraction_of_a_state,
    action_outside,
    unknown_word,
    number_too_long,
    mixed_dimensions,
    empty_vectors,
    bad_entry_of_a_vector,
    null_vector,
    missing_row,
    no_next_state,
    zero_rows,
    no_columns,
    not_a_table,
    wrong_words,
]


def assert_one_sentence(text: str) -> None:
    """But for the one that says whom a message about private data is for."""
    text = text.removesuffix(f" {PRIVATE}")
    assert text[-1] in ".?", text
    assert "\n" not in text, text
    assert not re.search(r"[.?!] [A-Z]", text), text
    assert 15 < len(text) < 400, text


@shares
@pytest.mark.parametrize("malformed", MALFORMED, ids=lambda f: f.__name__)
def test_malformed_tables(
    malformed: Callable[[Rng, Any], Case], share: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(MALFORMED.index(malformed))
    pool = [t for t in (table(rng, users=4, longest=5) for _ in range(20)) if inner(t).size]
    for round_ in range(PER_CLASS // share):
        source, columns, column, row = malformed(rng, pool[round_ % len(pool)])
        # Cut into batches at random, so that the bad row may be the first or last of one.
        cut = int(rng.choice([1, 3, 6, 100], p=[0.1, 0.2, 0.2, 0.5]))
        name = "The table"
        on_disk = isinstance(source, pa.Table) and round_ % 8 == 0 and malformed is not no_columns
        if on_disk:
            name = str(tmp_path / "bad.parquet")
            pq.write_table(source, name, row_group_size=cut)
        elif isinstance(source, pa.Table):
            source = pa.Table.from_batches(source.to_batches(cut), source.schema)
        read = Trajectories.from_parquet if on_disk else Trajectories.from_table
        with pytest.raises(InputError) as caught:
            read(name if on_disk else source, **columns)
        text = str(caught.value)
        assert_one_sentence(text)
        if column is not None:
            assert text.startswith(name), text
            assert repr(column) in text, text
        if row is not None:
            assert f"row {row} (counting from 0)" in text, (text, row)


def test_unbroken_tables_are_taken() -> None:
    rng = np.random.default_rng(99)
    for _ in range(300):
        good = table(rng, users=4, longest=5)
        for columns in (COLUMNS, DISCRETE):
            assert Trajectories.from_table(good, **columns).num_steps == good.num_rows


@shares
def test_broken_files(share: int, tmp_path: Path) -> None:
    """1,600 Parquet files cut short or overwritten, and 1,600 with a few bytes changed.

    A changed byte may sit where nothing is read; then what is loaded must be what was written.
    """
    rng = np.random.default_rng(5)
    path = tmp_path / "broken.parquet"
    good = Trajectories.from_table(table(rng), **COLUMNS)
    names = good.to_parquet(path)
    whole = path.read_bytes()
    refused = 0
    for _ in range(800 // share):
        end = int(rng.integers(len(whole)))
        path.write_bytes(whole[:end])
        with pytest.raises(InputError) as caught:
            Trajectories.from_parquet(path, **names)
        assert_one_sentence(str(caught.value))
        assert str(path) in str(caught.value)
        path.write_bytes(whole[:end] + rng.bytes(len(whole) - end))
        with pytest.raises(InputError) as caught:
            Trajectories.from_parquet(path, **names)
        assert_one_sentence(str(caught.value))
    for _ in range(1600 // share):
        content = bytearray(whole)
        # Values and their headers, which checksums guard; the footer describes them unguarded.
        for place in rng.integers(4, len(whole) * 2 // 3, int(rng.integers(1, 4))):
            content[place] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(content))
        try:
            loaded = Trajectories.from_parquet(path, **names)
        except InputError as error:
            assert_one_sentence(str(error))
            refused += 1
        else:
            same(good, loaded)
    assert refused > 800 // share


def test_broken_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    path = tmp_path / "broken.csv"
    for round_ in range(200):
        held = io.BytesIO()
        pa_csv.write_csv(table(rng), held)
        lines = held.getvalue().decode().splitlines()
        row = int(rng.integers(1, len(lines)))
        cells = lines[row].split(",")
        kind = round_ % 4
        if kind == 0:
            cells.pop()
        elif kind == 1:
            cells.append("3")
        elif kind == 2:
            cells[lines[0].replace('"', "").split(",").index("r")] = "much"
        lines[row] = ",".join(cells)
        path.write_text("\n".join(lines[:1] if kind == 3 else lines) + "\n")
        with pytest.raises(InputError) as caught:
            Trajectories.from_csv(path, **COLUMNS)
        text = str(caught.value)
        assert_one_sentence(text)
        assert text.startswith(str(path))
        # No cell is quoted: the file is private.
        assert "patient-" not in text
        if kind == 2:
            assert f"row {row - 1} (counting from 0)" in text
    path.write_bytes(b"")
    with pytest.raises(InputError):
        Trajectories.from_csv(path, **COLUMNS)


@shares
def test_broken_descriptions(share: int, tmp_path: Path) -> None:
    """The footer, which nothing guards: whatever is changed in it, there is no traceback."""
    rng = np.random.default_rng(8)
    path = tmp_path / "broken.parquet"
    names = Trajectories.from_table(table(rng), **COLUMNS).to_parquet(path)
    whole = path.read_bytes()
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refused = 0
    for _ in range(800 // share):
        content = bytearray(whole)
        for place in rng.integers(begin, len(whole), int(rng.integers(1, 4))):
            content[place] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(content))
        try:
            Trajectories.from_parquet(path, **names)
        except InputError as error:
            assert_one_sentence(str(error).replace(str(path), "file"))
            refused += 1
    assert refused > 500 // share


# --- a second opinion ----------------------------------------------------------------------------

POISON: list[Any] = [
    None, -1, 0, 1, 2, 3, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 0.0, -0.0, 0.5, 1.0, 1.5,
    float(np.nextafter(1.0, 2.0)), 1e308, -1e308, 5e-324, np.nan, np.inf, -np.inf, "", "x", "y",
    "z", "nan", "1", True, False, Decimal(1), Decimal("0.5"), [1.0], {"x": 1}, b"x",
]  # fmt: skip
LOOK: dict[str, Any] = {
    "trajectory": "i", "user": "u", "time": "t", "state": "s", "action": "a", "reward": "r",
    "behavior_prob": "p", "terminated": "d", "num_states": 3, "action_vocabulary": ["x", "y"],
}  # fmt: skip


def numeric(cell: object) -> bool:
    return isinstance(cell, int | float | Decimal)


def slow(cells: dict[str, list[Any]], rule: str) -> dict[str, list[Any]] | None:
    """What `LOOK` should make of a table, cell by cell; None if any part of it is no good."""
    out: dict[str, list[Any]] = {name: list(column) for name, column in cells.items()}
    rows = range(len(cells["i"]))
    for name in ("i", "u"):
        kinds = {type(cell) for cell in cells[name]}
        # A column of decimals without a fraction is one of whole numbers.
        if kinds == {Decimal} and all(c == int(c) and c.as_tuple().exponent == 0
                                      for c in cells[name]):  # fmt: skip
            kinds, out[name] = {int}, [int(c) for c in cells[name]]
        if kinds not in ({int}, {str}):
            return None
        if kinds == {int} and any(not -(2**63) <= c < 2**63 for c in out[name]):
            return None
    begins = [row == 0 or out["i"][row] != out["i"][row - 1] for row in rows]
    started = [out["i"][row] for row in rows if begins[row]]
    if len(set(started)) < len(started):
        return None
    for row in rows:
        t, s, a = cells["t"][row], cells["s"][row], cells["a"][row]
        if isinstance(t, bool) or not numeric(t) or not math.isfinite(t):
            return None
        if isinstance(t, int) and t >= 2**63:
            return None
        if not numeric(s) or s not in (0, 1, 2) or a not in ("x", "y"):
            return None
        r = cells["r"][row]
        if r is None and rule == "fill":
            r = 7
        if not numeric(r) or not math.isfinite(r):
            return None
        out["r"][row] = float(r)
        p = cells["p"][row]
        if not numeric(p) or not 0 < p <= 1:
            return None
        if isinstance(cells["d"][row], float | Decimal) or cells["d"][row] not in (0, 1):
            return None
        if begins[row]:
            continue
        before = cells["t"][row - 1]
        if isinstance(t, Decimal):
            t, before = float(t), float(before)  # as which they are kept
        if out["u"][row] != out["u"][row - 1] or t <= before or cells["d"][row - 1]:
            return None
    return out


def poisoned(rng: Rng) -> Any:
    """A small good table with a few changes that may or may not hurt."""
    lengths = rng.integers(1, 4, int(rng.integers(1, 4)))
    i = np.repeat(np.arange(lengths.size), lengths)
    n = i.size
    last = np.append(i[1:] != i[:-1], True)
    cells: dict[str, list[Any]] = {
        "i": i.tolist(),
        "u": [f"u{k // 2}" for k in i],
        "t": [int(k) for k in np.arange(n)],
        "s": rng.integers(0, 3, n).tolist(),
        "a": rng.choice(["x", "y"], n).tolist(),
        "r": rng.normal(size=n).tolist(),
        "p": rng.uniform(0.1, 1.0, n).tolist(),
        "d": (last & (rng.random(n) < 0.5)).tolist(),
    }
    for _ in range(int(rng.integers(0, 4))):
        row, other, name = int(rng.integers(n)), int(rng.integers(n)), str(rng.choice(list(cells)))
        kind = int(rng.integers(5))
        if kind == 0:
            cells[name][row] = POISON[int(rng.integers(len(POISON)))]
        elif kind == 1:
            cells[name] = [POISON[int(rng.integers(len(POISON)))]] * n
        elif kind == 2:
            for column in cells.values():
                column[row], column[other] = column[other], column[row]
        elif kind == 3:
            cells[name][row] = cells[name][other]
        else:
            for column in cells.values():
                column[row] = column[other]
    try:
        return pa.table({name: pa.array(c, from_pandas=False) for name, c in cells.items()})
    except (pa.ArrowException, OverflowError):
        return None  # cells of several kinds do not make a column


@shares
def test_against_a_slow_reader(share: int) -> None:
    """2,000 tables, good and bad: what is accepted, and as what, agrees with plain Python."""
    rng = np.random.default_rng(11)
    accepted = refused = 0
    while accepted + refused < 2000 // share:
        source = poisoned(rng)
        if source is None:
            continue
        rule = str(rng.choice(["refuse", "fill"]))
        more: dict[str, Any] = {"nulls": {"r": rule}} | (
            {"fill": {"r": 7}} if rule == "fill" else {}
        )
        cells = {name: source.column(name).to_pylist() for name in source.column_names}
        expected = slow(cells, rule)
        pieces = pa.Table.from_batches(source.to_batches(int(rng.integers(1, 6))), source.schema)
        found, why = None, ""
        try:
            found = Trajectories.from_table(pieces, **LOOK, **more)
        except InputError as error:
            why = str(error)
            assert_one_sentence(why)
        assert (found is None) == (expected is None), (why, repr(cells))
        if found is None or expected is None:
            refused += 1
            continue
        accepted += 1
        owner = np.repeat(np.arange(found.num_trajectories), found.lengths)
        assert found.trajectory_ids[owner].tolist() == expected["i"], cells
        assert found.users is not None
        assert found.users[owner].tolist() == expected["u"], cells
        assert found.times is not None
        assert found.times.tolist() == [float(t) if isinstance(t, Decimal) else t
                                        for t in expected["t"]]  # fmt: skip
        assert found.states.tolist() == expected["s"], cells
        assert [("x", "y")[a] for a in found.actions] == expected["a"]
        assert found.rewards.tolist() == expected["r"], cells
        assert np.asarray(found.behavior_probs).tolist() == [float(p) for p in expected["p"]]
        ends = [bool(d) for d in np.array(expected["d"])[found.offsets[1:] - 1]]
        assert found.terminated.tolist() == ends
    assert min(accepted, refused) > 400 // share, (accepted, refused)


def test_there_are_ten_thousand() -> None:
    assert len(MALFORMED) * PER_CLASS + 3200 + 200 >= 10_000
