"""What an environment is here: two pure functions and a pytree of parameters.

`reset(key, params)` gives a state and its observation; `step(key, state, action, params)` gives a
`Step`. Nothing is kept between calls, so whole rollouts compile (`lax.scan`) and vectorise
(`vmap`), over people as over parameters: a thousand gravities are one call.

- *Terminated* means that nothing more can happen; *truncated* means that a clock ran out. The two
  are never both true, and only the first may zero a bootstrap.
- A terminated state absorbs: stepping on from it changes nothing and pays nothing, in every
  environment. Batches of fixed length can thus run on past the end without harm.
- `auto_step` starts afresh after an end, and keeps the last observation of the old episode in
  `Step.final_observation`.

Numbers are 32-bit, or 64-bit under `jax.enable_x64(True)`; the flag is the caller's.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike, NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.envs import arrays

Inner = TypeVar("Inner")
Params = TypeVar("Params")

Policy = Callable[[jax.Array, jax.Array], jax.Array]
"""`policy(key, observation)` gives an action; pure, so that it can be compiled."""


@dataclass(frozen=True)
class Discrete:
    """Observations are whole numbers from 0 to n - 1."""

    n: int


@dataclass(frozen=True)
class Box:
    """Observations are vectors; the bounds are facts about the environment, not about any data."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    names: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int]:
        return (len(self.low),)


class EnvState(NamedTuple, Generic[Inner]):
    """What the environment says about itself, the clock, and whether the episode has terminated."""

    inner: Inner
    time: jax.Array
    ended: jax.Array


class Step(NamedTuple, Generic[Inner]):
    """What one action led to.

    `final_observation` is where the action led; `observation` differs from it only after an
    automatic reset, when it is the first of the new episode.
    """

    state: EnvState[Inner]
    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    final_observation: jax.Array


class Environment(ABC, Generic[Inner, Params]):
    """Base of all environments; they are frozen values, equal when their settings are."""

    render_mode: ClassVar[Literal["ansi", "rgb_array"]] = "rgb_array"

    step_limit: int | None
    """After how many steps an episode is truncated; None for never."""

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return type(self).__name__

    def __post_init__(self) -> None:
        if self.step_limit is not None:
            checks.count("step_limit", self.step_limit)

    # --- what each environment says ---------------------------------------------------------------

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """Actions are the whole numbers below this."""

    @property
    @abstractmethod
    def observation(self) -> Discrete | Box:
        """What observations look like."""

    @property
    @abstractmethod
    def default_params(self) -> Params:
        """The parameters used when none are given."""

    @abstractmethod
    def _reset(self, key: jax.Array, params: Params) -> Inner: ...

    def _draw(self, key: jax.Array) -> Any:
        """The random numbers of one step, whatever the state; None if nothing is random."""
        return None

    @abstractmethod
    def _move(
        self, draw: Any, inner: Inner, action: jax.Array, params: Params
    ) -> tuple[Inner, jax.Array, jax.Array]:
        """The next inner state, the reward, and whether the episode terminates."""

    def _observe(self, inner: Inner, params: Params) -> jax.Array:
        """What is seen of the inner state: all of it, by default."""
        return cast(jax.Array, inner)

    @abstractmethod
    def render(
        self, state: EnvState[Inner], params: Params | None = None
    ) -> str | NDArray[np.uint8]:
        """The state for people: text for tables, a picture (height, width, 3) for the rest."""

    # --- what all have in common ------------------------------------------------------------------

    def reset(
        self, key: jax.Array, params: Params | None = None
    ) -> tuple[EnvState[Inner], jax.Array]:
        """A first state and its observation."""
        given = self._check_params(params)
        inner = self._reset(typed_key(key), given)
        return self.state_at(inner), self._observe(inner, given)

    def state_at(self, inner: Inner) -> EnvState[Inner]:
        """The state of an episode that starts at `inner`."""
        return EnvState(inner, jnp.zeros((), jnp.int32), jnp.zeros((), bool))

    def step(
        self,
        key: jax.Array,
        state: EnvState[Inner],
        action: jax.Array | int,
        params: Params | None = None,
    ) -> Step[Inner]:
        """One step, without a reset. Actions outside the range are not noticed in compiled code."""
        if isinstance(action, int | np.integer) and not 0 <= action < self.num_actions:
            last = self.num_actions - 1
            raise InputError(f"an action of {self.name} must be from 0 to {last}, not {action}.")
        given = self._check_params(params)
        return self._advance(self._draw(typed_key(key)), state, _check_action(action), given)

    def _check_params(self, params: Params | None) -> Params:
        default = self.default_params
        if params is None:
            return default
        # A default that is a plain number is no class to hold anybody to.
        if isinstance(default, tuple) and not isinstance(params, type(default)):
            raise InputError(
                f"the params of {self.name} must be {type(default).__name__}, "
                f"not {type(params).__name__}."
            )
        return params

    def _advance(
        self, draw: Any, state: EnvState[Inner], action: jax.Array, given: Params
    ) -> Step[Inner]:
        inner, reward, terminated = self._move(draw, state.inner, action, given)
        inner = _tree_where(state.ended, state.inner, inner)
        reward = jnp.where(state.ended, 0.0, jnp.asarray(reward, jnp.result_type(float)))
        terminated = jnp.asarray(terminated) | state.ended
        time = state.time + jnp.where(state.ended, 0, 1).astype(state.time.dtype)
        late = jnp.zeros((), bool) if self.step_limit is None else time >= self.step_limit
        observation = self._observe(inner, given)
        after = EnvState(inner, time, terminated)
        return Step(after, observation, reward, terminated, late & ~terminated, observation)

    def auto_step(
        self,
        key: jax.Array,
        state: EnvState[Inner],
        action: jax.Array | int,
        params: Params | None = None,
    ) -> Step[Inner]:
        """One step; after an end, `state` and `observation` are those of a new episode."""
        step_key, reset_key = jax.random.split(typed_key(key))
        return _auto_reset(
            self.step(step_key, state, action, params), self.reset(reset_key, params)
        )


def _auto_reset(after: Step[Inner], fresh: tuple[EnvState[Inner], jax.Array]) -> Step[Inner]:
    """The step, continued by a fresh episode where the old one is over."""
    over = after.terminated | after.truncated
    return after._replace(
        state=_tree_where(over, fresh[0], after.state),
        observation=_tree_where(over, fresh[1], after.observation),
    )


def typed_key(key: jax.Array) -> jax.Array:
    """The key as a JAX scalar; what `jax.random.PRNGKey` makes is two bare words."""
    try:
        typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        scalar = key if typed else jax.random.wrap_key_data(key)
    except (AttributeError, TypeError, ValueError):
        raise InputError("must be a random key, such as jax.random.key(0).", field="key") from None
    if scalar.shape != ():
        raise InputError("must be one random key: use jax.vmap for many.", field="key")
    return scalar


def _check_action(action: Any) -> jax.Array:
    """The action in 32 bits: of other types, `action - 1` might wrap around and `table[action]`
    select."""
    try:
        given = jnp.asarray(action)
    except (TypeError, ValueError):
        raise InputError(f"an action must be one whole number, not {action!r}.") from None
    kind = given.dtype
    if given.shape != () or not (jnp.issubdtype(kind, jnp.integer) or kind == jnp.bool_):
        shape = f" and shape {given.shape}" if given.shape else ""
        raise InputError(f"an action must be one whole number, not of type {kind}{shape}.")
    return given.astype(jnp.int32)


def _check_run(env: object, policy: object) -> None:
    if not isinstance(env, Environment):
        raise InputError(
            "cannot be compiled: `privrl.envs.collect` runs what `make` makes.", field="env"
        )
    check_policy(policy)


def check_policy(policy: object) -> None:
    if not callable(policy):
        raise InputError("must be a function: `table_policy` makes one of a table.", field="policy")


Tree = TypeVar("Tree")


def _tree_where(condition: jax.Array, yes: Tree, no: Tree) -> Tree:
    chosen: Tree = jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
    return chosen


# --- policies -------------------------------------------------------------------------------------


def random_policy(num_actions: int) -> Policy:
    """Each action equally often, whatever is observed."""
    size = checks.count("num_actions", num_actions)

    def policy(key: jax.Array, observation: jax.Array) -> jax.Array:
        # One word of 32 bits: `randint` draws several, to remove a bias of at most size / 2^32.
        return (jax.random.bits(key) % size).astype(jnp.int32)

    return policy


def table_policy(table: ArrayLike) -> Policy:
    """Actions drawn from row `observation` of a table of probabilities (S, A)."""
    probs = arrays.distributions("the rows of a policy", table)
    if probs.ndim != 2 or 0 in probs.shape:
        raise InputError("a policy must be a table of probabilities, states by actions.")
    below = arrays.cumulative(probs)[:, :-1]

    def policy(key: jax.Array, observation: jax.Array) -> jax.Array:
        bounds = jnp.asarray(below, jnp.result_type(float))
        drawn = jax.random.uniform(key) >= bounds[observation]
        return jnp.sum(drawn, dtype=jnp.int32)

    return policy


# --- running --------------------------------------------------------------------------------------


class Transitions(NamedTuple):
    """Steps in order. `next_observation` is where each led, also across a reset."""

    observation: Any
    action: Any
    reward: Any
    next_observation: Any
    terminated: Any
    truncated: Any


def _transition(observation: jax.Array, action: jax.Array, after: Step[Any]) -> Transitions:
    ends = after.terminated, after.truncated
    return Transitions(observation, action, after.reward, after.final_observation, *ends)


class Episodes(NamedTuple):
    """Transitions of shape (episodes, steps), and which of them happened before the end."""

    transitions: Transitions
    valid: Any

    @property
    def lengths(self) -> Any:
        """How many steps each episode took."""
        return self.valid.sum(axis=-1)

    def returns(self, gamma: float = 1.0) -> Any:
        """The discounted sum of each episode's rewards."""
        weights = checks.number("gamma", gamma) ** np.arange(self.valid.shape[-1])
        return (self.transitions.reward * self.valid * weights).sum(axis=-1)


class Carry(NamedTuple, Generic[Inner]):
    """Where a rollout stands: hand it back to go on."""

    state: EnvState[Inner]
    observation: jax.Array


def begin(
    env: Environment[Inner, Params], key: jax.Array, params: Params | None = None
) -> Carry[Inner]:
    """A fresh episode to roll out from."""
    return Carry(*env.reset(key, params))


def rollout(
    env: Environment[Inner, Params],
    policy: Policy,
    key: jax.Array,
    steps: int,
    params: Params | None = None,
    carry: Carry[Inner] | None = None,
) -> tuple[Carry[Inner], Transitions]:
    """`steps` steps of one environment that starts afresh after each end, as one `lax.scan`.

    Wrap in `jax.jit`, and in `jax.vmap` over `key` (and `params`) for many at once.

    All random numbers, except those of the policy, are drawn before the loop, in bulk: drawing
    it inside, a number at a time, would take most of the time that a step takes.
    """
    _check_run(env, policy)
    checks.count("steps", steps)
    given = env._check_params(params)
    # One split, because each of them takes a third of a second to compile.
    keys = jax.random.split(typed_key(key), 1 + 3 * steps)
    begun = begin(env, keys[0], params) if carry is None else carry
    policy_keys, step_keys, reset_keys = keys[1:].reshape(3, steps)
    draws = jax.vmap(env._draw)(step_keys)
    fresh = jax.vmap(lambda key: env.reset(key, params))(reset_keys)

    def body(now: Carry[Inner], drawn: Any) -> tuple[Carry[Inner], Transitions]:
        policy_key, draw, first = drawn
        action = _check_action(policy(policy_key, now.observation))
        after = _auto_reset(env._advance(draw, now.state, action, given), first)
        return Carry(after.state, after.observation), _transition(now.observation, action, after)

    return lax.scan(body, begun, (policy_keys, draws, fresh))


def episodes(
    env: Environment[Inner, Params],
    policy: Policy,
    key: jax.Array,
    count: int,
    params: Params | None = None,
    steps: int | None = None,
) -> Episodes:
    """`count` episodes from their start, side by side, padded to `steps` (or the step limit)."""
    _check_run(env, policy)
    length = env.step_limit if steps is None else checks.count("steps", steps)
    if length is None:
        raise InputError(f"{env.name} has no step limit: say how many `steps` an episode may take.")

    given = env._check_params(params)

    def one(keys: jax.Array) -> tuple[Transitions, jax.Array]:
        policy_keys, step_keys = keys[1:].reshape(2, length)

        def body(
            now: tuple[Carry[Inner], jax.Array], drawn: Any
        ) -> tuple[tuple[Carry[Inner], jax.Array], tuple[Transitions, jax.Array]]:
            carry, alive = now
            policy_key, draw = drawn
            action = _check_action(policy(policy_key, carry.observation))
            after = env._advance(draw, carry.state, action, given)
            row = _transition(carry.observation, action, after)
            still = alive & ~(after.terminated | after.truncated)
            return (Carry(after.state, after.observation), still), (row, alive)

        begun = (begin(env, keys[0], params), jnp.ones((), bool))
        _, rows = lax.scan(body, begun, (policy_keys, jax.vmap(env._draw)(step_keys)))
        return rows

    shape = (checks.count("count", count), 1 + 2 * length)
    return Episodes(*jax.vmap(one)(jax.random.split(typed_key(key), shape)))
