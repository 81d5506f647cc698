"""Every command on every pair of neighbouring tables, by both instruments."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.neighbours.comparing import Verdict, compare, summary
from tests.neighbours.known import known
from tests.neighbours.replaying import replays, wrong
from tests.neighbours.running import Command, Stance, run
from tests.neighbours.tables import Replacement, people


@dataclass(frozen=True)
class Pair:
    """One command on the usual table and on one of its neighbours."""

    command: Command
    replacement: Replacement
    compared: bool
    verdict: Verdict
    finding: str = ""
    """What differs that may not, the first of it."""

    allowed: tuple[str, ...] = ()
    """Where noised figures differ."""

    moved: float = 0.0
    """The largest share of what was charged for."""

    @property
    def known(self) -> str | None:
        """Why a finding is expected here, if one is."""
        return known(self.command.name, self.replacement.name, self.compared)

    @property
    def problem(self) -> str:
        """A finding that nobody knows of, or one that is gone."""
        name = f"{self.command.name}, {self.replacement.name}"
        if self.finding and self.known is None:
            return f"{name}: {self.finding}"
        if not self.finding and self.known is not None and self.verdict != "closed":
            return f"{name}: not found any more ({self.known}): take it out of KNOWN_TODAY"
        return ""


def applies(command: Command, replacement: Replacement) -> bool:
    """Whether the command sees a neighbouring table: another person, and as many as before."""
    if command.only and replacement.name not in command.only:
        return False
    if replacement.several and not command.by_user:
        return False
    return not replacement.touched or bool(replacement.touched & command.columns)


def compared(
    command: Command, replacements: Iterable[Replacement], stance: Stance, folder: Path
) -> Iterator[Pair]:
    """Everything that both runs show."""
    everybody = people()
    usual = run(command, [row for one in everybody for row in one], folder, stance)
    assert usual is not None
    # A command that does not take this stance must refuse every table alike.
    runs = usual.code == 0 or (usual.refused and stance == "neutral")
    assert runs, f"{command.name} does not run: {usual.code} {usual.err}"
    for replacement in replacements:
        if not applies(command, replacement):
            continue
        other = run(command, replacement.table(everybody), folder, stance)
        if other is None:
            continue
        found = compare(usual, other, stance, folder)
        first = summary(found.findings).partition("\n")[0]
        allowed = tuple(one.where for one in found.differences if one.allowed)
        yield Pair(command, replacement, True, found.verdict, first, allowed)


def spread(
    command: Command, among: Iterable[Command], listed: list[Replacement]
) -> list[Replacement]:
    """Two of the short list that move every sum, and a quarter of the others.

    Commands that see a replacement take turns at it, so each falls to one of four of them.
    """
    chosen = [one for one in listed if one.name in ("a single row", "rewards of 1e308")]
    for number, one in enumerate(listed):
        seers = [c.name for c in among if applies(c, one) and one in few(c, listed)]
        if command.name in seers and one not in chosen:
            place, shares = seers.index(command.name), min(4, len(seers))
            if place % shares == number % shares:
                chosen.append(one)
    return chosen


def few(command: Command, listed: list[Replacement]) -> list[Replacement]:
    """Those of the short list with which a command is run that takes long."""
    kept = ("a single row", "rewards of 1e308", "the least probability", "null in r", "nan in hr")
    short = command.costly and len(listed) < 100
    return [one for one in listed if one.name in kept] if short else listed


def replayed(
    command: Command,
    replacements: Iterable[Replacement],
    stance: Stance,
    folder: Path,
    usual: Replacement | None = None,
) -> Iterator[Pair]:
    """How far each exact sum moves."""
    if command.noise == "updates" and command.words and not command.quick:
        # It is compiled for every table, and adds up what `LoggedQ` does in Python.
        return
    listed = [one for one in replacements if applies(command, one)]
    for replacement, moved in replays(command, listed, stance, folder, usual):
        finding = wrong(moved)
        verdict: Verdict = "finding" if finding else "figures"
        yield Pair(command, replacement, False, verdict, finding, (), moved.most)
