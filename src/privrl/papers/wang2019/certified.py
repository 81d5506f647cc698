"""Certified learning on the interval of Wang and Hegde (2019): what privacy leaves of the return.

The paper judges on one task, on which a constant policy is private and best. Here the secret is
which of *two* tasks it is: r(s) = 0.5 - |s - 0.5|, or its mirror 0.5 - r(s). They are 0.5 apart, so
a learner with radius R must not tell them apart better than over ceil(0.5 / R) steps between
neighbours. Figures are means over both tasks of the return, undiscounted over 50 steps, on 2,000
fresh episodes. A policy that does not look earns 12.5: what it gets in one task it loses in the
other, since the two returns add up to 25.
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from privrl.control import Descent, FunctionalQ, Network
from privrl.data import Policy
from privrl.data.policies import choose
from privrl.envs import Interval
from privrl.envs.base import episodes
from privrl.envs.control import IntervalParams

REWARD_RANGE = (0.0, 0.5)
EVAL_EPISODES = 2000
"""Fresh episodes for each learned policy."""

# Policies are looked up at so many positions, 0 and 1 included.
_POSITIONS = 2001


@dataclass(frozen=True)
class MirroredInterval(Interval):
    """The interval with rewards 0.5 - r: best at either end."""

    def reward(self, position: jax.Array, params: IntervalParams | None = None) -> jax.Array:
        given = params or self.default_params
        return jnp.asarray(given.height - super().reward(position, given))


TASKS: tuple[Interval, ...] = (Interval(), MirroredInterval())


_NETWORK = FunctionalQ(
    release="updates", reward_range=REWARD_RANGE, planner="network", network=Network((16,))
)
LEARNERS: dict[str, FunctionalQ] = {
    "reward model": FunctionalQ(reward_range=REWARD_RANGE),
    "noise on weights": FunctionalQ(release="weights", reward_range=REWARD_RANGE),
    "network, scaled updates": _NETWORK,
    "rewards perturbed": FunctionalQ(release="rewards", reward_range=REWARD_RANGE),
    "DP-SGD": replace(
        _NETWORK,
        descent=Descent(300, 0.02, 500, clip=0.05, target_every=5, optimiser="adam", average=0.3),
    ),
    "policy iteration": FunctionalQ(release="evaluations", reward_range=REWARD_RANGE),
}
"""All without a budget yet. The last three are the baselines of Figure 2, in a form that holds."""


def mean_return(task: Interval, policy: Policy, seed: int) -> float:
    """The mean return of fresh episodes, the policy looked up on a fine grid of positions."""
    positions = np.linspace(0.0, 1.0, _POSITIONS)[:, None]
    table = np.asarray(policy.probabilities(positions), np.float32)
    # Learning draws from other streams of the seed.
    key = jax.random.fold_in(jax.random.key(seed), 2019)
    return float(_returns(task, jnp.asarray(table), key))


@partial(jax.jit, static_argnums=0)
def _returns(task: Interval, table: jax.Array, key: jax.Array) -> jax.Array:
    def act(key: jax.Array, observation: jax.Array) -> jax.Array:
        at = jnp.round(observation[0] * (_POSITIONS - 1)).astype(jnp.int32)
        probs = table[at]
        chosen = choose(jnp, probs, jax.random.uniform(key, (), probs.dtype))
        return jnp.asarray(chosen, jnp.int32)

    played = episodes(task, act, key, EVAL_EPISODES)
    earned = jnp.where(played.valid, played.transitions.reward, 0.0)
    return jnp.asarray(jnp.mean(jnp.sum(earned, axis=1)))
