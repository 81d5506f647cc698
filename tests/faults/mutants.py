"""Ways to get it wrong, each of which the harness must catch."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.faults.commands import COMMANDS
from tests.faults.harness import FAULTS, Report, trials
from tests.faults.shim import Shim

_put = mock.patch.object
Patch = Callable[[], list[Any]]


@dataclass(frozen=True)
class Mutant:
    """Something that is wrong, and by what it is caught."""

    name: str
    patch: Patch
    command: str
    by: str
    """A fault, or a race."""

    found: str
    """Which of the counts is then above 0."""


def _pays_after_the_result() -> list[Any]:
    from privrl.privacy.session import OpenSession
    from privrl.run.runners import folder

    owed: list[Any] = []
    written = folder._write_files

    def pay(self: OpenSession, events: Any, **_: Any) -> None:
        self._paid += (events,)
        owed.append((self.ledger.path if self.ledger else None, self.run, events))
        self.ledger = None

    def late(*given: Any) -> Any:
        from privrl.privacy import Ledger

        found = written(*given)
        path, run, events = owed.pop()
        with Ledger.open(path) as ledger:
            ledger.spend(events, run=run)
        return found

    return [_put(OpenSession, "pay", pay), _put(folder, "_write_files", late)]


def _forgets_the_key_first() -> list[Any]:
    from privrl.control.engine import remove_checkpoint
    from privrl.run.runners import folder

    written = folder._write_files

    def early(runner: Any, learned: Any, job: Any) -> Any:
        remove_checkpoint(job.folder)
        return written(runner, learned, job)

    return [_put(folder, "_write_files", early)]


def _writes_the_key_after_paying() -> list[Any]:
    from privrl.privacy.resuming import NoiseKey
    from privrl.privacy.session import OpenSession

    pay, write = OpenSession.pay, NoiseKey._write

    def late(self: OpenSession, *given: Any, **more: Any) -> None:
        pay(self, *given, **more)
        if self.kept is not None:
            write(self.kept)

    return [
        _put(OpenSession, "pay", late),
        _put(NoiseKey, "_write", lambda self: None),
    ]


def _names_not_synchronised() -> list[Any]:
    from privrl.core import files

    return [_put(files, "sync_folder", lambda folder: None)]


def _contents_not_synchronised() -> list[Any]:
    from privrl.core import files

    def write(path: Any, content: bytes, *, secret: bool) -> None:
        target = Path(path)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(target)
        files.sync_folder(target.parent)

    return [_put(files, "write", write)]


def _fresh_noise_on_resuming() -> list[Any]:
    from privrl.privacy.noise import secure
    from privrl.privacy.resuming import NoiseKey

    return [_put(NoiseKey, "source", lambda self: secure())]


def _pays_again() -> list[Any]:
    from privrl.privacy.session import OpenSession

    return [_put(OpenSession, "_has_ledger_payment", lambda self, events: False)]


def _no_limit() -> list[Any]:
    from privrl.privacy.filters import Cost

    return [_put(Cost, "is_within", lambda *_: True)]


def _a_late_failure_forgets_the_key() -> list[Any]:
    from privrl.privacy.session import OpenSession

    return [_put(OpenSession, "may_have_paid", property(lambda self: self.has_paid))]


def _no_lock() -> list[Any]:
    from privrl.core import files

    return [_put(files, "lock_folder", lambda path: nullcontext())]


def _claims_without_a_mark() -> list[Any]:
    from privrl.privacy import Ledger

    claim = Ledger.claim
    return [_put(Ledger, "claim", lambda self, run, token, last, *_: claim(self, run, token, last))]


def _everybody_may_end() -> list[Any]:
    from privrl.privacy.resuming import NoiseKey

    return [
        _put(NoiseKey, "claim_next_generation", lambda self, ledger: self),
        _put(NoiseKey, "check_not_superseded", lambda self, ledger: None),
        _put(NoiseKey, "end", lambda self, ledger: None),
    ]


MUTANTS = (
    Mutant("pays after the result", _pays_after_the_result, "logged-q", "kill", "unpaid"),
    Mutant("forgets the key first", _forgets_the_key_first, "logged-q", "kill", "lost"),
    Mutant("writes the key after paying", _writes_the_key_after_paying, "logged-q", "kill", "lost"),
    Mutant("names not synchronised", _names_not_synchronised, "logged-q", "power cut", "lost"),
    Mutant(
        "contents not synchronised", _contents_not_synchronised, "logged-q", "power cut", "lost"
    ),
    Mutant("fresh noise on resuming", _fresh_noise_on_resuming, "logged-q", "kill", "twice"),
    Mutant("pays again on resuming", _pays_again, "logged-q", "kill", "lost"),
    Mutant(
        "late failure forgets the key",
        _a_late_failure_forgets_the_key,
        *("logged-q", "I/O error", "lost"),
    ),
    Mutant("no limit", _no_limit, "logged-q", "same ledger", "over"),
    Mutant("no lock", _no_lock, "logged-q", "one folder", "lost"),
    Mutant(
        "claims without a mark",
        _claims_without_a_mark,
        *("actor-critic-live", "killed twice", "lost"),
    ),
    Mutant("everybody may end", _everybody_may_end, "actor-critic-live", "kill", "twice"),
)


@contextmanager
def applied(name: str | None) -> Iterator[None]:
    """With the mutant of this name in place; None for none."""
    patches = [] if name is None else next(one for one in MUTANTS if one.name == name).patch()
    try:
        for one in patches:
            one.start()
        yield
    finally:
        for one in reversed(patches):
            one.stop()


def caught(mutant: Mutant, base: Path, shim: Shim) -> Report:
    """The trials that it took: the last one shows the mutant, if any does."""
    from tests.faults.races import RACES, races

    command = next(one for one in COMMANDS if one.name == mutant.command)
    fault = tuple(one for one in FAULTS if one.name == mutant.by)
    base = base / mutant.name.replace(" ", "-")
    with applied(mutant.name):
        if fault:
            return trials(command, base, shim, faults=fault, stop_at=mutant.found)
        race = tuple(one for one in RACES if one.name == mutant.by)
        return races(command, base, shim, each=4, chosen=race, mutant=mutant.name)
