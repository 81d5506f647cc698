"""Sessions: what cannot mean anything is refused before anything is read."""

from pathlib import Path
from typing import Any

import pytest

from privrl.control import LoggedQ
from privrl.data import Trajectories
from privrl.privacy import Gaussian, InputError, Ledger, PrivacySession, Relation, Unit
from privrl.privacy.noise import reproducible, secure
from privrl.privacy.promise import NoiseOrigin


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ledger": "people.ledger", "run": "a"}, "ledger must be a Ledger"),
        ({"run": "a"}, "run is the run's name in a ledger"),
        ({"seed": -1}, "seed must be"),
        ({"seed": True}, "seed must be"),
        ({"public": "no"}, "public must be"),
    ],
)
def test_what_is_no_session(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        PrivacySession(**given)


def test_a_ledger_needs_a_run_and_its_own_unit(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "l", "clinic", unit=Unit.USER) as ledger:
        with pytest.raises(InputError, match="needs the run's name"):
            PrivacySession(ledger=ledger)
        session = PrivacySession(ledger=ledger, run="a")
        with pytest.raises(InputError, match="do not add up"):
            session.open(Unit.TRAJECTORY, Relation.REPLACE_ONE)
        opened = session.open(Unit.USER, Relation.REPLACE_ONE)
        assert not opened.has_paid
        opened.pay(Gaussian(30.0, 1.0), delta=1e-5)
        assert opened._paid
        assert [entry.run for entry in ledger.entries()] == ["a"]
        assert opened.certify(1e-5).population is not None


def test_a_seed_is_said_in_the_certificate_and_gives_the_same_noise_again() -> None:
    drawn = []
    for session in (PrivacySession(seed=3), PrivacySession(seed=3), PrivacySession()):
        opened = session.open(Unit.USER, Relation.REPLACE_ONE)
        opened.pay(Gaussian(3.0, 1.0), delta=1e-5)
        drawn.append(tuple(opened.source.normal(1.0, (3,))))
        secret = opened.certify(1e-5).noise is NoiseOrigin.SECURE
        assert secret == (session.seed is None)
    assert drawn[0] == drawn[1] != drawn[2]


def test_what_a_learner_has_no_use_for_is_refused() -> None:
    data = Trajectories.from_arrays([0], [0], [0.0], lengths=[1], num_states=1, num_actions=1)
    learner = LoggedQ(num_actions=1, reward_range=(0.0, 1.0), budget=None, num_states=1)
    with pytest.raises(InputError, match="no diagnostics to show"):
        learner.fit(data, session=PrivacySession(public=True))


def test_parts_of_a_payment_are_certified_apart_and_none_twice(tmp_path: Path) -> None:
    first, second = Gaussian(30.0, 1.0), Gaussian(40.0, 1.0)
    with Ledger.create(tmp_path / "l", "clinic", unit=Unit.USER) as ledger:
        opened = PrivacySession(ledger=ledger, run="a").open(Unit.USER, Relation.REPLACE_ONE)
        with pytest.raises(AssertionError, match="than was paid for"):
            opened.part(first, secure())
        opened.pay((first, second), delta=1e-5)
        parts = [opened.part(event, reproducible(1, n)) for n, event in enumerate((first, second))]
        for event, part in zip((first, second), parts, strict=True):
            certificate = part.certify(1e-5)
            assert certificate.events == (event,)
            assert certificate.noise is NoiseOrigin.REPRODUCIBLE
            assert certificate.epsilon < opened.certify(1e-5).epsilon
        for event in (first, Gaussian(50.0, 1.0)):
            with pytest.raises(AssertionError, match="than was paid for"):
                opened.part(event, secure())
        assert len(list(ledger.entries())) == 1
        with pytest.raises(AssertionError, match="pays nothing itself"):
            parts[0].pay(second)
        with pytest.raises(AssertionError, match="than was paid for"):
            parts[0].part(first, secure())
        parts[0].check_paid(first)
        with pytest.raises(AssertionError, match="than was paid for"):
            parts[0].check_paid(second)
