"""The catalogue of mutants: what each exchanges, what that breaks, and who must notice.

How to add one: write a `Change` (from the shipped function to the faulty one), name the place, the
unit tests that must fail (`python -m tests.mutation NAME` runs them) and the audit targets whose
promise the fault breaks (`privrl audit TARGET --mutants`). A target belongs in the list if the
mutant breaks what the target *promises*, not if it merely changes what comes out.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np

from privrl.audit.mutations import MUTANTS, Change, Mutant, register
from privrl.privacy.promise import Relation
from privrl.privacy.session import SECRET

__all__ = ["LESS", "MUTANTS"]

LESS = 0.8
"""Noise of this share of what it should be is what audits must notice."""

_STREAMS = (
    *("running-sums-tree", "running-sums-refined-tree", "running-sums-toeplitz"),
    *("running-sums-banded", "running-sums-optimal"),
)
_SUMS = ("gaussian", "laplace", "grid-gaussian", "grid-laplace")
_VALUES = ("private-value", "private-value-users", "private-lstd")
_GTD = ("private-gtd", "private-gtd-one-pass", "private-gtd-primal-dual")
_STRAIGHT = ("actor-critic", "actor-critic-correlated")
_UPDATED = (
    *("functional-q-weights", "functional-q-updates", "functional-q-clipped", "logged-q"),
    "prospect-q-updates",
)
_WIRE = ("pgc-privunit", "pgc-sign", "pgc-laplace")
_BROKEN = tuple(f"{name}-broken" for name in _WIRE)
# So few runs show what is wrong by far.
_FEW = 400


# --- noise ----------------------------------------------------------------------------------------


def _less(factor: float) -> Change:
    """A scale read off the wrong line: every draw is `factor` times what it should be."""

    def change(draw: Any) -> Any:
        def less(self: Any, scale: Any, shape: Any) -> Any:
            return draw(self, type(scale)(factor * scale), shape)

        return less

    return change


def _less_compiled(normal: Any) -> Any:
    return lambda key, shape: LESS * normal(key, shape)


def _again(normal: Any) -> Any:
    """A generator seeded anew for each release: every other draw of a shape is the one before."""
    drawn: dict[tuple[int, ...], Any] = {}

    def every_other(self: Any, std: float, shape: tuple[int, ...]) -> Any:
        if shape in drawn:
            return drawn.pop(shape) * std
        drawn[shape] = normal(self, 1.0, shape)
        return drawn[shape] * std

    return every_other


def _narrower(draw: Any) -> Any:
    return lambda generator, width, size: draw(generator, max(1, int(LESS * width)), size)


def _grid_noise(noise: Any) -> Any:
    def less(self: Any, source: Any, shape: Any) -> Any:
        return noise(replace(self, width=max(1, int(LESS * self.width))), source, shape)

    return less


def _grid_width(factor: float) -> Change:
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


register(
    Mutant(
        "noise-numpy",
        "Gaussian noise x 0.8, in NumPy",
        (("privacy.noise:Source.normal", _less(LESS)),),
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
                *_GTD,
                "dplsw",
                "dplsl",
            ),
            *("functional-q", "functional-q-rewards", "functional-q-evaluations", "prospect-q"),
        ),
    ),
    Mutant(
        "noise-jax",
        "Gaussian noise x 0.8, compiled",
        (("privacy.noise:jax_normal", _less_compiled),),
        ("tests/control/test_noised_q.py::test_the_noise_has_the_size_that_is_paid_for",),
        (
            *("functional-compiled", "running-sums-compiled", "gpope", *_STRAIGHT, *_UPDATED),
            *("actor-critic-curve", "prospect-actor-critic", "actor-critic-first-batch"),
            *("actor-critic-warm-start", "actor-critic-resumed"),
        ),
    ),
    Mutant(
        "noise-laplace",
        "Laplace noise x 0.8",
        (("privacy.noise:Source.laplace", _less(LESS)),),
        (
            "tests/privacy/test_mechanisms.py::"
            "test_laplace_noise_has_the_promised_law_and_ten_percent_off_is_seen",
        ),
        ("laplace", "laplace-report"),
    ),
    Mutant(
        "noise-discrete-gaussian",
        "the sampler of discrete Gaussian noise, x 0.8",
        (("privacy.exact:discrete_gaussian", _narrower),),
        ("tests/privacy/test_exact.py::test_discrete_gaussian",),
        ("grid-gaussian",),
    ),
    Mutant(
        "noise-discrete-laplace",
        "the sampler of discrete Laplace noise, x 0.8",
        (("privacy.exact:discrete_laplace", _narrower),),
        ("tests/privacy/test_exact.py::test_discrete_laplace",),
        ("grid-laplace", "grid-laplace-report", "pgc-laplace"),
    ),
    Mutant(
        "noise-grid",
        "noise of sums on a grid x 0.8",
        (("privacy.mechanisms.on_grid:GridGaussianMechanism._noise", _grid_noise),),
        (
            "tests/privacy/test_mechanisms.py::"
            "test_noise_on_a_grid_has_the_size_that_its_event_says",
        ),
        ("grid-gaussian",),
    ),
    Mutant(
        "noise-grid-value",
        "noise of a private value on a grid x 0.8",
        (("evaluation.private_value:_mechanism", _grid_width(LESS)),),
        ("tests/evaluation/test_private_value.py::test_noise_on_a_grid_is_that_of_its_event",),
    ),
    Mutant(
        "noise-grid-value-third",
        "noise of a private value on a grid x 0.3, which an audit of few fits can see",
        (("evaluation.private_value:_mechanism", _grid_width(0.3)),),
        ("tests/evaluation/test_private_value.py::test_noise_on_a_grid_is_that_of_its_event",),
        ("private-value-grid",),
    ),
    Mutant(
        "noise-reused",
        "Gaussian noise used twice, in NumPy",
        (("privacy.noise:Source.normal", _again),),
        (
            "tests/privacy/test_mechanisms.py::"
            "test_noise_is_fresh_and_independent_across_coordinates_and_releases",
        ),
        ("gaussian-twice", "private-gtd"),
        _FEW,
    ),
)


# --- clipping -------------------------------------------------------------------------------------


def _unclipped(shipped: Any) -> Any:
    return lambda rows, bound: rows * 1.0


def _plain_clip(order: int) -> Change:
    """Clipping by a factor min(1, bound / norm), as in many a notebook: NaN goes through."""

    def change(shipped: Any) -> Any:
        def clipped(rows: Any, bound: float) -> Any:
            with np.errstate(invalid="ignore"):
                norms = np.linalg.norm(rows, order, axis=-1, keepdims=True)
                return rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300))

        return clipped

    return change


def _l2_for_l1(l1: Any) -> Any:
    from privrl.privacy.mechanisms import clip

    l2 = clip.l2
    return lambda rows, bound: l2(rows, bound)


def _by_coordinate(l2: Any) -> Any:
    return lambda rows, bound: np.clip(np.where(np.isfinite(rows), rows, 0.0), -bound, bound)


def _kept(shrinking: Any) -> Any:
    return lambda squares, bound, entries: np.ones(np.shape(squares))


def _nan_kept(shrinking: Any) -> Any:
    """The last line of `shrinking` forgotten: what is not finite keeps its factor."""

    def kept(squares: Any, bound: float, entries: int) -> Any:
        with np.errstate(all="ignore"):
            norms = np.sqrt(squares)
            return np.where(norms > bound, bound / norms, 1.0)

    return kept


def _by_row(rows: Any) -> Any:
    """Each of a person's transitions clipped on its own."""

    def each(self: Any, parameters: Any, target: Any, part: Any) -> Any:
        import jax

        from privrl.privacy.mechanisms import clip

        people = part.size.shape[0]
        count = part.action.shape[0]
        lone = part._replace(
            person=jax.numpy.where(part.person < people, jax.numpy.arange(count), count),
            size=jax.numpy.zeros((count, 0)),
        )
        alone = rows(self, parameters, target, lone)
        return jax.ops.segment_sum(clip.l2(alone, self.clip), part.person, people)

    return each


def _apart(row: Any) -> Any:
    """Actor and critic each clipped to the whole bound."""

    def clipped(
        self: Any, actor: Any, critic: Any, settings: Any, episode: Any, worth: Any = None
    ) -> Any:
        import jax.numpy as jnp

        from privrl.privacy.mechanisms import clip

        if self.outlook is not None or self.curve_weight:
            return row(self, actor, critic, settings, episode, worth)
        own, judged = self.increment(actor, critic, settings, episode, worth)
        judged = settings["critic_weight"] * judged
        both = [clip.l2(part / settings["clip"], 1.0) for part in (own, judged)]
        return jnp.concatenate(both)

    return clipped


def _without_b(factors: Any) -> Any:
    """Rewards left out of the norm that a person's statistics are clipped by."""
    return lambda blocks, bound: factors(blocks[:-1], bound)


def _units_without_b(factors: Any) -> Any:
    return lambda units, a, bound: factors(replace(units, b=np.zeros_like(units.b)), a, bound)


def _uncapped(found: Any) -> Any:
    """Products of ratios count however large they are."""

    def weights(self: Any, data: Any, policy: Any) -> Any:
        most = 1e12
        w, y = found(replace(self, weight_cap=most), data, policy)
        return w * (most / self.weight_cap), y

    return weights


def _nobody_grouped(index: Any) -> Any:
    return property(lambda self: np.arange(self.num_trajectories))


def _nobody_counted(count: Any) -> Any:
    return property(lambda self: self.num_trajectories)


def _unclamped(sums: Any) -> Any:
    def raw(self: Any, scores: Any) -> Any:
        share = (np.asarray(scores, np.float64) - self.low) / (self.high - self.low)
        levels = sums.__globals__["LEVELS"]
        return np.rint(np.nan_to_num(share) * levels).astype(np.int64).sum(axis=0)

    return raw


register(
    Mutant(
        "clip-forgotten",
        "contributions count at whatever size they come",
        (
            ("privacy.mechanisms.clip:l1", _unclipped),
            ("privacy.mechanisms.clip:l2", _unclipped),
        ),
        ("tests/privacy/test_clip.py::test_numpy",),
        (
            *(*_SUMS, "gradient-descent", "gradient-descent-canaries", *_STREAMS),
            *("laplace-report", "grid-laplace-report", *_STRAIGHT, "prospect-actor-critic"),
            *("actor-critic-warm-start", "actor-critic-resumed"),
            *("functional-q-clipped", "logged-q", "prospect-q-updates", "gpope"),
        ),
        _FEW,
    ),
    Mutant(
        "clip-norm",
        "clipped by the wrong norm: L2 for L1, and each coordinate for L2",
        (
            ("privacy.mechanisms.clip:l1", _l2_for_l1),
            ("privacy.mechanisms.clip:l2", _by_coordinate),
        ),
        ("tests/privacy/test_clip.py::test_numpy",),
        (*_SUMS, "laplace-report"),
        40_000,
    ),
    Mutant(
        "clip-nan",
        "clipping by min(1, bound / norm), which NaN goes through",
        (
            ("privacy.mechanisms.clip:l1", _plain_clip(1)),
            ("privacy.mechanisms.clip:l2", _plain_clip(2)),
        ),
        ("tests/privacy/test_clip.py::test_numpy",),
        ("gaussian-not-a-number", "grid-gaussian-not-a-number"),
        _FEW,
    ),
    Mutant(
        "shrink-forgotten",
        "sums of an estimator's rows that nobody scaled to the bound",
        (("evaluation.sums:shrinking", _kept),),
        ("tests/evaluation/test_sums.py::test_blocks_are_clipped_jointly_dense_or_sparse",),
        ("private-lstd", *_GTD),
        _FEW,
    ),
    Mutant(
        "shrink-nan",
        "a row that is not finite keeps its factor",
        (("evaluation.sums:shrinking", _nan_kept),),
        ("tests/evaluation/test_private_gtd.py::test_rows_left_out_or_not_finite_add_nothing",),
        ("private-gtd-not-a-number",),
        _FEW,
    ),
    Mutant(
        "clip-per-row",
        "each of a person's transitions clipped, and not their sum",
        (("control.update_rules:People.rows", _by_row),),
        ("tests/control/test_logged_q.py::test_a_person_is_clipped_with_all_their_trajectories",),
        ("logged-q",),
        _FEW,
    ),
    Mutant(
        "clip-apart",
        "actor and critic clipped apart",
        (("control.increments:Rows.row", _apart),),
        ("tests/control/test_actor_critic.py::test_no_episode_contributes_more_than_the_bound",),
        ("actor-critic-both",),
    ),
    Mutant(
        "lstd-b-outside",
        "LSTD's b outside of the norm",
        (
            ("evaluation.private_lstd:joint_factors", _without_b),
            ("evaluation.private_lstd:clip_factors", _units_without_b),
        ),
        (
            "tests/evaluation/test_private_lstd.py::"
            "test_exchanging_a_person_moves_the_release_by_at_most_two_bounds",
        ),
        ("private-lstd",),
        _FEW,
    ),
    Mutant(
        "weight-cap",
        "products of ratios without their cap",
        (("evaluation.private_value:PrivateValue._weights_and_returns", _uncapped),),
        (
            "tests/evaluation/test_private_value.py::"
            "test_whatever_the_data_holds_a_person_stays_within_the_bound",
        ),
        ("private-value",),
        _FEW,
    ),
    Mutant(
        "people-not-grouped",
        "each trajectory clipped on its own, for a promise to people",
        (
            ("data.trajectories:Trajectories.unit_index", _nobody_grouped),
            ("data.trajectories:Trajectories.num_units", _nobody_counted),
        ),
        ("tests/evaluation/test_private_value.py::test_a_person_counts_once",),
        ("private-value-users",),
        _FEW,
    ),
    Mutant(
        "scores-not-clamped",
        "scores of a private choice that nobody clamps",
        (("evaluation.selection:PermuteAndFlip.sums", _unclamped),),
        ("tests/evaluation/test_selection.py::test_a_unit_moves_each_sum_by_at_most_one",),
        ("private-choice",),
        _FEW,
    ),
)


# --- how much is paid for -------------------------------------------------------------------------


def _no_factor_two(movement: Any) -> Any:
    return lambda bound, relation: bound


def _no_local_factor(movement: Any) -> Any:
    def once(bound: float, relation: Any) -> float:
        return bound if relation is Relation.LOCAL else float(movement(bound, relation))

    return once


def _half_the_scale(made: Any) -> Any:
    """The scale of a report from radius / epsilon, and the promise as it was."""

    def halved(self: Any) -> None:
        made(self)
        plan = self.mechanism
        less = replace(plan, scale=plan.scale / 2) if hasattr(plan, "scale") else plan
        if less is plan:
            less = replace(plan, width=-(-plan.width // 2))
        object.__setattr__(self, "mechanism", less)

    return halved


def _one_less(sensitivity: Any) -> Any:
    def fewer(strategy: Any, horizon: int, band: Any, participations: int, apart: int) -> float:
        return float(sensitivity(strategy, horizon, band, max(1, participations - 1), apart))

    return fewer


def _one_step(sensitivity: Any) -> Any:
    return property(lambda self: 1.0)


def _smaller_bound(bound: Any) -> Any:
    """As if one reward of a batch could change, and not all of them."""
    return property(lambda self: self.radius / 30.0)


def _half_clip(bound: Any) -> Any:
    return property(lambda self: self.clip)


def _twice_as_likely(coin: Any) -> Any:
    return lambda generator, x, size: coin(generator, 2 * x, size)


def _steeper(smooth: Any) -> Any:
    """e^(-2 k beta) where e^(-k beta) belongs: half as smooth."""
    return lambda local, beta, most: smooth(local, 2.0 * beta, most)


def _local_only(smooth: Any) -> Any:
    return lambda local, beta, most: float(local(np.zeros(1, dtype=np.int64))[0])


def _disjoint_steps(event: Any) -> Any:
    """Steps that everybody takes part in, paid for once."""

    return lambda self, one: event(replace(self, times=1), one)


def _twice_as_much(event: Any) -> Any:
    """A plan that is paid for as if it had twice the noise."""

    def twice(self: Any) -> Any:
        return event.fget(replace(self, noise_multiplier=2.0 * self.noise_multiplier))

    return property(twice)


def _by_order(places: Any) -> Any:
    """Known to whoever knows the order: the last person is in the last step."""
    return lambda ids, key: np.arange(len(ids)) / len(ids)


def _one_update(made: Any) -> Any:
    def once(budget: Any, updates: int, relation: Any) -> float:
        return float(made(budget, 1, relation))

    return once


def _whole_epsilon(shares: Any) -> Any:
    return lambda epsilon, submissions, score_share: shares(epsilon, 1, score_share)


def _larger_epsilon(shares: Any) -> Any:
    def larger(epsilon: float, submissions: int, score_share: float) -> tuple[float, float]:
        report, score = shares(epsilon, submissions, score_share)
        return report / LESS, score / LESS

    return larger


register(
    Mutant(
        "factor-two",
        "a replacement paid for like a removal",
        (("privacy.accounting.worst_cases:movement", _no_factor_two),),
        ("tests/privacy/test_accounting.py::test_gaussian",),
        (*_SUMS, "gradient-descent", *_STREAMS, "functional", *_VALUES, *_GTD, "logged-q"),
        _FEW * 10,
    ),
    Mutant(
        "factor-two-local",
        "reports of agents paid for as if they moved by their norm",
        (("privacy.accounting.worst_cases:movement", _no_local_factor),),
        ("tests/privacy/test_report_laplace.py::test_a_report_costs_epsilon",),
        ("laplace-report", "grid-laplace-report"),
        16_000,
    ),
    Mutant(
        "factor-two-scale",
        "Laplace reports with a scale of radius / epsilon",
        (("privacy.mechanisms.report_laplace:GridLaplaceReport.__post_init__", _half_the_scale),),
        ("tests/privacy/test_report_laplace.py::test_a_report_costs_epsilon",),
        ("pgc-laplace",),
        4000,
    ),
    Mutant(
        "participations",
        "running sums paid for with a participation less",
        (("privacy.mechanisms.correlated_sensitivity:sensitivity", _one_less),),
        ("tests/privacy/test_correlated.py::test_several_participations_over_all_patterns",),
        ("running-sums-toeplitz", "running-sums-banded", "running-sums-independent"),
    ),
    Mutant(
        "one-step",
        "running sums paid for as if one of them moved",
        (("privacy.mechanisms.correlated:CorrelatedMechanism.sensitivity", _one_step),),
        ("tests/privacy/test_correlated.py::test_one_participation_costs_the_largest_column",),
        _STREAMS,
    ),
    Mutant(
        "batch-divided",
        "updates paid for as if one reward of a batch could change",
        (
            ("control.update_rules:Weights.bound", _smaller_bound),
            ("control.update_rules:Updates.bound", _smaller_bound),
        ),
        (
            "tests/control/test_noised_q.py::"
            "test_no_reward_function_within_the_radius_moves_an_update_further",
        ),
        ("functional-q-weights", "functional-q-updates"),
        _FEW,
    ),
    Mutant(
        "prospect-half",
        "updates towards CPT values paid for as if they moved by the clip bound once",
        (("control.update_rules:ProspectUpdates.bound", _half_clip),),
        ("tests/control/test_prospect_q.py::test_no_two_reward_functions_move_an_update_further",),
        ("prospect-q-updates",),
    ),
    Mutant(
        "steps-by-order",
        "the step of a single pass decided by the order of the data",
        (("evaluation.allotment:places", _by_order),),
        (
            "tests/evaluation/test_allotment.py::"
            "test_a_replaced_person_moves_nobody_however_the_data_is_read",
        ),
        ("private-gtd-secret-steps",),
    ),
    Mutant(
        "plan-half-noise",
        "half the noise that a plan is paid for",
        (("privacy.plan:NoisyPlan.event", _twice_as_much),),
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
        "gtd-steps",
        "all steps of a private GTD paid for as one",
        (("privacy.plan:PoissonReleases.event", _disjoint_steps),),
        (
            "tests/evaluation/test_private_gtd.py::"
            "test_the_certificate_spends_the_budget_and_verifies",
        ),
        ("private-gtd", "private-gtd-primal-dual"),
    ),
    Mutant(
        "q-steps",
        "noise of Q-updates calibrated for one of them",
        (("control.noised_q:calibrated", _one_update),),
        ("tests/control/test_logged_q.py::test_the_certificate_says_what_was_done",),
    ),
    Mutant(
        "choice-distance",
        "scores that move in opposite directions paid for as if they moved together",
        (("privacy.exact:bernoulli_exp", _twice_as_likely),),
        ("tests/privacy/test_exact.py::test_bernoulli_exp",),
        ("private-choice",),
    ),
    Mutant(
        "smoothing-halved",
        "smooth sensitivity that falls off twice as fast",
        (("privacy.mechanisms.smooth:smooth_bound", _steeper),),
        ("tests/privacy/test_smooth.py::test_the_median_of_every_small_dataset",),
        ("dplsw-smoothing",),
    ),
    Mutant(
        "not-smoothed",
        "noise scaled to the local sensitivity of the data at hand",
        (("privacy.mechanisms.smooth:smooth_bound", _local_only),),
        ("tests/privacy/test_smooth.py::test_the_median_of_every_small_dataset",),
        ("dplsw-visits",),
        800,
    ),
    Mutant(
        "epsilon-not-split",
        "each payload spends what all of them may",
        (("control.pgc.privatiser:shares", _whole_epsilon),),
        ("tests/control/pgc/test_privatiser.py::test_shares_never_add_up_to_more_than_epsilon",),
        tuple(f"{name}-twice" for name in _WIRE),
    ),
    Mutant(
        "wire-noise",
        "payloads of an epsilon 1 / 0.8 times as large",
        (("control.pgc.privatiser:shares", _larger_epsilon),),
        ("tests/control/pgc/test_privatiser.py::test_shares_never_add_up_to_more_than_epsilon",),
        (*_WIRE, "pgc-score"),
    ),
)


# --- randomness -----------------------------------------------------------------------------------


class _SameDraws:
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
        return run(self, units, replace(source, generator=_SameDraws(source.generator)))

    return again


def _everybody(run: Any) -> Any:
    def all_of_them(self: Any, *given: Any) -> Any:
        schedule = replace(self.noisy.schedule, rate=1.0)
        return run(replace(self, noisy=replace(self.noisy, schedule=schedule)), *given)

    return all_of_them


def _folded(which: int) -> Change:
    """Of the two keys that a step of GPOPE folds its number into, one is told half of it."""

    def change(made: Any) -> Any:
        make = getattr(made, "__wrapped__", made)
        return lru_cache(maxsize=16)(lambda *key: _in_pairs(make(*key), which))

    return change


def _in_pairs(compiled: Any, which: int) -> Any:
    import jax

    def run(*given: Any) -> Any:
        fold, calls = jax.random.fold_in, [0]

        def halved(key: Any, number: Any) -> Any:
            calls[0] += 1
            return fold(key, number // 2 if calls[0] % 2 == which else number)

        with patch.object(jax.random, "fold_in", halved):
            return compiled(*given)

    return run


def _batches_in_pairs(noised: Any) -> Any:
    def pairs(self: Any, state: Any, exact_sum: Any) -> Any:
        return noised(self, state._replace(batch=state.batch // 2), exact_sum)

    return pairs


def _first_batch(noised: Any) -> Any:
    def first(self: Any, state: Any, exact_sum: Any) -> Any:
        return noised(self, state._replace(batch=0 * state.batch), exact_sum)

    return first


def _updates_in_pairs(noised: Any) -> Any:
    """Noise by the number of the pair; what it is added to as it should be."""

    def pairs(plan: Any, data: Any, state: Any, sigma: Any) -> Any:
        clean = noised(plan, data, state, 0.0)
        pair = state._replace(done=state.done // 2)
        return clean + noised(plan, data, pair, sigma) - noised(plan, data, pair, 0.0)

    return pairs


def _bent(fair: Any) -> Any:
    """A coin that tells the truth more often than it may: half of its tails become heads."""

    def bent(generator: Any, probability: Any, size: int) -> Any:
        return fair(generator, probability, size) | (generator.random(size) < 0.5)

    return bent


def _odds(made: Any) -> Any:
    """A report is in the cap with odds a quarter too large."""

    def more(self: Any) -> None:
        made(self)
        odds = self.inside / (1 - self.inside) * Fraction(5, 4)
        object.__setattr__(self, "inside", odds / (1 + odds))

    return more


def _seed_again(payloads: Any) -> Any:
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


def _steps_again(normal: Any) -> Any:
    """Independent noise of a stream drawn once for two steps."""
    return lambda key, step, dimension: normal(key, step // 2, dimension)


register(
    Mutant(
        "sample-reused",
        "a Poisson sample drawn once and used in every step of GTD",
        (("evaluation.gtd_iterations:Plan.run", _same_sample),),
        ("tests/evaluation/test_private_gtd.py::test_every_step_draws_a_sample_of_its_own",),
        ("private-gtd-sampled",),
    ),
    Mutant(
        "everybody-drawn",
        "everybody takes part in each step that is paid for as a sample",
        (("evaluation.gtd_iterations:Plan.run", _everybody),),
        ("tests/evaluation/test_private_gtd.py::test_poisson_draws_are_fresh_and_have_the_rate",),
        ("private-gtd-sampled",),
        800,
    ),
    Mutant(
        "gpope-draw",
        "GPOPE draws whom it looks at once for two steps",
        (("evaluation.gpope:_program", _folded(1)),),
        ("tests/evaluation/test_gpope.py::test_it_is_algorithm_1_step_by_step",),
        ("gpope-sampled",),
    ),
    Mutant(
        "gpope-noise",
        "GPOPE draws its noise once for two steps",
        (("evaluation.gpope:_program", _folded(0)),),
        ("tests/evaluation/test_gpope.py::test_it_is_algorithm_1_step_by_step",),
        ("gpope",),
        _FEW,
    ),
    Mutant(
        "actor-critic-noise",
        "noise of two batches in a row drawn once",
        (("control.certified:Plan.noised", _batches_in_pairs),),
        ("tests/control/test_actor_critic.py::test_the_noise_has_the_size_that_is_paid_for",),
        ("actor-critic-first-batch",),
    ),
    Mutant(
        "actor-critic-noise-once",
        "one draw of noise for all batches",
        (("control.certified:Plan.noised", _first_batch),),
        ("tests/control/test_actor_critic.py::test_the_noise_has_the_size_that_is_paid_for",),
        ("actor-critic-first-batch", "actor-critic-curve"),
        _FEW,
    ),
    Mutant(
        "q-noise",
        "noise of two Q-updates in a row drawn once",
        (("control.noised_q:noised", _updates_in_pairs),),
        ("tests/control/test_noised_q.py::test_every_update_has_noise_of_its_own",),
        ("logged-q",),
    ),
    Mutant(
        "stream-noise",
        "compiled noise of running sums drawn once for two steps",
        (("privacy.mechanisms.correlated_jax:_normal", _steps_again),),
        (
            "tests/privacy/test_correlated.py::"
            "test_all_compiled_noise_at_once_equals_it_one_by_one_and_has_the_law",
        ),
        ("running-sums-compiled",),
        4000,
    ),
    Mutant(
        "coin-bent",
        "a coin that tells the truth more often than it may",
        (("privacy.exact:bernoulli", _bent),),
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
        (("privacy.mechanisms.unit_vector:PrivUnit.__post_init__", _odds),),
        ("tests/privacy/test_unit_vector.py::test_densities_are_at_most_e_to_the_epsilon_apart",),
        ("unit-vector", "unit-vector-compiled", "pgc-privunit"),
    ),
    Mutant(
        "seed-again",
        "an agent's payloads all drawn from one seed",
        (("control.pgc.privatiser:Privatiser.payloads", _seed_again),),
        ("tests/control/pgc/test_privatiser.py::test_payloads_are_drawn_afresh",),
        tuple(f"{name}-turning" for name in _WIRE),
        800,
    ),
)


# --- what else is given away ----------------------------------------------------------------------


def _refitted(changed: Callable[..., Any]) -> Change:
    """`fit` replaced by `changed(fit, estimator, data, ...)`."""

    def change(fit: Any) -> Any:
        def fitted(self: Any, *given: Any, **named: Any) -> Any:
            return changed(fit, self, *given, **named)

        return fitted

    return change


def _shown(fit: Any, judge: Any, *given: Any, **named: Any) -> Any:
    """What is for public data only, shown of any data."""
    session = replace(named.get("session", SECRET), public=True)
    return fit(judge, *given, **{**named, "session": session})


def _measured(fit: Any, judge: Any, data: Any, *given: Any, **named: Any) -> Any:
    """The range of rewards read off the data."""
    found = float(np.min(data.rewards)), float(np.max(data.rewards))
    return fit(replace(judge, reward_range=found), data, *given, **named)


def _critic_without_noise(noised: Any) -> Any:
    """The actor alone is noised, since it alone is released; the critic is carried as it is."""

    def half(self: Any, state: Any, exact_sum: Any) -> Any:
        whole, stream = noised(self, state, exact_sum)
        p, q = self.rows.sizes
        return whole.at[p : p + q].set(exact_sum[p : p + q]), stream

    return half


def _counts_without_noise(noised: Any) -> Any:
    """How returns are distributed is kept as it is, since it only says what returns are worth."""

    def part(self: Any, state: Any, exact_sum: Any) -> Any:
        whole, stream = noised(self, state, exact_sum)
        own = sum(self.rows.sizes)
        return whole.at[own:].set(exact_sum[own:]), stream

    return part


def _normalised(exactly: Any) -> Any:
    """What people are paid is brought to mean 0 and variance 1 over each batch."""

    def standardised(self: Any, state: Any, part: Any, first: Any) -> Any:
        import jax.numpy as jnp

        paid, valid = part.transitions.reward, part.valid
        mean = jnp.mean(paid, where=valid)
        spread = jnp.sqrt(jnp.mean((paid - mean) ** 2, where=valid)) + 1e-9
        steps = part.transitions._replace(reward=(paid - mean) / spread)
        return exactly(self, state, part._replace(transitions=steps), first)

    return standardised


def _worth_of_the_batch(exactly: Any) -> Any:
    """Returns are valued by how they are distributed in the batch itself, not in those before."""

    def ranked(self: Any, state: Any, part: Any, first: Any) -> Any:
        import jax

        outlook = self.rows.outlook
        if outlook is None:
            return exactly(self, state, part, first)
        counts = jax.vmap(outlook.counts, (0, None))(part, state.settings["gamma"])
        own = jax.numpy.mean(counts, axis=0)
        return exactly(self, state._replace(returns=own), part, first)

    return ranked


def _shown_only(advance: Any) -> Any:
    """Noise on what is shown of the parameters, while they go on in secret."""

    def shown(plan: Any, data: Any, state: Any, sigma: Any, updates: Any) -> Any:
        from privrl.privacy import noise

        after = advance(plan, data, state, 0.0, updates)
        z = noise.jax_normal(state.noise, after.parameters.shape)
        size = sigma * plan.rule.bound * plan.step / plan.divisor
        return after._replace(parameters=after.parameters + size * z)

    shown.lower = advance.lower  # type: ignore[attr-defined]  # asked how much memory it takes
    return shown


_REWARDS_SEEN: list[float] = []


def _rewards_kept(walk: Any) -> Any:
    def kept(*given: Any, **named: Any) -> Any:
        found = walk(*given, **named)
        if found.reward is not None:
            _REWARDS_SEEN.append(float(np.mean(found.reward)))
        return found

    return kept


def _rewards_told(described: Any) -> Any:
    """What the walk was paid goes into the settings of the result, for the log."""

    def told(self: Any, env: Any) -> dict[str, Any]:
        mean = _REWARDS_SEEN[-1] if _REWARDS_SEEN else 0.0
        return {**described(self, env), "mean reward": mean}

    return told


_SUCCESSORS_SEEN: list[float] = []


def _successors_kept(draw: Any) -> Any:
    def reading(*given: Any, **named: Any) -> Any:
        found = draw(*given, **{**named, "read": True})
        if found.paid is not None:
            _SUCCESSORS_SEEN.append(float(np.mean(found.paid)))
        return found

    return reading


def _successors_read(rewards: Any) -> Any:
    """What the drawn successors paid is at hand, so why not plan on that?"""
    return lambda self, walked, model: np.full(walked.ends.shape, _SUCCESSORS_SEEN[-1])


def _with_reached(gradients: Any, more: tuple[Any, ...]) -> Any:
    return more[0] if more and more[0] is not None else [False] * len(gradients)


def _nan_sent(payloads: Any) -> Any:
    """A gradient that is not finite goes out as it is."""

    def through(self: Any, gradients: Any, source: Any, *more: Any) -> list[bytes]:
        sent = payloads(self, gradients, source, *more)
        raw = [np.asarray(one, "<f8").tobytes().ljust(self.size)[: self.size] for one in gradients]
        whole = [bool(np.all(np.isfinite(one))) for one in gradients]
        return [a if good else b for a, b, good in zip(sent, raw, whole, strict=True)]

    return through


def _silence(payloads: Any) -> Any:
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


def _score_as_it_is(payloads: Any) -> Any:
    """A yes or no is so little that nobody randomises it."""

    def plain(self: Any, gradients: Any, source: Any, *more: Any) -> list[bytes]:
        sent = payloads(self, gradients, source, *more)
        if not self.score_epsilon:
            return list(sent)
        reached = _with_reached(gradients, more)
        return [one[:-1] + bytes([bool(yes)]) for one, yes in zip(sent, reached, strict=True)]

    return plain


register(
    Mutant(
        "diagnostics-shown",
        "what is for public data only, shown of any data",
        (
            ("evaluation.private_value:PrivateValue.fit", _refitted(_shown)),
            ("evaluation.private_lstd:PrivateLSTD.fit", _refitted(_shown)),
            ("evaluation.private_gtd:PrivateGTD.fit", _refitted(_shown)),
            ("evaluation.dplsw:DPLSW.fit", _refitted(_shown)),
        ),
        (
            "tests/evaluation/test_private_gtd.py::"
            "test_the_certificate_spends_the_budget_and_verifies",
        ),
        ("private-value", "private-lstd", "private-gtd", "dplsw"),
        _FEW,
    ),
    Mutant(
        "range-read",
        "the range of rewards read off the data",
        (
            ("evaluation.private_lstd:PrivateLSTD.fit", _refitted(_measured)),
            ("evaluation.dplsl:DPLSL.fit", _refitted(_measured)),
        ),
        (
            "tests/evaluation/test_private_lstd.py::"
            "test_ranges_and_bounds_are_the_callers_and_not_the_datas",
        ),
        ("private-lstd", "dplsl"),
        _FEW,
    ),
    Mutant(
        "critic-without-noise",
        "a critic that is carried on without noise",
        (("control.certified:Plan.noised", _critic_without_noise),),
        ("tests/control/test_actor_critic.py::test_the_noise_has_the_size_that_is_paid_for",),
        ("actor-critic-hidden-critic", "actor-critic"),
        _FEW,
    ),
    Mutant(
        "counts-without-noise",
        "counts of returns kept without noise",
        (("control.certified:Plan.noised", _counts_without_noise),),
        ("tests/control/test_prospect_actor_critic.py::test_all_that_is_summed_is_noised",),
        ("prospect-actor-critic",),
        _FEW,
    ),
    Mutant(
        "worth-of-the-batch",
        "returns valued by how they are distributed in the batch itself",
        (("control.certified:Plan.exact", _worth_of_the_batch),),
        (
            "tests/control/test_prospect_actor_critic.py::"
            "test_what_a_person_adds_does_not_depend_on_the_others",
        ),
        ("prospect-actor-critic",),
        _FEW,
    ),
    Mutant(
        "advantages-normalised",
        "rewards normalised over a batch",
        (("control.certified:Plan.exact", _normalised),),
        (
            "tests/control/test_prospect_actor_critic.py::"
            "test_what_a_person_adds_does_not_depend_on_the_others",
        ),
        ("actor-critic",),
        _FEW,
    ),
    Mutant(
        "curve-shown",
        "returns as they were, which are for public people only",
        (("control.actor_critic:ActorCritic.learn", _refitted(_shown)),),
        ("tests/control/test_actor_critic.py::test_variants_hide_outputs_and_change_nothing_else",),
        ("actor-critic",),
        _FEW,
    ),
    Mutant(
        "q-shown-only",
        "noise on what is shown of a Q that goes on without",
        (("control.noised_q:advance", _shown_only),),
        ("tests/control/test_noised_q.py::test_two_pieces_equal_the_whole_bit_for_bit",),
        ("functional-q-weights", "logged-q"),
        _FEW,
    ),
    Mutant(
        "rewards-kept",
        "the mean reward of a walk in the settings of the result",
        (
            ("control.walks:walk", _rewards_kept),
            ("control.functional_q:FunctionalQ.described", _rewards_told),
        ),
        ("tests/control/test_functional_q.py::test_settings_of_a_result_say_nothing_of_rewards",),
        ("functional-q", "functional-q-evaluations"),
        _FEW,
    ),
    Mutant(
        "successors-read",
        "plans on rewards of drawn successors that nobody paid for",
        (
            ("control.walks:walk_sampling", _successors_kept),
            ("control.prospect_q:ProspectQ.successor_rewards", _successors_read),
        ),
        (
            "tests/control/test_prospect_q.py::"
            "test_a_plan_comes_from_what_was_released_and_its_noise",
        ),
        ("prospect-q",),
        300,
    ),
    Mutant(
        "nan-sent",
        "a gradient that is not finite goes out as it is",
        (("control.pgc.privatiser:Privatiser.payloads", _nan_sent),),
        ("tests/control/pgc/test_privatiser.py::test_what_is_no_gradient_is_told_like_zeros",),
        _BROKEN,
        800,
    ),
    Mutant(
        "silence",
        "an agent with a gradient of zeros sends nothing",
        (("control.pgc.privatiser:Privatiser.payloads", _silence),),
        ("tests/control/pgc/test_privatiser.py::test_every_gradient_gets_a_payload_that_is_read",),
        _BROKEN,
        800,
    ),
    Mutant(
        "zero-error",
        "an error for a gradient of zeros",
        (("control.pgc.privatiser:Privatiser.payloads", _division_by_zero),),
        ("tests/control/pgc/test_privatiser.py::test_every_gradient_gets_a_payload_that_is_read",),
        _BROKEN,
        800,
    ),
    Mutant(
        "score-told",
        "whether the target was reached, told as it is",
        (("control.pgc.privatiser:Privatiser.payloads", _score_as_it_is),),
        (
            "tests/control/pgc/test_privatiser.py::"
            "test_scores_are_exact_coins_and_ten_percent_off_is_seen",
        ),
        ("pgc-score",),
        800,
    ),
)
