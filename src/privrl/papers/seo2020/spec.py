"""The options of the paper's actor-critic, each declared once, and its task on the command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from privrl.core.errors import InputError
from privrl.core.spec import Spec, option
from privrl.run.specs.environments import EnvironmentTask

Variant = Literal["none", "actor", "critic", "both"]
Acting = Literal["epsilon-greedy", "softmax"]


@dataclass(frozen=True)
class ActorCriticSpec(Spec):
    """Settings of Algorithms 1 to 4; those in `SWEEPABLE` may be arrays, an entry per replica."""

    variant: Variant = option(
        "What is noised: none (Algorithm 1), actor (2), critic (3) or both (4).", "both"
    )
    epsilon: float = option(
        "The privacy budget that the paper claims for each step.", 10.0, above=0
    )
    delta: float = option(
        "The failure probability that the paper claims for each step.", 1e-6, above=0, below=1
    )
    gamma: float = option("Discount factor.", 0.99, low=0, high=1)
    lambda_: float = option(
        "Decay of eligibility traces, lambda.", 0.8, low=0, high=1, sweepable=True
    )
    actor_step: float = option("Step size of the policy, alpha_u.", 0.5, low=0, sweepable=True)
    critic_step: float = option("Step size of the values, alpha_v.", 0.01, low=0, sweepable=True)
    correction_step: float = option(
        "Step size of the second weights of GTD, alpha_w.", 0.5, low=0, sweepable=True
    )
    acting: Acting = option("How actions are drawn while learning.", "epsilon-greedy")
    exploration: float = option(
        "Probability of a random action, with epsilon-greedy.", 0.1, low=0, high=1, sweepable=True
    )
    clip: Literal["median"] | float = option(
        "Norm C of gradients: median (of the non-zero entries), or a public number.",
        "median",
        above=0,
    )
    correction: Literal["next", "printed"] = option(
        "Features of GTD's correction: of the next state, or of this one as printed.", "next"
    )
    max_steps: int | None = option("Truncates episodes after so many steps.")
    dense: bool = option(
        "Whether to draw all noise in each step: slow, and equal in law.", False, python=True
    )
    sigma: float | None = option(
        "The noise multiplier; None for the paper's, sqrt(2 log(1.25 / delta)) / epsilon.",
        low=0,
        sweepable=True,
        python=True,
    )

    SWEEPABLE: ClassVar[tuple[str, ...]] = (
        *("actor_step", "critic_step", "correction_step", "lambda_", "sigma", "exploration"),
    )

    def __post_init__(self) -> None:
        if isinstance(self.delta, int | float) and self.delta == 0.0:
            raise InputError(
                "must be above 0: the formula for sigma has none without it.", field="delta"
            )
        self.check_fields()


@dataclass(frozen=True)
class ActorCriticTask(EnvironmentTask):
    """Seo and Yang (2020), Algorithms 1 to 4 as printed: a claim, no certificate.

    For tables of states. `privrl train actor-critic` is the learner with a certificate.

    \b
    privrl train seo2020-actor-critic --env Taxi-v4 --episodes 500 --epsilon 10 \\
      --delta 1e-6 --public --seed 0
    """

    episodes: int | None = option("How many episodes to play.")

    learner: ClassVar[str] = "seo2020-actor-critic"
    SPEC: ClassVar[type[Spec]] = ActorCriticSpec
    RUNNER: ClassVar[str] = "privrl.papers.seo2020.runner:ActorCriticRunner"
    RUN: ClassVar[tuple[str, ...]] = ("logs",)
    INSTEAD: ClassVar[Mapping[str, str]] = {"people": "episodes"}
