"""Commands that are derived from specs: an option for every field, with its line of help."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import Field
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from privrl.cli.option_names import Command


def function(
    doc: str | None, fields: Iterable["Field[Any]"], call: Callable[[dict[str, Any]], None]
) -> Callable[..., None]:
    """What typer makes a command of, which calls `call` with the options by their fields' names.

    Args:
        doc: The command's help: a line, and what follows it.
        fields: Its options, made by `privrl.run.specs.option`.
        call: What it does.
    """

    def run(**given: Any) -> None:
        call(given)

    listed = [
        inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
        )
        for one in fields
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


def declaration(one: "Field[Any]") -> tuple[Any, Any]:
    """What typer is to know of a field: its default, and its type with flag and help."""
    text, flag = one.metadata["help"], "--" + one.name.rstrip("_").replace("_", "-")
    if one.metadata["argument"]:
        kind = one.type if one.type == str | None else list[str] | None
        shown = typer.Argument(metavar=one.name.upper(), help=text, show_default=False)
        return None, Annotated[kind, shown]
    if one.type is bool:
        return False, Annotated[bool, typer.Option(flag, help=text)]
    if one.metadata["repeated"]:
        return None, Annotated[list[str] | None, typer.Option(flag, help=text)]
    # Lists are typed with commas, and taken apart where they are read, as words are checked there.
    kind = one.type if one.type in _AS_DECLARED else str | None
    return one.default, Annotated[kind, typer.Option(flag, help=text)]


_AS_DECLARED = (int, int | None, float | None, Path | None)
