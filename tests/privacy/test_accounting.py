"""The first accountant: known figures, exact closed forms, oracles, and hunts for a worse pair."""

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from privrl.privacy import (
    ApproxDP,
    Certificate,
    DiscreteGaussian,
    DiscreteLaplace,
    Disjoint,
    Event,
    FixedSizeSampled,
    Gaussian,
    InputError,
    Laplace,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    Relation,
    Repeated,
    Unit,
    UnsupportedError,
    account,
    delta,
    epsilon,
    second_accountant,
)
from privrl.privacy.accounting import GRID
from privrl.privacy.accounting.finite_losses import Response
from privrl.privacy.accounting.grid import Composition
from privrl.privacy.accounting.losses import (
    GaussianShift,
    LaplaceShift,
    gaussian_delta,
    log_gaussian_delta,
)

AR, RO, RR, LO = (
    Relation.ADD_REMOVE,
    Relation.REPLACE_ONE,
    Relation.REWARD_RADIUS,
    Relation.LOCAL,
)
Array = NDArray[Any]


# --- figures that must come out -------------------------------------------------------------------


def test_gaussian() -> None:
    assert epsilon(Gaussian(1, 1), 1e-5, AR) == pytest.approx(4.377, abs=1e-3)
    assert epsilon(Gaussian(1, 1), 1e-5, RO) == pytest.approx(9.997, abs=1e-3)
    assert epsilon(Gaussian(1, 1), 1e-5, RR) == epsilon(Gaussian(1, 1), 1e-5, AR)
    assert epsilon(Gaussian(1, 1), 1e-5, LO) == epsilon(Gaussian(1, 1), 1e-5, RO)


@pytest.mark.parametrize("eps", [0.1, 1.0, 5.0])
def test_laplace_of_ono2020(eps: float) -> None:
    assert epsilon(Laplace(0.01 / eps, 0.005), 0.0, LO) == pytest.approx(eps, rel=1e-12)


def test_poisson_sampled_gaussian() -> None:
    events = Repeated(PoissonSampled(Gaussian(1, 1), 1e-3), 1000)
    assert epsilon(events, 1e-5, AR) == pytest.approx(0.149, abs=1e-3)
    assert epsilon(events, 1e-5, RO) == pytest.approx(0.229, abs=1e-3)


def test_fixed_size_sampled_gaussian() -> None:
    found = epsilon(Repeated(FixedSizeSampled(Gaussian(1, 1), 1000, 1), 1000), 1e-5, RO)
    assert 3.239 <= found <= 3.30


# Floor and certified PLD for one of 1000 drawn, delta 1e-5: computed independently and sandwiched
# between an explicit pair and dp-accounting's looser bound before this code was written.
@pytest.mark.parametrize(
    ("std", "times", "floor", "certified"),
    [
        (1, 1, 0.3376, 0.3376),
        (1, 10, 1.0860, 1.0865),
        (1, 100, 2.1086, 2.1133),
        (1, 10000, 5.2268, 5.6770),
        (2, 1000, 0.1490, 0.1797),
        (3, 1000, 0.0740, 0.0886),
        (5, 10000, 0.1328, 0.1526),
        (10, 1000, 0.0170, 0.0182),
    ],
)
def test_fixed_size_table(std: float, times: int, floor: float, certified: float) -> None:
    found = epsilon(Repeated(FixedSizeSampled(Gaussian(std, 1), 1000), times), 1e-5, RO)
    # The printed figures have four decimals; ours uses a finer grid and may be 2 % smaller.
    assert max(floor - 1e-4, 0.98 * certified) <= found <= certified + 1e-4


def test_randomised_responses_by_count_by_loop_and_by_replay() -> None:
    one = RandomizedResponse(0.5)
    counted = epsilon(Repeated(one, 100), 1e-5, LO)
    looped = epsilon([one] * 100, 1e-5, LO)
    nested = epsilon([Repeated(Repeated(one, 7), 14), one, one], 1e-5, LO)
    stored = Certificate.issue([one] * 100, 1e-5, unit=Unit.AGENT, relation=LO).to_json()
    replayed = epsilon(Certificate.from_dict(json.loads(stored)).events, 1e-5, LO)
    assert counted == pytest.approx(31.172863499683594, abs=1e-9)
    for other in (looped, nested, replayed):
        assert other == pytest.approx(counted, abs=1e-9)


def test_four_category_response_is_not_folded_into_one() -> None:
    # dp-accounting's own accountant says 1.609 here, having lost the count.
    assert epsilon(
        Repeated(RandomizedResponse(math.log(5), categories=4), 100), 1e-5, LO
    ) == pytest.approx(123.9, abs=0.05)


# --- exact comparisons ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mu", [1e-4, 0.03, 0.5, 2.0, 9.0])
@pytest.mark.parametrize("eps", [0.0, 0.01, 0.3, 2.0])
def test_gaussian_grid_is_exact_on_its_points_and_pessimistic_between(
    mu: float, eps: float
) -> None:
    loss = GaussianShift(mu)
    law = Composition([(loss.on_grid(1e-4).law, 1)])
    exact = float(loss.profile(np.array([eps]))[0])
    # A sum of 10^5 doubles is off by some 1e-9 relatively; the tail beyond ten deviations by 1e-22.
    assert exact * (1 - 1e-9) <= law.delta(eps) <= exact * (1 + 1e-8) + 1e-21
    between = float(loss.profile(np.array([eps + 5e-5]))[0])
    assert law.delta(eps + 5e-5) >= between * (1 - 1e-9)


@pytest.mark.parametrize("loss", [LaplaceShift(0.7), LaplaceShift(3.0), Response(0.7, 3, 1e-3)])
@pytest.mark.parametrize("eps", [0.0, 0.2, 0.69, 1.5])
def test_grids_of_bounded_losses(loss: LaplaceShift | Response, eps: float) -> None:
    exact = float(loss.profile(np.array([eps]))[0])
    law = Composition([(loss.on_grid(1e-4).law, 1)])
    # The bound on the FFT's round-off is added: some 1e-9 of the answer.
    assert exact * (1 - 1e-12) <= law.delta(eps) <= exact * (1 + 1e-8) + 1e-15


@pytest.mark.parametrize(
    ("rate", "std", "relation", "interval"),
    [
        *itertools.product([0.01, 0.3, 0.9], [4.0], [AR, RO], [1e-4]),
        # On this grid theirs is within 2e-5 of ours for narrower noise, and takes a tenth as long.
        *itertools.product([0.01, 0.3, 0.9], [1.0], [AR, RO], [1e-3]),
        # Narrow noise has long tails, which take both accountants a while.
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in itertools.product([0.01, 0.3, 0.9], [0.5], [AR, RO], [1e-4])
        ),
        (1e-4, 4.0, AR, 2e-6),
    ],
)
def test_sampled_gaussian_against_dp_accounting(
    rate: float, std: float, relation: Relation, interval: float
) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.privacy_accountant import NeighboringRelation

    neighbours = (
        NeighboringRelation.REPLACE_ONE if relation is RO else NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    law = pld.from_gaussian_mechanism(
        std,
        sampling_prob=rate,
        neighboring_relation=neighbours,
        value_discretization_interval=interval,
    )
    theirs = law.self_compose(10).get_epsilon_for_delta(1e-6)
    ours = epsilon(Repeated(PoissonSampled(Gaussian(std, 1), rate), 10), 1e-6, relation)
    # Both are upper bounds on one figure, on fine grids: half a percent apart at most.
    assert ours == pytest.approx(theirs, rel=5e-3)


@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_sampled_laplace_against_dp_accounting(rate: float) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    theirs = pld.from_laplace_mechanism(1.0, sampling_prob=rate).self_compose(20)
    ours = epsilon(Repeated(PoissonSampled(Laplace(1, 1), rate), 20), 1e-6, AR)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=0.01)


@pytest.mark.parametrize(("std", "bound"), [(3.0, 2.0), (0.7, 1.0), (10.0, 10.0)])
def test_discrete_noise_against_dp_accounting(std: float, bound: float) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    gaussian = pld.from_discrete_gaussian_mechanism(std, int(bound), use_connect_dots=True)
    laplace = pld.from_discrete_laplace_mechanism(1 / std, int(bound))
    for events, law in (
        (DiscreteGaussian(std, bound), gaussian),
        (DiscreteLaplace(std, bound), laplace),
    ):
        for n in (1, 5):
            theirs = law.self_compose(n).get_epsilon_for_delta(1e-6)
            assert epsilon(Repeated(events, n), 1e-6, AR) == pytest.approx(theirs, rel=2e-3)


@pytest.mark.parametrize("std", [0.8, 1.0, 3.0])
@pytest.mark.parametrize("times", [1, 1000])
def test_against_prv_accountant(std: float, times: int) -> None:
    from prv_accountant import PRVAccountant
    from prv_accountant.privacy_random_variables import PoissonSubsampledGaussianMechanism

    oracle = PRVAccountant(
        prvs=[PoissonSubsampledGaussianMechanism(sampling_probability=0.01, noise_multiplier=std)],
        max_self_compositions=[times],
        eps_error=0.01,
        delta_error=1e-9,
    )
    low, _, high = oracle.compute_epsilon(delta=1e-5, num_self_compositions=[times])
    found = epsilon(Repeated(PoissonSampled(Gaussian(std, 1), 0.01), times), 1e-5, AR)
    assert low <= found + 1e-3
    assert found <= high + 1e-3


@pytest.mark.parametrize("times", [1, 30])
def test_against_autodp(times: int) -> None:
    from autodp.mechanism_zoo import GaussianMechanism, LaplaceMechanism
    from autodp.transformer_zoo import Composition

    gaussian = GaussianMechanism(sigma=2.0)
    assert epsilon(Repeated(Gaussian(2, 1), times), 1e-5, AR) <= Composition()(
        [gaussian], [times]
    ).get_approxDP(1e-5) * (1 + 1e-6)
    laplace = LaplaceMechanism(b=5.0)
    # autodp composes by Renyi divergences, so it may only be the looser one.
    assert epsilon(Repeated(Laplace(5, 1), times), 1e-5, AR) <= Composition()(
        [laplace], [times]
    ).get_approxDP(1e-5) * (1 + 1e-6)


def test_two_faults_of_dp_accounting_are_still_there() -> None:
    """The reasons for not using its event accountants. When this fails, read the wrapper again."""
    from dp_accounting import GaussianDpEvent, dp_event
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation
    from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant

    relation = NeighboringRelation.REPLACE_ONE
    rdp = RdpAccountant(neighboring_relation=relation).compose(GaussianDpEvent(1.0))
    assert rdp.get_epsilon(1e-5) == pytest.approx(4.73, abs=0.01)  # 9.997 is right
    response = dp_event.RandomizedResponseDpEvent(0.5, 4)
    pld = PLDAccountant(neighboring_relation=relation).compose(response, 100)
    assert pld.get_epsilon(1e-5) == pytest.approx(1.609, abs=0.01)  # 123.9 is right


def test_round_off_does_not_hide_small_deltas() -> None:
    """A third fault of dp-accounting 0.6: round-off of its convolution drowns small deltas.

    How much differs from machine to machine: at 1e-13 it is 0.5 % or more, at 1e-14 it is 89 %.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    law = pld.from_gaussian_mechanism(1.0, sampling_prob=0.01).self_compose(1000)
    event = Repeated(PoissonSampled(Gaussian(1, 1), 0.01), 1000)
    floor = second_accountant.floor(event, 1e-14, AR)
    found = epsilon(event, 1e-14, AR)
    assert floor <= found <= 1.005 * floor
    assert abs(law.get_epsilon_for_delta(1e-14) / found - 1.0) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("target", [1e-6, 1e-10, 1e-14, 1e-25])
@pytest.mark.parametrize(
    ("rate", "std", "times"), [(1e-4, 1.0, 10**6), (1e-3, 3.0, 10**6), (0.01, 0.7, 1000)]
)
def test_small_deltas_and_many_compositions(
    rate: float, std: float, times: int, target: float
) -> None:
    event = Repeated(PoissonSampled(Gaussian(std, 1), rate), times)
    found = epsilon(event, target, AR)
    bracket = second_accountant.bracket(event, target, AR)
    assert bracket.floor <= found <= bracket.ceiling
    if target >= 1e-14:  # below, the bound on round-off makes itself felt
        # The floor is within one percent of the truth (see its own tests), and so are we.
        assert found <= bracket.floor * 1.03 + 1e-3
    # Both are upper bounds, at slightly different tilts and so with different bounds on round-off.
    assert delta(event, found, AR) <= target * (1 + 1e-4)


# --- properties -----------------------------------------------------------------------------------

scales = st.floats(0.3, 30.0)
rates = st.sampled_from([1e-3, 0.05, 0.5])
counts = st.integers(1, 200)


def replace_one_events() -> st.SearchStrategy[Event]:
    gaussian = st.builds(Gaussian, scales, st.just(1.0))
    laplace = st.builds(Laplace, scales, st.just(1.0))
    pure = st.builds(PureDP, st.floats(0.01, 2.0))
    return st.one_of(
        gaussian,
        laplace,
        pure,
        st.builds(ApproxDP, st.floats(0.01, 2.0), st.just(1e-8)),
        st.builds(RandomizedResponse, st.floats(0.01, 2.0), categories=st.integers(2, 5)),
        st.builds(DiscreteGaussian, scales, st.just(2.0), st.sampled_from([1, 7])),
        st.builds(DiscreteLaplace, scales, st.just(2.0)),
        st.builds(PoissonSampled, gaussian, rates),
        st.builds(FixedSizeSampled, st.one_of(gaussian, laplace, pure), st.just(500), st.just(5)),
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(st.tuples(replace_one_events(), counts), min_size=1, max_size=3))
def test_floor_below_pld_below_renyi(parts: list[tuple[Event, int]]) -> None:
    events = [Repeated(event, times) for event, times in parts]
    try:
        found = epsilon(events, 1e-5, RO)
    except UnsupportedError as error:
        # Vector grid noise with losses above 600, among other events: refused, and said so.
        refusal = str(error)
        assert "beyond the range of doubles" in refusal
        return
    bracket = second_accountant.bracket(events, 1e-5, RO)
    assert bracket.floor <= found * (1 + 1e-9) + 1e-9
    # Where the second accountant happens to be exact, the first one's grid of 1e-4 shows.
    assert found <= bracket.ceiling * (1 + 1e-5) + GRID


@settings(max_examples=25)
@given(replace_one_events(), st.integers(2, 30))
def test_composition_is_the_same_however_it_is_written(event: Event, times: int) -> None:
    counted = epsilon(Repeated(event, times), 1e-5, RO)
    assert epsilon([event] * times, 1e-5, RO) == pytest.approx(counted, abs=1e-9)
    replay = [Event.from_dict(e.to_dict()) for e in (Repeated(event, times - 1), event)]
    assert epsilon(replay, 1e-5, RO) == pytest.approx(counted, abs=1e-9)


@pytest.mark.parametrize(
    "build",
    [
        lambda s, n, q: Repeated(PoissonSampled(Gaussian(s, 1), q), n),
        lambda s, n, q: Repeated(FixedSizeSampled(Gaussian(s, 1), 1000, int(1000 * q)), n),
        lambda s, n, q: [Repeated(Laplace(s, 1), n), PoissonSampled(Gaussian(s, 1), q)],
    ],
)
def test_monotone_in_noise_count_and_rate(build: Callable[..., Event]) -> None:
    base = epsilon(build(2.0, 20, 0.05), 1e-5, RO)
    assert epsilon(build(2.2, 20, 0.05), 1e-5, RO) < base
    assert epsilon(build(2.0, 22, 0.05), 1e-5, RO) > base
    assert epsilon(build(2.0, 20, 0.06), 1e-5, RO) > base
    assert epsilon(build(2.0, 20, 0.05), 1e-6, RO) > base


TARGETS = st.sampled_from([1e-8, 1e-5, 0.01])


@settings(max_examples=12)
@given(replace_one_events(), counts, TARGETS)
def test_delta_is_the_inverse_of_epsilon(event: Event, times: int, target: float) -> None:
    assert_inverse(event, times, target)


@pytest.mark.slow
@settings(max_examples=60)
@given(replace_one_events(), counts, TARGETS)
def test_delta_is_the_inverse_of_epsilon_often(event: Event, times: int, target: float) -> None:
    assert_inverse(event, times, target)


def assert_inverse(event: Event, times: int, target: float) -> None:
    events = Repeated(event, times)
    try:
        found = epsilon(events, target, RO)
    except InputError:
        assert isinstance(event, ApproxDP)  # it leaks more than the target outright
        return
    assert delta(events, found, RO) <= target * (1 + 1e-4)  # two bounds, at two tilts
    if found > 0.01 and account(events, target, RO).method != "sum of pure epsilons":
        assert delta(events, found * 0.99, RO) > target


# --- hunts for a pair of neighbours that loses more -----------------------------------------------


def hockey_stick(p: Array, q: Array, eps: float) -> float:
    return float(np.maximum(p - math.exp(eps) * q, 0.0).sum())


EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0)


def test_no_vector_shift_of_laplace_noise_loses_more_than_one_coordinate() -> None:
    x = np.linspace(-14.0, 14.0, 1401)

    def law(a: float, b: float) -> Array:
        # Cells instead of points: lumping outcomes together can only lose information.
        cells = [np.diff(stats.laplace.cdf(x, centre)) for centre in (a, b)]
        return np.asarray(np.multiply.outer(cells[0], cells[1]))

    base = law(0.0, 0.0)
    for share in (0.1, 0.3, 0.5):
        shifted = law(1.5 * share, 1.5 * (1.0 - share))
        for eps in EPSILONS:
            assert hockey_stick(shifted, base, eps) <= delta(Laplace(1, 1.5), eps, AR) + 1e-12


@pytest.mark.parametrize("shift", [(3, 0), (2, 1), (1, 2)])
def test_no_vector_shift_of_discrete_laplace_noise_loses_more(shift: tuple[int, int]) -> None:
    k = np.arange(-60, 61)

    def law(a: int, b: int) -> Array:
        weights = np.multiply.outer(np.exp(-abs(k - a) / 1.3), np.exp(-abs(k - b) / 1.3))
        return np.asarray(weights / np.exp(-abs(k) / 1.3).sum() ** 2)

    for eps in EPSILONS:
        allowed = delta(DiscreteLaplace(1.3, 3.0), eps, AR)
        assert hockey_stick(law(*shift), law(0, 0), eps) <= allowed + 1e-12


@pytest.mark.parametrize("shift", [(2, 2, 1), (3, 0, 0), (1, 2, 2)])
def test_no_vector_shift_of_discrete_gaussian_noise_loses_more(shift: tuple[int, ...]) -> None:
    k = np.arange(-30, 31)
    std = 2.0

    def law(shifts: tuple[int, ...]) -> Array:
        rows = [np.exp(-((k - s) ** 2) / (2 * std**2)) for s in shifts]
        total = np.exp(-(k**2) / (2 * std**2)).sum() ** 3
        return np.asarray(np.einsum("a,b,c->abc", *rows) / total)

    for eps in EPSILONS:
        allowed = delta(DiscreteGaussian(std, 3.0, 3), eps, AR)
        assert hockey_stick(law(shift), law((0, 0, 0)), eps) <= allowed + 1e-12


X = np.linspace(-25.0, 25.0, 20001)


def normal(mean: float, std: float) -> Array:
    """Masses of cells: lumping outcomes together can only lose information, never add any."""
    return np.diff(stats.norm.cdf(X, mean, std))


contributions = st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=4)


@pytest.mark.slow
@settings(max_examples=60)
@given(contributions, st.floats(-1.0, 1.0), st.sampled_from([0.7, 1.0, 2.0]), st.booleans())
def test_no_fixed_size_draw_loses_more(
    others: list[float], new: float, std: float, two: bool
) -> None:
    batch = 2 if two else 1

    def law(data: list[float]) -> Array:
        draws = list(itertools.combinations(data, batch))
        return np.asarray(np.mean([normal(sum(draw), std) for draw in draws], axis=0))

    event = FixedSizeSampled(Gaussian(std, 1), len(others), batch)
    p, q = law(others), law([new, *others[1:]])
    for eps in EPSILONS:
        assert hockey_stick(p, q, eps) <= delta(event, eps, RO) + 1e-12
        assert hockey_stick(q, p, eps) <= delta(event, eps, RO) + 1e-12


@pytest.mark.slow
@settings(max_examples=60)
@given(
    contributions,
    st.one_of(st.none(), st.floats(-1.0, 1.0)),
    st.sampled_from([0.7, 1.0, 2.0]),
    st.sampled_from([0.1, 0.5]),
)
def test_no_poisson_draw_loses_more(
    data: list[float], new: float | None, std: float, rate: float
) -> None:
    def law(units: list[float]) -> Array:
        total = np.zeros(X.size - 1)
        for drawn in itertools.product([0, 1], repeat=len(units)):
            weight = math.prod(rate if d else 1.0 - rate for d in drawn)
            total += weight * normal(sum(d * u for d, u in zip(drawn, units, strict=True)), std)
        return total

    relation = AR if new is None else RO
    neighbour = data[1:] if new is None else [new, *data[1:]]
    event = PoissonSampled(Gaussian(std, 1), rate)
    p, q = law(data), law(neighbour)
    for eps in EPSILONS:
        allowed = delta(event, eps, relation)
        assert hockey_stick(p, q, eps) <= allowed + 1e-12
        assert hockey_stick(q, p, eps) <= allowed + 1e-12


def test_the_hunts_have_teeth() -> None:
    """The pair of the docstrings reaches the bound, so that one 10 % too small would be caught."""
    eps = 0.5
    opposite = 0.1 * normal(1, 1) + 0.9 * normal(0, 1), 0.1 * normal(-1, 1) + 0.9 * normal(0, 1)
    assert hockey_stick(*opposite, eps) == pytest.approx(
        delta(PoissonSampled(Gaussian(1, 1), 0.1), eps, RO), rel=1e-3
    )
    drawn = 0.25 * normal(1, 1) + 0.75 * normal(-1, 1), normal(-1, 1)
    assert hockey_stick(*drawn, eps) == pytest.approx(
        delta(FixedSizeSampled(Gaussian(1, 1), 4), eps, RO), rel=1e-3
    )


# --- disjoint people ------------------------------------------------------------------------------


def test_disjoint_costs_the_worst_group() -> None:
    groups = Disjoint((Gaussian(2, 1), Gaussian(1, 1), Gaussian(3, 1)))
    assert epsilon(groups, 1e-5, RO) == epsilon(Gaussian(1, 1), 1e-5, RO)
    assert epsilon(Disjoint((Gaussian(1, 1),) * 10_000), 1e-5, RO) == epsilon(
        Gaussian(1, 1), 1e-5, RO
    )


def test_disjoint_among_other_events_and_inside_repeated() -> None:
    groups = Disjoint((Gaussian(5, 1), PureDP(0.4)))
    first = epsilon([Gaussian(5, 1), Laplace(4, 1)], 1e-5, RO)
    second = epsilon([PureDP(0.4), Laplace(4, 1)], 1e-5, RO)
    assert epsilon([groups, Laplace(4, 1)], 1e-5, RO) == pytest.approx(max(first, second))
    # A unit may be in one group the first time and in the other the second time.
    mixed = epsilon([Gaussian(5, 1), PureDP(0.4)], 1e-5, RO)
    twice = epsilon(Repeated(groups, 2), 1e-5, RO)
    assert twice >= mixed
    assert twice == pytest.approx(
        max(mixed, epsilon([PureDP(0.4)] * 2, 1e-5, RO), epsilon([Gaussian(5, 1)] * 2, 1e-5, RO))
    )


def test_disjoint_with_too_many_ways_is_refused() -> None:
    groups = Disjoint(tuple(Laplace(1.0 + i, 1) for i in range(5)))
    with pytest.raises(UnsupportedError, match="Too many ways"):
        epsilon(Repeated(groups, 1000), 1e-5, RO)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "relation", "sentence"),
    [
        (PoissonSampled(Gaussian(1, 1), 0.1), LO, "means nothing under local"),
        (PoissonSampled(Gaussian(1, 1), 0.1), RR, "means nothing under reward-radius"),
        (FixedSizeSampled(Gaussian(1, 1), 10), LO, "means nothing under local"),
        (FixedSizeSampled(Gaussian(1, 1), 10), AR, "needs the relation replace-one"),
        (PureDP(1.0), AR, "holds under the relation replace-one"),
        (PureDP(1.0, relation=AR), RO, "holds under the relation add-remove"),
        (RandomizedResponse(1.0), AR, "holds under the relation local"),
        (ApproxDP(1.0, 1e-6), LO, "holds under the relation replace-one"),
    ],
)
def test_relations_that_do_not_fit(events: Event, relation: Relation, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        epsilon(events, 1e-5, relation)
    with pytest.raises(InputError):
        second_accountant.bracket(events, 1e-5, relation)


def test_a_local_report_is_private_under_replace_one_too() -> None:
    assert epsilon(RandomizedResponse(1.0), 0.0, RO) == 1.0


@pytest.mark.parametrize(
    ("events", "relation"),
    [
        (PoissonSampled(Laplace(1, 1), 0.1), RO),
        (PoissonSampled(Repeated(Laplace(1, 1), 2), 0.1), AR),
        (FixedSizeSampled(DiscreteGaussian(1, 1), 10), RO),
        (FixedSizeSampled(ApproxDP(1, 1e-6), 10), RO),
        (PoissonSampled(PoissonSampled(Gaussian(1, 1), 0.1), 0.1), AR),
        (PoissonSampled(Disjoint((Gaussian(1, 1), Laplace(1, 1))), 0.1), AR),
    ],
)
def test_what_has_no_proven_bound_raises(events: Event, relation: Relation) -> None:
    with pytest.raises(UnsupportedError, match="No proven bound"):
        epsilon(events, 1e-5, relation)


def test_delta_zero_where_one_is_needed() -> None:
    with pytest.raises(InputError, match="delta must be above 0"):
        epsilon(Gaussian(1, 1), 0.0)
    with pytest.raises(InputError, match="delta must be at least 0 and below 1"):
        epsilon(Gaussian(1, 1), 1.0)
    with pytest.raises(InputError, match="No finite epsilon at delta 1e-07"):
        epsilon(ApproxDP(1.0, 1e-6), 1e-7)


@pytest.mark.parametrize("event", [Gaussian(1e-160, 1), Laplace(1e-300, 1e300), Gaussian(1e200, 1)])
def test_noise_out_of_proportion_is_refused(event: Event) -> None:
    with pytest.raises(InputError, match="out of proportion"):
        epsilon(event, 1e-5)


def test_nothing_is_lost_by_nothing() -> None:
    assert epsilon([], 1e-5) == 0.0
    # Integer sums that move by less than one step do not move at all.
    assert epsilon(DiscreteGaussian(1.0, 0.4), 1e-5, RO) == 0.0
    assert epsilon(DiscreteLaplace(1.0, 0.9), 0.0, AR) == 0.0


def test_sampling_everything_is_not_sampling() -> None:
    full = epsilon(Repeated(Laplace(1, 1), 3), 1e-5, AR)
    assert epsilon(PoissonSampled(Repeated(Laplace(1, 1), 3), 1.0), 1e-5, AR) == full
    assert epsilon(FixedSizeSampled(Gaussian(1, 1), 5, 5), 1e-5) == epsilon(Gaussian(1, 1), 1e-5)


def test_several_gaussians_on_one_sample_are_one_gaussian() -> None:
    several = PoissonSampled(Repeated(Gaussian(2, 1), 4), 0.01)
    assert epsilon(several, 1e-5, AR) == epsilon(PoissonSampled(Gaussian(1, 1), 0.01), 1e-5, AR)
    assert epsilon(several, 1e-5, RO) == epsilon(PoissonSampled(Gaussian(1, 1), 0.01), 1e-5, RO)


# --- one sampled step, in closed form -------------------------------------------------------------


def digits_ndtr(x: Any) -> Any:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def digits_delta(event: PoissonSampled | FixedSizeSampled, eps: Any, relation: Relation) -> Any:
    """delta of a sampled Gaussian from the definition of its pair, in as many digits as are set."""
    assert isinstance(event.event, Gaussian)
    mu = mpmath.mpf(event.event.bound) / mpmath.mpf(event.event.std)
    fixed = isinstance(event, FixedSizeSampled)
    if isinstance(event, FixedSizeSampled):
        q, mu = mpmath.mpf(event.batch) / event.population, 2 * mu
    else:
        q = mpmath.mpf(event.rate)
    e = mpmath.exp(eps)

    def above(x: Any, mean: Any, share: Any) -> Any:
        return share * digits_ndtr(mean - x) + (1 - share) * digits_ndtr(-x)

    if relation is RO and not fixed:
        # (1 - q) + q e^(-mu^2/2) t = e ((1 - q) + q e^(-mu^2/2) / t), t = e^(mu x)
        a, b = q * mpmath.exp(-(mu**2) / 2), (1 - q) * (e - 1)
        x = mpmath.log((b + mpmath.sqrt(b**2 + 4 * a**2 * e)) / (2 * a)) / mu
        return above(x, mu, q) - e * above(x, -mu, q)
    # The mixture against N(0, 1); and, of Poisson samples, N(0, 1) against the mixture.
    x = (mpmath.log((e - 1 + q) / q) + mu**2 / 2) / mu
    found = above(x, mu, q) - e * digits_ndtr(-x)
    if not fixed and e * (1 - q) < 1:
        x = (mpmath.log((1 / e - 1 + q) / q) + mu**2 / 2) / mu
        below = 1 - above(x, mu, q)
        found = max(found, digits_ndtr(x) - e * below)
    return found


SAMPLED = [
    (rate, std, target)
    for rate in (1e-12, 1e-6, 1e-3, 0.3, 0.999999)
    for std in (0.02, 0.5, 1.0, 50.0, 1e6)
    for target in (1e-30, 1e-12, 1e-5, 1e-2)
]


def one_step(rate: float, std: float) -> list[tuple[PoissonSampled | FixedSizeSampled, Relation]]:
    size = 10**6
    return [
        (PoissonSampled(Gaussian(std, 1), rate), AR),
        (PoissonSampled(Gaussian(std, 1), rate), RO),
        (FixedSizeSampled(Gaussian(std, 1), size, max(1, round(rate * size))), RO),
    ]


def test_one_sampled_step_at_extreme_points_in_fifty_digits() -> None:
    """Never below the truth, at 300 points; above it by no more than rounding explains."""
    with mpmath.workdps(50):
        for rate, std, target in SAMPLED:
            for event, relation in one_step(rate, std):
                found = account(event, target, relation)
                assert found.method == "exact trade-off of one sampled step"
                there = digits_delta(event, mpmath.mpf(found.epsilon), relation)
                assert there <= mpmath.mpf(target), (event, relation, target)
                # What is set aside for rounding is at most 1e-11 of the tails, whose difference may
                # be 1 / (40 std) of them; at a delta equal to the rate epsilon jumps.
                if found.epsilon > 0.0 and target != rate:
                    assert there >= target * (1 - 1e-9 - 4e-10 * std), (event, relation, target)
                # And delta at an epsilon, unless it is too small for a double.
                asked = max(found.epsilon, 1e-3)
                exact = digits_delta(event, mpmath.mpf(asked), relation)
                shown = delta(event, asked, relation)
                if exact > 1e-300:
                    assert exact <= shown <= exact * (1 + 1e-9 + 4e-10 * std), (event, relation)


def test_one_sampled_step_at_a_tiny_rate_is_tight_and_needs_no_grid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a grid this was 1.002 and took seconds; the second accountant brackets it."""

    def on_a_grid(*_: object) -> None:
        raise AssertionError("a single step was composed on a grid")

    monkeypatch.setattr("privrl.privacy.accounting.privacy_profile._compositions", on_a_grid)
    for (event, relation), low in zip(one_step(1e-6, 0.5), (0.0579, 0.0579, 12.54), strict=True):
        found = epsilon(event, 1e-12, relation)
        bracket = second_accountant.bracket(event, 1e-12, relation)
        assert low < bracket.floor <= found <= bracket.ceiling
        assert found <= bracket.floor * (1 + 1e-5)
    certificate = Certificate.issue(
        [PoissonSampled(Gaussian(0.5, 1), 1e-6)], 1e-12, unit=Unit.TRAJECTORY, relation=RO
    )
    certificate.verify()


@given(
    st.sampled_from([1e-5, 0.01, 0.5]),
    st.floats(0.4, 20.0),
    st.sampled_from([1e-9, 1e-5, 1e-3]),
    st.sampled_from([AR, RO]),
)
@settings(deadline=None, max_examples=40)
def test_one_sampled_step_lies_between_the_accountants(
    rate: float, std: float, target: float, relation: Relation
) -> None:
    """The floor is what a pair of neighbours really loses; it gives up 1e-5 of delta."""
    for event, held in one_step(rate, std):
        if held is relation:
            bracket = second_accountant.bracket(event, target, relation)
            found = epsilon(event, target, relation)
            assert bracket.floor <= found * (1 + 1e-9) + 1e-15
            assert found <= bracket.ceiling * (1 + 1e-9)


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (PoissonSampled(Laplace(1, 1), 0.01), AR),
        (FixedSizeSampled(Laplace(1, 1), 100), RO),
        (PoissonSampled(PureDP(1.0, relation=AR), 0.1), AR),
        (PoissonSampled(ApproxDP(1.0, 1e-7, relation=AR), 0.1), AR),
        (FixedSizeSampled(RandomizedResponse(0.5, categories=3, relation=RO), 10, 3), RO),
    ],
)
def test_one_sampled_step_of_other_noise(event: Event, relation: Relation) -> None:
    """The closed form, between the two bounds and next to the lower."""
    for target in (1e-6, 1e-4, 1e-3):
        found = epsilon(event, target, relation)
        bracket = second_accountant.bracket(event, target, relation)
        assert bracket.floor <= found * (1 + 1e-9)
        assert found <= bracket.ceiling * (1 + 1e-9)
        assert found <= bracket.floor * (1 + 1e-3) + 1e-9
        assert delta(event, found, relation) <= target * (1 + 1e-9)


@pytest.mark.parametrize("mu", [1e-7, 1e-3, 30.0, 300.0])
def test_extreme_gaussians(mu: float) -> None:
    found = epsilon(Gaussian(1 / mu, 1), 1e-6, AR)
    assert math.isfinite(found)
    # mu^2/2 + mu sqrt(2 log(1/delta)) is always enough; the mean of the loss is a floor.
    assert (
        mu**2 / 2 - 1e-9
        <= found + (mu < 1e-2)
        <= mu**2 / 2 + mu * math.sqrt(-2 * math.log(1e-6)) + 1
    )


@pytest.mark.parametrize(
    ("events", "relation", "low", "high"),
    [
        # Losses beyond 700, where e^loss is no double any more.
        ([Gaussian(0.02, 1), Laplace(1, 1)], AR, 1250, 1500),
        ([Laplace(0.001, 1), Gaussian(1, 1)], AR, 1000, 1005),
        (PureDP(800.0), RO, 799, 800),
        ([PureDP(800.0), Laplace(1, 1)], RO, 800, 802),
        (PoissonSampled(PureDP(800.0, relation=AR), 0.5), AR, 799, 800),
        (FixedSizeSampled(PureDP(800.0), 2, 1), RO, 799, 800),
        (PoissonSampled(Gaussian(0.02, 1), 0.01), AR, 1240, 1500),
        (PoissonSampled(Gaussian(0.02, 1), 0.01), RO, 1240, 1500),
        (FixedSizeSampled(Gaussian(0.05, 1), 100), RO, 790, 1000),
        (Repeated(PureDP(1e-9), 10**6), RO, 0, 1e-3),
        (Repeated(PoissonSampled(Gaussian(100, 1), 1e-6), 10**6), AR, 0, 1e-3),
        (Repeated(Gaussian(1e-6, 1), 1), AR, 4.9e11, 5.1e11),
        # Many pure events, whose losses cancel far above the range of e^-loss.
        (Repeated(RandomizedResponse(0.9747), 2168), LO, 1000, 1140),
        (Repeated(Laplace(1000, 1), 10**9), AR, 500, 800),
    ],
)
def test_extremes_are_finite_and_where_they_must_be(
    events: Event, relation: Relation, low: float, high: float
) -> None:
    assert low <= epsilon(events, 1e-5, relation) <= high


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 1e3, 1e150, 1e200, 1e308])
def test_gaussian_deltas_are_numbers_at_both_ends(epsilon: float) -> None:
    """Squares of epsilon / mu overflow there; by its tail delta is below any number above 0."""
    found = [gaussian_delta(10.0**power, epsilon) for power in range(-300, 301, 20)]
    assert all(0.0 <= one <= 1.0 for one in found)
    assert found == sorted(found)
    assert found[0] == 0.0
    far, near = (log_gaussian_delta(1e-3, np.array([eps]))[0] for eps in (1e98, 0.99e97))
    assert far == log_gaussian_delta(1e-3, np.array([1e300]))[0]
    assert -math.inf < far < near
