"""Running experiments: readings first, then what is judged, part by part, with what is done kept.

Seeds 0 to 9 choose a reading among those that the experiment lists; then the reading as printed and
the chosen one are run on seeds from 100 on. After each part the results are written, so that an
interruption loses one part. On Ray each part is a task, and the rows are those of one process.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from privrl.core import files
from privrl.core.errors import InputError
from privrl.core.progress import Progress, no_progress
from privrl.papers.reproduce import catalogue, results
from privrl.papers.reproduce.readings import Finding, choose, evaluate
from privrl.papers.reproduce.results import Part, Parts, Results
from privrl.papers.reproduce.target import FIRST_JUDGED, Experiment, Plan, Reading, Row, Target


@dataclass
class _Counter:
    """How many of all parts are done, for whoever waits."""

    progress: Progress
    left: dict[str, int] = field(default_factory=dict)
    """By experiment: at first the most that there can be."""

    done: int = 0

    def tell(self, name: str, left: int) -> None:
        self.left[name] = left
        total = self.done + sum(self.left.values())
        share = self.done / total if total else 1.0
        self.progress(f"{self.done:,} of {total:,} parts, {name}", share)


def run(
    targets: Sequence[Target],
    folder: str | Path,
    *,
    quick: bool = False,
    seeds: range | None = None,
    workers: str = "local",
    progress: Progress = no_progress,
) -> list[Finding]:
    """Run what is missing of the targets' experiments in `folder`, and judge them.

    Args:
        quick: Take the quick plan: fewer seeds, and perhaps smaller sizes.
        seeds: Those to judge, instead of the plan's; from 100 on.
        workers: "local", "ray", or the address of a Ray cluster.
    """
    if seeds is not None and (not seeds or seeds.start < FIRST_JUDGED):
        raise InputError(
            f"must be a range from {FIRST_JUDGED} on, such as 100:120: others choose readings.",
            field="seeds",
        )
    place = Path(folder)
    wanted = catalogue.experiments(targets)
    sharing = {one.name: catalogue.sharing(one, targets) for one in wanted}
    plans = {one.name: _plan(one, quick, seeds) for one in wanted}
    counter = _Counter(progress)
    found = {}
    with files.create_folder(place), _runner(workers) as play:
        for one in wanted:
            counter.left[one.name] = _most_parts(one, sharing[one.name], plans[one.name], quick)
        for one in wanted:
            own = place / f"{one.name}.json"
            with _lock(place, one.name):
                found[one.name] = _run_experiment(
                    one, own, sharing[one.name], plans[one.name], quick, play, counter
                )
    return [evaluate(it, found[it.experiment.name], sharing[it.experiment.name]) for it in targets]


def _plan(experiment: Experiment, quick: bool, seeds: range | None) -> Plan:
    plan = experiment.quick if quick else experiment.full
    return plan if seeds is None else replace(plan, seeds=seeds)


def _selection(experiment: Experiment, quick: bool) -> Parts:
    """What is run to choose a reading: nothing in a quick run, or if there is one only."""
    tried, settings = experiment.readings, experiment.selection_settings
    if quick or len(tried) < 2:
        return {}
    return results.make_parts(experiment, experiment.selection, tried, settings)


def _judged(experiment: Experiment, plan: Plan, readings: Iterable[Reading], quick: bool) -> Parts:
    """What is run to judge these readings."""
    settings = experiment.quick_settings if quick else None
    return results.make_parts(experiment, plan, readings, settings)


def _most_parts(experiment: Experiment, sharing: Sequence[Target], plan: Plan, quick: bool) -> int:
    """How many parts there may be in all: any reading may be chosen."""
    choices = [_readings(experiment, one, sharing, quick) for one in experiment.readings]
    judged = max(len(_judged(experiment, plan, some, quick)) for some in choices)
    return len(_selection(experiment, quick)) + judged


def _readings(
    experiment: Experiment, chosen: Reading, sharing: Sequence[Target], quick: bool
) -> tuple[Reading, ...]:
    """Those that are judged: as printed and the chosen one; all if no number chooses."""
    if not quick and not any(one.compared for one in sharing):
        return experiment.readings
    return experiment.readings[0], chosen


def _run_experiment(
    experiment: Experiment,
    path: Path,
    sharing: Sequence[Target],
    plan: Plan,
    quick: bool,
    play: "Player",
    counter: _Counter,
) -> Results:
    held = results.read(path, experiment)
    privacy = tuple(_load(experiment.privacy)()) if experiment.privacy else ()
    if privacy != held.privacy:
        held = replace(held, privacy=privacy)
        results.write(path, held)
    choosing = _selection(experiment, quick)
    later = _most_parts(experiment, sharing, plan, quick) - len(choosing)
    held = _complete(held, choosing, path, play, counter, later)
    chosen = choose(sharing, results.committed(experiment) if quick else held)
    parts = _judged(experiment, plan, _readings(experiment, chosen, sharing, quick), quick)
    return _complete(held, parts, path, play, counter, 0)


def _complete(
    held: Results, wanted: Parts, path: Path, play: "Player", counter: _Counter, later: int
) -> Results:
    """The results with these parts in them, of which those that are missing are run."""
    missing = {digest: part for digest, part in wanted.items() if digest not in held.parts}
    about, name, left = results.about(held.experiment), held.experiment.name, len(missing) + later
    counter.tell(name, left)
    for digest, rows, seconds in play(held.experiment, missing):
        part = replace(wanted[digest], rows=tuple(rows), seconds=seconds, about=about)
        held = replace(held, parts={**held.parts, digest: part})
        results.write(path, held)
        counter.done, left = counter.done + 1, left - 1
        counter.tell(name, left)
    return held


Player = Callable[[Experiment, Parts], Iterator[tuple[str, list[Row], float]]]


def _load(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def run_part(name: str, part: Part) -> tuple[list[Row], float]:
    """The rows of a part, and how long they took: what a worker does."""
    begun = time.perf_counter()
    rows = list(_load(name)(dict(part.options), dict(part.setting), list(part.seeds)))
    seeds = {row.get("seed") for row in rows}
    if seeds != set(part.seeds) or len({tuple(row) for row in rows}) > 1:
        raise ValueError(
            f"{name} must give rows of one form, of each of the seeds that it is given."
        )
    for row in rows:
        if not _is_finite(list(row.values())):
            raise ValueError(f"{name} gave no finite numbers: {dict(part.setting)}, {row['seed']}.")
    return rows, time.perf_counter() - begun


def _is_finite(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _play_here(experiment: Experiment, parts: Parts) -> Iterator[tuple[str, list[Row], float]]:
    for digest, part in parts.items():
        yield digest, *run_part(experiment.run, part)


@contextmanager
def _runner(workers: str) -> Iterator[Player]:
    if workers == "local":
        yield _play_here
        return
    from privrl.run import cluster

    with cluster.connect(workers) as ray:
        task = ray.remote(run_part)

        def play(experiment: Experiment, parts: Parts) -> Iterator[tuple[str, list[Row], float]]:
            running = {task.remote(experiment.run, part): key for key, part in parts.items()}
            while running:
                for done in ray.wait(list(running), num_returns=1)[0]:
                    digest = running.pop(done)
                    try:
                        rows, seconds = ray.get(done)
                    except ray.exceptions.RayTaskError as error:
                        cause = error.cause
                        raise cause if isinstance(cause, InputError) else error from None
                    yield digest, rows, seconds

        yield play


@contextmanager
def _lock(place: Path, name: str) -> Iterator[None]:
    """Have an experiment's file to oneself; others may run in the same folder."""
    own = place / f".{name}"
    own.mkdir(exist_ok=True)
    with files.lock_folder(own):
        yield
    with suppress(OSError):
        own.rmdir()


def findings_of(targets: Sequence[Target], folder: Path | None = None) -> list[Finding]:
    """What results that are there say: those in a folder, or those in the package."""
    found = []
    for target in targets:
        experiment = target.experiment
        held = (
            results.committed(experiment)
            if folder is None
            else results.read(folder / f"{experiment.name}.json", experiment)
        )
        found.append(evaluate(target, held, catalogue.sharing(experiment, targets)))
    return found


def write_pictures(findings: Sequence[Finding], folder: str | Path) -> None:
    """An SVG file for each target."""
    from privrl.papers.reproduce import drawing

    for one in findings:
        rows = list(one.results.rows(one.chosen, one.is_reduced))
        pictures = drawing.draw(one.target, rows, one.verdict)
        text = drawing.stand_alone(pictures)
        files.write(Path(folder) / f"{one.target.name}.svg", text.encode(), secret=False)
