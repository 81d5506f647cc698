"""Collection: compiled and hosted, ragged, with the probabilities that were really used."""

from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from privrl.data import EpsilonGreedy, FunctionPolicy, Tabular, Trajectories, collect
from privrl.privacy import InputError
from tests.data.tables import same


class Params(NamedTuple):
    slip: Any = 0.25


class Step(NamedTuple):
    state: Any
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any


class Rollout:
    """States 0 to 9 from 0; action 1 goes right unless it slips; 9 terminates; 30 steps truncate.

    The reward is 10 x the state left plus the action, so that rows can be recognised.
    """

    num_actions = 2
    num_states = 10
    default_params = Params()

    def __init__(self, step_limit: int | None = 30) -> None:
        self.step_limit = step_limit

    def reset(self, key: Any, params: Params) -> tuple[Any, Any]:
        return (jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)), jnp.zeros((), jnp.int32)

    def step(self, key: Any, state: Any, action: Any, params: Params) -> Step:
        at, time = state
        goes = (action == 1) & (jax.random.uniform(key) >= params.slip)
        to = jnp.minimum(at + goes, 9).astype(jnp.int32)
        limit = jnp.inf if self.step_limit is None else self.step_limit
        return Step(
            (to, time + 1),
            to,
            10.0 * at + action,
            to == 9,
            (time + 1 >= limit) & (to != 9),
        )


def lawful(data: Trajectories, policy: Tabular, limit: int) -> None:
    """Every row is a possible step of `Rollout`, and episodes end where they should."""
    np.testing.assert_array_equal(data.rewards, 10.0 * data.states + data.actions)
    assert data.behavior_probs is not None
    np.testing.assert_allclose(
        data.behavior_probs, policy.prob(data.states, data.actions), rtol=1e-6
    )
    assert data.final_states is not None
    for one in data:
        path = np.append(one.states, one.final_state)
        assert path[0] == 0
        moved = np.diff(path)
        assert set(moved.tolist()) <= {0, 1}
        assert np.all(moved <= one.actions)
        assert 9 not in one.states
        assert one.terminated == (one.final_state == 9)
        assert one.truncated == (not one.terminated)
        assert len(one) == limit or one.terminated


POLICY = Tabular(np.linspace([0.2, 0.8], [0.6, 0.4], 10))


@pytest.fixture(scope="module")
def whole() -> Trajectories:
    """Many episodes, for several tests; compiled as those are."""
    jax.config.update("jax_disable_most_optimizations", True)  # type: ignore[no-untyped-call]
    try:
        return collect(Rollout(), POLICY, 3072, jax.random.key(0))
    finally:
        jax.config.update("jax_disable_most_optimizations", False)  # type: ignore[no-untyped-call]


@pytest.mark.usefixtures("compiled_quickly")
class TestCompiled:
    def test_rollout(self, whole: Trajectories, monkeypatch: pytest.MonkeyPatch) -> None:
        lawful(whole, POLICY, 30)
        assert whole.num_trajectories == 3072
        assert whole.terminated.any()
        assert whole.truncated.any()
        assert whole.behavior.source == "recorded"
        assert (whole.num_states, whole.num_actions) == (10, 2)
        # Segments and portions are only a matter of memory.
        monkeypatch.setattr("privrl.data.collection.SEGMENT", 7)
        monkeypatch.setattr("privrl.data.collection.REPLICAS", 1024)
        same(whole, collect(Rollout(), POLICY, 3072, jax.random.key(0)))
        other = collect(Rollout(), POLICY, 3072, jax.random.key(1))
        assert other.rewards.tolist() != whole.rewards.tolist()

    def test_frequencies(self, whole: Trajectories) -> None:
        """Actions come as often as the policy says, moves as often as the environment does."""
        seen = whole.states == 0
        chosen = whole.actions[seen]
        assert abs(chosen.mean() - 0.8) < 0.02
        nexts = whole.transitions().next_states[seen]
        assert abs(nexts[chosen == 1].mean() - 0.75) < 0.02

    def test_limits(self) -> None:
        lawful(collect(Rollout(), POLICY, 50, 0, max_steps=5), POLICY, 5)
        lawful(collect(Rollout(None), POLICY, 50, 0, max_steps=40), POLICY, 40)
        with pytest.raises(InputError, match="max_steps"):
            collect(Rollout(None), POLICY, 5, 0)

    def test_params(self) -> None:
        stuck = collect(Rollout(), POLICY, 20, 0, params=Params(1.0))
        assert set(stuck.states.tolist()) == {0}
        assert stuck.truncated.all()

    def test_any_function(self) -> None:
        always = FunctionPolicy(lambda s: jnp.tile(jnp.array([0.0, 1.0]), (s.shape[0], 1)), 2)
        data = collect(Rollout(), always, 10, 0)
        assert set(data.actions.tolist()) == {1}
        assert data.behavior_probs is not None
        assert set(data.behavior_probs.tolist()) == {1.0}

    @pytest.mark.parametrize(
        ("env", "policy", "n"),
        [
            (Rollout(), Tabular.uniform(10, 3), 5),
            (Rollout(), Tabular.uniform(9, 2), 5),
            (Rollout(), POLICY, 0),
            (Rollout(), "policy", 5),
            (object(), POLICY, 5),
        ],
    )
    def test_refusals(self, env: Any, policy: Any, n: int) -> None:
        with pytest.raises(InputError):
            collect(env, policy, n, 0)

    def test_our_own(self) -> None:
        envs = pytest.importorskip("privrl.envs")
        chain = envs.Chain()
        policy = Tabular.uniform(chain.num_states, chain.num_actions)
        data = collect(chain, policy, 20, jax.random.key(0), max_steps=400)
        assert data.num_trajectories == 20
        assert data.num_states == chain.num_states
        assert np.all(data.lengths <= 400)
        assert np.all(data.terminated | data.truncated)


class HostedRollout(gymnasium.Env[Any, Any]):
    """`Rollout` for Gymnasium; counts how often it was closed."""

    def __init__(self, vectors: bool = False) -> None:
        self.vectors = vectors
        self.action_space = spaces.Discrete(2, start=5)
        self.observation_space = (
            spaces.Box(0, 9, (1, 2)) if vectors else spaces.Discrete(10, start=3)
        )
        self.closed = 0

    def seen(self) -> Any:
        return np.full((1, 2), self.at, dtype=np.float32) if self.vectors else self.at + 3

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = 10.0 * self.at + (action - 5)
        self.at += int(action == 6 and self.np_random.random() >= 0.25)
        return self.seen(), reward, self.at == 9, False, {}

    def close(self) -> None:
        self.closed += 1


class TestHosted:
    def test_rollout(self) -> None:
        env = HostedRollout()
        data = collect(env, POLICY, 60, 4, max_steps=20)
        lawful(data, POLICY, 20)
        assert data.terminated.any()
        assert data.truncated.any()
        assert env.closed == 0
        same(data, collect(env, POLICY, 60, 4, max_steps=20))
        assert collect(env, POLICY, 60, 5, max_steps=20).rewards.tolist() != data.rewards.tolist()

    def test_vectors(self) -> None:
        policy = FunctionPolicy(lambda s: np.full((len(s), 2), 0.5), 2)
        data = collect(HostedRollout(vectors=True), policy, 5, 4, max_steps=20)
        assert data.states.shape[1] == 2
        np.testing.assert_array_equal(data.rewards, 10.0 * data.states[:, 0] + data.actions)

    def test_by_name(self) -> None:
        policy = EpsilonGreedy(np.zeros((16, 4)), 1.0)
        data = collect("FrozenLake-v1", policy, 20, jax.random.key(2))
        assert (data.num_states, data.num_actions) == (16, 4)
        assert np.all(data.lengths <= 100)
        assert set(np.asarray(data.behavior_probs).tolist()) == {0.25}
        pole = FunctionPolicy(lambda s: np.full((len(s), 2), 0.5), 2)
        assert collect("CartPole-v1", pole, 3, 0).states.shape[1] == 4
        with pytest.raises(InputError, match="cannot make"):
            collect("NoSuchThing-v0", policy, 1, 0)

    def test_refusals(self) -> None:
        with pytest.raises(InputError, match="max_steps"):
            collect(HostedRollout(), POLICY, 5, 0)
        with pytest.raises(InputError, match="must be discrete"):
            collect("Pendulum-v1", POLICY, 5, 0)
        with pytest.raises(InputError, match="params"):
            collect(HostedRollout(), POLICY, 5, 0, params=3, max_steps=9)
