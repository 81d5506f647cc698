"""DP-LSW: first visits by brute force, sensitivity for any neighbours, nothing told of noise."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privrl.data import Fourier, FunctionFeatures, OneHot, Polynomial, Tabular, Trajectories
from privrl.data.columns import Facts
from privrl.evaluation.dplsl import DPLSL
from privrl.evaluation.dplsw import DPLSW, OutputPerturbation, discounted, first_visits, local_lsw
from privrl.evaluation.result import Result
from privrl.papers.xie2019 import output_perturbation as published
from privrl.privacy import ApproxDP, Budget, InputError, Ledger, Unit
from privrl.privacy.mechanisms.smooth import SmoothMechanism
from privrl.privacy.noise import Source
from privrl.privacy.session import PrivacySession
from tests.evaluation.test_bellman_error import JUDGED, simulated, weights_of
from tests.evaluation.test_private_gtd import people, person

Floats = NDArray[np.float64]

BUDGET = Budget(1.0, 1e-5)


def plain(kind: Any = DPLSW, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "features": OneHot(3),
        "reward_range": (-0.5, 2.0),
        "budget": BUDGET,
        "gamma": 0.9,
    }
    return kind(**{**given, **changed})


def silent(self: Source, std: float, shape: tuple[int, ...]) -> Floats:
    """No noise."""
    return np.zeros(shape)


def on_policy(data: Trajectories) -> Trajectories:
    """Without the target's probabilities."""
    return replace(data, target_probs=None)


def exact_of(judge: OutputPerturbation, data: Trajectories) -> Floats:
    """The weights before noise is added."""
    kept: list[Floats] = []

    def keep(self: SmoothMechanism, value: Any, scale: float, source: Source) -> Any:
        kept.append(np.array(value))
        return value, self.event

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SmoothMechanism, "release", keep)
        judge.fit(data)
    return kept[0]


def scale_of(judge: OutputPerturbation, data: Trajectories) -> float:
    """The smooth sensitivity of the data."""
    kept: list[float] = []

    def keep(self: SmoothMechanism, value: Any, scale: float, source: Source) -> Any:
        kept.append(scale)
        return value, self.event

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SmoothMechanism, "release", keep)
        judge.fit(data)
    return kept[0]


def _brute_force(
    data: Trajectories, gamma: float, horizon: int | None = None
) -> tuple[Floats, Floats]:
    """For each state, how many people visit it, and the sum of their mean returns."""
    counts, sums = np.zeros(3), np.zeros(3)
    for unit in range(data.num_units):
        seen: dict[int, list[float]] = {}
        for one in np.flatnonzero(data.unit_index == unit):
            x = data[int(one)]
            states = x.states.tolist()[:horizon]
            for s in set(states):
                t = states.index(s)
                later = x.rewards[t:horizon]
                seen.setdefault(s, []).append(float(later @ gamma ** np.arange(len(later))))
        for s, returns in seen.items():
            counts[s] += 1
            sums[s] += np.mean(returns)
    return counts, sums


@pytest.mark.parametrize("users", [None, 11])
def test_first_visits_are_those_of_a_loop(users: int | None) -> None:
    data = simulated(60, 2, users)
    found = first_visits(data, 3, 0.9, (-0.5, 2.0), (-math.inf, math.inf))
    counts, sums = _brute_force(data, 0.9)
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_allclose(found.sums, sums, rtol=1e-12)
    assert found.units == (users or 60)


@pytest.mark.parametrize("horizon", [1, 2, 5, 10**9])
@pytest.mark.parametrize("users", [None, 11])
def test_steps_beyond_the_horizon_count_for_nothing(users: int | None, horizon: int) -> None:
    data = simulated(60, 2, users)
    found = first_visits(
        data, 3, 0.9, (-0.5, 2.0), (-math.inf, math.inf), width=4.0, horizon=horizon
    )
    counts, sums = _brute_force(data, 0.9, horizon)
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_allclose(found.sums, sums / 4.0, rtol=1e-12)
    # Others do not count at all: neither their states nor what they pay.
    step = np.arange(data.num_steps) - np.repeat(data.offsets[:-1], data.lengths)
    late = step >= horizon
    assert late.any() or horizon > data.lengths.max()
    other = replace(
        data,
        states=np.where(late, 0, data.states),
        rewards=np.where(late, math.nan, data.rewards),
    )
    for judge in (plain(horizon=horizon), DPLSL(OneHot(3), (-0.5, 2.0), BUDGET, horizon=horizon)):
        one, two = (judge.gather(on_policy(x)).total for x in (data, other))
        np.testing.assert_array_equal(one, two)


def test_the_horizon_bounds_returns() -> None:
    assert plain(gamma=1.0, horizon=4).returns_range() == (-2.0, 8.0)
    assert plain(gamma=1.0, horizon=4, return_bound=3.0).returns_range() == (-2.0, 3.0)
    assert plain(gamma=0.5, horizon=2).returns_range() == (-0.75, 3.0)
    assert plain(gamma=0.0, horizon=2).returns_range() == (-0.5, 2.0)
    assert plain(horizon=10**6).returns_range() == plain().returns_range()
    data = simulated(60, 2)
    assert plain(horizon=2).fit(data).settings["horizon"] == 2
    assert "horizon" not in plain().fit(data).settings


@pytest.mark.parametrize("gamma", [0.0, 1e-200, 0.3, 0.9, 0.999, 1.0])
def test_returns_of_long_trajectories_are_those_of_a_loop(gamma: float) -> None:
    """Lengths about a block (64) and a block of blocks; blocks come from the end of each."""
    rng = np.random.default_rng(3)
    around = [n + d for n in (64, 128, 64 * 64, 64 * 65, 2 * 64 * 64) for d in (-1, 0, 1)]
    lengths = np.array([1, 2, *around, 1, 20_000, 63, 3])
    rewards = rng.uniform(-1.0, 2.0, lengths.sum())
    wanted, end = np.empty(lengths.sum()), 0
    for length in lengths:
        end, later = end + length, 0.0
        for row in range(end - 1, end - length - 1, -1):
            wanted[row] = later = rewards[row] + gamma * later
    found = discounted(rewards, lengths, gamma, (-1.0, 2.0))
    # Each of n additions is off by 2^-53 of a sum of at most 2 n, or 2 / (1 - gamma).
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=20_000 * 40_000 * 2.0**-53)
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-9)
    # Nobody's returns depend on who else is there, to the last bit.
    place = int(np.flatnonzero(lengths == 20_000)[0])
    rows = slice(int(lengths[:place].sum()), int(lengths[: place + 1].sum()))
    alone = discounted(rewards[rows], lengths[place : place + 1], gamma, (-1.0, 2.0))
    np.testing.assert_array_equal(found[rows], alone)


def test_returns_by_hand() -> None:
    data = Trajectories.from_arrays(
        [0, 1, 0, 2, 2], [0] * 5, [1.0, 2.0, 4.0, 8.0, 16.0], lengths=[3, 2], num_actions=1
    )
    returns = discounted(data.rewards, data.lengths, 0.5, (0.0, 10.0))
    np.testing.assert_array_equal(returns, [3.0, 4.0, 4.0, 13.0, 10.0])  # 16 was clipped
    found = first_visits(data, 3, 0.5, (0.0, 10.0), (0.0, 12.0))
    np.testing.assert_array_equal(found.counts, [1, 1, 1])
    np.testing.assert_array_equal(found.sums, [3.0, 4.0, 12.0])


def test_without_noise_it_is_monte_carlo(monkeypatch: pytest.MonkeyPatch) -> None:
    data = simulated(60, 2)
    monkeypatch.setattr(Source, "normal", silent)
    counts, sums = _brute_force(data, 0.9)
    means = sums / np.maximum(counts, 1)
    np.testing.assert_allclose(weights_of(plain().fit(data)), means, rtol=1e-12)
    weights = np.array([0.7, 0.3, 0.0])
    line = Polynomial(1, 0.0, 2.0)
    judge = plain(features=line, num_states=3, state_weights=weights)
    found = weights_of(judge.fit(data))
    phi = np.asarray(line(np.arange(3)))
    wanted = np.linalg.lstsq(np.sqrt(weights)[:, None] * phi, np.sqrt(weights) * means)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


@settings(max_examples=60)
@given(
    st.lists(person, min_size=1, max_size=4),
    person,
    st.integers(0, 3),
    st.sampled_from([DPLSW, published.DPLSW]),
    st.sampled_from([None, 1.5]),
)
def test_neighbours_are_within_the_smooth_bound_and_the_bound_is_smooth(
    owned: list[Any], other: Any, which: int, kind: type[DPLSW], limit: float | None
) -> None:
    which %= len(owned)
    here = on_policy(people(*owned))
    there = on_policy(people(*[other if i == which else x for i, x in enumerate(owned)]))
    judge = plain(kind, return_bound=limit)
    values = [exact_of(judge, data) for data in (here, there)]
    bounds = [scale_of(judge, data) for data in (here, there)]
    assert np.linalg.norm(values[0] - values[1]) <= min(bounds) * (1.0 + 1e-9)
    beta = judge.mechanism().beta * (1.0 + 1e-9)
    assert math.exp(-beta) <= bounds[0] / bounds[1] <= math.exp(beta)


@settings(max_examples=80)
@given(
    st.lists(person, min_size=1, max_size=4),
    person,
    st.integers(0, 3),
    st.sampled_from([DPLSW, DPLSL, published.DPLSW, published.DPLSL]),
    st.sampled_from([1.0, 1e139, 1e-139]),
    st.sampled_from([(0.0, 1.0), (-1.0, 0.25), (0.5, 1.0)]),
    st.sampled_from([None, 1, 2]),
)
def test_neighbours_are_within_the_bound_whatever_the_units(
    owned: list[Any],
    other: Any,
    which: int,
    kind: Any,
    size: float,
    ends: tuple[float, float],
    horizon: int | None,
) -> None:
    which %= len(owned)
    judge = plain(
        kind,
        reward_range=(size * ends[0], size * ends[1]),
        gamma=0.5,
        horizon=horizon,
    )
    values, bounds = [], []
    for listed in (owned, [other if i == which else x for i, x in enumerate(owned)]):
        data = on_policy(people(*listed))
        with np.errstate(over="ignore"):
            data = replace(data, rewards=size * data.rewards)
        values.append(exact_of(judge, data))
        bounds.append(scale_of(judge, data))
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(bounds))
    assert min(bounds) > 0.0
    assert np.linalg.norm(values[0] - values[1]) <= min(bounds) * (1.0 + 1e-9)
    beta = judge.mechanism().beta * (1.0 + 1e-9)
    assert math.exp(-beta) <= bounds[0] / bounds[1] <= math.exp(beta)


@pytest.mark.parametrize("size", [1e-139, 1.0, 1e139])
@pytest.mark.parametrize("kind", [DPLSW, DPLSL, published.DPLSW, published.DPLSL])
def test_other_units_change_nothing_but_units(kind: Any, size: float) -> None:
    data = simulated(60, 2)
    larger = replace(data, rewards=size * data.rewards)
    plainly = plain(kind, reward_range=(0.0, 2.0), gamma=0.5)
    scaled = plain(kind, reward_range=(0.0, 2.0 * size), gamma=0.5)
    np.testing.assert_allclose(exact_of(scaled, larger), size * exact_of(plainly, data), rtol=1e-12)
    assert scale_of(scaled, larger) == pytest.approx(size * scale_of(plainly, data), rel=1e-12)


@pytest.mark.parametrize("kind", [DPLSW, DPLSL, published.DPLSW, published.DPLSL])
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"reward_range": (0.0, 1e305)}, "reward_range must be within"),
        ({"reward_range": (-1e305, 0.0), "return_bound": 1.0}, "reward_range must be within"),
        ({"reward_range": (0.0, 1e-321)}, "range of returns must be 1e-140 to 1e.140 wide"),
        ({"reward_range": (0.0, 1e139), "gamma": 0.99}, "range of returns must be"),
        ({"return_bound": 1e-200}, "range of returns must be"),
        ({"state_weights": [1e308] * 3}, "state_weights cannot be computed with"),
        ({"state_weights": [0.0, 1e-200, 0.0]}, "state_weights cannot be computed with"),
    ],
)
def test_what_cannot_be_computed_with_is_refused_before_data_are_there(
    kind: Any, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        plain(kind, **changed)


@pytest.mark.parametrize("kind", [DPLSW, DPLSL])
@pytest.mark.parametrize("size", [0.0, 1e-80, 1e80])
def test_features_that_cannot_be_computed_with_are_refused(kind: Any, size: float) -> None:
    features = FunctionFeatures(lambda states: size * np.ones((len(states), 1)), 1, 1e100)
    judge = plain(kind, features=features, num_states=3)
    for data in (simulated(60, 2), simulated(3, 2)):
        with pytest.raises(InputError, match="features cannot be computed with"):
            judge.fit(on_policy(data))


def test_the_bound_is_reached_so_the_test_above_could_fail() -> None:
    judge = plain(features=OneHot(1), reward_range=(0.0, 1.0), return_bound=1.0)
    pair = [
        replace(people([([(0, reward, 1.0)], True)]), facts=Facts(num_states=1))
        for reward in (0.0, 1.0)
    ]
    values = [exact_of(judge, on_policy(x)) for x in pair]
    assert np.linalg.norm(values[0] - values[1]) == pytest.approx(1.0)
    assert scale_of(judge, on_policy(pair[0])) == pytest.approx(1.0)


def test_the_local_bound_is_the_formula() -> None:
    weights, counts = np.array([0.2, 0.3, 0.5]), np.array([7, 2, 7])
    k = np.arange(10)
    wanted = [
        3.0 * math.sqrt(sum(w / max(n - j, 1) ** 2 for w, n in zip(weights, counts, strict=True)))
        for j in k
    ]
    np.testing.assert_allclose(local_lsw(3.0, weights, counts, k), wanted, rtol=1e-12)


def test_published_constants_are_the_papers() -> None:
    data, d = simulated(60, 2), 3
    judge = plain(published.DPLSW, reward_range=(0.0, 2.0))
    mechanism = judge.mechanism()
    assert mechanism.alpha == pytest.approx(5.0 * math.sqrt(2.0 * math.log(2e5)))
    assert mechanism.beta == pytest.approx(1.0 / (4.0 * (d + math.log(2e5))))
    counts = _brute_force(data, 0.9)[0]
    psi = max(
        math.exp(-k * mechanism.beta) * sum(1 / 3 / max(n - k, 1) ** 2 for n in counts)
        for k in range(61)
    )
    wanted = 2.0 / 0.1 * math.sqrt(3.0) * math.sqrt(psi)
    assert scale_of(judge, data) == pytest.approx(wanted, rel=1e-9)
    better = plain(reward_range=(0.0, 2.0))
    less = better.mechanism().alpha * scale_of(better, data)
    assert less < mechanism.alpha * wanted / 4.0


def test_the_certificate_tells_nothing_of_the_noise(tmp_path: Path) -> None:
    result = plain().fit(simulated(60, 2, users=20), start=[0, 1])
    assert result.certificate.events == (ApproxDP(1.0, 1e-5),)
    assert result.certificate.epsilon == pytest.approx(1.0)
    assert result.certificate.unit is Unit.USER
    result.certificate.verify(strict=True)
    assert result.diagnostics is None
    written = result.to_dict()
    assert "noise" not in written["settings"]
    result.save(tmp_path / "r.json")
    again = Result.load(tmp_path / "r.json")
    np.testing.assert_array_equal(weights_of(again), weights_of(result))
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads(json.dumps(written))
    shown = plain().fit(simulated(60, 2), session=PrivacySession(public=True)).diagnostics
    assert shown is not None
    assert shown["noise"] > 0.0


def test_the_ledger_is_charged_before_noise_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Floats:
        raise RuntimeError("no noise today")

    with Ledger.create(tmp_path / "l", "clinic", unit=Unit.TRAJECTORY) as ledger:
        monkeypatch.setattr(Source, "normal", broken)
        with pytest.raises(RuntimeError):
            plain().fit(simulated(60, 2), session=PrivacySession(ledger=ledger, run="first"))
        assert [entry.run for entry in ledger.entries()] == ["first"]


def test_where_it_is_not_private_it_is_refused() -> None:
    data = simulated(60, 2)
    with pytest.raises(InputError, match="not private off-policy"):
        plain().fit(data, Tabular(JUDGED))
    with pytest.raises(InputError, match="not private off-policy"):
        plain().fit(data.with_target(Tabular(JUDGED)))
    continuous = Trajectories.from_arrays([[0.5], [0.25]], [0, 0], [0.0, 1.0], lengths=[2])
    with pytest.raises(InputError, match="continuous"):
        plain().fit(continuous)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"reward_range": None}, "reward_range is needed"),
        ({"gamma": 1.0}, "return_bound is needed"),
        ({"return_bound": 0.0}, "return_bound"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 1.5}, "horizon"),
        ({"budget": Budget(1.0)}, "delta above 0"),
        ({"state_weights": [1.0]}, "3 entries"),
        ({"state_weights": [-1.0, 1.0, 1.0]}, "zero or more"),
        ({"state_weights": [0.0, 0.0, 0.0]}, "not all zero"),
        ({"state_weights": "abc"}, "numbers"),
        ({"features": Fourier(1, [0.0], [2.0])}, "num_states is needed"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plain(**changed)


@pytest.mark.parametrize("judge", [plain(), DPLSL(OneHot(3), (-0.5, 2.0), BUDGET, gamma=0.9)])
def test_states_numbered_by_reading_the_data_are_refused(judge: Any) -> None:
    """One person's new word would move everybody else's states to other features."""

    def of(word: str, **known: Any) -> Trajectories:
        table = {
            "t": [0, 1, 2],
            "s": [word, "mild", "severe"],
            "a": [0, 0, 0],
            "r": [0.0, 0.0, 1.0],
        }
        columns: Any = {"trajectory": "t", "state": "s", "action": "a", "reward": "r"}
        return Trajectories.from_table(pa.table(table), terminated=True, **columns, **known)

    assert of("mild").states[1] != of("a new word").states[1]
    for word in ("mild", "a new word"):
        with pytest.raises(InputError, match="read from this very data"):
            judge.fit(of(word))
    assert judge.fit(of("mild"), session=PrivacySession(public=True)).diagnostics is not None
    named = of("mild", state_vocabulary=["mild", "severe", "a new word"])
    assert judge.fit(named).certificate.epsilon == pytest.approx(1.0)
