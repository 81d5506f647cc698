"""One replica of a compiled `Program` as the engine trains it.

No ledger pays for one: agents under local privacy keep their own, and a paper's claim is no
certificate. All randomness comes from one key, which the state holds.
"""

from typing import Any

import jax
import numpy as np

from privrl.control import engine, loop
from privrl.control.program import Program, batch_of, drop_weak_types
from privrl.core.errors import InputError
from privrl.privacy.promise import Relation, Unit
from privrl.privacy.session import OpenSession, PrivacySession


class ProgramTraining(engine.Training):
    """A learner whose whole run is a program; what it learned is for subclasses to say."""

    NO_LEDGER = "The paper's claim is no certificate, so no ledger can pay: leave it out."

    program: Any

    def __init__(
        self, spec: Any, env: Any, program: Program, planned: int, people: int | None = None
    ) -> None:
        self.spec, self.env, self.program = spec, env, program
        self.planned, self.people, self.batch = planned, people, batch_of(program)

    @property
    def settings(self) -> dict[str, Any]:
        kind = type(self.spec)
        return {"learner": f"{kind.__module__}.{kind.__qualname__}", "env": self.env.name}

    def runs_on(self, *, restored: bool) -> dict[str, Any]:
        return {"program": self.program}

    def open(self, session: PrivacySession) -> OpenSession:
        if session.ledger is not None:
            raise InputError(self.NO_LEDGER)
        return session.open(Unit.AGENT, Relation.LOCAL)

    def init(self, run: engine.Run) -> Any:
        with jax.enable_x64(True):
            return drop_weak_types(self.program.init(run.source.key()[None], {}))

    def step(self, state: Any, count: int, run: engine.Run) -> tuple[Any, loop.Seen]:
        after, seen = self.program.advance(state, count)
        kept = {name: np.asarray(values) for name, values in seen.items()} if run.public else {}
        return drop_weak_types(after), kept


class PaperLearner(engine.Learner[engine.Learned]):
    """A paper's learner, which yields a claim."""

    def learn(
        self,
        env: Any,
        people: int | None = None,
        *,
        seed: int | None = None,
        public: bool = False,
        **options: Any,
    ) -> engine.Learned:
        """Run the paper's algorithm in `env`, an environment or its name: see `privrl.learn`.

        `public` says that nobody needs protection, and lets returns or the score be shown.
        """
        session = PrivacySession(seed=seed, public=public)
        return super().learn(env, people, session=session, **options)
