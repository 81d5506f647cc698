"""The paper's learner: its result, its claim, and what it refuses."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.control.actor_critic import LearnedActorCritic
from privrl.envs import CartPole, TabularMDP
from privrl.papers.seo2020 import ActorCritic, ActorCriticProgram, train
from privrl.privacy import InputError
from privrl.privacy.noise import reproducible
from tests.papers.seo2020.tables import small

KEYS = jax.random.split(jax.random.key(3), 3)

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
def test_a_run_is_the_papers_algorithm_and_makes_a_claim(tmp_path: Path) -> None:
    agent, env = ActorCritic(lambda_=0.0, clip=0.5), small()
    stops: list[tuple[int, int]] = []
    learned = agent.learn(env, 6, seed=2, public=True, progress=lambda *at: stops.append(at))
    with jax.enable_x64(True):
        same = train(reproducible(2).key()[None], agent, env, 6)
    np.testing.assert_array_equal(learned.actor, same.actor[0])
    np.testing.assert_array_equal(learned.values(np.arange(6)), same.critic[0])
    np.testing.assert_array_equal(learned.curve, same.returns[0])
    assert stops == [(done, 6) for done in range(1, 7)]
    assert learned.claim.epsilon == 10.0
    with pytest.raises(InputError, match="no certificate"):
        _ = learned.certificate
    learned.save(tmp_path / "agent.json")
    assert LearnedActorCritic.load(tmp_path / "agent.json").to_dict() == learned.to_dict()


def test_returns_are_shown_if_they_are_public_alone() -> None:
    agent = ActorCritic(variant="none", lambda_=0.0)
    hidden, shown = (agent.learn(small(), 2, seed=2, public=public) for public in (False, True))
    assert hidden.curve is None
    assert shown.curve is not None
    assert shown.curve.shape == (2,)
    np.testing.assert_array_equal(hidden.actor, shown.actor)
    assert hidden.promise == "Not private: the variant 'none' adds no noise."


def test_claims() -> None:
    one = ActorCritic(epsilon=1.0, variant="actor").claim(1000)
    two = ActorCritic(epsilon=1.0, variant="both").claim(1000)
    assert one is not None
    assert two is not None
    assert one.epsilon == two.epsilon == 1.0
    assert one.scope == "each single step"
    assert one.details["sigma"] == pytest.approx(ActorCritic(epsilon=1.0).multiplier)
    assert one.certified is not None
    assert two.certified is not None
    assert two.certified.epsilon > one.certified.epsilon > 50.0
    twice = ActorCritic(epsilon=1.0, variant="actor").claim(2000)
    assert twice is not None
    assert twice.certified is not None
    assert twice.certified.epsilon == two.certified.epsilon
    assert ActorCritic(variant="none").claim(10) is None
    with pytest.raises(InputError, match="a sigma of one's own"):
        ActorCritic(sigma=1.0).claim(10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variant": "all"}, "variant must be 'none', 'actor', 'critic' or 'both'"),
        ({"acting": "greedy"}, "acting must be"),
        ({"correction": "none"}, "correction must be"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"delta": 0.0}, "delta must be above 0"),
        ({"gamma": 1.1}, "gamma must be at most 1"),
        ({"lambda_": 1.1}, "lambda_ must be at most 1"),
        ({"exploration": np.array([0.1, 2.0])}, "exploration must be at most 1"),
        ({"actor_step": -1.0}, "actor_step must be zero or more"),
        ({"sigma": math.inf}, "sigma must be zero or more"),
        ({"clip": 0.0}, "clip must be positive"),
        ({"clip": "mean"}, "clip must be a number"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"dense": 1}, "dense must be True or False"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ActorCritic(**changes)


def test_bad_programs_are_refused() -> None:
    with pytest.raises(InputError, match="for tables of states"):
        ActorCritic().learn(CartPole(), 6)
    with pytest.raises(InputError, match="episodes must be at least 1"):
        ActorCritic().learn(small(), 0)
    endless = TabularMDP.from_dense(np.ones((1, 1, 1)), 0.0)
    with pytest.raises(InputError, match="say max_steps"):
        ActorCriticProgram(ActorCritic(), endless)
    with pytest.raises(InputError, match="one for each of 3 keys"):
        ActorCriticProgram(ActorCritic(actor_step=np.ones(2)), small()).init(KEYS)  # type: ignore[arg-type]
    program = ActorCriticProgram(ActorCritic(lambda_=0.0), small())
    with pytest.raises(InputError, match="one for each of 3 keys"):
        program.init(KEYS, {"sigma": jnp.ones(1)})
    with pytest.raises(InputError, match="'gamma' cannot be swept"):
        program.init(KEYS, {"gamma": jnp.ones(3)})
    with pytest.raises(InputError, match="sweeps_lambda=True"):
        program.init(KEYS, {"lambda_": jnp.ones(3)})
    with pytest.raises(InputError, match="traces are kept"):
        program.traces(program.init(KEYS), 1)
