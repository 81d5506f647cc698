"""`privrl train actor-critic`."""

from pathlib import Path
from typing import Annotated

import typer

from privrl.cli.common import (
    Config,
    Delta,
    EnvName,
    Episodes,
    FeaturesOf,
    Gamma,
    Json,
    LogFormats,
    NoPreflight,
    People,
    ProspectName,
    Resume,
    RunFolder,
    RunName,
    Seed,
    StateRange,
    Variant,
)
from privrl.cli.train import train


def actor_critic(
    env: EnvName = None,
    variant: Variant = None,
    people: People = None,
    episodes: Episodes = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget epsilon, for each person.")
    ] = None,
    delta: Delta = None,
    public: Annotated[
        bool, typer.Option("--public", help="Nobody is there to protect: returns may be shown.")
    ] = False,
    features: FeaturesOf = None,
    critic_features: Annotated[
        str | None, typer.Option(help="The same for the critic, if others.")
    ] = None,
    state_range: StateRange = None,
    batch: Annotated[
        int | None, typer.Option(help="How many people act by the same policy.")
    ] = None,
    gamma: Gamma = None,
    lambda_: Annotated[
        float | None, typer.Option("--lambda", help="How far eligibility traces reach, 0 to 1.")
    ] = None,
    actor_step: Annotated[float | None, typer.Option(help="Step size of the policy.")] = None,
    critic_step: Annotated[float | None, typer.Option(help="Step size of the values.")] = None,
    clip: Annotated[
        float | None, typer.Option(help="The most a person's increment counts.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Cuts episodes off.")] = None,
    noise: Annotated[str | None, typer.Option(help="auto, independent or correlated.")] = None,
    optimiser: Annotated[str | None, typer.Option(help="sgd or adam.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Step sizes: constant or linear.")] = None,
    average: Annotated[
        float | None, typer.Option(help="The last share of the batches to average over.")
    ] = None,
    critic_weight: Annotated[
        float | None, typer.Option(help="How much of the clip is for the critic.")
    ] = None,
    entropy: Annotated[float | None, typer.Option(help="How much entropy counts.")] = None,
    return_range: Annotated[
        str | None, typer.Option(help="What a return could be, such as -200,20.")
    ] = None,
    curve: Annotated[
        str | None, typer.Option(help="hidden, or paid: returns of batches, with noise.")
    ] = None,
    curve_weight: Annotated[
        float | None, typer.Option(help="Which part of the clip a paid curve or a prospect has.")
    ] = None,
    prospect: ProspectName = None,
    bins: Annotated[
        int | None, typer.Option(help="In how many parts of its range a prospect counts returns.")
    ] = None,
    even_share: Annotated[
        float | None, typer.Option(help="How even a prospect takes probabilities to be at least.")
    ] = None,
    forgetting: Annotated[
        float | None, typer.Option(help="How much of what a prospect knows a batch replaces.")
    ] = None,
    no_preflight: NoPreflight = False,
    config: Config = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger of these people, which pays.")
    ] = None,
    name: RunName = None,
    out: RunFolder = None,
    logs: LogFormats = None,
    seed: Seed = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Learn a policy from people's episodes, privately.

    Say what you have, and follow the answers: what is missing is asked for. Ctrl-C stops after the
    current segment; --resume goes on, in a simulator of ours to the very result it would have had.

    \b
    privrl train actor-critic --env Taxi-v4 --people 20000 --epsilon 10 --delta 1e-6 \\
      --out runs/taxi
    privrl train actor-critic --out runs/taxi --resume
    privrl train actor-critic --env Taxi-v4 --people 20000 --epsilon 10 --delta 1e-6 \\
      --prospect tversky-kahneman --return-range -200,20
    """
    train("actor-critic", locals())
