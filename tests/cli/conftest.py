"""What the tests of commands that run long have in common."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@pytest.fixture(autouse=True)
def _compiled_quickly(compiled_quickly: None) -> None:
    """Here programs are played for an instant; slow tests compile what users run."""


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the next run stop when it is asked for the so-manieth time."""
    from privrl.run import training

    def soon(count: int) -> None:
        @contextmanager
        def interrupted() -> Iterator[Callable[[], bool]]:
            asked = iter([False] * count)
            yield lambda: next(asked, True)

        monkeypatch.setattr(training, "on_interrupt", interrupted)

    return soon
