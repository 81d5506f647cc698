"""Verdicts: what of a target came out, computed from estimates alone.

**Differences.** For a difference d of ours (a contrast of quantities, on their scale) with standard
error s, let D be the same contrast of the printed numbers with their standard error p (the paper's
sampling and reading errors combined), in which quantities that the paper does not have, such as
controls, are ours. Where nothing is printed D is the smallest difference of interest.

- It *holds* if d - c s > beyond (0 unless said). s has the correlations of what the same seeds give
  in several settings (`estimate.correlation`). c is 2 for one reading and many seeds: the
  quantile of Student's t with n - 1 degrees of freedom that leaves 0.0228 / R above it, with R
  readings tried. A reading is chosen on other seeds than it is judged on, so the chosen one has no
  luck left in it; but whoever tries R readings makes the same claim R times, and Bonferroni's bound
  keeps at 0.0228 the probability that any of them shows a difference that is not there. All that
  count must hold for a verdict, so their number needs no correction (an intersection-union test).
- It *fails* if it does not hold, D is excluded, D - d > c' sqrt(s^2 + p^2), and either there were
  seeds enough to see D or the contrary is shown, d + c' s < beyond. 0.0228 / (R K) is above c' for
  K differences that count, any of which can fail.
- Otherwise it is *open*: there were too few seeds to say.
- It is *not shown* by the paper if |D| < 2 p, of printed numbers alone: these do not show it by
  their own sampling error, and neither their agreement nor ours says anything. It does not count.
  That a control of ours does as well as what is printed is no such excuse: it is open then.

"Same" is tested by its margin m: it holds if |d| + c s < m, and fails if |d| - c' s > m.

**Power.** Seeds needed to see D at c standard errors with probability 0.9, from s at n seeds:
n ((c + 1.2816) s / |D|)^2, since d - c s > 0 has the probability Phi(D / s - c). For "same", |D| is
the margin less the printed contrast, and 1.6449 stands for 1.2816, since d may be off to either
side.

**Numbers.** Ours x (error s) agrees with the printed y (error p) if |x - y| <= tolerance +
c'' sqrt(s^2 + p^2), with 0.0228 / C to either side of c'' for C numbers that are compared, so that
0.0455 bounds the probability that sampling alone calls any of them off. This does not widen with
the number of readings: more readings never make agreement easier.

**Verdict.** *not reproduced*: a difference that counts fails. *not comparable*: none counts,
nothing was run, sizes were below the paper's, or some are open (too few seeds) and none fails.
*reproduced*: all that count hold, and all numbers agree. *direction only*: all hold, and numbers
are off or there are none.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from privrl.core.files import fields_to_json
from privrl.papers.reproduce.estimate import (
    Estimate,
    Estimates,
    correlation,
    on_scale,
    printed_error,
)
from privrl.papers.reproduce.target import Difference, Quantity, Target

Outcome = Literal["holds", "fails", "open", "not shown", "contradicted"]
Word = Literal["reproduced", "direction only", "not reproduced", "not comparable"]

WORDS: tuple[Word, ...] = ("reproduced", "direction only", "not reproduced", "not comparable")

_TAIL = 0.02275013194817921  # above 2 standard errors
_POWER = {"above": 1.2815515655446004, "same": 1.6448536269514722}  # quantiles of 0.9 and 0.95
_MOST_SEEDS = 10**9


@dataclass(frozen=True)
class Contrast:
    """A difference: what it was, and what was made of it."""

    name: str
    outcome: Outcome
    estimate: float | None
    error: float | None
    """Ours alone."""

    printed: float | None
    """D above; of numbers that are printed if `is_printed`."""

    printed_error: float
    is_printed: bool
    seeds: int
    needed: int | None
    """Seeds to see D; None where no number is enough."""

    counts: bool
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return fields_to_json(self)


@dataclass(frozen=True)
class Comparison:
    """A number of ours beside the printed one."""

    name: str
    ours: float | None
    error: float | None
    printed: float
    printed_error: float
    band: float
    """How far apart, on the scale, they may be."""

    agrees: bool

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return fields_to_json(self)


@dataclass(frozen=True)
class Verdict:
    """What came of a target under a reading."""

    target: str
    word: Word
    reason: str
    readings: int
    """How many were tried."""

    seeds: int
    """The fewest of any difference that counts; of any, if none does."""

    differences: tuple[Contrast, ...] = ()
    numbers: tuple[Comparison, ...] = ()
    statements: tuple[tuple[str, str], ...] = ()
    """Sentences of the paper, and what became of them."""

    estimates: Estimates = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            **fields_to_json(self),
            "estimates": {
                name: {"value": one.value, "error": one.error, "seeds": one.seeds}
                for name, one in self.estimates.items()
            },
            "differences": [one.to_dict() for one in self.differences],
            "numbers": [one.to_dict() for one in self.numbers],
        }


def judge(
    target: Target, found: Estimates, *, readings: int = 1, is_reduced: bool = False
) -> Verdict:
    """The verdict on what a target's rows came to (`privrl.papers.reproduce.estimate.estimates`).

    Args:
        found: Estimates of its quantities, under one reading.
        readings: How many readings were tried.
        is_reduced: Whether sizes were below the paper's.
    """
    counted = sum(one.counts for one in target.differences)
    contrasts = tuple(
        _contrast(target, one, found, readings, counted) for one in target.differences
    )
    numbers = tuple(
        _comparison(one, found.get(one.name), len(target.compared)) for one in target.compared
    )
    outcomes = {one.name: one for one in contrasts}
    statements = tuple(
        (one.text, _statement([outcomes[name] for name in one.differences]))
        for one in target.statements
    )
    word, reason = _word(target, found, contrasts, numbers, is_reduced)
    seeds = min(one.seeds for one in [it for it in contrasts if it.counts] or contrasts)
    return Verdict(
        target.name, word, reason, readings, seeds, contrasts, numbers, statements, dict(found)
    )


def critical(seeds: int, tests: int = 1) -> float:
    """The quantile of Student's t above which the tail of 2 standard errors is, over `tests`."""
    from scipy.special import stdtrit

    return float(stdtrit(max(1, seeds - 1), 1.0 - _TAIL / tests))


def seeds_needed(
    seeds: int,
    error: float,
    size: float,
    tests: int = 1,
    expected: Literal["above", "same"] = "above",
) -> int | None:
    """Seeds to see a difference of this size, from the error at so many; None if it has none."""
    if size <= 0.0:
        return None
    if error == 0.0:
        return 2

    def is_enough(wanted: int) -> bool:
        return wanted >= seeds * ((critical(wanted, tests) + _POWER[expected]) * error / size) ** 2

    high = 2
    while not is_enough(high):
        high *= 2
        if high > _MOST_SEEDS:
            return None
    low = high // 2
    while high - low > 1:  # the critical value falls with the number, so what is enough stays so
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _contrast(
    target: Target, one: Difference, found: Estimates, readings: int, counted: int
) -> Contrast:
    parts = [(target.by_name[name], weight) for name, weight in one.weights.items()]
    size, size_error, is_printed = _printed_size(one, parts, found)
    missing = [part.name for part, _ in parts if part.name not in found]
    if missing:
        note = f"There are no rows of {missing[0]}."
        return Contrast(
            one.name, "open", None, None, size, size_error, is_printed, 0, None, one.counts, note
        )
    own = [(part, weight, found[part.name]) for part, weight in parts]
    value = sum(weight * on_scale(part, it.value) for part, weight, it in own)
    error, seeds = _error(own), min(it.seeds for _, _, it in own)
    c, strict = critical(seeds, readings), critical(seeds, readings * max(1, counted))
    if one.expected == "same":
        assert one.least is not None
        room = one.least - abs(size) if is_printed and size is not None else one.least
        holds = abs(value) + c * error < one.least
        excluded = contrary = abs(value) - strict * error > one.least
    else:
        room = math.inf if size is None else size - one.beyond
        holds = value - c * error > one.beyond
        contrary = value + strict * error < one.beyond
        excluded = contrary
        if size is not None:
            excluded = size - value > strict * math.hypot(error, size_error)
    needed = None
    if math.isfinite(room):
        needed = seeds_needed(seeds, error, room, readings, one.expected)
    outcome: Outcome = "open"
    note = f"Too few seeds to say: {seeds} of {needed or 'any number'} that are needed."
    if is_printed and size is not None and one.expected == "above":
        if any(part.printed is None for part, _ in parts):
            # What is printed beside a control of ours: that must be seen, or nothing was shown.
            if size - one.beyond < 2.0 * size_error:
                note = "A control of ours does as well as what is printed."
        elif size <= one.beyond - 2.0 * size_error and size < one.beyond:
            outcome, note = "contradicted", one.contradicts or "The printed numbers say otherwise."
        elif abs(size - one.beyond) < 2.0 * size_error:
            outcome, note = "not shown", "It is within the sampling error of the printed numbers."
    if outcome == "open" and holds:
        outcome, note = "holds", ""
    elif outcome == "open" and excluded and (contrary or (needed is not None and seeds >= needed)):
        outcome, note = "fails", ""
    elif outcome == "open" and needed is not None and seeds >= needed and note.startswith("Too"):
        note = f"Neither nothing nor what is printed is excluded with {seeds} seeds."
    return Contrast(
        *(one.name, outcome, value, error, size, size_error, is_printed, seeds, needed),
        one.counts and outcome not in ("contradicted", "not shown"),
        note,
    )


def _printed_size(
    one: Difference, parts: list[tuple[Quantity, float]], found: Estimates
) -> tuple[float | None, float, bool]:
    """The contrast that is expected, its error, and whether it is of printed numbers."""
    size = variance = 0.0
    is_printed = False
    for part, weight in parts:
        ours = found.get(part.name)
        if part.printed is not None:
            size += weight * on_scale(part, part.printed.value)
            variance += (weight * printed_error(part)) ** 2
            is_printed = True
        elif part.kind != "paper" and ours is not None:
            size += weight * on_scale(part, ours.value)
        else:
            return one.least, 0.0, False
    if not is_printed:
        return one.least, 0.0, False
    return size, math.sqrt(variance), True


def _error(own: list[tuple[Quantity, float, Estimate]]) -> float:
    """The standard error of the contrast, with the correlation of what seeds contribute."""
    parts = [(weight * it.error, it) for _, weight, it in own]
    variance = math.fsum(x * y * correlation(one, other) for x, one in parts for y, other in parts)
    return math.sqrt(max(0.0, variance))


def _comparison(quantity: Quantity, ours: Estimate | None, compared: int) -> Comparison:
    assert quantity.printed is not None
    printed, error = quantity.printed.value, printed_error(quantity)
    if ours is None:
        return Comparison(quantity.name, None, None, printed, error, 0.0, False)
    band = quantity.tolerance + critical(ours.seeds, compared) * math.hypot(ours.error, error)
    apart = abs(on_scale(quantity, ours.value) - on_scale(quantity, printed))
    return Comparison(
        quantity.name, ours.value, ours.error, printed, error, band, bool(apart <= band)
    )


def _statement(contrasts: list[Contrast]) -> str:
    """What became of a sentence."""
    if all(one.estimate is None for one in contrasts):
        return "not run"
    outcomes = {one.outcome for one in contrasts}
    if "contradicted" in outcomes:
        return "contradicts the paper's own numbers"
    if "fails" in outcomes:
        return "does not hold"
    if "open" in outcomes:
        return "too few seeds to say"
    if "not shown" in outcomes:
        return "within the paper's own sampling error"
    return "holds"


def _word(
    target: Target,
    found: Mapping[str, Estimate],
    contrasts: tuple[Contrast, ...],
    numbers: tuple[Comparison, ...],
    is_reduced: bool,
) -> tuple[Word, str]:
    if not found:
        return "not comparable", "Nothing was run."
    if is_reduced:
        return "not comparable", "A quick run: its sizes are below the paper's."
    counted = [one for one in contrasts if one.counts]
    if not counted:
        return (
            "not comparable",
            "No difference is larger than the sampling error of the printed numbers.",
        )
    by = {word: [one for one in counted if one.outcome == word] for word in ("fails", "open")}
    held = len(counted) - len(by["fails"]) - len(by["open"])
    if by["fails"]:
        names = "; ".join(one.name for one in by["fails"])
        return "not reproduced", f"{held} of {len(counted)} differences hold. Not: {names}."
    if by["open"]:
        first = by["open"][0]
        return (
            "not comparable",
            f"{held} of {len(counted)} differences hold, and none fails. {first.name}: "
            f"{first.note[:1].lower()}{first.note[1:]}",
        )
    if not numbers:
        return "direction only", f"All {held} differences hold; there are no numbers to compare."
    off = [one.name for one in numbers if not one.agrees]
    if off:
        return (
            "direction only",
            f"All {held} differences hold, but {len(off)} of {len(numbers)} numbers are off: "
            f"{'; '.join(off)}.",
        )
    return "reproduced", f"All {held} differences hold, and all {len(numbers)} numbers agree."
