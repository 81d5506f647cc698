"""Features of states by name, such as "fourier:3", which the command line and Python both take.

    ActorCritic(budget=..., features="network:16").learn("CartPole-v1", people=5000)

A name becomes features when the environment is known: its observations say how many numbers there
are and, unless `state_range` does, between which ends they lie. Nothing is measured.
"""

from typing import TYPE_CHECKING, Any

from privrl.core.errors import InputError
from privrl.core.questions import Question, ask
from privrl.core.spec import Option, number

if TYPE_CHECKING:
    from privrl.control.heads import Network
    from privrl.data import Features
    from privrl.envs.base import Box, Discrete

FEATURES_HELP = "Features of states: table, polynomial:2, fourier:3 or network:16."
STATE_RANGE_HELP = "Range of each number of a state, for features by name, such as -2:2,0:10."

# Features that need to know between which ends numbers are.
_SCALED = ("polynomial", "fourier")
_REWARD_KINDS = ("cosine", "legendre")
# Some environments whose numbers have no ends say the largest that 32 bits hold.
_UNBOUNDED = 1e30

Bounds = tuple[tuple[float, ...], tuple[float, ...]]


def check_features(name: str, value: Any, *, rewards: bool = False) -> None:
    """Refuse what is neither a name of features, nor features, nor None."""
    if value is None:
        return
    if isinstance(value, str):
        allowed = ("table", *_SCALED, *(_REWARD_KINDS if rewards else ("network",)))
        if value.partition(":")[0] not in allowed:
            listed = (
                "table, cosine:3, legendre:3, polynomial:2 or fourier:2"
                if rewards
                else "table, polynomial:2, fourier:3 or network:16"
            )
            raise InputError(f"must be {listed}, not {value!r}.", field=name)
        return
    if rewards:
        if not callable(value):
            raise InputError("must be a feature map, such as Cosine(3).", field=name)
        return
    from privrl.control.heads import Network
    from privrl.data import Features

    if not isinstance(value, Features | Network):
        raise InputError("must be a feature map of privrl.data, or a Network.", field=name)


def is_scaled(*named: Any) -> bool:
    """Whether any of these names is of features that need a range."""
    kinds = {one.partition(":")[0] for one in named if isinstance(one, str)}
    return bool(kinds & {*_SCALED, *_REWARD_KINDS})


def refuse_unused_range(state_range: str | None, observed: "Discrete | Box", *named: Any) -> None:
    """Refuse a `state_range` that no features would use."""
    if state_range is not None and (hasattr(observed, "n") or not is_scaled(*named)):
        raise InputError(
            "is for features by name of numbers, such as fourier:3: leave it out.",
            field="state_range",
        )


def features_by_name(
    word: str, observed: "Discrete | Box", name: str, state_range: str | None
) -> "Features | Network":
    """The features of this name, for observations like these; `name` is the environment's."""
    from privrl.data import OneHot

    kind, _, rest = word.partition(":")
    if kind == "network":
        return network_by_sizes(rest)
    if kind == "table":
        if hasattr(observed, "n"):
            return OneHot(observed.n)
        raise InputError(f"{name} observes numbers, so there is no table: say others.")
    return scaled_features(word, bounds_of(observed, name, state_range))


def vector_features(word: str | None, state_range: str | None, count: int) -> "Features | None":
    """The features of this name, of a table's states of `count` numbers; None if neither is said.

    With a range alone they are polynomials of order 2.
    """
    if word is None and state_range is None:
        return None
    if state_range is None:
        raise InputError(
            "is needed with features: say what each state could be, in the order of --state, such "
            "as 30:200,40:140.",
            field="state_range",
        )
    if word is not None and word.partition(":")[0] not in _SCALED:
        raise InputError(f"must be polynomial:2 or fourier:3, not {word!r}.", field="features")
    return scaled_features(word or "polynomial:2", parse_bounds(state_range, count))


def scaled_features(word: str, bounds: Bounds) -> "Features":
    """The features of this name, such as fourier:3, of numbers between these ends."""
    from privrl.data import Fourier, Polynomial
    from privrl.privacy.mechanisms.reward_model import Cosine, Legendre

    kind, _, order = word.partition(":")
    plain = "3" if kind in _REWARD_KINDS else "2"
    degree = Option("the order of features", "", int, optional=False).read(order or plain)
    makers: dict[str, Any] = {"polynomial": Polynomial, "fourier": Fourier}
    found: Features = (makers | {"cosine": Cosine, "legendre": Legendre})[kind](degree, *bounds)
    return found


def network_by_sizes(sizes: str, features: "Features | None" = None) -> "Network":
    """A network by its sizes, which stand behind network: in a name."""
    from privrl.control.heads import Network

    try:
        return Network(tuple(int(size) for size in (sizes or "16").split(",")), features)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError("network needs sizes, by commas, such as network:16,16.") from None


def is_bounded(observed: "Discrete | Box") -> bool:
    """Whether the environment says between which ends its numbers are."""
    ends = () if hasattr(observed, "n") else (*observed.low, *observed.high)
    return all(abs(end) < _UNBOUNDED for end in ends)


def bounds_of(observed: "Discrete | Box", name: str, state_range: str | None) -> Bounds:
    """Between which ends states are scaled."""
    if hasattr(observed, "n"):
        return (0.0,), (float(observed.n - 1),)
    if state_range is not None:
        return parse_bounds(state_range, len(observed.low))
    if not is_bounded(observed):
        ask([range_question(name)])
    return observed.low, observed.high


def range_question(name: str) -> Question:
    """Asks for the ranges of an environment that does not say them."""
    return Question(
        "state_range",
        "what each of the numbers observed could be, such as -2:2,0:10",
        f"{name} does not say",
    )


def parse_bounds(text: str, count: int) -> Bounds:
    """The ends of each of `count` numbers, of text such as 30:200,40:140."""
    pairs = [_ends(part) for part in text.split(",")] if text else []
    if len(pairs) != count:
        raise InputError(
            f"state_range has {len(pairs)} ranges for states of {count} numbers: give one each, in "
            "their order, such as 30:200,40:140."
        )
    return tuple(low for low, _ in pairs), tuple(high for _, high in pairs)


def _ends(text: str) -> tuple[float, float]:
    parts = text.split(":")
    if len(parts) != 2:
        raise InputError("must have two ends for each number, such as -2:2.", field="state_range")
    low, high = (number("state_range", part) for part in parts)
    if not low < high:
        raise InputError(
            f"must have the lowest first: {low:g} is not below {high:g}.", field="state_range"
        )
    return low, high
