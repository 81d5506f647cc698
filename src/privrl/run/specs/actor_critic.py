"""The options of `privrl train actor-critic`."""

from dataclasses import dataclass
from typing import ClassVar

from privrl.run.specs.base import EnvironmentOptions, FeaturesSpec, option


@dataclass(frozen=True)
class ActorCriticSpec(FeaturesSpec, EnvironmentOptions):
    """Learn a policy from people's episodes, with differential privacy.

    Say what you have, and follow the answers: what is missing is asked for. Ctrl-C stops after the
    current segment; --resume goes on, in a simulator of ours to the very result it would have had.

    \b
    privrl train actor-critic --env Taxi-v4 --people 20000 --epsilon 10 \\
      --delta 1e-6 --out runs/taxi
    privrl train actor-critic --out runs/taxi --resume
    privrl train actor-critic --env Taxi-v4 --people 20000 --epsilon 10 \\
      --delta 1e-6 --prospect tversky-kahneman --return-range -200,20
    """

    learner: str = "actor-critic"
    epsilon: float | None = option("Privacy budget epsilon, for each person.")
    variant: str | None = option("both, actor or critic: what is released; none: no noise at all.")
    people: int | None = option("How many people play an episode each.")
    episodes: int | None = option("How many episodes, in simulators where nobody plays.")
    critic_features: str | None = option("Features of the critic, if not those of the actor.")
    batch: int | None = option("How many people act by the same policy.")
    lambda_: float | None = option("Decay of eligibility traces, lambda, 0 to 1.")
    actor_step: float | None = option("Step size of the policy.")
    critic_step: float | None = option("Step size of the values.")
    clip: float | None = option("Clip norm of a person's increment.")
    max_steps: int | None = option("Truncates episodes after so many steps.")
    noise: str | None = option("auto, independent, correlated or optimal.")
    optimiser: str | None = option("sgd or adam.")
    schedule: str | None = option("Of step sizes: constant or linear.")
    average: float | None = option("The last share of the batches to average over.")
    critic_weight: float | None = option("Share of the clip norm that is for the critic.")
    entropy: float | None = option("Weight of the entropy bonus.")
    return_range: str | None = option("What a return could be, such as -200,20.")
    curve: str | None = option("hidden, or paid: returns of batches, with noise.")
    curve_weight: float | None = option("Share of the clip norm for a paid curve or a prospect.")
    prospect: str | None = option(
        "Prospect: neutral, tversky-kahneman, rajabi2022, or a file .json."
    )
    bins: int | None = option("Bins in which a prospect counts returns.")
    even_share: float | None = option("How even a prospect takes probabilities to be at least.")
    forgetting: float | None = option("How much of what a prospect knows a batch replaces.")
    no_preflight: bool = option(
        "Do not try a Gymnasium environment in a second instance before anybody pays.", False
    )

    RUNNER: ClassVar[str] = "privrl.run.runners.actor_critic:ActorCriticRunner"
    LISTS: ClassVar[tuple[str, ...]] = ("return_range",)
