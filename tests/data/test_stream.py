"""Streams: whole users in bounded batches, equal to what is loaded at once."""

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.data import Trajectories, stream_parquet
from privrl.data.decoder.order import SeenIds
from privrl.data.sources import Chunk, prefetch
from privrl.evaluation.sums import map_in_threads
from privrl.privacy import InputError
from tests.data.tables import COLUMNS, DISCRETE, same, table


def write(source: Any, folder: Path, cuts: list[int], group: int) -> None:
    edges = [0, *sorted(c % source.num_rows for c in cuts), source.num_rows]
    for number, (begin, end) in enumerate(itertools.pairwise(edges)):
        path = folder / f"{number:03d}.parquet"
        pq.write_table(source.slice(begin, end - begin), path, row_group_size=group)


def joined(batches: list[Trajectories]) -> Trajectories:
    """What the batches hold, as one."""
    first = batches[0]
    tables = [batch.to_arrow() for batch in batches]
    return Trajectories.from_table(pa.concat_tables(tables), **first.column_names)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(0, 10**6), max_size=4),
    group=st.integers(1, 40),
    spare=st.integers(0, 60),
    by_user=st.booleans(),
    discrete=st.booleans(),
)
def test_equals_loading_at_once(
    seed: int, cuts: list[int], group: int, spare: int, by_user: bool, discrete: bool
) -> None:
    source = table(np.random.default_rng(seed), users=9)
    columns = DISCRETE if discrete else COLUMNS
    if not by_user:
        columns = columns | {"user": None}
    expected = Trajectories.from_table(source, **columns)
    owned = np.bincount(expected.unit_index, weights=expected.lengths)
    batch_rows = int(owned.max()) + spare
    with TemporaryDirectory() as folder:
        write(source, Path(folder), cuts, group)
        same(expected, Trajectories.from_parquet(folder, **columns))
        stream = stream_parquet(folder, batch_rows=batch_rows, **columns)
        batches = list(stream)
        assert max(batch.num_steps for batch in batches) <= batch_rows
        for batch in batches:
            for position, unit in enumerate(batch.unit_ids):
                mine = batch.lengths[batch.unit_index == position].sum()
                assert mine == owned[list(expected.unit_ids).index(unit)]
        totals = stream.check()
        assert totals.num_steps == expected.num_steps
        assert totals.num_users == expected.num_users
        assert totals.num_trajectories == expected.num_trajectories
        same(expected, joined(batches))
        # Batches are filled: no two neighbours would have fitted into one.
        sizes = [batch.num_steps for batch in batches]
        firsts = [owned[list(expected.unit_ids).index(b.unit_ids[0])] for b in batches]
        for size, following in zip(sizes[:-2], firsts[1:-1], strict=False):
            assert size + following > batch_rows


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), by_user=st.booleans(), words=st.booleans())
def test_sorting_on_disk(seed: int, by_user: bool, words: bool) -> None:
    rng = np.random.default_rng(seed)
    source = table(rng, users=9)
    columns = COLUMNS if by_user else COLUMNS | {"user": None}
    if words:
        stays = pa.array([f"s{n}" for n in source.column("stay").to_pylist()])
        source = source.set_column(0, "stay", stays)
    shuffled = source.take(rng.permutation(source.num_rows))
    expected = Trajectories.from_table(source, **columns)
    with TemporaryDirectory() as folder:
        write(shuffled, Path(folder), [5, 11], 4)
        batches = list(stream_parquet(folder, batch_rows=40, sort=True, **columns))
        found = {one.id: one for batch in batches for one in batch}
    assert len(found) == expected.num_trajectories
    for one in expected:
        np.testing.assert_array_equal(found[one.id].rewards, one.rewards)
        np.testing.assert_array_equal(found[one.id].states, one.states)
        assert found[one.id].user == one.user
        assert found[one.id].terminated == one.terminated


def test_sorting_on_disk_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many parts, whose rows keep the numbers they had, and nothing left behind."""
    monkeypatch.setattr("privrl.data.sources.READ_ROWS", 16)
    rng = np.random.default_rng(0)
    source = table(rng, users=60)
    order = rng.permutation(source.num_rows)
    scratch, files = tmp_path / "scratch", tmp_path / "files"
    scratch.mkdir()
    files.mkdir()
    write(source.take(order), files, [50, 90], 20)
    stream = stream_parquet(files, batch_rows=40, sort=True, scratch=scratch, **COLUMNS)
    assert stream.check().num_users == 60
    assert list(scratch.iterdir()) == []
    cells = source.column("r").to_pylist()
    cells[33] = np.nan
    index = source.column_names.index("r")
    bad = source.set_column(index, "r", pa.array(cells, from_pandas=False)).take(order)
    for path in files.iterdir():
        path.unlink()
    write(bad, files, [50, 90], 20)
    place = int(np.flatnonzero(order == 33)[0])
    file, row = max((f, place - b) for f, b in ((0, 0), (1, 50), (2, 90)) if place >= b)
    with pytest.raises(InputError, match=rf"{file:03d}\.parquet, column 'r', row {row} "):
        stream.check()
    assert list(scratch.iterdir()) == []


_SORTING = """
import json, sys, time
from privrl.data import stream_parquet
given = json.loads(sys.argv[1])
for _ in stream_parquet(given.pop("paths"), batch_rows=40, sort=True, **given):
    print("sorting", flush=True)
    time.sleep(60)
"""


def test_a_kill_while_sorting_leaves_nobodys_rows_behind(tmp_path: Path) -> None:
    scratch, files = tmp_path / "scratch", tmp_path / "files"
    scratch.mkdir()
    files.mkdir()
    write(table(np.random.default_rng(0), users=60), files, [50, 90], 20)
    given = json.dumps({"paths": str(files), "scratch": str(scratch), **COLUMNS})
    child = subprocess.Popen(
        [sys.executable, "-c", _SORTING, given], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == "sorting\n"
        child.kill()
        assert child.wait() == -signal.SIGKILL
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("words", [False, True])
def test_the_order_of_a_sorted_stream_depends_on_ids_alone(tmp_path: Path, words: bool) -> None:
    """One more row of one person moves nobody: how many rows there are is private."""
    people = 1 << 16
    orders = []
    for more in (0, 1):
        ids = np.append(np.arange(people), np.full(more, 5))
        owners = pa.array([f"p{i}" for i in ids]) if words else pa.array(ids)
        zeros = np.zeros(len(ids), dtype=np.int64)
        columns = {"stay": np.arange(len(ids)), "patient": owners, "s": zeros, "a": zeros}
        path = tmp_path / f"{more}.parquet"
        pq.write_table(pa.table({**columns, "r": np.zeros(len(ids))}), path)
        stream = stream_parquet(
            path,
            batch_rows=1 << 17,
            sort=True,
            trajectory="stay",
            user="patient",
            state="s",
            action="a",
            reward="r",
            num_states=1,
            num_actions=1,
        )
        orders.append(np.concatenate([batch.unit_ids for batch in stream]))
    assert len(orders[0]) == people
    np.testing.assert_array_equal(orders[0], orders[1])


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), rule=st.sampled_from(["refuse", "carry", "fill"]))
def test_every_option_at_once(seed: int, rule: str) -> None:
    """Nulls, lists, timestamps, categories: however rows are cut, the same is read or refused."""
    rng = np.random.default_rng(seed)
    source = table(rng, users=6)

    def put(name: str, column: Any) -> None:
        nonlocal source
        source = source.set_column(source.column_names.index(name), name, column)

    for name in ("map",) if rule == "carry" else ("r", "p", "map", "dose", "died"):
        if rng.random() < 0.3:
            cells = source.column(name).to_pylist()
            for row in rng.integers(0, source.num_rows, 4):
                cells[row] = None
            put(name, pa.array(cells, source.schema.field(name).type))
    put("t", source.column("t").cast(pa.timestamp("ms", "UTC")))
    put("patient", source.column("patient").combine_chunks().dictionary_encode())
    if rng.random() < 0.5:
        lists = np.column_stack([source.column("hr"), rng.normal(size=source.num_rows)]).tolist()
        put("hr", pa.array(lists, pa.list_(pa.float64(), 2)))
    state = "hr" if pa.types.is_fixed_size_list(source.schema.field("hr").type) else ["hr", "map"]
    rules = {"r": rule, "p": rule, "dose": rule}
    if rule == "carry":
        states = [state] if isinstance(state, str) else state
        rules = {"r": "refuse", "p": "refuse"} | dict.fromkeys(states, "carry")
    columns = COLUMNS | {"state": state, "nulls": rules}
    if rule == "fill":
        columns["fill"] = {"r": -1, "p": 0.5, "dose": 3}

    def outcome(read: Any) -> Any:
        try:
            return read()
        except InputError:
            return None

    expected = outcome(lambda: Trajectories.from_table(source, **columns))
    with TemporaryDirectory() as folder:
        write(source, Path(folder), rng.integers(0, 10**6, 3).tolist(), int(rng.integers(1, 9)))
        loaded = outcome(lambda: Trajectories.from_parquet(folder, **columns))
        batches = outcome(lambda: list(stream_parquet(folder, batch_rows=60, **columns)))
    assert (expected is None) == (loaded is None) == (batches is None)
    if expected is not None:
        same(expected, loaded)
        same(expected, joined(batches))
        assert loaded.nulls_answered == expected.nulls_answered
        assert batches[-1].nulls_answered == expected.nulls_answered


def test_sorting_categories_on_disk(tmp_path: Path) -> None:
    """Each batch and file has its own list of categories."""
    source = table(np.random.default_rng(2), users=9)
    index = source.column_names.index("patient")
    shuffled = source.take(np.random.default_rng(3).permutation(source.num_rows))
    for number in range(3):
        piece = shuffled.slice(number * 10, 10 if number < 2 else None)
        words = piece.column("patient").combine_chunks().dictionary_encode()
        pq.write_table(piece.set_column(index, "patient", words), tmp_path / f"{number}.parquet")
    stream = stream_parquet(tmp_path, batch_rows=50, sort=True, **COLUMNS)
    assert stream.check().num_users == 9
    with pytest.raises(InputError, match=r"scratch .* cannot be used"):
        list(stream_parquet(tmp_path, sort=True, scratch=tmp_path / "nowhere", **COLUMNS))


class TestRefusals:
    def test_comes_back_in_a_later_file(self, tmp_path: Path) -> None:
        source = table(np.random.default_rng(1), users=9)
        write(source, tmp_path, [source.num_rows - 1], 7)
        pq.write_table(source.slice(0, 1), tmp_path / "999.parquet")
        for columns in (COLUMNS, COLUMNS | {"user": None}):
            stream = stream_parquet(tmp_path, batch_rows=50, **columns)
            with pytest.raises(InputError, match=r"999\.parquet.* row 0 .*sort=True"):
                stream.check()

    def test_user_comes_back(self, tmp_path: Path) -> None:
        source = table(np.random.default_rng(1), users=9)
        again = source.slice(0, 1).set_column(0, "stay", pa.array([123456]))
        write(pa.concat_tables([source, again]), tmp_path, [], 7)
        with pytest.raises(InputError, match=rf"'patient', row {source.num_rows} .*user"):
            stream_parquet(tmp_path, batch_rows=50, **COLUMNS).check()
        # In memory users need not stand together.
        data = Trajectories.from_parquet(tmp_path, **COLUMNS)
        assert data.num_users == 9
        assert stream_parquet(tmp_path, batch_rows=50, sort=True, **COLUMNS).check().num_users == 9

    def test_user_too_large(self, tmp_path: Path) -> None:
        source = table(np.random.default_rng(1), users=3, longest=9)
        write(source, tmp_path, [], 7)
        with pytest.raises(InputError, match="raise batch_rows"):
            list(stream_parquet(tmp_path, batch_rows=2, **COLUMNS))

    def test_words_need_a_vocabulary(self, tmp_path: Path) -> None:
        write(table(np.random.default_rng(1)), tmp_path, [], 7)
        with pytest.raises(InputError, match="a stream needs action_vocabulary"):
            list(stream_parquet(tmp_path, **DISCRETE | {"action_vocabulary": None}))

    def test_no_rows(self, tmp_path: Path) -> None:
        pq.write_table(table(np.random.default_rng(1)).slice(0, 0), tmp_path / "a.parquet")
        with pytest.raises(InputError, match="has no rows"):
            list(stream_parquet(tmp_path, **COLUMNS))
        with pytest.raises(InputError, match="batch_rows"):
            stream_parquet(tmp_path, batch_rows=0, **COLUMNS)


def test_flag_before_a_batch_ends(tmp_path: Path) -> None:
    """The row that ended too early is the last of its batch."""
    frame = pa.table({"i": [1, 1, 1], "s": [0, 0, 0], "a": [0, 0, 0], "r": [0.0] * 3,
                      "d": [False, True, False]})  # fmt: skip
    pieces = pa.Table.from_batches(frame.to_batches(2))
    with pytest.raises(InputError, match=r"'d', row 1 .* before the last step"):
        Trajectories.from_table(
            pieces, trajectory="i", state="s", action="a", reward="r", terminated="d"
        )


@settings(max_examples=100)
@given(st.lists(st.lists(st.integers(-5, 60), max_size=8), max_size=12), st.booleans())
def test_seen_against_a_set(batches: list[list[int]], words: bool) -> None:
    seen, plain = SeenIds(), set[int]()
    for batch in batches:
        held = np.array(batch, dtype=np.int64)
        given = np.array([f"w{n}" for n in batch], dtype=object) if words else held
        expected = next((i for i, n in enumerate(batch) if n in plain or n in batch[:i]), None)
        assert seen.add(given) == expected
        if expected is not None:
            return
        plain |= set(batch)


MEMORY = """
import sys
from privrl.data import stream_parquet
rows = sum(b.num_steps for b in stream_parquet(
    sys.argv[1], batch_rows=50_000, trajectory="i", time="t", state="s", action="a", reward="r"))
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(rows, int(status["VmHWM"].split()[0]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Ten times the rows, in one row group, take about the memory of the smaller file."""
    peaks = []
    for rows in (200_000, 4_000_000):
        i = np.arange(rows) // 100
        path = tmp_path / f"{rows}.parquet"
        source = pa.table(
            {"i": i, "t": np.arange(rows) % 100, "s": i % 7, "a": i % 3,
             "r": np.random.default_rng(0).normal(size=rows)}
        )  # fmt: skip
        pq.write_table(source, path, row_group_size=rows)
        del source
        run = subprocess.run(
            [sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True
        )
        read, peak = map(int, run.stdout.split())
        assert read == rows
        peaks.append(peak)
    # At once, the larger would take 160 MiB more than the smaller.
    assert peaks[1] < peaks[0] + 70, peaks


@pytest.mark.parametrize(
    "left", [lambda: prefetch(map(Chunk, "ab", "ab")), lambda: map_in_threads(str, range(9), 2)]
)
def test_what_threads_make_is_left_without_waiting_for_them(
    left: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage may be collected while a thread starts, when waiting for one never ends."""
    made = left()
    next(made)
    waited: list[Any] = []
    monkeypatch.setattr(threading.Thread, "join", lambda *given: waited.append(given))
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", lambda *given, **_: waited.append(given))
    made.close()
    assert not waited


def test_threads_are_waited_for_after_an_error() -> None:
    done: list[int] = []

    def work(item: int) -> None:
        if item == 0:
            raise ValueError("none")
        time.sleep(0.05)
        done.append(item)

    with pytest.raises(ValueError, match="none"):
        list(map_in_threads(work, range(3), 2))
    assert sorted(done) == [1, 2]
