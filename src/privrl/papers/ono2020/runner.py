"""Options of `privrl train ono2020-pgc`."""

from dataclasses import dataclass
from typing import ClassVar

from privrl.control.pgc.learner import Collector
from privrl.papers.ono2020.learner import PGC
from privrl.papers.ono2020.spec import PGCSpec
from privrl.run.parsing import refuse_missing
from privrl.run.runners.pgc import CollectorRunner


@dataclass(frozen=True)
class OnoRunner(PGCSpec, CollectorRunner):
    """Options of PGC-A3C as printed."""

    AGENT: ClassVar[type[Collector]] = PGC
    SETTINGS: ClassVar[tuple[str, ...]] = (
        *(*CollectorRunner.SETTINGS, "clip", "value_weight", "entropy"),
    )

    @property
    def is_paper(self) -> bool:
        return True

    def _chosen_mechanism(self) -> str | None:
        if self.mechanism is None:
            refuse_missing(
                "mechanism",
                "how gradients are randomised: laplace or sign",
                "none is without noise, and protects nobody",
            )
        found: str | None = super()._chosen_mechanism()
        return found
