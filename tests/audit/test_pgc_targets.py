"""Locally private reports under attack on the wire: what ships is not refuted."""

import pytest

from privrl.audit import Verdict
from privrl.audit.catalogue import TARGETS
from privrl.audit.mutations import audit_target
from privrl.audit.targets import pgc as pgc_audits
from tests.auditing import target_params

QUICK = {"pgc-privunit-broken"}
SLOW = {"pgc-privunit", "pgc-laplace-twice"}


@pytest.mark.parametrize("name", target_params(pgc_audits, QUICK, SLOW))
def test_what_ships_is_not_refuted(name: str) -> None:
    found = audit_target(TARGETS[name]())
    assert found.target == name
    assert found.verdict is Verdict.NOT_REFUTED
    assert found.warning is None
    assert found.epsilon > 0.01 * found.certified
