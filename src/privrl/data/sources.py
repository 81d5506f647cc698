"""Where rows come from: files and tables as chunks of Arrow batches that know their place.

No message quotes a cell: rows are private, their positions are for their owner to look up.
"""

import csv
import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from privrl.core.errors import InputError, option
from privrl.core.files import check_regular, reason
from privrl.core.threads import thread_pool
from privrl.core.types import AnyArray
from privrl.data.arrow import first_true, is_list, normalize_batch, to_numpy
from privrl.data.columns import ColumnPlan

# What a refusal says that depends on values: it is the curator's own step, and not a release.
PRIVATE = "This message is about private data: keep it to yourself."

# Cells of a CSV file that are nulls, unless in quotes. NaN is not among them: it is no number.
NULL_WORDS = frozenset(("", "NA", "N/A", "#N/A", "NULL", "null"))

# Arrow takes no other names.
NOT_TEXT = "its name is no text in UTF-8: rename it"

_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"

# Rows per batch: large enough that Python's share is small, small enough to stay in cache.
READ_ROWS = 1 << 17


@dataclass(frozen=True)
class Origin:
    """Where rows stood before they were sorted: files, where each begins, and the permutation."""

    files: tuple[str, ...]
    begins: AnyArray
    rows: AnyArray

    def place(self, row: int) -> tuple[str, int]:
        before = int(self.rows[row])
        file = int(np.searchsorted(self.begins, before, side="right")) - 1
        return self.files[file], before - int(self.begins[file])


@dataclass(frozen=True)
class Chunk:
    """Rows as they came, and where they came from."""

    file: str
    batch: Any
    first: int = 0
    origin: Origin | None = None

    def place(self, row: int) -> tuple[str, int]:
        """File and row, counted from 0 within the file."""
        if self.origin is not None:
            return self.origin.place(self.first + row)
        return self.file, self.first + row

    def column(self, name: str) -> Any:
        return self.batch.column(self.batch.schema.get_field_index(name))


def cell_error(
    place: tuple[str, int], column: str, what: str, remedy: str | None = None
) -> InputError:
    """The sentence for one bad cell."""
    file, row = place
    problem = f"{file}, column {column!r}, row {row} (counting from 0): " + what
    if remedy is None:
        return private_error(problem + ".")
    return InputError(problem, remedy=remedy + ". " + PRIVATE)


def private_error(sentence: str) -> InputError:
    """A refusal that depends on what is in the rows, and says whom it is for."""
    return InputError(sentence + " " + PRIVATE)


def wrong_type_error(chunk: Chunk, name: str, array: Any, needed: str) -> InputError:
    """The sentence for a column of the wrong type; for words, where the first one is."""
    if pa.types.is_large_string(array.type):
        numeric = pc.match_substring_regex(array, _NUMBER).fill_null(True)
        odd = ~to_numpy(numeric)
        if odd.any():
            return cell_error(chunk.place(first_true(odd)), name, "it holds a word, but " + needed)
    kind = "text" if pa.types.is_large_string(array.type) else str(array.type)
    return InputError(f"{chunk.file}: column {name!r} holds {kind}, but " + needed + ".")


def check_schema(file: str, schema: Any, plan: ColumnPlan) -> None:
    """Every column that is needed is there, once, and the rules for nulls leave nothing open.

    Whoever carries states forward says what is done with nulls of rewards and probabilities too,
    wherever the schema allows any: whether there are any is not looked at.
    """
    check_names(file, list(schema.names), plan.names)
    if plan.invalid == "neutral" or "carry" not in plan.nulls.values():
        return
    for name in plan.no_carry_columns:
        if name not in plan.nulls and schema.field(name).nullable:
            rules = option("", {name: "refuse"}) + ", or " + option("", {name: "fill"})
            problem = f"{file}: column {name!r} may hold nulls, by its type, and " + option("nulls")
            remedy = "add " + rules + " if a null means some value."
            raise InputError(problem + " gives no rule for it", remedy=remedy)


def check_names(file: str, held: Sequence[str], wanted: Iterable[str]) -> None:
    """Each of these names is that of one column."""
    for name in wanted:
        if name not in held:
            near = difflib.get_close_matches(name, held, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {_join_names(held)}."
            raise InputError(f"{file} has no column {name!r}: {hint}")
        if held.count(name) > 1:
            raise InputError(f"{file} has more than one column {name!r}.")


def header(path: Path) -> list[str]:
    """The first line of a CSV file. Nothing below it is looked at, so that nothing is quoted."""
    try:
        check_regular(path)
        with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
            # Of this line alone: a quote that is not closed would go on into the rows.
            names = next(csv.reader((file.readline().rstrip("\r\n"),)), [])
        "".join(names).encode()
    except UnicodeEncodeError:
        raise InputError(f"{path} is not text in UTF-8: save it again in that encoding.") from None
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}.") from None
    except csv.Error:
        raise InputError(f"{path} cannot be read as CSV.") from None
    if not names:
        raise InputError(f"{path} has no header: its first line must name the columns.")
    for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(names) == 1 and mark in names[0]:
            raise InputError(
                f"{path} has {word} between its columns: save it with commas, and with points in "
                "decimal numbers."
            )
    return names


def _join_names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return (shown or "no columns") + (", ..." if len(names) > 12 else "")


def first_line(error: BaseException) -> str:
    """What a library said, cut to its first sentence, without the cells it may quote."""
    text = (str(error).strip().splitlines() or [""])[0]
    text = text.split(" in conversion")[0].split(". ")[0].rstrip(".: ")
    return text[:160] or type(error).__name__


def open_parquet(path: Path) -> Any:
    """A Parquet file that reads page by page: memory does not grow with the row groups."""
    try:
        check_regular(path)
        return pq.ParquetFile(
            path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
        )
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError) as error:
        raise _parquet_error(path, error) from None


def _parquet_error(path: Path, error: OSError | ValueError) -> InputError:
    if isinstance(error, UnicodeEncodeError):
        why = NOT_TEXT
    elif isinstance(error, UnicodeDecodeError):
        why = "what it says of its columns is no text in UTF-8, so it may be damaged"
    else:
        # Arrow's own are OSErrors too, but have no number.
        why = reason(error) if getattr(error, "errno", None) else first_line(error)
    return InputError(f"{path} cannot be read as Parquet: {why}.")


def parquet_chunks(
    paths: list[Path], plan: ColumnPlan, rows: int = READ_ROWS, threads: bool = True
) -> Iterator[Chunk]:
    """The rows of many files, in order."""
    for path in paths:
        with open_parquet(path) as file:
            try:
                check_schema(str(path), file.schema_arrow, plan)
                first = 0
                for batch in file.iter_batches(rows, columns=plan.names, use_threads=threads):
                    yield Chunk(str(path), batch, first)
                    first += batch.num_rows
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise _parquet_error(path, error) from None


def prefetch(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same chunks, each read from disk while the one before it is being checked."""
    with thread_pool(1) as reader:
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            yield chunk


def table_chunks(
    name: str, reader: Any, plan: ColumnPlan, rows: int = READ_ROWS
) -> Iterator[Chunk]:
    """The batches of a `pyarrow.RecordBatchReader`, cut to at most `rows` rows each."""
    check_schema(name, reader.schema, plan)
    first = 0
    try:
        for batch in reader:
            chosen = batch.select(plan.names)
            for begin in range(0, chosen.num_rows, rows):
                piece = chosen.slice(begin, rows)
                yield Chunk(name, piece, first)
                first += piece.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        # Its words may quote a cell.
        raise private_error(
            f"{name} cannot be read: the library that holds it failed to hand over its rows."
        ) from None


def sorted_chunks(chunks: Iterator[Chunk], plan: ColumnPlan) -> Iterator[Chunk]:
    """All rows, in memory, by user, trajectory and time; bad cells keep their own row numbers."""
    files: list[str] = []
    begins: list[int] = []
    pieces: list[Any] = []
    total = 0
    for chunk in chunks:
        if not files or files[-1] != chunk.file or chunk.first == 0:
            files.append(chunk.file)
            begins.append(total)
        batch = normalize_batch(chunk.batch)
        if pieces and batch.schema != pieces[0].schema:
            raise same_types_error(chunk.file, files[0])
        pieces.append(batch)
        total += chunk.batch.num_rows
    if total == 0:
        return
    table = pa.Table.from_batches(pieces).combine_chunks()
    yield from chunks_in_order(
        table, plan, Origin(tuple(files), np.array(begins), np.arange(total))
    )


def chunks_in_order(table: Any, plan: ColumnPlan, origin: Origin) -> Iterator[Chunk]:
    """The rows of `table`, which stood where `origin` says, sorted."""
    order, file = sort_order(table, plan, origin.files[0]), origin.files[0]
    origin = replace(origin, rows=origin.rows[order])
    table = table.select(plan.names).take(pa.array(order)).combine_chunks()
    first = 0
    for batch in table.to_batches(READ_ROWS):
        yield Chunk(file, batch, first, origin)
        first += batch.num_rows


def same_types_error(file: str, first: object) -> InputError:
    """The sentence for files whose columns have other types."""
    return InputError(
        f"{file} has other column types than {first}, so they cannot be sorted together."
    )


def sort_order(table: Any, plan: ColumnPlan, file: str) -> AnyArray:
    """The permutation that sorts plain rows by user, trajectory and time, ties in their order."""
    names = dict.fromkeys(n for n in (plan.user, plan.trajectory, plan.time) if n is not None)
    for name in names:
        kind = table.column(name).type
        if is_list(kind) or pa.types.is_nested(kind):
            raise InputError(f"{file}: column {name!r} holds {kind}, which has no order.")
    try:
        order = pc.sort_indices(table, [(name, "ascending") for name in names])
    except pa.ArrowException as error:
        raise InputError(f"{file} cannot be sorted: {first_line(error)}.") from None
    found: AnyArray = to_numpy(order).astype(np.int64)
    return found
