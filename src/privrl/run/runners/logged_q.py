"""How `privrl train logged-q` is run.

The table, and what is public about it, are said and asked for as in `privrl evaluate`: `Request`
has these words. There is no environment and nothing is played. All that a run keeps on its way is
the key of its noise, so that one that was killed comes to the same if it goes on, on the same
table.
"""

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from privrl.control.heads import Network
from privrl.control.learned_q import LearnedQ
from privrl.control.logged_q import LoggedQ
from privrl.control.program import Program
from privrl.core.errors import InputError
from privrl.data import Features, Polynomial, marks
from privrl.privacy.certificate import Certificate
from privrl.privacy.resuming import KEY_FILE
from privrl.run.parsing import box, refuse_missing
from privrl.run.request import BY_TRAJECTORY, Request
from privrl.run.runners.base import FeaturesRunner, Job, RunEnd, network_of
from privrl.run.specs.table import LoggedQSpec

# What the learner takes as it was said.
_SETTINGS = ("gamma", "updates", "step", "clip", "target_every", "optimiser", "average")
_NO_SWEEP = (
    "There is no sweep over logged-q: every try is paid for by the people in the table. Try "
    "settings on data that is made up, in Python."
)


@dataclass(frozen=True)
class LoggedQRunner(LoggedQSpec, FeaturesRunner):
    """What Q-learning from people's trajectories was told."""

    CHECKPOINTS: ClassVar[tuple[str, ...]] = (KEY_FILE,)

    # --- the learner ------------------------------------------------------------------------------

    @property
    def request(self) -> Request:
        """What was said about the table."""
        given = {name: getattr(self, name) for name in _ASKED}
        return Request(**given, said=tuple(name for name in self.said if name in _ASKED))

    def agent(self) -> LoggedQ:
        """The learner; what it needs and was not said is asked for."""
        asked = self.request
        budget, reward_range = asked.budget(), asked.parse_reward_range()
        if budget is not None and budget.delta == 0.0:
            raise InputError("must be above 0, because the noise is Gaussian.", field="delta")
        count = self.num_actions if self.actions is None else len(self.actions)
        if count is None:
            refuse_missing(
                "num_actions",
                "how many actions there can be, such as 3",
                "If they are words, or other numbers than 0, 1, 2, list them with --actions",
            )
        given = {n: getattr(self, n) for n in _SETTINGS if getattr(self, n) is not None}
        return LoggedQ(
            num_actions=count,
            reward_range=reward_range,
            budget=budget,
            features=self._features(asked),
            num_states=self._num_states(asked),
            **given,
        )

    def _num_states(self, asked: Request) -> int | None:
        if asked.has_vector_states(None):
            return None
        count = self.num_states if self.states is None else len(self.states)
        if count is None:
            refuse_missing(
                "num_states",
                "how many states there can be, such as 10",
                "If they are words, list them with --states; if they are numbers on a scale, say "
                "with --state-range between which ends",
            )
        return count

    def _features(self, asked: Request) -> Features | Network | None:
        vectors = asked.has_vector_states(None)
        if vectors and self.state_range is None:
            refuse_missing(
                "state_range",
                "what each state could be, in the order of --state, such as 30:200,40:140",
                "It is not measured, because that would give somebody away",
            )
        kind, _, sizes = (self.features or "").partition(":")
        if kind != "network":
            # States by their numbers have a table.
            return asked.state_features(None) if vectors or self.features else None
        if not vectors:
            return network_of(sizes)
        assert self.state_range is not None
        scaled = Polynomial(1, *box(self.state_range, len(self.state or ())))
        return network_of(sizes, scaled)

    # --- how it is run -------------------------------------------------------------------------

    @property
    def progress_unit(self) -> str:
        return "updates"

    @property
    def count(self) -> int:
        raise InputError(_NO_SWEEP)

    def program(self, swept: Sequence[str] = ()) -> Program:
        raise InputError(_NO_SWEEP)

    @property
    def no_curve_reason(self) -> str | None:
        return "A log holds returns of episodes, and nothing is played here: leave it out."

    def play(self, job: Job) -> RunEnd:
        if not self.table:
            raise InputError("Say which table to read: privrl train logged-q stays.parquet ...")
        asked = self.request
        # Whatever was said is checked before a large table is read.
        asked.columns(None)
        agent = self.agent()
        if self.public and job.ledger is not None:
            raise InputError("Nobody pays for data declared --public: leave --ledger out.")
        with job.open_ledger() as opened:
            job.progress("loading", None)
            data = asked.load_whole(None)
            # From here on it is paid for, and goes through to the end.
            if job.stop():
                raise KeyboardInterrupt
            if not marks.mark(asked.paths, job.id):
                warnings.warn(
                    "The run could not be listed beside the table, so that judging its policy on "
                    "the same people will not be noticed.",
                    UserWarning,
                    stacklevel=1,
                )
            job.progress("learning", None)

            def progress(done: int, updates: int) -> None:
                job.progress(f"{done:,} of {updates:,} updates", done / updates)

            if job.again:
                learned = agent.resume(
                    job.folder, data, ledger=opened, keep=True, progress=progress
                )
            else:
                learned = agent.fit(
                    data,
                    session=job.session(opened),
                    checkpoint=job.folder,
                    keep=True,
                    progress=progress,
                )
        learned = replace(learned, policy=learned.policy.with_origin(job.id, self.learner))
        return RunEnd(learned, agent.updates, agent.updates)

    def write(self, learned: LearnedQ, job: Job) -> dict[str, Path]:
        written = {"policy": job.folder / "policy.json"}
        learned.policy.save(written["policy"])
        return written

    def summarize(self, learned: LearnedQ) -> tuple[list[str], list[str]]:
        first = shlex.quote(Path(self.table[0]).name)
        source = first if len(self.table) == 1 else f"{first} and more"
        owners = "trajectories" if self.user is None else "people"
        lines = [f"{source}: values of actions from {learned.settings['people']:,} {owners}."]
        notes = []
        if isinstance(learned.promise, Certificate):
            notes += [learned.privacy_statement, "What rewards are given for is not protected."]
            if self.user is None:
                notes.append(BY_TRAJECTORY)
        notes.append("Judge the policy by privrl evaluate on other people before it is used.")
        return lines, notes


_ASKED = tuple({one.name for one in Request.options()} & {o.name for o in LoggedQSpec.options()})
