"""What the noise of `PrivateValue` costs: the shipped map, its optimum, and what was there before.

A person contributes moments f(w, Y); noise with covariance Sigma is calibrated to the largest
Mahalanobis distance between two people (replace-one). Rows give standard deviations of the noise on
the sums, for a mechanism whose sensitivity over std is 1, of w and wY together (the target's noise
is that times the cap) and of Y (the behaviour policy's), relative to `ball`:

- `ball`: diagonal map, charged twice the radius of the smallest ball, 2.650 (earlier versions);
- `diagonal`: the same map, charged the largest distance, sqrt(6);
- `shipped`: the map of `private_figures`, charged the largest distance;
- `optimum`: the covariance with the least Var(w) + Var(wY) + 0.15 Var(Y) + 0.05 (the others), by
  multiplicative weights on pairs of points; `gap` is how far its dual bound, which no covariance
  can go below, is away, and how far the shipped map's objective is above that bound.

The event that `PrivateValue` pays for is verified by the second accountant in the last rows.
"""

import math
from collections.abc import Iterator

import numpy as np

from privrl.core.types import Floats
from privrl.evaluation.private_figures import MAP
from privrl.evaluation.private_value import PrivateValue
from privrl.privacy import Budget, epsilon, second_accountant

# What is minimised: weights of the noise's variances, in the order of `moments`.
WEIGHTS = np.array([1.0, 1.0, 0.15, 0.05, 0.05, 0.05, 0.05, 0.05])
# The map of earlier versions, and the radius of the ball that held what it made of a person.
DIAGONAL = np.diag([1.5, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
RADIUS = math.sqrt(337 / 192)


def run(rounds: int = 3000) -> Iterator[dict[str, object]]:
    """A row for each mechanism, then the event."""
    apart = differences()
    ball = 4.0 * RADIUS**2 * _spread(DIAGONAL)
    found, dual = optimum(apart, rounds)
    kinds = {
        "ball": ball,
        "diagonal": _farthest(DIAGONAL, apart) * _spread(DIAGONAL),
        "shipped": _farthest(MAP, apart) * _spread(MAP),
        "optimum": found,
    }
    for name, covariance in kinds.items():
        stds, before = np.sqrt(np.diagonal(covariance)), np.sqrt(np.diagonal(ball))
        yield {
            "mechanism": name,
            "target": float(math.hypot(stds[0], stds[1]) / math.hypot(before[0], before[1])),
            "behavior": float(stds[2] / before[2]),
            "others": [float(x) for x in stds[3:] / before[3:]],
            "gap": float(WEIGHTS @ np.diagonal(covariance)) / dual - 1.0,
        }
    for grid in (False, True):
        judge = PrivateValue(Budget(1.0, 1e-6), 4.0, horizon=1, reward_range=(-1.0, 1.0), grid=grid)
        event = judge.mechanism.event
        bracket = second_accountant.bracket(event, 1e-6)
        yield {
            "event": str(event),
            "epsilon": epsilon(event, 1e-6),
            "floor": bracket.floor,
            "ceiling": bracket.ceiling,
        }


def differences() -> Floats:
    """Of the 24 points whose means hold every contribution (see `private_value`), pair by pair."""
    weights = [(0.0, 0.0), (0.25, 0.0), (0.75, 0.5), (1.0, 1.0)]
    returns = [(s * y, q) for y, q in ((0.25, 0.0), (0.75, 0.5), (1.0, 1.0)) for s in (1.0, -1.0)]
    points = np.array(
        [[w, w * y, y, u, u * y, u * q, w * q, q] for w, u in weights for y, q in returns]
    )
    i, j = np.triu_indices(len(points), 1)
    return np.asarray(points[i] - points[j])


def optimum(apart: Floats, rounds: int) -> tuple[Floats, float]:
    """A covariance with v' Sigma^-1 v <= 1 for every row v of `apart`, and the dual bound.

    For any shares p of the rows, tr(W Sigma) >= (tr (W^1/2 sum_k p_k v_k v_k' W^1/2)^1/2)^2: the
    sum of p_k v_k' Sigma^-1 v_k is at most 1, and Cauchy and Schwarz do the rest.
    """
    scaled = apart * np.sqrt(WEIGHTS)
    shares, dual = np.full(len(apart), 1.0 / len(apart)), 0.0
    for _ in range(rounds):
        values, vectors = np.linalg.eigh((scaled * shares[:, None]).T @ scaled)
        root = (vectors * np.sqrt(np.maximum(values, 1e-18))) @ vectors.T
        dual = float(np.trace(root)) ** 2
        lengths = np.vecdot(scaled @ np.linalg.inv(root), scaled) / math.sqrt(dual)
        shares = shares * lengths / float(shares @ lengths)
    covariance = root * math.sqrt(dual) / np.sqrt(np.outer(WEIGHTS, WEIGHTS))
    return covariance * float(lengths.max()), dual


def _farthest(matrix: Floats, apart: Floats) -> float:
    """The square of the largest distance, mapped."""
    return float(np.max(np.sum((apart @ matrix.T) ** 2, axis=1)))


def _spread(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix.T @ matrix))
