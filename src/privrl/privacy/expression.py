"""Events written as text, exactly as in Python: `Repeated(Gaussian(1, 1), 1000)`.

Only calls of event names with numbers, words, lists and events inside are understood; nothing is
evaluated. A `?` stands for the one number that is being looked for.
"""

import ast
import warnings
from collections.abc import Callable
from dataclasses import fields

from privrl.core.errors import InputError
from privrl.privacy.events import Event

_UNKNOWN = "_unknown_"
# An unknown in one of these places is a whole number.
_WHOLE_FIELDS = {"times", "population", "batch", "dimension", "categories", "steps"}


def parse(text: str) -> Event:
    """The event written as `text`."""
    node = _parse_expr(text)
    if any(isinstance(part, ast.Name) and part.id == _UNKNOWN for part in ast.walk(node)):
        raise InputError(f"{text!r} has a ?, so say how much may be spent, with --epsilon.")
    return _event(node, text, None)


def has_unknown(text: str) -> bool:
    """Whether `text` leaves a number open."""
    return "?" in text


def parse_with_unknown(texts: list[str]) -> tuple[Callable[[float], list[Event]], bool]:
    """A function from the unknown number to the events, and whether it is a whole number."""
    nodes = [(_parse_expr(text), text) for text in texts]
    places = {place for node, _ in nodes for place in _unknown_fields(node)}
    if not places:
        raise InputError("There is no ? to solve for.")
    if len(places) > 1:
        raise InputError(f"One ? can be solved for, not {' and '.join(sorted(places))} at once.")
    whole = places <= _WHOLE_FIELDS

    def build(value: float) -> list[Event]:
        return [_event(node, text, value) for node, text in nodes]

    return build, whole


def _parse_expr(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "1or 2" parses, with a warning; it is no event
            return ast.parse(text.replace("?", _UNKNOWN), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{text!r} is not an event: write one like Gaussian(1, 1).") from None


def _field_names(call: ast.Call) -> list[str]:
    kind = Event.kinds.get(call.func.id) if isinstance(call.func, ast.Name) else None
    return [f.name for f in fields(kind)] if kind else []


def _unknown_fields(node: ast.expr) -> set[str]:
    """The names of the fields that a ? stands in."""
    found = set()
    for call in (part for part in ast.walk(node) if isinstance(part, ast.Call)):
        names = _field_names(call)
        given = [*zip(names, call.args, strict=False)]
        given += [(keyword.arg or "", keyword.value) for keyword in call.keywords]
        found |= {n for n, v in given if isinstance(v, ast.Name) and v.id == _UNKNOWN}
    return found


def _event(node: ast.expr, text: str, unknown: float | None) -> Event:
    value = _value(node, text, unknown)
    if not isinstance(value, Event):
        raise InputError(f"{text!r} is not an event: write one like Gaussian(1, 1).")
    return value


def _value(node: ast.expr, text: str, unknown: float | None) -> object:
    match node:
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=name) if name == _UNKNOWN and unknown is not None:
            return unknown
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return tuple(_value(part, text, unknown) for part in parts)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            kind = Event.kinds.get(name)
            if kind is None:
                known = ", ".join(sorted(Event.kinds))
                raise InputError(f"There is no event {name!r}: use one of {known}.")
            positional = [_value(arg, text, unknown) for arg in args]
            named = {k.arg or "**": _value(k.value, text, unknown) for k in keywords}
            try:
                return kind(*positional, **named)
            except TypeError:
                wanted = ", ".join(f.name for f in fields(kind))
                raise InputError(f"takes {wanted}.", field=name) from None
            except InputError as error:
                # A field of the event, and no option of the same name.
                raise InputError(f"{name}: {error}") from None
    raise InputError(f"{text!r} is not an event: write one like Gaussian(1, 1).")
