"""`python -m tests.fuzz`: run cases, print what was found; the exit code is 1 if anything was."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz import kinds, running
from tests.fuzz.running import Label, Outcome
from tests.fuzz.stock import Stock

_COLUMNS = ("cases", "done", "refused")
_FAULTS = (
    *(
        "no case",
        "traceback",
        "hang",
        "crash",
        "wrong",
        "code",
        "sentence",
        "output",
        "json",
        "internal",
    ),
    *("control", "left", "changed", "gone", "paid", "private"),
)


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    asked.add_argument("--cases", type=int, default=10_000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--only", action="append", choices=list(kinds.KINDS), metavar="KIND")
    asked.add_argument("--case", action="append", help="KIND:NUMBER[:SEED]; may be repeated")
    asked.add_argument("--jobs", type=int, default=1, help="processes at a time")
    asked.add_argument("--batch", type=int, default=20, help="cases that one process takes")
    asked.add_argument("--stock", type=Path, help="a folder of good files to keep between runs")
    asked.add_argument("--json", action="store_true", help="print outcomes with faults as JSON")
    given = asked.parse_args()
    chosen = given.only or list(kinds.SHARES)
    if given.case:
        labels = [Label.parse(one) for one in given.case]
    else:
        labels = list(planned(given.cases, chosen, given.seed))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        stock = Stock(given.stock or Path(scratch) / "stock")
        stock.make({label.kind for label in labels})
        running.warm(stock.folder)
        outcomes: list[Outcome] = []
        cases = running.run(labels, stock.folder.resolve(), Path(scratch), given.jobs, given.batch)
        for one in _until_interrupted(cases):
            outcomes.append(one)
            if given.case:
                _show(one)
            elif one.faults and not given.json:
                print(f"{one.label}: {one.faults}", flush=True)
    if given.json:
        print(json.dumps([vars(one) | {"label": str(one.label)} for one in outcomes]))
    else:
        _table(outcomes, time.monotonic() - begun)
    return int(any(one.faults for one in outcomes))


def _until_interrupted(cases: Iterator[Outcome]) -> Iterator[Outcome]:
    """All of them, or those until Ctrl-C: then what there is is shown."""
    try:
        yield from cases
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)


def planned(cases: int, chosen: list[str], seed: int) -> Iterator[Label]:
    """So many cases, by the shares of their kinds."""
    whole = sum(kinds.SHARES[one] for one in chosen)
    for kind in chosen:
        for number in range(-(-cases * kinds.SHARES[kind] // whole)):
            yield Label(kind, number, seed)


def _show(one: Outcome) -> None:
    print(f"--- {one.label}: {' '.join(one.words)[:3000]}")
    print(f"code {one.code}, faults {one.faults}")
    print(one.out[-1500:])
    print(one.err[-5000:])


def _table(outcomes: list[Outcome], seconds: float) -> None:
    found = running.counted(outcomes)
    seen = [one for one in _FAULTS if any(kind[one] for kind in found.values())]
    heads = [*_COLUMNS, *seen]
    print(f"{'kind':<14}" + "".join(f"{head:>10}" for head in heads))
    total = dict.fromkeys(heads, 0)
    for kind, counts in found.items():
        print(f"{kind:<14}" + "".join(f"{counts[head]:>10}" for head in heads))
        total = {head: total[head] + counts[head] for head in heads}
    print(f"{'all':<14}" + "".join(f"{total[head]:>10}" for head in heads))
    faulty = sum(bool(one.faults) for one in outcomes)
    stopped = sum(bool(one.notes.get("stopped")) for one in outcomes)
    work = sum(one.notes.get("work", 0.0) for one in outcomes)
    print(f"{faulty} cases with faults; {stopped} were stopped while they showed progress.")
    print(f"{seconds:.0f} s in all, {work:.0f} s of work in cases.")
    slow = sorted(outcomes, key=lambda one: -one.notes.get("work", 0.0))[:5]
    print("slowest: " + ", ".join(f"{one.label} {one.notes.get('work', 0):.1f} s" for one in slow))


if __name__ == "__main__":
    sys.exit(main())
