"""`privrl report`: a study as a page."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from privrl.cli.common import Json
from privrl.cli.printing import answer, shell_quote


def report(
    run_folder: Annotated[Path, Argument(help="A run's folder, with its study.json.")],
    out: Annotated[
        Path | None, Option(help="Where to write; by default report.html in the folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a run again."""
    from privrl.privacy import InputError, PrivRLError
    from privrl.privacy.resuming import KEY_FILE
    from privrl.report import write
    from privrl.run.runners import RUN
    from privrl.run.study import Study

    target = out or run_folder / "report.html"
    if (run_folder / RUN).exists() and not (run_folder / "study.json").exists():
        raise InputError(
            f"{str(run_folder)!r} holds what `privrl train` learned: a report is about what "
            "`privrl evaluate` found."
        )
    if (run_folder / KEY_FILE).exists() and not (run_folder / "study.json").exists():
        raise InputError(
            f"{str(run_folder)!r} holds an interrupted run: go on with it by privrl evaluate --out "
            f"{shell_quote(run_folder)} --resume"
        )
    try:
        write(Study.load(run_folder / "study.json"), target)
    except PrivRLError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # Details of results are of any form; those that were edited need not fit together.
        held = str(run_folder / "study.json")
        raise InputError(f"{held!r} is damaged: what it holds cannot be shown.") from None
    answer(as_json, {"report": str(target)}, f"The report is {shell_quote(target)}.")
