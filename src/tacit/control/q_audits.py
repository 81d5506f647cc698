"""Private Q-learning under attack: whole runs of `learn` and `fit`, and all that they give away.

Importing this module puts its targets and its sabotaged twins into the catalogues of
`tacit.privacy.audit`. Each run has fresh secret noise; what an attacker sees is every number and
every word of the result as it would be saved. The promise is the certificate's.

Where the reward function is the secret, it is everywhere higher by the radius in one world than in
the other: a difference that the features can express, and so as large as the proofs allow. The walk
has the same law in both worlds. Where people are, everybody lives alike but for one, who is paid
far more than anybody could be, or far less.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from tacit.control import functional_q as functional_q_module
from tacit.control import noised_q, walks
from tacit.control import prospect_q as prospect_q_module
from tacit.control.functional_q import FunctionalQ
from tacit.control.increments import Network
from tacit.control.learned_q import LearnedQ
from tacit.control.logged_q import LoggedQ
from tacit.control.noised_q import Descent, Plan, Updates, Weights
from tacit.control.prospect_q import ProspectQ
from tacit.data import Fourier, Trajectories
from tacit.envs import TabularMDP
from tacit.privacy import noise
from tacit.privacy.audit.attacks import Outputs, everything
from tacit.privacy.audit.auditor import Target
from tacit.privacy.audit.sabotage import (
    Twin,
    less_compiled_noise,
    less_noise,
    no_clip,
    no_factor_two,
    register,
)
from tacit.privacy.audit.targets import target
from tacit.privacy.noise import Source
from tacit.privacy.promise import Budget

BUDGET = Budget(10.0, 1e-5)
RADIUS = 0.2


def _ring(reward: float) -> TabularMDP:
    """Three rooms in a ring; what arriving pays is the same in all of them."""
    forth, back = np.roll(np.eye(3), 1, axis=1), np.roll(np.eye(3), -1, axis=1)
    return TabularMDP.from_dense(
        np.stack([forth, back], axis=1), np.full((3, 2), reward), step_limit=5
    )


def _target(name: str, runs: int, once: Callable[[int], LearnedQ], note: str) -> Target:
    certificate = once(0).certificate

    def draw(world: int, count: int, source: Source) -> Outputs:
        return [everything(once(world).to_dict()) for _ in range(count)]

    return Target(
        name, draw, certificate.events, certificate.relation, certificate.delta, runs, note=note
    )


def _secret_rewards(
    name: str,
    runs: int,
    *,
    kind: type[FunctionalQ] = FunctionalQ,
    paid: tuple[float, float] = (0.0, RADIUS),
    **settings: Any,
) -> Target:
    """Whole runs of `learn` against their certificate, in two worlds that are `paid` so."""
    given: dict[str, Any] = {
        "budget": BUDGET,
        "reward_radius": RADIUS,
        "reward_range": (-1.0, 1.0),
        "gamma": 0.5,
        "steps": 30,
        "rounds": 5,
    }
    agent = kind(**{**given, **settings})
    worlds = [_ring(reward) for reward in paid]
    return _target(name, runs, lambda world: agent.learn(worlds[world]), "whole runs of learn")


@target
def functional_q() -> Target:
    """One release of a reward model."""
    return _secret_rewards("functional-q", 1000)


@target
def functional_q_rewards() -> Target:
    """Each distinct reward noised."""
    return _secret_rewards("functional-q-rewards", 1000, release="rewards")


@target
def functional_q_evaluations() -> Target:
    """Policy iteration, in which each walk follows what was released before."""
    return _secret_rewards(
        "functional-q-evaluations", 600, release="evaluations", evaluations=2, horizon=2
    )


@target
def functional_q_weights() -> Target:
    """Noise on the weights; the step is small, and all that is released is their mean."""
    return _secret_rewards(
        "functional-q-weights",
        800,
        release="weights",
        descent=Descent(updates=8, step=0.1, average=0.0),
    )


@target
def functional_q_updates() -> Target:
    """A network, whose updates are scaled by how steep it is."""
    return _secret_rewards(
        "functional-q-updates",
        600,
        release="updates",
        planner="network",
        network=Network((2,)),
        descent=Descent(updates=4, step=0.05, batch=30, slope=1.0, average=0.0),
    )


@target
def functional_q_clipped() -> Target:
    """A network, whose updates are clipped: DP-SGD for a secret reward."""
    return _secret_rewards(
        "functional-q-clipped",
        600,
        reward_radius=100.0,
        reward_range=(-200.0, 200.0),
        release="updates",
        planner="network",
        network=Network((2,)),
        descent=Descent(updates=2, step=0.001, batch=30, clip=0.01, average=0.0),
    )


@target
def prospect_q() -> Target:
    """One release of a reward model, planned on for somebody who weighs risks."""
    # Enough rounds that values settle, which a warning would tell otherwise.
    return _secret_rewards("prospect-q", 600, kind=ProspectQ, samples=3, rounds=300)


@target
def prospect_q_updates() -> Target:
    """Updates towards CPT values: any two reward functions, however far apart."""
    return _secret_rewards(
        "prospect-q-updates",
        600,
        kind=ProspectQ,
        paid=(-100.0, 100.0),
        reward_radius=None,
        reward_range=(-100.0, 100.0),
        release="updates",
        samples=3,
        descent=Descent(updates=8, step=0.001, batch=30, clip=0.01, average=0.0),
    )


_PEOPLE, _LENGTH = 6, 3


def _people(paid: float) -> Trajectories:
    """Six people of three steps each, of whom the last is paid in a way of their own."""
    rewards = np.zeros((_PEOPLE, _LENGTH))
    rewards[-1] = paid
    return Trajectories.from_arrays(
        np.tile([0.1, 0.5, 0.9], _PEOPLE)[:, None],
        np.tile([0, 1, 0], _PEOPLE),
        rewards.ravel(),
        lengths=np.full(_PEOPLE, _LENGTH),
        terminated=np.ones(_PEOPLE, bool),
    )


@target
def logged_q() -> Target:
    """Whole fits; the step is small, so that the sums are all that is seen."""
    agent = LoggedQ(
        num_actions=2,
        reward_range=(-100.0, 100.0),
        budget=BUDGET,
        features=Fourier(1, [0.0], [1.0]),
        updates=4,
        step=0.01,
        clip=0.05,
        average=0.0,
    )
    worlds = [_people(100.0), _people(-50.0)]
    return _target("logged-q", 800, lambda world: agent.fit(worlds[world]), "whole runs of fit")


# --- ways of going wrong --------------------------------------------------------------------------


@contextmanager
def _shown_only() -> Iterator[None]:
    """The paper's: noise on what is shown of the parameters, while they go on in secret."""
    advance = noised_q.advance

    def shown(plan: Plan, data: Any, state: Any, sigma: Any, updates: Any) -> Any:
        after = advance(plan, data, state, 0.0, updates)
        z = noise.jax_normal(state.noise, after.parameters.shape)
        size = sigma * plan.rule.bound * plan.step / plan.divisor
        return after._replace(parameters=after.parameters + size * z)

    with patch.object(noised_q, "advance", shown):
        yield


@contextmanager
def _divided_by_the_batch() -> Iterator[None]:
    """The paper's: as if one reward of a batch could change, and not all of them."""
    fewer = property(lambda self: RADIUS / 30.0)
    with patch.object(Weights, "bound", fewer), patch.object(Updates, "bound", fewer):
        yield


@contextmanager
def _rewards_kept() -> Iterator[None]:
    """What the walk was paid goes into the settings of the result, for the log."""
    walk, seen = walks.walk, list[float]()
    told = FunctionalQ.described

    def kept(*given: Any, **named: Any) -> Any:
        found = walk(*given, **named)
        assert found.reward is not None
        seen.append(float(np.mean(found.reward)))
        return found

    def described(self: FunctionalQ, env: Any) -> dict[str, Any]:
        return {**told(self, env), "mean reward": seen[-1] if seen else 0.0}

    with (
        patch.object(functional_q_module, "walk", kept),
        patch.object(FunctionalQ, "described", described),
    ):
        yield


@contextmanager
def _successors_read() -> Iterator[None]:
    """What the drawn successors paid is at hand, so why not plan on that?"""
    draw, seen = walks.walk_sampling, list[float]()

    def reading(*given: Any, **named: Any) -> Any:
        found = draw(*given, **{**named, "read": True})
        assert found.paid is not None
        seen.append(float(np.mean(found.paid)))
        return found

    def true_rewards(self: ProspectQ, walked: Any, model: Any) -> Any:
        return np.full(walked.ends.shape, seen[-1])

    with (
        patch.object(prospect_q_module, "walk_sampling", reading),
        patch.object(ProspectQ, "successor_rewards", true_rewards),
    ):
        yield


_PLAIN = ("functional-q", "functional-q-rewards", "functional-q-evaluations", "prospect-q")
_UPDATED = (
    *("functional-q-weights", "functional-q-updates", "functional-q-clipped", "logged-q"),
    "prospect-q-updates",
)
_CLIPPED = ("functional-q-clipped", "logged-q", "prospect-q-updates")
_ITERATED = ("functional-q-weights", "logged-q", "prospect-q-updates")
# So few runs show what is wrong by far.
_FEW = 300

register(
    Twin("noise x 0.3", partial(less_noise, 0.3), _PLAIN, _FEW),
    Twin("noise x 0.3, compiled", partial(less_compiled_noise, 0.3), _UPDATED, _FEW),
    Twin("clip forgotten", no_clip, _CLIPPED, _FEW),
    Twin("factor 2 forgotten", no_factor_two, ("logged-q",)),
    Twin("noise on what is shown only", _shown_only, _ITERATED, _FEW),
    Twin(
        "divided by the batch",
        _divided_by_the_batch,
        ("functional-q-weights", "functional-q-updates"),
        _FEW,
    ),
    Twin("rewards kept in the settings", _rewards_kept, ("functional-q",), _FEW),
    Twin("rewards of drawn successors read", _successors_read, ("prospect-q",), _FEW),
)
