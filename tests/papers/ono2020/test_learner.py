"""PGC-A3C as printed: its settings, and the claim beside the certificate of the same noise."""

from typing import Any

import pytest

from privrl.control.pgc.learner import NOT_PRIVATE
from privrl.control.pgc.reports import Arm
from privrl.core.errors import InputError
from privrl.envs import make
from privrl.envs.control import CartPole
from privrl.papers.ono2020 import PGC
from privrl.privacy.mechanisms.report_laplace import LaplaceReport
from privrl.privacy.mechanisms.sign import ProjectedSign
from privrl.privacy.session import PrivacySession


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["sign", "laplace", None])
def test_the_same_noise_is_claimed_and_certified(mechanism: Any) -> None:
    epsilon = None if mechanism is None else 2.0
    agent = PGC(epsilon, mechanism, submissions=2)
    learned = agent.learn(CartPole(step_limit=12), 50, session=PrivacySession(seed=2))
    assert learned.settings["parameters"] == 112
    assert learned.settings["reports"] == 100
    if mechanism is None:
        assert learned.promise == learned.privacy_statement == NOT_PRIVATE
        return
    claim = learned.claim
    assert claim.epsilon == 1.0
    assert claim.certified is not None
    assert claim.certified.epsilon == 2.0
    claim.certified.verify()
    statements = [one.statement for one in claim.certified.assumptions]
    assert ("idealised real arithmetic" in " ".join(statements)) == (mechanism == "laplace")
    assert "its 2 reports" in learned.privacy_statement


def test_settings_are_the_papers_unless_others_were_said() -> None:
    sign = PGC(5.0, "sign")
    program = sign.program(CartPole(), 100).program
    assert (program.acting, program.optimiser, program.staleness) == ("greedy", "sgd", "none")
    assert program.timing == "open"
    assert program.model.activation == "relu"
    assert program.model.critic
    assert program.arms == (Arm(ProjectedSign(5.0, 112, debias=False), "clip"),)
    printed = {"rate": 0.5, "gamma": 0.99, "value_weight": 0.5, "entropy": 0.01}
    assert sign.settings(112) == {**printed, "decay": 0.0, "buffer": 100.0}
    assert PGC(5.0, "sign", rate=0.1, entropy=0.0).settings(112) == {
        **printed,
        "rate": 0.1,
        "entropy": 0.0,
        "decay": 0.0,
        "buffer": 100.0,
    }
    laplace = PGC(2.0)
    assert laplace.settings(112)["buffer"] == 1.0
    assert laplace.arm(112) == Arm(LaplaceReport(2.0, 112, 0.005), "clip", 0.005)
    assert PGC(2.0, clip=0.1).arm(112) == Arm(LaplaceReport(2.0, 112, 0.05), "clip", 0.05)
    assert PGC(None, None, clip=0.01).arm(112) == Arm(None, "clip", 0.005)
    assert PGC(None, None).arm(112).radius > 1e99
    assert PGC(2.0, control="zero").arm(112).gradient == "zero"


def test_no_baseline_is_needed_elsewhere() -> None:
    assert "baseline" not in PGC(1.0).program(make("Taxi"), 10).settings_by_name


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"epsilon": 1.0, "mechanism": "privunit"},
            "mechanism must be 'laplace', 'sign' or 'none'",
        ),
        ({"epsilon": 1.0, "clip": 0.0}, "clip must be"),
        ({"epsilon": 1.0, "value_weight": -1.0}, "value_weight must be"),
        ({"epsilon": 1.0, "entropy": -1.0}, "entropy must be"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        PGC(**settings)
