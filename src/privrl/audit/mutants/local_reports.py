"""Faults of reports that clients randomise themselves: mechanisms of local DP and payloads."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from privrl.audit.mutants.common import NOISE_FACTOR
from privrl.audit.mutations import Mutant
from privrl.privacy.promise import Relation

_PGC_TARGETS = ("pgc-privunit", "pgc-sign", "pgc-laplace")
_BROKEN_TARGETS = tuple(f"{name}-broken" for name in _PGC_TARGETS)


def _no_local_factor(sensitivity: Any) -> Any:
    def once(bound: float, relation: Any) -> float:
        return bound if relation is Relation.LOCAL else float(sensitivity(bound, relation))

    return once


def _halve_scale(made: Any) -> Any:
    """The scale of a report from radius / epsilon, and the promise as it was."""

    def halve(self: Any) -> None:
        made(self)
        plan = self.mechanism
        less = replace(plan, scale=plan.scale / 2) if hasattr(plan, "scale") else plan
        if less is plan:
            less = replace(plan, width=-(-plan.width // 2))
        object.__setattr__(self, "mechanism", less)

    return halve


def _whole_epsilon(shares: Any) -> Any:
    return lambda epsilon, submissions, score_share: shares(epsilon, 1, score_share)


def _larger_epsilon(shares: Any) -> Any:
    def larger(epsilon: float, submissions: int, score_share: float) -> tuple[float, float]:
        report, score = shares(epsilon, submissions, score_share)
        return report / NOISE_FACTOR, score / NOISE_FACTOR

    return larger


def _biased_coin(fair: Any) -> Any:
    """A coin that tells the truth more often than it may: half of its tails become heads."""

    def biased(generator: Any, probability: Any, size: int) -> Any:
        return fair(generator, probability, size) | (generator.random(size) < 0.5)

    return biased


def _larger_cap_odds(made: Any) -> Any:
    """A report is in the cap with odds a quarter too large."""

    def more(self: Any) -> None:
        made(self)
        odds = self.inside / (1 - self.inside) * Fraction(5, 4)
        object.__setattr__(self, "inside", odds / (1 + odds))

    return more


def _reuse_seed(payloads: Any) -> Any:
    """Each payload is drawn from the same seed, so that a repeated one looks the same."""
    first: list[Any] = []

    def again(self: Any, gradients: Any, source: Any, *more: Any) -> Any:
        bits = source.generator.bit_generator
        if first:
            bits.state = first.pop()
        else:
            first.append(bits.state)
        return payloads(self, gradients, source, *more)

    return again


def _reached_flags(gradients: Any, more: tuple[Any, ...]) -> Any:
    return more[0] if more and more[0] is not None else [False] * len(gradients)


def _send_nan(payloads: Any) -> Any:
    """A gradient that is not finite goes out as it is."""

    def through(self: Any, gradients: Any, source: Any, *more: Any) -> list[bytes]:
        sent = payloads(self, gradients, source, *more)
        raw = [np.asarray(one, "<f8").tobytes().ljust(self.size)[: self.size] for one in gradients]
        whole = [bool(np.all(np.isfinite(one))) for one in gradients]
        return [a if good else b for a, b, good in zip(sent, raw, whole, strict=True)]

    return through


def _skip_zero_gradients(payloads: Any) -> Any:
    """An agent with nothing to say says nothing."""

    def silent(self: Any, gradients: Any, source: Any, *more: Any) -> list[bytes]:
        sent = payloads(self, gradients, source, *more)
        return [a if np.any(one) else b"" for a, one in zip(sent, gradients, strict=True)]

    return silent


def _division_by_zero(payloads: Any) -> Any:
    """Divided by the norm without a look at it: an error where there is nothing to divide."""

    def dividing(self: Any, gradients: Any, source: Any, *more: Any) -> list[bytes]:
        for one in gradients:
            1.0 / float(np.sqrt(np.sum(np.nan_to_num(one) ** 2)))
        found: list[bytes] = payloads(self, gradients, source, *more)
        return found

    return dividing


def _send_raw_score(payloads: Any) -> Any:
    """A yes or no is so little that nobody randomises it."""

    def plain(self: Any, gradients: Any, source: Any, *more: Any) -> list[bytes]:
        sent = payloads(self, gradients, source, *more)
        if not self.score_epsilon:
            return list(sent)
        reached = _reached_flags(gradients, more)
        return [one[:-1] + bytes([bool(yes)]) for one, yes in zip(sent, reached, strict=True)]

    return plain


MUTANTS = (
    Mutant(
        "factor-two-local",
        "reports of agents paid for as if they moved by their norm",
        (("privacy.accounting.worst_cases:sensitivity", _no_local_factor),),
        ("tests/privacy/test_report_laplace.py::test_a_report_costs_epsilon",),
        ("laplace-report", "grid-laplace-report"),
        16_000,
    ),
    Mutant(
        "factor-two-scale",
        "Laplace reports with a scale of radius / epsilon",
        (("privacy.mechanisms.report_laplace:GridLaplaceReport.__post_init__", _halve_scale),),
        ("tests/privacy/test_report_laplace.py::test_a_report_costs_epsilon",),
        ("pgc-laplace",),
        4000,
    ),
    Mutant(
        "epsilon-not-split",
        "each payload spends what all of them may",
        (("control.pgc.privatiser:split_epsilon", _whole_epsilon),),
        ("tests/control/pgc/test_privatiser.py::test_shares_never_add_up_to_more_than_epsilon",),
        tuple(f"{name}-twice" for name in _PGC_TARGETS),
    ),
    Mutant(
        "wire-noise",
        "payloads of an epsilon 1 / 0.8 times as large",
        (("control.pgc.privatiser:split_epsilon", _larger_epsilon),),
        ("tests/control/pgc/test_privatiser.py::test_shares_never_add_up_to_more_than_epsilon",),
        (*_PGC_TARGETS, "pgc-score"),
    ),
    Mutant(
        "coin-bent",
        "a coin that tells the truth more often than it may",
        (("privacy.exact:bernoulli", _biased_coin),),
        ("tests/privacy/test_exact.py::test_bernoulli",),
        (
            *("unit-vector", "unit-vector-padded", "duchi"),
            *("piecewise", "hybrid", "sign-on-the-wire"),
        ),
        40_000,
    ),
    Mutant(
        "privunit-odds",
        "PrivUnit's odds of a report in the cap x 1.25",
        (("privacy.mechanisms.unit_vector:PrivUnit.__post_init__", _larger_cap_odds),),
        ("tests/privacy/test_unit_vector.py::test_densities_are_at_most_e_to_the_epsilon_apart",),
        ("unit-vector", "unit-vector-compiled", "pgc-privunit"),
    ),
    Mutant(
        "seed-again",
        "an agent's payloads all drawn from one seed",
        (("control.pgc.privatiser:Privatiser.payloads", _reuse_seed),),
        ("tests/control/pgc/test_privatiser.py::test_payloads_are_drawn_afresh",),
        tuple(f"{name}-turning" for name in _PGC_TARGETS),
        800,
    ),
    Mutant(
        "nan-sent",
        "a gradient that is not finite goes out as it is",
        (("control.pgc.privatiser:Privatiser.payloads", _send_nan),),
        ("tests/control/pgc/test_privatiser.py::test_what_is_no_gradient_is_told_like_zeros",),
        _BROKEN_TARGETS,
        800,
    ),
    Mutant(
        "silence",
        "an agent with a gradient of zeros sends nothing",
        (("control.pgc.privatiser:Privatiser.payloads", _skip_zero_gradients),),
        ("tests/control/pgc/test_privatiser.py::test_every_gradient_gets_a_payload_that_is_read",),
        _BROKEN_TARGETS,
        800,
    ),
    Mutant(
        "zero-error",
        "an error for a gradient of zeros",
        (("control.pgc.privatiser:Privatiser.payloads", _division_by_zero),),
        ("tests/control/pgc/test_privatiser.py::test_every_gradient_gets_a_payload_that_is_read",),
        _BROKEN_TARGETS,
        800,
    ),
    Mutant(
        "score-told",
        "whether the target was reached, told as it is",
        (("control.pgc.privatiser:Privatiser.payloads", _send_raw_score),),
        (
            "tests/control/pgc/test_privatiser.py::"
            "test_scores_are_exact_coins_and_ten_percent_off_is_seen",
        ),
        ("pgc-score",),
        800,
    ),
)
