"""From sorted rows to exactly N people, each themselves or neutral: steps 2 to 5 of the map."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from privrl.core.types import AnyArray
from privrl.data.arrow import differs_from_previous, to_numpy
from privrl.data.columns import ColumnPlan
from privrl.data.neutral.schema import Field, Shape, fill_value
from privrl.data.sources import Chunk, sort_order


@dataclass(frozen=True)
class People:
    """Valid rows in order: those of owner k are the trajectories with `owners` k."""

    columns: dict[str, AnyArray]
    per_trajectory: dict[str, AnyArray]
    starts: AnyArray
    owners: AnyArray
    count: int


def in_memory(chunks: Iterable[Chunk], shape: Shape) -> People:
    """All people of a table: exactly as many as the caller says."""
    wanted = shape.plan.people
    assert wanted is not None
    batches = [chunk.batch for chunk in chunks]
    if not batches:
        return neutral_people(shape, wanted)
    table = pa.Table.from_batches(batches).combine_chunks()
    order = sort_order(table, shape.sorting, "The table")
    found = take_first(people(table.take(pa.array(order)).combine_chunks(), shape), wanted)
    return concatenate(found, neutral_people(shape, wanted - found.count))


def in_batches(chunks: Iterable[Chunk], shape: Shape, batch_rows: int) -> Iterator[People]:
    """All people, a few at a time, from rows together by owner; each part fits into a batch."""
    wanted, held = shape.plan.people, None
    assert wanted is not None
    for chunk in chunks:
        new = pa.Table.from_batches([chunk.batch])
        held = new if held is None else pa.concat_tables([held, new])
        if held.num_rows <= batch_rows:
            continue
        held = held.combine_chunks()
        begins = np.flatnonzero(_changes(held.column(shape.owner)))
        last = int(begins[-1])
        if last > 0:
            found = take_first(people(held.slice(0, last), shape, batch_rows), wanted)
            wanted -= found.count
            if found.count:
                yield found
        # Of an owner with too many rows no more are kept than show that there are too many.
        held = held.slice(last, batch_rows + 1)
    if held is not None and held.num_rows:
        found = take_first(people(held.combine_chunks(), shape, batch_rows), wanted)
        wanted -= found.count
        if found.count:
            yield found
    while wanted > 0:
        yield neutral_people(shape, min(wanted, batch_rows))
        wanted -= min(wanted, batch_rows)


def people(table: Any, shape: Shape, most_rows: int | None = None) -> People:
    """Whoever is in sorted rows: themselves if they are valid, or the neutral person."""
    rows, asked = table.num_rows, shape.plan
    begins = _changes(table.column(shape.owner))
    new = begins | _changes(table.column("trajectory"))
    last = np.append(new[1:], True)
    owner = np.cumsum(begins) - 1
    wrong = ~to_numpy(table.column("trajectory").is_valid())
    columns: dict[str, AnyArray] = {}
    if shape.times is not None:
        times, there = _read_column(table, "time")
        late = np.append(False, times[1:] <= times[:-1]) & ~new
        wrong |= ~there | late
        columns["times"] = times
    for role, field in (("state", shape.state), ("action", shape.action)):
        values, bad = _resolve_nulls(table, asked, role, field, new)
        columns[f"{role}s"], wrong = values, wrong | bad
    continuous = shape.action.count is None
    for key, role in (
        ("rewards", "reward"),
        ("behavior_probs", "behavior_prob"),
        ("target_probs", "target_prob"),
    ):
        name = getattr(asked, role)
        if name is None:
            continue
        values, there = _read_column(table, role)
        values, bad = _apply_null_rule(values, there, asked.rule(name), asked.fill.get(name), new)
        if role != "reward":
            with np.errstate(invalid="ignore"):
                fits = values >= 0.0 if role == "target_prob" else values > 0.0
                bad |= ~(fits & (values < np.inf if continuous else values <= 1.0))
        columns[key], wrong = values, wrong | bad | np.isnan(values)
    ends: dict[str, AnyArray] = {}
    for role in ("terminated", "truncated"):
        name = getattr(asked, role)
        values = np.full(rows, bool(name))
        if isinstance(name, str):
            found, there = _read_column(table, role)
            found, bad = _apply_null_rule(found, there, asked.rule(name), asked.fill.get(name), new)
            wrong |= bad | ~((found == 0.0) | (found == 1.0)) | ((found == 1.0) & ~last)
            values = found == 1.0
        ends[role] = values
    if asked.next_state is not None:
        after, bad, known = _next_states(table, shape, columns["states"], last)
        lost = last & ~known & ~ends["terminated"]
        wrong |= bad | lost
        ends["final_states"] = after
    count = int(owner[-1]) + 1
    valid = np.bincount(owner, wrong, count) == 0
    if most_rows is not None:
        valid &= np.bincount(owner, minlength=count) <= most_rows
    # Whoever is not valid keeps the first of their rows, which then becomes the neutral one.
    kept = np.flatnonzero(valid[owner] | begins)
    blank = ~valid[owner[kept]]
    given = neutral_people(shape, 1)
    for name, values in columns.items():
        values = values[kept]
        values[blank] = given.columns[name][0]
        columns[name] = values
    starts = np.flatnonzero(new[kept])
    # The last row that is kept of each trajectory.
    closing = np.append(starts[1:], kept.size) - 1
    for name, values in ends.items():
        values = values[kept[closing]]
        values[blank[closing]] = given.per_trajectory[name][0]
        ends[name] = values
    return People(columns, ends, starts, owner[kept[starts]], count)


def neutral_people(shape: Shape, count: int) -> People:
    """So many neutral persons: a row each, see the module."""
    asked = shape.plan

    def values(field: Field) -> AnyArray:
        if field.count is not None:
            return np.zeros(count, dtype=np.int32)
        return np.zeros((count, field.length))

    columns: dict[str, AnyArray] = {
        "states": values(shape.state),
        "actions": values(shape.action),
        "rewards": np.zeros(count),
    }
    for key, name in (("behavior_probs", asked.behavior_prob), ("target_probs", asked.target_prob)):
        if name is not None:
            columns[key] = np.ones(count)
    if shape.times is not None:
        columns["times"] = np.zeros(count, np.int64 if shape.times == "whole" else np.float64)
    ends: dict[str, AnyArray] = {
        name: np.zeros(count, bool) for name in ("terminated", "truncated")
    }
    if asked.next_state is not None:
        ends["final_states"] = values(shape.state)
    return People(columns, ends, np.arange(count), np.arange(count), count)


def take_first(found: People, count: int) -> People:
    """The first so many of them."""
    if found.count <= count:
        return found
    trajectories = int(np.searchsorted(found.owners, count))
    rows = int(found.starts[trajectories])
    return People(
        {name: values[:rows] for name, values in found.columns.items()},
        {name: values[:trajectories] for name, values in found.per_trajectory.items()},
        found.starts[:trajectories],
        found.owners[:trajectories],
        count,
    )


def concatenate(one: People, other: People) -> People:
    """Both, in this order."""

    def both(a: dict[str, AnyArray], b: dict[str, AnyArray]) -> dict[str, AnyArray]:
        return {name: np.concatenate([a[name], b[name]]) for name in a}

    return People(
        both(one.columns, other.columns),
        both(one.per_trajectory, other.per_trajectory),
        np.concatenate([one.starts, other.starts + len(one.columns["rewards"])]),
        np.concatenate([one.owners, other.owners + one.count]),
        one.count + other.count,
    )


def _read_column(table: Any, name: str) -> tuple[AnyArray, AnyArray]:
    """Values, with 0 for nulls, and where there are any."""
    column = table.column(name).combine_chunks()
    there = to_numpy(column.is_valid())
    return to_numpy(column.fill_null(0)).copy(), there


def _resolve_nulls(
    table: Any, asked: ColumnPlan, role: str, field: Field, new: AnyArray
) -> tuple[AnyArray, AnyArray]:
    """States or actions with nulls answered, and which rows are not valid all the same."""
    wrong, parts = np.zeros(new.size, dtype=bool), []
    for position, name in enumerate(field.names):
        values, there = _read_column(table, f"{role}{name}")
        column = field.columns[min(position, len(field.columns) - 1)]
        given = fill_value(asked, field, column) if column in asked.fill else None
        values, bad = _apply_null_rule(values, there, asked.rule(column), given, new)
        wrong |= bad | np.isnan(values)
        parts.append(values)
    if field.count is None:
        return np.column_stack(parts), wrong
    return np.where(wrong, 0, parts[0]).astype(np.int32), wrong


def _apply_null_rule(
    values: AnyArray, there: AnyArray, rule: str, given: Any, new: AnyArray
) -> tuple[AnyArray, AnyArray]:
    """Nulls answered by the rule for their column, and which rows have none to be answered by."""
    if rule == "fill":
        return np.where(there, values, float(given)), np.zeros(new.size, dtype=bool)
    if rule == "refuse":
        return values, ~there
    here = np.arange(new.size)
    source = np.maximum.accumulate(np.where(there, here, -1))
    begin = np.maximum.accumulate(np.where(new, here, -1))
    return values[np.maximum(source, 0)], source < begin


def _next_states(
    table: Any, shape: Shape, states: AnyArray, last: AnyArray
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The state after each row, which rows are not valid for it, and where it is known."""
    parts, bad = [], np.zeros(last.size, dtype=bool)
    known = np.ones(last.size, dtype=bool)
    for name in shape.state.names:
        values, there = _read_column(table, f"next{name}")
        bad |= there & np.isnan(values)
        known &= there
        parts.append(values)
    after = np.column_stack(parts) if shape.state.count is None else parts[0]
    differs = np.zeros(last.size, dtype=bool)
    apart = after[:-1] != states[1:]
    differs[:-1] = apart.any(axis=1) if apart.ndim == 2 else apart
    bad |= known & ~last & differs
    # Where none is given for a trajectory that terminated, nothing bootstraps from it.
    after = np.where(known if after.ndim == 1 else known[:, None], after, states)
    return np.where(np.isnan(after), 0.0, after).astype(states.dtype), bad, known


def _changes(column: Any) -> AnyArray:
    """Whether each entry differs from the one before it; the first does."""
    return np.append(True, differs_from_previous(column))
