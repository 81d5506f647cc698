"""Results of an experiment as a JSON file: rows by part, with seeds, versions, machine, seconds.

A part is one reading, one setting and some seeds. It is kept under a digest of these, of the
experiment's name, function and revision: a part that is there is not run again, and one of another
revision is not taken for it. With it are a digest of its rows, so that a file that was changed by
hand is found damaged, and one of the code that made them, so that a page shows what was mixed.
Files are written as a whole or not at all. Committed results are `privrl/papers/results/*.json`, in
the wheel too.
"""

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from privrl.core import files
from privrl.core.errors import InputError
from privrl.papers.reproduce.target import Experiment, Plan, Reading, Row

KIND, FORMAT = "privrl reproduction", 1
_PACKAGES = ("privrl", "jax", "jaxlib", "numpy", "scipy")


@dataclass(frozen=True)
class Part:
    """A unit of work, and what came of it."""

    reading: str
    """The first for which it was run; others with the same options have it too."""

    options: Mapping[str, Any]
    setting: Mapping[str, Any]
    seeds: tuple[int, ...]
    is_reduced: bool = False
    rows: tuple[Row, ...] = ()
    seconds: float = 0.0
    about: Mapping[str, Any] = field(default_factory=dict)
    """Versions and machine."""

    def digest(self, experiment: Experiment) -> str:
        """What tells parts from one another."""
        told = {
            "experiment": experiment.name,
            "run": experiment.run,
            "revision": experiment.revision,
            "options": dict(self.options),
            "setting": dict(self.setting),
            "seeds": list(self.seeds),
            "reduced": self.is_reduced,
        }
        return _digest(told)

    def rows_digest(self) -> str:
        """What rows are checked by."""
        return _digest([list(row.items()) for row in self.rows])


def _digest(value: Any) -> str:
    return hashlib.sha256(files.canonical_json(value).encode()).hexdigest()[:16]


Parts = dict[str, Part]
"""By digest."""


@dataclass(frozen=True)
class Results:
    """All that there is of an experiment."""

    experiment: Experiment
    parts: Parts
    privacy: tuple[Row, ...] = ()

    def rows(self, reading: Reading, is_reduced: bool) -> Iterator[Row]:
        """The rows of a reading, each with its setting in it, made with sizes of one kind.

        Runs that were asked for with different seeds may share some of them: the first counts.
        """
        seen = set()
        for part in self.parts.values():
            own = self.experiment.options(reading, part.setting)
            if part.options != own or part.is_reduced != is_reduced:
                continue
            if not self.experiment.has_sizes(part.setting, is_reduced):
                continue
            setting = files.canonical_json(dict(part.setting))
            for row in part.rows:
                if (setting, row["seed"]) not in seen:
                    yield {**part.setting, **row}
            seen |= {(setting, seed) for seed in part.seeds}

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts.values())

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: what many parts have in common is there once."""
        abouts = list({files.canonical_json(dict(p.about)): p.about for p in self.parts.values()})
        return {
            "kind": KIND,
            "format": FORMAT,
            "experiment": self.experiment.name,
            "revision": self.experiment.revision,
            "privacy": list(self.privacy),
            "made": [json.loads(one) for one in abouts],
            "parts": {
                digest: {
                    "reading": part.reading,
                    "options": dict(part.options),
                    "setting": dict(part.setting),
                    "seeds": list(part.seeds),
                    "reduced": part.is_reduced,
                    "seconds": round(part.seconds, 2),
                    "made": abouts.index(files.canonical_json(dict(part.about))),
                    "digest": part.rows_digest(),
                    "columns": list(part.rows[0]) if part.rows else [],
                    "rows": [list(row.values()) for row in part.rows],
                }
                for digest, part in self.parts.items()
            },
        }


def read(path: Path, experiment: Experiment) -> Results:
    """The results in a file; none if there is no file, or only those of an earlier revision."""
    if not files.path_exists(path):
        return Results(experiment, {})
    data = files.read_json(path, KIND, FORMAT, "results of privrl reproduce")
    if data.get("experiment") != experiment.name:
        raise InputError(f"{str(path)!r} has results of another experiment than {experiment.name}.")
    try:
        if data["revision"] != experiment.revision:
            return Results(experiment, {})
        parts = {digest: _part(one, data["made"]) for digest, one in data["parts"].items()}
        for digest, part in parts.items():
            if digest != part.digest(experiment):
                raise ValueError
        return Results(experiment, parts, tuple(map(dict, data["privacy"])))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise InputError(
            f"{str(path)!r} is damaged: delete it, and run again to have it again."
        ) from None


def _part(data: Mapping[str, Any], made: list[dict[str, Any]]) -> Part:
    columns, seeds = data["columns"], tuple(data["seeds"])
    rows = tuple(dict(zip(columns, row, strict=True)) for row in data["rows"])
    if {row["seed"] for row in rows} != set(seeds) or data["reduced"] not in (True, False):
        raise ValueError
    part = Part(
        str(data["reading"]),
        dict(data["options"]),
        dict(data["setting"]),
        seeds,
        data["reduced"],
        rows,
        float(data["seconds"]),
        made[data["made"]],
    )
    if data["digest"] != part.rows_digest():
        raise ValueError
    return part


def write(path: Path, results: Results) -> None:
    """Put results at `path`, in short lines."""
    data = results.to_dict()
    parts = data.pop("parts")
    head = json.dumps(data, indent=1, allow_nan=False)[:-2]
    listed = (
        f"  {json.dumps(digest)}: {json.dumps(one, separators=(',', ':'), allow_nan=False)}"
        for digest, one in parts.items()
    )
    text = head + ',\n "parts": {\n' + ",\n".join(listed) + "\n }\n}\n"
    files.write(path, text.encode(), secret=False)


def committed(experiment: Experiment) -> Results:
    """The results that are part of the package."""
    with resources.as_file(resources.files("privrl.papers") / "results") as folder:
        return read(folder / f"{experiment.name}.json", experiment)


def make_parts(
    experiment: Experiment,
    plan: Plan,
    readings: Iterable[Reading],
    settings: Iterable[Mapping[str, Any]] | None = None,
) -> Parts:
    """The units of work of a plan, without rows."""
    chosen = experiment.settings if settings is None else tuple(settings)
    found: Parts = {}
    for reading in readings:
        for setting in chosen:
            for first in range(0, len(plan.seeds), experiment.seeds_at_once):
                part = Part(
                    reading.name,
                    experiment.options(reading, setting),
                    {**setting, **plan.sizes},
                    tuple(plan.seeds[first : first + experiment.seeds_at_once]),
                    plan.is_reduced,
                )
                found.setdefault(part.digest(experiment), part)
    return found


def about(experiment: Experiment) -> dict[str, Any]:
    """Versions, a digest of the paper's code, and the kind of machine: no name of it, no path."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    code = hashlib.sha256()
    paper = resources.files("privrl.papers") / experiment.name.partition(".")[0]
    if paper.is_dir():
        for one in sorted(paper.iterdir(), key=lambda one: one.name):
            if one.name.endswith(".py"):
                code.update(one.read_bytes())
    machine = {"cpu": _cpu(), "cores": os.cpu_count()}
    return {"versions": versions, "code": code.hexdigest()[:16], "machine": machine}


def _cpu() -> str:
    """The processor's model, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
