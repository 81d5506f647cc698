"""The words of `privrl train functional-q`, and how it is taught."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from privrl.control.functional_q import FunctionalQ, learned_as_printed
from privrl.control.learned_q import LearnedQ
from privrl.control.noised_q import DESCENTS, Descent
from privrl.control.paper_functional_q import PaperProgram, printed, public_code
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
    resets: int | None = None
    edge: str | None = None

    EXAMPLE: ClassVar[str] = "Interval"
    AGENT: ClassVar[type[FunctionalQ]] = FunctionalQ
    DESCENTS: ClassVar[Mapping[str, Descent]] = DESCENTS
    SETTINGS: ClassVar[tuple[str, ...]] = (
        *SecretRewardLesson.SETTINGS,
        *("iterations", "actor_step", "evaluations", "horizon"),
    )
    DESCENT: ClassVar[tuple[str, ...]] = (*SecretRewardLesson.DESCENT, "slope", "tau")
    PAPER: ClassVar[tuple[str, ...]] = (
        *("gamma", "step", "batch", "samples", "resets", "sigma", "rate", "edge"),
    )
    PRESETS: ClassVar[Mapping[str, Callable[..., Any]]] = {
        "printed": printed,
        "public-code": public_code,
    }
    THEOREM: ClassVar[str] = "Theorem 5"
    CLAIMED: ClassVar[str] = "the whole run"

    def compiled(self, config: Any) -> PaperProgram:
        env: Any = self.environment()
        return PaperProgram(config, env)

    def shown(self, program: Any, state: Any, seed: int | None) -> LearnedQ:
        return learned_as_printed(program, state, seed, public=self.public)

    @property
    def source(self) -> str:
        return "{samples:,} samples"

    @property
    def paper_count(self) -> int:
        samples = self.samples or self.PRESETS[self._preset]().samples
        return -(-samples // (getattr(self.environment(), "step_limit", None) or 1))
