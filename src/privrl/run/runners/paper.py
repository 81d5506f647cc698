"""What the learners of papers share: a compiled program that is played, and a claim."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from privrl.control.program import Program
from privrl.core.errors import InputError
from privrl.privacy.promise import Relation, Unit
from privrl.run.runners.base import EnvironmentRunner, Job, Result, RunEnd
from privrl.run.runners.playing import play_program
from privrl.run.runners.trial import CLAIM_NOTE, Preview
from privrl.run.training import CHECKPOINT, TrainingRun, delete_checkpoint


@dataclass(frozen=True)
class PaperRunner(EnvironmentRunner):
    """Options that all papers' learners have. They yield claims, so no ledger can pay for them."""

    UNIT: ClassVar[Unit] = Unit.TRAJECTORY
    CHECKPOINTS: ClassVar[tuple[str, ...]] = (CHECKPOINT,)

    @property
    def is_paper(self) -> bool:
        return True

    @abstractmethod
    def make_result(self, program: Program, trained: TrainingRun, seed: int | None) -> Result:
        """The result of a run that was played to its end."""

    def preview(self) -> Preview:
        self.program()
        what = f"{self.count:,} {self.progress_unit}, by the paper's algorithm"
        return Preview(what, "", None, self.UNIT, Relation.REPLACE_ONE, note=CLAIM_NOTE)

    def play(self, job: Job) -> RunEnd:
        program = self.program()
        trained = play_program(self, program, job)
        if trained.ending != "finished":
            return RunEnd(None, trained.episodes, trained.planned)
        try:
            learned = self.make_result(program, trained, job.seed)
        except InputError:
            delete_checkpoint(job.folder)  # It would end the same way again.
            raise
        return RunEnd(learned, trained.episodes, trained.planned)

    @staticmethod
    def returns(trained: TrainingRun) -> Any:
        """Those of the episodes, where they were kept because nobody needs protection."""
        return trained.seen["return"][0] if trained.seen else None
