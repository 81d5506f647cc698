"""The options of `privrl train seo2020-actor-critic`, and how it is trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privrl.control.actor_critic import LearnedActorCritic
from privrl.control.program import Program
from privrl.core.errors import InputError
from privrl.papers.seo2020.learner import ActorCritic, make_result
from privrl.papers.seo2020.program import ActorCriticProgram
from privrl.papers.seo2020.spec import ActorCriticSpec
from privrl.run.logs import paths as log_paths
from privrl.run.parsing import number, refuse_missing
from privrl.run.runners.actor_critic import curve_lines, write_policy
from privrl.run.runners.base import Job
from privrl.run.runners.paper import PaperRunner
from privrl.run.training import TrainingRun

# What the learner takes as it was given.
_SETTINGS = (
    *("variant", "gamma", "lambda_", "actor_step", "critic_step", "correction_step", "acting"),
    *("exploration", "correction", "max_steps"),
)


@dataclass(frozen=True)
class ActorCriticRunner(ActorCriticSpec, PaperRunner):
    """Options of the paper's actor-critic."""

    @property
    def count(self) -> int:
        """How many episodes are played."""
        if self.episodes is None:
            refuse_missing(
                "episodes", "how many episodes to play, such as 500", "The paper plays 500"
            )
        return self.episodes

    @property
    def no_curve_reason(self) -> str | None:
        if self.public:
            return None
        return (
            "A log holds returns, which are about people: say --public if nobody is there to "
            "protect."
        )

    def program(self, swept: Sequence[str] = ()) -> Program:
        """The learner as a program, of which `swept` are the settings that replicas have."""
        given: dict[str, Any] = {
            name: getattr(self, name) for name in _SETTINGS if getattr(self, name) is not None
        }
        if self.clip is not None:
            given["clip"] = self.clip if self.clip == "median" else number("clip", self.clip)
        env = self.environment()
        agent = ActorCritic(**given, **self._budget("sigma" not in swept))
        return ActorCriticProgram(agent, env, sweeps_lambda="lambda_" in swept)

    def _budget(self, noised: bool) -> dict[str, Any]:
        """Epsilon and delta; without `noised` sigma is swept, which has no use for them."""
        given = {"epsilon": self.epsilon, "delta": self.delta}
        if self.variant == "none" and (self.epsilon is not None or self.delta is not None):
            raise InputError("The variant none spends nothing: leave --epsilon and --delta out.")
        if self.variant != "none" and noised:
            if self.epsilon is None:
                refuse_missing(
                    "epsilon",
                    "how much is claimed for each step, such as 10",
                    "--variant none learns without noise, and protects nobody",
                )
            if self.delta is None:
                refuse_missing(
                    "delta",
                    "the failure probability that is claimed for each step, such as 1e-6",
                    "The paper takes 1e-6",
                )
        return {name: value for name, value in given.items() if value is not None}

    def make_result(
        self, program: Program, trained: TrainingRun, seed: int | None
    ) -> LearnedActorCritic:
        assert isinstance(program, ActorCriticProgram)
        return make_result(program, trained.state, trained.episodes, self.returns(trained), seed)

    def write(self, learned: LearnedActorCritic, job: Job) -> dict[str, Path]:
        logs = {} if learned.curve is None else log_paths(job.folder, job.formats)
        return write_policy(learned, job) | logs

    def summarize(self, learned: LearnedActorCritic) -> tuple[list[str], list[str]]:
        return curve_lines(learned), []
