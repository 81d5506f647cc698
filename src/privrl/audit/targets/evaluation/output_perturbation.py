"""Output perturbation under attack: DP-LSW and DP-LSL (Balle et al. 2016)."""

from collections.abc import Sequence

import numpy as np

from privrl.audit.attacks import Outputs
from privrl.audit.auditor import Target
from privrl.audit.catalogue import record_calls, target
from privrl.audit.targets.evaluation.fits import RANGE, cohort, fit_target
from privrl.audit.targets.whole_runs import FAR
from privrl.core.types import Array
from privrl.data import FunctionFeatures, OneHot, Trajectories
from privrl.evaluation.dplsl import DPLSL
from privrl.evaluation.dplsw import DPLSW
from privrl.privacy.mechanisms.smooth import SmoothMechanism
from privrl.privacy.noise import Source
from privrl.privacy.promise import Budget, Relation

POINT = Budget(2.0, 0.3)
"""One point of a curve, where a few thousand runs see the same."""


def _visits(states: Sequence[int], rewards: Sequence[float], num_states: int) -> Trajectories:
    return cohort(states, np.zeros(len(states), dtype=np.int64), rewards, num_states=num_states)


def _only_visitor() -> list[Trajectories]:
    """Nobody but the last person visits the state that counts."""
    return [_visits([1, 1, 0], [0.0, 0.0, reward], 2) for reward in FAR]


@target
def dplsw() -> Target:
    judge = DPLSW(OneHot(2), RANGE, POINT, gamma=0.0, state_weights=[1.0, 0.0])
    return fit_target("dplsw", judge.fit, _only_visitor(), runs=5000)


@target
def dplsw_visits() -> Target:
    """The last person visits the state that counts, beside another, or does not.

    This moves the local sensitivity by a factor of two, and with it the noise on all features, were
    it not smoothed.
    """
    judge = DPLSW(OneHot(8), RANGE, POINT, gamma=0.0, state_weights=[1.0] + [0.0] * 7)
    neighbours = [_visits([1, 0, last], [0.0, *FAR], 8) for last in (0, 1)]
    return fit_target("dplsw-visits", judge.fit, neighbours, runs=5000)


@target
def dplsw_smoothing() -> Target:
    """The same in one dimension, where smoothing half as much breaks the promise, if only just.

    Value and smooth bound as one fit in each world makes them, noised many times.
    """
    first = FunctionFeatures(lambda states: np.equal(states, 0)[:, None] * 1.0, 1, 2.0)
    judge = DPLSW(first, RANGE, Budget(4.0, 0.3), gamma=0.0, state_weights=[1.0, 0.0], num_states=2)
    given: list[Array] = []
    for last in (1, 0):
        with record_calls(
            SmoothMechanism, "release", lambda plan, had, made: [*had[0], had[1]]
        ) as seen:
            judge.fit(_visits([0, last], [FAR[1], FAR[0]], 2))
        given += seen
    plan = judge.mechanism()

    def draw(world: int, runs: int, source: Source) -> Outputs:
        value, bound = given[world][:-1], float(given[world][-1])
        return np.array([plan.release(value, bound, source)[0] for _ in range(runs)])

    name = "dplsw-smoothing"
    return Target(name, draw, (plan.event,), Relation.REPLACE_ONE, 0.3, runs=160_000)


@target
def dplsl() -> Target:
    """A ridge so large that the bound on the local sensitivity is all but reached."""
    judge = DPLSL(OneHot(2), RANGE, POINT, gamma=0.0, state_weights=[1.0, 0.0], ridge=1000.0)
    return fit_target("dplsl", judge.fit, _only_visitor(), runs=5000)
