"""How `privrl train logged-q` is run.

The table, and what is public about it, are said and asked for as in `privrl evaluate`: `Request`
has these words. There is no environment and nothing is played. A run that was killed comes to the
same if it goes on, on the same table.
"""

import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from privrl.control.learned_q import LearnedQ
from privrl.control.logged_q import LoggedQ
from privrl.control.program import Program
from privrl.core.errors import InputError
from privrl.core.questions import Question, ask
from privrl.data import Trajectories, marks
from privrl.privacy.certificate import Certificate
from privrl.privacy.promise import Relation, Unit
from privrl.privacy.session import PrivacySession
from privrl.run.dry_run import check_tables
from privrl.run.option_values import as_typed, option_value
from privrl.run.request import BY_TRAJECTORY, Request
from privrl.run.runners.base import Preview, Runner
from privrl.run.runners.playing import Job, RunEnd, play_agent
from privrl.run.specs.table import LoggedQTask, TableOptions

_NO_TABLE = "Say which table to read: privrl train logged-q stays.parquet ..."
_NO_SWEEP = (
    "There is no sweep over logged-q: every try is paid for by the people in the table. Try "
    "settings on data that is made up, in Python."
)


@dataclass(frozen=True)
class LoggedQRunner(LoggedQTask, Runner):
    """How Q-learning from people's trajectories is run."""

    LEARNER: ClassVar[type[Any]] = LoggedQ

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        # What is said about a table is read as `privrl evaluate` reads it.
        known = TableOptions.options()
        return super().read({n: option_value(n, v) if n in known else v for n, v in given.items()})

    def to_dict(self) -> dict[str, Any]:
        plain = super().to_dict()
        if self.reward_range is not None:  # as text, which it is in the folders of earlier runs
            plain["reward_range"] = as_typed(self.reward_range)
        return plain

    @property
    def request(self) -> Request:
        """What was said about the table."""
        own = {name: getattr(self, name) for name in (*TableOptions.options(), "public")}
        shared = ("epsilon", "delta", "gamma", "features", "state_range")
        return Request(**own, **{name: self.get(name) for name in shared}, said=tuple(self.said))

    def questions(self, swept: Sequence[str] = ()) -> Iterator[Question]:
        yield from self.request.missing_columns()
        yield from self._setting_questions()

    def _setting_questions(self) -> Iterator[Question]:
        asked = self.request
        yield from asked.unanswered("reward_range", *(() if self.public else ("epsilon", "delta")))
        if self.num_actions is None and self.actions is None:
            yield Question(
                "num_actions",
                "how many actions there can be, such as 3",
                "If they are words, or other numbers than 0, 1, 2, list them with --actions",
            )
        if asked.has_vector_states(None):
            if self.get("state_range") is None:
                yield Question(
                    "state_range",
                    "what each state could be, in the order of --state, such as 30:200,40:140",
                    "It is not measured, because that would give somebody away",
                )
        elif self.num_states is None and self.states is None:
            yield Question(
                "num_states",
                "how many states there can be, such as 10",
                "If they are words, list them with --states; if they are numbers on a scale, say "
                "with --state-range between which ends",
            )

    def agent(self) -> LoggedQ:
        """The learner."""
        ask(self._setting_questions())
        asked = self.request
        budget = asked.budget()
        if budget is not None and budget.delta == 0.0:
            raise InputError("must be above 0, because the noise is Gaussian.", field="delta")
        vectors = asked.has_vector_states(None)
        features = self.get("features") or ("polynomial:2" if vectors else None)
        found: LoggedQ = self.learner_with(
            num_actions=self.num_actions if self.actions is None else len(self.actions),
            reward_range=self.reward_range,
            budget=budget,
            features=features,
            num_states=None
            if vectors
            else (self.num_states if self.states is None else len(self.states)),
        )
        return found

    def rehearse(self, session: PrivacySession) -> None:
        agent = self._checked_agent()
        check_tables(self.request, None)
        # A row of zeros in the form of the table's, of which no row is read.
        one, states = np.zeros(1, int), np.zeros((1, len(self.state or ())))
        seen = states if self.request.has_vector_states(None) else one
        agent.plan(Trajectories.from_arrays(seen, one, one, lengths=[1]))

    def preview(self) -> Preview:
        agent = self.agent()
        told = f"noise calibrated for {agent.updates:,} updates, each person clipped to "
        told += f"{agent.clip:g} of the largest reward"
        return Preview(
            f"{agent.updates:,} updates, parameters after each",
            "" if agent.budget is None else told,
            agent.budget,
            Unit.TRAJECTORY if self.user is None else Unit.USER,
            Relation.REPLACE_ONE,
            note=BY_TRAJECTORY if self.user is None else "",
        )

    # --- how it is run -------------------------------------------------------------------------

    def _checked_agent(self) -> LoggedQ:
        """The learner, if all that was said about the table goes together."""
        if not self.table:
            raise InputError(_NO_TABLE)
        self.ask()
        self.request.columns(None)
        return self.agent()

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
        # Whatever was said is checked before a large table is read.
        agent, asked = self._checked_agent(), self.request
        job.progress("loading", None)
        data = asked.load(None)
        if job.stop():
            raise KeyboardInterrupt
        found = play_agent(agent, data, job, False)
        if found.learned is None:
            return found
        # Before anybody sees the policy, and not for a run that was refused.
        if not marks.mark(asked.paths, job.id):
            warnings.warn(
                "The run could not be listed beside the table, so that judging its policy on "
                "the same people will not be noticed.",
                UserWarning,
                stacklevel=1,
            )
        policy = found.learned.policy.with_origin(job.id, self.learner)
        return found._replace(learned=replace(found.learned, policy=policy))

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
