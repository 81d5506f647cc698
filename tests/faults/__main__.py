"""`python -m tests.faults [--trials N] [--command NAME] [--fault NAME]`: the counts, by hand."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.faults import shim as shims


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--trials", type=int, help="about how many in all; default: every call")
    parser.add_argument("--command", action="append", help="one of the commands; may be repeated")
    parser.add_argument("--fault", action="append", help="one of the faults; may be repeated")
    parser.add_argument("--races", type=int, default=0, help="how many of each kind; default: none")
    parser.add_argument("--mutants", action="store_true", help="whether each mutant is caught")
    parser.add_argument("--mutant", action="append", help="whether this one is; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="which calls, if not every one")
    parser.add_argument("--why", type=int, default=20, help="how many findings to show")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    given = parser.parse_args()
    if "PRIVRL_FAULTS" not in os.environ:
        if shims.compiler() is None:
            print("There is no C compiler, which the faults of file calls need.", file=sys.stderr)
            return 2
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.faults", *sys.argv[1:]],
            shims.environment(shims.built()),
        )
    return mutants(given) if given.mutants or given.mutant else report(given)


def mutants(given: argparse.Namespace) -> int:
    from tests.faults.mutants import MUTANTS, caught

    chosen = [one for one in MUTANTS if not given.mutant or one.name in given.mutant]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="privrl-faults-", dir=memory()) as base:
        for one in chosen:
            found = caught(one, Path(base), shims.Shim())
            seen = found.found[one.found]
            missed += not seen
            verdict = f"caught by {one.by} after {found.total} trials" if seen else "MISSED"
            if not given.json:
                print(f"{one.name}: {verdict} ({one.found})", flush=True)
    count = len(chosen) - missed
    print(json.dumps({"caught": count}) if given.json else f"{count} of {len(chosen)} caught")
    return 1 if missed else 0


def memory() -> str | None:
    """A folder in memory, if there is one: synchronising takes no time there."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def report(given: argparse.Namespace) -> int:
    from tests.faults.commands import COMMANDS
    from tests.faults.harness import FAULTS, Report, trials
    from tests.faults.oracle import ALSO, MUST_BE_ZERO
    from tests.faults.races import RACES, races

    known = {one.name: one for one in COMMANDS}
    for name in given.command or ():
        if name not in known:
            print(f"There is no command {name!r}: {', '.join(known)}.", file=sys.stderr)
            return 2
    commands = [known[name] for name in given.command or known]
    faults = tuple(one for one in FAULTS if not given.fault or one.name in given.fault)
    each = None
    if given.trials == 0:
        faults = ()
    elif given.trials is not None:
        each = max(1, -(-given.trials // (len(commands) * len(faults))))
    whole, loaded = Report(), shims.Shim()
    with tempfile.TemporaryDirectory(prefix="privrl-faults-", dir=memory()) as base:
        for command in commands:
            if faults:
                whole.merge(
                    trials(command, Path(base), loaded, each=each, faults=faults, seed=given.seed)
                )
            if given.races:
                whole.merge(races(command, Path(base), loaded, each=given.races, seed=given.seed))
            print(f"{command.name}: done, {whole.total:,} trials", file=sys.stderr, flush=True)
    counts = {name: whole.found[name] for name in (*MUST_BE_ZERO, *ALSO)}
    if given.json:
        listed = {f"{command}, {fault}": n for (command, fault), n in whole.trials.items()}
        print(
            json.dumps(
                {
                    "trials": whole.total,
                    **counts,
                    "by": listed,
                    "calls": whole.calls,
                    "ends": whole.ends,
                    "why": whole.why[: given.why],
                    "seconds": whole.seconds,
                }
            )
        )
    else:
        names = [one.name for one in faults] + [one.name for one in RACES if given.races]
        width = max(len(one.name) for one in commands)
        print(" " * width + "".join(f"{name:>14}" for name in names) + f"{'all':>8}")
        for command in commands:
            row = [whole.trials[command.name, name] for name in names]
            print(f"{command.name:<{width}}" + "".join(f"{n:>14}" for n in row) + f"{sum(row):>8}")
        print(f"{whole.total:,} trials in {whole.seconds:.0f} s: ", end="")
        print(", ".join(f"{name} {n}" for name, n in counts.items()))
        print("; ".join(f"{name}: {n}" for name, n in sorted(whole.ends.items())))
        print("by call: " + ", ".join(f"{k} {n}" for k, n in sorted(whole.calls.items())))
        for one in whole.why[: given.why]:
            print(f"  {one}")
    return 0 if whole.clean else 1


if __name__ == "__main__":
    sys.exit(main())
