"""What commands have in common: options, the bar of those that take long, how they stop."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from privrl.cli.printing import say, shell_quote

if TYPE_CHECKING:
    from privrl.core.progress import Progress

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@contextmanager
def progress(steps: int | None) -> Iterator["Progress"]:
    """A bar with the time left on a terminal; nothing elsewhere. Call it as each step begins.

    Without a number of steps the bar moves when it is told which share of everything is done.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from privrl.core.text import printable_line

    console = Console(stderr=True)
    columns = (
        BarColumn(20),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=steps)
        begun = 0

        def advance(what: str, share: float | None = None) -> None:
            nonlocal begun
            what = printable_line(what)
            if share is not None:
                bar.update(task, total=1.0, completed=share, description=what)
            elif steps is None:
                bar.update(task, total=None, description=what)
            else:
                bar.update(task, completed=begun, description=what)
                begun += 1

        yield advance


def refuse_options(
    words: dict[str, Any], out: Path | None, config: Path | None, others: dict[str, Any]
) -> None:
    """A run that is resumed takes its options from its folder."""
    from privrl.privacy import InputError

    if out is None:
        raise InputError("Say with --out which folder to resume.")
    said = {**words, "config": config, **others}
    # By identity: 0 is something to say, and equals False.
    given = [k for k, v in said.items() if v is not None and v is not False and v != ()]
    flags = [
        "the table" if key == "table" else f"--{key.rstrip('_').replace('_', '-')}"
        for key in given
        if key != "learner"
    ]
    if flags:
        listed = ", ".join(flags)
        raise InputError(f"--resume takes all options from {str(out)!r}: leave out {listed}.")


def exit_stopped(how_far: str, command: str, folder: Path, env: str | None) -> NoReturn:
    """Tell how to go on; an environment whose module is imported has to be said again."""
    again = f" --env {shell_quote(env)}" if env is not None and ":" in env else ""
    say(
        f"Stopped after {how_far}; what was done is kept. To go on:",
        f"  privrl {command} --out {shell_quote(folder)} --resume{again}",
        aside=True,
    )
    raise typer.Exit(130)
