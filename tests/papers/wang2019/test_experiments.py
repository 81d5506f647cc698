"""Figure 1 of Wang and Hegde (2019): its rows, and what is made of them."""

from typing import Any

import numpy as np
import pytest

from privrl.papers.wang2019 import experiments as wang2019
from privrl.papers.wang2019 import printed
from privrl.privacy import InputError


def row(resets: int, sigma: float, last: float, mean: float, deviation: float = 0.5) -> Any:
    return {
        "preset": "public-code",
        "edge": "correct",
        "resets": resets,
        "sigma": sigma,
        "runs": 10,
        "last_return": last,
        "last_deviation": deviation,
        "mean_return": mean,
        "mean_deviation": deviation,
    }


def holds(rows: list[Any]) -> list[bool]:
    found = list(wang2019.verdicts(rows))
    assert [one["said"] for one in found] == list(printed.STATEMENTS)
    return [one["holds"] for one in found]


def test_verdicts() -> None:
    fresh = [row(39, s, 20.0 - 2.0 * s, 19.0 - 3.0 * s) for s in printed.SIGMAS]
    once = [row(1, s, 15.0, 15.0) for s in printed.SIGMAS]
    assert holds(fresh + once) == [True, True, True]
    # Two levels in the wrong order.
    assert holds([*fresh[:-1], row(39, 1.0, 18.0, 19.0), *once])[0] is False
    # All the same.
    assert holds([row(39, s, 20.0, 19.0) for s in printed.SIGMAS] + once)[0] is False
    # Nothing is learned, so nothing is lost by noise.
    assert holds([row(39, s, 2.0, 2.0) for s in printed.SIGMAS] + once) == [False, False, False]
    # Within the errors.
    wide = [row(1, s, 19.0 - 2.0 * s, 15.0, 20.0) for s in printed.SIGMAS]
    assert holds(fresh + wide)[2] is False


def test_a_verdict_needs_several_runs() -> None:
    with pytest.raises(InputError, match="at least two runs"):
        list(wang2019.verdicts([{**row(1, 0.0, 20.0, 19.0), "runs": 1}]))


def test_settings_of_the_curves() -> None:
    """What stays of Algorithm 1 and what of the public code, at sigmas no theorem asked for."""
    for preset, all_resets in wang2019.RESETS.items():
        for resets in all_resets:
            config = wang2019.learner(preset, resets)
            assert (config.samples, config.batch, config.rate) == (5000, 128, 1.0)
            assert config.updates == ("batch" if preset == "printed" else "step")
    with pytest.raises(InputError, match="preset must be"):
        wang2019.learner("notebook", 1)  # type: ignore[arg-type]


@pytest.mark.slow
def test_figure_1() -> None:
    """As printed, which is quick: without exploration and in 39 steps it learns nothing."""
    rows = list(wang2019.figure_1([0, 1, 2], presets=["printed"], edges=["correct"]))
    assert [(one["resets"], one["sigma"]) for one in rows] == [
        (resets, sigma) for resets in (1, 39) for sigma in printed.SIGMAS
    ]
    for one in rows:
        assert one["runs"] == 3
        assert len(one["curve"]) == 10
        assert one["mean_return"] == pytest.approx(np.mean(one["curve"]))
        assert one["last_return"] < 0.9 * wang2019.OPTIMUM
    # Without noise there is no path, and resets change nothing.
    assert rows[0]["curve"] == pytest.approx(rows[6]["curve"])
    assert rows[1]["curve"] != pytest.approx(rows[7]["curve"])
    assert len(list(wang2019.verdicts(rows))) == 3
