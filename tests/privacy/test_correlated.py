"""Correlated noise: the matrices on paper, their sensitivity, and the noise that streams."""

import io
import itertools
import json
import math
import os
import stat
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from privrl.privacy import (
    Budget,
    Gaussian,
    InputError,
    NoiseOrigin,
    Relation,
    Repeated,
    epsilon,
    sensitivity,
)
from privrl.privacy.mechanisms import GaussianMechanism, correlated
from privrl.privacy.mechanisms import correlated_factorisations as factorisations
from privrl.privacy.mechanisms.correlated import CorrelatedMechanism, Strategy
from privrl.privacy.mechanisms.correlated_sensitivity import _sum_over_slots
from privrl.privacy.noise import Source, reproducible, secure
from tests.statistics import FALSE_ALARM, follows

Array = NDArray[Any]

# Every strategy, the banded one with several bands.
KINDS: list[tuple[Strategy, int | None]] = [
    (Strategy.INDEPENDENT, None),
    (Strategy.BINARY_TREE, None),
    (Strategy.REFINED_TREE, None),
    (Strategy.SQUARE_ROOT_TOEPLITZ, None),
    (Strategy.BANDED, 1),
    (Strategy.BANDED, 3),
    (Strategy.BANDED, 90),
    (Strategy.OPTIMAL, None),
]


def plans(
    horizon: int, std: float = 1.0, bound: float = 1.0, **more: int
) -> list[CorrelatedMechanism]:
    """Of every kind, the optimal one not longer than it may be."""
    short = min(horizon, factorisations.LONGEST_OPTIMAL)
    steps = [short if strategy is Strategy.OPTIMAL else horizon for strategy, _ in KINDS]
    return [
        CorrelatedMechanism(std, bound, size, strategy, band and min(band, size), **more)
        for size, (strategy, band) in zip(steps, KINDS, strict=True)
    ]


def ones(horizon: int) -> Array:
    return np.tril(np.ones((horizon, horizon)))


def toeplitz(column: Array) -> Array:
    return np.array(
        [[column[i - j] if i >= j else 0.0 for j in range(len(column))] for i in range(len(column))]
    )


def intervals(horizon: int) -> list[tuple[int, int]]:
    """All dyadic intervals within the horizon, as (start, end), by when they end."""
    found = [
        (start, start + size)
        for size in (1 << level for level in range(horizon.bit_length()))
        for start in range(0, horizon - size + 1, size)
    ]
    return sorted(found, key=lambda interval: interval[1])


def sums_over(chosen: list[tuple[int, int]], horizon: int) -> Array:
    matrix = np.zeros((len(chosen), horizon))
    for row, (start, end) in zip(matrix, chosen, strict=True):
        row[start:end] = 1.0
    return matrix


def dense(plan: CorrelatedMechanism) -> tuple[Array, Array]:
    """B and M from their definitions, by other means than the package's."""
    return _dense(plan.strategy, plan.horizon, plan.band)


@cache
def _dense(strategy: Strategy, size: int, band: int | None) -> tuple[Array, Array]:
    if strategy.is_tree:
        every = intervals(size)
        if strategy is Strategy.BINARY_TREE:
            # An interval is needed by some prefix unless it is a right half.
            M = sums_over([(a, b) for a, b in every if a // (b - a) % 2 == 0], size)
            return ones(size) @ np.linalg.inv(M), M
        estimates, sums = np.zeros((size, len(every))), sums_over(every, size)
        gram, before = np.zeros((size, size)), 0
        for t in range(1, size + 1):
            ended = sum(end <= t for _, end in every)
            gram += sums[before:ended].T @ sums[before:ended]
            before = ended
            # Least squares from all that has ended: 1' (N'N)^-1 N'.
            weights = np.linalg.solve(gram[:t, :t], np.ones(t))
            estimates[t - 1, :ended] = sums[:ended, :t] @ weights
        # Any square root of the covariance gives the same law; the lower triangular one is unique.
        B = np.linalg.cholesky(estimates @ estimates.T)
        return B, np.linalg.inv(B) @ ones(size)
    if strategy is Strategy.OPTIMAL:
        v = np.sqrt(np.arange(size, 0, -1.0))
        for _ in range(11):
            _, values, vectors = np.linalg.svd(ones(size) * np.sqrt(v))
            last = (vectors.T * values) @ vectors
            v = np.diagonal(last) ** 2 / v
        X = last / np.sqrt(np.outer(np.diagonal(last), np.diagonal(last)))
        # M'M = X with M lower triangular: the inverse of M is the Cholesky factor of X^-1.
        M = np.linalg.inv(np.linalg.cholesky(np.linalg.inv(X)))
        return ones(size) @ np.linalg.inv(M), M
    kept = band or {Strategy.INDEPENDENT: 1}.get(strategy, size)
    column = np.array([math.comb(2 * k, k) / 4**k if k < kept else 0.0 for k in range(size)])
    M = toeplitz(column)
    return ones(size) @ np.linalg.inv(M), M


@dataclass(frozen=True)
class Recorded(Source):
    """A source that remembers what it gave."""

    given: list[Array] = field(default_factory=list)

    def normal(self, std: float, shape: tuple[int, ...]) -> Array:
        self.given.append(super().normal(std, shape))
        return self.given[-1]


@dataclass(frozen=True)
class Fixed(Source):
    """A source that gives the rows of `z`, then zeros."""

    z: Array = field(default_factory=lambda: np.zeros((0, 1)))
    used: list[int] = field(default_factory=list)

    def normal(self, std: float, shape: tuple[int, ...]) -> Array:
        rows = np.zeros(shape)
        part = self.z[sum(self.used) : sum(self.used) + shape[0]]
        rows[: len(part)] = part
        self.used.append(shape[0])
        return std * rows


def recorded() -> Recorded:
    source = secure()
    return Recorded(source.generator, source.origin)


def fixed(z: Array) -> Fixed:
    source = reproducible(0)
    return Fixed(source.generator, source.origin, z)


# --- the matrices ---------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [1, 2, 3, 10, 32, 65, 300])
def test_streams_equal_dense_matrices(horizon: int) -> None:
    for plan in plans(horizon, std=0.7):
        horizon = plan.horizon
        x = np.random.default_rng(0).standard_normal((horizon, 3))
        source = recorded()
        stream = plan.start(source, 3)
        steps = [stream.next_sum(row) for row in x]
        z = np.concatenate(source.given)[:horizon]
        B, M = dense(plan)
        totals, increments = (np.array(view) for view in zip(*steps, strict=True))
        np.testing.assert_allclose(totals, ones(horizon) @ x + B @ z, rtol=0, atol=1e-10)
        # The increments' noise is that of the running sums, step by step: A^-1 B z.
        expected = x + np.linalg.solve(ones(horizon), B @ z)
        np.testing.assert_allclose(increments, expected, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(stream.last_total, totals[-1])
        np.testing.assert_allclose(B @ M, ones(horizon), rtol=0, atol=1e-9)
        assert np.all(M > -1e-12)


@pytest.mark.parametrize("horizon", [1, 7, 32, 130])
def test_the_covariance_is_exact(horizon: int) -> None:
    """With the unit vectors for z, what streams out is B itself."""
    for plan in plans(horizon, std=1.5):
        found = np.zeros((horizon, horizon))
        stream = plan.start(fixed(np.eye(horizon)), horizon)
        for row in found:
            row[:] = stream.noise().total
        B, _ = dense(plan)
        np.testing.assert_allclose(found @ found.T, 1.5**2 * B @ B.T, rtol=1e-10, atol=1e-10)
        errors = 1.5 * np.linalg.norm(B, axis=1)
        np.testing.assert_allclose(plan.errors(), errors, rtol=1e-10)


def test_the_square_root_is_one() -> None:
    M = toeplitz(factorisations.square_root(50))
    np.testing.assert_allclose(M @ M, ones(50), rtol=0, atol=1e-13)


@pytest.mark.parametrize("horizon", [1, 2, 40, 4096, 65536, correlated.LONGEST])
def test_the_geometric_series_add_up_to_the_square_root(horizon: int) -> None:
    loss, weight = factorisations.quadrature(horizon)
    few = range(min(horizon, 300))
    exact = [math.comb(2 * k, k) / 4**k for k in few]
    lags = list(few)
    if horizon > 300:
        far = np.unique(np.geomspace(300, horizon - 1, 2000).astype(int))
        lags += far.tolist()
        # Stirling's series of the same coefficients; the next term is below 1e-16 here.
        series = 1 - 1 / (8 * far) + 1 / (128 * far**2.0) + 5 / (1024 * far**3.0)
        exact += ((series - 21 / (32768 * far**4.0)) / np.sqrt(np.pi * far)).tolist()
    found = np.exp(np.multiply.outer(lags, np.log1p(-loss))) @ weight
    np.testing.assert_allclose(found, exact, rtol=1e-13)
    assert loss.size <= 150
    assert np.all(weight > 0.0)


def test_a_long_stream_keeps_its_digits() -> None:
    horizon = 5_000
    plan = CorrelatedMechanism(1.0, 1.0, horizon)
    source = recorded()
    stream = plan.start(source, 1)
    found = np.array([stream.noise().total[0] for _ in range(horizon)])
    z = np.concatenate(source.given)[:horizon, 0]
    expected = np.convolve(factorisations.square_root(horizon), z)[:horizon]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


# --- sensitivity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [1, 2, 3, 10, 31, 32, 33, 200])
def test_one_participation_costs_the_largest_column(horizon: int) -> None:
    for plan in plans(horizon):
        _, M = dense(plan)
        column = np.linalg.norm(M, axis=0).max()
        assert plan.sensitivity == pytest.approx(column, rel=2e-9)
        assert plan.sensitivity >= column * (1 - 1e-13)


def patterns(horizon: int, participations: int, separation: int) -> list[tuple[int, ...]]:
    """All admissible sets of slots."""
    return [
        slots
        for size in range(1, participations + 1)
        for slots in itertools.combinations(range(horizon), size)
        if all(b - a >= separation for a, b in itertools.pairwise(slots))
    ]


def rms(plan: CorrelatedMechanism) -> float:
    """Root mean square error over the running sums, for noise that pays for a sensitivity of 1."""
    return math.sqrt(float(np.mean(plan.errors() ** 2))) * plan.sensitivity


@pytest.mark.parametrize("horizon", [1, 2, 3, 10, 50, 200])
def test_no_factorisation_is_better_than_the_optimal_one(horizon: int) -> None:
    """The dual bound holds for every v > 0; v = diag(X^-1 G X^-1) is where it is met."""
    M = factorisations.optimal(horizon)[1]
    A, inverse = ones(horizon), np.linalg.inv(M.T @ M)
    v = np.diagonal(inverse @ A.T @ A @ inverse)
    least = np.linalg.svd(A * np.sqrt(v), compute_uv=False).sum() ** 2 / v.sum()
    found = rms(CorrelatedMechanism(1.0, 1.0, horizon, Strategy.OPTIMAL)) ** 2 * horizon
    # The square of the error is within 1e-5 of the bound; the margin of S adds 2e-9.
    assert least * (1 - 1e-12) <= found <= least * (1 + 1.1e-5)
    # The bound has teeth: the square root is not within it.
    other = rms(CorrelatedMechanism(1.0, 1.0, horizon)) ** 2 * horizon
    assert horizon == 1 or other > 1.05 * least


@pytest.mark.parametrize(("horizon", "below"), [(10, 0.0587), (50, 0.0588), (200, 0.0549)])
def test_the_optimal_strategy_is_five_to_six_percent_below_the_square_root(
    horizon: int, below: float
) -> None:
    one, other = (
        CorrelatedMechanism(1.0, 1.0, horizon, s)
        for s in (Strategy.OPTIMAL, Strategy.SQUARE_ROOT_TOEPLITZ)
    )
    assert rms(one) / rms(other) == pytest.approx(1 - below, abs=5e-5)
    # The last sum, where most learners end, is better too.
    last = one.errors()[-1] * one.sensitivity / (other.errors()[-1] * other.sensitivity)
    assert 0.95 < last < 0.975


@pytest.mark.parametrize("horizon", [2, 33, pytest.param(256, marks=pytest.mark.slow)])
def test_rounding_of_the_stored_noise_matrix_is_within_the_margin(horizon: int) -> None:
    """M of the B that is used, B^-1 A, by substitution in 64 bits of mantissa."""
    B = factorisations.optimal(horizon)[0].astype(np.longdouble)
    exact = ones(horizon).astype(np.longdouble)
    for t in range(horizon):
        exact[t] = (exact[t] - B[t, :t] @ exact[:t]) / B[t, t]
    assert np.finfo(np.longdouble).eps < 2e-19
    largest = float(np.sqrt((exact**2).sum(axis=0)).max())
    plan = CorrelatedMechanism(1.0, 1.0, horizon, Strategy.OPTIMAL)
    assert largest <= plan.sensitivity
    assert largest == pytest.approx(1.0, abs=1e-10)


def test_the_best_strategy_for_a_horizon() -> None:
    assert Strategy.best(256) is Strategy.OPTIMAL
    assert Strategy.best(257) is Strategy.SQUARE_ROOT_TOEPLITZ
    with pytest.raises(InputError, match="at most 256 steps"):
        CorrelatedMechanism(1.0, 1.0, 257, Strategy.OPTIMAL)


@pytest.mark.parametrize("horizon", [1, 2, 5, 8, 9])
def test_several_participations_over_all_patterns(horizon: int) -> None:
    for participations, separation in itertools.product((1, 2, 3, horizon), (1, 2, 3, 4)):
        more = {"participations": participations, "separation": separation}
        sets = patterns(horizon, participations, separation)
        for plan in plans(horizon, **more):
            _, M = dense(plan)
            gram = np.abs(M.T @ M)
            worst = math.sqrt(max(gram[np.ix_(p, p)].sum() for p in sets))
            assert plan.sensitivity >= worst * (1 - 1e-13)
            if plan.strategy is Strategy.OPTIMAL and participations > 1:
                # A bound, and not a bad one.
                assert plan.sensitivity <= 1.01 * worst
            elif not plan.strategy.is_tree:
                assert plan.sensitivity == pytest.approx(worst, rel=2e-9)
            else:  # an upper bound, and not a wild one
                assert plan.sensitivity <= 1.25 * worst


@pytest.mark.parametrize("separation", [1, 3, 50])
@pytest.mark.parametrize("participations", [1, 2, 7, 33, 100, 2**40])
def test_slots_added_by_doubling(participations: int, separation: int) -> None:
    column = np.random.default_rng(0).random(100)
    slots = min(participations, 99 // separation + 1)
    expected = np.zeros(100)
    for start in range(0, slots * separation, separation):
        expected[start:] += column[: 100 - start]
    found = _sum_over_slots(column, slots, separation)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert np.array_equal(column, np.random.default_rng(0).random(100))


def test_as_many_participations_as_one_likes() -> None:
    """In a moment, for the longest horizon: a loop over slots would take hours."""
    for strategy in (Strategy.SQUARE_ROOT_TOEPLITZ, Strategy.BANDED):
        band = 512 if strategy is Strategy.BANDED else None
        every, half = (
            CorrelatedMechanism(
                1.0, 1.0, correlated.LONGEST, strategy, band, participations=participations
            ).sensitivity
            for participations in (2**40, correlated.LONGEST // 2)
        )
        assert half < every < 2 * half


def test_signs_and_directions_do_not_exceed_the_sum_of_absolute_values() -> None:
    """All signs, and random vectors of dimension 4, over all patterns."""
    rng = np.random.default_rng(1)
    for plan in plans(7, participations=3, separation=2):
        _, M = dense(plan)
        reached = 0.0
        for slots in patterns(7, 3, 2):
            part = M[:, slots]
            for signs in itertools.product((-1.0, 1.0), repeat=len(slots)):
                reached = max(reached, float(np.linalg.norm(part @ np.array(signs))))
            v = rng.standard_normal((50, len(slots), 4))
            v /= np.linalg.norm(v, axis=2, keepdims=True)
            moved = np.linalg.norm(np.einsum("ts,nsd->ntd", part, v), axis=(1, 2))
            assert moved.max() <= plan.sensitivity * (1 + 1e-14)  # rounding of the norm
        assert reached <= plan.sensitivity * (1 + 1e-14)
        if not plan.strategy.is_tree:
            assert reached >= plan.sensitivity * (1 - 2e-9)


nasty = st.one_of(
    st.floats(width=64, allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 5e-324, 1e-310, 1.0, -1.0, 1e154, 1e308, -1e308, math.nan, math.inf]),
)


@settings(max_examples=150)
@given(st.data(), st.integers(0, len(KINDS) - 1), st.integers(1, 9), st.floats(0.01, 100.0))
def test_no_neighbour_moves_the_stream_by_more_than_is_paid_for(
    data: st.DataObject, kind: int, horizon: int, bound: float
) -> None:
    """One unit's rows exchanged for anything, through `next`: B^-1 of the change is bounded.

    Both runs have the same noise, so that the change of the releases is that of their means.
    """
    participations = data.draw(st.integers(1, 3))
    separation = data.draw(st.integers(1, 3))
    plan = plans(horizon, 1.0, bound, participations=participations, separation=separation)[kind]
    slots = data.draw(st.sampled_from(patterns(horizon, participations, separation)))
    rows = st.lists(nasty, min_size=2, max_size=2)
    worlds = [{s: data.draw(rows) for s in slots}, {s: data.draw(rows) for s in slots}]
    absent = data.draw(st.booleans())
    released = []
    for world in worlds:
        stream = plan.start(reproducible(1), 2)
        totals = []
        for t in range(horizon):
            unit = [world[t]] if t in world and not (absent and world is worlds[1]) else []
            totals.append(stream.next(np.array([[1.0, -1.0], *unit])).total)
        released.append(np.array(totals))
    B, _ = dense(plan)
    change = np.linalg.norm(np.linalg.solve(B, released[0] - released[1]))
    relation = Relation.ADD_REMOVE if absent else Relation.REPLACE_ONE
    paid = sensitivity(plan.event.to_dict()["bound"], relation)
    assert np.all(np.isfinite(released))
    assert change <= paid + 1e-9 * (bound + 1.0)  # rounding of the totals


def test_the_bound_is_attained_through_the_stream() -> None:
    """The same measurement reaches what is paid for, so it would see a sensitivity too small."""
    for plan in plans(12, 1.0, 0.5, participations=2, separation=3):
        released = []
        for sign in (1.0, -1.0):
            stream = plan.start(reproducible(1), 1)
            rows = [[[sign * 9.0]] if t in (0, 3) else np.zeros((0, 1)) for t in range(12)]
            released.append(np.array([stream.next(row).total for row in rows]))
        B, _ = dense(plan)
        change = np.linalg.norm(np.linalg.solve(B, released[0] - released[1]))
        paid = 2 * plan.event.to_dict()["bound"]
        assert change <= paid
        if not plan.strategy.is_tree:
            assert change == pytest.approx(paid, rel=3e-9)


def test_bands_that_do_not_meet_cost_the_root_of_participations() -> None:
    once = CorrelatedMechanism(1.0, 1.0, 400, Strategy.BANDED, 8)
    often = CorrelatedMechanism(1.0, 1.0, 400, Strategy.BANDED, 8, 5, 8)
    closer = CorrelatedMechanism(1.0, 1.0, 400, Strategy.BANDED, 8, 5, 7)
    assert often.sensitivity == pytest.approx(math.sqrt(5) * once.sensitivity, rel=1e-12)
    assert closer.sensitivity > often.sensitivity
    # More slots than fit are not paid for.
    assert CorrelatedMechanism(1.0, 1.0, 400, "independent", None, 999, 100).sensitivity == 2.0  # type: ignore[arg-type]


def test_an_adaptive_attacker_gains_no_more_than_the_theorem_says() -> None:
    """Contributions chosen from earlier releases, in 200,000 runs side by side as coordinates.

    The attacker's most powerful test is by the likelihood ratio; its power at level 0.1 is compared
    with that of the Gaussian pair. Were the sensitivity taken for 1, as for one independent step,
    the same comparison would show a violation.
    """
    runs, horizon, level = 200_000, 8, 0.1
    plan = CorrelatedMechanism(3.0, 1.0, horizon, participations=3, separation=2)
    B, M = dense(plan)
    ratios = []
    for world in (0, 1):
        stream = plan.start(secure(), runs)
        released, chosen = np.zeros((horizon, runs)), np.zeros((horizon, runs))
        for t in range(horizon):
            # In slots 0, 2, 4: further in the direction in which the stream is seen to have gone.
            if t in (0, 2, 4):
                chosen[t] = np.where(released[t - 1] < -1.0, -1.0, 1.0) if t else 1.0
            released[t] = stream.next_sum(world * chosen[t]).total
        answers, moved = np.linalg.solve(B, released), M @ chosen
        ratios.append(np.sum(moved * answers - moved**2 / 2, axis=0))
    power = np.mean(ratios[1] > np.quantile(ratios[0], 1 - level))
    slack = 6.0 / math.sqrt(runs)  # six standard errors of both, and more

    def allowed(sensitivity: float) -> float:
        return float(stats.norm.cdf(sensitivity / plan.std + stats.norm.ppf(level)))

    assert power <= allowed(plan.sensitivity) + slack
    assert power > allowed(math.sqrt(3)) + slack
    assert power > allowed(1.0) + slack


# --- the event ------------------------------------------------------------------------------------


def test_one_event_for_the_horizon() -> None:
    plan = CorrelatedMechanism(2.0, 3.0, 4, "binary-tree")  # type: ignore[arg-type]
    assert plan.event == Gaussian(2.0, 3.0 * math.nextafter(math.sqrt(3), 2))
    released, event = plan.release(np.ones((2, 5)), secure())
    assert released.shape == (2, 5)
    assert event == plan.event
    twice = Gaussian(2.0, 2 * plan.event.to_dict()["bound"])
    assert epsilon(event, 1e-6) == epsilon(twice, 1e-6, Relation.ADD_REMOVE)


def test_independent_noise_is_the_gaussian_mechanism() -> None:
    plan = CorrelatedMechanism(2.0, 3.0, 50, Strategy.INDEPENDENT)
    assert plan.event == GaussianMechanism(2.0, 3.0).event
    every = CorrelatedMechanism(2.0, 3.0, 50, Strategy.INDEPENDENT, participations=50)
    repeated = Repeated(Gaussian(2.0, 3.0), 50)
    assert epsilon(every.event, 1e-6) == pytest.approx(epsilon(repeated, 1e-6), rel=1e-9)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("bound", [1e-9, 1.0, 1e9])
def test_calibrated_plans_spend_the_budget(relation: Relation, bound: float) -> None:
    budget = Budget(1.5, 1e-6)
    for strategy, band in KINDS:
        plan = CorrelatedMechanism.from_budget(
            bound,
            budget,
            relation,
            horizon=100,
            strategy=strategy,
            band=band,
            participations=3,
            separation=20,
        )
        assert (plan.participations, plan.separation, plan.band) == (3, 20, band)
        assert 1.5 * (1 - 1e-3) <= epsilon(plan.event, 1e-6, relation) <= 1.5 + 1e-9


@pytest.mark.parametrize(
    ("horizon", "strategy", "band", "least"),
    [
        (4096, Strategy.SQUARE_ROOT_TOEPLITZ, None, 12.7),
        (4096, Strategy.BINARY_TREE, None, 5.1),
        (4096, Strategy.REFINED_TREE, None, 7.3),
        (4096, Strategy.BANDED, 512, 11.0),
        (32, Strategy.SQUARE_ROOT_TOEPLITZ, None, 2.0),
        (10, Strategy.SQUARE_ROOT_TOEPLITZ, None, 1.4),
    ],
)
def test_the_gain_over_independent_noise_at_equal_certificate(
    horizon: int, strategy: Strategy, band: int | None, least: float
) -> None:
    budget = Budget(1.0, 1e-5)
    ours, theirs = (
        CorrelatedMechanism.from_budget(1.0, budget, horizon=horizon, strategy=s, band=b)
        for s, b in ((strategy, band), (Strategy.INDEPENDENT, None))
    )
    errors = [math.sqrt(np.mean(plan.errors() ** 2)) for plan in (ours, theirs)]
    assert least <= errors[1] / errors[0] <= least + 0.1


# --- the law of the noise -------------------------------------------------------------------------

STEPS, COORDINATES = 300, 1000


def whitened(plan: CorrelatedMechanism, source: Source) -> Array:
    """M (x' - x) for released increments x', that is z: from a stream with sums of its own."""
    x = np.linspace(-1.0, 1.0, plan.horizon)[:, None] * np.ones(COORDINATES)
    totals, _ = plan.release(x, source)
    return np.linalg.solve(dense(plan)[0], totals - ones(plan.horizon) @ x)


def uncorrelated(steps: Array) -> bool:
    """Whether no two rows are correlated, at the designed false-alarm rate."""
    rows = len(steps)
    pairs = np.abs(np.corrcoef(steps)[np.triu_indices(rows, 1)])
    each = FALSE_ALARM / (rows * (rows - 1))
    return bool(pairs.max() < stats.norm.isf(each) / math.sqrt(steps.shape[1]))


@pytest.mark.parametrize(
    "kind", [2, 3, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (0, 1, 4, 5, 6, 7))]
)
def test_whitened_noise_is_independent_and_normal_and_ten_percent_off_is_seen(kind: int) -> None:
    z = whitened(plans(STEPS, std=2.5)[kind], secure())
    assert follows(z, stats.norm(0, 2.5).cdf)
    assert uncorrelated(z)
    for wrong in (0.9, 1.1):
        assert not follows(z * wrong, stats.norm(0, 2.5).cdf)


@dataclass(frozen=True)
class Reused(Source):
    """A broken source: what it gave once it gives again, or each draw holds one row many times."""

    within: bool = False
    given: dict[tuple[int, ...], Array] = field(default_factory=dict)

    def normal(self, std: float, shape: tuple[int, ...]) -> Array:
        if shape not in self.given:
            self.given[shape] = super().normal(std, shape)
        if self.within:
            return np.repeat(super().normal(std, (1, *shape[1:])), shape[0], axis=0)
        return self.given[shape]


@pytest.mark.parametrize(
    "kind", [2, 3, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (0, 1, 4, 5, 6, 7))]
)
def test_noise_used_twice_is_seen(kind: int) -> None:
    source = secure()
    plan = plans(STEPS)[kind]
    block = factorisations.recurrence(plan.strategy, plan.horizon, plan.band).block
    if block < plan.horizon:
        assert not uncorrelated(whitened(plan, Reused(source.generator, source.origin)))
    if block > 1:
        twin = Reused(source.generator, source.origin, within=True)
        assert not uncorrelated(whitened(plan, twin))


def test_correlated_noise_added_as_if_independent_is_seen() -> None:
    """The whitening knows one strategy from another: noise of a tree is not that of the root."""
    tree, root = (plans(STEPS)[kind] for kind in (1, 3))
    totals, _ = tree.release(np.zeros((STEPS, COORDINATES)), secure())
    z = np.linalg.solve(dense(root)[0], totals)
    assert not (follows(z, stats.norm.cdf) and uncorrelated(z))


# --- state on disk --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", range(len(KINDS)))
@pytest.mark.parametrize("saved_at", [0, 1, 255, 256, 270])
def test_a_resumed_reproducible_run_continues_bit_for_bit(
    kind: int, saved_at: int, tmp_path: Path
) -> None:
    plan = plans(300)[kind]
    x = np.random.default_rng(0).standard_normal((plan.horizon, 2))
    saved_at = min(saved_at, plan.horizon)
    whole = plan.start(reproducible(7), 2)
    totals = [whole.next_sum(row).total for row in x]
    first = plan.start(reproducible(7), 2)
    for row in x[:saved_at]:
        first.next_sum(row)
    first.save(tmp_path / "state.npz")
    second = plan.load(tmp_path / "state.npz")
    assert second.source.origin is NoiseOrigin.REPRODUCIBLE
    assert second.step == saved_at
    for row, total in zip(x[saved_at:], totals[saved_at:], strict=True):
        np.testing.assert_array_equal(second.next_sum(row).total, total)


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_a_resumed_secure_run_continues_the_same_process(
    kind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was drawn before and after the break is one z, and the totals have the noise B z."""
    plan = plans(STEPS)[kind]
    before, after = recorded(), recorded()
    monkeypatch.setattr(correlated, "secure", lambda: after)
    stream = plan.start(before, COORDINATES)
    totals = [stream.noise().total for _ in range(200)]
    stream.save(tmp_path / "state.npz")
    stream = plan.load(tmp_path / "state.npz")
    assert stream.source is after
    totals += [stream.noise().total for _ in range(plan.horizon - 200)]
    # Of the block that was half used, the used part counts, and then what was drawn on loading.
    z = np.concatenate([*before.given, np.zeros((0, COORDINATES))])[:200]
    z = np.concatenate([z, *after.given])[: plan.horizon]
    B, _ = dense(plan)
    np.testing.assert_allclose(np.array(totals), B @ z, rtol=0, atol=1e-10)
    assert uncorrelated(z)
    assert follows(np.linalg.solve(B, np.array(totals)), stats.norm.cdf)


@pytest.mark.parametrize("kind", range(len(KINDS)))
@pytest.mark.parametrize("saved_at", [1, 100])
def test_an_older_state_does_not_repeat_noise(kind: int, saved_at: int, tmp_path: Path) -> None:
    """Resumed twice with different sums, a secure stream does not give away their difference."""
    plan, path = plans(STEPS)[kind], tmp_path / "state.npz"
    stream = plan.start(secure(), 1000)
    for _ in range(saved_at):
        stream.noise()
    stream.save(path)
    first, second = (plan.load(path).noise().increment for _ in range(2))
    third = stream.noise().increment
    B, _ = dense(plan)
    # The next step's own z, whose share in the noise is B_tt, is independent each time.
    share = math.sqrt(2.0) * B[saved_at, saved_at]
    for one, other in itertools.combinations((first, second, third), 2):
        assert follows(one - other, stats.norm(0, share).cdf)


@pytest.mark.parametrize("moment", ["write", "replace"])
def test_an_interrupted_save_leaves_nothing_behind(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    stream = CorrelatedMechanism(1.0, 1.0, 10).start(secure())
    stream.save(tmp_path / "state.npz")
    before = (tmp_path / "state.npz").read_bytes()
    monkeypatch.setattr(os, "fsync" if moment == "write" else "replace", interrupt)
    stream.noise()
    with pytest.raises(KeyboardInterrupt):
        stream.save(tmp_path / "state.npz")
    assert os.listdir(tmp_path) == ["state.npz"]
    assert (tmp_path / "state.npz").read_bytes() == before


def test_the_state_is_for_its_owner_alone_and_holds_no_key(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    path.write_bytes(b"older")
    path.chmod(0o644)
    plan = CorrelatedMechanism(1.0, 1.0, 10)
    stream = plan.start(secure())
    stream.noise()
    stream.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["state.npz"]
    with np.load(path, allow_pickle=False) as file:
        assert json.loads(file["header"].tobytes())["generator"] is None
        assert set(file.files) == {"header", "memory", "z", "noise", "released", "digest"}
        # What is still to be used is not in the file: only the z of the one step that was.
        assert file["z"].shape == (1, 1)
    assert plan.load(path).source.origin is NoiseOrigin.SECURE


def rewritten(path: Path, **changes: Any) -> None:
    """The state with changes and a right digest, as somebody with an editor would leave it."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "digest"}
    header = json.loads(arrays["header"].tobytes())
    header.update({key: value for key, value in changes.items() if key in header})
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    arrays.update({key: value for key, value in changes.items() if key in arrays})
    np.savez(path, allow_pickle=False, **arrays, digest=correlated._digest(arrays))


def test_states_that_do_not_fit(tmp_path: Path) -> None:
    plan, path = CorrelatedMechanism(1.0, 1.0, 10), tmp_path / "state.npz"
    stream = plan.start(reproducible(1), 2)
    stream.noise()
    stream.save(path)
    whole = path.read_bytes()
    for other in (
        CorrelatedMechanism(1.1, 1.0, 10),
        CorrelatedMechanism(1.0, 1.0, 11),
        CorrelatedMechanism(1.0, 1.0, 10, Strategy.BINARY_TREE),
        CorrelatedMechanism(1.0, 1.0, 10, participations=2),
    ):
        with pytest.raises(InputError, match="belongs to another plan"):
            other.load(path)
    rng = np.random.default_rng(0)
    damaged = [whole[:n] for n in (0, 1, 100, len(whole) // 2, len(whole) - 1)]
    for place in rng.integers(0, len(whole), 60):
        edited = bytearray(whole)
        edited[place] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(edited))
    accepted, messages = 0, set()
    for content in damaged:
        path.write_bytes(content)
        try:
            found = plan.load(path)
        except InputError as error:
            messages.add(str(error))
        else:  # a bit of the archive that means nothing, such as a date: all that counts is there
            np.testing.assert_array_equal(found.noise(), plan_again(plan).noise())
            accepted += 1
    assert messages == {f"{path} is not a whole, unedited state of a stream."}
    assert accepted < 20
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match="whole, unedited"):
        plan.load(path)
    for changes in (
        {"step": 11},
        {"step": -1},
        {"step": "1"},
        {"dimension": 3},
        {"generator": {"bit_generator": "PCG64"}},
        {"memory": np.zeros((2, 2))},
        {"noise": np.full(2, math.nan)},
        {"z": np.zeros((1, 2))},
        {"z": np.zeros((10, 3))},
    ):
        path.write_bytes(whole)
        rewritten(path, **changes)
        with pytest.raises(InputError, match="whole, unedited"):
            plan.load(path)
    path.write_bytes(whole)
    rewritten(path)
    assert plan.load(path).step == 1
    with pytest.raises(InputError, match="cannot be read"):
        plan.load(tmp_path / "none.npz")
    for bad in (tmp_path / "none" / "state.npz", tmp_path):
        with pytest.raises(InputError, match="cannot be written"):
            stream.save(bad)
    assert os.listdir(tmp_path) == ["state.npz"]


def plan_again(plan: CorrelatedMechanism) -> correlated.Stream:
    stream = plan.start(reproducible(1), 2)
    stream.noise()
    return stream


def test_only_our_own_reproducible_sources_are_saved(tmp_path: Path) -> None:
    foreign = Source(np.random.Generator(np.random.MT19937(0)), NoiseOrigin.REPRODUCIBLE)
    with pytest.raises(InputError, match=r"source from privrl\.privacy\.noise"):
        CorrelatedMechanism(1.0, 1.0, 10).start(foreign).save(tmp_path / "state.npz")


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"std": 0.0}, "std must be positive"),
        ({"bound": math.inf}, "bound must be positive"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"horizon": 2**20 + 1}, "horizon must be at most 1048576"),
        ({"strategy": "forest"}, "is not a strategy"),
        ({"strategy": "banded"}, "band belongs to"),
        ({"band": 3}, "band belongs to"),
        ({"strategy": "banded", "band": 0}, "band must be at least 1"),
        ({"strategy": "banded", "band": 11}, "must not be longer"),
        ({"participations": 0}, "participations must be at least 1"),
        ({"separation": 1.5}, "separation must be a whole number"),
    ],
)
def test_bad_plans(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        CorrelatedMechanism(**{"std": 1.0, "bound": 1.0, "horizon": 10, **change})


def test_more_than_the_horizon_is_refused() -> None:
    for plan in plans(5):
        stream = plan.start(secure())
        for _ in range(5):
            stream.next([[1.0]])
        with pytest.raises(InputError, match="All 5 steps of the horizon are used"):
            stream.next([[1.0]])
        assert stream.step == 5
        with pytest.raises(InputError, match="6 rows are more than the horizon of 5"):
            plan.release(np.zeros((6, 1)), secure())


def test_bad_increments_and_contributions() -> None:
    stream = CorrelatedMechanism(1.0, 1.0, 10).start(secure(), 2)
    for wrong in (3.0, [1.0], [[1.0, 2.0]]):
        with pytest.raises(InputError, match="increment must have shape"):
            stream.next_sum(wrong)
    with pytest.raises(InputError, match="increment must be finite"):
        stream.next_sum([1.0, math.nan])
    for rows in ([1.0, 2.0], [[1.0]], [[[1.0, 2.0]]]):
        with pytest.raises(InputError, match="a row for each unit and 2 columns"):
            stream.next(rows)
    with pytest.raises(InputError, match="contributions must be"):
        stream.next([["a", "b"]])
    with pytest.raises(InputError, match="contributions must be"):
        stream.next([[1.0], [1.0, 2.0]])
    with pytest.raises(InputError, match="increment must be finite"):
        stream.next_sum([1.0, 10**400])
    assert stream.step == 0
    for dimension in (0, 2**62, 2**40):
        with pytest.raises(InputError, match="dimension"):
            CorrelatedMechanism(1.0, 1.0, 10).start(secure(), dimension)
    for bad in (np.zeros(3), np.zeros((3, 0))):
        with pytest.raises(InputError, match="a row for each step"):
            CorrelatedMechanism(1.0, 1.0, 10).release(bad, secure())


def test_rows_are_clipped_and_bad_ones_count_as_zero() -> None:
    stream = CorrelatedMechanism(1e-6, 0.5, 10).start(secure(), 2)
    rows = [[3.0, 4.0], [math.nan, 1.0], [math.inf, 0.0], [1e308, 0.0], [5e-324, 0.1]]
    rows.append([10**400, 1.0])
    np.testing.assert_allclose(stream.next(rows).increment, [0.8, 0.5], atol=1e-4)
    np.testing.assert_allclose(stream.next(np.zeros((0, 2))).increment, [0.0, 0.0], atol=1e-4)


# --- compiled -------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [pytest.param(1, marks=pytest.mark.slow), 67])
@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_compiled_noise_equals_streamed_noise_step_by_step(kind: int, horizon: int) -> None:
    import jax

    from privrl.privacy.mechanisms import correlated_jax

    def run(state: Any, z: Any) -> tuple[Any, jax.Array, jax.Array]:
        last, found = jax.lax.scan(correlated_jax.advance, state, z)
        return last, found, correlated_jax.next(last)[1]

    z = np.random.default_rng(0).standard_normal((horizon, 3))
    plan = plans(horizon, std=0.3)[kind]
    stream = plan.start(fixed(z), 3)
    expected = np.array([stream.noise().increment for _ in range(horizon)])
    with jax.enable_x64(True):
        state = correlated_jax.init(plan, secure().key(), 3)
        last, found, beyond = jax.jit(run)(state, 0.3 * z)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(last.noise, expected.sum(axis=0), rtol=0, atol=1e-10)
    assert np.all(np.isnan(beyond))


@pytest.mark.parametrize(
    "kind", [3, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (0, 1, 2, 5))]
)
def test_all_compiled_noise_at_once_equals_it_one_by_one_and_has_the_law(kind: int) -> None:
    import jax

    from privrl.privacy.mechanisms import correlated_jax

    def both(plan: CorrelatedMechanism, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = correlated_jax.init(plan, key, 1000)
        one_by_one = jax.lax.scan(lambda s, _: correlated_jax.next(s), state, length=plan.horizon)
        return correlated_jax.all_noise(plan, key, 1000), one_by_one[1]

    plan = plans(STEPS, std=0.4)[kind]
    with jax.enable_x64(True):
        noise = jax.jit(both, static_argnums=0)(plan, secure().key())
    at_once, one_by_one = (np.asarray(array) for array in noise)
    np.testing.assert_allclose(at_once, one_by_one, rtol=0, atol=1e-10)
    z = np.linalg.solve(dense(plan)[0], np.cumsum(at_once, axis=0))
    assert follows(z, stats.norm(0, 0.4).cdf)
    assert uncorrelated(z)
    for wrong in (0.9, 1.1):
        assert not follows(z * wrong, stats.norm(0, 0.4).cdf)


def test_compiled_noise_needs_64_bits() -> None:
    from privrl.privacy.mechanisms import correlated_jax

    plan = CorrelatedMechanism(1.0, 1.0, 10)
    for make in (correlated_jax.init, correlated_jax.all_noise):
        with pytest.raises(InputError, match="64 bits"):
            make(plan, secure().key(), 3)
        with pytest.raises(InputError, match="dimension"):
            make(plan, secure().key(), 0)
