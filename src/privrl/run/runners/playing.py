"""How a runner plays its learner: by the engine, with what the job says."""

from typing import Any

from privrl.control import engine
from privrl.core.progress import TrainingProgress
from privrl.run.logs import Logs
from privrl.run.runners.base import Job, RunEnd


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
