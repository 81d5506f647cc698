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


def clopper_pearson_lower(successes: Any, trials: int, error: float) -> Any:
    """A number the success rate is not below, but with probability `error`."""
    k = np.asarray(successes, dtype=np.float64)
    return np.where(k > 0, special.betaincinv(np.maximum(k, 1), trials - k + 1, error), 0.0)


def clopper_pearson_upper(successes: Any, trials: int, error: float) -> Any:
    """A number the success rate is not above, but with probability `error`."""
    k = np.asarray(successes, dtype=np.float64)
    upper = special.betaincinv(k + 1, np.maximum(trials - k, 1), 1.0 - error)
    return np.where(k < trials, upper, 1.0)


def rate_bounds(counts: Counts, confidence: float) -> tuple[float, float]:
    """A lower bound on the hit rate and an upper one on that of false alarms, jointly confident."""
    error = (1.0 - confidence) / 2.0
    return (
        float(clopper_pearson_lower(counts.hits, counts.hit_runs, error)),
        float(clopper_pearson_upper(counts.false_alarms, counts.false_alarm_runs, error)),
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
    return float(epsilon(*rate_bounds(counts, confidence), delta))


def max_detectable_epsilon(runs: int, delta: float, confidence: float) -> float:
    """The largest bound that `runs` runs in each world can give: every guess right."""
    return epsilon_from_counts(Counts(runs, runs, 0, runs), delta, confidence)


# --- one point of a promised curve ----------------------------------------------------------------

# How much of the error goes to where the rate of false alarms may lie.
_NUISANCE_ERROR = 1e-10


def excess_p_value(counts: Counts, ratio: float, delta: float) -> float:
    """How likely counts so far above hit = `ratio` alarm + `delta` are if that is never exceeded.

    An (epsilon, delta)-DP release has hit <= e^epsilon alarm + delta. What is looked at is the
    difference of the observed rates, hits - ratio false alarms; its distribution is exact, of two
    independent binomials. Larger hit rates only make it larger, so hit = ratio alarm + delta is
    the worst, and over the one unknown, alarm, the largest probability counts. Alarm is searched
    for where Clopper and Pearson put it, with an error of 1e-10 that is added (Berger and Boos
    1994), at 61 rates; 2 % are added for what lies between two of them.
    """
    seen = counts.hits / counts.hit_runs - ratio * counts.false_alarms / counts.false_alarm_runs
    if seen <= delta:
        return 1.0
    n, m = counts.hit_runs, counts.false_alarm_runs
    low = float(clopper_pearson_lower(counts.false_alarms, m, _NUISANCE_ERROR / 2.0))
    high = float(clopper_pearson_upper(counts.false_alarms, m, _NUISANCE_ERROR / 2.0))
    alarm = np.linspace(low, min(high, max((1.0 - delta) / ratio, low)), 61)[:, None]
    hit = np.minimum(1.0, ratio * alarm + delta)
    # All that is not negligible of the false alarms at any of these rates.
    ends = stats.binom.ppf(1e-12, m, low), stats.binom.isf(1e-12, m, high)
    y = np.arange(max(0.0, ends[0]), min(float(m), ends[1]) + 1.0)[None, :]
    needed = np.ceil(n * (seen + ratio * y / m) - 1e-9)
    tail = np.where(needed > n, 0.0, stats.binom.sf(needed - 1.0, n, hit))
    whole = np.sum(stats.binom.pmf(y, m, alarm) * tail, axis=1)
    return float(min(1.0, 1.02 * np.max(whole) + _NUISANCE_ERROR + 2e-12))


def excess_power(counts: Counts, ratio: float, delta: float, error: float) -> float:
    """About how often the test above rejects at level `error`, if the rates are as observed."""
    hit, alarm = counts.hits / counts.hit_runs, counts.false_alarms / counts.false_alarm_runs

    def variance(rate: float, runs: int) -> float:
        # None at all seen does not mean that there is none: three in `runs` are as likely as 5 %.
        return min(max(rate, 3.0 / runs), 1.0) * (1.0 - min(rate, 1.0 - 3.0 / runs)) / runs

    spread = math.sqrt(
        variance(hit, counts.hit_runs) + ratio**2 * variance(alarm, counts.false_alarm_runs)
    )
    above = (hit - ratio * alarm - delta) / spread
    return float(special.ndtr(above - special.ndtri(1.0 - error)))


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

    def is_refuted(epsilon: float) -> bool:
        p = one_run_p_value(units, guesses, correct, epsilon, delta)
        return p <= 1.0 - confidence

    if not is_refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while is_refuted(high) and high < 64.0:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low
