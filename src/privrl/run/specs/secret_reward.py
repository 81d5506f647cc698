"""The options of learners for a secret reward function: `functional-q` and `prospect`."""

from dataclasses import dataclass
from typing import ClassVar

from privrl.run.specs.base import EnvironmentOptions, FeaturesSpec, option


@dataclass(frozen=True)
class SecretRewardSpec(FeaturesSpec, EnvironmentOptions):
    """Options of learners that keep a reward function secret."""

    epsilon: float | None = option("Privacy budget epsilon, for the reward function.")
    public: bool = option("The score of what was learned may be shown.", False)
    release: str | None = option(
        "What is noised: reward-model (default), weights, updates, rewards or evaluations; "
        "none: no noise at all."
    )
    reward_radius: float | None = option("By how much a reward may differ and still be hidden.")
    reward_range: str | None = option("What any reward could be, such as 0,1.")
    reward_features: str | None = option(
        "Of states, for rewards: table, cosine:3, polynomial:2, ..."
    )
    reward_of: str | None = option("What a reward depends on: arrival, or step.")
    steps: int | None = option("Steps of the public rollout, by random actions.")
    design: int | None = option("Rounds that even the rollout's weights out; 0 for none.")
    planner: str | None = option("fitted or network.")
    rounds: int | None = option("Most backups of fitted Q-iteration.")
    ridge: float | None = option("Ridge penalty of the planner's regressions.")
    updates: int | None = option("Gradient steps: planner network, releases weights and updates.")
    step: float | None = option("Learning rate of releases weights and updates.")
    batch: int | None = option("Release updates: samples in one, B.")
    clip: float | None = option("Release updates: clip norm of one.")
    target_every: int | None = option(
        "Releases weights, updates: steps between copies of the target."
    )
    optimiser: str | None = option("Releases weights and updates: sgd or adam.")
    average: float | None = option("Releases weights, updates: last share of steps to average.")
    max_steps: int | None = option("Truncates scored episodes after so many steps.")
    no_preflight: bool = option(
        "Do not try a Gymnasium environment in a second instance before anybody pays.", False
    )

    LISTS: ClassVar[tuple[str, ...]] = ("reward_range",)
    FROM_ZERO: ClassVar[tuple[str, ...]] = ("design",)


@dataclass(frozen=True)
class FunctionalQSpec(SecretRewardSpec):
    """Learn to act for a reward function that stays secret.

    An environment is explored at random, what its rewards were is released once, with noise, and
    everything after that is free. Say what you have, and follow the answers: what is missing is
    asked for. Ctrl-C stops between rounds; --resume goes on, and nothing is paid for twice.

    \b
    privrl train functional-q --env Interval --epsilon 0.9 --delta 1e-4 \\
      --reward-radius 0.01 --reward-range 0,0.5 --out runs/interval
    privrl train functional-q --out runs/interval --resume
    """

    learner: str = "functional-q"
    planner: str | None = option("fitted, actor-critic or network.")
    iterations: int | None = option("Planner actor-critic: how many steps.")
    actor_step: float | None = option("Planner actor-critic: step size of the policy.")
    slope: float | None = option("Release updates: how steep Q may be in one.")
    tau: float | None = option("Release weights: the largest TD error.")
    evaluations: int | None = option("Release evaluations: how many policies are valued.")
    horizon: int | None = option("Release evaluations: how many steps count.")

    RUNNER: ClassVar[str] = "privrl.run.runners.functional_q:FunctionalQRunner"
    EXAMPLE: ClassVar[str] = "Interval"


@dataclass(frozen=True)
class ProspectSpec(SecretRewardSpec):
    """Learn to act as somebody would who minds losses and small probabilities.

    The reward function stays secret: what a rollout was paid is released once, with noise, and then
    planned on for whoever weighs outcomes by cumulative prospect theory (CPT). Say what you have,
    and follow the answers: what is missing is asked for.

    \b
    privrl train prospect --env ObstacleGrid --prospect tversky-kahneman \\
      --epsilon 1 --delta 1e-6 --reward-radius 0.01 --reward-range=-50,0 \\
      --out runs/obstacles
    privrl train prospect --out runs/obstacles --resume
    """

    learner: str = "prospect"
    release: str | None = option(
        "What is noised: reward-model (default) or updates; none: no noise at all."
    )
    reward_range: str | None = option("What any reward could be, such as -50,0.")
    prospect: str | None = option(
        "Prospect: neutral, tversky-kahneman, rajabi2022, or a file .json."
    )
    samples: int | None = option("Successors drawn of each step.")

    RUNNER: ClassVar[str] = "privrl.run.runners.prospect_q:ProspectRunner"
    EXAMPLE: ClassVar[str] = "ObstacleGrid"
