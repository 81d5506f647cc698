"""The files: written, and compared with what cases give now."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from privrl.privacy.resuming import machine_fingerprint
from tests.golden.comparing import How, differences
from tests.golden.running import Case, workshop

FILES = Path(__file__).parent / "files"
MACHINE = "machine.json"


def here() -> list[str]:
    """The kind of machine and the versions that decide last digits, without the package's own."""
    return list(machine_fingerprint()[1:])


def written(
    folder: Path, cases: Iterable[Case], whole: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Write what cases give; `whole` says that these are all there are."""
    folder.mkdir(parents=True, exist_ok=True)
    if whole:
        for path in folder.glob("*.json"):
            path.unlink()
    _write(folder / MACHINE, here())
    with workshop() as run:
        for case in cases:
            _write(folder / f"{case.name}.json", run(case))
            yield case.name, []


def compared(
    folder: Path, cases: Iterable[Case], whole: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """What differs, case by case; if these are all there are, files of no case too."""
    cases = list(cases)
    same = json.loads((folder / MACHINE).read_text()) == here()
    with workshop() as run:
        for case in cases:
            how: How = "exact" if same else "close" if case.sort == "figures" else "shape"
            path = folder / f"{case.name}.json"
            new = json.loads(json.dumps(run(case)))
            if path.exists():
                yield case.name, list(differences(json.loads(path.read_text()), new, how))
            else:
                yield case.name, ["(new case)"]
    if whole:
        known = {MACHINE, *(f"{case.name}.json" for case in cases)}
        for path in sorted(folder.glob("*.json")):
            if path.name not in known:
                yield path.stem, ["(no such case any more)"]


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
