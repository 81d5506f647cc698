"""Figures and tables as SVG that stands by itself: no script, no style sheet, no Matplotlib.

Lines differ in colour, dash and marker, so that they can be told apart in grey; colours are those
of Okabe and Ito. A band is one standard error to either side; hollow diamonds are what is printed.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from privrl.papers.reproduce.estimate import matches
from privrl.papers.reproduce.target import FIRST_JUDGED, Figure, Row, Series, Table, Target
from privrl.papers.reproduce.verdict import Comparison, Verdict
from privrl.report.markup import Html, join, tag
from privrl.report.plots import Axis, axis

_WIDE, _TALL = 640.0, 250.0
_LEFT, _RIGHT, _TOP = 64.0, 12.0, 30.0
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_DASHES = ("", "7 3", "2 3", "10 3 2 3", "4 2")
_MARKS = (
    "M-3.5 0A3.5 3.5 0 1 0 3.5 0A3.5 3.5 0 1 0-3.5 0Z",
    "M-3-3H3V3H-3Z",
    "M0-4L4 3H-4Z",
    "M-3.5-3.5L3.5 3.5M-3.5 3.5L3.5-3.5",
    "M0-4.5V4.5M-4.5 0H4.5",
)
_DIAMOND = "M0-5L5 0 0 5-5 0Z"
_MOST_MARKS = 12
_FONT = "system-ui, sans-serif"


@dataclass(frozen=True)
class Line:
    """Points of a series: x, mean, standard error."""

    series: Series
    points: tuple[tuple[float, float, float], ...]


def line(series: Series, rows: Iterable[Row]) -> Line:
    """A series from rows: the mean over seeds at each x, with its standard error."""
    values: dict[float, list[float]] = {}
    for row in rows:
        if row["seed"] < FIRST_JUDGED or series.measure not in row:
            continue
        if not matches(row, series.where):
            continue
        seen, at = row[series.measure], series.x if not isinstance(series.x, str) else row[series.x]
        pairs: Any = zip(at, seen, strict=True) if isinstance(seen, list) else [(at, seen)]
        for x, y in pairs:
            values.setdefault(float(x), []).append(float(y))
    found = []
    for x, some in sorted(values.items()):
        error = statistics.stdev(some) / math.sqrt(len(some)) if len(some) > 1 else 0.0
        found.append((x, statistics.fmean(some), error))
    return Line(series, tuple(found))


def figure(panel: Figure, rows: Sequence[Row]) -> Html:
    """One panel as SVG."""
    lines = [line(one, rows) for one in panel.series]
    across = _Scale.of([x for x, _ in _places(lines)], panel.log_x, 6)
    up = _Scale.of([y for _, y in _places(lines)], panel.log_y, 5)
    marks = [_text(_LEFT, 16, panel.title, bold=True)]
    for value, label in up.ticks:
        y = _TOP + _TALL * (1.0 - up.share(value))
        marks.append(_stroke(f"M{_LEFT} {y:.1f}H{_WIDE - _RIGHT}", "#dddddd", 1.0))
        marks.append(_text(_LEFT - 6, y + 4, label, anchor="end"))
    for value, label in across.ticks:
        x = _x(across, value)
        marks.append(_stroke(f"M{x:.1f} {_TOP + _TALL}v5", "#444444", 1.0))
        marks.append(_text(x, _TOP + _TALL + 18, label, anchor="middle"))
    marks.append(_stroke(f"M{_LEFT} {_TOP}V{_TOP + _TALL}H{_WIDE - _RIGHT}", "#444444", 1.0))
    middle = (_LEFT + _WIDE - _RIGHT) / 2.0
    marks.append(_text(middle, _TOP + _TALL + 36, panel.x_label, anchor="middle"))
    below = _TOP + _TALL + 56.0
    for place, one in enumerate(lines):
        marks += _draw(one, place, across, up)
        column, down = place % 2, place // 2
        marks += _legend(one, place, _LEFT + 286.0 * column, below + 18.0 * down)
    last = below + 18.0 * ((len(lines) + 1) // 2)
    side = tag(
        "g",
        _text(0, 0, panel.y_label, anchor="middle"),
        transform=f"translate(13 {_TOP + _TALL / 2}) rotate(-90)",
    )
    return _svg(panel.title, last, side, *marks)


def table(target: Target, drawn: Table, verdict: Verdict) -> Html:
    """The paper's table as SVG, ours above the printed numbers in each cell."""
    numbers = {one.name: one for one in verdict.numbers}
    label, column = 120.0, 104.0
    wide = max(_WIDE, label + column * len(drawn.columns))
    marks = [_text(8, 18, target.title, bold=True)]
    for k, name in enumerate(drawn.columns):
        marks.append(_text(label + column * (k + 0.5), 44, name, anchor="middle", bold=True))
    y = 52.0
    for row, cells in drawn.rows:
        marks.append(_stroke(f"M0 {y}H{wide}", "#bbbbbb", 1.0))
        marks.append(_text(8, y + 18, row))
        for k, name in enumerate(cells):
            x = label + column * (k + 0.5)
            ours, printed, sign = cell(target, name, numbers.get(name), verdict)
            marks.append(_text(x, y + 18, f"{ours} {sign}".strip(), anchor="middle"))
            marks.append(_text(x, y + 35, printed, anchor="middle", colour="#666666"))
        y += 46.0
    marks.append(
        _text(8, y + 16, "Above: ours. Below: printed. ✓ agrees, ✗ is off.", colour="#666666")
    )
    return _svg(target.title, y + 24.0, *marks, wide=wide)


def cell(
    target: Target, name: str, number: Comparison | None, verdict: Verdict
) -> tuple[str, str, str]:
    """Ours, what is printed, and whether they agree, for a cell."""
    if not name:
        return "", "", ""
    quantity, ours = target.by_name[name], verdict.estimates.get(name)
    shown = "–" if ours is None else short(ours.value)
    if number is None:
        return shown, "no number" if quantity.lost else "", ""
    return shown, short(number.printed), "" if ours is None else "✓" if number.agrees else "✗"


def short(value: float | None) -> str:
    """A number for people: four significant digits, thousands with commas."""
    if value is None:
        return "–"
    if abs(value) >= 1000.0:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 0.001 or abs(value) >= 100.0 else f"{value:.4g}"


# --- parts of a drawing ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scale:
    """An axis, linear or logarithmic."""

    inside: Axis
    logarithmic: bool

    @classmethod
    def of(cls, values: Sequence[float], logarithmic: bool, most: int) -> "_Scale":
        kept = [x for x in values if math.isfinite(x) and (x > 0.0 or not logarithmic)]
        shown = [math.log10(x) for x in kept] if logarithmic else kept
        return cls(axis(shown, most=most, pad=0.03), logarithmic)

    def share(self, value: float) -> float:
        if self.logarithmic:
            if value <= 0.0:
                return 0.0
            value = math.log10(value)
        return min(1.0, max(0.0, self.inside.share(value)))

    @property
    def ticks(self) -> list[tuple[float, str]]:
        if not self.logarithmic:
            return [(one, short(one) if one else "0") for one in self.inside.ticks]
        low, high = math.floor(self.inside.low), math.ceil(self.inside.high)
        factors = (1.0, 2.0, 5.0) if high - low <= 3 else (1.0,)
        listed = [f * 10.0**power for power in range(low, high + 1) for f in factors]
        return [
            (one, f"{one:g}")
            for one in listed
            if self.inside.low <= math.log10(one) <= self.inside.high
        ]


def _places(lines: Sequence[Line]) -> list[tuple[float, float]]:
    found = [(x, y + side * e) for one in lines for x, y, e in one.points for side in (-1, 1)]
    return found + [point for one in lines for point in one.series.printed]


def _x(across: _Scale, value: float) -> float:
    return _LEFT + (_WIDE - _LEFT - _RIGHT) * across.share(value)


def _draw(one: Line, place: int, across: _Scale, up: _Scale) -> list[Html]:
    colour = _COLOURS[place % len(_COLOURS)]

    def at(x: float, y: float) -> str:
        return f"{_x(across, x):.1f} {_TOP + _TALL * (1.0 - up.share(y)):.1f}"

    marks = []
    if len(one.points) > 1:
        around = [at(x, y + e) for x, y, e in one.points]
        around += [at(x, y - e) for x, y, e in reversed(one.points)]
        marks.append(tag("path", d=f"M{'L'.join(around)}Z", fill=colour, fill_opacity=0.15))
        path = "M" + "L".join(at(x, y) for x, y, _ in one.points)
        marks.append(_stroke(path, colour, _thickness(one), _DASHES[place % len(_DASHES)]))
    step = max(1, math.ceil(len(one.points) / _MOST_MARKS))
    for x, y, _ in one.points[place % step :: step]:
        marks.append(_mark(at(x, y), place))
    for x, y in one.series.printed:
        marks.append(
            tag("path", d=_DIAMOND, fill="none", stroke=colour, transform=f"translate({at(x, y)})")
        )
    return marks


def _thickness(one: Line) -> float:
    return {"control": 1.2, "certified": 3.0}.get(one.series.kind, 2.0)


def _legend(one: Line, place: int, x: float, y: float) -> list[Html]:
    colour, dash = _COLOURS[place % len(_COLOURS)], _DASHES[place % len(_DASHES)]
    return [
        _stroke(f"M{x:.1f} {y - 4:.1f}h30", colour, _thickness(one), dash),
        _mark(f"{x + 15:.1f} {y - 4:.1f}", place),
        _text(x + 36, y, one.series.name + ("" if one.points else " (no rows)")),
    ]


def _mark(where: str, place: int) -> Html:
    colour = _COLOURS[place % len(_COLOURS)]
    return tag(
        "path",
        d=_MARKS[place % len(_MARKS)],
        fill=colour,
        stroke=colour,
        transform=f"translate({where})",
    )


def _stroke(path: str, colour: str, width: float, dash: str = "") -> Html:
    return tag(
        "path",
        d=path,
        fill="none",
        stroke=colour,
        stroke_width=width,
        stroke_dasharray=dash or None,
        stroke_linejoin="round",
    )


def _text(
    x: float,
    y: float,
    text: str,
    anchor: str = "start",
    bold: bool = False,
    colour: str = "#222222",
) -> Html:
    return tag(
        "text",
        text,
        x=round(x, 1),
        y=round(y, 1),
        font_size=13 if bold else 12,
        font_weight="600" if bold else None,
        text_anchor=anchor,
        fill=colour,
    )


def _svg(title: str, height: float, *children: Html, wide: float = _WIDE) -> Html:
    return tag(
        "svg",
        tag("title", title),
        tag("rect", width=wide, height=height, fill="#ffffff"),
        *children,
        role="img",
        aria_label=title,
        viewBox=f"0 0 {wide:g} {height:g}",
        width="100%",
        font_family=_FONT,
        xmlns="http://www.w3.org/2000/svg",
    )


def draw(target: Target, rows: Sequence[Row], verdict: Verdict) -> list[Html]:
    """The pictures of a target."""
    if isinstance(target.drawing, Table):
        return [table(target, target.drawing, verdict)]
    return [figure(panel, rows) for panel in target.drawing]


def stand_alone(pictures: Sequence[Html]) -> str:
    """Pictures as one SVG file, one below the other."""
    if len(pictures) == 1:
        return str(pictures[0]) + "\n"
    heights = [float(one.partition('viewBox="')[2].split('"')[0].split()[3]) for one in pictures]
    inside, y = [], 0.0
    for one, height in zip(pictures, heights, strict=True):
        placed = one.replace('width="100%"', f'y="{y:g}" width="{_WIDE:g}" height="{height:g}"', 1)
        inside.append(Html(placed))
        y += height
    return (
        str(
            tag(
                "svg",
                join(*inside),
                viewBox=f"0 0 {_WIDE:g} {y:g}",
                width="100%",
                xmlns="http://www.w3.org/2000/svg",
            )
        )
        + "\n"
    )
