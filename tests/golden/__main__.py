"""`python -m tests.golden write` and `python -m tests.golden compare`."""

import argparse
import sys
import time
from pathlib import Path

from tests.golden.cases import CASES
from tests.golden.keeping import FILES, compared, written


def main(given: list[str] | None = None) -> int:
    """The exit code: 1 if anything differs."""
    asked = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    asked.add_argument("what", choices=("write", "compare"))
    asked.add_argument("folder", nargs="?", type=Path, default=FILES, metavar="DIR")
    asked.add_argument("--only", action="append", choices=list(CASES), metavar="NAME")
    asked.add_argument("--times", action="store_true", help="print how long each case takes")
    said = asked.parse_args(given)
    chosen = [CASES[name] for name in said.only or CASES]
    steps = (written if said.what == "write" else compared)(said.folder, chosen, not said.only)
    found, since = 0, time.process_time()
    for name, lines in steps:
        now = time.process_time()
        if said.times:
            print(f"{name}: {now - since:.2f} s", file=sys.stderr, flush=True)
        since = now
        for line in lines:
            found += 1
            print(f"{name}: {line}", flush=True)
    if said.what == "compare":
        print(f"{len(chosen)} cases, {found} differences.")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
