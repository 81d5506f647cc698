"""Faults of estimators: what people contribute to sums, who is drawn, and what is paid for."""

from dataclasses import replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np

from privrl.audit.mutants.common import FEW_RUNS, GTD, NOISE_FACTOR
from privrl.audit.mutations import Change, Mutant


def _narrow_grid_noise(factor: float) -> Change:
    """A plan whose noise is narrower than its event says."""

    def change(made: Any) -> Any:
        def mechanism(budget: Any, grid: bool) -> Any:
            plan = made(budget, grid)
            if not grid:
                return plan
            narrow = type("Narrow", (type(plan),), {"event": plan.event})
            return narrow(int(factor * plan.width), plan.step, plan.bound, plan.dimension)

        return mechanism

    return change


def _no_shrinking(shrinking: Any) -> Any:
    return lambda squares, bound, entries: np.ones(np.shape(squares))


def _keep_nan_rows(shrinking: Any) -> Any:
    """The last line of `clip_scales` forgotten: what is not finite keeps its factor."""

    def naive_factors(squares: Any, bound: float, entries: int) -> Any:
        with np.errstate(all="ignore"):
            norms = np.sqrt(squares)
            return np.where(norms > bound, bound / norms, 1.0)

    return naive_factors


def _without_b(factors: Any) -> Any:
    """Rewards left out of the norm that a person's statistics are clipped by."""
    return lambda blocks, bound: factors(blocks[:-1], bound)


def _units_without_b(factors: Any) -> Any:
    return lambda units, a, bound: factors(replace(units, b=np.zeros_like(units.b)), a, bound)


def _no_weight_cap(found: Any) -> Any:
    """Products of ratios count however large they are."""

    def weights(self: Any, data: Any, policy: Any) -> Any:
        most = 1e12
        w, y = found(replace(self, weight_cap=most), data, policy)
        return w * (most / self.weight_cap), y

    return weights


def _ungroup_users(index: Any) -> Any:
    return property(lambda self: np.arange(self.num_trajectories))


def _count_trajectories(count: Any) -> Any:
    return property(lambda self: self.num_trajectories)


def _no_score_clamp(sums: Any) -> Any:
    def raw(self: Any, scores: Any) -> Any:
        share = (np.asarray(scores, np.float64) - self.low) / (self.high - self.low)
        levels = sums.__globals__["LEVELS"]
        return np.rint(np.nan_to_num(share) * levels).astype(np.int64).sum(axis=0)

    return raw


def _disjoint_steps(event: Any) -> Any:
    """Steps that everybody takes part in, paid for once."""

    return lambda self, one: event(replace(self, times=1), one)


def _steps_by_order(places: Any) -> Any:
    """Known to whoever knows the order: the last person is in the last step."""
    return lambda ids, key: np.arange(len(ids)) / len(ids)


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


def _same_sample(run: Any) -> Any:
    def again(self: Any, units: Any, source: Any) -> Any:
        return run(self, units, replace(source, generator=_CachedGenerator(source.generator)))

    return again


def _sample_everybody(run: Any) -> Any:
    def full_batch(self: Any, *given: Any) -> Any:
        schedule = replace(self.noisy.schedule, rate=1.0)
        return run(replace(self, noisy=replace(self.noisy, schedule=schedule)), *given)

    return full_batch


def _pair_keys(which: int) -> Change:
    """Of the two keys that a step of GPOPE folds its number into, one is told half of it."""

    def change(made: Any) -> Any:
        make = getattr(made, "__wrapped__", made)
        return lru_cache(maxsize=16)(lambda *key: _run_with_paired_keys(make(*key), which))

    return change


def _run_with_paired_keys(compiled: Any, which: int) -> Any:
    import jax

    def run(*given: Any) -> Any:
        fold, calls = jax.random.fold_in, [0]

        def fold_in_half(key: Any, number: Any) -> Any:
            calls[0] += 1
            return fold(key, number // 2 if calls[0] % 2 == which else number)

        with patch.object(jax.random, "fold_in", fold_in_half):
            return compiled(*given)

    return run


MUTANTS = (
    Mutant(
        "noise-grid-value",
        "noise of a private value on a grid x 0.8",
        (("evaluation.private_value:_mechanism", _narrow_grid_noise(NOISE_FACTOR)),),
        ("tests/evaluation/test_private_value.py::test_noise_on_a_grid_is_that_of_its_event",),
    ),
    Mutant(
        "noise-grid-value-third",
        "noise of a private value on a grid x 0.3, which an audit of few fits can see",
        (("evaluation.private_value:_mechanism", _narrow_grid_noise(0.3)),),
        ("tests/evaluation/test_private_value.py::test_noise_on_a_grid_is_that_of_its_event",),
        ("private-value-grid",),
    ),
    Mutant(
        "shrink-forgotten",
        "sums of an estimator's rows that nobody scaled to the bound",
        (("evaluation.sums:clip_scales", _no_shrinking),),
        ("tests/evaluation/test_sums.py::test_blocks_are_clipped_jointly_dense_or_sparse",),
        ("private-lstd", *GTD),
        FEW_RUNS,
    ),
    Mutant(
        "shrink-nan",
        "a row that is not finite keeps its factor",
        (("evaluation.sums:clip_scales", _keep_nan_rows),),
        ("tests/evaluation/test_private_gtd.py::test_rows_left_out_or_not_finite_add_nothing",),
        ("private-gtd-not-a-number",),
        FEW_RUNS,
    ),
    Mutant(
        "lstd-b-outside",
        "LSTD's b outside of the norm",
        (
            ("evaluation.private_lstd:joint_clip_factors", _without_b),
            ("evaluation.private_lstd:clip_factors", _units_without_b),
        ),
        (
            "tests/evaluation/test_private_lstd.py::"
            "test_exchanging_a_person_moves_the_release_by_at_most_two_bounds",
        ),
        ("private-lstd",),
        FEW_RUNS,
    ),
    Mutant(
        "weight-cap",
        "products of ratios without their cap",
        (("evaluation.private_value:PrivateValue._weights_and_returns", _no_weight_cap),),
        (
            "tests/evaluation/test_private_value.py::"
            "test_whatever_the_data_holds_a_person_stays_within_the_bound",
        ),
        ("private-value",),
        FEW_RUNS,
    ),
    Mutant(
        "people-not-grouped",
        "each trajectory clipped on its own, for a promise to people",
        (
            ("data.trajectories:Trajectories.unit_index", _ungroup_users),
            ("data.trajectories:Trajectories.num_units", _count_trajectories),
        ),
        ("tests/evaluation/test_private_value.py::test_a_person_counts_once",),
        ("private-value-users",),
        FEW_RUNS,
    ),
    Mutant(
        "scores-not-clamped",
        "scores of a private choice that nobody clamps",
        (("evaluation.selection:PermuteAndFlip.sums", _no_score_clamp),),
        ("tests/evaluation/test_selection.py::test_a_unit_moves_each_sum_by_at_most_one",),
        ("private-choice",),
        FEW_RUNS,
    ),
    Mutant(
        "steps-by-order",
        "the step of a single pass decided by the order of the data",
        (("evaluation.allotment:keyed_uniforms", _steps_by_order),),
        (
            "tests/evaluation/test_allotment.py::"
            "test_a_replaced_person_moves_nobody_however_the_data_is_read",
        ),
        ("private-gtd-secret-steps",),
    ),
    Mutant(
        "gtd-steps",
        "all steps of a private GTD paid for as one",
        (("privacy.plan:PoissonBatches.event", _disjoint_steps),),
        (
            "tests/evaluation/test_private_gtd.py::"
            "test_the_certificate_spends_the_budget_and_verifies",
        ),
        ("private-gtd", "private-gtd-primal-dual"),
    ),
    Mutant(
        "sample-reused",
        "a Poisson sample drawn once and used in every step of GTD",
        (("evaluation.gtd_iterations:GTDPlan.run", _same_sample),),
        ("tests/evaluation/test_private_gtd.py::test_every_step_draws_a_sample_of_its_own",),
        ("private-gtd-sampled",),
    ),
    Mutant(
        "everybody-drawn",
        "everybody takes part in each step that is paid for as a sample",
        (("evaluation.gtd_iterations:GTDPlan.run", _sample_everybody),),
        ("tests/evaluation/test_private_gtd.py::test_poisson_draws_are_fresh_and_have_the_rate",),
        ("private-gtd-sampled",),
        800,
    ),
    Mutant(
        "gpope-draw",
        "GPOPE draws whom it looks at once for two steps",
        (("evaluation.gpope:_program", _pair_keys(1)),),
        ("tests/evaluation/test_gpope.py::test_it_is_algorithm_1_step_by_step",),
        ("gpope-sampled",),
    ),
    Mutant(
        "gpope-noise",
        "GPOPE draws its noise once for two steps",
        (("evaluation.gpope:_program", _pair_keys(0)),),
        ("tests/evaluation/test_gpope.py::test_it_is_algorithm_1_step_by_step",),
        ("gpope",),
        FEW_RUNS,
    ),
)
