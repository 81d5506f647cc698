"""Gaussian and Laplace mechanisms: the right noise, on the right source, for the right price."""

import math

import numpy as np
import pytest
from scipy import stats

from privrl.privacy import Budget, Gaussian, InputError, Laplace, NoiseOrigin, Relation, epsilon
from privrl.privacy.events import DiscreteGaussian
from privrl.privacy.mechanisms import (
    GaussianMechanism,
    GridGaussianMechanism,
    GridLaplaceMechanism,
    LaplaceMechanism,
)
from privrl.privacy.noise import reproducible, secure
from tests.statistics import FALSE_ALARM, follows

# Ten percent move the distribution function of Laplace noise by 0.0175, and that of normal noise by
# more: of so many draws, a test at level 1e-6 misses that once in 5 10^6.
DRAWS = 100_000


def test_gaussian_noise_has_the_promised_law_and_ten_percent_off_is_seen() -> None:
    plan = GaussianMechanism(2.5, 1.0)
    released, event = plan.release(np.full(DRAWS, 7.0), secure())
    assert event == Gaussian(2.5, 1.0)
    noise = released - 7.0
    assert follows(noise, stats.norm(0, 2.5).cdf)
    for wrong in (0.9, 1.1):
        assert not follows(noise * wrong, stats.norm(0, 2.5).cdf)


def test_laplace_noise_has_the_promised_law_and_ten_percent_off_is_seen() -> None:
    plan = LaplaceMechanism(0.4, 1.0)
    released, event = plan.release(np.zeros(DRAWS), secure())
    assert event == Laplace(0.4, 1.0)
    assert follows(released, stats.laplace(0, 0.4).cdf)
    for wrong in (0.9, 1.1):
        assert not follows(released * wrong, stats.laplace(0, 0.4).cdf)


def test_noise_is_fresh_and_independent_across_coordinates_and_releases() -> None:
    plan = GaussianMechanism(1.0, 1.0)
    source = secure()
    first, second = (plan.release(np.zeros(DRAWS), source)[0] for _ in range(2))
    # Five standard errors of a correlation of independent draws: one false alarm in 10^6.
    limit = 5.0 / math.sqrt(DRAWS)
    assert abs(np.corrcoef(first, second)[0, 1]) < limit
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < limit
    other = plan.release(np.zeros(DRAWS), secure())[0]
    assert abs(np.corrcoef(first, other)[0, 1]) < limit


def test_sources_say_where_their_noise_comes_from() -> None:
    assert secure().origin is NoiseOrigin.SECURE
    assert reproducible(3).origin is NoiseOrigin.REPRODUCIBLE
    plan = GaussianMechanism(1.0, 1.0)
    again = [plan.release([0.0, 1.0], reproducible(3))[0] for _ in range(2)]
    np.testing.assert_array_equal(again[0], again[1])
    with pytest.raises(InputError, match="seed"):
        reproducible(-1)
    with pytest.raises(InputError, match="seed"):
        reproducible(1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("times", [1, 50])
@pytest.mark.parametrize("bound", [1e-9, 1.0, 1e9])
def test_calibrated_plans_spend_the_budget(relation: Relation, times: int, bound: float) -> None:
    budget = Budget(1.5, 1e-6)
    gaussian = GaussianMechanism.from_budget(bound, budget, relation, times=times)
    laplace = LaplaceMechanism.from_budget(bound, budget, relation, times=times)
    for plan in (gaussian, laplace):
        spent = epsilon([plan.event] * times, 1e-6, relation)
        assert 1.5 * (1 - 1e-3) <= spent <= 1.5 + 1e-9


def test_pure_laplace_is_the_textbook_one() -> None:
    plan = LaplaceMechanism.from_budget(1.0, Budget(0.5), Relation.ADD_REMOVE)
    assert plan.scale == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize(
    "value",
    [
        [1.0, math.nan],
        math.inf,
        10**400,
        [-(10**400), 0.0],
        ["a"],
        ["1"],
        b"1",
        [1j],
        [[1.0], [1.0, 2.0]],
        [{}],
        None,
    ],
)
def test_values_that_cannot_be_released(value: object) -> None:
    for plan in (GaussianMechanism(1.0, 1.0), LaplaceMechanism(1.0, 1.0)):
        with pytest.raises(InputError, match="value must be"):
            plan.release(value, secure())  # type: ignore[arg-type]


def test_shapes_are_kept() -> None:
    plan = GaussianMechanism(1.0, 1.0)
    for shape in ((), (0,), (3,), (2, 3)):
        assert plan.release(np.zeros(shape), secure())[0].shape == shape


def test_noise_on_a_grid_has_the_size_that_its_event_says() -> None:
    plan = GridGaussianMechanism.from_budget(1.0, Budget(1.0, 1e-5), dimension=3)
    assert plan.event == DiscreteGaussian(plan.width, plan.bound / plan.step, 3)
    z = plan.release_many(np.zeros((1, 3)), 2000, secure())[0].ravel() / (plan.width * plan.step)
    # So wide a discrete Gaussian has the variance of the continuous one, to a part in 10^9.
    law, squares = stats.chi2(z.size), float(np.sum(z**2))
    assert law.ppf(FALSE_ALARM / 2) < squares < law.isf(FALSE_ALARM / 2)
    for off in (0.9, 1.1):
        assert not law.ppf(FALSE_ALARM / 2) < squares * off**2 < law.isf(FALSE_ALARM / 2)


@pytest.mark.parametrize("kind", [GridGaussianMechanism, GridLaplaceMechanism])
@pytest.mark.parametrize(
    "power",
    [pytest.param(x, marks=() if x in (-8, -3, 1) else pytest.mark.slow) for x in range(-8, 2)],
)
def test_a_grid_costs_what_was_asked_and_keeps_what_is_released(
    power: int, kind: type[GridGaussianMechanism] | type[GridLaplaceMechanism]
) -> None:
    """A step beyond the bound would cost nothing, since it leaves nothing of anybody's row."""
    draw = np.random.default_rng(power + 8)
    for _ in range(5):
        bound, dimension = 10.0 ** draw.uniform(-6, 6), int(draw.choice([1, 3, 8, 50]))
        delta = 10.0 ** draw.uniform(-12, -3) if kind is GridGaussianMechanism else 0.0
        budget = Budget(10.0**power * draw.uniform(0.3, 1.0), delta)
        made = kind.from_budget(bound, budget, dimension=dimension)
        assert epsilon(made.event, delta) <= budget.epsilon
        assert made.step <= bound
        row = np.zeros((1, dimension))
        row[0, 0] = bound
        assert made.to_grid(row)[0, 0] >= 1
