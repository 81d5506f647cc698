"""Logs of runs: rows of numbers as CSV, as lines of JSON, or as TensorBoard reads them.

    privrl.learn(spec, env, 500, session=PrivacySession(public=True), loggers=[CsvLog("log.csv")])

All three formats only ever grow at their end. So how far a log goes is one number, its length in
bytes, and a checkpoint that keeps this number can take back what a crash left behind it: `seek`
cuts each file there. Rows are thus neither lost nor written twice.

The event files of TensorBoard are written here, without that package: each record is its length, a
masked CRC-32C of that, a protocol buffer `Event`, and a masked CRC-32C of the buffer.
"""

import csv
import io
import json
import math
import os
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privrl.control.loop import EPISODE, Row
from privrl.core import files
from privrl.core.errors import InputError

Clock = Callable[[], float]

SEED = "seed"
"""The column that tells replicas apart, which rows may have."""


class Logs:
    """The logs of one run in its folder, written together: a `Logger` for the engine."""

    def __init__(self, folder: str | Path, formats: Iterable[str]) -> None:
        places = paths(folder, formats)
        self._logs = tuple(FORMATS[name](path) for name, path in places.items())

    def write(self, rows: Sequence[Row]) -> None:
        """Add rows, and wait until they are on disk."""
        for log in self._logs:
            log.write(rows)

    def close(self) -> None:
        """The run is over."""

    @property
    def position(self) -> dict[str, int]:
        """How far each log goes, by the name of its file."""
        return {log.path.name: log.position for log in self._logs}

    def seek(self, position: Mapping[str, int] | None) -> None:
        """Go on from `position`, and forget what is behind it; None for new logs."""
        for log in self._logs:
            log.seek(None if position is None else position[log.path.name])


class Log(ABC):
    """One file of rows that grows at its end; what a format adds is how it puts rows in bytes.

    The first `write` or `seek` begins it, whatever was there.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.position = 0
        self._begun = False

    def seek(self, position: int | None) -> None:
        """Go on from `position`, and forget what is behind it; None for a new log."""
        self.position, self._begun = position or 0, True
        try:
            if position and (not self.path.exists() or self.path.stat().st_size < position):
                raise InputError(
                    f"{str(self.path)!r} is shorter than the run left it, so the run cannot go on: "
                    "put the file back."
                )
            with self.path.open("ab") as file:
                file.truncate(self.position)
            self._resume()
        except OSError as error:
            raise _write_error(self.path, error) from None

    def write(self, rows: Sequence[Row]) -> None:
        """Add rows, and wait until they are on disk."""
        if not self._begun:
            self.seek(None)
        if not rows:
            return
        content = self._encode(rows)
        try:
            with self.path.open("ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                self.position = file.tell()
        except OSError as error:
            raise _write_error(self.path, error) from None

    def close(self) -> None:  # noqa: B027 (rows are on disk)
        """The run is over."""

    @abstractmethod
    def _encode(self, rows: Sequence[Row]) -> bytes:
        """The rows as the format has them."""

    def _resume(self) -> None:  # noqa: B027 (most formats have nothing to find out)
        """Find out what earlier rows have settled."""


class CsvLog(Log):
    """A header, then a line for each row; numbers come back bit for bit."""

    _columns: list[str] | None = None

    def _resume(self) -> None:
        if self.position:
            files.check_regular(self.path)
            with self.path.open(newline="", encoding="utf-8") as file:
                self._columns = next(csv.reader(file))

    def _encode(self, rows: Sequence[Row]) -> bytes:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        if self._columns is None:
            self._columns = list(rows[0])
            writer.writerow(self._columns)
        for row in rows:
            if list(row) != self._columns:
                raise InputError(
                    f"{str(self.path)!r} has the columns {', '.join(self._columns)}, and a row "
                    f"has {', '.join(row)}."
                )
            writer.writerow([repr(value) for value in row.values()])
        return text.getvalue().encode()


class JsonLog(Log):
    """A JSON object in each line; what is no finite number is null, as JSON has none."""

    def _encode(self, rows: Sequence[Row]) -> bytes:
        lines = (
            json.dumps({k: v if math.isfinite(v) else None for k, v in row.items()}) for row in rows
        )
        return "".join(f"{line}\n" for line in lines).encode()


class TensorBoardLog(Log):
    """Scalars over episodes, by the names of the columns; replicas are told apart by their
    seeds."""

    def __init__(self, path: str | Path, clock: Clock = time.time) -> None:
        self._clock = clock
        super().__init__(path)

    def _encode(self, rows: Sequence[Row]) -> bytes:
        now = self._clock()
        events = [_event(now, 0, _text(3, "brain.Event:2"))] if not self.position else []
        for row in rows:
            replica = f"seed {row[SEED]:g}/" if SEED in row else ""
            values = b"".join(
                _message(
                    1, _text(1, replica + name) + _tag(2, 5) + struct.pack("<f", _to_float32(value))
                )
                for name, value in row.items()
                if name not in (EPISODE, SEED)
            )
            events.append(_event(now, int(row[EPISODE]), _message(5, values)))
        return records(events)


FORMATS: dict[str, type[Log]] = {"csv": CsvLog, "jsonl": JsonLog, "tensorboard": TensorBoardLog}
_FILES = {"csv": "log.csv", "jsonl": "log.jsonl", "tensorboard": "events.out.tfevents.0.privrl"}


def paths(folder: str | Path, formats: Iterable[str]) -> dict[str, Path]:
    """Where the log of each format is in `folder`."""
    found = {}
    for name in formats:
        if name not in FORMATS:
            listed = ", ".join(FORMATS)
            raise InputError(f"There is no log format {name!r}: the formats are {listed}.")
        found[name] = Path(folder) / _FILES[name]
    return found


def _write_error(path: Path, error: OSError) -> InputError:
    return InputError(f"{str(path)!r} cannot be written: {error.strerror}.")


# --- TensorBoard's records ------------------------------------------------------------------------


def records(events: Sequence[bytes]) -> bytes:
    """Each event with its length and the two checksums."""
    lengths = [struct.pack("<Q", len(event)) for event in events]
    heads, bodies = _masked_crc32c(lengths), _masked_crc32c(events)
    parts = zip(lengths, heads, events, bodies, strict=True)
    return b"".join(b"".join(part) for part in parts)


def _event(seconds: float, step: int, what: bytes) -> bytes:
    """`Event`: field 1 is the time, 2 the step, and `what` one of the others."""
    return _tag(1, 1) + struct.pack("<d", seconds) + _tag(2, 0) + _varint(step) + what


def _to_float32(value: float) -> float:
    """The nearest number that 32 bits can hold, infinite if it is beyond them all."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _tag(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _message(field: int, content: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())


def _varint(value: int) -> bytes:
    """Seven bits in each byte, the lowest first; all but the last have their top bit set."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _masked_crc32c(texts: Sequence[bytes]) -> list[bytes]:
    """The checksum of each text, as the records hold it: turned by 15 bits, and a constant added.

    Texts of the same length are worked on together, a byte of all of them at a time.
    """
    by_length: dict[int, list[int]] = {}
    for place, text in enumerate(texts):
        by_length.setdefault(len(text), []).append(place)
    found = np.zeros(len(texts), np.uint32)
    for length, places in by_length.items():
        block = np.frombuffer(b"".join(texts[place] for place in places), np.uint8)
        found[places] = crc32c(block.reshape(len(places), length))
    turned = (found >> np.uint32(15)) | (found << np.uint32(17))
    with np.errstate(over="ignore"):
        masked = (turned + np.uint32(0xA282EAD8)).astype("<u4")
    return [bytes(word) for word in masked[:, None].view(np.uint8)]


def crc32c(texts: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The CRC-32C (Castagnoli) of each row of bytes."""
    state = np.full(texts.shape[0], 0xFFFFFFFF, np.uint32)
    for column in texts.T:
        state = _TABLE[(state ^ column) & np.uint32(0xFF)] ^ (state >> np.uint32(8))
    return ~state


def _table() -> NDArray[np.uint32]:
    """What each byte does to the remainder: eight steps of the reversed polynomial."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table.astype(np.uint32)


_TABLE = _table()
