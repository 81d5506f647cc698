"""Where randomness comes from.

A `Source` is secure unless somebody asks for an experiment: `secure()` is ChaCha20 keyed by the
operating system and takes no seed; `reproducible(seed)` draws the same noise every time, and
whatever is released with it says so in its certificate, since anyone who knows the seed can take
such noise off again.
"""

import secrets
from dataclasses import dataclass

import numpy as np

from tacit.privacy.errors import InputError
from tacit.privacy.grid import Array
from tacit.privacy.promise import NoiseOrigin


@dataclass(frozen=True)
class Source:
    """A generator and the word for where its noise comes from; make one by the functions below."""

    generator: np.random.Generator
    origin: NoiseOrigin

    def normal(self, std: float, shape: tuple[int, ...]) -> Array:
        """Independent N(0, std^2), in 64-bit floating point."""
        return self.generator.standard_normal(shape) * std

    def laplace(self, scale: float, shape: tuple[int, ...]) -> Array:
        """Independent Laplace noise of the given scale, in 64-bit floating point."""
        return self.generator.laplace(0.0, scale, shape)


def secure() -> Source:
    """Noise that nobody can draw again: ChaCha20 with a key from the operating system."""
    from randomgen import ChaCha

    bits = ChaCha(key=secrets.randbits(256), rounds=20)
    return Source(np.random.Generator(bits), NoiseOrigin.SECURE)


def reproducible(seed: int) -> Source:
    """The same noise for the same seed: for experiments on data that need no protection."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed must be a whole number of at least 0, not {seed!r}.")
    return Source(np.random.default_rng(seed), NoiseOrigin.REPRODUCIBLE)


def finite(name: str, value: object) -> Array:
    """`value` as a 64-bit array of finite numbers, or a sentence that says what is wrong."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number or an array of numbers.") from None
    if not np.all(np.isfinite(array)):
        raise InputError(f"{name} must be finite: clip each contribution before summing them.")
    return array
