"""How errors name parameters on the command line: as options, or as keys of its configuration."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from privrl.cli.printing import CheckFailed, refuse
from privrl.core.errors import InputError, Option, OptionFormatter, PrivRLError, python_option
from privrl.run.parsing import read_config

# By how Python writes them: the options that have other names, or other values, than parameters.
_OPTIONS = {
    "state_vocabulary": Option("states"),
    "action_vocabulary": Option("actions"),
    "fill": Option("nulls"),
    "workers='ray'": Option("ray", "local"),
    "state=['...']": Option("state_range", "LOW:HIGH"),
}


class Command(TyperCommand):
    """A command that refuses in the words of its own options."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PrivRLError as error:
            return refuse(error, option_formatter(ctx))
        except CheckFailed as failed:
            return refuse(failed.error, option_formatter(ctx), code=1, **failed.answer)


def option_formatter(context: Any) -> OptionFormatter:
    """The words for the command of a context of Typer's, as it was called.

    What a sentence says of a given value is said of an option only if the option was given: the
    value may come from elsewhere. What is no option of this command is named as in Python.
    """
    options = {one.name: one.opts[0] for one in context.command.params if "--" in one.opts[0]}
    sources = {name: context.get_parameter_source(name) for name in options}
    said = {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}
    keys = _config_keys(context.params.get("config")) - said

    def format_option(one: Option) -> str:
        named = one._replace(name=_OPTIONS.get(one.name, one).name)
        name, value, _ = _OPTIONS.get(python_option(one), named)
        shown = _format_value(value)
        if not name:
            return shown
        if name in keys:
            plain = value if isinstance(value, bool | int | float) else shown
            return name if value is None else f"{name} = {json.dumps(plain)}"
        if name not in options or (one.given and name not in said):
            return python_option(one)
        return f"{options[name]} {shown}".rstrip()

    return format_option


def _config_keys(config: Path | None) -> set[str]:
    with suppress(InputError):
        return set() if config is None else set(read_config(config))
    return set()


def _format_value(value: object) -> str:
    """A value as it is typed."""
    if isinstance(value, Mapping):
        # Of rules for nulls, of which that to fill is said by the value to fill with.
        return ",".join(f"{name}={0 if rule == 'fill' else rule}" for name, rule in value.items())
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None or value is True else str(value)
