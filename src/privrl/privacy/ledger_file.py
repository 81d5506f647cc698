"""The file of a ledger: one SQLite database that is written under one name.

SQLite makes a commit whole by a *rollback journal*: before a page of the file is overwritten, its
old content is synchronised to `NAME-journal`, and the commit is the removal of that file. After a
crash, whoever opens `NAME` next finds the journal and puts the old pages back. The journal is found
by name, the file itself may have several: through another name (a hard link, a bind mount of the
file, the name it was moved to) no journal is found, later commits go on from what the crash left,
and the old journal undoes all of them when somebody opens the first name again. Hence:

1. *One name.* A file with more than one hard link, and a file that is a mount point itself, are
   refused: on opening, and the links before each commit within its transaction, together with
   whether the name still leads to the file that was opened (it may have been moved or replaced).
2. *No journal is let undo later commits.* Names can change between commits, so the file says by
   which name it was written last: each commit through the place N (the inode of its folder, and
   its name there) replaces the mark u in the file's header (`user_version`) by h(N, u). Before
   SQLite is let near a file with a journal, `refuse_stale_journal` compares the mark u0 in the
   journal's copy of the first page with the mark u in the file. *Claim*: if u is u0 or h(N, u0),
   then nothing was committed under another name since that journal was begun. *Proof.* Each commit
   replaces the mark. If none was since, u is still u0, or the interrupted commit itself wrote the
   first page, and u = h(N, u0). A commit under another name M would have left h(M, u0) or
   h(M, h(N, u0)), or what follows from that, and these agree with the two only if the hash, of 31
   bits, collides. And none was under N, since opening N undoes the interrupted commit first.
   Otherwise the journal is void, and refused with what to do: move it away.
3. *What a crash leaves is never trusted.* Opening checks the whole chain and the newest entry, so
   that a file found without its journal is either refused, or whole: with the interrupted entry,
   which was not acknowledged and is then paid for nothing, or without. Acknowledged entries are in
   the file in both cases.

So a ledger may be moved, renamed and copied like any file while nobody spends. If a journal is left
beside it, open it once under its old name first. A journal's transaction is over when its file is
gone, so reading journal, mark and journal again tells a commit that is under way from a void one.
What is left to chance: a crash under one name and a commit under another, both within the
microseconds between that look and SQLite's own. Versions before this one leave no marks.

The place has the number of the folder's inode without the number of its device, since those may
change when a machine starts again, which is when journals are needed. Where the folder itself was
copied together with a journal, that may be called void though it is not. Moving it away is safe
then, too, by 3.
"""

import hashlib
import os
import re
import sqlite3
import stat
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from privrl.core.errors import LedgerError, PrivRLError

LOCK_TIMEOUT = 30.0  # seconds to wait for another process to finish its entry
_MOUNTS = Path("/proc/self/mountinfo")
_MAGIC = bytes.fromhex("d9d505f920a163d7")  # a journal begins with it once there is something in it
_LONGEST_JOURNAL = 1 << 24  # bytes of a journal that are looked at: an entry changes a few pages
_MARK_OFFSET = 60  # where the first page has `user_version`
_BUILDING_SUFFIX = re.compile(r"\.[0-9a-f]{16}")


def absolute_path(path: str | Path) -> Path:
    """`path` from the root: SQLite gives names like ":memory:" a meaning of their own."""
    return Path(os.path.abspath(path))


def connect(path: Path, shown: Path | None = None) -> sqlite3.Connection:
    """A connection to the file, in which transactions are begun and ended by hand.

    Errors name `shown`, by default `path`.
    """
    with translate_errors(path if shown is None else shown):
        connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT, isolation_level=None)
        # A rollback journal and EXTRA: after COMMIT the entry survives a power cut, journal
        # directory entry included.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection


def damage_error(path: Path, what: str) -> LedgerError:
    """What is said of a ledger that is not as it was written."""
    return LedgerError(f"The ledger {str(path)!r} was changed or is damaged at {what}.")


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """SQLite's errors, said so that people know what to do."""
    try:
        yield
    except PrivRLError:
        raise
    except (UnicodeError, TypeError, ValueError, KeyError, OverflowError) as error:
        # What SQLite hands back from a damaged file may be of any type.
        raise LedgerError(f"The ledger {str(path)!r} is damaged or not a ledger.") from error
    except sqlite3.Error as error:
        text = str(error)
        if "thread" in text:
            what = "was opened by another thread: open it in this one"
        elif "locked" in text:
            what = f"is in use by another process and was for {LOCK_TIMEOUT:g} seconds"
        elif "readonly" in text or "unable to open" in text:
            what = "cannot be written"
        elif "full" in text or "I/O" in text:
            what = "could not be written: the disk is full or failing"
        else:
            what = "is damaged or not a ledger"
        raise LedgerError(f"The ledger {str(path)!r} {what}.") from error


def building_name(path: Path, token: str) -> Path:
    """The name under which a ledger is made, before it gets its own."""
    return path.with_name(f".{path.name[:100]}.{token}")


@dataclass(frozen=True)
class LedgerName:
    """The one name of a ledger's file, and the file that it led to when it was opened."""

    path: Path
    real: str  # without symbolic links, as SQLite sees it when it looks for a journal
    file: tuple[int, int]

    @classmethod
    def from_path(cls, path: Path) -> Self:
        """The name of an existing file; raises if it is not its only one."""
        real = os.path.realpath(path)
        try:
            found = os.stat(real)
            if not stat.S_ISREG(found.st_mode):
                raise LedgerError(f"{str(path)!r} is not a privrl ledger.")
            if found.st_nlink == 2:
                _remove_building_name(Path(real), found)
        except (OSError, ValueError):
            raise LedgerError(f"There is no ledger {str(path)!r}.") from None
        name = cls(path, real, (found.st_dev, found.st_ino))
        name.check()
        if real in _mount_points():
            raise LedgerError(
                f"The ledger {str(path)!r} is mounted by itself, so that it has two names, and an "
                "entry that is interrupted under one is not seen under the other: mount its folder "
                "instead."
            )
        name.refuse_stale_journal()
        return name

    def check(self) -> None:
        """Raise unless this is still the one name of the file that was opened."""
        try:
            found = os.stat(self.real)
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self.file:
            raise LedgerError(
                f"The ledger {str(self.path)!r} was moved, removed or replaced since it was "
                "opened: open it again."
            )
        links = _link_count(found)
        if links > 1:
            raise LedgerError(
                f"The ledger {str(self.path)!r} has {links} names (hard links), and an "
                "entry that is interrupted under one is not seen under another: remove the others."
            )

    def next_mark(self, previous: int) -> int:
        """What a commit under this name replaces the mark `previous` by."""
        folder, name = os.path.split(self.real)
        place = f"{os.stat(folder).st_ino}/{name}/{previous}"
        hashed = hashlib.sha256(place.encode(errors="surrogateescape")).digest()
        found = int.from_bytes(hashed[:4], "big") >> 1
        return found if found != previous else found ^ 1

    def refuse_stale_journal(self) -> None:
        """Raise if there is a journal of this name, and the file was written under another since.

        Call this before anything that makes SQLite look for one.
        """
        beside = self.real + "-journal"
        while (journal := _Journal.read(beside)) is not None:
            with translate_errors(self.path):
                mark = _read_mark(self.real)
            if journal.mark is None:
                # Not yet synchronised, so that no page was overwritten; undoing it cuts the file.
                void = os.stat(self.real).st_size > journal.length
            else:
                void = mark not in (journal.mark, self.next_mark(journal.mark))
            if not void:
                return
            if _Journal.read(beside) == journal:  # else that was a commit, and it is over
                raise LedgerError(
                    f"The ledger {str(self.path)!r} has an interrupted entry in {beside!r} and was "
                    "written under another name since, so that undoing it would lose later "
                    "entries: move that file away, and use the ledger under one name."
                )


class _Journal(NamedTuple):
    """What is told by a rollback journal: which one it is, and the mark before its transaction."""

    nonce: int
    length: int  # of the file, before
    mark: int | None

    @classmethod
    def read(cls, path: str) -> "_Journal | None":
        """The journal in a file, if there is one that SQLite would act on."""
        try:
            with open(path, "rb") as file:
                content = file.read(_LONGEST_JOURNAL)
        except OSError:
            return None
        if len(content) < 28 or not content.startswith(_MAGIC):
            return None
        records, nonce, pages, sector, size = struct.unpack_from(">5I", content, 8)
        ends = len(content) - size - 8
        if sector < 28 or size < 512:
            return cls(nonce, pages * size, None)
        if 0 < records < 0xFFFFFFFF:
            ends = min(ends, sector + (records - 1) * (size + 8))
        for start in range(sector, ends + 1, size + 8):
            (page,) = struct.unpack_from(">I", content, start)
            if page == 1:
                (mark,) = struct.unpack_from(">i", content, start + 4 + _MARK_OFFSET)
                return cls(nonce, pages * size, mark)
        return cls(nonce, pages * size, None)


def _read_mark(real: str) -> int:
    """The mark in the file as it is, journal or not.

    Through SQLite: closing a file of one's own would drop the locks that this process has on it.
    """
    address = Path(real).as_uri() + "?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        # Else a file that is shorter than its first page says is not read: a crash leaves such.
        connection.execute("PRAGMA writable_schema = ON")
        (mark,) = connection.execute("PRAGMA user_version").fetchone()
        return int(mark)


def _link_count(found: os.stat_result) -> int:
    return found.st_nlink


def _remove_building_name(path: Path, found: os.stat_result) -> None:
    """Remove the name under which this ledger was made, if its maker died before doing so."""
    begin = building_name(path, "").name[:-1]
    for other in path.parent.iterdir():
        if other.name.startswith(begin) and _BUILDING_SUFFIX.fullmatch(other.name[len(begin) :]):
            seen = other.stat()
            if (seen.st_dev, seen.st_ino) == (found.st_dev, found.st_ino):
                other.unlink(missing_ok=True)


def _mount_points() -> set[str]:
    """Where something is mounted, as far as the system tells."""
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return set()
    fields = (line.split(b" ") for line in lines)
    points = (parts[4] for parts in fields if len(parts) > 4)
    plain = (re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), point) for point in points)
    return {os.fsdecode(point) for point in plain}
