"""Memory and disk that a run takes: known before anybody pays, and refused if they are not there.

What is asked for is compared with all memory that this process may have, and not with what is free:
that is less where more of somebody's rows were read, and a refusal would tell.

What is compiled here is what the run calls later, with the same shapes, so it is compiled once.
"""

import errno
import math
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from privrl.core.errors import InputError

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_limit() -> int:
    """The bytes of memory that this machine has, or lets this process have."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    if own != resource.RLIM_INFINITY:
        found = min(found, own)
    for limit in _LIMITS:
        try:
            found = min(found, int(Path(limit).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue  # None is set, or there are no such groups.
    return found


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Raise if `needed` bytes, which follow from public numbers, are more than there are."""
    if needed > memory_limit():
        raise InputError(
            f"{what} would take about {_format_bytes(needed)} of memory, and this machine has "
            f"{_format_bytes(memory_limit())}: {remedy}."
        )


@contextmanager
def refuse_memory_errors(what: str, remedy: str) -> Iterator[None]:
    """What there is no memory for is said in a sentence."""
    try:
        yield
    except MemoryError:
        raise InputError(f"{what} would take more memory than there is: {remedy}.") from None


def precompile(function: Any, *given: Any, what: str, remedy: str, told: bool = True) -> None:
    """Compile one of JAX's functions for arguments like these, which may be shapes alone.

    Raises if it cannot be compiled, or if what it computes with does not fit into memory. Unless
    it is `told`, nobody is told how much that is, as it follows from private data.
    """
    with refuse_memory_errors(what, remedy):
        try:
            needed = _required_memory(function, given)
        except RuntimeError as error:
            why = f" ({_first_line(error)})" if told else ""
            raise InputError(f"{what} cannot be compiled{why}: {remedy}.") from None
        if told:
            check_memory(needed, what, remedy)
        elif needed > memory_limit():
            raise MemoryError


# By function and shapes, of the programs that were compiled last: asking takes longer than running
# a small one.
_MEMORY_CACHE: dict[Any, int] = {}
_CACHE_SIZE = 256
_MAX_ARRAY_BYTES = (
    2**50
)  # So many bytes in one array are in no machine, however a program is compiled.


def _required_memory(function: Any, given: tuple[Any, ...]) -> int:
    """The bytes that a compiled function computes with."""
    import jax

    leaves, tree = jax.tree.flatten(given)
    shapes = [
        (one.shape, str(one.dtype)) if hasattr(one, "dtype") else (type(one), one) for one in leaves
    ]
    wide = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined] # made when JAX is imported
    key = (function.trace, tree, tuple(shapes), wide)
    if key not in _MEMORY_CACHE:
        found = 0
        keeps = hasattr(function, "load")  # programs that were compiled before: `control.kept`
        program = function.load(*given) if keeps else None
        if program is None:
            traced = function.trace(*given)
            found = _largest_array(traced.jaxpr.jaxpr)
            if found < _MAX_ARRAY_BYTES:  # above, XLA would end the process: its sizes overflow
                program = function.compile(traced, *given) if keeps else traced.lower().compile()
        if program is not None:
            stats = program.memory_analysis()
            parts = ("argument", "output", "temp")
            found = sum(getattr(stats, f"{part}_size_in_bytes", 0) for part in parts)
        if len(_MEMORY_CACHE) >= _CACHE_SIZE:
            _MEMORY_CACHE.pop(next(iter(_MEMORY_CACHE)))
        _MEMORY_CACHE[key] = found
    return _MEMORY_CACHE[key]


def _largest_array(jaxpr: Any) -> int:
    """The bytes of the largest array in a program as it is written, loops and branches included."""
    from jax.extend.core import subjaxprs

    sizes = [
        math.prod(one.aval.shape) * one.aval.dtype.itemsize
        for equation in jaxpr.eqns
        for one in equation.outvars
        if hasattr(one.aval, "shape")
    ]
    return max([*sizes, *map(_largest_array, subjaxprs(jaxpr))], default=0)


def check_disk_space(folder: str | Path | None, needed: int) -> None:
    """Raise unless the disk has room for `needed` bytes in `folder`, by taking and leaving them."""
    if folder is None:
        return
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # not on every system
                os.posix_fallocate(file.fileno(), 0, max(needed, 1))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return  # This kind of disk takes nothing beforehand, which says nothing about its room.
        raise InputError(
            f"{str(folder)!r} has no room for a checkpoint of {_format_bytes(needed)}: "
            f"{error.strerror}."
        ) from None


def _format_bytes(count: float) -> str:
    units = ("bytes", "kB", "MB", "GB", "TB", "PB")
    power = min(int(math.log(max(count, 1.0), 1000.0)), len(units) - 1)
    return f"{count / 1000.0**power:.3g} {units[power]}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:100]
