"""Policies: how likely each action is in each state.

    policy.probabilities(states)      (n, A), rows sum to 1
    policy.prob(states, actions)      (n,)    of the actions given
    policy.log_prob(states, actions)  (n,)
    policy.sample(states, key)        (n,)    actions
    policy.act(observation)           one action, as Gymnasium takes it

`Tabular`, `Softmax`, `EpsilonGreedy` and `Network` are made of plain numbers and travel as
`policy.json` (`save`, and `load_policy` of `policy_json.py`).
`FunctionPolicy` wraps anything else and stays in memory. All take NumPy and JAX arrays, and inside
compiled functions JAX's tracers.

They are total: a state outside a table, or scores that are not numbers, give the uniform
distribution, so that no private state can raise an error or a NaN. `Trajectories.with_target` does
say, once and by row, that states lie outside a table.
"""

import copy
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data.features import Features, _array, _set_fields
from privrl.data.keys import generator, is_jax
from privrl.nets import ACTIVATIONS, mlp

FORMAT = "privrl-policy"
VERSION = 1
_LARGEST_SCORE = 1e30


class Policy(ABC):
    """What is common to all policies: everything follows from `probabilities`."""

    kind: ClassVar[str] = ""
    origin: ClassVar[Mapping[str, str] | None] = None
    """The id of the run that learned it from a table, and the learner; see `privrl.data.marks`."""

    def with_origin(self, run: str, learner: str) -> Self:
        """The same policy, which says where it comes from."""
        marked = copy.copy(self)
        object.__setattr__(marked, "origin", check_origin({"run": run, "learner": learner}))
        return marked

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """How many actions there are; they are numbered from 0."""

    @property
    def num_states(self) -> int | None:
        """How many discrete states the policy knows; None if it takes vectors."""
        return None

    @abstractmethod
    def probabilities(self, states: Any) -> Any:
        """(n, A) probabilities; each row sums to 1, up to rounding."""

    def prob(self, states: Any, actions: Any) -> Any:
        """The probabilities of the given actions; 0 for what is no action."""
        p = self.probabilities(states)
        xp, a = _array(actions)
        known = is_index(xp, a, self.num_actions)
        index = xp.where(known, a, 0).astype(int)
        chosen = xp.take_along_axis(p, index[..., None], axis=-1)[..., 0]
        return xp.where(known, chosen, 0.0)

    def log_prob(self, states: Any, actions: Any) -> Any:
        """Natural logarithms of `prob`; minus infinity where it is 0."""
        p = self.prob(states, actions)
        if is_jax(p):
            import jax.numpy as jnp

            return jnp.log(p)
        with np.errstate(divide="ignore"):
            return np.log(p)

    def sample(self, states: Any, key: Any) -> Any:
        """One action for each state. JAX arrays need a JAX key, others a seed or a generator."""
        p = self.probabilities(states)
        if is_jax(p):
            import jax
            import jax.numpy as jnp

            return choose(jnp, p, jax.random.uniform(key, p.shape[:-1], p.dtype))
        return choose(np, p, generator(key).random(p.shape[:-1]))

    def act(self, observation: Any, *, deterministic: bool = False, key: Any = None) -> Any:
        """An action for one observation, a number or a vector; or one for each of a batch.

        `deterministic` takes the likeliest, the first of equals; else it is drawn, by a seed or a
        generator if there is a `key`.
        """
        x = np.asarray(observation)
        alone = x.ndim == 0 or (x.ndim == 1 and self.num_states is None)
        p = np.asarray(self.probabilities(x[None] if alone else x))
        if deterministic:
            actions = np.argmax(p, axis=-1)
        else:
            draw = np.random.default_rng() if key is None else generator(key)
            actions = choose(np, p, draw.random(p.shape[:-1]))
        return int(actions[0]) if alone else actions

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """An action and no state, as Stable-Baselines3 has it."""
        return self.act(observation, deterministic=deterministic), None

    def to_dict(self) -> dict[str, Any]:
        """The policy as `policy.json` has it."""
        given = {} if self.origin is None else {"origin": dict(self.origin)}
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            **given,
            **self._settings(),
        }

    def _settings(self) -> dict[str, Any]:
        raise InputError("This policy cannot be written to a file: it is not made of numbers.")

    def to_json(self) -> str:
        """The text of `policy.json`; `policy_from_json` reads it back bit for bit."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def save(self, path: "str | Path") -> None:
        """Write `policy.json`, whole or not at all."""
        files.write(path, self.to_json().encode(), secret=False)


def choose(xp: Any, p: Any, uniform: Any) -> Any:
    """The action whose share of [0, 1) holds `uniform`; never one of probability 0."""
    edges = xp.cumsum(p, axis=-1)
    total = edges[..., -1:]
    index = xp.sum(edges <= uniform[..., None] * total, axis=-1)
    # A number rounded up to 1 (64 bits cast to 32) goes to the last action of positive probability.
    return xp.minimum(index, xp.argmax(edges >= total, axis=-1))


class NumberPolicy(Policy):
    """A policy made of numbers, which are its dataclass's fields: it has a JSON form."""

    @property
    def num_states(self) -> int | None:
        return getattr(getattr(self, "features", None), "num_states", None)

    def _settings(self) -> dict[str, Any]:
        numbers: Any = self
        found: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(numbers)}
        for name, value in found.items():
            if isinstance(value, np.ndarray):
                found[name] = value.tolist()
            elif name == "features" and value is not None:
                found[name] = _features_dict(value)
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, eq=False)
class Tabular(NumberPolicy):
    """A row of probabilities for each state. States outside the table act uniformly."""

    table: Floats
    kind: ClassVar[str] = "tabular"

    def __post_init__(self) -> None:
        table = _numbers("table", self.table, 2)
        _check_distributions("table", table)
        _set_fields(self, table=_frozen(table))

    @classmethod
    def uniform(cls, num_states: int, num_actions: int) -> "Tabular":
        """Every action equally likely in every state."""
        shape = checks.count("num_states", num_states), checks.count("num_actions", num_actions)
        return cls(np.full(shape, 1.0 / num_actions))

    @property
    def num_actions(self) -> int:
        return int(self.table.shape[1])

    @property
    def num_states(self) -> int:
        return int(self.table.shape[0])

    def probabilities(self, states: Any) -> Any:
        return _lookup(self.table, states, 1.0 / self.num_actions)


@dataclass(frozen=True, eq=False)
class Softmax(NumberPolicy):
    """exp(phi(s).w_a / temperature), normalised over the actions a; `weights` is (d, A)."""

    features: Features
    weights: Floats
    temperature: float = 1.0
    kind: ClassVar[str] = "softmax"

    def __post_init__(self) -> None:
        _set_fields(
            self,
            weights=_frozen(_check_weights(self.features, self.weights)),
            temperature=checks.positive("temperature", self.temperature),
        )
        # Scores beyond the range of 32 bits would be taken for no numbers, and act uniformly.
        top = _LARGEST_SCORE * self.temperature / self.features.norm_bound
        if float(np.abs(self.weights).max()) * math.sqrt(self.weights.shape[0]) > top:
            raise InputError("is too small for such weights.", field="temperature")

    @property
    def num_actions(self) -> int:
        return int(self.weights.shape[1])

    def probabilities(self, states: Any) -> Any:
        phi = self.features(states)
        xp, phi = _array(phi)
        return softmax(xp, (phi @ xp.asarray(self.weights, dtype=phi.dtype)) / self.temperature)


@dataclass(frozen=True, eq=False)
class EpsilonGreedy(NumberPolicy):
    """The best action with probability 1 - epsilon, else any, uniformly.

    `values` is a table (S, A) of action values or, with `features`, weights (d, A) of linear ones.
    Of equally good actions the first is taken.
    """

    values: Floats
    epsilon: float
    features: Features | None = None
    kind: ClassVar[str] = "epsilon-greedy"

    def __post_init__(self) -> None:
        epsilon = checks.share("epsilon", self.epsilon)
        values = (
            _numbers("values", self.values, 2)
            if self.features is None
            else _check_weights(self.features, self.values, "values")
        )
        _set_fields(self, values=_frozen(values), epsilon=epsilon)

    @property
    def num_actions(self) -> int:
        return int(self.values.shape[1])

    @property
    def num_states(self) -> int | None:
        return int(self.values.shape[0]) if self.features is None else super().num_states

    def probabilities(self, states: Any) -> Any:
        count = self.num_actions
        if self.features is None:
            greedy = np.eye(count)[np.argmax(self.values, axis=1)]
            table = (1.0 - self.epsilon) * greedy + self.epsilon / count
            return _lookup(table, states, 1.0 / count)
        xp, phi = _array(self.features(states))
        with np.errstate(over="ignore", invalid="ignore"):
            q = phi @ xp.asarray(self.values, dtype=phi.dtype)
        return _greedy(xp, q, self.epsilon)


@dataclass(frozen=True, eq=False)
class Network(NumberPolicy):
    """A fully connected network from plain arrays; its last layer's outputs pass through a softmax.

    `layers` are pairs of weights (in, out) and biases (out,). States are vectors, or go through
    `features` first. With an `epsilon` the outputs are values of actions instead, of which the best
    is taken with probability 1 - epsilon, else any. NaN and infinite outputs give the uniform
    distribution.
    """

    layers: tuple[tuple[Floats, Floats], ...]
    activation: str = "relu"
    features: Features | None = None
    epsilon: float | None = None
    kind: ClassVar[str] = "network"

    def __post_init__(self) -> None:
        checks.choice("activation", self.activation, ACTIVATIONS)
        if self.epsilon is not None:
            _set_fields(self, epsilon=checks.share("epsilon", self.epsilon))
        if not isinstance(self.layers, Sequence) or not self.layers:
            raise InputError(
                "must be a list of weights and biases, at least one pair.", field="layers"
            )
        width = None if self.features is None else self.features.dimension
        checked = []
        for position, layer in enumerate(self.layers):
            if not isinstance(layer, Sequence) or len(layer) != 2:
                raise InputError(f"Layer {position} must be a pair of weights and biases.")
            w = _numbers(f"the weights of layer {position}", layer[0], 2)
            b = _numbers(f"the biases of layer {position}", layer[1], 1)
            if width is not None and w.shape[0] != width:
                raise InputError(f"Layer {position} takes {w.shape[0]} numbers, but gets {width}.")
            if b.shape[0] != w.shape[1]:
                raise InputError(
                    f"Layer {position} has {b.shape[0]} biases for {w.shape[1]} outputs."
                )
            width = w.shape[1]
            checked.append((_frozen(w), _frozen(b)))
        _set_fields(self, layers=tuple(checked))

    @property
    def num_actions(self) -> int:
        return int(self.layers[-1][1].shape[0])

    def probabilities(self, states: Any) -> Any:
        xp, x = _array(states if self.features is None else self.features(states))
        if not xp.issubdtype(x.dtype, xp.floating):
            x = x.astype(float)
        if x.ndim < 2 or x.shape[-1] != self.layers[0][0].shape[0]:
            raise InputError(
                f"The network takes (n, {self.layers[0][0].shape[0]}) states, not {x.shape}."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            x = mlp(self.layers, x, self.activation)
        return softmax(xp, x) if self.epsilon is None else _greedy(xp, x, self.epsilon)

    def _settings(self) -> dict[str, Any]:
        layers = [{"weights": w.tolist(), "biases": b.tolist()} for w, b in self.layers]
        return super()._settings() | {"layers": layers}


@dataclass(frozen=True, eq=False)
class FunctionPolicy(Policy):
    """Any function from states to (n, A) probabilities.

    For NumPy arrays its answer is checked: a row that is no distribution is refused.
    """

    function: Callable[[Any], Any]
    actions: int
    states: int | None = None
    kind: ClassVar[str] = "function"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError("must be something that can be called with states.", field="function")
        _set_fields(self, actions=checks.count("actions", self.actions))

    @property
    def num_actions(self) -> int:
        return self.actions

    @property
    def num_states(self) -> int | None:
        return self.states

    def probabilities(self, states: Any) -> Any:
        p = self.function(states)
        shape = np.shape(p)
        if len(shape) < 2 or shape[-1] != self.actions or shape[0] != len(states):
            raise InputError(
                f"The policy function gave the shape {shape}, not ({len(states)}, {self.actions})."
            )
        if not is_jax(p):
            p = np.asarray(p, dtype=np.float64)
            _check_distributions("The policy function's answer", p)
        return p


def check_origin(given: object) -> dict[str, str]:
    """The run and the learner that a policy names."""
    if (
        not isinstance(given, Mapping)
        or set(given) != {"run", "learner"}
        or not all(isinstance(word, str) for word in given.values())
        or not re.fullmatch("[0-9a-f]{32}", given["run"])
    ):
        raise InputError(
            "must say the run, in 32 hexadecimal digits, and the learner.", field="origin"
        )
    return {name: given[name] for name in ("run", "learner")}


# --- helpers -------------------------------------------------------------------------------------


def softmax(xp: Any, scores: Any) -> Any:
    """Normalised exponentials; uniform where a score is not a number."""
    good = xp.all(xp.isfinite(scores), axis=-1, keepdims=True)
    scores = xp.where(good, scores, 0.0)
    raised = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    return raised / xp.sum(raised, axis=-1, keepdims=True)


def _greedy(xp: Any, values: Any, epsilon: float) -> Any:
    """Of equally good actions the first; uniform where a value is not a number."""
    count = values.shape[-1]
    best = (xp.argmax(values, axis=-1)[..., None] == xp.arange(count)).astype(values.dtype)
    p = (1.0 - epsilon) * best + epsilon / count
    return xp.where(xp.all(xp.isfinite(values), axis=-1, keepdims=True), p, 1.0 / count)


def is_index(xp: Any, values: Any, count: int) -> Any:
    """Which values are whole numbers from 0 to count - 1."""
    inside = (values >= 0) & (values < count)
    return inside & (values == xp.floor(values))


def _lookup(table: Floats, states: Any, outside: float) -> Any:
    xp, s = _array(states)
    inside = is_index(xp, s, table.shape[0])
    index = xp.where(inside, s, 0).astype(int)
    # The width is said, since JAX would keep that in which it first met the table.
    found = xp.asarray(table, dtype=xp.result_type(float))[index]
    return xp.where(inside[..., None], found, outside)


def _numbers(name: str, value: object, axes: int) -> Floats:
    try:
        # Via a list of objects, so that truth values and words are not taken for numbers.
        kind = value.dtype.kind if isinstance(value, np.ndarray) else None
        if kind is None and not _all_numbers(value, axes):
            raise ValueError
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"must be a {'table' if axes == 2 else 'list'} of numbers.", field=name
        ) from None
    if array.ndim != axes or array.size == 0:
        raise InputError(f"must have {axes} axes and at least one entry.", field=name)
    if not np.all(np.isfinite(array)):
        raise InputError("must be finite.", field=name)
    return array


def _all_numbers(value: object, axes: int) -> bool:
    """Numbers, in at most so many layers of lists."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return axes > 0 and all(_all_numbers(entry, axes - 1) for entry in value)
    if isinstance(value, bool | str | bytes | None):
        return False
    return isinstance(value, int | float | np.number) or hasattr(value, "__array__")


def _check_distributions(name: str, table: Floats) -> None:
    wrong = ~(np.all(table >= 0.0, axis=-1) & (np.abs(table.sum(axis=-1) - 1.0) <= 1e-6))
    if np.any(wrong):
        row = int(np.argmax(wrong))
        raise InputError(
            f"{name}, row {row} (counting from 0): the probabilities must not be negative and must "
            "add up to 1."
        )


def _check_weights(features: object, value: object, name: str = "weights") -> Floats:
    if not isinstance(features, Features):
        raise InputError("must be a feature map of privrl.data.", field="features")
    array = _numbers(name, value, 2)
    if array.shape[0] != features.dimension:
        raise InputError(
            f"{name} has {array.shape[0]} rows, but there are {features.dimension} features."
        )
    return array


def _features_dict(features: Any) -> dict[str, Any]:
    if not hasattr(features, "to_dict"):
        raise InputError("These features cannot be written to a file.")
    found: dict[str, Any] = features.to_dict()
    return found


def _frozen(array: Floats) -> Floats:
    copy = np.array(array, dtype=np.float64)
    if not all(math.isfinite(x) for x in (float(copy.min()), float(copy.max()))):
        raise InputError("Numbers of a policy must be finite.")
    copy.flags.writeable = False
    return copy
