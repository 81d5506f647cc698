"""Findings for people: one HTML page for all targets, and lines for a screen."""

from collections.abc import Sequence

from privrl.core.files import canonical_json
from privrl.papers.reproduce import drawing
from privrl.papers.reproduce.drawing import short
from privrl.papers.reproduce.readings import Finding
from privrl.papers.reproduce.target import FIRST_JUDGED, Quantity, Reading
from privrl.papers.reproduce.verdict import WORDS, Contrast
from privrl.report.layout import Column, bullets, columns, figure, paragraph, section, table
from privrl.report.markup import Html, tag
from privrl.report.page import document

_SIGNS = dict(zip(WORDS, ("●", "◐", "○", "–"), strict=True))
"""Verdicts differ in shape, for those who see no colours."""


def html(findings: Sequence[Finding]) -> str:
    """The whole page."""
    counts = ", ".join(
        f"{sum(one.verdict.word == word for one in findings)} {word}" for word in WORDS
    )
    heads = (Column("target"), Column("verdict"), Column("reading"), *columns("", "seeds")[1:])
    rows = [
        (
            *(one.target.name, _word(one), label(one.chosen)),
            *(str(one.verdict.seeds), one.verdict.reason),
        )
        for one in findings
    ]
    first = section(
        "verdicts",
        "Verdicts",
        paragraph(f"{len(findings)} tables and figures: {counts}."),
        table("Verdicts", (*heads, Column("reason")), rows),
        first=True,
    )
    groups: dict[str, list[Finding]] = {}
    for one in findings:
        groups.setdefault(one.target.experiment.name, []).append(one)
    parts = [
        part for some in groups.values() for part in (*map(_target_section, some), _runs(some))
    ]
    return document(
        "Five papers on private reinforcement learning, run again",
        "privrl reproduce",
        [first, *parts],
    )


def _word(one: Finding) -> str:
    return f"{_SIGNS[one.verdict.word]} {one.verdict.word}"


def _target_section(one: Finding) -> Html:
    target, verdict = one.target, one.verdict
    rows = list(one.results.rows(one.chosen, one.is_reduced))
    pictures = drawing.draw(target, rows, verdict)
    return section(
        target.name.replace(".", "-"),
        f"{target.name}: {target.title}",
        paragraph(f"{target.place}. {_word(one)}: {verdict.reason}"),
        figure(f"Under the reading “{label(one.chosen)}”, seeds from {FIRST_JUDGED} on", *pictures),
        _differences(verdict.differences),
        _numbers(one),
        _statements(one),
        bullets(target.notes) if target.notes else None,
    )


def _runs(some: Sequence[Finding]) -> Html:
    """What targets of one experiment have in common: readings, noise, versions."""
    name = some[0].target.experiment.name
    return section(
        name.replace(".", "-"),
        f"{name}: readings, noise, and how it was run",
        _readings(some),
        _privacy(some[0]),
        _provenance(some[0]),
    )


def _differences(found: Sequence[Contrast]) -> Html:
    def row(one: Contrast) -> tuple[str, ...]:
        printed = f"{short(one.printed)} ± {short(one.printed_error)}" if one.is_printed else ""
        wanted = "" if one.needed is None else f"{one.needed:,}"
        outcome = one.outcome if one.counts else f"{one.outcome} (does not count)"
        ours = "–" if one.estimate is None else f"{short(one.estimate)} ± {short(one.error)}"
        return one.name, outcome, ours, printed, f"{one.seeds}", wanted

    heads = columns("difference", "outcome", "ours", "printed", "seeds", "seeds needed")
    return table("Differences of interest, with standard errors", heads, [row(x) for x in found])


def _numbers(one: Finding) -> Html:
    def row(quantity: Quantity) -> tuple[str, ...]:
        ours = one.verdict.estimates.get(quantity.name)
        number = next((it for it in one.verdict.numbers if it.name == quantity.name), None)
        printed = (
            "" if number is None else f"{short(number.printed)} ± {short(number.printed_error)}"
        )
        place = quantity.lost if quantity.printed is None else quantity.printed.place
        return (
            quantity.name,
            "–" if ours is None else f"{short(ours.value)} ± {short(ours.error)}",
            printed,
            "" if number is None else "yes" if number.agrees else "no",
            place or quantity.kind,
        )

    heads = (*columns("number", "ours", "printed", "agrees"), Column("where it is printed"))
    caption = "Numbers; standard errors are on the scale on which they are compared"
    return table(caption, heads, [row(quantity) for quantity in one.target.quantities])


def _statements(one: Finding) -> Html | None:
    if not one.target.statements:
        return None
    rows = [
        (statement.text, statement.place, outcome)
        for statement, (_, outcome) in zip(
            one.target.statements, one.verdict.statements, strict=True
        )
    ]
    heads = (Column("the paper says"), Column("where"), Column("here"))
    return table("Statements of the text", heads, rows)


def _readings(some: Sequence[Finding]) -> Html | None:
    """Readings x outcomes."""
    first = some[0]
    if len(first.readings) < 2:
        return None
    rows = []
    for place, it in enumerate(first.readings):
        verdicts = (one.readings[place].verdict for one in some)
        chosen = " (chosen)" if it.reading == first.chosen else ""
        rows.append(
            (
                label(it.reading) + chosen,
                it.reading.why,
                "–" if it.distance is None else short(it.distance),
                *("not judged" if one is None else one.word for one in verdicts),
            )
        )
    heads = ("reading", "why", "distance on seeds 0 to 9", *(one.target.name for one in some))
    caption = "Readings of what the paper leaves open, and what comes of each"
    return table(caption, tuple(map(Column, heads)), rows)


def label(reading: Reading) -> str:
    """A reading's name, with a warning where its noise does not give what the paper claims."""
    return reading.name + ("" if reading.private else " (not private)")


def _privacy(one: Finding) -> Html | None:
    if not one.results.privacy:
        return None
    keys = ("series", "claimed", "epsilon", "delta", "basis")
    rows = [
        (*(_shown(it.get(key)) for key in keys), f"{it.get('unit', '')}. {it.get('note', '')}")
        for it in one.results.privacy
    ]
    heads = (*columns("noise", "claimed epsilon", "epsilon", "delta", "basis"), Column("of what"))
    return table("What the noise is worth", heads, rows)


def _shown(value: object) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _provenance(one: Finding) -> Html:
    parts = one.results.parts.values()
    said = []
    for about in {canonical_json(dict(part.about)): part.about for part in parts}.values():
        versions = ", ".join(f"{name} {it}" for name, it in about.get("versions", {}).items())
        machine = about.get("machine", {})
        code = f"code {about.get('code')}"
        said.append(f"{versions}, {code}; {machine.get('cpu')}, {machine.get('cores')} cores")
    seconds = sum(part.seconds for part in parts)
    text = f"{len(parts)} parts, {seconds:,.0f} seconds. {'; '.join(said)}."
    return tag("p", tag("small", text if parts else "Not run."))


def lines(findings: Sequence[Finding]) -> list[str]:
    """For a screen: a line for each target, and why."""
    wide = max((len(one.target.name) for one in findings), default=0)
    found = []
    for one in findings:
        found.append(
            f"{one.target.name:<{wide}}  {one.verdict.word:<15} {one.verdict.seeds:>4} seeds, "
            f"reading: {label(one.chosen)}"
        )
        found.append(f"{'':<{wide}}  {one.verdict.reason}")
    return found
