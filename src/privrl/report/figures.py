"""Figures as a report shows them: out of a study's results, whatever they hold or lack."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from privrl.evaluation.result import Interval, Result


@dataclass(frozen=True)
class Figure:
    """An estimate and where it may lie.

    An end of None was not stated, and an infinite one has no limit. `parts` are those of
    `privrl.evaluation.result.Interval`.
    """

    name: str
    estimate: float | None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_interval(self) -> bool:
        """Whether an interval was stated at all."""
        return self.low is not None and self.high is not None

    @property
    def half(self) -> float | None:
        """Half the width of the interval, if that is finite."""
        if self.low is None or self.high is None:
            return None
        return _finite(self.high / 2.0 - self.low / 2.0)

    @property
    def numbers(self) -> tuple[float, ...]:
        """All that is finite."""
        held = (self.estimate, self.low, self.high)
        return tuple(one for one in held if one is not None and math.isfinite(one))


@dataclass(frozen=True)
class Split:
    """What the half-width of an interval is made of.

    PrivateValue's half-width is clipping + quantile sqrt(sampling + noise), with variances under
    the root. Variances add up and widths do not, so the root is divided in proportion to the
    variances; `without_noise` is what remains of the whole when the noise's variance is taken out.
    """

    name: str
    sampling: float
    noise: float
    clipping: float
    without_noise: float
    cut: bool
    """Whether the interval ends where returns cannot go further, so that it holds less than this
    split would have it."""

    @property
    def half(self) -> float:
        """The whole."""
        return self.sampling + self.noise + self.clipping


def split(figure: Figure, reach: tuple[float, float] | None = None) -> Split | None:
    """The parts of a figure's half-width; None if it does not say. `reach` is what is possible."""
    half, parts = figure.half, figure.parts
    held = [_finite(parts.get(name, 0.0)) for name in ("sampling", "noise", "clipping")]
    if half is None or not parts or None in held:
        return None
    sampling, noise, clipping = (max(one or 0.0, 0.0) for one in held)
    clipped = min(clipping, half)
    rest, variance = half - clipped, sampling + noise
    if variance == 0.0 and rest > 1e-9 * half:
        return None
    share = noise / variance if variance > 0.0 else 0.0
    cut = reach is not None and (
        math.isclose(figure.low or 0.0, reach[0], abs_tol=1e-12)
        or math.isclose(figure.high or 0.0, reach[1], abs_tol=1e-12)
    )
    without = clipped + rest * math.sqrt(1.0 - share)
    return Split(figure.name, rest * (1.0 - share), rest * share, clipped, without, cut)


def of_result(name: str, result: Result) -> Figure:
    """The value of the target policy."""
    estimate = _finite(result.estimate)
    if result.interval is None:
        return Figure(name, estimate)
    return _with_interval(name, estimate, result.interval.to_dict())


def of_detail(name: str, details: Mapping[str, Any], key: str) -> Figure | None:
    """The figure that `details` holds under `key`, if there is one."""
    held = details.get(key)
    if not isinstance(held, Mapping) or "estimate" not in held:
        return None
    interval = held.get("interval")
    if isinstance(interval, Interval):
        interval = interval.to_dict()
    estimate = _finite(held["estimate"])
    return (
        _with_interval(name, estimate, interval)
        if isinstance(interval, Mapping)
        else Figure(name, estimate)
    )


def number(held: Mapping[str, Any], key: str) -> float | None:
    """The finite number under `key`, if there is one."""
    return _finite(held.get(key))


def returns_range(result: Result) -> tuple[float, float] | None:
    """What any return could be, if the result says so."""
    held = result.settings.get("return_range")
    if not isinstance(held, list | tuple) or len(held) != 2:
        return None
    low, high = (_finite(one) for one in held)
    return None if low is None or high is None else (low, high)


def _with_interval(name: str, estimate: float | None, interval: Mapping[str, Any]) -> Figure:
    low, high = _finite(interval.get("low")), _finite(interval.get("high"))
    parts = interval.get("parts") or {}
    return Figure(
        name,
        estimate,
        # In the JSON form of an interval, an end without a limit is null.
        -math.inf if low is None else low,
        math.inf if high is None else high,
        _finite(interval.get("level")),
        {key: math.inf if value is None else float(value) for key, value in parts.items()},
    )


def _finite(value: Any) -> float | None:
    """`value` as a finite number, or None."""
    if value is None or isinstance(value, bool | str):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
