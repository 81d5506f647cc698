"""How `privrl train functional-q` and `privrl train prospect` are run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from privrl.control.feature_names import is_bounded
from privrl.control.functional_q import FunctionalQ
from privrl.control.learned_q import LearnedQ
from privrl.control.program import Program
from privrl.control.prospect_q import ProspectQ
from privrl.control.q_specs import DescentSpec
from privrl.core.errors import InputError
from privrl.core.questions import Question
from privrl.privacy.certificate import Certificate
from privrl.privacy.promise import Relation, Unit
from privrl.run.runners.base import EnvironmentRunner, Preview, budget_questions
from privrl.run.runners.playing import Job, Learning
from privrl.run.specs.environments import FunctionalQTask, ProspectTask, SecretRewardTask


@dataclass(frozen=True)
class SecretRewardRunner(SecretRewardTask, EnvironmentRunner):
    """How learners that keep a reward function secret are run."""

    FILES: ClassVar[tuple[str, ...]] = ("policy.json", "reward_model.json")

    ANY_RADIUS: ClassVar[tuple[str, ...]] = ()
    """The releases that hide any two reward functions."""

    PAPER: ClassVar[str]
    """The learner that is the paper's own algorithm."""

    def questions(self, swept: Sequence[str] = ()) -> Iterator[Question]:
        yield from super().questions()
        if self.get("release") != "none":
            if self.get("reward_radius") is None and self.get("release") not in self.ANY_RADIUS:
                yield Question(
                    "reward_radius",
                    "by how much a reward may differ at any point and still be hidden, such as "
                    "0.01",
                    "What is released cannot tell reward functions apart that are no further apart "
                    "anywhere",
                )
            yield from budget_questions(
                self,
                "the privacy budget for the reward function",
                "--release none learns without noise, and protects nothing",
                "It is about one secret, so let it be next to impossible",
            )
            if self.get("reward_range") is None:
                yield Question(
                    "reward_range",
                    "what any reward could be, the lowest first, such as 0,1",
                    "Rewards beyond it are clipped",
                )
        if self.env is not None and not is_bounded(self.environment.observation):
            hint = f"{self.environment.name} observes numbers without ends, so say these with "
            hint += "--state-range"
            if self.get("features") is None and self.get("planner") != "network":
                yield Question(
                    "features",
                    "in which form to see the states, such as fourier:2 or polynomial:2",
                    hint,
                )
            modelled = self.get("release") in (None, "reward-model", "none")
            if self.get("reward_features") is None and modelled:
                yield Question(
                    "reward_features",
                    "in which form rewards depend on states, such as cosine:2 or polynomial:2",
                    hint,
                )

    def agent(self) -> FunctionalQ:
        """The learner."""
        if self.get("release") == "none":
            for name in ("epsilon", "delta", "reward_radius"):
                if self.get(name) is not None:
                    raise InputError("is not used by --release none: leave it out.", field=name)
        self.ask()
        if self.get("delta") == 0.0:
            raise InputError("must be above 0, because the noise is Gaussian.", field="delta")
        changes, descents = {}, self.LEARNER.DESCENTS
        said = {n: v for n, v in self.settings.items() if n in DescentSpec.options()}
        if self.get("release") in descents:
            changes = {"descent": replace(descents[self.get("release")], **said)}
            if "updates" in said:  # of the descent, and not of the planner
                changes["updates"] = self.LEARNER.updates
        else:
            for name in said:
                if name != "updates":  # which the planner has, too
                    listed = " or ".join(descents)
                    raise InputError(f"belongs to --release {listed}: leave it out.", field=name)
        found: FunctionalQ = self.learner_with(**changes)
        return found

    def preview(self) -> Preview:
        agent = self.agent()
        what = f"release {agent.release!r} of a rollout of {agent.steps:,} steps"
        told = f"noise calibrated for reward functions within {agent.radius:g} of each other"
        return Preview(
            what,
            "" if agent.budget is None else told,
            agent.budget,
            Unit.REWARD_FUNCTION,
            Relation.REWARD_RADIUS,
            agent.radius,
        )

    # --- how it is run -------------------------------------------------------------------------

    @property
    def progress_unit(self) -> str:
        return "stages"

    @property
    def count(self) -> int:
        raise InputError(self._no_sweep)

    def program(self, swept: Sequence[str] = ()) -> Program:
        raise InputError(self._no_sweep)

    @property
    def _no_sweep(self) -> str:
        return (
            f"{self.learner} cannot be swept: it plans on what was released once, which can be "
            f"done again for nothing. The paper's algorithm can: privrl sweep {self.PAPER}."
        )

    @property
    def no_curve_reason(self) -> str | None:
        return "A log holds returns of episodes, and a certified run has none: leave it out."

    def learning(self) -> Learning:
        return Learning(self.agent(), self.environment, {"preflight": not self.no_preflight})

    def write(self, learned: LearnedQ, job: Job) -> dict[str, Path]:
        written = super().write(learned, job)
        if learned.reward_model is not None:
            written["reward model"] = job.folder / "reward_model.json"
            learned.reward_model.save(written["reward model"])
        return written

    def summarize(self, learned: LearnedQ) -> tuple[list[str], list[str]]:
        env, promise = learned.settings["env"], learned.promise
        steps = learned.settings["steps"]
        lines = [f"{env}: values of actions from a rollout of {steps:,} steps."]
        if learned.score is not None:
            lines.append(f"  mean return of fresh episodes {learned.score:.4g}")
        notes = []
        if isinstance(promise, Certificate):
            notes.append(learned.privacy_statement)
            if self.public:
                notes.append("The score was declared public: no promise is made about it.")
        return lines, notes


@dataclass(frozen=True)
class FunctionalQRunner(FunctionalQTask, SecretRewardRunner):
    """How Q-learning for a secret reward function is run."""

    LEARNER: ClassVar[type[Any]] = FunctionalQ
    PAPER: ClassVar[str] = "wang2019-functional-q"


@dataclass(frozen=True)
class ProspectRunner(ProspectTask, SecretRewardRunner):
    """How Q-learning of CPT values is run."""

    LEARNER: ClassVar[type[Any]] = ProspectQ
    ANY_RADIUS: ClassVar[tuple[str, ...]] = ("updates",)
    PAPER: ClassVar[str] = "rajabi2022-prospect"
