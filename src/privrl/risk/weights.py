"""How probabilities are felt: functions w of [0, 1] onto itself that rise from 0 to 1.

The slope of both weights at 0 is infinite, so they are not Lipschitz: w(p) / p grows without bound
as p falls. Nothing here may rest a promise of privacy on their being smooth. Where p is 0 or 1,
derivatives by autodiff are 0 instead.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.risk.arrays import safe_power, to_float_arrays


@runtime_checkable
class Weight(Protocol):
    """What a prospect asks of a weight: frozen and hashable."""

    def __call__(self, prob: Any) -> Any:
        """w of each probability."""
        ...

    def slope(self, prob: Any) -> Any:
        """w' of each probability; infinite at an end where it is."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        ...


@dataclass(frozen=True)
class TverskyKahneman:
    """w(p) = p^g / (p^g + (1 - p)^g)^(1/g), with g = `gamma`; Tversky and Kahneman (1992).

    Below about 0.279 it falls in places, which no weight may.
    """

    gamma: float = 0.61

    def __post_init__(self) -> None:
        gamma = checks.number("gamma", self.gamma)
        if not 0.28 <= gamma <= 1.0:
            raise InputError(f"gamma of a weight must be from 0.28 to 1, not {gamma:g}.")
        object.__setattr__(self, "gamma", gamma)

    def __call__(self, prob: Any) -> Any:
        xp, (p,) = to_float_arrays("probabilities", prob)
        g = self.gamma
        up, down = safe_power(xp, p, g), safe_power(xp, 1.0 - p, g)
        return up / (up + down) ** (1.0 / g)

    def slope(self, prob: Any) -> Any:
        xp, (p,) = to_float_arrays("probabilities", prob)
        g = self.gamma
        if g == 1.0:
            return xp.ones_like(p)
        inside = (p > 0.0) & (p < 1.0)
        q = xp.where(inside, p, 0.5)
        up, down = q**g, (1.0 - q) ** g
        both = up + down
        inner = g * q ** (g - 1.0) - up * (q ** (g - 1.0) - (1.0 - q) ** (g - 1.0)) / both
        return xp.where(inside, inner / both ** (1.0 / g), math.inf)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "tversky-kahneman", **asdict(self)}


@dataclass(frozen=True)
class Prelec:
    """w(p) = exp(-scale (-log p)^eta); Prelec (1998)."""

    eta: float = 0.65
    scale: float = 1.0

    def __post_init__(self) -> None:
        eta = checks.positive("eta", self.eta)
        scale = checks.positive("scale", self.scale)
        if eta > 1.0:
            raise InputError(f"must be above 0 and at most 1, not {eta:g}.", field="eta")
        object.__setattr__(self, "eta", eta)
        object.__setattr__(self, "scale", scale)

    def __call__(self, prob: Any) -> Any:
        xp, (p,) = to_float_arrays("probabilities", prob)
        there = p > 0.0
        far = -xp.log(xp.where(there, p, 1.0))
        return xp.where(there, xp.exp(-self.scale * safe_power(xp, far, self.eta)), 0.0)

    def slope(self, prob: Any) -> Any:
        xp, (p,) = to_float_arrays("probabilities", prob)
        inside = (p > 0.0) & (p < 1.0)
        q = xp.where(inside, p, 0.5)
        far = -xp.log(q)
        found = self(q) * self.scale * self.eta * far ** (self.eta - 1.0) / q
        if self.eta == 1.0:
            # A power of p: its slope at the ends depends on which.
            at_0 = math.inf if self.scale < 1.0 else float(self.scale == 1.0)
            return xp.where(inside, found, xp.where(p > 0.0, self.scale, at_0))
        return xp.where(inside, found, math.inf)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "prelec", **asdict(self)}


@dataclass(frozen=True)
class IdentityWeight:
    """w(p) = p: probabilities as they are."""

    def __call__(self, prob: Any) -> Any:
        return to_float_arrays("probabilities", prob)[1][0]

    def slope(self, prob: Any) -> Any:
        xp, (p,) = to_float_arrays("probabilities", prob)
        return xp.ones_like(p)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "straight"}


_KINDS: dict[str, Any] = {
    "tversky-kahneman": TverskyKahneman,
    "prelec": Prelec,
    "straight": IdentityWeight,
}


def weight_from_dict(data: Any) -> Weight:
    """The weight of which `to_dict` gave the JSON form."""
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(f"A weight has a kind, which is one of {', '.join(_KINDS)}.")
    settings = {name: value for name, value in data.items() if name != "kind"}
    try:
        made: Weight = _KINDS[kind](**settings)
    except TypeError:
        raise InputError(f"A weight of the kind {kind!r} has other settings.") from None
    return made
