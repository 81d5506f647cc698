"""Somebody's way of weighing as a page: weights, utilities, and where it leads them.

The obstacle grid shows what the curves mean: where the best policy of whoever goes by the mean
leads, and that of the person, both exact (`privrl.risk.solve`).
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from privrl.core import files
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs.grid import MOVES, ObstacleGrid
from privrl.report import layout, plots
from privrl.report.markup import Html, tag
from privrl.report.page import document
from privrl.risk import Prospect, solve

GAMMA = 0.9
"""Of the grid's solutions, as in rajabi2022."""

STEPS = 400
"""In which visits are counted, as there."""

_POINTS = 201
_CELL, _EDGE = 40, 6


def write(prospect: Prospect, name: str, path: str | Path) -> None:
    """Write the page of a prospect to `path`, wholly or not at all."""
    files.write(path, render(prospect, name).encode(), secret=False)


def render(prospect: Prospect, name: str) -> str:
    """The page of a prospect that people call `name`."""
    sections = [_weights(prospect), _utility(prospect)]
    with suppress(InputError):
        # Where values would have no bound there is no best way through the grid.
        sections.append(_grids(prospect, name))
    return document(name, "Prospect theory: a way of weighing", sections)


def _weights(prospect: Prospect) -> Html:
    p = np.linspace(0.0, 1.0, _POINTS)
    gains, losses = (np.asarray(w(p)) for w in (prospect.gain_weight, prospect.loss_weight))
    said = (
        f"A probability of 1 % to gain counts as {100 * gains[2]:.1f} % and to lose as "
        f"{100 * losses[2]:.1f} %; one of 99 % as {100 * gains[-3]:.1f} % and "
        f"{100 * losses[-3]:.1f} %."
    )
    plot = plots.curve(
        "weights",
        "Weights of probabilities",
        said,
        [_line(p, p, "free"), _line(p, gains, "target"), _line(p, losses, "behavior")],
        below="probability; solid: of gains, dotted: of losses, dashed: as it is",
    )
    shown = [round(one * (_POINTS - 1)) for one in (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)]
    rows = [[f"{p[i]:.2f}", f"{gains[i]:.4f}", f"{losses[i]:.4f}"] for i in shown]
    columns = layout.columns("Probability", "Of gains", "Of losses")
    return layout.section(
        "weights",
        "How probabilities are felt",
        layout.figure(said, plot),
        layout.collapsible_table("Weights of probabilities", columns, rows),
    )


def _utility(prospect: Prospect) -> Html:
    u = prospect.utility
    x = u.reference + np.linspace(-10.0, 10.0, _POINTS)
    worth = np.asarray(u(x))
    said = (
        f"10 above the reference point of {u.reference:g} is worth {worth[-1]:.2f}, and 10 below "
        f"it {worth[0]:.2f}."
    )
    plot = plots.curve(
        "utility",
        "Utility of outcomes",
        said,
        [_line(x, x - u.reference, "free"), _line(x, worth, "target")],
        below="outcome; dashed: as it is",
        mark=(u.reference, "reference point"),
    )
    shown = range(0, _POINTS, (_POINTS - 1) // 10)
    rows = [[f"{x[i]:g}", f"{worth[i]:.3f}"] for i in shown]
    columns = layout.columns("Outcome", "Utility")
    return layout.section(
        "utility",
        "What outcomes are worth",
        layout.figure(said, plot),
        layout.collapsible_table("Utility of outcomes", columns, rows),
    )


def _line(at: Floats, values: Floats, cls: str) -> plots.Line:
    return plots.Line(at.tolist(), values.tolist(), cls)


# --- the grid -------------------------------------------------------------------------------------


def _grids(prospect: Prospect, name: str) -> Html:
    grid = ObstacleGrid()
    people = [("goes by the mean", Prospect.neutral()), (name, prospect)]
    drawn: list[Html] = []
    rows = []
    for number, (who, own) in enumerate(people):
        best = solve(grid, own, GAMMA).policy
        visits = grid.visits(best, STEPS)
        at = [grid.cell(x, y) for x, y, _ in grid.obstacles]
        start = float(solve(grid, prospect, GAMMA, best).values[0])
        caption = f"{layout.capitalize(who)}: {visits.sum():.1f} steps in expectation."
        drawn.append(
            layout.figure(caption, draw(grid, best, f"grid-{number}", f"The way of: {who}"))
        )
        counted = [f"{visits[cell]:.4f}" for cell in at]
        rows.append([who, *counted, f"{visits.sum():.2f}", f"{start:.4f}"])
    penalties = (f"Penalty {penalty:g}" for *_, penalty in grid.obstacles)
    columns = layout.columns("Best policy of", *penalties, "Steps", "CPT value", open=True)
    caption = f"Expected visits to each obstacle in {STEPS} steps, and the person's CPT value"
    return layout.section(
        "grid",
        "Where it leads",
        layout.paragraph(
            "Each step costs 1, an obstacle its penalty, and one step in ten slips to another "
            "neighbour. Shaded is where the best policy leads; the line is its way without a slip."
        ),
        tag("div", *drawn, cls="pair"),
        layout.table(caption, columns, rows),
    )


def draw(grid: ObstacleGrid, policy: Floats, name: str, title: str) -> Html:
    """The grid with its obstacles, where `policy` leads, and its way if nothing slips."""
    n, visits = grid.size, grid.visits(policy, STEPS)
    penalties = {grid.cell(x, y): penalty for x, y, penalty in grid.obstacles}
    marks: list[Html] = []
    for cell in range(n * n):
        x, y = _EDGE + _CELL * (cell % n), _EDGE + _CELL * (n - 1 - cell // n)
        box = {"x": x, "y": y, "width": _CELL, "height": _CELL}
        marks.append(tag("rect", cls="cell", **box))
        shade = min(1.0, float(visits[cell]))
        if shade >= 0.005:
            marks.append(tag("rect", cls="visited", opacity=f"{0.75 * shade:.3f}", **box))
        label = {0: "S", n * n - 1: "T"}.get(cell)
        if cell in penalties:
            marks.append(tag("rect", cls="obstacle", **box))
            label = f"{penalties[cell]:g}"
        if label is not None:
            middle = {"x": x + _CELL / 2, "y": y + _CELL / 2 + 5}
            marks.append(tag("text", label, text_anchor="middle", cls="halo", **middle))
    places = [
        (_EDGE + _CELL * (cell % n + 0.5), _EDGE + _CELL * (n - cell // n - 0.5))
        for cell in route(grid, policy)
    ]
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in places)
    marks.append(tag("path", d=path, cls="line target"))
    size = 2 * _EDGE + _CELL * n
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        *marks,
        role="img",
        aria_labelledby=f"{name}-title",
        viewBox=f"0 0 {size} {size}",
        width="100%",
        cls="plot",
        xmlns="http://www.w3.org/2000/svg",
    )


def route(grid: ObstacleGrid, policy: Floats) -> Sequence[int]:
    """The cells from the start on by the likeliest action, if nothing slips, to the target."""
    n, cell = grid.size, 0
    cells = [cell]
    for _ in range(n * n):
        if cell == n * n - 1:
            break
        dx, dy = MOVES[int(np.argmax(policy[cell]))]
        x, y = cell % n + dx, cell // n + dy
        if 0 <= x < n and 0 <= y < n:
            cell = grid.cell(x, y)
        cells.append(cell)
    return cells
