"""Faults of estimators: what people contribute to sums, who is drawn, and what is paid for."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np

from privrl.audit.mutants.common import FEW_RUNS, GTD, NOISE_FACTOR
from privrl.audit.mutations import instead, mutant


def _narrow_noise(made: Any, budget: Any, grid: bool, factor: float) -> Any:
    """A plan whose noise is narrower than its event says."""
    plan = made(budget, grid)
    if not grid:
        return plan
    narrow = type("Narrow", (type(plan),), {"event": plan.event})
    return narrow(int(factor * plan.width), plan.step, plan.bound, plan.dimension)


@mutant(
    "noise-grid-value",
    "evaluation.private_value:_mechanism",
    "evaluation/test_private_value.py::test_noise_on_a_grid_is_that_of_its_event",
)
def _narrow_grid_noise(made: Any, budget: Any, grid: bool) -> Any:
    """Noise of a private value on a grid x 0.8."""
    return _narrow_noise(made, budget, grid, NOISE_FACTOR)


@mutant(
    "noise-grid-value-third",
    "evaluation.private_value:_mechanism",
    "evaluation/test_private_value.py::test_noise_on_a_grid_is_that_of_its_event",
    "private-value-grid",
)
def _third_of_grid_noise(made: Any, budget: Any, grid: bool) -> Any:
    """Noise of a private value on a grid x 0.3, which an audit of few fits can see."""
    return _narrow_noise(made, budget, grid, 0.3)


@mutant(
    "smooth-bound-unscaled",
    "evaluation.dplsw:scale_bound",
    "evaluation/test_dplsw.py::test_neighbours_are_within_the_bound_whatever_the_units",
    "dplsw dplsl",
)
def _forget_width(scale_bound: Any, bound: float, width: float) -> float:
    """Output perturbation whose noise is in units of the range of returns, and its value is not."""
    return bound


@mutant(
    "shrink-forgotten",
    "evaluation.sums:clip_scales",
    "evaluation/test_sums.py::test_blocks_are_clipped_jointly_dense_or_sparse",
    f"private-lstd {GTD}",
    FEW_RUNS,
)
def _no_shrinking(clip_scales: Any, squares: Any, bound: float, entries: int) -> Any:
    """Sums of an estimator's rows that nobody scaled to the bound."""
    return np.ones(np.shape(squares))


@mutant(
    "shrink-nan",
    "evaluation.sums:clip_scales",
    "evaluation/test_private_gtd.py::test_rows_left_out_or_not_finite_add_nothing",
    "private-gtd-not-a-number",
    FEW_RUNS,
)
def _keep_nan_rows(clip_scales: Any, squares: Any, bound: float, entries: int) -> Any:
    """A row that is not finite keeps its factor: the last line of `clip_scales` forgotten."""
    with np.errstate(all="ignore"):
        norms = np.sqrt(squares)
        return np.where(norms > bound, bound / norms, 1.0)


def _units_without_b(factors: Any, units: Any, a: Any, bound: float) -> Any:
    return factors(replace(units, b=np.zeros_like(units.b)), a, bound)


@mutant(
    "lstd-b-outside",
    "evaluation.private_lstd:joint_clip_factors",
    "evaluation/test_private_lstd.py::"
    "test_exchanging_a_person_moves_the_release_by_at_most_two_bounds",
    "private-lstd",
    FEW_RUNS,
    also={"evaluation.private_lstd:clip_factors": instead(_units_without_b)},
)
def _without_b(factors: Any, blocks: Any, bound: float) -> Any:
    """LSTD's b, which rewards are in, outside of the norm that a person's statistics have."""
    return factors(blocks[:-1], bound)


@mutant(
    "weight-cap",
    "evaluation.private_value:PrivateValue._weights_and_returns",
    "evaluation/test_private_value.py::"
    "test_whatever_the_data_holds_a_person_stays_within_the_bound",
    "private-value",
    FEW_RUNS,
)
def _no_weight_cap(found: Any, self: Any, data: Any, policy: Any) -> Any:
    """Products of ratios without their cap."""
    most = 1e12
    w, y = found(replace(self, weight_cap=most), data, policy)
    return w * (most / self.weight_cap), y


def _count_trajectories(count: Any, self: Any) -> int:
    return int(self.num_trajectories)


@mutant(
    "people-not-grouped",
    "data.trajectories:Trajectories.unit_index",
    "evaluation/test_private_value.py::test_a_person_counts_once",
    "private-value-users",
    FEW_RUNS,
    also={"data.trajectories:Trajectories.num_units": instead(_count_trajectories)},
)
def _ungroup_users(index: Any, self: Any) -> Any:
    """Each trajectory clipped on its own, for a promise to people."""
    return np.arange(self.num_trajectories)


@mutant(
    "scores-not-clamped",
    "evaluation.selection:PermuteAndFlip.sums",
    "evaluation/test_selection.py::test_a_unit_moves_each_sum_by_at_most_one",
    "private-choice",
    FEW_RUNS,
)
def _no_score_clamp(sums: Any, self: Any, scores: Any) -> Any:
    """Scores of a private choice that nobody clamps."""
    share = (np.asarray(scores, np.float64) - self.low) / (self.high - self.low)
    levels = sums.__globals__["LEVELS"]
    return np.rint(np.nan_to_num(share) * levels).astype(np.int64).sum(axis=0)


@mutant(
    "steps-by-order",
    "evaluation.allotment:keyed_uniforms",
    "evaluation/test_allotment.py::test_a_replaced_person_moves_nobody_however_the_data_is_read",
    "private-gtd-secret-steps",
)
def _steps_by_order(places: Any, ids: Any, key: Any) -> Any:
    """The step of a single pass decided by the order of the data: the last person is in the last.

    So it is known to whoever knows the order.
    """
    return np.arange(len(ids)) / len(ids)


@mutant(
    "gtd-steps",
    "privacy.plan:PoissonBatches.event",
    "evaluation/test_private_gtd.py::test_the_certificate_spends_the_budget_and_verifies",
    "private-gtd private-gtd-primal-dual",
)
def _disjoint_steps(event: Any, self: Any, one: Any) -> Any:
    """All steps of a private GTD, in which everybody takes part, paid for as one."""
    return event(replace(self, times=1), one)


class _CachedGenerator:
    """A generator that draws who takes part once, and says the same for ever after."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self._drawn: dict[Any, Any] = {}

    def random(self, size: Any) -> Any:
        if size not in self._drawn:
            self._drawn[size] = self._generator.random(size)
        return self._drawn[size]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


@mutant(
    "sample-reused",
    "evaluation.gtd_iterations:GTDPlan.run",
    "evaluation/test_private_gtd.py::test_every_step_draws_a_sample_of_its_own",
    "private-gtd-sampled",
)
def _same_sample(run: Any, self: Any, units: Any, source: Any) -> Any:
    """A Poisson sample drawn once and used in every step of GTD."""
    return run(self, units, replace(source, generator=_CachedGenerator(source.generator)))


@mutant(
    "everybody-drawn",
    "evaluation.gtd_iterations:GTDPlan.run",
    "evaluation/test_private_gtd.py::test_poisson_draws_are_fresh_and_have_the_rate",
    "private-gtd-sampled",
    800,
)
def _sample_everybody(run: Any, self: Any, *given: Any) -> Any:
    """Everybody takes part in each step that is paid for as a sample."""
    schedule = replace(self.noisy.schedule, rate=1.0)
    return run(replace(self, noisy=replace(self.noisy, schedule=schedule)), *given)


def _pair_keys(made: Any, which: int) -> Any:
    """Of the two keys that a step of GPOPE folds its number into, one is told half of it."""
    make = getattr(made, "__wrapped__", made)
    return lru_cache(maxsize=16)(lambda *key: _run_with_paired_keys(make(*key), which))


def _run_with_paired_keys(compiled: Callable[..., Any], which: int) -> Callable[..., Any]:
    import jax

    def run(*given: Any) -> Any:
        fold, calls = jax.random.fold_in, [0]

        def fold_in_half(key: Any, number: Any) -> Any:
            calls[0] += 1
            return fold(key, number // 2 if calls[0] % 2 == which else number)

        with patch.object(jax.random, "fold_in", fold_in_half):
            return compiled(*given)

    return run


@mutant(
    "gpope-draw",
    "evaluation.gpope:_program",
    "evaluation/test_gpope.py::test_it_is_algorithm_1_step_by_step",
    "gpope-sampled",
    makes=True,
)
def _pair_draws(made: Any) -> Any:
    """GPOPE draws whom it looks at once for two steps."""
    return _pair_keys(made, 1)


@mutant(
    "gpope-noise",
    "evaluation.gpope:_program",
    "evaluation/test_gpope.py::test_it_is_algorithm_1_step_by_step",
    "gpope",
    FEW_RUNS,
    makes=True,
)
def _pair_noise(made: Any) -> Any:
    """GPOPE draws its noise once for two steps."""
    return _pair_keys(made, 0)
