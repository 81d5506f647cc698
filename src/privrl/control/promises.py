"""What a learned agent promises, in JSON: a certificate, a paper's claim, or nothing, and why."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from privrl.core import files
from privrl.core.errors import InputError
from privrl.core.text import Displayed
from privrl.core.types import Floats
from privrl.privacy.certificate import Certificate, Claim

_FORMAT = 1

Promise = Certificate | Claim | str
"""A text where there is neither."""


def promise_to_dict(promise: Promise) -> dict[str, Any]:
    """The JSON form."""
    if isinstance(promise, str):
        return {"kind": "privrl not private", "why": promise}
    return promise.to_dict()


def promise_from_dict(data: Any) -> Promise:
    """The promise of which `promise_to_dict` gave the JSON form."""
    kind = files.kind_of(data)
    if kind is None:
        raise KeyError("kind")
    if kind == "privrl not private":
        return str(data["why"])
    return Claim.from_dict(data) if kind == "privrl claim" else Certificate.from_dict(data)


class Acts(Displayed, ABC):
    """A learned agent: it acts by its policy, is shown by what it promises, and saved as JSON."""

    promise: Any
    settings: Mapping[str, Any]
    policy: Any

    KIND: ClassVar[str]
    """Of its file."""

    SAVED: ClassVar[str]
    """What the file holds, for people."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    def probabilities(self, states: Any) -> Floats:
        """How likely each action is in each state: (n, A)."""
        return np.asarray(self.policy.probabilities(np.asarray(states)), dtype=np.float64)

    def act(self, observation: Any, *, deterministic: bool = False, key: Any = None) -> Any:
        """An action for one observation, or one for each of a batch: see `Policy.act`."""
        return self.policy.act(observation, deterministic=deterministic, key=key)

    def predict(self, observation: Any, *given: Any, **options: Any) -> tuple[Any, None]:
        """An action and no state, as Stable-Baselines3 has it: see `Policy.predict`."""
        found: tuple[Any, None] = self.policy.predict(observation, *given, **options)
        return found

    @abstractmethod
    def _to_json(self) -> dict[str, Any]:
        """All but what kind of file it is."""

    @classmethod
    @abstractmethod
    def _from_json(cls, data: Mapping[str, Any]) -> Self:
        """The result of which `_to_json` gave the JSON form; any error says that it is damaged."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"kind": self.KIND, "format": _FORMAT, **self._to_json()}

    def save(self, path: str | Path) -> None:
        """Write the result as JSON, wholly or not at all."""
        files.write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The result that `save` wrote."""
        data = files.read_json(path, cls.KIND, _FORMAT, cls.SAVED)
        try:
            return cls._from_json(data)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise InputError(f"{str(path)!r} is damaged.") from None

    def __str__(self) -> str:
        promise = str(self.promise)
        where = f" of {self.settings['env']}" if "env" in self.settings else ""
        return f"{type(self).__name__}{where}: {promise.splitlines()[0]}\n{promise}"


class HasPromise(Acts):
    """What was learned, with a promise about it: for results to inherit from."""

    promise: Promise

    @property
    def certificate(self) -> Certificate:
        """The certificate, if there is one."""
        if not isinstance(self.promise, Certificate):
            raise InputError(f"This agent has no certificate. {self.promise}")
        return self.promise

    @property
    def claim(self) -> Claim:
        """The paper's claim, if there is one."""
        if not isinstance(self.promise, Claim):
            raise InputError("This agent makes no paper's claim.")
        return self.promise
