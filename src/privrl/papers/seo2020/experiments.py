"""The paper's environments and settings, runs by the compiled version, and an attack on its claim.

What the paper leaves open, and what stands here for it: the rate of exploration (0.1), the
temperature of the softmax (1), the preferences and values to begin with (0), MDP-100's start (its
first state), what `stay` does (it stays), and the limit of its episodes (500 steps). Taxi-v2 has
the map of that version and 200 steps. `targets` has the other readings, and the paper's tables and
figures.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from privrl.audit.attacks import Outputs
from privrl.audit.auditor import Audit, Target, audit
from privrl.core.errors import InputError
from privrl.envs import MDP100, Taxi
from privrl.envs.tabular import TabularMDP
from privrl.papers.seo2020.learner import ActorCritic
from privrl.papers.seo2020.printed import TABLE_2
from privrl.papers.seo2020.program import ActorCriticRuns, train
from privrl.papers.seo2020.spec import Variant
from privrl.privacy.events import ApproxDP
from privrl.privacy.noise import Source
from privrl.privacy.promise import Relation

Name = Literal["MDP-100", "Taxi-v2"]
Row = dict[str, Any]

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


def config(name: str, variant: Variant, **changed: Any) -> ActorCritic:
    """With the settings of Table 2."""
    environment(name)
    return ActorCritic(variant=variant, delta=DELTA, **{**TABLE_2[name], **changed})


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
