"""Trajectories from an environment: `collect(env, policy, n, key)`.

Environments made of pure functions (`privrl.envs`) run compiled, many episodes side by side, in
segments of a fixed number of steps. After each segment what really happened is moved to the host
and the steps of episodes that had ended are dropped, so memory holds the data and one segment,
whatever the longest episode. Gymnasium environments, or their names, run one step after the other
in Python.

The probability with which each action was taken is recorded, as is the state after the last step.
Environment and policy draw from separate streams.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import AnyArray
from privrl.data.keys import generator, is_jax
from privrl.data.policies import Policy, choose
from privrl.data.trajectories import Behavior, Note, Trajectories

# Episodes side by side, and steps between looks at which of them have ended.
REPLICAS = 4096
SEGMENT = 64


def collect(
    env: Any, policy: Policy, n: int, key: Any, *, params: Any = None, max_steps: int | None = None
) -> Trajectories:
    """`n` episodes of `policy` in `env`: of `privrl.envs`, or Gymnasium's, or the latter's name.

    `key` is a JAX key or a whole number. `max_steps` truncates episodes that the environment lets
    go on; one of the two must set a limit.
    """
    if not isinstance(policy, Policy):
        raise InputError(
            "must be a policy of privrl.data: wrap a function in FunctionPolicy.", field="policy"
        )
    n = checks.count("n", n)
    if max_steps is not None:
        max_steps = checks.count("max_steps", max_steps)
    if isinstance(env, str) or hasattr(env, "action_space"):
        if params is not None:
            raise InputError("params are for environments of privrl.envs, not for Gymnasium's.")
        data = _collect_gymnasium(env, policy, n, key, max_steps)
    elif all(hasattr(env, name) for name in ("reset", "step", "default_params", "num_actions")):
        data = _collect_compiled(env, policy, n, key, params, max_steps)
    else:
        raise InputError(
            f"A {type(env).__name__} is neither an environment of privrl.envs nor of Gymnasium."
        )
    data = replace(data, behavior=Behavior("recorded"))
    return data.with_notes(Note("origin", "collected in a simulated environment"))


def _check_policy_fits(policy: Policy, actions: int, states: int | None) -> None:
    if policy.num_actions != actions:
        raise InputError(f"The policy has {policy.num_actions} actions, the environment {actions}.")
    if policy.num_states is not None and states is not None and policy.num_states != states:
        raise InputError(f"The policy has {policy.num_states} states, the environment {states}.")


# --- compiled ------------------------------------------------------------------------------------


def _collect_compiled(
    env: Any, policy: Policy, n: int, key: Any, params: Any, max_steps: int | None
) -> Trajectories:
    import jax

    states = getattr(getattr(env, "observation", None), "n", getattr(env, "num_states", None))
    _check_policy_fits(policy, int(env.num_actions), states)
    limits = [one for one in (getattr(env, "step_limit", None), max_steps) if one is not None]
    if not limits:
        raise InputError("The environment sets no limit to an episode: pass max_steps.")
    start = key if is_jax(key) else jax.random.key(checks.count("key", key, least=0))
    given = env.default_params if params is None else params
    pieces: list[dict[str, AnyArray]] = []
    first = 0
    begin, run = _programs(env, policy, given, min(limits))
    every = jax.random.split(start, n)
    for keys in (every[one : one + REPLICAS] for one in range(0, n, REPLICAS)):
        for piece in _segments(begin(keys), run):
            piece["episode"] += first
            pieces.append(piece)
        first += len(keys)
    rows = {name: np.concatenate([p[name] for p in pieces]) for name in pieces[0]}
    order = np.lexsort((rows["step"], rows["episode"]))
    rows = {name: values[order] for name, values in rows.items()}
    lengths = np.bincount(rows["episode"], minlength=n)
    last = np.cumsum(lengths) - 1
    return Trajectories.from_arrays(
        rows["state"],
        rows["action"],
        rows["reward"].astype(np.float64),
        lengths=lengths,
        behavior_probs=np.minimum(rows["probability"].astype(np.float64), 1.0),
        terminated=rows["terminated"][last],
        truncated=rows["truncated"][last],
        final_states=rows["after"][last],
        num_states=None if states is None else int(states),
        num_actions=int(env.num_actions),
    )


def _programs(env: Any, policy: Policy, params: Any, limit: int) -> tuple[Any, Any]:
    """How episodes begin, and how they go on for a segment; both compiled, over many at once."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def begin(key: Any) -> Any:
        world, actor, first = jax.random.split(key, 3)
        state, observation = env.reset(first, params)
        return world, actor, state, observation, jnp.zeros((), jnp.int32), jnp.zeros((), bool)

    def advance(carry: Any, _: None) -> Any:
        world, actor, state, observation, t, ended = carry
        p = policy.probabilities(observation[None])[0]
        uniform = jax.random.uniform(jax.random.fold_in(actor, t), (), p.dtype)
        action = choose(jnp, p, uniform)
        after = env.step(jax.random.fold_in(world, t), state, action, params)
        seen = getattr(after, "final_observation", after.observation)
        terminated = jnp.asarray(after.terminated, bool)
        cut = (jnp.asarray(after.truncated, bool) | (t + 1 >= limit)) & ~terminated
        row = {
            "step": t,
            "state": observation,
            "action": action,
            "reward": after.reward,
            "probability": p[action],
            "terminated": terminated,
            "truncated": cut,
            "after": seen,
            "happened": ~ended,
        }
        return (world, actor, after.state, seen, t + 1, ended | terminated | cut), row

    segment = min(SEGMENT, limit)
    run = jax.jit(jax.vmap(lambda carry: lax.scan(advance, carry, None, length=segment)))
    return jax.jit(jax.vmap(begin)), run


def _segments(carry: Any, run: Any) -> Iterator[dict[str, AnyArray]]:
    """The steps of some episodes, segment by segment, without those after an end."""
    while True:
        carry, rows = run(carry)
        on_host = {name: np.asarray(values) for name, values in rows.items()}
        kept = on_host.pop("happened")
        piece = {name: values[kept] for name, values in on_host.items()}
        piece["episode"] = np.nonzero(kept)[0]
        yield piece
        if bool(np.all(np.asarray(carry[-1]))):
            return


# --- Gymnasium -----------------------------------------------------------------------------------


def _collect_gymnasium(
    env: Any, policy: Policy, n: int, key: Any, max_steps: int | None
) -> Trajectories:
    import gymnasium

    owned = isinstance(env, str)
    if owned:
        try:
            env = gymnasium.make(env)
        except gymnasium.error.Error as error:
            raise InputError(f"Gymnasium cannot make the environment: {error}.") from None
    try:
        return _collect_episodes(env, policy, n, key, max_steps)
    finally:
        if owned:
            env.close()


def _collect_episodes(
    env: Any, policy: Policy, n: int, key: Any, max_steps: int | None
) -> Trajectories:
    from gymnasium import spaces

    space, acts = env.observation_space, env.action_space
    if not isinstance(acts, spaces.Discrete):
        raise InputError(f"The environment's actions must be discrete, not {acts}.")
    discrete = isinstance(space, spaces.Discrete)
    if not discrete and not isinstance(space, spaces.Box):
        raise InputError(f"The environment's observations must be discrete or a box, not {space}.")
    states = int(space.n) if discrete else None
    _check_policy_fits(policy, int(acts.n), states)
    limited = env.spec is not None and env.spec.max_episode_steps is not None
    if max_steps is None and not limited:
        raise InputError("The environment sets no limit to an episode: pass max_steps.")
    seeds, draws = generator(key).spawn(2)
    rows: dict[str, list[Any]] = {name: [] for name in ("s", "a", "r", "p")}
    ends: dict[str, list[Any]] = {name: [] for name in ("length", "terminated", "truncated", "s")}

    def to_state(observation: Any) -> Any:
        if discrete:
            return int(observation) - int(space.start)
        return np.asarray(observation, dtype=np.float64).ravel()

    for episode in range(n):
        # Seeded once: later resets go on with the environment's own generator.
        seed = int(seeds.integers(2**31)) if episode == 0 else None
        observation, _ = env.reset(seed=seed)
        state, length, terminated, truncated = to_state(observation), 0, False, False
        while not (terminated or truncated):
            p = np.asarray(policy.probabilities(np.asarray([state])))[0]
            action = int(choose(np, p, np.asarray(draws.random())))
            observation, reward, terminated, truncated, _ = env.step(action + int(acts.start))
            rows["s"].append(state)
            rows["a"].append(action)
            rows["r"].append(float(reward))
            rows["p"].append(min(float(p[action]), 1.0))
            state, length = to_state(observation), length + 1
            truncated = bool(truncated) or (max_steps is not None and length >= max_steps)
        ends["length"].append(length)
        ends["terminated"].append(bool(terminated))
        ends["truncated"].append(bool(truncated) and not terminated)
        ends["s"].append(state)
    return Trajectories.from_arrays(
        np.asarray(rows["s"]),
        np.asarray(rows["a"]),
        np.asarray(rows["r"]),
        lengths=np.asarray(ends["length"]),
        behavior_probs=np.asarray(rows["p"]),
        terminated=np.asarray(ends["terminated"]),
        truncated=np.asarray(ends["truncated"]),
        final_states=np.asarray(ends["s"]),
        num_states=states,
        num_actions=int(acts.n),
    )
