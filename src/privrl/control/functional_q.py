"""Private Q-learning for a secret reward function (wang2019), certified; or as the paper has it.

    agent = FunctionalQ(budget=Budget(0.9, 1e-4), reward_radius=0.01, reward_range=(0.0, 0.5))
    agent.learn("Interval").policy

**Unit**: the reward function. **Relation**: `REWARD_RADIUS`. Two reward functions are neighbours if
they differ by at most R = `reward_radius` at every point, and so in every reward that a walk reads
(rewards that are drawn by chance: if they can be coupled so). Everything else is public: dynamics,
termination, the states and actions of a walk that does not look at rewards (`walks`), features and
settings. mode="certified" has these releases:

- "reward-model" (the default). A readout for each *distinct* point x_k of the walk is the mean of
  the (total, clipped) rewards read there, which moves by at most R. Released are its coefficients
  in features that are orthonormal under public probabilities of the x_k
  (`reward_basis.even_weights`), noised once (`mechanisms.reward_model`): one Gaussian with movement
  R, by Bessel, whatever the probabilities.
- "rewards": input perturbation. The same readouts. With w_k the share of the walk's steps that
  read at x_k, released are sqrt(w_k) times the readouts, which move by at most R sqrt(sum_k w_k),
  or R, in L2: one Gaussian with that movement, and a readout has noise std / sqrt(w_k). For n
  points visited once that is sqrt(n) R / mu each.
- "evaluations": policy iteration. In each of K rounds a fresh walk by the policy released before,
  with a public share of random actions; G_i = sum_{k<H} gamma^k r_{i+k}, up to the end of the
  episode, moves by at most R (1 - gamma^H) / (1 - gamma) =: R h for all i at once, so its
  coefficients in orthonormal features of (s_i, a_i) do (Bessel). K Gaussians with movement R h, the
  later ones chosen after seeing the earlier ones: adaptive composition.
- "weights" and "updates": noise in every update of Q (`noised_q`).

After the release everything is post-processing: planning (`planning`), tuning it, the policy, and
any number of queries. Before it, rewards are made total: what is not finite counts as 0, and is
clipped to `reward_range`, which brings no two rewards further apart; so the radius is about clipped
rewards. Nothing is amplified by sampling, since all rewards may change at once.

All is paid for before any noise is drawn. With a `checkpoint` the key of the noise is kept before
that, and what was released at once, so that an interrupted run goes on without paying again
(`privrl.privacy.resuming`). Arithmetic: 64-bit floating point.

mode="paper" is Algorithm 1 of the paper (`paper_functional_q`), with the paper's claim.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import jax
import numpy as np

from privrl.control import noised_q, planning
from privrl.control.heads import Head, Layers, Network, Table, head_of
from privrl.control.increments import Rows
from privrl.control.learned_q import NOT_PRIVATE, LearnedQ
from privrl.control.noised_q import DESCENTS, Descent, total
from privrl.control.paper_functional_q import Config, PaperProgram, claims
from privrl.control.program import load_state, read_about, save_state
from privrl.control.promises import Promise
from privrl.control.reward_basis import (
    PerAction,
    distinct,
    even_weights,
    horizon_weight,
    readouts,
    returns,
)
from privrl.control.walks import Env, Walk, greedy, walk, walk_greedily
from privrl.core import checks, resources
from privrl.core.errors import InputError
from privrl.core.progress import Counted
from privrl.core.types import Floats
from privrl.data import Features, Fourier, OneHot, Policy, Polynomial
from privrl.data.collection import collect
from privrl.envs.base import Box, Discrete
from privrl.envs.host import HostEnvironment, is_live, simulator
from privrl.envs.preflight import ASSUMPTIONS, checked
from privrl.envs.registry import make
from privrl.privacy import resuming
from privrl.privacy.accounting import calibrate
from privrl.privacy.certificate import Assumption, Certificate
from privrl.privacy.events import Event, Gaussian, Repeated
from privrl.privacy.ledger import Ledger
from privrl.privacy.mechanisms import GaussianMechanism
from privrl.privacy.mechanisms.reward_model import (
    Cosine,
    RewardModel,
    RewardModelMechanism,
)
from privrl.privacy.noise import Source, reproducible, secure
from privrl.privacy.promise import Budget, Relation, Release, Unit
from privrl.privacy.resuming import Kept
from privrl.privacy.session import SECRET, OpenSession, PrivacySession, forgotten_unless_paid

NO_CLAIM = "Not private: noise of one's own size has neither a certificate nor the paper's claim."

PUBLIC_WALK = Assumption(
    "states and actions do not depend on the reward function: the walk does not look at rewards",
    "by the algorithm: it follows a behaviour of states alone, or policies released before",
)
DYNAMICS = Assumption(
    "dynamics, termination and failures of the environment do not depend on the reward function",
    "not enforced: it is the caller's",
)
COUPLED = Assumption(
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
SHOWN = Assumption(
    "the reward function is public: the score is shown as it was, and nothing is promised about it",
    "not enforced: it is the caller's",
)

STATE = "released.npz"
"""The checkpoint in its folder."""

# The least number of cosines per coordinate, and how many there are at most.
_ORDERS = (2, 10)
# Random actions in the walks of release "evaluations".
_EXPLORE = 0.3
# Episodes that a score is the mean of: compiled, and on the host.
_SCORED = (2000, 100)
# How often a run in paper mode tells.
_STOPS = 20
# Orders of cosines for Q, by the number of coordinates.
_FOURIER = (10, 5, 3, 2)
_FEW = 3
# Within this no product and no sum overflows.
_ANY_REWARD = (-1e300, 1e300)


@dataclass(frozen=True)
class FunctionalQ:
    """Values of actions, learned from a reward function that stays secret; see the module."""

    mode: Literal["certified", "paper"] = "certified"
    """Whether the noise is calibrated by a proof, or as in the paper."""

    release: Literal["reward-model", "weights", "updates", "rewards", "evaluations"] = (
        "reward-model"
    )
    """What is noised. Certified mode, as all below but the budget."""

    budget: Budget | None = None
    """What may be spent on the reward function, or is claimed in paper mode; None for no noise, and
    no privacy."""

    reward_radius: float | None = None
    """R: reward functions that differ by at most this much at every point are not told apart."""

    reward_range: tuple[float, float] | None = None
    """What any reward could be; rewards are clipped to it."""

    gamma: float = 0.9
    """The discount factor, from 0 to 1."""

    steps: int = 2000
    """How many steps the walk takes, or each of them."""

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
    """How many rounds make the weights of the walk's points more even (`even_weights`), so that
    there is less noise where the walk rarely went; 0 for equal weights. Any of them costs the same.
    Release 'reward-model'."""

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
    """How noised updates are made; None for `noised_q.DESCENTS`. Releases 'weights', 'updates'."""

    paper: Any = None
    """The settings of paper mode, a `paper_functional_q.Config`; None for its defaults."""

    # What a setting may be, for those that are words; and settings with a JSON form of their own.
    _words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "mode": ("certified", "paper"),
        "release": ("reward-model", "weights", "updates", "rewards", "evaluations"),
        "reward_of": ("arrival", "step"),
        "planner": ("fitted", "actor-critic", "network"),
    }
    _objects: ClassVar[tuple[str, ...]] = ("features", "reward_features", "network", "descent")
    # What planning needs of a walk: nothing that it was paid.
    _kept: ClassVar[tuple[str, ...]] = (
        *("observation", "action", "next_observation", "terminated", "truncated"),
    )

    def __post_init__(self) -> None:
        for name, words in self._words.items():
            if getattr(self, name) not in words:
                listed = ", ".join(map(repr, words[:-1])) + f" or {words[-1]!r}"
                raise InputError(f"must be {listed}, not {getattr(self, name)!r}.", field=name)
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise InputError("budget must be a Budget, such as Budget(0.9, 1e-4), or None.")
        if self.mode == "paper":
            return
        if self.paper is not None:
            raise InputError("paper holds the settings of mode 'paper': leave it out.")
        for name, most in _MOST.items():
            found = checks.count(name, getattr(self, name))
            if found > most:
                raise InputError(f"must be at most {most:,}, not {found:,}.", field=name)
        if self.design != 0 and checks.count("design", self.design) > 10**4:
            raise InputError(f"design must be at most 10,000, not {self.design:,}.")
        if self.max_steps is not None:
            checks.count("max_steps", self.max_steps)
        if checks.non_negative("gamma", self.gamma) > 1.0:
            raise InputError(f"gamma must be at most 1, not {self.gamma:g}.")
        checks.non_negative("ridge", self.ridge)
        if checks.positive("actor_step", self.actor_step) > 1e6:
            raise InputError(f"actor_step must be at most 1e6, not {self.actor_step:g}.")
        if self.features is not None and not isinstance(self.features, Features):
            raise InputError("features must be a feature map of privrl.data, or None.")
        if self.reward_features is not None and not callable(self.reward_features):
            raise InputError("reward_features must be a feature map, such as Cosine(3).")
        if self.network is not None and not isinstance(self.network, Network):
            raise InputError("network must be a Network, such as Network((32, 32)), or None.")
        if self.reward_range is not None:
            object.__setattr__(self, "reward_range", _range(self.reward_range))
        self._check_descent()
        self._check_radius()

    def _check_descent(self) -> None:
        updating = self.release in ("weights", "updates")
        if self.descent is not None:
            if not isinstance(self.descent, Descent):
                raise InputError("descent must be a Descent, such as Descent(updates=100).")
            if not updating:
                raise InputError("descent is for the releases 'weights' and 'updates'.")
        if updating and self.reward_range is None:
            raise InputError("reward_range is needed: say what any reward could be.")

    @property
    def radius(self) -> float | None:
        """How far apart reward functions are that are hidden: what the certificate says."""
        return self.reward_radius

    def _check_radius(self) -> None:
        if self.reward_radius is not None:
            radius = checks.positive("reward_radius", self.reward_radius)
            object.__setattr__(self, "reward_radius", radius)
            # A sum over a walk is off by so much; below it, rounding would be what is seen.
            largest = max(map(abs, self.reward_range or (1.0,)))
            least = max(1e-100, 400.0 * (self.steps + 2) * 2.0**-53 * largest)
            if self.reward_range is not None and radius < least:
                raise InputError(
                    f"reward_radius {radius:g} is within the rounding errors of sums of rewards as "
                    f"large as {largest:g}: let it be at least {least:.2g}."
                )
            if not 1e-100 <= radius <= 1e100:
                raise InputError(f"reward_radius must be from 1e-100 to 1e100, not {radius:g}.")
        if self.budget is None:
            return
        if self.budget.delta == 0.0:
            raise InputError("budget must have a delta above 0, for Gaussian noise.")
        if self.radius is None:
            raise InputError(
                "reward_radius is needed: by how much may two rewards differ that are not to be "
                "told apart?"
            )

    # --- learning -----------------------------------------------------------------------------

    def learn(
        self,
        env: Any,
        *,
        session: PrivacySession = SECRET,
        behaviour: Policy | None = None,
        progress: Counted | None = None,
        checkpoint: str | Path | None = None,
        keep: bool = False,
        preflight: bool = True,
        preflight_env: Any = None,
    ) -> LearnedQ:
        """Learn in `env`, an environment or its name.

        `behaviour` walks: a policy of states that was chosen without looking at rewards; by default
        each action is equally likely. A session that is public says that the reward function needs
        no protection, and lets the score of the policy be shown; then no ledger can pay.
        `progress(done, stages)` is called after each stage. `checkpoint` is a folder in which the
        key of the noise is kept before anybody pays, and what was released at once, and from which
        `resume` goes on; `keep` leaves it there at the end. Errors of one of Gymnasium's
        environments would tell about rewards and are hidden; so it is tried first, in another
        instance: one that is made of the same id, or `preflight_env`. `preflight=False` waives
        that, which the certificate says.
        """
        ledger, public, seed = session.ledger, session.public, session.seed
        made = make(env)
        if self.mode == "paper":
            given = (("ledger", ledger), ("behaviour", behaviour), ("checkpoint", checkpoint))
            for name, value in given:
                if value is not None:
                    raise InputError(f"{name} does not belong to mode 'paper': leave it out.")
            return self._as_printed(made, seed, public, progress)
        if public and ledger is not None:
            raise InputError(
                "public says that the rewards need no protection, and a ledger that they do: leave "
                "one of them out."
            )
        if behaviour is not None and not isinstance(behaviour, Policy):
            raise InputError("behaviour must be a policy of privrl.data, or None.")
        head, opened = self._head(made), self._open(session)
        tried = checked(
            made,
            private=self.budget is not None and not public,
            preflight=preflight,
            other=preflight_env,
        )
        about = {
            "agent": self.described(made),
            "seed": seed,
            "public": public,
            "run": None if ledger is None else session.run,
            "preflight": tried,
        }
        # The folder before anybody pays, since a run without its checkpoint would be lost.
        with resuming.begun(checkpoint, STATE):
            if checkpoint is not None:
                live = is_live(made)
                runs_on = {"env": None if live else simulator(made), "behaviour": behaviour}
                opened.keep(Kept.begin(checkpoint, about, live=live, runs_on=runs_on))
            course = Course(self, made, head, opened, about, progress, keep)
            with forgotten_unless_paid(opened):
                return self._taught(course, behaviour, None)

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
        progress: Counted | None = None,
        keep: bool = False,
        preflight_env: Any = None,
    ) -> LearnedQ:
        """Go on from where `learn(..., checkpoint=folder)` was interrupted, at no further cost.

        The agent and the environment must be the same, and so must be the `behaviour` if nothing
        was released yet. What was released is planned on once more, which is free. If nothing was,
        in a simulator or with a seed, walk and noise are drawn once more from the key that is in
        the folder, and copies of the folder come to the same; in any other environment of
        Gymnasium's they are drawn afresh, and one copy of the folder alone is let: see
        `privrl.privacy.resuming`.
        """
        if self.mode == "paper":
            raise InputError("resume is for mode 'certified'; `privrl train` resumes both.")
        with resuming.resumed(folder) as kept:
            about, path, made = kept.about, Path(folder) / STATE, make(env)
            if about.get("agent") != self.described(made) or kept.live != is_live(made):
                raise InputError(f"{str(path)!r} belongs to another agent or environment.")
            for name in self._objects:
                if isinstance(_told(getattr(self, name)), str):
                    raise InputError(f"These {name} have no JSON form, so nobody knows them again.")
            if ledger is not None and about["run"] is None:
                raise InputError("This run was begun without a ledger: leave it out.")
            if ledger is None and about["run"] is not None:
                raise InputError("This run was begun with a ledger: say the same.")
            released = None
            runs_on = {} if kept.live else {"env": simulator(made)}
            if path.exists():
                like = {name: np.zeros(*form) for name, form in read_about(path)["arrays"].items()}
                found, _ = load_state(path, like)
                released = {name: np.asarray(array) for name, array in found.items()}
            else:
                runs_on["behaviour"] = behaviour
            kept.check(runs_on)
            session = PrivacySession(ledger=ledger, run=about["run"], seed=about["seed"])
            opened = self._open(session)
            opened.keep(kept)
            if released is None:
                checked(
                    made,
                    private=self.budget is not None and not about["public"],
                    preflight=about["preflight"] != "waived",
                    other=preflight_env,
                    again=True,
                )
                opened.kept = kept.go_on(ledger)
            else:
                kept.end(ledger)
            course = Course(self, made, self._head(made), opened, about, progress, keep)
            return self._taught(course, behaviour, released)

    def _taught(
        self, course: "Course", behaviour: Policy | None, released: "Arrays | None"
    ) -> LearnedQ:
        """The one place that knows the releases."""
        if self.release == "evaluations":
            return self._by_evaluations(course, behaviour, released)
        if self.release in ("weights", "updates"):
            return self._by_updates(course, behaviour, released)
        return self._by_rewards(course, behaviour, released)

    def _as_printed(
        self, env: Env, seed: int | None, public: bool, progress: Counted | None
    ) -> LearnedQ:
        """Paper mode: Algorithm 1, for all of its samples."""
        program, planned = self._program(cast(Any, env))
        source = secure() if seed is None else reproducible(seed)
        with jax.enable_x64(True):
            state = program.init(source.key()[None])
            stride = max(1, planned // _STOPS) if progress is not None else planned
            for done in range(0, planned, stride):
                size = min(stride, planned - done)
                state, _ = program.advance(state, size)
                if progress is not None:
                    progress(done + size, planned)
        return self._shown(program, state, seed, public)

    def _program(self, env: Any) -> tuple[Any, int]:
        """Paper mode, compiled; and for how long it runs."""
        program = PaperProgram(self.paper_config, env)
        return program, program.form.episodes

    def _shown(self, program: Any, state: Any, seed: int | None, public: bool) -> LearnedQ:
        """Its end."""
        return learned_as_printed(program, state, seed, public=public)

    @property
    def paper_config(self) -> Any:
        """The settings of paper mode: those given, with what the budget claims."""
        config = self._default_config() if self.paper is None else self.paper
        if self.budget is None:
            return config
        return replace(config, epsilon=self.budget.epsilon, delta=self.budget.delta)

    def _default_config(self) -> Any:
        return Config()

    # --- noised updates ---------------------------------------------------------------------------

    def _by_updates(
        self, course: "Course", behaviour: Policy | None, released: "Arrays | None"
    ) -> LearnedQ:
        """Releases 'weights' and 'updates': walk, then learn from it with noise in every update.

        Only their end is kept in a checkpoint: what goes on needs the rewards.
        """
        head = course.head
        if self.release == "weights" and isinstance(head, Layers):
            raise InputError("Release 'weights' needs linear features: use planner 'fitted'.")
        plan = self._updating(head)
        noisy, event = None, None
        if self.budget is not None:
            noisy = noised_q.calibrated(self.budget, Relation.REWARD_RADIUS, plan)
            event = noisy.event
        if released is None:
            source = course.opened.source
            walked = self._walk(course, behaviour, source.key())
            with jax.enable_x64(True):
                with resources.refusing("Such a run", _SMALLER):
                    data = self._transitions(head, walked)
                noised_q.try_room(plan, data, _SMALLER, told=True)
                course.pay(event, {}, 16 * math.prod(head.shape))
                state = noised_q.begin(plan, data, source.key())
                state = noised_q.to_the_end(plan, data, state, noisy, course.progress)
                released = {"parameters": noised_q.released(plan, data, state)}
            course.keep_released(released)
        elif event is not None:
            course.opened.paid_before(event)
        parameters = released["parameters"]
        if not np.all(np.isfinite(parameters)):
            raise InputError("The parameters grew without bound: use smaller steps.")
        policy = greedy(head, parameters)
        return course.learned(parameters, policy, None, event, Release.EVERY_ITERATE, compiled=True)

    def _updating(self, head: Head) -> noised_q.Plan:
        """What is done in each update."""
        descent = self.descent or DESCENTS[self.release]
        # Without a budget nothing is noised, and the radius does not matter.
        return descent.plan(cast(Any, self.release), head, self.reward_radius or 1.0)

    def _transitions(self, head: Head, walked: Walk) -> noised_q.Data:
        """What updates are made of. **Private** rewards."""
        return noised_q.transitions(
            head,
            walked.observation,
            walked.action,
            self._total(walked),
            walked.next_observation,
            np.where(walked.terminated, 0.0, self.gamma),
            self.reward_range or _ANY_REWARD,
            orthonormal=self.release == "weights",
        )

    # --- a reward model, or rewards ---------------------------------------------------------------

    def _by_rewards(
        self, course: "Course", behaviour: Policy | None, released: "Arrays | None"
    ) -> LearnedQ:
        """Walk, release, plan."""
        features: Any = None
        if self.release == "reward-model":
            features = self._model_features(course.env)
        if released is None:
            walked = self._walk(course, behaviour, course.opened.source.key())
            # Before anybody pays for what could not be planned on.
            planning.refuse_unseen(course.head, walked)
            course.tell(1, 3)
            if self.release == "reward-model":
                released = self._released_model(course, walked, features)
            else:
                released = self._released_rewards(course, walked)
            released |= self._public(walked)
            course.keep_released(released)
            event = self._event(released)
        else:
            event = self._event(released)
            if event is not None:
                course.opened.paid_before(event)
        course.tell(2, 3)
        model = None
        if self.release == "reward-model":
            std = float(released["std"])
            model = RewardModel(released["coefficients"], released["transform"], features, std)
        parameters, policy = self._planned(course.head, released, model)
        course.tell(3, 3)
        return course.learned(parameters, policy, model, event, Release.FINAL_MODEL)

    def _released_model(self, course: "Course", walked: Walk, features: Any) -> "Arrays":
        """The coefficients of a reward model, with noise if there is a budget."""
        with resources.refusing("Such a reward model", _SMALLER):
            mechanism, means = self.modelled(walked, features)
        course.pay(
            mechanism.event if self.budget is not None else None,
            self._public(walked),
            16 * mechanism.transform.size,
        )
        coefficients, std = self._noised(mechanism, means, course.opened.source)
        return {
            "coefficients": coefficients,
            "transform": mechanism.transform,
            "std": np.array(std),
            "bound": np.array(mechanism.radius),
        }

    def modelled(self, walked: Walk, features: Any) -> tuple[RewardModelMechanism, Floats]:
        """The mechanism of a walk, and the readouts it is for; these are **private**."""
        points, shares, where = distinct(walked.points(self.reward_of))
        weights = even_weights(points, features, shares, self.design)
        mechanism = self._mechanism(points, features, weights)
        return mechanism, readouts(where, self._total(walked))

    def _released_rewards(self, course: "Course", walked: Walk) -> "Arrays":
        """A reward for each step, the same for all that lead to the same point."""
        _, shares, where = distinct(walked.points(self.reward_of))
        means = readouts(where, self._total(walked))
        std = bound = 0.0
        if self.budget is not None:
            assert self.reward_radius is not None
            # The shares add up to 1, up to rounding.
            bound = self.reward_radius * (1.0 + 1e-12)
            std = math.nextafter(_unit(self.budget) * bound, math.inf)
            mechanism = GaussianMechanism(std, bound)
            course.pay(mechanism.event, self._public(walked), 16 * means.size)
            roots = np.sqrt(shares)
            noised, _ = mechanism.release(roots * means, course.opened.source)
            means = noised / roots
        return {"rewards": means[where], "std": np.array(std), "bound": np.array(bound)}

    # --- evaluations ------------------------------------------------------------------------------

    def _by_evaluations(
        self, course: "Course", behaviour: Policy | None, released: "Arrays | None"
    ) -> LearnedQ:
        """Policy iteration: walk, release an evaluation, improve."""
        head, rounds = course.head, self.evaluations
        if isinstance(head, Layers):
            raise InputError("Release 'evaluations' needs linear features: use planner 'fitted'.")
        if released is None:
            released = self._released_evaluations(course, behaviour, rounds)
            # Only when it is complete: in a simulator what goes on draws all of it once more.
            course.keep_released(released)
            event = self._event(released, rounds)
        else:
            event = self._event(released, rounds)
            if event is not None:
                course.opened.paid_before(event)
        policy = greedy(head, released["parameters"])
        parameters = released["parameters"].ravel()
        return course.learned(parameters, policy, None, event, Release.EVERY_ITERATE)

    def _released_evaluations(
        self, course: "Course", behaviour: Policy | None, rounds: int
    ) -> "Arrays":
        """The values of the last policy but one; each walk follows what was released before it."""
        head = course.head
        features = PerAction(_features_of(head), course.env.num_actions)
        scale = horizon_weight(self.gamma, self.horizon)
        source = course.opened.source
        state: Arrays = {}
        for number in range(rounds):
            key = source.key()
            if not state:
                walked = walk(course.env, behaviour, key, self.steps, private=course.private)
            else:
                walked = walk_greedily(
                    *(course.env, head, state["parameters"], _EXPLORE, key, self.steps),
                    private=course.private,
                )
            rows, sums = returns(walked, self._total(walked), self.gamma, self.horizon)
            points = walked.points("step")[rows]
            # Equal weights: where few points weigh much, so does what chance did after them.
            mechanism = self._mechanism(points, features, None, rounds, scale)
            if self.budget is not None and not state:
                course.pay(Repeated(mechanism.event, rounds), {}, 16 * mechanism.transform.size)
            coefficients, std = self._noised(mechanism, sums, source)
            weights = (mechanism.transform @ coefficients).reshape(course.env.num_actions, -1)
            state = {
                "parameters": np.ascontiguousarray(weights.T),
                "std": np.array(std),
                "bound": np.array(mechanism.radius),
            }
            course.tell(number + 1, rounds)
        return state

    # --- what both need ---------------------------------------------------------------------------

    def _walk(self, course: "Course", behaviour: Policy | None, key: jax.Array) -> Walk:
        return walk(course.env, behaviour, key, self.steps, private=course.private)

    def _public(self, walked: Walk) -> "Arrays":
        """What planning needs of a walk."""
        return {name: np.asarray(getattr(walked, name)) for name in self._kept}

    def _total(self, walked: Walk) -> Floats:
        """The rewards of a walk as finite numbers of the range. **Private**."""
        assert walked.reward is not None
        return total(walked.reward, self.reward_range or _ANY_REWARD)

    def _event(self, released: "Arrays", times: int = 0) -> Event | None:
        """What was done, if anything was noised; `times` over, if that is not 0."""
        if self.budget is None:
            return None
        once = Gaussian(float(released["std"]), float(released["bound"]))
        return Repeated(once, times) if times else once

    def _mechanism(
        self,
        points: Floats,
        features: Any,
        weights: Floats | None,
        times: int = 1,
        scale: float = 1.0,
    ) -> RewardModelMechanism:
        """For numbers that move by `scale` times the radius, released `times` times."""
        if self.budget is None:
            return RewardModelMechanism(1.0, 1.0, points, features, weights)
        assert self.reward_radius is not None
        limits = self.reward_range
        if limits is not None:
            # A sum that was cut has fewer rewards, but at least one.
            low, high = limits
            limits = min(low, scale * low), max(high, scale * high)
        return RewardModelMechanism.calibrated(
            scale * self.reward_radius,
            self.budget,
            points,
            features,
            weights,
            reward_range=limits,
            times=times,
        )

    def _noised(
        self, mechanism: RewardModelMechanism, values: Floats, source: Source
    ) -> tuple[Floats, float]:
        """Coefficients, and the standard deviation of their noise: none without a budget."""
        if self.budget is None:
            return np.asarray(mechanism.coefficients(values), np.float64), 0.0
        model, _ = mechanism.release(values, source)
        return np.asarray(model.coefficients, np.float64), model.std

    def _planned(
        self, head: Head, released: "Arrays", model: RewardModel | None
    ) -> tuple[Floats, Policy]:
        """All parameters of Q, and the policy; sees nothing private."""
        steps = Walk(**{name: released[name] for name in self._kept})
        if model is None:
            rewards = released["rewards"]
        else:
            rewards = np.asarray(model(steps.points(self.reward_of)), np.float64)
        if isinstance(head, Layers):
            found = planning.network_q(steps, rewards, head, self.gamma, updates=self.updates)
            return found, greedy(head, found)
        settings = (head, self.gamma, self.rounds, self.ridge)
        if self.planner == "actor-critic":
            step = self.actor_step / (float(np.ptp(rewards)) or 1.0)
            preferences, weights = planning.actor_critic(
                steps, rewards, *settings, iterations=self.iterations, step=step
            )
            return weights.ravel(), head.policy(preferences.ravel())
        weights = planning.fitted_q(steps, rewards, *settings)
        return weights.ravel(), greedy(head, weights)

    def planning_bytes(self, head: Head) -> float:
        """About how much memory planning takes: of public numbers, before anybody pays."""
        width, steps = math.prod(head.shape) / head.outputs, float(self.steps)
        if isinstance(head, Layers):
            # Parameters, their moments and slopes; the inputs; the values of a whole walk.
            inner = sum(head.sizes[1:-1])
            return 8.0 * (8.0 * math.prod(head.shape) + self._led * (head.sizes[0] + inner))
        if isinstance(head, Table):
            return 8.0 * (4.0 * width * head.outputs + 4.0 * self._led)
        # Features of where steps begin and lead, solvers, and the Gram matrix with its inverse.
        return 8.0 * (2.0 * steps * width + self._led * width + 6.0 * width**2)

    @property
    def _led(self) -> float:
        """How many points values are asked for at."""
        return float(self.steps)

    def _head(self, env: Env) -> Head:
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
                wish = _default_features(observed, env.name, few)
        head = head_of(wish, observed, env.num_actions, env.name)
        Rows(head, head).check(observed, env.name)
        return head

    def _model_features(self, env: Env) -> Any:
        """Of the points of the reward model."""
        chosen: Any = self.reward_features
        if chosen is None:
            observed = env.observation
            if isinstance(observed, Discrete):
                chosen = OneHot(observed.n)
            else:
                chosen = _default_reward_features(observed, env.name, self._order())
        return PerAction(chosen, env.num_actions) if self.reward_of == "step" else chosen

    def _order(self) -> int:
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
        room = math.sqrt(width / (2.0 * _unit(self.budget) * self.reward_radius))
        return int(min(max(least, room), most))

    def described(self, env: Env) -> dict[str, Any]:
        """The settings for this environment, in JSON's own types."""
        budget, limits = self.budget, self.reward_range
        plain = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in ("budget", "reward_range", "paper", *self._objects)
        }
        objects = {name: _told(getattr(self, name)) for name in self._objects}
        return {
            "env": env.name,
            "epsilon": None if budget is None else budget.epsilon,
            "delta": None if budget is None else budget.delta,
            "reward_range": None if limits is None else list(limits),
            **plain,
            **objects,
        }


def learned_as_printed(
    program: PaperProgram, state: Any, seed: int | None, *, public: bool
) -> LearnedQ:
    """The end of a run in paper mode: Q as it was learned, and the paper's claim about it.

    The scaling of observations goes into the first layer, so that Q is of observations as they are.
    """
    config, form, env = program.config, program.form, program.env
    head = Layers((1, *config.hidden, env.num_actions), activation="relu")
    parameters = np.asarray(state.weights[0], np.float64)
    if not np.all(np.isfinite(parameters)):
        raise InputError("The parameters grew without bound: use smaller steps.")
    width, first = form.high - form.low, config.hidden[0]
    slopes = parameters[:first] / width
    parameters = np.concatenate(
        [slopes, parameters[first : 2 * first] - slopes * form.low, parameters[2 * first :]]
    )
    policy = greedy(head, parameters)
    if config.sigma is None:
        promise: Promise = claims(config)[0]
    else:
        promise = NO_CLAIM if config.sigma else NOT_PRIVATE
    sigma, rate = config.noise
    settings = {"env": env.name, "mode": "paper", "seed": seed, **asdict(config)}
    return LearnedQ(
        promise=promise,
        release="values",
        parameters=parameters,
        head=head,
        policy=policy,
        score=_score(env, policy, None, 0 if seed is None else seed) if public else None,
        settings={**settings, "hidden": list(config.hidden), "sigma": sigma, "rate": rate},
    )


_SMALLER = "use fewer features, a smaller network or fewer steps"
# More than anybody has waited for.
_MOST = {
    "steps": 10**7,
    "rounds": 10**6,
    "iterations": 10**5,
    "updates": 10**7,
    "evaluations": 1000,
    "horizon": 10**4,
}
Arrays = dict[str, Any]


@lru_cache(maxsize=64)
def _unit(budget: Budget) -> float:
    """The least noise of one release, in units of the movement."""
    return calibrate(lambda std: Gaussian(std, 1.0), budget, Relation.REWARD_RADIUS)


@dataclass(frozen=True, eq=False)
class Course:
    """One run: where it is, who pays, and what is told and kept on the way."""

    agent: FunctionalQ
    env: Env
    head: Head
    opened: OpenSession
    about: Mapping[str, Any]
    progress: Counted | None
    keep: bool

    @property
    def path(self) -> Path | None:
        """Of the checkpoint, if there is one."""
        return None if self.opened.kept is None else self.opened.kept.folder / STATE

    @property
    def private(self) -> bool:
        """Whether errors and warnings of the environment would tell too much."""
        return self.agent.budget is not None and not self.about["public"]

    def tell(self, done: int, stages: int) -> None:
        if self.progress is not None:
            self.progress(done, stages)

    def pay(self, event: Event | None, public: Arrays, more: int) -> None:
        """Pay for `event`, if there is one, once there is room for the rest of the run.

        `public` is what planning needs of the walk; `more` are the other bytes to keep.
        """
        size = more + sum(np.asarray(array).nbytes for array in public.values())
        if self.opened.kept is not None:
            resources.on_disk(self.opened.kept.folder, 2 * size)
        resources.refuse_above(
            self.agent.planning_bytes(self.head), "Planning with such features", _SMALLER
        )
        if event is not None:
            assert self.agent.budget is not None
            self.opened.pay(event, delta=self.agent.budget.delta)

    def keep_released(self, released: Arrays) -> None:
        """What was released, in the checkpoint; it holds nothing private."""
        if self.path is not None and self.opened.kept is not None:
            arrays = {name: [list(a.shape), str(a.dtype)] for name, a in released.items()}
            save_state(self.path, released, {**self.about, "arrays": arrays})
            self.opened.kept.end(self.opened.ledger)

    def learned(
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
            promise = self._certified(release, compiled)
        score = None
        if public:
            score = _score(self.env, policy, agent.max_steps, 0 if seed is None else seed)
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

    def _certified(self, release: Release, compiled: bool) -> Certificate:
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
                *(PUBLIC_WALK, DYNAMICS, COUPLED, clipped, PUBLIC_SETTINGS, TIMING),
                *((SHOWN,) if self.about["public"] else ()),
                *ASSUMPTIONS[self.about["preflight"]],
            ),
            compiled=compiled,
        )


# --- features -------------------------------------------------------------------------------------


def _finite(observed: Box, name: str, what: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if not all(map(math.isfinite, (*observed.low, *observed.high))):
        raise InputError(f"{name} observes vectors without bounds: say what {what} of them to use.")
    return observed.low, observed.high


def _default_features(observed: Box, name: str, few: bool) -> Features:
    """`few` where values are fitted to noise."""
    low, high = _finite(observed, name, "features")
    if len(low) > len(_FOURIER):
        return Polynomial(2, low, high)
    order = _FOURIER[len(low) - 1]
    return Fourier(min(order, _FEW) if few else order, low, high)


def _default_reward_features(observed: Box, name: str, order: int) -> Any:
    low, high = _finite(observed, name, "reward_features")
    if len(low) > 3:
        return Polynomial(2, low, high)
    return Cosine(order if len(low) == 1 else 2, low, high)


def _features_of(head: Head) -> Any:
    wish = head.wish
    assert not isinstance(wish, Network)
    return wish


def _range(given: Any) -> tuple[float, float]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError("reward_range must be two numbers: the least and the largest reward.")
    low, high = (checks.number("reward_range", value) for value in given)
    if not (low < high and math.isfinite(high - low)):
        raise InputError("reward_range must go up, by a finite difference.")
    return low, high


def _told(value: Any) -> Any:
    """A setting in JSON, or its name where it has no such form."""
    if isinstance(value, Network):
        return {"hidden": list(value.hidden), "features": _told(value.features), "seed": value.seed}
    try:
        return None if value is None else value.to_dict()
    except (AttributeError, InputError):
        return type(value).__name__


def _score(env: Env, policy: Policy, max_steps: int | None, seed: int) -> float:
    """The mean return of fresh episodes."""
    count, inside = _SCORED[0], cast(Any, env)
    if isinstance(env, HostEnvironment):
        count, inside = _SCORED[1], env.env
    played = collect(inside, policy, count, seed, max_steps=max_steps)
    return float(np.sum(played.rewards)) / count
