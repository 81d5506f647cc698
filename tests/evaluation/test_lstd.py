"""LSTD and WIS-LSTD against linear solves of the known model."""

import numpy as np
import pytest

from privrl.data import Fourier, OneHot, Tabular, Trajectories
from privrl.evaluation.importance import WIS
from privrl.evaluation.lstd import LSTD, WISLSTD, sums
from privrl.privacy import InputError
from tests.evaluation import exact

ONE_HOT = OneHot(exact.STATES)


def expected_moments() -> tuple[np.ndarray, np.ndarray]:
    """E[A], E[b] over trajectories of at most three steps, from the model and not from data."""
    policy = exact.TARGET.table
    onward = np.einsum("sa,sat->st", policy, exact.MOVES)
    pay = (policy * exact.REWARDS).sum(axis=1)
    logged = np.einsum("sa,sat->st", exact.BEHAVIOR.table, exact.MOVES)
    visits, here = np.zeros(exact.STATES), exact.START
    for _ in range(exact.HORIZON):
        visits, here = visits + here, here @ logged
    A = np.diag(visits) @ (np.eye(exact.STATES) - exact.GAMMA * onward)
    return A, visits * pay


def test_moments_are_those_of_the_model() -> None:
    A, b = sums(exact.population(), exact.TARGET, ONE_HOT, exact.GAMMA, "steps")
    expected, count = expected_moments(), 2 * 16**3
    np.testing.assert_allclose(A / count, expected[0], atol=1e-13)
    np.testing.assert_allclose(b / count, expected[1], atol=1e-13)


def test_on_the_whole_population_the_table_is_the_exact_one() -> None:
    found = LSTD(ONE_HOT, exact.GAMMA).fit(exact.population(), exact.TARGET)
    values = exact.mdp().values(exact.TARGET.table, exact.GAMMA)
    np.testing.assert_allclose(found.predict(np.arange(3)), values, atol=1e-12)
    assert found.estimate == pytest.approx(exact.START @ values, abs=1e-12)


def test_linear_features_give_the_solve_of_the_expected_moments() -> None:
    basis = Fourier(1, [0.0], [2.0])
    phi = basis(np.arange(3.0)[:, None])
    A, b = expected_moments()
    theta = np.linalg.solve(phi.T @ A @ phi, phi.T @ b)
    found = LSTD(basis, exact.GAMMA).fit(exact.population(), exact.TARGET)
    assert found.weights is not None
    np.testing.assert_allclose(found.weights, theta, atol=1e-12)


def test_weighing_by_trajectory_looks_ahead() -> None:
    """A table and all the data there is, and yet not the value: lengths depend on what follows."""
    found = LSTD(ONE_HOT, exact.GAMMA, "trajectories").fit(exact.population(), exact.TARGET)
    values = exact.mdp().values(exact.TARGET.table, exact.GAMMA)
    assert np.abs(found.predict(np.arange(3)) - values).max() > 0.05


@pytest.mark.parametrize("lambda_", [0.0, 0.3, 0.8, 1.0])
def test_wis_lstd_finds_the_values_for_every_lambda(lambda_: float) -> None:
    found = WISLSTD(ONE_HOT, exact.GAMMA, lambda_).fit(exact.population(), exact.TARGET)
    values = exact.mdp().values(exact.TARGET.table, exact.GAMMA)
    np.testing.assert_allclose(found.predict(np.arange(3)), values, atol=1e-12)


def test_wis_lstd_without_traces_is_lstd() -> None:
    data = exact.sample(300, np.random.default_rng(0), trips=2)
    ours = WISLSTD(ONE_HOT, exact.GAMMA, 0.0).fit(data, exact.TARGET)
    plain = LSTD(ONE_HOT, exact.GAMMA).fit(data, exact.TARGET)
    assert ours.weights is not None
    assert plain.weights is not None
    np.testing.assert_allclose(ours.weights, plain.weights, atol=1e-12)
    assert ours.interval is not None
    assert plain.interval is not None
    assert ours.interval.low == pytest.approx(plain.interval.low, abs=1e-12)


def test_wis_lstd_with_full_traces_is_weighted_importance_sampling() -> None:
    """A table of (time, state): the value of the start is that of WIS, trajectory by trajectory."""
    plain = exact.sample(40, np.random.default_rng(1))
    keep = [k for k in range(40) if plain.states[plain.offsets[k]] == 0]
    plain = plain.take(keep)
    clock = np.arange(plain.num_steps) - np.repeat(plain.offsets[:-1], plain.lengths)
    timed = Trajectories.from_arrays(
        plain.states + 3 * clock,
        plain.actions,
        plain.rewards,
        lengths=plain.lengths,
        terminated=np.ones(plain.num_trajectories, dtype=bool),
        behavior_probs=plain.behavior_probs,
        target_probs=exact.TARGET.prob(plain.states, plain.actions),
    )
    found = WISLSTD(OneHot(9), 1.0, 1.0).fit(timed)
    assert found.estimate == pytest.approx(WIS().fit(plain, exact.TARGET).estimate, abs=1e-12)


def test_the_sandwich_is_the_derivative_of_the_estimate() -> None:
    """Leaving trajectories out one by one gives the same variance, up to terms of order 1/n."""
    base = exact.sample(150, np.random.default_rng(2))
    for judge in (LSTD(ONE_HOT, exact.GAMMA), WISLSTD(ONE_HOT, exact.GAMMA, 0.7)):
        interval = judge.fit(base, exact.TARGET, start=[0]).interval
        assert interval is not None
        others = np.zeros(150)
        for out in range(150):
            kept = [k for k in range(150) if k != out]
            others[out] = judge.fit(base.take(kept), exact.TARGET, start=[0]).estimate
        jackknife = 149 / 150 * np.sum((others - others.mean()) ** 2)
        assert interval.parts["sampling"] == pytest.approx(jackknife, rel=0.1)


def test_wrong_questions() -> None:
    with pytest.raises(InputError, match="weighting"):
        LSTD(ONE_HOT, 0.9, "people")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="lambda_"):
        WISLSTD(ONE_HOT, 0.9, 1.5)
    with pytest.raises(InputError, match="gamma"):
        LSTD(ONE_HOT, -0.1)
    with pytest.raises(InputError, match="Trajectories"):
        WISLSTD(ONE_HOT, 0.9).fit("data")  # type: ignore[arg-type]


@pytest.mark.parametrize("judge", [LSTD(ONE_HOT, 0.9), WISLSTD(ONE_HOT, 0.9, 0.5)])
def test_data_that_says_nothing_is_no_value_of_zero(judge: LSTD | WISLSTD) -> None:
    def of(terminated: bool, reward: float = 1.0, prob: float = 0.5) -> Trajectories:
        return Trajectories.from_arrays(
            [0, 1],
            [0, 0],
            [reward, reward],
            lengths=[1, 1],
            terminated=[terminated] * 2,
            behavior_probs=[prob, prob],
        )

    policy = exact.TARGET
    assert judge.fit(of(True), policy).estimate is not None
    with pytest.raises(InputError, match="No step of the data counts"):
        judge.fit(of(False), policy)
    with pytest.raises(InputError, match="No step of the data counts"):
        judge.fit(of(True), Tabular(np.array([[0.0, 1.0]] * 3)))
    for huge in (of(True, 1e308, 0.25), of(True, prob=1e-310)):
        with pytest.raises(InputError, match="too large for numbers"):
            judge.fit(huge, policy)
    with pytest.raises(InputError, match="at least one state"):
        judge.fit(of(True), policy, start=[])
