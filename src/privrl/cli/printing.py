"""All that the commands print: no other module in this package may (ruff's T20 forbids it).

A command hands over lines. The breaks between them are the only ones that reach the terminal: what
a file or an option has put into a line is escaped (`privrl.core.text`), so that no name can move
the cursor, start a line of its own, or turn around the numbers beside it.
"""

import itertools
import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from privrl.core.errors import OptionFormatter, PrivRLError, Text, python_option
from privrl.core.questions import MissingOptions
from privrl.core.text import printable_line, shorten


def say(*lines: object, aside: bool = False) -> None:
    """Print lines to standard output, or, `aside`, to standard error."""
    text = "\n".join(printable_line(str(line)) for line in lines)
    print(text, file=sys.stderr if aside else sys.stdout)


def shell_quote(path: object) -> str:
    """A path as a shell takes it: in quotes if it has spaces or the like in it."""
    return shlex.quote(str(path))


def say_json(value: Any, indent: int | None = None) -> None:
    """Print JSON, in ASCII: whatever else there is in it is escaped."""
    _output["written"] = True
    print(json.dumps(value, indent=indent, ensure_ascii=True))  # noqa: T201 (the one place for JSON)


def answer(value: Any, *lines: object) -> None:
    """Print what a command found: as JSON if that was asked for, else as lines for people."""
    if _output["json"]:
        say_json(value)
    else:
        say(*lines)


def warn(sentence: object) -> None:
    """Print a warning to standard error."""
    say(f"privrl: warning: {sentence}", aside=True)


_output = {"json": False, "written": False}


def begin(arguments: Sequence[str]) -> None:
    """Guess from its arguments whether a command answers in JSON, should they be refused."""
    words = itertools.takewhile(lambda word: word != "--", arguments)
    _output.update(json="--json" in words, written=False)


def drop_output() -> None:
    """Standard output takes no more: let Python not try once more when it ends."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def answer_in_json(wanted: bool) -> None:
    """Whether a command answers in JSON, refusals too, as its arguments were read."""
    _output["json"] = wanted


class CheckFailed(Exception):  # noqa: N818 (what happened, and no fault)
    """A check that was done and failed, exit code 1: why, and what --json has beside the error."""

    def __init__(self, error: PrivRLError, **answer: Any) -> None:
        super().__init__(str(error))
        self.error, self.answer = error, answer


def refuse(
    problem: PrivRLError | str,
    front: OptionFormatter = python_option,
    *,
    kind: str = "UsageError",
    code: int = 2,
    **answer: Any,
) -> int:
    """Say what is wrong in short lines, whatever a file has put into them, and return the code.

    With --json standard output has the error too, in the one document that a command prints: with
    `answer` beside it, or not at all if what was found is there already.
    """
    told: dict[str, Any] = {"kind": kind, "message": str(problem), "field": None, "remedy": None}
    told["missing"], lines = [], [str(problem)]
    if isinstance(problem, PrivRLError):
        lines = [problem.render(front)]
        if isinstance(problem, MissingOptions):
            lines, told["missing"] = problem.lines(front), problem.to_list(front)
        remedy = None if problem.remedy is None else (Text() + problem.remedy).render(front)
        told |= {"kind": type(problem).__name__, "field": problem.field, "remedy": remedy}
    lines = [shorten(line) for line in lines]
    say(f"privrl: {lines[0]}", *lines[1:], aside=True)
    if _output["json"] and not _output["written"]:
        say_json({**answer, "error": {**told, "message": "\n".join(lines)}})
    return code
