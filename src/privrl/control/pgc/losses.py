"""What an agent computes while it plays: the gradient of its loss, added up step by step.

**Model.** Fully connected layers without biases. The last ones give preferences h(s), one for each
action, and if there is a critic a value V(s); all layers before are shared. Actions have the
probabilities pi(.|s) = softmax(h(s)).

**Loss** (Ono and Takahashi 2020, (15) to (18)), of an episode s_0, a_0, r_0, ..., s_T:

    L    =  sum_t ( - A_t log pi(a_t|s_t)  -  beta H(pi(.|s_t))  +  lambda (G_t - V(s_t))^2 )
    G_t  =  sum_{j=t}^{T-1} gamma^(j-t) r_j  +  gamma^(T-t) V(s_T),        A_t = G_t - b_t

with b_t = V(s_t). Where what is printed cannot be meant, this is what was chosen:

- (18) prints V(s_T) without gamma^(T-t), which (12) has.
- V(s_T) counts only where the episode was cut off by its clock. After a failure nothing follows,
  and it is 0.
- (10) prints the entropy H with the other sign, as a penalty; (16) has it as a bonus.
- A_t and G_t are constants for the gradient, as in all actor-critic methods.
- Sums are over the steps that were taken, 0 to T-1: in s_T no action was.

Without a critic, b_t is a public constant, the same for all agents, lambda = 0 and V(s_T) = 0.

**Forward.** G_t is known only at the end, but the gradient of -L can be added up on the way, so
that no episode needs to be kept. With x_t = grad log pi(a_t|s_t) + 2 lambda grad V(s_t) it is

    sum_t A_t x_t + beta sum_t grad H_t
       =  sum_j r_j z_j  +  gamma V(s_T) z_{T-1}  -  sum_t b_t x_t  +  beta sum_t grad H_t,
    z_j  =  gamma z_{j-1} + x_j,   z_{-1} = 0

because sum_t G_t x_t = sum_j r_j sum_{t<=j} gamma^(j-t) x_t + V(s_T) sum_t gamma^(T-t) x_t. A few
steps m, ..., n-1 at a time, with g_t = sum_{j=t}^{n-1} gamma^(j-t) r_j what they pay from t on,

    sum_{j=m}^{n-1} r_j z_j  =  gamma g_m z_{m-1}  +  sum_{t=m}^{n-1} g_t x_t
    z_{n-1}                  =  gamma^(n-m) z_{m-1}  +  sum_{t=m}^{n-1} gamma^(n-1-t) x_t.

Everything is for one agent, or for many along a last axis that all arrays have; "scalars" are then
vectors. Where there are several steps, their axis is the one before. Written without matrix
products, each operation is one loop over neighbouring numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from privrl.control.pgc.spec import Activation
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.data import OneHot, Policy
from privrl.data.policies import Network
from privrl.envs.base import Box, Discrete

Weights = tuple[Any, ...]
"""A matrix (outputs, inputs) for each layer, that of the preferences next to last if there is a
critic."""

# Below this many terms a sum is written out, which compiles into one loop with what comes after it.
_UNROLL_LIMIT = 32
# Less likely actions count as this likely where a logarithm is taken.
_TINY = 1e-30


@dataclass(frozen=True)
class Model:
    """The layers of actor and critic, for observations of one environment."""

    observation: Discrete | Box
    actions: int
    hidden: tuple[int, ...] = (16,)
    activation: Activation = "relu"
    critic: bool = False
    scale: tuple[float, ...] | None = None
    """Observations are divided by these public numbers; None for as they are."""

    first: Literal["glorot", "uniform"] = "glorot"
    """"glorot": all first weights are drawn by the rule of Glorot and Bengio (2010). "uniform": but
    those of the last layers, which are zeros, so that the first policy is uniform."""

    def __post_init__(self) -> None:
        sizes = tuple(checks.count("a size in hidden", size) for size in self.hidden)
        object.__setattr__(self, "hidden", sizes)
        if self.scale is not None:
            scale = tuple(checks.positive("a number in scale", one) for one in self.scale)
            if len(scale) != self.inputs:
                raise InputError(
                    f"must have {self.inputs} numbers, one for each input.", field="scale"
                )
            object.__setattr__(self, "scale", scale)

    @property
    def inputs(self) -> int:
        """How many numbers an observation is; states are marked by a one among zeros."""
        seen = self.observation
        return seen.n if isinstance(seen, Discrete) else len(seen.low)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Of the matrices: the shared layers, the preferences, the value."""
        sizes = (self.inputs, *self.hidden)
        shared = tuple(zip(sizes[1:], sizes[:-1], strict=True))
        last = sizes[-1]
        return (*shared, (self.actions, last), *([(1, last)] if self.critic else []))

    @property
    def dimension(self) -> int:
        """How many parameters there are."""
        return sum(math.prod(shape) for shape in self.shapes)

    def initial_parameters(self, key: jax.Array) -> jax.Array:
        """The public parameters to begin with, as one vector in 64 bits."""
        drawn = jax.random.uniform(key, (self.dimension,), jnp.float64, -1.0, 1.0)
        reach = [math.sqrt(6.0 / (rows + columns)) for rows, columns in self.shapes]
        if self.first == "uniform":
            reach[len(self.hidden) :] = [0.0] * (len(self.shapes) - len(self.hidden))
        sizes = [rows * columns for rows, columns in self.shapes]
        return drawn * np.repeat(reach, sizes)

    def weights(self, theta: Any) -> Weights:
        """The matrices in a vector of parameters; axes after the first are kept."""
        found, at = [], 0
        for rows, columns in self.shapes:
            size = rows * columns
            found.append(theta[at : at + size].reshape(rows, columns, *theta.shape[1:]))
            at += size
        return tuple(found)

    def flatten(self, weights: Weights) -> Any:
        """The vector of parameters; the way back from `weights`."""
        return jnp.concatenate([w.reshape(-1, *w.shape[2:]) for w in weights])

    def layer_inputs(self, weights: Weights, observation: Any) -> list[Any]:
        """What goes into each layer: the inputs, and the outputs of the shared layers."""
        dtype = weights[0].dtype
        if isinstance(self.observation, Discrete):
            x = _one_hot(observation, self.inputs, dtype)
        else:
            x = observation.astype(dtype)
        if self.scale is not None:
            shares = jnp.asarray([1.0 / one for one in self.scale], dtype)
            x = x * shares.reshape(-1, *(1,) * (x.ndim - 1))
        found = [x]
        for own in weights[: len(self.hidden)]:
            y = _matvec(own, found[-1])
            found.append(jnp.tanh(y) if self.activation == "tanh" else jnp.maximum(y, 0.0))
        return found

    def outputs(self, weights: Weights, inside: list[Any]) -> tuple[Any, Any]:
        """The preferences, and the value; 0 without a critic."""
        depth = len(self.hidden)
        value = _matvec(weights[depth + 1], inside[-1])[0] if self.critic else 0.0
        return _matvec(weights[depth], inside[-1]), value

    def vjp(self, weights: Weights, inside: list[Any], up: Any, up_value: Any) -> Weights:
        """The gradient of sum_t (up_t' h(s_t) + up_value_t V(s_t)), over several steps."""
        depth = len(self.hidden)
        found = [_outer(up, inside[-1])]
        back = _matvec(jnp.swapaxes(weights[depth], 0, 1)[:, :, None], up)
        if self.critic:
            found.append(_outer(up_value[None], inside[-1]))
            back = back + weights[depth + 1][0][:, None] * up_value
        for number in range(depth - 1, -1, -1):
            after = inside[number + 1]
            slope = 1.0 - after * after if self.activation == "tanh" else after > 0.0
            back = back * slope
            found.insert(0, _outer(back, inside[number]))
            if number:
                back = _matvec(jnp.swapaxes(weights[number], 0, 1)[:, :, None], back)
        return tuple(found)

    def policy(self, theta: NDArray[np.float64]) -> Policy:
        """The softmax of the preferences, for use elsewhere."""
        matrices = [np.asarray(w, np.float64).T for w in self.weights(np.asarray(theta))]
        if self.scale is not None:
            matrices[0] = matrices[0] / np.asarray(self.scale)[:, None]
        layers = tuple((w, np.zeros(w.shape[1])) for w in matrices[: len(self.hidden) + 1])
        seen = self.observation
        features = OneHot(seen.n) if isinstance(seen, Discrete) else None
        return Network(layers, self.activation, features)


def _matvec(matrix: Any, x: Any) -> Any:
    """matrix @ x, as one loop over whatever it is mapped over."""
    columns = matrix.shape[1]
    if columns > _UNROLL_LIMIT:
        return jnp.sum(matrix * x, axis=1)
    return reduce(lambda a, b: a + b, [matrix[:, i] * x[i] for i in range(columns)])


def _outer(a: Any, b: Any) -> Any:
    """sum_t a_t b_t'."""
    return reduce(lambda x, y: x + y, [a[:, None, t] * b[:, t] for t in range(a.shape[1])])


def _one_hot(number: Any, count: int, dtype: Any) -> Any:
    """A one at the place of the number, and zeros elsewhere."""
    return jnp.stack([number == one for one in range(count)]).astype(dtype)


def softmax(scores: Any) -> Any:
    """Normalised exponentials; uniform where a score is not a number."""
    scores = jnp.where(jnp.isfinite(jnp.sum(scores, axis=0)), scores, 0.0)
    raised = jnp.exp(scores - jnp.max(scores, axis=0))
    return raised / jnp.sum(raised, axis=0)


# --- acting ---------------------------------------------------------------------------------------


def sample_action(probs: Any, uniform: Any) -> Any:
    """An action by its probability, from a number of [0, 1)."""
    action, below = jnp.zeros_like(uniform, jnp.int32), jnp.zeros_like(uniform)
    for a in range(probs.shape[0] - 1):
        below = below + probs[a]
        action = action + (uniform >= below)
    return action


def explore_uniformly(probs: Any, explore: Any) -> Any:
    """The probabilities of who acts by `probs`, but with probability `explore` by any."""
    return (1.0 - explore) * probs + explore / probs.shape[0]


def epsilon_greedy(probs: Any, explore: Any, uniform: Any) -> Any:
    """The likeliest action, but with probability `explore` any, equally often."""
    count = probs.shape[0]
    # Below `explore` the same number, stretched, says which action it is.
    anyone = jnp.floor(uniform / jnp.where(explore > 0.0, explore, 1.0) * count)
    anyone = jnp.minimum(anyone.astype(jnp.int32), count - 1)
    return jnp.where(uniform < explore, anyone, jnp.argmax(probs, axis=0).astype(jnp.int32))


# --- the gradient ---------------------------------------------------------------------------------


class Steps(NamedTuple):
    """What is remembered of a few steps until their gradients are added."""

    inside: list[Any]
    """`Model.layer_inputs`, hence (numbers, steps) each."""

    probs: Any
    """(actions, steps)."""

    value: Any
    action: Any
    reward: Any
    live: Any
    """Whether there was such a step: the episode may end before the last one."""


class Sums(NamedTuple):
    """Where an episode's gradient stands: z_j, and what has been added up; of the ascent on -L."""

    trace: Weights
    total: Weights


def initial_sums(weights: Weights) -> Sums:
    """Before the first step."""
    zeros = tuple(jnp.zeros_like(w) for w in weights)
    return Sums(zeros, zeros)


@dataclass(frozen=True)
class Loss:
    """The loss of an agent, for a model: how steps are added, and how an episode is closed.

    Settings are numbers by name: "gamma"; without a critic "baseline", with one "value_weight"
    (lambda) and "entropy" (beta).
    """

    model: Model

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of its settings."""
        return ("gamma", "value_weight", "entropy") if self.model.critic else ("gamma", "baseline")

    def add(
        self, settings: Mapping[str, Any], weights: Weights, steps: Steps, sums: Sums, new: Any
    ) -> Sums:
        """The sums after a few more steps; `new` says whether they are an episode's first."""
        gamma, model = settings["gamma"], self.model

        def earlier(after: Any, step: Any) -> Any:
            paid, fade = after
            live, reward = step
            paid = jnp.where(live, reward, 0.0) + gamma * paid
            return (paid, jnp.where(live, gamma * fade, fade)), (paid, jnp.where(live, fade, 0.0))

        none = jnp.zeros_like(steps.reward[0])
        # A scan, since written out it would be computed again for each of the parameters.
        (paid, fade), (gains, later) = lax.scan(
            earlier, (none, none + 1.0), (steps.live, steps.reward), reverse=True
        )
        base = steps.value if model.critic else settings["baseline"]
        advantage = jnp.where(steps.live, gains - base, 0.0)
        lean = _one_hot(steps.action, model.actions, steps.probs.dtype) - steps.probs
        each = 2.0 * settings["value_weight"] if model.critic else 0.0
        trace = model.vjp(weights, steps.inside, later * lean, later * each)
        up = advantage * lean
        if model.critic:
            logs = jnp.log(jnp.maximum(steps.probs, _TINY))
            surprise = logs - jnp.sum(steps.probs * logs, axis=0)
            bonus = settings["entropy"] * steps.probs * surprise
            up = up - jnp.where(steps.live, bonus, 0.0)
        total = model.vjp(weights, steps.inside, up, advantage * each)
        old = [jnp.where(new, 0.0, z) for z in sums.trace]
        # Nothing was paid while the others played on, and nothing times infinity is no number.
        more = [jnp.where(paid == 0.0, 0.0, gamma * paid * z) for z in old]
        parts = zip(sums.total, more, total, strict=True)
        return Sums(
            tuple(fade * z + x for z, x in zip(old, trace, strict=True)),
            tuple(jnp.where(new, 0.0, s) + z + x for s, z, x in parts),
        )

    def close(
        self, settings: Mapping[str, Any], weights: Weights, last: Any, cut: Any, sums: Sums
    ) -> Weights:
        """The whole gradient of -L, given the last observation and whether the clock cut it off."""
        if not self.model.critic:
            return sums.total
        value = self.model.outputs(weights, self.model.layer_inputs(weights, last))[1]
        follows = jnp.where(cut, settings["gamma"] * value, 0.0)
        parts = zip(sums.total, sums.trace, strict=True)
        return tuple(one + follows * z for one, z in parts)
