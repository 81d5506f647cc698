"""Weights, utilities and CPT values against integrals, hand-computed numbers and derivatives."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import integrate, stats

from privrl.core.errors import InputError
from privrl.risk import (
    IdentityWeight,
    PowerUtility,
    Prelec,
    Prospect,
    TverskyKahneman,
    Weight,
    parse_prospect,
)

PEOPLE = {
    "standard": Prospect.tversky_kahneman(),
    "paper": Prospect.rajabi2022(),
    "neutral": Prospect.neutral(),
    "prelec": Prospect(PowerUtility(0.7, 0.9, 1.5, reference=1.0), Prelec(0.65), Prelec(0.5, 1.2)),
}
WEIGHTS = [TverskyKahneman(0.28), TverskyKahneman(0.61), Prelec(0.4, 0.8), IdentityWeight()]
ANYTHING: Any = "a utility"
outcomes = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


def everybody() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("who", list(PEOPLE.values()), ids=list(PEOPLE))


# --- weights and utilities ------------------------------------------------------------------------


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
def test_weights_rise_from_zero_to_one_with_the_slope_they_say(weight: Weight) -> None:
    p = np.linspace(0.0, 1.0, 2001)
    w = weight(p)
    assert w[0] == 0.0
    assert w[-1] == 1.0
    assert np.all(np.diff(w) > 0.0)
    inside = np.linspace(0.01, 0.99, 99)
    measured = (weight(inside + 1e-6) - weight(inside - 1e-6)) / 2e-6
    assert_allclose(weight.slope(inside), measured, rtol=1e-6)
    with jax.enable_x64(True):
        by_jax = jax.vmap(jax.grad(weight))(jnp.asarray(inside))
        assert_allclose(by_jax, weight.slope(inside), rtol=1e-10)
        ends = jax.vmap(jax.grad(weight))(jnp.array([0.0, 1.0]))
    assert np.all(np.isfinite(ends))


def test_weights_that_are_known() -> None:
    # 0.05^0.61 = 0.16083, 0.95^0.61 = 0.96920; their sum to the power 1/0.61 is 1.22189.
    assert float(TverskyKahneman(0.61)(0.05)) == pytest.approx(0.16083 / 1.22189, abs=1e-5)
    assert float(Prelec(0.65)(math.exp(-1.0))) == pytest.approx(math.exp(-1.0), abs=1e-15)
    assert np.isinf(TverskyKahneman(0.61).slope(0.0))
    assert np.isinf(Prelec(0.65).slope(1.0))
    assert float(Prelec(1.0, 2.0).slope(0.0)) == 0.0
    assert float(Prelec(1.0, 2.0).slope(1.0)) == 2.0


@given(st.floats(-1e9, 1e9), st.floats(-5.0, 5.0))
def test_utilities_rise_through_zero_and_have_an_inverse(x: float, reference: float) -> None:
    u = PowerUtility(0.88, 0.7, 2.25, reference)
    assert float(u(x)) == float(u.gain(x)) - float(u.loss(x))
    assert min(float(u.gain(x)), float(u.loss(x))) == 0.0
    assert float(u(reference)) == 0.0
    assert float(u.inverse(u(x))) == pytest.approx(x, rel=1e-9, abs=1e-9)
    assert float(u(x + 1.0)) > float(u(x))


def test_a_loss_weighs_more_than_a_gain() -> None:
    u = PowerUtility()
    assert float(u(10.0)) == pytest.approx(7.5858, abs=1e-4)
    assert float(u(-10.0)) == pytest.approx(-2.25 * 7.5858, abs=1e-3)


# --- values ---------------------------------------------------------------------------------------


@everybody()
@given(c=st.floats(-1e6, 1e6), n=st.integers(1, 40))
def test_a_constant_is_worth_its_utility(who: Prospect, c: float, n: int) -> None:
    assert float(who.of_samples(np.full(n, c))) == pytest.approx(float(who.utility(c)), rel=1e-11)
    probs = np.full(n, 1.0 / n)
    found = float(who.of_distribution(np.full(n, c), probs))
    assert found == pytest.approx(float(who.utility(c)), rel=1e-11)


@given(outcomes)
def test_neutral_people_take_the_mean(samples: list[float]) -> None:
    found = float(Prospect.neutral().of_samples(samples))
    assert found == pytest.approx(math.fsum(samples) / len(samples), rel=1e-9, abs=1e-7)


@everybody()
@given(samples=outcomes, more=st.floats(0.0, 1e3), at=st.integers(0, 11))
def test_more_is_never_worth_less(
    who: Prospect, samples: list[float], more: float, at: int
) -> None:
    better = list(samples)
    better[at % len(samples)] += more
    before, after = float(who.of_samples(samples)), float(who.of_samples(better))
    assert after >= before - 1e-9 * (1.0 + abs(before))


@everybody()
@given(samples=outcomes)
def test_samples_are_the_distribution_of_equal_probs(who: Prospect, samples: list[float]) -> None:
    n = len(samples)
    found = float(who.of_distribution(samples, np.full(n, 1.0 / n)))
    assert found == pytest.approx(float(who.of_samples(samples)), rel=1e-9, abs=1e-9)


def test_a_distribution_by_hand() -> None:
    """Definition 4 with -10, -1, 0, 4 and 25, whose order and ties must not matter."""
    who = Prospect.tversky_kahneman()
    up, down = who.gain_weight, who.loss_weight
    gains = 4.0**0.88 * (up(0.5) - up(0.2)) + 25.0**0.88 * up(0.2)
    losses = 2.25 * (10.0**0.88 * down(0.1) + 1.0 * (down(0.3) - down(0.1)))
    found = who.of_distribution(
        [4.0, -10.0, 25.0, 0.0, -1.0, 25.0], [0.3, 0.1, 0.15, 0.2, 0.2, 0.05]
    )
    assert float(found) == pytest.approx(float(gains - losses), rel=1e-12)


@pytest.mark.parametrize(
    ("law", "low", "high", "points"),
    [
        (stats.norm(5.0, 1.0), -math.inf, math.inf, ()),
        (stats.norm(0.3, 2.0), -math.inf, math.inf, ()),
        (stats.uniform(-1.0, 3.0), -1.0, 2.0, ()),
        (stats.uniform(2.0, 1.0), 2.0, 3.0, ()),
        (stats.uniform(-5.0, 2.0), -5.0, -3.0, ()),
        (stats.expon(), 0.0, math.inf, ()),
        (stats.norm(100.0, 3.0), -math.inf, math.inf, (85.0, 100.0, 115.0)),
    ],
    ids=["normal", "mixed", "uniform", "gains", "losses", "exponential", "far"],
)
@everybody()
def test_densities_against_the_integral_of_the_definition(
    who: Prospect, law: Any, low: float, high: float, points: tuple[float, ...]
) -> None:
    """Definition 3 by SciPy's quadrature, with the law's exact probabilities."""
    u = who.utility

    def integral(prob: Callable[[float], float], top: float) -> float:
        where = [float(abs(u(one))) for one in (*points, law.mean())]
        inside = sorted({one for one in where if 0.0 < one < min(top, 1e6)})
        steps = [0.0, *inside, top if math.isfinite(top) else 1e3]
        return math.fsum(
            integrate.quad(prob, a, b, limit=400, epsabs=1e-10)[0]
            for a, b in pairwise(steps)
            if a < b
        )

    top, bottom = (float(side(end)) for side, end in ((u.gain, high), (u.loss, low)))
    gains = integral(lambda z: float(who.gain_weight(law.sf(u.inverse(z)))), top)
    losses = integral(lambda z: float(who.loss_weight(law.cdf(u.inverse(-z)))), bottom)
    found = who.of_density(law.pdf, low, high, points)
    assert found == pytest.approx(gains - losses, abs=1e-6)
    if who.is_neutral:
        assert found == pytest.approx(law.mean(), abs=1e-6)


def test_a_wide_density_whose_reach_is_told() -> None:
    """Outcomes a million times as large are worth 1e6^0.88 times as much."""
    who = Prospect.tversky_kahneman()
    wide = who.of_density(stats.norm(0.0, 1e6).pdf, points=(-1e6, 1e6))
    assert wide == pytest.approx(1e6**0.88 * who.of_density(stats.norm().pdf), rel=1e-9)


def test_a_density_that_cannot_be_trusted_is_refused() -> None:
    who = Prospect.tversky_kahneman()
    with pytest.raises(InputError, match=r"integrates to 0\.5"):
        who.of_density(stats.norm().pdf, 0.0, math.inf)
    with pytest.raises(InputError, match="points where"):
        who.of_density(stats.norm(1e4, 0.01).pdf)
    with pytest.raises(InputError, match="at least 0"):
        who.of_density(lambda x: -np.ones_like(x), 0.0, 1.0)
    # A rare fortune weighs more than it is likely: it must not be overlooked.
    with pytest.raises(InputError, match="integrates to"):
        who.of_density(lambda x: (1.0 - 9e-7) * stats.norm().pdf(x))
    with pytest.raises(InputError, match="low must be below high"):
        who.of_density(stats.norm().pdf, 1.0, 1.0)


def test_the_estimator_is_consistent() -> None:
    """The error falls as n grows, at least as n^(-g/2) says; the printed index is complex."""
    who, draw = Prospect.rajabi2022(), np.random.default_rng(7)
    truth = who.of_density(stats.norm(5.0, 1.0).pdf)
    errors = []
    for n in (100, 1600, 25_600):
        found = who.of_samples(draw.normal(5.0, 1.0, (100, n)))
        errors.append(float(np.sqrt(np.mean((found - truth) ** 2))))
    # g = 0.61 gives a factor of 16^0.305 = 2.3; and room for the probability of 100 repetitions.
    assert errors[0] / errors[1] > 2.3 * 0.75
    assert errors[1] / errors[2] > 2.3 * 0.75
    assert errors[2] < 0.01
    printed = (1.0 - (100 + 50 - 1) / 100) ** 0.61
    assert isinstance(printed, complex)


@pytest.mark.parametrize(
    "who", [PEOPLE["standard"], PEOPLE["neutral"]], ids=["standard", "neutral"]
)
def test_axes_dtypes_and_jax(who: Prospect) -> None:
    draw = np.random.default_rng(3)
    x, p = draw.normal(0.0, 2.0, (4, 3, 5)), draw.dirichlet(np.ones(3), (4, 5)).swapaxes(1, 2)
    by_hand = [[who.of_samples(x[i, :, k]) for k in range(5)] for i in range(4)]
    assert_allclose(who.of_samples(x, axis=1), by_hand, rtol=1e-12)
    one_by_one = [[who.of_distribution(x[i, :, k], p[i, :, k]) for k in range(5)] for i in range(4)]
    assert_allclose(who.of_distribution(x, p, axis=1), one_by_one, rtol=1e-12)
    with jax.enable_x64(True):
        compiled = jax.jit(lambda x, p: (who.of_samples(x, 1), who.of_distribution(x, p, 1)))(x, p)
    assert_allclose(compiled[0], who.of_samples(x, axis=1), rtol=1e-12)
    assert_allclose(compiled[1], who.of_distribution(x, p, axis=1), rtol=1e-12)
    single = who.of_samples(jnp.asarray(x, jnp.float32), 1)
    assert single.dtype == jnp.float32


@pytest.mark.parametrize("who", [PEOPLE["standard"], PEOPLE["prelec"]], ids=["standard", "prelec"])
def test_derivatives_against_differences(who: Prospect) -> None:
    y = np.array([-3.0, 0.2, 1.7, 4.0])
    p = np.array([0.1, 0.4, 0.3, 0.2])

    def measured(f: Callable[[Any], Any], at: Any) -> Any:
        return np.array([(f(at + 1e-6 * e) - f(at - 1e-6 * e)) / 2e-6 for e in np.eye(len(at))])

    with jax.enable_x64(True):
        given = jax.jit(jax.grad(who.of_samples))(jnp.asarray(y))
        assert_allclose(given, measured(who.of_samples, y), rtol=1e-6, atol=1e-9)
        outcome, prob = jax.jit(jax.grad(who.of_distribution, (0, 1)))(y, p)
        assert_allclose(outcome, measured(lambda x: who.of_distribution(x, p), y), atol=1e-6)

        along = jax.jit(lambda q: who.of_distribution(jnp.asarray(y), q))
        # Their sum is not checked in JAX, so that one can be moved alone.
        assert_allclose(prob, measured(along, p), rtol=1e-5, atol=1e-6)
        at_reference = jax.jit(jax.grad(who.of_samples))(jnp.full(4, who.utility.reference))
    assert np.all(np.isfinite(at_reference))


# --- odd input ------------------------------------------------------------------------------------


def test_what_is_no_number_makes_no_value() -> None:
    who = Prospect.tversky_kahneman()
    assert math.isnan(float(who.of_samples([1.0, math.nan])))
    assert math.isnan(float(who.of_distribution([1.0, math.nan], [0.5, 0.5])))
    assert float(who.of_samples([math.inf, 1.0])) == math.inf
    assert float(who.of_distribution([1.0, math.inf], [1.0, 0.0])) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Prospect.neutral().of_samples([]), "at least one"),
        (lambda: Prospect.neutral().of_samples("many"), "must be numbers"),
        (lambda: Prospect.neutral().of_samples([[1.0], [1.0, 2.0]]), "must be numbers"),
        (lambda: Prospect.neutral().of_distribution([1.0, 2.0], [0.5, 0.6]), "sum to 1"),
        (lambda: Prospect.neutral().of_distribution([1.0, 2.0], [1.5, -0.5]), "0 or more"),
        (lambda: Prospect.neutral().of_distribution([1.0, 2.0], [0.2, 0.3, 0.5]), "as many"),
        (lambda: TverskyKahneman(0.2), "from 0.28 to 1"),
        (lambda: Prelec(1.5), "at most 1"),
        (lambda: PowerUtility(1.2), "at most 1"),
        (lambda: PowerUtility(loss_aversion=0.0), "positive"),
        (lambda: PowerUtility(reference=math.inf), "1e100"),
        (lambda: Prospect(ANYTHING), "PowerUtility"),
        (lambda: parse_prospect("careful"), "tversky-kahneman"),
        (lambda: parse_prospect({"kind": "privrl prospect"}), "no utility"),
        (lambda: parse_prospect(3), "its name"),
        (lambda: Prospect.neutral().of_samples([1.0, 2.0], 5), "an axis that they have"),
        (lambda: Prospect.neutral().of_distribution([1.0], [1.0], 3), "an axis that they have"),
        (lambda: Prospect.neutral().of_density(lambda x: x, 0.0, 1.0, ANYTHING), "points must"),
        (lambda: Prospect.neutral().of_density(lambda x: "a", 0.0, 1.0), "at least 0"),
        (lambda: Prospect.neutral().of_density(lambda x: x + 1j, 0.0, 1.0), "at least 0"),
        (
            lambda: parse_prospect(
                {**Prospect.neutral().to_dict(), "gain_weight": {"kind": ["straight"]}}
            ),
            "A weight has a kind",
        ),
    ],
)
def test_bad_input_gets_one_clear_sentence(call: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        call()


@everybody()
def test_json_gives_the_same_prospect(who: Prospect, tmp_path: Path) -> None:
    path = str(tmp_path / "prospect.json")
    who.save(path)
    assert parse_prospect(path) == who == parse_prospect(who.to_dict()) == parse_prospect(who)
    assert hash(Prospect.load(path)) == hash(who)
