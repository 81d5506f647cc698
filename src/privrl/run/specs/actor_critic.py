"""The task of `privrl train actor-critic`."""

from dataclasses import dataclass
from typing import ClassVar

from privrl.control.actor_critic.spec import ActorCriticSpec
from privrl.core.spec import Spec, option
from privrl.run.specs.base import NO_PREFLIGHT, EnvironmentTask


@dataclass(frozen=True)
class ActorCriticTask(EnvironmentTask):
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

    people: int | None = option("How many people play an episode each.")
    episodes: int | None = option("How many episodes, in simulators where nobody plays.")
    no_preflight: bool = option(NO_PREFLIGHT, False)

    learner: ClassVar[str] = "actor-critic"
    SPEC: ClassVar[type[Spec]] = ActorCriticSpec
    RUNNER: ClassVar[str] = "privrl.run.runners.actor_critic:ActorCriticRunner"
