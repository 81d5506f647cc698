"""How a runner plays its learner: by the engine, with what the job says."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from privrl.control import engine
from privrl.core.progress import Progress, TrainingProgress
from privrl.privacy.ledger import Ledger
from privrl.privacy.session import PrivacySession
from privrl.run.logs import Logs


@dataclass(frozen=True)
class Job:
    """One run of a learner in its folder."""

    folder: Path
    ledger: str | None
    name: str
    """The run's, in the ledger."""

    seed: int | None
    id: str
    """What the policy says it was learned by, in all copies of the run; see `privrl.data.marks`."""

    formats: tuple[str, ...]
    """Of the logs."""

    again: bool
    """Whether there is a checkpoint to go on from."""

    progress: Progress
    stop: Callable[[], bool]

    @contextmanager
    def open_ledger(self) -> Iterator[Ledger | None]:
        """The ledger, if there is one: a run that begins pays only under a name of its own."""
        with nullcontext() if self.ledger is None else Ledger.open(self.ledger) as opened:
            if opened is not None and not self.again:
                opened.expect_new_run(self.name)
            yield opened

    def session(self, ledger: Ledger | None, public: bool = False) -> PrivacySession:
        """Who pays for the run, by the ledger that is open."""
        run = None if ledger is None else self.name
        return PrivacySession(ledger=ledger, run=run, seed=self.seed, public=public)


class Learning(NamedTuple):
    """A learner with what `engine.learn` takes."""

    agent: Any
    env: Any
    options: Mapping[str, Any]


class RunEnd(NamedTuple):
    """How a run ended."""

    learned: Any
    """A `Result`; None if the run was stopped."""

    done: int
    planned: int
    """Of what `Runner.progress_unit` says."""


def play_agent(agent: Any, env: Any, job: Job, public: bool, **options: Any) -> RunEnd:
    """An agent to its end, or until it is stopped; `options` are those of `learn` alone."""
    at: TrainingProgress | None = None

    def on_step(now: TrainingProgress) -> bool:
        nonlocal at
        at = now
        job.progress(str(now), now.share)
        return now.done < now.planned and job.stop()

    job.progress("compiling", None)
    given: dict[str, Any] = {"on_step": on_step, "keep": True}
    if job.formats:
        given["loggers"] = [Logs(job.folder, job.formats)]
    with job.open_ledger() as opened:
        try:
            if job.again:
                learned = engine.resume(env, job.folder, spec=agent, ledger=opened, **given)
            else:
                session = job.session(opened, public)
                given |= options
                learned = engine.learn(agent, env, session=session, folder=job.folder, **given)
        except engine.Stopped as stopped:
            return RunEnd(None, stopped.progress.done, stopped.progress.planned)
    return RunEnd(learned, *((0, 0) if at is None else (at.done, at.planned)))
