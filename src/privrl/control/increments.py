"""What one person adds to an actor and a critic: the increment of a whole episode, clipped.

**Heads.** Preferences h(s) in R^A and values V(s) come from *heads*, functions of an observation
with parameters: a table (`Table`), linear in features (`Linear`), or a small network (`Layers`). A
head gives its outputs for the observations of an episode, and `pull(parameters, inputs, weights)`:
the sum over t of weights_t' d out(s_t) / d parameters.

**Increment.** The parameters u (actor) and v (critic) do not change during an episode, in which
actions are drawn from pi(a|s) = softmax(h_u(s))_a. With g_t = 0 if the episode *terminated* at t
and gamma otherwise (a truncated one bootstraps), and n the last step,

    delta_t = r_t + g_t V(s_{t+1}) - V(s_t)
    A_t     = delta_t + gamma lambda A_{t+1},     A_{n+1} = 0
    actor   = sum_t A_t grad log pi(a_t|s_t)  +  entropy sum_t grad H(pi(.|s_t))
    critic  = sum_t A_t grad V(s_t)

This is what eligibility traces add up to: with e_t = gamma lambda e_{t-1} + x_t, x_t either
gradient, sum_t delta_t e_t = sum_t sum_{k<=t} (gamma lambda)^(t-k) delta_t x_k = sum_k A_k x_k.
A_t + V(s_t) is the lambda-return. Actions are drawn from pi itself, so all importance ratios are 1
and the second weights w of GTD(lambda), which correct for other policies, have nothing to do.

**Contribution.** In units of the clip bound C, and with rewards divided by the public width of
`return_range`, a person's row is

    ( (actor, critic_weight critic) / C  scaled to L2 norm at most sqrt(1 - w^2),  w score )

where score in [-1, 1] is the return, clipped into the return range, and w the public weight of the
paid learning curve (0 without one). So its norm is at most 1, whatever the episode was. It is
*total*: a row that is not finite becomes zeros (`clip.l2`), a score that is not a number becomes 0,
an observation that is no state has no features, and an empty episode is a row of zeros, as an empty
slot is. It depends on the person's own episode, on released numbers and on public settings, and on
nothing else.

**With a prospect** (`prospect_rows`, which has the mathematics) rewards are 0 but for the last one,
phi(R), what the return R is worth at the margin by a *released* estimate of how returns are
distributed. Nothing is discounted or bootstrapped after it: g_t = 0 at the last step and 1 before,
and A_t = delta_t + lambda A_{t+1}. In the place of the score are the counts c(R) of the return, of
norm at most 1, so that the norm of the row is at most 1 as before.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from privrl.control.prospect_rows import Outlook
from privrl.core import checks, resources
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Features, OneHot, Policy, Softmax, Tabular
from privrl.data.features import features_from_dict
from privrl.data.policies import Network as NetworkPolicy
from privrl.envs.base import Box, Discrete, Episodes
from privrl.privacy.mechanisms import clip

Settings = Mapping[str, Any]

# Less likely actions count as this likely where a logarithm is taken.
_TINY = 1e-300


# --- heads ----------------------------------------------------------------------------------------


class Head(Protocol):
    """A function of observations with parameters; frozen and hashable."""

    @property
    def outputs(self) -> int:
        """How many numbers it gives for an observation."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the parameters, for people; inside they are one long vector."""
        ...

    def initial(self) -> Floats:
        """The public parameters to begin with, as one vector."""
        ...

    def inputs(self, observations: Any) -> Any:
        """What the observations (n, ...) of an episode are to this head."""
        ...

    def out(self, parameters: Any, inputs: Any) -> Any:
        """(n, outputs)."""
        ...

    def pull(self, parameters: Any, inputs: Any, weights: Any) -> Any:
        """The sum over rows of weights' d out / d parameters, as one vector."""
        ...

    def scaled(self, parameters: Floats, factor: float) -> Floats:
        """Parameters that give `factor` times the outputs."""
        ...

    def policy(self, parameters: Floats) -> Policy:
        """The softmax of the outputs."""
        ...

    @property
    def wish(self) -> "Features | Network":
        """What to ask for to get such a head."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        ...


@dataclass(frozen=True)
class Table:
    """A row of outputs for each of `states` whole numbers; anything else gives zeros."""

    states: int
    outputs: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.states, self.outputs)

    def initial(self) -> Floats:
        return np.zeros(self.states * self.outputs)

    def inputs(self, observations: Any) -> Any:
        # One past the end is outside for reading, where zeros are read, and for adding.
        inside = (observations >= 0) & (observations < self.states)
        return jnp.where(inside, observations, self.states).astype(jnp.int32)

    def out(self, parameters: Any, inputs: Any) -> Any:
        table = jnp.reshape(parameters, self.shape)
        return table.at[inputs].get(mode="fill", fill_value=0.0)

    def pull(self, parameters: Any, inputs: Any, weights: Any) -> Any:
        zeros = jnp.zeros(self.shape, weights.dtype)
        return zeros.at[inputs].add(weights, mode="drop").ravel()

    def scaled(self, parameters: Floats, factor: float) -> Floats:
        return parameters * factor

    def policy(self, parameters: Floats) -> Policy:
        table = parameters.reshape(self.shape)
        raised = np.exp(table - table.max(axis=1, keepdims=True))
        return Tabular(raised / raised.sum(axis=1, keepdims=True))

    @property
    def wish(self) -> "Features | Network":
        return OneHot(self.states)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "table", "states": self.states, "outputs": self.outputs}


@dataclass(frozen=True)
class Linear:
    """phi(s)' W, with one column of W for each output."""

    features: Features
    outputs: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features.dimension, self.outputs)

    def initial(self) -> Floats:
        return np.zeros(self.features.dimension * self.outputs)

    def inputs(self, observations: Any) -> Any:
        return jnp.asarray(self.features(observations), jnp.result_type(float))

    def out(self, parameters: Any, inputs: Any) -> Any:
        return inputs @ jnp.reshape(parameters, self.shape)

    def pull(self, parameters: Any, inputs: Any, weights: Any) -> Any:
        return (inputs.T @ weights).ravel()

    def scaled(self, parameters: Floats, factor: float) -> Floats:
        return parameters * factor

    def policy(self, parameters: Floats) -> Policy:
        return Softmax(self.features, parameters.reshape(self.shape))

    @property
    def wish(self) -> "Features | Network":
        return self.features

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "linear",
            "features": described(self.features),
            "outputs": self.outputs,
        }


@dataclass(frozen=True)
class Layers:
    """A fully connected network, of vectors or of features of states; tanh is between its layers.

    The first weights are public: normal with variance 1 / inputs from `seed`, and a last layer of
    zeros, so that the first policy is uniform and the first values are 0.
    """

    sizes: tuple[int, ...]
    features: Features | None = None
    seed: int = 0
    activation: Literal["tanh", "relu"] = "tanh"
    """What is between layers; rectifiers are for networks that were learned elsewhere."""

    @property
    def outputs(self) -> int:
        return self.sizes[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum((i + 1) * o for i, o in self._pairs),)

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.sizes[:-1], self.sizes[1:], strict=True))

    def initial(self) -> Floats:
        draw = np.random.default_rng(self.seed)
        parts = []
        for number, (width, outputs) in enumerate(self._pairs):
            last = number == len(self._pairs) - 1
            scale = 0.0 if last else 1.0 / math.sqrt(width)
            parts += [scale * draw.standard_normal(width * outputs), np.zeros(outputs)]
        return np.concatenate(parts)

    def layers(self, parameters: Any) -> list[tuple[Any, Any]]:
        """Pairs of weights (in, out) and biases (out,)."""
        found, at = [], 0
        for width, outputs in self._pairs:
            middle, end = at + width * outputs, at + (width + 1) * outputs
            weights = parameters[at:middle].reshape(width, outputs)
            found.append((weights, parameters[middle:end]))
            at = end
        return found

    def inputs(self, observations: Any) -> Any:
        rows = observations if self.features is None else self.features(observations)
        return jnp.asarray(rows, jnp.result_type(float))

    def out(self, parameters: Any, inputs: Any) -> Any:
        x, between = inputs, jnp.tanh if self.activation == "tanh" else jax.nn.relu
        for number, (weights, biases) in enumerate(self.layers(parameters)):
            x = (x if number == 0 else between(x)) @ weights + biases
        return x

    def pull(self, parameters: Any, inputs: Any, weights: Any) -> Any:
        _, back = jax.vjp(lambda p: self.out(p, inputs), parameters)
        return back(weights)[0]

    def scaled(self, parameters: Floats, factor: float) -> Floats:
        width, outputs = self._pairs[-1]
        last = (width + 1) * outputs
        return np.concatenate([parameters[:-last], factor * parameters[-last:]])

    def policy(self, parameters: Floats) -> Policy:
        return NetworkPolicy(tuple(self.layers(parameters)), self.activation, self.features)

    @property
    def wish(self) -> "Features | Network":
        return Network(self.sizes[1:-1], self.features, self.seed)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "layers",
            "sizes": list(self.sizes),
            "features": None if self.features is None else described(self.features),
            "seed": self.seed,
            **({} if self.activation == "tanh" else {"activation": self.activation}),
        }


@dataclass(frozen=True)
class Network:
    """A wish for networks: an actor and a critic of the same hidden sizes, with nothing shared."""

    hidden: tuple[int, ...] = (16,)
    features: Features | None = None
    """Of states, before the first layer; None for vectors as they are."""

    seed: int = 0
    """Of the public weights to begin with."""

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, tuple | list) or not self.hidden:
            raise InputError("hidden must be the sizes of the hidden layers, such as (16,).")
        sizes = tuple(checks.count("a size in hidden", size) for size in self.hidden)
        object.__setattr__(self, "hidden", sizes)
        if self.features is not None and not isinstance(self.features, Features):
            raise InputError("features must be a feature map of privrl.data, or None.")


def head_of(
    features: "Features | Network | None", observed: Discrete | Box, outputs: int, name: str
) -> Head:
    """The head that was wished for, for observations like these."""
    if isinstance(features, Network):
        inside = features.features
        if inside is None:
            if isinstance(observed, Box):
                return Layers((len(observed.low), *features.hidden, outputs), None, features.seed)
            inside = OneHot(observed.n)
        return Layers((inside.dimension, *features.hidden, outputs), inside, features.seed)
    table = features is None or isinstance(features, OneHot)
    if table and isinstance(observed, Discrete):
        states = observed.n if features is None else features.dimension
        return Table(states, outputs)
    if features is None:
        raise InputError(f"{name} observes vectors: say what features of them to use.")
    return Linear(features, outputs)


def head_from_dict(data: Mapping[str, Any]) -> Head:
    """The head of which `to_dict` gave the JSON form."""
    kind = data["kind"]
    if kind == "table":
        return Table(checks.count("states", data["states"]), int(data["outputs"]))
    if kind == "linear":
        return Linear(features_from_dict(data["features"]), int(data["outputs"]))
    described = data["features"]
    inside = None if described is None else features_from_dict(described)
    activation = data.get("activation", "tanh")
    if activation not in ("tanh", "relu"):
        raise InputError(f"activation must be 'tanh' or 'relu', not {activation!r}.")
    sizes = tuple(int(size) for size in data["sizes"])
    return Layers(sizes, inside, int(data["seed"]), activation)


def described(features: Any) -> dict[str, Any]:
    """The JSON form of features, if they have one."""
    if not hasattr(features, "to_dict"):
        raise InputError("These features have no JSON form, so the result has none.")
    found: dict[str, Any] = features.to_dict()
    return found


# --- increments -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """How an episode becomes a row; static, so that it can be compiled for."""

    actor: Head
    critic: Head
    entropy: float = 0.0
    return_range: tuple[float, float] | None = None
    curve_weight: float = 0.0
    """w; 0 for no coordinate of its own."""

    outlook: Outlook | None = None
    """How returns are counted and valued, if by a prospect; then w is its own."""

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """How many parameters the actor and the critic have."""
        return math.prod(self.actor.shape), math.prod(self.critic.shape)

    @property
    def dimension(self) -> int:
        """How long a row is."""
        own = int(self.curve_weight > 0.0) if self.outlook is None else self.outlook.size
        return sum(self.sizes) + own

    @property
    def described(self) -> list[Any]:
        """The two heads in JSON, or their shapes where features have none."""

        def one(head: Head) -> Any:
            try:
                return head.to_dict()
            except InputError:
                return list(head.shape)

        return [one(self.actor), one(self.critic)]

    def check(self, observed: Discrete | Box, name: str) -> None:
        """Refuse heads that cannot take what is observed, and those that memory does not hold."""
        # Released, averaged, those of the target, two moments, a slope, and noise.
        remedy = "use fewer features, or a smaller network"
        resources.refuse_above(64.0 * sum(self.sizes), "So many parameters", remedy)
        if isinstance(observed, Box):
            length = len(observed.low)
            seen, what = jnp.zeros((1, length)), f"vectors of {length} numbers"
        else:
            seen, what = jnp.zeros(1, int), "states by their numbers"
        for head in (self.actor, self.critic):
            try:
                zeros = jnp.zeros(math.prod(head.shape))
                found = jax.eval_shape(lambda p, x, h=head: h.out(p, h.inputs(x)), zeros, seen)
                fits = found.shape == (1, head.outputs)
            except (TypeError, ValueError):
                fits = False
            if not fits:
                raise InputError(f"{name} observes {what}, which these features do not take.")

    @property
    def width(self) -> float:
        """What rewards are divided by, hence the unit of values."""
        if self.outlook is not None:
            return self.outlook.unit
        return 1.0 if self.return_range is None else self.return_range[1] - self.return_range[0]

    def chances(self, actor: Any, observation: Any) -> Any:
        """pi(.|s) for one observation; uniform where a preference is not a number."""
        return softmax(self.actor.out(actor, self.actor.inputs(observation[None]))[0])

    def increment(
        self, actor: Any, critic: Any, settings: Settings, episode: Episodes, worth: Any = None
    ) -> Any:
        """The actor's and the critic's increment of one episode, as one vector each.

        `worth` is what returns are worth at the points of the outlook.
        """
        steps, valid = episode
        seen, after = (_kept(valid, x) for x in (steps.observation, steps.next_observation))
        own, judged = self.actor.inputs(seen), self.critic.inputs(seen)
        gamma, ended = settings["gamma"], steps.terminated
        if self.outlook is None:
            rewards = jnp.where(valid, steps.reward, 0.0) / self.width
        else:
            rewards = self.outlook.counts(episode, gamma) @ worth
            gamma, ended = 1.0, valid & ~jnp.append(valid[1:], False)
            rewards = jnp.where(ended, rewards, 0.0)
        value = self.critic.out(critic, judged)[:, 0]
        later = self.critic.out(critic, self.critic.inputs(after))[:, 0]
        # Chosen, not multiplied by 0: what comes after the end may not be a number.
        error = rewards + jnp.where(ended, 0.0, gamma * later) - value
        error = jnp.where(valid, error, 0.0)
        advantage = advantages(error, gamma * settings["lambda_"])
        chances = softmax(self.actor.out(actor, own))
        taken = steps.action[:, None] == jnp.arange(self.actor.outputs)
        weights = advantage[:, None] * (taken - chances)
        if self.entropy:
            logs = jnp.log(jnp.maximum(chances, _TINY))
            surprise = logs - jnp.sum(chances * logs, axis=1, keepdims=True)
            weights = weights - self.entropy * chances * surprise
        weights = jnp.where(valid[:, None], weights, 0.0)
        return (
            self.actor.pull(actor, own, weights),
            self.critic.pull(critic, judged, jnp.where(valid, advantage, 0.0)[:, None]),
        )

    def row(
        self, actor: Any, critic: Any, settings: Settings, episode: Episodes, worth: Any = None
    ) -> Any:
        """One person's contribution, of L2 norm at most 1."""
        own, judged = self.increment(actor, critic, settings, episode, worth)
        whole = jnp.concatenate([own, settings["critic_weight"] * judged]) / settings["clip"]
        if self.outlook is not None:
            share = self.outlook.weight
            whole = clip.l2(whole, math.sqrt(1.0 - share**2))
            counts = share * self.outlook.counts(episode, settings["gamma"])
            return clip.l2(jnp.concatenate([whole, counts]), 1.0)
        if not self.curve_weight:
            return clip.l2(whole, 1.0)
        assert self.return_range is not None
        low, high = self.return_range
        total = jnp.sum(jnp.where(episode.valid, episode.transitions.reward, 0.0))
        score = (2.0 * jnp.clip(total, low, high) - (low + high)) / (high - low)
        played = jnp.any(episode.valid) & ~jnp.isnan(score)
        score = jnp.where(played, jnp.clip(score, -1.0, 1.0), 0.0)
        whole = clip.l2(whole, math.sqrt(1.0 - self.curve_weight**2))
        return clip.l2(jnp.append(whole, self.curve_weight * score), 1.0)


def advantages(errors: Any, decay: Any) -> Any:
    """A_t = delta_t + decay A_{t+1}."""

    def back(later: Any, error: Any) -> tuple[Any, Any]:
        now = error + decay * later
        return now, now

    return jax.lax.scan(back, jnp.zeros_like(errors[0]), errors, reverse=True)[1]


def softmax(scores: Any) -> Any:
    """Normalised exponentials; uniform where a score is not a number."""
    good = jnp.all(jnp.isfinite(scores), axis=-1, keepdims=True)
    return jax.nn.softmax(jnp.where(good, scores, 0.0), axis=-1)


def _kept(valid: Any, observations: Any) -> Any:
    """Observations of steps that happened, and zeros of those that did not."""
    shape = valid.shape + (1,) * (observations.ndim - 1)
    return jnp.where(jnp.reshape(valid, shape), observations, 0)
