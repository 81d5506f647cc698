"""Compiled runs of the paper's actor-critic: many replicas at once, each with its key and settings.

A replica is one run. Replicas begin each episode together. Each has three random streams, for the
world, the actions and the noise; both ways of drawing noise (`fast`, `dense`) use the first two
alike. All in 64 bits.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from privrl.control.replicas import setting_arrays
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs.base import Environment
from privrl.envs.host import HostEnvironment
from privrl.envs.tabular import TabularMDP
from privrl.papers.seo2020 import parts
from privrl.papers.seo2020.dense import dense_episode
from privrl.papers.seo2020.fast import lazy_episode, with_pending_noise
from privrl.papers.seo2020.parts import LearnerState, StaticConfig, World
from privrl.papers.seo2020.spec import ActorCriticSpec

if TYPE_CHECKING:
    from privrl.papers.seo2020.learner import ActorCritic


@partial(jax.jit, static_argnames=("form", "episodes", "keep"))
def _advance(
    form: StaticConfig, world: World, state: LearnerState, episodes: int, keep: bool = False
) -> tuple[LearnerState, Any]:
    """The state after so many episodes, and returns and lengths (replicas, episodes).

    With `keep` instead the traces at the end of each, averaged over replicas: (episodes, S, A) and
    (episodes, S).
    """

    def body(now: LearnerState, _: None) -> tuple[LearnerState, Any]:
        play = dense_episode if form.dense else lazy_episode
        after, (seen, kept) = play(form, world, now, keep)
        return after, jax.tree.map(lambda trace: jnp.mean(trace, axis=-1), kept) if keep else seen

    after, found = lax.scan(body, state, None, length=episodes)
    return after, found if keep else {name: values.T for name, values in found.items()}


@partial(jax.jit, static_argnames="form")
def _flush(form: StaticConfig, state: LearnerState) -> LearnerState:
    row = parts.unpack_row(form, state.rows.T)
    # Of the coming episode, a part that no episode draws from.
    normals = parts.normals(state, 1 + form.blocks, (form.actions + 1, form.states))
    packed = parts.pack_row(with_pending_noise(row, state, normals))
    return state._replace(rows=packed.T)


class ActorCriticRuns(NamedTuple):
    """What `train` gives back, of each replica. Nothing here is certified."""

    actor: Floats
    """u, (replicas, S, A)."""

    critic: Floats
    """v, (replicas, S)."""

    correction: Floats
    """w, (replicas, S)."""

    returns: Floats
    """(replicas, episodes), undiscounted."""

    lengths: NDArray[np.int64]
    """(replicas, episodes)."""


class ActorCriticProgram:
    """The learner as a `privrl.control.program.Program`."""

    sweepable: tuple[str, ...] = ActorCriticSpec.SWEEPABLE

    def __init__(
        self,
        config: "ActorCritic",
        env: Environment[Any, Any] | HostEnvironment,
        *,
        sweeps_lambda: bool = False,
    ) -> None:
        """`sweeps_lambda` says that settings will hold `lambda_`, so that traces are needed even if
        the config's own lambda is 0."""
        if not isinstance(env, TabularMDP):
            raise InputError(
                f"The paper's actor-critic is for tables of states, and {env.name} has none."
            )
        limits = [limit for limit in (env.step_limit, config.max_steps) if limit is not None]
        if not limits:
            raise InputError(f"{env.name} sets no limit to an episode: say max_steps.")
        self.config = config
        self.env = env
        self.form = StaticConfig(
            states=env.num_states,
            actions=env.num_actions,
            horizon=min(limits),
            acting=config.acting,
            variant=config.variant,
            clip=None if config.clip == "median" else float(config.clip),
            correction=config.correction,
            traces=sweeps_lambda or bool(np.any(np.asarray(config.lambda_) != 0.0)),
            dense=config.dense,
        )
        given = env.default_params
        successors = np.asarray(given.successors)
        pairs = successors.shape[0] * successors.shape[1]
        columns = (successors, given.rewards, given.terminated)
        outcomes = np.stack([np.asarray(one, np.float64).ravel() for one in columns], axis=1)
        cumulative = np.asarray(given.cumulative, np.float64)[:, :, :-1].reshape(pairs, -1)
        with jax.enable_x64(True):
            self._world = World(
                jnp.asarray(cumulative), jnp.asarray(outcomes), jnp.asarray(given.start)
            )

    def init(
        self, keys: jax.Array, settings: Mapping[str, jax.Array] | None = None
    ) -> LearnerState:
        """All weights 0, before the first episode of each of the `keys` (replicas,)."""
        given = dict(settings or {})
        for name, value in given.items():
            ActorCriticSpec.check_swept(name, value)
        if not self.form.traces and np.any(np.asarray(given.get("lambda_", 0.0)) != 0.0):
            raise InputError("lambda_ is swept: make the program with sweeps_lambda=True.")
        replicas = keys.shape[0]
        own = {name: getattr(self.config, name) for name in self.sweepable}
        own["sigma"] = self.config.multiplier
        every = {**own, **given, "gamma": self.config.gamma}
        with jax.enable_x64(True):
            numbers = setting_arrays(every, replicas, jnp.float64)
            streams = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
            actions = self.form.actions
            fields = 2 * actions + 6 if self.form.traces else actions + 4
            zeros, none = jnp.zeros((replicas,)), jnp.zeros((replicas,), jnp.int32)
            return LearnerState(
                jnp.zeros((replicas, self.form.states, fields)),
                zeros,
                zeros,
                none,
                none,
                streams[:, 0],
                streams[:, 1],
                streams[:, 2],
                numbers,
            )

    def advance(
        self, state: LearnerState, episodes: int
    ) -> tuple[LearnerState, dict[str, jax.Array]]:
        """Play `episodes` more: "return" and "length", (replicas, episodes) each."""
        with jax.enable_x64(True):
            after, seen = _advance(
                self.form, self._world, state, checks.count("episodes", episodes)
            )
        return after, seen

    def traces(self, state: LearnerState, episodes: int) -> tuple[LearnerState, Floats, Floats]:
        """Play `episodes` more: the traces at the end of each, averaged over replicas.

        (episodes, S, A) of the actor and (episodes, S) of the critic. Needs a program with traces.
        """
        if not self.form.traces:
            raise InputError("traces are kept with sweeps_lambda=True, also where lambda is 0.")
        with jax.enable_x64(True):
            number = checks.count("episodes", episodes)
            state, kept = _advance(self.form, self._world, state, number, keep=True)
        return state, np.asarray(kept[0]), np.asarray(kept[1])

    def flush(self, state: LearnerState) -> LearnerState:
        """The state with all pending noise drawn; go on from this one, not from the other.

        Weights must not be looked at before: rows that were not read lately lack their noise.
        """
        with jax.enable_x64(True):
            flushed: LearnerState = _flush(self.form, state)
        return flushed

    def weights(self, state: LearnerState) -> tuple[Floats, Floats, Floats]:
        """u (replicas, S, A), v and w (replicas, S) of a state that was flushed."""
        rows, actions = np.asarray(state.rows), self.form.actions
        return rows[:, :, :actions], rows[:, :, actions], rows[:, :, actions + 1]


def train(
    keys: jax.Array,
    config: "ActorCritic",
    env: TabularMDP,
    episodes: int,
    settings: Mapping[str, jax.Array] | None = None,
) -> ActorCriticRuns:
    """Learn for `episodes` episodes, a replica for each of the `keys` (replicas,)."""
    program = ActorCriticProgram(config, env, sweeps_lambda="lambda_" in (settings or {}))
    state, seen = program.advance(program.init(keys, settings), episodes)
    actor, critic, correction = program.weights(program.flush(state))
    lengths = np.asarray(seen["length"], np.int64)
    return ActorCriticRuns(actor, critic, correction, np.asarray(seen["return"]), lengths)
