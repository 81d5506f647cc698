"""The files of the table that is evaluated: which they are, their columns, and reading progress."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from privrl.core.errors import InputError
from privrl.core.files import path_exists
from privrl.core.progress import Progress
from privrl.core.questions import MissingOptions, Question
from privrl.data import Trajectories, TrajectoryStream
from privrl.data.readers.paths import files as files_of
from privrl.data.sources import header, open_parquet


def table_files(table: Sequence[str]) -> list[Path]:
    """The files, all of them Parquet or all of them CSV."""
    if not table:
        raise InputError("Say which table to read, such as stays.parquet.")
    first = str(table[0]).lower()
    suffixes = [".csv"] if first.endswith(".csv") else [".parquet", ".csv"]
    found: list[Path] = []
    for suffix in suffixes:
        try:
            found = files_of(list(table), suffix)
            break
        except InputError:
            if suffix is suffixes[-1]:
                raise
    for path in found:
        if path.suffix.lower() not in (".parquet", ".pq", ".csv"):
            raise InputError(
                f"{path} is neither Parquet nor CSV, by its name: unpack it, or save it as one "
                "of them."
            )
        if not path_exists(path):
            raise InputError(f"There is no file {path}.")
    if len({is_csv(path) for path in found}) > 1:
        raise InputError("Some files are CSV and some are Parquet: give one kind.")
    return found


def is_csv(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


def column_types(path: Path) -> list[tuple[str, Any]]:
    """Names of columns, which are no secret, and their Arrow types, which CSV has none of."""
    if is_csv(path):
        return [(name, None) for name in header(path)]
    with open_parquet(path) as file:
        return [(one.name, one.type) for one in file.schema_arrow]


def text_columns(path: Path) -> list[str]:
    """The columns that hold words, by their types."""
    words = ("string", "large_string", "string_view")
    # Not those of lists: only a dictionary's values are cells.
    held = [
        (name, kind.value_type if str(kind).startswith("dictionary") else kind)
        for name, kind in column_types(path)
    ]
    return [name for name, kind in held if str(kind) in words]


def refuse_private_vocabulary(data: Trajectories) -> None:
    """Ask for the words of states and actions, if they were read from the data."""
    for what, read in (
        ("state", data.facts.state_vocabulary_read),
        ("action", data.facts.action_vocabulary_read),
    ):
        if read:
            raise MissingOptions([word_question(what)])


def word_question(what: str) -> Question:
    """What asks for the words of states or actions."""
    return Question(
        f"{what}s",
        f"which words the column of {what}s can hold, by commas and in the policy's order",
        "Which of them occur is private",
    )


def with_progress(data: TrajectoryStream, passes: int, progress: Progress) -> TrajectoryStream:
    """The same stream, which says how far it has been read, over all passes."""
    total, seen = max(1, passes * _rows(list(data.paths))), 0

    def report_rows(rows: int) -> None:
        nonlocal seen
        seen += rows
        progress("reading", min(seen / total, 1.0))

    return replace(data, watcher=report_rows)


def _rows(paths: list[Path]) -> int:
    rows = 0
    for path in paths:
        with open_parquet(path) as file:
            rows += file.metadata.num_rows
    return rows
