"""Private Q-learning under attack: whole runs of `learn` and `fit`, and all that they give away.

Importing this module puts its targets into the catalogue of `privrl.audit`. Each run has
fresh secret noise; what an attacker sees is every number and every word of the result as it would
be saved, and where every iterate is covered, every iterate. The promise is the certificate's. Of
updates an attacker who knows all but the secret sees more: what noise there would be in the first
world, how that changes from update to update, which noise that is used again does not, and by how
much likelier all of it is in the second world (`evidence`).

Where the reward function is the secret, it is everywhere higher by the radius in one world than in
the other: a difference that the features can express, and so as large as the proofs allow. The
rollout has the same law in both worlds. Where people are, everybody lives alike but for one, who is
paid far more than anybody could be, or far less.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

from privrl.audit.attacks import evidence
from privrl.audit.auditor import Target
from privrl.audit.catalogue import add_target, record_calls, target
from privrl.audit.targets.whole_runs import BUDGET, RUNS, Watch, run_target, watch_nothing
from privrl.control import noised_q, reward_releases
from privrl.control.functional_q import FunctionalQ
from privrl.control.heads import Network
from privrl.control.logged_q import LoggedQ
from privrl.control.noised_q import Descent, NoisedQPlan
from privrl.control.prospect_q import ProspectQ
from privrl.control.reward_basis import horizon_weight
from privrl.control.update_rules import Data
from privrl.core.types import Array
from privrl.data import Fourier, Trajectories
from privrl.envs import TabularMDP

RADIUS = 0.2


def _ring(reward: float, num_actions: int = 2) -> TabularMDP:
    """Three rooms in a ring, forth and back; what arriving pays is the same in all of them."""
    moves = [np.roll(np.eye(3), way, axis=1) for way in (1, -1)][:num_actions]
    return TabularMDP.from_dense(
        np.stack(moves, axis=1), np.full((3, num_actions), reward), step_limit=5
    )


Worlds = Callable[[Data], tuple[Data, Data]]
"""From the transitions of a run to what they would be in either world."""


@partial(jax.jit, static_argnums=0)
def _exact_updates(plan: NoisedQPlan, data: Data, states: list[noised_q.NoisedQState]) -> Any:
    """What updates would be without noise, from each of some states."""
    exact = plan.rule.exact_update
    return [exact(data, state.parameters, state.target, state.done) for state in states]


@contextmanager
def _record_updates(worlds: Worlds) -> Iterator[list[Array]]:
    """Every iterate of a run that goes update by update, and what an attacker makes of it."""
    advance, seen = noised_q.advance, list[Array]()

    def one_by_one(plan: NoisedQPlan, data: Data, state: Any, sigma: Any, updates: int) -> Any:
        states = [state]
        for _ in range(updates):
            states.append(advance(plan, data, states[-1], sigma, 1))
        known = [
            np.asarray(_exact_updates(plan, own, states[:-1]), np.float64) for own in worlds(data)
        ]
        parameters = np.stack([np.asarray(state.parameters) for state in states])
        sums = np.diff(parameters, axis=0) * (plan.divisor / plan.step)
        seen.extend([parameters[1:], *evidence(sums, *known)])
        return states[-1]

    one_by_one.trace = advance.trace  # type: ignore[attr-defined] # compiled before the payment
    with patch.object(noised_q, "advance", one_by_one):
        yield seen


def _evaluation_evidence(
    agent: FunctionalQ, given: tuple[Any, ...], found: tuple[Array, float]
) -> Array:
    """One evaluation, whose exact coefficients are zero in the first world, and its evidence."""
    (mechanism, sums, _), (coefficients, _) = given, found
    each = np.full_like(sums, RADIUS * horizon_weight(agent.gamma, agent.horizon))
    shift = np.asarray(mechanism.coefficients(each))
    return np.concatenate(evidence(coefficients[None], 0.0 * shift[None], shift[None])[::2], None)


def _secret_rewards(
    name: str,
    runs: int = RUNS,
    *,
    kind: type[FunctionalQ] = FunctionalQ,
    paid: tuple[float, float] = (0.0, RADIUS),
    num_actions: int = 2,
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
    rings = [_ring(reward, num_actions) for reward in paid]

    def worlds(data: Data) -> tuple[Data, Data]:
        first, second = (data._replace(reward=0.0 * data.reward + reward) for reward in paid)
        return first, second

    watch: dict[str, Watch] = {
        "weights": lambda: _record_updates(worlds),
        "updates": lambda: _record_updates(worlds),
        "evaluations": partial(
            record_calls, reward_releases, "noisy_coefficients", _evaluation_evidence
        ),
    }
    return run_target(
        name,
        lambda world: agent.learn(rings[world]),
        runs,
        watch=watch.get(agent.release, watch_nothing),
    )


# One release of a reward model.
add_target("functional-q", _secret_rewards)
# Each distinct reward noised.
add_target("functional-q-rewards", _secret_rewards, release="rewards")
# Policy iteration, in which each rollout follows what was released before.
_EVALUATIONS: dict[str, Any] = {"release": "evaluations", "evaluations": 2, "horizon": 2}
add_target("functional-q-evaluations", _secret_rewards, **_EVALUATIONS)
# Noise on the weights; the step is small, and all that is released is their mean.
add_target(
    "functional-q-weights",
    _secret_rewards,
    release="weights",
    descent=Descent(updates=8, step=0.1, average=0.0),
)
# A network, whose updates are scaled by how steep it is. There is one action: those of two share
# few weights, and the secret would move each by half.
add_target(
    "functional-q-updates",
    _secret_rewards,
    2 * RUNS,
    num_actions=1,
    release="updates",
    planner="network",
    network=Network((2,)),
    descent=Descent(updates=4, step=0.05, batch=30, slope=1.0, average=0.0),
)
# A network, whose updates are clipped: DP-SGD for a secret reward.
add_target(
    "functional-q-clipped",
    _secret_rewards,
    paid=(-50.0, 50.0),
    reward_radius=100.0,
    reward_range=(-200.0, 200.0),
    release="updates",
    planner="network",
    network=Network((2,)),
    descent=Descent(updates=2, step=0.001, batch=30, clip=0.01, average=0.0),
)
# One release of a reward model, planned on for somebody who weighs risks; enough rounds that values
# settle, which a warning would tell otherwise.
add_target("prospect-q", _secret_rewards, kind=ProspectQ, samples=3, rounds=300)
# Updates towards CPT values: any two reward functions, however far apart.
add_target(
    "prospect-q-updates",
    _secret_rewards,
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
    people = [_people(100.0), _people(-50.0)]

    def worlds(data: Data) -> tuple[Data, Data]:
        # The last person's rows are the last that are anybody's; rewards are in units of 100.
        theirs = np.asarray(data.person) == _PEOPLE - 1
        first, second = (
            data._replace(reward=jax.numpy.where(theirs, paid, data.reward)) for paid in (1.0, -0.5)
        )
        return first, second

    return run_target(
        "logged-q",
        lambda world: agent.fit(people[world]),
        note="whole runs of fit",
        watch=lambda: _record_updates(worlds),
    )
