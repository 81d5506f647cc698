"""Tests of attack scores against a threshold: which is best, and its counts on fresh runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privrl.audit.bounds import Counts
from privrl.core.types import Array

_CURVE_POINTS = 41


@dataclass(frozen=True)
class ThresholdTest:
    """An attack, its threshold, and which world it names: the second at or above, else below."""

    attack: int
    threshold: float
    second: bool

    def counts(self, scores: list[list[Array]], place: int) -> Counts:
        """What this pick makes of scores in the two worlds."""
        above = [int(np.count_nonzero(world[place] >= self.threshold)) for world in scores]
        sizes = [len(world[place]) for world in scores]
        if self.second:
            return Counts(above[1], sizes[1], above[0], sizes[0])
        return Counts(sizes[0] - above[0], sizes[0], sizes[1] - above[1], sizes[1])


Objective = Callable[..., Array]
"""What counts of hits and of false alarms in so many runs are worth."""


def choose_tests(scores: list[list[Array]], objectives: Sequence[Objective]) -> list[ThresholdTest]:
    """The attack and threshold worth most, by each objective, on the runs set aside for this."""
    best = [(-math.inf, -math.inf)] * len(objectives)
    found = [ThresholdTest(0, math.inf, True)] * len(objectives)
    for i, (first, second) in enumerate(zip(*scores, strict=True)):
        thresholds = _thresholds(first, second)
        runs = len(first)
        above = [runs - np.searchsorted(np.sort(s), thresholds, "left") for s in (first, second)]
        for names_second, hits, false_alarms in (
            (True, above[1], above[0]),
            (False, runs - above[0], runs - above[1]),
        ):
            # Where nothing is worth anything, the largest gap between the rates.
            gaps = (hits - false_alarms) / runs
            for k, worth in enumerate(objectives):
                values = worth(hits, false_alarms, runs)
                top = int(np.lexsort((gaps, values))[-1])
                worthy = (float(values[top]), float(gaps[top]))
                if worthy > best[k]:
                    best[k] = worthy
                    found[k] = ThresholdTest(i, float(thresholds[top]), names_second)
    return found


def _thresholds(first: Array, second: Array) -> Array:
    """Scores to cut at: everywhere, and densely in both tails, where epsilon is to be seen."""
    pooled = np.sort(np.concatenate([first, second]))
    size = len(pooled)
    tail = np.unique(np.geomspace(1, size, 80).astype(int))
    middle = np.linspace(0, size - 1, 81).astype(int)
    return np.unique(pooled[np.unique(np.concatenate([tail - 1, size - tail, middle]))])


def roc_curve(scores: list[Array]) -> tuple[tuple[float, float], ...]:
    """Rates of false alarms and of hits at many thresholds, for the scores in the two worlds."""
    first, second = (np.sort(part) for part in scores)
    cuts = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0, 1, _CURVE_POINTS)))
    rates = [1.0 - np.searchsorted(part, cuts, "left") / len(part) for part in (first, second)]
    points = [(0.0, 0.0), *zip(*(r[::-1].tolist() for r in rates), strict=True)]
    return tuple(dict.fromkeys(points))
