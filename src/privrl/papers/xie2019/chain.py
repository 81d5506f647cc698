"""The chain: mean squared projected Bellman error (MSPBE) of every private linear estimator.

40 states, gamma 0.99, epsilon 0.1, delta 1e-5, one trajectory replaced; m = 10^3, 10^4, 10^5
trajectories; seeds 100 to 119, each with fresh data and fresh noise. MSPBE is computed from the
exact moments of the model. Settings were frozen on seeds 0 to 9 (0 and 1 for m = 10^5): `tune` says
what they were chosen from. GPOPE runs as many iterations as there are trajectories. `run` has the
variants of `PrivateGTD`; `privrl.papers.xie2019.trials` has the paper's figures.

Trajectories are drawn by `simulate`, visit by visit instead of step by step: the number of visits
of each state is geometric. A test compares their moments with those of `privrl.envs.Chain`.
"""

import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from privrl.core.types import AnyArray, Floats
from privrl.data import OneHot, Trajectories
from privrl.envs import Chain
from privrl.evaluation.bellman_error import Moments, exact_moments, mspbe, unit_moments
from privrl.evaluation.dplsl import DPLSL
from privrl.evaluation.dplsw import DPLSW
from privrl.evaluation.gpope import GPOPE
from privrl.evaluation.private_gtd import PrivateGTD
from privrl.evaluation.private_lstd import PrivateLSTD, weighted_sum
from privrl.papers.xie2019 import gpope as printed
from privrl.papers.xie2019 import output_perturbation
from privrl.privacy import Budget
from privrl.privacy.session import PrivacySession

BUDGET = Budget(0.1, 1e-5)
GAMMA = 0.99
STATES = 40
FEATURES = OneHot(STATES)
SIZES = (1_000, 10_000, 100_000)
SEEDS = range(100, 120)
# Frozen on seeds 0 to 9: see `tune`.
SETTINGS: dict[int, dict[str, Any]] = {
    1_000: {"gpope": (0.01, 0.1), "iterations": 50, "step": 1.0, "clip": (0.02, 0.005)},
    10_000: {"gpope": (0.003, 0.3), "iterations": 400, "step": 1.0, "clip": (0.05, 0.01)},
    100_000: {"gpope": (0.003, 0.3), "iterations": 400, "step": 1.0, "clip": (0.05, 0.01)},
}
# For PrivateGTD at m = 10^4, set before seeds from 100 up were looked at; 0 to 9 gave 1.5e-5.
TOLERANCE = 1e-4
# Variants of PrivateGTD are run on these only where m is large.
FEWER_SEEDS = range(100, 105)
# People in a step of a single pass, on average; chosen on seeds 0 to 4, clip bound and step with
# larger steps on seeds 0 to 2.
ONE_PASS = {10_000: 25, 100_000: 250}
GRID_CLIPS = (0.003, 0.01, 0.03, 0.1)
GRID_STEPS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


@cache
def exact() -> Moments:
    """A, b and C of the model."""
    chain = Chain(STATES)
    return exact_moments(chain, chain.uniform(), FEATURES, GAMMA)


def simulate(m: int, seed: int) -> Trajectories:
    """`m` trajectories of `Chain`: a uniform start, then each state for a geometric time."""
    begins, states, times = _stays(m, seed)
    lengths = np.add.reduceat(times, begins)
    rewards = np.zeros(int(lengths.sum()))
    rewards[np.cumsum(lengths) - 1] = 1.0
    rows = np.repeat(states, times).astype(np.int32)
    return Trajectories.from_arrays(
        rows,
        np.zeros(rows.size, dtype=np.int32),
        rewards,
        lengths=lengths,
        terminated=np.ones(m, dtype=bool),
        num_states=STATES,
        num_actions=1,
    )


def visits(m: int, seed: int) -> Floats:
    """(m, states) steps in each state: all there is to know of the trajectories of `simulate`."""
    begins, states, times = _stays(m, seed)
    found = np.zeros((m, STATES))
    found[np.repeat(np.arange(m), np.diff(begins, append=states.size)), states] = times
    return found


def _stays(m: int, seed: int) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Where in the list of stays each trajectory begins; the state and the length of each stay."""
    draw, end = np.random.default_rng(seed), STATES - 1
    first = draw.integers(0, end, m)
    visited = end - first
    begins = np.cumsum(visited) - visited
    states = np.arange(visited.sum()) - np.repeat(begins - first, visited)
    return begins, states, draw.geometric(0.5, states.size)


def private_gtd(m: int, factor: float = 1.0, **changed: Any) -> PrivateGTD:
    """With the frozen settings for `m`; `factor` multiplies the step size."""
    chosen = SETTINGS[m]
    given = {name: chosen[name] for name in ("iterations", "step", "clip")} | changed
    given["step"] = factor * given["step"]
    return PrivateGTD(FEATURES, (0.0, 1.0), BUDGET, GAMMA, **given)


def gpope(m: int, as_printed: bool = False) -> GPOPE:
    """With the frozen settings for `m`."""
    clip, step = SETTINGS[m]["gpope"]
    estimator = printed.GPOPE if as_printed else GPOPE
    return estimator(FEATURES, BUDGET, clip, step, GAMMA)


def _estimators(m: int) -> dict[str, Any]:
    # Nothing is ever seen of the absorbing state, which everybody knows.
    weights = np.append(np.full(STATES - 1, 1.0 / (STATES - 1)), 0.0)
    given: dict[str, Any] = {
        "features": FEATURES,
        "reward_range": (0.0, 1.0),
        "budget": BUDGET,
        "gamma": GAMMA,
    }
    listed: dict[str, Any]
    published = {**given, "state_weights": weights}
    calibrated = {**given, "state_weights": weights, "return_bound": 1.0}
    listed = {
        "DP-LSW, published constants": output_perturbation.DPLSW(**published),
        "DP-LSL, published constants": output_perturbation.DPLSL(**published),
        "DP-LSW, calibrated, returns at most 1": DPLSW(**calibrated),
        "DP-LSL, calibrated, returns at most 1": DPLSL(**calibrated),
        "PrivateLSTD": PrivateLSTD(**given),
        "PrivateGTD": private_gtd(m),
        "PrivateGTD, 0.1 x step": private_gtd(m, 0.1),
        "PrivateGTD, 10 x step": private_gtd(m, 10.0),
        "PrivateGTD, default settings": PrivateGTD(**given, return_bound=1.0),
    }
    if m in ONE_PASS:
        size = ONE_PASS[m]
        once = PrivateGTD(**given, return_bound=1.0, batch_units=size)
        listed["PrivateGTD, one pass, default settings"] = once
        listed["PrivateGTD, one pass"] = replace(once, clip=0.05, step=1.0)
    if m <= 10_000:
        dual = PrivateGTD(**given, return_bound=1.0, form="primal-dual")
        listed["PrivateGTD, primal-dual, default settings"] = dual
    return listed


def _lstd(data: Trajectories) -> Any:
    units = unit_moments(data, None, FEATURES, GAMMA, certified=False)
    total = weighted_sum(units, 1.0, np.ones(units.count))
    return np.linalg.lstsq(total[:STATES], total[STATES], rcond=None)[0]


def run(sizes: tuple[int, ...] = SIZES, seeds: range = SEEDS) -> Iterator[dict[str, object]]:
    """A row for each method and number of trajectories, then one with the ratio asked for."""
    for m in sizes:
        errors: dict[str, list[float]] = {}
        times: dict[str, list[float]] = {}
        judges = _estimators(m)
        kinds = {"certified": gpope(m), "paper": gpope(m, as_printed=True)}
        sigmas = {kind: one.noise(m).noise_multiplier for kind, one in kinds.items()}
        for seed in seeds:
            data = simulate(m, seed)
            for name, judge in judges.items():
                if "," in name and "GTD" in name and m > 10_000 and seed not in FEWER_SEEDS:
                    continue
                begun = time.perf_counter()
                weights = judge.fit(data, session=PrivacySession(seed=seed)).weights
                times.setdefault(name, []).append(time.perf_counter() - begun)
                errors.setdefault(name, []).append(mspbe(weights, exact()))
            for kind, judge in kinds.items():
                steps = [factor * judge.step for factor in (1.0, 0.1, 10.0)]
                swept = judge.sweep(data, None, steps, [seed])[0]
                for label, w in zip(("", ", 0.1 x step", ", 10 x step"), swept, strict=True):
                    errors.setdefault(f"GPOPE, {kind}{label}", []).append(mspbe(w, exact()))
            errors.setdefault("zero weights", []).append(mspbe(np.zeros(STATES), exact()))
            errors.setdefault("LSTD, not private", []).append(mspbe(_lstd(data), exact()))
        for name, listed in errors.items():
            row: dict[str, object] = {"m": m, "method": name, **_summary(listed)}
            if name in times:
                row["seconds"] = statistics.median(times[name])
            if name.startswith("GPOPE"):
                row["sigma"] = sigmas["paper" if "paper" in name else "certified"]
            yield row
        means = {name: statistics.mean(listed) for name, listed in errors.items()}
        yield {
            "m": m,
            "certified_gpope_over_private_gtd": means["GPOPE, certified"] / means["PrivateGTD"],
        }


def _summary(errors: list[float]) -> dict[str, float]:
    return {
        "mspbe": statistics.mean(errors),
        "standard_error": statistics.stdev(errors) / math.sqrt(len(errors)),
        "worst": max(errors),
        "seeds": len(errors),
    }


def tune(m: int, seeds: range = range(10)) -> Iterator[dict[str, object]]:
    """What the settings were chosen from: the mean MSPBE over seeds 0 to 9 of each in the grid."""
    sets = [(seed, simulate(m, seed)) for seed in seeds]
    for clip in GRID_CLIPS:
        judge = GPOPE(FEATURES, BUDGET, clip, 1.0, GAMMA)
        weights = [judge.sweep(data, None, GRID_STEPS, [seed])[0] for seed, data in sets]
        for k, step in enumerate(GRID_STEPS):
            error = statistics.mean(mspbe(w[k], exact()) for w in weights)
            yield {"m": m, "method": "GPOPE", "clip": clip, "step": step, "mspbe": error}
    for iterations in (50, 100, 200, 400):
        for step in (0.3, 1.0):
            for bounds in ((0.05, 0.01), (0.02, 0.02), (0.02, 0.005)):
                judge_gtd = private_gtd(m, iterations=iterations, step=step, clip=bounds)
                fits = [
                    judge_gtd.fit(data, session=PrivacySession(seed=seed)).weights
                    for seed, data in sets
                ]
                error = statistics.mean(mspbe(w, exact()) for w in fits if w is not None)
                yield {
                    "m": m,
                    "method": "PrivateGTD",
                    "iterations": iterations,
                    "step": step,
                    "clip": bounds,
                    "mspbe": error,
                }
