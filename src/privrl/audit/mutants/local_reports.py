"""Faults of reports that clients randomise themselves: mechanisms of local DP and payloads."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from privrl.audit.mutants.common import NOISE_FACTOR
from privrl.audit.mutations import mutant
from privrl.privacy.promise import Relation

_PAYLOADS = "control.pgc.privatiser:Privatiser.payloads"
_BROKEN = "pgc-privunit-broken pgc-sign-broken pgc-laplace-broken"


@mutant(
    "factor-two-local",
    "privacy.accounting.worst_cases:sensitivity",
    "privacy/test_report_laplace.py::test_a_report_costs_epsilon",
    "laplace-report grid-laplace-report",
    16_000,
)
def _no_local_factor(sensitivity: Any, bound: float, relation: Any) -> Any:
    """Reports of agents paid for as if they moved by their norm."""
    return bound if relation is Relation.LOCAL else sensitivity(bound, relation)


@mutant(
    "factor-two-scale",
    "privacy.mechanisms.report_laplace:GridLaplaceReport.__post_init__",
    "privacy/test_report_laplace.py::test_a_report_costs_epsilon",
    "pgc-laplace",
    4000,
)
def _halve_scale(made: Any, self: Any) -> None:
    """Laplace reports with a scale of radius / epsilon, and the promise as it was."""
    made(self)
    plan = self.mechanism
    object.__setattr__(self, "mechanism", replace(plan, width=-(-plan.width // 2)))


@mutant(
    "epsilon-not-split",
    "control.pgc.privatiser:split_epsilon",
    "control/pgc/test_privatiser.py::test_shares_never_add_up_to_more_than_epsilon",
    "pgc-privunit-twice pgc-sign-twice pgc-laplace-twice",
)
def _whole_epsilon(shares: Any, epsilon: float, submissions: int, score_share: float) -> Any:
    """Each payload spends what all of them may."""
    return shares(epsilon, 1, score_share)


@mutant(
    "wire-noise",
    "control.pgc.privatiser:split_epsilon",
    "control/pgc/test_privatiser.py::test_shares_never_add_up_to_more_than_epsilon",
    "pgc-privunit pgc-sign pgc-laplace pgc-score",
)
def _larger_epsilon(shares: Any, epsilon: float, submissions: int, score_share: float) -> Any:
    """Payloads of an epsilon 1 / 0.8 times as large."""
    report, score = shares(epsilon, submissions, score_share)
    return report / NOISE_FACTOR, score / NOISE_FACTOR


@mutant(
    "coin-bent",
    "privacy.exact:bernoulli",
    "privacy/test_exact.py::test_bernoulli",
    "unit-vector unit-vector-padded duchi piecewise hybrid sign-on-the-wire",
    40_000,
)
def _biased_coin(fair: Any, generator: Any, probability: Any, size: int) -> Any:
    """A coin that tells the truth more often than it may: half of its tails become heads."""
    return fair(generator, probability, size) | (generator.random(size) < 0.5)


@mutant(
    "privunit-odds",
    "privacy.mechanisms.unit_vector:PrivUnit.__post_init__",
    "privacy/test_unit_vector.py::test_densities_are_at_most_e_to_the_epsilon_apart",
    "unit-vector unit-vector-compiled pgc-privunit",
)
def _larger_cap_odds(made: Any, self: Any) -> None:
    """PrivUnit's odds of a report in the cap x 1.25."""
    made(self)
    odds = self.inside / (1 - self.inside) * Fraction(5, 4)
    object.__setattr__(self, "inside", odds / (1 + odds))


@mutant(
    "seed-again",
    _PAYLOADS,
    "control/pgc/test_privatiser.py::test_payloads_are_drawn_afresh",
    "pgc-privunit-turning pgc-sign-turning pgc-laplace-turning",
    800,
    makes=True,
)
def _reuse_seed(payloads: Any) -> Any:
    """An agent's payloads are all drawn from one seed, so that a repeated one looks the same."""
    first: list[Any] = []

    def again(self: Any, gradients: Any, source: Any, *more: Any) -> Any:
        bits = source.generator.bit_generator
        if first:
            bits.state = first.pop()
        else:
            first.append(bits.state)
        return payloads(self, gradients, source, *more)

    return again


@mutant(
    "nan-sent",
    _PAYLOADS,
    "control/pgc/test_privatiser.py::test_what_is_no_gradient_is_told_like_zeros",
    _BROKEN,
    800,
)
def _send_nan(payloads: Any, self: Any, gradients: Any, source: Any, *more: Any) -> list[bytes]:
    """A gradient that is not finite goes out as it is."""
    sent = payloads(self, gradients, source, *more)
    raw = [np.asarray(one, "<f8").tobytes().ljust(self.size)[: self.size] for one in gradients]
    whole = [bool(np.all(np.isfinite(one))) for one in gradients]
    return [a if good else b for a, b, good in zip(sent, raw, whole, strict=True)]


@mutant(
    "silence",
    _PAYLOADS,
    "control/pgc/test_privatiser.py::test_every_gradient_gets_a_payload_that_is_read",
    _BROKEN,
    800,
)
def _skip_zeros(payloads: Any, self: Any, gradients: Any, source: Any, *more: Any) -> list[bytes]:
    """An agent with a gradient of zeros sends nothing."""
    sent = payloads(self, gradients, source, *more)
    return [a if np.any(one) else b"" for a, one in zip(sent, gradients, strict=True)]


@mutant(
    "zero-error",
    _PAYLOADS,
    "control/pgc/test_privatiser.py::test_every_gradient_gets_a_payload_that_is_read",
    _BROKEN,
    800,
)
def _divide_by_norm(payloads: Any, self: Any, gradients: Any, source: Any, *more: Any) -> Any:
    """An error for a gradient of zeros: divided by the norm without a look at it."""
    for one in gradients:
        1.0 / float(np.sqrt(np.sum(np.nan_to_num(one) ** 2)))
    return payloads(self, gradients, source, *more)


@mutant(
    "score-told",
    _PAYLOADS,
    "control/pgc/test_privatiser.py::test_scores_are_exact_coins_and_ten_percent_off_is_seen",
    "pgc-score",
    800,
)
def _send_raw_score(
    payloads: Any, self: Any, gradients: Any, source: Any, reached: Any = None
) -> list[bytes]:
    """Whether the target was reached, told as it is: so little that nobody randomises it."""
    sent: list[bytes] = payloads(self, gradients, source, reached)
    if not self.score_epsilon:
        return sent
    told = [False] * len(gradients) if reached is None else reached
    return [one[:-1] + bytes([bool(yes)]) for one, yes in zip(sent, told, strict=True)]
