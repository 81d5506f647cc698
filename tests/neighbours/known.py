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


_LONGER = ("more rows", "a very long trajectory", "three trajectories", "fifty trajectories")
_IDS = ("the first id", "the last id", "a long id")
_NULLS = "a note tells whether anybody had a null"
_ROWS = "the algorithm depends on the number of rows"
_ORDER = "the order of a single pass depends on rows and ids"
_LATE = "a single pass pays before it has read everybody, and a refusal after that shows"
_PLACES = "the place in the file is the caller's word, and moves everybody behind"

KNOWN_TODAY: tuple[Known, ...] = (
    Known(
        _NULLS,
        ("evaluate --nulls carry", "evaluate --sort --nulls carry, CSV"),
        tuple(f"null in {name}" for name in ("ward", "dose", "r", "p", "died")),
        compared=True,
    ),
    Known(_ROWS, ("evaluate above the size of a stream",), _LONGER, compared=True),
    Known(_ROWS, ("evaluate above the size of a stream",), _LONGER, compared=False),
    Known(
        _ORDER,
        ("evaluate --stream --sort", "Python: PrivateGTD, one pass, sorted stream"),
        ("more rows", "three trajectories", *_IDS),
        compared=False,
    ),
    Known(_ORDER, ("evaluate --stream --sort by trajectory",), ("more rows", *_IDS), False),
    Known(_ORDER, ("Python: PrivateGTD, one pass, sorted",), _IDS, compared=False),
    Known(
        _ORDER,
        ("Python: PrivateGTD, one pass, sorted CSV",),
        (*_IDS, "a word in patient all over"),
        compared=False,
    ),
    Known(
        _ORDER,
        ("evaluate names and dates",),
        (
            *_IDS,
            "an empty word in patient_name all over",
            "a word in patient_name all over",
        ),
        compared=False,
    ),
    Known(
        _LATE,
        ("Python: PrivateGTD, one pass, stream by trajectory",),
        ("a very long trajectory", "rows among another's"),
        compared=True,
    ),
    Known(
        _PLACES,
        (
            "evaluate --stream",
            "evaluate --stream, large batches",
            "evaluate --nulls carry --stream",
            "evaluate words --stream",
            "evaluate two files --stream",
            "Python: PrivateGTD, one pass",
            "Python: PrivateGTD, one pass, stream",
            "Python: PrivateGTD, one pass, stream by trajectory",
            "Python: PrivateGTD, vectors, one pass",
        ),
        ("rows at the end of the table",),
        compared=False,
    ),
)


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
