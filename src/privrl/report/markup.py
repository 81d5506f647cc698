"""Elements as text, in which whatever is not an element is escaped.

The output is both HTML and well-formed XML. Text from users cannot become markup: `tag` escapes
every child and every attribute's value that is not `Html`, and characters that control, hide or
turn the direction of writing become the replacement character. Nor can it turn
numbers around: where one follows a letter that is written from right to left, a mark between the
two says that the line goes on from left to right.
"""

import html
import unicodedata

from privrl.core.text import is_right_to_left

# Characters that hide, break lines, or make text appear in another order than it is stored, by
# their categories; but for the two joiners, without which some scripts cannot be written.
_HIDING = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"
_LEFT_TO_RIGHT = "\u200e"
_VOID = frozenset({"meta", "br", "hr", "col"})


class Html(str):
    """Markup, made by `tag` or written in this package; never text from outside."""

    __slots__ = ()


Child = str | None


def escape(text: str) -> Html:
    """`text` as markup that shows it."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(_mark_direction("".join(map(_visible_character, text)))))


def tag(element: str, /, *children: Child, **attributes: str | int | float | None) -> Html:
    """An element; None among children or attributes counts as absent.

    `cls` stands for class, and underscores within a name for hyphens.
    """
    inside = join(*children)
    written = "".join(
        f' {_attribute(key)}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in _VOID or (not inside and element in _SHAPES):
        return Html(f"<{element}{written}/>")
    return Html(f"<{element}{written}>{inside}</{element}>")


def join(*children: Child) -> Html:
    """One after the other."""
    return Html("".join(escape(child) for child in children if child is not None))


_SHAPES = frozenset({"line", "rect", "circle", "path"})
_CAMEL = frozenset({"viewBox", "preserveAspectRatio", "patternUnits", "patternTransform"})


def _attribute(key: str) -> str:
    if key in _CAMEL:
        return key
    return "class" if key == "cls" else key.rstrip("_").replace("_", "-")


def _text(value: str | int | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _mark_direction(text: str) -> str:
    """`text` with a mark behind each letter after which a number would be turned around."""
    if text.isascii():
        return text
    marked = list(text)
    last: int | None = None  # the letter from right to left that decides where a number goes
    for place, one in enumerate(text):
        if is_right_to_left(one):
            last = place
        elif last is not None and unicodedata.bidirectional(one) in ("L", "EN"):
            if unicodedata.bidirectional(one) == "EN":
                marked[last] += _LEFT_TO_RIGHT
            last = None
    if last is not None:  # what stands beside this text may begin with a number
        marked[last] += _LEFT_TO_RIGHT
    return "".join(marked)


def _visible_character(character: str) -> str:
    if character in "\n\t":
        return character
    hidden = unicodedata.category(character) in _HIDING and character not in _JOINERS
    return "\ufffd" if hidden else character
