"""Which tables a policy was learned from, without a word about what is in them.

A policy that was learned from a table carries the id of its run, 128 bits that are drawn at random
and apart from the data. Beside each file of that table the learner keeps a list of such ids:
`.stays.parquet.privrl-runs` beside `stays.parquet`. Whoever judges the policy on a table whose list
has the id is told that these are the people it was learned from.

Why no digest of the table: a digest is a function of private data. In a policy, which is released,
it tells whoever can guess the table, or all of it but one person, whether the guess is right. With
a secret key it would not; but *judging* the policy would still tell whether the table at hand is
the one it was learned from in every cell, which is another answer on a neighbouring table, and
nobody paid for it. The ids and the lists do not depend on what is in the tables, so neither does
the answer: it is about names of files.

The list stays with the curator; it holds no data. What cannot be noticed: a copy of the table, the
same people under another name, a list that was deleted. So that nothing was noticed proves nothing,
and no report says that it does.
"""

import hashlib
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from privrl.core import files


def new_run_id(seed: int | None = None, tables: Iterable[Path] = ()) -> str:
    """An id for a run: random, or for an experiment what follows from seed and names of files."""
    if seed is None:
        return secrets.token_hex(16)
    told = "/".join(["privrl run", str(seed), *(table.name for table in tables)])
    return hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()[:32]


def runs_file(table: Path) -> Path:
    """Where the runs that learned from a file are listed."""
    return table.with_name(f".{table.name}.privrl-runs")


def mark(tables: Iterable[Path], run: str) -> bool:
    """List the run beside each file; whether that was possible for all of them."""
    done = True
    for table in tables:
        try:
            if run not in _read_run_ids(table):
                if runs_file(table).exists():
                    files.check_regular(runs_file(table))
                with runs_file(table).open("a", encoding="ascii") as file:
                    file.write(f"{run}\n")
        except OSError:
            done = False
    return done


def is_marked(tables: Iterable[Path], run: str) -> bool:
    """Whether the run is listed beside any of these files."""
    return any(run in _read_run_ids(table) for table in tables)


def _read_run_ids(table: Path) -> set[str]:
    found = set[str]()
    # The second by the package's earlier name.
    for listed in (runs_file(table), table.with_name(f".{table.name}.tacit-runs")):
        with suppress(OSError):
            found |= set(files.read_bytes(listed).decode("ascii", "replace").split())
    return found
