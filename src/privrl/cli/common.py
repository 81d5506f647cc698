"""What commands that write a folder have in common: its name, how they are resumed, and stop."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer

from privrl.cli.printing import say, shell_quote
from privrl.core.errors import InputError
from privrl.core.progress import progress_bar
from privrl.core.spec import flag

# What may be said of a run that is resumed.
_OF_RESUMED = ("learner", "env", "ray", "top", "out", "resume")


def new_folder(kind: str) -> Path:
    """A folder by date and time."""
    from datetime import datetime

    return Path(kind) / datetime.now().strftime("%Y-%m-%d-%H%M%S")


def folder_to_resume(given: Mapping[str, Any]) -> Path:
    """The folder of a run that is resumed, from which it takes its options: refuse others."""
    out: Path | None = given["out"]
    if out is None:
        raise InputError("Say with --out which folder to resume.")
    # By identity: 0 is something to say, and equals False.
    said = [key for key, value in given.items() if value is not None and value is not False]
    others = [key for key in said if key not in _OF_RESUMED]
    if others:
        flags = ", ".join("the table" if one == "table" else flag(one) for one in others)
        raise InputError(f"--resume takes all options from {str(out)!r}: leave out {flags}.")
    return out


@contextmanager
def watching() -> Iterator[dict[str, Any]]:
    """What a long run is told: `progress`, a bar, and `stop`, whether Ctrl-C was pressed."""
    from privrl.run import training

    with progress_bar(None) as advance, training.on_interrupt() as stop:
        yield {"progress": advance, "stop": stop}


def exit_stopped(how_far: str, command: str, runner: Any, folder: Path) -> NoReturn:
    """Tell how to go on; an environment whose module is imported has to be said again."""
    env = getattr(runner, "env", None) or ""
    again = f" --env {shell_quote(env)}" if ":" in env else ""
    say(
        f"Stopped after {how_far}; what was done is kept. To go on:",
        f"  privrl {command} {runner.learner} --out {shell_quote(folder)} --resume{again}",
        aside=True,
    )
    raise typer.Exit(130)
