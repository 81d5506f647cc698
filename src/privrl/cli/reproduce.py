"""`privrl reproduce`: the papers' tables and figures, run again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from privrl.cli.common import progress
from privrl.cli.derived import function
from privrl.cli.printing import answer, say, shell_quote
from privrl.core.errors import InputError
from privrl.core.spec import Spec, option


@dataclass(frozen=True)
class _Options(Spec):
    """The tables and figures of the five papers, run again and judged.

    Say targets (ono2020.table2), papers (ono2020) or all; report writes one page from the results
    that come with the package, or from --results. What was run before is not run again: Ctrl-C
    stops and keeps all parts that are done, and the same command goes on.

    \b
    privrl reproduce --list
    privrl reproduce ono2020.table2 --quick
    privrl reproduce seo2020 xie2019 --seeds 100:140 --out runs
    privrl reproduce report --out page.html
    """

    targets: tuple[str, ...] = option("Names from --list, papers, all; or report.", argument=True)
    list: bool = option("Print what can be run.", False)
    quick: bool = option("Fewer seeds and smaller sizes: to see that it runs.", False)
    seeds: str | None = option("Seeds to judge, from 100 on, such as 100:120.")
    ray: str | None = option("Run parts on Ray: local, or a cluster's address.")
    out: Path | None = option(
        "Folder of the results; the page with report.", shown="reproduced, or reproduced.html"
    )
    results: Path | None = option("report: results of this folder, instead of the package's.")
    json: bool = option("Print JSON instead of text.", False)


def _reproduce(given: dict[str, Any]) -> None:
    from privrl.papers.reproduce import catalogue

    names = list(given["targets"] or ())
    if given["list"]:
        listed = catalogue.load()
        return answer(
            given["json"],
            [{"name": one.name, "title": one.title, "place": one.place} for one in listed.values()],
            *(f"{one.name:<20} {one.title}" for one in listed.values()),
        )
    if not names:
        raise InputError("Say what to run: names from --list, a paper, all, or report.")
    if names[0] == "report":
        return _report(names[1:] or ["all"], given)
    if given["results"] is not None:
        raise InputError("is for report alone: a run keeps its results in --out.", field="results")
    from privrl.papers.reproduce.page import lines
    from privrl.papers.reproduce.running import run, write_pictures

    targets, folder = catalogue.find(names), given["out"] or Path("reproduced")
    ray = given["ray"]
    try:
        with progress(None) as advance:
            findings = run(
                targets,
                folder,
                quick=given["quick"],
                seeds=_seeds(given["seeds"]),
                workers="local" if ray is None else "ray" if ray == "local" else ray,
                progress=advance,
            )
    except KeyboardInterrupt:
        say("Stopped; the parts that were done are kept. To go on, say the same again.", aside=True)
        raise typer.Exit(130) from None
    write_pictures(findings, folder)
    answer(
        given["json"],
        {"results": str(folder), "verdicts": [one.verdict.to_dict() for one in findings]},
        *lines(findings),
        f"Rows and pictures are in {shell_quote(folder)}.",
    )


def _report(names: list[str], given: dict[str, Any]) -> None:
    from privrl.core import files
    from privrl.papers.reproduce import catalogue, page
    from privrl.papers.reproduce.running import findings_of

    findings = findings_of(catalogue.find(names), given["results"])
    out = given["out"] or Path("reproduced.html")
    files.write(out, page.html(findings).encode(), secret=False)
    answer(
        given["json"],
        {"page": str(out), "verdicts": [one.verdict.to_dict() for one in findings]},
        *page.lines(findings),
        f"The page is {shell_quote(out)}.",
    )


def _seeds(text: str | None) -> range | None:
    if text is None:
        return None
    first, _, last = text.partition(":")
    try:
        return range(int(first), int(last))
    except ValueError:
        raise InputError(f"must be such as 100:120, not {text!r}.", field="seeds") from None


reproduce_command = function(_Options.__doc__, _Options.options().values(), _reproduce)
