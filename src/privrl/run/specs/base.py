"""A spec: a frozen dataclass whose fields are the options of a learner.

    @dataclass(frozen=True)
    class MySpec(Spec):
        \"\"\"What `privrl train my-learner --help` begins with.\"\"\"

        learner: str = "my-learner"
        rate: float | None = option("Learning rate.")

`Spec.of` reads the options of a command line over those of a configuration file and checks them;
`to_dict` gives back what was set.
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from privrl.core.errors import InputError
from privrl.run.parsing import check_not_empty, number, positive_integer, read_config

# About this one run rather than about what is learned, so that no file can hold them.
_COMMAND_ONLY = ("config", "json", "ledger", "logs", "name", "out", "ray", "resume", "seed")


def option(
    help_text: str, default: Any = None, *, argument: bool = False, repeated: bool = False
) -> Any:
    """A field of a spec, with its line of help.

    Args:
        help_text: What the option is, in a line.
        default: None if it is not set: then the learner's default holds.
        argument: Whether it is given without its name, as files are.
        repeated: Whether it may be given several times.
    """
    about = {"help": help_text, "argument": argument, "repeated": repeated}
    return field(default=default, metadata=about)


class Declared:
    """What has options: its fields that were made by `option`."""

    @classmethod
    def options(cls) -> list[Field[Any]]:
        """The fields that are options."""
        return [one for one in fields(cls) if "help" in one.metadata]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Options(Declared):
    """Options that everything private has; None where they are not set."""

    epsilon: float | None = option("Privacy budget epsilon.")
    delta: float | None = option("Failure probability delta.")
    public: bool = option("Nobody is there to protect: returns may be shown.", False)
    gamma: float | None = option("Discount factor.")
    said: tuple[str, ...] = field(default=(), compare=False)
    """The names of the options that were set."""

    def to_dict(self) -> dict[str, Any]:
        """The options that were set, in JSON's own types."""
        given = {name: getattr(self, name) for name in self.said}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in given.items()}


@dataclass(frozen=True)
class Spec(Options):
    """Options that all learners have."""

    learner: str = ""

    RUNNER: ClassVar[str]
    """Where it is said how the learner is run: module and class."""

    RUN: ClassVar[tuple[str, ...]] = ("ledger", "name", "logs")
    """The options about a run (`RunOptions`) that only some learners have, and this one does."""

    LISTS: ClassVar[tuple[str, ...]] = ()
    """Options that are text, for which a configuration file may have a list of numbers."""

    NUMBERS: ClassVar[tuple[str, ...]] = ()
    """Options that are text, for which a configuration file may have a number."""

    INSTEAD: ClassVar[Mapping[str, str]] = {}
    """Options of other learners, and which of this one's says the same."""

    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Options of other learners, and why this one has none such."""

    FROM_ZERO: ClassVar[tuple[str, ...]] = ()
    """Whole numbers that may be 0; the others are at least 1."""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """The spec with these options, by name, as a command line or a file has them."""
        kinds = {one.name: one.type for one in cls.options()}
        # Words of Python's are fields with an underscore: lambda_.
        given = {n if n in kinds or f"{n}_" not in kinds else f"{n}_": given[n] for n in given}
        for name in given:
            if name in cls.REFUSED:
                raise InputError(cls.REFUSED[name], field=name)
            if name in _COMMAND_ONLY:
                raise InputError(f"belongs on the command line: say --{name} there.", field=name)
            if name not in kinds and name != "learner":
                known = cls.INSTEAD.get(name)
                near = [known] if known else difflib.get_close_matches(name, kinds, 1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise InputError(f"There is no option {name!r} of {cls.learner}.{hint}")
        read = {name: cls._value(name, kinds.get(name, str), given[name]) for name in given}
        return cls(**read, said=tuple(given))

    @classmethod
    def _value(cls, name: str, kind: Any, value: Any) -> Any:
        """A value as the command line or a file has it."""
        if kind == int | None:
            if name in cls.FROM_ZERO:
                if number(name, value) == 0.0:
                    return 0
                if number(name, value) < 0.0:
                    raise InputError(
                        f"must be a whole number of at least 0, not {value}.", field=name
                    )
            return positive_integer(name, value)
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


@dataclass(frozen=True)
class RunOptions(Declared):
    """Options about a run, and not about what is learned in it."""

    config: Path | None = option("TOML or JSON file with these options.")
    ledger: Path | None = option("The ledger of those, or of what is protected, which pays.")
    name: str | None = option("The run's name in the ledger.")
    out: Path | None = option("The run's folder; default: runs/<date and time>.")
    logs: str | None = option("csv, jsonl, tensorboard: where returns may be shown.")
    seed: int | None = option("Reproducible: for experiments, protects nobody.")
    resume: bool = option("Go on with the run in --out, which knows its options.", False)
    json: bool = option("Print JSON instead of text.", False)


OPTIONAL = ("ledger", "name", "logs")
"""The options about a run that only some learners have: see `Spec.RUN`."""


@dataclass(frozen=True)
class EnvironmentOptions(Declared):
    """Options of learners that act in an environment."""

    env: str | None = option("Where to learn: Taxi-v4, MDP100, an id of Gymnasium's, ...")

    EXAMPLE: ClassVar[str] = "Taxi-v4"
    """An environment that suits the learner."""


@dataclass(frozen=True)
class FeaturesSpec(Spec):
    """Options of learners that see states by features."""

    features: str | None = option("Of states: table, polynomial:2, fourier:3 or network:16.")
    state_range: str | None = option("What states could be, such as -2:2,0:10.")


def over_config(given: Mapping[str, Any], config: str | Path | None) -> dict[str, Any]:
    """The options given, over those of a configuration file; None and False are not given."""
    from_file = {} if config is None else read_config(config)
    said = {k: v for k, v in given.items() if v is not None and v is not False}
    if config is not None and "env" not in said:
        refuse_modules(from_file, None, config)
    asked, found = said.get("learner"), from_file.get("learner")
    if asked is not None and found is not None and asked != found:
        raise InputError(f"{str(config)!r} is for the learner {found!r}, and you said {asked!r}.")
    return from_file | said


def refuse_modules(options: object, env: str | None, where: str | Path) -> None:
    """Refuse an environment that a file names if making it would import a module of its choice.

    Gymnasium takes `module:Id` for what it is to import first. So whoever hands over a run's folder
    or a configuration could have any code run. `env` is what the caller says, whom we trust: it is
    taken if it is the same.
    """
    held = options.get("env") if isinstance(options, Mapping) else None
    if env is not None and env != held:
        raise InputError(f"{str(where)!r} is about the environment {held!r}, and you said {env!r}.")
    if env is None and isinstance(held, str) and ":" in held:
        raise InputError(
            f"{str(where)!r} names the environment {held!r}, for which a module is imported: say "
            "--env with the same name if you trust it."
        )
