"""Replicas, which are runs side by side: played in equal parts, on as many cores as there are.

For programs whose arrays are small: more replicas at once would not stay in a core's cache.
"""

import os
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from privrl.core.errors import InputError

OPTIONS: dict[str, Any] = {
    # A part keeps to one core: arrays are too small to be shared out, and other parts want cores.
    "xla_cpu_multi_thread_eigen": False,
    # Compiles a quarter faster than the default, to code as fast.
    "xla_backend_optimization_level": 1,
}
_COMPILED: dict[Any, Any] = {}
_CACHE_SIZE = 32


def setting_arrays(values: Mapping[str, Any], replicas: int, dtype: Any) -> dict[str, jax.Array]:
    """Each setting as an array (replicas,), from one number for all or one for each."""
    for name, value in values.items():
        if np.shape(value) not in ((), (replicas,)):
            raise InputError(f"must be one number, or one for each of {replicas} keys.", field=name)
    # What the type cannot hold is infinite: who steps so far diverges, and is told.
    with np.errstate(over="ignore"):
        return {
            name: jnp.broadcast_to(jnp.asarray(np.asarray(value), dtype), (replicas,))
            for name, value in values.items()
        }


def run_in_parts(
    play: Any, static: tuple[Hashable, ...], state: Any, rounds: int, most: int
) -> tuple[Any, Any]:
    """The state after so many rounds, and what was seen of each: leaves (replicas, rounds, ...).

    `play(*static, state)` is a compiled function that gives the next state and what was seen,
    replicas first in all leaves. At most `most` replicas are a part; the last is filled up with
    replicas that are dropped again. How replicas are divided depends on their number alone, so that
    the same replicas give the same bits everywhere.
    """
    leaves = jax.tree.leaves(state)
    replicas = leaves[0].shape[0]
    parts = -(-replicas // most)
    size = -(-replicas // parts)
    numbers = np.minimum(np.arange(parts * size), replicas - 1).reshape(parts, size)
    begun = [_select_replicas(state, chosen) for chosen in numbers]
    what = (play, static, size, tuple(leaf.dtype for leaf in leaves))
    if what not in _COMPILED:
        # Here and not where it is called, since several threads would all compile.
        _COMPILED[what] = play.lower(*static, begun[0]).compile(OPTIONS)
        if len(_COMPILED) > _CACHE_SIZE:
            del _COMPILED[next(iter(_COMPILED))]
    compiled = _COMPILED[what]

    def run_part(own: Any) -> tuple[Any, list[Any]]:
        every = []
        for _ in range(rounds):
            own, seen = compiled(own)
            # Calls return before they are done; this waits.
            every.append(jax.tree.map(np.asarray, seen))
        return own, every

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(run_part, begun))
    seen = [jax.tree.map(lambda *x: np.stack(x, axis=1), *every) for _, every in found]
    whole = jax.tree.map(lambda *x: jnp.asarray(np.concatenate(x)[:replicas]), *seen)
    after = _concatenate([one for one, _ in found], replicas) if parts > 1 else found[0][0]
    return after, whole


@jax.jit
def _select_replicas(state: Any, chosen: jax.Array) -> Any:
    """Some of the replicas, in arrays of their own."""
    return jax.tree.map(lambda leaf: leaf[chosen], state)


@partial(jax.jit, static_argnames="replicas")
def _concatenate(states: list[Any], replicas: int) -> Any:
    """The first so many replicas of all."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:replicas], *states)
