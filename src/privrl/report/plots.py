"""Plots as inline SVG that is as wide as the page: no script, no font and no colour of its own.

Horizontal places are percentages and vertical ones pixels, so text keeps its size on a phone. Every
plot has `role="img"`, a title and a description; the page gives the same figures in a table.
Colours come from the page's style sheet; marks differ in shape or pattern too.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from privrl.report.figures import Figure, Split
from privrl.report.markup import Html, tag
from privrl.report.numbers import Style, exponent

_MOST = sys.float_info.max
_LEFT, _RIGHT = 2.0, 98.0  # where the domain of a horizontal axis begins and ends, in percent


@dataclass(frozen=True)
class Axis:
    """A linear scale, with marks at round numbers inside of it."""

    low: float
    high: float
    ticks: tuple[float, ...]
    style: Style

    def share(self, value: float) -> float:
        """Where `value` lies, from 0 at the low end to 1 at the high one."""
        # In halves: the range of two floats may be no float.
        return (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0)

    def label(self, value: float) -> str:
        """A mark's number."""
        return self.style.bare(value)


def axis(values: Sequence[float], power: int = 0, most: int = 5, pad: float = 0.06) -> Axis:
    """An axis that holds all `values`, with a little room on either side."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    width = high / 2.0 - low / 2.0
    if width <= max(1e-12 * max(abs(low), abs(high)), 1e-300):
        width = 0.1 * abs(high) if abs(high) > 1e-290 else 0.5
        low, high = max(low - width, -_MOST), min(high + width, _MOST)
    room = 2.0 * pad * width
    low, high = max(low - room, -_MOST), min(high + room, _MOST)
    size = (high / 2.0 - low / 2.0) / (most / 2.0)
    base = 10.0 ** math.floor(math.log10(size))
    step = next((base * one for one in (1.0, 2.0, 5.0) if base * one >= size), 10.0 * base)
    first, last = math.ceil(low / step), math.floor(high / step)
    decimals = -math.floor(math.log10(step) + 1e-9) + power
    ticks = tuple(step * k for k in range(first, last + 1))
    return Axis(low, high, ticks, Style(power, decimals))


def _x_position(scale: Axis, value: float, left: float = _LEFT, right: float = _RIGHT) -> float:
    return left + (right - left) * scale.share(value)


def _svg(name: str, title: str, description: str, height: float, *children: Html) -> Html:
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *children,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        width="100%",
        height=height,
        cls="plot",
        xmlns="http://www.w3.org/2000/svg",
    )


def _line(x1: float, y1: float, x2: float, y2: float, cls: str) -> Html:
    return tag("line", x1=f"{x1:.3f}%", y1=y1, x2=f"{x2:.3f}%", y2=y2, cls=cls)


def _text(x: float, y: float, text: str, cls: str, anchor: str = "start") -> Html:
    return tag("text", text, x=f"{x:.3f}%", y=y, cls=cls, text_anchor=anchor)


def _mark(x: float, y: float, cls: str, path: str) -> Html:
    """A shape around a point."""
    return tag(
        "svg",
        tag("path", d=path, cls=cls),
        x=f"{x:.3f}%",
        y=y,
        width=1,
        height=1,
        overflow="visible",
    )


_SHAPES = {
    "target": "M-6 0A6 6 0 1 0 6 0A6 6 0 1 0-6 0Z",
    "behavior": "M-5-5H5V5H-5Z",
    "difference": "M0-7.5L7.5 0 0 7.5-7.5 0Z",
}


def _anchor(x: float) -> str:
    """Labels near an edge stay inside."""
    if x < 4.0:
        return "start"
    return "end" if x > 96.0 else "middle"


# Rows of intervals and bars: the words above, the marks below, where the grid is.
_STEP, _WORDS_HIGH = 56.0, 28.0


def _grid(scale: Axis, rows: int, left: float = _LEFT) -> list[Html]:
    """Lines behind the marks of each row, and their numbers below the last."""
    found, bottom = [], _STEP * rows
    for value in scale.ticks:
        x = _x_position(scale, value, left)
        for row in range(rows):
            found.append(_line(x, _STEP * row + _WORDS_HIGH, x, _STEP * (row + 1), "grid"))
        found.append(_text(x, bottom + 16, scale.label(value), "tick", _anchor(x)))
    return found


def _add_unit(
    marks: list[Html], scale: Axis, below: float, x: float, anchor: str = "start", word: str = "in"
) -> float:
    """What the axis counts in, on a line further down if it is not 1; where the last line is."""
    if not scale.style.unit:
        return below
    marks.append(_text(x, below + 18.0, f"{word} units of 1 {scale.style.unit}", "side", anchor))
    return below + 18.0


MOST_LETTERS = 38  # of a row's name: no more fit on a phone


def truncate(text: str, most: int) -> str:
    """`text`, or its beginning."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


# --- intervals ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of a forest plot."""

    figure: Figure
    figures: str
    """The same in words, to the right."""

    shape: str = "target"


def forest(
    name: str,
    title: str,
    description: str,
    rows: Sequence[Row],
    *,
    power: int = 0,
    zero: bool = False,
    sides: tuple[str, str] | None = None,
) -> Html:
    """Intervals below one another on a common axis; an end without limit becomes an arrow."""
    held = [one for row in rows for one in row.figure.numbers]
    scale = axis([*held, 0.0] if zero or not held else held, power)
    bottom = _STEP * len(rows)
    marks = _grid(scale, len(rows))
    if zero:
        x = _x_position(scale, 0.0)
        marks.append(_line(x, _WORDS_HIGH, x, bottom + 4.0, "zero"))
    for place, row in enumerate(rows):
        top = _STEP * place
        marks.append(_text(0.0, top + 19, truncate(row.figure.name, MOST_LETTERS), "name"))
        marks.append(_text(100.0, top + 19, row.figures, "figures", "end"))
        marks += _interval(scale, row, top + 41.0)
    below = bottom + 20.0
    if sides is not None:
        below += 18.0
        marks.append(_text(0.0, below, f"← {sides[0]}", "side"))
        marks.append(_text(100.0, below, f"{sides[1]} →", "side", "end"))
    below = _add_unit(marks, scale, below, 50.0, "middle")
    return _svg(name, title, description, below + 6.0, *marks)


def _interval(scale: Axis, row: Row, y: float) -> list[Html]:
    figure, marks = row.figure, []
    if figure.low is not None and figure.high is not None:
        ends = []
        for value, edge, tip in (
            (figure.low, 0.3, "M8-5L0 0 8 5"),
            (figure.high, 99.7, "M-8-5L0 0-8 5"),
        ):
            bounded = math.isfinite(value)
            x = _x_position(scale, value) if bounded else edge
            ends.append(x)
            cap = _line(x, y - 6, x, y + 6, f"cap {row.shape}")
            marks.append(cap if bounded else _mark(x, y, f"arrow {row.shape}", tip))
        marks.append(_line(ends[0], y, ends[1], y, f"bar {row.shape}"))
    if figure.estimate is not None:
        x = _x_position(scale, figure.estimate)
        marks.append(_mark(x, y, f"point {row.shape}", _SHAPES[row.shape]))
    return marks


# --- what an interval is made of ------------------------------------------------------------------

PARTS = ("sampling", "noise", "clipping")
_PATTERNS = {
    "noise": tag("path", d="M0 0V8", cls="hatch"),
    "clipping": tag("circle", cx=2, cy=2, r=1.3, cls="dots"),
}


def stacked_bars(
    name: str, title: str, description: str, rows: Sequence[Split], how: Sequence[Style]
) -> Html:
    """Half-widths as bars, each divided into its parts."""
    power = how[0].exponent if how else 0
    scale = _axis_from_zero([row.half for row in rows], power)
    bottom = _STEP * len(rows)
    marks = [*(_pattern(name, part) for part in _PATTERNS), *_grid(scale, len(rows), 0.0)]
    for place, (row, style) in enumerate(zip(rows, how, strict=True)):
        top = _STEP * place
        marks.append(_text(0.0, top + 19, truncate(row.name, MOST_LETTERS), "name"))
        marks.append(_text(100.0, top + 19, f"± {style.high(row.half)}", "figures", "end"))
        start = 0.0
        for part in PARTS:
            size = getattr(row, part)
            if size <= 0.0:
                continue
            x, wide = _x_position(scale, start, 0.0), _x_position(scale, start + size, 0.0)
            box: dict[str, str | float] = {
                "x": f"{x:.3f}%",
                "width": f"{wide - x:.3f}%",
                "y": top + 30,
                "height": 18,
            }
            marks.append(tag("rect", cls=f"part {part}", **box))
            if part in _PATTERNS:
                marks.append(tag("rect", fill=f"url(#{name}-{part})", **box))
            start += size
    below = bottom + 20.0
    below = _add_unit(marks, scale, below, 50.0, "middle")
    return _svg(name, title, description, below + 6.0, *marks)


def _axis_from_zero(values: Sequence[float], power: int) -> Axis:
    """An axis from 0 to a little above the largest."""
    largest = max(values, default=0.0)
    found = axis([0.0, largest if largest > 0.0 else 1.0], power, pad=0.0)
    high = min(1.02 * found.high, _MOST)
    return Axis(0.0, high, tuple(one for one in found.ticks if one >= 0.0), found.style)


def swatch(part: str) -> Html:
    """The key to a part's look; the word beside it says what it is."""
    name = f"key-{part}"
    inside = [tag("rect", cls=f"part {part}", x=0, y=0, width=18, height=12)]
    if part in _PATTERNS:
        inside = [
            _pattern(name, part),
            *inside,
            tag("rect", fill=f"url(#{name}-{part})", x=0, y=0, width=18, height=12),
        ]
    return tag("svg", *inside, width=18, height=12, cls="swatch", aria_hidden="true")


def _pattern(name: str, part: str) -> Html:
    return tag(
        "pattern",
        _PATTERNS[part],
        id=f"{name}-{part}",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )


# --- shares ---------------------------------------------------------------------------------------


def meter(name: str, title: str, description: str, share: float, low: float, high: float) -> Html:
    """A bar from 0 to 1, filled up to `share`, with the range from low to high as a thin line."""
    wide = 100.0 * min(max(share, 0.0), 1.0)
    marks = [
        tag("rect", x=0, y=6, width="100%", height=12, rx=2, cls="trough"),
        tag("rect", x=0, y=6, width=f"{wide:.3f}%", height=12, rx=2, cls="fill"),
    ]
    if high > low:
        marks.append(_line(100.0 * low, 22, 100.0 * high, 22, "range"))
    marks += [_text(x, 40, f"{x:g} %", "tick", _anchor(x)) for x in (0.0, 50.0, 100.0)]
    return _svg(name, title, description, 46.0, *marks)


def probs(name: str, title: str, description: str, before: float, after: float) -> Html:
    """From one probability to another, on a line from 0 to 1."""
    x, y = 100.0 * before, 100.0 * min(after, 1.0)
    marks = [
        tag("rect", x=0, y=24, width="100%", height=12, rx=2, cls="trough"),
        tag("rect", x=f"{x:.3f}%", y=24, width=f"{y - x:.3f}%", height=12, cls="gain"),
        _line(x, 18, x, 42, "zero"),
        _line(y, 18, y, 42, "edge"),
        _text(x, 12, "before", "side", "end" if x > 20 else "start"),
        _text(
            y, 12, "after, at most", "side", "start" if y < 70 else "end" if y > 90 else "middle"
        ),
    ]
    marks += [_text(at, 58, f"{at:g} %", "tick", _anchor(at)) for at in (0.0, 50.0, 100.0)]
    return _svg(name, title, description, 64.0, *marks)


# --- curves ---------------------------------------------------------------------------------------

_INSIDE = (11.0, 98.0)
_TOP, _TALL = 14.0, 210.0
_MOST_DOTS = 60


@dataclass(frozen=True)
class Line:
    """Points to be joined, or not."""

    at: Sequence[float]
    values: Sequence[float]
    cls: str
    joined: bool = True
    dots: bool = False


def curve(
    name: str,
    title: str,
    description: str,
    lines: Sequence[Line],
    *,
    below: str,
    power: int = 0,
    logarithmic: bool = False,
    whole: bool = False,
    from_zero: bool = False,
    mark: tuple[float, str] | None = None,
) -> Html:
    """Lines or dots over a horizontal axis; `mark` is a place on it with a word.

    Points that are not finite are left out. `whole` marks whole numbers only.
    """
    kept = [_finite_points(line, logarithmic) for line in lines]
    at = [x for points in kept for x, _ in points]
    seen = [v for points in kept for _, v in points]
    marked = None if mark is None else _finite_points(Line(mark[:1], (0.0,), ""), logarithmic)
    at += [x for x, _ in marked or []]
    across = axis(at, 0 if logarithmic else exponent(at), pad=0.02)
    up = _axis_from_zero(seen, power) if from_zero else axis(seen, power, pad=0.08)
    marks: list[Html] = []
    for value in up.ticks:
        y = _TOP + _TALL * (1.0 - up.share(value))
        marks.append(_line(_INSIDE[0], y, 100.0, y, "grid"))
        marks.append(_text(0.0, y + 4, up.label(value), "tick"))
    for value, label in _x_ticks(across, logarithmic, whole):
        x = _x_position(across, value, *_INSIDE)
        marks.append(_line(x, _TOP + _TALL, x, _TOP + _TALL + 5, "zero"))
        marks.append(_text(x, _TOP + _TALL + 20, label, "tick", "end" if x > 94.0 else "middle"))
    marks.append(_line(_INSIDE[0], _TOP + _TALL, 100.0, _TOP + _TALL, "zero"))
    if mark is not None and marked:
        x = _x_position(across, marked[0][0], *_INSIDE)
        marks.append(_line(x, _TOP - 2, x, _TOP + _TALL, "edge"))
        side = "start" if x < 60.0 else "end"
        shift = 1.2 if side == "start" else -1.2
        marks.append(_text(x + shift, _TOP + 10, mark[1], "side halo", side))
    for line, points in zip(lines, kept, strict=True):
        marks += _draw_line(line, points, across, up)
    marks.append(_text(_INSIDE[0], _TOP + _TALL + 42, below, "side"))
    last = _add_unit(marks, up, _TOP + _TALL + 42.0, _INSIDE[0], word="upward in")
    return _svg(name, title, description, last + 8.0, *marks)


Points = list[tuple[float, float]]


def _finite_points(line: Line, logarithmic: bool) -> Points:
    found = []
    for x, value in zip(line.at, line.values, strict=False):
        fine = math.isfinite(x) and math.isfinite(value) and (x > 0.0 or not logarithmic)
        if fine:
            found.append((math.log10(x) if logarithmic else x, value))
    return sorted(found)


def _x_ticks(across: Axis, logarithmic: bool, whole: bool) -> list[tuple[float, str]]:
    if not logarithmic:
        unit = f" {across.style.unit}" if across.style.unit else ""
        return [
            (value, across.label(value) + unit)
            for value in across.ticks
            if not whole or float(value).is_integer()
        ]
    found = []
    first, last = math.floor(across.low), math.ceil(across.high)
    factors = (1.0, 2.0, 5.0) if across.high - across.low <= 2.5 else (1.0,)
    for power in range(first, last + 1):
        for factor in factors:
            place = power + math.log10(factor)
            if across.low <= place <= across.high:
                found.append((place, f"{factor * 10.0**power:.6g}"))
    return found


def _draw_line(line: Line, points: Points, across: Axis, up: Axis) -> list[Html]:
    """The line in a box that stretches with the page, and its dots where they keep their shape."""
    places = [(1000.0 * across.share(x), 1000.0 * (1.0 - up.share(v))) for x, v in points]
    found = []
    path = ""
    if line.joined and len(places) > 1:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    elif len(places) > _MOST_DOTS:
        # A dot is a stroke without length, whose round ends no stretching distorts.
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)
    if path:
        inside = tag("path", d=path, cls=f"line {line.cls}" if line.joined else f"cloud {line.cls}")
        found.append(
            tag(
                "svg",
                inside,
                x=f"{_INSIDE[0]}%",
                y=_TOP,
                width=f"{_INSIDE[1] - _INSIDE[0]}%",
                height=_TALL,
                viewBox="0 0 1000 1000",
                preserveAspectRatio="none",
                overflow="visible",
            )
        )
    few = len(places) <= _MOST_DOTS
    if few and (line.dots or not line.joined or len(places) == 1):
        for x, value in points:
            place = _x_position(across, x, *_INSIDE)
            y = _TOP + _TALL * (1.0 - up.share(value))
            found.append(
                tag("circle", cx=f"{place:.3f}%", cy=f"{y:.2f}", r=4, cls=f"dot {line.cls}")
            )
    return found


# --- states with names ----------------------------------------------------------------------------


def lollipops(
    name: str, title: str, description: str, rows: Sequence[tuple[str, float, str]], power: int
) -> Html:
    """A dot for each (label, value, value in words), on a line from the axis's low end."""
    finite = [value for _, value, _ in rows if math.isfinite(value)]
    scale = axis(finite, power, most=4, pad=0.08)
    step, left, right = 26.0, 30.0, 82.0
    bottom = step * len(rows) + 6.0
    marks = []
    for value in scale.ticks:
        x = _x_position(scale, value, left, right)
        marks.append(_line(x, 2.0, x, bottom, "grid"))
        marks.append(_text(x, bottom + 16, scale.label(value), "tick", "middle"))
    for place, (label, value, words) in enumerate(rows):
        y = step * place + 15.0
        marks.append(_text(0.0, y + 4, truncate(label, 14), "name small"))
        marks.append(_text(100.0, y + 4, words, "tick", "end"))
        if math.isfinite(value):
            x = _x_position(scale, value, left, right)
            marks.append(_line(left, y, x, y, "stick"))
            marks.append(tag("circle", cx=f"{x:.3f}%", cy=y, r=5, cls="dot target"))
    below = _add_unit(marks, scale, bottom + 22.0, left)
    return _svg(name, title, description, below + 4.0, *marks)
