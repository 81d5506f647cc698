"""Files meant by a path, a list of paths, a pattern or a folder."""

import glob
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from privrl.core.errors import InputError
from privrl.core.files import path_exists, reason

Paths = str | Path | Sequence[str | Path]


def files(paths: Paths, suffix: str) -> list[Path]:
    """The files meant by a path, a list of paths, a pattern or a folder; names in order."""
    if isinstance(paths, str | Path):
        given: list[str | Path] = [paths]
    elif isinstance(paths, Sequence):
        given = list(paths)
    else:
        raise InputError("must be a path, a list of paths, a pattern or a folder.", field="paths")
    found: list[Path] = []
    for one in given:
        if not isinstance(one, str | Path):
            raise InputError(f"A path must be text, not {one!r}.")
        if not str(one) or "\0" in str(one):
            raise InputError(f"A path must name a file or a folder, not {str(one)!r}.")
        if "://" in str(one):
            raise InputError(
                f"{one} is not on this machine: copy it, or pass from_table what a library that "
                "can read it hands over."
            )
        path = Path(one)
        if _is_folder(path):
            inside = sorted(
                (p for p in path.rglob(f"*{suffix}") if p.is_file() and not _is_hidden(path, p)),
                key=_natural_sort_key,
            )
            if not inside:
                raise InputError(f"The folder {path} holds no *{suffix} file.")
            found += inside
        elif path_exists(path) or not glob.has_magic(str(one)):
            found.append(path)
        else:
            matching = sorted(map(Path, glob.glob(str(one), recursive=True)), key=_natural_sort_key)
            if not matching:
                raise InputError(f"No file matches {str(one)!r}.")
            found += matching
    if not found:
        raise InputError("There is no file to read.")
    return found


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}.") from None


def _is_hidden(folder: Path, path: Path) -> bool:
    """Names that begin with a dot or an underscore are other tools' own files and folders."""
    return any(part[0] in "._" for part in path.relative_to(folder).parts)


def _natural_sort_key(path: Path) -> list[tuple[int, str]]:
    """Numbers in names count as numbers: part-2 comes before part-10."""
    parts = re.split(r"([0-9]+)", str(path))
    return [(int(p), p) if i % 2 else (0, p) for i, p in enumerate(parts)]


def title(found: Iterable[Path]) -> str:
    names = [str(path) for path in found]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more files"
