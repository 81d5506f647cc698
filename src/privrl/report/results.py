"""What was found: the answer, the values, how sure they are, other estimators, and states."""

import math
from collections.abc import Sequence
from dataclasses import replace

from privrl.evaluation.result import NotPrivate, Result
from privrl.privacy.certificate import Certificate, Claim
from privrl.report import figures, layout, numbers, plots, words
from privrl.report.figures import Figure
from privrl.report.layout import ReportContext, capitalize
from privrl.report.markup import Html, join, tag
from privrl.report.numbers import Style
from privrl.run.study import Slice

# From so many states on, a plot shows dots without names.
_MOST_NAMES = 24

# --- the answer -----------------------------------------------------------------------------------


def answer(read: ReportContext) -> Html:
    """The headline, what it is about, and the three figures people ask for first."""
    notes = read.study.notes
    remarks = None
    if notes:
        remarks = tag(
            "div", tag("strong", "Please note"), layout.bullets(notes), cls="remarks", role="note"
        )
    return layout.section(
        "answer",
        "The answer",
        layout.paragraph(read.answer.sentence, cls="headline"),
        layout.paragraph(
            f"{_value_definition(read)} Higher is better. "
            + ("" if read.study.on_policy else words.WHAT_MATTERS),
            cls="soft",
        ),
        tag("dl", *_tiles(read), cls="tiles"),
        remarks,
        first=True,
    )


def _value_definition(read: ReportContext) -> str:
    settings = read.study.main.settings
    gamma, horizon = (figures.number(settings, name) for name in ("gamma", "horizon"))
    steps = f" over the first {numbers.count(horizon)} steps" if horizon else ""
    sentence = f"The value of a policy is the reward that it collects{steps}, on average"
    if gamma is not None and gamma < 1.0:
        sentence += f"; each step later counts {numbers.plain(gamma)} times as much"
    return f"{sentence}."


def _tile(name: str, big: str, under: str) -> Html:
    return tag("div", tag("dt", name), tag("dd", big, cls="big"), tag("dd", under, cls="under"))


def _tiles(read: ReportContext) -> list[Html]:
    shown = read.difference or read.target
    name = "Difference in value" if read.difference else "Value"
    how = read.style(shown)
    under = (
        f"{numbers.level(shown)}: {how.interval(shown)}" if shown.has_interval else "no interval"
    )
    found = [_tile(name, how.near(shown.estimate), under)]
    size = figures.number(read.details, "effective_sample_size")
    noun = words.noun(read.unit)
    if size is not None and read.units is not None:
        under = f"is what the {numbers.count(read.units)} {noun} are worth for this policy"
        found.append(_tile("Effective sample size", numbers.count(size), under))
    elif read.units is not None:
        found.append(_tile("Data", numbers.count(read.units), noun))
    if not read.unprotected_reason and read.certificate is not None:
        best = words.guess(read.certificate.epsilon, read.certificate.delta)
        found.append(
            _tile(
                "An attacker's guess is right",
                f"≤ {numbers.percent(best, up=True)}",
                f"instead of 50{numbers.SPACE}%, since epsilon is "
                f"{numbers.plain(read.certificate.epsilon)}",
            )
        )
    else:
        found.append(_tile("Protection", "None", read.unprotected_reason))
    return found


# --- values ---------------------------------------------------------------------------------------


def _format_figure(figure: Figure, how: Style) -> str:
    if figure.estimate is None:
        return how.interval(figure) if figure.has_interval else "no single value"
    if not figure.has_interval:
        return f"{how.near(figure.estimate)} (no interval)"
    return f"{how.near(figure.estimate)} ({how.interval(figure)})"


def values(read: ReportContext) -> Html:
    """The difference and the two values, each with its interval."""
    held = [one for one in (read.target, read.behavior) if one is not None]
    shapes = ("target", "behavior")
    rows = [
        plots.Row(_rename_figure(one), _format_figure(one, read.style(one)), shape)
        for one, shape in zip(held, shapes, strict=False)
    ]
    parts: list[Html | None] = []
    if read.difference is not None:
        text = _format_figure(read.difference, read.style(read.difference))
        name = f"{capitalize(read.target_name)} less {read.behavior_name}"
        name = name if len(name) <= plots.MOST_LETTERS else "The difference"
        row = plots.Row(_rename_figure(read.difference, name), text, "difference")
        parts.append(
            layout.figure(
                "The difference. An interval that does not touch 0 decides between better "
                "and worse.",
                plots.forest(
                    "difference",
                    "The difference in value",
                    f"{name}: {text}.",
                    [row],
                    power=read.style(read.difference).exponent,
                    zero=True,
                    sides=("worse", "better"),
                ),
            )
        )
    described = " ".join(f"{row.figure.name}: {row.figures}." for row in rows)
    parts.append(
        layout.figure(
            "The two values, on their own scale." if len(rows) > 1 else "The value.",
            plots.forest("values", "Values of the policies", described, rows, power=read.power),
        )
    )
    shown = [*([read.difference] if read.difference else []), *held]
    table = [(figure.name, figure, read.style(figure)) for figure in shown]
    caption = "Values, differences" if read.difference else "Values"
    parts.append(_interval_table(f"{caption} and their intervals", "", table))
    return layout.section("values", "The values", *parts)


def _rename_figure(figure: Figure, name: str | None = None) -> Figure:
    """The same figure under a name that begins a line."""
    return replace(figure, name=capitalize(name or figure.name))


def _interval_table(caption: str, first: str, rows: Sequence[tuple[str, Figure, Style]]) -> Html:
    """A table of figures with their intervals; a level that is common to all is in the head."""
    levels = {numbers.level(figure) for _, figure, _ in rows if figure.has_interval}
    common = levels.pop() if len(levels) == 1 else None
    cells = []
    for name, figure, how in rows:
        interval = join("none stated")
        if figure.has_interval:
            under = None if common else tag("span", numbers.level(figure), cls="under")
            interval = join(how.interval(figure), under)
        cells.append((capitalize(name), how.near(figure.estimate), interval))
    heads = "Best guess", capitalize(common or "interval")
    columns = layout.columns(first, *heads, open=True)
    return layout.table(caption, columns, cells)


# --- how sure -------------------------------------------------------------------------------------


def certainty(read: ReportContext) -> Html | None:
    """What the intervals are made of, and how much of the data speaks."""
    parts = [*_interval_parts(read), *_evidence(read)]
    if not parts:
        return None
    return layout.section("certainty", "How sure, and why not surer", *parts)


_PART_WORDS = {
    "sampling": "sampling: who happened to be in the data",
    "noise": "noise: the price of privacy",
    "clipping": "clipping: what the data cannot show, at worst",
}


def _interval_parts(read: ReportContext) -> list[Html]:
    held = [
        (figure, parts)
        for figure in (read.difference, read.target, read.behavior)
        if figure is not None and (parts := read.split(figure)) is not None
    ]
    if not held:
        return []
    figure, main = held[0]
    power = numbers.exponent([parts.half for _, parts in held])
    if figure is read.difference:
        power = read.answer.style.exponent
    how = [numbers.style(Figure("", None, -one.half, one.half), power) for _, one in held]
    splits = [replace(one, name=capitalize(one.name)) for _, one in held]
    said = words.describe_parts(main, figure.name, how[0])
    columns = layout.columns("", "In all", *map(capitalize, plots.PARTS), open=True)
    rows = [
        (
            one.name,
            style.high(one.half),
            *(style.finer(1).near(getattr(one, part)) for part in plots.PARTS),
        )
        for one, style in zip(splits, how, strict=True)
    ]
    present = [part for part in plots.PARTS if any(getattr(one, part) > 0.0 for one in splits)]
    key = tag(
        "ul",
        *(tag("li", plots.swatch(part), _PART_WORDS[part]) for part in present),
        cls="key",
    )
    return [
        layout.paragraph(said),
        layout.figure(
            "How far each interval reaches to either side, and what that is made of.",
            plots.stacked_bars("parts", "What the intervals are made of", said, splits, how),
            key,
        ),
        layout.collapsible_table("Half the width of each interval, in parts", columns, rows),
        layout.paragraph(
            words.HOW_PARTS_ADD + (words.HOW_CLIPPING_ADDS if "clipping" in present else ""),
            cls="small",
        ),
    ]


def _evidence(read: ReportContext) -> list[Html]:
    found: list[Html] = []
    size, units = figures.number(read.details, "effective_sample_size"), read.units
    if size is not None and units is not None and units > 0.0:
        judged = words.judge_sample_size(size, units, words.noun(read.unit))
        said = f"{numbers.count(size)} of {numbers.count(units)}"
        share = size / units
        found += [
            tag("h3", "Effective sample size"),
            layout.paragraph(tag("span", f"{judged.word}.", cls="word"), f" {judged.sentence}"),
            plots.meter("sample", "Effective sample size", f"{said}.", share, 0.0, 0.0),
            layout.paragraph(
                f"{said}. {words.SAMPLE_SCALE}",
                f" {words.NOISY}" if isinstance(read.study.main.promise, Certificate) else None,
                cls="small",
            ),
        ]
    mass = figures.of_detail("support", read.details, "weight_mass")
    if mass is not None and mass.estimate is not None:
        judged = words.judge_support(mass, _allows_for_rest(read))
        ends = [
            min(max(end, 0.0), 1.0) if end is not None else mass.estimate
            for end in (mass.low, mass.high)
        ]
        found += [
            tag("h3", "Support"),
            layout.paragraph(tag("span", f"{judged.word}.", cls="word"), f" {judged.sentence}"),
            plots.meter("support", "Support", judged.sentence, mass.estimate, *ends),
            layout.paragraph(words.SUPPORT_SCALE, cls="small"),
        ]
        clipped = figures.of_detail("", read.details, "clipped")
        if clipped is not None and clipped.estimate is not None:
            how = read.style(clipped)
            found.append(
                layout.paragraph(
                    "Counting only what the data shows, the value is "
                    f"{_format_figure(clipped, how)}. That answers another question: it leaves the "
                    "rest out instead of allowing for it.",
                    cls="small",
                )
            )
    return found


def _allows_for_rest(read: ReportContext) -> bool | None:
    if "clipping" in read.target.parts:
        return True
    return None if read.study.main.settings.get("largest_ratio") is None else False


# --- other estimators -----------------------------------------------------------------------------


def estimators(read: ReportContext) -> Html | None:
    """All results side by side, if there are several."""
    main = read.study.main
    # Without known start states a value function gives no single value to compare.
    results = [one for one in read.study.results if one is main or one.estimate is not None]
    if len(results) < 2:
        return None
    held = [
        read.target if result is main else figures.of_result(result.method, result)
        for result in results
    ]
    power = numbers.exponent([one for figure in held for one in figure.numbers])
    rows, cells, explained = [], [], []
    for figure, result in zip(held, results, strict=True):
        how = numbers.style(figure, power)
        if figure.half is None and read.target.half:
            how = numbers.style(read.target, power)
        text = _format_figure(figure, how)
        label = f"{result.method}, {_privacy_label(read, result)}"
        rows.append(plots.Row(_rename_figure(figure, label), text))
        remark = _other_quantity(main, result)
        name = join(
            result.method,
            tag("span", _privacy_label(read, result), cls="under"),
            tag("span", remark, cls="under") if remark else None,
        )
        cells.append((name, figure, how))
        told = words.describe_method(result, read.unit, read.study.on_policy)
        if told is not None:
            explained.append(join(tag("strong", result.method), f" {told}."))
    described = " ".join(f"{row.figure.name}: {row.figures}." for row in rows)
    pairs = list(zip(results, held, strict=True))
    bare = [result.method for result, figure in pairs if not figure.has_interval]
    apart = [result.method for result, figure in pairs if _is_outside(read.target, figure)]
    return layout.section(
        "estimators",
        "The same question, asked in other ways",
        layout.paragraph(
            f"The answer above is that of {main.method}. Estimators that agree are no proof, but "
            "estimators that disagree are a warning."
        ),
        layout.paragraph(words.describe_disagreement(main.method, apart)) if apart else None,
        layout.figure(
            f"The value of {read.target_name}, by each estimator. A mark without a line has no "
            "interval.",
            plots.forest("estimators-plot", "Values by estimator", described, rows, power=power),
        ),
        _interval_table(f"The value of {read.target_name} by estimator", "Estimator", cells),
        layout.paragraph(f"No interval is stated by {', '.join(bare)}.", cls="small")
        if bare
        else None,
        layout.bullets(list(dict.fromkeys(explained)), cls="small") if explained else None,
    )


def _is_outside(main: Figure, other: Figure) -> bool:
    """Whether an estimate is not in the main interval."""
    if main.low is None or main.high is None or other.estimate is None:
        return False
    return not main.low <= other.estimate <= main.high


def _privacy_label(read: ReportContext, result: Result) -> str:
    held = result.promise
    if isinstance(held, NotPrivate):
        return "not private" if read.certificate else "not private, on public data"
    if isinstance(held, Claim):
        return "a paper's claim, no certificate"
    if read.certificate is None:
        return f"noise of epsilon {numbers.plain(held.epsilon)}, on public data"
    return f"epsilon {numbers.plain(held.epsilon)}"


def _other_quantity(main: Result, result: Result) -> str | None:
    """In which way the estimator answers a slightly different question."""
    found = []
    gammas = [figures.number(one.settings, "gamma") for one in (main, result)]
    if None not in gammas and gammas[0] != gammas[1]:
        found.append(f"discounts by {numbers.plain(gammas[1] or 0.0)} a step")
    limits = [figures.number(one.settings, "horizon") for one in (main, result)]
    if limits[0] != limits[1]:
        steps = "all steps" if limits[1] is None else f"{numbers.count(limits[1])} steps"
        found.append(f"counts {steps}")
    return f"not quite the same quantity: {' and '.join(found)}" if found else None


# --- states ---------------------------------------------------------------------------------------


def states(read: ReportContext) -> Html | None:
    """The value function along each coordinate."""
    shown = [one for one in read.study.slices if one.at and one.values]
    if not shown:
        return None
    named = [result.method for result in read.study.results if result.weights is not None]
    by = f", as {named[0]} found it" if named else ""
    return layout.section(
        "states",
        "Where the value is high",
        layout.paragraph(
            f"The value of {read.target_name} from each state on{by}. These figures have no "
            "interval: read the shape, not the digits."
        ),
        layout.paragraph(words.NO_STATE_FITS) if _no_state_fits(read, shown) else None,
        *(_slice(place, one) for place, one in enumerate(shown)),
    )


def _no_state_fits(read: ReportContext, shown: Sequence[Slice]) -> bool:
    """Whether no mean over the states shown can be in the interval of the policy's value."""
    low, high = read.target.low, read.target.high
    if low is None or high is None:
        return False
    values = [value for one in shown for value in one.values if math.isfinite(value)]
    return bool(values) and (max(values) < low or min(values) > high)


def _slice(place: int, one: Slice) -> Html:
    name = f"slice-{place + 1}"
    values = one.values[: len(one.at)]
    finite = [value for value in values if math.isfinite(value)]
    power = numbers.exponent(finite)
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    how = numbers.style(Figure("", high, low, high), power)
    how = how.finer(1) if high > low else how
    discrete = one.discrete
    labels = [numbers.plain(at) for at in one.at[: len(values)]]
    for spot, label in enumerate((one.labels or ())[: len(labels)]):
        labels[spot] = label
    shown = list(zip(labels, values, (how.near(value) for value in values), strict=True))
    # Beside a dot there is no room for the unit, which the axis states.
    short = [
        (label, value, how.bare(value) if math.isfinite(value) else text)
        for label, value, text in shown
    ]
    if not finite:
        described = "There is no finite value."
    elif high == low:
        described = f"By {one.coordinate}: the value is {how.near(high)} at every point shown."
    else:
        top, bottom = (values.index(end) for end in (high, low))
        described = (
            f"By {one.coordinate}: highest, {how.near(high)}, at {labels[top]}; "
            f"lowest, {how.near(low)}, at {labels[bottom]}."
        )
    title = f"Value by {one.coordinate}"
    if discrete and len(shown) <= _MOST_NAMES:
        plot = plots.lollipops(name, title, described, short, power)
    else:
        line = plots.Line(one.at, values, "target", joined=not discrete)
        plot = plots.curve(
            name,
            title,
            described,
            [line],
            below=plots.truncate(one.coordinate, 40),
            power=power,
            whole=discrete,
        )
    columns = layout.columns(one.coordinate, "Value", open=True)
    others = "" if discrete else " All other coordinates are in the middle of their ranges."
    return join(
        layout.figure(f"{described}{others}", plot),
        layout.collapsible_table(title, columns, [(a, c) for a, _, c in shown]),
    )
