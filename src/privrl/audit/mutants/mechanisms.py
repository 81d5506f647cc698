"""Faults of noise, clipping and accounting in `privrl.privacy`, and of all that rests on them."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from privrl.audit.mutants.common import FEW_RUNS, GTD, NOISE_FACTOR
from privrl.audit.mutations import instead, mutant

_STREAMS = (
    "running-sums-tree running-sums-refined-tree running-sums-toeplitz "
    "running-sums-banded running-sums-optimal"
)
_SUMS = "gaussian laplace grid-gaussian grid-laplace"
_VALUES = "private-value private-value-users private-lstd"


def _scale_noise(draw: Any, self: Any, scale: Any, shape: Any, /) -> Any:
    """A scale read off the wrong line: Gaussian or Laplace noise x 0.8, in NumPy."""
    return draw(self, type(scale)(NOISE_FACTOR * scale), shape)


mutant(
    "noise-numpy",
    "privacy.noise:Source.normal",
    "privacy/test_mechanisms.py::"
    "test_gaussian_noise_has_the_promised_law_and_ten_percent_off_is_seen",
    f"gaussian gradient-descent {_STREAMS} functional field reward-model "
    f"running-sums-resumed smooth {_VALUES} {GTD} dplsw dplsl "
    "functional-q functional-q-rewards functional-q-evaluations prospect-q",
)(_scale_noise)


@mutant(
    "noise-jax",
    "privacy.noise:jax_normal",
    "control/test_noised_q.py::test_the_noise_has_the_size_that_is_paid_for",
    "functional-compiled running-sums-compiled gpope actor-critic actor-critic-correlated "
    "functional-q-weights functional-q-updates functional-q-clipped logged-q prospect-q-updates "
    "actor-critic-curve prospect-actor-critic actor-critic-first-batch "
    "actor-critic-warm-start actor-critic-resumed",
)
def _scale_jax_noise(normal: Any, key: Any, shape: Any) -> Any:
    """Gaussian noise x 0.8, compiled."""
    return NOISE_FACTOR * normal(key, shape)


mutant(
    "noise-laplace",
    "privacy.noise:Source.laplace",
    "privacy/test_mechanisms.py::"
    "test_laplace_noise_has_the_promised_law_and_ten_percent_off_is_seen",
    "laplace laplace-report",
)(_scale_noise)


def _narrow_discrete_noise(draw: Any, generator: Any, width: int, size: int, /) -> Any:
    """The sampler of discrete Gaussian or Laplace noise, x 0.8."""
    return draw(generator, max(1, int(NOISE_FACTOR * width)), size)


mutant(
    "noise-discrete-gaussian",
    "privacy.exact:discrete_gaussian",
    "privacy/test_exact.py::test_discrete_gaussian",
    "grid-gaussian",
)(_narrow_discrete_noise)

mutant(
    "noise-discrete-laplace",
    "privacy.exact:discrete_laplace",
    "privacy/test_exact.py::test_discrete_laplace",
    "grid-laplace grid-laplace-report pgc-laplace",
)(_narrow_discrete_noise)


@mutant(
    "noise-grid",
    "privacy.mechanisms.on_grid:GridGaussianMechanism._noise",
    "privacy/test_mechanisms.py::test_noise_on_a_grid_has_the_size_that_its_event_says",
    "grid-gaussian",
)
def _narrow_grid_noise(noise: Any, self: Any, source: Any, shape: Any) -> Any:
    """Noise of sums on a grid x 0.8."""
    return noise(replace(self, width=max(1, int(NOISE_FACTOR * self.width))), source, shape)


@mutant(
    "noise-reused",
    "privacy.noise:Source.normal",
    "privacy/test_mechanisms.py::"
    "test_noise_is_fresh_and_independent_across_coordinates_and_releases",
    "gaussian-twice private-gtd",
    FEW_RUNS,
    makes=True,
)
def _repeat_noise(normal: Any) -> Any:
    """A generator seeded anew for each release: every other draw of a shape is the one before."""
    drawn: dict[tuple[int, ...], Any] = {}

    def every_other(self: Any, std: float, shape: tuple[int, ...]) -> Any:
        if shape in drawn:
            return drawn.pop(shape) * std
        drawn[shape] = normal(self, 1.0, shape)
        return drawn[shape] * std

    return every_other


@mutant(
    "clip-forgotten",
    "privacy.mechanisms.clip:l1 privacy.mechanisms.clip:l2",
    "privacy/test_clip.py::test_numpy",
    f"{_SUMS} gradient-descent gradient-descent-canaries {_STREAMS} "
    "laplace-report grid-laplace-report actor-critic actor-critic-correlated "
    "prospect-actor-critic actor-critic-warm-start actor-critic-resumed "
    "functional-q-clipped logged-q prospect-q-updates gpope",
    FEW_RUNS,
)
def _no_clipping(shipped: Any, rows: Any, bound: Any) -> Any:
    """Contributions count at whatever size they come."""
    return rows * 1.0


def _clip_coordinates(l2: Any, rows: Any, bound: Any) -> Any:
    return np.clip(np.where(np.isfinite(rows), rows, 0.0), -bound, bound)


@mutant(
    "clip-norm",
    "privacy.mechanisms.clip:l1",
    "privacy/test_clip.py::test_numpy",
    f"{_SUMS} laplace-report",
    40_000,
    makes=True,
    also={"privacy.mechanisms.clip:l2": instead(_clip_coordinates)},
)
def _l2_for_l1(l1: Any) -> Any:
    """Clipped by the wrong norm: L2 for L1, and each coordinate for L2."""
    from privrl.privacy.mechanisms import clip

    l2 = clip.l2  # as it ships: it is exchanged after this
    return lambda rows, bound: l2(rows, bound)


def _naive_clip(shipped: Any, rows: Any, bound: float, order: int = 1) -> Any:
    """Clipping by min(1, bound / norm), as in many a notebook, which NaN goes through."""
    with np.errstate(invalid="ignore"):
        norms = np.linalg.norm(rows, order, axis=-1, keepdims=True)
        return rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300))


mutant(
    "clip-nan",
    "privacy.mechanisms.clip:l1",
    "privacy/test_clip.py::test_numpy",
    "gaussian-not-a-number grid-gaussian-not-a-number",
    FEW_RUNS,
    also={"privacy.mechanisms.clip:l2": instead(partial(_naive_clip, order=2))},
)(_naive_clip)


@mutant(
    "factor-two",
    "privacy.accounting.worst_cases:sensitivity",
    "privacy/test_accounting.py::test_gaussian",
    f"{_SUMS} gradient-descent {_STREAMS} functional {_VALUES} {GTD} logged-q",
    FEW_RUNS * 10,
)
def _no_factor_two(sensitivity: Any, bound: float, relation: Any) -> float:
    """A replacement paid for like a removal."""
    return bound


@mutant(
    "participations",
    "privacy.mechanisms.correlated_sensitivity:sensitivity",
    "privacy/test_correlated.py::test_several_participations_over_all_patterns",
    "running-sums-toeplitz running-sums-banded running-sums-independent",
)
def _fewer_participations(
    sensitivity: Any, strategy: Any, horizon: int, band: Any, participations: int, separation: int
) -> Any:
    """Running sums paid for with a participation less."""
    return sensitivity(strategy, horizon, band, max(1, participations - 1), separation)


@mutant(
    "one-step",
    "privacy.mechanisms.correlated:CorrelatedMechanism.sensitivity",
    "privacy/test_correlated.py::test_one_participation_costs_the_largest_column",
    _STREAMS,
)
def _unit_sensitivity(sensitivity: Any, self: Any) -> float:
    """Running sums paid for as if one of them moved."""
    return 1.0


@mutant(
    "plan-half-noise",
    "privacy.plan:NoisyPlan.event",
    "privacy/test_plan.py::test_noise_is_that_of_the_event "
    "control/test_noised_q.py::test_the_noise_has_the_size_that_is_paid_for "
    "evaluation/test_private_gtd.py::test_the_certificate_spends_the_budget_and_verifies "
    "evaluation/test_gpope.py::test_certified control/test_actor_critic.py::"
    "test_a_certificate_costs_what_one_gaussian_does_however_many_batches",
    "private-gtd private-gtd-secret-steps gpope actor-critic "
    "functional-q-weights functional-q-updates logged-q",
)
def _double_claimed_noise(event: Any, self: Any) -> Any:
    """Half the noise that a plan is paid for."""
    return event(replace(self, noise_multiplier=2.0 * self.noise_multiplier))


@mutant(
    "choice-distance",
    "privacy.exact:bernoulli_exp",
    "privacy/test_exact.py::test_bernoulli_exp",
    "private-choice",
)
def _double_exponent(coin: Any, generator: Any, x: Any, size: int) -> Any:
    """Scores that move in opposite directions paid for as if they moved together."""
    return coin(generator, 2 * x, size)


@mutant(
    "smoothing-halved",
    "privacy.mechanisms.smooth:smooth_bound",
    "privacy/test_smooth.py::test_the_median_of_every_small_dataset",
    "dplsw-smoothing",
)
def _double_beta(smooth: Any, local_at_distance: Any, beta: float, max_distance: int) -> Any:
    """Smooth sensitivity that falls off twice as fast: e^(-2 k beta) where e^(-k beta) belongs."""
    return smooth(local_at_distance, 2.0 * beta, max_distance)


@mutant(
    "not-smoothed",
    "privacy.mechanisms.smooth:smooth_bound",
    "privacy/test_smooth.py::test_the_median_of_every_small_dataset",
    "dplsw-visits",
    800,
)
def _local_sensitivity_only(
    smooth: Any, local_at_distance: Any, beta: float, max_distance: int
) -> float:
    """Noise scaled to the local sensitivity of the data at hand."""
    return float(local_at_distance(np.zeros(1, dtype=np.int64))[0])


@mutant(
    "stream-noise",
    "privacy.mechanisms.correlated_jax:_normal",
    "privacy/test_correlated.py::"
    "test_all_compiled_noise_at_once_equals_it_one_by_one_and_has_the_law",
    "running-sums-compiled",
    4000,
)
def _repeat_step_noise(normal: Any, key: Any, step: Any, dimension: int) -> Any:
    """Compiled noise of running sums drawn once for two steps."""
    return normal(key, step // 2, dimension)
