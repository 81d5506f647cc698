"""How `privrl train rajabi2022-prospect` is run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from privrl.papers.rajabi2022.fast import ProspectQProgram
from privrl.papers.rajabi2022.learner import ProspectQ
from privrl.papers.rajabi2022.spec import ProspectTask
from privrl.papers.wang2019.runner import FunctionalNoiseRunner


@dataclass(frozen=True)
class ProspectRunner(ProspectTask, FunctionalNoiseRunner):
    """How PP-CPT-RL is run."""

    LEARNER: ClassVar[type[Any]] = ProspectQ
    CLAIMED: ClassVar[str] = "each iteration"
    SOURCE: ClassVar[str] = "{iterations:,} iterations of {batch:,} steps"

    @property
    def count(self) -> int:
        iterations: int = self.get("iterations") or self.preset_of().iterations
        return iterations

    def program(self, swept: Sequence[str] = ()) -> ProspectQProgram:
        return ProspectQProgram(self.agent(swept), self.environment)
