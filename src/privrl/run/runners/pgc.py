"""How `privrl train pgc` is run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from privrl.control.pgc.collection import CollectionProgram
from privrl.control.pgc.learned import LearnedPGC
from privrl.control.pgc.learner import PGC, Collector, CollectorTraining
from privrl.core.errors import InputError
from privrl.core.questions import Question
from privrl.privacy.certificate import Claim
from privrl.privacy.promise import Budget, Relation, Unit
from privrl.run.runners.base import CLAIM_NOTE, EnvironmentRunner, Preview
from privrl.run.runners.playing import Learning
from privrl.run.specs.environments import CollectorTask, PGCTask


@dataclass(frozen=True)
class CollectorRunner(CollectorTask, EnvironmentRunner):
    """How private gradient collection is run, certified or as printed."""

    @property
    def progress_unit(self) -> str:
        return "reports"

    def questions(self, swept: Sequence[str] = ()) -> Iterator[Question]:
        yield from super().questions()
        if self.agents is None:
            yield Question(
                "agents",
                "how many agents report, such as 20000",
                "The less each may give away, the more of them it takes",
            )
        if self.get("epsilon") is None and self.get("mechanism") != "none":
            yield Question(
                "epsilon",
                "the privacy budget of each agent, such as 1",
                "--mechanism none learns without noise, and protects nobody",
            )

    @property
    def count(self) -> int:
        if self.agents is None:
            self.ask()
        assert self.agents is not None
        return self.agents * (self.get("submissions") or 1)

    @property
    def no_curve_reason(self) -> str | None:
        if self.public:
            return None
        return "A log holds scores, which are about agents: say --public if they are no secret."

    def agent(self) -> Collector:
        """The learner."""
        if self.get("enough") is not None and self.get("target") is None:
            raise InputError("enough is about a target: say --target and --score-share too.")
        self.ask()
        found: Collector = self.learner_with()
        return found

    def program(self, swept: Sequence[str] = ()) -> CollectionProgram:
        return self._agent_and_program(swept)[1]

    def _agent_and_program(self, swept: Sequence[str] = ()) -> tuple[Collector, CollectionProgram]:
        agent, env = self.agent(), self.environment
        if "buffer" in swept:
            # Stands in for those of the replicas.
            agent = replace(agent, buffer=1)
        if "baseline" in swept and isinstance(agent, PGC):
            agent = replace(agent, baseline=0.0)
        reports = self.count
        return agent, agent.program(env, reports // agent.submissions)

    def preview(self) -> Preview:
        agent, program = self._agent_and_program()
        dimension = program.program.model.dimension
        privatiser = agent.privatiser(dimension)
        budget = None
        if privatiser is not None and not self.is_paper:
            budget = Budget(agent.epsilon or 0.0, 0.0)
        return Preview(
            f"{self.count:,} reports of {dimension:,} numbers",
            f"randomised by {agent.mechanism}" if agent.mechanism else "",
            budget,
            Unit.AGENT,
            Relation.LOCAL,
            note=CLAIM_NOTE if self.is_paper else "",
        )

    # --- how it is run -------------------------------------------------------------------------

    @property
    def no_ledger_reason(self) -> str | None:
        return super().no_ledger_reason or CollectorTraining.NO_LEDGER

    def learning(self) -> Learning:
        agent, program = self._agent_and_program()
        people = program.program.agents // agent.submissions
        return Learning(agent, program.program.env, {"people": people})

    def summarize(self, learned: LearnedPGC) -> tuple[list[str], list[str]]:
        settings = learned.settings
        lines = [f"{settings['env']}: a policy from {settings['reports']:,} reports of agents."]
        if settings["control"] == "zero":
            lines.append("  a control: all gradients counted as zero, so nothing was learned")
        scores = learned.scores
        if scores is not None:
            tenth = max(1, scores.size // 10)
            # Rewards may add up to infinities.
            with np.errstate(invalid="ignore", over="ignore"):
                first, last = np.mean(scores[:tenth]), np.mean(scores[-tenth:])
            lines.append(f"  mean score of the first tenth {first:.4g}, of the last {last:.4g}")
        if learned.reached is not None:
            share, error = learned.reached
            goal = f"{settings['target']:g}"
            # Noise can bring an estimate below nothing, or above all.
            shown = min(max(share, 0.0), 1.0)
            lines.append(f"  reached {goal}, by private answers: {shown:.0%} ± {error:.1%}")
            if settings["reports"] < settings["agents"] * settings["submissions"]:
                lines.append("  (which ended the run, and was chosen for being high)")
        elif scores is None:
            lines.append("  how well it does was not asked: see --target, or --public")
        promise = learned.promise
        notes = [] if isinstance(promise, str) else [learned.privacy_statement]
        if isinstance(promise, Claim):
            notes.append(f"The claim itself is no certificate: {promise.why_not}")
        return lines, notes


@dataclass(frozen=True)
class PGCRunner(PGCTask, CollectorRunner):
    """How `privrl train pgc` is run."""

    LEARNER: ClassVar[type[Any]] = PGC
