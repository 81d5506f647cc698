"""Mountain car and HIV: how large the projected Bellman error is that private estimators leave.

The experiments of xie2019, figures 2 to 4, with certified privacy beside the paper's own. Policies
come from `privrl.control.QLearning`. The error is the MSPBE, with the moments of a large fresh set
that no estimator saw, as mean and standard error over 20 seeds of noise, 100 to 119. At the smaller
size each has a data set of its own; at the larger, to save time, five share one, and only the
chosen step size is tried. MSPBE of zero weights: what knowing nothing costs.

- Mountain car, gamma 0.99, 36 Fourier features of order 5. On-policy: the learned policy with
  epsilon 0.1. Off-policy, as in the paper: the learned policy (epsilon 0.3) acts, and the uniform
  policy is judged.
- HIV, gamma 0.98, 28 polynomial features of the states' logarithms, rewards in units of 100,000
  (about the mean reward of the judged policy, by which the paper divides too). As in the paper a
  softmax of the learned values acts, and the learned, greedy, policy is judged.

Epsilon 0.1 and 1, delta 1e-5, replace-one. Settings (`CHOSEN`) were chosen by hand from small
grids, on data and noise of seeds 0 to 9. The Gram matrix that PrivateGTD and
PrivateLSTD are preconditioned with comes from 1000 simulated episodes of seed 0, declared public:
the same assumption under which the paper tunes its step sizes. GPOPE takes no such matrix.

DP-LSW is judged on-policy only, and on a grid of cells, as it needs discrete states; DP-LSL, and
both of them off-policy, would not be private and are refused.

A data set's moments are computed once for all estimators; a first row shows that this gives what
each estimator's own `fit` gives.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from privrl.control import LearnedQValues, QLearning
from privrl.core.types import Floats
from privrl.data import (
    Features,
    Fourier,
    FunctionFeatures,
    FunctionPolicy,
    Policy,
    Polynomial,
    Trajectories,
    collect,
)
from privrl.envs import HIV, MountainCar
from privrl.evaluation.bellman_error import Moments, UnitMoments, moments, mspbe, unit_moments
from privrl.evaluation.dplsw import DPLSW
from privrl.evaluation.gpope import GPOPE
from privrl.evaluation.gtd_iterations import Form
from privrl.evaluation.lstd import LSTD
from privrl.evaluation.precondition import public_gram, whitening_matrix
from privrl.evaluation.private_gtd import PrivateGTD
from privrl.evaluation.private_lstd import PrivateLSTD, clip_factors, weighted_sum
from privrl.evaluation.sums import Sums
from privrl.papers.xie2019 import gpope as printed
from privrl.papers.xie2019 import output_perturbation
from privrl.papers.xie2019.printed import HIV_OFF, MOUNTAIN_CAR_OFF, MOUNTAIN_CAR_ON, PRINTED
from privrl.privacy import Budget
from privrl.privacy.noise import reproducible
from privrl.privacy.session import PrivacySession

SEEDS = range(100, 120)
EPSILONS = (0.1, 1.0)
DELTA = 1e-5
FACTORS = (0.1, 1.0, 10.0)
"""Of the step size: the chosen one, and wrong ones."""

CELLS = 20
"""To a side of the grid on which DP-LSW, which needs discrete states, judges the car."""

SHARED = 5
"""Seeds of noise for each data set of the larger size."""

CAR = Fourier(order=5, low=(-1.2, -0.07), high=(0.6, 0.07))
PATIENT = Polynomial(
    degree=2, low=(4.5, -1.0, -1.0, -2.0, -1.0, 0.5), high=(6.0, 3.5, 5.5, 3.0, 6.5, 6.0)
)

ON, OFF, TREATED = MOUNTAIN_CAR_ON, MOUNTAIN_CAR_OFF, HIV_OFF


class Chosen(NamedTuple):
    """Settings of the estimators for a task, a number of trajectories and an epsilon."""

    gtd: tuple[int, float, tuple[float, float]]
    """Iterations, step, first and last clip bound of PrivateGTD."""

    gpope: tuple[float, float]
    """The step of certified GPOPE, and of the paper's; from a grid of eight, 1e-4 to 0.3. Where
    1e-4 was best, so would be not to learn at all."""

    lstd: tuple[float, float]
    """Clip bound and matrix weight of PrivateLSTD."""


CHOSEN: dict[tuple[str, int, float], Chosen] = {
    (ON, 1000, 0.1): Chosen((10, 3.0, (0.1, 0.1)), (1e-4, 1e-4), (0.5, 0.1)),
    (ON, 1000, 1.0): Chosen((100, 3.0, (1.0, 0.3)), (1e-4, 1e-3), (4.0, 0.1)),
    (ON, 10_000, 0.1): Chosen((100, 6.0, (1.0, 0.3)), (3e-4, 1e-3), (4.0, 0.1)),
    (ON, 10_000, 1.0): Chosen((100, 4.0, (1.0, 1.0)), (1e-3, 3e-2), (4.0, 3.0)),
    (OFF, 1000, 0.1): Chosen((10, 1.0, (0.1, 0.1)), (1e-4, 1e-4), (0.5, 0.3)),
    (OFF, 1000, 1.0): Chosen((100, 3.0, (1.0, 0.3)), (1e-4, 1e-4), (4.0, 0.1)),
    (OFF, 10_000, 0.1): Chosen((100, 3.0, (1.0, 0.3)), (1e-4, 3e-4), (4.0, 0.1)),
    (OFF, 10_000, 1.0): Chosen((100, 3.0, (1.0, 0.3)), (3e-4, 3e-2), (2.0, 1.0)),
    (TREATED, 1000, 0.1): Chosen((50, 0.3, (0.1, 0.1)), (3e-3, 3e-3), (0.5, 0.3)),
    (TREATED, 1000, 1.0): Chosen((200, 1.0, (0.3, 0.3)), (1e-2, 3e-2), (1.0, 1.0)),
    (TREATED, 4000, 0.1): Chosen((200, 1.0, (0.3, 0.3)), (1e-2, 1e-2), (0.5, 0.3)),
    (TREATED, 4000, 1.0): Chosen((200, 1.0, (0.3, 0.3)), (3e-2, 3e-2), (1.0, 1.0)),
}
GPOPE_CLIP = 1.0


@dataclass(frozen=True)
class Task:
    """Who acts, who is judged, and what is public about it."""

    name: str
    env: Any
    behavior: Policy
    target: Policy | None
    features: Features
    gamma: float
    reward_unit: float
    reward_range: tuple[float, float]
    weight_cap: float | None
    form: Form
    sizes: tuple[int, ...]

    def collect(self, count: int, key: int) -> Trajectories:
        """`count` simulated episodes."""
        data = collect(self.env, self.behavior, count, key)
        return replace(data, rewards=np.asarray(data.rewards) / self.reward_unit)

    def moments(self, data: Trajectories, change: Floats | None = None) -> UnitMoments:
        """Of each trajectory, for all estimators; of linearly changed features, if so wished."""
        return unit_moments(
            data,
            self.target,
            self.features,
            self.gamma,
            cap=self.weight_cap,
            reward_range=self.reward_range,
            change=change,
            dual=change is None or self.form == "primal-dual",
            certified=False,
        )

    def options(self, epsilon: float) -> dict[str, Any]:
        """What all estimators are told."""
        return {
            "features": self.features,
            "budget": Budget(epsilon, DELTA),
            "gamma": self.gamma,
            "weight_cap": self.weight_cap,
        }


# Chosen on seeds 0 to 9, see docs/evaluation/q-learning.md.
CAR_SETTINGS: dict[str, Any] = {
    "steps": 100_000,
    "features": CAR,
    "gamma": 1.0,
    "step": 0.002,
    "half_life": 30_000,
    "lambda_": 0.9,
    "epsilon": 0.0,
    "checkpoints": 1,
    "episodes": 50,
}


# Of a random doctor's experience; these, and the seed, chosen among 0 to 9.
PATIENT_SETTINGS: dict[str, Any] = {
    "steps": 20_000,
    "features": PATIENT,
    "gamma": 0.98,
    "step": 0.01,
    "half_life": 5000,
    "epsilon": 1.0,
    "checkpoints": 5,
    "episodes": 1,
}


def tasks() -> Iterator[tuple[Task, LearnedQValues]]:
    """All three, with the policies learned."""
    car = QLearning(**CAR_SETTINGS).learn(MountainCar(), seed=0)
    uniform = FunctionPolicy(lambda states: np.full((len(states), 3), 1.0 / 3.0), 3)
    on = Task(
        name=ON,
        env=MountainCar(),
        behavior=car.epsilon_greedy(0.1),
        target=None,
        features=CAR,
        gamma=0.99,
        reward_unit=1.0,
        reward_range=(-1.0, 0.0),
        weight_cap=None,
        form="residual",
        sizes=(1000, 10_000),
    )
    yield on, car
    # Ratios are at most (1/3) / 0.1: the cap caps nothing.
    off = replace(on, name=OFF, behavior=car.epsilon_greedy(0.3), target=uniform, weight_cap=3.4)
    yield off, car
    ill = QLearning(**PATIENT_SETTINGS).learn(HIV(), seed=4)
    # Softmax gives the best of four actions at least 1/4: nor does this one.
    treated = Task(
        name=TREATED,
        env=HIV(),
        behavior=ill.softmax(1e5),
        target=ill.policy,
        features=PATIENT,
        gamma=0.98,
        reward_unit=1e5,
        reward_range=(-1.0, 15.0),
        weight_cap=4.0,
        form="primal-dual",
        sizes=(1000, 4000),
    )
    yield treated, ill


# --- output perturbation -------------------------------------------------------------------------


def discretise(data: Trajectories) -> Trajectories:
    """The same trajectories of the car with CELLS x CELLS discrete states, without what follows."""
    at = (np.asarray(data.states) - CAR.low) / (np.array(CAR.high) - CAR.low)
    index = np.clip((at * CELLS).astype(int), 0, CELLS - 1)
    return Trajectories.from_arrays(
        index[:, 0] * CELLS + index[:, 1],
        np.asarray(data.actions),
        np.asarray(data.rewards),
        lengths=data.lengths,
        terminated=data.terminated,
        truncated=data.truncated,
        num_states=CELLS**2,
        num_actions=3,
    )


def cell_features(states: Any) -> Floats:
    """The features of the middle of each cell."""
    index = np.stack([states // CELLS, states % CELLS], axis=1)
    middles = CAR.low + (index + 0.5) / CELLS * (np.array(CAR.high) - CAR.low)
    return np.asarray(CAR(middles), dtype=np.float64)


CONSTANTS = {"calibrated": DPLSW, "published": output_perturbation.DPLSW}


def dp_lsw(epsilon: float, constants: str) -> DPLSW:
    """DP-LSW on cells, where no episode is longer than 200 steps."""
    return CONSTANTS[constants](
        FunctionFeatures(cell_features, CAR.dimension, CAR.norm_bound),
        (-1.0, 0.0),
        Budget(epsilon, DELTA),
        0.99,
        num_states=CELLS**2,
        return_bound=(1.0 - 0.99**200) / 0.01,
    )


# --- estimators ----------------------------------------------------------------------------------


def private_gtd(task: Task, size: int, epsilon: float, factor: float, gram: Floats) -> PrivateGTD:
    iterations, step, clip = CHOSEN[task.name, size, epsilon].gtd
    return PrivateGTD(
        **task.options(epsilon),
        reward_range=task.reward_range,
        form=task.form,
        iterations=iterations,
        step=step * factor,
        clip=clip,
        precondition=gram,
    )


def gpope(task: Task, size: int, epsilon: float, kind: str) -> GPOPE:
    certified, papers = CHOSEN[task.name, size, epsilon].gpope
    if kind == "certified":
        return GPOPE(**task.options(epsilon), clip=GPOPE_CLIP, step=certified)
    return printed.GPOPE(**task.options(epsilon), clip=GPOPE_CLIP, step=papers)


def private_lstd(task: Task, size: int, epsilon: float, gram: Floats) -> PrivateLSTD:
    clip, weight = CHOSEN[task.name, size, epsilon].lstd
    return PrivateLSTD(
        **task.options(epsilon),
        reward_range=task.reward_range,
        clip=clip,
        matrix_weight=weight,
        precondition=gram,
    )


def fit_private_lstd(judge: PrivateLSTD, units: UnitMoments, seed: int) -> Floats:
    """The weights that `PrivateLSTD.fit` finds, from moments of changed features."""
    factors = clip_factors(units, judge.weight, judge.bound)
    sums = Sums(units.unit, units.count, weighted_sum(units, judge.weight, factors))
    return np.asarray(judge.release(sums, session=PrivacySession(seed=seed)).weights)


def lstd_weights(units: UnitMoments) -> Floats:
    """LSTD, each trajectory averaged over its steps, as the error is."""
    d = units.dimension
    A = units.A.reshape(-1, d, d).mean(axis=0)
    return np.asarray(np.linalg.lstsq(A, units.b.mean(axis=0), rcond=None)[0])


class ErrorTable:
    """Errors by estimator, budget and step factor."""

    def __init__(self, truth: Moments) -> None:
        self.truth = truth
        self.errors: dict[tuple[str, float | None, float], list[float]] = {}

    def add(self, name: str, epsilon: float | None, factor: float, weights: Floats) -> None:
        # A step ten times too large may blow up; that is an error like others, but no number.
        fine = bool(np.all(np.isfinite(weights)))
        error = mspbe(weights, self.truth) if fine else math.inf
        self.errors.setdefault((name, epsilon, factor), []).append(error)


def add_dp_lsw(table: ErrorTable, data: Trajectories, seeds: range) -> None:
    """DP-LSW with both of its constants."""
    for seed in seeds:
        for epsilon in EPSILONS:
            for constants in CONSTANTS:
                fitted = dp_lsw(epsilon, constants).fit(data, session=PrivacySession(seed=seed))
                assert fitted.weights is not None
                table.add(f"DP-LSW on cells, {constants}", epsilon, 1.0, fitted.weights)


def error_table(task: Task, size: int, truth: Moments, gram: Floats) -> ErrorTable:
    """All estimators on all seeds."""
    table, change = ErrorTable(truth), whitening_matrix(task.features, gram)
    # Robustness where it is cheap.
    factors = FACTORS if size == task.sizes[0] else (1.0,)
    plans = {
        (epsilon, factor): private_gtd(task, size, epsilon, factor, gram).plan(task.form, size)
        for epsilon in EPSILONS
        for factor in factors
    }
    judges = [
        (f"GPOPE, {kind}", epsilon, gpope(task, size, epsilon, kind))
        for epsilon in EPSILONS
        for kind in ("certified", "paper")
    ]
    for group, data in datasets(task, size, SEEDS):
        units, whitened = task.moments(data), task.moments(data, change)
        found = lstd_weights(units)
        for _ in group:
            table.add("zero weights", None, 1.0, np.zeros(units.dimension))
            table.add("LSTD, not private", None, 1.0, found)
        keys = jnp.stack([reproducible(seed).key() for seed in group])
        for name, epsilon, judge in judges:
            rollout = judge._run(units, judge.noise(size), keys, [judge.step * f for f in factors])
            for of_seed in rollout:
                for factor, weights in zip(factors, of_seed, strict=True):
                    table.add(name, epsilon, factor, weights)
        if task.name == ON:
            add_dp_lsw(table, discretise(data), group)
        for seed in group:
            for epsilon in EPSILONS:
                judge_lstd = private_lstd(task, size, epsilon, gram)
                found = fit_private_lstd(judge_lstd, whitened, seed)
                table.add("PrivateLSTD", epsilon, 1.0, found)
            for (epsilon, factor), plan in plans.items():
                theta = plan.run(whitened, reproducible(seed))
                table.add("PrivateGTD", epsilon, factor, change.T @ theta)
    return table


def datasets(task: Task, size: int, seeds: range) -> Iterator[tuple[range, Trajectories]]:
    """Data sets, simulated in one go, each with the seeds of noise that it is used with."""
    each = 1 if size == task.sizes[0] else SHARED
    groups = [seeds[first : first + each] for first in range(0, len(seeds), each)]
    data = task.collect(size * len(groups), seeds[0])
    for number, group in enumerate(groups):
        yield group, data[number * size : (number + 1) * size]


def run() -> Iterator[dict[str, object]]:
    """For each task a row about its policies, then rows of errors."""
    for task, learned in tasks():
        public = task.collect(1000, 0)
        gram = public_gram(task.features, public.states)
        truth = moments(
            task.collect(5000 if task.name == TREATED else 10_000, 7),
            *(task.target, task.features, task.gamma),
        )
        yield {
            "task": task.name,
            "features": task.features.dimension,
            "learned_return": float(learned.curve[-1]),
            "behavior_return": float(np.sum(public.rewards) * task.reward_unit / 1000),
            "fresh_trajectories": truth.trajectories,
            "paper": PRINTED[task.name],
            "largest_difference_from_fit": differences(task, public[:100], gram),
        }
        for size in task.sizes:
            begun = time.perf_counter()
            table = error_table(task, size, truth, gram)
            taken = time.perf_counter() - begun
            for (name, epsilon, factor), errors in table.errors.items():
                yield {
                    "task": task.name,
                    "m": size,
                    "estimator": name,
                    **row(epsilon, factor, errors),
                    "data_sets": len(SEEDS) // (1 if size == task.sizes[0] else SHARED),
                    "settings": settings(task, size, name, epsilon, factor),
                }
            yield {"task": task.name, "m": size, "seconds": taken}


def row(epsilon: float | None, factor: float, errors: list[float]) -> dict[str, object]:
    found = np.array(errors)
    finite = bool(np.all(np.isfinite(found)))
    error = float(found.std(ddof=1) / math.sqrt(found.size)) if finite else None
    return {
        "epsilon": epsilon,
        "step_factor": factor,
        "mspbe": float(found.mean()) if finite else None,
        "standard_error": error,
        "median": float(np.median(found)) if np.isfinite(np.median(found)) else None,
        "diverged": int(np.sum(~np.isfinite(found))),
        "seeds": found.size,
    }


def settings(
    task: Task, size: int, name: str, epsilon: float | None, factor: float
) -> dict[str, object] | None:
    """What was chosen on seeds 0 to 9."""
    if epsilon is None:
        return None
    if name.startswith("DP-LSW"):
        return {"cells": CELLS**2, "return_bound": dp_lsw(1.0, "published").return_bound}
    if name == "PrivateGTD":
        iterations, step, clip = CHOSEN[task.name, size, epsilon].gtd
        return {"iterations": iterations, "step": step * factor, "clip": clip, "form": task.form}
    if name == "PrivateLSTD":
        clip_bound, weight = CHOSEN[task.name, size, epsilon].lstd
        return {"clip": clip_bound, "matrix_weight": weight}
    judge = gpope(task, size, epsilon, name.removeprefix("GPOPE, "))
    return {
        "iterations": size,
        "step": judge.step * factor,
        "clip": judge.clip,
        "sigma": judge.noise(size).noise_multiplier,
    }


def differences(task: Task, data: Trajectories, gram: Floats) -> dict[str, float]:
    """Between the weights found here and by `fit`, relative to the largest weight."""
    size, seed = task.sizes[0], 0
    change = whitening_matrix(task.features, gram)
    units, whitened = task.moments(data), task.moments(data, change)
    gtd, lstd = private_gtd(task, size, 1.0, 1.0, gram), private_lstd(task, size, 1.0, gram)
    # Few iterations: what is compared is the arithmetic, and saddle points amplify rounding.
    estimator = replace(gpope(task, size, 1.0, "certified"), iterations=20)
    keys = jnp.stack([reproducible(seed).key()])
    pairs = {
        "LSTD": (
            lstd_weights(units),
            LSTD(task.features, task.gamma, "trajectories").fit(data, task.target).weights,
        ),
        "GPOPE": (
            estimator._run(units, estimator.noise(len(units.b)), keys, [estimator.step])[0, 0],
            estimator.fit(data, task.target, session=PrivacySession(seed=seed)).weights,
        ),
        "PrivateLSTD": (
            fit_private_lstd(lstd, whitened, seed),
            lstd.fit(data, task.target, session=PrivacySession(seed=seed)).weights,
        ),
        "PrivateGTD": (
            change.T @ gtd.plan(task.form, units.count).run(whitened, reproducible(seed)),
            gtd.fit(data, task.target, session=PrivacySession(seed=seed)).weights,
        ),
    }
    return {
        name: float(np.max(np.abs(here - np.asarray(there))) / np.max(np.abs(here)))
        for name, (here, there) in pairs.items()
    }
