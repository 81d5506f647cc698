"""Seo and Yang (2020), "Differentially Private Actor and Its Eligibility Trace", run again.

What is printed: the grid that was searched (Table 1), the settings found best for DP-Actor
(Table 2), standard deviations of the performance (Table 3), cosine similarities of eligibility
traces (Table 4). Learning curves are printed as figures only, so there is no number to compare
them with; what the text says of their order is in `SAID`.

What is not printed, and what stands here for it: the rate of exploration (0.1), the temperature of
the softmax (1), the preferences and values to begin with (0), the settings of the other variants
(those of Table 2, or the best of `SUBGRID`), MDP-100's start (its first state), what `stay` does
(it stays), and the limit of its episodes (500 steps). Taxi-v2 has the map of that version and 200
steps. "Standard deviation of the performance" is taken to be that of the episodes' returns around
the mean curve of all runs.

`mode="paper"` experiments yield the paper's measures, and its claims; the certified ones hold a
promise for each person. Rows are plain dictionaries, for JSON.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from privrl.audit.attacks import Outputs
from privrl.audit.auditor import Audit, Target, audit
from privrl.control.actor_critic import ActorCritic, CertifiedProgram
from privrl.control.paper_actor_critic import (
    MEASURE,
    Config,
    Trained,
    trace_similarity,
    train,
)
from privrl.control.paper_parts import Acting, Variant
from privrl.core.errors import InputError
from privrl.data import OneHot, Policy, Polynomial, Tabular, collect
from privrl.envs import MDP100, Taxi
from privrl.envs.tabular import TabularMDP
from privrl.evaluation import DPLSL
from privrl.privacy.accounting import epsilon as spent
from privrl.privacy.events import ApproxDP
from privrl.privacy.noise import Source
from privrl.privacy.promise import Budget, Relation
from privrl.privacy.session import PrivacySession

Name = Literal["MDP-100", "Taxi-v2"]
Row = dict[str, Any]

# --- what is printed ------------------------------------------------------------------------------

STEPS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5)
TABLE_1: dict[str, tuple[float, ...]] = {
    "correction_step": STEPS,
    "critic_step": STEPS,
    "actor_step": STEPS,
    "lambda_": (0.0, 0.2, 0.4, 0.6, 0.8, 0.99),
    "epsilon": (0.1, 0.5, 1.0, 5.0, 10.0),
}
"""The ranges searched."""

TABLE_2: dict[str, dict[str, float]] = {
    "MDP-100": {"critic_step": 0.01, "correction_step": 0.5, "actor_step": 0.5, "lambda_": 0.8},
    "Taxi-v2": {"critic_step": 0.05, "correction_step": 0.05, "actor_step": 0.5, "lambda_": 0.0},
}
"""The best for DP-Actor; epsilon 10 and delta 1e-6 in both."""

TABLE_3: dict[str, dict[str, float]] = {
    "MDP-100": {"none": 30.26, "actor": 68.04, "critic": 27.1, "both": 66.63},
    "Taxi-v2": {"none": 43.47, "actor": 57.21, "critic": 50.03, "both": 52.72},
}
"""Standard deviations of the performance."""

TABLE_4: dict[str, dict[str, dict[str, float]]] = {
    "MDP-100": {
        "actor": {"actor": 0.021},
        "critic": {"critic": 0.839},
        "both": {"actor": 0.014, "critic": 0.497},
    },
    "Taxi-v2": {
        "actor": {"actor": -0.0008},
        "critic": {"critic": 0.035},
        "both": {"actor": -0.0001, "critic": 0.0146},
    },
}
"""Mean cosine similarity with the trace of the run without noise: by variant, then by trace."""

SAID = (
    "DP-Critic does best of the private variants, in both environments.",
    "DP-Actor is about as good at smaller budgets: down to 0.5 in MDP-100 and to 1 in Taxi-v2.",
    "DP-Critic is about as good down to 1 in MDP-100 and to 5 in Taxi-v2.",
    "DP-Actor and DP-Both vary more than DP-Critic (Table 3).",
    "Acting epsilon-greedily converges faster than by the softmax, with noise.",
)

SUBGRID: dict[str, tuple[float, ...]] = {
    "actor_step": (0.05, 0.1, 0.5),
    "critic_step": (0.01, 0.1, 0.5),
    "correction_step": (0.05,),
    "lambda_": (0.0, 0.8),
}
"""What is searched here for each variant, at epsilon 10: part of Table 1's ranges."""


def _settings(actor_step: float, critic_step: float, lambda_: float) -> dict[str, float]:
    return {
        "actor_step": actor_step,
        "critic_step": critic_step,
        "correction_step": 0.05,
        "lambda_": lambda_,
    }


BEST: dict[str, dict[str, dict[str, float]]] = {
    "MDP-100": {
        "none": _settings(0.5, 0.1, 0.8),
        "actor": _settings(0.05, 0.1, 0.8),
        "critic": _settings(0.05, 0.1, 0.8),
        "both": _settings(0.05, 0.01, 0.8),
    },
    "Taxi-v2": {
        "none": _settings(0.05, 0.1, 0.8),
        "actor": _settings(0.05, 0.1, 0.0),
        "critic": _settings(0.05, 0.01, 0.8),
        "both": _settings(0.05, 0.01, 0.0),
    },
}
"""The best of the sub-grid on seeds 0 to 9."""

BUDGETS = (10.0, 5.0, 1.0, 0.5, 0.1)
VARIANTS: tuple[Variant, ...] = ("none", "actor", "critic", "both")
NAMES: tuple[Name, ...] = ("MDP-100", "Taxi-v2")
DELTA = 1e-6
EPISODES = 500
LAST = 50
"""Episodes at the end that count as what was learned."""


def environment(name: str) -> TabularMDP:
    """The paper's environment of that name."""
    if name == "MDP-100":
        return MDP100()
    if name == "Taxi-v2":
        return Taxi(legacy_map=True)
    raise InputError(f"name must be 'MDP-100' or 'Taxi-v2', not {name!r}.")


Settings = Literal["printed", "best"]
"""Table 2's, or the best of the sub-grid."""


def config(name: str, variant: Variant, settings: Settings = "printed", **changed: Any) -> Config:
    """What the paper, or the search, found."""
    environment(name)
    found = TABLE_2[name] if settings == "printed" else BEST[name][variant]
    return Config(variant=variant, delta=DELTA, **{**found, **changed})


def keys(seeds: Iterable[int]) -> jax.Array:
    """A key for each seed, so that a seed means the same worlds in all experiments."""
    return jnp.stack([jax.random.key(seed) for seed in seeds])


# --- mode="paper" ---------------------------------------------------------------------------------


def run(chosen: Config, name: str, seeds: Sequence[int], episodes: int = EPISODES) -> Trained:
    """One lane for each seed."""
    return train(keys(seeds), chosen, environment(name), episodes)


def summary(found: Trained, lanes: slice = slice(None)) -> Row:
    """Of runs in the same settings: what was learned in the end, and how it varied."""
    returns, lengths = found.returns[lanes], found.lengths[lanes]
    weights = np.concatenate([found.actor[lanes], found.critic[lanes, :, None]], axis=2)
    mean, last = returns.mean(axis=0), returns[:, -LAST:].mean(axis=1)
    return {
        "runs": last.size,
        # Their preferences are no numbers, and the last action is taken for want of a best one.
        "diverged": int(np.sum(~np.isfinite(weights).all(axis=(1, 2)))),
        "mean_return": float(returns.mean()),
        "last_return": float(last.mean()),
        "standard_error": float(last.std(ddof=1) / np.sqrt(last.size)) if last.size > 1 else None,
        "deviation": float(np.sqrt(np.mean((returns - mean) ** 2))),
        "steps": float(lengths.mean()),
        "curve": [float(part.mean()) for part in np.array_split(mean, min(10, mean.size))],
    }


def searched(name: str, variant: Variant, seeds: Sequence[int]) -> Iterator[Row]:
    """Every setting of the sub-grid, best first, by the mean return of the last episodes."""
    found = []
    for values in product(*SUBGRID.values()):
        one = dict(zip(SUBGRID, values, strict=True))
        # Settings are numbers to the compiled run, so it is compiled once for all of them. Lanes of
        # one setting have episodes of about one length, and wait little for each other.
        swept: dict[str, Any] = {key: np.full(len(seeds), value) for key, value in one.items()}
        chosen = config(name, variant)
        played = train(keys(seeds), chosen, environment(name), EPISODES, swept)
        found.append((float(played.returns[:, -LAST:].mean()), one))
    for score, one in sorted(found, key=lambda pair: -pair[0]):
        yield {
            "experiment": "search",
            "environment": name,
            "variant": variant,
            "runs": len(seeds),
            "last_return": score,
            **one,
        }


def variants(seeds: Sequence[int], names: Sequence[str] = NAMES) -> Iterator[Row]:
    """Figure 2 and Table 3: the four variants, as printed and in the best settings found."""
    for name, settings, variant in product(names, get_args(Settings), VARIANTS):
        yield {
            "experiment": "variants",
            "environment": name,
            "settings": settings,
            "variant": variant,
            "epsilon": None if variant == "none" else 10.0,
            **summary(run(config(name, variant, settings), name, seeds)),
            "printed_deviation": TABLE_3[name][variant],
        }


def budgets(seeds: Sequence[int], names: Sequence[str] = NAMES) -> Iterator[Row]:
    """Figure 3: the best settings of each variant, with smaller epsilon."""
    for name, variant in product(names, VARIANTS[1:]):
        sigmas = [config(name, variant, "best", epsilon=one).multiplier for one in BUDGETS]
        swept: dict[str, Any] = {"sigma": np.repeat(sigmas, len(seeds))}
        found = train(
            keys(list(seeds) * len(BUDGETS)),
            config(name, variant, "best"),
            environment(name),
            EPISODES,
            swept,
        )
        for number, epsilon in enumerate(BUDGETS):
            lanes = slice(number * len(seeds), (number + 1) * len(seeds))
            yield {
                "experiment": "budgets",
                "environment": name,
                "variant": variant,
                "epsilon": epsilon,
                **summary(found, lanes),
            }


def acting(seeds: Sequence[int], names: Sequence[str] = NAMES) -> Iterator[Row]:
    """Figure 5: epsilon-greedy against softmax, in the best settings of the former."""
    for name, variant, way in product(names, VARIANTS, get_args(Acting)):
        yield {
            "experiment": "acting",
            "environment": name,
            "variant": variant,
            "acting": way,
            **summary(run(config(name, variant, "best", acting=way), name, seeds)),
        }


def similarities(seeds: Sequence[int], names: Sequence[str] = NAMES) -> Iterator[Row]:
    """Table 4: the paper's measure of anonymity, which promises nothing."""
    for name, variant in product(names, VARIANTS[1:]):
        found = trace_similarity(keys(seeds), config(name, variant), environment(name), EPISODES)
        yield {
            "experiment": "similarities",
            "environment": name,
            "variant": variant,
            "what": MEASURE,
            "runs": len(seeds),
            **found.summary(),
            "printed": TABLE_4[name][variant],
        }


def attack(variant: Variant = "actor", epsilon: float = 1.0, runs: int = 20_000) -> Audit:
    """What the auditor makes of the claim for a single step: it looks at the weights after it.

    One person takes one step in a table of two states. In one world it pays 20, in the other -1
    (Taxi's last step, and any other). Noise is added to the gradient, and the TD error then
    multiplies signal and noise alike, so the size of the weights gives the reward away.
    """
    worlds = [
        TabularMDP.from_dense(
            np.array([[[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]),
            np.array([[reward, reward], [0.0, 0.0]]),
            terminal=[False, True],
            start=[1.0, 0.0],
            step_limit=1,
        )
        for reward in (20.0, -1.0)
    ]
    claimed = Config(variant=variant, epsilon=epsilon, delta=DELTA, acting="softmax")

    def draw(world: int, count: int, source: Source) -> Outputs:
        found = train(jax.random.split(source.key(), count), claimed, worlds[world], 1)
        return [
            np.concatenate([actor.ravel(), critic])
            for actor, critic in zip(found.actor, found.critic, strict=True)
        ]

    promise = ApproxDP(epsilon, DELTA, relation=Relation.REPLACE_ONE)
    return audit(
        Target(
            f"seo2020, DP-{variant}, one step",
            draw,
            (promise,),
            Relation.REPLACE_ONE,
            DELTA,
            runs,
            note="the paper's claim, not ours",
        )
    )


# --- certified ------------------------------------------------------------------------------------

SHARED = ActorCritic(
    variant="none",
    features=Polynomial(1, [0.0], [99.0]),
    gamma=1.0,
    lambda_=0.9,
    return_range=(-500.0, 0.0),
    critic_weight=0.1,
    clip=0.1,
    actor_step=30.0,
    critic_step=0.1,
)
"""For MDP-100: preferences and values that all states share, linear in the position."""

TABLES = {
    "MDP-100": ActorCritic(
        variant="none",
        gamma=1.0,
        lambda_=0.9,
        return_range=(-500.0, 0.0),
        critic_weight=0.1,
        clip=0.03,
        actor_step=200.0,
        critic_step=1.0,
    ),
    "Taxi-v2": ActorCritic(
        variant="none",
        gamma=0.99,
        lambda_=0.9,
        return_range=(-600.0, 20.0),
        critic_weight=0.1,
        clip=0.03,
        actor_step=600.0,
        critic_step=10.0,
    ),
}
"""A number for each state and action, and for each state."""


def judged(env: TabularMDP, policy: Policy, seed: int, episodes: int = 200) -> float:
    """The mean return of a policy, undiscounted, over fresh episodes."""
    played = collect(env, policy, episodes, seed)
    return float(np.sum(played.rewards) / episodes)


def references(name: str, seed: int = 0, episodes: int = 2000) -> Row:
    """The best there is, and choosing at random."""
    env = environment(name)
    return {
        "experiment": "references",
        "environment": name,
        "optimal": judged(env, Tabular(env.optimal(1.0).policy), seed, episodes),
        "random": judged(env, Tabular(env.uniform()), seed, episodes),
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
