"""The papers' experiments, at sizes that take no time."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.golden.running import Cases

CASES = Cases()


def _learned(name: str) -> Callable[[Callable[[], Any]], None]:
    return lambda call: CASES.add(name, call, "learned")


@_learned("paper-seo2020")
def _seo2020() -> Any:
    from privrl.papers.seo2020 import experiments

    played = experiments.run(experiments.config("MDP-100", "both"), "MDP-100", [7, 8], 3)
    return {
        "actor": played.actor,
        "critic": played.critic,
        "returns": played.returns,
        "summary": experiments.summary(played),
    }


@_learned("paper-wang2019")
def _wang2019() -> Any:
    from benchmarks import wang2019 as wang2019_certified

    return {
        "ceiling": [wang2019_certified.ceiling(b, 0.1) for b in _budgets()],
        "optima": wang2019_certified.optima(),
    }


def _budgets() -> Any:
    from privrl.privacy import Budget

    return [Budget(0.5, 1e-4), Budget(3.0, 1e-4)]


@_learned("paper-rajabi2022")
def _rajabi2022() -> Any:
    from benchmarks import rajabi2022 as rajabi2022_certified
    from privrl.envs import ObstacleGrid
    from privrl.risk import Prospect, solve

    small = ObstacleGrid(size=3, obstacles=((1, 1, 20.0), (2, 1, 5.0)))
    prospect = Prospect.tversky_kahneman()
    solved = solve(small, prospect, 0.9)
    return {
        "certified": list(
            rajabi2022_certified.certified_rows(
                [0], epsilons=[10.0], radii=[1e-3], prospects=["tversky-kahneman"],
                learners=["reward model"], env=small,
            )
        ),
        "small": rajabi2022_certified.references(small, prospect),
        "visits": rajabi2022_certified.visits(small, small.uniform()),
        "solved": {"policy": solved.policy, "values": solved.values, "gap": solved.gap},
    }  # fmt: skip


@_learned("paper-gambles")
def _gambles() -> Any:
    from benchmarks import gambles as paper

    return {
        "choices": list(
            paper.choices(
                [0, 1], gambles=paper.GAMBLES[:1], prospects=["tversky-kahneman"],
                epsilons=[10.0], people=[40],
            )
        ),
        "gambles": [
            {
                "chosen": one.is_worth_taking(prospect),
                "best": one.best_prob(prospect),
                "values": one.value(prospect, np.linspace(0.0, 1.0, 5)),
            }
            for one in paper.GAMBLES
            for prospect in paper.PROSPECTS.values()
        ],
    }  # fmt: skip


@_learned("paper-ono2020")
def _ono2020() -> Any:
    from privrl.envs import CartPole
    from privrl.papers.ono2020 import experiments as ono2020

    short = CartPole(step_limit=12)
    found = ono2020.experiment("sign", [2.0], [0, 1], 120, control=False, env=short)
    return {"tables": list(found.tables()), "figure 3": list(found.figure_3(6))}
