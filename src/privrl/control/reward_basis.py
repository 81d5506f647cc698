"""What a reward model is made of: features of (state, action), and weights of a rollout's points.

Both are public. `PerAction` makes features of rows (state, action) of those of states;
`design_weights` chooses the probabilities of points under which features are made orthonormal. What
rewards become before they are noised (`mean_rewards`, `horizon_returns`) is **private**.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privrl.control.rollouts import Rollout
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data.features import features_from_dict
from privrl.privacy.mechanisms.reward_model import Cosine, Legendre, RewardModelMechanism

# Beyond this, making features orthonormal takes minutes.
_MAX_FEATURES = 1000


@dataclass(frozen=True)
class PerAction:
    """Features of states, once for each action: of rows (state, action), in NumPy."""

    features: Any
    actions: int

    def __call__(self, points: Any) -> Floats:
        rows = np.asarray(points, np.float64)
        states = rows[:, 0] if rows.shape[1] == 2 else rows[:, :-1]
        phi = np.asarray(self.features(states), np.float64)
        taken = rows[:, -1, None] == np.arange(self.actions)
        return np.asarray((taken[:, :, None] * phi[:, None, :]).reshape(len(rows), -1))

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "per-action",
            "features": self.features.to_dict(),
            "actions": self.actions,
        }


def reward_features_from_dict(data: Mapping[str, Any]) -> Any:
    """The features of a reward model of which `to_dict` gave the JSON form."""
    settings = {name: value for name, value in data.items() if name != "kind"}
    if data["kind"] == "per-action":
        inside = reward_features_from_dict(settings["features"])
        return PerAction(inside, checks.count("actions", settings["actions"]))
    boxes: dict[str, Any] = {"cosine": Cosine, "legendre": Legendre}
    if data["kind"] in boxes:
        return boxes[data["kind"]](**settings)
    return features_from_dict(data)


def design_weights(points: Floats, features: Any, shares: Floats, rounds: int) -> Floats:
    """Public probabilities of public points: `shares`, made more even in a model's noise.

    The noise of a model at x has the standard deviation std |psi(x)|, psi orthonormal under the
    weights; |psi|^2 has the mean q, the number of features, whatever the weights. Each round
    multiplies w_i by |psi(x_i)|^2 / q, which raises the determinant of the features' second moments
    (Titterington 1976) and leads to where the largest |psi|^2 is q (Kiefer, Wolfowitz 1960). With a
    table it gives all states visited the same weight.
    """
    if np.shape(features(points[:1]))[-1] > _MAX_FEATURES:
        raise InputError(
            f"A reward model takes at most {_MAX_FEATURES} features: use fewer, or release "
            "'rewards'."
        )
    weights = shares
    if rounds == 0:
        return weights
    # The same functions, orthonormal under equal weights: of full rank, whatever the features.
    psi = RewardModelMechanism(1.0, 1.0, points, features).matrix.T * len(points)
    for _ in range(rounds):
        moments = psi.T @ (weights[:, None] * psi)
        weights = weights * np.sum(psi * np.linalg.solve(moments, psi.T).T, axis=1)
        weights /= weights.sum()
    return np.asarray(weights)


# --- what rewards become, before noise ------------------------------------------------------------


def unique_points(points: Floats) -> tuple[Floats, Floats, Any]:
    """Each distinct point, its share of the steps, and which of them each step's is; public."""
    table = points.reshape(len(points), -1)
    found, where, visits = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    return found.reshape(-1, *points.shape[1:]), visits / len(points), where.ravel()


def mean_rewards(where: Any, rewards: Floats) -> Floats:
    """The mean reward of each distinct point: if no reward moves by more than R, no mean does.

    Sums are rounded once, so that this is true of what is computed but for a share of 1e-15.
    """
    order = np.argsort(where, kind="stable")
    counts = np.bincount(where)
    parts = np.split(rewards[order], np.cumsum(counts)[:-1])
    return np.array([math.fsum(part) for part in parts]) / counts


def horizon_weight(gamma: float, horizon: int) -> float:
    """h = 1 + gamma + ... + gamma^(H-1), rounded up."""
    return math.fsum(gamma**k for k in range(horizon)) * (1.0 + 1e-12)


def horizon_returns(
    rollout: Rollout, rewards: Floats, gamma: float, horizon: int
) -> tuple[Any, Floats]:
    """Sums of `horizon` rewards from some steps on, and which steps they are. **Private** sums.

    They are cut where an episode ends. The steps are those whose sum is whole, or was cut by
    termination; all of them, if there are none such. So a sum moves by at most R h.
    """
    count = len(rollout)
    sums, here = np.zeros(count), np.arange(count)
    going, over = np.ones(count, bool), np.zeros(count, bool)
    for k in range(horizon):
        at = np.minimum(here + k, count - 1)
        going = going & (here + k < count)
        sums += np.where(going, gamma**k * rewards[at], 0.0)
        # Whole: it was cut by termination, or the last reward of the horizon was counted.
        over |= going & (rollout.terminated[at] | (k == horizon - 1))
        going = going & ~(rollout.terminated[at] | rollout.truncated[at])
    rows = np.flatnonzero(over)
    rows = rows if rows.size else here
    return rows, sums[rows]
