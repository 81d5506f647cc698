"""Planning on released rewards: post-processing of a public rollout, any number of times, for
nothing.

Given are the public part of a `rollouts.Rollout`, steps (s_i, a_i, s_i', ended_i) for i = 1, ...,
n, and a reward r_i for each that has been *released* before. Nothing here sees a private number.
With g_i = 0 where the step ended the episode and gamma otherwise, and Q given by a head,

- `fitted_q_iteration`: fitted Q-iteration. Q <- the regression of r_i + g_i max_a Q(s_i', a) on
  (s_i, a_i),
  until it stands still or for so many rounds. A table takes means; what is linear in features is
  fitted for each action by ridge regression, (X'X + ridge m I)^-1 X'y with m the mean of X'X's
  diagonal, so that the ridge has no units. On a table whose cells are visited in the proportions of
  the true dynamics this is value iteration.
- `actor_critic`: natural policy gradient on the released rewards. The critic is the same regression
  with the mean over the actor's actions in place of the maximum (expected SARSA), w = the weights
  of Q; the actor is softmax(u'phi(s)), whose compatible features are the critic's own, so that its
  natural gradient is w (Kakade 2001), and u <- u + step w.
- `network_q`: the same fixed point as `fitted_q_iteration` with a network, by gradient steps on
  squared
  errors against a copy that is renewed now and then. Rewards are divided by their spread first.

Targets are kept within what the rewards could add up to, so that nothing grows without bound,
whatever the features. Linear planners are deterministic; the network's randomness is fixed by a
public number.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from privrl.control.heads import Head, Layers, Linear, Table
from privrl.control.rollouts import Rollout
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.nets import adam

# Values that move by less, relative to themselves or to 1, stand still.
_TOLERANCE = 1e-12


def refuse_unseen(head: Head, rollout: Rollout) -> None:
    """Raise if a regression for each action would have nothing to go by; public, as the rollout
    is."""
    if isinstance(head, Linear):
        for action in range(head.outputs):
            if not np.any(rollout.action == action):
                raise InputError(f"The rollout never took action {action}: use more steps.")


class Regression(Protocol):
    """Least squares of targets on what the rollout did."""

    def fit(self, targets: Floats) -> Floats:
        """Parameters, (d, A)."""
        ...

    def next_values(self, parameters: Floats) -> Floats:
        """(n, A) values of each action at the points it was made for."""
        ...


class TargetFunction(Protocol):
    """Targets of a network, compiled: frozen and hashable."""

    def __call__(self, head: Layers, parameters: Any, data: Any) -> Any:
        """(n,) of the parameters and of what was released."""
        ...


@dataclass(frozen=True, eq=False)
class _Means:
    """The regression of a table: the mean of each cell; cells never visited count as `worst`."""

    cell: Any
    led: Any
    shape: tuple[int, int]
    worst: float

    def fit(self, targets: Floats) -> Floats:
        size = math.prod(self.shape)
        visits = np.bincount(self.cell, minlength=size)
        sums = np.bincount(self.cell, weights=targets, minlength=size)
        means = np.where(visits > 0, sums / np.maximum(visits, 1), self.worst)
        return np.asarray(means.reshape(self.shape))

    def next_values(self, parameters: Floats) -> Floats:
        return np.asarray(parameters[self.led])


@dataclass(frozen=True, eq=False)
class _Ridge:
    """The regression of a linear head, for each action by itself."""

    rows: list[Any]
    solvers: list[Floats]
    led: Floats

    @classmethod
    def of(cls, head: Linear, rollout: Rollout, ridge: float, points: Any) -> "_Ridge":
        phi, led = (
            np.asarray(head.features(seen), np.float64) for seen in (rollout.observation, points)
        )
        rows, solvers = [], []
        refuse_unseen(head, rollout)
        for action in range(head.outputs):
            mine = np.flatnonzero(rollout.action == action)
            x = phi[mine]
            gram = x.T @ x
            unit = float(np.mean(np.diagonal(gram))) or 1.0
            gram[np.diag_indices_from(gram)] += ridge * unit
            rows.append(mine)
            solvers.append(np.linalg.pinv(gram, hermitian=True) @ x.T)
        return cls(rows, solvers, led)

    def fit(self, targets: Floats) -> Floats:
        columns = [m @ targets[i] for i, m in zip(self.rows, self.solvers, strict=True)]
        return np.stack(columns, axis=1)

    def next_values(self, parameters: Floats) -> Floats:
        return np.asarray(self.led @ parameters)


def regression(
    head: Head, rollout: Rollout, ridge: float, worst: float, points: Any = None
) -> Regression:
    """That of a head; values are asked for at `points`, by default where each step led."""
    led = rollout.next_observation if points is None else points
    if isinstance(head, Table):
        cell = rollout.observation * head.outputs + rollout.action
        return _Means(cell, led, (head.states, head.outputs), worst)
    if isinstance(head, Linear):
        return _Ridge.of(head, rollout, ridge, led)
    raise InputError("A network is for the planner 'network'.")


def _value_bounds(rewards: Floats, gamma: float, rounds: int) -> tuple[float, float]:
    """What rewards like these add up to at least and at most, until an end or for ever."""
    most = rounds if gamma == 1.0 else (1.0 - gamma**rounds) / (1.0 - gamma)
    low, high = float(rewards.min()), float(rewards.max())
    return min(low, low * most), max(high, high * most)


def fitted_iteration(
    fit: Regression,
    aims: Callable[[Floats], Floats],
    limits: tuple[float, float],
    rounds: int,
    start: Floats,
) -> Floats:
    """Q after so many backups, or earlier if it stands still; `aims` are the targets of Q."""
    q = start
    for _ in range(rounds):
        new = fit.fit(np.clip(aims(q), *limits))
        # Each by itself: cells that were never visited may be as bad as can be.
        still = np.all(np.abs(new - q) <= _TOLERANCE * (1.0 + np.abs(new)))
        q = new
        if still:
            break
    return q


def fitted_q_iteration(
    rollout: Rollout, rewards: Floats, head: Head, gamma: float, rounds: int, ridge: float
) -> Floats:
    """The parameters (d, A) of Q by fitted Q-iteration; see the module."""
    limits = _value_bounds(rewards, gamma, rounds)
    fit = regression(head, rollout, ridge, limits[0])

    def bellman_targets(q: Floats) -> Floats:
        return rewards + np.where(rollout.terminated, 0.0, gamma * fit.next_values(q).max(axis=1))

    return fitted_iteration(fit, bellman_targets, limits, rounds, np.zeros(head.shape))


def actor_critic(
    rollout: Rollout,
    rewards: Floats,
    head: Head,
    gamma: float,
    rounds: int,
    ridge: float,
    *,
    iterations: int,
    step: float,
) -> tuple[Floats, Floats]:
    """The actor's preferences u and the critic's weights w, both (d, A); see the module.

    w is the value of the actor *before* its last step.
    """
    limits = _value_bounds(rewards, gamma, rounds)
    fit = regression(head, rollout, ridge, limits[0])
    u, w = np.zeros(head.shape), np.zeros(head.shape)
    for _ in range(iterations):
        scores = fit.next_values(u)
        probs = np.exp(scores - scores.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)

        def bellman_targets(q: Floats, probs: Floats = probs) -> Floats:
            mean = np.sum(probs * fit.next_values(q), axis=1)
            return rewards + np.where(rollout.terminated, 0.0, gamma * mean)

        w = fitted_iteration(fit, bellman_targets, limits, rounds, w)
        u = u + step * w
    return u, w


def network_q(
    rollout: Rollout,
    rewards: Floats,
    head: Layers,
    gamma: float,
    *,
    updates: int,
) -> Floats:
    """All parameters of a network's Q; see the module."""
    # Where nothing ends, a constant in all rewards is one in all values: it need not be fitted.
    endless = gamma < 1.0 and not np.any(rollout.terminated)
    middle = float(np.mean(rewards)) if endless else 0.0
    unit = float(np.max(np.abs(rewards - middle))) or 1.0
    scaled = (rewards - middle) / unit
    with jax.enable_x64(True):
        data = (
            jnp.asarray(scaled),
            head.inputs(jnp.asarray(rollout.next_observation)),
            jnp.where(jnp.asarray(rollout.terminated), 0.0, gamma),
        )
        limits = _value_bounds(scaled, gamma, updates)
        found = head.scale_outputs(
            fit_network(head, rollout, _bellman_targets, data, limits, updates), unit
        )
    if endless:
        found[-head.outputs :] += middle / (1.0 - gamma)
    return found


def _bellman_targets(head: Layers, parameters: Any, data: Any) -> Any:
    reward, led, goes_on = data
    return reward + goes_on * jnp.max(head.apply(parameters, led), axis=1)


def fit_network(
    head: Layers,
    rollout: Rollout,
    aims: TargetFunction,
    data: Any,
    limits: tuple[float, float],
    updates: int,
) -> Floats:
    """A network's parameters by gradient steps towards `aims` of `data`, cut at the limits."""
    inputs = head.inputs(jnp.asarray(rollout.observation))
    action = jnp.asarray(rollout.action, jnp.int32)
    return np.array(_descend(head, aims, updates, inputs, action, data, limits), np.float64)


# How often targets are renewed, how many steps of the rollout a batch takes, and the first step
# size.
_RENEWALS, _BATCH, _STEP = 60, 64, 0.003


@partial(jax.jit, static_argnums=(0, 1, 2))
def _descend(
    head: Layers,
    aims: TargetFunction,
    updates: int,
    inputs: Any,
    action: Any,
    data: Any,
    limits: Any,
) -> Any:
    """Adam on squared errors, in batches, against a copy renewed after every so many updates."""
    count, every = action.shape[0], max(1, updates // _RENEWALS)

    def loss(parameters: Any, chosen: Any, targets: Any) -> Any:
        values = head.apply(parameters, inputs[chosen])
        own = jnp.take_along_axis(values, action[chosen][:, None], axis=1)[:, 0]
        return 0.5 * jnp.mean((targets - own) ** 2)

    def one(carry: Any, number: Any) -> Any:
        parameters, moments, targets = carry

        def new_targets(_: Any) -> Any:
            return jnp.clip(aims(head, parameters, data), *limits)

        targets = lax.cond(number % every == 0, new_targets, lambda old: old, targets)
        draw = jax.random.fold_in(jax.random.key(head.seed), number)
        chosen = jax.random.randint(draw, (_BATCH,), 0, count)
        slope = jax.grad(loss)(parameters, chosen, targets[chosen])
        down, moments = adam(slope, moments, jnp.asarray(number + 1, slope.dtype))
        # Smaller steps towards the end, so that the noise of batches averages out.
        size = _STEP * (1.0 - number / updates)
        return (parameters - size * down, moments, targets), None

    first = jnp.asarray(head.initial_parameters())
    begun = (first, jnp.zeros((2, first.size)), jnp.zeros(count))
    return lax.scan(one, begun, jnp.arange(updates))[0][0]
