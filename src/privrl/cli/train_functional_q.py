"""`privrl train functional-q`."""

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


def functional_q(
    env: EnvName = None,
    release: Annotated[
        str | None,
        typer.Option(
            help="What is noised: reward-model (default), weights, updates, rewards, "
            "evaluations; none: no noise at all."
        ),
    ] = None,
    reward_radius: RewardRadius = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    reward_range: Annotated[
        str | None, typer.Option(help="What any reward could be, such as 0,1.")
    ] = None,
    public: PublicScore = False,
    steps: RolloutSteps = None,
    gamma: Gamma = None,
    planner: Annotated[str | None, typer.Option(help="fitted, actor-critic or network.")] = None,
    features: FeaturesOf = None,
    reward_features: RewardFeatures = None,
    reward_of: RewardOf = None,
    state_range: StateRange = None,
    design: Design = None,
    rounds: Rounds = None,
    ridge: Ridge = None,
    iterations: Annotated[
        int | None, typer.Option(help="Planner actor-critic: how many steps.")
    ] = None,
    actor_step: Annotated[float | None, typer.Option(help="The same: how large they are.")] = None,
    updates: Annotated[
        int | None,
        typer.Option(help="Planner network, releases weights and updates: how many steps."),
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(help="Releases weights and updates: the learning rate."),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Release updates: how many samples, B.")] = None,
    clip: Clip = None,
    slope: Annotated[
        float | None, typer.Option(help="Release updates: how steep Q may be in one.")
    ] = None,
    tau: Annotated[
        float | None, typer.Option(help="Release weights: the largest TD error.")
    ] = None,
    target_every: Annotated[
        int | None, typer.Option(help="Releases weights and updates: how often targets follow.")
    ] = None,
    optimiser: OptimiserName = None,
    average: Average = None,
    evaluations: Annotated[
        int | None, typer.Option(help="Release evaluations: how many policies are valued.")
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(help="Release evaluations: how many steps count.")
    ] = None,
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
    """Learn to act for a reward function that stays secret.

    An environment is explored at random, what its rewards were is released once, with noise,
    and everything after that is free. Say what you have, and follow the answers: what is missing is
    asked for. Ctrl-C stops between rounds; --resume goes on, and nothing is paid for twice.

    \b
    privrl train functional-q --env Interval --epsilon 0.9 --delta 1e-4 \\
      --reward-radius 0.01 --reward-range 0,0.5 --out runs/interval
    privrl train functional-q --out runs/interval --resume
    """
    train("functional-q", locals())
