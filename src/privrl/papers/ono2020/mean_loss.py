"""PGC-A3C with the loss of an episode averaged over its steps, rather than added up: a reading.

(16) and (17) add up. But losses over a batch are commonly averaged, and the script from which the
paper has its other numbers does so. An agent divides the gradient by how many steps it took before
anything else is done with it, so clipping, noise and privacy are the same.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

from privrl.control.pgc.collection import CollectionProgram
from privrl.control.pgc.learner import Env
from privrl.control.pgc.program import PGCProgram
from privrl.papers.ono2020.learner import PGC


@dataclass(frozen=True)
class MeanLossProgram(PGCProgram):
    """Agents whose gradients are those of mean losses."""

    def gradients(self, slots: Any, settings: Any) -> Any:
        return super().gradients(slots, settings) / slots.state.time.astype(self.dtype)


@dataclass(frozen=True)
class MeanLossPGC(PGC):
    """PGC-A3C with mean losses."""

    def program(self, env: Env, agents: int) -> CollectionProgram:
        made = super().program(env, agents)
        plain = {one.name: getattr(made.program, one.name) for one in fields(PGCProgram)}
        return replace(made, program=MeanLossProgram(**plain))
