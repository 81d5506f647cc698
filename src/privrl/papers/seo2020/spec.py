"""The options of `privrl train seo2020-actor-critic`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from privrl.run.specs.base import EnvironmentOptions, Spec, option


@dataclass(frozen=True)
class ActorCriticSpec(Spec, EnvironmentOptions):
    """Seo and Yang (2020), Algorithms 1 to 4 as printed: a claim, no certificate.

    For tables of states. `privrl train actor-critic` is the learner with a certificate.

    \b
    privrl train seo2020-actor-critic --env Taxi-v4 --episodes 500 --epsilon 10 \\
      --delta 1e-6 --public --seed 0
    """

    learner: str = "seo2020-actor-critic"
    epsilon: float | None = option("The privacy budget that the paper claims for each step.")
    delta: float | None = option("The failure probability that is claimed for each step.")
    variant: str | None = option("What is noised: both (default), actor, critic or none.")
    episodes: int | None = option("How many episodes to play.")
    lambda_: float | None = option("Decay of eligibility traces, lambda, 0 to 1.")
    actor_step: float | None = option("Step size of the policy.")
    critic_step: float | None = option("Step size of the values.")
    correction_step: float | None = option("Step size of the second weights of GTD.")
    acting: str | None = option("epsilon-greedy (default) or softmax.")
    exploration: float | None = option("Probability of a random action, with epsilon-greedy.")
    clip: str | None = option("The norm of gradients: median (default), or a number.")
    correction: str | None = option("Features of GTD's correction: next (default) or printed.")
    max_steps: int | None = option("Truncates episodes after so many steps.")

    RUNNER: ClassVar[str] = "privrl.papers.seo2020.runner:ActorCriticRunner"
    RUN: ClassVar[tuple[str, ...]] = ("logs",)
    NUMBERS: ClassVar[tuple[str, ...]] = ("clip",)
    INSTEAD: ClassVar[Mapping[str, str]] = {"people": "episodes"}
