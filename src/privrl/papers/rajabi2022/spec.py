"""The options of `privrl train rajabi2022-prospect`."""

from dataclasses import dataclass
from typing import ClassVar

from privrl.papers.wang2019.spec import FunctionalNoiseSpec
from privrl.run.specs.base import option


@dataclass(frozen=True)
class ProspectSpec(FunctionalNoiseSpec):
    """PP-CPT-RL, Algorithms 1 to 3 of Rajabi et al. (2022).

    It yields the paper's claim, which is no certificate: `privrl train prospect` certifies.

    \b
    privrl train rajabi2022-prospect --env ObstacleSquare --epsilon 0.9 \\
      --out runs/printed
    privrl train rajabi2022-prospect --out runs/printed --resume
    """

    learner: str = "rajabi2022-prospect"
    prospect: str | None = option(
        "Prospect: neutral, tversky-kahneman, rajabi2022, or a file .json."
    )
    iterations: int | None = option("How many iterations, T_max.")
    batch: int | None = option("Steps in an iteration, B.")
    samples: int | None = option("Successors drawn of each step, N_max.")
    acting: str | None = option("greedy, or proportional.")
    noise: str | None = option("What the noise is made of: features or cells.")
    resets: str | None = option("How long a path of noise lasts: run or iteration.")

    RUNNER: ClassVar[str] = "privrl.papers.rajabi2022.runner:ProspectRunner"
    EXAMPLE: ClassVar[str] = "ObstacleSquare"
