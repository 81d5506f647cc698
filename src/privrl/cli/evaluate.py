"""`privrl evaluate`: the value of a policy from logged decisions."""

import io
import os
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from privrl.cli.common import progress, refuse_options
from privrl.cli.derived import function
from privrl.cli.printing import answer, say, shell_quote
from privrl.core.spec import option
from privrl.run.specs.base import RunOptions
from privrl.run.specs.table import EvaluateOptions

if TYPE_CHECKING:
    from privrl.run.request import Request
    from privrl.run.study import Study


def _evaluate(given: dict[str, Any]) -> None:
    about = {name: given.pop(name) for name in _RUN_OPTIONS}
    given["table"] = tuple(given["table"] or ())
    resume, as_json = about.pop("resume"), about.pop("json")
    if resume:
        said = {name: about[name] for name in ("config", "ledger", "name", "seed", "dry_run")}
        _resume(given | said, about["out"], about["ray"], as_json)
    else:
        run_evaluation(given, **about, as_json=as_json)


_RUN_OPTIONS = ("config", "ledger", "name", "out", "seed", "ray", "resume", "dry_run", "json")


@dataclass(frozen=True)
class _EvaluationRun(RunOptions):
    ray: str | None = option("Gather on Ray: local, or a cluster's address.")


evaluate = function(
    EvaluateOptions.__doc__,
    [
        *EvaluateOptions.options().values(),
        *(one for one in _EvaluationRun.options().values() if one.name != "logs"),
    ],
    _evaluate,
)


def run_evaluation(
    words: dict[str, Any],
    config: Path | None = None,
    ledger: Path | None = None,
    name: str | None = None,
    out: Path | None = None,
    seed: int | None = None,
    ray: str | None = None,
    as_json: bool = False,
    unused: Path | None = None,
    dry_run: bool = False,
) -> None:
    """Answer, and write the run's folder: `out`, or one that was not there before."""
    from datetime import datetime

    from privrl.core import files
    from privrl.privacy import InputError
    from privrl.run import dry_run as trial
    from privrl.run.parsing import check_not_empty
    from privrl.run.releasing import reserve_folder
    from privrl.run.request import Request

    asked = Request.of(words, config)
    if name is not None and ledger is None:
        raise InputError("--name is the run's name in a ledger: say which with --ledger.")
    new = unused or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    if dry_run:
        found = trial.dry_run(asked, out or new, ledger, name or (out or new).resolve().name)
        return answer(as_json, found.to_dict(), *found.lines())
    with (
        files.create_unique_folder(new) if out is None else nullcontext(out) as folder,
        reserve_folder(folder),
    ):
        about = {
            "asked": asked.to_dict(),
            "ledger": None if ledger is None else os.path.realpath(ledger),
            "ray": ray,
        }
        named = folder.resolve().name if name is None else name
        run = None if ledger is None else check_not_empty("--name", named)
        _run_request(asked, folder, about, as_json, run=run, seed=seed)


def _resume(words: dict[str, Any], out: Path | None, ray: str | None, as_json: bool) -> None:
    """Go on with an evaluation that was interrupted."""
    from privrl.core import files
    from privrl.privacy import InputError
    from privrl.privacy.resuming import KEY_FILE, NoiseKey
    from privrl.report import folder as folders
    from privrl.run.releasing import STUDY
    from privrl.run.request import Request

    refuse_options(words, out, words.pop("config"), {})
    assert out is not None
    nothing = InputError(f"There is no evaluation to resume in {str(out)!r}.")
    if not out.is_dir():
        raise nothing
    with files.lock_folder(out):
        if (out / STUDY).exists():
            if folders.is_finished(out):
                raise InputError(
                    f"The run in {str(out)!r} is finished: there is nothing to resume."
                )
            study, written = folders.finish(out)
            _print_study(study, written, out, as_json)
            return
        if not (out / KEY_FILE).exists():
            raise nothing
        about = NoiseKey.read(out).about
        try:
            asked = Request.of(about["asked"])
            about = {"ledger": about["ledger"], "ray": about["ray"]}
        except (KeyError, TypeError, AttributeError):
            raise nothing from None
        if ray is not None:
            if about["ray"] is None:
                raise InputError("This run was begun without --ray: leave it out.")
            about["ray"] = ray
        elif about["ray"] not in (None, "local"):
            # Rows go there before anything shows that the folder is of a run on this table.
            raise InputError(
                f"The run in {str(out)!r} was gathered on the Ray cluster {about['ray']!r}, to "
                "which people's rows are sent: say --ray with the same address, or local, if you "
                "trust it."
            )
        _run_request(asked, out, about, as_json, resume=True)


def _run_request(
    asked: "Request", folder: Path, about: dict[str, Any], as_json: bool, **options: Any
) -> None:
    from privrl.privacy import InputError, Ledger, PrivRLError
    from privrl.privacy.resuming import KEY_FILE
    from privrl.report.folder import try_report, write_run

    if about["ray"] is not None:
        options["gather"] = _ray_gather(about["ray"])
    study = None
    try:
        with (
            nullcontext() if about["ledger"] is None else Ledger.open(about["ledger"]) as opened,
            progress(None) as advance,
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
        say(f"Stopped. {_resume_hint(folder)}", aside=True)
        raise typer.Exit(130) from None
    except Exception as error:  # what was paid for is shown or kept; it is raised again
        if study is not None:
            # It has been paid for: what cannot be kept is at least shown.
            with suppress(OSError):
                _show(study, as_json)
        if not (folder / KEY_FILE).exists():
            raise
        if isinstance(error, PrivRLError):
            raise InputError(error.text + f" {_resume_hint(folder)}") from None
        say(f"privrl: {_resume_hint(folder)}", aside=True)
        raise
    _print_study(study, written, folder, as_json)


def _resume_hint(folder: Path) -> str:
    return (
        "What was begun is kept, and costs nothing again: privrl evaluate --out "
        f"{shell_quote(folder)} --resume"
    )


def _show(study: "Study", as_json: bool, *more: str, **others: Any) -> None:
    from privrl.report.text import study_lines

    answer(as_json, {**study.to_dict(), **others}, *study_lines(study), *more)


def _print_study(study: "Study", written: dict[str, Path], folder: Path, as_json: bool) -> None:
    """Print a study that is in its folder; what cannot be printed is still there."""
    from privrl.privacy import InputError

    try:
        told = {name: str(path) for name, path in written.items()}
        _show(study, as_json, f"The report is {shell_quote(told['report'])}.", files=told)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # Else Python would try once more when it ends.
        with suppress(OSError, io.UnsupportedOperation):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise InputError(
            f"Standard output cannot be written: {error.strerror}. The study is in "
            f"{shell_quote(folder)}."
        ) from None


def _ray_gather(address: str) -> Any:
    from functools import partial

    from privrl.run.cluster import gather

    return partial(gather, workers="ray" if address == "local" else address)
