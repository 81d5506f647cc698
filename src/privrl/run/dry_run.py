"""What a run would release, pay and write, without reading a row and without paying: `--dry-run`.

Looked at are options, policy files, the header or schema of each file of the table, the ledger and
the folder's place on disk. All of these are public to whoever starts the run, so that neither the
answer nor a refusal tells anything about a person. Whether rows are valid, and what follows from
how many there are, shows only in the run itself.
"""

import errno
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from privrl.core.errors import InputError
from privrl.data import Policy, neutral
from privrl.data.arrow import is_number
from privrl.data.columns import plan
from privrl.data.readers.tables import schemas
from privrl.data.sources import check_names, check_schema
from privrl.evaluation import memory
from privrl.evaluation.dplsw import OutputPerturbation
from privrl.evaluation.gpope import GPOPE
from privrl.evaluation.private_figures import COVARIANCE
from privrl.evaluation.private_lstd import PrivateLSTD
from privrl.privacy.events import Event
from privrl.privacy.ledger import Ledger
from privrl.privacy.mechanisms import GaussianMechanism, GridGaussianMechanism
from privrl.privacy.promise import Budget, Relation, Unit
from privrl.privacy.session import PrivacySession
from privrl.run.evaluation import EvaluationSpec
from privrl.run.provenance import Provenance
from privrl.run.releasing import (
    CERTIFICATE,
    REPORT,
    STUDY,
    ValueFunction,
    check_total,
    check_unused,
)
from privrl.run.request import Request
from privrl.run.table_files import column_types, is_csv

# What a run's files take by far at most.
_ROOM = 20_000_000
_PUBLIC = ("WIS", "IS", "PDIS", "WPDIS")


@dataclass(frozen=True)
class Release:
    """Something that would be released."""

    method: str
    epsilon: float | None = None
    """The part of the budget; None for what the others leave of it, and for public data."""

    delta: float | None = None
    """At which that is."""

    event: Event | None = None
    """What is paid for; None if it follows from the number of people, or if nothing is."""

    noise: str = ""
    """How much noise there is, for people."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        event = None if self.event is None else self.event.to_dict()
        return {**vars(self), "event": event}


@dataclass(frozen=True)
class DryRun:
    """What a run would do."""

    releases: tuple[Release, ...]
    budget: Budget | None
    unit: Unit
    relation: Relation
    folder: str
    files: tuple[str, ...]
    ledger: str | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        budget = None if self.budget is None else vars(self.budget)
        return {
            "dry_run": True,
            "releases": [one.to_dict() for one in self.releases],
            "budget": budget,
            "unit": self.unit.value,
            "relation": self.relation.value,
            "ledger": self.ledger,
            "folder": self.folder,
            "files": list(self.files),
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """The same for people."""
        if self.budget is None:
            promise = "nothing: no certificate would be issued"
        else:
            promise = f"epsilon {self.budget.epsilon:g} at delta {self.budget.delta:g}, "
            promise += f"{self.unit}, {self.relation}"
        lines = ["Nothing was read, paid or written. A run would", f"  promise   {promise}"]
        for one in self.releases:
            lines.append(f"  release   {one.method}{self._share(one)}")
            lines += [f"            {one.noise}"] if one.noise else []
        lines.append(f"  pay       {self.ledger or 'in no ledger'}")
        lines.append(f"  write     {', '.join(self.files)}")
        lines.append(f"            in {self.folder!r}")
        return [*lines, *(f"  {note}" for note in self.notes)]

    def _share(self, release: Release) -> str:
        """How much of the budget is for a release."""
        if self.budget is None:
            return ""
        if release.epsilon is None:
            return ", what the others leave of it"
        at = "" if release.delta == self.budget.delta else f" at delta {release.delta:.4g}"
        return f", epsilon {release.epsilon:.4g}{at} of it"


def dry_run(
    asked: Request,
    folder: str | Path,
    ledger: str | Path | None = None,
    run: str | None = None,
) -> DryRun:
    """What the evaluation that is asked for would do; refused where the evaluation would be."""
    policy, _, question = asked.prepare()
    if question.budget is None and ledger is not None:
        raise InputError("Data declared public spends nothing: leave out the ledger.")
    if question.budget is None and asked.stream:
        raise InputError("Public data is judged as a whole, not as a stream.")
    check_tables(asked, policy)
    told = Provenance.of(policy, asked.paths, asked.policy_source, asked.behavior_source)
    unit = Unit.TRAJECTORY if asked.user is None else Unit.USER
    releases = _releases(asked, question)
    paid = None
    if question.budget is not None:
        check_total(_known_events(releases), question.budget)
    if question.budget is not None and ledger is not None:
        events, delta = _events(releases, question.budget), question.budget.delta
        paid = check_ledger(ledger, run or "", events, delta=delta, unit=unit)
    check_folder(folder)
    written = (STUDY, REPORT) if question.budget is None else (STUDY, CERTIFICATE, REPORT)
    return DryRun(
        releases,
        question.budget,
        unit,
        Relation.REPLACE_ONE,
        str(folder),
        written,
        paid,
        asked.notes() if asked.on_policy else (*asked.notes(), *told.notes),
    )


# --- for runs of all kinds ------------------------------------------------------------------------


def check_folder(folder: str | Path) -> None:
    """Refuse a folder that holds a run, or that could not be made, without making it."""
    check_unused(Path(folder))
    check_writable(folder)


def check_writable(folder: str | Path) -> None:
    """Refuse a folder that could not be made or written to, without making it."""
    place = Path(folder)
    there = next(one for one in (place, *place.absolute().parents) if one.exists())
    problem = None
    if not there.is_dir():
        problem = errno.EEXIST if there == place else errno.ENOTDIR
    elif not os.access(there, os.W_OK | os.X_OK):
        problem = errno.EACCES
    if problem is not None:
        raise InputError(f"{str(folder)!r} cannot be written to: {os.strerror(problem)}.")
    if shutil.disk_usage(there).free < _ROOM:
        raise InputError(f"The disk of {str(folder)!r} is full: say another folder.")


def check_ledger(
    path: str | Path,
    run: str,
    events: Iterable[Event],
    *,
    delta: float,
    unit: Unit,
    relation: Relation = Relation.REPLACE_ONE,
    reward_radius: float | None = None,
) -> str:
    """Refuse what a ledger would refuse to pay; how much of its limit is left, in words.

    The events are spent on a copy of it, which is thrown away.
    """
    with Ledger.open(path) as ledger, TemporaryDirectory() as scratch:
        left = ledger.remaining()
        with Ledger.from_dict(ledger.to_dict(), Path(scratch) / "copy") as copy:
            opened = PrivacySession(ledger=copy, run=run).open(
                unit, relation, reward_radius=reward_radius
            )
            opened.pay(tuple(events), delta=delta, new_run=True)
    room = "no limit" if left is None else f"{left:.1%} of its limit is left"
    return f"in the ledger {str(path)!r} ({room}), as run {run!r}"


# --- an evaluation --------------------------------------------------------------------------------


def check_tables(asked: Request, policy: Policy | None) -> None:
    """Every file has the columns, of types that can be what they are said to be."""
    paths, checked = asked.paths, plan(asked.columns(policy))
    if is_csv(paths[0]):
        if asked.stream:
            raise InputError("--stream is for Parquet files: convert the CSV files first.")
        if checked.invalid == "neutral":
            neutral.text_shape(paths, checked)
        for path in paths:
            check_names(str(path), [name for name, _ in column_types(path)], checked.names)
        return
    if checked.invalid == "neutral":
        neutral.shape_of(schemas(paths), checked, parquet=True)
    for file, schema in schemas(paths):
        check_schema(file, schema, checked)
        for name in checked.no_carry_columns:
            held = schema.field(name).type
            if not is_number(held):
                raise InputError(f"{file}: column {name!r} holds {held}, but it must hold numbers.")


def _releases(asked: Request, question: EvaluationSpec) -> tuple[Release, ...]:
    if question.budget is None:
        found = [Release(method) for method in _PUBLIC]
        if question.features is not None:
            more = ("DR", "WDR", "FQE", "LSTD") if asked.policy else ("LSTD",)
            told = "if rewards are discounted, or trajectories end"
            found += [Release(method, noise=told) for method in more]
        return tuple(found)
    people = "the number of " + ("people" if asked.user else "trajectories")
    off_policy = not asked.on_policy
    found = []
    if "value" in question.estimators:
        found.append(_value_release(question, people, off_policy))
    last: list[Release] = []
    for judge in question.value_function_estimators(off_policy).values():
        memory.check_features_memory(judge.features.dimension)
        part: Budget | None = judge.budget
        made: Event | None = None
        if isinstance(judge, OutputPerturbation):
            made = judge.mechanism().event
            told = f"noise: its size follows from everybody's visits, and stays private; {made}"
        elif isinstance(judge, PrivateLSTD):
            made = judge.mechanism.event
            told = f"noise: {made}"
        else:
            told = f"noise: follows from {people}, who are counted in the table"
            # As in a run: these come last, and get what the others leave.
            part = None if asked.stream or isinstance(judge, GPOPE) else part
        if part is None:
            last.append(Release(_method(judge), noise=told))
        else:
            found.append(Release(_method(judge), part.epsilon, part.delta, made, told))
    return (*found, *last)


def _method(judge: ValueFunction) -> str:
    """As results call it."""
    return judge.method if isinstance(judge, OutputPerturbation) else type(judge).__name__


def _value_release(question: EvaluationSpec, people: str, off_policy: bool) -> Release:
    value = replace(question.value_estimator, on_policy=not off_policy)
    mechanism, event = value.mechanism, value.mechanism.event
    if isinstance(mechanism, GridGaussianMechanism):
        std = mechanism.width * mechanism.step
    else:
        std = mechanism.std
    # Of one person: it is divided by how many there are.
    noise = value.figures(np.zeros(len(COVARIANCE)), std, 1).details()["noise_std"]
    told = f"noise: standard deviation {noise['behavior']:.3g} (as logged)"
    told += f" and {noise['target']:.3g} (new policy)" if off_policy else ""
    told += f" over {people}"
    return Release("PrivateValue", value.budget.epsilon, value.budget.delta, event, told)


def _known_events(releases: Iterable[Release]) -> list[Event]:
    """What is paid for; where that follows from the number of people, Gaussian noise of its part.

    What gets what the others leave is not among them: it costs no more than that.
    """
    found = []
    for one in releases:
        if one.event is not None:
            found.append(one.event)
        elif one.epsilon is not None and one.delta is not None:
            part = Budget(one.epsilon, one.delta)
            found.append(GaussianMechanism.from_budget(1.0, part).event)
    return found


def _events(releases: Iterable[Release], budget: Budget) -> list[Event]:
    """What is paid for; where something gets what is left, Gaussian noise of the whole budget."""
    if any(one.event is None and one.epsilon is None for one in releases):
        return [GaussianMechanism.from_budget(1.0, budget).event]
    return _known_events(releases)
