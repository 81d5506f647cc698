"""Steps of a run: a state that goes on, what was seen on the way, and their checkpoint and logs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privrl.control.program import load_state, read_about, save_state
from privrl.core.errors import InputError

Row = Mapping[str, int | float]
Seen = dict[str, NDArray[Any]]
"""By name, what was seen in each episode: (..., episodes)."""

EPISODE = "episode"
"""The column that numbers rows, which every row has."""

# How many steps a run has where somebody looks on, unless they get too long to wait for.
_STEPS = 20
_LONGEST_STEP = 10_000


class Logger(Protocol):
    """Where rows of public or paid figures go: a file, or a service such as MLflow.

    A logger whose rows can be taken back also has `position`, in JSON's own types, and
    `seek(position)`, which forgets all rows behind it: a run that is resumed goes on from there.
    """

    def write(self, rows: Sequence[Row]) -> None:
        """Add rows; each has "episode"."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


class Loop:
    """A state that goes on step by step, what was seen on the way, and their checkpoint."""

    def __init__(
        self,
        step: Callable[[Any, int], tuple[Any, Seen]],
        state: Any,
        *,
        path: Path | None = None,
        about: Mapping[str, Any] | None = None,
        loggers: Sequence[Logger] = (),
        rows: Callable[[int, Seen], list[Row]],
    ) -> None:
        self.step, self.state, self.path = step, state, path
        self.about, self.loggers, self.rows = dict(about or {}), loggers, rows
        self.done = 0
        self.seen: Seen = {}

    def advance(self, count: int) -> Seen:
        """Play `count` more, and log what was seen of them."""
        self.state, fresh = self.step(self.state, count)
        self.log(self.rows(self.done, fresh) if fresh else [])
        self.seen = {
            name: np.concatenate([self.seen[name], values], axis=-1) if self.seen else values
            for name, values in fresh.items()
        }
        self.done += count
        return fresh

    def begin_logs(self) -> None:
        """Loggers that can be sought begin anew."""
        for logger in self.loggers:
            _seek(logger, None)

    def log(self, rows: Sequence[Row]) -> None:
        for logger in self.loggers if rows else ():
            logger.write(rows)

    def save(self) -> None:
        """Write the checkpoint, if there is one; the logs are on disk by now."""
        if self.path is not None:
            positions = [getattr(one, "position", None) for one in self.loggers]
            named = {"seen": _forms(self.seen), "state": None}
            if isinstance(self.state, dict):
                named["state"] = _forms(self.state)
            about = {**self.about, "done": self.done, "arrays": named, "logs": positions}
            save_state(self.path, {"state": self.state, "seen": self.seen}, about)

    def load(self, like: Callable[[], Any]) -> bool:
        """Go on from the checkpoint; whether its state is arrays by name, which need no `like`.

        `about` is then what was said about it.
        """
        assert self.path is not None
        said = read_about(self.path)
        try:
            done, positions = int(said["done"]), list(said["logs"])
            seen, named = (said["arrays"][one] for one in ("seen", "state"))
            empty = _zeros(seen), None if named is None else _zeros(named)
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{str(self.path)!r} is not the checkpoint of a run.") from None
        state = like() if empty[1] is None else empty[1]
        found, _ = load_state(self.path, {"state": state, "seen": empty[0]})
        self.done, self.state = done, found["state"]
        own = ("done", "arrays", "logs")
        self.about = {name: value for name, value in said.items() if name not in own}
        self.seen = {name: np.asarray(values) for name, values in found["seen"].items()}
        if named is not None:
            self.state = {name: np.asarray(values) for name, values in found["state"].items()}
        for logger, position in zip(self.loggers, positions, strict=False):
            _seek(logger, position)
        return named is not None


def episode_rows(before: int, seen: Seen) -> list[Row]:
    """A row for each episode of one run; episodes are counted from 1."""
    first = [name for name in ("return", "length") if name in seen]
    listed = {n: np.ravel(seen[n]).tolist() for n in dict.fromkeys([*first, *sorted(seen)])}
    count = len(next(iter(listed.values())))
    return [
        {EPISODE: before + k + 1, **{name: values[k] for name, values in listed.items()}}
        for k in range(count)
    ]


def no_rows(before: int, seen: Seen) -> list[Row]:
    """Of a run whose returns are not public."""
    return []


def _forms(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: [list(np.shape(one)), str(one.dtype)] for name, one in arrays.items()}


def _zeros(forms: Mapping[str, Any]) -> Seen:
    return {name: np.zeros(*form) for name, form in forms.items()}


def _seek(logger: Logger, position: Any) -> None:
    if hasattr(logger, "seek"):
        logger.seek(position)


def even_segment(episodes: int, most: int, batch: int = 1) -> int:
    """A multiple of `batch`, at most `most` (or one batch), that divides `episodes` if one does.

    Then every segment has the same size, and one compiled function plays them all. Sizes below a
    quarter of `most` are not tried: a checkpoint has its price too.
    """
    largest = max(1, min(most, episodes) // batch)
    tried = range(largest, largest // 4, -1)
    return batch * next((k for k in tried if episodes % (k * batch) == 0), largest)


def default_segment(planned: int) -> int:
    """The most that is played between two checkpoints, where nobody says another number."""
    return min(-(-planned // _STEPS), _LONGEST_STEP)
