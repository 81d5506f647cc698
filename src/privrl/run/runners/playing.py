"""Two ways to play a runner, which learners share: a compiled program, or an agent that tells."""

from typing import Any

from privrl.control.program import Program
from privrl.privacy.noise import reproducible, secure
from privrl.run.runners.base import Env, Job, RunEnd, Runner
from privrl.run.training import EarlyStop, Replicas, TrainingRun, resume, train


def play_program(
    runner: Runner,
    program: Program,
    job: Job,
    *,
    enough: EarlyStop | None = None,
    segment: int | None = None,
) -> TrainingRun:
    """One replica of a program to its end, or until it is stopped; its curve is kept if public."""
    about = runner.to_dict()
    if job.again:
        return resume(
            program,
            job.folder,
            about=about,
            progress=job.progress,
            stop=job.stop,
            enough=enough,
            counted=runner.progress_unit,
        )
    job.progress("compiling", None)
    source = secure() if job.seed is None else reproducible(job.seed)
    return train(
        program,
        runner.count,
        Replicas(None),
        keys=source.key()[None],
        folder=job.folder,
        curve=runner.public,
        formats=job.formats,
        about=about,
        progress=job.progress,
        stop=job.stop,
        enough=enough,
        segment=segment,
        counted=runner.progress_unit,
    )


class _Interrupted(Exception):  # noqa: N818 (no error: somebody asked for it)
    """After a step that is on disk."""


def play_agent(runner: Runner, agent: Any, env: Env, job: Job, what: str, **options: Any) -> RunEnd:
    """An agent that keeps its own checkpoint, to its end, or until it is stopped.

    It is shown to people how many of `what` are done, as the agent tells; `options` are those of
    `learn` that not all agents have.
    """
    done = planned = 0

    def report(now: int, whole: int) -> None:
        nonlocal done, planned
        done, planned = now, whole
        job.progress(f"{done:,} of {planned:,} {what}", done / planned)
        # Before there is a checkpoint nothing would be left of what was done.
        if done < planned and runner.has_checkpoint(job.folder) and job.stop():
            raise _Interrupted

    job.progress("compiling", None)
    with job.open_ledger() as opened:
        try:
            if job.again:
                learned = agent.resume(job.folder, env, ledger=opened, progress=report, keep=True)
            else:
                learned = agent.learn(
                    env,
                    session=job.session(opened, runner.public),
                    progress=report,
                    checkpoint=job.folder,
                    keep=True,
                    **options,
                )
        except _Interrupted:
            return RunEnd(None, done, planned)
    return RunEnd(learned, planned, planned)
