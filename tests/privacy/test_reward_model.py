"""The released reward model: its sensitivity exactly, its noise, and what comes back."""

import itertools
import json
import math
import os
import stat
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from privrl.data import Fourier, OneHot
from privrl.privacy import Budget, Gaussian, InputError, Relation, Unit, epsilon
from privrl.privacy.mechanisms.reward_model import (
    Cosine,
    Legendre,
    RewardModel,
    RewardModelMechanism,
    quadrature,
)
from privrl.privacy.noise import reproducible, secure
from tests.statistics import follows

Floats = NDArray[np.floating[Any]]


def fixed(matrix: Floats) -> Any:
    """Features that are `matrix` at the points 0, 1, 2, ..."""
    return lambda points: matrix[np.asarray(points).astype(int)]


def exact_square(vector: list[Fraction]) -> Fraction:
    return sum((x * x for x in vector), Fraction(0))


def farthest(matrix: Floats) -> Fraction:
    """max of |M d|^2 over |d_i| <= 1, exactly: convex, so attained at one of the corners."""
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=matrix.shape[1])))
    norms = ((corners @ matrix.T) ** 2).sum(axis=1)
    # The largest few in floating point, again in fractions, since rounding may reorder them.
    best = corners[np.argsort(norms)[-4:]].astype(int).tolist()
    rows = [[Fraction(x) for x in row] for row in matrix.tolist()]
    return max(
        exact_square([sum((m * d for m, d in zip(row, corner, strict=True)), Fraction(0))
                      for row in rows])
        for corner in best
    )  # fmt: skip


entries = st.one_of(
    st.floats(-2.0, 2.0),
    st.sampled_from([0.0, 1.0, -1.0, 1e-9, 1e-300, 5e-324, 1e9, 1e150, 1.0 + 2.0**-40]),
)
matrices = st.integers(1, 7).flatmap(
    lambda n: st.integers(1, 5).flatmap(
        lambda d: st.lists(st.lists(entries, min_size=d, max_size=d), min_size=n, max_size=n)
    )
)
masses = st.lists(
    st.one_of(st.floats(0.0, 1.0), st.sampled_from([1e-300, 1e-12, 1.0, 1e300])),
    min_size=7,
    max_size=7,
)


@settings(max_examples=200)
@given(matrices, masses)
def test_no_two_neighbours_are_further_apart_than_the_radius(
    rows: list[list[float]], weights: list[float]
) -> None:
    """Whatever the features and weights: searched over all corners, decided in fractions."""
    matrix = np.array(rows)
    given_weights = np.array(weights[: len(rows)])
    try:
        plan = RewardModelMechanism(
            1.0, 1.0, np.arange(len(rows)), fixed(matrix), given_weights, (-3.0, 3.0)
        )
    except InputError:
        return  # all weights or features zero, or too small: nothing is released
    assert farthest(plan.matrix) <= 1
    plain = RewardModelMechanism(1.0, 1.0, np.arange(len(rows)), fixed(matrix), given_weights)
    assert 1 - 1e-9 < farthest(plain.matrix) / farthest(plan.matrix) < 1 + 1e-9


def test_the_search_has_teeth() -> None:
    tight = RewardModelMechanism(1.0, 1.0, np.arange(7), OneHot(7))
    assert 1 - 1e-12 < farthest(tight.matrix) <= 1
    assert farthest(tight.matrix * (1.0 + 1e-13)) > 1
    # Features used as they are, not made orthonormal, are seen at once.
    raw = np.random.default_rng(0).standard_normal((7, 3))
    assert farthest(raw.T / 7.0 * np.abs(raw).max()) > 1


nasty = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 5e-324, 1e308, -1e308, math.nan, math.inf, -math.inf, 0.5]),
    st.floats(-1.0, 1.0),
)


@settings(max_examples=200)
@given(
    st.lists(nasty, min_size=9, max_size=9),
    st.lists(st.one_of(st.sampled_from([-1.0, 1.0]), st.floats(-1.0, 1.0)), min_size=9, max_size=9),
    st.sampled_from([1e-6, 0.01, 1.0]),
)
def test_computed_coefficients_of_neighbours_differ_by_the_radius_at_most(
    rewards: list[float], moves: list[float], radius: float
) -> None:
    """With a reward range also the roundings of the product are paid for: exactly, in fractions."""
    points, weights = quadrature(9)
    plan = RewardModelMechanism(1.0, radius, points, Cosine(5), weights, (-1.0, 0.75))
    r = np.array(rewards)
    moved = r + np.array(moves) * radius * (1.0 - 1e-9)
    pairs = zip(r.tolist(), moved.tolist(), strict=True)
    near = [
        math.isfinite(a) and math.isfinite(b) and abs(Fraction(a) - Fraction(b)) <= Fraction(radius)
        for a, b in pairs
    ]
    other = np.where(near, moved, r)
    ours, theirs = (plan.coefficients(x).tolist() for x in (r, other))
    apart = [Fraction(a) - Fraction(b) for a, b in zip(ours, theirs, strict=True)]
    assert exact_square(apart) <= Fraction(radius) ** 2


def test_a_reward_range_pays_for_the_roundings_of_the_product() -> None:
    """Rewards on a grid as fine as the radius: without a range, rounding breaks the bound."""
    radius, rng = 2.0**-39, np.random.default_rng(0)
    plain = RewardModelMechanism(1.0, radius, np.arange(7), OneHot(7))
    paid = RewardModelMechanism(1.0, radius, np.arange(7), OneHot(7), reward_range=(0.0, 1.0))
    broken = {plain: 0, paid: 0}
    for _ in range(100):
        r = rng.integers(1, 2**39 - 1, 7) * radius
        other = r + rng.choice([-radius, radius], 7)
        for plan in broken:
            pairs = zip(plan.coefficients(r), plan.coefficients(other), strict=True)
            square = exact_square([Fraction(float(a)) - Fraction(float(b)) for a, b in pairs])
            broken[plan] += square > Fraction(radius) ** 2
    assert broken[plain] > 10
    assert broken[paid] == 0


def test_rewards_that_are_no_numbers_are_zero_and_others_clipped() -> None:
    plan = RewardModelMechanism(1.0, 1.0, np.arange(4), OneHot(4), reward_range=(-1.0, 0.5))
    found = plan.coefficients([math.nan, math.inf, -1e308, 0.7])
    np.testing.assert_allclose(found * 2.0, [0.0, 0.0, -1.0, 0.5], atol=1e-12)
    above = RewardModelMechanism(1.0, 1.0, np.arange(4), OneHot(4), reward_range=(2.0, 3.0))
    np.testing.assert_allclose(above.coefficients([math.nan] * 4) * 2.0, 2.0)
    free = RewardModelMechanism(1.0, 1.0, np.arange(4), OneHot(4))
    model, _ = free.release([1e308, -1e308, 5e-324, math.nan], secure())
    assert np.all(np.isfinite(model.coefficients))


def test_a_table_of_state_action_rewards_is_released_as_it_is() -> None:
    states, actions = 5, 3
    pairs = np.array(list(itertools.product(range(states), range(actions))), dtype=float)

    def features(points: Any) -> Any:
        return OneHot(states * actions)(points[:, 0] * actions + points[:, 1])

    rewards = np.random.default_rng(3).uniform(-1.0, 1.0, len(pairs))
    plan = RewardModelMechanism(0.2, 0.1, pairs, features)
    np.testing.assert_allclose(
        plan.coefficients(rewards), rewards / math.sqrt(len(pairs)), rtol=1e-13
    )
    model, event = plan.release(rewards, reproducible(1))
    assert event == Gaussian(0.2, 0.1)
    noise = reproducible(1).normal(0.2, (len(pairs),))
    np.testing.assert_allclose(model(pairs), rewards + noise * math.sqrt(len(pairs)), rtol=1e-12)
    np.testing.assert_allclose(model.uncertainty(pairs), 0.2 * math.sqrt(len(pairs)))


def test_noise_has_the_promised_law_and_ten_percent_off_is_seen() -> None:
    points, weights = quadrature(40)
    plan = RewardModelMechanism(0.7, 0.1, points, Legendre(9), weights)
    exact = plan.coefficients(lambda x: np.sin(3.0 * x[:, 0]))
    source = secure()
    draws = np.array(
        [
            plan.release(lambda x: np.sin(3.0 * x[:, 0]), source)[0].coefficients - exact
            for _ in range(8000)
        ]
    )
    assert follows(draws, stats.norm(0, 0.7).cdf)
    for wrong in (0.9, 1.1):
        assert not follows(draws * wrong, stats.norm(0, 0.7).cdf)
    # Independent coordinates: five standard errors, over the 45 pairs of ten coordinates.
    correlations = np.corrcoef(draws.T)[np.triu_indices(10, 1)]
    assert np.abs(correlations).max() < 5.8 / math.sqrt(len(draws))


def test_uncertainty_is_the_standard_deviation_of_the_models_error() -> None:
    points, weights = quadrature(20)
    plan = RewardModelMechanism(0.3, 0.1, points, Legendre(4), weights)
    place, source = np.array([[0.123], [1.0]]), secure()
    models = [plan.release(lambda x: x[:, 0] ** 2, source)[0] for _ in range(8000)]
    errors = np.array([model(place) - place[:, 0] ** 2 for model in models])
    scaled = errors / models[0].uncertainty(place)
    for column in scaled.T:
        assert follows(column, stats.norm.cdf)
        assert not follows(column * 1.2, stats.norm.cdf)


@pytest.mark.parametrize("basis", [Cosine(6), Legendre(6)])
def test_bases_are_orthonormal_and_functions_in_their_span_come_back(basis: Any) -> None:
    points, weights = quadrature(64)
    phi = basis(points)
    np.testing.assert_allclose(phi.T @ (phi * weights[:, None]), np.eye(7), atol=1e-12)
    wanted = np.random.default_rng(0).standard_normal(7)
    plan = RewardModelMechanism(1e-12, 1.0, points, basis, weights)
    np.testing.assert_allclose(plan.coefficients(lambda x: basis(x) @ wanted), wanted, atol=1e-11)
    model, _ = plan.release(lambda x: basis(x) @ wanted, reproducible(0))
    there = np.linspace(0.0, 1.0, 31)
    np.testing.assert_allclose(model(there), basis(there) @ wanted, atol=1e-9)


def test_bases_on_boxes() -> None:
    points, weights = quadrature(12, [-1.0, 2.0], [3.0, 2.5])
    assert points.shape == (144, 2)
    assert weights.sum() == pytest.approx(1.0)
    for basis in (Cosine(3, [-1.0, 2.0], [3.0, 2.5]), Legendre(3, [-1.0, 2.0], [3.0, 2.5])):
        phi = basis(points)
        np.testing.assert_allclose(phi.T @ (phi * weights[:, None]), np.eye(16), atol=1e-9)
        assert np.all(np.isfinite(basis(np.array([[math.nan, 1e308], [-math.inf, 2.2]]))))
    np.testing.assert_allclose(Legendre(0)(np.zeros(3)), 1.0)


def test_the_model_is_the_weighted_least_squares_fit() -> None:
    rng = np.random.default_rng(5)
    points, rewards = rng.uniform(size=50), rng.standard_normal(50)
    weights = rng.uniform(size=50)
    basis = Fourier(4, 0.0, 1.0)  # not orthonormal at these points
    model, _ = RewardModelMechanism(1e-13, 1.0, points, basis, weights).release(rewards, secure())
    root = np.sqrt(weights)[:, None]
    fit = np.linalg.lstsq(basis(points) * root, rewards * root[:, 0], rcond=None)[0]
    np.testing.assert_allclose(model(points), basis(points) @ fit, atol=1e-9)


def test_dependent_features_are_dropped_whatever_the_rewards() -> None:
    rng = np.random.default_rng(2)
    good = rng.standard_normal((30, 3))
    wide = np.column_stack([good[:, 0], 0 * good[:, 0], good[:, 0] + 1e-12, good, good @ [1, 2, 3]])
    plan = RewardModelMechanism(1e-13, 1.0, np.arange(30), fixed(wide))
    # good[:, 0] + 1e-12 is not a new direction; the three columns of `good` are.
    assert plan.matrix.shape == (3, 30)
    rewards = good @ [0.5, -1.0, 2.0]
    model, _ = plan.release(rewards, reproducible(0))
    np.testing.assert_allclose(model(np.arange(30)), rewards, atol=1e-9)


def test_visited_points_and_features_from_the_data_room() -> None:
    visited = np.random.default_rng(0).uniform(size=(200, 1))
    for basis in (Fourier(5, [0.0], [1.0]), Fourier(5, [0.0], [1.0], normalised=True)):
        plan = RewardModelMechanism.from_budget(0.1, Budget(1.0, 1e-5), visited, basis)
        model, event = plan.release(lambda x: x[:, 0], secure())
        assert model(visited).shape == (200,)
        assert event == plan.event
        assert np.linalg.norm(plan.matrix / np.sqrt(1 / 200), 2) == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("times", [1, 7])
@pytest.mark.parametrize("radius", [1e-6, 0.1, 1e6])
def test_calibrated_plans_spend_the_budget(radius: float, times: int) -> None:
    budget = Budget(0.9, 1e-4)
    plan = RewardModelMechanism.from_budget(radius, budget, [0.0, 1.0], Legendre(1), times=times)
    spent = epsilon([plan.event] * times, 1e-4, RewardModelMechanism.relation)
    assert 0.9 * (1 - 1e-3) <= spent <= 0.9 + 1e-9
    assert (plan.unit, plan.relation) == (Unit.REWARD_FUNCTION, Relation.REWARD_RADIUS)


def test_models_evaluate_in_jax_as_in_numpy() -> None:
    import jax

    points, weights = quadrature(12, [0.0, 0.0], [1.0, 2.0])
    there = np.random.default_rng(0).uniform(size=(40, 2)) * [1.0, 2.0]
    for basis in (Cosine(3, [0, 0], [1, 2]), Legendre(3, [0, 0], [1, 2])):
        plan = RewardModelMechanism(0.1, 0.1, points, basis, weights)
        model, _ = plan.release(lambda x: x[:, 0] * x[:, 1], secure())
        with jax.enable_x64(True):
            compiled = jax.jit(lambda x, model=model: (model(x), model.uncertainty(x)))
            rewards, spread = compiled(jax.numpy.asarray(there))
        np.testing.assert_allclose(rewards, model(there), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(spread, model.uncertainty(there), rtol=1e-10)


def test_models_of_the_packages_earlier_name_are_read(tmp_path: Path) -> None:
    points, weights = quadrature(10)
    plan = RewardModelMechanism(0.1, 0.1, points, Cosine(3), weights)
    model = plan.release(np.ones(10), secure())[0]
    path = tmp_path / "model.json"
    model.save(path)
    path.write_text(path.read_text().replace("privrl reward model", "tacit reward model"))
    again = RewardModel.load(path, Cosine(3))
    np.testing.assert_array_equal(again.coefficients, model.coefficients)


def test_models_are_saved_and_loaded_bit_for_bit(tmp_path: Path) -> None:
    points, weights = quadrature(10)
    path = tmp_path / "model.json"
    for basis in (Cosine(3), Legendre(3), Fourier(3, 0.0, 1.0), lambda x: np.hstack([x, x**2])):
        plan = RewardModelMechanism(0.1, 0.1, points, basis, weights)
        model, _ = plan.release(lambda x: x[:, 0], secure())
        model.save(path)
        again = RewardModel.load(path, basis)
        np.testing.assert_array_equal(again.coefficients, model.coefficients)
        np.testing.assert_array_equal(again(points), model(points))
        assert again.std == model.std
    plan = RewardModelMechanism(0.1, 0.1, points, Cosine(3), weights)
    plan.release(np.zeros(10), secure())[0].save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]
    with pytest.raises(InputError, match="other features"):
        RewardModel.load(path, Cosine(4))
    with pytest.raises(InputError, match="cannot be read"):
        RewardModel.load(tmp_path / "none.json", Cosine(3))
    with pytest.raises(InputError, match="cannot be written"):
        RewardModel.load(path, Cosine(3)).save(tmp_path / "no" / "where.json")
    # A model is public, and its file readable; nothing is left where none can be written.
    umask = os.umask(0o027)
    try:
        RewardModel.load(path, Cosine(3)).save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(umask)
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="cannot be written"):
        RewardModel.load(path, Cosine(3)).save(tmp_path / "folder")
    with pytest.raises(InputError, match="cannot be written"):
        RewardModel.load(path, Cosine(3)).save("a\0b")
    assert sorted(tmp_path.iterdir()) == before
    good = json.loads(path.read_text())
    for change in ({"version": 2}, {"coefficients": "x"}, {"std": None}, {"coefficients": [1.0]}):
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(InputError):
            RewardModel.load(path, Cosine(3))
    path.write_text("nothing")
    with pytest.raises(InputError, match="is not a reward model"):
        RewardModel.load(path, Cosine(3))


def test_plans_cannot_be_changed_from_outside() -> None:
    points = np.linspace(0.0, 1.0, 5)
    plan = RewardModelMechanism(1.0, 1.0, points, Cosine(2))
    before = plan.matrix.copy()
    points[:] = 7.0
    np.testing.assert_array_equal(plan.points, np.linspace(0.0, 1.0, 5))
    with pytest.raises(ValueError, match="read-only"):
        plan.matrix[0, 0] = 3.0
    np.testing.assert_array_equal(plan.matrix, before)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"std": 0.0}, "std must be positive"),
        ({"radius": math.inf}, "radius must be positive"),
        ({"points": []}, "points must be"),
        ({"points": [[1.0], [1.0, 2.0]]}, "points must be a number or an array of numbers"),
        ({"points": [0.0, math.nan]}, "points must be finite"),
        ({"weights": [1.0]}, "weights must be 3 numbers"),
        ({"weights": [1.0, -1.0, 1.0]}, "must not be negative"),
        ({"weights": [0.0, 0.0, 0.0]}, "not all zero"),
        ({"reward_range": (1.0, 1.0)}, "the least reward below"),
        ({"reward_range": (0.0, math.inf)}, "must be finite"),
        ({"reward_range": 3.0}, "must be two numbers"),
        ({"reward_range": (0.0, 1e15)}, "within the rounding errors"),
        ({"features": lambda x: np.ones(3)}, "features gave the shape"),
        ({"features": lambda x: np.full((3, 1), math.nan)}, "features must be finite"),
        ({"features": lambda x: np.zeros((3, 2))}, "nothing to release"),
        ({"features": lambda x: np.full((3, 1), 5e-324)}, "too small"),
    ],
)
def test_bad_plans_are_refused(change: dict[str, Any], sentence: str) -> None:
    good: dict[str, Any] = {
        "std": 1.0,
        "radius": 1.0,
        "points": [0.0, 0.5, 1.0],
        "features": Cosine(1),
    }
    with pytest.raises(InputError, match=sentence):
        RewardModelMechanism(**{**good, **change})


def test_bad_rewards_and_bases_are_refused() -> None:
    plan = RewardModelMechanism(1.0, 1.0, [0.0, 0.5, 1.0], Cosine(1))
    for rewards in ([1.0, 2.0], 1.0, np.ones((3, 1)), [], ["a", "b", "c"], lambda x: x[:2]):
        with pytest.raises(InputError, match="rewards must be"):
            plan.release(rewards, secure())
    huge = plan.coefficients([10**400, 1, -(10**400)])
    np.testing.assert_array_equal(huge, plan.coefficients([0.0, 1.0, 0.0]))
    model, _ = plan.release([0.0, 0.0, 0.0], secure())
    with pytest.raises(InputError, match="points must be"):
        model(["a"])
    with pytest.raises(InputError, match="features gave"):
        RewardModel(model.coefficients, model.transform, Cosine(4), 1.0)([0.5])
    with pytest.raises(InputError, match="order"):
        Cosine(-1)
    with pytest.raises(InputError, match="low and high"):
        Legendre(2, [0.0, 1.0], [1.0])
    with pytest.raises(InputError, match="low and high"):
        quadrature(3, 1.0, 1.0)
    with pytest.raises(InputError, match="coordinates"):
        Cosine(2, [0.0, 0.0], [1.0, 1.0])(np.zeros((4, 3)))
