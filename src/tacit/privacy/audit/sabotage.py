"""Teeth: sabotaged twins of the shipped code, which the auditor must catch.

A twin is made by patching a function that ships, for as long as a `with` block lasts, in one of the
ways in which private software really goes wrong. Its target is then built and audited by the same
code as the honest one. An auditor that does not call a twin broken proves nothing about the others.

Other packages put twins of their own into the catalogue (`register`).
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from tacit.privacy import accounting, exact, noise
from tacit.privacy.audit.auditor import Audit, Target, audit
from tacit.privacy.audit.canaries import CanaryAudit, CanaryTarget, audit_with_canaries
from tacit.privacy.audit.targets import TARGETS
from tacit.privacy.exact import Booleans, Integers
from tacit.privacy.grid import Array
from tacit.privacy.mechanisms import clip
from tacit.privacy.mechanisms.correlated import CorrelatedMechanism
from tacit.privacy.noise import Source


@dataclass(frozen=True)
class Twin:
    """A way of going wrong, and the targets in which it must be noticed."""

    name: str
    sabotage: Callable[[], AbstractContextManager[None]]
    targets: tuple[str, ...]
    runs: int | None = None
    """In each world, if fewer than the targets' own show so coarse a fault."""


TWINS: list[Twin] = []
"""In the order of the table."""


def register(*twins: Twin) -> None:
    """Put twins into the catalogue."""
    TWINS.extend(twins)


@dataclass(frozen=True)
class Bite:
    """Whether the auditor noticed a twin of one target."""

    twin: str
    found: Audit | CanaryAudit

    @property
    def caught(self) -> bool:
        """Whether the twin's promise was refuted."""
        return self.found.broken

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON."""
        return {"twin": self.twin, "caught": self.caught, **self.found.to_dict()}


def bite(twin: Twin, name: str, *, runs: int | None = None, confidence: float = 0.95) -> Bite:
    """One twin of one target, built and audited while the sabotage lasts.

    Whether a twin is caught is a matter of chance. Unless `runs` are given, one that slips through
    is attacked once more, with four times the runs: that makes the auditor stronger, and nothing
    about honest targets, which are attacked once.
    """
    with _nothing_remembered(), twin.sabotage():
        built = TARGETS[name]()
        first = twin.runs if runs is None else runs
        found = attacked(built, runs=first, confidence=confidence)
        if not found.broken and runs is None and isinstance(found, Audit):
            found = attacked(built, runs=4 * found.runs, confidence=confidence)
        return Bite(twin.name, found)


@contextmanager
def _nothing_remembered() -> Iterator[None]:
    """No calibration or compiled program of the honest code serves a twin, nor the reverse."""
    _forget()
    try:
        yield
    finally:
        _forget()


def _forget() -> None:
    """Empty every cache (`functools.lru_cache`) of a function of ours, and what JAX compiled."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    ours = [module for name, module in list(sys.modules.items()) if name.startswith("tacit.")]
    for module in ours:
        for value in list(vars(module).values()):
            empty = getattr(value, "cache_clear", None)
            if callable(empty):
                empty()


def attacked(
    built: Target | CanaryTarget, *, runs: int | None = None, confidence: float = 0.95
) -> Audit | CanaryAudit:
    """`built` audited in the way that fits it; `runs` is for those that are run many times."""
    if isinstance(built, CanaryTarget):
        return audit_with_canaries(built, confidence=confidence)
    return audit(built, runs=runs, confidence=confidence)


# --- ways of going wrong --------------------------------------------------------------------------


@contextmanager
def less_noise(factor: float) -> Iterator[None]:
    """A scale read off the wrong line: every draw is `factor` times what it should be."""
    normal, laplace = Source.normal, Source.laplace
    gaussian_steps, laplace_steps = Source.discrete_gaussian, Source.discrete_laplace

    def smaller_normal(self: Source, std: float, shape: tuple[int, ...]) -> Array:
        return normal(self, factor * std, shape)

    def smaller_laplace(self: Source, scale: float, shape: tuple[int, ...]) -> Array:
        return laplace(self, factor * scale, shape)

    def smaller_gaussian_steps(self: Source, std: int, shape: tuple[int, ...]) -> Integers:
        return gaussian_steps(self, int(factor * std), shape)

    def smaller_laplace_steps(self: Source, scale: int, shape: tuple[int, ...]) -> Integers:
        return laplace_steps(self, int(factor * scale), shape)

    with (
        patch.object(Source, "normal", smaller_normal),
        patch.object(Source, "laplace", smaller_laplace),
        patch.object(Source, "discrete_gaussian", smaller_gaussian_steps),
        patch.object(Source, "discrete_laplace", smaller_laplace_steps),
    ):
        yield


@contextmanager
def less_compiled_noise(factor: float) -> Iterator[None]:
    """The same in compiled loops."""
    # Imported while the twin is at work, these would keep its noise for good.
    from tacit.privacy.mechanisms import correlated_jax, functional_jax

    normal = noise.jax_normal

    def smaller(key: Any, shape: tuple[int, ...]) -> Any:
        return factor * normal(key, shape)

    with (
        patch.object(noise, "jax_normal", smaller),
        patch.object(functional_jax, "jax_normal", smaller),
        patch.object(correlated_jax, "jax_normal", smaller),
    ):
        yield


@contextmanager
def no_clip() -> Iterator[None]:
    """Nobody clips: a contribution counts at whatever size it comes."""

    def unclipped(rows: Any, bound: float) -> Any:
        return rows * 1.0

    with patch.object(clip, "l1", unclipped), patch.object(clip, "l2", unclipped):
        yield


@contextmanager
def _wrong_norm() -> Iterator[None]:
    """L2 where the proof needs L1, and coordinate by coordinate where it needs L2."""
    l2 = clip.l2

    def by_coordinate(rows: Any, bound: float) -> Any:
        return np.clip(np.where(np.isfinite(rows), rows, 0.0), -bound, bound)

    with patch.object(clip, "l1", l2), patch.object(clip, "l2", by_coordinate):
        yield


@contextmanager
def no_factor_two() -> Iterator[None]:
    """A replacement counted like a removal, when noise is calibrated and when it is paid for."""
    with patch.object(accounting, "movement", lambda bound, relation: bound):
        yield


@contextmanager
def _noise_again() -> Iterator[None]:
    """A generator seeded anew for each release: the same noise comes twice."""
    normal = Source.normal
    drawn: dict[tuple[int, ...], Array] = {}

    def every_other(self: Source, std: float, shape: tuple[int, ...]) -> Array:
        if shape in drawn:
            return drawn.pop(shape) * std
        drawn[shape] = normal(self, 1.0, shape)
        return drawn[shape] * std

    with patch.object(Source, "normal", every_other):
        yield


@contextmanager
def _not_finite() -> Iterator[None]:
    """Clipping by a factor min(1, bound / norm), as in many a notebook: NaN goes through."""

    def plain(order: int) -> Callable[[Any, float], Any]:
        def clipped(rows: Any, bound: float) -> Any:
            norms = np.linalg.norm(rows, order, axis=-1, keepdims=True)
            return rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300))

        return clipped

    with (
        patch.object(clip, "l1", plain(1)),
        patch.object(clip, "l2", plain(2)),
        np.errstate(invalid="ignore"),
    ):
        yield


@contextmanager
def _bent_coin() -> Iterator[None]:
    """A coin that tells the truth more often than it may: half of its tails become heads."""
    fair = exact.bernoulli

    def bent(generator: np.random.Generator, probability: Any, size: int) -> Booleans:
        heads: Booleans = fair(generator, probability, size) | (generator.random(size) < 0.5)
        return heads

    with patch.object(exact, "bernoulli", bent):
        yield


@contextmanager
def _one_step_only() -> Iterator[None]:
    """Running sums paid for as if a person moved one sum, and not every sum after it."""
    with patch.object(CorrelatedMechanism, "sensitivity", property(lambda self: 1.0)):
        yield


_SUMS = ("gaussian", "laplace", "grid-gaussian", "grid-laplace")
_STREAMS = (
    *("running-sums-tree", "running-sums-refined-tree", "running-sums-toeplitz"),
    *("running-sums-banded", "running-sums-optimal"),
)

register(
    Twin(
        "noise x 0.7",
        partial(less_noise, 0.7),
        (
            *(
                *_SUMS,
                "gradient-descent",
                *_STREAMS,
                "functional",
                "field",
                "reward-model",
                "smooth",
            ),
            *("laplace-report", "grid-laplace-report"),
        ),
    ),
    Twin(
        "noise x 0.7, compiled",
        partial(less_compiled_noise, 0.7),
        ("functional-compiled", "running-sums-compiled"),
    ),
    Twin(
        "clip forgotten",
        no_clip,
        (
            *(*_SUMS, "gradient-descent", "gradient-descent-canaries", *_STREAMS),
            *("laplace-report", "grid-laplace-report"),
        ),
    ),
    Twin("wrong norm", _wrong_norm, (*_SUMS, "laplace-report")),
    Twin(
        "factor 2 forgotten", no_factor_two, (*_SUMS, "gradient-descent", *_STREAMS, "functional")
    ),
    Twin("noise used twice", _noise_again, ("gaussian-twice",)),
    Twin(
        "NaN passed through", _not_finite, ("gaussian-not-a-number", "grid-gaussian-not-a-number")
    ),
    Twin(
        "coin bent",
        _bent_coin,
        (
            *("unit-vector", "unit-vector-padded", "duchi"),
            *("piecewise", "hybrid", "sign-on-the-wire"),
        ),
    ),
    Twin("one step only", _one_step_only, _STREAMS),
)
