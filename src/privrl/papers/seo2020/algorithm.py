"""Algorithms 1 to 4 of Seo and Yang (2020), line by line, on tables of states, in plain NumPy.

Off-policy actor-critic (Algorithm 1), DP-Actor (2), DP-Critic (3) and DP-Both (4). Per step, from
state s by action a to s' with reward r, x_s one-hot:

    delta = r + gamma(s') v[s'] - v[s],        gamma(s') = 0 if the episode terminated, else gamma
    e_v  <- rho (x_s + gamma lambda e_v)
    z     = delta e_v - gamma(s') (1 - lambda) (w . e_v) x_{s'}
    v    <- v + alpha_v z,     w <- w + alpha_w [delta e_v - w[s] x_s]
    e_u  <- rho (grad log pi_u(a | s) + gamma lambda e_u),     u <- u + alpha_u delta e_u

DP-Actor replaces the gradient g by C_u g / ||g|| + N(0, (sigma C_u)^2) on *all* |S||A| entries,
DP-Critic z by C_v z / ||z|| + N(0, (sigma C_v)^2) on all |S|, DP-Both both. What the paper leaves
open or prints otherwise:

- u and v are 0 at first.
- pi_u is the softmax of the preferences u[s], also where actions are drawn epsilon-greedily, since
  the gradient of a greedy policy is 0. With probability `exploration` the action is uniform, and
  rho = pi_u(a | s) |A|; else it is the greedy one, and rho = 1. With softmax acting rho = 1.
- C is the median of the absolute non-zero entries of what it scales (over all entries it would be
  0), or a public constant. A zero vector has no direction, so no signal; its median is 0, so no
  noise either, while a constant C brings noise all the same.
- The correction term is for x_{s'}, as the derivation needs; the paper prints x_s.
- An episode that a clock cut off (*truncated*) bootstraps: it would have gone on.

Tests hold `fast` and `dense` against this: without noise number by number, with noise in law.
"""

import math
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from privrl.core.types import Floats
from privrl.envs.tabular import TabularMDP

if TYPE_CHECKING:
    from privrl.papers.seo2020.learner import ActorCritic


class Run(NamedTuple):
    """What a run ends with."""

    u: Floats
    """(S, A) preferences of actions."""

    v: Floats
    """(S,) values."""

    w: Floats
    """(S,) second weights of GTD(lambda)."""

    returns: list[float]
    """Of each episode, undiscounted."""

    lengths: list[int]


def run(
    config: "ActorCritic",
    env: TabularMDP,
    first: Floats,
    uniforms: Floats,
    rng: np.random.Generator,
) -> Run:
    """One run of Algorithm 2, or of 1, 3 or 4 by `config.variant`.

    `first` (episodes,) and `uniforms` (episodes, steps, 2) are uniform draws: where an episode
    starts, where an action leads and which one is taken. Noise comes from `rng`.
    """
    tables = env.default_params
    successors, rewards = np.asarray(tables.successors), np.asarray(tables.rewards)
    cumulative, ends = np.asarray(tables.cumulative), np.asarray(tables.terminated)
    states, actions = successors.shape[:2]
    gamma, lam, sigma = config.gamma, float(config.lambda_), float(config.multiplier)
    alpha_u, alpha_v = float(config.actor_step), float(config.critic_step)
    alpha_w = float(config.correction_step)
    noisy_actor = config.variant in ("actor", "both")
    noisy_critic = config.variant in ("critic", "both")
    horizon = min(n for n in (env.step_limit, config.max_steps) if n is not None)

    w = np.zeros(states)
    v, u = np.zeros(states), np.zeros((states, actions))
    returns, lengths = [], []
    for start, draws in zip(first, uniforms, strict=True):
        e_v, e_u = np.zeros(states), np.zeros((states, actions))
        s = int(np.searchsorted(tables.start, start, side="right"))
        total = 0.0
        for t in range(horizon):
            where, which = draws[t].tolist()
            a, rho, gradient = act(config, u[s].tolist(), which)
            k = int(np.count_nonzero(where >= cumulative[s, a, :-1]))
            r, after, ended = float(rewards[s, a, k]), int(successors[s, a, k]), ends[s, a, k]
            gamma_after = 0.0 if ended else gamma
            delta = r + gamma_after * float(v[after]) - float(v[s])

            # Update the critic (GTD(lambda)), with noise in Algorithms 3 and 4.
            e_v *= rho * gamma * lam
            e_v[s] += rho
            z = delta * e_v
            z[s if config.correction == "printed" else after] -= (
                gamma_after * (1.0 - lam) * float(w @ e_v)
            )
            if noisy_critic:
                z, bound = scale_to_bound(config, z)
                z += (sigma * bound) * rng.standard_normal(states)
            v += alpha_v * z
            w_s = w[s]
            w += (alpha_w * delta) * e_v
            w[s] -= alpha_w * w_s

            # Update the actor, with noise in Algorithms 2 and 4.
            e_u *= rho * gamma * lam
            if noisy_actor:
                gradient, bound = scale_to_bound(config, gradient)
                e_u += (rho * sigma * bound) * rng.standard_normal((states, actions))
            e_u[s] += rho * gradient
            u += (alpha_u * delta) * e_u

            total += r
            s = after
            if ended:
                break
        returns.append(total)
        lengths.append(t + 1)
    return Run(u, v, w, returns, lengths)


def act(
    config: "ActorCritic", preferences: list[float], uniform: float
) -> tuple[int, float, Floats]:
    """The action, rho, and the gradient of log pi_u(a | s) in u[s]."""
    actions, highest = len(preferences), max(preferences)
    weights = [math.exp(value - highest) for value in preferences]
    whole = sum(weights)
    policy = [weight / whole for weight in weights]
    rho = 1.0
    if config.acting == "softmax":
        a, below = 0, policy[0]
        while a < actions - 1 and uniform >= below:
            a += 1
            below += policy[a]
    elif uniform < config.exploration:
        # A draw below `exploration` is uniform below it.
        a = min(int(uniform / config.exploration * actions), actions - 1)
        rho = policy[a] * actions
    else:
        a = preferences.index(highest)
    gradient = -np.array(policy)
    gradient[a] += 1.0
    return a, rho, gradient


def scale_to_bound(config: "ActorCritic", vector: Floats) -> tuple[Floats, float]:
    """C x / ||x|| for a vector x, 0 for one that is 0, and C."""
    sizes = np.abs(vector[vector != 0.0]).tolist()
    bound = median(sizes or [0.0]) if config.clip == "median" else float(config.clip)
    norm = math.hypot(*sizes)  # whose squares do not underflow
    return vector / (norm or 1.0) * bound, bound
