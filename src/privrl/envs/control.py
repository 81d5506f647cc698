"""Continuous states with dynamics of a line or two: the cart-pole, the car in the valley, the
interval of Wang and Hegde (2019).

`CartPole` and `MountainCar` compute what Gymnasium's compute, operation by operation, and agree to
rounding; their numbers are parameters, so that agents can be trained under many gravities at once.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from privrl.envs import draw
from privrl.envs.base import Box, Environment, EnvState


class CartPoleParams(NamedTuple):
    gravity: Any = 9.8
    mass_cart: Any = 1.0
    mass_pole: Any = 0.1
    length: Any = 0.5  # half the pole's
    force: Any = 10.0
    tau: Any = 0.02  # seconds between steps
    limit_angle: Any = 12 * 2 * math.pi / 360
    limit_position: Any = 2.4
    start: Any = 0.05


@dataclass(frozen=True)
class CartPole(Environment[jax.Array, CartPoleParams]):
    """Barto, Sutton, Anderson (1983), as Gymnasium has it: Euler steps, reward 1 for each step.

    State and observation are position, velocity, angle, angular velocity. The step that lets the
    pole fall also pays 1. The observation's bounds on the velocities, for which Gymnasium says
    infinity, hold for what can be reached between the limits under the default parameters.
    """

    step_limit: int | None = 200

    num_actions = 2
    # Velocities: the largest acceleration over the distance between the limits, sqrt(2 a d), is 12
    # for the cart and 4.6 for the pole.
    observation = Box(
        (-4.8, -15.0, -24 * 2 * math.pi / 360, -6.0),
        (4.8, 15.0, 24 * 2 * math.pi / 360, 6.0),
        ("position", "velocity", "angle", "angular velocity"),
    )
    default_params = CartPoleParams()

    def _reset(self, key: jax.Array, params: CartPoleParams) -> jax.Array:
        return jnp.asarray(jax.random.uniform(key, (4,), minval=-1.0, maxval=1.0) * params.start)

    def _move(
        self, draw: Any, inner: jax.Array, action: jax.Array, params: CartPoleParams
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        x, x_dot, theta, theta_dot = inner
        force = jnp.where(action == 1, params.force, -params.force)
        total = params.mass_pole + params.mass_cart
        pole = params.mass_pole * params.length
        cos, sin = jnp.cos(theta), jnp.sin(theta)
        push = (force + pole * jnp.square(theta_dot) * sin) / total
        theta_acc = (params.gravity * sin - cos * push) / (
            params.length * (4.0 / 3.0 - params.mass_pole * jnp.square(cos) / total)
        )
        x_acc = push - pole * theta_acc * cos / total
        tau = params.tau
        after = jnp.stack(
            [
                x + tau * x_dot,
                x_dot + tau * x_acc,
                theta + tau * theta_dot,
                theta_dot + tau * theta_acc,
            ]
        )
        fell = (jnp.abs(after[0]) > params.limit_position) | (
            jnp.abs(after[2]) > params.limit_angle
        )
        return after, jnp.ones(()), fell

    def render(
        self, state: EnvState[jax.Array], params: CartPoleParams | None = None
    ) -> NDArray[np.uint8]:
        x, _, theta, _ = (float(v) for v in state.inner)
        given = params or self.default_params
        figure, axes = draw.figure(f"step {int(state.time)}")
        length = 2.0 * float(given.length)
        axes.axhline(0.0, color="0.5", linewidth=1)
        axes.add_patch(draw.rectangle(x - 0.25, -0.12, 0.5, 0.24, "0.2"))
        tip = (x + length * math.sin(theta), length * math.cos(theta))
        axes.plot([x, tip[0]], [0.0, tip[1]], color="tab:brown", linewidth=6)
        for side in (-1.0, 1.0):
            limit = side * float(given.limit_position)
            axes.axvline(limit, color="tab:red", linewidth=1, linestyle=":")
        axes.set(xlim=(-2.8, 2.8), ylim=(-0.6, 1.6), aspect="equal", yticks=[], xlabel="position")
        return draw.pixels(figure)


class MountainCarParams(NamedTuple):
    force: Any = 0.001
    gravity: Any = 0.0025
    goal_position: Any = 0.5
    goal_velocity: Any = 0.0
    start_low: Any = -0.6
    start_high: Any = -0.4


@dataclass(frozen=True)
class MountainCar(Environment[jax.Array, MountainCarParams]):
    """Moore (1990), as Gymnasium's `MountainCar-v0`: reward -1 for each step until the top.

    State and observation are position and velocity; actions push left, not at all, or right.
    """

    step_limit: int | None = 200

    num_actions = 3
    observation = Box((-1.2, -0.07), (0.6, 0.07), ("position", "velocity"))
    default_params = MountainCarParams()

    def _reset(self, key: jax.Array, params: MountainCarParams) -> jax.Array:
        u = jax.random.uniform(key)
        position = params.start_low + (params.start_high - params.start_low) * u
        return jnp.stack([position, jnp.zeros_like(position)])

    def _move(
        self, draw: Any, inner: jax.Array, action: jax.Array, params: MountainCarParams
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        position, velocity = inner
        push = (action - 1) * params.force
        velocity = velocity + (push + jnp.cos(3 * position) * (-params.gravity))
        velocity = jnp.clip(velocity, -0.07, 0.07)
        position = jnp.clip(position + velocity, -1.2, 0.6)
        # The wall on the left takes all speed.
        stopped = (position <= -1.2) & (velocity < 0)
        velocity = jnp.where(stopped, 0.0, velocity)
        there = (position >= params.goal_position) & (velocity >= params.goal_velocity)
        return jnp.stack([position, velocity]), -jnp.ones(()), there

    def render(
        self, state: EnvState[jax.Array], params: MountainCarParams | None = None
    ) -> NDArray[np.uint8]:
        position, velocity = (float(v) for v in state.inner)
        given = params or self.default_params
        figure, axes = draw.figure(f"step {int(state.time)}, velocity {velocity:+.3f}")
        xs = np.linspace(-1.2, 0.6, 200)
        axes.plot(xs, np.sin(3 * xs), color="0.4")
        axes.plot([position], [math.sin(3 * position) + 0.08], "o", markersize=11)
        goal = float(given.goal_position)
        axes.plot([goal, goal], [math.sin(3 * goal), math.sin(3 * goal) + 0.4], color="tab:red")
        axes.set(ylim=(-1.2, 1.6), yticks=[], xlabel="position")
        return draw.pixels(figure)


class IntervalParams(NamedTuple):
    reach: Any = 0.25  # a step goes up to this far
    centre: Any = 0.5
    height: Any = 0.5


@dataclass(frozen=True)
class Interval(Environment[jax.Array, IntervalParams]):
    """Wang and Hegde (2019), whose appendix E.1 is their code: walk about [0, 1], best near 0.5.

    Action 0 moves right and action 1 left by a uniform step of at most a quarter, as far as the
    ends; the reward 0.5 - |s - 0.5| is that of the state arrived in, between 0 and 0.5. Episodes
    take 50 steps and start uniformly. That end is a step limit and hence a truncation; the
    authors' code treats it as terminal and does not bootstrap there.
    """

    step_limit: int | None = 50

    num_actions = 2
    observation = Box((0.0,), (1.0,), ("position",))
    default_params = IntervalParams()

    def _reset(self, key: jax.Array, params: IntervalParams) -> jax.Array:
        return jax.random.uniform(key)

    def _draw(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(key)

    def _move(
        self, draw: Any, inner: jax.Array, action: jax.Array, params: IntervalParams
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        size = params.reach * draw
        after = jnp.clip(inner + jnp.where(action == 0, size, -size), 0.0, 1.0)
        return after, self.reward(after, params), jnp.zeros((), bool)

    def reward(self, position: jax.Array, params: IntervalParams | None = None) -> jax.Array:
        """The secret of this task: what arriving at each position pays."""
        given = params or self.default_params
        return jnp.asarray(given.height - jnp.abs(position - given.centre))

    def _observe(self, inner: jax.Array, params: IntervalParams) -> jax.Array:
        return inner[None]

    def render(
        self, state: EnvState[jax.Array], params: IntervalParams | None = None
    ) -> NDArray[np.uint8]:
        position = float(state.inner)
        figure, axes = draw.figure(f"step {int(state.time)}")
        xs = np.linspace(0.0, 1.0, 201)
        axes.plot(xs, np.asarray(self.reward(jnp.asarray(xs), params)), color="0.4")
        axes.plot([position], [float(self.reward(jnp.asarray(position), params))], "o")
        axes.axvline(position, color="tab:blue", linewidth=0.5)
        axes.set(xlim=(0.0, 1.0), xlabel="position", ylabel="reward on arrival")
        return draw.pixels(figure)
