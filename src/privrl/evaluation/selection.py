"""Choosing among settings on private data, paid for: permute-and-flip (McKenna and Sheldon 2020).

Each unit gives every candidate a score: how well the setting with that number did on this person.
Scores are clamped to public bounds [low, high] and rounded to one of 2^20 + 1 levels k, so that the
sums q_1, ..., q_K over units are whole numbers. The candidates are then looked at in random order,
and candidate j is taken with probability

    exp(-epsilon (max_i q_i - q_j) / (2 D)),     D = 2^20,

else the next is looked at. The best is always taken when its turn comes, so the round ends.

Unit: a person, or a trajectory; relation: replace-one. Sensitivity: one unit changes each q_j by at
most D, each in its own direction. Theorem: the choice is epsilon-DP.

Proof. Write f_i = exp(-epsilon (q* - q_i) / (2 D)), q* the largest. Let each candidate come at an
independent uniform time; those before j, at time u, have each passed with probability 1 - u f_i, so

    P(j) = f_j integral_0^1 prod_{i != j} (1 - u f_i) du.

Only differences of scores matter. *Raising q_j by 2D multiplies P(j) by at least 1 and at most
e^epsilon*: up to q_j = q* only f_j changes, by as much as the exponent; beyond it, by s, the other
f_i shrink by e^-x, x = epsilon s / (2D), and integral_0^1 prod(1 - u e^-x f_i) du grows, but is
e^x integral_0^(e^-x) prod(1 - v f_i) dv, at most e^x times what it was. *Raising another q_i lowers
P(j)*: up to q* it raises f_i; beyond it all others shrink by e^-x, and P(j) becomes
f_j integral_0^(e^-x) (1 - v e^x) prod_k (1 - v f_k) dv, which falls in x. A neighbour has
q'_j <= q_j + D and q'_i >= q_i - D, so P'(j) is at most that of (q_j + D, q_i - D), which is that
of (q_j + 2D, q_i), which is at most e^epsilon P(j).

It is never worse in expected score than the exponential mechanism (McKenna and Sheldon, Theorem 2).

What this rests on, and the code cannot see: that a row of scores depends on one unit only, and the
candidates on none. A score that compares a person with the others, or of a setting that was fitted
to the same people, moves many rows when one person is replaced (`OWN_ROW`).

What is released: one index. Arithmetic: sums of integers and exact Bernoulli(exp(-x)) draws for
rational x, so nothing is idealised. A score that is not a number counts as `low`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.privacy import exact
from privrl.privacy.certificate import Assumption, Certificate
from privrl.privacy.events import Event, PureDP
from privrl.privacy.noise import Source, as_float64
from privrl.privacy.promise import Relation, Release, Unit
from privrl.privacy.session import SECRET_SESSION, PrivacySession

LEVELS = 2**20

OWN_ROW = Assumption(
    "each row of scores depends on the data of one unit only, and the candidates, their number and "
    "the bounds of scores on nobody's",
    "not enforced: they are the caller's",
)


@dataclass(frozen=True)
class PermuteAndFlip:
    """The plan of one private choice among candidates with scores in [low, high]."""

    epsilon: float
    low: float
    high: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.positive("epsilon", self.epsilon))
        for name in ("low", "high"):
            object.__setattr__(self, name, checks.number(name, getattr(self, name)))
        if not (self.low < self.high and np.isfinite(self.high - self.low)):
            raise InputError("low and high must be finite, and low below high.")

    @property
    def event(self) -> Event:
        """What one choice costs."""
        return PureDP(self.epsilon, relation=Relation.REPLACE_ONE)

    def sums(self, scores: ArrayLike) -> NDArray[np.int64]:
        """The whole-number score of each candidate; `scores` has a row for each unit."""
        table = as_float64("scores", scores)
        if table.ndim != 2 or table.shape[1] == 0:
            raise InputError(
                "must have a row for each unit and a column for each candidate, "
                f"not shape {table.shape}.",
                field="scores",
            )
        if len(table) >= 2**40:
            raise InputError("There are too many units.")
        table = np.where(np.isnan(table), self.low, np.clip(table, self.low, self.high))
        share = np.clip((table - self.low) / (self.high - self.low), 0.0, 1.0)
        levels = np.rint(share * LEVELS).astype(np.int64)
        return np.asarray(levels.sum(axis=0, dtype=np.int64))

    def release(self, scores: ArrayLike, source: Source) -> tuple[int, Event]:
        """The chosen column of `scores`, and what was done."""
        sums = self.sums(scores)
        best, rate = int(sums.max()), Fraction(self.epsilon) / (2 * LEVELS)
        for j in source.generator.permutation(len(sums)).tolist():
            distance = rate * (best - int(sums[j]))
            if exact.bernoulli_exp(source.generator, distance, 1)[0]:
                return int(j), self.event
        raise AssertionError("the best candidate is always taken")


@dataclass(frozen=True)
class Choice:
    """Which candidate was taken, and what that promises."""

    index: int
    name: str
    certificate: Certificate


def choose(
    scores: ArrayLike,
    *,
    low: float,
    high: float,
    epsilon: float,
    unit: Unit,
    names: Sequence[str] | None = None,
    session: PrivacySession = SECRET_SESSION,
) -> Choice:
    """A good candidate, `epsilon`-privately; `scores` has a row for each unit, larger is better.

    Each row must be computed from its own unit alone, and candidates must not have been fitted to
    these units: nothing here can see that, and the certificate lists it as assumed. Group a
    person's trajectories into one row (their mean, say) and say `unit=Unit.USER`.
    """
    plan = PermuteAndFlip(epsilon, low, high)
    count = len(plan.sums(scores))
    words = [str(j) for j in range(count)] if names is None else [str(name) for name in names]
    if len(words) != count:
        raise InputError(f"There are {len(words)} names for {count} candidates.")
    opened = session.open(Unit.parse(unit), Relation.REPLACE_ONE)
    opened.pay(plan.event, delta=0.0)
    index, _ = plan.release(scores, opened.source)
    certificate = opened.certify(
        0.0, release=Release.FINAL_MODEL, assumptions=(OWN_ROW,), floating=False
    )
    return Choice(index, words[index], certificate)
