"""What runners for a secret reward function have in common: words, budget, features."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from privrl.control.functional_q import FunctionalQ
from privrl.control.heads import Network
from privrl.control.learned_q import LearnedQ
from privrl.control.noised_q import Descent
from privrl.control.program import Program
from privrl.control.run_context import STATE
from privrl.core.errors import InputError
from privrl.envs.base import Discrete
from privrl.privacy.certificate import Certificate
from privrl.privacy.mechanisms.reward_model import Cosine, Legendre
from privrl.privacy.promise import Budget
from privrl.privacy.resuming import KEY_FILE
from privrl.run.logs import paths as log_paths
from privrl.run.parsing import pair, positive_integer, refuse_missing
from privrl.run.runners.base import SCALED, Env, EnvironmentRunner, FeaturesRunner, Job, RunEnd
from privrl.run.runners.playing import play_agent
from privrl.run.specs.secret_reward import SecretRewardSpec

_ORTHONORMAL: dict[str, Callable[..., Any]] = {"cosine": Cosine, "legendre": Legendre}


@dataclass(frozen=True)
class SecretRewardRunner(SecretRewardSpec, FeaturesRunner, EnvironmentRunner):
    """What was said by whoever keeps a reward function secret."""

    CHECKPOINTS: ClassVar[tuple[str, ...]] = (STATE, KEY_FILE)
    FILES: ClassVar[tuple[str, ...]] = ("policy.json", "reward_model.json")

    AGENT: ClassVar[type[FunctionalQ]]
    DESCENTS: ClassVar[Mapping[str, Descent]]
    """The releases by noised updates, and how they go where nothing was said."""

    ANY_RADIUS: ClassVar[tuple[str, ...]] = ()
    """The releases that hide any two reward functions."""

    SETTINGS: ClassVar[tuple[str, ...]] = (
        *("reward_radius", "gamma", "steps", "max_steps", "reward_of", "design", "planner"),
        *("rounds", "ridge", "updates"),
    )
    """What the agent takes as it was said."""

    DESCENT: ClassVar[tuple[str, ...]] = (
        *("updates", "step", "batch", "clip", "target_every", "optimiser", "average"),
    )
    """What releases by noised updates take: `privrl.control.Descent`."""

    PAPER: ClassVar[str]
    """The learner that is the paper's own algorithm."""

    def own_settings(self) -> dict[str, Any]:
        """Settings of the agent that have another form than what was said."""
        return {}

    def agent(self, env: Env) -> FunctionalQ:
        """The learner."""
        given = {n: getattr(self, n) for n in self.SETTINGS if getattr(self, n) is not None}
        if self.release not in (None, "none"):
            given["release"] = self.release
        said = {n: getattr(self, n) for n in self.DESCENT if getattr(self, n) is not None}
        descent = self.DESCENTS.get(self.release or "")
        if descent is not None:
            given.pop("updates", None)
            given["descent"] = replace(descent, **said)
        else:
            for name in said:
                if name != "updates":
                    listed = " or ".join(self.DESCENTS)
                    raise InputError(f"belongs to --release {listed}: leave it out.", field=name)
        budget = self._budget()
        if self.reward_range is not None:
            given["reward_range"] = pair("reward_range", self.reward_range)
        elif budget is not None:
            refuse_missing(
                "reward_range",
                "what any reward could be, the lowest first, such as 0,1",
                "Rewards beyond it are clipped",
            )
        given |= self.own_settings() | self._all_features(env)
        return self.AGENT(budget=budget, **given)

    def _budget(self) -> Budget | None:
        if self.release == "none":
            for name in ("epsilon", "delta", "reward_radius"):
                if getattr(self, name) is not None:
                    option = name.replace("_", "-")
                    raise InputError(f"--release none adds no noise: leave --{option} out.")
            return None
        if self.reward_radius is None and self.release not in self.ANY_RADIUS:
            refuse_missing(
                "reward_radius",
                "by how much a reward may differ at any point and still be hidden, such as 0.01",
                "What is released cannot tell reward functions apart that are no further apart "
                "anywhere",
            )
        if self.epsilon is None:
            refuse_missing(
                "epsilon",
                "the privacy budget for the reward function, such as 1",
                "--release none learns without noise, and protects nothing",
            )
        if self.delta is None:
            refuse_missing(
                "delta",
                "the failure probability of the promise, such as 1e-6",
                "It is about one secret, so let it be next to impossible",
            )
        if self.delta == 0.0:
            raise InputError("must be above 0, because the noise is Gaussian.", field="delta")
        return Budget(self.epsilon, self.delta)

    def _all_features(self, env: Env) -> dict[str, Any]:
        """The agent's features and network, as far as they were said or are needed."""
        words = [one for one in (self.features, self.reward_features) if one is not None]
        used = {one.partition(":")[0] for one in words} & {*SCALED, *_ORTHONORMAL}
        numbers = not isinstance(env.observation, Discrete)
        if self.state_range is not None and not (numbers and used):
            raise InputError(
                "state_range is for features of numbers, such as fourier:3 and cosine:3: leave it "
                "out."
            )
        given: dict[str, Any] = {}
        if self.features is not None:
            made = self.features_of(env, self.features)
            given["network" if isinstance(made, Network) else "features"] = made
            if isinstance(made, Network) and self.planner != "network":
                raise InputError("Networks are for the planner network: say --planner network.")
        elif self.planner != "network" and not self.is_bounded(env):
            refuse_missing(
                "features",
                "in which form to see the states, such as fourier:2 or polynomial:2",
                f"{env.name} observes numbers without ends, so say these with --state-range",
            )
        if self.reward_features is not None:
            given["reward_features"] = self._reward_features(env, self.reward_features)
        elif self.release in (None, "reward-model", "none") and not self.is_bounded(env):
            refuse_missing(
                "reward_features",
                "in which form rewards depend on states, such as cosine:2 or polynomial:2",
                f"{env.name} observes numbers without ends, so say these with --state-range",
            )
        return given

    def _reward_features(self, env: Env, word: str) -> Any:
        kind, _, rest = word.partition(":")
        if kind in _ORTHONORMAL:
            order = positive_integer("The order of features", rest or "3")
            return _ORTHONORMAL[kind](order, *self.ranges(env))
        if kind not in ("table", *SCALED):
            raise InputError(
                f"must be table, cosine:3, legendre:3, polynomial:2 or fourier:2, not {word!r}.",
                field="reward_features",
            )
        return self.features_of(env, word)

    # --- how it is run -------------------------------------------------------------------------

    @property
    def progress_unit(self) -> str:
        return "stages"

    @property
    def count(self) -> int:
        raise InputError(self._no_sweep)

    def program(self, swept: Sequence[str] = ()) -> Program:
        raise InputError(self._no_sweep)

    @property
    def _no_sweep(self) -> str:
        return (
            f"{self.learner} cannot be swept: it plans on what was released once, which can be "
            f"done again for nothing. The paper's algorithm can: privrl sweep {self.PAPER}."
        )

    @property
    def no_curve_reason(self) -> str | None:
        return "A log holds returns of episodes, and a certified run has none: leave it out."

    def play(self, job: Job) -> RunEnd:
        env, tried = self.environment(), not self.no_preflight
        return play_agent(self, self.agent(env), env, job, "stages", preflight=tried)

    def write(self, learned: LearnedQ, job: Job) -> dict[str, Path]:
        written = log_paths(job.folder, job.formats)
        if hasattr(learned.policy, "save"):
            written["policy"] = job.folder / "policy.json"
            learned.policy.save(written["policy"])
        if learned.reward_model is not None:
            written["reward model"] = job.folder / "reward_model.json"
            learned.reward_model.save(written["reward model"])
        return written

    def summarize(self, learned: LearnedQ) -> tuple[list[str], list[str]]:
        env, promise = learned.settings["env"], learned.promise
        steps = learned.settings["steps"]
        lines = [f"{env}: values of actions from a rollout of {steps:,} steps."]
        if learned.score is not None:
            lines.append(f"  mean return of fresh episodes {learned.score:.4g}")
        notes = []
        if isinstance(promise, Certificate):
            notes.append(learned.privacy_statement)
            if self.public:
                notes.append("The score was declared public: no promise is made about it.")
        return lines, notes
