"""The options of private gradient collection: `privrl train pgc`, and those ono2020's shares."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from privrl.run.specs.base import EnvironmentOptions, Spec, option


@dataclass(frozen=True)
class CollectorSpec(Spec, EnvironmentOptions):
    """Options of private gradient collection, certified or as printed."""

    epsilon: float | None = option("Privacy budget epsilon of each agent, in all.")
    delta: None = None  # local differential privacy is pure here
    public: bool = option("Scores of agents, and how long they played, may be shown.", False)
    agents: int | None = option("How many agents report.")
    mechanism: str | None = option(
        "How a gradient is randomised: privunit (default), sign or laplace; none: no noise at all."
    )
    submissions: int | None = option("Reports that an agent sends, which share its epsilon.")
    vary: str | None = option("What differs between agents, such as gravity=9.7,9.8,9.9.")
    hidden: str | None = option("Sizes of the network's hidden layers, such as 16,16.")
    activation: str | None = option("tanh or relu.")
    scale: str | None = option("What observations are divided by: a number for each, by commas.")
    rate: float | None = option("Learning rate of the server.")
    buffer: int | None = option("Reports in an update.")
    decay: float | None = option("The learning rate falls as this power of the reports left.")
    acting: str | None = option(
        "sampled, by the policy's probabilities; greedy, with exploration that ends."
    )
    optimiser: str | None = option("adam or sgd.")
    staleness: str | None = option("Reports about old models: root (count for less), or none.")
    timing: str | None = option(
        "When agents report: fixed, when all of a round are done; open, when they are done "
        "themselves, which tells how long they played."
    )
    flight: int | None = option("Agents that play at the same time.")
    target: float | None = option("Agents also answer, with LDP, whether their score reached this.")
    score_share: float | None = option("Share of epsilon that pays for answers, such as 0.3.")
    enough: float | None = option(
        "Stops when this share of agents reached the target, as far as answers tell (default: 0.9)."
    )
    control: str | None = option("zero: all gradients count as zero, to see what noise does.")

    RUN: ClassVar[tuple[str, ...]] = ("logs",)  # each agent would pay from a ledger of its own
    EXAMPLE: ClassVar[str] = "CartPole"
    INSTEAD: ClassVar[Mapping[str, str]] = {"episodes": "agents", "people": "agents"}
    REFUSED: ClassVar[Mapping[str, str]] = {
        "delta": "is for other learners: local differential privacy is pure here, leave it out."
    }
    LISTS: ClassVar[tuple[str, ...]] = ("hidden", "scale")
    NUMBERS: ClassVar[tuple[str, ...]] = ("hidden", "scale")


@dataclass(frozen=True)
class PGCSpec(CollectorSpec):
    """Learn from agents under local differential privacy (LDP).

    Each agent plays an episode in an environment of its own and sends back a randomised gradient.
    The agents are simulated, many at a time. Say what you have, and follow the answers: what is
    missing is asked for.

    \b
    privrl train pgc --env CartPole --vary gravity=9.7,9.8,9.9 --agents 20000 \\
      --epsilon 1 --out runs/poles
    privrl train pgc --out runs/poles --resume
    """

    learner: str = "pgc"
    baseline: float | None = option(
        "What returns are compared with, a public number; default: 25 for the pole."
    )

    RUNNER: ClassVar[str] = "privrl.run.runners.pgc:PGCRunner"
