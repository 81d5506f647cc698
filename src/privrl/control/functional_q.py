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

All is paid for before any noise is drawn. With a `checkpoint` the key of the noise is kept before
that, and what was released at once, so that an interrupted run goes on without paying again
(`privrl.privacy.resuming`). Arithmetic: 64-bit floating point.

The paper's own Algorithm 1, which yields a claim, is `privrl.papers.wang2019.FunctionalQ`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import jax
import numpy as np

from privrl.control import noised_q, planning, reward_releases
from privrl.control.default_features import default_features, default_reward_features
from privrl.control.heads import Head, Layers, Network, Table, make_head
from privrl.control.increments import Rows
from privrl.control.learned_q import LearnedQ
from privrl.control.noised_q import DEFAULT_DESCENTS, Descent, clip_rewards
from privrl.control.program import load_state, read_about
from privrl.control.reward_basis import PerAction
from privrl.control.rollouts import Env, Rollout, collect_rollout, greedy_policy
from privrl.control.run_context import STATE, Arrays, RunContext
from privrl.control.update_rules import Data
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.progress import StepProgress
from privrl.core.types import Floats
from privrl.data import Features, OneHot, Policy
from privrl.envs.base import Box, Discrete
from privrl.envs.host import is_live, simulator_identity
from privrl.envs.preflight import run_preflight
from privrl.envs.registry import make
from privrl.privacy import resuming
from privrl.privacy.ledger import Ledger
from privrl.privacy.mechanisms.reward_model import (
    RewardModel,
)
from privrl.privacy.promise import Budget, Relation, Unit
from privrl.privacy.resuming import NoiseKey
from privrl.privacy.session import SECRET_SESSION, OpenSession, PrivacySession, forget_unless_paid

# The least number of cosines per coordinate, and how many there are at most.
_ORDERS = (2, 10)
# Within this no product and no sum overflows.
_UNBOUNDED_REWARD = (-1e300, 1e300)


@dataclass(frozen=True)
class FunctionalQ:
    """Values of actions, learned from a reward function that stays secret; see the module."""

    release: Literal["reward-model", "weights", "updates", "rewards", "evaluations"] = (
        "reward-model"
    )
    """What is noised."""

    budget: Budget | None = None
    """The privacy budget of the reward function; None for no noise, and no privacy."""

    reward_radius: float | None = None
    """R: reward functions that differ by at most this much at every point are not told apart."""

    reward_range: tuple[float, float] | None = None
    """What any reward could be; rewards are clipped to it."""

    gamma: float = 0.9
    """The discount factor, from 0 to 1."""

    steps: int = 2000
    """How many steps the rollout takes, or each of them."""

    max_steps: int | None = None
    """Ends the episodes that are scored, where the environment sets no limit."""

    features: Features | None = None
    """Of states, for Q. By default a table for discrete states, and for a box cosines of up to four
    coordinates or polynomials of more."""

    reward_features: Callable[[Any], Any] | None = None
    """Of states, for the reward model. By default a table for discrete states, and for a box of up
    to three coordinates cosines, three or more for each: as many as the noise leaves room for."""

    reward_of: Literal["arrival", "step"] = "arrival"
    """What a reward depends on: the state arrived in, or the state and the action before it."""

    design: int = 10
    """How many rounds make the weights of the rollout's points more even (`design_weights`), so
    that there is less noise where the rollout rarely went; 0 for equal weights. Any of them costs
    the same. Release 'reward-model'."""

    planner: Literal["fitted", "actor-critic", "network"] = "fitted"
    """What makes a policy of released rewards; see `planning`."""

    rounds: int = 500
    """How often values are backed up at most. Planners 'fitted' and 'actor-critic'."""

    ridge: float = 1e-6
    """Of regressions, as a share of the features' mean square. The same planners."""

    iterations: int = 30
    """Steps of the actor. Planner 'actor-critic'."""

    actor_step: float = 10.0
    """Their size, in units of the reciprocal of the spread of released rewards. The same planner.
    """

    network: Network | None = None
    """Planner 'network'; by default two layers of 32."""

    updates: int = 3000
    """Gradient steps on it. The same planner."""

    evaluations: int = 1
    """K, the rounds of policy iteration: more of them need more noise in each. Release
    'evaluations'."""

    horizon: int = 3
    """H, after how many steps returns are cut. Release 'evaluations'."""

    descent: Descent | None = None
    """How noised updates are made; None for `noised_q.DEFAULT_DESCENTS`. Releases 'weights',
    'updates'."""

    # What a setting may be, for those that are words; and settings with a JSON form of their own.
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "release": ("reward-model", "weights", "updates", "rewards", "evaluations"),
        "reward_of": ("arrival", "step"),
        "planner": ("fitted", "actor-critic", "network"),
    }
    _objects: ClassVar[tuple[str, ...]] = ("features", "reward_features", "network", "descent")
    # What planning needs of a rollout: nothing that it was paid.
    _step_fields: ClassVar[tuple[str, ...]] = (
        *("observation", "action", "next_observation", "terminated", "truncated"),
    )

    def __post_init__(self) -> None:
        for name, words in self._choices.items():
            if getattr(self, name) not in words:
                listed = ", ".join(map(repr, words[:-1])) + f" or {words[-1]!r}"
                raise InputError(f"must be {listed}, not {getattr(self, name)!r}.", field=name)
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise InputError(
                "must be a Budget, such as Budget(0.9, 1e-4), or None.", field="budget"
            )
        for name, most in _MAX_VALUES.items():
            found = checks.count(name, getattr(self, name))
            if found > most:
                raise InputError(f"must be at most {most:,}, not {found:,}.", field=name)
        if self.design != 0 and checks.count("design", self.design) > 10**4:
            raise InputError(f"must be at most 10,000, not {self.design:,}.", field="design")
        if self.max_steps is not None:
            checks.count("max_steps", self.max_steps)
        if checks.non_negative("gamma", self.gamma) > 1.0:
            raise InputError(f"must be at most 1, not {self.gamma:g}.", field="gamma")
        checks.non_negative("ridge", self.ridge)
        if checks.positive("actor_step", self.actor_step) > 1e6:
            raise InputError(f"must be at most 1e6, not {self.actor_step:g}.", field="actor_step")
        if self.features is not None and not isinstance(self.features, Features):
            raise InputError("must be a feature map of privrl.data, or None.", field="features")
        if self.reward_features is not None and not callable(self.reward_features):
            raise InputError("must be a feature map, such as Cosine(3).", field="reward_features")
        if self.network is not None and not isinstance(self.network, Network):
            raise InputError(
                "must be a Network, such as Network((32, 32)), or None.", field="network"
            )
        if self.reward_range is not None:
            object.__setattr__(self, "reward_range", _check_range(self.reward_range))
        self._check_descent()
        self._check_radius()

    def _check_descent(self) -> None:
        updating = self.release in ("weights", "updates")
        if self.descent is not None:
            if not isinstance(self.descent, Descent):
                raise InputError(
                    "must be a Descent, such as Descent(updates=100).", field="descent"
                )
            if not updating:
                raise InputError("descent is for the releases 'weights' and 'updates'.")
        if updating and self.reward_range is None:
            raise InputError("is needed: say what any reward could be.", field="reward_range")

    @property
    def radius(self) -> float | None:
        """How far apart reward functions are that are hidden: what the certificate says."""
        return self.reward_radius

    def _check_radius(self) -> None:
        if self.reward_radius is not None:
            radius = checks.positive("reward_radius", self.reward_radius)
            object.__setattr__(self, "reward_radius", radius)
            # A sum over a rollout is off by so much; below it, rounding would be what is seen.
            largest = max(map(abs, self.reward_range or (1.0,)))
            least = max(1e-100, 400.0 * (self.steps + 2) * 2.0**-53 * largest)
            if self.reward_range is not None and radius < least:
                raise InputError(
                    f"reward_radius {radius:g} is within the rounding errors of sums of rewards as "
                    f"large as {largest:g}: let it be at least {least:.2g}."
                )
            if not 1e-100 <= radius <= 1e100:
                raise InputError(
                    f"must be from 1e-100 to 1e100, not {radius:g}.", field="reward_radius"
                )
        if self.budget is None:
            return
        if self.budget.delta == 0.0:
            raise InputError("must have a delta above 0, for Gaussian noise.", field="budget")
        if self.radius is None:
            raise InputError(
                "is needed: by how much may two rewards differ that are not to be told apart?",
                field="reward_radius",
            )

    # --- learning ---------------------------------------------------------------------------------

    def learn(
        self,
        env: Any,
        *,
        session: PrivacySession = SECRET_SESSION,
        behaviour: Policy | None = None,
        progress: StepProgress | None = None,
        checkpoint: str | Path | None = None,
        keep: bool = False,
        preflight: bool = True,
        preflight_env: Any = None,
    ) -> LearnedQ:
        """Learn in `env`, an environment or its name.

        `behaviour` acts in the rollout: a policy of states that was chosen without looking at
        rewards; by default each action is equally likely. A session that is public says that the
        reward function needs no protection, and lets the score of the policy be shown; then no
        ledger can pay. `progress(done, stages)` is called after each stage. `checkpoint` is a
        folder in which the key of the noise is kept before anybody pays, and what was released at
        once, and from which `resume` goes on; `keep` leaves it there at the end. Errors of one of
        Gymnasium's environments would tell about rewards and are hidden; so it is tried first, in
        another instance: one that is made of the same id, or `preflight_env`. `preflight=False`
        waives that, which the certificate says.
        """
        ledger, public, seed = session.ledger, session.public, session.seed
        made = make(env)
        if public and ledger is not None:
            raise InputError(
                "public says that the rewards need no protection, and a ledger that they do: leave "
                "one of them out."
            )
        if behaviour is not None and not isinstance(behaviour, Policy):
            raise InputError("must be a policy of privrl.data, or None.", field="behaviour")
        head, opened = self.head(made), self._open(session)
        tried = run_preflight(
            made,
            private=self.budget is not None and not public,
            preflight=preflight,
            other=preflight_env,
        )
        about = {
            "agent": self.settings_dict(made),
            "seed": seed,
            "public": public,
            "run": None if ledger is None else session.run,
            "preflight": tried,
        }
        # The folder before anybody pays, since a run without its checkpoint would be lost.
        with resuming.begin_run(checkpoint, STATE):
            if checkpoint is not None:
                live = is_live(made)
                runs_on = {
                    "env": None if live else simulator_identity(made),
                    "behaviour": behaviour,
                }
                opened.attach_key(NoiseKey.begin(checkpoint, about, live=live, runs_on=runs_on))
            course = RunContext(self, made, head, opened, about, progress, keep)
            with forget_unless_paid(opened):
                return reward_releases.learn(self, course, behaviour, None)

    def _open(self, session: PrivacySession) -> OpenSession:
        unit, relation = Unit.REWARD_FUNCTION, Relation.REWARD_RADIUS
        return session.open(unit, relation, reward_radius=self.radius)

    def resume(
        self,
        folder: str | Path,
        env: Any,
        *,
        ledger: Ledger | None = None,
        behaviour: Policy | None = None,
        progress: StepProgress | None = None,
        keep: bool = False,
        preflight_env: Any = None,
    ) -> LearnedQ:
        """Go on from where `learn(..., checkpoint=folder)` was interrupted, at no further cost.

        The agent and the environment must be the same, and so must be the `behaviour` if nothing
        was released yet. What was released is planned on once more, which is free. If nothing was,
        in a simulator or with a seed, rollout and noise are drawn once more from the key that is in
        the folder, and copies of the folder come to the same; in any other environment of
        Gymnasium's they are drawn afresh, and one copy of the folder alone is let: see
        `privrl.privacy.resuming`.
        """
        with resuming.resume_run(folder) as kept:
            about, path, made = kept.about, Path(folder) / STATE, make(env)
            if about.get("agent") != self.settings_dict(made) or kept.live != is_live(made):
                raise InputError(f"{str(path)!r} belongs to another agent or environment.")
            for name in self._objects:
                if isinstance(_setting_to_json(getattr(self, name)), str):
                    raise InputError(f"These {name} have no JSON form, so nobody knows them again.")
            if ledger is not None and about["run"] is None:
                raise InputError("This run was begun without a ledger: leave it out.")
            if ledger is None and about["run"] is not None:
                raise InputError("This run was begun with a ledger: say the same.")
            released = None
            runs_on = {} if kept.live else {"env": simulator_identity(made)}
            if path.exists():
                like = {name: np.zeros(*form) for name, form in read_about(path)["arrays"].items()}
                found, _ = load_state(path, like)
                released = {name: np.asarray(array) for name, array in found.items()}
            else:
                runs_on["behaviour"] = behaviour
            kept.check(runs_on)
            session = PrivacySession(ledger=ledger, run=about["run"], seed=about["seed"])
            opened = self._open(session)
            opened.attach_key(kept)
            if released is None:
                run_preflight(
                    made,
                    private=self.budget is not None and not about["public"],
                    preflight=about["preflight"] != "waived",
                    other=preflight_env,
                    again=True,
                )
                opened.kept = kept.claim_next_generation(ledger)
            else:
                kept.end(ledger)
            course = RunContext(self, made, self.head(made), opened, about, progress, keep)
            return reward_releases.learn(self, course, behaviour, released)

    # --- hooks of the releases --------------------------------------------------------------------

    def rollout(self, course: RunContext, behaviour: Policy | None, key: jax.Array) -> Rollout:
        return collect_rollout(course.env, behaviour, key, self.steps, private=course.private)

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
        observed = env.observation
        if self.planner == "network":
            wish: Any = self.network or Network((32, 32))
            if wish.features is None and self.features is not None:
                wish = Network(wish.hidden, self.features, wish.seed)
        else:
            wish = self.features
            if wish is None and isinstance(observed, Box):
                few = self.release != "reward-model" and self.budget is not None
                wish = default_features(observed, env.name, few)
        head = make_head(wish, observed, env.num_actions, env.name)
        Rows(head, head).check(observed, env.name)
        return head

    def model_features(self, env: Env) -> Any:
        """Of the points of the reward model."""
        chosen: Any = self.reward_features
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
        budget, limits = self.budget, self.reward_range
        plain = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in ("budget", "reward_range", *self._objects)
        }
        objects = {name: _setting_to_json(getattr(self, name)) for name in self._objects}
        return {
            "env": env.name,
            "epsilon": None if budget is None else budget.epsilon,
            "delta": None if budget is None else budget.delta,
            "reward_range": None if limits is None else list(limits),
            **plain,
            **objects,
        }


# More than anybody has waited for.
_MAX_VALUES = {
    "steps": 10**7,
    "rounds": 10**6,
    "iterations": 10**5,
    "updates": 10**7,
    "evaluations": 1000,
    "horizon": 10**4,
}


def _check_range(given: Any) -> tuple[float, float]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(
            "must be two numbers: the least and the largest reward.", field="reward_range"
        )
    low, high = (checks.number("reward_range", value) for value in given)
    if not (low < high and math.isfinite(high - low)):
        raise InputError("must go up, by a finite difference.", field="reward_range")
    return low, high


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
