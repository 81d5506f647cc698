"""The tasks of learners for a secret reward function: `functional-q` and `prospect`."""

from dataclasses import dataclass
from typing import ClassVar

from privrl.control.q_specs import FunctionalQSpec, ProspectQSpec
from privrl.core.spec import Spec, option, with_default
from privrl.run.specs.base import NO_PREFLIGHT, EnvironmentTask


@dataclass(frozen=True)
class SecretRewardTask(EnvironmentTask):
    """Options of learners that keep a reward function secret."""

    public: bool = with_default(
        EnvironmentTask, "public", False, help="The score of what was learned may be shown."
    )
    no_preflight: bool = option(NO_PREFLIGHT, False)


@dataclass(frozen=True)
class FunctionalQTask(SecretRewardTask):
    """Learn to act for a reward function that stays secret.

    An environment is explored at random, what its rewards were is released once, with noise, and
    everything after that is free. Say what you have, and follow the answers: what is missing is
    asked for. Ctrl-C stops between rounds; --resume goes on, and nothing is paid for twice.

    \b
    privrl train functional-q --env Interval --epsilon 0.9 --delta 1e-4 \\
      --reward-radius 0.01 --reward-range 0,0.5 --out runs/interval
    privrl train functional-q --out runs/interval --resume
    """

    learner: ClassVar[str] = "functional-q"
    SPEC: ClassVar[type[Spec]] = FunctionalQSpec
    RUNNER: ClassVar[str] = "privrl.run.runners.secret_reward:FunctionalQRunner"
    EXAMPLE: ClassVar[str] = "Interval"


@dataclass(frozen=True)
class ProspectTask(SecretRewardTask):
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

    learner: ClassVar[str] = "prospect"
    SPEC: ClassVar[type[Spec]] = ProspectQSpec
    RUNNER: ClassVar[str] = "privrl.run.runners.secret_reward:ProspectRunner"
    EXAMPLE: ClassVar[str] = "ObstacleGrid"
