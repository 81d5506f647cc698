"""What a mechanism did, as frozen values that state their own mathematics.

An event says what was added to what, never what it costs: the cost depends on the relation, which
the accountants (`accounting`, and independently `second_accountant`) are told once for a whole list
of events. The constitution of this module:

- an event's fields are public facts; nothing in an event is read from private data;
- an event is never removed and its meaning never changes, so that an old certificate keeps its
  meaning; a new parameter is optional and defaults to the old behaviour;
- an event composes by standing in a list or in `Repeated`, never by a count of its own.

Adaptivity: each event in a list may depend on the outcomes of those before it. A list is the
*plan*, fixed before the run; spending decided along the way is the business of a privacy filter.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.privacy.promise import Relation


@dataclass(frozen=True)
class Event:
    """Base of all events; JSON form `{"type": <class name>, <field>: <value>, ...}`."""

    kinds: ClassVar[dict[str, type["Event"]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Event.kinds[cls.__name__] = cls

    def to_dict(self) -> dict[str, Any]:
        """The JSON form of this event."""
        return {"type": type(self).__name__, **files.fields_to_json(self)}

    @staticmethod
    def from_dict(data: object) -> "Event":
        """The event whose JSON form is `data`; anything unknown is refused, never ignored."""
        if not isinstance(data, Mapping) or not isinstance(data.get("type"), str):
            raise InputError('An event must be a JSON object with a name under "type".')
        name = data["type"]
        kind = Event.kinds.get(name)
        if kind is None:
            raise InputError(f"{name!r} is not an event this version of privrl knows.")
        names = [f.name for f in fields(kind)]
        given = {key: value for key, value in data.items() if key != "type"}
        unknown = sorted(set(given) - set(names))
        missing = sorted(set(names) - set(given))
        if unknown or missing:
            wrong = f"has the unknown field {unknown[0]!r}" if unknown else f"lacks {missing[0]!r}"
            raise InputError(f"The event {name} {wrong}.")
        return kind(**{key: _from_json(value) for key, value in given.items()})

    def __str__(self) -> str:
        parts = []
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, tuple):
                parts.append("[" + ", ".join(map(str, value)) + "]")
            elif isinstance(value, float):
                parts.append(f"{value:.10g}")
            else:
                parts.append(str(value))
        return f"{type(self).__name__}({', '.join(parts)})"

    def __post_init__(self) -> None:
        checks.set_checked(self, **{f.name: _CHECKS[f.name] for f in fields(self)})


def _from_json(value: object) -> object:
    if isinstance(value, Mapping):
        return Event.from_dict(value)
    if isinstance(value, list):
        return tuple(_from_json(item) for item in value)
    return value


def _event(name: str, value: object) -> Event:
    if not isinstance(value, Event):
        raise InputError(f"must be an event such as Gaussian(1, 1), not {value!r}.", field=name)
    return value


def as_events(events: "Event | Iterable[Event]") -> tuple[Event, ...]:
    """One event or several, as a tuple; anything else is refused by name."""
    if isinstance(events, Event):
        return (events,)
    if not isinstance(events, Iterable):
        raise InputError(f"Events such as Gaussian(1, 1) are needed, not {events!r}.")
    return tuple(_event("each event", event) for event in events)


# What a field may be, whichever event has it.
_CHECKS: Mapping[str, Callable[[str, Any], object]] = {
    **dict.fromkeys(("std", "scale", "bound"), checks.positive),
    **dict.fromkeys(("dimension", "categories", "population", "batch"), checks.count),
    **dict.fromkeys(("steps", "times"), checks.count),
    "epsilon": checks.positive,
    "delta": checks.probability,
    "rate": checks.rate,
    "relation": Relation.check,
    "event": _event,
    "events": lambda _, events: as_events(events),
}


@dataclass(frozen=True)
class Gaussian(Event):
    """A sum released with independent N(0, std^2) on every coordinate.

    Each unit contributes a vector of L2 norm at most `bound` to the sum. With sensitivity D (see
    `Relation`) the pair (N(D, std^2), N(0, std^2)) dominates in any dimension, so the release is
    mu-GDP with mu = D / std, and not better.
    """

    std: float
    bound: float


@dataclass(frozen=True)
class DiscreteGaussian(Event):
    """An integer-valued sum released with independent discrete Gaussian noise on every coordinate.

    `std` and `bound` are in units of the grid: P(k) is proportional to exp(-k^2 / (2 std^2)) on the
    integers, and each unit contributes an integer vector of `dimension` coordinates and L2 norm at
    most `bound`. In one dimension the pair shifted by floor(D) dominates (log-concave noise has
    monotone likelihood ratios, so a larger shift is always easier to see); in more dimensions the
    release is D^2 / (2 std^2)-zCDP (Canonne, Kamath, Steinke 2020), and that is what is charged.
    """

    std: float
    bound: float
    dimension: int = 1


@dataclass(frozen=True)
class Laplace(Event):
    """A sum released with independent Laplace noise of the given scale on every coordinate.

    Each unit contributes a vector of *L1* norm at most `bound`. With sensitivity D the release is
    pure (D / scale)-DP. The pair (Lap(D), Lap(0)) in one dimension dominates in any dimension:
    along a path of L1 length t the power p of any test obeys |dp/dt| <= min(p, 1 - p) / scale, and
    the largest solution of that equation is exactly the one-dimensional trade-off curve.
    """

    scale: float
    bound: float


@dataclass(frozen=True)
class DiscreteLaplace(Event):
    """An integer-valued sum released with noise P(k) proportional to exp(-|k| / scale).

    `scale` and `bound` are in units of the grid; each unit contributes an integer vector of L1 norm
    at most `bound`, so the sum moves by at most floor(D) unit steps. One step of one coordinate
    has exactly the trade-off curve of randomised response at 1 / scale, and the one-dimensional
    shift by n steps is exactly n of these curves chained; hence it dominates in any dimension.
    """

    scale: float
    bound: float


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """One of `categories` values reported truly with odds e^epsilon against each other value.

    P(true) = e^epsilon / (e^epsilon + categories - 1). Holds for `relation`, the local one unless
    said otherwise; it is exact, and for two categories the worst of all epsilon-DP mechanisms.
    """

    epsilon: float
    categories: int = field(default=2, kw_only=True)
    relation: Relation = field(default=Relation.LOCAL, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.categories < 2:
            raise InputError("must be at least 2: one category says nothing.", field="categories")


@dataclass(frozen=True)
class PureDP(Event):
    """Anything proven to be epsilon-DP for `relation`; charged as its worst case."""

    epsilon: float
    relation: Relation = field(default=Relation.REPLACE_ONE, kw_only=True)


@dataclass(frozen=True)
class ApproxDP(Event):
    """Anything proven to be (epsilon, delta)-DP for `relation`; charged as its worst case.

    The worst case (Kairouz, Oh, Viswanath 2015) tells all with probability delta and is randomised
    response at epsilon otherwise.
    """

    epsilon: float
    delta: float
    relation: Relation = field(default=Relation.REPLACE_ONE, kw_only=True)

    def __post_init__(self) -> None:
        own = {"epsilon": checks.non_negative, "delta": checks.probability}
        checks.set_checked(self, **own, relation=Relation.check)
        if self.delta == 0.0:
            raise InputError(
                "must be above 0 here: use PureDP for a pure guarantee.", field="delta"
            )


@dataclass(frozen=True)
class PoissonSampled(Event):
    """`event` on a batch into which each unit falls on its own with probability `rate`.

    The draw must be fresh, secret, and independent of the data; streaming once over the data is not
    a draw. The sum is divided by a public number, never by the batch's size. Allowed under
    `ADD_REMOVE` and, for Gaussian noise, under `REPLACE_ONE`; refused under `LOCAL` and
    `REWARD_RADIUS`, where every report or reward may change and nothing is left out by sampling.
    """

    event: Event
    rate: float


@dataclass(frozen=True)
class FixedSizeSampled(Event):
    """`event` on exactly `batch` of `population` units, drawn without replacement.

    The draw must be fresh, secret, and independent of the data. Meaningful under `REPLACE_ONE`
    only. Whoever a unit displaces from the batch is another unit with a contribution of its own, so
    the law given "drawn" and the law given "not drawn" are a full replacement (2 bound) apart.
    """

    event: Event
    population: int
    batch: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch > self.population:
            raise InputError(
                f"batch ({self.batch}) must not be larger than population ({self.population})."
            )


@dataclass(frozen=True)
class RandomAllocation(Event):
    """`event` in each of `steps` steps, in exactly one of which each unit takes part.

    Which one is uniform, independent of all other units' and of the data, drawn once for all steps,
    and secret (balls in bins: batches have random sizes, and may be empty). Sums are divided by
    public numbers, never by a batch's size. Each step may depend on the outcomes of those before
    it. Gaussian noise only; allowed under `REPLACE_ONE`, where the new unit's step is drawn like
    the old one's, and under `ADD_REMOVE`; refused under `LOCAL` and `REWARD_RADIUS`, where every
    report or reward may change. The theorem and its proof are in `allocation.py`.
    """

    event: Event
    steps: int


@dataclass(frozen=True)
class Repeated(Event):
    """`event`, `times` times over on the same units, each with fresh noise and fresh draws."""

    event: Event
    times: int


@dataclass(frozen=True)
class Disjoint(Event):
    """Events on disjoint groups of units: each unit takes part in one of them and in no other.

    Costs the worst of its parts, not their sum (adaptive parallel composition). It holds if the
    groups are public slots fixed in advance: under `REPLACE_ONE` the new unit takes the old one's
    slot, under `ADD_REMOVE` an absent unit leaves its slot empty. It does *not* hold when groups
    are filled by count, since one removal then shifts everyone behind it.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.events:
            raise InputError("Disjoint needs at least one event.")
