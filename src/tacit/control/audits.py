"""The private actor-critic under attack: whole runs of `learn`, and all that they give away.

Importing this module puts its targets and its sabotaged twins into the catalogues of
`tacit.privacy.audit`, where `tacit audit` finds them. Each run is a call of `ActorCritic.learn`
with fresh secret noise; what an attacker sees is every number and every word of the result as it
would be saved. The promise is the certificate's. In the two worlds everybody lives alike but for
one person, who is paid far more than anybody could be, or far less.

Three things give these audits power: a promise large enough for an attack to come near it, steps so
small that the released parameters are all but the noised sums, and a person whose increment goes
through the shipped clipping to the very bound. A twin that carries a critic without noise shows
only in what later people add to the actor; so it has a target of its own, in which the critic moves
fast and is not released.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import gymnasium
import jax
import jax.numpy as jnp
from gymnasium import spaces

from tacit.control.actor_critic import ActorCritic, Learned
from tacit.control.certified import Plan, State
from tacit.data import OneHot
from tacit.envs.host import HostEnvironment
from tacit.privacy.audit.attacks import Outputs, everything
from tacit.privacy.audit.auditor import Target
from tacit.privacy.audit.sabotage import (
    Twin,
    less_compiled_noise,
    no_clip,
    no_factor_two,
    register,
)
from tacit.privacy.audit.targets import target
from tacit.privacy.noise import Source
from tacit.privacy.promise import Budget
from tacit.risk import Prospect

BUDGET = Budget(10.0, 1e-5)
FAR = (-50.0, 100.0)
"""What the one person is paid; not symmetric, lest anything unclipped be."""

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


Run = Callable[[ActorCritic, HostEnvironment, int], Learned]


def _plain(agent: ActorCritic, env: HostEnvironment, people: int) -> Learned:
    return agent.learn(env, people, preflight=False)


def _runs(
    name: str, people: int, who: int, runs: int, learn: Run = _plain, **settings: Any
) -> Target:
    """Whole runs against their certificate."""
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

    def once(world: int) -> Learned:
        return learn(agent, HostEnvironment(Corridor(who, FAR[world])), people)

    certificate = once(0).certificate

    def draw(world: int, count: int, source: Source) -> Outputs:
        return [everything(once(world).to_dict()) for _ in range(count)]

    return Target(
        name,
        draw,
        certificate.events,
        certificate.relation,
        certificate.delta,
        runs,
        note="whole runs of learn",
    )


@target
def actor_critic() -> Target:
    """The last person of two batches."""
    return _runs("actor-critic", 2 * BATCH, 2 * BATCH - 1, 800)


@target
def actor_critic_correlated() -> Target:
    """The first person of four batches, whose noise is carried on and partly taken back."""
    return _runs("actor-critic-correlated", 4 * BATCH, 0, 800, noise="correlated")


@target
def actor_critic_hidden_critic() -> Target:
    """The critic is not given away, and moves far: later people prefer the left room, or avoid it.

    It knows the rooms only.
    """
    return _runs(
        "actor-critic-hidden-critic",
        8 * BATCH,
        0,
        400,
        variant="actor",
        critic_features=OneHot(HALL),
        critic_step=150.0,
        critic_weight=0.5,
    )


@target
def actor_critic_curve() -> Target:
    """A learning curve that is paid for, which takes most of the clip bound here."""
    return _runs(
        "actor-critic-curve",
        2 * BATCH,
        2 * BATCH - 1,
        800,
        return_range=(-1.0, 1.0),
        curve="paid",
        curve_weight=0.9,
    )


@target
def actor_critic_warm_start() -> Target:
    """From a critic that others have paid for."""

    def learn(agent: ActorCritic, env: HostEnvironment, people: int) -> Learned:
        return agent.learn(env, people, critic=[0.0, 0.01, -0.01], preflight=False)

    return _runs("actor-critic-warm-start", 2 * BATCH, 2 * BATCH - 1, 800, learn)


@target
def prospect_actor_critic() -> Target:
    """A prospect, for which half of the clip bound goes to how returns are distributed.

    Nobody else is paid, so the one person is what others are compared with, if anything is that was
    not released.
    """
    return _runs(
        "prospect-actor-critic",
        2 * BATCH,
        2 * BATCH - 1,
        800,
        prospect=Prospect.tversky_kahneman(),
        return_range=(-1.0, 1.0),
        bins=4,
        curve_weight=0.5,
        gamma=1.0,
        lambda_=1.0,
    )


class _InterruptionError(Exception):
    """Of a run that is to be resumed."""


@target
def actor_critic_resumed() -> Target:
    """Interrupted after each batch but the last, and resumed."""

    def interrupt(done: int, people: int) -> None:
        if done < people:
            raise _InterruptionError

    def learn(agent: ActorCritic, env: HostEnvironment, people: int) -> Learned:
        with TemporaryDirectory() as folder:
            try:
                return agent.learn(
                    env, people, progress=interrupt, checkpoint=Path(folder), preflight=False
                )
            except _InterruptionError:
                return agent.resume(folder, env)

    return _runs("actor-critic-resumed", 2 * BATCH, 2 * BATCH - 1, 300, learn)


# --- ways of going wrong --------------------------------------------------------------------------


@contextmanager
def _critic_without_noise() -> Iterator[None]:
    """The actor alone is noised, since it alone is released; the critic is carried as it is."""
    noised = Plan.noised

    def half(self: Plan, state: State, exact: Any) -> Any:
        whole, stream = noised(self, state, exact)
        p, q = self.rows.sizes
        return whole.at[p : p + q].set(exact[p : p + q]), stream

    with patch.object(Plan, "noised", half):
        yield


@contextmanager
def _normalised() -> Iterator[None]:
    """What people are paid is brought to mean 0 and variance 1 over each batch."""
    exact = Plan.exact

    def standardised(self: Plan, state: State, part: Any, first: Any) -> Any:
        paid, valid = part.transitions.reward, part.valid
        mean = jnp.mean(paid, where=valid)
        spread = jnp.sqrt(jnp.mean((paid - mean) ** 2, where=valid)) + 1e-9
        steps = part.transitions._replace(reward=(paid - mean) / spread)
        return exact(self, state, part._replace(transitions=steps), first)

    with patch.object(Plan, "exact", standardised):
        yield


@contextmanager
def _same_noise() -> Iterator[None]:
    """One draw of noise serves all batches."""
    noised = Plan.noised

    def first(self: Plan, state: State, exact: Any) -> Any:
        return noised(self, state._replace(batch=jnp.zeros_like(state.batch)), exact)

    with patch.object(Plan, "noised", first):
        yield


@contextmanager
def _curve_shown() -> Iterator[None]:
    """Returns as they were, which are for public people only."""
    learn = ActorCritic.learn

    def shown(self: ActorCritic, *given: Any, **named: Any) -> Learned:
        return learn(self, *given, **{**named, "public": True})

    with patch.object(ActorCritic, "learn", shown):
        yield


@contextmanager
def _counts_without_noise() -> Iterator[None]:
    """How returns are distributed is kept as it is, since it only says what returns are worth."""
    noised = Plan.noised

    def part(self: Plan, state: State, exact: Any) -> Any:
        whole, stream = noised(self, state, exact)
        own = sum(self.rows.sizes)
        return whole.at[own:].set(exact[own:]), stream

    with patch.object(Plan, "noised", part):
        yield


@contextmanager
def _worth_of_the_batch() -> Iterator[None]:
    """Returns are valued by how they are distributed in the batch itself, not in those before."""
    exact = Plan.exact

    def ranked(self: Plan, state: State, part: Any, first: Any) -> Any:
        outlook = self.rows.outlook
        assert outlook is not None
        counts = jax.vmap(outlook.counts, (0, None))(part, state.settings["gamma"])
        return exact(self, state._replace(returns=jnp.mean(counts, axis=0)), part, first)

    with patch.object(Plan, "exact", ranked):
        yield


_STRAIGHT = ("actor-critic", "actor-critic-correlated", "actor-critic-warm-start")
_PROSPECT = "prospect-actor-critic"
# So few runs show what is wrong by far.
_FEW = 300

register(
    Twin(
        "noise x 0.3, compiled",
        partial(less_compiled_noise, 0.3),
        (*_STRAIGHT, "actor-critic-resumed", "actor-critic-curve", _PROSPECT),
    ),
    Twin("clip forgotten", no_clip, (*_STRAIGHT, _PROSPECT), _FEW),
    Twin("factor 2 forgotten", no_factor_two, ("actor-critic", "actor-critic-curve")),
    Twin("counts of returns without noise", _counts_without_noise, (_PROSPECT,), _FEW),
    Twin("worth taken from the batch itself", _worth_of_the_batch, (_PROSPECT,), _FEW),
    Twin("critic without noise", _critic_without_noise, ("actor-critic-hidden-critic",), _FEW),
    Twin("advantages normalised over the batch", _normalised, ("actor-critic",), _FEW),
    Twin("noise drawn once for all batches", _same_noise, ("actor-critic-curve",), _FEW),
    Twin("curve shown", _curve_shown, ("actor-critic",), _FEW),
)
