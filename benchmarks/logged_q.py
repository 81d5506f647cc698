"""What people's number and privacy leave of a policy that is learned from logged data.

People act at random on the interval of Wang and Hegde (2019), 50 steps each, and `LoggedQ` learns
from their trajectories by its own settings, with four Fourier features. Returns are of its policy
on 2,000 fresh episodes, undiscounted, as mean and smallest over five seeds of data and noise.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.wang2019 import optima
from privrl.control import LoggedQ
from privrl.data import Fourier, Softmax, collect
from privrl.envs import Interval
from privrl.papers.wang2019.certified import REWARD_RANGE, mean_return
from privrl.privacy import Budget
from privrl.privacy.session import PrivacySession

ENV = Interval()
FEATURES = Fourier(3, (0.0,), (1.0,))
BLIND = Softmax(FEATURES, np.zeros((FEATURES.dimension, ENV.num_actions)))
DELTA = 1e-5
EPSILONS = (None, 10.0, 1.0)
PEOPLE = (50, 100, 200, 500, 2000)


def run(
    seeds: Sequence[int] = range(100, 105), people: Sequence[int] = PEOPLE
) -> Iterator[dict[str, Any]]:
    blind = np.mean([mean_return(ENV, BLIND, seed) for seed in seeds])
    yield {"what": "returns that frame the others", "behaviour": blind, "optimum": optima()[0]}
    for count in people:
        data = {seed: collect(ENV, BLIND, count, seed) for seed in seeds}
        for epsilon in EPSILONS:
            budget = None if epsilon is None else Budget(epsilon, DELTA)
            learner = LoggedQ(ENV.num_actions, REWARD_RANGE, budget, FEATURES)
            returns = [
                mean_return(ENV, learner.fit(data[s], session=PrivacySession(seed=s)).policy, s)
                for s in seeds
            ]
            yield {
                "people": count,
                "epsilon": epsilon,
                "return": float(np.mean(returns)),
                "smallest": float(np.min(returns)),
            }
