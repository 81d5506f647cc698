"""A sweep: a runner with a grid of settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privrl.core.errors import InputError
from privrl.core.spec import number
from privrl.run.parsing import positive_integer
from privrl.run.runners.base import Runner
from privrl.run.specs.base import over_config

if TYPE_CHECKING:
    from privrl.run.sweep import SweepPlan


def parse_grid(words: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """The values of each setting, out of words such as actor_step=0.1,0.5."""
    grid: dict[str, tuple[float, ...]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not name:
            raise InputError(f"A grid is said as actor_step=0.1,0.5 and not as {word!r}.")
        if name in grid:
            raise InputError(f"{name} is in the grid twice: say all its values at once.")
        grid[name] = tuple(
            number(f"A value of {name} in the grid", one)
            for one in values.split(",")
            if one.strip()
        )
    return grid


def plan_sweep(
    words: Mapping[str, Any],
    grid: Sequence[str],
    options: Sequence[str],
    config: str | Path | None = None,
) -> tuple[Runner, "SweepPlan"]:
    """A sweep: what learns, and what is played of it.

    `words` are options, also those of a `SweepPlan`; `grid` are words such as actor_step=0.1,0.5,
    and `options` such as acting=softmax. A configuration file has its grid as a table.
    """
    from privrl.run.sweep import SweepPlan

    given = over_config(words, config)
    if "lanes" in given:
        raise InputError("are called replicas now.", field="lanes")
    in_file = given.pop("grid", {})
    if not isinstance(in_file, Mapping):
        raise InputError("must be a table of settings, each with a list of values.", field="grid")
    values = {name: _values(name, listed) for name, listed in in_file.items()} | parse_grid(grid)
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise InputError(f"Options are set as acting=softmax and not as {option!r}.")
        given[name] = value == "true" if value in ("true", "false") else value
    for name in ("ledger", "logs", "name", "seed"):
        if name in given:
            raise InputError("is no option of a sweep: leave it out.", field=name)
    plan = {name: given.pop(name) for name in ("seeds", "replicas", "segment") if name in given}
    wholes = {name: positive_integer(name, value) for name, value in plan.items()}
    curves = given.pop("curves", False)
    if not isinstance(curves, bool):
        raise InputError(f"must be true or false, not {curves!r}.", field="curves")
    runner: Runner = Runner.of(given)
    episodes = runner.count
    runner.ask(tuple(values))
    if not values:
        raise InputError(
            "is needed: say with --grid a setting and its values, such as "
            "actor_step=0.1,0.5, once for each setting.",
            field="grid",
        )
    return runner, SweepPlan(values, episodes=episodes, curves=curves, **{"seeds": 10} | wholes)


def _values(name: str, listed: Any) -> tuple[float, ...]:
    values = listed if isinstance(listed, list | tuple) else [listed]
    return tuple(number(f"A value of {name} in the grid", value) for value in values)
