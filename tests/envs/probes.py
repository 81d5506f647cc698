"""Small environments whose every number is known by looking at them."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from privrl.envs import Box, Environment, EnvState


@dataclass(frozen=True)
class Clock(Environment[jax.Array, float]):
    """Counts steps, pays the parameter, and never terminates: only the step limit ends it."""

    step_limit: int | None = 5

    @property
    def num_actions(self) -> int:
        return 2

    @property
    def observation(self) -> Box:
        return Box((0.0,), (1e6,))

    @property
    def default_params(self) -> float:
        return 1.0

    def _reset(self, key: jax.Array, params: float) -> jax.Array:
        return jnp.zeros(())

    def _move(
        self, draw: Any, inner: jax.Array, action: jax.Array, params: float
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        return inner + 1.0, jnp.asarray(params), jnp.zeros((), bool)

    def _observe(self, inner: jax.Array, params: float) -> jax.Array:
        return inner[None]

    def render(self, state: EnvState[jax.Array], params: float | None = None) -> NDArray[np.uint8]:
        return np.zeros((2, 2, 3), np.uint8)


@dataclass(frozen=True)
class Fuse(Clock):
    """Terminates at its third step, before the clock runs out."""

    def _move(
        self, draw: Any, inner: jax.Array, action: jax.Array, params: float
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        return inner + 1.0, jnp.asarray(params), inner >= 2.0
