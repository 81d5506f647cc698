"""Projected random sign: exact odds for every bit, whatever the vector, and the law on paper."""

import hashlib
import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from privrl.privacy import InputError, PureDP, Relation
from privrl.privacy.mechanisms.sign import (
    ProjectedSign,
    SignReport,
    bernoulli_sigmoid,
    epsilon_share,
    stochastic_sign,
)
from privrl.privacy.noise import reproducible, secure
from tests.statistics import FALSE_ALARM, follows_discrete

Floats = NDArray[np.float64]

nasty = st.one_of(
    st.floats(width=64, allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-310, 1e-160, 1.0, 1e154, 1e308, -1e308]),
    st.floats(-2.0, 2.0),
)
rows = st.lists(nasty, min_size=3, max_size=3)
seeds = st.binary(min_size=16, max_size=16)


def exactly(fraction: Fraction) -> Decimal:
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def probs(plan: ProjectedSign, row: list[float], seed: bytes) -> list[Fraction]:
    """The exact probability that each bit's first stage says +1."""
    finite = np.array(row) if np.all(np.isfinite(row)) else np.zeros(3)
    t = plan.positions(finite[None, :], [seed])[0]
    assert np.all(np.abs(t) <= 1.0)
    return [Fraction(int(np.rint((1.0 + x) * 2.0**52)), 2**53) for x in t]


@settings(max_examples=150)
@example([0.0, 0.0, 1.0], [0.0, 1.0, 0.0], bytes([*bytes(6), 4, *bytes(7), 70, 219]), 1.5, 1.0)
@given(rows, rows, seeds, st.floats(0.01, 12.0), st.floats(0.01, 10.0))
def test_every_report_is_at_most_e_to_the_epsilon_likelier(
    first: list[float], second: list[float], seed: bytes, eps: float, clip: float
) -> None:
    """All bit strings enumerated, their probabilities computed to forty digits."""
    plan = ProjectedSign(eps, 3, clip)
    assert plan.event == PureDP(eps, relation=Relation.LOCAL)
    with localcontext(prec=40):
        truth = 1 / (1 + (-exactly(plan.epsilon_per_part)).exp())

        def probability(s: Fraction, bit: bool) -> Decimal:
            plus = exactly(s) * truth + (1 - exactly(s)) * (1 - truth)
            return plus if bit else 1 - plus

        one, two = (probs(plan, row, seed) for row in (first, second))
        total = Decimal(0)
        for bits in itertools.product((False, True), repeat=plan.bits):
            p = math.prod(probability(s, b) for s, b in zip(one, bits, strict=True))
            q = math.prod(probability(s, b) for s, b in zip(two, bits, strict=True))
            # A row at either end reaches the bound itself; the last digits here are rounded.
            assert max(p / q, q / p) <= exactly(Fraction(eps)).exp() * (1 + Decimal("1e-36"))
            total += p
        assert abs(total - 1) < Decimal("1e-35")


def test_the_bound_is_attained() -> None:
    plan = ProjectedSign(10.0, 3, 1e-3)
    ones = np.ones((1, 3))
    # A seed whose directions all see the vector.
    for i in range(10_000):
        seed = i.to_bytes(16, "little")
        if np.all(plan.directions([seed]).sum(axis=2) != 0):
            break
    ends = np.array([plan.positions(sign * ones, [seed])[0] for sign in (1.0, -1.0)])
    np.testing.assert_array_equal(np.abs(ends), 1.0)
    np.testing.assert_array_equal(ends[0], -ends[1])
    # Each bit then has odds e^x against e^-x: the product is e^epsilon, up to the rounding of x.
    assert float(plan.epsilon_per_part) * plan.bits == pytest.approx(10.0, rel=1e-11)
    assert plan.epsilon_per_part * plan.bits <= 10


def test_coins_are_exact() -> None:
    generator = secure().generator
    n = 400_000
    for x in (Fraction(1, 2), Fraction(1), Fraction(5, 2)):
        p = 1.0 / (1.0 + math.exp(-x))
        heads = int(np.sum(bernoulli_sigmoid(generator, x, n)))
        assert stats.binomtest(heads, n, p).pvalue > FALSE_ALARM
        wrong = 1.0 / (1.0 + math.exp(-1.1 * x))
        assert stats.binomtest(heads, n, wrong).pvalue < FALSE_ALARM
    for t in (-1.0, -0.3, 0.0, 0.9, 1.0):
        heads = int(np.sum(stochastic_sign(generator, np.full(n, t))))
        assert stats.binomtest(heads, n, (1.0 + t) / 2.0).pvalue > FALSE_ALARM
    assert epsilon_share(0.1, 1) <= Fraction(0.1)
    assert epsilon_share(10.0, 3) == Fraction(math.floor(Fraction(10, 3) * 2**40), 2**40)


def test_bits_have_the_probabilities_of_the_paper_and_ten_percent_off_is_seen() -> None:
    """(24) with epsilon / b for epsilon / k, through the reports as they travel."""
    plan = ProjectedSign(5.0, 7, 0.8)
    assert plan.bits == 2
    row = np.array([0.5, -0.1, 0.3, 0.0, 0.2, -0.6, 0.1])
    n = 120_000
    reports, _ = plan.reports(np.tile(row, (n, 1)), secure())
    directions = plan.directions([r.seed for r in reports]) * math.sqrt(3.0)
    u = np.clip(directions @ row, -0.8, 0.8)
    bits = np.array([r.bits for r in reports])

    def surprise(eps: float) -> float:
        e = math.exp(eps / 2)
        p = 1 / (e + 1) + (u + 0.8) / 1.6 * (e - 1) / (e + 1)
        # Signed by u: the direction in which a wrong epsilon shows.
        gap = np.sum(np.sign(u) * (bits - p))
        return float(abs(gap) / np.sqrt(np.sum(p * (1 - p))))

    assert surprise(5.0) < 5.0  # one false alarm in 10^6
    assert surprise(5.5) > 5.0
    assert surprise(4.5) > 5.0


def test_directions_are_those_of_the_seed() -> None:
    """Rebuilt byte by byte; a change here would change the meaning of reports under way."""
    plan = ProjectedSign(10.0, 50)
    drawn = [bytes(range(16)), bytes(16), b"sixteen bytes!!!"]
    found = plan.directions(drawn)
    assert found.shape == (3, 4, 50)
    for seed, signs in zip(drawn, found, strict=True):
        stream = hashlib.shake_128(b"tacit projected sign 1" + seed).digest(1000)
        expected = [{0: -1, 1: 1}.get(b % 6, 0) for b in stream if b < 252][:200]
        assert signs.ravel().tolist() == expected
    # The digest is taken again and longer when too many bytes were skipped: seen with one entry
    # per row, for which sixteen spare bytes never fall short, and with many.
    assert ProjectedSign(1.0, 1).directions(drawn).shape == (3, 1, 1)


def test_a_digest_that_falls_short_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Skipping:
        def __init__(self, data: bytes) -> None:
            self.tail = data

        def digest(self, length: int) -> bytes:
            return (b"\xff" * 60 + bytes(range(252)))[:length]

    monkeypatch.setattr(hashlib, "shake_128", Skipping)
    found = ProjectedSign(1.0, 12).directions([bytes(16)])[0, 0]
    assert found.tolist() == [-1, 1, 0, 0, 0, 0] * 2


def test_directions_have_the_law_of_the_paper() -> None:
    plan = ProjectedSign(5.0, 20)
    signs = plan.directions([secure().generator.bytes(16) for _ in range(4000)])
    assert follows_discrete(signs, {-1: 1 / 6, 0: 2 / 3, 1: 1 / 6})
    assert not follows_discrete(signs, {-1: 0.18, 0: 0.64, 1: 0.18})
    pairs = 3 * (signs[:, 0] + 1) + signs[:, 1] + 1
    law = [1 / 6, 2 / 3, 1 / 6]
    assert follows_discrete(pairs, {3 * i + j: law[i] * law[j] for i in range(3) for j in range(3)})


def exact_mean(plan: ProjectedSign, row: Floats) -> Floats:
    """E[report], summed over all directions there are."""
    signs = np.array(list(itertools.product((-1, 0, 1), repeat=plan.dimension)))
    weights = np.prod(np.where(signs == 0, 2 / 3, 1 / 6), axis=1)
    m = signs * math.sqrt(3.0)
    mean = (weights * np.clip(m @ row, -plan.clip, plan.clip)) @ m
    told = plan.bits * math.tanh(plan.epsilon / plan.bits / 2.0)
    return np.asarray(mean * told / (plan.shrinkage if plan.debias else 1.0))


@pytest.mark.parametrize("debias", [False, True])
def test_the_mean_is_the_sum_over_all_directions(debias: bool) -> None:
    row = np.array([0.6, -0.5, 0.2])
    plan = ProjectedSign(6.0, 3, 0.7, debias)
    mean = exact_mean(plan, row)
    n = 60_000
    reports, _ = plan.release(np.tile(row, (n, 1)), secure())
    error = np.std(reports, axis=0) / math.sqrt(n)
    assert np.all(np.abs(np.mean(reports, axis=0) - mean) < 5.5 * error)
    assert np.any(np.abs(np.mean(reports, axis=0) - 1.1 * mean) > 5.5 * error)


def exact_kappa(dimension: int, clip: float) -> float:
    """E[u clip(u)] for u = m . g and the flat unit vector g, by convolution."""
    law = np.array([1.0])
    for _ in range(dimension):
        law = np.convolve(law, [1 / 6, 2 / 3, 1 / 6])
    u = math.sqrt(3.0 / dimension) * np.arange(-dimension, dimension + 1)
    return float(np.sum(law * u * np.clip(u, -clip, clip)))


@pytest.mark.parametrize(("eps", "clip"), [(1.0, 1.0), (5.0, 1.0), (10.0, 0.5)])
def test_debiased_reports_of_dense_vectors_are_unbiased(eps: float, clip: float) -> None:
    plan = ProjectedSign(eps, 112, clip)
    kappa = plan.shrinkage / (plan.bits * math.tanh(eps / plan.bits / 2))
    assert kappa == pytest.approx(math.erf(clip / math.sqrt(2)), rel=1e-9)
    assert exact_kappa(112, clip) / kappa == pytest.approx(1.0, abs=0.01)
    row = np.full(112, 1 / math.sqrt(112))
    n = 20_000
    reports, _ = plan.release(np.tile(row, (n, 1)), secure())
    along = reports @ row
    gap = abs(np.mean(along) - exact_kappa(112, clip) / kappa)
    assert gap < 5.0 * np.std(along) / math.sqrt(n)
    # The closed form of the error assumes normal projections: within one percent here, to which
    # come five standard errors of the measurement.
    squares = np.sum((reports - row) ** 2, axis=1)
    spread = 5.0 * np.std(squares) / math.sqrt(n)
    assert abs(np.mean(squares) - plan.error) < spread + 0.01 * plan.error
    raw = ProjectedSign(eps, 112, clip, debias=False)
    squares = np.sum((raw.release(np.tile(row, (n, 1)), secure())[0] - row) ** 2, axis=1)
    spread = 5.0 * np.std(squares) / math.sqrt(n)
    assert abs(np.mean(squares) - raw.error) < spread + 0.01 * raw.error


@settings(max_examples=100)
@given(st.lists(rows, min_size=1, max_size=4), st.sampled_from([0.5, 5.0, 9.0]))
def test_any_row_gives_a_valid_report(given_rows: list[list[float]], eps: float) -> None:
    plan = ProjectedSign(eps, 3)
    expanded, _ = plan.release(given_rows, secure())
    limit = plan.bits * plan.size
    assert expanded.shape == (len(given_rows), 3)
    assert np.all(np.abs(expanded) <= limit * (1 + 1e-12))


def test_huge_entries_count_with_their_sign() -> None:
    plan = ProjectedSign(1.0, 3)
    seed = next(
        s
        for s in (i.to_bytes(16, "big") for i in range(1000))
        if plan.directions([s])[0, 0].tolist() == [1, 1, -1]
    )
    for row, expected in (
        ([1e308, 1e308, -1e308], 1.0),
        ([-1e308, 1e308, 1e308], -1.0),
        ([1e308, -1e308, 0.0], 0.0),
        ([1e308, -1e308, 1e-3], -1e-3 * math.sqrt(3.0)),
    ):
        found = plan.positions(np.array([row]), [seed])[0, 0]
        # The small third entry is lost beside 1e308: total, and no privacy hangs on it.
        assert found == pytest.approx(expected, abs=2e-3)


def test_wire_form() -> None:
    for eps in (1.0, 5.0, 20.0, 25.0):
        plan = ProjectedSign(eps, 30)
        reports, _ = plan.reports(np.ones((5, 30)), secure())
        for report in reports:
            data = plan.encode(report)
            assert len(data) == 16 + (plan.bits + 7) // 8
            assert plan.decode(data) == report
    plan = ProjectedSign(7.5, 30)
    assert plan.encode(SignReport(bytes(16), (True, False, True))) == bytes(16) + b"\x05"
    for bad in (b"", bytes(16), bytes(18), "text", None, 3):
        with pytest.raises(InputError, match="17 bytes"):
            plan.decode(bad)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="3 bits, and this one has more"):
        plan.decode(bytes(16) + b"\x08")
    for wrong in (SignReport(bytes(15), (True,) * 3), SignReport(bytes(16), (True,) * 4)):
        with pytest.raises(InputError, match="16-byte seed and 3 bits"):
            plan.encode(wrong)


def test_jax_makes_the_same_reports_from_the_same_draws() -> None:
    import jax

    from privrl.privacy.mechanisms import sign_jax

    generator = secure().generator
    plan = ProjectedSign(9.0, 6, 0.9)
    given_rows = generator.standard_normal((500, 6))
    given_rows[0], given_rows[1], given_rows[2] = math.nan, 1e308, -math.inf
    drawn = [generator.bytes(16) for _ in range(500)]
    wanted = generator.integers(0, 2**53, (500, 3), dtype=np.uint64)
    truth = generator.integers(0, 2**62, (500, 3), dtype=np.uint64)
    finite = np.where(np.all(np.isfinite(given_rows), axis=1, keepdims=True), given_rows, 0.0)
    threshold = np.rint((1 + plan.positions(finite, drawn)) * 2.0**52).astype(np.uint64)
    honest = truth >= sign_jax.flip_count(plan.epsilon_per_part)
    bits = (wanted < threshold) == honest
    expected = plan.expand(
        [SignReport(s, tuple(b)) for s, b in zip(drawn, bits.tolist(), strict=True)]
    )
    with jax.enable_x64(True):
        found = jax.jit(partial(sign_jax.from_draws, plan))(
            jax.numpy.asarray(given_rows),
            directions=jax.numpy.asarray(plan.directions(drawn), dtype=float),
            wanted=jax.numpy.asarray(wanted),
            truth=jax.numpy.asarray(honest),
        )
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)


@pytest.mark.parametrize("eps", [1e-12, 1e-6, 0.3, 1.0, 5.0, 40.0, 1000.0])
def test_the_compiled_coin_has_odds_within_the_budget(eps: float) -> None:
    from privrl.privacy.mechanisms import sign_jax

    plan = ProjectedSign(eps, 1)
    lies = sign_jax.flip_count(plan.epsilon_per_part)
    with localcontext(prec=60):
        limit = (Decimal(eps) / plan.bits).exp()
        assert 1 <= Decimal(2**62 - lies) / Decimal(lies) <= limit
        if eps < 20.0:
            assert Decimal(2**62 - lies) / Decimal(lies) >= limit * (1 - Decimal("1e-11"))


COMPILED, ROW = ProjectedSign(1.0, 7, 0.8), np.array([0.5, -0.1, 0.3, 0.0, 0.2, -0.6, 0.1])


@pytest.fixture(scope="module")
def compiled_reports() -> Any:
    """So many compiled reports about one row."""
    import jax

    from privrl.privacy.mechanisms import sign_jax

    with jax.enable_x64(True):
        compiled = jax.jit(lambda x, k: sign_jax.reports(COMPILED, x, k))
        return np.asarray(compiled(np.tile(ROW, (200_000, 1)), secure().key()))


@pytest.mark.slow
def test_compiled_reports_have_the_law_of_the_others(compiled_reports: Any) -> None:
    ours = COMPILED.release(np.tile(ROW, (100_000, 1)), secure())[0]
    for direction in (ROW, ROW[::-1]):
        assert stats.ks_2samp(ours @ direction, compiled_reports @ direction).pvalue > FALSE_ALARM


def test_compiled_reports_have_the_mean_on_paper(compiled_reports: Any) -> None:
    """Sharper against a wrong epsilon than the law, and without the others' sampling error."""
    import jax

    from privrl.privacy.mechanisms import sign_jax

    plan, row, along = COMPILED, ROW, compiled_reports @ ROW
    spread = 5.0 * np.std(along) / math.sqrt(len(along))
    assert abs(np.mean(along) - exact_mean(plan, row) @ row) < spread
    for wrong in (0.9, 1.1):
        factor = math.tanh(wrong / 2) / math.tanh(0.5)
        assert abs(np.mean(along) - factor * exact_mean(plan, row) @ row) > spread
    key = secure().key()
    with pytest.raises(InputError, match="64 bits"):
        sign_jax.reports(plan, jax.numpy.zeros((2, 7)), key)
    with pytest.raises(InputError, match="7 columns"):
        sign_jax.reports(plan, jax.numpy.zeros((2, 6)), key)


def test_shapes() -> None:
    plan = ProjectedSign(1.0, 3)
    for shape in ((3,), (0, 3), (5, 3)):
        assert plan.release(np.zeros(shape), secure())[0].shape == shape
    with pytest.raises(InputError, match="rows must be"):
        plan.release(np.zeros((2, 4)), secure())
    for bad in (3, None, SignReport("x" * 16, (True,)), SignReport(bytes(16), [True])):  # type: ignore[arg-type]
        with pytest.raises(InputError, match="A report of this plan has"):
            plan.encode(bad)  # type: ignore[arg-type]
    found = [
        plan.release([row, [1, 2, 3]], reproducible(1))[0] for row in ([10**400, 0, 0], [0] * 3)
    ]
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1e-13}, "too small"),
        ({"dimension": 0}, "dimension"),
        ({"clip": -1.0}, "clip"),
        ({"clip": 1e300, "radius": 1e300}, "out of range"),
        ({"radius": math.inf}, "radius"),
        ({"clip": 1e-12}, "factor"),
        ({"debias": 1}, "debias"),
    ],
)
def test_bad_parameters(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ProjectedSign(**{"epsilon": 1.0, "dimension": 3, **arguments})  # type: ignore[arg-type]
