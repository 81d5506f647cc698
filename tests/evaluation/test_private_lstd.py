"""PrivateLSTD: the limit without noise, the sensitivity of its one release, its price."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privrl.data import Features, OneHot, Polynomial, Tabular, Trajectories, stream_parquet
from privrl.evaluation.bellman_error import moments, mspbe, unit_moments
from privrl.evaluation.private_lstd import PrivateLSTD, clip_factors, solve_ridge, weighted_sum
from privrl.evaluation.result import Result
from privrl.privacy import Budget, Gaussian, InputError, Ledger, Unit
from privrl.privacy.noise import Source
from privrl.privacy.session import PrivacySession
from tests.evaluation.test_bellman_error import (
    JUDGED,
    dense_one_hot,
    simulated,
    solution,
    weights_of,
)
from tests.evaluation.test_private_gtd import people, person

Floats = NDArray[np.float64]

BUDGET = Budget(1.0, 1e-5)


def plain(**changed: Any) -> PrivateLSTD:
    given: dict[str, Any] = {
        "features": OneHot(3),
        "reward_range": (-0.5, 2.0),
        "budget": BUDGET,
        "gamma": 0.9,
    }
    return PrivateLSTD(**{**given, **changed})


def _silent(self: Source, std: float, shape: tuple[int, ...]) -> Floats:
    return np.zeros(shape)


@pytest.mark.parametrize("features", [Polynomial(1, 0.0, 2.0), OneHot(3), dense_one_hot(3)])
@pytest.mark.parametrize("policy", [None, Tabular(JUDGED)])
def test_without_noise_ridge_and_clipping_it_is_lstd(
    features: Features, policy: Tabular | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = simulated(40, 5)
    monkeypatch.setattr(Source, "normal", _silent)
    judge = plain(features=features, clip=1e4, ridge=0.0, weight_cap=100.0)
    weights = weights_of(judge.fit(data, policy))
    found = moments(data, policy, features, 0.9)
    assert mspbe(weights, found) < 1e-24
    if features.dimension == 2:
        units = unit_moments(data, policy, features, 0.9)
        np.testing.assert_allclose(weights, solution(units), rtol=1e-9)
    else:
        assert weights[2] == pytest.approx(0.0, abs=1e-9)  # state 2 never occurs: least norm


def test_one_trajectory_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Trajectories.from_arrays(
        [0, 1], [0, 0], [2.0, 3.0], lengths=[2], terminated=[True], num_states=2, num_actions=1
    )
    units = unit_moments(data, None, OneHot(2), 0.5)
    # |A|^2 = 1/4 + 1/16 + 1/4, |b|^2 = 1 + 9/4.
    norm = math.sqrt(4.0 * 0.5625 + 3.25)
    factor = clip_factors(units, 2.0, 1.0)
    np.testing.assert_allclose(factor, [1.0 / norm], rtol=1e-12)
    np.testing.assert_allclose(
        weighted_sum(units, 2.0, factor) * norm, [[1.0, -0.5], [0.0, 1.0], [1.0, 1.5]], rtol=1e-12
    )
    # Clipping A and b together leaves the solution of a single trajectory as it is.
    monkeypatch.setattr(Source, "normal", _silent)
    judge = PrivateLSTD(OneHot(2), (0.0, 3.0), BUDGET, 0.5, clip=1e-3, ridge=0.0)
    np.testing.assert_allclose(weights_of(judge.fit(data)), [3.5, 3.0], rtol=1e-9)


def test_ridge_by_hand() -> None:
    A, b = np.array([[2.0, 1.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    np.testing.assert_allclose(
        solve_ridge(A, b, 0.5), np.linalg.solve(A.T @ A + 0.5 * np.eye(2), A.T @ b), rtol=1e-12
    )
    assert not solve_ridge(np.zeros((2, 2)), b, 0.0).any()


@pytest.mark.parametrize("ridge", [1e3, 1e-2, 1.01e-10, 0.99e-10, 1e-14])
def test_both_ways_to_solve_agree_with_singular_values(ridge: float) -> None:
    """Singular values from 1 to 1e-6, so that small ridges matter; scaled to Frobenius norm 1."""
    draw = np.random.default_rng(3)
    left, right = (np.linalg.qr(draw.standard_normal((40, 40)))[0] for _ in range(2))
    values = np.logspace(0, -6, 40)
    values /= np.linalg.norm(values)
    b = draw.standard_normal(40)
    wanted = right @ (values / (values**2 + ridge) * (left.T @ b))
    found = solve_ridge(left @ np.diag(values) @ right.T, b, ridge)
    np.testing.assert_allclose(found, wanted, atol=1e-9 * float(np.abs(wanted).max()), rtol=0)


@settings(max_examples=60)
@given(
    st.lists(person, min_size=1, max_size=3),
    person,
    st.integers(0, 2),
    st.sampled_from([1e-6, 0.3, 1e6]),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.sampled_from([None, 4.0, 1e300]),
    st.booleans(),
)
def test_exchanging_a_person_moves_the_release_by_at_most_two_bounds(
    owned: list[Any],
    other: Any,
    which: int,
    bound: float,
    a: float,
    cap: float | None,
    sparse: bool,
) -> None:
    which %= len(owned)
    features = OneHot(3) if sparse else dense_one_hot(3)
    sums = []
    for listed in (owned, [other if i == which else one for i, one in enumerate(owned)]):
        units = unit_moments(
            people(*listed), None, features, 0.9, cap=cap, reward_range=(-1e300, 1e300)
        )
        factors = clip_factors(units, a, bound)
        for i in range(units.count):
            alone = np.where(np.arange(units.count) == i, factors, 0.0)
            assert np.linalg.norm(weighted_sum(units, a, alone)) <= bound
        sums.append(weighted_sum(units, a, factors))
    assert np.isfinite(sums).all()
    assert np.linalg.norm(sums[0] - sums[1]) <= 2.0 * bound * (1.0 + 1e-12)


def test_ranges_and_bounds_are_the_callers_and_not_the_datas() -> None:
    judge = PrivateLSTD(OneHot(2), (-1.0, 3.0), Budget(1.0, 1e-5))
    data = [
        Trajectories.from_arrays([0, 1], [0, 0], rewards, lengths=[2], num_states=2, num_actions=1)
        for rewards in ([0.25, 0.5], [-50.0, 100.0])
    ]
    told = [judge.fit(one).settings for one in data]
    assert told[0] == told[1]
    assert told[0]["reward_range"] == (-1.0, 3.0)
    assert told[0]["clip"] == pytest.approx(0.9)


def test_the_certificate_and_the_noise() -> None:
    result = plain().fit(simulated(40, 5), start=[0, 1])
    assert 0.999 <= result.certificate.epsilon <= 1.0
    result.certificate.verify(strict=True)
    assert result.certificate.events == (Gaussian(result.settings["noise"], 1.0),)
    assert result.estimate == pytest.approx(float(result.predict([0, 1]).mean()))
    assert result.diagnostics is None


def test_people_streams_and_files(tmp_path: Path) -> None:
    data = simulated(40, 5, users=9)
    whole = plain().fit(data, session=PrivacySession(seed=2))
    assert whole.certificate.unit is Unit.USER
    assert whole.settings["units"] == 9
    names = data.to_parquet(tmp_path / "d.parquet")
    stream = stream_parquet(tmp_path / "d.parquet", sort=True, batch_rows=40, **names)
    streamed = plain(weight_cap=5.0).fit(stream, session=PrivacySession(seed=2))
    assert streamed.settings["units"] == 9
    np.testing.assert_allclose(weights_of(streamed), weights_of(whole), rtol=1e-9)
    whole.save(tmp_path / "r.json")
    again = Result.load(tmp_path / "r.json")
    np.testing.assert_array_equal(weights_of(again), weights_of(whole))
    assert again.certificate == whole.certificate


def test_the_ledger_is_charged_before_noise_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Floats:
        raise RuntimeError("no noise today")

    with Ledger.create(tmp_path / "l", "clinic", unit=Unit.TRAJECTORY) as ledger:
        monkeypatch.setattr(Source, "normal", broken)
        with pytest.raises(RuntimeError):
            plain().fit(simulated(40, 5), session=PrivacySession(ledger=ledger, run="first"))
        assert [entry.run for entry in ledger.entries()] == ["first"]


def test_public_data_shows_more() -> None:
    shown = plain().fit(simulated(40, 5), session=PrivacySession(public=True)).diagnostics
    assert shown is not None
    assert 0.0 <= shown["clipped"] <= 1.0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"reward_range": None}, "reward_range is needed"),
        ({"gamma": 2.0}, "gamma"),
        ({"clip": 0.0}, "clip"),
        ({"matrix_weight": -1.0}, "matrix_weight"),
        ({"weight_cap": 0.0}, "weight_cap"),
        ({"ridge": -1.0}, "ridge"),
        ({"budget": Budget(1.0)}, "delta above 0"),
        ({"precondition": np.zeros((3, 3))}, "positive definite"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plain(**changed)


def test_another_policy_needs_a_cap() -> None:
    with pytest.raises(InputError, match="weight_cap is needed"):
        plain().fit(simulated(40, 5), Tabular(JUDGED))


@pytest.mark.parametrize("given", [{"reward_range": (-1e-170, 1e-170)}, {"clip": 1e-160}])
def test_bounds_whose_squares_vanish_are_refused(given: dict[str, Any]) -> None:
    """Contributions could not be told from 0, and would pass unclipped."""
    settings = {"reward_range": (0.0, 1.0)} | given
    with pytest.raises(InputError, match="too small to compute with"):
        PrivateLSTD(OneHot(3), budget=Budget(1.0, 1e-5), **settings)
