"""Auditing a training loop in one run: many canaries, each with a coin of its own.

Each canary is a unit (a person, a trajectory) that takes part in one of two neighbouring ways, as a
fair coin says: there or absent, or one of two trajectories. Training runs once; an attack that sees
what was released scores each canary, guesses the coins it is surest of, and abstains on the rest.
Too many right guesses refute the promised epsilon (`bounds.one_run_p_value`).

Weaker than many runs on one pair of inputs, and the only way when a run takes hours.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privrl.audit import bounds
from privrl.audit.auditor import (
    FALSE_ALARM,
    Verdict,
    check_false_alarm,
    decide_verdict,
    parse_promise,
)
from privrl.core import checks
from privrl.core.errors import InputError, PrivRLError
from privrl.core.types import Array
from privrl.privacy import accounting
from privrl.privacy.events import Event
from privrl.privacy.noise import Source, secure
from privrl.privacy.promise import Relation

# How many of the coins are guessed, as shares; the bound pays for trying all of them.
_SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)

Coins = NDArray[np.bool_]
Train = Callable[[Coins, Source], Array]
"""`train(coins, source)`: a score for each canary, larger the more its coin seems to be True."""


@dataclass(frozen=True)
class CanaryAudit:
    """What guessing many coins about a few runs found."""

    target: str
    relation: Relation
    certified: float
    delta: float
    epsilon: float
    confidence: float
    verdict: Verdict
    false_alarm: float
    canaries: int
    runs: int
    guesses: int
    correct: int
    could_show: float
    """The largest epsilon so many canaries can show, were every guess right."""

    note: str = ""
    attack: str = "canaries"
    warning: None = None

    @property
    def is_refuted(self) -> bool:
        """Whether the promise is refuted."""
        return self.verdict is Verdict.REFUTED

    def to_dict(self) -> dict[str, Any]:
        """The audit as JSON."""
        return {**asdict(self), "relation": self.relation.value, "verdict": self.verdict.value}


@dataclass(frozen=True)
class CanaryTarget:
    """A training loop to be audited by its canaries, and what it promises."""

    name: str
    train: Train
    canaries: int
    events: tuple[Event, ...]
    """What all of training does to one canary, for `accounting`: the promise."""

    relation: Relation
    """What a coin decides: whether a unit is there (add-remove), or which of two it is."""

    delta: float = 1e-5
    runs: int = 1
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "canaries", checks.count("canaries", self.canaries))
        if self.canaries < 2:
            raise InputError(
                "must be at least 2: one to be sure of, one to compare with.", field="canaries"
            )
        parse_promise(self)


def audit_with_canaries(
    target: CanaryTarget,
    *,
    runs: int | None = None,
    confidence: float = 0.95,
    false_alarm: float = FALSE_ALARM,
    source: Source | None = None,
) -> CanaryAudit:
    """Flip a coin for each canary, train, guess, and count; `runs` times, with fresh coins."""
    confidence = checks.confidence(confidence)
    false_alarm = check_false_alarm(false_alarm)
    count, delta = target.canaries, target.delta
    repeats = target.runs if runs is None else checks.count("runs", runs)
    rng = secure() if source is None else source
    promised = accounting.epsilon(target.events, delta, target.relation)
    # How many of the highest and of the lowest scores are guessed; each canary at most once.
    sizes = sorted({max(1, min(count // 2, round(count * share / 2.0))) for share in _SHARES})
    right = dict.fromkeys(sizes, 0)
    for _ in range(repeats):
        coins = rng.generator.integers(0, 2, count).astype(np.bool_)
        # The surest guesses are the extreme scores.
        order = np.argsort(_scores(target, coins, rng))
        for each in sizes:
            low, high = order[:each], order[count - each :]
            right[each] += int(np.count_nonzero(coins[high]) + np.count_nonzero(~coins[low]))
    # Trying every size and taking the best is paid for by splitting the error among them.
    units = count * repeats

    def bound(each: int, confidence: float) -> float:
        shared = 1.0 - (1.0 - confidence) / len(sizes)
        return bounds.one_run_epsilon(units, 2 * each * repeats, right[each], delta, shared)

    best = max(sizes, key=lambda each: (bound(each, confidence), right[each] / each))
    certain = max(bound(each, 1.0 - false_alarm) for each in sizes)
    ideal = 1.0 - (1.0 - confidence) / len(sizes)
    guessed = 2 * sizes[-1] * repeats
    could_show = bounds.one_run_epsilon(units, guessed, guessed, delta, ideal)
    return CanaryAudit(
        target=target.name,
        relation=target.relation,
        certified=promised,
        delta=delta,
        epsilon=bound(best, confidence),
        confidence=confidence,
        verdict=decide_verdict(certain > promised, could_show, promised, powerful=False),
        false_alarm=false_alarm,
        canaries=count,
        runs=repeats,
        guesses=2 * best * repeats,
        correct=right[best],
        could_show=could_show,
        note=target.note,
    )


def _scores(target: CanaryTarget, coins: Coins, source: Source) -> Array:
    try:
        scores = np.asarray(target.train(coins, source), dtype=np.float64)
    except PrivRLError:
        raise
    except Exception as error:  # whatever a training function of the caller's may raise
        raise InputError(f"{target.name} failed: {type(error).__name__}: {error}") from error
    if scores.shape != coins.shape:
        raise InputError(
            f"{target.name} must score each of {len(coins)} canaries, not give shape "
            f"{scores.shape}."
        )
    return np.nan_to_num(scores)  # what is not a number is no score
