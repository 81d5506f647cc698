"""How `privrl train prospect` is run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from privrl.control.functional_q import FunctionalQ
from privrl.control.noised_q import Descent
from privrl.control.prospect_q import DEFAULT_DESCENT, ProspectQ
from privrl.risk import parse_prospect
from privrl.run.runners.secret_reward import SecretRewardRunner
from privrl.run.specs.secret_reward import ProspectSpec


@dataclass(frozen=True)
class ProspectRunner(ProspectSpec, SecretRewardRunner):
    """What Q-learning of what people prefer was told."""

    AGENT: ClassVar[type[FunctionalQ]] = ProspectQ
    DESCENTS: ClassVar[Mapping[str, Descent]] = {"updates": DEFAULT_DESCENT}
    ANY_RADIUS: ClassVar[tuple[str, ...]] = ("updates",)
    SETTINGS: ClassVar[tuple[str, ...]] = (*SecretRewardRunner.SETTINGS, "samples")
    PAPER: ClassVar[str] = "rajabi2022-prospect"

    def own_settings(self) -> dict[str, Any]:
        return {} if self.prospect is None else {"prospect": parse_prospect(self.prospect)}
