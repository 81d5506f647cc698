"""The words of `privrl train functional-q`, and how it is taught."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from privrl.control.functional_q import FunctionalQ
from privrl.control.noised_q import DEFAULT_DESCENTS, Descent
from privrl.run.lessons.secret_reward import SecretRewardLesson
from privrl.run.specs.secret_reward import FunctionalQSpec


@dataclass(frozen=True)
class FunctionalQLesson(FunctionalQSpec, SecretRewardLesson):
    """What Q-learning for a secret reward function was told."""

    AGENT: ClassVar[type[FunctionalQ]] = FunctionalQ
    DESCENTS: ClassVar[Mapping[str, Descent]] = DEFAULT_DESCENTS
    SETTINGS: ClassVar[tuple[str, ...]] = (
        *SecretRewardLesson.SETTINGS,
        *("iterations", "actor_step", "evaluations", "horizon"),
    )
    DESCENT: ClassVar[tuple[str, ...]] = (*SecretRewardLesson.DESCENT, "slope", "tau")
    PAPER: ClassVar[str] = "wang2019-functional-q"
