"""Whole fits of estimators as targets: what they give away, and made-up people to fit them to."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privrl.audit.auditor import Target
from privrl.audit.catalogue import record_calls
from privrl.audit.targets.whole_runs import RUNS, Watch, run_target, watch_nothing
from privrl.core.types import Array
from privrl.data import Trajectories
from privrl.evaluation.result import Result
from privrl.evaluation.selection import Choice
from privrl.privacy.ledger import LargeDelta

RANGE = (-1.0, 1.0)
RARE_PROBABILITY = 1e-9
"""A behaviour probability that makes ratios far larger than any cap."""


def watch_noised_sum(
    mechanism: object, fit: Callable[[Any], Result], neighbours: Sequence[Any]
) -> Watch:
    """The one noised sum that a fit releases, and how far it is on the way between the worlds."""
    kind = type(mechanism)
    exact = []
    for data in neighbours:
        with record_calls(kind, "release", lambda plan, given, found: given[0]) as seen:
            fit(data)
        exact.append(np.ravel(seen[0]))

    @contextmanager
    def watch() -> Iterator[list[Array]]:
        with record_calls(kind, "release", lambda plan, given, found: found[0]) as seen:
            yield seen
            seen.append((np.ravel(seen[0]) - exact[0]) @ (exact[1] - exact[0])[:, None])

    return watch


def fit_target(
    name: str,
    fit: Callable[[Any], Result | Choice],
    neighbours: Sequence[Any],
    *,
    runs: int = RUNS,
    watch: Watch = watch_nothing,
    point: bool = False,
) -> Target:
    """Whole fits against their certificate, or against its epsilon and delta only.

    Of a few made-up people a delta may be what it must not be of real ones: nobody is warned.
    """

    def fit_quietly(world: int) -> Result | Choice:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LargeDelta)
            return fit(neighbours[world])

    return run_target(name, fit_quietly, runs, "whole fits", watch, point=point)


def cohort(
    states: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    *,
    num_states: int,
    length: int = 1,
    behavior: ArrayLike | None = None,
    users: ArrayLike | None = None,
) -> Trajectories:
    """Trajectories of one length, all of which terminate."""
    count = np.size(states) // length
    return Trajectories.from_arrays(
        np.asarray(states),
        np.asarray(actions),
        np.asarray(rewards, dtype=np.float64),
        lengths=[length] * count,
        terminated=[True] * count,
        behavior_probs=behavior,
        users=users,
        num_states=num_states,
        num_actions=2,
    )
