"""Elements as text, in which whatever is not an element is escaped.

The output is both HTML and well-formed XML. Text from users cannot become markup: `tag` escapes
every child and every attribute's value that is not `Html`, and control characters, lone surrogates
and marks that turn the direction of writing become the replacement character.
"""

import html
import unicodedata

# Marks that make text appear in another order than it is stored.
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_VOID = frozenset({"meta", "br", "hr", "col"})


class Html(str):
    """Markup, made by `tag` or written in this package; never text from outside."""

    __slots__ = ()


Child = str | None


def safe(text: str) -> Html:
    """`text` as markup that shows it."""
    if isinstance(text, Html):
        return text
    return Html(html.escape("".join(map(_shown, text))))


def tag(element: str, /, *children: Child, **attributes: str | int | float | None) -> Html:
    """An element; None among children or attributes counts as absent.

    `cls` stands for class, and underscores within a name for hyphens.
    """
    inside = join(*children)
    written = "".join(
        f' {_attribute(key)}="{safe(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in _VOID or (not inside and element in _SHAPES):
        return Html(f"<{element}{written}/>")
    return Html(f"<{element}{written}>{inside}</{element}>")


def join(*children: Child) -> Html:
    """One after the other."""
    return Html("".join(safe(child) for child in children if child is not None))


_SHAPES = frozenset({"line", "rect", "circle", "path"})
_CAMEL = frozenset({"viewBox", "preserveAspectRatio", "patternUnits", "patternTransform"})


def _attribute(key: str) -> str:
    if key in _CAMEL:
        return key
    return "class" if key == "cls" else key.rstrip("_").replace("_", "-")


def _text(value: str | int | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _shown(character: str) -> str:
    if character in "\n\t":
        return character
    hidden = unicodedata.category(character) in ("Cc", "Cs") or character in _TURNING
    # XML knows neither of the two characters that are none.
    return "\ufffd" if hidden or character in "\ufffe\uffff" else character
