"""A spec: a frozen dataclass that is the only declaration of the options of an algorithm.

    @dataclass(frozen=True)
    class Averaging(Spec):
        \"\"\"What `--help` begins with.\"\"\"

        rate: float = option("Learning rate.", 0.1, above=0)
        optimiser: Literal["sgd", "adam"] = option("What makes steps.", "sgd")

    Averaging(rate=-1)                   # InputError: rate must be positive and finite, not -1.

A field's annotation is its type and, by `Literal`, its choices; `option` has the default, the range
and a line of help. Derived from them: validation of what Python passes (`Spec.check_fields`, called
by `__post_init__`), values read from a command line or a configuration file (`Option.read`), their
help with default, range and choices (`Option.text`), and the tables in the docs. Nothing here
imports NumPy or JAX, so that help comes at once; a module of specs keeps to that.

Two kinds of fields stand for several options: a `Budget` for epsilon and delta, and a spec within
another one for all of its own that the other does not have.
"""

import difflib
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Union, get_args, get_origin

from privrl.core import checks
from privrl.core.errors import InputError

REQUIRED: Any = MISSING
"""The default of a field that has none."""


def flag(name: str) -> str:
    """What is typed for the option of this name: --actor-step."""
    return "--" + name.rstrip("_").replace("_", "-")


@dataclass(frozen=True)
class Option:
    """One option: what a spec says about it."""

    name: str
    help: str
    kind: Any = str
    """int, float, bool, str, Path, or a tuple of these; None if there are choices only."""

    default: Any = None
    choices: tuple[str, ...] = ()
    optional: bool = True
    """Whether Python may pass None."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    shown: str | None = None
    """What help says of the default, where None stands for one that depends on other things."""

    argument: bool | str = False
    """Whether it is given without its name, as files are; or what usage calls it."""

    repeated: bool = False
    """Whether it may be given several times."""

    none: str | None = None
    """What is typed for None, where that is not the default."""

    ranges: bool = False
    """Whether it is text such as -2:2,0:10, for which a file may have a list of pairs."""

    sweepable: bool = False
    """Whether Python may pass an array: a number for each replica."""

    python: bool = False
    """Whether Python alone has it: no command line and no file."""

    text_alone: bool = False
    """Whether Python, too, passes nothing but text."""

    @property
    def flag(self) -> str:
        """What is typed: --actor-step."""
        return flag(self.name)

    @property
    def text(self) -> str:
        """The line of help: what it is, its choices or range, its default."""
        parts = [self.help if self.help.endswith("...") else self.help.rstrip(".")]
        if self.choices and not all(one in self.help for one in self.choices):
            parts.append(_listed(self.choices))
        if self._range is not None:
            parts.append(self._range)
        default = self.shown
        plain = (None, MISSING, False, ())
        if default is None and not any(self.default is one for one in plain):
            default = _as_typed(self.default)
        if default is not None:
            parts.append(f"default: {default}")
        text = "; ".join(parts)
        return text if text.endswith(("...", "?")) else text + "."

    @property
    def _range(self) -> str | None:
        ends = {
            "above": self.above,
            "at least": self.low,
            "below": self.below,
            "at most": self.high,
        }
        if self.kind is int and self.low in (None, 1):
            ends["at least"] = None
        if None not in (self.low, self.high) and self.kind is not int:
            return f"{self.low:g} to {self.high:g}"
        said = [f"{word} {end:,.10g}" for word, end in ends.items() if end is not None]
        return " and ".join(said) or None

    # --- what was typed, or stands in a file ------------------------------------------------------

    def read(self, value: Any) -> Any:
        """The value as Python has it, of what a command line or a file has."""
        if isinstance(value, str) and not value.strip():
            raise InputError("is empty: say something, or leave it out.", field=self.name)
        if self.none is not None and value == self.none:
            return value
        if self.choices and (value in self.choices or self.kind is None):
            return self.check(value)
        if self.kind is bool:
            if not isinstance(value, bool):
                raise InputError(f"must be true or false, not {value!r}.", field=self.name)
            return value
        if self.kind in (int, float):
            found = number(self.name, value)
            if self.kind is int:
                if not found.is_integer():
                    raise InputError(f"must be a whole number, not {value!r}.", field=self.name)
                return self.check(int(found))
            return self.check(found)
        if self.kind is Path:
            return Path(str(value))
        if get_origin(self.kind) is tuple:
            return self.check(self._read_tuple(value))
        if self.ranges and isinstance(value, list | tuple):
            pairs = [one if isinstance(one, list | tuple) else [one] for one in value]
            return ",".join(":".join(map(str, pair)) for pair in pairs)
        if not isinstance(value, str):
            raise InputError(f"must be text, not {value!r}.", field=self.name)
        return value

    def _read_tuple(self, value: Any) -> tuple[Any, ...]:
        inside, pair = get_args(self.kind)[0], Ellipsis not in get_args(self.kind)
        if isinstance(value, str):
            parts = (value.replace(":", ",") if pair else value).split(",")
            value = [one.strip() for one in parts]
        listed = list(value) if isinstance(value, list | tuple) else [value]
        if pair and len(listed) != 2:
            raise InputError(
                "must be two numbers, the lowest and the highest, such as 0,1.", field=self.name
            )
        if inside is str:
            return tuple(map(str, listed))
        read = tuple(number(f"a number in {self.name}", one) for one in listed)
        if inside is int and all(one.is_integer() for one in read):
            return tuple(map(int, read))
        return read

    # --- what Python passes -----------------------------------------------------------------------

    def check(self, value: Any) -> Any:
        """The value, as plain Python has it, or why it cannot be."""
        # Arrays, too, say whether they equal a word: for each of their entries.
        word = value if isinstance(value, str) else None
        if (value is None and self.optional) or (word is not None and word == self.none):
            return None
        if word is not None and word in self.choices:
            return word
        if self.kind is None:
            words = (*self.choices, self.none) if self.none else self.choices
            listed = _listed(tuple(map(repr, words)))
            raise InputError(f"must be {listed}, not {checks.shown(value)}.", field=self.name)
        if self.sweepable and hasattr(value, "ravel"):
            for entry in value.ravel().tolist():
                self.check(entry)
            return value
        if self.kind is bool:
            return checks.boolean(self.name, value)
        if self.kind is int:
            found = checks.count(self.name, value, least=1 if self.low is None else int(self.low))
            if self.high is not None and found > self.high:
                raise InputError(
                    f"must be at most {self.high:,.0f}, not {found:,}.", field=self.name
                )
            return found
        if self.kind is float:
            return self._check_float(value)
        if get_origin(self.kind) is tuple:
            return self._check_tuple(value)
        if self.text_alone and word is None:
            raise InputError(f"must be text, not {checks.shown(value)}.", field=self.name)
        return value

    def _check_float(self, value: Any) -> float:
        name, found = self.name, checks.number(self.name, value)
        if self.above == 0.0:
            checks.positive(name, found)
        elif self.low == 0.0:
            checks.non_negative(name, found)
        elif not math.isfinite(found):
            raise InputError(f"must be finite, not {found:g}.", field=name)
        bounds: list[tuple[float | None, str, Callable[[float], bool]]] = [
            (self.low, "at least", lambda end: found >= end),
            (self.high, "at most", lambda end: found <= end),
            (self.above, "above", lambda end: found > end),
            (self.below, "below", lambda end: found < end),
        ]
        for end, word, holds in bounds:
            if end is not None and not holds(end):
                raise InputError(f"must be {word} {end:g}, not {found:g}.", field=name)
        return found

    def _check_tuple(self, value: Any) -> tuple[Any, ...]:
        inside, pair = get_args(self.kind)[0], Ellipsis not in get_args(self.kind)
        if not isinstance(value, tuple | list) or (pair and len(value) != 2):
            what = "two numbers: the lowest and the highest" if pair else "a list of numbers"
            raise InputError(f"must be {what}.", field=self.name)
        if inside is str:
            return tuple(value)
        if not pair:
            one = replace(self, kind=inside, optional=False, choices=())
            return tuple(replace(one, name=f"a number in {self.name}").check(x) for x in value)
        low, high = (checks.number(self.name, end) for end in value)
        if not (low < high and math.isfinite(high - low)):
            raise InputError("must go up, by a finite difference.", field=self.name)
        return low, high


def option(
    help_text: str,
    default: Any = None,
    *,
    budget: bool = False,
    within: type["Spec"] | None = None,
    **about: Any,
) -> Any:
    """A field of a spec.

    Args:
        help_text: What it is, in a line; for a budget, whom it protects.
        default: Its default; `REQUIRED` for none.
        budget: Whether it is a `Budget`, and so the options epsilon and delta.
        within: The spec that it is, whose options stand for it.
        **about: Fields of `Option`: low, high, above, below, shown, kind, argument, ...
    """
    metadata = {"help": help_text, "about": about, "budget": budget, "within": within}
    if default is REQUIRED:
        return field(metadata=metadata)
    if isinstance(default, type | types.FunctionType):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def with_default(spec: type["Spec"], name: str, default: Any, **about: Any) -> Any:
    """A field of another spec, with a default of its own, and perhaps other help or range."""
    one = next(one for one in fields(spec) if one.name == name)  # type: ignore[arg-type]
    help_text = about.pop("help", one.metadata["help"])
    merged = {**one.metadata["about"], **about}
    return option(help_text, default, budget=one.metadata["budget"], **merged)


class Spec:
    """What has options: its fields that were made by `option`."""

    SWEEPABLE: ClassVar[tuple[str, ...]] = ()
    """The options that replicas of one compiled program may have each a value of their own for."""

    @classmethod
    @cache
    def options(cls) -> dict[str, Option]:
        """The options of a command line or a file, by name."""
        declared = [one for one in fields(cls) if "help" in one.metadata]  # type: ignore[arg-type]
        own = [one for one in declared if one.metadata["within"] is None]
        found = {made.name: made for one in own for made in _options_of(one) if not made.python}
        for one in declared:
            within: type[Spec] | None = one.metadata["within"]
            found |= {} if within is None else {**within.options(), **found}
        return found

    def check_fields(self) -> None:
        """Refuse what a field cannot be, by its type, choices and range; keep plain numbers."""
        for one in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            if "help" in one.metadata and not (one.metadata["budget"] or one.metadata["within"]):
                value = _option_of(one).check(getattr(self, one.name))
                object.__setattr__(self, one.name, value)

    @classmethod
    def check_swept(cls, name: str, values: Any) -> None:
        """Refuse what a sweep must not hold: a number for each replica."""
        if name not in cls.SWEEPABLE:
            raise InputError(f"{name!r} cannot be swept: use {', '.join(cls.SWEEPABLE)}.")
        one = next(one for one in fields(cls) if one.name == name)  # type: ignore[arg-type]
        replace(_option_of(one), sweepable=True, optional=False).check(values)

    @classmethod
    def from_options(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that options, as they were read, come to; but for a budget."""
        names = [one.name for one in fields(cls)]  # type: ignore[arg-type]
        return {name: given[name] for name in names if given.get(name) is not None}


def plain_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of options, by name, in JSON's own types."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def find_option(
    options: Mapping[str, Option], name: str, of: str, instead: Mapping[str, str] = {}
) -> Option:
    """The option of this name, or why there is none, with a near miss or what `instead` has."""
    # Words of Python's are fields with an underscore: lambda_.
    for tried in (name, f"{name}_"):
        if tried in options:
            return options[tried]
    near = [instead[name]] if name in instead else difflib.get_close_matches(name, options, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"There is no option {name!r} of {of}.{hint}")


def number(name: str, value: Any) -> float:
    """A number, also if it was typed."""
    try:
        return checks.number(name, float(value) if isinstance(value, str) else value)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"must be a number, not {value!r}.", field=name) from None


def _options_of(one: "Field[Any]") -> tuple[Option, ...]:
    if one.metadata["budget"]:
        whom = one.metadata["help"]
        return (
            Option("epsilon", f"Privacy budget epsilon, {whom}.", float, above=0.0),
            Option("delta", "Failure probability delta.", float, low=0.0, below=1.0),
        )
    return (_option_of(one),)


def _option_of(one: "Field[Any]") -> Option:
    about = dict(one.metadata["about"])
    choices: tuple[str, ...] = ()
    kind, optional = about.pop("kind", None), True
    if kind is None:
        kind, choices, optional = _parse_annotation(one.type)
        about.setdefault("text_alone", kind is str)
    return Option(
        one.name, one.metadata["help"], kind, one.default, choices, optional=optional, **about
    )


def _parse_annotation(kind: Any) -> tuple[Any, tuple[str, ...], bool]:
    """Of an annotation: the type, the choices, and whether None is allowed."""
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    choices = tuple(
        word for part in parts if get_origin(part) is Literal for word in get_args(part) if word
    )
    optional = type(None) in parts or any(
        None in get_args(part) for part in parts if get_origin(part) is Literal
    )
    plain = [part for part in parts if part is not type(None) and get_origin(part) is not Literal]
    if len(plain) > 1:
        raise TypeError(f"{kind} is not one type: say which by kind=.")
    return (plain[0] if plain else None), choices, optional


def _listed(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" or {words[-1]}"


def _as_typed(value: Any) -> str:
    """A default as it would be typed."""
    if isinstance(value, tuple):
        return ",".join(map(_as_typed, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
