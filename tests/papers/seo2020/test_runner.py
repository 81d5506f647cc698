"""Options become the paper's learner."""

from typing import Any

import pytest

from privrl.core.errors import InputError
from privrl.papers.seo2020 import ActorCritic, ActorCriticProgram
from privrl.papers.seo2020.runner import ActorCriticRunner

WORDS = {"env": "MDP-100", "episodes": 50, "epsilon": 3.0, "delta": 1e-6}


def test_defaults_are_those_of_the_learner() -> None:
    said = {**WORDS, "variant": "actor", "actor_step": 0.25, "acting": "softmax"}
    program = ActorCriticRunner.of(said).program()
    assert isinstance(program, ActorCriticProgram)
    config = program.config
    assert (config.variant, config.epsilon, config.delta) == ("actor", 3.0, 1e-6)
    assert (config.actor_step, config.acting, config.clip) == (0.25, "softmax", "median")
    clipped = ActorCriticRunner.of({**said, "clip": "0.5"}).program()
    assert isinstance(clipped, ActorCriticProgram)
    assert clipped.config.clip == 0.5
    free = ActorCriticRunner.of({"env": "MDP-100", "episodes": 5, "variant": "none"}).program()
    assert isinstance(free, ActorCriticProgram)
    assert free.config == ActorCritic(variant="none")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"mode": "paper"}, "There are no modes any more. Leave mode out"),
        ({"people": 9}, "no option 'people' of seo2020-actor-critic. Did you mean 'episodes'"),
        ({"features": "table"}, "There is no option 'features' of seo2020-actor-critic"),
        ({"delta": 0.0}, "delta must be positive"),
        ({"env": "CartPole"}, "is for tables of states, and CartPole has none"),
    ],
)
def test_what_the_learner_does_not_have_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ActorCriticRunner.of({**WORDS, **words}).program()
