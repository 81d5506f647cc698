"""Mountain car and HIV: the tasks of xie2019, figures 2 to 4 and 6, and what judges them.

Policies come from `privrl.control.QLearning`. `privrl.papers.xie2019.trials` runs them.

- Mountain car, gamma 0.99, 36 Fourier features of order 5. On-policy: the learned policy with
  epsilon 0.1. Off-policy, as in the paper: the learned policy (epsilon 0.3) acts, and the uniform
  policy is judged.
- HIV, gamma 0.98, 28 polynomial features of the states' logarithms, rewards in units of 100,000
  (about the mean reward of the judged policy, by which the paper divides too). As in the paper a
  softmax of the learned values acts, and the learned, greedy, policy is judged.

Settings of `PrivateGTD` and `PrivateLSTD` (`CHOSEN`) were chosen by hand from small grids, on data
and noise of seeds 0 to 9. The Gram matrix that they are preconditioned with comes from 1000
simulated episodes of seed 0, declared public: the same assumption under which the paper tunes its
step sizes. GPOPE is given it too.

DP-LSW is judged on-policy only, and on a grid of cells, as it needs discrete states; DP-LSL, and
both of them off-policy, would not be private and are refused.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

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
from privrl.evaluation.bellman_error import UnitMoments, unit_moments
from privrl.evaluation.dplsw import DPLSW
from privrl.evaluation.gtd_iterations import Form
from privrl.evaluation.private_gtd import PrivateGTD
from privrl.evaluation.private_lstd import PrivateLSTD, clip_factors, weighted_sum
from privrl.evaluation.sums import Sums
from privrl.papers.xie2019 import output_perturbation
from privrl.papers.xie2019.printed import HIV_OFF, MOUNTAIN_CAR_OFF, MOUNTAIN_CAR_ON
from privrl.privacy import Budget
from privrl.privacy.session import PrivacySession

DELTA = 1e-5

CELLS = 20
"""To a side of the grid on which DP-LSW, which needs discrete states, judges the car."""

CAR = Fourier(order=5, low=(-1.2, -0.07), high=(0.6, 0.07))
PATIENT = Polynomial(
    degree=2, low=(4.5, -1.0, -1.0, -2.0, -1.0, 0.5), high=(6.0, 3.5, 5.5, 3.0, 6.5, 6.0)
)

ON, OFF, TREATED = MOUNTAIN_CAR_ON, MOUNTAIN_CAR_OFF, HIV_OFF


class Chosen(NamedTuple):
    """Settings of the estimators for a task, a number of trajectories and an epsilon."""

    gtd: tuple[int, float, tuple[float, float]]
    """Iterations, step, first and last clip bound of PrivateGTD."""

    lstd: tuple[float, float]
    """Clip bound and matrix weight of PrivateLSTD."""


CHOSEN: dict[tuple[str, int, float], Chosen] = {
    (ON, 1000, 0.1): Chosen((10, 3.0, (0.1, 0.1)), (0.5, 0.1)),
    (ON, 1000, 1.0): Chosen((100, 3.0, (1.0, 0.3)), (4.0, 0.1)),
    (ON, 5000, 0.1): Chosen((100, 1.0, (1.0, 0.3)), (4.0, 0.1)),
    (ON, 5000, 1.0): Chosen((100, 4.0, (1.0, 1.0)), (4.0, 3.0)),
    (OFF, 1000, 0.1): Chosen((10, 1.0, (0.1, 0.1)), (0.5, 0.3)),
    (OFF, 1000, 1.0): Chosen((100, 3.0, (1.0, 0.3)), (4.0, 0.1)),
    (OFF, 5000, 0.1): Chosen((100, 3.0, (1.0, 0.3)), (4.0, 0.1)),
    (OFF, 5000, 1.0): Chosen((100, 3.0, (1.0, 0.3)), (2.0, 1.0)),
    (TREATED, 1000, 0.1): Chosen((50, 0.3, (0.1, 0.1)), (0.5, 0.3)),
    (TREATED, 1000, 1.0): Chosen((200, 1.0, (0.3, 0.3)), (1.0, 1.0)),
    (TREATED, 4000, 0.1): Chosen((200, 1.0, (0.3, 0.3)), (0.5, 0.3)),
    (TREATED, 4000, 1.0): Chosen((200, 1.0, (0.3, 0.3)), (1.0, 1.0)),
}


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


@cache
def learned(name: str) -> LearnedQValues:
    """What the policies of a task come from, learned once in a process."""
    if name == TREATED:
        return QLearning(**PATIENT_SETTINGS).learn(HIV(), seed=4)
    return QLearning(**CAR_SETTINGS).learn(MountainCar(), seed=0)


def task(name: str) -> Task:
    """The task of that name, with its policies learned."""
    # Both mountain cars have the same.
    values = learned(TREATED if name == TREATED else ON)
    if name == TREATED:
        # Softmax gives the best of four actions at least 1/4: the cap caps nothing.
        return Task(
            name=TREATED,
            env=HIV(),
            behavior=values.softmax(1e5),
            target=values.policy,
            features=PATIENT,
            gamma=0.98,
            reward_unit=1e5,
            reward_range=(-1.0, 15.0),
            weight_cap=4.0,
            form="primal-dual",
        )
    on = Task(
        name=ON,
        env=MountainCar(),
        behavior=values.epsilon_greedy(0.1),
        target=None,
        features=CAR,
        gamma=0.99,
        reward_unit=1.0,
        reward_range=(-1.0, 0.0),
        weight_cap=None,
        form="residual",
    )
    if name == ON:
        return on
    uniform = FunctionPolicy(lambda states: np.full((len(states), 3), 1.0 / 3.0), 3)
    # Ratios are at most (1/3) / 0.1: nor does this one.
    return replace(
        on, name=OFF, behavior=values.epsilon_greedy(0.3), target=uniform, weight_cap=3.4
    )


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


def private_gtd(task: Task, size: int, epsilon: float, gram: Floats) -> PrivateGTD:
    iterations, step, clip = CHOSEN[task.name, size, epsilon].gtd
    return PrivateGTD(
        **task.options(epsilon),
        reward_range=task.reward_range,
        form=task.form,
        iterations=iterations,
        step=step,
        clip=clip,
        precondition=gram,
    )


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
