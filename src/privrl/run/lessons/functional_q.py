"""The words of `privrl train functional-q`, and how it is taught."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from privrl.control.functional_q import FunctionalQ
from privrl.control.noised_q import DEFAULT_DESCENTS, Descent
from privrl.run.lessons.secret_reward import SecretRewardLesson


@dataclass(frozen=True)
class FunctionalQLesson(SecretRewardLesson):
    """What Q-learning for a secret reward function was told."""

    learner: str = "functional-q"
    iterations: int | None = None
    actor_step: float | None = None
    evaluations: int | None = None
    horizon: int | None = None
    slope: float | None = None
    tau: float | None = None

    EXAMPLE: ClassVar[str] = "Interval"
    AGENT: ClassVar[type[FunctionalQ]] = FunctionalQ
    DESCENTS: ClassVar[Mapping[str, Descent]] = DEFAULT_DESCENTS
    SETTINGS: ClassVar[tuple[str, ...]] = (
        *SecretRewardLesson.SETTINGS,
        *("iterations", "actor_step", "evaluations", "horizon"),
    )
    DESCENT: ClassVar[tuple[str, ...]] = (*SecretRewardLesson.DESCENT, "slope", "tau")
    PAPER: ClassVar[str] = "wang2019-functional-q"
