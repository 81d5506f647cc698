"""The options of `privrl train wang2019-functional-q`, and what rajabi2022's learner shares."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from privrl.control.learned_q import LearnedQ
from privrl.core.errors import InputError
from privrl.papers.wang2019.fast import FunctionalQProgram
from privrl.papers.wang2019.learner import FunctionalQ, make_result
from privrl.papers.wang2019.spec import FunctionalNoiseSpec, FunctionalQSpec
from privrl.privacy.certificate import Claim
from privrl.run.logs import paths as log_paths
from privrl.run.parsing import refuse_missing
from privrl.run.runners.base import Job
from privrl.run.runners.paper import PaperRunner
from privrl.run.training import TrainingRun


@dataclass(frozen=True)
class FunctionalNoiseRunner(FunctionalNoiseSpec, PaperRunner):
    """Options of learners that show Q with functional noise: by a theorem, or of one's own size."""

    AGENT: ClassVar[type[Any]]
    THEOREM: ClassVar[str]
    """The paper's, by which noise follows from what is claimed."""

    CLAIMED: ClassVar[str]
    """For what it is claimed."""

    SOURCE: ClassVar[str]
    """What was learned from, with the settings in braces."""

    def preset_of(self, **changes: Any) -> Any:
        """The learner with the settings of the preset, but for `changes`."""
        preset = self.preset or "printed"
        if preset not in ("printed", "public-code"):
            raise InputError(f"must be printed or public-code, not {preset!r}.", field="preset")
        return getattr(self.AGENT, preset.replace("-", "_"))(**changes)

    def agent_options(self) -> dict[str, Any]:
        """The learner's fields that were said."""
        names = [one.name for one in fields(self.AGENT)]
        return {n: getattr(self, n) for n in names if getattr(self, n, None) is not None}

    def agent(self, swept: Sequence[str] = ()) -> Any:
        """The learner, but for the settings that replicas have."""
        own = self.preset_of().sigma is not None or self.sigma is not None or "sigma" in swept
        if own and (self.epsilon is not None or self.delta is not None):
            raise InputError(
                "A sigma of one's own, as the public code has it, comes with no claim: leave "
                "--epsilon and --delta out."
            )
        if not own and self.epsilon is None:
            refuse_missing(
                "epsilon",
                f"how much is claimed for {self.CLAIMED}, such as 0.9",
                "With --sigma and --rate the noise is your own, and nothing is claimed",
            )
        if own and self.preset_of().rate is None and self.rate is None and "rate" not in swept:
            if "sigma" in swept:
                raise InputError(
                    "A sweep over sigma needs a rate too: say --set rate=1, or sweep over it."
                )
            refuse_missing(
                "rate",
                "how fast the path of the noise forgets, such as 1",
                f"With a sigma of one's own it does not follow from {self.THEOREM}",
            )
        # Stands in for those of the replicas.
        replicas = {name: 1.0 for name in ("sigma", "rate") if name in swept}
        return self.preset_of(**replicas | self.agent_options())

    @property
    def no_curve_reason(self) -> str | None:
        if self.public:
            return None
        return "A log holds returns, which are about the reward: say --public if it is none."

    def write(self, learned: LearnedQ, job: Job) -> dict[str, Path]:
        written = log_paths(job.folder, job.formats)
        if hasattr(learned.policy, "save"):
            written["policy"] = job.folder / "policy.json"
            learned.policy.save(written["policy"])
        return written

    def summarize(self, learned: LearnedQ) -> tuple[list[str], list[str]]:
        env, promise = learned.settings["env"], learned.promise
        lines = [f"{env}: values of actions from {self.SOURCE.format(**learned.settings)}."]
        if learned.score is not None:
            lines.append(f"  mean return of fresh episodes {learned.score:.4g}")
        notes = []
        if isinstance(promise, Claim):
            notes.append(f"Nothing is certified: {promise.why_not}")
        return lines, notes


@dataclass(frozen=True)
class FunctionalQRunner(FunctionalQSpec, FunctionalNoiseRunner):
    """Options of Q-learning with functional noise."""

    AGENT: ClassVar[type[Any]] = FunctionalQ
    THEOREM: ClassVar[str] = "Theorem 5"
    CLAIMED: ClassVar[str] = "the whole run"
    SOURCE: ClassVar[str] = "{samples:,} samples"

    @property
    def count(self) -> int:
        samples: int = self.samples or self.preset_of().samples
        return -(-samples // (getattr(self.environment(), "step_limit", None) or 1))

    def program(self, swept: Sequence[str] = ()) -> FunctionalQProgram:
        agent, env = self.agent(swept), self.environment()
        return FunctionalQProgram(agent, env)

    def make_result(self, program: Any, trained: TrainingRun, seed: int | None) -> LearnedQ:
        return make_result(program, trained.state, seed, public=self.public)
