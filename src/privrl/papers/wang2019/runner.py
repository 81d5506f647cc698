"""How `privrl train wang2019-functional-q` is run, and what rajabi2022's learner shares."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from privrl.control.learned_q import LearnedQ
from privrl.core.errors import InputError
from privrl.core.questions import Question
from privrl.papers.wang2019.fast import FunctionalQProgram
from privrl.papers.wang2019.learner import FunctionalQ
from privrl.papers.wang2019.spec import FunctionalNoiseTask, FunctionalQTask
from privrl.privacy.certificate import Claim
from privrl.run.runners.paper import PaperRunner
from privrl.run.runners.playing import Learning


@dataclass(frozen=True)
class FunctionalNoiseRunner(FunctionalNoiseTask, PaperRunner):
    """How learners that show Q with functional noise are run."""

    CLAIMED: ClassVar[str]
    """For what it is claimed."""

    SOURCE: ClassVar[str]
    """What was learned from, with the settings in braces."""

    def preset_of(self, **changes: Any) -> Any:
        """The learner with the settings of the preset, but for `changes`."""
        return getattr(self.LEARNER, self.preset.replace("-", "_"))(**changes)

    def _has_own_noise(self, swept: Sequence[str]) -> bool:
        """Whether sigma does not follow from the theorem."""
        preset = self.preset_of().sigma is not None
        return preset or self.get("sigma") is not None or "sigma" in swept

    def questions(self, swept: Sequence[str] = ()) -> Iterator[Question]:
        yield from super().questions()
        own = self._has_own_noise(swept)
        if not own and self.get("epsilon") is None:
            yield Question(
                "epsilon",
                f"how much is claimed for {self.CLAIMED}, such as 0.9",
                "With --sigma and --rate the noise is your own, and nothing is claimed",
            )
        rated = self.preset_of().rate is not None or self.get("rate") is not None
        if own and not rated and "rate" not in swept and "sigma" not in swept:
            yield Question(
                "rate",
                "how fast the path of the noise forgets, such as 1",
                f"With a sigma of one's own it does not follow from {self.LEARNER.THEOREM}",
            )

    def agent(self, swept: Sequence[str] = ()) -> Any:
        """The learner, but for the settings that replicas have."""
        if self._has_own_noise(swept) and {"epsilon", "delta"} & self.settings.keys():
            raise InputError(
                "A sigma of one's own, as the public code has it, comes with no claim: leave "
                "--epsilon and --delta out."
            )
        self.ask(swept)
        # Stands in for those of the replicas.
        replicas = {name: 1.0 for name in ("sigma", "rate") if name in swept}
        given = replicas | self.SPEC.from_options(self.settings)
        if "sigma" in swept and given.get("rate", self.preset_of().rate) is None:
            raise InputError(
                "A sweep over sigma needs a rate too: say --set rate=1, or sweep over it."
            )
        return self.preset_of(**given)

    @property
    def no_curve_reason(self) -> str | None:
        if self.public:
            return None
        return "A log holds returns, which are about the reward: say --public if it is none."

    def learning(self) -> Learning:
        return Learning(self.agent(), self.environment, {})

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
class FunctionalQRunner(FunctionalQTask, FunctionalNoiseRunner):
    """How Q-learning with functional noise is run."""

    LEARNER: ClassVar[type[Any]] = FunctionalQ
    CLAIMED: ClassVar[str] = "the whole run"
    SOURCE: ClassVar[str] = "{samples:,} samples"

    @property
    def count(self) -> int:
        samples: int = self.get("samples") or self.preset_of().samples
        return -(-samples // (getattr(self.environment, "step_limit", None) or 1))

    def program(self, swept: Sequence[str] = ()) -> FunctionalQProgram:
        return FunctionalQProgram(self.agent(swept), self.environment)
