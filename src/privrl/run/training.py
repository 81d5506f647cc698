"""Many replicas of a program at once, segment by segment: what sweeps run.

    found = train(program, 500, replicas_of([0, 1]), folder="runs/x", curve=True, formats=["csv"])
    found = resume(program, "runs/x")     # after a crash, from where the last segment ended

One run with a promise is `privrl.control.engine`'s, whose `Loop` and checkpoints these are too. A
*segment* is a number of episodes that is played compiled, in one call. After each, what was seen
goes to the logs and then the state to the checkpoint. Whoever goes on from it gets bit for bit what
an uninterrupted run gives. Rows that a crash left in the logs behind the checkpoint are cut off.

What was seen in an episode, such as its return, is about the person whose episode it was. It is
kept, logged and handed back only with `curve=True`, which is for public simulators.

Keys follow from seeds, so nothing here is secret: `privrl.control.engine` is for runs that protect
somebody. Two at once in the same folder are refused by a lock.
"""

import math
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

from privrl.control.engine import CHECKPOINT
from privrl.control.loop import (
    EPISODE,
    Loop,
    Row,
    Seen,
    default_segment,
    even_segment,
)
from privrl.control.program import Program, batch_of, drop_weak_types, read_about
from privrl.core import checks, files
from privrl.core.errors import InputError, OverBudget
from privrl.core.progress import Progress, no_progress
from privrl.run.logs import SEED, Logs

Ending = Literal["finished", "stopped", "budget"]
Pay = Callable[[int, int], None]
"""`pay(first, episodes)` is called before those episodes (the first is 0) and may refuse them."""


@dataclass(frozen=True)
class Replicas:
    """Runs that are played together: a seed for each, and settings by name, one for each."""

    seeds: tuple[int, ...]

    settings: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
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
        return len(self.seeds)

    def keys(self) -> jax.Array:
        """A key for each replica, which depends on its seed alone.

        So replicas with the same seed and other settings live in the same world: their difference
        is that of the settings.
        """
        from_seed = partial(jax.random.fold_in, jax.random.key(0))
        keys: jax.Array = jax.vmap(from_seed)(jnp.asarray(self.seeds, jnp.uint32))
        return keys

    def initial_state(self, program: Program) -> Any:
        """The program's state before the first episode."""
        for name in self.settings:
            if name not in program.sweepable:
                raise InputError(
                    f"{name!r} is not a setting that replicas can have: it must be one of "
                    f"{', '.join(program.sweepable)}."
                )
        given = {name: jnp.asarray(values, float) for name, values in self.settings.items()}
        return drop_weak_types(program.init(self.keys(), given))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "seeds": list(self.seeds),
            "settings": {k: list(v) for k, v in self.settings.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Replicas":
        return cls(
            tuple(data["seeds"]), {name: tuple(values) for name, values in data["settings"].items()}
        )


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
    ending: Ending
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
    about: Mapping[str, Any] = MappingProxyType({}),
    progress: Progress = no_progress,
    stop: Callable[[], bool] = never_stop,
    pay: Pay | None = None,
) -> TrainingRun:
    """Play `episodes` in every replica, with checkpoints and logs in `folder` if there is one.

    `segment` is the most episodes between two checkpoints, by default a twentieth of all and at
    most 10,000, but at least one batch of a program that has batches. `about` is JSON that says
    what run this is; `resume` refuses the checkpoint of another. Before each segment `stop` is
    asked, and then `pay`. If that raises `OverBudget`, the run ends there: what was played stays.
    """
    checks.count("episodes", episodes)
    most = default_segment(episodes)
    if segment is not None:
        most = checks.count("segment", segment)
    if formats and not (curve and folder is not None):
        raise InputError(
            "Logs hold the return of each episode, so they are written only where the curve may be "
            "kept, and into a folder."
        )
    plan = {
        "about": dict(about),
        "replicas": replicas.to_dict(),
        "episodes": episodes,
        "segment": even_segment(episodes, most, batch_of(program)),
        "curve": curve,
        "formats": list(formats),
    }
    with nullcontext() if folder is None else files.lock_folder(folder), jax.enable_x64(True):
        if folder is not None and (Path(folder) / CHECKPOINT).exists():
            raise InputError(f"{str(folder)!r} holds a run that was not finished: resume it.")
        place = None if folder is None else Path(folder)
        loop = _make_loop(program, plan, place, replicas.initial_state(program))
        loop.begin_logs()
        loop.save()
        return _run_to_end(loop, plan, progress, stop, pay)


def resume(
    program: Program,
    folder: str | Path,
    *,
    about: Mapping[str, Any] = MappingProxyType({}),
    progress: Progress = no_progress,
    stop: Callable[[], bool] = never_stop,
    pay: Pay | None = None,
) -> TrainingRun:
    """Go on from the checkpoint in `folder`; program and `about` are those of `train`."""
    place = Path(folder) / CHECKPOINT
    if not place.exists():
        raise InputError(f"There is no run to resume in {str(folder)!r}.")
    with files.lock_folder(folder), jax.enable_x64(True):
        said = read_about(place)
        try:
            plan, replicas = said["plan"], Replicas.from_dict(said["plan"]["replicas"])
            _ = int(said["paid"])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{str(place)!r} is not the checkpoint of a run.") from None
        if plan["about"] != dict(about):
            raise InputError(f"{str(folder)!r} holds another run, with other settings.")
        loop = _make_loop(program, plan, Path(folder), None)
        loop.about["paid"] = said["paid"]
        loop.load(lambda: replicas.initial_state(program))
        return _run_to_end(loop, plan, progress, stop, pay)


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


def _make_loop(program: Program, plan: Mapping[str, Any], folder: Path | None, state: Any) -> Loop:
    def step(state: Any, count: int) -> tuple[Any, Seen]:
        after, seen = program.advance(state, count)
        kept = {name: np.asarray(values) for name, values in seen.items()}
        return drop_weak_types(after), kept if plan["curve"] else {}

    return Loop(
        step,
        state,
        path=None if folder is None else folder / CHECKPOINT,
        about={"plan": plan, "paid": 0},
        loggers=[Logs(folder, plan["formats"])] if folder is not None and plan["formats"] else [],
        rows=partial(_rows, Replicas.from_dict(plan["replicas"])),
    )


def _run_to_end(
    loop: Loop,
    plan: Mapping[str, Any],
    progress: Progress,
    stop: Callable[[], bool],
    pay: Pay | None,
) -> TrainingRun:
    planned = plan["episodes"]

    def result(how: Ending, reason: str = "") -> TrainingRun:
        return TrainingRun(loop.state, loop.seen, loop.done, planned, how, reason)

    while loop.done < planned:
        progress(f"{loop.done:,} of {planned:,} episodes", loop.done / planned)
        if stop():
            return result("stopped")
        count = min(plan["segment"], planned - loop.done)
        if pay is not None and loop.about["paid"] < loop.done + count:
            try:
                pay(loop.done, count)
            except OverBudget as refusal:
                return result("budget", str(refusal))
            loop.about["paid"] = loop.done + count
            # So that a crash in this segment does not make the people pay for it again.
            loop.save()
        loop.advance(count)
        loop.save()
    progress(f"{loop.done:,} of {planned:,} episodes", 1.0)
    return result("finished")


def _rows(replicas: Replicas, before: int, seen: Seen) -> list[Row]:
    """A row for each episode and replica, in this order; episodes are counted from 1."""
    first = [name for name in ("return", "length") if name in seen]
    listed = {name: seen[name].tolist() for name in dict.fromkeys([*first, *sorted(seen)])}
    count = next(iter(seen.values())).shape[1]
    named = replicas.count > 1
    return [
        {EPISODE: before + k + 1}
        | ({SEED: replicas.seeds[replica]} if named else {})
        | {name: values[replica][k] for name, values in listed.items()}
        for k in range(count)
        for replica in range(replicas.count)
    ]
