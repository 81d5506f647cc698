"""`python -m privrl.run.specs > docs/options.md`: the options of commands, as tables."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from privrl.core.spec import Option
from privrl.run.specs import LEARNERS, spec_of
from privrl.run.specs.base import OPTIONAL, RunOptions
from privrl.run.specs.table import EvaluateOptions

_KINDS = {int: "whole number", float: "number", bool: "flag", Path: "path", None: "choice"}


def page() -> str:
    """The page: a table for `evaluate`, one for each learner, and one of what runs share."""
    lines = [
        "# Options",
        "",
        "Made from the specs by `python -m privrl.run.specs > docs/options.md`; a test holds the",
        "two equal. A configuration file (`--config`, TOML or JSON) has the same names, with",
        "underscores.",
    ]
    lines += _section("privrl evaluate", EvaluateOptions.__doc__, EvaluateOptions.options())
    for learner in LEARNERS:
        spec = spec_of(learner)
        lines += _section(f"privrl train {learner}", spec.__doc__, spec.all_options())
        others = [f"`--{name}`" for name in OPTIONAL if name not in spec.RUN]
        if others:
            lines += ["", f"It has no {', '.join(others)}."]
    lines += _section("Options of every run", RunOptions.__doc__, RunOptions.options())
    return "\n".join(lines) + "\n"


def _section(title: str, doc: str | None, options: Mapping[str, Option]) -> Iterator[str]:
    yield from ("", f"## {title}", "", (doc or "").splitlines()[0], "")
    yield from ("| option | type | |", "|---|---|---|")
    for one in options.values():
        name = one.name.upper() if one.argument else one.flag
        kind = _KINDS.get(one.kind, "text")
        yield f"| `{name}` | {kind} | {one.text.replace('|', '&#124;')} |"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 (a script)
