"""Two runs on neighbouring tables, byte by byte. `FIGURES` and `LINES` are all that may differ."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from privrl import cli
from tests.neighbours.running import Outcome, Stance, frozen

Verdict = Literal["same", "figures", "refusal", "closed", "finding"]
"""*closed*: the command refuses every table, whoever is in it, by what it was told."""

# Noised figures, and what is computed from them: by the kind that JSON says it is of (whether it is
# written, printed or returned) and by their paths in it. Everything else is public.
_ENDS = r"(estimate|interval\.(low|high|parts\.(sampling|noise|clipping)))"
_OF_A_RESULT = (
    rf"{_ENDS}|weights\[\]"
    rf"|details\.(target|behavior|difference|clipped|weight_mass)\.{_ENDS}"
    r"|details\.effective_sample_size"
)
_OF_A_POLICY = r"values\[\]\[\]|layers\[\]\.(weights\[\]\[\]|biases\[\])"
FIGURES = {
    "study": rf"results\[\]\.({_OF_A_RESULT})|slices\[\]\.values\[\]",
    "evaluation": _OF_A_RESULT,
    "q": rf"parameters\[\]|policy\.({_OF_A_POLICY})",
    "policy": _OF_A_POLICY,
}

# What may differ in lines that are printed: the rows of figures, and whether one is within another.
_NUMBER = r"-?\d+(\.\d+)?(e[+-]?\d+)?"
LINES = (
    rf"  (new policy|as logged|difference) +{_NUMBER} +{_NUMBER} +{_NUMBER}",
    rf"  Private(GTD|LSTD) +{_NUMBER}  no interval(, and outside of the one above)?",
)

# In JSON. What is in quotes is compared by its path.
_FIGURE = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?')


@dataclass(frozen=True)
class Difference:
    """Where two runs differ, and whether they may."""

    where: str
    """The file or stream, and the first path or line in it."""

    allowed: bool
    seen: str = ""
    """Both sides, for whoever has to look."""


@dataclass(frozen=True)
class Comparison:
    """What one pair came to."""

    verdict: Verdict
    differences: tuple[Difference, ...] = ()

    @property
    def findings(self) -> list[Difference]:
        return [one for one in self.differences if not one.allowed]


def compare(usual: Outcome, other: Outcome, stance: Stance, folder: Path) -> Comparison:
    """The usual table's run beside that of a neighbour."""
    if other.refused and not usual.refused and stance != "neutral":
        # The curator's own step, which shows nothing else and leaves nothing.
        found = list(_left_behind(usual, other))
        return Comparison("finding" if found else "refusal", tuple(found))
    found = list(_differences(usual, other, folder))
    if any(not one.allowed for one in found):
        return Comparison("finding", tuple(found))
    if usual.refused:
        return Comparison("closed")
    return Comparison("figures" if found else "same", tuple(found))


def _left_behind(usual: Outcome, refusal: Outcome) -> Iterator[Difference]:
    """A refusal is one sentence; nothing else was printed, and nothing written or paid."""
    if refusal.out and not _repeats(refusal.out, refusal.err):
        yield Difference("stdout of a refusal", False, refusal.out[:80])
    if not re.fullmatch(r"privrl: [^\n]+\.\n", refusal.err):
        yield Difference("stderr of a refusal", False, refusal.err[:200])
    for name, (_, content) in refusal.files.items():
        if name != "people.ledger" or _entries(content) != 0:
            yield Difference(f"{name} of a refusal", False)


def _repeats(out: str, err: str) -> bool:
    """Whether stdout has, as --json asks, the sentence of stderr as the one error of a document."""
    if not out.startswith("{"):
        return False
    told = json.loads(out)
    said = f"privrl: {told['error']['message']}\n"
    return list(told) == ["error"] and said == err


def _entries(ledger: bytes) -> int:
    import sqlite3

    with sqlite3.connect(":memory:") as held:
        held.deserialize(ledger)
        return int(held.execute("SELECT COUNT(*) FROM entries").fetchone()[0])


def _differences(usual: Outcome, other: Outcome, folder: Path) -> Iterator[Difference]:
    if usual.code != other.code:
        yield Difference("exit code", False, f"{usual.code} / {other.code}: {other.err[:200]}")
        return
    if usual.err != other.err:
        yield Difference("stderr", False, f"{usual.err[:200]!r} / {other.err[:200]!r}")
    yield from _printed(usual.out, other.out)
    names = list(dict.fromkeys([*usual.files, *other.files]))
    for name in names:
        one, two = usual.files.get(name), other.files.get(name)
        if name.startswith("scratch/"):
            yield Difference(name, False, "a temporary file that was left behind")
        elif one is None or two is None:
            yield Difference(name, False, "only one of the two wrote it")
        elif one[0] != two[0]:
            yield Difference(name, False, f"mode {one[0]:o} / {two[0]:o}")
        elif one[1] != two[1]:
            yield from _in_file(name, one[1], two[1], usual, other, folder)


def _printed(one: str, two: str) -> Iterator[Difference]:
    if one == two:
        return
    if one.startswith("{") and two.startswith("{"):
        yield from _in_json("stdout", one, two)
        return
    lines = [text.splitlines() for text in (one, two)]
    if len(lines[0]) != len(lines[1]):
        yield Difference("stdout", False, f"{len(lines[0])} / {len(lines[1])} lines")
        return
    for first, second in zip(*lines, strict=True):
        if first != second:
            allowed = any(
                re.fullmatch(line, first) and re.fullmatch(line, second) for line in LINES
            )
            yield Difference("stdout", allowed, f"{first!r} / {second!r}")


def _in_file(
    name: str, one: bytes, two: bytes, usual: Outcome, other: Outcome, folder: Path
) -> Iterator[Difference]:
    path = Path(name)
    if path.suffix == ".json":
        yield from _in_json(name, one.decode(), two.decode())
    elif path.name == "report.html":
        # A report may say what its study says, and nothing else.
        study = str(path.with_name("study.json"))
        for outcome, report in ((usual, one), (other, two)):
            if _rendered(outcome.files[study][1], folder) != report:
                yield Difference(name, False, "it is not what its study gives")
                return
        yield Difference(name, True)
    else:
        yield Difference(name, False, "bytes")


@lru_cache(maxsize=4)  # that of the usual table is compared with many
def _rendered(study: bytes, folder: Path) -> bytes:
    """The report that `privrl report` makes of a study."""
    place = folder / "rendered"
    place.mkdir(exist_ok=True)
    (place / "study.json").write_bytes(study)
    with redirect_stdout(StringIO()), frozen():
        assert cli.run(["report", str(place)]) == 0
    return (place / "report.html").read_bytes()


def _in_json(name: str, one: str, two: str) -> Iterator[Difference]:
    """The first value of each path that differs. Text between values is compared as it stands."""
    held, seen = json.loads(one), set()
    said = held["format"] if isinstance(held.get("format"), str) else held.get("kind", "")
    figures = FIGURES.get(re.split("[ -]", said)[-1], "")
    for path, first, second in _leaves(held, json.loads(two)):
        kind = re.sub(r"\[\d+\]", "[]", path)
        if kind in seen:
            continue
        seen.add(kind)
        allowed = bool(re.fullmatch(figures, kind)) and _is_figure(first) and _is_figure(second)
        yield Difference(f"{name}: {path}", allowed, f"{first!r} / {second!r}"[:200])
    between = [_FIGURE.sub(lambda m: m[0] if m[0][0] == '"' else "#", text) for text in (one, two)]
    if (not seen and one != two) or _unquoted(between[0]) != _unquoted(between[1]):
        yield Difference(f"{name}: spaces or order", False)


def _unquoted(text: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)


def _leaves(one: Any, two: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Values that differ; whole branches where their shapes do."""
    if isinstance(one, dict) and isinstance(two, dict) and list(one) == list(two):
        for key in one:
            yield from _leaves(one[key], two[key], f"{path}.{key}" if path else key)
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for number, (first, second) in enumerate(zip(one, two, strict=True)):
            yield from _leaves(first, second, f"{path}[{number}]")
    elif one != two or type(one) is not type(two):
        yield path, one, two


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def summary(differences: Sequence[Difference]) -> str:
    """A line each."""
    return "\n".join(f"{one.where}: {one.seen}" for one in differences)
