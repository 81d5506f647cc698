"""Runs: training and evaluation in folders, sweeps, logs, clusters; and the engine of learners."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privrl.control.engine import learn, resume

__all__ = ["learn", "resume"]


def __getattr__(name: str) -> Any:
    """Load the engine when it is first used, so that help comes at once."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from privrl.control import engine

    return getattr(engine, name)
