"""The auditor: its bounds are valid, and what keeps its promise is not refuted."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privrl.audit import (
    CanaryTarget,
    Counts,
    Target,
    Verdict,
    audit,
    audit_with_canaries,
    bounds,
)
from privrl.audit import attacks as attack_module
from privrl.audit.canaries import Coins
from privrl.audit.catalogue import TARGETS, find
from privrl.audit.mutations import audit_target
from privrl.audit.targets import mechanisms
from privrl.core.types import Array
from privrl.privacy import (
    Budget,
    Certificate,
    Gaussian,
    InputError,
    PureDP,
    RandomizedResponse,
    Relation,
    Release,
    Unit,
)
from privrl.privacy.exact import bernoulli
from privrl.privacy.noise import Source, secure
from tests.auditing import own_targets
from tests.statistics import FALSE_ALARM

LOCAL = Relation.LOCAL


# --- bounds ---------------------------------------------------------------------------------------


@given(st.integers(1, 400), st.data())
@settings(max_examples=150)
def test_clopper_pearson_inverts_the_binomial_tails(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    error = data.draw(st.sampled_from([1e-9, 1e-6, 0.025, 0.3]))
    low = float(bounds.clopper_pearson_lower(successes, trials, error))
    high = float(bounds.clopper_pearson_upper(successes, trials, error))
    assert 0.0 <= low <= successes / trials <= high <= 1.0
    if successes > 0:
        assert stats.binom.sf(successes - 1, trials, low) == pytest.approx(error, rel=1e-6)
    if successes < trials:
        assert stats.binom.cdf(successes, trials, high) == pytest.approx(error, rel=1e-6)


def test_epsilon_from_counts_by_hand() -> None:
    # All of 1000 guesses right: rates 1 and 0 up to 0.025^(1/1000) and its complement.
    least = 0.025**0.001
    found = bounds.epsilon_from_counts(Counts(1000, 1000, 0, 1000), 1e-3, 0.95)
    assert found == pytest.approx(math.log((least - 1e-3) / (1 - least)), rel=1e-9)
    assert bounds.max_detectable_epsilon(1000, 1e-3, 0.95) == found
    assert bounds.epsilon_from_counts(Counts(0, 1000, 0, 1000), 0.0, 0.95) == 0.0
    assert bounds.epsilon_from_counts(Counts(10, 1000, 500, 1000), 0.0, 0.95) == 0.0


def test_gaussian_mu_of_exact_rates() -> None:
    rates = stats.norm.cdf(0.6 - 0.2), stats.norm.cdf(-0.2)
    assert float(bounds.gaussian_mu(*rates)) == pytest.approx(0.6, rel=1e-9)
    assert float(bounds.gaussian_mu(0.0, 0.5)) == 0.0


@pytest.mark.parametrize("units", [1, 7, 60])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-4, 0.05])
def test_one_run_p_values_bound_the_worst_private_release(
    units: int, epsilon: float, delta: float
) -> None:
    # Each unit's coin is told with probability delta and answered at random otherwise: the worst
    # (epsilon, delta)-DP release there is, whose number of right guesses is exactly binomial.
    right = delta + (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    for correct in range(units + 1):
        truth = stats.binom.sf(correct - 1, units, right)
        stated = bounds.one_run_p_value(units, units, correct, epsilon, delta)
        assert stated >= truth * (1 - 1e-9)
        if delta == 0.0:
            assert stated == pytest.approx(truth, rel=1e-9)


def test_abstaining_leaves_the_p_value_valid() -> None:
    # Guessing only 20 of 60 coins, all of them answered at random: binomial with 20 trials.
    for correct in range(21):
        truth = stats.binom.sf(correct - 1, 20, math.e / (1 + math.e))
        assert bounds.one_run_p_value(60, 20, correct, 1.0, 0.0) == pytest.approx(truth, rel=1e-9)
        assert bounds.one_run_p_value(60, 20, correct, 1.0, 1e-3) >= truth


def test_one_run_p_values_bound_a_release_that_tells_all_at_once() -> None:
    # With probability delta every coin is told; this is (epsilon, delta)-DP as well.
    units, epsilon, delta = 40, 1.0, 1e-3
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    for correct in range(units + 1):
        truth = delta + (1 - delta) * stats.binom.sf(correct - 1, units, right)
        assert bounds.one_run_p_value(units, units, correct, epsilon, delta) >= truth * (1 - 1e-9)


def test_one_run_epsilon_is_where_the_p_value_crosses() -> None:
    found = bounds.one_run_epsilon(1000, 200, 180, 1e-6, 0.95)
    assert bounds.one_run_p_value(1000, 200, 180, found, 1e-6) == pytest.approx(0.05, rel=1e-6)
    assert bounds.one_run_epsilon(1000, 200, 100, 1e-6, 0.95) == 0.0


def test_p_values_at_one_point_are_exact_and_never_too_small() -> None:
    """A release that is exactly at hit = e^epsilon alarm + delta: P(p <= x) is at most x."""
    epsilon, delta, alarm, runs = 1.0, 0.05, 0.08, 300
    ratio = math.exp(epsilon)
    hit = ratio * alarm + delta
    rng = np.random.default_rng(5)
    hits, alarms = rng.binomial(runs, hit, 1000), rng.binomial(runs, alarm, 1000)
    found = np.array(
        [
            bounds.excess_p_value(Counts(int(h), runs, int(a), runs), ratio, delta)
            for h, a in zip(hits, alarms, strict=True)
        ]
    )
    for level in (0.2, 0.05, 0.01, 0.002):
        wrong = int(np.count_nonzero(found <= level))
        assert wrong <= stats.binom.isf(FALSE_ALARM, found.size, level)
    # And not idle: of the alarm rates that are possible the worst counts, so fewer are below a
    # level than might be, but not many fewer.
    assert np.count_nonzero(found <= 0.2) > 0.08 * found.size
    assert bounds.excess_p_value(Counts(10, 100, 50, 100), ratio, delta) == 1.0


@pytest.mark.parametrize(
    ("hits", "alarms"), [(100, 0), (100, 100), (0, 0), (1, 0), (100, 1), (60, 3)]
)
def test_p_values_at_the_ends(hits: int, alarms: int) -> None:
    found = bounds.excess_p_value(Counts(hits, 100, alarms, 100), math.exp(2.0), 1e-5)
    assert 0.0 < found <= 1.0
    # With all guesses right, (e^2 a)^100 (1 - a)^100 is largest where e^2 a is 1 or a is 1/2.
    if (hits, alarms) == (100, 0):
        assert found == pytest.approx((1.0 - math.exp(-2.0)) ** 100, rel=0.05, abs=1e-9)


@pytest.mark.slow
def test_power_is_that_of_the_test() -> None:
    """How often the test rejects, were the rates the observed ones: counted, and as stated."""
    ratio, delta, runs, error = math.exp(0.5), 0.1, 400, 1e-3
    observed = Counts(208, runs, 80, runs)
    stated = bounds.excess_power(observed, ratio, delta, error)
    rng = np.random.default_rng(6)
    rejected = [
        bounds.excess_p_value(
            Counts(int(rng.binomial(runs, 0.52)), runs, int(rng.binomial(runs, 0.2)), runs),
            ratio,
            delta,
        )
        <= error
        for _ in range(300)
    ]
    # Five standard errors of a rate of 300, and a normal law for a binomial one.
    assert 0.1 < stated < 0.9
    assert np.mean(rejected) == pytest.approx(stated, abs=0.2)


# --- validity of whole audits ---------------------------------------------------------------------


def _response(epsilon: float, runs: int = 2000) -> Target:
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))

    def draw(world: int, count: int, source: Source) -> Array:
        honest = bernoulli(source.generator, Fraction(truth), count)
        return np.where(honest == bool(world), 1.0, 0.0)[:, None]

    return Target("response", draw, (RandomizedResponse(epsilon),), LOCAL, delta=0.0, runs=runs)


@pytest.mark.slow
def test_bounds_err_no_more_often_than_they_say() -> None:
    # Randomised response is exactly as bad as it promises, so a bound above the promise is an
    # error, and at confidence 0.8 at most a fifth of the audits may make one.
    trials = 300
    found = [audit(_response(1.0), confidence=0.8) for _ in range(trials)]
    wrong = sum(item.epsilon > 1.0 for item in found)
    assert wrong <= stats.binom.isf(FALSE_ALARM, trials, 0.2)
    assert not any(item.is_refuted for item in found)
    assert np.median([item.epsilon for item in found]) > 0.8  # and they are not idle


def test_bounds_grow_with_what_is_lost() -> None:
    weak, strong = (audit(_response(e, runs=20_000)).epsilon for e in (0.5, 3.0))
    assert 0.3 < weak < 0.7
    assert 2.5 < strong < 3.3


def test_a_promise_that_is_too_small_is_refuted() -> None:
    honest = _response(1.0, runs=20_000)
    boasting = Target("boast", honest.draw, (PureDP(0.8, relation=LOCAL),), LOCAL, delta=0.0)
    assert audit(boasting, runs=20_000).is_refuted
    assert not audit(honest).is_refuted


def test_the_whole_curve_is_judged_and_not_one_point_of_it() -> None:
    # Noise of 0.8 of what is promised: too little for the bound on epsilon to tell, not for the
    # curve.
    def draw(world: int, count: int, source: Source) -> Array:
        return source.normal(0.8, (count, 1)) + world

    target = Target("less", draw, (Gaussian(1.0, 1.0),), Relation.ADD_REMOVE, runs=40_000)
    found = audit(target)
    assert found.epsilon < found.certified
    assert found.is_refuted


def _shifted(factor: float, promise: "Budget | tuple[Gaussian]", runs: int) -> Target:
    """A number moved by 1 under normal noise of so much of what was promised."""

    def mechanism(value: float, source: Source) -> Array:
        return value + source.normal(factor, (1,))

    add_remove = Relation.ADD_REMOVE
    return Target.from_mechanism(mechanism, (0.0, 1.0), promise, relation=add_remove, runs=runs)


@pytest.mark.slow
def test_what_keeps_its_promise_is_refuted_no_more_often_than_said() -> None:
    # Exactly as bad as promised, at a false-alarm rate of 2 %: of 100 audits at most 11, but once
    # in a million times.
    trials = 100
    promise = (Gaussian(1.0, 1.0),)
    found = [audit(_shifted(1.0, promise, 400), false_alarm=0.02) for _ in range(trials)]
    wrong = sum(item.is_refuted for item in found)
    assert wrong <= stats.binom.isf(FALSE_ALARM, trials, 0.02)
    assert {item.false_alarm for item in found} == {0.02}


def test_a_test_fixed_beforehand_catches_a_fifth_less_noise() -> None:
    """At mu = 2 and 1,000 runs that are judged, with power 0.95: of 30 audits at least 22."""
    promise = (Gaussian(0.5, 1.0),)
    found = [
        audit(
            replace(_shifted(0.4, promise, 1600), draw=_normal_around(0.4)),
            false_alarm=1e-3,
        )
        for _ in range(30)
    ]
    # 21 or fewer happen with probability 1.1e-5 at power 0.95, and less at more.
    assert sum(item.is_refuted for item in found) >= 22


def _normal_around(std: float) -> Callable[[int, int, Source], Array]:
    return lambda world, count, source: source.normal(std, (count, 1)) + world


def test_verdicts() -> None:
    # A third of the noise: refuted where the whole curve is promised; with one point promised and
    # so few runs that it could not be refuted, inconclusive, and with a warning.
    curve, point = (Gaussian(0.5, 1.0),), Budget(10.0, 1e-5)
    assert audit(_shifted(0.5 / 3, curve, 2000)).verdict is Verdict.REFUTED
    found = audit(_shifted(0.5 / 3, point, 2000))
    assert found.could_show < found.certified
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.warning is not None
    assert found.gaussian.epsilon > 1.5 * found.certified
    # All the noise: not refuted where noise of 0.8 would have shown, else inconclusive.
    honest = audit(_shifted(0.5, curve, 4000))
    assert (honest.verdict, honest.warning) == (Verdict.NOT_REFUTED, None)
    assert honest.would_catch is not None
    assert honest.would_catch >= 0.8
    assert audit(_shifted(0.5, curve, 200)).verdict is Verdict.INCONCLUSIVE
    assert honest.to_dict()["verdict"] == "not refuted"
    # A pure promise below what could be shown.
    assert audit(_response(1.0)).verdict is Verdict.NOT_REFUTED


def test_gaussian_shape_is_found_again() -> None:
    def draw(world: int, count: int, source: Source) -> Array:
        return source.normal(1.0, (count, 3)) + world / math.sqrt(3.0)

    target = Target("shift", draw, (Gaussian(1.0, 1.0),), Relation.ADD_REMOVE, runs=200_000)
    found = audit(target)
    assert 0.95 < found.gaussian.mu < 1.02
    assert found.gaussian.epsilon == pytest.approx(found.certified, rel=0.06)
    false_alarms, hits = (np.array(part) for part in zip(*found.curve, strict=True))
    assert np.all(np.diff(false_alarms) >= 0)
    assert np.all(np.diff(hits) >= 0)
    assert (false_alarms[0], hits[0], false_alarms[-1], hits[-1]) == (0, 0, 1, 1)
    # On the true curve up to five standard errors of a rate, twice.
    inside = (false_alarms > 0) & (false_alarms < 1)
    truth = stats.norm.cdf(stats.norm.ppf(false_alarms[inside]) + 1.0)
    assert np.max(np.abs(hits[inside] - truth)) < 10 * 0.5 / math.sqrt(100_000)


# --- what counts as an output ---------------------------------------------------------------------


def test_an_error_that_depends_on_the_input_is_an_output() -> None:
    def mechanism(value: float, source: Source) -> Array:
        if value > 5.0:
            raise ValueError("too large")
        return source.normal(10.0, (2,)) + value

    found = audit(Target.from_mechanism(mechanism, (1.0, 9.0), Budget(1.0, 1e-5), runs=400))
    assert found.is_refuted
    assert not audit(
        Target.from_mechanism(mechanism, (1.0, 2.0), Budget(1.0, 1e-5), runs=400)
    ).is_refuted


def test_a_mechanism_that_always_fails_is_no_audit() -> None:
    def mechanism(value: float, source: Source) -> bytes:
        raise ValueError("wrong key")

    with pytest.raises(InputError, match="failed in every run: ValueError: wrong key"):
        audit(Target.from_mechanism(mechanism, (0.0, 1.0), Budget(1.0), runs=100))


def test_bytes_are_attacked_bit_by_bit() -> None:
    def mechanism(value: int, source: Source) -> bytes:
        noise = bytearray(source.generator.bytes(12))
        keep = source.generator.random() < 0.9
        noise[7] = (noise[7] & 0xFB) | ((value if keep else 1 - value) << 2)
        return bytes(noise)

    odds = math.log(9.0)
    found = audit(Target.from_mechanism(mechanism, (0, 1), Budget(odds), relation=LOCAL, runs=8000))
    assert 1.7 < found.epsilon < odds + 0.3
    assert not found.is_refuted
    assert audit(
        Target.from_mechanism(mechanism, (0, 1), Budget(1.0), relation=LOCAL, runs=8000)
    ).is_refuted


def test_a_message_whose_length_tells_is_caught() -> None:
    def mechanism(value: int, source: Source) -> bytes:
        return source.generator.bytes(8 + value)

    assert audit(
        Target.from_mechanism(mechanism, (0, 1), Budget(2.0), relation=LOCAL, runs=400)
    ).is_refuted


LEAKS: dict[str, tuple[object, object]] = {
    "the sign of an infinity": (math.inf, -math.inf),
    "NaN or infinity": (math.nan, math.inf),
    "where NaN stands": ([math.nan, 0.0], [0.0, math.nan]),
    "the last bit of a large integer": (np.int64(2**60), np.int64(2**60 + 1)),
    "an imaginary part": (1.0 + 0.0j, 1.0 + 10.0j),
    "the length of an array": (np.zeros(1), np.zeros(4)),
    "the shape of an array": (np.zeros((2, 3)), np.zeros((3, 2))),
    "the sign of zero": (0.0, -0.0),
    "the type of a number": (np.int64(1), np.float64(1.0)),
    "nothing or something": (np.zeros(0), np.zeros(1)),
    "bytes or a number": (b"1", 1.0),
}


@pytest.mark.parametrize("name", LEAKS)
def test_everything_that_can_be_seen_is_seen(name: str) -> None:
    target = Target.from_mechanism(
        lambda value, source: value, LEAKS[name], Budget(1.0), relation=LOCAL
    )
    found = audit(target, runs=400)
    assert found.is_refuted
    same = Target.from_mechanism(
        lambda value, s: value, (LEAKS[name][0],) * 2, Budget(1.0), relation=LOCAL
    )
    assert audit(same, runs=400).epsilon == 0.0


@pytest.mark.parametrize("messages", [("a", "b"), ("a", "a b")])
def test_the_message_of_an_error_is_seen(messages: tuple[str, str]) -> None:
    def mechanism(message: str, source: Source) -> float:
        if source.generator.random() < 0.5:
            raise ValueError(message)
        return 0.0

    found = audit(Target.from_mechanism(mechanism, messages, Budget(1.0), relation=LOCAL, runs=400))
    assert found.is_refuted
    assert 0.4 < min(found.failures) <= max(found.failures) < 0.6


@pytest.mark.parametrize("messages", [("a", "b"), ("a", "a b")])
def test_errors_in_every_run_are_told_apart(messages: tuple[str, str]) -> None:
    def mechanism(message: str, source: Source) -> float:
        raise ValueError(message)

    assert audit(Target.from_mechanism(mechanism, messages, Budget(1.0), runs=400)).is_refuted


def test_numbers_of_any_size_are_compared() -> None:
    def mechanism(sign: float, source: Source) -> Array:
        noise = source.normal(1.0, (2,))
        return np.array([noise[0], sign * 1e200 * (1 + 0.01 * noise[1])])

    assert audit(Target.from_mechanism(mechanism, (1.0, -1.0), Budget(1.0), runs=400)).is_refuted


def _raising(together: bool) -> Target:
    """Exactly 1-DP: all there is to see is whether a run failed, rarely, in one world or other."""
    rates = (0.004, 0.004 * math.e)

    def draw(world: int, count: int, source: Source) -> list[object]:
        fails = bernoulli(source.generator, Fraction(rates[world]), count)
        if together:
            if fails.any():
                raise ValueError("no")
            return [np.zeros(1)] * count
        return [1.0 if fail else 0.0 for fail in fails]

    return Target("raising", draw, (PureDP(1.0, relation=LOCAL),), LOCAL, delta=0.0, runs=20_000)


def test_rare_errors_are_counted_at_their_rate() -> None:
    plain, raised = audit(_raising(False)), audit(_raising(True))
    assert not plain.is_refuted
    assert not raised.is_refuted
    # Five standard errors of a rate.
    for share, rate in zip(raised.failures, (0.004, 0.004 * math.e), strict=True):
        assert abs(share - rate) < 5 * math.sqrt(rate / 20_000)


def test_outputs_longer_than_any_seen_before() -> None:
    def mechanism(value: int, source: Source) -> bytes:
        return source.generator.bytes(8 if source.generator.random() > 0.004 else 9)

    for _ in range(10):
        target = Target.from_mechanism(mechanism, (0, 1), Budget(1.0), relation=LOCAL, runs=400)
        assert not audit(target).is_refuted


def test_one_neighbour_is_not_two() -> None:
    with pytest.raises(InputError, match="Two neighbouring inputs"):
        Target.from_mechanism(lambda x, s: x, (0.0,), Budget(1.0))  # type: ignore[arg-type]


def test_what_an_audit_would_catch_is_caught_about_half_the_time() -> None:
    def target(factor: float, promise: Budget | tuple[Gaussian]) -> Target:
        def mechanism(value: float, source: Source) -> Array:
            return value + source.normal(factor, (1,))

        return Target.from_mechanism(
            mechanism, (0.0, 1.0), promise, relation=Relation.ADD_REMOVE, runs=4000
        )

    promise = (Gaussian(1.0, 1.0),)
    limit = audit(target(1.0, promise)).would_catch
    assert limit is not None
    assert 0.5 < limit < 1.0
    caught = sum(audit(target(limit - 0.1, promise)).is_refuted for _ in range(10))
    assert caught >= 5
    # A budget promises one point of the curve only, and less is caught.
    one_point = audit(target(1.0, Budget(4.377, 1e-5))).would_catch
    assert one_point is not None
    assert one_point < limit
    assert audit(_response(1.0)).would_catch is None


def test_nan_is_seen() -> None:
    def mechanism(value: float, source: Source) -> Array:
        return source.normal(1.0, (3,)) * value

    assert audit(
        Target.from_mechanism(mechanism, (1.0, math.nan), Budget(2.0, 1e-5), runs=400)
    ).is_refuted


def test_a_certificate_is_a_promise() -> None:
    certificate = Certificate.issue(
        [Gaussian(1.0, 0.5)],
        1e-5,
        unit=Unit.USER,
        relation=Relation.REPLACE_ONE,
        release=Release.FINAL_MODEL,
    )

    def mechanism(value: float, source: Source) -> float:
        return value + float(source.normal(1.0, (1,))[0])

    target = Target.from_mechanism(mechanism, (-0.5, 0.5), certificate, runs=2000)
    found = audit(target)
    assert found.certified == pytest.approx(certificate.epsilon)
    assert not found.is_refuted
    assert found.to_dict()["delta"] == 1e-5


def test_attacks_ignore_what_does_not_differ() -> None:
    rows = attack_module.attack_features(np.ones((50, 3)))
    for attack in attack_module.fit_attacks(rows, rows):
        assert np.ptp(attack.score(rows)) == 0.0, attack.name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": 10}, "at least 40 runs"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": math.nan}, "confidence"),
        ({"false_alarm": 0.0}, "false_alarm"),
        ({"false_alarm": 0.5}, "false_alarm"),
        ({"runs": 2.5}, "runs"),
    ],
)
def test_bad_requests(change: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit(_response(1.0), **change)  # type: ignore[arg-type]


def test_draws_of_the_wrong_shape_are_refused() -> None:
    events = (PureDP(1.0, relation=LOCAL),)
    few = Target("few", lambda w, n, s: np.zeros((n - 1, 2)), events, LOCAL, delta=0.0, runs=100)
    with pytest.raises(InputError, match="a row for each"):
        audit(few)
    text = Target("text", lambda w, n, s: ["a"] * n, events, LOCAL, delta=0.0, runs=100)
    with pytest.raises(InputError, match="numbers of at most 64 bits, or bytes"):
        audit(text)


# --- canaries -------------------------------------------------------------------------------------


def _answers(epsilon: float, promised: float, canaries: int = 3000) -> CanaryTarget:
    """Every canary's coin answered by randomised response: nothing leaks more evenly."""
    truth = Fraction(math.exp(epsilon) / (1 + math.exp(epsilon)))

    def train(coins: Coins, source: Source) -> Array:
        honest = bernoulli(source.generator, truth, len(coins))
        jitter = 0.1 * source.generator.random(len(coins))
        return np.where(coins == honest, 1.0, -1.0) + jitter

    events = (PureDP(promised, relation=LOCAL),)
    return CanaryTarget("answers", train, canaries, events, LOCAL, delta=0.0)


def test_canaries_come_close_to_the_truth_and_refute_a_boast() -> None:
    found = audit_with_canaries(_answers(2.0, 2.0))
    assert 1.6 < found.epsilon < 2.2
    assert not found.is_refuted
    assert audit_with_canaries(_answers(2.0, 1.0)).is_refuted
    assert found.could_show > 5.0
    assert found.guesses >= found.correct


@pytest.mark.slow
def test_canary_bounds_err_no_more_often_than_they_say() -> None:
    trials = 200
    wrong = sum(
        audit_with_canaries(_answers(1.0, 1.0, 200), confidence=0.8).epsilon > 1.0
        for _ in range(trials)
    )
    assert wrong <= stats.binom.isf(FALSE_ALARM, trials, 0.2)


@pytest.mark.parametrize("canaries", [2, 3, 5, 10, 20, 31, 59, 60])
def test_few_canaries_that_say_nothing_refute_nothing(canaries: int) -> None:
    events = (PureDP(1.0, relation=LOCAL),)

    def train(coins: Coins, source: Source) -> Array:
        return source.generator.random(len(coins))

    for _ in range(20):
        found = audit_with_canaries(
            CanaryTarget("nothing", train, canaries, events, LOCAL, delta=0.0)
        )
        assert not found.is_refuted
        assert found.correct <= found.guesses <= canaries


def test_a_training_function_that_fails() -> None:
    events = (PureDP(1.0, relation=LOCAL),)

    def train(coins: Coins, source: Source) -> Array:
        raise KeyError("weights")

    with pytest.raises(InputError, match="failed: KeyError"):
        audit_with_canaries(CanaryTarget("t", train, 10, events, LOCAL, delta=0.0))
    with pytest.raises(InputError, match="at least 2"):
        CanaryTarget("t", train, 1, events, LOCAL)


def test_canaries_need_a_score_each() -> None:
    events = (PureDP(1.0, relation=LOCAL),)
    short = CanaryTarget("short", lambda coins, s: np.zeros(3), 10, events, LOCAL, delta=0.0)
    with pytest.raises(InputError, match="must score each of 10"):
        audit_with_canaries(short)


# --- what ships -----------------------------------------------------------------------------------


OWN = own_targets(mechanisms)
# These take longest to compile, or to draw.
LONG = {"unit-vector-compiled", "sign-compiled", "functional-compiled", "smooth"}
LONG |= {"running-sums-compiled", "running-sums-resumed", "gradient-descent"}
LONG |= {"laplace-report-compiled", "gradient-descent-canaries", "grid-gaussian"}
# Quick, and one of each kind.
QUICK = {"gaussian", "gaussian-not-a-number", "gaussian-twice", "laplace", "grid-laplace"}
QUICK |= {"functional", "field", "running-sums-tree", "running-sums-banded", "hybrid"}
QUICK |= {"piecewise", "laplace-report"}


def _marks(name: str) -> pytest.MarkDecorator | tuple[()]:
    return () if name in QUICK else pytest.mark.nightly if name in LONG else pytest.mark.slow


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in OWN])
def test_what_ships_is_not_refuted(name: str) -> None:
    found = audit_target(TARGETS[name]())
    assert found.target == name
    assert found.verdict is Verdict.NOT_REFUTED
    assert found.warning is None
    # Not idle either: something of what is lost is seen. (At points that are all but the same it
    # drowns in the noise that keeps them apart.)
    assert found.epsilon > 0.1 * found.certified or name == "field-close"


def test_targets_of_ones_own(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path)
    monkeypatch.chdir(path)
    monkeypatch.syspath_prepend(path)
    with open("my_targets.py", "w", encoding="utf-8") as file:
        file.write(
            "from privrl.privacy import Budget\n"
            "from privrl.audit import Target\n"
            "leak = Target.from_mechanism(\n"
            "    lambda x, s: x, (0.0, 1.0), Budget(1.0), name='leak', runs=100\n)\n"
            "number = 3\n"
            "def make():\n    return leak\n"
        )
    assert audit(find("my_targets:leak")()).is_refuted  # type: ignore[arg-type]
    assert audit(find("my_targets:make")()).is_refuted  # type: ignore[arg-type]
    for wrong in ("my_targets:number", "my_targets:nothing", "no_module:x", "nothing", "a:b:c"):
        with pytest.raises(InputError):
            find(wrong)


def test_secure_noise_by_default() -> None:
    seen: list[Source] = []

    def draw(world: int, count: int, source: Source) -> Array:
        seen.append(source)
        return source.normal(1.0, (count, 1))

    audit(Target("watch", draw, (Gaussian(1.0, 1.0),), Relation.ADD_REMOVE, runs=100))
    assert {item.origin for item in seen} == {secure().origin}
