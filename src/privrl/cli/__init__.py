"""The command line, a module for each command.

Every command takes `--json`. Bad input is answered by one sentence on standard error and exit code
2, and leaves nothing half written. Each command imports what it needs, so that help comes at once.
"""

import gc
import io
import sys
import traceback
import warnings
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.main import get_command

from privrl import __version__
from privrl.cli.derived import spec_function
from privrl.cli.ledger import ledger_app
from privrl.cli.option_names import Command
from privrl.cli.printing import begin, drop_output, refuse, say, warn
from privrl.cli.train import train_app
from privrl.core import compilation
from privrl.core.errors import PrivRLError
from privrl.core.text import strip_ansi

# The base of typer's own usage errors, which moved between packages over its versions.
_UsageError: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="privrl",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Names in any script, on terminals that know only some.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.excepthook = _print_traceback
    compilation.allow()
    # Modules stay. To look through them for garbage, again and again, took a tenth of a start.
    gc.set_threshold(50_000)
    code = run(arguments)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        code = _handle_write_error(error)
    sys.exit(code)


_GONE = {
    "--mode": "A paper's algorithm is a learner of its own, such as seo2020-actor-critic: privrl "
    "train --help lists them.",
    "--lanes": "It is called --replicas now.",
}


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    begin(sys.argv[1:] if arguments is None else arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _warn
            # A program of which a kill left half on disk is compiled once more.
            warnings.filterwarnings("ignore", ".*persistent compilation cache")
            code = _commands()(args=arguments, prog_name="privrl", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except OSError as error:
        if error.filename is None:
            return _handle_write_error(error)
        reason = error.strerror or "the system refuses"
        return refuse(f"{str(error.filename)!r} cannot be used: {reason}.", kind="OSError")
    except (OverflowError, MemoryError, RecursionError) as error:
        too_large = "These numbers are too large, or too deeply nested, to compute with."
        return refuse(too_large, kind=type(error).__name__)
    except PrivRLError as error:
        return refuse(error)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            # The help of `privrl` or `privrl ledger` alone.
            say(*str(error).split("\n"), aside=True)
            return 2
        gone = getattr(error, "option_name", None)
        if gone in _GONE:
            return refuse(f"No such option: {gone}. {_GONE[gone]}")
        return refuse(error.format_message())
    except Exception as error:  # what is not for people keeps its traceback
        if type(error).__name__ == "JaxRuntimeError" and "out of memory" in str(error).lower():
            return refuse(
                "There is not enough memory for this. What was paid for is kept: go on with "
                "--resume where there is more, or when there is.",
                kind="MemoryError",
            )
        raise
    return code if isinstance(code, int) else 0


@cache
def _commands() -> Any:
    """All commands, as typer makes them: once in a process."""
    return get_command(app)


def _handle_write_error(error: OSError) -> int:
    """Standard output takes no more: what a command keeps, it has written to its files by now."""
    drop_output()
    if isinstance(error, BrokenPipeError):
        return 0  # Whoever read our output has seen enough.
    reason = error.strerror or "the system does not say why"
    return refuse(
        f"Standard output or a temporary file cannot be written: {reason}. What was to be kept in "
        "files or paid in a ledger before that is there.",
        kind="OSError",
    )


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    warn(strip_ansi(str(message)))  # Gymnasium colours its warnings


def _print_traceback(*raised: Any) -> None:
    """The traceback of an error that is ours, in which a file may have put its words."""
    say(*"".join(traceback.format_exception(*raised)).rstrip().split("\n"), aside=True)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"privrl {__version__}")
        raise typer.Exit()


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Differentially private reinforcement learning."""


# A module for each command: with its options, or, if specs of others have them, what it runs.
_COMMANDS = (
    "budget verify keygen sign audit limits init check evaluate report risk sweep reproduce demo"
)
for _name in _COMMANDS.split():
    _module = vars(import_module(f"privrl.cli.{_name}"))
    app.command(_name, cls=Command)(_module.get("run") or spec_function(_module["Options"]))
app.add_typer(ledger_app, name="ledger")
app.add_typer(train_app, name="train")
