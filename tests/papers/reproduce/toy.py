"""A paper of two methods and a control, whose experiment takes no time."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from privrl.papers.reproduce import (
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
)

CALLS: list[tuple[str, tuple[int, ...]]] = []
"""Which methods were run on which seeds."""

MEANS = {"good": 3.0, "fair": 2.0, "control": 0.0, "certified": 3.5}


def trials(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Normal numbers around the means, shifted by the reading."""
    method: str = setting["method"]
    CALLS.append((method, tuple(seeds)))
    if method == "good" and seeds[0] == options.get("stop_at"):
        raise KeyboardInterrupt
    mean = MEANS[method] + (options.get("shift", 0.0) if method in ("good", "fair") else 0.0)
    rows = []
    for seed in seeds:
        draw = random.Random(f"{method} {seed}")
        values = [draw.gauss(mean, 0.5) for _ in range(3)]
        rows.append({"seed": seed, "score": values[0], "curve": values})
    return rows


def privacy_rows() -> list[dict[str, Any]]:
    """What the noise is worth."""
    note = "of a toy"
    return [
        {"series": "good", "claimed": 1.0, "epsilon": 2.5, "delta": 1e-5, "basis": "accountant"}
        | {"unit": "one person", "note": note}
    ]


def make_experiment(**changes: Any) -> Experiment:
    """The experiment, or one like it."""
    given: dict[str, Any] = {
        "name": "toy.runs",
        "run": "tests.papers.reproduce.toy:trials",
        "settings": tuple({"method": name} for name in MEANS),
        "full": Plan(range(100, 120)),
        "quick": Plan(range(100, 103), {"steps": 2}, is_reduced=True),
        "readings": (Reading("as printed"), Reading("shifted", {"shift": 1.0}, "It may be.")),
        "privacy": "tests.papers.reproduce.toy:privacy_rows",
    }
    return Experiment(**{**given, **changes})


def quantity(name: str, value: float | None, **about: Any) -> Quantity:
    """A method's score."""
    place = None if value is None else Printed(value, f"Table 1, row {name}", trials=10)
    given = {"spread": 0.5, "printed": place, "tolerance": 0.2, **about}
    return Quantity(name, "score", {"method": name}, **given)


QUANTITIES = (
    quantity("good", 4.0),
    quantity("fair", 3.0),
    quantity("control", None, kind="control", pilot=0.0),
    quantity("certified", None, kind="certified", pilot=3.5),
)
DIFFERENCES = (
    above("good beats fair", "good", "fair"),
    above("fair beats the control", "fair", "control"),
)


def make_target(**changes: Any) -> Target:
    """Table 1 of the toy."""
    given: dict[str, Any] = {
        "name": "toy.table1",
        "title": "Scores <of> methods",
        "place": "Section 1, Table 1",
        "experiment": make_experiment(),
        "quantities": QUANTITIES,
        "differences": DIFFERENCES,
        "drawing": Table(("score",), tuple((name, (name,)) for name in MEANS)),
        "statements": (Statement("Good is best.", "Section 1", ("good beats fair",)),),
        "notes": ("A note.",),
    }
    return Target(**{**given, **changes})


def make_figure() -> Target:
    """Figure 1 of the toy."""
    series = tuple(
        Series(name, "curve", (1.0, 10.0, 100.0), {"method": name}, printed=((10.0, 4.0),))
        for name in MEANS
    )
    panel = Figure("Curves", "steps", "score", series, log_x=True)
    return make_target(name="toy.figure1", drawing=(panel, panel))
