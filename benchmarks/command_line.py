"""How long `--help` takes: our derivation of options over Typer, and tyro's, for one command.

The command has the options of `privrl train actor-critic`. Both are made from a frozen dataclass
with the same names, types, defaults and lines of help, in a process of their own each time. tyro is
no dependency: its part is run by the interpreter in PRIVRL_TYRO_PYTHON, or by this one if tyro is
there, or left out with a sentence. Beside it stands what `privrl --help` takes, which has to stay
below half a second.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from privrl.core.spec import Option
from privrl.run.specs import spec_of

_ROUNDS = 20
_TYPES = {"int": "int | None", "float": "float | None", "bool": "bool", "str": "str | None"}

_OURS = """\
from dataclasses import dataclass

import typer

from privrl.cli.derived import function
from privrl.core.spec import Spec, option


@dataclass(frozen=True)
class Options(Spec):
    {fields}


app = typer.Typer(rich_markup_mode=None, add_completion=False)
app.command()(function("Options.", Options.options().values(), print))
app()
"""
_TYRO = """\
from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Options:
    {fields}


tyro.cli(Options)
"""


def run() -> Iterator[dict[str, object]]:
    """A row for each way to make the command, and one for `privrl --help`."""
    options = list(spec_of("actor-critic").all_options().values())
    with tempfile.TemporaryDirectory() as scratch:
        ours, theirs = Path(scratch) / "ours.py", Path(scratch) / "theirs.py"
        ours.write_text(_OURS.format(fields="\n    ".join(map(_our_field, options))))
        theirs.write_text(_TYRO.format(fields="\n    ".join(map(_tyro_field, options))))
        commands = {
            "privrl --help": [sys.executable, "-m", "privrl", "--help"],
            "Typer": [sys.executable, str(ours), "--help"],
        }
        python = os.environ.get("PRIVRL_TYRO_PYTHON") or (
            sys.executable if find_spec("tyro") else None
        )
        if python is not None:
            commands["tyro"] = [python, str(theirs), "--help"]
        shown = {name: _show_help(words) for name, words in commands.items()}
        for name in list(commands)[1:]:
            missing = [one.flag for one in options if one.flag not in shown[name]]
            assert not missing, (name, missing)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(_ROUNDS):
            for name, words in commands.items():  # alternating
                times[name].append(_measure(words))
    for name, measured in times.items():
        wall, processor = (statistics.median(part) for part in zip(*measured, strict=True))
        row: dict[str, object] = {"help": name, "median_s": wall, "median_cpu_s": processor}
        yield row | {"rounds": _ROUNDS} | ({} if " " in name else {"options": len(options)})
    if python is None:
        yield {"help": "tyro", "skipped": "tyro is not installed: say PRIVRL_TYRO_PYTHON."}


def _kind(one: Option) -> str:
    return _TYPES.get(getattr(one.kind, "__name__", ""), "str | None")


def _our_field(one: Option) -> str:
    default = False if _kind(one) == "bool" else None
    return f"{one.name}: {_kind(one)} = option({one.text!r}, {default})"


def _tyro_field(one: Option) -> str:
    default = False if _kind(one) == "bool" else None
    name = one.flag.removeprefix("--")
    about = f"tyro.conf.arg(name={name!r}, help={one.text!r})"
    return f"{one.name}: Annotated[{_kind(one)}, {about}] = {default}"


def _show_help(words: list[str]) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def _measure(words: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of one process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _show_help(words)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return wall, user + system
