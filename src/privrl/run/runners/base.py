"""What the runners of all learners share.

A `Runner` is a task with the methods that build its learner, run it, and say what came of it; that
of each learner is a subclass in a module of its own, which its task names. All that is needed and
was not given is asked for at once (`Runner.questions`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from privrl.control import engine
from privrl.control.feature_names import is_bounded, is_scaled, range_question
from privrl.control.program import Program
from privrl.core.errors import InputError
from privrl.core.questions import Question, ask
from privrl.envs.base import Environment
from privrl.envs.host import HostEnvironment
from privrl.envs.registry import BUILTIN, make
from privrl.privacy.certificate import Certificate, Claim
from privrl.privacy.promise import Budget, Relation, Unit
from privrl.privacy.session import PrivacySession
from privrl.run.logs import paths as log_paths
from privrl.run.runners.playing import Job, Learning, RunEnd, play_agent
from privrl.run.specs import spec_of
from privrl.run.specs.base import Task, over_config
from privrl.run.specs.environments import EnvironmentTask

Env = Environment[Any, Any] | HostEnvironment

PRINTED = {
    "actor-critic": "seo2020-actor-critic",
    "functional-q": "wang2019-functional-q",
    "prospect": "rajabi2022-prospect",
    "pgc": "ono2020-pgc",
}
"""The learner that is the paper's own algorithm."""

SWEPT = (
    *("actor-critic", "pgc", "ono2020-pgc", "seo2020-actor-critic", "wang2019-functional-q"),
    "rajabi2022-prospect",
)
"""The learners that `privrl sweep` takes: those that play in a simulator."""

CLAIM_NOTE = "It yields the paper's claim, and no certificate."


class Result(Protocol):
    """What was learned, whoever learned it."""

    @property
    def promise(self) -> Certificate | Claim | str: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    def to_dict(self) -> dict[str, Any]: ...

    def save(self, path: str | Path) -> None: ...


class Preview(NamedTuple):
    """What a learner would release, as far as that is known before it learns."""

    released: str
    noise: str
    budget: Budget | None
    """None if no certificate would come of it."""

    unit: Unit
    relation: Relation
    reward_radius: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Runner(Task, ABC):
    """A task, and how its learner is run."""

    LEARNER: ClassVar[type[Any]]
    """The learner, of which `SPEC` has the options."""

    FILES: ClassVar[tuple[str, ...]] = ("policy.json",)
    """The files that only this learner writes."""

    @classmethod
    def of(cls, words: Mapping[str, Any], config: str | Path | None = None) -> Self:
        """What was said on the command line, over what the configuration file says.

        The word `learner` says whose runner it is, if this is not one of a certain learner.
        """
        given = over_config(words, config)
        given.setdefault("learner", cls.learner or "actor-critic")
        chosen = runner_of(given["learner"])
        _refuse_paper_mode(given)
        if not issubclass(chosen, cls):
            raise InputError(f"must be {cls.learner!r} here: leave it out.", field="learner")
        found: Self = chosen.read(given)
        return found

    @property
    def is_paper(self) -> bool:
        """Whether a paper's algorithm learns, which yields a claim."""
        return False

    @property
    def no_ledger_reason(self) -> str | None:
        """Why no ledger can pay, in a sentence; None if one can."""
        if self.is_paper:
            return "The paper's claim is no certificate, so no ledger can pay: leave it out."
        if self.public:
            return "Nobody pays for what is declared --public: leave --ledger out."
        return None

    # --- what each learner knows of its own -------------------------------------------------------

    @property
    def progress_unit(self) -> str:
        """In what people are told how far a run is."""
        return "episodes"

    @property
    @abstractmethod
    def count(self) -> int:
        """How many episodes the run takes."""

    def questions(self, swept: Sequence[str] = ()) -> Iterator[Question]:
        """What is needed and was not set, but for the settings `swept` that replicas have."""
        yield from ()

    def ask(self, swept: Sequence[str] = ()) -> None:
        """Refuse to go on while something is missing, and ask for all of it."""
        ask(self.questions(swept))

    def learner_with(self, **changes: Any) -> Any:
        """The learner with the options that were set; `changes` are fields in place of them."""
        given = self.SPEC.from_options(self.settings)
        if hasattr(self.SPEC, "budget") and self.get("epsilon") is not None:
            given["budget"] = Budget(self.get("epsilon"), self.get("delta") or 0.0)
        return self.LEARNER(**given | changes)

    @property
    @abstractmethod
    def no_curve_reason(self) -> str | None:
        """Why returns cannot be logged, in a sentence; None if they can."""

    @abstractmethod
    def program(self, swept: Sequence[str] = ()) -> Program:
        """The learner as a program, of which `swept` are the settings that replicas have."""

    @abstractmethod
    def rehearse(self, session: PrivacySession) -> None:
        """Refuse what a run refuses before anything is played or paid; nothing is."""

    @abstractmethod
    def preview(self) -> Preview:
        """What the run would release."""

    @abstractmethod
    def play(self, job: Job) -> RunEnd:
        """Learn, from the beginning or the checkpoint, to the end or until it is stopped."""

    def write(self, learned: Any, job: Job) -> dict[str, Path]:
        """The files of a finished run that only this learner has, by what they are."""
        written = log_paths(job.folder, job.formats)
        if hasattr(learned.policy, "save"):
            written["policy"] = job.folder / "policy.json"
            learned.policy.save(written["policy"])
        return written

    @abstractmethod
    def summarize(self, learned: Any) -> tuple[list[str], list[str]]:
        """What was learned, for people: lines, and sentences that stand after the promise."""


@dataclass(frozen=True)
class EnvironmentRunner(Runner, EnvironmentTask):
    """A learner that acts in an environment."""

    @cached_property
    def environment(self) -> Env:
        """The environment."""
        if self.env is None:
            self.ask()
        assert self.env is not None
        return make(self.env)

    @abstractmethod
    def learning(self) -> Learning:
        """What learns, and where; refused if the options do not go together."""

    def rehearse(self, session: PrivacySession) -> None:
        agent, env, options = self.learning()
        engine.prepare(agent, env, session=session, **options)[0].check(session.public)

    def play(self, job: Job) -> RunEnd:
        agent, env, options = self.learning()
        return play_agent(agent, env, job, self.public, **options)

    def questions(self, swept: Sequence[str] = ()) -> Iterator[Question]:
        if self.env is None:
            yield Question(
                "env",
                f"which environment to learn in, such as {self.EXAMPLE}",
                f"There are {', '.join(BUILTIN)}, and all that Gymnasium knows by their ids",
            )
            return
        named = [self.get(one) for one in ("features", "critic_features", "reward_features")]
        unranged = is_scaled(*named) and self.get("state_range") is None
        # An environment that there is not is refused before anything is asked.
        if not is_bounded(self.environment.observation) and unranged:
            yield range_question(self.environment.name)


def _refuse_paper_mode(given: dict[str, Any]) -> None:
    """Take out a mode that says what is always so now; the other one is a learner of its own."""
    if given.get("mode") in ("certified", "recipe"):
        del given["mode"]
    elif "mode" in given:
        paper = PRINTED.get(given["learner"])
        instead = f": the paper's algorithm is the learner {paper}" if paper else ""
        raise InputError(f"There are no modes any more{instead}. Leave mode out.")


def budget_questions(runner: Runner, whom: str, instead: str, delta: str) -> Iterator[Question]:
    """Asks for epsilon and delta, as far as they were not set.

    Args:
        runner: Who asks.
        whom: What is to be said: whose budget it is.
        instead: How to learn without noise.
        delta: How small delta should be.
    """
    if runner.get("epsilon") is None:
        yield Question("epsilon", f"{whom}, such as 1", instead)
    if runner.get("delta") is None:
        yield Question("delta", "the failure probability of the promise, such as 1e-6", delta)


def runner_of(learner: Any) -> type[Any]:
    """The runner of a learner, by the learner's name."""
    found: type[Any] = resolve_name(spec_of(learner).RUNNER)
    return found
