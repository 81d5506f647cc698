"""Ono and Takahashi (2020): Tables 1 to 3 and Figures 2 and 3 as targets of `privrl reproduce`.

A pole on a cart, up to 200 steps, under gravities of 9.7, 9.8 and 9.9; 20 trials of 90,000 reports.
A trial *succeeds* when the mean of ten scores in a row is at least 195; (26) counts the first of
the ten. That is a mark that luck reaches too: a policy that noise pushes about is a good one now
and then. So each series has a control, the same noise with all gradients set to zero, and what must
hold is that the method is above it.

`trials` has what is run, and the readings of what the paper leaves open.

Our copy of the paper has lost some cells of Tables 1 and 3, and both figures: what they have in
numbers is what the tables and the text say of them.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from privrl.papers.ono2020.printed import EPSILONS, PRINTED
from privrl.papers.ono2020.trials import (
    BUFFERS,
    EXPERIMENT,
    MECHANISMS,
    POINTS,
    PRIVATE,
    SUBMISSIONS,
)
from privrl.papers.reproduce import (
    Difference,
    Figure,
    Printed,
    Quantity,
    Series,
    Statement,
    Table,
    Target,
    above,
    trend,
)
from privrl.papers.reproduce.target import Kind

TRIALS = 20
_NAMES = {"laplace": "Lap", "sign": "PRS"}

_MEASURES = {
    # of rows, statistic, scale, what is printed, where
    "first": ("median", "log", "median_first_success", "Section 4.2, Table 1"),
    "success": ("share", "linear", "success_ratio", "Section 4.3, Table 2"),
    "area": ("mean", "linear", "relative_auc", "Section 4.3, Table 3"),
}
_TOLERANCES = {"first": 0.15, "success": 0.05, "area": 0.05}
"""A factor of 1.4 in the number of reports, one trial of 20, and as much of the area."""


def _spread(measure: str, value: float) -> float | None:
    """The standard deviation of single trials, to plan with.

    Of logarithms of first successes 0.65, a factor of 4.5. Of areas with mean m it is at most
    sqrt(m (1 - m)), where all are 0 or 1.
    """
    if measure == "success":
        return None
    return 0.65 if measure == "first" else 0.8 * math.sqrt(value * (1.0 - value))


_PILOTS: dict[str, dict[str, tuple[float, ...]]] = {
    "first": {"zero": (90_000.0,) * 4, "recipe": (2600.0, 1100.0, 450.0, 330.0)},
    "success": {"zero": (0.45, 0.45, 0.25, 0.20), "recipe": (1.0, 1.0, 1.0, 1.0)},
    "early": {"laplace": (0.1, 0.2, 0.6, 0.9), "sign": (0.25, 0.55, 0.8, 0.45)},
    "area": {"zero": (0.25, 0.25, 0.15, 0.10), "recipe": (0.97, 0.98, 0.99, 0.99)},
}
"""What is expected for `PRIVATE`, to plan with: of controls what an independent check of 20 trials
gave, of our recipe what seeds 100 to 119 gave, of early successes what Tables 1 and 3 let one
expect: at epsilon 10 half of the trials of PRS take more than 11,217 reports."""


def _name(series: str, epsilon: float | None) -> str:
    return f"{series}, no noise" if epsilon is None else f"{series}, epsilon {epsilon:g}"


def _quantities(measure: str) -> tuple[Quantity, ...]:
    """The cells of a table, their controls, and the recipe's."""
    statistic, scale, printed, place = _MEASURES[measure]
    about: dict[str, Any] = {"statistic": statistic, "scale": scale}

    def make(series: str, epsilon: float | None, kind: Kind, **more: Any) -> Quantity:
        there = more.get("printed")
        value = more.get("pilot") if there is None else there.value
        more["spread"] = None if value is None else _spread(measure, value)
        where = {"figure": 3, "series": series, "epsilon": epsilon}
        # Areas are relative to those without noise, with the buffer of the mechanism beside.
        base = "laplace plain" if series in ("recipe", "laplace", "laplace zero") else "sign plain"
        over = _name(base, None) if measure == "area" and epsilon is not None else None
        name = _name(series, epsilon)
        return Quantity(name, measure, where, kind=kind, over=over, **about, **more)

    found = []
    for mechanism in MECHANISMS:
        for epsilon, value in zip(EPSILONS, PRINTED[mechanism][printed], strict=True):
            column = "infinity" if epsilon is None else f"{epsilon:g}"
            at = f"{place}, row {_NAMES[mechanism]}, column epsilon = {column}"
            series = mechanism if epsilon is not None else f"{mechanism} plain"
            given: dict[str, Any] = {"lost": "" if value else f"our copy has lost {at}"}
            # That of the row without noise is 1 by definition.
            if value is not None and not (measure == "area" and epsilon is None):
                given["printed"] = Printed(value, at, trials=TRIALS)
                given["tolerance"] = _TOLERANCES[measure]
            elif epsilon is None:
                given["pilot"] = 0.98
            kind: Kind = "paper" if epsilon is not None else "plain"
            found.append(make(series, epsilon, kind, **given))
    for place_, epsilon in enumerate(PRIVATE):
        pilots = {kind: some[place_] for kind, some in _PILOTS[measure].items()}
        for mechanism in MECHANISMS:
            found.append(make(f"{mechanism} zero", epsilon, "control", pilot=pilots["zero"]))
        found.append(make("recipe", epsilon, "certified", pilot=pilots["recipe"]))
    return tuple(found)


def _beats_control(quantities: Sequence[Quantity], more: bool) -> Iterator[Difference]:
    """Each cell that is printed against the same noise without gradients."""
    for one in quantities:
        if one.kind == "paper" and one.printed is not None:
            series, epsilon = one.where["series"], one.where["epsilon"]
            control = _name(f"{series} zero", epsilon)
            pair = (one.name, control) if more else (control, one.name)
            name = f"{_NAMES[series]} at epsilon {epsilon:g} does better than noise alone"
            yield above(name, *pair)


def _table(quantities: Sequence[Quantity]) -> Table:
    known = {one.name for one in quantities}
    labels = {
        "laplace": "Lap",
        "laplace zero": "Lap, no gradient",
        "sign": "PRS",
        "sign zero": "PRS, no gradient",
        "recipe": "privrl's PGC",
    }

    def cells(series: str) -> tuple[str, ...]:
        names = [_name(series, epsilon) for epsilon in PRIVATE]
        names.append(_name(f"{series} plain", None))
        return tuple(name if name in known else "" for name in names)

    columns = (*(f"epsilon {one:g}" for one in PRIVATE), "no noise")
    return Table(columns, tuple((label, cells(name)) for name, label in labels.items()))


def _of(series: str, *epsilons: float) -> list[str]:
    return [_name(series, epsilon) for epsilon in epsilons]


_FIRST, _SUCCESS, _AREA = (_quantities(name) for name in ("first", "success", "area"))

_SIGN_SOONER = "PRS succeeds sooner at epsilon {:g} than at 1"
_TABLE_1 = Target(
    "ono2020.table1",
    "Reports until the first success, median of 20 trials",
    "Section 4.2, Table 1",
    EXPERIMENT,
    _FIRST,
    (
        *_beats_control(_FIRST, more=False),
        *(
            above(_SIGN_SOONER.format(one), _name("sign", 1.0), _name("sign", one))
            for one in (2.0, 5.0)
        ),
        above("PRS succeeds later at epsilon 10 than at 5", *_of("sign", 10.0, 5.0)),
        above(
            "without noise sooner than by PRS at epsilon 1",
            _name("sign", 1.0),
            _name("sign plain", None),
        ),
        above(
            "without noise sooner than by Laplace at epsilon 2",
            _name("laplace", 2.0),
            _name("laplace plain", None),
        ),
        trend(
            "Laplace succeeds sooner with more epsilon",
            _of("laplace", 10.0, 5.0, 2.0, 1.0),
            least=0.1,
            counts=False,
        ),
        # For the statement alone: 79 seeds would be needed.
        above(
            "PRS succeeds sooner than Laplace at epsilon 2",
            *(_name(one, 2.0) for one in MECHANISMS),
            counts=False,
        ),
    ),
    _table(_FIRST),
    (
        Statement(
            "The result of the Laplace mechanism shows a decreasing the median of FST along with "
            "increasing epsilon.",
            "Section 4.2",
            ("Laplace succeeds sooner with more epsilon",),
        ),
        Statement(
            "While PGC-A3C with PRS shows better results within epsilon = {2, 5}, but it does not "
            "show such improvement at epsilon = 10.",
            "Section 4.2",
            (
                *(_SIGN_SOONER.format(one) for one in (2.0, 5.0)),
                "PRS succeeds later at epsilon 10 than at 5",
            ),
        ),
        Statement(
            "Therefore, PGC-A3C with the PRS has a chance to increase learning efficiency than "
            "Laplace.",
            "Section 4.2",
            ("PRS succeeds sooner than Laplace at epsilon 2",),
        ),
    ),
    (
        "A trial that never succeeds counts as 90,000 reports.",
        "Three of the four cells of Laplace noise are lost in our copy of the paper.",
    ),
)

_TABLE_2 = Target(
    "ono2020.table2",
    "Share of 20 trials that succeed within 90,000 reports",
    "Section 4.3, Table 2",
    EXPERIMENT,
    _SUCCESS,
    (
        *_beats_control(_SUCCESS, more=True),
        *(
            Difference(
                f"without noise (row {_NAMES[one]}) nearly all succeed",
                {_name(f"{one} plain", None): 1.0},
                beyond=0.7,
            )
            for one in MECHANISMS
        ),
        # That of Laplace is 2.1 standard errors of the printed numbers: for the statement alone.
        *(
            trend(f"more succeed by {name} with more epsilon", _of(one, *PRIVATE), counts=False)
            for one, name in (("laplace", "Laplace"), ("sign", "PRS"))
        ),
        *(
            above(
                f"more succeed by PRS than by Laplace at epsilon {one:g}",
                _name("sign", one),
                _name("laplace", one),
            )
            for one in (1.0, 2.0)
        ),
        *(
            above(
                f"more succeed by Laplace than by PRS at epsilon {one:g}",
                _name("laplace", one),
                _name("sign", one),
            )
            for one in (5.0, 10.0)
        ),
    ),
    _table(_SUCCESS),
    (
        Statement(
            "The non-private A3C (epsilon = infinity) succeeds in all trials.",
            "Section 4.3",
            tuple(f"without noise (row {one}) nearly all succeed" for one in _NAMES.values()),
        ),
        Statement(
            "With both of the randomized mechanisms, the algorithms tend to make more successes "
            "for larger epsilon.",
            "Section 4.3",
            (
                "more succeed by Laplace with more epsilon",
                "more succeed by PRS with more epsilon",
            ),
        ),
        Statement(
            "The algorithm using PRS gives more successes for epsilon = 1, 2.",
            "Section 4.3",
            tuple(f"more succeed by PRS than by Laplace at epsilon {one}" for one in (1, 2)),
        ),
        Statement(
            "The algorithm using the Laplace mechanism shows better for epsilon = 5, 10.",
            "Section 4.3",
            tuple(f"more succeed by Laplace than by PRS at epsilon {one}" for one in (5, 10)),
        ),
    ),
    (
        "With 20 trials a share of 0.9 has a standard error of 0.08.",
        "The share without noise is printed once, for both rows.",
    ),
)

_TABLE_3 = Target(
    "ono2020.table3",
    "Area under the success ratio, relative to that without noise",
    "Section 4.3, Table 3",
    EXPERIMENT,
    _AREA,
    (
        *_beats_control(_AREA, more=True),
        above("the area of Laplace is larger at epsilon 10 than at 2", *_of("laplace", 10.0, 2.0)),
        above("the area of PRS is larger at epsilon 2 than at 10", *_of("sign", 2.0, 10.0)),
        # For statements alone: the second takes 62 seeds.
        above(
            "the area of PRS is larger than that of Laplace at epsilon 2",
            *(_name(one, 2.0) for one in reversed(MECHANISMS)),
            counts=False,
        ),
        above(
            "the area of Laplace is larger than that of PRS at epsilon 10",
            *(_name(one, 10.0) for one in MECHANISMS),
            counts=False,
        ),
    ),
    _table(_AREA),
    (
        Statement(
            "Laplace mechanism achieves larger AUC in proportional to epsilon.",
            "Section 4.3",
            ("the area of Laplace is larger at epsilon 10 than at 2",),
        ),
        Statement(
            "While PRS shows the best at epsilon = 2.",
            "Section 4.3",
            ("the area of PRS is larger at epsilon 2 than at 10",),
        ),
        Statement(
            "The PRS mechanism may be a better choice if we require strong privacy guarantees "
            "(epsilon < 10).",
            "Section 4.3",
            ("the area of PRS is larger than that of Laplace at epsilon 2",),
        ),
        Statement(
            "Otherwise, the Laplace mechanism seems more promising.",
            "Section 4.3",
            ("the area of Laplace is larger than that of PRS at epsilon 10",),
        ),
    ),
    ("Half of the cells are lost in our copy of the paper: epsilon 1 and 5.",),
)

# --- figures --------------------------------------------------------------------------------------

_AT = tuple(SUBMISSIONS * (k + 1) / POINTS for k in range(POINTS))


def _panel(mechanism: str) -> Figure:
    def line(series: str, epsilon: float | None, label: str, kind: Kind) -> Series:
        where = {"figure": 3, "series": series, "epsilon": epsilon}
        return Series(label, "successes", _AT, where, kind)

    name = _NAMES[mechanism]
    return Figure(
        f"{name}: trials that have succeeded",
        "submissions",
        "success ratio",
        (
            *(line(mechanism, one, f"{name}, epsilon {one:g}", "paper") for one in PRIVATE),
            line(f"{mechanism} plain", None, "no noise", "plain"),
            line(f"{mechanism} zero", 1.0, "epsilon 1, no gradient", "control"),
            line("recipe", 1.0, "privrl's PGC, epsilon 1, certified", "certified"),
        ),
    )


def _early(series: str, epsilon: float) -> Quantity:
    where = {"figure": 3, "series": series, "epsilon": epsilon}
    lost = "our copy has lost Figure 3"
    name = f"{_name(series, epsilon)}, by a tenth of the reports"
    pilot = _PILOTS["early"][series][PRIVATE.index(epsilon)]
    return Quantity(name, "early", where, "share", lost=lost, pilot=pilot)


_EARLY = tuple(_early(name, one) for name in MECHANISMS for one in PRIVATE)


_SMALL = PRIVATE[:3]
_EARLIER = "more succeed early by PRS than by Laplace, at epsilon 1 to 5"


def _mean_early(series: str, sign: float) -> dict[str, float]:
    """By Tables 1 and 3 PRS is not the sooner one at epsilon 10, so the others are meant."""
    own = [one.name for one in _EARLY if one.where["series"] == series]
    return {name: sign / len(_SMALL) for name in own[: len(_SMALL)]}


_FIGURE_3 = Target(
    "ono2020.figure3",
    "Success ratio over submissions",
    "Section 4.3, Figure 3",
    EXPERIMENT,
    (*_SUCCESS, *_EARLY),
    (
        *_beats_control(_SUCCESS, more=True),
        Difference(
            _EARLIER,
            {**_mean_early("sign", 1.0), **_mean_early("laplace", -1.0)},
            least=0.2,
        ),
        *(
            trend(
                f"more succeed early by {_NAMES[name]} with more epsilon",
                [one.name for one in _EARLY if one.where["series"] == name],
                least={"laplace": 0.15, "sign": 0.08}[name],
                counts=name == "laplace",
            )
            for name in MECHANISMS
        ),
        above(
            "more succeed in the end by Laplace than by PRS",
            *(_name(one, 10.0) for one in MECHANISMS),
        ),
    ),
    tuple(_panel(name) for name in MECHANISMS),
    (
        Statement(
            "With larger epsilon, both algorithms achieve a high success ratio consuming fewer "
            "updates.",
            "Section 4.3",
            tuple(f"more succeed early by {one} with more epsilon" for one in ("Lap", "PRS")),
        ),
        Statement(
            "The algorithm using PRS makes more successes in the early stage, and the algorithm "
            "with Laplace shows more successes by the end of each training process.",
            "Section 4.3",
            (
                _EARLIER,
                "more succeed in the end by Laplace than by PRS",
            ),
        ),
    ),
    (
        "Our copy has lost the figure: the ends of its curves are Table 2, the areas below them "
        "Table 3.",
        "Early is the first tenth, 9,000 reports.",
        "That PRS succeeds sooner with more epsilon does not count: at epsilon 10 it does not, by "
        "Table 1.",
    ),
)


def _at(mechanism: str, buffer: int) -> dict[str, Any]:
    """Which rows Figure 2 has; with the buffer of the tables they are the tables'."""
    figure: dict[str, Any] = {"figure": 3}
    if buffer != BUFFERS[mechanism]:
        figure = {"figure": 2, "buffer": buffer}
    return {**figure, "series": mechanism, "epsilon": 1.0}


def _scores(mechanism: str, buffer: int, measure: str) -> Quantity:
    what = {"late": "late scores", "rough": "changes of scores"}[measure]
    name = f"{_NAMES[mechanism]}, buffer {buffer}: {what}"
    pilots = {
        ("laplace", 1): (60.0, 35.0),
        ("laplace", 100): (30.0, 10.0),
        ("sign", 1): (30.0, 35.0),
        ("sign", 100): (120.0, 20.0),
    }
    pilot = pilots[mechanism, buffer][("late", "rough").index(measure)]
    lost = "our copy has lost Figure 2"
    where = _at(mechanism, buffer)
    return Quantity(name, measure, where, pilot=pilot, spread=30.0, lost=lost)


_SCORES = tuple(
    _scores(name, buffer, measure)
    for measure in ("late", "rough")
    for name in MECHANISMS
    for buffer in (1, 100)
)

_FIGURE_2_TARGET = Target(
    "ono2020.figure2",
    "Average scores while learning at epsilon 1, with and without a buffer",
    "Section 4.1, Figure 2",
    EXPERIMENT,
    _SCORES,
    (
        above(
            "PRS learns better with a buffer",
            "PRS, buffer 100: late scores",
            "PRS, buffer 1: late scores",
            least=30.0,
        ),
        above(
            "Laplace learns worse with a buffer",
            "Lap, buffer 1: late scores",
            "Lap, buffer 100: late scores",
            least=30.0,
        ),
        above(
            "scores of PRS change less with a buffer",
            "PRS, buffer 1: changes of scores",
            "PRS, buffer 100: changes of scores",
            least=20.0,
            counts=False,
        ),
        above(
            "scores of Laplace change less with a buffer",
            "Lap, buffer 1: changes of scores",
            "Lap, buffer 100: changes of scores",
            least=20.0,
            counts=False,
        ),
    ),
    tuple(
        Figure(
            f"{_NAMES[name]} at epsilon 1",
            "submissions",
            "average score",
            tuple(
                Series(
                    f"buffer {buffer}",
                    "scores",
                    _AT,
                    _at(name, buffer),
                )
                for buffer in (1, 100)
            ),
        )
        for name in MECHANISMS
    ),
    (
        Statement(
            "Buffering helps the PRS to train the policy, but disturbs the training of Laplace "
            "mechanism.",
            "Section 4.1, caption of Figure 2",
            ("PRS learns better with a buffer", "Laplace learns worse with a buffer"),
        ),
        Statement(
            "Without buffering, scores for all settings change drastically, but the buffering "
            "limits the learning dynamics of the Laplace mechanism too small to learn.",
            "Section 4.1",
            (
                "scores of PRS change less with a buffer",
                "scores of Laplace change less with a buffer",
                "Laplace learns worse with a buffer",
            ),
        ),
        Statement(
            "However, in the PRS mechanism, the buffering gives better learning stability than "
            "without buffering.",
            "Section 4.1",
            ("scores of PRS change less with a buffer",),
        ),
    ),
    ("Our copy has lost the figure, and the text has no numbers of it.",),
)

TARGETS = (_FIGURE_2_TARGET, _FIGURE_3, _TABLE_1, _TABLE_2, _TABLE_3)
