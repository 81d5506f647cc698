"""Words become learners."""

import json
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from privrl.control.heads import Network
from privrl.core.errors import InputError
from privrl.data import Fourier, OneHot, Polynomial
from privrl.envs.registry import make
from privrl.privacy import Budget
from privrl.run.runners import Runner as AnyRunner
from privrl.run.runners import parse_grid, plan_sweep, resume_in
from privrl.run.runners.actor_critic import ActorCriticRunner as Runner
from privrl.run.sweep import SweepPlan

WORDS = {
    "env": "MDP-100",
    "people": 50,
    "epsilon": 3.0,
    "delta": 1e-6,
    "return_range": "-500,0",
}


def runner_in(env: Any, **words: Any) -> Runner:
    """A runner in an environment that has no name."""
    runner = Runner.of({**WORDS, **words})
    vars(runner)["environment"] = make(env)
    return runner


def test_what_was_said_is_what_the_agent_has() -> None:
    runner = Runner.of(
        {**WORDS, "lambda_": 0.5, "clip": "2.5", "return_range": "-500,0", "public": False}
    )
    assert runner.environment.name == "MDP100"
    agent = runner.agent()
    assert agent.budget == Budget(3.0, 1e-6)
    assert (agent.lambda_, agent.clip, agent.return_range) == (0.5, 2.5, (-500.0, 0.0))
    assert runner.count == 50
    assert Runner.of(runner.to_dict()) == runner
    assert "public" not in runner.to_dict()


def test_a_mode_that_says_what_is_always_so_is_passed_over() -> None:
    assert "mode" not in AnyRunner.of({"learner": "actor-critic", "mode": "certified"}).to_dict()
    assert "mode" not in AnyRunner.of({"learner": "pgc", "mode": "recipe"}).to_dict()


def test_a_run_of_the_old_paper_mode_is_for_the_version_that_began_it(tmp_path: Path) -> None:
    words = {"words": {"learner": "actor-critic", "mode": "paper", "env": "ObstacleGrid"}}
    about: dict[str, Any] = {"ledger": None, "name": "run", "seed": 1, "id": "x", "formats": []}
    run = {"kind": "privrl run", "format": 2, **words, **about}
    (tmp_path / "run.json").write_text(json.dumps(run))
    with pytest.raises(InputError, match="go on with the version that the run was begun with"):
        resume_in(tmp_path)


@pytest.mark.parametrize(
    ("env", "word", "wanted"),
    [
        ("MDP100", "table", OneHot(100)),
        ("MDP100", "polynomial:1", Polynomial(1, 0.0, 99.0)),
        ("MDP100", "network", Network((16,))),
        ("MountainCar", "network:8,4", Network((8, 4))),
        ("MountainCar", "fourier:3", Fourier(3, (-1.2, -0.07), (0.6, 0.07))),
    ],
)
def test_features_by_name(env: str, word: str, wanted: Any) -> None:
    runner = runner_in(env, features=word, max_steps=10)
    assert runner.agent().resolve(runner.environment).features == wanted


def test_ranges_are_asked_for_where_the_environment_has_none() -> None:
    ranges = {"state_range": "-2:2,0:10", "features": "fourier:2"}
    found = runner_in("MountainCar", **ranges).agent().resolve(make("MountainCar"))
    assert found.features == Fourier(2, (-2.0, 0.0), (2.0, 10.0))
    with pytest.raises(InputError, match="2 ranges for states of 4 numbers"):
        runner_in("CartPole", **ranges).agent().resolve(make("CartPole"))
    for words, env in (({"features": "network"}, "CartPole"), ({}, "MDP100")):
        unused = runner_in(env, **{"state_range": "-2:2,0:10", **words})
        with pytest.raises(InputError, match="state_range is for features by name of numbers"):
            unused.agent().resolve(make(env))


def test_the_largest_numbers_are_no_range() -> None:
    class Wide(gymnasium.Env[Any, int]):
        observation_space: Any = spaces.Box(-3.4e38, 3.4e38, (2,), np.float32)
        action_space: Any = spaces.Discrete(2)

    with pytest.raises(InputError, match="state_range is needed"):
        runner_in(Wide(), features="fourier:2").agent()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"actor_step": "inf"}, "actor_step must be zero or more and finite, not inf"),
        ({"epsilon": math.inf}, "epsilon must be positive and finite"),
        ({"delta": 0.0}, "delta must be above 0, because the noise is Gaussian"),
        ({"clip": "median"}, "clip must be a number, not 'median'"),
        (
            {"mode": "paper"},
            "no modes any more: the paper's algorithm is the learner seo2020-actor",
        ),
        ({"acting": "softmax"}, "There is no option 'acting' of actor-critic"),
    ],
)
def test_numbers_that_no_run_can_have(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Runner.of({**WORDS, **words}).agent()


@pytest.mark.parametrize("name", ["seed", "ledger", "logs", "name"])
def test_a_sweep_has_no_options_of_a_single_run(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is no option of a sweep"):
        plan_sweep(WORDS, ["actor_step=1"], [f"{name}=1"])


@pytest.mark.parametrize("learner", ["actor-critic", "seo2020-actor-critic"])
def test_a_sweep_over_sigma_needs_no_budget(learner: str) -> None:
    runner: Any = AnyRunner.of({"env": "MDP100", "episodes": 10, "learner": learner})
    with pytest.raises(InputError, match="epsilon: "):
        runner.program(("actor_step",))
    assert "sigma" in runner.program(("sigma",)).sweepable


def test_a_grid_may_be_said_in_two_places() -> None:
    words = {**WORDS, "seeds": 3, "replicas": None, "grid": {"sigma": [0, 1]}}
    runner, plan = plan_sweep(words, ["actor_step=0.1,0.5"], ["entropy=0.2"])
    assert plan == SweepPlan({"sigma": (0.0, 1.0), "actor_step": (0.1, 0.5)}, seeds=3, episodes=50)
    assert runner.to_dict()["entropy"] == 0.2
    assert parse_grid(["a=1, 2", "b=3"]) == {"a": (1.0, 2.0), "b": (3.0,)}
    with pytest.raises(InputError, match="must be a table of settings"):
        plan_sweep({**words, "grid": 3}, [], [])
    with pytest.raises(InputError, match="curves must be true or false"):
        plan_sweep({**words, "curves": "yes"}, [], [])
