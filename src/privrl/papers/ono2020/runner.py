"""How `privrl train ono2020-pgc` is run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from privrl.core.questions import Question
from privrl.papers.ono2020.learner import PGC
from privrl.papers.ono2020.spec import PGCTask
from privrl.run.runners.pgc import CollectorRunner


@dataclass(frozen=True)
class OnoRunner(PGCTask, CollectorRunner):
    """How PGC-A3C as printed is run."""

    LEARNER: ClassVar[type[Any]] = PGC

    @property
    def is_paper(self) -> bool:
        return True

    def questions(self, swept: Sequence[str] = ()) -> Iterator[Question]:
        yield from super().questions(swept)
        if self.get("mechanism") is None:
            yield Question(
                "mechanism",
                "how gradients are randomised: laplace or sign",
                "none is without noise, and protects nobody",
            )
