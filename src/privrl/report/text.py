"""A study for a screen: the figures, and what they promise."""

import textwrap

from privrl.core.text import note_lines, printable, quote_name
from privrl.privacy.certificate_card import promise_note
from privrl.run.study import Study


def study_lines(study: Study) -> list[str]:
    """The figures, and what they promise, for a screen of 79 columns."""
    main = study.main
    level = f"{100 * main.interval.level:g} %" if main.interval else ""
    lines = textwrap.wrap(printable(quote_name(study.title)), 78)
    lines.append(f"  {'':<22}{'value':>10}{'from':>10}{'to':>10}   {level}".rstrip())
    names = {
        "target": study.target_name,
        "behavior": study.behavior_name,
        "difference": "difference",
    }
    if study.on_policy:
        # Its value is the main one.
        del names["behavior"]
    for key, label in names.items():
        found = main.details.get(key)
        if found is None and key == "target" and main.interval is not None:
            found = {"estimate": main.estimate, "interval": main.interval.to_dict()}
        if found is not None:
            ends = [found["interval"][end] for end in ("low", "high")]
            lines.append(_row(label, found["estimate"], *ends))
    if not main.details and main.interval is None:
        lines.append(_row(study.target_name, main.estimate) + "  no interval")
        if main.estimate is None:
            lines.append(f"  The values of states, by {main.method}, are in the report.")
    others = [one for one in study.results[1:] if one.estimate is not None]
    if others:
        lines.append(f"  {quote_name(study.target_name[:40])}, by other estimators:")
    for one in others:
        held = one.interval
        if held is None:
            apart = main.interval is not None and not (
                main.interval.low <= (one.estimate or 0.0) <= main.interval.high
            )
            remark = "  no interval, and outside of the one above" if apart else "  no interval"
            lines.append(_row(one.method, one.estimate) + remark)
        else:
            lines.append(_row(one.method, one.estimate, held.low, held.high))
    promise = study.certificate or "Not private: the data was declared public."
    return [*lines, *note_lines([promise_note(promise), *study.notes])]


def _row(label: str, *numbers: float | None) -> str:
    figures = ("-" if x is None else format(x, ".4g") for x in numbers)
    return f"  {quote_name(label[:21]):<22}" + "".join(f" {text:>9}" for text in figures)
