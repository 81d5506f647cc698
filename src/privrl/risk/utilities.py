"""What gains and losses are worth: utilities around a reference point."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.risk.arrays import safe_power, to_float_arrays


@runtime_checkable
class Utility(Protocol):
    """What a prospect asks of a utility: frozen, hashable, and rising through 0 at `reference`."""

    @property
    def reference(self) -> float:
        """Where gains begin and losses end."""
        ...

    def gain(self, outcome: Any) -> Any:
        """u+, which is 0 for losses."""
        ...

    def loss(self, outcome: Any) -> Any:
        """u-, which is 0 for gains, and positive for losses."""
        ...

    def __call__(self, outcome: Any) -> Any:
        """u+ - u-."""
        ...

    def inverse(self, worth: Any) -> Any:
        """The outcome that is worth so much."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        ...


@dataclass(frozen=True)
class PowerUtility:
    """(x - b)^gains above the reference b, and -loss_aversion (b - x)^losses below it.

    The default is the median person of Tversky and Kahneman (1992). With exponents below 1 its
    slope at the reference is infinite; derivatives by autodiff are 0 there instead.
    """

    gains: float = 0.88
    """The exponent of gains."""

    losses: float = 0.88
    """The exponent of losses."""

    loss_aversion: float = 2.25
    """How much more a loss weighs than a gain."""

    reference: float = 0.0
    """b: what counts neither as a gain nor as a loss."""

    def __post_init__(self) -> None:
        for name in ("gains", "losses"):
            exponent = checks.positive(name, getattr(self, name))
            if exponent > 1.0:
                raise InputError(f"{name}, an exponent, must be at most 1, not {exponent:g}.")
            object.__setattr__(self, name, exponent)
        aversion = checks.positive("loss_aversion", self.loss_aversion)
        object.__setattr__(self, "loss_aversion", aversion)
        reference = checks.number("reference", self.reference)
        if abs(reference) > 1e100:
            raise InputError(f"must be from -1e100 to 1e100, not {reference:g}.", field="reference")
        object.__setattr__(self, "reference", reference)

    def gain(self, outcome: Any) -> Any:
        xp, (x,) = to_float_arrays("outcomes", outcome)
        return safe_power(xp, xp.maximum(x - self.reference, 0.0), self.gains)

    def loss(self, outcome: Any) -> Any:
        xp, (x,) = to_float_arrays("outcomes", outcome)
        return self.loss_aversion * safe_power(xp, xp.maximum(self.reference - x, 0.0), self.losses)

    def __call__(self, outcome: Any) -> Any:
        xp, (x,) = to_float_arrays("outcomes", outcome)
        # Also for what is no number, which is neither a gain nor a loss.
        return xp.where(xp.isnan(x), x, self.gain(x) - self.loss(x))

    def inverse(self, worth: Any) -> Any:
        xp, (y,) = to_float_arrays("utilities", worth)
        up = safe_power(xp, xp.maximum(y, 0.0), 1.0 / self.gains)
        down = safe_power(xp, xp.maximum(-y, 0.0) / self.loss_aversion, 1.0 / self.losses)
        return xp.where(xp.isnan(y), y, self.reference + up - down)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "power", **asdict(self)}


def utility_from_dict(data: Any) -> Utility:
    """The utility of which `to_dict` gave the JSON form."""
    if not isinstance(data, Mapping) or data.get("kind") != "power":
        raise InputError("A utility has the kind 'power'.")
    settings = {name: value for name, value in data.items() if name != "kind"}
    try:
        return PowerUtility(**settings)
    except TypeError:
        raise InputError("A utility of the kind 'power' has other settings.") from None
