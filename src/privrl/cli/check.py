"""`privrl check`: whether a table can be read as it is said to be."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privrl.cli.common import (
    ActionColumn,
    ActionWords,
    BehaviorProb,
    Json,
    NextState,
    Nulls,
    NumActions,
    NumStates,
    RewardColumn,
    Sort,
    StateColumns,
    StateWords,
    Stream,
    Table,
    TargetProb,
    Terminated,
    TimeColumn,
    TrajectoryColumn,
    Truncated,
    UserColumn,
    progress,
)
from privrl.cli.printing import say, say_json

if TYPE_CHECKING:
    pass


def check(
    table: Table = None,
    trajectory: TrajectoryColumn = None,
    user: UserColumn = None,
    time: TimeColumn = None,
    state: StateColumns = None,
    action: ActionColumn = None,
    reward: RewardColumn = None,
    behavior_prob: BehaviorProb = None,
    target_prob: TargetProb = None,
    terminated: Terminated = None,
    truncated: Truncated = None,
    next_state: NextState = None,
    states: StateWords = None,
    actions: ActionWords = None,
    num_states: NumStates = None,
    num_actions: NumActions = None,
    state_range: Annotated[
        str | None, typer.Option(help="What states could be, such as 30:200,40:140.")
    ] = None,
    nulls: Nulls = None,
    sort: Sort = False,
    stream: Stream = False,
    config: Annotated[
        Path | None, typer.Option(help="A TOML or JSON file with these options.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Validate a table as evaluate and train logged-q do, for its curator alone.

    What is printed, and the exit code, are about private data: nobody else may see them.
    """
    from privrl.run.request import Request

    words = {k: v for k, v in locals().items() if k not in ("config", "as_json", "Request")}
    words["table"] = tuple(table or ())
    with progress(None) as advance:
        advance("loading")
        found = Request.of(words, config).check()
    if as_json:
        say_json({"valid": True, "private": True, **found.counts})
        return
    say(*found.words.split("\n"))
    say("The table is valid. This is about private data: keep it to yourself.")
