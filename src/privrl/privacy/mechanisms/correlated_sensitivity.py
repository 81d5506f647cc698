"""The sensitivity S of correlated noise, for units that take part in several steps.

With A = B M as in `correlated_factorisations.py`,

    S^2 = the largest sum of |M'M|_ij over i, j in P, over all admissible sets of slots P,

where P has at most `participations` slots, at least `separation` steps apart. `correlated.py` has
the theorem that uses it.

Where M is non-negative, the sum over P is attained by contributions that all move alike, and S is
exact if the largest P is known:

- one participation: the largest column norm, sqrt(1 + c_1^2 + ... + c_(T-1)^2) for the square root;
- Toeplitz with coefficients c that do not rise (independent, square root, banded): for i <= j,
  (M'M)_ij is the sum over s = 0, ..., T - j of c_s c_(s+j-i), which falls in j and in j - i. The
  n-th slot of P is at least 1 + (n - 1) separation; slots m < n are at least (n - m) separation
  apart. So entry by entry no P exceeds the slots 1, 1 + separation, 1 + 2 separation, ... With
  separation >= band these columns do not overlap, and S is sqrt(participations) times the column
  norm;
- binary tree: S^2 is the largest sum of n_I^2 over the intervals I, n_I being how many slots lie in
  I. For one participation it is the number of levels, floor(log2 T) + 1. For more, S is an upper
  bound, level by level: an interval of length 2^l holds at most ceil(2^l / separation) slots, and
  the squares add up to the most when as many intervals as possible are full;
- refined tree: what is released is computed from the noisy sums of all dyadic intervals, several of
  which may end at a step; the theorem holds for them as for one, and so does the bound with all
  intervals counted (post-processing). With one participation the exact column norm of M = B^-1 A,
  which is smaller, is used: see `_refined_column_norm`;
- optimal: the largest column norm for one participation. For more, an upper bound: the sum over
  i, j in P is at most the sum over i in P of r_i, where r_i is the largest sum of |M'M|_ij over j
  in any admissible P, and that is at most the largest sum of r_i over any admissible P. Both
  largest sums are found exactly, by dynamic programming: see `_largest_sums`.
"""

import math
from functools import lru_cache

import numpy as np

from privrl.core.types import Array
from privrl.privacy.mechanisms.correlated_factorisations import (
    Strategy,
    optimal,
    square_root,
    tree_weights,
)

_MARGIN = 1e-9  # covers rounding: see `quadrature` and `optimal`


@lru_cache(maxsize=64)
def sensitivity(
    strategy: Strategy, horizon: int, band: int | None, participations: int, separation: int
) -> float:
    """S of the theorem; never rounded down."""
    slots = min(participations, (horizon - 1) // separation + 1)
    if strategy is Strategy.INDEPENDENT:
        return _sqrt_up(slots)
    if strategy.is_tree:
        counted = _sqrt_up(_tree_squares(strategy, horizon, slots, separation))
        if strategy is Strategy.BINARY_TREE:
            return counted
        # Also at most `slots` columns, by the triangle inequality.
        return min(counted, slots * _refined_column_norm(horizon) * (1.0 + _MARGIN))
    if strategy is Strategy.OPTIMAL:
        M = optimal(horizon)[1]
        moved = float(np.linalg.norm(M, axis=0).max())
        if slots > 1:
            each = _largest_sums(np.abs(M.T @ M), slots, separation)
            moved = min(slots * moved, math.sqrt(_largest_sums(each[None], slots, separation)[0]))
        return moved * (1.0 + _MARGIN)
    column = np.zeros(horizon)
    column[: band or horizon] = square_root(band or horizon)
    total = _sum_over_slots(column, slots, separation)
    return math.sqrt(float(total @ total)) * (1.0 + _MARGIN)


def _sum_over_slots(column: Array, slots: int, separation: int) -> Array:
    """The sum over i < slots of the column moved down by i separation.

    By doubling: twice as many slots are the same sum and the same moved further down. All terms are
    non-negative and each is in at most 2 log2(slots) additions, so that rounding is far below the
    margin.
    """
    moved, done = np.zeros_like(column), 0
    power, size = column, 1
    while True:
        if slots & size:
            start = done * separation
            moved[start:] += power[: column.size - start]
            done += size
        if 2 * size > slots:
            return moved
        start, doubled = size * separation, power.copy()
        doubled[start:] += power[: column.size - start]
        power, size = doubled, 2 * size


def _largest_sums(rows: Array, slots: int, separation: int) -> Array:
    """Of each row, the largest sum over `slots` entries or fewer, `separation` or more apart.

    From the last entry down: with k entries from t on, the best either leaves t out, or takes it
    and k - 1 from t + separation on. Entries are non-negative.
    """
    # best[(t + i) % separation] is for entries from t + i on; nothing is left beyond the end.
    best = np.zeros((separation, len(rows), slots + 1))
    after = np.zeros((len(rows), slots + 1))
    for t in range(rows.shape[1] - 1, -1, -1):
        taken = rows[:, t, None] + best[t % separation, :, :-1]
        after = after.copy()
        after[:, 1:] = np.maximum(after[:, 1:], taken)
        best[t % separation] = after
    return np.asarray(after[:, slots])


def _sqrt_up(square: int) -> float:
    root = math.isqrt(square)
    return float(root) if root * root == square else math.nextafter(math.sqrt(square), math.inf)


def _tree_squares(strategy: Strategy, horizon: int, slots: int, separation: int) -> int:
    """At least the largest sum over intervals of (number of slots in it)^2; see the module."""
    squares = 0
    for level in range(horizon.bit_length()):
        intervals = horizon >> level
        if strategy is Strategy.BINARY_TREE:  # those that no prefix needs are left out
            intervals -= horizon >> (level + 1)
        most = min(slots, -(-(1 << level) // separation))
        full = min(slots // most, intervals)
        rest = slots - full * most if full < intervals else 0
        squares += full * most**2 + rest**2
    return squares


def _refined_column_norm(horizon: int) -> float:
    """The largest column norm of M = B^-1 A of the refined tree.

    Step t ends an interval I of level l, and z_t is what its estimate has beyond its left halves.
    So fresh_l (M x)_t is the sum of x over I, less carried_li times the sum of x over the left half
    of level i, for each i < l. A step j in I enters with (1 - carried_li) / fresh_l, where i is the
    level of the left half it lies in, or with 1 / fresh_l if it is t itself. As carried_li is
    between 0 and 1, M >= 0.
    """
    levels = horizon.bit_length()
    fresh, carried, _ = tree_weights(levels, Strategy.REFINED_TREE)
    steps, squares = np.arange(horizon), np.zeros(horizon)
    for level in range(levels):
        number = steps >> level
        counts = (number % 2 == 0) & ((number + 1) << level <= horizon)
        to_the_end = (1 << level) - 1 - (steps & ((1 << level) - 1))
        half = np.frexp(to_the_end)[1] - 1  # -1 for the last step
        share = np.where(half >= 0, 1.0 - carried[level, half], 1.0) / fresh[level]
        squares += np.where(counts, share**2, 0.0)
    return math.sqrt(float(squares.max()))
