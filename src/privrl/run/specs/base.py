"""A task: what `privrl train` is asked, the options of its problem and those of its learner.

    @dataclass(frozen=True)
    class MyTask(EnvironmentTask):
        \"\"\"What `privrl train my-learner --help` begins with.\"\"\"

        people: int | None = option("How many people play an episode each.")

        learner: ClassVar[str] = "my-learner"
        SPEC: ClassVar[type[Spec]] = MySpec        # the learner's own options, declared there

`Task.read` takes the options of a command line or a file and checks them; `to_dict` gives back what
was set.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

from privrl.core.errors import InputError
from privrl.core.spec import Option, Spec, find_option, option, plain_json
from privrl.run.parsing import read_config

# About this one run rather than about what is learned, so that no file can hold them.
COMMAND_ONLY = ("config", "json", "ledger", "logs", "name", "out", "ray", "resume", "seed")


@dataclass(frozen=True)
class Task(Spec):
    """Options that every learner's command has; None where they are not set."""

    public: bool = option("Nobody is there to protect: returns may be shown.", False)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The learner's own options that were set, by name."""

    said: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """All that were set, by name."""

    learner: ClassVar[str] = ""
    SPEC: ClassVar[type[Spec]]
    """The learner's own options."""

    RUNNER: ClassVar[str]
    """Where it is said how the learner is run: module and class."""

    RUN: ClassVar[tuple[str, ...]] = ("ledger", "name", "logs")
    """The options about a run (`RunOptions`) that only some learners have, and this one does."""

    INSTEAD: ClassVar[Mapping[str, str]] = {}
    """Options of other learners, and which of this one's says the same."""

    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Options of other learners, and why this one has none such."""

    @classmethod
    @cache
    def all_options(cls) -> dict[str, Option]:
        """The options of the command: the task's own, then the learner's."""
        own = cls.options()
        return own | cls.SPEC.options() | own

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """The task with these options, by name, as a command line or a file has them."""
        said: dict[str, Any] = {}
        for name, value in given.items():
            if name in cls.REFUSED:
                raise InputError(cls.REFUSED[name], field=name)
            if name != "learner":
                one = option_of_file(cls.all_options(), name, cls.learner, cls.INSTEAD)
                said[one.name] = one.read(value)
        own = {name: value for name, value in said.items() if name in cls.options()}
        settings = {name: value for name, value in said.items() if name not in own}
        return cls(**own, settings=settings, said=said)

    def to_dict(self) -> dict[str, Any]:
        """The learner, and the options that were set, in JSON's own types."""
        return {"learner": self.learner, **plain_json(self.said)}

    def get(self, name: str) -> Any:
        """What was set for the learner's option of this name, or None."""
        return self.settings.get(name)


@dataclass(frozen=True)
class RunOptions(Spec):
    """Options about a run, and not about what is learned in it."""

    config: Path | None = option("TOML or JSON file with these options.")
    ledger: Path | None = option("The ledger of those, or of what is protected, which pays.")
    name: str | None = option("The run's name in the ledger.")
    out: Path | None = option("The run's folder.", shown="runs/<date and time>")
    logs: str | None = option("csv, jsonl, tensorboard: where returns may be shown.")
    seed: int | None = option("Reproducible: for experiments, protects nobody.", low=0)
    resume: bool = option("Go on with the run in --out, which knows its options.", False)
    dry_run: bool = option(
        "Check all that can be checked before anything is read, paid or written.", False
    )
    json: bool = option("Print JSON instead of text.", False)


OPTIONAL = ("ledger", "name", "logs")
"""The options about a run that only some learners have: see `Task.RUN`."""


def option_of_file(
    options: Mapping[str, Option], name: str, of: str, instead: Mapping[str, str] = {}
) -> Option:
    """The option of this name that a file may hold, or why there is none."""
    if name in COMMAND_ONLY:
        raise InputError(f"belongs on the command line: say --{name} there.", field=name)
    return find_option(options, name, of, instead)


def over_config(given: Mapping[str, Any], config: str | Path | None) -> dict[str, Any]:
    """The options given, over those of a configuration file; None and False are not given."""
    from_file = {} if config is None else read_config(config)
    # By identity: 0 is something to say, and equals False.
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
