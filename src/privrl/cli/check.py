"""`privrl check`: whether a table can be read as it is said to be."""

from typing import Any

from privrl.cli.common import progress
from privrl.cli.derived import function
from privrl.cli.printing import answer
from privrl.run.specs.base import RunOptions
from privrl.run.specs.table import EvaluateOptions, TableOptions

_NOT_CHECKED = ("reward_range", "invalid", "people")
_OTHERS = ("behavior_prob", "target_prob", "state_range", "stream")


def _check(given: dict[str, Any]) -> None:
    """Validate a table as evaluate and train logged-q do, for its curator alone.

    What is printed, and the exit code, are about private data: nobody else may see them.
    """
    from privrl.run.request import Request

    config, as_json = given.pop("config"), given.pop("json")
    given["table"] = tuple(given["table"] or ())
    with progress(None) as advance:
        advance("loading")
        found = Request.of(given, config).check()
    told = "The table is valid. This is about private data: keep it to yourself."
    counts = {"valid": True, "private": True, **found.counts}
    answer(as_json, counts, *found.words.split("\n"), told)


def _options() -> list[Any]:
    table = [one for name, one in TableOptions.options().items() if name not in _NOT_CHECKED]
    others = [one for name, one in EvaluateOptions.options().items() if name in _OTHERS]
    return [*table, *others, *(RunOptions.options()[name] for name in ("config", "json"))]


check = function(_check.__doc__, _options(), _check)
