"""Files that are there as a whole or not at all, and secret ones that only their owner may read."""

import errno
import fcntl
import io
import json
import os
import stat
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privrl.core.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Characters: a longer file of JSON is nothing that people read.
_MAX_INDENTED = 2**22

_PARTIAL_SUFFIX = ".privrl-half"
"""How the name of a file ends that is not whole yet; what a kill leaves of it is nobody's."""


def check_regular(path: str | Path) -> None:
    """Refuse what is there but is no regular file, with an OSError as `open` raises it.

    Opening a FIFO waits for somebody to write, and a device may have no end.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "It is a pipe, a socket or a device, and no file", str(path))


def read_bytes(path: str | Path) -> bytes:
    """All bytes of a regular file; an OSError or ValueError as `open` raises them if there is none.

    Every file that a user names and that is read as a whole is read by this function.
    """
    check_regular(path)
    # Should a FIFO have come into its place meanwhile, this does not wait either.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read()


def read_text(path: str | Path) -> str:
    """All text of a regular file in UTF-8, with line feeds between its lines."""
    return read_bytes(path).decode().replace("\r\n", "\n").replace("\r", "\n")


def reason(error: OSError | ValueError) -> str:
    """Why a file cannot be read or written, for people."""
    found = error.strerror if isinstance(error, OSError) else None
    return found or ("it is not text" if isinstance(error, UnicodeError) else str(error))


def path_exists(path: str | Path) -> bool:
    """Whether there is anything at `path`; a name that cannot be one is refused in a sentence."""
    try:
        return Path(path).exists()
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be used: {reason(error)}.") from None


def write(path: str | Path, content: bytes, *, secret: bool) -> None:
    """Put `content` at `path`, or leave what was there before; nothing is left half done.

    A secret file has mode 0600 from its first byte on; any other 0644, without the bits that the
    process's umask takes away. What is there and is no regular file is refused: the new file would
    take the place of a device, which a privileged process may do, and /dev/null would be a file.
    """
    target = Path(path)
    temporary: str | None = None
    try:
        if target.exists():
            check_regular(target)
        # Temporary files are made with mode 0600, before anything is in them. Of a long name they
        # have the beginning alone, so that theirs is not too long where the file's own is not.
        handle, temporary = tempfile.mkstemp(
            _PARTIAL_SUFFIX, f".{target.name[:40]}.", target.parent
        )
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if not secret:
                os.fchmod(file.fileno(), 0o644 & ~_umask())
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
    except BaseException as error:
        # Also when the user interrupts: what is half written may be a secret.
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError | ValueError):
            raise InputError(f"{str(path)!r} cannot be written: {reason(error)}.") from None
        raise


def sync_folder(folder: Path) -> None:
    """Have the names of a folder's files on disk: after a power cut, a file without one is lost.

    Where the system does not let one ask for it, it keeps names in order by itself.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return  # One may write there, and not list.
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


@contextmanager
def create_unique_folder(path: str | Path) -> Iterator[Path]:
    """A folder that was not there before: `path`, or with a number behind if that is taken.

    Of several processes that ask at the same time each has one of its own. Gone again if there is
    nothing to keep.
    """
    first, number = Path(path), 1
    tried = first
    with create_folder(first.parent):
        while True:
            try:
                tried.mkdir()
                break
            except FileExistsError:
                number += 1
                tried = first.with_name(f"{first.name}-{number}")
            except FileNotFoundError:
                # Another process made the folders above, and had nothing to keep in them.
                with suppress(OSError):
                    tried.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f"{str(tried)!r} cannot be made: {error.strerror}.") from None
        try:
            sync_folder(tried.parent)
            yield tried
        except BaseException:
            with suppress(OSError):
                tried.rmdir()
            raise


@contextmanager
def create_folder(path: str | Path) -> Iterator[None]:
    """`path`, made before anything is paid for, and gone again if there is nothing to keep."""
    place = Path(path)
    new: list[Path] = []
    try:
        try:
            new += [one for one in (place, *place.parents) if not one.exists()]
            place.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()
            for one in new:
                sync_folder(one.parent)
        except (OSError, ValueError) as error:
            # A path with a NUL character is a ValueError.
            raise InputError(f"{str(path)!r} cannot be written to: {reason(error)}.") from None
        yield
    except BaseException:
        for one in new:
            # Another run may have put its own folder into one of them meanwhile.
            with suppress(OSError):
                one.rmdir()
        raise


LOCK = ".lock"
"""In a folder that a run has to itself; it holds nothing, and a leftover one stops nobody."""

_LOCKED = threading.local()


@contextmanager
def lock_folder(path: str | Path) -> Iterator[None]:
    """Have the folder `path` to oneself, or refuse because another run has it.

    The system gives the lock back when its process ends, however it ends, and whoever has it next
    removes what that process left half written. Whoever has it may ask again in the same thread, as
    a function does that is called by another.
    """
    place = Path(os.path.realpath(path))
    held: set[Path] = _LOCKED.__dict__.setdefault("folders", set())
    if place in held:
        yield
        return
    lock = _acquire_lock(place, str(path))
    held.add(place)
    try:
        # Nobody is writing here now: what is half written was left by a kill, and may be a secret.
        try:
            for name in PACKAGE_NAMES:
                for left in place.glob(f".*.{name}-half"):
                    left.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"{str(path)!r} cannot be written to: {error.strerror}.") from None
        yield
    finally:
        held.remove(place)
        # While it is still locked: who opened it meanwhile sees that it is gone, and tries again.
        with suppress(OSError):
            (place / LOCK).unlink()
        os.close(lock)


def _acquire_lock(place: Path, shown: str) -> int:
    """A descriptor whose lock is on the file that is in the folder now."""
    while True:
        try:
            lock = os.open(place / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InputError(f"{shown!r} cannot be written to: {error.strerror}.") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.stat(place / LOCK)):
                return lock
        except FileNotFoundError:
            pass  # It went with the run that had it.
        except OSError as error:
            os.close(lock)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise InputError(
                    f"Another process is at work in {shown!r}: wait until it ends, or say another "
                    "folder."
                ) from None
            raise InputError(
                f"{shown!r} cannot be locked, so two runs could be at work in it: "
                f"{error.strerror}. Say a folder on another disk."
            ) from None
        except BaseException:
            os.close(lock)  # Whoever is interrupted does not have it.
            raise
        os.close(lock)


def write_json(path: str | Path, value: Any) -> None:
    """Put `value` at `path` as JSON for people; JSON has no NaN and no infinities.

    What is too long for people to read is put on one line, which takes a fraction of the time.
    """
    try:
        text = json.dumps(value, allow_nan=False)
        if len(text) < _MAX_INDENTED:
            text = json.dumps(value, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be written as JSON: {error}.") from None
    write(path, text.encode(), secret=False)


def canonical_json(value: object) -> str:
    """The one JSON text of `value`, of which digests are: keys sorted, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def fields_to_json(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass in JSON's own types: enums by value, tuples as lists."""
    return {one.name: _to_json(getattr(instance, one.name)) for one in fields(instance)}


def _to_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_to_json(one) for one in value]
    if is_dataclass(value):
        return value.to_dict() if hasattr(value, "to_dict") else fields_to_json(value)
    return value


class DuplicateKeyError(InputError):
    """JSON in which an object has one key twice: two readers may take it for two things."""


def parse_json(text: str | bytes, **options: Any) -> Any:
    """The value of `text`: every JSON that we are given is read by this function.

    A key that an object has twice is a `DuplicateKeyError`, since readers differ in which of the
    two they take. What is not JSON is a ValueError or RecursionError, as `json.loads` has it, which
    takes `options`.
    """
    return json.loads(text, object_pairs_hook=_reject_duplicates, **options)


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise DuplicateKeyError(f"The key {key!r} is there twice.")
        found[key] = value
    return found


def load_json(path: str | Path) -> Any:
    """The JSON at `path`, or a sentence why there is none."""
    try:
        return parse_json(read_text(path))
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {reason(error)}.") from None
    except DuplicateKeyError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{str(path)!r} is not JSON.") from None


PACKAGE_NAMES = ("privrl", "tacit")
"""This package's name, and the one that it had before."""


def kind_of(data: object) -> str | None:
    """What a JSON object of ours says that it is: its kind, under the package's present name."""
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if not isinstance(kind, str):
        return None
    name, _, rest = kind.partition(" ")
    return f"{PACKAGE_NAMES[0]} {rest}" if name in PACKAGE_NAMES else kind


def read_json(path: str | Path, kind: str, format: int, what: str) -> dict[str, Any]:
    """The object at `path`, if it says that it is of this kind and format; `what` is for people."""
    data = load_json(path)
    if kind_of(data) != kind or not isinstance(data, dict):
        raise InputError(f"{str(path)!r} is not {what}.")
    if data.get("format") != format:
        raise InputError(f"{str(path)!r} was written by another version of privrl.")
    return data


def read_npz(path: str | Path, damaged: InputError) -> "dict[str, NDArray[Any]]":
    """All arrays in an npz file, by name; `damaged` is raised if it is none, or not whole.

    Each is read to its end, since only there its checksum is compared; NumPy itself stops before.
    """
    # Most files are JSON, and who reads those does not wait for NumPy.
    from numpy.lib import format as npy

    try:
        held = io.BytesIO(read_bytes(path))
    except (OSError, ValueError) as error:
        # A path with a NUL character is a ValueError.
        raise InputError(f"{str(path)!r} cannot be read: {reason(error)}.") from None
    try:
        with zipfile.ZipFile(held) as file:
            return {
                name.removesuffix(".npy"): npy.read_array(
                    io.BytesIO(file.read(name)), allow_pickle=False
                )
                for name in file.namelist()
            }
    # A damaged file makes the readers of zip and NumPy raise errors of a dozen kinds.
    except Exception:
        raise damaged from None


def _umask() -> int:
    """The bits that new files do not get; the system tells them only to those who set them."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
