"""The learner: the settings of Algorithms 1 to 4, and a run of them with the paper's claim.

    ActorCritic(variant="actor", epsilon=10.0).learn("MDP-100", 500, public=True).policy

Released: nothing is certified. The paper's promise is a Claim, for one step: C is read from the
gradient, and neither the TD error nor rho nor w are noised. `privrl.control.ActorCritic` is the
learner with a certificate.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privrl.control import engine, loop
from privrl.control.actor_critic import NOT_PRIVATE, Diverged, LearnedActorCritic
from privrl.control.heads import Table
from privrl.control.program_training import PaperLearner, ProgramTraining
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs.registry import make
from privrl.papers.seo2020.parts import LearnerState
from privrl.papers.seo2020.program import ActorCriticProgram
from privrl.papers.seo2020.spec import ActorCriticSpec
from privrl.privacy.certificate import Claim
from privrl.privacy.claims import seo2020_equation3


@dataclass(frozen=True)
class ActorCritic(ActorCriticSpec, PaperLearner[LearnedActorCritic]):
    """The paper's actor-critic; the numbers in `SWEEPABLE` may be arrays, one entry per replica."""

    @property
    def multiplier(self) -> Any:
        """sigma."""
        if self.sigma is not None:
            return self.sigma
        return math.sqrt(2.0 * math.log(1.25 / self.delta)) / self.epsilon

    def claim(self, steps: int) -> Claim | None:
        """What the paper promises for each step, beside what `steps` such steps add up to.

        None without noise. DP-Both noises two gradients in a step, and each has the promise.
        """
        if self.variant == "none":
            return None
        if self.sigma is not None:
            raise InputError("a sigma of one's own has no claim: say epsilon and delta instead.")
        noised = 2 if self.variant == "both" else 1
        return seo2020_equation3(self.epsilon, self.delta, checks.count("steps", steps), noised)

    def training(self, env: Any, people: int | None = None) -> "ActorCriticTraining":
        """This learner for `people` episodes in `env`, for the engine."""
        program = ActorCriticProgram(self, make(env))
        count = checks.count("episodes", people)
        return ActorCriticTraining(self, program.env, program, count, count)


class ActorCriticTraining(ProgramTraining):
    """The paper's actor-critic: a step is episodes."""

    def result(self, state: Any, seen: loop.Seen, run: engine.Run) -> LearnedActorCritic:
        returns = seen["return"][0] if run.public else None
        return make_result(self.program, state, self.planned, returns, run.seed)


def make_result(
    program: ActorCriticProgram,
    state: LearnerState,
    episodes: int,
    returns: Floats | None,
    seed: int | None,
) -> LearnedActorCritic:
    """The actor and the critic at the end of a run, and the paper's claim."""
    config, form = program.config, program.form
    actor, critic, _ = program.weights(program.flush(state))
    if not (np.all(np.isfinite(actor)) and np.all(np.isfinite(critic))):
        raise Diverged
    # One person's episode is at most so many steps; other people's are noised on their own.
    claim = config.claim(form.horizon)
    return LearnedActorCritic(
        promise=NOT_PRIVATE if claim is None else claim,
        variant=config.variant,
        actor=actor[0],
        critic=critic[0][:, None],
        actor_head=Table(form.states, form.actions),
        critic_head=Table(form.states, 1),
        curve=None if returns is None else np.asarray(returns, np.float64),
        settings={"env": program.env.name, "seed": seed, "people": episodes, **asdict(config)},
    )
