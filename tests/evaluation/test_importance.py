"""Weighted returns against the list of all trajectories."""

import math

import numpy as np
import pytest

from privrl.data import Tabular, Trajectories
from privrl.evaluation.importance import IS, PDIS, WIS, WPDIS, ValueEstimator, weight_trajectories
from privrl.privacy import InputError
from tests.evaluation import exact

ALL = (IS, PDIS, WIS, WPDIS)


@pytest.mark.parametrize("kind", ALL)
def test_on_the_whole_population_each_is_the_exact_value(kind: type[ValueEstimator]) -> None:
    found = kind(gamma=exact.GAMMA).fit(exact.population(), exact.TARGET)
    assert found.estimate == pytest.approx(exact.value(), abs=1e-12)
    behavior, difference = (found.details[name]["estimate"] for name in ("behavior", "difference"))
    assert behavior == pytest.approx(exact.value(target=False), abs=1e-12)
    assert difference == pytest.approx(exact.value() - exact.value(target=False), abs=1e-12)


def test_expectations_over_single_trajectories_are_exact() -> None:
    """IS and PDIS of one trajectory, averaged over all of them with their probabilities."""
    for kind in (IS, PDIS):
        expected = sum(
            one.behavior
            * float(kind(gamma=exact.GAMMA).fit(exact.dataset([k]), exact.TARGET).estimate or 0)
            for k, one in enumerate(exact.paths())
        )
        assert expected == pytest.approx(exact.value(), abs=1e-12)


def test_each_weight_is_the_ratio_of_the_path_probabilities() -> None:
    data = exact.dataset(list(range(len(exact.paths()))))
    sides = weight_trajectories(data, exact.TARGET, exact.GAMMA)
    np.testing.assert_allclose(
        np.exp(sides.log_weights[:, -1]), [one.ratio for one in exact.paths()], rtol=1e-13
    )
    np.testing.assert_allclose(sides.returns, [one.value for one in exact.paths()], rtol=1e-13)


def test_a_weighted_estimate_of_a_constant_is_the_constant() -> None:
    data = exact.sample(50, np.random.default_rng(0))
    same = Trajectories.from_arrays(
        data.states,
        data.actions,
        np.ones(data.num_steps),
        lengths=data.lengths,
        behavior_probs=data.behavior_probs,
    )
    one = WIS(gamma=0.0).fit(same, exact.TARGET)
    assert one.estimate == pytest.approx(1.0, abs=1e-14)
    assert one.interval is not None
    assert one.interval.high - one.interval.low < 1e-12


def test_dropping_trajectories_that_ended_would_not_be_the_value() -> None:
    """The convention matters: survivors alone give another number, even with endless data."""
    sides = weight_trajectories(exact.population(), exact.TARGET, exact.GAMMA)
    weights = np.exp(sides.log_weights)
    survivors = np.where(sides.mask, weights, 0.0)
    wrong = ((weights * sides.rewards).sum(axis=0) / survivors.sum(axis=0)).sum()
    assert abs(wrong - exact.value()) > 0.05


def test_people_count_equally() -> None:
    data = exact.dataset([0, 5, 9], users=np.array([7, 7, 8]))
    whole = IS(gamma=exact.GAMMA).fit(data, exact.TARGET)
    each = [one.ratio * one.value for one in exact.paths()]
    assert whole.estimate == pytest.approx(((each[0] + each[5]) / 2 + each[9]) / 2)
    assert whole.details["units"] == 2
    values = np.array([(each[0] + each[5]) / 2, each[9]])
    half = 12.706204736432095 * values.std(ddof=1) / math.sqrt(2)  # t with one degree of freedom
    assert whole.interval is not None
    assert whole.interval.high - float(whole.estimate or 0) == pytest.approx(half)


def test_effective_sample_sizes_and_support() -> None:
    data = exact.sample(400, np.random.default_rng(1))
    found = WPDIS(gamma=exact.GAMMA, support_floor=0.3).fit(data, exact.TARGET).details
    weights = np.exp(weight_trajectories(data, exact.TARGET, 1.0).log_weights)
    by_step = weights.sum(axis=0) ** 2 / (weights**2).sum(axis=0)
    np.testing.assert_allclose(found["effective_sample_size_by_step"], by_step)
    assert found["effective_sample_size"] == pytest.approx(by_step[-1])
    assert found["largest_weight_share"] == pytest.approx(
        weights[:, -1].max() / weights[:, -1].sum()
    )
    assert data.behavior_probs is not None
    assert found["low_support_share"] == pytest.approx(float(np.mean(data.behavior_probs < 0.3)))
    on_policy = WIS().fit(exact.population(), exact.BEHAVIOR).details
    assert on_policy["effective_sample_size"] == pytest.approx(2 * 16**3)


def test_long_products_neither_overflow_nor_vanish() -> None:
    """2,000 steps with ratio 2 or 1/2: the product is far outside floating point's range."""
    n, steps = 6, 2000
    actions = np.zeros(n * steps, dtype=int)
    probs = np.where(np.repeat(np.arange(n) % 2 == 0, steps), 0.45, 0.5)
    data = Trajectories.from_arrays(
        np.zeros(n * steps, dtype=int),
        actions,
        np.repeat(np.arange(n) % 2 == 0, steps) * 1.0,
        lengths=np.full(n, steps),
        behavior_probs=probs,
    )
    sure = Tabular(np.array([[0.99, 0.01]]))
    assert WIS(gamma=0.0).fit(data, sure).estimate == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(InputError, match="weight_cap"):
        IS().fit(data, sure)
    capped = IS(gamma=0.0, weight_cap=10.0).fit(data, sure)
    assert capped.estimate == pytest.approx(5.0)


def test_horizon_cuts_rewards_and_ratios() -> None:
    full = exact.population()
    first = PDIS(gamma=exact.GAMMA, horizon=1).fit(full, exact.TARGET)
    expected = exact.START @ (exact.TARGET.table * exact.REWARDS).sum(axis=1)
    assert first.estimate == pytest.approx(expected, abs=1e-12)
    longer = PDIS(gamma=exact.GAMMA, horizon=9).fit(full, exact.TARGET)
    assert longer.estimate == pytest.approx(exact.value(), abs=1e-12)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"gamma": 1.5}, "gamma"),
        ({"level": 1.0}, "level"),
        ({"interval": "normal"}, "interval must be"),
        ({"interval": "bernstein"}, "bounds are needed"),
        ({"bounds": (1.0, 0.0)}, "bounds must be"),
        ({"weight_cap": 0.0}, "weight_cap"),
        ({"horizon": 0}, "horizon"),
        ({"draws": 0}, "draws"),
        ({"support_floor": 2.0}, "support_floor"),
    ],
)
def test_bad_settings(settings: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        IS(**settings)  # type: ignore[arg-type]


def test_nothing_in_common() -> None:
    data = Trajectories.from_arrays([0], [0], [1.0], lengths=[1], behavior_probs=[0.5])
    never = Tabular(np.array([[0.0, 1.0]]))
    assert IS().fit(data, never).estimate == 0.0
    with pytest.raises(InputError, match="nothing in common"):
        WIS().fit(data, never)
    with pytest.raises(InputError, match="data must be Trajectories"):
        IS().fit("data", never)  # type: ignore[arg-type]
    on_policy = PDIS().fit(data)
    assert on_policy.estimate == 1.0


def test_a_value_that_hangs_on_one_trajectory_has_no_end_of_an_interval() -> None:
    data = Trajectories.from_arrays(
        [0] * 9, [0] + [1] * 8, np.arange(9.0), lengths=[1] * 9, behavior_probs=[0.5] * 9
    )
    first_only = Tabular(np.array([[1.0, 0.0]]))
    for kind in (WIS, WPDIS):
        found = kind().fit(data, first_only)
        assert found.estimate == 0.0
        assert found.interval is not None
        assert (found.interval.low, found.interval.high) == (-math.inf, math.inf)
        assert found.details["difference"]["interval"]["low"] is None
        assert found.details["behavior"]["interval"]["low"] is not None


@pytest.mark.parametrize("kind", ALL)
def test_numbers_too_large_are_said_to_be_so(kind: type[ValueEstimator]) -> None:
    def of(rewards: list[float], probs: list[float]) -> Trajectories:
        return Trajectories.from_arrays(
            [0, 0], [0, 0], rewards, lengths=[1, 1], behavior_probs=probs
        )

    policy = Tabular(np.array([[0.9, 0.1]]))
    with pytest.raises(InputError, match="too large for numbers"):
        kind().fit(of([1e308, 1e308], [0.5, 0.5]), policy)
    with pytest.raises(InputError, match="ratio is too large"):
        kind().fit(of([1.0, 1.0], [1e-310, 0.5]), policy)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"bounds": 3}, "bounds must be"),
        ({"bounds": (0, 1, 2)}, "bounds must be"),
        ({"seed": -1}, "seed"),
    ],
)
def test_more_bad_settings(settings: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        IS(**settings)  # type: ignore[arg-type]
