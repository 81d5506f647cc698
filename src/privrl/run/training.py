"""Runs of a learner, segment by segment, that can be stopped, killed and resumed.

    found = train(program, 500, replicas_of([0, 1]), folder="runs/x", curve=True, formats=["csv"])
    found = resume(program, "runs/x")     # after a crash, from where the last segment ended

A *segment* is a number of episodes that is played compiled, in one call. After each, what was seen
goes to the logs and then the state to a checkpoint, which replaces the one before it at once or not
at all. So there is always one whole checkpoint, and whoever goes on from it gets bit for bit what
an uninterrupted run gives. Rows that a crash left in the logs behind the checkpoint are cut off.

What was seen in an episode, such as its return, is about the person whose episode it was. It is
kept, logged and handed back only with `curve=True`, which is for runs on public simulators and for
figures that were noised and paid for; otherwise each segment's is dropped.

A checkpoint holds the keys of all noise that is still to come: mode 0600, and `delete_checkpoint`
removes it once the result is written. Programs are pure, so a segment that a crash cut off is
played again to the same bits, copies of the folder come to the same, and the same noise never
covers two different sums: another program is refused where keys are secret, by a keyed digest, and
so are other versions (`privrl.privacy.resuming` has the argument). Two at once in the same folder
are refused by a lock. Where real people would play again, this does not hold: `ActorCritic.resume`
is for them.
"""

import math
import secrets
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from privrl.control.program import (
    Program,
    batch_of,
    drop_weak_types,
    load_state,
    read_about,
    save_state,
)
from privrl.core import checks, files
from privrl.core.errors import InputError, OverBudget
from privrl.core.progress import Progress, no_progress
from privrl.privacy.noise import secure
from privrl.privacy.resuming import keyed_digest, machine_fingerprint
from privrl.run.logs import EPISODE, SEED, Logs, Row

CHECKPOINT = "checkpoint.npz"

Metrics = dict[str, NDArray[Any]]
Pay = Callable[[int, int], None]
"""`pay(first, episodes)` is called before those episodes (the first is 0) and may refuse them."""

EarlyStop = Callable[[Any], bool]
"""`enough(state)` says whether a run may end before it has played all, by what is public in it."""

# How many segments a run has that was not told, unless they get too long to wait for: each ends
# with a checkpoint.
_SEGMENTS = 20
_LONGEST_SEGMENT = 10_000


@dataclass(frozen=True)
class Replicas:
    """Runs that are played together: a seed for each, and settings by name, one for each."""

    seeds: tuple[int, ...] | None
    """None for one replica whose key nobody knows."""

    settings: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.seeds is not None:
            if not self.seeds:
                raise InputError("Say at least one seed.")
            for seed in self.seeds:
                if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
                    raise InputError(
                        f"A seed must be a whole number of at least 0 and below 2^32, not {seed!r}."
                    )
        for name, values in self.settings.items():
            if len(values) != self.count:
                raise InputError(
                    f"must have a value for each of the {self.count} replicas.", field=name
                )
            for value in values:
                if not math.isfinite(checks.number(name, value)):
                    raise InputError(f"must be finite, not {value:g}.", field=name)

    @property
    def count(self) -> int:
        return 1 if self.seeds is None else len(self.seeds)

    def keys(self) -> jax.Array:
        """A key for each replica, which depends on its seed alone.

        So replicas with the same seed and other settings live in the same world: their difference
        is that of the settings. Without seeds the key is secret, and fresh each time.
        """
        if self.seeds is None:
            return secure().key()[None]
        from_seed = partial(jax.random.fold_in, jax.random.key(0))
        keys: jax.Array = jax.vmap(from_seed)(jnp.asarray(self.seeds, jnp.uint32))
        return keys

    def initial_state(self, program: Program, keys: jax.Array | None = None) -> Any:
        """The program's state before the first episode; `keys` in place of the replicas' own."""
        for name in self.settings:
            if name not in program.sweepable:
                raise InputError(
                    f"{name!r} is not a setting that replicas can have: it must be one of "
                    f"{', '.join(program.sweepable)}."
                )
        given = {name: jnp.asarray(values, float) for name, values in self.settings.items()}
        return drop_weak_types(program.init(self.keys() if keys is None else keys, given))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        seeds = None if self.seeds is None else list(self.seeds)
        return {"seeds": seeds, "settings": {k: list(v) for k, v in self.settings.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Replicas":
        seeds = None if data["seeds"] is None else tuple(data["seeds"])
        return cls(seeds, {name: tuple(values) for name, values in data["settings"].items()})


def replicas_of(seeds: Sequence[int], **settings: float) -> Replicas:
    """A replica for each seed, all with the same settings."""
    return Replicas(tuple(seeds), {name: (value,) * len(seeds) for name, value in settings.items()})


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """What a run came to, and why it ended."""

    state: Any
    """Of the program, as it was after the last episode."""

    seen: Mapping[str, NDArray[Any]]
    """By name, each (replicas, episodes); empty unless the run kept its curve."""

    episodes: int
    """How many were played in each replica."""

    planned: int
    ending: Literal["finished", "stopped", "budget"]
    reason: str = ""
    """What the ledger said, if it refused."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", MappingProxyType(dict(self.seen)))


def never_stop() -> bool:
    """Do not stop before the end."""
    return False


def train(
    program: Program,
    episodes: int,
    replicas: Replicas,
    *,
    folder: str | Path | None = None,
    segment: int | None = None,
    curve: bool = False,
    formats: Sequence[str] = (),
    keys: jax.Array | None = None,
    about: Mapping[str, Any] = MappingProxyType({}),
    progress: Progress = no_progress,
    stop: Callable[[], bool] = never_stop,
    enough: EarlyStop | None = None,
    pay: Pay | None = None,
    counted: str = "episodes",
) -> TrainingRun:
    """Play `episodes` in every replica, with checkpoints and logs in `folder` if there is one.

    `segment` is the most episodes between two checkpoints, by default a twentieth of all and at
    most 10,000, but at least one batch of a program that has batches. `keys` (replicas,) take the
    place of those that the seeds give. `about` is JSON that says what run this is;
    `resume` refuses the checkpoint of another. Before each segment `enough` is asked whether the
    run is finished already, then `stop`, and then `pay`. If that raises `OverBudget`, the run ends
    there: what was played stays. `counted` is what people call episodes here.
    """
    checks.count("episodes", episodes)
    most = min(-(-episodes // _SEGMENTS), _LONGEST_SEGMENT)
    if segment is not None:
        most = checks.count("segment", segment)
    if formats and not (curve and folder is not None):
        raise InputError(
            "Logs hold the return of each episode, so they are written only where the curve may be "
            "kept, and into a folder."
        )
    plan = {
        "about": dict(about),
        "runs_on": None
        if replicas.seeds is not None
        else _program_digest(program, secrets.token_hex(32)),
        "replicas": replicas.to_dict(),
        "episodes": episodes,
        "segment": even_segment(episodes, most, batch_of(program)),
        "curve": curve,
        "formats": list(formats),
    }
    with nullcontext() if folder is None else files.lock_folder(folder), jax.enable_x64(True):
        if folder is not None and (Path(folder) / CHECKPOINT).exists():
            raise InputError(f"{str(folder)!r} holds a run that was not finished: resume it.")
        begun = replicas.initial_state(program, keys)
        run = _Run(program, plan, None if folder is None else Path(folder), begun)
        run.logs = None if folder is None else Logs.open(folder, formats)
        run.save()
        return run.run_to_end(progress, stop, enough, pay, counted)


def resume(
    program: Program,
    folder: str | Path,
    *,
    about: Mapping[str, Any] = MappingProxyType({}),
    progress: Progress = no_progress,
    stop: Callable[[], bool] = never_stop,
    enough: EarlyStop | None = None,
    pay: Pay | None = None,
    counted: str = "episodes",
) -> TrainingRun:
    """Go on from the checkpoint in `folder`; program and `about` are those of `train`."""
    place = Path(folder) / CHECKPOINT
    if not place.exists():
        raise InputError(f"There is no run to resume in {str(folder)!r}.")
    with files.lock_folder(folder):
        return _resume(program, Path(folder), about, progress, stop, enough, pay, counted)


def _resume(
    program: Program,
    folder: Path,
    about: Mapping[str, Any],
    progress: Progress,
    stop: Callable[[], bool],
    enough: EarlyStop | None,
    pay: Pay | None,
    counted: str,
) -> TrainingRun:
    place = folder / CHECKPOINT
    said = read_about(place)
    try:
        plan, replicas = said["plan"], Replicas.from_dict(said["plan"]["replicas"])
        done, paid, kept = int(said["done"]), int(said["paid"]), dict(said["seen"])
        positions, listed = dict(said["logs"]), list(plan["formats"])
        runs_on = plan["runs_on"]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{str(place)!r} is not the checkpoint of a run.") from None
    if plan["about"] != dict(about):
        raise InputError(f"{str(folder)!r} holds another run, with other settings.")
    if runs_on is not None and runs_on != _program_digest(program, runs_on["secret"]):
        raise InputError(
            f"{str(folder)!r} holds a run of another program, or one that was begun with other "
            "versions or on another kind of machine, and the same noise over two different sums "
            "would give away their difference: go on with the same, where it was begun."
        )
    with jax.enable_x64(True):
        seen = {name: np.zeros((replicas.count, done), dtype) for name, dtype in kept.items()}
        like = {"state": replicas.initial_state(program), "seen": seen}
        found, _ = load_state(place, like)
        run = _Run(program, plan, folder, found["state"])
        run.done, run.paid = done, paid
        run.seen = {name: np.asarray(values) for name, values in found["seen"].items()}
        run.logs = Logs.open(folder, listed, positions)
        return run.run_to_end(progress, stop, enough, pay, counted)


def delete_checkpoint(folder: str | Path) -> None:
    """Remove the checkpoint in `folder`, if there is one."""
    (Path(folder) / CHECKPOINT).unlink(missing_ok=True)


def even_segment(episodes: int, most: int, batch: int = 1) -> int:
    """A multiple of `batch`, at most `most` (or one batch), that divides `episodes` if one does.

    Then every segment has the same size, and one compiled function plays them all. Sizes below a
    quarter of `most` are not tried: a checkpoint has its price too.
    """
    largest = max(1, min(most, episodes) // batch)
    tried = range(largest, largest // 4, -1)
    return batch * next((k for k in tried if episodes % (k * batch) == 0), largest)


@contextmanager
def on_interrupt() -> Iterator[Callable[[], bool]]:
    """For `stop`: Ctrl-C asks to end after the segment, and once more ends at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(*_: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _program_digest(program: Program, secret: str) -> dict[str, str]:
    """A keyed digest of a program with secret keys, for the checkpoint, which has these keys."""
    return {
        "secret": secret,
        "digest": keyed_digest(bytes.fromhex(secret), (program, machine_fingerprint())),
    }


class _Run:
    """Where a run stands."""

    def __init__(
        self, program: Program, plan: Mapping[str, Any], folder: Path | None, state: Any
    ) -> None:
        self.program, self.plan, self.folder, self.state = program, plan, folder, state
        self.done = self.paid = 0
        self.seen: Metrics = {}
        self.logs: Logs | None = None

    def run_to_end(
        self,
        progress: Progress,
        stop: Callable[[], bool],
        enough: EarlyStop | None,
        pay: Pay | None,
        counted: str,
    ) -> TrainingRun:
        planned = self.plan["episodes"]
        while self.done < planned and not (enough is not None and enough(self.state)):
            progress(f"{self.done:,} of {planned:,} {counted}", self.done / planned)
            if stop():
                return self._result("stopped")
            count = min(self.plan["segment"], planned - self.done)
            if pay is not None and self.paid < self.done + count:
                try:
                    pay(self.done, count)
                except OverBudget as refusal:
                    return self._result("budget", str(refusal))
                self.paid = self.done + count
                # So that a crash in this segment does not make the people pay for it again.
                self.save()
            self._advance(count)
        progress(f"{self.done:,} of {planned:,} {counted}", 1.0)
        return self._result("finished")

    def save(self) -> None:
        """The checkpoint; the logs are on disk by now."""
        if self.folder is None:
            return
        about = {
            "plan": self.plan,
            "done": self.done,
            "paid": self.paid,
            "seen": {name: str(values.dtype) for name, values in self.seen.items()},
            "logs": {} if self.logs is None else self.logs.positions(),
        }
        save_state(self.folder / CHECKPOINT, {"state": self.state, "seen": self.seen}, about)

    def _advance(self, count: int) -> None:
        state, seen = self.program.advance(self.state, count)
        fresh = {name: np.asarray(values) for name, values in seen.items()}
        if self.plan["curve"]:
            if self.logs is not None:
                self.logs.write(_rows(Replicas.from_dict(self.plan["replicas"]), self.done, fresh))
            self.seen = {
                name: np.concatenate([self.seen[name], values], axis=1) if self.seen else values
                for name, values in fresh.items()
            }
        self.state, self.done = drop_weak_types(state), self.done + count
        self.save()

    def _result(
        self, how: Literal["finished", "stopped", "budget"], reason: str = ""
    ) -> TrainingRun:
        return TrainingRun(self.state, self.seen, self.done, self.plan["episodes"], how, reason)


def _rows(replicas: Replicas, before: int, seen: Metrics) -> list[Row]:
    """A row for each episode and replica, in this order; episodes are counted from 1."""
    first = [name for name in ("return", "length") if name in seen]
    listed = {name: seen[name].tolist() for name in dict.fromkeys([*first, *sorted(seen)])}
    count = next(iter(seen.values())).shape[1]
    named = replicas.seeds is not None and replicas.count > 1
    return [
        {EPISODE: before + k + 1}
        | ({SEED: replicas.seeds[replica]} if named and replicas.seeds is not None else {})
        | {name: values[replica][k] for name, values in listed.items()}
        for k in range(count)
        for replica in range(replicas.count)
    ]
