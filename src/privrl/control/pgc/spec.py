"""The options of private gradient collection, certified or as printed, each declared once."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from privrl.core.errors import InputError
from privrl.core.spec import Spec, option

if TYPE_CHECKING:
    from privrl.control.pgc.program import Dynamics

Mechanism = Literal["privunit", "sign", "laplace"]
Activation = Literal["relu", "tanh"]
Acting = Literal["sampled", "greedy", "explored"]
Optimiser = Literal["sgd", "adam", "rmsprop"]
Staleness = Literal["root", "none"]
Timing = Literal["fixed", "open"]

_MOST_IN_FLIGHT = 10**5


@dataclass(frozen=True)
class CollectorSpec(Spec):
    """Settings that all collectors have; see `privrl.control.pgc.learner`."""

    epsilon: float | None = option(
        "Privacy budget epsilon of each agent, for all that it sends.", above=0
    )
    mechanism: Mechanism | None = option(
        "How a gradient is randomised: privunit, sign or laplace; none: no noise, not private.",
        "privunit",
        none="none",
    )
    hidden: tuple[int, ...] = option("Sizes of the network's hidden layers, such as 16,16.", (16,))
    activation: Activation = option("Activation of the hidden layers.", "tanh")
    scale: tuple[float, ...] | None = option(
        "What observations are divided by: a public number for each, by commas.", above=0
    )
    submissions: int = option("Reports that an agent sends, which share its epsilon.", 1)
    rate: float | None = option("Learning rate of the server.", above=0, shown="0.1")
    buffer: int | None = option("Reports in an update.", shown="50, and more for more noise")
    decay: float | None = option(
        "Power p of the learning rate's decay: rate (1 - n / N)^p after n of N reports.",
        low=0,
        shown="1",
    )
    acting: Acting = option(
        "How agents act: sampled from the policy; greedy, with exploration that ends; explored: "
        "sampled, with that exploration.",
        "sampled",
    )
    optimiser: Optimiser = option("What makes steps of the mean report.", "adam")
    staleness: Staleness = option(
        "Reports about old models: root (count for less), or none.", "root"
    )
    timing: Timing = option(
        "When agents report: fixed, when all of a round are done; open, when they are done "
        "themselves, which tells how long they played.",
        "fixed",
    )
    flight: int = option("Agents that play at the same time.", 9)
    dynamics: "Dynamics | None" = option(
        "Of each agent's environment, such as `OneOf(env, 'gravity', (9.7, 9.8, 9.9))`; None for "
        "the same for all.",
        kind=object,
        python=True,
    )
    control: Literal["zero"] | None = option(
        "zero: all gradients count as zero, to see what noise does."
    )
    gamma: float = option("Discount factor.", 0.99, low=0, high=1)
    target: float | None = option(
        "Score about which agents answer, with LDP, whether they reached it."
    )
    score_share: float = option(
        "Share of epsilon that pays for these answers, such as 0.3.", 0.0, low=0, below=1
    )
    enough: float = option(
        "Stop when this share of agents reached the target, as far as answers tell.",
        0.9,
        low=0,
        below=1,
    )
    vary: str | None = option("What differs between agents, such as gravity=9.7,9.8,9.9.")

    def __post_init__(self) -> None:
        self.check_fields()
        if self.flight > _MOST_IN_FLIGHT:
            raise InputError(f"At most {_MOST_IN_FLIGHT:,} agents can play at the same time.")
        self._check_dynamics()
        self._check_budget()

    def _check_dynamics(self) -> None:
        if self.dynamics is None:
            return
        if self.vary is not None:
            raise InputError("vary and dynamics say the same in two ways: leave one out.")
        if not callable(self.dynamics):
            raise InputError(
                "must be a function of a key, such as OneOf, or None.", field="dynamics"
            )
        try:
            hash(self.dynamics)
        except TypeError:
            raise InputError("must be hashable: give OneOf a tuple.", field="dynamics") from None

    def _check_budget(self) -> None:
        if (self.target is None) != (self.score_share == 0.0):
            raise InputError("target and score_share belong together: say both, or neither.")
        if self.mechanism is None:
            if self.epsilon is not None:
                raise InputError("Without a mechanism nothing is spent: leave epsilon out.")
            if self.target is not None:
                raise InputError("Answers about a target are paid for by epsilon: say a mechanism.")
            return
        if self.epsilon is None:
            raise InputError("is needed: the privacy budget of each agent?", field="epsilon")


@dataclass(frozen=True)
class PGCSpec(CollectorSpec):
    """Settings of `privrl.control.PGC`."""

    baseline: float | None = option(
        "What returns are compared with: a public number near the return of a policy that does "
        "not look.",
        shown="25 for the pole, needed elsewhere",
    )
