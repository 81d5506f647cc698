"""The public rollout: where a behaviour leads that does not look at rewards, and what it was paid.

A `Rollout` is a fixed number of steps through an environment, starting afresh after each end, by a
behaviour policy that sees observations only. If dynamics, termination and failures of the
environment do not depend on the reward function, everything of a rollout but `reward` has the same
law for every reward function: it is *public*, and `public()` is the rollout without the rest. What
this supposes about the environment no code can check; the certificate lists it.

Rewards are read in a way that cannot fail: what is no number is NaN, and those who use it decide
what that counts as (0, everywhere in this package). In an environment of Gymnasium's that raises an
error, the episode ends with the step before it, as if a clock had run out; the error is not shown
in private runs, since its words may hold rewards, and neither are warnings.

A `SampledRollout` also knows where its steps *could* have led: from the state of each step its
action is taken again, with fresh randomness. That takes an environment which can be put into any
state, so a compiled one; of others a rollout knows only where its own steps led. What is drawn so
is public too, but for `paid`.
"""

import copy
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from privrl.control.heads import Head, Layers, Linear
from privrl.control.kept import kept
from privrl.core.errors import InputError
from privrl.core.silence import silence
from privrl.core.types import Floats
from privrl.data import EpsilonGreedy, Policy
from privrl.data.policies import Network as NetworkPolicy
from privrl.data.policies import choose
from privrl.envs.base import Discrete, Environment, Transitions, random_policy, rollout
from privrl.envs.base import Policy as Acts
from privrl.envs.host import HostEnvironment
from privrl.privacy import noise

Env = Environment[Any, Any] | HostEnvironment
RewardOf = Literal["arrival", "step"]


@dataclass(frozen=True, eq=False)
class Rollout:
    """Steps in order: observations (n,) or (n, k), actions, where each led, ends, and rewards."""

    observation: NDArray[Any]
    action: NDArray[np.int64]
    next_observation: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    reward: Floats | None = None
    """**Private**; None in the public part of a rollout."""

    def __len__(self) -> int:
        return len(self.action)

    def public(self) -> "Rollout":
        """The rollout without its rewards."""
        return replace(self, reward=None)

    def points(self, reward_of: RewardOf) -> Floats:
        """What each reward is a function of: the state arrived in, or the state and the action."""
        if reward_of == "arrival":
            return np.asarray(self.next_observation, np.float64)
        seen = np.asarray(self.observation, np.float64).reshape(len(self), -1)
        return np.column_stack([seen, self.action.astype(np.float64)])


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledRollout(Rollout):
    """A rollout, and for each of m rows K places where a step could have led.

    Successor k of a row has the probability `probs[row, k]`; those of a row sum to 1.
    """

    row: NDArray[np.int64]
    """(n,): which row is about the state and the action of each step."""

    led: NDArray[Any]
    """(m, K) or (m, K, k) observations."""

    ends: NDArray[np.bool_]
    """(m, K): whether the episode terminates there."""

    probs: Floats
    """(m, K)."""

    paid: Floats | None = None
    """(m, K), **private**; None in the public part of a rollout, and where nobody looked."""

    def public(self) -> "SampledRollout":
        return replace(self, reward=None, paid=None)

    @property
    def unequal_probs(self) -> Floats | None:
        """The probabilities, or None where all are alike: then outcomes are samples."""
        return None if np.ptp(self.probs) == 0.0 else self.probs

    def reward_points(self, reward_of: RewardOf) -> Floats:
        """What the reward of each successor is a function of, row by row: m K of them."""
        if reward_of == "arrival":
            return np.asarray(self.led, np.float64).reshape(-1, *self.led.shape[2:])
        first = np.unique(self.row, return_index=True)[1]
        return np.repeat(self.points("step")[first], self.led.shape[1], axis=0)


def pool_successors(rollout: SampledRollout) -> SampledRollout:
    """The same of discrete states with one row for each state and action, however often visited.

    Its successors are the distinct ones, each with the share of the draws that led there; so what
    they paid is the mean over these. Rows with fewer repeat their first one, with probability 0.
    """
    # One number says where from, one where to and whether that is the end.
    pairs = rollout.observation.astype(np.int64) * (1 + rollout.action.max()) + rollout.action
    row = np.unique(pairs, return_inverse=True)[1].ravel()
    led, ends, weights = (x[rollout.row] for x in (rollout.led, rollout.ends, rollout.probs))
    width = 2 * (1 + int(led.max()))
    steps, where = np.unique(row[:, None] * width + 2 * led + ends, return_inverse=True)
    where, owner = where.ravel(), steps // width
    shares = np.bincount(where, weights.ravel())
    # They come in the order of their rows.
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    place = np.arange(len(steps)) - first[owner]
    shape = (len(first), int(place.max()) + 1)

    def table(values: Any, rest: Any) -> Any:
        made = np.array(np.broadcast_to(rest, shape))
        made[owner, place] = values
        return made

    def fill_table(values: Any) -> Any:
        return table(values, values[first][:, None])

    probs = table(shares, 0.0)
    paid = None
    if rollout.paid is not None:
        sums = np.bincount(where, weights.ravel() * rollout.paid[rollout.row].ravel())
        paid = fill_table(sums / shares)
    return replace(
        rollout,
        row=row,
        led=fill_table(steps % width // 2),
        ends=fill_table(steps % 2 == 1),
        probs=probs / probs.sum(axis=1, keepdims=True),
        paid=paid,
    )


def collect_rollout(
    env: Env, behaviour: Policy | None, key: jax.Array, steps: int, *, private: bool = True
) -> Rollout:
    """`steps` steps of `behaviour` in `env`; None takes each action equally often.

    An environment of Gymnasium's that keeps failing gives fewer. Unless the run is `private`, its
    errors are raised.
    """
    _check_num_actions(env, behaviour)
    if isinstance(env, HostEnvironment):
        return _check_observations(_host_rollout(env, behaviour, key, steps, private), env)
    with jax.enable_x64(True):
        if behaviour is None:
            return _from_transitions(_random_rollout(env, key, steps), env)
        act = _make_act(behaviour)
        return _from_transitions(jax.jit(lambda key: rollout(env, act, key, steps)[1])(key), env)


def _check_num_actions(env: Env, behaviour: Policy | None) -> None:
    if behaviour is not None and behaviour.num_actions != env.num_actions:
        raise InputError(
            f"behaviour has {behaviour.num_actions} actions, and {env.name} {env.num_actions}."
        )


def _make_act(behaviour: Policy) -> Acts:
    """It holds arrays, so that nothing compiled for it can be kept."""

    def act(key: jax.Array, observation: Any) -> Any:
        return _sample_action(key, behaviour.probabilities(observation[None])[0])

    return act


# So many successors fit into memory, whatever a state is.
_MAX_SUCCESSORS = 2 * 10**7


def collect_sampled_rollout(
    env: Env,
    behaviour: Policy | None,
    key: jax.Array,
    steps: int,
    samples: int,
    *,
    read: bool,
    private: bool = True,
) -> SampledRollout:
    """A rollout, and `samples` successors of each step; what they paid is looked at if `read`.

    The steps are those of `collect_rollout` with the same key. In one of Gymnasium's environments
    the only successor of a step is the one it had: `pool_successors` makes more of them where
    states are discrete, and others are refused.
    """
    if isinstance(env, HostEnvironment):
        if not isinstance(env.observation, Discrete):
            raise InputError(
                f"{env.name} observes vectors and cannot be stepped twice from one state: use an "
                "environment that compiles, or one of discrete states."
            )
        own = collect_rollout(env, behaviour, key, steps, private=private)
        assert own.reward is not None
        return SampledRollout(
            **vars(own),
            row=np.arange(len(own)),
            led=own.next_observation[:, None],
            ends=own.terminated[:, None],
            probs=np.ones((len(own), 1)),
            paid=own.reward[:, None] if read else None,
        )
    if steps * samples > _MAX_SUCCESSORS:
        raise InputError(
            f"{steps:,} steps with {samples:,} successors each are more than "
            f"{_MAX_SUCCESSORS:,}: use "
            "fewer steps or samples."
        )
    _check_num_actions(env, behaviour)
    with jax.enable_x64(True):
        if behaviour is None:
            rows, after = _sample_random_successors(env, key, steps, samples, read)
        else:
            act = _make_act(behaviour)
            rows, after = jax.jit(
                lambda key: _sample_successors(env, act, key, steps, samples, read)
            )(key)
        own = _from_transitions(rows, env)
    led, ends, paid = after
    made = SampledRollout(
        **vars(own),
        row=np.arange(steps),
        led=np.asarray(led),
        ends=np.asarray(ends, bool),
        probs=np.full((steps, samples), 1.0 / samples),
        paid=np.asarray(paid, np.float64) if read else None,
    )
    _refuse_infinite(made.led, env)
    return made


def collect_greedy_rollout(
    env: Env,
    head: Head,
    parameters: Floats,
    explore: float,
    key: jax.Array,
    steps: int,
    *,
    private: bool = True,
) -> Rollout:
    """`collect_rollout` by a `greedy_policy`; other parameters need no compiling anew."""
    if isinstance(env, HostEnvironment):
        return collect_rollout(
            env, greedy_policy(head, parameters, explore), key, steps, private=private
        )
    with jax.enable_x64(True):
        values = jnp.asarray(parameters.ravel())
        return _from_transitions(_greedy_rollout(env, head, values, explore, key, steps), env)


def greedy_policy(head: Head, parameters: Floats, explore: float = 0.0) -> Policy:
    """The action of the largest value, or any with probability `explore`."""
    values = parameters.reshape(head.shape)
    if isinstance(head, Layers):
        return NetworkPolicy(tuple(head.layers(values)), head.activation, head.features, explore)
    return EpsilonGreedy(values, explore, head.features if isinstance(head, Linear) else None)


def _from_transitions(rows: Transitions, env: Env) -> Rollout:
    made = Rollout(
        np.asarray(rows.observation),
        np.asarray(rows.action, np.int64),
        np.asarray(rows.next_observation),
        np.asarray(rows.terminated, bool),
        np.asarray(rows.truncated, bool),
        np.asarray(rows.reward, np.float64),
    )
    return _check_observations(made, env)


def _check_observations(made: Rollout, env: Env) -> Rollout:
    for seen in (made.observation, made.next_observation):
        _refuse_infinite(seen, env)
    return made


def _refuse_infinite(seen: Any, env: Env) -> None:
    if not np.all(np.isfinite(seen)):
        raise InputError(f"{env.name} gave an observation that is not finite.")


@kept(0, 2)
def _random_rollout(env: Environment[Any, Any], key: jax.Array, steps: int) -> Any:
    return rollout(env, random_policy(env.num_actions), key, steps)[1]


def _fully_observed(env: Environment[Any, Any]) -> Environment[Any, Any]:
    """The same environment, of which the inner state itself is observed."""
    shown = type(env.name, (type(env),), {"_observe": lambda self, inner, params: inner})
    found = copy.copy(env)
    object.__setattr__(found, "__class__", shown)
    return found


def _sample_successors(
    env: Environment[Any, Any], act: Acts, key: jax.Array, steps: int, samples: int, read: bool
) -> Any:
    """The steps, and of their successors (steps, samples): observations, ends and rewards."""
    given = env.default_params

    def observe(inner: Any) -> Any:
        return env._observe(inner, given)

    def choose_action(key: jax.Array, inner: Any) -> Any:
        return act(key, observe(inner))

    rows = rollout(_fully_observed(env), choose_action, key, steps)[1]
    # The rollout splits the same key, into fewer parts than this number.
    keys = jax.random.split(jax.random.fold_in(key, 2**31), (steps, samples))

    def resample(keys: Any, inner: Any, action: Any) -> Any:
        return jax.vmap(lambda key: env.step(key, env.state_at(inner), action))(keys)

    after = jax.vmap(resample)(keys, rows.observation, rows.action)
    shown = rows._replace(
        observation=jax.vmap(observe)(rows.observation),
        next_observation=jax.vmap(observe)(rows.next_observation),
    )
    return shown, (after.final_observation, after.terminated, after.reward if read else None)


@partial(jax.jit, static_argnums=(0, 2, 3, 4))
def _sample_random_successors(
    env: Environment[Any, Any], key: jax.Array, steps: int, samples: int, read: bool
) -> Any:
    return _sample_successors(env, random_policy(env.num_actions), key, steps, samples, read)


@partial(jax.jit, static_argnums=(0, 1, 5))
def _greedy_rollout(
    env: Environment[Any, Any],
    head: Head,
    parameters: jax.Array,
    explore: float,
    key: jax.Array,
    steps: int,
) -> Any:
    def act(key: jax.Array, observation: Any) -> Any:
        values = head.apply(parameters, head.inputs(observation[None]))[0]
        best = jnp.arange(head.outputs) == jnp.argmax(values)
        return _sample_action(key, (1.0 - explore) * best + explore / head.outputs)

    return rollout(env, act, key, steps)[1]


def _sample_action(key: jax.Array, probs: Any) -> Any:
    return choose(jnp, probs, jax.random.uniform(key, (), probs.dtype)).astype(jnp.int32)


# --- Gymnasium's environments ---------------------------------------------------------------------

_Row = tuple[Any, int, Any, bool, bool, float]


def _host_rollout(
    env: HostEnvironment, behaviour: Policy | None, key: jax.Array, steps: int, private: bool
) -> Rollout:
    """One episode after the other, until there are `steps` steps or were as many episodes."""
    draw = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    shape, kind = env.observation_form
    rows: list[_Row] = []
    with silence() if private else nullcontext():
        for _ in range(steps):
            _episode(env, behaviour, draw, rows, steps, (shape, kind), private)
            if len(rows) == steps:
                break
    if not rows:
        raise InputError(f"{env.name} gave no step at all: try it without a budget, to see why.")
    columns = list(zip(*rows, strict=True))
    return Rollout(
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
    begun, to_array = len(rows), partial(env.observation_array, *like)

    try:
        seen, _ = env.env.reset(seed=int(draw.integers(2**31 - 1)))
        now = to_array(seen)
        while len(rows) < steps:
            if behaviour is None:
                action = int(draw.integers(env.num_actions))
            else:
                probs = np.asarray(behaviour.probabilities(now[None]))[0]
                action = int(choose(np, probs, np.asarray(draw.random())))
            seen, reward, terminated, truncated, _ = env.env.step(env._to_action(action))
            after = to_array(seen)
            ended, late = bool(terminated), bool(truncated) and not terminated
            rows.append((now, action, after, ended, late, _to_float(reward)))
            if ended or late:
                return
            now = after
    except Exception:  # whatever an environment of the caller's may raise
        if not private:
            raise
        if len(rows) > begun:
            rows[-1] = (*rows[-1][:4], True, rows[-1][5])


def _to_float(reward: Any) -> float:
    """The reward, or NaN for what is no number."""
    try:
        value = noise.as_float64("reward", reward)
    except Exception:  # an object of the caller's may do anything
        return float("nan")
    return float(value.ravel()[0]) if value.size == 1 else float("nan")
