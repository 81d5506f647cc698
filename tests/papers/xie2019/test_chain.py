"""The chain: its simulator, and how much better the certified estimator does."""

import json
import math

import numpy as np
import pytest

from privrl.evaluation.bellman_error import mspbe, unit_moments
from privrl.papers.xie2019 import chain
from privrl.papers.xie2019.chain import (
    FEATURES,
    GAMMA,
    SEEDS,
    TOLERANCE,
    exact,
    gpope,
    private_gtd,
    simulate,
)
from privrl.privacy.session import PrivacySession
from tests.evaluation.test_bellman_error import weights_of


def test_simulated_chains_are_chains() -> None:
    units = unit_moments(simulate(4000, 0), None, FEATURES, GAMMA, dual=True)
    each = {"A": units.A, "C": units.C}
    for name, stacked in each.items():
        matrices = stacked.toarray().reshape(4000, 40, 40)
        apart = np.abs(matrices.mean(0) - getattr(exact(), name))
        # Seven standard errors: one false alarm in 10^8 for the 118 entries that are not 0.
        assert np.all(apart <= 7.0 * matrices.std(axis=0) / math.sqrt(4000) + 1e-9)
    assert abs(units.b.mean(0)[38] - exact().b[38]) <= 7.0 * units.b[:, 38].std() / math.sqrt(4000)


@pytest.mark.slow
def test_the_chain_at_ten_thousand_trajectories() -> None:
    ours, theirs = [], []
    for seed in SEEDS:
        data = simulate(10_000, seed)
        ours.append(
            mspbe(
                weights_of(private_gtd(10_000).fit(data, session=PrivacySession(seed=seed))),
                exact(),
            )
        )
        judge = gpope(10_000)
        theirs.append(mspbe(judge.sweep(data, None, [judge.step], [seed])[0, 0], exact()))
    # Settings and tolerance were frozen on seeds 0 to 9.
    assert float(np.mean(ours)) <= TOLERANCE <= 0.0015
    assert float(np.mean(theirs)) >= 12.0 * float(np.mean(ours))


@pytest.mark.slow
def test_rows_can_be_written_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(chain.SETTINGS, 60, chain.SETTINGS[1_000])
    rows = [json.loads(json.dumps(row)) for row in chain.run(sizes=(60,), seeds=range(2))]
    sigmas = {row["method"]: row["sigma"] for row in rows if "sigma" in row}
    assert sigmas["GPOPE, certified"] == gpope(60).noise(60).noise_multiplier
    assert sigmas["GPOPE, paper"] == gpope(60, as_printed=True).noise(60).noise_multiplier
    assert sigmas["GPOPE, certified"] != sigmas["GPOPE, paper"]
