"""A run's folder: the study as data, its certificate by itself, and the report for people.

Until all three are there the folder also holds the key of the noise, if the run was kept in it
(`privrl.run.evaluation.evaluate`): from it, or from study.json once that is there, a run that was
killed goes on.
"""

import json
from pathlib import Path

from privrl.core import files
from privrl.core.errors import InputError
from privrl.privacy import resuming
from privrl.privacy.resuming import KEY_FILE, NoiseKey
from privrl.report.page import render, write
from privrl.run.releasing import CERTIFICATE, REPORT, STUDY
from privrl.run.study import Study


def write_run(study: Study, folder: str | Path) -> dict[str, Path]:
    """Write study.json, certificate.json (if there is one) and report.html; where they are.

    The key of the noise, if there is one, goes last: the run has ended.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{str(place)!r} cannot be made: {error.strerror}.") from None
    with files.lock_folder(place):
        if (place / KEY_FILE).exists() and NoiseKey.read(place).about.get(
            "created"
        ) != study.created:
            raise InputError(f"{str(place)!r} holds another run, interrupted: say another folder.")
        # First: everything else follows from it.
        study.save(place / STUDY)
        return _write_missing(place)


def is_finished(folder: str | Path) -> bool:
    """Whether a run's study is there, and all that follows from it."""
    place = Path(folder)
    if not (place / STUDY).exists() or (place / KEY_FILE).exists():
        return False
    certified = Study.load(place / STUDY).certificate is not None
    return (place / REPORT).exists() and (not certified or (place / CERTIFICATE).exists())


def finish(folder: str | Path) -> tuple[Study, dict[str, Path]]:
    """Write what is missing beside a study.json, and forget the key."""
    place = Path(folder)
    with files.lock_folder(place):
        return Study.load(place / STUDY), _write_missing(place)


def _write_missing(place: Path) -> dict[str, Path]:
    written = {"report": place / REPORT, "study": place / STUDY}
    # As it was written, so that it is the same whenever the report is made.
    study = Study.load(written["study"])
    if study.certificate is not None:
        written["certificate"] = place / CERTIFICATE
        files.write(written["certificate"], study.certificate.to_json().encode(), secret=False)
    write(study, written["report"])
    resuming.forget(place)
    return written


def try_report(study: Study) -> None:
    """Do everything with `study` that `write_run` does, but for files; what fails is refused."""
    text = json.dumps(study.to_dict(), allow_nan=False)
    render(Study.from_dict(json.loads(text))).encode()
