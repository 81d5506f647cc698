"""Proposition 10 of Wang and Hegde (2019), on the interval with n states.

For one path of noise (J = 1), n states and gamma < 1 it says of the learned v' and the optimum v*

    E[ (1 / n) ||v' - v*||_1 ] <= 2 sqrt(2) sigma / (sqrt(n pi) (1 - gamma)),

which goes to 0 as n grows. Where Algorithm 1 converges is known exactly. It learns by

    Q(s, a) + g_a(s)  ->  r + gamma max_b (Q(s', b) + g_b(s')),

and with one path g stands still, so that Z = Q + g is learned by Q-learning without noise: Z = Q*.
What is returned in line 24 is the trained Q = Q* - g, so v'(s) = max_a (Q*(s, a) - g_a(s)). Its
distance from v* does not depend on n: with one action it is E|g| = sigma sqrt(2 / pi). So the bound
fails from some n on. (Had Z been meant, the error would be 0, and Q unprotected where g is known.)
"""

import math
from functools import lru_cache

import numpy as np

from privrl.core.types import Floats

REACH = 0.25
"""How far an action leads at most, as in `privrl.envs.Interval`."""


def bound(sigma: float, states: int, gamma: float) -> float:
    """The right-hand side."""
    return 2.0 * math.sqrt(2.0) * sigma / (math.sqrt(states * math.pi) * (1.0 - gamma))


@lru_cache(8)
def optimal_values(states: int, gamma: float) -> Floats:
    """Q*, (states, 2): right and left by any of up to a quarter of the states, all alike."""
    place = (np.arange(states) + 0.5) / states
    reward = 0.5 - np.abs(place - 0.5)
    most = max(1, round(REACH * states))
    before, after = np.arange(states) - most, np.arange(states) + most
    q = np.zeros((states, 2))
    for _ in range(math.ceil(math.log(1e-10) / math.log(gamma))):
        worth = reward + gamma * q.max(axis=1)
        # Steps past an end stay at it.
        padded = np.concatenate([np.full(most, worth[0]), worth, np.full(most, worth[-1])])
        sums = np.concatenate([[0.0], np.cumsum(padded)])
        right = sums[after + most + 1] - sums[np.arange(states) + most + 1]
        left = sums[np.arange(states) + most] - sums[before + most]
        q = np.stack([right, left], axis=1) / most
    return q


def draw_path(states: int, rate: float, source: np.random.Generator) -> Floats:
    """(states, 2): for each action a path of covariance exp(-rate |x - y|), from left to right."""
    keep = math.exp(-rate / states)
    path = source.standard_normal((states, 2))
    path[1:] *= math.sqrt(1.0 - keep**2)
    for k in range(1, states):
        path[k] += keep * path[k - 1]
    return path


def mean_error(states: int, gamma: float, sigma: float, rate: float, seed: int) -> float:
    """(1 / n) ||v' - v*||_1 of what Algorithm 1 converges to, with the path of a seed."""
    q = optimal_values(states, gamma)
    noise = sigma * draw_path(states, rate, np.random.default_rng([2019, seed]))
    return float(np.mean(np.abs(np.max(q - noise, axis=1) - np.max(q, axis=1))))
