"""Words become learners of a secret reward."""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from privrl.control import FunctionalQ, Network
from privrl.control.noised_q import DEFAULT_DESCENTS
from privrl.core.errors import InputError
from privrl.data import Fourier, OneHot
from privrl.envs.registry import make
from privrl.papers.rajabi2022 import runner as rajabi2022
from privrl.papers.wang2019 import runner as wang2019
from privrl.privacy import Budget
from privrl.privacy.mechanisms.reward_model import Cosine, Legendre
from privrl.run.runners import LEARNERS, Runner
from privrl.run.runners.actor_critic import ActorCriticRunner
from privrl.run.runners.logged_q import LoggedQRunner
from privrl.run.runners.secret_reward import FunctionalQRunner, ProspectRunner

WORDS = {
    "env": "Interval",
    "epsilon": 0.9,
    "delta": 1e-4,
    "reward_radius": 0.01,
    "reward_range": "0,0.5",
}


def test_what_was_said_is_what_the_agent_has() -> None:
    runner = FunctionalQRunner.of(
        {**WORDS, "steps": 300, "gamma": 0.9, "planner": "actor-critic", "release": "rewards"}
    )
    agent = runner.agent()
    assert agent.budget == Budget(0.9, 1e-4)
    assert (agent.reward_radius, agent.reward_range) == (0.01, (0.0, 0.5))
    assert (agent.steps, agent.gamma, agent.planner) == (300, 0.9, "actor-critic")
    assert agent.release == "rewards"


def test_a_runner_comes_back_from_its_words() -> None:
    home: dict[str, tuple[type[Runner], dict[str, Any]]] = {
        "functional-q": (FunctionalQRunner, WORDS),
        "actor-critic": (ActorCriticRunner, {"env": "Chain"}),
        "logged-q": (LoggedQRunner, {"table": "stays.parquet"}),
        "prospect": (ProspectRunner, {**WORDS, "prospect": "tversky-kahneman"}),
        "wang2019-functional-q": (wang2019.FunctionalQRunner, {"env": "Interval", "sigma": 1.0}),
        "rajabi2022-prospect": (rajabi2022.ProspectRunner, {"prospect": "neutral"}),
    }
    for learner, (kind, words) in home.items():
        runner: Any = Runner.of({"learner": learner, **words})
        assert Runner.of(runner.to_dict()) == runner
        assert runner.learner == learner
        assert type(runner) is kind
    assert set(home) <= set(LEARNERS)
    # Also if nobody said whose it is.
    own = FunctionalQRunner.of(WORDS)
    assert Runner.of(own.to_dict()) == own


@pytest.mark.parametrize(
    ("words", "name", "wanted"),
    [
        ({"features": "fourier:3"}, "features", Fourier(3, (0.0,), (1.0,))),
        (
            {"features": "fourier:3", "state_range": "-1:2"},
            "features",
            Fourier(3, (-1.0,), (2.0,)),
        ),
        ({"features": "network:8,4", "planner": "network"}, "network", Network((8, 4))),
        ({"reward_features": "cosine:2"}, "reward_features", Cosine(2, (0.0,), (1.0,))),
        ({"reward_features": "legendre"}, "reward_features", Legendre(3, (0.0,), (1.0,))),
        ({"env": "MDP100", "reward_features": "table"}, "reward_features", OneHot(100)),
    ],
)
def test_features_by_name(words: dict[str, Any], name: str, wanted: Any) -> None:
    runner = FunctionalQRunner.of({**WORDS, **words})
    assert getattr(runner.agent().resolve(runner.environment), name) == wanted


def test_without_noise_nothing_is_asked_for() -> None:
    agent = FunctionalQRunner.of({"env": "Interval", "release": "none"}).agent()
    assert agent.budget is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({}, "2 options are needed:\n  features: in which form to see the states"),
        ({"features": "fourier:1"}, "state_range: what each of the numbers observed could be"),
        ({"planner": "network"}, "reward_features is needed: say with reward_features"),
        (
            {"planner": "network", "reward_features": "cosine:1"},
            "state_range is needed: say with state_range",
        ),
    ],
)
def test_numbers_without_ends_are_asked_about(words: dict[str, Any], sentence: str) -> None:
    class Wide(gymnasium.Env[Any, int]):
        observation_space: Any = spaces.Box(-3.4e38, 3.4e38, (2,), np.float32)
        action_space: Any = spaces.Discrete(2)

    runner = FunctionalQRunner.of({**WORDS, **words})
    vars(runner)["environment"] = make(Wide())
    with pytest.raises(InputError, match=sentence):
        runner.agent()
    said = {"features": "fourier:1", "reward_features": "cosine:1", "state_range": "-1:1,0:2"}
    agent = FunctionalQRunner.of({**WORDS, **said}).agent().resolve(make(Wide()))
    assert agent.reward_features == Cosine(1, (-1.0, 0.0), (1.0, 2.0))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"learner": "actor-critic"}, "learner must be 'functional-q' here"),
        ({"people": 3}, "There is no option 'people'"),
        (
            {"mode": "paper"},
            "There are no modes any more: the paper's algorithm is the learner wang2019-",
        ),
        ({"sigma": 1.0}, "There is no option 'sigma' of functional-q"),
        ({"reward_radus": 3}, "Did you mean 'reward_radius'?"),
        ({"reward_radius": "wide"}, "reward_radius must be a number, not 'wide'"),
        ({"steps": 2.5}, "steps must be a whole number"),
    ],
)
def test_words_that_there_are_not(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence.replace("?", r"\?")):
        FunctionalQRunner.of({**WORDS, **words})


def test_noised_updates_take_their_own_settings() -> None:
    words = {**WORDS, "release": "updates", "planner": "network", "updates": 7, "clip": 0.1}
    runner = FunctionalQRunner.of(words)
    found = runner.agent()
    assert found.descent == replace(DEFAULT_DESCENTS["updates"], updates=7, clip=0.1)
    assert found.updates == FunctionalQ().updates
    for release in (None, "rewards"):
        other = FunctionalQRunner.of({**WORDS, "clip": 0.1, "release": release})
        with pytest.raises(InputError, match="clip belongs to --release weights or updates"):
            other.agent()
