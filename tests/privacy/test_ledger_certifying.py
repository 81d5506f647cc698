"""A name for one run, and nothing paid for that cannot be certified afterwards."""

import json
import math
import re
import sqlite3
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl import cli
from privrl.core import files
from privrl.privacy import (
    ApproxDP,
    Budget,
    Certificate,
    Disjoint,
    Event,
    Gaussian,
    InputError,
    Laplace,
    LargeDelta,
    Ledger,
    LimitUsedUp,
    PoissonSampled,
    Population,
    PureDP,
    RandomAllocation,
    Relation,
    Repeated,
    Unit,
    UnsupportedError,
    accounting,
    epsilon,
    totals,
)
from privrl.privacy.noise import secure
from privrl.privacy.session import PrivacySession
from privrl.report import words


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


# --- what others entered --------------------------------------------------------------------------


def certified(ledger: Ledger, run: str = "mine") -> Population:
    """A certificate of the run that can be written, read and verified; what it says of all."""
    certificate = ledger.certify(run, 1e-6, source=secure())
    again = Certificate.from_json(certificate.to_json())
    assert again == certificate
    again.verify()
    assert again.card()
    assert words.describe_composition(again)
    assert certificate.population is not None
    assert ledger.is_consistent_with(certificate)
    return certificate.population


def test_a_colleague_with_a_larger_delta_does_not_take_the_certificate_away(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        Ledger.create(path, "clinic", unit=Unit.USER) as ledger,
        Ledger.open(path) as colleague,
    ):
        colleague.spend(PureDP(0.1), run="theirs")
        ledger.spend(Gaussian(50, 1), run="mine", delta=1e-6)
        # Between spending and certifying.
        colleague.spend(ApproxDP(1.0, 1e-3), run="theirs", delta=1e-2)
        assert certified(ledger).epsilon is None
        certificate = ledger.certify("mine", 1e-6, source=secure())
        assert certificate.epsilon == epsilon(Gaussian(50, 1), 1e-6)
        told = " ".join(certificate.card().split())
        assert "has paid more than any epsilon that can be stated at delta 1e-06, this inc" in told
        assert "more than any epsilon that can be stated" in words.describe_composition(certificate)
        assert math.isinf(ledger.account(1e-6).epsilon)
    assert cli.run(["ledger", "show", str(path), "--delta", "1e-6"]) == 0
    shown = capsys.readouterr().out
    assert "more than any epsilon that can be stated at delta 1e-06" in shown
    assert re.findall(r"(\w+)'? +more than can be stated", shown) == ["theirs"]
    assert cli.run(["ledger", "show", str(path), "--delta", "1e-6", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["epsilon"] is None
    assert answer["runs"] == {"theirs": None, "mine": certificate.epsilon}


def test_an_entry_of_the_same_run_does_not_take_the_certificate_away(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger, Ledger.open(path) as other:
        ledger.spend(Gaussian(50, 1), run="mine", delta=1e-6)
        for delta in (None, 1e-2):  # another process, which will certify at its own delta or not
            with pytest.raises(InputError, match="No finite epsilon at delta 1e-06"):
                other.spend(ApproxDP(1.0, 1e-3), run="mine", delta=delta)
        other.spend(ApproxDP(1.0, 1e-7), run="mine")
        assert len(ledger.entries()) == 2
        assert certified(ledger).epsilon is not None


def test_whoever_spends_under_the_same_name_meanwhile_is_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the ledger and the entry, which are two transactions."""
    half = ApproxDP(0.1, 6e-7)
    with (
        Ledger.create(path, "clinic", unit=Unit.USER) as ledger,
        Ledger.open(path) as other,
        monkeypatch.context() as racing,
    ):
        tried = ledger._check_certifiable

        def overtaken(*given: Any) -> None:
            tried(*given)
            racing.undo()
            other.spend(half, run="a", delta=1e-6)

        racing.setattr(ledger, "_check_certifiable", overtaken)
        with pytest.raises(InputError, match="No finite epsilon"):
            ledger.spend(half, run="a", delta=1e-6)
        assert len(ledger.entries()) == 1
        ledger.certify("a", 1e-6, source=secure())


def test_many_slots_and_many_groups_do_not_take_the_certificate_away(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger:
        ledger.spend(Gaussian(50, 1), run="mine", delta=1e-6)
        scales = [[400 + 10 * i + 50 * j for j in range(3)] for i in range(7)]
        for i, of_slot in enumerate(scales):  # 3^7 ways of being in slots
            for slot, scale in enumerate(of_slot):
                ledger.spend(Laplace(scale, 1), run="a", partition=f"p{i}", slot=slot)
        worst = [Gaussian(50, 1), *(Laplace(min(of_slot), 1) for of_slot in scales)]
        stated = certified(ledger).epsilon
        assert stated is not None
        assert epsilon(worst, 1e-6) <= stated <= 1.2 * epsilon(worst, 1e-6)
        for i in range(9):  # 2^9 ways of being in groups
            ledger.spend(Disjoint((Laplace(300 + i, 1), Gaussian(90 + i, 1))), run=f"b{i}")
        more = certified(ledger).epsilon
        assert more is not None
        assert more > stated
        assert ledger.account(1e-6).method == "Rényi divergences"
    assert cli.run(["ledger", "show", str(path), "--delta", "1e-6"]) == 0
    assert "epsilon" in capsys.readouterr().out


def test_a_run_with_too_many_slots_of_its_own_is_not_paid_for(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger:

        def spend(i: int, slot: int) -> None:
            event = Laplace(1000 + 2 * i + slot, 1)
            ledger.spend(event, run="mine", partition=f"p{i}", slot=slot, delta=0.0)

        for i, slot in product(range(9), range(2)):
            spend(i, slot)
        spend(9, 0)
        with pytest.raises(UnsupportedError, match="too many different slots"):
            spend(9, 1)
        assert len(ledger.entries()) == 19
        ledger.certify("mine", 0.0, source=secure()).verify()


EVENTS: list[Event] = [
    Gaussian(40, 1),
    Repeated(Gaussian(90, 1), 3),
    Laplace(60, 1),
    PureDP(0.02),
    ApproxDP(0.01, 1e-8),
    PoissonSampled(Gaussian(5, 1), 0.01),
    RandomAllocation(Gaussian(20, 1), 10),
    Disjoint((Laplace(80, 1), Gaussian(60, 1))),
]
PLACES = [("", 0), ("weeks", 0), ("weeks", 1), ("cities", 0), ("cities", 1)]


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(EVENTS)), min_size=1, max_size=6),
    st.integers(0, 2),
)
def test_the_bound_of_a_total_is_not_below_it(
    spends: list[tuple[totals.Place, Event]], sampled: int
) -> None:
    spent: dict[totals.Place, dict[str, int]] = {}
    for place, event in spends:
        texts, text = spent.setdefault(place, {}), files.canonical_json([event.to_dict()])
        texts[text] = texts.get(text, 0) + 1
    exact = totals.exact_account(spent, 1e-6, Relation.REPLACE_ONE)[0].epsilon
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(totals, "_MOST_WORK", 0)  # nothing is found exactly
        patched.setattr(totals, "_MOST_CHOICES", 0)
        patched.setattr(totals, "_MOST_SAMPLED", sampled)  # the rest is charged without sampling
        bound = totals.account_bound(spent, 1e-6, Relation.REPLACE_ONE)
    assert bound.method == "Rényi divergences"
    # What is called exact is rounded up on a grid; the bound is not.
    assert exact <= bound.epsilon * (1.0 + 1e-4) + accounting.GRID


# --- warnings, and who has no ledger --------------------------------------------------------------


def test_warnings_that_are_errors_come_before_the_payment(path: Path) -> None:
    limit = Budget(2.0, 1e-6)
    sampled = Repeated(PoissonSampled(Gaussian(1, 1), 0.01), 20)
    with (
        Ledger.create(path, "clinic", unit=Unit.USER, people=1000, limit=limit) as ledger,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        with pytest.raises(LargeDelta):
            ledger.spend(Gaussian(50, 1), run="mine", delta=1e-3)
        with pytest.raises(LimitUsedUp):
            ledger.spend(sampled, run="mine")
        assert ledger.entries() == []
        warnings.simplefilter("ignore")
        ledger.spend(Gaussian(50, 1), run="mine", delta=1e-3)
        warnings.simplefilter("error")
        ledger.certify("mine", 1e-3, source=secure())  # who spent has been warned


def test_a_session_does_not_pay_for_what_it_cannot_certify(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger:
        for kept in (None, ledger):
            run = None if kept is None else "mine"
            opened = PrivacySession(ledger=kept, run=run).open(Unit.USER, Relation.REPLACE_ONE)
            with pytest.raises(InputError, match="No finite epsilon"):
                opened.pay(ApproxDP(1.0, 1e-3), delta=1e-6)
            assert not opened.has_paid
            opened.pay(Gaussian(50, 1), delta=1e-6)
            assert opened.certify(1e-6).epsilon == epsilon(Gaussian(50, 1), 1e-6)
        assert len(ledger.entries()) == 1


# --- what is read, and what is accounted for ------------------------------------------------------


def read_of_entries(ledger: Ledger) -> list[str]:
    """The statements that read entries from now on, with their numbers."""
    read: list[str] = []

    def note(statement: str) -> None:
        if statement.startswith("SELECT") and "FROM entries" in statement:
            read.append(statement.partition("WHERE ")[2].partition(" ORDER")[0])

    ledger._connection.set_trace_callback(note)
    return read


def test_spending_and_certifying_read_what_was_added_since(path: Path) -> None:
    Ledger.create(path, "us", unit=Unit.REWARD_FUNCTION, relation=Relation.REWARD_RADIUS).close()
    with Ledger.open(path) as ledger, Ledger.open(path) as other:
        for i in range(5):
            ledger.spend(Gaussian(50, 1), run=f"run {i}", reward_radius=0.5)
        read = read_of_entries(other)
        other.spend(Gaussian(50, 1), run="run", reward_radius=0.5, new_run=True, delta=1e-6)
        other.claim("run", "token", 0)
        other.certify("run", 1e-6, source=secure(), reward_radius=0.5)
        other.account(1e-6)
        # Once the five, then its own.
        assert read[0] == "number > 0"
        assert set(read[1:]) == {"number > 5", "number > 6", "number > 7"}
        assert other.check() == 7


def test_runs_with_equal_events_are_accounted_for_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER, limit=Budget(50.0, 1e-6)) as ledger:
        for i in range(30):
            ledger.spend(Laplace(100 + i % 2, 1), run=f"run {i}")
    asked: list[int] = []
    account = accounting.account

    def counted(*arguments: Any) -> accounting.Account:
        asked.append(1)
        return account(*arguments)

    each = epsilon(Laplace(101, 1), 1e-6)
    monkeypatch.setattr(accounting, "account", counted)
    assert cli.run(["ledger", "show", str(path), "--json", "--runs", "30"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["runs"]) == shown["runs_in_all"] == 30
    assert shown["runs"]["run 7"] == each
    assert len(asked) == 3  # two kinds of runs, and all of them
    assert cli.run(["ledger", "show", str(path), "--runs", "4"]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"run (\d+)", shown) == ["26", "27", "28", "29"]
    assert "and 26 earlier runs" in shown


def test_equal_events_of_a_long_run_are_counted_in_its_certificate(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger:
        for _ in range(40):
            ledger.spend([Gaussian(50, 1), Laplace(90, 1)], run="mine")
        certificate = ledger.certify("mine", 1e-6, source=secure())
        assert certificate.events == (
            Repeated(Gaussian(50, 1), 40),
            Repeated(Laplace(90, 1), 40),
        )
        same = [Gaussian(50, 1)] * 40 + [Laplace(90, 1)] * 40
        assert certificate.epsilon == epsilon(same, 1e-6)
        certificate.verify()


@settings(max_examples=20)
@given(run=st.text(min_size=1), note=st.text(), partition=st.text(), cost=st.floats(0.001, 0.3))
def test_any_text_is_verified_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, run: str, note: str, partition: str, cost: float
) -> None:
    path = tmp_path_factory.mktemp("any") / "ledger"
    with Ledger.create(path, run.strip() or "x", unit=Unit.USER, limit=Budget(1.0)) as ledger:
        try:
            ledger.spend(PureDP(cost), run=run, note=note, partition=partition)
        except InputError:  # texts that SQLite does not keep
            return
        assert ledger.check() == 1
    connection = sqlite3.connect(path)  # as earlier versions stored events
    (text,) = connection.execute("SELECT events FROM entries").fetchone()
    connection.execute("UPDATE entries SET events = ?", (json.dumps(json.loads(text)),))
    connection.commit()
    connection.close()
    with Ledger.open(path) as ledger:
        assert ledger.check() == 1
