"""Gymnasium both ways: our environments there, theirs here."""

import subprocess
import sys
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import privrl.envs
from privrl.envs import (
    CartPole,
    CartPoleParams,
    Chain,
    GymnasiumEnv,
    HostEnvironment,
    MountainCar,
    TabularMDP,
    Taxi,
    collect,
    make,
    random_policy,
)
from privrl.privacy import InputError
from tests.envs.probes import Clock, Fuse

KEY = jax.random.key(3)


# --- ours, there ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", privrl.envs.NAMES)
def test_the_checker_has_nothing_to_say(name: str) -> None:
    """Warnings are errors here, so this includes everything that the checker warns of."""
    check_env(gymnasium.make(f"privrl/{name}-v0").unwrapped)


def test_registering_does_not_load_jax() -> None:
    code = (
        "import sys, privrl.envs, gymnasium; "
        "assert 'privrl/Chain-v0' in gymnasium.registry; assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_options_reach_the_environment() -> None:
    made: Any = gymnasium.make("privrl/Taxi-v0", legacy_map=True).unwrapped
    assert made.env == Taxi(legacy_map=True)


def test_the_wrapper_tells_the_ends_apart() -> None:
    for env, ends in ((Clock(), (False, True)), (Fuse(), (True, False))):
        wrapped = GymnasiumEnv(env)
        wrapped.reset(seed=0)
        flags = (False, False)
        steps = 0
        while not any(flags):
            _, reward, *rest = wrapped.step(0)
            flags = (bool(rest[0]), bool(rest[1]))
            steps += 1
            assert reward == 1.0
        assert flags == ends
        assert steps == (5 if ends[1] else 3)


def test_seeds_decide() -> None:
    def run(seed: int) -> list[Any]:
        env = gymnasium.make("privrl/CartPole-v0")
        seen = [env.reset(seed=seed)[0]]
        seen += [env.step(i % 2)[0] for i in range(8)]
        seen.append(env.reset()[0])
        return [o.tolist() for o in seen]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_the_wrapper_refuses_what_is_no_action() -> None:
    env = GymnasiumEnv(Taxi())
    with pytest.raises(InputError, match="reset the environment"):
        env.step(0)
    env.reset(seed=0)
    for action in (6, -1, 1.5, None, "north"):
        with pytest.raises(InputError, match="from 0 to 5") as caught:
            env.step(action)
        assert str(caught.value).endswith(".")
    env.step(np.int64(5))


def test_the_wrapper_refuses_bad_parameters_and_modes() -> None:
    with pytest.raises(InputError, match="finite"):
        GymnasiumEnv(CartPole(), CartPoleParams(gravity=float("nan")))
    with pytest.raises(InputError, match="renders as 'ansi'"):
        GymnasiumEnv(Chain(), render_mode="rgb_array")


def test_the_wrapper_takes_parameters_and_jax_scalars() -> None:
    heavy: Any = gymnasium.make("privrl/CartPole-v0", params=CartPoleParams(gravity=20.0))
    light: Any = gymnasium.make("privrl/CartPole-v0")
    for env in (heavy, light):
        env.reset(seed=0)
    apart = [env.step(jnp.asarray(1))[0][3] for env in (heavy, light)]
    assert apart[0] != apart[1]
    with pytest.raises(InputError, match="must be CartPoleParams, not dict"):
        GymnasiumEnv(CartPole(), {"gravity": 9.0})


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode)[:2])
def test_vectors_of_gymnasium(mode: Any) -> None:
    """Its two ways to start afresh, both with the last observation of the old episode."""
    many = gymnasium.make_vec(
        "privrl/Chain-v0",
        num_envs=2,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        states=2,
        stay=0.0,
    )
    first, _ = many.reset(seed=0)
    assert first.tolist() == [0, 0]
    seen, rewards, terminated, truncated, info = many.step(np.array([0, 0]))
    assert rewards.tolist() == [1.0, 1.0]
    assert terminated.all()
    assert not truncated.any()
    if mode == gymnasium.vector.AutoresetMode.SAME_STEP:
        assert seen.tolist() == [0, 0]
        assert [int(o) for o in info["final_obs"]] == [1, 1]
    else:
        assert seen.tolist() == [1, 1]
        assert many.step(np.array([0, 0]))[0].tolist() == [0, 0]


def test_a_name_may_bring_its_module() -> None:
    """Without importing privrl first, as Gymnasium's `module:name` does."""
    code = "import gymnasium; gymnasium.make('privrl.envs:privrl/Chain-v0').reset(seed=0)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_rendering_through_gymnasium() -> None:
    env = gymnasium.make("privrl/Chain-v0", render_mode="ansi")
    state, _ = env.reset(seed=0)
    assert f"state {state} of 40" in str(env.render())
    assert GymnasiumEnv(Chain()).render() is None


# --- theirs, here ---------------------------------------------------------------------------------


def test_names() -> None:
    assert make("Chain") == make("privrl/Chain-v0") == Chain()
    assert make("Chain", states=5) == Chain(states=5)
    assert make("Taxi-v3") == make("Taxi-v4") == make("Taxi") == Taxi()
    assert make("Taxi-v2") == Taxi(legacy_map=True)
    assert make("CartPole-v0") == CartPole()
    assert make("CartPole-v1").step_limit == 500
    assert make("MountainCar-v0") == MountainCar()
    chain = Chain()
    assert make(chain) is chain
    assert make(gymnasium.make("privrl/Chain-v0", states=7)) == Chain(states=7)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("NoSuchThing-v0", "There is no environment 'NoSuchThing-v0'"),
        ("privrl/Nothing-v0", "There is no environment"),
        ("", "environment"),
        ("FrozenLake-v99", "There is no environment"),
        (42, "neither an environment nor the name of one"),
    ],
)
def test_unknown_names_are_one_sentence(bad: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        make(bad)
    assert "\n" not in str(caught.value)


def test_unknown_options_are_one_sentence() -> None:
    with pytest.raises(InputError, match="Chain does not take the option 'length'"):
        make("Chain", length=3)
    with pytest.raises(InputError, match="has been made already"):
        make(Chain(), states=3)
    for option in ({"colour": "blue"}, {"map_name": "9x9"}):
        with pytest.raises(InputError, match="could not make 'FrozenLake-v1'"):
            make("FrozenLake-v1", **option)
    with pytest.raises(InputError, match="Taxi does not take the option 'is_rainy'"):
        make("Taxi-v2", is_rainy=True)


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1"])
def test_tables_of_gymnasium(name: str) -> None:
    theirs: Any = gymnasium.make(name)
    mdp = make(theirs)
    assert isinstance(mdp, TabularMDP)
    assert mdp.step_limit == theirs.spec.max_episode_steps
    inside = theirs.unwrapped
    for s in range(mdp.num_states):
        for a in range(mdp.num_actions):
            expected: dict[tuple[int, float, bool], float] = {}
            for p, after, reward, end in inside.P[s][a]:
                row = (int(after), float(reward), bool(end))
                expected[row] = expected.get(row, 0.0) + p
            found: dict[tuple[int, float, bool], float] = {}
            tables = mdp.tables
            for k, p in enumerate(tables.probabilities[s, a]):
                if p > 0:
                    row = (
                        int(tables.successors[s, a, k]),
                        float(tables.rewards[s, a, k]),
                        bool(tables.terminated[s, a, k]),
                    )
                    found[row] = found.get(row, 0.0) + float(p)
            assert found == pytest.approx(expected)


def test_frozen_lake_by_known_values() -> None:
    """Without slipping, the goal of the 4 x 4 lake is six steps away: gamma^5."""
    mdp = make("FrozenLake-v1", is_slippery=False)
    assert isinstance(mdp, TabularMDP)
    assert mdp.optimal(0.9).values[0] == pytest.approx(0.9**5)


def test_wrappers_that_change_things_are_not_skipped() -> None:
    doubled = gymnasium.wrappers.TransformReward(
        gymnasium.make("FrozenLake-v1"), lambda r: 2 * float(r)
    )
    assert isinstance(make(doubled), HostEnvironment)
    ours = gymnasium.wrappers.TransformReward(
        gymnasium.make("privrl/Chain-v0"), lambda r: 2 * float(r)
    )
    host = make(ours)
    assert isinstance(host, HostEnvironment)
    assert np.all(collect(host, random_policy(1), KEY, 3).returns() == 2.0)
    # Parameters that are not the default cannot be seen in an environment alone.
    heavy = GymnasiumEnv(CartPole(), CartPoleParams(gravity=20.0))
    assert isinstance(make(heavy), HostEnvironment)


def test_a_fickle_passenger_is_not_in_the_table() -> None:
    assert isinstance(make("Taxi-v4", fickle_passenger=True), HostEnvironment)
    rainy = make("Taxi-v4", is_rainy=True)
    assert isinstance(rainy, TabularMDP)
    assert rainy.tables.probabilities.shape == (500, 6, 3)
    older = make("Taxi-v3", is_rainy=True)  # the name it had; the same table
    assert isinstance(older, TabularMDP)
    np.testing.assert_array_equal(older.tables.successors, rainy.tables.successors)


def test_the_earliest_limit_counts() -> None:
    for limit, expected in ((500, 100), (50, 50)):
        twice = gymnasium.wrappers.TimeLimit(gymnasium.make("FrozenLake-v1"), limit)
        assert make(twice).step_limit == expected
    ours = make(gymnasium.make("privrl/Chain-v0", max_episode_steps=3))
    assert isinstance(ours, HostEnvironment)
    made = collect(ours, random_policy(1), KEY, 4)
    assert made.valid.shape == (4, 3)
    cut = made.lengths == 3
    assert np.all(made.transitions.truncated[cut, 2] | made.transitions.terminated[cut, 2])


class Odd(gymnasium.Env[Any, Any]):
    """Observations of two dimensions, actions from 7 to 8, and a `P` that is no table."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2, 3))
    action_space = gymnasium.spaces.Discrete(2, start=7)
    P = np.eye(3)
    initial_state_distrib = np.full(3, 1 / 3)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros((2, 3), np.float32), {}

    def step(self, action: Any) -> Any:
        assert action in (7, 8)
        return np.full((2, 3), 0.5, np.float32), float(action), False, False, {}


class Both(Odd):
    """Says of its first step that it terminates and is truncated."""

    def step(self, action: Any) -> Any:
        seen, reward, _, _, info = super().step(action)
        return seen, reward, True, True, info


def test_both_ends_at_once_are_termination() -> None:
    made = collect(HostEnvironment(Both()), random_policy(2), KEY, 2, steps=3)
    assert made.lengths.tolist() == [1, 1]
    assert made.transitions.terminated[:, 0].all()
    assert not made.transitions.truncated.any()


def test_odd_environments() -> None:
    host = make(Odd())
    assert isinstance(host, HostEnvironment)
    made = collect(host, random_policy(2), KEY, 2, steps=5)
    assert made.transitions.observation.shape[2:] == host.observation.shape == (6,)  # type: ignore[union-attr]
    np.testing.assert_array_equal(made.transitions.reward, made.transitions.action + 7)
    cases: list[tuple[Any, Any, str]] = [
        (host, random_policy(9), "is none of Odd's"),
        (host, lambda key, seen: jnp.asarray(0.7), "is none of Odd's"),
        (host, lambda key, seen: jnp.zeros(3), "is none of Odd's"),
        (host, [0, 1], "must be a function"),
        (make("Pendulum-v1"), random_policy(2), "has the shape \\(1,\\), not \\(\\)"),
    ]
    for env, policy, words in cases:
        with pytest.raises(InputError, match=words):
            collect(env, policy, KEY, 2, steps=30)
    with pytest.raises(InputError, match="key must be a random key"):
        collect(host, random_policy(2), 0, 2, steps=3)  # type: ignore[arg-type]


def test_the_host_collects_what_we_would() -> None:
    """The same environment through both doors: the same laws, ends and shapes."""
    host = HostEnvironment(GymnasiumEnv(Fuse(step_limit=4)))
    here = collect(host, random_policy(2), KEY, 3)
    there = collect(Fuse(step_limit=4), random_policy(2), KEY, 3)
    np.testing.assert_array_equal(here.valid, there.valid)
    np.testing.assert_array_equal(here.returns(), there.returns())
    alive = here.valid
    for field in ("observation", "next_observation", "terminated", "truncated"):
        a, b = (np.asarray(getattr(made.transitions, field)) for made in (here, there))
        np.testing.assert_array_equal(a[alive], b[alive])
    cut = collect(HostEnvironment(GymnasiumEnv(Clock())), random_policy(2), KEY, 2)
    assert cut.transitions.truncated[:, 4].all()
    assert not cut.transitions.terminated.any()


def test_the_host_runs_gymnasiums_own() -> None:
    acrobot = make("Acrobot-v1")
    assert isinstance(acrobot, HostEnvironment)
    assert acrobot.num_actions == 3
    made = collect(acrobot, random_policy(3), KEY, 2, steps=20)
    assert made.transitions.observation.shape == (2, 20, 6)
    again = collect(acrobot, random_policy(3), KEY, 2, steps=20)
    np.testing.assert_array_equal(made.transitions.observation, again.transitions.observation)
    with pytest.raises(InputError, match="takes no params"):
        collect(acrobot, random_policy(3), KEY, 2, params=1.0)


def test_other_spaces() -> None:
    pendulum = make("Pendulum-v1")
    with pytest.raises(InputError, match="finitely many actions"):
        _ = pendulum.num_actions
    made = collect(pendulum, lambda key, seen: jnp.zeros(1), KEY, 1, steps=3)
    assert made.transitions.action.shape == (1, 3, 1)
    blackjack = make("Blackjack-v1")  # a tuple of three numbers, flattened
    with pytest.raises(InputError, match="no step limit"):
        collect(blackjack, random_policy(2), KEY, 1)
    hands = collect(blackjack, random_policy(2), KEY, 3, steps=30)
    assert hands.transitions.observation.shape == (3, 30, 32 + 11 + 2)
    assert np.all(hands.transitions.terminated[hands.valid].sum() == 3)
