"""How `privrl train actor-critic` is run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from privrl.control.actor_critic import ActorCritic, CertifiedProgram, LearnedActorCritic
from privrl.control.program import Program
from privrl.core.errors import InputError
from privrl.core.questions import Question
from privrl.envs.base import Box
from privrl.envs.host import HostEnvironment
from privrl.privacy.certificate import Certificate
from privrl.privacy.promise import Budget, Relation, Unit
from privrl.run.logs import paths as log_paths
from privrl.run.runners.base import EnvironmentRunner, Preview, budget_questions
from privrl.run.runners.playing import Job, Learning
from privrl.run.specs.environments import ActorCriticTask


@dataclass(frozen=True)
class ActorCriticRunner(ActorCriticTask, EnvironmentRunner):
    """How an actor-critic is run."""

    LEARNER: ClassVar[type[Any]] = ActorCritic

    def questions(self, swept: Sequence[str] = ()) -> Iterator[Question]:
        yield from super().questions()
        if self.people is None and self.episodes is None:
            yield Question(
                "people",
                "how many people play an episode each, such as 500",
                "With --episodes it is the same, for simulators with nobody in them",
            )
        if self.get("variant") != "none" and "sigma" not in swept:
            yield from budget_questions(
                self,
                "the privacy budget for each person",
                "--variant none learns without noise, and protects nobody",
                "It should be well below one divided by the number of people",
            )
        if self.get("return_range") is None:
            if self.get("prospect") is not None:
                yield Question("return_range", _RETURNS, "A prospect counts returns between them")
            elif self.get("actor_step") is None and not swept:
                yield Question(
                    "return_range",
                    _RETURNS,
                    "Steps and bounds are in units of its width; with an --actor-step of your own "
                    "it can be left out",
                )
        seen = None if self.env is None else self.environment.observation
        if self.get("features") is None and isinstance(seen, Box):
            yield Question(
                "features",
                "in which form to see the states, such as fourier:2, polynomial:2 or network:16",
                f"{self.environment.name} observes {len(seen.low)} numbers, so there is no table",
            )

    @property
    def count(self) -> int:
        """How many people play, an episode each."""
        if self.people is not None and self.episodes is not None:
            raise InputError("--people and --episodes say the same in two ways: leave one out.")
        found = self.episodes if self.people is None else self.people
        if found is None:
            self.ask()
        assert found is not None
        return found

    @property
    def no_curve_reason(self) -> str | None:
        if self.public or self.get("curve") == "paid" or self.get("prospect") is not None:
            return None
        return (
            "A log holds returns, which are about people: say --public if nobody is there to "
            "protect, or pay for a curve of the batches with --curve paid."
        )

    def agent(self, swept: Sequence[str] = ()) -> ActorCritic:
        """The learner; if sigma is swept, it takes the place of the budget's."""
        self.ask(swept)
        changes, epsilon, delta = {}, self.get("epsilon"), self.get("delta")
        if self.get("variant") == "none":
            if epsilon is not None or delta is not None:
                raise InputError(
                    "The variant none spends nothing: leave --epsilon and --delta out."
                )
        elif "sigma" in swept:
            changes = {"budget": Budget(epsilon or 1.0, delta or 1e-6)}
        elif delta == 0.0:
            raise InputError("must be above 0, because the noise is Gaussian.", field="delta")
        found: ActorCritic = self.learner_with(**changes)
        return found

    def program(self, swept: Sequence[str] = ()) -> Program:
        """The learner as a program, of which `swept` are the settings that replicas have."""
        agent, env = self.agent(swept), self.environment
        if isinstance(env, HostEnvironment):
            raise InputError(
                f"{env.name} cannot be compiled, so its runs are played one by one: use privrl "
                "train."
            )
        return CertifiedProgram(agent, env, self.count)

    def preview(self) -> Preview:
        program = CertifiedProgram(self.agent(), self.environment, self.count)
        plan, numbers = program.plan, program.numbers
        told = f"noise {numbers['sigma']:.3g} times the clip norm {numbers['clip']:g}, {plan.noise}"
        return Preview(
            f"{plan.horizon:,} batches of {plan.batch:,} people, parameters after each",
            "" if program.event is None else told,
            program.config.budget,
            Unit.TRAJECTORY,
            Relation.REPLACE_ONE,
        )

    # --- how it is run -------------------------------------------------------------------------

    def learning(self) -> Learning:
        options = {"people": self.count, "preflight": not self.no_preflight}
        return Learning(self.agent(), self.environment, options)

    def write(self, learned: LearnedActorCritic, job: Job) -> dict[str, Path]:
        written = write_policy(learned, job)
        if learned.curve is not None:
            written |= log_paths(job.folder, job.formats)
        return written

    def summarize(self, learned: LearnedActorCritic) -> tuple[list[str], list[str]]:
        lines = curve_lines(learned)
        prospect = learned.prospect
        if prospect is not None:
            value = learned.prospect_value
            lines.append(
                f"  CPT value of the last returns {value:.4g}, as much as "
                f"{float(prospect.certainty_equivalent(value)):.4g} for certain"
            )
        notes = []
        if isinstance(learned.promise, Certificate) and self.public:
            notes.append("The returns were declared public: no promise is made about them.")
        if learned.actor is None or learned.critic is None:
            notes.append(f"Only the {learned.variant} is given away.")
        return lines, notes


_RETURNS = "what the return of an episode could be, the lowest first, such as -500,0"


def write_policy(learned: LearnedActorCritic, job: Job) -> dict[str, Path]:
    """The file of the policy, if it is given away and can be saved."""
    if learned.actor is None or not hasattr(learned.policy, "save"):
        return {}
    path = job.folder / "policy.json"
    learned.policy.save(path)
    return {"policy": path}


def curve_lines(learned: LearnedActorCritic) -> list[str]:
    """What was learned from, and how returns went where they may be shown."""
    settings, curve = learned.settings, learned.curve
    lines = [f"{settings['env']}: an actor-critic from {settings['people']:,} episodes."]
    if curve is not None and curve.size:
        tenth = max(1, curve.size // 10)
        # Rewards may add up to infinities.
        with np.errstate(invalid="ignore", over="ignore"):
            first, last = np.mean(curve[:tenth]), np.mean(curve[-tenth:])
        lines.append(f"  mean return of the first tenth {first:.4g}, of the last {last:.4g}")
    return lines
