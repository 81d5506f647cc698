"""The options of PP-CPT-RL, each declared once, and its task on the command line."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from privrl.core.spec import Spec, option, with_default
from privrl.papers.wang2019.spec import FunctionalNoiseSpec, FunctionalNoiseTask

if TYPE_CHECKING:
    from privrl.risk import Prospect

Kind = Literal["features", "cells"]
Acting = Literal["greedy", "proportional"]


@dataclass(frozen=True)
class ProspectQSpec(FunctionalNoiseSpec):
    """Settings of Algorithms 1 to 3; the defaults are as printed, and corrected."""

    gamma: float = with_default(FunctionalNoiseSpec, "gamma", 0.9)
    batch: int = with_default(
        FunctionalNoiseSpec,
        "batch",
        20,
        high=10**6,
        help="Steps in an iteration, B, from a fresh start.",
    )
    samples: int = with_default(
        FunctionalNoiseSpec,
        "samples",
        100,
        high=10**6,
        help="Successors drawn of each step, N_max.",
    )
    prospect: "Prospect" = option(
        "How outcomes are weighed: neutral, tversky-kahneman, rajabi2022, or a file .json.",
        "rajabi2022",
        kind=str,
    )
    lipschitz: float = option("L of Theorem 1, which nothing here enforces.", 1.0, above=0)
    largest_td_error: float = option("c_max of Theorem 1, which nothing here enforces.", 1.0, low=0)
    iterations: int = option("Iterations, T_max, each with one update.", 800)
    noise: Kind = option("What the noise is made of.", "features")
    order: int = option("The highest cosine in each coordinate; noise features.", 10)
    lattice: int = option("Cells in each coordinate; noise cells.", 10)
    resets: Literal["run", "iteration"] = option("How long a path of noise lasts.", "run")
    acting: Acting = option(
        "The policy: greedy by the noised Q, or proportional, its softmax.", "greedy"
    )
    temperature: float = option("Of the softmax.", 1.0, above=0)
    behaviour: Literal["acting", "uniform"] = option(
        "How steps are taken: by the policy that is learned (acting), or uniform.", "acting"
    )
    backup: Literal["acting", "max"] = option(
        "Value of a successor: the noised Q's mean under the policy (acting), or its max.", "acting"
    )
    successor: Literal["best", "drawn"] = option(
        "Where a step leads: to the best of the drawn successors, or to the first drawn.", "best"
    )
    target_every: int = option("Iterations between two copies of the target network.", 1)
    minibatch: int = option("Steps that an update draws, with replay.", 256)

    THEOREM: ClassVar[str] = "Theorem 1"

    def __post_init__(self) -> None:
        from privrl.risk import parse_prospect

        object.__setattr__(self, "prospect", parse_prospect(self.prospect))
        super().__post_init__()
        self.check_replay(self.minibatch, "minibatch")


@dataclass(frozen=True)
class ProspectTask(FunctionalNoiseTask):
    """PP-CPT-RL, Algorithms 1 to 3 of Rajabi et al. (2022).

    It yields the paper's claim, which is no certificate: `privrl train prospect` certifies.

    \b
    privrl train rajabi2022-prospect --env ObstacleSquare --epsilon 0.9 \\
      --out runs/printed
    privrl train rajabi2022-prospect --out runs/printed --resume
    """

    learner: ClassVar[str] = "rajabi2022-prospect"
    SPEC: ClassVar[type[Spec]] = ProspectQSpec
    RUNNER: ClassVar[str] = "privrl.papers.rajabi2022.runner:ProspectRunner"
    EXAMPLE: ClassVar[str] = "ObstacleSquare"
