"""The page: a study in the order in which a reader asks.

What is the answer; what are the values; how sure is it, and what would make it surer; do other
estimators agree; where is the value high; what was assumed; what is promised to the people in the
data; what does that cost; how can it be checked. Nothing is computed here that is not in the study.
"""

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path

from privrl import __version__
from privrl.core import files
from privrl.report import promises, results
from privrl.report.layout import ReportContext
from privrl.report.markup import Html, join, tag
from privrl.run.study import Study


def write(study: Study, path: str | Path) -> None:
    """Write the report of `study` to `path`, wholly or not at all."""
    files.write(path, render(study).encode(), secret=False)


def render(study: Study) -> str:
    """The report of `study` as one HTML page. The same study gives the same page."""
    read = ReportContext(study)
    sections = (
        results.answer(read),
        results.values(read),
        results.certainty(read),
        results.estimators(read),
        results.states(read),
        promises.public(read),
        promises.promise(read),
        promises.curve(read),
        promises.notes(read),
        promises.check(read),
    )
    return document(
        study.title or "Policy evaluation",
        "Private policy evaluation",
        [*promises.banners(read), *sections],
        when=_time_element(study.created) if study.created else None,
    )


def document(
    title: str, kicker: str, children: Sequence[Html | None], when: Html | None = None
) -> str:
    """A whole page, with the style sheet of all pages, that loads and runs nothing."""
    style = resources.files("privrl.report").joinpath("style.css").read_text(encoding="utf-8")
    page = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag(
                "meta",
                http_equiv="Content-Security-Policy",
                content=_content_security_policy(style),
            ),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", title),
            tag("style", Html(style)),
        ),
        tag(
            "body",
            tag("a", "Skip to the report", cls="skip", href="#main"),
            tag(
                "header",
                tag("p", kicker, cls="kicker"),
                tag("h1", title),
                tag("p", when, cls="kicker") if when else None,
            ),
            tag("main", *children, id="main"),
            tag("footer", tag("p", f"Made by privrl {__version__}. This page loads nothing.")),
        ),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{page}\n"


def _content_security_policy(style: str) -> str:
    """Nothing may be loaded, run or sent; the page's own style sheet is let in by its digest."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _time_element(created: str) -> Html:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return join(created)
    zone = f" {moment.tzname()}" if moment.tzinfo else ""
    shown = f"{moment.day} {moment:%B %Y, %H:%M}{zone}"
    return tag("time", shown, datetime=created)
