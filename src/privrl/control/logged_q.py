"""Q-learning from logged trajectories, which protects the people they are about.

    LoggedQ(budget=Budget(1.0, 1e-5), num_actions=2, reward_range=(0.0, 1.0),
            features=Fourier(3, [0.0], [1.0])).fit(trajectories).policy

Unit: a person with all their trajectories (a trajectory, if the data has no user column). Relation:
replace-one; the number of people n is public. Each of T updates adds up, over all people, the mean
of delta grad Q over a person's transitions, clipped to norm C (`update_rules.PersonUpdates` and its
proof; `noised_q` has the algorithm and the theorem), adds a Gaussian vector, and divides by n.
Released: the parameters after every update. Event: Repeated(Gaussian(sigma C, C), T), of which
nothing is amplified.

Rewards are divided by the largest size that `reward_range` allows, so that C and the step sizes are
in units of it, and Q is multiplied by it again in the end. What happened to nobody is not
learned about: the greedy policy of Q may prefer actions that the data has never seen. Judge it by
`privrl.evaluation` on other people before it is used.

What is promised is about data that loads: `Trajectories` refuses a table with what is no number in
it, and tells its curator in which row; with `invalid="neutral"` every table of the schema loads.
Whether states are numbers of a table or vectors, and actions are counted, is a matter of the whole
data and not of a person: declare it when loading.

Arithmetic: 64-bit floating point, compiled. Settings that were not said are those that did well on
`Interval`, seeds 0 to 9.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import jax
import numpy as np

from privrl.control import engine, loop, noised_q
from privrl.control.feature_names import (
    features_by_name,
    network_by_sizes,
    refuse_unused_range,
)
from privrl.control.heads import Network, make_head
from privrl.control.increments import Rows
from privrl.control.learned_q import NOT_PRIVATE, LearnedQ
from privrl.control.noised_q import NoisedQPlan, NoisedQState
from privrl.control.q_specs import LoggedQSpec
from privrl.control.rollouts import greedy_policy
from privrl.control.update_rules import Data, PersonUpdates
from privrl.core import resources
from privrl.core.errors import InputError
from privrl.data import Features, Trajectories
from privrl.data.assumptions import data_assumptions
from privrl.data.coverage import check_table
from privrl.data.words import refuse_read_vocabulary
from privrl.envs.base import Box, Discrete
from privrl.privacy.certificate import Assumption
from privrl.privacy.ledger import warn_if_large
from privrl.privacy.mechanisms import clip
from privrl.privacy.plan import NoisyPlan
from privrl.privacy.promise import Relation, Release
from privrl.privacy.session import OpenSession, PrivacySession

CLIPPED = Assumption(
    "each person's contribution to an update is clipped to a public bound",
    "by the algorithm, for any data",
)
PUBLIC_SETTINGS = Assumption(
    "features, ranges, bounds and step sizes were chosen without looking at the data",
    "not enforced: they are the caller's",
)
PUBLIC_COUNT = Assumption(
    "the number of people is public", "the relation is replace-one; the caller publishes the number"
)
TIMING = Assumption(
    "nobody is told how long the fit took, or how much memory",
    "not enforced: both depend on how many rows the person with most of them has",
)


@dataclass(frozen=True)
class LoggedQ(LoggedQSpec, engine.Learner[LearnedQ]):
    """Values of actions, learned from people's logged trajectories; see the module."""

    def training(self, env: Trajectories, people: None = None) -> "LoggedQTraining":
        """This learner on `env`, which are people's trajectories, for the engine."""
        if people is not None:
            raise InputError("The data says how many people there are: leave people out.")
        return LoggedQTraining(self, env)

    def fit(self, data: Trajectories, **options: Any) -> LearnedQ:
        """Learn from `data`, as `learn` does."""
        return self.learn(data, **options)

    def plan(self, data: Trajectories) -> NoisedQPlan:
        """All but the noise; what cannot be learned from is refused."""
        if not isinstance(data, Trajectories):
            raise InputError("must be Trajectories: see privrl.data.", field="data")
        if self.budget is not None:
            refuse_read_vocabulary(data)
        if not data.discrete_actions:
            raise InputError("LoggedQ needs actions that are counted, not vectors.")
        observed = self._observation_space(data)
        head = make_head(self.resolve_features(observed), observed, self.num_actions, "The data")
        Rows(head, head).check(observed, "The data")
        # Bounds that cannot be held to are refused before anybody pays.
        clip.l2(np.zeros(math.prod(head.shape)), self.clip)
        return NoisedQPlan(
            PersonUpdates(head, self.clip),
            self.updates,
            self.step,
            float(data.num_units),
            self.target_every,
            self.optimiser,
            self.average,
        )

    @property
    def settings_dict(self) -> dict[str, Any]:
        """The settings of the updates, in JSON's own types."""
        names = ("gamma", "updates", "step", "clip", "target_every", "optimiser", "average")
        given = {name: getattr(self, name) for name in names}
        return {**given, "reward_range": list(self.reward_range)}

    def _observation_space(self, data: Trajectories) -> Discrete | Box:
        """What states look like; how many there are is said, not read."""
        if not data.discrete_states:
            length = int(data.states.shape[1])
            return Box((-math.inf,) * length, (math.inf,) * length, ("",) * length)
        if isinstance(self.features, str):
            if self.num_states is None:
                raise InputError("is needed: say how many states there are.", field="num_states")
            features = self.resolve_features(Discrete(self.num_states))
        else:
            features = self.features
        inside = features.features if isinstance(features, Network) else features
        if inside is None and self.num_states is None:
            raise InputError("is needed: say how many states there are.", field="num_states")
        check_table(self.num_states if inside is None else inside, data)
        return Discrete(self.num_states or 1)

    def resolve_features(self, observed: Discrete | Box) -> Features | Network | None:
        """The features; those by name are scaled by the range of states, and a network's too."""
        word, name = self.features, "The data"
        refuse_unused_range(self.state_range, observed, "fourier" if word else None)
        if not isinstance(word, str):
            return word
        kind, _, sizes = word.partition(":")
        if kind == "network" and isinstance(observed, Box):
            scaled = features_by_name("polynomial:1", observed, name, self.state_range)
            return network_by_sizes(sizes, cast(Features, scaled))
        return features_by_name(word, observed, name, self.state_range)


class LoggedQTraining(engine.Training):
    """Q-learning from people's trajectories: a step is updates."""

    counted = "updates"
    spec: LoggedQ
    env: Trajectories

    def __init__(self, spec: LoggedQ, data: Trajectories) -> None:
        self.spec, self.env, self.planned = spec, data, spec.updates
        self.plan = spec.plan(data)

    @property
    def settings(self) -> dict[str, Any]:
        return self.spec.settings_dict

    def runs_on(self, *, restored: bool) -> dict[str, Any]:
        return {"data": self.env}

    def open(self, session: PrivacySession) -> OpenSession:
        if session.public:
            raise InputError("LoggedQ has no diagnostics to show of public data: leave it out.")
        engine.refuse_idle_ledger(session, self.spec.budget)
        return session.open(self.env.unit, Relation.REPLACE_ONE)

    def no_log_reason(self, public: bool) -> str:
        return "A log holds returns of episodes, and nothing is played here: leave it out."

    @cached_property
    def noise(self) -> NoisyPlan | None:
        """In every update, if there is a budget."""
        if self.spec.budget is None:
            return None
        return noised_q.calibrate_noise(self.spec.budget, Relation.REPLACE_ONE, self.plan)

    @cached_property
    def _rows(self) -> Data:
        """People's transitions. **Private**."""
        data, spec, moves = self.env, self.spec, self.env.transitions()
        return noised_q.people_transitions(
            self.plan.rule.head,
            moves.states,
            moves.actions,
            noised_q.clip_rewards(moves.rewards, spec.reward_range) / self._largest,
            moves.next_states,
            spec.gamma * moves.bootstraps,
            np.asarray(data.unit_index)[moves.trajectories],
        )

    @property
    def _largest(self) -> float:
        """What rewards are divided by."""
        return max(map(abs, self.spec.reward_range))

    def init(self, run: engine.Run) -> NoisedQState:
        budget, remedy = self.spec.budget, "use fewer features, or a smaller network"
        with jax.enable_x64(True):
            with resources.refuse_memory_errors("Such features of these rows", remedy):
                noised_q.check_memory(self.plan, self._rows, remedy, told=False)
            if budget is not None and not run.restored:
                warn_if_large(budget.delta, self.env.num_units)
            size = 32 * math.prod(self.plan.rule.head.shape)
            event = None if self.noise is None else self.noise.event
            run.pay(event, None if budget is None else budget.delta, size)
            first: NoisedQState = noised_q.begin(self.plan, self._rows, run.source.key())
            return first

    def step(
        self, state: NoisedQState, count: int, run: engine.Run
    ) -> tuple[NoisedQState, loop.Seen]:
        sigma = 0.0 if self.noise is None else self.noise.noise_multiplier
        return noised_q.advance(self.plan, self._rows, state, sigma, count), {}

    def result(self, state: NoisedQState, seen: loop.Seen, run: engine.Run) -> LearnedQ:
        spec, head = self.spec, self.plan.rule.head
        with jax.enable_x64(True):
            final = noised_q.final_parameters(self.plan, self._rows, state)
            parameters = head.scale_outputs(final, self._largest)
        if not np.all(np.isfinite(parameters)):
            raise engine.Diverged
        promise: Any = NOT_PRIVATE
        if spec.budget is not None:
            known = data_assumptions(self.env)[0]
            promise = run.opened.certify(
                spec.budget.delta,
                release=Release.EVERY_ITERATE,
                assumptions=(CLIPPED, PUBLIC_COUNT, TIMING, PUBLIC_SETTINGS, known),
                compiled=True,
            )
        return LearnedQ(
            promise=promise,
            release="people",
            parameters=parameters,
            head=head,
            policy=greedy_policy(head, parameters),
            settings={
                "seed": run.seed,
                "people": self.env.num_units,
                "sigma": 0.0 if self.noise is None else self.noise.noise_multiplier,
                **spec.settings_dict,
            },
        )
