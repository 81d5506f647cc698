"""Factorisations A = B M of the running sums, and the recurrences that make B z from independent z.

A is the lower triangle of ones, so that the running sums of x are A x; B and M are lower triangular
too. `correlated.py` has the mechanism, and its theorem. The strategies differ in M:

- `independent`: M = I. The error of a running sum grows like the root of t.
- `binary-tree`: a row of M sums a dyadic interval that ends at its step (Dwork et al. 2010; Chan,
  Shi, Song 2011). Intervals that no prefix needs are left out, so that there is one for each step.
- `refined-tree`: all dyadic intervals, each estimated from itself and its two halves with the least
  variance, using the past alone (Honaker 2015).
- `square-root-toeplitz`: B = M = A^(1/2), with the coefficients of (1 - x)^(-1/2), which are 1 and
  c_k = c_(k-1) (2k - 1) / (2k) (Fichtenberger, Henzinger, Upadhyay 2023).
- `banded`: M keeps the first `band` of these coefficients, and B = A M^-1 (Kalinin, Lampert 2024).
- `optimal`: of all M with columns of norm 1, the one with the least mean squared error of the
  running sums (Li et al. 2015; Denisov et al. 2022), for up to 256 steps: see `optimal`. Its root
  mean square error is 5.9 % below that of the square root for 10 and 50 steps and 5.5 % for 200,
  that of the last sum 4.7, 3.8 and 3.0 %; that of the first few is above.
"""

import math
from functools import lru_cache
from typing import Protocol

import numpy as np

from privrl.core.types import Array
from privrl.privacy.promise import WordEnum

# The longest for which the optimal strategy is computed, in a tenth of a second of one processor.
LONGEST_OPTIMAL = 256
# Toeplitz noise is made this many steps at a time, in one matrix product: few of them, because each
# waits for all threads of the linear algebra library, which is long on a busy machine.
_BLOCK = 256
# Rounds of the iteration for the optimal strategy.
_ROUNDS = 10


class Strategy(WordEnum):
    """How the noise of different steps is correlated; the module says what each does."""

    INDEPENDENT = "independent"
    BINARY_TREE = "binary-tree"
    REFINED_TREE = "refined-tree"
    SQUARE_ROOT_TOEPLITZ = "square-root-toeplitz"
    BANDED = "banded"
    OPTIMAL = "optimal"

    @classmethod
    def best(cls, horizon: int) -> "Strategy":
        """The one with the least error for units that take part once."""
        return cls.OPTIMAL if horizon <= LONGEST_OPTIMAL else cls.SQUARE_ROOT_TOEPLITZ

    @property
    def is_tree(self) -> bool:
        """Whether the noise is that of dyadic intervals."""
        return self in (Strategy.BINARY_TREE, Strategy.REFINED_TREE)


# --- recurrences: from independent to correlated noise --------------------------------------------


class Recurrence(Protocol):
    """B z, a block of steps at a time, from a memory of a few rows."""

    rows: int
    block: int

    def run(self, memory: Array, z: Array, step: int) -> Array:
        """(B z) for the `block` steps after the first `step`; `memory` is updated in place."""
        ...


@lru_cache(maxsize=16)
def recurrence(strategy: Strategy, horizon: int, band: int | None) -> Recurrence:
    """The recurrence that makes the noise of a strategy."""
    if strategy.is_tree:
        return _Tree(horizon, strategy)
    if strategy is Strategy.SQUARE_ROOT_TOEPLITZ:
        return _SquareRoot(horizon)
    if strategy is Strategy.OPTIMAL:
        return _Dense(horizon)
    return _Banded(horizon, square_root(band or 1))


class _Banded:
    """w_t = z_t - c_1 w_(t-1) - ... - c_(b-1) w_(t-b+1), added up; with b = 1 just z, added up.

    The memory holds the last b - 1 of the w, oldest first, and their sum so far. The zeros of the
    polynomial 1 + c_1 x + ... lie outside the unit circle, since its coefficients fall (Enestrom
    and Kakeya), so rounding errors die out.
    """

    def __init__(self, horizon: int, column: Array) -> None:
        self.rows = column.size
        self.block = min(_BLOCK, horizon) if column.size > 1 else 1
        lags = np.arange(self.block)[:, None] + np.arange(column.size - 1, 0, -1)
        reach = np.append(column, 0.0)[np.minimum(lags, column.size)]
        solved = _lower_toeplitz(inverse(column, self.block))
        self._product = np.hstack([-solved @ reach, solved])

    def run(self, memory: Array, z: Array, step: int) -> Array:
        past, total = memory[:-1], memory[-1]
        w = self._product @ np.concatenate([past, z])
        running: Array = total + np.cumsum(w, axis=0)
        memory[:-1] = np.concatenate([past, w])[len(w) :]
        memory[-1] = running[-1]
        return running


class _SquareRoot:
    """Each row of the memory decays by its own factor and takes in every z; see `quadrature`."""

    def __init__(self, horizon: int) -> None:
        loss, weight = quadrature(horizon)
        self.rows, self.block = loss.size, min(_BLOCK, horizon)
        powers = np.exp(np.arange(self.block + 1)[:, None] * np.log1p(-loss))
        now = np.hstack([powers[1:] * weight, _lower_toeplitz(square_root(self.block))])
        later = np.hstack([np.diag(powers[-1]), powers[-2::-1].T])
        self._product = np.vstack([now, later])

    def run(self, memory: Array, z: Array, step: int) -> Array:
        found: Array = self._product @ np.concatenate([memory, z])
        memory[:] = found[self.block :]
        return found[: self.block]


class _Tree:
    """Row l holds the noise of the last interval of length 2^l that a prefix may need.

    Step t ends an interval of length 2^l, the largest power of two that divides t; the running sum
    up to t is made of the intervals at the ones of t in binary.
    """

    def __init__(self, horizon: int, strategy: Strategy) -> None:
        self.rows, self.block = horizon.bit_length(), 1
        self._fresh, self._carried, _ = tree_weights(self.rows, strategy)

    def run(self, memory: Array, z: Array, step: int) -> Array:
        t = step + 1
        level = (t & -t).bit_length() - 1
        memory[level] = self._fresh[level] * z[0] + self._carried[level, :level] @ memory[:level]
        ones = [row for row in range(self.rows) if t >> row & 1]
        return np.asarray(memory[ones].sum(axis=0, keepdims=True))


class _Dense:
    """The whole horizon is one block, and nothing comes after it."""

    def __init__(self, horizon: int) -> None:
        self.rows, self.block = 0, horizon
        self._product = optimal(horizon)[0]

    def run(self, memory: Array, z: Array, step: int) -> Array:
        found: Array = self._product @ z
        return found


def first_column(makes: Recurrence, steps: int) -> Array:
    """The first column of a Toeplitz B: the noise that z = (1, 0, 0, ...) makes."""
    memory, found = np.zeros((makes.rows, 1)), []
    for step in range(0, steps, makes.block):
        z = np.zeros((makes.block, 1))
        z[0] = float(step == 0)
        found.append(makes.run(memory, z, step)[:, 0])
    return np.concatenate(found)[:steps]


# --- factorisations -------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def optimal(horizon: int) -> tuple[Array, Array]:
    """B and M of A = B M with the least mean squared error, if M has columns of norm 1.

    With X = M'M and G = A'A the sum of the squares of B is tr(G X^-1), to be minimised over X with
    ones on its diagonal. For all v > 0, X so, and D = diag(v), Cauchy and Schwarz give

        tr(G X^-1) sum(v) = |G^(1/2) X^(-1/2)|^2 |X^(1/2) D^(1/2)|^2 >= (tr R)^2,
        R = (D^(1/2) G D^(1/2))^(1/2),

    with equality for X = D^(-1/2) R D^(-1/2), if its diagonal is 1, that is if v = diag R. The
    iteration v <- (diag R)^2 / v moves there (twice as far as v <- diag R of Denisov et al., in
    logarithms); after ten rounds the error, with columns scaled to norm 1, is within 1e-5 of the
    bound above for every horizon allowed here. That is about error only: S is computed from the M
    that is used. M is the triangular factor of X, from the last row up.

    What rounding does to privacy: noise is made with B as it is stored. A row b of it solves
    b (M + E) = a with |E| <= 2^-53 horizon |M| (Higham 2002, Theorem 8.5), so B^-1 A differs from
    M by at most 2^-53 horizon |B^-1| |B| |M| in norm, which is less than 1e-10 for 256 steps; the
    same holds if a stream is resumed where linear algebra rounds differently. The margin of 1e-9 of
    the sensitivities covers it.
    """
    from scipy.linalg import solve_triangular

    A = np.tril(np.ones((horizon, horizon)))
    G = A.T @ A
    v = np.sqrt(np.arange(horizon, 0, -1.0))
    for _ in range(_ROUNDS):
        R = _scaled_sqrtm(G, v)
        v = np.diagonal(R) ** 2 / v
    R = _scaled_sqrtm(G, v)
    scale = np.sqrt(np.diagonal(R))
    X = R / np.outer(scale, scale)
    M = np.linalg.cholesky(X[::-1, ::-1]).T[::-1, ::-1].copy()
    B = np.tril(solve_triangular(M, A.T, lower=True, trans="T").T)
    return B, M


def _scaled_sqrtm(G: Array, v: Array) -> Array:
    """(D^(1/2) G D^(1/2))^(1/2) for D = diag(v)."""
    scale = np.sqrt(v)
    values, vectors = np.linalg.eigh(G * np.outer(scale, scale))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def square_root(size: int) -> Array:
    """The first coefficients of (1 - x)^(-1/2): 1, 1/2, 3/8, ..."""
    k = np.arange(1, size)
    return np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))


def inverse(column: Array, size: int) -> Array:
    """The first `size` coefficients of the inverse of a power series that begins with 1."""
    found = np.zeros(size)
    found[0] = 1.0
    for i in range(1, size):
        lags = min(i, column.size - 1)
        found[i] = -(column[1 : lags + 1] @ found[i - lags : i][::-1])
    return found


def _lower_toeplitz(column: Array) -> Array:
    """The lower triangular Toeplitz matrix with this first column."""
    lags = np.subtract.outer(np.arange(column.size), np.arange(column.size))
    return np.where(lags >= 0, column[np.maximum(lags, 0)], 0.0)


@lru_cache(maxsize=16)
def quadrature(horizon: int) -> tuple[Array, Array]:
    """`loss` and `weight` with c_k = sum_j weight_j (1 - loss_j)^k to 1e-13, for k < horizon.

    The coefficients are moments: c_k is (2 / pi) times the integral of cos(a)^(2k) for a from 0 to
    pi/2. The integrand falls off around a = 1 / sqrt(k), so Gauss-Legendre panels whose ends grow
    by a factor of 3 from 1 / sqrt(horizon) serve all k alike. The loss sin(a)^2, rather than the
    factor cos(a)^2, is what keeps its digits where it is small.

    What the error does to privacy: the noise is B' z with B' = B (I + E), E = B^-1 (B' - B). The
    norm of a matrix is at most the larger of its largest row and column sums of absolute values
    (Schur); for B^-1 these are at most 2, and for B' - B at most 1e-13 (c_0 + c_1 + ...), that is
    at most 1e-13 (1 + 2 sqrt(horizon / pi)). So |E| < 2.4e-10 up to the longest horizon. As M' =
    B'^-1 A = (I + E)^-1 M, sensitivities are off by no more than that relatively; rounding in
    `square_root` adds 2.4e-10 at most. The margin of 1e-9 covers both.
    """
    ends = [0.0, 1.0 / math.sqrt(horizon)]
    while 3.0 * ends[-1] < math.pi / 2:
        ends.append(3.0 * ends[-1])
    ends.append(math.pi / 2)
    points, weights = np.polynomial.legendre.leggauss(16)
    low, high = np.array(ends[:-1])[:, None], np.array(ends[1:])[:, None]
    angles = (low + high) / 2 + (high - low) / 2 * points
    return np.sin(angles).ravel() ** 2, ((high - low) * weights).ravel() / math.pi


def tree_weights(levels: int, strategy: Strategy) -> tuple[Array, Array, Array]:
    """How the noise of an interval is made, and its variance, level by level.

    The noise of a new interval of level l is fresh_l z plus the sum over i < l of carried_li n_i,
    where n_i is that of the last interval of level i. In the plain tree it is z. In the refined
    tree the estimate of an interval weighs its own noisy sum by w_l and the estimates of its two
    halves, of variance v_(l-1) each, by 1 - w_l. The variance is least, and is v_l = w_l, for
    w_l = 2 v_(l-1) / (1 + 2 v_(l-1)). Written out, the left halves at levels i < l enter with the
    product of 1 - w_m over i < m <= l. All noise that is new at this step enters this one number
    and no other, so one normal z of the variance of it all stands for it, which is
    fresh_l^2 = w_l^2 + (1 - w_l)^2 fresh_(l-1)^2.
    """
    fresh, carried, variances = np.ones(levels), np.zeros((levels, levels)), np.ones(levels)
    if strategy is Strategy.REFINED_TREE:
        for level in range(1, levels):
            own = 2.0 * variances[level - 1] / (1.0 + 2.0 * variances[level - 1])
            variances[level] = own
            fresh[level] = math.hypot(own, (1.0 - own) * fresh[level - 1])
            carried[level] = (1.0 - own) * carried[level - 1]
            carried[level, level - 1] = 1.0 - own
    return fresh, carried, variances
