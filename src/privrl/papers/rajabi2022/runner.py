"""The options of `privrl train rajabi2022-prospect`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from privrl.control.learned_q import LearnedQ
from privrl.papers.rajabi2022.fast import ProspectQProgram
from privrl.papers.rajabi2022.learner import ProspectQ, make_result
from privrl.papers.rajabi2022.spec import ProspectSpec
from privrl.papers.wang2019.runner import FunctionalNoiseRunner
from privrl.risk import parse_prospect
from privrl.run.training import TrainingRun


@dataclass(frozen=True)
class ProspectRunner(ProspectSpec, FunctionalNoiseRunner):
    """Options of PP-CPT-RL."""

    AGENT: ClassVar[type[Any]] = ProspectQ
    THEOREM: ClassVar[str] = "Theorem 1"
    CLAIMED: ClassVar[str] = "each iteration"
    SOURCE: ClassVar[str] = "{iterations:,} iterations of {batch:,} steps"

    def agent_options(self) -> dict[str, Any]:
        given = super().agent_options()
        return (
            given if self.prospect is None else given | {"prospect": parse_prospect(self.prospect)}
        )

    @property
    def count(self) -> int:
        iterations: int = self.iterations or self.preset_of().iterations
        return iterations

    def program(self, swept: Sequence[str] = ()) -> ProspectQProgram:
        agent, env = self.agent(swept), self.environment()
        return ProspectQProgram(agent, env)

    def make_result(self, program: Any, trained: TrainingRun, seed: int | None) -> LearnedQ:
        return make_result(program, trained.state, seed, public=self.public)
