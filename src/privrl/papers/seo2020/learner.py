"""The learner: the settings of Algorithms 1 to 4, and a run of them with the paper's claim.

    ActorCritic(variant="actor", epsilon=10.0).learn("MDP-100", 500, public=True).policy

Released: nothing is certified. The paper's promise is a Claim, for one step: C is read from the
gradient, and neither the TD error nor rho nor w are noised. `privrl.control.ActorCritic` is the
learner with a certificate.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import jax
import numpy as np

from privrl.control.actor_critic import NOT_PRIVATE, Diverged, LearnedActorCritic
from privrl.control.heads import Table
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.progress import StepProgress
from privrl.core.types import Floats
from privrl.envs.registry import make
from privrl.papers.seo2020.parts import Acting, LearnerState, Variant
from privrl.papers.seo2020.program import (
    SWEEPABLE,
    ActorCriticProgram,
    check_setting,
    check_share,
)
from privrl.privacy.certificate import Claim
from privrl.privacy.claims import seo2020_equation3
from privrl.privacy.noise import reproducible, secure

# How often a run with a progress bar stops to report.
_PROGRESS_REPORTS = 20


@dataclass(frozen=True)
class ActorCritic:
    """The paper's actor-critic; the numbers in `SWEEPABLE` may be arrays, one entry per replica."""

    variant: Variant = "both"
    """What is noised: nothing (Algorithm 1), the actor (2), the critic (3), or both (4)."""

    epsilon: float = 10.0
    """The paper's privacy budget, for one step; from it and delta comes sigma."""

    delta: float = 1e-6
    """The paper's failure probability, for one step."""

    gamma: float = 0.99
    """The discount factor, from 0 to 1."""

    lambda_: float = 0.8
    """How far eligibility traces reach, from 0 to 1."""

    actor_step: float = 0.5
    """alpha_u."""

    critic_step: float = 0.01
    """alpha_v."""

    correction_step: float = 0.5
    """alpha_w."""

    acting: Acting = "epsilon-greedy"
    """How actions are drawn while learning."""

    exploration: float = 0.1
    """With what probability epsilon-greedy acting draws any action, uniformly."""

    clip: Literal["median"] | float = "median"
    """C: the median of the non-zero entries, or a public constant."""

    correction: Literal["next", "printed"] = "next"
    """Whose features the correction term has: x_{s'}, or x_s as printed."""

    max_steps: int | None = None
    """Truncates episodes that the environment lets go on."""

    dense: bool = False
    """Whether to draw all noise in each step: slow, and the same in law."""

    sigma: float | None = None
    """The noise multiplier; None for the paper's, sqrt(2 log(1.25 / delta)) / epsilon."""

    def __post_init__(self) -> None:
        _check_choice("variant", self.variant, ("none", "actor", "critic", "both"))
        _check_choice("acting", self.acting, ("epsilon-greedy", "softmax"))
        _check_choice("correction", self.correction, ("next", "printed"))
        checks.positive("epsilon", self.epsilon)
        if checks.probability("delta", self.delta) == 0.0:
            raise InputError(
                "must be above 0: the formula for sigma has none without it.", field="delta"
            )
        check_share("gamma", self.gamma)
        if self.clip != "median":
            checks.positive("clip", self.clip)
        if self.max_steps is not None:
            checks.count("max_steps", self.max_steps)
        object.__setattr__(self, "dense", checks.boolean("dense", self.dense))
        for name in SWEEPABLE:
            if name != "sigma" or self.sigma is not None:
                check_setting(name, getattr(self, name))

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

    def learn(
        self,
        env: Any,
        episodes: int,
        *,
        seed: int | None = None,
        public: bool = False,
        progress: StepProgress | None = None,
    ) -> LearnedActorCritic:
        """Learn for `episodes` episodes in `env`, a table of states or its name.

        `public` says that nobody in them needs protection, and lets the curve of their returns be
        shown. `progress(done, episodes)` is called now and then.
        """
        program = ActorCriticProgram(self, make(env))
        count = checks.count("episodes", episodes)
        source = secure() if seed is None else reproducible(seed)
        with jax.enable_x64(True):
            state, done, returns = program.init(source.key()[None]), 0, []
            stride = max(1, count // _PROGRESS_REPORTS) if progress is not None else count
            while done < count:
                size = min(stride, count - done)
                state, seen = program.advance(state, size)
                returns.append(np.asarray(seen["return"])[0])
                done += size
                if progress is not None:
                    progress(done, count)
        return make_result(program, state, count, np.concatenate(returns) if public else None, seed)


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


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"must be {', '.join(map(repr, allowed))}, not {value!r}.", field=name)
