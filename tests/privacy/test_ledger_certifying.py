"""A name for one run, and nothing paid for that cannot be certified afterwards."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tacit.privacy import ApproxDP, Gaussian, InputError, Ledger, PureDP, Unit
from tacit.privacy.noise import secure


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "people.ledger"


def test_one_of_several_that_spend_under_a_new_name_is_let(path: Path) -> None:
    Ledger.create(path, "clinic", unit=Unit.USER).close()
    start = Barrier(8)

    def spend(number: int) -> str:
        with Ledger.open(path) as ledger:
            start.wait()
            try:
                ledger.spend(PureDP(0.1 * (number + 1)), run="monday", new_run=True)
            except InputError as error:
                return str(error)
            return "spent"

    with ThreadPoolExecutor(8) as pool:
        told = Counter(pool.map(spend, range(8)))
    refusal = "The ledger has a run 'monday' already: give this one another name."
    assert told == {"spent": 1, refusal: 7}
    with Ledger.open(path) as ledger:
        assert len(ledger.entries()) == 1
        ledger.spend(PureDP(0.1), run="monday")  # a run may spend again, if it does not say so
        ledger.spend(PureDP(0.1), run="tuesday", new_run=True)


def test_what_cannot_be_certified_at_its_delta_is_not_paid_for(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger:
        with pytest.raises(InputError, match="No finite epsilon"):
            ledger.spend(ApproxDP(1.0, 1e-3), run="a", delta=1e-6)
        with pytest.raises(InputError, match="delta must be above 0"):
            ledger.spend(Gaussian(10, 1), run="a", delta=0.0)
        assert ledger.entries() == []
        ledger.spend(ApproxDP(1.0, 6e-7), run="a", delta=1e-6)
        with pytest.raises(InputError, match="No finite epsilon"):  # the two together leak more
            ledger.spend(ApproxDP(1.0, 6e-7), run="a", delta=1e-6)
        assert len(ledger.entries()) == 1
        ledger.certify("a", 1e-6, source=secure()).verify()
