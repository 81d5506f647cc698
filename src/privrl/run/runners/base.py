"""What the runners of all learners share.

A `Runner` is a spec with the methods that build its learner, run it, and say what came of it; that
of each learner is a subclass in a module of its own, which its spec names. What is needed and was
not given is asked for in a sentence that says what to type.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from privrl.control.heads import Network
from privrl.control.program import Program
from privrl.core.errors import InputError
from privrl.core.progress import Progress
from privrl.data import Features, Fourier, OneHot, Polynomial
from privrl.envs.base import Discrete, Environment
from privrl.envs.host import HostEnvironment
from privrl.envs.registry import BUILTIN, make
from privrl.privacy.certificate import Certificate, Claim
from privrl.privacy.ledger import Ledger
from privrl.privacy.session import PrivacySession
from privrl.run.parsing import box, positive_integer, refuse_missing
from privrl.run.specs import load, spec_of
from privrl.run.specs.base import EnvironmentOptions, FeaturesSpec, Spec, over_config

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

# Features that need to know between which ends numbers are.
SCALED = ("polynomial", "fourier")
# Some environments whose numbers have no ends say the largest that 32 bits hold.
_UNBOUNDED = 1e30


class Result(Protocol):
    """What was learned, whoever learned it."""

    @property
    def promise(self) -> Certificate | Claim | str: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    def to_dict(self) -> dict[str, Any]: ...

    def save(self, path: str | Path) -> None: ...


@dataclass(frozen=True)
class Job:
    """One run of a learner in its folder."""

    folder: Path
    ledger: str | None
    name: str
    """The run's, in the ledger."""

    seed: int | None
    id: str
    """What the policy says it was learned by, in all copies of the run; see `privrl.data.marks`."""

    formats: tuple[str, ...]
    """Of the logs."""

    again: bool
    """Whether there is a checkpoint to go on from."""

    progress: Progress
    stop: Callable[[], bool]

    @contextmanager
    def open_ledger(self) -> Iterator[Ledger | None]:
        """The ledger, if there is one: a run that begins pays only under a name of its own."""
        with nullcontext() if self.ledger is None else Ledger.open(self.ledger) as opened:
            if opened is not None and not self.again:
                opened.expect_new_run(self.name)
            yield opened

    def session(self, ledger: Ledger | None, public: bool = False) -> PrivacySession:
        """Who pays for the run, by the ledger that is open."""
        run = None if ledger is None else self.name
        return PrivacySession(ledger=ledger, run=run, seed=self.seed, public=public)


class RunEnd(NamedTuple):
    """How a run ended."""

    learned: Any
    """A `Result`; None if the run was stopped."""

    done: int
    planned: int
    """Of what `Runner.progress_unit` says."""


@dataclass(frozen=True)
class Runner(Spec, ABC):
    """A spec, and how its learner is run."""

    CHECKPOINTS: ClassVar[tuple[str, ...]]
    """The files in a run's folder from which it can go on; only their owner may read them."""

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

    # --- what each learner knows of its own -------------------------------------------------------

    @property
    def progress_unit(self) -> str:
        """In what people are told how far a run is."""
        return "episodes"

    @property
    @abstractmethod
    def count(self) -> int:
        """How many episodes the run takes."""

    @property
    @abstractmethod
    def no_curve_reason(self) -> str | None:
        """Why returns cannot be logged, in a sentence; None if they can."""

    @abstractmethod
    def program(self, swept: Sequence[str] = ()) -> Program:
        """The learner as a program, of which `swept` are the settings that replicas have."""

    @abstractmethod
    def play(self, job: Job) -> RunEnd:
        """Learn, from the beginning or the checkpoint, to the end or until it is stopped."""

    @abstractmethod
    def write(self, learned: Any, job: Job) -> dict[str, Path]:
        """The files of a finished run that only this learner has, by what they are."""

    @abstractmethod
    def summarize(self, learned: Any) -> tuple[list[str], list[str]]:
        """What was learned, for people: lines, and sentences that stand after the promise."""

    # --- what learners share ----------------------------------------------------------------------

    def has_checkpoint(self, folder: Path) -> bool:
        """Whether there is a checkpoint in a run's folder."""
        return any((folder / name).exists() for name in self.CHECKPOINTS)


@dataclass(frozen=True)
class EnvironmentRunner(Runner, EnvironmentOptions):
    """A learner that acts in an environment."""

    def environment(self) -> Env:
        """The environment."""
        if self.env is None:
            refuse_missing(
                "env",
                f"which environment to learn in, such as {self.EXAMPLE}",
                f"There are {', '.join(BUILTIN)}, and all that Gymnasium knows by their ids",
            )
        return make(self.env)


@dataclass(frozen=True)
class FeaturesRunner(FeaturesSpec, Runner):
    """A learner that sees states by features."""

    def features_of(self, env: Env, word: str) -> Features | Network:
        """Features of the environment's states, by name."""
        kind, _, rest = word.partition(":")
        if kind == "network":
            return network_of(rest)
        seen = env.observation
        if kind == "table":
            if isinstance(seen, Discrete):
                return OneHot(seen.n)
            raise InputError(f"{env.name} observes numbers, so there is no table: say others.")
        if kind not in SCALED:
            raise InputError(
                f"must be table, polynomial:2, fourier:3 or network:16, not {word!r}.",
                field="features",
            )
        degree = positive_integer("The order of features", rest or "2")
        low, high = self.ranges(env)
        return Polynomial(degree, low, high) if kind == "polynomial" else Fourier(degree, low, high)

    def is_bounded(self, env: Env) -> bool:
        """Whether the environment says between which ends its numbers are."""
        seen = env.observation
        return isinstance(seen, Discrete) or bool(
            np.all(np.abs([*seen.low, *seen.high]) < _UNBOUNDED)
        )

    def ranges(self, env: Env) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Between which ends the states are scaled."""
        seen = env.observation
        if isinstance(seen, Discrete):
            return (0.0,), (float(seen.n - 1),)
        if self.state_range is not None:
            return box(self.state_range, len(seen.low))
        if not self.is_bounded(env):
            refuse_missing(
                "state_range",
                "what each of the numbers observed could be, such as -2:2,0:10",
                f"{env.name} does not say",
            )
        return seen.low, seen.high


def _refuse_paper_mode(given: dict[str, Any]) -> None:
    """Take out a mode that says what is always so now; the other one is a learner of its own."""
    if given.get("mode") in ("certified", "recipe"):
        del given["mode"]
    elif "mode" in given:
        paper = PRINTED.get(given["learner"])
        instead = f": the paper's algorithm is the learner {paper}" if paper else ""
        raise InputError(f"There are no modes any more{instead}. Leave mode out.")


def network_of(sizes: str, features: Features | None = None) -> Network:
    """A network by its sizes, which stand behind network: in a word."""
    try:
        return Network(tuple(int(size) for size in (sizes or "16").split(",")), features)
    except ValueError:
        raise InputError("network needs sizes, by commas, such as network:16,16.") from None


def runner_of(learner: Any) -> type[Any]:
    """The runner of a learner, by the learner's name."""
    found: type[Any] = load(spec_of(learner).RUNNER)
    return found
