"""Whole fits of estimators as targets: what they give away, and made-up people to fit them to."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privrl.audit.attacks import Outputs, flatten_json
from privrl.audit.auditor import Target
from privrl.audit.catalogue import record_calls
from privrl.core.types import Array
from privrl.data import Trajectories
from privrl.evaluation.result import Result
from privrl.evaluation.selection import Choice
from privrl.privacy.events import ApproxDP
from privrl.privacy.ledger import LargeDelta
from privrl.privacy.noise import Source
from privrl.privacy.promise import Budget

BUDGET = Budget(10.0, 1e-5)
RUNS = 1600
"""So many runs in each world show noise of 0.8 of what `BUDGET` asks for."""

RANGE = (-1.0, 1.0)
FAR = (-50.0, 100.0)
"""Rewards far outside their range, in either world; not symmetric, lest anything unclipped be."""

RARE_PROBABILITY = 1e-9
"""A behaviour probability that makes ratios far larger than any cap."""


def result_numbers(result: Result | Choice) -> Array:
    """Every number in a result, as it would be saved, and a number for every word."""
    if isinstance(result, Choice):
        return flatten_json([result.index, result.name, result.certificate.to_dict()])
    return flatten_json(result.to_dict())


Watch = Callable[[], Any]
"""A block that lists what is given away while it lasts, besides the result."""


@contextmanager
def watch_nothing() -> Iterator[list[Array]]:
    yield []


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
    runs: int,
    watch: Watch = watch_nothing,
    point: bool = False,
) -> Target:
    """Whole fits against their certificate, or against its epsilon and delta only.

    Of a few made-up people a delta may be what it must not be of real ones: nobody is warned.
    """

    def fit_quietly(neighbour: Any) -> Result | Choice:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LargeDelta)
            return fit(neighbour)

    certificate = fit_quietly(neighbours[0]).certificate
    delta, relation = certificate.delta, certificate.relation
    events, note = certificate.events, "whole fits"
    if point:
        events = (ApproxDP(certificate.epsilon, delta, relation=relation),)
        note = "whole fits, held against one point of the curve"

    def once(world: int) -> Array:
        with watch() as seen:
            result = fit_quietly(neighbours[world])
        return np.concatenate([result_numbers(result), *map(np.ravel, seen)])

    def draw(world: int, count: int, source: Source) -> Outputs:
        return [once(world) for _ in range(count)]

    return Target(name, draw, events, relation, delta, runs, note=note)


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
