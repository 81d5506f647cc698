"""Private Q-learning for a secret reward function (wang2019), certified.

    agent = FunctionalQ(budget=Budget(0.9, 1e-4), reward_radius=0.01, reward_range=(0.0, 0.5))
    agent.learn("Interval").policy

**Unit**: the reward function. **Relation**: `REWARD_RADIUS`. Two reward functions are neighbours if
they differ by at most R = `reward_radius` at every point, and so in every reward that a rollout
reads (rewards that are drawn by chance: if they can be coupled so). Everything else is public:
dynamics, termination, the states and actions of a rollout that does not look at rewards
(`rollouts`), features and settings. The releases (`reward_releases`):

- "reward-model" (the default). A readout for each *distinct* point x_k of the rollout is the mean
  of the (total, clipped) rewards read there, which moves by at most R. Released are its
  coefficients in features that are orthonormal under public probabilities of the x_k
  (`reward_basis.design_weights`), noised once (`mechanisms.reward_model`): one Gaussian with
  sensitivity R, by Bessel, whatever the probabilities.
- "rewards": input perturbation. The same readouts. With w_k the share of the rollout's steps that
  read at x_k, released are sqrt(w_k) times the readouts, which move by at most R sqrt(sum_k w_k),
  or R, in L2: one Gaussian with that sensitivity, and a readout has noise std / sqrt(w_k). For n
  points visited once that is sqrt(n) R / mu each.
- "evaluations": policy iteration. In each of K rounds a fresh rollout by the policy released
  before, with a public share of random actions; G_i = sum_{k<H} gamma^k r_{i+k}, up to the end of
  the episode, moves by at most R (1 - gamma^H) / (1 - gamma) =: R h for all i at once, so its
  coefficients in orthonormal features of (s_i, a_i) do (Bessel). K Gaussians with sensitivity R h,
  the later ones chosen after seeing the earlier ones: adaptive composition.
- "weights" and "updates": noise in every update of Q (`noised_q`).

After the release everything is post-processing: planning (`planning`), tuning it, the policy, and
any number of queries. Before it, rewards are made total: what is not finite counts as 0, and is
clipped to `reward_range`, which brings no two rewards further apart; so the radius is about clipped
rewards. Nothing is amplified by sampling, since all rewards may change at once.

All is paid for before any noise is drawn. In a `folder` the key of the noise is kept before that,
and what was released at once, so that an interrupted run goes on without paying again (`engine`).
Arithmetic: 64-bit floating point.

The paper's own Algorithm 1, which yields a claim, is `privrl.papers.wang2019.FunctionalQ`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, cast

import jax
import numpy as np

from privrl.control import engine, noised_q, planning, reward_releases
from privrl.control.default_features import default_features, default_reward_features
from privrl.control.feature_names import features_by_name, refuse_unused_range
from privrl.control.heads import Head, Layers, Network, Table, make_head
from privrl.control.increments import Rows
from privrl.control.learned_q import LearnedQ
from privrl.control.noised_q import DEFAULT_DESCENTS, clip_rewards
from privrl.control.q_specs import DescentSpec, FunctionalQSpec
from privrl.control.reward_basis import PerAction
from privrl.control.reward_releases import Arrays
from privrl.control.reward_training import RewardTraining
from privrl.control.rollouts import Env, Rollout, collect_rollout, greedy_policy
from privrl.control.update_rules import Data
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import OneHot, Policy
from privrl.envs.base import Box, Discrete
from privrl.envs.registry import make
from privrl.privacy.mechanisms.reward_model import (
    RewardModel,
)

# The least number of cosines per coordinate, and how many there are at most.
_ORDERS = (2, 10)
# Within this no product and no sum overflows.
_UNBOUNDED_REWARD = (-1e300, 1e300)


@dataclass(frozen=True)
class FunctionalQ(FunctionalQSpec, engine.Learner[LearnedQ]):
    """Values of actions, learned from a reward function that stays secret; see the module."""

    DESCENTS: ClassVar[Mapping[str, DescentSpec]] = DEFAULT_DESCENTS

    # Settings with a JSON form of their own.
    _objects: ClassVar[tuple[str, ...]] = ("features", "reward_features", "network", "descent")
    # What planning needs of a rollout: nothing that it was paid.
    _step_fields: ClassVar[tuple[str, ...]] = (
        *("observation", "action", "next_observation", "terminated", "truncated"),
    )

    def resolve(self, env: Env) -> Self:
        """The same agent with features for this environment in place of their names."""
        refuse_unused_range(self.state_range, env.observation, self.features, self.reward_features)
        found: dict[str, Any] = {
            name: features_by_name(word, env.observation, env.name, self.state_range)
            for name in ("features", "reward_features")
            if isinstance(word := getattr(self, name), str)
        }
        if isinstance(found.get("features", self.features), Network):
            if self.planner != "network":
                raise InputError("Networks are for the planner network: say --planner network.")
            found |= {"network": found.get("features", self.features), "features": None}
        return replace(self, **found, state_range=None) if found else self

    # --- learning ---------------------------------------------------------------------------------

    def training(
        self, env: Any, people: None = None, *, behaviour: Policy | None = None
    ) -> RewardTraining:
        """This learner in `env`, for the engine.

        `behaviour` acts in the rollout: a policy of states that was chosen without looking at
        rewards; by default each action is equally likely. A session that is public says that the
        reward function needs no protection, and lets the score of the policy be shown.
        """
        if people is not None:
            raise InputError("The secret is the reward function: leave people out.")
        return RewardTraining(self, make(env), behaviour)

    def refuse_unknown_objects(self, env: Env) -> None:
        """Refuse to resume with objects that have no JSON form."""
        for name in self._objects:
            if isinstance(_setting_to_json(getattr(self.resolve(env), name)), str):
                raise InputError(f"These {name} have no JSON form, so nobody knows them again.")

    # --- hooks of the releases --------------------------------------------------------------------

    def rollout(self, run: engine.Run, key: jax.Array) -> Rollout:
        at: Any = run.training
        return collect_rollout(at.env, at.behaviour, key, self.steps, private=run.private)

    def public_steps(self, rollout: Rollout) -> Arrays:
        """What planning needs of a rollout."""
        return {name: np.asarray(getattr(rollout, name)) for name in self._step_fields}

    def clipped_rewards(self, rollout: Rollout) -> Floats:
        """The rewards of a rollout as finite numbers of the range. **Private**."""
        assert rollout.reward is not None
        return clip_rewards(rollout.reward, self.reward_range or _UNBOUNDED_REWARD)

    def update_plan(self, head: Head) -> noised_q.NoisedQPlan:
        """What is done in each update."""
        descent = self.descent or DEFAULT_DESCENTS[self.release]
        # Without a budget nothing is noised, and the radius does not matter.
        return descent.plan(cast(Any, self.release), head, self.reward_radius or 1.0)

    def transitions(self, head: Head, rollout: Rollout) -> Data:
        """What updates are made of. **Private** rewards."""
        return noised_q.transitions(
            head,
            rollout.observation,
            rollout.action,
            self.clipped_rewards(rollout),
            rollout.next_observation,
            np.where(rollout.terminated, 0.0, self.gamma),
            self.reward_range or _UNBOUNDED_REWARD,
            orthonormal=self.release == "weights",
        )

    def plan(
        self, head: Head, released: Arrays, model: RewardModel | None
    ) -> tuple[Floats, Policy]:
        """All parameters of Q, and the policy; sees nothing private."""
        steps = Rollout(**{name: released[name] for name in self._step_fields})
        if model is None:
            rewards = released["rewards"]
        else:
            rewards = np.asarray(model(steps.points(self.reward_of)), np.float64)
        if isinstance(head, Layers):
            found = planning.network_q(steps, rewards, head, self.gamma, updates=self.updates)
            return found, greedy_policy(head, found)
        settings = (head, self.gamma, self.rounds, self.ridge)
        if self.planner == "actor-critic":
            step = self.actor_step / (float(np.ptp(rewards)) or 1.0)
            preferences, weights = planning.actor_critic(
                steps, rewards, *settings, iterations=self.iterations, step=step
            )
            return weights.ravel(), head.policy(preferences.ravel())
        weights = planning.fitted_q_iteration(steps, rewards, *settings)
        return weights.ravel(), greedy_policy(head, weights)

    def planning_bytes(self, head: Head) -> float:
        """About how much memory planning takes: of public numbers, before anybody pays."""
        width, steps = math.prod(head.shape) / head.outputs, float(self.steps)
        if isinstance(head, Layers):
            # Parameters, their moments and slopes; the inputs; the values of a whole rollout.
            inner = sum(head.sizes[1:-1])
            return 8.0 * (
                8.0 * math.prod(head.shape) + self._num_value_points * (head.sizes[0] + inner)
            )
        if isinstance(head, Table):
            return 8.0 * (4.0 * width * head.outputs + 4.0 * self._num_value_points)
        # Features of where steps begin and lead, solvers, and the Gram matrix with its inverse.
        return 8.0 * (2.0 * steps * width + self._num_value_points * width + 6.0 * width**2)

    @property
    def _num_value_points(self) -> float:
        """How many points values are asked for at."""
        return float(self.steps)

    def head(self, env: Env) -> Head:
        """How Q follows from its parameters."""
        agent, observed = self.resolve(env), env.observation
        wish: Any = agent.features
        if agent.planner == "network":
            chosen = agent.network or Network((32, 32))
            inside = agent.features if chosen.features is None else chosen.features
            wish = Network(chosen.hidden, cast(Any, inside), chosen.seed)
        else:
            if wish is None and isinstance(observed, Box):
                few = self.release != "reward-model" and self.budget is not None
                wish = default_features(observed, env.name, few)
        head = make_head(wish, observed, env.num_actions, env.name)
        Rows(head, head).check(observed, env.name)
        return head

    def model_features(self, env: Env) -> Any:
        """Of the points of the reward model."""
        chosen: Any = self.resolve(env).reward_features
        if chosen is None:
            observed = env.observation
            if isinstance(observed, Discrete):
                chosen = OneHot(observed.n)
            else:
                chosen = default_reward_features(observed, env.name, self._cosine_order())
        return PerAction(chosen, env.num_actions) if self.reward_of == "step" else chosen

    def _cosine_order(self) -> int:
        """The highest cosine for one coordinate, a public number.

        The k-th coefficient of a reward with corners is about width / k^2: those well below the
        noise would add nothing else.
        """
        least, most = _ORDERS
        if self.budget is None:
            return most
        if self.reward_range is None or self.reward_radius is None:
            return least
        width = self.reward_range[1] - self.reward_range[0]
        room = math.sqrt(
            width / (2.0 * reward_releases.unit_noise(self.budget) * self.reward_radius)
        )
        return int(min(max(least, room), most))

    def settings_dict(self, env: Env) -> dict[str, Any]:
        """The settings for this environment, in JSON's own types."""
        agent, budget, limits = self.resolve(env), self.budget, self.reward_range
        apart = ("budget", "reward_range", "state_range", *self._objects)
        plain = {
            one.name: getattr(agent, one.name) for one in fields(agent) if one.name not in apart
        }
        objects = {name: _setting_to_json(getattr(agent, name)) for name in self._objects}
        return {
            "env": env.name,
            "epsilon": None if budget is None else budget.epsilon,
            "delta": None if budget is None else budget.delta,
            "reward_range": None if limits is None else list(limits),
            **plain,
            **objects,
        }


def _setting_to_json(value: Any) -> Any:
    """A setting in JSON, or its name where it has no such form."""
    if isinstance(value, Network):
        return {
            "hidden": list(value.hidden),
            "features": _setting_to_json(value.features),
            "seed": value.seed,
        }
    try:
        return None if value is None else value.to_dict()
    except (AttributeError, InputError):
        return type(value).__name__
