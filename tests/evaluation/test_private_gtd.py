"""PrivateGTD: its limit without noise, its sensitivity for any data, its price."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from privrl.data import Fourier, OneHot, Polynomial, Tabular, Trajectories, stream_parquet
from privrl.evaluation import allotment, bellman_error
from privrl.evaluation.allotment import keyed_uniforms
from privrl.evaluation.bellman_error import UnitMoments, exact_moments, mspbe, unit_moments
from privrl.evaluation.gtd_iterations import Form, GTDRun, clipped_sum, contributions
from privrl.evaluation.precondition import public_gram, whitening_matrix
from privrl.evaluation.private_gtd import PrivateGTD
from privrl.evaluation.result import Result
from privrl.privacy import (
    Budget,
    Gaussian,
    InputError,
    Ledger,
    NoiseOrigin,
    OverBudget,
    PoissonSampled,
    RandomAllocation,
    Release,
    Repeated,
    Unit,
)
from privrl.privacy.accounting import epsilon
from privrl.privacy.mechanisms import GaussianMechanism
from privrl.privacy.noise import Source, secure
from privrl.privacy.plan import NoisyPlan, PoissonBatches
from privrl.privacy.session import PrivacySession
from tests.evaluation.test_bellman_error import (
    JUDGED,
    LOGGED,
    dense_one_hot,
    simulated,
    small,
    solution,
    weights_of,
)
from tests.statistics import follows

Floats = NDArray[np.float64]

BUDGET = Budget(1.0, 1e-5)


def silent(rate: float = 1.0) -> NoisyPlan:
    """Noise that rounding swallows."""
    return NoisyPlan(1e-200, PoissonBatches(rate, 1))


FORMS: tuple[Form, Form] = ("residual", "primal-dual")


def plain(**changed: Any) -> PrivateGTD:
    given: dict[str, Any] = {
        "features": OneHot(3),
        "reward_range": (-0.5, 2.0),
        "budget": BUDGET,
        "gamma": 0.9,
    }
    return PrivateGTD(**{**given, **changed})


# --- what it computes ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("policy", [None, Tabular(JUDGED)])
@pytest.mark.parametrize("average", [0.0, 0.25])
def test_without_noise_and_clipping_it_is_lstd(
    form: Form, policy: Tabular | None, average: float
) -> None:
    # State 2 is never left, so it has no moments: two features suffice.
    features = Polynomial(1, 0.0, 2.0)
    data = simulated(40, 5)
    judge = plain(
        features=features, form=form, clip=1e6, iterations=3000, step=0.2, average=average
    )
    plan = replace(judge.plan(form, 40), noisy=silent())
    units = unit_moments(data, policy, features, 0.9, dual=True)
    np.testing.assert_allclose(plan.run(units, secure()), solution(units), rtol=1e-6, atol=1e-8)


def test_one_iteration_by_hand() -> None:
    data = Trajectories.from_arrays(
        [0, 1], [0, 0], [2.0, 3.0], lengths=[2], terminated=[True], num_states=2, num_actions=1
    )
    units = unit_moments(data, None, OneHot(2), 0.5, dual=True)
    state = np.array([1.0, 2.0, 10.0, -10.0])
    # A = [[1/2, -1/4], [0, 1/2]], b = (1, 3/2), C = I/2.
    np.testing.assert_allclose(contributions(units, state, "primal-dual"), [[5.0, -7.5, -4.0, 5.5]])
    np.testing.assert_allclose(contributions(units, state[:2], "residual"), [[1.0, 0.5]])
    judge = PrivateGTD(OneHot(2), (0.0, 3.0), BUDGET, 0.5, clip=1.0, iterations=1, step=0.5)
    plan = replace(judge.plan("residual", 1), noisy=silent())
    # From 0 the residual is b = (1, 3/2), clipped to norm 1 and halved.
    np.testing.assert_allclose(
        plan.run(units, secure()), 0.5 * np.array([1.0, 1.5]) / math.sqrt(3.25), rtol=1e-12
    )


def test_momentum_and_schedule() -> None:
    judge = plain(clip=(1.0, 0.25), iterations=3, momentum=0.5)
    plan = judge.plan("residual", 1)
    assert [plan.bound(k) for k in range(3)] == pytest.approx([1.0, 0.5, 0.25])
    # Without data every step is noise; velocity repeats half of the last one.
    units = UnitMoments(np.zeros((3, 3)), np.zeros((1, 3)), None, None, Unit.TRAJECTORY)
    source = secure()
    drawn: list[Floats] = []

    class Recorded(Source):
        def normal(self, std: float, shape: tuple[int, ...]) -> Floats:
            drawn.append(np.asarray(source.normal(std, shape), dtype=np.float64))
            return drawn[-1]

    theta = replace(plan, average=0.0).run(units, Recorded(source.generator, source.origin))
    a, b, c = drawn
    velocity = [a, 0.5 * a + b, 0.25 * a + 0.5 * b + c]
    np.testing.assert_allclose(theta, plan.step * np.sum(velocity, axis=0), rtol=1e-12)


def test_noise_has_the_promised_law_and_ten_percent_off_is_seen() -> None:
    d = 20_000
    data = Trajectories.from_arrays([0], [0], [0.0], lengths=[1], num_states=d, num_actions=1)
    judge = PrivateGTD(OneHot(d), (0.0, 1.0), BUDGET, clip=3.0, iterations=1, step=0.5)
    std = 0.5 * 3.0 * judge.plan("residual", 1).noise * math.sqrt(d)
    weights = weights_of(judge.fit(data))
    assert follows(weights, stats.norm(0.0, std).cdf)
    for wrong in (0.9, 1.1):
        assert not follows(weights * wrong, stats.norm(0.0, std).cdf)


def test_poisson_draws_are_fresh_and_have_the_rate() -> None:
    n = 100_000
    b = np.full((n, 1), 1.0)
    units = UnitMoments(np.zeros((n, 1)), b, None, None, Unit.TRAJECTORY)
    judge = PrivateGTD(OneHot(1), (0.0, 1.0), BUDGET, iterations=2, clip=1.0, average=0.0)
    plan = replace(judge.plan("residual", 1), noisy=silent(0.3), step=1.0)
    each = [plan.run(units, secure())[0] for _ in range(2)]
    # Two sums of n draws over 0.3 n: mean 2, and five standard errors around it.
    limit = 5.0 * math.sqrt(2.0 * 0.7 / 0.3 / n)
    assert all(abs(x - 2.0) < limit for x in each)
    assert each[0] != each[1]


def test_every_step_draws_a_sample_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit i adds to coordinate i alone, so that each step's sum tells who was drawn."""
    n, steps, rate = 64, 40, 0.3
    units = UnitMoments(np.zeros((n * n, n)), np.eye(n), None, None, Unit.TRAJECTORY)
    judge = PrivateGTD(OneHot(n), (0.0, 1.0), BUDGET, iterations=steps, clip=1.0)
    plan = replace(judge.plan("residual", 1), noisy=silent(rate))
    drawn = []
    advance = GTDRun.advance

    def watched(self: GTDRun, count: float) -> None:
        drawn.append(self.exact > 0.5)
        advance(self, count)

    monkeypatch.setattr(GTDRun, "advance", watched)
    plan.run(units, secure())
    there = np.array(drawn)
    assert there.shape == (steps, n)
    # Steps are independent: somebody is in one and in the next with probability rate^2.
    both = int(np.count_nonzero(there[1:] & there[:-1]))
    pairs = stats.binom((steps - 1) * n, rate**2)
    # Neighbouring pairs share a step, so their sum varies by up to (1 + 2 rate) as much: wider.
    low, high = (pairs.mean() + side * 6.0 * pairs.std() for side in (-1.0, 1.0))
    assert low < both < high
    assert not low < int(np.count_nonzero(there[1:])) < high  # the same sample in every step
    assert len(np.unique(there, axis=0)) == steps


# --- sensitivity ---------------------------------------------------------------------------------

odd = st.sampled_from([0.0, 1.0, -3.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324])
step_of = st.tuples(st.integers(0, 2), odd, st.sampled_from([5e-324, 1e-300, 1e-3, 1.0]))
trajectory = st.lists(step_of, min_size=1, max_size=4)
person = st.lists(st.tuples(trajectory, st.booleans()), min_size=1, max_size=3)


def people(*each: Any) -> Trajectories:
    """Data of people with some trajectories each, and with rewards no loader lets pass."""
    listed = [(steps, over, user) for user, owned in enumerate(each) for steps, over in owned]
    rows = [row for steps, _, _ in listed for row in steps]
    data = Trajectories.from_arrays(
        [state for state, _, _ in rows],
        [0] * len(rows),
        [0.0] * len(rows),
        lengths=[len(steps) for steps, _, _ in listed],
        behavior_probs=[probability for _, _, probability in rows],
        target_probs=[1.0] * len(rows),
        terminated=[over for _, over, _ in listed],
        users=[user for _, _, user in listed],
        num_states=3,
        num_actions=1,
    )
    return replace(data, rewards=np.array([reward for _, reward, _ in rows]))


@settings(max_examples=80)
@given(
    st.lists(person, min_size=1, max_size=3),
    person,
    st.integers(0, 2),
    st.sampled_from(FORMS),
    st.lists(st.floats(width=64), min_size=6, max_size=6),
    st.sampled_from([1e-6, 0.01, 1.0, 1e6]),
    st.sampled_from([None, 4.0, 1e300]),
)
def test_exchanging_a_person_moves_the_sum_by_at_most_two_bounds(
    owned: list[Any],
    other: Any,
    which: int,
    form: Form,
    state: list[float],
    bound: float,
    cap: float | None,
) -> None:
    which %= len(owned)
    here = people(*owned)
    there = people(*[other if i == which else one for i, one in enumerate(owned)])
    at = np.array(state[: 3 if form == "residual" else 6])
    sums = []
    for data in (here, there):
        units = unit_moments(
            data, None, OneHot(3), 0.9, cap=cap, reward_range=(-1e300, 1e300), dual=True
        )
        rows = contributions(units, at, form)
        for row in rows:
            assert np.linalg.norm(clipped_sum(row[None], bound)) <= bound
        sums.append(clipped_sum(rows, bound))
    assert np.isfinite(sums).all()
    assert np.linalg.norm(sums[0] - sums[1]) <= 2.0 * bound * (1.0 + 1e-12)


def test_the_bound_is_reached_so_the_test_above_could_fail() -> None:
    here, there = (people([([(0, reward, 1.0)], True)]) for reward in (1.0, -1.0))
    sums = [
        clipped_sum(
            contributions(
                unit_moments(x, None, OneHot(3), 0.9, cap=1.0, reward_range=(-1.0, 1.0)),
                np.zeros(3),
                "residual",
            ),
            0.5,
        )
        for x in (here, there)
    ]
    assert np.linalg.norm(sums[0] - sums[1]) == pytest.approx(1.0, rel=1e-12)


def test_through_fit_neighbours_are_exactly_mu_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shift of a single iteration, over the noise on it, is the mu that was paid for."""
    judge = plain(reward_range=(-1.0, 1.0), clip=0.01, iterations=1, step=0.5, weight_cap=1.0)
    others = [[([(1, 0.5, 1.0)], True)]] * 4
    pair = [people([([(0, reward, 1.0)], True)], *others) for reward in (1.0, -1.0)]
    pair = [replace(data, target_probs=None) for data in pair]
    noise = judge.fit(pair[0]).settings["noise"]
    with monkeypatch.context() as patch:
        patch.setattr(Source, "normal", lambda self, std, shape: np.zeros(shape))
        shift = weights_of(judge.fit(pair[0])) - weights_of(judge.fit(pair[1]))
    spread = 0.5 * noise * 0.01 / 5 * math.sqrt(3.0)
    mu = 2.0 / GaussianMechanism.from_budget(1.0, BUDGET).std
    assert np.linalg.norm(shift) / spread == pytest.approx(mu, rel=1e-5)


def test_rows_left_out_or_not_finite_add_nothing() -> None:
    rows = np.array([[3.0, 4.0], [np.nan, 0.0], [np.inf, 1.0], [1e200, 0.0], [0.3, 0.4]])
    np.testing.assert_allclose(clipped_sum(rows, 1.0), [0.9, 1.2], rtol=1e-12)
    drawn = np.array([True, True, True, True, False])
    np.testing.assert_allclose(clipped_sum(rows, 1.0, drawn), [0.6, 0.8], rtol=1e-12)
    assert not clipped_sum(np.zeros((0, 2)), 1.0).any()


def test_wild_data_gives_finite_weights() -> None:
    wild = people([([(0, np.nan, 5e-324), (1, 1e308, 1.0)], False)], [([(2, -np.inf, 1.0)], True)])
    for form in FORMS:
        fitted = plain(form=form, weight_cap=5.0, iterations=20).fit(wild)
        assert np.isfinite(weights_of(fitted)).all()


# --- one pass ------------------------------------------------------------------------------------


def waves(_: Source | None, std: float, shape: tuple[int, ...]) -> Floats:
    """In place of noise: something known, and different in every step and entry."""
    return np.asarray(std * np.cos(np.arange(shape[0]) + 10.0 * std))


KEY = bytes(range(32))


def by_hand(judge: PrivateGTD, data: Trajectories, form: Form, policy: Tabular | None) -> Floats:
    """Unit by unit, with matrices, and nothing clever."""
    plan = judge.plan(form, data.num_units)
    change = np.diag(judge.change)
    d = len(change)
    state = np.zeros(d if form == "residual" else 2 * d)
    velocity, kept = np.zeros_like(state), []
    step_of = np.floor(plan.iterations * keyed_uniforms(data.unit_ids, KEY))
    size = data.num_units / plan.iterations
    for k in range(plan.iterations):
        total = np.zeros_like(state)
        for unit in np.flatnonzero(step_of == k):
            own = data.take(np.flatnonzero(data.unit_index == unit))
            found = unit_moments(
                own,
                policy,
                judge.features,
                judge.gamma,
                cap=judge.weight_cap,
                reward_range=judge.reward_range,
                dual=True,
            )
            A, C = (
                change @ (x if isinstance(x, np.ndarray) else x.toarray()) @ change
                for x in (found.A, found.C)
            )
            g = change @ found.b[0] - A @ state[:d]
            if form == "primal-dual":
                g = np.concatenate([A.T @ state[d:], g - C @ state[d:]])
            total += g * min(1.0, plan.bound(k) / np.linalg.norm(g))
        noise = waves(None, plan.noise * plan.bound(k), state.shape)
        velocity = judge.momentum * velocity + (total + noise) / size
        state = state + plan.step * velocity
        kept.append(state[:d])
    last = max(1, round(judge.average * plan.iterations))
    return np.asarray(change @ np.mean(kept[-last:], axis=0))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("features", [OneHot(3), Polynomial(1, 0.0, 2.0)])
@pytest.mark.parametrize("policy", [None, Tabular(JUDGED)])
def test_a_single_pass_is_a_loop_over_people(
    form: Form,
    features: Any,
    policy: Tabular | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = simulated(50, 5, users=23)
    judge = plain(
        features=features,
        form=form,
        batch_units=4,
        weight_cap=2.0,
        clip=(0.8, 0.2),
        step=0.3,
        momentum=0.3,
        average=0.4,
    )
    monkeypatch.setattr(Source, "normal", waves)
    monkeypatch.setattr(Source, "secret_bytes", lambda _: KEY)
    whole = judge.fit(data, policy)
    np.testing.assert_allclose(
        weights_of(whole), by_hand(judge, data, form, policy), rtol=1e-10, atol=1e-13
    )
    assert whole.settings["iterations"] == 5
    assert whole.settings["units"] == 23
    # Neither the order of a stream nor where its batches end makes a difference.
    order = np.argsort(data.unit_index, kind="stable")
    names = data.take(order).to_parquet(tmp_path / "d.parquet")
    for rows, sort in ((15, False), (37, True), (10_000, False)):
        stream = stream_parquet(
            tmp_path / "d.parquet", batch_rows=rows, sort=sort, scratch=tmp_path, **names
        )
        np.testing.assert_allclose(
            weights_of(judge.fit(stream, policy)), weights_of(whole), rtol=1e-10
        )
    assert [one.name for one in tmp_path.iterdir()] == ["d.parquet"]
    # Nor do the parts into which a batch too large for memory is cut.
    monkeypatch.setattr(bellman_error, "_ENTRIES", 40)
    np.testing.assert_allclose(weights_of(judge.fit(data, policy)), weights_of(whole), rtol=1e-10)


def sums_of(judge: PrivateGTD, data: Trajectories, monkeypatch: pytest.MonkeyPatch) -> list[Floats]:
    """The sum over each batch, before noise; all steps start from the same released state."""
    found: list[Floats] = []

    def advance(rollout: GTDRun, count: float) -> None:
        found.append(rollout.exact.copy())
        rollout.k, rollout.exact = rollout.k + 1, np.zeros_like(rollout.exact)

    with monkeypatch.context() as patch:
        patch.setattr(GTDRun, "advance", advance)
        judge.fit(data)
    return found


def test_a_person_touches_their_own_step_only_whatever_their_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calm = [([(1, 0.5, 1.0), (0, 1.0, 1.0)], True)]
    long = [([(2, 1.0, 1.0)] * 50, True), ([(0, np.nan, 1e-3)], False)] * 3
    judge = plain(batch_units=3, weight_cap=2.0, clip=0.4)
    monkeypatch.setattr(Source, "secret_bytes", lambda _: KEY)
    each = [calm, [([(0, 2.0, 1.0)], False)], calm, calm, calm, calm, calm]
    here = sums_of(judge, people(*each), monkeypatch)
    steps = np.floor(2 * keyed_uniforms(people(*each).unit_ids, KEY))
    assert set(steps) == {0, 1}
    for place in range(7):
        there = sums_of(
            judge,
            people(*[long if i == place else one for i, one in enumerate(each)]),
            monkeypatch,
        )
        assert len(here) == len(there) == 2
        moved = [float(np.linalg.norm(x - y)) for x, y in zip(here, there, strict=True)]
        for k in range(2):
            assert moved[k] <= 2.0 * 0.4
            assert (moved[k] > 0.0) == (steps[place] == k)


def test_places_are_uniform_independent_and_each_ones_own() -> None:
    names = [f"p{i}" for i in range(40_000)]
    one, other = keyed_uniforms(names, KEY), keyed_uniforms(names, bytes(32))
    for found in (one, other, (one - other) % 1.0, (one - np.roll(one, 1)) % 1.0):
        assert follows(found, lambda x: x)
    # Ten percent off would show: the largest of two numbers is not uniform.
    assert not follows(np.where(np.arange(40_000) % 10, one, one**2), lambda x: x)
    # Whoever is replaced by somebody of another name moves nobody.
    names[7] = "somebody else"
    changed = keyed_uniforms(names, KEY)
    assert np.flatnonzero(changed != one).tolist() == [7]
    # Numbers are the same whether they come from Arrow, NumPy or Python.
    np.testing.assert_array_equal(keyed_uniforms(np.arange(9), KEY), keyed_uniforms(range(9), KEY))


def test_the_key_comes_from_the_source_of_the_noise() -> None:
    judge, data = plain(batch_units=5), simulated(30, 1)
    assert (
        weights_of(judge.fit(data, session=PrivacySession(seed=3)))
        == weights_of(judge.fit(data, session=PrivacySession(seed=3)))
    ).all()
    keys = {secure().secret_bytes() for _ in range(3)}
    assert len(keys) == 3
    assert {len(key) for key in keys} == {32}


def test_steps_may_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    data = simulated(6, 1)
    judge = plain(batch_units=1, iterations=6)
    monkeypatch.setattr(Source, "secret_bytes", lambda _: KEY)
    monkeypatch.setattr(allotment, "keyed_uniforms", lambda ids, _: np.full(len(ids), 0.5))
    sums = sums_of(judge, data, monkeypatch)
    assert [bool(np.any(one)) for one in sums] == [False] * 3 + [True] + [False] * 2


@settings(max_examples=80)
@given(
    st.lists(person, min_size=1, max_size=3),
    person,
    st.integers(0, 2),
    st.sampled_from(FORMS),
    st.lists(st.floats(width=64), min_size=6, max_size=6),
    st.sampled_from([1e-6, 0.01, 1.0, 1e6]),
    st.sampled_from([4.0, 1e300]),
    st.booleans(),
)
def test_exchanging_a_person_moves_the_sum_over_a_batch_by_at_most_two_bounds(
    owned: list[Any],
    other: Any,
    which: int,
    form: Form,
    state: list[float],
    bound: float,
    cap: float,
    table: bool,
) -> None:
    which %= len(owned)
    judge = plain(
        features=OneHot(3) if table else dense_one_hot(3),
        batch_units=1,
        weight_cap=cap,
        reward_range=(-1e300, 1e300),
        clip=1.0,
    )
    at = np.array(state[: 3 if form == "residual" else 6])

    def summed(*each: Any) -> Floats:
        return judge.gradient(people(*each), None, at, form, bound)

    for one in (*owned, other):
        assert np.linalg.norm(summed(one)) <= bound
    here = summed(*owned)
    there = summed(*[other if i == which else one for i, one in enumerate(owned)])
    assert np.isfinite(here).all()
    assert np.linalg.norm(here - there) <= 2.0 * bound * (1.0 + 1e-12)


def test_a_single_pass_costs_one_allocation() -> None:
    result = plain(batch_units=7).fit(simulated(30, 1))
    noise = result.settings["noise"]
    assert result.certificate.events == (RandomAllocation(Gaussian(noise, 1.0), 4),)
    assert noise < 0.55 * GaussianMechanism.from_budget(1.0, BUDGET).std
    assert result.certificate.release is Release.EVERY_ITERATE
    assert 0.999 <= result.certificate.epsilon <= 1.0
    result.certificate.verify(strict=True)
    assert any("secret" in one.statement for one in result.certificate.assumptions)
    assert result.diagnostics is None


@pytest.mark.slow
def test_what_stands_beside_a_pass_is_paid_from_the_same_budget() -> None:
    other = Gaussian(15.0, 1.0)
    plan = plain(batch_units=7, beside=(other,)).plan("residual", 30)
    alone = plain(batch_units=7).plan("residual", 30)
    assert plan.noise > 1.05 * alone.noise
    assert 0.999 <= epsilon((other, plan.event), BUDGET.delta) <= 1.0


def test_a_single_pass_over_too_little_data_is_refused(tmp_path: Path) -> None:
    data = simulated(30, 1)
    names = data.to_parquet(tmp_path / "d.parquet")
    stream = stream_parquet(tmp_path / "d.parquet", batch_rows=20, **names)
    for read in (data, stream):
        with pytest.raises(InputError, match="30 units, too few for 1 batches of 31"):
            plain(batch_units=31).fit(read)
        with pytest.raises(InputError, match="too few for 4 batches of 8"):
            plain(batch_units=8, iterations=4).fit(read)
    # Ids of batches of one's own may mean different people in each.
    own: Any = iter((data, data))
    with pytest.raises(InputError, match="made by stream_parquet"):
        plain(batch_units=8, iterations=3).fit(own)
    lost = stream_parquet(tmp_path / "d.parquet", scratch=tmp_path / "nowhere", **names)
    with pytest.raises(InputError, match=r"scratch .* cannot be used"):
        plain(batch_units=8).fit(lost)


def test_a_single_pass_pays_first_and_shows_nothing_unpaid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Floats:
        raise RuntimeError("no noise today")

    judge, data = plain(batch_units=5), simulated(30, 1)
    with Ledger.create(tmp_path / "l", "clinic", unit=Unit.TRAJECTORY) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(Source, "normal", broken)
            with pytest.raises(RuntimeError, match="no noise"):
                judge.fit(data, session=PrivacySession(ledger=ledger, run="first"))
        assert [entry.run for entry in ledger.entries()] == ["first"]
    shown = judge.fit(data, session=PrivacySession(public=True), start=[0])
    assert shown.diagnostics is not None
    assert shown.diagnostics["mspbe"] >= 0.0
    with pytest.warns(UserWarning, match="private"):
        guessed = data.with_estimated_behavior(overwrite=True)
    with pytest.raises(InputError, match="estimated from this very data"):
        replace(judge, weight_cap=2.0).fit(guessed, Tabular(JUDGED))


def test_a_single_pass_learns() -> None:
    exact = exact_moments(small(), LOGGED, OneHot(3), 0.9)
    judge = plain(budget=Budget(5.0, 1e-5), return_bound=4.0, batch_units=30)
    fitted = judge.fit(simulated(3000, 8), session=PrivacySession(seed=1))
    assert mspbe(weights_of(fitted), exact) < 0.1 * mspbe(np.zeros(3), exact)


# --- the promise ---------------------------------------------------------------------------------


def test_the_certificate_spends_the_budget_and_verifies() -> None:
    result = plain().fit(simulated(30, 1))
    certificate = result.certificate
    assert certificate.verify(strict=True).epsilon == pytest.approx(1.0, rel=1e-3)
    assert certificate.epsilon <= 1.0
    assert (certificate.unit, certificate.noise) == (Unit.TRAJECTORY, NoiseOrigin.SECURE)
    (event,) = certificate.events
    assert isinstance(event, Repeated)
    assert event.times == 50  # 30 trajectories at this budget: the fewest
    assert event.event == Gaussian(result.settings["noise"], 1.0)
    assert result.settings["form"] == "residual"
    assert result.diagnostics is None
    assert result.estimate is None


def test_more_data_means_more_iterations() -> None:
    chosen = [plain().plan("residual", n).iterations for n in (10, 500, 10**6)]
    mu = 2.0 / GaussianMechanism.from_budget(1.0, BUDGET).std
    assert chosen == [50, round(500 * mu), 400]


def test_sampled_batches_are_paid_for_as_such() -> None:
    result = plain(rate=0.1, iterations=50).fit(simulated(30, 1))
    (event,) = result.certificate.events
    assert isinstance(event, Repeated)
    assert isinstance(event.event, PoissonSampled)
    assert event.event.rate == 0.1
    assert result.certificate.epsilon <= 1.0
    result.certificate.verify()
    assert any("drawn" in a.statement for a in result.certificate.assumptions)


def test_people_are_the_unit_where_they_are_named() -> None:
    result = plain().fit(simulated(30, 1, users=7))
    assert result.certificate.unit is Unit.USER
    assert result.settings["units"] == 7


def test_off_policy_uses_the_stable_form() -> None:
    data = simulated(30, 1)
    with pytest.raises(InputError, match="weight_cap is needed"):
        plain().fit(data, Tabular(JUDGED))
    dense = plain(features=dense_one_hot(3), weight_cap=2.5, iterations=10)
    assert dense.fit(data, Tabular(JUDGED)).settings["form"] == "primal-dual"
    table = plain(weight_cap=2.5, iterations=10)
    assert table.fit(data, Tabular(JUDGED)).settings["form"] == "residual"
    # A full matrix mixes states, and with it goes the proof for tables.
    mixed = replace(table, precondition=0.5 * np.eye(3) + 0.1)
    assert mixed.fit(data, Tabular(JUDGED)).settings["form"] == "primal-dual"
    assert mixed.fit(data).settings["form"] == "residual"


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 0.99), st.integers(2, 5))
def test_tables_are_stable_for_every_policy(seed: int, gamma: float, size: int) -> None:
    """Eigenvalues on the right, whatever is judged, for any shares and any diagonal change."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 7, 12)
    rows = int(lengths.sum())
    probs = draw.dirichlet(np.ones(2), size)
    data = Trajectories.from_arrays(
        draw.integers(0, size, rows),
        draw.integers(0, 2, rows),
        np.zeros(rows),
        lengths=lengths,
        terminated=draw.random(12) < 0.5,
        behavior_probs=draw.uniform(0.01, 1.0, rows),
        num_states=size,
        num_actions=2,
    )
    whole = bellman_error.moments(data, Tabular(probs), OneHot(size), gamma)
    changed = np.exp(draw.normal(size=size))
    A = changed[:, None] * np.asarray(whole.A) * changed
    # States that are never seen have rows of zeros, and eigenvalues 0.
    assert np.linalg.eigvals(A).real.min() > -1e-9 * max(1.0, np.abs(A).max())


def test_the_ledger_is_charged_before_noise_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Floats:
        raise RuntimeError("no noise today")

    data = simulated(30, 1)
    with Ledger.create(
        tmp_path / "l", "clinic", unit=Unit.TRAJECTORY, limit=Budget(1.5, 1e-5)
    ) as ledger:
        with pytest.raises(InputError, match="run"):
            plain().fit(data, session=PrivacySession(ledger=ledger))
        with monkeypatch.context() as patch:
            patch.setattr(Source, "normal", broken)
            with pytest.raises(RuntimeError):
                plain().fit(data, session=PrivacySession(ledger=ledger, run="first"))
        assert [entry.run for entry in ledger.entries()] == ["first"]
        with pytest.raises(OverBudget):
            plain().fit(data, session=PrivacySession(ledger=ledger, run="second"))
        assert len(ledger.entries()) == 1


def test_start_and_public_data() -> None:
    data = simulated(30, 1)
    result = plain().fit(data, start=[0, 1], session=PrivacySession(seed=3))
    assert result.estimate == pytest.approx(float(result.predict([0, 1]).mean()))
    assert result.certificate.noise is NoiseOrigin.REPRODUCIBLE
    shown = plain().fit(data, session=PrivacySession(public=True, seed=3))
    np.testing.assert_array_equal(weights_of(shown), weights_of(result))
    first = data.states[data.offsets[:-1]]
    assert shown.estimate == pytest.approx(float(shown.predict(first).mean()))
    assert shown.diagnostics is not None
    assert 0.0 <= shown.diagnostics["clipped"] <= 1.0
    assert shown.diagnostics["mspbe"] >= 0.0


def test_it_learns() -> None:
    moments = exact_moments(small(), LOGGED, OneHot(3), 0.9)
    data = simulated(1500, 8)
    fitted = plain(budget=Budget(5.0, 1e-5), return_bound=4.0).fit(
        data, session=PrivacySession(seed=1)
    )
    assert mspbe(weights_of(fitted), moments) < 0.1 * mspbe(np.zeros(3), moments)


def test_save_and_load(tmp_path: Path) -> None:
    result = plain().fit(simulated(30, 1), start=[0])
    result.save(tmp_path / "r.json")
    again = Result.load(tmp_path / "r.json")
    np.testing.assert_array_equal(weights_of(again), weights_of(result))
    assert again.certificate == result.certificate
    assert again.predict([1]) == result.predict([1])


# --- preconditioning and refusals ----------------------------------------------------------------


def test_changes_of_features() -> None:
    np.testing.assert_allclose(whitening_matrix(OneHot(4)), 2.0)
    gram = public_gram(Fourier(2, [0.0], [1.0]), np.linspace(0, 1, 50)[:, None])
    L = whitening_matrix(Fourier(2, [0.0], [1.0]), gram)
    np.testing.assert_allclose(L @ gram @ L.T, np.eye(3), atol=1e-10)
    np.testing.assert_allclose(whitening_matrix(OneHot(2), [4.0, 0.25]), [0.5, 2.0])
    # The same public matrix, as a diagonal and as a whole: the same fit, but for rounding.
    data = simulated(30, 1)
    pair = [
        weights_of(plain(precondition=c).fit(data, session=PrivacySession(seed=3)))
        for c in (np.array([0.5, 0.25, 0.25]), np.diag([0.5, 0.25, 0.25]))
    ]
    np.testing.assert_allclose(pair[0], pair[1], rtol=1e-9)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"reward_range": None}, "reward_range is needed"),
        ({"reward_range": (1.0, 0.0)}, "lower first"),
        ({"reward_range": 3.0}, "two finite numbers"),
        ({"gamma": 1.5}, "gamma"),
        ({"gamma": 1.0}, "return_bound is needed"),
        ({"form": "dual"}, "form"),
        ({"iterations": 0}, "iterations"),
        ({"step": -1.0}, "step"),
        ({"clip": (1.0, 0.0)}, "clip"),
        ({"clip": (1.0, 1.0, 1.0)}, "clip"),
        ({"rate": 0.0}, "rate"),
        ({"batch_units": 0}, "batch_units"),
        ({"batch_units": 5, "rate": 0.5}, "one of the two"),
        ({"momentum": 1.0}, "momentum"),
        ({"average": 1.5}, "average"),
        ({"weight_cap": 0.0}, "weight_cap"),
        ({"return_bound": -1.0}, "return_bound"),
        ({"budget": Budget(1.0)}, "delta above 0"),
        ({"precondition": np.eye(2)}, "precondition must have the shape"),
        ({"precondition": -np.eye(3)}, "positive definite"),
        ({"precondition": [1.0, 0.0, 1.0]}, "positive definite"),
        ({"precondition": "x"}, "precondition"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plain(**changed)


def test_unpaid_behaviour_probabilities_are_refused() -> None:
    with pytest.warns(UserWarning, match="private"):
        data = simulated(30, 1).with_estimated_behavior(overwrite=True)
    with pytest.raises(InputError, match="estimated from this very data"):
        plain(weight_cap=2.0).fit(data, Tabular(JUDGED))


def test_a_clip_bound_whose_noise_is_no_number_is_refused_before_anybody_pays() -> None:
    judge = PrivateGTD(OneHot(1), (0.0, 1.0), BUDGET, clip=1e308, iterations=5)
    with pytest.raises(InputError, match="too large to compute with"):
        judge.plan("residual", 10)
