"""Faults of noise, clipping and accounting in `privrl.privacy`, and of all that rests on them."""

from dataclasses import replace
from typing import Any

import numpy as np

from privrl.audit.mutants.common import FEW_RUNS, GTD, NOISE_FACTOR
from privrl.audit.mutations import Change, Mutant

_STREAMS = (
    *("running-sums-tree", "running-sums-refined-tree", "running-sums-toeplitz"),
    *("running-sums-banded", "running-sums-optimal"),
)
_SUMS = ("gaussian", "laplace", "grid-gaussian", "grid-laplace")
_VALUES = ("private-value", "private-value-users", "private-lstd")
_ACTOR_CRITICS = ("actor-critic", "actor-critic-correlated")
_Q_UPDATES = (
    *("functional-q-weights", "functional-q-updates", "functional-q-clipped", "logged-q"),
    "prospect-q-updates",
)


def _scale_noise(factor: float) -> Change:
    """A scale read off the wrong line: every draw is `factor` times what it should be."""

    def change(draw: Any) -> Any:
        def less(self: Any, scale: Any, shape: Any) -> Any:
            return draw(self, type(scale)(factor * scale), shape)

        return less

    return change


def _scale_jax_noise(normal: Any) -> Any:
    return lambda key, shape: NOISE_FACTOR * normal(key, shape)


def _repeat_noise(normal: Any) -> Any:
    """A generator seeded anew for each release: every other draw of a shape is the one before."""
    drawn: dict[tuple[int, ...], Any] = {}

    def every_other(self: Any, std: float, shape: tuple[int, ...]) -> Any:
        if shape in drawn:
            return drawn.pop(shape) * std
        drawn[shape] = normal(self, 1.0, shape)
        return drawn[shape] * std

    return every_other


def _narrow_discrete_noise(draw: Any) -> Any:
    return lambda generator, width, size: draw(generator, max(1, int(NOISE_FACTOR * width)), size)


def _narrow_grid_noise(noise: Any) -> Any:
    def less(self: Any, source: Any, shape: Any) -> Any:
        return noise(replace(self, width=max(1, int(NOISE_FACTOR * self.width))), source, shape)

    return less


def _no_clipping(shipped: Any) -> Any:
    return lambda rows, bound: rows * 1.0


def _naive_clip(order: int) -> Change:
    """Clipping by a factor min(1, bound / norm), as in many a notebook: NaN goes through."""

    def change(shipped: Any) -> Any:
        def naive_clip(rows: Any, bound: float) -> Any:
            with np.errstate(invalid="ignore"):
                norms = np.linalg.norm(rows, order, axis=-1, keepdims=True)
                return rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300))

        return naive_clip

    return change


def _l2_for_l1(l1: Any) -> Any:
    from privrl.privacy.mechanisms import clip

    l2 = clip.l2
    return lambda rows, bound: l2(rows, bound)


def _clip_coordinates(l2: Any) -> Any:
    return lambda rows, bound: np.clip(np.where(np.isfinite(rows), rows, 0.0), -bound, bound)


def _no_factor_two(sensitivity: Any) -> Any:
    return lambda bound, relation: bound


def _fewer_participations(sensitivity: Any) -> Any:
    def fewer(strategy: Any, horizon: int, band: Any, participations: int, apart: int) -> float:
        return float(sensitivity(strategy, horizon, band, max(1, participations - 1), apart))

    return fewer


def _unit_sensitivity(sensitivity: Any) -> Any:
    return property(lambda self: 1.0)


def _double_exponent(coin: Any) -> Any:
    return lambda generator, x, size: coin(generator, 2 * x, size)


def _double_beta(smooth: Any) -> Any:
    """e^(-2 k beta) where e^(-k beta) belongs: half as smooth."""
    return lambda local, beta, most: smooth(local, 2.0 * beta, most)


def _local_sensitivity_only(smooth: Any) -> Any:
    return lambda local, beta, most: float(local(np.zeros(1, dtype=np.int64))[0])


def _double_claimed_noise(event: Any) -> Any:
    """A plan that is paid for as if it had twice the noise."""

    def twice(self: Any) -> Any:
        return event.fget(replace(self, noise_multiplier=2.0 * self.noise_multiplier))

    return property(twice)


def _repeat_step_noise(normal: Any) -> Any:
    """Independent noise of a stream drawn once for two steps."""
    return lambda key, step, dimension: normal(key, step // 2, dimension)


MUTANTS = (
    Mutant(
        "noise-numpy",
        "Gaussian noise x 0.8, in NumPy",
        (("privacy.noise:Source.normal", _scale_noise(NOISE_FACTOR)),),
        (
            "tests/privacy/test_mechanisms.py::"
            "test_gaussian_noise_has_the_promised_law_and_ten_percent_off_is_seen",
        ),
        (
            *("gaussian", "gradient-descent", *_STREAMS, "functional", "field", "reward-model"),
            *(
                "running-sums-resumed",
                "smooth",
                *_VALUES,
                *GTD,
                "dplsw",
                "dplsl",
            ),
            *("functional-q", "functional-q-rewards", "functional-q-evaluations", "prospect-q"),
        ),
    ),
    Mutant(
        "noise-jax",
        "Gaussian noise x 0.8, compiled",
        (("privacy.noise:jax_normal", _scale_jax_noise),),
        ("tests/control/test_noised_q.py::test_the_noise_has_the_size_that_is_paid_for",),
        (
            *(
                "functional-compiled",
                "running-sums-compiled",
                "gpope",
                *_ACTOR_CRITICS,
                *_Q_UPDATES,
            ),
            *("actor-critic-curve", "prospect-actor-critic", "actor-critic-first-batch"),
            *("actor-critic-warm-start", "actor-critic-resumed"),
        ),
    ),
    Mutant(
        "noise-laplace",
        "Laplace noise x 0.8",
        (("privacy.noise:Source.laplace", _scale_noise(NOISE_FACTOR)),),
        (
            "tests/privacy/test_mechanisms.py::"
            "test_laplace_noise_has_the_promised_law_and_ten_percent_off_is_seen",
        ),
        ("laplace", "laplace-report"),
    ),
    Mutant(
        "noise-discrete-gaussian",
        "the sampler of discrete Gaussian noise, x 0.8",
        (("privacy.exact:discrete_gaussian", _narrow_discrete_noise),),
        ("tests/privacy/test_exact.py::test_discrete_gaussian",),
        ("grid-gaussian",),
    ),
    Mutant(
        "noise-discrete-laplace",
        "the sampler of discrete Laplace noise, x 0.8",
        (("privacy.exact:discrete_laplace", _narrow_discrete_noise),),
        ("tests/privacy/test_exact.py::test_discrete_laplace",),
        ("grid-laplace", "grid-laplace-report", "pgc-laplace"),
    ),
    Mutant(
        "noise-grid",
        "noise of sums on a grid x 0.8",
        (("privacy.mechanisms.on_grid:GridGaussianMechanism._noise", _narrow_grid_noise),),
        (
            "tests/privacy/test_mechanisms.py::"
            "test_noise_on_a_grid_has_the_size_that_its_event_says",
        ),
        ("grid-gaussian",),
    ),
    Mutant(
        "noise-reused",
        "Gaussian noise used twice, in NumPy",
        (("privacy.noise:Source.normal", _repeat_noise),),
        (
            "tests/privacy/test_mechanisms.py::"
            "test_noise_is_fresh_and_independent_across_coordinates_and_releases",
        ),
        ("gaussian-twice", "private-gtd"),
        FEW_RUNS,
    ),
    Mutant(
        "clip-forgotten",
        "contributions count at whatever size they come",
        (
            ("privacy.mechanisms.clip:l1", _no_clipping),
            ("privacy.mechanisms.clip:l2", _no_clipping),
        ),
        ("tests/privacy/test_clip.py::test_numpy",),
        (
            *(*_SUMS, "gradient-descent", "gradient-descent-canaries", *_STREAMS),
            *("laplace-report", "grid-laplace-report", *_ACTOR_CRITICS, "prospect-actor-critic"),
            *("actor-critic-warm-start", "actor-critic-resumed"),
            *("functional-q-clipped", "logged-q", "prospect-q-updates", "gpope"),
        ),
        FEW_RUNS,
    ),
    Mutant(
        "clip-norm",
        "clipped by the wrong norm: L2 for L1, and each coordinate for L2",
        (
            ("privacy.mechanisms.clip:l1", _l2_for_l1),
            ("privacy.mechanisms.clip:l2", _clip_coordinates),
        ),
        ("tests/privacy/test_clip.py::test_numpy",),
        (*_SUMS, "laplace-report"),
        40_000,
    ),
    Mutant(
        "clip-nan",
        "clipping by min(1, bound / norm), which NaN goes through",
        (
            ("privacy.mechanisms.clip:l1", _naive_clip(1)),
            ("privacy.mechanisms.clip:l2", _naive_clip(2)),
        ),
        ("tests/privacy/test_clip.py::test_numpy",),
        ("gaussian-not-a-number", "grid-gaussian-not-a-number"),
        FEW_RUNS,
    ),
    Mutant(
        "factor-two",
        "a replacement paid for like a removal",
        (("privacy.accounting.worst_cases:sensitivity", _no_factor_two),),
        ("tests/privacy/test_accounting.py::test_gaussian",),
        (*_SUMS, "gradient-descent", *_STREAMS, "functional", *_VALUES, *GTD, "logged-q"),
        FEW_RUNS * 10,
    ),
    Mutant(
        "participations",
        "running sums paid for with a participation less",
        (("privacy.mechanisms.correlated_sensitivity:sensitivity", _fewer_participations),),
        ("tests/privacy/test_correlated.py::test_several_participations_over_all_patterns",),
        ("running-sums-toeplitz", "running-sums-banded", "running-sums-independent"),
    ),
    Mutant(
        "one-step",
        "running sums paid for as if one of them moved",
        (("privacy.mechanisms.correlated:CorrelatedMechanism.sensitivity", _unit_sensitivity),),
        ("tests/privacy/test_correlated.py::test_one_participation_costs_the_largest_column",),
        _STREAMS,
    ),
    Mutant(
        "plan-half-noise",
        "half the noise that a plan is paid for",
        (("privacy.plan:NoisyPlan.event", _double_claimed_noise),),
        (
            "tests/privacy/test_plan.py::test_noise_is_that_of_the_event",
            "tests/control/test_noised_q.py::test_the_noise_has_the_size_that_is_paid_for",
            "tests/evaluation/test_private_gtd.py::"
            "test_the_certificate_spends_the_budget_and_verifies",
            "tests/evaluation/test_gpope.py::test_certified",
            "tests/control/test_actor_critic.py::"
            "test_a_certificate_costs_what_one_gaussian_does_however_many_batches",
        ),
        (
            *("private-gtd", "private-gtd-secret-steps", "gpope", "actor-critic"),
            *("functional-q-weights", "functional-q-updates", "logged-q"),
        ),
    ),
    Mutant(
        "choice-distance",
        "scores that move in opposite directions paid for as if they moved together",
        (("privacy.exact:bernoulli_exp", _double_exponent),),
        ("tests/privacy/test_exact.py::test_bernoulli_exp",),
        ("private-choice",),
    ),
    Mutant(
        "smoothing-halved",
        "smooth sensitivity that falls off twice as fast",
        (("privacy.mechanisms.smooth:smooth_bound", _double_beta),),
        ("tests/privacy/test_smooth.py::test_the_median_of_every_small_dataset",),
        ("dplsw-smoothing",),
    ),
    Mutant(
        "not-smoothed",
        "noise scaled to the local sensitivity of the data at hand",
        (("privacy.mechanisms.smooth:smooth_bound", _local_sensitivity_only),),
        ("tests/privacy/test_smooth.py::test_the_median_of_every_small_dataset",),
        ("dplsw-visits",),
        800,
    ),
    Mutant(
        "stream-noise",
        "compiled noise of running sums drawn once for two steps",
        (("privacy.mechanisms.correlated_jax:_normal", _repeat_step_noise),),
        (
            "tests/privacy/test_correlated.py::"
            "test_all_compiled_noise_at_once_equals_it_one_by_one_and_has_the_law",
        ),
        ("running-sums-compiled",),
        4000,
    ),
)
