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
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from privrl.control import noised_q
from privrl.control.feature_names import (
    features_by_name,
    network_by_sizes,
    refuse_unused_range,
)
from privrl.control.heads import Network, make_head
from privrl.control.increments import Rows
from privrl.control.learned_q import NOT_PRIVATE, LearnedQ
from privrl.control.noised_q import NoisedQPlan
from privrl.control.q_specs import LoggedQSpec
from privrl.control.rollouts import greedy_policy
from privrl.control.update_rules import PersonUpdates
from privrl.core import resources
from privrl.core.errors import InputError
from privrl.core.progress import StepProgress
from privrl.data import Features, Trajectories
from privrl.data.assumptions import data_assumptions
from privrl.data.coverage import check_table
from privrl.data.words import refuse_read_vocabulary
from privrl.envs.base import Box, Discrete
from privrl.privacy import resuming
from privrl.privacy.certificate import Assumption
from privrl.privacy.ledger import Ledger, warn_if_large
from privrl.privacy.mechanisms import clip
from privrl.privacy.promise import Relation, Release
from privrl.privacy.resuming import NoiseKey
from privrl.privacy.session import SECRET_SESSION, OpenSession, PrivacySession, forget_unless_paid

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
class LoggedQ(LoggedQSpec):
    """Values of actions, learned from people's logged trajectories; see the module."""

    def fit(
        self,
        data: Trajectories,
        *,
        session: PrivacySession = SECRET_SESSION,
        checkpoint: str | Path | None = None,
        keep: bool = False,
        progress: StepProgress | None = None,
    ) -> LearnedQ:
        """Learn from `data`; with a ledger all is paid for before anything is computed.

        `checkpoint` is a folder in which the key of the noise is kept before that, so that `resume`
        can compute the same once more, at no further cost; `keep` leaves it there at the end.
        `progress(done, updates)` is called now and then.
        """
        if session.public:
            raise InputError("LoggedQ has no diagnostics to show of public data: leave it out.")
        plan, ledger = self._plan(data, session.ledger), session.ledger
        opened = session.open(data.unit, Relation.REPLACE_ONE)
        with resuming.begin_run(checkpoint):
            if checkpoint is not None:
                about = {"seed": session.seed, "run": None if ledger is None else session.run}
                runs_on = {"agent": self, "data": data}
                opened.attach_key(NoiseKey.begin(checkpoint, about, live=False, runs_on=runs_on))
            return self._fit(data, plan, opened, keep, progress)

    def resume(
        self,
        folder: str | Path,
        data: Trajectories,
        *,
        ledger: Ledger | None = None,
        keep: bool = False,
        progress: StepProgress | None = None,
    ) -> LearnedQ:
        """What `fit(..., checkpoint=folder)` would have come to, bit for bit.

        The data must be the same. The noise is drawn once more from the key that is in the folder,
        so that copies of the folder come to the same (`privrl.privacy.resuming`).
        """
        plan = self._plan(data, ledger)
        with resuming.resume_run(folder) as kept:
            run, seed = (kept.about.get(name) for name in ("run", "seed"))
            kept.check({"agent": self, "data": data})
            if ledger is not None and run is None:
                raise InputError("This run was begun without a ledger: leave it out.")
            if ledger is None and run is not None:
                raise InputError("This run was begun with a ledger: say the same.")
            session = PrivacySession(ledger=ledger, run=run, seed=seed)
            opened = session.open(data.unit, Relation.REPLACE_ONE)
            opened.attach_key(kept)
            return self._fit(data, plan, opened, keep, progress)

    def _plan(self, data: Trajectories, ledger: Ledger | None) -> NoisedQPlan:
        """All but the noise; what cannot be learned from is refused."""
        if not isinstance(data, Trajectories):
            raise InputError("must be Trajectories: see privrl.data.", field="data")
        if self.budget is None and ledger is not None:
            raise InputError("Without a budget there is nothing to pay for: leave the ledger out.")
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

    def _fit(
        self,
        data: Trajectories,
        plan: NoisedQPlan,
        opened: OpenSession,
        keep: bool,
        progress: StepProgress | None,
    ) -> LearnedQ:
        head, count, kept = plan.rule.head, data.num_units, opened.kept
        largest = max(map(abs, self.reward_range))
        remedy = "use fewer features, or a smaller network"
        with forget_unless_paid(opened), jax.enable_x64(True):
            with resources.refuse_memory_errors("Such features of these rows", remedy):
                moves = data.transitions()
                rows = noised_q.people_transitions(
                    head,
                    moves.states,
                    moves.actions,
                    noised_q.clip_rewards(moves.rewards, self.reward_range) / largest,
                    moves.next_states,
                    self.gamma * moves.bootstraps,
                    np.asarray(data.unit_index)[moves.trajectories],
                )
                noised_q.check_memory(plan, rows, remedy, told=False)
            noisy = None
            if self.budget is not None:
                warn_if_large(self.budget.delta, count)
                noisy = noised_q.calibrate_noise(self.budget, Relation.REPLACE_ONE, plan)
                opened.pay(noisy.event, delta=self.budget.delta)
        with jax.enable_x64(True):
            begun = noised_q.begin(plan, rows, opened.source.key())
            end = noised_q.run_updates(plan, rows, begun, noisy, progress)
            parameters = head.scale_outputs(noised_q.final_parameters(plan, rows, end), largest)
        diverged = not np.all(np.isfinite(parameters))
        if kept is not None and (diverged or not keep):
            kept.remove()
        if diverged:
            raise InputError("The parameters grew without bound: use smaller steps.")
        promise: Any = NOT_PRIVATE
        if self.budget is not None:
            promise = opened.certify(
                self.budget.delta,
                release=Release.EVERY_ITERATE,
                assumptions=(
                    CLIPPED,
                    PUBLIC_COUNT,
                    TIMING,
                    PUBLIC_SETTINGS,
                    data_assumptions(data)[0],
                ),
                compiled=True,
            )
        return LearnedQ(
            promise=promise,
            release="people",
            parameters=parameters,
            head=head,
            policy=greedy_policy(head, parameters),
            settings={
                "seed": opened.seed,
                "people": count,
                "sigma": 0.0 if noisy is None else noisy.noise_multiplier,
                "gamma": self.gamma,
                "updates": self.updates,
                "step": self.step,
                "clip": self.clip,
                "target_every": self.target_every,
                "optimiser": self.optimiser,
                "average": self.average,
                "reward_range": list(self.reward_range),
            },
        )

    def _observation_space(self, data: Trajectories) -> Discrete | Box:
        """What states look like; how many there are is said, not read."""
        if not data.discrete_states:
            length = int(data.states.shape[1])
            return Box((-math.inf,) * length, (math.inf,) * length, ("",) * length)
        if isinstance(self.features, str):
            features = self.resolve_features(Discrete(self.num_states or 1))
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
