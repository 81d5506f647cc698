"""Q-learning (Watkins 1989), with a table or linear in features of the state. It is not private.

Each action has its own weights: Q(s, a) = phi(s)' w_a, where phi is one-hot for a table. Action a_t
is drawn from an epsilon-greedy or softmax policy of Q(s_t, .). Then, with g_t = 0 if the episode
*terminated* at t and gamma otherwise,

    delta_t = r_t + g_t max_a Q(s_{t+1}, a) - Q(s_t, a_t)
    e_t     = gamma lambda [a_{t-1} was a best action] e_{t-1} + phi(s_t) in the column of a_t
    W      <- W + alpha_t D delta_t e_t,        alpha_t = step / (1 + t / half_life)

An episode that a clock cut off (*truncated*) bootstraps: it would have gone on. The trace e starts
at 0 in each episode and is cut after an action that was not a best one (Watkins's Q(lambda)); with
lambda = 0 it is phi(s_t) alone. D is diagonal: 1 / ||c||_2 for the Fourier feature cos(pi c.u), and
1 for c = 0 and for all other features (Konidaris, Osentoski and Thomas 2011).

With a table, alpha_t as above (half_life finite) and all actions tried for ever, Q converges to the
optimal values (Watkins and Dayan 1992). With features nothing is guaranteed.

Released: everything, to everybody. No noise is added and no certificate can be had; it is here to
make policies, from simulators, that private estimators then judge (as in xie2019). Three random
streams, for the environment, for actions and for evaluation, so that evaluating more often changes
nothing that is learned.

`train` is one compiled `lax.scan`; `jax.vmap` it over keys for many seeds, and over a `Config`
whose gamma, step, half_life, epsilon or temperature are arrays for many settings.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from privrl.control.heads import features_to_dict
from privrl.control.promises import Acts
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import EpsilonGreedy, Features, Fourier, OneHot, Policy, Softmax
from privrl.data.features import features_from_dict
from privrl.data.keys import is_jax
from privrl.data.policies import choose
from privrl.envs.base import Carry, Discrete, Environment, begin, episodes, typed_key
from privrl.envs.registry import make

NO_NOISE_REASON = "the learner adds no noise"


@dataclass(frozen=True)
class Config:
    """What is learned and how; the fields in `NUMBERS` may be JAX's arrays, to `vmap` over."""

    steps: int
    """How many steps to learn from, over all episodes."""

    features: Features | None = None
    """Of states; None for a table, which discrete observations may have."""

    gamma: float = 0.99
    """The discount factor, from 0 to 1."""

    step: float = 0.1
    """The first step size."""

    half_life: float = math.inf
    """After how many steps the step size has halved; infinity for a constant one."""

    lambda_: float = 0.0
    """How far eligibility traces reach, from 0 to 1."""

    exploration: Literal["epsilon-greedy", "softmax"] = "epsilon-greedy"
    """How actions are drawn while learning."""

    epsilon: float = 0.1
    """With what probability epsilon-greedy draws any action, uniformly."""

    temperature: float = 1.0
    """What softmax divides the values by."""

    max_steps: int | None = None
    """Truncates episodes that the environment lets go on."""

    checkpoints: int = 20
    """How often the greedy policy is evaluated while learning, evenly spread."""

    episodes: int = 20
    """How many episodes an evaluation takes."""

    NUMBERS: ClassVar[tuple[str, ...]] = ("gamma", "step", "half_life", "epsilon", "temperature")

    def __post_init__(self) -> None:
        for name in ("steps", "checkpoints", "episodes"):
            checks.count(name, getattr(self, name))
        if self.steps % self.checkpoints:
            raise InputError("must be a multiple of checkpoints.", field="steps")
        if self.max_steps is not None:
            checks.count("max_steps", self.max_steps)
        if self.features is not None and not isinstance(self.features, Features):
            raise InputError(
                "must be a feature map of privrl.data, or None for a table.", field="features"
            )
        if self.exploration not in ("epsilon-greedy", "softmax"):
            raise InputError(
                f"must be 'epsilon-greedy' or 'softmax', not {self.exploration!r}.",
                field="exploration",
            )
        _check_fraction("lambda_", self.lambda_)
        for name in self.NUMBERS:
            value = getattr(self, name)
            # Neither arrays being compiled nor JAX's placeholders for them can be looked into.
            if not is_jax(value) and type(value) is not object:
                _CHECKS[name](name, value)


def _check_fraction(name: str, value: object) -> None:
    if checks.non_negative(name, value) > 1.0:
        raise InputError("must be at most 1.", field=name)


def _check_half_life(name: str, value: object) -> None:
    if checks.number(name, value) <= 0.0:
        raise InputError("must be positive, or infinite.", field=name)


_CHECKS = {
    "gamma": _check_fraction,
    "step": checks.positive,
    "half_life": _check_half_life,
    "epsilon": _check_fraction,
    "temperature": checks.positive,
}

jax.tree_util.register_dataclass(
    Config,
    data_fields=list(Config.NUMBERS),
    meta_fields=[field.name for field in fields(Config) if field.name not in Config.NUMBERS],
)


class QLearningState(NamedTuple):
    """Where learning stands."""

    weights: jax.Array
    """(d, A), or a table (S, A)."""

    trace: jax.Array | None
    """Of the same shape; None with lambda = 0."""

    carry: Carry[Any]
    time: jax.Array
    """Steps taken, over all episodes."""

    world: jax.Array
    """Random stream of the environment."""

    actor: jax.Array
    """Random stream of the actions."""


class StepRecord(NamedTuple):
    """One step, for those who look on."""

    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    next_observation: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    error: jax.Array
    """delta_t."""


def init(
    key: jax.Array, config: Config, env: Environment[Any, Any], params: Any = None
) -> QLearningState:
    """All values 0, and the first episode begun."""
    world, actor = jax.random.split(key)
    first, world = jax.random.split(world)
    observed = env.observation
    if config.features is not None:
        size = config.features.dimension
    elif isinstance(observed, Discrete):
        size = observed.n
    else:
        raise InputError(f"{env.name} observes vectors: say what features of them to use.")
    weights = jnp.zeros((size, env.num_actions), jnp.result_type(float))
    return QLearningState(
        weights,
        None if config.lambda_ == 0.0 else weights,
        begin(env, first, params),
        jnp.zeros((), jnp.int32),
        world,
        actor,
    )


def step(
    config: Config, env: Environment[Any, Any], state: QLearningState, params: Any = None
) -> tuple[QLearningState, StepRecord]:
    """One step in the environment, and one update."""
    weights, now = state.weights, state.carry
    values = action_values(config, weights, now.observation)
    draw = jax.random.uniform(jax.random.fold_in(state.actor, state.time), (), values.dtype)
    action = choose(jnp, _probs(config, values), draw)

    step_key, reset_key = jax.random.split(jax.random.fold_in(state.world, state.time))
    after = env.step(step_key, now.state, action, params)
    late = (
        after.truncated
        if config.max_steps is None
        else after.truncated | (after.state.time >= config.max_steps)
    )
    truncated = late & ~after.terminated
    over = after.terminated | truncated

    best_next = jnp.max(action_values(config, weights, after.observation))
    goes_on = jnp.where(after.terminated, 0.0, config.gamma)
    error = after.reward + goes_on * best_next - values[action]
    rate = config.step / (1.0 + state.time / config.half_life)

    trace = state.trace
    if trace is None:
        weights = _add(config, weights, now.observation, action, rate * error)
    else:
        trace = _add(config, trace, now.observation, action, 1.0, scaled=False)
        weights = weights + rate * error * _feature_scales(config, weights.dtype) * trace
        greedy = values[action] == jnp.max(values)
        trace = jnp.where(over | ~greedy, 0.0, config.gamma * config.lambda_ * trace)

    fresh = begin(env, reset_key, params)
    carry = jax.tree.map(
        lambda new, old: jnp.where(over, new, old), fresh, Carry(after.state, after.observation)
    )
    seen = StepRecord(
        now.observation,
        action,
        after.reward,
        after.observation,
        after.terminated,
        truncated,
        error,
    )
    return QLearningState(weights, trace, carry, state.time + 1, state.world, state.actor), seen


def action_values(config: Config, weights: jax.Array, observation: jax.Array) -> jax.Array:
    """Q(s, .)."""
    if config.features is None:
        return weights[observation]
    found: jax.Array = config.features(observation[None])[0].astype(weights.dtype) @ weights
    return found


def _probs(config: Config, values: jax.Array) -> jax.Array:
    """How likely each action is while learning."""
    if config.exploration == "softmax":
        return jax.nn.softmax(values / config.temperature)
    count = values.shape[0]
    best = jnp.arange(count) == jnp.argmax(values)
    return (1.0 - config.epsilon) * best + config.epsilon / count


def _add(
    config: Config,
    weights: jax.Array,
    observation: jax.Array,
    action: jax.Array,
    amount: Any,
    scaled: bool = True,
) -> jax.Array:
    """`amount` times the features, each at its own rate if `scaled`, in the action's column."""
    if config.features is None:
        return weights.at[observation, action].add(amount)
    phi = config.features(observation[None])[0].astype(weights.dtype)
    if scaled:
        phi = phi * _feature_scales(config, weights.dtype)[:, 0]
    return weights.at[:, action].add(amount * phi)


def _feature_scales(config: Config, dtype: Any) -> jax.Array:
    """D, as a column."""
    features = config.features
    if not isinstance(features, Fourier):
        return jnp.ones((1 if features is None else features.dimension, 1), dtype)
    grid = np.indices((features.order + 1,) * len(features.low)).reshape(len(features.low), -1)
    norms = np.sqrt(np.sum(grid.astype(np.float64) ** 2, axis=0))
    return jnp.asarray(1.0 / np.maximum(norms, 1.0), dtype)[:, None]


class QLearningRuns(NamedTuple):
    """What `train` gives back."""

    weights: jax.Array
    curve: jax.Array
    """(checkpoints,) mean undiscounted return of the greedy policy."""


@partial(jax.jit, static_argnames="env")
def train(
    key: jax.Array, config: Config, env: Environment[Any, Any], params: Any = None
) -> QLearningRuns:
    """Learn for `config.steps` steps, with an evaluation at each checkpoint."""
    learning, judging = jax.random.split(typed_key(key))
    limits = [limit for limit in (env.step_limit, config.max_steps) if limit is not None]

    def run_checkpoint(
        state: QLearningState, number: jax.Array
    ) -> tuple[QLearningState, jax.Array]:
        length = config.steps // config.checkpoints
        state, _ = lax.scan(
            lambda now, _: (step(config, env, now, params)[0], None), state, None, length=length
        )
        return state, score(state.weights, number)

    def score(weights: jax.Array, number: jax.Array) -> jax.Array:
        played = episodes(
            env,
            lambda _, seen: jnp.argmax(action_values(config, weights, seen)),
            jax.random.fold_in(judging, number),
            config.episodes,
            params,
            min(limits, default=None),
        )
        mean: jax.Array = jnp.mean(played.returns())
        return mean

    begun = init(learning, config, env, params)
    state, curve = lax.scan(run_checkpoint, begun, jnp.arange(config.checkpoints))
    return QLearningRuns(state.weights, curve)


# --- for people ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class QLearning(Config):
    """A `Config` that learns: `QLearning(steps=100_000).learn("Taxi").policy`."""

    def learn(
        self, env: "str | Environment[Any, Any]", *, seed: int = 0, params: Any = None
    ) -> "LearnedQValues":
        """Learn in `env`: one of `privrl.envs`, or its name."""
        made = make(env)
        if not isinstance(made, Environment):
            raise InputError("cannot be compiled: use an environment of privrl.envs.", field="env")
        if made.step_limit is None and self.max_steps is None:
            raise InputError(f"{made.name} sets no limit to an episode: say max_steps.")
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise InputError(f"must be a whole number of at least 0, not {seed!r}.", field="seed")
        plain = Config(**{field.name: getattr(self, field.name) for field in fields(Config)})
        found = train(jax.random.key(int(seed)), plain, made, params)
        weights = np.asarray(found.weights, dtype=np.float64)
        if not np.all(np.isfinite(weights)):
            raise InputError("The weights grew without bound: use a smaller step.")
        settings = {k: v for k, v in asdict(self).items() if k != "features"}
        every = self.steps // self.checkpoints
        return LearnedQValues(
            weights=weights,
            features=self.features,
            curve=np.asarray(found.curve, dtype=np.float64),
            curve_steps=every * np.arange(1, self.checkpoints + 1),
            settings={"env": made.name, "seed": int(seed), **settings},
        )


@dataclass(frozen=True, eq=False, repr=False)
class LearnedQValues(Acts):
    """What was learned; not private."""

    KIND: ClassVar[str] = "privrl q-learning"
    SAVED: ClassVar[str] = "the result of Q-learning"

    weights: Floats
    """(d, A), of action values linear in `features`; or a table (S, A)."""

    features: Features | None
    curve: Floats
    """Mean undiscounted return of the greedy policy, at each checkpoint."""

    curve_steps: NDArray[np.int64]
    settings: Mapping[str, Any]

    @property
    def promise(self) -> str:
        """What this promises about the people in it: nothing."""
        return f"Not private: {NO_NOISE_REASON}."

    @property
    def table(self) -> Floats:
        """The action values (S, A), if a table was learned."""
        if self.features is not None:
            raise InputError("What was learned is linear in features: use weights, or values.")
        return self.weights

    def values(self, states: Any) -> Floats:
        """Q(s, .) for each state: (n, A)."""
        return np.asarray(self._features(states), dtype=np.float64) @ self.weights

    @property
    def policy(self) -> Policy:
        """The greedy policy."""
        return self.epsilon_greedy(0.0)

    def epsilon_greedy(self, epsilon: float) -> EpsilonGreedy:
        """The best action with probability 1 - epsilon, else any."""
        return EpsilonGreedy(self.weights, epsilon, self.features)

    def softmax(self, temperature: float) -> Softmax:
        """Actions in proportion to exp(Q / temperature)."""
        return Softmax(self._features, self.weights, temperature)

    @property
    def _features(self) -> Features:
        return OneHot(self.weights.shape[0]) if self.features is None else self.features

    def _to_json(self) -> dict[str, Any]:
        infinite = {k: None if v == math.inf else v for k, v in self.settings.items()}
        return {
            "promise": {"kind": "privrl not private", "why": NO_NOISE_REASON},
            "weights": self.weights.tolist(),
            "features": None if self.features is None else features_to_dict(self.features),
            "curve": self.curve.tolist(),
            "curve_steps": self.curve_steps.tolist(),
            "settings": infinite,
        }

    @classmethod
    def _from_json(cls, data: Mapping[str, Any]) -> Self:
        settings = data["settings"]
        return cls(
            weights=np.array(data["weights"], dtype=np.float64),
            features=None if data["features"] is None else features_from_dict(data["features"]),
            curve=np.array(data["curve"], dtype=np.float64),
            curve_steps=np.array(data["curve_steps"], dtype=np.int64),
            settings=settings | ({"half_life": math.inf} if settings["half_life"] is None else {}),
        )
