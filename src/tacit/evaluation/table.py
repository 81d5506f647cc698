"""Steps of a table: one-hot features, and each unit's sums over them without d x d matrices.

With one-hot features changed by a public diagonal c, phi_t = c[s] e_s for the state s of step t and
direction_t = c[s] e_s - g_t c[s'] e_s'. So a step adds one number to b_i, two to A_i and one or
three to a gradient, and what a unit contributes is a row of numbers in columns, added up where
columns coincide (`Entries`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data import Features, OneHot, Policy, Trajectories
from tacit.evaluation.bellman_error import unit_moves

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

# Rows of a table that is made at a time.
ROWS = 1 << 18
# Steps that are worked on at a time, so that what belongs to them stays in the cache.
_STEPS = 1 << 15
# Rows are kept dense while they have at most this many entries for each number they are made of.
_DENSE = 8


_COLUMNS = ("states", "following", "discounts", "rewards", "ratios", "shares", "units")


@dataclass(frozen=True, eq=False)
class Table:
    """The steps of some units; `scale` is c. A state outside the table has no features."""

    states: Whole
    following: Whole
    discounts: Floats
    rewards: Floats
    ratios: Floats
    shares: Floats
    units: Whole
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
        """What `unit_moves` says, for states of a table."""
        moves = unit_moves(piece, policy, gamma, cap, reward_range)
        states, known = _inside(moves.states, scale.size)
        following, followed = _inside(moves.following, scale.size)
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
        d, c = self.scale.size, self._scaled(self.states)
        weights = self.shares * self.ratios * c
        on = a * weights * c
        off = (-a * self._scaled(self.following)) * weights * self.discounts
        stays = np.flatnonzero(self.states == self.following)
        on[stays] += off[stays]
        off[stays] = 0.0
        cells = Entries(self.units, self.states * d + self.following, off, self.num_units, d * d)
        return (
            cells.merged(),
            self._rows(self.states, on),
            self._rows(self.states, weights * self.rewards),
        )

    def residual(self, theta: Floats) -> "tuple[Rows]":
        """b_i - A_i theta of each unit."""
        weights = self.shares * self.ratios * self._scaled(self.states)
        return (self._rows(self.states, weights * self._errors(theta)),)

    def primal_dual(self, theta: Floats, dual: Floats) -> "tuple[Rows, Rows]":
        """A_i' w and b_i - A_i theta - C_i w of each unit, for w = `dual`."""
        c = self._scaled(self.states)
        along = c * dual[self.states]
        pulled = self.shares * self.ratios * along
        back = -self.discounts * self._scaled(self.following) * pulled
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

    def _scaled(self, states: Whole) -> Floats | float:
        """c[s]; one number, if they are all the same."""
        even = bool((self.scale == self.scale[0]).all())
        return float(self.scale[0]) if even else self.scale[states]

    def _rows(self, columns: Whole, values: Floats) -> "Rows":
        """Values in the rows of their units, added up where columns coincide."""
        units = self.units if columns.size == self.units.size else np.tile(self.units, 2)
        entries = Entries(units, columns, values, self.num_units, self.scale.size)
        return entries.dense() if entries.cells <= _DENSE * values.size else entries.merged()


@dataclass(frozen=True, eq=False)
class Entries:
    """Numbers in the rows and columns of a matrix (`num_units`, `width`) that is mostly zeros."""

    units: Whole
    columns: Whole
    values: Floats
    num_units: int
    width: int

    @property
    def cells(self) -> int:
        """How many places there are."""
        return self.num_units * self.width

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_units, self.width

    def dense(self) -> Floats:
        """The whole matrix."""
        keys = self.units * self.width + self.columns
        found = np.bincount(keys, self.values, self.cells).reshape(self.shape)
        return np.asarray(found)

    def merged(self) -> "Entries":
        """The same, with numbers in the same place added up in one of them, and 0 in the others.

        Place and position are packed into one 64-bit number where they fit: sorting plain numbers
        takes half the time of sorting positions.
        """
        size = self.values.size
        keys = self.units * self.width + self.columns
        bits = size.bit_length()
        if self.cells < 2 ** (63 - bits):
            packed = (keys << bits) | np.arange(size)
            packed.sort()
            keys = packed >> bits
            again = np.flatnonzero(keys[1:] == keys[:-1])
            order = packed & ((1 << bits) - 1)
        else:
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            again = np.flatnonzero(keys[1:] == keys[:-1])
        if again.size == 0:
            return self
        several = np.zeros(size, dtype=bool)
        several[again] = several[again + 1] = True
        shared = np.flatnonzero(several)
        begins = np.flatnonzero(np.append(True, keys[shared[1:]] != keys[shared[:-1]]))
        places, values = order[shared], self.values.copy()
        sums = np.add.reduceat(values[places], begins)
        values[places] = 0.0
        values[places[begins]] = sums
        return replace(self, values=values)

    def squares(self) -> Floats:
        """The squared L2 norm of each row; of `merged` entries."""
        squares, units = self.values * self.values, self.units
        begins = np.searchsorted(units, np.arange(self.num_units))
        if (units[1:] >= units[:-1]).all() and (np.diff(begins, append=units.size) > 0).all():
            return np.asarray(np.add.reduceat(squares, begins))
        return np.asarray(np.bincount(units, squares, self.num_units))

    def weighed(self, factors: Floats) -> tuple[Whole, Floats]:
        """Columns and values, each row times its factor; 0 leaves out a row of any content."""
        each = factors[self.units]
        values = self.values * each
        return self.columns, values if factors.all() else np.where(each == 0.0, 0.0, values)


Rows = Floats | Entries


def is_table(features: Features, change: Floats, data: Trajectories) -> bool:
    """Whether `data` is a table to these features, changed by a diagonal."""
    return isinstance(features, OneHot) and change.ndim == 1 and data.states.dtype.kind in "iu"


def _inside(states: Any, count: int) -> tuple[Whole, NDArray[np.bool_] | None]:
    """States as columns, and which of them are any; None if all are."""
    columns = states.astype(np.int64)
    if columns.size == 0 or (columns.min() >= 0 and columns.max() < count):
        return columns, None
    known = (columns >= 0) & (columns < count)
    return np.where(known, columns, 0), known
