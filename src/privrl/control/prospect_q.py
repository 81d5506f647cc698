"""Private Q-learning of what people prefer (rajabi2022), certified.

    agent = ProspectQ(budget=Budget(1.0, 1e-6), reward_radius=0.01, reward_range=(-50.0, 0.0))
    agent.learn("ObstacleGrid").policy

A learner like `FunctionalQ` whose values are those of cumulative prospect theory: of somebody who
minds losses more than gains and overrates small probabilities. Same **unit**: the reward function;
same **relation**: `REWARD_RADIUS`; and the same things are public: dynamics, termination, the
rollout, features and settings, and here also the prospect, and `samples` successors of each step,
drawn from its state with fresh randomness (`rollouts.SampledRollout`). The releases:

- "reward-model" (the default). The rollout's own rewards become a reward model, released once, as
  `FunctionalQ` releases it: one Gaussian with sensitivity R, by Bessel. Nobody looks at what the
  drawn successors paid. They get rewards from the released model: shrunk (`shrinkage`) and
  projected onto `reward_range`, whose lowest they get where no step of the rollout led. Without
  that noise would make places where waiting pays, or costs nothing. Then values are planned for
  under the prospect (`prospect_planning`). All of it is post-processing, and so is planning for
  other prospects.
- "updates". The rewards of all drawn successors are read, and Q is learned by noised updates
  towards their CPT values (`update_rules.ProspectUpdates`): T Gaussians with sensitivity 2 C each,
  C the clip, the later ones chosen after seeing the earlier ones. This does not rest on the radius,
  since a CPT value is not a smooth function of rewards. So any two reward functions count as
  neighbours, and `reward_radius` may be left out: the certificate then says the width of
  `reward_range`. It is for a Q of few parameters: all T updates together have a signal of norm T C
  at most, and noise of 2 C T / mu in *each* parameter, mu as in mu-GDP. A table of hundreds learns
  next to nothing.

Values are nested utilities: a step that surely pays c and ends is worth u(c), not c.

One of Gymnasium's environments cannot be stepped twice from a state. Where its observations are
discrete, the successors of a state and an action are those that the rollout had there.

The paper's own Algorithms 1 to 3, which yield a claim, are `privrl.papers.rajabi2022.ProspectQ`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import jax
import numpy as np

from privrl.control import noised_q, prospect_planning, shrinkage
from privrl.control.engine import Run
from privrl.control.functional_q import FunctionalQ
from privrl.control.heads import Head, Layers
from privrl.control.noised_q import Descent
from privrl.control.q_specs import UNUSED_BY_PROSPECT, DescentSpec, ProspectQSpec
from privrl.control.reward_basis import PerAction, unique_points
from privrl.control.reward_releases import Arrays
from privrl.control.rollouts import (
    Env,
    Rollout,
    SampledRollout,
    collect_sampled_rollout,
    greedy_policy,
    pool_successors,
)
from privrl.control.update_rules import Data
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import OneHot, Policy
from privrl.privacy.mechanisms.reward_model import RewardModel

DEFAULT_DESCENT = Descent(300, 0.1, 500, clip=0.1, target_every=5, optimiser="adam", average=0.3)
"""What release 'updates' takes where nothing was said.

Found on `ObstacleGrid` with seeds 0 to 4 and no noise, where three of five runs reach the target.
"""


@dataclass(frozen=True)
class ProspectQ(ProspectQSpec, FunctionalQ):
    """CPT values of actions, learned from a reward function that stays secret; see the module."""

    DESCENTS: ClassVar[Mapping[str, DescentSpec]] = {"updates": DEFAULT_DESCENT}
    _objects: ClassVar[tuple[str, ...]] = (*FunctionalQ._objects, "prospect")
    _step_fields: ClassVar[tuple[str, ...]] = (
        *FunctionalQ._step_fields,
        "row",
        "led",
        "ends",
        "probs",
    )

    def _check_radius(self) -> None:
        super()._check_radius()
        if self.reward_range is not None:
            # All of it is public, and known before anybody pays.
            ends = prospect_planning.value_bounds(
                self.prospect, np.array(self.reward_range), self.gamma, self.rounds
            )
            if max(map(abs, ends)) >= prospect_planning.MAX_VALUE:
                raise InputError(
                    "Values of such rewards could grow without bound under this prospect: use a "
                    "smaller gamma, less loss aversion or smaller exponents."
                )

    @property
    def _num_value_points(self) -> float:
        return float(self.steps) * self.samples

    # --- what is drawn ----------------------------------------------------------------------------

    def rollout(self, run: Run, key: jax.Array) -> SampledRollout:
        at: Any = run.training
        return collect_sampled_rollout(
            at.env,
            at.behaviour,
            key,
            self.steps,
            self.samples,
            read=self.release == "updates",
            private=run.private,
        )

    def public_steps(self, rollout: Rollout) -> Arrays:
        sampled = cast(SampledRollout, rollout).public()
        return super().public_steps(pool_successors(sampled) if sampled.led.ndim == 2 else sampled)

    # --- a reward model ---------------------------------------------------------------------------

    def plan(
        self, head: Head, released: Arrays, model: RewardModel | None
    ) -> tuple[Floats, Policy]:
        assert model is not None
        rollout = SampledRollout(**{name: released[name] for name in self._step_fields})
        rewards = self.successor_rewards(rollout, model)
        if isinstance(head, Layers):
            found = prospect_planning.network_q(
                rollout, rewards, head, self.prospect, self.gamma, updates=self.updates
            )
        else:
            settings = (self.prospect, self.gamma, self.rounds, self.ridge)
            found = prospect_planning.fitted_q_iteration(rollout, rewards, head, *settings).ravel()
        return found, greedy_policy(head, found)

    def successor_rewards(self, rollout: SampledRollout, model: RewardModel) -> Floats:
        """(m, K): what each successor pays by the released model, as far as it knows."""
        points, where = rollout.reward_points(self.reward_of), np.arange(rollout.ends.size)
        if rollout.led.ndim == 2:
            points, _, where = unique_points(points)
        rewards = np.array(model(points), np.float64)
        low, high = self.reward_range or (float(rewards.min()), float(rewards.max()))
        # Where all orthonormal features are 0 the rollout never was, and the model knows nothing.
        psi = np.asarray(model.features(points), np.float64) @ model.transform
        known = np.any(psi != 0.0, axis=1)
        if self.shrink and model.std > 0.0 and _is_table(model.features):
            std = np.asarray(model.uncertainty(points))[known]
            rewards[known] = shrinkage.posterior_means(rewards[known], std, low, high)
        return np.clip(np.where(known, rewards, low), low, high)[where].reshape(rollout.ends.shape)

    # --- noised updates ---------------------------------------------------------------------------

    def update_plan(self, head: Head) -> noised_q.NoisedQPlan:
        return (self.descent or DEFAULT_DESCENT).prospect_plan(head, self.prospect)

    def transitions(self, head: Head, rollout: Rollout) -> Data:
        assert self.reward_range is not None
        sampled = cast(SampledRollout, rollout)
        return noised_q.sampled_transitions(sampled, self.gamma, self.reward_range)

    # --- JSON -------------------------------------------------------------------------------------

    def settings_dict(self, env: Env) -> dict[str, Any]:
        told = super().settings_dict(env)
        return {name: value for name, value in told.items() if name not in UNUSED_BY_PROSPECT}


def _is_table(features: Any) -> bool:
    """Whether each point has a coefficient of its own, and so noise of its own."""
    inside = features.features if isinstance(features, PerAction) else features
    return isinstance(inside, OneHot)
