"""The tasks of learners that act in an environment: what `privrl train` has for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from privrl.control.actor_critic.spec import ActorCriticSpec
from privrl.control.pgc.spec import PGCSpec
from privrl.control.q_specs import FunctionalQSpec, ProspectQSpec
from privrl.core.spec import Spec, option, with_default
from privrl.run.specs.base import Task

_NO_PREFLIGHT = "Do not try a Gymnasium environment in a second instance before anybody pays."


@dataclass(frozen=True)
class EnvironmentTask(Task):
    """Options of learners that act in an environment."""

    env: str | None = option("Where to learn: Taxi-v4, MDP100, an id of Gymnasium's, ...")

    EXAMPLE: ClassVar[str] = "Taxi-v4"
    """An environment that suits the learner."""


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
    no_preflight: bool = option(_NO_PREFLIGHT, False)

    learner: ClassVar[str] = "actor-critic"
    SPEC: ClassVar[type[Spec]] = ActorCriticSpec
    RUNNER: ClassVar[str] = "privrl.run.runners.actor_critic:ActorCriticRunner"


@dataclass(frozen=True)
class CollectorTask(EnvironmentTask):
    """Options of private gradient collection, certified or as printed."""

    public: bool = with_default(
        Task, "public", False, help="Scores of agents, and how long they played, may be shown."
    )
    agents: int | None = option("How many agents report.")

    RUN: ClassVar[tuple[str, ...]] = ("logs",)  # each agent would pay from a ledger of its own
    EXAMPLE: ClassVar[str] = "CartPole"
    INSTEAD: ClassVar[Mapping[str, str]] = {"episodes": "agents", "people": "agents"}
    REFUSED: ClassVar[Mapping[str, str]] = {
        "delta": "is for other learners: local differential privacy is pure here, leave it out."
    }


@dataclass(frozen=True)
class PGCTask(CollectorTask):
    """Learn from agents under local differential privacy (LDP).

    Each agent plays an episode in an environment of its own and sends back a randomised gradient.
    The agents are simulated, many at a time. Say what you have, and follow the answers: what is
    missing is asked for.

    \b
    privrl train pgc --env CartPole --vary gravity=9.7,9.8,9.9 --agents 20000 \\
      --epsilon 1 --out runs/poles
    privrl train pgc --out runs/poles --resume
    """

    learner: ClassVar[str] = "pgc"
    SPEC: ClassVar[type[Spec]] = PGCSpec
    RUNNER: ClassVar[str] = "privrl.run.runners.pgc:PGCRunner"


@dataclass(frozen=True)
class SecretRewardTask(EnvironmentTask):
    """Options of learners that keep a reward function secret."""

    public: bool = with_default(
        Task, "public", False, help="The score of what was learned may be shown."
    )
    no_preflight: bool = option(_NO_PREFLIGHT, False)


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
