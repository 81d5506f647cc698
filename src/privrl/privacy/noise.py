"""Where randomness comes from.

A `Source` is secure unless somebody asks for an experiment: `secure()` is ChaCha20 keyed by the
operating system and takes no seed; `reproducible(seed)` draws the same noise every time, and
whatever is released with it says so in its certificate, since anyone who knows the seed can take
such noise off again.

Three kinds of noise, in the order in which they should be preferred:

- *on a grid* (`discrete_gaussian`, `discrete_laplace`): exact, so a guarantee about integers holds
  in the machine as on paper;
- *64-bit floating point* (`normal`, `laplace`): fast, and its certificates list "idealised real
  arithmetic" among their assumptions, because the low-order bits of such noise can tell which value
  it was added to (Mironov 2012);
- *64-bit normals inside compiled loops* (`key`, `jax_normal`): driven by a fresh secret key, which
  the certificate says.

Never 32-bit normals: JAX's take at most 2^23 values and stop at 5.42 standard deviations.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy import exact
from privrl.privacy.exact import Integers
from privrl.privacy.forking import guard
from privrl.privacy.promise import NoiseOrigin

if TYPE_CHECKING:
    import jax


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

    def discrete_gaussian(self, std: int, shape: tuple[int, ...]) -> Integers:
        """Independent integers, P(k) proportional to exp(-k^2 / (2 std^2)), exactly."""
        return exact.discrete_gaussian(self.generator, std, int(np.prod(shape))).reshape(shape)

    def discrete_laplace(self, scale: int, shape: tuple[int, ...]) -> Integers:
        """Independent integers, P(k) proportional to exp(-|k| / scale), exactly."""
        return exact.discrete_laplace(self.generator, scale, int(np.prod(shape))).reshape(shape)

    def secret_bytes(self) -> bytes:
        """32 fresh bytes: the key of a keyed hash."""
        return self.generator.bytes(32)

    def key(self) -> "jax.Array":
        """A fresh key for the noise of one compiled run; the run's origin is `key_origin`."""
        import jax

        # The widest key any of JAX's generators has under the default one: two 32-bit words.
        words = self.generator.integers(0, 2**32, 2, dtype=np.uint32)
        key: jax.Array = jax.random.wrap_key_data(jax.device_put(words), impl="threefry2x32")
        return key

    @property
    def key_origin(self) -> NoiseOrigin:
        """Where the noise of a compiled loop comes from that runs on one of this source's keys."""
        return NoiseOrigin.SECURE_KEY if self.origin.is_secret else self.origin


@dataclass(frozen=True)
class Placeholder(Source):
    """Draws nothing: each number is one standard deviation. To try what follows a release."""

    def normal(self, std: float, shape: tuple[int, ...]) -> Array:
        return np.full(shape, std)

    def discrete_gaussian(self, std: int, shape: tuple[int, ...]) -> Integers:
        return np.full(shape, std, dtype=np.int64)


def placeholder(origin: NoiseOrigin) -> Source:
    """A source whose results have the form of others, and are released to nobody."""
    return Placeholder(np.random.default_rng(0), origin)


def secure() -> Source:
    """Noise that nobody can draw again: ChaCha20 with a key from the operating system.

    Nor does another process draw it: after a fork, even while a thread draws, the child's secure
    sources, and generators that were taken from them, have fresh keys, and so has a copy or a
    pickle of one. What was drawn before a fork, keys for compiled loops included, both processes
    have: do not use it twice.
    """
    from privrl.privacy.chacha import SecureChaCha

    return Source(np.random.Generator(SecureChaCha()), NoiseOrigin.SECURE)


def source_from_key(key: bytes) -> Source:
    """The noise of a secret key of 32 bytes: the same for the same key (`resuming` keeps them)."""
    from privrl.privacy.chacha import KeyedChaCha

    return Source(np.random.Generator(KeyedChaCha(key)), NoiseOrigin.SECURE)


def reproducible(seed: int, child: int | None = None) -> Source:
    """The same noise for the same seed: for experiments on data that need no protection.

    In forked processes and in copies too. `child` is the number of one of several sources that come
    from one seed and have nothing in common (`numpy.random.SeedSequence.spawn`).
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"must be a whole number of at least 0, not {seed!r}.", field="seed")
    spawned = () if child is None else (child,)
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=spawned))
    guard(generator.bit_generator.lock)
    return Source(generator, NoiseOrigin.REPRODUCIBLE)


def jax_normal(key: "jax.Array", shape: tuple[int, ...]) -> "jax.Array":
    """Standard normal privacy noise in 64 bits, inside compiled functions too.

    JAX gives 32-bit numbers unless its 64-bit mode is on, which is the caller's to say:
    `with jax.enable_x64(True):` around the compiled run. Without it this refuses.
    """
    import jax
    import jax.numpy as jnp

    noise = jax.random.normal(key, shape, dtype=jnp.float64) if _is_x64_enabled() else None
    if noise is None or noise.dtype != jnp.float64:
        raise InputError(
            "Privacy noise is drawn in 64 bits: run inside `with jax.enable_x64(True):`."
        )
    return noise


def _is_x64_enabled() -> bool:
    import jax

    # `dtype` of what is really made, rather than a configuration flag that has changed its name.
    return bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)


def as_float64(name: str, value: object) -> Array:
    """`value` as a 64-bit array, or a sentence that says what is wrong with its kind or shape.

    Total in the values themselves: a number beyond the range of 64 bits, such as the whole number
    10^400, is an infinity here, so that it is treated like any other that is not finite.
    """
    try:
        given = np.asarray(value)
        if given.dtype.kind in "USMmc":  # text, dates, complex numbers
            raise TypeError
        if given.dtype.kind == "O":
            given = np.array([_as_float(one) for one in given.ravel()]).reshape(given.shape)
        with np.errstate(over="ignore"):
            return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "must be a number or an array of numbers, in rows of equal length.", field=name
        ) from None


def _as_float(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_finite_float64(name: str, value: object) -> Array:
    """`value` as a 64-bit array of finite numbers, or a sentence that says what is wrong."""
    array = as_float64(name, value)
    if not np.all(np.isfinite(array)):
        raise InputError("must be finite: clip each contribution before summing them.", field=name)
    return array
