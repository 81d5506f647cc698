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
EnvName = Annotated[
    str | None, typer.Option(help="Where to learn: Taxi-v4, MDP100, an id of Gymnasium's, ...")
]
Variant = Annotated[
    str | None, typer.Option(help="both, actor or critic: what is given; none: no noise at all.")
]
People = Annotated[int | None, typer.Option(help="How many people play an episode each.")]
Episodes = Annotated[int | None, typer.Option(help="The same, where nobody plays.")]
Delta = Annotated[float | None, typer.Option(help="Failure probability delta.")]
FeaturesOf = Annotated[
    str | None, typer.Option(help="Of states: table, polynomial:2, fourier:3 or network:16.")
]
StateRange = Annotated[str | None, typer.Option(help="What states could be, such as -2:2,0:10.")]
Gamma = Annotated[float | None, typer.Option(help="The discount factor.")]
ProspectName = Annotated[
    str | None,
    typer.Option(help="Who weighs: neutral, tversky-kahneman, rajabi2022, or a file .json."),
]
Config = Annotated[Path | None, typer.Option(help="A TOML or JSON file with these options.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with what is in --out; it knows its options.")
]
RunName = Annotated[str | None, typer.Option(help="The run's name in the ledger.")]
RunFolder = Annotated[
    Path | None, typer.Option(help="The run's folder; by default runs/<date and time>.")
]
LogFormats = Annotated[
    str | None, typer.Option(help="csv, jsonl, tensorboard: where returns may be shown.")
]
Seed = Annotated[int | None, typer.Option(help="Reproducible: for experiments, protects nobody.")]

# Tables of logged decisions.
Table = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TABLE]...",
        help="Parquet or CSV files, a pattern, or a folder: a row for each step.",
        show_default=False,
    ),
]
TrajectoryColumn = Annotated[
    str | None, typer.Option(help="Column: which trajectory a step is of.")
]
UserColumn = Annotated[str | None, typer.Option(help="Column: whose trajectory it is.")]
TimeColumn = Annotated[str | None, typer.Option(help="Column: the order of steps.")]
StateColumns = Annotated[str | None, typer.Option(help="Columns, by commas: the situation.")]
ActionColumn = Annotated[str | None, typer.Option(help="Column: the decision taken.")]
RewardColumn = Annotated[str | None, typer.Option(help="Column: the reward that followed.")]
Terminated = Annotated[str | None, typer.Option(help="Column, true or false: did it really end?")]
Truncated = Annotated[str | None, typer.Option(help="Column, true or false: was it cut off?")]
NextState = Annotated[str | None, typer.Option(help="Columns: the situation after the step.")]
StateWords = Annotated[str | None, typer.Option(help="What states can be, by commas.")]
ActionWords = Annotated[
    str | None, typer.Option(help="What actions can be, in the policy's order.")
]
NumStates = Annotated[int | None, typer.Option(help="How many states there can be.")]
NumActions = Annotated[int | None, typer.Option(help="How many actions there can be.")]
RewardRange = Annotated[str | None, typer.Option(help="What any reward could be, such as 0,1.")]
Nulls = Annotated[
    str | None,
    typer.Option(
        help="refuse (default), carry (states), or by column: state=carry,reward=0,p=refuse."
    ),
]
Invalid = Annotated[
    str | None, typer.Option(help="Values that are not valid: refuse (default), or neutral.")
]
Population = Annotated[
    int | None,
    typer.Option(help="How many people there are (trajectories, without --user): with neutral."),
]
NoPreflight = Annotated[
    bool,
    typer.Option(
        "--no-preflight",
        help="Do not try an environment of Gymnasium's in a second instance before anybody pays.",
    ),
]
BehaviorProb = Annotated[str | None, typer.Option(help="Column: how likely the decision was.")]
TargetProb = Annotated[
    str | None, typer.Option(help="Column, instead of --policy: its probabilities.")
]
Stream = Annotated[
    bool,
    typer.Option("--stream", help="Read in parts, if larger than memory; gtd makes one pass."),
]
Sort = Annotated[bool, typer.Option("--sort", help="Sort the rows first.")]


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
    for key, value in said.items():
        # By identity: 0 is something to say, and equals False.
        if key != "learner" and value is not None and value is not False and value != ():
            option = "the table" if key == "table" else f"--{key.rstrip('_').replace('_', '-')}"
            raise InputError(f"--resume takes all options from {str(out)!r}: leave out {option}.")


def exit_stopped(how_far: str, command: str, folder: Path, env: str | None) -> NoReturn:
    """Tell how to go on; an environment whose module is imported has to be said again."""
    again = f" --env {shell_quote(env)}" if env is not None and ":" in env else ""
    say(
        f"Stopped after {how_far}; what was done is kept. To go on:",
        f"  privrl {command} --out {shell_quote(folder)} --resume{again}",
        aside=True,
    )
    raise typer.Exit(130)
