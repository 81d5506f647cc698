"""Text that came from a file or an option, made fit to be printed.

Whoever wrote a file wrote the names and sentences in it. On a terminal, control characters in them
move the cursor, clear lines or turn the order of letters around, and so make a large epsilon look
like a small one, or a refusal like a confirmation.
"""

import html
import re
import textwrap
import unicodedata
from collections.abc import Iterable

# Letters, marks and symbols by their category that show nothing: fillers, joiners and selectors.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# Marks on one letter: scripts that need many have up to three; more would cover the lines around.
_MOST_MARKS = 3
_RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))


def printable(text: str) -> str:
    r"""`text` with each character that does not show as itself written as its escape, `\x1b`.

    What Python calls printable stays, letters of all scripts, their marks and the space, but for
    what is invisible all the same. Neither line breaks nor other spaces stay.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = []
    marks = _MOST_MARKS  # a mark before any letter would stand on what is printed before
    for one in text:
        if unicodedata.category(one) in ("Mn", "Me"):
            marks += 1
            seen = marks <= _MOST_MARKS and not _is_selector(one) and one not in _INVISIBLE
        else:
            marks = 0
            seen = one.isprintable() and one not in _INVISIBLE
        shown.append(one if seen else escape(one))
    return "".join(shown)


def printable_line(text: str) -> str:
    """`text` as one line of a terminal, in which the order of numbers is that of `text`.

    Letters that are written from right to left turn around the numbers that follow them; where a
    line has both, these letters are escaped too.
    """
    shown = printable(text)
    if shown.isascii() or not any(one.isdigit() for one in shown):
        return shown
    return "".join(escape(one) if is_right_to_left(one) else one for one in shown)


def shorten(text: str, most: int = 200) -> str:
    """`text` with the middle of each word or quoted value above `most` characters left out."""
    long = re.compile(rf"'[^']{{{most},}}'|\S{{{most},}}")
    return long.sub(lambda found: f"{found[0][: most // 2]} ... {found[0][-most // 4 :]}", text)


def quote_name(name: str) -> str:
    """A name in a table or a heading: in quotes if it has anything but letters and spaces.

    So a policy that is called "old, epsilon 0.1" cannot be taken for a figure.
    """
    is_plain = all(one.isalpha() or one in " -_" for one in name) and name.strip() == name != ""
    return name if is_plain else repr(name)


def strip_ansi(text: str) -> str:
    """`text` without the escape sequences by which libraries colour what they say."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def is_right_to_left(character: str) -> bool:
    """Whether text goes from right to left there."""
    return unicodedata.bidirectional(character) in _RIGHT_TO_LEFT


def escape(character: str) -> str:
    r"""The character as `\x1b`, `\u202e` or `\U000e0001`."""
    return ascii(character)[1:-1]


def _is_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


class Displayed:
    """Shown by what `str` says: its first line as `repr`, and all of it in a notebook."""

    def __repr__(self) -> str:
        return f"<{printable(str(self).splitlines()[0])}>"

    def _repr_html_(self) -> str:
        lines = map(printable, str(self).splitlines())
        return f"<pre>{html.escape(chr(10).join(lines))}</pre>"


def note_lines(notes: Iterable[str]) -> list[str]:
    """Sentences for a screen of 79 columns.

    Each is further in where it goes on, so that no name in it begins what looks like another.
    """
    wrapper = textwrap.TextWrapper(78, initial_indent="  ", subsequent_indent=" " * 4)
    return [line for one in notes for line in wrapper.wrap(printable(one))]
