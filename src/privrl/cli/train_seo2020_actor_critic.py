"""`privrl train seo2020-actor-critic`."""

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


def seo2020_actor_critic(
    env: EnvName = None,
    variant: Annotated[
        str | None, typer.Option(help="What is noised: both (default), actor, critic or none.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="How many episodes to play.")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The privacy budget that the paper claims for each step.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="The failure probability claimed for each step.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Nobody is there to protect: returns may be shown.")
    ] = False,
    gamma: Gamma = None,
    lambda_: Annotated[
        float | None, typer.Option("--lambda", help="How far eligibility traces reach, 0 to 1.")
    ] = None,
    actor_step: Annotated[float | None, typer.Option(help="Step size of the policy.")] = None,
    critic_step: Annotated[float | None, typer.Option(help="Step size of the values.")] = None,
    correction_step: Annotated[
        float | None, typer.Option(help="Step size of the second weights of GTD.")
    ] = None,
    acting: Annotated[str | None, typer.Option(help="epsilon-greedy (default) or softmax.")] = None,
    exploration: Annotated[
        float | None, typer.Option(help="How often epsilon-greedy takes any action.")
    ] = None,
    clip: Annotated[
        str | None, typer.Option(help="The norm of gradients: median (default), or a number.")
    ] = None,
    correction: Annotated[
        str | None, typer.Option(help="Features of GTD's correction: next (default) or printed.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Cuts episodes off.")] = None,
    config: Config = None,
    out: RunFolder = None,
    logs: LogFormats = None,
    seed: Seed = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Seo and Yang (2020), Algorithms 1 to 4 as printed: a claim, no certificate.

    For tables of states. `privrl train actor-critic` is the learner with a certificate.

    \b
    privrl train seo2020-actor-critic --env Taxi-v4 --episodes 500 --epsilon 10 \\
      --delta 1e-6 --public --seed 0
    """
    train("seo2020-actor-critic", locals())
