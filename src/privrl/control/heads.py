"""Heads: functions of observations with parameters in one vector, for actors, critics and Q.

A table (`Table`), linear in features (`Linear`), or a small network (`Layers`). A head gives its
outputs for the observations of an episode, and `vjp(parameters, inputs, weights)`: the sum over t
of weights_t' d out(s_t) / d parameters.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Features, OneHot, Policy, Softmax, Tabular
from privrl.data.features import features_from_dict
from privrl.data.policies import Network as NetworkPolicy
from privrl.envs.base import Box, Discrete
from privrl.nets import ACTIVATIONS, mlp


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

    def initial_parameters(self) -> Floats:
        """The public parameters to begin with, as one vector."""
        ...

    def inputs(self, observations: Any) -> Any:
        """What the observations (n, ...) of an episode are to this head."""
        ...

    def apply(self, parameters: Any, inputs: Any) -> Any:
        """(n, outputs)."""
        ...

    def vjp(self, parameters: Any, inputs: Any, weights: Any) -> Any:
        """The sum over rows of weights' d out / d parameters, as one vector."""
        ...

    def scale_outputs(self, parameters: Floats, factor: float) -> Floats:
        """Parameters that give `factor` times the outputs."""
        ...

    def policy(self, parameters: Floats) -> Policy:
        """The softmax of the outputs."""
        ...

    @property
    def spec(self) -> "Features | Network":
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

    def initial_parameters(self) -> Floats:
        return np.zeros(self.states * self.outputs)

    def inputs(self, observations: Any) -> Any:
        # One past the end is outside for reading, where zeros are read, and for adding.
        inside = (observations >= 0) & (observations < self.states)
        return jnp.where(inside, observations, self.states).astype(jnp.int32)

    def apply(self, parameters: Any, inputs: Any) -> Any:
        table = jnp.reshape(parameters, self.shape)
        return table.at[inputs].get(mode="fill", fill_value=0.0)

    def vjp(self, parameters: Any, inputs: Any, weights: Any) -> Any:
        zeros = jnp.zeros(self.shape, weights.dtype)
        return zeros.at[inputs].add(weights, mode="drop").ravel()

    def scale_outputs(self, parameters: Floats, factor: float) -> Floats:
        return parameters * factor

    def policy(self, parameters: Floats) -> Policy:
        table = parameters.reshape(self.shape)
        raised = np.exp(table - table.max(axis=1, keepdims=True))
        return Tabular(raised / raised.sum(axis=1, keepdims=True))

    @property
    def spec(self) -> "Features | Network":
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

    def initial_parameters(self) -> Floats:
        return np.zeros(self.features.dimension * self.outputs)

    def inputs(self, observations: Any) -> Any:
        return jnp.asarray(self.features(observations), jnp.result_type(float))

    def apply(self, parameters: Any, inputs: Any) -> Any:
        return inputs @ jnp.reshape(parameters, self.shape)

    def vjp(self, parameters: Any, inputs: Any, weights: Any) -> Any:
        return (inputs.T @ weights).ravel()

    def scale_outputs(self, parameters: Floats, factor: float) -> Floats:
        return parameters * factor

    def policy(self, parameters: Floats) -> Policy:
        return Softmax(self.features, parameters.reshape(self.shape))

    @property
    def spec(self) -> "Features | Network":
        return self.features

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "linear",
            "features": features_to_dict(self.features),
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
        return (sum((i + 1) * o for i, o in self._layer_shapes),)

    @property
    def _layer_shapes(self) -> list[tuple[int, int]]:
        return list(zip(self.sizes[:-1], self.sizes[1:], strict=True))

    def initial_parameters(self) -> Floats:
        draw = np.random.default_rng(self.seed)
        parts = []
        for number, (width, outputs) in enumerate(self._layer_shapes):
            last = number == len(self._layer_shapes) - 1
            scale = 0.0 if last else 1.0 / math.sqrt(width)
            parts += [scale * draw.standard_normal(width * outputs), np.zeros(outputs)]
        return np.concatenate(parts)

    def layers(self, parameters: Any) -> list[tuple[Any, Any]]:
        """Pairs of weights (in, out) and biases (out,)."""
        found, at = [], 0
        for width, outputs in self._layer_shapes:
            middle, end = at + width * outputs, at + (width + 1) * outputs
            weights = parameters[at:middle].reshape(width, outputs)
            found.append((weights, parameters[middle:end]))
            at = end
        return found

    def inputs(self, observations: Any) -> Any:
        rows = observations if self.features is None else self.features(observations)
        return jnp.asarray(rows, jnp.result_type(float))

    def apply(self, parameters: Any, inputs: Any) -> Any:
        return mlp(self.layers(parameters), inputs, self.activation)

    def vjp(self, parameters: Any, inputs: Any, weights: Any) -> Any:
        _, back = jax.vjp(lambda p: self.apply(p, inputs), parameters)
        return back(weights)[0]

    def scale_outputs(self, parameters: Floats, factor: float) -> Floats:
        width, outputs = self._layer_shapes[-1]
        last = (width + 1) * outputs
        return np.concatenate([parameters[:-last], factor * parameters[-last:]])

    def policy(self, parameters: Floats) -> Policy:
        return NetworkPolicy(tuple(self.layers(parameters)), self.activation, self.features)

    @property
    def spec(self) -> "Features | Network":
        return Network(self.sizes[1:-1], self.features, self.seed)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "layers",
            "sizes": list(self.sizes),
            "features": None if self.features is None else features_to_dict(self.features),
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
            raise InputError(
                "must be the sizes of the hidden layers, such as (16,).", field="hidden"
            )
        sizes = tuple(checks.count("a size in hidden", size) for size in self.hidden)
        object.__setattr__(self, "hidden", sizes)
        if self.features is not None and not isinstance(self.features, Features):
            raise InputError("must be a feature map of privrl.data, or None.", field="features")


def make_head(
    features: "Features | Network | str | None", observed: Discrete | Box, outputs: int, name: str
) -> Head:
    """The head that was wished for, for observations like these."""
    assert not isinstance(features, str)  # names were resolved where the environment was known
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
    if activation not in ACTIVATIONS:
        raise InputError(f"must be 'tanh' or 'relu', not {activation!r}.", field="activation")
    sizes = tuple(int(size) for size in data["sizes"])
    return Layers(sizes, inside, int(data["seed"]), activation)


def features_to_dict(features: Any) -> dict[str, Any]:
    """The JSON form of features, if they have one."""
    if not hasattr(features, "to_dict"):
        raise InputError("These features have no JSON form, so the result has none.")
    found: dict[str, Any] = features.to_dict()
    return found
