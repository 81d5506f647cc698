"""What an evaluation gives back: figures, and what they promise about the people in the data.

A `Result` holds a `Certificate`, a paper's `Claim`, or the plain statement `NotPrivate`; which one
is its type's business, not a flag's. With a certificate it holds nothing that was not paid for:
diagnostics that look at the data again are there only if the caller declared the data public.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.core.text import Displayed
from privrl.core.types import Floats
from privrl.data.features import Features, features_from_dict
from privrl.data.policies import Policy
from privrl.data.policy_json import policy_from_dict
from privrl.privacy.certificate import Certificate, Claim

_KIND = "privrl evaluation"
_FORMAT = 1


@dataclass(frozen=True)
class NotPrivate:
    """The result may give away anybody in the data."""

    why: str = "the estimator adds no noise"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"kind": "privrl not private", "why": self.why}

    def __str__(self) -> str:
        return f"Not private: {self.why}."


Promise = Certificate | Claim | NotPrivate


@dataclass(frozen=True, eq=False)
class PolicyFeatures:
    """sum_a pi(a|s) psi(s, a), with psi(s, a) the features of s in the block of action a.

    The value of a state is linear in these when action values are linear in psi. Their norm is that
    of the state's features times the norm of the policy's row, which is at most 1.
    """

    features: Features
    policy: Policy

    @property
    def dimension(self) -> int:
        """How many features there are: a block for each action."""
        return self.features.dimension * self.policy.num_actions

    @property
    def norm_bound(self) -> float:
        """No state's features have a larger L2 norm."""
        return self.features.norm_bound

    def __call__(self, states: Any) -> Floats:
        """(n, A d) features of (n,) or (n, k) states."""
        phi = np.asarray(self.features(states), dtype=np.float64)
        probs = np.asarray(self.policy.probabilities(states), dtype=np.float64)
        return np.asarray((probs[:, :, None] * phi[:, None, :]).reshape(len(phi), -1))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, if the features and the policy have one."""
        described: Any = self.features
        return {
            "kind": "policy",
            "features": described.to_dict(),
            "policy": self.policy.to_dict(),
        }


@dataclass(frozen=True)
class Interval:
    """Where the value lies, at a nominal level.

    `parts` says what the half-width is made of, so that a reader sees how much of it is the price
    of privacy: variances of "sampling" and "noise", and a "clipping" bias added on either side.
    """

    low: float
    high: float
    level: float
    parts: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "low": _finite_or_none(self.low),
            "high": _finite_or_none(self.high),
            "level": self.level,
            "parts": {name: _finite_or_none(value) for name, value in self.parts.items()},
        }


@dataclass(frozen=True, eq=False, repr=False)
class Result(Displayed):
    """The outcome of `fit`."""

    method: str
    promise: Promise
    estimate: float | None = None
    """The value of the policy from the start, if the start is known or was part of the release."""

    interval: Interval | None = None
    weights: Floats | None = None
    """Of the value function, linear in `features`."""

    features: Features | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the caller gave and everybody may know."""

    details: Mapping[str, Any] = field(default_factory=dict)
    """Further figures out of the same release (effective sample size, other policies' values)."""

    diagnostics: Mapping[str, Any] | None = None
    """Figures that look at the data again: there only if it was declared public."""

    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("settings", "details"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        if self.diagnostics is not None:
            object.__setattr__(self, "diagnostics", MappingProxyType(dict(self.diagnostics)))
        if self.weights is not None:
            weights = np.array(self.weights, dtype=np.float64)
            weights.flags.writeable = False
            object.__setattr__(self, "weights", weights)

    @property
    def certificate(self) -> Certificate:
        """The certificate, if this result has one."""
        if not isinstance(self.promise, Certificate):
            raise InputError(f"{self.method} has no certificate. {self.promise}")
        return self.promise

    @property
    def claim(self) -> Claim:
        """The paper's claim, if this result has one."""
        if not isinstance(self.promise, Claim):
            raise InputError(f"{self.method} makes no paper's claim.")
        return self.promise

    def __str__(self) -> str:
        found = "" if self.estimate is None else f" {self.estimate:.4g}"
        if self.interval is not None:
            found += f", from {self.interval.low:.4g} to {self.interval.high:.4g}"
            found += f" at {self.interval.level:.0%}"
        return f"{self.method}:{found or ' values of states'}\n{self.promise}"

    def predict(self, states: Any) -> Floats:
        """The value of each state."""
        if self.weights is None or self.features is None:
            raise InputError(f"{self.method} estimates one number, not the values of states.")
        return np.asarray(self.features(states), dtype=np.float64) @ self.weights

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        described: Any = None
        if self.features is not None:
            if not hasattr(self.features, "to_dict"):
                raise InputError("These features have no JSON form, so the result has none.")
            described = self.features.to_dict()
        return {
            "kind": _KIND,
            "format": _FORMAT,
            "method": self.method,
            "promise": self.promise.to_dict(),
            "estimate": _finite_or_none(self.estimate),
            "interval": None if self.interval is None else self.interval.to_dict(),
            "weights": None if self.weights is None else to_jsonable(self.weights),
            "features": described,
            "settings": to_jsonable(self.settings),
            "details": to_jsonable(self.details),
            "diagnostics": None if self.diagnostics is None else to_jsonable(self.diagnostics),
            "notes": list(self.notes),
        }

    def save(self, path: str | Path) -> None:
        """Write the result as JSON, wholly or not at all."""
        files.write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """The result that `save` wrote."""
        data = files.read_json(path, _KIND, _FORMAT, "the result of an evaluation")
        try:
            return cls.from_dict(data)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"{str(path)!r} is damaged.") from None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Result":
        """The result of which `to_dict` gave the JSON form."""
        weights, interval = data["weights"], data["interval"]
        return cls(
            method=str(data["method"]),
            promise=_promise(data["promise"]),
            estimate=_number(data["estimate"]),
            interval=None
            if interval is None
            else Interval(
                _bound(interval["low"], -np.inf),
                _bound(interval["high"], np.inf),
                checks.number("level", interval["level"]),
                {k: _bound(v, np.inf) for k, v in interval["parts"].items()},
            ),
            weights=None if weights is None else np.array(weights, dtype=np.float64),
            features=None if data["features"] is None else _features(data["features"]),
            settings=data["settings"],
            details=data["details"],
            diagnostics=data["diagnostics"],
            notes=tuple(data["notes"]),
        )


def _promise(data: Any) -> Promise:
    kind = files.kind_of(data)
    if kind is None:
        raise KeyError("kind")
    if kind == "privrl not private":
        return NotPrivate(str(data["why"]))
    return Claim.from_dict(data) if kind == "privrl claim" else Certificate.from_dict(data)


def _features(data: Any) -> Features:
    if data.get("kind") == "policy":
        return PolicyFeatures(_features(data["features"]), policy_from_dict(data["policy"]))
    return features_from_dict(data)


def _number(value: Any) -> float | None:
    return None if value is None else checks.number("estimate", value)


def _bound(value: Any, missing: float) -> float:
    return missing if value is None else checks.number("bound", value)


def _finite_or_none(value: float | None) -> float | None:
    """JSON has no infinities: a bound that is one is null."""
    return None if value is None or not np.isfinite(value) else float(value)


def to_jsonable(value: Any) -> Any:
    """`value` in JSON's own types."""
    if isinstance(value, Mapping):
        return {str(k): to_jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(v) for v in value]
    if isinstance(value, np.ndarray):
        return to_jsonable(value.tolist())
    if isinstance(value, np.generic):
        return to_jsonable(value.item())
    if isinstance(value, float):
        return _finite_or_none(value)
    if value is None or isinstance(value, str | int):
        return value
    return value.to_dict() if hasattr(value, "to_dict") else str(value)
