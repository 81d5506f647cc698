"""Tables that are damaged: as text or bytes, or in their columns and cells."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.damage import PRIVATE_NUMBER, PRIVATE_WORD, Rng, choice, spoiled_bytes

CELLS = [
    *("", "NA", "null", "nan", "NaN", "inf", "-inf", "1e308", "-1e308", "1e400", "1e-320", "-0.0"),
    *("0", "1", "-1", "2", "99", "1.5", "1.0", "true", "false", "TRUE", "yes", "2020-01-01", "1e3"),
    *(
        "9" * 18,
        "9" * 25,
        "9" * 400,
        "0x10",
        " 1",
        "1 ",
        "١",
        "\0",
        "\x1b[2J",
        '"',
        "'",
        "1,5",
        "é",
    ),
    *(
        PRIVATE_WORD,
        PRIVATE_WORD,
        PRIVATE_NUMBER,
        PRIVATE_NUMBER,
        "x" * 3000,
        "\udcff",
        "a\nb",
        ";",
    ),
    *(
        "2020-01-01T00:00:00Z",
        "12:00",
        "1/2",
        "$1",
        "1%",
        "+1",
        "1_000",
        "[1]",
        "{}",
        "=1+1",
        "#N/A",
    ),
]


def spoiled_csv(rng: Rng, content: bytes) -> bytes:
    """A CSV file with damaged bytes, lines or cells."""
    if rng.random() < 0.25:
        return spoiled_bytes(rng, content)
    rows = list(csv.reader(io.StringIO(content.decode())))

    def cell() -> None:
        row = choice(rng, rows[1:] if rng.random() < 0.9 else rows)
        row[int(rng.integers(len(row)))] = choice(rng, CELLS)

    def column() -> None:
        place, value = int(rng.integers(len(rows[0]))), choice(rng, CELLS)
        for row in rows[1:]:
            row[place] = value

    def short() -> None:
        choice(rng, rows).pop()

    def long() -> None:
        choice(rng, rows).append(choice(rng, CELLS))

    def renamed() -> None:
        names = ["", "r", "stay", "STAY", " stay", "x" * 3000, "\x1b[2J", PRIVATE_WORD, "a\nb", '"']
        rows[0][int(rng.integers(len(rows[0])))] = choice(rng, names)

    def doubled() -> None:
        place = int(rng.integers(len(rows[0])))
        for row in rows:
            row.append(row[place])

    def dropped() -> None:
        place = int(rng.integers(len(rows[0])))
        for row in rows:
            del row[place : place + 1]

    def shuffled() -> None:
        order = rng.permutation(len(rows) - 1) + 1
        rows[1:] = [rows[i] for i in order]

    def repeated() -> None:
        rows.append(list(choice(rng, rows)))

    def headless() -> None:
        del rows[0]

    def emptied() -> None:
        del rows[int(rng.integers(3)) :]

    def blank() -> None:
        rows.insert(int(rng.integers(len(rows) + 1)), [])

    ways: list[Callable[[], None]] = [cell, cell, cell, cell, column, short, long, renamed, doubled]
    ways += [dropped, shuffled, repeated, headless, emptied, blank]
    for _ in range(int(choice(rng, [1, 1, 1, 2, 3]))):
        if not rows or not all(rows[:1]) or len(rows) < 2:
            break
        if min(map(len, rows)) == 0:
            break
        choice(rng, ways)()
    text = io.StringIO()
    dialect: dict[str, Any] = {"lineterminator": choice(rng, ["\n", "\n", "\r\n", "\r"])}
    if rng.random() < 0.1:
        dialect["delimiter"] = choice(rng, [";", "\t", "|"])
    if rng.random() < 0.1:
        dialect["quoting"] = csv.QUOTE_ALL
    csv.writer(text, **dialect).writerows(rows)
    coding = choice(rng, ["utf-8"] * 12 + ["utf-8-sig", "utf-16", "latin-1", "utf-32"])
    errors = "replace" if coding == "latin-1" else "surrogatepass"
    return text.getvalue().encode(coding, errors)


def spoiled_parquet(rng: Rng, source: Path, target: Path) -> None:
    """A Parquet file with damaged bytes, or with other columns."""
    if rng.random() < 0.45:
        target.write_bytes(spoiled_bytes(rng, source.read_bytes()))
        return
    table = pq.read_table(source)
    for _ in range(int(choice(rng, [1, 1, 1, 2]))):
        table = _other_table(rng, table)
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["compression"] = choice(rng, ["gzip", "none", "zstd"])
        options["row_group_size"] = int(choice(rng, [1, 3, 7]))
    if rng.random() < 0.1:
        options["version"] = "1.0"
    try:
        pq.write_table(table, target, **options)
    except (pa.ArrowException, ValueError, OverflowError):
        target.write_bytes(spoiled_bytes(rng, source.read_bytes()))


def _other_table(rng: Rng, table: Any) -> Any:
    names = ["stay", "patient", "t", "ward", "dose", "r", "p", "q", "died", "hr", "map"]
    held = [one for one in names if table.column_names.count(one) == 1]
    action = choice(rng, ["cell"] * 4 + ["type"] * 5 + ["drop", "double", "rows", "none", "about"])
    if not held or table.num_rows == 0 or action == "none":
        return choice(rng, [table.select([]), table.slice(0, 0), table])
    name = choice(rng, held)
    place = table.column_names.index(name)
    if action == "drop":
        return table.drop_columns([name])
    if action == "double":
        return table.append_column(name, table.column(name))
    if action == "rows":
        return table.take(pa.array(rng.integers(table.num_rows, size=table.num_rows)))
    if action == "about":
        key = choice(rng, [b"privrl", b"privrl.notes", b"pandas", b"ARROW:schema"])
        value = choice(rng, [b"", b"{}", b"null", b'{"notes": 1}', b"\xff", b'{"behavior": []}'])
        return table.replace_schema_metadata({key: value})
    cells = table.column(name).to_pylist()
    if action == "cell":
        odd = [None, float("nan"), float("inf"), -1, 99, 0, 1.5, 2**62, 1e308, 5e-324, 73190264.515]
        cells[int(rng.integers(len(cells)))] = choice(rng, odd)
        kind = pa.float64() if any(isinstance(one, float) for one in cells) else None
        try:
            made = pa.array(cells, kind, from_pandas=False)
        except (pa.ArrowException, OverflowError, TypeError):
            return table
        return table.set_column(place, name, made)
    return table.set_column(place, name, _typed(rng, cells))


def _typed(rng: Rng, cells: list[Any]) -> Any:
    """The column as another type."""
    count = len(cells)
    numbers = [float(one) if isinstance(one, int | float) else 0.0 for one in cells]
    whole = [int(min(max(one, -100), 100)) if one == one else 0 for one in numbers]
    ways: list[Callable[[], Any]] = [
        lambda: pa.array([str(one) for one in cells]),
        lambda: pa.array([str(one) for one in cells], pa.large_string()),
        lambda: pa.array([PRIVATE_WORD] * count),
        lambda: pa.array([str(one).encode() for one in cells], pa.binary()),
        lambda: pa.array([[one] for one in numbers]),
        lambda: pa.array([[one] * (i % 3) for i, one in enumerate(numbers)]),
        lambda: pa.array([{"a": one} for one in numbers]),
        lambda: pa.array(whole, pa.int8()),
        lambda: pa.array([abs(one) for one in whole], pa.uint64()),
        lambda: pa.array([2**63 + abs(one) for one in whole], pa.uint64()),
        lambda: pa.array(numbers, pa.float32()),
        lambda: pa.array(whole, pa.timestamp("ns", "UTC")),
        lambda: pa.array(whole, pa.duration("s")),
        lambda: pa.array(whole, pa.date32()),
        lambda: pa.array(whole, pa.time32("s")),
        lambda: pa.array(whole).cast(pa.decimal128(25, 2)),
        lambda: pa.nulls(count),
        lambda: pa.nulls(count, pa.float64()),
        lambda: pa.array([bool(one) for one in whole]),
        lambda: pa.array([str(one) for one in cells]).dictionary_encode(),
        lambda: pa.array([1e308] * count),
        lambda: pa.array([73190264.515] * count),
        lambda: pa.array([[("a", one)] for one in numbers], pa.map_(pa.string(), pa.float64())),
        lambda: pa.array([[one, one] for one in numbers], pa.list_(pa.float64(), 2)),
        lambda: pa.array([str(one).encode()[:2].ljust(2) for one in cells], pa.binary(2)),
    ]
    return choice(rng, ways)()
