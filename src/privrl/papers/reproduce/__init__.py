"""Every table and figure of the five papers by one command, with a verdict that has power.

    privrl reproduce --list
    privrl reproduce ono2020.table2 --quick
    privrl reproduce report --out page.html

For the author of a paper's targets, all in `privrl/papers/<paper>/targets.py`, which must not
import NumPy or JAX at its top:

1. `def trials(options, setting, seeds) -> list[Row]`, pure: a row for each seed, with its "seed"
   and numbers or lists of numbers; imports inside. About a minute for `seeds_at_once` seeds.
2. `Experiment("paper.runs", "privrl.papers.paper.targets:trials", settings, full=Plan(range(100,
   120)), quick=Plan(range(100, 102), {"episodes": 20}, is_reduced=True), readings=(Reading("as
   printed"), ...), privacy="...:privacy_rows")`. Several targets may share it.
3. `Quantity(name, measure, where, statistic, scale, printed=Printed(value, place, trials=20),
   tolerance=..., spread=...)` for each cell; kind="control" or "certified" and a `pilot` for what
   the paper has not.
4. `above(name, more, less)`, `trend(name, rising)` or `Difference(...)`: what must hold.
5. `Statement(text, place, differences)` for sentences of the text.
6. `TARGETS = (Target("paper.table2", title, place, experiment, quantities, differences, Table(...)
   or (Figure(...),), statements), ...)`.

Tests over the registry (`tests/papers/reproduce/test_targets.py`) then see to it that the printed
numbers give *reproduced*, that noise does not, and that the full plan has seeds enough.
`privrl.papers.reproduce.verdict` has the statistics.
"""

from typing import TYPE_CHECKING

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl.papers.reproduce.target import (
        Difference,
        Experiment,
        Figure,
        Plan,
        Printed,
        Quantity,
        Reading,
        Series,
        Statement,
        Table,
        Target,
        above,
        trend,
    )
    from privrl.papers.reproduce.verdict import Verdict, judge

_DATA = (
    "Difference",
    "Experiment",
    "Figure",
    "Plan",
    "Printed",
    "Quantity",
    "Reading",
    "Series",
    "Statement",
    "Table",
    "Target",
    "above",
    "trend",
)
__all__ = [
    "Difference",
    "Experiment",
    "Figure",
    "Plan",
    "Printed",
    "Quantity",
    "Reading",
    "Series",
    "Statement",
    "Table",
    "Target",
    "Verdict",
    "above",
    "judge",
    "trend",
]

__getattr__ = lazy(__name__, {"target": _DATA, "verdict": ("Verdict", "judge")})
