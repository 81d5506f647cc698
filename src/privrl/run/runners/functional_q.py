"""How `privrl train functional-q` is run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from privrl.control.functional_q import FunctionalQ
from privrl.control.noised_q import DEFAULT_DESCENTS, Descent
from privrl.run.runners.secret_reward import SecretRewardRunner
from privrl.run.specs.secret_reward import FunctionalQSpec


@dataclass(frozen=True)
class FunctionalQRunner(FunctionalQSpec, SecretRewardRunner):
    """What Q-learning for a secret reward function was told."""

    AGENT: ClassVar[type[FunctionalQ]] = FunctionalQ
    DESCENTS: ClassVar[Mapping[str, Descent]] = DEFAULT_DESCENTS
    SETTINGS: ClassVar[tuple[str, ...]] = (
        *SecretRewardRunner.SETTINGS,
        *("iterations", "actor_step", "evaluations", "horizon"),
    )
    DESCENT: ClassVar[tuple[str, ...]] = (*SecretRewardRunner.DESCENT, "slope", "tau")
    PAPER: ClassVar[str] = "wang2019-functional-q"
