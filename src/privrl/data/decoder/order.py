"""Whose rows they are and when: ids of trajectories and users, and times, checked in order.

Rows of a trajectory stand together, with times that go up; a trajectory belongs to one user; and
where batches by user are needed, a user's rows stand together too.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privrl.core.errors import InputError, option
from privrl.core.types import AnyArray
from privrl.data.arrow import (
    differs_from_previous,
    first_null,
    first_true,
    floats,
    item,
    normalize_array,
    take_rows,
    to_numpy,
)
from privrl.data.columns import ColumnPlan
from privrl.data.sources import Chunk, cell_error, private_error, wrong_type_error

_SORT = "sort the rows by trajectory and time, or pass " + option("sort", True)
_TOO_LONG = "the number does not fit into 64 bits with a sign"
# What one column of time may hold, in its several files.
_COMPARABLE = (
    {"whole numbers", "whole numbers beyond 2**53"},
    {"whole numbers", "fractions"},
    {"timestamps with a time zone"},
    {"timestamps without a time zone"},
)


class SeenIds:
    """Ids that have come and gone, in 8 bytes each: a word is kept as a 64-bit hash.

    Two words share a hash with probability 2^-64: among a million trajectories, a wrong refusal has
    a probability of about 3e-8. Whole numbers are kept as they are. Sorted runs of growing length
    are merged like the levels of a log-structured tree, so that each id is moved a few times only.
    """

    def __init__(self) -> None:
        self._levels: list[AnyArray] = []

    def add(self, ids: AnyArray) -> int | None:
        """Remember `ids`; the position of the first that was there before, if any."""
        if ids.size == 0:
            return None
        keys = ids if ids.dtype.kind == "i" else np.fromiter(map(hash, ids), np.int64, ids.size)
        order = np.argsort(keys, kind="stable")
        new = keys[order]
        again = np.zeros(keys.size, dtype=bool)
        again[order[1:]] = new[1:] == new[:-1]
        for level in self._levels:
            found = np.searchsorted(level, keys)
            again |= (found < level.size) & (level[np.minimum(found, level.size - 1)] == keys)
        if again.any():
            return int(np.argmax(again))
        self._levels.append(new)
        while len(self._levels) > 1 and self._levels[-2].size <= 2 * self._levels[-1].size:
            merged = np.concatenate([self._levels.pop(), self._levels.pop()])
            merged.sort(kind="stable")
            self._levels.append(merged)
        return None


@dataclass(frozen=True)
class Boundaries:
    """Which rows of a batch begin a trajectory, whose ids and users, and the times of all rows."""

    new: AnyArray
    starts: AnyArray
    ids: AnyArray
    users: AnyArray | None
    times: AnyArray | None


@dataclass(frozen=True)
class _PreviousRow:
    """The row before the next batch."""

    id: Any
    user: Any
    time: Any


@dataclass
class Order:
    """Checks trajectory, user and time of rows in the order in which they come.

    `whole_users` asks for each user's rows to stand together too, as batches by user need.
    """

    plan: ColumnPlan
    whole_users: bool = False
    _last: _PreviousRow | None = None
    _id_types: dict[str, str] = field(default_factory=dict)
    _time_types: set[str] = field(default_factory=set)
    _seen: SeenIds = field(default_factory=SeenIds)
    _seen_users: SeenIds = field(default_factory=SeenIds)

    def read(self, chunk: Chunk) -> Boundaries:
        """Where trajectories begin in the next rows, and when each row was."""
        plan, rows, last = self.plan, chunk.batch.num_rows, self._last
        ids = self.ids(chunk, "trajectory", plan.trajectory)
        new = np.empty(rows, dtype=bool)
        new[1:] = differs_from_previous(ids)
        new[0] = last is None or last.id != item(ids, 0)
        starts = np.flatnonzero(new)
        started = take_rows(ids, starts)
        again = self._seen.add(started)
        if again is not None:
            place = chunk.place(int(starts[again]))
            if chunk.origin is None:
                raise cell_error(
                    place, plan.trajectory, "a trajectory that had ended appears again", _SORT
                )
            # Sorted by user and trajectory, this is the only way left.
            what = "several users have a trajectory of this id, which must be unique"
            raise cell_error(place, plan.trajectory, what)
        times = None if plan.time is None else self._times(chunk, plan.time, new)
        users, last_user = self._users(chunk, new, starts)
        last_time = None if times is None else times[-1]
        self._last = _PreviousRow(item(ids, rows - 1), last_user, last_time)
        return Boundaries(new, starts, started, users, times)

    def ids(self, chunk: Chunk, role: str, name: str) -> Any:
        """64-bit integers, or words as Arrow keeps them."""
        array = normalize_array(chunk.column(name))
        if pa.types.is_decimal(array.type) and array.type.scale == 0:
            array = _from_decimals(chunk, name, array)  # DuckDB's longest integers
        if pa.types.is_integer(array.type):
            kind = "whole numbers"
        elif pa.types.is_large_string(array.type):
            kind = "words"
        elif pa.types.is_null(array.type):
            raise cell_error(chunk.place(0), name, f"the {role} id is null")
        else:
            raise InputError(
                f"{chunk.file}: column {name!r} holds {array.type}, but a {role} id must be a "
                "whole number or a word."
            )
        if self._id_types.setdefault(role, kind) != kind:
            raise InputError(
                f"{chunk.file}: column {name!r} holds {kind}, but {self._id_types[role]} before."
            )
        if array.null_count:
            raise cell_error(chunk.place(first_null(array)), name, f"the {role} id is null")
        return integers(chunk, name, array) if kind == "whole numbers" else array

    def _users(self, chunk: Chunk, new: AnyArray, starts: AnyArray) -> tuple[AnyArray | None, Any]:
        name, last = self.plan.user, self._last
        if name is None:
            return None, None
        users = self.ids(chunk, "user", name)
        changed = np.empty(new.size, dtype=bool)
        changed[1:] = differs_from_previous(users)
        changed[0] = last is None or last.user != item(users, 0)
        torn = changed & ~new
        if torn.any():
            raise cell_error(
                chunk.place(first_true(torn)),
                name,
                "the user changes within a trajectory, so its id is not unique across users",
            )
        if self.whole_users:
            begins = np.flatnonzero(changed)
            again = self._seen_users.add(take_rows(users, begins))
            if again is not None:
                raise cell_error(
                    chunk.place(int(begins[again])),
                    name,
                    "a user whose rows had ended appears again",
                    "sort the rows by user, trajectory and time, or pass " + option("sort", True),
                )
        return take_rows(users, starts), item(users, new.size - 1)

    def _times(self, chunk: Chunk, name: str, new: AnyArray) -> AnyArray:
        array, last = normalize_array(chunk.column(name)), self._last
        if array.null_count:
            raise cell_error(chunk.place(first_null(array)), name, "the time is null")
        kind = array.type
        times: AnyArray
        if pa.types.is_integer(kind):
            narrow = kind.bit_width < 32 or kind == pa.int32()
            times = (
                to_numpy(array).astype(np.int32, copy=False)
                if narrow
                else integers(chunk, name, array)
            )
        elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            times = floats(array)
            if not np.isfinite(times).all():
                raise cell_error(
                    chunk.place(first_true(~np.isfinite(times))), name, "the time is not finite"
                )
        elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            times = self._timestamps(chunk, name, array)
        else:
            raise wrong_type_error(chunk, name, array, "a time must be a number or a timestamp")
        self._same_times(chunk, name, times, getattr(kind, "tz", None) is not None)
        late = np.empty(new.size, dtype=bool)
        np.less_equal(times[1:], times[:-1], out=late[1:])
        late[0] = last is not None and times[0] <= last.time
        late &= ~new
        if late.any():
            row = first_true(late)
            before = times[row - 1]
            if not row:
                assert last is not None  # or the first row would not be late
                before = last.time
            if times[row] == before:
                what = "the step is there twice, at the same time of the same trajectory"
                raise cell_error(chunk.place(row), name, what)
            raise cell_error(
                chunk.place(row), name, "the time goes back within a trajectory", _SORT
            )
        return times

    def _timestamps(self, chunk: Chunk, name: str, array: Any) -> AnyArray:
        """In the unit of the first file, if every later one fits into it exactly."""
        if pa.types.is_date(array.type):
            array = pc.cast(array, pa.timestamp("s"))
        unit, zone = array.type.unit, array.type.tz
        if self._last is not None and self._last.time.dtype.kind == "M":
            unit = np.datetime_data(self._last.time.dtype)[0]
        if unit != array.type.unit:
            try:
                array = pc.cast(array, pa.timestamp(unit, zone))
            except pa.ArrowException:
                raise private_error(
                    f"{chunk.file}: column {name!r} holds {array.type}, with times that do not fit "
                    f"the timestamp[{unit}] before."
                ) from None
        times: AnyArray = to_numpy(pc.cast(array, pa.int64())).view(f"datetime64[{unit}]")
        if np.isnat(times).any():
            row = first_true(np.isnat(times))
            raise cell_error(
                chunk.place(row), name, "the time lies outside the range of timestamps"
            )
        return times

    def _same_times(self, chunk: Chunk, name: str, times: AnyArray, zoned: bool) -> None:
        """Files may hold different types of time, if those can be compared and joined."""
        if times.dtype.kind == "M":
            found = "timestamps with a time zone" if zoned else "timestamps without a time zone"
        elif times.dtype.kind == "f":
            found = "fractions"
        elif times.dtype == np.int64 and max(-int(times.min()), int(times.max())) > 2**53:
            found = "whole numbers beyond 2**53"
        else:
            found = "whole numbers"
        before = self._time_types
        self._time_types = before | {found}
        if not any(self._time_types <= one for one in _COMPARABLE):
            raise private_error(
                f"{chunk.file}: column {name!r} holds {found}, which cannot be compared with the "
                f"{' and '.join(sorted(before))} before."
            )


def _from_decimals(chunk: Chunk, name: str, array: Any) -> Any:
    """Decimals without fractions as 64-bit integers."""
    try:
        return pc.cast(array, pa.int64())
    except pa.ArrowInvalid:
        cells = array.to_pylist()
        long = [cell is not None and not -(2**63) <= cell < 2**63 for cell in cells]
        raise cell_error(chunk.place(long.index(True)), name, _TOO_LONG) from None


def integers(chunk: Chunk, name: str, array: Any) -> AnyArray:
    """64-bit integers; the array holds no null."""
    values: AnyArray = to_numpy(array)
    if values.dtype == np.uint64 and values.size and values.max() > np.uint64(2**63 - 1):
        row = first_true(values > np.uint64(2**63 - 1))
        raise cell_error(chunk.place(row), name, _TOO_LONG)
    return values.astype(np.int64, copy=False)
