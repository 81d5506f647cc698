"""Targets as data: what a paper prints, what is run for it, and what is compared with what.

A `Target` is one table or figure. It has *quantities* (a cell, or a number read off a curve), each
estimated from rows over seeds; *differences* between quantities, which are what the paper is about;
and *statements* of its text, each of which rests on differences. An `Experiment` makes the rows;
several targets may share one. Nothing here imports JAX or NumPy: lists and help come at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from privrl.core.errors import InputError

Row = dict[str, Any]
"""What a run gives: a "seed", and numbers or lists of numbers by name."""

Statistic = Literal["mean", "share", "median", "root-mean"] | Callable[[Sequence[Any]], float]
Scale = Literal["linear", "log"]
Kind = Literal["paper", "control", "certified", "plain"]

FIRST_JUDGED = 100
"""Seeds from here on are judged; those below choose readings."""


@dataclass(frozen=True)
class Printed:
    """A number in the paper."""

    value: float
    place: str
    """Where: section or page, table or figure, row, column."""

    trials: int | None = None
    """How many runs the paper has taken it over."""

    error: float | None = None
    """Its standard error over these runs, if the paper gives one or one can be derived. Otherwise a
    share has the binomial one, and any other the one that `spread` gives for `trials` runs."""

    reading: float = 0.0
    """The standard error of reading it off a figure: the half-width over the root of 3."""

    note: str = ""
    """What is odd about it, such as that it contradicts the text."""


@dataclass(frozen=True)
class Quantity:
    """A number of a target: a cell of its table, or a point or summary of a curve."""

    name: str
    measure: str
    """The entry of rows."""

    where: Mapping[str, Any] = field(default_factory=dict)
    """Which rows: these settings."""

    statistic: Statistic = "mean"
    """Over seeds; see `privrl.papers.reproduce.estimate`. A function of the list of values has its
    standard error by the jackknife."""

    scale: Scale = "linear"
    """On which it is compared: "log" is the logarithm to base 10, for what spans magnitudes."""

    printed: Printed | None = None
    tolerance: float = 0.0
    """By how much, on the scale, it may be off beyond sampling errors and still be called the same.
    Committed before the full run."""

    pilot: float | None = None
    """What seeds 0 to 9 gave, where nothing is printed; in the quantity's own unit."""

    spread: float | None = None
    """Standard deviation of what one seed contributes, on the scale, from seeds 0 to 9: n seeds
    give spread / sqrt(n). Not needed for shares."""

    over: str | None = None
    """It is divided by the quantity of this name."""

    kind: Kind = "paper"
    """"paper": its algorithm. "control": no learning. "certified": ours, with a certificate.
    "plain": without noise."""

    lost: str = ""
    """Why nothing is printed though the paper has it, such as that our copy lost the cell."""


@dataclass(frozen=True)
class Difference:
    """A linear contrast sum_i w_i q_i of quantities, on their scale, that must be above 0."""

    name: str
    weights: Mapping[str, float]
    expected: Literal["above", "same"] = "above"
    """"above": more than `beyond`. "same": within `least` of 0."""

    least: float | None = None
    """The smallest difference of interest, where nothing is printed; the margin of "same"."""

    beyond: float = 0.0
    counts: bool = True
    """Whether the verdict depends on it, or only statements."""

    contradicts: str = ""
    """Where the printed numbers have it the other way round than the text: what they say."""


@dataclass(frozen=True)
class Statement:
    """A sentence of the paper, and the differences that must hold for it to hold."""

    text: str
    place: str
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """One way to read what the paper leaves open."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """For the experiment's function, in JSON's types; see `Experiment.options_by`."""

    why: str = ""
    private: bool = True
    """Whether the noise that is added would still give the paper's privacy."""


@dataclass(frozen=True)
class Plan:
    """How much is run: which seeds, and sizes that go into every setting."""

    seeds: range
    sizes: Mapping[str, Any] = field(default_factory=dict)
    is_reduced: bool = False
    """Whether sizes are below the paper's, so that nothing can be compared with it."""


@dataclass(frozen=True)
class Experiment:
    """What makes rows: a function of a reading, a setting and seeds.

    `run` is "module:function", called as `run(options, setting, seeds)`, with a reading's options,
    a setting with the plan's sizes in it, and a list of seeds; it returns rows, each with its
    "seed". It must depend on nothing else. A *part* is one reading, one setting and at most
    `seeds_at_once` seeds: let none take longer than a minute or two.
    """

    name: str
    run: str
    settings: tuple[Mapping[str, Any], ...]
    full: Plan
    quick: Plan
    readings: tuple[Reading, ...] = (Reading("as printed"),)
    """The first is as printed. Where there are others, all are run on `selection`, and the one
    nearest to what is printed is judged beside the first."""

    selection: Plan = Plan(range(10))
    selection_settings: tuple[Mapping[str, Any], ...] | None = None
    """What is run to choose a reading; all settings if None."""

    quick_settings: tuple[Mapping[str, Any], ...] | None = None
    """What is run quickly; all settings if None."""

    choose_by: Literal["numbers", "differences"] = "numbers"
    """What a reading is chosen by: the printed numbers, or the differences that count, where no
    number of any target of the experiment is printed."""

    seeds_at_once: int = 10
    """How many make a part. Those of a part may share draws and a program, so that a seed's row may
    depend on which others are beside it."""

    privacy: str = ""
    """"module:function" without arguments: rows that say what the noise is worth, with the entries
    "series", "claimed", "epsilon", "delta", "unit", "basis" (accountant or claim) and "note"."""

    earlier: int = 0
    """How many other readings were looked at before there were targets, and how often verdicts were
    before all seeds were there: these count too."""

    revision: int = 1
    """One more whenever the same settings would give other rows."""

    options_by: str = ""
    """The entry of settings by whose value a reading's options are looked up, where readings differ
    in some settings only: what readings have in common is then run once."""

    @property
    def tried(self) -> int:
        """How many readings count in a verdict."""
        return len(self.readings) + self.earlier

    def has_sizes(self, setting: Mapping[str, Any], is_reduced: bool) -> bool:
        """Whether a setting has the sizes of one of the plans of that kind."""
        plans = (self.full, self.selection, self.quick)
        return any(
            plan.sizes.items() <= setting.items() for plan in plans if plan.is_reduced == is_reduced
        )

    def options(self, reading: Reading, setting: Mapping[str, Any]) -> dict[str, Any]:
        """What a reading says of a setting."""
        if self.options_by:
            return dict(reading.options.get(str(setting[self.options_by]), {}))
        return dict(reading.options)


@dataclass(frozen=True)
class Series:
    """A line of a figure: the mean over seeds of a measure, with its standard error."""

    name: str
    measure: str
    x: str | tuple[float, ...]
    """The entry of rows that it is drawn over, or the numbers themselves where rows have lists."""

    where: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "paper"
    printed: tuple[tuple[float, float], ...] = ()
    """Points read off the paper's figure."""


@dataclass(frozen=True)
class Figure:
    """One panel, with the paper's axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Table:
    """A table: for each row its label and the names of quantities, "" where there is none."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Target:
    """A table or a figure of a paper."""

    name: str
    """Such as "ono2020.table2"."""

    title: str
    place: str
    experiment: Experiment
    quantities: tuple[Quantity, ...]
    differences: tuple[Difference, ...]
    drawing: Table | tuple[Figure, ...]
    statements: tuple[Statement, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = self.by_name
        if len(known) < len(self.quantities):
            raise InputError(f"{self.name} has two quantities of one name.")
        if not any(one.counts for one in self.differences):
            raise InputError(f"{self.name} has no difference of interest.")
        drawn: Iterable[str] = (
            (name for _, cells in self.drawing.rows for name in cells if name)
            if isinstance(self.drawing, Table)
            else ()
        )
        used = [*drawn, *(name for one in self.differences for name in one.weights)]
        used += [one.over for one in self.quantities if one.over]
        for name in used:
            if name not in known:
                raise InputError(f"{self.name} has no quantity {name!r}.")
        for one in self.compared:
            its = one.printed
            unknown = its and its.trials and its.error is None and one.spread is None
            if unknown and one.statistic != "share":
                raise InputError(f"{self.name}: {one.name!r} needs a spread, or a printed error.")
        for difference in self.differences:
            if len({known[name].scale for name in difference.weights}) > 1:
                raise InputError(f"{self.name}: {difference.name!r} mixes scales.")
            if difference.expected == "same" and difference.least is None:
                raise InputError(f"{self.name}: {difference.name!r} needs a margin, `least`.")
        names = {one.name for one in self.differences}
        for statement in self.statements:
            if not set(statement.differences) <= names:
                raise InputError(f"{self.name}: a statement names differences that are not there.")

    @property
    def paper(self) -> str:
        return self.name.partition(".")[0]

    @property
    def by_name(self) -> dict[str, Quantity]:
        return {one.name: one for one in self.quantities}

    @property
    def compared(self) -> tuple[Quantity, ...]:
        """The quantities that the paper prints."""
        return tuple(one for one in self.quantities if one.printed is not None)


def above(name: str, more: str, less: str, **about: Any) -> Difference:
    """The difference by which one quantity is above another."""
    return Difference(name, {more: 1.0, less: -1.0}, **about)


def trend(name: str, rising: Sequence[str], **about: Any) -> Difference:
    """The least-squares slope over the ranks of quantities that are expected to rise."""
    middle = (len(rising) - 1) / 2.0
    total = sum((place - middle) ** 2 for place in range(len(rising)))
    return Difference(
        name, {one: (place - middle) / total for place, one in enumerate(rising)}, **about
    )
