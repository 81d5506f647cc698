"""The words of `privrl train prospect`, and how it is taught."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from privrl.control.functional_q import FunctionalQ
from privrl.control.learned_q import LearnedQ
from privrl.control.noised_q import Descent
from privrl.control.paper_prospect import PaperProgram, learned_as_printed
from privrl.control.paper_prospect_settings import printed, public_code
from privrl.control.prospect_q import DESCENT, ProspectQ
from privrl.risk import prospect_of
from privrl.run.lessons.secret_reward import SecretRewardLesson


@dataclass(frozen=True)
class ProspectLesson(SecretRewardLesson):
    """What Q-learning of what people prefer was told."""

    learner: str = "prospect"
    prospect: str | None = None
    """A name, or the path of a file."""

    acting: str | None = None
    """Paper mode, as the next ones."""

    iterations: int | None = None
    noise: str | None = None
    resets: str | None = None

    EXAMPLE: ClassVar[str] = "ObstacleGrid"
    AGENT: ClassVar[type[FunctionalQ]] = ProspectQ
    DESCENTS: ClassVar[Mapping[str, Descent]] = {"updates": DESCENT}
    ANY_RADIUS: ClassVar[tuple[str, ...]] = ("updates",)
    SETTINGS: ClassVar[tuple[str, ...]] = (*SecretRewardLesson.SETTINGS, "samples")
    PAPER: ClassVar[tuple[str, ...]] = (
        *("gamma", "step", "batch", "samples", "sigma", "rate", "acting", "iterations", "noise"),
        "resets",
    )
    PRESETS: ClassVar[Mapping[str, Callable[..., Any]]] = {
        "printed": printed,
        "public-code": public_code,
    }
    THEOREM: ClassVar[str] = "Theorem 1"
    CLAIMED: ClassVar[str] = "each iteration"

    def of_its_own(self) -> dict[str, Any]:
        return {} if self.prospect is None else {"prospect": prospect_of(self.prospect)}

    def of_the_paper(self) -> dict[str, Any]:
        return self.of_its_own()

    def compiled(self, config: Any) -> PaperProgram:
        env: Any = self.environment()
        return PaperProgram(config, env)

    def shown(self, program: Any, state: Any, seed: int | None) -> LearnedQ:
        return learned_as_printed(program, state, seed, public=self.public)

    @property
    def source(self) -> str:
        return "{iterations:,} iterations of {batch:,} steps"

    @property
    def paper_count(self) -> int:
        iterations: int = self.iterations or self.PRESETS[self._preset]().iterations
        return iterations
