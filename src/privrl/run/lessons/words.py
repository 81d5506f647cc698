"""What a learner was told: the words that all learners have, and what each must know of its own.

A `Lesson` is a frozen dataclass whose fields are the options, by name; each learner's is a subclass
in a module of its own, which `LEARNERS` names. What is needed and was not said is asked for in one
sentence that says what to type.
"""

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from importlib import import_module
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
from privrl.run.parsing import (
    box,
    check_not_empty,
    number,
    positive_integer,
    read_config,
    refuse_missing,
)

Env = Environment[Any, Any] | HostEnvironment

LEARNERS = {
    "actor-critic": "privrl.run.lessons.actor_critic:ActorCriticLesson",
    "functional-q": "privrl.run.lessons.functional_q:FunctionalQLesson",
    "logged-q": "privrl.run.lessons.logged_q:LoggedQLesson",
    "prospect": "privrl.run.lessons.prospect_q:ProspectLesson",
    "pgc": "privrl.run.lessons.pgc:PGCLesson",
    "ono2020-pgc": "privrl.papers.ono2020.lesson:OnoLesson",
    "seo2020-actor-critic": "privrl.papers.seo2020.lesson:ActorCriticLesson",
    "wang2019-functional-q": "privrl.papers.wang2019.lesson:FunctionalQLesson",
    "rajabi2022-prospect": "privrl.papers.rajabi2022.lesson:ProspectLesson",
}
"""Where the options of each learner are: module and class. Papers have theirs in their folders."""

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
# About this one run rather than about what is learned, so that no file can hold them.
_COMMAND_ONLY = ("config", "json", "ledger", "logs", "name", "out", "ray", "resume", "seed")


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
    """One run of a lesson in its folder."""

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


class Played(NamedTuple):
    """How a run ended."""

    learned: Any
    """A `Result`; None if the run was stopped."""

    done: int
    planned: int
    """Of what `Lesson.counted` says."""


@dataclass(frozen=True)
class Lesson(ABC):
    """The words, by the names of the options; None where nothing was said."""

    learner: str = "actor-critic"
    env: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    public: bool = False
    gamma: float | None = None
    said: tuple[str, ...] = field(default=(), compare=False)

    CHECKPOINTS: ClassVar[tuple[str, ...]]
    """The files in a run's folder from which it can go on; only their owner may read them."""

    FILES: ClassVar[tuple[str, ...]] = ("policy.json",)
    """The files that only this learner writes."""

    EXAMPLE: ClassVar[str] = "Taxi-v4"
    """An environment that suits the learner."""

    LISTS: ClassVar[tuple[str, ...]] = ()
    """Options that are text, for which a configuration file may have a list of numbers."""

    NUMBERS: ClassVar[tuple[str, ...]] = ()
    """Options that are text, for which a configuration file may have a number."""

    INSTEAD: ClassVar[Mapping[str, str]] = {}
    """Options of other learners, and which of this one's says the same."""

    FROM_ZERO: ClassVar[tuple[str, ...]] = ()
    """Whole numbers that may be 0; the others are at least 1."""

    @classmethod
    def of(cls, words: Mapping[str, Any], config: str | Path | None = None) -> Self:
        """What was said on the command line, over what the configuration file says.

        The word `learner` says whose lesson it is, if this is not one of a certain learner.
        """
        given = spoken(words, config)
        given.setdefault("learner", cls.learner)
        chosen = lesson_of(given["learner"])
        _refuse_paper_mode(given)
        if not issubclass(chosen, cls):
            raise InputError(f"This lesson is for the learner {cls.learner!r}: leave learner out.")
        kinds = {one.name: one.type for one in fields(chosen) if one.name != "said"}
        for name in given:
            if name in _COMMAND_ONLY:
                raise InputError(f"belongs on the command line: say --{name} there.", field=name)
            if name not in kinds:
                known = chosen.INSTEAD.get(name)
                near = [known] if known else difflib.get_close_matches(name, kinds, 1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise InputError(f"There is no option {name!r} of {given['learner']}.{hint}")
        read = {name: chosen._word(name, kinds[name], value) for name, value in given.items()}
        return chosen(**read, said=tuple(given))

    @classmethod
    def _word(cls, name: str, kind: Any, value: Any) -> Any:
        """A value as the command line or a file has it."""
        if kind == int | None:
            return (
                0
                if name in cls.FROM_ZERO and number(name, value) == 0.0
                else positive_integer(name, value)
            )
        if kind == float | None:
            found = number(name, value)
            if not math.isfinite(found):
                raise InputError(f"must be finite, not {value}.", field=name)
            return found
        if kind is bool:
            if not isinstance(value, bool):
                raise InputError(f"must be true or false, not {value!r}.", field=name)
            return value
        if name in cls.LISTS and isinstance(value, list | tuple):
            return ",".join(map(str, value))
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name in cls.NUMBERS and is_number:
            return repr(value)
        if not isinstance(value, str):
            raise InputError(f"must be text, not {value!r}.", field=name)
        return check_not_empty(name, value)

    def to_dict(self) -> dict[str, Any]:
        """What was said: `of` makes the same of it."""
        return {name: getattr(self, name) for name in self.said}

    @property
    def is_paper(self) -> bool:
        """Whether a paper's algorithm learns, which yields a claim."""
        return False

    # --- what each learner knows of its own -------------------------------------------------------

    @property
    def counted(self) -> str:
        """In what people are told how far a run is."""
        return "episodes"

    @property
    @abstractmethod
    def count(self) -> int:
        """How many episodes the run takes."""

    @property
    @abstractmethod
    def why_no_curve(self) -> str | None:
        """Why returns cannot be logged, in a sentence; None if they can."""

    @abstractmethod
    def program(self, swept: Sequence[str] = ()) -> Program:
        """The learner as a program, of which `swept` are the settings that replicas have."""

    @abstractmethod
    def play(self, job: Job) -> Played:
        """Learn, from the beginning or the checkpoint, to the end or until it is stopped."""

    @abstractmethod
    def write(self, learned: Any, job: Job) -> dict[str, Path]:
        """The files of a finished run that only this learner has, by what they are."""

    @abstractmethod
    def told(self, learned: Any) -> tuple[list[str], list[str]]:
        """What was learned, for people: lines, and sentences that stand after the promise."""

    # --- what learners share ----------------------------------------------------------------------

    def begun(self, folder: Path) -> bool:
        """Whether there is a checkpoint in a run's folder."""
        return any((folder / name).exists() for name in self.CHECKPOINTS)

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
class FeaturesLesson(Lesson):
    """Options of learners that see states by features."""

    features: str | None = None
    """table, polynomial:2, fourier:3 or network:16,16."""

    state_range: str | None = None

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

    def bounded(self, env: Env) -> bool:
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
        if not self.bounded(env):
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


def lesson_of(learner: Any) -> type[Any]:
    """The lesson of a learner, by the learner's name."""
    if not isinstance(learner, str):
        raise InputError(f"must be text, not {learner!r}.", field="learner")
    if learner not in LEARNERS:
        raise InputError(
            f"There is no learner {learner!r}: what can be trained is {', '.join(LEARNERS)}."
        )
    home, _, name = LEARNERS[learner].partition(":")
    found: type[Any] = getattr(import_module(home), name)
    return found


def spoken(words: Mapping[str, Any], config: str | Path | None) -> dict[str, Any]:
    """The words, over those of a file; None and False are not said."""
    from_file = {} if config is None else read_config(config)
    said = {k: v for k, v in words.items() if v is not None and v is not False}
    if config is not None and "env" not in said:
        refuse_modules(from_file, None, config)
    asked, found = said.get("learner"), from_file.get("learner")
    if asked is not None and found is not None and asked != found:
        raise InputError(f"{str(config)!r} is for the learner {found!r}, and you said {asked!r}.")
    return from_file | said


def refuse_modules(words: object, env: str | None, where: str | Path) -> None:
    """Refuse an environment that a file names if making it would import a module of its choice.

    Gymnasium takes `module:Id` for what it is to import first. So whoever hands over a run's folder
    or a configuration could have any code run. `env` is what the caller says, whom we trust: it is
    taken if it is the same.
    """
    held = words.get("env") if isinstance(words, Mapping) else None
    if env is not None and env != held:
        raise InputError(f"{str(where)!r} is about the environment {held!r}, and you said {env!r}.")
    if env is None and isinstance(held, str) and ":" in held:
        raise InputError(
            f"{str(where)!r} names the environment {held!r}, for which a module is imported: say "
            "--env with the same name if you trust it."
        )
