"""Correlated noise for running sums: one event pays for every prefix of a public horizon.

Step t of T = `horizon` steps adds x_t, a sum of contributions of L2 norm at most `bound` each, and
what is wanted is every running sum x_1 + ... + x_t: the iterates of a learner, say. Write A for the
lower triangle of ones, so that the running sums are A x, and A = B M with lower triangular B and M.
Released is A x + B z = B (M x + z), with independent normal z of standard deviation `std`; its
increments are x + M^-1 z. The strategies differ in M:

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

Unit and relation: the caller's. A unit takes part in at most `participations` steps, at least
`separation` steps apart. These slots are public and fixed in advance: a unit and its replacement
have the same ones, and an absent unit contributes zero. In each slot its whole contribution is
clipped to `bound`. Whatever else enters x_t depends on other units' data and earlier releases only.

**Theorem.** The whole stream is mu-GDP with mu = movement(bound S, relation) / std, where

    S^2 = the largest sum of |M'M|_ij over i, j in P, over all admissible sets of slots P.

So it is one event, `Gaussian(std, bound S)`, for the whole horizon, however much of it is used.

*Proof.* Releasing r = M x + z loses nothing: the release is B r, and as B is lower triangular, what
is known before step t is a function of r_1, ..., r_(t-1). So let x_t depend on these. Given them,
the means of r_t in the two worlds differ by D_t = sum over slots j <= t of M_tj v_j, because M is
lower triangular. Here v_j is the difference of one contribution, chosen with r_1, ..., r_(j-1) in
sight: of norm at most `bound` when one world has zero in its place, and at most 2 bound when it has
another contribution of norm at most `bound`; that is `movement(bound, relation)`. On every path

    sum_t |D_t|^2 = sum_ij (M'M)_ij <v_i, v_j> <= movement^2 sum_ij |M'M|_ij <= (movement S)^2

for vectors v_j as for numbers (Cauchy and Schwarz). Write D for movement S. Append one more answer
whose mean differs by what is missing, so that the sum is D^2 always; this can only help an
attacker. The log-likelihood ratio in the first world is then (sum_t <D_t, z_t> - D^2 / 2) / std^2.
As D_t is known before z_t is drawn, exp(i s sum <D_t, z_t> + s^2 std^2 sum |D_t|^2 / 2) is a
martingale, so the sum has the characteristic function exp(-s^2 std^2 D^2 / 2): it is exactly
normal, and so in the other world with the other sign. That is the pair N(0, std^2), N(D, std^2),
hence mu-GDP. (Denisov, McMahan, Rush, Smith, Thakurta 2022 prove adaptivity for one participation;
several: Choquette-Choo, McMahan, Rush, Thakurta 2023. That the bound on squares may be met
adaptively is the Gaussian privacy filter.)

Sensitivity S. Where M is non-negative, the sum over P is attained by v_j all equal and S is exact
if the largest P is known:

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
  which is smaller, is used: see `_refined_column`;
- optimal: the largest column norm for one participation. For more, an upper bound: the sum over
  i, j in P is at most the sum over i in P of r_i, where r_i is the largest sum of |M'M|_ij over j
  in any admissible P, and that is at most the largest sum of r_i over any admissible P. Both
  largest sums are found exactly, by dynamic programming: see `_largest_sums`.

Arithmetic: 64-bit floating point, so certificates list "idealised real arithmetic". The Toeplitz
sensitivities are rounded up by 1e-9: see `quadrature`.

Memory: the tree needs a number per level, the band its length, and the square root some hundred
numbers, for each coordinate: A^(1/2) is a sum of that many geometric series to 13 digits. None of
these keeps its past; the optimal strategy keeps all z so far. What is kept is **secret**: with it
the noise can be taken off the releases.
"""

import hashlib
import io
import json
import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy.accounting import calibrate
from privrl.privacy.events import Event, Gaussian
from privrl.privacy.mechanisms import clip
from privrl.privacy.noise import Source, finite, numbers, secure
from privrl.privacy.promise import Budget, NoiseOrigin, Relation, Word

AnyArray = NDArray[Any]

# The longest horizon: up to here, rounding stays within the margin of the Toeplitz sensitivities.
LONGEST = 2**20
# The longest for which the optimal strategy is computed, in a tenth of a second of one processor.
LONGEST_OPTIMAL = 256
_MARGIN = 1e-9
# Toeplitz noise is made this many steps at a time, in one matrix product: few of them, because each
# waits for all threads of the linear algebra library, which is long on a busy machine.
_BLOCK = 256
_FORMAT = 2
# Rounds of the iteration for the optimal strategy.
_ROUNDS = 10
# A stream of more 64-bit numbers than this, 64 GiB, is a mistake.
_MOST_NUMBERS = 2**33


class Strategy(Word):
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
    def tree(self) -> bool:
        """Whether the noise is that of dyadic intervals."""
        return self in (Strategy.BINARY_TREE, Strategy.REFINED_TREE)


class Step(NamedTuple):
    """What one step releases, in two views: both have the noise in them."""

    total: Array
    """The running sum up to this step, with noise (B z)_t."""
    increment: Array
    """This step's sum, with noise (M^-1 z)_t; the increments add up to the totals."""


@dataclass(frozen=True)
class CorrelatedMechanism:
    """Running sums over `horizon` steps, with noise that partly cancels from step to step."""

    std: float
    bound: float
    horizon: int
    strategy: Strategy = Strategy.SQUARE_ROOT_TOEPLITZ
    band: int | None = None
    participations: int = 1
    separation: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", checks.positive("std", self.std))
        object.__setattr__(self, "bound", checks.positive("bound", self.bound))
        object.__setattr__(self, "strategy", Strategy.parse(self.strategy))
        for name in ("horizon", "participations", "separation"):
            object.__setattr__(self, name, checks.count(name, getattr(self, name)))
        if self.horizon > LONGEST:
            raise InputError(f"horizon must be at most {LONGEST}, not {self.horizon}.")
        if self.strategy is Strategy.OPTIMAL and self.horizon > LONGEST_OPTIMAL:
            raise InputError(
                f"The strategy optimal is for at most {LONGEST_OPTIMAL} steps, not {self.horizon}: "
                "use square-root-toeplitz."
            )
        if (self.band is not None) != (self.strategy is Strategy.BANDED):
            raise InputError("band belongs to the strategy banded: give it there and only there.")
        if self.band is not None:
            object.__setattr__(self, "band", checks.count("band", self.band))
            if self.band > self.horizon:
                raise InputError(
                    f"band ({self.band}) must not be longer than the horizon ({self.horizon})."
                )

    @classmethod
    def calibrated(
        cls,
        bound: float,
        budget: Budget,
        relation: Relation = Relation.REPLACE_ONE,
        *,
        horizon: int,
        strategy: Strategy = Strategy.SQUARE_ROOT_TOEPLITZ,
        band: int | None = None,
        participations: int = 1,
        separation: int = 1,
    ) -> "CorrelatedMechanism":
        """The least noise with which the whole stream stays within `budget`."""

        def plan(std: float) -> CorrelatedMechanism:
            return cls(std, bound, horizon, strategy, band, participations, separation)

        moved = plan(1.0)._moved
        unit = calibrate(lambda std: Gaussian(std, 1.0), budget, relation)
        return plan(math.nextafter(unit * moved, math.inf))

    @property
    def sensitivity(self) -> float:
        """S of the theorem: how far M x moves when each of a unit's contributions moves by 1."""
        return _sensitivity(
            self.strategy, self.horizon, self.band, self.participations, self.separation
        )

    @property
    def event(self) -> Event:
        """What all the steps together do: one event for the whole horizon."""
        return Gaussian(self.std, self._moved)

    @property
    def _moved(self) -> float:
        return self.bound * self.sensitivity

    def errors(self) -> Array:
        """The standard deviation of the noise on each of the `horizon` running sums."""
        if self.strategy.tree:
            steps = np.arange(1, self.horizon + 1)
            _, _, variances = tree_weights(self.horizon.bit_length(), self.strategy)
            per_level = [((steps >> level) & 1) * v for level, v in enumerate(variances)]
            return np.asarray(self.std * np.sqrt(np.sum(per_level, axis=0)))
        if self.strategy is Strategy.OPTIMAL:
            return np.asarray(self.std * np.linalg.norm(optimal(self.horizon)[0], axis=1))
        response = _response(recurrence(self.strategy, self.horizon, self.band), self.horizon)
        return np.asarray(self.std * np.sqrt(np.cumsum(response**2)))

    def start(self, source: Source, dimension: int = 1) -> "Stream":
        """A stream of running sums of vectors; `event` is paid for before it starts."""
        return Stream(self, source, dimension)

    def load(self, path: str | Path) -> "Stream":
        """The stream saved at `path`, ready to go on where it was saved."""
        return _load(self, Path(path))

    def release(self, increments: ArrayLike, source: Source) -> tuple[Array, Event]:
        """The running sums of the rows of `increments` with noise, and what was done.

        A row is one step's sum of clipped contributions. There may be fewer rows than steps in the
        horizon; the event is the same.
        """
        rows = finite("increments", increments)
        if rows.ndim != 2 or rows.shape[1] == 0:
            raise InputError("increments must have a row for each step and a column or more.")
        if len(rows) > self.horizon:
            raise InputError(f"{len(rows)} rows are more than the horizon of {self.horizon} steps.")
        stream = self.start(source, rows.shape[1])
        totals = np.zeros(rows.shape)
        for i, row in enumerate(rows):
            totals[i] = stream.next_sum(row).total
        return totals, self.event


class Stream:
    """Running sums on their way. What it holds is secret, but for `released` and `step`."""

    def __init__(self, plan: CorrelatedMechanism, source: Source, dimension: int = 1) -> None:
        self.plan = plan
        self.source = source
        self.dimension = checks.count("dimension", dimension)
        self.step = 0
        self._recurrence = recurrence(plan.strategy, plan.horizon, plan.band)
        rows, block = self._recurrence.rows, self._recurrence.block
        if (2 * rows + 2 * block) * self.dimension > _MOST_NUMBERS:
            raise InputError(f"dimension ({self.dimension}) is too large for a stream's memory.")
        # The memory after the block of noise at hand, and before it with the z it was made of.
        self._memory = np.zeros((rows, self.dimension))
        self._before = self._memory
        self._z: Array = np.zeros((block, self.dimension))
        self._block: Array = np.zeros((block, self.dimension))
        self._noise: Array = np.zeros(self.dimension)
        # The last total, not the sum without noise: that is never kept.
        self._released: Array = np.zeros(self.dimension)

    @property
    def released(self) -> Array:
        """The running sum released last; zeros before the first step."""
        return self._released.copy()

    def next(self, contributions: ArrayLike) -> Step:
        """The next step, from a row for each unit that takes part in it.

        Each row is clipped to the plan's bound; a row with NaN or infinity in it counts as zero.
        """
        rows = numbers("contributions", contributions)
        if rows.ndim != 2 or rows.shape[1] != self.dimension:
            raise InputError(
                f"contributions must have a row for each unit and {self.dimension} columns, "
                f"not shape {rows.shape}."
            )
        return self.next_sum(clip.l2(rows, self.plan.bound).sum(axis=0))

    def next_sum(self, increment: ArrayLike) -> Step:
        """The next step, from a sum of contributions that the caller has clipped."""
        exact = finite("increment", increment)
        if exact.shape != (self.dimension,):
            raise InputError(f"increment must have shape ({self.dimension},), not {exact.shape}.")
        noised = exact + self._next_noise()
        self._released = self._released + noised
        return Step(self._released.copy(), noised)

    def noise(self) -> Step:
        """The next step, of nothing but noise: for callers who add it to their sums themselves.

        `increment` is the noise of this step's sum. `total` is the noise of the running sum,
        provided that no earlier step of this stream had a sum of its own.
        """
        return self.next_sum(np.zeros(self.dimension))

    def _next_noise(self) -> Array:
        """(M^-1 z)_t for the next t."""
        if self.step >= self.plan.horizon:
            raise InputError(
                f"All {self.plan.horizon} steps of the horizon are used: plan a longer one."
            )
        within = self.step % self._recurrence.block
        if within == 0:
            self._run(self.source.normal(self.plan.std, self._block.shape))
        before, self._noise = self._noise, self._block[within].copy()
        self.step += 1
        return self._noise - before

    def _run(self, z: Array) -> None:
        """Make the noise of the block in which the next step is."""
        self._z = z
        # Blocks of one step are never left half used, and need no copy.
        self._before = self._memory.copy() if len(z) > 1 else self._memory
        first = self.step - self.step % self._recurrence.block
        self._block = self._recurrence.run(self._memory, z, first)

    def save(self, path: str | Path) -> None:
        """Write the state to `path`, readable by its owner only (mode 0600); it is **secret**.

        Use a state once. Save after a step and before it is published, resume from the newest state
        only, and do not publish again what was published. Noise that is not used yet is not in the
        file of a secure stream: it is drawn afresh on loading, independent of all that was drawn
        before, so that a fresh source continues the same process. Two streams from one state thus
        have independent noise from there on, and the sums that both of them release are out twice.
        That is private, but the event pays for it once only: it costs another event.

        A reproducible source is saved with the stream, which then continues bit for bit. Whoever
        resumes it twice with different sums gives away their difference in the clear.
        """
        bits = self.source.generator.bit_generator
        generator = None
        within = self.step % self._recurrence.block
        used = within
        if self.source.origin is NoiseOrigin.REPRODUCIBLE:
            if not isinstance(bits, np.random.PCG64):
                raise InputError("Only streams on a source from privrl.privacy.noise can be saved.")
            generator = bits.state
            used = len(self._z) if within else 0
        header = {
            "format": _FORMAT,
            "plan": asdict(self.plan),
            "dimension": self.dimension,
            "step": self.step,
            "generator": generator,
        }
        arrays: dict[str, AnyArray] = {
            "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
            "memory": self._before if within else self._memory,
            "z": self._z[:used],
            "noise": self._noise,
            "released": self._released,
        }
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays, digest=_digest(arrays))
        files.write(path, buffer.getvalue(), secret=True)


# --- state on disk --------------------------------------------------------------------------------


def _digest(arrays: dict[str, AnyArray]) -> AnyArray:
    """A checksum of names, shapes and bytes: it shows accidents, not malice."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(sha.digest(), dtype=np.uint8)


def _load(plan: CorrelatedMechanism, path: Path) -> Stream:
    try:
        content = files.content(path)
    except OSError as error:
        raise InputError(f"The state {path} cannot be read: {files.reason(error)}.") from None
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        digest = arrays.pop("digest")
        if not np.array_equal(digest, _digest(arrays)):
            raise ValueError
        header: dict[str, Any] = files.parse_json(arrays["header"].tobytes())
        fits = (header["format"], header["plan"]) == (_FORMAT, asdict(plan))
    # A damaged file makes the readers of zip, NumPy and JSON raise errors of a dozen kinds.
    except Exception:
        raise InputError(f"{path} is not a whole, unedited state of a stream.") from None
    if not fits:
        raise InputError(f"The state {path} belongs to another plan than this one.")
    try:
        source = secure()
        if header["generator"] is not None:
            bits = np.random.PCG64()
            bits.state = header["generator"]
            source = Source(np.random.Generator(bits), NoiseOrigin.REPRODUCIBLE)
        stream = plan.start(source, header["dimension"])
        stream.step = checks.count("step", header["step"] + 1) - 1
        for name in ("memory", "noise", "released"):
            old, new = getattr(stream, f"_{name}"), finite(name, arrays[name])
            if old.shape != new.shape or stream.step > plan.horizon:
                raise ValueError
            setattr(stream, f"_{name}", new)
        z, block = finite("z", arrays["z"]), stream._recurrence.block
        within = stream.step % block
        saved = block if within and source.origin is NoiseOrigin.REPRODUCIBLE else within
        if z.shape != (saved, stream.dimension):
            raise ValueError
        if within:
            fresh = source.normal(plan.std, (block - len(z), stream.dimension))
            stream._run(np.concatenate([z, fresh]))
    except Exception:
        raise InputError(f"{path} is not a whole, unedited state of a stream.") from None
    return stream


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
    if strategy.tree:
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
        solved = _lower(inverse(column, self.block))
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
        now = np.hstack([powers[1:] * weight, _lower(square_root(self.block))])
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
        R = _root_of(G, v)
        v = np.diagonal(R) ** 2 / v
    R = _root_of(G, v)
    scale = np.sqrt(np.diagonal(R))
    X = R / np.outer(scale, scale)
    M = np.linalg.cholesky(X[::-1, ::-1]).T[::-1, ::-1].copy()
    B = np.tril(solve_triangular(M, A.T, lower=True, trans="T").T)
    return B, M


def _root_of(G: Array, v: Array) -> Array:
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


def _lower(column: Array) -> Array:
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


def _response(makes: Recurrence, steps: int) -> Array:
    """The first column of a Toeplitz B: the noise that z = (1, 0, 0, ...) makes."""
    memory, found = np.zeros((makes.rows, 1)), []
    for step in range(0, steps, makes.block):
        z = np.zeros((makes.block, 1))
        z[0] = float(step == 0)
        found.append(makes.run(memory, z, step)[:, 0])
    return np.concatenate(found)[:steps]


# --- sensitivity ----------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _sensitivity(
    strategy: Strategy, horizon: int, band: int | None, participations: int, separation: int
) -> float:
    """S of the theorem; never rounded down."""
    slots = min(participations, (horizon - 1) // separation + 1)
    if strategy is Strategy.INDEPENDENT:
        return _root_up(slots)
    if strategy.tree:
        counted = _root_up(_tree_squares(strategy, horizon, slots, separation))
        if strategy is Strategy.BINARY_TREE:
            return counted
        # Also at most `slots` columns, by the triangle inequality.
        return min(counted, slots * _refined_column(horizon) * (1.0 + _MARGIN))
    if strategy is Strategy.OPTIMAL:
        M = optimal(horizon)[1]
        moved = float(np.linalg.norm(M, axis=0).max())
        if slots > 1:
            each = _largest_sums(np.abs(M.T @ M), slots, separation)
            moved = min(slots * moved, math.sqrt(_largest_sums(each[None], slots, separation)[0]))
        return moved * (1.0 + _MARGIN)
    column = np.zeros(horizon)
    column[: band or horizon] = square_root(band or horizon)
    total = _over_slots(column, slots, separation)
    return math.sqrt(float(total @ total)) * (1.0 + _MARGIN)


def _over_slots(column: Array, slots: int, separation: int) -> Array:
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


def _root_up(square: int) -> float:
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


def _refined_column(horizon: int) -> float:
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
