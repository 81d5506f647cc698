"""The words of `privrl train prospect`, and how it is taught."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from privrl.control.functional_q import FunctionalQ
from privrl.control.noised_q import Descent
from privrl.control.prospect_q import DEFAULT_DESCENT, ProspectQ
from privrl.risk import parse_prospect
from privrl.run.lessons.secret_reward import SecretRewardLesson


@dataclass(frozen=True)
class ProspectLesson(SecretRewardLesson):
    """What Q-learning of what people prefer was told."""

    learner: str = "prospect"
    prospect: str | None = None
    """A name, or the path of a file."""

    samples: int | None = None

    EXAMPLE: ClassVar[str] = "ObstacleGrid"
    AGENT: ClassVar[type[FunctionalQ]] = ProspectQ
    DESCENTS: ClassVar[Mapping[str, Descent]] = {"updates": DEFAULT_DESCENT}
    ANY_RADIUS: ClassVar[tuple[str, ...]] = ("updates",)
    SETTINGS: ClassVar[tuple[str, ...]] = (*SecretRewardLesson.SETTINGS, "samples")
    PAPER: ClassVar[str] = "rajabi2022-prospect"

    def of_its_own(self) -> dict[str, Any]:
        return {} if self.prospect is None else {"prospect": parse_prospect(self.prospect)}
