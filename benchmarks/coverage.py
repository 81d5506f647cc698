"""How often intervals hold the true value, and how wide they are.

A process of three states and three steps whose trajectories can all be listed, so that the true
values are known exactly. Each round draws people anew, and the private ones also noise. The rule,
fixed beforehand: coverage may fall below its nominal level by no more than what happens once in
10^6 rounds of that many (`allowed`); above it, the surplus is the price of a bound and is reported.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from privrl.data import OneHot
from privrl.evaluation.doubly_robust import DR, WDR
from privrl.evaluation.fqe import FQE
from privrl.evaluation.importance import IS, PDIS, WIS, WPDIS
from privrl.evaluation.lstd import LSTD, WISLSTD
from privrl.evaluation.private_value import PrivateValue
from privrl.privacy import Budget
from tests.evaluation import exact

PEOPLE = 2000
FEW = 500


def run(rounds: int = 1000, seed: int = 100) -> Iterator[dict[str, object]]:
    """One row for each interval and level."""
    for level in (0.9, 0.95):
        yield from _plain(rounds, level, seed)
        yield from _private(rounds, level, seed)


def _row(name: str, people: int, level: float, ends: Any, truth: float) -> dict[str, object]:
    low, high = np.array(ends).T
    hits = int(((low <= truth) & (truth <= high)).sum())
    rounds = len(low)
    return {
        "interval": name,
        "people": people,
        "level": level,
        "coverage": hits / rounds,
        "allowed": float(stats.binom.ppf(1e-6, rounds, level)) / rounds,
        "median_width": float(np.median(high - low)),
        "width_quartiles": [float(q) for q in np.quantile(high - low, [0.25, 0.75])],
        "hits": hits,
        "rounds": rounds,
    }


def _plain(rounds: int, level: float, seed: int) -> Iterator[dict[str, object]]:
    """Without privacy, with few people."""
    draws = np.random.default_rng(seed)
    gamma = exact.GAMMA
    q = FQE(gamma=gamma).action_values(exact.population(), exact.TARGET)
    endless = exact.mdp().start_value(exact.TARGET.table, gamma)
    ranges: dict[str, Any] = {"gamma": gamma, "level": level}
    top = 13.5 * 2.0 * (1 + gamma + gamma**2)
    judges: dict[str, tuple[Any, float]] = {
        "IS, student": (IS(**ranges), exact.value()),
        "PDIS, student": (PDIS(**ranges), exact.value()),
        "PDIS, bernstein": (
            PDIS(**ranges, interval="bernstein", bounds=(-top, top)),
            exact.value(),
        ),
        "WIS, delta": (WIS(**ranges), exact.value()),
        "WIS, fieller": (WIS(**ranges, interval="fieller"), exact.value()),
        "WIS, bootstrap": (WIS(**ranges, interval="bootstrap", draws=300), exact.value()),
        "WPDIS, delta": (WPDIS(**ranges), exact.value()),
        "DR, student": (DR(**ranges, q=q), exact.value()),
        "WDR, delta": (WDR(**ranges, q=q), exact.value()),
        "FQE, sandwich": (FQE(**ranges), endless),
        "LSTD, sandwich": (LSTD(OneHot(3), **ranges), endless),
        "WIS-LSTD(0.8), sandwich": (WISLSTD(OneHot(3), lambda_=0.8, **ranges), endless),
    }
    ends: dict[str, list[tuple[float, float]]] = {name: [] for name in judges}
    for _ in range(rounds):
        data = exact.sample(FEW, draws)
        for name, (judge, _truth) in judges.items():
            found = judge.fit(data, exact.TARGET).interval
            ends[name].append((found.low, found.high))
    for name, (_judge, truth) in judges.items():
        yield _row(name, FEW, level, ends[name], truth)


def _private(rounds: int, level: float, seed: int) -> Iterator[dict[str, object]]:
    """PrivateValue at epsilon 1, delta 1e-5: clipped, never clipped, and with several trips."""
    largest = max(one.ratio for one in exact.paths())
    truths = {
        "target": exact.value(),
        "behavior": exact.value(target=False),
        "difference": exact.value() - exact.value(target=False),
    }
    cases: dict[str, tuple[dict[str, Any], int, int]] = {
        "cap 4": ({"weight_cap": 4.0}, PEOPLE, 1),
        "cap 8, 20,000 people": ({"weight_cap": 8.0}, 10 * PEOPLE, 1),
        "cap 4, 3 trips each": ({"weight_cap": 4.0}, PEOPLE, 3),
        "cap 4, grid": ({"weight_cap": 4.0, "grid": True}, PEOPLE, 1),
        "cap 13.5, never clips": (
            {"weight_cap": largest, "largest_ratio": largest},
            PEOPLE,
            1,
        ),
    }
    for case, (settings, people, trips) in cases.items():
        draws = np.random.default_rng(seed)
        judge = PrivateValue(
            Budget(1.0, 1e-5),
            gamma=exact.GAMMA,
            horizon=exact.HORIZON,
            reward_range=(-1.0, 2.0),
            level=level,
            **settings,
        )
        kept = [(min(one.ratio, judge.weight_cap) * one.behavior, one) for one in exact.paths()]
        clipped = sum(p * one.value for p, one in kept) / sum(p for p, _ in kept)
        ends: dict[str, list[tuple[float, float]]] = {n: [] for n in (*truths, "clipped")}
        # A grid's certificate takes a third of a second, so there are fewer of them.
        for _ in range(rounds // 4 if judge.grid else rounds):
            details = judge.fit(exact.sample(people, draws, trips), exact.TARGET).details
            for name in ends:
                found = details[name]["interval"]
                ends[name].append((found["low"], found["high"]))
        for name, truth in {**truths, "clipped": clipped}.items():
            yield _row(f"PrivateValue {name}, {case}", people, level, ends[name], truth)
