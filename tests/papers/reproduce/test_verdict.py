"""Verdicts are computed from estimates alone, and each of them can be made to flip."""

import math
import random
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privrl.core.errors import InputError
from privrl.papers.reproduce import Difference, Printed, Quantity, Statement, above, judge, trend
from privrl.papers.reproduce.estimate import (
    Estimate,
    binomial_error,
    estimates,
    on_scale,
    printed_error,
)
from privrl.papers.reproduce.verdict import Contrast, critical, seeds_needed
from tests.papers.reproduce.fed import printed_estimates
from tests.papers.reproduce.toy import DIFFERENCES, QUANTITIES, make_target, quantity


def found(seeds: int = 20, error: float = 0.1, **values: float) -> dict[str, Estimate]:
    given = {"good": 4.0, "fair": 3.0, "control": 0.0, "certified": 3.5, **values}
    return {name: Estimate(value, error, seeds) for name, value in given.items()}


def contrast(seeds: int = 20, error: float = 0.1, **values: float) -> Contrast:
    return judge(make_target(), found(seeds, error, **values)).differences[0]


def test_each_verdict() -> None:
    target = make_target()
    assert judge(target, printed_estimates(target)).word == "reproduced"
    same = judge(target, found())
    assert (same.word, same.seeds, [one.agrees for one in same.numbers]) == (
        *("reproduced", 20),
        [True, True],
    )
    off = judge(target, found(good=5.5))
    assert off.word == "direction only"
    assert "1 of 2 numbers are off: good" in off.reason
    reverse = judge(target, found(good=2.5))
    assert reverse.word == "not reproduced"
    assert "1 of 2 differences hold" in reverse.reason
    few = judge(target, found(3, 0.4, good=3.2))
    assert few.word == "not comparable"
    assert "oo few seeds to say: 3 of" in few.reason
    assert judge(target, {}).word == "not comparable"
    assert judge(target, found(), is_reduced=True).word == "not comparable"
    without = tuple(quantity(one.name, None, kind=one.kind, pilot=1.0) for one in QUANTITIES)
    least = tuple(above(one.name, *one.weights, least=0.5) for one in DIFFERENCES)
    plain = make_target(quantities=without, differences=least)
    assert judge(plain, found()).word == "direction only"
    assert judge(plain, found(good=2.0)).word == "not reproduced"


def test_printed_numbers_that_show_nothing_cannot_be_compared() -> None:
    noisy = tuple(
        quantity(name, value, printed=Printed(value, "Table 1", error=2.0))
        for name, value in (("good", 4.0), ("fair", 3.0))
    )
    own = {"quantities": (*noisy, *QUANTITIES[2:]), "differences": DIFFERENCES[:1]}
    for good in (4.0, 2.0):
        verdict = judge(make_target(statements=(), **own), found(good=good))
        assert verdict.word == "not comparable"
        assert "sampling error of the printed numbers" in verdict.reason
        assert verdict.differences[0].outcome == "not shown"


def test_a_control_as_good_as_what_is_printed_is_no_excuse() -> None:
    """Else noise that does as well as the method would have its difference not count."""
    target = make_target()
    assert judge(target, found()).differences[1].outcome == "holds"
    verdict = judge(target, found(control=3.0))
    assert verdict.differences[1].outcome == "open"
    assert verdict.differences[1].counts
    assert verdict.word == "not comparable"
    assert "a control of ours does as well" in verdict.reason


def test_statements_follow_their_differences() -> None:
    target = make_target()

    def said(good: float = 4.0) -> str:
        return judge(target, found(good=good)).statements[0][1]

    assert said() == "holds"
    assert said(good=2.5) == "does not hold"
    assert judge(target, {}).statements[0][1] == "not run"
    assert judge(target, found(3, 0.4, good=3.2)).statements[0][1] == "too few seeds to say"
    turned = (above("fair beats good", "fair", "good", contradicts="Table 1 has 3 and 4."),)
    text = (Statement("Fair is best.", "Section 1", ("fair beats good",)),)
    wrong = make_target(differences=(*DIFFERENCES, *turned), statements=text)
    verdict = judge(wrong, found())
    assert verdict.statements[0][1] == "contradicts the paper's own numbers"
    assert verdict.word == "reproduced"  # what contradicts itself does not count
    assert not verdict.differences[2].counts
    assert verdict.differences[2].note == "Table 1 has 3 and 4."


def test_it_takes_two_standard_errors_for_many_seeds_and_more_for_few() -> None:
    assert critical(10**7) == pytest.approx(2.0, abs=1e-5)
    assert critical(3) == pytest.approx(stats.t.ppf(stats.norm.cdf(2.0), 2))
    assert critical(20, 5) == pytest.approx(stats.t.isf(stats.norm.sf(2.0) / 5, 19))
    c, error = critical(20), 0.1 * math.sqrt(2.0)
    assert contrast(good=3.0 + 1.01 * c * error).outcome == "holds"
    assert contrast(good=3.0 + 0.99 * c * error).outcome != "holds"


def test_readings_count() -> None:
    """A difference that one reading shows is not shown when it is the best of ten."""
    target = make_target()
    good = 3.0 + 1.1 * critical(20) * 0.1 * math.sqrt(2.0)
    once, often = (judge(target, found(good=good), readings=k) for k in (1, 10))
    assert (once.differences[0].outcome, often.differences[0].outcome) == ("holds", "open")
    assert often.readings == 10
    # Nor does it become easier to agree with what is printed.
    assert once.numbers == often.numbers
    assert once.differences[0].needed < often.differences[0].needed  # type: ignore[operator]


def test_power_is_what_a_simulation_has() -> None:
    """With the seeds that are said to be needed a true difference holds in nine of ten runs."""
    draw = np.random.default_rng(0)
    size, spread = 0.3, 0.5
    needed = seeds_needed(20, spread / math.sqrt(20), size)
    assert needed is not None
    drawn = draw.normal(size, spread, (4000, needed))
    errors = drawn.std(axis=1, ddof=1) / math.sqrt(needed)
    power = np.mean(drawn.mean(axis=1) - critical(needed) * errors > 0.0)
    # 4,000 trials: a standard error of 0.005, and a t quantile for an error that is estimated too.
    assert 0.87 < power < 0.92
    half = drawn[:, : needed // 2]
    errors = half.std(axis=1, ddof=1) / math.sqrt(half.shape[1])
    assert np.mean(half.mean(axis=1) - critical(half.shape[1]) * errors > 0.0) < 0.7
    assert seeds_needed(20, 0.1, 0.0) is None
    assert seeds_needed(20, 0.0, 1.0) == 2


@pytest.mark.parametrize("seeds", [3, 5])
def test_without_power_nothing_is_called_not_reproduced(seeds: int) -> None:
    draw = random.Random(seeds)
    words = []
    for _ in range(200):
        values = {name: draw.gauss(1.0, 1.0) for name in ("good", "fair", "control")}
        verdict = judge(make_target(), found(seeds, 1.0, **values))
        assert all(one.needed is None or one.needed > seeds for one in verdict.differences)
        words.append(verdict.word)
    assert set(words) <= {"not comparable", "direction only", "reproduced"}
    assert words.count("not comparable") >= 190


def test_same_is_tested_by_its_margin() -> None:
    same = Difference("as good", {"good": 1.0, "fair": -1.0}, "same", least=0.5)
    quantities = (quantity("good", 3.1), quantity("fair", 3.0), *QUANTITIES[2:])
    target = make_target(quantities=quantities, differences=(same,), statements=())

    def outcome(**given: Any) -> str:
        return judge(target, found(**given)).differences[0].outcome

    assert outcome(good=3.1, error=0.03) == "holds"
    assert outcome(good=4.0, error=0.03) == "fails"
    assert outcome(good=3.1, error=0.4) == "open"
    with pytest.raises(InputError, match="margin"):
        make_target(differences=(Difference("x", {"good": 1.0}, "same"),), statements=())


def test_trends_are_slopes() -> None:
    slope = trend("rises", ["a", "b", "c", "d"])
    assert sum(slope.weights.values()) == pytest.approx(0.0)
    line = {"a": 1.0, "b": 3.0, "c": 5.0, "d": 7.0}
    assert sum(line[name] * w for name, w in slope.weights.items()) == pytest.approx(2.0)


def rows(values: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {"method": name, "seed": 100 + k, "score": x}
        for name, some in values.items()
        for k, x in enumerate(some)
    ]


def estimate(values: list[float], **about: Any) -> Estimate:
    own = (quantity("good", 4.0, **about), *QUANTITIES[1:])
    target = make_target(quantities=own, differences=DIFFERENCES[1:], statements=())
    return estimates(target, rows({"good": values}))["good"]


def test_standard_errors() -> None:
    draw = random.Random(3)
    values = [draw.lognormvariate(0.0, 0.5) for _ in range(400)]
    mean = estimate(values)
    assert mean.value == pytest.approx(statistics.fmean(values))
    assert mean.error == pytest.approx(statistics.stdev(values) / 20.0)
    logs = estimate(values, scale="log")
    assert logs.error == pytest.approx(mean.error / (mean.value * math.log(10.0)))
    # The asymptotic error of the median, sqrt(pi / 2) of the mean's for the normal logarithms.
    median = estimate(values, scale="log", statistic="median")
    assert median.value == statistics.median(values)
    exact = math.sqrt(math.pi / 2.0) * 0.5 / math.log(10.0) / 20.0
    assert exact / 1.4 < median.error < 1.4 * exact
    root = estimate([x**2 for x in values], statistic="root-mean")
    squares = [x**2 for x in values]
    assert root.value == pytest.approx(math.sqrt(statistics.fmean(squares)))
    jackknife = estimate(squares, statistic=lambda some: math.sqrt(statistics.fmean(some)))
    assert jackknife.value == pytest.approx(root.value)
    assert jackknife.error == pytest.approx(root.error, rel=0.02)
    share = estimate([1.0] * 20, statistic="share")
    assert (share.value, share.error) == (1.0, binomial_error(1.0, 20))
    assert 0.04 < share.error < 0.07


def test_quotients() -> None:
    base = Quantity("base", "score", {"method": "base"})
    own = (quantity("good", None, over="base"), *QUANTITIES[1:], base)
    target = make_target(quantities=own)
    some = rows({"good": [1.0, 3.0], "base": [4.0, 4.0]})
    good = estimates(target, some)["good"]
    assert (good.value, good.seeds) == (0.5, 2)
    assert good.error == pytest.approx(0.25)
    # What the same seeds do to both is not in their quotient.
    both = rows({"good": [1.0, 3.0, 2.0], "base": [2.0, 6.0, 4.0]})
    assert estimates(target, both)["good"].error == pytest.approx(0.0, abs=1e-7)
    assert "good" not in estimates(target, rows({"good": [1.0, 3.0], "base": [0.0, 0.0]}))


def test_rows_that_cannot_be_meant_are_refused() -> None:
    twice = rows({"good": [1.0, 2.0]})
    with pytest.raises(InputError, match="several rows"):
        estimates(make_target(), [*twice, *twice])
    with pytest.raises(InputError, match="no number"):
        estimate([1.0, math.nan])
    with pytest.raises(InputError, match="logarithm"):
        estimate([-1.0, -2.0], scale="log")
    assert on_scale(quantity("good", 1.0, scale="log"), 100.0) == 2.0


def test_seeds_below_100_are_not_judged() -> None:
    some = [{**row, "seed": row["seed"] - 100} for row in rows({"good": [1.0, 2.0]})]
    assert estimates(make_target(), some) == {}
    assert estimates(make_target(), some, range(10))["good"].value == 1.5


def test_errors_of_printed_numbers() -> None:
    assert printed_error(quantity("good", 4.0)) == pytest.approx(0.5 / math.sqrt(10.0))  # 10 trials
    share = quantity("good", 0.9, statistic="share")
    assert printed_error(share) == binomial_error(0.9, 10)
    read = Printed(4.0, "Figure 1", error=0.3, reading=0.4)
    assert printed_error(quantity("good", 4.0, printed=read)) == pytest.approx(0.5)
    alone = Printed(4.0, "Figure 1")
    assert printed_error(quantity("good", 4.0, printed=alone)) == 0.0
    with pytest.raises(InputError, match="needs a spread"):
        make_target(quantities=(quantity("good", 4.0, spread=None), *QUANTITIES[1:]))


def test_noise_of_ours_does_not_make_it_easier_to_agree() -> None:
    """Far from what is printed, and the wrong way round: however much it varies."""
    for error in (0.1, 1.0, 3.0):
        verdict = judge(make_target(), found(40, error, good=-20.0))
        assert verdict.differences[0].outcome == "fails"
        assert verdict.word == "not reproduced"


def errors(some: list[dict[str, Any]], *differences: Difference, **about: Any) -> list[float]:
    own = tuple(quantity(one.name, None, pilot=1.0, **about) for one in QUANTITIES)
    target = make_target(quantities=own, differences=differences, statements=())
    found = [one.error for one in judge(target, estimates(target, some)).differences]
    return [-1.0 if one is None else one for one in found]


def test_errors_are_those_within_seeds() -> None:
    minus = above("minus", "good", "fair", least=1.0)
    plus = Difference("plus", {"good": 1.0, "fair": 1.0}, least=1.0)
    alike = rows({"good": [1.0, 5.0, 9.0], "fair": [0.0, 4.0, 8.0]})
    single = 4.0 / math.sqrt(3.0)
    assert errors(alike, minus, plus) == pytest.approx([0.0, 2.0 * single], abs=1e-7)
    # On seeds of their own they are independent, whatever the order.
    apart = [{**row, "seed": row["seed"] + 50 * (row["method"] == "fair")} for row in alike]
    assert errors(apart, minus, plus) == pytest.approx([single * math.sqrt(2.0)] * 2)
    # On some seeds in common: against 4,000 repetitions of two means.
    draw = np.random.default_rng(1)
    world, own = draw.normal(size=(4000, 12)), draw.normal(size=(4000, 2, 9))
    good, fair = world[:, :9] + own[:, 0], world[:, 3:] + own[:, 1]
    exact = float(np.std(good.mean(axis=1) - fair.mean(axis=1)))
    told = []
    for first, second in zip(good[:200], fair[:200], strict=True):
        some = rows({"good": list(first)}) + [
            {**row, "seed": row["seed"] + 3} for row in rows({"fair": list(second)})
        ]
        told += errors(some, minus)
    assert float(np.sqrt(np.mean(np.square(told)))) == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("statistic", ["median", "share", "root-mean", statistics.fmean])
def test_every_statistic_has_the_error_within_seeds(statistic: Any) -> None:
    draw = np.random.default_rng(2)
    values = np.abs(draw.normal(5.0, 1.0, 400))
    values = (values > 5.0).astype(float) if statistic == "share" else values
    some = rows({name: [float(x) for x in values] for name in ("good", "fair")})
    minus = above("minus", "good", "fair", least=1.0)
    plus = Difference("plus", {"good": 1.0, "fair": 1.0}, least=1.0)
    none, double = errors(some, minus, plus, statistic=statistic)
    assert none == pytest.approx(0.0, abs=1e-6)
    (alone,) = errors(some, Difference("one", {"good": 1.0}, least=1.0), statistic=statistic)
    assert double == pytest.approx(2.0 * alone)


def test_the_error_of_a_median_where_many_runs_never_succeed() -> None:
    """45 % of runs end at a cap: the error is 0 only where the median is the cap beyond doubt."""
    draw = np.random.default_rng(0)
    zero = 0
    for _ in range(300):
        values = np.where(draw.random(20) < 0.45, 5.0, draw.uniform(0.0, 5.0, 20))
        found = estimate([float(x) for x in values], statistic="median")
        zero += found.error == 0.0
    assert zero <= 3


def test_the_contrary_needs_no_power_to_be_seen() -> None:
    """23 the wrong way round with an error of 4, where 1 is looked for."""
    own = tuple(quantity(one.name, None, pilot=1.0) for one in QUANTITIES)
    differences = (above("good beats fair", "good", "fair", least=1.0),)
    target = make_target(quantities=own, differences=differences, statements=())
    verdict = judge(target, found(20, 4.0, good=-20.0))
    needed = verdict.differences[0].needed
    assert needed is not None
    assert needed > 1000
    assert verdict.differences[0].outcome == "fails"
    assert judge(target, found(20, 4.0, good=2.0)).differences[0].outcome == "open"


def test_power_of_the_same_is_what_a_simulation_has() -> None:
    """Both tails count: nothing there, and a margin of 0.3."""
    draw, margin, spread = np.random.default_rng(0), 0.3, 0.5
    needed = seeds_needed(20, spread / math.sqrt(20), margin, expected="same")
    assert needed is not None
    drawn = draw.normal(0.0, spread, (4000, needed))
    errors = drawn.std(axis=1, ddof=1) / math.sqrt(needed)
    power = np.mean(np.abs(drawn.mean(axis=1)) + critical(needed) * errors < margin)
    assert 0.87 < power < 0.93


def test_targets_that_do_not_fit_together_are_refused() -> None:
    changed: dict[str, dict[str, Any]] = {
        "two quantities": {"quantities": (*QUANTITIES, QUANTITIES[0])},
        "no difference": {"differences": ()},
        "no quantity": {"differences": (above("x", "good", "best"),)},
        "mixes scales": {
            "quantities": (quantity("good", 4.0, scale="log"), *QUANTITIES[1:]),
        },
        "a statement": {"statements": (Statement("x", "y", ("z",)),)},
    }
    for match, changes in changed.items():
        with pytest.raises(InputError, match=match):
            make_target(**changes)
