"""How `privrl train actor-critic` is run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from privrl.control.actor_critic import STATE, ActorCritic, CertifiedProgram, LearnedActorCritic
from privrl.control.program import Program
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs.base import Box, Discrete
from privrl.envs.host import HostEnvironment
from privrl.privacy.certificate import Certificate
from privrl.privacy.promise import Budget
from privrl.privacy.resuming import KEY_FILE
from privrl.risk import parse_prospect
from privrl.run.logs import EPISODE, Logs, Row
from privrl.run.logs import paths as log_paths
from privrl.run.parsing import pair, refuse_missing
from privrl.run.runners.base import SCALED, Env, EnvironmentRunner, FeaturesRunner, Job, RunEnd
from privrl.run.runners.playing import play_agent
from privrl.run.specs.actor_critic import ActorCriticSpec

# What the agent takes as it was said.
_SETTINGS = (
    *("variant", "gamma", "lambda_", "actor_step", "critic_step", "clip", "max_steps", "batch"),
    *("noise", "optimiser", "schedule", "average", "critic_weight", "entropy", "curve"),
    *("curve_weight", "bins", "even_share", "forgetting"),
)
_EPISODES = "With --episodes it is the same, for simulators with nobody in them"


@dataclass(frozen=True)
class ActorCriticRunner(ActorCriticSpec, FeaturesRunner, EnvironmentRunner):
    """What an actor-critic was told."""

    CHECKPOINTS: ClassVar[tuple[str, ...]] = (STATE, KEY_FILE)

    @property
    def count(self) -> int:
        """How many people play, an episode each."""
        if self.people is not None and self.episodes is not None:
            raise InputError("--people and --episodes say the same in two ways: leave one out.")
        found = self.episodes if self.people is None else self.people
        if found is None:
            refuse_missing("people", "how many people play an episode each, such as 500", _EPISODES)
        return found

    @property
    def no_curve_reason(self) -> str | None:
        if self.public or self.curve == "paid" or self.prospect is not None:
            return None
        return (
            "A log holds returns, which are about people: say --public if nobody is there to "
            "protect, or pay for a curve of the batches with --curve paid."
        )

    def agent(self, env: Env, *, noised: bool = True) -> ActorCritic:
        """The learner; without `noised` its noise is said elsewhere."""
        given = {n: getattr(self, n) for n in _SETTINGS if getattr(self, n) is not None}
        if self.return_range is not None:
            given["return_range"] = pair("return_range", self.return_range)
        if self.prospect is not None:
            given["prospect"] = parse_prospect(self.prospect)
            if self.return_range is None:
                refuse_missing(
                    "return_range",
                    "what the return of an episode could be, the lowest first, such as -500,0",
                    "A prospect counts returns between its ends",
                )
        said = [one.partition(":")[0] for one in (self.features, self.critic_features) if one]
        if self.state_range is not None and (
            isinstance(env.observation, Discrete) or not set(said) & set(SCALED)
        ):
            raise InputError(
                "state_range is for polynomial and fourier features of numbers: leave it out."
            )
        for name in ("features", "critic_features"):
            if getattr(self, name) is not None:
                given[name] = self.features_of(env, getattr(self, name))
        if self.features is None and isinstance(env.observation, Box):
            refuse_missing(
                "features",
                "in which form to see the states, such as fourier:2, polynomial:2 or network:16",
                f"{env.name} observes {len(env.observation.low)} numbers, so there is no table",
            )
        return ActorCritic(budget=self._budget(noised), **given)

    def program(self, swept: Sequence[str] = ()) -> Program:
        """The learner as a program, of which `swept` are the settings that replicas have."""
        env = self.environment()
        agent = self.agent(env, noised="sigma" not in swept)
        if isinstance(env, HostEnvironment):
            raise InputError(
                f"{env.name} cannot be compiled, so its runs are played one by one: use privrl "
                "train."
            )
        return CertifiedProgram(agent, env, self.count)

    def _budget(self, noised: bool) -> Budget | None:
        if self.variant == "none":
            if self.epsilon is not None or self.delta is not None:
                raise InputError(
                    "The variant none spends nothing: leave --epsilon and --delta out."
                )
            return None
        if not noised:
            # Stands in for the one that a sweep over sigma has no use for.
            return Budget(
                1.0 if self.epsilon is None else self.epsilon,
                1e-6 if self.delta is None else self.delta,
            )
        if self.epsilon is None:
            refuse_missing(
                "epsilon",
                "the privacy budget for each person, such as 1",
                "--variant none learns without noise, and protects nobody",
            )
        if self.delta is None:
            refuse_missing(
                "delta",
                "the failure probability of the promise, such as 1e-6",
                "It should be well below one divided by the number of people",
            )
        if self.delta == 0.0:
            raise InputError("must be above 0, because the noise is Gaussian.", field="delta")
        return Budget(self.epsilon, self.delta)

    # --- how it is run -------------------------------------------------------------------------

    def play(self, job: Job) -> RunEnd:
        env, people = self.environment(), self.count
        agent = self.agent(env)
        if agent.return_range is None and agent.actor_step is None:
            refuse_missing(
                "return_range",
                "what the return of an episode could be, the lowest first, such as -500,0",
                "Steps and bounds are in units of its width; with an --actor-step of your own it "
                "can be left out",
            )
        tried = not self.no_preflight
        return play_agent(self, agent, env, job, "people", people=people, preflight=tried)

    def write(self, learned: LearnedActorCritic, job: Job) -> dict[str, Path]:
        written = write_policy(learned, job)
        if learned.curve is not None:
            written |= log_paths(job.folder, job.formats)
            Logs.open(job.folder, job.formats).write(_curve_rows(learned, learned.curve))
        return written

    def summarize(self, learned: LearnedActorCritic) -> tuple[list[str], list[str]]:
        lines = curve_lines(learned)
        prospect = learned.prospect
        if prospect is not None:
            value = learned.prospect_value
            lines.append(
                f"  CPT value of the last returns {value:.4g}, as much as "
                f"{float(prospect.certainty_equivalent(value)):.4g} for certain"
            )
        notes = []
        if isinstance(learned.promise, Certificate) and self.public:
            notes.append("The returns were declared public: no promise is made about them.")
        if learned.actor is None or learned.critic is None:
            notes.append(f"Only the {learned.variant} is given away.")
        return lines, notes


def write_policy(learned: LearnedActorCritic, job: Job) -> dict[str, Path]:
    """The file of the policy, if it is given away and can be saved."""
    if learned.actor is None or not hasattr(learned.policy, "save"):
        return {}
    path = job.folder / "policy.json"
    learned.policy.save(path)
    return {"policy": path}


def curve_lines(learned: LearnedActorCritic) -> list[str]:
    """What was learned from, and how returns went where they may be shown."""
    settings, curve = learned.settings, learned.curve
    lines = [f"{settings['env']}: an actor-critic from {settings['people']:,} episodes."]
    if curve is not None and curve.size:
        tenth = max(1, curve.size // 10)
        # Rewards may add up to infinities.
        with np.errstate(invalid="ignore", over="ignore"):
            first, last = np.mean(curve[:tenth]), np.mean(curve[-tenth:])
        lines.append(f"  mean return of the first tenth {first:.4g}, of the last {last:.4g}")
    return lines


def _curve_rows(learned: LearnedActorCritic, curve: Floats) -> list[Row]:
    """A row for each person, if they are public, else for each batch that was paid for."""
    people, batch = learned.settings["people"], learned.settings["batch"]
    each = 1 if curve.size == people else batch
    return [
        {EPISODE: min((number + 1) * each, people), "return": value}
        for number, value in enumerate(curve.tolist())
    ]
