"""The options of `privrl train seo2020-actor-critic`, and how it is trained."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from privrl.control.actor_critic import LearnedActorCritic
from privrl.control.program import Program
from privrl.core.errors import InputError
from privrl.core.questions import Question
from privrl.papers.seo2020.learner import ActorCritic
from privrl.papers.seo2020.program import ActorCriticProgram
from privrl.papers.seo2020.spec import ActorCriticTask
from privrl.run.logs import paths as log_paths
from privrl.run.runners.actor_critic import curve_lines, write_policy
from privrl.run.runners.paper import PaperRunner
from privrl.run.runners.playing import Job, Learning


@dataclass(frozen=True)
class ActorCriticRunner(ActorCriticTask, PaperRunner):
    """How the paper's actor-critic is run."""

    LEARNER: ClassVar[type[Any]] = ActorCritic

    def questions(self, swept: Sequence[str] = ()) -> Iterator[Question]:
        yield from super().questions()
        if self.episodes is None:
            yield Question("episodes", "how many episodes to play, such as 500", "The paper's: 500")
        if self.get("variant") == "none" or "sigma" in swept:
            return
        if self.get("epsilon") is None:
            yield Question(
                "epsilon",
                "how much is claimed for each step, such as 10",
                "--variant none learns without noise, and protects nobody",
            )
        if self.get("delta") is None:
            yield Question(
                "delta",
                "the failure probability that is claimed for each step, such as 1e-6",
                "The paper takes 1e-6",
            )

    @property
    def count(self) -> int:
        """How many episodes are played."""
        if self.episodes is None:
            self.ask()
        assert self.episodes is not None
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
        said = (self.get("epsilon"), self.get("delta"))
        if self.get("variant") == "none" and said != (None, None):
            raise InputError("The variant none spends nothing: leave --epsilon and --delta out.")
        self.ask(swept)
        agent = self.learner_with()
        return ActorCriticProgram(agent, self.environment, sweeps_lambda="lambda_" in swept)

    def learning(self) -> Learning:
        program = self.program()
        assert isinstance(program, ActorCriticProgram)
        return Learning(program.config, program.env, {"people": self.count})

    def write(self, learned: LearnedActorCritic, job: Job) -> dict[str, Path]:
        logs = {} if learned.curve is None else log_paths(job.folder, job.formats)
        return write_policy(learned, job) | logs

    def summarize(self, learned: LearnedActorCritic) -> tuple[list[str], list[str]]:
        return curve_lines(learned), []
