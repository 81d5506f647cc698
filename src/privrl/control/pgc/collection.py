"""A whole run as a `Program`: the compiled simulation, its settings, and agents' answers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from privrl.control.pgc.program import PGCProgram
from privrl.control.pgc.program_state import CollectionState
from privrl.core.errors import InputError
from privrl.privacy.mechanisms.sign import epsilon_share
from privrl.privacy.mechanisms.sign_jax import bernoulli_sigmoid

# So many answers at least are looked at together, and so many that the standard error is this.
_ANSWERS, _ERROR = 1000, 0.05


def answers_needed(epsilon: float) -> int:
    """How many answers are looked at together, if each spends so much: a thousand, or as many as
    it takes for a standard error of 0.05."""
    edge = math.tanh(float(epsilon_share(epsilon, 1)) / 2.0)
    return max(_ANSWERS, math.ceil((0.5 / (edge * _ERROR)) ** 2))


def check_buffer(buffer: float, reports: int) -> None:
    """Refuse a model that would never move."""
    if buffer > reports:
        raise InputError(
            f"An update takes {buffer:,.0f} reports, and there are {reports:,}: say more agents, "
            "or a smaller buffer."
        )


def _check_setting(name: str, values: Any) -> None:
    """Refuse settings of replicas that no run can have."""
    rules: dict[str, tuple[str, Any]] = {
        "buffer": ("a whole number of at least 1", (values >= 1.0) & (values == np.floor(values))),
        "rate": ("positive", values > 0.0),
        "gamma": ("from 0 to 1", (values >= 0.0) & (values <= 1.0)),
        "baseline": ("finite", True),
    }
    kind, fits = rules.get(name, ("zero or more", values >= 0.0))
    if not np.all(fits & np.isfinite(values)):
        raise InputError(f"must be {kind} in every replica.", field=name)


class CollectionProgramState(NamedTuple):
    """Where the replicas of a `CollectionProgram` stand: **private**."""

    inside: CollectionState
    yes: Any
    """(replicas,): how many of the last `asked` agents answered yes; these are not private."""


@dataclass(frozen=True)
class CollectionProgram:
    """A `PGCProgram` with values for the settings that replicas do not have, and with answers."""

    program: PGCProgram
    settings: tuple[tuple[str, float], ...]
    answers: tuple[float, float] | None = None
    """The score that agents are asked about, and the epsilon of one answer; None: nobody is."""

    @property
    def settings_by_name(self) -> dict[str, float]:
        """The settings, by name."""
        return dict(self.settings)

    @property
    def sweepable(self) -> tuple[str, ...]:
        return self.program.sweepable

    @property
    def batch(self) -> int:
        """Answers are looked at so many at a time."""
        return 1 if self.answers is None else answers_needed(self.answers[1])

    def init(self, keys: jax.Array, settings: Mapping[str, Any]) -> CollectionProgramState:
        for name, x in settings.items():
            if not isinstance(x, jax.core.Tracer):
                _check_setting(name, np.asarray(x))
                if name == "buffer":
                    check_buffer(float(np.max(x)), self.program.agents)
        plain: dict[str, Any] = {name: np.full(keys.shape[0], x) for name, x in self.settings}
        inside = self.program.init(keys, {**plain, **settings})
        return CollectionProgramState(inside, jnp.zeros(keys.shape[0], jnp.int32))

    def advance(
        self, state: CollectionProgramState, episodes: int
    ) -> tuple[CollectionProgramState, dict[str, jax.Array]]:
        before = state.inside.aggregators.accepted
        inside, seen = self.program.advance(state.inside, episodes)
        if self.answers is None:
            return CollectionProgramState(inside, state.yes), seen
        told = _randomise_answers(self.answers, inside.noise, before, seen["return"])
        number = before[:, None] + jnp.arange(episodes)
        # Since when answers are counted: those of a batch that is whole until the next begins.
        now = inside.aggregators.accepted
        since = now - self.num_answers(now)
        kept = jnp.where(before - self.num_answers(before) == since, state.yes, 0)
        fresh = jnp.sum(told & (number >= since[:, None]), axis=1)
        return CollectionProgramState(inside, (kept + fresh).astype(jnp.int32)), seen

    def num_answers(self, reports: Any) -> Any:
        """Of how many answers `yes` tells after so many reports: at most a batch."""
        return jnp.where(reports > 0, (reports - 1) % self.batch + 1, 0)


@partial(jax.jit, static_argnums=0)
def _randomise_answers(
    asked: tuple[float, float], noise: jax.Array, first: Any, scores: Any
) -> Any:
    """(replicas, agents): what agents with these scores say, the first of which have these numbers.

    Randomised response, exact: a coin of its own for each agent, from the replica's key of the
    noise.
    """
    target, epsilon = asked
    coin = epsilon_share(epsilon, 1)

    def of_replica(noise: jax.Array, first: Any, scores: Any) -> Any:
        # No report has this number.
        apart = jax.random.fold_in(noise, jnp.uint32(2**32 - 1))
        number = (first + jnp.arange(scores.size)).astype(jnp.uint32)
        keys = jax.vmap(partial(jax.random.fold_in, apart))(number)
        honest = jax.vmap(lambda key: bernoulli_sigmoid(key, coin, ()))(keys)
        # A score that is not a number is no. Targets may be beyond what 32 bits hold.
        return (scores.astype(jnp.float64) >= target) == honest

    return jax.vmap(of_replica)(noise, first, scores)
