"""The ledger: what a population of people has paid, on disk before any noise is drawn.

One ledger belongs to one population, not to one run: everybody who analyses the same people opens
the same file. It promises:

- *nothing is lost*: an entry is committed and synchronised to disk before `spend` returns, and
  `release` draws noise only after that; a process that dies in between has paid for nothing, never
  the other way round;
- *nothing is overspent*: with a limit, the check and the entry are one transaction across all
  processes, and the check is a privacy filter (`filters.py`), valid for spending decided along the
  way; there are no refunds;
- *nothing changes behind one's back*: entries are chained by hashes that start from the ledger's
  own description, and each has a random nonce, so that no two states of any two ledgers have the
  same head. This shows accidents, not malice: whoever may write the file can rewrite it. That a
  file was replaced by an older copy of itself cannot be seen in the file: it shows where a head was
  kept elsewhere, in a certificate (`holds`) or in a file of heads (`anchored`).

Entries on the same people add up. Entries on the slots of one named public partition do not: a
person is in one slot of it, and pays for the worst slot (see `Disjoint` for when that holds).
"""

import hashlib
import json
import math
import os
import secrets
import sqlite3
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, Protocol, Self

from numpy.typing import ArrayLike

from tacit.privacy import accounting, checks, earlier, files
from tacit.privacy.certificate import Assumption, Certificate, Population
from tacit.privacy.errors import (
    InputError,
    LedgerError,
    OverBudget,
    TacitError,
    UnsupportedError,
)
from tacit.privacy.events import Event, as_events
from tacit.privacy.filters import Cost, Filter, FilterKind
from tacit.privacy.grid import Array
from tacit.privacy.noise import Source
from tacit.privacy.promise import Budget, Relation, Release, Unit, fitting

# Format 1 had no nonces. Such a ledger is read and goes on, with nonces from then on; its number
# stays, since the chain begins with it.
_FORMAT = 2
_KIND = "tacit ledger"
_APPLICATION_ID = 0x7AC17  # in the file's header, so that other databases are not mistaken for one
_MOST_CHOICES = 1000  # ways of being in slots that are told apart when costs are stated
_GENERATION, _ENDED = "generation", "ended"  # how the notes begin of entries without events
_PATIENCE = 30.0  # seconds to wait for another process to finish its entry


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
class Entry:
    """One spend."""

    number: int
    time: str
    run: str
    partition: str
    slot: int
    events: tuple[Event, ...]
    note: str
    cost: Cost
    previous: str
    digest: str
    nonce: str | None = None

    def body(self) -> dict[str, Any]:
        """What the digest is computed from."""
        return {
            "number": self.number,
            "time": self.time,
            "run": self.run,
            "partition": self.partition,
            "slot": self.slot,
            "events": [event.to_dict() for event in self.events],
            "note": self.note,
            "cost": [self.cost.first, self.cost.second],
            "previous": self.previous,
            **({} if self.nonce is None else {"nonce": self.nonce}),
        }


@dataclass(frozen=True)
class Description:
    """What a ledger is about; fixed when it is made."""

    population: str
    unit: Unit
    relation: Relation
    people: int | None
    filter: Filter | None
    format: int = _FORMAT

    def __post_init__(self) -> None:
        if not isinstance(self.population, str) or not self.population.strip():
            raise InputError("A ledger needs the name of its population.")
        object.__setattr__(self, "unit", Unit.parse(self.unit))
        object.__setattr__(self, "relation", Relation.parse(self.relation))
        fitting(self.unit, self.relation)
        if self.people is not None:
            object.__setattr__(self, "people", checks.count("people", self.people))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        limit = None
        if self.filter is not None:
            limit = {
                "epsilon": self.filter.limit.epsilon,
                "delta": self.filter.limit.delta,
                "filter": self.filter.kind.value,
                "order": self.filter.order,
            }
        return {
            "kind": _KIND,
            "format": self.format,
            "population": self.population,
            "unit": self.unit.value,
            "relation": self.relation.value,
            "people": self.people,
            "limit": limit,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The description whose JSON form is `data`."""
        if not isinstance(data, dict) or data.get("kind") != _KIND:
            raise LedgerError("This is not a tacit ledger.")
        made_by = data.get("format")
        if type(made_by) is not int or not 1 <= made_by <= _FORMAT:
            raise LedgerError(
                f"This ledger has format {made_by!r}; this version of tacit reads up to {_FORMAT}."
            )
        try:
            limit = data["limit"]
            chosen = None
            if limit is not None:
                budget = Budget(limit["epsilon"], limit["delta"])
                chosen = Filter(budget, FilterKind.parse(limit["filter"]), limit["order"])
            return cls(
                data["population"], data["unit"], data["relation"], data["people"], chosen, made_by
            )
        except (KeyError, TypeError, InputError) as error:
            raise LedgerError(f"The description of this ledger cannot be read: {error}") from error


def _digest(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


class Ledger:
    """A population's record of spending. Make one with `create`, use it with `open`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, about: Description) -> None:
        self.path = path
        self.about = about
        self._connection = connection
        self._forget()

    def _forget(self) -> None:
        """Nothing is verified yet: the chain begins at the description."""
        self._verified = 0
        self._head = _digest(self.about.to_dict())
        # What each slot of each partition has cost, summed over verified entries only.
        self._spent: dict[tuple[str, int], Cost] = {}

    # --- making and opening -----------------------------------------------------------------------

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
        chosen = None if limit is None else Filter.suited_to(limit, filter)
        about = Description(population, unit, relation, people, chosen)
        if limit is not None:
            warn_if_large(limit.delta, people)
        return cls._made(_absolute(path), about, ())

    @classmethod
    def _made(cls, path: Path, about: Description, entries: Iterable[Entry]) -> Self:
        """Write a whole ledger, or nothing."""
        try:
            building = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
            if path.exists():
                raise LedgerError(f"{str(path)!r} is there already.")
            building.touch(exist_ok=False)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "its name is not one for a file"
            raise LedgerError(f"{str(path)!r} cannot be made: {reason}.") from None
        try:
            connection = _connected(building)
            ledger = cls(building, connection, about)
            with ledger._transaction():
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute("CREATE TABLE about (description TEXT NOT NULL)")
                connection.execute(
                    "CREATE TABLE entries (number INTEGER PRIMARY KEY, time TEXT NOT NULL,"
                    " run TEXT NOT NULL, partition TEXT NOT NULL, slot INTEGER NOT NULL,"
                    " events TEXT NOT NULL, note TEXT NOT NULL, first REAL NOT NULL,"
                    " second REAL NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL,"
                    " nonce TEXT)"
                )
                # The newest entry, so that losing the last rows does not go unnoticed.
                connection.execute("CREATE TABLE head (number INTEGER, digest TEXT NOT NULL)")
                connection.execute("INSERT INTO head VALUES (0, ?)", (ledger._head,))
                text = json.dumps(about.to_dict())
                connection.execute("INSERT INTO about VALUES (?)", (text,))
                for entry in entries:
                    ledger._append(entry)
            ledger.close()
            # Under its name only when it is whole, and only if nobody else made one meanwhile.
            os.link(building, path)
        except FileExistsError:
            raise LedgerError(f"{str(path)!r} is there already.") from None
        except OSError as error:
            raise LedgerError(f"{str(path)!r} cannot be made: {error.strerror}.") from None
        finally:
            building.unlink(missing_ok=True)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """An existing ledger, its whole chain checked."""
        path = _absolute(path)
        try:
            exists = path.exists()
        except (OSError, ValueError):
            exists = False
        if not exists:
            raise LedgerError(f"There is no ledger {str(path)!r}.")
        connection = _connected(path)
        with _sentences(path):
            (identity,) = connection.execute("PRAGMA application_id").fetchone()
            if identity != _APPLICATION_ID:
                raise LedgerError(f"{str(path)!r} is not a tacit ledger.")
            rows = connection.execute("SELECT description FROM about").fetchall()
            if len(rows) != 1:
                raise LedgerError(f"The ledger {str(path)!r} was changed: it has no description.")
            try:
                about = Description.from_dict(files.parse_json(rows[0][0]))
            except (ValueError, TypeError) as error:
                raise _changed(path, "its description") from error
            ledger = cls(path, connection, about)
        with ledger._transaction("BEGIN"):
            ledger._catch_up()
        return ledger

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
    ) -> Entry:
        """Record `events` as spent, on disk, or raise and record nothing.

        Call this before drawing the noise. A run that is compiled as a whole pays for all of its
        events at once, before it starts; what it then does not use is not given back.
        `partition` names a public division of the people into numbered slots, of which these events
        concern one. `reward_radius` is needed under the relation reward-radius, and the same for
        all of a ledger: noise for one radius says nothing about another, so they do not add up.
        """
        listed = as_events(events)
        if not listed:
            raise InputError("There is nothing to spend: give at least one event.")
        for name, text in (("run", run), ("partition", partition), ("note", note)):
            _storable(name, text)
        if not run:
            raise InputError("A spend needs the name of its run.")
        if type(slot) is not int or not 0 <= slot < 2**63:
            raise InputError(f"slot must be a whole number of at least 0, not {slot!r}.")
        if slot and not partition:
            raise InputError("A slot belongs to a partition: name it.")
        if self.about.relation is Relation.REWARD_RADIUS:
            if reward_radius is None:
                raise InputError("reward_radius is needed: for which radius are these events?")
            note = "; ".join([_radius_note(reward_radius), *([note] if note else [])])
        elif reward_radius is not None:
            raise InputError("reward_radius belongs to the relation reward-radius only.")
        # The first accountant must know the events too, or nothing could be certified later.
        accounting.check(listed, self.about.relation)
        chosen = self.about.filter
        cost = chosen.cost(listed, self.about.relation) if chosen else Cost(0.0)
        # Outside of the transaction, since it may take a while.
        alone = chosen is None or (
            cost.within(chosen.cap) or chosen.holds(listed, self.about.relation)
        )
        with self._transaction():
            self._catch_up()
            if reward_radius is not None:
                self._refuse_other_radius(reward_radius)
            if chosen is not None:
                self._refuse_if_over(chosen, cost, listed, alone, (partition, slot))
            body = {
                "number": self._verified + 1,
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "run": run,
                "partition": partition,
                "slot": slot,
                "events": [event.to_dict() for event in listed],
                "note": note,
                "cost": [cost.first, cost.second],
                "previous": self._head,
                "nonce": secrets.token_hex(16),
            }
            entry = _entry({**body, "digest": _digest(body)})
            self._append(entry)
        if chosen is not None and not cost.within(chosen.cap):
            self._warn_if_much_is_lost(chosen, listed)
        return entry

    def _warn_if_much_is_lost(self, chosen: Filter, events: tuple[Event, ...]) -> None:
        spent = accounting.epsilon(events, chosen.limit.delta, self.about.relation)
        if spent < 0.95 * chosen.limit.epsilon:
            warnings.warn(
                f"This first spend costs epsilon {spent:.4g} and uses up the limit of "
                f"{chosen.limit.epsilon:g}: the {chosen.kind} filter could not add it to another.",
                LimitUsedUp,
                stacklevel=3,
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
        first = next((entry for entry in self._read() if entry.events), None)
        if first is not None and first.note.partition(";")[0] != _radius_note(radius):
            raise InputError(
                f"This ledger is about another radius ({first.note}), and this run about "
                f"{radius:g}: they do not add up, so use a ledger for each."
            )

    def _refuse_if_over(
        self,
        chosen: Filter,
        cost: Cost,
        events: tuple[Event, ...],
        alone: bool,
        place: tuple[str, int],
    ) -> None:
        """Raise if `events` are too much; `alone` says that they are not if nothing came before."""
        before = _paid_in(self._spent, place)
        if (before is None and alone) or (
            before is not None and (before + cost).within(chosen.cap)
        ):
            return
        limit = chosen.limit
        stated = (
            f"the limit of {self.about.population!r}, epsilon {limit.epsilon:g} at delta "
            f"{limit.delta:g}"
        )
        if before is None:
            figure = _figure(events, limit.delta, self.about.relation)
            raise OverBudget(f"This costs {figure}, above {stated}, and nothing was spent.")
        sentence = (
            f"This would exceed {stated}: by the {chosen.kind} filter about "
            f"{chosen.left(before):.1%} of it is left, and nothing was spent."
        )
        kinds = [kind for kind in FilterKind if kind is not chosen.kind]
        others = [kind.value for kind in kinds if self._fits(kind, events, place)]
        if others:
            sentence += (
                f" The filter {' or '.join(others)} would hold all of it; a filter is chosen "
                f"before the first spend (tacit ledger create --filter {others[0]})."
            )
        raise OverBudget(sentence)

    def _fits(self, kind: FilterKind, events: tuple[Event, ...], place: tuple[str, int]) -> bool:
        """Whether a filter of this kind, from the beginning, would hold `events` as well."""
        assert self.about.filter is not None
        spent: dict[tuple[str, int], Cost] = {}
        try:
            other = Filter.suited_to(self.about.filter.limit, kind)
            for entry in self._read():
                where = entry.partition, entry.slot
                cost = other.cost(entry.events, self.about.relation)
                spent[where] = spent.get(where, Cost(0.0)) + cost
            before = _paid_in(spent, place) or Cost(0.0)
            return (before + other.cost(events, self.about.relation)).within(other.cap)
        except (InputError, UnsupportedError):
            return False

    def _append(self, entry: Entry) -> None:
        if "nonce" not in self._columns():
            self._connection.execute("ALTER TABLE entries ADD COLUMN nonce TEXT")
        self._connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                entry.number,
                entry.time,
                entry.run,
                entry.partition,
                entry.slot,
                json.dumps([event.to_dict() for event in entry.events]),
                entry.note,
                entry.cost.first,
                entry.cost.second,
                entry.previous,
                entry.digest,
                entry.nonce,
            ),
        )
        self._connection.execute(
            "UPDATE head SET number = ?, digest = ?", (entry.number, entry.digest)
        )
        self._count(entry)

    def _count(self, entry: Entry) -> None:
        """`entry` is verified and the newest."""
        self._verified, self._head = entry.number, entry.digest
        if entry.events:  # the others are about generations, and nothing was spent
            place = entry.partition, entry.slot
            self._spent[place] = self._spent.get(place, Cost(0.0)) + entry.cost

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        """All or nothing, alone among all processes, and on disk when it is over.

        With a plain BEGIN, for reading: all that is read belongs to one moment.
        """
        before = self._verified, self._head, dict(self._spent)
        with _sentences(self.path):
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._verified, self._head, self._spent = before
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    # --- runs that are gone on with ---------------------------------------------------------------

    def generation(self, token: str) -> tuple[int, bool]:
        """How often the run with this token was gone on with, and whether it has ended.

        A run on live environments may be continued by one of its copies only (`resuming`): each
        continuation claims the next generation here, and the end is marked. These entries cost
        nothing, have no events, and are chained like all others.
        """
        with self._transaction("BEGIN"):
            self._catch_up()
            return self._generation(token)

    def claim(self, run: str, token: str, generation: int) -> None:
        """Record that the run is gone on with as this generation; only one who asks is let."""
        with self._transaction():
            self._catch_up()
            last, ended = self._generation(token)
            if ended:
                raise InputError(
                    f"The run {run!r} has ended, by this ledger: a copy of it cannot go on, since "
                    "it would be released twice."
                )
            if generation != last + 1:
                raise InputError(
                    f"The run {run!r} was gone on with elsewhere, by this ledger: only one copy of "
                    "it can, since it would be released twice."
                )
            self._mark(run, f"{_GENERATION} {token} {generation}")

    def end(self, run: str, token: str, generation: int) -> None:
        """Record that this generation ended the run, if none was claimed after it."""
        with self._transaction():
            self._catch_up()
            last, ended = self._generation(token)
            if generation != last:
                raise InputError(
                    f"The run {run!r} was gone on with elsewhere, by this ledger: what this copy "
                    "found is not released."
                )
            if not ended:
                self._mark(run, f"{_ENDED} {token} {generation}")

    def _generation(self, token: str) -> tuple[int, bool]:
        last, ended = 0, False
        for entry in self._read():
            if not entry.events:
                kind, _, rest = entry.note.partition(" ")
                of, _, number = rest.partition(" ")
                if of == token:
                    last, ended = int(number), kind == _ENDED
        return last, ended

    def _mark(self, run: str, note: str) -> None:
        """An entry that costs nothing."""
        body = {
            "number": self._verified + 1,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "run": run,
            "partition": "",
            "slot": 0,
            "events": [],
            "note": note,
            "cost": [0.0, 0.0],
            "previous": self._head,
            "nonce": secrets.token_hex(16),
        }
        self._append(_entry({**body, "digest": _digest(body)}))

    # --- reading ----------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Check the entries that were added since we last looked, and that none was lost."""
        for entry in self._read(self._verified):
            if entry.number != self._verified + 1:
                raise _changed(self.path, f"entry {self._verified + 1}")
            chained = entry.previous == self._head and entry.digest == _digest(entry.body())
            if not chained or (entry.nonce is None and self.about.format > 1):
                raise _changed(self.path, f"entry {entry.number}")
            self._count(entry)
        heads = self._connection.execute("SELECT number, digest FROM head").fetchall()
        if heads != [(self._verified, self._head)]:
            raise _changed(self.path, "its newest entry")

    def _columns(self) -> set[str]:
        """Those of the entries: another process may have added one."""
        return {row[1] for row in self._connection.execute("PRAGMA table_info(entries)")}

    def _read(self, after: int = 0) -> Iterator[Entry]:
        nonce = "nonce" if "nonce" in self._columns() else "NULL"
        rows = self._connection.execute(
            "SELECT number, time, run, partition, slot, events, note, first, second, previous,"
            f" digest, {nonce} FROM entries WHERE number > ? ORDER BY number",
            (after,),
        )
        for (
            number,
            time,
            run,
            partition,
            slot,
            events,
            note,
            first,
            second,
            previous,
            digest,
            nonce,
        ) in rows:
            try:
                yield _entry(
                    {
                        "number": number,
                        "time": time,
                        "run": run,
                        "partition": partition,
                        "slot": slot,
                        "events": files.parse_json(events),
                        "note": note,
                        "cost": [first, second],
                        "previous": previous,
                        "digest": digest,
                        "nonce": nonce,
                    }
                )
            except (ValueError, TypeError, RecursionError) as error:
                raise _changed(self.path, f"entry {number}") from error

    def entries(self) -> list[Entry]:
        """All entries, the oldest first, the whole chain checked again."""
        with self._transaction("BEGIN"):
            self._forget()
            self._catch_up()
            return list(self._read())

    def check(self) -> int:
        """Check every entry and that it cost no less than its events do; returns how many."""
        for entry in self.entries():
            chosen = self.about.filter
            if chosen is None:
                accounting.check(entry.events, self.about.relation)
                continue
            if not chosen.covers(entry.cost, entry.events, self.about.relation):
                raise _changed(self.path, f"the cost of entry {entry.number}")
        return self._verified

    def holds(self, certificate: Certificate) -> bool:
        """Whether this ledger went through the state that `certificate` was issued at.

        If not, this is another ledger, or one that was restored from a backup or otherwise rolled
        back, and more may have been spent than it says.
        """
        paid = certificate.population
        if paid is None:
            raise InputError("This certificate was issued without a ledger.")
        return self._heads().get(paid.entries) == paid.head

    def anchored(self, path: str | Path) -> bool:
        """Whether this ledger went through all states noted in the file `path`; notes this one.

        The file has a line for each time that this was asked, with the number of entries and the
        head. Keep it where whoever may restore the ledger does not restore it too.
        """
        heads, target = self._heads(), Path(path)
        try:
            lines = files.content(target).decode("ascii").splitlines() if target.exists() else []
            noted = [(int(number), head) for number, head in (line.split() for line in lines)]
            if any(heads.get(number) != head for number, head in noted):
                return False
            newest = max(heads)
            if (newest, heads[newest]) not in noted:
                with target.open("a", encoding="ascii") as file:
                    file.write(f"{newest} {heads[newest]}\n")
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{str(path)!r} cannot be used: {error.strerror}.") from None
        except ValueError:
            raise InputError(f"{str(path)!r} is not a file of heads of ledgers.") from None
        return True

    def _heads(self) -> dict[int, str]:
        """The head after each number of entries."""
        entries = {entry.number: entry.digest for entry in self.entries()}
        return {0: _digest(self.about.to_dict()), **entries}

    def paid(self, delta: float, run: str | None = None) -> accounting.Account:
        """What the population has paid in all, or for one run, as if it had been planned.

        This is the epsilon of the recorded events fixed in advance. If they were chosen along the
        way, what is guaranteed is the ledger's limit, which the filter keeps.
        """
        found = [entry for entry in self.entries() if run is None or entry.run == run]
        if run is not None and not found:
            raise InputError(f"There is no run {run!r} in this ledger.")
        return self._worst_account(found, delta)[0]

    def _worst_account(
        self, entries: list[Entry], delta: float
    ) -> tuple[accounting.Account, list[Event]]:
        """The cost to whoever is in the worst slots, and the events that concern them."""
        choices = [
            (accounting.account(events, delta, self.about.relation), events)
            for events in _events_of_slots(entries)
        ]
        return max(choices, key=lambda choice: choice[0].epsilon)

    def left(self) -> float | None:
        """The share of the limit that is left, in the scarcer of the filter's sums, if any."""
        chosen = self.about.filter
        if chosen is None:
            return None
        self.entries()
        return chosen.left(_worst(self._spent))

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
        """A certificate of what `run` cost, which also says what the population has paid in all."""
        warn_if_large(delta, self.about.people)
        entries = self.entries()
        mine = [entry for entry in entries if entry.run == run]
        if not mine:
            raise InputError(f"There is no run {run!r} in this ledger.")
        if reward_radius is not None:
            self._refuse_other_radius(reward_radius)
        total, _ = self._worst_account(entries, delta)
        # Entries have nonces since version 0.2.
        old = any(e.nonce is None and earlier.like_one_pass(e.events) for e in entries)
        return Certificate.issue(
            self._worst_account(mine, delta)[1],
            delta,
            unit=self.about.unit,
            relation=self.about.relation,
            release=release,
            assumptions=(*assumptions, *((OLD_ENTRIES,) if old else ())),
            noise=source.key_origin if compiled else source.origin,
            reward_radius=reward_radius,
            population=Population(
                self.about.population, total.epsilon, delta, len(entries), entries[-1].digest
            ),
        )

    # --- JSON -------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The whole ledger as JSON."""
        return {
            **self.about.to_dict(),
            "entries": [{**entry.body(), "digest": entry.digest} for entry in self.entries()],
        }

    @classmethod
    def from_dict(cls, data: Any, path: str | Path) -> Self:
        """Write the ledger whose JSON form is `data` to a new file, if its chain holds."""
        about = Description.from_dict(data)
        listed = data.get("entries")
        if not isinstance(listed, list):
            raise LedgerError("This ledger has no list of entries.")
        head, entries = _digest(about.to_dict()), []
        for number, item in enumerate(listed, 1):
            try:
                entry = _entry(item)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise LedgerError(f"Entry {number} of this ledger cannot be read.") from error
            chained = entry.previous == head and entry.digest == _digest(entry.body())
            chained = chained and (entry.nonce is not None or about.format == 1)
            if entry.number != number or not chained:
                raise LedgerError(
                    f"This ledger was changed: entry {number} does not fit its chain."
                )
            entries.append(entry)
            head = entry.digest
        return cls._made(_absolute(path), about, entries)


def _radius_note(radius: float) -> str:
    """How the note of an entry begins that is about reward functions."""
    return f"reward radius {checks.positive('reward_radius', radius)!r}"


def _entry(data: dict[str, Any]) -> Entry:
    first, second = data["cost"]
    texts = [data[name] for name in ("time", "run", "partition", "note", "previous", "digest")]
    nonce = data.get("nonce")
    if nonce is not None:
        texts.append(nonce)
    whole = [data[name] for name in ("number", "slot")]
    if not all(type(x) is str for x in texts) or not all(type(x) is int for x in whole):
        raise TypeError("an entry's texts and numbers must be such")
    return Entry(
        number=data["number"],
        time=data["time"],
        run=data["run"],
        partition=data["partition"],
        slot=data["slot"],
        events=tuple(Event.from_dict(event) for event in data["events"]),
        note=data["note"],
        cost=Cost(first, second),
        previous=data["previous"],
        digest=data["digest"],
        nonce=nonce,
    )


def _figure(events: tuple[Event, ...], delta: float, relation: Relation) -> str:
    try:
        return f"epsilon {accounting.epsilon(events, delta, relation):.10g}"
    except InputError:
        return f"more than any epsilon at delta {delta:g}"


def _paid_in(spent: dict[tuple[str, int], Cost], place: tuple[str, int]) -> Cost | None:
    """What whoever is in this slot of a partition paid at most; None if nothing concerned them.

    They are in some slot of each other partition, and in no other slot of this one.
    """
    theirs = {
        other: cost for other, cost in spent.items() if other[0] != place[0] or other == place
    }
    return _worst(theirs) if theirs else None


def _worst(spent: dict[tuple[str, int], Cost]) -> Cost:
    """What whoever is in the worst slot of every partition has paid."""
    worst: dict[str, Cost] = {}
    for (partition, _), cost in spent.items():
        worst[partition] = worst.get(partition, Cost(0.0)).or_worse(cost)
    return sum(worst.values(), Cost(0.0))


def _events_of_slots(entries: list[Entry]) -> list[list[Event]]:
    """For each way of being in one slot of every partition, the events that concern one there."""
    common = [event for entry in entries if not entry.partition for event in entry.events]
    partitions: dict[str, dict[int, list[Event]]] = {}
    for entry in entries:
        if entry.partition:
            slots = partitions.setdefault(entry.partition, {})
            slots.setdefault(entry.slot, []).extend(entry.events)
    # Slots with the same events are the same to whoever is in them.
    choices = [
        list({frozenset(Counter(events).items()): events for events in slots.values()}.values())
        for slots in partitions.values()
    ]
    if math.prod(map(len, choices)) > _MOST_CHOICES:
        raise UnsupportedError(
            "There are too many different slots in this ledger to find the worst of them."
        )
    return [common + [e for events in choice for e in events] for choice in product(*choices)]


def _storable(name: str, text: object) -> None:
    """Raise unless `text` comes back from the file as it was."""
    try:
        fits = type(text) is str and "\0" not in text and bool(text.encode("utf-8") or True)
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InputError(f"{name} must be text that can be stored, not {text!r}.")


def _absolute(path: str | Path) -> Path:
    # SQLite gives names like ":memory:" a meaning of their own; a full path has none but itself.
    return Path(os.path.abspath(path))


def warn_if_large(delta: float, people: int | None) -> None:
    """Warn when delta is not below 1/n: publishing one person at random would be within it."""
    if people is not None and delta * people >= 1.0:
        warnings.warn(
            f"delta {delta:g} is not below 1/{people}: giving away one person of {people} outright "
            "would be within it.",
            LargeDelta,
            stacklevel=3,
        )


def _connected(path: Path) -> sqlite3.Connection:
    with _sentences(path):
        # Transactions are begun and ended by hand.
        connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
        # A rollback journal and EXTRA: after COMMIT the entry survives a power cut, journal
        # directory entry included.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection


def _changed(path: Path, what: str) -> LedgerError:
    return LedgerError(f"The ledger {str(path)!r} was changed or is damaged at {what}.")


@contextmanager
def _sentences(path: Path) -> Iterator[None]:
    """SQLite's errors, said so that people know what to do."""
    try:
        yield
    except TacitError:
        raise
    except (UnicodeError, TypeError, ValueError, KeyError, OverflowError) as error:
        # What SQLite hands back from a damaged file may be of any type.
        raise LedgerError(f"The ledger {str(path)!r} is damaged or not a ledger.") from error
    except sqlite3.Error as error:
        text = str(error)
        if "thread" in text:
            what = "was opened by another thread: open it in this one"
        elif "locked" in text:
            what = f"is in use by another process and was for {_PATIENCE:g} seconds"
        elif "readonly" in text or "unable to open" in text:
            what = "cannot be written"
        elif "full" in text or "I/O" in text:
            what = "could not be written: the disk is full or failing"
        else:
            what = "is damaged or not a ledger"
        raise LedgerError(f"The ledger {str(path)!r} {what}.") from error
