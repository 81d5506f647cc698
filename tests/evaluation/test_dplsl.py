"""DP-LSL: the ridge solution, sensitivity for any neighbours, published against calibrated."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.data import OneHot, Polynomial, Tabular, Trajectories
from privrl.evaluation.dplsl import DPLSL, local_lsl
from privrl.evaluation.dplsw import first_visits
from privrl.papers.xie2019 import output_perturbation as published
from privrl.privacy import ApproxDP, Budget, InputError
from tests.evaluation.test_bellman_error import JUDGED, simulated
from tests.evaluation.test_dplsw import exact_of, on_policy, scale_of
from tests.evaluation.test_private_gtd import people, person

BUDGET = Budget(1.0, 1e-5)


def plain(kind: type[DPLSL] = DPLSL, **changed: Any) -> DPLSL:
    given: dict[str, Any] = {
        "features": OneHot(3),
        "reward_range": (-0.5, 2.0),
        "budget": BUDGET,
        "gamma": 0.9,
    }
    return kind(**{**given, **changed})


@pytest.mark.parametrize("features", [OneHot(3), Polynomial(1, 0.0, 2.0)])
def test_without_noise_it_is_ridge_regression(features: Any) -> None:
    data = simulated(60, 2)
    rho, ridge = np.array([0.5, 0.25, 0.25]), 3.0
    judge = plain(features=features, num_states=3, state_weights=rho, ridge=ridge)
    # One row for each first visit, and the ridge as rows of its own.
    phi = np.asarray(features(np.arange(3)))
    rows, targets = [], []
    for i in range(60):
        alone = first_visits(data[i : i + 1], 3, 0.9, (-0.5, 2.0), (-5.0, 20.0))
        for s in np.flatnonzero(alone.counts):
            rows.append(math.sqrt(rho[s]) * phi[s])
            targets.append(math.sqrt(rho[s]) * alone.sums[s])
    d = features.dimension
    stacked = np.concatenate([np.array(rows), math.sqrt(ridge / 2.0) * np.eye(d)])
    wanted = np.linalg.lstsq(stacked, np.concatenate([targets, np.zeros(d)]))[0]
    np.testing.assert_allclose(exact_of(judge, data), wanted, rtol=1e-9)


def test_one_trajectory_by_hand() -> None:
    data = Trajectories.from_arrays([0], [0], [1.0], lengths=[1], num_states=1, num_actions=1)
    judge = DPLSL(OneHot(1), (0.0, 1.0), BUDGET, 0.9, ridge=2.0)
    # H = 1 + 2/2, g = 1.
    assert exact_of(judge, data) == pytest.approx(0.5)
    # W = 10, ||Phi|| = rho = n = 1, lambda = 2: 2 x 10 / 2 x (1/2 sqrt(1) + 1), and m = 1.
    assert scale_of(judge, data) == pytest.approx(15.0)
    looser = published.DPLSL(OneHot(1), (0.0, 1.0), BUDGET, 0.9, ridge=2.0)
    assert scale_of(looser, data) == pytest.approx(30.0)


@settings(max_examples=60)
@given(
    st.lists(person, min_size=1, max_size=4),
    person,
    st.integers(0, 3),
    st.sampled_from([DPLSL, published.DPLSL]),
    st.sampled_from([None, 1.0, 50.0]),
)
def test_neighbours_are_within_the_smooth_bound_and_the_bound_is_smooth(
    owned: list[Any], other: Any, which: int, kind: type[DPLSL], ridge: float | None
) -> None:
    which %= len(owned)
    here = on_policy(people(*owned))
    there = on_policy(people(*[other if i == which else x for i, x in enumerate(owned)]))
    judge = plain(kind, ridge=ridge)
    values = [exact_of(judge, data) for data in (here, there)]
    bounds = [scale_of(judge, data) for data in (here, there)]
    assert np.linalg.norm(values[0] - values[1]) <= min(bounds) * (1.0 + 1e-9)
    beta = judge.mechanism().beta * (1.0 + 1e-9)
    assert math.exp(-beta) <= bounds[0] / bounds[1] <= math.exp(beta)


def test_the_local_bound_is_the_formula() -> None:
    rho, counts = np.array([0.2, 0.3, 0.5]), np.array([7, 2, 7])
    k = np.arange(10)
    c = 2.0 * 0.5 / math.sqrt(2.0 * 5.0)
    wanted = [
        4.0
        * (
            c * math.sqrt(sum(r * min(n + j, 8) for r, n in zip(rho, counts, strict=True)))
            + math.sqrt(0.38)
        )
        for j in k
    ]
    np.testing.assert_allclose(local_lsl(4.0, 2.0, rho, 5.0, counts, 8, k), wanted, rtol=1e-12)


def test_calibrated_noise_is_several_times_less() -> None:
    data = simulated(60, 2)
    most, least = (
        judge.mechanism().alpha * scale_of(judge, data)
        for judge in (plain(published.DPLSL), plain())
    )
    assert most > 4.0 * least


def test_certificate_and_refusals() -> None:
    result = plain().fit(simulated(60, 2, users=20))
    assert result.certificate.events == (ApproxDP(1.0, 1e-5),)
    result.certificate.verify(strict=True)
    assert result.settings["ridge"] == pytest.approx(4.0 * math.sqrt(20))
    assert "noise" not in result.settings
    with pytest.raises(InputError, match="not private off-policy"):
        plain().fit(simulated(60, 2), Tabular(JUDGED))
    with pytest.raises(InputError, match="continuous"):
        plain().fit(Trajectories.from_arrays([[0.5], [0.25]], [0, 0], [0.0, 1.0], lengths=[2]))
    with pytest.raises(InputError, match="above"):
        plain(published.DPLSL, ridge=0.1).fit(simulated(60, 2))
    with pytest.raises(InputError, match="ridge"):
        plain(ridge=0.0)


@pytest.mark.parametrize("ridge", [1e-20, 1e-300])
@pytest.mark.parametrize("states", [[0, 0, 0, 0], [0, 1, 2, 3], [2, 2, 2, 2]])
def test_a_ridge_lost_in_rounding_is_no_error_for_any_data(ridge: float, states: Any) -> None:
    """Whether a solver finds the system singular depends on who visited what."""
    data = Trajectories.from_arrays(states, [0] * 4, [1.0] * 4, lengths=[1] * 4)
    judge = plain(features=Polynomial(3, 0.0, 3.0), num_states=4, ridge=ridge)
    assert np.all(np.isfinite(exact_of(judge, data)))
    assert judge.fit(data).weights is not None


@pytest.mark.parametrize("kind", [DPLSL, published.DPLSL])
def test_a_ridge_whose_noise_would_vanish_is_refused(kind: type[DPLSL]) -> None:
    for data in (simulated(60, 2), simulated(3, 2)):
        with pytest.raises(InputError, match="ridge is too large to compute with"):
            plain(kind, ridge=1e150).fit(on_policy(data))


def test_bounds_too_large_for_numbers_are_infinite_for_all_data() -> None:
    """Where public numbers say that some of them could be."""
    judge = plain(ridge=1e-250)
    bounds = {scale_of(judge, on_policy(data)) for data in (simulated(60, 2), simulated(1, 2))}
    assert bounds == {math.inf}
    found = judge.fit(simulated(60, 2)).weights
    assert found is not None
    np.testing.assert_array_equal(np.abs(found), np.finfo(np.float64).max)
