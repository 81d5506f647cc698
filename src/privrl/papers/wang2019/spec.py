"""The options of Q-learning with functional noise, each declared once, and their tasks."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from privrl.core.errors import InputError
from privrl.core.spec import Spec, option, with_default
from privrl.run.specs.environments import EnvironmentTask

Edge = Literal["correct", "public-code"]


@dataclass(frozen=True)
class FunctionalNoiseSpec(Spec):
    """Settings of learners that show Q with functional noise; rajabi2022's has them too."""

    epsilon: float = option("The privacy budget that the paper's theorem claims.", 0.9, above=0)
    delta: float = option(
        "The theorem's failure probability; the tail of its lemma adds at most as much again.",
        1e-4,
        above=0,
        below=1,
    )
    gamma: float = option("Discount factor.", 0.999, low=0, high=1, sweepable=True)
    step: float = option("Learning rate, alpha.", 0.01, above=0, sweepable=True)
    batch: int = option("Samples in an update, B.", 128)
    samples: int = option("How many samples in all, T.", 5000)
    sigma: float | None = option(
        "Standard deviation of the noise, instead of epsilon.",
        low=0,
        sweepable=True,
        shown="the theorem's",
    )
    rate: float | None = option(
        "How fast the noise forgets, beta.", above=0, sweepable=True, shown="the theorem's"
    )
    hidden: tuple[int, ...] = option("Sizes of the hidden layers, with rectifiers.", (16, 16))
    replay: int = option(
        "How many of the last samples an update draws from; 0: it takes the last ones.", 0, low=0
    )
    loss: Literal["squared", "huber"] = option("The loss.", "squared")
    clamp: float | None = option("Cuts off each coordinate of the gradient.", above=0)
    optimiser: Literal["sgd", "rmsprop"] = option("How a gradient becomes a step.", "sgd")

    SWEEPABLE: ClassVar[tuple[str, ...]] = ("sigma", "rate", "step", "gamma")
    THEOREM: ClassVar[str] = "Theorem 5"
    """The paper's, by which noise follows from what is claimed."""

    def __post_init__(self) -> None:
        if isinstance(self.delta, int | float) and self.delta == 0.0:
            raise InputError("must be above 0: the theorem has no sigma without it.", field="delta")
        self.check_fields()
        if (self.sigma is None) != (self.rate is None):
            raise InputError(
                f"sigma and rate belong together: say both, or leave both to {self.THEOREM}."
            )
        if not self.hidden:
            raise InputError(
                "must be the sizes of the hidden layers, such as (16, 16).", field="hidden"
            )

    def check_replay(self, least: int, what: str) -> None:
        """Refuse to draw more samples than there are to draw from."""
        if self.replay != 0 and not least <= self.replay < 2**16:
            raise InputError(
                f"must be 0, or at least the {what} of {least} and below 65,536.", field="replay"
            )


@dataclass(frozen=True)
class FunctionalQSpec(FunctionalNoiseSpec):
    """Settings of Algorithm 1; the defaults are as printed."""

    resets: int = option("Paths of noise in all, J: a new one every T / J samples.", 39)
    acting: Literal["greedy", "epsilon-greedy"] = option(
        "How actions are taken: greedy by the noised Q, or epsilon-greedy as in the public code.",
        "greedy",
    )
    updates: Literal["batch", "step"] = option(
        "One update after each batch of samples, or one after each step.", "batch"
    )
    target: int | None = option(
        "Samples between two copies of a target network, which has a path of its own.",
        shown="one network, and one path",
    )
    terminal: bool = option("Whether the step limit ends an episode for the values.", False)
    edge: Edge = option(
        "The path's right edge: correct, or as in the public code (wrong).", "correct"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_replay(self.batch, "batch")
        if self.samples < self.batch:
            raise InputError(f"must be at least the batch of {self.batch}.", field="samples")
        if self.resets > self.count:
            raise InputError(
                f"must be at most {self.count}: there are no more to choose from.", field="resets"
            )

    @property
    def count(self) -> int:
        """How many updates there are, as Theorem 5 counts them."""
        return self.samples if self.updates == "step" else self.samples // self.batch


@dataclass(frozen=True)
class FunctionalNoiseTask(EnvironmentTask):
    """Options of learners that show Q with functional noise: by a theorem, or of one's own size."""

    public: bool = with_default(
        EnvironmentTask, "public", False, help="Returns may be logged, and the score shown."
    )
    preset: Literal["printed", "public-code"] = option(
        "Settings to begin with: printed, or public-code (the authors').", "printed"
    )

    RUN: ClassVar[tuple[str, ...]] = ("logs",)


@dataclass(frozen=True)
class FunctionalQTask(FunctionalNoiseTask):
    """Q-learning with functional noise, Algorithm 1 of Wang and Hegde (2019).

    It yields the paper's claim, which is no certificate: `privrl train functional-q` certifies.

    \b
    privrl train wang2019-functional-q --env Interval --epsilon 0.9 --delta 1e-4 \\
      --out runs/printed
    privrl train wang2019-functional-q --out runs/printed --resume
    """

    learner: ClassVar[str] = "wang2019-functional-q"
    SPEC: ClassVar[type[Spec]] = FunctionalQSpec
    RUNNER: ClassVar[str] = "privrl.papers.wang2019.runner:FunctionalQRunner"
    EXAMPLE: ClassVar[str] = "Interval"
