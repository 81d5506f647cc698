"""How a long computation tells whoever waits for it how far it is."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol


class Progress(Protocol):
    """Told what is being done and, where that is known, which share of everything is done."""

    def __call__(self, what: str, share: float | None = None) -> None:
        """`what` begins or goes on."""
        ...


def no_progress(what: str, share: float | None = None) -> None:
    """Tell nobody."""


class StepProgress(Protocol):
    """Told how many of so many steps are done."""

    def __call__(self, done: int, planned: int, /) -> None: ...


@dataclass(frozen=True)
class TrainingProgress:
    """How far a run is: nothing in it is private but the time, which is for the caller alone."""

    done: int
    planned: int
    unit: str
    """What is counted, such as "people"."""

    elapsed: float
    """Seconds since the run began, or went on. Certificates assume that nobody else is told."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means over the last step, such as "return": only where they are public."""

    @property
    def share(self) -> float:
        """Of everything, from 0 to 1."""
        return self.done / self.planned

    def __str__(self) -> str:
        return f"{self.done:,} of {self.planned:,} {self.unit}"


OnStep = Callable[[TrainingProgress], bool | None]
"""Called after each step; True ends the run there."""


@contextmanager
def progress_bar(steps: int | None = None) -> Iterator[Progress]:
    """A bar with the time left, on a terminal or in a notebook; nothing elsewhere.

    Call it as each step begins. Without a number of steps the bar moves when it is told which share
    of everything is done.
    """
    from rich import progress as rich
    from rich.console import Console

    from privrl.core.text import printable_line

    console = Console(stderr=True)
    columns = (
        rich.BarColumn(20),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.description}", markup=False),
    )
    shown = console.is_terminal or console.is_jupyter
    with rich.Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task("", total=steps)
        begun = 0

        def advance(what: str, share: float | None = None) -> None:
            nonlocal begun
            what = printable_line(what)
            if share is not None:
                bar.update(task, total=1.0, completed=share, description=what)
            elif steps is None:
                bar.update(task, total=None, description=what)
            else:
                bar.update(task, completed=begun, description=what)
                begun += 1

        yield advance
