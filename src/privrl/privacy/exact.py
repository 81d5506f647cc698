"""Exact samplers: random integers in, random integers out, and no rounding between them.

The algorithms are those of Canonne, Kamath and Steinke (2020), who sample Bernoulli(exp(-x)) for a
rational x by von Neumann's alternating series, and from it the discrete Laplace and discrete
Gaussian laws by rejection. All arithmetic is on integers, so the law of what comes out is exactly
the law on paper, provided the generator's bits are fair.

Whole arrays are drawn at once with 64-bit integers as long as every product fits; the same steps in
Python's unbounded integers (`_BigIntSampler`) serve larger parameters, and tests compare the two.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privrl.core.errors import InputError

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

# Numerators and denominators stay below this, so that a denominator times the small k of the
# alternating series still fits into 63 bits.
_SAFE = 2**57
_MOST_TERMS = 32  # 1/32! is below 2^-117: the series never gets there, and is checked for it


def as_fraction(name: str, value: object) -> Fraction:
    """`value` as an exact positive fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise InputError(f"must be a whole number or a fraction, not {value!r}.", field=name)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"must be finite, not {value}.", field=name)
    exact = Fraction(value)
    if exact <= 0:
        raise InputError(f"must be positive, not {value}.", field=name)
    return exact


def bernoulli(
    generator: np.random.Generator, probability: Fraction | int | float, size: int
) -> Booleans:
    """True with exactly the given rational probability."""
    p = Fraction(probability)
    if not 0 <= p <= 1:
        raise InputError(f"must be between 0 and 1, not {probability}.", field="probability")
    if p.denominator < _SAFE:
        return _uniform_below(generator, p.denominator, size) < p.numerator
    one = _BigIntSampler(generator)
    return np.array([one.bernoulli(p) for _ in range(size)], dtype=np.bool_)


def bernoulli_exp(generator: np.random.Generator, x: Fraction | int | float, size: int) -> Booleans:
    """True with probability exp(-x), exactly, for a rational x >= 0."""
    exact = Fraction(x)
    if exact < 0:
        raise InputError(f"must be zero or more, not {x}.", field="x")
    if exact.numerator < _SAFE and exact.denominator < _SAFE:
        numerators = np.full(size, exact.numerator, dtype=np.int64)
        return _bernoulli_exp_each(generator, numerators, exact.denominator)
    one = _BigIntSampler(generator)
    return np.array([one.bernoulli_exp(exact) for _ in range(size)], dtype=np.bool_)


def discrete_laplace(
    generator: np.random.Generator, scale: Fraction | int | float, size: int
) -> Integers:
    """P(k) proportional to exp(-|k| / scale) on the integers."""
    exact = as_fraction("scale", scale)
    if exact.numerator < _SAFE // 2**16 and exact.denominator < _SAFE:
        return _collect_accepted(lambda n: _laplace_proposals(generator, exact, n), size, 1.8)
    one = _BigIntSampler(generator)
    return _as_int64([one.discrete_laplace(exact) for _ in range(size)])


def discrete_gaussian(
    generator: np.random.Generator, std: Fraction | int | float, size: int
) -> Integers:
    """P(k) proportional to exp(-k^2 / (2 std^2)) on the integers."""
    exact = as_fraction("std", std)
    variance = exact**2
    p, q = variance.numerator, variance.denominator
    t = math.isqrt(p // q) + 1
    if 2 * p * q * t * t < _SAFE and q * t < 2**31:
        return _collect_accepted(lambda n: _gaussian_proposals(generator, p, q, t, n), size, 1.5)
    one = _BigIntSampler(generator)
    return _as_int64([one.discrete_gaussian(variance) for _ in range(size)])


# --- whole arrays ---------------------------------------------------------------------------------


def _uniform_below(generator: np.random.Generator, limit: int, size: int) -> Integers:
    """Uniform on 0, ..., limit - 1; NumPy rejects what would not divide evenly."""
    return generator.integers(0, limit, size, dtype=np.int64)


def _collect_accepted(
    proposals: Callable[[int], Integers], size: int, first_guess: float
) -> Integers:
    """`size` accepted proposals; which ones are accepted does not depend on how many are needed."""
    parts: list[Integers] = []
    missing = size
    while missing > 0:
        accepted = proposals(int(missing * first_guess) + 16)
        parts.append(accepted[:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _bernoulli_exp_each(
    generator: np.random.Generator, numerators: Integers, denominator: int
) -> Booleans:
    """True with probability exp(-numerator / denominator), entry by entry."""
    whole, rest = np.divmod(numerators, denominator)
    result = _bernoulli_exp_unit(generator, rest, denominator)
    # exp(-whole) = exp(-1)^whole: one more coin for each, until one fails.
    pending = np.flatnonzero(result & (whole > 0))
    while pending.size:
        coins = _bernoulli_exp_unit(generator, np.ones(pending.size, dtype=np.int64), 1)
        result[pending[~coins]] = False
        whole[pending] -= 1
        pending = pending[coins & (whole[pending] > 0)]
    return result


def _bernoulli_exp_unit(
    generator: np.random.Generator, numerators: Integers, denominator: int
) -> Booleans:
    """exp(-x) for x = numerator / denominator <= 1: draw Bernoulli(x / k) for k = 1, 2, ...

    The first failure is at k with probability x^(k-1)/(k-1)! - x^k/k!; it is odd with probability
    1 - x + x^2/2 - ... = exp(-x).
    """
    result = np.ones(numerators.size, dtype=np.bool_)
    alive = np.arange(numerators.size)
    for k in range(1, _MOST_TERMS + 1):
        alive = alive[_uniform_below(generator, denominator * k, alive.size) < numerators[alive]]
        if not alive.size:
            return result
        result[alive] = k % 2 == 0  # the failure will come at k + 1 at the earliest
    raise AssertionError("an event of probability below 2^-117 happened: the generator is broken")


def _laplace_proposals(generator: np.random.Generator, scale: Fraction, attempts: int) -> Integers:
    """Accepted draws of CKS 2020, Algorithm 2, for the scale t / s."""
    t, s = scale.numerator, scale.denominator
    u = _uniform_below(generator, t, attempts)
    u = u[_bernoulli_exp_each(generator, u, t)]
    v = np.zeros(u.size, dtype=np.int64)
    counting = np.arange(u.size)
    while counting.size:
        counting = counting[
            _bernoulli_exp_unit(generator, np.ones(counting.size, dtype=np.int64), 1)
        ]
        v[counting] += 1
    size = (u + t * v) // s
    negative = _uniform_below(generator, 2, size.size) == 1
    kept = ~(negative & (size == 0))
    signed: Integers = np.where(negative, -size, size)[kept]
    return signed


def _gaussian_proposals(
    generator: np.random.Generator, p: int, q: int, t: int, attempts: int
) -> Integers:
    """Accepted draws of CKS 2020, Algorithm 3, for the variance p / q.

    Discrete Laplace of scale t, kept with probability exp(-(|y| - p/(q t))^2 q / (2 p)), that is
    exp(-(|y| q t - p)^2 / (2 p q t^2)).
    """
    y = discrete_laplace(generator, t, attempts)
    distance = np.abs(y) * (q * t) - p
    denominator = 2 * p * q * t * t
    fits = np.abs(distance) < 2**31
    kept = np.zeros(y.size, dtype=np.bool_)
    kept[fits] = _bernoulli_exp_each(generator, distance[fits] ** 2, denominator)
    one = _BigIntSampler(generator)
    for i in np.flatnonzero(~fits):  # far out in the tail: rare, and too large to square
        kept[i] = one.bernoulli_exp(Fraction(int(distance[i]) ** 2, denominator))
    return y[kept]


def _as_int64(values: list[int]) -> Integers:
    if any(abs(v) >= 2**63 for v in values):
        raise InputError("The noise does not fit into 64-bit integers: use a coarser grid.")
    return np.array(values, dtype=np.int64)


# --- one by one -----------------------------------------------------------------------------------


class _BigIntSampler:
    """The same algorithms in unbounded integers."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def uniform_below(self, limit: int) -> int:
        """Uniform on 0, ..., limit - 1, by rejection from the next power of two."""
        bits = (limit - 1).bit_length()
        while True:
            draw = int.from_bytes(self._generator.bytes((bits + 7) // 8), "little")
            draw &= (1 << bits) - 1
            if draw < limit:
                return draw

    def bernoulli(self, p: Fraction) -> bool:
        return self.uniform_below(p.denominator) < p.numerator

    def bernoulli_exp(self, x: Fraction) -> bool:
        while x > 1:
            if not self._bernoulli_exp_unit(Fraction(1)):
                return False
            x -= 1
        return self._bernoulli_exp_unit(x)

    def _bernoulli_exp_unit(self, x: Fraction) -> bool:
        k = 1
        while self.bernoulli(x / k):
            k += 1
        return k % 2 == 1

    def discrete_laplace(self, scale: Fraction) -> int:
        t, s = scale.numerator, scale.denominator
        while True:
            u = self.uniform_below(t)
            if not self.bernoulli_exp(Fraction(u, t)):
                continue
            v = 0
            while self._bernoulli_exp_unit(Fraction(1)):
                v += 1
            size = (u + t * v) // s
            negative = self.uniform_below(2) == 1
            if not (negative and size == 0):
                return -size if negative else size

    def discrete_gaussian(self, variance: Fraction) -> int:
        t = math.isqrt(variance.numerator // variance.denominator) + 1
        while True:
            y = self.discrete_laplace(Fraction(t))
            if self.bernoulli_exp((abs(y) - variance / t) ** 2 / (2 * variance)):
                return y
