"""The private actor-critic under attack: whole runs of `learn`, and all that they give away.

Importing this module puts its targets into the catalogue of `privrl.audit`, where
`privrl audit` finds them. Each run is a call of `ActorCritic.learn` with fresh secret noise; what
an attacker sees is every number and every word of the result as it would be saved, and the
parameters after every batch, which the certificate covers. The promise is the certificate's. In the
two worlds everybody lives alike but for one person, who is paid far more than anybody could be, or
far less.

Three things give these audits power: a promise large enough for an attack to come near it, steps so
small that the parameters are all but the noised sums, and a person whose increment goes through the
shipped clipping to the very bound. A critic that is carried without noise must show in what later
people add to the actor, too; so it has a target of its own, in which the critic moves fast and is
not released, and nothing but the result is seen. Noise of 0.8 cannot be seen there (which action
the person took is hidden, and with it the direction in which the actor moves); its siblings see it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from privrl.audit.auditor import Target
from privrl.audit.catalogue import add_target, record_calls
from privrl.audit.targets.whole_runs import BUDGET, FAR, RUNS, run_target, watch_nothing
from privrl.control.actor_critic import ActorCritic, CertifiedProgram, LearnedActorCritic
from privrl.core.types import Array
from privrl.data import OneHot
from privrl.envs.host import HostEnvironment
from privrl.risk import Prospect

BATCH = 5
HALL = 2


class Corridor(gymnasium.Env[int, int]):
    """From the hall to the left room (0) or the right one (1), where the clock runs out.

    Person number `who`, of those who come, goes to the left, stays on, and is paid `pay`. So nobody
    else learns anything in the rooms, though all act on what is known of them.
    """

    observation_space: Any = spaces.Discrete(3)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, who: int, pay: float) -> None:
        self.who, self.pay = who, pay
        self.person, self.room = -1, HALL

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        self.person, self.room = self.person + 1, HALL
        return HALL, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        chosen = self.person == self.who
        if self.room == HALL:
            self.room = 0 if chosen else action
            return self.room, 0.0, False, not chosen, {}
        return HALL, self.pay, True, False, {}


def _ignore_progress(done: int, people: int) -> None:
    """With somebody to tell, a run goes batch by batch."""


def _learn(
    agent: ActorCritic, env: HostEnvironment, people: int, **more: Any
) -> LearnedActorCritic:
    return agent.learn(env, people, progress=_ignore_progress, preflight=False, **more)


class _InterruptionError(Exception):
    """Of a run that is to be resumed."""


def _interrupt(done: int, people: int) -> None:
    if done < people:
        raise _InterruptionError


def _resume(agent: ActorCritic, env: HostEnvironment, people: int) -> LearnedActorCritic:
    with TemporaryDirectory() as folder:
        try:
            return agent.learn(env, people, progress=_interrupt, folder=folder, preflight=False)
        except _InterruptionError:
            return agent.resume(env, folder)


def _carried_parameters(program: CertifiedProgram, given: Any, found: Any) -> Array:
    """What is carried on from a batch to the next."""
    state = found[0]
    kept = [state.actor, state.critic, *([] if state.returns is None else [state.returns])]
    return np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in kept])


def _learning_target(
    name: str,
    batches: int = 2,
    who: int = 2 * BATCH - 1,
    runs: int = RUNS,
    learn: Callable[[ActorCritic, HostEnvironment, int], LearnedActorCritic] = _learn,
    result_only: bool = False,
    more: Callable[[list[Array]], Array] | None = None,
    paid: tuple[float, float] = FAR,
    **settings: Any,
) -> Target:
    """Whole runs against their certificate; person `who`, by default the last of two batches, is
    `paid` otherwise in each world. An attacker may make `more` of all parameters."""
    given: dict[str, Any] = {
        "budget": BUDGET,
        "batch": BATCH,
        "max_steps": 2,
        "gamma": 0.9,
        "lambda_": 0.0,
        "noise": "independent",
        "clip": 0.1,
        "actor_step": 0.001,
        "critic_step": 0.001,
        "critic_weight": 10.0,
    }
    agent = ActorCritic(**{**given, **settings})

    @contextmanager
    def watch() -> Iterator[list[Array]]:
        seen: list[Array] = []
        with record_calls(CertifiedProgram, "advance_run", _carried_parameters) as states:
            yield seen
        seen += [*np.diff([np.zeros_like(states[0]), *states], axis=0)]
        seen += [] if more is None else [more(states)]

    return run_target(
        name,
        lambda world: learn(agent, HostEnvironment(Corridor(who, paid[world])), batches * BATCH),
        runs,
        watch=watch_nothing if result_only else watch,
    )


add_target("actor-critic", _learning_target)
# The first person of four batches, whose noise is carried on and partly taken back.
add_target("actor-critic-correlated", _learning_target, 4, 0, noise="correlated")
# The first person of two batches: noise that comes again in the second shows the first sum.
add_target("actor-critic-first-batch", _learning_target, who=0)


_FAST = 300.0


def _gradient_movement(states: list[Array]) -> Array:
    """How far actor and critic moved in the second batch as the person in the left room moves them.

    Which action the person took there is all but certain: the one that the actor preferred by far.
    """
    before, move = states[0], states[1] - states[0]
    scores = before[:2]
    probs = np.exp(scores - scores.max())
    towards = np.where(scores == scores.max(), 1.0, 0.0) - probs / probs.sum()
    actor = float(move[:2] @ towards) / (float(np.linalg.norm(towards)) + 1e-300) / _FAST
    return np.array([actor, move[6] / 0.001, actor + move[6] / 0.001])


# The last person adds as much to the actor as to the critic, if the two are clipped apart. Policies
# are all but deterministic after the first batch, so that the action is known.
add_target(
    "actor-critic-both",
    _learning_target,
    more=_gradient_movement,
    paid=(-5e8, 1e9),
    critic_weight=1.0,
    actor_step=_FAST,
)
# The critic is not given away, and moves far: later people prefer the left room, or avoid it. It
# knows the rooms only.
add_target(
    "actor-critic-hidden-critic",
    _learning_target,
    batches=8,
    who=0,
    runs=400,
    result_only=True,
    variant="actor",
    critic_features=OneHot(HALL),
    critic_step=150.0,
    critic_weight=0.5,
)
# A learning curve that is paid for, which takes most of the clip bound here.
_CURVE: dict[str, Any] = {"return_range": (-1.0, 1.0), "curve": "paid", "curve_weight": 0.9}
add_target("actor-critic-curve", _learning_target, **_CURVE)
# From a critic that others have paid for.
_WARM = partial(_learn, critic=[0.0, 0.01, -0.01])
add_target("actor-critic-warm-start", _learning_target, learn=_WARM)
# A prospect, for which a part of the clip bound goes to how returns are distributed. Nobody else is
# paid, so the one person is what others are compared with, if anything is that was not released.
# Without traces the person alone moves the critic of the left room.
add_target(
    "prospect-actor-critic",
    _learning_target,
    runs=2 * RUNS,
    prospect=Prospect.tversky_kahneman(),
    return_range=(-1.0, 1.0),
    bins=4,
    curve_weight=0.15,
    gamma=1.0,
)
# Interrupted after each batch but the last, and resumed.
add_target("actor-critic-resumed", _learning_target, learn=_resume)
