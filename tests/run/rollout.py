"""A learner that learns nothing, to run: a random walk, compiled, with a key for each replica."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from privrl.control.program import Program


class State(NamedTuple):
    place: jax.Array
    keys: jax.Array
    drift: jax.Array
    spread: jax.Array
    time: jax.Array


@dataclass(frozen=True)
class Rollout:
    """place <- place + drift + spread x noise in each episode, which returns the place."""

    start: float = 0.0
    width: int = 1
    """How many places each replica keeps, all alike: makes states of other shapes."""

    @property
    def sweepable(self) -> tuple[str, ...]:
        return ("drift", "spread")

    def init(self, keys: jax.Array, settings: Mapping[str, jax.Array]) -> State:
        replicas = keys.shape[0]
        whole = {"drift": 0.0, "spread": 1.0} | dict(settings)
        return State(
            jnp.full((replicas, self.width), self.start),
            keys,
            jnp.broadcast_to(whole["drift"], (replicas,)),
            jnp.broadcast_to(whole["spread"], (replicas,)),
            jnp.zeros((), jnp.int32),
        )

    def advance(self, state: State, episodes: int) -> tuple[State, dict[str, jax.Array]]:
        played: tuple[State, dict[str, jax.Array]] = _advance(self, state, episodes)
        return played


@partial(jax.jit, static_argnums=(0, 2))
def _advance(rollout: Rollout, state: State, episodes: int) -> tuple[State, dict[str, jax.Array]]:
    def step(now: State, _: Any) -> tuple[State, tuple[jax.Array, jax.Array]]:
        keys = jax.vmap(partial(jax.random.fold_in, data=now.time))(now.keys)
        noise = jax.vmap(jax.random.normal)(keys)
        place = now.place + (now.drift + now.spread * noise)[:, None]
        length = jnp.full(noise.shape, now.time % 7 + 1)
        return now._replace(place=place, time=now.time + 1), (place[:, 0], length)

    state, (places, lengths) = lax.scan(step, state, None, length=episodes)
    return state, {"return": places.T, "length": lengths.T}


ROLLOUT: Program = Rollout()
