"""One engine for every learner: it trains, checkpoints, resumes, reports, stops and logs.

    learned = learn(ActorCritic(budget=Budget(5.0, 1e-6)), "Chain", 500, folder="runs/x")
    learned = resume("Chain", "runs/x")  # after a stop or a crash, at no further cost

A learner is a spec, whose `training(env, people, ...)` is a `Training`: what the spec and the
environment are together, and `init`, `step` and `result`. All else is here, once.

**Checkpoints.** A run in a folder has two files, which only their owner may read. `noise.key`
(`privrl.privacy.resuming`) is there before anybody pays: what the run was told, and where all its
randomness comes from. `checkpoint.npz` is the state after the last step, which replaces the one
before it at once or not at all. Steps are pure and do not depend on how many are taken at a time,
so a run that goes on in a simulator, on data or from a seed gets bit for bit what an uninterrupted
one gives. Both files are removed at the end, the key last.

**Order of what happens, and why.** Claim: whatever is killed, copied and resumed, each release is
paid for before its noise is drawn, is paid for once, and is not lost. Argument:

1. All that can fail for public reasons fails first: options, the pre-flight of an environment that
   may hold people, memory, and room on the disk (`Run.pay`).
2. The folder is locked, and the key written, before the payment, which carries the key's token. Who
   dies in between has paid nothing, or the payment is known again by its token.
3. `init` pays through `Run.pay` before it draws any noise. A refusal in which nothing was paid
   leaves no key (`forget_unless_paid`).
4. Who resumes shows that learner, settings, environment or data, and machine are those of the
   beginning (`NoiseKey.check`): so the same noise covers the same sums. With a checkpoint the
   payment must be there (`adopt_payment`); without one it is made unless the ledger has it.
5. Where people may play again, a process claims the next generation before anybody does, and draws
   the noise still to come from a fresh key; before each step it checks that no copy has taken over;
   it saves the last state; and it marks the run as ended before it gives anything away, be it a
   result or that the parameters diverged. Of all generations one passes. What fails after the mark
   (`result`, a logger) loses nothing: who resumes finds the last state of the generation that
   ended, plays with nobody, and computes the same result, which `result` makes of the state. A
   checkpoint says of which run and generation it is, so that no other one's is given away for it.
   Elsewhere the last steps are computed again from the state before them, with the same noise.

**What is told.** Steps, and how many there are, are public. Returns are passed to callbacks and
loggers while a run is under way only if the session says that they are public; figures that were
noised and paid for are logged at the end, since in 5. nothing is given away before.
"""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import jax
import numpy as np

from privrl.control.loop import (
    Logger,
    Loop,
    Row,
    Seen,
    default_segment,
    episode_rows,
    even_segment,
    no_rows,
)
from privrl.control.spec_json import decode_spec, encode_spec
from privrl.core import resources
from privrl.core.errors import InputError, PrivRLError
from privrl.core.progress import OnStep, StepProgress, TrainingProgress, progress_bar
from privrl.envs.preflight import run_preflight
from privrl.privacy.events import Event
from privrl.privacy.ledger import Ledger
from privrl.privacy.noise import Source
from privrl.privacy.promise import Budget
from privrl.privacy.resuming import KEY_FILE, NoiseKey, begin_run, resume_run
from privrl.privacy.session import SECRET_SESSION, OpenSession, PrivacySession, forget_unless_paid

CHECKPOINT = "checkpoint.npz"
"""The state of a run, in its folder."""

_EARLIER = ("state.npz", "released.npz")  # as checkpoints were called before 0.2

Learned = TypeVar("Learned")


class Diverged(InputError):  # noqa: N818 (the public name says what happened)
    """Parameters that no number can hold any more, which follows from what was released."""

    def __init__(
        self, message: str = "The parameters grew without bound: use smaller steps."
    ) -> None:
        super().__init__(message)


class Stopped(Exception):  # noqa: N818 (no error: somebody asked for it)
    """`on_step` ended the run before its result; `resume` goes on, if it has a folder."""

    def __init__(self, progress: TrainingProgress) -> None:
        super().__init__(f"Stopped after {progress}: resume goes on from the run's folder.")
        self.progress = progress


class Training(ABC):
    """A learner and what it learns from: what the engine must know, and three pure functions."""

    counted: ClassVar[str] = "episodes"
    """What steps are counted in, for people."""

    spec: Any
    env: Any
    people: int | None = None
    """How many play, as `resume` needs it to make this anew."""

    planned: int = 0
    """How many are played after `init`."""

    batch: int = 1
    """How many are played with the same parameters."""

    segment: int | None = None
    """How many are played at a time; None for a twentieth where somebody looks on, or all."""

    live: bool = False
    """Whether people would play again."""

    private: bool = False
    """Whether errors of the environment would tell about somebody."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """By which the run is known again, in JSON's own types."""

    @abstractmethod
    def runs_on(self, *, restored: bool) -> dict[str, Any]:
        """What digests are taken of, by name; with `restored`, what a checkpoint still needs.

        That of the spec, "agent", is taken whether it is named here or not.
        """

    def check_resumable(self) -> None:  # noqa: B027 (most can be)
        """Refuse what nobody could know again."""

    @abstractmethod
    def open(self, session: PrivacySession) -> OpenSession:
        """The session for the unit and the relation; one that cannot pay for this is refused."""

    def check(self, public: bool) -> int:
        """Refuse what is refused before anybody plays or pays; about the bytes of a checkpoint."""
        return 0

    @abstractmethod
    def init(self, run: "Run") -> Any:
        """The state before the first step; pays before any noise is drawn."""

    def step(self, state: Any, count: int, run: "Run") -> tuple[Any, Seen]:
        """The state after `count` more, and what was seen that is public or paid for."""
        raise NotImplementedError  # of a learner with nothing planned

    @abstractmethod
    def result(self, state: Any, seen: Seen, run: "Run") -> Any:
        """What was learned, with its promise; of the same state the same, noise included."""

    def adopt(self, state: Any, run: "Run") -> None:  # noqa: B027 (most call `init` again)
        """Take over the payment of a state that `init` was not called for."""

    def refresh(self, state: Any, source: Source) -> Any:
        """The state with all noise still to come from `source`."""
        return state

    def is_enough(self, state: Any) -> bool:
        """Whether the run may end before all were played, by what is public in the state."""
        return False

    def no_log_reason(self, public: bool) -> str | None:
        """Why nothing can be logged, in a sentence; None if something can."""
        return None if public else "A log holds returns, which are not public: leave it out."

    def final_rows(self, learned: Any, run: "Run") -> list[Row]:
        """What is logged at the end: figures that were paid for."""
        return []


class Run:
    """One run on its way, for those who are called by the engine."""

    def __init__(
        self,
        training: Training,
        opened: OpenSession,
        about: Mapping[str, Any],
        on_step: OnStep | None = None,
        restored: bool = False,
    ) -> None:
        self.training, self.opened, self.about = training, opened, about
        self.on_step, self.restored = on_step, restored
        self.begun = time.monotonic()

    @property
    def public(self) -> bool:
        return bool(self.about["public"])

    @property
    def seed(self) -> int | None:
        found: int | None = self.about["seed"]
        return found

    @property
    def source(self) -> Source:
        """All randomness of the run."""
        return self.opened.source

    @property
    def private(self) -> bool:
        """Whether errors and warnings of the environment would tell too much."""
        return self.training.private and not self.public

    def pay(self, event: Event | None, delta: float | None, size: int) -> None:
        """Pay for `event`, if there is one, once there is room for `size` bytes of checkpoint."""
        if self.opened.kept is not None and not self.restored:
            resources.check_disk_space(self.opened.kept.folder, 2 * size)
        if event is not None and self.restored:
            self.opened.adopt_payment(event)
        elif event is not None:
            self.opened.pay(event, delta=delta)

    def report(self, done: int, planned: int, metrics: Mapping[str, float] | None = None) -> None:
        """Tell how far the run is; raises `Stopped` if it is to end here."""
        if self.on_step is None:
            return
        elapsed = time.monotonic() - self.begun
        told = TrainingProgress(done, planned, self.training.counted, elapsed, metrics or {})
        if self.on_step(told) and done < planned:
            raise Stopped(told)


# --- what is public ------------------------------------------------------------------------------


def learn(
    spec: Any,
    env: Any,
    people: int | None = None,
    *,
    session: PrivacySession = SECRET_SESSION,
    folder: str | Path | None = None,
    keep: bool = False,
    on_step: OnStep | None = None,
    progress: bool | StepProgress | None = False,
    loggers: Sequence[Logger] = (),
    preflight: bool = True,
    preflight_env: Any = None,
    **options: Any,
) -> Any:
    """Learn what `spec` says in `env`: what was learned, with its certificate or claim.

    Args:
        spec: A learner, such as `privrl.control.ActorCritic(...)`.
        env: An environment, or its name; for `LoggedQ`, `Trajectories`.
        people: How many people, agents or episodes there are, where the learner asks.
        session: Who pays, under which name, and whether the noise is secret. A session that is
            `public` says that nobody needs protection, and lets returns be shown; then no ledger
            can pay.
        folder: Where the key of the noise and the checkpoint are kept, from which `resume` goes on.
        keep: Leave both there at the end, so that a result that could not be saved is not lost.
        on_step: Called with a `TrainingProgress` after each step; if it returns True the run ends
            there, with `Stopped`, and can be resumed.
        progress: True for a bar on the terminal; or `progress(done, planned)`, which is called.
        loggers: Where returns go; only where they are public or paid for.
        preflight: Whether an environment of Gymnasium's that may hold people is tried first, in
            another instance, since its errors are hidden later. The certificate says if it is not.
        preflight_env: That instance; by default one that is made of the same id.
        options: The learner's own, such as `critic` or `behaviour`.
    """
    training, opened, tried = prepare(
        spec,
        env,
        people,
        session=session,
        preflight=preflight,
        preflight_env=preflight_env,
        **options,
    )
    about = {
        "agent": training.settings,
        "spec": encode_spec(spec),
        "people": training.people,
        "seed": session.seed,
        "public": session.public,
        "run": session.run,
        "preflight": tried,
    }
    with begin_run(folder, CHECKPOINT), _watching(on_step, progress) as watch:
        if folder is not None:
            on = _runs_on(training, restored=False)
            opened.attach_key(NoiseKey.begin(folder, about, live=training.live, runs_on=on))
        run = Run(training, opened, about, watch)
        with forget_unless_paid(opened):
            loop = _begin(run, loggers)
        return _train(run, loop, keep)


def prepare(
    spec: Any,
    env: Any,
    people: int | None = None,
    *,
    session: PrivacySession = SECRET_SESSION,
    preflight: bool = True,
    preflight_env: Any = None,
    **options: Any,
) -> tuple[Training, OpenSession, str | None]:
    """What `learn` begins with: what is to be trained, who pays, and how the pre-flight went."""
    training: Training = spec.training(env, people, **options)
    opened = training.open(session)
    tried = run_preflight(
        training.env,
        private=training.private and not session.public,
        preflight=preflight,
        other=preflight_env,
    )
    return training, opened, tried


def resume(
    env: Any,
    folder: str | Path,
    *,
    spec: Any = None,
    ledger: Ledger | None = None,
    keep: bool = False,
    on_step: OnStep | None = None,
    progress: bool | StepProgress | None = False,
    loggers: Sequence[Logger] = (),
    preflight_env: Any = None,
    **options: Any,
) -> Any:
    """Go on from where `learn(..., folder=folder)` was interrupted, at no further cost.

    Learner, environment or data, and options must be the same. In a simulator, on data, or with a
    seed the result is that of a run that was never interrupted, bit for bit, and copies of the
    folder come to the same. Where people may be, who play again, the noise still to come is fresh,
    and one copy of the folder alone is let: see `privrl.privacy.resuming`.

    Args:
        env: What `learn` was given.
        folder: That of the run.
        spec: The learner, if its folder cannot tell: it has features that have no JSON form.
        ledger: The one that has paid.
        keep: As for `learn`, and so are the others.
    """
    place = Path(folder)
    if any((place / name).exists() for name in _EARLIER) or (
        (place / CHECKPOINT).exists() and not (place / KEY_FILE).exists()
    ):
        raise InputError(
            f"{str(folder)!r} holds a run of an earlier version of privrl: go on with the version "
            "that the run was begun with."
        )
    with resume_run(folder) as kept, _watching(on_step, progress) as watch:
        about, restored = kept.about, (place / CHECKPOINT).exists()
        if spec is None:
            spec = decode_spec(about.get("spec"), place)
        training: Training = spec.training(env, about.get("people"), **options)
        if about.get("agent") != training.settings or kept.live != training.live:
            raise InputError(
                f"{str(folder)!r} belongs to another agent, environment or critic, or to another "
                "version of privrl: go on with what it was begun with."
            )
        training.check_resumable()
        kept.check(_runs_on(training, restored=restored))
        if ledger is not None and about["run"] is None:
            raise InputError("This run was begun without a ledger: leave it out.")
        if ledger is None and about["run"] is not None:
            raise InputError("This run was begun with a ledger: say the same.")
        session = PrivacySession(
            ledger=ledger, run=about["run"], seed=about["seed"], public=about["public"]
        )
        opened = training.open(session)
        opened.attach_key(kept)
        run = Run(training, opened, about, watch, restored)
        return _train(run, _go_on(run, loggers, preflight_env), keep)


class Learner(Generic[Learned]):
    """What a spec inherits from that has a `training`: `learn` and `resume` of its own."""

    def learn(self, env: Any, people: int | None = None, **options: Any) -> Learned:
        """What `privrl.learn` gives for this spec; the options are its own and the learner's."""
        found: Learned = learn(self, env, people, **options)
        return found

    def resume(self, env: Any, folder: str | Path, **options: Any) -> Learned:
        """Go on from where `learn(..., folder=folder)` was interrupted: see `privrl.resume`."""
        found: Learned = resume(env, folder, spec=self, **options)
        return found


def refuse_idle_ledger(session: PrivacySession, budget: Budget | None) -> None:
    """Refuse a ledger where nobody needs protection, or where nothing is spent."""
    if session.ledger is None:
        return
    if session.public:
        raise InputError(
            "public says that nobody needs protection, and a ledger that somebody does: leave "
            "one of them out."
        )
    if budget is None:
        raise InputError("Without a budget there is nothing to pay for: leave the ledger out.")


# --- steps ---------------------------------------------------------------------------------------


def _runs_on(training: Training, *, restored: bool) -> dict[str, Any]:
    return {"agent": training.spec, **training.runs_on(restored=restored)}


def _make_loop(run: Run, loggers: Sequence[Logger]) -> Loop:
    training, kept = run.training, run.opened.kept
    if loggers and (reason := training.no_log_reason(run.public)) is not None:
        raise InputError(reason)

    def step(state: Any, count: int) -> tuple[Any, Seen]:
        with jax.enable_x64(True):
            return training.step(state, count, run)

    path = None if kept is None else kept.folder / CHECKPOINT
    rows = episode_rows if run.public else no_rows
    return Loop(step, None, path=path, loggers=loggers, rows=rows)


def _begin(run: Run, loggers: Sequence[Logger]) -> Loop:
    """The loop before the first step, paid for; loggers begin anew."""
    loop = _make_loop(run, loggers)
    loop.begin_logs()
    try:
        loop.state = run.training.init(run)
    except Diverged:
        _end_diverged(run)
        raise
    return loop


def _go_on(run: Run, loggers: Sequence[Logger], preflight_env: Any) -> Loop:
    """The loop where the run was interrupted, paid for; nobody has played again yet."""
    training, opened = run.training, run.opened
    kept, ledger = opened.kept, opened.ledger
    assert kept is not None

    def claim() -> None:
        """Before anybody plays again."""
        run_preflight(
            training.env,
            private=run.private,
            preflight=run.about["preflight"] != "waived",
            other=preflight_env,
            again=True,
        )
        opened.kept = kept.claim_next_generation(ledger)

    if not run.restored:
        claim()
        return _begin(run, loggers)
    loop = _make_loop(run, loggers)
    if loop.load(lambda: training.init(run)):
        training.adopt(loop.state, run)
    over = _is_over(training, loop)
    # A state that plays on claims a generation of its own; a last one is given away as it is.
    if loop.about.get("run") != kept.token or (
        over and loop.about.get("generation") != kept.generation
    ):
        raise InputError(
            f"The checkpoint in {str(kept.folder)!r} is of another run than its key, or of another "
            "copy of the run: put both back as they were."
        )
    if not over:
        claim()
        if kept.live and run.seed is None:
            loop.state = training.refresh(loop.state, opened.source)
    return loop


def _train(run: Run, loop: Loop, keep: bool) -> Any:
    """Step to the end: what was learned, or that it diverged, or `Stopped`."""
    training, kept, ledger = run.training, run.opened.kept, run.opened.ledger
    planned = training.planned
    if kept is not None:
        loop.about = {"run": kept.token, "generation": kept.generation}
    loop.save()
    size = training.segment or max(planned, 1)
    watched = run.on_step is not None or kept is not None or loop.loggers
    if training.segment is None and watched:
        size = even_segment(size, default_segment(size), training.batch)
    try:
        while not _is_over(training, loop):
            if kept is not None:
                kept.check_not_superseded(ledger)
            seen = loop.advance(min(size, planned - loop.done))
            # Among people the last state too: once the run is marked as ended, nobody plays again.
            if keep or loop.done < planned or training.live:
                loop.save()
            run.report(loop.done, planned, _metrics(seen) if run.public else None)
        if kept is not None:
            kept.end(ledger)
        learned = training.result(loop.state, loop.seen, run)
    except Diverged:
        _end_diverged(run)
        raise
    loop.log(training.final_rows(learned, run))
    for logger in loop.loggers:
        logger.close()
    if kept is not None and not keep:
        remove_checkpoint(kept.folder)
    return learned


def _is_over(training: Training, loop: Loop) -> bool:
    """Whether nobody plays any more."""
    with jax.enable_x64(True):
        return loop.done >= training.planned or training.is_enough(loop.state)


def _metrics(seen: Seen) -> dict[str, float]:
    # Rewards may add up to infinities.
    with np.errstate(invalid="ignore", over="ignore"):
        return {name: float(np.mean(values)) for name, values in seen.items()}


def _end_diverged(run: Run) -> None:
    """That a run diverged is told, so it is the end; resuming would end in the same way."""
    kept = run.opened.kept
    if kept is None:
        return
    try:
        kept.end(run.opened.ledger)
    except PrivRLError as refused:
        raise refused from None  # A copy has taken over, so that this one tells nothing.
    remove_checkpoint(kept.folder)


def remove_checkpoint(folder: Path) -> None:
    """Remove the checkpoint and the key of a run that is over; the key last, without which nothing
    goes on. What cannot be removed is warned of: what was learned is not lost for it."""
    for name in (CHECKPOINT, KEY_FILE):
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            warnings.warn(
                f"{str(folder / name)!r} could not be removed: {error.strerror}. With it the noise "
                "can be taken off the result: remove it.",
                UserWarning,
                stacklevel=1,
            )


@contextmanager
def _watching(
    on_step: OnStep | None, progress: bool | StepProgress | None
) -> Iterator[OnStep | None]:
    """All who are told after a step, as one; None if nobody is."""
    with ExitStack() as stack:
        told: list[OnStep] = []
        if progress is True:
            draw = stack.enter_context(progress_bar())
            told.append(lambda at: draw(str(at), at.share))
        elif callable(progress):
            told.append(lambda at: progress(at.done, at.planned))
        if on_step is not None:
            told.append(on_step)

        def tell(at: TrainingProgress) -> bool:
            answers = [one(at) for one in told]
            return any(answers)

        yield tell if told else None
