"""The aggregator: hands out a model with a ticket, takes in reports, and moves the model.

    aggregator = Aggregator(privatiser, rate=0.1, buffer=100, optimiser="adam")
    state = aggregator.begin(theta)
    state, ticket, theta = aggregator.issue(state)                 # to an agent
    state, verdict = aggregator.submit(state, ticket, payload)     # from it, some time later

Nothing here waits, listens, writes, draws or looks at a clock: a state is a value, and the next one
is a function of it and of what arrived. Simulations and servers of every kind use it as it is.

A payload is read by the public plan (`Privatiser.read`) into a vector g_i, an estimate of the
gradient of a loss at the model of version v_i that its agent was sent. Reports are added up with
weights until there are K = `buffer` of them, and then the model moves:

    S      =  sum_i w(v - v_i) g_i,      w(age) = 1 / sqrt(1 + age), or 1 for all
    theta <-  theta - rate_v S / K       or Adam's direction for the mean S / K;   v <- v + 1

where rate_v is `rate`, or falls to 0 as the public number of `agents` is used up, by
(1 - v K / agents)^decay. This is `apply` with `decayed_rate`, functions of arrays that compiled
simulations call too. Dividing by K, and not by
the sum of the weights, is what makes stale reports count for less (FedBuff, Nguyen et al. 2022).

**Privacy.** None is spent here. Reports are epsilon-DP for their agents when they arrive; all of
this is post-processing, and all of the state may be known to anybody. Nor is any protected here: a
ticket is a number that anybody can guess, and stops reports from being counted twice, no more. Who
may talk to the aggregator is for those to decide who carry the messages.

**Robustness.** Whatever arrives gets a verdict; nothing raises. A report that is accepted moves S
by at most `Privatiser.reach`, whoever made it up, and one agent's ticket is good for one of them. A
report that is refused changes nothing, so an agent whose bytes were damaged on the way may send
them again; one that was accepted before is called a duplicate, so that an agent who missed the
answer knows that it arrived.

**Journal.** The state is a function of what began, was issued and was accepted. Three kinds of
records say that, a line of JSON each; `replay` makes the state of them again, bit for bit on the
same machine. Put a record on disk before it is acted on: before a model leaves, or a verdict is
sent. Then a last line that a crash cut off can be taken away, and nobody will miss it.
"""

import base64
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from privrl.control.pgc.privatiser import Privatiser
from privrl.control.pgc.spec import Optimiser, Staleness
from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.nets import adam, rmsprop
from privrl.privacy.exact import Booleans, Integers
from privrl.privacy.noise import as_float64
from privrl.privacy.promise import WordEnum

_USED = -1
_PAGE_SIZE = 256
_KIND, _FORMAT = "privrl aggregator", 1
# What a saved state is made of: arrays of these types, with so many axes.
_ARRAY_TYPES = {
    "header": (np.dtype(np.uint8), 1),
    "theta": (np.dtype(np.float64), 1),
    "moments": (np.dtype(np.float64), 2),
    "total": (np.dtype(np.float64), 1),
    "tickets": (np.dtype(np.int64), 1),
    "told": (np.dtype(np.bool_), 1),
}


# --- arithmetic, for NumPy and JAX alike ----------------------------------------------------------


def staleness_weight(age: Any, staleness: Staleness) -> Any:
    """What a report counts for whose model has moved `age` times since; for 64 bits, give 64."""
    return (1.0 + age) ** -0.5 if staleness == "root" else 1.0 + 0.0 * age


def apply(
    theta: Any,
    moments: Any,
    total: Any,
    done: Any,
    *,
    rate: Any,
    buffer: int,
    optimiser: Optimiser,
) -> tuple[Any, Any]:
    """The model and the optimiser's moments after an update.

    `total` is the weighted sum of `buffer` reports, `done` the number of updates before, `moments`
    has the shape of `moments_shape`. Works on arrays of NumPy's and of JAX's, traced ones too; for
    64 bits all of them, `done` included, must have 64.
    """
    mean = total / buffer
    if optimiser == "adam":
        mean, moments = adam(mean, moments, done + 1.0)
    elif optimiser == "rmsprop":
        mean, moments = rmsprop(mean, moments, done + 1.0)
    return theta - rate * mean, moments


def moments_shape(dimension: int, optimiser: Optimiser) -> tuple[int, int]:
    """The shape of the moments, which are zeros before the first update; empty for "sgd"."""
    return (2, 0 if optimiser == "sgd" else dimension)


def decayed_rate(rate: Any, done: Any, buffer: Any, agents: Any, decay: Any) -> Any:
    """The rate of the update after `done` others: rate (1 - done buffer / agents)^decay."""
    left = 1.0 - done * buffer / agents
    return rate * ((left > 0.0) * left) ** decay


# --- values ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ticket:
    """Which agent, by number, was sent which version of the model."""

    number: int
    version: int


class Outcome(WordEnum):
    """What becomes of a report."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    UNKNOWN_TICKET = "unknown-ticket"
    TOO_STALE = "too-stale"
    MALFORMED = "malformed"


@dataclass(frozen=True)
class Verdict:
    """What became of a report, and a sentence for its sender."""

    outcome: Outcome
    sentence: str

    @property
    def is_accepted(self) -> bool:
        """Whether it counts."""
        return self.outcome is Outcome.ACCEPTED


@dataclass(frozen=True, eq=False)
class AggregatorState:
    """Where an aggregator stands. All of it is made of reports, and may be known to anybody."""

    theta: Array
    """The model."""

    moments: Array
    """Adam's, or nothing (`moments_shape`)."""

    total: Array
    """The weighted sum of the reports since the last update."""

    held: int
    """How many reports are in it."""

    version: int
    """How often the model has moved."""

    accepted: int
    """How many reports were accepted in all."""

    issued: int
    """How many tickets were issued."""

    tickets: tuple[tuple[int, ...], ...]
    """The version that each ticket stands for, -1 if it was used, in pages: what changes from one
    state to the next is one page."""

    told: tuple[bool, ...]
    """What the last agents told about their scores."""

    def __post_init__(self) -> None:
        for array in (self.theta, self.moments, self.total):
            array.setflags(write=False)

    def ticket(self, number: int) -> int:
        """The version that an issued ticket stands for, -1 if it was used."""
        return self.tickets[number // _PAGE_SIZE][number % _PAGE_SIZE]


# --- the journal ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class BeginRecord:
    """The first record: the model before all reports, and what the aggregator was made of."""

    theta: tuple[float, ...]
    settings: dict[str, Any]


@dataclass(frozen=True)
class IssueRecord:
    """A ticket was issued."""

    ticket: Ticket


@dataclass(frozen=True)
class AcceptRecord:
    """A report was accepted."""

    ticket: Ticket
    payload: bytes


Record = BeginRecord | IssueRecord | AcceptRecord


def to_line(record: Record) -> str:
    """A record as one line of JSON, without the end of the line."""
    match record:
        case BeginRecord(theta, settings):
            # Python writes numbers such that they are read back bit for bit.
            data: dict[str, Any] = {"began": list(theta), "settings": settings}
        case IssueRecord(ticket):
            data = {"issued": [ticket.number, ticket.version]}
        case AcceptRecord(ticket, payload):
            text = base64.b64encode(payload).decode()
            data = {"accepted": [ticket.number, ticket.version], "payload": text}
    return json.dumps(data, allow_nan=False)


def from_line(line: str) -> Record:
    """The record of which `to_line` made a line."""
    try:
        # What `to_line` writes, or says the same: a line that is read as something else would be
        # a state that never was.
        match files.parse_json(line):
            case {"began": [*theta], "settings": dict(settings), **rest} if not rest:
                return BeginRecord(tuple(_parse_finite(x) for x in theta), settings)
            case {"issued": [number, version], **rest} if not rest:
                return IssueRecord(_parse_ticket(number, version))
            case {"accepted": [number, version], "payload": str(text), **rest} if not rest:
                payload = base64.b64decode(text, validate=True)
                if base64.b64encode(payload).decode() == text:
                    return AcceptRecord(_parse_ticket(number, version), payload)
    except (ValueError, TypeError, OverflowError, RecursionError):
        pass
    raise InputError("This is not a line of an aggregator's journal.")


def _parse_ticket(number: object, version: object) -> Ticket:
    # Neither true nor 1.0, which equal a whole number and are none.
    if type(number) is not int or type(version) is not int:
        raise TypeError
    return Ticket(number, version)


def _parse_finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError
    return float(value)


# --- the aggregator -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aggregator:
    """How reports become a model: public settings, and pure functions from state to state."""

    privatiser: Privatiser
    """How the agents report."""

    rate: float
    """How far an update moves the model."""

    buffer: int = 1
    """How many reports make an update."""

    optimiser: Optimiser = "sgd"
    """Plain gradient descent, or Adam on the means of buffers."""

    staleness: Staleness = "root"
    """With "root" a report of age a weighs 1 / sqrt(1 + a), with "none" all weigh the same."""

    decay: float = 0.0
    """How fast the rate falls to 0 while `agents` report; 0 for not at all, 1 for evenly."""

    agents: int | None = None
    """How many reports there will be in all, a public number; needed for a decay."""

    max_age: int | None = None
    """Reports about models that have moved more often than this are refused."""

    window: int = 1000
    """So many agents' scores are remembered, if the plan has scores."""

    def __post_init__(self) -> None:
        if not isinstance(self.privatiser, Privatiser):
            raise InputError(
                "must be a Privatiser: the plan that the agents follow.", field="privatiser"
            )
        checks.set_checked(self, rate=checks.positive, decay=checks.non_negative)
        checks.set_checked(self, buffer=checks.count, window=checks.count)
        if self.agents is not None:
            checks.set_checked(self, agents=checks.count)
        elif self.decay:
            raise InputError(
                "is needed for a decay: how many reports will there be?", field="agents"
            )
        if self.max_age is not None:
            checks.set_checked(self, max_age=partial(checks.count, least=0))
        checks.choice("optimiser", self.optimiser, get_args(Optimiser))
        checks.choice("staleness", self.staleness, get_args(Staleness))
        if not self.rate * self.privatiser.max_norm * self.buffer < 1e150:
            raise InputError("rate and buffer are so large that models would overflow.")

    def to_dict(self) -> dict[str, Any]:
        """What the aggregator was made of, as JSON."""
        return {**vars(self), "privatiser": self.privatiser.to_dict()}

    def begin(self, theta: ArrayLike) -> AggregatorState:
        """The state before anything was issued, with this model."""
        first = np.array(as_float64("theta", theta))
        dimension = self.privatiser.dimension
        if first.shape != (dimension,) or not np.all(np.isfinite(first)):
            raise InputError(
                f"must be {dimension} finite numbers, as many as reports have.", field="theta"
            )
        moments = np.zeros(moments_shape(dimension, self.optimiser))
        return AggregatorState(first, moments, np.zeros(dimension), 0, 0, 0, 0, (), ())

    def issue(self, state: AggregatorState) -> tuple[AggregatorState, Ticket, Array]:
        """The next ticket, and the model that goes with it, which is not to be written to."""
        ticket = Ticket(state.issued, state.version)
        full = state.issued % _PAGE_SIZE == 0
        last = () if full else state.tickets[-1]
        pages = (*(state.tickets if full else state.tickets[:-1]), (*last, ticket.version))
        # A view of what cannot be written to can never be.
        return replace(state, tickets=pages, issued=state.issued + 1), ticket, state.theta.view()

    @np.errstate(all="ignore")  # nothing raises, whatever the process asked NumPy to do
    def submit(
        self, state: AggregatorState, ticket: Ticket, payload: bytes
    ) -> tuple[AggregatorState, Verdict]:
        """The state after a report, and what became of it; never an error, whatever arrives."""
        refused = self._check_ticket(state, ticket)
        if refused is not None:
            return state, refused
        try:
            vector, told = self.privatiser.read(payload)
        except InputError as error:
            return state, Verdict(Outcome.MALFORMED, str(error))
        after = self._add_report(self._mark_used(state, ticket.number), ticket, vector)
        if told is not None:
            after = replace(after, told=(*after.told, told)[-self.window :])
        return after, Verdict(Outcome.ACCEPTED, "The report was accepted.")

    def success_rate(self, state: AggregatorState) -> tuple[float, float]:
        """The share of the last agents who reached the target, and its standard error."""
        return self.privatiser.success_rate(state.told)

    def _check_ticket(self, state: AggregatorState, ticket: object) -> Verdict | None:
        """What is wrong with a ticket, if anything is."""
        unknown = Verdict(Outcome.UNKNOWN_TICKET, "There is no such ticket: ask for a model first.")
        if not isinstance(ticket, Ticket):
            return unknown
        # Whole numbers, and nothing that is only equal to one.
        whole = type(ticket.number) is int and type(ticket.version) is int
        if not whole or not 0 <= ticket.number < state.issued:
            return unknown
        version = state.ticket(ticket.number)
        if version == _USED:
            return Verdict(Outcome.DUPLICATE, "A report with this ticket was accepted before.")
        if version != ticket.version:
            return unknown
        age = state.version - version
        if self.max_age is not None and age > self.max_age:
            return Verdict(
                Outcome.TOO_STALE,
                f"The model has moved {age} times since this ticket was issued, "
                f"and a report must not be older than {self.max_age}.",
            )
        return None

    def _mark_used(self, state: AggregatorState, number: int) -> AggregatorState:
        """The state in which a ticket has been used."""
        page, place = divmod(number, _PAGE_SIZE)
        old = state.tickets[page]
        new = (*old[:place], _USED, *old[place + 1 :])
        return replace(state, tickets=(*state.tickets[:page], new, *state.tickets[page + 1 :]))

    def _add_report(self, state: AggregatorState, ticket: Ticket, vector: Array) -> AggregatorState:
        """The state with one more report, and with another model if the buffer is full."""
        age = state.version - ticket.version
        total = state.total + staleness_weight(age, self.staleness) * vector
        after = replace(state, total=total, held=state.held + 1, accepted=state.accepted + 1)
        if after.held < self.buffer:
            return after
        done, rate = float(after.version), self.rate
        if self.agents is not None:
            rate = decayed_rate(rate, done, self.buffer, self.agents, self.decay)
        theta, moments = apply(
            *(after.theta, after.moments, after.total, done),
            rate=rate,
            buffer=self.buffer,
            optimiser=self.optimiser,
        )
        return replace(
            after,
            theta=theta,
            moments=moments,
            total=np.zeros_like(total),
            held=0,
            version=after.version + 1,
        )

    # --- keeping ----------------------------------------------------------------------------------

    def begin_record(self, state: AggregatorState) -> BeginRecord:
        """The first record of a journal, of the state that `begin` gave."""
        return BeginRecord(tuple(state.theta.tolist()), self.to_dict())

    def replay(self, records: Iterable[Record]) -> AggregatorState:
        """The state that a journal leads to, bit for bit; a journal that cannot be is refused."""
        state: AggregatorState | None = None
        for number, record in enumerate(records, 1):
            fits = isinstance(record, BeginRecord) == (state is None)
            if isinstance(record, BeginRecord) and fits:
                if record.settings != self.to_dict():
                    raise InputError("This journal is of an aggregator with other settings.")
                state = self.begin(record.theta)
            elif isinstance(record, IssueRecord) and state is not None:
                state, ticket, _ = self.issue(state)
                fits = ticket == record.ticket
            elif isinstance(record, AcceptRecord) and state is not None:
                state, verdict = self.submit(state, record.ticket, record.payload)
                fits = verdict.is_accepted
            if not fits:
                raise InputError(f"Record {number} of this journal does not fit those before it.")
        if state is None:
            raise InputError("This journal is empty: it must begin with a model.")
        return state

    def save(self, path: str | Path, state: AggregatorState) -> None:
        """Write a state wholly or not at all (NumPy's npz, with a header in JSON)."""
        header = {"kind": _KIND, "format": _FORMAT, "settings": self.to_dict()}
        content = io.BytesIO()
        np.savez(
            content,
            header=np.frombuffer(json.dumps(header, allow_nan=False).encode(), np.uint8),
            theta=state.theta,
            moments=state.moments,
            total=state.total,
            tickets=np.array([v for page in state.tickets for v in page], np.int64),
            told=np.array(state.told, bool),
        )
        files.write(path, content.getvalue(), secret=False)

    def load(self, path: str | Path) -> AggregatorState:
        """The state that `save` wrote; one of an aggregator with other settings is refused."""
        damaged = InputError(f"{str(path)!r} is not the state of an aggregator, or is damaged.")
        arrays = files.read_npz(path, damaged)
        if {name: (array.dtype, array.ndim) for name, array in arrays.items()} != _ARRAY_TYPES:
            raise damaged
        try:
            header = files.parse_json(arrays.pop("header").tobytes())
        except (ValueError, RecursionError):
            raise damaged from None
        if files.kind_of(header) != _KIND or not isinstance(header, dict):
            raise damaged
        if header.get("format") != _FORMAT:
            raise InputError(f"{str(path)!r} was written by another version of privrl.")
        if header.get("settings") != self.to_dict():
            raise InputError(f"{str(path)!r} is of an aggregator with other settings.")
        state = self._restore(**arrays)
        if state is None:
            raise damaged
        return state

    def _restore(
        self, theta: Array, moments: Array, total: Array, tickets: Integers, told: Booleans
    ) -> AggregatorState | None:
        """The state of these arrays, if there can be such a one."""
        d = self.privatiser.dimension
        shapes = ((d,), moments_shape(d, self.optimiser), (d,))
        for array, shape in zip((theta, moments, total), shapes, strict=True):
            if array.shape != shape or not np.all(np.isfinite(array)):
                return None
        # The counts follow from the tickets, so that they cannot contradict each other.
        accepted = int(np.sum(tickets == _USED))
        version, held = divmod(accepted, self.buffer)
        versions = tickets[tickets != _USED]
        scores = min(accepted, self.window) if self.privatiser.score_epsilon else 0
        fits = (
            np.all((versions >= 0) & (versions <= version))
            and np.all(np.diff(versions) >= 0)  # in the order in which they were issued
            and np.all(moments[1] >= 0.0)
            and (version or not np.any(moments))
            and (held or not np.any(total))
            and len(told) == scores
        )
        if not fits:
            return None
        return AggregatorState(
            *(theta, moments, total, held, version, accepted, len(tickets)),
            tickets=_split_pages(tickets.tolist()),
            told=tuple(told.tolist()),
        )


def _split_pages(tickets: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    starts = range(0, len(tickets), _PAGE_SIZE)
    return tuple(tuple(tickets[start : start + _PAGE_SIZE]) for start in starts)
