"""What must hold after any fault: four counts, which are all to be 0, and what was found besides.

- unpaid: something was released that the ledger has no payment for;
- lost: it was paid, and neither is the result there nor does `--resume` bring it for nothing;
- twice: two different releases for one payment;
- over: the ledger has more than its limit.

Besides: `left`, keys and half-written files in a folder whose run has ended; `trace`, an error that
is no sentence; `stuck`, nothing was paid, and the folder can neither be resumed nor begun in again.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.commands import LEDGER, Command

MUST_BE_ZERO = ("unpaid", "lost", "twice", "over")
ALSO = ("left", "trace", "stuck")

# Files that carry what was released; certificates do not, as they hold no noise.
_RELEASED = ("policy.json", "reward_model.json", "result.json", "study.json")
# About the moment, or about all that the population has paid by then.
_NOT_RELEASED = ("created", "certificate", "promise", "files", "command")


@dataclass
class Outcome:
    """What one process came to."""

    code: int | None
    """None if it died, or raised what is no sentence."""

    out: str
    err: str
    trace: str = ""

    @property
    def printed(self) -> dict[str, Any] | None:
        """The result on standard output; with --json an error stands there too, and is none."""
        try:
            found = json.loads(self.out)
        except ValueError:
            return None
        return found if isinstance(found, dict) and list(found) != ["error"] else None


def normalised(data: Any) -> Any:
    """A result without what is not part of the release."""
    if isinstance(data, dict):
        return {k: normalised(v) for k, v in data.items() if k not in _NOT_RELEASED}
    return [normalised(one) for one in data] if isinstance(data, list) else data


@dataclass
class Evidence:
    """All that anybody saw in one trial."""

    command: Command
    root: Path
    outcomes: list[Outcome] = field(default_factory=list)
    releases: dict[str, set[str]] = field(default_factory=dict)
    """By file, each different content that was seen of it."""

    delivered: bool = False
    paid: int = 0
    found: Counter[str] = field(default_factory=Counter)
    why: list[str] = field(default_factory=list)

    def blame(self, kind: str, why: str) -> None:
        self.found[kind] += 1
        self.why.append(f"{kind}: {why}")

    def look(self, folder: Path, outcome: Outcome | None = None) -> bool:
        """Take in a folder, and what was printed; whether the result is there."""
        there = False
        for name in _RELEASED:
            path = folder / name
            if path.exists():
                try:
                    self._saw(name, json.loads(path.read_bytes()))
                except ValueError:
                    self.blame("lost", f"{name} is damaged")
                    continue
                there |= name == self.command.result
        if outcome is not None:
            self.outcomes.append(outcome)
            if outcome.trace:
                self.blame("trace", outcome.trace)
            printed = outcome.printed
            if printed is not None:
                self._saw(self.command.result, printed)
                there = True
        self.delivered |= there
        self.check_ledger(folder)
        if self.command.ledger and self.releases and not self.paid:
            self.blame("unpaid", f"{', '.join(self.releases)} without a payment")
        return there

    def result(self, folder: Path) -> dict[str, Any] | None:
        """What is in a folder that is whole."""
        path = folder / self.command.result
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found

    def _saw(self, name: str, data: Any) -> None:
        text = json.dumps(normalised(data), sort_keys=True)
        self.releases.setdefault(name, set()).add(text)

    def check_ledger(self, folder: Path | None = None) -> None:
        """That it holds, its limit too, and knows the certificate in `folder`."""
        if not self.command.ledger:
            return
        from privrl.privacy import Certificate, Ledger, PrivRLError

        try:
            with Ledger.open(self.root / LEDGER) as ledger:
                ledger.check()
                entries = [entry for entry in ledger.entries() if entry.events]
                self.paid = len(entries)
                limit = ledger.about.filter
                assert limit is not None
                spent = ledger.account(limit.limit.delta).epsilon
                if spent > limit.limit.epsilon:
                    self.blame("over", f"epsilon {spent:g}")
                for certificate in [] if folder is None else folder.glob("certificate.json"):
                    if ledger.is_consistent_with(Certificate.read(certificate)):
                        continue
                    self.blame("unpaid", "the ledger never was as the certificate says")
        except PrivRLError as error:
            self.blame("lost", f"the ledger cannot be read: {error}")

    def judge(self) -> None:
        """At the end of a trial."""
        if self.paid and not self.delivered:
            last = self.outcomes[-1].err.strip() if self.outcomes else ""
            self.blame("lost", f"paid, and no result; the last said {last!r}")
        if self.paid > 1:
            self.blame("lost", f"{self.paid} payments for one result")
        for name, seen in self.releases.items():
            if len(seen) > 1:
                self.blame("twice", f"{len(seen)} different {name}")

    def tidy(self, folder: Path) -> None:
        """A run that has ended leaves nothing secret, and nothing half written."""
        for one in folder.iterdir():
            if one.name == ".lock":
                continue  # Empty, and stops nobody.
            if one.name.startswith(".") or one.suffix in (".key", ".npz"):
                self.blame("left", one.name)
