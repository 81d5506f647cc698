"""What a ledger is made of: its description, its entries, and the chain of digests over them.

The digest of an entry is the SHA-256 of its canonical JSON text (keys sorted, no spaces), which has
the digest of the entry before it; the first goes on from the digest of the description.
`verify_chain` checks the chain on the rows of the file as they are, without making events of their
texts, which is what makes opening a ledger of 100,000 entries a matter of a second.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple, Self

from privrl.core import checks, files
from privrl.core.errors import InputError, LedgerError
from privrl.privacy.events import Event
from privrl.privacy.filters import Cost, Filter, FilterKind
from privrl.privacy.promise import Budget, Relation, Unit, check_unit_relation

# Format 1 had no nonces. Such a ledger is read and goes on, with nonces from then on; its number
# stays, and so does the name that the package had when it was made: the chain begins with them.
_FORMAT = 2
_KIND = "privrl ledger"


@dataclass(frozen=True)
class Description:
    """What a ledger is about; fixed when it is made."""

    population: str
    unit: Unit
    relation: Relation
    people: int | None
    filter: Filter | None
    format: int = _FORMAT
    kind: str = _KIND

    def __post_init__(self) -> None:
        if not isinstance(self.population, str) or not self.population.strip():
            raise InputError("A ledger needs the name of its population.")
        checks.set_checked(self, unit=Unit.check, relation=Relation.check)
        check_unit_relation(self.unit, self.relation)
        if self.people is not None:
            checks.set_checked(self, people=checks.count)

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
            "kind": self.kind,
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
        if files.kind_of(data) != _KIND or not isinstance(data, dict):
            raise LedgerError("This is not a privrl ledger.")
        made_by = data.get("format")
        if type(made_by) is not int or not 1 <= made_by <= _FORMAT:
            raise LedgerError(
                f"This ledger has format {made_by!r}; this version of privrl reads up to {_FORMAT}."
            )
        try:
            limit = data["limit"]
            chosen = None
            if limit is not None:
                budget = Budget(limit["epsilon"], limit["delta"])
                chosen = Filter(budget, FilterKind.parse(limit["filter"]), limit["order"])
            told = {name: data[name] for name in ("population", "unit", "relation", "people")}
            return cls(**told, filter=chosen, format=made_by, kind=data["kind"])
        except (KeyError, TypeError, InputError) as error:
            raise LedgerError(f"The description of this ledger cannot be read: {error}") from error


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
        body = files.fields_to_json(self)
        body["cost"] = [self.cost.first, self.cost.second]
        left_out = ("digest", "nonce") if self.nonce is None else ("digest",)
        return {name: value for name, value in body.items() if name not in left_out}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The entry whose JSON form is `data`."""
        own = {one.name: data[one.name] for one in fields(cls) if one.name != "nonce"}
        own["nonce"] = data.get("nonce")
        first, second = data["cost"]
        texts = [data[name] for name in ("time", "run", "partition", "note", "previous", "digest")]
        texts += [] if own["nonce"] is None else [own["nonce"]]
        whole = [data[name] for name in ("number", "slot")]
        if not all(type(x) is str for x in texts) or not all(type(x) is int for x in whole):
            raise TypeError("an entry's texts and numbers must be such")
        own |= {"events": tuple(map(Event.from_dict, data["events"])), "cost": Cost(first, second)}
        return cls(**own)


class Row(NamedTuple):
    """An entry as it is in the file: the events are JSON text."""

    number: int
    time: str
    run: str
    partition: str
    slot: int
    events: str
    note: str
    first: float
    second: float
    previous: str
    digest: str
    nonce: str | None

    @classmethod
    def from_entry(cls, entry: Entry) -> "Row":
        """The row of an entry."""
        body = {**entry.body(), "digest": entry.digest, "nonce": entry.nonce}
        first, second = body.pop("cost")
        body["events"] = files.canonical_json(body["events"])
        return cls(**body, first=first, second=second)

    def entry(self) -> Entry:
        """The entry of this row; raises `ValueError`, `TypeError` or `RecursionError`."""
        own = self._asdict()
        cost = Cost(own.pop("first"), own.pop("second"))
        own["events"] = parse_events(self.events)
        return Entry(**own, cost=cost)


@lru_cache(maxsize=8192)
def parse_events(text: str) -> tuple[Event, ...]:
    """The events of an entry, from the text in its row."""
    return tuple(map(Event.from_dict, files.parse_json(text)))


def digest_of(body: dict[str, Any]) -> str:
    """The SHA-256 of the canonical text of `body`."""
    return hashlib.sha256(files.canonical_json(body).encode()).hexdigest()


@lru_cache(maxsize=8192)
def _canonicalise_events(events: str) -> str:
    # Earlier versions stored events with spaces and in the order of their fields.
    return files.canonical_json(files.parse_json(events))


_quoted = encode_basestring_ascii  # what json.dumps does to a text


def verify_chain(
    rows: Iterable[Any],
    number: int,
    head: str,
    *,
    without_nonce: bool,
    changed: Callable[[str], LedgerError],
    count: Callable[[Any], None],
) -> None:
    """Hand each of `rows` to `count` once it is seen to follow the one before; raise otherwise.

    Rows are tuples as SQLite gives them, with the fields of a `Row`.

    The first follows entry `number`, whose digest is `head`. The text that is hashed is put
    together here: it is the canonical JSON of `entry.body()`, with the events as they are in the
    row. If those are not canonical themselves, they are parsed. `without_nonce` lets entries of
    format 1 pass.
    """
    sha256 = hashlib.sha256
    for row in rows:
        at, time, run, partition, slot, events, note, first, second, previous, digest, nonce = row
        number += 1
        if at != number:
            raise changed(f"entry {number}")
        try:
            if type(slot) is not int or type(first) is not float or type(second) is not float:
                raise TypeError("an entry's numbers must be such")
            before = f'{{"cost":[{first!r},{second!r}],"events":'
            told = "" if nonce is None else f',"nonce":{_quoted(nonce)}'
            after = (
                f'{told},"note":{_quoted(note)},"number":{number},"partition":{_quoted(partition)}'
                f',"previous":{_quoted(previous)},"run":{_quoted(run)},"slot":{slot}'
                f',"time":{_quoted(time)}}}'
            )
            found = sha256(f"{before}{events}{after}".encode()).hexdigest()
            if found != digest or nonce is None:
                # Counted as it is hashed: `[ ]` is no other list than `[]`. And without a nonce the
                # text of the events may have swallowed it, which only parsing shows.
                events = _canonicalise_events(events)
                found = sha256(f"{before}{events}{after}".encode()).hexdigest()
                row = (*row[:5], events, *row[6:])
        except (ValueError, TypeError, RecursionError) as error:
            raise changed(f"entry {number}") from error
        if found != digest or previous != head or (nonce is None and not without_nonce):
            raise changed(f"entry {number}")
        head = digest
        count(row)
