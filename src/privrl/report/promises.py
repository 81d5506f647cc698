"""What it rests on and what it promises: warnings, public facts, privacy, its price, and checks."""

import math

from privrl.privacy.certificate import Certificate
from privrl.privacy.promise import NoiseOrigin
from privrl.report import figures, layout, numbers, plots, words
from privrl.report.figures import Figure
from privrl.report.layout import Column, ReportContext, capitalize
from privrl.report.markup import Html, join, tag

# --- what must not be overlooked ------------------------------------------------------------------


def banners(read: ReportContext) -> list[Html]:
    """Everything because of which the promise does not hold, or not for all."""
    certified = read.certificate is not None
    warnings = (
        (
            not certified,
            "No certificate: the data was declared public.",
            "Nothing protects the people in it, if there are any. This report is for simulated "
            "data, or for data that everybody may see.",
        ),
        (
            certified and NoiseOrigin.REPRODUCIBLE in read.origins,
            "No protection: the noise can be taken off again.",
            "It was made from a seed, and whoever knows or guesses the seed can subtract it. "
            "That is fine for experiments. For real people, run again without a seed.",
        ),
        (
            certified and NoiseOrigin.NOT_DRAWN in read.origins,
            "No protection: no noise was drawn.",
            "The certificate is that of a plan, not of these figures.",
        ),
        (
            bool(read.uncovered_estimators),
            "Not everything here is covered by the certificate.",
            f"Without its protection: {', '.join(read.uncovered_estimators)}. Do not pass this "
            "report on.",
        ),
    )
    return [
        tag("div", tag("strong", head), tag("p", text), cls="banner", role="note")
        for holds, head, text in warnings
        if holds
    ]


# --- assumptions ----------------------------------------------------------------------------------


def public(read: ReportContext) -> Html:
    """The public facts, and what no computation can vouch for."""
    facts = read.study.facts
    counted = any(fact.origin == "counted" for fact in facts)
    rows = [
        (
            join(tag("code", fact.name), tag("span", words.origin(fact), cls="under")),
            join(fact.value, tag("span", fact.meaning, cls="under")),
        )
        for fact in facts
    ]
    columns = (Column("Fact", open=True), Column("Taken to be", open=True))
    table = layout.table("Facts that were taken to be public", columns, rows) if rows else None
    return layout.section(
        "public",
        "What was taken as known",
        layout.paragraph(
            f"{words.SAID_IN_ADVANCE[counted]} Anyone may know them, and the figures are only as "
            "good as they are."
        )
        if rows
        else layout.paragraph("The study lists no facts that were taken to be public."),
        table,
        tag("h3", "What the figures rest on"),
        layout.bullets(words.estimate_assumptions(read.study.results)),
    )


# --- promise --------------------------------------------------------------------------------------


def promise(read: ReportContext) -> Html:
    """The certificate in words: as odds, as what it does and does not cover, and as terms."""
    certificate = read.certificate
    if certificate is None:
        return layout.section(
            "promise",
            "What is promised to the people in the data",
            layout.paragraph(
                "Nothing. The data was declared public, so no certificate was made. If real people "
                "are in it, do not pass this report on."
            ),
        )
    epsilon, delta = certificate.epsilon, certificate.delta
    best = words.guess(epsilon, delta)
    said = words.promise(certificate)
    tests = [
        (
            "A guess between two equally likely ideas",
            numbers.percent(0.5),
            numbers.percent(best, up=True),
        ),
        *(
            (
                f"A test with false alarms in {100 * alarms:g} of 100 cases",
                numbers.percent(alarms),
                numbers.percent(words.detection(epsilon, delta, alarms), up=True),
            )
            for alarms in (0.05, 0.01)
        ),
    ]
    columns = layout.columns(
        "An attacker who knows everything else", "Right without this report", "With it, at most"
    )
    warning = words.weakness_warning(certificate)
    if read.units and delta >= 1.0 / read.units:
        much = (
            f"Delta should be well below one in {numbers.count(read.units)}, the number of "
            f"{words.noun(read.unit)}: at {numbers.plain(delta)}, giving away one of them outright "
            "would be within the promise."
        )
        warning = f"{warning} {much}" if warning else much
    lead = None
    if read.unprotected_reason:
        lead = layout.paragraph(
            f"This promise does not hold for this report: {read.unprotected_reason}. Otherwise it "
            "would read:",
            cls="word",
        )
    terms = [
        ("Protected", words.PROTECTED[certificate.unit]),
        ("Against", words.describe_neighbours(certificate)),
        ("In", words.RELEASED[certificate.release]),
        ("How much", f"epsilon {numbers.plain(epsilon)} at delta {numbers.plain(delta)}"),
        ("Noise", words.NOISE[certificate.noise]),
    ]
    terms += [("Assumed", f"{one.statement}: {one.enforced}") for one in certificate.assumptions]
    return layout.section(
        "promise",
        "What is promised to the people in the data",
        lead,
        layout.paragraph(said),
        layout.figure(
            "The probability that such a guess is right.",
            plots.probs("guess", "Probability of a right guess", said, 0.5, best),
        ),
        layout.table("What an attacker can do", columns, tests),
        layout.paragraph(warning, cls="word") if warning else None,
        tag("h3", "What it protects"),
        layout.bullets(words.protects(certificate)),
        tag("h3", "What it does not protect"),
        layout.bullets(words.does_not_protect(certificate)),
        tag("h3", "Further analyses of the same people"),
        layout.paragraph(words.describe_composition(certificate)),
        tag("h3", "Arithmetic"),
        layout.paragraph(words.arithmetic(certificate)),
        tag("h3", "The terms"),
        tag(
            "dl",
            *(join(tag("dt", name), tag("dd", capitalize(text))) for name, text in terms),
            cls="terms",
        ),
    )


# --- what privacy costs ---------------------------------------------------------------------------


def curve(read: ReportContext) -> Html | None:
    """The width of the interval at other epsilons."""
    points = sorted(read.study.curve, key=lambda point: point.epsilon)
    if not points:
        return None
    held = read.study.main.promise
    chosen = (
        held.epsilon
        if isinstance(held, Certificate)
        else figures.number(read.study.main.settings, "epsilon")
    )
    at = [point.epsilon for point in points]
    widths, free = [one.half_width for one in points], [one.noise_free for one in points]
    finite = [one for one in (*widths, *free) if math.isfinite(one)]
    power = numbers.exponent(finite)
    smallest = min((one for one in finite if one > 0.0), default=1.0)
    how = numbers.style(Figure("", None, -smallest, smallest), power)
    mark = None
    if chosen is not None and chosen > 0.0:
        mark = (chosen, f"chosen: {numbers.plain(chosen)}")
    described = (
        f"The half-width of the interval falls from {how.near(widths[0])} at epsilon "
        f"{numbers.plain(at[0])} to {how.near(widths[-1])} at epsilon {numbers.plain(at[-1])}. "
        f"Without noise it is {how.near(free[-1])}."
        if widths[0] > widths[-1]
        else "The half-width of the interval at each epsilon."
    )
    people = (
        f" of {numbers.count(read.study.curve_people)} people" if read.study.curve_people else ""
    )
    columns = layout.columns("Epsilon", "Half-width", "Without noise")
    rows = [
        (numbers.plain(one.epsilon), how.near(one.half_width), how.near(one.noise_free))
        for one in points
    ]
    return layout.section(
        "curve",
        "What privacy costs",
        layout.paragraph(
            f"{described} This was computed on made-up data{people} of the same shape, so it "
            "cost nothing. It shows the trade in a world of this size, not in the one that the "
            "data comes from."
        ),
        layout.figure(
            f"How far the interval of {read.target_name} reaches to either side. Solid line with "
            "dots: with noise. Dashed: without. Left is more private.",
            plots.curve(
                "curve-plot",
                "Half-width of the interval by epsilon",
                described,
                [
                    plots.Line(at, free, "free"),
                    plots.Line(at, widths, "target", dots=True),
                ],
                below="epsilon, on a logarithmic scale",
                power=power,
                logarithmic=True,
                from_zero=True,
                mark=mark,
            ),
        ),
        layout.collapsible_table("Half-width of the interval by epsilon", columns, rows),
    )


# --- the rest -------------------------------------------------------------------------------------


def notes(read: ReportContext) -> Html | None:
    """What the estimators remark."""
    found = [
        join(tag("strong", result.method), f": {note}")
        for result in read.study.results
        for note in result.notes
    ]
    return layout.section("notes", "Notes", layout.bullets(found)) if found else None


def check(read: ReportContext) -> Html:
    """How a reader can recompute the promise and repeat the study."""
    certificate, parts = read.certificate, []
    if certificate is None:
        parts.append(layout.paragraph("There is no certificate, so there is nothing to verify."))
    else:
        parts += [
            layout.paragraph(
                "The promise can be recomputed by anyone, without the data, by two accountants "
                "that share no code:"
            ),
            tag("pre", tag("code", "privrl verify --strict certificate.json")),
            layout.paragraph(
                f"It must come back to epsilon {numbers.plain(certificate.epsilon)} at delta "
                f"{numbers.plain(certificate.delta)}; --strict also refuses noise that is known.",
                cls="small",
            ),
        ]
    if read.study.command:
        parts += [
            layout.paragraph("This command makes the study again, at the same price:"),
            tag("pre", tag("code", read.study.command)),
        ]
    if certificate is not None:
        parts.append(
            tag(
                "details",
                tag("summary", "The certificate in full"),
                tag("pre", certificate.card()),
                cls="short",
            )
        )
        made = f"The certificate was issued by {certificate.issued_by}."
        parts.append(layout.paragraph(made, cls="small"))
    return layout.section("check", "How to check it", *parts)
