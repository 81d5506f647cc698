"""Checked rows, batch by batch: `Decoder` and the `Block` it makes of each batch."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from privrl.core.errors import InputError
from privrl.core.types import AnyArray
from privrl.data.arrow import first_true
from privrl.data.columns import ColumnPlan
from privrl.data.decoder.order import Order
from privrl.data.decoder.values import Values
from privrl.data.sources import Chunk, cell_error, private_error


@dataclass
class Block:
    """Checked rows. `ends` has one entry for each trajectory now known to have ended."""

    rows: int
    starts: AnyArray
    ids: AnyArray
    users: AnyArray | None
    columns: dict[str, AnyArray]
    ends: dict[str, AnyArray]

    @property
    def per_trajectory(self) -> dict[str, AnyArray]:
        """What the rows say of trajectories, by the names that `Trajectories` has for it."""
        named = {"trajectory_ids": self.ids, **self.ends}
        return named if self.users is None else {**named, "users": self.users}


@dataclass
class _PreviousRow:
    """The row before the next batch."""

    place: tuple[str, int]
    flags: dict[str, bool]
    successor: AnyArray | None
    successor_known: bool


@dataclass
class Decoder:
    """Checks rows in the order in which they come.

    `whole_users` asks for each user's rows to stand together too, as batches by user need.
    """

    plan: ColumnPlan
    whole_users: bool = False
    may_collect_words: bool = True
    rows: int = 0
    _last: _PreviousRow | None = None

    def __post_init__(self) -> None:
        self._order = Order(self.plan, self.whole_users)
        self.values = Values(self.plan, self.may_collect_words)

    def block(self, chunk: Chunk) -> Block:
        """The next rows, checked. The batch must hold at least one."""
        try:
            return self._block(chunk)
        except (pa.ArrowException, UnicodeDecodeError):
            # What passes every check and cannot be converted. Arrow may quote the cell: not us.
            row = chunk.place(0)[1]
            raise private_error(
                f"{chunk.file} cannot be read: after row {row} (counting from 0) a value does not "
                "fit its type."
            ) from None

    def _block(self, chunk: Chunk) -> Block:
        plan, rows = self.plan, chunk.batch.num_rows
        bounds = self._order.read(chunk)
        new, starts = bounds.new, bounds.starts
        columns: dict[str, AnyArray] = {} if bounds.times is None else {"times": bounds.times}
        columns["states"], _ = self.values.entries(chunk, "state", plan.state, new)
        columns["actions"], _ = self.values.entries(chunk, "action", plan.action, new)
        columns["rewards"] = self.values.reward(chunk, new)
        for key, name, zero in (
            ("behavior_probs", plan.behavior_prob, False),
            ("target_probs", plan.target_prob, True),
        ):
            if name is not None:
                columns[key] = self.values.probability(chunk, name, new, zero)
        flags, ends = self._ends(chunk, new, starts)
        successor, known = self._successors(chunk, columns["states"], new, starts, flags, ends)
        self._last = _PreviousRow(
            chunk.place(rows - 1),
            {name: bool(values[-1]) for name, values in flags.items()},
            successor,
            known,
        )
        self.rows += rows
        return Block(rows, starts, bounds.ids, bounds.users, columns, ends)

    def close(self) -> dict[str, AnyArray]:
        """The end of the last trajectory."""
        last = self._last
        assert last is not None
        ends: dict[str, AnyArray] = {
            name: np.array([last.flags[name]]) for name in ("terminated", "truncated")
        }
        if self.plan.next_state is not None:
            if not last.successor_known and not last.flags["terminated"]:
                raise self._missing_next_state(last.place)
            assert last.successor is not None
            ends["final_states"] = last.successor[None]
        return ends

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
                values = self.values.flag(chunk, given, new)
                early = values[:-1] & ~new[1:]
                sentence = f"{role} is set before the last step of its trajectory"
                if last is not None and last.flags[role] and not new[0]:
                    raise cell_error(last.place, given, sentence)
                if early.any():
                    raise cell_error(chunk.place(first_true(early)), given, sentence)
            else:
                values = np.broadcast_to(np.bool_(bool(given)), new.shape)
            flags[role] = values
            ended = values[starts - 1]  # for a start at row 0 this is replaced below
            if starts.size and starts[0] == 0:
                ended = ended[1:] if last is None else np.append(last.flags[role], ended[1:])
            ends[role] = ended
        return flags, ends

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
        after, known = self.values.entries(chunk, "state", names, new, free=True)
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
                raise cell_error(last.place, label, sentence)
        if broken.any():
            raise cell_error(chunk.place(first_true(broken)), label, sentence)
        # Where the next state of a terminated trajectory is not given, its own last state stands
        # in: nothing bootstraps from it.
        after = np.where(known if after.ndim == 1 else known[:, None], after, states)
        rows = starts[starts > 0] - 1
        lost = ~known[rows] & ~flags["terminated"][rows]
        if starts.size and starts[0] == 0 and last is not None:
            if not last.successor_known and not last.flags["terminated"]:
                raise self._missing_next_state(last.place)
            assert last.successor is not None
            ends["final_states"] = np.concatenate([last.successor[None], after[rows]])
        else:
            ends["final_states"] = after[rows]
        if lost.any():
            raise self._missing_next_state(chunk.place(int(rows[first_true(lost)])))
        return after[-1], bool(known[-1])

    def _missing_next_state(self, place: tuple[str, int]) -> InputError:
        names = self.plan.next_state
        assert names is not None
        return cell_error(
            place,
            names if isinstance(names, str) else names[0],
            "the next state is null where a trajectory ends without being terminated",
        )
