"""Locally private reports under attack on the wire: what ships holds, and its twins are caught."""

import pytest

from tacit.control import pgc_audits
from tacit.privacy.audit.sabotage import Twin, attacked, bite
from tacit.privacy.audit.targets import TARGETS
from tests.auditing import own_targets, own_twins, target_params, twin_params

# The complete table is made by slow tests, and by `tacit audit --all --teeth`.
QUICK = {"pgc-privunit-broken"}
QUICK_TEETH = {
    ("NaN sent as it is", "pgc-privunit-broken"),
    ("silence for a zero gradient", "pgc-laplace-broken"),
    ("an error for a zero gradient", "pgc-privunit-broken"),
    ("seed used again", "pgc-laplace-turning"),
    ("score told as it is", "pgc-score"),
}


@pytest.mark.parametrize("name", target_params(pgc_audits, QUICK))
def test_what_ships_keeps_its_promise(name: str) -> None:
    found = attacked(TARGETS[name]())
    assert found.target == name
    assert not found.broken
    assert found.epsilon > 0.01 * found.certified


@pytest.mark.parametrize(("twin", "name"), twin_params(pgc_audits, QUICK_TEETH))
def test_every_twin_is_caught(twin: Twin, name: str) -> None:
    assert bite(twin, name).caught


def test_every_target_has_a_twin() -> None:
    assert {name for _, name in own_twins(pgc_audits)} == set(own_targets(pgc_audits))
    assert {(twin.name, name) for twin, name in own_twins(pgc_audits)} >= QUICK_TEETH
    assert set(own_targets(pgc_audits)) >= QUICK
