"""The targets of seo2020: what is printed, and what rows are made of."""

import math
import re
from typing import Any

import numpy as np
import pytest

from privrl.papers.reproduce.results import committed
from privrl.papers.reproduce.target import FIRST_JUDGED
from privrl.papers.seo2020 import printed, shown, targets, targets_runs, trials
from privrl.papers.seo2020.vectorised import Run

TEXT = """
Table 2. MDP-100 Taxi-v2 0.01 0.05 0.5 0.05 0.5 0.5 0.8 0
Table 3. 30.26 43.47 68.04 57.21 27.1 50.03 66.63 52.72
Table 4. MDP-100 0.021 (0.0042) 0.839 (0.006) eu : 0.014 (0.003) ev : 0.497 (0.006)
Taxi-v2 -0.0008 (0.0003) 0.035 (0.001) eu : -0.0001 (0.0003) ev : 0.0146 (0.0007)
"""
"""The numbers as the paper's text has them, column by column in Tables 2 and 3."""


def numbers(table: int) -> list[float]:
    line = TEXT.split(f"Table {table}. ")[1].split("Table ")[0]
    line = re.sub(r"MDP-100|Taxi-v2", "", line)
    return [float(one) for one in re.findall(r"-?\d+\.?\d*", line)]


def test_printed_numbers_are_the_papers() -> None:
    names, variants = shown.NAMES, ("none", "actor", "critic", "both")
    order = ("critic_step", "correction_step", "actor_step", "lambda_")
    assert numbers(2) == [printed.TABLE_2[name][key] for key in order for name in names]
    assert numbers(3) == [printed.TABLE_3[name][one] for one in variants for name in names]
    cells = [("actor", "actor"), ("critic", "critic"), ("both", "actor"), ("both", "critic")]
    both = (printed.TABLE_4, printed.TABLE_4_VARIANCES)
    assert numbers(4) == [t[n][v][trace] for n in names for v, trace in cells for t in both]


def test_targets_have_all_printed_cells() -> None:
    cells = {
        one.name: [it.printed.value for it in one.compared if it.printed is not None]
        for one in targets.TARGETS
        if one.compared
    }
    assert sorted(cells["seo2020.table3"]) == sorted(numbers(3))
    assert sorted(cells["seo2020.table4"]) == sorted(numbers(4))
    assert set(cells) == {"seo2020.table2", "seo2020.table3", "seo2020.table4"}
    for one in targets.TARGETS:
        assert all(it.printed or it.lost or it.kind != "paper" for it in one.quantities)


def test_seeds_of_the_grid_partition_it() -> None:
    """The full plan's seeds have every setting once; Table 2's are among them."""
    assert len(trials.GRID) == 6**4 == len(set(trials.GRID))
    seen = [one for seed in targets.GRID.full.seeds for one in trials.chunk(seed)]
    assert sorted(seen) == list(range(6**4))
    names = list(printed.TABLE_1)[:4]
    for settings in printed.TABLE_2.values():
        assert tuple(settings[name] for name in names) in trials.GRID


def test_the_best_of_the_grid() -> None:
    rows: list[dict[str, Any]] = [
        {"seed": 108, "scores": [-5.0, -1.0]},
        {"seed": 109, "scores": [-3.0, -4.0]},
    ]
    (first, settings), (second, _) = trials.best_of_grid(rows, 2)
    assert (first, second) == (-1.0, -3.0)
    assert tuple(settings.values()) == trials.GRID[trials.chunk(108)[1]]


def test_best_settings_are_those_of_the_grid_once_it_was_run() -> None:
    """Chosen on the seeds that choose readings, none of which is judged."""
    choosing = targets.GRID.selection.seeds
    assert max(choosing) < FIRST_JUDGED
    rows = list(committed(targets.GRID).rows(targets.GRID.readings[0], is_reduced=False))
    for (name, acting, variant), settings in trials.BEST.items():
        where = {"environment": name, "variant": variant, "acting": acting}
        own = [row for row in rows if where.items() <= row.items() and row["seed"] in choosing]
        if len(own) == len(choosing):
            assert settings == trials.best_of_grid(own, 1)[0][1]


def test_deviations_by_hand() -> None:
    returns = np.array([[0.0, 2.0, 4.0], [2.0, 2.0, 8.0]])
    kinds = trials.DEVIATIONS
    # Around (1, 2, 6) both are off by 1, 0 and 2: 5 / 3, times 2 for two runs.
    assert kinds["around the mean curve"](returns).tolist() == pytest.approx([10 / 3, 10 / 3])
    assert kinds["within a run"](returns).tolist() == pytest.approx([4.0, 12.0])
    assert kinds["late in a run"](returns).tolist() == pytest.approx([2.0, 18.0])
    # Means of 2 and 4, around 3.
    assert kinds["between runs"](returns).tolist() == pytest.approx([2.0, 2.0])


def test_cosines_by_hand() -> None:
    first = np.array([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0], [1.0, 1.0]])
    second = np.array([[1.0, 1.0], [3.0, 4.0], [1.0, 0.0], [math.inf, 1.0]])
    assert trials.cosines(first, second).tolist() == pytest.approx([math.sqrt(0.5), 1.0, 0.0, 0.0])


def test_readings_change_what_is_run() -> None:
    stay = trials.environment("MDP-100", {"stay": 0.9, "limit": 2000})
    assert stay.step_limit == 2000
    assert stay.tables.probabilities[0, 0].tolist() == pytest.approx([0.9, 0.1])
    assert trials.environment("MDP-100", {}).step_limit == 500
    assert trials.settings("MDP-100", "critic", {}) == printed.TABLE_2["MDP-100"]
    assert trials.settings("MDP-100", "critic", {"settings": "best"})["critic_step"] == 0.1
    options = [dict(one.options) for one in targets_runs.RUNS.readings]
    assert all(options.count(one) == 1 for one in options)


def test_rows_depend_on_their_part_alone() -> None:
    """The same part twice, and with other readings of the same runs."""
    setting = {"environment": "Taxi-v2", "method": "paper", "epsilons": [10.0], "episodes": 2}
    one = trials.budgets({}, setting, [0, 1])
    other = trials.budgets({"deviation": "within a run"}, setting, [0, 1])
    trials._returns.cache_clear()
    assert trials.budgets({}, setting, [0, 1]) == one
    assert one[0]["last actor 10"] == other[0]["last actor 10"]
    assert one[0]["square none"] != other[0]["square none"]
    assert len(one[0]["curve none"]) == trials.POINTS
    assert trials.budgets({}, setting, [2, 3])[0]["last both 10"] != one[0]["last both 10"]


def test_similarity_of_runs_without_noise_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With next to no noise both run in one world, so that their critics' traces are the same."""
    monkeypatch.setattr(Run, "sigma", 1e-12)
    options, setting = {"limit": 120}, {"environment": "MDP-100", "episodes": 3}
    (row,) = trials.similarities(options, setting, [0])
    assert row["series critic critic"][0] == pytest.approx(1.0, abs=1e-9)
    (other,) = trials.similarities({**options, "worlds": "other"}, setting, [0])
    assert other["series critic critic"][0] < 1.0 - 1e-6


def test_what_the_noise_is_worth() -> None:
    rows = trials.privacy_rows()
    printed_rows = [row for row in rows if "as printed" in row["series"]]
    assert [row["claimed"] for row in printed_rows] == list(printed.BUDGETS)
    assert all(row["epsilon"] is None for row in printed_rows)
    assert all(row["epsilon"] > row["claimed"] for row in rows if "repaired" in row["series"])
