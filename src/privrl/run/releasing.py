"""The private part of an evaluation: read, tried, kept, paid for and drawn, in this order.

1. *Read.* All sums over people are gathered; what the estimators hold is held.
2. *Kept*, if the run has a folder: `noise.key` (`privrl.privacy.resuming`) is on disk, with keyed
   digests of the data, the policies, the question and the rounded sums.
3. *Tried.* Everything that follows the payment is done once with placeholder figures that come from
   no data: results, certificates, the study, and whatever the caller does with one.
4. *Paid for*, if there is a ledger: one entry, which also reserves the run's name.
5. *Drawn.* Each estimator's noise comes from a source of its own, all of them from the key.

A process that ends before 4 has paid nothing. One that ends later has left its key, and computes
the same from it once more: the noise is a function of the key, and other data is refused by its
digest. So what is released by a run and all of its copies is one study (the proof is in
`privrl.privacy.resuming`), with or without a ledger.

The digest of a stream is taken of the batches as they are read, in every pass over it. So it costs
no pass of its own, and files that change between two passes are noticed before anybody pays.
"""

import functools
import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privrl.core import files
from privrl.core.errors import InputError
from privrl.data import OneHot, Policy, Trajectories, TrajectoryStream
from privrl.evaluation import gpope, memory, private_gtd
from privrl.evaluation.dplsw import OutputPerturbation
from privrl.evaluation.gpope import GPOPE
from privrl.evaluation.private_gtd import PrivateGTD
from privrl.evaluation.private_lstd import PrivateLSTD
from privrl.evaluation.private_value import PrivateValue
from privrl.evaluation.result import Result
from privrl.evaluation.sums import Sums
from privrl.evaluation.table import is_table
from privrl.privacy import resuming
from privrl.privacy.accounting import account
from privrl.privacy.certificate import Assumption, Certificate
from privrl.privacy.events import Event
from privrl.privacy.ledger import Ledger, warn_if_large
from privrl.privacy.noise import Source, placeholder, reproducible, secure
from privrl.privacy.promise import Budget, NoiseOrigin, Relation, Release
from privrl.privacy.resuming import NoiseKey, keyed_digest
from privrl.privacy.session import (
    SECRET_SESSION,
    OpenSession,
    PrivacySession,
    forget_unless_paid,
)

if TYPE_CHECKING:
    from privrl.core.progress import Progress
    from privrl.run.evaluation import EvaluationSpec, Gather

STUDY, CERTIFICATE, REPORT = "study.json", "certificate.json", "report.html"
# What runs of all kinds leave in their folders.
_RUN_FILES = (STUDY, CERTIFICATE, REPORT, "run.json", "result.json", "claim.json")

# Of a person's contribution, in which sums are compared when a run goes on.
_SUM_RESOLUTION = 2.0**20

Data = Trajectories | TrajectoryStream
ValueFunction = PrivateGTD | PrivateLSTD | GPOPE | OutputPerturbation
"""An estimator of the value of states."""
ResultsCallback = Callable[[tuple[Result, ...], Certificate], object]
"""What becomes of results and their certificate."""


# --- the folder ----------------------------------------------------------------------------------


@dataclass
class RunRecord:
    """Where a run is kept until its study is written; nowhere, without a folder."""

    run: str | None
    seed: int | None
    created: str
    folder: Path | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    kept: NoiseKey | None = None

    def keep(self, runs_on: Mapping[str, Any]) -> None:
        """Write the key; or, of a run that goes on, refuse other things than it was begun on."""
        if self.folder is None:
            return
        if self.kept is None:
            known = {"run": self.run, "seed": self.seed, "created": self.created}
            about = {**self.about, **known}
            self.kept = NoiseKey.begin(self.folder, about, live=False, runs_on=runs_on)
        else:
            self.kept.check(runs_on)

    def forget(self) -> None:
        """Nothing was paid, and nothing was before: leave no key."""
        if self.kept is not None and self.kept.begun_here:
            self.kept.remove()

    def source(self, name: str, number: int) -> Source:
        """Where the noise of one estimator comes from: each has a source of its own."""
        if self.seed is not None:
            return reproducible(self.seed, number)
        return secure() if self.kept is None else self.kept.source(name)


@contextmanager
def open_run(
    folder: str | Path | None,
    *,
    resume: bool,
    ledger: Ledger | None,
    run: str | None,
    seed: int | None,
    about: Mapping[str, Any],
) -> Iterator[RunRecord]:
    """Have the folder of a run to oneself, one that begins or one that goes on."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if resume:
        if folder is None:
            raise InputError("Say which folder to resume.")
        with resuming.resume_run(folder) as kept:
            yield _resume_record(kept, ledger, run)
        return
    if ledger is not None and run is not None:
        ledger.refuse_existing_run(run)
    if folder is None:
        yield RunRecord(run, seed, now)
        return
    with reserve_folder(folder):
        yield RunRecord(run, seed, now, Path(folder), about)


def _resume_record(kept: NoiseKey, ledger: Ledger | None, run: str | None) -> RunRecord:
    try:
        known, seed, created = kept.about["run"], kept.about["seed"], kept.about["created"]
    except KeyError:
        raise InputError(
            f"{str(kept.folder)!r} holds another kind of run: go on with it as it was begun."
        ) from None
    typed = isinstance(created, str) and (known is None or isinstance(known, str))
    if not typed or not (seed is None or type(seed) is int):
        raise InputError(f"{str(kept.folder / resuming.KEY_FILE)!r} is damaged.")
    if (ledger is None) != (known is None):
        said = "out a ledger: leave it out" if known is None else " a ledger: say the same"
        raise InputError(f"This run was begun with{said}.")
    if run not in (None, known):
        raise InputError(f"This run is called {known!r}: leave its name out.")
    return RunRecord(known, seed, created, kept.folder, kept.about, kept)


@contextmanager
def reserve_folder(folder: str | Path) -> Iterator[None]:
    """Have a folder that holds no run yet to oneself; it is gone again if nothing is in it."""
    place = Path(folder)
    with files.create_folder(place), files.lock_folder(place):
        check_unused(place)
        yield


def check_unused(folder: Path) -> None:
    """Refuse a folder that holds a run, finished or interrupted."""
    if (folder / resuming.KEY_FILE).exists():
        raise InputError(
            f"{str(folder)!r} holds an interrupted run: resume it, or say another folder."
        )
    if any((folder / name).exists() for name in _RUN_FILES):
        raise InputError(f"{str(folder)!r} holds a run already: say another folder.")


# --- what the digests are of ----------------------------------------------------------------------


@dataclass(frozen=True)
class HashedStream(TrajectoryStream):
    """A stream that takes the digest of each pass over it."""

    passes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, stream: TrajectoryStream) -> "HashedStream":
        """The same stream."""
        return cls(**{one.name: getattr(stream, one.name) for one in fields(stream)})

    def __iter__(self) -> Iterator[Trajectories]:
        digest = hashlib.sha256()
        for batch in super().__iter__():
            # Not keyed, and so never written: what is written is a keyed digest of it.
            digest.update(keyed_digest(b"", batch).encode())
            yield batch
        self.passes.append(digest.hexdigest())

    def digest(self) -> str:
        """Of all passes, which must have been over the same batches."""
        if len(set(self.passes)) != 1:
            raise InputError("The table was changed while it was read, so nothing was paid.")
        return self.passes[0]


def _digest_inputs(
    data: Data,
    policy: Policy | None,
    behavior: Policy | None,
    question: "EvaluationSpec",
    gather: Any,
    judges: "EstimatorSet",
) -> dict[str, Any]:
    """What decides all exact sums, to the last bit; and the sums, in case something else does.

    What a policy or features of the caller's call elsewhere is in no digest of their code.
    """
    if isinstance(gather, functools.partial):
        # Where parts are added up changes nothing; how they are cut does.
        kept = {name: said for name, said in gather.keywords.items() if name != "workers"}
        gather = (gather.func, gather.args, kept)
    return {
        "agent": (question, gather),
        "policy": (policy, behavior),
        "data": data.digest() if isinstance(data, HashedStream) else data,
        "sums": judges.rounded_sums(),
    }


# --- the release ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class EstimatorSet:
    """The estimators, what they hold of the data, and what they will charge."""

    value: PrivateValue | None
    others: Mapping[str, ValueFunction]
    sums: Mapping[str, Sums]
    events: tuple[Event, ...]
    start: Any

    @property
    def names(self) -> list[str]:
        return [*([] if self.value is None else ["value"]), *self.others]

    @property
    def first(self) -> Sums:
        """Of all people, like each of `sums`."""
        return next(iter(self.sums.values()))

    def results(
        self,
        opened: OpenSession,
        sources: Mapping[str, Source],
        ready: Mapping[str, "Prepared"],
        theta: Callable[[str], Any],
        progress: "Progress",
    ) -> tuple[Result, ...]:
        """One of each estimator, for all of which `opened` has paid.

        `theta` is what those came to that are `ready`, by name. Each result has a certificate of
        its own part of the payment.
        """
        sums, results = self.sums, []
        if self.value is not None:
            part = opened.part(self.value.mechanism.event, sources["value"])
            results.append(self.value.release_paid(sums["value"], part))
        for name, judge in self.others.items():
            progress(f"the values of states ({name})")
            if isinstance(judge, PrivateGTD | GPOPE):
                part = opened.part(ready[name].plan.event, sources[name])
                results.append(ready[name].result(theta(name), part, self.start))
            else:
                part = opened.part(_sum_event(judge), sources[name])
                results.append(judge.release_paid(sums[name], part, self.start))
        return tuple(results)

    def rounded_sums(self) -> dict[str, Any]:
        """The exact sums in parts of what one person may contribute, as fine as matters.

        Not to the last bit, which the number of threads may change: that would refuse a run that
        was paid for.
        """
        found = {}
        for name, one in self.sums.items():
            judge = self.others.get(name)
            bound = judge.bound if isinstance(judge, PrivateLSTD | OutputPerturbation) else 1.0
            # Adding 0 makes 0 of -0.
            found[name] = np.round(one.total / bound * _SUM_RESOLUTION) + 0.0
        return found

    def with_zero_sums(self) -> "EstimatorSet":
        """The same about no data."""
        return replace(
            self,
            sums={
                name: replace(
                    one,
                    total=np.zeros_like(one.total),
                    whole=None if one.whole is None else np.zeros_like(one.whole),
                )
                for name, one in self.sums.items()
            },
        )


Prepared = private_gtd.PreparedRun | gpope.PreparedRun


def _sum_event(judge: PrivateLSTD | OutputPerturbation) -> Event:
    """What an estimator pays that releases one sum."""
    if isinstance(judge, OutputPerturbation):
        return judge.mechanism().event
    return judge.mechanism.event


def check_total(events: Iterable[Event], budget: Budget) -> None:
    """Refuse to pay for more than the budget, which all results together would be certified at.

    Parts of a budget add up to less, but the accountant rounds up, and the smaller a part, the
    more that is of it.
    """
    spent = account(events, budget.delta, Relation.REPLACE_ONE).epsilon
    if spent > budget.epsilon:
        raise InputError(
            f"Together the estimators would cost epsilon {spent:.6g} at delta {budget.delta:g}, "
            f"more than the budget of {budget.epsilon:g}: make their shares less different, or "
            "take fewer of them."
        )


def release_results(
    data: Data,
    policy: Policy | None,
    question: "EvaluationSpec",
    *,
    off_policy: bool,
    behavior: Policy | None,
    assumptions: tuple[Assumption, ...],
    gather: "Gather",
    ledger: Ledger | None,
    keeping: RunRecord,
    progress: "Progress",
    prepared: Callable[[int], ResultsCallback],
) -> tuple[tuple[Result, ...], Certificate]:
    """Results and their certificate; see the module.

    `prepared` is called with the number of units when all was read, and gives back what is to be
    tried with placeholder figures before anybody pays.
    """
    given: Data = data
    if keeping.folder is not None and isinstance(data, TrajectoryStream):
        given = HashedStream.of(data)
    judges = _gather_estimators(given, policy, question, off_policy, gather, progress)
    assert question.budget is not None
    unit, count, delta = judges.first.unit, judges.first.count, question.budget.delta
    check_total(judges.events, question.budget)
    if ledger is not None and (ledger.about.unit, ledger.about.relation) != (
        unit,
        Relation.REPLACE_ONE,
    ):
        raise InputError(
            f"This ledger protects a {ledger.about.unit} under {ledger.about.relation}, and this "
            f"data is about a {unit} under {Relation.REPLACE_ONE}: they do not add up."
        )
    tell = prepared(count)
    with ExitStack() as stack:
        try:
            keeping.keep(_digest_inputs(given, policy, behavior, question, gather, judges))
            names = enumerate(judges.names)
            sources = {name: keeping.source(name, number) for number, name in names}
            ready: dict[str, Prepared] = {}
            for name, judge in judges.others.items():
                if isinstance(judge, PrivateGTD | GPOPE):
                    progress(f"reading: the values of states ({name})")
                if isinstance(judge, PrivateGTD):
                    ready[name] = stack.enter_context(judge.prepare(given, policy, sources[name]))
                elif isinstance(judge, GPOPE):
                    ready[name] = prepared_run = judge.prepare(given, policy)
                    prepared_run.try_iterations()
            if isinstance(given, HashedStream):
                given.digest()  # refuses what a later pass read otherwise
            session = PrivacySession(ledger=ledger, run=keeping.run, seed=keeping.seed)
            opened = session.open(unit, Relation.REPLACE_ONE)
            if keeping.kept is not None:
                opened.attach_key(keeping.kept)
            _rehearse(judges, ready, assumptions, delta, opened.source.origin, tell)
            warn_if_large(delta, count)
        except BaseException:
            keeping.forget()
            raise
        with forget_unless_paid(opened):
            opened.pay(judges.events, delta=delta, new_run=True)

        def theta(name: str) -> Any:
            run = ready[name]
            if isinstance(run, gpope.PreparedRun):
                return run.run_iterations(sources[name])
            return run.run_iterations()

        results = judges.results(opened, sources, ready, theta, progress)
    return results, _certify(opened, delta, results, assumptions)


def _gather_estimators(
    data: Data,
    policy: Policy | None,
    question: "EvaluationSpec",
    off_policy: bool,
    gather: "Gather",
    progress: "Progress",
) -> EstimatorSet:
    value = replace(question.value_estimator, on_policy=not off_policy)
    others = question.value_function_estimators(off_policy)
    sums: dict[str, Sums] = {}
    events: list[Event] = []
    if "value" in question.estimators:
        progress("reading: the values of the policies")
        sums["value"] = gather(value, data, policy)
        events.append(value.mechanism.event)
    for name, judge in others.items():
        if isinstance(judge, OutputPerturbation):
            memory.check_features_memory(judge.features.dimension)
            progress(f"reading: the values of states ({name})")
            sums[name] = gather(judge, data, policy)
            events.append(_sum_event(judge))
            continue
        count = sums["value"].count
        if isinstance(judge, GPOPE):
            if not isinstance(judge.features, OneHot):
                memory.check_units_memory(judge.features.dimension, count, 3)
            continue
        if isinstance(data, Trajectories) and not is_table(judge.features, judge.change, data):
            dual = isinstance(judge, PrivateGTD) and judge.form == "primal-dual"
            memory.check_units_memory(judge.features.dimension, count, 3 if dual else 1)
        if isinstance(judge, PrivateLSTD):
            memory.check_features_memory(judge.features.dimension)
            progress("reading: the values of states (lstd)")
            sums[name] = gather(judge, data, policy)
            events.append(judge.mechanism.event)
        elif isinstance(data, Trajectories):
            assert judge.form is not None
            events.append(judge.plan(judge.form, count).event)
    if "gpope" in others:
        # Draws of one person have no squares to share out: what the others leave is theirs.
        drawn = others.pop("gpope")
        assert isinstance(drawn, GPOPE)
        assert question.budget is not None
        drawn = replace(drawn, budget=question.budget, beside=tuple(events))
        others["gpope"] = drawn
        events.append(drawn.noise(sums["value"].count).event)
    if "gtd" in others and not isinstance(data, Trajectories):
        # A stream, which is the caller's word, is gone through once. How a secret allocation adds
        # up with Gaussian noise has no squares to share out: it gets what the others leave.
        judge = others.pop("gtd")
        assert isinstance(judge, PrivateGTD)
        assert judge.form is not None
        assert question.budget is not None
        form, count = judge.form, sums["value"].count
        # As many steps as there would be iterations over all of the data; of public numbers.
        steps = min(count, judge.plan(form, count).iterations)
        judge = replace(
            judge,
            budget=question.budget,
            beside=tuple(events),
            batch_units=count // steps,
            iterations=steps,
        )
        others["gtd"] = judge
        events.append(judge.plan(form, count).event)
    asked = value if "value" in question.estimators else None
    return EstimatorSet(asked, others, sums, tuple(events), question.start)


def _rehearse(
    judges: EstimatorSet,
    ready: Mapping[str, Prepared],
    assumptions: tuple[Assumption, ...],
    delta: float,
    origin: NoiseOrigin,
    tell: ResultsCallback,
) -> None:
    """Whatever can go wrong after the payment, for want of memory too, goes wrong here."""
    sources = {name: placeholder(origin) for name in judges.names}
    # Has no ledger, so that nobody pays.
    source = placeholder(origin)
    rehearsal = SECRET_SESSION.open(judges.first.unit, Relation.REPLACE_ONE, source=source)
    rehearsal.pay(judges.events)

    def theta(name: str) -> Any:
        return np.ones(ready[name].judge.features.dimension)

    def no_progress(what: str, share: float | None = None) -> None:
        pass

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        results = judges.with_zero_sums().results(rehearsal, sources, ready, theta, no_progress)
        tell(results, _certify(rehearsal, delta, results, assumptions))


def _certify(
    opened: OpenSession,
    delta: float,
    results: tuple[Result, ...],
    assumptions: tuple[Assumption, ...],
) -> Certificate:
    """That of all results together, with what each of theirs says beside its events."""
    own = [result.certificate for result in results]
    every = [one for certificate in own for one in certificate.assumptions]
    return opened.certify(
        delta,
        release=Release.EVERY_ITERATE if len(own) > 1 else own[0].release,
        assumptions=list(dict.fromkeys((*every, *assumptions))),
        compiled=any(certificate.noise is NoiseOrigin.SECURE_KEY for certificate in own),
        floating=False,
    )
