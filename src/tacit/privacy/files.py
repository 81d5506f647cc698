"""Files that are there as a whole or not at all, and secret ones that only their owner may read."""

import os
import tempfile
from pathlib import Path

from tacit.privacy.errors import InputError


def write(path: str | Path, content: bytes, *, secret: bool) -> None:
    """Put `content` at `path`, or leave what was there before; nothing is left half done.

    A secret file has mode 0600 from its first byte on; any other 0644, without the bits that the
    process's umask takes away.
    """
    target = Path(path)
    temporary: str | None = None
    try:
        # Temporary files are made with mode 0600, before anything is in them.
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if not secret:
                os.fchmod(file.fileno(), 0o644 & ~_umask())
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        # Also when the user interrupts: what is half written may be a secret.
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError | ValueError):
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"{str(path)!r} cannot be written: {reason}.") from None
        raise


def _umask() -> int:
    """The bits that new files do not get; the system tells them only to those who set them."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
