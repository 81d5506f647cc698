"""Options of commands for a secret reward function."""

from pathlib import Path
from typing import Annotated

import typer

RewardRadius = Annotated[
    float | None, typer.Option(help="By how much a reward may differ and still be hidden.")
]
Epsilon = Annotated[
    float | None, typer.Option(help="Privacy budget epsilon, for the reward function.")
]
PublicScore = Annotated[
    bool, typer.Option("--public", help="The score of what was learned may be shown.")
]
RolloutSteps = Annotated[
    int | None, typer.Option(help="How many the public rollout takes, of random actions.")
]
RewardFeatures = Annotated[
    str | None, typer.Option(help="Of states, for rewards: table, cosine:3, polynomial:2, ...")
]
RewardOf = Annotated[str | None, typer.Option(help="What a reward depends on: arrival, or step.")]
Design = Annotated[
    int | None, typer.Option(help="Rounds that even the rollout's weights out; 0 for none.")
]
Rounds = Annotated[int | None, typer.Option(help="How often the planner backs values up at most.")]
Ridge = Annotated[float | None, typer.Option(help="Of the planner's regressions.")]
Clip = Annotated[float | None, typer.Option(help="Release updates: the largest norm of one.")]
OptimiserName = Annotated[str | None, typer.Option(help="The same: sgd or adam.")]
Average = Annotated[
    float | None, typer.Option(help="The same: the last share that is averaged over.")
]
ScoredSteps = Annotated[int | None, typer.Option(help="Cuts scored episodes off.")]
RewardLedger = Annotated[
    Path | None, typer.Option(help="The ledger of this reward function, which pays.")
]
