"""The certified actor-critic as a `Program`: its public numbers, its noise, its batches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from privrl.control import certified
from privrl.control.actor_critic.result import softmax_policy
from privrl.control.actor_critic.spec import PROSPECT_OPTIONS, ActorCriticSpec
from privrl.control.certified import SWEEPABLE, ActorCriticPlan, ActorCriticState
from privrl.control.heads import Network, make_head
from privrl.control.increments import Rows
from privrl.control.kept import kept
from privrl.core import checks, resources
from privrl.core.errors import InputError
from privrl.data import Features
from privrl.envs.base import Environment
from privrl.envs.host import HostEnvironment
from privrl.privacy.events import Event
from privrl.privacy.mechanisms.correlated import CorrelatedMechanism
from privrl.privacy.plan import NoisyPlan

if TYPE_CHECKING:
    from privrl.control.actor_critic.learner import ActorCritic

Env = Environment[Any, Any] | HostEnvironment

DEFAULTS = {
    "gamma": 0.99,
    "lambda_": 0.9,
    "actor_step": 100.0,
    "critic_step": 1.0,
    "clip": 0.03,
}
"""Of settings that are None; found on MDP-100 with seeds 0 to 5."""

# With a prospect. Returns are as people get them, and the critic is not trusted (`prospect_rows`);
# steps and the bound were found on the gambles of the papers, with seeds 0 to 9.
_PROSPECT_DEFAULTS = {"gamma": 1.0, "lambda_": 1.0, "actor_step": 5.0, "clip": 2.0}
_DEFAULT_BATCHES = 50


@dataclass(frozen=True)
class CertifiedProgram:
    """The certified agent as a `Program`: for sweeps over simulators, and inside `learn`.

    `advance` takes whole batches: multiples of `batch`, or all that are left. What it gives back
    about episodes is **private**, unless the people are simulated.
    """

    config: "ActorCritic"
    env: Env
    people: int
    start_features: Features | Network | None = None
    """Of a critic to start from, if it has any."""

    def __post_init__(self) -> None:
        checks.count("people", self.people)
        object.__setattr__(self, "config", self.config.resolve(self.env))
        _ = self.length
        self.plan.rows.check(self.env.observation, self.env.name)

    @property
    def sweepable(self) -> tuple[str, ...]:
        return SWEEPABLE

    @property
    def batch(self) -> int:
        """B."""
        return self.config.batch or -(-self.people // _DEFAULT_BATCHES)

    @property
    def length(self) -> int:
        """How many steps an episode takes at most."""
        return certified.episode_limit(self.env, self.config.max_steps)

    @cached_property
    def plan(self) -> ActorCriticPlan:
        """The run without its numbers."""
        config = self.config
        chosen = config.critic_features
        if self.start_features is not None:
            if chosen is not None and chosen != self.start_features:
                raise InputError("critic has features of its own: leave critic_features out.")
            chosen = self.start_features
        observed, name = self.env.observation, self.env.name
        rows = Rows(
            make_head(config.features, observed, self.env.num_actions, name),
            make_head(config.features if chosen is None else chosen, observed, 1, name),
            config.entropy,
            config.return_range,
            config.curve_weight if config.curve == "paid" and config.prospect is None else 0.0,
            config.outlook,
        )
        kind: Any = "none" if config.variant == "none" else config.noise
        if kind == "auto":
            horizon = -(-self.people // self.batch)
            kind = certified.noise_kind(horizon, config.optimiser, config.schedule)
        return ActorCriticPlan(
            rows,
            self.people,
            self.batch,
            kind,
            config.optimiser,
            config.schedule,
            config.average,
        )

    @property
    def numbers(self) -> dict[str, float]:
        """The program's own value for each of `sweepable`."""
        defaults = DEFAULTS
        if self.config.prospect is not None:
            defaults = DEFAULTS | _PROSPECT_DEFAULTS
        found = {
            name: default
            if getattr(self.config, name) is None
            else float(getattr(self.config, name))
            for name, default in defaults.items()
        }
        return {
            **found,
            "critic_weight": self.config.critic_weight,
            "sigma": 0.0 if self.noise_plan is None else self.noise_plan.std,
        }

    @property
    def event(self) -> Event | None:
        """What the whole run does to a person; None if it is not private."""
        return None if self.noise_plan is None else self.noise_plan.event

    @cached_property
    def noise_plan(self) -> NoisyPlan | CorrelatedMechanism | None:
        """The noise on what batches add up to, in units of the clip bound."""
        if self.config.budget is None:
            return None
        plan = self.plan
        return certified.calibrate_noise(self.config.budget, plan.horizon, plan.noise)

    @property
    def settings_dict(self) -> dict[str, Any]:
        """The settings, in JSON's own types."""
        plan, config = self.plan, self.config
        budget = config.budget
        return {
            "env": self.env.name,
            "variant": config.variant,
            "epsilon": None if budget is None else budget.epsilon,
            "delta": None if budget is None else budget.delta,
            **{name: value for name, value in self.numbers.items() if name != "sigma"},
            "max_steps": self.length,
            "batch": plan.batch,
            "noise": plan.noise,
            "optimiser": plan.optimiser,
            "schedule": plan.schedule,
            "average": plan.average,
            "entropy": config.entropy,
            "return_range": None if config.return_range is None else list(config.return_range),
            "curve_weight": plan.rows.curve_weight,
            **({} if config.prospect is None else self._prospect_settings),
        }

    @property
    def _prospect_settings(self) -> dict[str, Any]:
        """The settings that only an agent with a prospect has."""
        config = self.config
        assert config.prospect is not None
        named = {name: getattr(config, name) for name in ("curve_weight", *PROSPECT_OPTIONS)}
        return {"prospect": config.prospect.to_dict(), **named}

    def init(self, keys: jax.Array, settings: Mapping[str, jax.Array]) -> ActorCriticState:
        for name, values in settings.items():
            if name not in SWEEPABLE:
                raise InputError(f"cannot be swept: use {', '.join(SWEEPABLE)}.", field=name)
            for value in np.unique(np.asarray(values)).tolist():
                # Sigma is no option: it follows from a budget, unless it is swept.
                option = ActorCriticSpec.options().get(name)
                checks.non_negative(name, value) if option is None else option.check(value)
        shape = keys.shape

        with jax.enable_x64(True):
            whole = {
                name: jnp.broadcast_to(jnp.asarray(settings.get(name, own), float), shape)
                for name, own in self.numbers.items()
            }
            begun: ActorCriticState = certified.begin_replicas(self.plan, keys, whole)
        return begun

    def advance(
        self, state: ActorCriticState, episodes: int
    ) -> tuple[ActorCriticState, dict[str, jax.Array]]:
        if isinstance(self.env, HostEnvironment):
            raise InputError(
                f"{self.env.name} runs on the host, which takes no replicas: use learn."
            )
        plan = self.plan
        done = int(np.asarray(state.batch).ravel()[0])
        left = plan.people - done * plan.batch
        if episodes > left or (episodes % plan.batch and episodes != left):
            raise InputError(
                f"must be a multiple of the batch of {plan.batch} people, or the {left} "
                f"who are left, not {episodes}.",
                field="episodes",
            )
        batches = -(-episodes // plan.batch)
        with jax.enable_x64(True):
            after, (_, played) = certified.advance(plan, self.env, self.length, state, batches)
            returns, lengths = (x.reshape(x.shape[0], -1)[:, :episodes] for x in played)
        return after, {"return": returns, "length": lengths}

    def check_memory(self, first: Any, public: bool) -> int:
        """Compile the run, and refuse one that memory does not hold; the bytes of a checkpoint."""
        plan, what, remedy = self.plan, "Such a run", "use a smaller batch, or fewer features"
        shown = 8 * plan.people if public else 0
        resources.check_memory(4 * shown, what, remedy)
        with jax.enable_x64(True), resources.refuse_memory_errors(what, remedy):
            key = jax.eval_shape(lambda: jax.random.key(0))
            begun = partial(certified.begin_one, plan)
            state = jax.eval_shape(begun, key, key, self.numbers, first)
            if isinstance(self.env, Environment):
                replicas = jax.eval_shape(_as_replica, state)
                given: tuple[Any, ...] = (plan, self.env, self.length, replicas, 1)
                resources.precompile(certified.advance, *given, what=what, remedy=remedy)
            else:
                batch = certified.shapes_on_host(plan, self.env, self.length)
                given = (plan, state, self.length, batch)
                resources.precompile(certified.update_from_batch, *given, what=what, remedy=remedy)
            held = sum(math.prod(map(int, x.shape)) * 8 for x in jax.tree.leaves(state))
        return held + shown + 16 * plan.horizon

    def advance_run(
        self, state: ActorCriticState, batches: int, public: bool
    ) -> tuple[ActorCriticState, dict[str, Any]]:
        """So many more batches of one run, and what is shown of them: returns if the people are
        `public`, or the means of batches that were paid for."""
        plan, first = self.plan, int(state.batch)
        if isinstance(self.env, Environment):
            replicas, seen = certified.advance(
                plan, self.env, self.length, _as_replica(state), batches
            )
            state = _from_replica(replicas)
            told, (got, _) = jax.tree.map(lambda x: np.asarray(x)[0, :batches], seen)
        else:
            parts, size = plan.chunks(self.length)
            rows = []
            for number in range(first, first + batches):
                begin = number * plan.batch
                batch = certified.play_on_host(
                    self.env,
                    softmax_policy(plan.rows.actor, np.asarray(state.actor, np.float64)),
                    np.asarray(jax.random.key_data(state.world)),
                    range(begin, min(begin + plan.batch, plan.people)),
                    parts * size,
                    self.length,
                    private=self.event is not None and not public,
                )
                state, (mean, (each, _)) = certified.update_from_batch(
                    plan, state, self.length, batch
                )
                rows.append((np.asarray(mean), np.asarray(each)))
            told, got = (np.stack(part) for part in zip(*rows, strict=True))
        if public:
            left = plan.people - first * plan.batch
            return state, {"return": np.asarray(got, np.float64).reshape(-1)[:left]}
        if self.config.curve == "paid" or self.config.prospect is not None:
            return state, {"paid": np.asarray(told, np.float64)}
        return state, {}


# Compiled: of each of these operations on each array, JAX would make a program by itself.


@kept()
def _as_replica(state: ActorCriticState) -> ActorCriticState:
    """The states of one replica."""
    found: ActorCriticState = jax.tree.map(lambda x: x[None], state)
    return found


@kept()
def _from_replica(states: ActorCriticState) -> ActorCriticState:
    found: ActorCriticState = jax.tree.map(lambda x: x[0], states)
    return found
