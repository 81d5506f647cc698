"""From words to a learner: what `tacit train` and `tacit sweep` were told, and the run's folder.

A `Lesson` holds the words of the command line and of a configuration file, which use the same
names. What is needed and was not said is asked for in one sentence that says what to type. `teach`
plays it into a folder:

- run.json: the words, from which `teach_on` goes on after a stop or a crash;
- result.json: what was learned, as `Learned.load` reads it; written last, so that a folder with it
  is whole;
- certificate.json or claim.json: the promise by itself; policy.json for `tacit evaluate`;
- logs, if the learning curve may be kept: the people are public, or it was paid for;
- until the end a checkpoint, which only its owner may read.
"""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tacit.control.actor_critic import (
    STATE,
    ActorCritic,
    CertifiedProgram,
    Learned,
    learned_as_printed,
)
from tacit.control.increments import Floats, Network
from tacit.control.paper_actor_critic import PaperProgram
from tacit.control.program import Program
from tacit.data import Features, Fourier, OneHot, Polynomial
from tacit.envs.base import Box, Discrete, Environment
from tacit.envs.host import HostEnvironment
from tacit.envs.registry import OURS, make
from tacit.envs.tabular import TabularMDP
from tacit.privacy import files
from tacit.privacy.certificate import Certificate, Claim
from tacit.privacy.errors import InputError
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise import reproducible, secure
from tacit.privacy.promise import Budget
from tacit.run.evaluation import Progress, silent
from tacit.run.logs import EPISODE, Logs, Row
from tacit.run.logs import paths as log_paths
from tacit.run.parsing import box, configured, number, pair, whole
from tacit.run.sweep import Plan
from tacit.run.training import Lanes, forget, never, resume, train

Env = Environment[Any, Any] | HostEnvironment

RUN, RESULT = "run.json", "result.json"
_KIND = "tacit run"
_FORMAT = 1

_LEARNERS = ("actor-critic",)
# Features that need to know between which ends numbers are.
_SCALED = ("polynomial", "fourier")
# Some environments whose numbers have no ends say the largest that 32 bits hold.
_UNBOUNDED = 1e30
# About this one run rather than about what is learned, so that no file can hold them.
_COMMAND_ONLY = ("config", "json", "ledger", "logs", "name", "out", "ray", "resume", "seed")
_WHOLE = ("people", "episodes", "batch", "max_steps")
_FLOATS = (
    *("epsilon", "delta", "gamma", "lambda_", "actor_step", "critic_step", "correction_step"),
    *("exploration", "average", "critic_weight", "entropy", "curve_weight"),
)
# What the agent takes as it was said.
_SETTINGS = (
    *("mode", "variant", "gamma", "lambda_", "actor_step", "critic_step", "max_steps", "batch"),
    *("noise", "optimiser", "schedule", "average", "critic_weight", "entropy", "curve"),
    *("curve_weight", "correction_step", "acting", "exploration", "correction"),
)


@dataclass(frozen=True)
class Lesson:
    """The words, by the names of the options; None where nothing was said."""

    learner: str = "actor-critic"
    env: str | None = None
    mode: str | None = None
    """certified or paper."""

    variant: str | None = None
    people: int | None = None
    episodes: int | None = None
    """The same as `people`."""

    epsilon: float | None = None
    delta: float | None = None
    public: bool = False
    features: str | None = None
    """table, polynomial:2, fourier:3 or network:16,16."""

    critic_features: str | None = None
    state_range: str | None = None
    gamma: float | None = None
    lambda_: float | None = None
    actor_step: float | None = None
    critic_step: float | None = None
    correction_step: float | None = None
    clip: str | None = None
    """A number, or median in paper mode."""

    max_steps: int | None = None
    batch: int | None = None
    noise: str | None = None
    optimiser: str | None = None
    schedule: str | None = None
    average: float | None = None
    critic_weight: float | None = None
    entropy: float | None = None
    return_range: str | None = None
    curve: str | None = None
    curve_weight: float | None = None
    acting: str | None = None
    exploration: float | None = None
    correction: str | None = None
    said: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, words: Mapping[str, Any], config: str | Path | None = None) -> "Lesson":
        """What was said on the command line, over what the configuration file says."""
        known = [one.name for one in fields(cls) if one.name != "said"]
        given = _given(words, config)
        for name in given:
            if name in _COMMAND_ONLY:
                raise InputError(f"{name} belongs on the command line: say --{name} there.")
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise InputError(f"There is no option {name!r}.{hint}")
        return cls(**{n: _word(n, v) for n, v in given.items()}, said=tuple(given))

    def __post_init__(self) -> None:
        if self.learner not in _LEARNERS:
            raise InputError(
                f"There is no learner {self.learner!r}: what can be trained is "
                f"{', '.join(_LEARNERS)}."
            )

    def to_dict(self) -> dict[str, Any]:
        """What was said: `of` makes the same of it."""
        return {name: getattr(self, name) for name in self.said}

    @property
    def is_paper(self) -> bool:
        return self.mode == "paper"

    @property
    def keeps_curve(self) -> bool:
        """Whether returns may be shown: nobody's, or noised and paid for."""
        return self.public or self.curve == "paid"

    # --- what it is about -------------------------------------------------------------------------

    def environment(self) -> Env:
        """The environment."""
        if self.env is None:
            _ask(
                "env",
                "which environment to learn in, such as Taxi-v4",
                f"There are {', '.join(OURS)}, and all that Gymnasium knows by their ids",
            )
        return make(self.env)

    @property
    def count(self) -> int:
        """How many people play, an episode each."""
        if self.people is not None and self.episodes is not None:
            raise InputError("--people and --episodes say the same in two ways: leave one out.")
        found = self.episodes if self.people is None else self.people
        if found is None:
            _ask("people", "how many people play an episode each, such as 500", _EPISODES)
        return found

    def agent(self, env: Env, *, noised: bool = True) -> ActorCritic:
        """The learner; without `noised` its noise is said elsewhere."""
        given = {n: getattr(self, n) for n in _SETTINGS if getattr(self, n) is not None}
        if self.clip is not None:
            given["clip"] = self.clip if self.clip == "median" else number("clip", self.clip)
        if self.return_range is not None:
            given["return_range"] = pair("return_range", self.return_range)
        said = [one.partition(":")[0] for one in (self.features, self.critic_features) if one]
        if self.state_range is not None and (
            isinstance(env.observation, Discrete) or not set(said) & set(_SCALED)
        ):
            raise InputError(
                "state_range is for polynomial and fourier features of numbers: leave it out."
            )
        for name in ("features", "critic_features"):
            if getattr(self, name) is not None:
                given[name] = self._features(env, getattr(self, name))
        if self.features is None and isinstance(env.observation, Box) and not self.is_paper:
            _ask(
                "features",
                "in which form to see the states, such as fourier:2, polynomial:2 or network:16",
                f"{env.name} observes {len(env.observation.low)} numbers, so there is no table",
            )
        return ActorCritic(budget=self._budget(noised), **given)

    def program(self, swept: Sequence[str] = ()) -> Program:
        """The learner as a program, of which `swept` are the settings that lanes have."""
        env = self.environment()
        agent = self.agent(env, noised="sigma" not in swept)
        if not self.is_paper:
            if isinstance(env, HostEnvironment):
                raise InputError(
                    f"{env.name} cannot be compiled, so its runs are played one by one: use tacit "
                    "train."
                )
            return CertifiedProgram(agent, env, self.count)
        if not isinstance(env, TabularMDP):
            raise InputError(
                f"The paper's algorithm is for tables of states, and {env.name} has none."
            )
        return PaperProgram(agent.paper_config, env, sweeps_lambda="lambda_" in swept)

    def _budget(self, noised: bool) -> Budget | None:
        if self.variant == "none":
            if self.epsilon is not None or self.delta is not None:
                raise InputError(
                    "The variant none spends nothing: leave --epsilon and --delta out."
                )
            return None
        if not noised:
            # Stands in for the one that a sweep over sigma has no use for.
            return Budget(self.epsilon or 1.0, self.delta or 1e-6)
        if self.epsilon is None:
            _ask(
                "epsilon",
                "how much is claimed for each step, such as 10"
                if self.is_paper
                else "how much may be given away about each person, such as 1",
                "--variant none learns without noise, and protects nobody",
            )
        if self.delta is None:
            _ask(
                "delta",
                "how likely the promise may fail, such as 1e-6",
                "It should be well below one divided by the number of people",
            )
        if self.delta == 0.0:
            raise InputError("delta must be above 0, because the noise is Gaussian.")
        return Budget(self.epsilon, self.delta)

    def _features(self, env: Env, word: str) -> Features | Network:
        kind, _, rest = word.partition(":")
        if kind == "network":
            try:
                return Network(tuple(int(size) for size in (rest or "16").split(",")))
            except ValueError:
                raise InputError("network needs sizes, by commas, such as network:16,16.") from None
        seen = env.observation
        if kind == "table":
            if isinstance(seen, Discrete):
                return OneHot(seen.n)
            raise InputError(f"{env.name} observes numbers, so there is no table: say others.")
        if kind not in _SCALED:
            raise InputError(
                f"features must be table, polynomial:2, fourier:3 or network:16, not {word!r}."
            )
        degree = whole("The order of features", rest or "2")
        low, high = self._ranges(env)
        return Polynomial(degree, low, high) if kind == "polynomial" else Fourier(degree, low, high)

    def _ranges(self, env: Env) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Between which ends the states are scaled."""
        seen = env.observation
        if isinstance(seen, Discrete):
            return (0.0,), (float(seen.n - 1),)
        if self.state_range is not None:
            return box(self.state_range, len(seen.low))
        if not np.all(np.abs([*seen.low, *seen.high]) < _UNBOUNDED):
            _ask(
                "state_range",
                "what each of the numbers observed could be, such as -2:2,0:10",
                f"{env.name} does not say",
            )
        return seen.low, seen.high


def _given(words: Mapping[str, Any], config: str | Path | None) -> dict[str, Any]:
    """The words, over those of a file; None and False are not said."""
    from_file = {} if config is None else configured(config)
    return from_file | {k: v for k, v in words.items() if v is not None and v is not False}


_EPISODES = "With --episodes it is the same, for simulators with nobody in them"


def _ask(name: str, question: str, hint: str) -> NoReturn:
    option = name.rstrip("_").replace("_", "-")
    raise InputError(f"{name} is needed: say with --{option} {question}. {hint}.")


def _word(name: str, value: Any) -> Any:
    """A value as the command line or a file has it."""
    if name in _WHOLE:
        return whole(name, value)
    if name in _FLOATS:
        found = number(name, value)
        if not math.isfinite(found):
            raise InputError(f"{name} must be finite, not {value}.")
        return found
    if name == "public":
        if not isinstance(value, bool):
            raise InputError(f"public must be true or false, not {value!r}.")
        return value
    if name == "return_range" and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if name == "clip" and isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, not {value!r}.")
    return value


def grid_of(words: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """The values of each setting, out of words such as actor_step=0.1,0.5."""
    grid: dict[str, tuple[float, ...]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not name:
            raise InputError(f"A grid is said as actor_step=0.1,0.5 and not as {word!r}.")
        if name in grid:
            raise InputError(f"{name} is in the grid twice: say all its values at once.")
        grid[name] = tuple(number(name, one) for one in values.split(",") if one.strip())
    return grid


def planned(
    words: Mapping[str, Any],
    grid: Sequence[str],
    options: Sequence[str],
    config: str | Path | None = None,
) -> tuple[Lesson, Plan]:
    """A sweep: what learns, and what is played of it.

    `words` are options, also those of a `Plan`; `grid` are words such as actor_step=0.1,0.5, and
    `options` such as acting=softmax. A configuration file has its grid as a table.
    """
    given = _given(words, config)
    in_file = given.pop("grid", {})
    if not isinstance(in_file, Mapping):
        raise InputError("grid must be a table of settings, each with a list of values.")
    values = {name: _values(name, listed) for name, listed in in_file.items()} | grid_of(grid)
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise InputError(f"Options are set as acting=softmax and not as {option!r}.")
        given[name] = value == "true" if value in ("true", "false") else value
    for name in ("ledger", "logs", "name", "seed"):
        if name in given:
            raise InputError(f"{name} is no option of a sweep: leave it out.")
    plan = {name: given.pop(name) for name in ("seeds", "lanes", "segment") if name in given}
    wholes = {name: whole(name, value) for name, value in plan.items()}
    curves = given.pop("curves", False)
    if not isinstance(curves, bool):
        raise InputError(f"curves must be true or false, not {curves!r}.")
    lesson = Lesson.of(given)
    if not values:
        raise InputError(
            "grid is needed: say with --grid a setting and its values, such as "
            "actor_step=0.1,0.5, once for each setting."
        )
    return lesson, Plan(values, episodes=lesson.count, curves=curves, **{"seeds": 10} | wholes)


def _values(name: str, listed: Any) -> tuple[float, ...]:
    values = listed if isinstance(listed, list | tuple) else [listed]
    return tuple(number(name, value) for value in values)


# --- a run in a folder ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Taught:
    """What a run came to."""

    lesson: Lesson
    learned: Learned | None
    """None if it was stopped, and can be resumed."""

    done: int
    planned: int
    written: Mapping[str, Path]


class NotKept(InputError):  # noqa: N818 (the public name says what happened)
    """What was learned, and perhaps paid for, could not be written."""

    def __init__(self, message: str, learned: Learned) -> None:
        super().__init__(message)
        self.learned = learned


class _Stopped(Exception):  # noqa: N818 (no error: somebody asked for it)
    """After a segment, which is on disk."""


def teach(
    lesson: Lesson,
    folder: str | Path,
    *,
    ledger: str | Path | None = None,
    name: str | None = None,
    seed: int | None = None,
    formats: Sequence[str] | None = None,
    progress: Progress = silent,
    stop: Callable[[], bool] = never,
) -> Taught:
    """Play a lesson into an empty folder; see the module for what is in there afterwards.

    `ledger` is that of the people, who pay before anybody plays, under the run's `name`, by default
    the folder's. Without a `seed` all randomness is secret. `formats` are those of the logs.
    """
    place = Path(folder)
    for taken in (RESULT, RUN):
        if (place / taken).exists():
            raise InputError(f"{str(place)!r} holds a run already: say another folder.")
    if lesson.is_paper and ledger is not None:
        raise InputError("The paper's claim is no certificate, so no ledger can pay: leave it out.")
    if name is not None and ledger is None:
        raise InputError("--name is the run's name in a ledger: say which with --ledger.")
    if formats and not lesson.keeps_curve:
        raise InputError(
            "A log holds returns, which are about people: say --public if nobody is there to "
            "protect, or pay for a curve of the batches with --curve paid."
        )
    listed = (["csv"] if lesson.keeps_curve else []) if formats is None else list(formats)
    log_paths(place, listed)  # refuses formats that there are not
    words = {
        "words": lesson.to_dict(),
        "ledger": None if ledger is None else str(Path(ledger).resolve()),
        "name": name or place.resolve().name,
        "seed": seed,
        "formats": listed,
    }
    files.write_json(place / RUN, {"kind": _KIND, "format": _FORMAT, **words})
    try:
        return _taught(lesson, place, words, False, progress, stop)
    except BaseException:
        # Nothing was begun that could be resumed, also if somebody interrupted.
        if not _begun(place):
            with suppress(OSError):
                (place / RUN).unlink()
        raise


def teach_on(
    folder: str | Path,
    *,
    progress: Progress = silent,
    stop: Callable[[], bool] = never,
) -> Taught:
    """Go on with a run that was stopped or killed."""
    place = Path(folder)
    if (place / RESULT).exists():
        raise InputError(f"The run in {str(place)!r} is finished: there is nothing to resume.")
    if not (place / RUN).exists():
        raise InputError(f"There is no run to resume in {str(place)!r}.")
    words = files.read_json(place / RUN, _KIND, _FORMAT, "a run")
    try:
        lesson = Lesson.of(words["words"])
    except (KeyError, TypeError, AttributeError):
        raise InputError(f"{str(place / RUN)!r} is damaged.") from None
    if not _begun(place):
        raise InputError(
            f"The run in {str(place)!r} has no checkpoint, so it cannot go on: start it again, in "
            "another folder."
        )
    return _taught(lesson, place, words, True, progress, stop)


def _taught(
    lesson: Lesson,
    folder: Path,
    words: Mapping[str, Any],
    again: bool,
    progress: Progress,
    stop: Callable[[], bool],
) -> Taught:
    play = _paper if lesson.is_paper else _certified
    learned, done = play(lesson, folder, words, again, progress, stop)
    if learned is None:
        return Taught(lesson, None, done, lesson.count, {})
    try:
        return Taught(lesson, learned, done, lesson.count, _written(learned, folder, words))
    except InputError as error:
        raise NotKept(str(error), learned) from None


def _certified(
    lesson: Lesson,
    folder: Path,
    words: Mapping[str, Any],
    again: bool,
    progress: Progress,
    stop: Callable[[], bool],
) -> tuple[Learned | None, int]:
    env, people = lesson.environment(), lesson.count
    agent = lesson.agent(env)
    if agent.return_range is None and agent.actor_step is None:
        _ask(
            "return_range",
            "what the return of an episode could be, the lowest first, such as -500,0",
            "Steps and bounds are in units of its width; with an --actor-step of your own it can "
            "be left out",
        )
    done = 0

    def told(played: int, planned: int) -> None:
        nonlocal done
        done = played
        progress(f"{played:,} of {planned:,} people", played / planned)
        if played < planned and stop():
            raise _Stopped

    progress("compiling", None)
    ledger = words["ledger"]
    with nullcontext() if ledger is None else Ledger.open(ledger) as opened:
        try:
            if again:
                learned = agent.resume(folder, env, ledger=opened, progress=told, keep=True)
            else:
                learned = agent.learn(
                    env,
                    people,
                    ledger=opened,
                    run=None if opened is None else words["name"],
                    seed=words["seed"],
                    public=lesson.public,
                    progress=told,
                    checkpoint=folder,
                    keep=True,
                )
        except _Stopped:
            return None, done
    return learned, people


def _paper(
    lesson: Lesson,
    folder: Path,
    words: Mapping[str, Any],
    again: bool,
    progress: Progress,
    stop: Callable[[], bool],
) -> tuple[Learned | None, int]:
    program = lesson.program()
    assert isinstance(program, PaperProgram)
    about = dict(words["words"])
    if again:
        found = resume(program, folder, about=about, progress=progress, stop=stop)
    else:
        progress("compiling", None)
        source = secure() if words["seed"] is None else reproducible(words["seed"])
        found = train(
            program,
            lesson.count,
            Lanes(None),
            keys=source.key()[None],
            folder=folder,
            curve=lesson.public,
            formats=words["formats"],
            about=about,
            progress=progress,
            stop=stop,
        )
    if found.ending != "finished":
        return None, found.episodes
    curve = found.seen["return"][0] if found.seen else None
    try:
        learned = learned_as_printed(program, found.state, found.episodes, curve, words["seed"])
    except InputError:
        # It would end the same way again.
        forget(folder)
        raise
    return learned, found.episodes


def _curve_rows(learned: Learned, curve: Floats) -> list[Row]:
    """A row for each person, if they are public, else for each batch that was paid for."""
    people, batch = learned.settings["people"], learned.settings["batch"]
    each = 1 if curve.size == people else batch
    return [
        {EPISODE: min((number + 1) * each, people), "return": value}
        for number, value in enumerate(curve.tolist())
    ]


def _written(learned: Learned, folder: Path, words: Mapping[str, Any]) -> dict[str, Path]:
    """The files of a finished run."""
    written: dict[str, Path] = {}
    promise = learned.promise
    if isinstance(promise, Certificate):
        written["certificate"] = folder / "certificate.json"
        files.write(written["certificate"], promise.to_json().encode(), secret=False)
    elif isinstance(promise, Claim):
        written["claim"] = folder / "claim.json"
        files.write_json(written["claim"], promise.to_dict())
    if learned.actor is not None and hasattr(learned.policy, "save"):
        written["policy"] = folder / "policy.json"
        learned.policy.save(written["policy"])
    if learned.curve is not None:
        written |= log_paths(folder, words["formats"])
        if learned.settings["mode"] == "certified":  # the other mode logs as it goes
            Logs.open(folder, words["formats"]).write(_curve_rows(learned, learned.curve))
    # Last: a folder with a result.json is whole.
    written["result"] = folder / RESULT
    learned.save(written["result"])
    (folder / STATE).unlink(missing_ok=True)
    forget(folder)
    return written


def _begun(folder: Path) -> bool:
    """Whether there is a checkpoint, whoever wrote it."""
    return any(folder.glob("*.npz"))
