"""What the learners of papers share: they yield claims."""

from dataclasses import dataclass
from typing import ClassVar

from privrl.privacy.promise import Relation, Unit
from privrl.run.runners.base import CLAIM_NOTE, EnvironmentRunner, Preview


@dataclass(frozen=True)
class PaperRunner(EnvironmentRunner):
    """Options that all papers' learners have. They yield claims, so no ledger can pay for them."""

    UNIT: ClassVar[Unit] = Unit.TRAJECTORY

    @property
    def is_paper(self) -> bool:
        return True

    def preview(self) -> Preview:
        what = f"{self.count:,} {self.progress_unit}, by the paper's algorithm"
        return Preview(what, "", None, self.UNIT, Relation.REPLACE_ONE, note=CLAIM_NOTE)
