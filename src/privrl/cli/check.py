"""`privrl check`: whether a table can be read as it is said to be."""

from typing import Any

from privrl.cli.derived import function
from privrl.cli.printing import answer
from privrl.core.progress import progress_bar
from privrl.run.specs.base import RunOptions
from privrl.run.specs.table import EvaluateOptions, TableOptions

_NOT_CHECKED = ("reward_range", "invalid", "people")
_OTHERS = ("behavior_prob", "target_prob", "state_range", "stream")


def _check(given: dict[str, Any]) -> None:
    """Validate a table as evaluate and train logged-q do, for its curator alone.

    What is printed, and the exit code, are about private data: nobody else may see them.
    """
    from privrl.run.request import Request

    with progress_bar(None) as advance:
        advance("loading")
        found = Request.of(given, given.pop("config")).check()
    told = "The table is valid. This is about private data: keep it to yourself."
    counts = {one: getattr(found, f"num_{one}") for one in ("trajectories", "users", "steps")}
    answer({"valid": True, "private": True, **counts}, *found.summary().split("\n"), told)


_OPTIONS = {
    **{name: one for name, one in TableOptions.options().items() if name not in _NOT_CHECKED},
    **{name: EvaluateOptions.options()[name] for name in _OTHERS},
    "config": RunOptions.options()["config"],
}
run = function(_check.__doc__, _OPTIONS.values(), _check)
