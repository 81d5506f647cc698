"""Value functions under attack: private LSTD and private GTD."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from privrl.audit.attacks import evidence
from privrl.audit.auditor import Target
from privrl.audit.catalogue import add_target, record_calls, target
from privrl.audit.targets.evaluation.fits import (
    RANGE,
    RARE_PROBABILITY,
    cohort,
    fit_target,
    watch_noised_sum,
)
from privrl.audit.targets.whole_runs import BUDGET, FAR, RUNS
from privrl.core.types import Array
from privrl.data import OneHot, Tabular, Trajectories
from privrl.evaluation.bellman_error import unit_moments
from privrl.evaluation.gtd_iterations import GTDRun, clipped_sum, contributions
from privrl.evaluation.private_gtd import PrivateGTD
from privrl.evaluation.private_lstd import PrivateLSTD
from privrl.privacy.promise import Budget


def _cohort(world: int, people: int, behavior: float | None = None) -> Trajectories:
    """Everybody goes from the first state to the second; only the last person is rewarded.

    Or punished. With `behavior`, everybody's actions are as likely as the judged policy has them,
    but for the last person's, which were likely to that degree only.
    """
    rewards = np.zeros(2 * people)
    rewards[-2:] = FAR[world]
    probs = None
    if behavior is not None:
        probs = np.full(2 * people, 0.5)
        probs[-2:] = behavior
    return cohort(
        np.tile([0, 1], people),
        np.zeros(2 * people, dtype=np.int64),
        rewards,
        num_states=2,
        length=2,
        behavior=probs,
    )


@target
def private_lstd() -> Target:
    judge = PrivateLSTD(OneHot(2), RANGE, BUDGET, gamma=0.9, clip=0.1, matrix_weight=0.02)
    neighbours = [_cohort(world, 200) for world in (0, 1)]
    watch = watch_noised_sum(judge.mechanism, judge.fit, neighbours)
    return fit_target("private-lstd", judge.fit, neighbours, watch=watch)


def _private_gtd(
    name: str,
    people: Callable[[int], Trajectories],
    budget: Budget = BUDGET,
    policy: Tabular | None = None,
    runs: int = RUNS,
    **more: Any,
) -> Target:
    """Whole fits in which every iterate is seen, and what was added to each."""
    neighbours = [people(world) for world in (0, 1)]
    judge = PrivateGTD(
        OneHot(2), RANGE, budget, **{"gamma": 0.9, "clip": 0.1, "average": 0.0, **more}
    )
    form = judge.form_for(policy is not None)
    given: dict[str, Any] = {
        "cap": judge.weight_cap,
        "reward_range": judge.reward_range,
        "change": judge.change,
    }
    units = [
        unit_moments(data, policy, judge.features, judge.gamma, dual=True, **given)
        for data in neighbours
    ]
    count = units[0].count
    plan = judge.plan(form, count)

    @contextmanager
    def watch() -> Iterator[list[Array]]:
        # Every iterate, behind the first one.
        with record_calls(GTDRun, "advance", lambda run, given, found: run.state) as states:
            yield states
            found = np.stack([np.zeros_like(states[0]), *states])
            sums = np.diff(found, axis=0) * ((judge.batch_units or plan.rate * count) / plan.step)
            states.append(sums)
            if judge.rate < 1.0:
                return
            known = [
                [
                    clipped_sum(contributions(own, state, form), plan.bound(k))
                    for k, state in enumerate(found[:-1])
                ]
                for own in units
            ]
            if judge.batch_units is None:
                states.extend(evidence(sums, *known))
            else:
                stds = plan.noise * np.array([plan.bound(k) for k in range(plan.iterations)])
                logs = [_log_likelihood(sums, np.stack(one), stds) for one in known]
                states.append(np.array([logs[1] - logs[0]]))

    return fit_target(
        name,
        lambda data: judge.fit(data, policy),
        neighbours,
        runs=runs,
        watch=watch,
        point=judge.rate < 1.0,
    )


def _log_likelihood(sums: Array, each: Array, stds: Array) -> float:
    """log of how likely `sums` are, up to a constant, if any one row of `each` is in them."""
    rows = (np.sum(sums * each, axis=1) - np.sum(each * each, axis=1) / 2.0) / stds**2
    return float(np.logaddexp.reduce(rows))


# What anybody contributes depends on the iterate, if only a little: enough for differences.
add_target("private-gtd", _private_gtd, partial(_cohort, people=5), iterations=4, step=0.5)
# Held against one point: the whole curve of sampled noise takes longer than the audit. Somebody is
# seldom drawn, and twenty times over; who is drawn every time if at all is seen.
add_target(
    "private-gtd-sampled",
    _private_gtd,
    partial(_cohort, people=20),
    Budget(1.0, 0.0055),
    runs=3200,
    iterations=20,
    rate=0.05,
    step=0.001,
)
# The last person is in either of two steps; nobody else contributes anything to speak of.
_ONE_PASS: dict[str, Any] = {"iterations": 2, "batch_units": 3, "step": 0.001}
add_target("private-gtd-one-pass", _private_gtd, partial(_cohort, people=6), **_ONE_PASS)
# Twenty steps and a small budget, kept only if nobody knows the last person's step.
add_target(
    "private-gtd-secret-steps",
    _private_gtd,
    partial(_cohort, people=40),
    Budget(2.0, 0.01),
    iterations=20,
    batch_units=2,
    step=0.001,
)
# Off-policy, with ratios far beyond any cap.
add_target(
    "private-gtd-primal-dual",
    _private_gtd,
    partial(_cohort, people=100, behavior=RARE_PROBABILITY),
    policy=Tabular.uniform(2, 2),
    weight_cap=1000.0,
    form="primal-dual",
    iterations=2,
    step=20.0,
)


def _huge_ratios(world: int) -> Trajectories:
    """Ratios so large that what the person adds is infinity less infinity, or as likely as not."""
    probs = np.full(10, 0.5)
    probs[-2:] = 2e-309 if world else 0.5
    zeros = np.zeros(10, np.int64)
    return cohort(zeros, zeros, np.ones(10), num_states=2, length=2, behavior=probs)


add_target(
    "private-gtd-not-a-number",
    _private_gtd,
    _huge_ratios,
    policy=Tabular.uniform(2, 2),
    runs=400,
    weight_cap=1.7e308,
    iterations=3,
    step=2000.0,
)
