"""Actor-critic with eligibility traces (seo2020), certified; or as the paper has it.

    ActorCritic(budget=Budget(10.0, 1e-6)).learn("Taxi-v4", people=500).policy

mode="certified" (the default) plays people in batches and releases noised sums only: `certified`
has the algorithm, the theorem and its proof, `increments` what one person adds. Released: all the
parameters on the way; a certificate comes with them. Learning curves look at returns, so there is
one only if the people are declared `public`, or if it was *paid* for: `curve="paid"` gives each
person's return a coordinate of its own in the clipped row, which costs no budget and a little
signal.

With a `prospect` it is not the mean return that is maximised but its CPT value over people: what
somebody prefers who overweighs small chances and minds losses more than gains (`prospect_rows`).
How returns are distributed is then paid for in the same way, and released.

    ActorCritic(budget=Budget(10.0, 1e-6), prospect=Prospect.tversky_kahneman(),
                return_range=(0.0, 20.0)).learn(env, people=20_000).prospect_value

Variants hide outputs and change nothing else: "both" gives the actor and the critic, "actor" and
"critic" one of them, at the same cost. "none" adds no noise, and says that it is not private.

mode="paper" is Algorithms 1 to 4 of the paper (`paper_actor_critic`), with the paper's claim.

Departures of the certified mode from the paper: whole episodes instead of single steps, one clip
for the actor and the critic together instead of normalised gradients, sampled softmax actions, so
that no importance ratios and no second weights of GTD(lambda) are needed, and noise for a promise
about people instead of steps.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from privrl.control import certified
from privrl.control.certified import SWEEPABLE, Plan, State
from privrl.control.heads import Head, Network, Table, head_from_dict, head_of
from privrl.control.increments import Rows
from privrl.control.paper_actor_critic import Config, PaperProgram, claims, flush
from privrl.control.program import load_state, save_state
from privrl.control.promises import Promise, Promised, promise_from_dict, promise_to_dict
from privrl.control.prospect_rows import Outlook, projected
from privrl.core import checks, files, resources
from privrl.core.errors import InputError
from privrl.core.progress import Counted
from privrl.core.types import Floats
from privrl.data import Features, Policy
from privrl.envs.base import Environment
from privrl.envs.host import HostEnvironment, is_live, simulator
from privrl.envs.preflight import ASSUMPTIONS, checked
from privrl.envs.registry import make
from privrl.envs.tabular import TabularMDP
from privrl.privacy import resuming
from privrl.privacy.certificate import Assumption, Certificate
from privrl.privacy.events import Event
from privrl.privacy.ledger import Ledger, warn_if_large
from privrl.privacy.mechanisms.correlated import CorrelatedMechanism
from privrl.privacy.noise import reproducible, secure
from privrl.privacy.plan import NoisyPlan
from privrl.privacy.promise import Budget, Relation, Release, Unit
from privrl.privacy.resuming import Kept
from privrl.privacy.session import SECRET, OpenSession, PrivacySession, forgotten_unless_paid
from privrl.risk import Prospect

Env = Environment[Any, Any] | HostEnvironment

NOT_PRIVATE = "Not private: the variant 'none' adds no noise."

CLIPPED = Assumption(
    "each person's whole increment, of the actor and the critic, is clipped to a public bound",
    "by the algorithm, for any episode; one in which the environment fails counts as not played",
)
CARRIED = Assumption(
    "all that is carried from batch to batch comes from noised sums", "by the algorithm"
)
SLOTS = Assumption(
    "a person plays one episode, in a slot that does not depend on what happens in it",
    "batches hold a public number of slots; who fills them is the caller's",
)
APART = Assumption(
    "the environment carries nothing from one person's episode into another's",
    "not enforced: it is the caller's",
)
PUBLIC_SETTINGS = Assumption(
    "features, ranges, bounds and step sizes were chosen without looking at the people",
    "not enforced: they are the caller's",
)
WEIGHED = Assumption(
    "the prospect was chosen without looking at the people", "not enforced: it is the caller's"
)
BILLBOARD = Assumption(
    "a person's own actions are shown to nobody but that person (joint privacy)",
    "not enforced: the parameters are what is released",
)

TIMING = Assumption(
    "nobody is told how long the run, or a part of it, took",
    "not enforced: a batch takes as long as its longest episode",
)
SHOWN = Assumption(
    "returns of these people are public: they are shown as they were, and nothing is promised "
    "about them",
    "not enforced: it is the caller's",
)

# How often a run with a progress bar or a checkpoint stops to tell.
_STOPS = 20
STATE = "state.npz"
"""The checkpoint in its folder."""


@dataclass(frozen=True)
class ActorCritic:
    """A softmax policy and its values, learned from people's episodes; see the module."""

    variant: Literal["both", "actor", "critic", "none"] = "both"
    """What is given away: the actor, the critic or both. "none" is without noise, not private."""

    budget: Budget | None = None
    """What may be spent on each person (certified), or is claimed for each step (paper)."""

    mode: Literal["certified", "paper"] = "certified"
    """Whether the noise is calibrated by a proof, or as in the paper."""

    gamma: float | None = None
    """The discount factor, from 0 to 1; by default 0.99, with a prospect 1. Here and below: in
    paper mode, what is not said is as in `paper_actor_critic.Config`."""

    lambda_: float | None = None
    """How far eligibility traces reach, from 0 to 1; by default 0.9, with a prospect 1."""

    actor_step: float | None = None
    """Step size of the policy, which a batch moves by at most this times `clip`, but for noise; by
    default 100, with a prospect 5."""

    critic_step: float | None = None
    """Step size of the values; by default 1."""

    clip: float | Literal["median"] | None = None
    """C, the largest norm of a person's increment; by default 0.03, which nearly all increments
    exceed, so that it is directions that are learned from; with a prospect 2, since rare returns
    must stay as large as they are. In paper mode also "median"."""

    max_steps: int | None = None
    """Truncates episodes that the environment lets go on."""

    features: Features | Network | None = None
    """Of states; None for a table, which discrete observations may have. Certified mode."""

    critic_features: Features | Network | None = None
    """Of states, for the critic; by default as for the actor, or as those of the critic that the
    run starts from. Certified mode."""

    batch: int | None = None
    """B, how many people act by the same policy; by default a fiftieth of them. Certified mode."""

    noise: Literal["auto", "independent", "correlated", "optimal"] = "auto"
    """Of different batches; "auto" takes what is best for running sums. Certified mode."""

    optimiser: Literal["sgd", "adam"] = "sgd"
    """What makes steps of the noised sums. Certified mode."""

    schedule: Literal["constant", "linear"] = "constant"
    """Whether step sizes stay or fall to 0 at the end. Certified mode."""

    average: float = 0.0
    """Over which last share of the batches the parameters are averaged; 0 for the last ones.
    Certified mode."""

    critic_weight: float = 0.1
    """How much of the clip bound is for the critic, relative to the actor. Certified mode."""

    entropy: float = 0.0
    """How much the entropy of the policy counts, in units of the return range. Certified mode."""

    return_range: tuple[float, float] | None = None
    """What a return could be: increments are divided by its width, which otherwise is 1, and the
    paid learning curve lies in it; a prospect counts returns in it. Certified mode."""

    curve: Literal["hidden", "paid"] = "hidden"
    """Whether a part of the clip bound goes to a learning curve. With a prospect there is one
    anyhow, of returns as `gamma` discounts them. Certified mode."""

    curve_weight: float = 0.2
    """Which part, from 0 to 1: the increment has sqrt(1 - curve_weight^2) of the bound left. With a
    prospect it goes to the distribution of returns."""

    prospect: Prospect | None = None
    """How somebody weighs the returns of people, whose CPT value is maximised; None for the mean.
    Increments are then divided by the utility that is between the ends of `return_range`. Certified
    mode."""

    bins: int = 20
    """Into how many equal parts `return_range` is cut; a prospect counts returns at their ends."""

    even_share: float = 0.01
    """How much of even chances is mixed into the distribution before slopes of weights are taken,
    which are infinite where a chance is 0."""

    forgetting: float = 0.1
    """How much of the distribution a batch replaces at least, from 0 to 1."""

    correction_step: float | None = None
    """Step size of GTD's second weights. Paper mode."""

    acting: Literal["epsilon-greedy", "softmax"] | None = None
    """How actions are drawn. Paper mode: certified actions are drawn from the softmax policy."""

    exploration: float | None = None
    """With what probability epsilon-greedy draws any action. Paper mode."""

    correction: Literal["next", "printed"] | None = None
    """Which features the correction of GTD has. Paper mode."""

    PAPER: ClassVar[tuple[str, ...]] = ("correction_step", "acting", "exploration", "correction")
    CERTIFIED: ClassVar[tuple[str, ...]] = (
        *("features", "critic_features", "batch", "noise", "optimiser", "schedule", "average"),
        *("critic_weight", "entropy", "return_range", "curve", "curve_weight", "prospect", "bins"),
        *("even_share", "forgetting"),
    )

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            if getattr(self, name) not in words:
                listed = ", ".join(map(repr, words[:-1])) + f" or {words[-1]!r}"
                raise InputError(f"must be {listed}, not {getattr(self, name)!r}.", field=name)
        other = self.PAPER if self.mode == "certified" else self.CERTIFIED
        for one in fields(self):
            if one.name in other and getattr(self, one.name) != one.default:
                raise InputError(f"{one.name} does not belong to mode {self.mode!r}: leave it out.")
        self._check_budget()
        if self.clip == "median" and self.mode == "certified":
            raise InputError("clip must be a public number: a median would be read off people.")
        for name in (*_DEFAULTS, *_MORE_NUMBERS):
            value = getattr(self, name)
            if value is not None and not (name == "clip" and value == "median"):
                _check(name, value)
        for name in ("max_steps", "batch"):
            if getattr(self, name) is not None:
                checks.count(name, getattr(self, name))
        for name in ("features", "critic_features"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, Features | Network):
                raise InputError("must be a feature map of privrl.data, or a Network.", field=name)
        if self.return_range is not None:
            object.__setattr__(self, "return_range", _range(self.return_range))
        self._check_combinations()

    def _check_budget(self) -> None:
        if self.variant == "none":
            if self.budget is not None:
                raise InputError("The variant 'none' spends nothing: leave the budget out.")
        elif not isinstance(self.budget, Budget) or self.budget.delta == 0.0:
            raise InputError("budget must be a Budget with a delta above 0, for Gaussian noise.")

    def _check_combinations(self) -> None:
        if self.prospect is None:
            for one in fields(self):
                if one.name in _OF_PROSPECTS and getattr(self, one.name) != one.default:
                    raise InputError(f"{one.name} belongs to a prospect: say one, or leave it out.")
        if self.curve == "paid" or self.prospect is not None:
            if self.return_range is None:
                what = "a paid curve" if self.prospect is None else "a prospect"
                raise InputError(f"return_range is needed for {what}: say what returns are.")
            if not 0.0 < checks.number("curve_weight", self.curve_weight) < 1.0:
                raise InputError("curve_weight must be above 0 and below 1.")
        if self.prospect is not None:
            if not isinstance(self.prospect, Prospect):
                raise InputError("prospect must be one of privrl.risk, such as Prospect.neutral().")
            if checks.count("bins", self.bins) > _MOST_BINS:
                raise InputError(f"bins must be at most {_MOST_BINS}, not {self.bins}.")
            if not _LEAST_SHARE <= checks.number("even_share", self.even_share) < 1.0:
                raise InputError(f"even_share must be from {_LEAST_SHARE:g} to below 1.")
            _ = self.outlook
        if self.noise in certified.STREAMED and self.optimiser == "adam":
            raise InputError(
                "Correlated noise is for running sums, which Adam does not use: take sgd."
            )

    @property
    def outlook(self) -> Outlook | None:
        """How returns are counted and valued, if there is a prospect."""
        if self.prospect is None:
            return None
        assert self.return_range is not None
        return Outlook(
            self.prospect,
            self.return_range,
            self.bins,
            self.curve_weight,
            self.even_share,
            self.forgetting,
        )

    # --- learning -----------------------------------------------------------------------------

    def learn(
        self,
        env: Any,
        people: int | None = None,
        *,
        episodes: int | None = None,
        session: PrivacySession = SECRET,
        critic: Any = None,
        progress: Counted | None = None,
        checkpoint: str | Path | None = None,
        keep: bool = False,
        preflight: bool = True,
        preflight_env: Any = None,
    ) -> "Learned":
        """Learn from `people` (or `episodes`, which is the same) in `env`.

        `env` is an environment, or its name. A session that is public says that nobody in it needs
        protection, and lets the curve of their returns be shown; then no ledger can pay. In an
        environment of Gymnasium's that fails, an episode of somebody who is not public counts as
        not played, since an error would tell about them; so it is tried before anybody pays, in
        another instance that nobody is in: one that is made of the same id, or `preflight_env`.
        `preflight=False` waives that, which the certificate says. `critic` are values to start
        from: what `privrl.evaluation.DPLSL` fitted, or weights that are public. `progress(done,
        people)` is called now and then; `checkpoint` is a folder from which `resume` goes on, and
        where `keep` leaves the end of the run too, so that a result that could not be saved is not
        lost. With a ledger all is paid for before anybody plays. A `checkpoint` holds the key of
        the noise before that, so that nothing that was paid for is lost.
        """
        ledger, public, seed = session.ledger, session.public, session.seed
        made = make(env)
        count = _people(people, episodes)
        if self.mode == "paper":
            for name, given in (("ledger", ledger), ("critic", critic), ("checkpoint", checkpoint)):
                if given is not None:
                    raise InputError(f"{name} does not belong to mode 'paper': leave it out.")
            return self._as_printed(made, count, seed, public, progress)
        if public and ledger is not None:
            raise InputError(
                "public says that nobody needs protection, and a ledger that somebody does: leave "
                "one of them out."
            )
        if critic is not None and self.prospect is not None:
            raise InputError(
                "A critic to start from values returns, and with a prospect a critic values what "
                "they are worth: leave one of them out."
            )
        start = _start(critic)
        program = CertifiedProgram(self, made, count, start.features)
        plan = program.plan
        first = self._first(program, start)
        if self.budget is not None:
            warn_if_large(self.budget.delta, count)
        opened = session.open(Unit.TRAJECTORY, Relation.REPLACE_ONE)
        tried = checked(
            made,
            private=program.event is not None and not public,
            preflight=preflight,
            other=preflight_env,
        )
        about = {
            "agent": program.described | {"heads": plan.rows.described},
            "people": count,
            "seed": seed,
            "public": public,
            "run": None if ledger is None else session.run,
            "critic": start.described,
            "preflight": tried,
        }
        size = program.try_room(first, public)
        # The folder before anybody pays, since a run without its checkpoint would be lost.
        with resuming.begun(checkpoint, STATE):
            resources.on_disk(checkpoint, 2 * size)
            if checkpoint is not None:
                live = is_live(made)
                runs_on = {"env": None if live else simulator(made)}
                opened.keep(Kept.begin(checkpoint, about, live=live, runs_on=runs_on))
            with forgotten_unless_paid(opened):
                if program.event is not None:
                    assert self.budget is not None
                    opened.pay(program.event, delta=self.budget.delta)
            with jax.enable_x64(True):
                journey = _Journey.begin(program, self._begun(program, opened, first), public)
                return self._go_on(program, journey, opened, start, about, progress, keep)

    def _begun(self, program: "CertifiedProgram", opened: OpenSession, first: Any) -> State:
        """The state before the first batch, whose keys are all the randomness of the run."""
        source = opened.source
        begun: State = certified.begin_one(
            program.plan, source.key(), source.key(), program.numbers, first
        )
        return begun

    def resume(
        self,
        folder: str | Path,
        env: Any,
        *,
        critic: Any = None,
        ledger: Ledger | None = None,
        progress: Counted | None = None,
        keep: bool = False,
        preflight_env: Any = None,
    ) -> "Learned":
        """Go on from where `learn(..., checkpoint=folder)` was interrupted, at no further cost.

        The agent, the environment and the critic to start from must be the same. In a simulator, or
        with a seed, the result is that of a run that was never interrupted, bit for bit: the noise
        is drawn once more from the key that is in the folder, and copies of the folder come to the
        same. Where people may be, who play again, the noise still to come is drawn from a fresh
        key, and one copy of the folder alone is let: see `privrl.privacy.resuming`.
        """
        if self.mode == "paper":
            raise InputError("resume is for mode 'certified'; `privrl train` resumes both.")
        with resuming.resumed(folder) as kept:
            about, path, made = kept.about, Path(folder) / STATE, make(env)
            start = _start(critic)
            program = CertifiedProgram(self, made, int(about.get("people", 1)), start.features)
            own = program.described | {"heads": program.plan.rows.described}
            if about.get("agent") != own or about.get("critic") != start.described:
                raise InputError(f"{str(path)!r} belongs to another agent, environment or critic.")
            if kept.live != is_live(made):
                raise InputError(f"{str(path)!r} belongs to another environment.")
            kept.check({} if kept.live else {"env": simulator(made)})
            if ledger is not None and about["run"] is None:
                raise InputError("This run was begun without a ledger: leave it out.")
            if ledger is None and about["run"] is not None:
                raise InputError("This run was begun with a ledger: say the same.")
            session = PrivacySession(ledger=ledger, run=about["run"], seed=about["seed"])
            opened = session.open(Unit.TRAJECTORY, Relation.REPLACE_ONE)
            opened.keep(kept)
            begun = path.exists()

            def tried() -> None:
                checked(
                    made,
                    private=program.event is not None and not about["public"],
                    preflight=about["preflight"] != "waived",
                    other=preflight_env,
                    again=True,
                )

            if not begun:
                tried()  # Before anybody pays, if nobody has.
            first = self._first(program, start)
            if program.event is not None:
                assert self.budget is not None
                if begun:
                    opened.paid_before(program.event)
                else:
                    program.try_room(first, bool(about["public"]))
                    opened.pay(program.event, delta=self.budget.delta)
            with jax.enable_x64(True):
                journey = _Journey.begin(
                    program, self._begun(program, opened, first), bool(about["public"])
                )
                if begun:
                    journey, _ = load_state(path, journey)
                if int(journey.state.batch) < program.plan.horizon:
                    if begun:
                        tried()
                    opened.kept = kept.go_on(ledger)
                    if kept.live and about["seed"] is None and begun:
                        fresh = program.plan.rekeyed(journey.state, opened.source.key())
                        journey = journey._replace(state=fresh)
                return self._go_on(program, journey, opened, start, about, progress, keep)

    @staticmethod
    def _first(program: "CertifiedProgram", start: "_Start") -> Any:
        """The critic's parameters to start from, if there are any."""
        rows = program.plan.rows
        if start.weights is None:
            return None
        if start.weights.size != rows.sizes[1]:
            raise InputError(
                f"critic has {start.weights.size} weights, but its features need {rows.sizes[1]}."
            )
        return rows.critic.scaled(start.weights, 1.0 / rows.width)

    def _as_printed(
        self, env: Env, episodes: int, seed: int | None, public: bool, progress: Counted | None
    ) -> "Learned":
        """Paper mode: Algorithms 1 to 4."""
        if not isinstance(env, TabularMDP):
            raise InputError(
                f"The paper's actor-critic is for tables of states, and {env.name} has none."
            )
        program = PaperProgram(self.paper_config, env)
        source = secure() if seed is None else reproducible(seed)
        with jax.enable_x64(True):
            state, done, returns = program.init(source.key()[None]), 0, []
            stride = max(1, episodes // _STOPS) if progress is not None else episodes
            while done < episodes:
                size = min(stride, episodes - done)
                state, seen = program.advance(state, size)
                returns.append(np.asarray(seen["return"])[0])
                done += size
                if progress is not None:
                    progress(done, episodes)
        curve = np.concatenate(returns) if public else None
        return learned_as_printed(program, state, episodes, curve, seed)

    @property
    def paper_config(self) -> Config:
        """The settings of paper mode; what was not said is as there."""
        names = (*self.PAPER, *_DEFAULTS, "max_steps")
        said = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.budget is not None:
            said |= {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        return Config(variant=self.variant, **said)

    def _go_on(
        self,
        program: "CertifiedProgram",
        journey: "_Journey",
        opened: OpenSession,
        start: "_Start",
        about: Mapping[str, Any],
        progress: Counted | None,
        keep: bool,
    ) -> "Learned":
        plan, path, kept = program.plan, None, opened.kept
        if kept is not None:
            path = kept.folder / STATE
            save_state(path, journey, about)
        many = progress is not None or kept is not None
        stride = max(1, plan.horizon // _STOPS) if many else plan.horizon
        try:
            while (done := int(journey.state.batch)) < plan.horizon:
                if kept is not None:
                    kept.still(opened.ledger)
                journey = program.travel(journey, min(stride, plan.horizon - done))
                if path is not None and (keep or int(journey.state.batch) < plan.horizon):
                    save_state(path, journey, about)
                if progress is not None:
                    progress(min(int(journey.state.batch) * plan.batch, plan.people), plan.people)
            if kept is not None:
                kept.end(opened.ledger)
            learned = self._learned(program, journey, opened, start, about)
        except Diverged:
            # Resuming would end in the same way. That it ended so is told, so it was the end.
            if kept is not None:
                kept.end(opened.ledger)
            _forget(path, kept)
            raise
        if not keep:
            _forget(path, kept)
        return learned

    def _learned(
        self,
        program: "CertifiedProgram",
        journey: "_Journey",
        opened: OpenSession,
        start: "_Start",
        about: Mapping[str, Any],
    ) -> "Learned":
        plan = program.plan
        actor, critic = plan.released(journey.state)
        _policy(plan.rows.actor, actor)
        with np.errstate(over="ignore"):
            critic = plan.rows.critic.scaled(critic, plan.rows.width)
        if not np.all(np.isfinite(critic)):
            raise Diverged
        promise: Promise = NOT_PRIVATE
        if self.budget is not None:
            promise = opened.certify(
                self.budget.delta,
                release=Release.EVERY_ITERATE,
                assumptions=(
                    *(CLIPPED, CARRIED, SLOTS, APART, BILLBOARD, TIMING, PUBLIC_SETTINGS),
                    *((SHOWN,) if about["public"] else ()),
                    *(() if self.prospect is None else (WEIGHED,)),
                    *ASSUMPTIONS[about["preflight"]],
                    *start.assumptions,
                ),
                compiled=True,
            )
        curve = None
        if about["public"]:
            curve = np.asarray(journey.returns, np.float64).reshape(-1)[: plan.people]
        elif self.curve == "paid" or self.prospect is not None:
            curve = np.asarray(journey.paid, np.float64)
        returns = None
        if plan.rows.outlook is not None:
            chances = np.asarray(projected(journey.state.returns), np.float64)
            returns = Returns(plan.rows.outlook.points, chances)
        both = self.variant in ("both", "none")
        return Learned(
            promise=promise,
            variant=self.variant,
            actor=actor.reshape(plan.rows.actor.shape) if both or self.variant == "actor" else None,
            critic=critic.reshape(plan.rows.critic.shape)
            if both or self.variant == "critic"
            else None,
            actor_head=plan.rows.actor,
            critic_head=plan.rows.critic,
            curve=curve,
            producer=start.certificate,
            returns=returns,
            settings={
                "seed": about["seed"],
                "people": plan.people,
                "sigma": program.numbers["sigma"],
                **program.described,
            },
        )


_WORDS: dict[str, tuple[str, ...]] = {
    "variant": ("both", "actor", "critic", "none"),
    "mode": ("certified", "paper"),
    "noise": ("auto", "independent", "correlated", "optimal"),
    "optimiser": ("sgd", "adam"),
    "schedule": ("constant", "linear"),
    "curve": ("hidden", "paid"),
}

# What certified mode takes where nothing was said; found on MDP-100 with seeds 0 to 5.
_DEFAULTS = {
    "gamma": 0.99,
    "lambda_": 0.9,
    "actor_step": 100.0,
    "critic_step": 1.0,
    "clip": 0.03,
}
_BATCHES = 50

# The same with a prospect. Returns are as people get them, and the critic is not trusted
# (`prospect_rows`); steps and the bound were found on the gambles of the papers, with seeds 0 to 9.
_PROSPECT_DEFAULTS = {"gamma": 1.0, "lambda_": 1.0, "actor_step": 5.0, "clip": 2.0}
_OF_PROSPECTS = ("bins", "even_share", "forgetting")
_MOST_BINS = 1000
# Far above what rounding makes of sums of chances.
_LEAST_SHARE = 1e-6


def _range(given: Any) -> tuple[float, float]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError("return_range must be two numbers: the lowest and the highest return.")
    low, high = (checks.number("return_range", value) for value in given)
    if not (low < high and math.isfinite(high - low)):
        raise InputError("return_range must go up, by a finite difference.")
    return low, high


def _check(name: str, value: Any) -> None:
    """Refuse a number that the setting of this name cannot have."""
    if name in ("clip", "critic_weight"):
        checks.positive(name, value)
    elif checks.non_negative(name, value) > 1.0 and name in _SHARES:
        raise InputError(f"must be at most 1, not {value:g}.", field=name)


_MORE_NUMBERS = (
    *("correction_step", "exploration", "average", "critic_weight", "entropy", "forgetting"),
)
_SHARES = ("gamma", "lambda_", "exploration", "average", "forgetting")


def _forget(path: Path | None, kept: Kept | None) -> None:
    """The run is over: its checkpoint and its key go."""
    if path is not None and kept is not None:
        path.unlink()
        kept.remove()


class Diverged(InputError):  # noqa: N818 (the public name says what happened)
    """Parameters that no number can hold any more, which follows from what was released."""

    def __init__(self) -> None:
        super().__init__("The parameters grew without bound: use smaller steps.")


def _policy(head: Head, parameters: Floats) -> Policy:
    """The softmax policy of parameters, if they are still of any use."""
    try:
        with np.errstate(all="ignore"):
            return head.policy(parameters)
    except InputError:
        raise Diverged from None


def _people(people: Any, episodes: Any) -> int:
    if (people is None) == (episodes is None):
        raise InputError("Say how many people there are: people=500 (or episodes=500).")
    return checks.count("people", episodes if people is None else people)


# --- as a program -----------------------------------------------------------------------------


@dataclass(frozen=True)
class CertifiedProgram:
    """The certified agent as a `Program`: for sweeps over simulators, and inside `learn`.

    `advance` takes whole batches: multiples of `batch`, or all that are left. What it gives back
    about episodes is **private**, unless the people are simulated.
    """

    config: ActorCritic
    env: Env
    people: int
    start_features: Features | Network | None = None
    """Of a critic to start from, if it has any."""

    def __post_init__(self) -> None:
        checks.count("people", self.people)
        if self.config.mode != "certified":
            raise InputError("A CertifiedProgram needs an agent of mode 'certified'.")
        _ = self.length
        self.plan.rows.check(self.env.observation, self.env.name)

    @property
    def sweepable(self) -> tuple[str, ...]:
        return SWEEPABLE

    @property
    def batch(self) -> int:
        """B."""
        return self.config.batch or -(-self.people // _BATCHES)

    @property
    def length(self) -> int:
        """How many steps an episode takes at most."""
        return certified.steps_of(self.env, self.config.max_steps)

    @cached_property
    def plan(self) -> Plan:
        """The run without its numbers."""
        config = self.config
        chosen = config.critic_features
        if self.start_features is not None:
            if chosen is not None and chosen != self.start_features:
                raise InputError("critic has features of its own: leave critic_features out.")
            chosen = self.start_features
        observed, name = self.env.observation, self.env.name
        rows = Rows(
            head_of(config.features, observed, self.env.num_actions, name),
            head_of(config.features if chosen is None else chosen, observed, 1, name),
            config.entropy,
            config.return_range,
            config.curve_weight if config.curve == "paid" and config.prospect is None else 0.0,
            config.outlook,
        )
        kind: Any = "none" if config.variant == "none" else config.noise
        if kind == "auto":
            horizon = -(-self.people // self.batch)
            kind = certified.noise_kind(horizon, config.optimiser, config.schedule)
        return Plan(
            rows,
            self.people,
            self.batch,
            kind,
            config.optimiser,
            config.schedule,
            config.average,
        )

    @property
    def numbers(self) -> dict[str, float]:
        """The program's own value for each of `sweepable`."""
        defaults = _DEFAULTS
        if self.config.prospect is not None:
            defaults = _DEFAULTS | _PROSPECT_DEFAULTS
        found = {
            name: default
            if getattr(self.config, name) is None
            else float(getattr(self.config, name))
            for name, default in defaults.items()
        }
        return {
            **found,
            "critic_weight": self.config.critic_weight,
            "sigma": 0.0 if self.noisy is None else self.noisy.std,
        }

    @property
    def event(self) -> Event | None:
        """What the whole run does to a person; None if it is not private."""
        return None if self.noisy is None else self.noisy.event

    @cached_property
    def noisy(self) -> NoisyPlan | CorrelatedMechanism | None:
        """The noise on what batches add up to, in units of the clip bound."""
        if self.config.budget is None:
            return None
        plan = self.plan
        return certified.calibrated(self.config.budget, plan.horizon, plan.noise)

    @property
    def described(self) -> dict[str, Any]:
        """The settings, in JSON's own types."""
        plan, config = self.plan, self.config
        budget = config.budget
        return {
            "env": self.env.name,
            "mode": config.mode,
            "variant": config.variant,
            "epsilon": None if budget is None else budget.epsilon,
            "delta": None if budget is None else budget.delta,
            **{name: value for name, value in self.numbers.items() if name != "sigma"},
            "max_steps": self.length,
            "batch": plan.batch,
            "noise": plan.noise,
            "optimiser": plan.optimiser,
            "schedule": plan.schedule,
            "average": plan.average,
            "entropy": config.entropy,
            "return_range": None if config.return_range is None else list(config.return_range),
            "curve_weight": plan.rows.curve_weight,
            **({} if config.prospect is None else self._prospects),
        }

    @property
    def _prospects(self) -> dict[str, Any]:
        """The settings that only an agent with a prospect has."""
        config = self.config
        assert config.prospect is not None
        named = {name: getattr(config, name) for name in ("curve_weight", *_OF_PROSPECTS)}
        return {"prospect": config.prospect.to_dict(), **named}

    def init(self, keys: jax.Array, settings: Mapping[str, jax.Array]) -> State:
        for name, values in settings.items():
            if name not in SWEEPABLE:
                raise InputError(f"{name} cannot be swept: use {', '.join(SWEEPABLE)}.")
            for value in np.unique(np.asarray(values)).tolist():
                _check(name, value)
        shape = keys.shape

        with jax.enable_x64(True):
            whole = {
                name: jnp.broadcast_to(jnp.asarray(settings.get(name, own), float), shape)
                for name, own in self.numbers.items()
            }
            begun: State = certified.begin_lanes(self.plan, keys, whole)
        return begun

    def advance(self, state: State, episodes: int) -> tuple[State, dict[str, jax.Array]]:
        if isinstance(self.env, HostEnvironment):
            raise InputError(f"{self.env.name} runs on the host, which takes no lanes: use learn.")
        plan = self.plan
        done = int(np.asarray(state.batch).ravel()[0])
        left = plan.people - done * plan.batch
        if episodes > left or (episodes % plan.batch and episodes != left):
            raise InputError(
                f"episodes must be a multiple of the batch of {plan.batch} people, or the {left} "
                f"who are left, not {episodes}."
            )
        batches = -(-episodes // plan.batch)
        with jax.enable_x64(True):
            after, (_, played) = certified.advance(plan, self.env, self.length, state, batches)
            returns, lengths = (x.reshape(x.shape[0], -1)[:, :episodes] for x in played)
        return after, {"return": returns, "length": lengths}

    def try_room(self, first: Any, public: bool) -> int:
        """Compile the run, and refuse one that memory does not hold; the bytes of a checkpoint."""
        plan, what, remedy = self.plan, "Such a run", "use a smaller batch, or fewer features"
        shown = 8 * plan.people if public else 0
        resources.refuse_above(4 * shown, what, remedy)
        with jax.enable_x64(True), resources.refusing(what, remedy):
            key = jax.eval_shape(lambda: jax.random.key(0))
            begun = partial(certified.begin_one, plan)
            state = jax.eval_shape(begun, key, key, self.numbers, first)
            if isinstance(self.env, Environment):
                lanes = jax.eval_shape(lambda x: jax.tree.map(lambda y: y[None], x), state)
                given: tuple[Any, ...] = (plan, self.env, self.length, lanes, 1)
                resources.compiled(certified.advance, *given, what=what, remedy=remedy)
            else:
                batch = certified.shapes_on_host(plan, self.env, self.length)
                given = (plan, state, self.length, batch)
                resources.compiled(certified.take_in, *given, what=what, remedy=remedy)
            held = sum(math.prod(map(int, x.shape)) * 8 for x in jax.tree.leaves(state))
        return held + shown + 16 * plan.horizon

    def travel(self, journey: "_Journey", batches: int) -> "_Journey":
        """So many more batches of the one run that `journey` is."""
        plan, state, paid, returns = self.plan, *journey
        at = int(state.batch)
        if isinstance(self.env, Environment):
            lanes = jax.tree.map(lambda x: x[None], state)
            lanes, seen = certified.advance(plan, self.env, self.length, lanes, batches)
            state = jax.tree.map(lambda x: x[0], lanes)
            told, (got, _) = jax.tree.map(lambda x: np.asarray(x[0, :batches]), seen)
            paid = _put(paid, at, told)
            return _Journey(state, paid, _put(returns, at, got))
        parts, size = plan.chunks(self.length)
        for number in range(at, at + batches):
            first = number * plan.batch
            batch = certified.play_on_host(
                self.env,
                _policy(plan.rows.actor, np.asarray(state.actor, np.float64)),
                np.asarray(jax.random.key_data(state.world)),
                range(first, min(first + plan.batch, plan.people)),
                parts * size,
                self.length,
                private=self.event is not None and not np.size(returns),
            )
            state, (told, (got, _)) = certified.take_in(plan, state, self.length, batch)
            paid = _put(paid, number, np.asarray(told)[None])
            returns = _put(returns, number, np.asarray(got)[None])
        return _Journey(state, paid, returns)


class _Journey(NamedTuple):
    """One run on its way, with what is shown of it."""

    state: State
    paid: Any
    """(batches,) the paid curve; NaN where nothing was paid."""

    returns: Any
    """(batches, people of a batch); nothing, unless people are public."""

    @classmethod
    def begin(cls, program: CertifiedProgram, state: State, public: bool) -> "_Journey":
        plan = program.plan
        shape = (plan.horizon, plan.batch) if public else (0, 0)
        return cls(state, np.full(plan.horizon, np.nan), np.zeros(shape))


def _put(rows: Any, at: int, new: Any) -> Any:
    """`rows` with `new` in it from row `at` on, if anything is kept at all."""
    kept = np.array(rows)
    if kept.size:
        kept[at : at + len(new)] = new
    return kept


@dataclass(frozen=True)
class _Start:
    """A critic to start from."""

    weights: Floats | None = None
    features: Features | Network | None = None
    certificate: Certificate | None = None
    assumptions: tuple[Assumption, ...] = ()

    @property
    def described(self) -> str | None:
        """Which one it is, for the checkpoint."""
        if self.weights is None:
            return None
        return hashlib.sha256(self.weights.tobytes()).hexdigest()


def _start(critic: Any) -> _Start:
    if critic is None:
        return _Start()
    weights = getattr(critic, "weights", critic)
    try:
        array = np.asarray(weights, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise InputError("critic must be fitted values, such as DPLSL's, or weights.") from None
    if not np.all(np.isfinite(array)):
        raise InputError("critic must have finite weights.")
    features, promise = getattr(critic, "features", None), getattr(critic, "promise", None)
    if isinstance(promise, Certificate):
        told = Assumption(
            f"the critic to start from has a certificate of its own, epsilon "
            f"{promise.epsilon:.4g} at delta {promise.delta:.4g}, about other people",
            "not enforced: for a person in both, the two costs add up",
        )
        return _Start(array, features, promise, (told,))
    without = "" if promise is None else ", though it has no certificate"
    told = Assumption(
        f"the critic to start from is public{without}", "not enforced: it is the caller's"
    )
    return _Start(array, features, None, (told,))


# --- what was learned -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Returns:
    """How people's returns are distributed, with noise: a running mean over batches, of which the
    last ones count most."""

    points: Floats
    """Where returns are counted."""

    chances: Floats
    """Of each point; they sum to 1."""


@dataclass(frozen=True, eq=False)
class Learned(Promised):
    """What was learned, as far as the variant gives it away, and the promise about it."""

    promise: Promise
    variant: str
    actor: Floats | None
    """Preferences of actions: (d, A), or a table (S, A), or all the parameters of a network."""

    critic: Floats | None
    """Of values: (d, 1), or a table (S, 1), or all the parameters of a network. With a prospect
    they value what the return of an episode is worth at the margin, against the mean of all."""

    actor_head: Head
    critic_head: Head
    curve: Floats | None = None
    """Returns: of each person, if they are public; or the mean of each batch with noise, if paid
    for."""

    producer: Certificate | None = None
    """Of the critic that the run started from: it covers that critic's people."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    returns: Returns | None = None
    """What a prospect was judged by."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    @property
    def prospect(self) -> Prospect | None:
        """By which returns were weighed, if by one."""
        said = self.settings.get("prospect")
        return None if said is None else Prospect.from_dict(said)

    @property
    def prospect_value(self) -> float:
        """The CPT value of `returns`: of what was released, so it has noise and costs nothing."""
        prospect = self.prospect
        if prospect is None or self.returns is None:
            raise InputError("This agent was taught without a prospect: say one to get its value.")
        return float(prospect.of_distribution(self.returns.points, self.returns.chances))

    @property
    def policy(self) -> Policy:
        """The softmax policy."""
        if self.actor is None:
            raise InputError(f"The variant {self.variant!r} does not give the actor away.")
        return self.actor_head.policy(self.actor.ravel())

    def predict(self, states: Any) -> Floats:
        """How likely each action is in each state: (n, A)."""
        return np.asarray(self.policy.probabilities(np.asarray(states)), dtype=np.float64)

    def values(self, states: Any) -> Floats:
        """The value of each state: (n,)."""
        if self.critic is None:
            raise InputError(f"The variant {self.variant!r} does not give the critic away.")
        head = self.critic_head
        with jax.enable_x64(True):
            rows = head.inputs(jnp.asarray(np.asarray(states)))
            return np.asarray(head.out(jnp.asarray(self.critic.ravel()), rows)[:, 0], np.float64)

    @property
    def weights(self) -> Floats:
        """Those of the critic, as one vector: with `features`, a critic to start from."""
        if self.critic is None:
            raise InputError(f"The variant {self.variant!r} does not give the critic away.")
        return self.critic.ravel()

    @property
    def features(self) -> Features | Network | None:
        """Those of the critic."""
        return self.critic_head.wish

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "kind": _KIND,
            "format": _FORMAT,
            "promise": promise_to_dict(self.promise),
            "variant": self.variant,
            "actor": _listed(self.actor),
            "critic": _listed(self.critic),
            "actor_head": self.actor_head.to_dict(),
            "critic_head": self.critic_head.to_dict(),
            # JSON has no infinities, which rewards may add up to.
            "curve": None
            if self.curve is None
            else [value if math.isfinite(value) else None for value in self.curve.tolist()],
            "producer": None if self.producer is None else self.producer.to_dict(),
            "settings": dict(self.settings),
            **({} if self.returns is None else {"returns": _returns_to_dict(self.returns)}),
        }

    def save(self, path: str | Path) -> None:
        """Write the result as JSON, wholly or not at all."""
        files.write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Learned":
        """The result that `save` wrote."""
        data = files.read_json(path, _KIND, _FORMAT, "the result of an actor-critic")
        try:
            producer = data["producer"]
            heads = [head_from_dict(data[name]) for name in ("actor_head", "critic_head")]
            actor, critic = _array(data["actor"]), _array(data["critic"])
            for array, head in zip((actor, critic), heads, strict=True):
                if array is not None and array.shape != head.shape:
                    raise ValueError
            return cls(
                promise=promise_from_dict(data["promise"]),
                variant=str(data["variant"]),
                actor=actor,
                critic=critic,
                actor_head=heads[0],
                critic_head=heads[1],
                curve=_array(data["curve"]),
                producer=None if producer is None else Certificate.from_dict(producer),
                settings=data["settings"],
                returns=_returns_from_dict(data.get("returns")),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"{str(path)!r} is damaged.") from None


def learned_as_printed(
    program: PaperProgram, state: Any, episodes: int, curve: Floats | None, seed: int | None
) -> Learned:
    """The end of a run in paper mode: the actor and the critic, and the paper's claim."""
    config, form = program.config, program.form
    actor, critic, _ = program.weights(flush(program, state))
    if not (np.all(np.isfinite(actor)) and np.all(np.isfinite(critic))):
        raise Diverged
    # One person's episode is at most so many steps; other people's are noised on their own.
    found = claims(config, form.horizon)
    return Learned(
        promise=found[0] if found else NOT_PRIVATE,
        variant=config.variant,
        actor=actor[0],
        critic=critic[0][:, None],
        actor_head=Table(form.states, form.actions),
        critic_head=Table(form.states, 1),
        curve=None if curve is None else np.asarray(curve, np.float64),
        settings={
            "env": program.env.name,
            "mode": "paper",
            "seed": seed,
            "people": episodes,
            **asdict(config),
        },
    )


_KIND = "privrl actor-critic"
_FORMAT = 1


def _returns_to_dict(returns: Returns) -> dict[str, Any]:
    return {"points": returns.points.tolist(), "chances": returns.chances.tolist()}


def _returns_from_dict(data: Any) -> Returns | None:
    if data is None:
        return None
    points, chances = _array(data["points"]), _array(data["chances"])
    if points is None or chances is None or points.ndim != 1 or points.shape != chances.shape:
        raise ValueError
    return Returns(points, chances)


def _listed(array: Floats | None) -> Any:
    return None if array is None else array.tolist()


def _array(given: Any) -> Floats | None:
    return None if given is None else np.array(given, dtype=np.float64)
