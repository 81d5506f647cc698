"""What commands have in common: options, the bar of those that take long, how they stop."""

from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from privrl.cli.printing import say, shell_quote
from privrl.core.progress import progress_bar

progress = progress_bar

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


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
