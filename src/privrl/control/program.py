"""What a learner is to those who run it: two pure functions over many replicas, and a state to
keep.

A *replica* is one run, with its own key and its own settings; a program plays all its replicas
together, compiled. It is called inside `jax.enable_x64(True)`, so that its numbers may be 64-bit.

    state = program.init(keys, {"actor_step": steps})
    state, played = program.advance(state, 100)

`save_state` puts a state into a file and `load_state` takes it out, bit for bit: an interrupted run
that goes on from there equals one that was never interrupted. A state holds random keys, from which
all that is still to be drawn follows, so only its owner may read the file.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from privrl.core import files
from privrl.core.errors import InputError

Tree = TypeVar("Tree")

_KIND = "privrl state"
_FORMAT = 1
_HEADER = "header"


@runtime_checkable
class Program(Protocol):
    """A learner as pure, compiled functions over many replicas."""

    @property
    def sweepable(self) -> tuple[str, ...]:
        """The names that settings may hold; what is not given takes the program's own value."""
        ...

    def init(self, keys: jax.Array, settings: Mapping[str, jax.Array]) -> Any:
        """The state before the first episode: a pytree of arrays.

        `keys` are typed keys (replicas,); `settings` are numbers by name, each (replicas,).
        """
        ...

    def advance(self, state: Any, episodes: int) -> tuple[Any, dict[str, jax.Array]]:
        """Play `episodes` more in every replica: the new state, and what was seen (replicas,
        episodes).

        At least "return" and "length" are seen. Advancing twice by 5 equals advancing once by 10,
        bit for bit. A program with a `batch` may refuse what is neither a multiple of it nor the
        rest.
        """
        ...


def batch_of(program: Program) -> int:
    """How many episodes a program plays with the same parameters, 1 if it does not say."""
    return int(getattr(program, "batch", 1))


def drop_weak_types(state: Tree) -> Tree:
    """The same state without JAX's weak types, which no file can keep."""

    def to_strong(leaf: Any) -> Any:
        return jax.lax.convert_element_type(leaf, leaf.dtype) if _is_weak(leaf) else leaf

    found: Tree = jax.tree.map(to_strong, state)
    return found


def save_state(path: str | Path, state: Any, about: Mapping[str, Any]) -> None:
    """Write a state wholly or not at all, with mode 0600; `about` is JSON that comes back with it.

    The file holds each array by itself (NumPy's npz), typed keys as their bits.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    leaves = []
    for number, (where, leaf) in enumerate(_leaves(state)):
        form, bits = _pack_leaf(leaf)
        leaves.append({"name": where, **form})
        arrays[f"leaf{number}"] = bits
    header = {"kind": _KIND, "format": _FORMAT, "about": dict(about), "leaves": leaves}
    content = io.BytesIO()
    text = json.dumps(header, allow_nan=False).encode()
    np.savez(content, **{_HEADER: np.frombuffer(text, np.uint8)}, **arrays)  # type: ignore[arg-type]
    files.write(path, content.getvalue(), secret=True)


def load_state(path: str | Path, like: Tree) -> tuple[Tree, dict[str, Any]]:
    """The state that `save_state` wrote, and what was said about it.

    `like` has the names, shapes and types of the state: one of the same program, or what
    `jax.eval_shape` gives for its `init`. A file that has others is refused.
    """
    header, arrays = _read_state(path)
    expected = [{"name": where, **_leaf_spec(leaf)} for where, leaf in _leaves(like)]
    if header["leaves"] != expected:
        raise InputError(
            f"{str(path)!r} holds the state of another program, or of one with other settings."
        )
    with jax.enable_x64(True):
        leaves = [
            _unpack_leaf(form, bits) for form, bits in zip(header["leaves"], arrays, strict=True)
        ]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), header["about"]


def read_about(path: str | Path) -> dict[str, Any]:
    """What was said about the state in a file, without the state."""
    about: dict[str, Any] = _read_state(path)[0]["about"]
    return about


def _read_state(path: str | Path) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]]]:
    """The header and the arrays of a file."""
    damaged = InputError(f"{str(path)!r} is not the state of a run, or is damaged.")
    found = files.read_npz(path, damaged)
    try:
        header = files.parse_json(found.pop(_HEADER).tobytes())
        arrays = [found[f"leaf{number}"] for number in range(len(found))]
    except (KeyError, ValueError, RecursionError):
        raise damaged from None
    if files.kind_of(header) != _KIND or not isinstance(header, dict):
        raise InputError(f"{str(path)!r} is not the state of a run.")
    if header.get("format") != _FORMAT:
        raise InputError(f"{str(path)!r} was written by another version of privrl.")
    if [list(bits.shape) for bits in arrays] != [leaf["stored"] for leaf in header["leaves"]]:
        raise InputError(f"{str(path)!r} is damaged.")
    return header, arrays


def _leaves(state: Any) -> list[tuple[str, Any]]:
    """Each array of a pytree, by name."""
    found, _ = jax.tree_util.tree_flatten_with_path(state)
    for where, leaf in found:
        if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
            raise InputError(f"state{jax.tree_util.keystr(where)} must be an array.")
    return [(jax.tree_util.keystr(where), leaf) for where, leaf in found]


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _is_weak(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and bool(leaf.aval.weak_type)


def _leaf_spec(leaf: Any) -> dict[str, Any]:
    """What a file says about an array: its shape, its type and the shape of what is stored."""
    shape = list(leaf.shape)
    if _is_key(leaf):
        stored = list(jax.eval_shape(jax.random.key_data, leaf).shape)
        return {"shape": shape, "type": str(leaf.dtype), "stored": stored}
    return {"shape": shape, "type": str(np.dtype(leaf.dtype)), "stored": shape}


def _pack_leaf(leaf: Any) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """An array as NumPy keeps it in a file."""
    bits = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    if bits.dtype.kind not in "biufc":
        raise InputError(f"A state cannot hold numbers of type {bits.dtype}: use another type.")
    return _leaf_spec(leaf), bits


def _unpack_leaf(form: Mapping[str, Any], bits: np.ndarray[Any, Any]) -> jax.Array:
    if form["type"].startswith("key<"):
        implementation = _IMPLEMENTATIONS[form["type"]]
        keys: jax.Array = jax.random.wrap_key_data(jnp.asarray(bits), impl=implementation)
        return keys
    return jnp.asarray(bits)


# The types of keys, and what JAX calls the generators they belong to.
_IMPLEMENTATIONS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
