"""From Arrow batches to checked NumPy columns, one batch at a time.

`Decoder.block` takes the next batch of rows and either returns it checked and converted, or raises
one sentence with file, column and first offending row. What a later row must agree with (the
trajectory and user it continues, the time it follows, the value to carry forward) is kept from
batch to batch, so a trajectory that straddles row groups or files is checked, and put together, as
if it did not. Everything is vectorised; Python runs per batch and, for ids in words, per
trajectory.

No message quotes a cell: rows are private, their positions are for their owner to look up.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privrl.core.errors import InputError, option
from privrl.core.types import AnyArray
from privrl.data.arrow import (
    differ,
    first_null,
    first_true,
    floats,
    is_list,
    is_number,
    item,
    plain,
    taken,
    to_numpy,
    valid_mask,
)
from privrl.data.columns import MOST_VALUES, Plan, Word
from privrl.data.sources import Chunk, at, private

Kind = Literal["index", "word", "vector"]

_SORT = "sort the rows by trajectory and time, or pass " + option("sort", True)
_TOO_LONG = "the number does not fit into 64 bits with a sign"
# What one column of time may hold, in its several files.
_COMPARABLE = (
    {"whole numbers", "whole numbers beyond 2**53"},
    {"whole numbers", "fractions"},
    {"timestamps with a time zone"},
    {"timestamps without a time zone"},
)
_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


@dataclass
class Block:
    """Checked rows. `ends` has one entry for each trajectory now known to have ended."""

    rows: int
    starts: AnyArray
    ids: AnyArray
    users: AnyArray | None
    columns: dict[str, AnyArray]
    ends: dict[str, AnyArray]


@dataclass
class _Last:
    """The row before the next batch."""

    place: tuple[str, int]
    id: Any
    user: Any
    time: Any
    flags: dict[str, bool]
    successor: AnyArray | None
    successor_known: bool


class Seen:
    """Ids that have come and gone, in 8 bytes each: a word is kept as a 64-bit hash.

    Two words share a hash with probability 2^-64: among a million trajectories, a wrong refusal has
    a chance of about 3e-8. Whole numbers are kept as they are. Sorted runs of growing length are
    merged like the levels of a log-structured tree, so that each id is moved a few times only.
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


@dataclass
class Vocabulary:
    """The words of one discrete column: given, or collected while reading."""

    words: list[Word]
    given: bool


@dataclass
class Decoder:
    """Checks rows in the order in which they come.

    `whole_users` asks for each user's rows to stand together too, as batches by user need.
    """

    plan: Plan
    whole_users: bool = False
    may_collect_words: bool = True
    kinds: dict[str, Kind] = field(default_factory=dict)
    dimensions: dict[str, int] = field(default_factory=dict)
    vocabularies: dict[str, Vocabulary] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    _last: _Last | None = None
    _carried: dict[str, Any] = field(default_factory=dict)
    _id_types: dict[str, str] = field(default_factory=dict)
    _time_types: set[str] = field(default_factory=set)
    _seen: Seen = field(default_factory=Seen)
    _seen_users: Seen = field(default_factory=Seen)

    def block(self, chunk: Chunk) -> Block:
        """The next rows, checked. The batch must hold at least one."""
        try:
            return self._block(chunk)
        except (pa.ArrowException, UnicodeDecodeError):
            # What passes every check and cannot be converted. Arrow may quote the cell: not us.
            row = chunk.place(0)[1]
            raise private(
                f"{chunk.file} cannot be read: after row {row} (counting from 0) a value does not "
                "fit its type."
            ) from None

    def _block(self, chunk: Chunk) -> Block:
        plan, rows, last = self.plan, chunk.batch.num_rows, self._last
        ids = self._ids(chunk, "trajectory", plan.trajectory)
        new = np.empty(rows, dtype=bool)
        new[1:] = differ(ids)
        new[0] = last is None or last.id != item(ids, 0)
        starts = np.flatnonzero(new)
        started = taken(ids, starts)
        again = self._seen.add(started)
        if again is not None:
            place = chunk.place(int(starts[again]))
            if chunk.origin is None:
                raise at(place, plan.trajectory, "a trajectory that had ended appears again", _SORT)
            # Sorted by user and trajectory, this is the only way left.
            what = "several users have a trajectory of this id, which must be unique"
            raise at(place, plan.trajectory, what)
        columns: dict[str, AnyArray] = {}
        if plan.time is not None:
            columns["times"] = self._times(chunk, plan.time, new)
        users, last_user = self._users(chunk, new, starts)
        columns["states"], _ = self._field(chunk, "state", plan.state, new)
        columns["actions"], _ = self._field(chunk, "action", plan.action, new)
        columns["rewards"] = self._reward(chunk, new)
        for key, name, zero in (
            ("behavior_probs", plan.behavior_prob, False),
            ("target_probs", plan.target_prob, True),
        ):
            if name is not None:
                columns[key] = self._probability(chunk, name, new, zero)
        flags, ends = self._ends(chunk, new, starts)
        successor, known = self._successors(chunk, columns["states"], new, starts, flags, ends)
        self._last = _Last(
            chunk.place(rows - 1),
            item(ids, rows - 1),
            last_user,
            columns["times"][-1] if plan.time is not None else None,
            {name: bool(values[-1]) for name, values in flags.items()},
            successor,
            known,
        )
        self.rows += rows
        return Block(rows, starts, started, users, columns, ends)

    def close(self) -> dict[str, AnyArray]:
        """The end of the last trajectory."""
        last = self._last
        assert last is not None
        ends: dict[str, AnyArray] = {
            name: np.array([last.flags[name]]) for name in ("terminated", "truncated")
        }
        if self.plan.next_state is not None:
            if not last.successor_known and not last.flags["terminated"]:
                raise self._no_successor(last.place)
            assert last.successor is not None
            ends["final_states"] = last.successor[None]
        return ends

    # --- ids, users and time -------------------------------------------------------------------

    def _ids(self, chunk: Chunk, role: str, name: str) -> Any:
        """64-bit integers, or words as Arrow keeps them."""
        array = plain(chunk.column(name))
        if pa.types.is_decimal(array.type) and array.type.scale == 0:
            array = _from_decimals(chunk, name, array)  # DuckDB's longest integers
        if pa.types.is_integer(array.type):
            kind = "whole numbers"
        elif pa.types.is_large_string(array.type):
            kind = "words"
        elif pa.types.is_null(array.type):
            raise at(chunk.place(0), name, f"the {role} id is null")
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
            raise at(chunk.place(first_null(array)), name, f"the {role} id is null")
        return _integers(chunk, name, array) if kind == "whole numbers" else array

    def _users(self, chunk: Chunk, new: AnyArray, starts: AnyArray) -> tuple[AnyArray | None, Any]:
        name, last = self.plan.user, self._last
        if name is None:
            return None, None
        users = self._ids(chunk, "user", name)
        changed = np.empty(new.size, dtype=bool)
        changed[1:] = differ(users)
        changed[0] = last is None or last.user != item(users, 0)
        torn = changed & ~new
        if torn.any():
            raise at(
                chunk.place(first_true(torn)),
                name,
                "the user changes within a trajectory, so its id is not unique across users",
            )
        if self.whole_users:
            begins = np.flatnonzero(changed)
            again = self._seen_users.add(taken(users, begins))
            if again is not None:
                raise at(
                    chunk.place(int(begins[again])),
                    name,
                    "a user whose rows had ended appears again",
                    "sort the rows by user, trajectory and time, or pass " + option("sort", True),
                )
        return taken(users, starts), item(users, new.size - 1)

    def _times(self, chunk: Chunk, name: str, new: AnyArray) -> AnyArray:
        array, last = plain(chunk.column(name)), self._last
        if array.null_count:
            raise at(chunk.place(first_null(array)), name, "the time is null")
        kind = array.type
        times: AnyArray
        if pa.types.is_integer(kind):
            narrow = kind.bit_width < 32 or kind == pa.int32()
            times = (
                to_numpy(array).astype(np.int32, copy=False)
                if narrow
                else _integers(chunk, name, array)
            )
        elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            times = floats(array)
            if not np.isfinite(times).all():
                raise at(
                    chunk.place(first_true(~np.isfinite(times))), name, "the time is not finite"
                )
        elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            times = self._timestamps(chunk, name, array)
        else:
            raise self._wrong_type(chunk, name, array, "a time must be a number or a timestamp")
        self._same_times(chunk, name, times, getattr(kind, "tz", None) is not None)
        late = np.empty(new.size, dtype=bool)
        np.less_equal(times[1:], times[:-1], out=late[1:])
        late[0] = last is not None and times[0] <= last.time
        late &= ~new
        if late.any():
            row = first_true(late)
            before = times[row - 1] if row else last.time  # type: ignore[union-attr]
            if times[row] == before:
                what = "the step is there twice, at the same time of the same trajectory"
                raise at(chunk.place(row), name, what)
            raise at(chunk.place(row), name, "the time goes back within a trajectory", _SORT)
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
                raise private(
                    f"{chunk.file}: column {name!r} holds {array.type}, with times that do not fit "
                    f"the timestamp[{unit}] before."
                ) from None
        times: AnyArray = to_numpy(pc.cast(array, pa.int64())).view(f"datetime64[{unit}]")
        if np.isnat(times).any():
            row = first_true(np.isnat(times))
            raise at(chunk.place(row), name, "the time lies outside the range of timestamps")
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
            raise private(
                f"{chunk.file}: column {name!r} holds {found}, which cannot be compared with the "
                f"{' and '.join(sorted(before))} before."
            )

    # --- states and actions --------------------------------------------------------------------

    def _field(
        self,
        chunk: Chunk,
        role: str,
        names: str | tuple[str, ...],
        new: AnyArray,
        free: bool = False,
    ) -> tuple[AnyArray, AnyArray | None]:
        """States or actions: 32-bit indices, or rows of 64-bit floats. `free` lets nulls pass.

        Also which entries are there, when `free`.
        """
        if isinstance(names, tuple):
            self.kinds.setdefault(role, "vector")
            out = np.empty((new.size, len(names)))
            there = np.ones(new.size, dtype=bool)
            for position, name in enumerate(names):
                values, valid = self._number(chunk, name, role)
                values, valid = self._answer(chunk, role, name, values, valid, new, free)
                self._finite(chunk, name, values, role)
                out[:, position] = values
                if valid is not None:
                    there &= valid
            return out, there if free else None
        array = plain(chunk.column(names))
        kind = self.kinds.get(role) or self._kind(chunk, role, names, array)
        if kind == "vector":
            decoded, valid = self._vector(chunk, role, names, array)
        elif kind == "word":
            decoded, valid = self._word(chunk, role, names, array)
        else:
            decoded, valid = self._index(chunk, role, names, array)
        # Only a column that was understood settles what the next ones must be.
        self.kinds[role] = kind
        decoded, valid = self._answer(chunk, role, names, decoded, valid, new, free)
        if kind == "vector":
            self._finite(chunk, names, decoded, role)
        return decoded, (np.ones(new.size, dtype=bool) if valid is None else valid)

    def _kind(self, chunk: Chunk, role: str, name: str, array: Any) -> Kind:
        facts, t = self.plan.facts, array.type
        count = facts.num_states if role == "state" else facts.num_actions
        words = facts.state_vocabulary if role == "state" else facts.action_vocabulary
        if words is not None:
            self.vocabularies[role] = Vocabulary(list(words), given=True)
            return "word"
        if pa.types.is_large_string(t):
            if count is not None:
                needed = f"each {role} must be a whole number (if they are words, "
                raise self._wrong_type(chunk, name, array, needed + _listed(role) + ")")
            if not self.may_collect_words:
                raise InputError(
                    f"{chunk.file}: column {name!r} holds words, so a stream needs "
                    + option(f"{role}_vocabulary"),
                    remedy=_listed(role) + ".",
                )
            self.vocabularies[role] = Vocabulary([], given=False)
            return "word"
        if pa.types.is_integer(t) or pa.types.is_boolean(t) or count is not None:
            return "index"
        if pa.types.is_floating(t) or pa.types.is_decimal(t) or is_list(t):
            return "vector"
        if pa.types.is_null(t):
            raise at(chunk.place(0), name, f"the {role} is null, like the rest of its batch")
        raise self._wrong_type(
            chunk, name, array, f"{'an' if role == 'action' else 'a'} {role} must be a number, a "
            "word or a list of numbers"
        )  # fmt: skip

    def _index(
        self, chunk: Chunk, role: str, name: str, array: Any
    ) -> tuple[AnyArray, AnyArray | None]:
        facts = self.plan.facts
        count = facts.num_states if role == "state" else facts.num_actions
        valid = valid_mask(array)
        if pa.types.is_integer(array.type):
            values = to_numpy(array if valid is None else pc.fill_null(array, 0))
        elif pa.types.is_boolean(array.type) or pa.types.is_null(array.type):
            values = to_numpy(pc.cast(array, pa.int64()).fill_null(0))
        elif pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
            numbers = floats(array)
            # Beyond 2^53 neighbouring whole numbers are one float; no table is that long.
            odd = ~((numbers == np.floor(numbers)) & (np.abs(numbers) < 2.0**53))
            if odd.any():
                raise at(chunk.place(first_true(odd)), name, f"the {role} is not a whole number")
            values = numbers.astype(np.int64)
        else:
            raise self._wrong_type(chunk, name, array, f"each {role} must be a whole number")
        top = MOST_VALUES if count is None else count
        if int(values.min()) < 0 or int(values.max()) >= top:
            table = f"the {count} {role}s 0 to {count - 1}" if count else "0 to 2**31 - 2"
            raise at(
                chunk.place(first_true((values < 0) | (values >= top))),
                name,
                f"the {role} lies outside {table} (if the codes are others, list them with "
                + option(f"{role}_vocabulary")
                + ", in the policy's order)",
            )
        return values.astype(np.int32, copy=False), valid

    def _word(
        self, chunk: Chunk, role: str, name: str, array: Any
    ) -> tuple[AnyArray, AnyArray | None]:
        known = self.vocabularies[role]
        if not known.given:
            if not pa.types.is_large_string(array.type):
                raise self._wrong_type(chunk, name, array, f"each {role} must be a word, as before")
            present = set(known.words)
            fresh = [w for w in pc.unique(array).to_pylist() if w is not None and w not in present]
            known.words.extend(fresh)
        whole = isinstance(known.words[0], int) if known.words else False
        if pa.types.is_null(array.type) or not known.words:
            return np.zeros(len(array), dtype=np.int32), np.zeros(len(array), dtype=bool)
        if not (pa.types.is_integer if whole else pa.types.is_large_string)(array.type):
            needed = option(f"{role}_vocabulary") + f" holds {'numbers' if whole else 'words'}"
            raise self._wrong_type(chunk, name, array, needed)
        if whole:
            _integers(chunk, name, array.fill_null(0))
            array = pc.cast(array, pa.int64(), safe=False)
        codes = pc.index_in(array, value_set=pa.array(known.words, array.type), skip_nulls=True)
        valid = valid_mask(array)
        if codes.null_count > array.null_count:
            absent = to_numpy(pc.and_(codes.is_null(), array.is_valid()))
            what = f"the {role} is not among " + option(f"{role}_vocabulary")
            raise at(chunk.place(first_true(absent)), name, what)
        return to_numpy(codes.fill_null(0)).astype(np.int32), valid

    def _vector(
        self, chunk: Chunk, role: str, name: str, array: Any
    ) -> tuple[AnyArray, AnyArray | None]:
        if not is_list(array.type):
            values, valid = self._number(chunk, name, role)
            dimension = self.dimensions.setdefault(role, 1)
            if dimension != 1:
                raise at(chunk.place(0), name, f"the {role} is one number, but {dimension} before")
            return values[:, None], valid
        if pa.types.is_fixed_size_list(array.type):
            lengths = np.full(len(array), array.type.list_size)
        else:
            lengths = to_numpy(array.value_lengths().fill_null(0))
        there = valid_mask(array)
        present = np.ones(len(array), dtype=bool) if there is None else there
        if present.any() or pa.types.is_fixed_size_list(array.type):
            dimension = self.dimensions.setdefault(role, int(lengths[first_true(present)]))
        else:
            dimension = self.dimensions.get(role, 0)
            if dimension == 0:
                raise at(
                    chunk.place(0), name, f"the {role} is null before any of its lists is seen"
                )
        mixed = present & (lengths != dimension)
        if dimension == 0 or mixed.any():
            raise at(
                chunk.place(first_true(mixed) if dimension else first_true(present)),
                name,
                f"the {role} is an empty list"
                if dimension == 0
                else f"the {role} does not have {dimension} "
                f"{'entry' if dimension == 1 else 'entries'} like the rows before it",
            )
        flat = array.flatten()
        if not is_number(flat.type):
            raise self._wrong_type(chunk, name, array, f"each {role} must be a list of numbers")
        valid = None
        if flat.null_count:
            inner = to_numpy(flat.is_valid()).reshape(-1, dimension)
            present = present.copy()
            present[present] = inner.all(axis=1)
            flat = pc.fill_null(flat, pa.scalar(0).cast(flat.type))
        entries = floats(flat).reshape(-1, dimension)
        if there is None:
            values = entries
        else:
            values = np.zeros((len(array), dimension))
            values[there] = entries
        if not present.all():
            valid = present
        return values, valid

    # --- numbers -------------------------------------------------------------------------------

    def _number(self, chunk: Chunk, name: str, role: str) -> tuple[AnyArray, AnyArray | None]:
        """64-bit floats, with 0 where there is a null, and where there is none."""
        array = plain(chunk.column(name))
        if not (is_number(array.type) or pa.types.is_null(array.type)):
            raise self._wrong_type(chunk, name, array, f"the {role} must be a number")
        return floats(array), valid_mask(array)

    def _reward(self, chunk: Chunk, new: AnyArray) -> AnyArray:
        name = self.plan.reward
        values, valid = self._number(chunk, name, "reward")
        values, _ = self._answer(chunk, "reward", name, values, valid, new)
        self._finite(chunk, name, values, "reward")
        return values

    def _probability(self, chunk: Chunk, name: str, new: AnyArray, zero: bool) -> AnyArray:
        values, valid = self._number(chunk, name, "probability")
        values, _ = self._answer(chunk, "probability", name, values, valid, new)
        density = self.kinds["action"] == "vector"
        fits = values >= 0.0 if zero else values > 0.0
        fits &= values < np.inf if density else values <= 1.0
        if not fits.all():
            interval = ("[0, " if zero else "(0, ") + (
                "infinity)" if density else "1] (percentages must be divided by 100 first)"
            )
            raise at(
                chunk.place(first_true(~fits)),
                name,
                f"the {'density' if density else 'probability'} lies outside {interval}",
            )
        return values

    def _finite(self, chunk: Chunk, name: str, values: AnyArray, role: str) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            row = first_true(np.asarray(~finite.reshape(len(values), -1).all(axis=1)))
            word = "NaN" if np.isnan(values[row]).any() else "infinite"
            raise at(chunk.place(row), name, f"the {role} is {word}")

    # --- ends ----------------------------------------------------------------------------------

    def _ends(
        self, chunk: Chunk, new: AnyArray, starts: AnyArray
    ) -> tuple[dict[str, AnyArray], dict[str, AnyArray]]:
        """Both flags for every row, and for each trajectory now known to have ended."""
        last, flags, ends = self._last, {}, {}
        for role, given in (
            ("terminated", self.plan.terminated),
            ("truncated", self.plan.truncated),
        ):
            if isinstance(given, str):
                values = self._flag(chunk, given, new)
                early = values[:-1] & ~new[1:]
                sentence = f"{role} is set before the last step of its trajectory"
                if last is not None and last.flags[role] and not new[0]:
                    raise at(last.place, given, sentence)
                if early.any():
                    raise at(chunk.place(first_true(early)), given, sentence)
            else:
                values = np.broadcast_to(np.bool_(bool(given)), new.shape)
            flags[role] = values
            ended = values[starts - 1]  # for a start at row 0 this is replaced below
            if starts.size and starts[0] == 0:
                ended = ended[1:] if last is None else np.append(last.flags[role], ended[1:])
            ends[role] = ended
        return flags, ends

    def _flag(self, chunk: Chunk, name: str, new: AnyArray) -> AnyArray:
        array = plain(chunk.column(name))
        known = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_null)
        if not any(test(array.type) for test in known):
            raise self._wrong_type(chunk, name, array, "it must hold true and false, or 1 and 0")
        if pa.types.is_boolean(array.type) and not array.null_count:
            return to_numpy(array)
        values, valid = floats(array), valid_mask(array)
        values, _ = self._answer(chunk, "flag", name, values, valid, new)
        odd = (values != 0.0) & (values != 1.0)
        if odd.any():
            raise at(chunk.place(first_true(odd)), name, "it is neither true nor false")
        return np.asarray(values != 0.0)

    def _successors(
        self,
        chunk: Chunk,
        states: AnyArray,
        new: AnyArray,
        starts: AnyArray,
        flags: dict[str, AnyArray],
        ends: dict[str, AnyArray],
    ) -> tuple[AnyArray | None, bool]:
        """Check `next_state` against the next row; keep it where a trajectory ends."""
        names, last = self.plan.next_state, self._last
        if names is None:
            return None, False
        after, known = self._field(chunk, "state", names, new, free=True)
        assert known is not None
        if after.shape[1:] != states.shape[1:]:
            raise InputError(f"{chunk.file}: next_state and state have different dimensions.")
        label = names if isinstance(names, str) else names[0]
        sentence = "the next state is not the state of the next row: is a row missing?"[:-1]
        differs = after[:-1] != states[1:]
        if differs.ndim == 2:
            differs = differs.any(axis=1)
        broken = differs & known[:-1] & ~new[1:]
        if last is not None and not new[0] and last.successor_known:
            assert last.successor is not None
            if not np.array_equal(last.successor, states[0]):
                raise at(last.place, label, sentence)
        if broken.any():
            raise at(chunk.place(first_true(broken)), label, sentence)
        # Where the next state of a terminated trajectory is not given, its own last state stands
        # in: nothing bootstraps from it.
        after = np.where(known if after.ndim == 1 else known[:, None], after, states)
        rows = starts[starts > 0] - 1
        lost = ~known[rows] & ~flags["terminated"][rows]
        if starts.size and starts[0] == 0 and last is not None:
            if not last.successor_known and not last.flags["terminated"]:
                raise self._no_successor(last.place)
            assert last.successor is not None
            ends["final_states"] = np.concatenate([last.successor[None], after[rows]])
        else:
            ends["final_states"] = after[rows]
        if lost.any():
            raise self._no_successor(chunk.place(int(rows[first_true(lost)])))
        return after[-1], bool(known[-1])

    def _no_successor(self, place: tuple[str, int]) -> InputError:
        names = self.plan.next_state
        assert names is not None
        return at(
            place,
            names if isinstance(names, str) else names[0],
            "the next state is null where a trajectory ends without being terminated",
        )

    # --- nulls and types -----------------------------------------------------------------------

    def _answer(
        self,
        chunk: Chunk,
        role: str,
        name: str,
        values: AnyArray,
        valid: AnyArray | None,
        new: AnyArray,
        free: bool = False,
    ) -> tuple[AnyArray, AnyArray | None]:
        """Apply the rule for nulls. `free` leaves them be, to be judged by the caller."""
        if free:
            return values, valid
        rule = self.plan.rule(name)
        if valid is not None:
            missing = ~valid
            if rule == "refuse":
                raise self._null(chunk.place(first_true(missing)), role, name)
            values = values.copy()
            if rule == "fill":
                values[missing] = self._fill(role, name)
            else:
                values = self._carry(chunk, name, values, valid, new)
            self.answered[name] = self.answered.get(name, 0) + int(missing.sum())
        if rule == "carry":
            self._carried[name] = values[-1].copy()
        return values, None

    def _null(self, place: tuple[str, int], role: str, name: str) -> InputError:
        what, quoted = "the value is null", ""
        if place[0].lower().endswith(".csv"):
            what += ", as empty cells and NA are"
            quoted = "put quotes around NA if it is a word, or "
        rule = option("", {name: "carry" if role == "state" else "fill"})
        remedy = quoted + "give its column a rule with " + option("nulls") + ", such as " + rule
        return at(place, name, what, remedy)

    def _carry(
        self, chunk: Chunk, name: str, values: AnyArray, valid: AnyArray, new: AnyArray
    ) -> AnyArray:
        here = np.arange(new.size)
        source = np.maximum.accumulate(np.where(valid, here, -1))
        begin = np.maximum.accumulate(np.where(new, here, -1))
        # Where no row of this batch gives the value, the trajectory may have begun in an earlier
        # one.
        earlier = (source < 0) & (begin < 0)
        lost = (source < begin) | (earlier & (name not in self._carried))
        if lost.any():
            raise at(
                chunk.place(first_true(lost)),
                name,
                "the value is null and its trajectory holds none before it to carry forward",
                "fill it in the table first",
            )
        carried = values[np.maximum(source, 0)]
        if earlier.any():
            carried[earlier] = self._carried[name]
        return carried

    def _fill(self, role: str, name: str) -> float | int:
        given = self.plan.fill[name]
        kind = self.kinds.get(role)
        if kind == "word":
            words = self.vocabularies[role]
            if given not in words.words:
                if words.given:
                    among = option(f"{role}_vocabulary") + "."
                    raise InputError(
                        f"gives {name!r} a value that is not among " + among, field="fill"
                    )
                if not isinstance(given, str):
                    raise InputError(
                        f"gives {name!r} a number, but the column holds words.", field="fill"
                    )
                words.words.append(given)
            return words.words.index(given)
        if isinstance(given, str):
            raise InputError(f"gives {name!r} a word, but the column holds numbers.", field="fill")
        number = float(given)  # type: ignore[arg-type]
        if kind == "index":
            facts = self.plan.facts
            count = facts.num_states if role == "state" else facts.num_actions
            if number != int(number) or not 0 <= number < (count or MOST_VALUES):
                raise InputError(f"gives {name!r} a value that is no {role}.", field="fill")
            return int(number)
        return number

    def _wrong_type(self, chunk: Chunk, name: str, array: Any, needed: str) -> InputError:
        """The sentence for a column of the wrong type; for words, where the first one is."""
        if pa.types.is_large_string(array.type):
            numeric = pc.match_substring_regex(array, _NUMBER).fill_null(True)
            odd = ~to_numpy(numeric)
            if odd.any():
                return at(chunk.place(first_true(odd)), name, "it holds a word, but " + needed)
        kind = "text" if pa.types.is_large_string(array.type) else str(array.type)
        return InputError(f"{chunk.file}: column {name!r} holds {kind}, but " + needed + ".")


def _listed(role: str) -> str:
    """What to say about words."""
    words = option(f"{role}_vocabulary") + " which words there can be, such as "
    return "say with " + words + option("", ["low", "high"]) + ", in the policy's order"


def _from_decimals(chunk: Chunk, name: str, array: Any) -> Any:
    """Decimals without fractions as 64-bit integers."""
    try:
        return pc.cast(array, pa.int64())
    except pa.ArrowInvalid:
        cells = array.to_pylist()
        long = [cell is not None and not -(2**63) <= cell < 2**63 for cell in cells]
        raise at(chunk.place(long.index(True)), name, _TOO_LONG) from None


def _integers(chunk: Chunk, name: str, array: Any) -> AnyArray:
    """64-bit integers; the array holds no null."""
    values: AnyArray = to_numpy(array)
    if values.dtype == np.uint64 and values.size and values.max() > np.uint64(2**63 - 1):
        row = first_true(values > np.uint64(2**63 - 1))
        raise at(chunk.place(row), name, _TOO_LONG)
    return values.astype(np.int64, copy=False)
