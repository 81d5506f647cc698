"""The certified learner: its settings, a run that pays, and one that is resumed."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from privrl.control import certified, engine, loop
from privrl.control.actor_critic.program import CertifiedProgram, Env
from privrl.control.actor_critic.result import (
    NOT_PRIVATE,
    LearnedActorCritic,
    ReturnDistribution,
    softmax_policy,
)
from privrl.control.actor_critic.spec import ActorCriticSpec
from privrl.control.actor_critic.warm_start import WarmStart, make_warm_start
from privrl.control.certified import ActorCriticState
from privrl.control.engine import Diverged
from privrl.control.feature_names import features_by_name, refuse_unused_range
from privrl.control.promises import Promise
from privrl.control.prospect_rows import ReturnHistogram, project_simplex
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.envs.host import is_live, simulator_identity
from privrl.envs.preflight import ASSUMPTIONS
from privrl.envs.registry import make
from privrl.privacy.certificate import Assumption
from privrl.privacy.ledger import warn_if_large
from privrl.privacy.noise import Source
from privrl.privacy.promise import Relation, Release, Unit
from privrl.privacy.session import OpenSession, PrivacySession

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


@dataclass(frozen=True)
class ActorCritic(ActorCriticSpec, engine.Learner[LearnedActorCritic]):
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

    def training(
        self,
        env: Any,
        people: int | None = None,
        *,
        episodes: int | None = None,
        critic: Any = None,
    ) -> "ActorCriticTraining":
        """This learner with `people` (or `episodes`, which is the same) in `env`, for the engine.

        `critic` are values to start from: what `privrl.evaluation.DPLSL` fitted, or weights that
        are public. In an environment of Gymnasium's that fails, an episode of somebody who is not
        public counts as not played, since an error would tell about them.
        """
        made, count = make(env), _count_people(people, episodes)
        if critic is not None and self.prospect is not None:
            raise InputError(
                "A critic to start from values returns, and with a prospect a critic values what "
                "they are worth: leave one of them out."
            )
        return ActorCriticTraining(self, made, count, make_warm_start(critic))


class ActorCriticTraining(engine.Training):
    """The actor-critic with people in an environment: a step is batches of them."""

    counted = "people"
    spec: ActorCritic

    def __init__(self, spec: ActorCritic, env: Any, people: int, start: WarmStart) -> None:
        self.spec, self.env, self.people, self.planned = spec, env, people, people
        self.start, self.live = start, is_live(env)
        self.program = CertifiedProgram(spec, env, people, start.features)
        self.batch, self.private = self.program.plan.batch, self.program.event is not None
        self.critic = self._initial_critic()

    @property
    def settings(self) -> dict[str, Any]:
        heads = self.program.plan.rows.head_dicts
        critic = self.start.fingerprint
        return self.program.settings_dict | {"heads": heads, "critic": critic}

    def runs_on(self, *, restored: bool) -> dict[str, Any]:
        # Features without a JSON form have no more than their shape in the settings.
        env = None if self.live else simulator_identity(self.env)
        return {"agent": (self.spec, self.start.features), "env": env}

    def open(self, session: PrivacySession) -> OpenSession:
        engine.refuse_idle_ledger(session, self.spec.budget)
        return session.open(Unit.TRAJECTORY, Relation.REPLACE_ONE)

    def check(self, public: bool) -> int:
        if self.spec.budget is not None:
            warn_if_large(self.spec.budget.delta, self.planned)
        return self.program.check_memory(self.critic, public)

    def init(self, run: engine.Run) -> ActorCriticState:
        """The state before the first batch, whose keys are all the randomness of the run."""
        program, budget = self.program, self.spec.budget
        size = 0 if run.restored else self.check(run.public)
        run.pay(program.event, None if budget is None else budget.delta, size)
        with jax.enable_x64(True):
            begun: ActorCriticState = certified.begin_one(
                program.plan, run.source.key(), run.source.key(), program.numbers, self.critic
            )
        return begun

    def step(
        self, state: ActorCriticState, count: int, run: engine.Run
    ) -> tuple[ActorCriticState, loop.Seen]:
        return self.program.advance_run(state, -(-count // self.batch), run.public)

    def refresh(self, state: ActorCriticState, source: Source) -> ActorCriticState:
        with jax.enable_x64(True):
            return self.program.plan.with_noise_key(state, source.key())

    def result(
        self, state: ActorCriticState, seen: loop.Seen, run: engine.Run
    ) -> LearnedActorCritic:
        with jax.enable_x64(True):
            return self._make_result(state, seen, run)

    def no_log_reason(self, public: bool) -> str | None:
        if public or self.spec.curve == "paid" or self.spec.prospect is not None:
            return None
        return (
            "A log holds returns, which are about people: declare them public, or pay for a curve "
            "of the batches."
        )

    def final_rows(self, learned: LearnedActorCritic, run: engine.Run) -> list[loop.Row]:
        """A row for each batch that was paid for."""
        if learned.curve is None or run.public:
            return []
        return [
            {loop.EPISODE: min((number + 1) * self.batch, self.planned), "return": value}
            for number, value in enumerate(learned.curve.tolist())
        ]

    def _initial_critic(self) -> Any:
        """The critic's parameters to start from, if there are any."""
        rows, weights = self.program.plan.rows, self.start.weights
        if weights is None:
            return None
        if weights.size != rows.sizes[1]:
            raise InputError(
                f"critic has {weights.size} weights, but its features need {rows.sizes[1]}."
            )
        return rows.critic.scale_outputs(weights, 1.0 / rows.reward_scale)

    def _make_result(
        self, state: ActorCriticState, seen: loop.Seen, run: engine.Run
    ) -> LearnedActorCritic:
        spec, program, plan = self.spec, self.program, self.program.plan
        actor, critic = plan.final_parameters(state)
        softmax_policy(plan.rows.actor, actor)
        with np.errstate(over="ignore"):
            critic = plan.rows.critic.scale_outputs(critic, plan.rows.reward_scale)
        if not np.all(np.isfinite(critic)):
            raise Diverged
        promise: Promise = NOT_PRIVATE
        if spec.budget is not None:
            promise = run.opened.certify(
                spec.budget.delta,
                release=Release.EVERY_ITERATE,
                assumptions=(
                    *(CLIPPED, ONLY_NOISED_SUMS, PUBLIC_SLOTS, INDEPENDENT_EPISODES),
                    *(BILLBOARD, TIMING, PUBLIC_SETTINGS),
                    *((PUBLIC_RETURNS,) if run.public else ()),
                    *(() if spec.prospect is None else (PUBLIC_PROSPECT,)),
                    *ASSUMPTIONS[run.about["preflight"]],
                    *self.start.assumptions,
                ),
                compiled=True,
            )
        returns = None
        if plan.rows.outlook is not None:
            probs = np.asarray(project_simplex(state.returns), np.float64)
            returns = ReturnDistribution(plan.rows.outlook.points, probs)
        both = spec.variant in ("both", "none")
        return LearnedActorCritic(
            promise=promise,
            variant=spec.variant,
            actor=actor.reshape(plan.rows.actor.shape) if both or spec.variant == "actor" else None,
            critic=critic.reshape(plan.rows.critic.shape)
            if both or spec.variant == "critic"
            else None,
            actor_head=plan.rows.actor,
            critic_head=plan.rows.critic,
            curve=seen.get("return" if run.public else "paid"),
            producer=self.start.certificate,
            returns=returns,
            settings={
                "seed": run.seed,
                "people": plan.people,
                "sigma": program.numbers["sigma"],
                **program.settings_dict,
            },
        )


def _count_people(people: Any, episodes: Any) -> int:
    if (people is None) == (episodes is None):
        raise InputError("Say how many people there are: people=500 (or episodes=500).")
    return checks.count("people", episodes if people is None else people)
