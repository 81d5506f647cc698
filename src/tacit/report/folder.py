"""A run's folder: the study as data, its certificate by itself, and the report for people."""

from pathlib import Path

from tacit.privacy import files
from tacit.privacy.errors import InputError
from tacit.report.page import write
from tacit.run.study import Study


def write_run(study: Study, folder: str | Path) -> dict[str, Path]:
    """Write study.json, certificate.json (if there is one) and report.html; where they are."""
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{str(place)!r} cannot be made: {error.strerror}.") from None
    written = {"report": place / "report.html", "study": place / "study.json"}
    write(study, written["report"])
    if study.certificate is not None:
        written["certificate"] = place / "certificate.json"
        files.write(written["certificate"], study.certificate.to_json().encode(), secret=False)
    # Last: a folder with a study.json is whole.
    study.save(written["study"])
    return written
