"""How sure a handful of runs makes us: interquartile means, bootstrap intervals, comparisons.

Scores come by task, each with a score for every run (seed). As Agarwal et al. (2021) advise:

- The *interquartile mean* of n scores is the mean without the floor(n / 4) lowest and as many of
  the highest: it ignores single lucky or broken runs, and wastes less than the median. Over tasks,
  the scores of all of them are pooled.
- A *stratified bootstrap* draws, for each task by itself, as many runs as it has, with replacement,
  and computes the figure anew; the interval holds the middle of these figures (percentiles). What
  it says is about the seeds: the tasks are taken as given. With few runs it is too narrow, as any
  bootstrap is: for normal scores, the 95 % interval of the interquartile mean held the true one in
  91 % of 4,000 simulations with 5 runs, 94 % with 10, 95 % with 20 and with 50.
- The *probability of improvement* of X over Y is the probability that a run of X beats one of Y,
  P(X > Y) + P(X = Y) / 2, averaged over tasks.

Everything is the same for the same `seed`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats

Scores = ArrayLike | Mapping[str, ArrayLike]
"""One task's, or those of each task by its name."""

# Numbers drawn at a time, so that memory stays bounded.
_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Estimate:
    """A figure, and the interval that the runs leave for it."""

    value: float
    low: float
    high: float
    level: float

    def to_dict(self) -> dict[str, float]:
        """The JSON form."""
        return dict(vars(self))


def interquartile_mean(scores: ArrayLike) -> Floats:
    """The mean along the last axis without its lowest and highest quarter."""
    ordered = np.sort(np.asarray(scores, dtype=np.float64), axis=-1)
    count = ordered.shape[-1]
    cut = count // 4
    mean: Floats = np.mean(ordered[..., cut : count - cut], axis=-1)
    return mean


def stratified_interval(
    scores: Scores,
    statistic: Callable[[Floats], Floats] = interquartile_mean,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """`statistic` of the scores of all tasks together, with a stratified bootstrap interval.

    `statistic` works along the last axis.
    """
    strata = _strata("scores", scores)

    def figure(drawn: Sequence[Floats]) -> Floats:
        return statistic(np.concatenate(drawn, axis=-1))

    return _bootstrap_interval(strata, figure, level, resamples, seed)


def probability_of_improvement(
    scores: Scores,
    others: Scores,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """How likely a run of the first beats one of the second, with a bootstrap interval.

    The runs of both are drawn anew, independently.
    """
    first, second = _strata("scores", scores), _strata("others", others)
    if isinstance(scores, Mapping) != isinstance(others, Mapping) or (
        isinstance(scores, Mapping) and isinstance(others, Mapping) and set(scores) != set(others)
    ):
        raise InputError("Both must have scores of the same tasks, by the same names.")
    if isinstance(scores, Mapping) and isinstance(others, Mapping):
        second = _strata("others", {name: others[name] for name in scores})
    tasks = len(first)

    def figure(drawn: Sequence[Floats]) -> Floats:
        probs = [
            (np.sign(drawn[k][..., :, None] - drawn[tasks + k][..., None, :]) + 1.0) / 2.0
            for k in range(tasks)
        ]
        mean: Floats = np.mean([np.mean(one, axis=(-2, -1)) for one in probs], axis=0)
        return mean

    return _bootstrap_interval([*first, *second], figure, level, resamples, seed)


def _strata(name: str, scores: Scores) -> list[Floats]:
    listed: list[Any] = list(scores.values()) if isinstance(scores, Mapping) else [scores]
    found = [np.asarray(one, dtype=np.float64) for one in listed]
    if not found or any(one.ndim != 1 or one.size == 0 for one in found):
        raise InputError(
            "must be numbers, a run each, for one task or for each by name.", field=name
        )
    if not all(np.all(np.isfinite(one)) for one in found):
        raise InputError(
            "must be finite: leave out runs that diverged, and count them.", field=name
        )
    return found


def _bootstrap_interval(
    strata: Sequence[Floats],
    figure: Callable[[Sequence[Floats]], Floats],
    level: float,
    resamples: int,
    seed: int,
) -> Estimate:
    checks.confidence(level)
    checks.count("resamples", resamples)
    figures = resample(strata, figure, resamples, np.random.default_rng(seed))
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(figures, [tail, 1.0 - tail])
    return Estimate(float(figure(strata)), float(low), float(high), level)


def resample(
    strata: Sequence[Floats],
    figure: Callable[[Sequence[Floats]], Floats],
    resamples: int,
    generator: np.random.Generator,
) -> Floats:
    """The figure of each of so many data sets, the runs of each stratum drawn with replacement."""
    width = sum(one.size for one in strata)
    parts, left = [], resamples
    while left:
        count = min(left, max(1, _AT_ONCE // width**2))
        drawn = [one[generator.integers(0, one.size, (count, one.size))] for one in strata]
        parts.append(figure(drawn))
        left -= count
    return np.concatenate(parts)
