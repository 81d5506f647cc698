"""The options of `privrl train ono2020-pgc`."""

from dataclasses import dataclass
from typing import ClassVar

from privrl.run.specs.base import option
from privrl.run.specs.pgc import CollectorSpec


@dataclass(frozen=True)
class PGCSpec(CollectorSpec):
    """PGC-A3C of Ono and Takahashi (2020), as printed: locally private actor-critic.

    The paper's claim comes with it, and beside it the certificate of the same noise.

    \b
    privrl train ono2020-pgc --env CartPole --vary gravity=9.7,9.8,9.9 \\
      --mechanism laplace --epsilon 1 --agents 90000 --out runs/poles
    """

    learner: str = "ono2020-pgc"
    mechanism: str | None = option(
        "How a gradient is randomised: laplace or sign; none: no noise at all."
    )
    clip: float | None = option("C: the bound on a gradient.")
    value_weight: float | None = option("lambda: weight of the critic's loss.")
    entropy: float | None = option("beta: weight of the policy's entropy.")

    RUNNER: ClassVar[str] = "privrl.papers.ono2020.runner:OnoRunner"
