"""Fitted Q evaluation against the model itself."""

from pathlib import Path

import numpy as np
import pytest

from privrl.data import Fourier, OneHot, Trajectories
from privrl.evaluation.fqe import FQE
from privrl.evaluation.result import Result
from privrl.privacy import InputError
from tests.evaluation import exact


def test_on_the_whole_population_the_table_is_the_exact_one() -> None:
    data, model = exact.population(), exact.mdp()
    found = FQE(gamma=exact.GAMMA).fit(data, exact.TARGET)
    values = model.values(exact.TARGET.table, exact.GAMMA)
    np.testing.assert_allclose(found.predict(np.arange(exact.STATES)), values, atol=1e-12)
    q = FQE(gamma=exact.GAMMA).action_values(data, exact.TARGET)
    expected = model.action_values(exact.TARGET.table, exact.GAMMA)
    np.testing.assert_allclose(q(np.arange(exact.STATES)), expected, atol=1e-12)
    assert found.estimate == pytest.approx(exact.START @ values, abs=1e-12)
    given = FQE(gamma=exact.GAMMA).fit(data, exact.TARGET, start=[2]).estimate
    assert given == pytest.approx(values[2], abs=1e-12)


def test_iterations_are_values_of_so_many_steps() -> None:
    data = exact.population()
    few = FQE(gamma=exact.GAMMA, iterations=exact.HORIZON).fit(data, exact.TARGET)
    assert few.estimate == pytest.approx(exact.value(), abs=1e-12)
    many = FQE(gamma=exact.GAMMA, iterations=200).fit(data, exact.TARGET)
    whole = FQE(gamma=exact.GAMMA).fit(data, exact.TARGET)
    assert many.estimate == pytest.approx(whole.estimate, abs=1e-12)
    assert many.interval is None


def test_pairs_never_seen_are_worth_nothing() -> None:
    data = Trajectories.from_arrays(
        [0, 1],
        [0, 1],
        [1.0, 3.0],
        lengths=[2],
        terminated=[False],
        final_states=np.array([2]),
        num_states=3,
        num_actions=2,
    )
    q = FQE(gamma=0.5).action_values(data, exact.TARGET)(np.arange(3))
    # Action 1 in state 1 leads to state 2, where nothing was ever tried.
    np.testing.assert_allclose(q, [[1.0 + 0.5 * 0.25 * 3.0, 0.0], [0.0, 3.0], [0.0, 0.0]])


def test_linear_features_that_can_express_the_table_find_it() -> None:
    """Three cosines over three points span all tables."""
    data, states = exact.population(), np.arange(3)
    basis = Fourier(2, [0.0], [2.0])
    linear = FQE(gamma=exact.GAMMA, features=basis).fit(data, exact.TARGET)
    table = FQE(gamma=exact.GAMMA, features=OneHot(3)).fit(data, exact.TARGET)
    np.testing.assert_allclose(linear.predict(states), table.predict(states), atol=1e-10)


def test_results_with_a_policy_in_their_features_are_saved(tmp_path: Path) -> None:
    found = FQE(gamma=exact.GAMMA).fit(exact.dataset([0, 1, 2]), exact.TARGET)
    found.save(tmp_path / "fqe.json")
    again = Result.load(tmp_path / "fqe.json")
    np.testing.assert_array_equal(again.predict([0, 1, 2]), found.predict([0, 1, 2]))


def test_wrong_questions() -> None:
    data = exact.dataset([0, 1])
    with pytest.raises(InputError, match="needs the policy"):
        FQE(gamma=0.5).fit(data)
    with pytest.raises(InputError, match="iterations"):
        FQE(gamma=0.5, iterations=0)
    silent = Trajectories.from_arrays([0], [0], [0.0], lengths=[1], terminated=[True])
    with pytest.raises(InputError, match="num_states"):
        FQE(gamma=0.5).fit(silent, exact.TARGET)
    more = Trajectories.from_arrays([0], [3], [0.0], lengths=[1], terminated=[True], num_states=3)
    with pytest.raises(InputError, match="only 2 actions"):
        FQE(gamma=0.5).fit(more, exact.TARGET)


def test_data_of_another_kind() -> None:
    judge = FQE(0.9, OneHot(2))
    unknown = Trajectories.from_arrays([0, 1], [0, 1], [1.0, 2.0], lengths=[1, 1])
    with pytest.raises(InputError, match="next state is known"):
        judge.fit(unknown, exact.TARGET)
    with pytest.raises(InputError, match="data must be Trajectories"):
        judge.fit("data", exact.TARGET)  # type: ignore[arg-type]
    vectors = Trajectories.from_arrays([[0.1, 0.2]], [[0.5]], [1.0], lengths=[1], terminated=[True])
    with pytest.raises(InputError, match="vectors as actions"):
        judge.fit(vectors, exact.TARGET)
    states = Trajectories.from_arrays([[0.1, 0.2]], [0], [1.0], lengths=[1], terminated=[True])
    with pytest.raises(InputError, match="table over discrete states"):
        judge.fit(states, exact.TARGET)


@pytest.mark.parametrize("start", [None, [0, 1]])
def test_the_interval_is_that_of_leaving_people_out(start: list[int] | None) -> None:
    people = 150
    data = exact.sample(people, np.random.default_rng(4), trips=2)
    judge = FQE(exact.GAMMA, Fourier(1, [0.0], [2.0]))
    found = judge.fit(data, exact.TARGET, start=start)
    without = [
        judge.fit(data.take(np.flatnonzero(data.unit_index != i)), exact.TARGET, start=start)
        for i in range(people)
    ]
    left = np.array([one.estimate for one in without], dtype=np.float64)
    assert found.interval is not None
    assert found.interval.parts["sampling"] == pytest.approx(
        (people - 1) * float(left.var()), rel=0.05
    )
