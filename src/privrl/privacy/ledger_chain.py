"""A ledger's entries on disk: a chain of hashes, written in transactions and verified on reading.

Entries are chained by hashes that start from the ledger's own description, and each has a random
nonce, so that no two states of any two ledgers have the same head. This shows accidents, not
malice: whoever may write the file can rewrite it. That a file was replaced by an older copy of
itself cannot be seen in the file: it shows where a head was kept elsewhere, in a certificate
(`Ledger.is_consistent_with`) or in a file of heads (`check_anchor`).

`ledger.py` says which calls verify the whole chain, and which what was added since the last look.
"""

import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from privrl.core import files
from privrl.core.errors import InputError, LedgerError
from privrl.privacy.entries import Description, Entry, Row, digest_of, verify_chain
from privrl.privacy.ledger_file import (
    LedgerName,
    absolute_path,
    building_name,
    connect,
    damage_error,
    translate_errors,
)
from privrl.privacy.totals import ENDED, GENERATION, Totals

_APPLICATION_ID = 0x7AC17  # in the file's header, so that other databases are not mistaken for one


class LedgerChain:
    """The entries of a ledger in its file; `Ledger` decides what may be entered."""

    def __init__(
        self, name: LedgerName, connection: sqlite3.Connection, about: Description
    ) -> None:
        self.path = name.path
        self.about = about
        self._name = name
        self._connection = connection
        # Nothing is verified yet: the chain begins at the description.
        self._totals = Totals(digest_of(about.to_dict()))
        self._has_nonces = False

    # --- making and opening -----------------------------------------------------------------------

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """An existing ledger, its whole chain checked."""
        path = absolute_path(path)
        name = LedgerName.from_path(path)
        connection = connect(path)
        try:
            with translate_errors(path):
                (identity,) = connection.execute("PRAGMA application_id").fetchone()
                if identity != _APPLICATION_ID:
                    raise LedgerError(f"{str(path)!r} is not a privrl ledger.")
                rows = connection.execute("SELECT description FROM about").fetchall()
                if len(rows) != 1:
                    raise LedgerError(
                        f"The ledger {str(path)!r} was changed: it has no description."
                    )
                try:
                    about = Description.from_dict(files.parse_json(rows[0][0]))
                except (ValueError, TypeError) as error:
                    raise damage_error(path, "its description") from error
                ledger = cls(name, connection, about)
            ledger._refresh_totals()
        except BaseException:
            connection.close()
            raise
        return ledger

    @classmethod
    def _write_new(cls, path: Path, about: Description, entries: Iterable[Entry]) -> Self:
        """Write a whole ledger, or nothing."""
        try:
            building = building_name(path, secrets.token_hex(8))
            if path.exists():
                raise LedgerError(f"{str(path)!r} is there already.")
            building.touch(exist_ok=False)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "its name is not one for a file"
            raise LedgerError(f"{str(path)!r} cannot be made: {reason}.") from None
        try:
            # Errors name the ledger that was asked for.
            connection = connect(building, path)
            ledger = cls(replace(LedgerName.from_path(building), path=path), connection, about)
            with ledger._transaction():
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute("CREATE TABLE about (description TEXT NOT NULL)")
                connection.execute(
                    "CREATE TABLE entries (number INTEGER PRIMARY KEY, time TEXT NOT NULL,"
                    " run TEXT NOT NULL, partition TEXT NOT NULL, slot INTEGER NOT NULL,"
                    " events TEXT NOT NULL, note TEXT NOT NULL, first REAL NOT NULL,"
                    " second REAL NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL,"
                    " nonce TEXT)"
                )
                # The newest entry, so that losing the last rows does not go unnoticed.
                connection.execute("CREATE TABLE head (number INTEGER, digest TEXT NOT NULL)")
                connection.execute("INSERT INTO head VALUES (0, ?)", (ledger._totals.head,))
                text = json.dumps(about.to_dict())
                connection.execute("INSERT INTO about VALUES (?)", (text,))
                for entry in entries:
                    ledger._append(Row.from_entry(entry))
            ledger.close()
            # Under its name only when it is whole, and only if nobody else made one meanwhile.
            os.link(building, path)
        except FileExistsError:
            raise LedgerError(f"{str(path)!r} is there already.") from None
        except OSError as error:
            raise LedgerError(f"{str(path)!r} cannot be made: {error.strerror}.") from None
        finally:
            building.unlink(missing_ok=True)
        return cls.open(path)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading ----------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All entries, the oldest first, the whole chain checked again."""
        return list(self._entries(self._verified_rows()))

    def check_anchor(self, path: str | Path) -> bool:
        """Whether this ledger went through all states noted in the file `path`; notes this one.

        The file has a line for each time that this was asked, with the number of entries and the
        head. Keep it where whoever may restore the ledger does not restore it too.
        """
        heads, target = self._heads(), Path(path)
        try:
            lines = files.read_bytes(target).decode("ascii").splitlines() if target.exists() else []
            noted = [(int(number), head) for number, head in (line.split() for line in lines)]
            if any(heads.get(number) != head for number, head in noted):
                return False
            newest = max(heads)
            if (newest, heads[newest]) not in noted:
                with target.open("a", encoding="ascii") as file:
                    file.write(f"{newest} {heads[newest]}\n")
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{str(path)!r} cannot be used: {error.strerror}.") from None
        except ValueError:
            raise InputError(f"{str(path)!r} is not a file of heads of ledgers.") from None
        return True

    def _heads(self) -> dict[int, str]:
        """The head after each number of entries."""
        heads = {row.number: row.digest for row in self._verified_rows()}
        return {0: digest_of(self.about.to_dict()), **heads}

    def __len__(self) -> int:
        """How many entries there are."""
        return self._refresh_totals().number

    def __bool__(self) -> bool:
        return True

    def has_run(self, run: str) -> bool:
        """Whether any entry is of this run."""
        return run in self._refresh_totals().runs

    def _refresh_totals(self) -> Totals:
        """What the entries add up to by now."""
        with self._transaction("BEGIN"):
            self._verify_new_entries()
        return self._totals

    def _verify_new_entries(self, known: Totals | None = None) -> Totals:
        """Check the entries that were added to those known, and that none was lost."""
        known = self._totals if known is None else known
        verify_chain(
            self._select_rows(known.number),
            known.number,
            known.head,
            without_nonce=self.about.format == 1,
            changed=lambda what: damage_error(self.path, what),
            count=known.add_row,
        )
        heads = self._connection.execute("SELECT number, digest FROM head").fetchall()
        if heads != [(known.number, known.head)]:
            raise damage_error(self.path, "its newest entry")
        return known

    def _has_nonce_column(self) -> bool:
        """Whether entries have nonces in this file: another process may have added the column."""
        if not self._has_nonces:
            columns = self._connection.execute("PRAGMA table_info(entries)").fetchall()
            self._has_nonces = any(column[1] == "nonce" for column in columns)
        return self._has_nonces

    def _select_rows(self, after: int = 0) -> sqlite3.Cursor:
        """The rows of entries, in the order of a `Row`."""
        nonce = "nonce" if self._has_nonce_column() else "NULL"
        return self._connection.execute(
            "SELECT number, time, run, partition, slot, events, note, first, second, previous,"
            f" digest, {nonce} FROM entries WHERE number > ? ORDER BY number",
            (after,),
        )

    def _verified_rows(self) -> list[Row]:
        """All rows, the whole chain checked again."""
        with self._transaction("BEGIN"):
            self._totals = self._verify_new_entries(Totals(digest_of(self.about.to_dict())))
            return list(map(Row._make, self._select_rows()))

    def _entries(self, rows: Iterable[Row]) -> Iterator[Entry]:
        for row in rows:
            try:
                yield row.entry()
            except (ValueError, TypeError, RecursionError) as error:
                raise damage_error(self.path, f"entry {row.number}") from error

    # --- writing ----------------------------------------------------------------------------------

    def _next_body(self, run: str, events: list[dict[str, Any]], note: str) -> dict[str, Any]:
        """The next entry, at no cost and on everybody."""
        return {
            "number": self._totals.number + 1,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "run": run,
            "partition": "",
            "slot": 0,
            "events": events,
            "note": note,
            "cost": [0.0, 0.0],
            "previous": self._totals.head,
            "nonce": secrets.token_hex(16),
        }

    def _append(self, row: Row) -> None:
        """Write one more row; count it when the transaction is over."""
        if not self._has_nonce_column():
            self._connection.execute("ALTER TABLE entries ADD COLUMN nonce TEXT")
        self._connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row
        )
        self._connection.execute("UPDATE head SET number = ?, digest = ?", (row.number, row.digest))

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        """All or nothing, alone among all processes, and on disk when it is over.

        With a plain BEGIN, for reading: all that is read belongs to one moment.
        """
        with translate_errors(self.path):
            self._name.refuse_stale_journal()
            self._connection.execute(begin)
            try:
                if begin == "BEGIN IMMEDIATE":
                    self._name.check()
                    (mark,) = self._connection.execute("PRAGMA user_version").fetchone()
                    self._connection.execute(f"PRAGMA user_version = {self._name.next_mark(mark)}")
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    # --- runs that are gone on with ---------------------------------------------------------------

    def generation(self, token: str) -> tuple[int, bool]:
        """How often the run with this token was gone on with, and whether it has ended.

        A run on live environments may be continued by one of its copies only (`resuming`): each
        continuation claims the next generation here, and the end is marked. These entries cost
        nothing, have no events, and are chained like all others.
        """
        return self._refresh_totals().generation(token)[:2]

    def claim(
        self, run: str, token: str, generation: int, mark: str = "", before: Iterable[str] = ()
    ) -> int:
        """Record that the run is gone on with, and return as which generation; one alone is let.

        It goes on from `generation`, the last that it knows of, or from a later one that it claimed
        itself and did not live to note: such a claim bears one of the marks `before`. `mark` is
        that of this claim, drawn at random and kept before it is asked for.
        """
        with self._transaction():
            self._verify_new_entries()
            last = self._claimable_generation(run, token, generation, before)
            self._append_mark(run, f"{GENERATION} {token} {last + 1} {mark}".rstrip())
            return last + 1

    def check_claim(self, run: str, token: str, generation: int, before: Iterable[str]) -> None:
        """Raise if `claim` would be refused now."""
        self._refresh_totals()
        self._claimable_generation(run, token, generation, before)

    def _claimable_generation(
        self, run: str, token: str, generation: int, before: Iterable[str]
    ) -> int:
        """The last generation, if the run may be gone on with from this one."""
        last, ended, latest = self._totals.generation(token)
        if ended:
            raise InputError(
                f"The run {run!r} has ended, by this ledger: a copy of it cannot go on, since "
                "it would be released twice."
            )
        if generation != last and (not latest or latest not in before):
            raise InputError(
                f"The run {run!r} was gone on with elsewhere, by this ledger: only one copy of "
                "it can, since it would be released twice."
            )
        return last

    def end(self, run: str, token: str, generation: int) -> None:
        """Record that this generation ended the run, if none was claimed after it."""
        with self._transaction():
            self._verify_new_entries()
            last, ended, _ = self._totals.generation(token)
            if generation != last:
                raise InputError(
                    f"The run {run!r} was gone on with elsewhere, by this ledger: what this copy "
                    "found is not released."
                )
            if not ended:
                self._append_mark(run, f"{ENDED} {token} {generation}")

    def _append_mark(self, run: str, note: str) -> None:
        """An entry that costs nothing."""
        body = self._next_body(run, [], note)
        self._append(Row.from_entry(Entry.from_dict({**body, "digest": digest_of(body)})))

    # --- JSON -------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The whole ledger as JSON."""
        return {
            **self.about.to_dict(),
            "entries": [{**entry.body(), "digest": entry.digest} for entry in self.entries()],
        }

    @classmethod
    def from_dict(cls, data: Any, path: str | Path) -> Self:
        """Write the ledger whose JSON form is `data` to a new file, if its chain holds."""
        about = Description.from_dict(data)
        listed = data.get("entries")
        if not isinstance(listed, list):
            raise LedgerError("This ledger has no list of entries.")
        head, entries = digest_of(about.to_dict()), []
        for number, item in enumerate(listed, 1):
            try:
                entry = Entry.from_dict(item)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise LedgerError(f"Entry {number} of this ledger cannot be read.") from error
            chained = entry.previous == head and entry.digest == digest_of(entry.body())
            chained = chained and (entry.nonce is not None or about.format == 1)
            if entry.number != number or not chained:
                raise LedgerError(
                    f"This ledger was changed: entry {number} does not fit its chain."
                )
            entries.append(entry)
            head = entry.digest
        return cls._write_new(absolute_path(path), about, entries)
