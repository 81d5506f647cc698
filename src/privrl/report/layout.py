"""What the page is made of: sections, tables, figures, and the study as all sections read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from privrl.privacy.certificate import Certificate
from privrl.privacy.promise import NoiseOrigin, Unit
from privrl.report import figures, numbers, words
from privrl.report.figures import Figure, Split
from privrl.report.markup import Html, join, tag
from privrl.report.numbers import Style
from privrl.run.study import Study

# A table of more rows is not printed with the page.
_LONG = 40


class ReportContext:
    """A study, and the figures that several sections show."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.certificate = study.certificate
        self.details = study.main.details

    @cached_property
    def target_name(self) -> str:
        """In a sentence."""
        if self.study.on_policy:
            return self.behavior_name
        return words.name_in_sentence(self.study.target_name)

    @cached_property
    def behavior_name(self) -> str:
        """The same, of the policy that was followed."""
        name = self.study.behavior_name
        return "what was done" if name == "as logged" else words.name_in_sentence(name)

    @cached_property
    def target(self) -> Figure:
        """The value of the target policy, by the main estimator."""
        return figures.of_result(self.target_name, self.study.main)

    @cached_property
    def behavior(self) -> Figure | None:
        """The value of the policy that was followed."""
        if self.study.on_policy:
            return None
        return figures.of_detail(self.behavior_name, self.details, "behavior")

    @cached_property
    def difference(self) -> Figure | None:
        """Target less behaviour."""
        return figures.of_detail("the difference", self.details, "difference")

    @cached_property
    def answer(self) -> words.Answer:
        """The headline."""
        return words.answer(self.target, self.difference, self.behavior_name)

    @cached_property
    def power(self) -> int:
        """Of all values, which share an axis."""
        held = [self.target, *([self.behavior] if self.behavior else [])]
        return numbers.exponent([one for figure in held for one in figure.numbers])

    def style(self, figure: Figure) -> Style:
        """How this figure is written, everywhere."""
        if figure is self.difference:
            return self.answer.style
        if figure.half is None and self.target.half:
            return numbers.style(self.target, self.power)
        return numbers.style(figure, self.power)

    def split(self, figure: Figure) -> Split | None:
        """What the interval of a figure is made of."""
        reach = figures.returns_range(self.study.main)
        if reach is not None and figure is self.difference:
            reach = reach[0] - reach[1], reach[1] - reach[0]
        return figures.split(figure, reach)

    @cached_property
    def unit(self) -> Unit | None:
        """Who is counted."""
        if self.certificate is not None:
            return self.certificate.unit
        held = self.study.main.promise
        return held.unit if isinstance(held, Certificate) else None

    @cached_property
    def units(self) -> float | None:
        """How many there are."""
        return figures.number(self.details, "units")

    @cached_property
    def origins(self) -> set[NoiseOrigin]:
        """Where all the noise in the study comes from."""
        held = [self.certificate, *(result.promise for result in self.study.results)]
        return {one.noise for one in held if isinstance(one, Certificate)}

    @cached_property
    def uncovered_estimators(self) -> list[str]:
        """The estimators that the study's certificate does not cover.

        They have none, or one with a larger epsilon than all together are said to have.
        """
        whole = self.certificate
        if whole is None:
            return []
        return [
            result.method
            for result in self.study.results
            if not isinstance(result.promise, Certificate)
            or (
                result.promise.delta == whole.delta
                and result.promise.epsilon > whole.epsilon * (1.0 + 1e-6)
            )
        ]

    @cached_property
    def unprotected_reason(self) -> str:
        """Why the people in the data have no protection; empty if they have."""
        if self.certificate is None:
            return "the data was declared public"
        if not all(origin.is_secret for origin in self.origins):
            return "the noise is no secret"
        return "not everything is covered" if self.uncovered_estimators else ""


def section(name: str, heading: str, *children: Html | None, first: bool = False) -> Html:
    """A part of the page with a heading; `first` has no line above."""
    label = f"{name}-heading"
    return join(
        "\n",
        tag(
            "section",
            tag("h2", heading, id=label),
            *children,
            id=name,
            cls="first" if first else None,
            aria_labelledby=label,
        ),
    )


def paragraph(*text: str | None, cls: str | None = None) -> Html:
    """A paragraph."""
    return tag("p", *text, cls=cls)


def bullets(items: Sequence[str], cls: str | None = None) -> Html:
    """A list."""
    return tag("ul", *(tag("li", item) for item in items), cls=cls)


def figure(caption: str, *children: Html | None) -> Html:
    """A plot and what belongs to it, with a caption above."""
    return tag("figure", tag("figcaption", caption), *children)


@dataclass(frozen=True)
class Column:
    """The head of a table's column."""

    name: str
    number: bool = False
    open: bool = False
    """Whether words may break anywhere: for names of users."""


def columns(first: str, *numbers: str, open: bool = False) -> tuple[Column, ...]:
    """Heads of a table of numbers; `open` is of the first, which names the rows."""
    return (Column(first, open=open), *(Column(name, number=True) for name in numbers))


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Html:
    """A table whose first column names the rows; on a narrow screen it scrolls by itself."""

    def cls(column: Column) -> str | None:
        return "number" if column.number else "open" if column.open else None

    head = (tag("th", column.name, scope="col", cls=cls(column)) for column in columns)
    body = []
    for row in rows:
        cells = [tag("th", row[0], scope="row", cls=cls(columns[0]))]
        cells += [
            tag("td", cell, cls=cls(column))
            for column, cell in zip(columns[1:], row[1:], strict=True)
        ]
        body.append(tag("tr", *cells))
    table = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *body)
    )
    return tag("div", table, cls="wide", role="group", aria_label=caption, tabindex=0)


def collapsible_table(
    caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> Html:
    """A plot's figures as a table that opens on demand."""
    return tag(
        "details",
        tag("summary", "The same figures as a table"),
        table(caption, columns, rows),
        cls="short" if len(rows) <= _LONG else "long",
    )


def capitalize(text: str) -> str:
    """`text` as the beginning of a sentence; markup stays as it is."""
    return text if isinstance(text, Html) else text[:1].upper() + text[1:]
