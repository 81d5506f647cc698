"""Privacy filters: caps that are worth their limit, and sums that add up."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.privacy import (
    ApproxDP,
    Budget,
    Disjoint,
    Event,
    FixedSizeSampled,
    Gaussian,
    InputError,
    Laplace,
    PoissonSampled,
    PureDP,
    Relation,
    Repeated,
    UnsupportedError,
    calibrate,
    epsilon,
    second_accountant,
)
from privrl.privacy.filters import Cost, Filter, FilterKind

RO = Relation.REPLACE_ONE
LIMITS = [Budget(0.1, 1e-6), Budget(1.0, 1e-5), Budget(10.0, 1e-9)]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("kind", [FilterKind.GAUSSIAN, FilterKind.RENYI])
def test_gaussians_that_just_fit_cost_no_more_than_the_limit(
    limit: Budget, kind: FilterKind
) -> None:
    chosen = Filter.for_limit(limit, kind)
    one = Gaussian(500.0, 1.0)
    cost = chosen.cost(one, RO)
    times = math.floor(chosen.cap.first / cost.first)
    assert chosen.cost(Repeated(one, times), RO).is_within(chosen.cap)
    spent = epsilon(Repeated(one, times), limit.delta, RO)
    assert spent <= limit.epsilon * (1 + 1e-9)
    if kind is FilterKind.GAUSSIAN:
        # Nothing is lost by this filter but the last release that did not fit whole.
        assert epsilon(Repeated(one, times + 1), limit.delta, RO) > limit.epsilon
    else:
        assert spent >= 0.8 * limit.epsilon


events = st.one_of(
    st.builds(Gaussian, st.floats(2.0, 50.0), st.just(1.0)),
    st.builds(Laplace, st.floats(2.0, 50.0), st.just(1.0)),
    st.builds(PureDP, st.floats(0.01, 0.3)),
    st.builds(
        PoissonSampled, st.builds(Gaussian, st.floats(2.0, 9.0), st.just(1.0)), st.just(0.01)
    ),
    st.builds(
        FixedSizeSampled, st.builds(Gaussian, st.floats(2.0, 9.0), st.just(1.0)), st.just(100)
    ),
    # So little noise that the divergence at the filter's order is beyond its cap.
    st.builds(
        PoissonSampled, st.builds(Gaussian, st.floats(0.8, 1.2), st.just(1.0)), st.just(0.01)
    ),
    st.builds(ApproxDP, st.floats(0.01, 0.1), st.just(1e-9)),
)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(events, min_size=1, max_size=8), st.sampled_from(LIMITS))
def test_whatever_a_renyi_filter_lets_through_is_within_its_limit(
    wished: list[Event], limit: Budget
) -> None:
    chosen = Filter.for_limit(limit)
    total, let_through = Cost(0.0), []
    for event in wished * 5:
        cost = chosen.cost(event, RO)
        if (total + cost).is_within(chosen.cap):
            total += cost
            let_through.append(event)
    assert epsilon(let_through, limit.delta, RO) <= limit.epsilon * (1 + 1e-6)


def test_much_sampling_and_little_noise_is_charged_as_approximate_dp() -> None:
    limit = Budget(1.0, 1e-6)
    chosen = Filter.for_limit(limit)
    event = PoissonSampled(Gaussian(0.9, 1.0), 0.001)
    assert chosen.order is not None
    divergence, _ = second_accountant.renyi(event, chosen.order, RO)
    assert divergence > 2.0 * chosen.cap.first
    cost = chosen.cost(event, RO)
    told = limit.delta / 100
    plain = epsilon(event, told, RO)
    assert cost == chosen.cost(ApproxDP(plain, told), RO)
    assert cost.second == pytest.approx(told)
    # Either charge is one that an entry may have, and less than both is none.
    assert chosen.is_sufficient(cost, [event], RO)
    assert chosen.is_sufficient(Cost(divergence), [event], RO)
    assert not chosen.is_sufficient(Cost(cost.first * 0.999, told), [event], RO)
    assert not chosen.is_sufficient(Cost(divergence * 0.999), [event], RO)
    # So that several such spends fit, which are within the limit together.
    times = math.floor(min(chosen.cap.first / cost.first, chosen.cap.second / cost.second) + 1e-9)
    assert times >= 2
    assert epsilon(Repeated(event, times), limit.delta, RO) <= limit.epsilon


@pytest.mark.parametrize("kind", FilterKind)
def test_a_plan_is_held_exactly_up_to_its_limit(kind: FilterKind) -> None:
    for limit in LIMITS:
        chosen = Filter.for_limit(limit, kind)
        std = calibrate(lambda s: Gaussian(s, 1.0), limit, RO, tolerance=1e-9)
        assert chosen.can_afford(Gaussian(std, 1.0), RO)
        assert not chosen.can_afford(Gaussian(std * (1.0 - 1e-6), 1.0), RO)
        assert chosen.can_afford(PureDP(limit.epsilon), RO)
        assert not chosen.can_afford([PureDP(limit.epsilon), ApproxDP(0.1, limit.delta)], RO)
        assert not chosen.can_afford(ApproxDP(0.1, 2.0 * limit.delta), RO)
    pure = Filter.for_limit(Budget(1.0))
    assert pure.can_afford(PureDP(1.0), RO)
    assert not pure.can_afford(Gaussian(1e6, 1.0), RO)


def test_sums_of_pure_and_approximate_dp() -> None:
    chosen = Filter.for_limit(Budget(1.0, 1e-5), "sum")
    cost = chosen.cost([PureDP(0.3), Repeated(ApproxDP(0.1, 1e-6), 4), Laplace(20, 1)], RO)
    assert cost.first == pytest.approx(0.3 + 0.4 + 0.1)
    assert cost.second == pytest.approx(4e-6)
    assert cost.is_within(chosen.cap)
    assert not (cost + chosen.cost(PureDP(0.21), RO)).is_within(chosen.cap)
    with pytest.raises(UnsupportedError, match="The filter gaussian or renyi has a figure"):
        chosen.cost(Gaussian(1, 1), RO)


def test_noise_that_needs_a_delta_is_told_so() -> None:
    with pytest.raises(UnsupportedError, match="need a limit with delta above 0"):
        Filter.for_limit(Budget(1.0)).cost(Gaussian(100, 1), RO)


def test_disjoint_groups_cost_their_worst() -> None:
    limit = Budget(1.0, 1e-5)
    groups = Disjoint((Gaussian(4, 1), Gaussian(2, 1)))
    for kind in (FilterKind.GAUSSIAN, FilterKind.RENYI):
        chosen = Filter.for_limit(limit, kind)
        assert chosen.cost(groups, RO) == chosen.cost(Gaussian(2, 1), RO)
    pure = Disjoint((PureDP(0.1), ApproxDP(0.05, 1e-7)))
    assert Filter.for_limit(limit, "sum").cost(pure, RO) == Cost(0.1, 1e-7)


def test_a_gaussian_filter_wants_gaussians() -> None:
    chosen = Filter.for_limit(Budget(1.0, 1e-5), "gaussian")
    for event in (Laplace(1, 1), PoissonSampled(Gaussian(1, 1), 0.1)):
        with pytest.raises(UnsupportedError, match="not all Gaussian"):
            chosen.cost(event, RO)


@pytest.mark.parametrize(
    ("limit", "kind", "sentence"),
    [
        (Budget(1.0), "renyi", "needs a limit with delta above 0"),
        (Budget(1.0), "gaussian", "needs a limit with delta above 0"),
        (Budget(1.0, 1e-5), "advanced", "is not a filter:"),
        (Budget(1e-9, 1e-300), "renyi", "Nothing can be spent"),
    ],
)
def test_bad_filters(limit: Budget, kind: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Filter.for_limit(limit, kind)
