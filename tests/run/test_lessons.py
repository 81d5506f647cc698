"""Words become learners."""

from typing import Any

import pytest

from tacit.control.increments import Network
from tacit.control.paper_actor_critic import PaperProgram
from tacit.data import Fourier, OneHot, Polynomial
from tacit.envs.registry import make
from tacit.privacy import Budget
from tacit.privacy.errors import InputError
from tacit.run.lessons import Lesson, grid_of, planned
from tacit.run.sweep import Plan

WORDS = {"env": "MDP-100", "people": 50, "epsilon": 3.0, "delta": 1e-6}


def test_what_was_said_is_what_the_agent_has() -> None:
    lesson = Lesson.of(
        {**WORDS, "lambda_": 0.5, "clip": "2.5", "return_range": "-500,0", "public": False}
    )
    env = lesson.environment()
    assert env.name == "MDP100"
    agent = lesson.agent(env)
    assert agent.budget == Budget(3.0, 1e-6)
    assert (agent.lambda_, agent.clip, agent.return_range) == (0.5, 2.5, (-500.0, 0.0))
    assert lesson.count == 50
    assert Lesson.of(lesson.to_dict()) == lesson
    assert "public" not in lesson.to_dict()


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
    made = make(env)
    agent = Lesson.of({**WORDS, "features": word, "max_steps": 10}).agent(made)
    assert agent.features == wanted


def test_ranges_are_asked_for_where_the_environment_has_none() -> None:
    lesson = Lesson.of({**WORDS, "state_range": "-2:2,0:10", "features": "fourier:2"})
    assert lesson.agent(make("MountainCar")).features == Fourier(2, (-2.0, 0.0), (2.0, 10.0))
    with pytest.raises(InputError, match="2 ranges for 4 states"):
        lesson.agent(make("CartPole"))


def test_paper_mode_takes_what_was_not_said_from_the_paper() -> None:
    said = {**WORDS, "mode": "paper", "variant": "actor", "actor_step": 0.25, "acting": "softmax"}
    program = Lesson.of(said).program()
    assert isinstance(program, PaperProgram)
    config = program.config
    assert (config.variant, config.epsilon, config.delta) == ("actor", 3.0, 1e-6)
    assert (config.actor_step, config.acting, config.clip) == (0.25, "softmax", "median")
    clipped = Lesson.of({**said, "clip": "0.5"}).program()
    assert isinstance(clipped, PaperProgram)
    assert clipped.config.clip == 0.5


@pytest.mark.parametrize("mode", ["certified", "paper"])
def test_a_sweep_over_sigma_needs_no_budget(mode: str) -> None:
    lesson = Lesson.of({"env": "MDP100", "episodes": 10, "mode": mode})
    with pytest.raises(InputError, match="epsilon is needed"):
        lesson.program(("actor_step",))
    assert "sigma" in lesson.program(("sigma",)).sweepable


def test_a_grid_may_be_said_in_two_places() -> None:
    words = {**WORDS, "mode": "paper", "seeds": 3, "lanes": None, "grid": {"sigma": [0, 1]}}
    lesson, plan = planned(words, ["actor_step=0.1,0.5"], ["exploration=0.2"])
    assert plan == Plan({"sigma": (0.0, 1.0), "actor_step": (0.1, 0.5)}, seeds=3, episodes=50)
    assert lesson.exploration == 0.2
    assert grid_of(["a=1, 2", "b=3"]) == {"a": (1.0, 2.0), "b": (3.0,)}
    with pytest.raises(InputError, match="must be a table of settings"):
        planned({**words, "grid": 3}, [], [])
    with pytest.raises(InputError, match="curves must be true or false"):
        planned({**words, "curves": "yes"}, [], [])
