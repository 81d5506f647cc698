"""The paper's experiments, run again beside the printed numbers.

What the paper leaves open, and what stands here for it: the rate of exploration (0.1), the
temperature of the softmax (1), the preferences and values to begin with (0), the settings of the
other variants (those of Table 2, or the best of `SUBGRID`), MDP-100's start (its first state), what
`stay` does (it stays), and the limit of its episodes (500 steps). Taxi-v2 has the map of that
version and 200 steps. "Standard deviation of the performance" is taken to be that of the episodes'
returns around the mean curve of all runs.

They yield the paper's measures, and its claims. Rows are plain dictionaries, for JSON.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from privrl.audit.attacks import Outputs
from privrl.audit.auditor import Audit, Target, audit
from privrl.core.errors import InputError
from privrl.envs import MDP100, Taxi
from privrl.envs.tabular import TabularMDP
from privrl.papers.seo2020.learner import ActorCritic
from privrl.papers.seo2020.printed import TABLE_2, TABLE_3, TABLE_4
from privrl.papers.seo2020.program import ActorCriticRuns, train
from privrl.papers.seo2020.similarity import MEASURE, trace_similarity
from privrl.papers.seo2020.spec import Acting, Variant
from privrl.privacy.events import ApproxDP
from privrl.privacy.noise import Source
from privrl.privacy.promise import Relation

Name = Literal["MDP-100", "Taxi-v2"]
Row = dict[str, Any]

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
    raise InputError(f"must be 'MDP-100' or 'Taxi-v2', not {name!r}.", field="name")


Settings = Literal["printed", "best"]
"""Table 2's, or the best of the sub-grid."""


def config(
    name: str, variant: Variant, settings: Settings = "printed", **changed: Any
) -> ActorCritic:
    """What the paper, or the search, found."""
    environment(name)
    found = TABLE_2[name] if settings == "printed" else BEST[name][variant]
    return ActorCritic(variant=variant, delta=DELTA, **{**found, **changed})


def keys(seeds: Iterable[int]) -> jax.Array:
    """A key for each seed, so that a seed means the same worlds in all experiments."""
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def run(
    chosen: ActorCritic, name: str, seeds: Sequence[int], episodes: int = EPISODES
) -> ActorCriticRuns:
    """A replica for each seed."""
    return train(keys(seeds), chosen, environment(name), episodes)


def summary(found: ActorCriticRuns, replicas: slice = slice(None)) -> Row:
    """Of runs in the same settings: what was learned in the end, and how it varied."""
    returns, lengths = found.returns[replicas], found.lengths[replicas]
    weights = np.concatenate([found.actor[replicas], found.critic[replicas, :, None]], axis=2)
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


def search(name: str, variant: Variant, seeds: Sequence[int]) -> Iterator[Row]:
    """Every setting of the sub-grid, best first, by the mean return of the last episodes."""
    found = []
    for values in product(*SUBGRID.values()):
        one = dict(zip(SUBGRID, values, strict=True))
        # Settings are numbers to the compiled run, so it is compiled once for all of them. Replicas
        # of one setting have episodes of about one length, and wait little for each other.
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
            replicas = slice(number * len(seeds), (number + 1) * len(seeds))
            yield {
                "experiment": "budgets",
                "environment": name,
                "variant": variant,
                "epsilon": epsilon,
                **summary(found, replicas),
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
    claimed = ActorCritic(variant=variant, epsilon=epsilon, delta=DELTA, acting="softmax")

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
