"""The options of PGC-A3C as printed, each declared once, and its task on the command line."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from privrl.control.pgc.spec import (
    Acting,
    Activation,
    CollectorSpec,
    Optimiser,
    Staleness,
    Timing,
)
from privrl.core.spec import Spec, option, with_default
from privrl.run.specs.environments import CollectorTask


@dataclass(frozen=True)
class PGCSpec(CollectorSpec):
    """Settings of PGC-A3C; the defaults are as printed."""

    mechanism: Literal["laplace", "sign"] | None = with_default(
        CollectorSpec,
        "mechanism",
        "laplace",
        help="How a gradient is randomised: laplace (Algorithm 2) or sign (3); none: no noise, "
        "not private.",
    )
    activation: Activation = with_default(CollectorSpec, "activation", "relu")
    rate: float | None = with_default(
        CollectorSpec, "rate", 0.5, help="Learning rate of the server, eta.", shown=None
    )
    buffer: int | None = with_default(
        CollectorSpec,
        "buffer",
        None,
        help="Reports in an update, MAX_BUF.",
        shown="1 for laplace, 100 for sign",
    )
    decay: float | None = with_default(CollectorSpec, "decay", 0.0, shown=None)
    acting: Acting = with_default(CollectorSpec, "acting", "greedy")
    optimiser: Optimiser = with_default(CollectorSpec, "optimiser", "sgd")
    staleness: Staleness = with_default(CollectorSpec, "staleness", "none")
    timing: Timing = with_default(CollectorSpec, "timing", "open")
    clip: float | None = option(
        "Bound C: gradients have L1 norm at most C / 2 with laplace, projections are within C "
        "with sign.",
        above=0,
        shown="0.01 for laplace, 1 for sign",
    )
    value_weight: float = option("Weight of the critic's loss, lambda.", 0.5, low=0)
    entropy: float = option("Weight of the policy's entropy, beta.", 0.01, low=0)


@dataclass(frozen=True)
class PGCTask(CollectorTask):
    """PGC-A3C of Ono and Takahashi (2020), as printed: locally private actor-critic.

    The paper's claim comes with it, and beside it the certificate of the same noise.

    \b
    privrl train ono2020-pgc --env CartPole --vary gravity=9.7,9.8,9.9 \\
      --mechanism laplace --epsilon 1 --agents 90000 --out runs/poles
    """

    learner: ClassVar[str] = "ono2020-pgc"
    SPEC: ClassVar[type[Spec]] = PGCSpec
    RUNNER: ClassVar[str] = "privrl.papers.ono2020.runner:OnoRunner"
