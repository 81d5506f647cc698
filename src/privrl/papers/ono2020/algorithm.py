"""PGC-A3C: Algorithms 1 to 3 of Ono and Takahashi (2020), line by line in NumPy.

The network is fully connected, without biases: hidden layers of rectified linear units, shared by
preferences h(s) of actions, with pi = softmax(h), and a value V(s). `losses` of
`privrl.control.pgc` says how the printed loss, (15) to (18), was read where it cannot be meant.

Randomness is an argument everywhere, so that tests can hand over the draws of the compiled version
(`privrl.papers.ono2020.learner`) and compare.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from privrl.core.types import Floats

Weights = tuple[Floats, ...]
"""A matrix (outputs, inputs) for each hidden layer, then those of h and of V."""

EXPLORE, EXPLORE_FOR = 0.5, 900
"""An agent acts at random with probability 1/2 at first, and never after so many submissions."""


class World(Protocol):
    """One agent's environment, with dynamics of its own."""

    observation: Floats

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Act: the reward, whether the episode is over, and whether only its clock ended it."""


# --- Algorithm 1 ----------------------------------------------------------------------------------


@dataclass
class Agent:
    """An agent who plays with a copy of the global parameters."""

    weights: Weights
    explore: float
    world: World
    observations: list[Floats] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    over: bool = False
    cut: bool = False

    def step(self, uniform: float) -> None:
        """One step of the episode: the likeliest action, or by exploration any."""
        preferences, _ = outputs(self.weights, self.world.observation)
        action = int(np.argmax(preferences))
        if uniform < self.explore:
            action = int(uniform / self.explore * len(preferences))
        self.observations.append(np.array(self.world.observation))
        reward, self.over, self.cut = self.world.step(action)
        self.actions.append(action)
        self.rewards.append(reward)


def pgc_a3c(
    weights: Weights,
    world: Callable[[int | None, int], World],
    randomise: Callable[[Floats, int], Floats],
    uniform: Callable[[int, int], float],
    *,
    submissions: int,
    flight: int,
    buffer: int,
    rate: float,
    gamma: float,
    value_weight: float,
    entropy: float,
) -> Weights:
    """Algorithm 1: the global parameters after so many submissions.

    Args:
        weights: the initial global parameters theta.
        world: `world(number, place)` is the environment of the agent who comes after submission
            `number`, or at first (None), and plays in one of the `flight` places.
        randomise: the mechanism Q: `randomise(gradient, number)`.
        uniform: `uniform(tick, place)` in [0, 1), for exploration.
        buffer: MAX_BUF.
        rate: eta.
        value_weight: lambda.
        entropy: beta.
    """
    received: list[Floats] = []  # B
    count = tick = 0

    def begin(number: int | None, place: int) -> Agent:
        explore = max(0.0, EXPLORE * (1.0 - count / EXPLORE_FOR))
        return Agent(weights, explore, world(number, place))  # theta' <- theta

    playing = [begin(None, place) for place in range(flight)]
    while count < submissions:
        for place, agent in enumerate(playing):  # asynchronously: everybody takes a step
            agent.step(uniform(tick, place))
        tick += 1
        left = []
        for place, agent in enumerate(playing):
            if not agent.over or count == submissions:
                continue
            g = gradient(agent, gamma=gamma, value_weight=value_weight, entropy=entropy)
            received.append(randomise(g, count))  # B <- B + {g~}
            left.append((place, count))
            count += 1
            if len(received) >= buffer:
                mean = np.mean(received, axis=0)
                weights = unflatten(flatten(weights) - rate * mean, weights)  # (22)
                received = []
        for place, number in left:
            playing[place] = begin(number, place)
    return weights


# --- the loss -------------------------------------------------------------------------------------


def outputs(weights: Weights, observation: Floats) -> tuple[Floats, float]:
    """h(s) and V(s)."""
    x = observation
    for layer in weights[:-2]:
        x = np.maximum(layer @ x, 0.0)
    return weights[-2] @ x, float((weights[-1] @ x)[0])


def gradient(agent: Agent, *, gamma: float, value_weight: float, entropy: float) -> Floats:
    """The gradient of the loss of an agent's episode, by back-propagation, as one vector.

    L   = sum_t ( -A_t log pi(a_t|s_t) - beta H(pi(.|s_t)) + lambda (G_t - V(s_t))^2 )
    G_t = r_t + gamma G_{t+1},  G_T = V(s_T) if the clock ended the episode, else 0
    A_t = G_t - V(s_t); G_t and A_t are constants for the gradient
    """
    weights, total = agent.weights, [np.zeros(layer.shape) for layer in agent.weights]
    after = outputs(weights, agent.world.observation)[1] if agent.cut else 0.0
    steps = zip(agent.observations, agent.actions, agent.rewards, strict=True)
    for observation, action, reward in reversed(list(steps)):
        after = reward + gamma * after
        inside = [observation]
        for layer in weights[:-2]:
            inside.append(np.maximum(layer @ inside[-1], 0.0))
        preferences, value = outputs(weights, observation)
        policy = np.exp(preferences - np.max(preferences))
        policy /= np.sum(policy)
        chosen = np.arange(len(policy)) == action
        # d(-log pi_a)/dh = pi - 1_a, and d(-H)/dh = pi (log pi + H).
        logs = np.log(np.maximum(policy, 1e-30))
        by_preference = (after - value) * (policy - chosen)
        by_preference = by_preference + entropy * policy * (logs - policy @ logs)
        by_value = np.array([-2.0 * value_weight * (after - value)])
        total[-2] += np.outer(by_preference, inside[-1])
        total[-1] += np.outer(by_value, inside[-1])
        back = weights[-2].T @ by_preference + weights[-1].T @ by_value
        for k in range(len(weights) - 3, -1, -1):
            back = back * (inside[k + 1] > 0.0)
            total[k] += np.outer(back, inside[k])
            back = weights[k].T @ back
    return flatten(tuple(total))


def flatten(weights: Weights) -> Floats:
    """All matrices as one vector."""
    return np.concatenate([layer.ravel() for layer in weights])


def unflatten(vector: Floats, like: Weights) -> Weights:
    """Matrices of these shapes."""
    ends = np.cumsum([layer.size for layer in like])[:-1]
    parts = np.split(vector, ends)
    return tuple(part.reshape(layer.shape) for part, layer in zip(parts, like, strict=True))


# --- Algorithms 2 and 3 ---------------------------------------------------------------------------


def laplace(gradient: Floats, epsilon: float, clip: float, noise: Floats) -> Floats:
    """Algorithm 2: clipped to L1 norm C / 2 (19), with Laplace noise of scale C / epsilon (21).

    `noise` are standard Laplace draws, one for each entry.
    """
    clipped = gradient / max(1.0, float(np.sum(np.abs(gradient))) / (clip / 2.0))
    return clipped + clip / epsilon * noise


def projected_random_sign(
    gradient: Floats, epsilon: float, clip: float, projection: Floats, uniforms: Floats
) -> Floats:
    """Algorithm 3: signs of random projections, flipped at random.

    `projection` is M (d^, d), entries -sqrt(3), 0, sqrt(3) with probability 1/6, 2/3, 1/6 (5);
    `uniforms` in [0, 1), one for each of its rows.
    """
    bits = len(projection)
    u = np.clip(projection @ gradient, -clip, clip)  # (23)
    odds = np.exp(epsilon / bits)
    plus = 1.0 / (odds + 1.0) + (u + clip) / (2.0 * clip) * (odds - 1.0) / (odds + 1.0)  # (24)
    return np.asarray(projection.T @ np.where(uniforms < plus, clip, -clip))
