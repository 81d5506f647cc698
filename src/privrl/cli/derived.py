"""Commands that are derived from specs: an option for every field, with its line of help.

class Options(CommandSpec):
    \"\"\"What `--help` says of the command.\"\"\"

    rate: float = option("Sampling rate.", 0.1)

    def run(self) -> None: ...
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, dataclass_transform

import typer
from typer.main import get_command

from privrl.cli.option_names import Command
from privrl.cli.printing import answer_in_json
from privrl.core.spec import REQUIRED, Option, Spec
from privrl.run.specs.base import RunOptions


@dataclass_transform(frozen_default=True, kw_only_default=True)
class CommandSpec(Spec):
    """The options of a command, a frozen dataclass, and what the command does with them."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @abstractmethod
    def run(self) -> None:
        """Do it, and print what came of it."""


def spec_function(kind: type[CommandSpec]) -> Callable[..., None]:
    """What typer makes a command of, which reads the options and runs the spec."""
    options = kind.options()

    def call(given: dict[str, Any]) -> None:
        said = {name: value for name, value in given.items() if value is not None}
        for name, value in said.items():
            if not isinstance(value, str):  # what is wrong with text is said where it is used
                said[name] = options[name].read(value)
        kind(**said).run()

    return function(kind.__doc__, options.values(), call)


def function(
    doc: str | None, options: Iterable[Option], call: Callable[[dict[str, Any]], None]
) -> Callable[..., None]:
    """What typer makes a command of, which calls `call` with the options by their names.

    Args:
        doc: The command's help: a line, and what follows it.
        options: Its options, as specs declare them; --json is added.
        call: What it does.
    """

    def run(**given: Any) -> None:
        answer_in_json(given.pop("json"))
        # Lists that nothing was put into are not given.
        call({k: tuple(v) or None if isinstance(v, list) else v for k, v in given.items()})

    named = {one.name: one for one in (*options, RunOptions.options()["json"])}
    declared = {name: declaration(one) for name, one in named.items()}
    listed = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (default, kind) in declared.items()
    ]
    run.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {name: kind for name, (_, kind) in declared.items()}
    run.__doc__ = doc
    return run


def command(name: str, run: Callable[..., None]) -> Any:
    """A command by itself, for a group that makes its commands when they are called."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(name, cls=Command)(run)
    return get_command(app)


def declaration(one: Option) -> tuple[Any, Any]:
    """What typer is to know of an option: its default, and its type with flag and help."""
    if one.kind is bool:
        flag = f"{one.flag}/--no{one.flag[1:]}" if one.default else one.flag
        return (None if one.default else False), Annotated[bool, typer.Option(flag, help=one.text)]
    words = [one.none, *one.choices] if one.none else list(one.choices)
    # Lists are typed with commas, and taken apart where they are read, as words are checked there.
    kind = one.kind if one.kind in (int, float, Path) and not words else str
    if one.repeated or (one.argument and one.kind == tuple[str, ...]):
        kind = list[str]
    if one.argument:
        shown = one.name.upper() if one.argument is True else one.argument
        about: Any = typer.Argument(metavar=shown, help=one.help, show_default=False)
    else:
        complete = (lambda: words) if words else None
        about = typer.Option(one.flag, help=one.text, autocompletion=complete)
    if one.default is REQUIRED:
        return inspect.Parameter.empty, Annotated[kind, about]
    return None, Annotated[kind | None, about]
