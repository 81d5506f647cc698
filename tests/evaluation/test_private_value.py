"""PrivateValue: the bound it rests on, its noise, its figures against enumeration, its coverage."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize, spatial, stats

from privrl.data import Behavior, Tabular, Trajectories, stream_parquet
from privrl.evaluation import private_value
from privrl.evaluation.intervals import mean_by_unit
from privrl.evaluation.private_figures import COVARIANCE, INVERSE, MAP, Figures, moments
from privrl.evaluation.private_value import BOUND, PrivateValue, _to_grid
from privrl.evaluation.result import Result
from privrl.evaluation.sums import gather_sums
from privrl.privacy import (
    Budget,
    DiscreteGaussian,
    Gaussian,
    InputError,
    NoiseOrigin,
    OverBudget,
    Unit,
    accounting,
)
from privrl.privacy.ledger import Ledger
from privrl.privacy.mechanisms import GaussianMechanism, GridGaussianMechanism
from privrl.privacy.session import OpenSession, PrivacySession
from tests.evaluation import exact
from tests.statistics import FALSE_ALARM, follows

BUDGET = Budget(1.0, 1e-5)
LARGEST = max(one.ratio for one in exact.paths())


def judge(cap: float = 4.0, **changes: Any) -> PrivateValue:
    held: dict[str, Any] = {
        "budget": BUDGET,
        "weight_cap": cap,
        "gamma": exact.GAMMA,
        "horizon": exact.HORIZON,
        "reward_range": (-1.0, 2.0),
    }
    return PrivateValue(**{**held, **changes})


# --- the bound -----------------------------------------------------------------------------------


def exact_map(row: list[Fraction]) -> list[Fraction]:
    """MAP times a row, in fractions: the entries of MAP are multiples of 1/64."""
    return [
        sum((Fraction(float(m)) * x for m, x in zip(line, row, strict=True)), Fraction(0))
        for line in MAP
    ]


def square_distance(a: Any, b: Any) -> Fraction:
    """Of two rows of floats or fractions, exactly."""
    apart = zip(a, b, strict=True)
    return sum(((Fraction(x) - Fraction(y)) ** 2 for x, y in apart), Fraction(0))


def corners() -> list[list[Fraction]]:
    """The 24 points of the proof, whose means hold every contribution."""
    f = Fraction
    weights = [(f(0), f(0)), (f(1, 4), f(0)), (f(3, 4), f(1, 2)), (f(1), f(1))]
    half = [(f(1, 4), f(0)), (f(3, 4), f(1, 2)), (f(1), f(1))]
    returns = [(side * y, q) for y, q in half for side in (1, -1)]
    return [[w, w * y, y, u, u * y, u * q, w * q, q] for (w, u) in weights for (y, q) in returns]


def test_the_bound_is_what_the_corners_say() -> None:
    """The 276 distances of the proof in exact fractions, and a pair that has the largest."""
    points = [exact_map(one) for one in corners()]
    squares = [square_distance(points[i], points[j]) for j in range(len(points)) for i in range(j)]
    assert len(squares) == 276
    assert max(squares) == Fraction(1025, 1024)
    best, worst = ([Fraction(float(x)) for x in moments(1.0, y)] for y in (1.0, -1.0))
    assert square_distance(exact_map(best), exact_map(worst)) == Fraction(1025, 1024)
    # Half of it, and the margin for rounding.
    assert (2 * Fraction(BOUND)) ** 2 > Fraction(1025, 1024) * (1 + Fraction(19, 10**7))
    assert math.sqrt(1025 / 1024) / 2 * (1 + 1.1e-6) > BOUND


def test_the_diagonal_map_of_earlier_versions_moved_by_the_root_of_six() -> None:
    """They charged twice the radius of a ball, 2.650; by the same proof it was sqrt(6) = 2.449."""
    scale = [Fraction(one, 2) for one in (3, 2, 1, 1, 1, 1, 1, 1)]
    points = [[s * x for s, x in zip(scale, one, strict=True)] for one in corners()]
    squares = [square_distance(a, b) for a in points for b in points]
    assert max(squares) == 6


@pytest.mark.parametrize("outside", [False, True])
def test_the_corners_hold_every_point(outside: bool) -> None:
    """(w, w^2) and (Y, Y^2) lie in their polygons; a polygon too small is noticed."""
    x = np.linspace(-1.0, 1.0, 2001)
    points = {(float(p[2]), float(p[7])) for p in corners()}
    if outside:
        points = {(y, q) for y, q in points if abs(y) != 0.25}
    hull = spatial.Delaunay(np.array(sorted(points)))
    inside = hull.find_simplex(np.stack([x, x**2], axis=1), tol=1e-12) >= 0
    assert inside.all() is np.bool_(not outside)
    weights = spatial.Delaunay(np.array(sorted({(float(p[0]), float(p[3])) for p in corners()})))
    w = np.linspace(0.0, 1.0, 1001)
    assert (weights.find_simplex(np.stack([w, w**2], axis=1), tol=1e-12) >= 0).all()


def test_a_fine_search_finds_no_pair_further_apart() -> None:
    w, y = np.meshgrid(np.linspace(0, 1, 33), np.linspace(-1, 1, 65))
    rows = moments(w.ravel(), y.ravel()) @ MAP.T
    farthest = max(float(np.linalg.norm(rows - one, axis=1).max()) for one in rows)
    assert farthest <= 2 * BOUND
    assert farthest > 2 * BOUND * (1 - 1.1e-6)


def test_climbing_finds_no_pair_further_apart() -> None:
    """From many starts, uphill in (w, Y, w', Y'), for people with two trajectories too."""

    def apart(z: Any) -> float:
        w, y = z[::2], z[1::2]
        rows = moments(w, y).reshape(2, -1, 8).mean(axis=1) @ MAP.T
        return -float(np.linalg.norm(rows[0] - rows[1]))

    draw, box = np.random.default_rng(0), [(0.0, 1.0), (-1.0, 1.0)]
    for each in (1, 2):
        low, high = np.array(box * 2 * each).T
        starts = draw.uniform(low, high, (10, 4 * each))
        found = [optimize.minimize(apart, z, bounds=box * 2 * each).fun for z in starts]
        assert -min(found) <= 2 * BOUND
        # It does climb: most of the way from most starts.
        assert -float(np.median(found)) > 1.8 * BOUND


wild = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(
    hnp.arrays(np.float64, 6, elements=wild),
    hnp.arrays(np.float64, 6, elements=wild),
    hnp.arrays(np.float64, 6, elements=wild),
    st.sampled_from([1e-300, 0.5, 4.0, 1e300]),
    st.sampled_from([None, np.array([0, 0, 1])]),
)
def test_whatever_the_data_holds_a_person_stays_within_the_bound(
    rewards: Any, behavior: Any, target: Any, cap: float, users: Any
) -> None:
    """Probabilities, rewards and products of every kind: rows and corners are near, exactly."""
    data = Trajectories.from_arrays(
        np.zeros(6, dtype=int), np.zeros(6, dtype=int), np.zeros(6), lengths=[3, 1, 2], users=users
    )
    odd = replace(data, rewards=rewards, behavior_probs=behavior, target_probs=target)
    followed = replace(odd, target_probs=None)
    for plan, held in (
        (judge(cap), odd),
        (judge(cap, reward_range=None, return_range=(-3.0, 1e140)), odd),
        (judge(cap, on_policy=True), followed),
    ):
        rows = plan.contributions(held, None)
        assert rows.shape == (data.num_units, 8)
        ends = [MAP @ moments(w, y) for w in (0.0, 1.0) for y in (0.0, 1.0, -1.0)]
        for row in rows.tolist():
            for other in [*rows.tolist(), *ends]:
                assert square_distance(row, other) <= (2 * Fraction(BOUND)) ** 2


def test_a_person_with_too_many_trajectories_contributes_a_fixed_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Means of more than 2^26 rows are not known to be within the margin for rounding."""
    data = exact.dataset([0, 5, 9, 11], users=np.array([1, 1, 1, 2]))
    expected = judge().contributions(data, exact.TARGET)
    monkeypatch.setattr(private_value, "_MOST_TRAJECTORIES", 2)
    found = judge().contributions(data, exact.TARGET)
    assert found[0].tolist() == [0.0] * 8
    assert found[1].tolist() == expected[1].tolist()


def test_means_of_many_trajectories_keep_their_digits() -> None:
    """What the margin for rounding rests on: far less than n 2^-53 is lost over n rows."""
    n = 100_000
    w, y = np.full(n, 1.0), np.full(n, 0.1)
    units = np.zeros(n, dtype=np.int64)
    units[-1] = 1
    mean = mean_by_unit(moments(w, y), units, 2)[0]
    assert np.abs(mean - moments(1.0, 0.1)).max() <= (n + 4) * 2.0**-53


def test_bad_trajectories_contribute_a_fixed_value() -> None:
    data = exact.dataset([0, 1, 2])
    rewards, probs = data.rewards.copy(), np.array(data.behavior_probs)
    rewards[data.offsets[0]] = math.nan
    probs[data.offsets[1]] = 0.0
    odd = replace(data, rewards=rewards, behavior_probs=probs)
    w, y = judge()._weights_and_returns(odd, exact.TARGET)
    assert w[:2].tolist() == [0.0, 0.0]
    assert y[:2].tolist() == [0.0, 0.0]
    assert w[2] > 0.0
    result = judge().fit(odd, exact.TARGET)
    assert math.isfinite(result.estimate or math.nan)


def test_states_and_actions_outside_the_policy_raise_nothing() -> None:
    """An error would depend on private values; what the policy says nothing of has no weight."""
    data = Trajectories.from_arrays(
        [7, 0], [0, 5], [1.0, 1.0], lengths=[1, 1], behavior_probs=[0.5, 0.5]
    )
    w, _ = judge(cap=1.0)._weights_and_returns(data, exact.TARGET)
    assert w.tolist() == [0.0, 0.0]


# --- figures against enumeration -----------------------------------------------------------------


def capped(cap: float, lower: bool | None = None) -> float:
    """E[min(rho, c) Y], the clipped value, or an end of what is possible, from all paths."""
    low, high = judge().returns_range
    kept = [(min(one.ratio, cap) * one.behavior, one.value) for one in exact.paths()]
    mass = sum(p for p, _ in kept)
    total = sum(p * v for p, v in kept)
    if lower is None:
        return total / mass
    return total + (1.0 - mass) * (low if lower else high)


@pytest.mark.parametrize("cap", [1.1, 4.0, 1.01 * LARGEST])
def test_without_noise_figures_are_exact(cap: float) -> None:
    found = (
        judge(cap)
        .fit(exact.population(), exact.TARGET, session=PrivacySession(public=True))
        .diagnostics
    )
    assert found is not None
    plain = found["without_noise"]
    assert plain["clipped"]["estimate"] == pytest.approx(capped(cap), abs=1e-12)
    assert plain["behavior"]["estimate"] == pytest.approx(exact.value(target=False), abs=1e-12)
    low, high = capped(cap, lower=True), capped(cap, lower=False)
    assert low <= exact.value() <= high
    kept = np.array([min(one.ratio, cap) for one in exact.paths()])
    probs = np.array([one.behavior for one in exact.paths()])
    mass = float(kept @ probs)
    assert plain["weight_mass"]["estimate"] == pytest.approx(mass, abs=1e-12)
    size = 2 * 16**3 * mass**2 / float(kept**2 @ probs)
    assert plain["effective_sample_size"] == pytest.approx(size, rel=1e-10)
    share = float((kept >= cap) @ probs)
    assert found["clipped_share"] == pytest.approx(share, abs=1e-12)


def test_the_ends_of_the_interval_converge_to_what_is_possible() -> None:
    """With ever more people the interval shrinks to the identified set, and not further."""
    plan, n = judge(2.0), 10**12
    low, high = plan.returns_range
    w = np.array([min(one.ratio, 2.0) / 2.0 for one in exact.paths()])
    y = np.array([2 * (one.value - low) / (high - low) - 1 for one in exact.paths()])
    probs = np.array([one.behavior for one in exact.paths()])
    figures = Figures(n * (probs @ moments(w, y)), 100.0 * COVARIANCE, n, plan.terms)
    found = figures.target_interval()
    assert found.low == pytest.approx(capped(2.0, lower=True), abs=1e-4)
    assert found.high == pytest.approx(capped(2.0, lower=False), abs=1e-4)
    clipped = figures.clipped_interval()
    assert clipped.low == pytest.approx(capped(2.0), abs=1e-4)
    assert clipped.high == pytest.approx(capped(2.0), abs=1e-4)
    assert found.parts["clipping"] == pytest.approx((found.high - found.low) / 2, abs=1e-4)


def test_variances_are_those_of_the_data_and_of_the_noise() -> None:
    data = exact.sample(500, np.random.default_rng(0))
    plan = judge()
    w, y = plan._weights_and_returns(data, exact.TARGET)
    mixed = np.random.default_rng(1).normal(size=(8, 8))
    covariance = mixed @ mixed.T
    figures = Figures(moments(w, y).sum(axis=0), covariance, 500, plan.terms)
    for a, b, d in ((1.0, -2.0, 0.5), (0.0, 0.0, 1.0), (3.0, 0.0, 0.0)):
        z = a * w + b * w * y + d * y
        sampling, noise, quantile = figures.error((a, b, d))
        assert sampling == pytest.approx(500 * z.var(ddof=1), rel=1e-9)
        assert noise == pytest.approx(np.array([a, b, d]) @ covariance[:3, :3] @ [a, b, d])
        assert quantile > stats.norm.ppf(0.975)
        assert figures.error((a, b, d), centred=False)[0] == pytest.approx((z**2).sum())


def test_a_person_counts_once() -> None:
    """Three trajectories of one person are averaged; people weigh equally."""
    data = exact.dataset([0, 5, 9, 11], users=np.array([1, 1, 1, 2]))
    plan = judge()
    w, y = plan._weights_and_returns(data, exact.TARGET)
    rows = moments(w, y)
    expected = np.array([rows[:3].mean(axis=0), rows[3]])
    found = plan.contributions(data, exact.TARGET) @ INVERSE.T
    np.testing.assert_allclose(found, expected, atol=1e-14)
    result = plan.fit(data, exact.TARGET)
    assert result.certificate.unit is Unit.USER
    assert result.details["units"] == 2


def test_returns_follow_from_rewards() -> None:
    assert judge(gamma=1.0, horizon=10).returns_range == (-10.0, 20.0)
    assert judge(gamma=0.5, horizon=None).returns_range == (-2.0, 4.0)
    assert judge(gamma=0.5, horizon=2).returns_range == (-1.5, 3.0)
    # A trajectory may end after one step, so the least of positive rewards is that of one.
    assert judge(gamma=1.0, horizon=5, reward_range=(1.0, 2.0)).returns_range == (1.0, 10.0)
    assert judge(reward_range=None, return_range=(0.0, 1.0)).returns_range == (0.0, 1.0)


def test_the_horizon_cuts_ratios_and_rewards() -> None:
    data = exact.population()
    short = replace(judge(1.5, horizon=1), largest_ratio=None)
    w, _ = short._weights_and_returns(data, exact.TARGET)
    first = data.offsets[:-1]
    ratio = np.asarray(exact.TARGET.prob(data.states[first], data.actions[first]))
    assert data.behavior_probs is not None
    np.testing.assert_allclose(w, np.minimum(ratio / data.behavior_probs[first], 1.5) / 1.5)


# --- the release ---------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [pytest.param(False, marks=pytest.mark.slow), True])
def test_noise_has_the_promised_law_and_ten_percent_off_is_seen(
    grid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three noises of each fit, on (w, wY, Y), made independent and standardised."""
    # A thousand certificates would all say the same, and take most of the time.
    certificate = judge().fit(exact.dataset([0]), exact.TARGET).certificate
    monkeypatch.setattr(OpenSession, "certify", lambda *_, **__: certificate)
    data = exact.dataset(np.arange(200) % len(exact.paths()))
    plan = judge(1.0, grid=grid, budget=Budget(8.0, 1e-5))
    w, y = plan._weights_and_returns(data, exact.TARGET)
    low, high = plan.returns_range
    sums, seen = gather_sums(plan, data, exact.TARGET), []
    for _ in range(300 if grid else 1000):
        found = plan.release(sums)
        target, behavior = (
            (2 * (found.details[k]["estimate"] - low) / (high - low) - 1)
            for k in ("target", "behavior")
        )
        weight = found.details["weight_mass"]["estimate"] * 200
        seen.append([weight, target * weight, behavior * 200])
    mechanism = plan.mechanism
    std = mechanism.std if not grid else mechanism.width * mechanism.step  # type: ignore[union-attr]
    exactly = moments(w, y).sum(axis=0)[:3]
    whitening = np.linalg.inv(np.linalg.cholesky(COVARIANCE[:3, :3]))
    noise = ((np.array(seen) - exactly) @ whitening.T).ravel() / std
    assert follows(noise, stats.norm.cdf)
    # The sum of 3,000 squares of standard normals is chi-square: 1e-6 two-sided, and 10 % is seen.
    ends = [float(stats.chi2.ppf(p, noise.size)) for p in (FALSE_ALARM / 2, 1 - FALSE_ALARM / 2)]
    assert ends[0] < (noise**2).sum() < ends[1]
    for wrong in () if grid else (0.9, 1.1):
        assert not ends[0] < ((wrong * noise) ** 2).sum() < ends[1]


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_no_epsilon_costs_more_than_was_asked(delta: float, grid: bool) -> None:
    for power in np.linspace(-8, 1, 19):
        asked = 10.0 ** float(power)
        plan = judge(grid=grid, budget=Budget(asked, delta)).mechanism
        spent = accounting.epsilon(plan.event, delta)
        assert 0.0 < spent <= asked
        # The noise is the same on a grid as elsewhere, but for the accountant of the grid.
        free = GaussianMechanism.from_budget(BOUND, Budget(asked, delta)).std
        std = plan.width * plan.step if isinstance(plan, GridGaussianMechanism) else plan.std
        assert free * (1 - 1e-9) <= std < 2.0 * free


@pytest.mark.parametrize("grid", [False, True])
def test_noise_is_below_that_of_a_ball_around_a_diagonal_map(grid: bool) -> None:
    """What earlier versions added at the same budget: 2.650 was charged, scaled by coordinate."""
    radius = math.sqrt(337 / 192)
    whole = GridGaussianMechanism.from_budget(radius, BUDGET, dimension=8)
    plain = GaussianMechanism.from_budget(radius, BUDGET)
    std = whole.width * whole.step if grid else plain.std
    found = judge(grid=grid).fit(exact.dataset([0, 1]), exact.TARGET).details["noise_std"]
    low, high = judge().returns_range
    before = {
        "target": 4.0 * (high - low) / 2 * std * math.hypot(1 / 1.5, 1.0) / 2,
        "behavior": (high - low) / 2 * std / 0.5 / 2,
    }
    # Widths on a grid are whole numbers of steps, which are a few thousandths of them.
    loose = 1e-3 if grid else 1e-5
    assert found["target"] / before["target"] == pytest.approx(0.76921, rel=loose)
    assert found["behavior"] / before["behavior"] == pytest.approx(0.56263, rel=loose)


def test_noise_on_a_grid_is_that_of_its_event() -> None:
    plan = judge(grid=True).mechanism
    assert isinstance(plan, GridGaussianMechanism)
    assert plan.event == DiscreteGaussian(plan.width, plan.bound / plan.step, plan.dimension)


def test_the_certificate_says_what_was_done() -> None:
    data = exact.sample(100, np.random.default_rng(1))
    plain = judge().fit(data, exact.TARGET).certificate
    assert plain.events == (Gaussian(judge().mechanism.std, BOUND),)  # type: ignore[union-attr]
    assert plain.epsilon == pytest.approx(1.0, abs=1e-3)
    assert plain.unit is Unit.TRAJECTORY
    assert plain.noise is NoiseOrigin.SECURE
    assert any("idealised" in one.statement for one in plain.assumptions)
    plain.verify()
    gridded = judge(grid=True).fit(data, exact.TARGET).certificate
    (event,) = gridded.events
    assert isinstance(event, DiscreteGaussian)
    assert event.dimension == 8
    assert not any("idealised" in one.statement for one in gridded.assumptions)
    gridded.verify()
    # Rounding two contributions to the grid takes them apart by sqrt(8) steps at most.
    grid = judge(grid=True).mechanism
    assert 2 * event.bound >= 2 * BOUND / grid.step + math.sqrt(8)  # type: ignore[union-attr]
    # The grid is so fine that rounding is not seen: 10^5 people, less than a thousandth of std.
    assert 1e5 * grid.step < 0.001 * grid.width * grid.step  # type: ignore[union-attr]


@pytest.mark.parametrize("epsilon", [0.001, 1.0, 8.0])
def test_on_the_grid_no_two_people_are_further_apart_than_the_event_says(epsilon: float) -> None:
    """Corners and draws, rounded: exact integers, against 2 bound; and the budget holds."""
    budget = Budget(epsilon, 1e-5)
    grid = judge(grid=True, budget=budget).mechanism
    assert isinstance(grid, GridGaussianMechanism)
    draw = np.random.default_rng(0)
    w = np.concatenate([[1.0, 1.0, 0.0, 0.0], draw.uniform(size=60)])
    y = np.concatenate([[1.0, -1.0, 1.0, -1.0], draw.uniform(-1, 1, 60)])
    whole = [[int(x) for x in row] for row in _to_grid(moments(w, y) @ MAP.T, grid.step)]
    event = grid.event
    assert isinstance(event, DiscreteGaussian)
    most = (2 * Fraction(event.bound)) ** 2
    assert max(square_distance(a, b) for a in whole for b in whole) <= most
    assert 0.999 * epsilon < accounting.epsilon(event, budget.delta) <= epsilon


def test_a_stream_gives_what_the_whole_gives(tmp_path: Path) -> None:
    data = exact.sample(300, np.random.default_rng(2), trips=2)
    columns = data.to_parquet(tmp_path / "stays.parquet")
    stream = stream_parquet(tmp_path / "stays.parquet", batch_rows=50, **columns)
    for grid in (False, True):
        one = judge(grid=grid).fit(data, exact.TARGET, session=PrivacySession(seed=5))
        other = judge(grid=grid).fit(stream, exact.TARGET, session=PrivacySession(seed=5))
        assert other.estimate == pytest.approx(one.estimate, abs=1e-12)
        assert other.details["units"] == 300
        assert other.certificate.unit is Unit.USER
        assert one.certificate.noise is NoiseOrigin.REPRODUCIBLE


def test_spending_comes_first_and_may_be_refused(tmp_path: Path) -> None:
    data = exact.sample(50, np.random.default_rng(3))
    ledger = Ledger.create(
        tmp_path / "ledger", "people", unit=Unit.TRAJECTORY, limit=Budget(1.2, 1e-5)
    )
    first = judge().fit(data, exact.TARGET, session=PrivacySession(ledger=ledger, run="one"))
    assert first.certificate.population is not None
    with pytest.raises(OverBudget):
        judge().fit(data, exact.TARGET, session=PrivacySession(ledger=ledger, run="two"))
    with pytest.raises(InputError, match="run's name"):
        judge().fit(data, exact.TARGET, session=PrivacySession(ledger=ledger))


def test_a_saved_result_keeps_its_figures(tmp_path: Path) -> None:
    found = judge().fit(exact.sample(100, np.random.default_rng(4)), exact.TARGET)
    found.save(tmp_path / "value.json")
    again = Result.load(tmp_path / "value.json")
    assert again.details == found.details
    assert again.certificate == found.certificate
    assert again.diagnostics is None


def test_nothing_useful_in_little_data_but_nothing_wrong_either() -> None:
    """Two people: the interval is (almost) everything that is possible, and holds the estimate."""
    for largest in (None, LARGEST):
        found = judge(LARGEST, largest_ratio=largest).fit(exact.dataset([0, 1]), exact.TARGET)
        assert found.interval is not None
        low, high = judge().returns_range
        assert (
            low <= found.interval.low <= float(found.estimate or 0) <= found.interval.high <= high
        )
        assert found.interval.high - found.interval.low > 0.5 * (high - low)


def test_on_policy_data_needs_no_probabilities() -> None:
    data = exact.population()
    bare = replace(data, behavior_probs=None)
    found = judge(1.0, largest_ratio=1.0).fit(bare, session=PrivacySession(public=True))
    assert found.diagnostics is not None
    plain = found.diagnostics["without_noise"]
    assert plain["target"]["estimate"] == pytest.approx(exact.value(target=False))
    assert plain["difference"]["estimate"] == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(InputError, match="Behaviour probabilities are needed"):
        judge().fit(bare, exact.TARGET)


@pytest.mark.parametrize("grid", [False, True])
def test_the_followed_policy_alone_is_told_and_needs_less_noise(grid: bool) -> None:
    data = replace(exact.population(), behavior_probs=None)
    public = PrivacySession(public=True)
    alone = judge(4.0, on_policy=True, grid=grid)
    found = alone.fit(data, session=public)
    assert found.diagnostics is not None
    plain = found.diagnostics["without_noise"]
    assert plain["behavior"]["estimate"] == pytest.approx(exact.value(target=False))
    assert set(found.details) == {"behavior", "units", "noise_std"}
    assert found.estimate == found.details["behavior"]["estimate"]
    assert found.notes == ("The policy that was followed is judged: all ratios are 1.",)
    with pytest.raises(InputError, match="give no other"):
        alone.fit(data, exact.TARGET)
    # What is charged is what is charged off-policy; of it, least squares make more.
    assert alone.mechanism == judge(4.0, grid=grid).mechanism
    compared = judge(4.0, grid=grid).fit(data, session=public).details["noise_std"]["behavior"]
    assert found.details["noise_std"]["behavior"] < 0.68 * compared
    # The noise that is stated is there: 20,000 draws know it to half a percent.
    total, count = alone.contributions(data, None).sum(axis=0), data.num_units
    draws = np.random.default_rng(0).normal(size=(20_000, 8))
    told = alone.figures(total, 1.0, count)
    moved = np.array([alone.figures(total + one, 1.0, count).sums[[2, 7]] for one in draws])
    np.testing.assert_allclose(moved.mean(axis=0), told.sums[[2, 7]], atol=0.08)
    np.testing.assert_allclose(moved.std(axis=0), told.stds[[2, 7]], rtol=0.03)


def test_whoever_is_not_valid_counts_as_the_middle_where_no_other_policy_is_judged() -> None:
    data = exact.dataset([0, 1])
    rewards = np.array(data.rewards)
    rewards[0] = np.nan
    bad = judge(4.0, on_policy=True).contributions(replace(data, rewards=rewards), None)
    np.testing.assert_allclose(bad[0], MAP @ moments(1.0, 0.0), atol=1e-12)


def test_unpaid_estimates_of_behaviour_are_refused() -> None:
    data = replace(exact.dataset([0]), behavior=Behavior("estimated", "counts"))
    with pytest.raises(InputError, match="estimated from this very data"):
        judge().fit(data, exact.TARGET)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"budget": 1.0}, "Budget"),
        ({"budget": Budget(1.0)}, "delta above 0"),
        ({"weight_cap": 0.0}, "weight_cap"),
        ({"reward_range": None}, "reward_range is needed"),
        ({"return_range": (0.0, 1.0)}, "reward_range is needed"),
        ({"gamma": 1.0, "horizon": None}, "horizon is needed"),
        ({"reward_range": (1.0, 1.0), "horizon": 1}, "range of returns"),
        ({"reward_range": (-math.inf, 1.0)}, "range of returns"),
        ({"reward_range": (0.0, 1e305)}, "scale the rewards"),
        ({"reward_range": (-1e141, 0.0)}, "scale the rewards"),
        ({"largest_ratio": 0.5}, "at least 1"),
        ({"horizon": 0}, "horizon"),
        ({"level": 0.0}, "level"),
    ],
)
def test_what_is_public_is_asked_for(change: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        judge(**{"cap": change.pop("weight_cap", 4.0), **change})


def test_policies_that_do_not_fit_the_declared_shape() -> None:
    data = exact.dataset([0])
    with pytest.raises(InputError, match="3 actions"):
        judge().fit(data, Tabular.uniform(3, 3))
    vectors = Trajectories.from_arrays([[0.0]], [0], [0.0], lengths=[1], behavior_probs=[1.0])
    with pytest.raises(InputError, match="data has vectors"):
        judge().fit(vectors, exact.TARGET)
    continuous = Trajectories.from_arrays([0], [[0.5]], [0.0], lengths=[1], behavior_probs=[1.0])
    with pytest.raises(InputError, match="finitely many"):
        judge().fit(continuous, exact.TARGET)


@pytest.mark.slow
def test_intervals_cover_as_often_as_they_say() -> None:
    """At most one false alarm in 10^6 for each figure; see benchmarks/coverage.py."""
    from benchmarks import coverage

    row: Any
    for row in coverage.run(rounds=400):
        assert stats.binom.cdf(row["hits"], row["rounds"], row["level"]) > FALSE_ALARM, row
