"""Tables larger than memory: many Parquet files, read once, as batches of whole users.

    for batch in stream_parquet("stays/*.parquet", trajectory="stay", ..., user="patient"):
        ...    # a Trajectories of at most `batch_rows` rows

Memory is bounded by `batch_rows` and by 8 bytes for each trajectory and user seen (which is how a
trajectory that comes back later is noticed), not by the size of the files or their row groups.
Each batch is checked as `Trajectories.from_parquet` checks the whole; a bad row in the last file is
found only when it is reached, so whoever must not act on half a table reads the stream through once
before (`TrajectoryStream.check`).

`sort=True` sorts on disk: rows are dealt into temporary files without names by user (or
trajectory), and these parts, of which each must fit into memory, are sorted one after the other.
There is always the same number of them, and a hash of the id says which one a row goes to: so
the order of users depends on their ids alone, not on how many rows anybody has.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import AnyArray
from privrl.data import neutral
from privrl.data.arrow import normalize_array, normalize_batch, to_numpy
from privrl.data.columns import ColumnPlan, Columns
from privrl.data.columns import plan as checked_plan
from privrl.data.decoder import Decoder
from privrl.data.decoder.order import Order
from privrl.data.readers.assembly import (
    ColumnBuffer,
    RowBuffer,
    build_trajectories,
    from_people,
    with_metadata,
)
from privrl.data.readers.paths import files, title
from privrl.data.readers.tables import inspect_footers, schemas
from privrl.data.sources import (
    READ_ROWS,
    Chunk,
    Origin,
    chunks_in_order,
    first_line,
    open_parquet,
    parquet_chunks,
    prefetch,
    private_error,
    same_types_error,
)
from privrl.data.trajectories import Trajectories

if TYPE_CHECKING:
    from privrl.data.policies import Policy


# Parts on disk, all open at the same time. A constant: the number of rows is private, and with it
# whatever is derived from it.
_PARTS = 256
_ROW = "\0row"


def stream_parquet(
    paths: "str | Path | Sequence[str | Path]",
    *,
    batch_rows: int = 1_000_000,
    sort: bool = False,
    scratch: "str | Path | None" = None,
    **columns: Unpack[Columns],
) -> "TrajectoryStream":
    """A stream over Parquet files; `scratch` is where `sort=True` puts its temporary files."""
    checks.count("batch_rows", batch_rows)
    checked = checked_plan(columns)
    return TrajectoryStream(tuple(files(paths, ".parquet")), checked, batch_rows, sort, scratch)


@dataclass(frozen=True)
class TrajectoryStream:
    """Trajectories in batches; every iteration reads the files from the beginning."""

    paths: tuple[Path, ...]
    plan: ColumnPlan
    batch_rows: int
    sort: bool = False
    scratch: "str | Path | None" = None
    behavior: "Policy | None" = None
    watcher: Callable[[int], None] | None = None
    """Told the number of rows of each batch that was read: for progress bars."""

    def with_behavior(self, policy: "Policy") -> "TrajectoryStream":
        """The same stream with the behaviour probabilities of a known policy."""
        return replace(self, behavior=policy)

    def __iter__(self) -> Iterator[Trajectories]:
        for batch in self._batches():
            if self.watcher is not None:
                self.watcher(batch.num_steps)
            yield batch if self.behavior is None else batch.with_behavior(self.behavior)

    def _neutral_batches(self) -> Iterator[Trajectories]:
        """Nothing is refused but the schema; rows are always sorted."""
        _, carried = inspect_footers(self.paths, self.plan)
        shape = neutral.shape_of(schemas(self.paths), self.plan, parquet=True)
        before = 0
        rows = neutral.rows_of_chunks(parquet_chunks(list(self.paths), self.plan), shape)
        for found in neutral.in_batches(
            self._sort_chunks(shape.sorting, rows), shape, self.batch_rows
        ):
            whole = with_metadata(from_people(found, self.plan, before), carried)
            yield from whole.batches(self.batch_rows)
            before += found.count

    def _batches(self) -> Iterator[Trajectories]:
        if self.plan.invalid == "neutral":
            yield from self._neutral_batches()
            return
        decoder = Decoder(
            self.plan, whole_users=self.plan.user is not None, may_collect_words=False
        )
        _, carried = inspect_footers(self.paths, self.plan)
        waiting = RowBuffer(decoder)
        for chunk in self._chunks():
            if chunk.batch.num_rows:
                waiting.add(chunk)
            while waiting.rows > self.batch_rows:
                yield self._pop_batch(waiting, carried, chunk.file)
        waiting.close(title(self.paths))
        while waiting.rows:
            yield self._pop_batch(waiting, carried)

    def _pop_batch(
        self, waiting: RowBuffer, carried: Mapping[str, Any], file: str | None = None
    ) -> Trajectories:
        """The longest run of whole users that fits, taken off the front of the rows that wait.

        More rows may follow those of `file`; none do without one.
        """
        starts = waiting.starts.to_array()
        owned = {name: column.to_array() for name, column in waiting.owned.items()}
        columns = {name: column.to_array() for name, column in waiting.columns.items()}
        ids = owned.get("users", owned["trajectory_ids"])
        first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        # Positions at which a unit begins; the end of all rows is one too, once nothing follows.
        begins = np.append(starts[first], [] if file else [waiting.rows]).astype(np.int64)
        fitting = int(np.searchsorted(begins, self.batch_rows, side="right")) - 1
        if fitting < 1:
            what = "user" if "users" in owned else "trajectory"
            raise private_error(
                f"{file or self.paths[-1]}: a {what} has more than {self.batch_rows} rows, so it "
                "does not fit into one batch: raise batch_rows."
            )
        end = int(begins[fitting])
        count = int(np.searchsorted(starts, end))
        batch = build_trajectories(
            waiting.decoder,
            np.append(starts[:count], end),
            {name: values[:end] for name, values in columns.items()},
            {name: values[:count] for name, values in owned.items()},
            self.sort,
        )
        # What is left is copied, so that it does not hold on to the memory of the batch.
        waiting.columns = {name: ColumnBuffer.of(v[end:].copy()) for name, v in columns.items()}
        waiting.owned = {name: ColumnBuffer.of(v[count:]) for name, v in owned.items()}
        waiting.starts = ColumnBuffer.of(starts[count:] - end)
        waiting.rows -= end
        return with_metadata(batch, carried)

    def _chunks(self) -> Iterator[Chunk]:
        paths = list(self.paths)
        if not self.sort:
            yield from prefetch(parquet_chunks(paths, self.plan, min(READ_ROWS, self.batch_rows)))
            return
        yield from self._sort_chunks(self.plan, parquet_chunks(paths, self.plan))

    def _sort_chunks(self, checked: ColumnPlan, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        where = gettempdir() if self.scratch is None else self.scratch
        try:
            TemporaryFile(dir=where).close()
        except OSError as error:
            raise InputError(f"scratch {where} cannot be used: {error.strerror}.") from None
        with ExitStack() as files:
            yield from _external_sort(list(self.paths), checked, where, files, chunks)

    def check(self) -> "Totals":
        """Read everything once, so that the first bad row is known, and count."""
        trajectories = steps = batches = users = 0
        for batch in self:
            trajectories += batch.num_trajectories
            steps += batch.num_steps
            users += batch.num_users or 0
            batches += 1
        return Totals(trajectories, steps, users if self.plan.user is not None else None, batches)


@dataclass(frozen=True)
class Totals:
    """What a stream held."""

    num_trajectories: int
    num_steps: int
    num_users: int | None
    num_batches: int

    def summary(self) -> str:
        """The counts, for the data's owner: they are exact, so do not publish them."""
        people = "" if self.num_users is None else f", {self.num_users:,} users"
        return f"{self.num_trajectories:,} trajectories{people}, {self.num_steps:,} steps"


def _external_sort(
    paths: list[Path],
    checked: ColumnPlan,
    scratch: "str | Path",
    files: ExitStack,
    chunks: Iterator[Chunk],
) -> Iterator[Chunk]:
    """Rows sorted by way of files: dealt by owner into parts, each part sorted in memory.

    The files have no names: they hold people's rows, and go with the process, however it ends.
    """
    total, begins = 0, []
    for path in paths:
        with open_parquet(path) as file:
            begins.append(total)
            total += file.metadata.num_rows
    parts: dict[int, IO[bytes]] = {}
    writers: dict[int, Any] = {}
    schema, row = None, 0
    role, owner = ("trajectory", checked.trajectory) if checked.user is None else (
        "user", checked.user
    )  # fmt: skip
    rows_in_order = Order(checked)
    try:
        for chunk in chunks:
            batch = normalize_batch(chunk.batch)
            if schema is None:
                schema = batch.schema
            elif batch.schema != schema:
                raise same_types_error(chunk.file, paths[0])
            part = _partition_index(rows_in_order.ids(chunk, role, owner))
            order = np.argsort(part, kind="stable")
            ends = np.searchsorted(part[order], np.arange(_PARTS + 1))
            numbered = batch.append_column(_ROW, pa.array(row + np.arange(batch.num_rows))).take(
                pa.array(order)
            )
            for number in np.unique(part).tolist():
                if number not in writers:
                    parts[number] = TemporaryFile(dir=scratch)  # noqa: SIM115 (the stack closes it)
                    files.callback(_close, parts[number])
                    writers[number] = pa.ipc.new_file(parts[number], numbered.schema)
                piece = numbered.slice(ends[number], ends[number + 1] - ends[number])
                writers[number].write_batch(piece)
            row += batch.num_rows
        for writer in writers.values():
            writer.close()
        for file in parts.values():
            file.flush()
    except OSError as error:
        raise InputError(f"Sorting needs room in {scratch}: {first_line(error)}.") from None
    names = tuple(str(path) for path in paths)
    for number in sorted(parts):
        try:
            with parts[number] as file:
                table = pa.ipc.open_file(file).read_all().combine_chunks()
        except OSError as error:
            raise InputError(
                f"What was sorted in {scratch} cannot be read: {first_line(error)}."
            ) from None
        origin = Origin(names, np.array(begins), to_numpy(table.column(_ROW)))
        yield from chunks_in_order(table, checked, origin)


def _close(file: IO[bytes]) -> None:
    # What was not written, for want of room, is not wanted any more.
    with suppress(OSError):
        file.close()


def _partition_index(ids: Any) -> AnyArray:
    """Which part each row goes to: the same for the same id, in every batch and file."""
    if not isinstance(ids, np.ndarray):
        words = normalize_array(ids).dictionary_encode()
        sums = [zlib.crc32(word.encode()) for word in words.dictionary.to_pylist()]
        ids = np.array(sums, dtype=np.int64)[to_numpy(words.indices)]
    # Multiplication by an odd constant spreads ids that differ in their low bits only.
    mixed = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    spread: AnyArray = (mixed % np.uint64(_PARTS)).astype(np.int64)
    return spread
