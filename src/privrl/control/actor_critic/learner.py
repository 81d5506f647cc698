"""The certified learner: its settings, a run that pays, and one that is resumed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from privrl.control import certified
from privrl.control.actor_critic.program import CertifiedProgram, Env, RunState
from privrl.control.actor_critic.result import (
    NOT_PRIVATE,
    Diverged,
    LearnedActorCritic,
    ReturnDistribution,
    softmax_policy,
)
from privrl.control.actor_critic.spec import ActorCriticSpec
from privrl.control.actor_critic.warm_start import WarmStart, make_warm_start
from privrl.control.certified import ActorCriticState
from privrl.control.feature_names import features_by_name, refuse_unused_range
from privrl.control.program import load_state, save_state
from privrl.control.promises import Promise
from privrl.control.prospect_rows import ReturnHistogram, project_simplex
from privrl.core import checks, resources
from privrl.core.errors import InputError
from privrl.core.progress import StepProgress
from privrl.envs.host import is_live, simulator_identity
from privrl.envs.preflight import ASSUMPTIONS, run_preflight
from privrl.envs.registry import make
from privrl.privacy import resuming
from privrl.privacy.certificate import Assumption
from privrl.privacy.ledger import Ledger, warn_if_large
from privrl.privacy.promise import Relation, Release, Unit
from privrl.privacy.resuming import NoiseKey
from privrl.privacy.session import SECRET_SESSION, OpenSession, PrivacySession, forget_unless_paid

CLIPPED = Assumption(
    "each person's whole increment, of the actor and the critic, is clipped to a public bound",
    "by the algorithm, for any episode; one in which the environment fails counts as not played",
)
ONLY_NOISED_SUMS = Assumption(
    "all that is carried from batch to batch comes from noised sums", "by the algorithm"
)
PUBLIC_SLOTS = Assumption(
    "a person plays one episode, in a slot that does not depend on what happens in it",
    "batches hold a public number of slots; who fills them is the caller's",
)
INDEPENDENT_EPISODES = Assumption(
    "the environment carries nothing from one person's episode into another's",
    "not enforced: it is the caller's",
)
PUBLIC_SETTINGS = Assumption(
    "features, ranges, bounds and step sizes were chosen without looking at the people",
    "not enforced: they are the caller's",
)
PUBLIC_PROSPECT = Assumption(
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
PUBLIC_RETURNS = Assumption(
    "returns of these people are public: they are shown as they were, and nothing is promised "
    "about them",
    "not enforced: it is the caller's",
)

# How often a run with a progress bar or a checkpoint stops to report.
_PROGRESS_REPORTS = 20
STATE = "state.npz"
"""The checkpoint in its folder."""


@dataclass(frozen=True)
class ActorCritic(ActorCriticSpec):
    """A softmax policy and its values, learned from people's episodes; see the module."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.outlook  # which refuses a prospect that has no utility between these ends

    def resolve(self, env: Env) -> "ActorCritic":
        """The same agent with features for this environment in place of their names."""
        named = {name: getattr(self, name) for name in ("features", "critic_features")}
        refuse_unused_range(self.state_range, env.observation, *named.values())
        found: dict[str, Any] = {
            name: features_by_name(word, env.observation, env.name, self.state_range)
            for name, word in named.items()
            if isinstance(word, str)
        }
        return replace(self, **found, state_range=None) if found else self

    @property
    def outlook(self) -> ReturnHistogram | None:
        """How returns are counted and valued, if there is a prospect."""
        if self.prospect is None:
            return None
        assert self.return_range is not None
        return ReturnHistogram(
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
        session: PrivacySession = SECRET_SESSION,
        critic: Any = None,
        progress: StepProgress | None = None,
        checkpoint: str | Path | None = None,
        keep: bool = False,
        preflight: bool = True,
        preflight_env: Any = None,
    ) -> LearnedActorCritic:
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
        count = _count_people(people, episodes)
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
        start = make_warm_start(critic)
        program = CertifiedProgram(self, made, count, start.features)
        plan = program.plan
        first = self._initial_critic(program, start)
        if self.budget is not None:
            warn_if_large(self.budget.delta, count)
        opened = session.open(Unit.TRAJECTORY, Relation.REPLACE_ONE)
        tried = run_preflight(
            made,
            private=program.event is not None and not public,
            preflight=preflight,
            other=preflight_env,
        )
        about = {
            "agent": program.settings_dict | {"heads": plan.rows.head_dicts},
            "people": count,
            "seed": seed,
            "public": public,
            "run": None if ledger is None else session.run,
            "critic": start.fingerprint,
            "preflight": tried,
        }
        size = program.check_memory(first, public)
        # The folder before anybody pays, since a run without its checkpoint would be lost.
        with resuming.begin_run(checkpoint, STATE):
            resources.check_disk_space(checkpoint, 2 * size)
            if checkpoint is not None:
                live = is_live(made)
                runs_on = {"env": None if live else simulator_identity(made)}
                opened.attach_key(NoiseKey.begin(checkpoint, about, live=live, runs_on=runs_on))
            with forget_unless_paid(opened):
                if program.event is not None:
                    assert self.budget is not None
                    opened.pay(program.event, delta=self.budget.delta)
            with jax.enable_x64(True):
                journey = RunState.begin(
                    program, self._initial_state(program, opened, first), public
                )
                return self._train(program, journey, opened, start, about, progress, keep)

    def _initial_state(
        self, program: CertifiedProgram, opened: OpenSession, first: Any
    ) -> ActorCriticState:
        """The state before the first batch, whose keys are all the randomness of the run."""
        source = opened.source
        begun: ActorCriticState = certified.begin_one(
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
        progress: StepProgress | None = None,
        keep: bool = False,
        preflight_env: Any = None,
    ) -> LearnedActorCritic:
        """Go on from where `learn(..., checkpoint=folder)` was interrupted, at no further cost.

        The agent, the environment and the critic to start from must be the same. In a simulator, or
        with a seed, the result is that of a run that was never interrupted, bit for bit: the noise
        is drawn once more from the key that is in the folder, and copies of the folder come to the
        same. Where people may be, who play again, the noise still to come is drawn from a fresh
        key, and one copy of the folder alone is let: see `privrl.privacy.resuming`.
        """
        with resuming.resume_run(folder) as kept:
            about, path, made = kept.about, Path(folder) / STATE, make(env)
            start = make_warm_start(critic)
            program = CertifiedProgram(self, made, int(about.get("people", 1)), start.features)
            own = program.settings_dict | {"heads": program.plan.rows.head_dicts}
            if about.get("agent") != own or about.get("critic") != start.fingerprint:
                raise InputError(
                    f"{str(path)!r} belongs to another agent, environment or critic, or to another "
                    "version of privrl: go on with what it was begun with."
                )
            if kept.live != is_live(made):
                raise InputError(f"{str(path)!r} belongs to another environment.")
            kept.check({} if kept.live else {"env": simulator_identity(made)})
            if ledger is not None and about["run"] is None:
                raise InputError("This run was begun without a ledger: leave it out.")
            if ledger is None and about["run"] is not None:
                raise InputError("This run was begun with a ledger: say the same.")
            session = PrivacySession(ledger=ledger, run=about["run"], seed=about["seed"])
            opened = session.open(Unit.TRAJECTORY, Relation.REPLACE_ONE)
            opened.attach_key(kept)
            begun = path.exists()

            def repeat_preflight() -> None:
                run_preflight(
                    made,
                    private=program.event is not None and not about["public"],
                    preflight=about["preflight"] != "waived",
                    other=preflight_env,
                    again=True,
                )

            if not begun:
                repeat_preflight()  # Before anybody pays, if nobody has.
            first = self._initial_critic(program, start)
            if program.event is not None:
                assert self.budget is not None
                if begun:
                    opened.adopt_payment(program.event)
                else:
                    program.check_memory(first, bool(about["public"]))
                    opened.pay(program.event, delta=self.budget.delta)
            with jax.enable_x64(True):
                journey = RunState.begin(
                    program, self._initial_state(program, opened, first), bool(about["public"])
                )
                if begun:
                    journey, _ = load_state(path, journey)
                if int(journey.state.batch) < program.plan.horizon:
                    if begun:
                        repeat_preflight()
                    opened.kept = kept.claim_next_generation(ledger)
                    if kept.live and about["seed"] is None and begun:
                        fresh = program.plan.with_noise_key(journey.state, opened.source.key())
                        journey = journey._replace(state=fresh)
                return self._train(program, journey, opened, start, about, progress, keep)

    @staticmethod
    def _initial_critic(program: CertifiedProgram, start: WarmStart) -> Any:
        """The critic's parameters to start from, if there are any."""
        rows = program.plan.rows
        if start.weights is None:
            return None
        if start.weights.size != rows.sizes[1]:
            raise InputError(
                f"critic has {start.weights.size} weights, but its features need {rows.sizes[1]}."
            )
        return rows.critic.scale_outputs(start.weights, 1.0 / rows.reward_scale)

    def _train(
        self,
        program: CertifiedProgram,
        journey: RunState,
        opened: OpenSession,
        start: WarmStart,
        about: Mapping[str, Any],
        progress: StepProgress | None,
        keep: bool,
    ) -> LearnedActorCritic:
        plan, path, kept = program.plan, None, opened.kept
        if kept is not None:
            path = kept.folder / STATE
            save_state(path, journey, about)
        many = progress is not None or kept is not None
        stride = max(1, plan.horizon // _PROGRESS_REPORTS) if many else plan.horizon
        try:
            while (done := int(journey.state.batch)) < plan.horizon:
                if kept is not None:
                    kept.check_not_superseded(opened.ledger)
                journey = program.advance_run(journey, min(stride, plan.horizon - done))
                if path is not None and (keep or int(journey.state.batch) < plan.horizon):
                    save_state(path, journey, about)
                if progress is not None:
                    progress(min(int(journey.state.batch) * plan.batch, plan.people), plan.people)
            if kept is not None:
                kept.end(opened.ledger)
            learned = self._make_result(program, journey, opened, start, about)
        except Diverged:
            # Resuming would end in the same way. That it ended so is told, so it was the end.
            if kept is not None:
                kept.end(opened.ledger)
            _remove_checkpoint(path, kept)
            raise
        if not keep:
            _remove_checkpoint(path, kept)
        return learned

    def _make_result(
        self,
        program: CertifiedProgram,
        journey: RunState,
        opened: OpenSession,
        start: WarmStart,
        about: Mapping[str, Any],
    ) -> LearnedActorCritic:
        plan = program.plan
        actor, critic = plan.final_parameters(journey.state)
        softmax_policy(plan.rows.actor, actor)
        with np.errstate(over="ignore"):
            critic = plan.rows.critic.scale_outputs(critic, plan.rows.reward_scale)
        if not np.all(np.isfinite(critic)):
            raise Diverged
        promise: Promise = NOT_PRIVATE
        if self.budget is not None:
            promise = opened.certify(
                self.budget.delta,
                release=Release.EVERY_ITERATE,
                assumptions=(
                    *(
                        CLIPPED,
                        ONLY_NOISED_SUMS,
                        PUBLIC_SLOTS,
                        INDEPENDENT_EPISODES,
                        BILLBOARD,
                        TIMING,
                        PUBLIC_SETTINGS,
                    ),
                    *((PUBLIC_RETURNS,) if about["public"] else ()),
                    *(() if self.prospect is None else (PUBLIC_PROSPECT,)),
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
            probs = np.asarray(project_simplex(journey.state.returns), np.float64)
            returns = ReturnDistribution(plan.rows.outlook.points, probs)
        both = self.variant in ("both", "none")
        return LearnedActorCritic(
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
                **program.settings_dict,
            },
        )


def _remove_checkpoint(path: Path | None, kept: NoiseKey | None) -> None:
    """The run is over: its checkpoint and its key go."""
    if path is not None and kept is not None:
        path.unlink()
        kept.remove()


def _count_people(people: Any, episodes: Any) -> int:
    if (people is None) == (episodes is None):
        raise InputError("Say how many people there are: people=500 (or episodes=500).")
    return checks.count("people", episodes if people is None else people)
