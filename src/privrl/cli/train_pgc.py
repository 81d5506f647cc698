"""`privrl train pgc`."""

from typing import Annotated

import typer

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

Agents = Annotated[int | None, typer.Option(help="How many agents report.")]
Submissions = Annotated[
    int | None, typer.Option(help="How many reports an agent sends, which share its epsilon.")
]
Vary = Annotated[
    str | None,
    typer.Option(help="What differs between agents, such as gravity=9.7,9.8,9.9."),
]
Hidden = Annotated[str | None, typer.Option(help="Sizes of the network's layers, such as 16,16.")]
Activation = Annotated[str | None, typer.Option(help="tanh or relu.")]
Scale = Annotated[
    str | None,
    typer.Option(help="What observations are divided by: a number for each, by commas."),
]
Rate = Annotated[float | None, typer.Option(help="How far an update moves the model.")]
Buffer = Annotated[int | None, typer.Option(help="How many reports make an update.")]
Decay = Annotated[
    float | None, typer.Option(help="The rate falls as this power of the reports left.")
]
Acting = Annotated[
    str | None,
    typer.Option(
        help="How agents choose: sampled, by the policy's probabilities, or greedy, the likeliest "
        "action, with exploration that ends."
    ),
]
Optimiser = Annotated[str | None, typer.Option(help="adam or sgd.")]
Staleness = Annotated[
    str | None, typer.Option(help="Reports about old models: root (count for less), or none.")
]
Timing = Annotated[
    str | None,
    typer.Option(
        help="When agents report: fixed, when all of a round are done, or "
        "open, when they are done themselves, which tells how long they played."
    ),
]
Flight = Annotated[int | None, typer.Option(help="How many agents play at the same time.")]
Target = Annotated[
    float | None,
    typer.Option(help="Agents also answer, privately, whether their score reached this."),
]
ScoreShare = Annotated[
    float | None, typer.Option(help="The part of epsilon that pays for answers, such as 0.3.")
]
Enough = Annotated[
    float | None,
    typer.Option(
        help="The run ends when this share of agents reached the target, as far as answers "
        "tell (default: 0.9)."
    ),
]
Control = Annotated[
    str | None, typer.Option(help="zero: all gradients count as zero, to see what noise does.")
]
PublicScores = Annotated[
    bool,
    typer.Option("--public", help="Scores of agents, and how long they played, may be shown."),
]
Epsilon = Annotated[
    float | None,
    typer.Option(help="Privacy budget epsilon of each agent, in all."),
]


def pgc(
    env: EnvName = None,
    agents: Agents = None,
    epsilon: Epsilon = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="How a gradient is randomised: privunit (default), sign or laplace; none: "
            "no noise at all."
        ),
    ] = None,
    submissions: Submissions = None,
    vary: Vary = None,
    public: PublicScores = False,
    hidden: Hidden = None,
    activation: Activation = None,
    scale: Scale = None,
    gamma: Gamma = None,
    rate: Rate = None,
    buffer: Buffer = None,
    decay: Decay = None,
    acting: Acting = None,
    optimiser: Optimiser = None,
    staleness: Staleness = None,
    timing: Timing = None,
    flight: Flight = None,
    baseline: Annotated[
        float | None,
        typer.Option(
            help="What returns are compared with, a public number; default: 25 for the pole."
        ),
    ] = None,
    target: Target = None,
    score_share: ScoreShare = None,
    enough: Enough = None,
    control: Control = None,
    config: Config = None,
    out: RunFolder = None,
    logs: LogFormats = None,
    seed: Seed = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Learn from agents under local differential privacy (LDP).

    Each agent plays an episode in an environment of its own and sends back a randomised gradient.
    The agents are simulated, many at a time. Say what you have, and follow the answers: what is
    missing is asked for.

    \b
    privrl train pgc --env CartPole --vary gravity=9.7,9.8,9.9 --agents 20000 \\
      --epsilon 1 --out runs/poles
    privrl train pgc --out runs/poles --resume
    """
    # Each agent would pay from a ledger of its own, so there is none here.
    train("pgc", {**locals(), "ledger": None, "name": None})
