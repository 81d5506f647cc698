"""One run of a learner for a secret reward function: who pays, what is kept, and its certificate.

**Unit**: the reward function. **Relation**: `REWARD_RADIUS`. What the certificate assumes is listed
here; which events a release pays for is in `reward_releases`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privrl.control.heads import Head
from privrl.control.learned_q import NOT_PRIVATE, LearnedQ, mean_return
from privrl.control.program import save_state
from privrl.control.promises import Promise
from privrl.control.rollouts import Env
from privrl.core import resources
from privrl.core.progress import StepProgress
from privrl.core.types import Floats
from privrl.data import Policy
from privrl.envs.preflight import ASSUMPTIONS
from privrl.privacy.certificate import Assumption, Certificate
from privrl.privacy.events import Event
from privrl.privacy.mechanisms.reward_model import RewardModel
from privrl.privacy.promise import Release
from privrl.privacy.session import OpenSession

if TYPE_CHECKING:
    from privrl.control.functional_q import FunctionalQ

Arrays = dict[str, Any]

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

STATE = "released.npz"
"""The checkpoint in its folder."""

MEMORY_REMEDY = "use fewer features, a smaller network or fewer steps"
"""What to do where memory does not suffice."""


@dataclass(frozen=True, eq=False)
class RunContext:
    """One run: where it is, who pays, and what is told and kept on the way."""

    agent: "FunctionalQ"
    env: Env
    head: Head
    opened: OpenSession
    about: Mapping[str, Any]
    progress: StepProgress | None
    keep: bool

    @property
    def path(self) -> Path | None:
        """Of the checkpoint, if there is one."""
        return None if self.opened.kept is None else self.opened.kept.folder / STATE

    @property
    def private(self) -> bool:
        """Whether errors and warnings of the environment would tell too much."""
        return self.agent.budget is not None and not self.about["public"]

    def report_progress(self, done: int, stages: int) -> None:
        if self.progress is not None:
            self.progress(done, stages)

    def pay(self, event: Event | None, public: Arrays, more: int) -> None:
        """Pay for `event`, if there is one, once there is room for the rest of the run.

        `public` is what planning needs of the rollout; `more` are the other bytes to keep.
        """
        size = more + sum(np.asarray(array).nbytes for array in public.values())
        if self.opened.kept is not None:
            resources.check_disk_space(self.opened.kept.folder, 2 * size)
        resources.check_memory(
            self.agent.planning_bytes(self.head), "Planning with such features", MEMORY_REMEDY
        )
        if event is not None:
            assert self.agent.budget is not None
            self.opened.pay(event, delta=self.agent.budget.delta)

    def save_released(self, released: Arrays) -> None:
        """What was released, in the checkpoint; it holds nothing private."""
        if self.path is not None and self.opened.kept is not None:
            arrays = {name: [list(a.shape), str(a.dtype)] for name, a in released.items()}
            save_state(self.path, released, {**self.about, "arrays": arrays})
            self.opened.kept.end(self.opened.ledger)

    def make_result(
        self,
        parameters: Floats,
        policy: Policy,
        model: RewardModel | None,
        event: Event | None,
        release: Release,
        *,
        compiled: bool = False,
    ) -> LearnedQ:
        """The result, with its certificate; the checkpoint goes, unless it is to stay."""
        agent, public, seed = self.agent, self.about["public"], self.about["seed"]
        promise: Promise = NOT_PRIVATE
        if event is not None:
            promise = self._certify(release, compiled)
        score = None
        if public:
            score = mean_return(self.env, policy, agent.max_steps, 0 if seed is None else seed)
        found = LearnedQ(
            promise=promise,
            release=agent.release,
            parameters=parameters,
            head=self.head,
            policy=policy,
            reward_model=model,
            score=score,
            settings={"seed": seed, **self.about["agent"]},
        )
        if self.path is not None and self.opened.kept is not None and not self.keep:
            self.path.unlink(missing_ok=True)
            self.opened.kept.remove()
        return found

    def _certify(self, release: Release, compiled: bool) -> Certificate:
        agent, opened = self.agent, self.opened
        assert agent.budget is not None
        limits = agent.reward_range
        clipped = Assumption(
            "the radius is about rewards as they are used: "
            + ("" if limits is None else f"clipped to {limits[0]:g} to {limits[1]:g}, ")
            + "and 0 for what is not finite",
            "by the algorithm, for any rewards; that these are what needs protection, by nobody",
        )
        return opened.certify(
            agent.budget.delta,
            release=release,
            assumptions=(
                *(PUBLIC_ROLLOUT, DYNAMICS, COUPLED_REWARDS, clipped, PUBLIC_SETTINGS, TIMING),
                *((PUBLIC_REWARDS,) if self.about["public"] else ()),
                *ASSUMPTIONS[self.about["preflight"]],
            ),
            compiled=compiled,
        )
