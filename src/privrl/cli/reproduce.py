"""`privrl reproduce`: the papers' tables and figures, run again."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from privrl.cli.derived import CommandSpec
from privrl.cli.printing import answer, say, shell_quote
from privrl.core.errors import InputError
from privrl.core.progress import progress_bar
from privrl.core.spec import option

if TYPE_CHECKING:
    from privrl.papers.reproduce.readings import Finding
    from privrl.papers.reproduce.target import Target


class Options(CommandSpec):
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

    targets: tuple[str, ...] = option(
        "Names from --list, papers, all; or report.", (), argument=True
    )
    list_: bool = option("Print what can be run.", False)
    quick: bool = option("Fewer seeds and smaller sizes: to see that it runs.", False)
    seeds: str | None = option("Seeds to judge, from 100 on, such as 100:120.")
    ray: str | None = option("Run parts on Ray: local, or a cluster's address.")
    out: Path | None = option(
        "Folder of the results; the page with report.", shown="reproduced, or reproduced.html"
    )
    results: Path | None = option("report: results of this folder, instead of the package's.")

    def run(self) -> None:
        from privrl.core import files
        from privrl.papers.reproduce import catalogue, page, running

        if self.list_:
            listed = catalogue.load().values()
            return answer(
                [{"name": one.name, "title": one.title, "place": one.place} for one in listed],
                *(f"{one.name:<20} {one.title}" for one in listed),
            )
        if not self.targets:
            raise InputError("Say what to run: names from --list, a paper, all, or report.")
        if self.targets[0] == "report":
            what, sentence, out = "page", "The page is", self.out or Path("reproduced.html")
            targets = catalogue.find(self.targets[1:] or ["all"])
            findings = running.findings_of(targets, self.results)
            files.write(out, page.html(findings).encode(), secret=False)
        else:
            what, sentence = "results", "Rows and pictures are in"
            out = self.out or Path("reproduced")
            findings = self._run(catalogue.find(self.targets), out)
            running.write_pictures(findings, out)
        answer(
            {what: str(out), "verdicts": [one.verdict.to_dict() for one in findings]},
            *page.lines(findings),
            f"{sentence} {shell_quote(out)}.",
        )

    def _run(self, targets: "list[Target]", folder: Path) -> "list[Finding]":
        from privrl.papers.reproduce.running import run

        if self.results is not None:
            problem = "is for report alone: a run keeps its results in --out."
            raise InputError(problem, field="results")
        seeds = None
        if self.seeds is not None:
            first, _, last = self.seeds.partition(":")
            try:
                seeds = range(int(first), int(last))
            except ValueError:
                problem = f"must be such as 100:120, not {self.seeds!r}."
                raise InputError(problem, field="seeds") from None
        workers = "ray" if self.ray == "local" else self.ray or "local"
        about: dict[str, Any] = {"quick": self.quick, "seeds": seeds, "workers": workers}
        try:
            with progress_bar(None) as advance:
                return run(targets, folder, **about, progress=advance)
        except KeyboardInterrupt:
            told = "Stopped; the parts that were done are kept. To go on, say the same again."
            say(told, aside=True)
            raise typer.Exit(130) from None
