"""`privrl report`: a study as a page."""

from pathlib import Path

from privrl.cli.derived import CommandSpec
from privrl.cli.printing import answer, shell_quote
from privrl.core.errors import InputError, PrivRLError
from privrl.core.spec import REQUIRED, option


class Options(CommandSpec):
    """Write the report of a run again."""

    run_folder: Path = option("A run's folder, with its study.json.", REQUIRED, argument=True)
    out: Path | None = option("Where to write.", shown="report.html in the folder")

    def run(self) -> None:
        from privrl.privacy.resuming import KEY_FILE
        from privrl.report import write
        from privrl.run.runners import RUN
        from privrl.run.study import Study

        folder, held = self.run_folder, self.run_folder / "study.json"
        if (folder / RUN).exists() and not held.exists():
            raise InputError(
                f"{str(folder)!r} holds what `privrl train` learned: a report is about what "
                "`privrl evaluate` found."
            )
        if (folder / KEY_FILE).exists() and not held.exists():
            raise InputError(
                f"{str(folder)!r} holds an interrupted run: go on with it by privrl evaluate --out "
                f"{shell_quote(folder)} --resume"
            )
        target = self.out or folder / "report.html"
        try:
            write(Study.load(held), target)
        except PrivRLError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # Details of results are of any form; those that were edited need not fit together.
            raise InputError(f"{str(held)!r} is damaged: what it holds cannot be shown.") from None
        answer({"report": str(target)}, f"The report is {shell_quote(target)}.")
