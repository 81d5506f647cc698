"""`privrl train logged-q`."""

from pathlib import Path
from typing import Annotated

import typer

from privrl.cli.common import (
    ActionColumn,
    ActionWords,
    Config,
    Delta,
    FeaturesOf,
    Gamma,
    Invalid,
    Json,
    NextState,
    Nulls,
    NumActions,
    NumStates,
    Population,
    Resume,
    RewardColumn,
    RewardRange,
    RunFolder,
    RunName,
    Seed,
    Sort,
    StateColumns,
    StateRange,
    StateWords,
    Table,
    Terminated,
    TimeColumn,
    TrajectoryColumn,
    Truncated,
    UserColumn,
)
from privrl.cli.train import train


def logged_q(
    table: Table = None,
    trajectory: TrajectoryColumn = None,
    user: UserColumn = None,
    time: TimeColumn = None,
    state: StateColumns = None,
    action: ActionColumn = None,
    reward: RewardColumn = None,
    terminated: Terminated = None,
    truncated: Truncated = None,
    next_state: NextState = None,
    states: StateWords = None,
    actions: ActionWords = None,
    num_states: NumStates = None,
    num_actions: NumActions = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget epsilon, for each person.")
    ] = None,
    delta: Delta = None,
    public: Annotated[
        bool, typer.Option("--public", help="The data is public: no noise is added.")
    ] = False,
    reward_range: RewardRange = None,
    features: FeaturesOf = None,
    state_range: StateRange = None,
    gamma: Gamma = None,
    updates: Annotated[
        int | None, typer.Option(help="How many steps; more need more noise in each.")
    ] = None,
    step: Annotated[float | None, typer.Option(help="How large they are.")] = None,
    clip: Annotated[
        float | None,
        typer.Option(help="The most a person counts in a step, in units of the largest reward."),
    ] = None,
    target_every: Annotated[
        int | None, typer.Option(help="After how many steps the target is renewed.")
    ] = None,
    optimiser: Annotated[str | None, typer.Option(help="sgd or adam.")] = None,
    average: Annotated[
        float | None, typer.Option(help="The last share of the steps to average over.")
    ] = None,
    nulls: Nulls = None,
    invalid: Invalid = None,
    people: Population = None,
    sort: Sort = False,
    config: Config = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger of these people, which pays.")
    ] = None,
    name: RunName = None,
    out: RunFolder = None,
    seed: Seed = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Learn a policy from a table of people's trajectories, privately.

    Say what you have, and follow the answers: what is missing is asked for. Judge the policy by
    privrl evaluate on other people before it is used.

    \b
    privrl train logged-q stays.parquet --trajectory stay_id --user patient --time t \\
      --state hr,map --state-range 30:200,40:140 --features fourier:2 \\
      --action dose --num-actions 3 --reward r --reward-range 0,1 \\
      --epsilon 1 --delta 1e-6 --out runs/dose
    """
    options = locals() | {"table": tuple(table) if table else None, "logs": None}
    train("logged-q", options)
