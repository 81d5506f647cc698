"""The paper's measure of anonymity: cosine similarities of eligibility traces (Table 4)."""

import math
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from privrl.core.types import Floats
from privrl.envs.tabular import TabularMDP
from privrl.papers.seo2020.learner import ActorCritic
from privrl.papers.seo2020.program import ActorCriticProgram


class Similarity(NamedTuple):
    """Table 4: cosine similarities of traces, episode by episode. Not a guarantee of anything."""

    actor: Floats
    """(episodes,); NaN where a trace is 0."""

    critic: Floats
    """(episodes,)."""

    def summary(self) -> dict[str, float]:
        """Mean and variance over episodes, of each trace."""
        found = {}
        for name, values in (("actor", self.actor), ("critic", self.critic)):
            valid = values[np.isfinite(values)]
            found[f"{name}_mean"] = float(np.mean(valid)) if valid.size else math.nan
            found[f"{name}_variance"] = float(np.var(valid)) if valid.size else math.nan
        return found


def trace_similarity(
    keys: jax.Array, config: ActorCritic, env: TabularMDP, episodes: int
) -> Similarity:
    """Cosine similarity of a noised run's traces with those of the run without noise.

    As in Figure 4 of the paper: traces as they stand at the end of an episode, averaged over runs
    (`keys`) first. Both start from the same keys.
    """
    found = []
    for one in (replace(config, variant="none"), config):
        program = ActorCriticProgram(one, env, sweeps_lambda=True)
        _, actor, critic = program.traces(program.init(keys), episodes)
        found.append((actor.reshape(episodes, -1), critic))
    (actor, critic), (noised_actor, noised_critic) = found
    return Similarity(_cosine(actor, noised_actor), _cosine(critic, noised_critic))


def _cosine(first: Floats, second: Floats) -> Floats:
    """Row by row; NaN where a row is 0."""
    sizes = [np.linalg.norm(one, axis=1) for one in (first, second)]
    valid = (sizes[0] > 0.0) & (sizes[1] > 0.0)
    safe = [np.where(valid, size, 1.0)[:, None] for size in sizes]
    products = np.sum((first / safe[0]) * (second / safe[1]), axis=1)
    return np.where(valid, products, np.nan)
