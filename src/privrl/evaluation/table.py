"""Steps of a table: one-hot features, and each unit's sums over them without d x d matrices.

With one-hot features changed by a public diagonal c, phi_t = c[s] e_s for the state s of step t and
direction_t = c[s] e_s - g_t c[s'] e_s'. So a step adds one number to b_i, two to A_i and one or
three to a gradient, and what a unit contributes is a row of numbers in columns, added up where
columns coincide (`Entries`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privrl.core.types import Floats
from privrl.data import Features, OneHot, Policy, Trajectories
from privrl.data.coverage import check_table
from privrl.evaluation.bellman_error import unit_transitions

Integers = NDArray[np.int64]

# Rows of a table that is made at a time.
ROWS = 1 << 16
# Steps that are worked on at a time, so that what belongs to them stays in the cache.
_STEPS = 1 << 16
# Rows are kept dense while they have at most this many entries for each number they are made of.
_DENSE = 1
# A slot for each place is kept while there are at most this many for each number.
_DIRECT = 16
# 2^64 over the golden ratio: multiplied by it, numbers that are near each other spread.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

_COLUMNS = ("states", "following", "discounts", "rewards", "ratios", "shares", "units")


@dataclass(frozen=True, eq=False)
class Table:
    """The steps of some units; `scale` is c. A state outside the table has no features."""

    states: Integers
    following: Integers
    discounts: Floats
    rewards: Floats
    ratios: Floats | float
    shares: Floats
    units: Integers
    num_units: int
    scale: Floats

    @classmethod
    def of(
        cls,
        piece: Trajectories,
        policy: Policy | None,
        scale: Floats,
        gamma: float,
        cap: float | None,
        reward_range: tuple[float, float],
    ) -> "Table":
        """What `unit_transitions` says, for states of a table."""
        check_table(scale.size, piece)
        moves = unit_transitions(piece, policy, gamma, cap, reward_range)
        states, known = _to_columns(moves.states, scale.size)
        following, followed = _to_columns(moves.following, scale.size)
        return cls(
            states=states,
            following=following,
            discounts=moves.discounts if followed is None else moves.discounts * followed,
            rewards=moves.rewards,
            ratios=moves.ratios,
            shares=moves.shares if known is None else moves.shares * known,
            units=moves.units,
            num_units=moves.num_units,
            scale=scale,
        )

    def parts(self) -> "Iterator[Table]":
        """The same units, in order, a few at a time."""
        if self.units.size <= _STEPS:
            yield self
            return
        columns = {name: getattr(self, name) for name in _COLUMNS}
        columns["ratios"] = np.broadcast_to(self.ratios, self.units.shape)
        if (self.units[1:] < self.units[:-1]).any():
            order = np.argsort(self.units, kind="stable")
            columns = {name: column[order] for name, column in columns.items()}
        # Every unit has a row.
        ends = np.cumsum(np.bincount(self.units, minlength=self.num_units))
        first = begin = 0
        while first < self.num_units:
            last = max(first + 1, int(np.searchsorted(ends, begin + _STEPS, side="right")))
            end = int(ends[last - 1])
            some = {name: column[begin:end] for name, column in columns.items()}
            some["units"] = some["units"] - first
            yield replace(self, num_units=last - first, **some)
            first, begin = last, end

    def system(self, a: float) -> "tuple[Entries, Rows, Rows]":
        """(a A_i, b_i) of each unit: A_i off its diagonal (d^2 columns), its diagonal, and b_i."""
        d, c = self.scale.size, self._state_scale(self.states)
        weights = self.shares * self.ratios * c
        on = (a * c) * weights
        off = (-a * self._state_scale(self.following)) * weights * self.discounts
        stays = np.flatnonzero(self.states == self.following)
        on[stays] += off[stays]
        off[stays] = 0.0
        cells = self._entries(self.states * d + self.following, off, d * d)
        paid = weights * self.rewards
        if not self._is_dense(self.units.size):
            # Only in a state that a unit comes back to can its cells coincide.
            diagonal = self._entries(self.states, on, d)
            again, kept = diagonal.find_duplicates()
            often = np.zeros(on.size, dtype=bool)
            often[again] = often[kept] = True
            several = np.flatnonzero(often)
            more, other = find_duplicates(cells.keys(several), cells.num_cells)
            return (
                cells.fold_into(several[more], several[other]),
                diagonal.fold_into(again, kept),
                replace(diagonal, values=paid).fold_into(again, kept),
            )
        return cells.sum_duplicates(), self._rows(self.states, on), self._rows(self.states, paid)

    def residual(self, theta: Floats) -> "tuple[Rows]":
        """b_i - A_i theta of each unit."""
        weights = self.shares * self.ratios * self._state_scale(self.states)
        return (self._rows(self.states, weights * self._errors(theta)),)

    def primal_dual(self, theta: Floats, dual: Floats) -> "tuple[Rows, Rows]":
        """A_i' w and b_i - A_i theta - C_i w of each unit, for w = `dual`."""
        c = self._state_scale(self.states)
        along = c * dual[self.states]
        pulled = self.shares * self.ratios * along
        back = -self.discounts * self._state_scale(self.following) * pulled
        columns = np.concatenate([self.states, self.following])
        pushed = self.shares * c * (self.ratios * self._errors(theta) - along)
        return (
            self._rows(columns, np.concatenate([c * pulled, back])),
            self._rows(self.states, pushed),
        )

    def _errors(self, theta: Floats) -> Floats:
        """r_t - direction_t' theta."""
        values = self.scale * theta
        return np.asarray(
            self.rewards - values[self.states] + self.discounts * values[self.following]
        )

    def _state_scale(self, states: Integers) -> Floats | float:
        """c[s]; one number, if they are all the same."""
        even = bool((self.scale == self.scale[0]).all())
        return float(self.scale[0]) if even else self.scale[states]

    def _rows(self, columns: Integers, values: Floats) -> "Rows":
        """Values in the rows of their units, added up where columns coincide."""
        entries = self._entries(columns, values, self.scale.size)
        return entries.dense() if self._is_dense(values.size) else entries.sum_duplicates()

    def _entries(self, columns: Integers, values: Floats, width: int) -> "Entries":
        """A number for each step, or two."""
        if columns.size == self.units.size:
            return Entries(self.units, columns, values, self.num_units, width, self._begins)
        return Entries(np.tile(self.units, 2), columns, values, self.num_units, width)

    @cached_property
    def _begins(self) -> Integers | None:
        """See `Entries.begins`."""
        new = np.flatnonzero(self.units[1:] != self.units[:-1]) + 1
        ordered = new.size == self.num_units - 1 and (self.units[new] > self.units[new - 1]).all()
        return np.append(0, new) if ordered else None

    def _is_dense(self, size: int) -> bool:
        """Whether rows made of this many numbers are kept dense."""
        return self.num_units * self.scale.size <= _DENSE * size


@dataclass(frozen=True, eq=False)
class Entries:
    """Numbers in the rows and columns of a matrix (`num_units`, `width`) that is mostly zeros."""

    units: Integers
    columns: Integers
    values: Floats
    num_units: int
    width: int
    begins: Integers | None = None
    """Where each row's numbers begin, if they stand in the order of rows and every row has one."""

    @property
    def num_cells(self) -> int:
        """How many places there are."""
        return self.num_units * self.width

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_units, self.width

    def dense(self) -> Floats:
        """The whole matrix."""
        found = np.bincount(self.keys(), self.values, self.num_cells).reshape(self.shape)
        return np.asarray(found)

    def sum_duplicates(self) -> "Entries":
        """The same, with numbers in the same place added up in one of them, and 0 in the others."""
        return self.fold_into(*self.find_duplicates())

    def find_duplicates(self) -> tuple[Integers, Integers]:
        """See `find_duplicates`, of the places of numbers."""
        return find_duplicates(self.keys(), self.num_cells)

    def keys(self, chosen: Any = slice(None)) -> Integers:
        """The place of each number, of those chosen."""
        return np.asarray(self.units[chosen] * self.width + self.columns[chosen])

    def fold_into(self, again: Integers, kept: Integers) -> "Entries":
        """With numbers at some positions added to those at others, and 0 in their place."""
        if again.size == 0:
            return self
        values = self.values.copy()
        np.add.at(values, kept, values[again])
        values[again] = 0.0
        return replace(self, values=values)

    def squares(self) -> Floats:
        """The squared L2 norm of each row; of `sum_duplicates` entries."""
        squares = self.values * self.values
        if self.begins is None:
            return np.asarray(np.bincount(self.units, squares, self.num_units))
        return np.asarray(np.add.reduceat(squares, self.begins))

    def scale_rows(self, factors: Floats) -> tuple[Integers, Floats]:
        """Columns and values, each row times its factor; 0 leaves out a row of any content."""
        each = factors.take(self.units)
        values = self.values * each
        return self.columns, values if factors.all() else np.where(each == 0.0, 0.0, values)


Rows = Floats | Entries


def find_duplicates(keys: Integers, count: int) -> tuple[Integers, Integers]:
    """The positions of keys that stand elsewhere too, and for each of these that other position.

    Of all positions of a key one is not listed, and it is the other position of all that are. Keys
    are at least 0 and less than `count`.

    A key has a slot, and of all positions that go there one stays. Where there is a slot for each
    key, the others hold the same key. Where keys are hashed, they hold the same or another; only
    the latter, which are few, are sorted, so hashes decide how long it takes and nothing else.
    """
    # In 32 bits, if that will do: slots are looked up in no order, so the fewer pages the better.
    kind = np.int32 if keys.size < 2**31 else np.int64
    positions = np.arange(keys.size, dtype=kind)
    direct = count <= _DIRECT * keys.size
    if direct:
        slots, into = np.empty(count, dtype=kind), keys
    else:
        bits = max(keys.size, 1).bit_length() + 1
        slots = np.empty(1 << bits, dtype=kind)
        into = (keys.view(np.uint64) * _SPREAD >> np.uint64(64 - bits)).view(np.int64)
    slots[into] = positions
    found = slots.take(into)
    lost = np.flatnonzero(found != positions)
    stayed = found[lost].astype(np.int64)
    if direct:
        return lost, stayed
    same = keys[lost] == keys[stayed]
    rest = lost[~same]
    rest = rest[np.argsort(keys[rest])]
    new = np.append(True, keys[rest[1:]] != keys[rest[:-1]])[: rest.size]
    first = rest[new][np.cumsum(new) - 1]
    return np.append(lost[same], rest[~new]), np.append(stayed[same], first[~new])


def is_table(features: Features, change: Floats, data: Trajectories) -> bool:
    """Whether `data` is a table to these features, changed by a diagonal."""
    return isinstance(features, OneHot) and change.ndim == 1 and data.states.dtype.kind in "iu"


def _to_columns(states: Any, count: int) -> tuple[Integers, NDArray[np.bool_] | None]:
    """States as columns, and which of them are any; None if all are."""
    columns = states.astype(np.int64)
    if columns.size == 0 or (states.min() >= 0 and states.max() < count):
        return columns, None
    known = (columns >= 0) & (columns < count)
    return np.where(known, columns, 0), known
