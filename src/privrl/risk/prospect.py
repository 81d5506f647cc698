"""The value of an uncertain outcome to somebody who weighs probabilities, gains and losses.

With utilities u+ and u-, which are 0 for losses and for gains, and weights w+ and w- of
probabilities, the CPT value of a random outcome Y is (rajabi2022, Definition 3)

    rho(Y) = int_0^inf w+(P(u+(Y) > z)) dz  -  int_0^inf w-(P(u-(Y) > z)) dz.

*A distribution* (Definition 4) with outcomes y_1 <= ... <= y_K of probabilities p_i: with F_i the
probability of y_i or more and G_i that of y_i or less,

    rho = sum_i u+(y_i) (w+(F_i) - w+(F_{i+1}))  -  sum_i u-(y_i) (w-(G_i) - w-(G_{i-1})).

*Samples* x_(1) <= ... <= x_(n): the distribution that gives each the probability 1 / n, so that

    rho = sum_i u+(x_(i)) (w+((n+1-i)/n) - w+((n-i)/n)) - sum_i u-(x_(i)) (w-(i/n) - w-((i-1)/n)).

The weights of gains sum to 1, and so do those of losses: the value of a constant c is u(c). The
paper prints (n+i-1)/n, which is above 1, for (n+1-i)/n: a negative number to a fractional power,
which is complex. The estimator is consistent, with an error of order n^(-g/2) for weights that are
g-Hoelder (Prashanth et al. 2016), as those of exponent g are.

rho is monotone: if Y' >= Y for certain, rho(Y') >= rho(Y). It is *not* Lipschitz, since u has an
infinite slope at the reference point and w at 0 and 1. So no sensitivity follows from it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.core.spec import number
from privrl.core.types import Floats
from privrl.risk.arrays import to_float_arrays
from privrl.risk.utilities import PowerUtility, Utility, utility_from_dict
from privrl.risk.weights import IdentityWeight, TverskyKahneman, Weight, weight_from_dict

# How far probabilities may be from summing to 1.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Prospect:
    """Somebody's way of weighing; frozen and hashable, so that compiled code may hold it."""

    utility: Utility = PowerUtility()  # noqa: RUF009 (frozen, so that it can be shared)
    gain_weight: Weight = TverskyKahneman(0.61)  # noqa: RUF009 (the same)
    loss_weight: Weight = TverskyKahneman(0.69)  # noqa: RUF009 (the same)

    def __post_init__(self) -> None:
        if not isinstance(self.utility, Utility):
            raise InputError("must be one of privrl.risk, such as PowerUtility().", field="utility")
        for name in ("gain_weight", "loss_weight"):
            if not isinstance(getattr(self, name), Weight):
                raise InputError(
                    "must be one of privrl.risk, such as TverskyKahneman().", field=name
                )

    @classmethod
    def tversky_kahneman(cls) -> "Prospect":
        """The median person of Tversky and Kahneman (1992), who minds a loss 2.25 times as much."""
        return cls()

    @classmethod
    def rajabi2022(cls) -> "Prospect":
        """The paper's: the same without loss aversion."""
        return cls(PowerUtility(loss_aversion=1.0))

    @classmethod
    def neutral(cls) -> "Prospect":
        """Whoever goes by the mean."""
        return cls(PowerUtility(1.0, 1.0, 1.0), IdentityWeight(), IdentityWeight())

    # --- values -----------------------------------------------------------------------------------

    def of_samples(self, samples: Any, axis: int = -1) -> Any:
        """rho of samples along `axis`; see the module. A sample that is no number makes it none."""
        xp, (x,) = to_float_arrays("samples", samples)
        if not -x.ndim <= axis < x.ndim or x.shape[axis] == 0:
            raise InputError("must be at least one, along an axis that they have.", field="samples")
        ordered = xp.sort(xp.moveaxis(x, axis, -1), axis=-1)
        gains, losses = self._decision_weights(x.shape[axis])
        up = self.utility.gain(ordered) @ xp.asarray(gains, x.dtype)
        down = self.utility.loss(ordered) @ xp.asarray(losses, x.dtype)
        return xp.where(xp.any(xp.isnan(ordered), axis=-1), math.nan, up - down)

    def _decision_weights(self, n: int) -> tuple[Floats, Floats]:
        """What each of n ordered samples counts, as a gain and as a loss."""
        probs = np.arange(n + 1) / n
        gains = np.diff(np.asarray(self.gain_weight(probs), np.float64))[::-1]
        return gains, np.diff(np.asarray(self.loss_weight(probs), np.float64))

    def of_distribution(self, outcomes: Any, probs: Any, axis: int = -1) -> Any:
        """rho of outcomes with these probabilities along `axis`, in any order; see the module.

        Differentiable in both; it depends on the probabilities' proportions only. In compiled code
        they are not checked: let them be 0 or more.
        """
        xp, (y, p) = to_float_arrays("outcomes and probabilities", outcomes, probs)
        try:
            y, p = xp.broadcast_arrays(y, p)
        except ValueError:
            raise InputError("outcomes and probabilities must be as many.") from None
        if not -y.ndim <= axis < y.ndim or y.shape[axis] == 0:
            raise InputError(
                "must be at least one, along an axis that they have.", field="outcomes"
            )
        y, p = xp.moveaxis(y, axis, -1), xp.moveaxis(p, axis, -1)
        if xp is np:
            off = np.abs(np.sum(p, axis=-1) - 1.0)
            if not (np.all(p >= 0.0) and np.all(off <= _ROUNDING)):
                raise InputError("probabilities must be 0 or more and sum to 1.")
        order = xp.argsort(y, axis=-1)
        y = xp.take_along_axis(y, order, axis=-1)
        p = xp.take_along_axis(p, order, axis=-1)
        # Divided by their own totals: the probability of anything at all is then 1 and not a
        # rounding error less, where weights are infinitely steep.
        below = xp.cumsum(p, axis=-1)
        above = xp.flip(xp.cumsum(xp.flip(p, -1), axis=-1), -1)
        below, above = below / below[..., -1:], above / above[..., :1]
        none = xp.zeros_like(p[..., :1])
        gains = self.gain_weight(above)
        gains = gains - xp.concatenate([gains[..., 1:], none], axis=-1)
        losses = self.loss_weight(below)
        losses = losses - xp.concatenate([none, losses[..., :-1]], axis=-1)
        up = _product(xp, self.utility.gain(y), gains)
        down = _product(xp, self.utility.loss(y), losses)
        nothing = xp.any(xp.isnan(y), axis=-1)
        return xp.where(nothing, math.nan, xp.sum(up, axis=-1) - xp.sum(down, axis=-1))

    def of_density(
        self,
        density: Callable[[Floats], Any],
        low: float = -math.inf,
        high: float = math.inf,
        points: Sequence[float] = (),
    ) -> float:
        """rho of an outcome with this density from `low` to `high`, by double exponential rules.

        `points` are where the density jumps, or has a narrow peak. It must integrate to 1, which is
        checked.
        """
        from privrl.risk.densities import value

        return value(self, density, low, high, points)

    def certainty_equivalent(self, value: Any) -> Any:
        """What for certain would be worth as much: u^-1 of a CPT value."""
        return self.utility.inverse(value)

    @cached_property
    def is_neutral(self) -> bool:
        """Whether rho is the mean."""
        return self == Prospect.neutral()

    # --- JSON -------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "kind": _KIND,
            "format": _FORMAT,
            "utility": self.utility.to_dict(),
            "gain_weight": self.gain_weight.to_dict(),
            "loss_weight": self.loss_weight.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Any) -> "Prospect":
        """The prospect of which `to_dict` gave the JSON form."""
        if files.kind_of(data) != _KIND or not isinstance(data, Mapping):
            raise InputError(f"A prospect is an object of the kind {_KIND!r}.")
        parts = ("utility", "gain_weight", "loss_weight")
        missing = [name for name in parts if name not in data]
        if missing:
            raise InputError(f"The prospect has no {missing[0]}.")
        return cls(
            utility_from_dict(data["utility"]),
            weight_from_dict(data["gain_weight"]),
            weight_from_dict(data["loss_weight"]),
        )

    def save(self, path: Any) -> None:
        """Write the prospect as JSON, wholly or not at all."""
        files.write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: Any) -> "Prospect":
        """The prospect that `save` wrote."""
        return cls.from_dict(files.read_json(path, _KIND, _FORMAT, "a prospect"))


def _product(xp: Any, worth: Any, share: Any) -> Any:
    """Their product, also where an outcome without any probability is infinite."""
    return xp.where((share == 0.0) & ~xp.isfinite(worth), 0.0, worth) * share


_KIND, _FORMAT = "privrl prospect", 1
NAMES: dict[str, Callable[[], Prospect]] = {
    "neutral": Prospect.neutral,
    "tversky-kahneman": Prospect.tversky_kahneman,
    "rajabi2022": Prospect.rajabi2022,
}
"""Prospects that can be asked for by name."""


def parse_outcomes(text: str, *, equally_likely: bool) -> tuple[list[float], list[float]]:
    """Outcomes and their probabilities, of text such as 20:0.05,0:0.95 or, equally likely, -1,4."""
    values, probs = [], []
    parts = [one.strip() for one in text.split(",")]
    for part in parts:
        outcome, colon, prob = part.partition(":")
        if equally_likely and colon:
            raise InputError(f"Samples are equally likely: say {outcome!r} without a probability.")
        if not equally_likely and not colon:
            raise InputError(f"Say how likely {part!r} is, such as {part or 20}:0.05.")
        values.append(number("outcomes", outcome))
        if not math.isfinite(values[-1]):
            raise InputError(f"must be finite, not {outcome}.", field="outcomes")
        probs.append(number("A probability", prob) if colon else 1 / len(parts))
    return values, probs


def parse_prospect(wish: Any) -> Prospect:
    """A prospect by its name, its JSON form, or the path of a file that holds it."""
    if isinstance(wish, Prospect):
        return wish
    if isinstance(wish, Mapping):
        return Prospect.from_dict(wish)
    if not isinstance(wish, str):
        raise InputError(
            f"must be a Prospect, or its name, such as tversky-kahneman, not {checks.shown(wish)}.",
            field="prospect",
        )
    if wish in NAMES:
        return NAMES[wish]()
    if wish.endswith(".json"):
        return Prospect.load(wish)
    raise InputError(f"must be {', '.join(NAMES)} or a file .json, not {wish!r}.", field="prospect")
