"""Ceilings: attained where they should be, and never exceeded by any learner that was tried."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from privrl.audit.limits import (
    best_accuracy,
    best_accuracy_gdp,
    best_accuracy_of,
    ceiling,
    group_privacy,
    group_privacy_gdp,
    steps_between,
)
from privrl.privacy import (
    ApproxDP,
    Budget,
    Gaussian,
    InputError,
    Laplace,
    RandomizedResponse,
    Relation,
    Repeated,
)
from privrl.privacy.accounting.losses import gaussian_delta
from privrl.privacy.mechanisms import GaussianMechanism

Floats = NDArray[np.floating[Any]]
RADIUS = Relation.REWARD_RADIUS
budgets = st.builds(Budget, st.floats(0.01, 6.0), st.one_of(st.just(0.0), st.floats(1e-9, 0.5)))


def learner(tasks: int, budget: Budget) -> Floats:
    """Outcomes "surely i" with probability delta, else randomised response: (tasks, 2 tasks)."""
    odds = np.where(np.eye(tasks) == 1.0, math.exp(budget.epsilon), 1.0)
    response = odds / odds.sum(axis=1, keepdims=True)
    return np.hstack([budget.delta * np.eye(tasks), (1.0 - budget.delta) * response])


def overspent(outcomes: Floats, budget: Budget) -> float:
    """The largest P_i(A) - e^epsilon P_k(A) - delta over all pairs and sets A."""
    excess = outcomes[:, None] - math.exp(budget.epsilon) * outcomes[None]
    return float(np.maximum(excess, 0.0).sum(axis=2).max() - budget.delta)


def test_the_figures_of_the_plan() -> None:
    budget = Budget(0.9, 1e-4)
    assert best_accuracy(2, budget) == pytest.approx(0.711, abs=5e-4)
    assert best_accuracy(16, budget) == pytest.approx(0.141, abs=5e-4)
    plan = GaussianMechanism.from_budget(1.0, budget, RADIUS)
    assert best_accuracy_gdp(1.0 / plan.std) == pytest.approx(0.557, abs=5e-4)
    assert best_accuracy_of(plan.event, RADIUS) == pytest.approx(0.557, abs=5e-4)


@settings(max_examples=100)
@given(st.integers(1, 12), budgets)
def test_the_ceiling_is_attained_by_a_private_learner(tasks: int, budget: Budget) -> None:
    outcomes = learner(tasks, budget)
    assert overspent(outcomes, budget) <= 1e-12
    right = (outcomes[:, :tasks] + outcomes[:, tasks:]).diagonal().mean()
    assert right == pytest.approx(best_accuracy(tasks, budget), rel=1e-12)


@settings(max_examples=40)
@given(st.integers(2, 6), budgets)
def test_the_program_finds_the_closed_form(tasks: int, budget: Budget) -> None:
    found = ceiling(np.eye(tasks), budget)
    assert found == pytest.approx(best_accuracy(tasks, budget), rel=1e-7)
    assert found >= best_accuracy(tasks, budget) * (1.0 - 1e-12)


@settings(max_examples=80)
@given(
    st.lists(st.lists(st.floats(-5.0, 5.0), min_size=4, max_size=4), min_size=2, max_size=2),
    budgets,
)
def test_two_tasks_with_any_values_by_enumeration(
    values: list[list[float]], budget: Budget
) -> None:
    """Every private learner of two tasks post-processes one mechanism of four outcomes.

    (Kairouz, Oh, Viswanath 2015.) So the best is to take, after each, what is best on average.
    """
    worth = np.array(values)
    outcomes = learner(2, budget)
    best = sum(max(column @ worth) for column in outcomes.T) / 2.0
    found = ceiling(worth, budget)
    assert found == pytest.approx(best, rel=1e-7, abs=1e-7)
    assert found >= best - 1e-11


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 5), budgets)
def test_no_learner_that_was_tried_does_better(
    seed: int, tasks: int, decisions: int, budget: Budget
) -> None:
    """Random learners, mixed with a constant one until they are private, and corners of them."""
    rng = np.random.default_rng(seed)
    worth = rng.normal(size=(tasks, decisions)) * 10.0 ** rng.integers(-3, 4)
    limit = ceiling(worth, budget)
    greedy = np.eye(decisions)[worth.argmax(axis=1)]
    constant = np.eye(decisions)[worth.mean(axis=0).argmax()]
    for wild in (greedy, *rng.dirichlet(np.full(decisions, 0.3), (20, tasks))):
        low, high = 0.0, 1.0
        for _ in range(40):
            share = (low + high) / 2.0
            mixed = share * wild + (1.0 - share) * constant
            low, high = (share, high) if overspent(mixed, budget) <= 0.0 else (low, share)
        private = low * wild + (1.0 - low) * constant
        assert (private * worth).sum(axis=1).mean() <= limit + 1e-9 * np.abs(worth).max()


def test_limits_between_nothing_and_everything() -> None:
    worth = np.array([[3.0, 1.0], [0.0, 2.0]])
    assert ceiling(worth, Budget(1e-9)) == pytest.approx(1.5, abs=1e-6)  # the best constant
    assert ceiling(worth, Budget(40.0)) == pytest.approx(2.5, abs=1e-9)  # the best in each
    assert ceiling([[1.0, 4.0, 2.0]], Budget(1.0)) == pytest.approx(4.0)  # one known task
    assert ceiling(np.full((3, 3), 7.0), Budget(1.0)) == pytest.approx(7.0)
    assert best_accuracy(1, Budget(1.0)) == 1.0
    assert best_accuracy_gdp(0.0) == 0.5


def test_a_program_with_steps_lies_between_neighbours_and_freedom() -> None:
    budget = Budget(0.5, 1e-4)
    apart = np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0]])
    found = ceiling(np.eye(3), budget, apart)
    assert best_accuracy(3, budget) < found < best_accuracy(3, group_privacy(budget, 3))
    pair = ceiling(np.eye(2), budget, [[0, 4], [4, 0]])
    assert pair == pytest.approx(best_accuracy(2, group_privacy(budget, 4)), rel=1e-9)
    # Over so many steps nothing is promised, and the learner may know all.
    assert ceiling(np.eye(2), budget, [[0, 99], [99, 0]]) == pytest.approx(1.0)


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_two_tasks_told_apart_from_events(mu: float) -> None:
    gaussian = Gaussian(1.0 / mu, 1.0)
    assert best_accuracy_of(gaussian, RADIUS) == pytest.approx(best_accuracy_gdp(mu), rel=1e-9)
    assert best_accuracy_gdp(mu) == pytest.approx(stats.norm.cdf(mu / 2.0))
    nine = best_accuracy_of(Repeated(gaussian, 9), RADIUS)
    assert nine == pytest.approx(best_accuracy_gdp(3.0 * mu), rel=1e-9)
    laplace = best_accuracy_of(Laplace(1.0 / mu, 1.0), RADIUS)
    assert laplace == pytest.approx(1.0 - math.exp(-mu / 2.0) / 2.0, rel=1e-9)
    response = best_accuracy_of(RandomizedResponse(mu), Relation.LOCAL)
    assert response == pytest.approx(best_accuracy(2, Budget(mu)), rel=1e-9)
    approximate = best_accuracy_of(ApproxDP(mu, 0.01), Relation.REPLACE_ONE)
    assert approximate == pytest.approx(best_accuracy(2, Budget(mu, 0.01)), rel=1e-9)


def test_a_threshold_on_gaussian_noise_attains_the_gaussian_ceiling() -> None:
    """Played out: with 10^5 rounds, five standard errors are one false alarm in 10^6."""
    rng, mu, rounds = np.random.default_rng(), 0.8, 100_000
    truth = rng.integers(0, 2, rounds)
    seen = mu * truth + rng.standard_normal(rounds)
    right = float(np.mean((seen > mu / 2.0) == truth))
    wanted = best_accuracy_gdp(mu)
    assert abs(right - wanted) < 5.0 * math.sqrt(wanted * (1.0 - wanted) / rounds)


@pytest.mark.parametrize("steps", [1, 2, 5, 40])
def test_group_privacy(steps: int) -> None:
    budget = Budget(0.3, 1e-7)
    found = group_privacy(budget, steps)
    assert found.epsilon == pytest.approx(steps * 0.3)
    assert found.delta == pytest.approx(sum(1e-7 * math.exp(0.3 * j) for j in range(steps)))
    assert group_privacy(Budget(0.3), steps).delta == 0.0
    # A Gaussian mechanism within the budget keeps what is promised to groups, with room to spare.
    mu = 1.0 / GaussianMechanism.from_budget(1.0, budget, RADIUS).std
    assert gaussian_delta(group_privacy_gdp(mu, steps), found.epsilon) <= found.delta


def test_group_privacy_of_chained_learners_is_exact_for_pure_guarantees() -> None:
    """Tasks on a line: the geometric learner has a ratio of e^epsilon per step, and e^(k eps)."""
    eps, size = 0.4, 9
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    probs = np.exp(-eps * apart.astype(float))
    probs[:, [0, -1]] /= 1.0 - math.exp(-eps)
    probs /= probs.sum(axis=1, keepdims=True)
    for i, k in itertools.combinations(range(size), 2):
        worst = float(np.max(np.log(probs[i] / probs[k])))
        assert worst == pytest.approx(group_privacy(Budget(eps), k - i).epsilon, rel=1e-12)


def test_steps_between() -> None:
    assert [steps_between(d, 0.25) for d in (0.1, 0.25, 0.2500001, 1.0)] == [1, 1, 2, 4]
    assert steps_between(0.5, 0.01) == 50  # 0.01 is a little more than a hundredth in 64 bits
    assert steps_between(1e308, 1e-3) > 10**310
    assert steps_between(5e-324, 1e308) == 1
    with pytest.raises(InputError, match="distance must be positive"):
        steps_between(0.0, 1.0)


@pytest.mark.parametrize("eps", [5e-324, 1e-310, 1e-300])
def test_groups_at_tiny_epsilon(eps: float) -> None:
    assert group_privacy(Budget(eps, 1e-5), 2).delta == pytest.approx(2e-5, rel=1e-12)


@pytest.mark.parametrize("eps", [1e-3, 1.0, 20.0, 29.0, 31.0])
def test_a_ceiling_is_at_most_the_best_of_every_task(eps: float) -> None:
    assert ceiling(np.eye(4), Budget(eps, 1e-9)) <= 1.0
    values = [[1.0, 2.0], [5.0, -3.0]]
    assert ceiling(values, Budget(eps, 1e-9)) <= 3.5


@pytest.mark.parametrize("scale", [1e308, 1e300, 1e-300, 5e-324])
def test_ceilings_of_any_size(scale: float) -> None:
    values = np.array([[1.0, -1.0], [-1.0, 1.0]])
    budget = Budget(1.0, 1e-5)
    expected = ceiling(values, budget)
    found = ceiling(values * scale, budget)
    assert found == pytest.approx(expected * scale, rel=1e-9, abs=5e-324)


def test_bad_questions() -> None:
    budget = Budget(1.0, 1e-5)
    with pytest.raises(InputError, match="tasks"):
        best_accuracy(0, budget)
    with pytest.raises(InputError, match="mu"):
        best_accuracy_gdp(-1.0)
    with pytest.raises(InputError, match="radius"):
        steps_between(1.0, 0.0)
    with pytest.raises(InputError, match="Nothing is promised over 50 steps"):
        group_privacy(budget, 50)
    with pytest.raises(InputError, match="Nothing is promised"):
        group_privacy(budget, 10_000)
    for values in ([1.0, 2.0], [], [[math.nan]], [[10**400]], [["a"]], [[1.0], [1.0, 2.0]]):
        with pytest.raises(InputError, match="values must be a"):
            ceiling(values, budget)
    for apart in (
        [[0.0]],
        np.ones((3, 3)),
        [[1, 1, 1]],
        [[0, 1], [2, 0]],
        [[0, 0], [0, 0]],
        [[0, 1.5], [1.5, 0]],
    ):
        with pytest.raises(InputError, match="steps must be"):
            ceiling(np.eye(2), budget, apart)
    with pytest.raises(InputError, match="too many"):
        ceiling(np.eye(25), budget)
