"""The preloaded library `shim.c`: how it is built, armed and read."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
_VARIABLE = "PRIVRL_FAULTS"


class Mode(IntEnum):
    """What happens at the n-th call; see `shim.c`."""

    COUNT = 0
    KILL = 1
    TORN = 2
    POWER = 3
    ERROR = 4
    FULL = 5
    SHORT = 6
    SIGNAL = 7


@dataclass(frozen=True)
class Call:
    """One file call below the root."""

    what: str
    path: str

    @property
    def kind(self) -> str:
        """In the ledger (with its journal), the run's folder, or elsewhere."""
        top = self.path.strip("/").partition("/")[0]
        place = "ledger" if top.startswith("ledger") else "run" if top == "run" else "other"
        return f"{self.what} ({place})"


def compiler() -> str | None:
    """A C compiler, if there is one."""
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")


def built() -> Path:
    """The library, compiled once for each state of its source."""
    found = compiler()
    assert found is not None
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"privrl-faults-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    library = place / f"shim-{digest}.so"
    if not library.exists():
        half = library.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [found, "-O1", "-shared", "-fPIC", "-o", half, SOURCE, "-ldl", "-lpthread"], check=True
        )
        half.replace(library)
    return library


def environment(library: Path) -> dict[str, str]:
    """For a process that is to have faults."""
    return {**os.environ, "LD_PRELOAD": str(library), _VARIABLE: str(library)}


class Shim:
    """The library in this process, which was started with it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ[_VARIABLE])
        self._library.faults_calls.restype = ctypes.c_long
        self._library.faults_log.restype = ctypes.c_char_p

    def arm(self, root: Path, shadow: Path, mode: Mode, at: int = 0, error: int = 0) -> None:
        """From now on; `at` 0 is never."""
        self._library.faults_arm(
            os.fsencode(root), os.fsencode(shadow), int(mode), ctypes.c_long(at), error
        )

    def disarm(self) -> None:
        self._library.faults_disarm()

    @property
    def calls(self) -> int:
        return int(self._library.faults_calls())

    @property
    def dead(self) -> bool:
        """Whether the process is dead to the disk."""
        return bool(self._library.faults_dead())

    def lines(self) -> list[str]:
        return os.fsdecode(self._library.faults_log()).splitlines()

    def log(self) -> list[Call]:
        """All calls, in order."""
        found = []
        for line in self.lines():
            if line.startswith("call "):
                _, _, what, *rest = line.split(" ", 3)
                found.append(Call(what, rest[0] if rest else ""))
        return found


# --- power cuts -----------------------------------------------------------------------------------


class Durable:
    """What of a folder survives a power cut: contents and names that were synchronised.

    The strict reading of POSIX: a name is on disk when its folder was synchronised, a content when
    its file was.
    """

    def __init__(self, root: Path) -> None:
        """All that is below `root` now is on disk."""
        self._root = root
        self._generation: dict[int, int] = {}
        self._contents: dict[tuple[int, int], bytes] = {}
        self._folders: dict[tuple[int, int], dict[str, tuple[int, int]]] = {}
        for folder, _, names in os.walk(root):
            at = Path(folder)
            self._folders[self._key(at.stat().st_ino)] = {
                one.name: self._key(one.lstat().st_ino) for one in at.iterdir()
            }
            for name in names:
                self._contents[self._key((at / name).lstat().st_ino)] = (at / name).read_bytes()
        self._top = self._key(root.stat().st_ino)

    def _key(self, number: int) -> tuple[int, int]:
        return number, self._generation.get(number, 0)

    def apply(self, lines: list[str], shadow: Path) -> None:
        """What the library has seen."""
        listing: dict[str, tuple[int, int]] = {}
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind == "gone":
                self._generation[int(rest)] = self._generation.get(int(rest), 0) + 1
            elif kind == "file":
                number, copy = map(int, rest.split())
                self._contents[self._key(number)] = (shadow / str(copy)).read_bytes()
            elif kind == "folder":
                listing = self._folders[self._key(int(rest))] = {}
            elif kind == "has":
                number_text, is_folder, name = rest.split(" ", 2)
                listing[name] = self._key(int(number_text))
                if int(is_folder):
                    self._folders.setdefault(listing[name], {})

    def restore(self) -> None:
        """Make the folder what it would be after the power is back."""
        for one in self._root.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
        self._fill(self._root, self._top)

    def _fill(self, folder: Path, key: tuple[int, int]) -> None:
        for name, inner in self._folders[key].items():
            if inner in self._folders:
                (folder / name).mkdir()
                self._fill(folder / name, inner)
            else:
                (folder / name).write_bytes(self._contents.get(inner, b""))
