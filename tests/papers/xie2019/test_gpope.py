"""GPOPE as printed: the claim of Lemma 1, and what can be certified for the same noise."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privrl.data import OneHot
from privrl.evaluation.result import Result
from privrl.papers.xie2019 import GPOPE, lemma1_sigma
from privrl.privacy import Budget, Claim, InputError, Unit
from privrl.privacy.claims import xie2019_lemma1
from privrl.privacy.session import PrivacySession
from tests.evaluation.test_bellman_error import simulated, weights_of

# The same for all tests, so that one program is compiled for all.
DATA = simulated(50, 1, users=25)

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def gpope(**changed: Any) -> GPOPE:
    given = {"clip": 0.5, "step": 0.1, "gamma": 0.9, "iterations": 20}
    return GPOPE(OneHot(3), Budget(1.0, 1e-5), **{**given, **changed})


def test_the_papers_claim_stands_beside_what_can_be_certified(tmp_path: Path) -> None:
    result = gpope().fit(DATA, session=PrivacySession(seed=1))
    claim = result.claim
    assert isinstance(claim, Claim)
    assert claim.epsilon == pytest.approx(1.0, rel=1e-9)
    assert claim.certified is not None
    assert claim.certified.unit is Unit.USER
    assert claim.certified.epsilon > claim.epsilon
    claim.certified.verify()
    with pytest.raises(InputError, match="no certificate"):
        _ = result.certificate
    result.save(tmp_path / "r.json")
    again = Result.load(tmp_path / "r.json")
    assert again.claim == claim
    np.testing.assert_array_equal(weights_of(again), weights_of(result))


def test_given_noise_is_used() -> None:
    result = gpope(sigma=3.0).fit(DATA)
    assert result.settings["sigma"] == 3.0
    assert result.claim.epsilon == pytest.approx(xie2019_lemma1(3.0, 25, 20, 1e-5).epsilon)


@pytest.mark.parametrize("budget", [Budget(0.1, 1e-5), Budget(3.0, 1e-3)])
@pytest.mark.parametrize("size", [(1000, 1000), (50, 2000), (10_000, 100)])
def test_lemma_1_is_inverted(budget: Budget, size: tuple[int, int]) -> None:
    m, n = size
    sigma = lemma1_sigma(budget, m, n)
    x = math.exp(1.0 / sigma**2)
    p = n * min(4.0 * (x - 1.0), 2.0 * x) / (2.0 * m**2)
    claimed = p + 2.0 * math.sqrt(p * math.log(1.0 / budget.delta))
    assert claimed == pytest.approx(budget.epsilon, rel=1e-9)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="sigma"):
        gpope(sigma=-1.0)
    with pytest.raises(InputError, match="clip"):
        gpope(clip=0.0)
