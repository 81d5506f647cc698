"""What lessons for a secret reward function have in common: words, budget, features, both modes."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from privrl.control.functional_q import STATE, FunctionalQ
from privrl.control.heads import Network
from privrl.control.learned_q import LearnedQ
from privrl.control.noised_q import Descent
from privrl.control.program import Program
from privrl.core.errors import InputError
from privrl.envs.base import Discrete
from privrl.privacy.certificate import Certificate, Claim
from privrl.privacy.mechanisms.reward_model import Cosine, Legendre
from privrl.privacy.promise import Budget
from privrl.privacy.resuming import KEY
from privrl.run.lessons.playing import play_agent, play_program
from privrl.run.lessons.words import SCALED, Env, FeaturesLesson, Job, Played
from privrl.run.logs import paths as log_paths
from privrl.run.parsing import ask, pair, whole
from privrl.run.training import CHECKPOINT, forget

_ORTHONORMAL: dict[str, Callable[..., Any]] = {"cosine": Cosine, "legendre": Legendre}


@dataclass(frozen=True)
class SecretRewardLesson(FeaturesLesson):
    """What was said by whoever keeps a reward function secret."""

    mode: str | None = None
    """certified or paper."""

    release: str | None = None
    """What is noised; none for nothing."""

    reward_radius: float | None = None
    reward_range: str | None = None
    reward_features: str | None = None
    """table, cosine:3, legendre:3, polynomial:2 or fourier:2."""

    reward_of: str | None = None
    design: int | None = None
    planner: str | None = None
    steps: int | None = None
    max_steps: int | None = None
    rounds: int | None = None
    ridge: float | None = None
    updates: int | None = None
    samples: int | None = None
    clip: float | None = None
    """Noised updates, as the next ones."""

    target_every: int | None = None
    optimiser: str | None = None
    average: float | None = None
    preset: str | None = None
    """Paper mode: printed or public-code. The rest too is for this mode."""

    batch: int | None = None
    step: float | None = None
    sigma: float | None = None
    rate: float | None = None
    no_preflight: bool = False
    """Waives the pre-flight of an environment of Gymnasium's. Certified mode."""

    CHECKPOINTS: ClassVar[tuple[str, ...]] = (STATE, CHECKPOINT, KEY)
    FILES: ClassVar[tuple[str, ...]] = ("policy.json", "reward_model.json")
    LISTS: ClassVar[tuple[str, ...]] = ("reward_range",)
    FROM_ZERO: ClassVar[tuple[str, ...]] = ("design",)

    AGENT: ClassVar[type[FunctionalQ]]
    DESCENTS: ClassVar[Mapping[str, Descent]]
    """The releases by noised updates, and how they go where nothing was said."""

    ANY_RADIUS: ClassVar[tuple[str, ...]] = ()
    """The releases that hide any two reward functions."""

    SETTINGS: ClassVar[tuple[str, ...]] = (
        *("mode", "reward_radius", "gamma", "steps", "max_steps", "reward_of", "design", "planner"),
        *("rounds", "ridge", "updates"),
    )
    """What the agent takes as it was said."""

    DESCENT: ClassVar[tuple[str, ...]] = (
        *("updates", "step", "batch", "clip", "target_every", "optimiser", "average"),
    )
    """What releases by noised updates take: `privrl.control.Descent`."""

    PAPER: ClassVar[tuple[str, ...]]
    """What the settings of paper mode take as it was said."""

    PRESETS: ClassVar[Mapping[str, Callable[..., Any]]]
    THEOREM: ClassVar[str]
    """The paper's, by which noise follows from what is claimed."""

    CLAIMED: ClassVar[str]
    """For what it is claimed."""

    @property
    def is_paper(self) -> bool:
        return self.mode == "paper"

    # --- what each of them knows of its own -------------------------------------------------------

    def of_its_own(self) -> dict[str, Any]:
        """Settings of the agent that have another form than what was said."""
        return {}

    @abstractmethod
    def compiled(self, config: Any) -> Program:
        """Paper mode as a program."""

    @abstractmethod
    def shown(self, program: Any, state: Any, seed: int | None) -> LearnedQ:
        """What came of it."""

    @property
    @abstractmethod
    def source(self) -> str:
        """What was learned from, with the settings in braces."""

    # --- certified --------------------------------------------------------------------------------

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
                    raise InputError(f"{name} belongs to --release {listed}: leave it out.")
        budget = self._budget()
        if self.reward_range is not None:
            given["reward_range"] = pair("reward_range", self.reward_range)
        elif budget is not None:
            ask(
                "reward_range",
                "what any reward could be, the lowest first, such as 0,1",
                "Rewards beyond it are clipped",
            )
        given |= self.of_its_own() | self._all_features(env)
        return self.AGENT(budget=budget, **given)

    def _budget(self) -> Budget | None:
        if self.release == "none":
            for name in ("epsilon", "delta", "reward_radius"):
                if getattr(self, name) is not None:
                    option = name.replace("_", "-")
                    raise InputError(f"--release none adds no noise: leave --{option} out.")
            return None
        if self.reward_radius is None and self.release not in self.ANY_RADIUS:
            ask(
                "reward_radius",
                "by how much a reward may differ at any point and still be hidden, such as 0.01",
                "What is released cannot tell reward functions apart that are no further apart "
                "anywhere",
            )
        if self.epsilon is None:
            ask(
                "epsilon",
                "how much may be given away about the reward function, such as 1",
                "--release none learns without noise, and protects nothing",
            )
        if self.delta is None:
            ask(
                "delta",
                "how likely the promise may fail, such as 1e-6",
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
        elif self.planner != "network" and not self.bounded(env):
            ask(
                "features",
                "in which form to see the states, such as fourier:2 or polynomial:2",
                f"{env.name} observes numbers without ends, so say these with --state-range",
            )
        if self.reward_features is not None:
            given["reward_features"] = self._reward_features(env, self.reward_features)
        elif self.release in (None, "reward-model", "none") and not self.bounded(env):
            ask(
                "reward_features",
                "in which form rewards depend on states, such as cosine:2 or polynomial:2",
                f"{env.name} observes numbers without ends, so say these with --state-range",
            )
        return given

    def _reward_features(self, env: Env, word: str) -> Any:
        kind, _, rest = word.partition(":")
        if kind in _ORTHONORMAL:
            order = whole("The order of features", rest or "3")
            return _ORTHONORMAL[kind](order, *self.ranges(env))
        if kind not in ("table", *SCALED):
            raise InputError(
                "reward_features must be table, cosine:3, legendre:3, polynomial:2 or fourier:2, "
                f"not {word!r}."
            )
        return self.features_of(env, word)

    # --- as printed -------------------------------------------------------------------------------

    def paper_config(self, swept: Sequence[str] = ()) -> Any:
        """The settings of paper mode, but for those that lanes have."""
        known = ("learner", "env", "mode", "epsilon", "delta", "public", "preset", *self.PAPER)
        for name in self.said:
            if name not in known:
                raise InputError(f"{name} does not belong to mode 'paper': leave it out.")
        preset = self._preset
        given = {n: getattr(self, n) for n in self.PAPER if getattr(self, n) is not None}
        given |= {n: getattr(self, n) for n in ("epsilon", "delta") if n in self.said}
        own = preset == "public-code" or self.sigma is not None or "sigma" in swept
        if own and (self.epsilon is not None or self.delta is not None):
            raise InputError(
                "A sigma of one's own, as the public code has it, comes with no claim: leave "
                "--epsilon and --delta out."
            )
        if not own and self.epsilon is None:
            ask(
                "epsilon",
                f"how much is claimed for {self.CLAIMED}, such as 0.9",
                "With --sigma and --rate the noise is your own, and nothing is claimed",
            )
        if own and preset == "printed" and self.rate is None and "rate" not in swept:
            if "sigma" in swept:
                raise InputError(
                    "A sweep over sigma needs a rate too: say --set rate=1, or sweep over it."
                )
            ask(
                "rate",
                "how fast the path of the noise forgets, such as 1",
                f"With a sigma of one's own it does not follow from {self.THEOREM}",
            )
        # Stands in for those of the lanes.
        lanes = {name: 1.0 for name in ("sigma", "rate") if name in swept}
        return self.PRESETS[preset](**lanes | given | self.of_the_paper())

    @property
    def _preset(self) -> str:
        preset = self.preset or "printed"
        if preset not in self.PRESETS:
            raise InputError(f"must be printed or public-code, not {preset!r}.", field="preset")
        return preset

    def of_the_paper(self) -> dict[str, Any]:
        """Settings of paper mode that have another form than what was said."""
        return {}

    def program(self, swept: Sequence[str] = ()) -> Program:
        return self.compiled(self.paper_config(swept))

    @property
    def count(self) -> int:
        if not self.is_paper:
            raise InputError(
                f"Sweeps over {self.learner} are for --mode paper: a certified run plans on what "
                "was released once, which can be done again for nothing."
            )
        return self.paper_count

    @property
    @abstractmethod
    def paper_count(self) -> int:
        """How many episodes paper mode takes."""

    @property
    def counted(self) -> str:
        return "episodes" if self.is_paper else "stages"

    @property
    def why_no_curve(self) -> str | None:
        if not self.is_paper:
            return "A log holds returns of episodes, and a certified run has none: leave it out."
        if not self.public:
            return "A log holds returns, which are about the reward: say --public if it is none."
        return None

    # --- how it is taught -------------------------------------------------------------------------

    def play(self, job: Job) -> Played:
        return self._as_printed(job) if self.is_paper else self._certified(job)

    def _certified(self, job: Job) -> Played:
        env = self.environment()
        for name in ("preset", *self.PAPER):
            known = (*self.SETTINGS, *self.DESCENT, *self.of_its_own())
            if name not in known and getattr(self, name) is not None:
                raise InputError(f"{name} does not belong to mode 'certified': leave it out.")
        tried = not self.no_preflight
        return play_agent(self, self.agent(env), env, job, "stages", preflight=tried)

    def _as_printed(self, job: Job) -> Played:
        program = self.program()
        found = play_program(self, program, job)
        if found.ending != "finished":
            return Played(None, found.episodes, found.planned)
        try:
            learned = self.shown(program, found.state, job.seed)
        except InputError:
            # It would end the same way again.
            forget(job.folder)
            raise
        return Played(learned, found.episodes, found.planned)

    def write(self, learned: LearnedQ, job: Job) -> dict[str, Path]:
        written = log_paths(job.folder, job.formats)
        if hasattr(learned.policy, "save"):
            written["policy"] = job.folder / "policy.json"
            learned.policy.save(written["policy"])
        if learned.reward_model is not None:
            written["reward model"] = job.folder / "reward_model.json"
            learned.reward_model.save(written["reward model"])
        return written

    def told(self, learned: LearnedQ) -> tuple[list[str], list[str]]:
        env, promise = learned.settings["env"], learned.promise
        source = self.source if self.is_paper else "a walk of {steps:,} steps"
        lines = [f"{env}: values of actions from {source.format(**learned.settings)}."]
        if learned.score is not None:
            lines.append(f"  mean return of fresh episodes {learned.score:.4g}")
        notes = []
        if isinstance(promise, Claim):
            notes.append(f"Nothing is certified: {promise.why_not}")
        if isinstance(promise, Certificate):
            notes.append(learned.protects)
            if self.public:
                notes.append("The score was declared public: no promise is made about it.")
        return lines, notes
