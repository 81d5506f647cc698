"""The tasks of private gradient collection: `privrl train pgc`, and what ono2020's shares."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from privrl.control.pgc.spec import PGCSpec
from privrl.core.spec import Spec, option, with_default
from privrl.run.specs.base import EnvironmentTask


@dataclass(frozen=True)
class CollectorTask(EnvironmentTask):
    """Options of private gradient collection, certified or as printed."""

    public: bool = with_default(
        EnvironmentTask,
        "public",
        False,
        help="Scores of agents, and how long they played, may be shown.",
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
