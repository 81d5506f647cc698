"""Commands that are derived from specs: an option for every field, with its line of help."""

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from privrl.cli.option_names import Command
from privrl.core.spec import Option


def function(
    doc: str | None, options: Iterable[Option], call: Callable[[dict[str, Any]], None]
) -> Callable[..., None]:
    """What typer makes a command of, which calls `call` with the options by their names.

    Args:
        doc: The command's help: a line, and what follows it.
        options: Its options, as specs declare them.
        call: What it does.
    """

    def run(**given: Any) -> None:
        call(given)

    listed = [
        inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
        )
        for one in options
        for default, kind in [declaration(one)]
    ]
    run.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {one.name: one.annotation for one in listed}
    run.__doc__ = doc
    return run


def command(name: str, run: Callable[..., None]) -> Any:
    """A command by itself, for a group that makes its commands when they are called."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(name, cls=Command)(run)
    return get_command(app)


def declaration(one: Option) -> tuple[Any, Any]:
    """What typer is to know of an option: its default, and its type with flag and help."""
    if one.argument:
        kind = list[str] | None if one.kind == tuple[str, ...] else str | None
        shown = typer.Argument(metavar=one.name.upper(), help=one.help, show_default=False)
        return None, Annotated[kind, shown]
    if one.kind is bool:
        flag = f"{one.flag}/--no{one.flag[1:]}" if one.default else one.flag
        return (None if one.default else False), Annotated[bool, typer.Option(flag, help=one.text)]
    words = [one.none, *one.choices] if one.none else list(one.choices)
    about: Any = typer.Option(
        one.flag, help=one.text, autocompletion=(lambda: words) if words else None
    )
    if one.repeated:
        return None, Annotated[list[str] | None, about]
    # Lists are typed with commas, and taken apart where they are read, as words are checked there.
    plain = one.kind in (int, float, Path) and not words
    return None, Annotated[one.kind | None if plain else str | None, about]
