"""`python -m privrl.papers.reproduce > docs/verdicts.md`: committed verdicts, as tables."""

from collections.abc import Sequence
from itertools import groupby

from privrl.papers.reproduce import catalogue
from privrl.papers.reproduce.page import label
from privrl.papers.reproduce.readings import Finding
from privrl.papers.reproduce.running import findings_of
from privrl.papers.reproduce.verdict import WORDS

_HEAD = """# Verdicts

Made from the results that come with the package by `python -m privrl.papers.reproduce >
docs/verdicts.md`; a test holds the two equal. [How verdicts are computed](reproduce.md), and
`privrl reproduce report` for the pictures, numbers and readings behind them.
"""


def page(findings: Sequence[Finding] | None = None) -> str:
    """The page: verdicts of all targets, and of the statements of each paper."""
    found = findings_of(list(catalogue.load().values())) if findings is None else list(findings)
    counts = ", ".join(f"{sum(it.verdict.word == word for it in found)} {word}" for word in WORDS)
    lines = [_HEAD, f"{len(found)} tables and figures: {counts}.", ""]
    lines += _table(
        ("target", "what", "verdict", "reading (tried)", "seeds", "reason"),
        [
            (
                one.target.name,
                one.target.title,
                f"**{one.verdict.word}**",
                f"{label(one.chosen)} ({one.verdict.readings})",
                str(one.verdict.seeds),
                one.verdict.reason,
            )
            for one in found
        ],
    )
    for paper, some in groupby(found, key=lambda one: one.target.paper):
        said = [
            (one.target.name, text, outcome)
            for one in some
            for text, outcome in one.verdict.statements
        ]
        if said:
            lines += ["", f"## What {paper} says", ""]
            lines += _table(("target", "statement", "here"), said)
    return "\n".join(lines) + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    listed = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in listed]


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 (this is not a command)
