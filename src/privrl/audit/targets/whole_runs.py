"""Whole runs as targets: what `fit` and `learn` give away, against the certificate they issue."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from privrl.audit.attacks import Outputs, flatten_json
from privrl.audit.auditor import Target
from privrl.core.types import Array
from privrl.evaluation.selection import Choice
from privrl.privacy.events import ApproxDP
from privrl.privacy.noise import Source
from privrl.privacy.promise import Budget

BUDGET = Budget(10.0, 1e-5)
RUNS = 1600
"""So many runs in each world show noise of 0.8 of what `BUDGET` asks for."""

FAR = (-50.0, 100.0)
"""What one person is paid in either world; not symmetric, lest anything unclipped be."""

Watch = Callable[[], Any]
"""A block that lists what is given away while it lasts, besides the result."""


@contextmanager
def watch_nothing() -> Iterator[list[Array]]:
    yield []


def result_numbers(result: Any) -> Array:
    """Every number in a result, as it would be saved, and a number for every word."""
    if isinstance(result, Choice):
        return flatten_json([result.index, result.name, result.certificate.to_dict()])
    return flatten_json(result.to_dict())


def run_target(
    name: str,
    once: Callable[[int], Any],
    runs: int = RUNS,
    note: str = "whole runs of learn",
    watch: Watch = watch_nothing,
    *,
    point: bool = False,
) -> Target:
    """Runs `once(world)` against their certificate, or against its epsilon and delta only."""
    certificate = once(0).certificate
    delta, relation, events = certificate.delta, certificate.relation, certificate.events
    if point:
        events = (ApproxDP(certificate.epsilon, delta, relation=relation),)
        note += ", held against one point of the curve"

    def observe(world: int) -> Array:
        with watch() as seen:
            result = once(world)
        return np.concatenate([result_numbers(result), *map(np.ravel, seen)])

    def draw(world: int, count: int, source: Source) -> Outputs:
        return [observe(world) for _ in range(count)]

    return Target(name, draw, events, relation, delta, runs, note=note)
