"""Kills, disk faults, power cuts and races of every command that pays; see the package."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults import shim as shims
from tests.faults.commands import COMMANDS
from tests.faults.mutants import MUTANTS
from tests.faults.oracle import ALSO, MUST_BE_ZERO

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    shims.compiler() is None or sys.platform != "linux",
    reason="faults of file calls need Linux and a C compiler",
)


def counted(*options: str) -> dict[str, Any]:
    """What `python -m tests.faults` prints."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--json", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_clean(found: dict[str, Any]) -> None:
    assert {name: found[name] for name in (*MUST_BE_ZERO, *ALSO)} == dict.fromkeys(
        (*MUST_BE_ZERO, *ALSO), 0
    ), "\n".join(found["why"])


@pytest.mark.slow
def test_a_few_faults_of_two_commands() -> None:
    """All kinds of faults, at calls that differ from day to day in nothing but their number."""
    found = counted("--command", "evaluate", "--command", "logged-q", "--trials", "54")
    assert found["trials"] >= 54
    assert_clean(found)


# --- the harness itself ---------------------------------------------------------------------------

_PROGRAM = """
import errno, os, sys
from pathlib import Path
from tests.faults.shim import Durable, Mode, Shim

root, shadow = Path(sys.argv[1]), Path(sys.argv[2])
shim = Shim()

def write(name, text, sync):
    with open(root / name, "w") as file:
        file.write(text)
        file.flush()
        if sync:
            os.fsync(file.fileno())

def sync_names():
    handle = os.open(root, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)

def does(*calls):
    try:
        for call in calls:
            call()
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]

def steps():
    return does(
        lambda: write("a", "whole", True), sync_names, lambda: write("b", "lost", False),
        lambda: os.replace(root / "b", root / "a"),
    )

def fresh():
    for one in root.iterdir():
        one.unlink()
    (root / "old").write_text("old")

fresh()
shim.arm(root, shadow, Mode.COUNT)
assert steps() == "done"
shim.disarm()
kinds = [call.what for call in shim.log()]
assert kinds == ["create", "write", "fsync", "read", "fsync", "create", "write", "rename"], kinds
for at in range(1, len(kinds) + 1):
    # A kill: what was done before it is there, and nothing after it.
    fresh()
    shim.arm(root, shadow, Mode.KILL, at)
    steps()
    shim.disarm()
    assert shim.dead
    names = sorted(p.name for p in root.iterdir())
    want = ["a", "old"] if 2 <= at <= 6 else ["old"] if at == 1 else ["a", "b", "old"]
    assert names == want, (at, names)
    # Half of a write.
    if kinds[at - 1] == "write":
        fresh()
        shim.arm(root, shadow, Mode.TORN, at)
        steps()
        shim.disarm()
        assert (root / ("a" if at == 2 else "b")).read_text() == ("who" if at == 2 else "lo")
    # A power cut: what was synchronised is there.
    fresh()
    before = Durable(root)
    shim.arm(root, shadow, Mode.POWER, at)
    steps()
    shim.disarm()
    before.apply(shim.lines(), shadow)
    before.restore()
    left = {p.name: p.read_text() for p in root.iterdir()}
    # Names are on disk from the second fsync on.
    assert left == ({"old": "old", "a": "whole"} if at > 5 else {"old": "old"}), (at, left)
fresh()
shim.arm(root, shadow, Mode.ERROR, 2, errno.ENOSPC)
assert steps() == "ENOSPC"
shim.disarm()
shim.arm(root, shadow, Mode.SHORT, 2)
assert steps() == "done"  # Python writes the rest.
shim.disarm()
assert (root / "a").read_text() == "lost"
"""


def test_the_shim_counts_kills_and_cuts_power_where_it_says(tmp_path: Path) -> None:
    for name in ("root", "shadow"):
        (tmp_path / name).mkdir()
    subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "root"), str(tmp_path / "shadow")],
        cwd=ROOT,
        env={**shims.environment(shims.built()), "PYTHONPATH": str(ROOT)},
        check=True,
    )


# --- all of it ------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("command", [one.name for one in COMMANDS])
def test_every_command_at_many_calls_and_in_races(command: str) -> None:
    # More than are asserted: a command with few writes has few trials of faults in them.
    found = counted("--command", command, "--trials", "198", "--races", "4")
    assert found["trials"] >= 180
    assert_clean(found)


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", [one.name for one in MUTANTS])
def test_mutants_are_caught(mutant: str) -> None:
    assert counted("--mutant", mutant)["caught"] == 1
