"""Every way in leads to the same trajectories, and every view of them says what it should."""

import itertools
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from privrl.data import FunctionPolicy, Tabular, Trajectories, stream_parquet
from privrl.data.readers.assembly import ColumnBuffer
from privrl.privacy import InputError, Unit
from tests.data.tables import COLUMNS, DISCRETE, same, table

PLAIN: dict[str, Any] = {"trajectory": "i", "state": "s", "action": "a", "reward": "r"}
SMALL: dict[str, Any] = {
    "states": [0, 1, 2, 0, 1, 2],
    "actions": [0, 1, 0, 1, 0, 1],
    "rewards": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    "lengths": [3, 1, 2],
    "num_states": 3,
    "num_actions": 2,
}


@pytest.fixture(params=[COLUMNS, DISCRETE], ids=["vectors", "discrete"])
def columns(request: pytest.FixtureRequest) -> dict[str, Any]:
    chosen: dict[str, Any] = request.param
    return chosen


@pytest.fixture
def source() -> Any:
    return table(np.random.default_rng(3), users=12)


class TestReaders:
    def test_what_is_read(self, source: Any) -> None:
        data = Trajectories.from_table(source, **COLUMNS)
        stays = source.column("stay").to_pylist()
        assert data.num_steps == source.num_rows
        assert data.num_trajectories == len(set(stays))
        assert data.num_users == 12
        assert data.unit is Unit.USER
        np.testing.assert_array_equal(data.rewards, source.column("r"))
        np.testing.assert_array_equal(data.states[:, 0], source.column("hr"))
        np.testing.assert_array_equal(data.states[:, 1], source.column("map"))
        np.testing.assert_array_equal(data.actions, source.column("dose"))
        np.testing.assert_array_equal(data.times, source.column("t"))
        np.testing.assert_array_equal(np.repeat(data.trajectory_ids, data.lengths), stays)
        died = np.array(source.column("died"))
        np.testing.assert_array_equal(data.terminated, died[data.offsets[1:] - 1])
        assert data.states.dtype == np.float64
        assert data.actions.dtype == np.int32
        assert not data.rewards.flags.writeable

    def test_words(self, source: Any) -> None:
        data = Trajectories.from_table(source, **DISCRETE)
        words = data.facts.action_vocabulary
        assert words == ("none", "low", "high")
        assert [words[a] for a in data.actions] == source.column("drug").to_pylist()
        assert data.private_facts == ()
        # Without a vocabulary the words are read from the data, which is said.
        read = Trajectories.from_table(source, **DISCRETE | {"action_vocabulary": None})
        assert read.facts.action_vocabulary == ("high", "low", "none")
        assert ["high", "low", "none"][read.actions[0]] == source.column("drug")[0].as_py()
        assert len(read.private_facts) == 1
        assert "private" in read.summary()

    def test_numbers_as_words(self, source: Any) -> None:
        given = DISCRETE | {"num_states": None, "state_vocabulary": [6, 5, 4, 3, 2, 1, 0]}
        data = Trajectories.from_table(source, **given)
        np.testing.assert_array_equal(6 - data.states, source.column("cell"))

    def test_parquet(self, source: Any, columns: dict[str, Any], tmp_path: Path) -> None:
        expected = Trajectories.from_table(source, **columns)
        whole = tmp_path / "a.parquet"
        pq.write_table(source, whole, row_group_size=3)
        same(expected, Trajectories.from_parquet(whole, **columns))
        same(expected, Trajectories.from_parquet(str(whole), **columns))
        parts = tmp_path / "parts"
        parts.mkdir()
        cuts = [0, 1, 7, 7, 20, source.num_rows]
        for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
            pq.write_table(source.slice(begin, end - begin), parts / f"{number}.parquet")
        same(expected, Trajectories.from_parquet(parts, **columns))
        same(expected, Trajectories.from_parquet(f"{parts}/*.parquet", **columns))
        same(expected, Trajectories.from_parquet(sorted(parts.iterdir()), **columns))

    def test_csv(self, source: Any, columns: dict[str, Any], tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        pa_csv.write_csv(source, path)
        # Ids of CSV files are text.
        for name in ("stay", "patient"):
            place = source.schema.get_field_index(name)
            source = source.set_column(place, name, source.column(name).cast(pa.string()))
        same(Trajectories.from_table(source, **columns), Trajectories.from_csv(path, **columns))

    def test_csv_types(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("id,s,a,r\n007,0,1,1.5\n007,1,1,2\n7,1,0,0\n")
        given: dict[str, Any] = {
            "trajectory": "id", "state": "s", "action": "a", "reward": "r"
        }  # fmt: skip
        for types in (None, {"id": "string"}):
            data = Trajectories.from_csv(path, types=types, **given)
            assert data.trajectory_ids.tolist() == ["007", "7"]
        numbers = Trajectories.from_csv(path, types={"id": "int64"}, **given)
        assert numbers.trajectory_ids.tolist() == [7]

    @pytest.mark.parametrize("sort", [False, True])
    @pytest.mark.parametrize("role", ["trajectory", "user"])
    def test_ids_of_csv_files_are_told_apart_by_their_text(
        self, role: str, sort: bool, tmp_path: Path
    ) -> None:
        """What a plain reader sees: two cells are one id if and only if they are the same text."""
        ids = ["1", "01", "001", "1.0", " 1", "1 ", "+1", "1e0", "0x1", "-0", "0", "1_0", "10"]
        ids += [str(2**53 + k) for k in range(3)] + [str(2**64 + k) for k in range(3)]
        files = [tmp_path / "a.csv", tmp_path / "b.csv"]
        # The first file alone has ids that look like numbers.
        for path, some in zip(files, (ids[:5], ids[5:]), strict=True):
            rows = [f"{n},{u},0,0,1" for u in some for n in (f"{u}-x", f"{u}-y")]
            path.write_text("\n".join(["stay,who,s,a,r", *rows]) + "\n")
        given: dict[str, Any] = {"state": "s", "action": "a", "reward": "r", "sort": sort}
        both = {"trajectory": "stay", "user": "who"}
        named: dict[str, Any] = {"trajectory": "who"} if role == "trajectory" else both
        data = Trajectories.from_csv(files, **given, **named)
        assert sorted(data.unit_ids.tolist()) == sorted(ids)
        assert np.bincount(data.unit_index, data.lengths).tolist() == [2] * len(ids)
        neutral: dict[str, Any] = {
            "invalid": "neutral",
            "people": len(ids),
            "num_states": 1,
            "num_actions": 1,
        }
        whole = Trajectories.from_csv(files, **given, **named, **neutral)
        assert np.bincount(whole.unit_index, whole.lengths).tolist() == [2] * len(ids)

    @pytest.mark.parametrize("stream", [False, True])
    def test_ids_of_parquet_files_are_of_one_kind(self, stream: bool, tmp_path: Path) -> None:
        def read(*columns: Any) -> Any:
            files = [tmp_path / f"{number}.parquet" for number in range(len(columns))]
            for path, ids in zip(files, columns, strict=True):
                zeros = np.zeros(len(ids), int)
                pq.write_table(pa.table({"i": ids, "s": zeros, "a": zeros, "r": zeros}), path)
            if stream:
                return [i for one in stream_parquet(files, **PLAIN) for i in one.trajectory_ids]
            return Trajectories.from_parquet(files, **PLAIN).trajectory_ids.tolist()

        long = [2**53, 2**53 + 1, 2**53 + 2]
        assert read(pa.array(long)) == long
        assert read(pa.array([1], pa.int8()), pa.array(long, pa.uint64())) == [1, *long]
        assert read(pa.array(["1", "01", "1.0"])) == ["1", "01", "1.0"]
        for other in (pa.array(["1"]), pa.array([1.0])):
            with pytest.raises(InputError, match=r"holds words, but|must be a whole number"):
                read(pa.array([1]), other)
        with pytest.raises(InputError, match="row 0"):
            read(pa.array([2**63], pa.uint64()))

    def test_csv_types_that_arrow_does_not_know(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("id,s,a,r\n007,0,1,1.5\n")
        given: dict[str, Any] = {
            "trajectory": "id", "state": "s", "action": "a", "reward": "r"
        }  # fmt: skip
        with pytest.raises(InputError, match="type that Arrow does not know"):
            Trajectories.from_csv(path, types={"id": "words"}, **given)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("1,0,up,1\n2,0,,1\n", "'a', row 1 .* null"),
            ("1,0,up,1\n2,0,NA,1\n", "'a', row 1 .* null"),
            ("bob,0,up,1\n,0,up,1\n", "'i', row 1 .* id is null"),
            ("1,0,up,nan\n", "'r', row 0 .* NaN"),
            ("1,0,up,1\n2,0,up\n", "row 1 .* 3 cells instead of 4"),
            ("1,0.5,up,1\n2,secret,up,1\n", "'s', row 1 .* does not fit"),
        ],
    )
    def test_csv_cells(self, text: str, words: str, tmp_path: Path) -> None:
        """An empty cell is a null, also among words; a NaN is not: no rule answers it."""
        path = tmp_path / "a.csv"
        path.write_text("i,s,a,r\n" + text)
        types = {"s": "float64"} if "secret" in text else None
        rules: dict[str, Any] = {"nulls": {"r": "fill"}, "fill": {"r": 0}}
        with pytest.raises(InputError, match=words) as caught:
            Trajectories.from_csv(path, types=types, **PLAIN, **rules)
        assert "secret" not in str(caught.value)

    def test_csv_words_in_quotes(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text('i,s,a,r\n1,0,"NA",1\n1,0,"",1\n')
        data = Trajectories.from_csv(path, **PLAIN)
        assert data.facts.action_vocabulary == ("", "NA")

    def test_csv_types_are_checked(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("i,s,a,r\n007,0,1,1\n")
        for types in ({"id": "string"}, {"i": 3}):
            with pytest.raises(InputError, match="types"):
                Trajectories.from_csv(path, types=types, **PLAIN)

    @pytest.mark.parametrize("library", ["pandas", "polars", "duckdb", "reader", "categories"])
    def test_other_tables(self, source: Any, columns: dict[str, Any], library: str) -> None:
        import pandas as pd

        frame = pd.DataFrame({n: source.column(n).to_pylist() for n in source.column_names})
        given: Any = frame
        if library == "polars":
            import polars as pl

            given = pl.from_arrow(source)
        elif library == "duckdb":
            import duckdb

            given = duckdb.from_arrow(source)
        elif library == "reader":
            given = source.to_reader(5)
        elif library == "categories":
            given = frame.astype({"patient": "category", "drug": "category"})
        same(Trajectories.from_table(source, **columns), Trajectories.from_table(given, **columns))

    def test_categories_of_polars(self, source: Any) -> None:
        import polars as pl

        expected = Trajectories.from_table(source, **DISCRETE)
        frame = pl.DataFrame(pl.from_arrow(source))
        for kind in (pl.Categorical, pl.Enum(["none", "low", "high"])):
            given = frame.with_columns(pl.col("drug").cast(kind))
            same(expected, Trajectories.from_table(given, **DISCRETE))

    def test_a_library_that_fails(self) -> None:
        """What goes wrong in a lazy query is said without the cell that its library quotes."""
        import duckdb

        query = "select 1::hugeint i, 0 s, 1 a, cast(x as int) r from (values ('7'), ('{}')) v(x)"
        given: dict[str, Any] = {
            "trajectory": "i", "state": "s", "action": "a", "reward": "r"
        }  # fmt: skip
        good = Trajectories.from_table(duckdb.sql(query.format(8)), **given)
        assert good.rewards.tolist() == [7.0, 8.0]
        with pytest.raises(InputError, match="cannot be read") as caught:
            Trajectories.from_table(duckdb.sql(query.format("secret")), **given)
        assert "secret" not in str(caught.value)

    def test_own_table(self, source: Any, columns: dict[str, Any]) -> None:
        """What is handed out through the Arrow interface can be taken in again."""
        import polars as pl

        data = Trajectories.from_table(source, **columns)
        same(data, Trajectories.from_table(data, **data.column_names))
        assert pl.DataFrame(data).height == data.num_steps

    def test_round_trip(self, source: Any, columns: dict[str, Any], tmp_path: Path) -> None:
        data = Trajectories.from_table(source, **columns)
        path = tmp_path / "out.parquet"
        names = data.to_parquet(path)
        same(data, Trajectories.from_parquet(path, **names))
        assert [p.name for p in tmp_path.iterdir()] == ["out.parquet"]
        with pytest.raises(InputError, match="cannot be written"):
            data.to_parquet(tmp_path / "nowhere" / "out.parquet")

    def test_round_trip_of_a_part(self, tmp_path: Path) -> None:
        """Indices keep their meaning, though the part lacks some of the words."""
        frame = pa.table({"i": [1, 2, 3], "s": [0] * 3, "a": ["p", "q", "z"], "r": [0.0] * 3})
        part = Trajectories.from_table(frame, **PLAIN)[2:]
        names = part.to_parquet(tmp_path / "a.parquet")
        again = Trajectories.from_parquet(tmp_path / "a.parquet", **names)
        same(part, again)
        assert again.facts.action_vocabulary_read
        assert again.private_facts == part.private_facts
        (batch,) = stream_parquet(tmp_path / "a.parquet", **names)
        same(part, batch)

    def test_arrays(self) -> None:
        data = Trajectories.from_arrays(**SMALL)
        by_ids = SMALL | {"lengths": None, "trajectory_ids": [0, 0, 0, 1, 2, 2]}
        same(data, Trajectories.from_arrays(**by_ids))
        assert data.offsets.tolist() == [0, 3, 4, 6]
        assert data.num_users is None
        assert data.unit is Unit.TRAJECTORY
        owned = Trajectories.from_arrays(**SMALL, users=["b", "a", "b"])
        assert owned.num_users == 2
        assert owned.unit_index.tolist() == [0, 1, 0]

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"lengths": [3, 0, 3]}, "entry 1 .* empty"),
            ({"lengths": [3, 3, 3]}, "add up to 9"),
            ({"lengths": None}, "needs lengths"),
            ({"actions": [0, 1]}, "2 entries, but there are 6 rows"),
            ({"states": [[1.0, 2.0], [1.0]] * 3}, "different lengths"),
            ({"rewards": []}, "no rows"),
            ({"rewards": [0.0] * 5 + [np.nan]}, "row 5 .* NaN"),
            ({"terminated": [True]}, "for each of 3 trajectories"),
            ({"users": ["a"]}, "1 entries"),
            ({"final_states": [0, 1, 3]}, "outside the 3 states"),
            ({"final_states": [[0.5], [0.5], [0.5]]}, "whole number|dimensions"),
            ({"states": np.zeros((6, 2, 2)), "num_states": None}, "axes"),
            ({"states": [object()] * 6}, "numbers or words"),
            ({"rewards": np.ma.array(np.zeros(6), mask=[False, True] * 3)}, "masked"),
            ({"reward": 1}, "no option 'reward'"),
        ],
    )
    def test_bad_arrays(self, change: dict[str, Any], words: str) -> None:
        with pytest.raises(InputError, match=words):
            Trajectories.from_arrays(**SMALL | change)

    @pytest.mark.filterwarnings("ignore::UserWarning:minari")
    def test_minari(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import minari
        from gymnasium import spaces

        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        rng = np.random.default_rng(0)
        episodes = []
        for number, length in enumerate([3, 1, 4]):
            episodes.append(
                minari.data_collector.EpisodeBuffer(
                    id=number,
                    observations=rng.normal(size=(length + 1, 2)).astype(np.float32),
                    actions=rng.integers(0, 3, length),
                    rewards=rng.normal(size=length).tolist(),
                    terminations=[False] * (length - 1) + [number == 1],
                    truncations=[False] * (length - 1) + [number != 1],
                    infos={"p": rng.uniform(0.1, 1.0, length + 1).tolist()},
                )
            )
        dataset = minari.create_dataset_from_buffers(
            "test/privrl-v0",
            buffer=episodes,
            observation_space=spaces.Box(-10, 10, (2,)),
            action_space=spaces.Discrete(3),
            data_format="arrow",
            description="made for a test",
            author="privrl",
            author_email="nobody@example.org",
            code_permalink="https://example.org",
            algorithm_name="none",
        )
        for given in (dataset, "test/privrl-v0"):
            data = Trajectories.from_minari(given, behavior_prob="p", num_actions=3)
            assert data.lengths.tolist() == [3, 1, 4]
            assert data.terminated.tolist() == [False, True, False]
            assert data.truncated.tolist() == [True, False, True]
            np.testing.assert_array_equal(data[2].states, episodes[2].observations[:-1])
            np.testing.assert_array_equal(data[2].final_state, episodes[2].observations[-1])
            np.testing.assert_array_equal(data[2].rewards, episodes[2].rewards)
            assert data[0].behavior_probs is not None
            np.testing.assert_array_equal(data[0].behavior_probs, episodes[0].infos["p"][1:])
        with pytest.raises(InputError, match="no 'q' in its infos"):
            Trajectories.from_minari(dataset, behavior_prob="q")
        with pytest.raises(InputError, match="cannot load"):
            Trajectories.from_minari("test/absent-v0")
        with pytest.raises(InputError, match="not a Minari data set"):
            Trajectories.from_minari(3)

    def test_timestamps(self) -> None:
        import pandas as pd

        stamps = pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-01"], utc=True)
        frame = pd.DataFrame({"i": [1, 1, 2], "t": stamps, "s": 0, "a": 0, "r": 1.0})
        given: dict[str, Any] = {
            "trajectory": "i", "time": "t", "state": "s", "action": "a", "reward": "r"
        }  # fmt: skip
        data = Trajectories.from_table(frame, **given)
        assert data.times is not None
        assert data.times[1] - data.times[0] == np.timedelta64(1, "D")
        backwards = frame.iloc[[1, 0, 2]]
        with pytest.raises(InputError, match=r"row 1 .* goes back"):
            Trajectories.from_table(backwards, **given)
        same(data, Trajectories.from_table(backwards, sort=True, **given))

    def test_long_numbers(self) -> None:
        """Ids and codes beyond 64 bits are refused by row, and none turns into another."""
        long = pa.array([Decimal(1), Decimal(10**30)], pa.decimal128(38, 0))
        frame = pa.table({"i": long, "s": [0, 0], "a": [0, 0], "r": [0.0, 0.0]})
        with pytest.raises(InputError, match=r"'i', row 1 .* 64 bits"):
            Trajectories.from_table(frame, **PLAIN)
        codes = pa.array([0, None, 2**64 - 1], pa.uint64())
        frame = pa.table({"i": [1, 2, 3], "s": [0] * 3, "a": codes, "r": [0.0] * 3})
        given: dict[str, Any] = {"action_vocabulary": [-1, 0], "nulls": {"a": "fill"},
                                 "fill": {"a": 0}}  # fmt: skip
        with pytest.raises(InputError, match=r"'a', row 2 .* 64 bits"):
            Trajectories.from_table(frame, **PLAIN, **given)

    def test_words_beside_a_number_of_them(self) -> None:
        """How many there are is a public fact: it is not counted in the data instead."""
        frame = pa.table({"i": [1, 2], "s": [0, 0], "a": ["x", "y"], "r": [0.0, 0.0]})
        with pytest.raises(InputError, match="action_vocabulary"):
            Trajectories.from_table(frame, **PLAIN, num_actions=3)
        coded = frame.set_column(2, "a", pa.array([b"x", b"y"]))
        with pytest.raises(InputError, match="holds binary"):
            Trajectories.from_table(coded, **PLAIN, action_vocabulary=["x", "y"])
        with pytest.raises(InputError, match="not valid text"):
            Trajectories.from_table(frame, **PLAIN, action_vocabulary=["x", "\ud800"])

    def test_files_that_are_not_there(self, tmp_path: Path) -> None:
        given: list[Any] = [tmp_path / "no.parquet", tmp_path, f"{tmp_path}/*.parquet", [], 3]
        for path in given:
            with pytest.raises(InputError):
                Trajectories.from_parquet(path, **COLUMNS)
        with pytest.raises(InputError, match="There is no file"):
            Trajectories.from_csv(tmp_path / "no.csv", **COLUMNS)

    def test_files_must_agree(self, source: Any, tmp_path: Path) -> None:
        pq.write_table(source.slice(0, 5), tmp_path / "0.parquet")
        later = source.slice(5)
        pq.write_table(later.drop_columns(["r"]), tmp_path / "1.parquet")
        with pytest.raises(InputError, match=r"1\.parquet has no column 'r'"):
            Trajectories.from_parquet(tmp_path, **COLUMNS)
        words = later.set_column(0, "stay", later.column("stay").cast(pa.string()))
        pq.write_table(words, tmp_path / "1.parquet")
        with pytest.raises(InputError, match=r"1\.parquet: column 'stay' holds words"):
            Trajectories.from_parquet(tmp_path, **COLUMNS)
        wide = later.set_column(2, "t", later.column("t").cast(pa.int64()))
        narrow = source.slice(0, 5)
        narrow = narrow.set_column(2, "t", narrow.column("t").cast(pa.int16()))
        pq.write_table(narrow, tmp_path / "0.parquet")
        pq.write_table(wide, tmp_path / "1.parquet")
        same(
            Trajectories.from_table(source, **COLUMNS),
            Trajectories.from_parquet(tmp_path, **COLUMNS),
        )

    def test_names_of_files(self, tmp_path: Path) -> None:
        """Numbers in names count as numbers; other tools' own folders are not looked into."""
        for number in range(12):
            one = pa.table({"i": [1], "s": [number], "a": [0], "r": [float(number)]})
            pq.write_table(one, tmp_path / f"data_{number}.parquet")
        stray = pa.table({"i": [2], "s": [0], "a": [0], "r": [99.0]})
        for folder in ("_temporary", ".ipynb_checkpoints"):
            (tmp_path / folder / "0").mkdir(parents=True)
            pq.write_table(stray, tmp_path / folder / "0" / "part.parquet")
        for paths in (tmp_path, f"{tmp_path}/*.parquet"):
            assert Trajectories.from_parquet(paths, **PLAIN).rewards.tolist() == list(range(12))

    @pytest.mark.parametrize(
        "path", ["", "a\0b", "s3://bucket/a.parquet", "https://x.org/*.parquet"]
    )
    def test_odd_paths(self, path: str) -> None:
        with pytest.raises(InputError, match=r"A path must name|not on this machine"):
            Trajectories.from_parquet(path, **PLAIN)

    def test_names_with_dots(self, tmp_path: Path) -> None:
        """A column is the one of that name, not a field of a struct that is spelled the same."""
        frame = pa.table({"i": [1, 1], "v": [{"hr": 5.0}] * 2, "v.hr": [1.0, 2.0], "a\nb c": [0, 1],
                          "r": [0.0, 1.0]})  # fmt: skip
        pq.write_table(frame, tmp_path / "a.parquet")
        given = PLAIN | {"state": ["v.hr"], "action": "a\nb c"}
        data = Trajectories.from_parquet(tmp_path / "a.parquet", **given)
        assert data.states.tolist() == [[1.0], [2.0]]
        assert data.actions.tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("first", "second", "fits"),
        [
            (pa.timestamp("ms"), pa.timestamp("ns"), True),
            (pa.timestamp("ns"), pa.timestamp("s"), True),
            (pa.timestamp("s", "UTC"), pa.timestamp("us", "Europe/Berlin"), True),
            (pa.timestamp("ms", "UTC"), pa.timestamp("ms"), False),
            (pa.timestamp("ms"), pa.int64(), False),
            (pa.float64(), pa.timestamp("ms"), False),
            (pa.int64(), pa.float64(), True),
        ],
    )
    def test_kinds_of_time(self, first: Any, second: Any, fits: bool, tmp_path: Path) -> None:
        """Files may differ in type where their times can be compared."""
        for number, kind in enumerate((first, second)):
            stamped = pa.types.is_timestamp(kind)
            scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit] if stamped else 1
            times = pa.array([(number + 1) * scale, (number + 3) * scale]).cast(kind)
            # The second trajectory straddles both files.
            frame = pa.table({"i": [number, number + 1], "s": [0, 0], "a": [0, 0], "r": [0.0, 0.0],
                              "t": times})  # fmt: skip
            pq.write_table(frame, tmp_path / f"{number}.parquet")
        given = PLAIN | {"time": "t"}
        if not fits:
            with pytest.raises(InputError, match=r"1\.parquet: column 't' holds .* compared"):
                Trajectories.from_parquet(tmp_path, **given)
            return
        with pytest.raises(InputError, match=r"1\.parquet, column 't', row 0 .* goes back"):
            Trajectories.from_parquet(tmp_path, **given)
        data = Trajectories.from_parquet(tmp_path / "1.parquet", **given)
        assert data.num_trajectories == 2

    def test_times_that_do_not_fit(self, tmp_path: Path) -> None:
        """No time wraps around, and none loses its order by being joined with others."""
        far = pa.array([0, 2**53]).cast(pa.timestamp("ms"))
        pairs: list[tuple[Any, Any]] = [
            (pa.array([0, 1]).cast(pa.timestamp("ns")), far),
            (far, pa.array([0, 1]).cast(pa.timestamp("ns"))),
            (pa.array([2**53, 2**53 + 1]), pa.array([0.0, 0.5])),
            (pa.array([0.0, 0.5]), pa.array([2**53, 2**53 + 1])),
        ]
        for pair in pairs:
            for number, times in enumerate(pair):
                frame = pa.table({"i": [number] * 2, "s": [0, 0], "a": [0, 0], "r": [0.0, 0.0],
                                  "t": times})  # fmt: skip
                pq.write_table(frame, tmp_path / f"{number}.parquet")
            with pytest.raises(InputError, match=r"1\.parquet: column 't' holds"):
                Trajectories.from_parquet(tmp_path, **PLAIN, time="t")
        never = pa.array([5, -(2**63)]).cast(pa.timestamp("ns"))
        bad = pa.table({"i": [1, 1], "s": [0, 0], "a": [0, 0], "r": [0.0, 0.0], "t": never})
        with pytest.raises(InputError, match=r"'t', row 1 .* outside the range"):
            Trajectories.from_table(bad, **PLAIN, time="t")

    def test_narrow_after_wide(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A column is widened where a file needs it, not for every batch after."""
        frame = pa.table({"i": [1, 2], "s": [0, 0], "a": [0, 0], "r": [0.0, 0.0], "t": [1, 2]})
        pq.write_table(frame, tmp_path / "0.parquet")
        for number in range(1, 4):
            ids = pa.array([2 * number + 1, 2 * number + 2])
            narrow = frame.set_column(0, "i", ids).set_column(4, "t", pa.array([1, 2], pa.int16()))
            pq.write_table(narrow, tmp_path / f"{number}.parquet")
        growing = ColumnBuffer(8)
        growing.add(np.zeros(2, np.int64))
        before = growing._whole
        growing.add(np.zeros(2, np.int32))
        assert growing._whole is before
        data = Trajectories.from_parquet(tmp_path, **PLAIN, time="t")
        assert data.times is not None
        assert data.times.tolist() == [1, 2] * 4

    def test_memory_is_not_shared(self) -> None:
        """What was checked stays so, whatever happens to the arrays or the frame it came from."""
        import pandas as pd

        r, final = np.zeros(3), np.zeros((3, 1))
        states = np.zeros((3, 1))
        data = Trajectories.from_arrays(states, [0] * 3, r, lengths=[1, 1, 1], final_states=final)
        frame = pd.DataFrame({"i": [1, 1], "s": [0.0, 1.0], "a": [0, 1], "r": [0.0, 1.0]})
        read = Trajectories.from_table(frame, **PLAIN)
        r[0] = states[0] = final[0] = np.nan
        frame.loc[0, ["r", "s"]] = np.nan
        for one in (data, read):
            assert np.isfinite(one.rewards).all()
            assert np.isfinite(one.states).all()
        assert np.isfinite(np.asarray(data.final_states)).all()

    def test_nothing_heavy_is_imported(self) -> None:
        code = (
            "import sys, privrl.data; "
            "print([m for m in ('jax', 'pandas', 'matplotlib', 'scipy') if m in sys.modules])"
        )
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert run.stdout.strip() == "[]"


class TestOrder:
    def test_sort(self, source: Any, columns: dict[str, Any], tmp_path: Path) -> None:
        ordered = source.sort_by([("patient", "ascending"), ("stay", "ascending")])
        shuffled = source.take(np.random.default_rng(1).permutation(source.num_rows))
        with pytest.raises(InputError, match="sort=True"):
            Trajectories.from_table(shuffled, **columns)
        expected = Trajectories.from_table(ordered, **columns)
        data = Trajectories.from_table(shuffled, sort=True, **columns)
        same(expected, data)
        assert any(note.kind == "order" for note in data.notes)

    def test_rows_keep_their_numbers(self, source: Any, tmp_path: Path) -> None:
        cells = source.column("r").to_pylist()
        cells[17] = np.nan
        index = source.column_names.index("r")
        bad = source.set_column(index, "r", pa.array(cells, from_pandas=False))
        order = np.random.default_rng(1).permutation(source.num_rows)
        place = int(np.flatnonzero(order == 17)[0])
        bad = bad.take(order)
        pq.write_table(bad.slice(0, 4), tmp_path / "0.parquet")
        pq.write_table(bad.slice(4), tmp_path / "1.parquet")
        file, row = ("0.parquet", place) if place < 4 else ("1.parquet", place - 4)
        with pytest.raises(InputError, match=rf"{file}, column 'r', row {row} "):
            Trajectories.from_parquet(tmp_path, sort=True, **COLUMNS)

    def test_ids_of_several_users(self) -> None:
        """Where sorting has been done, the advice is not to sort."""
        frame = pa.table({"i": [1, 2, 1], "u": [1, 1, 2], "s": [0] * 3, "a": [0] * 3,
                          "r": [0.0] * 3})  # fmt: skip
        with pytest.raises(InputError, match=r"'i', row 2 .* several users") as caught:
            Trajectories.from_table(frame, sort=True, user="u", **PLAIN)
        assert "sort" not in str(caught.value)

    def test_sort_of_different_types(self, source: Any, tmp_path: Path) -> None:
        """Words are words, in whatever form Arrow keeps them."""
        index = source.column_names.index("patient")
        for number, kind in enumerate((pa.string(), pa.large_string(), pa.string_view())):
            piece = source.slice(number * 10, 10 if number < 2 else None)
            patient = piece.column("patient").cast(kind)
            if number == 1:
                patient = patient.combine_chunks().dictionary_encode()
            pq.write_table(
                piece.set_column(index, "patient", patient), tmp_path / f"{number}.parquet"
            )
        expected = Trajectories.from_table(source, sort=True, **COLUMNS)
        same(expected, Trajectories.from_parquet(tmp_path, sort=True, **COLUMNS))

    def test_without_time(self, source: Any) -> None:
        data = Trajectories.from_table(source, **COLUMNS | {"time": None})
        assert data.times is None
        assert any("order of the rows" in note.text for note in data.notes)


class TestNulls:
    GIVEN: ClassVar[dict[str, Any]] = {
        "trajectory": "i",
        "state": ["x"],
        "action": "a",
        "reward": "r",
    }
    CARRY: ClassVar[dict[str, Any]] = {"x": "carry", "r": "refuse"}

    def frame(self, **columns: Any) -> Any:
        base: dict[str, Any] = {
            "i": [1, 1, 1, 2, 2],
            "x": [0.5, None, None, 2.0, None],
            "a": [0, 1, 0, 1, 0],
            "r": [1.0, 2.0, 3.0, 4.0, 5.0],
        }
        return pa.table(base | columns)

    @pytest.mark.parametrize("rows", [1, 2, 3, 10])
    def test_carry(self, rows: int) -> None:
        pieces = pa.Table.from_batches(self.frame().to_batches(rows))
        data = Trajectories.from_table(pieces, nulls=self.CARRY, **self.GIVEN)
        assert data.states[:, 0].tolist() == [0.5, 0.5, 0.5, 2.0, 2.0]
        assert data.nulls_answered == {"x": 3}
        assert any("'x' are carried" in note.text for note in data.notes)
        first = pa.Table.from_batches(self.frame(x=[0.5, None, 1.0, None, 1.0]).to_batches(rows))
        with pytest.raises(InputError, match=r"'x', row 3 .* none before it"):
            Trajectories.from_table(first, nulls=self.CARRY, **self.GIVEN)

    def test_fill(self) -> None:
        data = Trajectories.from_table(
            self.frame(), nulls={"x": "fill"}, fill={"x": -1}, **self.GIVEN
        )
        assert data.states[:, 0].tolist() == [0.5, -1.0, -1.0, 2.0, -1.0]
        assert any("filled with -1" in note.text for note in data.notes)
        words = self.frame(x=[0.0] * 5, a=["u", None, "v", "u", "v"])
        given = self.GIVEN | {"action_vocabulary": ["u", "v"]}
        filled = Trajectories.from_table(words, nulls={"a": "fill"}, fill={"a": "v"}, **given)
        assert filled.actions.tolist() == [0, 1, 1, 0, 1]
        with pytest.raises(InputError, match="not among action_vocabulary"):
            Trajectories.from_table(words, nulls={"a": "fill"}, fill={"a": "w"}, **given)
        with pytest.raises(InputError, match="no action"):
            Trajectories.from_table(
                self.frame(a=[0, None, 1, 1, 1]),
                nulls={**self.CARRY, "a": "fill"},
                fill={"a": 0.5},
                **self.GIVEN,
            )

    def test_lists(self) -> None:
        given = self.GIVEN | {"state": "x"}
        lists = self.frame(x=pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, None], [7.0, 8.0]]))
        pieces = pa.Table.from_batches(lists.to_batches(2))
        filled = Trajectories.from_table(pieces, nulls={"x": "fill"}, fill={"x": 9}, **given)
        assert filled.states.tolist() == [[1, 2], [9, 9], [3, 4], [9, 9], [7, 8]]
        with pytest.raises(InputError, match=r"'x', row 3 .* none before it"):
            Trajectories.from_table(pieces, nulls=self.CARRY, **given)
        late = self.frame(x=pa.array([None, None, [3.0], [5.0], [7.0]], pa.list_(pa.float64())))
        pieces = pa.Table.from_batches(late.to_batches(2))
        with pytest.raises(InputError, match=r"'x', row 0 .* before any of its lists"):
            Trajectories.from_table(pieces, nulls={"x": "fill"}, fill={"x": 9}, **given)

    @pytest.mark.parametrize("rows", [1, 2, 10])
    def test_one_column_in_two_roles(self, rows: int) -> None:
        """Each role fills in its own form of the value: an index here, a number there."""
        frame = self.frame(x=[0.0] * 5, a=pa.array([20, None, 10, 10, None]))
        pieces = pa.Table.from_batches(frame.to_batches(rows))
        given = self.GIVEN | {"reward": "a", "action_vocabulary": [10, 20]}
        data = Trajectories.from_table(pieces, nulls={"a": "fill"}, fill={"a": 20}, **given)
        assert data.actions.tolist() == [1, 1, 0, 0, 1]
        assert data.rewards.tolist() == [20.0, 20.0, 10.0, 10.0, 20.0]

    @pytest.mark.parametrize("column", ["r", "a", "p", "d"])
    def test_only_states_are_carried(self, column: str) -> None:
        """A reward that is repeated was never paid."""
        frame = self.frame(x=[0.0] * 5, p=[0.5] * 5, d=[False] * 5)
        given = self.GIVEN | {"behavior_prob": "p", "terminated": "d"}
        with pytest.raises(InputError, match=f"'{column}' cannot be carried"):
            Trajectories.from_table(frame, nulls={column: "carry"}, **given)

    @pytest.mark.parametrize("column", ["r", "p"])
    def test_who_carries_states_gives_rewards_and_probabilities_a_rule(self, column: str) -> None:
        """By the schema: it does not matter whether there is any null."""
        frame = self.frame(x=[0.0] * 5, p=[0.5] * 5)
        given = self.GIVEN | {"behavior_prob": "p"}
        rules = {"x": "carry", "r": "refuse", "p": "refuse"}
        words = f"'{column}' may hold nulls, by its type"
        lacking: Any = {name: rule for name, rule in rules.items() if name != column}
        with pytest.raises(InputError, match=words) as refused:
            Trajectories.from_table(frame, nulls=lacking, **given)
        assert "private" not in str(refused.value)
        whole = pa.schema([pa.field(n, frame.schema.field(n).type, n == "x") for n in "ixarp"])
        sure = frame.select(whole.names).cast(whole)
        tried: list[tuple[Any, Any]] = [(frame, rules), (sure, lacking), (sure, "carry")]
        for source, nulls in tried:
            assert len(Trajectories.from_table(source, nulls=nulls, **given)) == 2

    def test_fill_words_with_words(self) -> None:
        words = self.frame(x=[0.0] * 5, a=["u", None, "v", "u", "v"])
        for value in (3, True):
            with pytest.raises(InputError, match="a number, but the column holds words"):
                Trajectories.from_table(words, nulls={"a": "fill"}, fill={"a": value}, **self.GIVEN)
        filled = Trajectories.from_table(
            words, nulls={"a": "fill"}, fill={"a": "none"}, **self.GIVEN
        )
        assert filled.facts.action_vocabulary == ("none", "u", "v")
        for odd in (10**400, "\ud800", None):
            with pytest.raises(InputError, match="finite number or a word"):
                Trajectories.from_table(words, nulls={"a": "fill"}, fill={"a": odd}, **self.GIVEN)

    def test_next_states_have_no_rule(self) -> None:
        """Their nulls are left to the next row, so nothing may claim to have answered them."""
        frame = self.frame(x=[0.5, 1.0, 1.5, 2.0, 2.5], n=[1.0, None, None, None, None])
        given = self.GIVEN | {"next_state": ["n"], "terminated": True}
        data = Trajectories.from_table(frame, nulls=self.CARRY, **given)
        assert not any("'n'" in note.text for note in data.notes)
        assert data.nulls_answered == {}
        for rule in ("carry", "fill"):
            with pytest.raises(InputError, match="'n' have no rule"):
                Trajectories.from_table(frame, nulls={"n": rule}, fill=None, **given)

    @pytest.mark.parametrize("rows", [1, 2, 10])
    def test_lists_of_fixed_size(self, rows: int) -> None:
        """Their size is known before any of them is seen."""
        lists = pa.array([None, None, [3.0], [5.0], [7.0]], pa.list_(pa.float64(), 1))
        pieces = pa.Table.from_batches(self.frame(x=lists).to_batches(rows))
        given = self.GIVEN | {"state": "x", "nulls": {"x": "fill"}, "fill": {"x": 9}}
        assert Trajectories.from_table(pieces, **given).states[:, 0].tolist() == [9, 9, 3, 5, 7]

    def test_other_columns_stay_strict(self) -> None:
        with pytest.raises(InputError, match=r"'r', row 2 .* null"):
            Trajectories.from_table(
                self.frame(r=[1.0, 2.0, None, 4.0, 5.0]), nulls=self.CARRY, **self.GIVEN
            )

    def test_nan_is_not_null(self) -> None:
        x = pa.array([0.5, np.nan, 1.0, 2.0, 3.0], from_pandas=False)
        with pytest.raises(InputError, match=r"'x', row 1 .* NaN"):
            Trajectories.from_table(self.frame(x=x), nulls=self.CARRY, **self.GIVEN)


class TestParts:
    def data(self) -> Trajectories:
        return Trajectories.from_arrays(
            **SMALL, users=["b", "a", "b"], terminated=np.array([True, False, False])
        )

    def test_one(self) -> None:
        data = self.data()
        assert [len(one) for one in data] == [3, 1, 2]
        assert data[-1].rewards.tolist() == [4.0, 5.0]
        assert data[0].terminated
        assert data[1].user == "a"
        with pytest.raises(IndexError):
            data[3]

    def test_slices(self) -> None:
        data = self.data()
        part = data[1:]
        assert part.rewards.tolist() == [3.0, 4.0, 5.0]
        assert part.offsets.tolist() == [0, 1, 3]
        back = data[::-1]
        assert back.rewards.tolist() == [4.0, 5.0, 3.0, 0.0, 1.0, 2.0]
        assert back.terminated.tolist() == [False, False, True]
        with pytest.raises(InputError):
            data[3:]

    @pytest.mark.parametrize("chosen", [[-1], [3], [0.7], [False, True], [[0, 1]], [], [0, 0], "a"])
    def test_positions(self, chosen: Any) -> None:
        with pytest.raises(InputError):
            self.data().take(chosen)

    def test_read_only(self) -> None:
        data = self.data()
        for array in (data.lengths, data.unit_index, data.unit_ids, data.offsets, data.users):
            assert not np.asarray(array).flags.writeable

    def test_by_user(self) -> None:
        groups = dict(self.data().by_user())
        assert list(groups) == ["b", "a"]
        assert groups["b"].rewards.tolist() == [0.0, 1.0, 2.0, 4.0, 5.0]
        with pytest.raises(InputError, match="no user column"):
            list(Trajectories.from_arrays(**SMALL).by_user())

    def test_select(self) -> None:
        assert self.data().select(users=["a"]).rewards.tolist() == [3.0]
        assert self.data().select(trajectories=[2, 0]).trajectory_ids.tolist() == [0, 2]
        with pytest.raises(InputError, match="1 of the 2 users"):
            self.data().select(users=["a", "z"])

    def test_split_keeps_users_whole(self) -> None:
        data = Trajectories.from_table(table(np.random.default_rng(0), users=40), **COLUMNS)
        assert data.users is not None
        left, right = data.split([0.75, 0.25], key=5)
        assert left.users is not None
        assert right.users is not None
        assert not set(left.users) & set(right.users)
        assert (left.num_users, right.num_users) == (30, 10)
        assert left.num_steps + right.num_steps == data.num_steps
        again, _ = data.split([0.75, 0.25], key=5)
        same(left, again)
        other, _ = data.split([0.75, 0.25], key=6)
        assert other.users is not None
        assert set(other.users) != set(left.users)
        with pytest.raises(InputError, match="too few"):
            data.split([0.999, 0.001], key=0)
        with pytest.raises(InputError, match="add up to 1"):
            data.split([0.5, 0.4], key=0)
        with pytest.raises(InputError, match="numbers"):
            data.split(["most", "rest"], key=0)  # type: ignore[list-item]

    def test_batches_keep_users_whole(self) -> None:
        data = Trajectories.from_table(table(np.random.default_rng(0), users=40), **COLUMNS)
        seen: set[Any] = set()
        total = 0
        for batch in data.batches(25):
            assert batch.num_steps <= 25
            mine = set(batch.users if batch.users is not None else ())
            assert not mine & seen
            seen |= mine
            total += batch.num_steps
        assert total == data.num_steps
        with pytest.raises(InputError, match="batch_rows"):
            list(data.batches(2))


class TestViews:
    def test_last_rows(self) -> None:
        """Terminated: the last row counts. Cut off: it only supplies a state."""
        ends = np.array([True, False, False])
        found = Trajectories.from_arrays(**SMALL, terminated=ends).transitions()
        assert found.rows.tolist() == [0, 1, 2, 4]
        assert found.next_states.tolist() == [1, 2, 2, 2]
        assert found.bootstraps.tolist() == [1.0, 1.0, 0.0, 1.0]
        assert found.trajectories.tolist() == [0, 0, 0, 2]
        assert found.rewards.tolist() == [0.0, 1.0, 2.0, 4.0]

    def test_final_states(self) -> None:
        ends = np.array([True, False, False])
        data = Trajectories.from_arrays(**SMALL, terminated=ends, final_states=[0, 1, 0])
        found = data.transitions()
        assert found.rows.tolist() == [0, 1, 2, 3, 4, 5]
        assert found.next_states.tolist() == [1, 2, 0, 1, 2, 0]
        assert found.bootstraps.tolist() == [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]

    @pytest.mark.parametrize("rows", [1, 2, 10])
    def test_next_state_column(self, rows: int) -> None:
        frame = pa.table(
            {
                "i": [1, 1, 2, 3, 3],
                "s": [0, 1, 2, 0, 1],
                "n": pa.array([1, None, 0, None, 2]),
                "a": [0] * 5,
                "r": [0.0] * 5,
                "d": [False, True, False, False, False],
            }
        )
        pieces = pa.Table.from_batches(frame.to_batches(rows))
        data = Trajectories.from_table(
            pieces, trajectory="i", state="s", next_state="n", action="a", reward="r",
            terminated="d",
        )  # fmt: skip
        assert data.final_states is not None
        assert data.final_states.tolist() == [1, 0, 2]
        assert data.transitions().next_states.tolist() == [1, 1, 0, 1, 2]
        assert data.transitions().bootstraps.tolist() == [1, 0, 1, 1, 1]

    def test_unknown_ends_are_said(self) -> None:
        assert "cut off" in Trajectories.from_arrays(**SMALL).summary()
        assert len(Trajectories.from_arrays(**SMALL).transitions()) == 3
        assert len(Trajectories.from_arrays(**SMALL, terminated=True).transitions()) == 6

    def test_padded(self) -> None:
        data = Trajectories.from_arrays(
            **SMALL, behavior_probs=[0.5] * 6, terminated=True, final_states=[0, 0, 0]
        )
        wide = data.padded(4)
        assert wide.mask.sum(axis=1).tolist() == [3, 1, 2]
        assert wide.rewards[0].tolist() == [0.0, 1.0, 2.0, 0.0]
        assert wide.behavior_probs is not None
        assert wide.behavior_probs[1].tolist() == [0.5, 1.0, 1.0, 1.0]
        with pytest.raises(InputError, match="more than 2 steps"):
            data.padded(2)
        cut = data.padded(2, too_long="cut")
        assert cut.rewards.tolist() == [[0.0, 1.0], [3.0, 0.0], [4.0, 5.0]]
        assert cut.terminated.tolist() == [False, True, True]
        assert cut.truncated.tolist() == [True, False, False]
        assert cut.final_states is not None
        assert cut.final_states.tolist() == [2, 0, 0]

    def test_summary(self) -> None:
        assert "inf" in Trajectories.from_arrays(**SMALL | {"rewards": [1e308] * 6}).summary()
        text = Trajectories.from_arrays(**SMALL, users=[1, 2, 1]).summary()
        for words in ("3 trajectories, 2 users, 6 steps", "1 to 3", "mean 2.5", "not for pub"):
            assert words in text

    def test_target(self) -> None:
        policy = Tabular(np.array([[0.1, 0.9], [0.2, 0.8], [0.0, 1.0]]))
        data = Trajectories.from_arrays(**SMALL).with_target(policy)
        assert data.target_probs is not None
        assert data.target_probs.tolist() == [0.1, 0.8, 0.0, 0.9, 0.2, 1.0]
        for count in (2, 4):
            with pytest.raises(InputError, match=f"table has {count} states, but the data has 3"):
                Trajectories.from_arrays(**SMALL).with_target(Tabular.uniform(count, 2))
        uncounted = Trajectories.from_arrays(**SMALL | {"num_states": None})
        with pytest.raises(InputError, match=r"states, row 2 .* only 2 states"):
            uncounted.with_target(Tabular.uniform(2, 2))
        with pytest.raises(InputError, match="3 actions, but the data has 2"):
            Trajectories.from_arrays(**SMALL).with_target(Tabular.uniform(3, 3))

    def test_target_is_checked(self, tmp_path: Path) -> None:
        """Probabilities of any function are in [0, 1], so that they can be read back."""
        data = Trajectories.from_arrays(**SMALL)
        loose = data.with_target(Tabular(np.array([[1.0 + 5e-7, 0.0], [0.0, 1.0], [0.5, 0.5]])))
        assert np.asarray(loose.target_probs).max() == 1.0
        same(loose, Trajectories.from_table(loose, **loose.column_names))
        for odd in (np.nan, -0.5, 1.5):
            row = jnp.array([odd, 1.0 - odd])
            policy = FunctionPolicy(lambda s: jnp.tile(row, (len(s), 1)), 2)  # noqa: B023
            with pytest.raises(InputError, match=r"row 0 .* outside \[0, 1\]"):
                data.with_target(policy)

    def test_densities(self) -> None:
        """Of continuous actions, what is logged is a density, which may exceed 1."""
        given: dict[str, Any] = SMALL | {"actions": np.zeros((6, 2)), "num_actions": None}
        data = Trajectories.from_arrays(**given, behavior_probs=[2.5] * 6)
        assert not data.discrete_actions
        with pytest.raises(InputError, match="density"):
            Trajectories.from_arrays(**given, behavior_probs=[2.5] * 5 + [0.0])
        with pytest.raises(InputError, match="probability"):
            Trajectories.from_arrays(**SMALL, behavior_probs=[2.5] * 6)
