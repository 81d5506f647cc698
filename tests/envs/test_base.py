"""The interface: ends, resets, compilation, keys, and running many at once."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.envs import (
    HIV,
    MDP100,
    CartPole,
    CartPoleParams,
    Chain,
    Environment,
    Interval,
    MountainCar,
    ObstacleGrid,
    Taxi,
    begin,
    collect,
    episodes,
    random_policy,
    rollout,
    table_policy,
)
from privrl.privacy import InputError
from tests.envs.probes import Clock, Fuse
from tests.statistics import follows_discrete

# Compiling takes longer than running.
pytestmark = pytest.mark.usefixtures("compiled_quickly")

ALL: list[Environment[Any, Any]] = [
    Chain(),
    MDP100(),
    Taxi(),
    MountainCar(),
    CartPole(),
    HIV(substeps=10),
    ObstacleGrid(),
    Interval(),
]
KEY = jax.random.key(7)


def name(env: Environment[Any, Any]) -> str:
    return env.name


# --- ends -----------------------------------------------------------------------------------------


def test_a_clock_that_runs_out_truncates_and_does_not_terminate() -> None:
    _, rows = rollout(Clock(), random_policy(2), KEY, 12)
    assert not rows.terminated.any()
    assert np.flatnonzero(rows.truncated).tolist() == [4, 9]  # the fifth step of each episode


def test_termination_is_not_truncation() -> None:
    _, rows = rollout(Fuse(), random_policy(2), KEY, 9)
    assert np.flatnonzero(rows.terminated).tolist() == [2, 5, 8]
    assert not rows.truncated.any()


def test_both_at_once_is_termination() -> None:
    _, rows = rollout(Fuse(step_limit=3), random_policy(2), KEY, 9)
    assert np.flatnonzero(rows.terminated).tolist() == [2, 5, 8]
    assert not rows.truncated.any()


def test_no_step_limit_never_truncates() -> None:
    _, rows = rollout(Clock(step_limit=None), random_policy(2), KEY, 50)
    assert not rows.truncated.any()
    assert rows.next_observation[-1, 0] == 50


def test_automatic_reset_keeps_the_final_observation() -> None:
    _, rows = rollout(Clock(), random_policy(2), KEY, 7)
    assert rows.observation[:, 0].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert rows.next_observation[:, 0].tolist() == [1, 2, 3, 4, 5, 1, 2]


def test_auto_step_gives_both_observations() -> None:
    env = Clock(step_limit=1)
    state, _ = env.reset(KEY)
    after = env.auto_step(KEY, state, 0)
    assert [float(after.final_observation[0]), float(after.observation[0])] == [1, 0]
    assert bool(after.truncated)
    assert int(after.state.time) == 0
    plain = env.step(KEY, state, 0)
    assert [float(plain.final_observation[0]), float(plain.observation[0])] == [1, 1]


def test_terminated_states_absorb() -> None:
    env = Fuse(step_limit=10)
    state, _ = env.reset(KEY)
    rewards = []
    for _ in range(5):
        after = env.step(KEY, state, 0)
        state = after.state
        rewards.append(float(after.reward))
    assert rewards == [1, 1, 1, 0, 0]
    assert bool(after.terminated)
    assert not bool(after.truncated)
    assert float(state.inner) == 3
    assert int(state.time) == 3


# --- compilation, keys, vectors -------------------------------------------------------------------


@pytest.mark.parametrize("env", ALL, ids=name)
def test_rollouts_compile_and_vectorise(env: Environment[Any, Any]) -> None:
    steps = 250
    run = jax.jit(jax.vmap(lambda key: rollout(env, random_policy(env.num_actions), key, steps)[1]))
    keys = jax.random.split(KEY, 3)
    rows = run(keys)
    over = np.asarray(rows.terminated | rows.truncated)
    assert over.shape == rows.reward.shape == (3, steps)
    assert not np.any(rows.terminated & rows.truncated)
    assert over.any() or env.step_limit is None or env.step_limit > steps
    # What one row leads to is where the next starts, unless the episode is over.
    joined = np.asarray(rows.observation)[:, 1:] == np.asarray(rows.next_observation)[:, :-1]
    joined = joined.reshape(3, steps - 1, -1).all(axis=-1)
    assert np.all(joined | over[:, :-1])
    assert np.all(np.isfinite(rows.reward))
    # The key decides, and nothing else.
    for a, b in zip(rows, run(keys), strict=True):
        np.testing.assert_array_equal(a, b)
    firsts = [np.asarray(rows.next_observation)[i] for i in range(3)]
    assert not np.array_equal(firsts[0], firsts[1])


@pytest.mark.parametrize(
    "env",
    # Thousands of operations one by one are slow.
    [pytest.param(e, marks=pytest.mark.slow) if isinstance(e, HIV) else e for e in ALL],
    ids=name,
)
def test_compiled_equals_eager(env: Environment[Any, Any]) -> None:
    compiled = jax.jit(env.step)
    state, _ = env.reset(KEY)
    for action in range(env.num_actions):
        fast = compiled(KEY, state, action)
        with jax.disable_jit():
            slow = env.step(KEY, state, action)
        for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        if isinstance(env, HIV):
            break


@pytest.mark.parametrize("env", [Chain(), CartPole()], ids=name)
def test_a_rollout_is_the_steps_it_stands_for(env: Environment[Any, Any]) -> None:
    """Drawing probability in bulk is a matter of speed: the same keys step by step give the
    same."""
    policy = random_policy(env.num_actions)
    steps = 60
    keys = jax.random.split(KEY, 1 + 3 * steps)
    _, rows = jax.jit(lambda key: rollout(env, policy, key, steps))(KEY)
    state, observation = env.reset(keys[0])
    policy_keys, step_keys, reset_keys = keys[1:].reshape(3, steps)
    step, reset = jax.jit(env.step), jax.jit(env.reset)
    for t in range(steps):
        action = policy(policy_keys[t], observation)
        after = step(step_keys[t], state, action)
        np.testing.assert_allclose(rows.next_observation[t], after.observation, atol=1e-5)
        assert bool(rows.truncated[t]) == bool(after.truncated)
        state, observation = after.state, after.observation
        if after.terminated or after.truncated:
            state, observation = reset(reset_keys[t])


def test_a_rollout_goes_on_where_it_stopped() -> None:
    env = Clock()
    carry, first = rollout(env, random_policy(2), KEY, 3)
    _, second = rollout(env, random_policy(2), KEY, 3, carry=carry)
    assert first.next_observation[:, 0].tolist() == [1, 2, 3]
    assert second.next_observation[:, 0].tolist() == [4, 5, 1]
    assert np.flatnonzero(second.truncated).tolist() == [1]


def test_parameters_vectorise() -> None:
    """One call, a row for each gravity, each equal to its own run."""
    env = CartPole()
    gravities = jnp.array([5.0, 9.8, 20.0])
    state = env.state_at(jnp.array([0.0, 0.0, 0.05, 0.0]))

    def angle(gravity: jax.Array) -> jax.Array:
        params = CartPoleParams(gravity=gravity)
        now = state
        for _ in range(5):
            now = env.step(KEY, now, 0, params).state
        return now.inner[3]

    together = jax.jit(jax.vmap(angle))(gravities)
    apart = [angle(g) for g in gravities]
    np.testing.assert_allclose(together, np.array(apart), rtol=1e-5)
    # A stronger pull turns the leaning pole faster.
    assert np.all(np.diff(together) > 0)


def test_whole_mdps_vectorise() -> None:
    chains = [Chain(stay=0.2, step_limit=None), Chain(stay=0.9)]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(c.default_params for c in chains))

    def length(params: Any) -> jax.Array:
        return jnp.mean(episodes(chains[0], random_policy(1), KEY, 200, params, 700).lengths)

    lengths = jax.jit(jax.vmap(length))(params)
    # From a uniform start 20 advances are needed in the mean: 20 / 0.8 = 25 and 20 / 0.1 = 200.
    assert 20 < lengths[0] < 30
    assert 160 < lengths[1] < 240


def test_64_bits_on_request() -> None:
    for env in (CartPole(), MountainCar(), Interval()):
        state, observation = env.reset(KEY)
        assert observation.dtype == jnp.float32
        with jax.enable_x64(True):
            state, observation = env.reset(KEY)
            after = env.step(KEY, state, 1)
            assert observation.dtype == after.observation.dtype == after.reward.dtype == jnp.float64


# --- episodes -------------------------------------------------------------------------------------


def test_episodes_say_what_happened_before_the_end() -> None:
    made = episodes(Fuse(), random_policy(2), KEY, 3)
    assert made.valid.tolist() == [[True, True, True, False, False]] * 3
    assert made.lengths.tolist() == [3, 3, 3]
    np.testing.assert_allclose(made.returns(0.5), 1.75)
    cut = episodes(Fuse(), random_policy(2), KEY, 1, steps=2)
    assert not cut.transitions.terminated.any()
    assert not cut.transitions.truncated.any()


def test_parameters_reach_episodes() -> None:
    made = episodes(Clock(), random_policy(2), KEY, 2, params=3.0)
    np.testing.assert_allclose(made.returns(), 15.0)


def test_collect_is_episodes_in_numpy() -> None:
    env, policy = Taxi(), random_policy(6)
    ours = collect(env, policy, KEY, 5)
    theirs = episodes(env, policy, KEY, 5)
    assert isinstance(ours.valid, np.ndarray)
    np.testing.assert_array_equal(ours.transitions.observation, theirs.transitions.observation)


def test_an_endless_environment_needs_a_number_of_steps() -> None:
    with pytest.raises(InputError, match="no step limit"):
        episodes(Clock(step_limit=None), random_policy(2), KEY, 1)
    assert episodes(Clock(step_limit=None), random_policy(2), KEY, 1, steps=4).valid.all()


def test_begin_is_a_reset() -> None:
    carry = begin(Chain(), KEY)
    assert int(carry.state.inner) == int(carry.observation)


# --- policies -------------------------------------------------------------------------------------


def test_policies_draw_what_they_say() -> None:
    keys = jax.random.split(jax.random.key(3), 20_000)
    table = np.array([[0.0, 0.2, 0.8, 0.0], [1.0, 0.0, 0.0, 0.0]])
    policy = table_policy(table)
    for row, probs in enumerate(table):
        drawn = np.asarray(jax.vmap(lambda key, row=row: policy(key, jnp.asarray(row)))(keys))
        assert follows_discrete(drawn, {a: p for a, p in enumerate(probs) if p > 0})
    drawn = np.asarray(jax.vmap(lambda key: random_policy(3)(key, jnp.zeros(())))(keys))
    assert follows_discrete(drawn, dict.fromkeys(range(3), 1 / 3))


def test_policies_in_32_bits_are_policies() -> None:
    """Sums that are off by rounding are put right; what cannot happen does not."""
    table = np.array([[0.1] * 10 + [0.0]], np.float32)
    assert float(table.astype(np.float64).sum()) != 1.0
    keys = jax.random.split(KEY, 20_000)
    drawn = np.asarray(jax.vmap(lambda key: table_policy(table)(key, jnp.asarray(0)))(keys))
    assert follows_discrete(drawn, dict.fromkeys(range(10), 0.1))


def test_bad_policies_are_refused() -> None:
    for table, words in (
        ([[0.5, 0.4]], "must sum to 1, and are off by 0.1"),
        ([[1.5, -0.5]], "at least 0"),
        ([0.5, 0.5], "states by actions"),
        ([["a"]], "an array of numbers"),
        ([[1.0], [0.5, 0.5]], "an array of numbers"),
    ):
        with pytest.raises(InputError, match=words):
            table_policy(table)
    with pytest.raises(InputError, match="num_actions"):
        random_policy(0)


# --- bad input ------------------------------------------------------------------------------------


def given(action: Any) -> Any:
    return lambda key, observation: action


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (given(jnp.zeros(1, jnp.int32)), "one whole number, not of type int32 and shape \\(1,\\)"),
        (given(jnp.zeros(2)), "one whole number, not of type float32"),
        (given(0.7), "one whole number, not of type float32"),
        (given(None), "one whole number, not None"),
        (Chain().uniform(), "must be a function"),
    ],
)
def test_what_a_policy_gives_is_an_action(policy: Any, words: str) -> None:
    for run in (
        lambda: rollout(Clock(), policy, KEY, 3),
        lambda: episodes(Clock(), policy, KEY, 3),
        lambda: collect(Clock(), policy, KEY, 3),
    ):
        with pytest.raises(InputError, match=words) as caught:
            run()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("env", [MountainCar(), CartPole(), Taxi()], ids=name)
def test_an_action_of_any_whole_type_is_the_same_action(env: Environment[Any, Any]) -> None:
    """Unsigned numbers must not wrap around, nor booleans select rows."""
    state, _ = env.reset(KEY)
    for action in (0, 1):
        plain = env.step(KEY, state, action)
        for kind in (jnp.uint8, jnp.int8, jnp.uint32, jnp.bool_):
            same = env.step(KEY, state, jnp.asarray(action, kind))
            assert same.observation.shape == plain.observation.shape
            np.testing.assert_array_equal(same.observation, plain.observation)


def test_actions_that_are_none_are_refused() -> None:
    state, _ = Taxi().reset(KEY)
    wrong: list[Any] = [6, -1, np.int64(99)]
    for action in wrong:
        with pytest.raises(InputError, match="Taxi must be from 0 to 5"):
            Taxi().step(KEY, state, action)
    wrong = [0.5, "north", None, [0]]
    for action in wrong:
        with pytest.raises(InputError, match="one whole number"):
            Taxi().step(KEY, state, action)


def test_old_keys_are_keys() -> None:
    """`jax.random.PRNGKey` makes two bare words, which mean the same as a key of today."""
    old, new = jax.random.PRNGKey(5), jax.random.key(5)
    policy = random_policy(1)
    for run in (
        lambda key: Chain().reset(key)[1],
        lambda key: Chain().auto_step(key, Chain().reset(key)[0], 0).observation,
        lambda key: rollout(Chain(), policy, key, 9)[1].observation,
        lambda key: collect(Chain(), policy, key, 3).transitions.observation,
    ):
        np.testing.assert_array_equal(run(old), run(new))


def test_bad_keys_numbers_and_params_are_one_sentence() -> None:
    policy, many = random_policy(2), jax.random.split(KEY, 3)
    state, _ = Clock().reset(KEY)
    nothing: Any = ()
    cases: list[tuple[Any, str]] = [
        (lambda: Clock().reset(0), "key must be a random key"),  # type: ignore[arg-type]
        (lambda: Clock().step(0, state, 0), "key must be a random key"),  # type: ignore[arg-type]
        (lambda: Clock().reset(jnp.zeros(3)), "key must be a random key"),
        (lambda: Clock().reset(many), "use jax.vmap"),
        (lambda: collect(Clock(), policy, 0, 3), "key must be a random key"),  # type: ignore[arg-type]
        (lambda: rollout(Clock(), policy, KEY, 0), "steps must be at least 1"),
        (lambda: rollout(Clock(), policy, KEY, 2.5), "steps must be a whole"),  # type: ignore[arg-type]
        (lambda: rollout("Chain", policy, KEY, 2), "cannot be compiled"),  # type: ignore[arg-type]
        (lambda: collect("Chain", policy, KEY, 2), "must be an environment"),  # type: ignore[arg-type]
        (lambda: collect(Clock(), policy, KEY, 2).returns(float("nan")), "gamma must be a number"),
        (lambda: CartPole().reset(KEY, {"gravity": 9.0}), "must be CartPoleParams, not dict"),  # type: ignore[arg-type]
        (lambda: CartPole().step(KEY, state, 0, MountainCar().default_params), "CartPoleParams"),  # type: ignore[arg-type]
        (lambda: rollout(CartPole(), policy, KEY, 2, nothing), "CartPoleParams, not tuple"),
    ]
    for call, words in cases:
        with pytest.raises(InputError, match=words) as caught:
            call()
        assert str(caught.value).count(". ") == 0
        assert "\n" not in str(caught.value)


def test_policies_need_no_hash() -> None:
    @dataclass
    class Constant:
        action: np.ndarray[Any, Any]

        def __call__(self, key: jax.Array, observation: jax.Array) -> jax.Array:
            return jnp.asarray(self.action)

    assert np.all(collect(Clock(), Constant(np.array(1)), KEY, 2).transitions.action == 1)
