"""Logs in three formats, which a crash neither doubles nor shortens."""

import csv
import json
import math
import struct
from pathlib import Path

import numpy as np
import pytest

from privrl.control.loop import Row
from privrl.core.errors import InputError
from privrl.run.logs import FORMATS, CsvLog, Logs, TensorBoardLog, crc32c, paths

ROWS: list[Row] = [
    {"episode": 1, "return": 0.1, "length": 7},
    {"episode": 2, "return": -1e300, "length": 200},
    {"episode": 300, "return": math.nan, "length": 1},
]


# --- reading TensorBoard's files, by another way than they are written ----------------------------


def crc_bitwise(text: bytes) -> int:
    """Long division, a bit at a time."""
    state = 0xFFFFFFFF
    for byte in text:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def records(content: bytes) -> list[bytes]:
    """The events in a file, each checked against both its checksums."""

    def checked(text: bytes, word: bytes) -> bytes:
        found = crc_bitwise(text)
        turned = (found >> 15 | found << 17) & 0xFFFFFFFF
        assert struct.unpack("<I", word)[0] == (turned + 0xA282EAD8) & 0xFFFFFFFF
        return text

    found = []
    while content:
        (length,) = struct.unpack("<Q", checked(content[:8], content[8:12]))
        found.append(checked(content[12 : 12 + length], content[12 + length : 16 + length]))
        content = content[16 + length :]
    return found


def fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """A protocol buffer as numbers of fields and their raw content."""

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    found: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(message):
        tag, at = varint(at)
        if tag & 7 == 0:
            number, at = varint(at)
            found.append((tag >> 3, number))
            continue
        size = {1: 8, 5: 4}.get(tag & 7)
        if size is None:
            size, at = varint(at)
        found.append((tag >> 3, message[at : at + size]))
        at += size
    return found


def scalars(path: Path) -> tuple[str, list[tuple[float, int, str, float]]]:
    """The version of a file, and (time, step, tag, value) of all that is in it."""
    version, found = "", []
    for event in records(path.read_bytes()):
        parts = dict(fields(event))
        when, step = parts[1], parts[2]
        assert isinstance(when, bytes)
        assert isinstance(step, int)
        if 3 in parts:
            assert isinstance(parts[3], bytes)
            version = parts[3].decode()
            continue
        assert isinstance(parts[5], bytes)
        for number, value in fields(parts[5]):
            assert number == 1
            assert isinstance(value, bytes)
            inner = dict(fields(value))
            assert isinstance(inner[1], bytes)
            assert isinstance(inner[2], bytes)
            (seconds,) = struct.unpack("<d", when)
            (number32,) = struct.unpack("<f", inner[2])
            found.append((seconds, step, inner[1].decode(), number32))
    return version, found


def test_checksums_are_those_of_the_standard() -> None:
    # The check value of CRC-32C, and the vectors in RFC 3720, appendix B.4.
    vectors = {
        b"123456789": 0xE3069283,
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        bytes(range(31, -1, -1)): 0x113FDB5C,
        b"": 0,
    }
    for text, wanted in vectors.items():
        block = np.frombuffer(text, np.uint8).reshape(1, -1)
        assert crc32c(block)[0] == crc_bitwise(text) == wanted


def test_tensorboard_finds_every_number_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "events"
    log = TensorBoardLog(path, clock=lambda: 12.5)
    log.write(ROWS[:1])
    log.write([{"episode": 2, "seed": 11, "return": 1e300, "length": 2**24 + 1}])
    version, found = scalars(path)
    assert version == "brain.Event:2"
    assert found == [
        (12.5, 1, "return", float(np.float32(0.1))),
        (12.5, 1, "length", 7.0),
        (12.5, 2, "seed 11/return", math.inf),
        (12.5, 2, "seed 11/length", 2.0**24),
    ]


def test_numbers_come_back_bit_for_bit(tmp_path: Path) -> None:
    Logs(tmp_path, ["csv", "jsonl"]).write(ROWS)
    with (tmp_path / "log.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["episode"] for row in table] == ["1", "2", "300"]
    assert [float(row["return"]) for row in table[:2]] == [0.1, -1e300]
    assert math.isnan(float(table[2]["return"]))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == [*ROWS[:2], {"episode": 300, "return": None, "length": 1}]


@pytest.mark.parametrize("torn", [b"", b"half a r"])
def test_what_a_crash_left_behind_the_checkpoint_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    once, twice = tmp_path / "once", tmp_path / "twice"
    for folder in (once, twice):
        folder.mkdir()
    Logs(once, FORMATS).write(ROWS[:1])
    whole = Logs(once, FORMATS)
    whole.seek({p.name: p.stat().st_size for p in once.iterdir()})
    whole.write(ROWS[1:])

    logs = Logs(twice, FORMATS)
    logs.write(ROWS[:1])
    kept = logs.position
    logs.write(ROWS[1:])
    for path in paths(twice, FORMATS).values():
        with path.open("ab") as file:
            file.write(torn)
    again = Logs(twice, FORMATS)
    again.seek(kept)
    assert again.position == kept
    again.write(ROWS[1:])

    for name in ("log.csv", "log.jsonl"):
        assert (once / name).read_bytes() == (twice / name).read_bytes()
    events = paths(once, FORMATS)["tensorboard"].name
    # But for the times, which differ.
    listed = [[str(row[1:]) for row in scalars(folder / events)[1]] for folder in (once, twice)]
    assert listed[0] == listed[1]
    assert len(listed[0]) == 6


def test_new_logs_begin_empty(tmp_path: Path) -> None:
    for _ in range(2):
        Logs(tmp_path, FORMATS).write(ROWS)
    assert (tmp_path / "log.csv").read_text().count("episode") == 1
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 3


def test_what_cannot_go_on_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no log format 'xml': the formats are csv, jsonl, tensor"):
        Logs(tmp_path, ["xml"])
    logs = Logs(tmp_path, ["csv"])
    logs.write(ROWS)
    (tmp_path / "log.csv").unlink()
    with pytest.raises(InputError, match="shorter than the run left it"):
        Logs(tmp_path, ["csv"]).seek(logs.position)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="cannot be written"):
        CsvLog(tmp_path / "nowhere" / "log.csv").seek(None)
    log = CsvLog(tmp_path / "log.csv")
    log.write(ROWS)
    with pytest.raises(InputError, match="has the columns episode, return, length, and a row has"):
        log.write([{"episode": 4, "loss": 1.0}])
