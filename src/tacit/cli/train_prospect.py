"""`tacit train prospect`."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.common import (
    Config,
    Delta,
    EnvName,
    FeaturesOf,
    Gamma,
    Json,
    LogFormats,
    Mode,
    ProspectName,
    Resume,
    RunFolder,
    RunName,
    Seed,
    StateRange,
)
from tacit.cli.train import train


def prospect(
    env: EnvName = None,
    prospect: ProspectName = None,
    mode: Mode = None,
    release: Annotated[
        str | None,
        typer.Option(
            help="What is noised: reward-model (as if not said) or updates; none: no noise at all."
        ),
    ] = None,
    reward_radius: Annotated[
        float | None, typer.Option(help="By how much a reward may differ and still be hidden.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="How much may be given away about the reward function.")
    ] = None,
    delta: Delta = None,
    reward_range: Annotated[
        str | None, typer.Option(help="What any reward could be, such as -50,0.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="The score of what was learned may be shown.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(help="How many the public walk takes, of random actions.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="How many successors are drawn of each step.")
    ] = None,
    gamma: Gamma = None,
    planner: Annotated[str | None, typer.Option(help="fitted or network.")] = None,
    features: FeaturesOf = None,
    reward_features: Annotated[
        str | None, typer.Option(help="Of states, for rewards: table, cosine:3, polynomial:2, ...")
    ] = None,
    reward_of: Annotated[
        str | None, typer.Option(help="What a reward depends on: arrival, or step.")
    ] = None,
    state_range: StateRange = None,
    design: Annotated[
        int | None, typer.Option(help="Rounds that even the walk's weights out; 0 for none.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="How often the planner backs values up at most.")
    ] = None,
    ridge: Annotated[float | None, typer.Option(help="Of the planner's regressions.")] = None,
    updates: Annotated[
        int | None, typer.Option(help="Planner network, release updates: how many steps.")
    ] = None,
    step: Annotated[
        float | None, typer.Option(help="Release updates, paper mode: the learning rate.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Release updates, paper mode: how many steps, B.")
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="Release updates: the largest norm of one.")
    ] = None,
    target_every: Annotated[
        int | None, typer.Option(help="Release updates: how often targets follow.")
    ] = None,
    optimiser: Annotated[str | None, typer.Option(help="The same: sgd or adam.")] = None,
    average: Annotated[
        float | None, typer.Option(help="The same: the last share that is averaged over.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Cuts scored episodes off.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="Paper mode: printed, or public-code (the authors').")
    ] = None,
    acting: Annotated[str | None, typer.Option(help="Paper mode: greedy, or proportional.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Paper mode: how many.")] = None,
    noise: Annotated[
        str | None, typer.Option(help="Paper mode: what it is made of, features or cells.")
    ] = None,
    resets: Annotated[
        str | None, typer.Option(help="Paper mode: a path for each run, or iteration.")
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Paper mode: the noise, instead of --epsilon.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Paper mode: how fast it forgets, beta.")
    ] = None,
    config: Config = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger of this reward function, which pays.")
    ] = None,
    name: RunName = None,
    out: RunFolder = None,
    logs: LogFormats = None,
    seed: Seed = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Learn to act as somebody would who minds losses and small chances.

    The reward function stays secret: what a walk was paid is released once, with noise, and then
    planned on for whoever weighs outcomes by prospect theory. Say what you have, and follow the
    answers: what is missing is asked for.

    \b
    tacit train prospect --env ObstacleGrid --prospect tversky-kahneman \\
      --epsilon 1 --delta 1e-6 --reward-radius 0.01 --reward-range=-50,0 \\
      --out runs/obstacles
    tacit train prospect --out runs/obstacles --resume
    """
    train("prospect", locals())
