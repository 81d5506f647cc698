"""`privrl train wang2019-functional-q`."""

from typing import Annotated

import typer

from privrl.cli.common import Config, EnvName, Gamma, Json, LogFormats, Resume, RunFolder, Seed
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


def wang2019_functional_q(
    env: EnvName = None,
    preset: Preset = None,
    epsilon: ClaimedEpsilon = None,
    delta: ClaimedDelta = None,
    public: PublicReturns = False,
    samples: Annotated[int | None, typer.Option(help="How many samples, T.")] = None,
    resets: Annotated[int | None, typer.Option(help="How many paths of noise, J.")] = None,
    batch: Annotated[int | None, typer.Option(help="How many samples an update has, B.")] = None,
    step: LearningRate = None,
    gamma: Gamma = None,
    sigma: Sigma = None,
    rate: Rate = None,
    edge: Annotated[
        str | None, typer.Option(help="The path's right edge: correct, or public-code (wrong).")
    ] = None,
    config: Config = None,
    out: RunFolder = None,
    logs: LogFormats = None,
    seed: Seed = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Q-learning with functional noise, Algorithm 1 of Wang and Hegde (2019).

    It yields the paper's claim, which is no certificate: `privrl train functional-q` certifies.

    \b
    privrl train wang2019-functional-q --env Interval --epsilon 0.9 --delta 1e-4 \\
      --out runs/printed
    privrl train wang2019-functional-q --out runs/printed --resume
    """
    train("wang2019-functional-q", locals())
