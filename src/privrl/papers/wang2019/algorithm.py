"""Algorithm 1 of Wang and Hegde (2019) in NumPy, in the paper's line order.

States are numbers in [0, 1]. Q_theta is a small network with a value for each action, and g a path
of noise with covariance sigma^2 exp(-beta |x - y|) for each action, drawn afresh every T / J
samples. From s_t by action a_t with reward r_t to s_{t+1},

    a_t = argmax_a Q(s_t, a) + g_a(s_t)
    y_t = r_t + gamma max_a (Q(s_{t+1}, a) + g_a(s_{t+1}))
    l_t = (Q(s_t, a_t) + g(s_t) - y_t)^2 / 2                  with g that of action a_t
    theta <- theta - (alpha / B) sum_t grad l_t               after each B samples, over these

`FunctionalQ.printed` is this, `FunctionalQ.public_code` what the authors' public code does; each
departure is a field of `FunctionalQ`. What the paper leaves open or prints otherwise:

- The gradient is that of Q(s_t, a_t); y_t is a constant to it. The sign of the step is descent.
- y_t and l_t (lines 19 and 20) are computed when their batch is whole. As printed nothing that
  they depend on changes until then: theta stands still, and a path lasts whole batches.
- The path is drawn at s_0 too, which the printed algorithm forgets.
- B need not divide T: the samples after the last whole batch change nothing. Nor need episodes:
  nothing is learned from what the last one has beyond T.
- The network is that of the public code, and starts as there: uniform weights and biases, within
  1 / sqrt(inputs) of a layer.
- A step limit cuts an episode off, and y_t bootstraps there; the public code takes it for terminal.
- An episode that terminates before that stays where it is: replicas, which are runs side by side,
  begin each episode together.

Released: nothing is certified. The paper's promise is a Claim: theta is never noised, only what is
shown of it, and the next update starts from theta. It is for a sigma and a beta that Theorem 5
fixes together (`privrl.privacy.claims.wang2019_theorem5`); a sigma of one's own has no claim.

Randomness is an argument (`EpisodeDraws`, `fresh_path`), so that `privrl.papers.wang2019.fast`,
which does the same for many runs at once, is compared with this line by line.
"""

import math
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from privrl.core.types import AnyArray, Floats
from privrl.papers.wang2019.learner import FunctionalQ
from privrl.papers.wang2019.spec import Edge
from privrl.privacy.mechanisms.functional import bridge

EXPLORATION = (0.9, 0.05, 200.0)
"""The public code's rate of exploration: first, last, and how many samples it decays for."""

RMSPROP = (0.99, 1e-8)
"""Decay of squared gradients, and what is added to their root, as the public code's library has."""


class Path(Protocol):
    """g: a noise path for each network and action."""

    def insert(self, x: float) -> None:
        """Draw the path at a state that was reached."""

    def __call__(self, x: float) -> Floats:
        """(networks, actions): the path at a state."""


class LazyPath:
    """g as the algorithm keeps it: values at the states so far, in sorted order.

    The process is Markov, so that a new value depends on those at the two nearest states alone
    (line 16: Equation (2) of Appendix A). `normals` yields (networks, actions) standard normals.
    With `edge="public-code"` a state right of all others depends on the first instead of the last.
    """

    def __init__(
        self, sigma: float, rate: float, normals: Iterator[Floats], edge: Edge = "correct"
    ) -> None:
        self.sigma, self.rate, self.normals, self.edge = sigma, rate, normals, edge
        self.states: list[float] = []
        self.values: dict[float, Floats] = {}

    def insert(self, x: float) -> None:
        normal = next(self.normals)
        if x in self.values:
            return
        place = bisect_right(self.states, x)
        near = self.states[max(place - 1, 0) : place + 1]
        left = near[0] if place > 0 else -math.inf
        right = near[-1] if place < len(self.states) else math.inf
        from_left, from_right, spread = bridge(
            self.rate * (x - left), self.rate * (right - x), math
        )
        if self.edge == "public-code" and left > -math.inf and right == math.inf:
            left = self.states[0]
        mean = from_left * self.values.get(left, 0.0) + from_right * self.values.get(right, 0.0)
        self.values[x] = mean + self.sigma * spread * normal
        insort(self.states, x)

    def __call__(self, x: float) -> Floats:
        if x not in self.values:
            self.insert(x)
        return self.values[x]


class EpisodeDraws(NamedTuple):
    """All randomness of an episode but its noise."""

    start: float
    moves: Floats
    """(steps,): where actions lead."""

    explores: Floats
    """(steps,), from [0, 1): below the rate of exploration, any action is taken."""

    any_action: AnyArray
    """(steps,): which one."""

    picks: AnyArray
    """(steps, B): the samples of an update."""


class Sample(NamedTuple):
    """A step, as it is learned from."""

    x: float
    action: int
    reward: float
    after: float
    discount: float
    """gamma, or 0 at an end."""


World = Callable[[float, int, float], tuple[float, float]]
"""From a state, an action and a random number: the next state, and the reward."""


class Algorithm1:
    """One run, from `weights`, in a world whose episodes have `horizon` steps."""

    def __init__(
        self,
        learner: FunctionalQ,
        world: World,
        horizon: int,
        actions: int,
        weights: Floats,
        fresh_path: Callable[[], Path],
    ) -> None:
        self.learner, self.world, self.horizon = learner, world, horizon
        self.network = Network((1, *learner.hidden, actions))
        self.weights, self.target = weights, weights
        self.squares = np.zeros_like(weights)
        self.fresh_path, self.g = fresh_path, fresh_path()
        self.samples: list[Sample] = []

    def episode(self, draws: EpisodeDraws) -> float:
        """The lines of the inner loop for each sample, and those after it when they are due.

        Returns the sum of the rewards.
        """
        learner, x, earned = self.learner, float(draws.start), 0.0
        self.g.insert(x)
        for k in range(self.horizon):
            t = len(self.samples)
            if t > 0 and t % learner.period == 0:
                self.g = self.fresh_path()
            if learner.target is not None and t > 0 and t % learner.target == 0:
                self.target = self.weights
            # Execute a_t = argmax_a Q(s_t, a) + g_a(s_t).
            action = int(np.argmax(self.q(self.weights, x) + self.g(x)[0]))
            first, last, decay = EXPLORATION
            rate = last + (first - last) * math.exp(-t / decay)
            if learner.acting == "epsilon-greedy" and draws.explores[k] < rate:
                action = int(draws.any_action[k])
            # Receive r_t and s_{t+1}.
            after, reward = self.world(x, action, float(draws.moves[k]))
            # For each action: insert s_{t+1} into the list, and sample g_a there.
            self.g.insert(after)
            ends = learner.terminal and k == self.horizon - 1
            self.samples.append(Sample(x, action, reward, after, 0.0 if ends else learner.gamma))
            x, earned = after, earned + reward
            # After B of them, one step of SGD.
            number = len(self.samples)
            due = number % learner.batch == 0 if learner.updates == "batch" else True
            if due and learner.batch <= number <= learner.samples:
                self.update([self.samples[int(i)] for i in draws.picks[k]])
        return earned

    def update(self, batch: list[Sample]) -> None:
        """theta <- theta - (alpha / B) sum_t grad l_t."""
        learner = self.learner
        other = self.weights if learner.target is None else self.target
        gradient = np.zeros_like(self.weights)
        for s in batch:
            y = s.reward + s.discount * np.max(self.q(other, s.after) + self.g(s.after)[-1])
            error = float(self.q(self.weights, s.x)[s.action] + self.g(s.x)[0][s.action] - y)
            if learner.loss == "huber":
                error = max(-1.0, min(1.0, error))
            slope = self.network.gradient(self.weights, np.array([s.x]), s.action)
            gradient += error * slope / len(batch)
        if learner.clamp is not None:
            gradient = np.clip(gradient, -learner.clamp, learner.clamp)
        if learner.optimiser == "rmsprop":
            gradient, self.squares = rmsprop(gradient, self.squares)
        self.weights = self.weights - learner.step * gradient

    def q(self, weights: Floats, x: float) -> Floats:
        """(actions,): Q without noise."""
        return self.network.q(weights, np.array([x]))


class Network:
    """Q_theta: layers of these sizes with rectifiers between them, all parameters in one vector."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.shapes = tuple(pairwise(sizes))

    def q(self, weights: Floats, x: Floats) -> Floats:
        """(actions,): the values at a state."""
        return self._activations(weights, x)[-1]

    def gradient(self, weights: Floats, x: Floats, action: int) -> Floats:
        """dQ(x, action) / dtheta, by backpropagation."""
        kept = self._activations(weights, x)
        back = np.zeros(self.shapes[-1][1])
        back[action] = 1.0
        found: list[Floats] = []
        for number, (matrix, _) in reversed(list(enumerate(self._parameters(weights)))):
            found = [np.outer(kept[number], back).ravel(), back, *found]
            back = (matrix @ back) * (kept[number] > 0.0)
        return np.concatenate(found)

    def _activations(self, weights: Floats, x: Floats) -> list[Floats]:
        """What goes into each layer, and last Q."""
        *hidden, (matrix, bias) = self._parameters(weights)
        kept = [x]
        for inner, shift in hidden:
            kept.append(np.maximum(kept[-1] @ inner + shift, 0.0))
        return [*kept, kept[-1] @ matrix + bias]

    def _parameters(self, weights: Floats) -> list[tuple[Floats, Floats]]:
        """Matrix and bias of each layer."""
        found, at = [], 0
        for rows, columns in self.shapes:
            matrix = weights[at : at + rows * columns].reshape(rows, columns)
            at += rows * columns
            found.append((matrix, weights[at : at + columns]))
            at += columns
        return found


def rmsprop(gradient: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """The scaled gradient, and the running means of squares."""
    decay, tiny = RMSPROP
    squares = decay * squares + (1.0 - decay) * gradient**2
    return gradient / (np.sqrt(squares) + tiny), squares
