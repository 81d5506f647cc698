"""What one evaluation found, what was assumed for it, and what it promises: the content of a run.

A `Study` is all that a report is made of, and all that leaves the place where the data is. With a
certificate it holds nothing that was not paid for or given by the caller.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from privrl.core import files
from privrl.core.errors import InputError
from privrl.core.text import Displayed
from privrl.evaluation.result import Result, to_jsonable
from privrl.privacy.certificate import Certificate

_KIND = "privrl study"
_FORMAT = 1

Origin = Literal["given", "default", "derived", "counted", "declared", "noticed"]


@dataclass(frozen=True)
class Fact:
    """Something that was taken to be public: never measured on the data, but for a count."""

    name: str
    """As the command line and Python call it, for example `reward_range`."""

    value: str
    """For people, for example "0 to 1"."""

    meaning: str
    """What it says about the people in the data, in a sentence."""

    origin: Origin = "given"
    """Whether the caller gave it, took the default, it follows from others, is a count of who is in
    the data, which is public, is the caller's word (or none) on what nobody can check, or was
    noticed."""


@dataclass(frozen=True)
class CurvePoint:
    """How wide the interval would be at another epsilon: on made-up data of the same shape."""

    epsilon: float
    half_width: float
    """Half the width of the interval of the target policy's value."""

    noise_free: float
    """The same without noise: what the data alone allows."""


@dataclass(frozen=True)
class Slice:
    """The value of states along one coordinate, the others at the middle of their ranges.

    With `discrete` states, `at` holds their numbers and `labels` their names, if they have any.
    """

    coordinate: str
    at: tuple[float, ...]
    values: tuple[float, ...]
    labels: tuple[str, ...] | None = None
    discrete: bool = False


@dataclass(frozen=True, repr=False)
class Study(Displayed):
    """See the module. Made by `privrl.run.evaluation.evaluate`."""

    title: str
    """For people: what was evaluated on which data."""

    results: tuple[Result, ...]
    """One for each estimator, the main one (`PrivateValue`) first."""

    certificate: Certificate | None
    """Of everything together; None if the data was declared public."""

    facts: tuple[Fact, ...] = ()
    target_name: str = "new policy"
    behavior_name: str = "as logged"
    curve: tuple[CurvePoint, ...] = ()
    curve_people: int = 0
    """How many made-up people the curve was computed with."""

    slices: tuple[Slice, ...] = ()
    """Out of the released value function."""

    notes: tuple[str, ...] = ()
    """Loud remarks: probabilities that were estimated, a seed that makes the noise no secret."""

    command: str = ""
    """The command line that gives this study again (with fresh noise), if there was one."""

    created: str = ""
    """Date and time, ISO 8601."""

    def __post_init__(self) -> None:
        if not self.results:
            raise InputError("A study needs at least one result.")

    def __str__(self) -> str:
        figures = [str(one).splitlines()[0] for one in self.results]
        promise = "Not private." if self.certificate is None else str(self.certificate)
        return "\n".join([f"Study: {self.title}", *figures, promise])

    @property
    def main(self) -> Result:
        """The result people ask for."""
        return self.results[0]

    @property
    def on_policy(self) -> bool:
        """Whether the policy that was followed is judged, and compared with no other."""
        return self.target_name == self.behavior_name and "difference" not in self.main.details

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        certificate = None if self.certificate is None else self.certificate.to_dict()
        return {
            "kind": _KIND,
            "format": _FORMAT,
            "title": self.title,
            "created": self.created,
            "command": self.command,
            "target_name": self.target_name,
            "behavior_name": self.behavior_name,
            "certificate": certificate,
            "results": [result.to_dict() for result in self.results],
            "facts": [vars(fact) for fact in self.facts],
            "curve": [to_jsonable(vars(point)) for point in self.curve],
            "curve_people": self.curve_people,
            "slices": [to_jsonable(vars(one)) for one in self.slices],
            "notes": list(self.notes),
        }

    def save(self, path: str | Path) -> None:
        """Write the study as JSON, wholly or not at all."""
        files.write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Study":
        """The study that `save` wrote."""
        data = files.read_json(path, _KIND, _FORMAT, "the study of an evaluation")
        try:
            return cls.from_dict(data)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"{str(path)!r} is damaged.") from None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Study":
        """The study whose JSON form is `data`."""
        certificate = data["certificate"]
        return cls(
            title=str(data["title"]),
            results=tuple(Result.from_dict(one) for one in data["results"]),
            certificate=None if certificate is None else Certificate.from_dict(certificate),
            facts=tuple(Fact(**one) for one in data["facts"]),
            target_name=str(data["target_name"]),
            behavior_name=str(data["behavior_name"]),
            curve=tuple(CurvePoint(**_numbers(one)) for one in data["curve"]),
            curve_people=int(data["curve_people"]),
            slices=tuple(_slice(one) for one in data["slices"]),
            notes=tuple(map(str, data["notes"])),
            command=str(data["command"]),
            created=str(data["created"]),
        )


def _slice(data: Mapping[str, Any]) -> Slice:
    labels = data["labels"]
    return Slice(
        str(data["coordinate"]),
        tuple(map(_number, data["at"])),
        tuple(map(_number, data["values"])),
        None if labels is None else tuple(map(str, labels)),
        bool(data["discrete"]),
    )


def _numbers(data: Mapping[str, Any]) -> dict[str, float]:
    return {name: _number(value) for name, value in data.items()}


def _number(value: Any) -> float:
    """JSON has no infinities: what is none was no number."""
    return math.nan if value is None else float(value)
