"""A ledger under two names: a commit that was killed under one must not undo those of the other."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from privrl import cli
from privrl.privacy import Gaussian, Ledger, LedgerError, Unit, ledger_file

BEFORE = 40  # entries, so that the newest is on a page of its own


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Ledger.create(tmp_path / "people.ledger", "clinic", unit=Unit.USER) as ledger:
        for i in range(BEFORE):
            ledger.spend(Gaussian(100, 1), run=f"run {i}")
    return tmp_path / "people.ledger"


# Writes an entry and dies of SIGKILL between the journal's synchronisation and the commit: with a
# cache of one page, reading on drives the changed pages into the file, and the journal before them.
SPILLED = """
import os, signal, sys
from privrl.privacy import Gaussian, Ledger
append = Ledger._append
def die(ledger, entry):
    append(ledger, entry)
    ledger._connection.execute("PRAGMA cache_size = 1")
    ledger._connection.execute("SELECT * FROM entries").fetchall()
    os.kill(os.getpid(), signal.SIGKILL)
with Ledger.open(sys.argv[1]) as ledger:
    Ledger._append = die
    ledger.spend(Gaussian(100, 1), run="killed")
"""

# Dies within COMMIT: a long note makes the file grow, and the system ends who writes beyond a size.
WITHIN_COMMIT = """
import os, resource, signal, sys
from privrl.privacy import Gaussian, Ledger
with Ledger.open(sys.argv[1]) as ledger:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, 2 * (os.stat(sys.argv[1]).st_size + 4096,))
    ledger.spend(Gaussian(100, 1), run="killed", note="n" * 20000)
"""

# Dies when all is written and the journal is not yet removed: it is put back as it was in the end,
# with every page that the commit replaced, the first with the file's mark included.
AT_THE_END = """
import os, signal, sys
from privrl.privacy import Gaussian, Ledger
append, journal = Ledger._append, sys.argv[1] + "-journal"
def keep(ledger, entry):
    append(ledger, entry)
    ledger._connection.execute("PRAGMA cache_size = 1")
    ledger._connection.execute("SELECT * FROM entries").fetchall()
    os.link(journal, journal + ".kept")
with Ledger.open(sys.argv[1]) as ledger:
    Ledger._append = keep
    ledger.spend(Gaussian(100, 1), run="killed")
os.rename(journal + ".kept", journal)
os.kill(os.getpid(), signal.SIGKILL)
"""
DEATHS = [
    (SPILLED, signal.SIGKILL),
    (WITHIN_COMMIT, signal.SIGXFSZ),
    (AT_THE_END, signal.SIGKILL),
]
deaths = pytest.mark.parametrize(("code", "by"), DEATHS)


def killed(path: Path, code: str = SPILLED, by: signal.Signals = signal.SIGKILL) -> Path:
    """A process spends under this name and dies in its commit; returns the journal it leaves."""
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=False)
    assert done.returncode == -by, done.stderr.decode()
    assert path.read_bytes() != before
    journal = path.with_name(path.name + "-journal")
    assert journal.stat().st_size > 0
    return journal


def spends(path: Path, times: int = 16) -> None:
    with Ledger.open(path) as ledger:
        for _ in range(times):
            ledger.spend(Gaussian(100, 1), run="acknowledged")


def acknowledged(path: Path) -> int:
    with Ledger.open(path) as ledger:
        return sum(entry.run == "acknowledged" for entry in ledger.entries())


def test_a_hard_link_is_refused_and_loses_nothing(path: Path) -> None:
    other = path.with_name("other.ledger")
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(LedgerError, match=r"has 2 names \(hard links\)"):
            Ledger.open(name)
    other.unlink()
    spends(path)
    assert acknowledged(path) == 16


def test_a_commit_killed_under_a_hard_link_loses_nothing(path: Path) -> None:
    """The commit is killed under one name while the file has one; then it has the other."""
    other = path.with_name("other.ledger")
    os.rename(path, other)  # nobody has it open: a ledger may change its name
    killed(other)
    os.link(other, path)
    with pytest.raises(LedgerError, match="hard links"):
        Ledger.open(path)
    other.unlink()  # for whoever opens it now, one name; the journal is beside the other
    spends(path)
    os.link(path, other)
    path.unlink()
    with pytest.raises(LedgerError, match="written under another name since"):
        Ledger.open(other)
    other.with_name(other.name + "-journal").rename(path.with_name("kept"))
    assert acknowledged(other) == 16


def test_a_link_made_behind_an_open_handle_is_refused_before_paying(path: Path) -> None:
    with Ledger.open(path) as ledger:
        os.link(path, path.with_name("other.ledger"))
        with pytest.raises(LedgerError, match="hard links"):
            ledger.spend(Gaussian(100, 1), run="acknowledged")
        assert len(ledger.entries()) == BEFORE


@pytest.mark.parametrize("times", [1, 16])
@pytest.mark.parametrize("code", [SPILLED, AT_THE_END])
def test_a_journal_under_an_old_name_does_not_undo_later_entries(
    path: Path, code: str, times: int
) -> None:
    journal, moved = killed(path, code), path.with_name("moved.ledger")
    size = path.stat().st_size
    os.rename(path, moved)
    spends(moved, times)
    assert (moved.stat().st_size > size) == (times > 1)  # one is known by its mark alone
    os.rename(moved, path)
    with pytest.raises(LedgerError, match="move that file away"):
        Ledger.open(path)
    journal.rename(path.with_name("kept"))
    assert acknowledged(path) == times


def test_what_a_crash_left_half_written_is_not_trusted_without_its_journal(path: Path) -> None:
    killed(path, WITHIN_COMMIT, signal.SIGXFSZ)
    moved = path.with_name("moved.ledger")
    os.rename(path, moved)
    with pytest.raises(LedgerError, match="damaged"):
        Ledger.open(moved)
    os.rename(moved, path)  # whole again under its own name
    with Ledger.open(path) as ledger:
        assert len(ledger.entries()) == BEFORE


def test_a_file_that_was_mounted_by_itself_is_not_undone_either(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a bind mount: two names at the same time, and one link by what the system says."""
    mounted = path.with_name("mounted.ledger")
    killed(path)
    os.link(path, mounted)
    monkeypatch.setattr(ledger_file, "_link_count", lambda found: 1)
    with Ledger.open(mounted) as ledger:
        entries = len(ledger.entries())
        for _ in range(16):
            ledger.spend(Gaussian(100, 1), run="acknowledged")
    with pytest.raises(LedgerError, match="written under another name since"):
        Ledger.open(path)
    with Ledger.open(mounted) as ledger:
        assert len(ledger.entries()) == entries + 16


def test_a_mount_point_is_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spaced = path.with_name("our people.ledger")
    path.rename(spaced)
    mounts = tmp_path / "mountinfo"
    point = str(spaced).replace(" ", "\\040")
    mounts.write_text(
        f"22 27 0:21 / /proc rw - proc proc rw\n36 35 98:0 /a {point} rw - ext4 d rw\n"
    )
    monkeypatch.setattr(ledger_file, "_MOUNTS", mounts)
    assert cli.run(["ledger", "show", str(spaced), "--delta", "1e-6"]) == 2
    assert "mount its folder instead" in capsys.readouterr().err
    mounts.write_text("22 27 0:21 / /proc rw - proc proc rw\n")
    assert cli.run(["ledger", "show", str(spaced), "--delta", "1e-6"]) == 0


@deaths
def test_a_commit_killed_under_the_only_name_is_undone_as_ever(
    path: Path, code: str, by: signal.Signals
) -> None:
    journal = killed(path, code, by)
    with Ledger.open(path) as ledger:
        assert len(ledger.entries()) == BEFORE
        ledger.spend(Gaussian(100, 1), run="after")
    assert not journal.exists()


def test_an_open_handle_undoes_a_killed_commit_of_the_same_name(path: Path) -> None:
    with Ledger.open(path) as ledger:
        killed(path)
        ledger.spend(Gaussian(100, 1), run="after")
        assert [entry.run for entry in ledger.entries()][BEFORE:] == ["after"]


def test_moving_and_copying_a_ledger_at_rest(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "ours.ledger"
    elsewhere.parent.mkdir()
    path.rename(elsewhere)
    spends(elsewhere)
    elsewhere.rename(path)
    spends(path)
    assert acknowledged(path) == 32
    folder = tmp_path / "moved folder"
    path.parent.joinpath("elsewhere").rename(folder)
    copy = folder / "copy.ledger"
    copy.write_bytes(path.read_bytes())
    spends(copy)
    assert (acknowledged(copy), acknowledged(path)) == (48, 32)


def test_a_folder_with_a_killed_commit_may_be_moved(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    path = path.rename(folder / path.name)
    killed(path)
    folder.rename(tmp_path / "there")
    with Ledger.open(tmp_path / "there" / path.name) as ledger:
        assert len(ledger.entries()) == BEFORE


def test_a_handle_whose_file_was_moved_or_replaced_does_not_pay(path: Path) -> None:
    backup = path.read_bytes()
    with Ledger.open(path) as ledger:
        path.rename(path.with_name("away"))
        with pytest.raises(LedgerError, match="moved, removed or replaced"):
            ledger.spend(Gaussian(100, 1), run="lost")
        path.write_bytes(backup)
        with pytest.raises(LedgerError, match="moved, removed or replaced"):
            ledger.spend(Gaussian(100, 1), run="lost")


def test_a_maker_that_died_between_two_names_is_tidied_up_after(path: Path) -> None:
    building = ledger_file.building_name(path, "0123456789abcdef")
    os.link(path, building)
    spends(path)
    assert not building.exists()
    assert acknowledged(path) == 16


def test_looking_for_a_journal_keeps_the_locks_of_this_process(path: Path) -> None:
    """Closing a file drops all locks that a process has on it, unless SQLite does it."""
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    holder.execute("UPDATE head SET number = number")
    holder.execute("PRAGMA cache_size = 1")
    holder.execute("SELECT * FROM entries").fetchall()
    ledger_file.LedgerName.from_path(path)
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0.1, isolation_level=None);"
        "c.execute('BEGIN IMMEDIATE')"
    )
    other = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=False)
    assert b"database is locked" in other.stderr
    holder.execute("ROLLBACK")
    holder.close()


def test_what_is_no_file_is_refused_without_waiting(path: Path) -> None:
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    for other in (pipe, path.parent):
        with pytest.raises(LedgerError, match="is not a privrl ledger"):
            Ledger.open(other)
