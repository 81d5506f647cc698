"""What can go wrong, as types whose message is one sentence for people.

Every error that a caller's input can provoke derives from `PrivRLError`; the command line prints
its message and exits with 2. Anything else that escapes is a bug of ours and keeps its traceback.

Where a sentence names a parameter, by `option`, each front writes it in its own way:

    InputError("the rows are mixed up", remedy="sort them, or pass " + option("sort", True) + ".")

says sort=True in Python, by `str(error)`, and --sort on the command line, by `error.render(front)`.
Nothing is marked by characters: in f-strings and elsewhere, the text is a string in Python's words.
"""

from collections.abc import Callable
from typing import NamedTuple


class Option(NamedTuple):
    """A parameter in a sentence, by its name in Python; a value alone, if the name is empty."""

    name: str
    value: object = None
    given: bool = False
    """Whether the sentence is about what the caller gave for it."""


OptionFormatter = Callable[[Option], str]


def python_option(one: Option) -> str:
    """`sort=True`, or the name or value alone."""
    shown = "" if one.value is None else repr(one.value)
    return "=".join(part for part in (one.name, shown) if part)


class Text(str):
    """A string in Python's words that keeps the parameters it names, also when it is added to."""

    __slots__ = ("parts",)
    parts: tuple[str | Option, ...]

    def __new__(cls, *parts: str | Option) -> "Text":
        made = super().__new__(cls, _render(parts, python_option))
        made.parts = parts
        return made

    def __add__(self, other: str) -> "Text":
        return Text(*self.parts, *_parts(other))

    def __radd__(self, other: str) -> "Text":
        return Text(*_parts(other), *self.parts)

    def __reduce__(self) -> tuple[type["Text"], tuple[str | Option, ...]]:
        return Text, self.parts

    def render(self, front: OptionFormatter) -> str:
        """The text in the words of a front."""
        return _render(self.parts, front)


def option(name: str, value: object = None) -> Text:
    """A parameter, to be added to the words around it."""
    return Text(Option(name, value))


def _parts(text: str) -> tuple[str | Option, ...]:
    return text.parts if isinstance(text, Text) else (text,)


def _render(parts: tuple[str | Option, ...], front: OptionFormatter) -> str:
    return "".join(front(one) if isinstance(one, Option) else one for one in parts)


class PrivRLError(Exception):
    """Base of every error whose message is meant for the user: "field problem: remedy"."""

    def __init__(
        self, problem: str, *, field: str | None = None, remedy: str | None = None
    ) -> None:
        self.problem, self.field, self.remedy = problem, field, remedy
        text = problem if field is None else Text(Option(field, given=True)) + " " + problem
        super().__init__(text if remedy is None else text + ": " + remedy)

    @property
    def text(self) -> str:
        """The message, to be added to."""
        found: str = self.args[0]
        return found

    def render(self, front: OptionFormatter) -> str:
        """The message in the words of a front."""
        return _render(_parts(self.text), front)


class InputError(PrivRLError, ValueError):
    """A parameter, file or combination of them that cannot mean anything."""


class UnsupportedError(PrivRLError):
    """A well-formed question for which no proven bound is implemented; nothing is approximated."""


class CertificateError(PrivRLError):
    """A certificate that does not say what its events say, or that cannot be read."""


class LedgerError(PrivRLError):
    """A ledger that cannot be read, written or trusted; nothing may be released on it."""


class OverBudget(PrivRLError):  # noqa: N818 (the public name says what happened)
    """A spend that would exceed the limit of its population; it was not recorded."""
