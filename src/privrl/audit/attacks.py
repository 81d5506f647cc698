"""Attacks: from what two worlds released in trial runs to a score for a run not yet seen.

An attack is fitted on runs that are never used again; its score is large where it believes in the
second world. It may be as clever or as silly as it likes: which attack wins is decided on held-out
runs too, and the bound is computed on fresh ones, so a bad attack costs power, never validity.

What an attacker sees of a run is a row of finite numbers: the values (`attack_features`), and last
the *pattern*, a number that stands for everything else there is to see: the shape, which entries
are NaN, infinite or negative zeros, and the error, if the run ended in one.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from privrl.core.errors import InputError
from privrl.core.types import Array

Outputs = NDArray[np.generic] | Sequence[object]
"""An array with a row for each run, or for each run an array, a number, bytes or a `Failure`."""

Score = Callable[[Array], Array]

# Above this many columns the full covariance costs more than it tells.
_MOST_CORRELATED = 256
_MOST_VALUES = 4096


@dataclass(frozen=True)
class Failure:
    """A run that ended in an error, which is an output like any other."""

    error: Exception

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


@dataclass(frozen=True)
class Attack:
    """A score that was fitted, and what it is called."""

    name: str
    score: Score


def attack_features(outputs: Outputs) -> Array:
    """What an attacker sees: a row of numbers per run, the pattern last."""
    if isinstance(outputs, np.ndarray):
        if outputs.ndim == 0:
            raise InputError("What was drawn must have a row for each run.")
        return _array_features(outputs)
    groups: dict[object, list[int]] = {}
    for i, output in enumerate(outputs):
        groups.setdefault(_output_kind(output), []).append(i)
    parts = [_group_features([outputs[i] for i in places]) for places in groups.values()]
    found = np.zeros((len(outputs), max((p.shape[1] for p in parts), default=1)))
    for places, part in zip(groups.values(), parts, strict=True):
        found[places, : part.shape[1] - 1] = part[:, :-1]
        found[places, -1] = part[:, -1]
    return found


def flatten_json(whole: Any) -> Array:
    """Every number in a result's JSON form, and a number for every word."""
    found: list[float] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict | list):
            for one in value.values() if isinstance(value, dict) else value:
                collect(one)
        elif isinstance(value, str):
            found.append(_hash_float(value.encode()))
        else:
            found.append(np.nan if value is None else float(value))

    collect(whole)
    return np.array(found)


def evidence(sums: Array, first: Any, second: Any) -> list[Array]:
    """What noised sums, a row for each step, say to who knows what they would be without noise.

    `first` and `second` are these, in either world. Given are: the noise, if it is the first world;
    by how much that changes from step to step; and how much likelier Gaussian noise makes the
    second world, but for the noise's scale.
    """
    noise, shift = sums - np.stack(first), np.stack(second) - np.stack(first)
    likelier = np.sum(noise * shift) - np.sum(shift * shift) / 2.0
    return [noise, np.diff(noise, axis=0), np.array([likelier])]


def _output_kind(output: object) -> object:
    """Runs with the same kind of output are looked at together."""
    if isinstance(output, Failure):
        return str(output)
    if isinstance(output, bytes):
        return len(output)
    array = _array(output)
    return (array.shape, array.dtype.str)


def _group_features(outputs: list[object]) -> Array:
    first = outputs[0]
    if isinstance(first, Failure):
        return np.full((len(outputs), 1), _hash_float(str(first).encode()))
    if isinstance(first, bytes):
        whole = b"".join(cast(list[bytes], outputs))
        table = np.frombuffer(whole, dtype=np.uint8).reshape(len(outputs), len(first))
        bits = np.unpackbits(table, axis=1).astype(np.float64)
        return np.column_stack([bits, np.full(len(outputs), _hash_float(b"%d bytes" % len(first)))])
    return _array_features(np.stack([_array(output) for output in outputs]))


def _array(output: object) -> NDArray[np.generic]:
    try:
        array: NDArray[Any] = np.asarray(output)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biufc" or array.dtype.itemsize > 16 or array.dtype == np.longdouble:
        raise InputError("What was drawn must be numbers of at most 64 bits, or bytes.")
    return array


def _array_features(outputs: NDArray[Any]) -> Array:
    """The values of an array with a row for each run, and their pattern."""
    shape = f"{outputs.shape[1:]} {_array(outputs).dtype.kind}".encode()
    flat = outputs.reshape(len(outputs), -1)
    if flat.dtype.kind == "c":
        flat = np.concatenate([flat.real, flat.imag], axis=1)
    columns = [flat.astype(np.float64)]
    if flat.dtype.kind in "iu" and flat.dtype.itemsize == 8:
        # A 64-bit integer does not fit into a 64-bit float: its low bits are seen apart.
        columns.append((flat & flat.dtype.type(0xFFFFF)).astype(np.float64))
    rows = np.concatenate(columns, axis=1)
    odd = ~np.isfinite(rows) | ((rows == 0.0) & np.signbit(rows))
    pattern = np.full(len(rows), _hash_float(shape))
    for i in np.flatnonzero(odd.any(axis=1)):
        # NaN, the infinities and -0.0, each at its place.
        pattern[i] = _hash_float(shape + np.where(odd[i], rows[i], 1.0).tobytes())
    return np.column_stack([np.where(np.isfinite(rows), rows, 0.0) + 0.0, pattern])


def _hash_float(description: bytes) -> float:
    return float(zlib.crc32(description))


def fit_attacks(first: Array, second: Array) -> list[Attack]:
    """Every attack, fitted on rows as `attack_features` gives them."""
    # Brought to a common size first, by powers of two: no square of what follows overflows.
    largest = np.maximum(np.abs(first).max(axis=0), np.abs(second).max(axis=0))[:-1]
    scale = np.exp2(-np.clip(np.frexp(largest)[1], -1000, 1000))
    numbers = [part[:, :-1] * scale for part in (first, second)]
    found = [_pattern_attack(first, second)]
    if len(scale):
        made = [
            make(*numbers)
            for make in (_fisher_attack, _coordinate_attack, _gaussian_attack, _max_abs_attack)
        ]
        made += [attack for attack in [_value_attack(*numbers)] if attack is not None]
        found += [_scale_inputs(attack, scale) for attack in made]
    return found


def _scale_inputs(attack: Attack, scale: Array) -> Attack:
    return Attack(attack.name, lambda rows: attack.score(rows[:, :-1] * scale))


def _fisher_attack(first: Array, second: Array) -> Attack:
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


def _coordinate_attack(first: Array, second: Array) -> Attack:
    """The single number that moves most."""
    scale = np.sqrt(first.var(axis=0) + second.var(axis=0))
    gap = second.mean(axis=0) - first.mean(axis=0)
    # A number that never varies but differs between the worlds moves infinitely far.
    moves = np.where(scale > 0.0, gap / np.where(scale > 0.0, scale, 1.0), 1e300 * np.sign(gap))
    best = int(np.argmax(np.abs(moves)))
    sign = 1.0 if moves[best] >= 0.0 else -1.0
    return Attack("coordinate", lambda rows: sign * rows[:, best])


def _gaussian_attack(first: Array, second: Array) -> Attack:
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


def _max_abs_attack(first: Array, second: Array) -> Attack:
    """The largest number of all, whatever its sign."""
    larger = np.abs(second).max(axis=1).mean() >= np.abs(first).max(axis=1).mean()
    sign = 1.0 if larger else -1.0
    return Attack("size", lambda rows: sign * np.abs(rows).max(axis=1))


def _pattern_attack(first: Array, second: Array) -> Attack:
    """Log-odds of shapes, of what is not finite, and of errors."""
    score = _log_odds_score(first[:, -1], second[:, -1])
    return Attack("pattern", lambda rows: score(rows[:, -1]))


def _value_attack(first: Array, second: Array) -> Attack | None:
    """Log-odds of each whole output, where there are few different ones."""
    keys = [_hash_rows(first), _hash_rows(second)]
    if len(np.unique(np.concatenate(keys))) > min(_MOST_VALUES, (len(first) + len(second)) // 8):
        return None
    score = _log_odds_score(*keys)
    return Attack("values", lambda rows: score(_hash_rows(rows)))


def _log_odds_score(first: NDArray[Any], second: NDArray[Any]) -> Callable[[NDArray[Any]], Array]:
    """How much more often each value was seen in the second world, as a logarithm."""
    known, inverse = np.unique(np.concatenate([first, second]), return_inverse=True)
    counts = [
        np.bincount(part, minlength=len(known)) + 0.5
        for part in (inverse[: len(first)], inverse[len(first) :])
    ]
    odds = np.log(counts[1] / counts[0])

    def score(seen: NDArray[Any]) -> Array:
        place = np.clip(np.searchsorted(known, seen), 0, len(known) - 1)
        return np.where(known[place] == seen, odds[place], 0.0)

    return score


def _hash_rows(rows: Array) -> NDArray[np.uint64]:
    """Each row as one number; rows that share one by chance cost a little power."""
    words = np.ascontiguousarray(rows).view(np.uint64)
    words = (words ^ (words >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    places = np.random.default_rng(0).integers(1, 2**63, rows.shape[1], dtype=np.uint64)
    return cast("NDArray[np.uint64]", (words * (2 * places + np.uint64(1))).sum(axis=1))
