"""`privrl train ono2020-pgc`."""

from typing import Annotated

import typer

from privrl.cli import train_pgc as of
from privrl.cli.common import (
    Config,
    EnvName,
    Gamma,
    Json,
    LogFormats,
    Resume,
    RunFolder,
    Seed,
)
from privrl.cli.train import train


def ono2020_pgc(
    env: EnvName = None,
    agents: of.Agents = None,
    epsilon: of.Epsilon = None,
    mechanism: Annotated[
        str | None,
        typer.Option(help="How a gradient is randomised: laplace or sign; none: no noise at all."),
    ] = None,
    submissions: of.Submissions = None,
    vary: of.Vary = None,
    public: of.PublicScores = False,
    hidden: of.Hidden = None,
    activation: of.Activation = None,
    scale: of.Scale = None,
    gamma: Gamma = None,
    rate: of.Rate = None,
    buffer: of.Buffer = None,
    decay: of.Decay = None,
    acting: of.Acting = None,
    optimiser: of.Optimiser = None,
    staleness: of.Staleness = None,
    timing: of.Timing = None,
    flight: of.Flight = None,
    clip: Annotated[float | None, typer.Option(help="C: the bound on a gradient.")] = None,
    value_weight: Annotated[
        float | None, typer.Option(help="lambda: how much the critic's loss counts.")
    ] = None,
    entropy: Annotated[
        float | None, typer.Option(help="beta: how much the policy's entropy counts.")
    ] = None,
    target: of.Target = None,
    score_share: of.ScoreShare = None,
    enough: of.Enough = None,
    control: of.Control = None,
    config: Config = None,
    out: RunFolder = None,
    logs: LogFormats = None,
    seed: Seed = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """PGC-A3C of Ono and Takahashi (2020), as printed: locally private actor-critic.

    The paper's claim comes with it, and beside it the certificate of the same noise.

    \b
    privrl train ono2020-pgc --env CartPole --vary gravity=9.7,9.8,9.9 --mechanism laplace \\
      --epsilon 1 --agents 90000 --out runs/poles
    """
    train("ono2020-pgc", {**locals(), "ledger": None, "name": None})
