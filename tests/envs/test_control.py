"""Cart-pole and mountain car against Gymnasium, step by step; the interval by its law."""

from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.envs import CartPole, Environment, Interval, MountainCar, collect, random_policy
from privrl.privacy import InputError
from tests.statistics import follows

# Compiling takes longer than running.
pytestmark = pytest.mark.usefixtures("compiled_quickly")

STEPS = 10_000
KEY = jax.random.key(5)
AT_RANDOM = random_policy(2)  # one object, so that it is compiled once


def gymnasium_steps(name: str, held: float, seed: int = 0) -> tuple[Any, Any, Any, Any, Any]:
    """States, actions, next states, rewards and ends of Gymnasium's own, in 64 bits."""
    env: Any = gymnasium.make(name).unwrapped
    rng = np.random.default_rng(seed)
    rows: list[Any] = []
    action = 0
    env.reset(seed=seed)
    for _ in range(STEPS):
        # Held for a while, actions reach farther; sampled ones stay near the start.
        if rng.random() < held:
            action = int(rng.integers(env.action_space.n))
        before = np.array(env.state, dtype=np.float64)
        _, reward, terminated, _, _ = env.step(action)
        rows.append((before, action, np.array(env.state, np.float64), reward, terminated))
        if terminated or rng.random() < 0.002:
            env.reset()
    states, actions, after, rewards, ends = zip(*rows, strict=True)
    return np.array(states), np.array(actions), np.array(after), np.array(rewards), np.array(ends)


@pytest.mark.parametrize(
    ("name", "env", "held"),
    [("CartPole-v1", CartPole(), 0.3), ("MountainCar-v0", MountainCar(), 0.05)],
)
def test_single_steps_are_gymnasiums(name: str, env: Environment[Any, Any], held: float) -> None:
    states, actions, after, rewards, ends = gymnasium_steps(name, held)
    assert ends.sum() > 5  # ends are among what is compared

    def one(state: jax.Array, action: jax.Array) -> Any:
        return env.step(KEY, env.state_at(state), action)

    for bits, tolerance in ((True, 1e-12), (False, 1e-6)):
        with jax.enable_x64(bits):
            ours = jax.jit(jax.vmap(one))(jnp.asarray(states), jnp.asarray(actions))
            np.testing.assert_allclose(ours.state.inner, after, rtol=0, atol=tolerance)
            np.testing.assert_array_equal(ours.reward, rewards)
            if bits:
                np.testing.assert_array_equal(ours.terminated, ends)
            else:
                assert np.mean(np.asarray(ours.terminated) != ends) < 1e-3


def test_mountain_car_reaches_the_wall_and_the_goal() -> None:
    env = MountainCar()
    wall = env.step(KEY, env.state_at(jnp.array([-1.19, -0.06])), 0)
    np.testing.assert_allclose(wall.observation, [-1.2, 0.0], atol=1e-7)
    assert not bool(wall.terminated)
    goal = env.step(KEY, env.state_at(jnp.array([0.47, 0.05])), 2)
    assert bool(goal.terminated)
    assert float(goal.reward) == -1.0


def test_cart_pole_ends_and_pays() -> None:
    env = CartPole()
    for state in ([2.39, 1.0, 0.0, 0.0], [-2.39, -1.0, 0.0, 0.0], [0.0, 0.0, 0.209, 0.1]):
        after = env.step(KEY, env.state_at(jnp.array(state)), 1)
        assert bool(after.terminated)
        assert float(after.reward) == 1.0  # the step that fails is paid too
    assert env.step_limit == 200


@pytest.mark.parametrize("env", [CartPole(), MountainCar()], ids=lambda env: env.name)
def test_starts_are_uniform(env: Environment[Any, Any]) -> None:
    keys = jax.random.split(KEY, 5000)
    first = np.asarray(jax.jit(jax.vmap(lambda key: env.reset(key)[1]))(keys), dtype=np.float64)
    if isinstance(env, CartPole):
        assert follows(first, lambda x: np.clip((x + 0.05) / 0.1, 0, 1))
    else:
        assert follows(first[:, 0], lambda x: np.clip((x + 0.6) / 0.2, 0, 1))
        assert np.all(first[:, 1] == 0.0)


def constantly(action: int, key: jax.Array, observation: jax.Array) -> jax.Array:
    return jnp.asarray(action)


def test_what_can_be_reached_lies_within_the_stated_bounds() -> None:
    """Pushing one way until the end is the fastest there is; the bounds hold there too."""
    for action in (0, 1):
        policy = partial(constantly, action)
        made = collect(CartPole(), policy, KEY, 200)
        seen = np.abs(made.transitions.next_observation[made.valid])
        assert np.all(seen < np.array(CartPole().observation.high))
    # The cart with its pole kept up, across the whole track: v^2 <= 2 a d, a = force / mass.
    assert np.sqrt(2 * (10.0 / 1.0 + 4.0) * 4.8) < CartPole().observation.high[1]


# --- Interval -------------------------------------------------------------------------------------


def test_interval_moves_and_pays_as_the_code_does() -> None:
    env = Interval()
    made = collect(env, AT_RANDOM, KEY, 2000)
    rows = made.transitions
    before, after = rows.observation[..., 0], rows.next_observation[..., 0]
    np.testing.assert_allclose(rows.reward, 0.5 - np.abs(after - 0.5), atol=1e-6)
    assert rows.reward.min() >= 0.0
    assert rows.reward.max() <= 0.5
    assert rows.reward.min() < 0.001  # both ends of the range occur
    assert rows.reward.max() > 0.499
    assert np.all(made.lengths == 50)
    assert np.all(rows.truncated[:, 49])
    assert not rows.terminated.any()
    # Where neither end is in reach, the step is uniform on [0, 0.25], to the right for action 0.
    inside = (before > 0.25) & (before < 0.75)
    step = np.where(rows.action == 0, after - before, before - after)[inside].astype(np.float64)
    assert follows(step[:5000], lambda x: np.clip(x / 0.25, 0, 1))
    assert follows(before[:, 0].astype(np.float64), lambda x: np.clip(x, 0, 1))


def test_interval_towards_the_middle_beats_prob() -> None:
    def to_the_middle(key: jax.Array, observation: jax.Array) -> jax.Array:
        return jnp.where(observation[0] < 0.5, 0, 1)

    good = collect(Interval(), to_the_middle, KEY, 2000).returns()
    # Within reach of the middle a step lands at most a quarter away: more than 0.25 each, and
    # from the ends at most a few steps less; never more than 0.5 each.
    assert good.min() > 0.25 * 45
    assert good.max() < 25.0
    assert good.mean() > collect(Interval(), AT_RANDOM, KEY, 2000).returns().mean() + 3


# --- for people, and bad input --------------------------------------------------------------------


@pytest.mark.parametrize("env", [CartPole(), MountainCar(), Interval()], ids=lambda e: e.name)
def test_pictures_show_the_state(env: Environment[Any, Any]) -> None:
    first, _ = env.reset(KEY)
    later = env.step(KEY, first, 1).state
    pictures = [env.render(first), env.render(later)]
    for picture in pictures:
        assert isinstance(picture, np.ndarray)
        assert picture.shape == (300, 400, 3)
        assert picture.dtype == np.uint8
        assert len(np.unique(picture)) > 10
    assert not np.array_equal(pictures[0], pictures[1])


def test_bad_limits_are_refused() -> None:
    for make in (CartPole, MountainCar, Interval):
        with pytest.raises(InputError, match="step_limit"):
            make(step_limit=0)
