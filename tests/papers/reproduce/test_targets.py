"""Every registered target: its verdict flips, and its full plan has seeds enough."""

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from privrl.papers.reproduce import Difference, Target, judge
from privrl.papers.reproduce.__main__ import page
from privrl.papers.reproduce.catalogue import load
from privrl.papers.reproduce.estimate import Estimate, on_scale
from privrl.papers.reproduce.running import findings_of
from tests.papers.reproduce.fed import printed_estimates
from tests.papers.reproduce.toy import make_target

NAMES = {
    *(f"seo2020.{one}" for one in ("table2", "table3", "table4")),
    *(f"seo2020.figure{k}" for k in (2, 3, 4, 5)),
    *(f"xie2019.figure{k}" for k in (1, 2, 3, 4, 5, 6)),
    "xie2019.table1",
    *("rajabi2022.table1", "rajabi2022.figure2"),
    *(f"ono2020.{one}" for one in ("figure2", "figure3", "table1", "table2", "table3")),
    *("wang2019.figure1", "wang2019.figure2"),
}
"""The tables and figures of the five papers that have numbers or curves in them."""

PAPERS_TO_COME: set[str] = set()
"""Take a paper out when its targets are there."""

TARGETS = [make_target(), *load().values()]
each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda one: one.name)


def test_the_list_is_complete() -> None:
    assert len(NAMES) == 23
    missing = NAMES - set(load())
    assert set(load()) <= NAMES
    assert {name.partition(".")[0] for name in missing} <= PAPERS_TO_COME
    there = {name.partition(".")[0] for name in load()}
    assert not there & PAPERS_TO_COME, "these are there: take them out of PAPERS_TO_COME"


def contradicting(target: Target) -> list[str]:
    return [one.name for one in target.differences if one.contradicts]


@each_target
def test_printed_numbers_give_reproduced(target: Target) -> None:
    verdict = judge(target, printed_estimates(target), readings=target.experiment.tried)
    # Where no number is printed there is none to agree with, and the direction is all there is. And
    # where its own sampling error hides every difference, the paper itself cannot be judged.
    hidden = all(one.outcome in ("not shown", "contradicted") for one in verdict.differences)
    best = "direction only" if not target.compared else "reproduced"
    assert verdict.word == ("not comparable" if hidden else best), verdict.reason
    contradicted = [one.name for one in verdict.differences if one.outcome == "contradicted"]
    assert contradicted == contradicting(target)


@each_target
def test_full_plans_have_seeds_enough(target: Target) -> None:
    """To see each printed difference at 2 standard errors with probability 0.9, or more."""
    verdict = judge(target, printed_estimates(target), readings=target.experiment.tried)
    for one in verdict.differences:
        if one.counts:
            assert one.needed is not None, one.name
            assert one.needed <= one.seeds == len(target.experiment.full.seeds), one.name


@each_target
def test_noise_is_not_reproduced(target: Target) -> None:
    """Estimates in whose law no difference holds: contrasts at their bound, or beyond a margin.

    They are the nearest such to the printed numbers. Each of 40 draws is called reproduced, or the
    direction, with a probability below 0.023 each; more than 4 have one of 1e-3.
    """
    fed = printed_estimates(target)
    names = [name for one in target.differences for name in one.weights]
    names = [name for name in dict.fromkeys(names) if name in fed]
    shown = [one for one in target.differences if set(one.weights) <= set(names)]
    weights = np.array([[one.weights.get(name, 0.0) for name in names] for one in shown])
    values = np.array([on_scale(target.by_name[name], fed[name].value) for name in names])
    wanted = np.array([_nothing(one) for one in shown])
    null = values - np.linalg.pinv(weights) @ (weights @ values - wanted)
    draw = np.random.default_rng(0)
    words = []
    for _ in range(40):
        found = dict(fed)
        for name, centre in zip(names, null, strict=True):
            one, drawn = fed[name], draw.normal(centre, fed[name].error)
            is_log = target.by_name[name].scale == "log"
            found[name] = Estimate(10.0**drawn if is_log else drawn, one.error, one.seeds)
        words.append(judge(target, found, readings=target.experiment.tried).word)
    assert sum(word in ("reproduced", "direction only") for word in words) <= 4
    assert words.count("reproduced") <= 1


def _nothing(one: Difference) -> float:
    """The contrast where there is nothing to be seen."""
    return 3.0 * (one.least or 0.0) if one.expected == "same" else one.beyond


@each_target
def test_each_difference_that_counts_flips_the_verdict(target: Target) -> None:
    """What is printed, but for one contrast, of which there is nothing."""
    fed, tried = printed_estimates(target), target.experiment.tried
    before = judge(target, fed, readings=tried)
    for one, was in zip(target.differences, before.differences, strict=True):
        if not was.counts or was.outcome != "holds":
            continue
        named = {name: target.by_name[name] for name in one.weights}
        now = sum(w * on_scale(named[name], fed[name].value) for name, w in one.weights.items())
        move = (_nothing(one) - now) / sum(weight**2 for weight in one.weights.values())
        found = dict(fed)
        for name, weight in one.weights.items():
            at = on_scale(named[name], fed[name].value) + move * weight
            value = 10.0**at if named[name].scale == "log" else at
            found[name] = replace(fed[name], value=value)
        assert judge(target, found, readings=tried).word in ("not reproduced", "not comparable")


@each_target
def test_every_number_says_where_it_is_printed(target: Target) -> None:
    for quantity in target.compared:
        assert quantity.printed is not None
        assert quantity.printed.place
        assert quantity.tolerance >= 0.0
    assert all(one.text and one.place for one in target.statements)
    assert target.experiment.name.startswith(f"{target.paper}.")
    module, _, function = target.experiment.run.partition(":")
    assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("target", load().values(), ids=lambda one: one.name)
def test_committed_results_are_readable(target: Target) -> None:
    (finding,) = findings_of([target])
    assert finding.verdict.target == target.name


def test_the_page_of_verdicts_in_the_docs_is_made_from_the_results() -> None:
    """Else: python -m privrl.papers.reproduce > docs/verdicts.md."""
    shown = Path(__file__).parents[3] / "docs" / "verdicts.md"
    assert shown.read_text(encoding="utf-8") == page()


def test_targets_are_listed_without_numpy() -> None:
    code = (
        "import sys; from privrl.papers.reproduce.catalogue import load; load(); "
        "print([name for name in ('numpy', 'jax', 'scipy', 'pyarrow') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@each_target
def test_two_seeds_are_enough_for_an_estimate(target: Target) -> None:
    """As in a quick run: a statistic that is a function sees one seed where one is left out."""
    for quantity in target.quantities:
        if callable(quantity.statistic):
            series = [1.0 / (k + 1) for k in range(100)]
            try:
                value = quantity.statistic([0.5])
            except TypeError:
                value = quantity.statistic([series])
            assert np.isfinite(value), quantity.name
