"""The public walk: where a behaviour leads that does not look at rewards, and what it was paid.

A `Walk` is a fixed number of steps through an environment, starting afresh after each end, by a
behaviour policy that sees observations only. If dynamics, termination and failures of the
environment do not depend on the reward function, everything of a walk but `reward` has the same law
for every reward function: it is *public*, and `public()` is the walk without the rest. What this
supposes about the environment no code can check; the certificate lists it.

Rewards are read in a way that cannot fail: what is no number is NaN, and those who use it decide
what that counts as (0, everywhere in this package). In an environment of Gymnasium's that raises an
error, the episode ends with the step before it, as if a clock had run out; the error is not shown
in private runs, since its words may hold rewards, and neither are warnings.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.control.certified import silence
from tacit.control.increments import Floats, Head, Layers, Linear
from tacit.data import EpsilonGreedy, Policy
from tacit.data.policies import Network as NetworkPolicy
from tacit.data.policies import choose
from tacit.envs.base import Discrete, Environment, Transitions, random_policy, rollout
from tacit.envs.host import HostEnvironment
from tacit.privacy import noise
from tacit.privacy.errors import InputError

Env = Environment[Any, Any] | HostEnvironment
RewardOf = Literal["arrival", "step"]


@dataclass(frozen=True, eq=False)
class Walk:
    """Steps in order: observations (n,) or (n, k), actions, where each led, ends, and rewards."""

    observation: NDArray[Any]
    action: NDArray[np.int64]
    next_observation: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    reward: Floats | None = None
    """**Private**; None in the public part of a walk."""

    def __len__(self) -> int:
        return len(self.action)

    def public(self) -> "Walk":
        """The walk without its rewards."""
        return replace(self, reward=None)

    def points(self, reward_of: RewardOf) -> Floats:
        """What each reward is a function of: the state arrived in, or the state and the action."""
        if reward_of == "arrival":
            return np.asarray(self.next_observation, np.float64)
        seen = np.asarray(self.observation, np.float64).reshape(len(self), -1)
        return np.column_stack([seen, self.action.astype(np.float64)])


def walk(
    env: Env, behaviour: Policy | None, key: jax.Array, steps: int, *, private: bool = True
) -> Walk:
    """`steps` steps of `behaviour` in `env`; None takes each action equally often.

    An environment of Gymnasium's that keeps failing gives fewer. Unless the run is `private`, its
    errors are raised.
    """
    if behaviour is not None and behaviour.num_actions != env.num_actions:
        raise InputError(
            f"behaviour has {behaviour.num_actions} actions, and {env.name} {env.num_actions}."
        )
    if isinstance(env, HostEnvironment):
        return _checked(_on_host(env, behaviour, key, steps, private), env)
    with jax.enable_x64(True):
        if behaviour is None:
            return _of_rows(_blind(env, key, steps), env)

        # A policy holds arrays, so that nothing compiled for it can be kept.
        def act(key: jax.Array, observation: Any) -> Any:
            return _drawn(key, behaviour.probabilities(observation[None])[0])

        return _of_rows(jax.jit(lambda key: rollout(env, act, key, steps)[1])(key), env)


def walk_greedily(
    env: Env,
    head: Head,
    parameters: Floats,
    explore: float,
    key: jax.Array,
    steps: int,
    *,
    private: bool = True,
) -> Walk:
    """`walk` by `greedy(head, parameters, explore)`; other parameters need no compiling anew."""
    if isinstance(env, HostEnvironment):
        return walk(env, greedy(head, parameters, explore), key, steps, private=private)
    with jax.enable_x64(True):
        values = jnp.asarray(parameters.ravel())
        return _of_rows(_greedily(env, head, values, explore, key, steps), env)


def greedy(head: Head, parameters: Floats, explore: float = 0.0) -> Policy:
    """The action of the largest value, or any with probability `explore`."""
    values = parameters.reshape(head.shape)
    if isinstance(head, Layers):
        return NetworkPolicy(tuple(head.layers(values)), head.activation, head.features, explore)
    return EpsilonGreedy(values, explore, head.features if isinstance(head, Linear) else None)


def _of_rows(rows: Transitions, env: Env) -> Walk:
    made = Walk(
        np.asarray(rows.observation),
        np.asarray(rows.action, np.int64),
        np.asarray(rows.next_observation),
        np.asarray(rows.terminated, bool),
        np.asarray(rows.truncated, bool),
        np.asarray(rows.reward, np.float64),
    )
    return _checked(made, env)


def _checked(made: Walk, env: Env) -> Walk:
    for seen in (made.observation, made.next_observation):
        if not np.all(np.isfinite(seen)):
            raise InputError(f"{env.name} gave an observation that is not finite.")
    return made


@partial(jax.jit, static_argnums=(0, 2))
def _blind(env: Environment[Any, Any], key: jax.Array, steps: int) -> Any:
    return rollout(env, random_policy(env.num_actions), key, steps)[1]


@partial(jax.jit, static_argnums=(0, 1, 5))
def _greedily(
    env: Environment[Any, Any],
    head: Head,
    parameters: jax.Array,
    explore: float,
    key: jax.Array,
    steps: int,
) -> Any:
    def act(key: jax.Array, observation: Any) -> Any:
        values = head.out(parameters, head.inputs(observation[None]))[0]
        best = jnp.arange(head.outputs) == jnp.argmax(values)
        return _drawn(key, (1.0 - explore) * best + explore / head.outputs)

    return rollout(env, act, key, steps)[1]


def _drawn(key: jax.Array, chances: Any) -> Any:
    return choose(jnp, chances, jax.random.uniform(key, (), chances.dtype)).astype(jnp.int32)


# --- Gymnasium's environments ---------------------------------------------------------------------

_Row = tuple[Any, int, Any, bool, bool, float]


def _on_host(
    env: HostEnvironment, behaviour: Policy | None, key: jax.Array, steps: int, private: bool
) -> Walk:
    """One episode after the other, until there are `steps` steps or were as many episodes."""
    draw = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    observed = env.observation
    shape: tuple[int, ...] = () if isinstance(observed, Discrete) else observed.shape
    kind: type = int if isinstance(observed, Discrete) else float
    rows: list[_Row] = []
    with silence() if private else nullcontext():
        for _ in range(steps):
            _episode(env, behaviour, draw, rows, steps, (shape, kind), private)
            if len(rows) == steps:
                break
    if not rows:
        raise InputError(f"{env.name} gave no step at all: try it without a budget, to see why.")
    columns = list(zip(*rows, strict=True))
    return Walk(
        np.array(columns[0], kind).reshape(len(rows), *shape),
        np.array(columns[1], np.int64),
        np.array(columns[2], kind).reshape(len(rows), *shape),
        np.array(columns[3], bool),
        np.array(columns[4], bool),
        np.array(columns[5], np.float64),
    )


def _episode(
    env: HostEnvironment,
    behaviour: Policy | None,
    draw: np.random.Generator,
    rows: list[_Row],
    steps: int,
    like: tuple[tuple[int, ...], type],
    private: bool,
) -> None:
    """Add an episode to the rows, as far as there is room."""
    shape, kind = like
    begun = len(rows)

    def observed(seen: Any) -> Any:
        found: NDArray[Any] = np.asarray(env._seen(seen), kind)
        if found.shape != shape:
            raise InputError(
                f"{env.name} gave an observation of the shape {found.shape}, not {shape}."
            )
        return found

    try:
        seen, _ = env.env.reset(seed=int(draw.integers(2**31 - 1)))
        now = observed(seen)
        while len(rows) < steps:
            if behaviour is None:
                action = int(draw.integers(env.num_actions))
            else:
                chances = np.asarray(behaviour.probabilities(now[None]))[0]
                action = int(choose(np, chances, np.asarray(draw.random())))
            seen, reward, terminated, truncated, _ = env.env.step(env._act(action))
            after = observed(seen)
            ended, late = bool(terminated), bool(truncated) and not terminated
            rows.append((now, action, after, ended, late, _number(reward)))
            if ended or late:
                return
            now = after
    except Exception:  # whatever an environment of the caller's may raise
        if not private:
            raise
        if len(rows) > begun:
            rows[-1] = (*rows[-1][:4], True, rows[-1][5])


def _number(reward: Any) -> float:
    """The reward, or NaN for what is no number."""
    try:
        value = noise.numbers("reward", reward)
    except Exception:  # an object of the caller's may do anything
        return float("nan")
    return float(value.ravel()[0]) if value.size == 1 else float("nan")
