"""Run a command in this process, with a frozen clock, and keep everything that came out of it."""

import os
import secrets
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np

from privrl import cli
from privrl.data import Tabular
from privrl.privacy import Ledger, PrivRLError, Relation, Unit
from tests.neighbours.tables import CHOSEN, PEOPLE, TYPES, Format, Row, people, write

Stance = Literal["as it is", "refuse", "neutral"]
"""How what cannot be read is treated; "as it is" while there is no option for it."""

POLICY = Tabular(np.array([[0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]))
FOLLOWED = Tabular(np.array([[0.5, 0.5], [0.4, 0.6], [0.5, 0.5]]))

# Numbers of rows at which something else happens, made so small that one person's rows cross them;
# "module.name", or "module.function:parameter" for a default.
_THRESHOLDS = {
    "privrl.data.sources.parquet_chunks:rows": 16,
    "privrl.data.sources.table_chunks:rows": 16,
    "privrl.data.sources.READ_ROWS": 16,
    "privrl.data.stream.READ_ROWS": 16,
    "privrl.data.stream.stream_parquet:batch_rows": 1000,
    "privrl.run.cluster.gather:part_rows": 16,
    "privrl.evaluation.bellman_error._ENTRIES": 64,
    "privrl.evaluation.bellman_error._CACHED": 12,
    "privrl.evaluation.table.ROWS": 16,
    "privrl.evaluation.private_lstd.ROWS": 16,
    "privrl.evaluation.private_gtd.ROWS": 16,
    "privrl.evaluation.table._STEPS": 16,
    "privrl.control.noised_q._MAX_NUMBERS": 64,
}


@dataclass(frozen=True)
class Command:
    """One way in: words of the command line, or a function of the table's path and the stance."""

    name: str
    form: Format
    words: tuple[str, ...] = ()
    call: Callable[[Path, Mapping[str, Any]], Any] | None = None
    reads: frozenset[str] = frozenset()
    """Columns; for words they are found among them."""

    by_user: bool = True
    """Whether the unit is a person with all their trajectories."""

    ledger: bool = False
    killed: bool = False
    """Whether it is killed when it has paid, and goes on."""

    files: int = 1
    """How many the table is written to, people whole."""

    quick: bool = False
    costly: bool = False
    """Whether something is calibrated or compiled in every run."""

    noise: Literal["source", "updates", "draws", "smooth"] = "source"
    """Where noise is drawn: by a `Source`; in a compiled loop, of updates or of draws of a person;
    or as wide as the data asks for, by a `SmoothMechanism`."""

    thresholds: Mapping[str, int] = field(default_factory=dict)
    """Others than the usual ones."""

    only: tuple[str, ...] = ()
    """If it takes long: the replacements it is run with."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        said = {part for word in self.words for part in word.split(",")}
        return self.reads | (said & set(TYPES))

    @property
    def units(self) -> int:
        """How many people the table is about; trajectories, if nobody is named."""
        stays = {row["stay"] for one in people() for row in one if isinstance(row, dict)}
        return PEOPLE if self.by_user else len(stays)

    @property
    def paths(self) -> list[str]:
        """The files of the table."""
        if self.files == 1:
            return [f"stays.{self.form}"]
        return [f"stays-{number}.{self.form}" for number in range(self.files)]


@dataclass(frozen=True)
class Outcome:
    """All that a run shows: nothing else leaves it."""

    code: int | str
    """The exit code; what was raised, if that is no sentence for people."""

    out: str
    err: str
    files: Mapping[str, tuple[int, bytes]]
    """Mode and content of every file that was written, by its path; what was put into a temporary
    folder and left there is in `scratch`."""

    @property
    def refused(self) -> bool:
        return self.code == 2


def stances() -> list[Stance]:
    """Which there are."""
    with redirect_stdout(StringIO()) as told:
        cli.run(["evaluate", "--help"])
    return ["refuse", "neutral"] if "--invalid" in told.getvalue() else ["as it is"]


def run(command: Command, rows: list[Row], folder: Path, stance: Stance) -> Outcome | None:
    """What the command does with a table of these rows; None if they cannot be written so."""
    # The same name every time: paths are printed.
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    (work / "scratch").mkdir(parents=True)
    # Cut in front of the chosen person, who is the first of the second file.
    cut = sum(map(len, people()[:CHOSEN])) if command.files > 1 else len(rows)
    for path, part in zip(command.paths, (rows[:cut], rows[cut:]), strict=False):
        if not write(part, work / path, command.form):
            return None
    POLICY.save(work / "policy.json")
    FOLLOWED.save(work / "followed.json")
    given = {*command.paths, "policy.json", "followed.json"}
    before = Path.cwd()
    out, err = StringIO(), StringIO()
    scratch = mock.patch.object(tempfile, "tempdir", str(work / "scratch"))
    with frozen(), thresholds(command.thresholds), scratch:
        if command.ledger:
            unit = Unit.USER if command.by_user else Unit.TRAJECTORY
            relation = Relation.REPLACE_ONE
            Ledger.create(work / "people.ledger", "people", unit=unit, relation=relation).close()
        os.chdir(work)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = _called(command, stance)
        finally:
            os.chdir(before)
    files = {
        str(path.relative_to(work)): (path.stat().st_mode & 0o777, _content(path))
        for path in sorted(work.rglob("*"))
        if path.is_file() and str(path.relative_to(work)) not in given
    }
    return Outcome(code, out.getvalue(), err.getvalue(), files)


def _content(path: Path) -> bytes:
    """What is in a file, but for a ledger's mark of the folder it is in, which is always new."""
    content = path.read_bytes()
    return content[:60] + bytes(4) + content[64:] if path.suffix == ".ledger" else content


def _called(command: Command, stance: Stance) -> int | str:
    try:
        if command.call is None:
            words = [*command.words, *_said(command, stance)]
            return _killed(words) if command.killed else cli.run(words)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, kind, *_, **__: print(
                f"{kind.__name__}: {message}", file=sys.stderr
            )
            told = _said(command, stance)
            given = dict(zip((word[2:] for word in told[::2]), told[1::2], strict=True))
            print(command.call(Path(command.paths[0]), given))
        return 0
    except PrivRLError as error:
        print(f"privrl: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class _Kill(BaseException):
    """What a kill is to those who cannot catch it."""


def _killed(words: list[str]) -> int:
    """The exit code of a run that is killed when it has paid, and goes on; or that is refused."""
    spend = Ledger.spend

    def dying(*args: Any, **more: Any) -> None:
        spend(*args, **more)
        raise _Kill

    try:
        with mock.patch.object(Ledger, "spend", dying):
            return cli.run(words)
    except _Kill:
        return cli.run([words[0], "--out", "run", "--resume"])


def _said(command: Command, stance: Stance) -> list[str]:
    """The stance in words; an unattended command is told how many people there are."""
    if stance == "as it is":
        return []
    count = ["--people", str(command.units)] if stance == "neutral" else []
    return ["--invalid", stance, *count]


# --- what is the same in every run ---------------------------------------------------------------


class _Frozen(datetime):
    """It is always noon."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "_Frozen":
        return cls(2026, 1, 1, 12, 0, 0, tzinfo=tz)


@contextmanager
def frozen() -> Iterator[None]:
    """No clock moves, and names and nonces that are drawn are the same in every run."""
    counted = iter(range(10**9))

    def drawn(count: int | None = None) -> bytes:
        return next(counted).to_bytes(count or 32, "big")

    with mock.patch.multiple(
        secrets,
        token_bytes=drawn,
        token_hex=lambda count=None: drawn(count).hex(),
        randbits=lambda bits: next(counted) % 2**bits,
    ):
        held = [
            module
            for name, module in list(sys.modules.items())
            if name.startswith("privrl") and getattr(module, "datetime", None) is datetime
        ]
        for module in held:
            vars(module)["datetime"] = _Frozen
        try:
            yield
        finally:
            for module in held:
                vars(module)["datetime"] = datetime


@contextmanager
def thresholds(other: Mapping[str, int]) -> Iterator[None]:
    """Numbers of rows at which something else happens are small; names that are gone, errors."""
    undo: list[Callable[[], None]] = []
    try:
        for name, value in (_THRESHOLDS | dict(other)).items():
            path, _, parameter = name.partition(":")
            module, _, attribute = path.rpartition(".")
            undo.append(_put(import_module(module), attribute, parameter, value))
        yield
    finally:
        for back in undo:
            back()


def _put(held: Any, attribute: str, parameter: str, value: int) -> Callable[[], None]:
    before = getattr(held, attribute)
    if not parameter:
        setattr(held, attribute, value)
        return lambda: setattr(held, attribute, before)
    named = before.__code__.co_varnames[: before.__code__.co_argcount]
    if parameter in (before.__kwdefaults__ or {}):
        kept = dict(before.__kwdefaults__)
        before.__kwdefaults__ = kept | {parameter: value}

        def back() -> None:
            before.__kwdefaults__ = kept

        return back
    defaults = before.__defaults__ or ()
    place = named.index(parameter) - (len(named) - len(defaults))
    assert place >= 0, f"{parameter} has no default"
    before.__defaults__ = (*defaults[:place], value, *defaults[place + 1 :])

    def restored() -> None:
        before.__defaults__ = defaults

    return restored
