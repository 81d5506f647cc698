"""The certified actor-critic on the paper's environments: a promise for each person.

`privrl.control.ActorCritic` with features that states share and with tables, by number of people
and epsilon; and a critic that other people's data gave, after Lebensold et al. (2019).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import numpy as np

from privrl.control.actor_critic import ActorCritic, CertifiedProgram
from privrl.data import OneHot, Policy, Polynomial, Tabular, collect
from privrl.envs.tabular import TabularMDP
from privrl.evaluation import DPLSL
from privrl.papers.seo2020.experiments import DELTA, LAST, Row, environment, keys
from privrl.privacy.accounting import epsilon as spent
from privrl.privacy.promise import Budget
from privrl.privacy.session import PrivacySession

_MDP = ActorCritic(
    variant="none",
    gamma=1.0,
    lambda_=0.9,
    return_range=(-500.0, 0.0),
    critic_weight=0.1,
    clip=0.03,
    actor_step=200.0,
    critic_step=1.0,
)
SHARED = replace(
    _MDP, features=Polynomial(1, [0.0], [99.0]), clip=0.1, actor_step=30.0, critic_step=0.1
)
"""For MDP-100: preferences and values that all states share, linear in the position."""

TABLES = {
    "MDP-100": _MDP,
    "Taxi-v2": replace(
        _MDP, gamma=0.99, return_range=(-600.0, 20.0), actor_step=600.0, critic_step=10.0
    ),
}
"""A number for each state and action, and for each state."""


def mean_return(env: TabularMDP, policy: Policy, seed: int, episodes: int = 200) -> float:
    """The mean return of a policy, undiscounted, over fresh episodes."""
    played = collect(env, policy, episodes, seed)
    return float(np.sum(played.rewards) / episodes)


def references(name: str, seed: int = 0, episodes: int = 2000) -> Row:
    """The best there is, and choosing at random."""
    env = environment(name)
    return {
        "experiment": "references",
        "environment": name,
        "optimal": mean_return(env, Tabular(env.optimal(1.0).policy), seed, episodes),
        "random": mean_return(env, Tabular(env.uniform()), seed, episodes),
    }


def people(
    name: str,
    agent: ActorCritic,
    count: int,
    seeds: Sequence[int],
    epsilon: float | None = None,
    noise: Literal["independent", "correlated", "optimal"] = "correlated",
    batch: int | None = None,
) -> Row:
    """The mean return of the last tenth of `count` people, at least fifty, over seeds.

    `epsilon` is for each person; None for no noise. They are simulated, so their returns may be
    looked at.
    """
    given: dict[str, Any] = {"batch": batch or max(1, count // 100)}
    if epsilon is not None:
        given |= {"variant": "both", "budget": Budget(epsilon, DELTA), "noise": noise}
    program = CertifiedProgram(replace(agent, **given), environment(name), count)
    with jax.enable_x64(True):
        _, seen = program.advance(program.init(keys(seeds), {}), count)
        returns = np.asarray(seen["return"])
    last = returns[:, -max(50, count // 10) :].mean(axis=1)
    return {
        "experiment": "people",
        "environment": name,
        "table": agent.features is None,
        "people": count,
        "batch": program.batch,
        "epsilon": epsilon,
        "noise": None if epsilon is None else noise,
        "certified": None if program.event is None else spent(program.event, DELTA),
        "runs": len(seeds),
        "return": float(last.mean()),
        "standard_error": float(last.std(ddof=1) / np.sqrt(last.size)),
        "lowest": float(last.min()),
        "mean_return": float(returns.mean()),
    }


def warm_start(
    name: str,
    producers: int,
    consumers: int,
    seeds: Sequence[int],
    epsilon: float = 10.0,
) -> Iterator[Row]:
    """Lebensold et al. (2019): a critic by DP-LSL from other people, then plain learning.

    Beside it, learning from values of 0, and from the exact values of the producers' policy.
    """
    env, agent = environment(name), replace(TABLES[name], gamma=0.99, batch=5)
    uniform = Tabular(env.uniform())
    rewards = env.tables.rewards
    judge = DPLSL(
        features=OneHot(env.num_states),
        reward_range=(float(rewards.min()), float(rewards.max())),
        budget=Budget(epsilon, DELTA),
        gamma=0.99,
    )
    exact = np.asarray(env.values(env.uniform(), 0.99))
    for label in ("zero", "exact", "DP-LSL"):
        scores, errors = [], []
        for seed in seeds:
            critic: Any = {"zero": None, "exact": exact}.get(label)
            if label == "DP-LSL":
                critic = judge.fit(
                    collect(env, uniform, producers, seed), session=PrivacySession(seed=seed)
                )
                errors.append(float(np.sqrt(np.mean((critic.weights - exact) ** 2))))
            found = agent.learn(
                env, consumers, session=PrivacySession(seed=seed, public=True), critic=critic
            )
            assert found.curve is not None
            scores.append(float(found.curve[-LAST:].mean()))
        yield {
            "experiment": "warm start",
            "environment": name,
            "producers": producers if label == "DP-LSL" else None,
            "consumers": consumers,
            "critic": label,
            "epsilon": epsilon if label == "DP-LSL" else None,
            "critic_error": float(np.mean(errors)) if errors else None,
            "runs": len(scores),
            "last_return": float(np.mean(scores)),
            "standard_error": float(np.std(scores, ddof=1) / np.sqrt(len(scores))),
        }
