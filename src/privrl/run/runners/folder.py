"""A run in its folder: played, stopped, resumed, and written down.

- run.json: the words, from which `resume_in` goes on after a stop or a crash;
- result.json: what was learned; written last, so that a folder with it is whole;
- certificate.json or claim.json: the promise by itself;
- the learner's own files, such as policy.json for `privrl evaluate`, and logs, if the learning
  curve may be kept;
- until the end a checkpoint and the key of the noise, which only their owner may read.

A run has its folder to itself: another one in it is refused until it has ended, or was killed.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privrl.control.engine import CHECKPOINT, remove_checkpoint
from privrl.core import compilation, files
from privrl.core.errors import InputError
from privrl.core.progress import Progress, no_progress
from privrl.core.text import note_lines
from privrl.data import marks
from privrl.envs.registry import is_builtin
from privrl.privacy.certificate import Certificate, Claim
from privrl.privacy.certificate_card import promise_note
from privrl.privacy.ledger import Ledger
from privrl.privacy.resuming import KEY_FILE
from privrl.privacy.session import PrivacySession
from privrl.run.logs import paths as log_paths
from privrl.run.parsing import check_not_empty
from privrl.run.runners.base import Result, Runner
from privrl.run.runners.playing import Job
from privrl.run.specs.base import refuse_modules
from privrl.run.training import never_stop

if TYPE_CHECKING:
    from privrl.run.dry_run import DryRun

RUN, RESULT = "run.json", "result.json"
CERTIFICATE, CLAIM = "certificate.json", "claim.json"
_KIND = "privrl run"
_FORMAT = 2


@dataclass(frozen=True)
class FinishedRun:
    """What a run came to."""

    runner: Runner
    learned: Result | None
    """None if it was stopped, and can be resumed."""

    done: int
    planned: int
    written: Mapping[str, Path]

    def lines(self) -> list[str]:
        """What was learned, and what it promises, for a screen of 79 columns."""
        assert self.learned is not None
        lines, more = self.runner.summarize(self.learned)
        promise = self.learned.promise
        notes = [promise_note(promise)]
        certified = promise.certified if isinstance(promise, Claim) else promise
        if isinstance(certified, Certificate) and self.learned.settings.get("seed") is not None:
            notes.append("The seed makes the noise no secret: for experiments, it protects nobody.")
        return [*lines, *note_lines([*notes, *more])]


class ResultNotSaved(InputError):  # noqa: N818 (the public name says what happened)
    """What was learned, and perhaps paid for, could not be written."""

    def __init__(self, message: str, learned: Result) -> None:
        super().__init__(message)
        self.learned = learned


def train_in(
    runner: Runner,
    folder: str | Path,
    *,
    ledger: str | Path | None = None,
    name: str | None = None,
    seed: int | None = None,
    formats: Sequence[str] | None = None,
    progress: Progress = no_progress,
    stop: Callable[[], bool] = never_stop,
) -> FinishedRun:
    """Run a learner in an empty folder; see the module for what is in there afterwards.

    `ledger` is that of those who are protected, which pays before anything is played, under the
    run's `name`, by default the folder's. Without a `seed` all randomness is secret. `formats` are
    those of the logs.
    """
    place = Path(folder)
    with files.lock_folder(place):
        _is_finished(place)  # which removes what a kill left
        run, listed = _check_start(runner, place, ledger, name, formats)
        words = {
            "words": runner.to_dict(),
            "ledger": None if ledger is None else os.path.realpath(ledger),
            "name": run,
            "seed": seed,
            "id": marks.new_run_id(seed, [Path(one) for one in getattr(runner, "table", ())]),
            "formats": listed,
        }
        files.write_json(place / RUN, {"kind": _KIND, "format": _FORMAT, **words})
        try:
            return _run(runner, _job(place, words, False, progress, stop))
        except BaseException:
            # Nothing was begun that could be resumed, also if somebody interrupted.
            if not has_checkpoint(place):
                with suppress(OSError):
                    (place / RUN).unlink()
                for log in log_paths(place, listed).values():
                    with suppress(OSError):
                        if log.stat().st_size == 0:
                            log.unlink()
            raise


def dry_run_in(
    runner: Runner,
    folder: str | Path,
    ledger: str | Path | None = None,
    name: str | None = None,
    formats: Sequence[str] | None = None,
    seed: int | None = None,
) -> "DryRun":
    """What `train_in` would do; refused where it would be, before anything is played or paid."""
    from privrl.run.dry_run import check_writable
    from privrl.run.runners.trial import dry_run

    check_writable(folder)
    run, _ = _check_start(runner, Path(folder), ledger, name, formats)
    with nullcontext() if ledger is None else Ledger.open(ledger) as opened:
        called = None if opened is None else run
        runner.rehearse(PrivacySession(ledger=opened, run=called, seed=seed, public=runner.public))
    promise = CLAIM if runner.is_paper else CERTIFICATE
    return dry_run(runner.preview(), (RESULT, promise, *runner.FILES), folder, ledger, run)


def _check_start(
    runner: Runner,
    place: Path,
    ledger: str | Path | None,
    name: str | None,
    formats: Sequence[str] | None,
) -> tuple[str, list[str]]:
    """Refuse to begin in a folder with another run, or with options that do not go together.

    Returns the run's name, and the formats of its logs.
    """
    if (place / RESULT).exists():
        raise InputError(f"{str(place)!r} holds a run already: say another folder.")
    # A key without run.json is that of an evaluation.
    if not _is_failed_start(place) if (place / RUN).exists() else (place / KEY_FILE).exists():
        raise InputError(
            f"{str(place)!r} holds an interrupted run: resume it, or say another folder."
        )
    if ledger is not None and runner.no_ledger_reason is not None:
        raise InputError(runner.no_ledger_reason)
    if name is not None and ledger is None:
        raise InputError("--name is the run's name in a ledger: say which with --ledger.")
    if formats and runner.no_curve_reason is not None:
        raise InputError(runner.no_curve_reason)
    run = place.resolve().name if name is None else check_not_empty("--name", name)
    if ledger is not None:
        # Its certificate is that of all entries under the name, which is more than was asked for.
        with Ledger.open(ledger) as opened:
            opened.refuse_existing_run(run)
    listed = ([] if runner.no_curve_reason else ["csv"]) if formats is None else list(formats)
    own = [place / one for one in (CLAIM if runner.is_paper else CERTIFICATE, *runner.FILES)]
    for taken_file in (*own, *log_paths(place, listed).values()):
        # Empty logs are of runs that failed before they had begun.
        if taken_file.exists() and taken_file.stat().st_size:
            raise InputError(
                f"{str(taken_file)!r} is there already, and a run would write its own: say another "
                "folder."
            )
    return run, listed


def resume_in(
    folder: str | Path,
    *,
    env: str | None = None,
    progress: Progress = no_progress,
    stop: Callable[[], bool] = never_stop,
) -> FinishedRun:
    """Go on with a run that was stopped or killed.

    `env` is the environment's name once more, which is needed if a module is imported for it: what
    the folder says is not enough for that.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"There is no run to resume in {str(place)!r}.")
    with files.lock_folder(place):
        if _is_finished(place):
            raise InputError(f"The run in {str(place)!r} is finished: there is nothing to resume.")
        if not (place / RUN).exists():
            raise InputError(f"There is no run to resume in {str(place)!r}.")
        words = files.read_json(place / RUN, _KIND, _FORMAT, "a run")
        refuse_modules(words.get("words"), env, place / RUN)
        try:
            if words["words"].get("mode") == "paper":
                raise InputError(
                    f"{str(place)!r} holds a run of an earlier version: go on with the version "
                    "that the run was begun with."
                )
            runner: Runner = Runner.of(words["words"])
            job = _job(place, words, True, progress, stop)
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"{str(place / RUN)!r} is damaged.") from None
        if not has_checkpoint(place):
            raise InputError(
                f"The run in {str(place)!r} has no checkpoint, so it cannot go on: start it again."
            )
        return _run(runner, job)


def _is_failed_start(place: Path) -> bool:
    """Whether the run in a folder was killed before its checkpoint was there, so nobody paid."""
    try:
        Runner.of(files.read_json(place / RUN, _KIND, _FORMAT, "a run")["words"])
    except (InputError, KeyError, TypeError, AttributeError):
        return False
    return not has_checkpoint(place)


def has_checkpoint(folder: Path) -> bool:
    """Whether there is something to go on from in a run's folder."""
    return any((folder / name).exists() for name in (CHECKPOINT, KEY_FILE))


def _job(
    folder: Path,
    words: Mapping[str, Any],
    again: bool,
    progress: Progress,
    stop: Callable[[], bool],
) -> Job:
    known = {name: words[name] for name in ("ledger", "name", "seed", "id")}
    formats = tuple(words["formats"])
    return Job(folder, **known, formats=formats, again=again, progress=progress, stop=stop)


def _run(runner: Runner, job: Job) -> FinishedRun:
    env = getattr(runner, "env", None)
    with compilation.keep(public=env is not None and is_builtin(env)):
        learned, done, planned = runner.play(job)
    if learned is None:
        return FinishedRun(runner, None, done, planned, {})
    try:
        return FinishedRun(runner, learned, done, planned, _write_files(runner, learned, job))
    except InputError as error:
        raise ResultNotSaved(error.text, learned) from None


def _write_files(runner: Runner, learned: Result, job: Job) -> dict[str, Path]:
    """The files of a finished run."""
    folder, promise = job.folder, learned.promise
    written: dict[str, Path] = {}
    if isinstance(promise, Certificate):
        written["certificate"] = folder / CERTIFICATE
        files.write(written["certificate"], promise.to_json().encode(), secret=False)
    elif isinstance(promise, Claim):
        written["claim"] = folder / CLAIM
        files.write_json(written["claim"], promise.to_dict())
    # Tables of millions of states take seconds for each file.
    job.progress("writing the policy", None)
    written |= runner.write(learned, job)
    job.progress("writing the result", None)
    # Last: a folder with a result.json is whole.
    written["result"] = folder / RESULT
    learned.save(written["result"])
    # If a kill comes before it, whoever goes on or begins here does it again: `_is_finished`.
    remove_checkpoint(folder)
    return written


def _is_finished(place: Path) -> bool:
    """Whether a result is there; what a kill left beside one of ours goes: the key, too.

    Other programs write files of these names too, and theirs stay.
    """
    if not (place / RESULT).exists():
        return False
    with suppress(InputError):
        if (files.kind_of(files.load_json(place / RESULT)) or "").startswith("privrl "):
            remove_checkpoint(place)
    return True
