"""`python -m tests.neighbours`: the table of commands and pairs, and what was found."""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.neighbours.commands import commands
from tests.neighbours.comparing import Verdict
from tests.neighbours.hunting import Pair, compared, few, replayed
from tests.neighbours.running import Command, Stance, stances
from tests.neighbours.tables import Replacement, quick, replacements

_VERDICTS: tuple[Verdict, ...] = ("same", "figures", "refusal", "closed")


def main() -> int:
    """0 if there is no finding but those that are known."""
    told = argparse.ArgumentParser(prog="python -m tests.neighbours", description=__doc__)
    told.add_argument("--all", action="store_true", help="all commands, with all replacements")
    told.add_argument("--command", default="", help="only commands whose name holds this")
    told.add_argument("--stance", choices=["refuse", "neutral"], help="one of the stances")
    asked = told.parse_args()
    chosen = [one for one in commands() if (asked.all or one.quick) and asked.command in one.name]
    listed = replacements() if asked.all else quick()
    pairs: list[Pair] = []
    began = time.process_time()
    with TemporaryDirectory(prefix="neighbours-") as folder:
        for stance in [asked.stance] if asked.stance else stances():
            pairs += _stance(chosen, listed, stance, Path(folder))
    problems = [pair.problem for pair in pairs if pair.problem]
    _end(pairs, len(chosen), len(listed), time.process_time() - began)
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


def _stance(
    chosen: list[Command], listed: list[Replacement], stance: Stance, folder: Path
) -> list[Pair]:
    print(f"\nInvalid rows: {stance}")
    heads = "".join(
        f"{name:>9}" for name in ("pairs", *_VERDICTS, "finding", "known", "replayed", "moved")
    )
    print(f"  {'':<50}{heads}")
    pairs: list[Pair] = []
    for command in chosen:
        seen = list(compared(command, few(command, listed), stance, folder))
        moved = list(replayed(command, few(command, listed), stance, folder))
        counts = Counter(pair.verdict for pair in seen)
        known = sum(pair.known is not None and bool(pair.finding) for pair in (*seen, *moved))
        found = sum(bool(pair.finding) for pair in (*seen, *moved)) - known
        cells = (len(seen), *(counts[one] for one in _VERDICTS), found, known)
        most = max((pair.moved for pair in moved if not pair.finding), default=0.0)
        row = "".join(f"{cell:>9}" for cell in (*cells, len(moved)))
        print(f"  {command.name[:49]:<50}{row}{most:>9.3f}", flush=True)
        pairs += [*seen, *moved]
    return pairs


def _end(pairs: list[Pair], chosen: int, listed: int, seconds: float) -> None:
    """What it came to."""
    seen = [pair for pair in pairs if pair.compared]
    print(
        f"\n{chosen} commands, {listed} replacements of one person: {len(seen):,} pairs compared, "
        f"{len(pairs) - len(seen):,} replayed, in {seconds:.0f} s of processor time."
    )
    print("Differences that are allowed, and in how many pairs:")
    where = Counter(place for pair in seen for place in set(map(_kind, pair.allowed)))
    for place, count in sorted(where.items()):
        print(f"  {count:>6}  {place}")
    known = Counter(pair.known for pair in pairs if pair.known is not None and pair.finding)
    print("Findings that are known today:" if known else "No finding is known today.")
    for why, count in known.items():
        print(f"  {count:>6}  {why}")
    new = sum(bool(pair.problem) for pair in pairs)
    print(f"Other findings, and known ones that are gone: {new}")


def _kind(where: str) -> str:
    """A path without its numbers."""
    return "".join(one for one in where if not one.isdigit())


if __name__ == "__main__":
    sys.exit(main())
