"""A learner for a secret reward function as the engine trains it, and its certificate.

**Unit**: the reward function. **Relation**: `REWARD_RADIUS`. What the certificate assumes is listed
here; which events a release pays for is in `reward_releases`. All is released in `init`; the state
is what was released, which holds nothing private; the rest is planning, in `result`.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from privrl.control import engine, loop, reward_releases
from privrl.control.learned_q import NOT_PRIVATE, LearnedQ, mean_return
from privrl.control.promises import Promise
from privrl.control.reward_releases import Arrays
from privrl.control.rollouts import Env, greedy_policy
from privrl.core.errors import InputError
from privrl.data import Policy
from privrl.envs.host import is_live, simulator_identity
from privrl.envs.preflight import ASSUMPTIONS
from privrl.privacy.certificate import Assumption
from privrl.privacy.mechanisms.reward_model import RewardModel
from privrl.privacy.promise import Relation, Release, Unit
from privrl.privacy.session import OpenSession, PrivacySession

if TYPE_CHECKING:
    from privrl.control.functional_q import FunctionalQ

PUBLIC_ROLLOUT = Assumption(
    "states and actions do not depend on the reward function: the rollout does not look at rewards",
    "by the algorithm: it follows a behaviour of states alone, or policies released before",
)
DYNAMICS = Assumption(
    "dynamics, termination and failures of the environment do not depend on the reward function",
    "not enforced: it is the caller's",
)
COUPLED_REWARDS = Assumption(
    "rewards drawn by chance can be coupled within the radius",
    "not enforced: it is the caller's; it says nothing where each point has one reward",
)
PUBLIC_SETTINGS = Assumption(
    "features, ranges, the radius and all settings were chosen without looking at rewards",
    "not enforced: they are the caller's",
)
TIMING = Assumption(
    "nobody is told how long the run took, or sees rewards elsewhere",
    "not enforced: it is the caller's",
)
PUBLIC_REWARDS = Assumption(
    "the reward function is public: the score is shown as it was, and nothing is promised about it",
    "not enforced: it is the caller's",
)


class RewardTraining(engine.Training):
    """A learner for a secret reward function, in an environment."""

    counted = "stages"
    spec: "FunctionalQ"

    def __init__(self, spec: "FunctionalQ", env: Env, behaviour: Policy | None) -> None:
        if behaviour is not None and not isinstance(behaviour, Policy):
            raise InputError("must be a policy of privrl.data, or None.", field="behaviour")
        self.spec, self.env, self.behaviour = spec, env, behaviour
        self.head, self.live, self.private = spec.head(env), is_live(env), spec.budget is not None

    @property
    def settings(self) -> dict[str, Any]:
        return self.spec.settings_dict(self.env)

    def runs_on(self, *, restored: bool) -> dict[str, Any]:
        env = None if self.live else simulator_identity(self.env)
        # Nobody acts by the behaviour again where all was released.
        return {"env": env} | ({} if restored else {"behaviour": self.behaviour})

    def open(self, session: PrivacySession) -> OpenSession:
        engine.refuse_idle_ledger(session, self.spec.budget)
        unit, relation = Unit.REWARD_FUNCTION, Relation.REWARD_RADIUS
        return session.open(unit, relation, reward_radius=self.spec.radius)

    def check_resumable(self) -> None:
        self.spec.refuse_unknown_objects(self.env)

    def no_log_reason(self, public: bool) -> str:
        return "A log holds returns of episodes, and a certified run has none: leave it out."

    def check(self, public: bool) -> int:
        reward_releases.check(self.spec, self.env, self.head)
        return 0

    def init(self, run: engine.Run) -> Arrays:
        self.check(run.public)
        return reward_releases.release(self.spec, run)

    def adopt(self, state: Arrays, run: engine.Run) -> None:
        run.pay(reward_releases.event_of(self.spec, state, self.head), None, 0)

    def result(self, state: Arrays, seen: loop.Seen, run: engine.Run) -> LearnedQ:
        spec, head, release, model = self.spec, self.head, Release.EVERY_ITERATE, None
        if spec.release in ("weights", "updates", "evaluations"):
            parameters = state["parameters"]
            if not np.all(np.isfinite(parameters)):
                raise engine.Diverged
            policy = greedy_policy(head, parameters)
        else:
            release = Release.FINAL_MODEL
            run.report(2, 3)
            if spec.release == "reward-model":
                features, std = spec.model_features(self.env), float(state["std"])
                model = RewardModel(state["coefficients"], state["transform"], features, std)
            parameters, policy = spec.plan(head, state, model)
            run.report(3, 3)
        score = None
        if run.public:
            score = mean_return(self.env, policy, spec.max_steps, run.seed or 0)
        return LearnedQ(
            promise=self._promise(run, release),
            release=spec.release,
            parameters=parameters.ravel(),
            head=head,
            policy=policy,
            reward_model=model,
            score=score,
            settings={"seed": run.seed, **self.settings},
        )

    def _promise(self, run: engine.Run, release: Release) -> Promise:
        if self.spec.budget is None:
            return NOT_PRIVATE
        limits = self.spec.reward_range
        clipped = Assumption(
            "the radius is about rewards as they are used: "
            + ("" if limits is None else f"clipped to {limits[0]:g} to {limits[1]:g}, ")
            + "and 0 for what is not finite",
            "by the algorithm, for any rewards; that these are what needs protection, by nobody",
        )
        return run.opened.certify(
            self.spec.budget.delta,
            release=release,
            assumptions=(
                *(PUBLIC_ROLLOUT, DYNAMICS, COUPLED_REWARDS, clipped, PUBLIC_SETTINGS, TIMING),
                *((PUBLIC_REWARDS,) if run.public else ()),
                *ASSUMPTIONS[run.about["preflight"]],
            ),
            compiled=self.spec.release in ("weights", "updates"),
        )
