"""`tacit train functional-q`."""

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
    Resume,
    RunFolder,
    RunName,
    Seed,
    StateRange,
)
from tacit.cli.train import train


def functional_q(
    env: EnvName = None,
    mode: Mode = None,
    release: Annotated[
        str | None,
        typer.Option(
            help="What is noised: reward-model (as if not said), weights, updates, rewards, "
            "evaluations; none: no noise at all."
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
        str | None, typer.Option(help="What any reward could be, such as 0,1.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="The score of what was learned may be shown.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(help="How many the public walk takes, of random actions.")
    ] = None,
    gamma: Gamma = None,
    planner: Annotated[str | None, typer.Option(help="fitted, actor-critic or network.")] = None,
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
        typer.Option(help="Releases weights and updates, paper mode: the learning rate."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Release updates, paper mode: how many samples, B.")
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="Release updates: the largest norm of one.")
    ] = None,
    slope: Annotated[
        float | None, typer.Option(help="Release updates: how steep Q may be in one.")
    ] = None,
    tau: Annotated[
        float | None, typer.Option(help="Release weights: the largest TD error.")
    ] = None,
    target_every: Annotated[
        int | None, typer.Option(help="Releases weights and updates: how often targets follow.")
    ] = None,
    optimiser: Annotated[str | None, typer.Option(help="The same: sgd or adam.")] = None,
    average: Annotated[
        float | None, typer.Option(help="The same: the last share that is averaged over.")
    ] = None,
    evaluations: Annotated[
        int | None, typer.Option(help="Release evaluations: how many policies are valued.")
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(help="Release evaluations: how many steps count.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Cuts scored episodes off.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="Paper mode: printed, or public-code (the authors').")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Paper mode: how many, T.")] = None,
    resets: Annotated[int | None, typer.Option(help="Paper mode: how many paths, J.")] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Paper mode: the noise, instead of --epsilon.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Paper mode: how fast its path forgets, beta.")
    ] = None,
    edge: Annotated[
        str | None, typer.Option(help="Paper mode: correct, or public-code (wrong).")
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
    """Learn to act for a reward function that stays secret.

    An environment is walked through at random, what its rewards were is released once, with noise,
    and everything after that is free. Say what you have, and follow the answers: what is missing is
    asked for. Ctrl-C stops between rounds; --resume goes on, and nothing is paid for twice.

    \b
    tacit train functional-q --env Interval --epsilon 0.9 --delta 1e-4 \\
      --reward-radius 0.01 --reward-range 0,0.5 --out runs/interval
    tacit train functional-q --out runs/interval --resume
    """
    train("functional-q", locals())
