"""Options that are needed and were not given, asked for at once.

    ask(Question(name, *_QUESTIONS[name]) for name in _QUESTIONS if getattr(spec, name) is None)

raises `MissingOptions` if there are any. One question makes one sentence:

    delta is needed: say with --delta the failure probability, such as 1e-6. It should be ...

Several make a list, a line for each. A hint that several have is said once, below them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from privrl.core.errors import InputError, OptionFormatter, Text, option, python_option


class Question(NamedTuple):
    """An option to ask for: "say with --FIELD QUESTION. HINT."."""

    field: str
    """Its name in Python."""

    question: str
    """What to say, with an example: "the failure probability, such as 1e-6"."""

    hint: str = ""
    """Why, or what would do instead. Like the question it has no full stop, and may be a `Text`."""


class MissingOptions(InputError):  # noqa: N818 (the name says what happened)
    """All options that are missing, as far as that can be known by now."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self.questions = tuple(questions)
        if len(self.questions) == 1:
            (one,) = self.questions
            remedy = "say with " + option(one.field) + " " + _sentences(one.question, one.hint)
            super().__init__("is needed", field=one.field, remedy=remedy)
        else:
            super().__init__(_join(self._listed(), "\n"))

    def __reduce__(self) -> tuple[type["MissingOptions"], tuple[tuple[Question, ...]]]:
        return MissingOptions, (self.questions,)

    def lines(self, front: OptionFormatter = python_option) -> list[str]:
        """The message in the words of a front: a sentence, or a heading and a line for each."""
        if len(self.questions) == 1:
            return [self.render(front)]
        return [line.render(front) for line in self._listed()]

    def to_list(self, front: OptionFormatter = python_option) -> list[dict[str, str]]:
        """The questions for JSON: field, its option in the words of a front, question, hint."""
        return [
            {
                "field": one.field,
                "option": option(one.field).render(front),
                "question": (Text() + one.question).render(front),
                "hint": (Text() + one.hint).render(front),
            }
            for one in self.questions
        ]

    def _listed(self) -> list[Text]:
        hints = [one.hint for one in self.questions]
        shared = dict.fromkeys(hint for hint in hints if hint and hints.count(hint) > 1)
        lines = [Text(f"{len(hints)} options are needed:")]
        for one in self.questions:
            own = "" if one.hint in shared else one.hint
            lines.append("  " + option(one.field) + ": " + _sentences(one.question, own))
        return lines + ["  " + _sentences(hint) for hint in shared]


def ask(questions: Iterable[Question]) -> None:
    """Refuse with all of the questions, if there are any."""
    listed = list(questions)
    if listed:
        raise MissingOptions(listed)


def _sentences(*parts: str) -> Text:
    return _join([part + "." for part in parts if part], " ")


def _join(parts: list[str] | list[Text], between: str) -> Text:
    text = Text()
    for place, part in enumerate(parts):
        text = text + (between if place else "") + part
    return text
