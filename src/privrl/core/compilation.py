"""Compiled programs on disk: the next run of the same shape need not wait for XLA.

`privrl train` lets JAX keep what it compiles in the user's cache folder,
`$XDG_CACHE_HOME/privrl` or
`~/.cache/privrl`. `PRIVRL_CACHE` names another folder, or is `off`.
Versions, processor and compile options are in JAX's keys, and in those of learners' own functions
(`privrl.control.kept`), which are not traced again either. A program is compiled anew when anything
differs, so what comes from the disk computes the same bits. In Python nothing is kept unless
somebody calls `allow`: JAX's settings belong to the whole process. Whoever has set
`JAX_COMPILATION_CACHE_DIR` has chosen, and is left alone.

**Who may read it.** Programs are code that this process runs. The folder has mode 0700; one of
somebody else's, or that others may read or write, is not used.

**What is in it.** Constants of the source and public settings, and no private values:

- A program is kept only within `keep`, and nothing is kept by default. So estimators, which close
  over a table's rows (`evaluation.gtd2`), never write.
- Shapes are in programs, too, and those of a table's programs follow from how many rows it has. So
  what learns from a table (`logged-q`) writes nothing.
- Rewards and tables of an environment are constants of the programs that play it, and a reward
  function may be what is protected. So `keep` is told whether the environment is one of
  `privrl.envs`, whose constants are published with the source.
- Keys of noise, parameters and all that is drawn are arguments of compiled functions.
  `tests/core/test_compilation.py` shows it from outside: after one run, runs with other seeds
  compile nothing new.
"""

import math
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

VARIABLE = "PRIVRL_CACHE"
BEGUN = time.time()
"""When this process began, as good as: before it has loaded what it compiles."""

_THRESHOLD = "jax_persistent_cache_min_compile_time_secs"
_allowed = False
_keeping = False


def allow() -> None:
    """Let `keep` keep programs in this process; for the command line, whose process is its own."""
    global _allowed
    _allowed = True


@contextmanager
def keep(public: bool) -> Iterator[None]:
    """Keep what is compiled within, if its constants are `public` and there is a folder for it."""
    global _keeping
    if not (public and _allowed and _is_ready()):
        yield
        return
    import jax

    jax.config.update(_THRESHOLD, 0.0)  # type: ignore[no-untyped-call]
    _keeping = True
    try:
        yield
    finally:
        _keeping = False
        jax.config.update(_THRESHOLD, math.inf)  # type: ignore[no-untyped-call]


@contextmanager
def apart() -> Iterator[list[str]]:
    """Within `keep`, keep nothing in JAX's own way; what is given lists what JAX found kept."""
    import jax

    found: list[str] = []

    def listen(event: str, **_: str | int) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            found.append(event)

    jax.monitoring.register_event_listener(listen)
    jax.config.update(_THRESHOLD, math.inf)  # type: ignore[no-untyped-call]
    try:
        yield found
    finally:
        jax.config.update(_THRESHOLD, 0.0)  # type: ignore[no-untyped-call]
        jax.monitoring.unregister_event_listener(listen)


def keeping() -> Path | None:
    """The folder of programs within `keep`, where they are kept; None elsewhere."""
    return folder() if _keeping else None


def folder() -> Path | None:
    """Where programs are kept, or None if they are not to be."""
    said = os.environ.get(VARIABLE)
    if said is not None:
        return None if said.lower() in ("", "0", "off", "no") else Path(said)
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "privrl"
    except RuntimeError:  # nobody's home
        return None


@cache
def _is_ready() -> bool:
    """Tell JAX of the folder; False if there is none that we may use, or if JAX has its own."""
    import jax

    place = folder()
    if place is None or jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        return False
    if not _is_ours(place):
        return False
    settings = {
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_persistent_cache_enable_xla_caches": "none",
        _THRESHOLD: math.inf,
        "jax_compilation_cache_dir": str(place.absolute()),
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    return True


def _is_ours(place: Path) -> bool:
    """Make the folder if need be, and room in it; whether nobody else can read or write it."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.stat()
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            return False
        _remove_oldest(place)
        return os.access(place, os.W_OK | os.X_OK)
    except OSError:
        return False


def _remove_oldest(place: Path, most: int = 2**29) -> None:
    """Above the `most` bytes, leave half as many: what was used last.

    JAX could do this at every entry (`jax_compilation_cache_max_size`), but then locks the folder
    for every program that is looked up, and needs another package.
    """
    found = []
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.endswith(("-cache", "-atime")):
                about = entry.stat()
                found.append((max(about.st_atime, about.st_mtime), about.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    if total <= most:
        return
    for _, size, path in sorted(found):
        if total <= most // 2:
            break
        Path(path).unlink(missing_ok=True)
        total -= size
