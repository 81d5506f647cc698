"""Two ways to play a lesson, which learners share: a compiled program, or an agent that tells."""

from typing import Any

from privrl.control.program import Program
from privrl.privacy.noise import reproducible, secure
from privrl.run.lessons.words import Env, Job, Lesson, Played
from privrl.run.training import EarlyStop, Replicas, TrainingRun, resume, train


def play_program(
    lesson: Lesson,
    program: Program,
    job: Job,
    *,
    enough: EarlyStop | None = None,
    segment: int | None = None,
) -> TrainingRun:
    """One replica of a program to its end, or until it is stopped; its curve is kept if public."""
    about = lesson.to_dict()
    if job.again:
        return resume(
            program,
            job.folder,
            about=about,
            progress=job.progress,
            stop=job.stop,
            enough=enough,
            counted=lesson.counted,
        )
    job.progress("compiling", None)
    source = secure() if job.seed is None else reproducible(job.seed)
    return train(
        program,
        lesson.count,
        Replicas(None),
        keys=source.key()[None],
        folder=job.folder,
        curve=lesson.public,
        formats=job.formats,
        about=about,
        progress=job.progress,
        stop=job.stop,
        enough=enough,
        segment=segment,
        counted=lesson.counted,
    )


class _Stopped(Exception):  # noqa: N818 (no error: somebody asked for it)
    """After a step that is on disk."""


def play_agent(lesson: Lesson, agent: Any, env: Env, job: Job, what: str, **options: Any) -> Played:
    """An agent that keeps its own checkpoint, to its end, or until it is stopped.

    It is shown to people how many of `what` are done, as the agent tells; `options` are those of
    `learn` that not all agents have.
    """
    done = planned = 0

    def told(now: int, whole: int) -> None:
        nonlocal done, planned
        done, planned = now, whole
        job.progress(f"{done:,} of {planned:,} {what}", done / planned)
        # Before there is a checkpoint nothing would be left of what was done.
        if done < planned and lesson.begun(job.folder) and job.stop():
            raise _Stopped

    job.progress("compiling", None)
    with job.open_ledger() as opened:
        try:
            if job.again:
                learned = agent.resume(job.folder, env, ledger=opened, progress=told, keep=True)
            else:
                learned = agent.learn(
                    env,
                    session=job.session(opened, lesson.public),
                    progress=told,
                    checkpoint=job.folder,
                    keep=True,
                    **options,
                )
        except _Stopped:
            return Played(None, done, planned)
    return Played(learned, planned, planned)
