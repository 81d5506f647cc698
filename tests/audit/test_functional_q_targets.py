"""Whole runs of private Q-learning under attack: what ships is not refuted."""

import pytest

from privrl.audit import Verdict
from privrl.audit.catalogue import TARGETS
from privrl.audit.mutations import audit_target
from privrl.audit.targets import functional_q as q_audits
from tests.auditing import target_params

SLOW = {"logged-q"}


@pytest.mark.parametrize("name", target_params(q_audits, slow=SLOW))
def test_what_ships_is_not_refuted(name: str) -> None:
    found = audit_target(TARGETS[name]())
    assert found.target == name
    assert found.verdict is Verdict.NOT_REFUTED
    assert found.warning is None
    assert found.epsilon > 0.01 * found.certified
