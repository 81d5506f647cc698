"""From counts to a lower bound under epsilon, at a stated confidence.

An attack looks at what was released and says "first world" or "second world". If the release is
(epsilon, delta)-DP, then for any attack and in both directions

    P(hit) <= e^epsilon P(false alarm) + delta,

where a *hit* is the attack naming a world that is the true one, and a *false alarm* its naming it
when the other is. So counts of hits and false alarms in independent runs bound epsilon from below
(Jagielski, Ullman, Oprea 2020). All intervals here are Clopper and Pearson's: exact for every
number of runs. Nothing is assumed about the mechanism, except by `gaussian_mu`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats


@dataclass(frozen=True)
class Counts:
    """How an attack fixed beforehand fared: hits in one world, false alarms in the other."""

    hits: int
    hit_runs: int
    false_alarms: int
    false_alarm_runs: int


def at_least(successes: Any, trials: int, error: float) -> Any:
    """A number the success rate is not below, but with probability `error`."""
    k = np.asarray(successes, dtype=np.float64)
    return np.where(k > 0, special.betaincinv(np.maximum(k, 1), trials - k + 1, error), 0.0)


def at_most(successes: Any, trials: int, error: float) -> Any:
    """A number the success rate is not above, but with probability `error`."""
    k = np.asarray(successes, dtype=np.float64)
    upper = special.betaincinv(k + 1, np.maximum(trials - k, 1), 1.0 - error)
    return np.where(k < trials, upper, 1.0)


def rates(counts: Counts, confidence: float) -> tuple[float, float]:
    """A lower bound on the hit rate and an upper one on that of false alarms, jointly confident."""
    error = (1.0 - confidence) / 2.0
    return (
        float(at_least(counts.hits, counts.hit_runs, error)),
        float(at_most(counts.false_alarms, counts.false_alarm_runs, error)),
    )


def epsilon(hit_rate: Any, false_alarm_rate: Any, delta: float) -> Any:
    """The least epsilon of any (epsilon, delta)-DP release with such rates, or 0."""
    above = np.maximum(np.asarray(hit_rate) - delta, 0.0)
    with np.errstate(divide="ignore"):
        found = np.log(above) - np.log(false_alarm_rate)
    return np.maximum(found, 0.0)


def gaussian_mu(hit_rate: Any, false_alarm_rate: Any) -> Any:
    """The least mu of any mu-GDP release with such rates, or 0."""
    found = special.ndtri(hit_rate) - special.ndtri(false_alarm_rate)
    return np.maximum(np.nan_to_num(found, nan=0.0, neginf=0.0), 0.0)


def epsilon_from_counts(counts: Counts, delta: float, confidence: float) -> float:
    """The lower bound on epsilon at `delta` that these counts support."""
    return float(epsilon(*rates(counts, confidence), delta))


def most_detectable(runs: int, delta: float, confidence: float) -> float:
    """The largest bound that `runs` runs in each world can give: every guess right."""
    return epsilon_from_counts(Counts(runs, runs, 0, runs), delta, confidence)


# --- many guesses about one run -------------------------------------------------------------------


def one_run_p_value(units: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """How likely so many correct guesses are if the release is (epsilon, delta)-DP.

    Each of `units` units flips a fair coin that decides which of two neighbouring contributions it
    makes; an attack that sees only what was released guesses `guesses` of the coins, and `correct`
    are right (Steinke, Nasr, Jagielski 2023). For delta 0 the number of correct guesses is
    stochastically dominated by Binomial(guesses, e^epsilon / (1 + e^epsilon)): given the release
    and the coins before it, each coin still is at most that predictable. For delta > 0 their
    theorem adds 2 units delta times the largest average of the binomial's probabilities over the i
    values just below `correct`. Several independent runs with coins of their own are one release
    about all their units together.
    """
    q = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(stats.binom.sf(correct - 1, guesses, q))
    if delta == 0.0 or correct == 0:
        return min(tail, 1.0)
    below = stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, q)
    average = np.cumsum(below) / np.arange(1, correct + 1)
    return min(tail + 2.0 * units * delta * float(np.max(average)), 1.0)


def one_run_epsilon(
    units: int, guesses: int, correct: int, delta: float, confidence: float
) -> float:
    """The largest epsilon that so many correct guesses refute at `confidence`, or 0."""

    def refuted(epsilon: float) -> bool:
        p = one_run_p_value(units, guesses, correct, epsilon, delta)
        return p <= 1.0 - confidence

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high) and high < 64.0:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
