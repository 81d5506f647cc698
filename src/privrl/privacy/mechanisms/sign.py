"""Projected random sign (Ono and Takahashi 2020, Algorithm 3): a few noisy bits about a vector.

Unit: one agent, one report. Relation: local, any input against any other. What is released: a
public random seed and `bits` noisy bits. Everything else is computed from these two.

With b = max(1, min(d, floor(epsilon / 2.5))) bits, the seed gives b random directions m_i with
entries -sqrt(3), 0, sqrt(3) of probability 1/6, 2/3, 1/6 (the paper's (5), Achlioptas 2001). The
agent computes u_i = m_i . g, clips it to [-C, C], and reports +1 with probability

    1 / (e^x + 1) + (u_i + C) / (2C) * (e^x - 1) / (e^x + 1),    x = epsilon / b,

which is the paper's (24) with epsilon / b where it prints epsilon / k.

Proof of epsilon-DP. The seed is drawn without looking at the vector. Given the seed, a bit is made
in two stages: s = +1 with probability (1 + u_i / C) / 2, then s is reported truly with probability
1 / (1 + e^-x), its opposite otherwise. Whatever s and its law, each value of a bit has probability
between 1 / (1 + e^x) and 1 / (1 + e^-x); so two inputs give it with probabilities at most e^x
apart, and the b independent bits together at most e^epsilon apart.

Arithmetic: nothing is idealised. The second stage is an exact coin for a rational x rounded down,
and the proof holds for any law of s, so rounding in the projection cannot break it.

Bias. E[report] = b tanh(x/2) E[m clip(m . g)] for directions as above, with the reports sum_i
(+-C) m_i that the paper sends. If m . g is normal with standard deviation `radius`, Stein's lemma
makes E[m clip(m . g)] = kappa g with kappa = P(|m . g| < C) = erf(C / (radius sqrt(2))). As
printed (`debias=False`) the report shrinks the vector by b tanh(x/2) kappa; `debias=True` divides
by it. That is unbiased as far as m . g is normal: within one percent for dense vectors of L2 norm
`radius`, but too long by up to a factor 1/kappa for short ones, and too short by 15 % at C = 1 for
a vector with a single entry.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy import exact
from privrl.privacy.events import Event, PureDP
from privrl.privacy.exact import Booleans
from privrl.privacy.mechanisms.report_laplace import as_rows
from privrl.privacy.noise import Source
from privrl.privacy.promise import Relation

Signs = NDArray[np.int8]

_SEED_BYTES = 16
# Separates this use of the hash function from all others; a new projection gets a new name, and
# this one keeps its own, by which agents and servers of all versions find the same.
_DOMAIN = b"tacit projected sign 1"
# Rational parameters are multiples of this: fine enough to lose nothing, coarse enough for the
# exact samplers to stay within 64 bits.
_GRAIN = 2**40
# Entries of all directions that are held in memory at once.
_BLOCK = 2**22


def epsilon_share(epsilon: float, parts: int) -> Fraction:
    """epsilon / parts, rounded down to a fraction with which exact coins are quick."""
    rounded = Fraction(math.floor(Fraction(epsilon) / parts * _GRAIN), _GRAIN)
    if rounded <= 0:
        raise InputError(f"epsilon {epsilon:g} is too small for a report to say anything.")
    return rounded


def num_parts(epsilon: float, dimension: int) -> int:
    """How many parts a budget is best split into: max(1, min(d, floor(epsilon / 2.5)))."""
    return max(1, min(dimension, math.floor(epsilon / 2.5)))


def bernoulli_sigmoid(generator: np.random.Generator, x: Fraction, size: int) -> Booleans:
    """True with probability 1 / (1 + exp(-x)), exactly.

    Heads of a fair coin says true; tails says false with probability exp(-x), and otherwise the
    coin is tossed again. So the odds of true are 1/2 against exp(-x)/2.
    """
    result = np.zeros(size, dtype=np.bool_)
    pending = np.arange(size)
    while pending.size:
        heads = exact.bernoulli(generator, Fraction(1, 2), pending.size)
        result[pending[heads]] = True
        tails = pending[~heads]
        pending = tails[~exact.bernoulli_exp(generator, x, tails.size)]
    return result


def stochastic_sign(generator: np.random.Generator, t: Array) -> Booleans:
    """True with probability (1 + t) / 2, for t in [-1, 1] rounded to a multiple of 2^-52."""
    threshold = np.rint((1.0 + t) * 2.0**52).astype(np.int64)
    said: Booleans = generator.integers(0, 2**53, t.shape, dtype=np.int64) < threshold
    return said


@dataclass(frozen=True)
class SignReport:
    """What travels: a public seed of 16 bytes, and the noisy bits."""

    seed: bytes
    bits: tuple[bool, ...]


@dataclass(frozen=True)
class ProjectedSign:
    """Reports of `bits` noisy bits about a row's projections, clipped to [-clip, clip].

    `clip` is the paper's C (1 in its experiments; 0.1 has a quarter less error). `radius` is the L2
    norm at which `debias=True` is meant to be unbiased; no row is clipped to it.
    """

    epsilon: float
    dimension: int
    clip: float = 1.0
    debias: bool = True
    radius: float = 1.0

    def __post_init__(self) -> None:
        checks.set_checked(self, epsilon=checks.positive, dimension=checks.count)
        checks.set_checked(self, clip=checks.positive, radius=checks.positive)
        if not 2.0**-500 < self.clip < 2.0**500:
            raise InputError(f"clip {self.clip:g} is out of range.")
        if not 1e-9 < self.clip / self.radius < 1e9:
            raise InputError("clip and radius must be within a factor of 10^9 of each other.")
        checks.set_checked(self, debias=checks.boolean)
        epsilon_share(self.epsilon, self.bits)

    @property
    def bits(self) -> int:
        """How many bits a report has."""
        return num_parts(self.epsilon, self.dimension)

    @property
    def epsilon_per_part(self) -> Fraction:
        """What one bit spends: epsilon / bits, rounded down."""
        return epsilon_share(self.epsilon, self.bits)

    @property
    def shrinkage(self) -> float:
        """E[report] = shrink * row as printed, if the row's projections are N(0, radius^2)."""
        kappa = math.erf(self.clip / (self.radius * math.sqrt(2.0)))
        return self.bits * math.tanh(float(self.epsilon_per_part) / 2.0) * kappa

    @property
    def size(self) -> float:
        """What each signed direction (entries -1, 0, 1) is multiplied by in a report."""
        return math.sqrt(3.0) * self.clip / (self.shrinkage if self.debias else 1.0)

    @property
    def event(self) -> Event:
        """What one report costs its agent."""
        return PureDP(self.epsilon, relation=Relation.LOCAL)

    @property
    def error(self) -> float:
        """E |report - row|^2 for a row of norm `radius` whose projections are normal.

        With s = shrink, b bits and the factor f = 1 (as printed) or 1/s, the report f C sum b_i m_i
        has E |report|^2 = f^2 (C^2 b d + (b - 1)/b s^2 radius^2) and E report = f s row.
        """
        factor = 1.0 / self.shrinkage if self.debias else 1.0
        noise = self.clip**2 * self.bits * self.dimension
        signal = (1.0 - 1.0 / self.bits) * (self.shrinkage * self.radius) ** 2
        cross = (1.0 - 2.0 * factor * self.shrinkage) * self.radius**2
        return factor**2 * (noise + signal) + cross

    def release(self, rows: ArrayLike, source: Source) -> tuple[Array, Event]:
        """The expanded report of each row, and what each of them cost its agent."""
        finite = as_rows(rows, self.dimension)
        reports, event = self.reports(finite, source)
        return self.expand(reports).reshape(finite.shape), event

    def reports(self, rows: ArrayLike, source: Source) -> tuple[list[SignReport], Event]:
        """The report of each row as it travels, and what each of them cost its agent."""
        finite = as_rows(rows, self.dimension).reshape(-1, self.dimension)
        drawn = source.generator.bytes(_SEED_BYTES * len(finite))
        seeds = [drawn[i : i + _SEED_BYTES] for i in range(0, len(drawn), _SEED_BYTES)]
        wanted = stochastic_sign(source.generator, self.positions(finite, seeds))
        truth = bernoulli_sigmoid(source.generator, self.epsilon_per_part, wanted.size).reshape(
            wanted.shape
        )
        bits = (wanted == truth).tolist()
        return [SignReport(s, tuple(b)) for s, b in zip(seeds, bits, strict=True)], self.event

    def positions(self, rows: Array, seeds: Sequence[bytes]) -> Array:
        """u / C in [-1, 1] for each finite row and each of its seed's directions."""
        # Huge rows are brought within range by a power of two, so that no sum overflows.
        largest = np.max(np.abs(rows), axis=1, keepdims=True)
        shrunk = np.where(largest > 2.0**900, 2.0**-120, 1.0)
        scaled = rows * shrunk
        found = np.zeros((len(rows), self.bits))
        for block in self._blocks(len(rows)):
            signs = self.directions(seeds[block]).astype(np.float64)
            found[block] = np.matmul(signs, scaled[block, :, None])[:, :, 0]
        limit = self.clip / math.sqrt(3.0) * shrunk
        return np.clip(found, -limit, limit) / limit

    def directions(self, seeds: Sequence[bytes]) -> Signs:
        """The entries -1, 0, 1 of each seed's directions, shape (seeds, bits, dimension).

        SHAKE-128 of the seed, byte by byte: bytes of 252 and above are skipped, the rest modulo 6
        gives -1 for 0, 1 for 1, and 0 for the other four.
        """
        needed = self.bits * self.dimension
        drawn = [hashlib.shake_128(_DOMAIN + seed) for seed in seeds]
        length = needed + needed // 32 + 16
        while True:
            joined = b"".join(s.digest(length) for s in drawn)
            stream = np.frombuffer(joined, dtype=np.uint8).reshape(len(drawn), length)
            kept = stream < 252
            counts = np.sum(kept, axis=1)
            if np.all(counts >= needed):
                break
            length *= 2  # the longer digest begins with the shorter one
        # All kept bytes one after the other, of which each row's first `needed` ones are taken.
        starts = np.cumsum(counts) - counts
        values = stream[kept][starts[:, None] + np.arange(needed)] % 6
        signs: Signs = np.array([-1, 1, 0, 0, 0, 0], dtype=np.int8)[values]
        return signs.reshape(len(drawn), self.bits, self.dimension)

    def expand(self, reports: Sequence[SignReport]) -> Array:
        """Each report as a vector: size * sum_i (+-1) (direction i)."""
        result = np.zeros((len(reports), self.dimension))
        for block in self._blocks(len(reports)):
            signs = self.directions([r.seed for r in reports[block]])
            bits = np.array([r.bits for r in reports[block]], dtype=np.float64) * 2.0 - 1.0
            result[block] = np.matmul(bits[:, None, :], signs.astype(np.float64))[:, 0, :]
        return result * self.size

    def encode(self, report: SignReport) -> bytes:
        """The seed, then the bits, eight to a byte with the first one lowest."""
        whole = (
            isinstance(report, SignReport)
            and isinstance(report.seed, bytes)
            and len(report.seed) == _SEED_BYTES
            and isinstance(report.bits, tuple)
            and len(report.bits) == self.bits
        )
        if not whole:
            raise InputError(f"A report of this plan has a 16-byte seed and {self.bits} bits.")
        packed = sum(1 << i for i, bit in enumerate(report.bits) if bit)
        return report.seed + packed.to_bytes((self.bits + 7) // 8, "little")

    def decode(self, data: bytes) -> SignReport:
        """The report in `data`; anything that `encode` cannot have written is refused."""
        length = _SEED_BYTES + (self.bits + 7) // 8
        if not isinstance(data, bytes) or len(data) != length:
            raise InputError(f"A report of this plan has {length} bytes, and this one does not.")
        packed = int.from_bytes(data[_SEED_BYTES:], "little")
        if packed >> self.bits:
            raise InputError(f"A report of this plan has {self.bits} bits, and this one has more.")
        bits = tuple(bool(packed >> i & 1) for i in range(self.bits))
        return SignReport(data[:_SEED_BYTES], bits)

    def _blocks(self, rows: int) -> list[slice]:
        step = max(1, _BLOCK // (self.bits * self.dimension))
        return [slice(start, start + step) for start in range(0, rows, step)]
