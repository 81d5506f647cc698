"""`python -m privrl.run.specs > docs/options.md`: the options of commands, as tables."""

from collections.abc import Iterator, Sequence
from dataclasses import Field
from typing import Any

from privrl.run.specs import LEARNERS, spec_of
from privrl.run.specs.base import OPTIONAL, RunOptions
from privrl.run.specs.table import EvaluateOptions

_KINDS = {"int": "whole number", "float": "number", "bool": "flag", "Path": "path"}


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
        lines += _section(f"privrl train {learner}", spec.__doc__, spec.options())
        others = [f"`--{name}`" for name in OPTIONAL if name not in spec.RUN]
        if others:
            lines += ["", f"It has no {', '.join(others)}."]
    lines += _section("Options of every run", RunOptions.__doc__, RunOptions.options())
    return "\n".join(lines) + "\n"


def _section(title: str, doc: str | None, options: Sequence["Field[Any]"]) -> Iterator[str]:
    yield from ("", f"## {title}", "", (doc or "").splitlines()[0], "")
    yield from ("| option | type | |", "|---|---|---|")
    for one in options:
        flag = "--" + one.name.rstrip("_").replace("_", "-")
        name = one.name.upper() if one.metadata["argument"] else flag
        kind = str(getattr(one.type, "__name__", one.type)).removesuffix(" | None")
        shown = _KINDS.get(kind.rpartition(".")[2], "text")
        yield f"| `{name}` | {shown} | {one.metadata['help'].replace('|', '&#124;')} |"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 (a script)
