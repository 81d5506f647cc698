"""The mutation suite by hand: which unit tests fail, and which audits refute, for each mutant.

    python -m tests.mutation                    all of it: an hour or so
    python -m tests.mutation NAME...            some mutants
    python -m tests.mutation --units NAME...    their unit tests only (--audits: their audits only)

Leaves with exit code 1 if a named unit test passes, or an audit does not refute.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from privrl.audit.catalogue import load
from privrl.audit.mutants import MUTANTS
from privrl.audit.mutations import Finding, Mutant, audit_mutant

ROOT = Path(__file__).parent.parent


def passed(mutant: Mutant) -> list[str]:
    """Which of the unit tests that must fail do not, in a process in which the mutant is at work.

    A test with parameters fails if it fails for any of them.
    """
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, *mutant.tests],
        cwd=ROOT,
        env={**os.environ, "PRIVRL_MUTANT": mutant.name},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode not in (0, 1):  # nothing was run: no such test, or it cannot be imported
        raise RuntimeError(f"{mutant.name}: {found.stdout[-2000:]}{found.stderr[-2000:]}")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", found.stdout, re.MULTILINE)
    return [
        test
        for test in mutant.tests
        if not any(name == test or name.startswith(f"{test}[") for name in failed)
    ]


def caught(mutant: Mutant, target: str) -> Finding:
    """What the audit of a mutant finds, with attack and threshold fixed beforehand."""
    load()
    return audit_mutant(mutant, target)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--units", action="store_true", help="unit tests only")
    parser.add_argument("--audits", action="store_true", help="audits only")
    given = parser.parse_args(arguments)
    bad = 0
    for name in given.names or MUTANTS:
        mutant = MUTANTS[name]
        if not given.audits:
            begun = time.monotonic()
            missed = passed(mutant)
            bad += bool(missed)
            said = f"MISSED BY {missed}" if missed else "caught"
            print(f"{name:<26}unit tests {said} ({time.monotonic() - begun:.0f} s)", flush=True)
        for target in () if given.units else mutant.targets:
            begun = time.process_time()
            found = caught(mutant, target)
            bad += not found.is_caught
            power = getattr(found.found, "power", None)
            print(
                f"{name:<26}{target:<28}{'caught' if found.is_caught else 'NOT CAUGHT':<12}"
                f"{'' if power is None else f'power {power:.3f} '}"
                f"({time.process_time() - begun:.1f} CPU s)",
                flush=True,
            )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
