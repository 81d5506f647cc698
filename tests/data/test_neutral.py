"""Tables that are loaded whatever they hold: what comes out differs in one person at most."""

import csv
import io
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privrl.data import Tabular, Trajectories, stream_parquet
from privrl.data.assumptions import NEUTRAL, VALIDATED, data_assumptions
from privrl.data.neutral import schema
from privrl.data.sources import PRIVATE
from privrl.privacy import Budget, InputError
from privrl.privacy.session import PrivacySession

Rng = np.random.Generator
Row = dict[str, Any]

NAMES = ("u", "i", "t", "x", "y", "s", "a", "r", "p", "d", "n")
SCHEMA = pa.schema(
    [
        *(("u", pa.string()), ("i", pa.int64()), ("t", pa.float64()), ("x", pa.float64())),
        *(("y", pa.float64()), ("s", pa.string()), ("a", pa.int64()), ("r", pa.float64())),
        *(("p", pa.float64()), ("d", pa.int64()), ("n", pa.string())),
    ]
)
WORDS = ["low", "mid", "NA"]
PEOPLE = 6
COLUMNS: dict[str, Any] = {
    "trajectory": "i",
    "user": "u",
    "time": "t",
    "state": "s",
    "action": "a",
    "reward": "r",
    "behavior_prob": "p",
    "terminated": "d",
    "next_state": "n",
    "state_vocabulary": WORDS,
    "num_actions": 2,
    "invalid": "neutral",
    "people": PEOPLE,
}
VECTORS = {k: v for k, v in COLUMNS.items() if k not in ("next_state", "state_vocabulary", "user")}
VECTORS |= {"state": ["x", "y"], "trajectory": "u", "nulls": {"x": "carry", "r": "fill"}}
VECTORS |= {"fill": {"r": 0.5}, "terminated": True}


def person(rng: Rng, name: str | None) -> list[Row]:
    """A valid person, but for the name."""
    rows: list[Row] = []
    for i in range(int(rng.integers(1, 4))):
        steps = int(rng.integers(1, 5))
        states = [str(w) for w in rng.choice(WORDS, steps + 1)]
        for t in range(steps):
            rows.append(
                {
                    "u": name,
                    "i": i,
                    "t": float(len(rows)),
                    "s": states[t],
                    "n": states[t + 1],
                    "x": float(rng.normal()),
                    "y": float(rng.normal()),
                    "a": int(rng.integers(2)),
                    "r": float(rng.random()),
                    "p": float(rng.uniform(0.1, 1.0)),
                    "d": int(t == steps - 1),
                }
            )
    return rows


SPOILT: tuple[Any, ...] = (None, float("nan"), float("inf"), -1e308, 1e308, 5e-324, 2, -1, 0)


def spoilt(rng: Rng, rows: list[Row]) -> list[Row]:
    """Something in somebody's rows is wrong, or at least odd."""
    rows = [dict(row) for row in rows]
    for _ in range(int(rng.integers(1, 4))):
        if not rows:
            return rows
        row, kind = rows[int(rng.integers(len(rows)))], int(rng.integers(7))
        if kind < 3:
            name = str(rng.choice([n for n in NAMES if n != "u"]))
            value = SPOILT[int(rng.integers(len(SPOILT)))]
            if name in ("s", "n"):
                value = str(rng.choice(["high", "low", ""])) if rng.random() < 0.7 else None
            elif name in ("i", "a", "d") and value is not None:
                value = int(value) if abs(value) < 1e9 else 2**63 - 1
            row[name] = value
        elif kind == 3:
            row["u"] = None
        elif kind == 4:
            rows += [dict(row)] * int(rng.integers(1, 40))
        elif kind == 5:
            rows = [rows[k] for k in rng.permutation(len(rows))]
        else:
            rows = []
    return rows


def neighbours(rng: Rng, changed: list[str] | None = None) -> tuple[list[Row], list[Row]]:
    """Two tables that differ in what one person holds, who may have another name in one.

    Their names are added to `changed`.
    """
    names = [f"p{k}" for k in rng.permutation(9)[: rng.integers(1, 9)]]
    kept = [person(rng, name) for name in names[1:]]
    kept = [spoilt(rng, rows) if rng.random() < 0.3 else rows for rows in kept]
    tables = []
    for name in (names[0], names[0] if rng.random() < 0.5 else "q"):
        own = person(rng, name)
        if changed is not None:
            changed.append(name)
        if rng.random() < 0.8:
            own = spoilt(rng, own)
        place = int(rng.integers(len(kept) + 1))
        whole = [row for rows in (*kept[:place], own, *kept[place:]) for row in rows]
        tables.append(whole)
    return tables[0], tables[1]


def as_table(rows: list[Row]) -> Any:
    columns = {name: [row[name] for row in rows] for name in NAMES}
    return pa.table(
        {
            field.name: pa.array(columns[field.name], field.type, from_pandas=False)
            for field in SCHEMA
        }
    )


def as_text(rows: list[Row], rng: Rng | None = None, name: str = "") -> bytes:
    """CSV; with a generator of random numbers, some lines of a person are torn."""
    held = io.StringIO()
    writer = csv.DictWriter(held, NAMES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    lines = held.getvalue().encode().splitlines()
    if rng is not None:
        own = [k for k, line in enumerate(lines) if line.startswith(f"{name},".encode())]
        for k in own:
            if rng.random() < 0.5:
                torn = (
                    f'{name},"'.encode(),
                    b"p0,1",
                    b"\xff\xfe" + lines[k],
                    lines[k] + b",1",
                    b"",
                )
                lines[k] = torn[int(rng.integers(len(torn)))]
    return b"\n".join(lines) + b"\n"


def persons(*batches: Trajectories) -> "Counter[bytes]":
    """Everything that a person holds, without names: how often each is there."""
    found: Counter[bytes] = Counter()
    for data in batches:
        # Both number people, so nothing of a name is left.
        for k in range(data.num_units):
            own = data.take(np.flatnonzero(data.unit_index == k))
            parts = [own.lengths, own.states, own.actions, own.rewards, own.terminated, own.times]
            parts += [own.behavior_probs, own.final_states]
            held = [
                b"-" if part is None else np.ascontiguousarray(part).tobytes() for part in parts
            ]
            found[b"|".join(held)] += 1
    return found


def differing(one: "Counter[bytes]", other: "Counter[bytes]") -> int:
    return max((one - other).total(), (other - one).total())


@pytest.mark.parametrize("columns", [COLUMNS, VECTORS], ids=["words", "vectors"])
def test_neighbours_differ_in_one_person(columns: dict[str, Any]) -> None:
    """The theorem, hunted by tables of all kinds: nothing is raised, and N people come out."""
    rng = np.random.default_rng(1)
    moved = 0
    for _ in range(200):
        found = [
            persons(Trajectories.from_table(as_table(rows), **columns)) for rows in neighbours(rng)
        ]
        assert [one.total() for one in found] == [PEOPLE, PEOPLE]
        apart = differing(*found)
        assert apart <= 1
        moved += apart
    # The test can fail: most of these neighbours do differ.
    assert moved > 100


def test_neighbouring_lines_differ_in_one_person(tmp_path: Path) -> None:
    """A torn line, an open quote or bytes that are no text reach nobody else."""
    rng = np.random.default_rng(2)
    for _ in range(80):
        found, changed = [], list[str]()
        for rows, name in zip(neighbours(rng, changed), changed, strict=True):
            path = tmp_path / "rows.csv"
            path.write_bytes(as_text(rows, rng, name))
            found.append(persons(Trajectories.from_csv(path, **COLUMNS)))
        assert [one.total() for one in found] == [PEOPLE, PEOPLE]
        assert differing(*found) <= 1


def test_the_header_is_one_line(tmp_path: Path) -> None:
    """An open quote in it quotes no row, and rows begin where it ends."""
    rng, path = np.random.default_rng(6), tmp_path / "rows.csv"
    rows = as_text(person(rng, "p-secret"))
    strict = {k: v for k, v in COLUMNS.items() if k not in ("invalid", "people")}
    path.write_bytes(rows.replace(b"u,i", b'u,"i', 1).rstrip() + b'"')
    for columns in (COLUMNS, strict):
        with pytest.raises(InputError, match="has no column") as refused:
            Trajectories.from_csv(path, **columns)
        assert "secret" not in str(refused.value)
    for ends in (b"\r\n", b"\n"):
        path.write_bytes(ends.join(rows.splitlines()))
        assert Trajectories.from_csv(path, **COLUMNS).num_users == PEOPLE
    # The first row would be lost, and with another person in front another person's.
    for content in (rows.replace(b"\n", b"\r", 1), rows.splitlines()[0] + b"\r"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="carriage return"):
            Trajectories.from_csv(path, **COLUMNS)


def test_a_long_cell_holds_nobody_up(tmp_path: Path) -> None:
    rows = person(np.random.default_rng(7), "p0")
    rows[0]["r"] = "1" * 100_000 + "x"
    path = tmp_path / "rows.csv"
    path.write_bytes(as_text(rows))
    begun = time.process_time()
    Trajectories.from_csv(path, **COLUMNS)
    assert time.process_time() - begun < 2.0


def test_streams_and_files_load_the_same_people(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for round_ in range(15):
        rows = neighbours(rng)[0][:60]
        folder = tmp_path / str(round_)
        folder.mkdir()
        cut = int(rng.integers(len(rows) + 1))
        for name, some in (("a", rows[:cut]), ("b", rows[cut:])):
            pq.write_table(as_table(some), folder / f"{name}.parquet", row_group_size=5)
        whole = persons(Trajectories.from_table(as_table(rows), **COLUMNS))
        assert persons(Trajectories.from_parquet(folder, **COLUMNS)) == whole
        # Cut by rows wherever it may be; nobody has more than fit.
        stream = stream_parquet(folder, batch_rows=70, **COLUMNS)
        batches = list(stream)
        assert sum(one.num_units for one in batches) == PEOPLE
        if len({row["u"] for row in rows} - {None}) <= PEOPLE:
            assert persons(*batches) == whole
        assert all(one.num_steps <= 70 for one in batches)


def test_valid_people_are_loaded_as_they_are(tmp_path: Path) -> None:
    """Against the loader that refuses: nobody is altered who is valid."""
    rng = np.random.default_rng(4)
    rows = [row for k in range(PEOPLE) for row in person(rng, f"p{k}")]
    for row in rows:
        row["i"] += 10 * int(row["u"][1:])
    strict = {k: v for k, v in COLUMNS.items() if k not in ("invalid", "people")}
    expected = persons(Trajectories.from_table(as_table(rows), **strict))
    assert persons(Trajectories.from_table(as_table(rows), **COLUMNS)) == expected
    shuffled = [rows[k] for k in rng.permutation(len(rows))]
    assert persons(Trajectories.from_table(as_table(shuffled), **COLUMNS)) == expected
    path = tmp_path / "rows.csv"
    path.write_bytes(as_text(shuffled))
    assert persons(Trajectories.from_csv(path, **COLUMNS)) == expected


def test_the_neutral_person() -> None:
    rng = np.random.default_rng(5)
    rows = person(rng, "p0")
    rows[0]["r"] = float("inf")
    data = Trajectories.from_table(as_table(rows), **COLUMNS)
    assert data.num_users == data.num_steps == PEOPLE
    assert data.lengths.tolist() == [1] * PEOPLE
    assert data.behavior_probs is not None
    assert data.final_states is not None
    for column, value in (
        *((data.states, 0), (data.actions, 0), (data.rewards, 0.0), (data.terminated, False)),
        *((data.behavior_probs, 1.0), (data.final_states, 0)),
    ):
        assert set(np.asarray(column).tolist()) == {value}
    assert data_assumptions(data) == (NEUTRAL,)
    nobody = as_table([])
    assert persons(Trajectories.from_table(nobody, **COLUMNS)) == persons(data)
    # With more than were announced, as many as were are kept.
    many = as_table([row for k in range(9) for row in person(rng, f"p{k}")])
    assert Trajectories.from_table(many, **COLUMNS).num_users == PEOPLE


@pytest.mark.parametrize(
    ("name", "kind", "change", "words"),
    [
        ("s", pa.int64(), {}, "state_vocabulary holds words"),
        ("r", pa.string(), {}, "it must hold numbers"),
        ("u", pa.bool_(), {}, None),
        ("u", pa.list_(pa.int64()), {}, "a user id must be"),
        ("t", pa.string(), {}, "a time must be"),
        ("s", pa.string(), {"state_vocabulary": None}, "state_vocabulary is needed"),
        ("a", pa.int64(), {"num_actions": None}, "num_actions is needed with invalid='neutral'"),
        ("s", pa.list_(pa.float64()), {"state_vocabulary": None}, "a list must have a fixed size"),
        ("r", pa.float64(), {"people": None}, "people is needed"),
        ("r", pa.float64(), {"invalid": "refuse"}, "people is counted in the table"),
        ("r", pa.float64(), {"invalid": "drop"}, "'refuse' or 'neutral', not 'drop'"),
        ("r", pa.float64(), {"nulls": {"a": "fill"}, "fill": {"a": 7}}, "no action"),
    ],
)
def test_only_the_schema_is_refused(
    name: str, kind: Any, change: dict[str, Any], words: str | None
) -> None:
    """By types and by the caller's words: the table has no row at all."""
    given = {k: v for k, v in (COLUMNS | change).items() if v is not None}
    if "state_vocabulary" not in given:
        del given["next_state"]
    fields = [pa.field(f.name, kind if f.name == name else f.type) for f in SCHEMA]
    table = pa.schema(fields).empty_table()
    if words is None:
        assert Trajectories.from_table(table, **given).num_users == PEOPLE
        return
    with pytest.raises(InputError, match=words) as refused:
        Trajectories.from_table(table, **given)
    assert PRIVATE not in str(refused.value)


@pytest.mark.parametrize("reads", [True, False])
def test_null_lists_are_read_or_refused_by_their_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """Arrow before 2026 fails on Parquet with a null list in it, which would tell that there is."""
    if reads and not schema.reads_null_lists():
        pytest.skip("this version of Arrow does not")
    monkeypatch.setattr(schema, "reads_null_lists", lambda: reads)
    columns: dict[str, Any] = {"trajectory": "i", "state": "s", "action": "a", "reward": "r"}
    columns |= {"num_actions": 2, "invalid": "neutral", "people": 2}
    loaders: list[Any] = [Trajectories.from_parquet, stream_parquet]
    path = tmp_path / "rows.parquet"
    for lists in ([[1.0, 2.0], None], [[1.0, 2.0], [0.0, 0.0]]):
        table = {"i": [0, 1], "s": pa.array(lists, pa.list_(pa.float64(), 2))}
        pq.write_table(pa.table(table | {"a": [0, 0], "r": [0.0, 0.0]}), path)
        for load in loaders:
            if not reads:
                with pytest.raises(InputError, match="reads no lists of a fixed size with nulls"):
                    list(load(path, **columns))
                continue
            found = [one.states.tolist() for one in load(path, **columns)]
            assert sorted(row for states in found for row in states) == [[0.0, 0.0], [1.0, 2.0]]


def test_fits_take_what_was_loaded() -> None:
    """Certified fits of tables full of anything: no error, no warning, and the stance on record."""
    from privrl.data import OneHot
    from privrl.evaluation import PrivateGTD, PrivateLSTD, PrivateValue

    rng, budget = np.random.default_rng(6), Budget(1.0, 1e-5)
    policy = Tabular(np.array([[0.9, 0.1], [0.0, 1.0], [0.5, 0.5]]))
    shared: dict[str, Any] = {"gamma": 0.9, "reward_range": (0.0, 1.0), "weight_cap": 3.0}
    judges: list[Any] = [
        PrivateValue(budget, **shared),
        PrivateLSTD(OneHot(3), budget=budget, **shared),
        PrivateGTD(OneHot(3), budget=budget, iterations=3, **shared),
    ]
    for rows in (neighbours(rng)[0], [], neighbours(rng)[1]):
        data = Trajectories.from_table(as_table(rows), **COLUMNS)
        for judge in judges:
            found = judge.fit(data, policy, session=PrivacySession(seed=0))
            assert NEUTRAL in found.certificate.assumptions
            assert VALIDATED not in found.certificate.assumptions
        followed = data.with_behavior(policy)
        assert (
            judges[0].fit(followed, Tabular.uniform(3, 2), session=PrivacySession(seed=0)).estimate
            is not None
        )
    once = PrivateGTD(OneHot(3), budget=budget, batch_units=2, **shared).fit(data, policy)
    assert NEUTRAL in once.certificate.assumptions
    with pytest.raises(InputError, match="table has 2 states, but the data has 3"):
        data.with_behavior(Tabular.uniform(2, 2))


def two_steps(**cells: Any) -> list[Row]:
    """A valid person with one trajectory, but for these cells of the second row."""
    row = {"u": "b", "i": 1, "t": 0.0, "x": 1.0, "y": 1.0, "s": "low", "n": "mid", "a": 1}
    row |= {"r": 0.5, "p": 0.5, "d": 0}
    return [row, row | {"t": 1.0, "s": "mid", "n": None, "d": 1} | cells]


BEFORE = [row | {"u": "a", "x": 7.0, "y": 7.0} for row in two_steps()]


@pytest.mark.parametrize(
    "cells",
    [
        *({"r": None}, {"r": np.nan}, {"r": np.inf}, {"p": None}, {"p": 0.0}, {"p": 1.5}),
        *({"p": np.nan}, {"s": "high"}, {"s": None}, {"a": 2}, {"a": -1}, {"a": None}),
        *({"t": None}, {"t": np.nan}, {"t": np.inf}, {"t": 0.0}, {"i": None}, {"d": 2}),
        *({"d": None}, {"s": "low"}, {"n": "high"}, {"d": 0}),
    ],
    ids=str,
)
def test_what_is_not_valid(cells: Row) -> None:
    """One bad cell, and the person is the neutral one; whoever stands before them is not moved."""
    columns = COLUMNS | {"people": 2}
    good = persons(Trajectories.from_table(as_table([*BEFORE, *two_steps()]), **columns))
    blank = persons(Trajectories.from_table(as_table(BEFORE), **columns))
    assert good != blank
    bad = [*BEFORE, *two_steps(**cells)]
    assert persons(Trajectories.from_table(as_table(bad), **columns)) == blank
    early = [row | {"d": 1} for row in two_steps()]
    assert persons(Trajectories.from_table(as_table([*BEFORE, *early]), **columns)) == blank


def test_nothing_is_carried_from_one_person_to_the_next() -> None:
    columns = VECTORS | {"people": 2}
    blank = persons(Trajectories.from_table(as_table(BEFORE), **columns))
    first, second = two_steps(x=None, r=None)
    carried = persons(Trajectories.from_table(as_table([*BEFORE, first, second]), **columns))
    filled = [first, second | {"x": first["x"], "r": 0.5}]
    assert carried == persons(Trajectories.from_table(as_table([*BEFORE, *filled]), **columns))
    lacking = [first | {"x": None}, second]
    assert persons(Trajectories.from_table(as_table([*BEFORE, *lacking]), **columns)) == blank


@pytest.mark.parametrize("width", [1, 2, 100])
def test_types_of_columns(width: int) -> None:
    """Lists, categories, timestamps, decimals and whole numbers that a null made fractions."""
    lists = pa.array([[1.0, 2.0], None, [3.0, None], [np.nan, 1.0], [5.0, 6.0]])
    users = pa.array(["a", "b", "c", "d", "e"]).dictionary_encode()
    days = pa.array([1, 2, 3, 4, 5], pa.int32()).cast(pa.date32())
    codes = pa.array([10.0, 20.0, 10.0, 20.0, None])
    table = pa.table(
        {
            "u": users,
            "t": days,
            "s": lists.cast(pa.list_(pa.float64(), 2)),
            "a": codes,
            "r": pa.array([1, 2, 3, 4, 5]).cast(pa.decimal128(25, 2)),
            "p": pa.array([1.0] * 5, pa.float32()),
        }
    )
    pieces = pa.Table.from_batches(table.to_batches(width), table.schema)
    columns: dict[str, Any] = {
        "trajectory": "u",
        "time": "t",
        "state": "s",
        "action": "a",
        "reward": "r",
        "behavior_prob": "p",
        "action_vocabulary": [10, 20],
        "invalid": "neutral",
        "people": 5,
    }
    data = Trajectories.from_table(pieces, **columns)
    assert data.rewards.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert data.states.tolist() == [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    rules: dict[str, Any] = {"nulls": {"s": "fill", "a": "fill"}, "fill": {"s": 9, "a": 20}}
    filled = Trajectories.from_table(pieces, **columns, **rules)
    assert filled.rewards.tolist() == [1.0, 2.0, 3.0, 0.0, 5.0]
    assert filled.states.tolist()[1:3] == [[9.0, 9.0], [9.0, 9.0]]
    assert filled.actions.tolist() == [0, 1, 0, 0, 1]
    # The same ids as fractions, as whole numbers, and as a column without any.
    numbers = [pa.array([1.0, np.nan, 3.0]), pa.array([1, None, 3]), pa.nulls(3)]
    counts = []
    for ids in numbers:
        short = table.slice(0, 3).set_column(0, "u", ids)
        counts.append(sum(Trajectories.from_table(short, **columns, **rules).rewards != 0))
    assert counts == [2, 2, 0]
    broken = pa.array([b"\xff", b"b", b"c", b"d", b"e"]).view(pa.string())
    wild = Trajectories.from_table(table.set_column(0, "u", broken), **columns, **rules)
    assert sorted(wild.rewards.tolist()) == [0.0, 0.0, 2.0, 3.0, 5.0]


@pytest.mark.parametrize("digits", [3, 18, 20, 38])
def test_long_whole_numbers_of_duckdb_are_ids(digits: int, tmp_path: Path) -> None:
    """By way of floats, people whose ids are beyond 2^53 would be left out."""
    ids = [5, 7, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**63, 10**30]
    held = [one for one in ids if abs(one) < 10**digits]
    column = pa.array([Decimal(one) for one in held], pa.decimal128(digits, 0))
    zeros = np.zeros(len(held), int)
    rewards = np.arange(1.0, len(held) + 1.0)
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"i": column, "s": zeros, "a": zeros, "r": rewards}), path)
    found = Trajectories.from_parquet(
        path,
        trajectory="i",
        state="s",
        action="a",
        reward="r",
        num_states=1,
        num_actions=1,
        invalid="neutral",
        people=len(held),
    )
    fits = [-(2**63) <= one < 2**63 for one in held]
    expected = [*rewards[fits], *np.zeros(len(held) - sum(fits))]
    assert sorted(found.rewards.tolist()) == sorted(expected)
