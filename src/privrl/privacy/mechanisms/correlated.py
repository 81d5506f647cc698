"""Correlated noise for running sums: one event pays for every prefix of a public horizon.

Step t of T = `horizon` steps adds x_t, a sum of contributions of L2 norm at most `bound` each, and
what is wanted is every running sum x_1 + ... + x_t: the iterates of a learner, say. Write A for the
lower triangle of ones, so that the running sums are A x, and A = B M with lower triangular B and M.
Released is A x + B z = B (M x + z), with independent normal z of standard deviation `std`; its
increments are x + M^-1 z. The strategies differ in M.

Unit and relation: the caller's. A unit takes part in at most `participations` steps, at least
`separation` steps apart. These slots are public and fixed in advance: a unit and its replacement
have the same ones, and an absent unit contributes zero. In each slot its whole contribution is
clipped to `bound`. Whatever else enters x_t depends on other units' data and earlier releases only.

**Theorem.** The whole stream is mu-GDP with mu = sensitivity(bound S, relation) / std, where

    S^2 = the largest sum of |M'M|_ij over i, j in P, over all admissible sets of slots P.

So it is one event, `Gaussian(std, bound S)`, for the whole horizon, however much of it is used.

*Proof.* Releasing r = M x + z loses nothing: the release is B r, and as B is lower triangular, what
is known before step t is a function of r_1, ..., r_(t-1). So let x_t depend on these. Given them,
the means of r_t in the two worlds differ by D_t = sum over slots j <= t of M_tj v_j, because M is
lower triangular. Here v_j is the difference of one contribution, chosen with r_1, ..., r_(j-1) in
sight: of norm at most `bound` when one world has zero in its place, and at most 2 bound when it has
another contribution of norm at most `bound`; that is `sensitivity(bound, relation)`. On every path

    sum_t |D_t|^2 = sum_ij (M'M)_ij <v_i, v_j> <= sensitivity^2 sum_ij |M'M|_ij <= (sensitivity S)^2

for vectors v_j as for numbers (Cauchy and Schwarz). Write D for sensitivity S. Append one more
answer whose mean differs by what is missing, so that the sum is D^2 always; this can only help an
attacker. The log-likelihood ratio in the first world is then (sum_t <D_t, z_t> - D^2 / 2) / std^2.
As D_t is known before z_t is drawn, exp(i s sum <D_t, z_t> + s^2 std^2 sum |D_t|^2 / 2) is a
martingale, so the sum has the characteristic function exp(-s^2 std^2 D^2 / 2): it is exactly
normal, and so in the other world with the other sign. That is the pair N(0, std^2), N(D, std^2),
hence mu-GDP. (Denisov, McMahan, Rush, Smith, Thakurta 2022 prove adaptivity for one participation;
several: Choquette-Choo, McMahan, Rush, Thakurta 2023. That the bound on squares may be met
adaptively is the Gaussian privacy filter.)

The strategies are described in `correlated_factorisations.py`, and S is computed in
`correlated_sensitivity.py`.

Arithmetic: 64-bit floating point, so certificates list "idealised real arithmetic". The Toeplitz
sensitivities are rounded up by 1e-9: see `quadrature` in `correlated_factorisations.py`.

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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy.accounting import calibrate
from privrl.privacy.events import Event, Gaussian
from privrl.privacy.mechanisms import clip
from privrl.privacy.mechanisms.correlated_factorisations import (
    LONGEST_OPTIMAL,
    Strategy,
    first_column,
    optimal,
    recurrence,
    tree_weights,
)
from privrl.privacy.mechanisms.correlated_sensitivity import sensitivity
from privrl.privacy.noise import Source, as_finite_float64, as_float64, secure
from privrl.privacy.promise import Budget, NoiseOrigin, Relation

__all__ = ["LONGEST", "CorrelatedMechanism", "Step", "Strategy", "Stream"]

AnyArray = NDArray[Any]

# The longest horizon: up to here, rounding stays within the margin of the Toeplitz sensitivities.
LONGEST = 2**20
_FORMAT = 2
# A stream of more 64-bit numbers than this, 64 GiB, is a mistake.
_MOST_NUMBERS = 2**33


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
        checks.set_checked(self, std=checks.positive, bound=checks.positive)
        checks.set_checked(self, strategy=Strategy.check, horizon=checks.count)
        checks.set_checked(self, participations=checks.count, separation=checks.count)
        if self.horizon > LONGEST:
            raise InputError(f"must be at most {LONGEST}, not {self.horizon}.", field="horizon")
        if self.strategy is Strategy.OPTIMAL and self.horizon > LONGEST_OPTIMAL:
            raise InputError(
                f"The strategy optimal is for at most {LONGEST_OPTIMAL} steps, not {self.horizon}: "
                "use square-root-toeplitz."
            )
        if (self.band is not None) != (self.strategy is Strategy.BANDED):
            raise InputError(
                "belongs to the strategy banded: give it there and only there.", field="band"
            )
        if self.band is not None:
            checks.set_checked(self, band=checks.count)
            if self.band > self.horizon:
                raise InputError(
                    f"band ({self.band}) must not be longer than the horizon ({self.horizon})."
                )

    @classmethod
    def from_budget(
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

        moved = plan(1.0)._l2_sensitivity
        unit = calibrate(lambda std: Gaussian(std, 1.0), budget, relation)
        return plan(math.nextafter(unit * moved, math.inf))

    @property
    def sensitivity(self) -> float:
        """S of the theorem: how far M x moves when each of a unit's contributions moves by 1."""
        return sensitivity(
            self.strategy, self.horizon, self.band, self.participations, self.separation
        )

    @property
    def event(self) -> Event:
        """What all the steps together do: one event for the whole horizon."""
        return Gaussian(self.std, self._l2_sensitivity)

    @property
    def _l2_sensitivity(self) -> float:
        return self.bound * self.sensitivity

    def errors(self) -> Array:
        """The standard deviation of the noise on each of the `horizon` running sums."""
        if self.strategy.is_tree:
            steps = np.arange(1, self.horizon + 1)
            _, _, variances = tree_weights(self.horizon.bit_length(), self.strategy)
            per_level = [((steps >> level) & 1) * v for level, v in enumerate(variances)]
            return np.asarray(self.std * np.sqrt(np.sum(per_level, axis=0)))
        if self.strategy is Strategy.OPTIMAL:
            return np.asarray(self.std * np.linalg.norm(optimal(self.horizon)[0], axis=1))
        column = first_column(recurrence(self.strategy, self.horizon, self.band), self.horizon)
        return np.asarray(self.std * np.sqrt(np.cumsum(column**2)))

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
        rows = as_finite_float64("increments", increments)
        if rows.ndim != 2 or rows.shape[1] == 0:
            raise InputError(
                "must have a row for each step and a column or more.", field="increments"
            )
        if len(rows) > self.horizon:
            raise InputError(f"{len(rows)} rows are more than the horizon of {self.horizon} steps.")
        stream = self.start(source, rows.shape[1])
        totals = np.zeros(rows.shape)
        for i, row in enumerate(rows):
            totals[i] = stream.next_sum(row).total
        return totals, self.event


class Stream:
    """Running sums on their way. What it holds is secret, but for `last_total` and `step`."""

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
    def last_total(self) -> Array:
        """The running sum released last; zeros before the first step."""
        return self._released.copy()

    def next(self, contributions: ArrayLike) -> Step:
        """The next step, from a row for each unit that takes part in it.

        Each row is clipped to the plan's bound; a row with NaN or infinity in it counts as zero.
        """
        rows = as_float64("contributions", contributions)
        if rows.ndim != 2 or rows.shape[1] != self.dimension:
            raise InputError(
                f"must have a row for each unit and {self.dimension} columns, "
                f"not shape {rows.shape}.",
                field="contributions",
            )
        return self.next_sum(clip.l2(rows, self.plan.bound).sum(axis=0))

    def next_sum(self, increment: ArrayLike) -> Step:
        """The next step, from a sum of contributions that the caller has clipped."""
        exact = as_finite_float64("increment", increment)
        if exact.shape != (self.dimension,):
            raise InputError(
                f"must have shape ({self.dimension},), not {exact.shape}.", field="increment"
            )
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
            self._fill_block(self.source.normal(self.plan.std, self._block.shape))
        before, self._noise = self._noise, self._block[within].copy()
        self.step += 1
        return self._noise - before

    def _fill_block(self, z: Array) -> None:
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
    damaged = InputError(f"{path} is not a whole, unedited state of a stream.")
    arrays = files.read_npz(path, damaged)
    try:
        digest = arrays.pop("digest")
        if not np.array_equal(digest, _digest(arrays)):
            raise ValueError
        header: dict[str, Any] = files.parse_json(arrays["header"].tobytes())
        fits = (header["format"], header["plan"]) == (_FORMAT, asdict(plan))
    except (KeyError, TypeError, ValueError, RecursionError):
        raise damaged from None
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
            old, new = getattr(stream, f"_{name}"), as_finite_float64(name, arrays[name])
            if old.shape != new.shape or stream.step > plan.horizon:
                raise ValueError
            setattr(stream, f"_{name}", new)
        z, block = as_finite_float64("z", arrays["z"]), stream._recurrence.block
        within = stream.step % block
        saved = block if within and source.origin is NoiseOrigin.REPRODUCIBLE else within
        if z.shape != (saved, stream.dimension):
            raise ValueError
        if within:
            fresh = source.normal(plan.std, (block - len(z), stream.dimension))
            stream._fill_block(np.concatenate([z, fresh]))
    except Exception:  # what a generator's state may be, NumPy alone knows
        raise damaged from None
    return stream
