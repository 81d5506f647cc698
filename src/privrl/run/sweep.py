"""Sweeps: every combination of settings, on every seed, in compiled chunks that can be resumed.

    plan = Plan({"actor_step": (0.1, 0.5), "lambda_": (0.0, 0.8)}, seeds=10, episodes=500)
    found = sweep(program, plan, "sweeps/x")

A *replica* is one combination with one seed; replicas are numbered, the seeds of a combination side
by side, the last name of the grid changing fastest. They are played in chunks of `replicas` at a
time, each a run of `privrl.run.training`: compiled, in segments, with a checkpoint after each. A
chunk that is done leaves its rows in the folder and is never played again; one that was cut off
goes on from its checkpoint. At the end all rows become one Parquet file.

A replica's key comes from its seed alone. So all combinations meet the same worlds, and a
difference between two of them on the same seeds is theirs and not the worlds'.

On a cluster each chunk is a task. A chunk depends on nothing but the plan and its number, so the
results are those of one process, bit for bit, on machines of the same kind.

Sweeps keep every return, so they are for public simulators and never for people: each replica over
the same people's data would be another release about them.
"""

import difflib
import json
import math
import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privrl.control.engine import CHECKPOINT
from privrl.control.program import Program
from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.core.progress import Progress, no_progress
from privrl.run.statistics import Estimate, interquartile_mean, stratified_interval
from privrl.run.training import Replicas, TrainingRun, never_stop, resume, train

RESULTS = "results.parquet"
PLAN = "plan.json"
_CHUNKS = "chunks"
_KIND = "privrl sweep"
_FORMAT = 1
# Beyond this the list of replicas alone takes gigabytes.
_MOST_REPLICAS = 50_000_000
_LAST = 10  # the last tenth of the episodes
# Rows that the results' groups have at most, if a chunk has no more.
_GROUP_ROWS = 16_384


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep plays."""

    grid: Mapping[str, tuple[float, ...]]
    """The values of each setting; every combination is played."""

    seeds: int
    """Each combination is played on the seeds 0, 1, ... below this."""

    episodes: int
    replicas: int = 64
    """How many replicas a chunk has."""

    segment: int | None = None
    """The most episodes between two checkpoints; a twentieth of all if None."""

    curves: bool = False
    """Whether the return of every episode is kept in the results."""

    def __post_init__(self) -> None:
        grid = {}
        for name, values in self.grid.items():
            listed = tuple(checks.number(name, value) for value in values)
            if not listed:
                raise InputError(f"{name} has no values: say at least one.")
            if not all(map(math.isfinite, listed)):
                raise InputError(f"The values of {name} must be finite.")
            if len(set(listed)) < len(listed):
                raise InputError(f"{name} has a value twice: say each once.")
            if name in _COLUMNS:
                raise InputError(f"{name!r} is a column of the results, and no setting.")
            grid[name] = listed
        object.__setattr__(self, "grid", MappingProxyType(grid))
        for name in ("seeds", "episodes", "replicas"):
            checks.count(name, getattr(self, name))
        if self.segment is not None:
            checks.count("segment", self.segment)
        if self.count > _MOST_REPLICAS:
            raise InputError(
                f"The grid has {self.combinations:,} combinations, {self.count:,} replicas with "
                "their "
                f"seeds: at most {_MOST_REPLICAS:,} can be played in one sweep."
            )

    @property
    def combinations(self) -> int:
        return math.prod(map(len, self.grid.values()))

    @property
    def count(self) -> int:
        """How many replicas there are."""
        return self.combinations * self.seeds

    @property
    def chunks(self) -> int:
        return -(-self.count // self.replicas)

    def check_program(self, program: Program) -> None:
        """Refuse a grid over what the program cannot vary."""
        for name in self.grid:
            if name not in program.sweepable:
                near = difflib.get_close_matches(name, program.sweepable, 1)
                hint = f"Did you mean {near[0]!r}?" if near else ""
                raise InputError(
                    f"{name!r} cannot be swept over: it must be one of "
                    f"{', '.join(program.sweepable)}. {hint}".strip()
                )
        # Each value once, so that the program refuses what it must before anything is written.
        most = max(map(len, self.grid.values()), default=1)
        padded = {k: v + v[-1:] * (most - len(v)) for k, v in self.grid.items()}
        with jax.enable_x64(True):
            Replicas(tuple(range(most)), padded).initial_state(program)

    def chunk(self, number: int) -> tuple[Replicas, int]:
        """The replicas of a chunk, and how many of them count.

        A last chunk that is not full is filled up with its last replica, so that all have one size
        and are compiled once.
        """
        first = number * self.replicas
        size = min(self.replicas, self.count - first)
        places = np.minimum(first + np.arange(min(self.replicas, self.count)), self.count - 1)
        settings, seeds = self._settings_at(places)
        return (
            Replicas(tuple(seeds.tolist()), {k: tuple(v.tolist()) for k, v in settings.items()}),
            size,
        )

    def _settings_at(self, replicas: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
        """The settings and the seeds of replicas, by their numbers."""
        combination, seeds = np.divmod(replicas, self.seeds)
        settings = {}
        for name, values in reversed(list(self.grid.items())):
            combination, which = np.divmod(combination, len(values))
            settings[name] = np.array(values)[which]
        return dict(reversed(settings.items())), seeds

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {**vars(self), "grid": {name: list(values) for name, values in self.grid.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "SweepPlan":
        given = {**data, "grid": {k: tuple(v) for k, v in data["grid"].items()}}
        if "lanes" in given:  # as replicas were called before 0.2
            given["replicas"] = given.pop("lanes")
        return cls(**given)


@dataclass(frozen=True)
class CombinationScore:
    """How a combination did: over its seeds, the mean return of the last tenth of the episodes."""

    settings: Mapping[str, float]
    score: Estimate | None
    """The interquartile mean over seeds with its interval; None if any replica diverged."""

    diverged: int
    """Replicas whose returns were not all finite."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        score = None if self.score is None else self.score.to_dict()
        return {"settings": dict(self.settings), "score": score, "diverged": self.diverged}


@dataclass(frozen=True)
class SweepResult:
    """What a sweep came to."""

    plan: SweepPlan
    folder: Path
    chunks: int
    """How many are done."""

    @property
    def is_finished(self) -> bool:
        return self.chunks == self.plan.chunks

    @property
    def results(self) -> Path:
        """The Parquet file, once it is finished."""
        return self.folder / RESULTS

    def best(self, count: int = 10, level: float = 0.95) -> list[CombinationScore]:
        """The best combinations by interquartile mean of `return_last`, the best first.

        Those with a replica that diverged come last, the fewest such replicas first. Intervals are
        over seeds, of each combination by itself: the best of many is also the luckiest, so play it
        again on other seeds before believing its figure.
        """
        if not self.is_finished:
            raise InputError("The sweep is not finished: resume it.")
        checks.count("count", count)
        plan = self.plan
        with _refuse_damaged(self.results):
            column = pq.read_table(self.results, columns=["return_last"])["return_last"]
            scores = column.to_numpy().reshape(plan.combinations, plan.seeds).astype(np.float64)
        diverged = np.sum(~np.isfinite(scores), axis=1)
        finite = diverged == 0
        means = interquartile_mean(np.where(finite[:, None], scores, 0.0))
        order = np.lexsort((-means, diverged))[:count]
        settings, _ = plan._settings_at(order * plan.seeds)
        return [
            CombinationScore(
                {name: float(values[rank]) for name, values in settings.items()},
                stratified_interval(scores[place], level=level) if finite[place] else None,
                int(diverged[place]),
            )
            for rank, place in enumerate(order)
        ]


def score_lines(plan: SweepPlan, best: Sequence[CombinationScore], counted: str) -> list[str]:
    """The best combinations, for a screen; `counted` is what was played, such as episodes."""
    lines = [
        f"{plan.combinations:,} combinations on {plan.seeds} seeds, {plan.episodes:,} {counted}.",
        "Mean return of the last tenth: interquartile mean over seeds, and its 95 %",
        "interval. The best of many is also the luckiest: try it on other seeds.",
    ]
    names = list(plan.grid)
    width = max([9, *(len(name) + 2 for name in names)])
    lines.append(
        f"{'mean':>9}{'from':>10}{'to':>10}" + "".join(f"{name:>{width}}" for name in names)
    )
    for one in best:
        score = one.score
        if score is None:
            shown = f"{f'{one.diverged} of {plan.seeds} runs diverged':>29}"
        else:
            shown = f"{score.value:>9.4g}{score.low:>10.4g}{score.high:>10.4g}"
        lines.append(shown + "".join(f"{value:>{width}.4g}" for value in one.settings.values()))
    return lines


def sweep(
    program: Program,
    plan: SweepPlan,
    folder: str | Path,
    *,
    about: Mapping[str, Any] = MappingProxyType({}),
    go_on: bool = False,
    workers: str = "local",
    progress: Progress = no_progress,
    stop: Callable[[], bool] = never_stop,
) -> SweepResult:
    """Play the plan, or what is left of it with `go_on`, and write its results.

    `about` is JSON that says what program this is; a folder of another is refused. `workers` is
    "local" for this process, "ray" for a Ray cluster on this machine that is started for the
    purpose, or the address of one that is running. `stop` is asked before each segment; on a
    cluster, before each chunk.
    """
    plan.check_program(program)
    place = Path(folder)
    if not go_on:
        _make_folder(place)
    elif not (place / PLAN).exists():
        raise InputError(f"There is no sweep to resume in {str(place)!r}.")
    with files.lock_folder(place):
        asked = {"plan": plan.to_dict(), "about": dict(about)}
        if (place / PLAN).exists():
            if not go_on:
                raise InputError(
                    f"{str(place)!r} holds a sweep already: resume it, or say another."
                )
            # As they come back from a file.
            if _read_plan(place) != json.loads(json.dumps(asked)):
                raise InputError(f"{str(place)!r} holds another sweep, with other settings.")
        else:
            _make_folder(place / _CHUNKS)
            files.write_json(place / PLAN, {"kind": _KIND, "format": _FORMAT, **asked})
        if not (place / RESULTS).exists():
            left = [
                number for number in range(plan.chunks) if not _chunk_file(place, number).exists()
            ]
            played = _run_local if workers == "local" else partial(_run_on_cluster, workers)
            told = _SweepProgress(plan, plan.chunks - len(left), progress)
            for number, table in played(program, plan, place, left, told, stop):
                _write_table(_chunk_file(place, number), table)
                shutil.rmtree(_chunk_folder(place, number), ignore_errors=True)
                told.finish_chunk()
            if any(not _chunk_file(place, number).exists() for number in range(plan.chunks)):
                return SweepResult(plan, place, told.chunks)
            progress("writing the results", 1.0)
            _merge(plan, place)
        shutil.rmtree(place / _CHUNKS, ignore_errors=True)
        return SweepResult(plan, place, plan.chunks)


def load_plan(folder: str | Path) -> tuple[SweepPlan, dict[str, Any]]:
    """The plan in a folder, and what it says about its program."""
    data = _read_plan(Path(folder))
    try:
        return SweepPlan.from_dict(data["plan"]), dict(data["about"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{str(Path(folder) / PLAN)!r} is damaged.") from None


# --- chunks --------------------------------------------------------------------------------------


class _SweepProgress:
    """How far everything is, for those who wait."""

    def __init__(self, plan: SweepPlan, chunks: int, progress: Progress) -> None:
        self.plan, self.chunks, self.progress = plan, chunks, progress
        self.report_chunk("", 0.0)

    def report_chunk(self, what: str, share: float | None = None) -> None:
        """The share of the chunk under way; how it calls that is of no use here."""
        replicas = min(self.chunks * self.plan.replicas, self.plan.count)
        self.progress(
            f"{replicas:,} of {self.plan.count:,} replicas",
            (self.chunks + (share or 0.0)) / self.plan.chunks,
        )

    def finish_chunk(self) -> None:
        self.chunks += 1
        self.report_chunk("", 0.0)


ChunkTables = Iterator[tuple[int, pa.Table]]


def _run_local(
    program: Program,
    plan: SweepPlan,
    folder: Path,
    numbers: Sequence[int],
    told: _SweepProgress,
    stop: Callable[[], bool],
) -> ChunkTables:
    """The rows of chunks, one after the other in this process."""
    for number in numbers:
        found = _run_chunk(program, plan, number, folder, told.report_chunk, stop)
        if found is None:
            return
        yield number, found


def _run_on_cluster(
    workers: str,
    program: Program,
    plan: SweepPlan,
    folder: Path,
    numbers: Sequence[int],
    told: _SweepProgress,
    stop: Callable[[], bool],
) -> ChunkTables:
    """The rows of chunks, as they come back from a cluster."""
    from privrl.run import cluster  # with all that it adds up for estimators

    with cluster.connect(workers) as ray:
        task = ray.remote(_task)
        # In bytes: a worker must read 64-bit numbers in JAX's 64-bit mode, lest it halve them.
        packed = ray.cloudpickle.dumps(program)
        shared = ray.put((packed, plan, os.path.realpath(folder)))
        most = max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting = iter(numbers)
        running: dict[Any, int] = {}
        while True:
            while len(running) < most and not stop():
                number = next(waiting, None)
                if number is None:
                    break
                running[task.remote(shared, number)] = number
            if not running:
                return
            for done in ray.wait(list(running), num_returns=1)[0]:
                yield running.pop(done), _fetch(ray, done)


def _task(shared: tuple[bytes, SweepPlan, str], number: int) -> pa.Table:
    """What a worker does: a chunk, with checkpoints if it sees the folder of the sweep."""
    packed, plan, folder = shared
    with jax.enable_x64(True):
        program: Program = pickle.loads(packed)
    seen = (Path(folder) / PLAN).exists()
    return _run_chunk(
        program, plan, number, Path(folder) if seen else None, no_progress, never_stop
    )


def _fetch(ray: Any, done: Any) -> pa.Table:
    try:
        return ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, InputError) else error from None
    except ray.exceptions.RayError as error:
        raise InputError(
            f"The workers could not finish: {type(error).__name__}. What was done stays: resume "
            "the sweep, with fewer replicas at a time if memory was short."
        ) from None


def _run_chunk(
    program: Program,
    plan: SweepPlan,
    number: int,
    folder: Path | None,
    progress: Progress,
    stop: Callable[[], bool],
) -> pa.Table | None:
    """The rows of a chunk; None if it was told to stop before the end."""
    replicas, size = plan.chunk(number)
    place = None if folder is None else _chunk_folder(folder, number)
    # The number of the chunk, so that folders which were moved are not taken for one another.
    about = {"chunk": number}
    if place is not None and (place / CHECKPOINT).exists():
        found = resume(program, place, about=about, progress=progress, stop=stop)
    else:
        if place is not None:
            _make_folder(place)
        found = train(
            program,
            plan.episodes,
            replicas,
            folder=place,
            segment=plan.segment,
            curve=True,
            about=about,
            progress=progress,
            stop=stop,
        )
    return _table(plan, number, size, found) if found.ending == "finished" else None


def _table(plan: SweepPlan, number: int, size: int, found: TrainingRun) -> pa.Table:
    """A row for each replica of a chunk."""
    places = number * plan.replicas + np.arange(size)
    settings, seeds = plan._settings_at(places)
    returns = np.asarray(found.seen["return"][:size], dtype=np.float64)
    lengths = np.asarray(found.seen["length"][:size], dtype=np.float64)
    last = returns[:, -max(1, plan.episodes // _LAST) :]
    columns: dict[str, Any] = {**settings, "seed": seeds.astype(np.int64)}
    # Replicas may diverge: then their figures are not finite.
    with np.errstate(invalid="ignore", over="ignore"):
        columns |= {
            "return_last": np.mean(last, axis=1),
            "std_last": np.std(last, axis=1),
            "return_all": np.mean(returns, axis=1),
            "std_all": np.std(returns, axis=1),
            "length_all": np.mean(lengths, axis=1),
        }
    if plan.curves:
        columns["curve"] = pa.FixedSizeListArray.from_arrays(
            pa.array(returns.reshape(-1)), plan.episodes
        )
    return pa.table(columns)


_COLUMNS = ("seed", "return_last", "std_last", "return_all", "std_all", "length_all", "curve")


# --- the folder ----------------------------------------------------------------------------------


def _read_plan(folder: Path) -> dict[str, Any]:
    data = files.read_json(folder / PLAN, _KIND, _FORMAT, "the plan of a sweep")
    return {name: value for name, value in data.items() if name not in ("kind", "format")}


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{str(folder)!r} cannot be made: {error.strerror}.") from None


def _chunk_folder(folder: Path, number: int) -> Path:
    return folder / _CHUNKS / f"{number:07d}"


def _chunk_file(folder: Path, number: int) -> Path:
    return folder / _CHUNKS / f"{number:07d}.parquet"


def _write_table(path: Path, table: pa.Table) -> None:
    content = pa.BufferOutputStream()
    pq.write_table(table, content)
    files.write(path, content.getvalue().to_pybytes(), secret=False)


@contextmanager
def _refuse_damaged(path: Path) -> Iterator[None]:
    """Say in a sentence that `path` is not what a sweep wrote, whatever its reader makes of it."""
    try:
        files.check_regular(path)
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{str(path)!r} is damaged: delete it, and resume the sweep to have it again."
        ) from None


def _read_rows(path: Path, schema: Any) -> pa.Table:
    with _refuse_damaged(path):
        found = pq.read_table(path)
        return found if schema is None else found.cast(schema)


def _merge(plan: SweepPlan, folder: Path) -> None:
    """All rows in the order of their replicas, in one file, there as a whole or not at all."""
    schema = _read_rows(_chunk_file(folder, 0), None).schema
    together = max(1, _GROUP_ROWS // plan.replicas)
    half = folder / f".{RESULTS}"
    try:
        with half.open("wb") as file:
            with pq.ParquetWriter(file, schema) as writer:
                for first in range(0, plan.chunks, together):
                    numbers = range(first, min(first + together, plan.chunks))
                    parts = [_read_rows(_chunk_file(folder, number), schema) for number in numbers]
                    writer.write_table(pa.concat_tables(parts))
            file.flush()
            os.fsync(file.fileno())
        half.replace(folder / RESULTS)
    except InputError:
        half.unlink(missing_ok=True)
        raise
    except OSError as error:
        half.unlink(missing_ok=True)
        raise InputError(f"{str(folder)!r} cannot be written: {files.reason(error)}.") from None
