"""What one person adds to an actor and a critic: the increment of a whole episode, clipped.

**Heads.** Preferences h(s) in R^A and values V(s) come from `privrl.control.heads`.

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
from functools import cached_property, lru_cache
from typing import Any, cast

import jax
import jax.numpy as jnp

from privrl.control.heads import Head
from privrl.control.prospect_rows import ReturnHistogram
from privrl.core import resources
from privrl.core.errors import InputError
from privrl.envs.base import Box, Discrete, Episodes
from privrl.privacy.mechanisms import clip

Settings = Mapping[str, Any]

# Less likely actions count as this likely where a logarithm is taken.
_TINY = 1e-300


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

    outlook: ReturnHistogram | None = None
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
    def head_dicts(self) -> list[Any]:
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
        resources.check_memory(64.0 * sum(self.sizes), "So many parameters", remedy)
        length = len(observed.low) if isinstance(observed, Box) else None
        what = "states by their numbers" if length is None else f"vectors of {length} numbers"
        for head in (self.actor, self.critic):
            if not _accepts_input(cast(Any, head), length):
                raise InputError(f"{name} observes {what}, which these features do not take.")

    @property
    def reward_scale(self) -> float:
        """What rewards are divided by, hence the unit of values."""
        if self.outlook is not None:
            return self.outlook.unit
        return 1.0 if self.return_range is None else self.return_range[1] - self.return_range[0]

    def probs(self, actor: Any, observation: Any) -> Any:
        """pi(.|s) for one observation; uniform where a preference is not a number."""
        return softmax(self.actor.apply(actor, self.actor.inputs(observation[None]))[0])

    def increment(
        self, actor: Any, critic: Any, settings: Settings, episode: Episodes, worth: Any = None
    ) -> Any:
        """The actor's and the critic's increment of one episode, as one vector each.

        `worth` is what returns are worth at the points of the outlook.
        """
        steps, valid = episode
        seen, after = (_mask_invalid(valid, x) for x in (steps.observation, steps.next_observation))
        own, judged = self.actor.inputs(seen), self.critic.inputs(seen)
        gamma, ended = settings["gamma"], steps.terminated
        if self.outlook is None:
            rewards = jnp.where(valid, steps.reward, 0.0) / self.reward_scale
        else:
            rewards = self.outlook.counts(episode, gamma) @ worth
            gamma, ended = 1.0, valid & ~jnp.append(valid[1:], False)
            rewards = jnp.where(ended, rewards, 0.0)
        value = self.critic.apply(critic, judged)[:, 0]
        later = self.critic.apply(critic, self.critic.inputs(after))[:, 0]
        # Chosen, not multiplied by 0: what comes after the end may not be a number.
        error = rewards + jnp.where(ended, 0.0, gamma * later) - value
        error = jnp.where(valid, error, 0.0)
        advantage = advantages(error, gamma * settings["lambda_"])
        probs = softmax(self.actor.apply(actor, own))
        taken = steps.action[:, None] == jnp.arange(self.actor.outputs)
        weights = advantage[:, None] * (taken - probs)
        if self.entropy:
            logs = jnp.log(jnp.maximum(probs, _TINY))
            surprise = logs - jnp.sum(probs * logs, axis=1, keepdims=True)
            weights = weights - self.entropy * probs * surprise
        weights = jnp.where(valid[:, None], weights, 0.0)
        return (
            self.actor.vjp(actor, own, weights),
            self.critic.vjp(critic, judged, jnp.where(valid, advantage, 0.0)[:, None]),
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


@lru_cache(maxsize=64)
def _accepts_input(head: Head, length: int | None) -> bool:
    """Whether a head gives its outputs for vectors of this length, or for states if it is None."""

    def outputs() -> Any:
        seen = jnp.zeros(1, int) if length is None else jnp.zeros((1, length))
        return head.apply(jnp.zeros(math.prod(head.shape)), head.inputs(seen))

    try:
        return bool(jax.eval_shape(outputs).shape == (1, head.outputs))
    except (TypeError, ValueError):
        return False


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


def _mask_invalid(valid: Any, observations: Any) -> Any:
    """Observations of steps that happened, and zeros of those that did not."""
    shape = valid.shape + (1,) * (observations.ndim - 1)
    return jnp.where(jnp.reshape(valid, shape), observations, 0)
