"""`privrl train rajabi2022-prospect`."""

from typing import Annotated

import typer

from privrl.cli.common import (
    Config,
    EnvName,
    Gamma,
    Json,
    LogFormats,
    ProspectName,
    Resume,
    RunFolder,
    Seed,
)
from privrl.cli.functional_noise import (
    ClaimedDelta,
    ClaimedEpsilon,
    LearningRate,
    Preset,
    PublicReturns,
    Rate,
    Sigma,
)
from privrl.cli.train import train


def rajabi2022_prospect(
    env: EnvName = None,
    prospect: ProspectName = None,
    preset: Preset = None,
    epsilon: ClaimedEpsilon = None,
    delta: ClaimedDelta = None,
    public: PublicReturns = False,
    iterations: Annotated[int | None, typer.Option(help="How many iterations, T_max.")] = None,
    batch: Annotated[int | None, typer.Option(help="How many steps each has, B.")] = None,
    samples: Annotated[
        int | None, typer.Option(help="How many successors are drawn of each step, N_max.")
    ] = None,
    acting: Annotated[str | None, typer.Option(help="greedy, or proportional.")] = None,
    step: LearningRate = None,
    gamma: Gamma = None,
    noise: Annotated[
        str | None, typer.Option(help="What the noise is made of: features or cells.")
    ] = None,
    resets: Annotated[
        str | None, typer.Option(help="How long a path of noise lasts: run or iteration.")
    ] = None,
    sigma: Sigma = None,
    rate: Rate = None,
    config: Config = None,
    out: RunFolder = None,
    logs: LogFormats = None,
    seed: Seed = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """PP-CPT-RL, Algorithms 1 to 3 of Rajabi et al. (2022).

    It yields the paper's claim, which is no certificate: `privrl train prospect` certifies.

    \b
    privrl train rajabi2022-prospect --env ObstacleSquare --epsilon 0.9 \\
      --out runs/printed
    privrl train rajabi2022-prospect --out runs/printed --resume
    """
    train("rajabi2022-prospect", locals())
