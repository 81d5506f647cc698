"""The options of `privrl train wang2019-functional-q`, and what rajabi2022's learner shares."""

from dataclasses import dataclass
from typing import ClassVar

from privrl.run.specs.base import EnvironmentOptions, Spec, option


@dataclass(frozen=True)
class FunctionalNoiseSpec(Spec, EnvironmentOptions):
    """Options of learners that show Q with functional noise: by a theorem, or of one's own size."""

    epsilon: float | None = option("The privacy budget that the paper's theorem claims.")
    delta: float | None = option("The theorem's failure probability.")
    public: bool = option("Returns may be logged, and the score shown.", False)
    preset: str | None = option("printed (default), or public-code (authors').")
    samples: int | None = option("How many samples, T.")
    batch: int | None = option("Samples in an update, B.")
    step: float | None = option("Learning rate, alpha.")
    sigma: float | None = option("The noise, instead of --epsilon.")
    rate: float | None = option("How fast the noise forgets, beta.")

    RUN: ClassVar[tuple[str, ...]] = ("logs",)


@dataclass(frozen=True)
class FunctionalQSpec(FunctionalNoiseSpec):
    """Q-learning with functional noise, Algorithm 1 of Wang and Hegde (2019).

    It yields the paper's claim, which is no certificate: `privrl train functional-q` certifies.

    \b
    privrl train wang2019-functional-q --env Interval --epsilon 0.9 --delta 1e-4 \\
      --out runs/printed
    privrl train wang2019-functional-q --out runs/printed --resume
    """

    learner: str = "wang2019-functional-q"
    resets: int | None = option("How many paths of noise, J.")
    edge: str | None = option("The path's right edge: correct, or public-code (wrong).")

    RUNNER: ClassVar[str] = "privrl.papers.wang2019.runner:FunctionalQRunner"
    EXAMPLE: ClassVar[str] = "Interval"
