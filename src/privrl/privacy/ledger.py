"""The ledger: what a population of people has paid, on disk before any noise is drawn.

One ledger belongs to one population, not to one run: everybody who analyses the same people opens
the same file. It promises:

- *nothing is lost*: an entry is committed and synchronised to disk before `spend` returns, and
  `release` draws noise only after that; a process that dies in between has paid for nothing, never
  the other way round. The file is used under one name (`ledger_file.py` says why);
- *nothing is overspent*: with a limit, the check and the entry are one transaction across all
  processes, and the check is a privacy filter (`filters.py`), valid for spending decided along the
  way; there are no refunds;
- *nothing is paid for that cannot be certified*: `spend` is told the delta of the certificate, and
  finds its epsilon before it writes. What others enter later does not take that away: under the
  same run's name they are held to the same delta, and the total of the population is stated as far
  as one can be found (`totals.py`);
- *nothing changes behind one's back*: entries are chained by hashes (`ledger_chain.py`).

What is verified when: `open`, `entries`, `check`, `is_consistent_with`, `check_anchor` and
`to_dict` verify the whole chain, from the description to the newest entry. `spend`, `certify`,
`account`, `remaining` and `generation` verify the entries that were added since this process last
looked, and that the newest is the file's newest; what they say of earlier ones comes from what this
process has verified and keeps in memory, so that a file that is edited meanwhile cannot change it.
`check` also recomputes what each entry cost.

Entries on the same people add up. Entries on the slots of one named public partition do not: a
person is in one slot of it, and pays for the worst slot (see `Disjoint` for when that holds).
"""

import math
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from numpy.typing import ArrayLike

from privrl.core import checks, files
from privrl.core.errors import InputError, LedgerError, OverBudget, UnsupportedError
from privrl.core.types import Array
from privrl.privacy import accounting, totals
from privrl.privacy.certificate import Assumption, Certificate, Population
from privrl.privacy.entries import Description, Entry, Row, digest_of, parse_events
from privrl.privacy.events import Event, as_events
from privrl.privacy.filters import Cost, Filter, FilterKind
from privrl.privacy.ledger_chain import LedgerChain
from privrl.privacy.ledger_file import LedgerName, absolute_path, damage_error
from privrl.privacy.noise import Source
from privrl.privacy.promise import Budget, Relation, Release, Unit
from privrl.privacy.totals import Costs, Place

OLD_ENTRIES = Assumption(
    "no entry that tacit 0.1 made in this ledger is of one pass over a sorted stream, which cost "
    "more than was entered",
    "not enforced: an entry does not show whether it is",
)


class LimitUsedUp(UserWarning):
    """A first spend was within the limit, and nothing more can be spent beside it."""


class LargeDelta(UserWarning):
    """delta is not below one over the number of people: someone may be given away outright."""


class Plan(Protocol):
    """A mechanism: what it will do, and doing it."""

    @property
    def event(self) -> Event:
        """What one release does."""
        ...

    def release(self, value: ArrayLike, source: Source) -> tuple[Array, Event]:
        """`value` with noise, and what was done."""
        ...


@dataclass(frozen=True)
class LedgerSummary:
    """What a ledger says; an epsilon is None where none can be stated at the delta asked for."""

    entries: int
    runs: int
    epsilon: float | None
    left: float | None
    newest: dict[str, float | None]  # the epsilon of each of the newest runs

    def lines(self, about: Description, delta: float) -> Iterator[str]:
        """The summary at this delta, and whose ledger it is, for a screen."""
        yield f"{about.population!r}: {about.unit}, {about.relation}"
        limit = "none"
        if about.filter is not None:
            most = about.filter.limit
            limit = f"epsilon {most.epsilon:g} at delta {most.delta:g}, kept by the "
            limit += f"{about.filter.kind} filter; {self.left:.1%} is left"
        yield f"  limit       {limit}"
        yield f"  entries     {self.entries} in {self.runs} {'run' if self.runs == 1 else 'runs'}"
        paid = f"more than any epsilon that can be stated at delta {delta:g}"
        if self.epsilon is not None:
            paid = f"epsilon {self.epsilon:.4g} at delta {delta:g}, had it all been planned"
        yield f"  paid        {paid}"
        for run, spent in self.newest.items():
            shown = "more than can be stated" if spent is None else f"{spent:.4g}"
            yield f"    {run!r:<30} {shown}"
        if len(self.newest) < self.runs:
            yield f"    and {self.runs - len(self.newest)} earlier runs: say --runs {self.runs}"


class _OverLimit(Exception):  # noqa: N818 (it never leaves this module)
    """A spend does not fit, after this cost to the same people."""

    def __init__(self, before: Cost | None) -> None:
        self.before = before


class Ledger(LedgerChain):
    """A population's record of spending. Make one with `create`, use it with `open`."""

    def __init__(
        self, name: LedgerName, connection: sqlite3.Connection, about: Description
    ) -> None:
        super().__init__(name, connection, about)
        self._warned: set[float] = set()
        self._new_runs: set[str] = set()

    @classmethod
    def create(
        cls,
        path: str | Path,
        population: str,
        *,
        unit: Unit,
        relation: Relation = Relation.REPLACE_ONE,
        people: int | None = None,
        limit: Budget | None = None,
        filter: FilterKind | str | None = None,
    ) -> Self:
        """A new, empty ledger; an existing file is never touched."""
        if limit is None and filter is not None:
            raise InputError("A filter keeps a limit: say what the limit is.")
        chosen = None if limit is None else Filter.for_limit(limit, filter)
        about = Description(population, unit, relation, people, chosen)
        if limit is not None:
            warn_if_large(limit.delta, people)
        return cls._write_new(absolute_path(path), about, ())

    # --- spending ---------------------------------------------------------------------------------

    def spend(
        self,
        events: Event | Iterable[Event],
        *,
        run: str,
        partition: str = "",
        slot: int = 0,
        note: str = "",
        reward_radius: float | None = None,
        new_run: bool = False,
        delta: float | None = None,
    ) -> Entry:
        """Record `events` as spent, on disk, or raise and record nothing.

        Call this before drawing the noise. A run that is compiled as a whole pays for all of its
        events at once, before it starts; what it then does not use is not given back.
        `partition` names a public division of the people into numbered slots, of which these events
        concern one. `reward_radius` is needed under the relation reward-radius, and the same for
        all of a ledger: noise for one radius says nothing about another, so they do not add up.

        `new_run` refuses the name of a run that the ledger has already, in the same transaction as
        the entry: of several processes that spend under one new name, one is let. `delta` is the
        one that the run will be certified at: unless `certify` can then state an epsilon for all
        that the run has spent, this included, nothing is recorded; and from then on nothing else is
        recorded under the run's name that would take this away.
        """
        listed = as_events(events)
        if not listed:
            raise InputError("There is nothing to spend: give at least one event.")
        for name, text in (("run", run), ("partition", partition), ("note", note)):
            _check_storable(name, text)
        if not run:
            raise InputError("A spend needs the name of its run.")
        if type(slot) is not int or not 0 <= slot < 2**63:
            raise InputError(f"must be a whole number of at least 0, not {slot!r}.", field="slot")
        if slot and not partition:
            raise InputError("A slot belongs to a partition: name it.")
        if self.about.relation is Relation.REWARD_RADIUS:
            if reward_radius is None:
                raise InputError(
                    "is needed: for which radius are these events?", field="reward_radius"
                )
            note = "; ".join([_radius_note(reward_radius), *([note] if note else [])])
        elif reward_radius is not None:
            raise InputError("belongs to the relation reward-radius only.", field="reward_radius")
        if delta is not None:
            delta = checks.probability("delta", delta)
            self._warn_if_large(delta, 3)
        # The first accountant must know the events too, or nothing could be certified later.
        accounting.check(listed, self.about.relation)
        chosen, place = self.about.filter, (partition, slot)
        cost = chosen.cost(listed, self.about.relation) if chosen else Cost(0.0)
        # Outside of the transaction, since these may take a while.
        alone = chosen is None or (
            cost.is_within(chosen.cap) or chosen.can_afford(listed, self.about.relation)
        )
        loss = "" if chosen is None else self._limit_warning(chosen, cost, listed, alone)
        due = self._load_due(run)
        self._check_certifiable(run, listed, place, delta, due)
        try:
            with self._transaction():
                self._verify_new_entries()
                if (new_run or run in self._new_runs) and run in self._totals.runs:
                    raise _existing_run(run)
                now = self._query_due(run)
                if now != due:  # somebody spent under the same name meanwhile
                    self._check_certifiable(run, listed, place, delta, now)
                if reward_radius is not None:
                    self._refuse_other_radius(reward_radius)
                if chosen is not None:
                    before = self._totals.costs.at(place)
                    if not (alone if before is None else (before + cost).is_within(chosen.cap)):
                        raise _OverLimit(before)
                if loss:  # a warning may be an error, so before anything is written
                    warnings.warn(loss, LimitUsedUp, stacklevel=2)
                body = self._next_body(run, [event.to_dict() for event in listed], note)
                body |= {"partition": partition, "slot": slot, "cost": [cost.first, cost.second]}
                entry = Entry.from_dict({**body, "digest": digest_of(body)})
                row = Row.from_entry(entry)
                self._append(row)
                if delta is not None:
                    self._connection.execute(_CREATE_DUE_TABLE)
                    noted = "INSERT OR IGNORE INTO due VALUES (?, ?)"
                    self._connection.execute(noted, (run, delta))
        except _OverLimit as over:
            assert chosen is not None
            why = self._over_limit_message(chosen, listed, place, over.before)
            raise OverBudget(why) from None
        self._totals.add_row(row)
        self._new_runs.discard(run)
        return entry

    def _load_due(self, run: str) -> tuple[int, frozenset[float]]:
        with self._transaction("BEGIN"):
            self._verify_new_entries()
            return self._query_due(run)

    def _query_due(self, run: str) -> tuple[int, frozenset[float]]:
        """How often the run has spent, and the deltas at which certificates of it are due."""
        there = "SELECT 1 FROM sqlite_master WHERE name = 'due'"
        deltas: list[tuple[float]] = []
        if self._connection.execute(there).fetchone():
            select = "SELECT delta FROM due WHERE run = ?"
            deltas = self._connection.execute(select, (run,)).fetchall()
        known = self._totals.runs.get(run)
        try:
            due = frozenset(checks.probability("delta", delta) for (delta,) in deltas)
        except InputError as error:
            raise damage_error(self.path, "its certificates that are due") from error
        return 0 if known is None else known.spends, due

    def _check_certifiable(
        self,
        run: str,
        events: tuple[Event, ...],
        place: Place,
        delta: float | None,
        due: tuple[int, frozenset[float]],
    ) -> None:
        """Raise unless the run can be certified with `events`, at `delta` and what else is due."""
        deltas = due[1] | ({delta} if delta is not None else set())
        if not deltas:
            return
        text = files.canonical_json([event.to_dict() for event in events])
        try:
            for one in sorted(deltas):
                totals.exact_account(
                    self._totals.run_spending(run, text, place), one, self.about.relation
                )
        except MemoryError:
            raise UnsupportedError(
                "There is not enough memory to account for these events, and nothing was spent."
            ) from None

    def _limit_warning(
        self, chosen: Filter, cost: Cost, events: tuple[Event, ...], alone: bool
    ) -> str:
        """What there is to warn of if this spend uses up the limit."""
        if not alone or cost.is_within(chosen.cap):
            return ""
        spent = accounting.epsilon(events, chosen.limit.delta, self.about.relation)
        if spent >= 0.95 * chosen.limit.epsilon:
            return ""
        return (
            f"This first spend costs epsilon {spent:.4g} and uses up the limit of "
            f"{chosen.limit.epsilon:g}: the {chosen.kind} filter could not add it to another."
        )

    def release(
        self, plan: Plan, value: ArrayLike, source: Source, *, run: str, **where: Any
    ) -> Array:
        """Pay for one release of `plan`, then draw its noise."""
        event = plan.event
        self.spend(event, run=run, **where)
        released, done = plan.release(value, source)
        if done != event:
            raise LedgerError(f"The mechanism did {done} after {event} was paid for.")
        return released

    def _refuse_other_radius(self, radius: float) -> None:
        # One entry speaks for all, since each was compared with the first.
        first = self._totals.first_note
        if first is not None and first.partition(";")[0] != _radius_note(radius):
            raise InputError(
                f"This ledger is about another radius ({first}), and this run about "
                f"{radius:g}: they do not add up, so use a ledger for each."
            )

    def _over_limit_message(
        self, chosen: Filter, events: tuple[Event, ...], place: Place, before: Cost | None
    ) -> str:
        """Why `events` are too much after what was spent `before` on the same people."""
        limit = chosen.limit
        stated = (
            f"the limit of {self.about.population!r}, epsilon {limit.epsilon:g} at delta "
            f"{limit.delta:g}"
        )
        if before is None:
            figure = _format_epsilon(events, limit.delta, self.about.relation)
            return f"This costs {figure}, above {stated}, and nothing was spent."
        sentence = (
            f"This would exceed {stated}: by the {chosen.kind} filter about "
            f"{chosen.remaining(before):.1%} of it is left, and nothing was spent."
        )
        kinds = [kind for kind in FilterKind if kind is not chosen.kind]
        others = [kind.value for kind in kinds if self._would_fit(kind, events, place)]
        if others:
            sentence += (
                f" The filter {' or '.join(others)} would hold all of it; a filter is chosen "
                f"before the first spend (privrl ledger create --filter {others[0]})."
            )
        return sentence

    def _would_fit(self, kind: FilterKind, events: tuple[Event, ...], place: Place) -> bool:
        """Whether a filter of this kind, from the beginning, would hold `events` as well."""
        assert self.about.filter is not None
        if sum(map(len, self._totals.spent.values())) > _MOST_REFILTERED:
            return False
        costs = Costs()
        try:
            other = Filter.for_limit(self.about.filter.limit, kind)
            for where, texts in self._totals.spent.items():
                for text, times in texts.items():
                    cost = other.cost(parse_events(text), self.about.relation)
                    costs.add(where, cost.first * times, cost.second * times)
            before = costs.at(place) or Cost(0.0)
            return (before + other.cost(events, self.about.relation)).is_within(other.cap)
        except (InputError, UnsupportedError):
            return False

    def refuse_existing_run(self, run: str) -> None:
        """Refuse a name before anything is computed; that it is free counts only when it pays."""
        if self.has_run(run):
            raise _existing_run(run)

    def expect_new_run(self, run: str) -> None:
        """From here on, refuse the first spend under this name if others have spent under it.

        For whoever hands the ledger to something that pays, as `new_run` is for who spends.
        """
        self._new_runs.add(run)

    # --- reading ----------------------------------------------------------------------------------

    def check(self) -> int:
        """Check every entry and that it cost no less than its events do; returns how many."""
        seen: set[tuple[str, Cost]] = set()
        rows = self._verified_rows()
        for row, entry in zip(rows, self._entries(rows), strict=True):
            chosen = self.about.filter
            if (row.events, entry.cost) in seen:
                continue
            seen.add((row.events, entry.cost))
            if chosen is None:
                accounting.check(entry.events, self.about.relation)
            elif not chosen.is_sufficient(entry.cost, entry.events, self.about.relation):
                raise damage_error(self.path, f"the cost of entry {entry.number}")
        return len(rows)

    def is_consistent_with(self, certificate: Certificate) -> bool:
        """Whether this ledger went through the state that `certificate` was issued at.

        If not, this is another ledger, or one that was restored from a backup or otherwise rolled
        back, and more may have been spent than it says.
        """
        paid = certificate.population
        if paid is None:
            raise InputError("This certificate was issued without a ledger.")
        return self._heads().get(paid.entries) == paid.head

    def has_paid(self, run: str, events: Iterable[Event], note: str) -> bool:
        """Whether an entry of this run is for just these events, and its note ends with `note`."""
        listed = tuple(events)
        with self._transaction("BEGIN"):
            self._verify_new_entries()
            select = "SELECT events, note FROM entries WHERE run = ?"
            found = self._connection.execute(select, (run,)).fetchall()
            return any(told.endswith(note) and parse_events(text) == listed for text, told in found)

    def account(self, delta: float, run: str | None = None) -> accounting.Account:
        """What the population has paid in all, or for one run, as if it had been planned.

        This is the epsilon of the recorded events fixed in advance. If they were chosen along the
        way, what is guaranteed is the ledger's limit, which the filter keeps. Where the worst off
        cannot be told exactly this is an upper bound, and infinite where no finite epsilon is
        proven at this delta (`totals.account_bound`).
        """
        known = self._refresh_totals()
        if run is not None and run not in known.runs:
            raise InputError(f"There is no run {run!r} in this ledger.")
        spent = known.spent if run is None else known.run_spending(run)
        return totals.account_bound(spent, delta, self.about.relation)

    def summary(self, delta: float, newest: int) -> "LedgerSummary":
        """What the ledger says at this moment, with the epsilons of its `newest` runs.

        Runs with equal events are accounted for once.
        """
        known, chosen = self._refresh_totals(), self.about.filter
        found: dict[frozenset[object], float | None] = {}
        paid: dict[str, float | None] = {}
        for run in list(known.runs)[max(0, len(known.runs) - newest) :]:
            spent = known.run_spending(run)
            same = frozenset((at, frozenset(texts.items())) for at, texts in spent.items())
            if same not in found:
                found[same] = self._epsilon_bound(spent, delta)
            paid[run] = found[same]
        return LedgerSummary(
            entries=known.number,
            runs=len(known.runs),
            epsilon=self._epsilon_bound(known.spent, delta),
            left=None if chosen is None else chosen.remaining(known.costs.worst()),
            newest=paid,
        )

    def _epsilon_bound(self, spent: totals.Spent, delta: float) -> float | None:
        found = totals.account_bound(spent, delta, self.about.relation).epsilon
        return found if math.isfinite(found) else None

    def remaining(self) -> float | None:
        """The share of the limit that is left, in the scarcer of the filter's sums, if any."""
        chosen = self.about.filter
        if chosen is None:
            return None
        return chosen.remaining(self._refresh_totals().costs.worst())

    def certify(
        self,
        run: str,
        delta: float,
        *,
        source: Source,
        release: Release = Release.FINAL_MODEL,
        assumptions: Iterable[Assumption] = (),
        compiled: bool = False,
        reward_radius: float | None = None,
    ) -> Certificate:
        """A certificate of what `run` cost, which also says what the population has paid in all.

        It can be issued if the run's last spend was told this delta, whatever else is in the
        ledger: the run's epsilon was found then, and the total may be a bound, or none.
        """
        self._warn_if_large(delta, 3)
        known = self._refresh_totals()
        if run not in known.runs:
            raise InputError(f"There is no run {run!r} in this ledger.")
        if reward_radius is not None:
            self._refuse_other_radius(reward_radius)
        return Certificate.issue(
            totals.exact_account(known.run_spending(run), delta, self.about.relation)[1],
            delta,
            unit=self.about.unit,
            relation=self.about.relation,
            release=release,
            # Entries have nonces since version 0.2.
            assumptions=(*assumptions, *((OLD_ENTRIES,) if known.has_doubtful_entries() else ())),
            noise=source.key_origin if compiled else source.origin,
            reward_radius=reward_radius,
            population=Population(
                self.about.population,
                self._epsilon_bound(known.spent, delta),
                delta,
                known.number,
                known.head,
            ),
        )

    def _warn_if_large(self, delta: float, level: int) -> None:
        """Warn once of each delta: by `spend`, so that nothing is paid if warnings are errors."""
        if delta not in self._warned:
            self._warned.add(delta)
            try:
                warn_if_large(delta, self.about.people, level + 1)
            except LargeDelta:
                self._warned.remove(delta)
                raise


# The certificates that are due: not part of the chain, since they cost nobody anything.
_CREATE_DUE_TABLE = (
    "CREATE TABLE IF NOT EXISTS due"
    " (run TEXT NOT NULL, delta REAL NOT NULL, PRIMARY KEY (run, delta)) WITHOUT ROWID"
)
_MOST_REFILTERED = 1000  # different entries for which another filter is tried, to name it


def _existing_run(run: str) -> InputError:
    # A certificate is that of all entries of a run, and would cover the older ones too.
    return InputError(f"The ledger has a run {run!r} already: give this one another name.")


def _radius_note(radius: float) -> str:
    """How the note of an entry begins that is about reward functions."""
    return f"reward radius {checks.positive('reward_radius', radius)!r}"


def _format_epsilon(events: tuple[Event, ...], delta: float, relation: Relation) -> str:
    try:
        return f"epsilon {accounting.epsilon(events, delta, relation):.10g}"
    except InputError:
        return f"more than any epsilon at delta {delta:g}"


def _check_storable(name: str, text: object) -> None:
    """Raise unless `text` comes back from the file as it was."""
    try:
        fits = type(text) is str and "\0" not in text and bool(text.encode("utf-8") or True)
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InputError(f"must be text that can be stored, not {text!r}.", field=name)


def warn_if_large(delta: float, people: int | None, level: int = 3) -> None:
    """Warn when delta is not below 1/n: publishing one person at random would be within it."""
    if people is not None and delta * people >= 1.0:
        warnings.warn(
            f"delta {delta:g} is not below 1/{people}: giving away one person of {people} outright "
            "would be within it.",
            LargeDelta,
            stacklevel=level,
        )
