"""Lanes, which are runs side by side: played in equal parts, on as many cores as there are.

For programs whose arrays are small: more lanes at once would not stay in a core's cache.
"""

import os
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

OPTIONS: dict[str, Any] = {
    # A part keeps to one core: arrays are too small to be shared out, and other parts want cores.
    "xla_cpu_multi_thread_eigen": False,
    # Compiles a quarter faster than the default, to code as fast.
    "xla_backend_optimization_level": 1,
}
_COMPILED: dict[Any, Any] = {}
_MOST_COMPILED = 32


def by_parts(
    play: Any, static: tuple[Hashable, ...], state: Any, rounds: int, most: int
) -> tuple[Any, Any]:
    """The state after so many rounds, and what was seen of each: leaves (lanes, rounds, ...).

    `play(*static, state)` is a compiled function that gives the next state and what was seen, lanes
    first in all leaves. At most `most` lanes are a part; the last is filled up with lanes that are
    dropped again. How lanes are divided depends on their number alone, so that the same lanes give
    the same bits everywhere.
    """
    leaves = jax.tree.leaves(state)
    lanes = leaves[0].shape[0]
    parts = -(-lanes // most)
    size = -(-lanes // parts)
    numbers = np.minimum(np.arange(parts * size), lanes - 1).reshape(parts, size)
    begun = [_part(state, chosen) for chosen in numbers]
    what = (play, static, size, tuple(leaf.dtype for leaf in leaves))
    if what not in _COMPILED:
        # Here and not where it is called, since several threads would all compile.
        _COMPILED[what] = play.lower(*static, begun[0]).compile(OPTIONS)
        if len(_COMPILED) > _MOST_COMPILED:
            del _COMPILED[next(iter(_COMPILED))]
    compiled = _COMPILED[what]

    def played(own: Any) -> tuple[Any, list[Any]]:
        every = []
        for _ in range(rounds):
            own, seen = compiled(own)
            # Calls return before they are done; this waits.
            every.append(jax.tree.map(np.asarray, seen))
        return own, every

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(played, begun))
    seen = [jax.tree.map(lambda *x: np.stack(x, axis=1), *every) for _, every in found]
    whole = jax.tree.map(lambda *x: jnp.asarray(np.concatenate(x)[:lanes]), *seen)
    after = _joined([one for one, _ in found], lanes) if parts > 1 else found[0][0]
    return after, whole


@jax.jit
def _part(state: Any, chosen: jax.Array) -> Any:
    """Some of the lanes, in arrays of their own."""
    return jax.tree.map(lambda leaf: leaf[chosen], state)


@partial(jax.jit, static_argnames="lanes")
def _joined(states: list[Any], lanes: int) -> Any:
    """The first so many lanes of all."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:lanes], *states)
