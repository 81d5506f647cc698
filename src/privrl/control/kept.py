"""Compiled functions of learners that are kept as they were compiled: no run traces them twice.

JAX's cache (`privrl.core.compilation`) has what XLA makes of a program, under a key that is the
program. To have the key, a learner with a network is traced and lowered, by Python, for half a
second. Here the key is what a program is made of:

- the name of the function, its static arguments (by `keyed_digest`, which decides whether a run may
  be resumed, too), and of the others shapes, types, and the trees in which they come;
- every source file of this package, none of which may have changed since the process began;
- versions, processor and flags of XLA (`machine_fingerprint`), and all settings of JAX.

*Claim*: what is found under a key is what would be traced and compiled. A function that is `kept`
computes from its arguments and from what is in the source, and reads nothing else: no file, no
variable, nothing random. Programs are kept by commands alone, in the folder and under the
conditions of `compilation.keep`: their process is their own, and environments and features are this
package's, so that no code of a caller is in them. What has another key, is damaged, or does not
load or run is traced and compiled as ever, and so is everything in Python. Who calls a command
after a change of code in memory sets `PRIVRL_CACHE=off`.
"""

import hashlib
import pickle
import zlib
from collections.abc import Callable
from functools import cache, update_wrapper
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

from privrl.core import compilation, files
from privrl.privacy.resuming import keyed_digest, machine_fingerprint

_DIGEST_BYTES = 32


class Kept:
    """A function that `jax.jit` compiles for each of its static arguments, and its programs."""

    def __init__(self, function: Callable[..., Any], static: tuple[int, ...]) -> None:
        self._jitted, self._static = jax.jit(function, static_argnums=static), static
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._programs: dict[Path, Any] = {}
        self._untried: set[Path] = set()
        update_wrapper(self, function)

    def __call__(self, *given: Any) -> Any:
        """What the function gives; all arguments go by their positions."""
        path = self._path(given)
        if path is None:
            return self._jitted(*given)
        program, arguments = self._load(path), self._traced(given)
        if program is not None and path in self._untried:
            self._untried.remove(path)
            try:
                return jax.block_until_ready(program(*arguments))  # type: ignore[no-untyped-call]
            except jax.errors.JaxRuntimeError:
                program = None  # it was loaded, and does not run
        if program is None:
            program = self.compile(self.trace(*given), *given)
        return program(*arguments)

    def trace(self, *given: Any) -> Any:
        """As of a function that `jax.jit` compiles."""
        return self._jitted.trace(*given)

    def load(self, *given: Any) -> Any:
        """The program for arguments like these, which may be shapes alone; None if none is kept."""
        path = self._path(given)
        return None if path is None else self._load(path)

    def compile(self, traced: Any, *given: Any) -> Any:
        """Compile what was traced for arguments like these, and keep it if it is to be kept."""
        path = self._path(given)
        if path is None:
            return traced.lower().compile()
        with compilation.apart() as found:
            self._programs[path] = traced.lower().compile()
        # What JAX has loaded, XLA writes without the functions in it.
        if not found:
            _write(path, self._programs[path])
        return self._programs[path]

    def _load(self, path: Path) -> Any:
        if path not in self._programs:
            found = _read(path)
            if found is None:
                return None
            self._programs[path] = found
            self._untried.add(path)
        return self._programs[path]

    def _traced(self, given: tuple[Any, ...]) -> list[Any]:
        return [one for number, one in enumerate(given) if number not in self._static]

    def _path(self, given: tuple[Any, ...]) -> Path | None:
        """Where the program for such arguments is kept; None if it is not to be."""
        folder = compilation.keeping()
        if folder is None:
            return None
        traced, source = self._traced(given), _source_digest()
        within = any(isinstance(one, jax.core.Tracer) for one in jax.tree.leaves(traced))
        if source is None or within or jax.device_count() > 1:
            return None
        digest = keyed_digest(
            b"",
            [
                self._name,
                [given[number] for number in self._static],
                # Trees have settings in them, too, of which a name does not show all.
                str(jax.tree.structure(traced)),
                jax.tree.map(_form, traced),
                *(source, machine_fingerprint(), jax.default_backend()),
                repr(sorted(jax.config.values.items())),
            ],
        )
        return folder / f"{self._name}-{digest}-cache"


def kept(*static: int) -> Callable[[Callable[..., Any]], Kept]:
    """A decorator for functions whose arguments number `static` are no arrays, but settings."""
    return lambda function: Kept(function, static)


def _form(leaf: Any) -> tuple[str, ...]:
    """All that tracing sees of an argument."""
    if not hasattr(leaf, "dtype"):
        return (type(leaf).__name__,)
    return str(leaf.shape), str(leaf.dtype), str(getattr(leaf, "weak_type", False))


@cache
def _source_digest() -> str | None:
    """Of every file of this package; None if one has changed since, or if they cannot be read."""
    found = hashlib.sha256()
    place = Path(__file__).parent.parent
    try:
        for path in sorted(place.rglob("*.py")):
            if path.stat().st_mtime >= compilation.BEGUN:
                return None
            content = path.read_bytes()
            found.update(f"{path.relative_to(place)} {len(content)} ".encode() + content)
    except OSError:
        return None
    return found.hexdigest()


def _read(path: Path) -> Any:
    try:
        content = path.read_bytes()
        digest, packed = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(packed).digest() != digest:
            return None
        return serialize_executable.deserialize_and_load(*pickle.loads(zlib.decompress(packed)))
    except Exception:  # of a library's, whatever does not load: it is compiled anew
        return None


def _write(path: Path, program: Any) -> None:
    try:
        packed = zlib.compress(pickle.dumps(serialize_executable.serialize(program)), 1)
        files.write(path, hashlib.sha256(packed).digest() + packed, secret=True)
    except Exception:  # what cannot be kept is compiled again
        return
