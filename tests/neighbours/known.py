"""Findings that are there today, and who is at them. A finding that is gone must be taken out."""

from dataclasses import dataclass

from tests.neighbours.tables import replacements


@dataclass(frozen=True)
class Known:
    """These commands with these replacements, by one of the two instruments."""

    why: str
    commands: tuple[str, ...]
    replacements: tuple[str, ...]
    compared: bool
    """Whether runs differ that are compared; else sums move that are replayed."""


KNOWN_TODAY: tuple[Known, ...] = ()


def known(command: str, replacement: str, compared: bool) -> str | None:
    """Why a finding is expected, if one is."""
    for one in KNOWN_TODAY:
        listed = command in one.commands and replacement in one.replacements
        if listed and one.compared == compared:
            return one.why
    return None


def unheard_of(commands: set[str]) -> list[str]:
    """Names in the list above that nothing has."""
    there = commands | {one.name for one in replacements()}
    said = {name for one in KNOWN_TODAY for name in (*one.commands, *one.replacements)}
    return sorted(said - there)
