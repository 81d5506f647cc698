"""`privrl train prospect`."""

from typing import Annotated

import typer

from privrl.cli.common import (
    Config,
    Delta,
    EnvName,
    FeaturesOf,
    Gamma,
    Json,
    LogFormats,
    NoPreflight,
    ProspectName,
    Resume,
    RunFolder,
    RunName,
    Seed,
    StateRange,
)
from privrl.cli.secret_reward import (
    Average,
    Clip,
    Design,
    Epsilon,
    OptimiserName,
    PublicScore,
    RewardFeatures,
    RewardLedger,
    RewardOf,
    RewardRadius,
    Ridge,
    RolloutSteps,
    Rounds,
    ScoredSteps,
)
from privrl.cli.train import train


def prospect(
    env: EnvName = None,
    prospect: ProspectName = None,
    release: Annotated[
        str | None,
        typer.Option(
            help="What is noised: reward-model (default) or updates; none: no noise at all."
        ),
    ] = None,
    reward_radius: RewardRadius = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    reward_range: Annotated[
        str | None, typer.Option(help="What any reward could be, such as -50,0.")
    ] = None,
    public: PublicScore = False,
    steps: RolloutSteps = None,
    samples: Annotated[
        int | None, typer.Option(help="How many successors are drawn of each step.")
    ] = None,
    gamma: Gamma = None,
    planner: Annotated[str | None, typer.Option(help="fitted or network.")] = None,
    features: FeaturesOf = None,
    reward_features: RewardFeatures = None,
    reward_of: RewardOf = None,
    state_range: StateRange = None,
    design: Design = None,
    rounds: Rounds = None,
    ridge: Ridge = None,
    updates: Annotated[
        int | None, typer.Option(help="Planner network, release updates: how many steps.")
    ] = None,
    step: Annotated[float | None, typer.Option(help="Release updates: the learning rate.")] = None,
    batch: Annotated[int | None, typer.Option(help="Release updates: how many steps, B.")] = None,
    clip: Clip = None,
    target_every: Annotated[
        int | None, typer.Option(help="Release updates: how often targets follow.")
    ] = None,
    optimiser: OptimiserName = None,
    average: Average = None,
    max_steps: ScoredSteps = None,
    no_preflight: NoPreflight = False,
    config: Config = None,
    ledger: RewardLedger = None,
    name: RunName = None,
    out: RunFolder = None,
    logs: LogFormats = None,
    seed: Seed = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Learn to act as somebody would who minds losses and small probabilities.

    The reward function stays secret: what a rollout was paid is released once, with noise, and then
    planned on for whoever weighs outcomes by prospect theory. Say what you have, and follow the
    answers: what is missing is asked for.

    \b
    privrl train prospect --env ObstacleGrid --prospect tversky-kahneman \\
      --epsilon 1 --delta 1e-6 --reward-radius 0.01 --reward-range=-50,0 \\
      --out runs/obstacles
    privrl train prospect --out runs/obstacles --resume
    """
    train("prospect", locals())
