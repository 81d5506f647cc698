"""Sweeps: every combination on every seed, each played once, whoever stops or dies on the way."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

from privrl.core.errors import InputError
from privrl.run import cluster
from privrl.run.statistics import interquartile_mean
from privrl.run.sweep import SweepPlan, SweepResult, load_plan, sweep
from privrl.run.training import replicas_of, train
from tests.run.rollout import ROLLOUT, Rollout, State

GRID = {"drift": (0.0, 0.5, -0.25), "spread": (1.0, 0.1)}
PLAN = SweepPlan(GRID, seeds=3, episodes=20, replicas=4, segment=5, curves=True)


def counting(most: int) -> Callable[[], bool]:
    """To stop when asked more than `most` times."""
    asked = iter([False] * most)
    return lambda: next(asked, True)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_every_replica_is_what_a_run_by_itself_gives(tmp_path: Path) -> None:
    found = sweep(ROLLOUT, PLAN, tmp_path)
    assert found.is_finished
    assert names(tmp_path) == ["plan.json", "results.parquet"]
    rows = pq.read_table(found.results).to_pylist()
    assert len(rows) == 18
    wanted = [(d, s, k) for d in GRID["drift"] for s in GRID["spread"] for k in range(3)]
    assert [(row["drift"], row["spread"], row["seed"]) for row in rows] == wanted
    for row in rows:
        alone = train(
            ROLLOUT,
            20,
            replicas_of([row["seed"]], drift=row["drift"], spread=row["spread"]),
            curve=True,
        )
        returns = alone.seen["return"][0]
        np.testing.assert_allclose(row["curve"], returns, rtol=1e-12, atol=1e-12)
        assert row["return_last"] == pytest.approx(np.mean(returns[-2:]), rel=1e-12)
        assert row["std_last"] == pytest.approx(np.std(returns[-2:]), rel=1e-9)
        assert row["return_all"] == pytest.approx(np.mean(returns), rel=1e-12)
        assert row["std_all"] == pytest.approx(np.std(returns), rel=1e-9)
        assert row["length_all"] == pytest.approx(np.mean(alone.seen["length"]))


@pytest.mark.slow
def test_chunks_of_any_size_give_the_same_rows(tmp_path: Path) -> None:
    tables = []
    for replicas in (1, 5, 18, 100):
        plan = SweepPlan(GRID, seeds=3, episodes=20, replicas=replicas)
        tables.append(pq.read_table(sweep(ROLLOUT, plan, tmp_path / str(replicas)).results))
    for table in tables[1:]:
        assert table.equals(tables[0])
    assert "curve" not in tables[0].column_names


@pytest.mark.parametrize("most", [0, 2, 7, 14])
def test_a_stopped_sweep_goes_on_to_the_same_bytes(tmp_path: Path, most: int) -> None:
    wanted = sweep(ROLLOUT, PLAN, tmp_path / "whole").results.read_bytes()
    begun = sweep(ROLLOUT, PLAN, tmp_path / "cut", stop=counting(most))
    assert not begun.is_finished
    assert not begun.results.exists()
    with pytest.raises(InputError, match="not finished"):
        begun.best()
    found = sweep(ROLLOUT, PLAN, tmp_path / "cut", go_on=True)
    assert found.results.read_bytes() == wanted
    assert names(tmp_path / "cut") == ["plan.json", "results.parquet"]


class Counted(Rollout):
    """Counts the episodes that are really played."""

    played = 0

    def advance(self, state: State, episodes: int) -> Any:
        Counted.played += episodes
        return super().advance(state, episodes)


def test_nothing_that_was_done_is_done_again(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Counted, "played", 0)
    sweep(Counted(), PLAN, tmp_path, stop=counting(6))
    assert Counted.played == 20 + 10  # the first chunk, and two segments of the second
    sweep(Counted(), PLAN, tmp_path, go_on=True)
    assert Counted.played == 20 * PLAN.chunks
    sweep(Counted(), PLAN, tmp_path, go_on=True)
    assert Counted.played == 20 * PLAN.chunks


def test_progress_goes_from_nothing_to_everything(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []

    def progress(what: str, share: float | None = None) -> None:
        assert share is not None
        told.append((what, share))

    sweep(ROLLOUT, PLAN, tmp_path, progress=progress, stop=counting(7))
    shares = [share for _, share in told]
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert told[-1][0] == "4 of 18 replicas"
    told.clear()
    sweep(ROLLOUT, PLAN, tmp_path, progress=progress, go_on=True)
    shares = [share for _, share in told]
    assert shares[0] == pytest.approx(0.2)
    assert shares == sorted(shares)
    assert told[-2:] == [("18 of 18 replicas", 1.0), ("writing the results", 1.0)]


def test_the_best_come_first_with_their_intervals(tmp_path: Path) -> None:
    found = sweep(ROLLOUT, PLAN, tmp_path)
    best = found.best(count=100)
    assert len(best) == 6
    assert best[0].settings["drift"] == 0.5
    scores = [one.score.value for one in best if one.score is not None]
    assert scores == sorted(scores, reverse=True)
    rows = pq.read_table(found.results).to_pylist()
    mine = [
        row["return_last"]
        for row in rows
        if (row["drift"], row["spread"]) == tuple(best[0].settings.values())
    ]
    assert best[0].score is not None
    assert best[0].score.value == interquartile_mean(mine)
    assert best[0].score.low <= best[0].score.value <= best[0].score.high
    assert [one.settings for one in found.best(2)] == [one.settings for one in best[:2]]


class Diverges(Rollout):
    """Replicas that drift upwards return no number in the end."""

    def advance(self, state: State, episodes: int) -> Any:
        state, seen = super().advance(state, episodes)
        broken = jnp.where(state.drift[:, None] > 0.0, jnp.inf, seen["return"])
        return state, seen | {"return": broken.at[:, 0].set(seen["return"][:, 0])}


def test_what_diverges_comes_last_and_is_counted(tmp_path: Path) -> None:
    best = sweep(Diverges(), PLAN, tmp_path).best()
    assert [one.diverged for one in best] == [0, 0, 0, 0, 3, 3]
    assert [one.score is None for one in best] == [False] * 4 + [True] * 2
    assert best[0].settings["drift"] == 0.0
    assert best[-1].to_dict()["score"] is None


def test_a_grid_of_nothing_is_the_program_as_it_is(tmp_path: Path) -> None:
    found = sweep(ROLLOUT, SweepPlan({}, seeds=2, episodes=3), tmp_path)
    assert pq.read_table(found.results)["seed"].to_pylist() == [0, 1]
    assert found.best()[0].settings == {}


def test_bad_grids_are_refused_in_one_sentence(tmp_path: Path) -> None:
    made: list[tuple[Any, str]] = [
        (lambda: SweepPlan({"drift": ()}, 1, 1), "drift has no values"),
        (lambda: SweepPlan({"drift": (1.0, 1.0)}, 1, 1), "a value twice"),
        (lambda: SweepPlan({"drift": (math.inf,)}, 1, 1), "must be finite"),
        (lambda: SweepPlan({"drift": (math.nan,)}, 1, 1), "not NaN"),
        (lambda: SweepPlan({"seed": (1.0,)}, 1, 1), "a column of the results"),
        (lambda: SweepPlan(GRID, 0, 1), "seeds must be at least 1"),
        (lambda: SweepPlan(GRID, 1, 0), "episodes must be at least 1"),
        (lambda: SweepPlan(GRID, 1, 1, replicas=0), "replicas must be at least 1"),
        (lambda: SweepPlan(GRID, 1, 1, segment=0), "segment must be at least 1"),
        (lambda: SweepPlan(GRID, 10**8, 1), "6 combinations, 600,000,000 replicas"),
        (
            lambda: sweep(ROLLOUT, SweepPlan({"drit": (1.0,)}, 1, 1), tmp_path),
            "'drit' cannot be swept over: it must be one of drift, spread. Did you mean 'drift'",
        ),
        (lambda: sweep(ROLLOUT, PLAN, tmp_path / "x", go_on=True), "no sweep to resume"),
    ]
    for wrong, sentence in made:
        with pytest.raises(InputError, match=sentence):
            wrong()
    assert list(tmp_path.iterdir()) == []


def test_two_sweeps_at_once_are_not_in_one_folder(tmp_path: Path) -> None:
    told: list[str] = []

    def beside() -> None:
        for go_on in (False, True):
            try:
                sweep(ROLLOUT, PLAN, tmp_path, go_on=go_on)
            except InputError as error:
                told.append(str(error))

    def progress(what: str, share: float | None = None) -> None:
        if not told:
            other = threading.Thread(target=beside)
            other.start()
            other.join()

    assert sweep(ROLLOUT, PLAN, tmp_path, progress=progress).is_finished
    assert len(told) == 2
    assert all(one.startswith("Another process is at work in ") for one in told)
    assert names(tmp_path) == ["plan.json", "results.parquet"]


def test_another_sweep_is_not_taken_for_this_one(tmp_path: Path) -> None:
    sweep(ROLLOUT, PLAN, tmp_path, about={"env": "A"}, stop=counting(1))
    with pytest.raises(InputError, match="holds a sweep already"):
        sweep(ROLLOUT, PLAN, tmp_path, about={"env": "A"})
    for plan, about in ((SweepPlan(GRID, 4, 20), {"env": "A"}), (PLAN, {"env": "B"})):
        with pytest.raises(InputError, match="another sweep, with other settings"):
            sweep(ROLLOUT, plan, tmp_path, about=about, go_on=True)
    assert load_plan(tmp_path) == (PLAN, {"env": "A"})


def test_keys_of_the_replicas_come_from_their_seeds(tmp_path: Path) -> None:
    replicas, size = PLAN.chunk(4)
    assert size == 2
    assert replicas.seeds == (1, 2, 2, 2)
    data = jax.random.key_data(replicas.keys())
    assert np.array_equal(data[0], jax.random.key_data(replicas_of([1]).keys())[0])


# --- over a cluster, and killed ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Shifted(Rollout):
    """Holds a number of JAX's in 64 bits, which 32 bits would round."""

    by: Any = None

    def init(self, keys: jax.Array, settings: Mapping[str, jax.Array]) -> State:
        begun = super().init(keys, settings)
        return begun._replace(place=begun.place + self.by)


@pytest.mark.slow
def test_a_cluster_gives_the_same_bytes(tmp_path: Path) -> None:
    with jax.enable_x64(True):
        rollout = Shifted(by=jnp.array(0.1))
    here = sweep(rollout, PLAN, tmp_path / "here")
    with cluster.own_cluster(num_cpus=2, object_store_memory=100 * 2**20):
        begun = sweep(rollout, PLAN, tmp_path / "there", workers="ray", stop=counting(2))
        assert not begun.is_finished
        there = sweep(rollout, PLAN, tmp_path / "there", workers="ray", go_on=True)
    assert there.results.read_bytes() == here.results.read_bytes()
    assert names(tmp_path / "there") == ["plan.json", "results.parquet"]


KILLED = """
import sys, time
from tests.run.rollout import Rollout
from tests.run.test_sweep import PLAN
from privrl.run.sweep import sweep

class Slow(Rollout):
    def advance(self, state, episodes):
        time.sleep(0.2)
        return super().advance(state, episodes)

sweep(Slow(), PLAN, sys.argv[1])
"""


@pytest.mark.slow
def test_a_killed_sweep_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    wanted: SweepResult = sweep(ROLLOUT, PLAN, tmp_path / "whole")
    folder = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], cwd=os.getcwd())
    try:
        while not (folder / "chunks" / "0000001.parquet").exists():
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (folder / "results.parquet").exists()
    found = sweep(ROLLOUT, PLAN, folder, go_on=True)
    assert found.results.read_bytes() == wanted.results.read_bytes()
