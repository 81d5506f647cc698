"""Running experiments: readings first, then what is judged, part by part, with what is done kept.

Seeds 0 to 9 choose a reading among those that the experiment lists; then the reading as printed and
the chosen one are run on seeds from 100 on. After each part the results are written, so that an
interruption loses one part. On Ray each part is a task, and the rows are those of one process.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from privrl.core import files
from privrl.core.errors import InputError
from privrl.core.progress import Progress, no_progress
from privrl.papers.reproduce import catalogue, results
from privrl.papers.reproduce.readings import Finding, choose, evaluate
from privrl.papers.reproduce.results import Part, Parts, Results
from privrl.papers.reproduce.target import FIRST_JUDGED, Experiment, Row, Target


@dataclass
class _Counter:
    """How many of all parts are done, for whoever waits."""

    progress: Progress
    total: int = 0
    done: int = 0

    def add(self, parts: int) -> None:
        self.total += parts

    def tell(self, what: str) -> None:
        share = self.done / self.total if self.total else 0.0
        self.progress(f"{self.done} of {self.total} parts, {what}", share)


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
    counter = _Counter(progress)
    found = {}
    with files.create_folder(place), _runner(workers) as play:
        for one in wanted:
            own = place / f"{one.name}.json"
            with _lock(place, one.name):
                found[one.name] = _run_experiment(
                    one, own, sharing[one.name], quick, seeds, play, counter
                )
    return [evaluate(it, found[it.experiment.name], sharing[it.experiment.name]) for it in targets]


def _run_experiment(
    experiment: Experiment,
    path: Path,
    sharing: Sequence[Target],
    quick: bool,
    seeds: range | None,
    play: "Player",
    counter: _Counter,
) -> Results:
    held = results.read(path, experiment)
    if experiment.privacy and not held.privacy:
        held = replace(held, privacy=tuple(_load(experiment.privacy)()))
    plan = experiment.quick if quick else experiment.full
    if seeds is not None:
        plan = replace(plan, seeds=seeds)
    tried = experiment.readings
    if len(tried) > 1 and not quick:
        settings = experiment.selection_settings
        parts = results.make_parts(experiment, experiment.selection, tried, settings)
        held = _complete(held, parts, path, play, counter)
    chosen = choose(sharing, results.committed(experiment) if quick else held)
    readings = list({one.name: one for one in (tried[0], chosen)}.values())
    settings = experiment.quick_settings if quick else None
    parts = results.make_parts(experiment, plan, readings, settings)
    return _complete(held, parts, path, play, counter)


def _complete(
    held: Results, wanted: Parts, path: Path, play: "Player", counter: _Counter
) -> Results:
    """The results with these parts in them, of which those that are missing are run."""
    missing = {digest: part for digest, part in wanted.items() if digest not in held.parts}
    counter.add(len(missing))
    about = results.about()
    counter.tell(held.experiment.name)
    for digest, rows, seconds in play(held.experiment, missing):
        part = replace(wanted[digest], rows=tuple(rows), seconds=seconds, about=about)
        held = replace(held, parts={**held.parts, digest: part})
        results.write(path, held)
        counter.done += 1
        counter.tell(held.experiment.name)
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
    return rows, time.perf_counter() - begun


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
