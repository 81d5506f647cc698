"""What the targets of xie2019 run (`privrl.papers.xie2019.targets`): rows for seeds.

Each seed has data and noise of its own. Settings that the paper does not print are in the reading:
how many iterations there are for each trajectory, the clip bound, whether the last iterates are
averaged, the public basis of features, and the step by number of trajectories and epsilon, which
the paper tunes on public data. They were chosen on seeds 0 to 9, as those of `PrivateGTD` were: on
the chain at m = 1,000 on all of them, 0 to 2 at m = 10,000, 0 at m = 100,000; on mountain car 0 to
2, on HIV 0 to 3. What they were chosen from is in the targets' notes.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from privrl.core.types import Floats
from privrl.data import Trajectories
from privrl.evaluation.bellman_error import Moments, UnitMoments, moments, unit_steps
from privrl.evaluation.dplsl import DPLSL
from privrl.evaluation.gpope import GPOPE
from privrl.evaluation.precondition import public_gram, whitening_matrix
from privrl.evaluation.private_lstd import PrivateLSTD
from privrl.papers.reproduce.target import Row
from privrl.papers.xie2019 import chain as chains
from privrl.papers.xie2019 import control, lanes, output_perturbation
from privrl.papers.xie2019.gpope import lemma1_sigma
from privrl.papers.xie2019.steps import STEPS, at_factor
from privrl.privacy import Budget
from privrl.privacy.ledger import LargeDelta
from privrl.privacy.noise import reproducible
from privrl.privacy.promise import Unit
from privrl.privacy.session import PrivacySession

DELTA = 1e-5
KINDS = ("lemma1", "certified")
"""Whose noise: what Lemma 1 asks for to claim epsilon, and what can be certified."""


class Chosen(NamedTuple):
    """Settings of GPOPE that the paper does not print."""

    passes: float
    """Iterations over trajectories, N / m."""

    averaged: bool
    """Whether the last half of the iterates is averaged, instead of taking the last."""

    clip: float
    step: float
    """With the noise of Lemma 1."""

    certified_step: float


# --- GPOPE ----------------------------------------------------------------------------------------


@cache
def sigma(kind: str, epsilon: float, m: int, times: int) -> float:
    """The noise multiplier."""
    budget = Budget(epsilon, DELTA)
    if kind == "lemma1":
        return lemma1_sigma(budget, m, times)
    judge = GPOPE(chains.FEATURES, budget, 1.0, 1.0, iterations=times)
    return float(judge.noise(m).noise_multiplier)


def chosen(reading: Mapping[str, Any], m: int, epsilon: float) -> Chosen:
    """What the reading takes for so many trajectories and that epsilon."""
    return Chosen(*reading["chosen"][f"{m} at {epsilon:g}"])


def sweep(
    units: lanes.Units, given: Chosen, epsilon: float, seed: int, steps: Sequence[float] = STEPS
) -> dict[str, Floats]:
    """Weights (len(steps), d) of GPOPE, by noise, for one data set."""
    m = len(units.b)
    times = max(1, round(given.passes * m))
    noise, step = lanes.grid([sigma(kind, epsilon, m, times) for kind in KINDS], steps)
    draw = np.random.default_rng([seed, m, round(1000 * epsilon)])
    drawn = lanes.draw(m, times, 1, draw)
    last, mean = lanes.run(units, drawn, draw, lanes.Lanes(given.clip, step, noise))
    found = (mean if given.averaged else last).reshape(len(KINDS), len(steps), -1)
    return dict(zip(KINDS, found, strict=True))


FACTORS = {"": 1.0, "_low": 0.1, "_high": 10.0}


def few_steps(given: Chosen) -> list[float]:
    """The chosen steps, and 0.1 and 10 times them: for whom no figure shows all steps."""
    both = given.step, given.certified_step
    return sorted({STEPS[at_factor(step, by)] for step in both for by in FACTORS.values()})


def gpope_entries(
    found: Mapping[str, Floats], given: Chosen, truth: Moments, steps: Sequence[float] = STEPS
) -> Row:
    """The entries of a row about GPOPE: at the chosen step, at 0.1 and 10 times it, and at all."""
    row: Row = {}
    for kind, name, step in zip(
        KINDS, ("gpope", "certified_gpope"), (given.step, given.certified_step), strict=True
    ):
        errors = np.minimum(lanes.errors(found[kind], truth), MOST)
        for suffix, factor in FACTORS.items():
            place = steps.index(STEPS[at_factor(step, factor)])
            row[f"{name}{suffix}"] = float(errors[place])
        if len(steps) == len(STEPS):
            row[f"{name}_sweep"] = [float(f"{one:.6g}") for one in errors]
    return row


MOST = 1e12
"""What a run that has blown up counts as."""


# --- the chain (figures 1 and 5, section 6) -------------------------------------------------------


def chain(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> list[Row]:
    """Figures 1 and 5: GPOPE on m trajectories."""
    m, epsilon = setting["m"], chains.BUDGET.epsilon
    given = chosen(options, m, epsilon)
    rows = []
    for seed in seeds:
        units = _chain_units(m // setting.get("shrink", 1), seed)
        found = sweep(units, given, epsilon, seed)
        rows.append({"seed": seed} | gpope_entries(found, given, chains.exact()))
    return rows


def chain_others(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> list[Row]:
    """All others on the same trajectories."""
    m, truth = setting["m"], chains.exact()
    size = m // setting.get("shrink", 1)
    # Nothing is ever seen of the absorbing state, which everybody knows.
    weights = np.append(np.full(chains.STATES - 1, 1.0 / (chains.STATES - 1)), 0.0)
    given: dict[str, Any] = {
        "features": chains.FEATURES,
        "reward_range": (0.0, 1.0),
        "budget": chains.BUDGET,
        "gamma": chains.GAMMA,
    }
    judges: dict[str, Any] = {
        "dp_lsw": output_perturbation.DPLSW(**given, state_weights=weights),
        "dp_lsl": output_perturbation.DPLSL(**given, state_weights=weights),
        "dp_lsl_calibrated": DPLSL(**given, state_weights=weights, return_bound=1.0),
        "private_lstd": PrivateLSTD(**given),
        "private_gtd": chains.private_gtd(m),
    }
    rows = []
    for seed in seeds:
        data, found = chains.simulate(size, seed), {}
        with _quietly():
            for name, judge in judges.items():
                found[name] = judge.fit(data, session=PrivacySession(seed=seed)).weights
        found["lstd"] = _chain_lstd(_chain_units(size, seed))
        found["zero"] = np.zeros(chains.STATES)
        errors = lanes.errors(np.array(list(found.values())), truth)
        rows.append({"seed": seed} | dict(zip(found, map(float, errors), strict=True)))
    return rows


def _chain_units(m: int, seed: int) -> lanes.Bidiagonal:
    visits = chains.visits(m, seed)
    return lanes.bidiagonal(visits, (visits > 0.0).astype(float), chains.GAMMA)


def _chain_lstd(units: lanes.Bidiagonal) -> Floats:
    A = np.diag(units.stay.mean(axis=0)) - np.diag(units.on.mean(axis=0)[:-1], 1)
    found, *_ = np.linalg.lstsq(A, units.b.mean(axis=0), rcond=None)
    return np.asarray(found)


def theory(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> list[Row]:
    """Section 6 on the chain: its lemma and theorems, and several updates from a trajectory.

    Lemma 2 is tried on a step without any noise from (theta, w*), w* = 0, in the 39 states that are
    ever left, with beta = 1 / lambda_max(Q).
    """
    m = setting["m"] // setting.get("shrink", 1)
    truth = chains.exact()
    A, C = truth.A[:-1, :-1], truth.C[:-1, :-1]
    Q = np.block([[np.zeros_like(A), -A.T], [A, C]])
    least = 8.0 / 9.0 * float(np.linalg.eigvals(A.T @ np.linalg.solve(C, A)).real.min())
    beta = 1.0 / float(np.abs(np.linalg.eigvals(Q)).max())
    rows = []
    for seed in seeds:
        draw = np.random.default_rng([seed, 6])
        theta = draw.standard_normal(len(A))
        begin = np.concatenate([theta, np.zeros_like(theta)])
        left = np.sum((begin - beta * Q @ begin) ** 2) / np.sum(begin**2)
        row: Row = {"seed": seed, "lemma2": float(left <= (1.0 - beta * least) ** 2)}
        units = _chain_units(m, seed)
        for passes, steps in setting["runs"]:
            times = round(passes * m)
            given = lanes.Lanes(
                setting["clip"],
                list(steps.values()),
                sigma("lemma1", chains.BUDGET.epsilon, m, times),
                [name.startswith("diminishing") for name in steps],
            )
            last, _ = lanes.run(units, lanes.draw(m, times, 1, draw), draw, given)
            errors = np.minimum(lanes.errors(last, truth), MOST)
            row |= dict(zip(steps, map(float, errors), strict=True))
        rows.append(row)
    return rows


def blocks(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> list[Row]:
    """Several updates from a trajectory that is drawn: one for each of its blocks (section 4).

    The K clipped gradients of a trajectory are one vector of norm up to h sqrt(K), so that the
    noise of each is sqrt(K) times that of one.
    """
    m = setting["m"] // setting.get("shrink", 1)
    truth, epsilon = chains.exact(), chains.BUDGET.epsilon
    rows = []
    for seed in seeds:
        visits = chains.visits(m, seed)
        row: Row = {"seed": seed}
        for count, (clip, step) in setting["updates"].items():
            each = int(count)
            steps, left = lanes.split(visits, each)
            draw = np.random.default_rng([seed, each])
            noise = math.sqrt(each) * sigma("lemma1", epsilon, m, m)
            drawn = lanes.draw(m, m, each, draw)
            last, _ = lanes.run(
                lanes.bidiagonal(steps, left, chains.GAMMA),
                drawn,
                draw,
                lanes.Lanes(clip, [step], noise),
            )
            row[f"updates_{count}"] = min(MOST, float(lanes.errors(last, truth)[0]))
        rows.append(row)
    return rows


def on_chain(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> list[Row]:
    """Whatever of the chain the setting names."""
    runs = {"gpope": chain, "others": chain_others, "theory": theory, "blocks": blocks}
    kind: str = setting["of"].split(",")[0]
    return runs[kind](options, setting, seeds)


# --- mountain car and HIV (figures 2, 3, 4 and 6) -------------------------------------------------


class Judged:
    """A task with what is public about it, and the moments of a large fresh set."""

    def __init__(self, task: control.Task, fresh: int, public: int = 1000) -> None:
        self.task = task
        known = task.collect(public, 0)
        self.gram = public_gram(task.features, known.states)
        self.change = whitening_matrix(task.features, self.gram)
        self.truth = moments(task.collect(fresh, 7), task.target, task.features, task.gamma)

    def whiten(self, plain: lanes.Dense) -> lanes.Dense:
        """The moments of changed features, from those of the features."""
        change = self.change
        A, C = (change @ one @ change.T for one in (plain.A, plain.C))
        return lanes.Dense(A, C, plain.b @ change.T)

    def units(self, data: Trajectories) -> lanes.Dense:
        task = self.task
        return lanes.dense(
            unit_steps(
                *(data, task.target, task.features, task.gamma),
                *(task.weight_cap, task.reward_range, None),
            )
        )

    def ours(self, white: lanes.Dense, m: int, epsilon: float, seed: int) -> dict[str, Floats]:
        """The weights that `fit` of our estimators finds, from moments of changed features."""
        d = white.b.shape[1]
        stacked = [one.reshape(-1, d) for one in (white.A, white.A.transpose(0, 2, 1), white.C)]
        units = UnitMoments(stacked[0], white.b, stacked[1], stacked[2], Unit.TRAJECTORY)
        plan = control.private_gtd(self.task, m, epsilon, self.gram).plan(
            self.task.form, len(white.b)
        )
        lstd = control.private_lstd(self.task, m, epsilon, self.gram)
        return {
            "private_gtd": np.asarray(self.change.T @ plan.run(units, reproducible(seed))),
            "private_lstd": control.fit_private_lstd(lstd, units, seed),
        }


@cache
def judged(name: str, fresh: int) -> Judged:
    """The task of that name, with its policies learned; once in a process."""
    return Judged(control.task(name), fresh)


def on_control(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> list[Row]:
    """Figures 2, 3, 4 and 6: every estimator at every m and epsilon; a smaller m is part of a
    larger one."""
    shrink = setting.get("shrink", 1)
    here = judged(setting["task"], setting["fresh"] // shrink)
    task, sizes = here.task, [m // shrink for m in setting["sizes"]]
    most = max(sizes)
    pool = task.collect(most * len(seeds), seeds[0])
    rows = []
    for place, seed in enumerate(seeds):
        data = pool[place * most : (place + 1) * most]
        plain = here.units(data)
        white = here.whiten(plain)
        for m, size in zip(setting["sizes"], sizes, strict=True):
            some, other = (
                lanes.Dense(one.A[:size], one.C[:size], one.b[:size]) for one in (plain, white)
            )
            for epsilon in setting["epsilons"]:
                row: Row = {"seed": seed, "m": m, "epsilon": epsilon}
                given = chosen(options, m, epsilon)
                steps = STEPS if setting["is_swept"] else few_steps(given)
                found = sweep(some, given, epsilon, seed, steps)
                row |= gpope_entries(found, given, here.truth, steps)
                if "whitened" in options:
                    given = Chosen(*options["whitened"][f"{m} at {epsilon:g}"])
                    at_step = sweep(other, given, epsilon, seed, [given.step])["lemma1"]
                    error = float(lanes.errors(at_step @ here.change, here.truth)[0])
                    row["gpope_whitened"] = min(MOST, error)
                ours = here.ours(other, m, epsilon, seed)
                ours["zero"] = np.zeros(task.features.dimension)
                ours["lstd"] = _lstd(some, np.ones(size))
                ours["wis_lstd"] = _lstd(some, np.asarray(data[:size].lengths, dtype=float))
                if task.name == control.ON:
                    with _quietly():
                        fitted = control.dp_lsw(epsilon, "published").fit(
                            control.discretise(data[:size]), session=PrivacySession(seed=seed)
                        )
                    ours["dp_lsw"] = np.asarray(fitted.weights)
                for name, weights in ours.items():
                    row[name] = min(MOST, float(lanes.errors(weights[None], here.truth)[0]))
                rows.append(row)
    return rows


def _lstd(units: lanes.Dense, weights: Floats) -> Floats:
    """A theta = b with trajectories weighed: equally, or by their steps (WIS-LSTD(0))."""
    A, b = np.tensordot(weights, units.A, 1), weights @ units.b
    return np.asarray(np.linalg.lstsq(A, b, rcond=None)[0])


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warning that delta is not below 1 / m, which the paper's is not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargeDelta)
        yield
