"""What the verified entries of a ledger add up to, and what it cost the worst off.

`Totals` keeps sums of the entries that one process has verified, so that a spend and a certificate
do not read them again. Events stay text until somebody asks for an epsilon; equal ones are counted.

Somebody is in one slot of every partition, and everything outside of partitions concerns everybody.
Two figures for whoever is worst off:

- `exact_account`: the largest epsilon over all ways of being in slots, by the accountant that
  certifies. It raises where there are too many ways, or no epsilon at this delta.
- `account_bound`: the same where that is a matter of seconds, and otherwise an upper bound; it
  never raises, and is infinite if no finite epsilon is proven at this delta.

*The bound.* Let K_a(s) be the log moments of order a of all events in slot s of a partition, added
up. Whoever is in the slots s_1, s_2, ... has K_a = sum_p K_a(s_p) <= sum_p max_s K_a(s), at every
order a at once; the same goes for the sums of pure epsilons and for -log of the probability that
nothing is told outright. Each order turns these bounds into an epsilon that is valid for everybody
(`second_accountant`), and so the least of them is valid. It is not larger than that of the worst
slot of each partition, order by order. Groups of `Disjoint` events are bounded likewise. If there
are more than a few hundred different sampled events, whose moments take long to find, the rest is
charged without sampling. That is an upper bound, too: with secret sampling, the law of what is
released is a mixture over batches with the same weights for both neighbours, given each batch the
neighbours differ in at most the unit that the event without sampling is about, and E_P - e^epsilon
E_Q of mixtures with the same weights is at most the largest of its parts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from privrl.core import checks
from privrl.core.errors import UnsupportedError
from privrl.privacy import accounting, old_certificates
from privrl.privacy.entries import Row, parse_events
from privrl.privacy.events import (
    Disjoint,
    Event,
    FixedSizeSampled,
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    Repeated,
)
from privrl.privacy.filters import Cost
from privrl.privacy.promise import Relation

_MOST_CHOICES = 1000  # ways of being in slots that are told apart
_MOST_WORK = 100  # ways times different events, for a total that is found along the way
_MOST_SAMPLED = 300  # different sampled events that a bound takes as such
_MOST_LISTED = 64  # events that a certificate lists one by one; of more, equal ones are counted

GENERATION, ENDED = "generation", "ended"  # how the notes begin of entries without events

# The texts of the events in each slot of each partition. Slot 0 of "" is everybody.
Place = tuple[str, int]
Spent = Mapping[Place, Mapping[str, int]]


class Costs:
    """What a filter's sums have reached, in each slot of each partition; they never fall."""

    def __init__(self) -> None:
        self._slots: dict[Place, tuple[float, float]] = {}
        self._worst: dict[str, tuple[float, float]] = {}  # of each partition

    def add(self, place: Place, first: float, second: float) -> None:
        """This much more of both sums in one slot."""
        before = self._slots.get(place)
        if before is not None:
            first, second = before[0] + first, before[1] + second
        self._slots[place] = first, second
        worst = self._worst.get(place[0])
        if worst is not None:
            first, second = max(worst[0], first), max(worst[1], second)
        self._worst[place[0]] = first, second

    def worst(self) -> Cost:
        """What whoever is in the worst slot of every partition has paid."""
        return _sum(self._worst.values())

    def at(self, place: Place) -> Cost | None:
        """What whoever is in this slot of a partition paid at most; None if nothing concerned them.

        They are in some slot of each other partition, and in no other slot of this one.
        """
        theirs = [cost for partition, cost in self._worst.items() if partition != place[0]]
        theirs += [self._slots[place]] if place in self._slots else []
        return _sum(theirs) if theirs else None


def _sum(costs: Iterable[tuple[float, float]]) -> Cost:
    return sum((Cost(*cost) for cost in costs), Cost(0.0))


class RunTotals:
    """What one run has spent, and in how many entries."""

    __slots__ = ("spends", "spent")

    def __init__(self) -> None:
        self.spent: dict[Place, dict[str, int]] = {}
        self.spends = 0


@dataclass
class Totals:
    """Sums over the first `number` entries, the newest of which has the digest `head`."""

    head: str
    number: int = 0
    costs: Costs = field(default_factory=Costs)
    spent: dict[Place, dict[str, int]] = field(default_factory=dict)
    runs: dict[str, "RunTotals"] = field(default_factory=dict)
    generations: dict[str, tuple[int, bool, str]] = field(default_factory=dict)
    first_note: str | None = None  # of the first entry with events
    without_nonce: set[str] = field(default_factory=set)  # texts of events

    def generation(self, token: str) -> tuple[int, bool, str]:
        """The last one of a run, whether it ended the run, and the mark of its claim."""
        return self.generations.get(token, (0, False, ""))

    def add_row(self, row: Row | tuple[Any, ...]) -> None:
        """`row` is verified and the newest."""
        number, _, name, partition, slot, text, note, first, second, _, digest, nonce = row
        run = self.runs.get(name)
        if run is None:
            run = self.runs[name] = RunTotals()
        if text == "[]":  # about a generation; nothing was spent
            kind, token, generation, *mark = note.split(" ")
            self.generations[token] = int(generation), kind == ENDED, "".join(mark)
        else:
            place = partition, slot
            self.costs.add(place, first, second)
            run.spends += 1
            for spent in (self.spent, run.spent):
                counts = spent.get(place)
                if counts is None:
                    counts = spent[place] = {}
                counts[text] = counts.get(text, 0) + 1
            if self.first_note is None:
                self.first_note = note
            if nonce is None:
                self.without_nonce.add(text)
        self.number, self.head = number, digest

    def run_spending(self, run: str, more: str | None = None, place: Place = ("", 0)) -> Spent:
        """What one run has spent, and `more` at a place."""
        known = self.runs.get(run, RunTotals())
        found = {at: dict(texts) for at, texts in known.spent.items()}
        if more is not None:
            texts = found.setdefault(place, {})
            texts[more] = texts.get(more, 0) + 1
        return found

    def has_doubtful_entries(self) -> bool:
        """Whether an entry of tacit 0.1 may be of one pass, which cost more than was entered."""
        try:
            return any(
                old_certificates.may_be_one_pass(parse_events(text)) for text in self.without_nonce
            )
        except (ValueError, TypeError, RecursionError):
            return True


def _count_events(texts: Mapping[str, int]) -> Counter[Event]:
    found: Counter[Event] = Counter()
    for text, times in texts.items():
        for event in parse_events(text):
            found[event] += times
    return found


def _distinct_slots(spent: Spent) -> list[list[Counter[Event]]]:
    """For everybody and for each partition, what may concern one: different slots, once each."""
    partitions: dict[str, dict[frozenset[tuple[Event, int]], Counter[Event]]] = {}
    for (partition, _), texts in spent.items():
        events = _count_events(texts)
        # Slots with the same events are the same to whoever is in them.
        partitions.setdefault(partition, {})[frozenset(events.items())] = events
    return [list(slots.values()) for slots in partitions.values()]


def _repeat_events(events: Iterable[tuple[Event, int]]) -> tuple[Event, ...]:
    return tuple(event if times == 1 else Repeated(event, times) for event, times in events)


def exact_account(
    spent: Spent, delta: float, relation: Relation
) -> tuple[accounting.Account, tuple[Event, ...]]:
    """The cost to whoever is worst off, and the events that concern them."""
    return _exact_account(_distinct_slots(spent), delta, relation)


def _exact_account(
    slots: list[list[Counter[Event]]], delta: float, relation: Relation
) -> tuple[accounting.Account, tuple[Event, ...]]:
    if math.prod(map(len, slots)) > _MOST_CHOICES:
        raise UnsupportedError(
            "There are too many different slots in this run to find the worst of them."
        )
    choices = [_merge_slots(choice) for choice in product(*slots)]
    accounts = [accounting.account(events, delta, relation) for events in choices]
    return max(zip(accounts, choices, strict=True), key=lambda pair: pair[0].epsilon)


def _merge_slots(slots: Iterable[Counter[Event]]) -> tuple[Event, ...]:
    total: Counter[Event] = Counter()
    for events in slots:
        total.update(events)
    return (
        tuple(total.elements()) if total.total() <= _MOST_LISTED else _repeat_events(total.items())
    )


def account_bound(spent: Spent, delta: float, relation: Relation) -> accounting.Account:
    """The cost to whoever is worst off, or a bound; infinite if none is proven at this delta."""
    from privrl.privacy import second_accountant

    delta = checks.probability("delta", delta)
    try:
        slots = _distinct_slots(spent)
        kinds = {event for options in slots for events in options for event in events}
        work = sum(not isinstance(_unwrap_repeated(event), Gaussian) for event in kinds)
        ways = math.prod(map(len, slots))
        if ways * max(1, work) <= _MOST_WORK or (work == 0 and ways <= _MOST_CHOICES):
            try:
                return _exact_account(slots, delta, relation)[0]
            except Exception:
                pass  # no epsilon, or too many groups of Disjoint events: perhaps there is a bound
        bound = second_accountant.ceiling_over(_limit_sampled(slots), delta, relation)
    except Exception:
        # Events of a later version, or too much for the memory. Whatever it is, the certificate of
        # a run that was paid for does not fail for it, and no figure is stated.
        bound = math.inf
    method = "Rényi divergences" if math.isfinite(bound) else "no finite epsilon at this delta"
    return accounting.Account(bound, delta, method)


def _unwrap_repeated(event: Event) -> Event:
    return _unwrap_repeated(event.event) if isinstance(event, Repeated) else event


def _limit_sampled(slots: list[list[Counter[Event]]]) -> Iterator[list[Counter[Event]]]:
    """`slots`, with at most `_MOST_SAMPLED` different sampled events."""
    seen: set[Event] = set()

    def replace_excess(event: Event) -> Event:
        if not _is_sampled(event) or event in seen:
            return event
        if len(seen) < _MOST_SAMPLED:
            seen.add(event)
            return event
        return _without_sampling(event)

    for options in slots:
        kept = []
        for events in options:
            total: Counter[Event] = Counter()
            for event, times in events.items():
                total[replace_excess(event)] += times
            kept.append(total)
        yield kept


def _is_sampled(event: Event) -> bool:
    if isinstance(event, Disjoint):
        return any(map(_is_sampled, event.events))
    return isinstance(_unwrap_repeated(event), PoissonSampled | FixedSizeSampled | RandomAllocation)


def _without_sampling(event: Event) -> Event:
    if isinstance(event, PoissonSampled | FixedSizeSampled | RandomAllocation):
        return _without_sampling(event.event)
    if isinstance(event, Repeated):
        return Repeated(_without_sampling(event.event), event.times)
    if isinstance(event, Disjoint):
        return Disjoint(tuple(map(_without_sampling, event.events)))
    return event
