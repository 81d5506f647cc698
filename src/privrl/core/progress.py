"""How a long computation tells whoever waits for it how far it is."""

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
