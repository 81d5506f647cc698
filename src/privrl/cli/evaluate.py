"""`privrl evaluate`: the value of a policy from logged decisions."""

import os
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from privrl.cli.common import folder_to_resume, new_folder
from privrl.cli.derived import function
from privrl.cli.printing import answer, drop_output, say, shell_quote
from privrl.core.errors import InputError, PrivRLError
from privrl.core.progress import progress_bar
from privrl.core.spec import option
from privrl.run.specs.base import RunOptions
from privrl.run.specs.table import EvaluateOptions

if TYPE_CHECKING:
    from privrl.run.request import Request
    from privrl.run.study import Study


@dataclass(frozen=True)
class EvaluationRun(RunOptions):
    """Options about a run of `privrl evaluate`."""

    ray: str | None = option("Gather on Ray: local, or a cluster's address.")


def _evaluate(given: dict[str, Any]) -> None:
    if given["resume"]:
        return _resume(folder_to_resume(given), given["ray"])
    run_evaluation(given, EvaluationRun(**{name: given.pop(name) for name in _RUN}))


_RUN = {n: one for n, one in EvaluationRun.options().items() if n not in ("logs", "json")}
run = function(EvaluateOptions.__doc__, (EvaluateOptions.options() | _RUN).values(), _evaluate)


def run_evaluation(words: dict[str, Any], run: EvaluationRun, unused: Path | None = None) -> None:
    """Answer, and write the run's folder: --out, or one that was not there before."""
    from privrl.core import files
    from privrl.run.dry_run import dry_run
    from privrl.run.parsing import check_not_empty
    from privrl.run.releasing import reserve_folder
    from privrl.run.request import Request

    asked = Request.of(words, run.config)
    if run.name is not None and run.ledger is None:
        raise InputError("--name is the run's name in a ledger: say which with --ledger.")
    new = run.out or unused or new_folder("runs")
    if run.dry_run:
        found = dry_run(asked, new, run.ledger, run.name or new.resolve().name)
        return answer(found.to_dict(), *found.lines())
    with (
        files.create_unique_folder(new) if run.out is None else nullcontext(new) as folder,
        reserve_folder(folder),
    ):
        ledger = None if run.ledger is None else os.path.realpath(run.ledger)
        about = {"asked": asked.to_dict(), "ledger": ledger, "ray": run.ray}
        name = folder.resolve().name if run.name is None else run.name
        named = None if ledger is None else check_not_empty("--name", name)
        _run_request(asked, folder, about, run=named, seed=run.seed)


def _resume(out: Path, ray: str | None) -> None:
    """Go on with an evaluation that was interrupted."""
    from privrl.core import files
    from privrl.privacy.resuming import KEY_FILE, NoiseKey
    from privrl.report import folder as folders
    from privrl.run.releasing import STUDY
    from privrl.run.request import Request

    nothing = InputError(f"There is no evaluation to resume in {str(out)!r}.")
    if not out.is_dir():
        raise nothing
    with files.lock_folder(out):
        if (out / STUDY).exists():
            if folders.is_finished(out):
                raise InputError(
                    f"The run in {str(out)!r} is finished: there is nothing to resume."
                )
            return _print_study(*folders.finish(out), out)
        if not (out / KEY_FILE).exists():
            raise nothing
        about = NoiseKey.read(out).about
        try:
            asked, ledger, begun = Request.of(about["asked"]), about["ledger"], about["ray"]
        except (KeyError, TypeError, AttributeError):
            raise nothing from None
        if ray is not None and begun is None:
            raise InputError("This run was begun without --ray: leave it out.")
        if ray is None and begun not in (None, "local"):
            # Rows go there before anything shows that the folder is of a run on this table.
            raise InputError(
                f"The run in {str(out)!r} was gathered on the Ray cluster {begun!r}, to which "
                "people's rows are sent: say --ray with the same address, or local, if you trust "
                "it."
            )
        _run_request(asked, out, {"ledger": ledger, "ray": ray or begun}, resume=True)


def _run_request(asked: "Request", folder: Path, about: dict[str, Any], **options: Any) -> None:
    from privrl.privacy import Ledger
    from privrl.privacy.resuming import KEY_FILE
    from privrl.report.folder import try_report, write_run
    from privrl.report.text import study_lines

    ledger, ray, study = about["ledger"], about["ray"], None
    if ray is not None:
        from privrl.run.cluster import gather

        options["gather"] = partial(gather, workers="ray" if ray == "local" else ray)
    kept = "What was begun is kept, and costs nothing again: privrl evaluate --out "
    kept += f"{shell_quote(folder)} --resume"
    try:
        with (
            nullcontext() if ledger is None else Ledger.open(ledger) as opened,
            progress_bar(None) as advance,
        ):
            study = asked.run_study(
                ledger=opened,
                folder=folder,
                about=about,
                tried=try_report,
                progress=advance,
                **options,
            )
        written = write_run(study, folder)
    except KeyboardInterrupt:
        if not (folder / KEY_FILE).exists():
            raise
        say(f"Stopped. {kept}", aside=True)
        raise typer.Exit(130) from None
    except Exception as error:  # what was paid for is shown or kept; it is raised again
        if study is not None:
            # It has been paid for: what cannot be kept is at least shown.
            with suppress(OSError):
                answer(study.to_dict(), *study_lines(study))
        if not (folder / KEY_FILE).exists():
            raise
        if isinstance(error, PrivRLError):
            raise InputError(error.text + f" {kept}") from None
        say(f"privrl: {kept}", aside=True)
        raise
    _print_study(study, written, folder)


def _print_study(study: "Study", written: dict[str, Path], folder: Path) -> None:
    """Print a study that is in its folder; what cannot be printed is still there."""
    from privrl.report.text import study_lines

    told = {name: str(path) for name, path in written.items()}
    report = f"The report is {shell_quote(told['report'])}."
    try:
        answer({**study.to_dict(), "files": told}, *study_lines(study), report)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise InputError(
            f"Standard output cannot be written: {error.strerror}. The study is in "
            f"{shell_quote(folder)}."
        ) from None
