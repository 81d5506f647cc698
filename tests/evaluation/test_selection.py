"""Private selection: the exact law, its likelihood ratios, and the sensitivity of its scores."""

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.evaluation.selection import LEVELS, OWN_ROW, PermuteAndFlip, choose
from privrl.privacy import InputError, PureDP, Relation, Unit
from privrl.privacy.ledger import Ledger
from privrl.privacy.noise import secure
from privrl.privacy.session import PrivacySession
from tests.statistics import follows_discrete

PLAN = PermuteAndFlip(1.3, -1.0, 2.0)
ANY = st.floats(allow_nan=True, allow_infinity=True)


def law(sums: list[int], epsilon: float) -> list[float]:
    """The probability of each candidate, by going through all orders."""
    passes = [math.exp(-epsilon * (max(sums) - q) / (2 * LEVELS)) for q in sums]
    found = [0.0] * len(sums)
    orders = list(itertools.permutations(range(len(sums))))
    for order in orders:
        left = 1.0
        for j in order:
            found[j] += left * passes[j] / len(orders)
            left *= 1.0 - passes[j]
    return found


def by_integral(sums: list[int], epsilon: float) -> list[float]:
    """The same by the formula of the proof, with polynomials in u."""
    passes = [math.exp(-epsilon * (max(sums) - q) / (2 * LEVELS)) for q in sums]
    found = []
    for j, own in enumerate(passes):
        product = np.polynomial.Polynomial([1.0])
        for i, other in enumerate(passes):
            if i != j:
                product = product * np.polynomial.Polynomial([1.0, -other])
        found.append(own * float(product.integ()(1.0)))
    return found


@given(st.lists(st.integers(0, 8 * LEVELS), min_size=1, max_size=5), st.floats(0.01, 5.0))
def test_the_formula_of_the_proof_is_the_law(sums: list[int], epsilon: float) -> None:
    assert by_integral(sums, epsilon) == pytest.approx(law(sums, epsilon), abs=1e-12)
    assert sum(law(sums, epsilon)) == pytest.approx(1.0)


@settings(max_examples=300)
@given(st.data())
def test_no_neighbouring_scores_break_the_ratio(data: st.DataObject) -> None:
    """Each sum moves by up to one unit's worth, in any direction: the worst case there is."""
    count = data.draw(st.integers(1, 5))
    epsilon = data.draw(st.floats(0.01, 5.0))
    one = data.draw(st.lists(st.integers(0, 4 * LEVELS), min_size=count, max_size=count))
    shift = st.sampled_from([-LEVELS, 0, LEVELS]) | st.integers(-LEVELS, LEVELS)
    other = [q + data.draw(shift) for q in one]
    for p, q in zip(law(one, epsilon), law(other, epsilon), strict=True):
        assert p <= math.exp(epsilon) * q * (1 + 1e-9) + 1e-12


def test_the_ratio_is_tight() -> None:
    """Far behind, a candidate's probability moves by the whole factor: less noise would not do."""
    far = 20 * LEVELS
    one, other = law([far, 0], 1.0), law([far - LEVELS, LEVELS], 1.0)
    assert other[1] / one[1] == pytest.approx(math.e, rel=1e-6)


@given(
    st.lists(st.lists(ANY, min_size=3, max_size=3), min_size=1, max_size=6),
    st.lists(ANY, min_size=3, max_size=3),
)
def test_a_unit_moves_each_sum_by_at_most_one(rows: list[list[float]], new: list[float]) -> None:
    before, after = PLAN.sums(rows), PLAN.sums([new, *rows[1:]])
    assert np.abs(before - after).max() <= LEVELS
    assert np.all(before >= 0)
    assert np.all(before <= LEVELS * len(rows))


def test_what_is_no_number_counts_as_the_least() -> None:
    sums = PLAN.sums([[math.nan, math.inf, -math.inf], [0.5, 1e308, -1e308]])
    assert sums.tolist() == [LEVELS // 2, 2 * LEVELS, 0]


def test_the_choice_follows_the_law_and_ten_percent_off_is_seen() -> None:
    scores = np.array([[0.5, 2.0, -1.0], [1.0, 0.0, 0.2]])
    sums, source = PLAN.sums(scores).tolist(), secure()
    drawn = np.array([PLAN.release(scores, source)[0] for _ in range(8000)])
    assert follows_discrete(drawn, dict(enumerate(law(sums, 1.3))))
    # Of one good candidate among many that are 4 units behind, how often it is missed tells most
    # of epsilon: in 3,000 draws ten percent are 8.5 standard deviations, of which a false alarm of
    # 1e-6 takes 4.9.
    wide = np.array([[2.0, *[-1.0] * 24]] * 4)
    missed = np.array([PLAN.release(wide, source)[0] > 0 for _ in range(3000)])
    exact = PLAN.sums(wide).tolist()

    def binary(epsilon: float) -> dict[int, float]:
        taken = by_integral(exact, epsilon)[0]
        return {0: taken, 1: 1.0 - taken}

    assert follows_discrete(missed, binary(1.3))
    for wrong in (0.9, 1.1):
        assert not follows_discrete(missed, binary(1.3 * wrong))


def test_distances_are_exact_fractions() -> None:
    """An epsilon that no float sum holds still gives a rational exponent."""
    assert Fraction(PermuteAndFlip(0.1, 0.0, 1.0).epsilon) == Fraction(0.1)


def test_choosing_is_paid_for(tmp_path: Path) -> None:
    scores = np.tile([0.0, 1.0, 0.2], (500, 1))
    ledger = Ledger.create(
        tmp_path / "ledger", "people", unit=Unit.USER, relation=Relation.REPLACE_ONE
    )
    names = ["small", "middle", "large"]
    found = choose(
        scores,
        low=0.0,
        high=1.0,
        epsilon=1.0,
        unit=Unit.USER,
        names=names,
        session=PrivacySession(ledger=ledger, run="tuning"),
    )
    # The others are 400 units behind: probabilities below exp(-200).
    assert (found.index, found.name) == (1, "middle")
    assert found.certificate.events == (PureDP(1.0),)
    assert found.certificate.epsilon == pytest.approx(1.0)
    assert found.certificate.delta == 0.0
    # That a row is about one unit only is the caller's to see to, and the certificate says so.
    assert found.certificate.assumptions == (OWN_ROW,)
    assert "depends on the data of one unit only" in OWN_ROW.statement
    assert OWN_ROW.enforced.startswith("not enforced")
    found.certificate.verify()
    again = choose(
        scores, low=0.0, high=1.0, epsilon=1.0, unit=Unit.USER, session=PrivacySession(seed=1)
    )
    assert again.name == "1"


@pytest.mark.parametrize("scores", [[1.0, 2.0], [[]], [["a"]], [[1.0], [1.0, 2.0]]])
def test_scores_that_are_no_table(scores: object) -> None:
    with pytest.raises(InputError, match="scores must"):
        PLAN.sums(scores)  # type: ignore[arg-type]


def test_wrong_plans() -> None:
    with pytest.raises(InputError, match="epsilon"):
        PermuteAndFlip(0.0, 0.0, 1.0)
    for low, high in ((1.0, 1.0), (0.0, math.inf), (-1e308, 1e308)):
        with pytest.raises(InputError, match="low"):
            PermuteAndFlip(1.0, low, high)
    with pytest.raises(InputError, match="names"):
        choose([[1.0, 2.0]], low=0, high=1, epsilon=1, unit=Unit.USER, names=["one"])


def test_a_score_beyond_all_floats_is_clamped_like_any_other() -> None:
    """An error would tell that somebody has one."""
    assert PLAN.sums([[10**400, -(10**400), None]]).tolist() == [LEVELS, 0, 0]  # type: ignore[arg-type]
    found = choose(
        [[10**400, 0]], low=0, high=1, epsilon=100, unit=Unit.USER, session=PrivacySession(seed=0)
    )
    assert found.index == 0
