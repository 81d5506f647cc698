"""Attacks: from what two worlds released in trial runs to a score for a run not yet seen.

An attack is fitted on runs that are never used again; its score is large where it believes in the
second world. It may be as clever or as silly as it likes: which attack wins is decided on held-out
runs too, and the bound is computed on fresh ones, so a bad attack costs power, never validity.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.errors import InputError
from tacit.privacy.grid import Array

Outputs = NDArray[np.generic] | Sequence[bytes]
Score = Callable[[Array], Array]

# Above this many columns the full covariance costs more than it tells.
_MOST_CORRELATED = 256
_MOST_VALUES = 4096


@dataclass(frozen=True)
class Attack:
    """A score that was fitted, and what it is called."""

    name: str
    score: Score


def observed(outputs: Outputs) -> Array:
    """What an attacker sees: a row of finite numbers per run.

    Arrays are flattened; bytes are taken apart into their length and bits. The last column counts
    entries that are not finite, which are 0 elsewhere: a NaN is seen for what it is.
    """
    if isinstance(outputs, np.ndarray):
        if outputs.ndim == 0:
            raise InputError("What was drawn must have a row for each run.")
        try:
            rows = outputs.reshape(len(outputs), -1).astype(np.float64)
        except (TypeError, ValueError):
            raise InputError("What was drawn must be numbers or bytes.") from None
    else:
        rows = _bits(outputs)
    bad = ~np.isfinite(rows)
    return np.column_stack([np.where(bad, 0.0, rows), bad.sum(axis=1)])


def _bits(messages: Sequence[bytes]) -> Array:
    if not all(isinstance(message, bytes) for message in messages):
        raise InputError("What was drawn must be numbers or bytes.")
    lengths = np.array([len(message) for message in messages], dtype=np.float64)
    longest = int(lengths.max(initial=0))
    whole = b"".join(message.ljust(longest, b"\0") for message in messages)
    table = np.frombuffer(whole, dtype=np.uint8).reshape(len(messages), longest)
    return np.column_stack([lengths, np.unpackbits(table, axis=1).astype(np.float64)])


def fitted(first: Array, second: Array) -> list[Attack]:
    """Every attack, fitted on rows as `observed` gives them."""
    makers = (_direction, _coordinate, _spread, _size, _values, _not_finite)
    return [attack for make in makers if (attack := make(first, second)) is not None]


def _direction(first: Array, second: Array) -> Attack:
    """Fisher's discriminant: the best there is against Gaussian noise, correlated or not."""
    gap = second.mean(axis=0) - first.mean(axis=0)
    scale = np.sqrt((first.var(axis=0) + second.var(axis=0)) / 2.0)
    scale = np.where(scale > 0.0, scale, 1.0)
    if first.shape[1] > _MOST_CORRELATED:
        weights = gap / scale**2
    else:
        both = np.concatenate([first - first.mean(axis=0), second - second.mean(axis=0)]) / scale
        covariance = both.T @ both / len(both)
        # A hair of ridge: noise used twice makes this singular, and is what we look for.
        covariance[np.diag_indices_from(covariance)] += 1e-12
        weights = np.linalg.solve(covariance, gap / scale) / scale
    return Attack("direction", lambda rows: cast(Array, rows @ weights))


def _coordinate(first: Array, second: Array) -> Attack:
    """The single number that moves most."""
    scale = np.sqrt(first.var(axis=0) + second.var(axis=0))
    gap = second.mean(axis=0) - first.mean(axis=0)
    # A number that never varies but differs between the worlds moves infinitely far.
    moves = np.where(scale > 0.0, gap / np.where(scale > 0.0, scale, 1.0), 1e300 * np.sign(gap))
    best = int(np.argmax(np.abs(moves)))
    sign = 1.0 if moves[best] >= 0.0 else -1.0
    return Attack("coordinate", lambda rows: sign * rows[:, best])


def _spread(first: Array, second: Array) -> Attack:
    """Log-likelihood ratio of normals with means and variances of their own, number by number."""
    floor = 1e-12 * (1.0 + np.abs(first).max(axis=0, initial=0.0))
    mean = [first.mean(axis=0), second.mean(axis=0)]
    std = [np.maximum(first.std(axis=0), floor), np.maximum(second.std(axis=0), floor)]

    def score(rows: Array) -> Array:
        z = [(rows - m) / s for m, s in zip(mean, std, strict=True)]
        constant = np.log(std[0] / std[1])
        ratio = np.clip(constant + (z[0] ** 2 - z[1] ** 2) / 2.0, -1e12, 1e12)
        return cast(Array, ratio.sum(axis=1))

    return Attack("spread", score)


def _size(first: Array, second: Array) -> Attack:
    """The largest number of all, whatever its sign."""
    larger = np.abs(second).max(axis=1).mean() >= np.abs(first).max(axis=1).mean()
    sign = 1.0 if larger else -1.0
    return Attack("size", lambda rows: sign * np.abs(rows).max(axis=1))


def _not_finite(first: Array, second: Array) -> Attack:
    """How many numbers were NaN or infinite."""
    sign = 1.0 if second[:, -1].mean() >= first[:, -1].mean() else -1.0
    return Attack("not finite", lambda rows: sign * rows[:, -1])


def _values(first: Array, second: Array) -> Attack | None:
    """Log-odds of each whole output, where there are few different ones."""
    keys = _keys(np.concatenate([first, second]))
    known, inverse = np.unique(keys, return_inverse=True)
    if len(known) > min(_MOST_VALUES, len(keys) // 8):
        return None
    inverse = inverse.reshape(-1)
    counts = [
        np.bincount(part, minlength=len(known)) + 0.5
        for part in (inverse[: len(first)], inverse[len(first) :])
    ]
    odds = np.log(counts[1] / counts[0])

    def score(rows: Array) -> Array:
        seen = _keys(rows)
        place = np.clip(np.searchsorted(known, seen), 0, len(known) - 1)
        return np.where(known[place] == seen, odds[place], 0.0)

    return Attack("values", score)


def _keys(rows: Array) -> NDArray[np.uint64]:
    """Each row as one number; rows that share one by chance cost a little power."""
    words = np.ascontiguousarray(rows + 0.0).view(np.uint64)  # + 0.0 turns -0.0 into 0.0
    words = (words ^ (words >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    places = np.random.default_rng(0).integers(1, 2**63, rows.shape[1], dtype=np.uint64)
    return cast("NDArray[np.uint64]", (words * (2 * places + np.uint64(1))).sum(axis=1))
