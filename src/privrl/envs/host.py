"""Between Gymnasium's world and ours.

`GymnasiumEnv` shows one of our environments to Gymnasium. `HostEnvironment` runs one of
Gymnasium's, step by step on the host, where it cannot be compiled. `from_gymnasium` picks the best
form for an environment of Gymnasium's: ours if it is one of ours, its tables if it has any, the
host otherwise.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.envs.base import (
    Box,
    Discrete,
    Environment,
    EnvState,
    Episodes,
    Policy,
    Step,
    Transitions,
    check_policy,
    episodes,
    typed_key,
)
from privrl.envs.tabular import TabularMDP

# The environment is a static argument: environments are equal when their settings are, so that
# several wrappers of the same environment share one compilation.


@partial(jax.jit, static_argnums=0)
def _reset(
    env: Environment[Any, Any], key: jax.Array, params: Any
) -> tuple[EnvState[Any], jax.Array]:
    return env.reset(key, params)


@partial(jax.jit, static_argnums=0)
def _step(
    env: Environment[Any, Any], key: jax.Array, state: EnvState[Any], action: Any, params: Any
) -> Step[Any]:
    return env.step(key, state, action, params)


class GymnasiumEnv(gymnasium.Env[Any, Any]):
    """One of our environments behind Gymnasium's interface.

    The environment keeps its own clock, so it is registered without `max_episode_steps`.
    """

    def __init__(
        self, env: Environment[Any, Any], params: Any = None, render_mode: str | None = None
    ) -> None:
        if render_mode is not None and render_mode != env.render_mode:
            raise InputError(f"{env.name} renders as {env.render_mode!r}, not as {render_mode!r}.")
        for leaf in jax.tree.leaves(env._check_params(params)):
            if not np.all(np.isfinite(np.asarray(leaf, dtype=np.float64))):
                raise InputError(f"the params of {env.name} must be finite numbers.")
        self.env = env
        self.default = params is None
        self.params = env.default_params if params is None else params
        self.render_mode = render_mode
        self.metadata = {"render_modes": [env.render_mode], "render_fps": 10}
        self.action_space = spaces.Discrete(env.num_actions)
        self.observation_space = _space(env.observation)
        self._state: EnvState[Any] | None = None
        self._key: jax.Array | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        first, self._key = jax.random.split(jax.random.key(int(self.np_random.integers(0, 2**31))))
        self._state, observation = _reset(self.env, first, self.params)
        return self._to_observation(observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._state is None or self._key is None:
            raise InputError("reset the environment before the first step.")
        # A scalar of JAX's is as good as one of NumPy's.
        if not self.action_space.contains(np.asarray(action)):
            raise InputError(
                f"an action must be a whole number from 0 to {self.env.num_actions - 1}, "
                f"not {action!r}."
            )
        now, self._key = jax.random.split(self._key)
        after = _step(self.env, now, self._state, np.int32(action), self.params)
        self._state = after.state
        return (
            self._to_observation(after.observation),
            float(after.reward),
            bool(after.terminated),
            bool(after.truncated),
            {},
        )

    def render(self) -> Any:
        if self.render_mode is None or self._state is None:
            return None
        return self.env.render(self._state, self.params)

    def _to_observation(self, observation: jax.Array) -> Any:
        if isinstance(self.env.observation, Discrete):
            return int(observation)
        return np.asarray(observation, dtype=np.float32).copy()


def _space(observation: Discrete | Box) -> spaces.Space[Any]:
    if isinstance(observation, Discrete):
        return spaces.Discrete(observation.n)
    low, high = (np.asarray(v, dtype=np.float32) for v in (observation.low, observation.high))
    return spaces.Box(low, high, dtype=np.float32)


class HostEnvironment:
    """An environment of Gymnasium's that runs on the host: slower, and not differentiable.

    Observations that are not whole numbers are flattened to vectors by Gymnasium's rules.
    """

    def __init__(self, env: "gymnasium.Env[Any, Any]") -> None:
        self.env = env
        self.name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self.step_limit = _step_limit(env)
        if not env.observation_space.is_np_flattenable:
            raise InputError(f"the observations of {self.name} cannot be flattened to vectors.")

    @property
    def is_live(self) -> bool:
        """Whether playing once more may be something else: people may be in it, for all we know.

        Not if one of our simulators is inside, and nothing around it that changes what happens.
        """
        return _has_changing_wrapper(self.env) or type(self.env.unwrapped) is not GymnasiumEnv

    def second_instance(self) -> "HostEnvironment | None":
        """A second instance, if Gymnasium made the first of an id; errors are the environment's."""
        try:
            spec = self.env.spec
        except Exception:  # wrappers that do not say how they were made
            return None
        return None if spec is None else HostEnvironment(gymnasium.make(spec))

    @property
    def num_actions(self) -> int:
        space = self.env.action_space
        if not isinstance(space, spaces.Discrete):
            raise InputError(f"{self.name} does not have finitely many actions to choose from.")
        return int(space.n)

    @property
    def observation(self) -> Discrete | Box:
        space = self.env.observation_space
        if isinstance(space, spaces.Discrete):
            return Discrete(int(space.n))
        flat = cast(spaces.Box, spaces.flatten_space(space))
        return Box(tuple(map(float, flat.low)), tuple(map(float, flat.high)))

    @property
    def observation_form(self) -> tuple[tuple[int, ...], type]:
        """The shape and the type of an observation as an array."""
        seen = self.observation
        return ((), int) if isinstance(seen, Discrete) else (seen.shape, float)

    def _to_observation(self, observation: Any) -> Any:
        space = self.env.observation_space
        if isinstance(space, spaces.Discrete):
            return int(observation) - int(space.start)
        return spaces.flatten(space, observation)

    def observation_array(self, shape: tuple[int, ...], kind: type, observation: Any) -> Any:
        """An observation as an array of this shape and type; raises if it has another shape."""
        found: NDArray[Any] = np.asarray(self._to_observation(observation), kind)
        if found.shape != shape:
            raise InputError(
                f"{self.name} gave an observation of the shape {found.shape}, not {shape}."
            )
        return found

    def _to_action(self, action: Any) -> Any:
        space = self.env.action_space
        if isinstance(space, spaces.Discrete):
            if not space.contains(action + space.start):
                raise InputError(f"the policy's action {action!r} is none of {self.name}'s.")
            return int(action) + int(space.start)
        # Bounds are not checked: policies may overshoot them, and environments cut off.
        if action.shape != space.shape:
            raise InputError(
                f"an action of {self.name} has the shape {space.shape}, not {action.shape}."
            )
        return action.astype(space.dtype)

    def episodes(
        self, policy: Policy, key: jax.Array, count: int, steps: int | None = None
    ) -> Episodes:
        """What `privrl.envs.episodes` gives, by a loop in Python and in NumPy arrays."""
        length = self.step_limit if steps is None else checks.count("steps", steps)
        if length is None:
            raise InputError(f"{self.name} has no step limit: say how many `steps` at most.")
        check_policy(policy)
        key = typed_key(key)
        compiled: Callable[[jax.Array, Any], jax.Array] = jax.jit(policy)
        seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
        rows = []
        for number in range(checks.count("count", count)):
            seen, _ = self.env.reset(seed=seed if number == 0 else None)
            observation = self._to_observation(seen)
            row: list[Transitions] = []
            for key_now in jax.random.split(jax.random.fold_in(key, number), length):
                action = np.asarray(compiled(key_now, observation))
                seen, reward, terminated, truncated, _ = self.env.step(self._to_action(action))
                after = self._to_observation(seen)
                late = bool(truncated) and not terminated  # never both flags
                row.append(
                    Transitions(observation, action, float(reward), after, bool(terminated), late)
                )
                observation = after
                if terminated or truncated:
                    break
            rows.append(row)
        return _pad_episodes(rows, length)


def _pad_episodes(rows: list[list[Transitions]], length: int) -> Episodes:
    valid = np.array([[t < len(row) for t in range(length)] for row in rows])

    def column(field: int) -> NDArray[Any]:
        # What comes after the end repeats the last row; `valid` says that it did not happen.
        return np.array([[row[min(t, len(row) - 1)][field] for t in range(length)] for row in rows])

    return Episodes(Transitions(*(column(i) for i in range(len(Transitions._fields)))), valid)


def collect(
    env: "Environment[Any, Any] | HostEnvironment",
    policy: Policy,
    key: jax.Array,
    count: int,
    *,
    params: Any = None,
    steps: int | None = None,
) -> Episodes:
    """`count` episodes as NumPy arrays, compiled where the environment allows it.

    `policy(key, observation)` is a pure function in both cases.
    """
    if isinstance(env, HostEnvironment):
        if params is not None:
            raise InputError(f"{env.name} runs on the host and takes no params.")
        return env.episodes(policy, key, count, steps)
    if not isinstance(env, Environment):
        raise InputError(
            "must be an environment, such as `privrl.envs.make` makes of a name.", field="env"
        )
    check_policy(policy)
    try:
        hash(policy)
    except TypeError:  # a callable that holds arrays, such as a network: compiled each time
        policy = partial(policy)
    made: Episodes = jax.tree.map(np.asarray, _episodes(env, policy, key, count, params, steps))
    return made


_episodes = jax.jit(episodes, static_argnums=(0, 1, 3, 5))


def from_gymnasium(env: "gymnasium.Env[Any, Any]") -> "Environment[Any, Any] | HostEnvironment":
    """The best form: ours, a `TabularMDP` of its tables, or the host."""
    inside, changed = env.unwrapped, _has_changing_wrapper(env)
    # Of this very class: one of the caller's that is made from it may do something else.
    if type(inside) is GymnasiumEnv and not changed:
        if _step_limit(env) in (None, inside.env.step_limit) and inside.default:
            return inside.env
        return HostEnvironment(env)
    table, start = getattr(inside, "P", None), getattr(inside, "initial_state_distrib", None)
    # A fickle passenger changes their mind, of which the table of Taxi does not speak; nor does a
    # table speak of steps that somebody else than Gymnasium takes, who may ask people.
    fickle = bool(getattr(inside, "fickle_passenger", False))
    steps = (type(inside).step.__module__, type(inside).reset.__module__)
    changed |= any(not module.startswith("gymnasium.") for module in steps)
    if not isinstance(table, Mapping) or start is None or changed or fickle:
        return HostEnvironment(env)
    name = env.spec.id if env.spec is not None else type(inside).__name__
    return TabularMDP.from_dict(table, start, step_limit=_step_limit(env), name=name)


def is_live(env: "Environment[Any, Any] | HostEnvironment") -> bool:
    """Whether people may be in it, for all we know: compiled environments are simulators."""
    return isinstance(env, HostEnvironment) and env.is_live


def simulator_identity(env: "Environment[Any, Any] | HostEnvironment") -> Any:
    """What makes a simulator the one it is, for a digest: its settings, and parameters of its."""
    if isinstance(env, Environment):
        return env, env.default_params
    inside = env.env.unwrapped
    assert isinstance(inside, GymnasiumEnv)
    return inside.env, inside.params, env.step_limit


def _has_changing_wrapper(env: "gymnasium.Env[Any, Any]") -> bool:
    """Whether a wrapper changes what happens, of which tables would not know.

    These three watch; what is made from them may do more.
    """
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if type(layer) not in (OrderEnforcing, PassiveEnvChecker, TimeLimit):
            return True
        layer = layer.env
    return False


def _step_limit(env: "gymnasium.Env[Any, Any]") -> int | None:
    limits: list[int | None] = []
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            limits.append(int(layer._max_episode_steps))
        layer = layer.env
    if isinstance(layer, GymnasiumEnv):
        limits.append(layer.env.step_limit)
    return min((limit for limit in limits if limit is not None), default=None)
