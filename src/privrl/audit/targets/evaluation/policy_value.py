"""Values of policies, and the choice among policies, under attack."""

from typing import Any

import numpy as np

from privrl.audit.auditor import Target
from privrl.audit.catalogue import add_target, target
from privrl.audit.targets.evaluation.fits import RANGE, cohort, fit_target, watch_noised_sum
from privrl.audit.targets.whole_runs import BUDGET, FAR, RUNS
from privrl.data import Tabular, Trajectories
from privrl.evaluation.private_value import PrivateValue
from privrl.evaluation.result import Result
from privrl.evaluation.selection import choose
from privrl.privacy.promise import Budget, Unit


def _stays(world: int, each: int = 1) -> Trajectories:
    """A hundred people with `each` stays of two steps: enough that no figure is cut off by chance.

    The last person's stays have ratios far beyond the cap, and the highest return or the lowest: no
    two contributions are further apart.
    """
    people = 100
    stay = np.arange(people * each)
    actions = np.stack([stay % 2, stay // 2 % 2], axis=1)
    rewards = np.repeat(np.where(stay // 4 % 2, -0.5, 0.5), 2).reshape(-1, 2)
    actions[-each:], rewards[-each:] = 1, FAR[world]
    behavior = np.full(actions.shape, 0.5)
    behavior[-each:] = 0.01
    return cohort(
        np.tile([0, 1], stay.size),
        actions.ravel(),
        rewards.ravel(),
        num_states=2,
        length=2,
        behavior=behavior.ravel(),
        users=None if each == 1 else np.repeat(np.arange(people), each),
    )


_POLICY = Tabular(np.array([[0.1, 0.9]] * 2))


def _value(budget: Budget, **more: Any) -> PrivateValue:
    return PrivateValue(budget, weight_cap=3.24, horizon=2, reward_range=RANGE, **more)


def _private_value(name: str, each: int) -> Target:
    judge = _value(BUDGET)
    neighbours = [_stays(world, each) for world in (0, 1)]

    def fit(data: Trajectories) -> Result:
        return judge.fit(data, _POLICY)

    watch = watch_noised_sum(judge.mechanism, fit, neighbours)
    # Twice as many: half of them decide between attacks on dozens of figures beside the sums.
    return fit_target(name, fit, neighbours, runs=2 * RUNS, watch=watch)


add_target("private-value", _private_value, 1)
# All of one person's three trajectories are replaced.
add_target("private-value-users", _private_value, 3)


@target
def private_value_grid() -> Target:
    """Discrete noise in several dimensions is accounted for by its concentration only.

    Such a curve lies far above the truth where few runs can see it: noise of 0.8 would take 200,000
    fits, each of which draws exactly, and slowly. Noise of 0.3 is seen.
    """
    judge = _value(Budget(4.0, 0.01), grid=True)
    return fit_target(
        "private-value-grid",
        lambda data: judge.fit(data, _POLICY),
        [_stays(world) for world in (0, 1)],
        runs=600,
    )


@target
def private_choice() -> Target:
    """The others prefer the first candidate by just as much as one person's opinion can weigh."""
    tables = [[[1.0, 0.0], [FAR[1], FAR[0]]], [[1.0, 0.0], [FAR[0], FAR[1]]]]
    return fit_target(
        "private-choice",
        lambda scores: choose(scores, low=0.0, high=1.0, epsilon=2.0, unit=Unit.USER),
        tables,
        runs=4000,
    )
